"""Plans, records and the runner, on a fake study."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from gllm_lib import studies
from gllm_lib.checks import FileError, InputError, inputs_read, sha256
from gllm_lib.cli import main
from gllm_lib.studies.plan import read_plan, read_records, write_record

PLAN = """
question = "Does the runner run?"
entry = "fake_study"
metric = "a number"
contrasts = ["one minus two"]
smallest_effect = "none"
predictions = ["it does"]
exclusion = "no run is left out"
stopping = "all runs"
seeds = [3, 1]
[budget]
minutes = 1
[settings]
pause = 0.0
[[cells]]
id = "one"
[[cells]]
id = "two"
"""
FAKE = """
import time
from pathlib import Path

def prepare(plan, root, *, scale=1):
    return {"scale": scale, "root": str(root)}

def measure(job, inputs):
    time.sleep(job.settings["pause"])
    if (Path(inputs["root"]) / f"fail-{job.cell['id']}-{job.seed}").exists():
        raise ValueError("told to fail")
    return {"number": inputs["scale"] * job.seed, "cell": job.cell["id"]}
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    folder = tmp_path / "results" / "fake"
    folder.mkdir(parents=True)
    (folder / "plan.toml").write_text(PLAN)
    (tmp_path / "fake_study.py").write_text(FAKE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "fake_study", raising=False)
    return tmp_path


def run(root, **options):
    with ThreadPoolExecutor(1) as executor:
        return studies.run(root, "fake", executor=executor, progress=False, **options)


def test_two_processes_run_what_is_missing_and_a_second_call_runs_nothing(root):
    assert studies.list_studies(root) == ["fake"]
    assert studies.status(root, "fake").missing == (("one", 3), ("two", 3), ("one", 1), ("two", 1))
    before = os.environ.get("OMP_NUM_THREADS")
    done = studies.run(root, "fake", workers=2, progress=False, scale=10)
    assert os.environ.get("OMP_NUM_THREADS") == before
    assert (done.planned, done.done, done.missing) == (4, 4, ())
    study = studies.load(root, "fake")
    assert [(r.cell, r.seed, r.values["number"]) for r in study.records] == [
        ("one", 3, 30), ("two", 3, 30), ("one", 1, 10), ("two", 1, 10)
    ]  # fmt: skip
    assert [r.seed for r in study.of("two")] == [3, 1]
    about = study.records[0].about
    assert about["plan_sha256"] == study.plan.sha256
    assert set(about["machine"]) == {"cpu", "cores", "system"}
    assert about["config"]["settings"] == {"pause": 0.0}
    stamps = {path: path.stat().st_mtime_ns for path in (root / "results/fake/records").iterdir()}
    assert run(root, scale=99).done == 4
    assert stamps == {path: path.stat().st_mtime_ns for path in (root / "results/fake/records").iterdir()}


def test_the_list_tells_how_many_runs_are_recorded_and_asks_the_first_question(root, monkeypatch, capsys):
    (root / "chapters").mkdir()
    (root / "_quarto.yml").write_text("book: {chapters: []}")
    monkeypatch.chdir(root)
    plan = root / "results/fake/plan.toml"
    plan.write_text(PLAN.replace("run?", "run, as Sec. 7.3 says? And why?"))
    told = "Does the runner run, as Sec. 7.3 says?\n"
    assert (main(["study", "list"]), capsys.readouterr().out) == (0, f"fake (0 of 4): {told}")
    assert not (root / "results/fake/records").exists()
    run(root)
    next((root / "results/fake/records").iterdir()).unlink()
    assert (main(["study", "list"]), capsys.readouterr().out) == (0, f"fake (3 of 4): {told}")
    plan.write_text(plan.read_text().replace("pause = 0.0", "pause = 0.1"))
    assert (main(["study", "list"]), capsys.readouterr().out) == (
        0, f"fake (records do not fit, see 'gllm study status fake'): {told}"
    )  # fmt: skip


class Elsewhere(Executor):
    """What a cluster's executor does: it pickles a call, runs it later in an order of its own, pickles what returns."""

    def __init__(self):
        self.calls = []

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        self.calls.append((future, pickle.dumps((fn, args, kwargs))))
        if len(self.calls) == 4:
            for waiting, packed in reversed(self.calls):
                call, given, named = pickle.loads(packed)
                waiting.set_result(pickle.loads(pickle.dumps(call(*given, **named))))
        return future


def test_any_executor_of_concurrent_futures_will_do(root):
    elsewhere = Elsewhere()
    assert studies.run(root, "fake", executor=elsewhere, progress=False, scale=2).done == 4
    assert len(elsewhere.calls) == 4
    found = [(r.cell, r.seed, r.values["number"]) for r in studies.load(root, "fake").records]
    assert found == [("one", 3, 6), ("two", 3, 6), ("one", 1, 2), ("two", 1, 2)]


def test_a_budget_has_its_own_seeds_cells_settings_hash_and_folder(root):
    plan = root / "results/fake/plan.toml"
    plan.write_text(PLAN + '\n[budgets.smoke]\nseeds = [7]\ncells = ["two"]\nsettings = {pause = 0.001}\n')
    done = run(root, budget="smoke")
    assert (done.planned, done.done) == (1, 1)
    small, whole = studies.load(root, "fake", "smoke"), studies.load(root, "fake")
    assert small.plan.folder.is_relative_to(root / "build" / "studies")
    assert small.plan.sha256 != whole.plan.sha256 == read_plan(root, "fake").sha256
    assert (small.records[0].cell, small.records[0].about["config"]["settings"]) == ("two", {"pause": 0.001})
    assert whole.records == ()
    with pytest.raises(InputError, match="its budgets: default, smoke"):
        studies.status(root, "fake", "full")
    plan.write_text(plan.read_text().replace("[7]", "[-7]"))
    with pytest.raises(InputError, match="not distinct whole numbers"):
        run(root, budget="smoke")


def test_a_missing_record_is_run_again_and_only_that(root):
    run(root)
    records = root / "results/fake/records"
    (records / "one-s1.json").unlink()
    assert studies.load(root, "fake").missing == (("one", 1),)
    run(root, scale=5)
    values = {path.name: json.loads(path.read_text())["values"]["number"] for path in records.iterdir()}
    assert values == {"one-s1.json": 5, "one-s3.json": 3, "two-s1.json": 1, "two-s3.json": 3}


def test_loading_notes_every_file_it_read(root):
    run(root)
    studies.load(root, "fake")
    read = {Path(path).name for path in inputs_read() if str(root) in path}
    assert read == {"plan.toml", "records", "one-s1.json", "one-s3.json", "two-s1.json", "two-s3.json"}


def test_a_changed_plan_is_refused_while_records_stand(root):
    plan = root / "results/fake/plan.toml"
    plan.write_text(PLAN.replace("Does", "Will"))
    run(root)
    plan.write_text(PLAN)
    for call in (lambda: run(root), lambda: studies.status(root, "fake"), lambda: studies.load(root, "fake")):
        with pytest.raises(studies.PlanChangedError, match="register the new one under a new name"):
            call()
    plan.write_bytes(PLAN.replace("Does", "Will").replace("\n", "\r\n").encode())
    assert studies.status(root, "fake").done == 4  # line ends are no change


def test_killed_runner_loses_nothing_finished_and_the_next_completes(root):
    plan = root / "results/fake/plan.toml"
    plan.write_text(PLAN.replace("seeds = [3, 1]", f"seeds = {list(range(8))}").replace("pause = 0.0", "pause = 0.15"))
    code = f"from gllm_lib import studies; studies.run({str(root)!r}, 'fake', workers=2, progress=False)"
    environment = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{Path.cwd()}"}
    child = subprocess.Popen([sys.executable, "-c", code], env=environment)
    records = root / "results/fake/records"
    end = time.monotonic() + 60
    while time.monotonic() < end and len(list(records.glob("*.json"))) < 3:
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    kept = {path.name: path.read_bytes() for path in records.glob("*.json")}
    assert 3 <= len(kept) < 16
    assert all(json.loads(content)["values"] for content in kept.values())
    done = studies.run(root, "fake", workers=2, progress=False)
    assert (done.done, done.missing) == (16, ())
    assert all((records / name).read_bytes() == content for name, content in kept.items())


def test_a_record_that_another_runner_made_meanwhile_stands(root):
    class Late(ThreadPoolExecutor):
        def submit(self, call, job, *rest):
            future = super().submit(call, job, *rest)
            path = read_plan(root, "fake").record_path(job.cell["id"], job.seed)
            write_record(path, future.result() | {"minutes": 99.0})
            return future

    with Late(1) as executor:
        assert studies.run(root, "fake", executor=executor, progress=False).minutes == 4 * 99.0


def test_a_failing_run_keeps_the_records_of_others(root):
    (root / "fail-two-3").touch()
    with pytest.raises(studies.RunFailedError, match="cell two, seed 3: ValueError: told to fail"):
        run(root)
    assert ("one", 3) not in studies.status(root, "fake").missing
    (root / "fail-two-3").unlink()
    assert run(root).missing == ()


def test_records_are_never_overwritten_nor_half_written(root):
    path = root / "results/fake/records/one-s3.json"
    write_record(path, {"values": {"a": 1}})
    with pytest.raises(FileError, match="never overwritten"):
        write_record(path, {"values": {"a": 2}})
    with pytest.raises(InputError, match="NaN or infinity"):
        write_record(path.with_name("two-s3.json"), {"values": {"a": float("nan")}})
    assert [each.name for each in path.parent.iterdir()] == ["one-s3.json"]
    assert json.loads(path.read_text()) == {"values": {"a": 1}}


def test_unknown_studies_and_options_are_told_before_any_work(root):
    with pytest.raises(InputError, match=r"no study 'other'.*the studies there: fake"):
        studies.status(root, "other")
    with pytest.raises(InputError, match=r"tree.*its options: scale"):
        run(root, tree=1)
    with pytest.raises(InputError, match="0 workers"):
        studies.run(root, "fake", workers=0)
    with pytest.raises(InputError, match="no cell 'three'"):
        studies.load(root, "fake").of("three")
    assert not (root / "results/fake/records").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('metric = "a number"', ""), "lacks metric"),
        (("seeds = [3, 1]", "seeds = [3, 3]"), "distinct whole numbers"),
        (("seeds = [3, 1]", "seeds = [true]"), "distinct whole numbers"),
        (("seeds = [3, 1]", "seeds = []"), "non-empty list"),
        (('id = "two"', 'id = "one"'), "unique"),
        (('id = "two"', 'id = "../two"'), "small letters"),
        (('id = "two"', ""), "small letters"),
        (("seeds = [3, 1]", "seeds = ["), "is no TOML"),
        (('"fake_study"', '"no_such_module"'), "no_such_module"),
        (('"fake_study"', '"json"'), "no function prepare and no measure"),
    ],
)
def test_bad_plans_are_refused(root, change, said):
    (root / "results/fake/plan.toml").write_text(PLAN.replace(*change))
    with pytest.raises((InputError, FileError), match=said):
        run(root)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("[]", "lacks"),
        ('{"cell": "one"}', "lacks.*seed"),
    ],
)
def test_malformed_records_are_refused(root, text, said):
    records = root / "results/fake/records"
    records.mkdir()
    (records / "one-s3.json").write_text(text)
    with pytest.raises(FileError, match=f"{said}.*delete it and run the study again"):
        studies.load(root, "fake")


def test_records_out_of_place_or_of_wrong_kinds_are_refused(root):
    run(root)
    records = root / "results/fake/records"
    content = (records / "one-s3.json").read_text()
    (records / "one-s7.json").write_text(content.replace('"seed": 3', '"seed": 7'))
    with pytest.raises(FileError, match="no record of a cell and seed"):
        studies.load(root, "fake")
    (records / "one-s7.json").unlink()
    for old, new in (('"seed": 3', '"seed": "3"'), ('"minutes": ', '"minutes": true, "was": ')):
        (records / "one-s3.json").write_text(content.replace(old, new))
        with pytest.raises(FileError, match="not of its kind"):
            studies.load(root, "fake")


def test_load_finds_the_project_from_inside_it(root, monkeypatch):
    inside = root / "build" / "deep"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    assert read_plan(None, "fake").folder == root / "results" / "fake"


def test_the_names_in_the_folder_of_records_are_an_input():
    plan = read_plan(Path(__file__).parents[2], "english-profiles")
    folder = str((plan.folder / "records").resolve())
    read_records(plan)
    assert inputs_read()[folder] == sha256(folder)

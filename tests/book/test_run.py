"""Executing chapters: what makes a run stale, what leaves it current, and how each failure is told."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from gllm_lib import checks
from gllm_lib.book import run as runner
from gllm_lib.book import trace
from gllm_lib.book.project import BookError, open_project, read_notebook, read_registry
from gllm_lib.book.run import current, run_chapters
from tests.book.conftest import CELLS, replaced, small_book, write_notebook

PLAIN = (*CELLS[:2], CELLS[3])  # a chapter without claims: its kernel starts sooner
EVIDENCE = CELLS[5][1]


def executed_now(project, profile="smoke"):
    return run_chapters(project, project.notebooks, profile, read_registry(project), quiet=True)["01-first"]


def rewrite(project, cells):
    write_notebook(project.notebook_path("01-first"), cells)


def test_a_chapter_that_ran_is_found_again(built, monkeypatch):
    monkeypatch.setattr(runner, "execute", lambda *a, **k: pytest.fail("executed again"))
    run = executed_now(built)
    assert run.inline == ("5 draws",)
    assert [(r["claim"], r["mutants_rejected"]) for r in run.evidence] == [("prp-small", 1)]
    assert run.evidence[0]["cases"] == 5
    assert executed_now(built, "default").inline == ("20 draws",)
    assert current(built, "01-first", "full") is None


@pytest.mark.parametrize(
    "cells",
    [
        replaced("A question in three lines", "Another question"),
        (*CELLS[:2], ("markdown", "One more paragraph."), *CELLS[2:]),
    ],
)
def test_prose_may_change_freely(built, cells):
    rewrite(built, cells)
    assert current(built, "01-first", "smoke") is not None


@pytest.mark.parametrize(
    "cells",
    [
        replaced('told = f"{cases} draws"', 'told = f"{cases} drawn"'),
        replaced("for $x$ in 0 to 4", "for $x$ in 0 to 5"),
        replaced('source="GLLM Def. 1"', 'source="new"'),
        replaced(".claim source", ".claim .refuted source"),
        replaced("{cases: 5}", "{cases: 6}"),
        replaced("There were `{python} told`", "There were `{python} told`, again `{python} told`"),
        (*CELLS[:6], CELLS[7], CELLS[6]),
        (*CELLS[:2], CELLS[3], CELLS[2], *CELLS[4:]),
    ],
)
def test_what_a_result_depends_on_makes_it_stale(built, cells):
    rewrite(built, cells)
    assert current(built, "01-first", "smoke") is None


def test_lock_and_versions_are_part_of_the_key(built, monkeypatch):
    (built.root / "requirements.lock").write_text("numpy==3\n")
    assert current(built, "01-first", "smoke") is None
    (built.root / "requirements.lock").write_text("numpy==2\n")
    assert current(built, "01-first", "smoke") is not None
    installed = trace.versions()
    assert {"python", "numpy", "torch", "transformers", "tokenizers", "safetensors"} <= set(installed)
    assert not {"pytest", "jupyterlab"} & set(installed)
    monkeypatch.setattr(runner, "versions", lambda: installed | {"numpy": "0.1"})
    assert current(built, "01-first", "smoke") is None


def test_a_package_that_is_required_and_missing_is_listed_as_such(monkeypatch):
    monkeypatch.setattr(
        trace.importlib.metadata, "requires", lambda name: ["numpy", "no-such>=2", "z; extra == 'test'"]
    )
    assert trace.versions.__wrapped__() | {"python": "", "numpy": ""} == {
        "python": "",
        "numpy": "",
        "no-such": "not installed",
    }


def test_every_file_of_the_book_that_a_chapter_reads_is_part_of_the_key(small):
    folder = small.root / "chapters"
    for name in ("noted.txt", "opened.txt", "late.txt"):
        (folder / name).write_text("1\n")
    (folder / "beside.py").write_text("x = 1\n")
    cell = (
        "from pathlib import Path\nimport os, beside\nfrom gllm_lib.checks import read_text\n"
        'read_text("noted.txt"), Path("opened.txt").read_text(), open("late.txt").read()\n'
        'os.utime("late.txt", (2**32, 2**32))\nwith open("written.txt", "w") as f:\n    print(1, file=f)'
    )
    rewrite(small, (*PLAIN, ("code", cell + "\nprint(1)")))
    run = executed_now(small)
    names = [f"chapters/{name}" for name in ("beside.py", "late.txt", "noted.txt", "opened.txt")]
    assert sorted(run.inputs["data"]) == names
    assert {"book/trace.py", "checks.py"} <= set(run.inputs["library"])
    assert current(small, "01-first", "smoke") is None  # late.txt changed while the chapter ran
    path = small.build("runs", "smoke", "01-first.json")
    stored = json.loads(path.read_text())
    stored["inputs"]["data"]["chapters/late.txt"] = checks.sha256(folder / "late.txt")
    path.write_text(json.dumps(stored))
    assert current(small, "01-first", "smoke") is not None
    for name in ("noted.txt", "opened.txt", "beside.py"):
        kept = (folder / name).read_text()
        (folder / name).write_text("x = 2\n")
        assert current(small, "01-first", "smoke") is None, name
        (folder / name).write_text(kept)
        assert current(small, "01-first", "smoke") is not None, name
    (folder / "opened.txt").unlink()
    assert current(small, "01-first", "smoke") is None


def test_a_library_file_edited_while_a_chapter_runs_has_no_hash(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("x = 1")
    os.utime(file, (time.time() - 1000,) * 2)
    assert trace._digest(file) == checks.sha256(file)
    os.utime(file, (time.time() + 1,) * 2)
    assert trace._digest(file) == trace.CHANGED


@pytest.mark.parametrize("damage", ["library", "inputs", "form", "json"])
def test_a_changed_library_file_or_a_damaged_store_makes_it_stale(built, damage):
    path = built.build("runs", "smoke", "01-first.json")
    stored = json.loads(path.read_text())
    if damage == "library":
        stored["inputs"]["library"]["proofs/evidence.py"] = "0" * 64
    elif damage == "inputs":
        del stored["inputs"]["data"]
    path.write_text({"form": "[1]", "json": "{"}.get(damage, json.dumps(stored)))
    assert current(built, "01-first", "smoke") is None


FAILURES = {
    "02-a": (
        replaced("bound=4", "bound=3"),
        r"cell 6 \(claim prp-02-a\): EvidenceError: check at_most_four .*fails: assert x <= bound \|.*x=4",
    ),
    "03-b": ((*PLAIN, ("code", "1 / 0")), "cell 4: ZeroDivisionError"),
    "04-c": (
        (*PLAIN, ("code", "n = 5"), ("markdown", "`{python} n`")),
        "cell 5: the inline value n is not a string",
    ),
    "05-d": ((*PLAIN, ("markdown", "`{python} nowhere`")), "cell 4: NameError"),
    "06-e": (
        (*PLAIN, ("code", "import sys; print(1, file=sys.stderr)")),
        "cell 4: wrote to standard error: 1",
    ),
    "07-f": ((*PLAIN, ("code", "import os; os._exit(3)")), "cell 4: the kernel died"),
    "08-g": (PLAIN, "was executed and produced nothing"),
    "09-h": (
        (
            *PLAIN,
            (
                "code",
                "import warnings\nimport gllm_lib.checks as c\nexec(compile(\n"
                "    'import warnings; warnings.warn(\"old\")', c.__file__, 'exec'), c.__dict__)",
            ),
        ),
        "cell 4: UserWarning: old",
    ),
    "10-i": ((*PLAIN, ("code", "raise SystemExit")), "cell 4: SystemExit"),
    "11-j": (
        (*CELLS[:5], ("code", "if cases > 10**6:\n    " + EVIDENCE.replace("\n", "\n    "))),
        r"cell 6 \(claim prp-11-j\): declares the checks .*at_most_four.* and shows none",
    ),
    "12-k": (
        (*CELLS[:6], ("code", f"again = '''{EVIDENCE}'''\nexec(again)")),
        "cell 7: declares the checks none and shows .*at_most_four",
    ),
    "13-l": (
        (*CELLS[:5], ("code", "for _ in range(2):\n    " + EVIDENCE.replace("\n", "\n    "))),
        "at_most_four.*at_most_four",
    ),
}


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """What is told of a book in which the first chapter is sound and every other fails, and the book."""
    project = small_book(tmp_path_factory.mktemp("failing") / "book")
    listed = (project.root / "_quarto.yml").read_text()
    for name, (cells, _) in FAILURES.items():
        own = tuple((kind, text.replace("prp-small", f"prp-{name}")) for kind, text in cells)
        write_notebook(project.root / "chapters" / f"{name}.ipynb", own)
        listed = listed.replace("  appendices", f"    - chapters/{name}.ipynb\n  appendices")
    (project.root / "_quarto.yml").write_text(listed)
    project = open_project(project.root)
    with pytest.raises(BookError) as caught:
        run_chapters(project, project.notebooks, "smoke", read_registry(project), quiet=True)
    return project, str(caught.value)


@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_cell_is_named(failed, name):
    project, told = failed
    (own,) = [line for line in told.splitlines() if line.startswith((f"{name},", f"{name}:"))]
    assert re.search(f"^{name}[:,].*{FAILURES[name][1]}", own), own
    assert current(project, name, "smoke") is None


def test_a_traceback_shows_the_check_and_not_what_runs_it(failed):
    own = failed[1].split("02-a, cell 6")[1].split("03-b, cell")[0]
    assert "assert x <= bound" in own
    assert own.count("EvidenceError: ") == 1
    assert own.count("prp-02-a") == 1 + own.count('@evidence("prp-02-a"')
    assert not re.search(r"proofs.evidence\.py|hypothesis/|skipping", own)


def test_the_reason_is_told_when_a_chapter_fails(small, capsys):
    rewrite(small, (*PLAIN, ("code", "raise ValueError('too large\\nby far')")))
    with pytest.raises(BookError):
        run_chapters(small, small.notebooks, "smoke", read_registry(small))
    told = capsys.readouterr().err
    assert told.startswith("01-first: failed\n    01-first, cell 4: ValueError: too large\n")


def test_a_missing_package_is_told_before_anything_runs(small, monkeypatch):
    monkeypatch.setattr(runner, "execute", lambda *a, **k: pytest.fail("executed"))
    (small.root / "chapters" / "beside.py").write_text("")
    cell = (
        "import beside, no_such.inner\nfrom nor_this import x\ntry:\n    import perhaps\nexcept ImportError:\n    pass"
    )
    rewrite(small, (*PLAIN, ("code", cell)))
    expected = r"^01-first: imports no_such, nor_this, not installed here\nrun 'make book' again"
    with pytest.raises(BookError, match=expected):
        executed_now(small)


def test_the_others_are_stored_when_some_fail(failed):
    assert current(failed[0], "01-first", "smoke") is not None


def test_execution_until_a_cell_stores_nothing(small):
    notebook = read_notebook(small.notebook_path("01-first"))
    run = runner.execute(small, "01-first", notebook, "smoke", read_registry(small), until=5)
    assert len(run.evidence) == 1
    assert run.inline == ()
    assert current(small, "01-first", "smoke") is None


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_ends_its_kernels_at_once(small, sent):
    cell = "import os\nwith open('pid', 'w') as f:\n    f.write(str(os.getpid()))\nsum(range(10**11))"
    rewrite(small, (*PLAIN, ("code", cell)))
    command = [sys.executable, "-m", "gllm_lib.cli", "render"]
    build = subprocess.Popen(command, cwd=small.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pid = small.root / "chapters" / "pid"
    deadline = time.time() + 60
    while not (pid.is_file() and pid.read_text()):
        assert build.poll() is None, build.communicate()
        assert time.time() < deadline
        time.sleep(0.05)
    build.send_signal(sent)
    told = build.communicate(timeout=30)[1]
    assert (build.returncode, "01-first: interrupted" in told, "failed" in told) == (130, True, False)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert not (small.root / "_book").exists()

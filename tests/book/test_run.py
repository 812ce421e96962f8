"""Executing chapters: what makes a run stale, what leaves it current, and how each failure is told."""

import json

import pytest

from gllm_lib import checks
from gllm_lib.book import run as runner
from gllm_lib.book.project import BookError, read_notebook, read_registry
from gllm_lib.book.run import current, run_chapters
from tests.book.conftest import CELLS, replaced, write_notebook


def built(project, profile="smoke"):
    return run_chapters(project, project.notebooks, profile, read_registry(project), quiet=True)["01-first"]


def rewrite(project, cells):
    write_notebook(project.notebook_path("01-first"), cells)


def test_a_chapter_runs_once_and_is_found_again(small, monkeypatch):
    run = built(small)
    assert run.inline == ("5 draws",)
    assert [(r["claim"], r["mutants_rejected"]) for r in run.evidence] == [("prp-small", 1)]
    assert run.evidence[0]["cases"] == 5
    monkeypatch.setattr(runner, "execute", lambda *a, **k: pytest.fail("executed again"))
    assert built(small) == current(small, "01-first", "smoke")


def test_sizes_differ_by_profile_only(small):
    assert built(small, "default").inline == ("20 draws",)
    assert current(small, "01-first", "smoke") is None


def test_prose_may_change_freely(small):
    built(small)
    rewrite(small, replaced("A question in three lines", "Another question"))
    assert current(small, "01-first", "smoke") is not None


@pytest.mark.parametrize(
    "cells",
    [
        replaced('told = f"{cases} draws"', 'told = f"{cases} drawn"'),
        replaced("for $x$ in 0 to 4", "for $x$ in 0 to 5"),
        replaced("{cases: 5}", "{cases: 6}"),
        replaced("There were `{python} told`", "There were `{python} told`, again `{python} told`"),
    ],
)
def test_what_a_result_depends_on_makes_it_stale(small, cells):
    built(small)
    rewrite(small, cells)
    assert current(small, "01-first", "smoke") is None


def test_library_lock_data_and_python_are_part_of_the_key(small, monkeypatch):
    data = small.root / "chapters" / "numbers.txt"
    data.write_text("1\n")
    rewrite(small, (*CELLS, ("code", 'from gllm_lib.checks import read_text\nread_text("numbers.txt")')))
    run = built(small)
    assert run.inputs["data"] == {"chapters/numbers.txt": checks.sha256(data)}
    assert {"proofs/evidence.py", "checks.py"} <= set(run.inputs["library"])
    assert current(small, "01-first", "smoke") is not None
    data.write_text("2\n")
    assert current(small, "01-first", "smoke") is None
    data.write_text("1\n")
    (small.root / "requirements.lock").write_text("numpy==3\n")
    assert current(small, "01-first", "smoke") is None
    (small.root / "requirements.lock").write_text("numpy==2\n")
    assert current(small, "01-first", "smoke") is not None
    monkeypatch.setattr(runner, "versions", lambda: {"python": "3.99"})
    assert current(small, "01-first", "smoke") is None


def test_a_changed_library_file_makes_it_stale(small):
    built(small)
    path = small.build("runs", "smoke", "01-first.json")
    stored = json.loads(path.read_text())
    stored["inputs"]["library"]["proofs/evidence.py"] = "0" * 64
    path.write_text(json.dumps(stored))
    assert current(small, "01-first", "smoke") is None


def test_a_damaged_store_is_made_again(small):
    built(small)
    small.build("runs", "smoke", "01-first.json").write_text("{")
    assert current(small, "01-first", "smoke") is None
    assert built(small).inline == ("5 draws",)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (replaced("bound=4", "bound=3"), r"01-first, cell 6 \(claim prp-small\): EvidenceError.*claim prp-small"),
        (replaced("print(told)", "1 / 0"), "01-first, cell 7: ZeroDivisionError"),
        (
            replaced('told = f"{cases} draws"', "told = cases"),
            "01-first, cell 8: the inline value told is not a string",
        ),
        (replaced("`{python} told`", "`{python} tol`"), "01-first, cell 8: NameError"),
        (replaced("print(told)", "import sys; print(1, file=sys.stderr)"), "cell 7: wrote to standard error: 1"),
        (replaced("print(told)", "import os; os._exit(3)"), "cell 7: the kernel died"),
    ],
)
def test_a_failing_cell_is_named(small, cells, message):
    rewrite(small, cells)
    with pytest.raises(BookError, match=message):
        built(small)
    assert current(small, "01-first", "smoke") is None


def test_a_chapter_that_produces_nothing_is_an_error(small):
    rewrite(small, (*CELLS[:2], ("parameters", "cases = 1")))
    with pytest.raises(BookError, match="produced nothing"):
        built(small)


def test_our_own_warnings_are_errors(small):
    cells = (
        *CELLS,
        (
            "code",
            "import warnings\nimport gllm_lib.checks as c\nexec(compile(\n"
            "    'import warnings; warnings.warn(\"old\")', c.__file__, 'exec'), c.__dict__)",
        ),
    )
    rewrite(small, cells)
    with pytest.raises(BookError, match="cell 9: UserWarning: old"):
        built(small)


def test_the_others_are_stored_when_one_fails(copy_of, scaffolded):
    project = copy_of(scaffolded)
    rewrite(project, replaced("print(told)", "1 / 0"))
    with pytest.raises(BookError, match="ZeroDivisionError"):
        run_chapters(project, project.notebooks, "smoke", read_registry(project), quiet=True)
    assert current(project, "02-stable-at-last", "smoke") is not None


def test_execution_until_a_cell_stores_nothing(small):
    registry = read_registry(small)
    notebook = read_notebook(small.notebook_path("01-first"))
    run = runner.execute(small, "01-first", notebook, "smoke", registry, until=5)
    assert len(run.evidence) == 1
    assert run.inline == ()
    assert current(small, "01-first", "smoke") is None

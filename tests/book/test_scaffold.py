"""`gllm new experiment` in every chapter of the book: what it writes is clean, clashes with nothing, and holds."""

import ast
import contextlib
import io
import re
import shutil
import subprocess
import symtable
import sys

import nbformat
import pytest

from gllm_lib.book import lint
from gllm_lib.book.experiment import LONGEST_SLUG, insert, new_experiment, slug
from gllm_lib.book.project import (
    canonical,
    inline_names,
    open_project,
    read_notebook,
    read_notebooks,
    read_registry,
)
from gllm_lib.book.run import execute
from gllm_lib.cli import main
from gllm_lib.proofs.claims import claims_of, declared_in, registry
from tests.book.conftest import CELLS, small_book
from tests.conftest import ROOT

CHAPTERS = open_project(ROOT).notebooks
TITLE = "An author's question, of more than a few words"


def sources(notebook, kind="code"):
    return [cell.source for cell in notebook.cells if cell.cell_type == kind]


def extended(name, times=1):
    """Return a chapter of the book with an experiment, or with several, and its cells' ids."""
    notebook = read_notebook(ROOT / "chapters" / f"{name}.ipynb")
    for number in range(times):
        ids = insert(name, notebook, TITLE, f"{name}-{number}".rjust(LONGEST_SLUG, "x"))
    return notebook, ids


def bound(source):
    """Return the names that a cell binds at its top level."""
    symbols = symtable.symtable(source, "cell", "exec").get_symbols()
    return {s.get_name() for s in symbols if s.is_assigned() or s.is_imported()} - {"fig", "ax"}  # as every figure does


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A copy of the book with an experiment in every chapter, two where the cells allow."""
    root = tmp_path_factory.mktemp("extended") / "book"
    shutil.copytree(ROOT / "chapters", root / "chapters")
    for name in ("_quarto.yml", "index.qmd"):
        shutil.copy(ROOT / name, root / name)
    for name in CHAPTERS:
        twice, _ = extended(name, 2)
        notebook = twice if len(twice.cells) <= lint.MOST_CELLS else extended(name)[0]
        (root / "chapters" / f"{name}.ipynb").write_text(canonical(notebook))
    return open_project(root)


@pytest.mark.parametrize("name", CHAPTERS)
def test_an_experiment_fits_into_every_chapter(name):
    before = read_notebook(ROOT / "chapters" / f"{name}.ipynb")
    notebook, ids = extended(name)
    at = [cell.id for cell in notebook.cells].index(ids[0])
    new = notebook.cells[at : at + len(ids)]
    assert [cell.id for cell in new] == ids
    assert notebook.cells[:at] + notebook.cells[at + len(ids) :] == before.cells
    assert notebook.cells[at + len(ids)].source.startswith("## What was checked")
    assert len(notebook.cells) <= lint.MOST_CELLS
    nbformat.validate(notebook)
    (claim,) = claims_of(name, new)
    assert {(d.claim, d.kind) for d in declared_in(name, new)} == {(claim.id, "exact"), (claim.id, "property")}
    names = inline_names(name, new[-2].source)
    assert len(names) == 1
    assert re.search(rf"^{names[0]} = f", "\n".join(sources(notebook)), re.MULTILINE)


@pytest.mark.parametrize("name", CHAPTERS)
def test_no_name_of_a_chapter_is_given_away(name):
    notebook, ids = extended(name, 2)
    new = [bound(cell.source) for cell in notebook.cells if cell.cell_type == "code" and cell.id in ids]
    old = [bound(cell.source) for cell in notebook.cells if cell.cell_type == "code" and cell.id not in ids]
    assert len(set().union(*new)) > 8
    assert not set().union(*new) & set().union(*old)


def test_the_code_is_clean_in_every_chapter_even_of_a_second_experiment(written):
    for command in (["check"], ["format", "--check"]):
        config = ["--config", str(ROOT / "pyproject.toml")]
        ruff = [sys.executable, "-m", "ruff", *command, *config, str(written.root / "chapters")]
        done = subprocess.run(ruff, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        assert "All checks passed" in done.stdout or f"{len(CHAPTERS)} files already formatted" in done.stdout


def test_the_linter_finds_nothing_in_a_book_of_extended_chapters(written):
    notebooks = read_notebooks(written)
    known = read_registry(written, notebooks)
    more = len(known.claims) - len(read_registry(open_project(ROOT)).claims)
    assert len(CHAPTERS) <= more <= 2 * len(CHAPTERS)
    assert lint.findings(written, notebooks, known) == []


def test_what_it_shows_holds_and_its_mutants_die_under_the_names_of_every_chapter():
    seen = set()
    for name in CHAPTERS:
        notebook, ids = extended(name)
        cells = {cell.id: cell.source for cell in notebook.cells}
        lines = [node for source in sources(notebook) for node in ast.parse(source).body]
        imports = [ast.unparse(n) for n in lines if isinstance(n, ast.Import | ast.ImportFrom)]
        code = [cells[i] for i in ids if cells[i] in sources(notebook)]
        text = "\n".join(code).replace(f"{name}-0".rjust(LONGEST_SLUG, "x"), "")
        if text in seen:
            continue
        seen.add(text)
        wanted = [i for i in imports if "gllm_lib" not in i or re.search("proofs|grading|figures", i)]
        room = {"cases": 20}
        with contextlib.redirect_stdout(io.StringIO()) as told:
            exec("\n".join([*wanted, *code]), room)
        assert "1 of 1 mutant rejected" in told.getvalue()
        assert "2 of 2 mutants rejected" in told.getvalue()
        assert "multiplier 1.00  gain 1.0000" in told.getvalue()
    assert len(seen) > 3


@pytest.mark.parametrize("name", ["14b-factorial", "13-counting"])
def test_an_extended_chapter_executes(name, tmp_path):
    project = open_project(ROOT)
    notebook, ids = extended(name)
    known = registry({each: n.cells for each, n in (read_notebooks(project) | {name: notebook}).items()})
    at = [cell.id for cell in notebook.cells].index(ids[-1])
    run = execute(project, name, notebook, "smoke", known, until=at)  # stores nothing
    records = [r for r in run.evidence if r["claim"].endswith("-0")]
    assert [r["mutants_rejected"] for r in records] == [1, 2]
    assert run.inline[-1] == "56%"
    figures = [o for o in run.outputs[-3] if "image/svg+xml" in o.get("data", {})]
    assert len(figures) == 1


def test_a_chapter_without_the_last_heading_takes_it_at_the_end(small):
    name, ids = new_experiment(small, "1", "A first try")
    assert (name, ids[0], ids[-1]) == ("01-first", "exp-a-first-try-1", "exp-a-first-try-8")
    notebook = read_notebook(small.notebook_path(name))
    assert [cell.id for cell in notebook.cells][-8:] == ids
    assert sources(notebook)[-4].count("cases=cases,") == 1
    (only,) = lint.findings(small, read_notebooks(small), read_registry(small))
    assert "claim prp-small: needs two kinds" in only  # as before


def test_a_block_without_the_parameter_draws_the_usual_number(tmp_path):
    cells = tuple((k, s.replace("cases = 20", "draws = 20").replace("cases=cases", "cases=draws")) for k, s in CELLS)
    cells = tuple((k, s.replace("{cases: 5}", "{draws: 5}").replace("{cases}", "{draws}")) for k, s in cells)
    project = small_book(tmp_path / "small", cells)
    new_experiment(project, "01", "Try")
    assert "cases" not in sources(read_notebook(project.notebook_path("01-first")))[-4]


def test_a_name_that_the_chapter_gives_away_is_imported_anew(tmp_path):
    project = small_book(tmp_path / "small", (*CELLS, ("code", "st = 3\nprice = 4\nshown = [gain for gain in (1, 2)]")))
    new_experiment(project, "01", "Try")
    text = "\n".join(sources(read_notebook(project.notebook_path("01-first"))))
    assert "from hypothesis import strategies as st_2" in text
    assert "st_2.floats(0.25, 4)" in text
    assert "def price_2(g, a):" in text
    assert "import gain\n" in text  # a name inside a comprehension is not taken


@pytest.mark.parametrize(
    ("title", "label"),
    [
        ("A newcomer's question", "a-newcomers-question"),
        ("Poincaré’s  “two” maps", "poincares-two-maps"),
        ("x" * 80, "x" * 50),
        ("Words " * 30, "words-" * 7 + "words"),
    ],
)
def test_labels_are_made_of_titles(title, label):
    assert slug(title) == label


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["09", "Try"], "no single chapter is meant by '09'"),
        (["01", "  "], "no letter or digit"),
        (["01", "Small"], "the book has the label prp-small already"),
        (["01", "First"], "the book has the label sec-first already"),
        (["01", "Twice"], "01-first has an experiment of that name, cells exp-twice-1 to exp-twice-8"),
    ],
)
def test_an_experiment_that_cannot_be_changes_nothing(small, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(small.root)
    assert main(["new", "experiment", "01", "twice!"]) == 0
    capsys.readouterr()
    before = small.notebook_path("01-first").read_bytes()
    assert main(["new", "experiment", *arguments]) == 1
    assert message in capsys.readouterr().err
    assert small.notebook_path("01-first").read_bytes() == before


def test_a_full_chapter_takes_none(tmp_path, capsys, monkeypatch):
    project = small_book(tmp_path / "small", (*CELLS, *[("code", "1")] * 86))
    monkeypatch.chdir(project.root)
    before = project.notebook_path("01-first").read_bytes()
    assert main(["new", "experiment", "01", "One too many"]) == 1
    assert "01-first would have 102 cells and 100 are the most; 'gllm new chapter'" in capsys.readouterr().err
    assert project.notebook_path("01-first").read_bytes() == before


def test_it_says_how_to_see_it_and_how_to_be_rid_of_it(small, monkeypatch, capsys):
    monkeypatch.chdir(small.root)
    before = small.notebook_path("01-first").read_text()
    assert main(["new", "experiment", "01", "Try"]) == 0
    told = capsys.readouterr().out
    assert "gllm render --smoke 01" in told
    first, last = re.search(r"(exp-try-\d) to (exp-try-\d)", told).groups()
    notebook = read_notebook(small.notebook_path("01-first"))
    kept = [cell for cell in notebook.cells if not first <= cell.id <= last]
    notebook.cells = kept
    assert canonical(notebook) == before

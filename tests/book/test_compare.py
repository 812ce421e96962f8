"""`gllm diff`: equal builds differ in nothing, and each kind of change is found under its name."""

import json
import os
import shutil

import pytest

from gllm_lib.book.build import build_book
from gllm_lib.book.compare import as_text, compare
from gllm_lib.book.experiment import new_experiment
from gllm_lib.book.project import BookError, canonical, open_project, read_notebook
from gllm_lib.cli import main
from tests.book.conftest import CELLS, small_book, write_notebook

CHANGES = (  # one of each kind, made in the source
    ("multiply the first of the two", "multiply the second of the two"),  # a statement
    ('    scope="all",\n', '    scope="g > 0",\n'),  # a check, and the status that follows
    ('        "near: 5% dearer": {"cost": lambda g, a: 1.05 * price(g, a)},\n', ""),  # a mutant of another
    ("np.linspace(0.5, 2, 61)", "np.linspace(0.5, 2, 51)"),  # a figure
    ("gain([2, 1]", "gain([3, 1]"),  # a value in prose
    ("(0.8, 1.0, 1.1, 1.25)", "(0.8, 1.0, 1.1, 1.3)"),  # what is printed
    ("Doubling one", "Tripling one"),  # prose without a value
)


def changed(project, changes):
    path = project.notebook_path("01-first")
    notebook = read_notebook(path)
    for old, new in changes:
        for cell in notebook.cells:
            cell.source = cell.source.replace(old, new)
    path.write_text(canonical(notebook))


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """Three default builds of a small book with an experiment: twice the same source, and once with changes."""
    folder = tmp_path_factory.mktemp("builds")
    for name in ("first", "second", "changed"):
        project = small_book(folder / name)
        new_experiment(project, "01", "Try")
        if name == "changed":
            changed(project, CHANGES)
        build_book(open_project(project.root), quarto=False, quiet=True)
    return folder


@pytest.fixture(scope="module")
def found(builds):
    return {(each.kind, each.name): each for each in compare(builds / "first", builds / "changed")}


def test_two_builds_of_one_source_are_equal_in_substance(builds, capsys):
    assert compare(builds / "first" / "_book", builds / "second" / "_book") == []
    assert main(["diff", str(builds / "first"), str(builds / "second")]) == 0
    assert capsys.readouterr().out == "no difference\n"


def test_a_page_folder_and_a_site_folder_of_one_build_are_equal(builds):
    assert compare(builds / "first" / "_book", builds / "first" / "build" / "site") == []


def test_a_changed_statement_is_shown_line_by_line(found):
    told = str(found["statement", "prp-try"])
    assert "\n      -Let $0<a<1$" in told
    assert "multiply the second of the two" in told.split("\n      +")[1]


def test_a_changed_check_and_the_status_that_follows_are_named(found):
    assert str(found["status", "prp-try"]).startswith("status prp-try: proved -> supported (exact)")
    check = found["check", "multiplied_out for prp-try"]
    assert check.old == "exact (all), 1 cases, 1 rejected (near: 5% dearer)"
    assert "exact (g > 0)" in check.new
    other = found["check", "the_library_agrees for prp-try"]
    assert "2 rejected (near: 5% dearer, near: the profiles differ by 5%)" in other.old
    assert "1 rejected (near: the profiles differ by 5%)" in other.new


def test_a_changed_value_is_told_with_its_sentence(found):
    value = found["value", "doubling"]
    assert (value.old, value.new) == ("56%", "178%")
    assert value.sentence == "Tripling one of two equal coordinates costs 178%, and so does halving it."


def test_what_a_cell_prints_and_draws_is_compared(found):
    output = next(each for (kind, _), each in found.items() if kind == "output")
    assert "(exp-try-8)" in output.name
    assert "-multiplier 1.25  gain 1.0045" in str(output)
    assert "+multiplier 1.30" in str(output)
    assert "multiplier 0.80" not in str(output)
    figure = found["figure", "fig-try"]
    assert figure.old != figure.new
    assert "paths" in figure.new


def test_nothing_else_is_found(found):
    kinds = sorted(kind for kind, _ in found)
    assert kinds == ["check", "check", "figure", "output", "statement", "status", "value"]


def test_the_command_tells_and_returns_what_scripts_need(builds, capsys):
    assert main(["diff", str(builds / "first"), str(builds / "changed")]) == 1
    told = capsys.readouterr().out
    assert told.startswith("01-first\n  statement prp-try")
    assert told.endswith("7 differences: 1 statement, 1 status, 2 check, 1 output, 1 value, 1 figure\n")
    assert main(["diff", "--json", str(builds / "first"), str(builds / "changed")]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert {"chapter": "01-first", "kind": "value", "name": "doubling", "old": "56%", "new": "178%"}.items() <= next(
        row for row in rows if row["kind"] == "value"
    ).items()


def test_claims_checks_and_chapters_that_come_and_go_are_named(builds, tmp_path):
    project = small_book(tmp_path / "less")
    build_book(project, quarto=False, quiet=True)
    less = {(each.kind, each.name): each for each in compare(builds / "first", project.root)}
    assert str(less["claim", "prp-try"]) == "claim prp-try: The price of grades at equal profiles -> none"
    assert less["check", "multiplied_out for prp-try"].new == ""
    assert less["figure", "fig-try"].new == ""
    assert ("status", "prp-try") not in less
    assert ("statement", "prp-try") not in less
    more = compare(project.root, builds / "first")
    assert "claim prp-try: none -> The price" in as_text(more)
    (project.root / "chapters" / "01-first.ipynb").rename(project.root / "chapters" / "02-first.ipynb")
    listed = (project.root / "_quarto.yml").read_text().replace("01-first", "02-first")
    (project.root / "_quarto.yml").write_text(listed)
    build_book(open_project(project.root), quarto=False, quiet=True)
    told = as_text(compare(builds / "first", project.root))
    assert "01-first\n  chapter: in the first alone -> none" in told
    assert "02-first\n  chapter: none -> in the second alone" in told


def test_sizes_differ_and_chapters_not_executed_say_so(built, tmp_path):
    build_book(built, quarto=False, quiet=True)
    shutil.copytree(built.root / "_book", tmp_path / "default")
    build_book(built, "smoke", quarto=False, quiet=True)
    (size, *rest) = compare(tmp_path / "default", built.root / "build" / "preview")
    assert (size.kind, size.old, size.new) == ("chapter", "default", "smoke")
    assert {"20 draws -> 5 draws"} <= {f"{each.old} -> {each.new}" for each in rest if each.kind == "value"}
    second = write_notebook(built.root / "chapters" / "02-next.ipynb", CELLS[:4])
    second.write_text(second.read_text().replace("# First {#sec-first}", "# Next {#sec-next}"))
    listed = (built.root / "_quarto.yml").read_text()
    (built.root / "_quarto.yml").write_text(
        listed.replace("01-first.ipynb", "01-first.ipynb\n    - chapters/02-next.ipynb")
    )
    build_book(open_project(built.root), "smoke", ["01"], quarto=False, quiet=True)
    assert [each.name for each in compare(built.root / "build/preview", built.root / "build/site")] == []
    assert "02-next" in as_text(compare(tmp_path / "default", built.root / "build/preview"))


def test_a_clone_means_its_newest_build(built):
    build_book(built, quarto=False, quiet=True)
    old = built.root / "_book"
    for path in (old / "chapters/downloads", built.root / "build/site/chapters/downloads"):
        os.utime(path, (1, 1))
    build_book(built, "smoke", quarto=False, quiet=True)
    assert compare(built.root, built.root / "build/preview") == []
    assert compare(built.root, old) != []


@pytest.mark.parametrize(("name", "message"), [("nothing", "is not a folder"), ("small", "holds no build")])
def test_a_folder_without_a_build_is_told(small, capsys, name, message):
    folder = small.root.parent / name
    with pytest.raises(BookError, match=message):
        compare(folder, folder)
    assert main(["diff", str(folder), str(folder)]) == 2
    assert "give _book, build/preview or build/site of a clone" in capsys.readouterr().err


def test_a_cell_added_above_makes_no_difference_below(builds, tmp_path):
    shutil.copytree(builds / "first" / "_book", tmp_path / "_book")
    folder = tmp_path / "_book" / "chapters" / "downloads"
    for path in (folder / "01-first.ipynb", folder / "01-first-executed.ipynb"):
        notebook = json.loads(path.read_text())
        notebook["cells"].insert(1, {"cell_type": "markdown", "id": "added", "metadata": {}, "source": "More."})
        path.write_text(json.dumps(notebook))
    assert compare(builds / "first", tmp_path) == []


@pytest.mark.parametrize("change", [lambda book: book["metadata"].pop("gllm"), lambda book: book["cells"].pop()])
def test_a_notebook_that_was_executed_elsewhere_is_refused(builds, tmp_path, change):
    shutil.copytree(builds / "first" / "_book", tmp_path / "_book")
    path = tmp_path / "_book" / "chapters" / "downloads" / "01-first-executed.ipynb"
    notebook = json.loads(path.read_text())
    change(notebook)
    path.write_text(json.dumps(notebook))
    with pytest.raises(BookError, match=r"01-first-executed.ipynb is not 01-first.ipynb as .*; render the book again"):
        compare(builds / "first", tmp_path)

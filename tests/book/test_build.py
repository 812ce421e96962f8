"""From the command line to the pages of a small book: built, rebuilt, verified, left alone when something fails."""

import json
import shutil
import stat

import pytest

from gllm_lib.book import build
from gllm_lib.book.project import open_project, read_notebook, read_registry
from gllm_lib.book.scaffold import new_chapter
from gllm_lib.cli import main
from tests.book.conftest import replaced, write_notebook


@pytest.fixture
def inside(small, monkeypatch):
    """The small book with the working directory inside it and no Quarto in sight."""
    monkeypatch.chdir(small.root)
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    return small


def pages(project):
    return {p.relative_to(project.root): p.read_bytes() for p in (project.root / "_book").rglob("*") if p.is_file()}


def test_a_book_is_built_and_a_failed_build_leaves_it(inside, capsys):
    assert main(["render"]) == 0
    assert "open _book/index.html" in capsys.readouterr().out
    before = pages(inside)
    assert "20 draws" in (inside.root / "_book" / "chapters" / "01-first.html").read_text()
    for wrong in (replaced("print(told)", "1 / 0"), replaced("see @prp-small", "see @prp-tiny"), (("raw", "x"),)):
        write_notebook(inside.notebook_path("01-first"), wrong)
        assert main(["render"]) == 1
        assert "gllm: 01-first" in capsys.readouterr().err
        assert pages(inside) == before


def test_an_unchanged_book_executes_nothing_and_gives_the_same_bytes(inside, monkeypatch):
    assert main(["render"]) == 0
    before = pages(inside)
    monkeypatch.setattr("gllm_lib.book.run.execute", lambda *a, **k: pytest.fail("executed again"))
    assert main(["render"]) == 0
    assert pages(inside) == before


def test_another_size_goes_to_the_preview(inside):
    assert main(["render", "--smoke", "1"]) == 0
    assert not (inside.root / "_book").exists()
    assert "5 draws" in (inside.root / "build" / "preview" / "chapters" / "01-first.html").read_text()


def test_claims_before_and_after_a_build(inside, capsys):
    assert main(["claims", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["status"], row["evidence"]) == ("stated", [])
    assert main(["claims"]) == 0
    assert "make book" in capsys.readouterr().err
    main(["render"])
    capsys.readouterr()
    assert main(["claims", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["id"], row["status"]) == ("prp-small", "supported (property)")
    assert row["evidence"][0]["mutants_rejected"] == 1


def test_verify_shows_the_checks_of_one_claim(inside, capsys):
    assert main(["verify", "prp-small"]) == 0
    assert "at_most_four: property: 5 cases" in capsys.readouterr().out
    assert main(["verify", "prp-smell"]) == 1
    assert "did you mean prp-small" in capsys.readouterr().err


def test_verify_fails_when_the_statement_is_wrong(inside, capsys):
    write_notebook(inside.notebook_path("01-first"), replaced("bound=4", "bound=3"))
    assert main(["verify", "prp-small"]) == 1
    assert "claim prp-small" in capsys.readouterr().err


def test_outside_a_book(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["claims"]) == 1
    assert "not inside the book" in capsys.readouterr().err


def test_quarto_renders_the_staged_folder_where_it_is_present(small, monkeypatch, tmp_path):
    fake = tmp_path / "quarto"
    fake.write_text('#!/bin/sh\nmkdir "$2/_book" && cp "$2/index.qmd" "$2/_book/index.html"\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(build.shutil, "which", lambda name: str(fake))
    out = build.build_book(small, quiet=True)
    assert "Read @sec-first" in (out / "index.html").read_text()
    fake.write_text('#!/bin/sh\nmkdir "$2/_book"; echo "WARN: Unable to resolve crossref @prp-x"\n')
    with pytest.raises(build.BookError, match="Unable to resolve crossref"):
        build.build_book(small, quiet=True)
    assert (out / "index.html").exists()


def test_a_scaffolded_chapter_passes_as_it_stands(copy_of, scaffolded, monkeypatch, capsys):
    project = copy_of(scaffolded)
    monkeypatch.chdir(project.root)
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    (project.root / "chapters" / "01-first.ipynb").unlink()
    listed = (project.root / "_quarto.yml").read_text()
    (project.root / "_quarto.yml").write_text(listed.replace("    - chapters/01-first.ipynb\n", ""))
    (project.root / "chapters" / "sources.toml").write_text('[chapters]\n01 = "x"\n[items]\n')
    assert main(["check"]) == 0
    assert main(["render"]) == 0
    assert main(["claims", "--json"]) == 0
    text = capsys.readouterr().out
    assert '"status": "proved"' in text


def test_new_chapters_take_their_place(small, capsys):
    assert new_chapter(small, "Later", 7).name == "07-later.ipynb"
    assert new_chapter(open_project(small.root), "Between: two", 3).name == "03-between-two.ipynb"
    assert open_project(small.root).notebooks == ("01-first", "03-between-two", "07-later")
    registry = read_registry(open_project(small.root))
    assert {"prp-later-shift", "prp-between-two-shift"} <= set(registry.claims)


@pytest.mark.parametrize(
    ("title", "number", "message"), [("!?", None, "no letter"), ("A", 100, "1 to 99"), ("A", 1, "is taken")]
)
def test_new_chapters_that_cannot_be(small, title, number, message):
    before = (small.root / "_quarto.yml").read_text()
    with pytest.raises(build.BookError, match=message):
        new_chapter(small, title, number)
    assert (small.root / "_quarto.yml").read_text() == before


def test_the_scaffold_is_in_canonical_form(scaffolded):
    from gllm_lib.book.project import canonical

    path = scaffolded.notebook_path("02-stable-at-last")
    assert canonical(read_notebook(path)) == path.read_text()


def test_study_commands_without_a_study(inside, capsys):
    shutil.rmtree(inside.root / "results", ignore_errors=True)
    assert main(["study", "status"]) == 1
    assert "name the study" in capsys.readouterr().err
    assert main(["study", "run", "nothing-here"]) == 1
    assert "nothing-here" in capsys.readouterr().err

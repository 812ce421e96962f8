"""From the command line to the pages of a small book: built, rebuilt, verified, left alone when something fails."""

import errno
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from gllm_lib import checks
from gllm_lib.book import build
from gllm_lib.book.project import open_project, read_notebook, read_registry
from gllm_lib.book.scaffold import new_chapter
from gllm_lib.cli import main
from tests.book.conftest import replaced, write_notebook


@pytest.fixture(params=["small"])
def inside(request, monkeypatch):
    """A book with the working directory in a folder of it and no Quarto in sight."""
    project = request.getfixturevalue(request.param)
    monkeypatch.chdir(project.root)
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    return project


executed_before = pytest.mark.parametrize("inside", ["built"], indirect=True)


def pages(project):
    return {p.relative_to(project.root): p.read_bytes() for p in (project.root / "_book").rglob("*") if p.is_file()}


@executed_before
def test_a_book_is_built_again_with_the_same_bytes_and_a_failed_build_leaves_it(inside, capsys, monkeypatch):
    monkeypatch.chdir(inside.root / "chapters")
    assert main(["render"]) == 0
    assert f"open {inside.root}/_book/index.html" in capsys.readouterr().out
    before = pages(inside)
    assert "20 draws" in (inside.root / "_book" / "chapters" / "01-first.html").read_text()
    with monkeypatch.context() as patch:
        patch.setattr("gllm_lib.book.run.execute", lambda *a, **k: pytest.fail("executed again"))
        assert main(["render"]) == 0
    assert pages(inside) == before
    for wrong in (replaced("print(told)", "1 / 0"), replaced("see @prp-small", "see @prp-tiny"), (("raw", "x"),)):
        write_notebook(inside.notebook_path("01-first"), wrong)
        assert main(["render"]) == 1
        told = capsys.readouterr().err
        assert "gllm: 01-first" in told
        assert told.endswith("_book/, built before, is unchanged\n")
        assert pages(inside) == before
    assert not [path for path in inside.root.iterdir() if path.name.startswith("._book")]


@executed_before
def test_pages_are_made_again_when_what_they_are_made_from_changes_or_one_is_gone(inside, monkeypatch):
    made, render = [], build.render
    monkeypatch.setattr(build, "render", lambda site, out: (made.append(out.name), render(site, out)))
    index, page = inside.root / "index.qmd", inside.root / "_book" / "chapters" / "01-first.html"
    changes = (
        lambda: index.write_text(index.read_text() + "\nOne sentence more.\n"),
        page.unlink,
        lambda: monkeypatch.setattr(build, "version", lambda _: "another pandoc"),
        (inside.root / "_book" / ".made-from").unlink,
        (inside.root / "_book" / "site_libs").mkdir,  # a plain `quarto render` of one chapter wrote its page here
    )
    for change in changes:
        for _ in range(2):
            assert main(["render", "--no-quarto"]) == 0
        assert len(made) == 1, change
        made.clear()
        change()
    assert main(["render", "--no-quarto"]) == 0
    assert made == ["_book"]
    assert page.is_file()


@executed_before
def test_another_size_goes_to_the_preview(inside, capsys):
    assert main(["render", "--smoke", "1"]) == 0
    assert capsys.readouterr().out == "The book is ready: open build/preview/chapters/01-first.html\n"
    assert not (inside.root / "_book").exists()
    assert "5 draws" in (inside.root / "build" / "preview" / "chapters" / "01-first.html").read_text()


def test_claims_before_a_build(inside, capsys):
    assert main(["claims", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["status"], row["evidence"]) == ("stated", [])
    assert main(["claims"]) == 0
    assert "'make book' mends that" in capsys.readouterr().err
    assert main(["claims", "--smoke"]) == 0
    assert "'gllm render --smoke' mends that" in capsys.readouterr().err
    assert not (inside.root / "build").exists()


@executed_before
def test_claims_after_a_build_and_after_an_edit(inside, capsys):
    assert main(["claims", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["id"], row["status"]) == ("prp-small", "supported (property)")
    assert row["evidence"][0]["mutants_rejected"] == 1
    write_notebook(inside.notebook_path("01-first"), replaced("x <= bound", "x < bound + 1"))
    assert main(["claims", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["status"] == "stated"


def test_claims_load_no_solver_and_draw_nothing(root):
    heavy = "sympy z3 hypothesis matplotlib sklearn IPython networkx pypandoc scipy"
    code = (
        "import sys; from gllm_lib.cli import main; main(['claims'])\n"
        f"print([name for name in {heavy.split()} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_reader_that_stops_early_is_no_error(built):
    code = "import sys; from gllm_lib.cli import main; sys.exit(main(['claims', '--json']))"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", code], cwd=built.root, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_build_folder_that_cannot_be_written(inside, capsys):
    (inside.root / "build").write_text("in the way")
    assert main(["render"]) == 1
    assert "build: File exists; nothing was replaced" in capsys.readouterr().err


def test_a_full_disk_leaves_the_book(inside, capsys, monkeypatch):
    (inside.root / "_book").mkdir()

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device", "site")

    monkeypatch.setattr("gllm_lib.checks.write_bytes", full)
    monkeypatch.setattr(build, "run_chapters", lambda *a, **k: {})
    assert main(["render"]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert (inside.root / "_book").is_dir()


def test_a_second_build_waits_for_the_first(built, monkeypatch, capsys):
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    with ThreadPoolExecutor() as pool:
        with build._alone(built):
            waiting = pool.submit(build.build_book, built, "smoke", quiet=True)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=1)
            assert not built.build("site").exists()
        assert (waiting.result(timeout=60) / "index.html").is_file()
    assert "waiting for it" in capsys.readouterr().err


def test_verify_shows_the_checks_of_one_claim(inside, capsys):
    assert main(["verify", "prp-small"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("at_most_four: property: 5 cases")
    assert lines[-1] == "prp-small (Small): 1 of 1 check passed, 1 of 1 mutant rejected"
    assert main(["verify", "prp-smell"]) == 1
    assert "did you mean prp-small" in capsys.readouterr().err


def test_verify_fails_when_the_statement_is_wrong(inside, capsys):
    write_notebook(inside.notebook_path("01-first"), replaced("bound=4", "bound=3"))
    assert main(["verify", "prp-small"]) == 1
    told = capsys.readouterr().err
    assert "claim prp-small" in told
    assert "assert x <= bound" in told
    assert "evidence.py" not in told
    assert "hypothesis/" not in told


def test_a_long_witness_ends_at_a_word(inside, capsys, monkeypatch):
    record = {"claim": "prp-small", "kind": "numeric", "scope": None, "name": "f", "says": "It.", "cases": 1}
    record |= {"seconds": 0.1, "mutants": 1, "mutants_rejected": 1, "witnesses": {"near: a": "word " * 50}}
    claim = read_registry(inside).claims["prp-small"]
    monkeypatch.setattr(build, "verify", lambda *arguments: (claim, [record]))
    assert main(["verify", "prp-small"]) == 0
    assert capsys.readouterr().out.splitlines()[2].endswith(" word…")


def test_one_stale_chapter_is_named(built, monkeypatch, capsys):
    monkeypatch.chdir(built.root)
    new_chapter(built, "Other", 2)
    assert main(["claims"]) == 0
    assert "No current run of 02-other: 'gllm render 02-other' mends that." in capsys.readouterr().err
    assert main(["check"]) == 1
    assert "1 finding in 2 chapters, 2 claims" in capsys.readouterr().out


def test_outside_a_book(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["claims"]) == 1
    assert "not inside the book" in capsys.readouterr().err


@executed_before
@pytest.mark.parametrize(("kind", "told"), [("pdf", "a minute or two"), ("epub", "half a minute")])
def test_a_book_in_one_file_says_that_it_is_being_made_and_how_long_it_took(inside, capfd, kind, told):
    assert main(["render", "--to", kind]) == 0
    out, err = capfd.readouterr()
    (made,) = (inside.root / "build" / "print").glob(f"*.{kind}")
    assert re.fullmatch(rf"making the {kind.upper()}, which takes {told}\n{made.name}: \d+ s\n", err)
    assert out == f"The book is ready: open build/print/{made.name}\n"


def test_quarto_renders_the_staged_folder_where_it_is_present(built, monkeypatch, tmp_path):
    fake = tmp_path / "quarto"
    fake.write_text('#!/bin/sh\nmkdir "$2/_book" && cp "$2/index.qmd" "$2/_book/index.html"\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(build.shutil, "which", lambda name: str(fake))
    out = build.build_book(built, quiet=True)
    assert "Read @sec-first" in (out / "index.html").read_text()
    fake.write_text('#!/bin/sh\nmkdir "$2/_book"; echo "WARN: Unable to resolve crossref @prp-x"\n')
    with pytest.raises(build.BookError, match="Unable to resolve crossref"):
        build.build_book(built, quiet=True)
    assert (out / "index.html").exists()


def test_a_scaffolded_chapter_passes_as_it_stands(copy_of, scaffolded, monkeypatch, capsys):
    project = copy_of(scaffolded)
    monkeypatch.chdir(project.root)
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    (project.root / "chapters" / "01-first.ipynb").unlink()
    listed = (project.root / "_quarto.yml").read_text()
    (project.root / "_quarto.yml").write_text(listed.replace("    - chapters/01-first.ipynb\n", ""))
    (project.root / "index.qmd").write_text("# Preface {.unnumbered}\n")
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
    assert {"prp-later-first", "prp-between-two-first"} <= set(registry.claims)


def test_a_new_chapter_that_cannot_be_listed_leaves_nothing(small, monkeypatch):
    write = checks.write_text

    def interrupted(path, text):
        if path.name == "_quarto.yml":
            raise KeyboardInterrupt
        return write(path, text)

    before = (small.root / "_quarto.yml").read_text(), sorted((small.root / "chapters").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(checks, "write_text", interrupted)
        with pytest.raises(KeyboardInterrupt):
            new_chapter(small, "Later", 7)
    assert ((small.root / "_quarto.yml").read_text(), sorted((small.root / "chapters").iterdir())) == before
    assert new_chapter(small, "Later", 7).name == "07-later.ipynb"


def test_new_chapters_leave_planned_numbers_alone(small, monkeypatch, capsys):
    monkeypatch.chdir(small.root)
    listed = small.root / "chapters" / "sources.toml"
    listed.write_text(listed.read_text().replace("[items]", '02 = "second"\n03 = "third"\n\n[items]'))
    assert main(["new", "chapter", "Free"]) == 0
    told = capsys.readouterr().out
    assert "chapters/04-free.ipynb is ready and has its line in _quarto.yml; delete both" in told
    assert "plans" not in told
    assert main(["new", "chapter", "Planned", "--number", "3"]) == 0
    assert "plans chapter 3 as 'third'" in capsys.readouterr().out


@pytest.mark.parametrize(
    "title",
    ["Short", "Why a long title of sixty characters must not break any lines", "W" * 60, "Words " * 30, '{a} "b"'],
)
def test_the_code_of_new_chapters_is_clean_whatever_the_title(small, root, title):
    path = new_chapter(small, title)
    for command in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--config", str(root / "pyproject.toml"), str(path)]
        done = subprocess.run(ruff, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    assert len(path.stem) <= 63


def test_a_title_that_the_book_has_is_refused(small):
    new_chapter(small, "Later", 7)
    project = open_project(small.root)
    before = (project.root / "_quarto.yml").read_text()
    for title in ("later!", "First"):
        with pytest.raises(build.BookError, match=r"has the label .* already; give the chapter another title"):
            new_chapter(project, title, 8)
    assert (project.root / "_quarto.yml").read_text() == before
    assert len(list((project.root / "chapters").glob("*.ipynb"))) == 2


def test_new_chapters_respect_parts_of_a_chapter(small):
    (small.root / "chapters" / "01-first.ipynb").rename(small.root / "chapters" / "01b-rest.ipynb")
    listed = (small.root / "_quarto.yml").read_text()
    (small.root / "_quarto.yml").write_text(listed.replace("01-first", "01b-rest"))
    new_chapter(open_project(small.root), "Next", 2)
    project = open_project(small.root)
    assert project.notebooks == ("01b-rest", "02-next")
    assert (project.find("1b"), project.find("2")) == ("01b-rest", "02-next")


def test_an_exchange_that_fails_leaves_the_old_folder(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "page").write_text("old")
    with pytest.raises(OSError, match="fresh"):
        checks.exchange(tmp_path / "fresh", tmp_path / "out")
    assert (tmp_path / "out" / "page").read_text() == "old"
    (tmp_path / "fresh").mkdir()
    checks.exchange(tmp_path / "fresh", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


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

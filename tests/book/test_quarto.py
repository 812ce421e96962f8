"""The book through Quarto, where it is installed, and what it says beside the pages of the built-in renderer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
import yaml

from gllm_lib.book import build, lint
from gllm_lib.book.project import open_project
from gllm_lib.book.quarto import render_with_quarto
from tests.book.sample_site import (
    PHOTOGRAPH,
    PIXEL,
    QUARTO,
    code,
    shown,
    text,
    write_notebook,
    write_small_site,
)
from tests.book.two_renderers import Numbers, close, facts, main_of, with_class, words

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = ("chapters/04-sample-complexity.html", "chapters/07-choosing-grades.html")
PAGES = (*CHAPTERS, "appendices/claims.html")


def needs_quarto(test):
    absent = pytest.mark.skipif(shutil.which("quarto") is None, reason="Quarto is not on the PATH")
    return pytest.mark.quarto(absent(test))


@needs_quarto
@pytest.mark.parametrize("page", PAGES)
def test_both_renderers_say_the_same(both, page):
    ours, theirs = ((out / page).read_text(encoding="utf-8") for out in both)
    said = facts(ours, page)
    assert len(said.references) >= 4
    assert said.claims or page not in CHAPTERS
    assert said.differences(facts(theirs, page, Numbers.of(yaml.safe_load(QUARTO)))) == []


@needs_quarto
def test_labels_of_sections_and_alternative_texts_survive(both):
    for page in CHAPTERS:
        ours, theirs = (main_of((out / page).read_text(encoding="utf-8")) for out in both)
        labels = {item.get("id", "") for item in ours.iter() if item.get("id", "").startswith("sec-")}
        assert labels
        assert labels <= {item.get("id") for item in theirs.iter()}
        assert [image.get("alt") for image in theirs.iter("img")].count("") == 0


@needs_quarto
def test_a_claim_leads_to_what_it_uses_corrects_and_rests_on(both):
    """As in the other renderer's page; the way to the claim graph ends at its place there."""
    said = facts((both[1] / CHAPTERS[0]).read_text(encoding="utf-8"), CHAPTERS[0])
    assert dict(said.relations) == {
        "prp-fourth-root": "Uses[def-gain]Whatitrestson",
        "prp-printed": "Correctedby[prp-corrected]",
        "prp-corrected": "Corrects[prp-printed]Uses[def-gain],[prp-fourth-root]Whatitrestson",
    }
    page = main_of((both[1] / CHAPTERS[0]).read_text(encoding="utf-8"))
    graph = main_of((both[1] / "chapters" / "C-claim-graph.html").read_text(encoding="utf-8"))
    places = [link.get("href", "").partition("#") for link in page.iter("a") if words(link) == "What it rests on"]
    assert {Path(name).name for name, _, _ in places} == {"C-claim-graph.html"}
    assert {place for _, _, place in places} <= {item.get("id") for item in graph.iter()}


def texts(tree: Element, name: str) -> list[str]:
    return [close(item) for item in with_class(tree, name)]


def scaffold(root: Path, project) -> None:
    """Copy a scaffolded book and give it the frame of the real one."""
    shutil.copytree(project.root, root, ignore=shutil.ignore_patterns("build", "_book"))
    config = yaml.safe_load((root / "_quarto.yml").read_text())
    frame = yaml.safe_load((ROOT / "_quarto.yml").read_text())
    config |= {key: frame[key] for key in ("lang", "format", "execute")}
    config["book"]["body-header"] = frame["book"]["body-header"]
    (root / "_quarto.yml").write_text(yaml.safe_dump(config))
    shutil.copy(ROOT / "chapters" / "quarto.scss", root / "chapters")


@needs_quarto
def test_gllm_render_takes_quarto_and_shows_status_evidence_and_values(scaffolded, tmp_path):
    scaffold(tmp_path / "book", scaffolded)
    out = build.build_book(open_project(tmp_path / "book"), "smoke", quiet=True)
    (source,) = (out / "chapters").glob("02-*.html")
    text = source.read_text(encoding="utf-8")
    page = main_of(text)
    assert 'name="generator" content="quarto' in text
    styles = [path.read_text(encoding="utf-8") for path in (out / "site_libs" / "bootstrap").glob("*.css")]
    assert sum(".claim:has(+.proved)" in style for style in styles) == 2, "one light, one dark"
    assert not any("fonts.googleapis" in style for style in styles)
    assert "quarto-unresolved-ref" not in text
    assert "cdn." not in text, "a page asks no other host for anything"
    assert [item.startswith("proved:") for item in texts(page, "status")] == [True]
    assert [item.split(":")[0] for item in texts(page, "evidence")] == ["exact(all)", "property"]
    assert "twoequalcoordinatescosts56%" in close(page)
    assert "nostatusiscomputed" not in close(page)
    (colophon,) = with_class(page, "colophon")
    assert close(colophon).startswith("Executedin")
    offered = [link.get("href", "") for link in colophon.iter("a")]
    assert [name.removeprefix(f"downloads/{source.stem}") for name in offered] == ["-executed.ipynb", ".ipynb"]
    assert all((source.parent / name).is_file() for name in offered)
    assert next(close(item) for item in page.iter("summary")).startswith("Importsfrom")


@needs_quarto
def test_plain_quarto_executes_in_place_and_the_notebooks_can_be_mended(scaffolded, tmp_path):
    root = tmp_path / "book"
    scaffold(root, scaffolded)
    before = {path.name: path.read_text(encoding="utf-8") for path in (root / "chapters").glob("*.ipynb")}
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\ntouch "{tmp_path}/taken"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    shutil.copy(ROOT / "_environment", root)
    environment = {key: value for key, value in os.environ.items() if key != "QUARTO_PYTHON"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(["quarto", "render"], cwd=root, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (tmp_path / "taken").exists(), "_environment names the Python of the book"
    (source,) = (root / "_book" / "chapters").glob("02-*.html")
    page = main_of(source.read_text(encoding="utf-8"))
    assert len(texts(page, "evidence")) == 2
    assert texts(page, "status") == []
    assert "nostatusiscomputed" in close(page)
    assert "twoequalcoordinatescosts56%" in close(page)
    lint.fix(open_project(root))
    assert {path.name: path.read_text(encoding="utf-8") for path in (root / "chapters").glob("*.ipynb")} == before


ALTS = {
    "plain": "One dark pixel.",
    "over two lines": '\n#|   "One dark\n#|   pixel."',
    "a block": ">-\n#|   One dark pixel.",
}


def described(site: Path, alt: str) -> Path:
    """Write a small book with a figure whose alt text is written like this."""
    write_small_site(site)
    config = (site / "_quarto.yml").read_text()
    (site / "_quarto.yml").write_text(f"project: {{type: book, output-dir: _book}}\n{config}")
    figure = code(PHOTOGRAPH.replace("One dark pixel.", alt), shown({"image/png": PIXEL, "text/plain": "<Figure>"}))
    write_notebook(site / "chapters/07-choosing-grades.ipynb", [text("# Choosing grades {#sec-choosing}"), figure])
    return site


@needs_quarto
@pytest.mark.parametrize("kind", ALTS)
def test_an_alt_text_that_quarto_does_not_read_is_refused(kind, tmp_path):
    site, out = described(tmp_path / "site", ALTS[kind]), tmp_path / "pages"
    if kind == "a block":
        with pytest.raises(build.BookError, match=r"no fig-pixel in 07-choosing-grades: .* is a block"):
            render_with_quarto("quarto", site, out)
        assert not out.exists()
    else:
        render_with_quarto("quarto", site, out)
        (image,) = main_of((out / "chapters/07-choosing-grades.html").read_text(encoding="utf-8")).iter("img")
        assert image.get("alt") == "One dark pixel."


STRAY = "WARNING (normalize)\\nThe following string was found in the document: :::"


@pytest.mark.parametrize(
    ("page", "says", "told"),
    [
        ("<img>", "", "quarto shows no fig-pixel in 07-choosing-grades"),
        ("", "", "quarto shows no fig-pixel"),
        ('<div id=\\"fig-pixel\\">', STRAY, "found in the document: :::"),
        ('<div id=\\"fig-pixel\\">', "", None),
    ],
)
def test_what_quarto_loses_is_told(tmp_path, page, says, told):
    """Without Quarto: a stand-in writes one page, perhaps without the figure, and perhaps warns."""
    site = described(tmp_path / "site", ALTS["plain"])
    stand_in = tmp_path / "quarto"
    written = f'printf "{page}" > "$2/_book/chapters/07-choosing-grades.html"' if page else "true"
    stand_in.write_text(f'#!/bin/sh\nmkdir -p "$2/_book/chapters"\n{written}\nprintf "{says}\\n" >&2\n')
    stand_in.chmod(0o755)
    if told:
        with pytest.raises(build.BookError, match=told):
            render_with_quarto(str(stand_in), site, tmp_path / "pages")
    else:
        render_with_quarto(str(stand_in), site, tmp_path / "pages")
    assert (tmp_path / "pages").exists() == (told is None)

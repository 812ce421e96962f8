"""The book through Quarto, where it is installed, and what it says beside the pages of the built-in renderer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree.ElementTree import Element, TreeBuilder

import pytest
import yaml

from gllm_lib.book import build, lint
from gllm_lib.book.html.render import render
from gllm_lib.book.project import open_project
from tests.book.sample_site import PHOTOGRAPH, PIXEL, code, shown, text, write_notebook, write_site, write_small_site

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = {"4": "1", "7": "2"}  # Quarto counts chapters; the built-in renderer reads the number in the name
PAGES = ("chapters/04-sample-complexity.html", "chapters/07-choosing-grades.html")
NUMBERED = re.compile(r"(Chapter|Section|Figure|Table|Equation|Definition|Proposition|Conjecture|Remark)(\d)(?=\D|$)")


def needs_quarto(test):
    absent = pytest.mark.skipif(shutil.which("quarto") is None, reason="Quarto is not on the PATH")
    return pytest.mark.quarto(absent(test))


class Reader(HTMLParser):
    """The tree of what a page has between `<main>` and `</main>`."""

    void = frozenset({"area", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"})

    def __init__(self) -> None:
        super().__init__()
        self.tree, self.open = TreeBuilder(), [""]

    def handle_starttag(self, tag, attrs):
        if tag == "main" or "main" in self.open:
            self.tree.start(tag, {key: value or "" for key, value in attrs})
            if tag in self.void:
                self.tree.end(tag)
            else:
                self.open.append(tag)

    def handle_endtag(self, tag):
        while tag in self.open:
            closed = self.open.pop()
            self.tree.end(closed)
            if closed == tag:
                return

    def handle_data(self, data):
        if "main" in self.open:
            self.tree.data(data)


def read(page: Path) -> Element:
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    main: Element = reader.tree.close()
    for math in main.iter("semantics"):  # TeX beside the mathematics would be read twice
        for note in math.findall("annotation"):
            math.remove(note)
    return main


def words(element: Element) -> str:
    """Return the text without spaces, which the two renderers set differently, and with Quarto's chapter numbers."""
    text = re.sub(r"\s+", "", "".join(element.itertext())).replace("Assumption", "Conjecture")
    text = re.sub(r"Equation\(([\d.]+)\)", r"Equation\1", text)
    return NUMBERED.sub(lambda hit: hit[1] + CHAPTERS.get(hit[2], hit[2]), text)


def with_class(tree: Element, *names: str) -> Iterator[Element]:
    return (item for item in tree.iter() if set(names) & set(item.get("class", "").split()))


def references(tree: Element) -> list[tuple[str, str]]:
    """Return where every reference of the running text goes, and what it says."""
    derived = {link for block in with_class(tree, "relations") for link in block.iter("a")}  # Quarto has no such line
    links = [link for link in with_class(tree, "ref", "quarto-xref") if link not in derived]
    return [(target(link.get("href", ""), words(link)), words(link)) for link in links]


def target(address: str, said: str) -> str:
    """Return the label that a link goes to; a reference to a whole chapter may go to its page."""
    page, _, label = address.partition("#")
    return page if said.startswith("Chapter") else label


def captions(tree: Element) -> list[str]:
    return [re.sub(r"^(\w+\.\d+):", r"\1", words(item)) for item in tree.iter("figcaption")]


def claims(tree: Element) -> dict[str, str]:
    """Return number and name of every claim by its label."""
    found = {}
    for claim in with_class(tree, "claim"):
        (title,) = with_class(claim, "theorem-title", "proof-title", "claim-head")
        for source in with_class(title, "source"):
            source.clear()
        found[claim.get("id", "")] = words(title).rstrip(".").replace("(Conjecture:", "(")
    return found


def texts(tree: Element, name: str) -> list[str]:
    return [words(item) for item in with_class(tree, name)]


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[Path, Path]:
    """The sample book, staged, through Quarto and through the built-in renderer."""
    site = write_site(tmp_path_factory.mktemp("site"))
    config = yaml.safe_load((site / "_quarto.yml").read_text())
    frame = yaml.safe_load((ROOT / "_quarto.yml").read_text())
    config |= {key: frame[key] for key in ("lang", "format", "link-citations")} | {"execute": {"enabled": False}}
    (site / "_quarto.yml").write_text(yaml.safe_dump(config))
    shutil.copy(ROOT / "chapters" / "quarto.scss", site / "chapters")
    ours, theirs = tmp_path_factory.mktemp("pages") / "ours", tmp_path_factory.mktemp("pages") / "theirs"
    render(site, ours)
    build._quarto(shutil.which("quarto") or "", site, theirs)
    return ours, theirs


@needs_quarto
@pytest.mark.parametrize("page", PAGES)
def test_both_renderers_say_the_same(both, page):
    ours, theirs = (read(out / page) for out in both)
    assert len(references(ours)) >= 4
    assert references(theirs) == references(ours)
    assert captions(theirs) == captions(ours)
    assert claims(theirs) == claims(ours)
    assert texts(theirs, "status") == texts(ours, "status")
    assert texts(theirs, "evidence") == texts(ours, "evidence")
    assert texts(theirs, "printed") == texts(ours, "printed")


@needs_quarto
def test_labels_and_mathematics_survive(both):
    for page in PAGES:
        ours, theirs = (read(out / page) for out in both)
        for drawing in ours.iter("svg"):
            drawing.clear()  # its marks have labels of their own
        ids = (item.get("id", "") for item in ours.iter())
        labelled = {name for name in ids if re.match(r"(fig|tbl|eq|sec|prp|def|cnj|rem)-", name)}
        assert len(labelled) > 3
        assert labelled <= {item.get("id") for item in theirs.iter()}
        formulas = ["".join(words(math) for math in tree.iter("math")) for tree in (theirs, ours)]
        assert formulas[0].count("Λ") == formulas[1].count("Λ") > 0
        assert [image.get("alt") for image in theirs.iter("img")].count("") == 0


def scaffold(root: Path, project) -> None:
    """Copy a scaffolded book and give it the frame of the real one."""
    shutil.copytree(project.root, root, ignore=shutil.ignore_patterns("build", "_book"))
    config = yaml.safe_load((root / "_quarto.yml").read_text())
    frame = yaml.safe_load((ROOT / "_quarto.yml").read_text())
    config |= {key: frame[key] for key in ("lang", "format", "execute")}
    (root / "_quarto.yml").write_text(yaml.safe_dump(config))
    shutil.copy(ROOT / "chapters" / "quarto.scss", root / "chapters")


@needs_quarto
def test_gllm_render_takes_quarto_and_shows_status_evidence_and_values(scaffolded, tmp_path):
    scaffold(tmp_path / "book", scaffolded)
    out = build.build_book(open_project(tmp_path / "book"), "smoke", quiet=True)
    (source,) = (out / "chapters").glob("02-*.html")
    text, page = source.read_text(encoding="utf-8"), read(source)
    assert 'name="generator" content="quarto' in text
    styles = [path.read_text(encoding="utf-8") for path in (out / "site_libs" / "bootstrap").glob("*.css")]
    assert sum(".claim:has(+.proved)" in style for style in styles) == 2, "one light, one dark"
    assert not any("fonts.googleapis" in style for style in styles)
    assert "quarto-unresolved-ref" not in text
    assert [item.startswith("proved:") for item in texts(page, "status")] == [True]
    assert [item.split(":")[0] for item in texts(page, "evidence")] == ["exact(all)", "property"]
    assert "twoequalcoordinatescosts56%" in words(page)


@needs_quarto
def test_plain_quarto_executes_in_place_and_the_notebooks_can_be_mended(scaffolded, tmp_path):
    root = tmp_path / "book"
    scaffold(root, scaffolded)
    before = {path.name: path.read_text(encoding="utf-8") for path in (root / "chapters").glob("*.ipynb")}
    environment = os.environ | {"QUARTO_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["quarto", "render", str(root)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (source,) = (root / "_book" / "chapters").glob("02-*.html")
    page = read(source)
    assert len(texts(page, "evidence")) == 2
    assert texts(page, "status") == []
    assert "twoequalcoordinatescosts56%" in words(page)
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
            build._quarto("quarto", site, out)
        assert not out.exists()
    else:
        build._quarto("quarto", site, out)
        (image,) = read(out / "chapters/07-choosing-grades.html").iter("img")
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
            build._quarto(str(stand_in), site, tmp_path / "pages")
    else:
        build._quarto(str(stand_in), site, tmp_path / "pages")
    assert (tmp_path / "pages").exists() == (told is None)

"""The EPUB: a whole archive, the numbers of the HTML pages, every link inside it, equal bytes."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gllm_lib.book.html.fonts import math_font
from gllm_lib.book.html.pages import RenderError
from gllm_lib.book.html.render import render
from gllm_lib.book.print.epub import as_xml, render_epub
from tests.book.sample_site import printable_site

OPF = "{http://www.idpf.org/2007/opf}"
XHTML = "{http://www.w3.org/1999/xhtml}"
CHAPTER = "EPUB/04-sample-complexity.xhtml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return printable_site(tmp_path_factory.mktemp("epub") / "site")


@pytest.fixture(scope="module")
def packed(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the sample book's EPUB, in their order."""
    path = render_epub(site, tmp_path_factory.mktemp("made") / "book.epub")
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.infolist()[0].compress_type == zipfile.ZIP_STORED
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_archive_begins_with_its_kind_and_lists_every_file(packed: dict[str, bytes]):
    assert next(iter(packed)) == "mimetype"
    assert packed["mimetype"] == b"application/epub+zip"
    container = ElementTree.fromstring(packed["META-INF/container.xml"])
    assert [item.get("full-path") for item in container.iter() if item.get("full-path")] == ["EPUB/package.opf"]
    package = ElementTree.fromstring(packed["EPUB/package.opf"])
    listed = {f"EPUB/{item.get('href')}": item for item in package.iter(f"{OPF}item")}
    assert listed.keys() == packed.keys() - {"mimetype", "META-INF/container.xml", "EPUB/package.opf"}
    names = [item.get("id") for item in listed.values()]
    assert len(set(names)) == len(names)
    order = [item.get("idref") for item in package.iter(f"{OPF}itemref")]
    assert set(order) == {item.get("id") for name, item in listed.items() if name.endswith(".xhtml")}
    assert "mathml" in (listed[CHAPTER].get("properties") or "")
    assert listed["EPUB/nav.xhtml"].get("properties") == "nav"
    assert b":is(" not in packed["EPUB/book.css"]  # younger than the style sheets that the format allows


def test_what_the_package_says_of_the_book_never_changes(packed: dict[str, bytes]):
    told = packed["EPUB/package.opf"].decode()
    assert "<dc:title>What a Training Run Sees</dc:title>" in told
    assert "<dc:language>en-GB</dc:language>" in told
    assert "urn:uuid:" in told
    assert re.search(r'dcterms:modified">2000-01-01T00:00:00Z<', told)


def test_claims_figures_tables_and_equations_have_the_numbers_of_the_pages(
    site: Path, packed: dict[str, bytes], tmp_path: Path
):
    number = re.compile(r'<a\s+href="#((?:\w{3}|eq)-[\w-]+)"\s+class="number"[^>]*>([^<]+)</a>')
    pages = render(site, tmp_path / "book")
    shown = dict(found for page in pages for found in number.findall(page.read_text()))
    printed = dict(found for data in packed.values() for found in number.findall(data.decode("utf-8", "replace")))
    assert {"prp-fourth-root", "fig-gain", "tbl-grades", "eq-expanded"} <= printed.keys()
    assert printed == shown


def test_every_page_is_xml_without_scripts_and_every_image_says_what_it_shows(packed: dict[str, bytes]):
    images = 0
    for name, data in packed.items():
        if name.endswith(".xhtml"):
            root = ElementTree.fromstring(data)
            assert root.tag == f"{XHTML}html", name
            assert not list(root.iter(f"{XHTML}script")), name
            for image in root.iter(f"{XHTML}img"):
                assert image.get("alt"), name
                assert f"EPUB/{image.get('src')}" in packed, name
                images += 1
    assert images == 3


def test_the_contents_nest_chapters_in_parts_and_sections_in_chapters(packed: dict[str, bytes]):
    contents = ElementTree.fromstring(packed["EPUB/nav.xhtml"])
    (part,) = [item for item in contents.iter(f"{XHTML}li") if item.findtext(f"{XHTML}span") == "Grades"]
    chapters = [link.text for link in part.findall(f"{XHTML}ol/{XHTML}li/{XHTML}a")]
    assert chapters == ["4 Sample complexity", "7 Choosing grades"]
    sections = [link.text for link in part.findall(f"{XHTML}ol/{XHTML}li/{XHTML}ol/{XHTML}li/{XHTML}a")]
    assert sections == ["4.1 What you need", "4.2 The fourth-root law", "4.3 Symbols and text"]


def test_references_cross_from_file_to_file_and_formulas_stay_mathml(packed: dict[str, bytes]):
    page = packed["EPUB/07-choosing-grades.xhtml"].decode()
    assert re.search(r'href="04-sample-complexity\.xhtml#prp-fourth-root"', page)
    assert "<math" in page
    assert "evidence" in packed[CHAPTER].decode()


def test_formulas_bring_their_font(packed: dict[str, bytes]):
    pages = (content.decode() for name, content in packed.items() if name.endswith(".xhtml"))
    assert packed["EPUB/math.woff"] == math_font(pages)
    assert b'url("math.woff")' in packed["EPUB/book.css"]
    assert b'href="math.woff" media-type="font/woff"' in packed["EPUB/package.opf"]


def test_equal_sites_give_equal_bytes(site: Path, tmp_path: Path):
    first, second = (render_epub(site, tmp_path / name / "book.epub").read_bytes() for name in ("one", "two"))
    assert first == second


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("A [link](#nowhere).", "a link to #nowhere, which the book does not hold"),
        ("[a]{#twice} and [b]{#twice}", "the identifier twice is used twice"),
        ("`<b>`{=html}", "index.xhtml: not XML"),
    ],
)
def test_what_would_be_broken_is_refused_and_the_last_book_stays(tmp_path: Path, words: str, message: str):
    site = printable_site(tmp_path / "site")
    (site / "index.qmd").write_text(f"# Preface {{.unnumbered}}\n\n{words}\n")
    (tmp_path / "book.epub").write_bytes(b"the last one")
    with pytest.raises(RenderError, match=message):
        render_epub(site, tmp_path / "book.epub")
    assert (tmp_path / "book.epub").read_bytes() == b"the last one"


def test_formulas_have_only_what_the_format_allows():
    given = '<math display="inline" aria-label="x"><mi minsize="120%" stretchy="true">/</mi><mi>y</mi></math>'
    made = as_xml(given)
    assert '<math display="inline" alttext="x">' in made
    assert '<mo lspace="0" rspace="0" minsize="120%" stretchy="true">/</mo><mi>y</mi>' in made


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 600])
def test_long_numbers_and_wide_tables_leave_no_page_wider_than_the_window(browser, tmp_path: Path, width: int):
    site = printable_site(tmp_path / "site")
    wide = "|" + " a |" * 12 + "\n|" + "--:|" * 12 + "\n|" + " 1.23456789 |" * 12
    words = f"::: {{.evidence}}\nnear: the image is {'123456789' * 20}\n:::\n\n{wide}\n"
    (site / "index.qmd").write_text(f"# Preface {{.unnumbered}}\n\n{words}")
    with zipfile.ZipFile(render_epub(site, tmp_path / "book.epub")) as archive:
        archive.extractall(tmp_path / "book")
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto((tmp_path / "book/EPUB/index.xhtml").as_uri())
    assert page.locator("td").count() == 12
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()


def test_html_becomes_xml():
    given = 'a<br>b<wbr><details class="proof" open><hr></details>&nbsp;'
    assert as_xml(given) == 'a<br/>b<wbr/><details class="proof" open="open"><hr/></details>\u00a0'

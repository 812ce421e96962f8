"""The files of the whole book: every address in them leads somewhere, no name is used twice, none is heavy."""

from __future__ import annotations

import json
import posixpath
import re
import string
from collections import Counter
from functools import cache
from html import unescape
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import pytest
from fontTools.ttLib import TTFont

IDENTIFIER = re.compile(r'\sid="([^"]*)"')
ADDRESS = re.compile(r'<(?:a|link|script|img|image|use)\b[^>]*?\s(?:xlink:)?(?:href|src)="([^"]*)"')
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")
HOSTS = {"arxiv.org", "creativecommons.org", "doi.org", "github.com", "kellerjordan.github.io"}  # what the book cites
MEGABYTE = 1_000_000
HEAVIEST = 1.2 * MEGABYTE  # a chapter of a hundred cells holds its drawings, and nothing else is asked for


@cache
def text(path: Path) -> str:
    """Return a page without what is inside scripts and drawn letters."""
    return re.sub(
        r"<script\b(?![^>]*\bsrc=).*?</script>|<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL
    )


@cache
def identifiers(path: Path) -> frozenset[str]:
    return frozenset(unescape(name) for name in IDENTIFIER.findall(text(path)))


def lost(folder: Path, base: PurePosixPath, addresses: list[str]) -> list[str]:
    """Return those of the addresses, seen from the folder `base`, that lead to no file or to no place in it."""
    missing = []
    for address in addresses:
        path, _, fragment = unescape(address).partition("#")
        target = folder / posixpath.normpath((base / unquote(path)).as_posix())
        found = target.is_file() and (not fragment or unquote(fragment) in identifiers(target))
        missing += [] if found else [address]
    return missing


def internal(page: str, content: str) -> list[str]:
    """Return the addresses inside the book that a page holds, its own name put before a mere fragment."""
    found = [address for address in ADDRESS.findall(content) if not SCHEME.match(address)]
    return [PurePosixPath(page).name + address if address.startswith("#") else address for address in found]


def test_every_address_of_every_page_leads_somewhere(pages: Path, names: list[str]) -> None:
    for name in names:
        addresses = internal(name, text(pages / name))
        assert len(addresses) > 40, name
        assert lost(pages, PurePosixPath(name).parent, addresses) == [], name


def test_every_previewed_block_is_there_and_so_is_what_it_refers_to(pages: Path) -> None:
    scripts = sorted((pages / "assets" / "previews").rglob("*.js"))
    assert len(scripts) > 30
    for script in scripts:
        page, table = re.fullmatch(r"\(window.bookPreviews \?\?= {}\)\[(.*?)\] = (.*);\n", script.read_text()).groups()
        page, blocks = json.loads(page), json.loads(table)
        assert set(blocks) <= identifiers(pages / page), page
        for name, block in blocks.items():
            assert block.strip(), f"{page}#{name}"
            assert lost(pages, PurePosixPath(page).parent, internal(page, block)) == [], f"{page}#{name}"


def test_every_entry_of_the_search_and_of_the_graph_leads_somewhere(pages: Path) -> None:
    book = json.loads((pages / "assets" / "index.js").read_text().split("=", 1)[1].rstrip(";\n"))
    addresses = [f"{book['pages'][page][2]}#{anchor}".rstrip("#") for page, anchor, *_ in book["rows"]]
    assert len(addresses) > 1500
    assert lost(pages, PurePosixPath(), addresses) == []
    for script in (pages / "assets").glob("*.js"):
        named = re.findall(r'"((?:chapters/)?[\w-]+\.html(?:#[\w.-]+)?)"', script.read_text(encoding="utf-8"))
        assert lost(pages, PurePosixPath(), named) == [], script.name


def test_no_identifier_is_used_twice(pages: Path, names: list[str]) -> None:
    for name in names:
        twice = [found for found, count in Counter(IDENTIFIER.findall(text(pages / name))).items() if count > 1]
        assert twice == [], name


def test_links_out_of_the_book_are_safe_and_known(pages: Path, names: list[str]) -> None:
    out = {address for name in names for address in ADDRESS.findall(text(pages / name)) if SCHEME.match(address)}
    out = {address for address in out if not address.startswith("data:")}
    assert len(out) > 10
    assert {address for address in out if not address.startswith("https://")} == set()
    assert {address.split("/")[2] for address in out} <= HOSTS


def test_no_two_pages_have_one_title(pages: Path, names: list[str]) -> None:
    titles = [re.search("<title>(.*?)</title>", text(pages / name))[1] for name in names]
    assert [title for title, count in Counter(titles).items() if count > 1] == []


def test_no_page_is_heavy_and_the_first_is_light(pages: Path, names: list[str]) -> None:
    def weight(name: str) -> int:
        loaded = re.findall(r'<(?:link|script|img)\b[^>]*?\s(?:href|src)="([^"]*)"', text(pages / name))
        files = {posixpath.normpath((PurePosixPath(name).parent / a).as_posix()) for a in loaded if not SCHEME.match(a)}
        return sum((pages / file).stat().st_size for file in {name, *files})

    assert weight("index.html") < MEGABYTE
    assert {name: weight(name) for name in names if weight(name) > HEAVIEST} == {}


@pytest.mark.parametrize("address", ["missing.html", "page.html#nowhere", "picture.png", "../page.html"])
def test_an_address_that_leads_nowhere_is_found(tmp_path: Path, address: str) -> None:
    (tmp_path / "page.html").write_text('<p id="here">Words</p>')
    assert lost(tmp_path, PurePosixPath(), [address, "page.html#here", "page.html"]) == [address]


def test_addresses_are_read_from_a_page() -> None:
    content = '<a class="ref" href="#a">1</a><img alt="" src="b.png"><use xlink:href="#c"/><a href="https://d.e/">2</a>'
    assert internal("chapters/f.html", content) == ["f.html#a", "b.png", "f.html#c"]


def test_the_font_of_the_formulas_lacks_no_sign(pages: Path, names: list[str]) -> None:
    held = {chr(code) for code in TTFont(pages / "assets" / "math.woff").getBestCmap()}
    formulas = [found for name in names for found in re.findall(r"<math\b.*?</math>", text(pages / name), re.DOTALL)]
    shown = set(unescape(re.sub(r"<annotation.*?</annotation>|<[^>]*>", "", "".join(formulas), flags=re.DOTALL)))
    assert len(shown) > 150
    assert shown - held <= set(string.whitespace)

"""The book as an EPUB 3: the pages of the HTML renderer as XHTML, packed with drawings and a table of contents."""

from __future__ import annotations

import html
import io
import posixpath
import re
import shutil
import tempfile
import uuid
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote
from xml.etree import ElementTree

from gllm_lib.book.html.blocks import HtmlDresser
from gllm_lib.book.html.fonts import math_font
from gllm_lib.book.html.layout import authors, facts_line
from gllm_lib.book.html.manuscript import Manuscript, Source, written
from gllm_lib.book.html.numbering import Node, Page, node, plain, rewrite, text
from gllm_lib.book.html.pages import RenderError
from gllm_lib.book.html.references import EXTERNAL, Book
from gllm_lib.book.html.search import readable
from gllm_lib.book.print.book import COVER, MEDIA, ON_SCREEN, book_date, media_path, read_book
from gllm_lib.checks import write_bytes

ASSETS = Path(__file__).parent / "assets"
KINDS = {
    ".xhtml": "application/xhtml+xml", ".svg": "image/svg+xml", ".png": "image/png", ".css": "text/css",
    ".woff": "font/woff",
}  # fmt: skip
CONTAINER = """<?xml version="1.0" encoding="UTF-8"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="EPUB/package.opf" media-type="application/oebps-package+xml"/></rootfiles>
</container>
"""


def render_epub(site: Path, out: Path) -> Path:
    """Pack the staged book `site` as the EPUB `out` and return its path; equal sites give equal bytes.

    Raises RenderError where a page cannot be shown, is no XML, uses an identifier twice or links to nothing.
    """
    folder = Path(tempfile.mkdtemp(prefix="gllm-epub."))
    try:
        manuscript, book = read_book(Path(site), folder)
        cover = (manuscript.site / COVER).is_file() and bool(book.take_file(COVER))
        with ThreadPoolExecutor(max_workers=2) as pool:
            pages = list(pool.map(lambda source: _page(source, book, manuscript), manuscript.sources))
        files = {
            f"{source.page.source.stem}.xhtml": page for source, page in zip(manuscript.sources, pages, strict=True)
        }
        files = {"title.xhtml": _title_page(manuscript, cover), "nav.xhtml": _contents(manuscript)} | files
        content = {name: page.encode() for name, page in files.items()}
        content["math.woff"] = math_font(files.values())
        content["book.css"] = (ASSETS / "book.css").read_bytes()
        for path in sorted((folder / MEDIA).glob("*")):
            content[f"{MEDIA}/{path.name}"] = path.read_bytes()
        _check(content)
        content["package.opf"] = _package(manuscript, content, cover).encode()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return write_bytes(out, _packed(content, manuscript))


@dataclass(frozen=True)
class EpubDresser(HtmlDresser):
    """The change of one node of one page into what pandoc writes as XHTML, drawings as files of their own."""

    def address(self, target: Page, fragment: str = "") -> str:
        """Return the way from this page to a place on a page of the book, all of them in one folder."""
        anchor = f"#{fragment}" if fragment else ""
        return anchor if anchor and target.source == self.page.source else f"{target.source.stem}.xhtml{anchor}"

    def _rawblock(self, item: Node) -> Node | list[Node]:
        if "<script" in item["c"][1]:
            return node("Para", [node("Emph", [text(ON_SCREEN)])])
        return super()._rawblock(item)

    def _image(self, item: Node) -> Node:
        alt, url = self.alt_of(item), item["c"][2][0]
        if not url.startswith(f"/{MEDIA}/"):
            path = self.in_site(url)
            self.book.take_file(path)
            url = f"/{media_path(path)}"
        return node("Image", ["", ["drawing"], [["alt", alt]]], [text(alt)], [url.removeprefix("/"), ""])


def _page(source: Source, book: Book, manuscript: Manuscript) -> str:
    """Return one page as XHTML."""
    page = source.page
    dresser = EpubDresser.of(source.blocks, page, book)
    blocks = rewrite([item for item in source.blocks if not (item["t"] == "Header" and item["c"][0] == 1)], dresser)
    first = next((item for item in source.blocks if item["t"] == "Header" and item["c"][0] == 1), None)
    meta = {
        "pagetitle": node("MetaString", f"{page.word}: {plain(source.title)}".removeprefix(": ")),
        "eyebrow": node("MetaString", page.word),
        "headingid": node("MetaString", (first["c"][1][0] if first else "") or "title"),
        "heading": node("MetaInlines", rewrite(source.title, dresser)),
        "facts": node("MetaString", facts_line(source.facts)),
    }
    return as_xml(written(blocks, meta, manuscript, page.source.stem, "--template", str(ASSETS / "page.xhtml")))


def as_xml(page: str) -> str:
    """Return a page of HTML as XML, with what is folded open: not every e-reader can unfold it.

    A sign with a size becomes an operator and a formula's label its alternative text, which the format asks for.
    """
    page = re.sub(r"<mi([^>]*\bstretchy=[^>]*)>([^<]*)</mi>", r'<mo lspace="0" rspace="0"\1>\2</mo>', page)
    page = re.sub(r"(<math\b[^>]*? )aria-label=", r"\1alttext=", page)
    page = re.sub(r"<(wbr|br|hr)>", r"<\1/>", page)
    page = re.sub(r"(<details\b[^>]*?)( open)?>", r'\1 open="open">', page)
    return page.replace("&nbsp;", "\u00a0")


def _wrapped(title: str, body: str) -> str:
    """Return a page of the book's own, around the chapters."""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html>\n'
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" lang="en-GB" '
        f'xml:lang="en-GB">\n<head><meta charset="utf-8"/><title>{html.escape(title)}</title>'
        f'<link rel="stylesheet" href="book.css"/></head>\n<body>\n{body}\n</body>\n</html>\n'
    )


def _title_page(manuscript: Manuscript, cover: bool) -> str:
    book = {key: html.escape(str(value)) for key, value in manuscript.book.items() if isinstance(value, str)}
    date = book_date(manuscript.book)
    lines = [f"<h1>{book['title']}</h1>", f'<p class="subtitle">{book.get("subtitle", "")}</p>']
    if cover:
        lines.append(f'<p><img src="{media_path(COVER)}" alt="The cover drawing."/></p>')
    lines.append(f"<p>{book.get('description', '')}</p>")
    lines.append(f"<p>{html.escape(authors(manuscript.book.get('author')))}, {date.day} {date:%B %Y}</p>")
    return _wrapped(
        book["title"], '<section class="title-page" epub:type="titlepage">\n' + "\n".join(lines) + "\n</section>"
    )


def _contents(manuscript: Manuscript) -> str:
    """Return the navigation document: parts, chapters and their sections."""
    rows, part = [], ""
    for source in manuscript.sources:
        page = source.page
        if page.part != part:
            rows.append("</ol></li>" if part else "")
            rows.append(f"<li><span>{html.escape(page.part)}</span><ol>" if page.part else "")
            part = page.part
        rows.append(_contents_row(source))
    rows.append("</ol></li>" if part else "")
    listed = "\n".join(row for row in rows if row)
    return _wrapped("Contents", f'<nav epub:type="toc" id="toc"><h1>Contents</h1><ol>\n{listed}\n</ol></nav>')


def _contents_row(source: Source) -> str:
    address = f"{source.page.source.stem}.xhtml"
    rows = [
        _entry(f"{address}#{item['c'][1][0]}", item.get("number", ""), item["c"][2])
        for item in source.blocks
        if item["t"] == "Header" and item["c"][0] == 2
    ]
    below = "<ol>" + "".join(f"<li>{row}</li>" for row in rows) + "</ol>" if rows else ""
    return f"<li>{_entry(address, source.page.number, source.title)}{below}</li>"


def _entry(address: str, number: str, title: list[Node]) -> str:
    return f'<a href="{html.escape(address)}">{html.escape(f"{number} {readable(title, {})}".strip())}</a>'


def _package(manuscript: Manuscript, content: dict[str, bytes], cover: bool) -> str:
    """Return the package document: metadata, every file, and the order of reading."""
    book = manuscript.book
    items, spine = [], ['<itemref idref="title.xhtml"/>', '<itemref idref="nav.xhtml"/>']
    for name in content:
        path = PurePosixPath(name)
        if path.suffix not in KINDS:
            raise RenderError(f"{name}: an EPUB of this book holds {', '.join(KINDS)}")
        properties = []
        if name == "nav.xhtml":
            properties.append("nav")
        elif path.suffix == ".xhtml" and b"<math" in content[name]:
            properties.append("mathml")
        if cover and name == media_path(COVER):
            properties.append("cover-image")
        more = f' properties="{" ".join(properties)}"' if properties else ""
        items.append(f'<item id="{_identifier(name)}" href="{name}" media-type="{KINDS[path.suffix]}"{more}/>')
    spine += [f'<itemref idref="{source.page.source.stem}.xhtml"/>' for source in manuscript.sources]
    spine = [re.sub(r'idref="([^"]*)"', lambda found: f'idref="{_identifier(found[1])}"', row) for row in spine]
    date = book_date(book)
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            '<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="book" xml:lang="en-GB">',
            '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">',
            f'<dc:identifier id="book">urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, str(book["title"]))}</dc:identifier>',
            f"<dc:title>{html.escape(str(book['title']))}</dc:title>",
            "<dc:language>en-GB</dc:language>",
            f"<dc:creator>{html.escape(authors(book.get('author')))}</dc:creator>",
            f"<dc:description>{html.escape(str(book.get('description', '')))}</dc:description>",
            f"<dc:date>{date}</dc:date>",
            f'<meta property="dcterms:modified">{date}T00:00:00Z</meta>',
            "</metadata>",
            "<manifest>",
            *items,
            "</manifest>",
            "<spine>",
            *spine,
            "</spine>",
            "</package>\n",
        ]
    )


def _identifier(name: str) -> str:
    return "f-" + re.sub(r"[^\w.-]", "-", name)


def _check(content: dict[str, bytes]) -> None:
    """Raise RenderError for a page that is no XML, an identifier given twice, or a link that leads nowhere."""
    identifiers: dict[str, set[str]] = {}
    links: list[tuple[str, str]] = []
    for name, data in content.items():
        if not name.endswith((".xhtml", ".svg")):
            continue
        try:
            root = ElementTree.fromstring(data)
        except ElementTree.ParseError as error:
            raise RenderError(f"{name}: not XML ({error})") from error
        found = [item.get("id", "") for item in root.iter() if item.get("id")]
        twice = sorted({each for each in found if found.count(each) > 1})
        if twice:
            raise RenderError(f"{name}: the identifier {twice[0]} is used twice on the page; rename one")
        identifiers[name] = set(found)
        if name.endswith(".xhtml"):
            links += [(name, value) for item in root.iter() for key in ("href", "src") if (value := item.get(key))]
    for name, link in links:
        path, _, fragment = link.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(path))) if path else name
        if EXTERNAL.match(link):
            continue
        if place not in content or (fragment and fragment not in identifiers[place]):
            raise RenderError(f"{name}: unresolved reference, a link to {link}, which the book does not hold")


def _packed(content: dict[str, bytes], manuscript: Manuscript) -> bytes:
    """Return the files as one archive, its first the kind, with the date of the book on each."""
    date = book_date(manuscript.book)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:

        def add(name: str, data: bytes, method: int = zipfile.ZIP_DEFLATED) -> None:
            member = zipfile.ZipInfo(name, (date.year, date.month, date.day, 0, 0, 0))
            member.external_attr = 0o644 << 16
            archive.writestr(member, data, method)

        add("mimetype", b"application/epub+zip", zipfile.ZIP_STORED)
        add("META-INF/container.xml", CONTAINER.encode())
        for name in sorted(content):
            add(f"EPUB/{name}", content[name])
    return buffer.getvalue()

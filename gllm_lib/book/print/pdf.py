"""The book as one PDF: the tree of all pages to Typst through pandoc, then set by the compiler of the wheel `typst`."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gllm_lib.book.html.layout import authors, facts_line
from gllm_lib.book.html.manuscript import Manuscript, Source, api_version, pandoc
from gllm_lib.book.html.numbering import Node, node, rewrite, walk
from gllm_lib.book.html.pages import RenderError
from gllm_lib.book.html.references import Book
from gllm_lib.book.print.book import COVER, book_date, media_path, place, read_book, title_label
from gllm_lib.book.print.formulas import typst_formulas
from gllm_lib.book.print.typst import TypstDresser, held, raw, string, wrapped
from gllm_lib.checks import write_bytes, write_text

TEMPLATE = Path(__file__).parent / "assets" / "book.typ"
FONTS = ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSans-Oblique.ttf", "DejaVuSansDisplay.ttf")


def render_pdf(site: Path, out: Path) -> Path:
    """Set the staged book `site` as the PDF `out` and return its path; equal sites give equal bytes.

    Raises RenderError where a page, formula or reference cannot be set, and where the package typst is not installed.
    """
    compiler = require_typst()
    folder = Path(tempfile.mkdtemp(prefix="gllm-pdf."))
    try:
        manuscript = write_typst(Path(site), folder)
        data = _compiled(compiler, folder, manuscript)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return write_bytes(out, data)


def require_typst() -> Any:
    """Return the package typst; raises RenderError where it is not installed."""
    try:
        import typst
    except ImportError as error:
        raise RenderError(
            "the PDF needs the package typst, which is not installed; 'make pdf' installs it from requirements.lock"
        ) from error
    return typst


def write_typst(site: Path, folder: Path) -> Manuscript:
    """Write the book as `main.typ` with its template, drawings and fonts into `folder`; return the book as read."""
    manuscript, book = read_book(site, folder)
    formulas = typst_formulas(
        (item["c"][0]["t"], item["c"][1]) for s in manuscript.sources for item in _all(s) if item["t"] == "Math"
    )
    blocks: list[Node] = []
    part = ""
    for source in manuscript.sources:
        if source.page.part != part:
            part = source.page.part
            if part:
                blocks.append(raw(f"#part({string(part)})"))
        blocks += list(_page(source, book, formulas))
    cites = any(item["t"] == "Cite" for item in walk(blocks))
    if cites:
        blocks += [raw('#chapter(1, "", "", "", "references")[References]'), node("Div", ["refs", [], []], [])]
    tree = {"pandoc-api-version": api_version(), "meta": {"link-citations": node("MetaBool", True)}, "blocks": blocks}
    arguments = ["-f", "json", "-t", "typst", "--wrap=none"]
    if cites:
        arguments += manuscript.citeproc
    write_text(folder / "main.typ", _opening(manuscript, book) + pandoc(arguments, json.dumps(tree), "the book"))
    write_bytes(folder / "book.typ", TEMPLATE.read_bytes())
    import matplotlib  # takes a second to load

    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for name in FONTS:  # the letters of the drawings
        write_bytes(folder / "fonts" / name, (fonts / name).read_bytes())
    return manuscript


def _all(source: Source) -> Iterator[Node]:
    """Yield every node of a page, those of lifted titles too."""
    yield from walk(source.title)
    for item in walk(source.blocks):
        yield item
        if "title" in item:
            yield from walk(item["title"])


def _page(source: Source, book: Book, formulas: Any) -> Iterator[Node]:
    """Yield the blocks of one page, its opening first."""
    page = source.page
    depth = 1 if page.part else 0
    dresser = TypstDresser.of(source.blocks, page, book, formulas=formulas, depth=depth)
    title = rewrite(source.title, dresser)
    names = (page.number, page.word, title_label(source), place(page, "title", book))
    yield wrapped(f"#chapter({1 + depth}, {', '.join(string(name) for name in names)})[", title)
    blocks = rewrite([item for item in source.blocks if not _is_title(item)], dresser)
    if facts := facts_line(source.facts):
        blocks = [*blocks[:-1], raw("#place.flush()"), *held(blocks[-1:]), raw(f"#facts({string(facts)})")]
    yield from blocks


def _is_title(item: Node) -> bool:
    return bool(item["t"] == "Header" and item["c"][0] == 1)


def _opening(manuscript: Manuscript, shared: Book) -> str:
    """Return the first lines of the Typst file: the template, and what the title page says."""
    book = manuscript.book
    given = {key: str(book.get(key, "")) for key in ("title", "subtitle", "description")}
    given["author"] = authors(book.get("author"))
    lines = [f"{key}: {string(value)}" for key, value in given.items()]
    date = book_date(book)
    lines.append(f"date: datetime(year: {date.year}, month: {date.month}, day: {date.day})")
    if (manuscript.site / COVER).is_file():
        shared.take_file(COVER)
        lines.append(f"cover: {string(f'/{media_path(COVER)}')}")
    return f'#import "book.typ": *\n#show: book.with({", ".join(lines)})\n\n'


def _compiled(compiler: Any, folder: Path, manuscript: Manuscript) -> bytes:
    date = book_date(manuscript.book)
    stamp = int(datetime(date.year, date.month, date.day, tzinfo=UTC).timestamp())
    try:
        made = compiler.Compiler(
            str(folder / "main.typ"), root=str(folder), font_paths=[str(folder / "fonts")], ignore_system_fonts=True
        )
        data, warnings = made.compile_with_warnings(format="pdf", timestamp=stamp, pdf_standards=["a-2u"])
    except compiler.TypstError as error:
        raise RenderError(f"Typst says: {error}") from error
    if warnings:
        raise RenderError(f"Typst warns: {'; '.join(str(warning) for warning in warnings[:5])}")
    return bytes(data)

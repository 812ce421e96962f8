"""The built-in renderer: from `build/site/` to a book that opens from disk, with no network and no server.

Each page goes through pandoc twice. The first pass reads markdown; then `numbering` and `blocks` give the tree its
numbers, links and clothes; the second writes HTML with MathML. It is no Quarto clone: what the book does not use is an
error, not a guess.
"""

from __future__ import annotations

import base64
import html
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from gllm_lib.book.html.blocks import resolve
from gllm_lib.book.html.fonts import math_font
from gllm_lib.book.html.layout import Layout
from gllm_lib.book.html.manuscript import Manuscript, Source, read_manuscript, written
from gllm_lib.book.html.numbering import Page, node
from gllm_lib.book.html.pages import RenderError, ShowImage, inline_svg, raw_html
from gllm_lib.book.html.previews import previews
from gllm_lib.book.html.references import EXTERNAL, Book
from gllm_lib.book.html.search import search_index
from gllm_lib.checks import exchange, write_bytes, write_text

ASSETS = Path(__file__).parent / "assets"


def render(site: Path, out: Path) -> list[Path]:
    """Render the Quarto project `site` into the folder `out` and return the pages written, in reading order.

    The book is built beside `out` and put in place when it is whole; an error leaves the previous book as it was.
    Raises RenderError naming page and label for a reference, citation, image or page that cannot be resolved.
    """
    site, out = Path(site), Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        manuscript = read_manuscript(site, lambda page: _images_of(page, fresh))
        book = Book(manuscript.labels, manuscript.keys, manuscript.pages, _file_taker(manuscript, fresh))
        layout = Layout(manuscript.book, manuscript.sources)
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(lambda source: _write(source, book, layout, manuscript, fresh), manuscript.sources))
        for asset in sorted([*ASSETS.glob("*.css"), *ASSETS.glob("*.js")]):
            write_bytes(fresh / "assets" / asset.name, asset.read_bytes())
        write_text(fresh / "assets" / "index.js", search_index(manuscript.sources, book.labels.values()))
        written = {page.target: (fresh / page.target).read_text(encoding="utf-8") for page in book.pages.values()}
        write_bytes(fresh / "assets" / "math.woff", math_font(written.values()))
        for target, script in previews(written).items():
            write_text(fresh / "assets" / "previews" / target.with_suffix(".js"), script)
        check_links(fresh, [page.target for page in book.pages.values()])
        fresh.chmod(0o755)
        exchange(fresh, out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return [out / page.target for page in book.pages.values()]


def _images_of(page: Page, out: Path) -> ShowImage:
    """Return how a page shows its drawings: those of curves inside it, bitmaps as files beside it."""
    folder = f"{page.source.stem}_files"

    def show(name: str, mime: str, value: str, alt: str) -> str:
        if mime == "image/svg+xml":
            return raw_html(inline_svg(value, name, alt))
        write_bytes(out / page.source.parent / folder / f"{name}.png", base64.b64decode(value))
        return raw_html(f'<img class="card" src="{folder}/{name}.png" alt="{html.escape(alt)}">')

    return show


def _file_taker(manuscript: Manuscript, out: Path) -> Callable[[PurePosixPath], bytes]:
    def take(path: PurePosixPath) -> bytes:
        data = manuscript.file(path)
        if path.suffix != ".svg":  # drawings stand inside the page
            write_bytes(out / path, data)
        return data

    return take


def _write(source: Source, book: Book, layout: Layout, manuscript: Manuscript, out: Path) -> None:
    """Resolve one page and write it as HTML."""
    page = source.page
    blocks = resolve(source.blocks, page, book)
    title = next((item["c"][2] for item in blocks if item["t"] == "Header" and item["c"][0] == 1), source.title)
    blocks = [item for item in blocks if not (item["t"] == "Header" and item["c"][0] == 1)]
    values = {"heading": node("MetaInlines", title)}
    for key, value in layout.around(source, _downloads(manuscript.site, page, out)).items():
        if isinstance(value, dict):
            values[key] = node("MetaBlocks", [value])
        elif value:
            values[key] = node("MetaString", value)
    template = ("--toc", "--toc-depth=3", "--template", str(ASSETS / "page.html"))
    write_text(out / page.target, written(blocks, values, manuscript, page.source.stem, *template))


def _downloads(site: Path, page: Page, out: Path) -> list[str]:
    """Copy the notebooks that the site holds for a page's readers, without and with outputs, and return their names."""
    folder = page.source.parent / "downloads"
    names = [f"{page.source.stem}{kind}.ipynb" for kind in ("", "-executed")]
    names = [name for name in names if (site / folder / name).is_file()]
    for name in names:
        write_bytes(out / folder / name, (site / folder / name).read_bytes())
    return names


def check_links(out: Path, targets: list[PurePosixPath]) -> None:
    """Raise RenderError for a link inside the book that leads nowhere, or an identifier used twice on a page."""
    identifiers, links = {}, []
    for target in targets:
        content = (out / target).read_text(encoding="utf-8")
        content = re.sub(r"<(script|pre|code)\b.*?</\1>", "", content, flags=re.DOTALL)
        found = re.findall(r'\sid="([^"]+)"', content)
        twice = sorted({name for name in found if found.count(name) > 1}) if len(found) > len(set(found)) else []
        if twice:
            raise RenderError(f"{target.stem}: the identifier {twice[0]} is used twice on the page; rename one")
        identifiers[target.as_posix()] = set(found)
        links += [(target, html.unescape(link)) for link in re.findall(r'\s(?:href|src)="([^"]*)"', content)]
    for target, link in links:
        if EXTERNAL.match(link):
            continue
        path, _, fragment = link.partition("#")
        place = os.path.normpath(target.parent / unquote(path)) if path else target.as_posix()
        if not (out / place).is_file() or (fragment and fragment not in identifiers.get(place, {fragment})):
            raise RenderError(f"{target.stem}: unresolved reference, a link to {link}, which the book does not hold")

"""The built-in renderer: from `build/site/` to a book that opens from disk, with no network and no server.

Each page goes through pandoc twice. The first pass reads markdown; then `numbering` and `blocks` give the tree its
numbers, links and clothes; the second writes HTML with MathML. It is no Quarto clone: what the book does not use is an
error, not a guess.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import pypandoc
import yaml

from gllm_lib.book.html.blocks import Book, resolve
from gllm_lib.book.html.layout import Layout, Source
from gllm_lib.book.html.mathml import mend
from gllm_lib.book.html.numbering import Page, collect, node, page_number, prepare, table_of_labels, walk
from gllm_lib.book.html.pages import RenderError, notebook_markdown
from gllm_lib.checks import exchange, write_bytes, write_text

ASSETS = Path(__file__).parent / "assets"
READ = "markdown+autolink_bare_uris"


def render(site: Path, out: Path) -> list[Path]:
    """Render the Quarto project `site` into the folder `out` and return the pages written, in reading order.

    The book is built beside `out` and put in place when it is whole; an error leaves the previous book as it was.
    Raises RenderError naming page and label for a reference, citation, image or page that cannot be resolved.
    """
    site, out = Path(site), Path(out)
    config = _config(site)
    pages = list(pages_of(config))
    _require(site, pages)
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        with ThreadPoolExecutor(max_workers=2) as pool:
            sources = list(pool.map(lambda page: read(site, page, fresh), pages))
            labels = table_of_labels(source.labels for source in sources)
            bibliography = _bibliography(site, config)
            book = Book(labels, _keys(bibliography), {page.source: page for page in pages}, _file_taker(site, fresh))
            layout = Layout(config["book"], sources)
            list(pool.map(lambda source: _write(source, book, layout, bibliography, fresh), sources))
        for asset in sorted([*ASSETS.glob("*.css"), *ASSETS.glob("*.js")]):
            write_bytes(fresh / "assets" / asset.name, asset.read_bytes())
        write_text(fresh / "assets" / "index.js", layout.search_index(labels.values()))
        check_links(fresh, [page.target for page in pages])
        fresh.chmod(0o755)
        exchange(fresh, out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return [out / page.target for page in pages]


def _config(site: Path) -> dict[str, Any]:
    path = site / "_quarto.yml"
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RenderError(f"{path} cannot be read ({error.strerror}); stage the book first") from error
    except yaml.YAMLError as error:
        raise RenderError(f"{path} is not YAML: {error}") from error
    book = config.get("book") if isinstance(config, dict) else None
    if not isinstance(book, dict) or not book.get("title") or not book.get("chapters"):
        raise RenderError(f"{path} names no book; it needs book: with title and chapters")
    return dict(config)


def pages_of(config: Mapping[str, Any]) -> Iterator[Page]:
    """Yield the pages that `_quarto.yml` lists, chapters by the number in their names, appendices by letter."""
    appendices = 0
    for section in ("chapters", "appendices"):
        for part, name in _listed(config["book"].get(section) or [], "Appendices" if section == "appendices" else ""):
            source = PurePosixPath(name)
            if section == "appendices":
                yield Page(source, page_number(source, appendices), part, appendix=True)
                appendices += 1
            else:
                yield Page(source, page_number(source, None), part)


def _listed(entries: list[Any], part: str) -> Iterator[tuple[str, str]]:
    for entry in entries:
        if isinstance(entry, str):
            yield part, entry
        elif isinstance(entry, dict) and isinstance(entry.get("part"), str) and "chapters" in entry:
            yield from _listed(entry["chapters"], entry["part"])
        else:
            raise RenderError(f"_quarto.yml: {entry!r} is neither a page nor a part with chapters")


def _require(site: Path, pages: list[Page]) -> None:
    """Refuse a list of pages that are missing, listed twice, of another kind, or share a number."""
    for page in pages:
        if not (site / page.source).is_file():
            raise RenderError(f"_quarto.yml lists {page.source}, which {site} does not hold; stage it or drop the line")
        if page.source.suffix not in (".ipynb", ".qmd", ".md"):
            raise RenderError(f"_quarto.yml lists {page.source}; pages are .ipynb, .qmd or .md")
    for what in ("target", "number"):
        seen: dict[Any, Page] = {}
        for page in pages:
            value = getattr(page, what)
            if value and value in seen:
                raise RenderError(f"{seen[value].source} and {page.source} have one {what}, {value}; rename one")
            seen[value] = page


def pandoc(arguments: list[str], text: str, where: str) -> str:
    """Return what pandoc makes of `text`; raises RenderError when it fails or warns."""
    command = [pypandoc.get_pandoc_path(), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8")
    if done.returncode or "[WARNING]" in done.stderr:
        raise RenderError(f"{where}: pandoc says: {done.stderr.strip()}")
    return done.stdout


def read(site: Path, page: Page, out: Path) -> Source:
    """Return one page of the site as a prepared, numbered tree; bitmaps and the notebook itself go to `out`."""
    path, facts = site / page.source, {}
    folder = f"{page.source.stem}_files"

    def save(name: str, data: bytes) -> str:
        write_bytes(out / page.source.parent / folder / name, data)
        return f"{folder}/{name}"

    if path.suffix == ".ipynb":
        markdown, metadata = notebook_markdown(path, save)
        facts = metadata.get("gllm", {})
        write_bytes(out / page.source, path.read_bytes())
    else:
        markdown = path.read_text(encoding="utf-8")
    tree = json.loads(pandoc(["-f", READ, "-t", "json"], markdown, page.source.stem))
    blocks = prepare(tree["blocks"])
    labels = collect(blocks, page)
    heads = [item for item in walk(blocks) if item["t"] == "Header" and item["c"][0] == 1]
    if not heads and "title" in tree["meta"]:
        heads = [node("Header", 1, ["", [], []], tree["meta"]["title"]["c"])]
    if len(heads) != 1:
        raise RenderError(f"{page.source.stem}: {len(heads)} titles; a page has one, written # Title {{#sec-name}}")
    return Source(page, blocks, heads[0]["c"][2], facts, labels)


def _bibliography(site: Path, config: Mapping[str, Any]) -> list[Path]:
    names = config.get("bibliography") or []
    paths = [site / name for name in ([names] if isinstance(names, str) else names)]
    for path in paths:
        if not path.is_file():
            raise RenderError(f"_quarto.yml names the bibliography {path.name}, which {site} does not hold")
    return paths


def _keys(bibliography: list[Path]) -> frozenset[str]:
    keys: set[str] = set()
    for path in bibliography:
        entries = json.loads(pandoc(["-f", "bibtex", "-t", "csljson"], path.read_text(encoding="utf-8"), path.name))
        keys.update(entry["id"] for entry in entries)
    return frozenset(keys)


def _file_taker(site: Path, out: Path) -> Any:
    def take(path: PurePosixPath) -> bytes:
        if path.is_absolute() or ".." in path.parts or not (site / path).is_file():
            raise RenderError(f"{path}: a page shows this file, which the site does not hold")
        data = (site / path).read_bytes()
        if path.suffix != ".svg":  # drawings stand inside the page
            write_bytes(out / path, data)
        return data

    return take


def _write(source: Source, book: Book, layout: Layout, bibliography: list[Path], out: Path) -> None:
    """Resolve one page and write it as HTML."""
    page = source.page
    blocks = resolve(source.blocks, page, book)
    title = next((item["c"][2] for item in blocks if item["t"] == "Header" and item["c"][0] == 1), source.title)
    blocks = [item for item in blocks if not (item["t"] == "Header" and item["c"][0] == 1)]
    cites = any(item["t"] == "Cite" for item in walk(blocks))
    if cites:
        blocks.append(node("Header", 2, ["references", ["unnumbered"], []], [node("Str", "References")]))
        blocks.append(node("Div", ["refs", [], []], []))
    values = {"heading": node("MetaInlines", title), "link-citations": node("MetaBool", True)}
    for key, value in layout.around(source).items():
        if isinstance(value, dict):
            values[key] = node("MetaBlocks", [value])
        elif value:
            values[key] = node("MetaString", value)
    tree = {"pandoc-api-version": _api_version(), "meta": values, "blocks": blocks}
    arguments = [
        "-f",
        "json",
        "-t",
        "html5",
        "--mathml",
        "--toc",
        "--toc-depth=3",
        "--wrap=none",
        "--syntax-highlighting=none",
    ]
    arguments += ["--template", str(ASSETS / "page.html")]
    if cites:
        arguments += ["--citeproc", *(f"--bibliography={path}" for path in bibliography)]
    write_text(out / page.target, mend(pandoc(arguments, json.dumps(tree), page.source.stem)))


@cache
def _api_version() -> list[int]:
    """Return the version of pandoc's tree format."""
    return list(json.loads(pandoc(["-t", "json"], "", "pandoc"))["pandoc-api-version"])


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
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        path, _, fragment = link.partition("#")
        place = os.path.normpath(target.parent / unquote(path)) if path else target.as_posix()
        if not (out / place).is_file() or (fragment and fragment not in identifiers.get(place, {fragment})):
            raise RenderError(f"{target.stem}: unresolved reference, a link to {link}, which the book does not hold")

"""What every renderer starts from: the book's description, its pages in order as numbered trees, its bibliography."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import pypandoc
import yaml

from gllm_lib.book.html.mathml import mend
from gllm_lib.book.html.numbering import (
    Label,
    Node,
    Page,
    collect,
    node,
    page_number,
    prepare,
    table_of_labels,
    walk,
)
from gllm_lib.book.html.pages import RenderError, ShowImage, notebook_markdown

READ = "markdown+autolink_bare_uris"


@dataclass(frozen=True)
class Source:
    """One page as read: its place in the book, its tree, its title and what the runner noted about its execution."""

    page: Page
    blocks: list[Node]
    title: list[Node]
    facts: Mapping[str, Any]
    labels: list[Label]


@dataclass(frozen=True)
class Manuscript:
    """A staged book as read: its description in `_quarto.yml`, its pages in reading order, what they may refer to."""

    site: Path
    book: Mapping[str, Any]
    sources: list[Source]
    labels: Mapping[str, Label]
    bibliography: list[Path]
    keys: frozenset[str]

    @property
    def pages(self) -> dict[PurePosixPath, Page]:
        """Return the pages by their source files, in reading order."""
        return {source.page.source: source.page for source in self.sources}

    @property
    def citeproc(self) -> list[str]:
        """Return the arguments with which pandoc resolves citations."""
        return ["--citeproc", *(f"--bibliography={path}" for path in self.bibliography)]

    def file(self, path: PurePosixPath) -> bytes:
        """Return the bytes of a file of the site that a page shows; raises RenderError if there is none."""
        if path.is_absolute() or ".." in path.parts or not (self.site / path).is_file():
            raise RenderError(f"{path}: a page shows this file, which the site does not hold")
        return (self.site / path).read_bytes()


def written(blocks: list[Node], values: Mapping[str, Node], manuscript: Manuscript, where: str, *more: str) -> str:
    """Return dressed blocks as HTML with MathML, in the template that `more` names, what they cite at the end."""
    cites = any(item["t"] == "Cite" for item in walk(blocks))
    if cites:
        heading = node("Header", 2, ["references", ["unnumbered"], []], [node("Str", "References")])
        blocks = [*blocks, heading, node("Div", ["refs", [], []], [])]
    meta = {**values, "link-citations": node("MetaBool", True)}
    tree = {"pandoc-api-version": api_version(), "meta": meta, "blocks": blocks}
    arguments = ["-f", "json", "-t", "html5", "--mathml", "--wrap=none", "--syntax-highlighting=none", *more]
    return mend(pandoc([*arguments, *(manuscript.citeproc if cites else ())], json.dumps(tree), where))


def read_manuscript(site: Path, images_of: Callable[[Page], ShowImage]) -> Manuscript:
    """Return the Quarto project `site` as numbered trees; `images_of(page)` says how the page shows its drawings.

    Raises RenderError naming page and label for a page that is missing, not a notebook or without one title, and for a
    label that is given twice.
    """
    config = _config(site)
    pages = list(pages_of(config))
    _require(site, pages)
    with ThreadPoolExecutor(max_workers=2) as pool:
        sources = list(pool.map(lambda page: read(site, page, images_of(page)), pages))
    labels = table_of_labels(source.labels for source in sources)
    bibliography = _bibliography(site, config)
    return Manuscript(site, config["book"], sources, labels, bibliography, _keys(bibliography))


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


@cache
def api_version() -> list[int]:
    """Return the version of pandoc's tree format."""
    return list(json.loads(pandoc(["-t", "json"], "", "pandoc"))["pandoc-api-version"])


def read(site: Path, page: Page, show_image: ShowImage) -> Source:
    """Return one page of the site as a prepared, numbered tree."""
    path, facts = site / page.source, {}
    if path.suffix == ".ipynb":
        markdown, metadata = notebook_markdown(path, show_image)
        facts = metadata.get("gllm", {})
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

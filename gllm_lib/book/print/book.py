"""The whole book as one tree: every page read once, every drawing a file, every place with an identifier of its own."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

from gllm_lib.book import PAPER
from gllm_lib.book.html.manuscript import Manuscript, Source, read_manuscript
from gllm_lib.book.html.numbering import Page, attributes
from gllm_lib.book.html.pages import RenderError, ShowImage
from gllm_lib.book.html.references import Book
from gllm_lib.checks import write_bytes, write_text

MEDIA = "media"
ON_SCREEN = "Here the pages for a browser have a drawing to move about in."  # what needs a script cannot be printed
COVER = PurePosixPath("figures/cover.svg")


@dataclass(frozen=True)
class Evidence:
    """What the line under a check says: how it went, what was checked, and how each mutant was rejected."""

    summary: str
    says: list[str]
    mutants: list[tuple[str, str]]


def read_book(site: Path, folder: Path) -> tuple[Manuscript, Book]:
    """Return the staged book as read, and what its pages share; drawings go to files in `folder`.

    Raises RenderError for what no renderer of the book can show.
    """
    manuscript = read_manuscript(site, lambda page: _images_of(page, folder))

    def take(path: PurePosixPath) -> bytes:
        data = manuscript.file(path)
        shown = drawing(data.decode()).encode() if path.suffix == ".svg" else data
        write_bytes(folder / media_path(path), shown)
        return data

    return manuscript, Book(manuscript.labels, manuscript.keys, manuscript.pages, take)


def media_path(path: PurePosixPath) -> str:
    """Return where a file of the site stands among the book's drawings."""
    return f"{MEDIA}/{'-'.join(path.parts)}"


def _images_of(page: Page, folder: Path) -> ShowImage:
    """Return how a page shows its drawings: as files, whatever their kind."""

    def show(name: str, mime: str, value: str, alt: str) -> str:
        path = f"{MEDIA}/{page.source.stem}-{name}.{'svg' if mime == 'image/svg+xml' else 'png'}"
        if mime == "image/svg+xml":
            write_text(folder / path, drawing(value))
        else:
            write_bytes(folder / path, base64.b64decode(value))
        words = re.sub(r'(["\\])', r"\\\1", " ".join(alt.split()))
        return f'![](/{path}){{fig-alt="{words}"}}'

    return show


def drawing(text: str) -> str:
    """Return an SVG for white paper: nothing but the drawing, coordinates to a hundredth of a point."""
    start = text.find("<svg")
    if start < 0:
        raise RenderError("an SVG without an <svg> element; draw it again")
    body = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text[start:].rstrip(), flags=re.DOTALL)
    body = re.sub(r' d="[^"]*"', lambda match: re.sub(r"(\d\.\d\d)\d+", r"\1", match[0]).replace("\n", ""), body)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body.replace(PAPER, "#ffffff")}\n'


def place(page: Page, fragment: str, book: Book) -> str:
    """Return the identifier, unique in the book, of a place on a page: a label as it is, another with its page."""
    return fragment if fragment in book.labels else f"{page.source.stem}.{fragment}"


def title_label(source: Source) -> str:
    """Return the label of a page's title, "sec-name", or nothing."""
    first = next((item for item in source.blocks if item["t"] == "Header" and item["c"][0] == 1), None)
    identifier = attributes(first)[0] if first else ""
    return identifier if identifier.startswith("sec-") else ""


def evidence_of(content: str) -> Evidence | None:
    """Return what an evidence line in HTML says, or nothing if the block is none."""
    if 'class="evidence"' not in content[:200]:
        return None
    root = ElementTree.fromstring(content)
    mutants = []
    for row in root.iter("li"):
        name = "".join(row[0].itertext()) if len(row) else ""
        mutants.append((name, "".join(row.itertext()).removeprefix(name).removeprefix(": ")))
    summary = "".join("".join(item.itertext()) for item in root.iter("summary"))
    return Evidence(summary, ["".join(item.itertext()) for item in root.iter("p")], mutants)


def book_date(book: Mapping[str, Any]) -> date:
    """Return the date that the files of the book bear: the one in `_quarto.yml`, else SOURCE_DATE_EPOCH, else 2000.

    Raises RenderError for a date in another form.
    """
    given = book.get("date") or os.environ.get("SOURCE_DATE_EPOCH") or "2000-01-01"
    try:
        if str(given).isdigit():
            return datetime.fromtimestamp(int(given), UTC).date()
        return date.fromisoformat(str(given))
    except (ValueError, OverflowError) as error:
        raise RenderError(f'_quarto.yml: the date {given!r} is not a date; write date: "2026-01-31"') from error

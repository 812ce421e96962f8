"""What surrounds a page of the book: the list of chapters, its neighbours and the footer."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from gllm_lib.book.html.manuscript import Source
from gllm_lib.book.html.numbering import Node, Page, plain, raw


class Layout:
    """The book around its pages, given its description in `_quarto.yml` and all pages in reading order."""

    def __init__(self, book: Mapping[str, Any], sources: list[Source]) -> None:
        self.book = book
        self.sources = sources

    def around(self, source: Source, downloads: Iterable[str] = ()) -> dict[str, Any]:
        """Return the template's values for one page, which offers these notebooks."""
        page, here = source.page, self.sources.index(source)
        first = here == 0
        title = plain(source.title)
        book = str(self.book["title"])
        anchor = next((label.id for label in source.labels if label.called == page.word.replace(" ", "\u00a0")), "")
        values = {
            "lang": "en-GB",
            "root": "../" * (len(page.target.parts) - 1),
            "pagetitle": book if first else f"{page.word}: {title} · {book}".removeprefix(": "),
            "booktitle": book,
            "eyebrow": page.word,
            "headingid": anchor or "title",
            "sidebar": raw(self.chapters(page)),
            "previous": self._neighbour(page, here - 1),
            "next": self._neighbour(page, here + 1),
            "downloads": raw(download_links(downloads)) if downloads else "",
            "facts": unbroken_dates(facts_line(source.facts)),
        }
        if first:
            values |= {"subtitle": str(self.book.get("subtitle", "")), "author": authors(self.book.get("author"))}
            values |= {"cover": "cover", "contents": raw(self.chapters(page, skip=page))}
            if title != book:  # a preface follows a title page
                values |= {"cover": "preface", "booktitlepage": "yes"}
        return values

    def chapters(self, current: Page, skip: Page | None = None) -> str:
        """Return the list of parts and chapters as HTML, seen from one page, without the page to skip."""
        rows, part = [], ""
        for source in self.sources:
            page = source.page
            if page == skip:
                continue
            if page.part != part:
                rows.append(f'</ol><p class="part">{html.escape(page.part)}</p><ol>' if page.part else "</ol><ol>")
                part = page.part
            mark = ' aria-current="page"' if page == current else ""
            number = f'<span class="number">{page.number}</span> ' if page.number else ""
            rows.append(
                f'<li><a href="{_relative(page, current)}"{mark}>{number}{html.escape(plain(source.title))}</a>'
            )
        return f"<ol>{''.join(rows)}</ol>".replace("<ol></ol>", "")

    def _neighbour(self, current: Page, index: int) -> Node | str:
        if not 0 <= index < len(self.sources):
            return ""
        other = self.sources[index]
        word = f"<small>{other.page.word}</small> " if other.page.word else ""
        return raw(f'<a href="{_relative(other.page, current)}">{word}{html.escape(plain(other.title))}</a>')


def _relative(target: Page, current: Page) -> str:
    return os.path.relpath(target.target, current.target.parent)


def download_links(names: Iterable[str]) -> str:
    """Return the links to a page's notebooks as HTML, and what to do with one."""
    links = []
    for name in names:
        words = "with its outputs" if name.endswith("-executed.ipynb") else "without outputs"
        links.append(f'<a href="downloads/{html.escape(name)}" download>{words}</a>')
    return (
        f"This chapter as a notebook: {', '.join(links)}. To run it, put the one without outputs into "
        "<code>chapters/</code> of a clone of the book, where it takes the place of that clone's own, and call "
        "<code>make lab</code>."
    )


def authors(value: Any) -> str:
    """Return the authors of `_quarto.yml` (a name, a mapping with `name`, or a list of these) as one line."""
    if isinstance(value, list):
        return ", ".join(authors(item) for item in value)
    return str(value.get("name", "")) if isinstance(value, dict) else str(value or "")


def unbroken_dates(line: str) -> Node | str:
    """Return a line of text as HTML in which no date breaks at its hyphens."""
    marked = re.sub(r"\d{4}-\d\d-\d\d", r'<span class="kept">\g<0></span>', html.escape(line))
    return raw(marked) if line else ""


def facts_line(facts: Mapping[str, Any]) -> str:
    """Return what is known about the execution of a chapter as one sentence, or nothing."""
    parts = []
    if "seconds" in facts:
        parts.append(f"in {float(facts['seconds']):.0f} s")
    parts += [f"{word} {facts[key]}" for key, word in (("machine", "on"), ("python", "with Python")) if facts.get(key)]
    if facts.get("profile"):
        parts.append(f"at {facts['profile']} size")
    if facts.get("finished"):
        parts.append(f"finished {facts['finished']}")
    return f"Executed {', '.join(parts)}." if parts else ""

"""What every renderer makes of a numbered page alike: references, links, what a claim shows, and what is refused.

A `Dresser` changes one node of one page at a time. This one knows what the book's blocks mean; its heirs know how they
look: in HTML (`blocks`), and in print and in an EPUB (`gllm_lib.book.print`).
"""

from __future__ import annotations

import os
import posixpath
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Self

from gllm_lib.book.html.numbering import (
    WORDS,
    Label,
    Node,
    Page,
    attributes,
    is_claim,
    node,
    plain,
    rewrite,
    text,
    walk,
)
from gllm_lib.book.html.pages import RenderError

CALLOUTS = {"note": "Note", "tip": "Tip", "warning": "Warning", "important": "Important", "caution": "Caution"}
SPACE: Node = {"t": "Space"}
EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:")


@dataclass(frozen=True)
class Book:
    """What the pages share: labels by identifier, keys of the bibliography, addresses of pages, and a way to files.

    `take_file` gets a path relative to the site and returns its bytes, having copied it beside the rendered pages.
    """

    labels: Mapping[str, Label]
    keys: frozenset[str]
    pages: Mapping[PurePosixPath, Page]
    take_file: Callable[[PurePosixPath], bytes]


def has_class(item: Node, name: str) -> bool:
    """Say whether a node is a division of this class."""
    return item["t"] == "Div" and name in attributes(item)[1]


@dataclass(frozen=True)
class Dresser(ABC):
    """The change of one node of one page; children come first."""

    page: Page
    book: Book
    statuses: Mapping[str, Node]

    @classmethod
    def dress(cls, blocks: list[Node], page: Page, book: Book) -> list[Node]:
        """Return a prepared and numbered page with every reference a link and every block dressed.

        Raises RenderError naming page and label for an unresolved reference, a missing citation, an image without alt
        text, a link to a page that is not in the book, and raw TeX, which would vanish.
        """
        dresser = cls.of(blocks, page, book)
        result: list[Node] = rewrite(blocks, dresser)
        return result

    @classmethod
    def of(cls, blocks: list[Node], page: Page, book: Book, **given: Any) -> Self:
        """Return the dresser of a page, with what its kind is given; raises RenderError for a status without claim."""
        statuses = {attributes(item)[2].get("claim", ""): item for item in walk(blocks) if has_class(item, "status")}
        known = {attributes(item)[0] for item in walk(blocks) if is_claim(item)}
        for label in statuses:
            if label not in known:
                raise RenderError(f"{page.source.stem}: a status of {label or 'no claim'!r}, which is not on this page")
        return cls(page, book, statuses, **given)

    def __call__(self, item: Node) -> Node | list[Node]:
        kind = item["t"]
        change = getattr(self, f"_{kind.lower()}", None)
        return change(item) if change else item

    def error(self, words: str) -> RenderError:
        """Return an error that names the page."""
        return RenderError(f"{self.page.source.stem}: {words}")

    # references and links

    def _cite(self, item: Node) -> Node | list[Node]:
        citations, _ = item["c"]
        names = [citation["citationId"][:1].lower() + citation["citationId"][1:] for citation in citations]
        internal = [name.split("-")[0] in WORDS and "-" in name for name in names]
        if not any(internal):
            missing = [citation["citationId"] for citation in citations if citation["citationId"] not in self.book.keys]
            if missing:
                raise self.error(f"citation {', '.join(missing)} is not in the bibliography; add it or mend the key")
            return item
        if not all(internal):
            raise self.error(f"{', '.join(names)}: references and citations share one bracket; give each its own")
        links: list[Node] = []
        for name, citation in zip(names, citations, strict=True):
            bare = citation["citationMode"]["t"] == "SuppressAuthor"
            prefix, suffix = citation["citationPrefix"], citation["citationSuffix"]
            links += [text(","), SPACE] if links else []
            links += [*prefix, *([SPACE] if prefix else []), self.reference(name, bare), *suffix]
        return links

    def reference(self, name: str, bare: bool = False) -> Node:
        """Return the link to a label, such as "Proposition 4.2" or, bare, "4.2"."""
        if name not in self.book.labels:
            raise self.error(f"unresolved reference @{name}; no page of the book has this label")
        label = self.book.labels[name]
        called = label.called.split("\u00a0")[-1] if bare else label.called
        title = label.name if label.name != called else ""
        return node("Link", ["", ["ref"], []], [text(called)], [self.address(label.page, label.id), title])

    def address(self, target: Page, fragment: str = "") -> str:
        """Return the way from this page to a place on a page of the book."""
        anchor = f"#{fragment}" if fragment else ""
        if target.source == self.page.source and anchor:
            return anchor
        return os.path.relpath(target.target, self.page.target.parent) + anchor

    def _link(self, item: Node) -> Node:
        url, title = item["c"][2]
        if EXTERNAL.match(url):
            return item
        path, _, fragment = url.partition("#")
        if path.endswith((".ipynb", ".qmd")):
            source = self.in_site(path)
            if source not in self.book.pages:
                raise self.error(f"a link to {url}, which is not a page of the book")
            url = self.address(self.book.pages[source], fragment)
        elif not path and fragment in self.book.labels:
            url = self.address(self.book.labels[fragment].page, fragment)
        return node("Link", item["c"][0], item["c"][1], [url, title])

    def in_site(self, path: str) -> PurePosixPath:
        """Return a path that this page names, seen from the site."""
        return PurePosixPath(posixpath.normpath((self.page.source.parent / path).as_posix()))

    # what each kind of block is; the heirs say how it looks

    def _div(self, item: Node) -> Node | list[Node]:
        identifier, classes, _ = attributes(item)
        if is_claim(item):
            return self._claim(item)
        if "status" in classes:
            return []  # stands inside its claim
        if "proof" in classes:
            return self._proof(item)
        if "equation" in classes:
            return self._equation(item)
        if identifier.startswith(("fig-", "tbl-")):
            blocks, words = self.captioned(item)
            return self._float(identifier, item["called"], words, blocks)
        for name in classes:
            if name.startswith("callout-"):
                return self._callout(item, name.removeprefix("callout-"))
        return self._division(item)

    @abstractmethod
    def _claim(self, item: Node) -> Node | list[Node]: ...

    @abstractmethod
    def _proof(self, item: Node) -> list[Node]: ...

    @abstractmethod
    def _equation(self, item: Node) -> Node: ...

    @abstractmethod
    def _float(self, identifier: str, called: str, words: list[Node], blocks: list[Node]) -> list[Node]: ...

    @abstractmethod
    def _callout(self, item: Node, kind: str) -> list[Node]: ...

    @abstractmethod
    def _division(self, item: Node) -> Node | list[Node]: ...

    # what blocks say

    def claim_name(self, item: Node) -> list[Node]:
        """Return the name of a claim as words of the text, without the word that its number already says."""
        label = self.book.labels[attributes(item)[0]]
        if not item.get("title") or not label.name:
            return []
        title: list[Node] = item["title"]
        return title if label.name == plain(title) else [text(label.name)]

    def relations(self, item: Node) -> list[tuple[str, list[Node]]]:
        """Return what ties a claim to others, a verb and links: what it corrects, what corrects it, what it uses."""
        identifier, _, pairs = attributes(item)
        corrected = [label.id for label in self.book.labels.values() if identifier in label.corrects.split()]
        told = []
        for verb, names in (
            ("Corrects", pairs.get("corrects", "").split()),
            ("Corrected by", corrected),
            ("Uses", pairs.get("uses", "").split()),
        ):
            if names:
                told.append((verb, [part for name in names for part in (text(","), SPACE, self.reference(name))][2:]))
        return told

    def status_of(self, identifier: str) -> tuple[str, list[Node]]:
        """Return the status of a claim, "proved" for example, and the lines that say why; nothing if it has none."""
        if identifier not in self.statuses:
            return "", []
        status = self.statuses[identifier]
        word = next((name for name in attributes(status)[1] if name != "status"), "")
        lines: list[Node] = rewrite(status["c"][1], self)
        return word, lines

    def captioned(self, item: Node) -> tuple[list[Node], list[Node]]:
        """Return the contents of a figure or table division and the words of its caption, its last paragraph."""
        blocks = item["c"][1]
        inner = [block for block in blocks if block["t"] == "Figure" and not attributes(block)[0]]
        if len(blocks) == 1 and inner:
            _, caption, blocks = inner[0]["c"]
            return blocks, caption[1][0]["c"] if caption[1] else []
        if len(blocks) > 1 and blocks[-1]["t"] == "Para":
            return blocks[:-1], blocks[-1]["c"]
        raise self.error(f"{attributes(item)[0]} has no caption; end it with a caption of one paragraph")

    def callout(self, item: Node, kind: str) -> list[Node]:
        """Return the title of a callout; raises RenderError for a kind the book does not use."""
        if kind not in CALLOUTS:
            raise self.error(f"unknown callout {kind}; known are {', '.join(CALLOUTS)}")
        return item.get("title") or [text(attributes(item)[2].get("title", CALLOUTS[kind]))]

    def alt_of(self, item: Node) -> str:
        """Return the alt text of an image; raises RenderError for none, and for an image on another machine."""
        _, words, (url, _) = item["c"]
        given = attributes(item)[2]
        alt = given.get("fig-alt") or given.get("alt") or plain(words)
        if not alt.strip():
            raise self.error(f'an image without alt text: {url}; give it fig-alt="..."')
        if EXTERNAL.match(url) and not url.startswith("data:"):
            raise self.error(f"the image {url} is on another machine; the book is read without a network")
        return alt

    # what is refused

    def _code(self, item: Node) -> Node:
        if item["c"][1].startswith("{python}"):
            raise self.error(f"`{item['c'][1][:40]}` was not executed; execute the chapter again")
        return item

    def _rawinline(self, item: Node) -> Node:
        if item["c"][0] in ("tex", "latex"):
            raise self.error(f"raw TeX would vanish: {item['c'][1][:60]!r}; put formulas between dollars")
        return item

    def refuse_tex(self, item: Node) -> None:
        """Raise RenderError for a block of raw TeX."""
        if item["c"][0] in ("tex", "latex"):
            raise self.error(f"raw TeX would vanish: {item['c'][1][:60]!r}; put formulas between $$ and $$")

"""What a page says, read from the HTML of either renderer, so that one page can be held against the other.

Both are read into `Facts`. Where they differ by design, the difference is mended here and nowhere else: Quarto counts
the chapters 1, 2, 3, ..., the built-in renderer reads a chapter's number in the name of its file, such as 4b
(`Numbers`); Quarto calls an assumption a conjecture; the built-in renderer sets a statement's status inside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from html.parser import HTMLParser
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder

from gllm_lib.book.html.manuscript import pages_of

VOID = frozenset({"area", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"})
HEADINGS = ("h2", "h3", "h4", "h5", "h6")
TITLES = ("claim-head", "theorem-title", "proof-title")
REFERENCES = ("ref", "quarto-xref")
SKIPPED = frozenset({"button", "figcaption", "footer", "h1", "nav", "pre", "script", "style", "svg", *HEADINGS})
COMPARED = (*TITLES, "status", "relations", "evidence", "references")  # by itself
FURNITURE = ("back", "claim-foot", "colophon", "contents", "page-head", "qed", "quarto-title-block", "title-page")
ASIDE = frozenset((*COMPARED, *FURNITURE, "screen-reader-only"))
FOLDED = frozenset({"proof", "imports", "code-fold"})


class Numbers:
    """Quarto's numbers of chapters in the built-in renderer's: `{"8": "4b"}` for the eighth numbered chapter."""

    def __init__(self, chapters: Mapping[str, str]) -> None:
        self.chapters = dict(chapters)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Numbers:
        """Count the numbered chapters of `_quarto.yml` as Quarto does; the letters of appendices agree."""
        numbered = [page.number for page in pages_of(config) if page.number and not page.appendix]
        return cls({str(count): number for count, number in enumerate(numbered, 1)})

    def ours(self, called: str) -> str:
        """Return what is called "Section 8.2", "8.2" or "Chapter 8" as the built-in renderer calls it."""
        return re.sub(
            r"(?<![\w.])\d+(?=\.\d)|(?<=Chapter )\d+", lambda hit: self.chapters.get(hit[0], hit[0]), called, count=1
        )


SAME = Numbers({})


@dataclass(frozen=True)
class Facts:
    """What both renderers must agree on, each list in the order of the page; text without spaces, which differ."""

    title: str
    headings: list[tuple[str, str]]  # level, number and words
    claims: list[tuple[str, str, str, str]]  # label, what it is called, its name, the item of a source
    equations: list[tuple[str, str]]  # label, number
    floats: list[tuple[str, str, str]]  # label of a figure or table, what it is called, its caption
    pictures: list[str]  # what images and drawings show, in words
    references: list[tuple[str, str]]  # where it goes, what it says
    statuses: list[tuple[str, str]]  # label of the claim, its status
    relations: list[tuple[str, str]]  # label of the claim, what it corrects, is corrected by and uses
    evidence: list[str]
    entries: list[tuple[str, str]]  # key and words of the bibliography
    code: list[str]
    words: str  # all the rest with its mathematics; a reference is its label in brackets

    def differences(self, other: Facts) -> list[str]:
        """Return what `other` says otherwise: for each kind of fact the first place."""
        pairs = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return [f"{name}: {_first_difference(mine, others)}" for name, mine, others in pairs if mine != others]


def _first_difference(mine: Any, others: Any) -> str:
    """Return the first item, or the surroundings of the first letter, in which two lists or texts differ."""
    at = next((k for k, (a, b) in enumerate(zip(mine, others, strict=False)) if a != b), min(len(mine), len(others)))
    if isinstance(mine, str):
        return f"{mine[max(0, at - 50) : at + 50]!r} is {others[max(0, at - 50) : at + 50]!r}"
    here, there = (repr(side[at]) if at < len(side) else "nothing" for side in (mine, others))
    return f"{here} is {there}, place {at} of {len(mine)} and {len(others)}"


class _Reader(HTMLParser):
    """The tree of what a page has between `<main>` and `</main>`."""

    def __init__(self) -> None:
        super().__init__()
        self.tree, self.open = TreeBuilder(), [""]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "main" or "main" in self.open:
            self.tree.start(tag, {key: value or "" for key, value in attrs})
            if tag in VOID:
                self.tree.end(tag)
            else:
                self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while tag in self.open:
            closed = self.open.pop()
            self.tree.end(closed)
            if closed == tag:
                return

    def handle_data(self, data: str) -> None:
        if "main" in self.open:
            self.tree.data(data)


def main_of(text: str) -> Element:
    """Return the tree of a page's main part, without the TeX that stands beside mathematics."""
    reader = _Reader()
    reader.feed(text)
    main: Element = reader.tree.close()
    for math in main.iter("semantics"):
        for note in math.findall("annotation"):
            math.remove(note)
    return main


def with_class(tree: Element, *names: str) -> Iterator[Element]:
    """Yield every element that has one of these classes."""
    return (item for item in tree.iter() if set(names) & set(item.get("class", "").split()))


def words(element: Element) -> str:
    """Return the text of an element with single spaces."""
    return " ".join("".join(element.itertext()).split())


def close(element: Element) -> str:
    """Return the text of an element without spaces."""
    return "".join("".join(element.itertext()).split())


def facts(text: str, page: str, numbers: Numbers = SAME) -> Facts:
    """Return what the HTML of the page at this address says; of Quarto's HTML, in the built-in renderer's `numbers`."""
    return _Page(main_of(text), PurePosixPath(page), numbers).facts()


@dataclass(frozen=True)
class _Page:
    """A page of one of the renderers."""

    main: Element
    address: PurePosixPath
    numbers: Numbers

    def facts(self) -> Facts:
        """Return all that the page says."""
        derived = {id(link) for block in with_class(self.main, "relations", "back") for link in block.iter("a")}
        links = [link for link in with_class(self.main, *REFERENCES) if id(link) not in derived]
        labelled = [item for item in self.main.iter() if re.match(r"(fig|tbl|eq)-", item.get("id", ""))]
        found = {item.get("id", ""): item for item in labelled}
        return Facts(
            title=self.title(),
            headings=[
                (item.tag, self.heading(item))
                for item in self.main.iter()
                if item.tag in HEADINGS and item.get("id") != "references"
            ],
            claims=[self.claim(item) for item in with_class(self.main, "claim")],
            equations=[(label, self.number(item)) for label, item in found.items() if label.startswith("eq-")],
            floats=[self.float(label, item) for label, item in found.items() if item.find(".//figcaption") is not None],
            pictures=[alt for item in self.main.iter() if (alt := picture(item))],
            references=[(self.target(link), self.said(link)) for link in links],
            statuses=self.by_claim("status"),
            relations=self.by_claim("relations"),
            evidence=["".join(self.running(item).split()) for item in with_class(self.main, "evidence")],
            entries=[(item.get("id", ""), close(item)) for item in with_class(self.main, "csl-entry")],
            code=[close(item) for item in self.main.iter("pre")],
            words="".join(self.running(self.main).split()),
        )

    def title(self) -> str:
        """Return the number of the page and its title."""
        eyebrow = "".join(words(item) for item in with_class(self.main, "eyebrow"))
        heads = [said for item in self.main.iter("h1") if (said := words(item)) != "References"]
        said = f"{eyebrow} {heads[-1]}".strip().replace(" — ", " ")
        return self.numbers.ours(re.sub(r"^(\d+) ", r"Chapter \1 ", said)) if re.match(r"\d|Chapter", said) else said

    def heading(self, item: Element) -> str:
        """Return the number of a heading and its words, with what references in it say."""
        item = deepcopy(item)
        for link in with_class(item, *REFERENCES):
            said, tail = self.said(link), link.tail
            link.clear()
            link.text, link.tail = said, tail
        numbered = any(True for _ in with_class(item, "number", "header-section-number"))
        return self.numbers.ours(words(item)) if numbered else words(item)

    def said(self, link: Element) -> str:
        """Return what a reference says; Quarto has no assumptions, and its front page names chapters by title."""
        called = re.sub(r"^(\d+) .+", r"Chapter \1", re.sub(r"^(Appendix [A-Z]) — .+", r"\1", words(link)))
        if re.fullmatch(r"\d+", called) and self.target(link).endswith(".html"):
            return self.numbers.ours(f"Chapter {called}").removeprefix("Chapter ")
        return re.sub(r"Equation \((.*)\)", r"Equation \1", self.named(called))

    def named(self, called: str) -> str:
        """Return what something is called, by the word that both renderers have for it."""
        return self.numbers.ours(called).replace("Assumption", "Conjecture")

    def target(self, link: Element) -> str:
        """Return the label that a reference goes to or, where it goes to a whole page, the page."""
        path, _, label = link.get("href", "").partition("#")
        if label and not re.match(r"Chapter|Appendix|\d+[a-z]?$", words(link)):
            return label
        return normpath(self.address.parent / path) if path else str(self.address)

    def claim(self, item: Element) -> tuple[str, str, str, str]:
        """Return the label of a claim, what it is called, its name and the item of a source that it treats."""
        (title,) = with_class(item, *TITLES)
        source = item.get("data-source", "") + "".join(words(mark) for mark in with_class(title, "source"))
        for mark in with_class(title, "source"):
            mark.clear()
        called, _, name = words(title).removesuffix(".").partition(" (")
        assumed = re.fullmatch(r"Assumption(?:: (.*)| \((.*)\))", name := name.removesuffix(")"))
        name = "".join(((assumed[1] or assumed[2]) if assumed else name).split())
        return item.get("id", ""), self.named(called), name, source

    def number(self, item: Element) -> str:
        """Return the number of an equation, which both renderers set at its end."""
        return self.numbers.ours(close(item).rpartition("(")[2].removesuffix(")"))

    def float(self, label: str, item: Element) -> tuple[str, str, str]:
        """Return the label of a figure or table, what it is called, and its caption."""
        kind, number, *caption = self.running(next(item.iter("figcaption"))).split()
        return label, self.named(f"{kind} {number.removesuffix(':')}"), "".join(caption)

    def by_claim(self, name: str) -> list[tuple[str, str]]:
        """Return every division of this class with the label of its claim, which it names or stands in."""
        inside = {id(item): claim for claim in with_class(self.main, "claim") for item in with_class(claim, name)}
        found = []
        for item in with_class(self.main, name):
            label = item.get("data-claim") or inside[id(item)].get("id") or ""
            found.append((label, "".join(self.running(item).split())))
        return found

    def running(self, item: Element) -> str:
        """Return the running text of an element, a reference as its label in brackets."""
        return "".join(self._spoken(item, whole=True))

    def _spoken(self, item: Element, whole: bool = False) -> Iterator[str]:
        names = set(item.get("class", "").split())
        if not whole and (item.tag in SKIPPED or names & ASIDE):
            return
        if names.intersection(REFERENCES):
            yield f"[{self.target(item)}]"
        elif item.get("id", "").startswith("eq-"):
            yield close(item).rpartition("(")[0]
        else:
            yield item.text or ""
            for child in item:
                if not (names & FOLDED and child.tag == "summary"):
                    yield from self._spoken(child)
                yield child.tail or ""


def picture(item: Element) -> str:
    """Return what an image or a drawing shows, in words; of any other element, nothing."""
    attribute = {"img": "alt", "svg": "aria-label"}.get(item.tag, "")
    return " ".join(item.get(attribute, "").split())

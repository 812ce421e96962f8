"""Numbers and labels of the book's pages, read from pandoc's syntax trees.

A tree is pandoc's JSON: nodes are dictionaries with a type `t` and contents `c`. `prepare` gives titles and displayed
equations nodes of their own, `collect` numbers what has a label, in document order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gllm_lib.book.html.pages import RenderError

Node = dict[str, Any]

CLAIMS = {
    "thm": "Theorem",
    "lem": "Lemma",
    "cor": "Corollary",
    "prp": "Proposition",
    "cnj": "Conjecture",
    "def": "Definition",
    "exm": "Example",
    "exr": "Exercise",
    "rem": "Remark",
    "alg": "Algorithm",
}
WORDS = CLAIMS | {"fig": "Figure", "tbl": "Table", "eq": "Equation", "sec": "Section"}
SPACES = ("Space", "SoftBreak")
COMMENT = re.compile(r"\s*(?:<!--.*?-->\s*)+", re.DOTALL)
LABEL = re.compile(rf"({'|'.join(WORDS)})-[\w:.-]*\w")


@dataclass(frozen=True)
class Page:
    """One page of the book: its source file in the site, its number ("4", "B" or "") and the part it stands in."""

    source: PurePosixPath
    number: str
    part: str = ""
    appendix: bool = False

    @property
    def target(self) -> PurePosixPath:
        """Return the address of the rendered page, relative to the book."""
        return self.source.with_suffix(".html")

    @property
    def word(self) -> str:
        """Return "Chapter 4", "Appendix B" or, for a page without a number, nothing."""
        return f"{'Appendix' if self.appendix else 'Chapter'} {self.number}" if self.number else ""


@dataclass(frozen=True)
class Label:
    """Something one can refer to: what it is called ("Proposition 4.2"), its own name and where it stands."""

    id: str
    called: str
    name: str
    page: Page
    corrects: str = ""


def node(kind: str, *contents: Any) -> Node:
    """Return a node with these contents; a single one stands alone, as pandoc writes it."""
    return {"t": kind, "c": contents[0] if len(contents) == 1 else list(contents)}


def div(classes: str, blocks: list[Node], identifier: str = "", **attributes: str) -> Node:
    """Return a block division; underscores in attribute names become hyphens."""
    pairs = [[key.replace("_", "-"), value] for key, value in attributes.items()]
    return node("Div", [identifier, classes.split(), pairs], blocks)


def span(classes: str, inlines: list[Node]) -> Node:
    """Return an inline span with these classes."""
    return node("Span", ["", classes.split(), []], inlines)


def raw(content: str) -> Node:
    """Return a piece of HTML as a block."""
    return node("RawBlock", "html", content)


def scroll(name: str, blocks: list[Node], classes: str = "") -> Node:
    """Return a container that scrolls sideways by itself, reachable by keyboard and named; a landmark it is not."""
    return div(f"scroll {classes}", blocks, tabindex="0", role="group", aria_label=name)


def text(words: str) -> Node:
    """Return one piece of running text."""
    return node("Str", words)


def walk(value: Any) -> Iterator[Node]:
    """Yield every node below `value`, parents first, in document order."""
    if isinstance(value, list):
        for item in value:
            yield from walk(item)
    elif isinstance(value, dict):
        if "t" in value:
            yield value
        for item in value.values():
            yield from walk(item)


def rewrite(value: Any, change: Callable[[Node], Node | list[Node]]) -> Any:
    """Return `value` with every node replaced by what `change` makes of it, children first; a list is spliced in."""
    if isinstance(value, list):
        result: list[Any] = []
        for item in value:
            made = rewrite(item, change)
            if isinstance(item, dict) and isinstance(made, list):
                result.extend(made)
            else:
                result.append(made)
        return result
    if isinstance(value, dict):
        made = {key: rewrite(item, change) for key, item in value.items()}
        return change(made) if "t" in made else made
    return value


def plain(inlines: Any) -> str:
    """Return the words of some nodes as one line, formulas as they were typed."""
    words = []
    for item in walk(rewrite(inlines, _quoted)):
        if item["t"] in ("Str", "RawInline", "Math", "Code"):
            words.append(item["c"] if isinstance(item["c"], str) else item["c"][1])
        elif item["t"] in ("Space", "SoftBreak", "LineBreak"):
            words.append(" ")
    return "".join(words).strip()


def _quoted(item: Node) -> Node | list[Node]:
    """Return quoted words between their marks, of which pandoc's tree only says the kind."""
    if item["t"] != "Quoted":
        return item
    before, after = "“”" if item["c"][0]["t"] == "DoubleQuote" else "‘’"
    return [text(before), *item["c"][1], text(after)]


def attributes(item: Node) -> tuple[str, list[str], dict[str, str]]:
    """Return identifier, classes and attributes of a Div, Span, Header, Figure, Table, Code, Link or Image."""
    identifier, classes, pairs = item["c"][1] if item["t"] == "Header" else item["c"][0]
    return identifier, classes, dict(pairs)


def is_claim(item: Node) -> bool:
    """Say whether a node is a theorem-like block."""
    return item["t"] == "Div" and attributes(item)[0].split("-")[0] in CLAIMS and "-" in attributes(item)[0]


def prepare(blocks: list[Node]) -> list[Node]:
    """Return the blocks with titles of claims, proofs and callouts lifted into their Div and equations set apart."""

    def change(item: Node) -> Node | list[Node]:
        if item["t"] == "Div":
            _, classes, _ = attributes(item)
            titled = (
                is_claim(item)
                or not {"claim", "proof"}.isdisjoint(classes)
                or any(name.startswith("callout-") for name in classes)
            )
            inside = item["c"][1]
            if titled and inside and inside[0]["t"] == "Header":
                return {"t": "Div", "c": [item["c"][0], inside[1:]], "title": inside[0]["c"][2]}
        if item["t"] in ("RawBlock", "RawInline") and COMMENT.fullmatch(item["c"][1]):
            return []
        if item["t"] in ("Para", "Plain"):
            return _equations_apart(item)
        return item

    result: list[Node] = rewrite(blocks, change)
    return result


def _equations_apart(paragraph: Node) -> Node | list[Node]:
    """Return a paragraph cut at its displayed equations, each in a division `equation` with its label."""
    if not any(_is_displayed(item) for item in paragraph["c"]):
        return paragraph
    blocks: list[Node] = []
    words: list[Node] = []
    rest = paragraph["c"]
    while rest:
        item, rest = rest[0], rest[1:]
        if not _is_displayed(item):
            words.append(item)
            continue
        blocks += _paragraph(paragraph["t"], words)
        words = []
        label, mark, rest = _after_equation(rest)
        formula = node("Math", {"t": "DisplayMath"}, item["c"][1] + mark)
        blocks.append(div("equation", [node("Plain", [formula])], label))
    return blocks + _paragraph(paragraph["t"], words)


def _is_displayed(item: Node) -> bool:
    return item["t"] == "Math" and item["c"][0]["t"] == "DisplayMath"


def _paragraph(kind: str, words: list[Node]) -> list[Node]:
    """Return the words as one paragraph without spaces at its end, or nothing."""
    while words and words[-1]["t"] in SPACES:
        words = words[:-1]
    return [{"t": kind, "c": words}] if words else []


def _after_equation(rest: list[Node]) -> tuple[str, str, list[Node]]:
    """Return the label and the punctuation mark that follow a displayed equation, and what follows them."""
    label = mark = ""
    start = next((k for k, item in enumerate(rest) if item["t"] not in SPACES), len(rest))
    if start < len(rest) and rest[start]["t"] == "Str":
        found = re.fullmatch(r"(?:\{#(eq-[\w:.-]*\w)\})?([.,;:]?)(.*)", rest[start]["c"])
        if found and (found[1] or (found[2] and not found[3])):  # a mark closes the formula, it opens no paragraph
            label, mark = found[1] or "", found[2]
            rest = ([text(found[3])] if found[3] else []) + rest[start + 1 :]
    while rest and rest[0]["t"] in SPACES:
        rest = rest[1:]
    return label, mark, rest


def collect(blocks: list[Node], page: Page) -> list[Label]:
    """Return the labels of a prepared page in document order and note each number in its node.

    Numbers run per kind and chapter. Raises RenderError for a claim without a label.
    """
    counts: Counter[str] = Counter()
    labels: list[Label] = []
    for item in walk(blocks):
        if item["t"] == "Header":
            found = _section(item, page, counts)
        elif item["t"] in ("Div", "Figure", "Table"):
            found = _numbered(item, page, counts)
        else:
            continue
        if found is not None:
            labels.append(found)
    return labels


def _section(item: Node, page: Page, counts: Counter[str]) -> Label | None:
    level, (identifier, classes, _), inlines = item["c"]
    number = ""
    if level == 1:
        called = page.word or plain(inlines)
    else:
        if page.number and level <= 3 and "unnumbered" not in classes:
            if level == 2:
                counts["sec"] += 1
                counts["subsec"] = 0
            else:
                counts["subsec"] += 1
            number = f"{page.number}.{counts['sec']}" + (f".{counts['subsec']}" if level == 3 else "")
        called = f"Section\u00a0{number}" if number else plain(inlines)
    item["number"] = number
    if not identifier.startswith("sec-"):
        return None
    return Label(identifier, called.replace(" ", "\u00a0") if page.word else called, plain(inlines), page)


def _numbered(item: Node, page: Page, counts: Counter[str]) -> Label | None:
    identifier, classes, pairs = attributes(item)
    prefix = identifier.split("-")[0]
    if prefix not in WORDS or not LABEL.fullmatch(identifier):
        if "claim" in classes or (prefix in CLAIMS and "-" in identifier):
            raise RenderError(
                f"{page.source.stem}: the claim {identifier or plain(item.get('title', '')) or 'without a name'!r} has "
                f"no proper label; write ::: {{#prp-name .claim}} with one of {', '.join(CLAIMS)}"
            )
        return None
    word = "Assumption" if prefix == "cnj" and "assumption" in classes else WORDS[prefix]
    counts[prefix] += 1  # an assumption counts among the conjectures, as it does for Quarto
    number = f"{page.number}.{counts[prefix]}" if page.number else str(counts[prefix])
    item["called"] = f"{word}\u00a0({number})" if prefix == "eq" else f"{word}\u00a0{number}"
    called = r"^Assumption\b[\s:.—–-]*(?:\((.*)\)$)?"  # the word, and brackets, which a page sets itself
    name = re.sub(called, r"\1", plain(item.get("title", []))) if word == "Assumption" else ""
    name = name or plain(item.get("title", []))
    return Label(identifier, item["called"], name, page, pairs.get("corrects", ""))


def caption(item: Node) -> list[Node]:
    """Return the words under a figure or over a table; a division's caption is its last paragraph."""
    if item["t"] in ("Figure", "Table"):
        return list(item["c"][1][1])
    if not attributes(item)[0].startswith(("fig-", "tbl-")) or not item["c"][1]:
        return []
    last = item["c"][1][-1]
    return list(last["c"][1][1]) if last["t"] == "Figure" else [last]


def table_of_labels(pages: Iterable[list[Label]]) -> dict[str, Label]:
    """Return every label of the book by its identifier; raises RenderError for one that is given twice."""
    labels: dict[str, Label] = {}
    for label in (label for found in pages for label in found):
        if label.id in labels:
            places = " and ".join(dict.fromkeys((labels[label.id].page.source.stem, label.page.source.stem)))
            raise RenderError(f"{places}: the label {label.id} is given twice; labels are unique across the book")
        labels[label.id] = label
    return labels


def page_number(source: PurePosixPath | Path, appendix_index: int | None) -> str:
    """Return "4" for `04-name`, "4b" for `04b-name`, a capital letter for an appendix, else nothing."""
    if appendix_index is not None:
        return chr(ord("A") + appendix_index)
    found = re.match(r"0*(\d+[a-z]?)(?=-)", source.stem)
    return found[1] if found else ""

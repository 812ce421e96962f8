"""The index for searching: what each page, statement, section, figure, table and equation is called and says.

It is a script, so that it comes along when the book is opened from disk; `assets/search.js` loads it when a reader
begins to search.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gllm_lib.book.html.linear import GREEK, LAST, RELATIONS, RULES, SIGNS, linear
from gllm_lib.book.html.manuscript import Source
from gllm_lib.book.html.numbering import CLAIMS, WORDS, Label, Node, attributes, caption, is_claim, walk

BLOCKS = {"Para", "Plain", "Header", "Div", "BlockQuote", "BulletList", "OrderedList", "DefinitionList", "Table"}
SILENT = {"CodeBlock", "RawBlock", "RawInline", "Note"}
SHORT = {"prop": "proposition", "thm": "theorem", "lem": "lemma", "cor": "corollary", "def": "definition"}
SHORT |= {"conj": "conjecture", "rem": "remark", "ex": "example", "eq": "equation", "fig": "figure", "tab": "table"}
SHORT |= {"sec": "section", "ch": "chapter", "app": "appendix"}

Called = Mapping[str, str]  # label -> "Proposition 4.1"
Row = tuple[int, str, str, str, str, str, str]  # page, anchor, called, name, source item, status, text


def search_index(sources: list[Source], labels: Iterable[Label]) -> str:
    """Return the script that holds the rules for reading formulas, the pages, and a row for whatever can be found."""
    called = {label.id: label.called.replace("\u00a0", " ") for label in labels}
    rows = [row for number, source in enumerate(sources) for row in rows_of(number, source, called)]
    index = {
        "pages": [[source.page.word, readable(source.title, called), str(source.page.target)] for source in sources],
        "rows": sorted(rows, key=_rank),
        "signs": SIGNS,
        "small": {name: sign for name, sign in GREEK.items() if name.islower()} | {"sqrt": "√"},
        "capital": {name.lower(): sign for name, sign in GREEK.items() if not name.islower()},
        "long": SHORT,
        "rules": [_for_script(*rule) for rule in RULES],
        "last": [_for_script(*rule) for rule in LAST],
        "relations": RELATIONS,
    }
    return f"window.bookIndex = {json.dumps(index, ensure_ascii=False, separators=(',', ':'))};\n"


def _for_script(pattern: str, replacement: str) -> list[str]:
    """Return a rule as JavaScript writes it: $1 for the first group."""
    return [pattern, replacement.replace("\\\\", "\\").replace("\\1", "$1").replace("\\2", "$2")]


def _rank(row: Row) -> int:
    """Return where a row stands among hits that fit equally well: page, statement, section, then all else."""
    kind = row[1].split("-")[0]
    return 0 if not row[1] else 1 if kind in CLAIMS else 3 if kind in WORDS and kind != "sec" else 2


def rows_of(number: int, source: Source, called: Called) -> Iterator[Row]:
    """Yield the rows of one page: itself with its opening words, its sections, and what has a label on it."""
    statuses = {
        attributes(item)[2]["claim"]: readable([inner for inner in walk(item) if inner["t"] == "Strong"][:1], called)
        for item in walk(source.blocks)
        if item["t"] == "Div" and "status" in attributes(item)[1] and "claim" in attributes(item)[2]
    }
    opening, *sections = _sections(source.blocks)
    yield number, "", source.page.word, readable(source.title, called), "", "", readable(opening, called)
    for heading, *blocks in sections:
        place = f"Section {heading['number']}" if heading.get("number") else ""
        yield number, heading["c"][1][0], place, readable(heading["c"][2], called), "", "", readable(blocks, called)
    for item in walk(source.blocks):
        if item["t"] in ("Div", "Figure", "Table") and attributes(item)[0] in called:
            yield _labelled(number, item, called, statuses)


def _labelled(number: int, item: Node, called: Called, statuses: Mapping[str, str]) -> Row:
    """Return the row of a statement, an equation, a figure or a table."""
    identifier, _, pairs = attributes(item)
    if is_claim(item):
        name, text = readable(item.get("title", []), called), readable(item["c"][1], called)
        source, status = pairs.get("source", ""), statuses.get(identifier, "")
        return number, identifier, called[identifier], name, source, status, text
    words = readable(item["c"][1] if identifier.startswith("eq-") else caption(item), called)
    return number, identifier, called[identifier], "", "", "", words


def _sections(blocks: list[Node]) -> list[list[Node]]:
    """Return what stands above the first section, then each section with its heading, down to the third level."""
    sections: list[list[Node]] = [[]]
    for block in _unwrapped(blocks):
        if block["t"] == "Header" and 2 <= block["c"][0] <= 3:
            sections.append([])
        if block["t"] != "Header" or block["c"][0] > 1:
            sections[-1].append(block)
    return sections


def _unwrapped(blocks: list[Node]) -> Iterator[Node]:
    """Yield the blocks, of a division that holds a heading what is in it."""
    for block in blocks:
        if block["t"] == "Div" and any(inner["t"] == "Header" for inner in block["c"][1]):
            yield from _unwrapped(block["c"][1])
        else:
            yield block


def readable(value: Any, called: Called) -> str:
    """Return the words of some nodes on one line: formulas as text, references by what they are called.

    Code and drawings have none. Statements, equations, figures and tables with a label have rows of their own.
    """
    return re.sub(" {2,}", " ", "".join(_pieces(value, called))).strip()


def _pieces(value: Any, called: Called) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _pieces(item, called)
    elif isinstance(value, dict) and "t" in value:
        kind, content = value["t"], value.get("c", [])
        if kind in ("Str", "Code", "Math"):
            yield content if kind == "Str" else linear(content[1]) if kind == "Math" else content[1]
        elif kind in ("Space", "SoftBreak", "LineBreak"):
            yield " "
        elif kind == "Quoted":
            yield from ("“", *_pieces(content[1], called), "”")
        elif kind == "Cite":
            yield ", ".join(called.get(one["citationId"], one["citationId"]) for one in content[0])
        elif kind not in SILENT and not _apart(value, called):
            yield from _pieces(value.get("title", []), called)
            yield " " if value.get("title") else ""
            yield from _pieces(content, called)
            yield " " if kind in BLOCKS else ""
    elif isinstance(value, dict):
        yield from _pieces(list(value.values()), called)


def _apart(item: Node, called: Called) -> bool:
    """Say whether a block has a row of its own, or only lists what has: a status, a table of statements."""
    if item["t"] not in ("Div", "Figure", "Table"):
        return False
    identifier, classes, _ = attributes(item)
    if (identifier in called and not identifier.startswith("eq-")) or "status" in classes or "register" in classes:
        return True
    cited = (one["citationId"] for cite in walk(item) if cite["t"] == "Cite" for one in cite["c"][0])
    return item["t"] == "Table" and any(key.split("-")[0] in CLAIMS and key in called for key in cited)

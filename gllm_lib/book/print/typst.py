"""The book's blocks in Typst: calls of the functions in `assets/book.typ`, between which pandoc writes the words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gllm_lib.book.html.numbering import Node, Page, attributes, node, plain
from gllm_lib.book.html.references import SPACE, Dresser
from gllm_lib.book.print.book import MEDIA, ON_SCREEN, evidence_of, media_path, place
from gllm_lib.book.print.formulas import Formula

LONG = 400  # a claim with more characters, formulas included, may break over pages
LOW, TALL = 600, 1500  # a table with more characters than both may, too; one between moves to room, as drawings do
NUMBERS = re.compile(r"(?=.*\d)(?!.*[^\W\d_]{3}).{1,32}")  # what a cell holds that has no words: a number, an interval


@dataclass(frozen=True)
class TypstDresser(Dresser):
    """The change of one node of one page into what pandoc writes as Typst."""

    formulas: Mapping[Formula, str] = field(default_factory=dict)
    depth: int = 0  # how far the headings of the page are below those of its part

    def address(self, target: Page, fragment: str = "") -> str:
        """Return the way to a place of the book, which is one document."""
        return f"#{place(target, fragment or 'title', self.book)}"

    def _link(self, item: Node) -> Node:
        attr, words, (url, _) = item["c"]
        if url.startswith("#"):
            return node("Link", attr, words, [f"#{place(self.page, url[1:], self.book)}", ""])
        return super()._link(item)

    def _math(self, item: Node) -> Node:
        kind, tex = item["c"][0]["t"], item["c"][1]
        return inline(self.formulas[kind, tex])

    # blocks with a number

    def _header(self, item: Node) -> Node:
        level, (identifier, _, _), words = item["c"]
        here = place(self.page, identifier, self.book)
        return wrapped(f"#section({level + self.depth}, {string(item.get('number', ''))}, {string(here)})[", words)

    def _division(self, item: Node) -> list[Node]:
        identifier, blocks = attributes(item)[0], list(item["c"][1])
        return [raw(f"#target({string(place(self.page, identifier, self.book))})"), *blocks] if identifier else blocks

    def _claim(self, item: Node) -> list[Node]:
        identifier, _, pairs = attributes(item)
        label = self.book.labels[identifier]
        word, why = self.status_of(identifier)
        given = ", ".join(string(each) for each in (identifier, label.called, word, pairs.get("source", "")))
        splits = "true" if len(plain(item["c"][1])) > LONG else "false"
        opened = wrapped(f"#claim({given}, {splits}, [", self.claim_name(item), "])[")
        tied = [node("Para", [*words(f"{verb} "), *links]) for verb, links in self.relations(item)]
        foot = [raw(f"#claim-foot({string(identifier)}, {string(word)})["), *tied, *why, raw("]")]
        body = held(item["c"][1]) if len(item["c"][1]) > 1 else item["c"][1]  # a paragraph alone may break
        return [opened, *body, *foot, raw("]")]

    def _equation(self, item: Node) -> Node:
        identifier = attributes(item)[0]
        number = item["called"].split("\u00a0")[1] if identifier else ""
        (formula,) = item["c"][1]
        told = f"{self.page.source.stem}, {number or formula['c'][0]['c'][1][1:50].strip()}"
        return wrapped(f"#equation({string(identifier)}, {string(number)}, {string(told)}, ", formula["c"], ")")

    def _float(self, identifier: str, called: str, words: list[Node], blocks: list[Node]) -> list[Node]:
        kind = "table" if identifier.startswith("tbl-") else "figure"
        size = sum(len(plain(block["c"])) for block in blocks)
        does = "floats" if kind == "figure" or LOW < size <= TALL else "breaks" if size > TALL else "stays"
        given = ", ".join(string(each) for each in (kind, identifier, called, does))
        opened = wrapped(f"#float({given}, [", words, "])[")
        return [opened, *blocks, raw("]")]

    def _figure(self, item: Node) -> Node | list[Node]:
        identifier, _, _ = attributes(item)
        _, caption, blocks = item["c"]
        if not identifier:
            return blocks
        if "called" not in item:
            raise self.error(f"{identifier}: the label of a figure starts with fig-")
        return self._float(identifier, item["called"], caption[1][0]["c"] if caption[1] else [], blocks)

    def _table(self, item: Node) -> Node | list[Node]:
        attr, caption, columns, *rest = item["c"]
        shown = caption[1][0]["c"] if caption[1] else []
        if unbroken(rest):  # widths by hand may be too small for them
            columns = [[align, {"t": "ColWidthDefault"}] for align, _ in columns]
        bare = node("Table", ["", [], []], [None, []], columns, *rest)
        if "called" in item:
            return self._float(attr[0], item["called"], shown, [bare])
        return [bare, node("Para", shown)] if shown else bare

    # blocks without

    def _callout(self, item: Node, kind: str) -> list[Node]:
        opened = wrapped(f"#callout({string(kind)}, [", self.callout(item, kind), "])[")
        return [opened, *item["c"][1], raw("]")]

    def _span(self, item: Node) -> Node | list[Node]:
        identifier = attributes(item)[0]
        inside: list[Node] = item["c"][1]
        return (
            [inline(f"#target({string(place(self.page, identifier, self.book))});"), *inside] if identifier else inside
        )

    def _proof(self, item: Node) -> list[Node]:
        blocks = list(item["c"][1])
        title = [inline("#proof-title["), *(item.get("title") or words("Proof")), inline("];"), SPACE]
        if blocks and blocks[0]["t"] == "Para":
            blocks[0] = node("Para", [*title, *blocks[0]["c"]])
        else:
            blocks.insert(0, node("Para", title))
        if blocks[-1]["t"] == "Para":
            blocks[-1] = node("Para", [*blocks[-1]["c"], inline("#qed;")])
        else:
            blocks.append(node("Para", [inline("#qed;")]))
        return [raw("#proof["), *blocks, raw("]")]

    def _codeblock(self, item: Node) -> Node:
        (_, classes, _), code = item["c"]
        if "output" in classes:
            return raw(f"#output({string(code)})")
        language = next(iter(classes), "")
        return raw(f"#code({string(language)}, {string(code)})")

    def _rawblock(self, item: Node) -> Node | list[Node]:
        self.refuse_tex(item)
        form, content = item["c"]
        if form == "html" and "<script" in content:
            return node("Para", [node("Emph", words(ON_SCREEN))])
        evidence = evidence_of(content) if form == "html" else None
        if evidence is None:
            raise self.error(f"raw {form} cannot be printed: {content[:60]!r}; write it as markdown")
        mutants = "".join(f"({string(name)}, {string(witness)}), " for name, witness in evidence.mutants)
        return raw(f"#evidence({string(evidence.summary)}, {string(' '.join(evidence.says))}, ({mutants}))")

    def _rawinline(self, item: Node) -> Node:
        super()._rawinline(item)
        if item["c"][0] == "html":
            raise self.error(f"raw HTML cannot be printed: {item['c'][1][:60]!r}; write it as markdown")
        return item

    def _image(self, item: Node) -> Node:
        alt, url = self.alt_of(item), item["c"][2][0]
        if not url.startswith(f"/{MEDIA}/"):
            if url.startswith("data:"):
                raise self.error(f"an image inside the text: {url[:40]}; give it a file")
            path = self.in_site(url)
            self.book.take_file(path)
            url = f"/{media_path(path)}"
        return inline(f"#drawing({string(url)}, {string(alt)});")


def raw(content: str) -> Node:
    """Return a piece of Typst as a block."""
    return node("RawBlock", "typst", content)


def inline(content: str) -> Node:
    """Return a piece of Typst inside a line."""
    return node("RawInline", "typst", content)


def held(blocks: list[Node]) -> list[Node]:
    """Return blocks of which the last paragraph, or the last item of a list, stays with what comes after them."""
    *before, last = blocks or [raw("")]
    if last["t"] == "Para":
        return [*before, raw("#held(0.95em)["), last, raw("]")]
    items: list[list[Node]] = last["c"][-1] if last["t"] == "OrderedList" else last["c"]
    if last["t"] not in ("BulletList", "OrderedList") or len(items) < 2:
        return blocks
    upper: list[Any] = items[:-1]
    lower: list[Any] = items[-1:]
    if last["t"] == "OrderedList":
        (start, *style), _ = last["c"]
        upper, lower = [[start, *style], upper], [[start + len(upper), *style], lower]
    gap = "0.62em" if items[0][0]["t"] == "Plain" else "0.95em"
    parts = [raw(f"#block(below: {gap})["), node(last["t"], upper), raw(f"]\n#held({gap})["), node(last["t"], lower)]
    return [*before, *parts, raw("]")]


def unbroken(parts: list[Any]) -> bool:
    """Keep each cell of numbers on one line, in the head, bodies and foot of a table; return whether there are any."""
    (_, head), bodies, (_, foot) = parts
    lines = [*head, *(line for _, _, above, below in bodies for line in (*above, *below)), *foot]
    cells = [blocks for _, cells in lines for *_, blocks in cells if NUMBERS.fullmatch(plain(blocks))]
    cells = [blocks[0] for blocks in cells if blocks[0]["t"] == "Plain"]
    for cell in cells:
        cell["c"] = [inline("#box["), *cell["c"], inline("]")]
    return bool(cells)


def words(content: str) -> list[Node]:
    """Return running text as words and spaces."""
    parts: list[Node] = []
    for piece in re.split(r"( )", content):
        if piece:
            parts.append(SPACE if piece == " " else node("Str", piece))
    return parts


def wrapped(before: str, inside: list[Node], after: str = "]") -> Node:
    """Return words between two pieces of Typst, on one line."""
    return node("Plain", [inline(before), *inside, inline(after)])


def string(value: str) -> str:
    """Return a text as a Typst string on one line."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
    return '"' + re.sub(r'["\\\x00-\x1f]', lambda found: escapes.get(found[0], ""), value) + '"'

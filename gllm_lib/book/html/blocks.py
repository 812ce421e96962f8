"""What the book's own blocks look like on a page: claims, proofs, callouts, figures, tables, code and references."""

from __future__ import annotations

import html
import re
from pathlib import PurePosixPath
from typing import Any

from gllm_lib.book.html.highlight import highlight, lines
from gllm_lib.book.html.linear import linear
from gllm_lib.book.html.numbering import (
    Node,
    Page,
    attributes,
    div,
    node,
    plain,
    raw,
    rewrite,
    scroll,
    span,
    text,
    walk,
)
from gllm_lib.book.html.pages import inline_svg
from gllm_lib.book.html.references import SPACE, Book, Dresser, has_class

WORDED = 24  # characters in a cell; more do not fit beside other columns on a phone


def resolve(blocks: list[Node], page: Page, book: Book) -> list[Node]:
    """Return a prepared and numbered page as blocks pandoc can write: every reference a link, every block dressed.

    Raises RenderError naming page and label for an unresolved reference, a missing citation, an image without alt
    text, a link to a page that is not in the book, and raw TeX, which would vanish.
    """
    return HtmlDresser.dress(blocks, page, book)


class HtmlDresser(Dresser):
    """The change of one node of one page into what pandoc writes as HTML."""

    # blocks with a number

    def _header(self, item: Node) -> Node:
        level, attr, inlines = item["c"]
        if item.get("number"):
            link = node("Link", ["", ["number"], []], [text(item["number"])], [f"#{attr[0]}", "Link to this section"])
            inlines = [link, SPACE, *inlines]
        return node("Header", level, attr, inlines)

    def _division(self, item: Node) -> Node | list[Node]:
        identifier, classes, pairs = attributes(item)
        if "imports" in classes:  # a chapter opens with its question, not with these
            head = f'<details class="imports"><summary>Imports from {html.escape(pairs["of"])}</summary>'
            return div(" ".join(classes), [raw(head), *item["c"][1], raw("</details>")], identifier)
        return node("Div", *item["c"])

    def _claim(self, item: Node) -> Node:
        identifier, classes, pairs = attributes(item)
        label = self.book.labels[identifier]
        head = [node("Link", ["", ["number"], []], [text(label.called)], [f"#{identifier}", "Link to this statement"])]
        if title := self.claim_name(item):
            head += [SPACE, span("name", [text("("), *title, text(")")])]
        if pairs.get("source"):
            head += [SPACE, span("source", [text(pairs["source"])])]
        foot = [node("Plain", [node("Code", ["", ["label"], []], identifier)])]
        lines = [node("Para", [span("relation", [text(verb), SPACE, *links])]) for verb, links in self.relations(item)]
        if lines:
            foot.append(div("relations", lines + self._graph(item)))
        word, why = self.status_of(identifier)
        if why:
            foot.append(div(f"status {word}", why))
        kind = label.called.split("\u00a0")[0].lower()
        shown = [name for name in classes if name not in ("claim", kind, word)]
        body = [div("claim-head", [node("Plain", head)]), *item["c"][1]]
        return div(" ".join(["claim", kind, word, *shown]), [*body, div("claim-foot", foot)], identifier)

    def _graph(self, item: Node) -> list[Node]:
        """Return the link to the drawing of all that a claim rests on, if it uses others and the book has one."""
        identifier, _, pairs = attributes(item)
        graph = next((page for page in self.book.pages.values() if page.source.stem.endswith("claim-graph")), None)
        if graph is None or not pairs.get("uses", "").split():
            return []
        address = [self.address(graph, f"on-{identifier}"), ""]
        return [node("Para", [node("Link", ["", ["graph"], []], [text("What it rests on")], address)])]

    def _equation(self, item: Node) -> Node:
        identifier = attributes(item)[0]
        if not identifier:
            return div("equation", [scroll("Formula", item["c"][1])])
        called = item["called"]
        number = node("Link", ["", ["number"], []], [text(called.split("\u00a0")[1])], [f"#{identifier}", ""])
        return div("equation numbered", [scroll(called, item["c"][1]), node("Plain", [number])], identifier)

    def _float(self, identifier: str, called: str, words: list[Node], blocks: list[Node]) -> list[Node]:
        number = node("Link", ["", ["number"], []], [text(called)], [f"#{identifier}", ""])
        caption = div("caption", [node("Plain", [number, SPACE, *words])])
        opened = f'<figure id="{identifier}" class="{"table" if identifier.startswith("tbl-") else "figure"}">'
        for block in walk(blocks):
            if has_class(block, "scroll"):
                block["c"][0][2] = [[k, called if k == "aria-label" else v] for k, v in block["c"][0][2]]
        start, end = raw("<figcaption>"), raw("</figcaption>")
        inside = [start, caption, end, *blocks] if identifier.startswith("tbl-") else [*blocks, start, caption, end]
        return [raw(opened), *inside, raw("</figure>")]

    def _figure(self, item: Node) -> Node | list[Node]:
        identifier, _, _ = attributes(item)
        if not identifier:
            return node("Figure", *item["c"])
        if "called" not in item:
            raise self.error(f"{identifier}: the label of a figure starts with fig-")
        _, caption, blocks = item["c"]
        if any(inner["t"] == "RawInline" and 'class="plot' in inner["c"][1] for inner in walk(blocks)):
            blocks = [scroll("Figure", blocks, "plot-frame")]
        return self._float(identifier, item["called"], caption[1][0]["c"] if caption[1] else [], blocks)

    def _table(self, item: Node) -> Node | list[Node]:
        attr, caption, columns, *rest = item["c"]
        ruled = any(width["t"] == "ColWidth" for _, width in columns)  # pandoc saw long rows; browsers set widths
        if ruled and _worded(rest):
            attr = [attr[0], [*attr[1], "cards"], attr[2]]
        rest = [[[place, {"t": "ColWidthDefault"}] for place, _ in columns], *rest]
        words = caption[1][0]["c"] if caption[1] else []
        if "called" in item:
            bare = node("Table", ["", attr[1], []], [None, []], *rest)
            return self._float(attr[0], item["called"], words, [scroll("Table", [bare])])
        return scroll("Table", [node("Table", attr, caption, *rest)])

    # blocks without

    def _proof(self, item: Node) -> list[Node]:
        title = plain(item.get("title", [])) or "Proof"
        blocks = list(item["c"][1])
        end = span("qed", [text("∎")])
        if blocks and blocks[-1]["t"] == "Para":
            blocks[-1] = node("Para", [*blocks[-1]["c"], SPACE, end])
        else:
            blocks.append(node("Para", [end]))
        opened = f'<details class="proof" open><summary>{html.escape(title)}</summary>'
        return [raw(opened), div("proof-body", blocks), raw("</details>")]

    def _callout(self, item: Node, kind: str) -> list[Node]:
        title = self.callout(item, kind)
        identifier, _, pairs = attributes(item)
        place = f' id="{identifier}"' if identifier else ""
        if pairs.get("collapse") in ("true", "false"):
            opened = "" if pairs["collapse"] == "true" else " open"
            head = f'<details class="callout {kind}"{place}{opened}><summary class="callout-title">'
            return [raw(head), node("Plain", title), raw("</summary>"), *item["c"][1], raw("</details>")]
        return [
            raw(f'<aside class="callout {kind}"{place}>'),
            div("callout-title", [node("Plain", title)]),
            *item["c"][1],
            raw("</aside>"),
        ]

    def _orderedlist(self, item: Node) -> Node:
        if item["c"][0][2]["t"] == "TwoParens" and len(item["c"][1]) == 1:
            words = plain(item["c"][1])[:40]
            raise self.error(f"a lettered list of one item, {words!r}; begin a paragraph with a backslash: \\(a)")
        delimiter = item["c"][0][2]["t"]  # HTML has no attribute for it
        return div(delimiter.lower(), [item]) if delimiter in ("TwoParens", "OneParen") else item

    def _codeblock(self, item: Node) -> Node:
        (_, classes, _), code = item["c"]
        output = "output" in classes
        language = next((name for name in classes if name not in ("output", "stdout", "stderr")), "")
        marked = highlight(code) if language == "python" else html.escape(code, quote=False)
        names = " ".join(classes)
        if output:
            block = raw(f'<pre><code class="{names}">{marked}</code></pre>')
            return div("code output", [scroll("Output", [block])])
        return div("code", [raw(f'<pre><code class="{names}">{lines(marked)}</code></pre>')])

    def _rawblock(self, item: Node) -> Node | list[Node]:
        self.refuse_tex(item)
        content = item["c"][1]
        for tag in re.findall(r"<img\b[^>]*>", content):
            if not re.search(r"""\balt=(["'])(?!\1)""", tag):
                raise self.error(f"an image without alt text: {tag[:80]}")
        if found := re.match(r'<div class="evidence" data-claim="([^"]+)"', content):
            return self._evidence(content, found[1])
        if 'class="plot' in content[:600] or 'class="card"' in content[:600]:
            return scroll("Figure", [item], "plot-frame")
        if "<table" in content and "</table>" in content:
            return scroll("Table", [item])
        return item

    def _evidence(self, content: str, claim: str) -> list[Node]:
        """Return the line of a check with the way back to its claim."""
        if claim not in self.book.labels:
            raise self.error(f"evidence for {claim}, which no page of the book states")
        back = div("back", [node("Plain", [self.reference(claim)])])
        return [raw(content.rstrip().removesuffix("</div>")), back, raw("</div>")]

    def _image(self, item: Node) -> Node:
        (identifier, classes, pairs), _, (url, title) = item["c"]
        alt = self.alt_of(item)
        if not url.startswith("data:"):
            content = self.book.take_file(self.in_site(url))
            if url.endswith(".svg"):
                name = re.sub(r"\W+", "-", PurePosixPath(url).stem)
                return node("RawInline", "html", inline_svg(content.decode(), name, alt))
        kept = [[key, value] for key, value in pairs if key in ("width", "height")]
        return node("Image", [identifier, ["card", *classes], [*kept, ["alt", alt]]], [text(alt)], [url, title])


def _as_text(item: Node) -> Node:
    return text(linear(item["c"][1])) if item["t"] == "Math" else item


def _worded(parts: list[Any]) -> bool:
    """Say whether a table says something in words after the first column, and if so, tell each cell its column's head.

    A phone shows such a row as a card, with the heads beside the cells. A table of numbers stays one, to compare them.
    """
    (_, heads), bodies, _ = parts
    rows = [cells[1:] for _, _, _, lines in bodies for _, cells in lines]
    if not heads or max((len(plain(cell[4])) for cells in rows for cell in cells), default=0) < WORDED:
        return False
    names = [plain(rewrite(cell[4], _as_text)) for cell in heads[0][1][1:]]
    for cells in rows:
        for cell, name in zip(cells, names, strict=False):
            cell[0][2].append(["data-head", name])
    return True

"""What the book's own blocks look like on a page: claims, proofs, callouts, figures, tables, code and references."""

from __future__ import annotations

import html
import os
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from gllm_lib.book.html.highlight import highlight, lines
from gllm_lib.book.html.numbering import (
    WORDS,
    Label,
    Node,
    Page,
    attributes,
    div,
    is_claim,
    node,
    plain,
    rewrite,
    span,
    text,
    walk,
)
from gllm_lib.book.html.pages import RenderError, inline_svg

CALLOUTS = {"note": "Note", "tip": "Tip", "warning": "Warning", "important": "Important", "caution": "Caution"}
SPACE: Node = {"t": "Space"}


@dataclass(frozen=True)
class Book:
    """What the pages share: labels by identifier, keys of the bibliography, addresses of pages, and a way to files.

    `take_file` gets a path relative to the site and returns its bytes, having copied it beside the rendered pages.
    """

    labels: Mapping[str, Label]
    keys: frozenset[str]
    pages: Mapping[PurePosixPath, Page]
    take_file: Callable[[PurePosixPath], bytes]


def resolve(blocks: list[Node], page: Page, book: Book) -> list[Node]:
    """Return a prepared and numbered page as blocks pandoc can write: every reference a link, every block dressed.

    Raises RenderError naming page and label for an unresolved reference, a missing citation, an image without alt
    text, a link to a page that is not in the book, and raw TeX, which would vanish.
    """
    statuses = {attributes(item)[2].get("claim", ""): item for item in walk(blocks) if _has_class(item, "status")}
    known = {attributes(item)[0] for item in walk(blocks) if is_claim(item)}
    for label in statuses:
        if label not in known:
            raise RenderError(f"{page.source.stem}: a status of {label or 'no claim'!r}, which is not on this page")
    dress = _Dresser(page, book, statuses)
    result: list[Node] = rewrite(blocks, dress)
    return result


def _has_class(item: Node, name: str) -> bool:
    return item["t"] == "Div" and name in attributes(item)[1]


@dataclass(frozen=True)
class _Dresser:
    """The change of one node of one page; children come first."""

    page: Page
    book: Book
    statuses: Mapping[str, Node]

    def __call__(self, item: Node) -> Node | list[Node]:
        kind = item["t"]
        change = getattr(self, f"_{kind.lower()}", None)
        return change(item) if change else item

    def _error(self, words: str) -> RenderError:
        return RenderError(f"{self.page.source.stem}: {words}")

    # references

    def _cite(self, item: Node) -> Node | list[Node]:
        citations, _ = item["c"]
        names = [citation["citationId"][:1].lower() + citation["citationId"][1:] for citation in citations]
        internal = [name.split("-")[0] in WORDS and "-" in name for name in names]
        if not any(internal):
            missing = [citation["citationId"] for citation in citations if citation["citationId"] not in self.book.keys]
            if missing:
                raise self._error(f"citation {', '.join(missing)} is not in the bibliography; add it or mend the key")
            return item
        if not all(internal):
            raise self._error(f"{', '.join(names)}: references and citations share one bracket; give each its own")
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
            raise self._error(f"unresolved reference @{name}; no page of the book has this label")
        label = self.book.labels[name]
        called = label.called.split("\u00a0")[-1] if bare else label.called
        title = label.name if label.name != called else ""
        return node("Link", ["", ["ref"], []], [text(called)], [self._address(label.page, label.id), title])

    def _address(self, target: Page, fragment: str = "") -> str:
        anchor = f"#{fragment}" if fragment else ""
        if target.source == self.page.source and anchor:
            return anchor
        return os.path.relpath(target.target, self.page.target.parent) + anchor

    def _link(self, item: Node) -> Node:
        url, title = item["c"][2]
        if re.match(r"[a-z][a-z0-9+.-]*:", url):
            return item
        path, _, fragment = url.partition("#")
        if path.endswith((".ipynb", ".qmd")):
            source = self._in_site(path)
            if source not in self.book.pages:
                raise self._error(f"a link to {url}, which is not a page of the book")
            url = self._address(self.book.pages[source], fragment)
        elif not path and fragment in self.book.labels:
            url = self._address(self.book.labels[fragment].page, fragment)
        return node("Link", item["c"][0], item["c"][1], [url, title])

    def _in_site(self, path: str) -> PurePosixPath:
        return PurePosixPath(posixpath.normpath((self.page.source.parent / path).as_posix()))

    # blocks with a number

    def _header(self, item: Node) -> Node:
        level, attr, inlines = item["c"]
        if item.get("number"):
            link = node("Link", ["", ["number"], []], [text(item["number"])], [f"#{attr[0]}", "Link to this section"])
            inlines = [link, SPACE, *inlines]
        return node("Header", level, attr, inlines)

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
            return self._float(item)
        for name in classes:
            if name.startswith("callout-"):
                return self._callout(item, name.removeprefix("callout-"))
        return node("Div", *item["c"])

    def _claim(self, item: Node) -> Node:
        identifier, classes, pairs = attributes(item)
        label = self.book.labels[identifier]
        head = [node("Link", ["", ["number"], []], [text(label.called)], [f"#{identifier}", "Link to this statement"])]
        if item.get("title"):
            title = item["title"] if label.name == plain(item["title"]) else [text(label.name)]
            head += [SPACE, span("name", [text("("), *title, text(")")])] if label.name else []
        if pairs.get("source"):
            head += [SPACE, span("source", [text(pairs["source"])])]
        label_line = node("Plain", [node("Code", ["", ["label"], []], identifier)])
        foot = [label_line, *self._relations(identifier, pairs)]
        word = ""
        if identifier in self.statuses:
            status = self.statuses[identifier]
            word = next((name for name in attributes(status)[1] if name != "status"), "")
            foot.append(div(f"status {word}", rewrite(status["c"][1], self)))
        kind = label.called.split("\u00a0")[0].lower()
        shown = [name for name in classes if name not in ("claim", kind, word)]
        body = [div("claim-head", [node("Plain", head)]), *item["c"][1]]
        return div(" ".join(["claim", kind, word, *shown]), [*body, div("claim-foot", foot)], identifier)

    def _relations(self, identifier: str, pairs: Mapping[str, str]) -> list[Node]:
        """Return the lines that tie a claim to others: what it corrects, what corrects it, what it uses."""
        corrected = [label.id for label in self.book.labels.values() if identifier in label.corrects.split()]
        lines = []
        for verb, names in (
            ("Corrects", pairs.get("corrects", "").split()),
            ("Corrected by", corrected),
            ("Uses", pairs.get("uses", "").split()),
        ):
            if names:
                links = [part for name in names for part in (text(","), SPACE, self.reference(name))][2:]
                lines.append(node("Plain", [span("relation", [text(verb), SPACE, *links])]))
        return [div("relations", [node("Para", line["c"]) for line in lines])] if lines else []

    def _equation(self, item: Node) -> Node:
        identifier = attributes(item)[0]
        if not identifier:
            return div("equation", [scroll("Formula", item["c"][1])])
        called = item["called"]
        number = node("Link", ["", ["number"], []], [text(called.split("\u00a0")[1])], [f"#{identifier}", ""])
        return div("equation numbered", [scroll(called, item["c"][1]), node("Plain", [number])], identifier)

    def _float(self, item: Node) -> list[Node]:
        """Return a figure or table division as a figure element; its last paragraph is the caption."""
        identifier, _, _ = attributes(item)
        blocks = item["c"][1]
        inner = [b for b in blocks if b["t"] == "Figure" and not attributes(b)[0]]
        if len(blocks) == 1 and inner:
            _, caption, blocks = inner[0]["c"]
            words = caption[1][0]["c"] if caption[1] else []
        elif len(blocks) > 1 and blocks[-1]["t"] == "Para":
            blocks, words = blocks[:-1], blocks[-1]["c"]
        else:
            raise self._error(f"{identifier} has no caption; end it with a caption of one paragraph")
        return self._figure_element(identifier, item["called"], words, blocks)

    def _figure_element(self, identifier: str, called: str, words: list[Node], blocks: list[Node]) -> list[Node]:
        number = node("Link", ["", ["number"], []], [text(called)], [f"#{identifier}", ""])
        caption = div("caption", [node("Plain", [number, SPACE, *words])])
        opened = f'<figure id="{identifier}" class="{"table" if identifier.startswith("tbl-") else "figure"}">'
        for block in walk(blocks):
            if _has_class(block, "scroll"):
                block["c"][0][2] = [[k, called if k == "aria-label" else v] for k, v in block["c"][0][2]]
        start, end = raw("<figcaption>"), raw("</figcaption>")
        inside = [start, caption, end, *blocks] if identifier.startswith("tbl-") else [*blocks, start, caption, end]
        return [raw(opened), *inside, raw("</figure>")]

    def _figure(self, item: Node) -> Node | list[Node]:
        identifier, _, _ = attributes(item)
        if not identifier:
            return node("Figure", *item["c"])
        if "called" not in item:
            raise self._error(f"{identifier}: the label of a figure starts with fig-")
        _, caption, blocks = item["c"]
        if any(inner["t"] == "RawInline" and 'class="plot' in inner["c"][1] for inner in walk(blocks)):
            blocks = [scroll("Figure", blocks, "plot-frame")]
        return self._figure_element(identifier, item["called"], caption[1][0]["c"] if caption[1] else [], blocks)

    def _table(self, item: Node) -> Node | list[Node]:
        attr, caption, columns, *rest = item["c"]
        ruled = any(width["t"] == "ColWidth" for _, width in columns)  # pandoc saw long rows; browsers set widths
        rest = [[[place, {"t": "ColWidthDefault"}] for place, _ in columns], *rest]
        attr = [attr[0], [*attr[1], "long"] if ruled else attr[1], attr[2]]
        words = caption[1][0]["c"] if caption[1] else []
        if "called" in item:
            bare = node("Table", ["", attr[1], []], [None, []], *rest)
            return self._figure_element(attr[0], item["called"], words, [scroll("Table", [bare])])
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
        if kind not in CALLOUTS:
            raise self._error(f"unknown callout {kind}; known are {', '.join(CALLOUTS)}")
        identifier, _, pairs = attributes(item)
        title = item.get("title") or [text(pairs.get("title", CALLOUTS[kind]))]
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

    def _code(self, item: Node) -> Node:
        if item["c"][1].startswith("{python}"):
            raise self._error(f"`{item['c'][1][:40]}` was not executed; execute the chapter again")
        return item

    def _rawblock(self, item: Node) -> Node | list[Node]:
        form, content = item["c"]
        if form in ("tex", "latex"):
            raise self._error(f"raw TeX would vanish: {content[:60]!r}; put formulas between $$ and $$")
        for tag in re.findall(r"<img\b[^>]*>", content):
            if not re.search(r"""\balt=(["'])(?!\1)""", tag):
                raise self._error(f"an image without alt text: {tag[:80]}")
        if 'class="plot' in content[:600] or 'class="card"' in content[:600]:
            return scroll("Figure", [item], "plot-frame")
        if "<table" in content and "</table>" in content:
            return scroll("Table", [item])
        return item

    def _rawinline(self, item: Node) -> Node:
        if item["c"][0] in ("tex", "latex"):
            raise self._error(f"raw TeX would vanish: {item['c'][1][:60]!r}; put formulas between dollars")
        return item

    def _image(self, item: Node) -> Node:
        (identifier, classes, pairs), words, (url, title) = item["c"]
        given = dict(pairs)
        alt = given.get("fig-alt") or given.get("alt") or plain(words)
        if not alt.strip():
            raise self._error(f'an image without alt text: {url}; give it fig-alt="..."')
        if re.match(r"[a-z]+:", url) and not url.startswith("data:"):
            raise self._error(f"the image {url} is on another machine; the book is read without a network")
        if not url.startswith("data:"):
            content = self.book.take_file(self._in_site(url))
            if url.endswith(".svg"):
                name = re.sub(r"\W+", "-", PurePosixPath(url).stem)
                return node("RawInline", "html", inline_svg(content.decode(), name, alt))
        kept = [[key, value] for key, value in pairs if key in ("width", "height")]
        return node("Image", [identifier, ["card", *classes], [*kept, ["alt", alt]]], [text(alt)], [url, title])


def raw(content: str) -> Node:
    """Return a piece of HTML as a block."""
    return node("RawBlock", "html", content)


def scroll(name: str, blocks: list[Node], classes: str = "") -> Node:
    """Return a region that scrolls sideways by itself, reachable by keyboard and named."""
    return div(f"scroll {classes}", blocks, tabindex="0", role="region", aria_label=name)

"""Python code as HTML with a class per kind of token, by the interpreter's own tokenizer, which costs no start-up."""

from __future__ import annotations

import builtins
import html
import io
import keyword
import re
import token
import tokenize
from collections.abc import Iterator

BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("_"))
STRINGS = {token.STRING} | {
    getattr(token, name) for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END") if hasattr(token, name)
}  # Python 3.12 takes f-strings apart


def lines(marked: str) -> str:
    """Return marked code with each of its lines, newline included, in a span `line` that may wrap below its indent."""
    parts = []
    opened = ""  # the span that a token of several lines has left open
    for line in marked.splitlines(keepends=True):
        before = opened
        for tag in re.findall(r"<span [^>]*>|</span>", line):
            opened = "" if tag == "</span>" else tag
        indent = len(line) - len(line.lstrip(" "))
        style = f' style="--indent: {indent}"' if indent and not before else ""
        parts.append(f'<span class="line"{style}>{before}{line}{"</span>" if opened else ""}</span>')
    return "".join(parts)


def highlight(code: str) -> str:
    """Return `code` as HTML with spans `kw st dv co bu fu at`; code that is not Python comes back plain."""
    try:
        marks = list(_marks(code))
    except (tokenize.TokenError, SyntaxError):
        return html.escape(code, quote=False)
    starts = [0]
    for line in code.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    parts, done = [], 0
    for kind, (row, column), (end_row, end_column) in marks:
        begin, end = starts[row - 1] + column, starts[end_row - 1] + end_column
        parts.append(html.escape(code[done:begin], quote=False))
        parts.append(f'<span class="{kind}">{html.escape(code[begin:end], quote=False)}</span>')
        done = end
    return "".join(parts) + html.escape(code[done:], quote=False)


def _marks(code: str) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """Yield the kind, start and end (row from 1, column from 0) of each token that has a colour."""
    before = ""
    for item in tokenize.generate_tokens(io.StringIO(code).readline):
        kind = ""
        if item.type == token.COMMENT:
            kind = "co"
        elif item.type in STRINGS:
            kind = "st"
        elif item.type == token.NUMBER:
            kind = "dv"
        elif item.type == token.NAME:
            kind = _name(item.string, before)
        elif item.string == "@" and before in ("", "\n"):
            kind = "at"
        if kind:
            yield kind, item.start, item.end
        if item.type not in (token.COMMENT, token.INDENT, token.DEDENT):
            before = "\n" if item.type in (token.NEWLINE, token.NL) else "decorator" if kind == "at" else item.string


def _name(word: str, before: str) -> str:
    if keyword.iskeyword(word):
        return "kw"
    if before in ("def", "class"):
        return "fu"
    if before == "decorator":
        return "at"
    return "bu" if word in BUILTINS and before != "." else ""

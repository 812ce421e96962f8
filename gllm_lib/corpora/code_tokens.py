"""Tokens of Python source, and the syntax node that owns each, exactly aligned.

`tokenize` counts characters, `ast` counts UTF-8 bytes: node positions are translated before they are compared. From
Python 3.12 on `tokenize` splits an f-string; here it is one string token on every version, and nodes inside it own
nothing. Comments, blank lines, line ends and indentation are layout, not tokens; a logical line is a sentence.
"""

from __future__ import annotations

import ast
import io
import keyword
import tokenize
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gllm_lib.checks import FileError

LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
          tokenize.ENCODING, tokenize.TYPE_COMMENT}  # fmt: skip
FSTRING_START = getattr(tokenize, "FSTRING_START", None)  # absent before Python 3.12
FSTRING_END = getattr(tokenize, "FSTRING_END", None)
PLACED = (ast.expr, ast.stmt, ast.arg, ast.keyword, ast.alias, ast.excepthandler, ast.pattern)  # have positions
Position = tuple[int, int]


class Token(NamedTuple):
    """One token: its text, kind (name, keyword, number, string, operator), start and end (line, character)."""

    text: str
    kind: str
    start: Position
    end: Position
    line: int  # number of the logical line within the file
    spaced: bool


class Node(NamedTuple):
    """A syntax node with a position: its parent's number, field and depth, and its token range [first, last)."""

    syntax: ast.AST
    parent: int
    field: str
    depth: int
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Source:
    """A parsed file: tokens, nodes (number 0 is the module), the number of the node that owns each token, the tree."""

    name: str
    text: str
    tokens: tuple[Token, ...]
    nodes: tuple[Node, ...]
    owner: tuple[int, ...]
    tree: ast.Module


def parse_source(name: str, text: str, path: Path) -> Source:
    """Return the tokens of `text` and the innermost node that covers each; raises FileError if it is no Python."""
    try:
        tokens = tuple(_tokens(text))
        tree = ast.parse(text)
    except (SyntaxError, tokenize.TokenError, ValueError) as error:
        raise FileError(f"{path} cannot be parsed by this interpreter: {error}; leave it out of the files") from error
    nodes, owner = align(text, tokens, tree)
    return Source(name, text, tokens, nodes, owner, tree)


def _tokens(text: str) -> Iterator[Token]:
    lines = text.split("\n")
    logical, nested = 0, 0
    begun: Position = (0, 0)
    for each in tokenize.generate_tokens(io.StringIO(text).readline):
        kind, start, end = each.type, each.start, each.end
        if FSTRING_START is not None and kind == FSTRING_START:
            begun = begun if nested else start
            nested += 1
            continue
        if nested:
            if kind != FSTRING_END:
                continue
            nested -= 1
            if nested:
                continue
            kind, start = tokenize.STRING, begun
        if kind == tokenize.NEWLINE:
            logical += 1
        if kind in LAYOUT:
            continue
        word = _between(lines, start, end)
        if word.strip():
            spaced = not lines[end[0] - 1][end[1] : end[1] + 1].strip()
            yield Token(word, _kind(kind, word), start, end, logical, spaced)


def _between(lines: list[str], start: Position, end: Position) -> str:
    """Return the text from `start` to `end`, positions as `tokenize` counts them (lines from 1)."""
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    return "\n".join([lines[start[0] - 1][start[1] :], *lines[start[0] : end[0] - 1], lines[end[0] - 1][: end[1]]])


def _kind(kind: int, word: str) -> str:
    if kind == tokenize.NAME:
        return "keyword" if keyword.iskeyword(word) else "name"
    return {tokenize.NUMBER: "number", tokenize.STRING: "string"}.get(kind, "operator")


def align(text: str, tokens: tuple[Token, ...], tree: ast.Module) -> tuple[tuple[Node, ...], tuple[int, ...]]:
    """Return the nodes with a position, parents first, and for each token the number of the innermost over it."""
    lines = text.split("\n")
    starts = [token.start for token in tokens]
    nodes = [Node(tree, -1, "", 0, 0, len(tokens))]
    owner = [0] * len(tokens)
    stack: list[tuple[ast.AST, int, str]] = [(child, 0, field) for field, child in _children(tree)][::-1]
    while stack:
        syntax, parent, field = stack.pop()
        number = parent
        if isinstance(syntax, PLACED):
            end_line, end_offset = syntax.end_lineno or syntax.lineno, syntax.end_col_offset or 0
            first = bisect_left(starts, _position(lines, syntax.lineno, syntax.col_offset))
            last = bisect_left(starts, _position(lines, end_line, end_offset))
            number = len(nodes)
            nodes.append(Node(syntax, parent, field, nodes[parent].depth + 1, first, last))
            owner[first:last] = [number] * (last - first)
        if not isinstance(syntax, ast.JoinedStr):
            stack.extend([(child, number, name) for name, child in _children(syntax)][::-1])
    return tuple(nodes), tuple(owner)


def _children(syntax: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for field, value in ast.iter_fields(syntax):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.expr_context):
                yield field, child


def _position(lines: list[str], line: int, offset: int) -> Position:
    """Return (line, character) of a byte offset in a line."""
    written = lines[line - 1]
    return line, offset if written.isascii() else len(written.encode()[:offset].decode())


def heads(source: Source) -> tuple[list[int], list[bool]]:
    """Return the head of each token (its own number at a root) and whether it is the anchor of its node.

    The anchor of a node is the first token it owns itself: the operator of a sum, the `def` of a function. The other
    tokens of the node hang on the anchor, and the anchor on that of the nearest node above that has one.
    """
    anchor = [-1] * len(source.nodes)
    for index in range(len(source.tokens) - 1, -1, -1):
        anchor[source.owner[index]] = index
    above = [-1] * len(source.nodes)
    for number, node in enumerate(source.nodes):
        if number:
            above[number] = anchor[node.parent] if anchor[node.parent] >= 0 else above[node.parent]
    found, anchors = [], []
    for index, number in enumerate(source.owner):
        is_anchor = anchor[number] == index
        head = above[number] if is_anchor else anchor[number]
        found.append(index if head < 0 else head)
        anchors.append(is_anchor)
    return found, anchors

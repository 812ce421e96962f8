"""Four levels and the scalar targets of parsed Python.

shape     kind, length, case, digits, underscores, frequency
syntax    node, parent, field, depth, subtree, distance and direction of the head
scope     binding, scope, uses, block
position  place in function, class, module; nesting of definitions and of control flow; docstrings
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gllm_lib.corpora.annotated import LevelBuilder, Target, resolve_own
from gllm_lib.corpora.code_scopes import bindings
from gllm_lib.corpora.code_tokens import Source, Token, heads

LEVELS = ("shape", "syntax", "scope", "position")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CONTROL = (ast.If, ast.For, ast.While, ast.Try, ast.With, ast.AsyncFor, ast.AsyncWith, ast.Match)
SHARE = 0.002  # a node type or ending must mark this share of the tokens to get a column


class Row(NamedTuple):
    """What one file says of one token, all levels; `head` is relative (tokens to the head, negative to the left)."""

    node: str
    parent: str
    field: str
    depth: int
    subtree: int
    dependents: int
    head: int
    scope: str
    binds: bool
    earlier: int
    uses: int
    since: int
    block: str
    functions: int
    classes: int
    control: int
    in_function: float
    in_class: float
    in_module: float
    in_line: float
    function_length: int
    docstring: bool


def rows_of(source: Source) -> list[Row]:
    """Return one Row per token of a parsed file."""
    n = len(source.tokens)
    head, _ = heads(source)
    subtree, dependents = _subtrees(head)
    found, blocks = bindings(source)
    keys = [binding.key if binding else None for binding in found]
    uses, seen, last = Counter(keys), Counter[Any](), dict[Any, int]()
    nesting = _nesting(source)
    kinds = [type(node.syntax).__name__ for node in source.nodes]
    lines = Counter(token.line for token in source.tokens)
    passed: Counter[int] = Counter()
    rows = []
    for i, (token, number) in enumerate(zip(source.tokens, source.owner, strict=True)):
        node, binding, key = source.nodes[number], found[i], keys[i]
        around = nesting[number]
        rows.append(
            Row(
                node=kinds[number],
                parent=kinds[max(node.parent, 0)],
                field=node.field,
                depth=node.depth,
                subtree=subtree[i],
                dependents=dependents[i],
                head=head[i] - i,
                scope=binding.scope if binding else "",
                binds=bool(binding and binding.binds),
                earlier=seen[key] if key else 0,
                uses=uses[key] if key else 0,
                since=i - last[key] if key in last and key else 0,
                block=blocks[i].kind,
                functions=around.functions,
                classes=around.classes,
                control=around.control,
                in_function=_place(i, around.function),
                in_class=_place(i, around.owner),
                in_module=(i + 0.5) / n,
                in_line=(passed[token.line] + 0.5) / lines[token.line],
                function_length=around.function[1] - around.function[0],
                docstring=around.docstring,
            )
        )
        passed[token.line] += 1
        if key:
            seen[key] += 1
            last[key] = i
    return rows


def _place(index: int, span: tuple[int, int]) -> float:
    return (index - span[0] + 0.5) / (span[1] - span[0]) if span[1] > span[0] else 0.0


def _subtrees(head: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the size of the subtree below each token, itself included, and the number of its dependents."""
    depth = [-1] * len(head)
    for start in range(len(head)):
        path, at = [], start
        while depth[at] < 0 and head[at] != at:
            path.append(at)
            at = head[at]
        depth[at] = max(depth[at], 0)
        for each in reversed(path):
            depth[each] = depth[head[each]] + 1
    size, dependents = [1] * len(head), [0] * len(head)
    for each in sorted(range(len(head)), key=lambda token: -depth[token]):
        if head[each] != each:
            size[head[each]] += size[each]
            dependents[head[each]] += 1
    return size, dependents


@dataclass(frozen=True)
class _Around:
    """What encloses a node: numbers of functions, classes and control statements, token spans, docstring or not."""

    functions: int = 0
    classes: int = 0
    control: int = 0
    function: tuple[int, int] = (0, 0)
    owner: tuple[int, int] = (0, 0)
    docstring: bool = False


def _nesting(source: Source) -> list[_Around]:
    """Return what encloses each node, itself included; parents come first in `source.nodes`."""
    around: list[_Around] = []
    documented = {
        body[0].value
        for node in source.nodes
        if isinstance(node.syntax, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (body := node.syntax.body)
        and isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    }
    for node in source.nodes:
        up = around[node.parent] if node.parent >= 0 else _Around()
        span = (node.first, node.last)
        function, owner = isinstance(node.syntax, FUNCTIONS), isinstance(node.syntax, ast.ClassDef)
        around.append(
            _Around(
                functions=up.functions + function,
                classes=up.classes + owner,
                control=up.control + isinstance(node.syntax, CONTROL),
                function=span if function else up.function,
                owner=span if owner else up.owner,
                docstring=node.syntax in documented,
            )
        )
    return around


def case_of(token: Token) -> str:
    """Return the case of a name: lower, upper, title, mixed; none for a token that is no identifier or keyword."""
    return _case(token.text) if token.kind in ("name", "keyword") else "none"


@cache
def _case(text: str) -> str:
    word = text.strip("_")
    if not any(each.isalpha() for each in word):
        return "none"
    return "lower" if word.islower() else "upper" if word.isupper() else "title" if word[:1].isupper() else "mixed"


def level_matrices(
    tokens: Sequence[Token], rows: Sequence[Row]
) -> tuple[dict[str, NDArray[np.float32]], dict[str, tuple[str, ...]]]:
    """Return the feature matrices, each (n, k), and their column names, in the order of LEVELS."""
    builders = {
        "shape": _shape(tokens),
        "syntax": _syntax(rows),
        "scope": _scope(rows),
        "position": _position(rows),
    }
    levels = {level: builder.matrix(len(tokens)) for level, builder in builders.items()}
    return levels, {level: tuple(builder.names) for level, builder in builders.items()}


def _shape(tokens: Sequence[Token]) -> LevelBuilder:
    level = LevelBuilder()
    words = [token.text for token in tokens]
    counts = Counter(words)
    level.add("log_length", [math.log(len(word)) for word in words])
    level.add("log_frequency", [math.log(counts[word]) for word in words])
    level.add("digits", [sum(each.isdigit() for each in word) if len(word) < 40 else 0 for word in words])
    level.add("leading_underscore", [word.startswith("_") for word in words])
    level.add("dunder", [word.startswith("__") and word.endswith("__") for word in words])
    level.add("parts", [word.strip("_").count("_") for word in words])
    level.add_categories("kind", [token.kind for token in tokens], share=0.0)
    level.add_categories("case", [case_of(token) for token in tokens], share=0.0)
    quotes = [word.lstrip("rbfuRBFU")[:3] if token.kind == "string" else ""
              for word, token in zip(words, tokens, strict=True)]  # fmt: skip
    level.add("triple_quoted", [quote in ('"""', "'''") for quote in quotes])
    endings = [w[-2:].lower() if t.kind == "name" and len(w) > 3 else "" for w, t in zip(words, tokens, strict=True)]
    level.add_categories("ending", endings, share=SHARE)
    return level


def _syntax(rows: Sequence[Row]) -> LevelBuilder:
    level = LevelBuilder()
    distance = np.array([row.head for row in rows])
    level.add("depth", [row.depth for row in rows])
    level.add("log_subtree", np.log2([row.subtree for row in rows]))
    level.add("dependents", np.log1p([row.dependents for row in rows]))
    level.add("signed_distance", np.sign(distance) * np.log1p(np.abs(distance)))
    level.add("log_distance", np.log1p(np.abs(distance)))
    level.add("head_direction", np.sign(distance))
    level.add("place_in_line", [row.in_line for row in rows])
    level.add_categories("node", [row.node for row in rows], share=SHARE)
    level.add_categories("parent", [row.parent for row in rows], share=SHARE)
    level.add_categories("field", [row.field for row in rows], share=SHARE)
    return level


def _scope(rows: Sequence[Row]) -> LevelBuilder:
    level = LevelBuilder()
    level.add_categories("scope", [row.scope for row in rows], share=0.0)
    level.add_categories("block", [row.block for row in rows], share=0.0)
    level.add("binds", [row.binds for row in rows])
    level.add("log_uses", np.log1p([row.uses for row in rows]))
    level.add("log_earlier", np.log1p([row.earlier for row in rows]))
    level.add("first_use", [row.uses > 0 and row.earlier == 0 for row in rows])
    level.add("log_since", np.log1p([row.since for row in rows]))
    return level


def _position(rows: Sequence[Row]) -> LevelBuilder:
    level = LevelBuilder()
    level.add("position_in_module", [row.in_module for row in rows])
    level.add("position_in_class", [row.in_class for row in rows])
    level.add("position_in_function", [row.in_function for row in rows])
    level.add("log_function_length", np.log1p([row.function_length for row in rows]))
    level.add("functions_around", [row.functions for row in rows])
    level.add("classes_around", [row.classes for row in rows])
    level.add("control_around", [row.control for row in rows])
    level.add("in_method", [row.functions > 0 and row.classes > 0 for row in rows])
    level.add("docstring", [row.docstring for row in rows])
    return level


def targets_of(tokens: Sequence[Token], rows: Sequence[Row], columns: dict[str, tuple[str, ...]]) -> dict[str, Target]:
    """Return the scalar targets; own columns take whole groups of indicators, which sum to one."""
    words = [token.text for token in tokens]
    counts = Counter(words)
    distance = np.array([row.head for row in rows])
    found: dict[str, Target] = {}

    def add(name: str, values: Any, level: str, family: str, *own: str) -> None:
        found[name] = Target(np.asarray(values, dtype=np.float64), level, family, resolve_own(own, columns))

    where = ("functions_around", "classes_around", "in_method", "position_in_*", "log_function_length", "block=*")
    history = ("log_earlier", "first_use", "log_since", "log_uses")
    add("depth", [row.depth for row in rows], "syntax", "hierarchical", "depth")
    subtree = np.log2([row.subtree for row in rows])
    add("subtree", subtree, "syntax", "hierarchical", "log_subtree", "dependents")
    add("logdist", np.log1p(np.abs(distance)), "syntax", "hierarchical", "log_distance", "signed_distance")
    add("headdir", np.sign(distance), "syntax", "hierarchical", "head_direction", "signed_distance")
    add("binding", [row.binds for row in rows], "scope", "hierarchical", "binds")
    local = [row.scope in ("local", "parameter", "free") for row in rows]
    add("local", local, "scope", "hierarchical", "scope=*")
    add("reuse", np.log1p([row.earlier for row in rows]), "scope", "hierarchical", *history)
    add("nesting", [row.functions + row.classes for row in rows], "position", "hierarchical", *where)
    add("method", [row.functions > 0 and row.classes > 0 for row in rows], "position", "hierarchical", *where)
    add("modpos", [row.in_module for row in rows], "position", "hierarchical", "position_in_module")
    add("name", [token.kind == "name" for token in tokens], "shape", "lexical",
        "kind=*", "case=*", "scope=*", *history)  # fmt: skip
    add("freq", [math.log(counts[word]) for word in words], "shape", "lexical", "log_frequency")
    add("wlen", [math.log(len(word)) for word in words], "shape", "lexical", "log_length")
    add("capital", [case_of(token) in ("title", "upper") for token in tokens], "shape", "lexical", "case=*")
    underscored = [token.kind == "name" and "_" in token.text for token in tokens]
    add("underscore", underscored, "shape", "lexical", "parts", "leading_underscore", "dunder")
    first_am = ["a" <= word.lstrip("_")[:1].lower() <= "m" for word in words]
    add("first_am", first_am, "shape", "lexical")
    return found

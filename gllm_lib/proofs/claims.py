"""The registry: claims and declared evidence of all chapters, read from the notebooks without executing anything.

Claims are fenced divs of markdown cells; evidence is read from the syntax tree of code cells. Unknown, duplicate and
cyclic labels fail here, before any cell runs.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from gllm_lib.checks import GllmError
from gllm_lib.proofs.evidence import KINDS, NEAR

PREFIXES = ("thm", "lem", "cor", "prp", "cnj", "def", "exm", "rem")
THEOREM_LIKE = ("thm", "lem", "cor", "prp")

_FENCE = re.compile(r"^\s{0,3}(:{3,})\s*(\{.*\}|[\w.-]+)?\s*$")
_BURIED = re.compile(r"""^[^`]*:::+\s*\{""")  # an opening where the pattern above sees none: in a list or a quotation
CODE_FENCE = re.compile(r"^\s*(?P<fence>`{3,}(?=[^`]*$)|~{3,})")
_ATTRIBUTE = re.compile(
    r"""(?<!\S)(?:\#(?P<id>[\w:.-]+)|\.(?P<cls>[\w-]+)|(?P<key>[\w-]+)=(?P<value>"[^"]*"|'[^']*'|[^\s"'=]+))(?!\S)"""
)


class ClaimError(GllmError, ValueError):
    """A claim or a declared piece of evidence that does not fit the rest of the book."""


@dataclass(frozen=True)
class Div:
    """A fenced div: its identifier, classes and attributes, its lines inside, and the lines that open and close it."""

    id: str
    classes: tuple[str, ...]
    attributes: Mapping[str, str]
    body: str
    opens: int
    closes: int


@dataclass(frozen=True)
class Claim:
    """One stated claim of a chapter, as written; `cell` counts the notebook's cells from 0."""

    id: str
    kind: str
    title: str
    source: str
    uses: tuple[str, ...]
    corrects: str
    refuted: bool
    assumption: bool
    statement: str
    chapter: str
    cell: int


@dataclass(frozen=True)
class Declared:
    """One `@evidence` decorator found in a code cell, not yet run."""

    claim: str
    kind: str
    name: str
    scope: str | None
    mutants: tuple[str, ...]
    chapter: str
    cell: int


@dataclass(frozen=True)
class Registry:
    """All claims by label and all declared evidence, in the order of the book."""

    claims: Mapping[str, Claim]
    declared: tuple[Declared, ...]
    evidence_of: Mapping[str, tuple[Declared, ...]] = field(default_factory=dict)

    def ancestors(self, label: str) -> tuple[str, ...]:
        """Return the labels a claim rests on, directly or through others, in the order of the book."""
        found: set[str] = set()
        waiting = list(self.claims[label].uses)
        while waiting:
            used = waiting.pop()
            if used not in found:
                found.add(used)
                waiting.extend(self.claims[used].uses)
        return tuple(name for name in self.claims if name in found)


def parse_attributes(text: str) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """Return identifier, classes and key-value pairs of a pandoc attribute block such as `{#a .b c="d"}`.

    Raises ClaimError for what pandoc would not read as attributes, and for a key given twice.
    """
    identifier, classes, pairs = "", [], {}
    text = text.strip().removeprefix("{").removesuffix("}")
    for match in _ATTRIBUTE.finditer(text):
        if match["id"]:
            identifier = match["id"]
        elif match["cls"]:
            classes.append(match["cls"])
        elif match["key"] in pairs:
            raise ClaimError(f"the attribute {match['key']} is given twice; join the two")
        else:
            value = match["value"]
            pairs[match["key"]] = value[1:-1] if value[0] in "\"'" else value
    if rest := _ATTRIBUTE.sub("", text).strip():
        raise ClaimError(
            f'the attributes hold {rest!r}; write {{#label .class key="value"}}, without quotes in a value'
        )
    return identifier, tuple(classes), pairs


def outside_code(lines: Iterable[str]) -> Iterable[tuple[int, str]]:
    """Yield number and text of the lines of a markdown text that stand outside fenced code."""
    code = ""
    for number, line in enumerate(lines):
        fence = CODE_FENCE.match(line)
        if not code and fence:
            code = fence["fence"]
        elif not code:
            yield number, line
        elif line.strip().startswith(code) and not line.strip().strip(code[0]):
            code = ""


def divs(markdown: str, where: str = "text") -> list[Div]:
    """Return the fenced divs of a markdown text, nested ones included, in the order of their ends.

    Raises ClaimError for a div that is never closed or opened, is malformed, or stands in a list or a quotation.
    """
    lines = markdown.split("\n")
    stack: list[tuple[int, str]] = []
    found: list[Div] = []
    for number, line in outside_code(lines):
        match = _FENCE.match(line)
        if not match:
            if _BURIED.match(line):
                raise ClaimError(f"{where}: line {number + 1} opens a div inside other text; give it a line of its own")
        elif match[2]:
            stack.append((number, match[2] if match[2].startswith("{") else "." + match[2]))
        elif stack:
            opened, attributes = stack.pop()
            try:
                parsed = parse_attributes(attributes)
            except ClaimError as error:
                raise ClaimError(f"{where}, line {opened + 1}: {error}") from error
            found.append(Div(*parsed, "\n".join(lines[opened + 1 : number]), opened, number))
        else:
            raise ClaimError(f"{where}: line {number + 1} closes a div (:::) that was never opened; remove it")
    if stack:
        opened, attributes = stack[-1]
        raise ClaimError(f"{where}: the div {attributes} opened in line {opened + 1} is never closed; add a line ':::'")
    return found


def claims_of(chapter: str, cells: Iterable[Mapping[str, Any]]) -> list[Claim]:
    """Return the claims of one notebook's cells in order; raises ClaimError for a malformed block."""
    return [
        _claim(chapter, index, div)
        for index, cell in enumerate(cells)
        if cell["cell_type"] == "markdown"
        for div in divs(cell["source"], f"{chapter}, cell {index + 1}")
        if "claim" in div.classes or div.id.split("-")[0] in PREFIXES
    ]


def _claim(chapter: str, index: int, div: Div) -> Claim:
    where = f"{chapter}, cell {index + 1}: claim {div.id or '(without a label)'}"
    kind = div.id.split("-")[0]
    if kind not in PREFIXES or div.id == kind:
        raise ClaimError(f"{where}: its label needs one of the prefixes {', '.join(PREFIXES)}, as in #prp-name")
    if "claim" not in div.classes:
        raise ClaimError(f'{where}: a block with this prefix is a claim; write ::: {{#{div.id} .claim source="..."}}')
    strange = set(div.attributes) - {"source", "uses", "corrects"}
    if strange:
        raise ClaimError(f"{where}: attribute {sorted(strange)[0]!r} is unknown; use source, uses, corrects")
    heading = re.match(r"\s*#{2,6}\s+(.+?)\s*$", div.body, re.MULTILINE)
    if not heading:
        raise ClaimError(f"{where}: it has no name; begin the block with a line '## Name'")
    if not div.attributes.get("source", "").strip():
        raise ClaimError(f'{where}: it names no source item; add source="GLLM Prop. 7" or source="new"')
    assumption = "assumption" in div.classes
    if assumption and (kind != "cnj" or "Assumption" not in heading[1]):
        raise ClaimError(f"{where}: an assumption is a cnj- block with 'Assumption' in its name")
    return Claim(
        id=div.id,
        kind=kind,
        title=heading[1],
        source=div.attributes["source"].strip(),
        uses=tuple(div.attributes.get("uses", "").split()),
        corrects=div.attributes.get("corrects", ""),
        refuted="refuted" in div.classes,
        assumption=assumption,
        statement=div.body[heading.end() :].strip(),
        chapter=chapter,
        cell=index,
    )


def declared_in(chapter: str, cells: Iterable[Mapping[str, Any]]) -> list[Declared]:
    """Return the evidence declared in one notebook's code cells; raises ClaimError for a cell that does not parse."""
    found = []
    for index, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        where = f"{chapter}, cell {index + 1}"
        tree = _parsed(cell["source"], where)
        for node in ast.walk(tree) if "evidence" in cell["source"] else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found += [_declared(call, node.name, chapter, index, where) for call in _evidence_calls(node)]
    return found


def _parsed(source: str, where: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        line = getattr(error, "lineno", None) or 1
        magic = re.match(r"\s*[%!?]", source.split("\n")[line - 1])
        told = "a notebook command; write plain Python" if magic else f"{getattr(error, 'msg', error)}; mend the cell"
        raise ClaimError(f"{where}, line {line}: {told}") from error


def _evidence_calls(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.Call]:
    def name(call: ast.expr) -> str:
        return call.id if isinstance(call, ast.Name) else call.attr if isinstance(call, ast.Attribute) else ""

    return [d for d in node.decorator_list if isinstance(d, ast.Call) and name(d.func) == "evidence"]


def _declared(call: ast.Call, name: str, chapter: str, index: int, where: str) -> Declared:
    given = {keyword.arg: keyword.value for keyword in call.keywords}

    def literal(node: ast.expr | None, what: str) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        raise ClaimError(f"{where}: {what} of the evidence {name} is not a plain string; write it out")

    label = literal(call.args[0] if call.args else given.get("claim"), "the claim's label")
    kind = literal(given.get("kind"), "kind")
    if kind not in KINDS:
        raise ClaimError(f"{where}: evidence {name} has kind {kind!r}; use one of {', '.join(KINDS)}")
    mutants = given.get("mutants")
    if not isinstance(mutants, ast.Dict):
        raise ClaimError(f"{where}: evidence {name} declares no mutants={{...}} with plain names")
    names = tuple(literal(key, "a mutant's name") for key in mutants.keys)
    if kind != "counterexample" and not any(mutant.startswith(NEAR) for mutant in names):
        raise ClaimError(f"{where}: evidence {name} has no near mutant; name one '{NEAR}...'")
    scope = literal(given["scope"], "scope") if "scope" in given else None
    if kind == "exact" and not scope:
        raise ClaimError(f'{where}: exact evidence {name} names no scope; write scope="all" or a part')
    return Declared(label, kind, name, scope, names, chapter, index)


def registry(notebooks: Mapping[str, Iterable[Mapping[str, Any]]]) -> Registry:
    """Read and cross-check the claims and the declared evidence of notebooks, given as name to cells.

    Raises ClaimError for a duplicate, unknown or cyclic label, for the use of a refuted statement, and for evidence
    that stands above its claim or in another chapter.
    """
    claims: dict[str, Claim] = {}
    declared: list[Declared] = []
    for chapter, cells in notebooks.items():
        cells = list(cells)
        for claim in claims_of(chapter, cells):
            if claim.id in claims:
                raise ClaimError(
                    f"{_where(claim)}: this label stands already in {_where(claims[claim.id])}; rename one"
                )
            claims[claim.id] = claim
        declared += declared_in(chapter, cells)
    for claim in claims.values():
        _check_references(claim, claims)
    _check_cycles(claims)
    seen: set[tuple[str, str]] = set()
    for item in declared:
        _check_declared(item, claims)
        if (item.claim, item.name) in seen:
            raise ClaimError(f"{item.chapter}, cell {item.cell + 1}: {item.claim} has two checks named {item.name}")
        seen.add((item.claim, item.name))
    by_claim = {label: tuple(d for d in declared if d.claim == label) for label in claims}
    return Registry(claims, tuple(declared), by_claim)


def _where(claim: Claim) -> str:
    return f"{claim.chapter}, cell {claim.cell + 1}, claim {claim.id}"


def _known(label: str, claims: Mapping[str, Claim], where: str, verb: str) -> Claim:
    if label not in claims:
        near = difflib.get_close_matches(label, claims, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; labels are: {', '.join(list(claims)[:8])} ..."
        raise ClaimError(f"{where} {verb} {label}, which no chapter states{hint}")
    return claims[label]


def _check_references(claim: Claim, claims: Mapping[str, Claim]) -> None:
    for label in claim.uses:
        if _known(label, claims, _where(claim), "uses").refuted:
            raise ClaimError(f"{_where(claim)} uses {label}, a refuted statement; use its correction")
    if claim.corrects and not _known(claim.corrects, claims, _where(claim), "corrects").refuted:
        raise ClaimError(f"{_where(claim)} corrects {claim.corrects}, which is not marked .refuted")


def _check_cycles(claims: Mapping[str, Claim]) -> None:
    try:
        TopologicalSorter({claim.id: claim.uses for claim in claims.values()}).prepare()
    except CycleError as error:
        path = " -> ".join(reversed(error.args[1]))
        raise ClaimError(f"the claims use each other in a circle: {path}; remove one 'uses'") from error


def _check_declared(item: Declared, claims: Mapping[str, Claim]) -> None:
    where = f"{item.chapter}, cell {item.cell + 1}: evidence {item.name}"
    claim = _known(item.claim, claims, where, "is for")
    if claim.chapter != item.chapter or claim.cell > item.cell:
        raise ClaimError(f"{where} stands above its claim {item.claim} or in another chapter; move it below the claim")
    if (item.kind == "counterexample") != claim.refuted:
        verb = "needs kind='counterexample'" if claim.refuted else "is not marked .refuted, so no counterexample fits"
        raise ClaimError(f"{where}: the claim {item.claim} {verb}")

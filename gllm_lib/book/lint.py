"""What a chapter must satisfy before it is executed, and what a commit must satisfy: each finding names its cell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat

from gllm_lib import checks
from gllm_lib.book import notation
from gllm_lib.book.project import BookError, Notebook, Project, canonical, cell_label, inline_names, parameters, parsed
from gllm_lib.checks import FileError
from gllm_lib.proofs import sources
from gllm_lib.proofs.claims import THEOREM_LIKE, Registry, divs

LONGEST_CELL = 25
MOST_CELLS = 100
REFERENCE = re.compile(r"(?<![\w@/.\[-])@((?:thm|lem|cor|prp|cnj|def|exm|rem|fig|tbl|eq|sec)-[\w-]+)")
_LABEL = re.compile(r"\{#((?:eq|sec|fig|tbl)-[\w-]+)")
_BLOCK = re.compile(r"^#\|\s*([\w-]+):\s*[>|][+-]?\s*$", re.MULTILINE)
_MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home/\w+|Users/\w+|root|tmp|work|mnt)/|[A-Z]:\\\\")
_HANDMADE = re.compile(r"MIME_TYPE|vnd\.gllm|run_evidence|def evidence\b|\bevidence\s*=[^=]|import\s.*\bas evidence\b")
_DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.]*\))")

Finding = str


def blocking(project: Project, notebooks: Mapping[str, Notebook], registry: Registry) -> list[Finding]:
    """Return what makes an execution pointless: references to nothing, unfit sizes, missing texts, unknown ids."""
    known = labels(project, notebooks, registry)
    found: list[Finding] = []
    for name, notebook in notebooks.items():
        try:
            parameters(name, notebook, "default")
            for profile in ("smoke", "full"):
                parameters(name, notebook, profile)
        except BookError as error:
            found.append(str(error))
        for where, cell in _cells(name, notebook):
            found += _references(where, cell, known)
            found += _figure_texts(where, cell)
            if cell.cell_type == "markdown":
                inline_names(where, cell.source)
            elif cell.cell_type == "raw" and cell is not notebook.cells[0]:
                found.append(f"{where}: a raw cell; only the first, with the sizes, may be one")
    for page in project.pages:
        if page.endswith(".qmd"):
            text = (project.root / page).read_text(encoding="utf-8")
            found += [f"{page}: @{ref} refers to nothing" for ref in REFERENCE.findall(text) if ref not in known]
    if (table := project.root / "chapters" / notation.FILE).is_file():
        found += notation.problems(notation.read(table), known)
    sourced = [claim for claim in registry.claims.values() if claim.source.strip()]
    found += sources.problems(_sources(project), sourced, ())  # of no written chapter: unknown ids alone
    return found


def findings(project: Project, notebooks: Mapping[str, Notebook], registry: Registry) -> list[Finding]:
    """Return everything a commit must not have, the blocking findings first."""
    found = blocking(project, notebooks, registry)
    rules: tuple[Callable[[str, Any], list[Finding]], ...] = (_length, _paths, _decimals, _handmade, _blocks)
    for name, notebook in notebooks.items():
        source = project.notebook_path(name).read_text(encoding="utf-8")
        if source != canonical(notebook):
            found.append(f"{name}: not in canonical form (outputs, metadata or key order); run 'gllm check --fix'")
        if len(notebook.cells) > MOST_CELLS:
            found.append(f"{name}: {len(notebook.cells)} cells; split it, {MOST_CELLS} are the most")
        for where, cell in _cells(name, notebook):
            for rule in rules:
                found += rule(where, cell)
    listed = {project.root / page for page in project.pages}
    unlisted = sorted(set((project.root / "chapters").glob("*.ipynb")) - listed)
    found += [f"chapters/{path.name}: _quarto.yml does not list it; add its line or remove it" for path in unlisted]
    found += claim_findings(registry)
    found += source_findings(project, registry)
    return list(dict.fromkeys(found))


def claim_findings(registry: Registry) -> list[Finding]:
    """Return the claims whose declared evidence is too little for their kind; a conjecture may stay open."""
    found = []
    for claim in registry.claims.values():
        if claim.kind == "def" or claim.assumption or (claim.kind == "cnj" and not claim.refuted):
            continue
        kinds = {item.kind for item in registry.evidence_of[claim.id]}
        where = f"{claim.chapter}, cell {claim.cell + 1}, claim {claim.id}"
        if not kinds:
            found.append(f"{where}: no evidence is declared for it")
        elif claim.kind in THEOREM_LIKE and not claim.refuted and not _enough(kinds):
            has = ", ".join(sorted(kinds))
            found.append(f"{where}: needs two kinds of evidence, one of them exact or property; it has {has}")
    return found


def _enough(kinds: set[str]) -> bool:
    return len(kinds) >= 2 and bool(kinds & {"exact", "property"})


def source_findings(project: Project, registry: Registry) -> list[Finding]:
    """Return source items that a written chapter leaves out, and claims that name an item no source has."""
    return sources.problems(_sources(project), registry.claims.values(), project.notebooks)


def _sources(project: Project) -> sources.Sources:
    return sources.load(project.root / "chapters" / "sources.toml")


def labels(project: Project, notebooks: Mapping[str, Notebook], registry: Registry) -> set[str]:
    """Return every label that a reference may name; raises BookError for one that stands twice."""
    where: dict[str, str] = dict.fromkeys(registry.claims, "a claim")

    def add(label: str, place: str) -> None:
        if label in where:
            raise BookError(f"{place}: the label {label} stands already in {where[label]}; rename one")
        where[label] = place

    for name, notebook in notebooks.items():
        for place, cell in _cells(name, notebook):
            found = _LABEL.findall(cell.source) if cell.cell_type == "markdown" else [cell_label(cell.source)]
            for label in filter(None, found):
                add(label, place)
    for page in project.pages:
        if page.endswith(".qmd"):
            for label in _LABEL.findall((project.root / page).read_text(encoding="utf-8")):
                add(label, page)
    return set(where)


def _cells(name: str, notebook: Notebook) -> Iterator[tuple[str, Any]]:
    for index, cell in enumerate(notebook.cells):
        yield f"{name}, cell {index + 1}", cell


def _references(where: str, cell: Any, known: set[str]) -> list[Finding]:
    if cell.cell_type != "markdown":
        return []
    text = re.sub(r"`[^`]*`", "", cell.source)
    return [
        f"{where}: @{ref} refers to nothing; check its spelling" for ref in REFERENCE.findall(text) if ref not in known
    ]


def _figure_texts(where: str, cell: Any) -> list[Finding]:
    label = cell_label(cell.source) if cell.cell_type == "code" else ""
    if not label:
        return []
    needed = {"fig": ("fig-cap", "fig-alt"), "tbl": ("tbl-cap",)}.get(label.split("-")[0], ())
    return [
        f"{where}: {label} has no {option}; add a line '#| {option}: ...'"
        for option in needed
        if not re.search(rf"^#\|\s*{option}:\s*\S", cell.source, re.MULTILINE)
    ]


def _length(where: str, cell: Any) -> list[Finding]:
    lines = len([line for line in cell.source.splitlines() if not line.startswith("#|")])
    if cell.cell_type == "code" and lines > LONGEST_CELL:
        return [f"{where}: {lines} lines of code; {LONGEST_CELL} are the most, split it or move code to the library"]
    return []


def _paths(where: str, cell: Any) -> list[Finding]:
    hit = _MACHINE_PATH.search(cell.source)
    return [f"{where}: names a path of one machine ({hit[0]}); use a path relative to the book"] if hit else []


def _handmade(where: str, cell: Any) -> list[Finding]:
    hit = _HANDMADE.search(cell.source) if cell.cell_type == "code" else None
    return [f"{where}: names {hit[0]}; evidence comes from the decorator @evidence alone"] if hit else []


def _blocks(where: str, cell: Any) -> list[Finding]:
    hits = _BLOCK.findall(cell.source) if cell.cell_type == "code" else []
    return [
        f"{where}: Quarto reads no {hit} written as a block; write it quoted, over several lines if need be"
        for hit in hits
    ]


def _decimals(where: str, cell: Any) -> list[Finding]:
    if cell.cell_type != "markdown":
        return []
    hit = _DECIMAL.search(prose(cell.source))
    return [f"{where}: types the number {hit[0]} into prose; use an inline value `{{python}} name`"] if hit else []


def prose(markdown: str) -> str:
    """Return a markdown text without what may hold decimals: claims, proofs, mathematics, code, quotations."""
    lines = markdown.split("\n")
    for div in divs(markdown):
        if {"claim", "proof"} & set(div.classes):
            lines[div.opens : div.closes] = [""] * (div.closes - div.opens)
    text = "\n".join(lines)
    for pattern in (r"\$\$.*?\$\$", r"\$[^$\n]+\$", r"```.*?```", r"`[^`]*`", r"\[[^\]]*\]\{\.printed\}", r"\{[^}]*\}"):
        text = re.sub(pattern, "", text, flags=re.DOTALL)
    return re.sub(r"(?:Sec|Thm|Section|version|Theorem)s?\.? \d+\.\d+(?:\.\d+)*", "", text)


def fix(project: Project) -> list[str]:
    """Write every notebook in canonical form, with the kernelspec it needs, and return the names changed."""
    changed = []
    for name in project.notebooks:
        path: Path = project.notebook_path(name)
        try:
            text = path.read_text(encoding="utf-8")
            clean = canonical(parsed(path.name, text))
        except BookError:
            raise
        except (OSError, ValueError, AttributeError, KeyError, nbformat.ValidationError) as error:
            raise FileError(f"{path.name} cannot be mended by --fix: {error}") from error
        if clean != text:
            checks.write_text(path, clean)
            changed.append(name)
    return changed

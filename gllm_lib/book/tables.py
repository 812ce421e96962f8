"""The tables that a build fills into the appendices: claims, open items, errata, runs and versions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gllm_lib.book import api, notation
from gllm_lib.book.markdown import plain, rows, symbols
from gllm_lib.book.project import BookError, Project, read_notebook, read_notebooks
from gllm_lib.book.run import Run, evidence_by_claim
from gllm_lib.proofs import sources
from gllm_lib.proofs.claims import Claim, Registry
from gllm_lib.proofs.evidence import kind_and_scope
from gllm_lib.proofs.sources import Treatment
from gllm_lib.proofs.status import Status, statuses

Evidence = Mapping[str, list[dict[str, Any]]]


def table(what: str, project: Project, runs: Mapping[str, Run], registry: Registry, profile: str, *, where: str) -> str:
    """Return the markdown of the generated block `what`; raises BookError for a name that is not known."""
    symbols_file = project.root / "chapters" / notation.FILE
    makers: dict[str, Callable[[], str]] = {
        "claims-by-chapter": lambda: claims_by_chapter(project, registry, evidence_by_claim(runs)),
        "claims-by-source": lambda: claims_by_source(project, registry, evidence_by_claim(runs)),
        "open-items": lambda: open_items(project, registry),
        "errata": lambda: errata(project, registry, evidence_by_claim(runs)),
        "runs": lambda: chapter_runs(project, runs, profile),
        "versions": lambda: versions(runs),
        "notation": lambda: notation.tables(notation.read(symbols_file), api.read_library()),
        "notation-shared": lambda: notation.shared_letters(notation.read(symbols_file)),
        "library": lambda: api.reference(api.read_library(), read_notebooks(project)),
    }
    if what not in makers:
        raise BookError(f"{where}: nothing is generated for what={what!r}; the blocks are {', '.join(makers)}")
    return makers[what]()


def claims_by_chapter(project: Project, registry: Registry, evidence: Evidence) -> str:
    """Return one table per chapter: claim, status, source item, evidence kinds and mutants."""
    computed = statuses(registry, evidence)
    chapters = dict.fromkeys(claim.chapter for claim in registry.claims.values())
    parts = [_summary(computed)]
    for chapter in chapters:
        body = [_claim_row(c, computed, evidence) for c in registry.claims.values() if c.chapter == chapter]
        header = ["Claim", "Status", "Source", "Evidence"]
        parts += [
            f"### {_title(project, chapter)} {{.unnumbered}}",
            rows(header, body, "|:----------|:------|:------|:--------|"),
        ]
    return "\n\n".join(parts)


def _title(project: Project, chapter: str) -> str:
    """Return "4b Steps, errors and levels" for a chapter: its number and its first heading."""
    text = "\n".join(cell.source for cell in read_notebook(project.notebook_path(chapter)).cells)
    heading = re.search(r"^# (.+?)(?: \{.*\})?$", text, re.MULTILINE)
    return f"{chapter.split('-')[0].lstrip('0')} {heading[1] if heading else chapter}"


def _summary(computed: Mapping[str, Status]) -> str:
    if not computed:
        return "No chapter states a claim yet."
    counts: dict[str, int] = {}
    for status in computed.values():
        word = f"supported ({status.kind})" if status.word == "supported" else status.word
        counts[word] = counts.get(word, 0) + 1
    told = ", ".join(f"{number} {word}" for word, number in sorted(counts.items(), key=lambda item: -item[1]))
    return (
        f"Of {len(computed)} labelled statements: {told}. The word in brackets is the weakest link: the least "
        "strong among the best checks of the statement itself and of all that it uses. So *supported (exact)* means "
        "checked without rounding or chance, but somewhere for a part of the statement only, the scope named there."
    )


def _claim_row(claim: Claim, computed: Mapping[str, Status], evidence: Evidence) -> list[str]:
    records = evidence.get(claim.id, [])
    kinds = ", ".join(dict.fromkeys(plain(kind_and_scope(record)) for record in records)) or "none"
    rejected = sum(record["mutants_rejected"] for record in records)
    told = f"{kinds}; {rejected} mutant{'s' * (rejected != 1)} rejected" if records else "none"
    return [f"@{claim.id} {claim.title}", str(computed[claim.id]), claim.source, told]


def claims_by_source(project: Project, registry: Registry, evidence: Evidence) -> str:
    """Return one table per source: each item, its state, and the claims that treat it with their status."""
    computed = statuses(registry, evidence)
    parts = []
    found = _treatments(project, registry)
    for source in dict.fromkeys(treatment.item.source for treatment in found):
        mine = [t for t in found if t.item.source == source and t.status != sources.OPEN]
        left = sum(t.item.source == source and t.status == sources.OPEN for t in found)
        body = [[t.item.id, t.item.title, _treated(t, computed)] for t in mine]
        parts.append(f"### {source} {{.unnumbered}}\n\n{len(mine)} items treated, {left} in chapters not yet written.")
        if body:
            parts.append(rows(["Item", "What it says", "Treated by"], body, "|:----|:------------|:---------|"))
    return "\n\n".join(parts)


def _treated(treatment: Treatment, computed: Mapping[str, Status]) -> str:
    if treatment.claims:
        return "; ".join(f"@{label}, {computed[label]}" for label in treatment.claims)
    if treatment.status == sources.PROSE:
        return f"in the text: {treatment.item.prose}"
    return "nothing yet"


def open_items(project: Project, registry: Registry) -> str:
    """Return the items whose chapter is not written yet, counted by source and chapter, then listed."""
    left = [t for t in _treatments(project, registry) if t.status == sources.OPEN]
    if not left:
        return "No item is open."
    groups: dict[tuple[str, str], list[Treatment]] = {}
    for t in left:
        groups.setdefault((t.item.chapter, t.item.source), []).append(t)
    body = [
        [chapter, source, str(len(items)), "; ".join(t.item.id.removeprefix(source + " ") for t in items)]
        for (chapter, source), items in sorted(groups.items())
    ]
    return rows(["Chapter", "Source", "Items", "Which"], body, "|:---|:---|---:|:--------------------|")


def errata(project: Project, registry: Registry, evidence: Evidence) -> str:
    """Return the refuted statements by chapter, each with its witness and the claim that corrects it."""
    computed = statuses(registry, evidence)
    parts: list[str] = []
    chapter = ""
    for claim in registry.claims.values():
        if not claim.refuted:
            continue
        if claim.chapter != chapter:
            chapter = claim.chapter
            parts.append(f"## {_title(project, chapter)} {{.unnumbered}}")
        corrections = [c for c in registry.claims.values() if c.corrects == claim.id]
        better = "; ".join(f"@{c.id} {c.title}, {computed[c.id]}" for c in corrections) or "none is claimed"
        says = " ".join(symbols(record["says"]) for record in evidence.get(claim.id, []))
        parts.append(
            f"### {claim.title.removesuffix(', as printed')} {{.unnumbered}}\n\n"
            f"*{claim.source}, @{claim.id}: {computed[claim.id]}.*\n\n"
            f"Printed:\n\n{_quoted(claim.statement)}\n\nCounterexample: {says or 'not run.'}\n\nCorrected: {better}."
        )
    return "\n\n".join(parts) or "No statement is refuted."


def _quoted(text: str) -> str:
    return "\n".join("> " + line for line in text.splitlines())


def chapter_runs(project: Project, runs: Mapping[str, Run], profile: str) -> str:
    """Return the chapters with their run time, CPU time, checks and mutants, and the machine below."""
    body = []
    for name in project.notebooks:
        run = runs.get(name)
        if run is None:
            body.append([_title(project, name), "not executed", "", "", "", ""])
            continue
        records = run.evidence
        numbers = (sum(r["cases"] for r in records), sum(r["mutants_rejected"] for r in records))
        facts = (f"{run.facts['seconds']:.0f}", f"{run.facts['cpu_seconds']:.0f}", str(len(records)))
        body.append([_title(project, name), *facts, f"{numbers[0]:,}", str(numbers[1])])
    header = ["Chapter", "Seconds", "CPU-seconds", "Checks", "Cases", "Mutants rejected"]
    machines = "; ".join(dict.fromkeys(str(run.facts["machine"]) for run in runs.values())) or "none"
    told = f"Size: {profile}. Machine: {machines}."
    return rows(header, body, "|:----|--:|--:|--:|--:|--:|") + f"\n\n{told}"


def versions(runs: Mapping[str, Run]) -> str:
    """Return the versions of interpreter and libraries that the kernels reported."""
    seen: dict[str, list[str]] = {}
    for run in runs.values():
        for name, version in run.facts["versions"].items():
            if version not in seen.setdefault(name, []):
                seen[name].append(version)
    body = [[name, ", ".join(found)] for name, found in sorted(seen.items())]
    return rows(["Library", "Version"], body, "|:---|:---|") if body else "No chapter was executed."


def _treatments(project: Project, registry: Registry) -> tuple[Treatment, ...]:
    listed = sources.load(project.root / "chapters" / "sources.toml")
    return sources.join(listed, registry.claims.values(), project.notebooks)

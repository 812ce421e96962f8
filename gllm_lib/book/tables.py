"""What a build fills into the pages, by the name of the block; the tables of claims and of source items are here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gllm_lib.book import api, claim_graph, executions, notation
from gllm_lib.book.errata import errata
from gllm_lib.book.executions import title
from gllm_lib.book.markdown import plain, rows
from gllm_lib.book.project import BookError, Project, read_notebooks
from gllm_lib.book.run import Run, evidence_by_claim
from gllm_lib.proofs import sources
from gllm_lib.proofs.claims import Claim, Registry
from gllm_lib.proofs.evidence import kind_and_scope
from gllm_lib.proofs.sources import Treatment
from gllm_lib.proofs.status import Status, statuses

Evidence = Mapping[str, list[dict[str, Any]]]
COLUMNS = ("proved", "supported", "refuted", "defined")  # the words that are frequent


def table(what: str, project: Project, runs: Mapping[str, Run], registry: Registry, profile: str, *, where: str) -> str:
    """Return the markdown of the generated block `what`; raises BookError for a name that is not known."""
    symbols_file = project.root / "chapters" / notation.FILE
    makers: dict[str, Callable[[], str]] = {
        "summary": lambda: f"{counts(registry, evidence_by_claim(runs))} {executions.effort(runs)}",
        "claims-by-status": lambda: claims_by_status(project, registry, evidence_by_claim(runs)),
        "claims-by-chapter": lambda: claims_by_chapter(project, registry, evidence_by_claim(runs)),
        "claims-by-source": lambda: claims_by_source(project, registry, evidence_by_claim(runs)),
        "claim-graph": lambda: claim_graph.drawing(registry, statuses(registry, evidence_by_claim(runs))),
        "claim-graph-words": lambda: claim_graph.in_words(
            registry, statuses(registry, evidence_by_claim(runs)), lambda chapter: title(project, chapter)
        ),
        "open-items": lambda: open_items(project, registry),
        "errata": lambda: errata(_listed(project), registry, evidence_by_claim(runs)),
        "runs": lambda: executions.chapter_runs(project, runs, profile),
        "versions": lambda: executions.versions(runs),
        "studies": lambda: executions.studies(project.root, read_notebooks(project)),
        "notation": lambda: notation.tables(notation.read(symbols_file), api.read_library()),
        "notation-shared": lambda: notation.shared_letters(notation.read(symbols_file)),
        "library": lambda: api.reference(api.read_library(), read_notebooks(project)),
    }
    if what not in makers:
        raise BookError(f"{where}: nothing is generated for what={what!r}; the blocks are {', '.join(makers)}")
    return makers[what]()


def counts(registry: Registry, evidence: Evidence) -> str:
    """Return one sentence on how many statements the book has and how they stand."""
    computed = statuses(registry, evidence)
    if not computed:
        return "No chapter states a claim yet."
    told = ", ".join(f"{number} {word}" for word, number in _tally(status.word for status in computed.values()))
    return f"The book has {len(computed)} labelled statements: {told}."


def _tally(words: Iterable[str]) -> list[tuple[str, int]]:
    """Return each word with its number, the most frequent first."""
    return Counter(words).most_common()


def _word(status: Status) -> str:
    """Return a status without the assumptions that it is given."""
    return f"supported ({status.kind})" if status.word == "supported" else status.word


def claims_by_status(project: Project, registry: Registry, evidence: Evidence) -> str:
    """Return how many claims of each chapter have which status, then for the rarer ones which claims they are."""
    computed = statuses(registry, evidence)
    if not computed:
        return "No chapter states a claim yet."
    body = []
    for chapter in dict.fromkeys(claim.chapter for claim in registry.claims.values()):
        words = [computed[claim.id].word for claim in registry.claims.values() if claim.chapter == chapter]
        numbers = [words.count(word) for word in COLUMNS]
        numbers.append(len(words) - sum(numbers))
        mark, _, name = title(project, chapter).partition(" ")
        body.append([f"{mark} [{name}](#claims-{chapter})", *(str(n or "") for n in numbers)])
    words = [status.word for status in computed.values()]
    sums = [words.count(word) for word in COLUMNS]
    body.append(["**All**", *map(str, sums), str(len(words) - sum(sums))])
    parts = [_bracket(), rows(["Chapter", *COLUMNS, "other"], body, "|:------|" + "---:|" * (len(COLUMNS) + 1))]
    for word, number in _tally(map(_word, computed.values())):
        if word not in ("proved", "defined"):
            labels = [f"@{label}" for label, status in computed.items() if _word(status) == word]
            anchor = "claims-" + "-".join(re.findall(r"[a-z]+", word))
            parts.append(f"### {word}: {number} {{#{anchor} .unnumbered}}\n\n{', '.join(labels)}.")
    return "\n\n".join(parts)


def _bracket() -> str:
    return (
        "The word in brackets is the weakest link: the least strong among the best checks of the statement itself "
        "and of all that it uses. So *supported (exact)* means checked without rounding or chance, but somewhere for "
        "a part of the statement only, the scope named there. Below the table stand the claims of each status, except "
        "those that are proved and those that define."
    )


def claims_by_chapter(project: Project, registry: Registry, evidence: Evidence) -> str:
    """Return one table per chapter: claim, status, source item, evidence kinds and mutants."""
    computed = statuses(registry, evidence)
    chapters = dict.fromkeys(claim.chapter for claim in registry.claims.values())
    parts = [] if chapters else ["No chapter states a claim yet."]
    for chapter in chapters:
        body = [_claim_row(c, computed, evidence) for c in registry.claims.values() if c.chapter == chapter]
        header = ["Claim", "Status", "Source", "Evidence"]
        parts += [
            f"### {title(project, chapter)} {{#claims-{chapter} .unnumbered}}",
            rows(header, body, "|:----------|:------|:------|:--------|"),
        ]
    return "\n\n".join(parts)


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
        waiting = f", {left} in chapters not yet written" if left else ""
        parts.append(f"### {source} {{.unnumbered}}\n\n{len(mine)} items treated{waiting}.")
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


def _treatments(project: Project, registry: Registry) -> tuple[Treatment, ...]:
    return sources.join(_listed(project), registry.claims.values(), project.notebooks)


def _listed(project: Project) -> sources.Sources:
    return sources.load(project.root / "chapters" / "sources.toml")

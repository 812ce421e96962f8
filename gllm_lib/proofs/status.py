"""Status of a claim, computed from the evidence that ran and from the claims it rests on; never typed by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gllm_lib.proofs.claims import Claim, Registry

STRENGTH = ("proved", "exact", "property", "numeric", "simulation", "empirical", "stated")  # strongest first

Evidence = Mapping[str, Sequence[Mapping[str, Any]]]  # claim label -> evidence records of the current run


@dataclass(frozen=True)
class Status:
    """What the evidence makes of a claim: `word`, the kind that supports it, why, and the assumptions it rests on."""

    word: str  # stated | refuted | proved | supported | defined | assumed | open
    kind: str  # the weakest best kind along the ancestors, for "supported"
    given: tuple[str, ...]
    because: str
    weakest: str = ""  # the label that `because` begins with, if an ancestor decides

    def __str__(self) -> str:
        text = f"supported ({self.kind})" if self.word == "supported" else self.word
        return text + (f", given {' and '.join(self.given)}" if self.given else "")


def statuses(registry: Registry, evidence: Evidence) -> dict[str, Status]:
    """Return the status of every claim of the registry, by label."""
    return {label: _status(claim, registry, evidence) for label, claim in registry.claims.items()}


def _status(claim: Claim, registry: Registry, evidence: Evidence) -> Status:
    own = _best(claim, registry, evidence)
    if claim.refuted:
        if own == "stated":
            return Status("stated", "", (), "no current run")
        return Status("refuted", "", (), "its counterexample ran")
    if claim.kind == "def":
        return Status("defined", "", (), "a definition asserts nothing")
    if claim.assumption:
        return Status("assumed", "", (), "an assumption is used, not shown")
    if _open(claim, registry):
        return Status("open", "", (), "a conjecture, which nothing here settles")
    ancestors = [registry.claims[label] for label in registry.ancestors(claim.id)]
    given = tuple(ancestor.title for ancestor in ancestors if ancestor.assumption)
    grades = {claim.id: own}
    for ancestor in ancestors:
        if ancestor.kind != "def" and not ancestor.assumption:
            grades[ancestor.id] = _best(ancestor, registry, evidence)
    weakest = max(grades, key=lambda label: STRENGTH.index(grades[label]))
    grade = grades[weakest]
    if grade == "stated":
        lacks = "is open" if _open(registry.claims[weakest], registry) else "has no current run"
        if own == "stated":
            return Status("stated", "", given, "no current run of its evidence")
        return Status("stated", "", given, f"{weakest}, on which it rests, {lacks}", weakest)
    if grade == "proved":
        return Status("proved", "", given, "exact evidence for the whole domain, here and in all it uses")
    if grade != own:
        return Status("supported", grade, given, f"{weakest}, on which it rests", weakest)
    parts = dict.fromkeys(r["scope"] for r in evidence[claim.id] if r["kind"] == "exact") if grade == "exact" else ()
    because = f"its own check is exact, for {' and '.join(parts)} only" if parts else "its own evidence"
    return Status("supported", grade, given, because)


def _open(claim: Claim, registry: Registry) -> bool:
    """Tell whether a claim is a conjecture for which no check is declared."""
    return claim.kind == "cnj" and not (claim.assumption or claim.refuted or registry.evidence_of[claim.id])


def _best(claim: Claim, registry: Registry, evidence: Evidence) -> str:
    """Return the strongest kind among a claim's evidence, or "stated" while a declared check has no current run."""
    declared = {item.name for item in registry.evidence_of[claim.id]}
    records = [record for record in evidence.get(claim.id, ()) if record["name"] in declared]
    if not declared or declared - {record["name"] for record in records}:
        return "stated"
    if claim.refuted:
        return "exact"
    kinds = ["proved" if r["kind"] == "exact" and r["scope"] == "all" else r["kind"] for r in records]
    return min(kinds, key=STRENGTH.index)


def claim_rows(registry: Registry, evidence: Evidence) -> list[dict[str, Any]]:
    """Return one JSON-ready object per claim: id, kind, title, source, chapter, uses, status and evidence records."""
    computed = statuses(registry, evidence)
    keys = ("kind", "name", "scope", "cases", "seconds", "mutants", "mutants_rejected")
    return [
        {
            "id": claim.id,
            "kind": claim.kind,
            "title": claim.title,
            "source": claim.source,
            "chapter": claim.chapter,
            "uses": list(claim.uses),
            "corrects": claim.corrects or None,
            "status": str(computed[claim.id]),
            "because": computed[claim.id].because,
            "evidence": [{key: record[key] for key in keys} for record in evidence.get(claim.id, ())],
        }
        for claim in registry.claims.values()
    ]

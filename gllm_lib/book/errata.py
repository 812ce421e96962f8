"""The errata: what each source states and a counterexample refutes, in the order of the source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gllm_lib.book.markdown import rows, symbols
from gllm_lib.proofs.claims import Claim, Registry
from gllm_lib.proofs.sources import Sources, cited_ids
from gllm_lib.proofs.status import Status, statuses

Evidence = Mapping[str, Sequence[Mapping[str, Any]]]


def errata(listed: Sources, registry: Registry, evidence: Evidence) -> str:
    """Return the refuted statements by source, in the order of its items, each with its witness and its correction."""
    computed = statuses(registry, evidence)
    place = {item.id: number for number, item in enumerate(listed.items)}
    cited = {claim.id: cited_ids(claim.source) for claim in registry.claims.values() if claim.refuted}
    named = {label: min(items, key=lambda name: place.get(name, len(place))) for label, items in cited.items() if items}
    by_source: dict[str, list[Claim]] = {}
    for label in sorted(named, key=lambda label: place.get(named[label], len(place))):
        by_source.setdefault(named[label].split()[0], []).append(registry.claims[label])
    if not by_source:
        return "No statement is refuted."
    parts = [_counts(by_source, registry, computed)]
    for source, claims in by_source.items():
        parts.append(f"## {source} {{#errata-{source.lower()}}}")
        parts += [_entry(claim, named[claim.id], registry, computed, evidence) for claim in claims]
    return "\n\n".join(parts)


def _counts(by_source: Mapping[str, list[Claim]], registry: Registry, computed: Mapping[str, Status]) -> str:
    """Return the table of how many statements of each source are refuted, and how their corrections stand."""
    body = []
    for source, claims in by_source.items():
        words = [[computed[better.id].word for better in _corrections(claim, registry)] for claim in claims]
        proved = sum("proved" in found for found in words)
        other = sum(bool(found) and "proved" not in found for found in words)
        body.append([f"[{source}](#errata-{source.lower()})", *map(str, (len(claims), proved, other, words.count([])))])
    header = ["Source", "Refuted as printed", "with a correction proved", "otherwise corrected", "without a correction"]
    return rows(header, body, "|:---|---:|---:|---:|---:|")


def _corrections(claim: Claim, registry: Registry) -> list[Claim]:
    return [other for other in registry.claims.values() if claim.id in other.corrects.split()]


def _entry(claim: Claim, item: str, registry: Registry, computed: Mapping[str, Status], evidence: Evidence) -> str:
    """Return one erratum: where it stands, what is printed, the counterexample that ran, what is true instead."""
    where = re.sub(r" \([^()]*[a-z]{2}[^()]*\)$", "", item.partition(" ")[2]).replace("l. ", "Line ")
    title = claim.title.removesuffix(", as printed")
    title = title if title[1:2].isupper() or title[1:2].isdigit() else title[:1].lower() + title[1:]  # FP32 stays
    says = " ".join(symbols(record["says"]) for record in evidence.get(claim.id, []))
    better = "; ".join(f"@{other.id} {other.title}, {computed[other.id]}" for other in _corrections(claim, registry))
    quoted = "\n".join("> " + line for line in claim.statement.splitlines())
    return "\n\n".join(
        [
            f"### {where}: {title} {{#erratum-{claim.id} .unnumbered}}",
            f"**Printed** ({claim.source}; here @{claim.id}).",
            quoted,
            f"**Counterexample.** {says or 'Not run in this build.'}",
            f"**Instead.** {better or 'No correction is claimed'}.",
        ]
    )

"""Every chapter of the book runs: at smoke size, unless a default build of it is fresh."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gllm_lib.book.project import open_project, read_registry
from gllm_lib.book.run import Run
from gllm_lib.book.stage import evidence_by_claim
from gllm_lib.proofs.claims import THEOREM_LIKE
from gllm_lib.proofs.status import claim_rows

PROJECT = open_project(Path(__file__).parent)
REGISTRY = read_registry(PROJECT)


@pytest.mark.parametrize("chapter", PROJECT.notebooks)
def test_every_declared_check_ran_and_rejected_every_mutant(runs: dict[str, Run], chapter: str) -> None:
    declared = {(d.claim, d.name): d for d in REGISTRY.declared if d.chapter == chapter}
    records = {(r["claim"], r["name"]): r for r in runs[chapter].evidence}
    assert records.keys() == declared.keys()
    for key, record in records.items():
        assert record["cases"] >= 1, key
        assert record["mutants_rejected"] == record["mutants"] == len(declared[key].mutants), key


def test_every_claim_of_the_chapters_has_a_status_from_its_run(runs: dict[str, Run]) -> None:
    rows = claim_rows(REGISTRY, evidence_by_claim(runs))
    assert len(rows) == len(REGISTRY.claims)
    stated = [row["id"] for row in rows if row["status"] == "stated"]
    assert stated == []
    for row in rows:
        refuted = REGISTRY.claims[row["id"]].refuted
        assert refuted == (row["status"] == "refuted"), row["id"]
        if row["kind"] in THEOREM_LIKE and not refuted:
            assert len({record["kind"] for record in row["evidence"]}) >= 2, row["id"]
    json.dumps(rows)


def test_inline_values_hold_no_failure(runs: dict[str, Run]) -> None:
    values = [value for run in runs.values() for value in run.inline]
    assert values
    assert not [value for value in values if value.strip().lower() in ("", "nan", "inf", "none")]

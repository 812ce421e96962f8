"""Status is computed over ancestors: a small book in which each rule decides one claim."""

import pytest

from gllm_lib.proofs.claims import registry
from gllm_lib.proofs.status import claim_rows, statuses


def claim(label, uses="", classes="", title="T", extra=""):
    text = f'::: {{#{label} .claim {classes} source="new" uses="{uses}" {extra}}}\n## {title}\nx\n:::'
    return {"cell_type": "markdown", "source": text}


def check(label, kind, name="c", scope=None):
    scope_text = f', scope="{scope}"' if scope else ""
    text = f'@evidence("{label}", kind="{kind}"{scope_text}, mutants={{"near: m": {{"k": 1}}}})\ndef {name}(k=0): ...'
    return {"cell_type": "code", "source": text}


def record(kind, name="c", scope=None):
    keys = {"kind": kind, "name": name, "scope": scope, "cases": 1, "seconds": 0.1}
    return keys | {"mutants": 1, "mutants_rejected": 1}


def status_of(cells, evidence, label="prp-a"):
    return str(statuses(registry({"01-x": cells}), evidence)[label])


def test_no_evidence_and_no_run_are_stated():
    assert status_of([claim("prp-a")], {}) == "stated"
    assert status_of([claim("prp-a"), check("prp-a", "exact", scope="all")], {}) == "stated"


def test_one_declared_check_without_a_run_leaves_it_stated():
    cells = [claim("prp-a"), check("prp-a", "exact", "c", "all"), check("prp-a", "property", "d")]
    assert status_of(cells, {"prp-a": [record("exact", "c", "all")]}) == "stated"
    assert status_of(cells, {"prp-a": [record("exact", "c", "all"), record("property", "d")]}) == "proved"


def test_evidence_that_is_no_longer_declared_counts_for_nothing():
    assert status_of(
        [claim("prp-a"), check("prp-a", "numeric", "new")], {"prp-a": [record("exact", "old", "all")]}
    ) == ("stated")


@pytest.mark.parametrize(
    ("kind", "scope", "expected"),
    [
        ("exact", "all", "proved"),
        ("exact", "d <= 6", "supported (exact)"),
        ("property", None, "supported (property)"),
        ("numeric", None, "supported (numeric)"),
        ("simulation", None, "supported (simulation)"),
        ("empirical", None, "supported (empirical)"),
    ],
)
def test_the_best_kind_decides(kind, scope, expected):
    assert (
        status_of([claim("prp-a"), check("prp-a", kind, scope=scope)], {"prp-a": [record(kind, scope=scope)]})
        == expected
    )


def test_ancestors_weaken_and_definitions_do_not():
    cells = [
        claim("def-d"),
        claim("lem-b", uses="def-d"),
        check("lem-b", "numeric"),
        claim("prp-a", uses="lem-b"),
        check("prp-a", "exact", scope="all"),
    ]
    exact = record("exact", scope="all")
    assert status_of(cells, {"prp-a": [exact], "lem-b": [record("numeric")]}) == "supported (numeric)"
    assert status_of(cells, {"prp-a": [exact]}) == "stated"
    assert status_of(cells, {"lem-b": [record("numeric")]}, "def-d") == "defined"


def test_assumptions_are_named():
    cells = [
        claim("cnj-s", classes=".assumption", title="Assumption S"),
        claim("prp-a", uses="cnj-s"),
        check("prp-a", "exact", scope="all"),
    ]
    assert status_of(cells, {"prp-a": [record("exact", scope="all")]}) == "proved, given Assumption S"
    assert status_of(cells, {}, "cnj-s") == "assumed"


def test_a_conjecture_without_a_check_is_open_and_supports_nothing():
    cells = [claim("cnj-c"), claim("prp-a", uses="cnj-c"), check("prp-a", "exact", scope="all")]
    read = registry({"01-x": cells})
    found = statuses(read, {"prp-a": [record("exact", scope="all")]})
    assert str(found["cnj-c"]) == "open"
    assert (str(found["prp-a"]), found["prp-a"].because) == ("stated", "cnj-c, on which it rests, is open")
    checked = [claim("cnj-c"), check("cnj-c", "numeric")]
    assert status_of(checked, {"cnj-c": [record("numeric")]}, "cnj-c") == "supported (numeric)"


def test_a_refuted_statement_needs_its_counterexample_to_run():
    cells = [claim("prp-a", classes=".refuted"), check("prp-a", "counterexample")]
    assert status_of(cells, {"prp-a": [record("counterexample")]}) == "refuted"
    assert status_of(cells, {}) == "stated"


def test_rows_have_the_announced_shape():
    cells = [claim("prp-a"), check("prp-a", "exact", scope="all")]
    (row,) = claim_rows(registry({"04-x": cells}), {"prp-a": [record("exact", scope="all") | {"witnesses": {}}]})
    assert row["id"] == "prp-a"
    assert {"id", "kind", "title", "source", "chapter", "uses", "status", "evidence"} <= set(row)
    assert (row["kind"], row["chapter"], row["status"]) == ("prp", "04-x", "proved")
    assert row["evidence"] == [record("exact", scope="all")]


@pytest.mark.parametrize(("label", "classes"), [("def-a", ".refuted"), ("cnj-a", ".refuted .assumption")])
def test_whatever_is_refuted_says_so(label, classes):
    cells = [claim(label, classes=classes, title="Assumption A"), check(label, "counterexample")]
    assert status_of(cells, {label: [record("counterexample")]}, label) == "refuted"
    assert status_of(cells, {}, label) == "stated"


def test_what_a_definition_rests_on_weakens_across_chapters():
    first = [claim("lem-b"), check("lem-b", "simulation"), claim("def-d", uses="lem-b")]
    second = [claim("prp-a", uses="def-d"), check("prp-a", "exact", scope="all")]
    read = registry({"01-x": first, "02-y": second})
    exact = record("exact", scope="all")
    found = statuses(read, {"prp-a": [exact], "lem-b": [record("simulation")]})
    assert (str(found["prp-a"]), found["prp-a"].because) == ("supported (simulation)", "lem-b, on which it rests")
    assert str(statuses(read, {"prp-a": [exact]})["prp-a"]) == "stated"


def test_a_partial_scope_is_named_once():
    cells = [claim("prp-a"), check("prp-a", "exact", "c", "d <= 6"), check("prp-a", "exact", "e", "d = 7")]
    cells.append(check("prp-a", "property", "f"))
    records = [record("exact", "c", "d <= 6"), record("exact", "e", "d = 7"), record("property", "f")]
    found = statuses(registry({"01-x": cells}), {"prp-a": records})["prp-a"]
    assert (found.because, found.weakest) == ("its own check is exact, for d <= 6 and d = 7 only", "")


def test_an_ancestor_that_decides_is_kept_by_its_label():
    cells = [claim("lem-b"), check("lem-b", "exact", scope="d = 2")]
    cells += [claim("prp-a", uses="lem-b"), check("prp-a", "exact", scope="all")]
    read = registry({"01-x": cells})
    evidence = {"prp-a": [record("exact", scope="all")], "lem-b": [record("exact", scope="d = 2")]}
    assert statuses(read, evidence)["prp-a"].weakest == "lem-b"
    assert [row["because"] for row in claim_rows(read, evidence)][1] == "lem-b, on which it rests"
    assert statuses(read, {"prp-a": evidence["prp-a"]})["prp-a"].weakest == "lem-b"

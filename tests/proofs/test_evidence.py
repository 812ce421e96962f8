"""The decorator: what passes, what is rejected, and what is an error rather than a kill."""

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from gllm_lib.proofs.evidence import (
    EvidenceError,
    Refuted,
    Unknown,
    as_html,
    as_line,
    evidence,
    kind_and_scope,
    run_evidence,
)


def run(check, kind="property", mutants=None, given=None, scope=None, cases=50):
    return run_evidence("prp-x", check, kind=kind, mutants=mutants or {}, given=given, scope=scope, cases=cases)


def near_four(x, bound=4):
    """x stays below four."""
    assert x <= bound


DRAWN = {"x": st.integers(0, 4)}
NEAR = {"near: three": {"bound": 3}}


def test_a_check_that_holds_reports_its_cases_and_rejected_mutants():
    record = run(near_four, mutants=NEAR, given=DRAWN)
    assert (record["mutants"], record["mutants_rejected"]) == (1, 1)
    assert 5 <= record["cases"] <= 50
    assert record["says"] == "x stays below four."
    assert "1 of 1 mutant rejected" in as_line(record)


def test_a_failing_check_names_claim_check_and_witness(monkeypatch):
    monkeypatch.setenv("GLLM_CHAPTER", "04-sample")
    expected = r"04-sample, claim prp-x, check near_four \(property\) fails.*x=4"
    with pytest.raises(EvidenceError, match=expected):
        run(lambda_named(near_four, bound=3), mutants=NEAR, given=DRAWN)


def lambda_named(check, **fixed):
    def near_four(x, bound=4):
        return check(x, **fixed)

    return near_four


def test_a_living_mutant_is_an_error():
    with pytest.raises(EvidenceError, match="mutant 'near: five' lives"):
        run(near_four, mutants={"near: five": {"bound": 5}}, given=DRAWN)


@pytest.mark.parametrize("raised", [ValueError("no"), Unknown("timeout"), ZeroDivisionError()])
def test_another_exception_in_a_mutant_is_no_kill(raised):
    def check(step=None):
        if step is not None:
            raise raised

    with pytest.raises(EvidenceError, match="broke instead of being rejected"):
        run(check, kind="numeric", mutants={"near: x": {"step": 1}})


@pytest.mark.parametrize("raised", [ValueError("no"), Unknown("timeout")])
def test_unknown_and_errors_are_not_a_pass(raised):
    def check(step=None):
        raise raised

    with pytest.raises(EvidenceError, match="fails"):
        run(check, kind="numeric", mutants={"near: x": {"step": 1}})


def test_a_failed_health_check_is_no_kill():
    def check(x, bound=4):
        assume(bound == 4)

    with pytest.raises(EvidenceError, match="broke instead of being rejected"):
        run(check, mutants=NEAR, given=DRAWN)


def test_an_exact_mutant_needs_a_witness():
    def bare(bound=4):
        assert bound == 4

    def witnessed(bound=4):
        if bound != 4:
            raise Refuted(f"bound = {bound}")

    with pytest.raises(EvidenceError, match="bare assertion"):
        run(bare, kind="exact", mutants=NEAR, scope="all")
    assert run(witnessed, kind="exact", mutants=NEAR, scope="all")["witnesses"] == {"near: three": "bound = 3"}


def test_two_runs_draw_the_same_examples():
    seen = []

    def check(x, bound=10**9):
        seen.append(x)
        assert x <= bound

    def once():
        seen.clear()
        run(check, mutants={"near: zero": {"bound": 0}}, given={"x": st.integers(0, 10**9)})
        return list(seen)

    assert once() == once()


def test_a_returned_count_is_the_number_of_cases():
    assert run(lambda_counting(7), kind="numeric", mutants={"near: x": {"wrong": True}})["cases"] == 7


@pytest.mark.parametrize("returned", [0, -1, True, "7"])
def test_a_strange_count_is_an_error(returned):
    with pytest.raises(EvidenceError, match="at least 1"):
        run(lambda_counting(returned), kind="numeric", mutants={"near: x": {"wrong": True}})


def lambda_counting(number):
    def check(wrong=False):
        assert not wrong
        return number

    return check


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "proof", "mutants": NEAR}, "kind 'proof' is unknown"),
        ({"kind": "property", "mutants": {}}, "without a mutant cannot fail"),
        ({"kind": "exact", "mutants": NEAR}, "names its scope"),
        ({"kind": "numeric", "mutants": {"three": {"bound": 3}}}, "no mutant is near"),
        ({"kind": "numeric", "mutants": NEAR, "cases": 0}, "cases is 0"),
        ({"kind": "numeric", "mutants": {"near: x": {"bond": 3}}, "given": DRAWN}, "replaces bond"),
        ({"kind": "numeric", "mutants": {"near: x": {}}, "given": DRAWN}, "replaces nothing"),
        ({"kind": "numeric", "mutants": {"near: x": {"x": 3}}, "given": DRAWN}, "replaces x"),
        ({"kind": "numeric", "mutants": NEAR}, "draws x; name a strategy"),
        ({"kind": "property", "mutants": NEAR}, "property evidence draws its cases"),
        ({"kind": "exact", "scope": "all", "mutants": NEAR, "given": DRAWN}, "exact evidence draws no examples"),
    ],
)
def test_a_malformed_declaration_is_refused(options, message):
    with pytest.raises(EvidenceError, match=message):
        evidence("prp-x", **options)(near_four)


def test_counterexamples_need_no_near_mutant():
    evidence("prp-x", kind="counterexample", mutants={"corrected": {"holds": True}})(_fails_at_the_witness)


def _fails_at_the_witness(holds=False):
    """The printed statement is false here."""
    assert not holds


def test_html_is_escaped():
    record = run(near_four, mutants={"near: <b>": {"bound": 3}}, given=DRAWN)
    assert "<b><b>" not in as_html(record)
    assert "near: &lt;b&gt;" in as_html(record)


def test_a_check_that_asserts_nothing_lets_its_mutants_live():
    def idle(bound=4):
        return bound

    with pytest.raises(EvidenceError, match="lives"):
        run(idle, kind="numeric", mutants=NEAR)


def test_no_valid_example_is_no_evidence():
    def filtered(x, bound=4):
        assume(x > 4)

    with pytest.raises(EvidenceError, match="fails"):
        run(filtered, mutants=NEAR, given=DRAWN)


def test_a_check_that_keeps_state_is_found_out():
    calls = []

    def first_call_only(bound=4):
        calls.append(bound)
        assert len(calls) == 1

    with pytest.raises(EvidenceError, match="passes once and then fails"):
        run(first_call_only, kind="numeric", mutants=NEAR)


def test_an_assertion_inside_another_package_is_no_kill(tmp_path):
    file = tmp_path / "site-packages" / "other.py"

    def check(bound=4):
        if bound != 4:
            exec(compile("assert False", str(file), "exec"))

    with pytest.raises(EvidenceError, match=r"broke in other\.py, not in the check"):
        run(check, kind="numeric", mutants=NEAR)


def test_numpy_s_comparisons_do_kill():
    def check(bound=4):
        np.testing.assert_allclose(bound, 4)

    assert run(check, kind="numeric", mutants=NEAR)["mutants_rejected"] == 1


def test_a_generator_is_no_check():
    def later(bound=4):
        yield bound

    with pytest.raises(EvidenceError, match="a check returned"):
        run(later, kind="numeric", mutants=NEAR)


def test_a_long_witness_is_cut():
    def check(bound=4):
        if bound != 4:
            raise Refuted("9" * 10**6)

    record = run(check, kind="exact", mutants=NEAR, scope="all")
    assert len(record["witnesses"]["near: three"]) == 2000
    assert len(as_html(record)) < 1000


def test_a_bare_assert_is_told_by_its_source(tmp_path):
    file = tmp_path / "cell.py"
    file.write_text("def check(x=1, bound=1):\n    assert sum(\n        [x, 0]\n    ) <= bound\n")
    names: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), names)  # pytest would word an assert of its own
    record = run(names["check"], kind="numeric", mutants={"near: none": {"bound": 0}})
    (told,) = record["witnesses"].values()
    assert told.endswith("sum( [x, 0] ) <= bound")
    with pytest.raises(EvidenceError, match=r"fails: .*sum\( \[x, 0\] \) <= bound \| .*x=2"):
        run(names["check"], mutants={"near: none": {"bound": 0}}, given={"x": st.integers(2, 3)})


@pytest.mark.parametrize(
    ("scope", "shown"), [(None, "exact"), ("d <= 6", "exact (d <= 6)"), ("(a), (b)", "exact (a), (b)")]
)
def test_a_scope_stands_in_one_pair_of_brackets(scope, shown):
    assert kind_and_scope({"kind": "exact", "scope": scope}) == shown

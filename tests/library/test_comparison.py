"""What two records permit one to say: every unfair comparison that the source warns of is refused, with the reason."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.comparison import (
    ARMS,
    UNSTATED,
    ArchitectureRecord,
    CapabilityRecord,
    EvaluationRecord,
    Missing,
    ModelInstance,
    OptimizerRecord,
    Quantity,
    RecipeRecord,
    SystemsRecord,
    TransferRow,
    compare,
    decode,
    encode,
    from_study,
    scalar_cost,
    schema,
)
from gllm_lib.comparison.records import MATCHED, NAMES, NEVER, OWN

ROOT = Path(__file__).resolve().parents[2]
RECORDS = sorted(ROOT.glob("results/*/records/*-s0.json"))
GAP = Missing("unmeasured", "nobody ran it")
WEIGHTS = {"time": Quantity(1, "s"), "memory": Quantity(Fraction(1, 2), "byte")}
A = ModelInstance(
    "A",
    ArchitectureRecord("commit 1", "tokens", "logits", "none", "4 attention", 1000),
    OptimizerRecord("AdamW", "cosine", "the weights"),
    SystemsRecord("one CPU", "torch 2", "float32", "eager", "none", 8, 3, "mean"),
    RecipeRecord(
        "corpus", "1000 steps", "none", 1, "held out", 4, "best", "1000 steps", "4 runs", "learning rates", 100
    ),
    EvaluationRecord("retrieval", "uniform", 64, "accuracy", 0, "v1", "one answer"),
    CapabilityRecord(1, 1, 1, 1, 1),
    {"time": Quantity(2, "s"), "memory": Quantity(10, "byte")},
    (0.5, 0.75),
)
B = replace(A, name="B", architecture=replace(A.architecture, identity="commit 2", layers="4 recurrent"))
EFFECT = "effect of the architecture"


def changed(record, name, value):
    """Return the record with one field, given by its dotted name, changed."""
    section, _, key = name.partition(".")
    return replace(record, **{section: replace(getattr(record, section), **{key: value}) if key else value})


def test_a_matched_pair_is_granted_what_it_shows_and_no_more():
    found = compare(A, replace(B, scores=(0.75, 1.0)), WEIGHTS, 0.5)
    verdicts = {claim: finding.verdict for claim, finding in found.items()}
    for claim in ("score difference", *ARMS, "measured costs", "cost ratio at the target", EFFECT):
        assert verdicts.pop(claim) == "granted", found[claim]
    assert set(verdicts.values()) == {"refused"}
    assert set(NEVER) < set(verdicts)
    for claim in NEVER:
        assert found[claim].says


@pytest.mark.parametrize(
    ("claim", "name", "value"),
    [
        (EFFECT, "systems.precision", "bfloat16"),  # an approximation is a systems intervention (l. 79)
        (EFFECT, "systems.kernels", "fused"),
        (EFFECT, "recipe.data", "another corpus"),  # no causal effect where data differ (l. 83)
        (EFFECT, "recipe.trials", 40),
        (EFFECT, "optimizer.rule", "Muon"),
        (EFFECT, "recipe.passes", 2),  # equal parameters, other computation (l. 41)
        ("common recipe", "recipe.budget", "2000 steps"),
        ("common recipe", "optimizer.schedule", "constant"),
        (EFFECT, "optimizer.coordinates", "diag(1, 2)"),
        ("common recipe", "recipe.post_training", "preferences"),
        ("equal tuning", "recipe.trials", 40),
        ("equal tuning", "recipe.tuning_data", "the test set"),
        ("equal tuning", "recipe.selection", "last"),
        ("equal tuning", "recipe.stopping", "early"),
        ("equal tuning", "recipe.tuning_cost", "40 runs"),
        ("restricted envelope", "recipe.cap", 200),
        ("score difference", "evaluation.task", "copying"),
        ("score difference", "evaluation.prompts", "hard ones"),
        ("score difference", "evaluation.scoring", "perplexity"),
        ("score difference", "evaluation.context", 128),
        ("score difference", "evaluation.evaluator", "v2"),
        ("score difference", "architecture.decoder", "linear probe"),  # a latent predictor (l. 103)
        ("measured costs", "systems.hardware", "one GPU"),  # equal wall time hides hardware (l. 97)
        ("measured costs", "systems.batch", 1),
        ("cost ratio at the target", "evaluation.prompts", "hard ones"),
    ],
)
def test_an_unfair_comparison_is_refused_with_the_field(claim, name, value):
    finding = compare(A, changed(B, name, value), WEIGHTS, 0.5)[claim]
    assert (finding.verdict, finding.fields) == ("refused", (name,))
    assert name in finding.says
    gap = compare(A, changed(B, name, GAP), WEIGHTS, 0.5)[claim]
    assert (gap.verdict, gap.fields) == ("unknown", (name,))
    assert GAP.reason in gap.says


@pytest.mark.parametrize(
    ("claim", "other", "says"),
    [
        (EFFECT, A, "nothing that could have this effect differs"),
        ("effect of the systems", B, "differ in architecture"),
        (EFFECT, replace(B, scores=GAP), "scores"),
        ("restricted envelope", changed(B, "recipe.allowed", GAP), "allowed"),
        ("cost ratio at the target", replace(B, scores=(0.1, 0.2)), "B does not reach"),
        ("cost ratio at the target", replace(B, costs={"time": Quantity(2, "s"), "memory": GAP}), "memory"),
        ("cost ratio at the target", replace(B, costs={n: Quantity(0, q.unit) for n, q in A.costs.items()}), "0"),
        ("measured costs", changed(changed(B, "systems.repetitions", 3), "systems.aggregation", "fastest"), "differ"),
        ("capability order", B, "neither dominates"),
        ("capability order", changed(B, "capability.state", GAP), "nobody ran it"),
    ],
)
def test_a_claim_that_needs_more_than_equal_fields(claim, other, says):
    finding = compare(A, other, WEIGHTS, 0.5)[claim]
    assert finding.verdict in ("refused", "unknown")
    assert says in finding.says


@pytest.mark.parametrize("name", ["architecture.layers", "optimizer.rule", "systems.kernels", "recipe.passes"])
def test_a_field_that_one_side_does_not_state_is_no_difference(name):
    claim = f"effect of the {'passes' if name == 'recipe.passes' else name.split('.')[0]}"
    for pair in ((A, changed(A, name, GAP)), (changed(A, name, GAP), A)):
        finding = compare(*pair)[claim]
        assert (finding.verdict, finding.fields) == ("unknown", (name,))


@pytest.mark.parametrize("name", ["architecture.identity", "architecture.layers", "architecture.parameters"])
def test_an_effect_of_what_is_not_identified_is_unknown(name):
    """Another field of the section differs, so something could have the effect; FTIP 3.4.4 still leaves it unknown."""
    gap = changed(B, name, GAP)
    for pair in ((A, gap), (gap, A), (changed(A, name, GAP), gap)):
        finding = compare(*pair)[EFFECT]
        assert (finding.verdict, finding.fields) == ("unknown", (name,))


def test_an_effect_at_no_stated_cost_is_unknown():
    for costs in ({}, {"time": GAP}):
        for pair in ((A, replace(B, costs=costs)), (replace(B, costs=costs), A)):
            finding = compare(*pair)[EFFECT]
            assert (finding.verdict, finding.fields) == ("unknown", ("costs",))
    assert compare(A, replace(B, costs={"time": Quantity(1, "s"), "energy": GAP}))[EFFECT].verdict == "granted"


def test_a_single_fastest_run_defines_no_cost():
    for name, value in (("systems.repetitions", 1), ("systems.aggregation", "fastest")):
        finding = compare(changed(A, name, value), changed(B, name, value))["measured costs"]
        assert finding.verdict == "refused"
        assert name in finding.fields


def test_costs_that_nobody_states_are_unknown_and_those_that_both_do_are_named():
    missing = replace(B, costs={"time": GAP, "energy": Quantity(1, "J")})
    for other in (missing, replace(B, costs={})):
        assert compare(A, other)["measured costs"].verdict == compare(other, A)["measured costs"].verdict == "unknown"
    assert compare(A, replace(B, costs=B.costs | {"memory": GAP}))["measured costs"].says.endswith(": time")


def test_dominance_is_declared_by_name():
    assert compare(A, changed(B, "capability.state", 2))["capability order"].says == "B dominates"
    finding = compare(A, changed(changed(B, "capability.state", 2), "capability.portability", 0))["capability order"]
    assert finding.verdict == "refused"


def test_costs_at_a_target_need_weights_and_a_target():
    assert compare(A, B)["cost ratio at the target"].verdict == "unknown"
    assert compare(A, B, WEIGHTS)["cost ratio at the target"].verdict == "unknown"
    assert "1 : 1" in compare(A, B, WEIGHTS, 0.5)["cost ratio at the target"].says


@given(
    st.lists(st.sampled_from([*NAMES, "scores"]), max_size=4),
    st.lists(st.sampled_from(NAMES), max_size=2),
    st.sampled_from([A, B]),
)
def test_erasing_a_field_grants_nothing_and_order_does_not_matter(erased, moved, b):
    a = A
    for name in moved:
        b = changed(b, name, 7)
    before, mirrored = compare(a, b), compare(b, a)
    assert {k: f.verdict for k, f in before.items()} == {k: f.verdict for k, f in mirrored.items()}
    for name in erased:
        b = changed(b, name, GAP)
    after = compare(a, b)
    assert all(before[claim].verdict == "granted" for claim in after if after[claim].verdict == "granted")
    needs = {claim: {*MATCHED[claim], *OWN.get(claim, ())} for claim in MATCHED}
    assert all(set(erased) & needs[claim] == set() for claim in MATCHED if after[claim].verdict == "granted")


@settings(max_examples=25)
@given(st.lists(st.sampled_from([*NAMES, "scores"]), max_size=9))
def test_records_survive_json_and_meet_their_schema(erased):
    record = A
    for name in erased:
        record = changed(record, name, UNSTATED if len(name) % 2 else GAP)
    data = json.loads(json.dumps(encode(record)))
    jsonschema.validate(data, schema())
    assert (
        decode({k: v for k, v in data.items() if v != asdict(UNSTATED)})
        == decode(data)
        == record
        == pickle.loads(pickle.dumps(record))
    )


@pytest.mark.parametrize(
    "data",
    [
        {},
        "A",
        {"name": 1},
        {"name": "A", "score": [1]},
        {"name": "A", "recipe": {"dat": "x"}},
        {"name": "A", "recipe": "x"},
        {"name": "A", "recipe": {"data": {"kind": "lost", "reason": "x"}}},
        {"name": "A", "costs": {"time": {"value": -1, "unit": "s"}}},
        {"name": "A", "costs": {"time": {"value": 1}}},
        {"name": "A", "costs": {"time": 1}},
        {"name": "A", "costs": {"time": {"value": 1, "unit": 2}}},
        {"name": "A", "scores": []},
        {"name": "A", "scores": 0.5},
        {"name": "A", "scores": {"kind": "missing", "reason": " "}},
    ],
)
def test_a_malformed_record_is_refused_by_reader_and_schema(data):
    with pytest.raises((InputError, InputTypeError)):
        decode(data)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema())


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_the_records_of_our_studies_load(path):
    instance = from_study(json.loads(path.read_text(encoding="utf-8")))
    data = json.loads(json.dumps(encode(instance)))
    jsonschema.validate(data, schema())
    assert decode(data) == instance
    assert compare(instance, instance)[EFFECT].verdict == "unknown"  # precision, batch, ... are not in our records
    assert instance.costs["wall time"].unit == "min"


def test_a_study_record_without_its_fields_is_refused():
    with pytest.raises(InputError, match="lacks 'config'"):
        from_study({"study": "readouts"})


def test_scalar_costs():
    assert scalar_cost(A.costs, WEIGHTS) == 7
    assert scalar_cost({"time": Quantity(1, "s"), "memory": GAP}, {**WEIGHTS, "memory": Quantity(0, "byte")}) == 1
    assert scalar_cost({"time": GAP, "memory": Quantity(1, "byte")}, WEIGHTS) == Missing(
        "unmeasured", f"time: {GAP.reason}"
    )
    assert isinstance(scalar_cost({"time": Quantity(1, "s")}, WEIGHTS), Missing)
    with pytest.raises(InputError, match="no weight for memory"):
        scalar_cost(A.costs, {"time": Quantity(1, "s")})
    with pytest.raises(InputError, match="convert"):
        scalar_cost(A.costs, {**WEIGHTS, "time": Quantity(1, "min")})


def test_a_row_of_the_transfer_matrix_is_complete_with_every_arm_only():
    row = TransferRow("probe", "difference", "recipe", {"cost": "FLOPs"}, "this task", dict.fromkeys(ARMS, (0, 1)))
    assert row.status == "complete"
    for arm in ARMS:
        assert replace(row, cells={k: v for k, v in row.cells.items() if k != arm}).status == "open"
        assert replace(row, cells={**row.cells, arm: GAP}).status == "open"
        broken = {**dict.fromkeys(ARMS, GAP), arm: Missing("incompatible", "another interface")}
        assert replace(row, cells=broken).status == "incompatible"


def test_values_of_another_kind_are_refused():
    for value in ([1], None, float("nan"), True):
        with pytest.raises((InputError, InputTypeError)):
            RecipeRecord(data=value)
    for scores in ((), (float("inf"),), ("x",)):
        with pytest.raises((InputError, InputTypeError)):
            replace(A, scores=scores)
    with pytest.raises(InputError):
        Quantity(-1, "s")


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda: compare(A, B, WEIGHTS, float("nan")), InputError, "target is nan"),
        (lambda: compare(A, B, WEIGHTS, "high"), InputTypeError, "target is 'high'"),
        (lambda: compare(A, asdict(B)), InputTypeError, "a record is a dict"),
        (lambda: compare(A, B, {"time": 1, "memory": 1}, 0.5), InputTypeError, "the weight of time is 1"),
        (lambda: replace(A, architecture="transformer"), InputTypeError, "give ArchitectureRecord"),
        (lambda: replace(A, recipe=A.optimizer), InputTypeError, "give RecipeRecord"),
        (lambda: replace(A, costs={"time": 5}), InputTypeError, "the cost of time is 5"),
        (lambda: replace(A, costs="much"), InputTypeError, "costs is 'much'"),
        (lambda: replace(A, scores="ab"), InputTypeError, "scores are 'ab'"),
        (lambda: replace(A, scores=0.5), InputTypeError, "scores are 0.5"),
        (lambda: Quantity(1, 5), InputTypeError, "a unit is 5"),
        (lambda: encode(asdict(A)), InputTypeError, "give a ModelInstance"),
        (lambda: scalar_cost({"time": Quantity(1e308, "s")}, {"time": Quantity(1e9, "s")}), InputError, "inf"),
        (lambda: from_study(None), InputError, "of another kind"),
        (lambda: from_study({"config": {}, "versions": {}, "study": "s", "cell": "c", "seed": 0}), InputError, "lacks"),
        (lambda: TransferRow("p", "e", "c", {}, "b", {"no arm": (0, 1)}), InputError, "no arm 'no arm'"),
        (lambda: TransferRow("p", "e", "c", {}, "b", {ARMS[0]: (1, 0)}), InputError, "holds no number"),
    ],
)
def test_what_is_no_record_is_refused(call, error, told):
    with pytest.raises(error, match=told):
        call()


def test_scores_of_any_kind_become_json():
    record = changed(replace(A, scores=np.array([0.5, 0.25], dtype=np.float32)), "evaluation.seed", np.int64(3))
    assert record.scores == (0.5, 0.25)
    assert decode(json.loads(json.dumps(encode(record)))).scores == (0.5, 0.25)
    assert encode(replace(A, scores=(Fraction(1, 4),)))["scores"] == [0.25]
    huge = replace(A, scores=(1e308, 1e308))
    assert compare(huge, huge, WEIGHTS, Fraction(1, 2))["cost ratio at the target"].verdict == "granted"

"""Frontiers over random finite families in exact rationals, against their definitions by brute force."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations, product
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.comparison import (
    Missing,
    Piece,
    attained,
    certified_gain,
    completions,
    crossing,
    dominates,
    envelope,
    frontier,
    inverse_cost,
    iso_quality_ratio,
    pareto,
    reversing_weights,
    witness_cost,
)

F = Fraction
numbers = st.fractions(0, 4, max_denominator=3)
scores = st.fractions(-2, 2, max_denominator=3)
costs = st.one_of(numbers, numbers, st.just(inf))
families = st.lists(st.tuples(costs, scores), max_size=6)
parts = st.lists(st.builds(Piece, costs, scores, st.booleans(), st.booleans()), max_size=5)
FAMILY = [(2, F(1, 2)), (5, F(3, 4)), (3, F(1, 4)), (inf, 9)]
GAP = Missing("unmeasured", "nobody ran it")


def unrolled(piece, terms=60):
    """Return finitely many interventions that come as near to a piece's cost and score as 1/terms."""
    if piece.cost == inf:
        return []
    shifts = [F(0)] if piece.reached else [F(1, n) for n in range(1, terms)]
    losses = [F(0)] * len(shifts) if piece.attained else [F(1, n) for n in range(1, terms)]
    if len(shifts) == 1:
        shifts = shifts * len(losses)
    return [(piece.cost + shift, piece.score - loss) for shift, loss in zip(shifts, losses, strict=True)]


@given(families, numbers, scores)
def test_a_finite_family_gives_what_its_definitions_say(family, budget, target):
    feasible = [score for cost, score in family if cost <= budget]
    value = frontier(family, budget)
    assert value == (max(feasible) if feasible else -inf)
    assert attained(family, budget) == bool(feasible)
    cheapest = min((cost for cost, score in family if score >= target), default=inf)
    assert inverse_cost(family, target) == witness_cost(family, target) == cheapest
    assert (value >= target) == (inverse_cost(family, target) <= budget)


@given(parts, numbers, numbers, scores)
def test_the_laws_of_a_frontier_and_its_inverse(family, budget, more, target):
    value, least = frontier(family, budget), inverse_cost(family, target)
    assert value <= frontier(family, budget + more)
    assert value < target or least <= budget
    assert budget <= least or value >= target
    below = target - F(1, 1000)  # no score lies in between: denominators are at most 3
    assert witness_cost(family, below) == least <= witness_cost(family, target)


@given(parts, numbers)
def test_a_piece_stands_for_the_interventions_it_sums_up(family, budget):
    listed = [each for piece in family for each in unrolled(piece)]
    value, near = frontier(family, budget), frontier(listed, budget)
    assert near <= value
    assert (
        value == -inf
        or value - near <= F(1, 59)
        or any(not p.reached and p.cost < budget < p.cost + F(1, 59) for p in family)
    )
    if attained(family, budget) and all(p.reached for p in family):
        assert near == value


def test_the_reference_family():
    assert [frontier(FAMILY, c) for c in (0, 2, F(49, 10), 5, 10**9)] == [-inf, F(1, 2), F(1, 2), F(3, 4), F(3, 4)]
    assert inverse_cost(FAMILY, 1) == inf
    harmonic = [Piece(0, 1, reached=False)]  # costs 1/n, score 1
    assert (frontier(harmonic, 0), frontier(harmonic, F(1, 10**9))) == (-inf, 1)
    assert inverse_cost(harmonic, 1) == 0
    climbing = [Piece(1, 1, attained=False)]
    assert (inverse_cost(climbing, 1), witness_cost(climbing, 1)) == (1, inf)
    assert not attained(climbing, 1)
    assert frontier([Piece(1, inf, attained=False)], 2) == inf


def test_the_ratio_on_and_off_its_domain():
    assert iso_quality_ratio(1, 3) == F(1, 3)
    assert iso_quality_ratio(0, 3) == 0
    for a, b in ((0, 0), (1, 0), (inf, 1), (1, inf), (inf, inf), (GAP, 1), (1, GAP)):
        assert isinstance(iso_quality_ratio(a, b), Missing)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_the_envelope_is_the_least_nondecreasing_majorant(measured):
    found = envelope(measured)
    above = [
        each
        for each in product(range(4), repeat=len(measured))
        if list(each) == sorted(each) and all(x >= y for x, y in zip(each, measured, strict=True))
    ]
    assert tuple(found) in above
    assert all(x <= y for each in above for x, y in zip(found, each, strict=True))
    assert envelope(found) == found == list(np.maximum.accumulate(measured))


@given(st.lists(st.tuples(scores, numbers, st.fractions(0, 1, max_denominator=4)), min_size=1, max_size=4), scores)
def test_a_crossing_lies_in_its_interval(drawn, target):
    grid = list(range(len(drawn)))
    bands = [(low, low + width) for low, width, _ in drawn]
    truth = [low + share * width for low, width, share in drawn]
    first = next((c for c, score in zip(grid, truth, strict=True) if score >= target), inf)
    earliest, latest = crossing(grid, bands, target)
    assert earliest <= first <= latest


coordinates = st.one_of(st.integers(0, 2), st.just(GAP))
vectors = st.lists(coordinates, min_size=3, max_size=3)


@given(vectors, vectors, vectors)
def test_dominance_is_a_strict_partial_order(a, b, c):
    assert not dominates(a, a)
    assert not (dominates(a, b) and dominates(b, a))
    assert not (dominates(a, b) and dominates(b, c)) or dominates(a, c)
    assert dominates(a, b) == dominates(b, a, [-1, -1, -1])
    front = pareto([a, b, c])
    assert front
    assert all(k in front for k, v in enumerate((a, b, c)) if GAP in v)


def test_a_missing_coordinate_orders_nothing():
    cycle = [(1, 0, GAP), (0, GAP, 1), (GAP, 1, 0)]
    assert pareto(cycle) == [0, 1, 2]
    assert not any(dominates(a, b) for a, b in permutations(cycle, 2))
    with pytest.raises(TypeError):
        GAP < 1  # noqa: B015


@given(families, numbers, numbers)
def test_a_certificate_bounds_the_gain(family, budget, more):
    now, then = frontier(family, budget), frontier(family, budget + more)
    bound = certified_gain(now, then + F(1, 2))
    assert isinstance(bound, Missing) == (now == -inf)
    assert now == -inf or then - now <= bound == then - now + F(1, 2)


def test_no_finite_bound_certifies_nothing():
    for pair in ((-inf, -inf), (0, inf), (-inf, 1)):
        assert isinstance(certified_gain(*pair), Missing)
    with pytest.raises(InputError, match="never falls"):
        certified_gain(1, 0)


@given(families.filter(lambda f: any(c != inf for c, _ in f)), numbers, scores)
def test_completions_enclose_every_frontier_that_agrees(family, budget, other):
    grid = {cost for cost, _ in family if cost != inf}
    measured = [(cost, frontier(family, cost)) for cost in grid]
    low, high = completions(measured, budget, -2, 2)
    assert low <= max(frontier(family, budget), -2) <= high
    changed = [*family, (budget, other)]
    agrees = all(frontier(changed, cost) == value for cost, value in measured)
    assert agrees == (other <= high)


def test_two_frontiers_agree_on_what_was_measured():
    assert completions([(0, 0), (3, 0)], 5, 0, 1) == (0, 1)
    assert completions([(0, 0), (3, 1)], 5, 0, 1) == (1, 1)  # an attained bound
    with pytest.raises(InputError, match="fall"):
        completions([(0, 1), (3, 0)], 5, 0, 1)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=4), st.lists(numbers, min_size=4, max_size=4))
def test_weights_reverse_an_order_or_one_side_is_nowhere_larger(pairs, weights):
    a, b = zip(*pairs, strict=True)
    found = reversing_weights(a, b)
    order = np.dot(weights[: len(a)], np.array(a) - np.array(b))
    if found is None:
        assert (all(x <= y for x, y in pairs) and order <= 0) or (all(x >= y for x, y in pairs) and order >= 0)
    else:
        assert np.dot(found[0], a) < np.dot(found[0], b)
        assert np.dot(found[1], a) > np.dot(found[1], b)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: frontier(FAMILY, -1), InputError),
        (lambda: frontier(FAMILY, inf), InputError),
        (lambda: frontier([(-1, 0)], 1), InputError),
        (lambda: frontier([(1, float("nan"))], 1), InputError),
        (lambda: frontier([(1, inf)], 1), InputError),
        (lambda: Piece(1, -inf, attained=False), InputError),
        (lambda: Piece(1, 1, reached=1), InputTypeError),
        (lambda: frontier([(GAP, 0)], 1), InputTypeError),
        (lambda: frontier([("1", 0)], 1), InputTypeError),
        (lambda: inverse_cost(FAMILY, inf), InputError),
        (lambda: envelope([1, float("nan")]), InputError),
        (lambda: iso_quality_ratio(-1, 1), InputError),
        (lambda: crossing([1], [(1, 0)], 0), InputError),
        (lambda: crossing([1], [(inf, inf)], 0), InputError),
        (lambda: crossing([1], [(0, 1, 2)], 0), InputTypeError),
        (lambda: crossing([float("nan")], [(0, 1)], 0), InputError),
        (lambda: crossing([GAP], [(0, 1)], 0), InputTypeError),
        (lambda: frontier(5, 1), InputTypeError),
        (lambda: frontier([5], 1), InputTypeError),
        (lambda: frontier([(1, 2, True, True, 3)], 1), InputTypeError),
        (lambda: iso_quality_ratio(1e308, 1e-308), InputError),
        (lambda: completions([], float("nan"), 0, 1), InputError),
        (lambda: completions([], 1, 2, 1), InputError),
        (lambda: reversing_weights([GAP], [1]), InputTypeError),
        (lambda: reversing_weights([float("nan")], [1]), InputError),
        (lambda: crossing([1, 1], [(0, 1), (0, 1)], 0), InputError),
        (lambda: crossing([1], [], 0), InputError),
        (lambda: dominates([1], [1, 2]), InputError),
        (lambda: dominates([1], [1], [2]), InputError),
        (lambda: reversing_weights([1], [1, 2]), InputError),
        (lambda: Missing("lost", "why"), InputError),
        (lambda: Missing("missing", " "), InputError),
    ],
)
def test_bad_input_is_refused(call, error):
    with pytest.raises(error):
        call()


def test_numbers_of_every_size_and_type_are_compared_as_they_are():
    assert dominates(np.array([3], dtype=np.uint8), np.array([2], dtype=np.uint8))
    assert not dominates(np.array([2], dtype=np.uint8), np.array([3], dtype=np.uint8))
    assert dominates(np.array([127], dtype=np.int8), np.array([-128], dtype=np.int8))
    assert dominates([10**400], [1.5])
    assert iso_quality_ratio(np.float32(3), np.float32(2)) == 1.5
    assert iso_quality_ratio(10**400, 10**399) == 10

"""Levels: from level profiles to coordinates and back, and one grade per level against one per coordinate."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.grading import (
    affinity,
    allocation,
    coarsen,
    fourth_root_grades,
    gain,
    geometric_profiles,
    select,
    select_levels,
    spread,
)
from gllm_lib.proofs.strategies import profile_pairs

EPS = np.finfo(float).eps


@st.composite
def levelled_pairs(draw, **kwargs):
    """Draw level profiles a and s and a level for each coordinate, in no particular order."""
    a, s = draw(profile_pairs(max_size=5, **kwargs))
    extra = draw(st.lists(st.integers(0, len(a) - 1), max_size=8))
    return a, s, np.array(draw(st.permutations(list(range(len(a))) + extra)))


@st.composite
def grouped_pairs(draw):
    """Draw two coordinate profiles that need not be uniform within levels, and a level for each coordinate."""
    alpha, tau = draw(profile_pairs(max_size=8))
    levels = draw(st.lists(st.integers(0, 2), min_size=len(alpha), max_size=len(alpha)))
    return alpha, tau, np.unique(levels, return_inverse=True)[1]


def test_allocation_lists_the_level_of_each_coordinate():
    assert allocation([2, 1, 3]).tolist() == [0, 0, 1, 2, 2, 2]


@given(case=levelled_pairs(spread=345.0))
def test_spreading_shares_equally_and_coarsening_undoes_it(case):
    a, _, level_of = case
    profile = spread(a, level_of)
    assert profile.shape == level_of.shape
    assert profile.sum() == pytest.approx(1.0, abs=16 * EPS)
    assert coarsen(profile, level_of) == pytest.approx(a, rel=16 * EPS, abs=0.0)
    for level, weight in enumerate(a):
        members = profile[level_of == level]
        assert members.tolist() == [weight / len(members)] * len(members)


@given(case=levelled_pairs(), clip=st.one_of(st.none(), st.floats(1.0, 10.0)))
def test_profiles_uniform_within_levels_need_one_grade_per_level(case, clip):
    a, s, level_of = case
    alpha, tau = spread(a, level_of), spread(s, level_of)
    by_level, by_coordinate, small = (
        select_levels(alpha, tau, level_of, clip),
        select(alpha, tau, clip),
        select(a, s, clip),
    )
    assert by_level.gain == pytest.approx(by_coordinate.gain, rel=64 * EPS, abs=0.0)
    assert by_level.gain == pytest.approx(small.gain, rel=64 * EPS, abs=0.0)
    assert by_level.g == pytest.approx(by_coordinate.g, rel=64 * EPS, abs=0.0)
    assert by_level.g == pytest.approx(small.g[level_of], rel=64 * EPS, abs=0.0)
    for level in range(len(a)):
        assert np.ptp(by_coordinate.g[level_of == level]) == 0.0  # equal ratios give equal grades to the last bit


@given(case=levelled_pairs(), other=st.integers(1, 5))
def test_the_affinity_does_not_depend_on_the_allocation(case, other):
    a, s, level_of = case
    assert affinity(spread(a, level_of), spread(s, level_of)) == pytest.approx(affinity(a, s), rel=64 * EPS, abs=0.0)
    level_of = np.append(level_of, [0] * other)
    assert affinity(spread(a, level_of), spread(s, level_of)) == pytest.approx(affinity(a, s), rel=64 * EPS, abs=0.0)


@given(
    case=grouped_pairs(), clip=st.one_of(st.none(), st.floats(1.0, 10.0)), log_grades=st.tuples(*[st.floats(-2, 2)] * 3)
)
def test_one_grade_per_level_is_best_among_level_grades_on_any_profiles(case, clip, log_grades):
    alpha, tau, level_of = case
    found = select_levels(alpha, tau, level_of, clip)
    assert found.gain == pytest.approx(gain(found.g, alpha, tau), rel=400 * EPS, abs=0.0)
    assert found.gain >= select(alpha, tau, clip).gain * (1 - 64 * EPS)
    if clip is None:
        squared = affinity(coarsen(alpha, level_of), coarsen(tau, level_of)) ** 2
        assert found.gain == pytest.approx(squared, rel=64 * EPS, abs=0.0)
    low, high = (0.0, 2.0) if clip is None else (0.0, math.log(clip))
    others = np.exp(np.clip(log_grades, low, high))[level_of]
    assert found.gain <= gain(others, alpha, tau) * (1 + 400 * EPS)


def test_one_grade_per_level_costs_where_profiles_vary_inside_a_level():
    alpha, tau = [0.6, 0.1, 0.1, 0.2], [0.1, 0.5, 0.2, 0.2]
    coarse, fine = select_levels(alpha, tau, [0, 0, 1, 1]).gain, select(alpha, tau).gain
    expected = (math.sqrt(0.7 * 0.6) + math.sqrt(0.3 * 0.4)) ** 2
    assert coarse == pytest.approx(expected, rel=16 * EPS, abs=0.0)
    assert fine < 0.8 * coarse


@pytest.mark.parametrize(("nu", "mu", "levels"), [(0.6, 0.3, 4), (0.5, 0.2, 1), (0.3, 0.6, 7), (0.5, 0.5, 12)])
def test_geometric_profiles_are_the_rational_ones(nu, mu, levels):
    deep = [Fraction(nu) ** (levels - 1 - level) for level in range(levels)]
    shallow = [Fraction(mu) ** level for level in range(levels)]
    a, s = geometric_profiles(nu, mu, levels)
    assert a == pytest.approx([float(x / sum(deep)) for x in deep], rel=32 * EPS, abs=0.0)
    assert s == pytest.approx([float(x / sum(shallow)) for x in shallow], rel=32 * EPS, abs=0.0)


def test_the_gain_of_geometric_profiles_is_the_closed_form_and_grades_are_affine():
    nu, mu = 0.6, 0.3
    r = math.sqrt(mu / nu)
    for levels in (1, 2, 4, 30):
        masses = (1 - nu**levels) / (1 - nu) * (1 - mu**levels) / (1 - mu)
        closed = nu ** (levels - 1) / masses * ((1 - r**levels) / (1 - r)) ** 2
        a, s = geometric_profiles(nu, mu, levels)
        assert select(a, s).gain == pytest.approx(closed, rel=1e-13, abs=0.0)
        steps = np.diff(np.log(fourth_root_grades(a, s)))
        assert steps == pytest.approx(np.full(levels - 1, -math.log(nu * mu) / 4), rel=1e-12, abs=0.0)
    limit = (1 - nu) * (1 - mu) / (nu * (1 - r) ** 2)
    assert select(*geometric_profiles(nu, mu, 300)).gain / nu**300 == pytest.approx(limit, rel=1e-12, abs=0.0)


PROFILE = [0.25, 0.25, 0.5]


@pytest.mark.parametrize(
    ("level_of", "error", "words"),
    [
        ([0, 0], InputError, "lengths differ"),
        ([0, 2, 2], InputError, "level 1 empty"),
        ([1, 1, 1], InputError, "level 0 empty"),
        ([0, -1, 1], InputError, "at least 0"),
        ([0, 10**15, 1], InputError, "for 3 coordinates"),
        ([[0, 1, 1]], InputError, "shape"),
        ([], InputError, "at least one entry"),
        ([[0], [0, 1]], InputError, "ragged"),
        ([0.0, 1.0, 1.0], InputTypeError, "integers"),
        ([False, True, True], InputTypeError, "integers"),
        ("abc", InputTypeError, "level_of is 'abc'; give integers"),
        (None, InputTypeError, "level_of is None; give integers"),
    ],
)
def test_bad_levels_have_their_own_error(level_of, error, words):
    with pytest.raises(error, match=words):
        coarsen(PROFILE, level_of)
    with pytest.raises(error, match=words):
        select_levels(PROFILE, PROFILE, level_of)
    if words != "lengths differ":
        with pytest.raises(error, match=words):
            spread([0.5, 0.5], level_of)


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        ([0.5, 0.5, 0.0], InputError, "not positive"),
        ([0.5, 0.6, 0.2], InputError, "sums to 1.3"),
        ([math.nan, 0.5, 0.5], InputError, "not finite"),
        ([True, False, False], InputTypeError, "real numbers"),
    ],
)
def test_a_bad_profile_has_its_own_error(bad, error, words):
    for function in (coarsen, spread):
        with pytest.raises(error, match=words):
            function(bad, [0, 1, 2])
    with pytest.raises(error, match="alpha.*" + words):
        select_levels(bad, PROFILE, [0, 1, 1])
    with pytest.raises(error, match="tau.*" + words):
        select_levels(PROFILE, bad, [0, 1, 1])


def test_a_profile_over_other_levels_has_its_own_error():
    with pytest.raises(InputError, match="level_profile has 3, levels has 2"):
        spread(PROFILE, [0, 0, 1])


@pytest.mark.parametrize(
    ("sizes", "error"),
    [
        ([2, 0], InputError),
        ([-1, 2], InputError),
        ([1.5], InputTypeError),
        ([True], InputTypeError),
        (3, InputError),
        ([], InputError),
    ],
)
def test_bad_sizes_have_their_own_error(sizes, error):
    with pytest.raises(error):
        allocation(sizes)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((0.0, 0.3, 4), InputError, "nu is 0"),
        ((1.0, 0.3, 4), InputError, "above 0 and below 1"),
        ((0.6, -0.1, 4), InputError, "mu is -0.1"),
        ((math.nan, 0.3, 4), InputError, "nu is nan"),
        ((0.6, 0.3, 0), InputError, "at least 1"),
        ((0.6, 0.3, 5000), InputError, "fewer levels"),
        ((0.6, 0.3, 4.0), InputTypeError, "whole number"),
        ((0.6, 0.3, True), InputTypeError, "whole number"),
        (("0.6", 0.3, 4), InputTypeError, "nu is '0.6'"),
        ((0.6, None, 4), InputTypeError, "mu is None"),
        ((True, 0.3, 4), InputTypeError, "nu is True"),
    ],
)
def test_bad_ratios_have_their_own_error(arguments, error, words):
    with pytest.raises(error, match=words):
        geometric_profiles(*arguments)

"""Contrasts: second routes by scipy, least squares and enumeration, floors, unbounded ratio sets, bad input."""

from __future__ import annotations

import itertools
from math import inf, isclose, pi

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from gllm_lib.analysis import contrasts as c
from gllm_lib.checks import InputError, InputTypeError

numbers = st.integers(-50, 50).map(lambda k: k / 10)
samples = st.lists(numbers, min_size=3, max_size=7)
ARMS = {"a": [1.0, 2.0, 4.0], "b": [0.5, 2.5, 3.0], "c": [2.0, 3.0, 5.5], "d": [1.0, 1.0, 1.5]}


@given(samples)
def test_the_interval_and_p_value_are_those_of_scipy(values):
    assume(np.ptp(values) > 0)
    ours, theirs = c.t_interval(values), stats.ttest_1samp(values, 0.0)
    low, high = theirs.confidence_interval(0.95)
    assert np.allclose([ours.low, ours.high, ours.p], [low, high, theirs.pvalue], rtol=1e-9, atol=1e-12)
    assert ours.excludes_zero == (low > 0 or high < 0)


def test_a_contrast_weighs_arms_seed_by_seed():
    assert c.contrast(ARMS, {"a": 1, "b": -1}).tolist() == [0.5, -0.5, 1.0]
    double = c.contrast(ARMS, {"a": 1, "b": -1, "c": -1, "d": 1})
    assert np.allclose(double, [0.5 - 1.0, -0.5 - 2.0, 1.0 - 4.0])
    assert c.t_interval([2.0, 2.0]).p == 0.0  # no spread: the interval is the point
    assert c.t_interval([0.0, 0.0]).p == 1.0


@given(st.lists(numbers, min_size=1, max_size=8))
def test_the_sign_tests_agree_with_enumeration(values):
    array = np.array(values)
    sums = [abs(np.dot(signs, array)) for signs in itertools.product((-1, 1), repeat=len(array))]
    expected = np.mean([total >= abs(array.sum()) - 1e-9 for total in sums])
    assert isclose(c.sign_flip_test(array), expected)
    kept = array[array != 0]
    ups = [sum(signs) for signs in itertools.product((0, 1), repeat=len(kept))]
    lopsided = abs(2 * (kept > 0).sum() - len(kept))
    assert isclose(c.sign_test(array), np.mean([abs(2 * up - len(kept)) >= lopsided for up in ups]))
    assert min(c.sign_test(array), c.sign_flip_test(array)) >= c.sign_floor(len(array)) - 1e-12


def test_the_floor_is_reached_by_equal_signs():
    assert c.sign_floor(3) == 0.25
    assert c.sign_test([1.0, 2.0, 3.0]) == c.sign_flip_test([1.0, 2.0, 3.0]) == 0.25
    assert c.sign_test([0.0, 0.0]) == 1.0


def test_holm_steps_down_and_keeps_the_order():
    assert np.allclose(c.holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
    assert c.holm([0.5, 0.6]).tolist() == [1.0, 1.0]


@given(st.integers(0, 999))
def test_two_arms_pooled_are_a_paired_t_test(seed):
    rng = np.random.default_rng(seed)
    arms = {"x": rng.normal(size=5), "y": rng.normal(size=5)}
    pooled, paired = c.block_model(arms), c.t_interval(arms["x"] - arms["y"])
    found = pooled.contrast({"x": 1, "y": -1})
    assert np.allclose([found.mean, found.low, found.high, found.p], [paired.mean, paired.low, paired.high, paired.p])


def test_the_pooled_model_agrees_with_least_squares():
    rng = np.random.default_rng(3)
    table = rng.normal(size=(4, 6)) + rng.normal(size=6)
    arm, seed = np.eye(4).repeat(6, axis=0), np.tile(np.eye(6), (4, 1))
    both, flat = np.hstack([arm, seed]), table.ravel()

    def rest(design):
        return float(((flat - design @ np.linalg.lstsq(design, flat, rcond=None)[0]) ** 2).sum())

    model = c.block_model(dict(zip("abcd", table, strict=True)))
    assert model.df == 15
    assert isclose(model.sd**2 * 15, rest(both))
    whole = model.seed_test()
    assert isclose(whole.statistic, (rest(arm) - rest(both)) / 5 / model.sd**2)
    assert whole.df == (5, 15)
    product = np.outer(model.means - model.means.mean(), model.seeds).ravel()[:, None]
    tukey = model.additivity_test()
    left = rest(np.hstack([both, product]))
    assert isclose(tukey.statistic, (rest(both) - left) / (left / 14))
    halves = np.hstack([both, seed * (np.arange(24) < 12)[:, None]])
    found = model.additivity_test(["a", "b"])
    assert isclose(found.statistic, (rest(both) - rest(halves)) / 5 / (rest(halves) / 10))
    assert isclose(found.p, stats.f.sf(found.statistic, 5, 10))


def test_seeds_that_act_otherwise_in_some_arms_are_seen():
    rng = np.random.default_rng(0)
    shared, other = rng.normal(size=8), rng.normal(size=8)
    table = {name: (shared if name < "d" else other) + 0.1 * rng.normal(size=8) for name in "abcdef"}
    assert c.block_model(table).additivity_test(["d", "e", "f"]).p < 1e-6
    assert c.block_model({name: table[name] for name in "abc"}).seed_test().p < 1e-6


@given(samples, st.integers(0, 99))
def test_a_ratio_is_in_the_set_exactly_where_the_t_test_keeps_it(top, seed):
    bottom = np.random.default_rng(seed).integers(-9, 10, size=len(top)) / 3
    assume(bottom.any())
    found = c.fieller(top, bottom)
    for ratio in [*np.linspace(-20, 20, 81), found.low + 1e-3, found.high - 1e-3]:
        if not np.isfinite(ratio) or min(abs(ratio - found.low), abs(ratio - found.high)) < 1e-7 * (1 + abs(ratio)):
            continue
        kept = c.t_interval(np.array(top) - ratio * bottom)
        if abs(kept.p - 0.05) > 1e-7:
            assert (ratio in found) == (kept.p > 0.05)


def test_the_three_kinds_of_ratio_sets_and_their_arcs():
    plain = c.fieller([1.0, 2.0, 1.5], [2.0, 2.2, 2.1])
    assert plain.kind == "interval"
    assert inf not in plain
    assert plain.arc[1] - plain.arc[0] < pi
    beyond = c.fieller([-1286, -432, -328], [-1039, -665, -2508])
    assert beyond.kind == "complement"
    assert beyond.arc[0] < pi < beyond.arc[1]
    assert inf in beyond
    assert (beyond.low + beyond.high) / 2 not in beyond
    line = c.fieller([1.0, -1.0, 0.1], [0.3, -2.0, 1.0])
    assert line.kind == "line"
    assert 1e9 in line
    assert line.arc == (-pi, pi)
    with pytest.raises(InputError, match="zero at every seed"):
        c.fieller([1.0, 2.0], [0.0, 0.0])
    assert c.fieller([0.0, 0.0], [1.0, 1.1]).low == c.fieller([0.0, 0.0], [1.0, 1.1]).high == 0.0
    ends = [c.fieller(np.array([1.0, 2.0, 1.5]) * size, [2.0, 2.2, 2.1]) for size in (1.0, 1e-120)]
    assert isclose(ends[0].high * 1e-120, ends[1].high, rel_tol=1e-12)


def test_equivalence_is_two_one_sided_tests():
    values = np.array([84.0, 230.0, -206.0])
    p, least = c.equivalence(values, 950.0)
    one_sided = [
        stats.ttest_1samp(values, sign * 950.0, alternative=side).pvalue
        for sign, side in ((1, "less"), (-1, "greater"))
    ]
    assert isclose(p, max(one_sided))
    assert isclose(c.equivalence(values, least)[0], 0.05)
    assert c.equivalence([0.0, 0.0], 1.0) == (0.0, 0.0)


def test_power_is_that_of_simulated_runs():
    rng = np.random.default_rng(1)
    draws = 1.5 + rng.normal(size=(20_000, 4))
    hit = (stats.ttest_1samp(draws, 0.0, axis=1).pvalue < 0.05).mean()
    expected = c.power(1.5, 1.0, 4)
    assert abs(hit - expected) < 4 * (expected * (1 - expected) / 20_000) ** 0.5
    assert isclose(c.power(0.0, 1.0, 4), 0.05)


@given(st.integers(2, 30), st.floats(0.3, 0.95))
def test_the_smallest_effect_has_the_wanted_power(n, wanted):
    effect = c.smallest_effect(2.0, n, wanted)
    assert isclose(c.power(effect, 2.0, n), wanted, abs_tol=1e-6)
    needed = c.seeds_needed(effect * 1.0001, 2.0, wanted)
    assert needed == n
    assert c.smallest_effect(2.0, n, wanted, df=400) <= effect + 1e-9


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: c.t_interval([1.0]), "at least 2"),
        (lambda: c.t_interval([1.0, 2.0], level=1.0), "below 1"),
        (lambda: c.t_interval([1.0, np.nan]), "not finite"),
        (lambda: c.contrast(ARMS, {"a": 1.0, "z": -1.0}), "weights name"),
        (lambda: c.contrast(ARMS, {"a": 1.0, "b": -0.5}), "sum to 0.5"),
        (lambda: c.contrast({"a": [1, 2], "b": [1, 2, 3]}, {"a": 1, "b": -1}), "same seeds"),
        (lambda: c.contrast(ARMS, {}), "no arm"),
        (lambda: c.contrast(ARMS, {"a": 0, "b": 0}), "no arm"),
        (lambda: c.t_interval([1e200, 2e200]), "give a unit"),
        (lambda: c.t_interval([1e-320, 2e-320]), "give a unit"),
        (lambda: c.sign_floor(2000), "from 1 to 1000"),
        (lambda: c.power(1.0, 1.0, 10**30), "from 2 to"),
        (lambda: c.smallest_effect(1.0, 2, 0.999999999, 0.99999999999), "see no effect"),
        (lambda: c.block_model({"a": [1, 2]}), "at least two"),
        (lambda: c.block_model({"a": [1, 2], "b": [2, 4]}).additivity_test(), "degree of freedom"),
        (lambda: c.block_model(ARMS).additivity_test(["a", "b", "c", "d"]), "not all"),
        (lambda: c.block_model(ARMS).contrast({"a": 1, "q": -1}), "weights name"),
        (lambda: c.sign_flip_test([1.0] * 21), "at most 20"),
        (lambda: c.sign_floor(0), "from 1 to 1000"),
        (lambda: c.holm([0.1, 1.2]), "from 0 to 1"),
        (lambda: c.fieller([1.0, 2.0], [1.0, 2.0, 3.0]), "same seeds"),
        (lambda: c.equivalence([1.0, 2.0], 0.0), "above 0"),
        (lambda: c.equivalence([1.0, 2.0], 1.0, alpha=0.5), "below 0.5"),
        (lambda: c.power(1.0, 0.0, 3), "above 0"),
        (lambda: c.smallest_effect(1.0, 3, power_wanted=0.05), "above 0.05"),
        (lambda: c.seeds_needed(0.0, 1.0), "too small"),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(call, told):
    with pytest.raises(InputError, match=told):
        call()


def test_what_is_no_number_is_a_type_error():
    with pytest.raises(InputTypeError, match="give"):
        c.t_interval(["a", "b"])
    with pytest.raises(InputTypeError, match="give"):
        c.power(1.0, 1.0, 3.5)
    for call in (c.smallest_effect, c.seeds_needed):
        with pytest.raises(InputTypeError, match="level is 'high'"):
            call(1.0, 3, level="high")
    with pytest.raises(InputTypeError, match="give a mapping"):
        c.contrast(ARMS, ["a", "b"])
    with pytest.raises(InputTypeError, match="give a mapping"):
        c.block_model([[1.0, 2.0], [2.0, 1.0]])


def test_arms_that_agree_exactly_speak_against_nothing():
    model = c.block_model({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0], "c": [1.0, 2.0, 3.0]})
    assert model.additivity_test().p == model.additivity_test(["a"]).p == 1.0
    assert model.seed_test().p == 0.0  # the seeds differ, and nothing else does
    assert c.block_model({"a": [1.0, 1.0], "b": [1.0, 1.0]}).seed_test() == (0.0, (1, 1), 1.0)


@pytest.mark.parametrize("unit", [1e-140, 1e140])
def test_a_ratio_changes_with_its_units_alone(unit):
    top, bottom = [3.0, 4.0, 5.5], [2.0, 2.1, 1.7]
    plain, scaled = c.fieller(top, bottom), c.fieller(np.array(top) * unit, np.array(bottom) / unit)
    assert scaled.kind == plain.kind
    assert np.allclose([scaled.low / unit**2, scaled.high / unit**2], [plain.low, plain.high], rtol=1e-12)
    assert np.nan not in c.fieller([1.0, 2.0, 3.0], [-1.0, 0.0, 1.0])


@pytest.mark.parametrize(("n", "level", "effect"), [(2, 0.99999, 1e5), (3, 0.95, 1e-9), (10**9, 0.95, 1e-4)])
def test_power_stays_right_at_extremes(n, level, effect):
    reach = stats.t.isf((1 - level) / 2, n - 1)
    draws = np.random.default_rng(2).chisquare(n - 1, 40_000) / (n - 1)  # the power is the mean over the variance
    shift = effect * n**0.5
    expected = (stats.norm.sf(reach * draws**0.5 - shift) + stats.norm.cdf(-reach * draws**0.5 - shift)).mean()
    assert abs(c.power(effect, 1.0, n, level) - expected) < 0.005  # two standard errors of the worst share

"""Minimax envelopes against brute force, a conic solver, exact rationals and simulated designs."""

from __future__ import annotations

import math
from fractions import Fraction

import cvxpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import jn_zeros

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.grading import fourth_root_grades, gain, geometric_profiles
from gllm_lib.grading.envelope import (
    ball_constant,
    design_risk,
    knapsack,
    linear_minimax,
    samples_for,
    van_trees,
)
from gllm_lib.grading.minimax import (
    fano_factor,
    gilbert,
    least_squares_draws,
    least_squares_factor,
    least_squares_risk,
    level_noise,
    source_constants,
    stratified_caps,
    sum_envelope,
    window,
)

MEDIUM = (0.6, 0.3, 4, 64)


@st.composite
def instances(draw, spread=8.0):
    """Caps and noise of one to six levels, with ties."""
    count = draw(st.integers(1, 6))
    logs = st.one_of(st.sampled_from([-spread, 0.0, spread]), st.floats(-spread, spread))
    return tuple(np.exp(draw(st.lists(logs, min_size=count, max_size=count))) for _ in range(2))


def test_reference_values_of_the_planned_shape():
    # Independent values, in fifty digits, for nu = .6, mu = .3, L = 4, d = 64 and unit noise.
    a, s = geometric_profiles(0.6, 0.3, 4)
    g = fourth_root_grades(a, s)
    uniform, graded = stratified_caps(*MEDIUM), stratified_caps(*MEDIUM, g)
    found = window(0.3, 4, 64)
    assert (found.last, found.size) == (181, 178)
    assert window(0.3, 4, 8).size == 0  # m_sat = 5.7: no m from 4 on lies in it
    assert found.saturation == pytest.approx(362.752, rel=1e-13)
    assert uniform[0] == pytest.approx(0.044107268877911115, rel=1e-13)
    assert graded[0] == pytest.approx(0.01121132581229619, rel=1e-13)
    assert graded[0] / uniform[0] / gain(g, a, s) == pytest.approx(0.5533729214115496, rel=1e-13)
    for m, expected in ((4, (0.0436262106273, 0.0111799901842)), (181, (0.0294251791258, 0.0099494550952))):
        noise = level_noise([16] * 4, m)
        assert [linear_minimax(caps, noise).value for caps in (uniform, graded)] == pytest.approx(expected, rel=1e-11)


@given(instances())
def test_water_filling_is_feasible_stationary_and_attains_its_value(instance):
    caps, noise = instance
    found = linear_minimax(caps, noise)
    x = found.shares * caps
    assert found.shares.sum() == pytest.approx(1.0, rel=1e-12)
    # Slopes of sum x n / (x + n) in the shares agree where a share is positive, and are smaller elsewhere.
    slopes = caps * (noise / (x + noise)) ** 2
    top = slopes.max()
    assert np.all(slopes[found.shares > 0] >= top * (1 - 1e-10))
    assert found.value == pytest.approx(float(np.sum(x * noise / (x + noise))), rel=1e-13)


@given(instances(3.0))
def test_envelopes_are_ordered(instance):
    caps, noise = instance
    least, filled, total = linear_minimax(caps, noise).value, knapsack(caps, noise), sum_envelope(caps, noise)
    slack = 1 + 1e-12
    assert filled.value <= 2 * least * slack
    assert least <= filled.value * slack
    assert filled.value <= total * slack
    assert total <= len(caps) * filled.value * slack
    assert filled.shares.sum() <= slack
    sizes = np.full(len(caps), 3)
    assert least / ball_constant([3])[0] <= van_trees(caps, noise, sizes) * slack
    assert van_trees(caps, noise, sizes) <= least * slack


def test_a_conic_solver_finds_the_same_minimax_risk():
    rng = np.random.default_rng(3)
    for count in (1, 2, 5):
        caps, noise = np.exp(rng.normal(size=(2, count)))
        # The other side of the game: multipliers c_l of the data, worst target energy against the budget.
        c, worst = cvxpy.Variable(count), cvxpy.Variable()
        risk = cvxpy.sum(cvxpy.multiply(noise, cvxpy.square(c))) + worst
        problem = cvxpy.Problem(cvxpy.Minimize(risk), [cvxpy.multiply(caps, cvxpy.square(1 - c)) <= worst])
        assert linear_minimax(caps, noise).value == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)
        p = cvxpy.Variable(count, nonneg=True)
        kept = cvxpy.sum(cvxpy.minimum(cvxpy.multiply(p, caps), noise))
        best = cvxpy.Problem(cvxpy.Maximize(kept), [cvxpy.sum(p) <= 1]).solve(solver="CLARABEL")
        assert knapsack(caps, noise).value == pytest.approx(best, rel=1e-6)


def test_no_digit_is_lost_in_deep_saturation():
    for ratio in (1e8, 1e14, 1e200):
        found = linear_minimax([2.0, 1.0], [ratio, ratio])
        assert found.value == pytest.approx(2.0 / (1.0 + 2.0 / ratio), rel=1e-15)
        assert found.shares == pytest.approx([1.0, 0.0], rel=1e-15)


def test_the_ball_constant_brackets_the_least_fisher_information():
    # d^-2 times the least information in the unit ball is 4 j^2 / d^2, j the first zero of J_{d/2-1}; d even here.
    for d in (2, 4, 10, 100):
        least = 4 * float(jn_zeros(d // 2 - 1, 1)[0]) ** 2 / d**2
        assert least < ball_constant([d])[0] < least * 1.06  # the trial density loses most, 5.4 per cent, near d = 76
    assert np.pi**2 < ball_constant([1])[0] < np.pi**2 * 1.004
    assert np.all(np.diff(ball_constant([1, 2, 3, 50, 1e9])) < 0)
    assert ball_constant([1e12])[0] == pytest.approx(1.0, abs=1e-5)


def test_samples_invert_the_risk():
    caps, sizes = stratified_caps(0.5, 0.2, 8, 8000), [1000] * 8
    for share in (1 - 1e-12, 0.999, 0.5, 1e-3, 1e-9):
        m = samples_for(share * caps.max(), caps, sizes, 2.0)
        assert linear_minimax(caps, level_noise(sizes, m, 2.0)).value == pytest.approx(share * caps.max(), rel=1e-10)
    assert samples_for(caps.max(), caps, sizes) == 0.0
    assert 0.0 < samples_for(np.nextafter(caps.max(), 0), caps, sizes) < 1e-6


def test_packing_and_fano():
    assert gilbert(3, 1) == 8
    assert gilbert(3, 3) == 2  # 8 words, 7 of them closer than 3
    assert gilbert(32, 4) == -(-(2**32) // (1 + 32 + 496 + 4960))
    assert fano_factor(4 * math.log(2), math.log(2)) == pytest.approx(0.5)
    one, four = source_constants(1), source_constants(4)
    assert one.pinning == pytest.approx(4.01049499800605e-05, rel=1e-13)
    assert (four.packing, four.few) == pytest.approx((2 + math.log(2) / 128, 128.0), rel=1e-13)
    assert four.lower == pytest.approx(four.two_point * math.log(2) / 64 / 128, rel=1e-13)
    # Past L = 64 / log 2 the budget share c_0 L exceeds 1, and the constants carry it.
    assert source_constants(100).few == pytest.approx(3200 * 100 * math.log(2) / 64)


def test_least_squares_in_random_design():
    rng = np.random.default_rng(11)
    for fitted, m in ((1, 6), (5, 20)):
        draws = least_squares_draws(fitted, m, 20000, rng)
        # Five standard errors; the variance exists as m > D + 3.
        error = draws.std(ddof=1) / math.sqrt(len(draws))
        assert abs(draws.mean() - least_squares_factor(fitted, m)) < 5 * error
    assert least_squares_factor(5, 6) == math.inf
    assert least_squares_factor(5, 7) == 5  # the first finite one
    assert least_squares_factor(0, 1) == 0
    assert least_squares_risk(5, 20, 2.0, 1.0) == pytest.approx(float(1 + 3 * Fraction(5, 14)))
    assert least_squares_risk(0, 1, 2.0, 1.0) == 1.0


def test_simulated_design_risk_sits_above_the_sequence_model_and_below_the_cap():
    rng = np.random.default_rng(5)
    caps, sizes = [1.0, 0.4, 0.01], [3, 5, 4]
    for m in (2, 7, 12, 40):
        found = design_risk(caps, sizes, m, 400, rng, variance=0.5)
        least = linear_minimax(caps, level_noise(sizes, m, 0.5)).value
        assert found.bayes > least - 5 * found.bayes_error
        assert found.worst > found.bayes - 5 * (found.bayes_error + found.worst_error)
    large = design_risk(caps, sizes, 4000, 100, rng, variance=0.5)
    assert large.worst == pytest.approx(0.5 * 12 / 4000, rel=0.1)


def test_one_coordinate_and_one_row_by_quadrature():
    # One row z, prior variance v: the posterior variance is v / (1 + v z^2 / variance).
    points, weights = np.polynomial.hermite_e.hermegauss(200)
    expected = float(np.sum(weights / (1 + points**2)) / weights.sum())
    found = design_risk([1.0], [1], 1, 20000, np.random.default_rng(2))
    assert abs(found.bayes - expected) < 5 * found.bayes_error + 1e-4


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: stratified_caps(0.5, 0.2, 4, 10), InputError, "multiple of 4"),
        (lambda: stratified_caps(0.5, 0.2, 4, 8, [1, 2]), InputError, "lengths differ"),
        (lambda: level_noise([2, 0], 4), InputError, "at least one coordinate"),
        (lambda: level_noise([2], 0), InputError, "above 0"),
        (lambda: knapsack([1.0], [1.0, 2.0]), InputError, "lengths differ"),
        (lambda: linear_minimax([0.0], [1.0]), InputError, "delete it"),
        (lambda: van_trees([1.0], [1.0], [1], [1.5]), InputError, "at most 1"),
        (lambda: van_trees([1.0], [1.0], [1, 1]), InputError, "lengths differ"),
        (lambda: van_trees([1.0], [1.0], [1], [-0.5]), InputError, "shares >= 0"),
        (lambda: van_trees([1.0, 1.0], [1.0, 1.0], [1, 1], [0.5]), InputError, "lengths differ"),
        (lambda: design_risk([1.0], [2.5], 3, 5, np.random.default_rng(0)), InputTypeError, "whole number"),
        (lambda: design_risk([1.0], [1], 3, 1, np.random.default_rng(0)), InputError, "at least 2"),
        (lambda: samples_for(0.0, [1.0], [1]), InputError, "infinitely many"),
        (lambda: gilbert(0, 1), InputError, "at least 1"),
        (lambda: gilbert(2.0, 1), InputTypeError, "whole number"),
        (lambda: fano_factor(0.0, 1.0), InputError, "log N > 0"),
        (lambda: source_constants(True), InputTypeError, "whole number"),
        (lambda: least_squares_risk(1, 4, -1.0, 0.0), InputError, "energies"),
        (lambda: least_squares_draws(3, 2, 5, np.random.default_rng(0)), InputError, "at least 3"),
        (lambda: design_risk([1.0], [1], 3, 5, 0), InputTypeError, "default_rng"),
        (lambda: window(0.2, 4, 8, -1.0), InputError, "above 0"),
    ],
)
def test_bad_input_is_told(call, error, words):
    with pytest.raises(error, match=words):
        call()

"""Gain, derivatives, certificates and the Bennett step, against exact rationals and fifty digits."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gllm_lib.checks import InputError
from gllm_lib.grading import (
    affinity,
    bennett_bound,
    bennett_step,
    certify,
    fourth_root_grades,
    gain,
    log_gain,
    log_gain_gradient,
    log_gain_hessian,
    rational_gain,
    regret,
    tilted_profiles,
    token_gain,
)
from gllm_lib.proofs.strategies import profile_pairs, triples

EPS = np.finfo(float).eps
EXTREME = 345.0  # weights down to e^-690, near 1e-300
UNIFORM = np.array([0.5, 0.5])


def rational(profile):
    weights = [Fraction(float(p)) for p in profile]
    return [w / sum(weights) for w in weights]


def exact_gain(g, alpha, tau):
    squares = [Fraction(float(x)) ** 2 for x in g]
    first = sum(a / t for a, t in zip(rational(alpha), squares, strict=True))
    return first * sum(b * t for b, t in zip(rational(tau), squares, strict=True))


def digits(x):
    return mpmath.mpf(x.numerator) / x.denominator


def precise_log_gain(u, alpha, tau):
    with mpmath.workdps(60):
        first = mpmath.fsum(digits(a) * mpmath.exp(-mpmath.mpf(x)) for a, x in zip(rational(alpha), u, strict=True))
        second = mpmath.fsum(digits(b) * mpmath.exp(mpmath.mpf(x)) for b, x in zip(rational(tau), u, strict=True))
        return mpmath.log(first) + mpmath.log(second)


# Affinity ---------------------------------------------------------------------------------------------------------


@given(pair=profile_pairs(spread=EXTREME))
def test_affinity_agrees_with_fifty_digits(pair):
    with mpmath.workdps(50):
        terms = [mpmath.sqrt(digits(a * b)) for a, b in zip(*map(rational, pair), strict=True)]
        reference = float(mpmath.fsum(terms))
    assert affinity(*pair) == pytest.approx(
        reference, rel=(8 + len(terms)) * EPS, abs=0.0
    )  # three roundings a term, then a sum


def test_affinity_of_almost_disjoint_profiles_does_not_underflow():
    tiny = 1e-300
    assert affinity([1.0, tiny], [tiny, 1.0]) == pytest.approx(2e-150, rel=8 * EPS, abs=0.0)


@given(pair=profile_pairs(spread=EXTREME))
def test_affinity_is_one_only_for_equal_profiles(pair):
    alpha, tau = pair
    assert affinity(alpha, alpha) == pytest.approx(1.0, abs=8 * EPS)
    assert affinity(alpha, tau) <= 1.0 + 8 * EPS
    if np.abs(alpha - tau).sum() > 1e-6:  # BC <= sqrt(1 - TV^2)
        assert affinity(alpha, tau) < 1.0


# Gain -------------------------------------------------------------------------------------------------------------


def test_gain_of_the_planned_clip_is_121_over_100():
    assert gain([2, 1], [0.6, 0.4], [0.4, 0.6]) == pytest.approx(1.21, rel=4 * EPS, abs=0.0)
    assert gain([2, 1], [0.7, 0.3], [0.3, 0.7]) == pytest.approx(361 / 400, rel=4 * EPS, abs=0.0)


@given(triple=triples(spread=EXTREME, amplitude=690.0))
def test_gain_agrees_with_exact_rationals(triple):
    alpha, tau, log_grades = triple
    g = np.exp(log_grades)
    reference = exact_gain(g, alpha, tau)
    value = gain(g, alpha, tau)
    if reference > Fraction(np.finfo(float).max):
        assert value == math.inf
    else:
        # Logs up to 2800 in size carry an absolute error of eps times their size.
        assert value == pytest.approx(float(reference), rel=(2 * 2800 + len(g)) * EPS, abs=0.0)
    assert token_gain(g, alpha, tau) == pytest.approx(float(1 / reference), rel=(2 * 2800 + len(g)) * EPS, abs=1e-322)


@given(pair=profile_pairs(spread=EXTREME), level=st.floats(1e-300, 1e300))
@example(pair=(UNIFORM, UNIFORM), level=3.0)
def test_equal_grades_have_gain_exactly_one_and_no_certificate(pair, level):
    g = np.full(len(pair[0]), level)
    assert gain(g, *pair) == 1.0
    assert token_gain(g, *pair) == 1.0
    certificate = certify(g, *pair)
    assert not certificate.ray_admissible
    assert not certificate.admissible
    assert certificate.inner_product == 0.0


def test_equal_grades_have_gain_one_where_the_profiles_are_rounded_to_seven_digits():
    alpha, tau = [0.3333333, 0.3333333, 0.3333333], [0.6666667, 0.1666667, 0.1666667]
    assert gain([1, 1, 1], alpha, tau) == 1.0
    assert affinity(alpha, alpha) == pytest.approx(1.0, abs=4 * EPS)


def test_values_are_those_of_the_profiles_divided_by_their_sums():
    alpha, tau, g = np.array([0.3333333, 0.6666666]), np.array([0.1428571, 0.857143]), [3.0, 1.0]
    reference = float(exact_gain(g, alpha, tau))
    assert gain(g, alpha, tau) == pytest.approx(reference, rel=16 * EPS, abs=0.0)
    assert certify(g, alpha, tau).gain == pytest.approx(reference, rel=16 * EPS, abs=0.0)
    assert gain([1.001, 1.0], alpha, tau) == pytest.approx(float(exact_gain([1.001, 1.0], alpha, tau)), abs=EPS)


def test_grades_that_are_almost_equal_keep_the_digits_of_their_difference():
    tiny = 2.0**-40
    certificate = certify([1e10, 1e10 * (1 + tiny)], [0.3, 0.7], [0.6, 0.4])
    assert certificate.inner_product == pytest.approx(0.3 * math.log1p(tiny), rel=16 * EPS, abs=0.0)
    assert certificate.admissible


def test_the_gain_of_concentrated_profiles_keeps_its_digits():
    profile, u = [1 - 2.0**-40, 2.0**-40], [0.0, 0.9]
    # For equal profiles Lambda - 1 = p (1 - p) (e^u - 1)^2 / e^u with the light weight p.
    reference = 2.0**-40 * (1 - 2.0**-40) * math.expm1(0.9) ** 2 / math.exp(0.9)
    assert log_gain(u, profile, profile) == pytest.approx(math.log1p(reference), rel=64 * EPS, abs=0.0)
    assert log_gain([0.9, 0.0], profile, profile) == pytest.approx(math.log1p(reference), rel=64 * EPS, abs=0.0)


@given(triple=triples(), scale=st.integers(-300, 300))
def test_gain_is_gauge_invariant(triple, scale):
    alpha, tau, u = triple
    shifted = log_gain(u + scale, alpha, tau)
    assert shifted == pytest.approx(log_gain(u, alpha, tau), abs=(400 + len(u)) * EPS * 4)
    g = np.exp(u / 2)
    assert gain(g * 2.0**scale, alpha, tau) == pytest.approx(gain(g, alpha, tau), rel=(1000 + len(u)) * EPS, abs=0.0)


@given(triple=triples(spread=EXTREME, amplitude=690.0))
def test_log_gain_agrees_with_sixty_digits(triple):
    alpha, tau, u = triple
    reference = precise_log_gain(u, alpha, tau)
    assert log_gain(u, alpha, tau) == pytest.approx(float(reference), abs=(4 * 1400 + len(u)) * EPS)


@given(triple=triples(min_size=2, spread=3.0, amplitude=1.0), exponent=st.integers(-12, -1))
def test_log_gain_keeps_its_digits_near_equal_grades(triple, exponent):
    alpha, tau, u = triple
    u = u * 10.0**exponent / 3.0
    assume(np.abs(u).max() > 1e-20)  # sixty digits resolve second order down to here
    reference = precise_log_gain(u, alpha, tau)
    # Errors scale with u, although log Lambda may be of second order in it: compare with the size of its terms.
    scale = np.abs(u).max() * (np.abs(alpha - tau).sum() + np.abs(u).max())
    assert abs(log_gain(u, alpha, tau) - float(reference)) <= (32 + len(u)) * EPS * scale


@given(triple=triples(spread=EXTREME, amplitude=690.0))
def test_no_grades_beat_the_affinity(triple):
    alpha, tau, u = triple
    assert log_gain(u, alpha, tau) >= 2 * math.log(affinity(alpha, tau)) - 6000 * EPS


def test_log_gain_takes_any_finite_u():
    u = np.array([1e308, -1e308])
    assert log_gain(u, UNIFORM, UNIFORM) == math.inf
    assert log_gain([1e308, 1e308], UNIFORM, UNIFORM) == 0.0
    assert log_gain([1e6, 0.0], UNIFORM, UNIFORM) == pytest.approx(1e6 - math.log(4), rel=4 * EPS, abs=0.0)


def test_gain_beyond_the_largest_double_is_infinite_and_its_log_is_not():
    g = [1e300, 1e-300]
    assert gain(g, UNIFORM, UNIFORM) == math.inf
    assert token_gain(g, UNIFORM, UNIFORM) == 0.0
    assert log_gain(2 * np.log(g), UNIFORM, UNIFORM) == pytest.approx(
        1200 * math.log(10) - math.log(4), rel=8 * EPS, abs=0.0
    )


# Derivatives ------------------------------------------------------------------------------------------------------


@given(triple=triples(max_size=4, spread=5.0))
@settings(max_examples=30)
def test_gradient_and_hessian_agree_with_differences_in_sixty_digits(triple):
    alpha, tau, u = triple
    d = len(u)
    step = mpmath.mpf(10) ** -15

    def at(*moves):
        with mpmath.workdps(60):
            point = [mpmath.mpf(x) for x in u]
            for j, sign in moves:
                point[j] += sign * step
            return precise_log_gain(point, alpha, tau)

    with mpmath.workdps(60):
        gradient = [float((at((j, 1)) - at((j, -1))) / (2 * step)) for j in range(d)]
        corners = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
        hessian = [
            [float(sum(p * q * at((j, p), (k, q)) for p, q in corners) / (4 * step**2)) for k in range(d)]
            for j in range(d)
        ]
    # Differences of step 1e-15 are off by 1e-30; what remains is rounding of logs up to 20 in size.
    assert np.allclose(log_gain_gradient(u, alpha, tau), gradient, rtol=0, atol=100 * EPS)
    assert np.allclose(log_gain_hessian(u, alpha, tau), hessian, rtol=0, atol=100 * EPS)


@given(triple=triples(spread=EXTREME, amplitude=690.0))
def test_tilted_profiles_sum_to_one_and_the_hessian_kills_constants(triple):
    alpha, tau, u = triple
    for tilted in tilted_profiles(u, alpha, tau):
        assert tilted.sum() == pytest.approx(1.0, abs=8 * EPS)
        assert tilted.min() >= 0.0
    hessian = log_gain_hessian(u, alpha, tau)
    assert np.abs(hessian.sum(axis=1)).max() <= 32 * EPS
    assert np.linalg.eigvalsh(hessian).min() >= -64 * EPS
    assert log_gain_gradient(u, alpha, tau).sum() == pytest.approx(0.0, abs=16 * EPS)


# Fourth-root law and regret ---------------------------------------------------------------------------------------


@given(pair=profile_pairs(spread=EXTREME))
def test_fourth_root_grades_attain_the_squared_affinity(pair):
    g = fourth_root_grades(*pair)
    assert g.min() == 1.0
    assert gain(g, *pair) == pytest.approx(affinity(*pair) ** 2, rel=6000 * EPS, abs=0.0)  # logs up to 1400
    assert np.abs(log_gain_gradient(2 * np.log(g), *pair)).max() <= 6000 * EPS


def test_fourth_root_grades_of_thirds_and_sixths():
    g = fourth_root_grades([1 / 2, 1 / 3, 1 / 6], [1 / 6, 1 / 3, 1 / 2])
    assert g / g[-1] == pytest.approx([3**0.5, 3**0.25, 1], rel=8 * EPS, abs=0.0)


@given(pair=profile_pairs(spread=EXTREME))
def test_fourth_root_grades_are_accurate_to_rounding(pair):
    with mpmath.workdps(50):
        ratios = [mpmath.root(digits(a / b), 4) for a, b in zip(*map(rational, pair), strict=True)]
        reference = np.array([float(r / min(ratios)) for r in ratios])
    assert fourth_root_grades(*pair) == pytest.approx(reference, rel=8 * EPS, abs=0.0)


@given(triple=triples(spread=EXTREME, amplitude=20.0))
def test_regret_is_the_gain_over_the_squared_affinity(triple):
    alpha, tau, u = triple
    g = np.exp(u / 2) * fourth_root_grades(alpha, tau)
    assert regret(g, alpha, tau) == pytest.approx(
        gain(g, alpha, tau) / affinity(alpha, tau) ** 2, rel=2e4 * EPS, abs=0.0
    )
    assert regret(g, alpha, tau) >= 1.0 - 6000 * EPS
    half_range = (u.max() - u.min()) / 2
    assert regret(g, alpha, tau) <= math.cosh(half_range) ** 2 * (1 + 1e4 * EPS)  # Kantorovich


def test_regret_sees_what_a_quotient_of_gains_cannot():
    alpha, tau = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    g = fourth_root_grades(alpha, tau) * np.array([1 + 1e-9, 1, 1])
    beta = np.sqrt(alpha * tau) / affinity(alpha, tau)
    # rho is 1 + 2e-9 on a mass pi: the price is pi (1 - pi) (r - 1)^2 / r, far below eps, so the regret is 1.
    assert regret(g, alpha, tau) == pytest.approx(1 + beta[0] * (1 - beta[0]) * 4e-18, abs=EPS)
    doubled = fourth_root_grades(alpha, tau) * np.array([math.sqrt(2), 1, 1])
    assert regret(doubled, alpha, tau) == pytest.approx(1 + beta[0] * (1 - beta[0]) / 2, rel=16 * EPS, abs=0.0)


def test_regret_of_the_plug_in_grades_of_the_second_lemma():
    alpha, tau = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    delta = [0.1, -0.2, 0.05]
    g = fourth_root_grades(alpha, tau) * np.exp(np.array(delta) / 4)
    with mpmath.workdps(30):
        root = [mpmath.sqrt(digits(a * b)) for a, b in zip(rational(alpha), rational(tau), strict=True)]
        up = mpmath.fsum(r * mpmath.exp(mpmath.mpf(x) / 2) for r, x in zip(root, delta, strict=True))
        down = mpmath.fsum(r * mpmath.exp(-mpmath.mpf(x) / 2) for r, x in zip(root, delta, strict=True))
        reference = float(mpmath.log(up * down / mpmath.fsum(root) ** 2))
    assert math.log(regret(g, alpha, tau)) == pytest.approx(reference, abs=8 * EPS)
    assert reference == pytest.approx(0.0042295795459604, abs=1e-15)


def test_the_rational_gain_is_exact_and_refuses_what_it_cannot_divide():
    alpha, tau = (Fraction(3, 5), Fraction(2, 5)), (Fraction(2, 5), Fraction(3, 5))
    assert rational_gain((4, 1), alpha, tau) == Fraction(121, 100)
    assert rational_gain((1, 1), alpha, tau) == 1
    assert gain((2, 1), [0.6, 0.4], [0.4, 0.6]) == pytest.approx(1.21, rel=8 * EPS)
    with pytest.raises(InputError, match=r"t\[1\] is 0"):
        rational_gain((4, 0), alpha, tau)
    with pytest.raises(InputError, match="t has 1, alpha has 2"):
        rational_gain((4,), alpha, tau)


# Certificates -----------------------------------------------------------------------------------------------------


def test_a_certified_ray_need_not_hold_an_admissible_point():
    certificate = certify([2, 1], [0.6, 0.4], [0.4, 0.6])
    assert certificate.ray_admissible
    assert not certificate.admissible
    assert certificate.gain == pytest.approx(1.21, rel=8 * EPS, abs=0.0)
    assert certificate.inner_product == pytest.approx(0.2 * math.log(2), rel=8 * EPS, abs=0.0)


@given(triple=triples(spread=EXTREME, amplitude=690.0))
def test_certificate_agrees_with_exact_rationals(triple):
    alpha, tau, log_grades = triple
    g = np.exp(log_grades)
    certificate = certify(g, alpha, tau)
    reference = exact_gain(g, alpha, tau)
    if abs(reference - 1) > 6000 * EPS:
        assert certificate.admissible == (reference < 1)
    assert certificate.gain == gain(g, alpha, tau)
    with mpmath.workdps(50):
        logs = [mpmath.log(float(x)) for x in g]
        weights = [digits(a - b) for a, b in zip(rational(alpha), rational(tau), strict=True)]
        inner = float(mpmath.fsum(x * w for x, w in zip(logs, weights, strict=True)))
    bound = (16 + len(g)) * EPS * np.ptp(log_grades)
    assert certificate.inner_product == pytest.approx(inner, abs=bound)
    assert certificate.ray_admissible == (certificate.inner_product > 0)
    if certificate.admissible and abs(reference - 1) > 6000 * EPS:
        assert certificate.ray_admissible  # necessary, by convexity


def test_a_light_coordinate_decides_the_ray():
    # The heavy coordinate cancels; only the weights of 1e-300 and 2e-300 differ.
    certificate = certify([1.0, 2.0], [1.0, 2e-300], [1.0, 1e-300])
    assert certificate.inner_product == pytest.approx(1e-300 * math.log(2), rel=8 * EPS, abs=0.0)
    assert certificate.ray_admissible
    assert certify([2.0, 1.0], [1.0, 2e-300], [1.0, 1e-300]).inner_product < 0


# Bennett step -----------------------------------------------------------------------------------------------------


@given(triple=triples(min_size=2, spread=EXTREME, amplitude=100.0))
def test_bennett_step_is_never_inadmissible_and_gains_what_it_promises(triple):
    alpha, tau, v = triple
    step = bennett_step(v, alpha, tau)
    assert step >= 0.0
    tolerance = 64 * EPS * max(1.0, step * np.ptp(v)) * (1 + 0.02 * np.ptp(v) * step)
    assert log_gain(step * v, alpha, tau) <= tolerance
    bound = bennett_bound(step, v, alpha, tau)
    assert log_gain(step * v, alpha, tau) <= bound + tolerance
    assert bound <= tolerance
    for factor in (0.5, 0.97, 1.03, 2.0):
        assert bound <= bennett_bound(factor * step, v, alpha, tau) + tolerance


@given(triple=triples(spread=20.0, amplitude=5.0), s=st.floats(0.0, 5.0))
def test_bennett_bound_holds_for_every_step(triple, s):
    alpha, tau, v = triple
    bound = bennett_bound(s, v, alpha, tau)
    assert log_gain(s * v, alpha, tau) <= bound + 1e-12 * (1 + abs(bound))


def test_bennett_step_stays_where_the_quadratic_step_leaves():
    alpha, tau, v = np.array([0.05, 0.95]), np.array([0.95, 0.05]), np.array([0.0, 1.0])
    gradient, hessian = log_gain_gradient([0, 0], alpha, tau), log_gain_hessian([0, 0], alpha, tau)
    quadratic = -(v @ gradient) / (v @ hessian @ v)
    assert math.exp(log_gain(quadratic * v, alpha, tau)) == pytest.approx(32.6, abs=0.05)
    step = bennett_step(v, alpha, tau)
    x = 0.9 / 0.095
    assert step == pytest.approx(math.log(1 + x), rel=16 * EPS, abs=0.0)
    decrease = 0.095 * ((1 + x) * math.log(1 + x) - x)
    assert bennett_bound(step, v, alpha, tau) == pytest.approx(-decrease, rel=64 * EPS, abs=0.0)
    assert log_gain(step * v, alpha, tau) <= -decrease


@pytest.mark.parametrize("v", [[0.0, 0.0], [3.0, 3.0], [1.0, 0.0]])
def test_bennett_step_is_zero_along_rays_that_never_enter(v):
    assert bennett_step(v, [0.2, 0.8], [0.7, 0.3]) == 0.0


@given(triple=triples(min_size=2, spread=3.0), scale=st.floats(1e-150, 1e150))
def test_bennett_step_scales_inversely_with_the_direction(triple, scale):
    alpha, tau, v = triple
    step = bennett_step(v, alpha, tau)
    assume(step > 0 and np.ptp(v) > 1e-3 and abs(np.dot(v, alpha - tau)) > 1e-6)
    assert bennett_step(scale * v, alpha, tau) * scale == pytest.approx(step, rel=1e-7, abs=0.0)


def test_bennett_bound_is_infinite_beyond_the_largest_double():
    assert bennett_bound(1e4, [1.0, 0.0], [0.7, 0.3], [0.3, 0.7]) == math.inf

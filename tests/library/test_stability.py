"""The Kempf-Ness side of the gain, and the invariants of binary forms, against closed forms and brute force."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import sympy
from flint import fmpq
from hypothesis import given
from hypothesis import strategies as st

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.grading import affinity, fourth_root_grades, log_gain, rational_gain, tilted_profiles
from gllm_lib.grading.binary_forms import (
    clebsch,
    covariants,
    form,
    form_stability,
    generic_form,
    hilbert_mumford_weight,
    igusa_clebsch,
    lie_derivatives,
    multiplicity_at,
    root_multiplicities,
    substitute,
    transvectant,
)
from gllm_lib.grading.stability import (
    boundary_form,
    kempf_ness,
    moment_map,
    pair_stability,
    recession_bound,
    recession_remainder,
    recession_slope,
)
from gllm_lib.proofs.strategies import rational_profile_pairs, triples

ROUNDING = 64 * 64 * 2.0**-52  # sums of a few terms whose logarithms stay below 64

entries = st.integers(-6, 6)
sextics = st.lists(entries, min_size=7, max_size=7)
matrices = st.lists(st.lists(entries, min_size=2, max_size=2), min_size=2, max_size=2)
points = st.tuples(entries, entries).filter(any)


@given(triples())
def test_log_gain_is_the_sum_of_two_kempf_ness_functionals(triple):
    alpha, tau, u = triple
    assert abs(kempf_ness(-u, alpha) + kempf_ness(u, tau) - log_gain(u, alpha, tau)) <= ROUNDING
    phase = np.exp(1j * np.arange(len(u)))
    for image, tilted in zip(
        (moment_map(phase * np.exp(-u / 2) * np.sqrt(alpha)), moment_map(np.exp(u / 2) * np.sqrt(tau))),
        tilted_profiles(u, alpha, tau),
        strict=True,
    ):
        assert np.allclose(image, tilted, rtol=1e-12, atol=0)


@given(rational_profile_pairs(), st.data())
def test_boundary_form_is_the_gain_with_denominators_cleared(pair, data):
    alpha, tau = pair
    t = data.draw(st.lists(st.fractions(Fraction(1, 9), 9, max_denominator=9), min_size=len(tau), max_size=len(tau)))
    assert boundary_form(t, alpha, tau) == (rational_gain(t, alpha, tau) - 1) * math.prod(t)
    assert boundary_form([1] * len(t), alpha, tau) == 0


@given(triples(min_size=2, spread=3.0))
def test_recession_slope_and_its_remainder_bracket_the_log_gain(triple):
    alpha, tau, v = triple
    slope, value = recession_slope(v), log_gain(v, alpha, tau)
    assert slope + recession_remainder(v, alpha, tau) - ROUNDING <= value <= slope + ROUNDING
    if slope > 0:
        assert -recession_bound(alpha, tau) - ROUNDING <= recession_remainder(v, alpha, tau)
        if value < -ROUNDING:
            assert slope < recession_bound(alpha, tau)


def test_recession_remainder_is_the_limit():
    alpha, tau, v = [0.2, 0.3, 0.5], [0.6, 0.3, 0.1], np.array([2.0, 2.0, -1.0])
    far = log_gain(40 * v, alpha, tau) - 40 * recession_slope(v)
    assert far == pytest.approx(math.log(0.5 * 0.9), abs=1e-12)
    assert recession_remainder(v, alpha, tau) == pytest.approx(far, abs=1e-12)
    assert recession_bound(alpha, tau) == pytest.approx(-math.log(0.2 * 0.1))
    assert recession_bound([1.0], [1.0]) == 0.0


def test_supports_decide_the_stability_of_a_pair():
    assert pair_stability([0.5, 0.5], [0.1, 0.9]) == "stable"
    assert pair_stability([0.5, 0.5, 0], [0.1, 0.9, 0]) == "polystable"
    assert pair_stability([0.5, 0.5, 0], [0, 0.9, 0.1]) == "semistable"
    assert pair_stability([1, 0], [0, 1]) == "unstable"


def test_semistable_pair_approaches_but_misses_its_infimum():
    alpha, tau = np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.5, 0.5])
    values = [(alpha / t).sum() * (tau * t).sum() for t in ([1 / e, 1.0, e] for e in (0.1, 0.01, 0.001))]
    assert values[0] > values[1] > values[2] > affinity([1.0], [1.0]) ** 2 / 4
    assert values[2] == pytest.approx(0.25, rel=0.01)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: kempf_ness([0.0], [0.5, 0.5]), InputError),
        (lambda: moment_map([0.0, 0.0]), InputError),
        (lambda: moment_map([np.nan, 1.0]), InputError),
        (lambda: moment_map("ab"), InputTypeError),
        (lambda: moment_map([True, False]), InputTypeError),
        (lambda: boundary_form([1], [1], [1, 0]), InputError),
        (lambda: recession_bound([0.5, 0.5], [1.0]), InputError),
        (lambda: pair_stability([0.5, -0.5], [0.5, 0.5]), InputError),
        (lambda: pair_stability([0, 0], [0.5, 0.5]), InputError),
        (lambda: form([]), InputError),
        (lambda: form([0.5, 1]), InputTypeError),
        (lambda: form([True]), InputTypeError),
        (lambda: clebsch([1, 2, 3]), InputError),
        (lambda: transvectant([1, 2], [1, 2, 3], 2), InputError),
        (lambda: root_multiplicities([0, 0]), InputError),
        (lambda: multiplicity_at([1, 2], (0, 0)), InputError),
        (lambda: hilbert_mumford_weight([1, 2], [[1, 1], [1, 1]]), InputError),
        (lambda: hilbert_mumford_weight([0, 0]), InputError),
        (lambda: lie_derivatives(generic_form(4)[0], 6), InputError),
    ],
)
def test_bad_input_is_refused(call, error):
    with pytest.raises(error):
        call()


def test_transvectants_against_their_definition_by_derivatives():
    x, y = sympy.symbols("x y")
    f, g = [3, -1, 4, 1, -5], [2, 7, -1, 8]
    poly = [sum(c * x ** (len(h) - 1 - i) * y**i for i, c in enumerate(h)) for h in (f, g)]
    for k in range(4):
        terms = [
            (-1) ** j * math.comb(k, j) * sympy.diff(poly[0], x, k - j, y, j) * sympy.diff(poly[1], x, j, y, k - j)
            for j in range(k + 1)
        ]
        factor = sympy.Rational(1, math.perm(4, k) * math.perm(3, k))
        expected = sympy.Poly(sympy.expand(factor * sum(terms)), x, y)
        got = transvectant(f, g, k)
        for i, value in enumerate(got):
            assert value == fmpq(*map(int, expected.coeff_monomial(x ** (7 - 2 * k - i) * y**i).as_numer_denom()))


@given(sextics, matrices)
def test_invariants_are_multiplied_by_a_power_of_the_determinant(f, matrix):
    (a, b), (c, d) = matrix
    for value, moved, degree in zip(clebsch(f), clebsch(substitute(f, matrix)), (2, 4, 6, 10, 15), strict=True):
        assert moved == value * (a * d - b * c) ** (3 * degree)


@given(sextics.filter(lambda f: f[0] != 0))
def test_degree_ten_is_the_discriminant(f):
    x = sympy.Symbol("x")
    polynomial = sum(c * x ** (6 - i) for i, c in enumerate(f))
    assert igusa_clebsch(f)[3] == int(sympy.discriminant(polynomial, x))


def test_known_sextic():
    # y^2 = x^6 - 1: roots are the sixth roots of unity; I2 = -240 a0 a6, and the discriminant is 6^6
    assert igusa_clebsch([1, 0, 0, 0, 0, 0, -1])[0] == 240
    assert igusa_clebsch([1, 0, 0, 0, 0, 0, -1])[3] == 6**6
    assert clebsch([1, 0, 0, 0, 0, 0, -1]).R == 0  # x -> -x is an extra involution
    assert clebsch([1, 0, 0, 1, 1, 0, 0]).R != 0


def test_generic_invariants_satisfy_the_lie_algebra_and_the_square_relation():
    f = generic_form(6)
    A, B, C, D, R = clebsch(f)
    for invariant in (A, B, C, D, R):
        assert not any(lie_derivatives(invariant, 6))
    assert any(lie_derivatives(f[0], 6))
    quadratics = covariants(f)[1:]
    gram = [[transvectant(p, q, 2)[0] for q in quadratics] for p in quadratics]
    (a, b, c), (_, d, e), (_, _, g) = gram
    assert a * (d * g - e * e) - b * (b * g - e * c) + c * (b * e - d * c) == 2 * R**2


@given(points, points, st.integers(0, 6))
def test_multiplicities_and_weights_agree(point, other, m):
    (p, q), (r, s) = point, other
    if p * s == q * r:
        return
    f = form([1])
    for a, b in [point] * m + [other] * (6 - m):
        f = tuple(fmpq(b) * x - fmpq(a) * y for x, y in zip([*f, fmpq(0)], [fmpq(0), *f], strict=True))
    assert multiplicity_at(f, point) == m
    assert hilbert_mumford_weight(f, [[r, p], [s, q]]) == 6 - 2 * m
    assert root_multiplicities(f)[0] == (max(m, 6 - m), 1)
    assert form_stability(f) == ("polystable" if m == 3 else "unstable")


def test_multiplicities_of_conjugate_roots():
    cube = [1, 0, -6, 0, 12, 0, -8]  # (x^2 - 2 y^2)^3
    assert root_multiplicities(cube) == ((3, 2),)
    assert form_stability(cube) == "polystable"
    assert form_stability([0, 0, 0, 1, 1, 0, 0]) == "semistable"  # x^2 y^3 (x + y)
    assert form_stability([7]) == "polystable"  # a constant: nothing moves it
    assert form_stability([1, 0, 0, 0, 0, 0, -1]) == "stable"
    weights = [hilbert_mumford_weight(cube, m) for m in itertools.islice(_matrices(), 40)]
    assert min(weights) == 6  # no subgroup over Q sees the irrational root


def _matrices():
    for a, b, c, d in itertools.product(range(-1, 2), repeat=4):
        if a * d != b * c:
            yield ((a, b), (c, d))


def test_fourth_root_grades_make_the_moment_maps_coincide():
    alpha, tau = [0.7, 0.2, 0.1], [0.1, 0.3, 0.6]
    u = 2 * np.log(fourth_root_grades(alpha, tau))
    first, second = tilted_profiles(u, alpha, tau)
    beta = np.sqrt(np.multiply(alpha, tau))
    assert np.allclose(first, second, rtol=1e-13)
    assert np.allclose(first, beta / beta.sum(), rtol=1e-13)

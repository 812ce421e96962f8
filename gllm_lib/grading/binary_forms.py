"""Binary forms over the rationals: transvectants, the invariants of sextics, and stability by root multiplicity.

f   coefficients (a_0, ..., a_d) of a_0 x^d + a_1 x^{d-1} y + ... + a_d y^d: integers, fractions, flint rationals, or
    flint polynomials (`generic_form`), with which one computation proves an identity for all forms

A point of the projective line is a pair (p, q), not both 0; f has it as a root of multiplicity m if (q x - p y)^m
divides f. Nothing is rounded anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import comb, perm
from numbers import Rational
from typing import Any, NamedTuple

from flint import Ordering, fmpq, fmpq_mpoly, fmpq_mpoly_ctx, fmpq_poly, fmpz

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.grading.stability import Stability

Form = tuple[Any, ...]
SEXTIC = 6


def _coefficient(value: Any) -> Any:
    if isinstance(value, Rational) and not isinstance(value, bool):
        return fmpq(int(value.numerator), int(value.denominator))
    if isinstance(value, fmpq | fmpq_mpoly):
        return value
    if isinstance(value, fmpz):
        return fmpq(value)
    raise InputTypeError(f"a coefficient is {type(value).__name__}; give integers or fractions, such as Fraction(1, 3)")


def form(coefficients: Iterable[Any], degree: int | None = None) -> Form:
    """Return coefficients as a form; raises InputError for none or another degree, InputTypeError for a float."""
    f = tuple(_coefficient(value) for value in coefficients)
    if not f or (degree is not None and len(f) != degree + 1):
        allowed = "at least one" if degree is None else f"{degree + 1} for degree {degree}"
        raise InputError(f"the form has {len(f)} coefficients; give {allowed}, zeros included")
    return f


def generic_form(degree: int) -> Form:
    """Return the form whose coefficients are the variables a0, ..., a_degree of a polynomial ring over Q."""
    ring = fmpq_mpoly_ctx.get([f"a{i}" for i in range(degree + 1)], Ordering.degrevlex)
    return tuple(ring.gens())


def transvectant(f: Iterable[Any], g: Iterable[Any], order: int) -> Form:
    """Return the transvectant (f, g)_k of degree m + n - 2k, Clebsch's normalisation: (f, g)_0 = f g.

    (m-k)! (n-k)! / (m! n!) times sum_j (-1)^j C(k, j) f_{x^{k-j} y^j} g_{x^j y^{k-j}}. Raises InputError for an order
    above either degree.
    """
    f, g, k = form(f), form(g), order
    m, n = len(f) - 1, len(g) - 1
    if not 0 <= k <= min(m, n):
        raise InputError(f"order is {k}; a transvectant of degrees {m} and {n} has an order in 0..{min(m, n)}")
    out: list[Any] = [f[0] * g[0] * 0] * (m + n - 2 * k + 1)
    for j in range(k + 1):
        for p in range(j, m - k + j + 1):
            left = perm(m - p, k - j) * perm(p, j) * comb(k, j) * (-1) ** j
            for q in range(k - j, n - j + 1):
                out[p + q - k] += f[p] * g[q] * (left * perm(n - q, j) * perm(q, k - j))
    return tuple(value * fmpq(1, perm(m, k) * perm(n, k)) for value in out)


def substitute(f: Iterable[Any], matrix: Sequence[Sequence[Any]]) -> Form:
    """Return f(a x + b y, c x + d y) for the matrix [[a, b], [c, d]], which need not be invertible."""
    f = form(f)
    (a, b), (c, d) = (tuple(map(_coefficient, row)) for row in matrix)
    out: list[Any] = [f[0] * 0] * len(f)
    power: list[Any] = [fmpq(1)]  # (c x + d y)^i
    for i, value in enumerate(f):
        term = power
        for _ in range(len(f) - 1 - i):
            term = _times(term, a, b)
        out = [one + value * other for one, other in zip(out, term, strict=True)]
        power = _times(power, c, d)
    return tuple(out)


def _times(f: list[Any], a: Any, b: Any) -> list[Any]:
    """Multiply a form by a x + b y."""
    return [one * a + other * b for one, other in zip([*f, fmpq(0)], [fmpq(0), *f], strict=True)]


def lie_derivatives(invariant: fmpq_mpoly, degree: int) -> tuple[fmpq_mpoly, fmpq_mpoly]:
    """Return the derivatives at s = 0 of a polynomial in a0..a_degree along f(x + s y, y) and f(x, y + s x).

    Both vanish exactly for the invariants of SL2. Raises InputError for a ring of other variables.
    """
    ring = invariant.context()
    if ring.names() != tuple(f"a{i}" for i in range(degree + 1)):
        raise InputError(
            f"the variables are {', '.join(ring.names())}; take the polynomial of a generic_form({degree})"
        )
    a = ring.gens()
    right = sum(((degree - i + 1) * a[i - 1] * invariant.derivative(i) for i in range(1, degree + 1)), 0 * a[0])
    left = sum(((i + 1) * a[i + 1] * invariant.derivative(i) for i in range(degree)), 0 * a[0])
    return right, left


class Covariants(NamedTuple):
    """Clebsch's covariants of a sextic: i of degree 4, three quadratics y1, y2, y3; degrees 2, 3, 5, 7 in f."""

    i: Form
    y1: Form
    y2: Form
    y3: Form


class Clebsch(NamedTuple):
    """Clebsch's invariants of a sextic, of degrees 2, 4, 6, 10 and 15."""

    A: Any
    B: Any
    C: Any
    D: Any
    R: Any


def covariants(f: Iterable[Any]) -> Covariants:
    """Return i = (f, f)_4, y1 = (f, i)_4, y2 = (i, y1)_2, y3 = (i, y2)_2; raises InputError unless f is a sextic."""
    f = form(f, SEXTIC)
    i = transvectant(f, f, 4)
    y1 = transvectant(f, i, 4)
    y2 = transvectant(i, y1, 2)
    return Covariants(i, y1, y2, transvectant(i, y2, 2))


def clebsch(f: Iterable[Any]) -> Clebsch:
    """Return A = (f, f)_6, B = (i, i)_4, C = (i, (i, i)_2)_4, D = (y3, y1)_2 and R = ((y1, y2)_1, y3)_2 of a sextic.

    Raises InputError for another degree.
    """
    f = form(f, SEXTIC)
    i, y1, y2, y3 = covariants(f)
    return Clebsch(
        transvectant(f, f, 6)[0],
        transvectant(i, i, 4)[0],
        transvectant(i, transvectant(i, i, 2), 4)[0],
        transvectant(y3, y1, 2)[0],
        transvectant(transvectant(y1, y2, 1), y3, 2)[0],
    )


def igusa_clebsch(f: Iterable[Any]) -> tuple[Any, Any, Any, Any]:
    """Return I2, I4, I6, I10 of a sextic; I10 is its discriminant. Raises InputError for another degree."""
    a, b, c, d, _ = clebsch(f)
    return (
        -120 * a,
        -720 * a**2 + 6750 * b,
        8640 * a**3 - 108000 * a * b + 202500 * c,
        -62208 * a**5 + 972000 * a**3 * b + 1620000 * a**2 * c - 3037500 * a * b**2 - 6075000 * b * c - 4556250 * d,
    )


def root_multiplicities(f: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    """Return (multiplicity, number of conjugate roots) of each irreducible factor over Q, the largest first.

    The root at infinity, (1, 0), counts as one. Raises InputError for the zero form.
    """
    f = form(f)
    if not any(f):
        raise InputError("the form is zero: every point is a root; give a coefficient that is not 0")
    at_infinity = next(i for i, value in enumerate(f) if value)
    _, factors = fmpq_poly(list(reversed(f))).factor()
    found = [(power, factor.degree()) for factor, power in factors]
    return tuple(sorted(found + [(at_infinity, 1)] * (at_infinity > 0), reverse=True))


def multiplicity_at(f: Iterable[Any], point: tuple[Any, Any]) -> int:
    """Return how often the rational point (p, q) is a root of f; raises InputError for (0, 0) or the zero form."""
    f, (p, q) = form(f), map(_coefficient, point)
    if not any(f) or not (p or q):
        raise InputError("a multiplicity needs a form that is not zero and a point other than (0, 0)")
    moved = substitute(f, [[p, 0], [q, 1]] if p else [[0, 1], [q, 0]])  # sends (1, 0) to the point
    return next(i for i, value in enumerate(moved) if value)


def hilbert_mumford_weight(f: Iterable[Any], matrix: Sequence[Sequence[Any]] = ((1, 0), (0, 1))) -> int:
    """Return max{2i - d : a_i != 0} of f(M(x, y)): the weight for diag(1/s, s) turned by M (GLLM Rem. 21).

    It equals d - 2m, where m is the multiplicity of the root M(0, 1). Raises InputError for the zero form or a
    singular matrix.
    """
    f = form(f)
    (a, b), (c, d) = matrix
    if not any(f) or a * d == b * c:
        raise InputError("a weight needs a form that is not zero and an invertible matrix")
    moved = substitute(f, matrix)
    return 2 * max(i for i, value in enumerate(moved) if value) - (len(f) - 1)


def form_stability(f: Iterable[Any]) -> Stability:
    """Return "stable", "semistable" or "unstable" as the largest multiplicity lies below, at or above d/2.

    "polystable" instead of "semistable" if there are two roots of multiplicity d/2 and no other. Roots are those over
    the algebraic closure. Raises InputError for the zero form (GLLM Rem. 21).
    """
    f = form(f)
    found, degree = root_multiplicities(f), len(f) - 1
    most = 2 * found[0][0] if found else 0
    if most == degree:
        return "polystable" if all(2 * m == degree for m, _ in found) else "semistable"
    return "stable" if most < degree else "unstable"

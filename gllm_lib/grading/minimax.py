"""Minimax risk of linear targets under a budget: level caps, the window of sample sizes, and the source's constants.

In prediction coordinates theta_j = sigma_j w_j the design is standard normal, and an estimate's squared excess risk is
|estimate - theta|^2. A budget |D w| <= B, with D constant on levels, is the ellipsoid sum_l |theta_l|^2 / cap_l <= 1.

caps    cap_l = sigma_l^2 B^2 / D_l^2, the energy a level holds if it takes the whole budget, shape (L,)
sizes   d_l, the number of coordinates of a level, shape (L,)
noise   n_l = d_l sigma^2 / m, the energy of the noise in a level at sample size m, shape (L,)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from gllm_lib.checks import InputError, Vector, count, generator, positive, real, same_length
from gllm_lib.grading.levels import geometric_profiles

AMPLITUDE = math.log(2) / 64  # c_0 of GLLM Lem. 3: squared amplitude of a packing coordinate, in units of sigma^2 / m


def level_noise(sizes: ArrayLike, m: float, variance: float = 1.0) -> Vector:
    """Return n_l = d_l variance / m, shape (L,); raises InputError unless sizes, m and variance are positive."""
    d = positive("sizes", sizes, "a level has at least one coordinate")
    m, variance = positive("m, variance", [m, variance], "give a sample size and a noise variance above 0")
    noise: Vector = d * (variance / m)
    return noise


def stratified_caps(nu: float, mu: float, levels: int, dimension: int, g: ArrayLike | None = None) -> Vector:
    """Return the caps (L/d) s_l g_l^2 sum_k a_k / g_k^2, shape (L,), of geometric profiles and equal levels.

    Equal grades (`g=None`) give the uniform class (GLLM Sec. 4.3). Raises what `geometric_profiles` raises, and
    InputError unless g has one positive grade per level and the dimension is a positive multiple of the levels.
    """
    a, s = geometric_profiles(nu, mu, levels)
    d = count("dimension", dimension, levels)
    if d % levels:
        raise InputError(f"dimension is {d}; with {levels} equal levels give a multiple of {levels}")
    grades = np.ones(levels) if g is None else positive("g", g, "a grade must exceed 0")
    same_length(g=grades, a=a)
    caps: Vector = levels / d * s * grades**2 * float(np.sum(a / grades**2))
    return caps


@dataclass(frozen=True)
class Window:
    """The sample sizes W = {4, ..., last} of GLLM Lem. 4, empty if last < 4, and the saturation scale."""

    saturation: float  # m_sat = d^2 variance / (L^2 s_0)
    last: int

    @property
    def size(self) -> int:
        """The number of sample sizes in the window."""
        return max(0, self.last - 3)


def window(mu: float, levels: int, dimension: int, variance: float = 1.0) -> Window:
    """Return the window on which the budget of either class saturates every level (GLLM Lem. 4).

    Raises what `stratified_caps` raises, and InputError for a noise variance that is not positive.
    """
    top = stratified_caps(mu, mu, levels, dimension)[0]  # the uniform caps do not depend on nu
    saturation = float(level_noise([dimension // levels], 1.0, variance)[0] / top)
    return Window(saturation, math.floor(saturation / 2))


def sum_envelope(caps: ArrayLike, noise: ArrayLike) -> float:
    """Return M = sum_l min(cap_l, n_l), between whose multiples GLLM Lem. 3 puts the minimax risk."""
    caps, noise = caps_and_noise(caps, noise)
    return float(np.minimum(caps, noise).sum())


def caps_and_noise(caps: ArrayLike, noise: ArrayLike) -> tuple[Vector, Vector]:
    """Return both as positive vectors of one length; raises InputError or InputTypeError if they are not."""
    top = positive("caps", caps, "a class without room on a level has no such level: delete it")
    floor = positive("noise", noise, "the noise energy d_l sigma^2 / m of a level must exceed 0")
    same_length(caps=top, noise=floor)
    return top, floor


def gilbert(length: int, distance: int) -> int:
    """Return 2^K / V rounded up, a number of words of K bits that can keep pairwise Hamming distance `distance`.

    V counts the words closer than that to a given one. Raises InputError or InputTypeError unless K and the distance
    are whole and positive.
    """
    k = count("length", length, 1)
    ball = sum(comb(k, i) for i in range(count("distance", distance, 1)))
    return -(-(2**k) // ball)


def fano_factor(words: float, divergence: float) -> float:
    """Return 1 - (divergence + log 2) / words, a bound from below on the chance of error.

    `words` is the logarithm of the number of equally likely hypotheses, `divergence` the largest Kullback-Leibler
    divergence between two of them, both in nats.
    """
    words, divergence = real("words", words), real("divergence", divergence)
    if not words > 0.0 or divergence < 0.0:
        raise InputError(f"words is {words:g}, divergence {divergence:g}; give log N > 0 and a divergence >= 0")
    return 1.0 - (divergence + math.log(2)) / words


@dataclass(frozen=True)
class SourceConstants:
    """The constants that the proofs of GLLM Lems. 3 and 4 give, for L levels."""

    packing: float  # C_1(L) = 2 max(1, c_0 L) + c_0 L^2 / 32: M <= C_1 K sigma^2 / m if K >= 32
    few: float  # C'(L) = 32 L max(1, c_0 L): M <= C' max_l min(cap_l, sigma^2 / m) if K < 32
    two_point: float  # c_5 = (1 - sqrt(c_0 / 4)) / 8
    lower: float  # c(L) = min(c_0 / (16 C_1), c_5 c_0 / C')
    pinning: float  # c_4 = min(c_0 / 8, c_5 c_0 / 32)


def source_constants(levels: int) -> SourceConstants:
    """Return every constant of the lower bounds, traced through the source's proofs (GLLM Lems. 3(i), 4(iii))."""
    size = count("levels", levels, 1)
    c0, widest = AMPLITUDE, max(1.0, AMPLITUDE * size)
    packing, few = 2.0 * widest + c0 * size**2 / 32, 32.0 * size * widest
    two_point = (1.0 - math.sqrt(c0 / 4)) / 8
    lower = min(c0 / (16 * packing), two_point * c0 / few)
    return SourceConstants(packing, few, two_point, lower, min(c0 / 8, two_point * c0 / 32))


def least_squares_factor(fitted: int, m: int) -> float:
    """Return E tr (Z^T Z)^{-1} = D / (m - D - 1) for m standard normal rows of D entries, infinite if m <= D + 1."""
    size, rows = count("fitted", fitted, 0), count("m", m, 1)
    if size == 0:
        return 0.0
    return size / (rows - size - 1) if rows > size + 1 else math.inf


def least_squares_risk(fitted: int, m: int, variance: float, omitted: float) -> float:
    """Return the exact risk of least squares on D coordinates that leaves energy `omitted` outside them.

    It is omitted + (variance + omitted) D / (m - D - 1): what is left out is noise for the fit (GLLM Lem. 3(ii)).
    """
    if not (variance >= 0.0 and omitted >= 0.0):
        raise InputError(f"variance is {variance}, omitted {omitted}; both are energies and at least 0")
    return omitted + (variance + omitted) * least_squares_factor(fitted, m) if fitted else omitted


def least_squares_draws(fitted: int, m: int, trials: int, rng: np.random.Generator) -> Vector:
    """Return independent draws of tr (Z^T Z)^{-1}, shape (trials,); raises InputError for m < D."""
    size = count("fitted", fitted, 1)
    rows = count("m", m, size)
    z = generator(rng).standard_normal((count("trials", trials, 1), rows, size))
    traces: Vector = np.trace(np.linalg.inv(z.transpose(0, 2, 1) @ z), axis1=1, axis2=2)
    return traces

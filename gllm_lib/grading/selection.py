"""The clipped selection problem, solved exactly: the grades in [1, clip] of least gain (GLLM Prop. 10).

With s_j = (alpha_j / tau_j)^{1/4} every minimiser is g_j = min(clip, max(1, kappa s_j)). Call Lo the coordinates at 1
and Up those at the clip. The share of the coordinates in between cancels from the optimality condition, which reads

    kappa^4 = (tau(Lo) + clip^2 tau(Up)) / (alpha(Lo) + alpha(Up) / clip^2),

and as kappa grows its left side overtakes its right side once. So one sort of s, sums over its beginnings and ends, and
a bisection over the kappas at which a coordinate enters or leaves give Lo and Up; then kappa is the closed form. Sums
are of positive terms and are never subtracted, and only square roots of weights meet: no weight is too small beside
another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from math import hypot, inf, isfinite, log, sqrt
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gllm_lib.checks import InputError, InputTypeError, Vector, same_length
from gllm_lib.grading.profiles import profile_and_sum

CLOSE = 1.6  # the largest ratio of grades whose gain is computed as a distance from 1


@dataclass(frozen=True, eq=False)
class Selection:
    """Grades of least gain under a clip.

    g             grades, shape (d,), smallest exactly 1, none above the clip
    gain          Lambda(g), exactly 1 where g leaves all grades equal
    interval      the shifts c of u = 2 log g that stay optimal inside [0, 2 log clip]: (0, 0) if g is the only
                  minimiser, (0, inf) without a clip
    kkt_residual  largest violation of the optimality conditions by g, a difference of two probabilities
    """

    g: Vector
    gain: float
    interval: tuple[float, float]
    kkt_residual: float


def _clip(clip: float | None) -> float:
    if clip is None:
        return inf
    if isinstance(clip, bool | np.bool_) or not isinstance(clip, Real):
        raise InputTypeError(f"clip is {type(clip).__name__}; give a number of at least 1, or None for no clip")
    try:
        value = float(clip)
    except OverflowError as error:
        raise InputError("clip is too large for a double; give None for no clip") from error
    if not (value >= 1.0 and isfinite(value)):
        raise InputError(f"clip is {value:g}; it bounds all grades: give a finite number >= 1, or None for none")
    return value


def _doubles(array: NDArray[Any]) -> memoryview:
    """Return a view whose entries read as Python floats, fast; a complex entry reads as two."""
    return memoryview(array.view(np.float64))  # type: ignore[arg-type]


def _saturated_scale(s: Vector, weights: NDArray[np.complex128], clip: float) -> float:
    """Return kappa for weights alpha + i tau in the order of ascending s, where s[-1] > clip s[0]."""
    # Complex, because both profiles then take one pass over memory instead of two.
    d = len(s)
    at, heads, tails = _doubles(s), _doubles(np.cumsum(weights)), _doubles(np.cumsum(weights[::-1]))

    def too_small(kappa: float, lo: int, up: int) -> bool:
        """Whether the optimal kappa is at least this one, at which Lo is [:lo] and Up is [up:].

        A coordinate that sits exactly at an end adds equally to both sides. Counting it would bury lighter ones.
        """
        if lo == 0:
            return False
        head, tail = 2 * lo - 2, 2 * (d - up) - 2
        alpha_tail, tau_tail = (tails[tail], tails[tail + 1]) if up < d else (0.0, 0.0)
        weight = hypot(sqrt(heads[head + 1]), clip * sqrt(tau_tail))
        return weight >= kappa * kappa * hypot(sqrt(heads[head]), sqrt(alpha_tail) / clip)

    def leaves_one(i: int) -> bool:
        return too_small(1.0 / at[i], bisect_left(at, at[i]), bisect_right(at, clip * at[i]))

    def enters_clip(k: int) -> bool:
        return too_small(clip / at[k], lo, bisect_right(at, at[k]))

    lo = 1 + bisect_left(range(1, d), True, key=leaves_one)
    first = bisect_right(at, clip * at[lo - 1])
    last = bisect_left(at, clip * at[lo]) if lo < d else d
    up = first + bisect_left(range(first, last), True, key=enters_clip)
    # Fresh pairwise sums: the running ones are good enough to order by, but less accurate.
    at_one, at_clip = weights[:lo].sum(), weights[up:].sum()
    weight = hypot(sqrt(at_one.imag), clip * sqrt(at_clip.imag))
    kappa = sqrt(weight / hypot(sqrt(at_one.real), sqrt(at_clip.real) / clip))
    return min(kappa, 1.0 / at[lo - 1])  # rounding must not lift the smallest grade above 1


def _value_and_gradient(g: Vector, highest: float, root_alpha: Vector, root_tau: Vector) -> tuple[float, Vector]:
    """Return the gain of g, for profiles of any sums, and the gradient of its log in u = 2 log g, shape (d,)."""
    centred = g * (1.0 / sqrt(highest))  # the gain is blind to this factor; both sums then stay in range
    tilted_alpha = root_alpha / centred
    tilted_tau = np.multiply(root_tau, centred, out=centred)
    tilted_alpha *= tilted_alpha
    tilted_tau *= tilted_tau
    alpha_sum, tau_sum = float(tilted_alpha.sum()), float(tilted_tau.sum())
    tilted_alpha /= alpha_sum
    tilted_tau /= tau_sum
    return alpha_sum * tau_sum, np.subtract(tilted_tau, tilted_alpha, out=tilted_tau)


def _gain_of_close_grades(g: Vector, highest: float, alpha: Vector, tau: Vector) -> float:
    """Return the gain for profiles of sum 1 as 1 plus its distance from 1, in which no term of order 1 cancels."""
    square = g * (1.0 / sqrt(highest))
    square *= square
    tilted_alpha = alpha / square
    square -= 1.0
    distances = -np.dot(square, tilted_alpha), np.dot(square, tau)
    return float(1.0 + (np.dot(square, tau - tilted_alpha) + distances[0] * distances[1]))


def select(alpha: ArrayLike, tau: ArrayLike, clip: float | None = None) -> Selection:
    """Return the grades of least gain among 1 <= g_j <= clip, exact, in O(d log d) (GLLM Props. 7(iii), 10).

    `clip=None` means no clip. Raises InputError or InputTypeError if a profile is none, the lengths differ, or clip is
    not a finite number >= 1.
    """
    clip = _clip(clip)
    alpha, alpha_sum = profile_and_sum("alpha", alpha)
    tau, tau_sum = profile_and_sum("tau", tau)
    same_length(alpha=alpha, tau=tau)
    root_alpha, root_tau = np.sqrt(alpha), np.sqrt(tau)
    s = root_alpha / root_tau
    np.sqrt(s, out=s)
    lowest = float(s.min())
    highest = float(s.max()) / lowest
    if highest <= clip:
        g = s / lowest
        value, gradient = _value_and_gradient(g, highest, root_alpha, root_tau)
        residual = max(gradient.max(), -gradient.min())
        slack = 2.0 * log(clip / highest)  # infinite without a clip
    else:
        order = np.argsort(s)
        weights = np.empty(len(s), np.complex128)
        weights.real, weights.imag = alpha, tau
        g = s * _saturated_scale(s[order], weights[order], clip)
        np.maximum(g, 1.0, out=g)
        np.minimum(g, clip, out=g)
        value, gradient = _value_and_gradient(g, clip, root_alpha, root_tau)
        # A positive gradient asks for a smaller grade, which only a grade of 1 may ignore; a negative one for a larger.
        residual = max((gradient * (g > 1.0)).max(), -(gradient * (g < clip)).min())
        slack = 0.0
    # The product of two sums may round to either side of 1, where "below 1" is what a reader asks.
    value /= alpha_sum * tau_sum
    if (widest := min(clip, highest)) <= CLOSE:
        value = _gain_of_close_grades(g, widest, alpha / alpha_sum, tau / tau_sum)
    return Selection(g, value, (0.0, slack), float(residual))

"""The grading gain of two energy profiles: its value, its derivatives in u = 2 log g, and what certifies a grading.

alpha   target profile, share of the target's energy on each coordinate, shape (d,), sums to 1
tau     data profile, share of the data's variance on each coordinate, shape (d,), sums to 1
g       grades, positive multipliers of the coordinates, shape (d,)
u       2 log g, the variable in which the log-gain is convex, shape (d,)

Profiles may be off from sum 1 by the rounding they were written with; every value below is that of the profiles
divided by their sums, so that the gain of equal grades is exactly 1.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gllm_lib.checks import SUM_TOLERANCE, InputError, Vector, positive, profile, same_length, vector

LARGEST_HESSIAN = 30_000  # coordinates; 8 d^2 bytes are then 6.7 GiB


def profile_and_sum(name: str, value: ArrayLike) -> tuple[Vector, float]:
    """Return a profile as float64, shape (d,), with its sum; not a copy. Raises as `checks.profile` does."""
    plain = type(value) is np.ndarray and value.dtype == np.float64 and value.ndim == 1 and value.size > 0
    array: Vector = value if plain else profile(name, value)  # type: ignore[assignment]
    total = float(array.sum())
    # One comparison lets through what is valid: a sum near 1 excludes NaN and infinity.
    if not (abs(total - 1.0) <= SUM_TOLERANCE and array.min() > 0.0):
        profile(name, array)
    return array, total


def _profiles(alpha: ArrayLike, tau: ArrayLike, **others: Vector) -> tuple[Vector, Vector]:
    alpha, alpha_sum = profile_and_sum("alpha", alpha)
    tau, tau_sum = profile_and_sum("tau", tau)
    same_length(**others, alpha=alpha, tau=tau)
    return alpha / alpha_sum, tau / tau_sum


def _grades(g: ArrayLike) -> Vector:
    mend = "a grade multiplies a coordinate and must exceed 0; delete coordinates you switch off"
    return positive("g", g, mend, "a grade must exceed 0; its sign cancels from the gain: give the absolute value")


def _double_log(g: Vector) -> Vector:
    """Return 2 log g up to a constant shift, exact zeros where all grades agree."""
    low = g.min()
    # Close grades are compared as a ratio: the difference of their logs would lose digits.
    return 2.0 * np.log(g / low if g.max() <= 2.0 * low else g)


def _centred(v: Vector) -> Vector:
    """Return v minus the midpoint of its range: no overflow, and exact zeros if v is constant."""
    return v - (0.5 * v.max() + 0.5 * v.min())


def _tilt(log_weights: Vector) -> tuple[Vector, float]:
    """Return the probability vector proportional to exp(log_weights), and the log of its normalising sum."""
    top = log_weights.max()
    with np.errstate(over="ignore"):  # -1e308 - 1e308 is -inf, of weight 0 as it should be
        weights = np.exp(log_weights - top)
    total = weights.sum()
    return weights / total, float(top + math.log(total))


def _log_gain(u: Vector, alpha: Vector, tau: Vector) -> float:
    """Return log Lambda for validated profiles of sum 1."""
    u = _centred(u)
    if u.max() > 0.5:
        return _tilt(np.log(alpha) - u)[1] + _tilt(np.log(tau) + u)[1]
    # Near equal grades both factors are near 1; summing their distances from 1 keeps the digits of log Lambda.
    u = u - 0.5 * np.dot(alpha + tau, u)
    distance_alpha, distance_tau = np.dot(alpha, np.expm1(-u)), np.dot(tau, np.expm1(u))
    both = np.sum((tau - alpha) * np.sinh(u) + 2.0 * (alpha + tau) * np.sinh(0.5 * u) ** 2)
    return math.log1p(both + distance_alpha * distance_tau)


def _exp(x: float) -> float:
    return math.exp(x) if x < 709.78 else math.inf


def affinity(alpha: ArrayLike, tau: ArrayLike) -> float:
    """Return the Bhattacharyya affinity BC = sum_j sqrt(alpha_j tau_j), in (0, 1] (GLLM Prop. 7(iii)).

    Raises InputError or InputTypeError if an argument is no profile or the lengths differ.
    """
    alpha, alpha_sum = profile_and_sum("alpha", alpha)
    tau, tau_sum = profile_and_sum("tau", tau)
    same_length(alpha=alpha, tau=tau)
    # Square roots before the product: the product of two weights of 1e-300 would underflow.
    return float(np.sum(np.sqrt(alpha) * np.sqrt(tau))) / math.sqrt(alpha_sum * tau_sum)


def gain(g: ArrayLike, alpha: ArrayLike, tau: ArrayLike) -> float:
    """Return the grading gain Lambda = (sum_j alpha_j / g_j^2)(sum_j tau_j g_j^2) (GLLM Prop. 7).

    Smaller is better and equal grades give 1. Infinite if it exceeds the largest double: `log_gain` has no such limit.
    Raises InputError or InputTypeError if g is not positive, an argument is no profile, or the lengths differ.
    """
    g = _grades(g)
    alpha, tau = _profiles(alpha, tau, g=g)
    return _exp(_log_gain(_double_log(g), alpha, tau))


def rational_gain(t: Iterable[Any], alpha: Iterable[Any], tau: Iterable[Any]) -> Fraction:
    """Return Lambda at squared grades t without rounding, all three given as integers or fractions, length d.

    Raises InputError if the lengths differ or a squared grade is 0 (GLLM Prop. 7).
    """
    rows = [tuple(map(Fraction, row)) for row in (t, alpha, tau)]
    same_length(t=np.empty(len(rows[0])), alpha=np.empty(len(rows[1])), tau=np.empty(len(rows[2])))
    if 0 in rows[0]:
        raise InputError(f"t[{rows[0].index(Fraction(0))}] is 0; every squared grade must exceed 0")
    squared, target, data = rows
    return Fraction(sum(a / x for a, x in zip(target, squared, strict=True))) * sum(map(operator.mul, data, squared))


def token_gain(g: ArrayLike, alpha: ArrayLike, tau: ArrayLike) -> float:
    """Return 1 / Lambda, the factor by which grading divides the tokens that the bound asks for.

    Raises what `gain` raises.
    """
    g = _grades(g)
    alpha, tau = _profiles(alpha, tau, g=g)
    return _exp(-_log_gain(_double_log(g), alpha, tau))


def log_gain(u: ArrayLike, alpha: ArrayLike, tau: ArrayLike) -> float:
    """Return log Lambda at u = 2 log g, convex and invariant under u + c (GLLM Prop. 8(i), (ii)).

    Raises InputError or InputTypeError if u is not finite, an argument is no profile, or the lengths differ.
    """
    u = vector("u", u)
    alpha, tau = _profiles(alpha, tau, u=u)
    return _log_gain(u, alpha, tau)


def tilted_profiles(u: ArrayLike, alpha: ArrayLike, tau: ArrayLike) -> tuple[Vector, Vector]:
    """Return the tilted profiles, proportional to alpha e^{-u} and tau e^{u}, each (d,) of sum 1 (GLLM Prop. 8).

    Raises what `log_gain` raises.
    """
    u = vector("u", u)
    alpha, tau = _profiles(alpha, tau, u=u)
    u = _centred(u)
    return _tilt(np.log(alpha) - u)[0], _tilt(np.log(tau) + u)[0]


def log_gain_gradient(u: ArrayLike, alpha: ArrayLike, tau: ArrayLike) -> Vector:
    """Return the gradient of `log_gain` in u, tilted tau minus tilted alpha, shape (d,) (GLLM Prop. 8(iv)).

    Raises what `log_gain` raises.
    """
    tilted_alpha, tilted_tau = tilted_profiles(u, alpha, tau)
    return tilted_tau - tilted_alpha


def log_gain_hessian(u: ArrayLike, alpha: ArrayLike, tau: ArrayLike) -> Vector:
    """Return the Hessian of `log_gain` in u, the sum of both tilted covariances, shape (d, d) (GLLM Prop. 8(ii)).

    Raises what `log_gain` raises, and InputError for more than 30,000 coordinates, whose matrix fills most memories.
    """
    tilted_alpha, tilted_tau = tilted_profiles(u, alpha, tau)
    if (d := len(tilted_alpha)) > LARGEST_HESSIAN:
        raise InputError(
            f"the Hessian of {d} coordinates takes {8 * d * d / 2**30:.0f} GiB; {LARGEST_HESSIAN} are the most. It is "
            "diag(p) - p p^T summed over both p of `tilted_profiles`: multiply a vector by that instead"
        )
    covariances = -np.outer(tilted_alpha, tilted_alpha) - np.outer(tilted_tau, tilted_tau)
    covariances[np.diag_indices_from(covariances)] += tilted_alpha + tilted_tau
    return covariances


def fourth_root_grades(alpha: ArrayLike, tau: ArrayLike) -> Vector:
    """Return the grades (alpha_j / tau_j)^{1/4} that minimise the gain, smallest grade 1, (d,) (GLLM Prop. 7(iii)).

    Raises InputError or InputTypeError if an argument is no profile or the lengths differ.
    """
    alpha, _ = profile_and_sum("alpha", alpha)
    tau, _ = profile_and_sum("tau", tau)
    same_length(alpha=alpha, tau=tau)
    grades = np.sqrt(np.sqrt(alpha) / np.sqrt(tau))
    return grades / grades.min()


@dataclass(frozen=True)
class Certificate:
    """What the profiles say of one grading before any training (GLLM Rem. 17, Prop. 8(iv)).

    inner_product   <log g, alpha - tau>; its sign decides for small multiples of log g only
    ray_admissible  inner_product > 0: g raised to some small power has gain below 1
    admissible      gain < 1: these grades themselves improve the bound; implies ray_admissible, not conversely
    gain            Lambda(g)
    """

    inner_product: float
    ray_admissible: bool
    admissible: bool
    gain: float


def certify(g: ArrayLike, alpha: ArrayLike, tau: ArrayLike) -> Certificate:
    """Return what the profiles say of the grades g: whether g itself, or only its direction, beats equal grades.

    Raises what `gain` raises.
    """
    g = _grades(g)
    alpha, tau = _profiles(alpha, tau, g=g)
    u = _centred(_double_log(g))
    value = _log_gain(u, alpha, tau)
    inner_product = 0.5 * _centred_inner_product(u, alpha, tau)
    return Certificate(inner_product, inner_product > 0.0, value < 0.0, _exp(value))


def _centred_inner_product(v: Vector, alpha: Vector, tau: Vector) -> float:
    """Return <v, alpha - tau> with v centred on its mean, so that a heavy coordinate cannot hide a light one."""
    return float(np.dot(v - 0.5 * np.dot(alpha + tau, v), alpha - tau))


def regret(g: ArrayLike, alpha: ArrayLike, tau: ArrayLike) -> float:
    """Return Lambda(g) / BC^2, at least 1, by the exact identity E_beta[rho] E_beta[1 / rho] (after GLLM Lem. 2).

    Here rho = (g / g*)^2 with the fourth-root grades g*, and beta_j = sqrt(alpha_j tau_j) / BC. Raises what
    `gain` raises.
    """
    g = _grades(g)
    alpha, tau = _profiles(alpha, tau, g=g)
    beta = np.sqrt(alpha) * np.sqrt(tau)
    beta /= beta.sum()
    # E_beta[rho] E_beta[1 / rho] is itself a gain: that of sqrt(rho) where both profiles are beta.
    return _exp(_log_gain(2.0 * np.log(g) - 0.5 * (np.log(alpha) - np.log(tau)), beta, beta))


def _slope_and_variance(v: ArrayLike, alpha: ArrayLike, tau: ArrayLike) -> tuple[float, float, float]:
    """Return R = max v - min v, and D / R and S / R^2 of GLLM Prop. 8(v) in units of u."""
    v = vector("v", v)
    alpha, tau = _profiles(alpha, tau, v=v)
    v = _centred(v)
    width = 2.0 * float(v.max())
    if width == 0.0:
        return 0.0, 0.0, 0.0
    w = v / width
    spread = sum(float(np.dot(p, (w - np.dot(p, w)) ** 2)) for p in (alpha, tau))
    return width, _centred_inner_product(w, alpha, tau), spread


def bennett_step(v: ArrayLike, alpha: ArrayLike, tau: ArrayLike) -> float:
    """Return the step s >= 0 along u = s v that minimises `bennett_bound`, log(1 + R D / S) / R.

    Positive exactly if D = <v, alpha - tau> > 0, and then the gain at s v is below 1; the quadratic step D / S of
    GLLM Prop. 8(v) may overshoot. Raises what `log_gain` raises, of v.
    """
    width, slope, spread = _slope_and_variance(v, alpha, tau)
    return math.log1p(slope / spread) / width if slope > 0.0 and spread > 0.0 else 0.0


def bennett_bound(s: float, v: ArrayLike, alpha: ArrayLike, tau: ArrayLike) -> float:
    """Return -D s + S (e^{R s} - 1 - R s) / R^2, which `log_gain(s v)` does not exceed for any s >= 0.

    R = max v - min v, D = <v, alpha - tau>, S = Var_alpha(v) + Var_tau(v). Raises what `log_gain` raises, of v, and
    InputError if s is negative or not finite.
    """
    step = float(vector("s", [s])[0])
    if step < 0.0:
        raise InputError(f"s is {step:g}; the bound holds for steps along v: give s >= 0, or turn v round")
    width, slope, spread = _slope_and_variance(v, alpha, tau)
    x = width * step
    return -slope * x + spread * (math.expm1(x) - x) if x < 709.78 else math.inf

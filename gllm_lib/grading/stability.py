"""The gain as a Kempf-Ness functional: moment maps, the boundary hypersurface, recession slopes, stability by supports.

alpha, tau   target and data profile, shape (d,), each of sum 1
u, v         log-squared grades and a direction of them, shape (d,)
t            squared grades e^u; the admissible set is a cone in t, bounded by the zero set of one form of degree d
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from gllm_lib.checks import InputError, InputTypeError, Vector, as_array, profile, same_length, vector

Stability = Literal["stable", "polystable", "semistable", "unstable"]  # each but the last implies the next


def kempf_ness(u: ArrayLike, p: ArrayLike) -> float:
    """Return log sum_j p_j e^{u_j}, the log squared length of e^{u/2} z_p with z_p = sqrt(p) (GLLM Sec. 6.7).

    Its gradient is `moment_map` of e^{u/2} z_p, its Hessian the covariance of that probability vector. Raises
    InputError or InputTypeError if u is not finite, p is no profile, or the lengths differ.
    """
    u, p = vector("u", u), profile("p", p)
    same_length(u=u, p=p)
    return float(logsumexp(u, b=p / p.sum()))


def moment_map(z: ArrayLike) -> Vector:
    """Return |z_j|^2 / |z|^2, shape (d,), of a real or complex vector: the moment map of the torus (GLLM Sec. 6.7).

    Raises InputError if z is the zero vector, not finite or not flat, and InputTypeError if it holds no numbers.
    """
    array = as_array("z", z, "give real or complex numbers")
    if array.dtype.kind not in "iufc":
        raise InputTypeError(f"z holds {array.dtype} entries; give real or complex numbers")
    size = vector("z", np.abs(array))
    if not size.any():
        raise InputError("z is the zero vector, which has no moment map; give at least one entry that is not 0")
    squared = (size / size.max()) ** 2
    image: Vector = squared / squared.sum()
    return image


def boundary_form(t: Iterable[Any], alpha: Iterable[Any], tau: Iterable[Any]) -> Any:
    """Return F(t) = (sum_j alpha_j prod_{k != j} t_k)(sum_l tau_l t_l) - prod_k t_k, of degree d (GLLM Prop. 12(i)).

    Entries may be of any kind that adds and multiplies (fractions, floats, symbols), zero and negative t included: for
    t > 0 the gain is below 1 exactly where F < 0. Raises InputError if the lengths differ.
    """
    points, target, data = list(t), list(alpha), list(tau)
    same_length(t=np.empty(len(points)), alpha=np.empty(len(target)), tau=np.empty(len(data)))
    others = [math.prod(points[:j] + points[j + 1 :]) for j in range(len(points))]
    return sum(map(operator.mul, target, others)) * sum(map(operator.mul, data, points)) - math.prod(points)


def recession_slope(v: ArrayLike) -> float:
    """Return max_j v_j - min_j v_j, the slope of the log-gain far out along v (GLLM Prop. 12(ii)).

    Raises InputError or InputTypeError if v holds no finite numbers.
    """
    return float(np.ptp(vector("v", v)))


def recession_remainder(v: ArrayLike, alpha: ArrayLike, tau: ArrayLike) -> float:
    """Return lim Phi(s v) - s slope = log tau(M) + log alpha(m), with M and m where v is greatest and least.

    Phi(s v) falls to s slope plus this number as s grows, and never exceeds s slope. Raises InputError or
    InputTypeError if v is not finite, an argument is no profile, or the lengths differ.
    """
    v, alpha, tau = vector("v", v), profile("alpha", alpha), profile("tau", tau)
    same_length(v=v, alpha=alpha, tau=tau)
    at_top, at_bottom = tau[v == v.max()].sum() / tau.sum(), alpha[v == v.min()].sum() / alpha.sum()
    return math.log(at_top) + math.log(at_bottom)


def recession_bound(alpha: ArrayLike, tau: ArrayLike) -> float:
    """Return the least b with slope - b <= Phi for all grades, -log min over k != l of alpha_k tau_l (0 for d = 1).

    Admissible grades have max u - min u < b. Raises InputError or InputTypeError if an argument is no profile or the
    lengths differ.
    """
    alpha, tau = profile("alpha", alpha), profile("tau", tau)
    if same_length(alpha=alpha, tau=tau) == 1:
        return 0.0
    log_alpha, log_tau = np.log(alpha / alpha.sum()), np.log(tau / tau.sum())
    pairs = log_alpha[:, None] + log_tau[None, :]
    np.fill_diagonal(pairs, np.inf)
    return float(-pairs.min())


def pair_stability(alpha: ArrayLike, tau: ArrayLike) -> Stability:
    """Return how stable a pair of profiles is when weights may vanish, by their supports alone (GLLM Rem. 19).

    "stable": both supports full. "polystable": equal supports; the least gain is attained. "semistable": they meet but
    differ; the infimum BC^2 > 0 is not attained. "unstable": disjoint; the gain has infimum 0. Raises InputError for a
    negative weight or an empty support, and for lengths that differ.
    """
    weights = {"alpha": vector("alpha", alpha), "tau": vector("tau", tau)}
    same_length(**weights)
    for name, weight in weights.items():
        if weight.min() < 0 or not weight.any():
            raise InputError(f"{name} is {weight.tolist()!r:.60}; weights are at least 0 and not all 0")
    in_alpha, in_tau = weights["alpha"] > 0, weights["tau"] > 0
    if (in_alpha == in_tau).all():
        return "stable" if in_alpha.all() else "polystable"
    return "semistable" if (in_alpha & in_tau).any() else "unstable"

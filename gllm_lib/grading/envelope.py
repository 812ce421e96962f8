"""Envelopes of the minimax risk that do not lose a factor L: knapsack, linear minimax risk, and bounds of van Trees.

caps, noise and sizes are as in `minimax`. In the sequence model one sees theta plus independent normal noise of energy
n_l on level l; in the random design one sees m pairs (z, <theta, z> + noise) with standard normal z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gllm_lib.checks import InputError, Vector, count, generator, positive, same_length, vector
from gllm_lib.grading.minimax import caps_and_noise, level_noise


@dataclass(frozen=True, eq=False)
class Allocation:
    """A value and the shares of the budget that attain it, shape (L,), at least 0, of sum at most 1."""

    value: float
    shares: Vector


def knapsack(caps: ArrayLike, noise: ArrayLike) -> Allocation:
    """Return E = max_p sum_l min(p_l cap_l, n_l) over shares p of the budget: fill the largest caps first.

    Raises InputError or InputTypeError unless caps and noise are positive, of one length.
    """
    caps, noise = caps_and_noise(caps, noise)
    order = np.argsort(-caps, kind="stable")
    wanted = (noise / caps)[order]
    before = np.concatenate([[0.0], np.cumsum(wanted)[:-1]])
    shares = np.empty_like(caps)
    shares[order] = np.clip(1.0 - before, 0.0, wanted)
    return Allocation(float(np.minimum(shares * caps, noise).sum()), shares)


def linear_minimax(caps: ArrayLike, noise: ArrayLike) -> Allocation:
    """Return the least worst-case risk of linear estimates in the sequence model, and its least favourable shares.

    It is max_p sum_l x_l n_l / (x_l + n_l) with x_l = p_l cap_l. On the levels above a water level t the energy is
    x_l = n_l (sqrt(cap_l) / t - 1), elsewhere 0; one sort finds t. The estimate that attains the value multiplies level
    l by x_l / (x_l + n_l). Raises what `knapsack` raises.
    """
    caps, noise = caps_and_noise(caps, noise)
    order = np.argsort(-caps, kind="stable")
    root, n, wanted = np.sqrt(caps[order]), noise[order], (noise / caps)[order]
    # Differences of roots, so that no digit is lost where the noise is far above every cap.
    gap = root[:, None] - root[None, :]
    active = 1 + int(np.flatnonzero(root + np.tril(gap) @ wanted > 0.0)[-1])
    above = root[:active] + gap[:active, :active] @ wanted[:active]
    x = np.zeros_like(caps)
    x[order[:active]] = n[:active] * above / np.sum(n[:active] / root[:active])
    return Allocation(float(np.sum(x * noise / (x + noise))), x / caps)


def ball_constant(sizes: ArrayLike) -> Vector:
    """Return kappa_l = (sqrt(1 + 2/d_l) + sqrt(2/d_l))^2, shape (L,): the price of a prior that stays inside a ball.

    It falls from 9.9 at one coordinate to 1, and is at least d^-2 times the least Fisher information in a unit ball.
    """
    d = positive("sizes", sizes, "a level has at least one coordinate")
    constants: Vector = (np.sqrt(1.0 + 2.0 / d) + np.sqrt(2.0 / d)) ** 2
    return constants


def _shares(shares: ArrayLike | None, caps: Vector, noise: Vector) -> Vector:
    """Return the given shares of the budget, or the least favourable ones; raises InputError if they are none."""
    if shares is None:
        return linear_minimax(caps, noise).shares
    p = vector("shares", shares)
    same_length(caps=caps, shares=p)
    if p.min() < 0.0 or p.sum() > 1.0 + 1e-9:
        raise InputError(f"shares sum to {p.sum():.9g}, least {p.min():.3g}; give shares >= 0 of sum at most 1")
    return p


def van_trees(caps: ArrayLike, noise: ArrayLike, sizes: ArrayLike, shares: ArrayLike | None = None) -> float:
    """Return sum_l x_l n_l / (x_l + kappa_l n_l), x_l = p_l cap_l: a lower bound for all estimates and designs.

    `shares` are those of `linear_minimax` by default. Raises what `knapsack` raises, and InputError unless the shares
    are at least 0 with sum at most 1.
    """
    caps, noise = caps_and_noise(caps, noise)
    kappa = ball_constant(sizes)
    same_length(caps=caps, sizes=kappa)
    x = _shares(shares, caps, noise) * caps
    return float(np.sum(x * noise / (x + kappa * noise)))


def samples_for(target: float, caps: ArrayLike, sizes: ArrayLike, variance: float = 1.0) -> float:
    """Return the real m at which `linear_minimax` reaches `target`, 0 if the zero estimate does.

    Raises InputError if the target is not positive.
    """
    from scipy.optimize import brentq  # here, because it takes longer to import than the rest of this package

    goal = float(positive("target", [target], "a risk of 0 needs infinitely many samples")[0])
    caps = positive("caps", caps)
    if goal >= caps.max():
        return 0.0
    one = level_noise(sizes, 1.0, variance)

    def excess(log_m: float) -> float:
        return math.log(linear_minimax(caps, one * math.exp(-log_m)).value / goal)

    # The risk is at most sum n_l and, with the whole budget on the largest cap, at least cap n / (cap + n); the margins
    # are wide enough for a sign that rounding cannot turn.
    top = int(np.argmax(caps))
    low = math.log(one[top] / caps[top]) + math.log((caps[top] - goal) / goal) - 5.0
    high = math.log(one.sum() / goal) + 1.0
    return math.exp(float(brentq(excess, low, high, xtol=1e-13)))


@dataclass(frozen=True, eq=False)
class DesignRisk:
    """Monte-Carlo risks in random design of the posterior mean for independent normal coordinates.

    bayes   its mean risk under that prior, no more than the worst-case risk of any estimate linear in y
    worst   its worst-case risk over the class, no less than the minimax risk, at the level that is worst on average
    Both with their standard errors.
    """

    bayes: float
    bayes_error: float
    worst: float
    worst_error: float


def _gram(m: int, d: int, rng: np.random.Generator) -> Vector:
    """Return Z^T Z for m standard normal rows, shape (d, d), by Bartlett's triangle where there are enough rows."""
    if m < d:
        z = generator(rng).standard_normal((m, d))
        return np.asarray(z.T @ z)
    triangle = np.tril(generator(rng).standard_normal((d, d)), -1)
    triangle[np.diag_indices(d)] = np.sqrt(rng.chisquare(m - np.arange(d)))
    return np.asarray(triangle @ triangle.T)


def design_risk(
    caps: ArrayLike,
    sizes: ArrayLike,
    m: int,
    trials: int,
    rng: np.random.Generator,
    *,
    variance: float = 1.0,
    shares: ArrayLike | None = None,
) -> DesignRisk:
    """Return simulated risks at m normal rows for the prior that spreads p_l cap_l evenly over level l.

    `shares` p are those of `linear_minimax` by default; a level of share 0 is estimated by 0, and its signal is noise
    for the others. Raises what `knapsack` raises, and InputTypeError if rng is no generator.
    """
    widths = np.array([count("sizes", d, 1) for d in np.ravel(sizes).tolist()])
    caps, noise = caps_and_noise(caps, level_noise(widths, count("m", m, 1), variance))
    p = _shares(shares, caps, noise)
    level = np.repeat(np.arange(len(caps)), widths)
    active = np.flatnonzero(p[level] > 0.0)
    precision = np.diag((widths / np.where(p > 0.0, p * caps, 1.0))[level[active]])
    bayes, spent, missed = [], [], []
    for _ in range(count("trials", trials, 2)):
        gram = _gram(m, len(level), rng)[active] / variance
        posterior = np.linalg.inv(precision + gram[:, active])
        error = -posterior @ gram  # estimate minus truth, as a matrix that acts on the truth
        error[np.arange(len(active)), active] += 1.0
        squares = np.sum(error**2, axis=0)
        squares[p[level] == 0.0] += 1.0
        bayes.append(np.trace(posterior))
        spent.append(np.sum((posterior @ gram[:, active]) * posterior))
        missed.append(np.bincount(level, squares) / widths * caps)
    per_level = np.array(spent)[:, None] + np.array(missed)
    worst = per_level[:, int(np.argmax(per_level.mean(axis=0)))]
    root = math.sqrt(len(worst))
    return DesignRisk(
        float(np.mean(bayes)),
        float(np.std(bayes, ddof=1)) / root,
        float(worst.mean()),
        float(worst.std(ddof=1)) / root,
    )

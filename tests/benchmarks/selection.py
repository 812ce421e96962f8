"""Time `select` against a sort of as many numbers, and against a generic one-dimensional dual.

Run it as `python tests/benchmarks/selection.py`. Peers are interleaved in one process; ratios are of medians. The same
pair of random profiles and the same clip serve all three, and the sort gets the ratios that `select` has to order.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.optimize import minimize_scalar

from gllm_lib.checks import Vector
from gllm_lib.grading import select

SIZES = {1_000: 400, 10_000: 100, 100_000: 20, 1_000_000: 7}  # numbers: rounds
CLIP = 2.0
LIMIT = 25.0


def profiles(rng: np.random.Generator, d: int) -> tuple[Vector, Vector]:
    """Return two profiles whose weights are spread log-normally, so that the clip binds at both ends."""
    alpha, tau = np.exp(2.0 * rng.standard_normal((2, d)))
    return alpha / alpha.sum(), tau / tau.sum()


def generic_dual(alpha: Vector, tau: Vector) -> tuple[float, Vector]:
    """Return the clipped gain and its grades from the one-dimensional dual, by bounded search, O(d) a step."""
    root_ratio = np.sqrt(alpha / tau)

    def half_sum(log_kappa: float) -> float:
        kappa = np.exp(log_kappa)
        t = np.clip(kappa * root_ratio, 1.0, CLIP**2)
        return 0.5 * float(np.sum(kappa * alpha / t + tau * t / kappa))

    bounds = (-float(np.log(root_ratio.max())), float(np.log(CLIP**2 / root_ratio.min())))
    found = minimize_scalar(half_sum, bounds=bounds, method="bounded", options={"xatol": 1e-12})
    return found.fun**2, np.sqrt(np.clip(np.exp(found.x) * root_ratio, 1.0, CLIP**2))


def medians(peers: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each peer over interleaved rounds, after one round to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for turn in range(rounds + 1):
        for name, peer in peers.items():
            start = time.perf_counter()
            peer()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main() -> None:
    """Print one line per size and leave with an error if `select` exceeds its limit."""
    rng = np.random.default_rng(20)
    print("        d   sort (us)   select / sort   dual / select   gains differ by   grades by")
    worst = 0.0
    for d, rounds in SIZES.items():
        alpha, tau = profiles(rng, d)
        ratios = alpha / tau
        peers: dict[str, Callable[[], object]] = {
            "sort": partial(np.sort, ratios),
            "select": partial(select, alpha, tau, CLIP),
            "dual": partial(generic_dual, alpha, tau),
        }
        median = medians(peers, rounds)
        ratio = median["select"] / median["sort"]
        worst = max(worst, ratio)
        selection, (dual_gain, dual_grades) = select(alpha, tau, CLIP), generic_dual(alpha, tau)
        gains, grades = abs(selection.gain - dual_gain), np.abs(selection.g - dual_grades).max()
        race = median["dual"] / median["select"]
        print(f"{d:9d}   {median['sort'] * 1e6:9.1f}   {ratio:13.1f}   {race:13.1f}   {gains:15.1e}   {grades:9.1e}")
    if worst > LIMIT:
        raise SystemExit(f"select took {worst:.1f} times a sort; the limit is {LIMIT:g}")


if __name__ == "__main__":
    main()

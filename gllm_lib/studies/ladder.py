"""The arms of the selection ladder as grades, and their gain on profiles that may have negative shares (GLLM Sec. 8).

Shapes: d coordinates, L levels. Grades lie in [1, clip] and are read off profiles of documents that the gain is not
evaluated on.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from gllm_lib.analysis.probes import Array, floored, level_sums
from gllm_lib.checks import InputError, generator
from gllm_lib.grading.selection import select

AMPLITUDES = np.linspace(0.0, 1.0, 11)  # exponents at which an arm's best amplitude is looked for
SMALLEST = 1e-12  # a profile's floor where grades are selected: the solver takes no zero


def signed_gain(g: ArrayLike, shares: ArrayLike, tau: ArrayLike) -> float:
    """Return (sum_j shares_j / g_j^2)(sum_j tau_j g_j^2): linear in the shares (d,), of which some may be negative."""
    grades = np.asarray(g, dtype=np.float64)
    return float((np.asarray(shares) / grades**2).sum() * (np.asarray(tau) * grades**2).sum())


def level_grades(levels: int, clip: float, reverse: bool = False) -> Array:
    """Return clip^(l / (L - 1)) for l = 0..L-1, the taxonomic grades 1, 1.26, 1.59, 2 at L = 4 and clip 2."""
    if levels < 2 or clip < 1:
        raise InputError(f"{levels} levels at clip {clip}; give at least two levels and a clip of at least 1")
    grades = np.asarray(clip ** (np.arange(levels) / (levels - 1)), dtype=np.float64)
    return grades[::-1] if reverse else grades


def random_gain(clip: float) -> float:
    """Return the gain expected of independent grades log-uniform on [1, clip], E[g^2] E[g^-2], for spread profiles."""
    if clip <= 1:
        raise InputError(f"clip {clip}; random grades need room above 1")
    return float((clip**2 - 1) * (1 - clip**-2.0) / (4 * np.log(clip) ** 2))


def educated(level: ArrayLike, alpha: ArrayLike, tau: ArrayLike, clip: float) -> tuple[Array, Array]:
    """Return the grades (d,) of least gain on a profile pair (d,), one grade per level and one per coordinate."""
    numbers, data = np.asarray(level), np.asarray(tau, dtype=np.float64)
    count = int(numbers.max()) + 1
    profile = floored(alpha, SMALLEST)[0]
    by_level = floored(level_sums(profile, numbers, count), SMALLEST)[0]
    return select(by_level, level_sums(data, numbers, count), clip).g[numbers], select(profile, data, clip).g


def arms(
    level: ArrayLike, alpha: ArrayLike, tau: ArrayLike, energy_share: ArrayLike, clip: float, rng: np.random.Generator
) -> dict[str, Array]:
    """Return the grades (d,) of every arm from a profile pair (d,) measured on other documents than the evaluation.

    `level` (d,) numbers the levels; `energy_share` (d,) is the share of a coordinate's energy that open-class words
    carry, stretched over [1, clip] for the part-of-speech arm.
    """
    numbers = np.asarray(level)
    count = int(numbers.max()) + 1
    share = np.asarray(energy_share, dtype=np.float64)
    if not (np.isfinite(share).all() and share.max() > share.min()):
        raise InputError(
            "energy_share is the same for all coordinates, or not finite; the part-of-speech arm needs a range"
        )
    by_level, by_coordinate = educated(numbers, alpha, tau, clip)
    found = {
        "uniform": np.ones(len(numbers)),
        "taxonomic": level_grades(count, clip)[numbers],
        "reversed": level_grades(count, clip, reverse=True)[numbers],
        "part_of_speech": clip ** ((share - share.min()) / (share.max() - share.min())),
        "educated_level": by_level,
        "educated_coordinate": by_coordinate,
    }
    for number in range(4):
        found[f"random_{number}"] = clip ** generator(rng).uniform(size=len(numbers))
    return found


def arm_report(grades: Mapping[str, Array], shares: ArrayLike, tau: ArrayLike, clip: float) -> dict[str, list[float]]:
    """Return per arm [pairing, gain, best amplitude, gain there]: <log g / log clip, shares - tau> and `signed_gain`.

    The pairing is GLLM Eq. 15's first-order certificate; 1 - 2 log(clip) * pairing is the gain it promises.
    """
    difference = np.asarray(shares) - np.asarray(tau)
    report = {}
    for name, g in grades.items():
        path = [signed_gain(g**amplitude, shares, tau) for amplitude in AMPLITUDES]
        best = int(np.argmin(path))
        pairing = float((np.log(g) / np.log(clip) * difference).sum())
        report[name] = [round(each, 4) for each in (pairing, path[-1], float(AMPLITUDES[best]), path[best])]
    return report

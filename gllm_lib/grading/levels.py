"""Levels: groups of coordinates that share one grade, and the reduction of d grades to L (GLLM Cor. 3, Prop. 11).

level_of  the level of each coordinate, integers 0 .. L-1 with every level present, shape (d,)
a, s      target and data profile over levels, shape (L,), each sums to 1
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gllm_lib.checks import InputError, InputTypeError, Vector, as_array, count, profile, real, same_length
from gllm_lib.grading.selection import Selection, select

Levels = NDArray[np.intp]


def _integers(name: str, value: ArrayLike, least: int) -> Levels:
    array = as_array(name, value, "give integers, such as [2, 3]")
    if array.size and array.dtype.kind not in "iu":
        raise InputTypeError(f"{name} holds {array.dtype} entries; give integers, such as [2, 3]")
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"{name} has shape {array.shape}; give a flat list with at least one entry")
    if array.min() < least:
        raise InputError(f"{name} holds {array.min()}; its entries must be at least {least}")
    return array.astype(np.intp)


def _level_of(value: ArrayLike) -> tuple[Levels, Levels]:
    """Return the level of each coordinate, (d,), and the size of each level, (L,)."""
    level_of = _integers("level_of", value, 0)
    top = int(level_of.max())
    if top >= len(level_of):  # more levels than coordinates: do not count up to a huge label
        raise InputError(f"level_of names level {top} for {len(level_of)} coordinates; number levels 0, 1, 2 and so on")
    sizes = np.bincount(level_of)
    empty = np.flatnonzero(sizes == 0)
    if empty.size:
        raise InputError(f"level_of leaves level {empty[0]} empty; number levels 0, 1, 2 and so on without a gap")
    return level_of, sizes


def allocation(sizes: ArrayLike) -> Levels:
    """Return the level of each coordinate, (d,), where level l holds the next sizes[l] >= 1 coordinates.

    Raises InputError for a size below 1 and InputTypeError if the sizes are not integers.
    """
    counts = _integers("sizes", sizes, 1)
    return np.repeat(np.arange(len(counts)), counts)


def spread(level_profile: ArrayLike, level_of: ArrayLike) -> Vector:
    """Return the coordinate profile, (d,), that shares each level's weight equally among its coordinates (GLLM Cor. 3).

    Raises InputError or InputTypeError if there is no profile over the levels, or level_of is not as above.
    """
    weights = profile("level_profile", level_profile)
    levels, sizes = _level_of(level_of)
    same_length(level_profile=weights, levels=sizes)
    shares: Vector = weights / sizes
    return shares[levels]


def coarsen(coordinate_profile: ArrayLike, level_of: ArrayLike) -> Vector:
    """Return the profile over levels, (L,): the total weight of each level's coordinates.

    Raises InputError or InputTypeError if the profile is none, or level_of is not as above.
    """
    weights = profile("coordinate_profile", coordinate_profile)
    levels, _ = _level_of(level_of)
    same_length(coordinate_profile=weights, level_of=levels)
    totals: Vector = np.bincount(levels, weights).astype(np.float64, copy=False)
    return totals


def select_levels(alpha: ArrayLike, tau: ArrayLike, level_of: ArrayLike, clip: float | None = None) -> Selection:
    """Return the grades of least gain that are constant on levels, g of shape (d,), other fields of the L-problem.

    On profiles uniform within levels no grades at all do better (GLLM Prop. 11); on others this is the best that one
    grade per level can do. Raises what `coarsen` and `select` raise.
    """
    a, s = coarsen(profile("alpha", alpha), level_of), coarsen(profile("tau", tau), level_of)
    chosen = select(a, s, clip)
    return replace(chosen, g=chosen.g[_level_of(level_of)[0]])


def geometric_profiles(nu: float, mu: float, levels: int) -> tuple[Vector, Vector]:
    """Return level profiles a_l ~ nu^{L-1-l} and s_l ~ mu^l, each (L,): target deep, data shallow (GLLM Cor. 3).

    The corollary's rate nu^L asks for mu < nu; any two ratios are allowed here. Raises InputError if a ratio is outside
    (0, 1), there is no level, or a weight falls below the smallest double; InputTypeError if levels is no integer.
    """
    nu, mu, levels = real("nu", nu, above=0, below=1), real("mu", mu, above=0, below=1), count("levels", levels)
    depth = np.arange(levels)
    target, data = nu ** depth[::-1], mu**depth
    if min(target[0], data[-1]) == 0.0:
        raise InputError(f"{min(nu, mu):g} to the power {levels - 1} is 0 in double precision; give fewer levels")
    return target / target.sum(), data / data.sum()

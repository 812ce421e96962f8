"""Hypothesis strategies that seek the edges: one coordinate, ties, equal profiles, weights spread over many decades."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

Strategy = st.SearchStrategy[Any]


def log_weights(size: int, spread: float) -> Strategy:
    """Lists of `size` log-weights in [-spread, spread], rich in ties and in both ends."""
    edges = st.sampled_from([0.0, -spread, spread, spread / 2])
    inner = st.floats(-spread, spread, allow_nan=False)
    return st.lists(st.one_of(edges, inner, inner), min_size=size, max_size=size)


def _normalised(logs: list[float]) -> np.ndarray:
    weights = np.exp(np.asarray(logs) - max(logs))
    return weights / weights.sum()


def profiles(min_size: int = 1, max_size: int = 8, spread: float = 20.0) -> Strategy:
    """Strictly positive probability vectors, shape (d,), with weight ratios up to e**(2 spread); spread < 340."""
    return st.integers(min_size, max_size).flatmap(lambda d: log_weights(d, spread).map(_normalised))


def profile_pairs(min_size: int = 1, max_size: int = 8, spread: float = 20.0) -> Strategy:
    """Pairs (alpha, tau) of profiles of one length; about one pair in eight has alpha equal to tau."""

    def pair(d: int) -> Strategy:
        one = log_weights(d, spread).map(_normalised)
        equal = one.map(lambda alpha: (alpha, alpha.copy()))
        return st.integers(0, 7).flatmap(lambda k: equal if k == 0 else st.tuples(one, one))

    return st.integers(min_size, max_size).flatmap(pair)


def triples(min_size: int = 1, max_size: int = 8, spread: float = 20.0, amplitude: float = 6.0) -> Strategy:
    """Triples (alpha, tau, u): two profiles and log-squared grades u in [-amplitude, amplitude], all of length d."""

    def triple(d: int) -> Strategy:
        one = log_weights(d, spread).map(_normalised)
        return st.tuples(one, one, log_weights(d, amplitude).map(np.asarray))

    return st.integers(min_size, max_size).flatmap(triple)


def rational_profiles(size: int, largest: int = 12) -> Strategy:
    """Strictly positive rational probability vectors of length `size`, as lists of Fractions."""
    weights = st.lists(st.integers(1, largest), min_size=size, max_size=size)
    return weights.map(lambda w: [Fraction(x, sum(w)) for x in w])


def rational_profile_pairs(min_size: int = 1, max_size: int = 5, largest: int = 12) -> Strategy:
    """Pairs of rational profiles of one length, for checks without rounding."""

    def pair(d: int) -> Strategy:
        return st.tuples(rational_profiles(d, largest), rational_profiles(d, largest))

    return st.integers(min_size, max_size).flatmap(pair)

"""Orthonormal bases whose coordinates belong to annotated levels (GLLM Sec. 7.1), in two constructions and any order.

Shapes: d coordinates, k_l feature columns of level l, L levels. A level enters as a factor (d, k_l) whose leading left
singular directions are the level's own, strongest first. The source's sentence allows two factors: `encoding_factor`
asks where the annotation explains the representation, `decoding_factor` where it can be read from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gllm_lib.analysis.probes import Array, Moments, matrix, ridge_each
from gllm_lib.checks import InputError

EXHAUSTED = 1e-6  # singular values below this share of the factor's largest are rounding, not annotation
RESIDUAL = -1  # the level of columns that no level owns


@dataclass(frozen=True, eq=False)
class LevelBasis:
    """An orthonormal basis: `vectors` (d, d), columns grouped by level; `level` (d,), -1 for the residual block.

    `filled` (L,) counts the columns of each level that its own annotation did not determine.
    """

    vectors: Array
    level: NDArray[np.int64]
    filled: NDArray[np.int64]

    def sizes(self) -> NDArray[np.int64]:
        """Number of columns of each level, shape (L,)."""
        return np.array([(self.level == number).sum() for number in range(len(self.filled))], dtype=np.int64)


def live_directions(covariance: ArrayLike, multiple_of: int = 1, tolerance: float = 1e-6) -> Array:
    """Return the leading eigenvectors (d, r) whose variance exceeds `tolerance` of the largest, strongest first.

    Dead directions are deleted, as GLLM Def. 2 asks; r is cut down to a multiple of `multiple_of`, so that levels can
    be of equal size. Raises InputError if nothing is left.
    """
    values, vectors = np.linalg.eigh(matrix("covariance", covariance))
    rank = int((values > tolerance * values[-1]).sum()) if values[-1] > 0 else 0
    rank -= rank % multiple_of
    if rank == 0:
        raise InputError(f"fewer than {multiple_of} directions carry variance; give a representation that varies")
    return np.ascontiguousarray(vectors[:, ::-1][:, :rank], dtype=np.float64)


def encoding_factor(features: Moments, tolerance: float = 1e-6) -> Array:
    """Return the factor (d, k) of construction `enc` from Moments with the features as inputs and x (d) as outputs.

    x is regressed on the features by least squares; the factor M has M M' = covariance of the fit, so its singular
    directions are the principal components of what the annotation explains. Feature directions with less than
    `tolerance` of the largest variance are left out: indicators of one label set sum to 1.
    """
    scale = _standardising(np.diagonal(features.covariance()))
    values, vectors = np.linalg.eigh(features.covariance() * np.outer(scale, scale))
    kept = values > tolerance * values[-1]
    whitened = vectors[:, kept] / np.sqrt(values[kept])
    return np.asarray((features.cross_covariance() * scale[:, None]).T @ whitened, dtype=np.float64)


def decoding_factor(sample: Moments, penalties: ArrayLike) -> Array:
    """Return the factor (d, k) of construction `dec` from Moments with x as inputs and the features (k) as outputs.

    Features of unit variance are regressed on x, each at its own penalty (k,) in the units of `ridge`; the factor is
    the weight matrix, whose truncated singular value decomposition is its best approximation of lower rank. Columns of
    features that never vary are zero.
    """
    return ridge_each(sample, penalties) * _standardising(sample.target_variance())


def _standardising(variance: Array) -> Array:
    """Return what makes features (k,) of unit variance, 0 for those that never vary."""
    deviation = np.sqrt(np.maximum(variance, 0.0))
    if not (deviation > 0).any():
        raise InputError("no feature varies; give at least one column that takes two values")
    return np.where(deviation > 0, 1.0 / np.where(deviation > 0, deviation, 1.0), 0.0)


def level_basis(
    factors: Sequence[ArrayLike],
    covariance: ArrayLike,
    order: Sequence[int] | None = None,
    size: int | None = None,
    turn: int = 5,
) -> LevelBasis:
    """Return an orthonormal basis with `size` (default d/L) columns for each level's factor (d, k_l).

    With `order`, a permutation of 0..L-1, levels take their leading directions one after the other in the complement of
    those before (Gram-Schmidt, the source's construction). Without it they take `turn` residual directions in turn, the
    level that begins rotating from round to round. Columns that annotation leaves undetermined are filled at the end
    with the principal directions of `covariance` (d, d) in what is left, dealt out in turn; with L * size < d the rest
    is the residual block, level -1.

    If L * size = d, the last level of an order spans the complement of the others whatever its factor says.
    """
    parts = [matrix(f"factor {number}", factor) for number, factor in enumerate(factors)]
    d, levels = len(parts[0]) if parts else 0, len(parts)
    second = matrix("covariance", covariance)
    if not parts or any(len(part) != d for part in parts) or second.shape != (d, d):
        raise InputError("give one factor (d, k) per level and the covariance (d, d) of the same representation")
    if size is None and d % levels:
        raise InputError(f"{d} coordinates do not divide into {levels} equal levels; keep a multiple of {levels} "
                         "(`live_directions` does) or give a size")  # fmt: skip
    each = d // levels if size is None else size
    if not 0 < each * levels <= d or turn < 1:
        raise InputError(f"{levels} levels of {each} columns in {d} coordinates, turns of {turn}; sizes must fit")
    if order is not None and sorted(order) != list(range(levels)):
        raise InputError(f"order {list(order)} is no permutation of the levels 0..{levels - 1}")
    owned = _take(parts, _schedule(levels, each, turn) if order is None else [(number, each) for number in order], each)
    return _filled(owned, second, each)


def _schedule(levels: int, each: int, turn: int) -> list[tuple[int, int]]:
    """The (level, columns) turns of the order-neutral construction."""
    rounds = -(-each // turn)
    return [((start + step) % levels, turn) for start in range(rounds) for step in range(levels)]


def _take(parts: Sequence[Array], schedule: Sequence[tuple[int, int]], each: int) -> list[Array]:
    """Let levels take leading directions (d, <= each) of their residual factor by the schedule."""
    d = len(parts[0])
    owned = [np.zeros((d, 0)) for _ in parts]
    taken = np.zeros((d, 0))
    floor = [EXHAUSTED * _leading(part, 0.0, 1)[1] for part in parts]
    for number, wanted in schedule:
        room = min(wanted, each - owned[number].shape[1], d - taken.shape[1])
        if room <= 0 or floor[number] == 0:
            continue
        residual = parts[number] - taken @ (taken.T @ parts[number])
        new, _ = _leading(residual, floor[number], room)
        new = np.linalg.qr(new - taken @ (taken.T @ new))[0]  # a small singular value loses orthogonality to rounding
        owned[number] = np.hstack([owned[number], new])
        taken = np.hstack([taken, new])
    return owned


def _leading(factor: Array, floor: float, count: int) -> tuple[Array, float]:
    """Return at most `count` left singular directions whose singular value exceeds `floor`, and the largest value.

    By the eigenvectors of the small Gram matrix: LAPACK's divide-and-conquer SVD does not converge on some factors with
    collinear columns.
    """
    values, vectors = np.linalg.eigh(factor.T @ factor)
    singular = np.sqrt(np.maximum(values[::-1], 0.0))
    kept = min(count, int((singular > floor).sum()))
    return factor @ vectors[:, ::-1][:, :kept] / singular[:kept], float(singular[0])


def _filled(owned: Sequence[Array], covariance: Array, each: int) -> LevelBasis:
    """Deal the principal directions of the complement to levels that miss columns; the rest is the residual block."""
    taken = np.hstack(owned)
    d = len(taken)
    missing = [each - part.shape[1] for part in owned]
    complement = np.linalg.qr(np.hstack([taken, np.eye(d)]))[0][:, taken.shape[1] : d]
    values, vectors = np.linalg.eigh(complement.T @ covariance @ complement)
    spare = complement @ vectors[:, np.argsort(values)[::-1]]
    turns = sorted((turn, number) for number, count in enumerate(missing) for turn in range(count))
    given: list[list[int]] = [[] for _ in owned]
    for column, (_, number) in enumerate(turns):
        given[number].append(column)
    blocks = [np.hstack([part, spare[:, columns]]) for part, columns in zip(owned, given, strict=True)]
    rest = spare[:, len(turns) :]
    level = np.repeat([*range(len(owned)), RESIDUAL], [*(block.shape[1] for block in blocks), rest.shape[1]])
    return LevelBasis(np.hstack([*blocks, rest]), level.astype(np.int64), np.array(missing, dtype=np.int64))

"""Linear probes and the profiles read off them: ridge from moments, cross-fit energies, nulls, document half-samples.

Shapes: n tokens, d coordinates, k outputs, p penalties, L levels, r draws. Everything starts from `Moments`, which add
up over documents, so that folds, halves and half-samples never touch the tokens again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from gllm_lib.checks import InputError, InputTypeError, generator, positive

Array = NDArray[np.float64]


def matrix(name: str, value: ArrayLike) -> Array:
    """Return `value` as a finite float64 matrix (n, k), a flat list becoming (n, 1); raises InputError otherwise."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise InputTypeError(f"{name} holds {array.dtype} entries; give real numbers, one row per token")
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{name} has shape {array.shape}; give one row per token and at least one column, (n, k)")
    array = array.astype(np.float64, copy=False)
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise InputError(f"{name}[{row}, {column}] is {array[row, column]}; remove or repair such rows first")
    return array


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over tokens of x (d), y (k), their products (d, d), (d, k), (k), and the token count; `a + b` pools two."""

    count: float
    x: Array
    y: Array
    xx: Array
    xy: Array
    yy: Array

    def __add__(self, other: Moments) -> Moments:
        return Moments(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def covariance(self) -> Array:
        """Centred second moment of x, shape (d, d)."""
        mean = self.x / self.count
        return self.xx / self.count - np.outer(mean, mean)

    def cross_covariance(self) -> Array:
        """Centred product moment of x and y, shape (d, k)."""
        return self.xy / self.count - np.outer(self.x / self.count, self.y / self.count)

    def target_variance(self) -> Array:
        """Variance of each output, shape (k,)."""
        return self.yy / self.count - (self.y / self.count) ** 2

    def select(self, outputs: ArrayLike | Sequence[int]) -> Moments:
        """Return the moments that concern the outputs with these numbers only."""
        kept = np.asarray(outputs)
        return Moments(self.count, self.x, self.y[kept], self.xx, self.xy[:, kept], self.yy[kept])


def moments(x: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None) -> Moments:
    """Return the Moments of tokens x (n, d) and outputs y (n, k) or (n,), optionally with weights (n,) >= 0.

    Raises InputError for ragged, empty or non-finite arrays and for row counts that differ.
    """
    x, y = matrix("x", x), matrix("y", y)
    if len(x) != len(y):
        raise InputError(f"x has {len(x)} rows, y has {len(y)}; give one row per token in each")
    if weights is None:
        return Moments(float(len(x)), x.sum(0), y.sum(0), x.T @ x, x.T @ y, (y**2).sum(0))
    w = matrix("weights", weights)
    if w.shape != (len(x), 1) or (w < 0).any() or w.sum() == 0:
        raise InputError("weights are one number per token, none negative, not all zero")
    return Moments(float(w.sum()), (w * x).sum(0), (w * y).sum(0), x.T @ (w * x), x.T @ (w * y), (w * y**2).sum(0))


def pooled(parts: Sequence[Moments]) -> Moments:
    """Return the sum of the given Moments, at least one."""
    if not parts:
        raise InputError("no moments to pool; give at least one part")
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def ridge(sample: Moments, penalties: ArrayLike, intercept: bool = True) -> Array:
    """Return ridge weights for every penalty, shape (p, d, k), from one eigendecomposition shared by all outputs.

    A penalty is in units of the mean coordinate variance: it is multiplied by tr(Sigma) / d. With `intercept` x and y
    are centred first; without it the fit goes through the origin, as the class of GLLM Def. 3 does.
    """
    grid = positive(
        "penalties", np.atleast_1d(np.asarray(penalties)), "a penalty of 0 leaves dead directions undefined"
    )
    second = sample.covariance() if intercept else sample.xx / sample.count
    cross = sample.cross_covariance() if intercept else sample.xy / sample.count
    values, vectors = np.linalg.eigh(second)
    scale = np.trace(second) / len(second)
    if scale <= 0:
        raise InputError("x does not vary; a probe needs at least one direction of positive variance")
    rotated = vectors.T @ cross
    shrunk = np.maximum(values, 0.0)[None, :] + grid[:, None] * scale  # rounding may leave eigenvalues of -1e-17
    return np.stack([vectors @ (rotated / row[:, None]) for row in shrunk])


def held_out_r2(weights: Array, train: Moments, test: Moments) -> Array:
    """Return 1 - SSE/SST on `test` of probes (..., d, k) with the intercept of `train`, shape (..., k).

    SST is about the mean of `train`; an output that does not vary in `test` gives nan.
    """
    intercept = train.y / train.count - np.einsum("d,...dk->...k", train.x / train.count, weights)
    linear = np.einsum("dk,...dk->...k", test.xy, weights)
    square = np.einsum("...dk,...dk->...k", weights, np.matmul(test.xx, weights))
    fit_sum = np.einsum("d,...dk->...k", test.x, weights)
    residual = test.yy + square - 2 * linear - 2 * intercept * (test.y - fit_sum) + test.count * intercept**2
    centre = train.y / train.count
    total = test.yy - 2 * centre * test.y + test.count * centre**2
    return 1.0 - residual / np.where(test.target_variance() > 0, total, np.nan)


def document_folds(documents: ArrayLike, folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Deal whole documents into `folds` parts of nearly equal token counts; returns the part of each token, shape (n,).

    Documents are shuffled, then each goes to the part with fewest tokens so far.
    """
    labels, codes, sizes = np.unique(np.asarray(documents), return_inverse=True, return_counts=True)
    if not 2 <= folds <= len(labels):
        raise InputError(f"{folds} folds of {len(labels)} documents; give between 2 and the number of documents")
    part, load = np.zeros(len(labels), dtype=np.int64), np.zeros(folds)
    for document in generator(rng).permutation(len(labels)):
        part[document] = int(load.argmin())
        load[part[document]] += sizes[document]
    return part[codes]


def choose_penalty(parts: Sequence[Moments], penalties: ArrayLike) -> tuple[Array, Array]:
    """Choose each output's penalty by leave-one-part-out cross validation; returns (chosen (k,), mean R2 (p, k)).

    `parts` are Moments of disjoint sets of documents, at least two. Of equal scores the largest penalty is taken.
    """
    if len(parts) < 2:
        raise InputError(f"{len(parts)} part to cross-validate on; give at least two disjoint sets of documents")
    grid = np.sort(positive("penalties", np.atleast_1d(np.asarray(penalties))))
    scores = []
    for left_out, test in enumerate(parts):
        train = pooled([part for number, part in enumerate(parts) if number != left_out])
        scores.append(held_out_r2(ridge(train, grid), train, test))
    varying = np.isfinite(scores).sum(0)
    mean = np.where(varying > 0, np.nansum(scores, 0) / np.maximum(varying, 1), -np.inf)
    best = len(grid) - 1 - np.argmax(mean[::-1], axis=0)
    return grid[best], mean


def ridge_each(sample: Moments, penalties: ArrayLike) -> Array:
    """Return ridge weights (d, k) with a penalty of its own, entry of `penalties` (k,), for each output."""
    own = positive("penalties", penalties)
    if len(own) != len(sample.y):
        raise InputError(f"{len(own)} penalties for {len(sample.y)} outputs; give one for each")
    grid, position = np.unique(own, return_inverse=True)
    return np.take_along_axis(ridge(sample, grid), position[None, None, :], axis=0)[0]


def target_profile(weights: ArrayLike) -> Array:
    """Return alpha (d,): squared weights (d,) or (d, k), summed over outputs, as shares (GLLM Def. 2, Sec. 7.2).

    Every squared estimate carries the variance of its noise; `cross_fit` does not.
    """
    energy = (matrix("weights", weights) ** 2).sum(1)
    if energy.sum() == 0:
        raise InputError("all weights are 0; a target without weights has no profile")
    return energy / energy.sum()


def cross_fit(weights_a: ArrayLike, weights_b: ArrayLike) -> Array:
    """Return signed energy shares (d,), summing to 1, from probes (d,) or (d, k) of two disjoint sets of documents.

    A share, w_A w_B over the total, is unbiased up to the common normalisation, which is why negative ones are kept: a
    sum over a level, and GLLM Eq. 14's gain at given grades, are linear in them. Raises InputError when the total is
    not positive: the halves then share no signal and there is no profile.
    """
    a, b = matrix("weights_a", weights_a), matrix("weights_b", weights_b)
    if a.shape != b.shape:
        raise InputError(f"weights have shapes {a.shape} and {b.shape}; give two probes of one target")
    energy = (a * b).sum(1)
    if energy.sum() <= 0:
        raise InputError(
            f"the two halves agree on no energy (sum of products {energy.sum():.3g}); "
            "the target is not decodable here: report it, do not profile it"
        )
    return energy / energy.sum()


def floored(shares: ArrayLike, floor: float = 0.0) -> tuple[Array, float]:
    """Raise entries below `floor` to it and renormalise; returns (profile, mass added before renormalising).

    The mass belongs in the report: an affinity needs entries >= 0, and this is what it took.
    """
    given = matrix("shares", shares)[:, 0]
    lifted = np.maximum(given, floor)
    if lifted.sum() <= 0:
        raise InputError("no positive share is left; a profile needs at least one")
    return lifted / lifted.sum(), float((lifted - given).sum())


def level_sums(values: ArrayLike, level: ArrayLike, count: int) -> Array:
    """Sum values (..., d) within the levels 0..count-1 named by level (d,), shape (..., count).

    Raises InputError if a coordinate's level is outside that range.
    """
    numbers, array = np.asarray(level), np.asarray(values, dtype=np.float64)
    if numbers.shape != array.shape[-1:] or numbers.min() < 0 or numbers.max() >= count:
        raise InputError(f"give one level in 0..{count - 1} per coordinate; got {numbers.shape} for {array.shape}")
    return array @ (numbers[:, None] == np.arange(count)).astype(np.float64)


def data_profile(sample: Moments, rotation: ArrayLike | None = None, centred: bool = False) -> Array:
    """Return tau (d',): second moments of the coordinates as shares, optionally along the columns of rotation (d, d').

    The default is the raw second moment of GLLM Def. 2, which Prop. 7 needs for probes through the origin. With
    `centred` it is the variance of Sec. 7.2, which belongs to probes with an intercept.
    """
    second = sample.covariance() if centred else sample.xx / sample.count
    energy = np.diagonal(second)
    if rotation is not None:
        columns = matrix("rotation", rotation)
        energy = (columns * (second @ columns)).sum(0)
    if (energy <= 0).any():
        raise InputError(f"{int((energy <= 0).sum())} coordinates carry no variance; delete them first (GLLM Def. 2)")
    return np.asarray(energy / energy.sum(), dtype=np.float64)


def shuffled_weights(
    x: ArrayLike, y: ArrayLike, penalties: ArrayLike, draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return probe weights (r, d, k) of y (n, k) with its rows permuted over tokens, at the same penalties (k,)."""
    x, y = matrix("x", x), matrix("y", y)
    order = [generator(rng).permutation(len(y)) for _ in range(draws)]
    shuffled = moments(x, np.concatenate([y[rows] for rows in order], axis=1))
    weights = ridge_each(shuffled, np.tile(np.asarray(penalties, dtype=np.float64), draws))
    return weights.reshape(len(weights), draws, -1).transpose(1, 0, 2)


def isotropic_profiles(d: int, outputs: int, draws: int, rng: np.random.Generator) -> Array:
    """Return profiles (r, d) of isotropic Gaussian weights (d, outputs): targets unrelated to the basis."""
    energy = generator(rng).chisquare(outputs, size=(draws, d))
    return energy / energy.sum(1, keepdims=True)


def half_samples(
    blocks: Sequence[Moments], statistic: Callable[[list[Moments]], ArrayLike], draws: int, rng: np.random.Generator
) -> Array:
    """Return `statistic` of random halves of the documents' Moments, shape (r, ...): subsampling without replacement.

    Raises InputError for fewer than four blocks or fewer than two draws.
    """
    if len(blocks) < 4 or draws < 2:
        raise InputError(f"{len(blocks)} documents and {draws} draws; half-samples need at least 4 and 2")
    half = len(blocks) // 2
    chosen = [generator(rng).permutation(len(blocks))[:half] for _ in range(draws)]
    return np.stack([np.asarray(statistic([blocks[i] for i in rows]), dtype=np.float64) for rows in chosen])


def half_sample_interval(
    estimate: ArrayLike, values: ArrayLike, level: float = 0.95, units: int | None = None
) -> tuple[Array, Array]:
    """Return (low, high) around `estimate` (...) from half-sample values (r, ...), by their standard deviation.

    A half without replacement varies about the whole as much as the whole about the truth, so no rescaling is due. The
    values' own centre is not used: a statistic of half the documents carries twice the bias of its noise. Degrees of
    freedom are those of the draws, or of the `units` (documents) halved, if these are fewer.
    """
    array = np.asarray(values, dtype=np.float64)
    draws = len(array)
    free = (draws if units is None else min(draws, units)) - 1
    if not 0 < level < 1 or free < 1:
        raise InputError(f"level {level}, {draws} values, {units} units; give a level between 0 and 1, two of each")
    reach = student.ppf((1 + level) / 2, free) * array.std(axis=0, ddof=1)
    centre = np.asarray(estimate, dtype=np.float64)
    return centre - reach, centre + reach

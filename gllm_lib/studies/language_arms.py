"""What the arms of the language-model ladder consult: a level basis, profiles and grades, from sums by type of piece.

An embedding is a function of the type alone, so moments over positions need only counts, sums of features and pairs of
neighbours by type. Shapes: V types, D coordinates, k features, F folds of whole documents, L levels.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert
from scipy.sparse import csr_array

from gllm_lib.analysis import probes
from gllm_lib.analysis.bases import LevelBasis, decoding_factor, level_basis
from gllm_lib.analysis.probes import Array, Moments
from gllm_lib.corpora.annotated import AnnotatedCorpus
from gllm_lib.corpora.code_levels import LEVELS
from gllm_lib.corpora.code_text import CodeText
from gllm_lib.corpora.grammar import Brackets
from gllm_lib.studies.division import PENALTIES
from gllm_lib.studies.ladder import arms, level_grades

FOLDS = 4
EXACT = 1e-9  # penalty of a profile of the population, in units of the mean variance: it only settles dead directions
AMPLITUDES = (2.0, 1.0, 0.5)  # of the three levels of bracket features


def type_sums(text: CodeText, corpus: AnnotatedCorpus, vocabulary: int) -> dict[str, NDArray[np.float64]]:
    """Return sums by fold and type over a training text: the tokens of `corpus` are those that `text.token` numbers.

    counts (F, V) and names (F, V)  positions that hold a token, and a name; layout holds none
    sum-<level> (F, V, k), square-<level> (F, k)  of the features of those tokens
    pairs (F, V, V)  how often a type is followed by another
    """
    fold = probes.document_folds(text.document, FOLDS, np.random.default_rng(0))
    place, rows = fold * vocabulary + text.ids, np.flatnonzero(text.token >= 0)
    shape = (FOLDS * vocabulary, len(corpus))
    met = csr_array((np.ones(len(rows)), (place[rows], text.token[rows])), shape=shape)
    found = {"counts": met.sum(axis=1), "names": met @ corpus.column("kind=name").astype(np.float64)}
    found = {name: each.reshape(FOLDS, vocabulary) for name, each in found.items()}
    for level in LEVELS:
        features = corpus.levels[level].astype(np.float64)
        found[f"sum-{level}"] = (met @ features).reshape(FOLDS, vocabulary, -1)
        found[f"square-{level}"] = (met @ features**2).reshape(FOLDS, vocabulary, -1).sum(axis=1)
    pairs = np.bincount(place[:-1] * vocabulary + text.ids[1:], minlength=FOLDS * vocabulary**2)
    return found | {"pairs": pairs.reshape(FOLDS, vocabulary, vocabulary).astype(np.float64)}


def moments_of(table: Array, counts: Array, sums: Array, squares: Array) -> list[Moments]:
    """Moments by fold of embeddings (V, D) and outputs, whose sums by type are `sums` (F, V, k)."""
    return [Moments(n.sum(), n @ table, y.sum(axis=0), table.T @ (n[:, None] * table), table.T @ y, yy)
            for n, y, yy in zip(counts, sums, squares, strict=True)]  # fmt: skip


def basis_of(table: Array, sums: dict[str, Array]) -> LevelBasis:
    """The order-neutral level basis of an embedding (V, D), from the annotation of the training text."""
    factors = []
    for level in LEVELS:
        parts = moments_of(table, sums["counts"], sums[f"sum-{level}"], sums[f"square-{level}"])
        factors.append(decoding_factor(probes.pooled(parts), probes.choose_penalty(parts, PENALTIES)[0]))
    return level_basis(factors, probes.pooled(parts).covariance())


def profiles(table: Array, pairs: Array, penalty: float | None = None) -> tuple[Array, Array]:
    """Return (alpha, tau), each (D,), of the coordinates of `table` (V, D) as inputs of the next embedding.

    alpha is that of ridge to the D coordinates of the next piece, penalties chosen over the folds of `pairs` (F, V, V)
    unless given; tau is the centred variance.
    """
    parts = moments_of(table, pairs.sum(axis=2), pairs @ table, pairs.sum(axis=1) @ table**2)
    whole = probes.pooled(parts)
    chosen = probes.choose_penalty(parts, PENALTIES)[0] if penalty is None else np.full(table.shape[1], penalty)
    return probes.target_profile(probes.ridge_each(whole, chosen)), probes.data_profile(whole, centred=True)


def name_share(table: Array, sums: dict[str, Array]) -> Array:
    """The share (D,) of each coordinate's centred energy that names carry, among positions that hold a token."""
    n, names = sums["counts"].sum(axis=0), sums["names"].sum(axis=0)
    square = (table - n @ table / n.sum()) ** 2
    return np.asarray(names @ square / (n @ square))


def ladder_grades(
    level: NDArray[np.int64], pair: tuple[Array, Array], share: Array, clip: float, seed: int
) -> dict[str, Array]:
    """Return the grades (D,) of the arms by name, in [1, clip]."""
    rng = np.random.default_rng([seed, 30])
    found = arms(level, *pair, share, clip, rng)
    straight = tuple(range(int(level.max()) + 1))
    mixed = [each for each in itertools.permutations(straight) if each not in (straight, straight[::-1])]
    order = list(mixed[rng.integers(len(mixed))])
    found["permuted"] = level_grades(len(straight), clip)[order][level]
    found["token_class"], found["random"] = found["part_of_speech"], found["random_0"]
    return {name: g for name, g in found.items() if name not in {"part_of_speech", *(f"random_{k}" for k in range(4))}}


def centred(g: Array) -> Array:
    """Grades (D,) divided by their geometric mean, so that their mean logarithm is 0."""
    return np.asarray(g / np.exp(np.log(g).mean()))


def bracket_table(grammar: Brackets, copies: int) -> tuple[Array, NDArray[np.int64]]:
    """Return an embedding (V, D) of bracket tokens, whose features are uncorrelated in the stream, and levels (D,).

    Level 0 is the side (open or close, stop or not), level 1 the kind, level 2 kind times side, at amplitudes 2, 1 and
    1/2; every coordinate stands `copies` times, D = 2 kinds copies.
    """
    k, stop = grammar.kinds, np.arange(grammar.vocabulary) == grammar.stop
    side = np.concatenate([np.ones(k), -np.ones(k), [0.0]])
    kind = np.vstack([helmert(k).T, helmert(k).T, np.zeros((1, k - 1))]) * np.sqrt(k)
    parts = [np.column_stack([side, stop]), kind, kind * side[:, None]]
    level = np.repeat(np.repeat(np.arange(3), [each.shape[1] for each in parts]), copies)
    table = np.hstack([amplitude * each for amplitude, each in zip(AMPLITUDES, parts, strict=True)])
    return np.repeat(table, copies, axis=1), level

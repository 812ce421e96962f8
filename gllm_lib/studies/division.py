"""One division of an annotated corpus: documents by role, probes of every role, level factors and the bases from them.

Shapes: n words, d coordinates, k outputs, L levels.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gllm_lib.analysis import probes
from gllm_lib.analysis.bases import LevelBasis, decoding_factor, encoding_factor, level_basis, live_directions
from gllm_lib.analysis.probes import Array, Moments
from gllm_lib.corpora.annotated import AnnotatedCorpus

PARTS = 20  # whole documents are dealt into 20 parts of nearly equal token counts; roles are sets of parts
ROLES = {
    "basis": range(0, 5),
    "penalty": range(5, 8),
    "half_a": range(8, 12),
    "half_b": range(12, 16),
    "held_out": range(16, 20),
}
MULTI_CLASS = ("upos", "deprel", "depth_5", "freq_5")
PENALTIES = 10.0 ** np.arange(-4.0, 2.1, 0.5)  # in units of the mean coordinate variance


@dataclass(frozen=True, eq=False)
class Outputs:
    """What is probed: `columns` names the outputs' places in `values` (n, k); scalars come first, one column each."""

    values: Array
    columns: dict[str, list[int]]
    scalars: tuple[str, ...]


def outputs_of(corpus: AnnotatedCorpus) -> Outputs:
    """Return the corpus's scalar targets, then four multi-class ones, whose affinities count their outputs."""
    scalars = tuple(corpus.targets)
    arrays = [corpus.targets[name].values[:, None] for name in scalars]
    for level, prefix in (("shape", "upos="), ("syntax", "deprel=")):
        chosen = [j for j, column in enumerate(corpus.columns[level]) if column.startswith(prefix)]
        arrays.append(corpus.levels[level][:, chosen].astype(np.float64))
    for name in ("depth", "freq"):
        values = corpus.targets[name].values
        cuts = np.quantile(values, [0.2, 0.4, 0.6, 0.8])
        arrays.append((np.searchsorted(cuts, values, side="left")[:, None] == np.arange(5)).astype(np.float64))
    names = [*scalars, *MULTI_CLASS]
    ends = np.cumsum([array.shape[1] for array in arrays])
    columns = {
        name: list(range(end - array.shape[1], end)) for name, end, array in zip(names, ends, arrays, strict=True)
    }
    return Outputs(np.hstack(arrays), columns, scalars)


@dataclass(frozen=True, eq=False)
class Division:
    """One corpus divided for one seed: coordinates z (n, d) along live directions, the part of each word, probes.

    `weights` has ridge weights (d, k) by role, at the penalties (k,) chosen on role "penalty"; `by_part` has the
    Moments of z and the outputs.
    """

    corpus: AnnotatedCorpus
    outputs: Outputs
    z: Array
    part: NDArray[np.int64]
    by_part: list[Moments]
    penalties: Array
    weights: dict[str, Array]
    r2: Array
    rank: int

    def rows(self, *roles: str) -> NDArray[np.int64]:
        """Word numbers of the given roles."""
        return np.flatnonzero(np.isin(self.part, [part for role in roles for part in ROLES[role]]))

    def of(self, *roles: str) -> Moments:
        """Pooled moments of the given roles."""
        return probes.pooled([self.by_part[part] for role in roles for part in ROLES[role]])


def divided(corpus: AnnotatedCorpus, vectors: Array, seed: int) -> Division:
    """Divide the documents by the seed, delete dead directions, choose penalties, fit the probes of every role."""
    part = probes.document_folds(corpus.document, PARTS, np.random.default_rng([seed, 0]))
    outputs = outputs_of(corpus)
    basis_rows = np.isin(part, list(ROLES["basis"]))
    covariance = np.cov(vectors[basis_rows].astype(np.float64).T, bias=True)
    rank = live_directions(covariance).shape[1]
    z = vectors.astype(np.float64) @ live_directions(covariance, multiple_of=len(corpus.levels))
    by_part = [probes.moments(z[part == number], outputs.values[part == number]) for number in range(PARTS)]
    penalties, _ = probes.choose_penalty([by_part[number] for number in ROLES["penalty"]], PENALTIES)
    roles = {role: probes.pooled([by_part[number] for number in ROLES[role]]) for role in ROLES}
    weights = {role: probes.ridge_each(sample, penalties) for role, sample in roles.items() if role != "basis"}
    whole = roles["half_a"] + roles["half_b"]
    weights["both"] = probes.ridge_each(whole, penalties)
    r2 = probes.held_out_r2(weights["both"], whole, roles["held_out"])
    return Division(corpus, outputs, z, part, by_part, penalties, weights, r2, rank)


@dataclass(frozen=True, eq=False)
class Factors:
    """Per level the factors of both constructions, (d, k_l), with the columns' names and what `enc` is rebuilt from."""

    covariance: Array
    decoding: list[Array]
    encoding: list[Array]
    columns: list[tuple[str, ...]]

    def without(self, own: tuple[str, ...]) -> list[Array]:
        """The decoding factors without the named columns: each column is a regression of its own, so they just go."""
        left_out = set(own)
        return [
            factor[:, [j for j, name in enumerate(names) if name not in left_out]]
            for factor, names in zip(self.decoding, self.columns, strict=True)
        ]


def factors_of(division: Division) -> Factors:
    """Regress the features of role "basis" on the coordinates, and the coordinates on the features, level by level."""
    corpus = division.corpus
    decoding, encoding = [], []
    for matrix in corpus.levels.values():
        rows = [np.flatnonzero(division.part == number) for number in ROLES["basis"]]
        parts = [probes.moments(division.z[chosen], matrix[chosen]) for chosen in rows]
        penalties, _ = probes.choose_penalty(parts, PENALTIES)
        decoding.append(decoding_factor(probes.pooled(parts), penalties))
        together = np.concatenate(rows)
        encoding.append(encoding_factor(probes.moments(matrix[together], division.z[together])))
    columns = [corpus.columns[level] for level in corpus.levels]
    return Factors(division.of("basis").covariance(), decoding, encoding, columns)


def named_bases(factors: Factors, seed: int) -> dict[str, LevelBasis]:
    """Every basis that knows all features: both constructions, order-neutral and in all orders; two without levels."""
    levels, d = len(factors.decoding), len(factors.covariance)
    found = {}
    for name, parts in (("dec", factors.decoding), ("enc", factors.encoding)):
        found[f"{name}-neutral"] = level_basis(parts, factors.covariance)
        for order in itertools.permutations(range(levels)):
            found[f"{name}-{''.join(map(str, order))}"] = level_basis(parts, factors.covariance, order=order)
    quarter = np.arange(d) * levels // d
    none = np.zeros(levels, dtype=np.int64)
    found["pca"] = LevelBasis(np.eye(d), quarter, none)
    rotation = np.linalg.qr(np.random.default_rng([seed, 1]).normal(size=(d, d)))[0]
    found["rotation"] = LevelBasis(rotation, quarter, none)
    return found

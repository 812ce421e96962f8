"""What a run of the English study reports, each piece a dict of plain numbers rounded to the digits they deserve.

BC_L is the affinity of the level sums (GLLM Sec. 7.3), BC_d that of the coordinates. `cross` profiles come from two
disjoint halves, `plug` profiles are squared weights of both halves together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gllm_lib.analysis import probes
from gllm_lib.analysis.bases import LevelBasis, level_basis
from gllm_lib.analysis.probes import Array, Moments
from gllm_lib.checks import InputError
from gllm_lib.studies.division import PENALTIES, ROLES, Division, Factors
from gllm_lib.studies.ladder import arm_report, arms, level_grades, signed_gain

OPEN_CLASSES = ("ADJ", "ADV", "INTJ", "NOUN", "PROPN", "VERB")
NULL_DRAWS = 200
BLOCKS = 32  # documents of the profile halves are dealt into this many blocks for half-sampling


@dataclass(frozen=True, eq=False)
class Run:
    """What the reports read: a division, its factors, the registered basis `own` of each target, the `named` bases."""

    division: Division
    factors: Factors
    own: Mapping[str, LevelBasis]
    named: Mapping[str, LevelBasis]
    settings: Mapping[str, Any]
    seed: int

    def rng(self, use: int) -> np.random.Generator:
        """The generator of one report."""
        return np.random.default_rng([self.seed, use])

    def tau(self, basis: LevelBasis) -> Array:
        """Data profile (d,) of the profile halves in a basis."""
        return probes.data_profile(self.division.of("half_a", "half_b"), basis.vectors, True)

    def plug(self, basis: LevelBasis, name: str, role: str = "both") -> Array:
        """Squared-weight profile (d,) of one target in a basis."""
        chosen = self.division.outputs.columns[name]
        return probes.target_profile(basis.vectors.T @ self.division.weights[role][:, chosen])

    def shares(self, basis: LevelBasis, name: str) -> Array | None:
        """Cross-fit shares (d,) of one target in a basis, or None if the halves agree on no energy."""
        chosen = self.division.outputs.columns[name]
        return crossed(basis, *(self.division.weights[role][:, chosen] for role in ("half_a", "half_b")))

    def halves(self) -> tuple[Any, Array, Array]:
        """Word numbers of the profile halves, their coordinates (n, d) and scalar targets (n, k)."""
        rows = self.division.rows("half_a", "half_b")
        return rows, self.division.z[rows], self.division.outputs.values[rows][:, : len(self.division.outputs.scalars)]


def crossed(basis: LevelBasis, a: Array, b: Array) -> Array | None:
    """Cross-fit shares (d,) of two probes in a basis, or None if they agree on no energy."""
    try:
        return probes.cross_fit(basis.vectors.T @ a, basis.vectors.T @ b)
    except InputError:
        return None


def rounded(value: ArrayLike, digits: int = 4) -> Any:
    """Return numbers as plain lists rounded to `digits`, None where there is no number."""
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0:
        return None if not np.isfinite(array) else round(float(array), digits)
    return [rounded(each, digits) for each in array]


def blocks_of(basis: LevelBasis, values: ArrayLike) -> Array:
    """Sum values (..., d) within levels, the residual block last if there is one."""
    numbers = np.where(basis.level < 0, len(basis.filled), basis.level)
    return probes.level_sums(values, numbers, int(numbers.max()) + 1)


def affinity(alpha: Array, tau: Array) -> Any:
    """BC of nonnegative profiles (..., d) with tau (d,)."""
    return np.sqrt(alpha * tau).sum(axis=-1)


def affinities(basis: LevelBasis, alpha: Array, tau: Array) -> Array:
    """BC_L and BC_d of nonnegative profiles (..., d), shape (2, ...)."""
    return np.stack([affinity(blocks_of(basis, alpha), blocks_of(basis, tau)), affinity(alpha, tau)])


def level_affinity(basis: LevelBasis, shares: Array, tau: Array) -> tuple[float, float]:
    """Return (BC_L, mass added to negative level shares) of signed shares (d,), residual block as one more level."""
    profile, moved = probes.floored(blocks_of(basis, shares))
    return float(affinity(profile, blocks_of(basis, tau))), moved


def _mean_sd(values: Array) -> Any:
    return rounded([values.mean(), values.std(ddof=1)])


def corpus_facts(division: Division, words_sha256: str) -> dict[str, Any]:
    """Sizes: words by role, documents, rank of the encoder, kept coordinates, feature columns, notes of the reader."""
    return {
        "words": {role: len(division.rows(role)) for role in ROLES},
        "documents": len(division.corpus.document_names),
        "sentences": int(division.corpus.sentence[-1]) + 1,
        "rank": division.rank,
        "kept": division.z.shape[1],
        "features": {level: len(names) for level, names in division.corpus.columns.items()},
        "notes": list(division.corpus.notes),
        "words_sha256": words_sha256,
    }


def target_facts(division: Division) -> dict[str, Any]:
    """Per target: family (none if multi-class), outputs, held-out R2 (mean over outputs), penalty, half correlation."""
    report = {}
    for name, chosen in division.outputs.columns.items():
        a, b = (division.weights[role][:, chosen].ravel() for role in ("half_a", "half_b"))
        target = division.corpus.targets.get(name)
        report[name] = {
            "family": target.family if target else None,
            "outputs": len(chosen),
            "r2": rounded(np.nanmean(division.r2[chosen])),
            "penalty": rounded(np.median(division.penalties[chosen]), 7),
            "half_correlation": rounded(np.corrcoef(a, b)[0, 1]),
        }
    return report


def primary(run: Run) -> dict[str, Any]:
    """Affinities in the registered basis, the target's own features left out, and isotropic nulls of equal outputs."""
    rng = run.rng(2)
    report: dict[str, Any] = {}
    for name, basis in run.own.items():
        alpha, tau, shares = run.plug(basis, name), run.tau(basis), run.shares(basis, name)
        null = probes.isotropic_profiles(len(alpha), len(run.division.outputs.columns[name]), NULL_DRAWS, rng)
        null_level, null_d = affinities(basis, null, tau)
        level, at_d = affinities(basis, alpha, tau)
        raw = blocks_of(basis, probes.data_profile(run.division.of("half_a", "half_b"), basis.vectors))
        report[name] = {
            "filled": basis.filled.tolist(),
            "s": rounded(blocks_of(basis, tau)),
            "a_plug": rounded(blocks_of(basis, alpha)),
            "level_plug": rounded(level),
            "d_plug": rounded(at_d),
            "level_isotropic": _mean_sd(null_level),
            "d_isotropic": _mean_sd(null_d),
            "s_raw": rounded(raw),
            "level_plug_raw": rounded(affinity(blocks_of(basis, alpha), raw)),
        }
        if shares is not None:
            value, moved = level_affinity(basis, shares, tau)
            profile, moved_d = probes.floored(shares)
            report[name] |= {
                "a_cross": rounded(blocks_of(basis, shares)),
                "level_cross": rounded(value),
                "level_moved": rounded(moved),
                "d_cross": rounded(affinity(profile, tau)),
                "d_moved": rounded(moved_d),
                "d_negative": int((shares < 0).sum()),
            }
    return report


def short_levels(run: Run) -> dict[str, Any]:
    """The same basis with few directions per level and a residual block, which is the last entry of `a` and `s`."""
    report: dict[str, Any] = {}
    for name in run.division.outputs.scalars:
        left = run.factors.without(run.division.corpus.targets[name].own)
        basis = level_basis(left, run.factors.covariance, size=run.settings["short_size"])
        tau, shares = run.tau(basis), run.shares(basis, name)
        if shares is not None:
            value, moved = level_affinity(basis, shares, tau)
            null = probes.isotropic_profiles(len(tau), 1, NULL_DRAWS, np.random.default_rng(0))
            report[name] = {
                "level_cross": rounded(value),
                "level_moved": rounded(moved),
                "level_isotropic": rounded(affinities(basis, null, tau)[0].mean()),
                "a_cross": rounded(blocks_of(basis, shares)),
                "s": rounded(blocks_of(basis, tau)),
                "filled": basis.filled.tolist(),
            }
    return report


def by_basis(run: Run) -> dict[str, Any]:
    """Per basis with all features: s (L), and per scalar target BC_L, taxonomic pairing and taxonomic gain at the clip.

    Profiles are cross-fit. Orders list targets in the order of `scalars`.
    """
    scalars, clip = run.division.outputs.scalars, run.settings["clip"]
    report: dict[str, Any] = {"scalars": list(scalars)}
    for label, basis in run.named.items():
        s = blocks_of(basis, run.tau(basis))
        grades = level_grades(len(s), clip)
        table = np.full((len(scalars), 3 + len(s)), np.nan)
        for row, name in enumerate(scalars):
            shares = run.shares(basis, name)
            if shares is not None:
                a = blocks_of(basis, shares)
                pairing = (np.log(grades) / np.log(clip)) @ (a - s)
                table[row] = [affinity(probes.floored(a)[0], s), pairing, signed_gain(grades, a, s), *a]
        columns = {"level_cross": 0, "taxonomic_pairing": 1, "taxonomic_gain": 2}
        report[label] = {"s": rounded(s)} | {key: rounded(table[:, column], 3) for key, column in columns.items()}
        if label in run.settings["profiles_of"]:
            report[label]["a_cross"] = rounded(table[:, 3:], 3)
    return report


def shuffled_nulls(run: Run) -> dict[str, Any]:
    """Targets shuffled over words at the same penalty: per target [mean, sd] of plug-in BC_L and BC_d, and mean a (L).

    In the registered basis, and in the source's order of both constructions, where noise can pass for structure.
    """
    division, (rows, z, _) = run.division, run.halves()
    shuffles = run.settings["shuffles"]
    weights = probes.shuffled_weights(z, division.outputs.values[rows], division.penalties, shuffles, run.rng(3))
    order = "".join(map(str, range(len(division.corpus.levels))))
    report: dict[str, Any] = {}
    for label in ("primary", f"enc-{order}", f"dec-{order}"):
        report[label] = {}
        for name, chosen in division.outputs.columns.items():
            basis = run.own[name] if label == "primary" else run.named[label]
            tau = run.tau(basis)
            draws = np.stack([probes.target_profile(basis.vectors.T @ each[:, chosen]) for each in weights])
            at_levels, at_d = affinities(basis, draws, tau)
            report[label][name] = {
                "level": _mean_sd(at_levels),
                "d": _mean_sd(at_d),
                "a": rounded(blocks_of(basis, draws).mean(0), 3),
                "real": rounded(affinities(basis, run.plug(basis, name), tau)),
            }
    return report


def penalty_path(run: Run) -> dict[str, Any]:
    """Plug-in BC_L and BC_d of scalar targets at every penalty, in the registered basis and along principal axes."""
    scalars, pca = run.division.outputs.scalars, run.named["pca"]
    second = run.division.of("half_a", "half_b")
    path = probes.ridge(second.select(range(len(scalars))), PENALTIES)
    flat = probes.data_profile(second, None, True)
    report: dict[str, Any] = {"penalties": rounded(PENALTIES, 7)}
    for number, name in enumerate(scalars):
        basis = run.own[name]
        profiles = np.stack([probes.target_profile(basis.vectors.T @ weights[:, number]) for weights in path])
        axes = np.stack([probes.target_profile(weights[:, number]) for weights in path])
        found = [*affinities(basis, profiles, run.tau(basis)), *affinities(pca, axes, flat)]
        report[name] = dict(zip(("level", "d", "pca_level", "pca_d"), map(rounded, found), strict=True))
    return report


def ladder(run: Run) -> dict[str, Any]:
    """Per target and arm [pairing, gain, best amplitude, gain there]; grades from role "penalty", gain cross-fit."""
    division, rng, clip = run.division, run.rng(4), run.settings["clip"]
    names = division.corpus.columns["shape"]
    columns = [names.index(f"upos={each}") for each in OPEN_CLASSES if f"upos={each}" in names]
    rows = division.rows("basis")
    opened = division.corpus.levels["shape"][rows][:, columns].sum(axis=1) > 0
    centred = division.z[rows] - division.z[rows].mean(0)
    inside, total = (part.T @ part for part in (centred[opened], centred))
    other = division.of("penalty")
    report = {}
    for name in division.outputs.scalars:
        basis, shares = run.own[name], run.shares(run.own[name], name)
        if shares is not None:
            turned = [(basis.vectors * (each @ basis.vectors)).sum(0) for each in (inside, total)]
            tau = probes.data_profile(other, basis.vectors, True)
            grades = arms(basis.level, run.plug(basis, name, "penalty"), tau, turned[0] / turned[1], clip, rng)
            report[name] = arm_report(grades, shares, run.tau(basis), clip)
    return report


def half_sampled(run: Run) -> dict[str, Any]:
    """Cross-fit BC_L of scalar targets in random halves of the profile documents: mean and sd over the draws."""
    scalars, rng, (rows, z, y) = run.division.outputs.scalars, run.rng(5), run.halves()
    penalties, tau = run.division.penalties[: len(scalars)], [run.tau(run.own[name]) for name in scalars]
    documents = run.division.corpus.document[rows]
    block = probes.document_folds(documents, min(BLOCKS, len(np.unique(documents))), rng)
    blocks = [probes.moments(z[block == b], y[block == b]) for b in range(int(block.max()) + 1)]

    def statistic(half: list[Moments]) -> Array:
        middle = len(half) // 2
        a, b = (probes.ridge_each(probes.pooled(each), penalties) for each in (half[:middle], half[middle:]))
        found = np.full(len(scalars), np.nan)
        for n, name in enumerate(scalars):
            shares = crossed(run.own[name], a[:, n], b[:, n])
            if shares is not None:
                found[n] = level_affinity(run.own[name], shares, tau[n])[0]
        return found

    draws = probes.half_samples(blocks, statistic, run.settings["half_samples"], rng)
    summary = {"mean": draws.mean(0), "sd": draws.std(0, ddof=1), "low": draws.min(0), "high": draws.max(0)}
    usable = [n for n in range(len(scalars)) if np.isfinite(draws[:, n]).all()]
    return {scalars[n]: {key: rounded(value[n]) for key, value in summary.items()} for n in usable}


def bootstrapped(run: Run) -> dict[str, Any]:
    """The source's sentence bootstrap of plug-in BC_L and BC_d: estimate, mean and 2.5 and 97.5 percent points."""
    scalars, rng, (rows, z, y) = run.division.outputs.scalars, run.rng(6), run.halves()
    penalties, bases = run.division.penalties[: len(scalars)], [run.own[name] for name in scalars]
    tau = [run.tau(basis) for basis in bases]
    sentences, codes = np.unique(run.division.corpus.sentence[rows], return_inverse=True)

    def read(weights: Array) -> Array:  # (targets, 2)
        profiles = [probes.target_profile(basis.vectors.T @ weights[:, n]) for n, basis in enumerate(bases)]
        return np.array([affinities(*each) for each in zip(bases, profiles, tau, strict=True)])

    draws = []
    for _ in range(run.settings["bootstraps"]):
        counts = np.bincount(rng.integers(len(sentences), size=len(sentences)), minlength=len(sentences))
        draws.append(read(probes.ridge_each(probes.moments(z, y, np.take(counts, codes)), penalties)))
    points = read(run.division.weights["both"])
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    summary = np.stack([points, np.mean(draws, axis=0), low, high], axis=-1)
    return {name: {kind: rounded(summary[n, m], 5) for m, kind in enumerate(("level", "d"))}
            for n, name in enumerate(scalars)}  # fmt: skip


REPORTS = {
    "primary": primary,
    "short": short_levels,
    "bases": by_basis,
    "nulls": shuffled_nulls,
    "penalty_path": penalty_path,
    "arms": ladder,
    "half_samples": half_sampled,
}

"""What a run of the English study reports, each piece a dict of plain numbers rounded to the digits they deserve.

BC_L is the affinity of the level sums (GLLM Sec. 7.3), BC_d that of the coordinates. `cross` profiles come from two
disjoint halves, `plug` profiles are squared weights of both halves together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gllm_lib.analysis.bases import LevelBasis, level_basis
from gllm_lib.analysis.probes import (
    Array,
    Moments,
    cross_fit,
    data_profile,
    document_folds,
    floored,
    half_samples,
    isotropic_profiles,
    level_sums,
    moments,
    pooled,
    ridge,
    ridge_each,
    shuffled_weights,
    target_profile,
)
from gllm_lib.checks import InputError
from gllm_lib.studies.division import PENALTIES, ROLES, Division, Factors, shares_in
from gllm_lib.studies.ladder import arm_report, arms, level_grades, signed_gain

OPEN_CLASSES = ("ADJ", "ADV", "INTJ", "NOUN", "PROPN", "VERB")
NULL_DRAWS = 200
BLOCKS = 32  # documents of the profile halves are dealt into this many blocks for half-sampling


def rounded(value: ArrayLike, digits: int = 4) -> Any:
    """Return numbers as plain lists rounded to `digits`, None where there is no number."""
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0:
        return None if not np.isfinite(array) else round(float(array), digits)
    return [rounded(each, digits) for each in array]


def level_affinity(basis: LevelBasis, shares: Array, tau: Array) -> tuple[float, float]:
    """Return (BC_L, mass added to negative level shares) of signed shares (d,), residual block as one more level."""
    a, s = blocks_of(basis, shares), blocks_of(basis, tau)
    profile, moved = floored(a)
    return float(affinity(profile, s)), moved


def blocks_of(basis: LevelBasis, values: ArrayLike) -> Array:
    """Sum values (..., d) within levels, the residual block last if there is one."""
    levels = len(basis.filled)
    numbers = np.where(basis.level < 0, levels, basis.level)
    return level_sums(values, numbers, int(numbers.max()) + 1)


def affinity(alpha: Array, tau: Array) -> Any:
    """BC of nonnegative profiles (..., d) with tau (d,)."""
    return np.sqrt(alpha * tau).sum(axis=-1)


def plug_in(division: Division, basis: LevelBasis, name: str, role: str = "both") -> Array:
    """Squared-weight profile (d,) of one target in a basis."""
    return target_profile(basis.vectors.T @ division.weights[role][:, division.outputs.columns[name]])


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


def primary(
    division: Division, own: dict[str, LevelBasis], tau: dict[str, Array], settings: Any, seed: int
) -> dict[str, Any]:
    """Affinities in the registered basis, the target's own features left out, and isotropic nulls of equal outputs."""
    rng = np.random.default_rng([seed, 2])
    second = division.of("half_a", "half_b")
    report: dict[str, Any] = {}
    for name, basis in own.items():
        alpha, shares = plug_in(division, basis, name), shares_in(basis, division, name)
        s, outputs = blocks_of(basis, tau[name]), len(division.outputs.columns[name])
        null = isotropic_profiles(len(alpha), outputs, NULL_DRAWS, rng)
        null_level, null_d = affinity(blocks_of(basis, null), s), affinity(null, tau[name])
        raw = data_profile(second, basis.vectors)
        found: dict[str, Any] = {
            "filled": basis.filled.tolist(),
            "s": rounded(s),
            "a_plug": rounded(blocks_of(basis, alpha)),
            "level_plug": rounded(affinity(blocks_of(basis, alpha), s)),
            "d_plug": rounded(affinity(alpha, tau[name])),
            "level_isotropic": rounded([null_level.mean(), null_level.std(ddof=1)]),
            "d_isotropic": rounded([null_d.mean(), null_d.std(ddof=1)]),
            "s_raw": rounded(blocks_of(basis, raw)),
            "level_plug_raw": rounded(affinity(blocks_of(basis, alpha), blocks_of(basis, raw))),
        }
        if shares is not None:
            value, moved = level_affinity(basis, shares, tau[name])
            profile, moved_d = floored(shares)
            found |= {
                "a_cross": rounded(blocks_of(basis, shares)),
                "level_cross": rounded(value),
                "level_moved": rounded(moved),
                "d_cross": rounded(affinity(profile, tau[name])),
                "d_moved": rounded(moved_d),
                "d_negative": int((shares < 0).sum()),
            }
        report[name] = found
    return report


def short_levels(division: Division, factors: Factors, settings: Any) -> dict[str, Any]:
    """The same basis with few directions per level and a residual block, which is the last entry of `a` and `s`."""
    report: dict[str, Any] = {}
    for name in division.outputs.scalars:
        basis = level_basis(
            factors.without(division.corpus.targets[name].own), factors.covariance, size=settings["short_size"]
        )
        tau = data_profile(division.of("half_a", "half_b"), basis.vectors, True)
        shares = shares_in(basis, division, name)
        if shares is not None:
            value, moved = level_affinity(basis, shares, tau)
            null = isotropic_profiles(len(tau), 1, NULL_DRAWS, np.random.default_rng(0))
            report[name] = {
                "level_cross": rounded(value),
                "level_moved": rounded(moved),
                "level_isotropic": rounded(affinity(blocks_of(basis, null), blocks_of(basis, tau)).mean()),
                "a_cross": rounded(blocks_of(basis, shares)),
                "s": rounded(blocks_of(basis, tau)),
                "filled": basis.filled.tolist(),
            }
    return report


def by_basis(division: Division, named: dict[str, LevelBasis], settings: Any) -> dict[str, Any]:
    """Per basis with all features: s (L), and per scalar target BC_L, taxonomic pairing and taxonomic gain at the clip.

    Profiles are cross-fit. Orders list targets in the order of `scalars`.
    """
    scalars = division.outputs.scalars
    report: dict[str, Any] = {"scalars": list(scalars)}
    for label, basis in named.items():
        s = blocks_of(basis, data_profile(division.of("half_a", "half_b"), basis.vectors, True))
        grades = level_grades(len(s), settings["clip"])
        steps = np.log(grades) / np.log(settings["clip"])
        rows = []
        for name in scalars:
            shares = shares_in(basis, division, name)
            if shares is None:
                rows.append([np.nan] * (3 + len(s)))
                continue
            a = blocks_of(basis, shares)
            rows.append([affinity(floored(a)[0], s), steps @ (a - s), signed_gain(grades, a, s), *a])
        table = np.array(rows, dtype=np.float64)
        report[label] = {
            "s": rounded(s),
            "level_cross": rounded(table[:, 0], 3),
            "taxonomic_pairing": rounded(table[:, 1], 3),
            "taxonomic_gain": rounded(table[:, 2], 3),
        }
        if label in settings["profiles_of"]:
            report[label]["a_cross"] = rounded(table[:, 3:], 3)
    return report


def shuffled_nulls(
    division: Division, own: dict[str, LevelBasis], named: dict[str, LevelBasis], settings: Any, seed: int
) -> dict[str, Any]:
    """Targets shuffled over words at the same penalty: per target [mean, sd] of plug-in BC_L and BC_d, and mean a (L).

    In the registered basis, and in the source's order of both constructions, where noise can pass for structure.
    """
    rows = division.rows("half_a", "half_b")
    weights = shuffled_weights(
        division.z[rows], division.outputs.values[rows], division.penalties, settings["shuffles"],
        np.random.default_rng([seed, 3]),
    )  # fmt: skip
    second = division.of("half_a", "half_b")
    report: dict[str, Any] = {}
    order = "".join(map(str, range(len(division.corpus.levels))))
    for label in ("primary", f"enc-{order}", f"dec-{order}"):
        report[label] = {}
        for name, chosen in division.outputs.columns.items():
            basis = own[name] if label == "primary" else named[label]
            tau = data_profile(second, basis.vectors, True)
            draws = np.stack([target_profile(basis.vectors.T @ each[:, chosen]) for each in weights])
            at_levels = affinity(blocks_of(basis, draws), blocks_of(basis, tau))
            at_d = affinity(draws, tau)
            real = plug_in(division, basis, name)
            report[label][name] = {
                "level": rounded([at_levels.mean(), at_levels.std(ddof=1)]),
                "d": rounded([at_d.mean(), at_d.std(ddof=1)]),
                "a": rounded(blocks_of(basis, draws).mean(0), 3),
                "real": rounded([affinity(blocks_of(basis, real), blocks_of(basis, tau)), affinity(real, tau)]),
            }
    return report


def penalty_path(
    division: Division, own: dict[str, LevelBasis], tau: dict[str, Array], pca: LevelBasis
) -> dict[str, Any]:
    """Plug-in BC_L and BC_d of scalar targets at every penalty, in the registered basis and along principal axes."""
    scalars = division.outputs.scalars
    second = division.of("half_a", "half_b")
    path = ridge(second.select(list(range(len(scalars)))), PENALTIES)
    flat = data_profile(second, None, True)
    report: dict[str, Any] = {"penalties": rounded(PENALTIES, 7)}
    for number, name in enumerate(scalars):
        profiles = np.stack([target_profile(own[name].vectors.T @ weights[:, number]) for weights in path])
        axes = np.stack([target_profile(weights[:, number]) for weights in path])
        report[name] = {
            "level": rounded(affinity(blocks_of(own[name], profiles), blocks_of(own[name], tau[name]))),
            "d": rounded(affinity(profiles, tau[name])),
            "pca_level": rounded(affinity(blocks_of(pca, axes), blocks_of(pca, flat))),
            "pca_d": rounded(affinity(axes, flat)),
        }
    return report


def ladder(
    division: Division, own: dict[str, LevelBasis], tau: dict[str, Array], settings: Any, seed: int
) -> dict[str, Any]:
    """Per target and arm [pairing, gain, best amplitude, gain there]; grades from role "penalty", gain cross-fit."""
    rng = np.random.default_rng([seed, 4])
    names = division.corpus.columns["shape"]
    columns = [names.index(f"upos={each}") for each in OPEN_CLASSES if f"upos={each}" in names]
    opened = division.corpus.levels["shape"][:, columns].sum(axis=1) > 0
    rows = division.rows("basis")
    centred = division.z[rows] - division.z[rows].mean(0)
    content = centred[opened[rows]]
    inside, total = content.T @ content, centred.T @ centred
    other = division.of("penalty")
    report = {}
    for name in division.outputs.scalars:
        basis, shares = own[name], shares_in(own[name], division, name)
        if shares is None:
            continue
        turned = [(basis.vectors * (each @ basis.vectors)).sum(0) for each in (inside, total)]
        grades = arms(
            basis.level, plug_in(division, basis, name, "penalty"), data_profile(other, basis.vectors, True),
            turned[0] / turned[1], settings["clip"], rng,
        )  # fmt: skip
        report[name] = arm_report(grades, shares, tau[name], settings["clip"])
    return report


def _cross_levels(weights: tuple[Array, Array], basis: LevelBasis, tau: Array) -> float:
    try:
        shares = cross_fit(*(basis.vectors.T @ each for each in weights)).shares
    except InputError:
        return np.nan
    return level_affinity(basis, shares, tau)[0]


def half_sampled(
    division: Division, own: dict[str, LevelBasis], tau: dict[str, Array], settings: Any, seed: int
) -> dict[str, Any]:
    """Cross-fit BC_L of scalar targets in random halves of the profile documents: mean and sd over the draws."""
    scalars = division.outputs.scalars
    chosen = list(range(len(scalars)))
    rows = division.rows("half_a", "half_b")
    rng = np.random.default_rng([seed, 5])
    documents = division.corpus.document[rows]
    block = document_folds(documents, min(BLOCKS, len(np.unique(documents))), rng)
    values = division.outputs.values[:, chosen]
    blocks = [moments(division.z[rows[block == b]], values[rows[block == b]]) for b in range(int(block.max()) + 1)]

    def statistic(half: list[Moments]) -> Array:
        middle = len(half) // 2
        a, b = (ridge_each(pooled(each), division.penalties[chosen]) for each in (half[:middle], half[middle:]))
        pairs = [_cross_levels((a[:, n], b[:, n]), own[name], tau[name]) for n, name in enumerate(scalars)]
        return np.array(pairs)

    draws = half_samples(blocks, statistic, settings["half_samples"], rng)
    usable = np.asarray(np.isfinite(draws).all(axis=0)).tolist()
    return {
        name: {
            "mean": rounded(draws[:, n].mean()),
            "sd": rounded(draws[:, n].std(ddof=1)),
            "low": rounded(draws[:, n].min()),
            "high": rounded(draws[:, n].max()),
        }
        for n, name in enumerate(scalars)
        if usable[n]
    }


def bootstrapped(
    division: Division, own: dict[str, LevelBasis], tau: dict[str, Array], settings: Any, seed: int
) -> dict[str, Any]:
    """The source's sentence bootstrap of plug-in BC_L and BC_d: estimate, mean and 2.5 and 97.5 percent points."""
    scalars = division.outputs.scalars
    chosen = list(range(len(scalars)))
    rows = division.rows("half_a", "half_b")
    rng = np.random.default_rng([seed, 6])
    sentences, codes = np.unique(division.corpus.sentence[rows], return_inverse=True)
    size = len(sentences)
    z, y = division.z[rows], division.outputs.values[rows][:, chosen]
    draws = []
    for _ in range(settings["bootstraps"]):
        counts = np.bincount(rng.integers(size, size=size), minlength=size)
        weights = ridge_each(moments(z, y, np.take(counts, codes)), division.penalties[chosen])
        draws.append([_plug_affinities(weights[:, n], own[name], tau[name]) for n, name in enumerate(scalars)])
    table = np.array(draws)
    report = {}
    for n, name in enumerate(scalars):
        point = _plug_affinities(division.weights["both"][:, n], own[name], tau[name])
        report[name] = {
            kind: rounded([point[m], table[:, n, m].mean(), *np.quantile(table[:, n, m], [0.025, 0.975])], 5)
            for m, kind in enumerate(("level", "d"))
        }
    return report


def _plug_affinities(weights: NDArray[np.float64], basis: LevelBasis, tau: Array) -> tuple[float, float]:
    alpha = target_profile(basis.vectors.T @ weights)
    return float(affinity(blocks_of(basis, alpha), blocks_of(basis, tau))), float(affinity(alpha, tau))

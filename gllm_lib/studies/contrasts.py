"""What the English study's plan says is read off its records: the primary contrast, its interval, every prediction.

Committed with the plan, before the records. Targets are tested if their held-out R2, averaged over the divisions of a
cell, reaches `R2_RULE`. Shapes: J divisions (seeds), T targets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from gllm_lib.checks import InputError
from gllm_lib.studies.ladder import random_gain
from gllm_lib.studies.plan import Record

R2_RULE = 0.05
SPREAD = 0.05  # the spread that matters: with affinities near 0.9 it moves BC^2, the tokens, by about a tenth
TOLERANCE = 0.005  # smaller changes of an affinity along the penalty path do not count as rising or falling


@dataclass(frozen=True)
class Interval:
    """A mean over J divisions, its 95% interval mean +- t sd, and the smallest effect seen with power 0.8.

    The standard deviation is not divided by sqrt(J): divisions share documents. Each role takes a random subset of at
    most half of the documents, and an estimate from such subsets varies at least as much as that of the whole corpus.
    """

    mean: float
    sd: float
    low: float
    high: float
    smallest: float


def interval(values: ArrayLike) -> Interval:
    """Return the Interval of one number per division (J,); raises InputError for fewer than two or a missing one."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < 2 or not np.isfinite(array).all():
        raise InputError(f"{array.tolist()} is not one finite number for each of two or more divisions")
    mean, sd, free = float(array.mean()), float(array.std(ddof=1)), len(array) - 1
    reach, power = float(student.ppf(0.975, free)), float(student.ppf(0.8, free))
    return Interval(mean, sd, mean - reach * sd, mean + reach * sd, (reach + power) * sd)


def passing_targets(records: Sequence[Record], family: str | None = None) -> list[str]:
    """Scalar targets that pass the exclusion rule in these records of one cell, optionally of one family."""
    facts = [record.values["targets"] for record in records]
    scalar = [name for name, fact in facts[0].items() if fact["family"] is not None]
    kept = [name for name in scalar if np.mean([fact[name]["r2"] for fact in facts]) >= R2_RULE]
    return [name for name in kept if family is None or facts[0][name]["family"] == family]


def excess(record: Record, name: str) -> float:
    """Cross-fit level affinity of a target in the registered basis minus its isotropic null of equal outputs."""
    found = record.values["primary"][name]
    return float(found.get("level_cross", np.nan)) - float(found["level_isotropic"][0])


def short_excess(record: Record, name: str) -> float:
    """The same with few directions per level and a residual block as one more level."""
    found = record.values["short"][name]
    return float(found["level_cross"]) - float(found["level_isotropic"])


def coordinate_excess(record: Record, name: str) -> float:
    """Plug-in affinity at width d in the registered basis minus its isotropic null; no registered contrast."""
    found = record.values["primary"][name]
    return float(found["d_plug"]) - float(found["d_isotropic"][0])


def spread(records: Sequence[Record], measure: Callable[[Record, str], float] = excess) -> NDArray[np.float64]:
    """Mean of `measure` over lexical targets minus mean over hierarchical ones, per division (J,)."""
    families = [passing_targets(records, family) for family in ("lexical", "hierarchical")]
    if not all(families):
        raise InputError("no target of one family passes the R2 rule; there is nothing to contrast")
    rows = [[np.mean([measure(record, name) for name in names]) for names in families] for record in records]
    return np.array([lexical - hierarchical for lexical, hierarchical in rows])


def from_basis(label: str, quantity: str = "level_cross") -> Callable[[Record, str], Any]:
    """A `measure` for `spread`: level_cross, taxonomic_pairing or taxonomic_gain of a target in one basis.

    With `a_cross`, where the plan has it recorded, the measure is the level profile (L,).
    """

    def measure(record: Record, name: str) -> Any:
        bases = record.values["bases"]
        value = bases[label][quantity][bases["scalars"].index(name)]
        return np.nan if value is None else value

    return measure


def orders(record: Record, construction: str) -> list[str]:
    """Labels of a construction's Gram-Schmidt orders, "dec" or "enc", without the order-neutral one."""
    return [label for label in record.values["bases"] if label.startswith(construction) and label[4:].isdigit()]


@dataclass(frozen=True)
class Verdict:
    """A registered prediction: what was measured, as name to number, and whether the prediction holds."""

    prediction: str
    measured: dict[str, float]
    holds: bool


def verdicts(records: Sequence[Record], clip: float = 2.0) -> list[Verdict]:
    """Judge every registered prediction on the records of one cell, in the plan's numbering."""
    names = passing_targets(records)
    rules = [
        _spread(records),
        _counting(records),
        _order_decides(records, names),
        _certificate_fails(records, names),
        _penalty(records, names),
        _bootstrap(records, names),
        _random_arm(records, names, clip),
        _arms(records, names),
        _noise(records, names),
        _geometric(records, names),
        _first_is_largest(records),
        _centring(records, names),
        _families(records),
    ]
    return [Verdict(*rule) for rule in rules]


Rule = tuple[str, dict[str, float], bool]


def decision(found: Interval) -> str:
    """The registered decision on the primary contrast: "appears", "does not appear" or "not distinguishable"."""
    return "appears" if found.low > SPREAD else "does not appear" if found.high < SPREAD else "not distinguishable"


def _spread(records: Sequence[Record]) -> Rule:
    found = interval(spread(records))
    names = passing_targets(records, "lexical")
    lexical = interval([np.mean([excess(record, name) for name in names]) for record in records])
    measured = {key: getattr(found, key) for key in ("mean", "sd", "low", "high", "smallest")}
    measured |= {"lexical_excess": lexical.mean, "lexical_high": lexical.high}
    return "P1", measured, decision(found) == "does not appear" and lexical.high < -0.02


def _mean(values: Any) -> float:
    return float(np.mean(np.asarray(list(values), dtype=np.float64)))


def _counting(records: Sequence[Record]) -> Rule:
    rises = {
        name: _mean(r.values["primary"][f"{name}_5"]["d_plug"] > r.values["primary"][name]["d_plug"] for r in records)
        for name in ("depth", "freq")
    }
    return "P2", rises, min(rises.values()) >= 0.9


def _pairings(records: Sequence[Record], names: Sequence[str], construction: str) -> NDArray[np.float64]:
    """Taxonomic pairing and gain, shape (2, J, orders, T)."""
    found = [
        [
            [[from_basis(label, quantity)(r, name) for name in names] for label in orders(r, construction)]
            for r in records
        ]
        for quantity in ("taxonomic_pairing", "taxonomic_gain")
    ]
    return np.array(found)


def _order_decides(records: Sequence[Record], names: Sequence[str]) -> Rule:
    both = np.concatenate([_pairings(records, names, each)[0] for each in ("dec", "enc")], axis=1)
    positive = (both > 0).mean(axis=1)  # (J, T): share of the 48 bases
    mixed = float(((positive > 0) & (positive < 1)).mean())
    return "P3", {"both_signs": mixed, "positive": float(positive.mean())}, mixed >= 0.5


def _certificate_fails(records: Sequence[Record], names: Sequence[str]) -> Rule:
    pairing, gain = _pairings(records, names, "enc")
    share = float((gain[pairing > 0] > 1).mean()) if (pairing > 0).any() else 0.0
    return "P4", {"certified": float((pairing > 0).mean()), "certified_but_worse": share}, share >= 0.5


def monotone(path: ArrayLike) -> bool:
    """Whether a sequence only rises or only falls, changes below TOLERANCE from its running extreme not counted."""
    array = np.asarray(path, dtype=np.float64)
    drop = (np.maximum.accumulate(array) - array).max()
    rise = (array - np.minimum.accumulate(array)).max()
    return bool(min(drop, rise) <= TOLERANCE)


def _penalty(records: Sequence[Record], names: Sequence[str]) -> Rule:
    keys = ("level", "d", "pca_level", "pca_d")
    share = {
        key: _mean(not monotone(r.values["penalty_path"][name][key]) for r in records for name in names) for key in keys
    }
    return "P5", share, share["pca_d"] >= 0.5


def _bootstrap(records: Sequence[Record], names: Sequence[str]) -> Rule:
    drawn = [r for r in records if "bootstrap" in r.values]
    missed = {}
    for kind in ("level", "d"):
        rows = [r.values["bootstrap"][name][kind] for r in drawn for name in names]
        missed[f"sentences_{kind}"] = _mean(not low <= point <= high for point, _, low, high in rows)
    inside = []
    for record in records:
        for name in names:
            half = record.values["half_samples"].get(name)
            if half:
                point = record.values["primary"][name]["level_cross"]
                inside.append(abs(point - half["mean"]) <= 2 * half["sd"])
    missed["half_samples"] = 1 - _mean(inside)
    return "P6", missed, missed["sentences_d"] >= 0.5 and missed["half_samples"] <= 0.1


def _random_arm(records: Sequence[Record], names: Sequence[str], clip: float) -> Rule:
    gains = [r.values["arms"][name][f"random_{k}"][1] for r in records for name in names for k in range(4)]
    expected = random_gain(clip)
    return "P7", {"mean": _mean(gains), "expected": expected}, abs(_mean(gains) - expected) <= 0.08


def _arms(records: Sequence[Record], names: Sequence[str]) -> Rule:
    rows = [r.values["arms"][name] for r in records for name in names if name in r.values["arms"]]
    share = {
        "taxonomic_worse_than_uniform": _mean(row["taxonomic"][1] > 1 for row in rows),
        "reversed_beats_taxonomic": _mean(row["reversed"][1] < row["taxonomic"][1] for row in rows),
        "educated_level_helps": _mean(row["educated_level"][1] < 1 for row in rows),
        "coordinates_beat_levels": _mean(row["educated_coordinate"][1] < row["educated_level"][1] for row in rows),
        "part_of_speech_worse_than_uniform": _mean(row["part_of_speech"][1] > 1 for row in rows),
    }
    return "P8", share, min(share.values()) >= 0.8


def _noise(records: Sequence[Record], names: Sequence[str]) -> Rule:
    lower = {}
    for label in ("enc-0123", "dec-0123", "primary"):
        found = [r.values["nulls"][label][name] for r in records for name in names]
        lower[label] = _mean(each["level"][0] < each["real"][0] for each in found)
    return "P9", lower, lower["enc-0123"] >= 0.5


def _geometric(records: Sequence[Record], names: Sequence[str]) -> Rule:
    share = {}
    for label in ("enc-0123", "dec-0123"):
        rows = [
            r.values["bases"][label]["a_cross"][r.values["bases"]["scalars"].index(n)] for r in records for n in names
        ]
        share[label] = _mean(bool((np.diff(np.array(row, dtype=np.float64)) > 0).all()) for row in rows)
    return "P10", share, max(share.values()) <= 0.1


def _first_is_largest(records: Sequence[Record]) -> Rule:
    share = {}
    for construction in ("enc", "dec"):
        found = [(label, r.values["bases"][label]["s"]) for r in records for label in orders(r, construction)]
        share[construction] = _mean(int(np.argmax(s)) == int(label[4]) for label, s in found)
    return "P11", share, share["enc"] >= 0.9


def _centring(records: Sequence[Record], names: Sequence[str]) -> Rule:
    gaps = [
        abs(r.values["primary"][name]["level_plug"] - r.values["primary"][name]["level_plug_raw"])
        for r in records
        for name in names
    ]
    return "P12", {"largest": float(max(gaps))}, max(gaps) < 0.01


def family_permutation(
    records: Sequence[Record], measure: Callable[[Record, str], float] = excess
) -> tuple[float, float]:
    """Return (mean spread, share of all relabellings of the targets whose mean spread is at least as large in size).

    The families keep their numbers of targets. This is the contrast's null over targets, of which there are few; the
    interval over divisions holds the targets fixed.
    """
    lexical, hierarchical = (passing_targets(records, family) for family in ("lexical", "hierarchical"))
    names = [*lexical, *hierarchical]
    means = np.array([np.mean([measure(record, name) for record in records]) for name in names])
    chosen = np.array(list(itertools.combinations(range(len(names)), len(lexical))))
    inside = means[chosen].mean(axis=1)
    outside = (means.sum() - means[chosen].sum(axis=1)) / len(hierarchical)
    observed = float(inside[0] - outside[0])  # the first combination is the lexical family itself
    return observed, float((np.abs(inside - outside) >= abs(observed) - 1e-12).mean())


def _families(records: Sequence[Record]) -> Rule:
    observed, share = family_permutation(records)
    return "P13", {"spread": observed, "p": share}, share > 0.05

"""What the English study's plan says is read off its records: the primary contrast, its interval, every prediction.

Committed with the plan, before the records. Targets are tested if their held-out R2, averaged over the divisions of a
cell, reaches `R2_RULE`. Shapes: J divisions (seeds), T targets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
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


Rule = tuple[str, dict[str, float], bool]


def decision(found: Interval) -> str:
    """The registered decision on the primary contrast: "appears", "does not appear" or "not distinguishable"."""
    return "appears" if found.low > SPREAD else "does not appear" if found.high < SPREAD else "not distinguishable"


def verdicts(records: Sequence[Record], clip: float = 2.0) -> list[Verdict]:
    """Judge every registered prediction on the records of one cell, in the plan's numbering."""
    names = passing_targets(records)
    cases = [(record.values, name) for record in records for name in names]
    rules = [*_affinity_rules(records, cases), *_order_rules(records, names), *_arm_rules(cases, clip)]
    return [Verdict(*rule) for rule in sorted(rules, key=lambda rule: int(rule[0][1:]))]


def _share(values: Iterable[Any]) -> float:
    return float(np.mean(np.asarray(list(values), dtype=np.float64)))


def monotone(path: ArrayLike) -> bool:
    """Whether a sequence only rises or only falls, changes below TOLERANCE from its running extreme not counted."""
    array = np.asarray(path, dtype=np.float64)
    drop = (np.maximum.accumulate(array) - array).max()
    rise = (array - np.minimum.accumulate(array)).max()
    return bool(min(drop, rise) <= TOLERANCE)


def _affinity_rules(records: Sequence[Record], cases: Sequence[tuple[Any, str]]) -> Iterator[Rule]:
    """P1, P2, P5, P6, P9, P12 and P13: what affinities show and what they do not."""
    found = interval(spread(records))
    names = passing_targets(records, "lexical")
    lexical = interval([np.mean([excess(record, name) for name in names]) for record in records])
    measured = asdict(found) | {"lexical_excess": lexical.mean, "lexical_high": lexical.high}
    yield "P1", measured, decision(found) == "does not appear" and lexical.high < -0.02

    primary = [record.values["primary"] for record in records]
    rises = {name: _share(p[f"{name}_5"]["d_plug"] > p[name]["d_plug"] for p in primary) for name in ("depth", "freq")}
    yield "P2", rises, min(rises.values()) >= 0.9

    paths = ("level", "d", "pca_level", "pca_d")
    turns = {key: _share(not monotone(v["penalty_path"][name][key]) for v, name in cases) for key in paths}
    yield "P5", turns, turns["pca_d"] >= 0.5

    missed = {}
    for kind in ("level", "d"):
        rows = [v["bootstrap"][name][kind] for v, name in cases if "bootstrap" in v]
        missed[f"sentences_{kind}"] = _share(not low <= point <= high for point, _, low, high in rows)
    halves = [(v["primary"][name]["level_cross"], v["half_samples"].get(name)) for v, name in cases]
    missed["half_samples"] = 1 - _share(abs(p - half["mean"]) <= 2 * half["sd"] for p, half in halves if half)
    yield "P6", missed, missed["sentences_d"] >= 0.5 and missed["half_samples"] <= 0.1

    lower = {}
    for label in ("enc-0123", "dec-0123", "primary"):
        nulls = [v["nulls"][label][name] for v, name in cases]
        lower[label] = _share(null["level"][0] < null["real"][0] for null in nulls)
    yield "P9", lower, lower["enc-0123"] >= 0.5

    gap = max(abs(v["primary"][name]["level_plug"] - v["primary"][name]["level_plug_raw"]) for v, name in cases)
    yield "P12", {"largest": float(gap)}, gap < 0.01

    observed, share = family_permutation(records)
    yield "P13", {"spread": observed, "p": share}, share > 0.05


def _order_rules(records: Sequence[Record], names: Sequence[str]) -> Iterator[Rule]:
    """P3, P4, P10 and P11: what the order of the levels decides."""

    def over_orders(construction: str, quantity: str) -> NDArray[np.float64]:  # (J, T, orders)
        measures = [from_basis(label, quantity) for label in orders(records[0], construction)]
        return np.array([[[measure(record, name) for measure in measures] for name in names] for record in records])

    pairing = {construction: over_orders(construction, "taxonomic_pairing") for construction in ("dec", "enc")}
    positive = (np.concatenate(list(pairing.values()), axis=-1) > 0).mean(axis=-1)  # share of the 48 bases
    mixed = float(((positive > 0) & (positive < 1)).mean())
    yield "P3", {"both_signs": mixed, "positive": float(positive.mean())}, mixed >= 0.5

    certified = pairing["enc"] > 0
    gain = over_orders("enc", "taxonomic_gain")
    share = float((gain[certified] > 1).mean()) if certified.any() else 0.0
    yield "P4", {"certified": float(certified.mean()), "certified_but_worse": share}, share >= 0.5

    rising = {}
    for label in ("enc-0123", "dec-0123"):
        profiles = [from_basis(label, "a_cross")(record, name) for record in records for name in names]
        rising[label] = _share((np.diff(np.array(profile, dtype=np.float64)) > 0).all() for profile in profiles)
    yield "P10", rising, max(rising.values()) <= 0.1

    first = {}
    for construction in ("enc", "dec"):
        found = [(label, r.values["bases"][label]["s"]) for r in records for label in orders(r, construction)]
        first[construction] = _share(int(np.argmax(s)) == int(label[4]) for label, s in found)
    yield "P11", first, first["enc"] >= 0.9


def _arm_rules(cases: Sequence[tuple[Any, str]], clip: float) -> Iterator[Rule]:
    """P7 and P8: gains of the arms at full amplitude."""
    gains = [{arm: entry[1] for arm, entry in v["arms"][name].items()} for v, name in cases if name in v["arms"]]
    drawn, expected = _share(gain[f"random_{k}"] for gain in gains for k in range(4)), random_gain(clip)
    yield "P7", {"mean": drawn, "expected": expected}, abs(drawn - expected) <= 0.08
    share = {
        "taxonomic_worse_than_uniform": _share(gain["taxonomic"] > 1 for gain in gains),
        "reversed_beats_taxonomic": _share(gain["reversed"] < gain["taxonomic"] for gain in gains),
        "educated_level_helps": _share(gain["educated_level"] < 1 for gain in gains),
        "coordinates_beat_levels": _share(gain["educated_coordinate"] < gain["educated_level"] for gain in gains),
        "part_of_speech_worse_than_uniform": _share(gain["part_of_speech"] > 1 for gain in gains),
    }
    yield "P8", share, min(share.values()) >= 0.8


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

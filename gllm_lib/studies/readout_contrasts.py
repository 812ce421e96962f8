"""What the read-out study's plan says is read off its records: token ratios, the primary contrast, every prediction.

Committed with the plan, before the records. A token ratio is the number of words an arm needs to reach the error that
the uniform arm has at `n` words, over n. Shapes: J runs (seeds), N sample sizes, A anchors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import spearmanr

from gllm_lib.analysis.probes import Array
from gllm_lib.checks import InputError
from gllm_lib.studies.contrasts import Interval, Rule, Verdict, interval
from gllm_lib.studies.plan import Record

RULES = {"ball": 2, "tuned": 3}  # places of the errors in a record's entry, after gain and tau-free gauge
BASES = ("annotated", "rotation", "principal")
ANCHORS = (512, 1024, 2048)  # 2.7, 5.3 and 10.7 words for each of 192 coordinates; fixed before the runs
LATE = 16384  # 85 words for each coordinate
FEW = ("educated_coordinate_256", "transferred", "self_coordinate")  # profiles without many labels of the target
UNCLIPPED = ("oracle_free", "sqrt_alpha", "whitened")
R2_RULE = 0.1  # a target that is hardly decodable has curves of noise
SMALLEST_CLAIM = 0.05  # a saving or a cost of tokens below a twentieth is not called one


def ratios(uniform: ArrayLike, arm: ArrayLike, sizes: Sequence[int], anchors: Sequence[int] = ANCHORS) -> Array:
    """Return the arm's token ratio (A,) at each anchor, from held-out errors (N,) at increasing sample sizes.

    Errors are made non-increasing, and n is interpolated in log n. A ratio is cut off where the sizes end, at
    sizes[0] / n and sizes[-1] / n. Raises InputError if lengths differ or an anchor is not among the sizes.
    """
    base, other = (np.minimum.accumulate(np.asarray(each, dtype=np.float64)) for each in (uniform, arm))
    if not len(base) == len(other) == len(sizes) or set(anchors) - set(sizes):
        raise InputError(f"{len(base)} and {len(other)} errors at sizes {list(sizes)}, anchors {list(anchors)}; "
                         "give one error for each size, and anchors among them")  # fmt: skip
    steps, logs = np.arange(len(sizes)) * 1e-9, np.log(sizes)  # breaks ties: a plateau is reached where it begins
    wanted = (base - steps)[[list(sizes).index(anchor) for anchor in anchors]]
    reached = np.interp(-wanted, -(other - steps), logs)
    return np.asarray(np.exp(reached) / np.array(anchors), dtype=np.float64)


def log_ratio(record: Record, basis: str, target: str, arm: str, rule: str, anchors: Sequence[int] = ANCHORS) -> float:
    """Mean log token ratio over the anchors, of one arm for one target in one run."""
    entry, place = record.values[basis][target], RULES[rule]
    found = ratios(entry["uniform"][place], entry[arm][place], record.values["sizes"], anchors)
    return float(np.log(found).mean())


def passing(records: Sequence[Record]) -> list[str]:
    """Targets whose held-out R2, averaged over the runs of a cell, reaches the rule."""
    names = records[0].values["targets"]
    return [name for name in names if np.mean([r.values["targets"][name]["r2"] for r in records]) >= R2_RULE]


def arm_means(
    records: Sequence[Record], basis: str, rule: str, anchors: Sequence[int] = ANCHORS
) -> dict[str, dict[str, Any]]:
    """Per arm over passing targets: mean gain (None if it depends on the sample), token ratio, Interval of its log.

    Ratios are geometric means; `by_run` (J) are the mean log ratios, `targets` those of single targets over the runs.
    """
    names, report = passing(records), {}
    for arm in records[0].values[basis][names[0]]:
        table = np.array([[log_ratio(r, basis, name, arm, rule, anchors) for name in names] for r in records])
        gains = [r.values[basis][name][arm][0] for r in records for name in names]
        report[arm] = {
            "gain": None if gains[0] is None else float(np.exp(np.log(gains).mean())),
            "ratio": float(np.exp(table.mean())),
            "interval": interval(table.mean(axis=1)),
            "by_run": table.mean(axis=1).tolist(),
            "targets": dict(zip(names, np.exp(table.mean(axis=0)).tolist(), strict=True)),
        }
    return report


def rank_correlations(
    records: Sequence[Record], basis: str, rule: str, predictor: int = 0, unclipped: bool = False
) -> dict[str, float]:
    """Spearman correlation over arms, within each target, of token ratio with gain (`predictor` 0) or gauge (1).

    Both are means of logs over runs. Arms that read their profile off the sample have no gain of their own and are left
    out; unclipped arms come in only if asked for.
    """
    found = {}
    for name in passing(records):
        entry = records[0].values[basis][name]
        kept = [arm for arm in entry if entry[arm][0] is not None and (unclipped or arm not in UNCLIPPED)]
        measured = [np.mean([log_ratio(r, basis, name, arm, rule) for r in records]) for arm in kept]
        told = [np.mean([np.log(r.values[basis][name][arm][predictor]) for r in records]) for arm in kept]
        found[name] = float(spearmanr(told, measured).statistic)
    return found


def structure(records: Sequence[Record], rule: str = "tuned", arms: Sequence[str] = FEW) -> Array:
    """Return the primary contrast per run (J,): mean log ratio of `arms` in the rotation minus in the annotated basis.

    Positive where arms that know little of the target save more words because the basis is annotated.
    """
    names = passing(records)

    def mean(record: Record, basis: str) -> float:
        return float(np.mean([log_ratio(record, basis, name, arm, rule) for name in names for arm in arms]))

    return np.array([mean(record, "rotation") - mean(record, "annotated") for record in records])


def decision(found: Interval) -> str:
    """The registered decision on the primary contrast: "appears", "does not appear" or "not distinguishable"."""
    reach = -np.log(1 - SMALLEST_CLAIM)
    return "appears" if found.low > reach else "does not appear" if found.high < reach else "not distinguishable"


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge every registered prediction on the records of one cell, in the plan's numbering."""
    means = {key: arm_means(records, *key) for key in itertools.product(BASES, RULES)}
    return [Verdict(*rule) for rule in (*_law_rules(records, means), *_arm_rules(records, means))]


Means = dict[tuple[str, str], dict[str, dict[str, Any]]]


def _law_rules(records: Sequence[Record], means: Means) -> Iterator[Rule]:
    """P1 to P5: the primary contrast, and how far ratios follow the gain."""
    found = interval(structure(records))
    yield "P1", asdict(found) | {"ball": float(structure(records, "ball").mean())}, decision(found) == "appears"

    def mean_rank(*key: Any) -> float:
        return float(np.mean(list(rank_correlations(records, *key).values())))

    ball, tuned = (mean_rank("annotated", rule) for rule in RULES)
    yield "P2", {"rank": ball, "with_unclipped": mean_rank("annotated", "ball", 0, True)}, ball >= 0.8
    yield "P3", {"rank": tuned, "gauge": mean_rank("annotated", "tuned", 1)}, tuned >= 0.7

    ranks = {name: mean_rank("principal", "tuned", place) for place, name in enumerate(("gain", "gauge"))}
    flipped = {"gain_of_reversed": means["principal", "ball"]["reversed"]["gain"]}
    flipped |= {rule: means["principal", rule]["reversed"]["ratio"] for rule in RULES}
    holds = ranks["gauge"] - ranks["gain"] >= 0.05 and min(flipped["gain_of_reversed"], flipped["ball"]) > 1
    yield "P4", ranks | flipped, holds and flipped["tuned"] <= 0.9 * flipped["ball"]

    misses = []
    for name in passing(records):
        entry = records[0].values["annotated"][name]
        for arm in (a for a in entry if a not in UNCLIPPED and a != "uniform" and entry[a][0] is not None):
            told = np.mean([np.log(r.values["annotated"][name][arm][0]) for r in records])
            misses.append(np.log(means["annotated", "ball"][arm]["targets"][name]) - told)
    yield "P5", {"mean": float(np.mean(misses)), "size": float(np.abs(misses).mean())}, np.abs(misses).mean() >= 0.1


def _arm_rules(records: Sequence[Record], means: Means) -> Iterator[Rule]:
    """P6 to P13: which arms save words and which cost words."""
    ball, tuned = (means["annotated", rule] for rule in RULES)
    control = means["rotation", "tuned"]
    reach = -np.log(1 - SMALLEST_CLAIM)

    def share(holds: ArrayLike) -> float:
        return float(np.mean(np.asarray(holds)))

    def by_run(report: dict[str, dict[str, Any]], *arms: str) -> Array:
        return np.mean([report[arm]["by_run"] for arm in arms], axis=0)

    lows = {rule: report["taxonomic"]["interval"].low for rule, report in (("ball", ball), ("tuned", tuned))}
    better = share(by_run(tuned, "reversed") < by_run(tuned, "taxonomic"))
    yield "P6", lows | {"reversed_better": better}, min(lows.values()) > reach and better >= 0.9

    level, coordinate = by_run(tuned, "educated_level"), by_run(tuned, "educated_coordinate")
    ordered = {"levels_help": share(level < 0), "coordinates_beat_levels": share(coordinate < level)}
    yield "P7", ordered, min(ordered.values()) >= 0.9

    cost = {count or "_all": tuned[f"educated_coordinate{count}"]["ratio"] for count in ("", "_1024", "_256")}
    rotated = control["educated_coordinate_256"]["ratio"]
    paid = cost["_all"] < cost["_1024"] < cost["_256"] < 1 - SMALLEST_CLAIM
    yield "P8", cost | {"rotation_256": rotated}, paid and rotated > 1 - SMALLEST_CLAIM

    own = {rule: report["self_coordinate"]["ratio"] for rule, report in (("ball", ball), ("tuned", tuned))}
    yield "P9", own, own["tuned"] < 1 - SMALLEST_CLAIM and own["ball"] > 1.15 * own["tuned"]

    free = {arm: tuned[arm]["ratio"] for arm in ("sqrt_alpha", "oracle_free")}
    gains = {f"gain_{arm}": tuned[arm]["gain"] for arm in free}
    wrong = gains["gain_sqrt_alpha"] > 2 * gains["gain_oracle_free"] and free["sqrt_alpha"] < free["oracle_free"]
    yield "P10", free | gains, wrong

    late, fading = arm_means(records, "annotated", "tuned", (LATE,)), {}
    for arm in ("taxonomic", "educated_coordinate"):
        fading[arm] = float(np.log(late[arm]["ratio"]) / np.log(tuned[arm]["ratio"]))
    yield "P11", fading, max(fading.values()) < 0.75

    oracle = control["oracle"]["ratio"]
    yield "P12", {"ratio": oracle}, oracle < 0.75

    chance = [f"random_{draw}" for draw in range(3)]
    costs = {
        f"random_{rule}": share(by_run(report, *chance) > 0) for rule, report in (("ball", ball), ("tuned", tuned))
    }
    costs |= {f"token_class_{rule}": means["annotated", rule]["token_class"]["ratio"] for rule in RULES}
    costly = min(costs[f"token_class_{rule}"] for rule in RULES) > 1 + SMALLEST_CLAIM
    yield "P13", costs, costs["random_ball"] >= 0.8 and costly

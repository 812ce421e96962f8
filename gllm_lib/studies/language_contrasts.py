"""What the plan of the language-model ladder says is read off its records: differences in nats, token ratios, verdicts.

Committed with the plan, before the records. An entry is an arm of a cell at a peak rate; None is the rate that does
best, by the mean final loss, at the other seeds. Shapes: n seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from gllm_lib.analysis.contrasts import Estimate, equivalence, smallest_effect, t_interval
from gllm_lib.analysis.probes import Array
from gllm_lib.checks import InputError
from gllm_lib.studies.contrasts import Rule, Verdict
from gllm_lib.studies.plan import Record, Study

MARGIN = 0.0095  # nats per token, what 3 percent of the tokens were worth in the rehearsal
REACHED = 0.75  # the share of the run after which the uniform arm's loss is the one to reach
LADDER = ("taxonomic", "reversed", "permuted", "random", "token_class", "educated_level", "educated_coordinate")
Entry = tuple[str, str, float | None]


def rates(records: Sequence[Record], arm: str) -> list[float]:
    """The rate for each record (n,): of those in the grid, the least mean final loss of the arm over the others."""
    grid = sorted(float(name.split("@")[1]) for name in records[0].values["runs"] if name.split("@")[0] == arm)
    if len(grid) == 1:
        return grid * len(records)
    if len(records) < 2:
        raise InputError("one seed has no others to choose its rate by; give at least two records")
    losses = np.array([[record.values["runs"][f"{arm}@{rate:g}"]["final"] for rate in grid] for record in records])
    return [grid[int(np.delete(losses, j, axis=0).mean(axis=0).argmin())] for j in range(len(records))]


def runs(study: Study, entry: Entry) -> dict[int, Any]:
    """The run of an entry at each seed that has been made, with the predictions counted by depth (met)."""
    cell, arm, rate = entry
    records = study.of(cell)
    chosen = rates(records, arm) if rate is None and records else [rate] * len(records)
    return {
        record.seed: {**record.values["runs"][f"{arm}@{k:g}"], "met": record.values["met"]}
        for record, k in zip(records, chosen, strict=True)
    }


def difference(study: Study, entry: Entry, base: Entry, what: str | Callable[[Any], float] = "final") -> Array:
    """The difference of a number of the runs between two entries, at every seed that both have (n,)."""
    tell = what if callable(what) else (lambda run: run[what])
    ours, theirs = runs(study, entry), runs(study, base)
    return np.array([tell(ours[seed]) - tell(theirs[seed]) for seed in ours if seed in theirs])


def depth_slope(run: Any) -> float:
    """The slope of accuracy in depth, weighted by predictions; depths with less than 1 percent of them do not count."""
    met = {int(depth): n for depth, n in run["met"].items() if n >= 0.01 * sum(run["met"].values())}
    share = [run["right"].get(str(depth), 0) / n for depth, n in met.items()]
    return float(np.polyfit(list(met), share, 1, w=np.sqrt(list(met.values())))[0])


def arc_excess(run: Any) -> Array:
    """Attention on arcs less that between the same positions elsewhere, by layer and head (GLLM Eq. 23)."""
    return np.subtract(run["attention"]["structural"], run["attention"]["null"])


def log_ratio(study: Study, entry: Entry, base: Entry, curve: str = "curve") -> Array:
    """Log of the tokens (curve), or steps (train), to the base's loss at 3/4 of its run, over those that it took (n,).

    Losses are made non-increasing and interpolated in log steps; a loss that is not reached counts as the whole run.
    """
    ours, theirs, found = runs(study, entry), runs(study, base), []
    for seed in (each for each in ours if each in theirs):
        own, other = (np.minimum.accumulate(each[seed][curve]) for each in (ours, theirs))
        at = np.arange(1, len(own) + 1) - (0.5 if curve == "train" else 0.0)  # a block mean stands for its middle
        ties = 1e-9 * at
        wanted = float(np.interp(REACHED * len(at), at, other - ties))
        reached = [np.interp(-wanted, -(each - ties), np.log(at)) for each in (own, other)]
        found.append(reached[0] - reached[1])
    return np.array(found)


def decision(found: Estimate) -> str:
    """The registered decision on the primary contrast: "appears", "does not appear" or "not distinguishable"."""
    return "appears" if found.high < -MARGIN else "does not appear" if found.low > -MARGIN else "not distinguishable"


def seen(values: Array) -> dict[str, float]:
    """Mean, sd and interval of one difference per seed, and the smallest effect that as many seeds see (power 0.8)."""
    found = t_interval(values)
    kept = {name: asdict(found)[name] for name in ("mean", "sd", "low", "high")}
    return kept | {"smallest": smallest_effect(found.sd, len(values)) if found.sd > 0 else 0.0}


def pooled(study: Study, cell: str, arm: str, base: str = "uniform") -> Array:
    """An arm minus its base in the final loss, averaged over the rates of the grid: less noise, the same seeds (n,)."""
    grid = study.plan.cell(cell)["rates"]
    return np.asarray(np.mean([difference(study, (cell, arm, k), (cell, base, k)) for k in grid], axis=0))


def order(study: Study, cell: str, arms: Sequence[str]) -> Array:
    """Spearman correlation over arms of the gain with the loss, averaged over the rates, at each seed (n,)."""
    records, grid = study.of(cell), study.plan.cell(cell)["rates"]
    found = []
    for record in records:
        loss = [np.mean([record.values["runs"][f"{arm}@{k:g}"]["final"] for k in grid]) for arm in arms]
        found.append(spearmanr([record.values["gain"][arm] for arm in arms], loss).statistic)
    return np.array(found)


def verdicts(study: Study) -> list[Verdict]:
    """Judge every registered prediction, in the plan's numbering; a cell that was cut raises InputError."""
    return [Verdict(*rule) for rule in (*_ladder_rules(study), *_side_rules(study), *_grammar_rules(study))]


def _includes(found: dict[str, float]) -> bool:
    return found["low"] <= 0 <= found["high"]


def _ladder_rules(study: Study) -> Iterator[Rule]:
    """P1 to P6: the ladder on code, anchored and not."""
    values = difference(study, ("anchored", "educated_coordinate", None), ("anchored", "uniform", None))
    yield "P1", seen(values), decision(t_interval(values)) != "appears"
    means = {arm: float(pooled(study, "anchored", arm).mean()) for arm in LADDER}
    yield "P2", means, max(map(abs, means.values())) < MARGIN
    found = seen(order(study, "anchored", ("uniform", *LADDER)))
    yield "P3", found, found["mean"] < 0.5
    halves = {base: float(pooled(study, "anchored", "educated_coordinate", base).mean())
              for base in ("rate_only", "start_only")}  # fmt: skip
    yield "P4", halves, max(map(abs, halves.values())) < MARGIN
    ties: dict[str, float] = {}
    for arm in ("reversed", "permuted"):
        values = pooled(study, "unanchored", arm, "taxonomic")
        ties |= {arm: float(values.mean()), f"{arm}_margin": equivalence(values, MARGIN)[1]}
        ties[f"{arm}_p"] = t_interval(values).p
    yield "P5", ties, min(ties["reversed_p"], ties["permuted_p"]) > 0.05
    pairs = {arm: (("anchored", arm, None), ("anchored", "uniform", None)) for arm in LADDER}
    steps = {arm: float(log_ratio(study, *pair, "train").mean()) for arm, pair in pairs.items()}
    tokens = float(log_ratio(study, *pairs["educated_coordinate"]).mean())
    yield "P6", steps | {"tokens": tokens}, min(steps.values()) > -0.05


def _side_rules(study: Study) -> Iterator[Rule]:
    """P7 to P12: components, tilt, heads, sweeps, all at one rate."""
    rate = study.plan.cell("components")["rates"][0]
    base = ("anchored", "uniform", rate)

    def means(cell: str, *arms: str) -> dict[str, float]:
        return {arm: float(difference(study, (cell, arm, rate), base).mean()) for arm in arms}

    tilted = {arm: runs(study, ("components", arm, rate)).values() for arm in ("loss", "parse_depth")}
    cost = {arm: seen(np.array([run["kept"] - run["final"] for run in tilted[arm]])) for arm in tilted}
    beyond = seen(difference(study, ("components", "parse_depth", rate), ("components", "loss", rate)))
    measured = {arm: told["mean"] for arm, told in cost.items()}
    yield (
        "P7",
        measured | {"beyond": beyond["mean"], "beyond_high": beyond["high"]},
        (cost["loss"]["low"] > 0 and max(map(abs, measured.values())) < 0.002 and _includes(beyond)),
    )

    arms = ("attention", "loss", "all")
    found = means("components", *arms)
    yield "P8", found, max(map(abs, found.values())) < 2 * MARGIN

    learned = ("components", "learned_diverse", rate), ("components", "learned", rate)
    apart = seen(difference(study, *learned, lambda run: run["heads"]["apart"]))
    told = runs(study, learned[0]).values()
    rows = [zip(run["heads"]["mean"], arc_excess(run), strict=True) for run in told]
    linked = seen(np.array([np.mean([np.corrcoef(*pair)[0, 1] for pair in layers]) for layers in rows]))
    measured = {f"{name}_{end}": each[end] for name, each in (("apart", apart), ("linked", linked))
                for end in ("mean", "low", "high")}  # fmt: skip
    yield "P9", measured, apart["low"] > 0 and _includes(linked)

    found = means("clip", *(f"{arm}_{clip}" for arm in ("taxonomic", "educated_coordinate") for clip in ("1.5", "4")))
    yield "P10", found, max(map(abs, found.values())) < 2 * MARGIN
    found = means("levels", *(f"educated_{count}" for count in (2, 8, 16))) | means("anchored", "educated_level")
    yield "P11", found, max(map(abs, found.values())) < 2 * MARGIN
    pair = ("anchored", "educated_coordinate", None), ("anchored", "uniform", None)
    tells = {"arcs": lambda run: float(arc_excess(run).mean()), "slope": depth_slope}
    looked = {name: seen(difference(study, *pair, tell)) for name, tell in tells.items()}
    yield "P12", {name: told["mean"] for name, told in looked.items()}, all(map(_includes, looked.values()))


def _grammar_rules(study: Study) -> Iterator[Rule]:
    """P13 to P16: brackets, about which everything is known."""
    arms = ("oracle", "educated_coordinate", "taxonomic", "reversed")
    found = {arm: seen(pooled(study, "grammar", arm)) for arm in (*arms, "rate_only", "start_only")}
    means = {arm: told["mean"] for arm, told in found.items()}
    yield "P13", means, max(found[arm]["high"] for arm in arms[:2]) < -MARGIN and found["reversed"]["low"] > 0
    ranked = seen(order(study, "grammar", ("uniform", *arms)))
    yield "P14", ranked, ranked["mean"] >= 0.7
    halves = {arm: seen(pooled(study, "grammar", "oracle", arm)) for arm in ("rate_only", "start_only")}
    measured = {f"{arm}_{end}": told[end] for arm, told in halves.items() for end in ("mean", "low", "high")}
    yield "P15", measured, halves["rate_only"]["high"] < 0 and _includes(halves["start_only"])
    slope = seen(difference(study, ("grammar", "oracle", None), ("grammar", "uniform", None), depth_slope))
    yield "P16", slope, slope["low"] > 0


def energy_verdicts(study: Study) -> list[Verdict]:
    """Judge the predictions of the study that follows up what the ladder's records suggested."""
    found = {arm: seen(pooled(study, "energy", arm)) for arm in ("taxonomic", "larger", "level_energy")}
    grid = study.plan.cell("energy")["rates"]
    ends = [[difference(study, ("energy", arm, k), ("energy", "uniform", k)) for k in (grid[0], grid[-1])]
            for arm in ("taxonomic", "larger")]  # fmt: skip
    change = [seen(last - first) for first, last in ends]
    gap = seen(pooled(study, "energy", "taxonomic", "larger"))
    return [
        Verdict("E1", found["taxonomic"], found["taxonomic"]["high"] < 0),
        Verdict("E2", change[0], change[0]["high"] < 0),
        Verdict("E3", change[1], change[1]["high"] < 0),
        Verdict("E4", gap, _includes(gap)),
        Verdict("E5", found["level_energy"], _includes(found["level_energy"])),
    ]

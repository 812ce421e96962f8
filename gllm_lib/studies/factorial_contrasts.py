"""What the plan of the factorial says is read off its records: contrasts by depth, the registered analysis, verdicts.

Committed with the plan, before the records. An arm is a cell without its depth, "12m" for "d2-12m"; a contrast is a sum
of arms such as "12 - 10 - 02 + 00". Shapes: n seeds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from gllm_lib.analysis.contrasts import (
    Estimate,
    block_model,
    contrast,
    equivalence,
    fieller,
    smallest_effect,
    t_interval,
)
from gllm_lib.analysis.probes import Array
from gllm_lib.checks import InputError
from gllm_lib.studies.contrasts import Rule, Verdict
from gllm_lib.studies.plan import Study

DEPTHS = ("d2", "d4")
MAIN = ("00", "01", "02", "02m", "10", "11", "12", "12m")
STEPS = {
    "tables": "10 - 00", "package": "01 - 00", "scale": "02 - 01", "both": "02 - 00", "package on tables": "11 - 10",
    "scale on tables": "12 - 11", "both on tables": "12 - 10", "tables x package": "11 - 10 - 01 + 00",
    "tables x scale": "12 - 11 - 02 + 01", "tables x both": "12 - 10 - 02 + 00", "mask": "02m - 02",
    "mask on tables": "12m - 12", "mask x tables": "02m - 02 - 12m + 12",
}  # fmt: skip
EXTRA = {  # at one depth, paired
    "all rates": "00-all-rates - 00", "Muon's rate": "00-muon-rate - 00",
    "package, all rates": "01-all-rates - 00-all-rates", "package, Muon's rate": "01-muon-rate - 00-muon-rate",
    "without equilibration": "01-no-equilibration - 01", "without cooldown": "01-no-cooldown - 01",
    "without whitening": "01-no-whitening - 01", "centred on visited rows": "01-centre-visited - 01",
    "without FP32 products": "01-no-fp32-polar - 01", "without cosine decay": "01-no-cosine-decay - 01",
    "whitened tables": "10-whitened-tables - 10", "BF16 states": "12-bf16-states - 12",
}  # fmt: skip
ALPHA, MARGIN = 0.05, 0.02  # the margin of "no cost", in bits per byte


def weights_of(text: str) -> dict[str, float]:
    """Return the weights of a contrast, arm to number; raises InputError for a text that is none."""
    parts = re.findall(r"(?:^|([+-]) )(\S+)", text)
    found = {arm: -1.0 if sign == "-" else 1.0 for sign, arm in parts}
    if len(found) < len(parts) or sum(map(len, (arm for _, arm in parts))) + 3 * (len(parts) - 1) != len(text):
        raise InputError(f"{text!r} is no contrast; write arms with signs between, such as 12 - 10 - 02 + 00")
    return found


def arms(study: Study, depth: str, metric: str = "held_out", names: tuple[str, ...] = MAIN) -> dict[str, Array]:
    """Bits per byte (n,) of the named arms at a depth, at the seeds that all of them have."""
    found = {name: {r.seed: r.values[metric] for r in study.of(f"{depth}-{name}")} for name in names}
    seeds = sorted(set.intersection(*(set(each) for each in found.values())))
    return {name: np.array([each[seed] for seed in seeds], dtype=np.float64) for name, each in found.items()}


def differences(study: Study, depth: str, of: str, metric: str = "held_out") -> Array:
    """The contrast of each seed (n,)."""
    weights = weights_of(of)
    return contrast(arms(study, depth, metric, tuple(weights)), weights)


def pooled(study: Study, depth: str, of: str, metric: str = "held_out") -> tuple[Estimate, str]:
    """The registered analysis of a contrast of main arms, and which it was.

    One block model of all main arms, unless its test says at 5 % that arms with tables have seed effects of their own:
    then one of the arms with the same input, and the paired interval for a contrast that leaves them.
    """
    table, weights = arms(study, depth, metric), weights_of(of)
    model = block_model(table)
    if model.additivity_test([name for name in MAIN if name[0] == "1"]).p > ALPHA:
        return model.contrast(weights), "pooled over all arms"
    if len({name[0] for name in weights}) == 1:
        inside = {name: values for name, values in table.items() if name[0] == next(iter(weights))[0]}
        return block_model(inside).contrast(weights), "pooled over arms with the same input"
    return t_interval(contrast(table, weights)), "paired"


def decision(found: Estimate) -> str:
    """The registered decision on a primary contrast: "helps", "harms" or "not distinguishable"."""
    return "helps" if found.high < 0 else "harms" if found.low > 0 else "not distinguishable"


def summary(study: Study, metric: str = "held_out") -> dict[tuple[str, str], dict[str, Estimate | float | str]]:
    """Every registered contrast by (depth, name): registered and paired estimate, and the smallest effect seen."""
    found: dict[tuple[str, str], dict[str, Estimate | float | str]] = {}
    for depth in DEPTHS:
        for name, of in (STEPS | EXTRA).items():
            if all(f"{depth}-{arm}" in {cell["id"] for cell in study.plan.fields["cells"]} for arm in weights_of(of)):
                one = t_interval(differences(study, depth, of, metric))
                many, how = pooled(study, depth, of, metric) if name in STEPS else (one, "paired")
                least = smallest_effect(one.sd, one.df + 1) if one.sd else 0.0
                found[depth, name] = {"registered": many, "how": how, "paired": one, "smallest": least}
    return found


def told(study: Study, cell: str, kind: str, *place: str | int) -> dict[int, float]:
    """A number of what the weights show, by seed: `kind` ranks or scales, then where it stands in it."""
    found = {}
    for record in study.of(cell):
        value = record.values[kind]
        for each in place:
            value = value[each]
        found[record.seed] = float(value)
    return found


def least_gap(more: Mapping[int, float], less: Mapping[int, float]) -> float:
    """The smallest difference between two numbers by seed, over the seeds that both have."""
    return min(more[seed] - less[seed] for seed in more if seed in less)


def verdicts(study: Study) -> list[Verdict]:
    """Judge every registered prediction on held-out text, in the plan's numbering."""
    return [Verdict(*rule) for rule in (*_score_rules(study), *_weight_rules(study))]


def _score_rules(study: Study) -> Iterator[Rule]:
    """P1 to P9: what the registered estimates of bits per byte show."""
    found = summary(study)

    def rule(key: str, wanted: Mapping[str, str], **cases: str) -> Rule:
        measured: dict[str, float] = {}
        holds = True
        for name, (depth, asked) in {n: (c[:2], c[3:]) for n, c in cases.items()}.items():
            e = found[depth, asked]["registered"]
            assert isinstance(e, Estimate)
            measured |= {name: e.mean, f"{name}_low": e.low, f"{name}_high": e.high}
            holds &= decision(e) == wanted.get(name, wanted.get("every"))
        return key, measured, holds

    def both(key: str, wanted: str, asked: str) -> Rule:
        return rule(key, {"every": wanted}, **{depth: f"{depth} {asked}" for depth in DEPTHS})

    yield both("P1", "helps", "both on tables")
    yield both("P2", "helps", "tables")
    yield both("P3", "harms", "package")
    yield both("P4", "helps", "package on tables")
    yield both("P5", "helps", "tables x package")
    yield both("P6", "helps", "scale")
    least = {depth: equivalence(differences(study, depth, "12m - 12"), MARGIN) for depth in DEPTHS}
    yield "P7", {depth: each[1] for depth, each in least.items()}, all(each[0] < ALPHA for each in least.values())
    parts = {"whitening": "d2 without whitening", "visited": "d2 centred on visited rows"}
    yield rule("P8", {"every": "helps"}, **parts)
    ratio = fieller(differences(study, "d2", "12 - 10"), differences(study, "d2", "02 - 00"))
    yield "P9", {"low": min(ratio.low, 1e9), "unbounded": float(ratio.kind != "interval")}, ratio.kind != "interval"


def _weight_rules(study: Study) -> Iterator[Rule]:
    """P10 to P12: what ranks, mean rows and query scales show at every seed."""
    shares = {arm: told(study, f"d2-{arm}", "ranks", "token", 1) for arm in ("00", "01", "01-centre-visited")}
    raised = {"package": least_gap(shares["01"], shares["00"]),
              "visited": least_gap(shares["01"], shares["01-centre-visited"])}  # fmt: skip
    yield "P10", raised, min(raised.values()) > 0
    fallen = {}
    for depth in DEPTHS:
        for name, place in {"first_layer": ("layers", 0), "fast_planes": ("bands", 0)}.items():
            before, after = (told(study, f"{depth}-{arm}", "scales", *place) for arm in ("02", "12"))
            fallen[f"{depth}_{name}"] = least_gap(before, after)
    yield "P11", fallen, min(fallen.values()) > 0
    loss = {name: t_interval(differences(study, depth, EXTRA[name])) for name, depth in
            (("whitened tables", "d2"), ("BF16 states", "d4"))}  # fmt: skip
    measured = {f"{name} {end}": getattr(each, end) for name, each in loss.items() for end in ("low", "high")}
    yield "P12", measured, all(decision(each) != "helps" for each in loss.values())

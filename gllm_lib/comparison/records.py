"""Records of models, and what a pair of them permits one to say (FTIP 3.1, 3.4, 3.8, 3.10).

A field is a value or a `Missing`, which says why it is not there; what a record does not mention is Missing too.
`compare` fills no gap: a claim that needs a field which is not stated is unknown, one whose fields differ is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from statistics import mean
from typing import Any

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.comparison.frontier import KINDS, Missing, Number, band, dominates, iso_quality_ratio, number

UNSTATED = Missing("missing", "the record does not state it")
Stated = str | Number | Missing
ARMS = ("common recipe", "equal tuning", "restricted envelope")


def _check(section: Any) -> None:
    for name, value in vars(section).items():
        if not isinstance(value, str | Missing):
            number(f"{type(section).__name__}.{name}", value)


def _section(name: str, names: str) -> Any:
    made = [(each, Stated, UNSTATED) for each in names.split()]
    return make_dataclass(name, made, frozen=True, namespace={"__module__": __name__, "__post_init__": _check})


# What is computed (FTIP 3.1.1, l. 103, l. 157), where the identity is a checkpoint or commit, no family name; how
# parameters change (FTIP 3.1.2), and in which coordinates of the weights that compute; what executes it and how costs
# were measured (FTIP l. 163, l. 167); training, depth passes, tuning, allowed interventions and their cap (FTIP l. 27,
# l. 69-73, l. 161); task, law and rule of a score (FTIP l. 159); five coordinates, larger is better (FTIP 3.1.6).
ArchitectureRecord = _section("ArchitectureRecord", "identity inputs outputs decoder layers parameters")
OptimizerRecord = _section("OptimizerRecord", "rule schedule coordinates")
SystemsRecord = _section("SystemsRecord", "hardware software precision kernels cache batch repetitions aggregation")
RecipeRecord = _section(
    "RecipeRecord", "data budget post_training passes tuning_data trials selection stopping tuning_cost allowed cap"
)
EvaluationRecord = _section("EvaluationRecord", "task prompts context scoring seed stopping evaluator")
CapabilityRecord = _section("CapabilityRecord", "state adaptive representation plasticity portability")
_SECTIONS = (ArchitectureRecord, OptimizerRecord, SystemsRecord, RecipeRecord, EvaluationRecord, CapabilityRecord)
SECTIONS = {each.__name__.removesuffix("Record").lower(): each for each in _SECTIONS}
NAMES = [f"{name}.{each.name}" for name, section in SECTIONS.items() for each in fields(section)]


@dataclass(frozen=True)
class Quantity:
    """An amount of at least 0 in a unit, or a weight per unit; raises InputError or InputTypeError for others."""

    value: Number
    unit: str

    def __post_init__(self) -> None:
        """Check that the amount is finite and at least 0, and that the unit is a word."""
        if not isinstance(self.unit, str):
            raise InputTypeError(f"a unit is {self.unit!r:.40}; give a string, such as 'byte'")
        if number("an amount", self.value) < 0:
            raise InputError(f"{self.value} {self.unit} is negative; give an amount of at least 0")


Costs = Mapping[str, Quantity | Missing]


@dataclass(frozen=True)
class ModelInstance:
    """One model as trained, run and scored: its sections, cost vector and scores by item (FTIP 3.4.4).

    Raises InputError or InputTypeError for a section, a cost or a score of another kind.
    """

    name: str
    architecture: Any = field(default_factory=ArchitectureRecord)
    optimizer: Any = field(default_factory=OptimizerRecord)
    systems: Any = field(default_factory=SystemsRecord)
    recipe: Any = field(default_factory=RecipeRecord)
    evaluation: Any = field(default_factory=EvaluationRecord)
    capability: Any = field(default_factory=CapabilityRecord)
    costs: Costs = field(default_factory=dict)
    scores: tuple[Number, ...] | Missing = UNSTATED

    def __post_init__(self) -> None:
        """Check that there is a name, sections and costs, and scores, finite ones, or a Missing."""
        if not isinstance(self.name, str):
            raise InputTypeError(f"name is {self.name!r:.40}; give a string")
        for name, kind in (*SECTIONS.items(), ("costs", Mapping)):
            if not isinstance(value := getattr(self, name), kind):
                raise InputTypeError(f"{name} is {value!r:.40}; give {kind.__name__}(...)")
        _quantities("cost", self.costs, Quantity | Missing)
        if not isinstance(self.scores, Missing):
            if isinstance(self.scores, str) or not isinstance(self.scores, Iterable):
                raise InputTypeError(f"scores are {self.scores!r:.40}; give a tuple of numbers, or a Missing")
            object.__setattr__(self, "scores", tuple(number("score", score) for score in self.scores))
            if not self.scores:
                raise InputError(f"{self.name} has no scores; give some, or a Missing with the reason")

    def get(self, name: str) -> Any:
        """Return a field by its dotted name, such as "recipe.data", or the costs or scores."""
        section, _, key = name.partition(".")
        return getattr(getattr(self, section), key) if key else getattr(self, section)


def _quantities(what: str, values: Mapping[str, Any], kind: Any) -> None:
    for name, value in values.items():
        if not isinstance(value, kind):
            raise InputTypeError(f"the {what} of {name} is {value!r:.40}; give a Quantity, such as Quantity(1, 's')")


@dataclass(frozen=True)
class Finding:
    """What becomes of a claim: granted, unknown or refused, in what words, and which fields would have to match."""

    verdict: str
    says: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class TransferRow:
    """A study as a row of the transfer matrix, with an interval or a Missing for each arm (FTIP 3.10.7)."""

    probe: str
    estimand: str
    controls: str
    coordinates: Mapping[str, str | Missing]
    boundary: str
    cells: Mapping[str, tuple[Number, Number] | Missing]

    def __post_init__(self) -> None:
        """Check that cells are of the arms, and intervals or Missing."""
        if strange := sorted(set(self.cells) - set(ARMS)):
            raise InputError(f"there is no arm {strange[0]!r}; the cells are of {', '.join(ARMS)}")
        for cell in self.cells.values():
            if not isinstance(cell, Missing):
                band(cell)

    @property
    def status(self) -> str:
        """Return "incompatible" if a cell is, else "open" if an arm has no interval, else "complete"."""
        absent = [cell for arm in ARMS if isinstance(cell := self.cells.get(arm, UNSTATED), Missing)]
        incompatible = any(cell.kind == "incompatible" for cell in absent)
        return "incompatible" if incompatible else "open" if absent else "complete"


def scalar_cost(costs: Costs, weights: Mapping[str, Quantity]) -> Number | Missing:
    """Return the sum of weight times amount (FTIP l. 61); a weight of 0 leaves a cost out, by declaration.

    Missing if a weighted cost is. Raises InputError for a recorded cost without a weight, or in another unit.
    """
    _quantities("weight", weights, Quantity)
    if undeclared := sorted(set(costs) - set(weights)):
        raise InputError(f"no weight for {', '.join(undeclared)}; declare one, 0 to leave a cost out")
    total: Number = 0
    for name, weight in weights.items():
        amount = costs.get(name, UNSTATED) if weight.value else Quantity(0, weight.unit)
        if isinstance(amount, Missing):
            return Missing(amount.kind, f"{name}: {amount.reason}")
        if amount.unit != weight.unit:
            raise InputError(f"{name} is in {amount.unit}, its weight is per {weight.unit}; convert one")
        total += weight.value * amount.value
    return total if total == 0 else number("the scalar cost", total)


def _of(*starts: str) -> tuple[str, ...]:
    return tuple(name for name in NAMES if name.startswith(starts))


_LAW = (*_of("architecture.inputs", "architecture.outputs", "architecture.decoder", "evaluation"), "scores")
_ALL = (*_LAW, *_of("arch", "opt", "sys"), *(n for n in _of("recipe") if n not in ("recipe.allowed", "recipe.cap")))
EFFECTS = {"architecture": "architecture.", "optimizer": "optimizer.", "systems": "systems.", "passes": "recipe.passes"}
NEED_NOT_MATCH = ("scores", "recipe.allowed", "capability")  # a claim may need them, not that they are equal
MATCHED: dict[str, tuple[str, ...]] = {
    "score difference": _LAW,
    "common recipe": _LAW + _of("optimizer", "recipe.data", "recipe.budget", "recipe.post_training"),
    "equal tuning": _LAW + _of("recipe.tuning", "recipe.trials", "recipe.selection", "recipe.stopping"),
    "restricted envelope": _LAW + _of("recipe.allowed", "recipe.cap"),
    "cost ratio at the target": _LAW,
    "measured costs": _of("systems", "evaluation.context"),
    "capability order": _LAW[:-1] + _of("capability"),
} | {
    f"effect of the {name}": tuple(n for n in _ALL if not n.startswith(start) or n in _LAW)
    for name, start in EFFECTS.items()
}
OWN = {  # what an effect is of: stated on both sides, since a missing field leaves it unknown, and not all equal
    f"effect of the {name}": tuple(n for n in _of(start) if n not in _LAW) for name, start in EFFECTS.items()
}
SAYS = {
    "score difference": "a difference of means under this law, of all that differs between the two",
    "common recipe": "performance under this recipe, not the best of either",
    "equal tuning": "performance at this tuning effort, not the best possible training",
    "restricted envelope": "bounds from below on suprema over the two declared classes at this cap",
    "measured costs": "costs of these two on this stack, coordinate by coordinate",
}
NEVER = {
    "best attainable": "scores of finitely many runs bound a supremum from below only",
    "ceiling": "a ceiling is about runs, tasks and budgets that no record holds",
    "other tasks": "evidence for one task, law and scale orders no other; a transfer needs its own pair",
    "other budgets": "orders may cross; one pair is one point",
    "equal potential": "no detected difference is a fact about this study, not equality",
}


def compare(
    a: ModelInstance, b: ModelInstance, weights: Mapping[str, Quantity] | None = None, target: Number | None = None
) -> dict[str, Finding]:
    """Return for every claim about a pair whether the records permit it, in what words, and what would have to match.

    `weights` declares the scalar cost and `target` the score at which costs are compared; without them the claim about
    costs at a target is unknown. Raises InputError or InputTypeError for weights or a target of another kind.
    """
    for each in (a, b):
        if not isinstance(each, ModelInstance):
            raise InputTypeError(f"a record is a {type(each).__name__}; give a ModelInstance, or decode its JSON")
    if target is not None:
        number("target", target)
    found = {}
    for claim, names in MATCHED.items():
        own = OWN.get(claim, ())
        pairs = {name: (a.get(name), b.get(name)) for name in (*names, *own)}
        if own:  # a cost vector is a field, too: one amount at least
            priced = [any(isinstance(each, Quantity) for each in record.costs.values()) for record in (a, b)]
            pairs["costs"] = (priced[0] or UNSTATED, priced[1] or UNSTATED)
        absent = tuple(name for name, pair in pairs.items() if any(isinstance(each, Missing) for each in pair))
        free = (*absent, *own, "costs", *(name for name in names if name.startswith(NEED_NOT_MATCH)))
        if differ := tuple(name for name, (x, y) in pairs.items() if name not in free and x != y):
            found[claim] = Finding("refused", f"they differ in {', '.join(differ)}", differ + absent)
        elif absent:
            reasons = {each.reason: None for name in absent for each in pairs[name] if isinstance(each, Missing)}
            found[claim] = Finding("unknown", f"{', '.join(absent)}: {'; '.join(reasons)}", absent)
        else:
            found[claim] = _beyond(claim, a, b, weights, target)
    return found | {claim: Finding("refused", reason) for claim, reason in NEVER.items()}


def _beyond(claim: str, a: ModelInstance, b: ModelInstance, weights: Any, target: Number | None) -> Finding:
    """Judge what a claim needs beyond fields that are stated and match."""
    if claim == "measured costs":
        if number("systems.repetitions", a.systems.repetitions) < 2 or a.systems.aggregation in ("fastest", "minimum"):
            say = "one run, or the fastest of some, defines no cost; repeat, and report mean and spread"
            return Finding("refused", say, ("systems.repetitions", "systems.aggregation"))
        both = {name: (each, b.costs.get(name, UNSTATED)) for name, each in sorted(a.costs.items())}
        stated = [name for name, pair in both.items() if not any(isinstance(each, Missing) for each in pair)]
        if not stated:
            return Finding("unknown", "there is no cost that both sides state", ("costs",))
        return Finding("granted", f"{SAYS[claim]}: {', '.join(stated)}")
    elif claim == "cost ratio at the target":
        return _ratio(a, b, weights, target)
    elif claim == "capability order":
        first, second = (tuple(vars(each.capability).values()) for each in (a, b))
        ahead = a.name if dominates(first, second) else b.name if dominates(second, first) else None
        return Finding("granted", f"{ahead} dominates") if ahead else Finding("refused", "neither dominates the other")
    elif claim in OWN:
        if all(a.get(name) == b.get(name) for name in OWN[claim]):
            return Finding("refused", "nothing that could have this effect differs")
        return Finding("granted", "the difference belongs to what differs here, under these fields and this recipe")
    return Finding("granted", SAYS[claim])


def _ratio(a: ModelInstance, b: ModelInstance, weights: Any, target: Number | None) -> Finding:
    if weights is None or target is None:
        return Finding("unknown", "declare the weights of the scalar cost and a target")
    if below := [each.name for each in (a, b) if mean(each.scores) < target]:  # type: ignore[arg-type, type-var]
        return Finding("refused", f"{' and '.join(below)} does not reach the target; its cost there is unmeasured")
    ratio = iso_quality_ratio(scalar_cost(a.costs, weights), scalar_cost(b.costs, weights))
    if isinstance(ratio, Missing):
        return Finding("unknown", ratio.reason, ("costs",))
    return Finding("granted", f"measured witnesses cost {ratio} : 1 under these weights; their infima may be lower")


def encode(instance: ModelInstance) -> dict[str, Any]:
    """Return the record as JSON values, each Missing with its reason; `decode` inverts it, but Fractions are floats."""
    if not isinstance(instance, ModelInstance):
        raise InputTypeError(f"instance is a {type(instance).__name__}; give a ModelInstance")
    told: dict[str, Any] = json.loads(json.dumps(asdict(instance), default=float))
    return told


def decode(data: Any) -> ModelInstance:
    """Return the record that JSON values hold; a field left out is unstated.

    Raises InputError for a field that no record has, a value of another kind, or no name.
    """
    try:
        made = {name: make(**{k: _value(v) for k, v in data.get(name, {}).items()}) for name, make in SECTIONS.items()}
        made["costs"] = {name: _value(each) for name, each in data.get("costs", {}).items()}
        return ModelInstance(**{**data, **made, "scores": _value(data.get("scores", UNSTATED))})
    except (TypeError, AttributeError) as error:
        raise InputError(f"this is no record: {error}; schema() tells what one holds") from error


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Missing(**value) if "kind" in value else Quantity(**value)
    return tuple(value) if isinstance(value, list) else value


def schema() -> dict[str, Any]:
    """Return the JSON schema of what `encode` returns, made from the sections."""
    reason = {"type": "string", "pattern": r"\S"}
    absent = _object({"kind": {"enum": list(KINDS)}, "reason": reason}, ["kind", "reason"])
    quantity = _object({"value": {"type": "number", "minimum": 0}, "unit": {"type": "string"}}, ["value", "unit"])
    stated = {"anyOf": [{"type": ["string", "number"]}, absent]}
    parts = {name: _object({each.name: stated for each in fields(make)}) for name, make in SECTIONS.items()}
    costs = {"type": "object", "additionalProperties": {"anyOf": [quantity, absent]}}
    scores = {"anyOf": [{"type": "array", "items": {"type": "number"}, "minItems": 1}, absent]}
    return _object({"name": {"type": "string"}, **parts, "costs": costs, "scores": scores}, ["name"])


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or [], "additionalProperties": False}


def from_study(record: Mapping[str, Any], scores: tuple[Number, ...] | Missing = UNSTATED) -> ModelInstance:
    """Return a record of one of this book's studies as an instance; what the study does not record stays Missing.

    `scores` are the values that a chapter reads from it, since a study has many metrics. Raises InputError if the
    record lacks a field.
    """
    try:
        told = {name: json.dumps(part, sort_keys=True) for name, part in record["config"].items()}
        software = " ".join(f"{name} {version}" for name, version in sorted(record["versions"].items()))
        return ModelInstance(
            f"{record['study']}/{record['cell']}/{record['seed']}",
            ArchitectureRecord(identity=record["code_sha256"]),
            systems=SystemsRecord(hardware=record["machine"]["cpu"], software=software, repetitions=1),
            recipe=RecipeRecord(data=told["cell"], budget=told["settings"]),
            evaluation=EvaluationRecord(task=record["study"], seed=record["seed"]),
            costs={"wall time": Quantity(record["minutes"], "min")},
            scores=scores,
        )
    except (KeyError, AttributeError, TypeError) as error:
        told_as = f"lacks {error}" if isinstance(error, KeyError) else f"is of another kind: {error}"
        raise InputError(f"the record {told_as}; give one of results/*/records") from error

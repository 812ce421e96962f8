"""Optimizers of a whole model from one configuration: what steps which parameter, at which rate, and when.

The two families of OE Sec. 2.1 meet here: Muon on matrices, AdamW on the rest, the moment-free write on hashed tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from torch import Tensor, nn

from gllm_lib.checks import InputError, InputTypeError, choose, count, flag, put, real
from gllm_lib.optim.muon import Muon, MuonOptions
from gllm_lib.optim.prepolar import homotopy, neumann_whiten
from gllm_lib.optim.tables import MOST_SEED, Rounding, TableWrite


@dataclass(frozen=True, kw_only=True)
class Group:
    """Parameters whose name a regular expression finds, and how they are stepped.

    - name: what `Package.changed` calls the group, another one in each
    - pattern: the regular expression, found anywhere in the parameter's name; "" fits all
    - method: "muon", for matrices, and "table", for hashed tables, leave others to later groups; "adamw" takes all
    - rate: of a step, before the schedule
    - decay: of the weights, before the schedule; tables and, with AdamW, vectors have none
    - betas: the memories of AdamW's two moments; epsilon: what it adds to the root of the second
    - whiten: the gradients of matrices before AdamW's moments, or the mean gradient of a table before its norm
    - storage: with "bfloat16", AdamW rounds gradient, moments and parameter to it and keeps the moments in it
    """

    name: str
    pattern: str
    method: str
    rate: float
    decay: float = 0.0
    betas: tuple[float, float] = (0.8, 0.95)
    epsilon: float = 1e-10
    whiten: bool = False
    storage: str = "float32"

    def __post_init__(self) -> None:
        for name in ("name", "pattern"):
            if not isinstance(getattr(self, name), str):
                raise InputTypeError(f"{name} of a group is {getattr(self, name)!r:.40}; give a string")
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise InputError(f"pattern {self.pattern!r} is no regular expression: {error}") from error
        choose("method", self.method, ("muon", "adamw", "table"))
        choose("storage", self.storage, ("float32", "bfloat16"))
        put(self, real, "rate decay", least=0)
        put(self, real, "epsilon", above=0)
        object.__setattr__(self, "betas", two_betas(self.betas))
        if (flag("whiten", self.whiten) and self.method == "muon") or (
            self.storage != "float32" and self.method != "adamw"
        ):
            raise InputError(f"group {self.name!r}: {self.method} has no such whitening or storage; leave it out")


def two_betas(betas: Any) -> tuple[float, ...]:
    """Return the two memories of AdamW, numbers from 0 to below 1; raises InputError or InputTypeError for others."""
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise InputTypeError(f"betas are {betas!r:.40}; give two numbers, such as (0.8, 0.95)")
    return tuple(real(f"betas[{i}]", beta, least=0, below=1) for i, beta in enumerate(betas))


GROUPS = (  # the trainer of OE has rates of its own: matrices 0.04, embeddings 0.6 and head 0.004 by sqrt(768 / D)
    Group(name="tables", pattern=r"^tables\.", method="table", rate=0.02),
    Group(name="embedding", pattern=r"embedding|position|wte|wpe", method="adamw", rate=6e-3),
    Group(name="head", pattern=r"(^|\.)(lm_)?head\.", method="adamw", rate=6e-3),
    Group(name="query_scale", pattern=r"query_log", method="adamw", rate=6e-3),
    Group(name="grades", pattern=r"^grading\.", method="adamw", rate=6e-3),
    Group(name="matrices", pattern="", method="muon", rate=0.02, decay=0.2),
    Group(name="scalars", pattern="", method="adamw", rate=6e-3),
)


@dataclass(frozen=True, kw_only=True)
class Package(MuonOptions):
    """All optimizer choices of a run, plain values: `Package(**json)` reads `dataclasses.asdict(package)` back.

    `PACKAGE` is the one that OE proposes, `NATIVE` what its trainer has without it, `ADAMW` AdamW on all but hashed
    tables. Progress p is min(max(step - hold, 0) / (steps - hold), 1). What OE leaves open has the default named first.

    - nesterov to scale_decay: the Muon step, see `MuonOptions`
    - groups: the first that takes a parameter has it
    - schedule: of all rates, from 1 to `floor`: "cosine" in p, or "warmdown", constant and then linear
    - hold: the first steps, in which p stays 0; warmup: the first steps, in which all rates rise linearly, 0 for none
    - warmdown: the last share of p, in which rates fall under "warmdown" and momentum goes to `cooldown`
    - floor: what is left of the rates at the end, a share
    - momentum: of Muon, reached in `momentum_ramp` steps from `momentum_start`; at once if they are 0
    - cooldown: where the momentum goes, or None to keep it; the lower of ramp and cooldown counts
    - decay_schedule: of Muon's decay: "constant", "linear" 1 - p or "cosine" (1 + cos pi p) / 2
    - equilibrate_ramp, whiten_ramp: steps t to full strength min(t / ramp, 1)^2
    - first: the t of the first step in these ramps, 0 or 1
    - whiten_centre: take off the mean over "all" rows, over "visited" ones, whose gradient is not 0, or "none"
    - table_rounding: "nearest" or "stochastic", from `seed`
    - seed: of the rounding of tables
    """

    groups: tuple[Group, ...] = GROUPS
    schedule: str = "cosine"
    hold: int = 0
    warmup: int = 0
    warmdown: float = 0.5
    floor: float = 0.0
    momentum: float = 0.95
    momentum_start: float = 0.85
    momentum_ramp: int = 0
    cooldown: float | None = None
    decay_schedule: str = "constant"
    equilibrate_ramp: int = 25
    whiten_ramp: int = 80
    first: int = 0
    whiten_centre: str = "all"
    table_rounding: Rounding = "nearest"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            groups = tuple(each if isinstance(each, Group) else Group(**each) for each in self.groups)
        except TypeError as error:
            raise InputTypeError(f"groups are unreadable: {error}; give Group(...) each, or its fields") from error
        object.__setattr__(self, "groups", groups)
        if not groups or len({each.name for each in groups}) < len(groups):
            raise InputError("groups need names, each another; give at least one Group(...)")
        choose("schedule", self.schedule, ("cosine", "warmdown"))
        choose("decay_schedule", self.decay_schedule, ("constant", "linear", "cosine"))
        choose("whiten_centre", self.whiten_centre, ("all", "visited", "none"))
        choose("table_rounding", self.table_rounding, get_args(Rounding))
        put(self, count, "hold warmup momentum_ramp equilibrate_ramp whiten_ramp", least=0)
        put(self, count, "seed", least=0, most=MOST_SEED)
        put(self, count, "first", least=0, most=1)
        put(self, real, "warmdown floor", least=0, most=1)
        put(self, real, "momentum momentum_start" + " cooldown" * (self.cooldown is not None), least=0, below=1)

    def changed(self, group: str, **changes: Any) -> Package:
        """Return the package with fields of one group changed; raises InputError for a name that no group has."""
        choose("group", group, [each.name for each in self.groups])
        changed = tuple(replace(each, **changes) if each.name == group else each for each in self.groups)
        return replace(self, groups=changed)

    def progress(self, step: int, steps: int) -> float:
        """Return p at a step of a run of `steps`."""
        return min(max(step - self.hold, 0) / max(steps - self.hold, 1), 1.0)

    def rate_factor(self, step: int, steps: int) -> float:
        """Return what multiplies every rate at a step."""
        p, rise = self.progress(step, steps), min((step + 1) / max(self.warmup, 1), 1.0)
        fall = (1 + math.cos(math.pi * p)) / 2 if self.schedule == "cosine" else 1 - self._down(p)
        return rise * (self.floor + (1 - self.floor) * fall)

    def momentum_at(self, step: int, steps: int) -> float:
        """Return Muon's momentum at a step."""
        up = min(step / self.momentum_ramp, 1.0) if self.momentum_ramp else 1.0
        down = self._down(self.progress(step, steps))
        end = self.momentum if self.cooldown is None else self.cooldown
        return min(
            (1 - up) * self.momentum_start + up * self.momentum if up < 1 else self.momentum,
            (1 - down) * self.momentum + down * end,
        )

    def decay_factor(self, step: int, steps: int) -> float:
        """Return what multiplies Muon's decay at a step."""
        p = self.progress(step, steps)
        return {"constant": 1.0, "linear": 1 - p, "cosine": (1 + math.cos(math.pi * p)) / 2}[self.decay_schedule]

    def _down(self, p: float) -> float:
        return max(p - (1 - self.warmdown), 0.0) / self.warmdown if self.warmdown else 0.0


_PLAIN: dict[str, Any] = {"method": "adamw", "rate": 6e-4, "betas": (0.9, 0.95), "epsilon": 1e-8}
# AdamW on all but hashed tables: what `training.Recipe` does without a package (GLLM Sec. 5.3), and the table write.
ADAMW = Package(groups=(GROUPS[0], *(replace(each, **_PLAIN) for each in GROUPS[1:])), floor=1 / 60)
for _name in ("embedding", "head", "matrices"):
    ADAMW = ADAMW.changed(_name, decay=0.1)
# What OE starts from: the MuonAdamW of its trainer, Muon on matrices and AdamW on the rest.
NATIVE = Package(
    polar="polar-express", safety=1.02, epsilon=1e-6, second_moment="longer", cautious=True, scale_decay=True,
    schedule="warmdown", momentum_ramp=300, decay_schedule="linear",
).changed("embedding", storage="bfloat16")  # fmt: skip
# What OE proposes (Sec. 2.1, Family B, tier 1): NATIVE, equilibrated, embedding and head whitened, and a cooldown.
PACKAGE = replace(
    NATIVE.changed("embedding", storage="float32", whiten=True).changed("head", whiten=True),
    polar_dtype="float32", equilibrate=2, cooldown=0.85, decay_schedule="cosine",
)  # fmt: skip


class AdamW(torch.optim.AdamW):
    """torch's AdamW; a group may set `strength` and `centre` of `neumann_whiten`, for its matrices, and `storage`."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step with the gradients whitened and the state rounded as the groups say; gradients are left as they were."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        held = [(each, each.grad, group) for group in self.param_groups for each in group["params"]]
        for each, grad, group in held:
            if grad is not None:
                each.grad = _prepared(grad, group)
                self._store(each, each.dtype)
        super().step()
        for each, grad, group in held:
            each.grad = grad
            if grad is not None and group.get("storage") == "bfloat16":
                each.copy_(each.bfloat16())
                self._store(each, torch.bfloat16)
        return loss

    def _store(self, parameter: Tensor, dtype: torch.dtype) -> None:
        for name, moment in self.state[parameter].items():
            if name != "step":
                self.state[parameter][name] = moment.to(dtype)


def _prepared(grad: Tensor, group: dict[str, Any]) -> Tensor:
    grad = grad.bfloat16().to(grad.dtype) if group.get("storage") == "bfloat16" else grad
    if group.get("strength") is None or grad.ndim != 2:
        return grad
    visited = (grad != 0).any(dim=1) if group["centre"] == "visited" else None
    return neumann_whiten(grad, group["strength"], group["centre"] != "none", visited=visited)


class Optimizers:
    """Several optimizers as one; `taken` counts the steps and alone decides where the schedules stand."""

    def __init__(self, parts: dict[str, torch.optim.Optimizer], package: Package, steps: int) -> None:
        self.parts, self.package, self.steps, self.taken = parts, package, steps, 0

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all parts."""
        return [group for part in self.parts.values() for group in part.param_groups]

    @property
    def state(self) -> dict[Tensor, dict[str, Any]]:
        """The state of every parameter, shared with the part that steps it."""
        every = self.parts.values()
        return {each: part.state[each] for part in every for group in part.param_groups for each in group["params"]}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, and the visits of tables."""
        for part in self.parts.values():
            part.zero_grad(set_to_none)

    def step(self) -> None:
        """Put rates, momentum, decay and ramps where step `taken` has them, and step all parts, tables first."""
        package, t = self.package, self.taken
        for name, part in self.parts.items():
            own = next(each for each in package.groups if each.name == name)
            for group in part.param_groups:
                group["lr"] = own.rate * package.rate_factor(t, self.steps)
                if own.method == "muon":
                    group["momentum"] = package.momentum_at(t, self.steps)
                    group["weight_decay"] = own.decay * package.decay_factor(t, self.steps)
                    group["alpha"] = homotopy(t + package.first, package.equilibrate_ramp)
                elif own.method == "adamw" and own.whiten:
                    group["strength"] = homotopy(t + package.first, package.whiten_ramp)
        for part in self.parts.values():
            part.step()
        self.taken += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all parts and the number of steps taken."""
        return {"taken": self.taken, "parts": {name: part.state_dict() for name, part in self.parts.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what `state_dict` returned, with its betas, decay and storage; InputError if it does not fit."""
        here, there = (
            {name: [len(group["params"]) for group in part["param_groups"]] for name, part in parts.items()}
            for parts in (self.state_dict()["parts"], state.get("parts", {}))
        )
        if here != there:
            raise InputError(f"the state is of {there}, these optimizers of {here}; give one of the same groups")
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
        self.taken = state["taken"]


def assigned(model: nn.Module, groups: tuple[Group, ...]) -> dict[str, list[str]]:
    """Return the names of what `model` trains by the group that takes each; InputError if none takes one."""
    tables, names = _tables(model), {each.name: [] for each in groups}  # type: dict[Tensor, Tensor], dict[str, list[str]]
    for name, each in model.named_parameters():
        if each.requires_grad:
            fits = {"muon": each.ndim == 2 and each not in tables, "table": each in tables, "adamw": True}
            found = [group.name for group in groups if fits[group.method] and re.search(group.pattern, name)]
            if not found:
                raise InputError(f"no group takes {name}, {tuple(each.shape)}; end with one of pattern '' and adamw")
            names[found[0]].append(name)
    if not any(names.values()):
        raise InputError("the model trains no parameter; set requires_grad on some")
    return names


def optimizers(model: nn.Module, package: Package, steps: int) -> Optimizers:
    """Return the optimizers of `package` for what `model` trains in a run of `steps`.

    A module with `pairs()` of tables and their counts, as `gllm_lib.models` has, offers them to "table" groups. Raises
    InputTypeError for another kind of model or package, InputError for a parameter that no group takes.
    """
    for name, value, kind in (("model", model, nn.Module), ("package", package, Package)):
        if not isinstance(value, kind):
            raise InputTypeError(f"{name} is a {type(value).__name__}; give a {kind.__name__}")
    parameters, tables, parts = dict(model.named_parameters()), _tables(model), {}
    names = assigned(model, package.groups)
    for group in sorted(package.groups, key=lambda group: group.method != "table"):  # it checks before it writes
        if params := [parameters[name] for name in names[group.name]]:
            parts[group.name] = _part(group, package, params, tables)
    return Optimizers(parts, package, count("steps", steps))


def _part(group: Group, package: Package, params: list[Any], tables: dict[Tensor, Tensor]) -> torch.optim.Optimizer:
    if group.method == "table":
        neumann = package.whiten_ramp if group.whiten else None
        pairs = [(each, tables[each]) for each in params]
        options: dict[str, Any] = {"rounding": package.table_rounding, "seed": package.seed, "first": package.first}
        return TableWrite(pairs, group.rate, neumann=neumann, **options)
    if group.method == "muon":
        return Muon(params, package, lr=group.rate, weight_decay=group.decay, momentum=package.momentum)
    matrices = [{"params": [each for each in params if each.ndim > 1], "weight_decay": group.decay}]
    others = [{"params": [each for each in params if each.ndim < 2], "weight_decay": 0.0}]
    extra = {"storage": group.storage, "strength": None, "centre": package.whiten_centre}
    chosen = [each | extra for each in matrices + others if each["params"]]
    return AdamW(chosen, lr=group.rate, betas=group.betas, eps=group.epsilon, fused=True)


def _tables(model: nn.Module) -> dict[Tensor, Tensor]:
    """Return each hashed table of a model with its counts."""
    held = (each.pairs() for each in model.modules() if callable(getattr(each, "pairs", None)))
    return {table: counts for pairs in held for table, counts in pairs}

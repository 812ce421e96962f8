"""What a training run is made of: its recipe, with the optimizer and the rate of GLLM Sec. 5.3 as defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

import torch
from torch import nn

from gllm_lib.checks import InputError, InputTypeError, count, put, real
from gllm_lib.optim.groups import Optimizers, Package, optimizers, two_betas
from gllm_lib.training.loss import Penalties

_OF_ADAMW = ("peak", "floor", "warmup", "betas", "decay", "epsilon")  # what a package says for itself


@dataclass(frozen=True)
class Recipe:
    """All that fixes a run beside model and data; raises InputError or InputTypeError for a value it cannot train with.

    A step draws `batch` windows, over all processes, and sums their gradient in `accumulate` equal micro-batches. The
    global gradient norm is clipped at `gradient_clip`, whatever the grades; 0 leaves the gradient alone. Checkpoints
    are written every `save_every` steps and at the end; 0 is at the end only. A `package` replaces AdamW and brings its
    own rates, betas and decay; beside it, the gradient of hashed tables is in no norm.
    """

    steps: int
    batch: int
    accumulate: int = 1
    peak: float = 6e-4
    floor: float = 1e-5
    warmup: int = 0
    betas: tuple[float, float] = (0.9, 0.95)
    decay: float = 0.1
    epsilon: float = 1e-8
    gradient_clip: float = 1.0
    seed: int = 0
    save_every: int = 0
    penalties: Penalties = field(default_factory=Penalties)
    package: Package | None = None

    def __post_init__(self) -> None:
        put(self, count, "steps batch accumulate", least=1, most=2**63 - 1)
        put(self, count, "warmup seed save_every", least=0, most=2**63 - 1)
        put(self, real, "peak floor decay gradient_clip", least=0)
        put(self, real, "epsilon", above=0)
        if not self.peak >= self.floor:
            raise InputError(f"the rate falls from peak {self.peak:g} to floor {self.floor:g}; give peak >= floor")
        if self.warmup >= self.steps:
            raise InputError(f"warmup is {self.warmup} of {self.steps} steps; leave at least one step to the cosine")
        if self.batch % self.accumulate:
            raise InputError(f"batch {self.batch} does not split into {self.accumulate} equal micro-batches")
        if not isinstance(self.penalties, Penalties):
            raise InputTypeError(f"penalties is a {type(self.penalties).__name__}; give Penalties(...)")
        object.__setattr__(self, "betas", two_betas(self.betas))
        if self.package is not None:
            if not isinstance(self.package, Package):
                raise InputTypeError(f"package is a {type(self.package).__name__}; give a Package, or None")
            own = {each.name: each.default for each in fields(self)}
            told = [name for name in _OF_ADAMW if getattr(self, name) != own[name]]
            if told:
                raise InputError(f"{told[0]} is given beside a package, which has its own; leave {told[0]} out")


def cosine(step: int, steps: int, peak: float, floor: float, warmup: int = 0) -> float:
    """Rate of step 0 <= step <= steps: after `warmup` linear steps, half a cosine from peak to floor (GLLM Sec. 5.3).

    Raises InputError for a step outside the schedule, or a warm-up that fills it.
    """
    if not 0 <= step <= steps:
        raise InputError(f"step {step} of {steps}; give a step from 0 to {steps}")
    if not 0 <= warmup < max(steps, 1):
        raise InputError(f"warmup is {warmup} of {steps} steps; leave at least one step to the cosine")
    if step < warmup:
        return peak * (step + 1) / warmup
    share = (step - warmup) / max(steps - warmup, 1)
    return floor + (peak - floor) * (1 + math.cos(math.pi * share)) / 2


def adamw(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW over what `model` trains, decaying its matrices; norms, biases, query scales and `grading.*` do not decay.

    Decay would pull grades to the uniform model and level projections off the orthogonal matrices, which Eq. 20 already
    governs. The fused kernel runs on CPU as well, in a fraction of the time, and is deterministic on one thread.
    """
    named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    if not named:
        raise InputError("the model trains no parameter; set requires_grad on some")
    free = ("grading.", "query_log")
    decayed = [each for name, each in named if each.ndim >= 2 and not any(part in name for part in free)]
    kept = [each for name, each in named if each.ndim < 2 or any(part in name for part in free)]
    groups = [{"params": decayed, "weight_decay": recipe.decay}, {"params": kept, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=recipe.peak,
        betas=recipe.betas,
        eps=recipe.epsilon,
        fused=True,
    )


def optimizer_of(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW | Optimizers:
    """Return what steps `model` under a recipe: its package, or AdamW."""
    return adamw(model, recipe) if recipe.package is None else optimizers(model, recipe.package, recipe.steps)

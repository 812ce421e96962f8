"""Muon: momentum, the polar step, and what may stand before and after it, batched over matrices of one shape.

Shapes: S matrices of one shape, m rows, n columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gllm_lib.checks import InputError, InputTypeError, choose, count, flag, put, real
from gllm_lib.optim.polar import Schedule, polar, polar_schedule
from gllm_lib.optim.prepolar import HOMOTOPIES, equilibrate

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
SECOND_MOMENTS = (None, "longer", "rows", "columns")
STACKED = 2**18  # numbers in a stack: small matrices gain from company, large ones only crowd the cache
SCALES = ("original", "match_rms_adamw", "none")


@dataclass(frozen=True, kw_only=True)
class MuonOptions:
    """What a Muon step does, beside rate, momentum and decay; the defaults are those of `torch.optim.Muon`.

    - nesterov: the polar step sees (1 - b) G + b M instead of M, for gradient G, momentum M and its memory b
    - average: M <- b M + (1 - b) G, else M <- b M + G and G + b M, as torch's documentation prints: the same direction
      while b stays the same
    - polar: a name of POLAR_SCHEDULES, or coefficients as `polar_schedule` takes them
    - polar_dtype: of the products in the polar step, "float32", "bfloat16" or "float64"
    - safety: what the Frobenius norm is multiplied by before the polar step; epsilon: the least such norm (see `polar`)
    - equilibrate: passes over rows and columns before the polar step, 0 for none
    - homotopy: the way from alpha = 0 to 1 in these passes, "exponent" or "blend" (see `equilibrate`; open in OE)
    - equilibrate_on: "update", what the polar step sees, or "momentum", M before G joins it (open in OE)
    - second_moment: None, or after the polar step divide by the root of a running mean square for each of the "rows",
      of the "columns", or of the indices of the "longer" side, rows if square, and keep the norm (NorMuon)
    - beta2: the memory of that mean square
    - scale: of the rate: "original" sqrt(max(1, m/n)), "match_rms_adamw" 0.2 sqrt(max(m, n)), or "none"
    - cautious: decay only entries whose sign the step shares
    - scale_decay: decay at the scaled rate, else at the rate
    """

    nesterov: bool = True
    average: bool = True
    polar: str | Schedule = "muon"
    polar_dtype: str = "bfloat16"
    safety: float = 1.0
    epsilon: float = 1e-7
    equilibrate: int = 0
    homotopy: str = "exponent"
    equilibrate_on: str = "update"
    second_moment: str | None = None
    beta2: float = 0.95
    scale: str = "original"
    cautious: bool = False
    scale_decay: bool = False

    def __post_init__(self) -> None:
        for name in ("nesterov", "average", "cautious", "scale_decay"):
            flag(name, getattr(self, name))
        schedule = polar_schedule(self.polar, "polar")
        object.__setattr__(self, "polar", self.polar if isinstance(self.polar, str) else schedule)
        put(self, count, "equilibrate", least=0)
        put(self, real, "safety", least=1)
        put(self, real, "epsilon", least=1e-12)
        put(self, real, "beta2", least=0, below=1)
        choose("polar_dtype", self.polar_dtype, DTYPES)
        choose("homotopy", self.homotopy, HOMOTOPIES)
        choose("equilibrate_on", self.equilibrate_on, ("update", "momentum"))
        choose("second_moment", self.second_moment, SECOND_MOMENTS)
        choose("scale", self.scale, SCALES)


class Muon(torch.optim.Optimizer):
    """Muon on matrices; a group's `lr`, `weight_decay`, `momentum` and `alpha` (of `equilibrate`) may be scheduled.

    Raises InputTypeError for options or gradients of another kind, InputError for a parameter that is no matrix.
    """

    def __init__(
        self,
        params: Any,
        options: MuonOptions | None = None,
        *,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        alpha: float = 1.0,
    ) -> None:
        self.options = MuonOptions() if options is None else options
        if not isinstance(self.options, MuonOptions):
            raise InputTypeError(f"options are a {type(options).__name__}; give MuonOptions(...)")
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "alpha": alpha})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of matrices, with numbers of its own or the optimizer's."""
        given = {**self.defaults, **param_group}
        real("lr", given["lr"], least=0)
        real("weight_decay", given["weight_decay"], least=0)
        real("momentum", given["momentum"], least=0, below=1)
        real("alpha", given["alpha"], least=0, most=1)
        super().add_param_group(param_group)
        bad = [tuple(each.shape) for each in self.param_groups[-1]["params"] if each.ndim != 2 or not each.numel()]
        if bad:
            del self.param_groups[-1]
            raise InputError(f"a parameter has shape {bad[0]}; Muon steps matrices with entries: give others to AdamW")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step every parameter that has a gradient; return what `closure` returns."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for group in self.param_groups:
            for same in _stacks(group["params"]):
                self._step(same, group)
        return loss

    def _step(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """Step matrices of one shape and type, (S, m, n) where they are stacked."""
        options, momentum = self.options, group["momentum"]
        grads = [_gradient(each) for each in params]
        held = [self.state[each] for each in params]
        for state, grad in zip(held, grads, strict=True):
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(grad)
        buffers = [state["momentum"] for state in held]
        for buffer, grad in zip(buffers, grads, strict=True):
            _ = buffer.lerp_(grad, 1 - momentum) if options.average else buffer.mul_(momentum).add_(grad)
        passes, parts = options.equilibrate if group["alpha"] else 0, buffers
        if passes and options.equilibrate_on == "momentum":
            parts, passes = equilibrate(_stacked(buffers), group["alpha"], passes, by=options.homotopy).unbind(), 0
        if options.nesterov:
            parts = [
                grad.lerp(part, momentum) if options.average else grad.add(part, alpha=momentum)
                for grad, part in zip(grads, parts, strict=True)
            ]
        update = _stacked(parts)
        if passes:
            update = equilibrate(update, group["alpha"], passes, by=options.homotopy)
        dtype = DTYPES[options.polar_dtype]
        update = polar(update.to(dtype), options.polar, safety=options.safety, epsilon=options.epsilon, dtype=dtype)
        if options.second_moment:
            update = _normalised(update, held, options)
        rate = group["lr"] * rate_scale(options.scale, *update.shape[1:])
        decay = (rate if options.scale_decay else group["lr"]) * group["weight_decay"]
        for each, own in zip(params, update.unbind(), strict=True):
            if decay:
                wide = torch.promote_types(each.dtype, torch.float32)  # bfloat16 has no number between 0.996 and 1
                each.mul_(1 - decay * (each * own >= 0).to(wide) if options.cautious else 1 - decay)
            each.add_(own, alpha=-rate)


def rate_scale(scale: str, rows: int, columns: int) -> float:
    """Return the factor of the rate for a matrix of this shape; see `MuonOptions`."""
    choose("scale", scale, SCALES)
    if scale == "original":
        return math.sqrt(max(1.0, rows / columns))
    return 0.2 * math.sqrt(max(rows, columns)) if scale == "match_rms_adamw" else 1.0


def _stacks(params: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield the parameters that have a gradient, those of one shape, type and device together, as far as it pays."""
    alike: dict[Any, list[Tensor]] = {}
    for each in params:
        if each.grad is not None:
            alike.setdefault((each.shape, each.dtype, each.grad.dtype, each.device), []).append(each)
    for same in alike.values():
        together = max(1, STACKED // same[0].numel())
        yield from (same[start : start + together] for start in range(0, len(same), together))


def _stacked(tensors: list[Tensor]) -> Float[Tensor, "S m n"]:
    return torch.stack(tensors) if len(tensors) > 1 else tensors[0][None]  # a stack of one needs no copy


def _gradient(parameter: Tensor) -> Tensor:
    grad = parameter.grad
    assert grad is not None
    if grad.is_sparse or not grad.is_floating_point():
        raise InputTypeError(f"a gradient is {grad.layout} {grad.dtype}; Muon steps dense floats")
    return grad


def _normalised(
    update: Float[Tensor, "S m n"], held: list[dict[str, Any]], options: MuonOptions
) -> Float[Tensor, "S m n"]:
    """Divide by the root of the running mean square of rows or columns, and put the Frobenius norms back (NorMuon)."""
    rows, columns = update.shape[1:]
    longer = options.second_moment == "longer"
    axis = -1 if options.second_moment == "rows" or (longer and rows >= columns) else -2
    wide = update.to(torch.promote_types(update.dtype, torch.float32))
    squares = wide.square().mean(dim=axis, keepdim=True)
    for state, square in zip(held, squares.unbind(), strict=True):
        before = state.get("second", torch.zeros_like(square)).to(square)  # a loaded state has the parameter's type
        state["second"] = before.lerp(square, 1 - options.beta2)
    scaled = update * torch.stack([state["second"] for state in held]).clamp(min=1e-10).rsqrt()
    norms = (torch.linalg.vector_norm(each, dim=(-2, -1), keepdim=True) for each in (update, scaled))
    before, after = norms
    return (scaled * (before / after.clamp(min=1e-10))).to(update.dtype)

"""Optimizers of factors that no rotation of their columns changes: U -> U Q, V -> V Q (FTIP Sec. 4.2).

`SharedAdam` and `ScaledGD` look at the matrices of a group together: give each pair of factors a group of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from gllm_lib.checks import InputError, real

ADAM = MappingProxyType({"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8})


class Equivariant(torch.optim.Optimizer):
    """A step theta <- theta - lr * direction, for rules that say what the directions of a group's matrices are.

    `options` replace the numbers in `uses`. Raises InputError for a parameter that is no matrix and a number unfit.
    """

    uses: Mapping[str, float] = MappingProxyType({"lr": 1e-3})

    def __init__(self, params: Any, **options: float) -> None:
        if strange := sorted(set(options) - set(self.uses)):
            raise InputError(f"{type(self).__name__} has no {strange[0]}; it has {', '.join(self.uses)}")
        super().__init__(params, {**self.uses, **options})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of matrices, with numbers of its own or the optimizer's."""
        for name in self.uses:
            least, below = 1e-300 if name == "epsilon" else 0, 1 if name.startswith("beta") else math.inf
            real(name, {**self.defaults, **param_group}[name], least=least, below=below)
        super().add_param_group(param_group)
        if bad := [tuple(each.shape) for each in self.param_groups[-1]["params"] if each.ndim != 2]:
            del self.param_groups[-1]
            raise InputError(f"a parameter has shape {bad[0]}; give matrices (rows, k), columns on the gauge axis")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step the matrices that have a gradient; return what `closure` returns."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for group in self.param_groups:
            params = [each for each in group["params"] if each.grad is not None]
            for each, direction in zip(params, self.directions(params, group) if params else [], strict=True):
                each.sub_(direction, alpha=group["lr"])
        return loss

    def directions(self, params: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Return one direction per matrix; here the gradients."""
        return [_grad(each) for each in params]

    def _moments(self, params: list[Tensor], group: dict[str, Any], squares: list[Tensor]) -> list[Tensor]:
        found = []  # m / (sqrt(v) + epsilon), both moments unbiased, for squares that enter v
        for each, square in zip(params, squares, strict=True):
            state, grad = self.state[each], _grad(each)
            t = state["step"] = state.get("step", 0) + 1
            first = state["first"] = state.get("first", torch.zeros_like(grad)).lerp(grad, 1 - group["beta1"])
            second = state["second"] = state.get("second", torch.zeros_like(square)).lerp(square, 1 - group["beta2"])
            root = (second / (1 - group["beta2"] ** t)).sqrt() + group["epsilon"]
            found.append(first / (1 - group["beta1"] ** t) / root)
        return found


class SharedAdam(Equivariant):
    """Adam with one second moment for a group: of the mean square of all its gradients' entries (FTIP 4.2.3)."""

    uses = ADAM

    def directions(self, params: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Return m / (sqrt(v) + epsilon) with a scalar v."""
        squares = [_grad(each).square().flatten() for each in params]
        return self._moments(params, group, [torch.cat(squares).mean()] * len(params))


class RowAdam(Equivariant):
    """Adam with one second moment for each row: of the mean square of the row's gradient."""

    uses = ADAM

    def directions(self, params: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Return m / (sqrt(v) + epsilon) with v of shape (rows, 1)."""
        return self._moments(params, group, [_grad(each).square().mean(1, keepdim=True) for each in params])


class Shampoo(Equivariant):
    """Shampoo with full accumulators: L^(-1/4) G R^(-1/4), from epsilon I on (FTIP l. 302)."""

    uses = MappingProxyType({"lr": 1e-3, "epsilon": 1e-6})

    def directions(self, params: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Return the gradients between inverse fourth roots of the sums of G G^T and of G^T G."""
        found = []
        for each in params:
            grad, state = _grad(each), self.state[each]
            for name, gram in (("left", grad @ grad.T), ("right", grad.T @ grad)):
                state[name] = state.get(name, group["epsilon"] * torch.eye(len(gram)).to(gram)) + gram
            found.append(_inverse_root(state["left"]) @ grad @ _inverse_root(state["right"]))
        return found


class ScaledGD(Equivariant):
    """Gradient descent of pairs (U, V) in the metric of the other factor: G_U (V^T V + epsilon I)^-1 and its mirror."""

    uses = MappingProxyType({"lr": 1e-3, "epsilon": 1e-8})

    def directions(self, params: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Return the two scaled gradients; raises InputError for a group that is no pair of factors."""
        if len(params) != 2 or params[0].shape[1] != params[1].shape[1]:
            raise InputError(f"a group steps {[tuple(p.shape) for p in params]}; give each pair (m, k), (n, k) its own")
        damp = group["epsilon"] * torch.eye(params[0].shape[1]).to(params[0])
        scaled = zip(params, reversed(params), strict=True)
        return [torch.linalg.solve(other.T @ other + damp, _grad(each).T).T for each, other in scaled]


def _grad(parameter: Tensor) -> Any:
    return parameter.grad  # of parameters that have one


def _inverse_root(gram: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(gram)
    return vectors * values.clamp(min=torch.finfo(gram.dtype).tiny).pow(-0.25) @ vectors.T

"""How far an optimizer is from not seeing the gauge: the commuting square measured, and Adam's first step exactly.

A defect compares a run with that of its gauge image, relative to the distance travelled: near 1 it is total.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gllm_lib.checks import InputError, count, generator, real
from gllm_lib.gauge.actions import GROUPS, act, moved, sample

Build = Callable[[list[Tensor]], torch.optim.Optimizer]
Loss = Callable[[Tensor], Tensor]
Shape = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Factors (steps + 1, m, k) and (steps + 1, n, k) of a run, and the optimizer's state of each at the end."""

    u: Tensor
    v: Tensor
    state: tuple[dict[str, Any], ...]


def trajectory(build: Build, loss: Loss, u: Tensor, v: Tensor, steps: int) -> Trajectory:
    """Return the run of `build([U, V])`, any torch optimizer, on loss(U V^T).

    Raises InputError for factors that do not fit or a run that leaves the finite numbers.
    """
    if u.ndim != 2 or v.ndim != 2 or u.shape[1] != v.shape[1]:
        raise InputError(f"factors are {tuple(u.shape)} and {tuple(v.shape)}; give (m, k) and (n, k)")
    pair = [torch.nn.Parameter(each.detach().clone()) for each in (u, v)]
    optimizer = build(pair)

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(pair[0] @ pair[1].T)
        value.backward()
        return value

    runs: tuple[list[Tensor], ...] = ([u.detach()], [v.detach()])
    for _ in range(count("steps", steps)):
        optimizer.step(closure)
        for run, parameter in zip(runs, pair, strict=True):
            run.append(parameter.detach().clone())
    if not all(run[-1].isfinite().all() for run in runs):
        raise InputError("the run leaves the finite numbers; lower the rate of the optimizer")
    return Trajectory(torch.stack(runs[0]), torch.stack(runs[1]), tuple(dict(optimizer.state[p]) for p in pair))


def defects(ours: Trajectory, image: Trajectory, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the defects of parameters and of products after each step, (steps,) each, of a run and its image by A."""

    def relative(mine: Tensor, theirs: Tensor) -> Tensor:
        way = (mine[1:] - mine[0]).flatten(1).norm(dim=1)
        if not (way > 0).all():
            raise InputError("the run stands still, so nothing can be compared; start where the loss has a gradient")
        return (theirs - mine)[1:].flatten(1).norm(dim=1) / way

    back = torch.cat((image.u @ torch.linalg.inv(a), image.v @ a.T), dim=1)
    return relative(torch.cat((ours.u, ours.v), dim=1), back), relative(ours.u @ ours.v.mT, image.u @ image.v.mT)


def state_defect(ours: Trajectory, image: Trajectory, q: Tensor) -> float:
    """Return the largest relative deviation of the image's state from `moved` state, q orthogonal (FTIP l. 274)."""
    worst = 0.0
    for mine, theirs, factor in zip(ours.state, image.state, (ours.u, ours.v), strict=True):
        for name, value in mine.items():
            if isinstance(value, Tensor) and value.is_floating_point() and value.ndim and value.any():
                expected = moved(value, factor.shape[1], q)
                worst = max(worst, float((theirs[name] - expected).norm() / expected.norm()))
    return worst


def survey(
    build: Build, rng: np.random.Generator, steps: Sequence[int] = (1, 20), shape: Shape = (5, 4, 3), instances: int = 3
) -> dict[str, tuple[float, ...]]:
    """Return the largest defects of products after each of `steps`, by group of GROUPS, and of a "twin".

    The twin starts at ((U Q) Q^T, (V Q) Q^T): the same basis, rounded as an image is. The losses are `instances` random
    weighted least squares in W, shape (m, n, k), float64.
    """
    (m, n, k), wanted = shape, [count("step", each) - 1 for each in steps]
    found: dict[str, list[np.ndarray]] = {name: [] for name in (*GROUPS, "twin")}
    for _ in range(count("instances", instances)):
        draw = (generator(rng).standard_normal(size) for size in ((m, k), (n, k), (m, n), (m, n)))
        u, v, target, weight = map(torch.from_numpy, draw)

        def loss(w: Tensor, target: Tensor = target, weight: Tensor = weight) -> Tensor:
            return ((w - target).square() * weight.exp()).mean() / 2

        ours = trajectory(build, loss, u, v, max(steps))
        for name in found:
            a = sample(name if name != "twin" else "rotations", k, rng)
            start = act(u, v, a) if name != "twin" else (u @ a @ a.T, v @ a @ a.T)
            image = trajectory(build, loss, *start, max(steps))
            found[name].append(defects(ours, image, a)[1][wanted].numpy())
    return {name: tuple(max(float(x), 2.0**-52) for x in np.max(each, axis=0)) for name, each in found.items()}


def unseen(surveyed: dict[str, tuple[float, ...]], at: int = 0, factor: float = 1e3) -> list[str]:
    """Return the groups whose defect after the step numbered `at` is within `factor` of the twin's."""
    return [name for name in GROUPS if surveyed[name][at] <= factor * surveyed["twin"][at]]


def adam_direction(gradient: Tensor, epsilon: float) -> Tensor:
    """Return G / (|G| + epsilon), entrywise: Adam's first, bias-corrected direction D(G) (FTIP l. 314)."""
    return gradient / (gradient.abs() + real("epsilon", epsilon, above=0))


def aligned_defect(direction: Callable[[Any], Any], gradient: Any, q: Any) -> Any:
    """Return D(G Q) Q^T - D(G) for any direction D and orthogonal Q (FTIP l. 314)."""
    return direction(gradient @ q) @ q.T - direction(gradient)


def first_step_difference(u: Any, v: Any, directions: Sequence[Any], deltas: Sequence[Any], rate: Any) -> Any:
    """Return the product after one step from (U Q, V Q) less that from (U, V), for D_U, D_V and their defects."""
    (du, dv), (eu, ev) = directions, deltas  # FTIP 4.2.8; tensors, sympy matrices or words
    return -rate * (eu @ v.T + u @ ev.T) + rate**2 * (eu @ dv.T + du @ ev.T + eu @ ev.T)


def exceptional_rate(epsilon: Any, root: Any = 2.0**-0.5) -> Any:
    """Return the one rate above 0 at which both products of FTIP 4.2.9 agree: the harmonic mean of 1 + e, root + e."""
    return 2 / (1 / (1 + epsilon) + 1 / (root + epsilon))

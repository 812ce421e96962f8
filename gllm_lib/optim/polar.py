"""The polar step of Muon: odd polynomials in a matrix that push its singular values to 1 (OE Sec. 2.1, Family B).

An odd polynomial p(x) = c_0 x + c_1 x^3 + c_2 x^5 + ... acts on a matrix through its singular values alone: with
M = U diag(s) V^T and A = M M^T, (c_0 I + c_1 A + c_2 A^2 + ...) M = U diag(p(s)) V^T. A schedule is a tuple of them,
each the tuple of its coefficients, applied one after the other. Another iteration is another tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gllm_lib.checks import InputError, InputTypeError, as_array, real

Schedule = tuple[tuple[float, ...], ...]

POLAR_SCHEDULES: dict[str, Schedule] = {
    # Best odd quintics on the interval that the one before leaves, from [0.001, 1] on: chapter 12 derives all 15.
    "polar-express": (
        (8.156554524902461, -22.48329292557795, 15.878769915207462),
        (4.042929935166739, -2.808917465908714, 0.5000178451051316),
        (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
        (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
        (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
    ),
    "muon": ((3.4445, -4.7750, 2.0315),) * 5,  # a steep slope at 0, and no fixed point at 1
    "newton-schulz-cubic": ((1.5, -0.5),) * 5,
    "newton-schulz-quintic": ((1.875, -1.25, 0.375),) * 5,
}


def polar_schedule(schedule: str | Sequence[Sequence[float]], name: str = "schedule") -> Schedule:
    """Return a schedule given by name or as its coefficients; raises InputError or InputTypeError for neither.

    The messages call it `name`, as the caller's argument or field is called.
    """
    names = ", ".join(POLAR_SCHEDULES)
    if isinstance(schedule, str):
        if schedule not in POLAR_SCHEDULES:
            raise InputError(f"{name} is {schedule!r:.60}; give one of {names}, or the coefficients of each step")
        return POLAR_SCHEDULES[schedule]
    if not isinstance(schedule, Sequence) or not all(isinstance(step, Sequence) for step in schedule):
        raise InputTypeError(f"{name} is {schedule!r:.60}; give one of {names}, or a list such as [[1.5, -0.5]]")
    steps = tuple(tuple(real(f"{name}[{i}]", c) for c in step) for i, step in enumerate(schedule))
    if not all(steps) or not steps:
        raise InputError(f"{name} is {schedule!r:.60}; give at least one step, and in each at least one coefficient")
    return steps


def singular_map(schedule: str | Sequence[Sequence[float]], sigma: ArrayLike) -> NDArray[np.float64]:
    """Return where a schedule takes singular values, in float64 and of the shape of `sigma`: a number or an array.

    No norm is divided out: give sigma / (safety * Frobenius norm) to follow `polar`. Raises InputError for a value that
    is not finite or grows beyond all doubles on the way.
    """
    value = as_array("sigma", sigma, "give singular values, such as [0.01, 0.5]")
    if value.dtype.kind not in "iuf":
        raise InputTypeError(f"sigma holds {value.dtype} entries; give real numbers, such as [0.01, 0.5]")
    x = value.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        for coefficients in polar_schedule(schedule):
            square, factor = x * x, np.zeros_like(x)
            for coefficient in reversed(coefficients):
                factor = factor * square + coefficient
            x = factor * x
    bad = value[~np.isfinite(x)]
    if bad.size:
        raise InputError(
            f"the schedule takes sigma = {bad[0]:g} beyond all doubles; give values below 1, which it keeps"
        )
    return x


def polar(
    batch: Float[Tensor, "... m n"],
    schedule: str | Sequence[Sequence[float]] = "polar-express",
    *,
    safety: float = 1.02,
    epsilon: float = 1e-12,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "... m n"]:
    """Return each matrix with its singular values taken by the schedule from s / (safety |M|_F) to about 1.

    Singular vectors stay; the products run in `dtype` on the smaller side, m or n, and the result has the type of
    `batch`. A Frobenius norm times `safety` below `epsilon` counts as `epsilon`, so zero stays zero. Raises
    InputTypeError for what is no tensor of floats, InputError for fewer than two axes, a safety below 1, an epsilon
    below 1e-12 (the norm of smaller entries is lost in float32) or a norm that is not finite.
    """
    steps = polar_schedule(schedule)
    safety, epsilon = real("safety", safety, least=1), real("epsilon", epsilon, least=1e-12)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise InputTypeError(f"dtype is {dtype!r:.40}; give torch.float32, torch.bfloat16 or torch.float64")
    matrices("batch", batch)
    wide = torch.promote_types(batch.dtype, torch.float32)
    norm = torch.linalg.vector_norm(batch, dim=(-2, -1), keepdim=True, dtype=wide)
    finite("batch", norm)
    least = max(epsilon, torch.finfo(batch.dtype).tiny)  # float16 has no 1e-12, and 0 / 0 is no zero
    x = (batch / (safety * norm).clamp(min=least).to(batch.dtype)).to(dtype).reshape(-1, *batch.shape[-2:])
    x = x[0] if len(x) == 1 else x  # two matrices are multiplied faster than two stacks of one
    for first, *others in steps:
        x = _step(x, first, others)
    return x.reshape(batch.shape).to(batch.dtype)


def _step(x: Tensor, first: float, others: list[float]) -> Tensor:
    """Return first x + (c_1 A + c_2 A^2 + ...) x, A = x x^T, or the same from the right with x^T x where x is tall."""
    if not others:
        return first * x
    tall, add = x.shape[-2] > x.shape[-1], torch.addmm if x.ndim == 2 else torch.baddbmm
    gram = x.mT @ x if tall else x @ x.mT  # of the smaller side; nothing is transposed in memory
    if len(others) == 1:
        return add(x, *((x, gram) if tall else (gram, x)), beta=first, alpha=others[0])
    inner = add(gram, gram, gram, beta=others[-2], alpha=others[-1])
    for coefficient in reversed(others[:-2]):
        inner = add(gram, gram, inner, beta=coefficient)
    return add(x, *((x, inner) if tall else (inner, x)), beta=first)


def matrices(name: str, value: Any) -> Tensor:
    """Return `value` if it is a non-empty floating tensor of shape (..., m, n), else raise."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise InputTypeError(f"{name} is {kind}; give a floating tensor, shape (..., m, n)")
    if value.ndim < 2 or value.numel() == 0:
        raise InputError(f"{name} has shape {tuple(value.shape)}; give (..., m, n), none of them zero")
    return value


def finite(name: str, size: Tensor) -> None:
    """Raise InputError if a size (a norm, a peak) of the tensor `name` is not finite."""
    if not torch.isfinite(size).all():
        raise InputError(f"{name} holds entries that are not finite, or too large to be squared; look where they arise")

"""What the package of OE does to a momentum before the polar step, and to the gradient of an embedding (Family B)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gllm_lib.checks import InputError, InputTypeError, choose, count, flag, real
from gllm_lib.optim.polar import finite, matrices

HOMOTOPIES = ("exponent", "blend")


def homotopy(step: float, ramp: float) -> float:
    """Return min(step / ramp, 1)^2, from 0 to 1; `ramp=0` is 1 throughout (OE Sec. 2.1: ramps of 25 and 80 steps).

    The source does not say where its steps begin; `Package.first` does. Raises InputError below 0.
    """
    step, ramp = real("step", step, least=0), real("ramp", ramp, least=0)
    return min(step / ramp, 1.0) ** 2 if ramp else 1.0


def equilibrate(
    matrix: Float[Tensor, "... m n"],
    alpha: float = 1.0,
    passes: int = 2,
    *,
    by: str = "exponent",
    epsilon: float = 1e-20,
) -> Float[Tensor, "... m n"]:
    """Return the matrix after `passes` times: divide rows by their RMS, then columns by theirs (OE Sec. 2.1).

    On the way from alpha = 0 (nothing) to 1 the source leaves the path open: `by="exponent"` divides by rms^alpha,
    `by="blend"` multiplies by 1 - alpha + alpha / rms. An RMS below `epsilon` counts as `epsilon`, so a row of zeros
    stays zero. Raises InputError for an alpha outside [0, 1], an unknown path, no pass or an epsilon below 1e-20.
    """
    matrices("matrix", matrix)
    alpha, passes = real("alpha", alpha, least=0, most=1), count("passes", passes)
    epsilon = real("epsilon", epsilon, least=1e-20)
    choose("by", by, HOMOTOPIES)
    if alpha == 0:
        return matrix
    scaled = matrix.to(torch.promote_types(matrix.dtype, torch.float32))
    for axis in (-1, -2) * passes:
        rms = torch.linalg.vector_norm(scaled, dim=axis, keepdim=True) / matrix.shape[axis] ** 0.5
        finite("matrix", rms := rms.clamp(min=epsilon))
        scaled = scaled * (rms**-alpha if by == "exponent" else (1 - alpha) + alpha / rms)
    return scaled.to(matrix.dtype)


def neumann_whiten(
    update: Float[Tensor, "rows d"],
    strength: float,
    centre: bool = True,
    *,
    visited: Bool[Tensor, " rows"] | None = None,
) -> Float[Tensor, "rows d"]:
    """Return C - (strength / 2) C C^T C / (|C^T C|_F + 1e-30), C the update less its mean row (OE Sec. 2.1).

    `centre=False` leaves the mean. With `visited` the mean is that of these rows and is taken from them alone: read
    literally the rule moves every row, also those of tokens that do not occur. Raises InputError for a strength outside
    [0, 1], or a `visited` that is not one truth value for each row; and, like the others here, for NaN or infinity.
    """
    strength, centre = real("strength", strength, least=0, most=1), flag("centre", centre)
    if matrices("update", update).ndim != 2:
        raise InputError(f"update has shape {tuple(update.shape)}; give one table, shape (rows, d)")
    if visited is not None and not (isinstance(visited, Tensor) and visited.dtype == torch.bool):
        raise InputTypeError("visited is no tensor of truth values; give for instance counts > 0, shape (rows,)")
    if visited is not None and visited.shape != update.shape[:1]:
        raise InputError(f"visited has shape {tuple(visited.shape)}; give one value for each of {len(update)} rows")
    wide = update.to(torch.promote_types(update.dtype, torch.float32))
    if centre and visited is None:
        wide = wide - wide.mean(dim=0)
    elif centre and visited is not None:
        share = visited.to(wide.dtype)[:, None]
        wide = wide - share * ((share * wide).sum(dim=0) / share.sum().clamp(min=1))
    peak = wide.abs().amax().clamp(min=torch.finfo(wide.dtype).tiny)
    finite("update", peak)
    if strength:
        # Fourth powers of a small gradient leave float32, so the Gram matrix is that of entries of size at most 1.
        unit = wide / peak
        gram = unit.mT @ unit
        floor = (1e-30 / peak) / peak  # infinite for peaks below 1e-34: then nothing is taken off
        wide = wide - (strength / 2) * (wide @ (gram / (torch.linalg.matrix_norm(gram) + floor)))
    return wide.to(update.dtype)

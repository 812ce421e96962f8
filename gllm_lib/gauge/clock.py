"""Flows with one scalar for all coordinates, theta' = -grad L / a, and the clock that makes them gradient flow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import solve_ivp

from gllm_lib.checks import InputError, Vector, vector

Field = Callable[[Vector], Vector]
Scalar = Callable[[float, Vector], float]


def scalar_flow(
    gradient: Field, start: ArrayLike, times: ArrayLike, scalar: Scalar | None = None, rtol: float = 1e-11
) -> tuple[Vector, NDArray[np.float64]]:
    """Return tau, the integral of 1 / a, shape (T,), and theta, shape (T, p), of theta' = -gradient(theta) / a.

    `scalar` is a(t, theta), None for 1: gradient flow (FTIP 4.3.1, 4.3.2). Raises InputError for times that do not
    ascend, a scalar that is not positive, or a flow that the solver cannot follow to the last time.
    """
    theta, at = vector("start", start), vector("times", times)
    if (np.diff(at) <= 0).any() or len(at) < 2:
        raise InputError("times do not ascend; give at least two, each above the one before")

    def velocity(t: float, y: Vector) -> Vector:
        a = 1.0 if scalar is None else float(scalar(t, y[1:]))
        if not a > 0:
            raise InputError(f"the scalar is {a:g} at time {t:g}; it divides the gradient and must be positive")
        return np.concatenate(([1.0], -np.asarray(gradient(y[1:])))) / a

    found = solve_ivp(velocity, at[[0, -1]], np.insert(theta, 0, 0.0), "DOP853", at, rtol=rtol, atol=rtol / 100)
    if not found.success:
        raise InputError(f"the flow stops at time {found.t[-1]:g} ({found.message}); end the times before")
    return found.y[0], found.y[1:].T

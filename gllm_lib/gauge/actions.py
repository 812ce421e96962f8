"""The gauge of a product of factors, W = U V^T: what moves U and V and leaves W alone (FTIP Sec. 4).

Shapes: U (m, k), V (n, k), W and F = grad f(W) (m, n), A (k, k), as tensors, sympy matrices or `proofs.words` alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gllm_lib.checks import InputError, choose, count, generator


def factor_gradients(f: Any, u: Any, v: Any) -> tuple[Any, Any]:
    """Return the gradients of f(U V^T) with respect to U and V, from the gradient F at U V^T: F V and F^T U."""
    return f @ v, f.T @ u


def contragredient(a: Any) -> Any:
    """Return the inverse transpose of a matrix, or of each of a stack of tensors; raises InputError if it has none."""
    try:
        return torch.linalg.inv(a).mT if isinstance(a, Tensor) else a.inv().T
    except torch.linalg.LinAlgError as error:
        raise InputError(f"the matrix has no inverse ({error}); a gauge needs one") from error


def act(u: Any, v: Any, a: Any) -> tuple[Any, Any]:
    """Return (U A, V A^-T), which has the same product; for orthogonal A both factors move by A (FTIP 4.1.2)."""
    return u @ a, v @ contragredient(a)


def _dense(k: int, rng: np.random.Generator, determinant: int) -> np.ndarray:
    q = np.linalg.qr(rng.standard_normal((k, k)))[0]
    q[:, 0] *= determinant * np.sign(np.linalg.det(q))
    return q


GROUPS: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "signed permutations": lambda k, rng: np.eye(k)[rng.permutation(k)] * rng.choice([-1.0, 1.0], k),
    "rotations": lambda k, rng: _dense(k, rng, 1),
    "reflections": lambda k, rng: _dense(k, rng, -1),
    "scalars": lambda k, rng: np.eye(k) * rng.uniform(1.3, 2.0) ** rng.choice([-1, 1]),
    "diagonals": lambda k, rng: np.diag(rng.uniform(1.3, 2.0, k) ** rng.choice([-1, 1], k)),
    "invertibles": lambda k, rng: _dense(k, rng, 1) * rng.uniform(0.5, 2.0, k) @ _dense(k, rng, 1),
}


def sample(group: str, k: int, rng: np.random.Generator) -> Tensor:
    """Return a matrix (k, k), float64, of a set of `GROUPS` that `rng` chooses; dense ones are not permutations.

    "rotations" and "reflections" are the two halves of O(k). Raises InputError for another name.
    """
    choose("group", group, GROUPS)
    return torch.from_numpy(np.ascontiguousarray(GROUPS[group](count("k", k), generator(rng))))


def moved(value: Tensor, rows: int, q: Tensor) -> Tensor:
    """Return what a rotation makes of an optimizer's state of a factor (rows, k): the action sigma_Q (FTIP l. 274).

    A buffer shaped as the factor turns with it, S Q; one (k, k) turns on both sides, Q^T S Q; others stay.
    """
    if value.shape == (rows, len(q)):
        return value @ q
    return q.T @ value @ q if value.shape == q.shape else value

"""What a weight matrix shows at the end of a run: stable rank, the energy of its mean row, learned query scales.

Shapes: M rows, N columns; L layers, H heads, C rotary planes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from gllm_lib.checks import InputError, Vector, as_array


def _matrix(name: str, value: ArrayLike) -> Vector:
    array = as_array(name, value, "give a matrix of numbers, shape (M, N)")
    if array.ndim != 2 or array.dtype.kind not in "iuf":
        raise InputError(f"{name} has shape {array.shape} and holds {array.dtype}; give a matrix of numbers (M, N)")
    array = array.astype(np.float64)
    if not np.isfinite(array).all() or not array.any():
        raise InputError(f"{name} is zero or holds numbers that are not finite; its rank and shares have no meaning")
    return array / np.abs(array).max()


def stable_rank(matrix: ArrayLike) -> float:
    """Return ||W||_F^2 / ||W||_2^2 of a matrix (M, N), from 1 to its rank (OE Sec. 4.2.1).

    It is the inverse share of the largest squared singular value. Raises InputError for what is no matrix, is zero, or
    is not finite.
    """
    array = _matrix("matrix", matrix)
    return float((array**2).sum() / np.linalg.norm(array, 2) ** 2)


def mean_row_share(matrix: ArrayLike) -> float:
    """Return M |mean row|^2 / ||W||_F^2 of a matrix (M, N), from 0 to 1 / stable rank (OE Sec. 4.2.1); raises alike."""
    array = _matrix("matrix", matrix)
    return float(len(array) * (array.mean(axis=0) ** 2).sum() / (array**2).sum())

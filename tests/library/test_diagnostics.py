"""Checkpoint diagnostics: singular values as the second route, the bound they share, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gllm_lib.analysis.diagnostics import mean_row_share, stable_rank
from gllm_lib.checks import InputError, InputTypeError


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 999))
def test_both_numbers_follow_from_singular_values(rows, columns, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(rows, columns)) + rng.normal(size=columns)
    energy = np.linalg.svd(matrix, compute_uv=False) ** 2
    assert np.isclose(stable_rank(matrix), energy.sum() / energy.max())
    common = np.ones((rows, rows)) / rows @ matrix
    assert np.isclose(mean_row_share(matrix), (common**2).sum() / (matrix**2).sum())
    assert stable_rank(matrix) * mean_row_share(matrix) <= 1 + 1e-9
    assert np.isclose(stable_rank(1e-200 * matrix), stable_rank(matrix))


def test_the_ends_of_both_scales():
    assert np.isclose(stable_rank(np.eye(5)), 5)
    assert np.isclose(mean_row_share(np.ones((4, 3))), 1)
    assert mean_row_share([[1, 2], [-1, -2]]) == 0.0


@pytest.mark.parametrize("measure", [stable_rank, mean_row_share])
def test_what_is_no_matrix_is_refused(measure):
    for bad in ([1.0, 2.0], np.zeros((2, 2)), [[np.nan, 1.0]], [["a"]]):
        with pytest.raises(InputError, match="matrix"):
            measure(bad)
    with pytest.raises(InputTypeError, match="matrix of numbers"):
        measure(None)

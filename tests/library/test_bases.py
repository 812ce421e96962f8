"""Level bases: orthonormality, orders, the last level's independence, filling, residual block, bad input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gllm_lib.analysis.bases import decoding_factor, encoding_factor, level_basis, live_directions
from gllm_lib.analysis.probes import moments
from gllm_lib.checks import InputError

D, LEVELS = 12, 3


def factors_of(seed: int, ranks: tuple[int, ...] = (6, 5, 7), d: int = D) -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d))
    return [rng.normal(size=(d, rank)) for rank in ranks], root @ root.T


def span_gap(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference of the projections on two column spans."""
    return float(np.abs(a @ a.T - b @ b.T).max())


@given(
    seed=st.integers(0, 999),
    order=st.one_of(st.none(), st.permutations(range(LEVELS))),
    ranks=st.tuples(*[st.integers(1, 9)] * LEVELS),
    size=st.sampled_from([None, 1, 3, 4]),
)
def test_basis_is_orthonormal_with_levels_of_equal_size(seed, order, ranks, size):
    factors, covariance = factors_of(seed, ranks)
    basis = level_basis(factors, covariance, order=order, size=size, turn=2)
    # rounding: a few dozen reorthogonalised products of size d
    assert np.abs(basis.vectors.T @ basis.vectors - np.eye(D)).max() < 1e3 * D * np.finfo(float).eps
    each = size or D // LEVELS
    assert basis.sizes().tolist() == [each] * LEVELS
    assert (basis.level == -1).sum() == D - LEVELS * each
    assert (basis.filled >= np.maximum(0, each - np.array(ranks))).all()


def test_first_level_of_an_order_owns_its_leading_directions():
    factors, covariance = factors_of(1)
    for first in range(LEVELS):
        order = [first, *(number for number in range(LEVELS) if number != first)]
        basis = level_basis(factors, covariance, order=order)
        leading = np.linalg.svd(factors[first])[0][:, : D // LEVELS]
        assert span_gap(basis.vectors[:, basis.level == first], leading) < 1e-10


def test_last_level_is_independent_of_its_own_annotation_when_sizes_sum_to_d():
    factors, covariance = factors_of(2)
    other = [*factors[:2], np.random.default_rng(77).normal(size=factors[2].shape)]
    spans = [level_basis(each, covariance, order=[0, 1, 2]) for each in (factors, other)]
    last = [basis.vectors[:, basis.level == 2] for basis in spans]
    assert span_gap(*last) < 1e-10
    short = [level_basis(each, covariance, order=[0, 1, 2], size=3) for each in (factors, other)]
    assert span_gap(*[basis.vectors[:, basis.level == 2] for basis in short]) > 0.1
    neutral = [level_basis(each, covariance, turn=1) for each in (factors, other)]
    assert span_gap(*[basis.vectors[:, basis.level == 2] for basis in neutral]) > 0.1


def test_all_orders_agree_when_levels_occupy_orthogonal_spaces():
    q = np.linalg.qr(np.random.default_rng(3).normal(size=(D, D)))[0]
    factors = [q[:, 4 * number : 4 * number + 4] * [4.0, 3.0, 2.0, 1.0] for number in range(LEVELS)]
    orders = [None, *itertools.permutations(range(LEVELS))]
    for basis in (level_basis(factors, np.eye(D), order=order) for order in orders):
        assert basis.filled.tolist() == [0, 0, 0]
        for number in range(LEVELS):
            assert span_gap(basis.vectors[:, basis.level == number], q[:, 4 * number : 4 * number + 4]) < 1e-10


def test_undetermined_columns_are_the_principal_directions_left():
    covariance = np.diag(np.arange(12.0, 0.0, -1.0))
    factors = [np.eye(12)[:, [0]], np.eye(12)[:, [1]], np.eye(12)[:, [2]]]
    basis = level_basis(factors, covariance)
    assert basis.filled.tolist() == [3, 3, 3]
    owner = [int(basis.level[np.abs(basis.vectors[axis]).argmax()]) for axis in range(12)]
    assert owner == [0, 1, 2] * 4  # dealt out in turn, the most variance first


def test_encoding_factor_is_the_covariance_of_the_fit():
    rng = np.random.default_rng(4)
    features = rng.normal(size=(400, 3)) * [1.0, 10.0, 0.1]
    features = np.hstack([features, features[:, :1] - features[:, 2:3]])  # a collinear column
    x = features[:, :3] @ rng.normal(size=(3, D)) + rng.normal(size=(400, D))
    factor = encoding_factor(moments(features, x))
    centred = features - features.mean(0)
    fit = centred @ np.linalg.lstsq(centred, x - x.mean(0), rcond=None)[0]
    assert np.allclose(factor @ factor.T, fit.T @ fit / 400, atol=1e-9)


def test_decoding_factor_finds_the_planted_direction_and_ignores_units():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2000, D))
    features = np.stack([x[:, 3] + 0.1 * rng.normal(size=2000), np.ones(2000)], axis=1)
    factor = decoding_factor(moments(x, features), [1e-3, 1e-3])
    assert np.abs(factor[:, 0]).argmax() == 3
    assert not factor[:, 1].any()
    scaled = decoding_factor(moments(x, features * [50.0, 1.0]), [1e-3, 1e-3])
    assert np.allclose(factor, scaled)


def test_live_directions_delete_dead_ones_and_keep_a_multiple():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(500, 7)) @ rng.normal(size=(7, 10))
    covariance = np.cov(x.T)
    assert live_directions(covariance).shape == (10, 7)
    kept = live_directions(covariance, multiple_of=4)
    assert kept.shape == (10, 4)
    variances = np.diagonal(kept.T @ covariance @ kept)
    assert (np.diff(variances) <= 0).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"order": [0, 1, 1]}, "no permutation"),
        ({"order": [0, 1]}, "no permutation"),
        ({"size": 5}, "sizes must fit"),
        ({"size": 0}, "sizes must fit"),
        ({"turn": 0}, "sizes must fit"),
        ({"covariance": np.eye(5)}, "same representation"),
        ({"factors": []}, "same representation"),
        ({"factors": [np.eye(12), np.eye(7)]}, "same representation"),
        ({"factors": [np.eye(12)] * 5}, "do not divide"),
        ({"factors": [np.eye(12), np.eye(12), np.full((12, 2), np.nan)]}, "remove or repair"),
    ],
)
def test_bad_bases_are_refused(change, said):
    factors, covariance = factors_of(7)
    given_ = {"factors": factors, "covariance": covariance} | change
    with pytest.raises(InputError, match=said):
        level_basis(**given_)


def test_features_that_never_vary_are_refused():
    x, constant = np.random.default_rng(8).normal(size=(20, 3)), np.ones((20, 2))
    with pytest.raises(InputError, match="no feature varies"):
        encoding_factor(moments(constant, x))
    with pytest.raises(InputError, match="no feature varies"):
        decoding_factor(moments(x, constant), [1.0, 1.0])
    with pytest.raises(InputError, match="carry variance"):
        live_directions(np.zeros((3, 3)))

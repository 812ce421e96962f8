"""Probes and profiles: ridge against scikit-learn, cross-fit unbiasedness, nulls, half-samples, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from gllm_lib.analysis import probes
from gllm_lib.checks import InputError, InputTypeError


def sample(seed: int, n: int = 300, d: int = 6, k: int = 2, noise: float = 0.5):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.linspace(0.5, 3.0, d) + rng.normal(size=d)
    weights = rng.normal(size=(d, k))
    return x, x @ weights + noise * rng.normal(size=(n, k)) + 2.0, weights, rng


@given(seed=st.integers(0, 99), penalty=st.sampled_from([1e-4, 1e-2, 1.0, 100.0]), intercept=st.booleans())
def test_ridge_agrees_with_scikit_learn(seed, penalty, intercept):
    x, y, _, _ = sample(seed)
    second = np.cov(x.T, bias=True) if intercept else x.T @ x / len(x)
    reference = Ridge(alpha=penalty * np.trace(second) / x.shape[1] * len(x), fit_intercept=intercept).fit(x, y)
    mine = probes.ridge(probes.moments(x, y), penalty, intercept)[0]
    assert np.allclose(mine, reference.coef_.T, rtol=1e-6, atol=1e-8)


def test_held_out_r2_agrees_with_scikit_learn():
    x, y, _, _ = sample(1)
    train, test = probes.moments(x[:200], y[:200]), probes.moments(x[200:], y[200:])
    weights = probes.ridge(train, [0.01, 1.0])
    for penalty in range(2):
        prediction = (x[200:] - x[:200].mean(0)) @ weights[penalty] + y[:200].mean(0)
        error = ((y[200:] - prediction) ** 2).sum(0)
        expected = 1 - error / ((y[200:] - y[:200].mean(0)) ** 2).sum(0)
        assert np.allclose(probes.held_out_r2(weights, train, test)[penalty], expected)
        assert np.allclose(expected, r2_score(y[200:], prediction, multioutput="raw_values"), atol=0.02)
    constant = probes.moments(x[200:], np.ones((100, 2)))
    assert np.isnan(probes.held_out_r2(weights, train, constant)).all()


def test_moments_add_up_over_documents_and_weights_repeat_rows():
    x, y, _, rng = sample(2)
    parts = [probes.moments(x[rows], y[rows]) for rows in np.array_split(np.arange(300), 7)]
    whole, pooled = probes.moments(x, y), probes.pooled(parts)
    assert np.allclose(whole.covariance(), pooled.covariance())
    counts = rng.integers(0, 3, size=300)
    repeated = probes.moments(np.repeat(x, counts, axis=0), np.repeat(y, counts, axis=0))
    weighted = probes.moments(x, y, counts)
    assert np.allclose(weighted.cross_covariance(), repeated.cross_covariance())
    assert np.allclose(whole.select([1]).target_variance(), y[:, 1].var())


def test_folds_keep_documents_whole_and_balanced():
    documents = np.repeat(np.arange(40), np.random.default_rng(3).integers(1, 30, size=40))
    parts = probes.document_folds(documents, 4, np.random.default_rng(0))
    assert all(len(set(parts[documents == document])) == 1 for document in range(40))
    loads = np.bincount(parts, minlength=4)
    assert loads.max() - loads.min() <= 30
    assert (parts == probes.document_folds(documents, 4, np.random.default_rng(0))).all()
    with pytest.raises(InputError, match="folds of 40 documents"):
        probes.document_folds(documents, 41, np.random.default_rng(0))


def test_chosen_penalty_is_small_for_clean_targets_and_large_for_noise():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(600, 8))
    y = np.stack([x @ rng.normal(size=8), rng.normal(size=600), np.ones(600)], axis=1)
    parts = [probes.moments(x[rows], y[rows]) for rows in np.array_split(np.arange(600), 3)]
    grid = [1e-3, 1e-1, 1e1, 1e3]
    chosen, scores = probes.choose_penalty(parts, grid)
    assert chosen[0] == 1e-3
    assert chosen[1] == 1e3
    assert scores.shape == (4, 3)
    each = probes.ridge_each(probes.pooled(parts), chosen)
    assert np.allclose(each[:, 0], probes.ridge(probes.pooled(parts), 1e-3)[0][:, 0])
    with pytest.raises(InputError, match="at least two"):
        probes.choose_penalty(parts[:1], grid)


def test_cross_fit_is_unbiased_where_plain_squares_are_not():
    d, repeats, noise = 5, 4000, 0.6
    rng = np.random.default_rng(5)
    truth = np.array([1.0, 0.5, 0.0, 0.0, 0.0])
    a, b = (truth + noise * rng.normal(size=(repeats, d)) for _ in range(2))
    products, squares = (a * b).mean(0), (a**2).mean(0)
    # standard error of a product: below noise^2 + 2 noise over sqrt(repeats), times 4
    assert np.abs(products - truth**2).max() < 4 * (noise**2 + 2 * noise) / np.sqrt(repeats)
    assert (squares - truth**2 > 0.3).all()


def test_cross_fit_keeps_negatives_for_sums_over_levels_before_any_floor():
    shares = probes.cross_fit([2.0, 1.0, 0.5, 1.0], [2.0, 1.0, -1.0, 0.5])
    assert np.allclose(shares, [0.8, 0.2, -0.1, 0.1])
    assert np.allclose(probes.level_sums(shares, [0, 0, 1, 1], 2), [1.0, 0.0])
    profile, moved = probes.floored(shares)
    assert np.isclose(moved, 0.1)
    assert np.isclose(profile.sum(), 1.0)
    assert profile[2] == 0.0
    with pytest.raises(InputError, match="not decodable"):
        probes.cross_fit([1.0, 0.0], [-1.0, 1.0])
    with pytest.raises(InputError, match="no positive share"):
        probes.floored([-1.0, -2.0])


def test_profiles_follow_definition_2_raw_and_centred():
    rng = np.random.default_rng(6)
    x = np.stack([10 + rng.normal(size=20000), rng.normal(size=20000)], axis=1)
    found = probes.moments(x, x[:, 0])
    assert np.allclose(probes.data_profile(found), [101 / 102, 1 / 102], atol=1e-3)
    assert np.allclose(probes.data_profile(found, centred=True), [0.5, 0.5], atol=0.02)
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    raw = x @ turn
    assert np.allclose(probes.data_profile(found, turn), (raw**2).sum(0) / (raw**2).sum())
    assert np.allclose(probes.target_profile([[3.0, 0.0], [0.0, 4.0]]), [9 / 25, 16 / 25])
    with pytest.raises(InputError, match="carry no variance"):
        probes.data_profile(probes.moments(x * [1.0, 0.0], x[:, 0]))
    with pytest.raises(InputError, match="no profile"):
        probes.target_profile([0.0, 0.0])


def test_shuffled_targets_put_energy_where_variance_is_small():
    rng = np.random.default_rng(7)
    scale = np.array([4.0, 2.0, 1.0, 0.5])
    x = rng.normal(size=(4000, 4)) * scale
    weights = probes.shuffled_weights(x, x[:, :1], [1e-6], 200, rng)
    assert weights.shape == (200, 4, 1)
    energy = (weights[:, :, 0] ** 2).mean(0)
    expected = scale**-2.0 / (scale**-2.0).sum()
    # 200 draws of a chi-square share: relative standard error 0.1
    assert np.abs(energy / energy.sum() - expected).max() < 0.1
    unpaired = probes.ridge(probes.moments(x, x[:, 0]), 1e-6)[0]
    assert np.abs(unpaired[0]) > 10 * np.abs(weights[:, 0]).mean()


@pytest.mark.parametrize(("outputs", "expected"), [(1, 0.798), (5, 0.9516), (25, 0.9901)])
def test_isotropic_null_counts_outputs(outputs, expected):
    profiles = probes.isotropic_profiles(2000, outputs, 20, np.random.default_rng(8))
    affinity = np.sqrt(profiles / 2000).sum(1).mean()
    assert abs(affinity - expected) < 0.004
    assert np.allclose(profiles.sum(1), 1.0)


def test_half_samples_have_the_spread_of_the_mean():
    rng = np.random.default_rng(9)
    values = rng.normal(size=80)
    blocks = [probes.moments([[value], [value + 1]], [0.0, 1.0]) for value in values]

    def mean(chosen):
        total = probes.pooled(chosen)
        return total.x / total.count

    spread = probes.half_samples(blocks, mean, 2000, rng).std()
    assert abs(spread / (values.std(ddof=1) / np.sqrt(80)) - 1) < 0.1
    low, high = probes.half_sample_interval(values.mean(), probes.half_samples(blocks, mean, 50, rng)[:, 0])
    assert low < values.mean() < high
    few = probes.half_sample_interval(0.0, np.arange(50.0), units=5)[1]
    many = probes.half_sample_interval(0.0, np.arange(50.0), units=99)[1]
    assert np.isclose(few / many, 2.7764 / 2.0096, rtol=1e-4)  # Student's t at 4 and at 49 degrees of freedom
    with pytest.raises(InputError, match="at least 4"):
        probes.half_samples(blocks[:3], mean, 10, rng)
    with pytest.raises(InputError, match="between 0 and 1"):
        probes.half_sample_interval(0.0, [1.0, 2.0], level=1.0)
    with pytest.raises(InputError, match="two of each"):
        probes.half_sample_interval(0.0, [1.0, 2.0], units=1)
    with pytest.raises(InputTypeError, match="default_rng"):
        probes.half_samples(blocks, mean, 10, 3)


def test_level_sums_refuse_levels_out_of_range():
    assert probes.level_sums([[1.0, 2.0, 3.0]], [0, 1, 1], 2).tolist() == [[1.0, 5.0]]
    for level in ([0, 1, 2], [-1, 0, 1], [0, 1]):
        with pytest.raises(InputError, match="one level in"):
            probes.level_sums([1.0, 2.0, 3.0], level, 2)


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        ([[1.0], [np.nan]], [1.0, 2.0], r"x\[1, 0\] is nan"),
        ([[1.0], [2.0]], [1.0, np.inf], r"y\[1, 0\] is inf"),
        ([[1.0], [2.0]], [1.0, 2.0, 3.0], "x has 2 rows, y has 3"),
        (np.zeros((0, 3)), [], "at least one column"),
    ],
)
def test_bad_samples_are_refused(x, y, said):
    with pytest.raises(InputError, match=said):
        probes.moments(x, y)


def test_bad_probe_settings_are_refused():
    x, y, _, _ = sample(10)
    found = probes.moments(x, y)
    for penalties in ([0.0], [-1.0], [np.nan], []):
        with pytest.raises(InputError):
            probes.ridge(found, penalties)
    with pytest.raises(InputError, match="one for each"):
        probes.ridge_each(found, [1.0])
    with pytest.raises(InputError, match="does not vary"):
        probes.ridge(probes.moments(np.ones((5, 2)), np.arange(5.0)), 1.0)
    with pytest.raises(InputError, match="none negative"):
        probes.moments(x, y, -np.ones(300))
    with pytest.raises(InputError, match="no moments"):
        probes.pooled([])
    with pytest.raises(InputTypeError, match="holds"):
        probes.moments([["a"]], [1.0])
    with pytest.raises(InputError, match="one target"):
        probes.cross_fit([1.0, 2.0], [1.0])

"""The polar step and what goes before it, against singular value decompositions, torch and the printed formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim._muon import _zeropower_via_newtonschulz as torch_polar

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.optim.polar import POLAR_SCHEDULES, polar, polar_schedule, singular_map
from gllm_lib.optim.prepolar import equilibrate, homotopy, neumann_whiten

EPS32 = 2.0**-23
SHAPES = [(1, 1), (1, 7), (6, 1), (5, 5), (4, 9), (9, 4), (3, 5, 8), (2, 3, 8, 5)]


def normal(shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def by_decomposition(matrix, schedule, safety=1.02):
    u, s, vt = np.linalg.svd(matrix.numpy(), full_matrices=False)
    norm = np.sqrt((s**2).sum(axis=-1, keepdims=True))
    return u * singular_map(schedule, s / (safety * norm))[..., None, :] @ vt


# The polar step ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLAR_SCHEDULES)
@pytest.mark.parametrize("shape", SHAPES)
def test_polar_is_the_map_of_the_singular_values(shape, name):
    matrix = normal(shape)
    found = polar(matrix, name, dtype=torch.float64)
    assert found.shape == matrix.shape
    # A value at 0 is moved by 5 polynomials of slope at most 9: rounding grows by at most 1e3 beside its own size.
    assert np.abs(found.numpy() - by_decomposition(matrix, name)).max() < 1e4 * 2**-52


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5])
def test_polynomials_of_any_degree(degree):
    schedule = [[0.9, -0.3, 0.2, 0.7, -0.4][:degree], [0.5, 0.1]]
    matrix = normal((6, 4))
    assert np.allclose(polar(matrix, schedule, dtype=torch.float64), by_decomposition(matrix, schedule), atol=1e-14)


def test_agrees_with_torch_in_its_own_type():
    for shape in ((64, 48), (48, 64), (32, 32)):
        matrix = normal(shape, dtype=torch.float32)
        reference = torch_polar(matrix, (3.4445, -4.7750, 2.0315), 5, 1e-7).float()
        found = polar(matrix, "muon", safety=1.0, epsilon=1e-7, dtype=torch.bfloat16)
        exact = polar(matrix, "muon", safety=1.0, epsilon=1e-7, dtype=torch.float64)
        error = (found - reference).norm() / exact.norm()
        own = (reference - exact).norm() / exact.norm()
        assert error < 2 * own  # two roundings of one sequence of products are as far apart as from the exact one
        assert own > 1e-3  # bfloat16 it was


def test_each_matrix_of_a_batch_is_its_own():
    batch = torch.stack([normal((6, 4), 1), 1e6 * normal((6, 4), 2), torch.zeros(6, 4, dtype=torch.float64)])
    found = polar(batch, dtype=torch.float64)
    for one, alone in zip(found, batch, strict=True):
        assert torch.allclose(one, polar(alone, dtype=torch.float64), atol=1e-13)
    assert not found[2].any()


def test_type_and_argument_are_kept():
    matrix = normal((5, 3), dtype=torch.bfloat16)
    before = matrix.clone()
    assert polar(matrix).dtype == torch.bfloat16
    assert torch.equal(matrix, before)
    column = normal((3, 5), dtype=torch.float32).mT  # not contiguous
    assert torch.allclose(polar(column), polar(column.contiguous()), atol=1e-5)


@given(exponent=st.integers(-9, 15), seed=st.integers(0, 99))
def test_scale_does_not_matter_where_floats_reach(exponent, seed):
    matrix = normal((4, 6), seed, torch.float32)
    scaled = polar(matrix * 2.0**exponent)
    assert (scaled - polar(matrix)).abs().max() <= 1e4 * EPS32


def test_tiny_entries_do_not_explode():
    for size in (1e-13, 1e-20, 1e-30, 1e-44):
        assert polar(torch.full((3, 3), size)).abs().max() <= 1.2


# The map ----------------------------------------------------------------------------------------------------------


def test_map_at_known_points():
    assert singular_map("newton-schulz-cubic", 1.0) == 1.0
    assert singular_map("newton-schulz-quintic", [0.0, -1.0]).tolist() == [0.0, -1.0]
    assert singular_map([[2.0]], 3).shape == ()
    slope = math.prod(step[0] for step in POLAR_SCHEDULES["polar-express"])
    assert singular_map("polar-express", 1e-12) == pytest.approx(slope * 1e-12, rel=1e-12)
    sigma = np.geomspace(1e-3, 1 / 1.02, 20001)
    image = singular_map("polar-express", sigma)
    assert 0.858872 <= image.min() < 0.86
    assert 1.14 < image.max() <= 1.141128


def test_every_schedule_has_five_steps_that_increase_at_zero():
    for name in POLAR_SCHEDULES:
        steps = polar_schedule(name)
        assert len(steps) == 5
        assert all(step[0] > 1 for step in steps)


# Equilibration ----------------------------------------------------------------------------------------------------


def printed_equilibration(matrix, alpha, passes):
    for _ in range(passes):
        matrix = matrix * np.sqrt((matrix**2).mean(axis=1, keepdims=True)) ** -alpha
        matrix = matrix * np.sqrt((matrix**2).mean(axis=0, keepdims=True)) ** -alpha
    return matrix


@pytest.mark.parametrize("alpha", [0.0, 0.37, 1.0])
@pytest.mark.parametrize("passes", [1, 2, 3])
def test_equilibration_by_its_formula(alpha, passes):
    matrix = normal((7, 5)) * torch.logspace(-3, 3, 7, dtype=torch.float64)[:, None]
    expected = printed_equilibration(matrix.numpy(), alpha, passes)
    assert np.allclose(equilibrate(matrix, alpha, passes), expected, rtol=1e-13)
    assert np.allclose(equilibrate(matrix[None], alpha, passes)[0], expected, rtol=1e-13)


def test_columns_end_at_one_and_zeros_stay():
    matrix = normal((8, 6), dtype=torch.float32)
    matrix[3], matrix[:, 2] = 0.0, 0.0
    found = equilibrate(matrix)
    rms = found.square().mean(dim=0).sqrt()
    assert not found[3].any()
    assert not found[:, 2].any()
    assert (rms[[0, 1, 3, 4, 5]] - 1).abs().max() < 16 * EPS32
    assert torch.equal(equilibrate(matrix, 0.0), matrix)
    assert equilibrate(torch.full((2, 2), 1e-30)).abs().max() <= 1.0


def test_the_two_paths_share_their_ends():
    matrix = normal((6, 4)) * torch.arange(1, 7)[:, None]
    assert torch.allclose(equilibrate(matrix, 1.0), equilibrate(matrix, 1.0, by="blend"), rtol=1e-14)
    assert not torch.allclose(equilibrate(matrix, 0.5), equilibrate(matrix, 0.5, by="blend"), rtol=1e-2)
    blend = matrix * (0.5 + 0.5 / matrix.square().mean(dim=1, keepdim=True).sqrt())
    blend = blend * (0.5 + 0.5 / blend.square().mean(dim=0, keepdim=True).sqrt())
    assert torch.allclose(equilibrate(matrix, 0.5, 1, by="blend"), blend, rtol=1e-14)


def test_homotopy():
    assert [homotopy(t, 24) for t in (0, 6, 24, 1000)] == [0.0, 0.0625, 1.0, 1.0]
    assert homotopy(0, 0) == 1.0


# Whitening --------------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 999), strength=st.sampled_from([0.0, 0.3, 1.0]), centre=st.booleans())
@settings(max_examples=30)
def test_whitening_by_its_formula(seed, strength, centre):
    update = normal((9, 4), seed)
    c = update.numpy() - centre * update.numpy().mean(axis=0)
    gram = c.T @ c
    expected = c - strength / 2 * c @ gram / (np.linalg.norm(gram) + 1e-30)
    assert np.allclose(neumann_whiten(update, strength, centre), expected, rtol=0, atol=1e-14)


def test_the_printed_floor_and_no_overflow():
    for size in (1e-3, 1e-16, 1e-25, 1e-40):
        update = size * normal((6, 3), dtype=torch.float32)
        c = update.double() - update.double().mean(dim=0)
        gram = c.mT @ c
        expected = c - 0.5 * c @ (gram / (torch.linalg.matrix_norm(gram) + 1e-30))
        smallest = 2.0**-149  # of float32, where the entries are only a few bits
        assert (neumann_whiten(update, 1.0).double() - expected).abs().max() <= 64 * EPS32 * size + 8 * smallest
    assert not neumann_whiten(torch.zeros(4, 3), 1.0).any()
    assert not neumann_whiten(torch.ones(1, 3), 1.0).any()  # one row is its own mean


def test_visited_rows_alone_are_centred():
    update = normal((6, 3))
    visited = torch.tensor([True, False, True, True, False, False])
    update[~visited] = 0.0
    found = neumann_whiten(update, 0.7, visited=visited)
    assert not found[~visited].any()
    assert torch.allclose(found[visited], neumann_whiten(update[visited], 0.7), atol=1e-15)
    assert neumann_whiten(update, 0.7)[~visited].abs().min() > 0  # the printed rule moves them
    assert not neumann_whiten(update, 1.0, visited=torch.zeros(6, dtype=torch.bool))[~visited].any()


# Bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: polar(np.eye(3)), InputTypeError, "floating tensor"),
        (lambda: polar(torch.eye(3).long()), InputTypeError, "floating tensor"),
        (lambda: polar(torch.ones(3)), InputError, "m, n"),
        (lambda: polar(torch.ones(0, 3)), InputError, "none of them zero"),
        (lambda: polar(torch.eye(2), safety=0.9), InputError, "at least 1"),
        (lambda: polar(torch.eye(2), epsilon=0.0), InputError, "at least 1e-12"),
        (lambda: polar(torch.eye(2), dtype=torch.int32), InputTypeError, "torch.float32"),
        (lambda: polar(torch.tensor([[math.nan]])), InputError, "not finite"),
        (lambda: polar(torch.full((9, 9), 3e38)), InputError, "too large"),
        (lambda: polar(torch.eye(2), "newton"), InputError, "polar-express"),
        (lambda: polar(torch.eye(2), 3), InputTypeError, "such as"),
        (lambda: polar(torch.eye(2), [1.5, -0.5]), InputTypeError, "such as"),
        (lambda: polar(torch.eye(2), []), InputError, "at least one step"),
        (lambda: polar(torch.eye(2), [[]]), InputError, "at least one"),
        (lambda: polar(torch.eye(2), [[math.inf]]), InputError, "finite"),
        (lambda: singular_map("muon", "half"), InputTypeError, "singular values"),
        (lambda: singular_map("muon", math.nan), InputError, "beyond"),
        (lambda: singular_map("polar-express", 9.0), InputError, "beyond all doubles"),
        (lambda: equilibrate(torch.eye(2), 1.1), InputError, "at most 1"),
        (lambda: equilibrate(torch.eye(2), 1.0, 0), InputError, "at least 1"),
        (lambda: equilibrate(torch.eye(2), by="power"), InputError, "'exponent', 'blend'"),
        (lambda: equilibrate(torch.eye(2), epsilon=0), InputError, "at least 1e-20"),
        (lambda: equilibrate(torch.tensor([[math.inf]])), InputError, "not finite"),
        (lambda: homotopy(-1, 25), InputError, "at least 0"),
        (lambda: homotopy(1, -25), InputError, "at least 0"),
        (lambda: neumann_whiten(torch.ones(2, 3, 4), 1.0), InputError, "one table"),
        (lambda: neumann_whiten(torch.ones(2, 3), 1.5), InputError, "at most 1"),
        (lambda: neumann_whiten(torch.ones(2, 3), 1.0, 1), InputTypeError, "True or False"),
        (lambda: neumann_whiten(torch.ones(2, 3), 1.0, visited=[True, False]), InputTypeError, "truth values"),
        (lambda: neumann_whiten(torch.ones(2, 3), 1.0, visited=torch.ones(3) > 0), InputError, "2 rows"),
        (lambda: neumann_whiten(torch.full((2, 3), math.nan), 0.0), InputError, "not finite"),
    ],
)
def test_bad_input_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_zero_stays_zero_in_every_type(kind):
    assert not polar(torch.zeros(3, 2, dtype=kind)).any()
    assert polar(torch.eye(2, dtype=kind)).dtype == kind

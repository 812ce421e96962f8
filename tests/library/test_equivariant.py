"""Rules that no rotation of the columns changes, each against a second route, and one that is changed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gllm_lib.checks import GllmError
from gllm_lib.gauge import act, defects, sample, state_defect, survey, trajectory, unseen
from gllm_lib.optim import RowAdam, ScaledGD, Shampoo, SharedAdam
from gllm_lib.optim.equivariant import Equivariant

RULES = {"gradient": Equivariant, "shared": SharedAdam, "rows": RowAdam, "shampoo": Shampoo, "scaled": ScaledGD}


def factors(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, 3, generator=draw, dtype=torch.float64) for rows in (5, 4)]


def loss(w):
    return (w - 1).square().sum() / 2 + w[0, 0] ** 4


def steps(build, count):
    """Return the factors after some steps, and all gradients on the way."""
    pair = [torch.nn.Parameter(each) for each in factors()]
    optimizer, seen = build(pair), []
    for _ in range(count):
        optimizer.zero_grad()
        assert optimizer.step(lambda: loss(pair[0] @ pair[1].T).backward()) is None
        seen.append([each.grad.clone() for each in pair])
    return pair, seen


@pytest.mark.parametrize("name", RULES)
def test_no_rotation_is_seen(name):
    u, v = factors()
    for half in ("rotations", "reflections"):
        q = sample(half, 3, np.random.default_rng(1))
        runs = [trajectory(lambda p: RULES[name](p, lr=1e-2), loss, *pair, 12) for pair in ((u, v), act(u, v, q))]
        assert max(map(torch.max, defects(*runs, q))) < 1e-9
        assert state_defect(*runs, q) < 1e-9


def test_scaled_gradients_see_no_gauge_at_all():
    found = survey(lambda p: ScaledGD(p, lr=1e-2, epsilon=1e-12), np.random.default_rng(0), steps=(1, 5))
    assert len(unseen(found, factor=1e5)) == len(found) - 1  # all but the twin; epsilon is seen a little
    assert len(unseen(survey(lambda p: RowAdam(p, lr=1e-2), np.random.default_rng(0), steps=(1, 5)))) == 3


def test_the_shared_scalar_is_adam_s_formula_with_a_mean():
    pair, gradients = steps(lambda p: SharedAdam(p, lr=0.1, beta1=0.8, beta2=0.9, epsilon=1e-3), 3)
    expected = factors()
    first, second = [torch.zeros_like(each) for each in expected], 0.0
    for t, both in enumerate(gradients, 1):
        second = 0.9 * second + 0.1 * torch.cat([g.flatten() for g in both]).square().mean()
        for i, g in enumerate(both):
            first[i] = 0.8 * first[i] + 0.2 * g
            expected[i] -= 0.1 * first[i] / (1 - 0.8**t) / ((second / (1 - 0.9**t)).sqrt() + 1e-3)
    assert all(torch.allclose(mine, other, atol=1e-12) for mine, other in zip(pair, expected, strict=True))


def test_rows_of_one_column_are_adam():
    def run(build):
        pair = [torch.nn.Parameter(each[:, :1].clone()) for each in factors()]
        optimizer = build(pair)
        for _ in range(4):
            optimizer.zero_grad()
            loss(pair[0] @ pair[1].T).backward()
            optimizer.step()
        return pair

    mine, stock = run(lambda p: RowAdam(p, lr=0.1)), run(lambda p: torch.optim.Adam(p, lr=0.1))
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(mine, stock, strict=True))


def test_the_first_step_of_shampoo_is_a_function_of_the_gram_matrix():
    pair, ((gradient, _),) = steps(lambda p: Shampoo(p, lr=1.0, epsilon=0.5), 1)
    values, vectors = torch.linalg.eigh(gradient @ gradient.T + 0.5 * torch.eye(5, dtype=torch.float64))
    told = vectors @ torch.diag(values.rsqrt()) @ vectors.T @ gradient
    assert torch.allclose(factors()[0] - pair[0], told, atol=1e-12)


def test_scaled_gradients_by_an_inverse():
    pair, (gradients,) = steps(lambda p: ScaledGD(p, lr=1.0, epsilon=0.1), 1)
    u, v = factors()
    eye = 0.1 * torch.eye(3, dtype=torch.float64)
    assert torch.allclose(u - pair[0], gradients[0] @ torch.linalg.inv(v.T @ v + eye), atol=1e-12)
    assert torch.allclose(v - pair[1], gradients[1] @ torch.linalg.inv(u.T @ u + eye), atol=1e-12)


def test_state_survives_saving():
    pair, _ = steps(lambda p: SharedAdam(p, lr=0.1), 2)
    optimizers = [SharedAdam(pair, lr=0.1), SharedAdam(pair, lr=0.1)]
    loss(pair[0] @ pair[1].T).backward()
    optimizers[0].step()
    optimizers[1].load_state_dict(optimizers[0].state_dict())
    assert optimizers[1].state[pair[0]]["step"] == 1
    assert torch.equal(optimizers[1].state[pair[0]]["first"], optimizers[0].state[pair[0]]["first"])


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda p: SharedAdam(p, beta1=1.0), "beta1 is 1.0"),
        (lambda p: SharedAdam(p, lr=-1.0), "lr is -1.0"),
        (lambda p: Shampoo(p, epsilon=0.0), "epsilon is 0.0"),
        (lambda p: Equivariant(p, beta1=0.5), "has no beta1"),
        (lambda p: RowAdam([torch.nn.Parameter(torch.ones(3))]), "give matrices"),
        (lambda p: SharedAdam(p, lr="fast"), "give a number"),
    ],
)
def test_bad_input_is_told(build, words):
    with pytest.raises(GllmError, match=words):
        build([torch.nn.Parameter(each) for each in factors()])


def test_pairs_stay_pairs():
    lonely = ScaledGD([torch.nn.Parameter(factors()[0])])
    lonely.param_groups[0]["params"][0].grad = torch.ones(5, 3, dtype=torch.float64)
    with pytest.raises(GllmError, match="give each pair"):
        lonely.step()


def test_a_group_without_gradients_is_left_alone():
    for rule in RULES.values():
        pair = [torch.nn.Parameter(torch.ones(3, 2)), torch.nn.Parameter(torch.ones(2, 2))]
        rule(pair).step()
        assert all(each.equal(torch.ones_like(each)) for each in pair)

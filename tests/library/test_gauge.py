"""The gauge of factors and heads, the defects of optimizers, Adam's first step, the clock; words without sizes."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
import torch

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.gauge import (
    GROUPS,
    act,
    adam_direction,
    aligned_defect,
    defects,
    exceptional_rate,
    factor_gradients,
    first_step_difference,
    gauge_image,
    on_heads,
    sample,
    scalar_flow,
    state_defect,
    survey,
    trajectory,
    unseen,
)
from gllm_lib.gauge.actions import contragredient, moved
from gllm_lib.models import GPT, Grading, gpt2_like, llama_like
from gllm_lib.proofs import Refuted
from gllm_lib.proofs.words import letters, same, unknown

ROUNDING = 1e-12  # a few thousand float64 roundings of numbers of order one


def rng(seed=0):
    return np.random.default_rng(seed)


def pair(m=5, n=4, k=3, seed=0):
    draw = rng(seed)
    return tuple(torch.from_numpy(draw.standard_normal(size)) for size in ((m, k), (n, k)))


def bowl(w):
    return w.square().sum() / 2 + w[0, 0] ** 4


@pytest.mark.parametrize("group", GROUPS)
def test_every_action_keeps_the_product(group):
    u, v = pair()
    a = sample(group, 3, rng(1))
    moved_u, moved_v = act(u, v, a)
    assert torch.allclose(moved_u @ moved_v.T, u @ v.T, atol=ROUNDING)
    assert not torch.allclose(moved_u, u)
    orthogonal = torch.allclose(a @ a.T, torch.eye(3, dtype=a.dtype))
    assert orthogonal == (group in ("signed permutations", "rotations", "reflections"))


def test_the_halves_of_the_orthogonal_group():
    for k in (1, 2, 5):
        assert torch.linalg.det(sample("rotations", k, rng(k))) == pytest.approx(1)
        assert torch.linalg.det(sample("reflections", k, rng(k))) == pytest.approx(-1)


def test_gradients_are_those_of_autograd():
    u, v = (each.requires_grad_() for each in pair())
    w = (u @ v.T).detach().requires_grad_()
    bowl(u @ v.T).backward()
    bowl(w).backward()
    mine = factor_gradients(w.grad, u.detach(), v.detach())
    assert torch.allclose(mine[0], u.grad, atol=ROUNDING)
    assert torch.allclose(mine[1], v.grad, atol=ROUNDING)


def test_a_contragredient_of_a_stack_a_sympy_matrix_and_nothing():
    a = torch.stack([sample("invertibles", 3, rng(seed)) for seed in (0, 1)])
    assert torch.allclose(contragredient(a)[1] @ a[1].T, torch.eye(3, dtype=a.dtype), atol=ROUNDING)
    assert contragredient(sympy.Matrix([[2, 1], [0, 1]])) == sympy.Matrix([[2, 1], [0, 1]]).inv().T
    with pytest.raises(InputError, match="no inverse"):
        contragredient(torch.zeros(2, 2))


def test_state_moves_by_its_shape():
    q = sample("rotations", 3, rng())
    buffer, gram = torch.ones(5, 3, dtype=q.dtype), torch.eye(3, dtype=q.dtype)
    assert torch.equal(moved(buffer, 5, q), buffer @ q)
    assert torch.allclose(moved(gram, 5, q), gram)
    assert torch.equal(moved(torch.ones(5, 1), 5, q), torch.ones(5, 1))


def run(build, a, steps=4):
    u, v = pair()
    return [trajectory(build, bowl, *start, steps) for start in ((u, v), act(u, v, a))]


def momentum(params):
    return torch.optim.SGD(params, lr=0.01, momentum=0.9)


def adam(params):
    return torch.optim.Adam(params, lr=0.01)


def test_momentum_does_not_see_a_reflection_and_adam_does():
    q = sample("reflections", 3, rng(2))
    blind, seeing = run(momentum, q), run(adam, q)
    assert max(map(torch.max, defects(*blind, q))) < 1e-10
    assert state_defect(*blind, q) < 1e-10
    assert min(map(torch.min, defects(*seeing, q))) > 1e-2
    assert state_defect(*seeing, q) > 1e-2


def test_a_trajectory_is_the_optimizer_s_own():
    u, v = pair()
    ours = trajectory(adam, bowl, u, v, 3)
    by_hand = [torch.nn.Parameter(each.clone()) for each in (u, v)]
    optimizer = adam(by_hand)
    for _ in range(3):
        optimizer.zero_grad()
        bowl(by_hand[0] @ by_hand[1].T).backward()
        optimizer.step()
    assert torch.equal(ours.u[-1], by_hand[0])
    assert torch.equal(ours.u[0], u)
    assert ours.v.shape == (4, 4, 3)


def test_a_survey_names_what_is_not_seen():
    plain = survey(momentum, rng())
    assert unseen(plain) == ["signed permutations", "rotations", "reflections"] == unseen(plain, 1)
    assert unseen(survey(adam, rng(), steps=(1, 3))) == ["signed permutations"]


def test_runs_that_cannot_be_compared_are_refused():
    u, v = pair()
    with pytest.raises(InputError, match=r"give \(m, k\) and \(n, k\)"):
        trajectory(adam, bowl, u, v[:, :2], 1)
    with pytest.raises(InputError, match="leaves the finite numbers"):
        trajectory(lambda p: torch.optim.SGD(p, lr=1e6), bowl, u, v, 30)
    still = trajectory(adam, lambda w: 0 * w.sum(), u, v, 1)
    with pytest.raises(InputError, match="stands still"):
        defects(still, still, torch.eye(3, dtype=u.dtype))
    with pytest.raises(InputError, match="choose from"):
        sample("translations", 3, rng())


@pytest.mark.parametrize("rate", [0.1, 1.5])
def test_adam_s_first_step_differs_by_the_formula(rate):
    q, epsilon = sample("rotations", 3, rng(3)), 0.1
    ours, image = run(lambda p: torch.optim.Adam(p, lr=rate, eps=epsilon), q, steps=1)
    u, v = pair()
    w = (u @ v.T).requires_grad_()
    bowl(w).backward()
    gradients = factor_gradients(w.grad, u, v)
    directions = [adam_direction(each, epsilon) for each in gradients]
    deltas = [aligned_defect(lambda g: adam_direction(g, epsilon), each, q) for each in gradients]
    told = first_step_difference(u, v, directions, deltas, rate)
    assert torch.allclose(image.u[1] @ image.v[1].T - ours.u[1] @ ours.v[1].T, told, atol=1e-10)
    assert told.norm() > 0.01


def test_the_exceptional_rate():
    epsilon, root = sympy.Symbol("e", positive=True), 1 / sympy.sqrt(2)
    rate = exceptional_rate(epsilon, root)
    gap = (1 - rate / (1 + epsilon)) ** 2 - (1 - rate / (root + epsilon)) ** 2
    assert sympy.simplify(gap) == 0
    assert exceptional_rate(1e-8) == pytest.approx(2 * (2**0.5 - 1), abs=1e-7)


def test_the_clock_makes_a_scaled_flow_gradient_flow():
    def gradient(y):
        return np.array([y[0], 4 * y[1]])

    times = np.linspace(0, 3, 7)
    tau, theta = scalar_flow(gradient, [1.0, 2.0], times, lambda t, y: 1 + t)
    assert np.allclose(tau, np.log1p(times), atol=1e-9)
    assert np.allclose(theta, np.exp(-np.outer(tau, [1, 4])) * [1, 2], atol=1e-9)
    plain, _ = scalar_flow(gradient, [1.0, 2.0], times)
    assert np.allclose(plain, times)


def test_flows_that_make_no_sense_are_refused():
    with pytest.raises(InputError, match="ascend"):
        scalar_flow(lambda y: y, [1.0], [0, 1, 1])
    with pytest.raises(InputError, match="must be positive"):
        scalar_flow(lambda y: y, [1.0], [0, 1], lambda t, y: -1.0)
    with pytest.raises(InputError, match="end the times before"):
        scalar_flow(lambda y: -(y**2), [1.0], [0, 2])


def matrices(groups, layers=2, heads=2, k=4):
    draw = rng(7)
    return [
        torch.stack([torch.stack([sample(g, k, draw) for _ in range(heads)]) for _ in range(layers)]) for g in groups
    ]


def planes(k=4):
    """Matrices that turn and stretch each rotary plane (j, j + K/2) by itself."""
    size, angle = torch.rand(2, 2, 1, k // 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64).add(0.5)
    a, b = torch.diag_embed(size * angle.cos()), torch.diag_embed(size * angle.sin())
    stacked = torch.cat((torch.cat((a, b), -1), torch.cat((-b, a), -1)), -2)
    return stacked.expand(2, 2, k, k).contiguous()


def outputs(model):
    return model(torch.arange(6).remainder(5)[None])


def model(maker, **changes):
    config = maker(16, 8, 8, 2, 2, **changes)
    made = GPT(config, generator=torch.Generator().manual_seed(3)).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(4)) * 0.3)
    return made


def test_an_image_of_a_model_computes_the_same():
    made = model(gpt2_like)
    image = gauge_image(made, *matrices(["invertibles", "invertibles"]))
    assert torch.allclose(outputs(image), outputs(made), atol=1e-10)
    assert not torch.allclose(image.blocks[0].attention.qkv.weight, made.blocks[0].attention.qkv.weight)
    assert not torch.allclose(image.blocks[0].attention.qkv.bias, made.blocks[0].attention.qkv.bias)


def test_rotary_positions_leave_planes_and_norms_leave_rotations():
    rotary, normed = model(llama_like), model(gpt2_like, qk_norm=True)
    free, turned = matrices(["invertibles", "rotations"])
    assert torch.allclose(outputs(gauge_image(rotary, planes(), free)), outputs(rotary), atol=1e-10)
    assert torch.allclose(outputs(gauge_image(normed, turned, free)), outputs(normed), atol=1e-10)
    with pytest.raises(InputError, match="planes singly"):
        gauge_image(rotary, turned, free)
    with pytest.raises(InputError, match="orthogonal"):
        gauge_image(normed, free, free)
    with pytest.raises(InputError, match="twice"):
        gauge_image(rotary, free[:1], free)
    with pytest.raises(InputError, match="use neither"):
        gauge_image(model(gpt2_like, grading=Grading(embedding=(0.0,))), turned, free)


def test_heads_side_by_side():
    weight, (a,) = torch.arange(24.0).view(3, 8), matrices(["rotations"], layers=1)
    told = torch.cat([weight[:, :4].double() @ a[0, 0], weight[:, 4:].double() @ a[0, 1]], dim=1)
    assert torch.allclose(on_heads(weight.double(), a[0]), told)
    with pytest.raises(InputError, match="give"):
        on_heads(weight[:, :7], a[0])


def test_words_cancel_and_nothing_else():
    u, q, a = letters("U Q A", orthogonal="Q", invertible="A")
    assert str((u @ q) @ (u @ q).T - u @ u.T) == "0"
    assert str(u @ a @ a.inv() - u) == "0"
    assert str(a @ a.T) == "(1) A A'"
    eta = sympy.Symbol("eta")
    assert str((eta * u - eta**2 * u) + eta**2 * u - eta * u) == "0"
    assert str((q.T @ a).inv() - a.inv() @ q) == "0"
    assert str((2 * a).inv()) == "(1/2) A^-1"
    (s,) = letters("S", symmetric="S")
    assert str(s.T - s) == "0"


def test_unknown_functions_are_equal_where_their_arguments_are():
    u, v, q = letters("U V Q", orthogonal="Q")
    assert same(unknown("F", u @ q @ (v @ q).T), unknown("F", u @ v.T)) == 1
    assert same(unknown("F", u + v), unknown("F", v + u)) == 1
    with pytest.raises(Refuted, match="is left"):
        same(unknown("F", u), unknown("F", v))


def test_words_refuse_what_they_do_not_know():
    u, q = letters("U Q", orthogonal="Q")
    with pytest.raises(InputError, match="call it invertible"):
        u.inv()
    with pytest.raises(InputError, match="single product"):
        (u + q).inv()
    with pytest.raises(InputError, match="not among"):
        letters("U V", orthogonal="Q")


def test_words_agree_with_matrices():
    """Any formula in words is one of matrices: (A + 2 U Q)(U Q)^T by numbers."""
    numbers = {
        "A": sample("invertibles", 3, rng(1)),
        "Q": sample("rotations", 3, rng(2)),
        "U": sample("rotations", 3, rng(3)),
    }
    a, q, u = letters("A Q U", orthogonal="Q", invertible="A")
    total = torch.zeros(3, 3, dtype=torch.float64)
    for word, c in ((a + 2 * (u @ q)) @ (u @ q).T).terms.items():
        product = torch.eye(3, dtype=torch.float64)
        for each in word:
            product = product @ (numbers[each.name].T if each.transposed else numbers[each.name])
        total += float(c) * product
    a, q, u = numbers["A"], numbers["Q"], numbers["U"]
    assert torch.allclose(total, (a + 2 * u @ q) @ (u @ q).T)


def test_randomness_is_an_argument():
    assert torch.equal(sample("rotations", 4, rng(5)), sample("rotations", 4, rng(5)))
    with pytest.raises(InputTypeError, match="default_rng"):
        sample("rotations", 4, 5)

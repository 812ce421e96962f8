"""Muon against torch's, entry by entry against its rules, and what it refuses."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim import _muon

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.optim import Muon, MuonOptions, equilibrate, polar
from gllm_lib.optim.muon import rate_scale

SHAPES = [(6, 4), (4, 6), (6, 4), (5, 5), (1, 3)]
STEPS, RATE, DECAY = 4, 0.1, 0.3
EXACT = MuonOptions(polar_dtype="float64")
UNIT = torch.finfo(torch.float64).eps


def parameters(shapes=SHAPES, dtype=torch.float64, seed=0):
    source = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, dtype=dtype, generator=source)) for shape in shapes]


def gradients(shapes=SHAPES, steps=STEPS, dtype=torch.float64, seed=1):
    source = torch.Generator().manual_seed(seed)
    return [[torch.randn(shape, dtype=dtype, generator=source) for shape in shapes] for _ in range(steps)]


def run(params, optimizer, rows):
    for row in rows:
        for each, grad in zip(params, row, strict=True):
            each.grad = grad.clone()
        optimizer.step()
    return [each.detach().clone() for each in params]


def one(gradient, options, momentum=0.9, lr=1.0, **more):
    """The first update of a zero matrix: minus what is taken off."""
    weight = torch.nn.Parameter(torch.zeros_like(gradient))
    optimizer = Muon([weight], options, lr=lr, weight_decay=0.0, momentum=momentum, **more)
    return -run([weight], optimizer, [[gradient]])[0], optimizer.state[weight]


# torch's own


@pytest.fixture
def wide_torch(monkeypatch):
    """torch's Muon with its products in float64 instead of bfloat16, and nothing else changed."""
    source = inspect.getsource(_muon._zeropower_via_newtonschulz)
    assert source.count(".bfloat16()") == 1
    space = dict(vars(_muon))
    exec(source.replace(".bfloat16()", ".double().clone()"), space)  # it divides in place what the cast copied
    monkeypatch.setattr(_muon, "_zeropower_via_newtonschulz", space["_zeropower_via_newtonschulz"])


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("scale", ["original", "match_rms_adamw"])
def test_it_is_torchs_muon_where_the_definitions_coincide(wide_torch, nesterov, scale):
    ours, theirs = parameters(), parameters()
    reference = torch.optim.Muon(
        theirs, lr=RATE, weight_decay=DECAY, momentum=0.9, nesterov=nesterov, adjust_lr_fn=scale
    )
    options = MuonOptions(polar_dtype="float64", nesterov=nesterov, scale=scale)
    muon = Muon(ours, options, lr=RATE, weight_decay=DECAY, momentum=0.9)
    # A step of the quintic moves a difference of its argument by a factor below 4 (its slope is at most 3.45 on [0, 1]
    # and 3.9 to 1.21, where it stays) and adds rounding of its products, below 100 units a matrix norm below 3; five
    # steps end below 4^5 / 3 as much. The rate is at most RATE * sqrt(6 / 4), and four updates add up.
    bound = STEPS * RATE * math.sqrt(1.5) * 4**5 / 3 * 100 * 3 * UNIT
    for mine, other in zip(run(ours, muon, gradients()), run(theirs, reference, gradients()), strict=True):
        assert (mine - other).abs().max() <= bound
    assert all(
        (muon.state[a]["momentum"] == reference.state[b]["momentum_buffer"]).all()
        for a, b in zip(ours, theirs, strict=True)
    )


def test_where_bfloat16_is_exact_it_has_the_bits_of_torchs_muon():
    source = np.random.default_rng(0)
    signs = [torch.from_numpy(np.eye(n)[source.permutation(n)] * source.choice([-1, 1], n)).float() for n in (4, 16, 4)]
    rows = [[sign * float(factor) for sign in signs] for factor in source.uniform(0.5, 2, STEPS)]
    ours, theirs = (parameters([sign.shape for sign in signs], torch.float32) for _ in range(2))
    muon = Muon(ours, lr=RATE, weight_decay=DECAY, momentum=0.9)
    reference = torch.optim.Muon(theirs, lr=RATE, weight_decay=DECAY, momentum=0.9)
    for mine, other in zip(run(ours, muon, rows), run(theirs, reference, rows), strict=True):
        assert mine.equal(other)  # norms are 2 and 4 times one entry, and every product has one term


def test_bfloat16_is_no_further_from_the_exact_step_than_torchs():
    rows = gradients([(24, 16)], 1, torch.float32)
    exact = one(rows[0][0].double(), EXACT)[0]
    weight = torch.nn.Parameter(torch.zeros(24, 16))
    reference = -run([weight], torch.optim.Muon([weight], lr=1.0, weight_decay=0.0), rows)[0]
    mine = one(rows[0][0], MuonOptions())[0]
    assert 0 < (mine - exact).norm() <= 1.5 * (reference - exact).norm()  # torch rounds norm and quotient as well


# one rule at a time


def test_stacks_do_not_show():
    together, alone = parameters(), parameters()
    both = run(together, Muon(together, EXACT), gradients())
    for i, weight in enumerate(alone):
        assert run([weight], Muon([weight], EXACT), [[row[i]] for row in gradients()])[0].allclose(
            both[i], rtol=1e3 * UNIT, atol=1e3 * UNIT
        )


def test_sum_and_average_are_one_direction_while_momentum_stays():
    average, total = parameters(), parameters()
    left = run(average, Muon(average, EXACT, momentum=0.9), gradients())
    right = run(total, Muon(total, MuonOptions(polar_dtype="float64", average=False), momentum=0.9), gradients())
    assert all(a.allclose(b, rtol=0, atol=1e-9) for a, b in zip(left, right, strict=True))
    ramped = []
    for average in (True, False):
        weights = parameters()
        muon = Muon(weights, MuonOptions(polar_dtype="float64", average=average), lr=RATE, momentum=0.2)
        run(weights, muon, gradients()[:2])
        muon.param_groups[0]["momentum"] = 0.9
        ramped.append(run(weights, muon, gradients()[2:]))
    assert max((a - b).abs().max() for a, b in zip(*ramped, strict=True)) > 1e-3


@given(passes=st.integers(1, 3), alpha=st.floats(0.05, 1), by=st.sampled_from(["exponent", "blend"]))
@settings(max_examples=20)
def test_equilibration_comes_before_the_polar_step(passes, alpha, by):
    options = MuonOptions(polar_dtype="float64", equilibrate=passes, homotopy=by, nesterov=False)
    matrix = gradients([(5, 5)], 1)[0][0]
    expected = polar(equilibrate(0.1 * matrix, alpha, passes, by=by), "muon", safety=1, dtype=torch.float64)
    assert one(matrix, options, alpha=alpha)[0].allclose(expected, atol=1e-12)
    onto = MuonOptions(polar_dtype="float64", equilibrate=passes, homotopy=by, equilibrate_on="momentum")
    inner = 0.1 * matrix + 0.9 * equilibrate(0.1 * matrix, alpha, passes, by=by)
    assert one(matrix, onto, alpha=alpha)[0].allclose(polar(inner, "muon", safety=1, dtype=torch.float64), atol=1e-12)


def test_alpha_zero_leaves_the_momentum_as_it_is():
    matrix = gradients([(5, 5)], 1)[0][0]
    assert one(matrix, MuonOptions(equilibrate=2), alpha=0.0)[0].equal(one(matrix, MuonOptions())[0])


@pytest.mark.parametrize(
    ("shape", "kind", "axis"),
    [((6, 4), "longer", 1), ((4, 6), "longer", 0), ((4, 4), "longer", 1), ((4, 6), "rows", 1), ((6, 4), "columns", 0)],
)
def test_the_second_moment_keeps_the_norm_and_evens_one_side_at_first(shape, kind, axis):
    matrix = gradients([shape], 1)[0][0]
    plain = one(matrix, MuonOptions(polar_dtype="float64", scale="none"))[0]
    evened, state = one(matrix, MuonOptions(polar_dtype="float64", scale="none", second_moment=kind))
    assert evened.norm().item() == pytest.approx(plain.norm().item(), rel=1e-12)
    sizes = evened.norm(dim=axis)
    assert sizes.tolist() == pytest.approx([sizes[0].item()] * len(sizes), rel=1e-12)
    assert plain.norm(dim=axis).std() > 1e-2  # it had something to do
    assert state["second"].shape == plain.mean(axis, keepdim=True).shape
    assert state["second"].squeeze(axis).allclose(0.05 * plain.square().mean(axis), rtol=1e-12)


def test_the_second_moment_remembers():
    rows, options = gradients([(3, 4)], 2), MuonOptions(polar_dtype="float64", second_moment="rows", beta2=0.5)
    weight = torch.nn.Parameter(torch.zeros(3, 4, dtype=torch.float64))
    muon = Muon([weight], options, lr=1.0, weight_decay=0.0, momentum=0.0)
    first = run([weight], muon, rows[:1])[0]
    second = run([weight], muon, rows[1:])[0] - first
    pieces = [polar(row[0], "muon", safety=1, dtype=torch.float64) for row in rows]
    means = [piece.square().mean(1, keepdim=True) for piece in pieces]
    scaled = pieces[1] / (0.25 * means[0] + 0.5 * means[1]).sqrt()
    assert (-second).allclose(scaled * pieces[1].norm() / scaled.norm(), rtol=1e-12)


@pytest.mark.parametrize("cautious", [True, False])
@pytest.mark.parametrize("scale_decay", [True, False])
def test_decay_pulls_what_its_rule_says(cautious, scale_decay):
    options = MuonOptions(polar_dtype="float64", cautious=cautious, scale_decay=scale_decay)
    (weight,), rows = parameters([(6, 4)]), gradients([(6, 4)], 1)
    before, move = weight.detach().clone(), one(rows[0][0], options, lr=RATE)[0]
    after = run([weight], Muon([weight], options, lr=RATE, weight_decay=DECAY, momentum=0.9), rows)[0]
    shared = (move * before >= 0) if cautious else torch.ones_like(before)
    assert 0 < (move * before >= 0).sum() < before.numel()
    decay = RATE * DECAY * (math.sqrt(1.5) if scale_decay else 1)
    assert after.allclose(before - move - decay * before * shared, rtol=0, atol=16 * UNIT)  # entries below 4


def test_rates_scale_with_shape():
    assert [rate_scale("original", *shape) for shape in [(9, 4), (4, 9), (4, 4)]] == [1.5, 1.0, 1.0]
    assert rate_scale("match_rms_adamw", 100, 25) == rate_scale("match_rms_adamw", 25, 100) == 2.0
    assert rate_scale("none", 9, 4) == 1.0


def test_a_saved_state_goes_on_with_the_same_bits():
    options = MuonOptions(second_moment="longer", equilibrate=2)
    whole, cut = parameters(), parameters()
    expected = run(whole, Muon(whole, options), gradients())
    first = Muon(cut, options)
    run(cut, first, gradients()[:2])
    second = Muon(cut, options)
    second.load_state_dict(first.state_dict())
    assert all(a.equal(b) for a, b in zip(expected, run(cut, second, gradients()[2:]), strict=True))


def test_a_closure_is_asked_and_parameters_without_gradient_stay():
    weights = parameters()
    before = [each.detach().clone() for each in weights]
    weights[0].grad = torch.ones(6, 4, dtype=torch.float64)
    assert Muon(weights).step(lambda: torch.is_grad_enabled()) is True
    assert not weights[0].equal(before[0])
    assert all(each.equal(old) for each, old in zip(weights[1:], before[1:], strict=True))


def test_a_zero_gradient_moves_nothing_and_stays_finite():
    weight = torch.nn.Parameter(torch.ones(3, 2))
    options = MuonOptions(equilibrate=2, second_moment="longer", cautious=True, safety=1.02)
    assert run([weight], Muon([weight], options, weight_decay=0.0), [[torch.zeros(3, 2)]])[0].equal(torch.ones(3, 2))


# what is refused


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"polar": "newton"}, InputError, "^polar is 'newton'; give one of polar-express"),
        ({"polar": [[]]}, InputError, r"^polar is \[\[\]\]; .* at least one coefficient"),
        ({"polar": 3}, InputTypeError, "^polar is 3; give one of"),
        ({"polar": [[1.5, "x"]]}, InputTypeError, r"^polar\[0\] is 'x'"),
        ({"polar_dtype": "float16"}, InputError, "choose from 'float32', 'bfloat16'"),
        ({"equilibrate": -1}, InputError, "equilibrate is -1"),
        ({"homotopy": "line"}, InputError, "homotopy is 'line'"),
        ({"equilibrate_on": "gradient"}, InputError, "'update', 'momentum'"),
        ({"second_moment": "row"}, InputError, "'longer', 'rows', 'columns'"),
        ({"beta2": 1.0}, InputError, "beta2 is 1.0; .* below 1"),
        ({"safety": 0.9}, InputError, "safety is 0.9"),
        ({"epsilon": 0.0}, InputError, "epsilon is 0.0"),
        ({"scale": "rms"}, InputError, "'match_rms_adamw', 'none'"),
        ({"nesterov": 1}, InputTypeError, "nesterov is 1; give True or False"),
    ],
)
def test_options_that_mean_nothing_are_refused(changes, error, told):
    with pytest.raises(error, match=told):
        MuonOptions(**changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lr": -1.0}, "lr is -1"),
        ({"weight_decay": math.nan}, "weight_decay is nan"),
        ({"momentum": 1.0}, "momentum is 1.0; .* below 1"),
        ({"alpha": 1.5}, "alpha is 1.5"),
    ],
)
def test_numbers_out_of_range_are_refused(changes, told):
    with pytest.raises(InputError, match=told):
        Muon(parameters(), **changes)


def test_what_is_no_matrix_is_refused_and_not_kept():
    muon = Muon(parameters())
    with pytest.raises(InputError, match=r"shape \(3,\); Muon steps matrices"):
        muon.add_param_group({"params": [torch.nn.Parameter(torch.zeros(3))]})
    with pytest.raises(InputError, match=r"shape \(0, 3\); Muon steps matrices with entries"):
        muon.add_param_group({"params": [torch.nn.Parameter(torch.zeros(0, 3))]})
    assert len(muon.param_groups) == 1
    with pytest.raises(InputTypeError, match="options are a dict"):
        Muon(parameters(), {"nesterov": True})


def test_gradients_it_cannot_step_are_refused():
    table = torch.nn.Embedding(4, 3, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(InputTypeError, match="sparse"):
        Muon(table.parameters()).step()
    weight = torch.nn.Parameter(torch.ones(2, 2))
    with pytest.raises(InputError, match="not finite"):
        run([weight], Muon([weight]), [[torch.full((2, 2), math.nan)]])
    assert weight.equal(torch.ones(2, 2))

"""Closed forms of what a run costs, against tensors that are counted, products that are run, and sums by hand."""

from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from gllm_lib.analysis import accounting
from gllm_lib.analysis.accounting import MIB, Tables, Trainer
from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.models import GPT, gpt2_like, llama_like
from tests.library.small_models import seeded

DEPTHS = (6, 8)
SMALL = Trainer(3, 8, vocabulary=11, context=16, head_width=4, gate_channels=3, tokens=32)
trainers = st.builds(
    lambda depth, heads, head_width, vocabulary, pattern, gate: Trainer(
        depth,
        heads * head_width,
        vocabulary=vocabulary,
        context=64,
        head_width=head_width,
        pattern=pattern,
        gate_channels=min(gate, heads * head_width),
        tokens=128,
    ),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(1, 8),
    st.integers(1, 40),
    st.text("SL", min_size=1, max_size=5),
    st.integers(1, 6),
)


def tensors(trainer):
    """Every tensor of the trainer's model, made without memory, under the name of its kind."""
    width, shapes = trainer.width, []
    with torch.device("meta"):
        shapes += [("wte", nn.Embedding(trainer.vocabulary, width))]
        shapes += [("lm_head", nn.Linear(width, trainer.vocabulary, bias=False))]
        for block in range(trainer.depth):
            shapes += [("matrices", nn.Linear(width, width, bias=False)) for _ in range(4)]
            shapes += [("matrices", nn.Linear(width, 4 * width, bias=False))]
            shapes += [("matrices", nn.Linear(4 * width, width, bias=False))]
            shapes += [("scalars", nn.ParameterList([torch.empty(1), torch.empty(1)]))]
            if block % 2 == (trainer.depth - 1) % 2:
                shapes += [("value_embeds", nn.Embedding(trainer.vocabulary, width))]
                shapes += [("gates", nn.Linear(trainer.gate_channels, trainer.heads, bias=False))]
    counted: dict[str, int] = {}
    for name, module in shapes:
        counted[name] = counted.get(name, 0) + sum(each.numel() for each in module.parameters())
    return counted | {"total": sum(counted.values())}


@given(trainers)
@settings(max_examples=60, deadline=None)
def test_the_closed_form_counts_every_tensor(trainer):
    assert tensors(trainer) == accounting.trainer_parameters(trainer)


@pytest.mark.parametrize(("depth", "total"), [(6, 26_345_772), (8, 50_332_176)])
def test_the_totals_of_the_source(depth, total):
    trainer = Trainer.of_depth(depth)
    assert accounting.trainer_parameters(trainer)["total"] == total
    assert trainer.windows == (1024, 1024, 1024, 2048, 1024, *(1024, 1024)[: depth - 6], 2048)


def test_width_follows_depth_up_to_a_multiple_of_the_head():
    assert [Trainer.of_depth(depth).width for depth in (1, 2, 3, 7)] == [128, 128, 256, 512]
    assert Trainer.of_depth(3, head_width=64).width == 192
    assert Trainer.of_depth(4, width=384).width == 384


@given(st.integers(1, 500), st.integers(1, 9), st.integers(2, 5), st.integers(1, 3))
def test_tables_count_every_entry(modulus, columns, order, per_order):
    number = per_order * (order - 1)
    tables = Tables(modulus, columns * number, order, per_order)
    assert tables.parameters == sum(np.empty((rows, columns)).size for rows in tables.rows)
    assert tables.parameters == (modulus + number - 1) * tables.width
    assert len(tables.rows) == number
    held = accounting.table_bytes(tables, moments=8)
    kept = [np.empty((rows, columns), np.float16) for rows in tables.rows]
    counts = [np.empty(rows, np.float32) for rows in tables.rows]
    moments = [np.empty((2, rows, columns), np.float32) for rows in tables.rows]
    assert held["weights"] == held["gradients"] == sum(each.nbytes for each in kept)
    assert held["counts"] == sum(each.nbytes for each in counts)
    assert held["moments"] == sum(each.nbytes for each in moments)
    assert held["total"] == sum(each for name, each in held.items() if name != "total")


@pytest.mark.parametrize(("window", "context"), list(product((0, 1, 3, 7, 8, 20), (1, 2, 8))))
def test_attended_pairs_are_what_a_mask_lets_through(window, context):
    behind = np.subtract.outer(np.arange(context), np.arange(context))
    assert accounting.attended_pairs(window, context) == ((behind >= 0) & (behind <= window)).sum()


@pytest.mark.parametrize("make", [gpt2_like, llama_like])
def test_products_of_our_model_are_what_a_counter_sees(make):
    config = make(29, 12, 16, 3, 2)
    gated = config.feed_forward == "swiglu"
    model, tokens = GPT(config, generator=seeded()), torch.randint(0, 29, (2, 12), generator=seeded())
    matrices = accounting.decoder_matrices(3, 16, config.hidden_width, 29, gated=gated)
    expected = accounting.model_flops(matrices, 16, [12] * 3, tokens.numel(), passes=1)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        loss = model(tokens).square().sum()
    assert counter.get_total_flops() == sum(expected.values())
    with FlopCounterMode(display=False) as counter:
        loss.backward()
    assert counter.get_total_flops() == 2 * sum(expected.values())


@pytest.mark.parametrize("shape", [(5, 5), (4, 9), (9, 4)])
def test_polar_products_are_what_a_counter_sees(shape):
    x = torch.randn(shape, generator=seeded())
    x = x if shape[0] <= shape[1] else x.T
    with FlopCounterMode(display=False) as counter:
        for _ in range(3):
            square = x @ x.T
            x = x + (square + square @ square) @ x * 1e-3
    assert accounting.polar_flops(*shape, steps=3) == counter.get_total_flops()


def test_costs_of_the_source():
    for depth, step, whitening, lookup, write, scale in (
        (6, 63.0854, 24.3816, 1.6106, 0.2896, 4.8318),
        (8, 125.3459, 51.8967, 2.1475, 0.3862, 8.5899),
    ):
        trainer = Trainer.of_depth(depth)
        extra = accounting.extra_flops(trainer, Tables(150_855, trainer.width))
        assert round(sum(accounting.step_flops(trainer).values()) / 1e12, 4) == step
        parts = [round(extra[name] / 1e9, 4) for name in ("whitening", "lookup", "write", "query scale")]
        assert parts == [whitening, lookup, write, scale]
        assert extra["equilibration"] == 16 * 12 * trainer.width**2 * depth
        assert extra["polar steps"] == 300 * trainer.width**3 * depth  # 60 D^3 a block and step, five steps
        assert accounting.widening_bytes(trainer) == {6: 96, 8: 160}[depth] * MIB
        assert accounting.extra_flops(trainer)["lookup"] == accounting.extra_flops(trainer)["write"] == 0


@given(st.integers(0, 10**6), st.integers(0, 6), st.fractions(-2, 2))
def test_agreement_counts_units_of_the_last_digit(number, digits, off):
    shown = f"{number / 10**digits:.{digits}f}"
    told = accounting.agreement(shown, Fraction(number) / 10**digits + off / 10**digits)
    assert told == ("agrees" if abs(off) <= 0.5 else "within rounding" if abs(off) <= 1 else "does not reproduce")


@pytest.mark.parametrize("printed", ["", "1.2.3", "x", "-1", "1e3", 1.5, None])
def test_agreement_takes_digits_only(printed):
    with pytest.raises(InputError, match="give the digits as a string"):
        accounting.agreement(printed, 1)


def test_state_of_adamw_is_what_torch_keeps():
    parameter = nn.Parameter(torch.ones(7, 3))
    optimizer = torch.optim.AdamW([parameter])
    parameter.sum().backward()
    optimizer.step()
    kept = optimizer.state[parameter]
    moments = kept["exp_avg"].nbytes + kept["exp_avg_sq"].nbytes
    held = accounting.state_bytes(21)
    assert (held["weights"], held["gradients"], held["moments"]) == (parameter.nbytes, parameter.grad.nbytes, moments)
    assert held["total"] == 16 * 21
    assert accounting.state_bytes(0, weight=0) == {"weights": 0, "gradients": 0, "moments": 0, "total": 0}


def test_configurations_are_frozen_and_compare_by_value():
    with pytest.raises(FrozenInstanceError):
        SMALL.depth = 4
    assert replace(SMALL, depth=4) == Trainer(4, 8, 11, 16, 4, "SSSL", 3, 32)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: Trainer(0, 128), InputError, "depth is 0"),
        (lambda: Trainer(True, 128), InputTypeError, "depth is True"),
        (lambda: Trainer(2.0, 128), InputTypeError, "depth is 2.0"),
        (lambda: Trainer.of_depth("6"), InputTypeError, "depth is '6'"),
        (lambda: Trainer.of_depth(6, head_width=0), InputError, "head_width is 0"),
        (lambda: Trainer(6, 100), InputError, "choose a multiple"),
        (lambda: Trainer(6, 128, gate_channels=129), InputError, "at most the 128 channels"),
        (lambda: Trainer(6, 128, pattern=""), InputError, "give letters S"),
        (lambda: Trainer(6, 128, pattern="SXL"), InputError, "give letters S"),
        (lambda: Trainer(6, 128, pattern=["S"]), InputTypeError, "such as 'SSSL'"),
        (lambda: Trainer(6, 128, context=7), InputError, "make it even"),
        (lambda: Tables(0, 4), InputError, "modulus is 0"),
        (lambda: Tables(5, 6), InputError, "divided by 4 tables"),
        (lambda: Tables(5, 8, order=1), InputError, "order is 1"),
        (lambda: accounting.extra_flops(SMALL, Tables(5, 16)), InputError, "give both the same width"),
        (lambda: accounting.whitening_flops(float("nan"), 4), InputTypeError, "rows is nan"),
        (lambda: accounting.attended_pairs(-1, 4), InputError, "window is -1"),
        (lambda: accounting.model_flops(4, 4, [4, 0], 4), InputError, r"windows\[1\] is 0"),
        (lambda: accounting.state_bytes(4, moments=-8), InputError, "bytes of moments is -8"),
        (lambda: accounting.decoder_matrices(1, 4, 0, 4), InputError, "hidden is 0"),
        (lambda: accounting.model_flops(4, 4, 4, 4), InputTypeError, "windows are 4; give a tuple"),
        (lambda: accounting.agreement("0.5", 0.5), InputTypeError, "give a whole number or a Fraction"),
        (lambda: accounting.agreement("0.5", float("nan")), InputTypeError, "exact is nan"),
        (lambda: accounting.trainer_parameters(Tables(5, 8)), InputTypeError, "trainer is a Tables; give the Trainer"),
        (lambda: accounting.table_bytes(SMALL), InputTypeError, "tables is a Trainer; give the Tables"),
        (lambda: accounting.extra_flops(SMALL, SMALL), InputTypeError, "tables is a Trainer"),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(call, error, words):
    with pytest.raises(error, match=words):
        call()

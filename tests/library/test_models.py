"""The transformer: its equations, its shapes, its counts, and what it starts from."""

import json
import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.models import GLLM_7B, GLLM_MEDIUM, GPT, GPTConfig, Grading, gpt2_like, llama_like, parameter_count
from gllm_lib.models.attention import rotate
from gllm_lib.models.position import rotary_tables, sinusoidal_table
from tests.library.small_models import (
    CONTEXT,
    EPS,
    HEADS,
    SMALL,
    VOCABULARY,
    WIDTH,
    K,
    build,
    configs,
    orthogonal,
    seeded,
    tokens_of,
    tolerance,
    written_out,
)


@settings(max_examples=60)
@given(config=configs())
def test_every_combination_runs_counts_and_learns(config):
    model, tokens = build(config), tokens_of()
    logits = model(tokens)
    assert logits.shape == (2, CONTEXT, VOCABULARY)
    assert logits.isfinite().all()
    (logits * torch.randn(logits.shape, generator=seeded(1))).sum().backward()
    learned = {f"grading.{part}" for part in config.grading.learned} if config.grading else set()
    parameters = dict(model.named_parameters())
    assert {name for name in parameters if name.startswith("grading.")} - {"grading.projection"} == learned
    for name in learned:
        assert (parameters[name].grad != 0).all(), name
    assert all(parameter.grad is not None for parameter in parameters.values())
    assert parameter_count(config)["total"] == sum(parameter.numel() for parameter in parameters.values())
    assert GPTConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_parts_of_the_parameter_count():
    grading = Grading(projection=True, embedding=[0], learned=["embedding"])
    config = gpt2_like(*SMALL, head_bias=True, tied=False, grading=grading)
    parts = {
        "embedding": "embedding.", "position": "position.", "attention": ".attention.", "feed_forward": ".ffn.",
        "norms": "norm.", "head": "head.", "grades": "grading.embedding", "projections": "grading.projection",
    }  # fmt: skip
    count, left = parameter_count(config), {name: p.numel() for name, p in build(config).named_parameters()}
    for part in reversed(parts):
        mine = [name for name in left if parts[part] in name]
        assert count[part] == sum(left.pop(name) for name in mine), part
    assert not left


def test_planned_sizes_have_the_known_counts():
    # GPT-2 medium and LLaMA 7B as published; the additions are the sums of GLLM Sec. 8.1.3, before its rounding
    for config, plain, added in ((GLLM_MEDIUM, 354_823_168, 1_124_433), (GLLM_7B, 6_738_415_616, 16_944_384)):
        count = parameter_count(config)
        assert parameter_count(config.uniform())["total"] == plain
        assert count["grades"] + count["projections"] == added
        assert count["total"] == plain + added
        with torch.device("meta"):
            assert sum(p.numel() for p in GPT(config, generator=seeded()).parameters()) == count["total"]


@pytest.mark.parametrize(("width", "gated"), [(12, 32), (64, 176), (128, 344), (4096, 10928)])
def test_hidden_width_where_none_is_given(width, gated):
    assert gpt2_like(VOCABULARY, CONTEXT, width, 2, HEADS).hidden_width == 4 * width
    assert llama_like(VOCABULARY, CONTEXT, width, 2, HEADS).hidden_width == gated  # 8/3 width, up to a multiple of 8
    assert llama_like(VOCABULARY, CONTEXT, width, 2, HEADS, hidden=9).hidden_width == 9


def test_state_names():
    block = ["attention_norm", "attention.qkv", "attention.out", "ffn_norm", "ffn.up", "ffn.down"]
    names = {f"blocks.{i}.{name}.{kind}" for i, name, kind in product(range(2), block, ("weight", "bias"))}
    gpt2 = GPT(gpt2_like(*SMALL), generator=seeded())
    assert set(gpt2.state_dict()) == names | {"embedding.weight", "position.table", "norm.weight", "norm.bias"}
    names = {f"blocks.{i}.{name}.weight" for i, name in product(range(2), [*block, "ffn.gate"])}
    llama = GPT(llama_like(*SMALL, head_bias=True), generator=seeded())
    assert set(llama.state_dict()) == names | {"embedding.weight", "norm.weight", "head.weight", "head.bias"}
    grading = Grading(heads=[0] * K, embedding=[0], output=[0] * VOCABULARY, projection=True)
    graded = GPT(gpt2_like(*SMALL, grading=grading), generator=seeded())
    added = {f"grading.{part}" for part in ("heads", "embedding", "output", "projection")}
    assert set(graded.state_dict()) == set(gpt2.state_dict()) | added
    assert {f"grading.{name}": grades.shape for name, grades in graded.grades().items()} == {
        "grading.heads": (2, HEADS, K), "grading.embedding": (WIDTH,), "grading.output": (VOCABULARY,),
        "grading.projection": (WIDTH, WIDTH),
    }  # fmt: skip
    assert gpt2.grades() == {}


def test_one_seed_gives_one_model_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    first, second = (GPT(gpt2_like(*SMALL), generator=seeded(3)) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    graded = GPT(gpt2_like(*SMALL, grading=Grading(heads=[0, 1] * 3, projection=True)), generator=seeded(3))
    other = GPT(gpt2_like(*SMALL), generator=seeded(4))
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])
        assert torch.equal(value, graded.state_dict()[name])  # arms of a comparison start from the same weights
    assert not torch.equal(first.embedding.weight, other.embedding.weight)
    assert torch.equal(first(tokens_of()), second(tokens_of()))


def test_initial_spread_is_that_of_gpt2():
    model = GPT(gpt2_like(500, 64, 96, 2, 4), generator=seeded())
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            assert (weight == float("norm" in name and name.endswith("weight"))).all()
            continue
        expected = 0.02 / math.sqrt(2 * 2) if name.endswith(("out.weight", "down.weight")) else 0.02
        # a sample deviation of n normal numbers has standard error sigma / sqrt(2 n); six of them
        assert abs(weight.std() / expected - 1) < 6 / math.sqrt(2 * weight.numel())


@settings(max_examples=60)
@given(config=configs())
def test_model_is_its_equations(config):
    config = config if config.grading else replace(config, grading=Grading())
    model, tokens = build(config), tokens_of(length=5)
    expected = written_out(model, tokens)
    # the rotary tables reach float64 through float32, as do the sinusoidal ones, which the equations read: one half
    # unit of float32 in each cosine, times the sum over K products of a logit
    rotary = 64 * K * torch.finfo(torch.float32).eps if config.position == "rotary" else 0.0
    size = float(expected.abs().max())
    assert (model(tokens) - expected).abs().max() <= tolerance(config, size) + rotary * size


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("base", [2.0, 4.0])
def test_powers_of_two_scale_exactly(dtype, base):
    # scaling a row of the weights or the activation it yields by 2**n moves exponents only, so not one bit may differ
    grades = torch.arange(K) % 4
    config = gpt2_like(*SMALL, grading=Grading(base=base, clip=base**3, heads=grades.tolist()))
    model = GPT(config, generator=seeded()).to(dtype)
    scale = model.grading.scale("heads")
    assert torch.equal(scale[0, 0], (base**grades).to(dtype))
    attention, x = model.blocks[0].attention, torch.randn(2, CONTEXT, WIDTH, dtype=dtype, generator=seeded(2))
    folded = attention.projected(x, scale[0].flatten().repeat(3), None)
    on_activations = [part * scale[0][:, None, :] for part in attention.projected(x, None, None)]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(folded, on_activations, strict=True))
    model.grading.heads = torch.arange(-60, 61, dtype=dtype)
    assert model.grading.scale("heads").tolist() == [base**n for n in range(-60, 61)]


def test_a_grade_per_level_is_that_of_its_coordinates():
    grading = Grading(levels=(4, 3, 5), embedding=[1, 0.5, 0])
    assert build(gpt2_like(*SMALL, grading=grading)).grades()["embedding"].tolist() == [1] * 4 + [0.5] * 3 + [0] * 5


@pytest.mark.parametrize("graded", [False, True])
def test_wavelengths_lie_within_levels_only_where_the_position_is_graded(graded):
    grading = Grading(levels=(5, 7), position=graded)
    table = GPT(gpt2_like(*SMALL, position="sinusoidal", grading=grading), generator=seeded()).position.table
    assert torch.equal(table, sinusoidal_table(CONTEXT, (5, 7) if graded else (12,)).float())


def test_rotary_tables_are_those_of_the_type_whatever_it_was_before():
    expected, _ = rotary_tables(CONTEXT, K, 10000.0)
    for model in (build(llama_like(*SMALL)), GPT(llama_like(*SMALL), generator=seeded()).bfloat16().double()):
        assert torch.equal(model.position.cosine, expected)


def test_sinusoidal_tables_are_the_equations():
    widths, context = (5, 4, 3), 50
    for levels in ((12,), widths):
        table, start = sinusoidal_table(context, levels), 0
        for width in levels:
            for i, t in product(range(width), range(context)):
                angle = t / 10000 ** (2 * (i // 2) / width)
                expected = math.sin(angle) if i % 2 == 0 else math.cos(angle)
                assert abs(table[t, start + i] - expected) <= 4 * EPS * max(1.0, angle)
            start += width


def test_position_table_goes_through_the_projection():
    # GLLM Eq. 16 is in level coordinates: with the embedding table turned by P^T the first layer must see E' + PE'
    # turned by P^T as a whole. Without the P^T on the position table this fails.
    grading = Grading(levels=(5, 4, 3), embedding=(0, 0.5, 1), position=True, projection=True)
    turned_model = build(gpt2_like(*SMALL, position="sinusoidal", grading=grading))
    plain = build(replace(turned_model.config, grading=replace(grading, projection=False)))
    p, tokens = orthogonal(WIDTH), tokens_of()
    turned_model.set_projection(p)
    with torch.no_grad():
        turned_model.embedding.weight.copy_(plain.embedding.weight @ p.T)
    difference = turned_model.hidden(tokens, 0) - plain.hidden(tokens, 0) @ p.T
    assert difference.abs().max() <= 8 * WIDTH * EPS * 4  # entries below 4; G has norm at most 2


def test_rotation_is_relative_and_keeps_lengths():
    tables = rotary_tables(40, K, 10000.0)
    q, k = (torch.randn(1, 1, 1, K, dtype=torch.float64, generator=seeded(seed)).expand(1, 1, 40, K) for seed in (1, 2))
    q, k = rotate(q, tables), rotate(k, tables)
    products = (q @ k.mT)[0, 0]
    bound = 8 * K * EPS * 40 * float(q.norm(dim=-1).max() * k.norm(dim=-1).max())  # angles up to 40, each eps off
    for shift in (1, 7):
        assert (products[shift:, shift:] - products[:-shift, :-shift]).abs().max() <= bound
    assert (q.norm(dim=-1) - q[0, 0, 0].norm()).abs().max() <= bound


@pytest.mark.parametrize("make", [gpt2_like, llama_like])
def test_no_position_sees_a_later_one(make):
    model, tokens = build(make(*SMALL, grading=Grading(heads=[0, 1] * 3))), tokens_of()
    changed = tokens.clone()
    changed[:, 4] = (changed[:, 4] + 1) % VOCABULARY
    before, after = model(tokens), model(changed)
    assert (before[:, :4] - after[:, :4]).abs().max() <= tolerance(model.config, float(before.detach().abs().max()))
    assert (before[:, 4:] - after[:, 4:]).abs().amax((0, 2)).min() > 1e-3


def test_attention_weights_are_those_of_the_forward_pass():
    model, tokens = build(llama_like(*SMALL, grading=Grading(heads=[0, 1] * 3, after_rotary=True))), tokens_of()
    weights = model.attention_weights(tokens)
    assert weights.shape == (2, 2, HEADS, CONTEXT, CONTEXT)
    assert (weights.sum(-1) - 1).abs().max() <= CONTEXT * EPS
    assert (weights.triu(1) == 0).all()
    assert (weights[..., -1, :] > 0).all()
    block, (scale, rotation, _) = model.blocks[0], model._inputs(CONTEXT)[0]
    x = block.attention_norm(model.hidden(tokens, 0))
    value = block.attention.projected(x, scale, rotation)[2]
    mixed = block.attention.out((weights[0] @ value).transpose(1, 2).flatten(2))
    expected = block.attention(x, scale, rotation)
    assert (mixed - expected).abs().max() <= 8 * WIDTH * EPS * float(expected.detach().abs().max() + 1)


def test_levels_do_not_mix_in_their_feed_forward():
    model = build(gpt2_like(*SMALL, feed_forward="levels", grading=Grading(levels=(5, 7))))
    x = torch.randn(1, 3, WIDTH, dtype=torch.float64, generator=seeded(), requires_grad=True)
    model.blocks[0].ffn(x, None)[..., :5].sum().backward()
    assert (x.grad[..., :5] != 0).all()
    assert (x.grad[..., 5:] == 0).all()
    assert model.config.level_hidden == (13, 19)
    assert sum(model.config.level_hidden) == model.config.hidden_width == 32


def test_tilt_adds_kappa_times_the_grades_and_can_be_left_out():
    grades = np.linspace(0, 1, VOCABULARY)
    for kappa, factor in ((None, math.log(3)), (0.5, 0.5)):
        model = build(gpt2_like(*SMALL, grading=Grading(base=3.0, clip=3.0, output=grades, kappa=kappa)))
        difference = model(tokens_of()) - model(tokens_of(), tilt=False)
        # the grades are kept as float32 before the model is made float64
        assert (difference - factor * torch.tensor(grades)).abs().max() <= torch.finfo(torch.float32).eps


def test_layers_of_hidden_states():
    model, tokens = build(gpt2_like(*SMALL)), tokens_of()
    assert torch.equal(model.norm(model.hidden(tokens, 2)), model.hidden(tokens))
    assert torch.equal(model.blocks[0](model.hidden(tokens, 0), None, None, None), model.hidden(tokens, 1))
    for layer in (-1, 3, 1.0):
        with pytest.raises((InputError, InputTypeError), match="from 0 to 2"):
            model.hidden(tokens, layer)


def test_learned_grades_are_clamped_and_frozen_ones_left():
    grading = Grading(base=2.0, clip=4.0, heads=[0, 1] * 3, embedding=[1.0], learned=("heads",))
    model = GPT(gpt2_like(*SMALL, grading=grading), generator=seeded())
    with torch.no_grad():
        model.grading.heads[0, 0] = torch.tensor([-1.0, 0.0, 0.5, 2.0, 2.5, 9.0])
        model.grading.embedding.fill_(3.0)
    model.clamp_grades()
    assert model.grades()["heads"][0, 0].tolist() == [0.0, 0.0, 0.5, 2.0, 2.0, 2.0]
    assert (model.grades()["embedding"] == 3.0).all()
    GPT(gpt2_like(*SMALL), generator=seeded()).clamp_grades()
    again = replace(grading, heads=model.grades()["heads"].numpy())
    assert again.heads[0][0] == (0.0, 0.0, 0.5, 2.0, 2.0, 2.0)


def test_grades_at_the_clip_may_come_back_from_float32():
    base = math.exp(1 / 64)
    grading = Grading(base=base, clip=2.0, heads=[64 * math.log(2)] * K, learned=("heads",))
    model = GPT(gpt2_like(*SMALL, grading=grading), generator=seeded())
    model.clamp_grades()
    assert Grading(base=base, clip=2.0, heads=model.grades()["heads"]).heads

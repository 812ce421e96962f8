"""A compiled model is a plain one, and computes what the graded one computes."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.models import GPT, CompileError, Grading, compile_grades, gpt2_like, llama_like
from tests.library.small_models import (
    EPS,
    SMALL,
    WIDTH,
    K,
    build,
    configs,
    seeded,
    tokens_of,
    tolerance,
)

BINARY = Grading(clip=8.0, levels=(4, 8), heads=[0, 1, 2, 3, 1, 0], embedding=[3, 1], output=[0, 1, 2] + [3] * 8)


def paired(config):
    """The configuration, with one grade for both members of each pair that a rotation mixes after all."""
    if config.grading is None or not config.grading.after_rotary:
        return config
    half = np.array(config.grading.heads)[..., : K // 2]
    return replace(config, grading=replace(config.grading, heads=np.concatenate((half, half), axis=-1)))


def refused(config):
    g = config.grading
    return g is not None and config.tied and g.projection


def taken_back(config):
    """Whether the last norm divides by the grades of the table that a tied head reads."""
    return config.grading is not None and config.tied and config.grading.embedding is not None


def modules(model):
    return [(name, type(module)) for name, module in model.named_modules()]


def shapes(model):
    return {name: value.shape for name, value in model.state_dict().items()}


@settings(max_examples=60)
@given(config=configs())
def test_every_combination_compiles_to_the_same_function(config):
    config = paired(config)
    model, tokens = build(config), tokens_of(length=5)
    twin = compile_grades(model, untie=refused(config))
    expected, found = model(tokens), twin(tokens)
    elementwise = config.feed_forward != "levels" and not (config.grading and config.grading.projection)
    if elementwise and not (config.grading and config.grading.after_rotary) and not taken_back(config):
        assert torch.equal(found, expected)  # the products are the same ones, taken once
    else:
        assert (found - expected).abs().max() <= tolerance(config, float(expected.detach().abs().max()))
    tilted = config.grading is not None and config.grading.output is not None
    plain = replace(config.uniform(), tied=config.tied and not refused(config), head_bias=config.head_bias or tilted)
    assert twin.config == plain
    assert twin.grades() == {}
    reference = GPT(plain, generator=seeded())
    assert modules(twin) == modules(reference)
    assert shapes(twin) == shapes(reference)
    assert {name for name, _ in twin.named_parameters()} == {name for name, _ in reference.named_parameters()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [gpt2_like, llama_like])
@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rotary"])
@pytest.mark.parametrize("late", [False, True])
def test_powers_of_two_compile_bit_for_bit(dtype, make, position, late):
    late = late and position == "rotary"
    grading = replace(BINARY, position=position == "sinusoidal", after_rotary=late, heads=[0, 1, 3] * 2)
    model = build(make(*SMALL, position=position, tied=False, grading=grading)).to(dtype)
    twin = compile_grades(model)
    assert torch.equal(twin(tokens_of()), model(tokens_of()))
    assert torch.equal(twin.hidden(tokens_of()), model.hidden(tokens_of()))
    assert not torch.equal(twin(tokens_of()), GPT.forward(forgetting(model, "heads"), tokens_of()))


def forgetting(model, part):
    """The model with the grades of one part at zero: a compiler that misses a part must not pass."""
    other = build(model.config).to(model.embedding.weight.dtype)
    other.load_state_dict(model.state_dict())
    getattr(other.grading, part).zero_()
    return other


@pytest.mark.parametrize("part", ["heads", "embedding", "output"])
def test_no_part_of_the_grading_is_lost(part):
    model = build(gpt2_like(*SMALL, tied=False, grading=BINARY))
    difference = compile_grades(model)(tokens_of()) - forgetting(model, part)(tokens_of())
    assert difference.abs().max() > 1e-2


def test_an_identity_projection_is_exact_for_powers_of_two():
    model = GPT(gpt2_like(*SMALL, tied=False, grading=replace(BINARY, projection=True)), generator=seeded())
    assert torch.equal(compile_grades(model)(tokens_of()), model(tokens_of()))


def test_level_blocks_become_one_geglu():
    for projection in (False, True):
        grading = Grading(levels=(5, 4, 3), projection=projection)
        model = build(gpt2_like(*SMALL, tied=False, feed_forward="levels", grading=grading))
        twin = compile_grades(model)
        assert twin.config.feed_forward == "geglu"
        assert twin.blocks[0].ffn.up.weight.shape == (sum(model.config.level_hidden), WIDTH)
        x = torch.randn(1, 3, WIDTH, dtype=torch.float64, generator=seeded())
        p = model.grading.projection
        assert (twin.blocks[0].ffn(x, None) - model.blocks[0].ffn(x, p)).abs().max() <= 64 * WIDTH * EPS
    bare = build(gpt2_like(*SMALL, feed_forward="levels"))  # one level, and nothing graded
    assert torch.equal(compile_grades(bare)(tokens_of()), bare(tokens_of()))


def test_dropping_the_tilt_leaves_the_calibrated_model():
    for head_bias in (False, True):
        model = build(llama_like(*SMALL, head_bias=head_bias, grading=BINARY))
        twin = compile_grades(model, tilt="drop")
        assert twin.config == model.config.uniform()
        assert torch.equal(twin(tokens_of()), model(tokens_of(), tilt=False))
        kept = compile_grades(model)
        assert kept.config.head_bias
        difference = kept(tokens_of()) - twin(tokens_of())
        expected = BINARY.tilt * torch.tensor(BINARY.output, dtype=torch.float64)
        assert (difference - expected).abs().max() <= 8 * EPS * float(kept(tokens_of()).detach().abs().max() + 3)


@pytest.mark.parametrize("make", [gpt2_like, llama_like])
def test_a_tied_head_keeps_its_table_and_the_last_norm_takes_the_grades_back(make):
    model = build(make(*SMALL, tied=True, grading=BINARY))
    twin = compile_grades(model)
    assert twin.config.tied
    assert torch.equal(twin(tokens_of()), model(tokens_of()))  # grades that are powers of two
    # one table with the norm as it was is another model, graded for both uses or for neither
    norm = {name: value for name, value in model.state_dict().items() if name.startswith("norm.")}
    for table in (twin.embedding.weight, model.embedding.weight):
        other = GPT(twin.config, generator=seeded()).double()
        other.load_state_dict(twin.state_dict() | norm | {"embedding.weight": table})
        assert (other(tokens_of()) - model(tokens_of())).abs().max() > 1e-2
    untied = compile_grades(model, untie=True)
    assert not untied.config.tied
    assert torch.equal(untied(tokens_of()), model(tokens_of()))
    assert torch.equal(untied.hidden(tokens_of()), model.hidden(tokens_of()))


@pytest.mark.parametrize("grades", [{"projection": True}, {"projection": True, "embedding": [1.0]}])
def test_a_tied_head_is_refused_with_projections(grades):
    model = build(gpt2_like(*SMALL, grading=Grading(**grades)))
    with pytest.raises(CompileError, match=r"tied to a graded embedding.*untie=True"):
        compile_grades(model)
    twin = compile_grades(model, untie=True)
    difference = (twin(tokens_of()) - model(tokens_of())).abs().max()
    assert difference <= tolerance(model.config, float(model(tokens_of()).detach().abs().max()))


def test_grades_after_the_rotation_must_agree_in_a_pair():
    config = llama_like(*SMALL, grading=Grading(heads=[0, 0.5, 1, 0, 0.5, 0.75], after_rotary=True))
    with pytest.raises(CompileError, match=r"layer 0, head 0, coordinates 2 and 5.*one grade"):
        compile_grades(build(config))
    last = np.zeros((2, 2, K))
    last[1, 1, 4] = 1.0
    with pytest.raises(CompileError, match="layer 1, head 1, coordinates 1 and 4"):
        compile_grades(build(replace(config, grading=replace(config.grading, heads=last))))
    early = replace(config, grading=replace(config.grading, after_rotary=False))
    assert torch.equal(compile_grades(build(early))(tokens_of()), build(early)(tokens_of()))
    assert (build(config)(tokens_of()) - build(early)(tokens_of())).abs().max() > 1e-3


def test_the_model_is_left_as_it_was_and_shares_nothing_with_its_twin():
    model = build(gpt2_like(*SMALL, tied=False, grading=BINARY)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    twin = compile_grades(model)
    assert not twin.training
    assert twin.embedding.weight.dtype == torch.float64
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.fill_(math.pi)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in twin.parameters())


@pytest.mark.parametrize("make", [gpt2_like, llama_like])
def test_a_plain_model_compiles_to_a_copy_whatever_type_it_had(make):
    for model in (build(make(*SMALL)), build(make(*SMALL)).bfloat16().float()):
        twin = compile_grades(model)
        assert twin is not model
        assert twin.config == model.config
        assert torch.equal(twin(tokens_of()), model(tokens_of()))


def test_bad_arguments_are_refused():
    model = build(gpt2_like(*SMALL, grading=Grading(heads=[0, 1] * 3, learned=("heads",))))
    with pytest.raises(InputTypeError, match="model is a dict; give a GPT"):
        compile_grades({})
    with pytest.raises(InputError, match="tilt is 'remove'; choose keep or drop"):
        compile_grades(model, tilt="remove")
    with pytest.raises(InputTypeError, match="untie is 'no'; give True or False"):
        compile_grades(model, untie="no")
    with torch.no_grad():
        model.grading.heads[1, 0, 0] = 1100.0  # finite, and 2**1100 is not
    with pytest.raises(CompileError, match=r"overflows for a grade of heads.*clamp_grades"):
        compile_grades(model)
    model.clamp_grades()
    compile_grades(model)
    with torch.no_grad():
        model.grading.heads[0, 0, 0] = math.nan
    with pytest.raises(CompileError, match="heads hold NaN"):
        compile_grades(model)
    tied = build(gpt2_like(*SMALL, grading=Grading(embedding=[0.0], learned=("embedding",))))
    with torch.no_grad():
        tied.grading.embedding.fill_(-1100.0)  # a scale of 0, by which no gain can be divided
    assert tied(tokens_of()).isfinite().all()
    with pytest.raises(CompileError, match=r"is 0 for a grade of embedding.*clamp_grades"):
        compile_grades(tied)
    assert torch.equal(compile_grades(tied, untie=True)(tokens_of()), tied(tokens_of()))

"""Norms of queries and keys and the scales of rotary planes: identity at zero, planes, bounds, masks, files."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.models import (
    GPT,
    GPTConfig,
    Grading,
    compile_grades,
    export_huggingface,
    gpt2_like,
    llama_like,
    load_model,
    parameter_count,
    save_model,
)
from gllm_lib.models.position import rotary_tables
from gllm_lib.training import graded_loss
from tests.library.small_models import CONTEXT, EPS, HEADS, SMALL, WIDTH, build, seeded, tokens_of

HALF = WIDTH // HEADS // 2
NORMED = llama_like(*SMALL, qk_norm=True)
SCALED = replace(NORMED, query_scale=True)
MASKED = replace(SCALED, query_mask=(1, 1))


def logits_of(query, key, scale, positions):
    """Products of rotated, normed and scaled queries with rotated, normed keys, in float64."""
    cosine, sine = rotary_tables(64, 2 * HALF, 10000.0)
    turned = [x * cosine[p] + x.roll(HALF) * sine[p] for x, p in zip((query, key), positions, strict=True)]
    normed = [x / x.square().mean().sqrt() for x in turned]
    return (normed[0] * scale) @ normed[1]


def test_at_zero_the_scale_changes_no_bit():
    plain, scaled = (GPT(config, generator=seeded()) for config in (NORMED, SCALED))
    for name, value in plain.state_dict().items():
        assert value.equal(scaled.state_dict()[name])
    assert all(each.attention.query_log.eq(0).all() for each in scaled.blocks)
    assert plain(tokens_of()).equal(scaled(tokens_of()))


def test_each_plane_is_scaled_on_both_its_coordinates():
    attention = build(SCALED).blocks[0].attention
    scale = attention.query_scale()
    assert scale.shape == (HEADS, 2 * HALF)
    for head in range(HEADS):
        for plane in range(HALF):
            expected = attention.query_log[head, plane].exp()
            assert scale[head, plane] == scale[head, plane + HALF] == expected


def test_logits_see_distances_only_and_would_not_with_the_printed_slices():
    query, key = torch.randn(2, 2 * HALF, dtype=torch.float64, generator=seeded())
    log = torch.randn(HALF, dtype=torch.float64, generator=seeded(1))
    spread = {"planes": log.exp().repeat(2), "printed": log.exp().repeat_interleave(2)}
    near, far = ({name: logits_of(query, key, s, at) for name, s in spread.items()} for at in ((3, 1), (42, 40)))
    assert near["planes"].item() == pytest.approx(far["planes"].item(), abs=64 * 2 * HALF * EPS)
    assert abs(near["printed"] - far["printed"]) > 1e-2


def test_a_scale_before_the_norm_would_be_lost_and_after_it_multiplies():
    model = build(SCALED)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query_log.fill_(math.log(3))
    x = torch.randn(1, CONTEXT, WIDTH, dtype=torch.float64, generator=seeded())
    scaled, _, _ = model.blocks[0].attention.projected(x, None, None)
    with torch.no_grad():
        model.blocks[0].attention.query_log.zero_()
    plain, key, _ = model.blocks[0].attention.projected(x, None, None)
    assert scaled.allclose(3 * plain, rtol=4 * EPS)
    assert key.square().mean(-1).allclose(torch.ones(1, dtype=torch.float64), atol=1e-4)  # the norm's epsilon is 1e-5
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight[:WIDTH] *= 1000
    assert model.blocks[0].attention.projected(x, None, None)[0].allclose(plain, atol=1e-4)


def test_logits_stay_within_the_root_of_the_head_width():
    model = build(SCALED, deviation=3.0)
    x = 100 * torch.randn(4, CONTEXT, WIDTH, dtype=torch.float64, generator=seeded())
    for block in model.blocks:
        query, key, _ = block.attention.projected(x, None, None)
        logits = query @ key.mT / math.sqrt(2 * HALF)
        bound = math.sqrt(2 * HALF) * block.attention.query_scale().amax(-1)[:, None, None]
        assert (logits.abs() <= bound * (1 + 64 * EPS)).all()


def test_masked_planes_and_layers_stay_at_one_and_get_no_gradient():
    model = build(MASKED)
    assert model.blocks[0].attention.query_scale() is None
    scale = model.blocks[1].attention.query_scale()
    assert scale[:, [0, HALF]].eq(1).all()
    assert scale[:, [1, 2, 1 + HALF, 2 + HALF]].ne(1).all()
    graded_loss(model(tokens_of()), tokens_of(seed=1)).backward()
    assert model.blocks[0].attention.query_log.grad is None
    gradient = model.blocks[1].attention.query_log.grad
    assert gradient[:, 0].eq(0).all()
    assert gradient[:, 1:].ne(0).all()


def test_a_full_mask_is_no_scale():
    for mask in ((2, 0), (0, HALF)):
        model = build(replace(SCALED, query_mask=mask))
        assert model(tokens_of()).equal(build(NORMED)(tokens_of()))


@pytest.mark.parametrize("config", [NORMED, SCALED, MASKED])
def test_configs_counts_and_files_know_the_scale(config, tmp_path):
    assert GPTConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    model = build(config)
    counted = parameter_count(config)
    assert counted["total"] == sum(each.numel() for each in model.parameters())
    assert counted["query_scale"] == (2 * HEADS * HALF if config.query_scale else 0)
    loaded = load_model(save_model(model, tmp_path / "model.safetensors"))
    assert loaded(tokens_of()).equal(model(tokens_of()))


def test_options_that_are_off_leave_configs_as_they_were():
    newer = {"tables", "input_norm", "qk_norm", "query_scale", "query_mask"}
    assert not newer & set(gpt2_like(*SMALL).to_dict())
    assert newer & set(MASKED.to_dict()) == {"qk_norm", "query_scale", "query_mask"}


def test_compiled_models_keep_the_scale_and_exports_tell_why_they_do_not(tmp_path):
    graded = replace(MASKED, grading=Grading(heads=(0.0, 0.25, 0.5) * 2, embedding=(0.5,) * WIDTH))
    model = build(graded)
    twin = compile_grades(model)
    assert twin.config.query_mask == (1, 1)
    assert twin(tokens_of()).allclose(model(tokens_of()), rtol=1e-12, atol=1e-12)
    with pytest.raises(InputError, match="norms queries and keys, which neither class does"):
        export_huggingface(twin, tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"query_scale": True}, InputError, "set qk_norm=True"),
        ({"query_scale": True, "qk_norm": True, "position": "learned"}, InputError, "position='rotary'"),
        ({"query_mask": (1, 1)}, InputError, "set query_scale=True"),
        ({"qk_norm": 1}, InputTypeError, "qk_norm is 1"),
        ({"qk_norm": True, "query_scale": True, "query_mask": 3}, InputTypeError, "query_mask is 3; give"),
        ({"qk_norm": True, "query_scale": True, "query_mask": (3, 0)}, InputError, "layers is 3; .* 0 to 2"),
        ({"qk_norm": True, "query_scale": True, "query_mask": (0, 4)}, InputError, "planes is 4; .* 0 to 3"),
    ],
)
def test_scales_without_their_norm_or_planes_are_refused(changes, error, told):
    with pytest.raises(error, match=told):
        llama_like(*SMALL, **changes)

"""From a graded model to the plain one that computes the same function (GLLM Rem. 1, Cor. 1, Rem. 3).

What the forward pass multiplies into weights on every call is multiplied into them once, by the same products:
what is elementwise there is the same bits here, for all grades. Grades after the rotation, a product with level
projections, and the sum of the levels' feed-forward units are taken in another order here, and agree to rounding. So do
the gains of the last norm where a tied head reads the graded table: they take the grades back. Query scales stay: they
commute with the rotation, but the norm before them takes away what weights before it would carry.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from gllm_lib.checks import GllmError, InputError, InputTypeError, flag
from gllm_lib.models.attention import folded
from gllm_lib.models.config import GPTConfig
from gllm_lib.models.feed_forward import LevelFeedForward
from gllm_lib.models.gpt import GPT
from gllm_lib.models.grading import Grades


class CompileError(GllmError, ValueError):
    """A graded model that no plain model of its family equals."""


@torch.no_grad()
def compile_grades(model: GPT, *, tilt: Literal["keep", "drop"] = "keep", untie: bool = False) -> GPT:
    """Return the plain twin of `model`, of the module classes and shapes of GPT(config.uniform()).

    tilt="keep" gives it the output tilt as `head.bias`, "drop" leaves the calibrated model (GLLM Rem. 14); untie=True
    gives it a head of its own. Raises CompileError, with the reason, for what cannot be folded.
    """
    if not isinstance(model, GPT):
        raise InputTypeError(f"model is a {type(model).__name__}; give a GPT")
    if tilt not in ("keep", "drop"):
        raise InputError(f"tilt is {tilt!r}; choose keep or drop")
    flag("untie", untie)
    grading, config = model.grading, model.config.uniform()
    bias = None if grading is None or tilt == "drop" else grading.tilt()
    config = replace(config, tied=config.tied and not untie, head_bias=config.head_bias or bias is not None)
    state = {name: value for name, value in model.state_dict().items() if not name.startswith("grading.")}
    if untie and model.config.tied:
        state["head.weight"] = state["embedding.weight"]
    if bias is not None:
        state["head.bias"] = state["head.bias"] + bias if "head.bias" in state else bias
    if grading is not None:
        _check_finite(grading)
        _fold_embedding(state, grading, config)
        for layer in range(config.layers):
            _fold_heads(state, grading, model.config, layer)
    for layer, block in enumerate(model.blocks):
        if isinstance(block.ffn, LevelFeedForward):
            _fold_levels(state, f"blocks.{layer}.ffn", block.ffn, None if grading is None else grading.projection)
    twin = GPT(config, generator=torch.Generator()).to(model.embedding.weight)
    twin.load_state_dict(state)  # copies
    return twin.train(model.training)


def _check_finite(grading: Grades) -> None:
    for name, grades in (*grading.named_parameters(), *grading.named_buffers()):
        if not torch.isfinite(grades).all():
            raise CompileError(f"the grades of {name} hold NaN or infinity; go back to a checkpoint before them")
    for name in ("heads", "embedding"):
        scale = grading.scale(name)
        if scale is not None and not torch.isfinite(scale).all():
            raise CompileError(f"base**q overflows for a grade of {name}; put it back in range with clamp_grades()")


def _fold_embedding(state: dict[str, Tensor], grading: Grades, config: GPTConfig) -> None:
    metric, table = grading.metric(), state["embedding.weight"]
    if metric is not None and metric.ndim == 1:
        state["embedding.weight"] = table * metric
        if config.tied and not metric.all():
            raise CompileError("base**q is 0 for a grade of embedding; put it back in range with clamp_grades()")
        for name in ("norm.weight", "norm.bias"):
            if config.tied and name in state:  # the head reads the graded table too, so its input is graded back
                state[name] = state[name] / metric
    elif metric is not None:
        state["embedding.weight"] = table @ metric
        if config.tied and not torch.equal(state["embedding.weight"], table):
            raise CompileError(
                "the head is tied to a graded embedding with level projections: the logits use the ungraded table and "
                "the first layer the graded one, and the gains of the last norm undo no metric but a diagonal one; "
                "compile with untie=True, which adds a head of its own"
            )
    if config.position != "rotary":
        state["position.table"] = grading.place(state["position.table"])


def _fold_heads(state: dict[str, Tensor], grading: Grades, config: GPTConfig, layer: int) -> None:
    scales, grades = grading.scale("heads"), grading.heads
    if scales is None or grades is None:
        return
    half = config.head_width // 2
    # grades and not scales: exp2 may round one grade differently in the last lanes of a vector
    pairs = grades[layer].unflatten(-1, (2, half)) if grading.options.after_rotary else None
    if pairs is not None and not torch.equal(pairs[:, 0], pairs[:, 1]):
        head, pair = (pairs[:, 0] != pairs[:, 1]).nonzero()[0].tolist()
        raise CompileError(
            f"the grades after the rotation differ inside a pair (layer {layer}, head {head}, coordinates {pair} and "
            f"{pair + half}): the rotation mixes the two, so no weight before it carries both; give each pair "
            "one grade, or grade before the rotation"
        )
    name, scale = f"blocks.{layer}.attention.qkv", scales[layer].flatten().repeat(3)
    weight, bias = folded(state[f"{name}.weight"], state.get(f"{name}.bias"), scale)
    state[f"{name}.weight"] = weight
    if bias is not None:
        state[f"{name}.bias"] = bias


def _fold_levels(state: dict[str, Tensor], name: str, ffn: LevelFeedForward, projection: Tensor | None) -> None:
    for part in ("up", "gate", "down"):
        maps = list(getattr(ffn, part))
        weight = torch.block_diag(*(one.weight for one in maps))
        bias = None if maps[0].bias is None else torch.cat([one.bias for one in maps])
        if projection is not None and part == "down":
            weight, bias = projection @ weight, None if bias is None else projection @ bias
        elif projection is not None:
            weight = weight @ projection.T
        for key in [key for key in state if key.startswith(f"{name}.{part}.")]:
            del state[key]
        state[f"{name}.{part}.weight"] = weight
        if bias is not None:
            state[f"{name}.{part}.bias"] = bias

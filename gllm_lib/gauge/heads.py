"""The gauge of attention: what may move queries with keys, and values with outputs, head by head (FTIP 4.4.5).

Shapes: D width, H heads, K head width. The gauge acts on W_Q (D, K) from the right; `nn.Linear` stores the transpose.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from gllm_lib.checks import InputError
from gllm_lib.gauge.actions import contragredient
from gllm_lib.models.attention import rotate
from gllm_lib.models.gpt import GPT
from gllm_lib.models.position import rotary_tables


def on_heads(weight: Tensor, matrices: Tensor) -> Tensor:
    """Return [W_1 A_1 | ... | W_H A_H] for a weight (D, H K), heads side by side, and matrices (H, K, K)."""
    if weight.ndim != 2 or matrices.ndim != 3 or weight.shape[1] != matrices.shape[0] * matrices.shape[1]:
        raise InputError(f"weight is {tuple(weight.shape)}, matrices {tuple(matrices.shape)}; give (D, H K), (H, K, K)")
    return torch.einsum("dhk,hkl->dhl", weight.unflatten(1, matrices.shape[:2]), matrices.to(weight)).flatten(1)


@torch.no_grad()
def gauge_image(model: GPT, query_key: Tensor, value_output: Tensor) -> GPT:
    """Return a copy with other weights and the same outputs: matrices (layers, H, K, K) for Q with K, for V with O.

    Queries move by A, keys by A^-T, values by B, the output's columns by B^-T; biases with them. Raises InputError
    where positions, norms, grades or learned scales of the model leave no such A.
    """
    config = model.config
    size = (config.layers, config.heads, config.head_width, config.head_width)
    if query_key.shape != size or value_output.shape != size:
        raise InputError(f"matrices are {tuple(query_key.shape)} and {tuple(value_output.shape)}; give {size} twice")
    if config.grading is not None or config.query_scale:
        raise InputError("the model has grades or learned scales of queries, which single coordinates out; use neither")
    eye = torch.eye(size[-1], dtype=query_key.dtype)
    if config.position == "rotary":
        tables = rotary_tables(2, size[-1], config.rotary_base)
        turn = rotate(eye, (tables[0][1].to(eye), tables[1][1].to(eye)))  # all planes, by the angle of one position
        if not torch.allclose(turn @ query_key, query_key @ turn):
            raise InputError("with rotary positions each matrix of query_key must turn and stretch planes singly")
    if config.qk_norm and not torch.allclose(query_key @ query_key.mT, eye.expand(size)):
        raise InputError("with a norm of queries and keys each matrix of query_key must be orthogonal")
    image = copy.deepcopy(model)
    for block, a, b in zip(image.blocks, query_key, value_output, strict=True):
        duals = [contragredient(matrices) for matrices in (a, b)]
        for part in (block.attention.qkv.weight, block.attention.qkv.bias):
            if part is not None:
                thirds = zip(part.view(len(part), -1).T.split(config.width, dim=1), (a, duals[0], b), strict=True)
                part.copy_(torch.cat([on_heads(*third) for third in thirds], dim=1).T.view_as(part))
        block.attention.out.weight.copy_(on_heads(block.attention.out.weight, duals[1]))
    return image

"""Causal self-attention with graded heads, the grades folded into the projection weights (GLLM Eqs. 6, 7, 11, 12).

B batch, T positions, D width, H heads, K head width
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gllm_lib.models.config import GPTConfig

Rotation = tuple[Tensor, Tensor]


class Attention(nn.Module):
    """Multi-head causal attention; rows of `qkv` are queries, keys, values, each head by head, (3 D, D)."""

    query_log: nn.Parameter | None

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.heads, self.head_width = config.heads, config.head_width
        self.norm_epsilon = config.epsilon if config.qk_norm else None
        layers, planes = config.query_mask or (0, 0)
        self.held = config.head_width // 2 if layer < layers else planes
        size = (config.heads, config.head_width // 2)
        self.register_parameter("query_log", nn.Parameter(torch.empty(size)) if config.query_scale else None)
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.out = nn.Linear(config.width, config.width, bias=config.bias)

    def forward(
        self, x_BTD: Float[Tensor, "B T D"], scale: Tensor | None, rotation: Rotation | None
    ) -> Float[Tensor, "B T D"]:
        """Return Concat(Head_1 ... Head_H) W_O; `scale` (3 D,) multiplies the rows of qkv, rotation is (cos, sin)."""
        query, key, value = self.projected(x_BTD, scale, rotation)
        mixed_BHTK = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed_BHTK.transpose(1, 2).flatten(2))

    def projected(
        self, x_BTD: Float[Tensor, "B T D"], scale: Tensor | None, rotation: Rotation | None
    ) -> tuple[Float[Tensor, "B H T K"], Float[Tensor, "B H T K"], Float[Tensor, "B H T K"]]:
        """Return queries and keys, graded, rotated, normed and scaled where the config says so, and graded values."""
        weight, bias = folded(self.qkv.weight, self.qkv.bias, scale)
        parts = F.linear(x_BTD, weight, bias).view(*x_BTD.shape[:2], 3, self.heads, self.head_width).unbind(2)
        query, key, value = (part.transpose(1, 2) for part in parts)
        if rotation is not None:
            query, key = rotate(query, rotation), rotate(key, rotation)
        if self.norm_epsilon is not None:
            query, key = (F.rms_norm(each, each.shape[-1:], eps=self.norm_epsilon) for each in (query, key))
        scale = self.query_scale()
        return query if scale is None else query * scale[:, None], key, value

    def query_scale(self) -> Float[Tensor, "H K"] | None:
        """Return exp(query_log) on both coordinates (c, c + K/2) of each plane c, 1 where held; None if all are.

        A scale of a plane commutes with its rotation, so logits still see distances only; OE prints the coordinates
        2c and 2c + 1, a plane of interleaved rotary tables and of none here.
        """
        if self.query_log is None or self.held == self.query_log.shape[1]:
            return None
        return F.pad(self.query_log[:, self.held :], (self.held, 0)).exp().repeat(1, 2)

    def weights(
        self, x_BTD: Float[Tensor, "B T D"], scale: Tensor | None, rotation: Rotation | None
    ) -> Float[Tensor, "B H T T"]:
        """Return the attention weights, rows summing to 1, zero above the diagonal."""
        query, key, _ = self.projected(x_BTD, scale, rotation)
        logits = query @ key.transpose(-1, -2) / math.sqrt(self.head_width)
        future = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).triu(1)
        return logits.masked_fill(future, -math.inf).softmax(-1)


def folded(weight: Tensor, bias: Tensor | None, scale: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of a map whose outputs are multiplied by `scale`, shape (outputs,) (GLLM Rem. 1)."""
    if scale is None:
        return weight, bias
    return weight * scale[:, None], None if bias is None else bias * scale


def rotate(x_BHTK: Float[Tensor, "B H T K"], rotation: Rotation) -> Float[Tensor, "B H T K"]:
    """Return x with its pairs (j, j + K/2) turned by cosines and signed sines, each (T, K) or (H, T, K)."""
    cosine, sine = rotation
    return x_BHTK * cosine + x_BHTK.roll(x_BHTK.shape[-1] // 2, dims=-1) * sine

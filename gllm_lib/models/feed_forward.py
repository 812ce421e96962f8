"""Feed-forward blocks: plain (GLLM Eq. 8), gated, and one gated unit per level (GLLM Sec. 4.5).

B batch, T positions, D width, L levels
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gllm_lib.models.config import GATED, GPTConfig

ACTIVATION: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "swiglu": F.silu,
    "geglu": F.gelu,
    "levels": F.gelu,
}


class FeedForward(nn.Module):
    """down(activation(up(x)))."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.activation = ACTIVATION[config.feed_forward]
        self.up = nn.Linear(config.width, config.hidden_width, bias=config.bias)
        self.down = nn.Linear(config.hidden_width, config.width, bias=config.bias)

    def forward(self, x_BTD: Float[Tensor, "B T D"], projection: Tensor | None) -> Float[Tensor, "B T D"]:
        """Return the block of x; `projection` is not used."""
        return self.down(self.activation(self.up(x_BTD)))


class GatedFeedForward(nn.Module):
    """down(activation(gate(x)) * up(x)), with SiLU (SwiGLU) or GELU (GeGLU)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.activation = ACTIVATION[config.feed_forward]
        self.up = nn.Linear(config.width, config.hidden_width, bias=config.bias)
        self.gate = nn.Linear(config.width, config.hidden_width, bias=config.bias)
        self.down = nn.Linear(config.hidden_width, config.width, bias=config.bias)

    def forward(self, x_BTD: Float[Tensor, "B T D"], projection: Tensor | None) -> Float[Tensor, "B T D"]:
        """Return the block of x; `projection` is not used."""
        return self.down(self.activation(self.gate(x_BTD)) * self.up(x_BTD))


class LevelFeedForward(nn.Module):
    """The sum over levels of GeGLU_l(x P_l) P_l^T; it mixes nothing between levels (GLLM Sec. 4.5)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        sizes = list(zip(config.level_widths, config.level_hidden, strict=True))
        self.widths = list(config.level_widths)
        self.activation = ACTIVATION[config.feed_forward]
        self.up = nn.ModuleList(nn.Linear(width, hidden, bias=config.bias) for width, hidden in sizes)
        self.gate = nn.ModuleList(nn.Linear(width, hidden, bias=config.bias) for width, hidden in sizes)
        self.down = nn.ModuleList(nn.Linear(hidden, width, bias=config.bias) for width, hidden in sizes)

    def forward(self, x_BTD: Float[Tensor, "B T D"], projection: Tensor | None) -> Float[Tensor, "B T D"]:
        """Return the block of x, with the level projections (D, D), or runs of coordinates where they are None."""
        levels = (x_BTD if projection is None else x_BTD @ projection).split(self.widths, dim=-1)
        parts = zip(self.up, self.gate, self.down, levels, strict=True)
        y_BTD = torch.cat([down(self.activation(gate(x)) * up(x)) for up, gate, down, x in parts], dim=-1)
        return y_BTD if projection is None else y_BTD @ projection.T


def feed_forward(config: GPTConfig) -> nn.Module:
    """Return the feed-forward block of a configuration."""
    if config.feed_forward == "levels":
        return LevelFeedForward(config)
    return GatedFeedForward(config) if config.feed_forward in GATED else FeedForward(config)

"""Where a token stands: learned and sinusoidal tables that are added, rotary tables that turn queries and keys.

T positions, D width, K head width, L levels
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gllm_lib.models.config import GPTConfig


def sinusoidal_table(context: int, level_widths: tuple[int, ...], base: float = 10000.0) -> Float[Tensor, "T D"]:
    """Return the sinusoidal encoding, (T, D), float64, wavelengths within each level; one level is GLLM Eq. 5."""
    tables = []
    for width in level_widths:
        index = torch.arange(width, dtype=torch.float64, device="cpu")
        rate = base ** (-2 * torch.floor(index / 2) / width)
        angle = torch.arange(context, dtype=torch.float64, device="cpu")[:, None] * rate
        tables.append(torch.where(index % 2 == 0, angle.sin(), angle.cos()))
    return torch.cat(tables, dim=1)


def rotary_tables(context: int, head_width: int, base: float) -> tuple[Float[Tensor, "T K"], Float[Tensor, "T K"]]:
    """Return cosines and signed sines, (T, K), float64, of the rotation of the pairs (j, j + K/2)."""
    half = torch.arange(head_width // 2, dtype=torch.float64, device="cpu")
    angle = torch.arange(context, dtype=torch.float64, device="cpu")[:, None] * base ** (-2 * half / head_width)
    return torch.cat((angle.cos(), angle.cos()), dim=1), torch.cat((-angle.sin(), angle.sin()), dim=1)


class PositionTable(nn.Module):
    """The table a model adds to its embeddings, (T, D), or turns its queries and keys by, (T, K)."""

    table: Tensor
    cosine: Tensor
    sine: Tensor

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        if config.position == "learned":
            self.table = nn.Parameter(torch.empty(config.context, config.width))
        elif config.position == "sinusoidal":
            self.register_buffer("table", torch.empty(config.context, config.width))
        else:
            for name in ("cosine", "sine"):
                self.register_buffer(name, torch.empty(config.context, config.head_width), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PositionTable:
        """Move or cast as any module; the rotary tables, which no file holds, are then computed again for the type."""
        super()._apply(fn, recurse)
        if self.config.position == "rotary" and not self.cosine.is_meta:
            self.fill()
        return self

    def fill(self) -> None:
        """Write what is computed and not learned: the sinusoidal table, in level coordinates, or the rotary ones."""
        config = self.config
        if config.position == "sinusoidal":
            graded = config.grading is not None and config.grading.position
            self.table.copy_(sinusoidal_table(config.context, config.level_widths if graded else (config.width,)))
        elif config.position == "rotary":
            cosine, sine = rotary_tables(config.context, config.head_width, config.rotary_base)
            self.cosine.copy_(cosine)
            self.sine.copy_(sine)

"""The grades of a model: where they are kept, the scales base**q they stand for, and where those multiply.

D width, H heads, K head width, L levels, V vocabulary
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gllm_lib.checks import InputError
from gllm_lib.models.config import GPTConfig, Grading


class Grades(nn.Module):
    """The grades q of a model, by part; those in `learned` are parameters, the others buffers."""

    heads: Tensor | None
    embedding: Tensor | None
    output: Tensor | None
    projection: nn.Parameter | None

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        assert config.grading is not None
        self.options: Grading = config.grading
        self.spread = _spread(config)
        for part, grades in self.spread.items():
            if part in self.options.learned:
                self.register_parameter(part, nn.Parameter(torch.empty(grades.shape)))
            else:
                self.register_buffer(part, torch.empty(grades.shape))
        for part in {"heads", "embedding", "output"} - set(self.spread):
            self.register_buffer(part, None)
        size = (config.width, config.width)
        self.register_parameter("projection", nn.Parameter(torch.empty(size)) if self.options.projection else None)

    @torch.no_grad()
    def fill(self) -> None:
        """Write the grades of the configuration, and the identity as projection."""
        for part, grades in self.spread.items():
            getattr(self, part).copy_(torch.from_numpy(grades))
        if self.projection is not None:
            nn.init.eye_(self.projection)

    def scale(self, part: str) -> Tensor | None:
        """Return base**q of a part, shaped as its grades, or None where it is ungraded; exact for powers of two."""
        grades = getattr(self, part)
        return None if grades is None else torch.exp2(grades * math.log2(self.options.base))

    def metric(self) -> Float[Tensor, " D"] | Float[Tensor, "D D"] | None:
        """Return what multiplies embeddings on the right (GLLM Eq. 13): a diagonal (D,), G (D, D) with projections."""
        scale = self.scale("embedding")
        if self.projection is None:
            return scale
        return (self.projection if scale is None else self.projection * scale) @ self.projection.T

    def place(self, table_TD: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        """Return a position table in level coordinates, graded and carried to those of the embeddings (GLLM Eq. 16).

        The equation is written in level coordinates; with projections P they are those of the model after P^T.
        """
        if not self.options.position:
            return table_TD
        scale = self.scale("embedding")
        graded = table_TD if scale is None else table_TD * scale
        return graded if self.projection is None else graded @ self.projection.T

    def tilt(self) -> Float[Tensor, " V"] | None:
        """Return kappa * q of the output grades, what they add to the logits (GLLM Eq. 18), or None."""
        return None if self.output is None else self.output * self.options.tilt


def _spread(config: GPTConfig) -> dict[str, np.ndarray]:
    """Return the grades of a configuration in full: heads (layers, H, K), embedding (D,), output (V,)."""
    assert config.grading is not None
    full = {}
    if config.grading.heads is not None:
        shape = (config.layers, config.heads, config.head_width)
        full["heads"] = np.broadcast_to(np.array(config.grading.heads), shape).copy()
    if config.grading.embedding is not None:
        grades = np.array(config.grading.embedding)
        full["embedding"] = grades if len(grades) == config.width else np.repeat(grades, config.level_widths)
    if config.grading.output is not None:
        full["output"] = np.array(config.grading.output)
    return full


def check_projection(matrix: Tensor, width: int) -> None:
    """Raise InputError unless `matrix` is a finite, invertible (width, width) matrix (GLLM Rem. 3)."""
    if tuple(matrix.shape) != (width, width):
        raise InputError(
            f"the projection has shape {tuple(matrix.shape)}; give ({width}, {width}), one column a coordinate"
        )
    if not torch.isfinite(matrix).all():
        raise InputError("the projection holds NaN or infinity; mend what computed it")
    values = torch.linalg.svdvals(matrix.double())
    if values[-1] <= width * torch.finfo(torch.float32).eps * values[0]:
        raise InputError(
            f"the projection is singular (singular values from {values[-1]:.3g} to {values[0]:.3g}); "
            "give orthonormal columns, or any invertible matrix"
        )

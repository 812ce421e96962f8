"""One decoder-only transformer, plain or graded (GLLM Eqs. 6-9, 11-13, 16-18).

B batch, T positions, D width, H heads, K head width, V vocabulary
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from gllm_lib.checks import InputError, InputTypeError, count
from gllm_lib.models.attention import Attention, Rotation
from gllm_lib.models.config import GPTConfig
from gllm_lib.models.feed_forward import feed_forward
from gllm_lib.models.grading import Grades, check_projection
from gllm_lib.models.position import PositionTable
from gllm_lib.models.tables import Tables

DEVIATION = 0.02  # of the initial weights, as in GPT-2


class Block(nn.Module):
    """x + Attention(norm(x)), then x + FFN(norm(x)) (GLLM Eq. 17)."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = _norm(config)
        self.attention = Attention(config, layer)
        self.ffn_norm = _norm(config)
        self.ffn = feed_forward(config)

    def forward(
        self, x_BTD: Float[Tensor, "B T D"], scale: Tensor | None, rotation: Rotation | None, projection: Tensor | None
    ) -> Float[Tensor, "B T D"]:
        """Return the residual stream after the block."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), scale, rotation)
        return x_BTD + self.ffn(self.ffn_norm(x_BTD), projection)


class Head(nn.Module):
    """The map to logits: its own weight (V, D), or none where it is tied, and a bias (V,) where there is one."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        weight = None if config.tied else nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.register_parameter("weight", weight)
        self.register_parameter("bias", nn.Parameter(torch.empty(config.vocabulary)) if config.head_bias else None)

    def forward(self, hidden_BTD: Tensor, table_VD: Tensor, tilt: Tensor | None) -> Tensor:
        """Return the logits (B, T, V), with the table of embeddings where the head has no weight of its own."""
        bias = tilt if self.bias is None else self.bias if tilt is None else self.bias + tilt
        return F.linear(hidden_BTD, table_VD if self.weight is None else self.weight, bias)


class GPT(nn.Module):
    """A decoder-only transformer; one generator state gives the same weights, graded or not, with or without tables.

    Raises InputTypeError without a torch.Generator.
    """

    def __init__(self, config: GPTConfig, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if not isinstance(config, GPTConfig):
            raise InputTypeError(f"config is a {type(config).__name__}; give a GPTConfig, such as gpt2_like(...)")
        if not isinstance(generator, torch.Generator):
            given = "not given" if generator is None else f"of type {type(generator).__name__}"
            raise InputTypeError(
                f"generator is {given}; give the source of the weights: generator=torch.Generator().manual_seed(seed)"
            )
        self.config = config
        device = torch.get_default_device()
        with torch.device("meta"):  # draws nothing: the weights are drawn once, below, from the generator
            self.embedding = nn.Embedding(config.vocabulary, config.width)
            self.position = PositionTable(config)
            self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))
            self.norm = _norm(config)
            self.head = Head(config)
            self.grading = None if config.grading is None else Grades(config)
            self.tables = None if config.tables is None else Tables(config.tables, config.vocabulary, config.width)
        self.to_empty(device=device)
        self._fill(generator)

    @torch.no_grad()
    def _fill(self, generator: torch.Generator) -> None:
        residual = DEVIATION / math.sqrt(2 * self.config.layers)
        for name, parameter in self.named_parameters():
            if name.startswith(("grading.", "tables.")):
                continue
            if "norm" in name:
                parameter.fill_(float(name.endswith("weight")))
            elif name.endswith(("bias", "query_log")):
                parameter.zero_()
            else:
                deviation = residual if ".out." in name or ".down." in name else DEVIATION
                parameter.normal_(0.0, deviation, generator=generator)
        self.position.fill()
        if self.grading is not None:
            self.grading.fill()
        if self.tables is not None:
            self.tables.fill()

    def forward(self, tokens_BT: Int[Tensor, "B T"], *, tilt: bool = True) -> Float[Tensor, "B T V"]:
        """Return the logits, with the output tilt of GLLM Eq. 18 unless `tilt` is False.

        Raises InputError or InputTypeError for tokens that are not (B, T) integers of the vocabulary and context.
        """
        bias = self.grading.tilt() if tilt and self.grading is not None else None
        return self.head(self.hidden(tokens_BT), self.embedding.weight, bias)

    def hidden(self, tokens_BT: Int[Tensor, "B T"], layer: int | None = None) -> Float[Tensor, "B T D"]:
        """Return the states after the last norm, or the residual stream after `layer` blocks (0: the embeddings)."""
        blocks = self.config.layers if layer is None else count("layer", layer, 0, self.config.layers)
        x_BTD = self._embed(tokens_BT)
        for block, inputs in zip(self.blocks[:blocks], self._inputs(tokens_BT.shape[1]), strict=False):
            x_BTD = block(x_BTD, *inputs)
        return self.norm(x_BTD) if layer is None else x_BTD

    def attention_weights(self, tokens_BT: Int[Tensor, "B T"]) -> Float[Tensor, "layers B H T T"]:
        """Return the attention weights of every head; their memory grows with the square of T."""
        x_BTD, weights = self._embed(tokens_BT), []
        for block, (scale, rotation, projection) in zip(self.blocks, self._inputs(tokens_BT.shape[1]), strict=True):
            weights.append(block.attention.weights(block.attention_norm(x_BTD), scale, rotation))
            x_BTD = block(x_BTD, scale, rotation, projection)
        return torch.stack(weights)

    def grades(self) -> dict[str, Tensor]:
        """Return the current grades by part, detached: heads (layers, H, K), embedding (D,), output (V,), and P (D, D).

        A part that is not graded is absent.
        """
        if self.grading is None:
            return {}
        tensors = {**dict(self.grading.named_parameters()), **dict(self.grading.named_buffers())}
        return {name: tensor.detach() for name, tensor in tensors.items()}

    @torch.no_grad()
    def clamp_grades(self) -> None:
        """Project the learned grades onto [0, log_base(clip)], in place, as after each step of training."""
        if self.grading is not None:
            for part in self.grading.options.learned:
                getattr(self.grading, part).clamp_(0.0, self.grading.options.top)

    @torch.no_grad()
    def set_projection(self, matrix: Float[Tensor, "D D"]) -> None:
        """Start the level projections P = [P_0 | ... | P_{L-1}] at `matrix`; raises InputError if it is singular."""
        if self.grading is None or self.grading.projection is None:
            raise InputError("this model has no level projections; build it with Grading(projection=True)")
        matrix = torch.as_tensor(matrix).to(self.grading.projection)  # as it will be held: the cast may overflow
        check_projection(matrix, self.config.width)
        self.grading.projection.copy_(matrix)

    def _embed(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.embedding(_checked(tokens_BT, self.config))
        metric = None if self.grading is None else self.grading.metric()
        if metric is not None:
            x_BTD = x_BTD * metric if metric.ndim == 1 else x_BTD @ metric
        if self.tables is not None:
            x_BTD = x_BTD + self.tables(tokens_BT).to(x_BTD.dtype)  # float16 beside bfloat16 would be float32
        if self.config.position != "rotary":
            table = self.position.table[: tokens_BT.shape[1]]
            x_BTD = x_BTD + (table if self.grading is None else self.grading.place(table))
        return F.rms_norm(x_BTD, x_BTD.shape[-1:], eps=self.config.epsilon) if self.config.input_norm else x_BTD

    def _inputs(self, length: int) -> list[tuple[Tensor | None, Rotation | None, Tensor | None]]:
        """Return, for each block, the scale of its qkv rows (3 D,), the rotation and the level projections."""
        rotation, projection = None, None if self.grading is None else self.grading.projection
        if self.config.position == "rotary":
            rotation = self.position.cosine[:length], self.position.sine[:length]
        scale = None if self.grading is None else self.grading.scale("heads")
        if scale is None:
            return [(None, rotation, projection)] * self.config.layers
        return [(*_graded(one, rotation, self.config), projection) for one in scale]


def _graded(scale_HK: Tensor, rotation: Rotation | None, config: GPTConfig) -> tuple[Tensor, Rotation | None]:
    """Return the scale of the qkv rows of one layer and its rotation, which carries the grades that act after it."""
    flat = scale_HK.flatten()
    if rotation is None or config.grading is None or not config.grading.after_rotary:
        return flat.repeat(3), rotation
    cosine, sine = (table * scale_HK[:, None, :] for table in rotation)
    return torch.cat((torch.ones_like(flat), torch.ones_like(flat), flat)), (cosine, sine)


def _norm(config: GPTConfig) -> nn.Module:
    if config.norm == "rms":
        return nn.RMSNorm(config.width, eps=config.epsilon)
    return nn.LayerNorm(config.width, eps=config.epsilon, bias=config.bias)


def _checked(tokens: Any, config: GPTConfig) -> Tensor:
    """Return the tokens as the embedding takes them; raises InputError or InputTypeError for any it does not know."""
    kind = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
    if not isinstance(kind, torch.dtype) or kind.is_floating_point or kind.is_complex or kind == torch.bool:
        raise InputTypeError(f"tokens are {kind}; give a tensor of integers, shape (batch, positions)")
    if tokens.ndim != 2 or tokens.numel() == 0:
        raise InputError(f"tokens have shape {tuple(tokens.shape)}; give (batch, positions), none of them zero")
    if tokens.shape[1] > config.context:
        raise InputError(
            f"a sequence of {tokens.shape[1]} tokens exceeds the context of {config.context}; "
            "cut it, or build a model with a longer context"
        )
    tokens = tokens if tokens.dtype in (torch.int32, torch.int64) else tokens.long()
    if tokens.is_meta:
        return tokens
    least, most = (int(end) for end in tokens.aminmax())
    if least < 0 or most >= config.vocabulary:
        raise InputError(
            f"token {least if least < 0 else most} is out of range; the vocabulary has the tokens "
            f"0 to {config.vocabulary - 1}: encode the text with the tokenizer of this model"
        )
    return tokens

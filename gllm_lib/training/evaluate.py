"""What a trained model is worth: nats, bits per byte, attention on syntax, accuracy by depth.

Shapes: B sequences, T positions, V vocabulary, H heads, a arcs, n predictions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gllm_lib.checks import InputError, InputTypeError, as_array, count, real
from gllm_lib.models.gpt import GPT
from gllm_lib.training.encode import blocks, checked_tokens
from gllm_lib.training.loss import token_losses


@torch.no_grad()
def evaluate(model: GPT, tokens: ArrayLike, *, batch: int = 8, tilt: Literal["keep", "drop"] = "keep") -> float:
    """Return the mean loss in nats per token, over consecutive windows of the model's context (GLLM Lem. 1).

    Every token but the first is predicted once, from those before it in its window. tilt="drop" removes the output
    tilt kappa q_out from the logits: the calibrated model of GLLM Rem. 14. Raises InputError for fewer than two
    tokens, one out of range, or a loss that is not finite.
    """
    if tilt not in ("keep", "drop"):
        raise InputError(f"tilt is {tilt!r}; choose keep or drop")
    ids = checked_tokens(model, tokens, 2)
    total = 0.0
    for inputs_BT, targets_BT in zip(blocks(ids[:-1], model, batch), blocks(ids[1:], model, batch), strict=True):
        losses_BT = token_losses(model(inputs_BT, tilt=tilt == "keep"), targets_BT)
        total += float(losses_BT.sum(dtype=torch.float64))
    if not math.isfinite(total):
        raise InputError(f"the model's loss is {total}; go back to a checkpoint from before it diverged")
    return total / (ids.size - 1)


def bits_per_byte(nats_per_token: float, tokens: int, bytes: int) -> float:
    """Return the bits a model spends per byte of text: nats_per_token * tokens / (bytes * log 2).

    `tokens` counts the predicted tokens and `bytes` the UTF-8 bytes they stand for. Raises InputError for none.
    """
    return _nats(nats_per_token) * count("tokens", tokens) / (count("bytes", bytes) * math.log(2))


def perplexity(nats_per_token: float) -> float:
    """Return exp(nats_per_token), the size of the uniform choice that costs as much."""
    return math.exp(_nats(nats_per_token))


class AttentionMass(NamedTuple):
    """Attention on arcs, per layer and head, each (layers, H), averaged over the arcs.

    structural  the weight from the arc's piece to the earlier one (GLLM Eq. 23)
    total       the weight from the arc's piece to all earlier pieces: the most an arc can get
    null        the weight between the same two positions in the other sequences: what position alone would give
    """

    structural: NDArray[np.float64]
    total: NDArray[np.float64]
    null: NDArray[np.float64]


def structural_attention_mass(weights: Tensor | ArrayLike, arcs: ArrayLike) -> AttentionMass:
    """Return the mean attention on arcs (a, 3) = (sequence, position, earlier position), in (layers, B, H, T, T).

    Under the causal mask a weight to a later position is 0 whatever was learnt, so an arc must point backward. Raises
    InputError for one that does not or lies outside, for no arc, for B = 1, which leaves the null nothing to compare
    with, and for weights that are negative or of which a row does not sum to 1 within the rounding of their type.
    """
    array = _numpy("weights", weights)
    if array.ndim != 5 or array.shape[3] != array.shape[4] or array.dtype.kind != "f":
        raise InputError(
            f"weights have shape {array.shape}; give the floats of GPT.attention_weights, (layers, B, H, T, T)"
        )
    if not np.isfinite(array).all():
        raise InputError("weights hold NaN or infinity; go back to a checkpoint from before the model diverged")
    _, sequences, _, length, _ = array.shape
    # a softmax adds T terms in float32 or better and rounds each weight to its type: 4 eps leaves room for its factors
    single = torch.finfo(torch.float32).eps
    eps = torch.finfo(weights.dtype).eps if isinstance(weights, Tensor) else float(np.finfo(array.dtype).eps)
    off = np.abs(array.sum(axis=-1, dtype=np.float64) - 1).max(initial=0.0)
    if array.min(initial=0.0) < 0 or off > 4 * eps + length * min(single, eps):
        raise InputError(
            f"weights fall to {array.min():.3g} and rows miss the sum 1 by up to {off:.3g}; give the weights after the "
            "softmax, before any dropout, in the type they were computed in"
        )
    if sequences < 2:
        raise InputError("weights are of one sequence; give at least 2, for the null compares with the others")
    b, i, j = _arcs(arcs, sequences, length).T
    mass = array[:, b, :, i, j]  # (a, layers, H), also below
    everywhere = array.sum(axis=1, dtype=np.float64)[:, :, i, j].transpose(2, 0, 1)
    earlier = np.tril(array, -1).sum(axis=-1, dtype=np.float64)  # (layers, B, H, T)
    return AttentionMass(
        structural=mass.mean(axis=0, dtype=np.float64),
        total=earlier[:, b, :, i].mean(axis=0),
        null=(everywhere - mass).mean(axis=0) / (sequences - 1),
    )


@dataclass(frozen=True)
class DepthAccuracy:
    """Accuracy over the predictions of one depth, with an exact binomial (Clopper-Pearson) interval [low, high]."""

    depth: int
    count: int
    accuracy: float
    low: float
    high: float


def accuracy_by_depth(
    predictions: Tensor | ArrayLike, targets: Tensor | ArrayLike, depth: Tensor | ArrayLike, *, level: float = 0.95
) -> tuple[DepthAccuracy, ...]:
    """Return the accuracy at each depth that occurs, the shallowest first.

    `targets` and `depth` are whole numbers of one shape; `predictions` too, or logits with one more axis of V. The
    interval holds for independent predictions; those of one text are not quite. Raises InputError if shapes disagree.
    """
    told, wanted, depths = (_numpy(name, value) for name, value in
                            (("predictions", predictions), ("targets", targets), ("depth", depth)))  # fmt: skip
    level = real("level", level, above=0, below=1)
    from scipy.stats import binomtest  # here, so that training is imported as fast as torch

    if told.ndim == wanted.ndim + 1 and told.size and told.dtype.kind in "iuf":
        if np.isnan(told).any():
            raise InputError("the logits hold NaN; go back to a checkpoint from before the model diverged")
        told = told.argmax(axis=-1)
    if not told.shape == wanted.shape == depths.shape or wanted.size == 0:
        raise InputError(
            f"predictions have shape {told.shape}, targets {wanted.shape}, depth {depths.shape}; "
            "give one of each per token, at least one, or logits with one axis more"
        )
    for name, array in (("predictions", told), ("targets", wanted), ("depth", depths)):
        if array.dtype.kind not in "iu":
            raise InputTypeError(f"{name} hold {array.dtype} entries; give whole numbers")
    rows = []
    for value in np.unique(depths):
        right = (told == wanted)[depths == value]
        interval = binomtest(int(right.sum()), right.size).proportion_ci(level)
        rows.append(DepthAccuracy(int(value), right.size, float(right.mean()), interval.low, interval.high))
    return tuple(rows)


def _arcs(arcs: ArrayLike, sequences: int, length: int) -> NDArray[np.int64]:
    mend = "give rows of whole numbers (sequence, position, earlier position), as CodeText.windows does"
    array = as_array("arcs", arcs, mend)
    if array.ndim != 2 or array.shape[1] != 3 or len(array) == 0 or array.dtype.kind not in "iu":
        raise InputError(f"arcs are {array.dtype} of shape {array.shape}; {mend}, at least one")
    outside = np.flatnonzero(((array < 0) | (array >= [sequences, length, length])).any(axis=1))
    if outside.size:
        raise InputError(
            f"arcs[{outside[0]}] is {array[outside[0]].tolist()}, outside {sequences} sequences of {length}"
        )
    forward = np.flatnonzero(array[:, 2] >= array[:, 1])
    if forward.size:
        raise InputError(
            f"arcs[{forward[0]}] is {array[forward[0]].tolist()} and does not point backward ({forward.size} of "
            f"{len(array)} do not); the causal mask leaves a later position no weight: give the later position first"
        )
    return array.astype(np.int64)


def _numpy(name: str, value: Any) -> NDArray[Any]:
    if not isinstance(value, Tensor):
        return as_array(name, value, "give an array")
    told = value.detach().cpu()
    return (told.float() if told.dtype == torch.bfloat16 else told).numpy()  # numpy has no bfloat16


def _nats(value: float) -> float:
    return real("nats_per_token", value, least=0, below=math.log(np.finfo(np.float64).max))

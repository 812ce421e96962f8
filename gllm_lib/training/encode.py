"""Hidden states of a model for the read-outs of a token array, window by window.

Shapes: n tokens, B windows, T positions, D width.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gllm_lib.checks import InputError, InputTypeError, count
from gllm_lib.corpora.tokens import token_ids
from gllm_lib.models.gpt import GPT


@torch.no_grad()
def encode(model: GPT, tokens: ArrayLike, layer: int | None = None, *, batch: int = 8) -> NDArray[np.float32]:
    """Return a state per token, shape (n, D): the residual stream after `layer` blocks, or after the last norm (None).

    The tokens are cut into consecutive windows of the model's context, and a token sees those before it in its window.
    Raises InputError for no token, one out of range, a layer that is not there or a state that is not finite.
    """
    ids = checked_tokens(model, tokens, 1)
    states = [model.hidden(block, layer).flatten(0, 1).float().cpu() for block in blocks(ids, model, batch)]
    encoded: NDArray[np.float32] = torch.cat(states).numpy()
    if not np.isfinite(encoded).all():
        raise InputError("the model's states hold NaN or infinity; go back to a checkpoint from before it diverged")
    return encoded


def checked_tokens(model: GPT, tokens: ArrayLike, least: int) -> NDArray[np.int64]:
    """Return at least `least` tokens (n,) of the model's vocabulary, or raise InputError or InputTypeError."""
    if not isinstance(model, GPT):
        raise InputTypeError(f"model is a {type(model).__name__}; give a GPT")
    ids = token_ids("tokens", tokens, model.config.vocabulary)
    if ids.size < least:
        raise InputError(f"there are {ids.size} tokens; give at least {least}")
    return ids


def blocks(ids: NDArray[np.int64], model: GPT, batch: int) -> Iterator[Tensor]:
    """Yield consecutive windows of the model's context, up to `batch` at a time (B, T), then a shorter rest (1, T')."""
    batch = count("batch", batch)
    context, device = model.config.context, model.embedding.weight.device
    whole = len(ids) // context * context
    for start in range(0, whole, batch * context):
        yield torch.from_numpy(ids[start : min(start + batch * context, whole)].reshape(-1, context)).to(device)
    if whole < len(ids):
        yield torch.from_numpy(ids[whole:][None]).to(device)

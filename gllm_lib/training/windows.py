"""Tokens and weights of a run: what is refused, and which windows a step reads.

Shapes: N tokens of the data, B windows, T positions, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gllm_lib.checks import InputError, InputTypeError, as_array, digest
from gllm_lib.corpora.tokens import chunks, token_array


@dataclass(frozen=True)
class Windows:
    """Data of a run: tokens (N,), weights per type (V,), per position (N,) or None, and the length T of a window."""

    tokens: NDArray[Any]
    weights: NDArray[Any] | None
    length: int

    def starts(self, seed: int, step: int, batch: int) -> NDArray[np.int64]:
        """Where the windows of a step begin, (batch,), uniform with replacement; a function of (seed, step) alone."""
        draw = np.random.Generator(np.random.Philox(key=np.array([seed, step], dtype=np.uint64)))
        return draw.integers(len(self.tokens) - self.length, size=batch)

    def read(self, starts: NDArray[np.int64], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
        """Inputs (B, T), targets (B, T) one position on, and the targets' weights (B, T) or None."""
        positions = starts[:, None] + np.arange(self.length + 1)
        tokens = torch.from_numpy(self.tokens[positions].astype(np.int64))
        inputs_BT, targets_BT = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        if self.weights is None:
            return inputs_BT, targets_BT, None
        per_type = len(self.weights) != len(self.tokens)
        weights = self.weights[targets_BT.numpy() if per_type else positions[:, 1:]]
        return inputs_BT, targets_BT, torch.from_numpy(weights.astype(np.float64)).to(dtype)

    def fingerprint(self) -> dict[str, Any]:
        """Length and SHA-256 of tokens and weights, whatever integer type holds them."""
        tokens, weights = (
            None if array is None else digest(chunk.astype(kind).data for _, chunk in chunks(array))
            for array, kind in ((self.tokens, "<i8"), (self.weights, "<f8"))
        )
        return {"tokens": len(self.tokens), "sha256": tokens, "weights": weights}


def windows(tokens: ArrayLike, weights: ArrayLike | None, vocabulary: int, context: int) -> Windows:
    """Check the data of a run, memory-mapped or not, and return it with windows of `context` positions.

    Raises InputTypeError for tokens that are no integers or weights that are no numbers; InputError for a token outside
    the vocabulary, data that holds no window and its next token, and weights of another shape, negative or not finite.
    """
    ids = token_array("tokens", tokens, vocabulary)
    if len(ids) <= context:
        raise InputError(
            f"there are {len(ids)} tokens; a window of {context} positions and its next token need at least "
            f"{context + 1}: give more text or a smaller context"
        )
    return Windows(ids, None if weights is None else _weights(weights, vocabulary, len(ids)), context)


def _weights(weights: ArrayLike, vocabulary: int, count: int) -> NDArray[Any]:
    """Return weights per type or per position, told apart by their length."""
    mend = f"give base**q per type, ({vocabulary},), or per position of the data, ({count},)"
    array = as_array("weights", weights, mend)
    if array.dtype.kind not in "iuf":
        raise InputTypeError(f"weights hold {array.dtype}; {mend}")
    if array.shape not in {(vocabulary,), (count,)}:
        raise InputError(f"weights have shape {array.shape}; {mend}")
    if vocabulary == count:
        raise InputError(f"data and vocabulary both have {count} entries, so weights could be of either; add a token")
    for start, chunk in chunks(array):
        bad = np.flatnonzero(~(np.isfinite(chunk) & (chunk >= 0)))
        if bad.size:
            raise InputError(f"weights[{start + bad[0]}] is {chunk[bad[0]]}; base**q is finite and not negative")
    return array

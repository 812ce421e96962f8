"""A static embedding computed on the spot: positive pointwise mutual information of co-occurrence, and its leading SVD.

Shapes: n tokens, v types, d dimensions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import svds

from gllm_lib.checks import InputError, InputTypeError


@dataclass(frozen=True, eq=False)
class StaticEmbedding:
    """Type vectors (v, d), the type of each token (n,), the names of the types and the singular values (d,)."""

    vectors: NDArray[np.float64]
    types: NDArray[np.int64]
    names: tuple[str, ...]
    singular_values: NDArray[np.float64]

    def tokens(self) -> NDArray[np.float64]:
        """Return one vector per token, shape (n, d)."""
        return self.vectors[self.types]


def vocabulary(
    tokens: Sequence[str], min_count: int = 1, rare: Sequence[str] | None = None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the type of each token, shape (n,), and the names of the types, the most frequent first.

    A token seen fewer than `min_count` times takes the type `<class>`, where `rare` (n,) names the classes
    (default: one class, `rare`). Raises InputError for no token or a length that differs.
    """
    if len(tokens) == 0:
        raise InputError("the corpus holds no token; give at least one document with text")
    if rare is not None and len(rare) != len(tokens):
        raise InputError(f"rare has {len(rare)} entries for {len(tokens)} tokens; give one class per token")
    counts = Counter(tokens)
    kept = [
        token if counts[token] >= min_count else f"<{rare[i] if rare is not None else 'rare'}>"
        for i, token in enumerate(tokens)
    ]
    totals = Counter(kept)
    names = tuple(sorted(totals, key=lambda name: (-totals[name], name)))
    number = {name: j for j, name in enumerate(names)}
    return np.array([number[name] for name in kept], dtype=np.int64), names


def cooccurrence_counts(
    types: ArrayLike, document: ArrayLike, window: int, size: int | None = None
) -> sparse.csr_array:
    """Return the symmetric (v, v) counts of pairs at most `window` tokens apart in one document, weight 1/distance.

    Raises InputError for an empty corpus, lengths that differ or a window below 1.
    """
    types_n, document_n = _integers("types", types), _integers("document", document)
    if types_n.size == 0:
        raise InputError("the corpus holds no token; give at least one document with text")
    if types_n.shape != document_n.shape:
        raise InputError(f"types has {types_n.size} entries, document {document_n.size}; give one per token in each")
    if window < 1:
        raise InputError(f"window is {window}; give the largest distance that counts, at least 1")
    v = int(types_n.max()) + 1 if size is None else size
    total = sparse.csr_array((v, v))
    for distance in range(1, min(window, types_n.size - 1) + 1):
        together = document_n[:-distance] == document_n[distance:]
        left, right = types_n[:-distance][together], types_n[distance:][together]
        weight = np.full(left.size, 1.0 / distance)
        total = total + sparse.coo_array((weight, (left, right)), shape=(v, v)).tocsr()
    return (total + total.T).tocsr()


def positive_pmi(counts: sparse.csr_array) -> sparse.csr_array:
    """Return max(0, log(c_ij c / (c_i c_j))) on the pairs seen, shape (v, v)."""
    pairs = counts.tocoo()
    rows, total = np.asarray(counts.sum(axis=1)).ravel(), float(counts.sum())
    i, j = pairs.coords
    values = np.log(pairs.data * total / (rows[i] * rows[j]))
    keep = values > 0
    return sparse.coo_array((values[keep], (i[keep], j[keep])), shape=counts.shape).tocsr()


def cooccurrence_embedding(
    tokens: Sequence[str],
    document: ArrayLike,
    *,
    dimension: int = 96,
    window: int = 4,
    min_count: int = 5,
    rare: Sequence[str] | None = None,
) -> StaticEmbedding:
    """Return the embedding U sqrt(S) of the truncated SVD of positive PMI, shape (v, d), the same at every call.

    Raises InputError for an empty corpus or a vocabulary that is not larger than `dimension`.
    """
    types, names = vocabulary(tokens, min_count, rare)
    if not 1 <= dimension < len(names):
        raise InputError(
            f"dimension is {dimension} for {len(names)} types (min_count {min_count}); give 1 to {len(names) - 1}, "
            "more text or a smaller min_count"
        )
    information = positive_pmi(cooccurrence_counts(types, document, window, len(names)))
    start = np.full(len(names), 1.0 / np.sqrt(len(names)))  # a fixed start makes the iteration repeatable
    left, values, _ = svds(information, k=dimension, v0=start)
    order = np.argsort(-values)
    left, values = left[:, order], np.maximum(values[order], 0.0)
    largest = np.abs(left).argmax(axis=0)
    left = left * np.sign(left[largest, np.arange(dimension)])  # the sign of a singular vector is free: fix it
    return StaticEmbedding(left * np.sqrt(values), types, names, values)


def _integers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise InputTypeError(f"{name} holds {array.dtype} entries; give one whole number per token")
    return array.astype(np.int64).ravel()

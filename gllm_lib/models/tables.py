"""Hashed tables of n-grams that are added to the token embeddings (OE Sec. 2.1, Family A).

B batch, T positions, D width, V vocabulary, n order, k copies, R rows of a table, W columns of a table
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gllm_lib.checks import InputError, InputTypeError, choose, count, put

Storage = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class HashedTables:
    """k tables for each length 2..n of an n-gram, table j of modulus + 2 j rows; raises InputError or InputTypeError.

    - modulus: m, the rows of table 0 (OE: 150,855); order: n, the longest n-gram; copies: k tables per length
    - width: the columns of all tables together, a multiple of k (n - 1); None is D. Columns beyond it get nothing
    - places: the slice of the columns that each table fills, a permutation; () is table j in slice j (OE)
    - storage: "bfloat16" (OE), kept whatever the model is cast to, or "float32", cast with the model
    """

    modulus: int
    order: int = 3
    copies: int = 2
    width: int | None = None
    places: tuple[int, ...] = ()
    storage: Storage = "bfloat16"

    def __post_init__(self) -> None:
        put(self, count, "modulus copies" + " width" * (self.width is not None))
        put(self, count, "order", least=2)
        if not isinstance(self.places, tuple | list):
            raise InputTypeError(f"places is {self.places!r:.40}; give a tuple, such as (0, 1, 2, 3)")
        places = tuple(count("places", place, 0) for place in self.places)
        if places and sorted(places) != list(range(self.tables)):
            raise InputError(f"places are {places}; give each of 0 to {self.tables - 1} once, or ()")
        object.__setattr__(self, "places", places)
        choose("storage", self.storage, get_args(Storage))

    @property
    def tables(self) -> int:
        """The number of tables, k (n - 1)."""
        return self.copies * (self.order - 1)

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows m + 2 j of each table."""
        return tuple(self.modulus + 2 * j for j in range(self.tables))

    @property
    def lengths(self) -> tuple[int, ...]:
        """The length of the n-grams that each table looks up: k times 2, then k times 3, and so on."""
        return tuple(2 + j // self.copies for j in range(self.tables))

    def columns(self, width: int, vocabulary: int = 1) -> int:
        """Return the columns W of a table; raises InputError if a model of V and D = `width` cannot hold the tables."""
        whole = self.width or width
        if whole > width or whole % self.tables:
            allowed = f"give tables a width of at most {width} that is a multiple of {self.tables}"
            raise InputError(f"{self.tables} tables do not fill {whole} of {width} columns in equal parts; {allowed}")
        if (vocabulary + 1) ** self.order > 2**63:
            raise InputError(f"keys reach ({vocabulary} + 1)^{self.order}, above 2^63; give tables a lower order")
        return whole // self.tables


def ngram_keys(tokens_BT: Int[Tensor, "B T"], vocabulary: int, length: int) -> Int[Tensor, "B T"]:
    """Return the key of the `length` tokens that end at each position, z_t + (V+1) z_{t-1} + (V+1)^2 z_{t-2} + ...

    z is x, and the sentinel V before the first position. Tokens must be of the vocabulary, and (V+1)^length <= 2^63.
    """
    keys_BT, radix = tokens_BT.long(), vocabulary + 1
    for back in range(1, length):
        earlier_BT = F.pad(tokens_BT.long(), (back, 0), value=vocabulary)[:, : tokens_BT.shape[1]]
        keys_BT = keys_BT + radix**back * earlier_BT
    return keys_BT


def table_ids(tokens_BT: Int[Tensor, "B T"], vocabulary: int, options: HashedTables) -> Int[Tensor, "tables B T"]:
    """Return the row of each table at each position: the key of its n-gram modulo its number of rows.

    Raises InputError for tokens outside 0 to V - 1, and for keys beyond 64 bits; InputTypeError for no integers.
    """
    if not isinstance(tokens_BT, Tensor) or tokens_BT.is_floating_point() or tokens_BT.dtype == torch.bool:
        raise InputTypeError(f"tokens are {tokens_BT!r:.40}; give a tensor of integers, shape (batch, positions)")
    if tokens_BT.ndim != 2 or not tokens_BT.numel():
        raise InputError(f"tokens have shape {tuple(tokens_BT.shape)}; give (batch, positions), none of them zero")
    options.columns(options.width or options.tables, vocabulary)
    least, most = (0, 0) if tokens_BT.is_meta else (int(end) for end in tokens_BT.aminmax())
    if least < 0 or most >= vocabulary:
        raise InputError(f"tokens go from {least} to {most}; give those of the vocabulary, 0 to {vocabulary - 1}")
    keys = {length: ngram_keys(tokens_BT, vocabulary, length) for length in set(options.lengths)}
    return torch.stack([keys[length] % rows for length, rows in zip(options.lengths, options.rows, strict=True)])


class Tables(nn.Module):
    """The tables of a model: zero at first, so that the model is then the one without them.

    A backward pass adds its visits to counts (R,), int32, as it adds its gradient; no file keeps them. Set
    `sparse` where the optimizer is `gllm_lib.optim.TableWrite`: gradients then hold visited rows only.
    """

    def __init__(self, options: HashedTables, vocabulary: int, width: int) -> None:
        super().__init__()
        self.options, self.vocabulary, self.width, self.sparse = options, vocabulary, width, False
        columns, kind = options.columns(width), getattr(torch, options.storage)
        self.weights = nn.ParameterList(torch.empty(rows, columns, dtype=kind) for rows in options.rows)
        for j, rows in enumerate(options.rows):
            self.register_buffer(f"count_{j}", torch.empty(rows, dtype=torch.int32), persistent=False)

    def pairs(self) -> list[tuple[nn.Parameter, Tensor]]:
        """Return each table (R, W) with its counts (R,), as TableWrite takes them."""
        return [(table, getattr(self, f"count_{j}")) for j, table in enumerate(self.weights)]

    @torch.no_grad()
    def fill(self) -> None:
        """Write zeros into tables and counts."""
        for each in chain.from_iterable(self.pairs()):
            each.zero_()

    def forward(self, tokens_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Return what is added to the embeddings, the rows of all tables side by side, in the type of the tables."""
        ids = table_ids(tokens_BT, self.vocabulary, self.options)
        parts = [_Lookup.apply(*one, own, self.sparse) for one, own in zip(self.pairs(), ids, strict=True)]
        order = sorted(range(len(parts)), key=(self.options.places or range(len(parts))).__getitem__)
        rows_BTD = torch.cat([parts[j] for j in order], dim=-1)
        return F.pad(rows_BTD, (0, self.width - rows_BTD.shape[-1]))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Tables:
        """Move as any module does, and cast tables of storage float32 only."""

        def moved(each: Tensor) -> Tensor:
            there = fn(each)
            kept = self.options.storage == "bfloat16" and there.dtype != each.dtype
            return each.to(there.device) if kept else there

        return super()._apply(moved, recurse)


class _Lookup(torch.autograd.Function):
    """table[ids], whose backward pass counts the visits and holds, if asked, a gradient of the visited rows only."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, counts: Tensor, ids: Tensor, sparse: bool) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.counts, ctx.sparse, ctx.shape = counts, sparse, table.shape
        return F.embedding(ids, table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (ids,), kind = ctx.saved_tensors, gradient.dtype
        ids, rows = ids.flatten(), torch.arange(ctx.shape[0], device=ids.device)
        if ctx.sparse:
            rows, ids, visits = ids.unique(return_inverse=True, return_counts=True)
        else:
            visits = ids.bincount(minlength=len(rows))
        ctx.counts[rows] += visits.int()
        wide = torch.promote_types(kind, torch.float32)  # visits of one pass are added before they are rounded
        sums = torch.zeros(len(rows), ctx.shape[1], dtype=wide, device=ids.device)
        sums = sums.index_add_(0, ids, gradient.flatten(0, -2).to(wide)).to(kind)
        if ctx.sparse:
            sums = torch.sparse_coo_tensor(rows[None], sums, ctx.shape, is_coalesced=True, check_invariants=False)
        return sums, None, None, None

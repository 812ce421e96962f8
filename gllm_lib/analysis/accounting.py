"""What a training run costs, as closed forms: parameters, operations, bytes (OE Sec. 3).

Numbers in, whole numbers out. An operation is one floating-point operation, a multiply-add is two; memory is in bytes,
and MIB of them are one MiB. Operations are those of one training step of B tokens, unless a function says otherwise.

L depth, D width, V vocabulary, H heads, T context, B tokens of a step, m modulus of the hashed tables
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import Any

from gllm_lib.checks import InputError, InputTypeError, count

__all__ = [
    "MIB",
    "Tables",
    "Trainer",
    "agreement",
    "attended_pairs",
    "decoder_matrices",
    "extra_flops",
    "model_flops",
    "polar_flops",
    "state_bytes",
    "step_flops",
    "table_bytes",
    "trainer_parameters",
    "whitening_flops",
    "widening_bytes",
]

MIB = 2**20  # bytes
LOOKUP, WRITE, EQUILIBRATE, SCALE = 8, 5, 16, 4  # operations per channel or entry, as source OE charges them
ADAMW = 14  # per entry: decay 1, first moment 3, second 4, its correction and root 3, quotient and step 3


@dataclass(frozen=True)
class Trainer:
    """A model of the trainer family that source OE starts from, and its batch (OE Secs. 2.2, 3).

    Token table and head (V, D), untied; 12 D^2 weights and two scalars a block; on every second block and the last a
    value table (V, D) with a gate of `gate_channels` inputs a head. Raises InputError or InputTypeError.

    - depth: L; width: D; vocabulary: V; context: T; tokens: B
    - pattern: a letter per block, repeated: S looks back T/2 positions, L looks back T; the last block is always L
    """

    depth: int
    width: int
    vocabulary: int = 8192
    context: int = 2048
    head_width: int = 128
    pattern: str = "SSSL"
    gate_channels: int = 32
    tokens: int = 524_288

    def __post_init__(self) -> None:
        for name in ("depth", "width", "vocabulary", "context", "head_width", "gate_channels", "tokens"):
            object.__setattr__(self, name, count(name, getattr(self, name)))
        if self.width % self.head_width:
            raise InputError(
                f"width {self.width} is not divided by head_width {self.head_width}; choose a multiple of it"
            )
        if self.gate_channels > self.width:
            raise InputError(f"gate_channels is {self.gate_channels}; a gate reads at most the {self.width} channels")
        if not isinstance(self.pattern, str):
            raise InputTypeError(f"pattern is {self.pattern!r:.40}; give letters S and L, such as 'SSSL'")
        if not self.pattern or set(self.pattern) - {"S", "L"}:
            raise InputError(f"pattern is {self.pattern!r:.40}; give letters S (half the context) and L (all of it)")
        if self.context % 2 and "S" in self.pattern:
            raise InputError(f"context {self.context} has no half for the S of {self.pattern!r}; make it even")

    @classmethod
    def of_depth(cls, depth: int, **changes: Any) -> Trainer:
        """Return the family's model of a depth: width 64 L up to a multiple of the head width; then `changes`."""
        head_width = count("head_width", changes.get("head_width", cls.head_width))
        return cls(depth, **{"width": -(-64 * count("depth", depth) // head_width) * head_width} | changes)

    @property
    def heads(self) -> int:
        """H = D / head_width."""
        return self.width // self.head_width

    @property
    def value_tables(self) -> int:
        """How many blocks have a value table: ceil(L / 2)."""
        return (self.depth + 1) // 2

    @property
    def windows(self) -> tuple[int, ...]:
        """How many positions each block looks back, (L,)."""
        letters = [self.pattern[k % len(self.pattern)] for k in range(self.depth - 1)]
        return (*(self.context // 2 if letter == "S" else self.context for letter in letters), self.context)


@dataclass(frozen=True)
class Tables:
    """Hashed n-gram tables of staggered rows, m + 2j by D / tables (OE Sec. 2.1); raises InputError, InputTypeError.

    There are `per_order` tables for each n from 2 to `order`; their number divides the width D.
    """

    modulus: int
    width: int
    order: int = 3
    per_order: int = 2

    def __post_init__(self) -> None:
        for name, least in (("modulus", 1), ("width", 1), ("order", 2), ("per_order", 1)):
            object.__setattr__(self, name, count(name, getattr(self, name), least))
        if self.width % self.tables:
            raise InputError(f"width {self.width} is not divided by {self.tables} tables; choose a multiple of them")

    @property
    def tables(self) -> int:
        """How many tables there are: per_order (order - 1)."""
        return self.per_order * (self.order - 1)

    @property
    def columns(self) -> int:
        """The width of one table: D / tables."""
        return self.width // self.tables

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows of each table, m + 2j."""
        return tuple(self.modulus + 2 * j for j in range(self.tables))

    @property
    def parameters(self) -> int:
        """All entries: (m + tables - 1) D."""
        return sum(self.rows) * self.columns


def agreement(printed: str, exact: Fraction | int) -> str:
    """Return how a printed number and an exact one agree, by the last printed digit.

    "agrees" if it is off by at most half a unit of that digit, "within rounding" if by at most one, as a sum of rounded
    parts may be, else "does not reproduce". Raises InputError unless `printed` is digits with at most one point, and
    InputTypeError for a float, which is not exact.
    """
    if not isinstance(exact, Rational):
        raise InputTypeError(f"exact is {exact!r:.40}; give a whole number or a Fraction, such as Fraction(1, 24)")
    whole, _, digits = str(printed).partition(".")
    if not (isinstance(printed, str) and (whole + digits).isdecimal()):
        raise InputError(f"printed is {printed!r:.40}; give the digits as a string, such as '0.0417'")
    off = 10 ** len(digits) * abs(Fraction(printed) - Fraction(exact))
    return "agrees" if 2 * off <= 1 else "within rounding" if off <= 1 else "does not reproduce"


def _kind(name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise InputTypeError(f"{name} is a {type(value).__name__}; give the {kind.__name__} of this module")
    return value


def trainer_parameters(trainer: Trainer) -> dict[str, int]:
    """Return the parameters of the trainer's model by kind, and their total (OE Sec. 3).

    The total is V D (2 + ceil(L/2)) + 12 D^2 L + gate_channels H ceil(L/2) + 2 L.
    """
    table = _kind("trainer", trainer, Trainer).vocabulary * trainer.width
    parts = {
        "wte": table,
        "lm_head": table,
        "value_embeds": trainer.value_tables * table,
        "matrices": 12 * trainer.width**2 * trainer.depth,
        "gates": trainer.gate_channels * trainer.heads * trainer.value_tables,
        "scalars": 2 * trainer.depth,
    }
    return parts | {"total": sum(parts.values())}


def decoder_matrices(layers: int, width: int, hidden: int, vocabulary: int, *, gated: bool = False) -> int:
    """Return how many weights of a plain decoder multiply each token: four maps D x D and the feed-forward block's two,
    or three where it is gated, D x hidden, in each of the layers, and the head V x D, tied or not.
    """
    layers, width, hidden = count("layers", layers), count("width", width), count("hidden", hidden)
    return layers * width * (4 * width + (3 if gated else 2) * hidden) + count("vocabulary", vocabulary) * width


def model_flops(matrices: int, width: int, windows: Iterable[int], tokens: int, passes: int = 3) -> dict[str, int]:
    """Return the operations of products with `matrices` weights and of attention over `windows` positions a block.

    One pass forward is 2 per weight and token, and 4 D w per token and block; a pass back costs twice one forward, so 3
    passes are a training step: B (6 N + 12 D sum(w)). Every token is charged for its whole window.
    """
    tokens, passes = count("tokens", tokens), count("passes", passes)
    if isinstance(windows, str) or not isinstance(windows, Iterable):
        raise InputTypeError(f"windows are {windows!r:.40}; give a tuple, how far each block looks back")
    looked_back = sum(count(f"windows[{k}]", window) for k, window in enumerate(windows))
    return {
        "matrices": 2 * passes * count("matrices", matrices, 0) * tokens,
        "attention": 4 * passes * count("width", width) * looked_back * tokens,
    }


def attended_pairs(window: int, context: int) -> int:
    """Return how many pairs of a query and a key at most `window` positions before it there are in T positions."""
    context = count("context", context)
    window = min(count("window", window, 0), context - 1)
    return (window + 1) * (window + 2) // 2 + (context - window - 1) * (window + 1)


def step_flops(trainer: Trainer) -> dict[str, int]:
    """Return the trainer's own estimate of a training step: products with matrices, gates and head, and attention."""
    parts = trainer_parameters(trainer)
    multiplied = parts["matrices"] + parts["gates"] + parts["lm_head"]
    return model_flops(multiplied, trainer.width, trainer.windows, trainer.tokens)


def whitening_flops(rows: int, width: int) -> int:
    """Return 4 V D^2 + 14 V D + 3 D^2 + 3 D, what OE Sec. 3 charges for whitening a gradient (V, D)."""
    rows, width = count("rows", rows), count("width", width)
    return 4 * rows * width**2 + 14 * rows * width + 3 * width**2 + 3 * width


def polar_flops(rows: int, columns: int, steps: int = 5) -> int:
    """Return the operations of the matrix products in polar steps on the smaller side of a matrix.

    With s the smaller and l the larger side each step is X X^T, its square, and a product with X: 4 s^2 l + 2 s^3.
    """
    small, large = sorted((count("rows", rows), count("columns", columns)))
    return count("steps", steps, 0) * (4 * small**2 * large + 2 * small**3)


def extra_flops(trainer: Trainer, tables: Tables | None = None) -> dict[str, int]:
    """Return what each part of OE adds to a step, as OE charges it, and what it does not count.

    lookup 8 D B, write 5 per table entry (both 0 without tables), equilibration 16 per matrix entry, whitening of token
    table, head and value tables, query scale 4 L D B; uncounted: the polar steps, and AdamW on all but the matrices.
    """
    width, parts = trainer.width, trainer_parameters(trainer)
    if tables is not None and _kind("tables", tables, Tables).width != width:
        raise InputError(f"the tables fill {tables.width} channels, the model has {width}; give both the same width")
    return {
        "lookup": LOOKUP * width * trainer.tokens * (tables is not None),
        "write": WRITE * (0 if tables is None else tables.parameters),
        "equilibration": EQUILIBRATE * parts["matrices"],
        "whitening": (2 + trainer.value_tables) * whitening_flops(trainer.vocabulary, width),
        "query scale": SCALE * trainer.depth * width * trainer.tokens,
        "polar steps": trainer.depth * (4 * polar_flops(width, width) + 2 * polar_flops(4 * width, width)),
        "AdamW": ADAMW * (parts["total"] - parts["matrices"] - parts["gates"]),
    }


def state_bytes(numbers: int, *, weight: int = 4, gradient: int = 4, moments: int = 8) -> dict[str, int]:
    """Return the bytes of weights, gradients and moments, given the bytes per number of each; AdamW has two moments."""
    numbers = count("numbers", numbers, 0)
    sizes = {"weights": weight, "gradients": gradient, "moments": moments}
    held = {name: numbers * count(f"bytes of {name}", each, 0) for name, each in sizes.items()}
    return held | {"total": sum(held.values())}


def table_bytes(tables: Tables, *, weight: int = 2, gradient: int = 2, moments: int = 0) -> dict[str, int]:
    """Return the bytes that hashed tables keep: weights, gradients, moments, and a 4-byte visit count a row."""
    held = state_bytes(_kind("tables", tables, Tables).parameters, weight=weight, gradient=gradient, moments=moments)
    counts = 4 * sum(tables.rows)
    return held | {"counts": counts, "total": held["total"] + counts}


def widening_bytes(trainer: Trainer) -> int:
    """Return what it takes to keep token and value tables, their gradients and moments in FP32 instead of BF16."""
    parts = trainer_parameters(trainer)
    return 8 * (parts["wte"] + parts["value_embeds"])

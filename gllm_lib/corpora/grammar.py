"""Probabilistic grammars about which everything is known: next-token laws, entropy, depth, and energy profiles.

Shapes: n tokens, V vocabulary, N sentences, T tokens of a sentence, L levels, d = L (m - 1) feature coordinates.
A law is rational where the parameters are: give Fractions and get Fractions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gllm_lib.checks import InputError, InputTypeError, as_array, generator

Probability = float | Fraction


@dataclass(frozen=True)
class Brackets:
    """A stream of well-nested strings of `kinds` brackets, each string ended by one stop symbol.

    Tokens 0 to kinds-1 open, kinds to 2 kinds - 1 close, `stop` = 2 kinds. The state is the stack of open brackets.
    Below `max_depth` the next token opens with `open_probability` p, of a kind drawn uniformly; otherwise it closes
    the innermost bracket or, where none is open, stops. At `max_depth` it closes. A string may be empty (two stops).
    Raises InputError for kinds or max_depth below 1 or p outside (0, 1), InputTypeError for what is no number.
    """

    kinds: int
    open_probability: Probability
    max_depth: int

    def __post_init__(self) -> None:
        for name in ("kinds", "max_depth"):
            at_least_one(name, getattr(self, name))
        p = probability("open_probability", self.open_probability)
        if not 0 < p < 1:
            raise InputError(f"open_probability is {p}; give a number strictly between 0 and 1, such as 0.4")

    @property
    def stop(self) -> int:
        """The token that ends a string."""
        return 2 * self.kinds

    @property
    def vocabulary(self) -> int:
        """The number of tokens, V = 2 kinds + 1."""
        return 2 * self.kinds + 1

    def sample(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the first n tokens of a stream that starts with nothing open, shape (n,)."""
        at_least_one("n", n)
        opens = (generator(rng).random(n) < float(self.open_probability)).tolist()
        kinds = rng.integers(self.kinds, size=n).tolist()
        stack: list[int] = []
        tokens = np.empty(n, dtype=np.int64)
        for i, (opening, kind) in enumerate(zip(opens, kinds, strict=True)):
            if opening and len(stack) < self.max_depth:
                stack.append(kind)
                tokens[i] = kind
            else:
                tokens[i] = self.kinds + stack.pop() if stack else self.stop
        return tokens

    def depth(self, tokens: ArrayLike) -> NDArray[np.int64]:
        """Return how many brackets are open after each token of a stream, shape (n,).

        Raises InputError where `tokens` is no beginning of a stream.
        """
        return self._states(tokens)[0][1:]

    def conditional(self, prefix: ArrayLike) -> NDArray[Any]:
        """Return the law of the token that follows `prefix`, shape (V,), as Fractions if open_probability is one.

        Raises InputError where `prefix` is no beginning of a stream; the empty prefix is one.
        """
        depth, innermost, _ = self._states(prefix)
        return self._laws(depth[-1:], innermost[-1:], self.open_probability)[0]

    def conditionals(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """Return the law of each token given those before it, shape (n, V): row 0 is the law of the first token.

        Raises InputError where `tokens` is no beginning of a stream.
        """
        depth, innermost, _ = self._states(tokens)
        return self._laws(depth[:-1], innermost[:-1], float(self.open_probability))

    def depth_law(self) -> NDArray[Any]:
        """Return the stationary law of the number of open brackets, shape (max_depth + 1,), Fractions if p is one.

        Detailed balance: p^d / (1-p)^d below max_depth and p^max_depth / (1-p)^(max_depth-1) at it, normalised.
        """
        p = self.open_probability
        ratio = p / (1 - p)
        largest = self.max_depth - 1 if ratio > 1 else 0  # the exponents are at most 0 where the powers would grow
        weights = [ratio ** (d - largest) for d in range(self.max_depth)]
        weights.append(weights[-1] * p)
        return np.array([weight / sum(weights) for weight in weights])

    def entropy_rate(self) -> float:
        """Return the entropy of the next token given all before it in the stationary stream, in nats per token.

        The past determines the stack, and only below max_depth is there a choice: h(p) + p log kinds (GLLM Lem. 1).
        """
        p = float(self.open_probability)
        choice = -p * math.log(p) - (1 - p) * math.log1p(-p) + p * math.log(self.kinds)
        return float(1 - self.depth_law()[-1]) * choice

    def _laws(self, depth: NDArray[np.int64], innermost: NDArray[np.int64], p: Probability) -> NDArray[Any]:
        kind = object if isinstance(p, Fraction) else np.float64
        laws = np.full((len(depth), self.vocabulary), p * 0, dtype=kind)
        laws[depth < self.max_depth, : self.kinds] = p / self.kinds
        other = np.where(depth > 0, self.kinds + innermost, self.stop)
        laws[np.arange(len(depth)), other] = [1 - p if d < self.max_depth else p * 0 + 1 for d in depth.tolist()]
        return laws

    def _states(self, tokens: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return before each token and after the last the depth and the innermost kind (n + 1,), and the tokens."""
        tokens = token_array("tokens", tokens, self.vocabulary, 1)
        n = tokens.size
        step = np.where(tokens < self.kinds, 1, np.where(tokens == self.stop, 0, -1))
        depth = np.concatenate([[0], np.cumsum(step)])
        innermost = np.full(n + 1, -1)
        for level in range(1, min(self.max_depth, int(depth.max())) + 1):
            opening = np.where((step == 1) & (depth[1:] == level), np.arange(n), -1)
            last = np.concatenate([[-1], np.maximum.accumulate(opening)])
            here = (depth == level) & (last >= 0)
            innermost[here] = tokens[last[here]]
        before = depth[:-1]
        wrong = (step < 0) & ((before < 1) | (tokens - self.kinds != innermost[:-1]))
        wrong |= (step == 0) & (before != 0) | (depth[1:] > self.max_depth)
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise InputError(
                f"tokens[{i}] is {tokens[i]} where {before[i]} brackets are open (max_depth {self.max_depth}"
                + (f", innermost kind {innermost[i]}" if before[i] > 0 else "")
                + "): no such stream exists; give a stream from its beginning, as `sample` does, not a cut of one"
            )
        return depth, innermost, tokens


def at_least_one(name: str, value: Any) -> int:
    """Return `value` if it is a whole number of at least 1, else raise InputTypeError or InputError."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputTypeError(f"{name} is {value!r:.40}; give a whole number of at least 1")
    if value < 1:
        raise InputError(f"{name} is {value}; give a whole number of at least 1")
    return int(value)


def probability(name: str, value: Any) -> Probability:
    """Return `value` if it is a float, an integer or a Fraction in [0, 1], else raise InputTypeError or InputError."""
    if isinstance(value, bool) or not isinstance(value, float | int | Fraction):
        raise InputTypeError(f"{name} is {value!r:.40}; give a number such as 0.4 or Fraction(2, 5)")
    if not 0 <= value <= 1:  # also NaN
        raise InputError(f"{name} is {value}; give a number from 0 to 1")
    return value


def token_array(name: str, value: ArrayLike, vocabulary: int, dimensions: int) -> NDArray[np.int64]:
    """Return `value` as integers below `vocabulary`, or raise InputError or InputTypeError with what is allowed."""
    array = as_array(name, value, "give token numbers, such as [0, 2, 4]")
    if array.ndim != dimensions:
        raise InputError(f"{name} has shape {array.shape}; give token numbers in {dimensions} dimension(s)")
    if array.size and array.dtype.kind not in "iu":
        raise InputTypeError(f"{name} holds {array.dtype} entries; give whole numbers from 0 to {vocabulary - 1}")
    if array.size and not 0 <= array.min() <= array.max() < vocabulary:
        worst = array.min() if array.min() < 0 else array.max()
        raise InputError(f"{name} holds {worst}; tokens run from 0 to {vocabulary - 1}")
    return array.astype(np.int64)

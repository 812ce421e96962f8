"""A probabilistic grammar about which everything is known: next-token laws, entropy rate, depth.

Shapes: n tokens, V vocabulary. A law is rational where the parameters are: give Fractions and get Fractions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gllm_lib.checks import InputError, count, generator, real
from gllm_lib.corpora.tokens import token_ids

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
            object.__setattr__(self, name, count(name, getattr(self, name)))  # a numpy power would overflow
        real("open_probability", self.open_probability, above=0, below=1)
        object.__setattr__(self, "open_probability", _rational("open_probability", self.open_probability))

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
        count("n", n)
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
        depth, innermost = self._states(prefix)
        return self._laws(depth[-1:], innermost[-1:], self.open_probability)[0]

    def conditionals(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """Return the law of each token given those before it, shape (n, V): row 0 is the law of the first token.

        Raises InputError where `tokens` is no beginning of a stream.
        """
        depth, innermost = self._states(tokens)
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
        total = sum(weights)
        return np.array([weight / total for weight in weights])

    def pair_law(self) -> NDArray[np.float64]:
        """Return the stationary law of two neighbouring tokens, shape (V, V), the earlier one first."""
        kinds, pairs = range(self.kinds), np.zeros((self.vocabulary, self.vocabulary))
        laws = [[self.conditional([0] * (depth - 1) + [kind] if depth else []).astype(np.float64)
                 for kind in (kinds if depth else (0,))] for depth in range(self.max_depth + 1)]  # fmt: skip
        for depth, share in enumerate(self.depth_law()):
            for kind, law in enumerate(laws[depth]):
                first = law * float(share) / len(laws[depth])
                if depth < self.max_depth:
                    pairs[: self.kinds] += [first[opened] * laws[depth + 1][opened] for opened in kinds]
                if depth:  # the kind that comes to light is independent of the one that closes
                    pairs[self.kinds + kind] += first[self.kinds + kind] * np.mean(laws[depth - 1], axis=0)
                else:
                    pairs[self.stop] += first[self.stop] * law
        return pairs

    def entropy_rate(self) -> float:
        """Return the entropy of the next token given all before it in the stationary stream, in nats per token.

        The past determines the stack, and only below max_depth is there a choice: h(p) + p log kinds (GLLM Lem. 1).
        """
        p = float(self.open_probability)
        choice = -p * math.log(p) - (1 - p) * math.log1p(-p) + p * math.log(self.kinds)
        return float(1 - self.depth_law()[-1]) * choice

    def _laws(self, depth: NDArray[np.int64], innermost: NDArray[np.int64], p: Probability) -> NDArray[Any]:
        laws = np.full((len(depth), self.vocabulary), p * 0)  # of dtype object for Fractions
        laws[depth < self.max_depth, : self.kinds] = p / self.kinds
        other = np.where(depth > 0, self.kinds + innermost, self.stop)
        laws[np.arange(len(depth)), other] = [1 - p if d < self.max_depth else p * 0 + 1 for d in depth.tolist()]
        return laws

    def _states(self, tokens: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the depth and the innermost kind before each token and after the last, each (n + 1,)."""
        tokens = token_ids("tokens", tokens, self.vocabulary, 1)
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
            innermost_kind = f", the innermost of kind {innermost[i]}" if before[i] > 0 else ""
            raise InputError(
                f"tokens[{i}] is {tokens[i]} where {before[i]} brackets of at most {self.max_depth} are open"
                f"{innermost_kind}; give a stream from its beginning, as `sample` does, not a part cut out of one"
            )
        return depth, innermost


def _rational(name: str, value: Any) -> Probability:
    """Return a finite number: an integer or a Fraction as it is, so that laws are exact, any other as a float."""
    number = real(name, value)
    return value if isinstance(value, int | Fraction) else number

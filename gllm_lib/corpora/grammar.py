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
from scipy.linalg import helmert

from gllm_lib.checks import InputError, InputTypeError, count, generator, real
from gllm_lib.corpora.tokens import token_ids

Probability = float | Fraction
LARGEST_ODDS = 600.0  # logarithm; e**709 is the largest float


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


@dataclass(frozen=True)
class LevelTree:
    """Sentences of fixed length, the leaves of balanced derivations over L levels, with profiles in closed form.

    Level 0 is the root; a node of level l has branching[l] children, so L = len(branching) + 1, and the tokens are the
    symbols of level L - 1. Each symbol is one of 0 to m - 1, m = `symbols`; the root's is uniform. A child of level l
    has its parent's symbol with probability rho_l = agreement[l-1] and otherwise one drawn uniformly from all m,
    independently of its siblings given the parent: a probabilistic context-free grammar with m symbols a level.

    Features of a token, d = L (m - 1): per level the innovation of its ancestor s_l there, which is the indicator of
    s_l less its mean given s_{l-1}, in m - 1 Helmert contrasts h_c of unit variance under the uniform law:
    x_{l,c} = a_l (h_c(s_l) - rho_l h_c(s_{l-1})), with a_l = amplitudes[l] (default 1) and rho_0 = 0. An innovation
    has mean 0 given all above it, and agreement treats all symbols alike, so the second moments of x are diagonal, and
    E x_{l,c}^2 = a_l^2 (1 - rho_l^2). The target weighs the innovations of the score v(s) = s - (m - 1)/2: it is the
    sum over l of weights[l] (v(s_l) - rho_l v(s_{l-1})) = <w, x>, with w_{l,c}^2 proportional to
    (weights[l] / a_l)^2 c (c + 1). If weights[l] is the product of the agreements below level l, it is v of the token.
    Numbers are taken as the rationals they are. Raises InputError or InputTypeError for what is not allowed.
    """

    symbols: int
    branching: tuple[int, ...]
    agreement: tuple[Probability, ...]
    weights: tuple[Probability, ...]
    amplitudes: tuple[Probability, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "symbols", count("symbols", self.symbols, 2))
        lengths = {"branching": 0, "agreement": 0, "weights": 1, "amplitudes": 1}
        for name, more in lengths.items():
            ones = name == "amplitudes" and self.amplitudes is None
            values = (1,) * len(self.weights) if ones else getattr(self, name)
            if not isinstance(values, tuple | list):
                raise InputTypeError(f"{name} is {values!r:.40}; give a tuple with one entry per level")
            if len(values) != len(self.branching) + more or not values:
                raise InputError(f"{name} has {len(values)} entries; give one per level below the root (at least one) "
                                 "for branching and agreement, and one for the root too for the others")  # fmt: skip
            check = count if name == "branching" else _rational
            object.__setattr__(self, name, tuple(check(f"{name}[{i}]", value) for i, value in enumerate(values)))
        if not all(0 <= rho < 1 for rho in self.agreement):
            raise InputError(f"agreement is {self.agreement}; give probabilities below 1: at 1 a level has no variance")
        if 0 in self.weights or min(self.amplitudes or ()) <= 0:
            raise InputError(f"weights are {self.weights}, amplitudes {self.amplitudes}; give weights that are not 0 "
                             "and amplitudes above 0 (GLLM Def. 2)")  # fmt: skip

    @property
    def levels(self) -> tuple[int, ...]:
        """The width of each level's block of features: (m - 1,) * L."""
        return (self.symbols - 1,) * len(self.weights)

    @property
    def length(self) -> int:
        """The number T of tokens of a sentence."""
        return math.prod(self.branching)

    @property
    def parse_depth(self) -> NDArray[np.int64]:
        """For each position the level of the highest node that starts there, shape (T,): 0 first, L - 1 a mere leaf."""
        depth = np.zeros(1, dtype=np.int64)
        for level, children in enumerate(self.branching, start=1):
            depth = np.where(np.arange(depth.size * children) % children == 0, np.repeat(depth, children), level)
        return depth

    @property
    def tau(self) -> tuple[Fraction, ...]:
        """The exact data profile, d Fractions: a_l^2 (1 - rho^2), normalised (GLLM Def. 2)."""
        spread = [1 - Fraction(rho) ** 2 for rho in (0, *self.agreement)]
        return _shares([Fraction(a) ** 2 * s for a, s in zip(self.amplitudes or (), spread, strict=True)
                        for _ in range(self.symbols - 1)])  # fmt: skip

    @property
    def alpha(self) -> tuple[Fraction, ...]:
        """The exact target profile, d Fractions: (weights[l] / a_l)^2 c (c + 1), normalised (GLLM Def. 2)."""
        return _shares([(Fraction(w) / Fraction(a)) ** 2 * c * (c + 1)
                        for w, a in zip(self.weights, self.amplitudes or (), strict=True)
                        for c in range(1, self.symbols)])  # fmt: skip

    def data_profile(self) -> NDArray[np.float64]:
        """Return tau in floating point, shape (d,), as `gllm_lib.grading` takes it."""
        return np.array(self.tau, dtype=np.float64)

    def target_profile(self) -> NDArray[np.float64]:
        """Return alpha in floating point, shape (d,), as `gllm_lib.grading` takes it."""
        return np.array(self.alpha, dtype=np.float64)

    def coefficients(self) -> NDArray[np.float64]:
        """Return w, shape (d,): the target is <w, x>."""
        score = np.arange(self.symbols) - (self.symbols - 1) / 2
        contrast = score @ self._contrasts() / self.symbols
        ratio = np.array([float(w) / float(a) for w, a in zip(self.weights, self.amplitudes or (), strict=True)])
        return np.outer(ratio, contrast).ravel()

    def features(self, ancestors: ArrayLike) -> NDArray[np.float64]:
        """Return the features, shape (..., d), of tokens whose ancestors are `ancestors` (..., L), the root first.

        Raises InputError for another number of levels or a symbol that is none.
        """
        array = np.asarray(ancestors)
        if array.ndim == 0 or array.shape[-1] != len(self.weights):
            raise InputError(f"ancestors has shape {array.shape}; give {len(self.weights)} symbols a token, root first")
        table = self._contrasts()[token_ids("ancestors", array, self.symbols, array.ndim)]  # (..., L, m - 1)
        rho = np.array(self.agreement, dtype=np.float64)[:, None]
        table[..., 1:, :] -= rho * table[..., :-1, :]  # the product is made before the difference
        return (table * np.array(self.amplitudes, dtype=np.float64)[:, None]).reshape(*array.shape[:-1], -1)

    def sample(self, n_sentences: int, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return tokens (N, T), features (N, T, d) and target (N, T) of independent sentences."""
        count("n_sentences", n_sentences)
        nodes = [generator(rng).integers(self.symbols, size=(n_sentences, 1))]
        for children, rho in zip(self.branching, self.agreement, strict=True):
            parent = np.repeat(nodes[-1], children, axis=1)
            fresh = rng.integers(self.symbols, size=parent.shape)
            nodes.append(np.where(rng.random(parent.shape) < float(rho), parent, fresh))
        ancestors = np.stack([np.repeat(each, self.length // each.shape[1], axis=1) for each in nodes], axis=-1)
        features = self.features(ancestors)
        return nodes[-1], features, features @ self.coefficients()

    def conditional(self, prefix: ArrayLike) -> NDArray[Any]:
        """Return the law of the token after `prefix` (up to T - 1 tokens), shape (m,).

        Fractions if no agreement is a float; else refused as in `conditionals`, or for a whole sentence.
        """
        prefix = token_ids("prefix", prefix, self.symbols, 1)
        if prefix.size >= self.length:
            raise InputError(f"prefix has {prefix.size} tokens; a sentence has {self.length}: give fewer")
        rest = np.zeros(self.length - prefix.size, dtype=np.int64)
        exact = not any(isinstance(rho, float) for rho in self.agreement)
        return self._laws(np.concatenate([prefix, rest])[None], exact)[0, prefix.size]

    def conditionals(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """Return the law of each token given those before it in its sentence, shape (N, T, m), for tokens (N, T).

        Raises InputError for another length, an unknown token, or more children than floating point can follow.
        """
        tokens = token_ids("tokens", tokens, self.symbols, 2)
        if tokens.shape[1] != self.length:
            raise InputError(f"tokens has shape {tokens.shape}; a sentence has {self.length} tokens: give (N, T)")
        return self._laws(tokens, exact=False)

    def _laws(self, tokens: NDArray[np.int64], exact: bool) -> NDArray[Any]:
        """Pass messages up (law of the leaves below given a node) and down (law of a node given all to its left)."""
        for children, rho in zip(self.branching, self.agreement, strict=True):
            odds = math.log1p(self.symbols * float(rho) / (1 - float(rho)))  # of two symbols of a parent, per child
            if not exact and children * odds > LARGEST_ODDS:
                raise InputError(f"{children} children of agreement {rho} give odds of e**{children * odds:.0f}, over "
                                 "the largest float; give fewer children, less agreement or Fractions")  # fmt: skip
        one: Any = Fraction(1) if exact else 1.0
        eye = np.eye(self.symbols, dtype=np.int64) * one
        kernels = [eye * rho + (1 - rho) * one / self.symbols for rho in (one * r for r in self.agreement)]
        message, factors = eye[tokens], []
        for kernel, children in zip(kernels[::-1], self.branching[::-1], strict=True):
            below = (message @ kernel).reshape(len(tokens), -1, children, self.symbols)
            before = [np.full_like(below[:, :, 0], one)]
            for child in range(children):
                both = before[-1] * below[:, :, child]
                before.append(both / both.sum(axis=-1, keepdims=True))
            message = before.pop()
            factors.append(np.stack(before, axis=2))
        law = np.full((len(tokens), 1, self.symbols), one / self.symbols)
        for kernel, left in zip(kernels, factors[::-1], strict=True):
            both = law[:, :, None, :] * left
            law = ((both / both.sum(axis=-1, keepdims=True)) @ kernel).reshape(len(tokens), -1, self.symbols)
        return law

    def _contrasts(self) -> NDArray[np.float64]:
        """Return the contrasts h_c(s), shape (m, m - 1), orthogonal and of unit variance under the uniform law."""
        return helmert(self.symbols).T * math.sqrt(self.symbols)


def _shares(weights: list[Fraction]) -> tuple[Fraction, ...]:
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def _rational(name: str, value: Any) -> Probability:
    """Return a finite number: an integer or a Fraction as it is, so that laws are exact, any other as a float."""
    number = real(name, value)
    return value if isinstance(value, int | Fraction) else number

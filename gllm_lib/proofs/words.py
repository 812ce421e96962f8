"""Sums of products of matrices that have names and no sizes: one calculation for every shape and every dimension.

    u, q = letters("U Q", orthogonal="Q")
    str(u @ q @ (u @ q).T - u @ u.T)  # "0"

Code that uses only `@`, `.T`, `.inv()`, `+`, `-` and numbers runs on words as it does on matrices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import sympy

from gllm_lib.checks import InputError
from gllm_lib.proofs.evidence import Refuted


class Letter(NamedTuple):
    """A matrix by name, perhaps transposed, perhaps inverted; `kind` says what cancels it."""

    name: str
    kind: str
    transposed: bool = False
    inverted: bool = False

    def flip(self) -> Letter:
        """Return the transpose."""
        return self if self.kind == "symmetric" else self._replace(transposed=not self.transposed)

    def inverse(self) -> Letter:
        """Return the inverse; raises InputError for a matrix that nobody called invertible."""
        if self.kind not in ("orthogonal", "invertible"):
            raise InputError(f"{self.name} is {self.kind}; call it invertible or orthogonal to take its inverse")
        return self.flip() if self.kind == "orthogonal" else self._replace(inverted=not self.inverted)


class Words:
    """A sum of words with coefficients that sympy knows; neighbours that are inverse to each other are gone."""

    def __init__(self, terms: Mapping[tuple[Letter, ...], Any]) -> None:
        summed: dict[tuple[Letter, ...], Any] = {}
        for word, coefficient in terms.items():
            left: list[Letter] = []
            for letter in word:
                if left and letter.kind in ("orthogonal", "invertible") and left[-1] == letter.inverse():
                    left.pop()
                else:
                    left.append(letter)
            summed[tuple(left)] = summed.get(tuple(left), 0) + sympy.sympify(coefficient)
        self.terms = {word: c for word, given in summed.items() if (c := sympy.cancel(given)) != 0}

    def __add__(self, other: Words) -> Words:
        """Return the sum."""
        both = dict.fromkeys((*self.terms, *other.terms))
        return Words({word: self.terms.get(word, 0) + other.terms.get(word, 0) for word in both})

    def __sub__(self, other: Words) -> Words:
        """Return the difference."""
        return self + -1 * other

    def __matmul__(self, other: Words) -> Words:
        """Return the product of matrices."""
        total = Words({})
        for left, c in self.terms.items():
            total = total + Words({left + right: c * d for right, d in other.terms.items()})
        return total

    def __rmul__(self, number: Any) -> Words:
        """Return the product with a number, plain or of sympy."""
        return Words({word: number * c for word, c in self.terms.items()})

    @property
    def T(self) -> Words:
        """Return the transpose."""
        return Words({tuple(letter.flip() for letter in reversed(word)): c for word, c in self.terms.items()})

    def inv(self) -> Words:
        """Return the inverse of a single word; raises InputError for a sum."""
        if len(self.terms) != 1:
            raise InputError(f"{self} is no single product; only such has an inverse that is a word")
        ((word, c),) = self.terms.items()
        return Words({tuple(letter.inverse() for letter in reversed(word)): 1 / c})

    def __str__(self) -> str:
        """Return what is left, "0" if nothing is."""
        marks = {(False, False): "", (True, False): "'", (False, True): "^-1", (True, True): "^-T"}
        spelled = ((" ".join(each.name + marks[each[2:]] for each in w) or "I", c) for w, c in self.terms.items())
        return " + ".join(f"({c}) {word}" for word, c in sorted(spelled, key=lambda pair: pair[0])) or "0"


def unknown(name: str, argument: Words, kind: str = "general") -> Words:
    """Return an unknown function of words as one letter: the same letter for the same argument."""
    return Words({(Letter(f"{name}[{argument}]", kind),): 1})


def same(left: Words, right: Words) -> int:
    """Return 1 if two sums of words are equal whatever the matrices; raises Refuted with what is left."""
    if (left - right).terms:
        raise Refuted(f"{left - right} is left")
    return 1


def letters(names: str, *, orthogonal: str = "", invertible: str = "", symmetric: str = "") -> list[Words]:
    """Return one word for each name in a string of names; the other strings say which of them are what.

    Raises InputError for a kind given to a name that is not there.
    """
    kinds = {"orthogonal": orthogonal, "invertible": invertible, "symmetric": symmetric}
    kind_of = {name: kind for kind, given in kinds.items() for name in given.split()}
    if strange := sorted(set(kind_of) - set(names.split())):
        raise InputError(f"{strange[0]} is called {kind_of[strange[0]]} and is not among {names}")
    return [Words({(Letter(name, kind_of.get(name, "general")),): 1}) for name in names.split()]

"""What a budget buys: frontiers of score over cost, their inverses, envelopes, orders and certificates (FTIP 3.1-3.9).

Numbers are taken as they come and only compared, added and divided, so that Fractions give exact answers. What is not
known is a `Missing`: no number, hence neither zero nor smaller than another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from math import inf
from numbers import Rational, Real
from typing import Any

from gllm_lib.checks import InputError, InputTypeError, flag

Number = int | float | Fraction
Band = tuple[Number, Number]
KINDS = ("missing", "incompatible", "unmeasured")


@dataclass(frozen=True)
class Missing:
    """A value that is not there: its kind (missing, incompatible, unmeasured) and the reason (FTIP 3.1.6).

    Raises InputError for another kind and without a reason. Comparing one with a number raises TypeError.
    """

    kind: str
    reason: str

    def __post_init__(self) -> None:
        """Check both fields."""
        if self.kind not in KINDS:
            raise InputError(f"kind is {self.kind!r}; give one of {', '.join(KINDS)}")
        if not isinstance(self.reason, str) or not self.reason.strip():
            raise InputError(f"the reason is {self.reason!r}; say why the value is not there")


@dataclass(frozen=True)
class Piece:
    """Interventions summed up by one cost and one score; a single intervention is Piece(cost, score).

    With `reached` False the costs only come near `cost` from above; with `attained` False the scores only come near
    `score` from below, and it may be infinite. Raises InputError for a negative cost or one that is no number.
    """

    cost: Number
    score: Number
    reached: bool = True
    attained: bool = True

    def __post_init__(self) -> None:
        """Check that costs are in [0, inf] and that a score is real, or infinite and not attained."""
        if number("cost", self.cost, infinite=True) < 0:
            raise InputError(f"cost is {self.cost}; give one of at least 0, or inf for what no budget buys")
        flag("reached", self.reached)
        score = number("score", self.score, infinite=not flag("attained", self.attained))
        if score == -inf:
            raise InputError("score is -inf; leave out what has no score")


Family = Iterable[Piece | tuple[Number, Number]]


def number(name: str, value: Any, *, infinite: bool = False) -> Any:
    """Return `value` unchanged if it is a real number; raises InputTypeError if not, InputError for NaN or infinity."""
    if isinstance(value, bool) or not isinstance(value, Real):
        told = f"not there ({value.reason:.60})" if isinstance(value, Missing) else f"{value!r:.60}"
        raise InputTypeError(f"{name} is {told}; give a number, such as 0.5 or Fraction(1, 2)")
    if value != value or (not infinite and value in (inf, -inf)):
        raise InputError(f"{name} is {value}; give a {'' if infinite else 'finite '}number")
    return value


def _pieces(family: Family) -> list[Piece]:
    try:
        return [each if isinstance(each, Piece) else Piece(*each) for each in family]
    except TypeError as error:
        if isinstance(error, InputTypeError):
            raise
        raise InputTypeError(f"a family is {family!r:.40}; give pairs (cost, score), or Pieces") from error


def _feasible(family: Family, budget: Number) -> list[Piece]:
    if number("budget", budget) < 0:
        raise InputError(f"budget is {budget}; give a finite number of at least 0")
    return [p for p in _pieces(family) if p.cost < budget or (p.reached and p.cost == budget)]


def frontier(family: Family, budget: Number) -> Number:
    """Return V(budget), the supremum of the scores that cost at most the budget; -inf if none does (FTIP 3.1.3)."""
    return max((p.score for p in _feasible(family, budget)), default=-inf)


def attained(family: Family, budget: Number) -> bool:
    """Tell whether an intervention within the budget has the frontier's score (FTIP l. 7, l. 57)."""
    value = frontier(family := _pieces(family), budget)
    return any(p.attained and p.score == value for p in _feasible(family, budget))


def inverse_cost(family: Family, target: Number) -> Number:
    """Return the infimum of the budgets whose frontier reaches the finite target, inf if none (FTIP 3.3.2)."""
    number("target", target)
    return min((p.cost for p in _pieces(family) if p.score >= target), default=inf)


def witness_cost(family: Family, target: Number) -> Number:
    """Return the infimum of the costs of interventions that score the target themselves, inf if none."""
    number("target", target)
    reaching = (p for p in _pieces(family) if p.score > target or (p.attained and p.score == target))
    return min((p.cost for p in reaching), default=inf)


def iso_quality_ratio(cost_a: Number | Missing, cost_b: Number | Missing) -> Number | Missing:
    """Return cost_a / cost_b where 0 <= cost_a < inf and 0 < cost_b < inf, and elsewhere why not (FTIP 3.3.2)."""
    for cost in (cost_a, cost_b):
        if isinstance(cost, Missing):
            return cost
        if number("cost", cost, infinite=True) < 0:
            raise InputError(f"cost is {cost}; give one of at least 0")
        if cost == inf:
            return Missing("incompatible", "a side does not reach the target at any finite cost")
    if cost_b == 0:
        return Missing("incompatible", "the denominator is 0: its infimum over budgets is no cost of an intervention")
    exact = [cost if isinstance(cost, Rational) else Fraction(float(cost)) for cost in (cost_a, cost_b)]  # type: ignore[arg-type]
    ratio = Fraction(exact[0]) / Fraction(exact[1])
    if isinstance(cost_a, Rational) and isinstance(cost_b, Rational):
        return ratio
    try:
        return float(ratio)
    except OverflowError as error:
        raise InputError("the ratio of the costs is beyond all floats; give Fractions") from error


def envelope(scores: Iterable[Number]) -> list[Number]:
    """Return the running maximum of scores in order of cost (FTIP l. 195)."""
    return list(accumulate((number("score", score) for score in scores), max))


def crossing(costs: Sequence[Number], bands: Sequence[Band], target: Number) -> Band:
    """Return the interval of the first grid cost whose score reaches the target, inf where none does (FTIP l. 197).

    It starts at the first band that contains or exceeds the target and ends at the first that lies wholly above it.
    Raises InputError unless costs rise strictly and there is one band for each.
    """
    costs = [number("cost", cost) for cost in costs]
    if len(costs) != len(bands) or any(one >= other for one, other in pairwise(costs)):
        raise InputError(f"{len(costs)} costs and {len(bands)} bands; give rising costs and one band for each")
    ends, _ = [band(each) for each in bands], number("target", target)
    possible = (c for c, (_, high) in zip(costs, ends, strict=True) if high >= target)
    certain = (c for c, (low, _) in zip(costs, ends, strict=True) if low >= target)
    return next(possible, inf), next(certain, inf)


def band(value: Band) -> Band:
    """Return an interval (low, high); raises InputTypeError for another kind, InputError for one without a number."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InputTypeError(f"a band is {value!r:.40}; give (low, high)")
    low, high = (number("end of a band", end, infinite=True) for end in value)
    if low > high or low == inf or high == -inf:
        raise InputError(f"the band ({low}, {high}) holds no number; give (low, high)")
    return low, high


def dominates(
    a: Sequence[Number | Missing], b: Sequence[Number | Missing], senses: Sequence[int] | None = None
) -> bool:
    """Tell whether a is at least b in every coordinate and above it in one; never if one is Missing (FTIP l. 21).

    `senses` holds 1 where larger is better and -1 where smaller is; by default larger is. Raises InputError if lengths
    differ.
    """
    senses = [1] * len(a) if senses is None else senses
    if not len(a) == len(b) == len(senses) or any(sense not in (1, -1) for sense in senses):
        raise InputError(f"{len(a)}, {len(b)} coordinates and senses {senses}; give as many of each, senses 1 or -1")
    if any(isinstance(x, Missing) for x in (*a, *b)):
        return False
    for each in (*a, *b):
        number("coordinate", each)
    pairs = [(x, y) if sense == 1 else (y, x) for x, y, sense in zip(a, b, senses, strict=True)]
    return all(x >= y for x, y in pairs) and any(x > y for x, y in pairs)  # type: ignore[operator]


def pareto(vectors: Sequence[Sequence[Number | Missing]], senses: Sequence[int] | None = None) -> list[int]:
    """Return the places of the vectors that no other dominates; a vector with a Missing is one of them."""
    return [k for k, b in enumerate(vectors) if not any(dominates(a, b, senses) for a in vectors)]


def certified_gain(lower: Number, upper: Number) -> Number | Missing:
    """Return the most that V(C + delta) - V(C) can be if V(C) >= lower and V(C + delta) <= upper (FTIP 3.9.5).

    Without two finite bounds nothing is certified. Raises InputError if the bounds contradict each other.
    """
    for name, bound in (("lower", lower), ("upper", upper)):
        if number(f"the {name} bound", bound, infinite=True) in (inf, -inf):
            return Missing("missing", f"no finite {name} bound: a frontier that is not real has no gain")
    if upper < lower:
        raise InputError(f"upper bound {upper} is below lower bound {lower}, but a frontier never falls; check both")
    return upper - lower


def completions(measured: Family, budget: Number, least: Number, most: Number) -> Band:
    """Return the least and largest V(budget) of nondecreasing frontiers in [least, most] with these exact values.

    `measured` holds (cost, V(cost)). Raises InputError for values that fall, or lie outside (FTIP l. 205, l. 209).
    """
    known = sorted((p.cost, p.score) for p in _pieces(measured))
    number("budget", budget)
    band((least, most))
    if any(v > w or (c == d and v != w) for (c, v), (d, w) in pairwise(known)) or any(
        not least <= value <= most for _, value in known
    ):
        raise InputError(f"measured values fall or leave [{least}, {most}]; no frontier has them")
    below = [value for cost, value in known if cost <= budget]
    above = [value for cost, value in known if cost >= budget]
    return max(below, default=least), min(above, default=most)


def reversing_weights(a: Sequence[Number], b: Sequence[Number]) -> tuple[list[int], list[int]] | None:
    """Return weights w, w' >= 0 with w.a < w.b and w'.a > w'.b, None if one vector is nowhere larger (FTIP l. 67)."""
    if len(a) != len(b):
        raise InputError(f"{len(a)} and {len(b)} costs; give the same coordinates of both")
    for each in (*a, *b):
        number("cost", each)
    smaller = next((k for k, (x, y) in enumerate(zip(a, b, strict=True)) if x < y), None)
    larger = next((k for k, (x, y) in enumerate(zip(a, b, strict=True)) if x > y), None)
    if smaller is None or larger is None:
        return None
    return [int(k == smaller) for k in range(len(a))], [int(k == larger) for k in range(len(a))]

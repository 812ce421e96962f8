"""Exact checks: a sympy identity, a z3 region, a finite domain: each proves, refutes with a witness or says unknown."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sympy
import z3

from gllm_lib.proofs.evidence import Refuted, Unknown

WITNESS_DIGITS = 60  # a nonzero value is a witness when it exceeds 10**-30 at sixty digits


def identity(lhs: Any, rhs: Any = 0, *, tries: int = 12, seed: int = 0) -> int:
    """Prove two sympy expressions or matrices equal for all values of their symbols; return the entries proved.

    Raises Refuted with rational values of the symbols where they differ, and Unknown if neither a proof nor a witness
    is found. Symbols declared positive, integer or real get values of that kind.
    """
    difference = sympy.Matrix([lhs]) - sympy.Matrix([rhs]) if not hasattr(lhs, "shape") else sympy.Matrix(lhs) - rhs
    for entry in difference:
        _vanishes(sympy.sympify(entry), tries, random.Random(seed))
    return len(difference)


def _vanishes(expression: sympy.Expr, tries: int, rng: random.Random) -> None:
    symbols = sorted(expression.free_symbols, key=str)
    for _ in range(tries):  # a witness is cheaper than a failed simplification, so look for one first
        values = {symbol: _value(symbol, rng) for symbol in symbols}
        number = expression.subs(values)
        if number.is_finite is False or number.has(sympy.nan, sympy.zoo, sympy.oo):
            continue
        size = abs(sympy.N(number, WITNESS_DIGITS))
        if size.is_number and size > sympy.Float(10) ** (-WITNESS_DIGITS // 2):
            raise Refuted(f"at {_assignment(values)} the two sides differ by {sympy.N(number, 8)}")
    for rewrite in (sympy.expand, lambda e: sympy.cancel(sympy.together(e)), sympy.simplify):
        if rewrite(expression) == 0:
            return
    raise Unknown(f"sympy neither proves nor refutes {expression} = 0")


def _value(symbol: sympy.Symbol, rng: random.Random) -> sympy.Rational:
    if symbol.is_integer:
        return sympy.Integer(rng.randint(1, 9))
    value = sympy.Rational(rng.randint(1, 40), rng.randint(1, 20))
    return value if symbol.is_nonnegative or symbol.is_positive or rng.random() < 0.5 else -value


def _assignment(values: dict[Any, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items()) or "no symbols"


def smt(statement: Any, *, given: Sequence[Any] = (), seconds: float = 20.0) -> int:
    """Prove with z3 that `statement` follows from the formulas in `given`, for all values of their variables; return 1.

    Raises Refuted with z3's model of the opposite, Unknown when the time limit passes, and Unknown when `given` is
    contradictory (then anything would follow).
    """
    solver = z3.Solver()
    solver.set("timeout", int(1000 * seconds))
    solver.add(*given)
    if solver.check() == z3.unsat:
        raise Unknown("the hypotheses contradict each other, so the statement would hold for no reason")
    solver.add(z3.Not(statement))
    answer = solver.check()
    if answer == z3.unsat:
        return 1
    if answer == z3.sat:
        model = solver.model()
        raise Refuted(", ".join(f"{name} = {model[name]}" for name in sorted(model.decls(), key=str)))
    raise Unknown(f"z3 gives up after {seconds:g} s: {solver.reason_unknown()}")


def exhaust(domain: Iterable[Any], holds: Callable[[Any], bool]) -> int:
    """Check that `holds` is true on every element of a finite domain and return how many there were.

    Raises Refuted with the first element where it is false, and Unknown for an empty domain.
    """
    covered = 0
    for element in domain:
        if not holds(element):
            raise Refuted(element)
        covered += 1
    if covered == 0:
        raise Unknown("the domain is empty")
    return covered

"""Exact checks: a sympy identity, a z3 region, a finite domain: each proves, refutes with a witness or says unknown."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import sympy
import z3
from sympy.core.evalf import PrecisionExhausted
from sympy.logic.boolalg import BooleanAtom

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.proofs.evidence import Refuted, Unknown

WITNESS_DIGITS = 60  # a witness is a difference above 10**-30 of which sympy vouches for sixty digits
FIRST = 1.0  # seconds that z3 gets before it starts anew
POOL = [sympy.Rational(p, q) for q in (1, 2, 3, 7, 11, 20) for p in range(-40, 41) if abs(p) < 10 or q > 1]


def identity(lhs: Any, rhs: Any = 0, *, tries: int = 12, seed: int = 0) -> int:
    """Prove two sympy expressions or matrices equal wherever both are defined; return the number of entries proved.

    Raises Refuted with rational values of the symbols where they differ, and Unknown if neither a proof nor a witness
    is found, or if the difference holds rounded numbers. Values respect what the symbols are declared to be; raises
    InputError for two different symbols of one name.
    """
    left, right = (side if hasattr(side, "shape") else sympy.Matrix([side]) for side in (lhs, rhs))
    if hasattr(lhs, "shape") and not hasattr(rhs, "shape") and rhs == 0:
        right = sympy.zeros(*lhs.shape)
    difference = sympy.Matrix(left) - sympy.Matrix(right)
    for entry in difference:
        _vanishes(sympy.sympify(entry), tries, random.Random(seed))
    return len(difference)


def _vanishes(expression: sympy.Expr, tries: int, rng: random.Random) -> None:
    symbols = sorted(expression.free_symbols, key=str)
    twice = [one for one, other in pairwise(symbols) if str(one) == str(other)]
    if twice:
        raise InputError(f"two different symbols are called {twice[0]}; declare it once, with its assumptions")
    undefined = 0
    for _ in range(tries):  # a witness is cheaper than a failed simplification, so look for one first
        values = {symbol: rng.choice(_values(symbol)) for symbol in symbols}
        number = expression.subs(values)
        if number.is_finite is False or number.has(sympy.nan, sympy.zoo, sympy.oo):
            undefined += 1
        elif size := _size(number):
            raise Refuted(f"at {_assignment(values)} the two sides differ by {size}")
    if undefined == tries:
        raise Unknown(f"{expression} is defined at none of {tries} points, so its vanishing would say nothing")
    if expression.has(sympy.Float):
        raise Unknown(f"{expression} holds rounded numbers; write them as sympy.Rational")
    for rewrite in (sympy.expand, lambda e: sympy.cancel(sympy.together(e)), sympy.simplify):
        if rewrite(expression) == 0:
            return
    raise Unknown(f"sympy neither proves nor refutes {expression} = 0")


def _size(number: sympy.Expr) -> str:
    """Return a number that is surely not zero in eight digits, else nothing: cancellation leaves no true digit."""
    tiny = 10 ** (-12 if number.has(sympy.Float) else -WITNESS_DIGITS // 2)
    try:
        value = number.evalf(WITNESS_DIGITS, strict=True)
    except (PrecisionExhausted, NotImplementedError):
        return ""
    return str(sympy.N(value, 8)) if value.is_number and abs(value) > tiny else ""


@cache
def _values(symbol: sympy.Symbol) -> list[sympy.Rational]:
    """Return rational numbers that are all the symbol is declared to be, such as positive or even."""
    facts = symbol.assumptions0.items()
    fitting = [value for value in POOL if all(getattr(value, f"is_{fact}") in (truth, None) for fact, truth in facts)]
    if not fitting:
        raise Unknown(f"no rational number is all that {symbol} is declared to be, so no witness can be sought")
    return fitting


def _assignment(values: dict[Any, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items()) or "no symbols"


def smt(statement: Any, *, given: Sequence[Any] = (), seconds: float = 20.0) -> int:
    """Prove with z3 that `statement` follows from the formulas in `given`, for all values of their variables; return 1.

    Raises Refuted with z3's model of the opposite, Unknown when the time limit passes, Unknown when `given` is not
    known to be satisfiable (from a contradiction anything would follow), and InputTypeError for what is no formula.
    """
    for formula in (statement, *given):
        if not z3.is_bool(formula):
            raise InputTypeError(f"{formula!r} is {type(formula).__name__}, not a z3 formula; use variables of z3")
    solver = _solver(given, seconds)
    if (answer := solver.check()) != z3.sat:
        told = "contradict each other" if answer == z3.unsat else "may contradict each other: z3 finds no instance"
        raise Unknown(f"the hypotheses {told}, so the statement could hold for no reason")
    solver.add(z3.Not(statement))
    solver.set("timeout", int(1000 * min(seconds, FIRST)))
    if (answer := solver.check()) == z3.unknown:  # a used solver works step by step, a new one has other tactics
        solver = _solver([*given, z3.Not(statement)], seconds)
        answer = solver.check()
    if answer == z3.unsat:
        return 1
    if answer == z3.sat:
        model = solver.model()
        values = [name for name in model.decls() if name.arity() == 0]  # not z3's own functions, such as division by 0
        raise Refuted(", ".join(f"{name} = {model[name]}" for name in sorted(values, key=str)))
    raise Unknown(f"z3 gives up after {seconds:g} s: {solver.reason_unknown()}")


def _solver(formulas: Sequence[Any], seconds: float) -> Any:
    """Return a z3 solver of the formulas together, with its time limit."""
    solver = z3.Solver()
    solver.set("timeout", int(1000 * seconds))
    solver.add(*formulas)
    return solver


def show(*chains: Sequence[sympy.Basic | str]) -> None:
    """Display chains of equal expressions as mathematics, one line a chain; a string in a chain is ready LaTeX.

    Raises InputError for an empty chain and InputTypeError for a chain that is a string or a single expression.
    """
    from IPython.display import Markdown, display

    lines = []
    for chain in chains:
        if isinstance(chain, str) or not isinstance(chain, Sequence):
            raise InputTypeError(f"{chain!r} is {type(chain).__name__}; give a tuple of equal expressions")
        if not chain:
            raise InputError("a chain is empty; give at least one expression")
        lines.append(" = ".join(part if isinstance(part, str) else sympy.latex(part) for part in chain))
    display(Markdown("\n\n".join(f"$$\n{line}\n$$" for line in lines)))


def exhaust(domain: Iterable[Any], holds: Callable[[Any], bool]) -> int:
    """Check that `holds` is true on every element of a finite domain and return how many there were.

    Raises Refuted with the first element where it is false, Unknown for an empty domain, and InputTypeError for an
    answer that is neither true nor false.
    """
    covered = 0
    for element in domain:
        answer = holds(element)
        if not isinstance(answer, bool | np.bool_ | BooleanAtom):
            raise InputTypeError(f"holds({element}) is {type(answer).__name__}; return True or False")
        if not answer:
            raise Refuted(element)
        covered += 1
    if covered == 0:
        raise Unknown("the domain is empty")
    return covered

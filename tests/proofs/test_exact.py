"""Exact checks prove, refute with a true witness, or say unknown."""

from fractions import Fraction

import pytest
import sympy
import z3
from hypothesis import given
from hypothesis import strategies as st

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.proofs.evidence import Refuted, Unknown
from gllm_lib.proofs.exact import exhaust, identity, show, smt

x, y = sympy.symbols("x y", positive=True)
n = sympy.symbols("n", integer=True, positive=True)


@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [
        ((x + y) ** 2, x**2 + 2 * x * y + y**2),
        (1 / x + 1 / y, (x + y) / (x * y)),
        (sympy.sqrt(x) * sympy.sqrt(y), sympy.sqrt(x * y)),
        (sympy.cosh(x) ** 2 - sympy.sinh(x) ** 2, 1),
    ],
)
def test_identities_are_proved(lhs, rhs):
    assert identity(lhs, rhs) == 1


def test_matrices_count_their_entries():
    assert identity(sympy.Matrix([[x, 0], [0, y]]), sympy.diag(x, y)) == 4


@given(st.fractions(min_value=Fraction(1, 50), max_value=3).filter(lambda c: c != 2))
def test_a_wrong_constant_is_refuted_at_a_point_where_it_is_wrong(c):
    with pytest.raises(Refuted) as caught:
        identity((x + y) ** 2, x**2 + sympy.Rational(c.numerator, c.denominator) * x * y + y**2)
    values = dict(part.split(" = ") for part in str(caught.value).split("at ")[1].split(" the ")[0].split(", "))
    assert all(Fraction(value) > 0 for value in values.values())


def test_a_difference_that_sympy_cannot_decide_is_unknown():
    f = sympy.Function("f")
    with pytest.raises((Unknown, TypeError)):
        identity(f(x), f(x + 0 * y) + sympy.Function("h")(y))


def test_z3_proves_and_refutes():
    a, b = z3.Reals("a b")
    assert smt(a * a + b * b >= 2 * a * b) == 1
    with pytest.raises(Refuted, match="a ="):
        smt(a * a + b * b >= z3.Q(21, 10) * a * b, given=[a > 0, b > 0])


def test_contradictory_hypotheses_prove_nothing():
    a = z3.Real("a")
    with pytest.raises(Unknown, match="contradict"):
        smt(a == 7, given=[a > 0, a < 0])


def test_a_time_limit_is_unknown():
    a, b, c = z3.Ints("a b c")
    with pytest.raises(Unknown, match="gives up"):
        smt(a**3 + b**3 + c**3 != 114, given=[], seconds=0.2)


def test_exhaust_counts_refutes_and_refuses_nothing():
    assert exhaust(range(1, 8), lambda k: k < 8) == 7
    with pytest.raises(Refuted, match="5"):
        exhaust(range(8), lambda k: k < 5)
    with pytest.raises(Unknown, match="empty"):
        exhaust([], lambda k: True)


negative, imaginary = sympy.Symbol("m", negative=True), sympy.Symbol("z", imaginary=True)
even, real = sympy.Symbol("e", even=True), sympy.Symbol("r", real=True)


@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [
        (sympy.sqrt(negative**2), -negative),
        ((-1) ** even, 1),
        (sympy.cosh(50 * x) ** 2 - sympy.sinh(50 * x) ** 2, 1),  # equal, though 60 digits of each side say nothing
        (sympy.Matrix([[x, 0]]), sympy.Matrix([[x, 0]])),
    ],
)
def test_no_witness_breaks_an_assumption_or_comes_from_cancellation(lhs, rhs):
    assert identity(lhs, rhs) >= 1


def test_a_matrix_of_zeros_needs_no_other_side():
    assert identity(sympy.Matrix([[x - x, 0]])) == 2


@pytest.mark.parametrize(("lhs", "rhs"), [(sympy.sqrt(real**2), real), (sympy.log(real**2), 2 * sympy.log(real))])
def test_branches_are_refuted_where_they_differ(lhs, rhs):
    with pytest.raises(Refuted, match="r = -"):
        identity(lhs, rhs)


@pytest.mark.parametrize(
    ("lhs", "rhs", "message"),
    [
        (sympy.log(x - x), 0, "defined at none"),
        (0.1 * x + 0.2 * x, 0.3 * x, "rounded numbers"),
        (imaginary**2, -(sympy.Abs(imaginary) ** 2), "no rational number is all that z is declared"),
    ],
)
def test_what_no_point_can_speak_for_is_unknown(lhs, rhs, message):
    with pytest.raises(Unknown, match=message):
        identity(lhs, rhs)


def test_two_symbols_of_one_name_are_refused():
    with pytest.raises(InputError, match="two different symbols are called x"):
        identity(sympy.Symbol("x") + 1, x + 1)


def test_only_formulas_go_to_the_solver():
    a = z3.Real("a")
    for statement, hypotheses in ((1 < 2, ()), (a > 0, (False,)), (a, ())):
        with pytest.raises(InputTypeError, match="not a z3 formula"):
            smt(statement, given=hypotheses)


def test_hypotheses_that_nobody_can_satisfy_prove_nothing():
    a, b = z3.Reals("a b")
    with pytest.raises(Unknown, match="finds no instance"):
        smt(a * 0 == 0, given=[a**b == 2], seconds=1)


@pytest.mark.parametrize("answer", [None, "no", iter(()), 1])
def test_an_answer_that_is_neither_true_nor_false_is_refused(answer):
    with pytest.raises(InputTypeError, match="return True or False"):
        exhaust([1], lambda k: answer)


def test_a_generator_that_is_used_up_is_no_domain():
    domain = (k for k in range(3))
    assert exhaust(domain, lambda k: sympy.Integer(k) >= 0) == 3
    with pytest.raises(Unknown, match="empty"):
        exhaust(domain, lambda k: True)


def test_a_witness_names_variables_only():
    a, b = z3.Reals("a b")
    with pytest.raises(Refuted) as caught:
        smt(a / b <= 1)
    assert {part.split(" = ")[0] for part in str(caught.value).split(", ")} == {"a", "b"}


def test_chains_are_shown_as_mathematics(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    show((r"\partial f", x**2, x * x), (y,))
    assert [text.data for text in shown] == ["$$\n\\partial f = x^{2} = x^{2}\n$$\n\n$$\ny\n$$"]


@pytest.mark.parametrize(("chain", "error"), [((), InputError), ("x = y", InputTypeError), (x**2, InputTypeError)])
def test_a_chain_is_a_tuple_of_expressions(chain, error):
    with pytest.raises(error):
        show(chain)

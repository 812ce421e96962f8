"""The bracket grammar: exact laws against enumeration and simulation, bad input."""

import itertools
import math
from collections import defaultdict
from fractions import Fraction as F

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.corpora.grammar import Brackets

SIX = 6.0  # standard errors: a correct sample fails one comparison in 5e8


def within(values, expected):
    """Whether the mean over the first axis is within SIX standard errors of `expected`."""
    error = values.std(axis=0, ddof=1) / math.sqrt(len(values))
    return np.all(np.abs(values.mean(axis=0) - expected) <= SIX * error + 1e-15)


def bracket_chain(grammar):
    """Return the stacks and their exact transition matrix, built from the docstring's words alone."""
    stacks = [s for d in range(grammar.max_depth + 1) for s in itertools.product(range(grammar.kinds), repeat=d)]
    p, chain = grammar.open_probability, defaultdict(F)
    for stack in stacks:
        stay = F(1) if len(stack) == grammar.max_depth else 1 - p
        chain[stack, stack[:-1]] += stay
        if len(stack) < grammar.max_depth:
            for kind in range(grammar.kinds):
                chain[stack, (*stack, kind)] += p / grammar.kinds
    return stacks, sympy.Matrix(len(stacks), len(stacks), lambda i, j: sympy.Rational(chain[stacks[i], stacks[j]]))


@pytest.mark.parametrize(("kinds", "p", "depth"), [(1, F(1, 3), 1), (2, F(2, 5), 2), (2, F(5, 7), 3), (3, F(1, 2), 2)])
def test_the_depth_law_and_the_entropy_rate_are_those_of_the_chain_on_stacks(kinds, p, depth):
    grammar = Brackets(kinds, p, depth)
    stacks, chain = bracket_chain(grammar)
    (kernel,) = (chain.T - sympy.eye(len(stacks))).nullspace()  # one dimension: the law is unique
    law = [F(int(x.p), int(x.q)) for x in kernel / sum(kernel)]
    depths = [sum(w for w, s in zip(law, stacks, strict=True) if len(s) == d) for d in range(depth + 1)]
    assert list(grammar.depth_law()) == depths
    entropies = [-sum(float(x) * math.log(x) for x in chain.row(i) if x) for i in range(len(stacks))]
    rate = sum(float(w) * h for w, h in zip(law, entropies, strict=True))
    assert grammar.entropy_rate() == pytest.approx(rate, rel=1e-13)  # some tens of roundings


def test_simulated_loss_and_depth_agree_with_the_exact_ones():
    grammar = Brackets(3, 0.45, 4)
    tokens = grammar.sample(400_000, np.random.default_rng(5))
    losses = -np.log(grammar.conditionals(tokens)[np.arange(len(tokens)), tokens])
    batches = losses.reshape(400, -1).mean(axis=1)  # of 1000 tokens, some hundred strings: all but independent
    assert within(batches, grammar.entropy_rate())
    at = grammar.depth(tokens)[:, None] == np.arange(5)
    assert within(at.reshape(400, -1, 5).mean(axis=1), grammar.depth_law())


@given(st.integers(1, 3), st.fractions(F(1, 20), F(19, 20), max_denominator=40), st.integers(1, 5),
       st.integers(0, 2**32))  # fmt: skip
def test_every_prefix_has_the_law_that_a_stack_gives(kinds, p, deepest, seed):
    grammar = Brackets(kinds, p, deepest)
    tokens = grammar.sample(40, np.random.default_rng(seed))
    rows, depth, stack = grammar.conditionals(tokens), grammar.depth(tokens), []
    for i, token in enumerate(tokens.tolist()):
        law = grammar.conditional(tokens[:i])
        expected = [F(0)] * grammar.vocabulary
        if len(stack) < deepest:
            expected[:kinds] = [p / kinds] * kinds
        expected[kinds + stack[-1] if stack else grammar.stop] = 1 - p if len(stack) < deepest else F(1)
        assert list(law) == expected
        assert sum(law) == 1
        assert law[token] > 0
        # a float p, 1 - p and p / kinds are each within one rounding of the rational, relative to at most 1
        assert np.allclose(rows[i], law.astype(float), rtol=0, atol=2.3e-16)
        if token < kinds:
            stack.append(token)
        elif stack:
            stack.pop()
        assert depth[i] == len(stack)


def test_whole_numbers_of_numpy_are_numbers():
    assert list(Brackets(np.int64(2), F(5, 7), np.int64(60)).depth_law()) == list(Brackets(2, F(5, 7), 60).depth_law())


@pytest.mark.parametrize("p", [0.999, 0.001])
def test_deep_brackets_neither_overflow_nor_lose_mass(p):
    law = Brackets(1, p, 2000).depth_law()
    assert np.isfinite(law).all()
    assert law.sum() == pytest.approx(1.0, abs=2000 * 2.3e-16)


@pytest.mark.parametrize(
    ("tokens", "place"),
    [([0, 3], r"tokens\[1\] is 3"), ([1, 2], r"tokens\[1\] is 2"), ([2], r"tokens\[0\] is 2"),
     ([4, 0, 4], r"tokens\[2\] is 4"), ([0, 0, 0], r"tokens\[2\] is 0"), ([0, 2, 2], r"tokens\[2\] is 2"),
     ([5], "0 to 4"), ([-1], "0 to 4"),
     ([[0, 2]], "flat list")],
)  # fmt: skip
def test_what_is_no_beginning_of_a_stream_is_refused_where_it_breaks(tokens, place):
    grammar = Brackets(2, 0.5, 2)
    for method in (grammar.conditional, grammar.conditionals, grammar.depth):
        with pytest.raises(InputError, match=place):
            method(tokens)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [((0, 0.5, 2), InputError), ((2, 0.0, 2), InputError), ((2, 1, 2), InputError), ((2, math.nan, 2), InputError),
     ((2, 0.5, 0), InputError), ((2.0, 0.5, 2), InputTypeError), ((2, "0.5", 2), InputTypeError),
     ((True, 0.5, 2), InputTypeError)],
)  # fmt: skip
def test_bracket_parameters_that_make_no_grammar_are_refused(arguments, error):
    with pytest.raises(error, match="give"):
        Brackets(*arguments)


def test_a_number_of_numpy_is_a_float_and_a_fraction_stays_one():
    grammar = Brackets(np.int64(2), np.float32(0.25), np.uint8(3))
    assert [type(each) for each in (grammar.kinds, grammar.open_probability, grammar.max_depth)] == [int, float, int]
    assert grammar == Brackets(2, 0.25, 3)
    assert type(Brackets(2, F(1, 4), 3).open_probability) is F


def test_samples_need_a_generator_and_a_length():
    sample = Brackets(1, 0.5, 1).sample
    with pytest.raises(InputTypeError, match="default_rng"):
        sample(3, 0)
    with pytest.raises(InputError, match="at least 1"):
        sample(0, np.random.default_rng(0))

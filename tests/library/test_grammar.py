"""Grammars: exact laws against enumeration and simulation, closed-form profiles, bad input."""

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
from gllm_lib.corpora.grammar import Brackets, LevelTree
from gllm_lib.grading import affinity, fourth_root_grades, gain

SIX = 6.0  # standard errors: a correct sample fails one comparison in 5e8
TREE = LevelTree(3, (2, 2), (F(1, 2), F(2, 3)), weights=(1, 2, -3), amplitudes=(1, F(5, 2), 1))


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
    assert list(LevelTree(np.int8(3), (np.int8(40),), (F(2, 3),), (1, 1)).conditional([0] * 39)) == list(
        LevelTree(3, (40,), (F(2, 3),), (1, 1)).conditional([0] * 39)
    )


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
    tree = LevelTree(2, (np.int32(2),), (np.float32(0.5),), (1, F(1, 2)))
    assert [type(each) for each in (*tree.branching, *tree.agreement, *tree.weights)] == [int, float, int, F]


def test_samples_need_a_generator_and_a_length():
    for sample in (Brackets(1, 0.5, 1).sample, TREE.sample):
        with pytest.raises(InputTypeError, match="default_rng"):
            sample(3, 0)
        with pytest.raises(InputError, match="at least 1"):
            sample(0, np.random.default_rng(0))


def derivations(tree):
    """Yield every derivation of a tree of branching (2, 2): its probability and the ancestors (T, L) of its tokens."""
    m = tree.symbols

    def step(rho, parent, child):
        return (1 - F(rho)) / m + (F(rho) if parent == child else 0)

    for root, *rest in itertools.product(range(m), repeat=7):
        middle, leaves = rest[:2], rest[2:]
        chance = F(1, m)
        for i, symbol in enumerate(middle):
            chance *= step(tree.agreement[0], root, symbol)
            for leaf in leaves[2 * i : 2 * i + 2]:
                chance *= step(tree.agreement[1], symbol, leaf)
        yield chance, [(root, middle[i // 2], leaf) for i, leaf in enumerate(leaves)]


def exact_features(tree, ancestors):
    """Return contrasts of one token as Fractions, each divided by the root of m / (c (c + 1))."""
    rho, values = (0, *tree.agreement), []
    for level, symbol in enumerate(ancestors):
        for c in range(1, tree.symbols):
            contrast = [1 if s < c else -c if s == c else 0 for s in range(tree.symbols)]
            above = contrast[ancestors[level - 1]] if level else 0
            values.append(F(tree.amplitudes[level]) * (contrast[symbol] - F(rho[level]) * above))
    return values


def test_second_moments_are_diagonal_and_tau_is_their_share_over_all_derivations():
    moments = defaultdict(F)
    for chance, tokens in derivations(TREE):
        values = exact_features(TREE, tokens[2])
        for i, j in itertools.combinations_with_replacement(range(6), 2):
            moments[i, j] += chance * values[i] * values[j]
    assert all(value == 0 for (i, j), value in moments.items() if i != j)
    scale = [F(3, c * (c + 1)) for c in (1, 2)] * 3
    second = [moments[i, i] * scale[i] for i in range(6)]
    assert [value / sum(second) for value in second] == list(TREE.tau)
    assert second == [1, 1, F(25, 4) * F(3, 4), F(25, 4) * F(3, 4), F(5, 9), F(5, 9)]


def test_alpha_is_the_share_of_the_squared_coefficients_of_the_target_over_all_derivations():
    score, rho = (-1, 0, 1), (0, *TREE.agreement)
    columns = [F(2), F(6)] * 3  # squared lengths of the contrasts (1, -1, 0) and (1, 1, -2)
    coefficients = []
    for level, weight in enumerate(TREE.weights):
        for contrast, length in zip([(1, -1, 0), (1, 1, -2)], columns, strict=False):
            dot = sum(a * b for a, b in zip(contrast, score, strict=True))
            coefficients.append(F(weight) / F(TREE.amplitudes[level]) * dot / length)
    for _, tokens in itertools.islice(derivations(TREE), 0, None, 37):
        values = exact_features(TREE, tokens[1])
        told = sum(c * x for c, x in zip(coefficients, values, strict=True))
        marks = [score[s] for s in tokens[1]]
        assert told == sum(F(w) * (v - F(r) * u) for w, v, r, u in
                           zip(TREE.weights, marks, rho, [0, *marks[:-1]], strict=True))  # fmt: skip
    squares = [c**2 * length for c, length in zip(coefficients, columns, strict=True)]
    assert [square / sum(squares) for square in squares] == list(TREE.alpha)
    w = TREE.coefficients()
    assert np.allclose(w**2 / (w @ w), TREE.target_profile(), rtol=1e-14)


def test_conditionals_are_those_of_all_derivations():
    joint = defaultdict(F)
    for chance, tokens in derivations(TREE):
        joint[tuple(leaf for *_, leaf in tokens)] += chance
    assert sum(joint.values()) == 1
    sentences = np.array(list(joint))
    rows = TREE.conditionals(sentences)
    for length in range(4):
        for prefix in itertools.product(range(3), repeat=length):
            mass = [sum(c for s, c in joint.items() if s[: length + 1] == (*prefix, v)) for v in range(3)]
            law = TREE.conditional(prefix)
            assert list(law) == [value / sum(mass) for value in mass]
            same = (sentences[:, :length] == np.array(prefix)).all(axis=1)
            assert np.allclose(rows[same, length], law.astype(float), rtol=1e-14)  # tens of roundings
    chances = rows[np.arange(len(sentences))[:, None], np.arange(4), sentences].prod(axis=1)
    assert np.allclose(chances, [float(c) for c in joint.values()], rtol=1e-13)


def test_simulated_moments_target_and_loss_agree_with_the_closed_forms():
    tree = LevelTree(4, (3, 2, 2), (0.6, 0.3, 0.8), (1.0, 1.0, 1.0, 1.0))
    tokens, features, target = tree.sample(20_000, np.random.default_rng(11))
    assert tokens.shape == target.shape == (20_000, 12)
    assert features.shape == (20_000, 12, sum(tree.levels)) == (20_000, 12, 12)
    products = np.einsum("ntd,nte->nde", features, features) / 12  # sentences are independent, tokens are not
    rho = np.repeat([0, *tree.agreement], 3)
    assert within(products, np.diag(1 - rho**2))
    assert within(features.mean(axis=1), 0.0)
    # the squared loss of the best linear read-out is 0: the target's second moment is sum w^2 E x^2
    assert within((target**2).mean(axis=1), tree.coefficients() ** 2 @ (1 - rho**2))
    assert np.bincount(tokens.ravel()).min() > 0


def test_the_products_of_agreements_weigh_the_score_of_the_token_itself():
    tree = LevelTree(5, (2, 3), (F(1, 2), F(3, 4)), weights=(F(3, 8), F(3, 4), 1))
    tokens, _, target = tree.sample(200, np.random.default_rng(0))
    assert np.allclose(target, tokens - 2.0, atol=1e-14)  # sums of fifteen numbers below 4


def test_parse_depth_is_the_level_of_the_highest_node_that_starts_at_a_token():
    assert LevelTree(2, (2, 3), (0.5, 0.5), (1, 1, 1)).parse_depth.tolist() == [0, 2, 2, 1, 2, 2]
    assert LevelTree(2, (1, 2), (0.5, 0.5), (1, 1, 1)).parse_depth.tolist() == [0, 2]


def test_an_oracle_grading_follows_from_the_profiles():
    alpha, tau = TREE.target_profile(), TREE.data_profile()
    value = gain(fourth_root_grades(alpha, tau), alpha, tau)
    assert value == pytest.approx(affinity(alpha, tau) ** 2, rel=1e-14)
    assert value < 0.8  # of this tree: alpha lies on the level that varies least


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [({"symbols": 1}, InputError, "at least 2"), ({"branching": ()}, InputError, "at least one"),
     ({"branching": (2, 0)}, InputError, r"branching\[1\]"), ({"branching": 3}, InputTypeError, "tuple"),
     ({"agreement": (0.5,)}, InputError, "1 entries"), ({"agreement": (0.5, 1.0)}, InputError, "below 1"),
     ({"agreement": (0.5, -0.1)}, InputError, "below 1"), ({"agreement": (0.5, "x")}, InputTypeError, "number"),
     ({"weights": (1, 0, 1)}, InputError, "Def. 2"), ({"amplitudes": (1, 1, 0)}, InputError, "Def. 2"),
     ({"weights": (1, math.nan, 1)}, InputError, "finite"), ({"weights": (1, 2)}, InputError, "2 entries")],
)  # fmt: skip
def test_parameters_that_make_no_tree_are_refused(change, error, told):
    arguments = {"symbols": 3, "branching": (2, 2), "agreement": (0.5, 0.5), "weights": (1, 1, 1)} | change
    with pytest.raises(error, match=told):
        LevelTree(**arguments)


def test_sentences_that_no_tree_makes_are_refused():
    with pytest.raises(InputError, match="a sentence has 4"):
        TREE.conditionals([[0, 1, 2]])
    with pytest.raises(InputError, match="give fewer"):
        TREE.conditional([0, 1, 2, 0])
    with pytest.raises(InputError, match="0 to 2"):
        TREE.conditional([3])
    with pytest.raises(InputTypeError, match="whole numbers"):
        TREE.conditionals([[0.5, 1, 1, 1]])
    with pytest.raises(InputError, match="3 symbols a token"):
        TREE.features([[0, 1]])
    with pytest.raises(InputError, match="fewer children"):
        LevelTree(2, (1000,), (0.9,), (1, 1)).conditionals(np.zeros((1, 1000), dtype=int))
    undecided = [0] * 120 + [1] * 119
    with pytest.raises(InputError, match="or Fractions"):
        LevelTree(2, (240,), (0.9,), (1, 1)).conditional(undecided)
    exact = LevelTree(2, (240,), (F(9, 10),), (1, 1)).conditional(undecided)
    assert list(exact) == [F(181, 200), F(19, 200)]  # odds of 19 for the symbol that leads by one

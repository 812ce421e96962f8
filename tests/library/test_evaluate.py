"""Evaluation: nats against a loop over positions, the tilt, units, attention on arcs, accuracy by depth, bad input."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import beta

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.corpora.grammar import Brackets
from gllm_lib.models import GPT, Grading, compile_grades, gpt2_like
from gllm_lib.training.encode import encode
from gllm_lib.training.evaluate import (
    accuracy_by_depth,
    bits_per_byte,
    evaluate,
    perplexity,
    structural_attention_mass,
)

GRAMMAR = Brackets(2, 0.4, 3)
TOKENS = GRAMMAR.sample(60, np.random.default_rng(2)).astype(np.uint16)
# float32, sums of at most a few hundred terms of size 1: 300 roundings of 6e-8, and room for the order of the sums
CLOSE = 2e-5


def gpt(seed=0, **grading):
    config = gpt2_like(5, 7, 16, 2, 2, tied=False, grading=Grading(**grading) if grading else None)
    model = GPT(config, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5.0)  # far from the uniform answer
    return model


@torch.no_grad()
def losses(model, tokens):
    """Return the loss of every token but the first, one call of the model each."""
    told = []
    for i in range(1, len(tokens)):
        start = (i - 1) // 7 * 7
        logits = model(torch.tensor(tokens[start:i].astype(np.int64))[None])[0, -1].double()
        told.append(float(torch.logsumexp(logits, 0) - logits[int(tokens[i])]))
    return np.array(told)


def test_every_token_but_the_first_is_predicted_once_from_its_window():
    model = gpt()
    single = losses(model, TOKENS)
    for size in (2, 7, 8, 9, 15, 60):
        for batch in (1, 3, 100):
            told = evaluate(model, TOKENS[:size], batch=batch)
            assert told == pytest.approx(single[: size - 1].mean(), abs=CLOSE)


def test_dropping_the_tilt_is_compiling_without_it_and_needs_no_context():
    model = gpt(output=(0.0, 0.25, 0.5, 0.75, 1.0))
    kept, dropped = evaluate(model, TOKENS), evaluate(model, TOKENS, tilt="drop")
    assert dropped == pytest.approx(evaluate(compile_grades(model, tilt="drop"), TOKENS), abs=CLOSE)
    assert kept == pytest.approx(evaluate(compile_grades(model), TOKENS), abs=CLOSE)
    assert abs(kept - dropped) > 100 * CLOSE
    plain = gpt()
    assert evaluate(plain, TOKENS, tilt="drop") == evaluate(plain, TOKENS)


def test_a_model_of_the_unigram_law_costs_what_the_law_says():
    model = gpt()
    law = np.bincount(TOKENS[1:], minlength=5) / 59
    with torch.no_grad():
        model.norm.weight.zero_()
        model.norm.bias.zero_()
        model.norm.bias[0] = 1.0
        model.head.weight[:, 0] = torch.from_numpy(np.log(law))
    assert evaluate(model, TOKENS) == pytest.approx(-(law * np.log(law)).sum(), abs=CLOSE)


def test_units():
    assert bits_per_byte(math.log(2) * 3, tokens=10, bytes=15) == pytest.approx(2.0, rel=1e-15)
    assert perplexity(math.log(50)) == pytest.approx(50, rel=1e-14)


def test_hidden_states_are_those_of_the_model_window_by_window():
    model = gpt()
    for layer in (None, 0, 1, 2):
        states = encode(model, TOKENS[:17], layer, batch=2)
        assert states.shape == (17, 16)
        assert states.dtype == np.float32
        for start in (0, 7, 14):
            window = torch.tensor(TOKENS[start : min(start + 7, 17)].astype(np.int64))[None]
            with torch.no_grad():
                expected = model.hidden(window, layer)[0].numpy()
            assert np.allclose(states[start : start + 7], expected, atol=CLOSE)


def test_attention_mass_is_the_mean_over_arcs_of_single_weights():
    model, tokens = gpt(), torch.from_numpy(TOKENS[:56].astype(np.int64).reshape(8, 7))
    weights = model.attention_weights(tokens)
    arcs = [(0, 3, 1), (0, 6, 0), (2, 5, 4), (7, 1, 0)]
    told = structural_attention_mass(weights, arcs)
    w = weights.detach().numpy().astype(float)
    for layer in range(2):
        for head in range(2):
            single = [w[layer, b, head, i, j] for b, i, j in arcs]
            before = [sum(w[layer, b, head, i, k] for k in range(i)) for b, i, _ in arcs]
            others = [np.mean([w[layer, c, head, i, j] for c in range(8) if c != b]) for b, i, j in arcs]
            assert told.structural[layer, head] == pytest.approx(np.mean(single), abs=1e-12)  # of the same floats
            assert told.total[layer, head] == pytest.approx(np.mean(before), abs=1e-12)
            assert told.null[layer, head] == pytest.approx(np.mean(others), abs=1e-12)


def test_a_head_that_knows_only_positions_is_at_its_null_and_one_that_knows_arcs_above():
    rng = np.random.default_rng(0)
    positional = np.tril(rng.random((1, 1, 1, 9, 9)))
    positional = np.broadcast_to(positional / positional.sum(axis=-1, keepdims=True), (1, 20, 1, 9, 9)).copy()
    arcs = [(b, i, int(rng.integers(i))) for b in range(20) for i in range(1, 9)]
    told = structural_attention_mass(positional, arcs)
    assert told.structural == pytest.approx(told.null, abs=1e-14)
    knowing = np.zeros_like(positional)
    knowing[..., 0, 0] = 1.0
    for b, i, j in arcs:
        knowing[0, b, 0, i, j] = 1.0
    told = structural_attention_mass(knowing, arcs)
    assert told.structural == told.total == 1.0
    assert told.null < 0.5


@pytest.mark.parametrize(
    ("arcs", "told"),
    [([(0, 1, 0), (1, 2, 3)], r"arcs\[1\].*does not point backward"), ([(0, 2, 2)], "1 of 1 do not"),
     ([], "at least one"), ([(2, 1, 0)], "outside 2 sequences of 4"), ([(0, 4, 0)], "outside"),
     ([(0, 1, -1)], "outside"),
     ([(1, 0)], "position, earlier position"), ([(0.0, 1.0, 0.0)], "whole numbers")],
)  # fmt: skip
def test_arcs_that_no_causal_head_can_attend_to_are_refused(arcs, told):
    with pytest.raises(InputError, match=told):
        structural_attention_mass(np.full((1, 2, 1, 4, 4), 0.25), arcs)


@pytest.mark.parametrize(
    ("weights", "told"),
    [(np.full((1, 1, 1, 4, 4), 0.25), "one sequence"), (np.full((2, 1, 4, 4), 0.25), "layers, B, H, T, T"),
     (np.full((1, 2, 1, 4, 3), 0.25), "layers, B, H, T, T"), (np.full((1, 2, 1, 4, 4), np.nan), "NaN"),
     (np.full((1, 2, 1, 4, 4), 0.2), "miss the sum 1 by up to 0.2"), (np.zeros((1, 2, 1, 4, 4)), "after the softmax"),
     (np.tile([1.5, -0.5, 0, 0], (1, 2, 1, 4, 1)), "fall to -0.5"),
     (np.full((1, 2, 1, 4, 4), 0.25 + 2e-15), "sum 1"),  # rows of float64 may be off by 8 x 2.2e-16
     (torch.full((1, 2, 1, 4, 4), 0.2505), "sum 1"), (torch.full((1, 2, 1, 4, 4), 0.26).bfloat16(), "sum 1")],
)  # fmt: skip
def test_weights_that_are_no_attention_are_refused(weights, told):
    with pytest.raises(InputError, match=told):
        structural_attention_mass(weights, [(0, 1, 0)])


def test_accuracy_by_depth_counts_and_bounds_each_depth():
    targets, depth = torch.tensor([[0, 1, 2], [3, 4, 0]]), torch.tensor([[2, 2, -1], [2, 0, 2]])
    predictions = torch.tensor([[0, 1, 2], [0, 4, 0]])
    rows = accuracy_by_depth(predictions, targets, depth)
    assert [(row.depth, row.count, row.accuracy) for row in rows] == [(-1, 1, 1.0), (0, 1, 1.0), (2, 4, 0.75)]
    assert rows[2].low == pytest.approx(beta.ppf(0.025, 3, 2), rel=1e-9)  # Clopper and Pearson's quantiles
    assert rows[2].high == pytest.approx(beta.ppf(0.975, 4, 1), rel=1e-9)
    logits = torch.nn.functional.one_hot(predictions, 5).float()
    assert accuracy_by_depth(logits, targets, depth) == rows
    wide = accuracy_by_depth(predictions, targets, depth, level=0.99)
    assert wide[2].low < rows[2].low


def test_a_grammar_is_predicted_best_where_only_one_token_can_follow():
    tokens = GRAMMAR.sample(5000, np.random.default_rng(1))
    law = GRAMMAR.conditionals(tokens)[1:]
    rows = accuracy_by_depth(law, tokens[1:], GRAMMAR.depth(tokens)[:-1])
    assert [row.depth for row in rows] == [0, 1, 2, 3]
    assert rows[3].accuracy == 1.0  # at the deepest the bracket must close
    assert all(row.low <= 0.6 <= row.high for row in rows[:3])  # elsewhere it ends with probability 0.6


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [(lambda m: evaluate(m, [1]), InputError, "at least 2"), (lambda m: evaluate(m, [1, 5]), InputError, "0 to 4"),
     (lambda m: evaluate(m, [1.0, 2.0]), InputTypeError, "whole"),
     (lambda m: evaluate(m, TOKENS, batch=0), InputError, "batch is 0"),
     (lambda m: evaluate(m, TOKENS, tilt="off"), InputError, "keep or drop"),
     (lambda m: evaluate(m, TOKENS, batch="a"), InputTypeError, "batch is 'a'"),
     (lambda m: perplexity(None), InputTypeError, "nats_per_token is None"),
     (lambda m: evaluate(None, TOKENS), InputTypeError, "GPT"), (lambda m: encode(m, []), InputError, "at least 1"),
     (lambda m: encode(m, TOKENS, 3), InputError, "layer is 3"), (lambda m: encode(m, [7]), InputError, "0 to 4"),
     (lambda m: perplexity(math.nan), InputError, "nan"), (lambda m: perplexity(-0.1), InputError, "-0.1"),
     (lambda m: bits_per_byte(1.0, math.nan, 5), InputTypeError, "tokens is nan"),
     (lambda m: bits_per_byte(1.0, 5, math.inf), InputTypeError, "bytes is inf"),
     (lambda m: perplexity(710.0), InputError, "709"), (lambda m: bits_per_byte(1.0, 5, 0), InputError, "bytes is 0"),
     (lambda m: accuracy_by_depth([1], [1, 2], [0, 0]), InputError, "shape"),
     (lambda m: accuracy_by_depth([], [], []), InputError, "at least one"),
     (lambda m: accuracy_by_depth(np.zeros((1, 0)), [1], [0]), InputError, "shape"),
     (lambda m: accuracy_by_depth(np.array([[None, None]]), [1], [0]), InputError, "shape"),
     (lambda m: accuracy_by_depth(np.array([None]), [1], [0]), InputTypeError, "predictions hold object"),
     (lambda m: accuracy_by_depth(None, [1], [0]), InputTypeError, "predictions is None"),
     (lambda m: accuracy_by_depth([1.5], [1], [0]), InputTypeError, "predictions"),
     (lambda m: accuracy_by_depth([[0.0, math.nan]], [1], [0]), InputError, "NaN"),
     (lambda m: accuracy_by_depth([1], [1], [0], level=95), InputError, "level is 95")],
)  # fmt: skip
def test_bad_input_is_refused(call, error, told):
    with pytest.raises(error, match=told):
        call(gpt())


def test_half_precision_is_measured_as_its_values_are():
    model, tokens = gpt().bfloat16(), torch.from_numpy(TOKENS[:14].astype(np.int64).reshape(2, 7))
    weights, logits = model.attention_weights(tokens), model(tokens)
    told = structural_attention_mass(weights, [(0, 3, 1)]), accuracy_by_depth(logits, tokens, tokens)
    row = weights[:, :, :, 3].detach().double().numpy()  # of few digits, so that sums and differences are exact
    expected = row[:, 0, :, 1], row[:, 0, :, :3].sum(axis=-1), row[:, 1, :, 1]
    assert all(np.array_equal(a, b) for a, b in zip(told[0], expected, strict=True))
    assert told[1] == accuracy_by_depth(logits.float(), tokens, tokens)


def test_a_model_that_diverged_gives_no_number():
    model = gpt()
    with torch.no_grad():
        model.norm.weight[0] = math.nan
    with pytest.raises(InputError, match="diverged"):
        evaluate(model, TOKENS)
    with pytest.raises(InputError, match="diverged"):
        encode(model, TOKENS)

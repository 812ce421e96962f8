"""Costs of prefixes and attempts in exact rationals: added layer by layer, spent attempt by attempt."""

from __future__ import annotations

from fractions import Fraction as F
from itertools import count, product
from math import inf, isclose

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.comparison import (
    LayerMix,
    active_bytes,
    attempts,
    break_even,
    bytes_ratio,
    context_saving,
    delta_state_bytes,
    discovery,
    sequences,
    speed_for_attempts,
    threshold,
    throughput,
)

positive = st.fractions(F(1, 9), 9, max_denominator=9)
shares = st.fractions(0, 1, max_denominator=10)
sizes = st.integers(1, 40)
mixes = st.integers(1, 9).flatmap(
    lambda n: st.builds(LayerMix, st.just(n), st.integers(0, n), positive, st.fractions(F(1, 9), 99, max_denominator=9))
)


@given(mixes, sizes, st.integers(1, 4))
def test_bytes_add_up_layer_by_layer(mix, context, batch):
    each = [mix.token_bytes * context if k < mix.full else mix.state_bytes for k in range(mix.layers)]
    assert active_bytes(mix, context, batch) == batch * sum(each)
    everything = LayerMix(mix.layers, mix.layers, mix.token_bytes, mix.state_bytes)
    assert bytes_ratio(mix, context) == active_bytes(mix, context) / active_bytes(everything, context)
    if mix.full < mix.layers:
        assert (bytes_ratio(mix, context) < 1) == (context > threshold(mix))


@given(mixes, shares)
def test_the_least_context_that_saves_a_share(mix, share):
    most = 1 - F(mix.full, mix.layers)
    if share >= most:
        with pytest.raises(InputError, match="less than"):
            context_saving(mix, share)
        return
    context = context_saving(mix, share)
    assert 1 - bytes_ratio(mix, context) >= share
    assert context == 1 or 1 - bytes_ratio(mix, context - 1) < share


def test_the_released_sizes():
    sigma = delta_state_bytes(32, 128, 128)
    assert sigma == 32 * 128 * 128 * 4 + 3 * 4 * 32 * 128 * 2 == 2_195_456
    mix = LayerMix(4, 1, 1152, sigma)
    assert 1905 < threshold(mix) < 1906
    assert bytes_ratio(mix, 1905) > 1 > bytes_ratio(mix, 1906)
    assert delta_state_bytes(2, 3, 5, taps=0) == 2 * 3 * 5 * 4


@given(mixes, sizes, st.integers(0, 500))
def test_sequences_fill_the_memory(mix, context, memory):
    number = sequences(mix, memory, context)
    assert number * active_bytes(mix, context) <= memory < (number + 1) * active_bytes(mix, context)


@given(positive.map(lambda x: 5 * x), positive, shares, positive)
def test_attempts_are_those_that_spend_the_budget(budget, cost, share, speed):
    each = cost * (1 - share) + cost * share / speed
    number = attempts(budget, cost, share, speed)
    assert number == next(n for n in count() if (n + 1) * each > budget)
    assert throughput(share, speed) == cost / each
    assert min(1, speed) <= throughput(share, speed) <= max(1, speed)


@given(sizes, positive.map(lambda x: 5 * x), positive, shares.filter(bool))
def test_the_least_speed_for_so_many_attempts(number, budget, cost, share):
    speed = speed_for_attempts(number, budget, cost, share)
    if speed == inf:
        assert attempts(budget, cost, share, 10**9) < number
    else:
        assert attempts(budget, cost, share, speed) >= number
        assert attempts(budget, cost, share, speed * F(999, 1000)) < number


@given(st.fractions(0, 1, max_denominator=6), st.integers(0, 5))
def test_discovery_enumerates_outcomes(rate, number):
    outcomes = product((0, 1), repeat=number)
    total = sum(rate ** sum(o) * (1 - rate) ** (number - sum(o)) for o in outcomes if any(o))
    assert discovery(rate, number) == total
    assert discovery(rate, number, 1) == (rate if number else 0)


def test_correlated_discovery_integrates_the_beta_law():
    rate, correlation, number = 0.3, 0.2, 7
    a, b = rate * (1 / correlation - 1), (1 - rate) * (1 / correlation - 1)
    x = (np.arange(200_000) + 0.5) / 200_000
    density = x ** (a - 1) * (1 - x) ** (b - 1)
    by_hand = 1 - (density * (1 - x) ** number).sum() / density.sum()
    # the midpoint rule errs most in the first cell, of mass below (1 / 200000)^a, and a = 1.2
    assert isclose(by_hand, discovery(F(3, 10), number, F(1, 5)), abs_tol=2 * 200_000**-1.2)


@given(st.fractions(0, 1, max_denominator=12), sizes, sizes)
def test_break_even_separates(rate, number, other):
    least = break_even(rate, number, other)
    below, above = F(least) * (1 - F(1, 10**9)), min(F(1), F(least) * (1 + F(1, 10**9)))
    assume(rate > 0)
    assert discovery(above, other) >= discovery(rate, number)
    assert discovery(below, other) < discovery(rate, number) or rate == 1


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda: throughput(0.8, 2), InputTypeError, "Fraction"),
        (lambda: throughput(True, 2), InputTypeError, "share is True"),
        (lambda: throughput(2, 2), InputError, "at most 1"),
        (lambda: throughput(1, 0), InputError, "above 0"),
        (lambda: attempts(-1, 1), InputError, "at least 0"),
        (lambda: attempts(1, 0), InputError, "above 0"),
        (lambda: speed_for_attempts(1, 1, 1, 0), InputError, "share is 0"),
        (lambda: discovery(F(3, 2), 1), InputError, "rate is 3/2"),
        (lambda: discovery(F(1, 2), -1), InputError, "at least 0"),
        (lambda: break_even(F(1, 2), 0, 1), InputError, "at least 1"),
        (lambda: LayerMix(4, 5, 1, 1), InputError, "from 0 to 4"),
        (lambda: LayerMix(4, 1, 0, 1), InputError, "token_bytes"),
        (lambda: LayerMix(4, 1, 1, 0.5), InputTypeError, "state_bytes"),
        (lambda: active_bytes(LayerMix(4, 1, 1, 1), 0), InputError, "context"),
    ],
)
def test_bad_input(call, error, told):
    with pytest.raises(error, match=told):
        call()


def test_no_size_of_number_is_lost():
    mix = LayerMix(np.int64(4), 1, np.int64(2**62), 1)
    assert active_bytes(mix, np.int64(16)) == 2**66 + 3
    assert break_even(1 - F(1, 10**30), 1, 10) == pytest.approx(0.999)  # 1 - 10^(-30 / 10)
    assert break_even(F(1, 2), 10**400, 1) == 1.0

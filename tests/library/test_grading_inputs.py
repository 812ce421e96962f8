"""Profiles, grades, steps and clips that the functions of one pair refuse, each with its own error."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.grading import (
    Selection,
    affinity,
    bennett_bound,
    bennett_step,
    certify,
    fourth_root_grades,
    gain,
    log_gain,
    log_gain_gradient,
    log_gain_hessian,
    regret,
    select,
    tilted_profiles,
    token_gain,
)

EPS = np.finfo(float).eps

# Gain, derivatives, certificates, steps

BAD_PROFILES = {
    "zero": ([0.5, 0.5, 0.0], InputError, "not positive"),
    "negative": ([1.5, -0.25, -0.25], InputError, "not positive.*mend what computed it"),
    "not a number": ([0.5, math.nan, 0.5], InputError, "not finite"),
    "infinite": ([0.5, math.inf, 0.5], InputError, "not finite"),
    "sum": ([0.5, 0.4, 0.2], InputError, "sums to 1.1"),
    "length": ([0.5, 0.5], InputError, "lengths differ"),
    "matrix": ([[0.5, 0.25, 0.25]], InputError, "shape"),
    "empty": ([], InputError, "shape"),
    "ragged": ([[0.5], [0.25, 0.25]], InputError, "ragged"),
    "text": ("abc", InputTypeError, "is 'abc'; give real numbers"),
    "dict": ({0: 0.5, 1: 0.5}, InputTypeError, "is a dict; give real numbers"),
    "generator": ((p for p in (0.5, 0.5)), InputTypeError, "is a generator; give real numbers"),
    "texts": (["0.5", "0.25", "0.25"], InputTypeError, "real numbers"),
    "booleans": ([True, False, False], InputTypeError, "real numbers"),
    "none": (None, InputTypeError, "is None; give real numbers"),
    "complex": ([0.5, 0.25, 0.25j], InputTypeError, "real numbers"),
}
THIRDS = np.full(3, 1 / 3)
FUNCTIONS = {
    "affinity": affinity,
    "fourth_root_grades": fourth_root_grades,
    "gain": lambda a, t: gain(np.ones(3), a, t),
    "token_gain": lambda a, t: token_gain(np.ones(3), a, t),
    "log_gain": lambda a, t: log_gain(np.zeros(3), a, t),
    "log_gain_gradient": lambda a, t: log_gain_gradient(np.zeros(3), a, t),
    "log_gain_hessian": lambda a, t: log_gain_hessian(np.zeros(3), a, t),
    "certify": lambda a, t: certify(np.ones(3), a, t),
    "regret": lambda a, t: regret(np.ones(3), a, t),
    "bennett_step": lambda a, t: bennett_step(np.ones(3), a, t),
    "bennett_bound": lambda a, t: bennett_bound(1.0, np.ones(3), a, t),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("bad", BAD_PROFILES)
def test_a_bad_profile_has_its_own_error(function, bad):
    value, error, words = BAD_PROFILES[bad]
    with pytest.raises(error, match=words):
        FUNCTIONS[function](value, THIRDS)
    with pytest.raises(error, match=words):
        FUNCTIONS[function](THIRDS, value)
    if error is InputError and bad != "ragged":
        with pytest.raises(error, match=words):  # arrays of doubles take a faster way in
            FUNCTIONS[function](np.asarray(value, dtype=float), THIRDS)
    FUNCTIONS[function](THIRDS, THIRDS)


@pytest.mark.parametrize("function", [gain, token_gain, certify, regret])
@pytest.mark.parametrize(
    ("g", "error", "words"),
    [
        ([1.0, 0.0, 1.0], InputError, "must exceed 0"),
        ([1.0, -2.0, 1.0], InputError, "must exceed 0; its sign cancels"),
        ([1.0, math.nan, 1.0], InputError, "not finite"),
        ([1.0, math.inf, 1.0], InputError, "not finite"),
        ([1.0, 2.0], InputError, "g has 2"),
        ([True, True, True], InputTypeError, "real numbers"),
        ("abc", InputTypeError, "real numbers"),
        (None, InputTypeError, "real numbers"),
    ],
)
def test_bad_grades_have_their_own_error(function, g, error, words):
    with pytest.raises(error, match=words):
        function(g, THIRDS, THIRDS)


@pytest.mark.parametrize("function", [log_gain, log_gain_gradient, log_gain_hessian, tilted_profiles, bennett_step])
@pytest.mark.parametrize(
    ("u", "error", "words"),
    [
        ([0.0, math.nan, 0.0], InputError, "not finite"),
        ([0.0, 1.0], InputError, "lengths differ"),
        ([False, True, True], InputTypeError, "real numbers"),
        (None, InputTypeError, "real numbers"),
    ],
)
def test_a_bad_u_has_its_own_error(function, u, error, words):
    with pytest.raises(error, match=words):
        function(u, THIRDS, THIRDS)


def test_a_hessian_beyond_memory_is_refused():
    d = 1_000_000
    with pytest.raises(InputError, match=r"of 1000000 coordinates takes 7451 GiB.*tilted_profiles"):
        log_gain_hessian(np.zeros(d), np.full(d, 1 / d), np.full(d, 1 / d))


@pytest.mark.parametrize(
    ("s", "error"), [(-1.0, InputError), (math.nan, InputError), ("1", InputTypeError), (True, InputTypeError)]
)
def test_a_bad_step_has_its_own_error(s, error):
    with pytest.raises(error):
        bennett_bound(s, np.ones(3), THIRDS, THIRDS)


def test_inputs_are_never_changed():
    alpha, tau, g = np.array([0.7, 0.3]), np.array([0.4, 0.6]), np.array([2.0, 1.0])
    for function in (gain, token_gain, certify, regret, log_gain, log_gain_gradient, log_gain_hessian):
        function(g, alpha, tau)
    fourth_root_grades(alpha, tau), affinity(alpha, tau), bennett_step(g, alpha, tau)
    assert alpha.tolist() == [0.7, 0.3]
    assert tau.tolist() == [0.4, 0.6]
    assert g.tolist() == [2.0, 1.0]


# Selection


@pytest.mark.parametrize(
    ("clip", "error", "words"),
    [
        (0.5, InputError, "clip is 0.5"),
        (0, InputError, "clip is 0"),
        (-2.0, InputError, "clip is -2"),
        (1.0 - EPS, InputError, ">= 1"),
        (math.nan, InputError, "clip is nan"),
        (math.inf, InputError, "clip is inf"),
        (10**400, InputError, "too large"),
        ("2", InputTypeError, "clip is str"),
        (True, InputTypeError, "clip is bool"),
        (np.True_, InputTypeError, "clip is bool"),
        ([2.0], InputTypeError, "clip is list"),
        (2j, InputTypeError, "clip is complex"),
    ],
)
def test_a_bad_clip_has_its_own_error(clip, error, words):
    with pytest.raises(error, match=words):
        select([0.7, 0.3], [0.3, 0.7], clip)


@pytest.mark.parametrize("clip", [2, 2.0, np.float64(2), np.float32(2), np.int64(2), Fraction(2)])
def test_any_real_number_serves_as_a_clip(clip):
    assert select([0.7, 0.3], [0.1, 0.9], clip).g.tolist() == select([0.7, 0.3], [0.1, 0.9], 2.0).g.tolist()


@pytest.mark.parametrize(
    ("alpha", "error", "words"),
    [
        ([1.0, 0.0], InputError, "not positive"),
        ([1.5, -0.5], InputError, "not positive"),
        ([math.nan, 0.5], InputError, "not finite"),
        ([0.5, 0.6], InputError, "sums to 1.1"),
        ([0.2, 0.3, 0.5], InputError, "alpha has 3, tau has 2"),
        ([], InputError, "shape"),
        ([True, False], InputTypeError, "real numbers"),
        ("ab", InputTypeError, "real numbers"),
        (None, InputTypeError, "real numbers"),
    ],
)
@pytest.mark.parametrize("clip", [None, 2.0])
def test_selection_refuses_a_bad_profile(alpha, error, words, clip):
    with pytest.raises(error, match=words):
        select(alpha, [0.4, 0.6], clip)
    with pytest.raises(error):
        select([0.4, 0.6], alpha, clip)
    array = np.asarray(alpha, dtype=float) if error is InputError else alpha  # arrays take a faster way in
    with pytest.raises(error, match=words):
        select(array, np.array([0.4, 0.6]), clip)


def test_a_selection_is_frozen_and_leaves_its_inputs_alone():
    alpha, tau = np.array([0.7, 0.3]), np.array([0.1, 0.9])
    found = select(alpha, tau, 2.0)
    assert isinstance(found, Selection)
    with pytest.raises(AttributeError):
        found.gain = 0.0
    assert alpha.tolist() == [0.7, 0.3]
    assert tau.tolist() == [0.1, 0.9]

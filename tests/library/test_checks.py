"""Errors that mend, files written whole or not at all, and the list of inputs read."""

import json
import math
import os
import stat
from fractions import Fraction

import numpy as np
import pytest
import torch

from gllm_lib import checks
from gllm_lib.checks import FileError, GllmError, InputError, InputTypeError


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([0.5, float("nan")], InputError, r"p\[1\] is nan"),
        ([0.5, float("inf")], InputError, "not finite"),
        ([], InputError, "at least one entry"),
        ([[0.5], [0.5]], InputError, r"shape \(2, 1\)"),
        ([[0.5], [0.5, 1]], InputError, "ragged"),
        (0.5, InputError, r"shape \(\)"),
        ("ab", InputTypeError, "p is 'ab'; give real numbers"),
        ({"a": 1}, InputTypeError, "p is a dict; give real numbers"),
        (iter([1]), InputTypeError, "p is a list_iterator; give real numbers"),
        ([True, False], InputTypeError, "bool"),
        (None, InputTypeError, "p is None; give real numbers"),
        ([None, 1.0], InputTypeError, "object"),
        ([1j], InputTypeError, "complex"),
    ],
)
def test_vectors(value, error, message):
    with pytest.raises(error, match=message):
        checks.vector("p", value)


def test_tensors_that_numpy_does_not_take_are_refused_with_what_to_do():
    for value in (torch.nn.Parameter(torch.ones(2)), torch.ones(2, dtype=torch.bfloat16)):
        with pytest.raises(InputTypeError, match=r"p is a (Parameter|Tensor) .*give .*p\.detach\(\)\.float\(\)\.numpy"):
            checks.vector("p", value)
        assert checks.vector("p", value.detach().float().numpy()).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("value", "error"),
    [(True, InputTypeError), (np.True_, InputTypeError), (2.0, InputTypeError), (np.float64(2), InputTypeError),
     ("2", InputTypeError), (None, InputTypeError), (1, InputError), (np.int8(1), InputError), (6, InputError)],
)  # fmt: skip
def test_counts_that_are_none_are_refused(value, error):
    with pytest.raises(error, match=r"n is .*; give a whole number from 2 to 5"):
        checks.count("n", value, 2, 5)


def test_counts_of_numpy_become_those_of_python():
    for value in (2, np.int64(2), np.uint8(2)):
        assert type(checks.count("n", value, 2, 2)) is int
    with pytest.raises(InputError, match="n is 0; give a whole number of at least 1"):
        checks.count("n", 0)


@pytest.mark.parametrize(
    ("value", "limits", "error", "told"),
    [(True, {}, InputTypeError, "x is True; give a number"), ("1", {}, InputTypeError, "give a number"),
     (1j, {}, InputTypeError, "give a number"), (np.True_, {}, InputTypeError, "give a number"),
     (math.nan, {}, InputError, "x is nan; give a finite number$"), (10**400, {}, InputError, "x is inf"),
     (-0.1, {"least": 0}, InputError, "x is -0.1; give a finite number of at least 0"),
     (0, {"above": 0}, InputError, "above 0"), (1.1, {"most": 1}, InputError, "of at most 1"),
     (np.float32(1), {"least": 0, "below": 1}, InputError, "of at least 0 and below 1")],
)  # fmt: skip
def test_numbers_outside_their_limits_are_refused(value, limits, error, told):
    with pytest.raises(error, match=told):
        checks.real("x", value, **limits)


def test_numbers_of_numpy_become_floats_and_limits_may_be_reached():
    for value in (1, 1.0, np.float32(1), np.int64(1), Fraction(1)):
        told = checks.real("x", value, least=1, most=1)
        assert (type(told), told) == (float, 1.0)


def test_vectors_are_converted():
    assert checks.vector("p", [1, 2]).dtype == np.float64


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0, 0.0], r"p\[1\] is 0 .*delete the coordinates"),
        ([1.5, -0.5], r"p\[1\] is -0.5 .*mend what computed it"),
        ([0.5, 0.4], "sums to 0.9"),
        ([0.5, 0.5 + 2e-6], "divide it by its sum"),
    ],
)
def test_profiles(value, message):
    with pytest.raises(InputError, match=message):
        checks.profile("p", value)


def test_a_profile_may_be_rounded_and_is_returned_as_given():
    given = [0.3333333, 0.6666667]
    assert checks.profile("p", given).tolist() == given
    assert checks.profile("p", [1e-300, 1.0])[0] == 1e-300


def test_lengths():
    assert checks.same_length(a=np.ones(2), b=np.ones(2)) == 2
    with pytest.raises(InputError, match="a has 2, b has 3"):
        checks.same_length(a=np.ones(2), b=np.ones(3))


def test_generators():
    rng = np.random.default_rng(0)
    assert checks.generator(rng) is rng
    with pytest.raises(InputTypeError, match="default_rng"):
        checks.generator(0)


def test_errors_are_also_the_builtin_ones():
    assert issubclass(InputError, ValueError)
    assert issubclass(InputTypeError, TypeError)
    assert issubclass(FileError, OSError)
    assert all(issubclass(error, GllmError) for error in (InputError, InputTypeError, FileError))


def test_files_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "a.txt"
    checks.write_text(path, "old")
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        checks.write_text(path, "new")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_written_files_are_readable_by_others(tmp_path):
    mode = checks.write_text(tmp_path / "a", "x").stat().st_mode
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(mode) == 0o666 & ~mask


def test_json_is_stable_and_refuses_nan(tmp_path):
    path = checks.write_json(tmp_path / "a.json", {"b": 1, "a": [0.5]})
    assert json.loads(path.read_text()) == {"a": [0.5], "b": 1}
    assert path.read_text().index('"a"') < path.read_text().index('"b"')
    with pytest.raises(InputError, match="NaN or infinity"):
        checks.write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text())["b"] == 1


def test_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"ok \xe9")
    with pytest.raises(FileError, match=r"not UTF-8 \(byte 3 is 0xe9\)"):
        checks.read_text(path)
    with pytest.raises(FileError, match="cannot be read"):
        checks.read_text(tmp_path / "none.txt")


def test_what_is_read_is_noted_with_its_hash(tmp_path):
    path = checks.write_text(tmp_path / "a.txt", "x")
    checks.read_text(path)
    assert checks.inputs_read()[str(path.resolve())] == checks.sha256(path)


def test_a_folder_is_known_by_the_names_in_it(tmp_path):
    before = checks.sha256(tmp_path)
    (tmp_path / "a").write_text("1")
    named = checks.sha256(tmp_path)
    (tmp_path / "a").write_text("2")
    assert before != named == checks.sha256(tmp_path)

"""What a run leaves on disk: it ends the same wherever it was stopped or killed, and refuses the files of others."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from gllm_lib.checks import FileError, InputError
from gllm_lib.models.config import GPTConfig, Grading, gpt2_like
from gllm_lib.models.gpt import GPT
from gllm_lib.training.checkpoint import checkpoint_path
from gllm_lib.training.loop import History, train
from gllm_lib.training.loss import Penalties
from tests.library.small_training import (
    GRADED,
    PLAIN,
    RECIPE,
    TOKENS,
    WEIGHTS,
    T,
    V,
    build,
    changed,
    same,
    state,
    stop_at,
)


@pytest.mark.parametrize("config", [PLAIN, GRADED])
def test_a_run_stopped_after_any_step_ends_as_one_that_was_not(config: GPTConfig, tmp_path: Path) -> None:
    whole = build(config)
    history = train(whole, TOKENS, RECIPE, weights=WEIGHTS)
    assert same(train(again := build(config), TOKENS, RECIPE, weights=WEIGHTS), history)
    assert state(again) == state(whole)
    for step in range(1, RECIPE.steps):
        train(build(config), TOKENS, RECIPE, weights=WEIGHTS, folder=tmp_path / str(step), until=stop_at(step))
        resumed = build(config)
        assert same(train(resumed, TOKENS, RECIPE, weights=WEIGHTS, folder=tmp_path / str(step)), history)
        assert state(resumed) == state(whole)
        assert [each.name for each in (tmp_path / str(step)).iterdir()] == ["checkpoint.safetensors"]


@pytest.mark.parametrize("stopped", [{}, {"until": stop_at(5)}])
def test_an_evaluation_that_fails_at_the_end_does_not_lose_the_run(stopped: dict[str, Any], tmp_path: Path) -> None:
    def fail(model: GPT) -> float:
        raise ZeroDivisionError

    recipe = changed(save_every=0)
    with pytest.raises(ZeroDivisionError):
        train(build(), TOKENS, recipe, folder=tmp_path, evaluate=fail, **stopped)
    whole, resumed = build(), build()
    history = train(whole, TOKENS, recipe, evaluate=lambda m: 1.5, **stopped)
    losses = train(resumed, TOKENS, recipe, folder=tmp_path, **stopped).losses
    assert losses.tobytes() == history.losses.tobytes()
    assert state(resumed) == state(whole)
    for evaluate in (lambda m: 1.5, fail):  # asked once more and written, then known
        assert same(train(build(), TOKENS, recipe, folder=tmp_path, evaluate=evaluate, **stopped), history)


@pytest.mark.parametrize("returned", [None, np.nan])
def test_an_evaluation_that_fails_on_the_way_loses_no_step_unless_the_run_diverged(
    returned: float | None, tmp_path: Path
) -> None:
    def fail(model: GPT) -> float:
        if returned is None:
            raise ZeroDivisionError
        return returned

    recipe = changed(save_every=0)
    with pytest.raises(ArithmeticError):
        train(build(), TOKENS, recipe, folder=tmp_path, evaluate=fail, evaluate_every=5)
    assert checkpoint_path(tmp_path).exists() == (returned is None)
    whole, resumed, taken = build(), build(), []
    history = train(whole, TOKENS, recipe, evaluate=lambda m: 1.5, evaluate_every=5)

    def watch(seen: History) -> bool:
        taken.append(len(seen.losses))
        return False

    again = train(resumed, TOKENS, recipe, folder=tmp_path, evaluate=lambda m: 1.5, evaluate_every=5, until=watch)
    assert taken[0] == (5 if returned is None else 1)
    assert same(again, history)  # the evaluation that failed was asked again
    assert state(resumed) == state(whole)


def poison(model: GPT) -> None:
    model.norm.weight[0] = np.nan


def halve(model: GPT) -> None:
    for each in model.parameters():  # as an evaluation of averaged weights does, which puts the others back at its end
        each.mul_(0.5)


def widen(model: GPT) -> None:
    model.double()


@pytest.mark.parametrize("change", [poison, halve, widen])
def test_weights_that_a_failing_evaluation_changed_are_not_kept(change: Callable[[GPT], None], tmp_path: Path) -> None:
    def fail(model: GPT) -> float:
        with torch.no_grad():
            change(model)
        raise ZeroDivisionError

    recipe = changed(save_every=4)
    with pytest.raises(ZeroDivisionError):
        train(build(), TOKENS, recipe, folder=tmp_path, evaluate=fail, evaluate_every=5)
    whole, resumed = build(), build()
    history = train(whole, TOKENS, recipe)
    assert same(train(resumed, TOKENS, recipe, folder=tmp_path), history)
    assert state(resumed) == state(whole)


def test_the_error_of_an_evaluation_comes_through_whatever_it_left(tmp_path: Path) -> None:
    def freeze(model: GPT) -> float:
        model.requires_grad_(False)  # there is no next gradient
        raise ZeroDivisionError

    def block(model: GPT) -> float:
        (tmp_path / "run").rmdir()
        (tmp_path / "run").touch()  # no checkpoint goes into a file
        raise ZeroDivisionError

    for evaluate in (freeze, block):
        with pytest.raises(ZeroDivisionError) as caught:
            train(build(), TOKENS, changed(save_every=0), folder=tmp_path / "run", evaluate=evaluate, evaluate_every=5)
        assert "the steps so far could not be written" in caught.value.__notes__[0]


KILLED = """
import os, signal, sys
import numpy as np
from gllm_lib import checks
from gllm_lib.training.loop import train
from tests.library.small_training import GRADED, RECIPE, TOKENS, WEIGHTS, build

folder, moment, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
calls = 0

def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

def replace(source, target, to=os.replace):
    global calls
    calls += 1
    die() if calls == count else to(source, target)

def fdopen(descriptor, mode, opening=os.fdopen):
    global calls
    calls += 1
    handle = opening(descriptor, mode)
    if calls < count:
        return handle
    half = type("Half", (), {"__enter__": lambda self: self, "__exit__": die})()
    half.write = lambda data: (handle.write(data[: len(data) // 2]), handle.flush())
    return half

if moment == "writing":
    checks.os.fdopen = fdopen
if moment == "renaming":
    checks.os.replace = replace

def tell(model):
    print("evaluated", flush=True)
    if moment == "waiting":
        sys.stdin.read()
    return 0.0

train(build(GRADED), TOKENS, RECIPE, weights=WEIGHTS, folder=folder, evaluate=tell, evaluate_every=5)
"""


def test_a_run_killed_while_writing_renaming_and_computing_ends_as_one_that_was_not(tmp_path: Path, root: Path) -> None:
    def start(moment: str, count: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", KILLED, str(tmp_path), moment, str(count)]
        return subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    with start("writing", 3) as child:
        child.communicate()
    assert child.returncode == -signal.SIGKILL
    left = sorted(each.name for each in tmp_path.iterdir())
    assert left[0] == "checkpoint.safetensors"
    assert left[1].endswith(".tmp")
    assert 2 * (tmp_path / left[1]).stat().st_size < 1.1 * (tmp_path / left[0]).stat().st_size  # half a file
    with start("renaming", 2) as child:
        child.communicate()
    assert child.returncode == -signal.SIGKILL
    with start("waiting", 5) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"evaluated\n"
        child.kill()
    assert child.returncode == -signal.SIGKILL
    asked: dict[str, Any] = {"weights": WEIGHTS, "evaluate": lambda m: 0.0, "evaluate_every": 5}
    whole, resumed = build(GRADED), build(GRADED)
    history = train(whole, TOKENS, RECIPE, **asked)
    taken: list[int] = []

    def watch(seen: History) -> bool:
        taken.append(len(seen.losses))
        return False

    again = train(resumed, TOKENS, RECIPE, folder=tmp_path, until=watch, **asked)
    assert taken[0] == 4  # the fifth was evaluated and not yet written
    assert same(again, history)
    assert state(resumed) == state(whole)
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint.safetensors"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A checkpoint of PLAIN with weights per position, after three steps."""
    folder = tmp_path_factory.mktemp("kept")
    train(build(), TOKENS, RECIPE, weights=WEIGHTS, folder=folder, until=stop_at(3))
    return checkpoint_path(folder).read_bytes()


@pytest.mark.parametrize(
    ("config", "tokens", "recipe", "weights", "told"),
    [
        (gpt2_like(V, T, 8, 1, 4), TOKENS, RECIPE, WEIGHTS, r"config\.heads: 4 here, 2 in"),
        (gpt2_like(V, T, 8, 1, 2, grading=Grading()), TOKENS, RECIPE, WEIGHTS, r"config\.grading: {.{59} here, None"),
        (PLAIN, TOKENS, changed(peak=0.02), WEIGHTS, r"recipe\.peak: 0\.02 here, 0\.01 in"),
        (PLAIN, TOKENS, changed(betas=(0.9, 0.99)), WEIGHTS, r"recipe\.betas\[1\]: 0\.99 here, 0\.95 in"),
        (PLAIN, TOKENS, changed(penalties=Penalties(0.5)), WEIGHTS, r"recipe\.penalties\.diversity: 0\.0 here, 0\.2"),
        (PLAIN, TOKENS[::-1], RECIPE, WEIGHTS, r"data\.sha256"),
        (PLAIN, TOKENS[:-1], RECIPE, WEIGHTS[:-1], r"data\.sha256"),
        (PLAIN, TOKENS, RECIPE, None, r"data\.weights"),
        (PLAIN, TOKENS, RECIPE, WEIGHTS[::-1], r"data\.weights"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(config, tokens, recipe, weights, told, kept, tmp_path) -> None:
    checkpoint_path(tmp_path).write_bytes(kept)
    model = build(config)
    before = state(model)
    with pytest.raises(InputError, match=f"another run: {told}"):
        train(model, tokens, recipe, weights=weights, folder=tmp_path)
    assert state(model) == before
    assert checkpoint_path(tmp_path).read_bytes() == kept


def test_a_run_that_trains_other_weights_is_another_run(kept: bytes, tmp_path: Path) -> None:
    checkpoint_path(tmp_path).write_bytes(kept)
    model = build()
    model.embedding.weight.requires_grad_(False)
    with pytest.raises(InputError, match=r"run: frozen\[0\]: 'embedding.weight' here, nothing in"):
        train(model, TOKENS, RECIPE, weights=WEIGHTS, folder=tmp_path)


def test_the_message_about_another_run_is_short_and_names_the_place(tmp_path: Path) -> None:
    def graded(entry: float, **grades: Any) -> GPTConfig:
        return gpt2_like(V, T, 8, 1, 2, grading=Grading(output=[0.0] * (V - 1) + [entry], **grades))

    train(build(graded(0.5, heads=[1.0] * 4)), TOKENS, RECIPE, folder=tmp_path, until=stop_at(1))
    told = {
        graded(1.0, heads=[1.0] * 4): f"config.grading.output[{V - 1}]: 1.0 here, 0.5 in the checkpoint",
        graded(0.5, heads=[[1.0] * 4] * 2): "config.grading.heads[0]: [1.0, 1.0, 1.0, 1.0] here, 1.0 in the checkpoint",
    }
    for config, says in told.items():
        with pytest.raises(InputError) as refused:
            train(build(config), TOKENS, RECIPE, folder=tmp_path)
        mend = "give another folder, or what the checkpoint has"
        assert str(refused.value) == f"{checkpoint_path(tmp_path)} belongs to another run: {says}; {mend}"


@pytest.mark.parametrize("place", ["taken", "taken/below"])
def test_a_folder_that_takes_no_checkpoint_is_refused_before_the_first_step(place: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    model = build()
    before = state(model)
    with pytest.raises(FileError, match="cannot hold checkpoints"):
        train(model, TOKENS, RECIPE, folder=tmp_path / place)
    assert state(model) == before


def test_a_run_leaves_what_another_writes_to_its_folder_alone(tmp_path: Path) -> None:
    other = tmp_path / "checkpoint.safetensors.other.tmp"

    def begin(history: History) -> bool:
        other.touch()
        return False

    train(build(), TOKENS, RECIPE, folder=tmp_path, until=begin)
    assert other.exists()
    train(build(), TOKENS, RECIPE, folder=tmp_path)  # a new call clears what a killed one left
    assert not other.exists()


def test_how_often_it_is_written_is_not_part_of_a_run(kept: bytes, tmp_path: Path) -> None:
    checkpoint_path(tmp_path).write_bytes(kept)
    assert len(train(build(), TOKENS, changed(save_every=2), weights=WEIGHTS, folder=tmp_path).losses) == RECIPE.steps


def test_a_model_of_the_config_in_another_type_is_refused(kept: bytes, tmp_path: Path) -> None:
    checkpoint_path(tmp_path).write_bytes(kept)
    with pytest.raises(InputError, match="another model of this config"):
        train(build().double(), TOKENS, RECIPE, weights=WEIGHTS, folder=tmp_path)


@settings(max_examples=25)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_off_anywhere_is_refused(
    share: float, kept: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    checkpoint_path(folder).write_bytes(kept[: int(share * len(kept))])
    model = build()
    before = state(model)
    with pytest.raises(FileError, match="cut off or no safetensors file"):
        train(model, TOKENS, RECIPE, weights=WEIGHTS, folder=folder)
    assert state(model) == before


@pytest.mark.parametrize("place", [0.5, 0.99])
def test_a_file_with_a_wrong_bit_is_refused(place: float, kept: bytes, tmp_path: Path) -> None:
    broken = bytearray(kept)
    broken[int(place * len(kept))] ^= 1
    checkpoint_path(tmp_path).write_bytes(broken)
    with pytest.raises(FileError, match=r"checkpoint\.safetensors .*delete it to start afresh"):
        train(build(), TOKENS, RECIPE, weights=WEIGHTS, folder=tmp_path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    save_file({"weight": np.zeros(3)}, checkpoint_path(tmp_path), {"format": "pt"})
    with pytest.raises(FileError, match="no checkpoint of this loop but 'pt'"):
        train(build(), TOKENS, RECIPE, folder=tmp_path)

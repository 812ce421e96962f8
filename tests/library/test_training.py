"""The loop: windows, gradients of a batch in parts, updates, stops, refusals and divergence."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gllm_lib import training
from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.corpora.tokens import open_tokens, write_tokens
from gllm_lib.models.config import GPTConfig
from gllm_lib.models.gpt import GPT
from gllm_lib.training.checkpoint import checkpoint_path
from gllm_lib.training.loop import Diverged, History, Recipe, gradient, train
from gllm_lib.training.loss import Penalties
from gllm_lib.training.windows import windows
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


def test_training_is_imported_without_what_only_its_read_outs_need(root: Path) -> None:
    script = "import sys, gllm_lib.training; print({'scipy', 'sklearn', 'transformers'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert told.stdout == "set()\n", told.stderr
    assert all(callable(getattr(training, name)) for name in training.__all__)
    assert training.train is train


# windows


@given(seed=st.integers(0, 2**63 - 1), step=st.integers(0, 2**40), count=st.integers(T + 1, 50))
def test_windows_are_a_function_of_seed_and_step_and_lie_in_the_data(seed: int, step: int, count: int) -> None:
    data = windows(TOKENS[:count], None, V, T)
    starts = data.starts(seed, step, 5)
    assert (starts == data.starts(seed, step, 5)).all()
    assert ((starts >= 0) & (starts + T + 1 <= count)).all()


def test_steps_and_seeds_draw_different_windows_and_reach_both_ends() -> None:
    data = windows(TOKENS[: T + 3], None, V, T)
    assert set(data.starts(0, 0, 200)) == {0, 1, 2}
    wide = windows(TOKENS, None, V, T)
    draws = [tuple(wide.starts(seed, step, 20)) for seed in range(5) for step in range(5)]
    assert len(set(draws)) == 25


@pytest.mark.parametrize("weights", [WEIGHTS, WEIGHTS[:V]])
def test_each_target_carries_the_weight_of_its_position_or_of_its_type(weights: np.ndarray) -> None:
    starts = np.array([0, 17, len(TOKENS) - T - 1])
    inputs, targets, found = windows(TOKENS, weights, V, T).read(starts, torch.float64)
    assert found is not None
    for row, start in enumerate(starts):
        for t in range(T):
            assert inputs[row, t] == TOKENS[start + t]
            assert targets[row, t] == TOKENS[start + t + 1]
            index = start + t + 1 if len(weights) == len(TOKENS) else TOKENS[start + t + 1]
            assert found[row, t] == weights[index]


def test_a_memory_map_trains_as_the_array_does(tmp_path: Path) -> None:
    mapped = open_tokens(write_tokens(tmp_path / "tokens", TOKENS, V)).tokens
    recipe = Recipe(steps=2, batch=4)
    assert same(train(build(), mapped, recipe), train(build(), TOKENS.astype(np.int64), recipe))
    ours, theirs = windows(mapped, None, V, T), windows(TOKENS.tolist(), None, V, T)
    assert ours.fingerprint() == theirs.fingerprint()


@pytest.mark.parametrize(
    ("tokens", "weights", "error", "told"),
    [
        ([0, 1, 2, V, 4, 5, 6, 7], None, InputError, rf"tokens\[3\] is {V}; .* 0 to {V - 1}"),
        ([0, 1, 2, -1, 4, 5, 6, 7], None, InputError, r"tokens\[3\] is -1"),
        (TOKENS[:T], None, InputError, rf"at least {T + 1}"),
        (TOKENS.reshape(2, -1), None, InputError, "flat"),
        (TOKENS.astype(float), None, InputTypeError, "float64 entries; give whole"),
        ([True] * 20, None, InputTypeError, "bool"),
        (None, None, InputTypeError, "give token ids"),
        (TOKENS, np.ones(7), InputError, rf"shape \(7,\); .*\({V},\).*\(400,\)"),
        (TOKENS, [np.nan] + [1.0] * (V - 1), InputError, r"weights\[0\] is nan"),
        (TOKENS, [1.0] * (V - 1) + [-1.0], InputError, r"weights\[10\] is -1"),
        (TOKENS, ["1"] * V, InputTypeError, "weights hold"),
        (TOKENS[:V], np.ones(V), InputError, "could be of either"),
    ],
)
def test_data_that_no_run_can_use_is_refused(tokens: Any, weights: Any, error: type, told: str) -> None:
    model = build()
    before = state(model)
    with pytest.raises(error, match=told):
        train(model, tokens, RECIPE, weights=weights)
    assert state(model) == before


# one step


def by_hand(model: GPT, recipe: Recipe, weights: np.ndarray | None) -> tuple[float, dict[str, torch.Tensor]]:
    """Value, and gradient with the penalties, of the mean of weight x loss over all windows of step 0, in one piece."""
    starts = windows(TOKENS, None, V, T).starts(recipe.seed, 0, recipe.batch)
    positions = starts[:, None] + np.arange(T + 1)
    tokens = torch.from_numpy(TOKENS[positions].astype(np.int64))
    terms = -torch.log_softmax(model(tokens[:, :-1]), -1).gather(-1, tokens[:, 1:, None])[..., 0]
    if weights is not None:
        terms = terms * torch.from_numpy(weights[positions[:, 1:]])
    loss = total = terms.sum() / (recipe.batch * T)
    for name, each in model.named_parameters():
        if name in ("grading.heads", "grading.embedding"):
            total = total + recipe.penalties.magnitude * (each**2).sum()
        if name == "grading.projection":
            total = total + recipe.penalties.orthogonality * (torch.eye(8) - each @ each.T).square().sum()
        if name == "grading.heads":
            total = total - recipe.penalties.diversity * (each[:, 0] - each[:, 1]).square().sum()
    names, parameters = zip(*model.named_parameters(), strict=True)
    return loss.item(), dict(zip(names, torch.autograd.grad(total, parameters), strict=True))


@pytest.mark.parametrize("accumulate", [1, 2, 4])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("config", [PLAIN, GRADED])
def test_parts_sum_to_the_gradient_of_the_batch(config: GPTConfig, weights: Any, accumulate: int) -> None:
    model = build(config).double()
    recipe = Recipe(steps=1, batch=8, accumulate=accumulate, penalties=RECIPE.penalties)
    value, expected = by_hand(model, recipe, weights)
    loss, norm = gradient(model, windows(TOKENS, weights, V, T), recipe, 0)
    # an entry adds terms of B T positions, each behind some 20 sums over at most V or 4 D numbers, in two orders;
    # the terms are below 100 times the norm here, weights up to 8 included
    bound = 8 * T * 20 * 32 * np.finfo(float).eps * 100 * norm
    assert bound < 1e-6 * norm
    for name, each in model.named_parameters():
        assert each.grad is not None
        assert (each.grad - expected[name]).abs().max() < bound, name
    total = sum(float(each.square().sum()) for each in expected.values())
    assert norm == pytest.approx(total**0.5, rel=1e-9)
    assert loss == pytest.approx(value, rel=8 * T * 32 * np.finfo(float).eps)


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_the_gradient_is_clipped_to_a_constant_norm_whatever_the_weights(scale: float) -> None:
    # epsilon far above every gradient makes the step of Adam peak x gradient / epsilon, to 1 part in 1e8
    recipe = Recipe(steps=1, batch=4, peak=1e8, floor=0, decay=0, epsilon=1e8, betas=(0.0, 0.0), gradient_clip=0.01)
    model = build().double()
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    history = train(model, TOKENS, recipe, weights=scale * WEIGHTS)
    moved = torch.nn.utils.parameters_to_vector(model.parameters()).detach() - before
    assert history.gradient_norms[0] > 0.01
    assert moved.norm().item() == pytest.approx(0.01, rel=1e-6)
    unclipped = Recipe(**{**vars(recipe), "gradient_clip": 0.0})
    model = build().double()
    train(model, TOKENS, unclipped, weights=scale * WEIGHTS)
    moved = torch.nn.utils.parameters_to_vector(model.parameters()).detach() - before
    assert moved.norm().item() == pytest.approx(history.gradient_norms[0], rel=1e-4)


def test_learned_grades_stay_in_the_clip_and_reach_it() -> None:
    seen = []
    model = build(GRADED)
    repel = Penalties(diversity=50.0, allow_unbounded=True)
    recipe = Recipe(steps=30, batch=4, peak=0.1, penalties=repel, gradient_clip=0.0)
    train(model, TOKENS, recipe, evaluate=lambda m: seen.append(m.grades()["heads"].clone()), evaluate_every=1)
    assert all((each >= 0).all() and (each <= 1).all() for each in seen)
    assert (seen[-1] == 1).any()
    assert (seen[-1] == 0).any()


def test_heads_that_nothing_holds_are_refused() -> None:
    recipe = Recipe(steps=1, batch=1, penalties=Penalties(magnitude=1.0, diversity=1.0))
    with pytest.raises(InputError, match="does not hold 2 heads"):
        train(build(GRADED), TOKENS, recipe)
    train(build(PLAIN), TOKENS, recipe)  # no head is graded, so none repels


# a run


def test_a_cycle_is_learnt_and_the_history_says_so() -> None:
    cycle = np.arange(300) % V

    def evaluate(model: GPT) -> dict[str, float]:
        return {"threads": torch.get_num_threads()}

    recipe = Recipe(steps=80, batch=8, peak=2e-2)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    history = train(build(), cycle, recipe, evaluate=evaluate, evaluate_every=25)
    restored = torch.get_num_threads()
    torch.set_num_threads(threads)
    assert history.losses.shape == history.gradient_norms.shape == (80,)
    assert abs(history.losses[0] - np.log(V)) < 0.1  # initial logits have deviation 0.02 sqrt(8)
    assert history.losses[-1] < np.log(V) / 2
    assert history.evaluations == tuple((step, {"threads": 1}) for step in (25, 50, 75, 80))
    assert history.tokens_seen == 80 * 8 * T
    assert restored == 2


def test_it_stops_when_told_and_stays_stopped(tmp_path: Path) -> None:
    ours = build()
    history = train(ours, TOKENS, RECIPE, until=stop_at(3), folder=tmp_path, evaluate=lambda m: 1.5)
    assert len(history.losses) == 3
    assert history.evaluations == ((3, 1.5),)
    again = build()
    assert same(train(again, TOKENS, RECIPE, until=stop_at(3), folder=tmp_path, evaluate=lambda m: 1.5), history)
    assert state(again) == state(ours)


def test_the_bar_is_off_unless_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    train(build(), TOKENS, RECIPE)
    assert capfd.readouterr() == ("", "")
    train(build(), TOKENS, RECIPE, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "8/8" in err


@pytest.mark.parametrize("value", [np.float32(0.5), torch.tensor(0.5), np.float64(0.5)])
def test_numbers_of_numpy_and_torch_are_numbers(value: Any) -> None:
    history = train(build(), TOKENS, RECIPE, evaluate=lambda m: {"loss": value})
    assert history.evaluations == ((8, {"loss": 0.5}),)


@pytest.mark.parametrize("value", [torch.zeros(2), object()])
def test_an_evaluation_is_a_number(value: Any) -> None:
    with pytest.raises(InputTypeError, match="return a number"):
        train(build(), TOKENS, RECIPE, evaluate=lambda m: value)
    with pytest.raises(InputError, match="evaluate_every is -1"):
        train(build(), TOKENS, RECIPE, evaluate_every=-1)
    with pytest.raises(InputTypeError, match=r"evaluate_every is 2\.0; give a whole number"):
        train(build(), TOKENS, RECIPE, evaluate_every=2.0)


def test_what_is_no_model_or_no_recipe_is_refused() -> None:
    with pytest.raises(InputTypeError, match="model is a Linear; give a GPT"):
        train(torch.nn.Linear(2, 2), TOKENS, RECIPE)
    with pytest.raises(InputTypeError, match="recipe is a dict; give a Recipe"):
        train(build(), TOKENS, vars(RECIPE))


def test_a_history_that_was_handed_out_stays_as_it_was_and_cannot_change_the_run() -> None:
    seen: list[History] = []

    def keep(history: History) -> bool:
        seen.append(history)
        with pytest.raises(ValueError, match="read-only"):
            history.losses[0] = 0.0
        return False

    model = build()
    whole = train(model, TOKENS, RECIPE, until=keep)
    assert [len(each.losses) for each in seen] == list(range(1, RECIPE.steps))
    for each in seen:
        assert not np.shares_memory(each.losses, whole.losses)
        assert each.losses.tobytes() == whole.losses[: len(each.losses)].tobytes()
        assert each.gradient_norms.tobytes() == whole.gradient_norms[: len(each.losses)].tobytes()


def test_a_run_leaves_no_gradient_behind(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        train(model := build(), TOKENS, RECIPE, folder=folder)
        assert all(each.grad is None for each in model.parameters())


# divergence


def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    def poison(model: GPT) -> float:
        with torch.no_grad():
            model.norm.weight[0] = np.nan
        return 0.0

    every = changed(save_every=2)
    model = build()
    with pytest.raises(Diverged, match=r"the loss of step 5 is not finite.*checkpoint\.safetensors holds") as caught:
        train(model, TOKENS, every, folder=tmp_path, evaluate=poison, evaluate_every=5)
    assert (caught.value.step, caught.value.checkpoint) == (5, checkpoint_path(tmp_path))
    whole, resumed = build(), build()
    history = train(whole, TOKENS, every)
    assert same(train(resumed, TOKENS, every, folder=tmp_path), history)
    assert state(resumed) == state(whole)


def test_a_checkpoint_waits_for_the_loss_after_it(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"the loss of step 1 .*no checkpoint was written") as caught:
        train(build(), TOKENS, changed(peak=1e30), folder=tmp_path)
    assert (caught.value.step, caught.value.checkpoint) == (1, None)
    assert not list(tmp_path.iterdir())
    for folder in (tmp_path, None):  # also where it would be the last one, and where none is written
        with pytest.raises(Diverged, match="step 1"):
            train(build(), TOKENS, changed(peak=1e30, steps=1), folder=folder)
    assert not list(tmp_path.iterdir())


def test_divergence_in_another_process_is_told_whole() -> None:
    sent = pickle.loads(pickle.dumps(Diverged("the loss of step 3", 3, Path("a"))))
    assert (str(sent), sent.step, sent.checkpoint) == ("the loss of step 3", 3, Path("a"))


def test_an_evaluation_that_is_not_finite_stops_the_run() -> None:
    with pytest.raises(Diverged, match="the evaluation of step 2"):
        train(build(), TOKENS, RECIPE, evaluate=lambda m: np.nan, evaluate_every=2)

"""The training loop: the same bytes on every run, from any checkpoint, and on two processes as on one.

`torchrun --nproc-per-node 2 script.py` runs it on two processes where the script first calls
`torch.distributed.init_process_group("gloo")`. Sums over more than two processes may round in another order.

Shapes: B windows, T positions, V vocabulary, N tokens of the data.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import distributed, nn
from tqdm import tqdm

from gllm_lib.checks import GllmError, InputError, InputTypeError, count
from gllm_lib.models.gpt import GPT
from gllm_lib.optim.groups import Optimizers
from gllm_lib.optim.tables import TableWrite
from gllm_lib.training.checkpoint import History, checkpoint_path, load_checkpoint, prepare, save_checkpoint
from gllm_lib.training.loss import graded_loss
from gllm_lib.training.schedule import Recipe, cosine, optimizer_of
from gllm_lib.training.windows import Windows, windows

_Folder = str | os.PathLike[str] | None


class Diverged(GllmError, ArithmeticError):
    """A loss, gradient or evaluation is not finite; `step` counts from 0, `checkpoint` is the last good one or None."""

    def __init__(self, message: str, step: int, checkpoint: Path | None):
        super().__init__(message, step, checkpoint)  # all of them, so that it can be sent from another process
        self.step, self.checkpoint = step, checkpoint

    def __str__(self) -> str:
        return str(self.args[0])


@contextmanager
def single_thread() -> Iterator[None]:
    """Let torch use one thread inside, so that sums keep one order, and as many as before on leaving."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _visited_rows_only(model: GPT, optimizer: torch.optim.Optimizer | Optimizers) -> Iterator[None]:
    """Let tables give gradients of visited rows inside, where the write takes all and one process has them all."""
    parts = optimizer.parts.values() if isinstance(optimizer, Optimizers) else ()
    written = {each for part in parts if isinstance(part, TableWrite) for each in part.param_groups[0]["params"]}
    if model.tables is not None:
        trained = {each for each in model.tables.weights if each.requires_grad}
        model.tables.sparse = _ranks() == 1 and trained <= written
    try:
        yield
    finally:
        if model.tables is not None:
            model.tables.sparse = False


@contextmanager
def _kept(model: GPT, save: Callable[[], None], next_loss: Callable[[], tuple[float, float]]) -> Iterator[None]:
    """Write the steps so far where an evaluation inside fails, if it left the weights and their next loss is good."""
    before = {name: each.clone() for name, each in model.state_dict().items()}
    try:
        yield
    except Diverged:
        raise
    except Exception as error:
        try:
            if _same(model.state_dict(), before) and _good(next_loss()):
                save()
        except Exception as other:  # the error of the evaluation is the one to hear of
            error.add_note(f"the steps so far could not be written either: {other}")
        raise


def _same(state: dict[str, torch.Tensor], before: dict[str, torch.Tensor]) -> bool:
    return state.keys() == before.keys() and all(
        each.dtype == before[name].dtype and torch.equal(each, before[name]) for name, each in state.items()
    )


def train(
    model: GPT,
    tokens: ArrayLike,
    recipe: Recipe,
    *,
    weights: ArrayLike | None = None,
    folder: _Folder = None,
    evaluate: Callable[[GPT], Any] | None = None,
    evaluate_every: int = 0,
    progress: bool = False,
    until: Callable[[History], bool] | None = None,
) -> History:
    """Train `model` in place on windows of `tokens` (N,) and return what was measured; runs on one thread.

    `weights` are base**q per type (V,) or per position (N,), and go to the targets; a weight w(y) of a text is a factor
    of those of its positions. `evaluate(model)`, a number or a dict of numbers, is asked every `evaluate_every` steps
    and, once the finished state is written, at the end; training stops once `until(history)` holds. The loss and the
    gradient after the last update are computed too, to show that it was good. With a `folder`, a call that was killed
    goes on, bit for bit, from its last checkpoint, whose weights replace those of `model`, and a call that `evaluate`
    ended from there, unless it changed weights before; give every initialisation its own folder. In a process group of
    torch.distributed each process takes its share of the micro-batches, at least one, and the first process writes.
    Raises InputError or InputTypeError for data, recipe or checkpoint that do not fit, FileError for a checkpoint that
    is broken or a folder that takes none, and Diverged for a loss that is not finite, before or after the last update.
    """
    for name, value, kind in (("model", model, GPT), ("recipe", recipe, Recipe)):
        if not isinstance(value, kind):
            raise InputTypeError(f"{name} is a {type(value).__name__}; give a {kind.__name__}")
    evaluate_every = count("evaluate_every", evaluate_every, 0)
    config = model.config
    data = windows(tokens, weights, config.vocabulary, config.context)
    ranks = _ranks()
    if recipe.batch % math.lcm(recipe.accumulate, ranks):
        raise InputError(
            f"batch {recipe.batch} does not split into micro-batches for {ranks} processes; give a multiple of "
            f"{math.lcm(recipe.accumulate, ranks)}"
        )
    if config.grading is not None and "heads" in config.grading.learned:
        recipe.penalties.require_coercive(config.heads)
    if folder is not None:
        prepare(folder)
    optimizer = optimizer_of(model, recipe)
    with single_thread(), _visited_rows_only(model, optimizer):
        return _run(model, optimizer, data, recipe, folder, evaluate, evaluate_every, progress, until)


def gradient(model: GPT, data: Windows, recipe: Recipe, step: int) -> tuple[float, float]:
    """Leave in `.grad` the gradient of GLLM Eq. 20 over all windows of a step; return the loss and the global norm.

    Micro-batches are equal and each is divided by their number, so they sum to the mean over the batch, whatever the
    weights in each of them; processes add up their shares.
    """
    ranks = _ranks()
    parts = math.lcm(recipe.accumulate, ranks)
    share = parts // ranks
    starts = np.split(data.starts(recipe.seed, step, recipe.batch), parts)[_rank() * share : (_rank() + 1) * share]
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    grades = {name.removeprefix("grading."): each for name, each in trained.items() if name.startswith("grading.")}
    parameters = list(trained.values())
    counts = [] if model.tables is None else [visits for _, visits in model.tables.pairs()]
    for each in parameters:
        each.grad = None
    for visits in counts:
        visits.zero_()
    loss = 0.0
    for some in starts:
        inputs_BT, targets_BT, weights_BT = data.read(some, parameters[0].dtype)
        part = graded_loss(model(inputs_BT), targets_BT, weights_BT)
        loss += part.item() / parts
        part = part + recipe.penalties.value(grades, model.config.level_widths)
        (part / parts).backward()
    if ranks > 1:
        loss = _sum_over_ranks(parameters, loss)
        for visits in counts:
            distributed.all_reduce(visits)
    return loss, float(nn.utils.get_total_norm([each.grad for each in _clipped(model, recipe)]))


def _clipped(model: GPT, recipe: Recipe) -> list[nn.Parameter]:
    """What the global norm is of: all that has a gradient, but the hashed tables beside a package."""
    left = () if recipe.package is None or model.tables is None else set(model.tables.weights)
    return [each for each in model.parameters() if each.grad is not None and each not in left]


def _run(
    model: GPT,
    optimizer: torch.optim.Optimizer | Optimizers,
    data: Windows,
    recipe: Recipe,
    folder: _Folder,
    evaluate: Callable[[GPT], Any] | None,
    evaluate_every: int,
    progress: bool,
    until: Callable[[History], bool] | None,
) -> History:
    """Go from the checkpoint, if any, to the end; a new one waits until the next loss has shown it to be good."""
    run = {} if folder is None else _identity(model, recipe, data)
    before = None if folder is None else load_checkpoint(folder, model, optimizer, run)
    _copy_to_ranks(model)
    evaluations: list[tuple[int, Any]] = [] if before is None else list(before.evaluations)
    measured, saved = np.zeros((2, recipe.steps)), 0 if before is None else len(before.losses)
    done = saved
    if before is not None:
        measured[:, :done] = before.losses, before.gradient_norms

    def history() -> History:
        losses, norms = measured[:, :done].copy()  # a caller may keep it, and may not change the run's own
        losses.flags.writeable = norms.flags.writeable = False
        return History(losses, norms, tuple(evaluations), done * recipe.batch * data.length)

    def save() -> None:
        if _rank() == 0 and folder is not None:
            save_checkpoint(folder, model, optimizer, history(), run)

    with tqdm(total=recipe.steps, initial=done, unit="step", disable=not progress or _rank() > 0) as bar:
        while True:
            good = folder if saved else None
            if evaluate and evaluate_every and 0 < done < recipe.steps and done % evaluate_every == 0:
                keep = partial(_kept, model, save, partial(gradient, model, data, recipe, done))
                with nullcontext() if folder is None else keep():
                    _ask(evaluate, model, evaluations, done, good)
            last = done == recipe.steps or (until is not None and done > 0 and _agreed(until(history())))
            if last and saved == done:
                break
            loss, norm = gradient(model, data, recipe, done)
            if not _good((loss, norm)):
                raise _diverged("the gradient" if math.isfinite(loss) else "the loss", done, good)
            if folder is not None and saved != done and (last or (recipe.save_every and done % recipe.save_every == 0)):
                save()
                saved = done
            if last:
                break
            _update(model, optimizer, recipe, done, norm)
            measured[:, done] = loss, norm
            done += 1
            bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
            bar.update()
    optimizer.zero_grad()
    if evaluate and _ask(evaluate, model, evaluations, done, folder):
        save()
    if _ranks() > 1:
        distributed.barrier()  # no process leaves before the checkpoint is whole
    return history()


def _good(loss_and_norm: tuple[float, float]) -> bool:
    return all(map(math.isfinite, loss_and_norm))


def _update(model: GPT, optimizer: torch.optim.Optimizer | Optimizers, recipe: Recipe, step: int, norm: float) -> None:
    """Clip the gradient, whose norm is given, step at the schedule's rate, and put learned grades back in range."""
    if 0 < recipe.gradient_clip < norm:
        for each in _clipped(model, recipe):
            each.grad.mul_(recipe.gradient_clip / norm)
    if isinstance(optimizer, Optimizers):
        optimizer.taken = step  # its schedules follow
    else:
        for group in optimizer.param_groups:
            group["lr"] = cosine(step, recipe.steps, recipe.peak, recipe.floor, recipe.warmup)
    optimizer.step()
    model.clamp_grades()


def _ask(
    evaluate: Callable[[GPT], Any], model: GPT, evaluations: list[tuple[int, Any]], done: int, good: _Folder
) -> bool:
    """Append what `evaluate` returns, as JSON keeps it, and tell so, unless these steps have been evaluated."""
    if evaluations and evaluations[-1][0] == done:
        return False
    value = evaluate(model)
    try:
        plain = json.loads(json.dumps(value, default=float))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputTypeError(f"evaluate returned {value!r:.80}; return a number, or a dict of numbers") from error
    try:
        json.dumps(plain, allow_nan=False)
    except ValueError as error:
        raise _diverged("the evaluation", done, good) from error
    evaluations.append((done, plain))
    return True


def _identity(model: GPT, recipe: Recipe, data: Windows) -> dict[str, Any]:
    """What a checkpoint must share with a run to be resumed by it; how often it is written is not part of that."""
    fixed = asdict(recipe)
    del fixed["save_every"]
    if recipe.package is None:  # as before there were packages
        del fixed["package"]
    frozen = [name for name, each in model.named_parameters() if not each.requires_grad]
    return {"config": model.config.to_dict(), "recipe": fixed, "data": data.fingerprint(), "frozen": frozen}


def _diverged(what: str, step: int, good: _Folder) -> Diverged:
    checkpoint = None if good is None else checkpoint_path(good)
    kept = f"{checkpoint} holds the last good state" if checkpoint else "no checkpoint was written before"
    told = f"{what} of step {step} is not finite; the model is as that step found it, and {kept}"
    return Diverged(f"{told}: lower peak or lengthen warmup, and train in another folder", step, checkpoint)


def _ranks() -> int:
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _rank() -> int:
    return distributed.get_rank() if _ranks() > 1 else 0


def _copy_to_ranks(model: nn.Module) -> None:
    """Give every process the weights of the first."""
    if _ranks() > 1:
        for each in model.state_dict().values():
            distributed.broadcast(each, 0)


def _agreed(stop: bool) -> bool:
    """Let the first process decide, so that all stop after the same step."""
    if _ranks() == 1:
        return stop
    decision = torch.tensor(int(stop))
    distributed.broadcast(decision, 0)
    return bool(decision)


def _sum_over_ranks(parameters: list[nn.Parameter], loss: float) -> float:
    """Replace gradients by their sums over the processes, in one message, and return the sum of the losses."""
    held = [each.grad for each in parameters if each.grad is not None]
    flat = torch.cat([each.flatten() for each in held])
    total = torch.tensor(loss, dtype=torch.float64)
    distributed.all_reduce(flat)
    distributed.all_reduce(total)
    for each, summed in zip(held, flat.split([each.numel() for each in held]), strict=True):
        each.copy_(summed.view_as(each))
    return total.item()

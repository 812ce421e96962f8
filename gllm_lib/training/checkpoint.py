"""A training run on disk: one safetensors file, whole or not there, which only the run that it belongs to takes up."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from gllm_lib.checks import FileError, InputError, digest, write_bytes
from gllm_lib.optim.groups import Optimizers

NAME = "checkpoint.safetensors"
_FORMAT = "gllm training checkpoint 1"
_NOTHING = object()  # stands for the entries that the shorter of two lists lacks


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
class History:
    """What a run has measured so far; `losses` and `gradient_norms` have shape (steps done,).

    A loss is the graded one of the step's windows before its update, in nats, without penalties; a norm is taken before
    clipping. `evaluations` are pairs of the steps done and what `evaluate` returned. `tokens_seen` counts targets.
    """

    losses: NDArray[np.float64]
    gradient_norms: NDArray[np.float64]
    evaluations: tuple[tuple[int, Any], ...]
    tokens_seen: int


def checkpoint_path(folder: str | os.PathLike[str]) -> Path:
    """Return where a run keeps its checkpoint in `folder`."""
    return Path(folder) / NAME


def prepare(folder: str | os.PathLike[str]) -> None:
    """Make `folder`, clear what a killed writer left, and raise FileError, before any step, if it takes no file."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        for left in Path(folder).glob(f"{NAME}.*.tmp"):
            left.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"{folder} cannot hold checkpoints: {error.strerror}; give a folder to write to") from error


def save_checkpoint(
    folder: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Optimizers,
    history: History,
    run: Mapping[str, Any],
) -> Path:
    """Write weights, moments, history and the `run` they belong to (config, recipe, data); return the file's path.

    The file takes its place by a rename: until it is whole, the one before stands.
    """
    tensors = {f"model.{name}": each.detach().contiguous() for name, each in model.state_dict().items()}
    state = optimizer.state
    for name, each in model.named_parameters():
        tensors |= {f"optimizer.{kind}.{name}": value for kind, value in state.get(each, {}).items()}
    tensors["history.losses"] = torch.from_numpy(history.losses.copy())
    tensors["history.gradient_norms"] = torch.from_numpy(history.gradient_norms.copy())
    about = {**run, "evaluations": history.evaluations, "tokens_seen": history.tokens_seen}
    text = json.dumps(about, sort_keys=True, allow_nan=False)
    metadata = {"format": _FORMAT, "about": text, "sha256": _sha256(text, tensors)}
    return write_bytes(checkpoint_path(folder), save(tensors, metadata))


def load_checkpoint(
    folder: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Optimizers,
    run: Mapping[str, Any],
) -> History | None:
    """Put the checkpoint of `folder` into model and optimiser and return its history; None if there is none.

    Raises FileError for a file that is cut off, altered or of another kind, and InputError, naming the first field that
    differs, if it belongs to another run. Then model and optimiser are as they were.
    """
    path = checkpoint_path(folder)
    if not path.exists():
        return None
    about, tensors = _read(path)
    own = json.loads(json.dumps(run))
    found = _difference({name: about.get(name) for name in own}, own)
    if found:
        raise InputError(f"{path} belongs to another run: {found}; give another folder, or what the checkpoint has")
    expected = {f"model.{name}": (each.shape, each.dtype) for name, each in model.state_dict().items()}
    kept = {name: (each.shape, each.dtype) for name, each in tensors.items() if name.startswith("model.")}
    if expected != kept:
        name = sorted(expected.items() ^ kept.items(), key=str)[0][0]
        raise InputError(f"{path} holds another model of this config: {name} differs; give another folder")
    model.load_state_dict({name.removeprefix("model."): tensors[name] for name in kept})
    names, state = dict(model.named_parameters()), optimizer.state
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, kind, name = key.split(".", 2)
            state[names[name]][kind] = value
    return History(
        tensors["history.losses"].numpy(),
        tensors["history.gradient_norms"].numpy(),
        tuple((step, value) for step, value in about["evaluations"]),
        about["tokens_seen"],
    )


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what a checkpoint says about its run and its tensors, once the hash of both is right."""
    mend = "delete it to start afresh, or put a whole copy in its place"
    try:
        data = path.read_bytes()  # once: another process may put the next checkpoint in its place meanwhile
        tensors = load(data)
        metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {})
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path} is cut off or no safetensors file ({error}); {mend}") from error
    if metadata.get("format") != _FORMAT:
        raise FileError(f"{path} is no checkpoint of this loop but {metadata.get('format')!r}; {mend}")
    if _sha256(metadata["about"], tensors) != metadata["sha256"]:
        raise FileError(f"{path} was altered after it was written: its hash is wrong; {mend}")
    return json.loads(metadata["about"]), tensors


def _sha256(about: str, tensors: Mapping[str, Tensor]) -> str:
    named = ((name.encode(), tensors[name].flatten().view(torch.uint8).numpy().data) for name in sorted(tensors))
    return digest(chain([about.encode()], *named))


def _difference(theirs: Any, ours: Any, name: str = "") -> str | None:
    """Return the place of the first entry that differs between two JSON values, with both cut short; None if equal."""
    places: Iterable[tuple[str, Any, Any]] = ()
    if isinstance(theirs, dict) and isinstance(ours, dict):
        dot = f"{name}." if name else ""
        places = ((f"{dot}{key}", theirs.get(key), ours.get(key)) for key in sorted(theirs | ours))
    elif isinstance(theirs, list) and isinstance(ours, list):
        pairs = enumerate(zip_longest(theirs, ours, fillvalue=_NOTHING))
        places = ((f"{name}[{i}]", *pair) for i, pair in pairs)
    elif theirs != ours:
        told = ("nothing" if each is _NOTHING else f"{each!r:.60}" for each in (ours, theirs))
        return f"{name}: {' here, '.join(told)} in the checkpoint"
    return next((found for place, *both in places if (found := _difference(both[0], both[1], place))), None)

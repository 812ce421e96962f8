"""Errors, validators of public input, files written whole or not at all, and the list of data a process has read.

Every error says what was given, what is allowed and how to mend it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]

SUM_TOLERANCE = 1e-6  # a profile written with seven digits still counts as a probability vector


class GllmError(Exception):
    """Root of every error this library raises on purpose."""


class InputError(GllmError, ValueError):
    """A value outside what a function allows."""


class InputTypeError(GllmError, TypeError):
    """A value of a kind that a function does not take."""


class FileError(GllmError, OSError):
    """A file that is missing, unreadable or not of the announced form."""


def count(name: str, value: Any, least: int = 1, most: float = math.inf) -> int:
    """Return `value` as an int; raises InputTypeError if it is no whole number, InputError outside least to most."""
    allowed = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputTypeError(f"{name} is {value!r:.40}; give a whole number {allowed}")
    whole = int(value)
    if not least <= whole <= most:
        raise InputError(f"{name} is {whole}; give a whole number {allowed}")
    return whole


def real(
    name: str,
    value: Any,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
) -> float:
    """Return `value`, a Python or numpy number, as a finite float in least <= value <= most, above < value < below.

    Raises InputTypeError if it is no number, InputError if it is not finite or outside.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputTypeError(f"{name} is {value!r:.40}; give a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and least <= number <= most and above < number < below):
        ends = {"of at least": least, "above": above, "of at most": most, "below": below}
        limits = " and ".join(f"{word} {end:g}" for word, end in ends.items() if math.isfinite(end))
        raise InputError(f"{name} is {number}; give a finite number {limits}".rstrip())
    return number


def flag(name: str, value: Any) -> bool:
    """Return `value` if it is True or False, else raise InputTypeError."""
    if not isinstance(value, bool):
        raise InputTypeError(f"{name} is {value!r:.40}; give True or False")
    return value


def choose(name: str, value: Any, allowed: Iterable[str | None]) -> None:
    """Raise InputError unless `value` is one of `allowed`."""
    known = tuple(allowed)
    if not isinstance(value, str | None) or value not in known:
        raise InputError(f"{name} is {value!r:.40}; choose from {', '.join(map(repr, known))}")


def put(target: Any, check: Callable[..., Any], names: str, **limits: float) -> None:
    """Check the named fields of a frozen dataclass with `count` or `real`, and keep them as Python's own numbers."""
    for name in names.split():
        object.__setattr__(target, name, check(name, getattr(target, name), **limits))


def vector(name: str, value: ArrayLike) -> Vector:
    """Return `value` as a one-dimensional, non-empty, finite float64 array, shape (d,).

    Raises InputTypeError if it holds no numbers and InputError if its shape or an entry is not allowed.
    """
    array = as_array(name, value, "give real numbers, such as [0.7, 0.3]")
    if array.dtype.kind not in "iuf":
        raise InputTypeError(f"{name} holds {array.dtype} entries; give real numbers, such as [0.7, 0.3]")
    array = array.astype(np.float64)
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"{name} has shape {array.shape}; give a flat list with at least one entry, shape (d,)")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise InputError(
            f"{name}[{bad[0]}] is {array[bad[0]]} ({bad.size} of {array.size} entries are not finite); "
            "remove or repair those entries first"
        )
    return array


def as_array(name: str, value: ArrayLike, mend: str) -> NDArray[Any]:
    """Return `value` as an array of any type; raises InputTypeError if it is no list, InputError if it is ragged.

    What numpy does not take raises InputTypeError too: a tensor that requires grad, or one of bfloat16.
    """
    if value is None or isinstance(value, str | bytes):
        raise InputTypeError(f"{name} is {value!r:.40}; {mend}")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{name} is ragged: its rows differ in length; give one flat list of numbers") from error
    except (RuntimeError, TypeError) as error:
        kind = type(value).__name__
        raise InputTypeError(f"{name} is a {kind} ({error}); give an array: {name}.detach().float().numpy()") from error
    if array.ndim == 0 and array.dtype.kind == "O":  # a dict, a set, a generator
        raise InputTypeError(f"{name} is a {type(value).__name__}; {mend}")
    return array


def positive(name: str, value: ArrayLike, mend: str = "every entry must exceed 0", below: str = "") -> Vector:
    """Return `value` as a finite float64 array (d,) above zero; or raise InputError with `mend`, or `below`."""
    array = vector(name, value)
    bad = np.flatnonzero(array <= 0)
    if bad.size:
        mend = below if below and array[bad[0]] < 0 else mend
        raise InputError(
            f"{name}[{bad[0]}] is {array[bad[0]]:g} ({bad.size} of {array.size} entries are not positive); {mend}"
        )
    return array


def profile(name: str, value: ArrayLike) -> Vector:
    """Return `value` as a strictly positive probability vector, shape (d,), entries as given.

    Raises InputError for a zero or negative entry or a sum further than 1e-6 from 1 (GLLM Def. 2).
    """
    mend = "delete the coordinates of zero weight from both profiles and renormalise (GLLM Def. 2)"
    below = "a weight is a share of energy or variance: mend what computed it, or clip estimates at a small share"
    array = positive(name, value, mend, below)
    total = float(array.sum())
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise InputError(f"{name} sums to {total:.9g}; a profile sums to 1: divide it by its sum")
    return array


def same_length(**arrays: NDArray[Any]) -> int:
    """Return the common length of the named arrays, or raise InputError naming the lengths."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InputError(f"lengths differ: {told}; give one entry per coordinate in each")
    return next(iter(lengths.values()))


def generator(rng: Any) -> np.random.Generator:
    """Return `rng` if it is a numpy Generator, else raise InputTypeError: randomness is an argument."""
    if not isinstance(rng, np.random.Generator):
        raise InputTypeError(f"rng is {type(rng).__name__}; give numpy.random.default_rng(seed)")
    return rng


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write `text` to `path` whole or not at all: into a temporary sibling, then renamed over it."""
    return write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write `data` to `path` whole or not at all: into a temporary sibling, then renamed over it."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=target.name + ".", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # mkstemp gives 0600; a page must stay readable to a web server
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target


def exchange(fresh: Path, out: Path) -> None:
    """Put the folder `fresh` in the place of `out`, by renaming; if that fails, `out` is as it was."""
    old = out.with_name(f".{out.name}.old")
    if out.exists():
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
    try:
        fresh.rename(out)
    except BaseException:
        if old.exists():
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def write_json(path: str | os.PathLike[str], value: Any) -> Path:
    """Write `value` as indented JSON with sorted keys, whole or not at all; NaN and infinity are refused."""
    try:
        text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise InputError(f"{path} would hold NaN or infinity, which JSON cannot; store null with a reason") from error
    return write_text(path, text + "\n")


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a UTF-8 file and note it as an input; raises FileError if it is missing or not UTF-8."""
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileError(
            f"{source} is not UTF-8 (byte {error.start} is 0x{error.object[error.start]:02x}); convert it, "
            "for instance with iconv -t utf-8"
        ) from error
    except OSError as error:
        raise FileError(f"{source} cannot be read: {error.strerror}; check the path and its permissions") from error
    note_input(source)
    return text


def sha256(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal; for a folder, that of the sorted names in it."""
    if os.path.isdir(path):
        return hashlib.sha256("\n".join(sorted(os.listdir(path))).encode()).hexdigest()
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def digest(pieces: Iterable[bytes | memoryview]) -> str:
    """Return the SHA-256, in hexadecimal, of the bytes of all pieces, one after the other."""
    told = hashlib.sha256()
    for piece in pieces:
        told.update(piece)
    return told.hexdigest()


_inputs: dict[str, str] = {}


def note_input(path: str | os.PathLike[str]) -> None:
    """Note that this process has read the data file `path`, so that a cached result is tied to its bytes.

    A folder may be noted too: a result is then tied to the names in it, so that a new record makes it stale.
    """
    resolved = str(Path(path).resolve())
    if resolved not in _inputs:
        _inputs[resolved] = sha256(resolved)


def inputs_read() -> dict[str, str]:
    """Return the data files this process has read through this module, as absolute path to SHA-256."""
    return dict(_inputs)


def processor() -> str:
    """Return the processor's name, without the machine's, for what names the machine beside a time."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text(errors="replace").splitlines() if information.is_file() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())

"""What a kernel leaves behind at the end of a chapter: the library files it imported, the data it read, its cost."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import gllm_lib
from gllm_lib import checks

CHANGED = "changed while the chapter ran"  # no file has this hash, so the run is not current

_opened: dict[str, None] = {}
_started, _root = time.time(), Path.cwd().parent


def watch() -> None:
    """Note from now on every file that this process opens for reading, whoever opens it."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            _opened[os.path.abspath(arguments[0])] = None

    sys.addaudithook(hook)


@cache
def versions() -> dict[str, str]:
    """Return the versions of the interpreter and of the packages that the library requires, but for its extras."""
    needed = [line for line in importlib.metadata.requires("gllm-book") or () if "extra ==" not in line]
    names = sorted(found[0] for line in needed if (found := re.match(r"[\w.-]+", line)))
    return {"python": platform.python_version()} | {name: _version(name) for name in names}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"  # who imports it is told so


def trace() -> str:
    """Return, as JSON, imported library files and data read (path to SHA-256), CPU-seconds, machine and versions."""
    library = Path(gllm_lib.__file__).parent
    modules = {Path(m.__file__) for m in list(sys.modules.values()) if getattr(m, "__file__", None)}  # type: ignore[arg-type]
    mine = {file for file in modules if file.is_relative_to(library) and file.suffix == ".py"}
    apart = (Path(sys.prefix), _root / "build", _root / ".git")
    read = {file for file in {*modules, *map(Path, _opened)} - mine if file.is_relative_to(_root) and file.is_file()}
    data = {file for file in read if not any(map(file.is_relative_to, apart)) and file.suffix != ".pyc"}
    return json.dumps(
        {
            "library": {str(file.relative_to(library)): _digest(file) for file in sorted(mine)},
            "data": {str(file): _digest(file) for file in sorted(data)} | checks.inputs_read(),
            "cpu_seconds": round(time.process_time(), 1),
            "machine": machine(),
            "versions": versions(),
        }
    )


def _digest(file: Path) -> str:
    """Return the hash of a file, unless it changed after this process began and may have been read before that."""
    return CHANGED if file.stat().st_mtime > _started else checks.sha256(file)


def machine() -> str:
    """Return the processor, the number of cores and the operating system, without the machine's name."""
    return f"{checks.processor()}, {os.cpu_count()} cores, {platform.system()}"

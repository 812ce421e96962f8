"""`gllm test`: what `make test` runs, for those who have no make."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

from gllm_lib.book.project import BookError

CODE = ("gllm_lib", "tests", "chapters", "figures")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("ruff", "check", *CODE),
    ("ruff", "format", "--check", *CODE),
    ("mypy",),
    ("lint-imports",),
    ("gllm", "check"),
    ("python", "-m", "pytest", "-m", "not browser and not huggingface and not quarto"),
)
NEEDED = ("ruff", "mypy", "importlinter", "pytest")


def environment(root: str | Path) -> dict[str, str]:
    """Return what the suite sets: one thread per process, and no call for models or caches outside the book."""
    threads = dict.fromkeys(("OMP", "OPENBLAS", "MKL", "NUMEXPR"), "1")
    return {f"{name}_NUM_THREADS": one for name, one in threads.items()} | {
        "HYPOTHESIS_STORAGE_DIRECTORY": f"{root}/build/hypothesis",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def run(root: Path) -> None:
    """Run linters, types and tests in `root`, in that order; raises BookError at the first that fails."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise BookError(
            f"the tests need {', '.join(missing)}, not installed here; pip install -e '.[test]' brings them"
        )
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    for command in COMMANDS:
        print("$", shlex.join(command), flush=True)
        done = subprocess.run(command, cwd=root, env=os.environ | environment(root) | {"PATH": beside})
        if done.returncode:
            raise BookError(f"{shlex.join(command)} fails (exit code {done.returncode}); the rest was not run")

"""What a kernel leaves behind at the end of a chapter: the library files it imported, the data it read, its cost."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
import time
from pathlib import Path

import gllm_lib
from gllm_lib import checks

SHOWN = ("numpy", "scipy", "sympy", "matplotlib", "hypothesis", "z3-solver", "python-flint", "scikit-learn")


def trace() -> str:
    """Return, as JSON, imported library files and data read (path to SHA-256), CPU-seconds, machine and versions."""
    library = Path(gllm_lib.__file__).parent
    files = [Path(m.__file__) for m in list(sys.modules.values()) if getattr(m, "__file__", None)]  # type: ignore[arg-type]
    mine = sorted(str(f.relative_to(library)) for f in files if f.is_relative_to(library) and f.suffix == ".py")
    return json.dumps(
        {
            "library": {name: checks.sha256(library / name) for name in mine},
            "data": checks.inputs_read(),
            "cpu_seconds": round(time.process_time(), 1),
            "machine": machine(),
            "versions": {"python": platform.python_version()} | {n: importlib.metadata.version(n) for n in SHOWN},
        }
    )


def machine() -> str:
    """Return the processor, the number of cores and the operating system, without the machine's name."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, {platform.system()}"

"""Kernels: each chapter gets one of its own, of this very interpreter, and none outlives the build that started it."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from queue import Empty
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import v4

from gllm_lib.book.project import BookError, Project
from gllm_lib.book.syntax import literal

CELL_SECONDS = {"smoke": 120, "default": 600, "full": None}
THREADS = ("VECLIB_MAXIMUM_THREADS", *(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")))
PERSONAL = ("PYTHONOPTIMIZE", "PYTHONSTARTUP", "PYTHONWARNINGS", "MPLBACKEND")  # a chapter runs without these settings

PROLOGUE = (
    "import warnings as _w; _w.filterwarnings('error', module=r'gllm_lib(\\.|$)'); del _w\n"
    "__import__('gllm_lib.book.trace', fromlist=['watch']).watch()"
)
EPILOGUE = "__import__('gllm_lib.book.trace', fromlist=['trace']).trace()"


_kernels: set[int] = set()  # process ids of the kernels now running
interrupted = threading.Event()  # Ctrl-C has ended them


def in_threads(work: Callable[[str], Any], items: Iterable[str], workers: int) -> list[Any]:
    """Return what `work` makes of each item; Ctrl-C ends the kernels at once instead of waiting for their cells."""
    interrupted.clear()
    with ThreadPoolExecutor(max_workers=workers) as pool:
        try:
            return list(pool.map(work, items))
        except KeyboardInterrupt:
            interrupted.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for process in _kernels - {0}:
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            raise


@asynccontextmanager
async def kernel(project: Project, chapter: str, profile: str) -> AsyncIterator[NotebookClient]:
    """Start a kernel of this very interpreter, whatever kernels the user has installed, and stop it at the end."""
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    with tempfile.TemporaryDirectory(prefix="gllm-") as folder:
        wire = {"transport": "ipc", "ip": f"{folder}/k"} if os.name == "posix" and len(folder) < 90 else {}
        manager = AsyncKernelManager(connection_file=f"{folder}/kernel.json", **wire)
        manager._kernel_spec = KernelSpec(argv=argv, display_name="Python 3", language="python")
        client = NotebookClient(v4.new_notebook(), km=manager, timeout=CELL_SECONDS[profile])
        folder_and_variables = {"cwd": str(project.root / "chapters"), "env": _environment(project, chapter)}
        setup = client.async_setup_kernel(cleanup_kc=True, **folder_and_variables)
        try:
            await setup.__aenter__()
        except RuntimeError as error:
            raise BookError(f"{chapter}: its kernel did not start: {error}; try again on a freer machine") from error
        process = getattr(manager.provisioner, "pid", None) or 0
        _kernels.add(process)
        try:
            if interrupted.is_set():
                raise BookError(f"{chapter}: interrupted")
            yield client
        finally:
            _kernels.discard(process)
            await setup.__aexit__(None, None, None)


def _environment(project: Project, chapter: str) -> dict[str, str]:
    for folder in ("ipython", "hypothesis", "matplotlib"):
        project.build(folder).mkdir(parents=True, exist_ok=True)
    environment = {key: value for key, value in os.environ.items() if key not in PERSONAL}
    environment |= dict.fromkeys(THREADS, "1")
    environment |= {
        "GLLM_CHAPTER": chapter,
        "PYTHONHASHSEED": "0",
        "IPYTHONDIR": str(project.build("ipython")),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(project.build("hypothesis")),
        "MPLCONFIGDIR": str(project.build("matplotlib")),
    }
    return environment


async def ask(client: NotebookClient, place: str, code: str, expression: str = "0") -> str:
    """Run code outside the notebook and return the text of an expression after it."""
    try:
        reply = await client.kc.execute_interactive(
            code, store_history=False, user_expressions={"it": expression}, output_hook=lambda _: None, timeout=60
        )
    except (TimeoutError, RuntimeError, Empty) as error:
        raise BookError(f"{place}: its kernel does not answer ({error}); try again on a less busy machine") from error
    content = reply["content"]
    answer = content.get("user_expressions", {}).get("it", {})
    if content["status"] != "ok" or answer.get("status") != "ok":
        problem = answer if content["status"] == "ok" else content
        raise BookError(f"{place}: {problem.get('ename')}: {problem.get('evalue')}")
    text = str(answer["data"]["text/plain"])
    return str(literal(text)) if expression == EPILOGUE else text

"""Execute chapters, each once in a kernel of its own, and keep the outputs under the key of all they depend on.

A run is current while code cells, claim blocks, parameters, inline names, the library files its kernel imported, the
lock, the versions installed and every file of the book it read are the same; prose may change freely.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import v4
from tqdm import tqdm

import gllm_lib
from gllm_lib import checks
from gllm_lib.book.kernel import EPILOGUE, PROLOGUE, ask, in_threads, interrupted, kernel
from gllm_lib.book.project import BookError, Notebook, Project, inline_names, parameters, read_notebook, read_notebooks
from gllm_lib.book.syntax import literal, tree
from gllm_lib.book.trace import versions
from gllm_lib.checks import GllmError
from gllm_lib.proofs.claims import Registry, claims_of
from gllm_lib.proofs.evidence import MIME_TYPE

LIBRARY = Path(gllm_lib.__file__).parent

Progress = Callable[[int], object]

_MACHINERY = re.compile(
    r"\s*\[\.\.\. skipping|File .*[/\\](?:gllm_lib[/\\]proofs[/\\]evidence\.py|hypothesis[/\\][\w/\\]*\.py)\b"
)


@dataclass(frozen=True)
class Run:
    """One chapter's execution: what went in, the outputs of its code cells in order, its inline values, its cost."""

    chapter: str
    profile: str
    inputs: Mapping[str, Any]
    outputs: tuple[tuple[Mapping[str, Any], ...], ...]
    inline: tuple[str, ...]
    facts: Mapping[str, Any]

    @property
    def evidence(self) -> list[dict[str, Any]]:
        """Return the evidence records among the outputs."""
        return [record for outputs in self.outputs for record in evidence_in(outputs)]


def evidence_in(outputs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the evidence records among the outputs of a cell."""
    data = (output.get("data", {}) for output in outputs)
    return [dict(item[MIME_TYPE]) for item in data if MIME_TYPE in item]


def _path(project: Project, chapter: str, profile: str) -> Path:
    return project.build("runs", profile, f"{chapter}.json")


def static_inputs(project: Project, chapter: str, notebook: Notebook, profile: str) -> dict[str, Any]:
    """Return the part of the key that is known before execution: the chapter's text that matters, lock, interpreter."""
    parts: list[Any] = [parameters(chapter, notebook, profile)[1]]
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type == "code":
            parts.append(["code", cell.source, cell.metadata.get("tags", [])])
        elif cell.cell_type == "markdown":
            claims = [vars(claim) for claim in claims_of(chapter, [cell])]
            names = inline_names(f"{chapter}, cell {index + 1}", cell.source)
            parts += [["text", claims, names]] if claims or names else []
    lock = project.root / "requirements.lock"
    return {
        "chapter": hashlib.sha256(json.dumps(parts).encode()).hexdigest(),
        "lock": checks.sha256(lock) if lock.is_file() else "",
        "versions": versions(),
    }


def current(project: Project, chapter: str, profile: str, notebook: Notebook | None = None) -> Run | None:
    """Return the stored run of a chapter if nothing it depends on has changed, else None."""
    notebook = notebook or read_notebook(project.notebook_path(chapter))
    try:
        stored = json.loads(_path(project, chapter, profile).read_text(encoding="utf-8"))
        run = Run(**{**stored, "outputs": tuple(map(tuple, stored["outputs"])), "inline": tuple(stored["inline"])})
        files = {LIBRARY / name: digest for name, digest in run.inputs["library"].items()}
        files |= {project.root / name: digest for name, digest in run.inputs["data"].items()}
        static = static_inputs(project, chapter, notebook, profile)
        same = all(run.inputs[key] == value for key, value in static.items())
        return run if same and all(checks.sha256(file) == digest for file, digest in files.items()) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # absent, of an older form, or of a file that is gone: it is made again


def evidence_by_claim(runs: Mapping[str, Run]) -> dict[str, list[dict[str, Any]]]:
    """Return the evidence records of these runs by the claim they are for."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run in runs.values():
        for record in run.evidence:
            found.setdefault(record["claim"], []).append(record)
    return found


def current_runs(project: Project, profile: str, notebooks: Mapping[str, Notebook] | None = None) -> dict[str, Run]:
    """Return the stored runs that are current, by chapter, of all chapters or of those given."""
    notebooks = read_notebooks(project) if notebooks is None else notebooks
    runs = {name: current(project, name, profile, notebook) for name, notebook in notebooks.items()}
    return {name: run for name, run in runs.items() if run is not None}


def run_chapters(
    project: Project,
    chapters: Iterable[str],
    profile: str,
    registry: Registry,
    *,
    notebooks: Mapping[str, Notebook] | None = None,
    workers: int = 2,
    quiet: bool = False,
) -> dict[str, Run]:
    """Execute the chapters that have no current run, two at a time, and return all their runs.

    `notebooks` may hold those already read, so that an edit during the build counts in the next one. Raises BookError
    naming chapter, cell and claim of each failure, after the others have finished and been stored.
    """
    read = notebooks or {}
    notebooks = {name: read.get(name) or read_notebook(project.notebook_path(name)) for name in chapters}
    runs = {name: current(project, name, profile, notebook) for name, notebook in notebooks.items()}
    stale = [name for name, run in runs.items() if run is None]
    require_imports(project, {name: notebooks[name] for name in stale})
    total = sum(len(notebooks[name].cells) for name in stale)
    failures: dict[str, GllmError] = {}
    unseen = quiet or not stale or not sys.stderr.isatty()  # a log gets the line of each chapter alone
    with tqdm(total=total, unit="cell", disable=unseen, desc="executing") as bar:

        def one(name: str) -> None:
            try:
                runs[name] = execute(project, name, notebooks[name], profile, registry, progress=bar.update)
                told = f"{runs[name].facts['seconds']:.0f} s"  # type: ignore[union-attr]
            except GllmError as error:
                reason = "\n    ".join(line[:300] for line in str(error).splitlines()[:2] if line)
                failures[name], told = error, "interrupted" if interrupted.is_set() else f"failed\n    {reason}"
            if not quiet:
                bar.write(f"{name}: {told}", file=sys.stderr)

        in_threads(one, stale, workers)
    if failures:
        raise BookError("\n\n".join(str(failures[name]) for name in stale if name in failures))
    return {name: run for name, run in runs.items() if run is not None}


def require_imports(project: Project, notebooks: Mapping[str, Notebook]) -> None:
    """Raise BookError for packages that chapters import and that are not installed, before anything is executed."""
    told = []
    for chapter, notebook in notebooks.items():
        names = dict.fromkeys(name for cell in notebook.cells if cell.cell_type == "code" for name in _imported(cell))
        beside = project.notebook_path(chapter).parent
        lost = [
            n for n in names if not (importlib.util.find_spec(n) or [*beside.glob(f"{n}.py"), *beside.glob(f"{n}/")])
        ]
        told += [f"{chapter}: imports {', '.join(lost)}, not installed here"] if lost else []
    if told:
        raise BookError("\n".join(told) + "\nrun 'make book' again, which installs, or add it to pyproject.toml")


def _imported(cell: Any) -> Iterator[str]:
    """Yield the packages that a cell imports in its own lines, not inside a `try` or a function."""
    for line in tree(cell.source).body:
        if isinstance(line, ast.Import):
            yield from (alias.name.split(".")[0] for alias in line.names)
        elif isinstance(line, ast.ImportFrom) and line.module and not line.level:
            yield line.module.split(".")[0]


def execute(
    project: Project,
    chapter: str,
    notebook: Notebook,
    profile: str,
    registry: Registry,
    *,
    until: int | None = None,
    progress: Progress = lambda _: None,
) -> Run:
    """Execute one chapter in a fresh kernel and store its run; with `until`, stop after that cell and store nothing."""
    clock = time.perf_counter()
    inputs = static_inputs(project, chapter, notebook, profile)
    cells, inline, trace = asyncio.run(_execute(project, chapter, notebook, profile, registry, until, progress))
    outputs = tuple(tuple(dict(o) for o in cell.outputs) for cell in cells)
    facts = {
        "seconds": round(time.perf_counter() - clock, 1),
        "cpu_seconds": trace["cpu_seconds"],
        "finished": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": trace["machine"],
        "versions": trace["versions"],
    }
    root = str(project.root) + os.sep
    data = {path.removeprefix(root): digest for path, digest in trace["data"].items()}
    run = Run(chapter, profile, inputs | {"library": trace["library"], "data": data}, outputs, tuple(inline), facts)
    if until is None:
        if not any(outputs):
            raise BookError(f"{chapter}: the chapter was executed and produced nothing; an empty chapter is an error")
        checks.write_json(_path(project, chapter, profile), run.__dict__)
    return run


async def _execute(
    project: Project,
    chapter: str,
    notebook: Notebook,
    profile: str,
    registry: Registry,
    until: int | None,
    progress: Progress,
) -> tuple[list[Any], list[str], dict[str, Any]]:
    """Run the cells in order; return the executed code cells, the inline values and the trace the kernel leaves."""
    where, overrides = parameters(chapter, notebook, profile)
    executed, inline = [], []
    async with kernel(project, chapter, profile) as client:
        await ask(client, chapter, PROLOGUE)
        for index, cell in enumerate(notebook.cells[: None if until is None else until + 1]):
            if cell.cell_type == "code":
                client.nb.cells = [v4.new_code_cell(cell.source)]
                await _run_cell(client, chapter, index, registry)
                executed.append(client.nb.cells[0])
                if index == where:
                    assignments = "\n".join(f"{name} = {value!r}" for name, value in overrides.items())
                    await ask(client, chapter, assignments)
            elif cell.cell_type == "markdown":
                for name in inline_names("", cell.source):
                    inline.append(await _inline_value(client, f"{chapter}, cell {index + 1}", name))
            progress(1)
        trace = json.loads(await ask(client, chapter, "", EPILOGUE))
    return executed, inline, trace


async def _run_cell(client: NotebookClient, chapter: str, index: int, registry: Registry) -> None:
    declared = [d for d in registry.declared if (d.chapter, d.cell) == (chapter, index)]
    claims = dict.fromkeys(d.claim for d in declared)
    place = f"{chapter}, cell {index + 1}" + (f" (claim {', '.join(claims)})" if claims else "")
    try:
        await client.async_execute_cell(client.nb.cells[0], 0)
    except CellTimeoutError as error:
        raise BookError(f"{place}: stopped after {client.timeout} s; give it a smaller size") from error
    except DeadKernelError as error:
        raise BookError(f"{place}: the kernel died, most often for lack of memory") from error
    except CellExecutionError as error:
        headline = f"{error.ename}: {error.evalue}"
        named = f"claim {claim}" if (claim := next(iter(claims), "")) and len(claims) == 1 else "(?!)"
        told = re.sub(rf"^(EvidenceError: )(?:{re.escape(chapter)}, )?(?:{named}[,:] )?", r"\1", headline)
        raise BookError(f"{place}: {told}\n\n{_excerpt(error.traceback or '', headline)}") from error
    for output in client.nb.cells[0].outputs:
        if output.output_type == "stream" and output.name == "stderr":
            raise BookError(f"{place}: wrote to standard error: {output.text.strip()[:300]}; silence or mend it")
    announced = sorted(f"{d.name} for {d.claim} ({d.kind}, {d.scope}, {sorted(d.mutants)})" for d in declared)
    shown = sorted(
        f"{r['name']} for {r['claim']} ({r['kind']}, {r['scope']}, {sorted(r['witnesses'])})"
        for r in evidence_in(client.nb.cells[0].outputs)
    )
    if announced != shown:
        told = f"declares the checks {announced or 'none'} and shows {shown or 'none'}"
        raise BookError(f"{place}: {told}; each runs once, from an @evidence line in its cell that is written out")


def _excerpt(traceback: str, headline: str) -> str:
    """Return the last lines of a traceback, without colours, frames of the evidence machinery and the headline."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", traceback)
    parts = re.split(r"\n(?=File |Cell In)|\n\n", text)
    shown = [part.strip("\n") for part in parts if not _MACHINERY.match(part) and part.strip() != headline.strip()]
    return "\n".join("\n\n".join(shown).splitlines()[-25:])


async def _inline_value(client: NotebookClient, place: str, name: str) -> str:
    text = await ask(client, place, "", name)
    try:
        value = literal(text)
    except (ValueError, SyntaxError):
        value = None
    if not isinstance(value, str):
        raise BookError(f"{place}: the inline value {name} is not a string; set it to a ready text in a cell above")
    return value

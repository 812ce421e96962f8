"""From notebooks to pages: execute what is stale, stage, render, and only then exchange the book."""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gllm_lib.book import lint
from gllm_lib.book.project import BookError, Project, read_notebook, read_registry
from gllm_lib.book.render import render
from gllm_lib.book.run import Run, current, execute, run_chapters
from gllm_lib.book.stage import stage


def build_book(
    project: Project,
    profile: str = "default",
    chapters: Sequence[str] = (),
    *,
    quarto: bool = True,
    quiet: bool = False,
) -> Path:
    """Execute, stage and render the book and return the folder of pages.

    All chapters at default size go to `_book/`; a part of them, or another size, goes to `build/preview/`, in which the
    other chapters show their last current run. Raises BookError; the book built before then stays as it was.
    """
    notebooks = {name: read_notebook(project.notebook_path(name)) for name in project.notebooks}
    registry = read_registry(project, notebooks)
    problems = lint.blocking(project, notebooks, registry)
    if problems:
        raise BookError("\n".join(problems))
    wanted = [project.find(name) for name in chapters] or list(project.notebooks)
    runs = run_chapters(project, wanted, profile, registry, quiet=quiet)
    whole = not chapters and profile == "default"
    if not whole:
        runs |= current_runs(project, profile, [name for name in project.notebooks if name not in runs])
    site = stage(project, runs, registry, profile)
    out = project.root / "_book" if whole else project.build("preview")
    if quarto and (command := shutil.which("quarto")):
        _quarto(command, site, out)
    else:
        render(site, out)
    return out


def current_runs(project: Project, profile: str, names: Sequence[str] = ()) -> dict[str, Run]:
    """Return the stored runs that are current, by chapter."""
    runs = {name: current(project, name, profile) for name in names or project.notebooks}
    return {name: run for name, run in runs.items() if run is not None}


def verify(project: Project, label: str, profile: str = "default") -> list[dict[str, object]]:
    """Execute a claim's chapter up to that claim's last check and return the evidence records of the claim."""
    registry = read_registry(project)
    if label not in registry.claims:
        near = difflib.get_close_matches(label, registry.claims, n=1)
        hint = f"did you mean {near[0]}?" if near else "'gllm claims' lists the labels"
        raise BookError(f"no chapter states {label}; {hint}")
    declared = registry.evidence_of[label]
    if not declared:
        raise BookError(f"{label} declares no evidence: there is nothing to verify")
    chapter = registry.claims[label].chapter
    notebook = read_notebook(project.notebook_path(chapter))
    last = max(item.cell for item in declared)
    run = execute(project, chapter, notebook, profile, registry, until=last)
    return [record for record in run.evidence if record["claim"] == label]


def _quarto(command: str, site: Path, out: Path) -> None:
    """Render the staged folder with Quarto, then exchange the book; a failure leaves the previous book."""
    done = subprocess.run([command, "render", str(site), "--no-execute"], capture_output=True, text=True)
    told = done.stdout + done.stderr
    if done.returncode:
        raise BookError(f"quarto render failed:\n{told[-3000:]}")
    for sign in ("Unable to resolve crossref", "quarto-unresolved-ref", "not found"):
        lines = [line for line in told.splitlines() if sign in line]
        if lines:
            raise BookError(f"quarto: {lines[0].strip()}; mend the reference")
    exchange(site / "_book", out)


def exchange(fresh: Path, out: Path) -> None:
    """Put the folder `fresh` in the place of `out`, by renaming."""
    old = out.with_name(out.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if out.exists():
        os.replace(out, old)
    os.replace(fresh, out)
    shutil.rmtree(old, ignore_errors=True)

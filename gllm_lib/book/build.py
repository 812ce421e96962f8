"""From notebooks to pages: execute what is stale, stage, render, and only then exchange the book."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gllm_lib import checks
from gllm_lib.book import lint
from gllm_lib.book.html.render import render
from gllm_lib.book.kernel import in_threads
from gllm_lib.book.print import epub, pdf
from gllm_lib.book.project import BookError, Project, read_notebook, read_notebooks, read_registry, stated
from gllm_lib.book.quarto import render_with_quarto
from gllm_lib.book.run import LIBRARY, current_runs, execute, require_imports, run_chapters
from gllm_lib.book.stage import stage
from gllm_lib.checks import GllmError
from gllm_lib.proofs.claims import Claim

MADE_FROM = ".made-from"  # in a folder of pages: what they were made from, so that an unchanged book is left alone


def build_book(
    project: Project,
    profile: str = "default",
    chapters: Sequence[str] = (),
    *,
    to: str = "html",
    quarto: bool = True,
    quiet: bool = False,
) -> Path:
    """Execute, stage and render the book and return the folder of pages, or the PDF or EPUB.

    All chapters at default size go to `_book/`; a part of them, or another size, goes to `build/preview/`, in which the
    other chapters show their last current run. Raises BookError; the book built before then stays as it was.
    """
    whole = not chapters and profile == "default"
    out = _place(project, to, whole)
    with _unchanged(project, out):
        notebooks = read_notebooks(project)
        registry = read_registry(project, notebooks)
        problems = lint.blocking(project, notebooks, registry)
        if problems:
            raise BookError("\n".join(problems))
        wanted = [project.find(name) for name in chapters] or list(project.notebooks)
    with _unchanged(project, out), _alone(project):
        runs = run_chapters(project, wanted, profile, registry, notebooks=notebooks, quiet=quiet)
        if not whole:
            runs |= current_runs(project, profile, {name: notebooks[name] for name in notebooks if name not in runs})
        site = stage(project, runs, registry, profile, notebooks)
        if to != "html":
            _print(to, site, out, quiet)
        elif quarto and (command := shutil.which("quarto")):
            render_with_quarto(command, site, out)
        elif (made_from := _made_from(site)) != _noted(project, out):
            render(site, out)
            checks.write_text(out / MADE_FROM, made_from)
    return out


def _print(to: str, site: Path, out: Path, quiet: bool) -> None:
    """Make the PDF or EPUB, and say so: that takes minutes, after chapters that may all be executed already."""
    render, told = {"pdf": (pdf.render_pdf, "a minute or two"), "epub": (epub.render_epub, "half a minute")}[to]
    clock = time.perf_counter()
    if not quiet:
        print(f"making the {to.upper()}, which takes {told}", file=sys.stderr, flush=True)
    render(site, out)
    if not quiet:
        print(f"{out.name}: {time.perf_counter() - clock:.0f} s", file=sys.stderr)


def _made_from(site: Path) -> str:
    """Return a digest of all that the built-in renderer makes pages from: the staged folder, its code, pandoc."""
    files = [(path.relative_to(base), path) for base in (site, LIBRARY) for path in base.rglob("*")]
    named = [
        f"{name} {checks.sha256(path)}\n" for name, path in sorted(files) if path.is_file() and path.suffix != ".pyc"
    ]
    return checks.digest(line.encode() for line in [*named, version("pypandoc_binary")])


def _noted(project: Project, out: Path) -> str:
    """Return the digest that a folder of pages bears, or nothing if it has none, lacks a page or holds Quarto's."""
    whole = not (out / "site_libs").exists() and all(
        (out / page).with_suffix(".html").is_file() for page in project.pages
    )
    return (out / MADE_FROM).read_text(encoding="utf-8") if whole and (out / MADE_FROM).is_file() else ""


def not_executed(project: Project) -> list[str]:
    """Return the chapters that the last build shows without outputs, for want of a current run."""
    offered = project.build("site", "chapters", "downloads")
    return [name for name in project.notebooks if not (offered / f"{name}-executed.ipynb").is_file()]


def _place(project: Project, to: str, whole: bool) -> Path:
    """Return where the book of a kind goes; raises BookError for another kind, or one whose package is missing.

    A PDF and an EPUB stay outside `_book/`, which every build exchanges whole: there they would be lost, or older than
    the pages beside them.
    """
    if to == "html":
        return project.root / "_book" if whole else project.build("preview")
    if to not in ("pdf", "epub"):
        raise BookError(f"the book is rendered to html, pdf or epub, not to {to!r}")
    if to == "pdf":
        pdf.require_typst()
    title = re.sub(r"\W+", "-", str(project.config["book"]["title"]).lower()).strip("-")
    return project.build("print") / f"{title}{'' if whole else '-preview'}.{to}"


@contextmanager
def _alone(project: Project) -> Iterator[None]:
    """Wait until no other build of this book runs: two would lay out the same folder."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system: it is up to the user
        yield
        return
    project.build().mkdir(exist_ok=True)
    with open(project.build("lock"), "w") as handle:  # the system lets go of it however this process ends
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("gllm: another build of this book is running; waiting for it", file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def _unchanged(project: Project, out: Path) -> Iterator[None]:
    """Say of a build that fails that the pages built before are still there, if they are."""
    try:
        yield
    except GllmError as error:
        built = out.relative_to(project.root)
        if not (out.is_file() or (out / "index.html").is_file()):
            raise
        raise BookError(f"{error}\n\n{built}{'/' * out.is_dir()}, built before, is unchanged") from error


def verify(project: Project, label: str, profile: str = "default") -> tuple[Claim, list[dict[str, Any]]]:
    """Execute a claim's chapter up to that claim's last check and return the claim and its evidence records."""
    registry = read_registry(project)
    claim = stated(registry, label)
    declared = registry.evidence_of[label]
    if not declared:
        raise BookError(f"{label} declares no evidence: there is nothing to verify")
    chapter = claim.chapter
    notebook = read_notebook(project.notebook_path(chapter))
    last = max(item.cell for item in declared)
    require_imports(project, {chapter: notebook})
    (run,) = in_threads(lambda name: execute(project, name, notebook, profile, registry, until=last), [chapter], 1)
    return claim, [record for record in run.evidence if record["claim"] == label]

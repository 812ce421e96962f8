"""Begin a chapter: a notebook with a claim, its evidence and mutants, a figure and a demo, passing as it stands."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import yaml
from nbformat import v4

from gllm_lib import checks
from gllm_lib.book import experiment
from gllm_lib.book.lint import labels
from gllm_lib.book.project import KERNELSPEC, BookError, Project, canonical, read_notebooks, read_registry
from gllm_lib.proofs import sources

RAW = """---
sizes:
  smoke: {cases: 20}
  full: {cases: 2000}
---"""

OPENING = """# {title} {{#sec-{slug}}}

The question of this chapter, in three lines:
what is claimed, of what, and why a reader should care.
What would change if the answer were no.

**What you need.** The definitions and chapters that come before."""

EXTEND = """## Extend this chapter

`gllm new experiment {number:02d} "name"` adds one more block like the one above. The next cell runs as it stands."""

CLOSING = """## What was checked

@prp-{slug}-first, for all shares and multipliers by algebra and on drawn ones by the library."""


def new_chapter(project: Project, title: str, number: int | None = None) -> Path:
    """Write a chapter notebook, list it in `_quarto.yml` in its place, and return its path.

    Its number is by default the lowest that no chapter has and that `sources.toml` plans for none. Raises BookError for
    an empty title, a number outside 1 to 99, a number or name that is taken, or a title whose labels the book has.
    """
    title = " ".join(title.split())
    slug = experiment.slug(title)
    taken = {int(name.split("-")[0]): name for name in project.notebooks if name.split("-")[0].isdigit()}
    if number is None:
        number = min(set(range(1, 100)) - set(taken) - set(planned(project)), default=100)
    if not 1 <= number <= 99:
        raise BookError(f"chapter number {number}: give one from 1 to 99")
    name = f"{number:02d}-{slug}"
    path = project.notebook_path(name)
    if number in taken or path.exists():
        raise BookError(f"chapter {number} is taken by {taken.get(number, name)}; give another with --number")
    notebooks = read_notebooks(project)
    known = labels(project, notebooks, read_registry(project, notebooks))
    if twice := ({f"sec-{slug}"} | experiment.labels_of(f"{slug}-first")) & known:
        raise BookError(f"the book has the label {min(twice)} already; give the chapter another title")
    listed = _listed(project, f"chapters/{name}.ipynb", number)
    checks.write_text(path, _notebook(title, slug, number))
    try:
        checks.write_text(project.root / "_quarto.yml", listed)
    except BaseException:
        path.unlink()  # a notebook that is not listed would hold its number
        raise
    return path


def planned(project: Project) -> dict[int, str]:
    """Return the numbers that `sources.toml` plans, each with the title of its chapter; none without that file."""
    path = project.root / "chapters" / "sources.toml"
    return {int(two): title for two, title in sources.load(path).chapters.items()} if path.exists() else {}


def _notebook(title: str, slug: str, number: int) -> str:
    """Return the chapter: its opening, the block that every experiment begins with, and its end."""
    fill = {"title": title, "slug": slug, "number": number}
    claim, imports, *rest, demo = experiment.block("The first claim", f"{slug}-first", v4.new_notebook(), ["cases"])
    cells = [
        v4.new_raw_cell(RAW),
        v4.new_markdown_cell(OPENING.format(**fill)),
        imports,
        v4.new_code_cell("cases = 200  # examples per property", metadata={"tags": ["parameters"]}),
        claim,
        *rest,
        v4.new_markdown_cell(EXTEND.format(**fill)),
        demo,
        v4.new_markdown_cell(CLOSING.format(**fill)),
    ]
    for index, cell in enumerate(cells):
        cell.id = hashlib.sha256(f"{slug} {index}".encode()).hexdigest()[:8]
    return canonical(v4.new_notebook(cells=cells, metadata={"kernelspec": KERNELSPEC}))


def _listed(project: Project, page: str, number: int) -> str:
    """Return the text of `_quarto.yml` with the page before the first chapter of a higher number."""
    lines = (project.root / "_quarto.yml").read_text(encoding="utf-8").splitlines()
    chapters = [i for i, line in enumerate(lines) if re.search(r"- chapters/\d\d\w?-\S+\.ipynb\s*$", line)]
    if not chapters:
        raise BookError("_quarto.yml lists no numbered chapter to put the new one beside; add its line by hand")
    later = [i for i in chapters if int(re.search(r"chapters/(\d\d)", lines[i])[1]) > number]  # type: ignore[index]
    neighbour = later[0] if later else chapters[-1]
    indent = re.match(r"\s*", lines[neighbour])[0]  # type: ignore[index]
    lines.insert(neighbour if later else neighbour + 1, f"{indent}- {page}")
    text = "\n".join(lines) + "\n"
    yaml.safe_load(text)
    return text

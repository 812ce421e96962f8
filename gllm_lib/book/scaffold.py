"""Begin a chapter: a notebook with a claim, its evidence and mutants, a figure and a demo, passing as it stands."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import yaml
from nbformat import v4

from gllm_lib import checks
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

CLAIM = """## The first claim

Say it, write it, run it, show it.

::: {{#prp-{slug}-shift .claim source="new"}}
## Shifts cancel
For real numbers $x$ and $c$, $(x + c)^2 - (x - c)^2 = 4 c x$.
:::

::: {{.proof}}
Expand both squares; the terms $x^2$ and $c^2$ cancel and the mixed terms add up.
:::"""

EXACT = """@evidence(
    "prp-{slug}-shift",
    kind="exact",
    scope="all",
    mutants={{"near: factor 4.1": {{"factor": sympy.Rational(41, 10)}}}},
)
def the_squares_differ_by_the_mixed_term(factor=4):
    \"\"\"Both sides are equal for all x and c.\"\"\"
    x, c = sympy.symbols("x c", real=True)
    return identity((x + c) ** 2 - (x - c) ** 2, factor * c * x)"""

PROPERTY = """numbers = st.integers(-1000, 1000)


@evidence(
    "prp-{slug}-shift",
    kind="property",
    given={{"x": numbers, "c": numbers}},
    cases=cases,
    mutants={{"near: one square off by one": {{"offset": 1}}}},
)
def integers_agree(x, c, offset=0):
    \"\"\"The same on integers, where nothing is rounded.\"\"\"
    assert (x + c) ** 2 - (x - c) ** 2 + offset == 4 * c * x"""

FIGURE = """#| label: fig-{slug}
#| fig-cap: "The difference of the two squares, against x, for two shifts."
#| fig-alt: "Two straight lines through the origin; the line for the larger shift is steeper."
fig, ax = figure(width=6, height=3)
x = np.linspace(-1, 1, 50)
for c in (0.5, 1.0):
    ax.plot(x, (x + c) ** 2 - (x - c) ** 2, label=f"c = {{c}}")
ax.set_xlabel("x")
ax.legend()"""

PROSE = """@fig-{slug} shows the claim for two shifts; the steepest slope drawn is `{{python}} steepest`.

## Extend this chapter

The next cell runs as it stands: change its shift, or add a claim above it."""

LONGEST_SLUG = 60  # characters; a line of code then has room for a label

CLOSING = """## What was checked

@prp-{slug}-shift, for all real numbers by algebra and on integers by sampling."""


def new_chapter(project: Project, title: str, number: int | None = None) -> Path:
    """Write a chapter notebook, list it in `_quarto.yml` in its place, and return its path.

    Its number is by default the lowest that no chapter has and that `sources.toml` plans for none. Raises BookError for
    an empty title, a number outside 1 to 99, a number or name that is taken, or a title whose labels the book has.
    """
    title = " ".join(title.split())
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    if not slug:
        raise BookError(f"the title {title!r} has no letter or digit to make a file name of")
    if len(slug) > LONGEST_SLUG:
        slug = slug[: LONGEST_SLUG + 1].rpartition("-")[0] or slug[:LONGEST_SLUG]
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
    if twice := {f"sec-{slug}", f"prp-{slug}-shift", f"fig-{slug}"} & known:
        raise BookError(f"the book has the label {min(twice)} already; give the chapter another title")
    listed = _listed(project, f"chapters/{name}.ipynb", number)
    checks.write_text(path, _notebook(title, slug))
    checks.write_text(project.root / "_quarto.yml", listed)
    return path


def planned(project: Project) -> dict[int, str]:
    """Return the numbers that `sources.toml` plans, each with the title of its chapter; none without that file."""
    path = project.root / "chapters" / "sources.toml"
    return {int(two): title for two, title in sources.load(path).chapters.items()} if path.exists() else {}


def _notebook(title: str, slug: str) -> str:
    fill = {"title": title, "slug": slug}
    imports = (
        "import numpy as np\nimport sympy\nfrom hypothesis import strategies as st\n\n"
        "from gllm_lib.book.figures import figure\nfrom gllm_lib.proofs import evidence, identity"
    )
    cells = [
        v4.new_raw_cell(RAW),
        v4.new_markdown_cell(OPENING.format(**fill)),
        v4.new_code_cell(imports),
        v4.new_code_cell("cases = 200  # examples per property", metadata={"tags": ["parameters"]}),
        v4.new_markdown_cell(CLAIM.format(**fill)),
        v4.new_code_cell(EXACT.format(**fill)),
        v4.new_code_cell(PROPERTY.format(**fill)),
        v4.new_code_cell(FIGURE.format(**fill)),
        v4.new_code_cell('steepest = f"{4 * 1.0:g}"'),
        v4.new_markdown_cell(PROSE.format(**fill)),
        v4.new_code_cell(
            "shift = 0.25\nprint([round((x + shift) ** 2 - (x - shift) ** 2, 6) for x in (0.0, 0.5, 1.0)])"
        ),
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

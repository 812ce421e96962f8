"""Begin an experiment in a chapter: a block of cells with a claim, its evidence, a figure and a demo, passing as it
stands. A new chapter opens with the same block.

In the templates §word stands for a word of this block or of the chapter: §sympy for the name under which the chapter
imports sympy, §price for `price`, or `price_2` where the chapter has a `price`.
"""

from __future__ import annotations

import ast
import re
import string
import symtable
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

from nbformat import v4

from gllm_lib import checks
from gllm_lib.book.lint import MOST_CELLS, labels
from gllm_lib.book.project import (
    BookError,
    Notebook,
    Project,
    assigned,
    canonical,
    parameters,
    read_notebooks,
    read_registry,
)

LONGEST_SLUG = 50  # characters; a line of code then has room for a label
LAST = re.compile(r"#+ What was checked\b")  # an experiment stands before the cell that begins so

# (module, name) of what the block calls, the name it goes by, and other modules that have it
IMPORTS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("numpy", "", "np", ()),
    ("sympy", "", "sympy", ()),
    ("hypothesis", "strategies", "st", ()),
    ("gllm_lib.book.figures", "figure", "figure", ()),
    ("gllm_lib.grading", "gain", "gain", ("gllm_lib.grading.profiles",)),
    ("gllm_lib.proofs", "evidence", "evidence", ("gllm_lib.proofs.evidence",)),
    ("gllm_lib.proofs", "identity", "identity", ("gllm_lib.proofs.exact",)),
)
NAMES = (
    "price",
    "multiplied_out",
    "the_library_agrees",
    "multipliers",
    "portion",
    "gains",
    "doubling",
    "my_target",
    "my_data",
    "trial",
)

CLAIM = r"""## §title {#sec-§slug}

What do grades cost where target and data have the same profile, so that there is nothing to gain?
And does it matter whether a multiplier is too large or too small?

<!-- An example to replace: the question above, then your claim with every hypothesis, then why it holds.
`uses="..."` after `source` names the claims it rests on. -->

::: {#prp-§slug .claim source="new"}
## The price of grades at equal profiles
Let $0<a<1$, let target and data both have the profile $(a,1-a)$, and let $g>0$ multiply the first of the two
coordinates. Then the gain is
$$\Big(\frac a{g^2}+1-a\Big)\big(a\,g^2+1-a\big)=1+a(1-a)\Big(g-\frac1g\Big)^2 .$$
:::

::: {.proof}
The product is $a^2+(1-a)^2+a(1-a)(g^2+g^{-2})$, and $a^2+(1-a)^2=1-2a(1-a)$.
:::"""

EXACT = '''# What a claim is about is an argument of its check; a mutant passes another one.
def §price(g, a):
    """Return what a multiplier costs, by the claim."""
    return a * (1 - a) * (g - 1 / g) ** 2


@evidence(
    "prp-§slug",
    kind="exact",
    scope="all",
    mutants={"near: 5% dearer": {"cost": lambda g, a: §sympy.Rational(21, 20) * §price(g, a)}},
)
def §multiplied_out(cost=§price):
    """Both sides are equal for free symbols, hence for all multipliers and shares."""
    g, a = §sympy.symbols("g a", positive=True)
    return §identity((a / g**2 + 1 - a) * (a * g**2 + 1 - a), 1 + cost(g, a))'''

PROPERTY = '''# Evidence of a second kind takes another route. A mutant may drop a hypothesis.
@evidence(
    "prp-§slug",
    kind="property",
    given={"g": §st.floats(0.25, 4), "a": §st.floats(0.01, 0.99)},§cases
    mutants={
        "near: 5% dearer": {"cost": lambda g, a: 1.05 * §price(g, a)},
        "near: the profiles differ by 5%": {"tau": lambda a: 0.95 * a},
    },
)
def §the_library_agrees(g, a, cost=§price, tau=lambda a: a):
    """The gain of the library, on drawn multipliers and shares."""
    found = §gain([g, 1], [a, 1 - a], [tau(a), 1 - tau(a)])
    # About forty roundings, each of at most half an eps of the result.
    assert abs(found - 1 - cost(g, a)) <= 20 * §np.finfo(float).eps * found'''

FIGURE = """#| label: fig-§slug
#| fig-cap: "What a multiplier of one coordinate costs at equal profiles, for three shares of that coordinate."
#| fig-alt:
#|   "Three curves against the multiplier, all at 1 where it is 1 and rising to both sides; the largest share most."
with §figure(height=3) as (fig, ax):
    §multipliers = §np.linspace(0.5, 2, 61)
    for §portion in (0.05, 0.2, 0.5):
        §gains = 1 + §price(§multipliers, §portion)
        ax.plot(§multipliers, §gains, label=f"a = {§portion}")
    ax.set(xlabel="multiplier g", ylabel="gain Λ")
    ax.legend()"""

VALUE = """# A number in prose is a string that is made here and named there.
§doubling = f"{§gain([2, 1], [0.5, 0.5], [0.5, 0.5]) - 1:.0%}\""""

PROSE = """@fig-§slug shows @prp-§slug. Doubling one of two equal coordinates costs `{python} §doubling`, and so does
halving it."""

DEMO = """# Change the two profiles and run this: where they differ, some multiplier pays.
§my_target, §my_data = [0.6, 0.4], [0.5, 0.5]
for §trial in (0.8, 1.0, 1.1, 1.25):
    print(f"multiplier {§trial:4.2f}  gain {§gain([§trial, 1], §my_target, §my_data):.4f}")"""


class _Text(string.Template):
    delimiter = "§"


def slug(title: str) -> str:
    """Return a title as a part of labels and file names; raises BookError if it has no letter or digit."""
    plain = unicodedata.normalize("NFKD", re.sub(r"['’‘`]", "", title)).encode("ascii", "ignore").decode()
    words = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
    if not words:
        raise BookError(f"{title!r} has no letter or digit to make a label of; name it in the Latin alphabet")
    if len(words) > LONGEST_SLUG:
        words = words[: LONGEST_SLUG + 1].rpartition("-")[0] or words[:LONGEST_SLUG]
    return words


def labels_of(label: str) -> set[str]:
    """Return the labels of the block whose claim is `prp-label`."""
    return {f"{prefix}-{label}" for prefix in ("sec", "prp", "fig")}


def block(title: str, label: str, notebook: Notebook, sizes: Collection[str] = ()) -> list[Any]:
    """Return the cells of an experiment that fits behind the cells of `notebook`, the demo last.

    `sizes` are the names that the chapter's parameters cell assigns; `cases` among them is the number of cases.
    """
    imported, stored = _names(notebook)
    bound, statements = _imports(imported, stored)
    taken = {*imported.values(), *bound.values(), *stored}
    words = bound | {name: _free(name, taken) for name in NAMES}
    words |= {"title": title, "slug": label, "cases": "\n    cases=cases," if "cases" in sizes else ""}

    def filled(text: str) -> str:
        return _Text(text).substitute(words)

    code = [filled(text) for text in (EXACT, PROPERTY, FIGURE, VALUE)]
    cells = [
        v4.new_markdown_cell(filled(CLAIM)),
        *(v4.new_code_cell(text) for text in ([statements] if statements else []) + code),
        v4.new_markdown_cell(filled(PROSE)),
        v4.new_code_cell(filled(DEMO)),
    ]
    for number, cell in enumerate(cells, 1):
        cell.id = f"exp-{label}-{number}"
    return cells


def new_experiment(project: Project, chapter: str, title: str) -> tuple[str, list[str]]:
    """Write an experiment into a chapter, before "What was checked", and return the chapter and the ids of the cells.

    Raises BookError for an unknown chapter, an empty title, an experiment or label that is there already, and a
    chapter that would have too many cells; the notebook is then as it was.
    """
    title = " ".join(title.split())
    label, name = slug(title), project.find(chapter)
    notebooks = read_notebooks(project)
    notebook = notebooks[name]
    if there := [cell.id for cell in notebook.cells if re.fullmatch(rf"exp-{label}-\d+", cell.id)]:
        raise BookError(f"{name} has an experiment of that name, cells {there[0]} to {there[-1]}; take another name")
    if twice := labels_of(label) & labels(project, notebooks, read_registry(project, notebooks)):
        raise BookError(f"the book has the label {min(twice)} already; give the experiment another name")
    ids = insert(name, notebook, title, label)
    if (many := len(notebook.cells)) > MOST_CELLS:
        raise BookError(
            f"{name} would have {many} cells and {MOST_CELLS} are the most; 'gllm new chapter' begins a chapter for it"
        )
    checks.write_text(project.notebook_path(name), canonical(notebook))
    return name, ids


def insert(name: str, notebook: Notebook, title: str, label: str) -> list[str]:
    """Insert an experiment into a chapter's notebook before "What was checked", else at its end; return the ids."""
    where, _ = parameters(name, notebook, "default")
    cells = block(title, label, notebook, assigned(notebook.cells[where].source))
    ends = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "markdown" and LAST.match(cell.source)]
    at = ends[-1] if ends else len(notebook.cells)
    notebook.cells[at:at] = cells
    return [cell.id for cell in cells]


def _free(name: str, taken: Collection[str]) -> str:
    """Return the name, or else the first of `name_2`, `name_3` ... that is not taken."""
    number = 2
    found = name
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def _imports(imported: Mapping[tuple[str, str], str], stored: Collection[str]) -> tuple[dict[str, str], str]:
    """Return the names under which the chapter has what the block calls, and the text of a cell that imports the rest.

    A name that the chapter imports and gives to something else as well does not count.
    """
    taken = {*imported.values(), *stored}
    bound: dict[str, str] = {}
    lines: dict[tuple[bool, bool, str], list[str]] = {}  # ours or another's, "from" or not, module: what of it
    for module, name, usual, elsewhere in IMPORTS:
        had = [imported[m, name] for m in (module, *elsewhere) if (m, name) in imported]
        if had and had[0] not in stored:
            bound[usual] = had[0]
            continue
        bound[usual], what = _free(usual, taken), name or module
        written = what if what == bound[usual] else f"{what} as {bound[usual]}"
        lines.setdefault((module.startswith("gllm_lib"), bool(name), module), []).append(written)
    blocks: dict[bool, list[str]] = {}
    for (ours, of, module), names in sorted(lines.items()):
        line = f"from {module} import {', '.join(sorted(names))}" if of else f"import {names[0]}"
        blocks.setdefault(ours, []).append(line)
    return bound, "\n\n".join("\n".join(each) for each in blocks.values())


def _names(notebook: Notebook) -> tuple[dict[tuple[str, str], str], set[str]]:
    """Return what a chapter's cells bind at their top level: by import, by module and name, and in other ways."""
    imported: dict[tuple[str, str], str] = {}
    stored: set[str] = set()
    for source in (cell.source for cell in notebook.cells if cell.cell_type == "code"):
        stored |= {s.get_name() for s in symtable.symtable(source, "cell", "exec").get_symbols() if s.is_assigned()}
        for node in ast.parse(source).body:
            if isinstance(node, ast.Import):
                imported |= {(alias.name, ""): alias.asname or alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported |= {(node.module or "", alias.name): alias.asname or alias.name for alias in node.names}
    return imported, stored

"""A small staged book for the renderer's tests: two chapters, an index, an appendix, every kind of block and output."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import sympy

from gllm_lib.book.figures import figure, svg_text

FIRST = "chapters/04-sample-complexity.html"  # its first chapter

QUARTO = """
project: {type: book, output-dir: _book}
book:
  title: What a Training Run Sees
  subtitle: An executable monograph on grades, optimizers and comparisons
  author: A. Author
  chapters:
    - index.qmd
    - part: Grades
      chapters: [chapters/04-sample-complexity.ipynb, chapters/07-choosing-grades.ipynb]
  appendices: [appendices/claims.qmd, appendices/reproducibility.qmd]
bibliography: references.bib
"""

INDEX = """# What a Training Run Sees {.unnumbered}

What does a training run see of the coordinates we write it in? Each numbered statement is checked by code that runs
in its chapter. Begin with @sec-sample-complexity, or go to @prp-fourth-root.

## How to read {#how}

Claims carry a status. The [claims table](appendices/claims.qmd) lists them all.
"""

BIBLIOGRAPHY = """@article{bartlett2002rademacher,
  author = {Bartlett, Peter L. and Mendelson, Shahar},
  title = {Rademacher and {Gaussian} Complexities: Risk Bounds and Structural Results},
  journal = {Journal of Machine Learning Research}, volume = {3}, pages = {463--482}, year = {2002}
}
"""

CLAIMS = """# Claims

Every claim of the book with its status.

| Claim | Source | Status |
|:------|:-------|:-------|
| @prp-fourth-root | GLLM Prop. 7(iii) | proved |
| @prp-printed | GLLM Prop. 6 | refuted |
| [-@sec-choosing] [Choosing grades](#claims-choosing) | | |

| Tag | What it stands for |
|:----|:----|
| GLLM | the first of the sources, whose numbered statements about grades and gains the first part of the book follows |

## [-@sec-choosing] Choosing grades {#claims-choosing .unnumbered}

Chapters [-@sec-sample-complexity], [-@sec-choosing].

## By source {#sec-by-source}

<table><thead><tr><th>Item</th><th>Claim</th></tr></thead><tbody>
<tr><td>Prop. 7</td><td><a href="../chapters/04-sample-complexity.html#prp-fourth-root">here</a></td></tr>
</tbody></table>
"""

REPRODUCIBILITY = """---
title: Reproducibility
---

Run `make book`. See @sec-by-source.
"""

OPENING = """# Sample complexity {#sec-sample-complexity}

How many examples does a graded model need? A grade that fits the target needs fewer; a grade that fits something
else needs more. How much more, and who can tell beforehand? See [@bartlett2002rademacher].

## What you need {#sec-need}

Profiles are positive vectors that sum to one. We write $\\alpha$ for the profile of the data and $\\tau$ for the
profile of the target; their affinity is $\\mathrm{BC}(\\alpha, \\tau) = \\sum_i \\sqrt{\\alpha_i \\tau_i}$.

::: {#def-gain .claim source="GLLM Def. 2"}
## Gain
For profiles $\\alpha, \\tau$ and grades $g \\in \\mathbb{R}_{>0}^d$ the *gain* is
$$ \\Lambda(g) = \\Bigl(\\sum_{i=1}^{d} g_i^2\\,\\alpha_i\\Bigr)
\\Bigl(\\sum_{i=1}^{d} \\frac{\\tau_i}{g_i^2}\\Bigr). $$ {#eq-gain}
:::

::: {.status .defined claim="def-gain"}
**defined**: a definition needs no evidence; 1 check run, 1 mutant rejected.
:::
"""

STATEMENT = """## The fourth-root law {#sec-fourth-root}

::: {#prp-fourth-root .claim source="GLLM Prop. 7(iii)" uses="def-gain"}
## Fourth-root law
Let $\\alpha, \\tau$ be profiles. For every $g > 0$
$$ \\Lambda(g) \\;\\ge\\; \\mathrm{BC}(\\alpha,\\tau)^2, $$
with equality exactly for $g_i = c\\,(\\tau_i/\\alpha_i)^{1/4}$, $c > 0$.
:::

::: {.status .proved claim="prp-fourth-root"}
**proved**: exact over the whole domain, here and above; 3 checks run, 7 mutants rejected.
:::

::: {.proof}
Put $u_i = 2 \\log g_i$. Then @eq-gain reads

$$
\\begin{aligned}
\\Lambda(u) &= \\sum_{i} e^{u_i} \\alpha_i \\cdot \\sum_{j} e^{-u_j} \\tau_j \\\\
            &= \\sum_{i,j} \\alpha_i \\tau_j\\, e^{u_i - u_j}
  \\;\\ge\\; \\Bigl(\\sum_i \\sqrt{\\alpha_i \\tau_i}\\Bigr)^{2}
\\end{aligned}
$$ {#eq-expanded}

by the Cauchy-Schwarz inequality, with equality when $e^{u_i}\\alpha_i \\propto e^{-u_i}\\tau_i$ for all $i$.
:::

::: {#prp-printed .claim .refuted source="GLLM Prop. 6"}
## As printed
Every admissible grade lies within the ball $\\lVert g - 1 \\rVert_2 \\le 1$.
:::

::: {.status .refuted claim="prp-printed"}
**refuted**: counterexample; 1 check run, 1 mutant rejected.
:::

::: {#prp-corrected .claim source="GLLM Prop. 6" corrects="prp-printed" uses="def-gain prp-fourth-root"}
## Admissible cone
Every admissible grade lies in the cone
$$ \\begin{pmatrix} \\cosh t & \\sinh t \\\\ \\sinh t & \\cosh t \\end{pmatrix}
\\begin{pmatrix} x \\\\ y \\end{pmatrix}. $$
:::

::: {.status .supported claim="prp-corrected"}
**supported (property)**: @prp-fourth-root, on which it rests; 2 checks run, 2 mutants rejected.
:::

::: {.callout-note}
## What a grade is
A grade is a positive number per coordinate: a diagonal gauge. See @fig-gain and @tbl-grades, and for the choice
@sec-choosing.
:::

::: {.callout-tip collapse="true" title="Why the fourth root?"}
Two square roots, one for each sum.
:::
"""

SECOND = """# Choosing grades {#sec-choosing}

Which grade, given an uncertain target? We use @prp-fourth-root of @sec-fourth-root, and [@prp-corrected; @eq-gain].
In running text a long formula may break, as
$\\log \\Lambda(g) = \\log \\sum_i g_i^2 \\alpha_i + \\log \\sum_i g_i^{-2} \\tau_i
\\le \\max_i u_i - \\min_i u_i$ does; `gllm_lib.grading.selection.select_with_a_very_long_name` is code, and
`<a href="nowhere" id="refs">` is too.

(a) A list with letters.
(b) Its second item.

So much for lists.

\\(b) A paragraph with a letter,
$$ x = y. $$

\\(iv) and one with a number. (v) It goes on.

::: {#cnj-bounded .claim .assumption}
## Assumption (bounded grades)
Every grade is below $c$, and
$(\\widehat{a}_1 b_1 c_1 d_1 e_1 f_1 h_1 k_1 l_1 m_1 n_1 p_1 q_1 r_1 s_1 t_1 v_1 w_1 x_1 y_1)$
does not break. For every $n$
there is an $m$ with $m \\ge n$.
:::

::: {#rem-clip .claim}
Clipping is a projection.
:::

![A drawn figure, *from a file*.](../figures/gain.svg){#fig-drawn fig-alt="Two curves."}
"""

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="

PHOTOGRAPH = """#| label: fig-pixel
#| fig-cap: A bitmap.
#| fig-alt: One dark pixel.
show(pixel)"""

EVIDENCE = (
    '<div class="evidence" data-claim="prp-fourth-root" data-kind="property"><details><summary>property: 200 cases in '
    "0.4 s, 2 of 2 mutants rejected</summary><p>No grades beat the affinity.</p><ul><li><b>near: exponent 0.27</b>: "
    "ratio 1.0021 at alpha = [0.9, 0.1]</li></ul></details></div>"
)

CHECK = '''@evidence("prp-fourth-root", kind="property", given={"pair": profile_pairs()}, cases=cases,
          mutants={"near: exponent 0.27": {"grades": near_grades}, "inverted": {"grades": inverted_grades}})
def no_grades_beat_the_affinity(pair, grades=fourth_root_grades):
    """No grades beat the squared affinity."""
    alpha, tau = pair
    assert gain(grades(alpha, tau), alpha, tau) <= affinity(alpha, tau) ** 2 * (1 + 1e-12)'''

CODE = "[Code: property [`no_grades_beat_the_affinity`](#check-no_grades_beat_the_affinity){.check}]{.checks}\n"

FIGURE = """#| label: fig-gain
#| fig-cap: "Gain along a ray of grades, $\\\\Lambda(t)$, for three targets (see @prp-fourth-root)."
#| fig-alt: "Three convex curves over the exponent t; each has its minimum at one half."
with figure(height=3.2) as (fig, ax):
    for label, alpha, tau in pairs:
        ax.plot(t, [gain(step(alpha, tau, s), alpha, tau) for s in t], label=label)
    ax.set(xlabel="exponent t", ylabel="gain Λ")
    ax.legend()"""

TABLE = """#| label: tbl-grades
#| tbl-cap: "Grades of the smallest gain."
#| echo: false
#| output: asis
print(rows)"""


def plotted() -> str:
    """Return a figure as the kernel would show it."""
    t = np.linspace(-0.5, 1.5, 60)
    with figure(height=3.2) as (fig, ax):
        for k, label in enumerate(["mild", "steep", "very steep"]):
            ax.plot(t, 1 + (k + 1) * (t - 0.5) ** 2, label=label)
        ax.fill_between(t, 1, 1 + 0.2 * np.cos(t) ** 2, alpha=0.2)
        ax.set(xlabel="exponent t", ylabel="gain Λ")
        ax.legend()
    text = svg_text(fig)
    plt.close(fig)
    return text


def shown(data: dict[str, str]) -> Any:
    """Return a displayed output."""
    return nbformat.v4.new_output("display_data", data=data)


def printed(text: str) -> Any:
    """Return an output of `print`."""
    return nbformat.v4.new_output("stream", name="stdout", text=text)


def code(source: str, *outputs: Any, tags: tuple[str, ...] = (), name: str = "") -> Any:
    """Return an executed code cell."""
    cell = nbformat.v4.new_code_cell(source, execution_count=1, metadata={"tags": list(tags)} if tags else {})
    cell.outputs = list(outputs)
    cell.id = name or cell.id
    return cell


def text(source: str) -> Any:
    """Return a markdown cell."""
    return nbformat.v4.new_markdown_cell(source)


def write_notebook(path: Path, cells: list[Any]) -> None:
    """Write an executed notebook as the stage leaves it."""
    facts = {
        "seconds": 12.3,
        "machine": "x86_64, 2 cores",
        "python": "3.11.9",
        "finished": "2026-01-02",
        "profile": "default",
    }
    book = nbformat.v4.new_notebook(cells=cells, metadata={"gllm": facts, "language_info": {"name": "python"}})
    (path.parent / "downloads").mkdir(parents=True, exist_ok=True)
    for index, cell in enumerate(cells):
        cell["id"] = cell["id"] if cell["id"].startswith("check-") else f"cell-{index}"
    nbformat.write(book, path)
    shutil.copy(path, path.parent / "downloads" / f"{path.stem}-executed.ipynb")
    (path.parent / "downloads" / path.name).write_text("{}")


def sample_cells() -> list[Any]:
    """Return the cells of the first chapter."""
    x = sympy.Symbol("x")
    formula = f"$\\displaystyle {sympy.latex(sympy.Integral(sympy.exp(-(x**2)), (x, 0, sympy.oo)))}$"
    matrix = f"$\\displaystyle {sympy.latex(sympy.Matrix([[1, x], [x**2, sympy.sqrt(x) / 2]]))}$"
    wide = "\\bigl(" + " + ".join(f"x_{{{k}}}^2 y_{{{k}}}" for k in range(40)) + "\\bigr)"
    return [
        nbformat.v4.new_raw_cell("---\nsizes:\n  smoke: {cases: 25}\n---"),
        text(OPENING),
        code("import numpy as np\n\nfrom gllm_lib.grading import affinity, gain"),
        code("cases = 200\nseed = 4", tags=("parameters",)),
        code("# smoke size\ncases = 25", tags=("injected-parameters",)),
        text(STATEMENT.replace("7 mutants rejected.\n", "7 mutants rejected.\n\n" + CODE)),
        code(CHECK, shown({"text/html": EVIDENCE, "text/plain": "property"}), name="check-no_grades_beat_the_affinity"),
        code(FIGURE, shown({"image/svg+xml": plotted(), "text/plain": "<Figure>"})),
        code(TABLE, printed("| g | mild | steep |\n|:--|--:|--:|\n| $g_1$ | 1.00 | 1.00 |\n| $g_2$ | 1.41 | 2.83 |\n")),
        text("## Symbols and text {#sec-symbols}\n\nThe integral and the matrix come from sympy.\n\n### In the kernel"),
        code(
            "integral",
            nbformat.v4.new_output(
                "execute_result", data={"text/latex": formula, "text/plain": "..."}, execution_count=1
            ),
        ),
        code("matrix", shown({"text/latex": matrix, "text/plain": "Matrix"})),
        code("print(table)", printed("a line of output " * 12 + "\n")),
        text(f"A wide equation scrolls by itself, on a phone too.\n\n$${wide}$$ {{#eq-wide}}\n\nSee @eq-wide."),
        text("Printed as [0.459]{.printed}; a footnote.[^1]\n\n[^1]: With a reference to @def-gain."),
    ]


def write_site(site: Path) -> Path:
    """Write the whole sample book to `site` and return it."""
    write_notebook(site / "chapters/04-sample-complexity.ipynb", sample_cells())
    second = [
        text(SECOND),
        code("#| include: false\nsecret = 1"),
        code(PHOTOGRAPH, shown({"image/png": PIXEL, "text/plain": "<Figure>"})),
        code("1 + 1", nbformat.v4.new_output("execute_result", data={"text/plain": "2"}, execution_count=1)),
    ]
    write_notebook(site / "chapters/07-choosing-grades.ipynb", second)
    for name, content in {
        "_quarto.yml": QUARTO,
        "index.qmd": INDEX,
        "figures/gain.svg": plotted(),
        "references.bib": BIBLIOGRAPHY,
        "appendices/claims.qmd": CLAIMS,
        "appendices/reproducibility.qmd": REPRODUCIBILITY,
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(content)
    return site


SMALL_QUARTO = """
book:
  title: Small
  chapters: [index.qmd, chapters/04-sample-complexity.ipynb, chapters/07-choosing-grades.ipynb]
bibliography: references.bib
"""


def write_small_site(site: Path) -> Path:
    """Write a book of three short pages, to which a test adds what the renderer refuses."""
    write_notebook(
        site / "chapters/04-sample-complexity.ipynb", [text(OPENING), text(STATEMENT.split("::: {.proof}")[0])]
    )
    write_notebook(site / "chapters/07-choosing-grades.ipynb", [text("# Choosing grades {#sec-choosing}")])
    (site / "figures").mkdir()
    (site / "figures/gain.svg").write_text("<svg></svg>")
    (site / "_quarto.yml").write_text(SMALL_QUARTO)
    (site / "index.qmd").write_text("# Small\n")
    (site / "references.bib").write_text(BIBLIOGRAPHY)
    return site


def printable_site(site: Path) -> Path:
    """Write the sample book without its raw HTML, which no printed page can hold, and return it."""
    write_site(site)
    (site / "appendices/claims.qmd").write_text(CLAIMS[: CLAIMS.index("<table>")])
    return site

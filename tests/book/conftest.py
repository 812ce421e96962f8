"""A small book in a temporary folder: front page, one chapter, the three appendices, its own list of source items."""

import shutil
from pathlib import Path

import nbformat
import pytest

from gllm_lib.book.project import KERNELSPEC, Project, canonical, open_project
from gllm_lib.book.scaffold import new_chapter

QUARTO = """project:
  type: book
  output-dir: _book
book:
  title: Small
  chapters:
    - index.qmd
    - chapters/01-first.ipynb
  appendices:
    - chapters/A-claims.qmd
bibliography: references.bib
"""

SOURCES = """[chapters]
01 = "first"

[items]
GLLM = [
  {id = "GLLM Def. 1", chapter = "01", title = "a definition"},
]
"""

CELLS = (
    ("raw", "---\nsizes:\n  smoke: {cases: 5}\n---"),
    ("markdown", "# First {#sec-first}\n\nA question in three lines."),
    ("code", "from hypothesis import strategies as st\n\nfrom gllm_lib.proofs import evidence"),
    ("parameters", "cases = 20"),
    ("markdown", '::: {#prp-small .claim source="GLLM Def. 1"}\n## Small\n$x \\le 4$ for $x$ in 0 to 4.\n:::'),
    (
        "code",
        '@evidence("prp-small", kind="property", given={"x": st.integers(0, 4)}, cases=cases,\n'
        '          mutants={"near: three": {"bound": 3}})\n'
        "def at_most_four(x, bound=4):\n"
        '    """No x exceeds four."""\n'
        "    assert x <= bound",
    ),
    ("code", 'told = f"{cases} draws"\nprint(told)'),
    ("markdown", "There were `{python} told`; see @prp-small."),
)


def write_notebook(path: Path, cells=CELLS) -> Path:
    """Write a canonical notebook from (kind, source) pairs."""
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": KERNELSPEC})
    for index, (kind, source) in enumerate(cells):
        make = {"raw": "raw", "markdown": "markdown"}.get(kind, "code")
        tags = {"tags": ["parameters"]} if kind == "parameters" else {}
        cell = getattr(nbformat.v4, f"new_{make}_cell")(source, id=f"cell-{index}", metadata=tags)
        notebook.cells.append(cell)
    path.write_text(canonical(notebook), encoding="utf-8")
    return path


def replaced(old: str, new: str, cells=CELLS):
    """Return the cells with one piece of text replaced; fails if it is not there."""
    changed = tuple((kind, source.replace(old, new)) for kind, source in cells)
    assert changed != tuple(cells), f"{old!r} does not occur"
    return changed


@pytest.fixture
def small(tmp_path: Path) -> Project:
    """The small book, not yet built."""
    (tmp_path / "chapters").mkdir()
    (tmp_path / "_quarto.yml").write_text(QUARTO)
    (tmp_path / "index.qmd").write_text("# Preface {.unnumbered}\n\nRead @sec-first.\n")
    (tmp_path / "references.bib").write_text("")
    (tmp_path / "requirements.lock").write_text("numpy==2\n")
    (tmp_path / "chapters" / "sources.toml").write_text(SOURCES)
    blocks = "".join(
        f'::: {{.generated what="{what}"}}\nFilled by make book.\n:::\n\n'
        for what in ("claims-by-chapter", "claims-by-source", "open-items", "errata", "runs", "versions")
    )
    (tmp_path / "chapters" / "A-claims.qmd").write_text(f"# Claims\n\n{blocks}")
    write_notebook(tmp_path / "chapters" / "01-first.ipynb")
    return open_project(tmp_path)


@pytest.fixture(scope="session")
def scaffolded(tmp_path_factory) -> Project:
    """A small book whose second chapter is what `gllm new chapter` writes; for reading only."""
    root = tmp_path_factory.mktemp("scaffolded")
    (root / "chapters").mkdir()
    (root / "_quarto.yml").write_text(QUARTO)
    for name in ("index.qmd", "chapters/A-claims.qmd"):
        (root / name).write_text("# Page\n\nText.\n")
    (root / "references.bib").write_text("")
    (root / "requirements.lock").write_text("")
    (root / "chapters" / "sources.toml").write_text(SOURCES)
    write_notebook(root / "chapters" / "01-first.ipynb")
    new_chapter(open_project(root), "Stable, at last!")
    return open_project(root)


@pytest.fixture
def copy_of(tmp_path: Path):
    """Return a function that copies a project folder into this test's own folder."""

    def copy(project: Project) -> Project:
        target = tmp_path / "copy"
        shutil.copytree(project.root, target)
        return open_project(target)

    return copy

"""Two books for the tests: a small one to execute, with its own source items, and the pages of the sample site."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from gllm_lib.book.html.render import render
from gllm_lib.book.project import KERNELSPEC, Project, canonical, open_project, read_registry
from gllm_lib.book.quarto import render_with_quarto
from gllm_lib.book.run import run_chapters
from gllm_lib.book.scaffold import new_chapter
from tests.book.sample_site import FIRST, write_site

ROOT = Path(__file__).resolve().parents[2]

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

TABLES = (
    "summary", "claims-by-status", "claims-by-chapter", "claims-by-source", "open-items", "errata", "runs", "versions",
    "studies",
)  # fmt: skip

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


def small_book(root: Path, cells=CELLS) -> Project:
    """Write the small book into a folder."""
    (root / "chapters").mkdir(parents=True)
    (root / "_quarto.yml").write_text(QUARTO)
    (root / "index.qmd").write_text("# Preface {.unnumbered}\n\nRead @sec-first.\n")
    (root / "references.bib").write_text("")
    (root / "requirements.lock").write_text("numpy==2\n")
    (root / "chapters" / "sources.toml").write_text(SOURCES)
    blocks = "".join(f'::: {{.generated what="{what}"}}\nwaiting\n:::\n\n' for what in TABLES)
    (root / "chapters" / "A-claims.qmd").write_text(f"# Claims\n\nBefore.\n\n{blocks}After.\n")
    write_notebook(root / "chapters" / "01-first.ipynb", cells)
    return open_project(root)


@pytest.fixture
def small(tmp_path: Path) -> Project:
    """The small book, not yet built."""
    return small_book(tmp_path / "small")


@pytest.fixture(scope="session")
def executed(tmp_path_factory) -> Project:
    """The small book with a current run at smoke and at default size; for copying only."""
    project = small_book(tmp_path_factory.mktemp("executed") / "small")
    for profile in ("smoke", "default"):
        run_chapters(project, project.notebooks, profile, read_registry(project), quiet=True)
    return project


@pytest.fixture
def built(executed: Project, tmp_path: Path) -> Project:
    """A copy of the executed book that this test may change."""
    shutil.copytree(executed.root, tmp_path / "built")
    return open_project(tmp_path / "built")


@pytest.fixture(scope="session")
def scaffolded(tmp_path_factory) -> Project:
    """A small book whose second chapter is what `gllm new chapter` writes; for reading only."""
    project = small_book(tmp_path_factory.mktemp("scaffolded") / "small")
    new_chapter(project, "Stable, at last!")
    return open_project(project.root)


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of the sample site; for reading only."""
    folder = tmp_path_factory.mktemp("pages")
    render(write_site(folder / "site"), folder / "_book")
    return folder / "_book"


GRAPH = """# Claim graph

- []{#on-prp-fourth-root}@prp-fourth-root
- []{#on-prp-corrected}@prp-corrected
- `forward(x_BTD: Float[Tensor, 'B T D'], scale: Tensor, positions: Int[Tensor, 'T'] | None = None) -> Tensor`
- <https://example.org/10.18653/v1/2020.emnlp-demos.6/and-more>
"""


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sample book with the frame of the real one, through the built-in renderer and through Quarto."""
    site = write_site(tmp_path_factory.mktemp("site"))
    config = yaml.safe_load((site / "_quarto.yml").read_text())
    frame = yaml.safe_load((ROOT / "_quarto.yml").read_text())
    kept = ("lang", "format", "link-citations", "reference-section-title")
    config |= {key: frame[key] for key in kept} | {"execute": {"enabled": False}}
    config["book"]["appendices"].append("chapters/C-claim-graph.qmd")
    (site / "_quarto.yml").write_text(yaml.safe_dump(config))
    (site / "chapters" / "C-claim-graph.qmd").write_text(GRAPH)
    shutil.copy(ROOT / "chapters" / "quarto.scss", site / "chapters")
    pages = tmp_path_factory.mktemp("pages")
    render(site, pages / "ours")
    render_with_quarto(shutil.which("quarto") or "", site, pages / "theirs")
    return pages / "ours", pages / "theirs"


@pytest.fixture
def opened(browser: Any, book: Path) -> Iterator[Any]:
    """A function that opens a page from disk, in one window per kind; no error and no request may have come."""
    windows: dict[str, Any] = {}
    troubles: list[str] = []

    def asked(request: Any) -> None:
        if not request.url.startswith(("file:", "data:")):
            troubles.append(request.url)

    def said(message: Any) -> None:
        if message.type == "error":
            troubles.append(message.text)

    def open_page(name: str = FIRST, width: int = 1280, **options: Any) -> Any:
        options = {"viewport": {"width": width, "height": 800}, "offline": True} | options
        if repr(options) not in windows:
            windows[repr(options)] = page = browser.new_context(**options).new_page()
            page.on("request", asked)
            page.on("console", said)
            page.on("pageerror", lambda error: troubles.append(str(error)))
        windows[repr(options)].goto(name if name.startswith("file:") else (book / name).as_uri())
        return windows[repr(options)]

    yield open_page
    for page in windows.values():
        page.context.close()
    assert troubles == []


@pytest.fixture
def copy_of(tmp_path: Path):
    """Return a function that copies a project folder into this test's own folder."""

    def copy(project: Project) -> Project:
        target = tmp_path / "copy"
        shutil.copytree(project.root, target)
        return open_project(target)

    return copy

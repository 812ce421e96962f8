"""The staged folder: outputs in place, inline values filled, a computed status under each claim, tables made."""

import json
from types import SimpleNamespace

import nbformat
import pytest
from nbclient import NotebookClient

from gllm_lib.book.markdown import symbols
from gllm_lib.book.project import BookError, read_notebook, read_registry
from gllm_lib.book.run import Run, current_runs, run_chapters
from gllm_lib.book.stage import check_anchors, links_to_checks, stage, status_block, with_status
from gllm_lib.proofs.claims import Declared, Registry, divs
from gllm_lib.proofs.status import Status
from tests.book.conftest import CELLS, replaced, small_book, write_notebook


def staged(project, runs=None, profile="smoke"):
    registry = read_registry(project)
    if runs is None:
        runs = run_chapters(project, project.notebooks, profile, registry, quiet=True)
    return stage(project, runs, registry, profile)


def sources_of(site):
    return ["".join(c["source"]) for c in json.loads((site / "chapters" / "01-first.ipynb").read_text())["cells"]]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    refuted = (
        "markdown",
        '::: {#rem-printed .claim .refuted source="GLLM Def. 1"}\n## Bound, as printed\nAll $x < 4$.\n:::\n\n'
        '::: {#rem-mended .claim source="new" corrects="rem-printed"}\n## Mended: $|x| < 5$\nAll $x < 5$.\n:::',
    )
    witness = (
        "code",
        '@evidence("rem-printed", kind="counterexample", mutants={"mended": {"below": 5}})\n'
        'def four_is_not(below=4):\n    """4 is not < <b>4</b>."""\n    assert not 4 < below',
    )
    return staged(small_book(tmp_path_factory.mktemp("staged") / "book", (*CELLS, refuted, witness)))


def test_inline_values_and_status_are_in_place(site):
    sources = sources_of(site)
    assert any("There were 5 draws; see @prp-small." in source for source in sources)
    claim = next(source for source in sources if "#prp-small" in source)
    assert '::: {.status .supported claim="prp-small"}\n**supported (property)**' in claim
    assert "1 check run, 1 mutant rejected" in claim


def test_a_claim_links_to_the_cell_of_each_of_its_checks(site):
    cells = json.loads((site / "chapters" / "01-first.ipynb").read_text())["cells"]
    claim = next("".join(cell["source"]) for cell in cells if "#prp-small" in "".join(cell["source"]))
    assert "[Code: property [`at_most_four`](#check-at_most_four){.check}]{.checks}" in claim
    (held,) = [cell for cell in cells if cell["id"] == "check-at_most_four"]
    assert "def at_most_four" in "".join(held["source"])


def test_cells_of_one_check_name_have_their_own_addresses():
    declared = [
        Declared("prp-a", "property", name, None, (), "01", cell) for name, cell in (("f", 3), ("g", 3), ("f", 7))
    ]
    assert check_anchors(declared) == {("01", 3): "check-f", ("01", 7): "check-f-7"}
    abroad = Declared("prp-a", "exact", "h", "all", (), "02", 1)
    registry = Registry({"prp-a": SimpleNamespace(chapter="01")}, (*declared, abroad), {"prp-a": (declared[1], abroad)})
    links = links_to_checks(registry, check_anchors(registry.declared))
    assert links["prp-a"] == "property [`g`](#check-f){.check}, exact [`h`](02.ipynb#check-h){.check}"


def test_the_site_holds_the_notebook_to_download_clean_and_executed(site):
    folder = site / "chapters" / "downloads"
    clean = json.loads((folder / "01-first.ipynb").read_text())["cells"]
    assert not any(cell.get("outputs") for cell in clean)
    assert any("`{python} told`" in "".join(cell["source"]) for cell in clean)
    assert (folder / "01-first-executed.ipynb").read_bytes() == (site / "chapters" / "01-first.ipynb").read_bytes()


def test_the_clean_notebook_runs_where_the_page_says(site):
    chapters = site.parents[1] / "chapters"  # of a clone
    notebook = nbformat.read(site / "chapters" / "downloads" / "01-first.ipynb", as_version=4)
    NotebookClient(notebook, resources={"metadata": {"path": chapters}}).execute()
    assert any("20 draws" in str(cell.get("outputs", "")) for cell in notebook.cells)


def test_the_overrides_of_a_small_size_are_shown(site):
    cells = json.loads((site / "chapters" / "01-first.ipynb").read_text())["cells"]
    (shown,) = [c for c in cells if "injected-parameters" in c["metadata"].get("tags", [])]
    assert "".join(shown["source"]) == "# smoke size\ncases = 5"


def test_the_notebook_carries_its_facts_and_executes_nothing_again(site):
    notebook = json.loads((site / "chapters" / "01-first.ipynb").read_text())
    assert {"seconds", "machine", "versions", "profile"} <= set(notebook["metadata"]["gllm"])
    assert "enabled: false" in (site / "_quarto.yml").read_text()


def test_generated_tables_replace_their_blocks(site):
    text = (site / "chapters" / "A-claims.qmd").read_text()
    assert "waiting" not in text
    assert "Before." in text
    assert "After." in text
    assert "| GLLM Def. 1 | a definition | @prp-small, supported (property); @rem-printed, refuted |" in text
    assert "| @prp-small Small | supported (property) | GLLM Def. 1 | property; 1 mutant rejected |" in text
    assert "No item is open." in text
    assert r"**Counterexample.** 4 is not \< \<b\>4\</b\>." in text
    assert "| @rem-printed Bound, as printed | refuted |" in text
    assert "**Instead.** @rem-mended Mended: $|x| < 5$, stated." in text
    assert r"| @rem-mended Mended: ${\vert}x{\vert} < 5$ | stated | new |" in text
    assert "| [-@sec-first] First |" in text
    assert "| numpy |" in text


def test_the_claims_are_counted_by_status(site):
    text = (site / "chapters" / "A-claims.qmd").read_text()
    assert "The book has 3 labelled statements: 1 supported, 1 refuted, 1 stated. For this copy 1 chapter ran 2" in text
    assert "So *supported (exact)* means" in text
    assert "| [-@sec-first] [First](#claims-01-first) |  | 1 | 1 |  | 1 |" in text
    assert "### [-@sec-first] First {#claims-01-first .unnumbered}" in text
    assert "### stated: 1 {#claims-stated .unnumbered}\n\n@rem-mended." in text
    assert "### supported (property): 1 {#claims-supported-property .unnumbered}\n\n@prp-small." in text


def test_a_witness_is_shown_with_its_symbols():
    typed = "alpha = (3/5, 2/5), Lambda(t) = e^x >= nu^-2 and not alphabet, at -2 |q|^2, well-known"
    assert symbols(typed) == "α = (3/5, 2/5), Λ(t) = e^x^ ≥ ν^−2^ and not alphabet, at −2 |q|^2^, well-known"
    typed = "a^(-k-1) - sqrt 2, x_0 in V_max -> sqrt(3), log_gain(u), t_interval(x), varsigma"
    assert symbols(typed) == "a^−k−1^ − √2, x~0~ in V~max~ → √(3), log\\_gain(u), t\\_interval(x), ς"
    typed = "C^((alpha - beta)/(alpha + beta)) = 2^(31), 16 x 10, x1 = 0 by z3, e^(-1) and f(x)"
    meant = r"C^(α\ −\ β)/(α\ +\ β)^ = 2^31^, 16 × 10, x~1~ = 0 by z3, e^−1^ and f(x)"
    assert symbols(typed) == meant


def test_an_unknown_table_is_an_error(small):
    (small.root / "chapters" / "A-claims.qmd").write_text('# A\n\n::: {.generated what="graph"}\n:::\n')
    with pytest.raises(BookError, match="nothing is generated for what='graph'"):
        staged(small, runs={})


def test_a_chapter_that_was_not_executed_says_so(small):
    site = staged(small, runs={})
    text = "\n".join(sources_of(site))
    assert [path.name for path in (site / "chapters" / "downloads").iterdir()] == ["01-first.ipynb"]
    assert "Not executed" in text
    assert "**stated**" in text


def test_a_figure_cell_without_output_is_an_error(small):
    cells = replaced('told = f"{cases} draws"\nprint(told)', '#| label: fig-a\ntold = f"{cases} draws"')
    write_notebook(small.notebook_path("01-first"), cells)
    silent = Run("01-first", "smoke", {}, ((),) * 4, ("5 draws",), {"seconds": 1, "cpu_seconds": 1, "machine": "m"})
    with pytest.raises(BookError, match="cell 7: fig-a displayed nothing"):
        staged(small, {"01-first": silent})


def test_a_chapter_edited_during_the_build_is_staged_as_it_ran(built):
    notebooks = {"01-first": read_notebook(built.notebook_path("01-first"))}
    runs = current_runs(built, "smoke")
    write_notebook(built.notebook_path("01-first"), (*CELLS[:5], ("code", "new = 1"), *CELLS[5:]))
    site = stage(built, runs, read_registry(built, notebooks), "smoke", notebooks)
    assert not any("new = 1" in source for source in sources_of(site))
    assert any("There were 5 draws" in source for source in sources_of(site))


def test_a_bibliography_that_is_missing(small):
    (small.root / "references.bib").unlink()
    with pytest.raises(BookError, match=r"bibliography references\.bib, which does not exist"):
        staged(small, runs={})


@pytest.mark.parametrize("body", ["", "\n", "old\n\n", "::: {.inner}\nx\n:::\n"])
def test_a_generated_block_is_replaced_whatever_it_holds(small, body):
    page = small.root / "chapters" / "A-claims.qmd"
    page.write_text(f'# A\n\n::: {{.generated what="versions"}}\n{body}:::\n\nAfter.\n')
    text = (staged(small, runs={}) / "chapters" / "A-claims.qmd").read_text()
    assert text.split() == ["#", "A", "No", "chapter", "was", "executed.", "After."]


def test_an_error_leaves_the_previous_site(small):
    site = staged(small, runs={})
    before = sources_of(site)
    (small.root / "chapters" / "A-claims.qmd").write_text('# A\n\n::: {.generated what="graph"}\n:::\n')
    with pytest.raises(BookError):
        staged(small, runs={})
    assert sources_of(site) == before


def test_status_follows_the_block_it_is_for():
    proved = Status("proved", "", (), "exact")
    text = 'a\n\n::: {#prp-a .claim source="new"}\n## A\nx\n:::\n\nb'
    lines = with_status(text, {"prp-a": proved}, {"prp-a": []}, {}).splitlines()
    assert lines.index(":::") < lines.index('::: {.status .proved claim="prp-a"}') < lines.index("b")


def test_a_status_stands_inside_the_div_that_holds_its_claim():
    proved = Status("proved", "", (), "exact")
    text = ':::: {.column}\n::: {#prp-a .claim source="new"}\n## A\n\n```\n::: {#prp-a}\n```\n:::\n::::\nb'
    made = with_status(text, {"prp-a": proved}, {"prp-a": []}, {})
    assert made.count(".status") == 1
    assert [(div.id, "status" in div.classes) for div in divs(made)] == [("prp-a", False), ("", True), ("", False)]


def test_a_status_names_the_scope_or_links_to_the_weakest_link():
    of_part = Status("supported", "exact", (), "its own check is exact, for d <= 6 only")
    assert "its own check is exact, for d ≤ 6 only; no check" in status_block("prp-a", of_part, [])
    linked = Status("supported", "exact", (), "lem-nu-x, on which it rests", "lem-nu-x")
    assert "**supported (exact)**: @lem-nu-x, on which it rests; no check" in status_block("prp-a", linked, [])

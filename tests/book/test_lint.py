"""The book's own linter: a clean chapter has no finding, and each fault has one."""

import json

import pytest

from gllm_lib.book.lint import blocking, findings, fix, prose
from gllm_lib.book.project import BookError, open_project, read_notebook, read_registry
from tests.book.conftest import CELLS, replaced, write_notebook

EXACT = (
    "code",
    "from gllm_lib.proofs import Refuted\n\n\n"
    '@evidence("prp-small", kind="exact", scope="all", mutants={"near: m": {"top": 3}})\n'
    "def all_five(top=4):\n    if max(range(5)) > top:\n        raise Refuted(4)",
)
CLEAN = (*CELLS, EXACT)


def found(project):
    project = open_project(project.root)
    notebooks = {name: read_notebook(project.notebook_path(name)) for name in project.notebooks}
    return findings(project, notebooks, read_registry(project, notebooks))


def test_a_clean_chapter_has_no_finding(small):
    write_notebook(small.notebook_path("01-first"), CLEAN)
    assert found(small) == []


FIGURE = '#| label: fig-a\n#| fig-cap: "A."\n#| fig-alt: "A line."\n1'


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (replaced("see @prp-small", "see @prp-smal", CLEAN), "cell 8: @prp-smal refers to nothing"),
        (replaced("A question", "About 3.5 questions", CLEAN), "cell 2: types the number 3.5 into prose"),
        (replaced("print(told)", "print('/home/ann/x')", CLEAN), "cell 7: names a path of one machine"),
        ((*CLEAN, ("code", "\n".join(f"x = {i}" for i in range(26)))), "26 lines of code; 25 are the most"),
        ((*CLEAN, ("code", FIGURE.replace('#| fig-alt: "A line."\n', ""))), "fig-a has no fig-alt"),
        ((*CLEAN, ("code", FIGURE.replace('#| fig-cap: "A."\n', ""))), "fig-a has no fig-cap"),
        ((*CLEAN, ("code", "#| label: tbl-a\n1")), "tbl-a has no tbl-cap"),
        (
            (*CLEAN, ("code", FIGURE.replace('"A line."', ">-\n#|   A line."))),
            "cell 10: Quarto reads no fig-alt written",
        ),
        ((*CLEAN, ("code", FIGURE.replace('"A."', "|\n#|   A."))), "no fig-cap written as a block; write it quoted"),
        ((*CLEAN, ("raw", "x")), "cell 10: a raw cell"),
        ((*CLEAN, ("code", "from gllm_lib.proofs.evidence import MIME_TYPE")), "cell 10: names MIME_TYPE"),
        ((*CLEAN, ("code", "evidence = print")), "evidence comes from the decorator @evidence alone"),
        (CELLS, "needs two kinds of evidence, one of them exact or property; it has property"),
        (replaced('source="GLLM Def. 1"', 'source="new"', CLEAN), "no claim names 'GLLM Def. 1'"),
        (replaced('source="GLLM Def. 1"', 'source="GLLM Def. 1; GLLM Def. 9"', CLEAN), "names 'GLLM Def. 9'"),
        ((*CLEAN, ("markdown", '::: {#rem-b .claim source="new"}\n## B\nx\n:::')), "rem-b: no evidence is declared"),
    ],
)
def test_each_fault_is_found(small, cells, message):
    write_notebook(small.notebook_path("01-first"), cells)
    assert any(message in finding for finding in found(small)), found(small)


def test_an_unknown_source_id_stops_an_execution_and_a_missing_one_does_not(small):
    for given, stops in (("GLLM Def. 9", 1), ("new", 0)):
        cells = replaced('source="GLLM Def. 1"', f'source="{given}"', CLEAN)
        notebooks = {"01-first": read_notebook(write_notebook(small.notebook_path("01-first"), cells))}
        stopping = blocking(small, notebooks, read_registry(small, notebooks))
        assert len(stopping) == stops
        assert all("names 'GLLM Def. 9', no source item" in finding for finding in stopping)
        assert sorted(set(found(small))) == sorted(found(small))


def test_a_label_that_stands_twice(small):
    write_notebook(small.notebook_path("01-first"), (*CLEAN, ("code", FIGURE), ("code", FIGURE)))
    with pytest.raises(BookError, match="the label fig-a stands already in 01-first, cell 10"):
        found(small)


def test_a_notebook_out_of_form_is_found_and_fixed(small):
    path = write_notebook(small.notebook_path("01-first"), CLEAN)
    canonical = path.read_text()
    path.write_text(
        canonical.replace('"outputs": []', '"outputs": [{"name": "stdout", "output_type": "stream", "text": "x"}]')
    )
    assert any("not in canonical form" in finding for finding in found(small))
    assert fix(small) == ["01-first"]
    assert path.read_text() == canonical
    assert fix(small) == []


def test_cells_without_ids_are_fixed_and_pasted_images_are_kept(small):
    path = write_notebook(small.notebook_path("01-first"), CLEAN)
    notebook = json.loads(path.read_text())
    del notebook["cells"][1]["id"]
    path.write_text(json.dumps(notebook))
    assert fix(small) == ["01-first"]
    assert len(read_notebook(path).cells) == len(CLEAN)
    notebook["cells"][1]["attachments"] = {"a.png": {"image/png": "x"}}
    path.write_text(json.dumps(notebook))
    with pytest.raises(BookError, match="cell 2: holds a pasted image"):
        fix(small)
    assert "attachments" in path.read_text()


def test_a_chapter_that_is_not_listed_is_found(small):
    write_notebook(small.notebook_path("01-first"), CLEAN)
    (small.root / "chapters" / "02-new.ipynb").write_text("{}")
    assert [finding for finding in found(small) if "02-new.ipynb: _quarto.yml does not list it" in finding]


def test_a_missing_kernelspec_is_fixed(small):
    path = write_notebook(small.notebook_path("01-first"), CLEAN)
    canonical = path.read_text()
    path.write_text(canonical.replace('"kernelspec"', '"kernelspecs"'))
    with pytest.raises(BookError, match="no kernelspec"):
        found(small)
    fix(small)
    assert path.read_text() == canonical


@pytest.mark.parametrize(
    "text",
    [
        "$x = 0.5$",
        "$$\ny = 1.5\n$$",
        "`0.5`",
        "the source prints [0.459]{.printed}",
        '::: {#prp-a .claim source="new"}\n## T\n0.5\n:::',
        "Thm 4.1 and Sec. 8.1.3",
    ],
)
def test_where_decimals_may_stand(text):
    assert "." not in prose(text).replace("Sec.", "").replace("prints", "") or "0.5" not in prose(text)


def test_where_decimals_may_not_stand():
    assert "0.5" in prose("about 0.5 of them")

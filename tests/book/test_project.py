"""Reading the book's folder and its notebooks: each way a file can be wrong has its own message."""

import json

import pytest

from gllm_lib.book.project import (
    BookError,
    canonical,
    fill_inline,
    front_matter,
    inline_names,
    open_project,
    parameters,
    read_notebook,
)
from gllm_lib.checks import FileError
from tests.book.conftest import CELLS, replaced, write_notebook


def test_the_root_is_found_from_below(small):
    assert open_project(small.root / "chapters").root == small.root
    assert small.notebooks == ("01-first",)


def test_a_folder_outside_is_refused(tmp_path):
    with pytest.raises(BookError, match="not inside the book"):
        open_project(tmp_path)


@pytest.mark.parametrize("meant", ["01-first", "1", "01", "01-f", "chapters/01-first.ipynb"])
def test_a_chapter_is_found_by_number_or_beginning(small, meant):
    assert small.find(meant) == "01-first"


def test_an_unknown_chapter_lists_the_known(small):
    with pytest.raises(BookError, match="the chapters are 01-first"):
        small.find("9")


def test_a_page_that_does_not_exist(small):
    (small.root / "chapters" / "A-claims.qmd").unlink()
    with pytest.raises(BookError, match=r"lists chapters/A-claims\.qmd, which does not exist"):
        open_project(small.root)


def test_a_configuration_without_chapters(small):
    (small.root / "_quarto.yml").write_text("book: {title: x}\n")
    with pytest.raises(BookError, match="does not list the book's chapters"):
        open_project(small.root)


@pytest.mark.parametrize("key", ["name", "display_name", "language"])
def test_a_notebook_without_kernelspec(small, key):
    path = small.notebook_path("01-first")
    notebook = json.loads(path.read_text())
    del notebook["metadata"]["kernelspec"][key]
    path.write_text(json.dumps(notebook))
    with pytest.raises(BookError, match=f"01-first.ipynb .*no kernelspec.*{key}|valid notebook"):
        read_notebook(path)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"\xff\xfe", FileError, "not UTF-8"),
        (b'{"cells": [', BookError, "its JSON breaks off"),
        (b'{"a": 1}', BookError, "01-first.ipynb is JSON but not a notebook: it has no list of cells"),
        (b"[1]", BookError, "is JSON but not a notebook: it has no list of cells"),
        (b'{"cells": [1], "nbformat": 4, "nbformat_minor": 5}', BookError, "not a valid notebook"),
        (None, FileError, "cannot be read"),
    ],
)
def test_a_broken_file(small, content, error, message):
    path = small.notebook_path("01-first")
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(error, match=message):
        read_notebook(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda nb: nb["cells"][1].pop("id"), "without an id of their own"),
        (lambda nb: nb["cells"][1].update(id="cell-0"), "without an id of their own"),
        (lambda nb: [nb.update(nbformat_minor=4), *(cell.pop("id") for cell in nb["cells"])], "without an id"),
        (lambda nb: nb["cells"][1].update(attachments={"a.png": {"image/png": "x"}}), "cell 2: holds a pasted image"),
        (lambda nb: nb.update(nbformat=5), "not a valid notebook: Unsupported nbformat version 5"),
        (lambda nb: nb["metadata"]["kernelspec"].update(language="R"), "a kernelspec for R, not python"),
    ],
)
def test_a_notebook_with_strange_content(small, change, message):
    path = small.notebook_path("01-first")
    notebook = json.loads(path.read_text())
    change(notebook)
    path.write_text(json.dumps(notebook))
    with pytest.raises(BookError, match=message):
        read_notebook(path)


def test_line_ends_of_windows_make_no_difference(small):
    path = small.notebook_path("01-first")
    before = canonical(read_notebook(path))
    notebook = json.loads(before)
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"]).replace("\n", "\r\n")
    path.write_text(json.dumps(notebook))
    assert canonical(read_notebook(path)) == before


def test_canonical_form_drops_outputs_and_is_stable(small):
    path = small.notebook_path("01-first")
    notebook = read_notebook(path)
    assert canonical(notebook) == path.read_text()
    notebook.cells[2].outputs = [{"output_type": "stream", "name": "stdout", "text": "x"}]
    notebook.cells[2].execution_count = 7
    notebook.cells[2].metadata["collapsed"] = True
    notebook.metadata["widgets"] = {}
    assert canonical(notebook) == path.read_text()


def test_sizes_are_read_per_profile(small):
    notebook = read_notebook(small.notebook_path("01-first"))
    assert parameters("01-first", notebook, "smoke") == (3, {"cases": 5})
    assert parameters("01-first", notebook, "default") == (3, {})


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (replaced("{cases: 5}", "{draws: 5}"), "sets draws, which the parameters cell does not assign"),
        (replaced("  smoke:", "  tiny:"), "sizes for 'tiny'"),
        (replaced("sizes:", "size:"), "unknown key 'size'"),
        (replaced("{cases: 5}", "{cases: ["), "does not parse"),
        (tuple(("code", s) if k == "parameters" else (k, s) for k, s in CELLS), "0 code cells carry the tag"),
        (CELLS[1:], "first cell is not a raw cell"),
        (replaced("{cases: 5}", "5"), "sizes hold names and values"),
        (replaced("\n  smoke: {cases: 5}", " [smoke]"), "sizes hold names and values"),
        (replaced("{cases: 5}", "{cases: 1e3}"), "sets cases to the text '1e3'"),
    ],
)
def test_sizes_that_do_not_fit(small, cells, message):
    notebook = read_notebook(write_notebook(small.notebook_path("01-first"), cells))
    with pytest.raises(BookError, match=message):
        parameters("01-first", notebook, "smoke")


def test_front_matter_may_be_empty(small):
    cells = (("raw", "---\n---"), *CELLS[1:])
    notebook = read_notebook(write_notebook(small.notebook_path("01-first"), cells))
    assert front_matter("01-first", notebook) == {}


def test_inline_values_are_names():
    assert inline_names("x", "a `{python} told` and `{python} other`") == ["told", "other"]
    with pytest.raises(BookError, match="'len\\(x\\)' is not a name"):
        inline_names("x", "`{python} len(x)`")


def test_inline_values_shown_as_code_are_left_alone():
    text = "a `{python} b`, ``{python} c``, `` `{python} d` ``\n\n```\n`{python} e`\n```\n\n| `{python} f` | `g` |"
    assert inline_names("x", text) == ["b", "f"]
    assert fill_inline(text, str.upper) == text.replace("`{python} b`", "B").replace("`{python} f`", "F")


def test_annotated_sizes_may_be_set(small):
    notebook = read_notebook(write_notebook(small.notebook_path("01-first"), replaced("cases = 20", "cases: int = 20")))
    assert parameters("01-first", notebook, "smoke") == (3, {"cases": 5})

"""The table of symbols: one source, every name in the library, every label in the book, no symbol with two meanings."""

from pathlib import Path

import pytest

from gllm_lib.book.api import read_library
from gllm_lib.book.lint import blocking, labels
from gllm_lib.book.notation import FILE, problems, read, shared_letters, tables
from gllm_lib.book.project import BookError, open_project, read_notebooks, read_registry

ROOT = Path(__file__).resolve().parents[2]
ROW = (
    r"""{symbol = '\alpha', means = "a share", shape = "number", """
    r"""code = "grading.gain:alpha", defined = "def-profiles"}"""
)
# What the book's words and letters are called in code, everywhere.
WORDS = ("affinity", "gain", "profile", "clip", "grades", "level", "tilt", "polar", "whiten", "bits_per_byte")
GREEK = ("alpha", "tau", "lambda", "Lambda", "Phi", "nu", "mu", "eta", "sigma", "kappa", "beta", "rho", "varrho")


def table(tmp_path, *rows, title="Grades", chapters='["sec-four"]'):
    """Write a table of one group and return its path."""
    path = tmp_path / FILE
    path.write_text(f'[[group]]\ntitle = "{title}"\nchapters = {chapters}\nsymbols = [\n' + ",\n".join(rows) + "\n]\n")
    return path


@pytest.fixture(scope="module")
def groups():
    return read(ROOT / "chapters" / FILE)


def test_the_book_has_every_label_and_the_library_every_name(groups):
    project = open_project(ROOT)
    notebooks = read_notebooks(project)
    assert problems(groups, labels(project, notebooks, read_registry(project, notebooks))) == []
    text = tables(groups, read_library())  # raises for a name that does not resolve
    assert "| $\\alpha$ |" in text
    assert "[`alpha`](F-library.qmd#lib-grading-gain) | @def-profiles |" in text
    assert "[`Grading.base`](F-library.qmd#lib-models-Grading)" in text


def test_every_word_and_letter_of_the_book_is_in_the_table(groups):
    rows = [row for group in groups for row in group.symbols]
    told = " ".join(f"{row.means} {row.code}" for row in rows)
    assert [word for word in WORDS if word not in told] == []
    symbols = " ".join(row.symbol for row in rows)
    assert [letter for letter in GREEK if f"\\{letter}" not in symbols] == []


def test_letters_with_several_meanings_are_listed(groups):
    told = shared_letters(groups)
    (entry,) = [entry for entry in told.split("\n\n") if entry.startswith("$\\eta$\n:   ")]
    assert entry.count("**") >= 6  # at least three meanings
    assert "$\\Lambda$\n" not in told


def test_one_meaning_in_two_groups_is_one(tmp_path):
    path = table(tmp_path, ROW)
    path.write_text(path.read_text() * 2)
    assert "alpha" not in shared_letters(read(path))
    path.write_text(path.read_text().replace("a share", "a level", 1))
    assert shared_letters(read(path)) == "$\\alpha$\n:   **[-@sec-four]** a level; **[-@sec-four]** a share"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (ROW.replace(", shape", ", colour"), "check colour, shape; a row has"),
        (ROW + ",\n" + ROW, r"\\alpha stands already in this group"),
        (ROW + ",\n" + ROW.replace(r"'\alpha'", r"'\tau,\ \alpha'"), r"\\alpha stands already in this group"),
        ("3", r"Grades: a row is 3; give a table of texts"),
        (ROW.replace('"a share"', "4"), r"a row is \{.*; give a table of texts"),
    ],
)
def test_a_malformed_row_is_an_error(tmp_path, row, says):
    with pytest.raises(BookError, match=says):
        read(table(tmp_path, row))


@pytest.mark.parametrize("code", ["grading.gains", "grading.gain:alphas", "kitchen.gain", "gain"])
def test_a_name_that_the_library_does_not_have_is_an_error(tmp_path, code):
    groups = read(table(tmp_path, ROW.replace("grading.gain:alpha", code)))
    with pytest.raises(BookError, match=f"the library has no {code}; write room.name"):
        tables(groups, read_library())


def test_a_label_that_the_book_does_not_have_is_found_by_the_linter(small):
    table(small.root / "chapters", ROW)
    notebooks = read_notebooks(small)
    found = blocking(small, notebooks, read_registry(small, notebooks))
    assert [line for line in found if r"\alpha: defined by def-profiles, which is no label" in line]
    assert [line for line in found if "Grades: the chapter sec-four is no label" in line]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = [", "not valid TOML"),
        ("a = 1", "a list of tables"),
        ("group = [1]", "has title"),
        ('[[group]]\ntitle = "x"', "has title, chapters"),
        ('[[group]]\ntitle = "x"\nchapters = "4"\nsymbols = []', "a list of their labels"),
    ],
)
def test_a_broken_file_is_an_error(tmp_path, text, says):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(BookError, match=says):
        read(tmp_path / FILE)

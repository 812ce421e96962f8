"""The reference of the library: what each room exports, from docstrings, without importing anything."""

import re

import pytest
from nbformat import v4

from gllm_lib.book.api import PARTLY, ROOMS, Library, read_library, reference, uses, words
from gllm_lib.book.project import BookError

MODULE = '''"""Sums and their bounds."""

raise RuntimeError("nobody imports this")

_Number = int | float
LIMIT = 3


def total(x: _Number, *, start: int = 0) -> int:
    """Return the sum of x and `start`, never above `Bound` (GLLM Prop. 1). Raises InputError for a negative x."""


class Bound:
    """What a sum may reach.

    x   the number,
        from above

        Bound(3)
    """

    x: int  # at least 0
    _hidden: int = 0

    def holds(self, other: int) -> bool:
        """Tell whether it holds."""
'''


@pytest.fixture
def package(tmp_path):
    """A package with all rooms, of which `grading` alone holds something."""
    for room in ROOMS:
        folder = tmp_path / "gllm_lib" / room
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f'"""The room {room}."""\n')
        for module in PARTLY.get(room, ()):
            (folder / f"{module}.py").write_text('"""Nothing yet."""\n')
    (tmp_path / "gllm_lib" / "__init__.py").write_text('"""A library."""\n')
    grading = tmp_path / "gllm_lib" / "grading"
    (grading / "total.py").write_text(MODULE)  # a function with the name of its module
    exports = 'from gllm_lib.grading.total import LIMIT, total\n\n__all__ = ["LIMIT", "total"]\n'
    (grading / "__init__.py").write_text('"""Grades."""\n' + exports)
    return tmp_path


def notebook(*cells):
    return v4.new_notebook(cells=[v4.new_code_cell(source) for source in cells])


@pytest.fixture(scope="module")
def library() -> Library:
    return read_library()


def test_an_entry_has_signature_docstring_errors_and_origin(package):
    text = reference(read_library(package), {})
    entry = text[text.index("#### `total`") : text.index("#### `Bound`")]
    assert "{#lib-grading-total}" in entry
    assert "total(x: int | float, *, start: int = 0) -> int" in entry
    assert "never above [`Bound`](#lib-grading-Bound) (GLLM Prop. 1).\n\nRaises InputError for" in entry
    assert "From `gllm_lib.grading`." in entry
    assert "Constants, imported from `gllm_lib.grading`: `LIMIT`." in text


def test_a_class_shows_its_fields_with_their_comments_and_its_methods(package):
    text = reference(read_library(package), {})
    entry = text[text.index("#### `Bound`") :]
    assert "```python\nx: int  # at least 0\n```" in entry
    assert "- `holds(other: int) -> bool`: Tell whether it holds." in entry
    assert "```text\nx   the number,\n    from above\n```" in entry
    assert "```python\nBound(3)\n```" in entry
    assert "From `gllm_lib.grading.total`." in entry
    assert "_hidden" not in entry


def test_a_missing_docstring_is_an_error(package):
    module = package / "gllm_lib" / "grading" / "total.py"
    module.write_text(re.sub(r'"""Return the sum.*"""', "return x + start", MODULE))
    with pytest.raises(BookError, match=r"gllm_lib\.grading\.total\.total has no docstring"):
        reference(read_library(package), {})


def test_uses_are_read_from_the_chapters(package):
    check = '@evidence("prp-a", kind="property")\ndef holds(x, made=total):\n    Bound(3)'
    notebooks = {
        "04-one": notebook("from gllm_lib.grading import total\nfrom gllm_lib.grading.total import Bound", check),
        "04b-two": notebook("from gllm_lib.grading import total as t\nt(1)"),
        "05-three": notebook("total = sum\ntotal([1])"),
    }
    found = uses(read_library(package), notebooks)
    assert found.chapters["gllm_lib.grading.total.total"] == ["04-one", "04b-two"]
    assert found.claims == {"gllm_lib.grading.total.total": ["prp-a"]}
    text = reference(read_library(package), notebooks)
    assert "Used in chapters [4](04-one.ipynb), [4b](04b-two.ipynb). Checked in @prp-a." in text


def test_what_a_chapter_takes_from_a_module_is_a_use(package):
    (package / "gllm_lib" / "grading" / "other.py").write_text('"""More."""\n\n\ndef half():\n    """Halve."""\n')
    notebooks = {"04-one": notebook("from gllm_lib.grading import other\nother.half()")}
    assert uses(read_library(package), notebooks).chapters["gllm_lib.grading.other.half"] == ["04-one"]


def test_every_export_of_every_room_is_in_the_reference(library):
    text = reference(library, {})
    exported = [(room, name) for room in ROOMS for name in library.exported(room).values()]
    assert len(exported) > 150
    missing = [
        (room, name)
        for room, name in exported
        if f"{{#lib-{room}-{name}}}" not in text and f"`gllm_lib.{room}`: " not in text
    ]
    assert missing == []
    assert len(text) < 400_000  # the page is read on a phone
    anchors = re.findall(r"\{#(lib-[\w-]+)", text)
    assert len(anchors) == len(set(anchors))


def test_the_words_of_a_docstring_are_shown_as_they_are():
    assert words("a_j * b_k of `c_d`, see @x") == r"a\_j \* b\_k of `c_d`, see \@x"
    assert words("one\ntwo\n- three\n  four") == "one two\n- three four"

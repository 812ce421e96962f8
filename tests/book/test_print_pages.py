"""Where the pages of the PDF end: full of words, no caption without its table, no line of code or of a run alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typst

from gllm_lib.book.print.pdf import TEMPLATE, write_typst
from tests.book.sample_site import printable_site

OPENING = """#import "/book.typ": *
#show: book
#let here-is(name) = context [#metadata((name, here().page()))<place>]
#chapter(1, "1", "Chapter 1", "", "one")[One]
#pagebreak()
"""
ROWS = """#float("table", "tbl-{0}", "Table 1", "{1}", [Caption #here-is("caption-{0}")])[
#figure(kind: table, table(columns: 1, table.header([Head]), ..range(12).map(n => here-is("row-{0}-" + str(n)) + [#n])))
]
"""


def places(folder: Path, words: str) -> dict[str, int | str]:
    """Return the values that the words mark as places."""
    (folder / "book.typ").write_bytes(TEMPLATE.read_bytes())
    (folder / "main.typ").write_text(OPENING + words)
    found = json.loads(typst.query(folder / "main.typ", "<place>", field="value", root=folder))
    return dict(found)


def filled(millimetres: int, words: str) -> str:
    """Return words that stand at this height of a page of their own."""
    return f"#pagebreak(weak: true)\n#block(height: {millimetres}mm)\n{words}"


@pytest.mark.parametrize("does", ["breaks", "stays", "floats"])
def test_a_caption_stands_on_the_page_of_its_first_row(tmp_path: Path, does: str):
    heights = range(186, 208, 2)
    found = places(tmp_path, "".join(filled(height, ROWS.format(height, does)) for height in heights))
    captions = [found[f"caption-{height}"] for height in heights]
    assert captions == [found[f"row-{height}-0"] for height in heights]
    ends = [found[f"row-{height}-11"] for height in heights]
    assert (captions == ends) == (does != "breaks")


def test_the_line_of_a_run_stands_below_the_last_words_of_its_chapter(tmp_path: Path):
    last = '#held(0.95em)[Last words. #here-is("last-{0}")]\n#facts[Run. #here-is("facts-{0}")]\n'
    heights = range(190, 212)
    found = places(tmp_path, "".join(filled(height, last.format(height)) for height in heights))
    assert [found[f"last-{height}"] for height in heights] == [found[f"facts-{height}"] for height in heights]


def test_only_a_long_table_may_break_and_a_chapter_keeps_its_last_words(tmp_path: Path):
    write_typst(printable_site(tmp_path / "site"), tmp_path / "typst")
    typed = (tmp_path / "typst/main.typ").read_text()
    assert '#float("table", "tbl-grades", "Table\u00a04.1", "stays", [' in typed
    assert re.search(r"#place\.flush\(\)\n#held\(0\.95em\)\[\nPrinted as 0\.459.*\n\n\]\n#facts\(", typed)


@pytest.mark.parametrize(("first", "marks"), [("-", "- three"), ("3.", "start: 5")])
def test_the_last_item_of_a_list_stays_with_what_comes_below(tmp_path: Path, first: str, marks: str):
    claim = f"::: {{#rem-listed .claim}}\n## Listed\nThese:\n\n{first} one\n{first} two\n{first} three\n:::\n"
    site = printable_site(tmp_path / "site")
    (site / "index.qmd").write_text(f"# Preface {{.unnumbered}}\n\n{claim}")
    write_typst(site, tmp_path / "typst")
    typed = (tmp_path / "typst/main.typ").read_text()
    upper, _, lower = typed[typed.index("#block(below: 0.62em)[") : typed.index("#claim-foot")].partition(
        "#held(0.62em)["
    )
    assert "two" in upper
    assert "three" not in upper
    assert "three" in lower
    assert marks in lower


def test_words_in_a_cell_begin_where_those_above_begin(tmp_path: Path):
    left = "[#box(context [#metadata((str(n), here().position().x))<place>])#lorem(n)]"
    found = places(tmp_path, f"#align(center, table(columns: 1, ..(1, 4, 40).map(n => {left})))")
    assert len(found) == 3
    assert len(set(found.values())) == 1


DRAWN = '#float("figure", "fig-{0}", "Figure 1", "floats", [Caption])[#here-is("drawing-{0}")#rect(height: 60mm)]\n'


def test_a_drawing_without_room_lets_the_words_after_it_fill_the_page(tmp_path: Path):
    heights = range(160, 200, 8)
    after = 'After. #here-is("after-{0}")\n\n#lorem(600)\n'
    found = places(
        tmp_path, "".join(filled(h, f'#here-is("above-{h}")\n\n{(DRAWN + after).format(h)}') for h in heights)
    )
    for height in heights:
        assert found[f"after-{height}"] == found[f"above-{height}"]
        assert found[f"drawing-{height}"] == int(found[f"above-{height}"]) + 1


def test_a_chapter_shows_its_last_drawing_above_the_line_of_its_run(tmp_path: Path):
    last = '#place.flush()\n#held(0.95em)[Last words.]\n#facts[Run. #here-is("facts-{0}")]\n'
    found = places(tmp_path, "".join(filled(h, (DRAWN + last).format(h)) for h in (100, 170)))
    assert found["drawing-100"] == found["facts-100"]
    assert found["drawing-170"] == found["facts-170"]


def test_no_line_of_code_stands_on_a_page_alone(tmp_path: Path):
    code = '#[#show regex("[a-f]"): it => it + here-is("{0}-" + it.text)\n#code("text", "a\\nb\\nc\\nd\\ne\\nf")]\n'
    heights = range(176, 208)
    found = places(tmp_path, "".join(filled(height, code.format(height)) for height in heights))
    split = 0
    for height in heights:
        pages = [found[f"{height}-{line}"] for line in "abcdef"]
        assert pages[0] == pages[1]
        assert pages[4] == pages[5]
        split += pages[0] != pages[5]
    assert split > 2


TABLE = """| figure | paired | pooled | seeds |
|:---|--:|--:|:---|
| `heads` 4 held-out | −12 [−140, 116] | −3 [−9, 3] * | 1,024 |
| `depth` 4 held-out | −12 | −3 (0.9 to 1.4) | those of the paper, which were three for each of the two models |
"""


def test_a_number_or_an_interval_in_a_cell_stays_on_one_line(tmp_path: Path):
    site = printable_site(tmp_path / "site")
    (site / "index.qmd").write_text(f"# Preface {{.unnumbered}}\n\n{TABLE}")
    write_typst(site, tmp_path / "typst")
    typed = (tmp_path / "typst/main.typ").read_text()
    table = typed[typed.index("#table(") : typed.index("three for each")]
    assert "columns: 4," in table
    for numbers in ("−12 [−140, 116]", "−3 [−9, 3] \\*", "1,024", "−12", "−3 (0.9 to 1.4)"):
        assert f"[#box[{numbers}]]" in table.replace("\\[", "[").replace("\\]", "]")
    assert "#box[`" not in table
    assert "#box[those" not in table

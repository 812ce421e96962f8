"""The list of source items: its rows, its invariants, and the join with claims in both directions."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from gllm_lib.checks import FileError
from gllm_lib.proofs.sources import Sources, SourcesError, cited_ids, join, load, parse, problems

ROOT = Path(__file__).resolve().parents[2]
FTIP_NUMBERS = [  # chapter.section, and the last numbers that survive in cross-references
    f"{section}.{last}"
    for section, lasts in {
        "3.1": (1, 2, 3, 4, 5, 6),
        "3.3": (2,),
        "3.4": (4,),
        "3.7": (1, 2, 4, 5, 9),
        "3.8": (8,),
        "3.9": (5,),
        "3.10": (7,),
        "4.1": (2, 3, 6),
        "4.2": (1, 3, 5, 8, 9, 11),
        "4.3": (1, 2, 3),
        "4.4": (2, 5),
    }.items()
    for last in lasts
]
FTIP_LINES = 418


@dataclass(frozen=True)
class FakeClaim:
    id: str
    source: str
    chapter: str = "04-sample-complexity"


SMALL = """
[chapters]
04 = "sample complexity"
05 = "minimax"
[items]
GLLM = [
  {id = "GLLM Prop. 7", chapter = "04", title = "the gain", whole = true},
  {id = "GLLM Prop. 7(i)", chapter = "04", title = "invariance"},
  {id = "GLLM Prop. 7(iii)", chapter = "04", title = "fourth-root law"},
  {id = "GLLM Eq. 14", within = "GLLM Prop. 7(iii)", title = "display"},
  {id = "GLLM Rem. 11(1)", chapter = "04", title = "one layer", prose = "a limit of scope"},
  {id = "GLLM Thm 4.1", chapter = "05", title = "separation"},
]
"""


@pytest.fixture(scope="module")
def book() -> Sources:
    return load(ROOT / "chapters" / "sources.toml")


def small(*changes: tuple[str, str]) -> str:
    text = SMALL
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def statuses(claims: list[FakeClaim], written: list[str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {row.item.id: (row.status, row.claims) for row in join(parse(SMALL), claims, written)}


# The list itself


def test_the_book_s_list_loads_and_every_row_says_who_treats_it(book: Sources) -> None:
    assert set(book.chapters) == {f"{number:02d}" for number in range(1, 19)}
    assert {item.chapter for item in book.items} == set(book.chapters)
    assert len(book.items) > 400


@pytest.mark.parametrize(
    ("kind", "last"), [("Def.", 3), ("Lem.", 6), ("Prop.", 12), ("Cor.", 4), ("Rem.", 25), ("Conj.", 2), ("Eq.", 23)]
)
def test_numbered_items_of_the_first_source_are_all_there(book: Sources, kind: str, last: int) -> None:
    ids = {item.id for item in book.items}
    assert [number for number in range(1, last + 1) if f"GLLM {kind} {number}" not in ids] == []
    assert f"GLLM {kind} {last + 1}" not in ids


def test_theorems_tables_and_assumption_are_there(book: Sources) -> None:
    ids = {item.id for item in book.items}
    assert {"GLLM Thm 4.1", "GLLM Thm 5.1", "GLLM Assumption 1"} <= ids
    assert {f"GLLM Tab. {name}" for name in (1, 2, 3)} <= ids
    assert {f"OE Tab. {name}" for name in ("1", "1b", "2", "3", "4", "5a", "5b", "6", "7")} <= ids


@pytest.mark.parametrize(
    ("whole", "parts"),
    [
        ("GLLM Prop. 7", 4),
        ("GLLM Prop. 8", 6),
        ("GLLM Lem. 3", 2),
        ("GLLM Lem. 4", 5),
        ("GLLM Prop. 9", 3),
        ("GLLM Prop. 10", 3),
        ("GLLM Prop. 12", 4),
        ("GLLM Rem. 5", 3),
        ("GLLM Rem. 7", 4),
        ("GLLM Rem. 11", 4),
        ("GLLM Sec. 6.1", 6),
    ],
)
def test_parts_that_a_source_numbers_are_contiguous(book: Sources, whole: str, parts: int) -> None:
    roman = ["i", "ii", "iii", "iv", "v", "vi"]
    item = next(item for item in book.items if item.id == whole)
    found = {part.id.removeprefix(whole) for part in book.parts(item)}
    named = {f"({numeral})" for numeral in roman} & found or {f"({number})" for number in range(1, 7)} & found
    want = [f"({numeral})" for numeral in roman] if "(i)" in named else [f"({number})" for number in range(1, 7)]
    assert named == set(want[:parts])
    assert item.whole


def test_every_section_with_results_of_the_second_source_has_rows(book: Sources) -> None:
    sections = {item.id.split()[2].split("(")[0] for item in book.items if item.id.startswith("OE Sec.")}
    assert sections == {"1", "2.1", "2.2", "3", "4.1", "4.2.1", "4.2.2", "4.3", "4.4", "5", "6"}


def test_surviving_numbers_of_the_third_source_are_all_there(book: Sources) -> None:
    rows = [item.id.split(" ", 2) for item in book.items if item.source == "FTIP"]
    assert sorted(number for _, number, _ in rows if number != "l.") == sorted(FTIP_NUMBERS)


def test_line_ids_of_the_third_source_lie_in_its_text(book: Sources) -> None:
    lines = [int(item.id.split()[2]) for item in book.items if item.id.startswith("FTIP l. ")]
    assert all(1 <= line <= FTIP_LINES for line in lines)
    assert len(set(lines)) > 90


def test_most_rows_need_a_claim(book: Sources) -> None:
    # a list that calls everything prose would pass every other test
    assert sum(bool(item.prose) for item in book.items) < len(book.items) / 6


# The join


def test_a_named_row_is_treated_and_a_display_follows_its_item() -> None:
    rows = statuses([FakeClaim("prp-law", "GLLM Prop. 7(iii)")], ["04-sample-complexity"])
    assert rows["GLLM Prop. 7(iii)"] == ("treated", ("prp-law",))
    assert rows["GLLM Eq. 14"] == ("treated", ("prp-law",))
    assert rows["GLLM Prop. 7(i)"] == ("missing", ())
    assert rows["GLLM Prop. 7"] == ("missing", ("prp-law",))
    assert rows["GLLM Rem. 11(1)"] == ("prose", ())
    assert rows["GLLM Thm 4.1"] == ("open", ())


def test_a_whole_is_treated_by_its_parts_together() -> None:
    claims = [FakeClaim("prp-law", "GLLM Prop. 7(iii)"), FakeClaim("prp-gauge", "GLLM Prop. 7(i)")]
    assert statuses(claims, ["04"])["GLLM Prop. 7"] == ("treated", ("prp-gauge", "prp-law"))


def test_naming_a_whole_does_not_treat_its_parts() -> None:
    rows = statuses([FakeClaim("def-gain", "GLLM Prop. 7")], ["04"])
    assert rows["GLLM Prop. 7"] == ("treated", ("def-gain",))
    assert rows["GLLM Prop. 7(i)"][0] == "missing"


def test_everything_is_open_before_a_chapter_is_written() -> None:
    assert {status for status, _ in statuses([], []).values()} == {"open"}


def test_a_claim_of_another_chapter_may_treat_a_row() -> None:
    assert statuses([FakeClaim("thm-sep", "GLLM Thm 4.1")], [])["GLLM Thm 4.1"] == ("treated", ("thm-sep",))


def test_one_claim_may_name_several_rows_across_a_line_break() -> None:
    claims = [FakeClaim("prp-all", "GLLM Prop. 7(i);  GLLM\n  Prop. 7(iii); new")]
    assert cited_ids(claims[0].source) == ("GLLM Prop. 7(i)", "GLLM Prop. 7(iii)")
    assert problems(parse(SMALL), claims, ["04"]) == []


def test_a_new_result_needs_no_row() -> None:
    assert cited_ids("new") == ()
    assert problems(parse(SMALL), [FakeClaim("thm-own", "new")], []) == []


def test_an_unknown_id_is_reported_with_the_row_that_was_meant() -> None:
    (problem,) = problems(parse(SMALL), [FakeClaim("prp-law", "GLLM Prop 7(iii)")], [])
    assert "prp-law" in problem
    assert "chapter 04-sample-complexity" in problem
    assert "'GLLM Prop 7(iii)'" in problem
    assert "did you mean GLLM Prop. 7(iii)" in problem


def test_a_claim_without_a_source_is_reported() -> None:
    (problem,) = problems(parse(SMALL), [FakeClaim("prp-law", "  ")], [])
    assert 'prp-law names no source; write its ids or source="new"' in problem


def test_a_row_left_out_is_reported_once() -> None:
    found = problems(parse(SMALL), [FakeClaim("prp-gauge", "GLLM Prop. 7(i)")], ["04-sample-complexity"])
    assert len(found) == 1, found  # neither the whole nor the display repeats the complaint
    assert "no claim names 'GLLM Prop. 7(iii)'" in found[0]


def test_the_book_s_rows_resolve_when_each_is_named(book: Sources) -> None:
    needed = [item for item in book.items if not (item.within or item.prose or item.whole)]
    claims = [FakeClaim(f"prp-{number}", item.id) for number, item in enumerate(needed)]
    assert problems(book, claims, book.chapters) == []
    short = problems(book, claims[:-1], book.chapters)
    assert len(short) == 1
    assert needed[-1].id in short[0]


# Malformed lists

LAW = '{id = "GLLM Prop. 7(iii)", chapter = "04", title = "fourth-root law"}'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("GLLM Prop. 7(i)", "GLLM Prop. 7(iii)", "stands already in .*row 2"),
        (LAW, LAW.replace('"04"', '"19"'), "chapter '19' is unknown"),
        (LAW, LAW.replace(', title = "fourth-root law"', ""), "title is missing"),
        (LAW, LAW.replace("fourth-root law", " "), "title is ' '"),
        (LAW, LAW.replace('"04"', "4"), "chapter is 4; give a str"),
        (LAW, LAW.replace('chapter = "04", ', ""), "give either chapter"),
        (LAW, LAW.replace("}", ', within = "GLLM Thm 4.1"}'), "give either chapter"),
        (LAW, LAW.replace("}", ', claims = "prp-law"}'), "key 'claims' is unknown"),
        (LAW, LAW.replace("}", ', prose = "x", whole = true}'), "exclude each other"),
        (LAW, LAW.replace('id = "GLLM Prop. 7(iii)", ', ""), r"\(no id\): id is missing"),
        (LAW, LAW.replace("Prop.", "Proposition"), "not in the normal form"),
        (LAW, LAW.replace("(iii)", " iii"), "not in the normal form"),
        (LAW, LAW.replace("7(iii)", "7 (a; b)"), "without a semicolon"),
        (LAW, LAW.replace("GLLM Prop. 7(iii)", "OE Tab. 1"), "stands under GLLM; move it to OE"),
        (LAW, '"GLLM Prop. 7(iii)"', "write {id"),
        ('within = "GLLM Prop. 7(iii)"', 'within = "GLLM Prop. 7(ii)"', r"is no row; did you mean GLLM Prop. 7\(i"),
        ('within = "GLLM Prop. 7(iii)"', 'within = "GLLM Prop. 7"', "leads on to other rows"),
        ('within = "GLLM Prop. 7(iii)"', 'within = "GLLM Eq. 14"', "leads on to other rows"),
        ('title = "invariance"', 'title = "invariance", whole = true', "is whole but has no parts"),
        ('05 = "minimax"', '5 = "minimax"', "write two digits"),
        ('05 = "minimax"', "05 = 7", "write two digits"),
        ("[items]", "[rows]", "needs exactly the two tables"),
        ("GLLM = [", "GLLM = ", "is not valid TOML"),
    ],
)
def test_a_malformed_list_is_refused_with_its_row(old: str, new: str, message: str) -> None:
    with pytest.raises(SourcesError, match=message):
        parse(small((f'"{old}"', f'"{new}"') if old.startswith("GLLM Prop.") else (old, new)))


def test_a_group_that_is_no_list_is_refused() -> None:
    with pytest.raises(SourcesError, match="OE is str; give a list of rows"):
        parse(SMALL + '\nOE = "none"\n')


def test_a_number_of_the_third_source_needs_words() -> None:
    row = 'FTIP = [{id = "FTIP 3.1.3", chapter = "05", title = "frontier"}]'
    with pytest.raises(SourcesError, match="add words in parentheses"):
        parse(f"{SMALL}\n{row}\n")
    assert len(parse(f"{SMALL}\n{row.replace('3.1.3', '3.1.3 (frontier)')}\n").items) == 7


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        load(tmp_path / "sources.toml")

"""Chapter 18's map, `chapters/interventions.toml`: every row says what it should and cites what the book states."""

import re
import tomllib

from gllm_lib.book.project import open_project, read_registry
from tests.conftest import ROOT

MAP = tomllib.loads((ROOT / "chapters" / "interventions.toml").read_text(encoding="utf-8"))
NEEDED, OPTIONAL = {"source", "name", "changes", "claims", "seen"}, {"note"}
PLACES = ["class", "start", "metric", "rule", "data"]  # columns of the figure, in their order


def test_each_row_says_what_the_figure_and_the_table_show():
    assert set(MAP) == {"intervention"}
    rows = MAP["intervention"]
    names = [row.get("name") for row in rows]
    assert len(names) == len(set(names)) > 30
    for row in rows:
        assert NEEDED <= set(row) <= NEEDED | OPTIONAL, row
        assert row["source"] in ("GLLM", "OE", "FTIP"), row
        assert row["changes"], row
        assert row["changes"] == [place for place in PLACES if place in row["changes"]], row
        assert "|" not in "".join([row["name"], row.get("note", ""), row["seen"]]), row  # it would end a cell
    order = [row["source"] for row in rows]
    assert order == sorted(order, key=["GLLM", "OE", "FTIP"].index)


def test_each_row_cites_claims_of_the_book_that_stand():
    claims = read_registry(open_project(ROOT)).claims
    for row in MAP["intervention"]:
        cited = [*row["claims"], *re.findall(r"@([a-z]+-[\w-]+)", f"{row['seen']} {row.get('note', '')}")]
        assert row["claims"], row
        assert [label for label in cited if label not in claims] == [], row["name"]
        assert [label for label in cited if claims[label].refuted] == [], row["name"]

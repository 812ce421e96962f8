"""The errata by source, and what the pages say of the runs and studies behind them."""

import re
from pathlib import Path

import pytest
from nbformat import v4

from gllm_lib.book.errata import errata
from gllm_lib.book.executions import chapter_runs, effort, studies
from gllm_lib.book.run import Run
from gllm_lib.proofs.claims import registry
from gllm_lib.proofs.evidence import MIME_TYPE
from gllm_lib.proofs.sources import parse
from gllm_lib.studies import load
from tests.book.conftest import small_book

ROOT = Path(__file__).resolve().parents[2]
SOURCES = parse("""[chapters]
01 = "first"

[items]
GLLM = [
  {id = "GLLM Prop. 7", chapter = "01", title = "a law"},
  {id = "GLLM Sec. 8 (cost)", chapter = "01", title = "a cost"},
]
OE = [{id = "OE Tab. 1", chapter = "01", title = "a table"}]
FTIP = [{id = "FTIP l. 63 (limit)", chapter = "01", title = "a limit"}]
""")


def printed(label, source, title, statement="All $x$."):
    return f'::: {{#{label} .claim .refuted source="{source}"}}\n## {title}, as printed\n{statement}\n:::\n\n'


@pytest.fixture
def claims():
    text = (
        printed("rem-cost-printed", "GLLM Sec. 8 (cost)", "Cost")
        + printed("prp-law-printed", "OE Tab. 1; GLLM Prop. 7", "Law", "One.\n\nTwo.")
        + printed("rem-limit-printed", "FTIP l. 63 (limit)", "Limit")
        + '::: {#prp-law .claim source="GLLM Prop. 7" corrects="prp-law-printed"}\n## Law\nSome $x$.\n:::\n'
    )
    return registry({"01-first": [{"cell_type": "markdown", "source": text}]})


def test_errata_stand_by_source_in_its_order(claims):
    text = errata(SOURCES, claims, {"rem-cost-printed": [{"name": "a", "says": "x_0 = 1."}]})
    heads = re.findall(r"^##+ .*$", text, re.MULTILINE)
    assert heads == [
        "## GLLM {#errata-gllm}",
        "### Prop. 7: law {#erratum-prp-law-printed .unnumbered}",
        "### Sec. 8: cost {#erratum-rem-cost-printed .unnumbered}",
        "## FTIP {#errata-ftip}",
        "### Line 63: limit {#erratum-rem-limit-printed .unnumbered}",
    ]
    assert "| [GLLM](#errata-gllm) | 2 | 0 | 1 | 1 |" in text
    assert "**Printed** (OE Tab. 1; GLLM Prop. 7; here @prp-law-printed).\n\n> One.\n> \n> Two." in text
    assert "**Instead.** @prp-law Law, stated." in text
    assert "**Counterexample.** x~0~ = 1." in text
    assert "**Counterexample.** Not run in this build." in text
    assert "**Instead.** No correction is claimed." in text


def test_a_book_without_errata_says_so():
    assert errata(SOURCES, registry({}), {}) == "No statement is refuted."


@pytest.mark.parametrize(("title", "told"), [("FP32 moments", "FP32 moments"), ("A law", "a law"), ("$X$", "$X$")])
def test_a_title_goes_on_in_small_letters_unless_it_begins_with_an_abbreviation(title, told):
    claims = registry({"01-first": [{"cell_type": "markdown", "source": printed("rem-a-printed", "OE Tab. 1", title)}]})
    assert f"### Tab. 1: {told} {{#erratum" in errata(SOURCES, claims, {})


def test_what_no_source_states_is_no_erratum():
    text = printed("rem-ours-printed", "new", "Ours")
    claims = registry({"01-first": [{"cell_type": "markdown", "source": text}]})
    assert errata(SOURCES, claims, {}) == "No statement is refuted."


def run_of(seconds, cpu, *records):
    facts = {"seconds": seconds, "cpu_seconds": cpu, "machine": "a machine", "versions": {}}
    shown = [({"data": {MIME_TYPE: record}},) for record in records]
    return Run("01-first", "default", {}, tuple(shown), (), facts)


def test_the_runs_are_listed_and_added_up(tmp_path):
    project = small_book(tmp_path / "book")
    records = [{"claim": "prp-small", "cases": 1500, "mutants_rejected": 3}] * 2
    runs = {"01-first": run_of(61.2, 120.4, *records)}
    table = chapter_runs(project, runs, "default")
    assert "| [-@sec-first] First | 61 | 120 | 2 | 3,000 | 6 |\n| **All** | 61 | 120 | 2 | 3,000 | 6 |" in table
    assert table.endswith("Size: default. Machine: a machine.")
    told = "1 chapter ran 2 checks on 3,000 cases, and every one of 6 mutants was rejected, in 2 minutes of one core."
    assert effort(runs) == f"For this copy {told}"
    assert "not executed" in chapter_runs(project, {}, "default")
    assert effort({}) == "No chapter was executed for this copy."


def test_every_study_is_listed_with_its_records_and_readers():
    code = v4.new_code_cell('study = load(None, "readouts")')
    text = studies(ROOT, {"10-selection-ladder": v4.new_notebook(cells=[code])})
    study = load(ROOT, "readouts")
    entry = text[text.index("readouts\n\n:   Does the grading gain") :]
    assert f"{len(study.records)} of {len(study.records) + len(study.missing)} runs, " in entry
    assert f"plan `{study.plan.sha256[:12]}`. Read in chapter [10](10-selection-ladder.ipynb)." in entry
    assert re.search(r"took \d+\.\d hours of one core; their records take \d+\.\d MB\.", text)
    assert text.count("\n:   ") == len(list(ROOT.glob("results/*/plan.toml")))
    assert text.count("No chapter reads it.") == text.count("\n:   ") - 1


def test_a_book_without_studies_says_so(tmp_path):
    assert studies(tmp_path, {}) == "No study is registered."

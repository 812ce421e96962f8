"""Finding things in the book: what the index holds, and what a reader who types and presses keys gets from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gllm_lib.book.html.linear import linear, linear_text
from tests.book.sample_site import FIRST

CLAIMS = ("def-gain", "prp-fourth-root", "prp-printed", "prp-corrected", "cnj-bounded", "rem-clip")


@pytest.fixture(scope="module")
def index(book: Path) -> Any:
    text = (book / "assets/index.js").read_text()
    return json.loads(text.removeprefix("window.bookIndex = ").removesuffix(";\n"))


# formulas as text


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"\Lambda(g) \;\ge\; \mathrm{BC}(\alpha,\tau)^2", "Λ(g) ≥ BC(α,τ)^2"),
        (r"g_i = c\,(\tau_i/\alpha_i)^{1/4}", "g_i = c(τ_i/α_i)^(1/4)"),
        (r"\Bigl(\sum_{i=1}^{d} \frac{\tau_i}{g_i^2}\Bigr)", "(∑_(i=1)^dτ_i/g_i^2)"),
        (r"\frac{\sqrt{a+b}}{2\log n} + \tfrac12 + \frac{x+1}T", "(√(a+b))/(2\u00a0log\u00a0n)+1/2+(x+1)/T"),
        (r"\frac{\sigma_{(l)}^2}{D_l^2}", "σ_(l)^2/D_l^2"),
        (r"\sqrt\alpha \sqrt[3]{xy}", "√α√(xy)"),
        (r"\{x \in \mathbb{R}_{>0}^d : \lVert x\rVert_2 \le 1\}", "{x ∈ ℝ_(>0)^d:‖x‖_2 ≤ 1}"),
        (r"\hat{\tau}_j - \widehat R", "τ̂_j−R̂"),
        (r"\begin{pmatrix} \cosh t & x \\ 0 & 1 \end{pmatrix}", "cosh\u00a0t x 0 1"),
        (r"\Pr(\text{the string is } c \mid \max_i q_{\max})", "Pr(the string is c|max_i q_max)"),
        (r"\unknown{a}{b} W^\top, 10^{-3}, 524{,}288", "unknown\u00a0ab Wᵀ,10^(−3),524,288"),
    ],
)
def test_a_formula_reads_as_one_line(tex: str, text: str) -> None:
    assert linear(tex) == text


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        (r"Below $\nu_{2}$, a_b \alpha", r"Below ν_2, a_b \alpha"),
        (r"in $O(d\log d)$ steps", "in O(d log d) steps"),
        (r"For $5 or $6, or \$7 and $x$", "For $5 or $6, or $7 and x"),
        (r"$\Lambda(g) \le 1$ at $\log \nu$", "Λ(g) ≤ 1 at log ν"),
        (r"Costs $5, and a_b", "Costs $5, and a_b"),
    ],
)
def test_a_title_is_shown_without_tex(title: str, shown: str) -> None:
    assert linear_text(title) == shown


# the index


def test_every_statement_is_in_the_index_with_all_one_may_search(index: Any) -> None:
    rows = {row[1]: row for row in index["rows"]}
    assert set(CLAIMS) <= set(rows)
    page, _, called, name, source, status, text = rows["prp-fourth-root"]
    assert index["pages"][page] == ["Chapter 4", "Sample complexity", FIRST]
    assert (called, name) == ("Proposition 4.1", "Fourth-root law")
    assert (source, status) == ("GLLM Prop. 7(iii)", "proved")
    assert text.startswith("Let α,τ be profiles. For every g > 0 Λ(g) ≥ BC(α,τ)^2, with equality exactly for")
    assert rows["prp-corrected"][5] == "supported (property)"
    assert rows["cnj-bounded"][2] == "Assumption 7.1"


def test_captions_equations_and_sections_are_in_the_index(index: Any) -> None:
    rows = {row[1]: row for row in index["rows"] if row[1]}
    caption = "Gain along a ray of grades, Λ(t), for three targets (see Proposition 4.1)."
    assert (rows["fig-gain"][2], rows["fig-gain"][6]) == ("Figure 4.1", caption)
    assert rows["fig-drawn"][6] == "A drawn figure, from a file."
    assert rows["tbl-grades"][6] == "Grades of the smallest gain."
    assert rows["eq-gain"][6].startswith("Λ(g) = (∑_(i=1)^d g_i^2α_i)")
    assert rows["in-the-kernel"][2:4] == ["Section 4.3.1", "In the kernel"]
    assert "affinity is BC(α,τ) = ∑_i√(α_iτ_i)." in rows["sec-need"][6]
    assert "Two square roots, one for each sum." in rows["sec-fourth-root"][6]


def test_each_thing_is_in_one_place_and_code_in_none(index: Any) -> None:
    prose = {row[1]: row[6] for row in index["rows"] if row[2].startswith("Section")}
    assert "Every admissible grade" not in " ".join(prose.values())  # statements have rows of their own
    assert "counterexample" not in " ".join(prose.values())  # and their statuses stand there
    assert "no_grades_beat" not in json.dumps(index)
    pages = {index["pages"][row[0]][0]: row for row in index["rows"] if not row[1]}
    assert pages["Chapter 7"][3] == "Choosing grades"
    assert "Fourth-root law" not in pages["Appendix A"][6]
    assert "the first of the sources" in pages["Appendix A"][6]  # a table that lists no statements is searched


def test_pages_come_first_then_statements_sections_and_the_rest(index: Any) -> None:
    kinds = [row[2].partition(" ")[0] for row in index["rows"]]
    statements = [k for k, kind in enumerate(kinds) if kind in ("Definition", "Proposition", "Assumption", "Remark")]
    assert kinds.index("Chapter") < statements[0] < statements[-1] < kinds.index("Section") < kinds.index("Equation")


def test_every_row_leads_to_a_place(book: Path, index: Any) -> None:
    for row in index["rows"]:
        page = (book / index["pages"][row[0]][2]).read_text()
        assert not row[1] or f' id="{row[1]}"' in page, row


# a reader's search


def found(page: Any, words: str) -> list[str]:
    """Type into the open search and return the anchors of the hits, best first."""
    page.get_by_role("searchbox").fill(words)
    hits = page.locator(".hits a").evaluate_all("all => all.map(a => a.hash.slice(1) || a.pathname.split('/').pop())")
    return list(hits)


def searching(page: Any) -> Any:
    """Open the search by its key and wait until the index is there."""
    page.keyboard.press("/")
    page.get_by_role("searchbox").fill("gain")
    page.locator(".hits a").first.wait_for()
    return page


@pytest.mark.browser
@pytest.mark.parametrize("name", [FIRST, "index.html", "appendices/claims.html"])
def test_a_statement_is_found_from_every_page_by_all_its_names(opened: Any, name: str) -> None:
    page = searching(opened(name))
    queries = [
        "Fourth-root law",
        "fourth root",
        "FOURTH–ROOT",
        "prp-fourth-root",
        "@prp-fourth-root",
        "Proposition 4.1",
    ]
    queries += [
        "Prop. 4.1",
        "GLLM Prop. 7",
        "GLLM Proposition 7(iii)",
        "proved",
        r"\mathrm{BC}(\alpha, \tau)",
        "g_i = c",
    ]
    queries += ['"with equality exactly"', r"(\tau_i/\alpha_i)^{1/4}", "profiles equality", "4.1 law"]
    for query in queries:
        assert "prp-fourth-root" in found(page, query)[:1], query


@pytest.mark.browser
def test_a_formula_is_found_as_tex_as_letter_and_by_name(opened: Any) -> None:
    page = searching(opened())
    capital = found(page, r"\Lambda")
    assert {"def-gain", "prp-fourth-root", "eq-gain", "fig-gain", "sec-fourth-root"} <= set(capital)
    assert capital == found(page, "Λ") == found(page, "Lambda") == found(page, "lambda")
    assert found(page, r"\lambda") == []  # another letter
    assert found(page, r"\frac{\tau_i}{g_i^2}") == ["def-gain", "eq-gain"] == found(page, "tau_i/g_i²")
    roots = ["eq-expanded", "sec-need", "sec-fourth-root"]
    assert found(page, r"\sqrt{\alpha_i \tau_i}") == found(page, "√(α_i") == found(page, "sqrt(alpha_i") == roots
    assert found(page, r"\Lambda(g) \ge") == found(page, "Λ(g) >=") == found(page, "Λ(g)≥") == ["prp-fourth-root"]


@pytest.mark.browser
def test_the_best_hit_comes_first(opened: Any) -> None:
    page = searching(opened())
    assert found(page, "4.2")[:3] == ["prp-printed", "sec-fourth-root", "eq-expanded"]  # by number
    assert found(page, "gain")[0] == "def-gain"  # by name, then by what is said
    assert found(page, "sample complexity")[0] == "04-sample-complexity.html"
    assert found(page, "equation 4.1")[0] == "eq-gain"
    assert found(page, "eq-wide")[0] == "eq-wide"
    assert found(page, "refuted") == ["prp-printed"]
    assert found(page, "admissible refuted") == ["prp-printed"]
    assert found(page, "admissible grade") == ["prp-corrected", "prp-printed"]  # the first is named so
    assert found(page, "grade") != found(page, '"grade is a"') == ["sec-fourth-root"]
    assert found(page, "bitmap") == ["fig-pixel"]
    assert found(page, "smallest gain") == ["tbl-grades"]
    assert found(page, "Cauchy–Schwarz") == ["sec-fourth-root"]


@pytest.mark.browser
def test_a_hit_says_where_it_is_and_marks_the_words(opened: Any) -> None:
    page = searching(opened("index.html"))
    assert found(page, "profiles equality") == ["prp-fourth-root"]
    hit = page.locator(".hits li")
    assert hit.locator("a").inner_text() == "Proposition 4.1 Fourth-root law"
    assert hit.locator(".where").inner_text() == "Chapter 4 Sample complexity · GLLM Prop. 7(iii) · proved"
    assert hit.locator("mark").all_inner_texts() == ["profiles", "equality"]
    assert found(page, "Schwarz") == ["sec-fourth-root"]
    assert page.locator(".snippet").inner_text().startswith("… ")
    assert page.locator(".snippet mark").all_inner_texts() == ["Schwarz"]


@pytest.mark.browser
def test_what_is_not_there_is_said_and_counted(opened: Any) -> None:
    page = searching(opened())
    count = page.locator("dialog.search [role=status]")
    assert found(page, "gain zebra") == []
    assert count.inner_text() == "Nothing in the book holds “zebra”."
    assert found(page, "zebra okapi") == []
    assert count.inner_text() == "Nothing in the book holds “zebra” or “okapi”."
    assert found(page, "bitmap Cauchy") == []
    assert count.inner_text() == "Nothing holds all these words together. Fewer words find more."
    assert found(page, "bitmap") == ["fig-pixel"]
    assert count.inner_text() == "1 place"
    assert found(page, "  ") == []
    assert count.inner_text() == ""
    assert found(page, "[(\\") == []
    assert count.inner_text() == "Nothing in the book holds “[(\\”."


@pytest.mark.browser
def test_the_keyboard_leads_through_the_hits(opened: Any) -> None:
    page = searching(opened("index.html"))
    focus = "document.activeElement.hash ?? document.activeElement.type"
    assert len(found(page, "admissible grade")) == 2
    seen = []
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
        seen.append(page.evaluate(focus))
    first, second = "#prp-corrected", "#prp-printed"
    assert seen == [first, second, second, first, "search", "search", first, second]
    page.keyboard.press("Enter")
    page.wait_for_url("**/04-sample-complexity.html#prp-printed")
    page.keyboard.press("/")
    page.keyboard.type("def-gain")
    page.locator(".hits a").first.wait_for()
    page.keyboard.press("Enter")  # from the field: the best hit, here on this page
    page.wait_for_url("**/04-sample-complexity.html#def-gain")
    assert not page.locator("dialog.search").is_visible()


@pytest.mark.browser
def test_escape_clears_then_closes_and_the_slash_is_left_to_fields(opened: Any) -> None:
    page = searching(opened())
    page.keyboard.press("/")  # typed into the field
    field = page.get_by_role("searchbox")
    assert field.input_value() == "gain/"
    page.keyboard.press("Escape")
    assert (field.input_value(), page.locator(".hits li").count()) == ("", 0)
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.press("Escape")
    assert not page.locator("dialog.search").is_visible()
    assert page.evaluate("document.activeElement.tagName") == "BODY"
    page.keyboard.press("Control+/")
    assert not page.locator("dialog.search").is_visible()


@pytest.mark.browser
def test_the_index_comes_with_the_first_search_alone(opened: Any) -> None:
    page = opened("index.html")
    assert page.locator("#index").count() == 0
    page.evaluate("document.head.append = (script) => { window.waiting = script; }")  # still on its way
    page.keyboard.press("/")
    page.get_by_role("searchbox").fill("zebra")
    count = page.locator("dialog.search [role=status]")
    assert count.inner_text() == ""  # nothing is said to be missing
    page.evaluate("document.body.append(window.waiting)")
    page.get_by_text("Nothing in the book holds “zebra”.").wait_for()


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_finds_with_one_tap(opened: Any, scheme: str) -> None:
    page = opened(width=390, color_scheme=scheme, has_touch=True)
    page.get_by_role("button", name="Search").tap()
    assert found(page, "fourth-root")
    box = page.locator("dialog.search").bounding_box()
    assert (box["x"], box["width"], box["height"]) == (0, 390, 800)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("dialog.search").evaluate("e => e.scrollWidth <= e.clientWidth")
    page.locator(".hits li").first.tap()
    page.wait_for_url("**/04-sample-complexity.html#prp-fourth-root")
    assert not page.locator("dialog.search").is_visible()
    page.get_by_role("button", name="Search").tap()
    page.get_by_role("button", name="Close").tap()
    assert not page.locator("dialog.search").is_visible()


@pytest.mark.browser
def test_without_scripts_nothing_pretends_to_search(opened: Any) -> None:
    page = opened(java_script_enabled=False)
    assert page.get_by_role("button").count() == page.locator("dialog.search").count() == 0

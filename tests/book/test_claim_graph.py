"""What rests on what: the drawing shows all ancestors of a statement and no other, and the words below say the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gllm_lib.book.claim_graph import drawing, first_shown, graph_data, in_words, tree
from gllm_lib.book.html.render import render
from gllm_lib.book.project import BookError, open_project, read_registry
from gllm_lib.cli import main
from gllm_lib.proofs.claims import Registry, registry
from gllm_lib.proofs.status import Status, statuses
from tests.book.sample_site import sample_cells, write_site

CHAPTER = "04-sample-complexity"


def block(label: str, title: str, uses: str = "", extra: str = "") -> dict[str, str]:
    """Return a cell with one claim."""
    used = f' uses="{uses}"' if uses else ""
    return {"cell_type": "markdown", "source": f'::: {{#{label} .claim{extra} source="new"{used}}}\n## {title}\nx\n:::'}


CELLS = (
    block("def-a", r"Gain $\Lambda$"),
    block("cnj-b", "Assumption: calm", "def-a", " .assumption"),
    block("lem-c", "Lemma </script>", "def-a"),
    block("prp-d", "Result", "lem-c cnj-b"),
    block("prp-e", "Late", "prp-d def-a"),
    block("rem-alone", "Alone"),
)


@pytest.fixture(scope="module")
def small() -> Registry:
    return registry({"01-one": CELLS[:3], "02-two": CELLS[3:]})


def computed(claims: Registry, **words: str) -> Mapping[str, Status]:
    """Return the statuses without any run, some of them with another word."""
    given = {label.replace("_", "-"): Status(word, "", (), "") for label, word in words.items()}
    return {**statuses(claims, {}), **given}


@pytest.fixture(scope="module")
def whole(root: Path) -> Registry:
    return read_registry(open_project(root))


# the data, the words and the tree


def test_the_data_name_every_statement_with_relations(small: Registry) -> None:
    data: Any = graph_data(small, computed(small))
    assert [row[0] for row in data["claims"]] == ["def-a", "cnj-b", "lem-c", "prp-d", "prp-e"]
    assert data["claims"][0] == ["def-a", "Gain Λ", "defined", "defined", "01-one.html", []]
    assert data["claims"][3][4:] == ["02-two.html", [2, 1]]
    assert {row[2] for row in data["claims"]} <= set(data["signs"])
    assert len(set(data["signs"].values())) == len(data["signs"])  # a sign beside each colour


def test_the_data_of_the_book_lead_to_the_ancestors_of_the_registry(whole: Registry) -> None:
    rows: Any = graph_data(whole, statuses(whole, {}))["claims"]

    def reached(number: int) -> set[int]:
        return set().union(*({used} | reached(used) for used in rows[number][5]))

    assert len(rows) > 500
    for number, row in enumerate(rows):
        assert {rows[other][0] for other in reached(number)} == set(whole.ancestors(row[0])), row[0]


def test_the_drawing_opens_on_the_proved_statement_that_rests_on_most(small: Registry) -> None:
    assert first_shown(small, computed(small)) == "prp-e"
    assert first_shown(small, computed(small, prp_d="proved", lem_c="proved")) == "prp-d"
    assert first_shown(registry({}), {}) == ""


@pytest.mark.parametrize("name", ["Lemma </script>", "Lemma <!-- <script> of a comment", 'A "b" & \\ `c` é'])
def test_no_name_ends_the_data_or_hides_their_end(name: str) -> None:
    claims = registry({"01-one": [block("def-a", name), block("lem-b", "B", "def-a")]})
    found = re.search(r'id="claim-graph-data">(.*?)</script>', drawing(claims, computed(claims)))
    assert found
    assert json.loads(found[1])["claims"][0][1] == name
    assert "<" not in found[1]


def test_a_book_in_which_nothing_rests_on_anything_has_no_drawing() -> None:
    assert drawing(registry({}), {}) == ""
    alone = registry({"01-one": [block("def-a", "A")]})
    assert drawing(alone, computed(alone)) == ""


def test_each_statement_that_uses_others_is_told_in_words(small: Registry) -> None:
    text = in_words(small, computed(small, prp_d="proved"), lambda chapter: f"Chapter {chapter[:2]}")
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == [
        "Chapter 01 {.unnumbered}",
        "Chapter 02 {.unnumbered}",
    ]
    assert "- []{#on-lem-c}@lem-c Lemma </script>, *stated*, uses @def-a.\n" in text
    assert "- []{#on-prp-d}@prp-d Result, *proved*, uses @lem-c, @cnj-b; in all it rests on 3 statements. " in text
    assert text.count("Given @cnj-b.") == 2
    assert "on-def-a" not in text
    assert "rem-alone" not in text
    assert in_words(registry({}), {}, str) == "No statement rests on another."


def test_the_tree_unfolds_each_statement_once(small: Registry) -> None:
    assert list(tree(small, computed(small), "prp-e")) == [
        "prp-e, stated, given Assumption: calm: Late",
        "├─ prp-d, stated, given Assumption: calm: Result",
        "│  ├─ lem-c, stated: Lemma </script>",
        "│  │  └─ def-a, defined: Gain Λ",
        "│  └─ cnj-b, assumed: Assumption: calm",
        "│     └─ def-a, defined: Gain Λ",
        "└─ def-a, defined: Gain Λ",
    ]
    repeated = registry({"01-one": [*CELLS[:3], block("prp-d", "D", "lem-c"), block("prp-e", "E", "prp-d lem-c")]})
    assert list(tree(repeated, computed(repeated), "prp-e"))[-1] == "└─ lem-c, stated: Lemma </script> (as above)"


def test_the_command_prints_the_tree_of_the_book(
    root: Path, whole: Registry, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    assert main(["claims", "--graph", "prp-fourth-root"]) == 0
    shown = re.findall(r"^[│├└─ ]*((?:thm|lem|cor|prp|cnj|def|exm|rem)-[\w-]+),", capsys.readouterr().out, re.MULTILINE)
    assert set(shown) == {"prp-fourth-root", *whole.ancestors("prp-fourth-root")}
    assert main(["claims", "--graph", "prp-fourth-rot"]) == 1
    assert "did you mean prp-fourth-root?" in capsys.readouterr().err
    assert main(["claims", "--graph", ""]) == 1
    assert "no chapter states a claim without a label; 'gllm claims' lists the labels" in capsys.readouterr().err
    with pytest.raises(SystemExit):  # a tree is no list of objects
        main(["claims", "--graph", "prp-fourth-root", "--json"])


def test_a_tree_of_nothing_is_refused(small: Registry) -> None:
    with pytest.raises(BookError, match="no chapter states zzz; 'gllm claims' lists the labels"):
        list(tree(small, computed(small), "zzz"))


# the page


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample book with the page of the graph."""
    folder = tmp_path_factory.mktemp("book")
    site = write_site(folder / "site")
    claims = registry({CHAPTER: sample_cells()})
    words = in_words(claims, computed(claims), str)
    page = f"# Claim graph {{#sec-graph}}\n\n{drawing(claims, computed(claims))}\n\n## In words\n\n{words}\n"
    (site / "chapters/D-claim-graph.qmd").write_text(page)
    config = site / "_quarto.yml"
    config.write_text(config.read_text().replace("  appendices: [", "  appendices: [chapters/D-claim-graph.qmd, "))
    render(site, folder / "_book")
    return folder / "_book"


def test_a_statement_that_uses_others_leads_to_its_graph(book: Path) -> None:
    text = (book / f"chapters/{CHAPTER}.html").read_text()
    links = re.findall(r'href="D-claim-graph.html#on-([\w-]+)"[^>]*>What it rests on</a>', text)
    assert links == ["prp-fourth-root", "prp-corrected"]
    page = (book / "chapters/D-claim-graph.html").read_text()
    assert all(f'id="on-{label}"' in page for label in links)


def test_the_words_are_not_found_twice_by_the_search(book: Path) -> None:
    index = (book / "assets/index.js").read_text()
    assert "In words" in index
    assert "in all it rests on" not in index


def shown(page: Any) -> list[str]:
    """Return the labels of the statements that are drawn, top to bottom."""
    return list(page.locator(".graph-node > a").evaluate_all("all => all.map(a => a.hash.slice(1))"))


DRAW_ALL = """(way) => {
  const field = document.querySelector("#claim-graph input[list]");
  const { claims } = JSON.parse(document.getElementById("claim-graph-data").textContent);
  document.querySelector(`#claim-graph input[value=${way}]`).click();
  return claims.map(([id]) => {
    field.value = id;
    field.dispatchEvent(new Event("change"));
    const labels = (where) => [...document.querySelectorAll(where)].map((a) => a.hash.slice(1));
    const boxes = [...document.querySelectorAll(".graph-node")].map((box) => box.getBoundingClientRect());
    const meets = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    return [id, labels(".graph-node > a"), document.querySelectorAll("#claim-graph path").length,
      labels(".graph-rest a"), boxes.some((a, k) => boxes.slice(k + 1).some((b) => meets(a, b)))];
  });
}"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
def test_what_is_drawn_are_the_ancestors_for_every_statement_of_the_book(
    opened: Any, whole: Registry, tmp_path: Path, width: int
) -> None:
    html = drawing(whole, statuses(whole, {})).removeprefix("```{=html}").removesuffix("```")
    (tmp_path / "graph.html").write_text(f"<!DOCTYPE html><meta charset=utf-8><main>{html}</main>", encoding="utf-8")
    page = opened((tmp_path / "graph.html").as_uri(), width)
    drawn = page.evaluate(DRAW_ALL, "on")
    assert len(drawn) > 500
    for label, nodes, lines, rest, overlap in drawn:
        family = {label, *whole.ancestors(label)}
        assert nodes[0] == label
        assert (len(nodes), set(nodes), rest, overlap) == (len(family), family, [], False), label
        assert lines == sum(len(set(whole.claims[one].uses)) for one in family), label
    for label, nodes, _, rest, overlap in page.evaluate(DRAW_ALL, "for"):
        resting = [label, *(one for one in whole.claims if label in whole.ancestors(one))]
        assert sorted(nodes + rest) == sorted(resting), label
        assert len(nodes) <= 30
        assert not overlap, label


@pytest.mark.browser
def test_the_graph_opens_on_a_result_and_on_the_one_that_was_asked_for(opened: Any, book: Path) -> None:
    address = (book / "chapters/D-claim-graph.html").as_uri()
    page = opened(address)
    assert shown(page) == ["prp-corrected", "prp-fourth-root", "def-gain"]
    assert page.locator(".chosen > a").inner_text() == "Proposition 4.3"
    chapter = opened((book / f"chapters/{CHAPTER}.html").as_uri(), 390, has_touch=True)
    chapter.locator("#prp-fourth-root").get_by_role("link", name="What it rests on").tap()  # leads there at once
    chapter.wait_for_url("**/D-claim-graph.html#on-prp-fourth-root")
    chapter.wait_for_function("Math.abs(document.getElementById('claim-graph').getBoundingClientRect().top) < 100")
    assert shown(chapter) == ["prp-fourth-root", "def-gain"]
    told = "Proposition 4.1 Fourth-root law: stated. It rests on 1 statement."
    assert chapter.get_by_role("status").filter(has_text="rests").inner_text() == told


@pytest.mark.browser
def test_a_name_draws_a_number_leads_and_the_way_back_is_kept(opened: Any, book: Path) -> None:
    page = opened((book / "chapters/D-claim-graph.html").as_uri())
    page.get_by_role("button", name="Gain").click()
    assert shown(page) == ["def-gain"]
    assert page.url.endswith("#on-def-gain")
    assert page.evaluate("document.activeElement.textContent") == "Gain"
    page.get_by_label("what rests on it").check()
    assert shown(page) == ["def-gain", "prp-fourth-root", "prp-corrected"]
    assert page.url.endswith("#for-def-gain")
    page.go_back()
    page.wait_for_function("document.querySelectorAll('.graph-node').length === 1")
    page.go_back()
    page.wait_for_function("document.querySelectorAll('.graph-node').length === 3")
    page.get_by_role("link", name="Definition 4.1").first.click()
    page.wait_for_url(f"**/{CHAPTER}.html#def-gain")


@pytest.mark.browser
def test_a_statement_is_chosen_by_number_name_or_label(opened: Any, book: Path) -> None:
    page = opened((book / "chapters/D-claim-graph.html").as_uri())
    field = page.get_by_label("Statement, by number, name or label")
    assert page.locator("datalist option").evaluate_all("all => all.map(o => o.value)") == [
        "Definition 4.1 Gain",
        "Proposition 4.1 Fourth-root law",
        "Proposition 4.3 Admissible cone",
    ]
    for typed in ("Proposition 4.1 Fourth-root law", "@prp-fourth-root", "proposition 4.1", "fourth"):
        field.fill("def-gain")
        field.press("Enter")
        assert shown(page)[0] == "def-gain"
        field.fill(typed)
        field.press("Enter")
        assert shown(page)[0] == "prp-fourth-root", typed
    field.fill("zebra")
    field.press("Enter")
    assert "is called “zebra”" in page.locator(".graph-told").inner_text()


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_drawing_stays_in_its_frame_and_is_reached_by_keyboard(opened: Any, book: Path, scheme: str) -> None:
    page = opened((book / "chapters/D-claim-graph.html").as_uri(), 390, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.get_by_role("region", name="What Proposition 4.3 rests on").get_attribute("tabindex") == "0"
    page.locator(".graph-frame").focus()
    reached = []
    for _ in range(4):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent"))
    assert reached == ["Proposition 4.3", "Admissible cone", "Proposition 4.1", "Fourth-root law"]
    assert page.locator("path.lit").count() == 2  # what the statement in focus uses, and what uses it
    assert page.locator(".graph-status").all_inner_texts() == ["○ stated", "○ stated", "≔ defined"]


@pytest.mark.browser
def test_without_scripts_the_words_are_there(opened: Any, book: Path) -> None:
    page = opened((book / "chapters/D-claim-graph.html").as_uri() + "#on-prp-corrected", java_script_enabled=False)
    item = page.locator("li", has=page.locator("#on-prp-corrected"))
    told = item.inner_text().replace("\u00a0", " ")
    assert told == "Proposition 4.3 Admissible cone, stated, uses Definition 4.1, Proposition 4.1."
    assert page.locator(".graph-node").count() == 0

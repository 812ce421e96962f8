"""Reading the real book: by keyboard, by search, by previews, on paper's terms and without scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.pages.conftest import Visitor

pytestmark = pytest.mark.browser

CHAPTER = "chapters/04-sample-complexity.html"
SHORT = "chapters/14-few-runs.html"
MANY = 200  # stops: as far as the tab key is pressed on a page that has more
TABBED = ("index.html", SHORT, "chapters/D-claim-graph.html", "chapters/E-notation.html")


@pytest.fixture
def window(visitor: Callable[..., Visitor]) -> Visitor:
    return visitor(1280)


def tabbed(page: Any) -> tuple[list[str], list[Any]]:
    """Press Tab as often as the open page has stops, and return the names of the stops and what was visited."""
    stops = page.evaluate("questions.stops()")[:MANY]
    for _ in stops:
        page.keyboard.press("Tab")
    return stops, page.evaluate("visited")


@pytest.mark.parametrize("name", TABBED)
def test_the_tab_key_visits_everything_once_and_in_order(window: Visitor, name: str) -> None:
    stops, visited = tabbed(window.open(name))
    assert len(stops) > 40
    assert visited == list(range(len(stops)))


def test_a_key_that_is_caught_is_noticed(window: Visitor) -> None:
    page = window.open(SHORT)
    page.locator("#content a").nth(3).evaluate(
        "e => e.addEventListener('keydown', (event) => { if (event.key === 'Tab') event.preventDefault(); })"
    )
    stops, visited = tabbed(page)
    assert len(visited) < len(stops)


def test_the_first_key_skips_to_the_text(window: Visitor) -> None:
    page = window.open(CHAPTER)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the text"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("Boolean(document.activeElement.closest('main'))")


def test_the_contents_open_and_close_by_keyboard_on_a_phone(visitor: Callable[..., Visitor]) -> None:
    page = visitor(390).open(CHAPTER)
    sidebar = page.locator("#sidebar")
    assert not sidebar.is_visible()
    page.get_by_role("link", name="Contents", exact=True).focus()
    page.keyboard.press("Enter")
    sidebar.wait_for(state="visible")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Close the contents"
    page.keyboard.press("Enter")
    sidebar.wait_for(state="hidden")


@pytest.mark.parametrize("typed", ["fourth-root law", "prp-fourth-root", r"c(\alpha_j/\tau_j)^{1/4}"])
def test_a_claim_is_found_by_its_name_its_label_and_its_mathematics(window: Visitor, typed: str) -> None:
    page = window.open("index.html")
    page.keyboard.press("/")
    page.get_by_role("searchbox").fill(typed)
    link = page.locator(".hits a[href$='#prp-fourth-root']")
    link.wait_for()
    link.press("Enter")
    page.wait_for_url("**/04-sample-complexity.html#prp-fourth-root")
    assert page.locator("#prp-fourth-root").evaluate("e => e.getBoundingClientRect().top < innerHeight")


@pytest.mark.parametrize("way", ["hover", "focus"])
def test_a_reference_to_another_page_shows_its_mathematics(window: Visitor, way: str) -> None:
    page = window.open("chapters/18-what-a-run-sees.html")
    reference = page.locator("main p a.ref[href*='.html#prp-']:visible, main p a.ref[href*='.html#thm-']:visible").first
    getattr(reference, way)()
    if way == "focus":  # a reader comes with the keyboard
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Tab")
    card = page.locator("#book-preview")
    card.wait_for(state="visible")
    sizes = card.locator("math").evaluate_all("all => all.map(e => e.getBoundingClientRect().height)")
    assert sizes
    assert min(sizes) > 5
    page.keyboard.press("Escape")
    card.wait_for(state="hidden")


def test_a_chapter_reads_without_scripts(visitor: Callable[..., Visitor]) -> None:
    page = visitor(390, java_script_enabled=False).open(CHAPTER)
    assert page.locator("h1").is_visible()
    assert page.locator("#prp-fourth-root math").first.bounding_box()["height"] > 5
    assert page.locator("figure svg").first.bounding_box()["height"] > 100
    folded = page.locator("details.imports").first
    assert not folded.locator("pre").is_visible()
    folded.locator("summary").click()
    assert folded.locator("pre").is_visible()
    page.get_by_role("link", name="Contents", exact=True).click()
    page.locator("#sidebar").get_by_role("link", name=re.compile("Choosing grades")).first.click()
    page.wait_for_url("**/07-choosing-grades.html")


def test_a_reader_with_a_phone_finds_a_claim_sees_its_proof_and_ancestors_and_takes_the_notebook(
    visitor: Callable[..., Visitor],
) -> None:
    page = visitor(390, has_touch=True, is_mobile=True).open("index.html")
    page.get_by_role("button", name="Search").tap()
    page.get_by_role("searchbox").fill("fourth-root law")
    page.locator(".hits a[href$='#prp-fourth-root']").tap()
    page.wait_for_url("**/04-sample-complexity.html#prp-fourth-root")
    claim = page.locator("#prp-fourth-root")
    code = claim.locator(".checks a").first
    code.tap()
    card = page.locator("#book-preview")
    card.wait_for()
    assert "@evidence" in card.inner_text()
    page.go_back()
    card.wait_for(state="hidden")
    assert page.url.endswith("#prp-fourth-root")
    link = page.locator(".downloads a[download]").first
    notebook = Path(unquote(urlsplit(link.evaluate("e => e.href")).path))
    assert len(json.loads(notebook.read_text())["cells"]) > 20
    claim.get_by_role("link", name="What it rests on").tap()
    page.wait_for_url("**/D-claim-graph.html#on-prp-fourth-root")
    drawn = page.locator(".graph-node")
    drawn.first.wait_for()
    assert drawn.count() > 1
    assert page.locator(".graph-node.chosen").inner_text().startswith("Proposition 4.")

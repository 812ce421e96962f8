"""What a reference shows before it is followed: what the renderer stores, and what mouse, keyboard and touch show."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from gllm_lib.book.html.pages import RenderError
from gllm_lib.book.html.previews import block, previews
from gllm_lib.book.html.render import render
from tests.book.sample_site import FIRST, write_site

SECOND = "chapters/07-choosing-grades.html"
CARD = "#book-preview"


def test_only_what_another_page_refers_to_is_stored() -> None:
    first = '<div id="a"><div>x</div></div><p id="b">y</p><a href="#b">b</a><span id="c"></span>'
    second = '<a class="ref" href="../one/first.html#a">A</a><a href="../one/first.html#c">C</a>'
    scripts = previews({PurePosixPath("one/first.html"): first, PurePosixPath("two/second.html"): second})
    assert list(scripts) == [PurePosixPath("one/first.html")]
    script = scripts[PurePosixPath("one/first.html")]
    assert script.startswith('(window.bookPreviews ??= {})["one/first.html"] = ')
    assert json.loads(script.split(" = ", 1)[1].rstrip(";\n")) == {"a": '<div id="a"><div>x</div></div>'}


def test_a_link_out_of_the_book_is_left_to_the_check_of_links(tmp_path: Path) -> None:
    content = '<a href="missing.html#a">x</a> <a href="../../outside.html#a">y</a>'
    assert previews({PurePosixPath("index.html"): content}) == {}
    site = write_site(tmp_path / "site")
    page = site / "index.qmd"
    page.write_text(page.read_text() + "\n[away](missing.html#a)\n")
    with pytest.raises(RenderError, match=r"index: unresolved reference, a link to missing\.html#a"):
        render(site, tmp_path / "_book")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('<p>o</p><figure id="x" class="f"><p>a</p></figure><p>b</p>', '<figure id="x" class="f"><p>a</p></figure>'),
        ('<h2 id="x">T <a>1</a></h2>\n<p>One.</p><p>Two.</p>', '<h2 id="x">T <a>1</a></h2><p>One.</p>'),
        ('<h2 id="x">T</h2><h3 id="y">U</h3><p>Not its own.</p>', '<h2 id="x">T</h2>'),
        ('<div id="xx">n</div>', ""),
        ('<code>&lt;p id="x"&gt;</code><p class="a" id="x">y</p>', '<p class="a" id="x">y</p>'),
    ],
)
def test_a_block_is_its_element_and_a_heading_has_its_first_paragraph(content: str, expected: str) -> None:
    assert block(content, "x") == expected


def reference(page: Any, target: str) -> Any:
    return page.locator(f'main a[href$="{target}"]:not(.number):not({CARD} a)').first


@pytest.mark.browser
@pytest.mark.parametrize(("name", "where"), [(FIRST, "#prp-fourth-root"), (SECOND, f"{FIRST[9:]}#prp-fourth-root")])
def test_a_claim_is_shown_with_its_mathematics_here_and_from_another_page(opened: Any, name: str, where: str) -> None:
    page = opened(name)
    reference(page, where).hover()
    card = page.locator(CARD)
    card.wait_for()
    assert card.get_by_text("Fourth-root law").is_visible()
    assert card.get_by_text("exact over the whole domain").is_visible()
    assert card.locator("math").evaluate_all("all => all.every(e => e.getBoundingClientRect().height > 5)")
    assert card.locator("math").count() >= 3
    assert (
        page.evaluate(
            "(([...ids]) => ids.length - new Set(ids).size)([...document.querySelectorAll('[id]')].map(e => e.id))"
        )
        == 0
    )
    assert {link.split("#")[0] for link in card.locator("a").evaluate_all("all => all.map(e => e.href)")} == {
        page.url.split("#")[0].replace(name, FIRST)
    }


@pytest.mark.browser
@pytest.mark.parametrize(
    ("name", "target", "inside"),
    [
        (FIRST, "#eq-gain", "math"),
        (SECOND, "#eq-gain", "math"),
        (FIRST, "#fig-gain", "svg text"),
        (FIRST, "#tbl-grades", "td math"),
        (FIRST, "#ref-bartlett2002rademacher", "text=Structural Results"),
        (FIRST, "#sec-choosing", "text=uncertain target"),
        (FIRST, "#check-no_grades_beat_the_affinity", "text=def"),
        ("index.html", "#sec-sample-complexity", "text=How many examples"),
        (FIRST, "#fn1", "text=With a reference to"),
    ],
)
def test_every_kind_of_target_is_shown(opened: Any, name: str, target: str, inside: str) -> None:
    page = opened(name)
    reference(page, target).hover()
    page.locator(f"{CARD} >> {inside}").first.wait_for()
    assert page.locator(f"{CARD} :is(h1, h2, h3, .copy)").count() == 0


@pytest.mark.browser
def test_it_stays_under_the_pointer_and_goes_with_it_or_with_escape(opened: Any) -> None:
    page = opened(FIRST)
    card = page.locator(CARD)
    reference(page, "#eq-gain").hover()
    card.wait_for()
    card.hover()
    page.wait_for_timeout(600)
    assert card.is_visible()
    page.locator("h1").hover()
    card.wait_for(state="hidden")
    reference(page, "#eq-gain").hover()
    card.wait_for()
    page.keyboard.press("Escape")
    assert card.is_hidden()


@pytest.mark.browser
def test_the_keyboard_alone_opens_enters_and_closes_it(opened: Any) -> None:
    page = opened(SECOND)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skip to the text
    page.keyboard.press("Tab")
    card = page.locator(CARD)
    card.wait_for()
    assert page.evaluate("document.activeElement.getAttribute('aria-details')") == "book-preview"
    assert card.get_attribute("aria-label") == "Preview of Proposition\u00a04.1"
    page.keyboard.press("Tab")
    assert page.evaluate(f"document.querySelector('{CARD}').contains(document.activeElement)")
    page.keyboard.press("Escape")
    assert card.is_hidden()
    assert page.evaluate("document.activeElement.textContent") == "Proposition\u00a04.1"
    page.keyboard.press("Enter")
    page.wait_for_url("**/04-sample-complexity.html#prp-fourth-root")


@pytest.mark.browser
def test_a_first_tap_shows_and_a_second_follows(opened: Any) -> None:
    page = opened(SECOND, 360, has_touch=True, is_mobile=True)
    card, link = page.locator(CARD), reference(page, "#prp-fourth-root")
    link.tap()
    card.wait_for()
    assert page.url.endswith(SECOND)
    assert card.get_by_role("link", name="Go to Proposition\u00a04.1").is_visible()
    box = card.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator("h1").tap()
    card.wait_for(state="hidden")
    link.tap()
    card.wait_for()
    link.tap()
    page.wait_for_url("**/04-sample-complexity.html#prp-fourth-root")


@pytest.mark.browser
@pytest.mark.parametrize(
    "target", ["#prp-fourth-root", "#check-no_grades_beat_the_affinity", "#tbl-grades", "#eq-gain"]
)
def test_an_open_preview_has_no_accessibility_violation(opened: Any, target: str) -> None:
    page = opened(FIRST)
    reference(page, target).focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")  # focus that shows
    page.locator(CARD).wait_for()
    found = Axe().run(page, options={"preload": False}).response["violations"]
    assert [(item["id"], [part["html"] for part in item["nodes"]]) for item in found] == []


@pytest.mark.browser
def test_the_way_on_from_a_long_preview_is_in_sight(opened: Any) -> None:
    page = opened(FIRST, 360, has_touch=True, is_mobile=True)
    reference(page, "#check-no_grades_beat_the_affinity").tap()
    page.locator(CARD).evaluate("e => { e.style.maxHeight = '8rem'; }")
    way, card = (page.locator(part).bounding_box() for part in (f"{CARD} .goto a", CARD))
    assert card["y"] < way["y"] < way["y"] + way["height"] <= card["y"] + card["height"]


@pytest.mark.browser
def test_the_link_of_a_preview_leads_on(opened: Any) -> None:
    page = opened(SECOND, 390, has_touch=True, is_mobile=True)
    reference(page, "#eq-gain").tap()
    page.get_by_role("link", name="Go to Equation").tap()
    page.wait_for_url("**/04-sample-complexity.html#eq-gain")


@pytest.mark.browser
def test_the_light_of_the_page_is_that_of_its_previews(opened: Any) -> None:
    page = opened(FIRST, color_scheme="dark")
    reference(page, "#prp-fourth-root").hover()
    page.locator(CARD).wait_for()
    shade = "e => getComputedStyle(e).backgroundColor"
    assert page.locator(CARD).evaluate(shade) == page.locator("body").evaluate(shade) != "rgb(255, 255, 255)"
    page.emulate_media(media="print")
    assert page.locator(CARD).is_hidden()


@pytest.mark.browser
def test_without_scripts_a_reference_is_a_link_with_a_title(opened: Any) -> None:
    page = opened(SECOND, java_script_enabled=False)
    link = reference(page, "#prp-fourth-root")
    assert link.get_attribute("title") == "Fourth-root law"
    link.click()
    assert page.url.endswith("04-sample-complexity.html#prp-fourth-root")


@pytest.mark.browser
def test_the_code_of_a_check_is_one_click_away_even_when_code_is_hidden(opened: Any) -> None:
    page = opened(FIRST)
    page.get_by_role("button", name="Hide code").click()
    check = page.locator("pre", has_text="def no_grades_beat_the_affinity").first
    assert check.is_hidden()
    reference(page, "#check-no_grades_beat_the_affinity").click()
    assert check.is_visible()
    page.locator("#check-no_grades_beat_the_affinity .back a").click()
    page.wait_for_url("**#prp-fourth-root")
    assert check.is_hidden()


@pytest.mark.browser
def test_a_figure_in_a_preview_is_clipped_by_its_own_paths(opened: Any) -> None:
    page = opened(FIRST)
    reference(page, "#fig-gain").hover()
    clipped = page.locator(f"{CARD} [clip-path]")
    clipped.first.wait_for(state="attached")
    names = clipped.evaluate_all("all => all.map(e => e.getAttribute('clip-path').slice(5, -1))")
    assert all(page.locator(f"{CARD} [id='{name}']").count() == 1 for name in set(names))
    assert page.locator(f"{CARD} svg").bounding_box()["width"] > 300


@pytest.mark.browser
def test_a_reference_that_is_folded_away_meanwhile_shows_nothing(opened: Any) -> None:
    page = opened(FIRST)
    link = reference(page, "#fig-gain")
    link.evaluate("e => { e.focus({ focusVisible: true }); e.style.display = 'none'; }")
    page.wait_for_timeout(600)  # more than the moment before a preview opens
    assert not page.locator(CARD).is_visible()

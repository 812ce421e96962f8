"""Figures, code and addresses where the page is narrow and there is no pointer to hover with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.book.sample_site import FIRST

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def test_the_smallest_letters_of_a_figure_stay_legible_and_it_scrolls(opened: Any) -> None:
    page = opened(**PHONE)
    letters = page.locator("#fig-gain text").evaluate_all(
        """all => all.map(e => { const m = e.getScreenCTM();
          return parseFloat(getComputedStyle(e).fontSize) * Math.hypot(m.a, m.b); })"""
    )
    assert min(letters) == pytest.approx(9, abs=0.1)
    frame = page.locator("#fig-gain .plot-frame")
    assert frame.evaluate("e => [e.scrollWidth > e.clientWidth, e.tabIndex, e.role]") == [True, 0, "group"]
    assert frame.bounding_box()["width"] == 390
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("where", ["#fig-gain .enlarge", "#fig-gain .plot-frame"])
def test_a_tap_shows_the_whole_figure_along_the_long_side(opened: Any, where: str) -> None:
    page = opened(**PHONE)
    below = "document.getElementById('tbl-grades').getBoundingClientRect().top + scrollY"
    before = page.evaluate(below)
    page.locator(where).tap()
    alone = page.locator("dialog.alone svg")
    alone.wait_for()
    box = alone.bounding_box()
    assert box["height"] > 700 > 390 >= box["x"] + box["width"]
    page.get_by_role("button", name="Close").tap()
    page.locator("#fig-gain svg").wait_for()
    assert page.locator("dialog.alone svg").count() == 0
    assert page.evaluate(below) == before


def test_a_figure_that_fits_offers_no_larger_one(opened: Any) -> None:
    page = opened(viewport={"width": 1280, "height": 800})
    assert page.get_by_role("button", name="Larger").count() == 0
    page.locator("#fig-gain svg").click()
    assert not page.locator("dialog.alone").is_visible()


def test_code_is_copied_by_touch_and_the_button_covers_none_of_it(opened: Any) -> None:
    page = opened(**PHONE, permissions=["clipboard-read", "clipboard-write"])
    button = page.locator(".code", has_text="def no_grades_beat_the_affinity").locator(".copy")
    assert button.evaluate("e => getComputedStyle(e).opacity") == "1"
    covered = """e => { const b = e.getBoundingClientRect(), r = document.createRange();
      r.selectNodeContents(e.parentElement.querySelector("pre"));
      const letters = [...r.getClientRects()].filter(c => c.width && c.height < 30);
      return letters.some(c => c.right > b.left && c.top < b.bottom - 1); }"""
    assert not button.evaluate(covered)
    button.tap()
    page.get_by_text("Copied").wait_for()
    assert "def no_grades_beat_the_affinity" in page.evaluate("navigator.clipboard.readText()")


def test_the_number_of_a_formula_stands_below_one_that_needs_the_line(opened: Any) -> None:
    def below(page: Any) -> bool:
        formula, number = (page.locator(f"#eq-wide {part}").bounding_box() for part in (".scroll", ".number"))
        return bool(number["y"] >= formula["y"] + formula["height"])

    assert below(opened(**PHONE))
    page = opened(viewport={"width": 1280, "height": 800})
    formula, number = (page.locator(f"#eq-gain {part}").bounding_box() for part in (".scroll", ".number"))
    assert formula["y"] < number["y"] < formula["y"] + formula["height"]


@pytest.mark.parametrize("place", ["prp-fourth-root", "eq-gain", "fig-gain", "sec-fourth-root"])
def test_a_click_on_a_number_copies_its_address(opened: Any, place: str) -> None:
    page = opened(permissions=["clipboard-read", "clipboard-write"])
    number = page.locator(f'#{place} a.number[href="#{place}"]')
    number.hover()
    assert number.evaluate("e => getComputedStyle(e, '::before').opacity") == "1"
    number.click()
    page.locator("a[data-copied]").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    assert page.url.endswith(f"#{place}")


def test_contents_and_search_stay_in_reach_and_cover_nothing_one_goes_to(opened: Any) -> None:
    page = opened(**PHONE)
    page.evaluate("location.hash = '#prp-corrected'")
    page.wait_for_function("document.querySelector('#prp-corrected').getBoundingClientRect().top < 200")
    bar = page.locator(".bar").bounding_box()
    assert (bar["y"], bar["height"] < 60) == (0, True)
    assert page.locator("#prp-corrected").bounding_box()["y"] >= bar["height"]
    for name in ("Contents", "Search"):
        assert page.locator(".bar").get_by_text(name, exact=True).is_visible()


@pytest.mark.parametrize("how", ["tap", "Escape"])
def test_the_contents_hold_the_sections_and_closing_them_leads_back(opened: Any, how: str) -> None:
    page = opened(**PHONE)
    page.evaluate("scrollTo(0, 1500)")
    page.touchscreen.tap(40, 24)
    section = page.locator("#sidebar").get_by_role("link", name="The fourth-root law")
    section.wait_for()
    if how == "tap":
        page.get_by_text("Close the contents").tap()
    else:
        page.keyboard.press("Escape")
    section.wait_for(state="hidden")
    assert page.evaluate("[scrollY, document.activeElement.className]") == [1500, "menu"]
    page.touchscreen.tap(40, 24)
    section.tap()
    section.wait_for(state="hidden")
    heading = page.locator("#sec-fourth-root").bounding_box()["y"]
    assert page.locator(".bar").bounding_box()["height"] <= heading < 200


def covered(page: Any, what: str) -> Any:
    """Open what lies over the text, by touch, and return it."""
    if what == "preview":
        page.locator("#prp-corrected a.ref").first.tap()
        found = page.locator("#book-preview")
    elif what == "search":
        page.get_by_role("button", name="Search").tap()
        found = page.locator("dialog.search")
    else:
        page.locator("#fig-gain .enlarge").tap()
        found = page.locator("dialog.alone")
    found.wait_for()
    return found


@pytest.mark.parametrize("what", ["preview", "search", "figure"])
def test_back_closes_what_lies_over_the_text_and_then_leaves(opened: Any, what: str) -> None:
    opened("index.html", **PHONE)
    page = opened(**PHONE)
    for _ in range(2):  # the second has no other place in the history than the first
        found = covered(page, what)
        page.evaluate("scrollBy(0, 40)")
        place = page.evaluate("scrollY")
        page.go_back()
        found.wait_for(state="hidden")
        assert page.url.endswith(FIRST)
        assert page.evaluate("scrollY") == place
    page.go_back()
    page.wait_for_url("**/index.html")


@pytest.mark.parametrize("what", ["preview", "search", "figure"])
def test_back_passes_over_what_was_closed_by_hand(opened: Any, what: str) -> None:
    opened("index.html", **PHONE)
    page = opened(**PHONE)
    for _ in range(2):
        found = covered(page, what)
        if what == "preview":
            page.locator("h2").first.tap()
        else:
            found.get_by_role("button", name="Close").tap()
        found.wait_for(state="hidden")
    page.go_back()
    page.wait_for_url("**/index.html")


def test_back_from_where_a_preview_led_returns_to_its_reference(opened: Any) -> None:
    page = opened("chapters/07-choosing-grades.html", **PHONE)
    page.locator("a.ref[href$='#eq-gain']").first.tap()
    page.get_by_role("link", name="Go to Equation").tap()
    page.wait_for_url("**#eq-gain")
    page.go_back()
    page.wait_for_url("**/07-choosing-grades.html")
    assert page.locator("#book-preview").is_hidden()
    page.locator("a.ref[href$='#eq-gain']").first.tap()
    page.locator("#book-preview").wait_for()
    page.go_back()
    page.locator("#book-preview").wait_for(state="hidden")
    assert page.url.endswith("07-choosing-grades.html")


def test_the_first_page_says_what_the_book_is_before_it_lists_its_chapters(opened: Any) -> None:
    page = opened("index.html", **PHONE)
    words, contents = (page.locator(part).bounding_box()["y"] for part in ("main > p >> nth=0", ".contents"))
    assert words < contents


def test_a_displayed_formula_breaks_where_it_must_and_only_there(opened: Any) -> None:
    below = "([a, b]) => b.getBoundingClientRect().top >= a.getBoundingClientRect().bottom"
    fits = "e => e.scrollWidth <= e.clientWidth"
    for width, expected in ((1280, False), (220, True)):
        page = opened(viewport={"width": width, "height": 800})
        assert page.locator("#eq-gain .scroll").evaluate(fits)
        assert page.locator("#eq-gain .clause > span").evaluate_all(below) is expected
    apart = page.locator("#eq-expanded .alignment > :nth-child(4) .clause > span").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect()).map(r => [r.left, r.top])"
    )
    assert apart[0][0] == apart[1][0]  # the second relation of a line goes below the first
    assert apart[0][1] < apart[1][1]


def roles(page: Any, *wanted: str) -> list[tuple[str, str]]:
    """Return role and name of what assistive software is told of the page, for some roles."""
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    told = [(node["role"]["value"], node["name"]["value"]) for node in nodes if not node["ignored"] and "name" in node]
    return [one for one in told if one[0] in wanted]


def test_a_table_of_words_becomes_cards_and_stays_a_table(opened: Any) -> None:
    page = opened("appendices/claims.html", **PHONE)
    cards = page.locator("table.cards")
    assert cards.count() == 1  # the tables of short cells are read as they are
    assert cards.evaluate("e => e.parentElement.scrollWidth <= e.parentElement.clientWidth")
    tag, words = (cards.locator(f"tbody td >> nth={k}").bounding_box() for k in (0, 1))
    assert words["y"] >= tag["y"] + tag["height"]
    assert (
        cards.locator("tbody td")
        .last.evaluate("e => getComputedStyle(e, '::before').content")
        .startswith('"What it stands for"')
    )
    told = roles(page, "table", "row", "cell", "columnheader")
    wide = opened("appendices/claims.html", 1280)
    assert told == roles(wide, "table", "row", "cell", "columnheader")
    assert ("columnheader", "What it stands for") in told
    assert sum(role == "cell" for role, _ in told) == page.locator("td").count() > 6


def test_what_one_taps_has_room(opened: Any) -> None:
    page = opened(**PHONE)
    size = "all => all.map(e => e.getBoundingClientRect()).filter(r => r.height).map(r => r.height)"
    assert min(page.locator(".bar .menu, button:not(.copy)").evaluate_all(size)) >= 38
    apart = page.locator(".claim-foot p, .evidence summary, .back p").evaluate_all(
        "all => all.map(e => parseFloat(getComputedStyle(e).lineHeight))"
    )
    assert min(apart) >= 24
    button = page.locator(".copy:visible").first
    button.scroll_into_view_if_needed()
    box = button.bounding_box()
    page.touchscreen.tap(box["x"] - 10, box["y"] + box["height"] + 6)
    page.wait_for_function("[...document.querySelectorAll('.copy')].some(e => e.textContent !== 'Copy')")

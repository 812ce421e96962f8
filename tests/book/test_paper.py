"""A chapter on paper: everything folded is open, nothing to press, nothing cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.book.sample_site import FIRST

pytestmark = pytest.mark.browser

PAPER = 672  # CSS pixels between the margins of an A4 page


@pytest.fixture(scope="module")
def printed(browser: Any, book: Path) -> Any:
    """The first chapter as it is laid out for paper, after the event that a browser sends before printing."""
    page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="dark")
    page.goto((book / FIRST).as_uri())
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.set_viewport_size({"width": PAPER, "height": 950})
    page.emulate_media(media="print")
    yield page
    page.close()


def test_what_is_folded_is_open_and_nothing_is_to_press(printed: Any) -> None:
    closed = printed.locator("details").evaluate_all(
        "all => all.filter(e => !e.lastElementChild.checkVisibility()).length"
    )
    assert printed.locator("details").count() >= 4
    assert closed == 0
    assert printed.locator("button >> visible=true").count() == 0
    assert printed.get_by_text("make lab").is_hidden()
    assert printed.get_by_text("Executed in 12 s").is_visible()


def test_nothing_is_cut_off(printed: Any) -> None:
    for kind in ("math", "svg", "table", ".line", "p"):
        right = printed.locator(f"main {kind}").evaluate_all(
            "all => Math.max(...all.map(e => e.getBoundingClientRect().right))"
        )
        assert 0 < right <= PAPER + 1, kind
    assert printed.locator("#eq-wide .scroll").evaluate("e => e.scrollWidth <= e.clientWidth + 1")


def test_paper_is_white_and_its_figures_too(printed: Any) -> None:
    assert printed.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert printed.locator("#fig-gain svg path").first.evaluate("e => getComputedStyle(e).fill") == "rgb(255, 255, 255)"


def test_short_pieces_are_not_torn_apart(printed: Any) -> None:
    rule = "e => getComputedStyle(e).breakInside"
    for piece in ("#prp-fourth-root", "#fig-gain", "#eq-gain", ".parameters .code"):
        assert printed.locator(piece).first.evaluate(rule) == "avoid", piece
    assert printed.locator("h2").first.evaluate("e => getComputedStyle(e).breakAfter") == "avoid"

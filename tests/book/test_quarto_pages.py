"""Quarto's pages in a browser: what our style and script do for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.quarto]


def test_no_page_of_quarto_is_wider_than_a_phone(browser: Any, both: tuple[Path, Path]) -> None:
    """A long formula in running text breaks, or scrolls by itself where it cannot."""
    page = browser.new_context(viewport={"width": 360, "height": 800}).new_page()
    for path in sorted(both[1].rglob("*.html")):
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path.name
    page.goto((both[1] / "chapters" / "07-choosing-grades.html").as_uri())
    wide = page.locator("main .wide")
    assert wide.count() == 1
    assert wide.evaluate("e => [e.scrollWidth > e.clientWidth, e.tabIndex, e.role]") == [True, 0, "group"]


def test_the_edge_of_a_claim_goes_down_to_its_status(browser: Any, both: tuple[Path, Path]) -> None:
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.goto((both[1] / "chapters" / "04-sample-complexity.html").as_uri())
    edges = "e => [getComputedStyle(e).borderLeftWidth, getComputedStyle(e).borderLeftColor]"
    claims = page.locator("main .claim:has(+ .status)")
    assert claims.count() == 4
    for claim in claims.all():
        width, colour = claim.evaluate(edges)
        assert [width, colour] == claim.locator("+ .status").evaluate(edges)
        assert width == "3px"


def test_formulas_are_set_in_the_font_that_lies_beside_the_pages(browser: Any, both: tuple[Path, Path]) -> None:
    page = browser.new_context(offline=True).new_page()
    page.goto((both[1] / "chapters" / "04-sample-complexity.html").as_uri())
    page.evaluate("document.fonts.ready.then(() => 0)")
    faces = page.evaluate("[...document.fonts].map(face => [face.family.replaceAll('\"', ''), face.status])")
    assert ["Book Mathematics", "loaded"] in faces
    assert page.locator("math").first.evaluate("e => getComputedStyle(e).fontFamily").startswith('"Book Mathematics"')

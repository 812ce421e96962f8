"""Every page of the book in Chromium: wide and on a phone, light and dark, on paper, always without a network."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.pages.conftest import COLOURS, Answers, Visitor, complaints

pytestmark = pytest.mark.browser

PHONE, SMALL_PHONE, WIDE, PAPER = 390, 360, 1280, 718  # pixels; paper: 190 mm at 96 to the inch
SOME = ("chapters/05-minimax.html", "chapters/12-muon.html", "chapters/A-claims.html")  # on paper; by axe on a phone


@pytest.fixture(scope="module")
def wide(visitor: Callable[..., Visitor], names: list[str]) -> Answers:
    """What the pages answer in a wide window: in light, in dark, and some on paper."""
    window = visitor(WIDE, color_scheme="light")
    for name in names:
        page = window.open(name)
        window.ask("unfold", "laidOut", "width", "scrolling", "outline", "contrast", "drawn")
        page.emulate_media(color_scheme="dark")
        window.ask("contrast", "drawn", under=" in dark")
        if name in SOME:
            page.emulate_media(color_scheme="dark", media="print")
            window.resize(PAPER, 1000)
            window.ask("width", "contrast", under=" on paper")
            window.resize(WIDE, 800)
        page.emulate_media(color_scheme="light", media="screen")
        window.ask("thin")
        window.axe()
        page.emulate_media(color_scheme="dark")
        window.axe(" in dark", COLOURS)
        page.emulate_media(color_scheme="light")
    return window.answers


@pytest.fixture(scope="module")
def phone(visitor: Callable[..., Visitor], names: list[str]) -> Answers:
    """What the pages answer on a phone, and on a smaller one."""
    window = visitor(PHONE, has_touch=True)
    for name in names:
        window.open(name)
        window.ask("unfold", "laidOut", "width", "scrolling", "focus")
        window.resize(SMALL_PHONE, 780)
        window.ask("width", under=" on a small one")
        window.resize(PHONE, 844)
        if name in SOME:
            window.ask("thin")
            window.axe()
    return window.answers


@pytest.mark.parametrize(
    "question",
    ["errors", "laidOut", "width", "scrolling", "outline", "contrast", "contrast in dark", "drawn", "drawn in dark",
     "axe", "axe in dark",
     "width on paper", "contrast on paper"],
)  # fmt: skip
def test_no_page_has_a_complaint_in_a_wide_window(wide: Answers, names: list[str], question: str) -> None:
    assert sorted(wide[question]) == (sorted(SOME) if "on paper" in question else names)
    assert complaints(wide[question]) == {}


@pytest.mark.parametrize(
    "question", ["errors", "laidOut", "width", "width on a small one", "scrolling", "focus", "axe"]
)
def test_no_page_has_a_complaint_on_a_phone(phone: Answers, names: list[str], question: str) -> None:
    assert sorted(phone[question]) == (sorted(SOME) if question == "axe" else names)
    assert complaints(phone[question]) == {}

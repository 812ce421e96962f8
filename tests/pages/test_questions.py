"""The questions themselves: each complains of a small page built wrong on purpose, and not of a good one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages.conftest import Visitor

pytestmark = pytest.mark.browser

DRAWING = '<svg role="img" aria-label="A drawing" width="200" height="60">{}</svg>'
GOOD = f"""<nav aria-label="Chapters"><a href="#a">One</a></nav>
<main id="a"><h1>Title</h1><h2>Section</h2><p>Words and <math><msup><mi>x</mi><mn>2</mn></msup></math>.</p>
<div tabindex="0" role="group" aria-label="Formula" style="overflow-x: auto"><p style="width: 2000px">Wide</p></div>
<figure>{DRAWING.format('<rect width="200" height="60" fill="#222"/><text y="40" fill="white">dark</text>')}</figure>
<table><thead><tr><th>Head</th></tr></thead><tbody><tr><td>Cell</td></tr></tbody></table></main>"""

PALE = DRAWING.format('<rect width="200" height="60" fill="#ddd"/><text x="9" y="40" fill="white">pale</text>')
BITMAP = (
    '<image width="200" height="60" preserveAspectRatio="none" href="data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAE'
    'AAAABCAQAAAC1HAwCAAAAC0lEQVR42mP4DwQACfsD/c8LaHIAAAAASUVORK5CYII="/><text x="9" y="40" fill="{}">words</text>'
)
WRONG = {
    "no size": ("laidOut", '<img src="data:image/png;base64,AAAA" alt="broken">', "img"),
    "mathematics as text": ("laidOut", '<math style="display: inline"><mi>x</mi></math>', "math"),
    "pale words": ("contrast", '<p style="color: #999">Pale</p>', "2."),
    "words that fade": ("contrast", '<p style="opacity: 0.4">Pale</p>', "Pale"),
    "a veil": ("contrast", '<p style="background: rgba(0, 0, 0, 0.5); color: #444">Dim</p>', "Dim"),
    "pale words on a shape": ("drawn", PALE, "pale"),
    "white on a white bitmap": ("drawn", DRAWING.format(BITMAP.format("#eee")), "words"),
    "too wide": ("width", '<p style="width: 2000px">Wide</p>', "the page is"),
    "cut off": ("width", '<div style="overflow: hidden"><p style="width: 2000px">Wide</p></div>', "cut off: div"),
    "cut off by the main part": (
        "width",
        "<style>main { overflow-x: clip }</style><p style='width: 2000px'>Wide</p>",
        "beyond the page: p",
    ),
    "no focus on what scrolls": (
        "scrolling",
        '<div style="overflow-x: auto"><p style="width: 2000px">Wide</p></div>',
        "div",
    ),
    "no name": ("scrolling", '<div tabindex="0" style="overflow: auto"><p style="width: 2000px">Wide</p></div>', "div"),
    "two titles": ("outline", "<h1>Another</h1>", "2 titles"),
    "a level skipped": ("outline", "<h4>Deep</h4>", "Deep"),
    "two navigations of one name": ("outline", '<nav aria-label="Chapters"></nav>', "navigations called"),
    "an order of its own": ("focus", '<a href="#a" tabindex="3">First</a>', "out of order"),
    "for the mouse alone": ("focus", '<span style="cursor: pointer">Click</span>', "for the mouse alone"),
    "focus that is not seen": ("focus", '<a href="#a" style="outline: none">Here</a>', "shows no focus"),
}


@pytest.fixture(scope="module")
def ask(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A function that writes a page, opens it and returns what a question finds wrong with it."""
    folder = tmp_path_factory.mktemp("questions")
    window = Visitor(browser, folder, 800)

    def answer(question: str, body: str, head: str = '<html lang="en"><title>A page</title>') -> list[str]:
        (folder / "page.html").write_text(f"<!DOCTYPE html>{head}<body>{body}</body></html>")
        window.open("page.html")
        window.ask(question)
        return list(window.answers[question]["page.html"])

    yield answer
    window.context.close()


@pytest.mark.parametrize("question", sorted({question for question, *_ in WRONG.values()}))
def test_a_good_page_has_no_complaint(ask: Any, question: str) -> None:
    assert ask(question, GOOD) == []
    assert ask(question, GOOD.replace("</main>", DRAWING.format(BITMAP.format("black")) + "</main>")) == []


@pytest.mark.parametrize("fault", WRONG)
def test_a_fault_is_found(ask: Any, fault: str) -> None:
    question, wrong, said = WRONG[fault]
    answers = ask(question, GOOD.replace("</main>", f"{wrong}</main>"))
    assert answers
    assert said in answers[0]


def test_a_page_without_language_or_title_is_found(ask: Any) -> None:
    assert len(ask("outline", GOOD, '<html lang="de">')) == 2


def test_errors_and_requests_are_noted(browser: Any, tmp_path: Path) -> None:
    faults = {
        "thrown.html": "<script>throw new Error('broken')</script>",
        "said.html": "<script>console.error('broken')</script>",
        "missing.html": '<img src="missing.png" alt="not there">',
        "network.html": '<img src="https://example.org/picture.png" alt="far away">',
    }
    window = Visitor(browser, tmp_path, 800)
    for name, fault in faults.items():
        (tmp_path / name).write_text(f"<!DOCTYPE html><title>A page</title>{fault}")
        window.open(name)
        assert window.answers["errors"][name], name
    window.context.close()

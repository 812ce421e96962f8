"""The font of the formulas holds what they show, and a browser takes it from beside a page opened from disk."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from fontTools.ttLib import TTFont

from gllm_lib.book.html.fonts import math_font

PAGES = [
    "<p>Not 茶.</p><math><mi>g</mi><mo>&amp;</mo><mi mathvariant='normal'>Λ</mi><mi>ϵ</mi><mi>ε</mi></math>",
    "<math>\n<msqrt><mn>2</mn></msqrt><mo>-</mo><annotation encoding='tex'>\\partial ∮</annotation></math>",
]


def read(data: bytes) -> TTFont:
    return TTFont(io.BytesIO(data))


def test_it_holds_what_formulas_show_and_browsers_draw_and_no_more() -> None:
    font = read(math_font(PAGES))
    assert {chr(code) for code in font.getBestCmap()} == set("2-−√&gΛϵε𝑔𝛬𝜖𝜀")
    assert {"MATH", "name"} <= set(font.keys())
    assert "SIL Open Font License" in font["name"].getDebugName(13)


def test_what_grows_comes_along() -> None:
    variants = read(math_font(PAGES))["MATH"].table.MathVariants
    grown = dict(zip(variants.VertGlyphCoverage.glyphs, variants.VertGlyphConstruction, strict=True))
    assert [len(each.MathGlyphVariantRecord) > 2 for name, each in grown.items() if name == "radical"] == [True]


def test_no_form_of_a_sign_is_much_wider_than_the_plain_one() -> None:
    font = read(math_font([*PAGES, "<math><mo>(</mo><mo>)</mo><mo>[</mo><mo>]</mo></math>"]))
    variants = font["MATH"].table.MathVariants
    signs = {font.getBestCmap()[ord(sign)] for sign in "√()[]"}
    forms = [
        (name, form)
        for name, grown in zip(variants.VertGlyphCoverage.glyphs, variants.VertGlyphConstruction, strict=True)
        for form in [
            *(each.VariantGlyph for each in grown.MathGlyphVariantRecord),
            *(part.glyph for part in grown.GlyphAssembly.PartRecords if grown.GlyphAssembly),
        ]
        if name in signs
    ]
    assert len(forms) > 50
    for name, form in forms:
        assert font["hmtx"][form][0] <= 1.1 * font["hmtx"][name][0]
        assert font["glyf"][form].xMax <= 1.06 * font["hmtx"][form][0]  # as the plain root


def test_equal_pages_give_equal_bytes() -> None:
    assert math_font(PAGES) == math_font(reversed(PAGES)) != math_font(PAGES[:1])


@pytest.mark.browser
def test_a_browser_sets_formulas_in_it(opened: Any, book: Path) -> None:
    page = opened()
    page.evaluate("document.fonts.ready.then(() => 0)")
    session = page.context.new_cdp_session(page)
    for domain in ("DOM", "CSS"):
        session.send(f"{domain}.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    letters = session.send("DOM.querySelectorAll", {"nodeId": root, "selector": "math :is(mi, mo, mn)"})["nodeIds"]
    used = {
        (font["familyName"], font["isCustomFont"])
        for letter in letters
        for font in session.send("CSS.getPlatformFontsForNode", {"nodeId": letter})["fonts"]
    }
    assert len(letters) > 50
    assert used == {("STIX Two Math", True)}

"""The rendered book in a browser, opened from disk: narrow and wide, light and dark, by keyboard, without a network."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.book.sample_site import CHECK, FIRST

pytestmark = pytest.mark.browser


CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const rgba = (css) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const luminance = (css) => { const [r, g, b] = rgba(css).slice(0, 3).map((c) => { c /= 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (rgba(c)[3] > 0) return c; } return "white"; };
  const poor = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest("svg, annotation, script, .skip") || !e.checkVisibility({opacityProperty: true})) continue;
    const a = luminance(getComputedStyle(e).color), b = luminance(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push([e.className || e.tagName, e.textContent.trim().slice(0, 30), ratio]);
  }
  return poor;
}"""


def names(book: Path) -> list[str]:
    return sorted(path.relative_to(book).as_posix() for path in book.rglob("*.html"))


@pytest.mark.parametrize("javascript", [True, False])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_page_is_wider_than_the_window(opened: Any, book: Path, width: int, javascript: bool) -> None:
    for name in names(book):
        page = opened(name, width, java_script_enabled=javascript)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        shown = page.locator("h1").bounding_box()
        assert shown["x"] >= 0
        assert shown["x"] + shown["width"] <= width


def test_what_is_wider_scrolls_by_keyboard(opened: Any) -> None:
    page = opened(FIRST, 360)
    regions = page.locator(".scroll").evaluate_all(
        "all => all.map(e => [e.scrollWidth > e.clientWidth + 1, e.tabIndex, e.role, e.ariaLabel])"
    )
    wide = [region for region in regions if region[0]]
    assert len(wide) >= 3
    assert all(tab == 0 and role == "group" and label for _, tab, role, label in wide)
    assert all(tab == -1 for scrolls, tab, _, _ in regions if not scrolls)
    formula = page.locator("#eq-wide .scroll")
    formula.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('#eq-wide .scroll').scrollLeft > 0")


def test_what_is_cut_off_fades_there(opened: Any) -> None:
    page = opened(FIRST, 1280)
    region = page.locator("#eq-wide .scroll")
    assert "more-after" in region.get_attribute("class")
    assert "more-before" not in region.get_attribute("class")
    region.evaluate("e => { e.scrollLeft = e.scrollWidth; }")
    page.wait_for_function("document.querySelector('#eq-wide .scroll').matches('.more-before:not(.more-after)')")
    assert "transparent" not in page.locator("#eq-gain .scroll").evaluate("e => getComputedStyle(e).maskImage")


def test_a_display_may_be_wider_than_the_text(opened: Any) -> None:
    page = opened(FIRST, 1400)
    widths = page.locator("#eq-wide, #eq-wide + p, #prp-fourth-root").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().width)"
    )
    assert sorted(widths)[2] > 44 * 16
    assert sorted(widths)[:2] == [640, 640]


def test_without_scripts_every_region_takes_the_focus(opened: Any) -> None:
    text = opened(FIRST, 360, java_script_enabled=False).content()
    assert text.count('class="scroll') == text.count('tabindex="0"') > 8


def test_the_bar_of_a_phone_is_one_line_and_the_cover_has_its_title(opened: Any) -> None:
    page = opened(FIRST, 390)
    assert page.locator(".bar").bounding_box()["height"] < 56
    assert not page.locator(".bar .booktitle").is_visible()
    assert opened("index.html", 390).locator(".bar .booktitle").is_visible()


def test_a_column_of_tags_is_as_wide_as_its_words(opened: Any) -> None:
    page = opened("appendices/claims.html", 1280)
    item, words = page.locator("table.cards thead th").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().width)"
    )
    assert words > 4 * item


def test_punctuation_stays_with_its_formula(opened: Any) -> None:
    for width in range(360, 460, 20):
        page = opened("chapters/07-choosing-grades.html", width)
        mark = page.locator(".kept", has=page.locator("math")).last
        last = "e => { const r = document.createRange(); r.setStart(e.lastChild, 0); r.setEnd(e.lastChild, 1);"
        left = mark.evaluate(last + " return r.getBoundingClientRect().left; }")
        formula = mark.locator("math").bounding_box()
        assert left == pytest.approx(formula["x"] + formula["width"], abs=2)


def test_code_can_be_hidden_and_stays_so(opened: Any) -> None:
    page = opened(FIRST)
    page.get_by_role("button", name="Hide code").click()
    for medium in ("screen", "print"):
        page.emulate_media(media=medium)
        assert page.locator(".cell .code:not(.output):visible").count() == 0
        assert page.locator(".cell .code.output:visible").count() == 1
        assert page.locator(".evidence").is_visible()
        assert page.locator("#fig-gain svg").is_visible()
    page.emulate_media(media="screen")
    page.reload()
    assert not page.locator(".parameters").is_visible()
    page.get_by_role("button", name="Show code").click()
    assert page.locator(".parameters pre").is_visible()


def test_a_formula_that_cannot_break_scrolls_in_its_line(opened: Any) -> None:
    page = opened("chapters/07-choosing-grades.html", 360)
    assert page.locator(".wide math").count() == 1
    assert page.locator(".wide").evaluate("e => e.scrollWidth > e.clientWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_page(opened: Any, book: Path, scheme: str) -> None:
    for name in names(book):
        page = opened(name, color_scheme=scheme)
        assert page.evaluate(CONTRAST) == [], name
    page.add_style_tag(content="p { color: light-dark(#888, #666) !important }")
    assert page.evaluate(CONTRAST) != []


def test_figures_follow_the_page(opened: Any) -> None:
    def colours(page: Any) -> list[str]:
        found = page.locator("#fig-gain text").first.evaluate(
            "e => [getComputedStyle(e).fill, getComputedStyle(document.body).color]"
        )
        return list(found)

    light, dark = colours(opened(FIRST)), colours(opened(FIRST, color_scheme="dark"))
    assert light[0] == light[1]
    assert dark[0] == dark[1]
    assert light != dark


def test_the_switch_is_kept_from_page_to_page(opened: Any, book: Path) -> None:
    page = opened(FIRST)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Dark page").click()
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert after != before
    page.goto((book / "index.html").as_uri())
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after
    assert page.get_by_role("button", name="Light page").count() == 1


def test_the_first_key_leads_to_the_text(opened: Any) -> None:
    page = opened(FIRST)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the text"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


def test_landmarks_and_language(opened: Any, book: Path) -> None:
    for name in names(book):
        page = opened(name)
        assert page.evaluate("document.documentElement.lang") == "en-GB"
        assert page.locator("main").count() == page.locator("h1").count() == 1
        levels = page.locator("h1, h2, h3, h4").evaluate_all("all => all.map(e => Number(e.tagName[1]))")
        assert all(after - before <= 1 for before, after in pairwise(levels)), name
        unnamed = page.locator("nav").evaluate_all("all => all.filter(e => !e.ariaLabel).length")
        assert unnamed == 0


def test_the_contents_open_on_a_phone(opened: Any) -> None:
    page = opened(FIRST, 360)
    assert not page.locator("#sidebar").is_visible()
    page.get_by_role("link", name="Contents", exact=True).click()
    assert page.get_by_role("link", name="7 Choosing grades").first.is_visible()


def test_code_is_copied(opened: Any) -> None:
    page = opened(FIRST, permissions=["clipboard-read", "clipboard-write"])
    page.locator(".parameters .code").hover()
    page.locator(".parameters .copy").click()
    page.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "cases = 200\nseed = 4"


@pytest.mark.parametrize("width", [360, 1280])
def test_no_code_is_cut_off_and_a_selection_gives_it_back(opened: Any, width: int) -> None:
    page = opened(FIRST, width)
    blocks = page.locator(".code:not(.output) pre")
    assert blocks.evaluate_all("all => all.every(e => e.scrollWidth <= e.clientWidth)")
    check = page.locator("pre", has_text="def no_grades_beat_the_affinity")
    selected = check.evaluate("e => { getSelection().selectAllChildren(e); return getSelection().toString(); }")
    assert selected.rstrip() == CHECK
    heights = check.locator(".line").evaluate_all("all => all.map(e => e.getBoundingClientRect().height)")
    assert max(heights) > 1.5 * min(heights)  # a long line goes on below


def test_mathematics_is_laid_out(opened: Any) -> None:
    page = opened(FIRST)
    sizes = page.locator(".equation .scroll").evaluate_all("all => all.map(e => e.getBoundingClientRect().height)")
    assert len(sizes) >= 6
    assert min(sizes) > 15
    rows = page.locator("#eq-expanded .alignment > :nth-child(even)").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().top)"
    )
    assert rows[1] > rows[0] + 20
    left, right = page.locator("#eq-gain mo").evaluate_all(
        "all => all.filter(e => '()'.includes(e.textContent)).slice(-2).map(e => e.getBoundingClientRect().height)"
    )
    assert left == pytest.approx(right, rel=0.05)


def test_paper_shows_the_text_alone(opened: Any) -> None:
    page = opened(FIRST)
    page.emulate_media(media="print")
    assert not page.locator("#sidebar").is_visible()
    assert not page.locator(".bar").is_visible()
    assert page.locator(".claim").first.is_visible()

"""Code cells on a page: folded imports, the address of a check, and the way between a claim and its code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gllm_lib.book.html.pages import RenderError, imported
from gllm_lib.book.html.render import render
from tests.book.sample_site import EVIDENCE, FIRST, code, shown, text, write_notebook, write_small_site


def test_imports_alone_are_folded(book: Path) -> None:
    content = (book / FIRST).read_text()
    head = '<details class="imports"><summary>Imports from numpy, gllm_lib</summary>'
    (folded,) = re.findall(f"{head}(.*?)</details>", content, re.DOTALL)
    assert "affinity" in folded
    assert "cases" not in folded


@pytest.mark.parametrize("source", ["import numpy\nnumpy.seterr()", "%matplotlib inline", "# nothing", ""])
def test_code_that_does_more_is_not_folded(source: str) -> None:
    assert imported(source) == []


def test_a_package_is_named_once() -> None:
    assert imported("import a.b, c\nfrom a import d") == ["a", "c"]


def test_a_claim_and_its_check_lead_to_each_other(book: Path) -> None:
    content = (book / FIRST).read_text()
    assert 'property <a href="#check-no_grades_beat_the_affinity" class="check">' in content
    cell = content[content.index('id="check-no_grades_beat_the_affinity" class="cell"') :]
    back = re.search(r'<div class="back">\s*<a href="#prp-fourth-root" class="ref"[^>]*>Proposition\u00a04.1</a>', cell)
    assert back
    assert cell.index('class="evidence"') < back.start() < cell.index('id="fig-gain"')


def test_evidence_for_no_claim_of_the_book_is_an_error(tmp_path: Path) -> None:
    site = write_small_site(tmp_path / "site")
    stray = EVIDENCE.replace("prp-fourth-root", "prp-gone")
    cells = [text("# Choosing grades {#sec-choosing}"), code("check()", shown({"text/html": stray}))]
    write_notebook(site / "chapters/07-choosing-grades.ipynb", cells)
    with pytest.raises(RenderError, match="evidence for prp-gone, which no page of the book states"):
        render(site, tmp_path / "_book")


@pytest.mark.browser
def test_folded_imports_open_without_scripts_and_on_paper(opened: Any) -> None:
    for scripts in (True, False):
        page = opened(java_script_enabled=scripts)
        code_shown = page.locator(".imports pre")
        assert code_shown.is_hidden()
        page.emulate_media(media="print")
        assert code_shown.is_visible()
        page.emulate_media(media="screen")
        page.locator(".imports summary").click()
        assert code_shown.is_visible()


@pytest.mark.browser
def test_folded_imports_are_copied(opened: Any) -> None:
    page = opened(permissions=["clipboard-read", "clipboard-write"])
    page.locator(".imports summary").click()
    page.locator(".imports .copy").click()
    page.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith("import numpy as np\n\nfrom")

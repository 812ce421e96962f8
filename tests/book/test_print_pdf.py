"""The PDF: the numbers of the HTML pages, what is refused, formulas mended, equal bytes."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from gllm_lib.book.html.pages import RenderError
from gllm_lib.book.html.render import render
from gllm_lib.book.print.formulas import typst_formulas
from gllm_lib.book.print.pdf import render_pdf, write_typst
from gllm_lib.book.print.typst import string
from tests.book.sample_site import printable_site

CHAPTER = "chapters/07-choosing-grades.ipynb"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return printable_site(tmp_path_factory.mktemp("print") / "site")


@pytest.fixture(scope="module")
def typed(site: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The sample book in Typst."""
    folder = tmp_path_factory.mktemp("typst")
    write_typst(site, folder)
    return (folder / "main.typ").read_text()


def changed(site: Path, target: Path, old: str, new: str, page: str = "index.qmd") -> Path:
    """Copy the site with one piece of a page replaced."""
    shutil.copytree(site, target)
    text = (target / page).read_text()
    assert old in text
    (target / page).write_text(text.replace(old, new))
    return target


def test_claims_figures_tables_and_equations_have_the_numbers_of_the_pages(site: Path, typed: str, tmp_path: Path):
    pages = render(site, tmp_path / "book")
    html = "".join(page.read_text() for page in pages)
    shown = dict(re.findall(r'<a\s+href="#((?:\w{3}|eq)-[\w-]+)"\s+class="number"[^>]*>\(?([^<)]+)\)?</a>', html))
    shown = {label: number.replace("\u00a0", " ") for label, number in shown.items() if not label.startswith("sec-")}
    typed = typed.replace("\u00a0", " ")
    printed = dict(re.findall(r'#claim\("([\w-]+)", "([^"]+)"', typed))
    printed |= dict(re.findall(r'#float\("\w+", "([\w-]+)", "([^"]+)"', typed))
    printed |= dict(re.findall(r'#equation\("(eq-[\w-]+)", "\(([^"]+)\)"', typed))
    assert {"prp-fourth-root", "fig-gain", "tbl-grades", "eq-expanded", "cnj-bounded"} <= printed.keys()
    assert printed == shown


def test_sections_have_the_numbers_of_the_pages(typed: str):
    sections = re.findall(r'#section\((\d), "([^"]*)", "([^"]+)"\)\[([^\]]*)\]', typed)
    assert ("3", "4.2", "sec-fourth-root", "The fourth-root law") in sections
    assert ("4", "4.3.1", "04-sample-complexity.in-the-kernel", "In the kernel") in sections
    assert ("2", "", "index.how", "How to read") in sections


def test_references_lead_to_places_of_the_one_document(typed: str):
    assert re.search(r"#link\(<prp-fourth-root>\)\[Proposition.4\.1\]", typed)
    assert re.search(r"#link\(<claims\.title>\)\[claims table\]", typed)
    assert '#chapter(2, "4", "Chapter 4", "sec-sample-complexity", "04-sample-complexity.title")' in typed


def test_a_claim_says_its_status_and_what_it_rests_on(typed: str):
    claim = typed[typed.index('#claim("prp-corrected"') :]
    opened, foot = claim.split("#claim-foot", 1)
    assert opened.startswith(
        '#claim("prp-corrected", "Proposition\u00a04.3", "supported", "GLLM Prop. 6", false, [Admissible'
    )
    assert re.search(r"Corrects #link\(<prp-printed>\)", foot)
    assert re.search(r"Uses #link\(<def-gain>\).*#link\(<prp-fourth-root>\)", foot)


def test_the_evidence_line_names_each_rejected_mutant(typed: str):
    line = re.search(r"#evidence\((.*)\)\n", typed)
    assert line
    assert "2 of 2 mutants rejected" in line[1]
    assert '("near: exponent 0.27", "ratio 1.0021 at alpha = [0.9, 0.1]")' in line[1]


def test_equal_sites_give_equal_bytes_and_nothing_else_is_left(site: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    first = render_pdf(site, tmp_path / "one" / "book.pdf").read_bytes()
    second = render_pdf(site, tmp_path / "two" / "book.pdf").read_bytes()
    assert first.startswith(b"%PDF-1.7")
    assert first == second
    assert list((tmp_path / "scratch").iterdir()) == []
    for told in (b"What a Training Run Sees", b"A. Author", b"pdfaid:part"):
        assert told in first


def test_the_date_of_the_book_is_the_date_of_the_file(site: Path, tmp_path: Path):
    dated = changed(site, tmp_path / "dated", "author:", 'date: "2021-03-04"\n  author:', "_quarto.yml")
    assert b"2021-03-04" in render_pdf(dated, tmp_path / "book.pdf").read_bytes()
    wrong = changed(site, tmp_path / "wrong", "author:", 'date: "in March"\n  author:', "_quarto.yml")
    with pytest.raises(RenderError, match="'in March' is not a date"):
        render_pdf(wrong, tmp_path / "book.pdf")


WIDE = r"$$\underbrace{" + "+".join(f"x_{{{k}}}" for k in range(40)) + "}$$ {#eq-long}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("See @prp-nowhere.", "index: unresolved reference @prp-nowhere"),
        ("A [link](#nowhere) inside.", "index.nowhere"),
        ("<table><tr><td>raw</td></tr></table>", "index: raw html cannot be printed"),
        ("A sign without a letter: \U0001f9ea.", "PDF/A-2u error"),
        (WIDE, r"index, \(1\): a formula 2\.\d times as wide as the page"),
        ("![](../figures/none.svg){fig-alt='none'}", "figures/none.svg"),
    ],
)
def test_what_cannot_be_printed_is_refused_and_the_last_book_stays(site: Path, tmp_path: Path, words, message):
    (tmp_path / "book.pdf").write_bytes(b"the last one")
    wrong = changed(site, tmp_path / "site", "Claims carry a status.", words)
    with pytest.raises(RenderError, match=message):
        render_pdf(wrong, tmp_path / "book.pdf")
    assert (tmp_path / "book.pdf").read_bytes() == b"the last one"


def test_without_typst_the_error_says_how_to_get_it(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "typst", None)
    with pytest.raises(RenderError, match="make pdf"):
        render_pdf(site, tmp_path / "book.pdf")


@pytest.mark.parametrize(
    ("tex", "typst"),
    [
        (r"x\odot y \otimes z", "x dot.o y times.o z"),
        (r"S\cap T", "S inter T"),
        (r"S\setminus T", "S without T"),
        (r"\operatorname{diag}(x)", r"""op("diag") \( x \)"""),
        (r"a\;\le\;b\!", "a thick lt.eq thick b #h(-0.167em)"),
        (r"\Big(x\Big)", r"stretch(\(, size: #1.8em) x stretch(\), size: #1.8em)"),
        (r"\big\|x", "stretch(bar.v.double, size: #1.2em) x"),
        (r"|w|", r"""class("normal", \|) w class("normal", \|)"""),
        (r"\|w\|", """class("normal", bar.v.double) w class("normal", bar.v.double)"""),
        (r"\text{the string }c", 'upright("the string") c'),
        (r"j\text{even}", "j upright(e v e n)"),
        (r"524{,}288", 'upright("524,288")'),
        (r"a =: b", "a =: b"),
    ],
)
def test_formulas_are_mended(tex: str, typst: str):
    assert typst_formulas([("InlineMath", tex)]) == {("InlineMath", tex): f"${typst}$"}


def test_strings_reach_typst_on_one_line():
    assert string('a "b"\n\\c\t\x0b') == r'"a \"b\"\n\\c\t"'

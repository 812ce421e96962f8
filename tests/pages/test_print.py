"""The real book in print: every formula can be set, and every statement has the number of the pages."""

from __future__ import annotations

import re
from pathlib import Path

import typst

from gllm_lib.book.html.manuscript import read_manuscript
from gllm_lib.book.html.numbering import walk
from gllm_lib.book.print.formulas import typst_formulas
from gllm_lib.book.print.pdf import write_typst

KINDS = "thm|lem|cor|prp|cnj|def|exm|rem|alg|fig|tbl|eq"
NUMBER = re.compile(rf'<a\s+href="#((?:{KINDS})-[\w-]+)"\s+class="number"[^>]*>\(?([^<)]+)\)?</a>')
PRINTED = re.compile(
    r'#claim\("([\w-]+)", "([^"]+)"|#float\("\w+", "([\w-]+)", "([^"]+)"|#equation\("(eq-[\w-]+)", "\(([^"]+)\)"'
)


def test_every_formula_of_the_book_can_be_set(pages: Path, root: Path):
    manuscript = read_manuscript(root / "build" / "site", lambda page: lambda *image: "drawing")
    asked = [item["c"] for source in manuscript.sources for item in walk(source.blocks) if item["t"] == "Math"]
    formulas = typst_formulas((kind["t"], tex) for kind, tex in asked)
    assert len(formulas) > 4000
    document = "\n\n".join(formulas.values()).encode()
    data, warnings = typst.Compiler(document, ignore_system_fonts=True).compile_with_warnings(
        format="pdf", timestamp=0, pdf_standards=["a-2b"]
    )
    assert data.startswith(b"%PDF")
    assert warnings == []


def test_every_statement_figure_table_and_equation_has_the_number_of_the_pages(pages: Path, root: Path, tmp_path: Path):
    shown = {label: number for page in pages.rglob("*.html") for label, number in NUMBER.findall(page.read_text())}
    write_typst(root / "build" / "site", tmp_path)
    found = PRINTED.findall((tmp_path / "main.typ").read_text())
    printed = dict([name for name in row if name] for row in found)
    assert len(printed) > 700
    assert printed == shown

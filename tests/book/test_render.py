"""The built-in renderer: numbers, links and blocks of a small book, and what it refuses to render."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gllm_lib.book.html.highlight import highlight, lines
from gllm_lib.book.html.layout import authors, facts_line
from gllm_lib.book.html.numbering import node, plain, prepare, text
from gllm_lib.book.html.pages import RenderError, cell_options, inline_svg, latex_body, merged_streams
from gllm_lib.book.html.render import render
from gllm_lib.checks import GllmError
from tests.book.sample_site import write_site, write_small_site

FIRST = "chapters/04-sample-complexity"
SECOND = "chapters/07-choosing-grades"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_site(tmp_path_factory.mktemp("sample") / "site")


@pytest.fixture(scope="module")
def book(site: Path) -> Path:
    out = site.parent / "_book"
    render(site, out)
    return out


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_site(tmp_path_factory.mktemp("small") / "site")


def words(page: Path) -> str:
    """Return the running text of a page on one line, without its formulas."""
    content = re.sub(r"<(script|svg).*?</\1>", "", page.read_text(), flags=re.DOTALL)
    content = re.sub(r"<math.*?</math>", " formula ", content, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", content)).split())  # split also at no-break spaces


def test_every_page_listed_is_written_in_order(site: Path, book: Path) -> None:
    pages = render(site, book)
    assert [str(page.relative_to(book)) for page in pages] == [
        "index.html",
        f"{FIRST}.html",
        f"{SECOND}.html",
        "appendices/claims.html",
        "appendices/reproducibility.html",
    ]
    assert all(page.read_text().count("<h1") == 1 for page in pages)
    assert pages[0].stat().st_size < 1_000_000
    offered = f"chapters/downloads/{FIRST.split('/')[1]}-executed.ipynb"
    assert (book / offered).read_bytes() == (site / offered).read_bytes()
    assert not list(book.parent.glob("._book*"))


def test_statements_are_numbered_by_kind_and_chapter_and_named(book: Path) -> None:
    text = words(book / f"{FIRST}.html")
    for head in (
        "Definition 4.1 (Gain) GLLM Def. 2",
        "Proposition 4.1 (Fourth-root law) GLLM Prop. 7(iii)",
        "Proposition 4.3 (Admissible cone) GLLM Prop. 6",
    ):
        assert head in text
    assert "Assumption 7.1 (bounded grades)" in words(book / f"{SECOND}.html")
    assert "Remark 7.1 Clipping is a projection." in words(book / f"{SECOND}.html")


def test_references_lead_across_pages(book: Path) -> None:
    text = (book / f"{SECOND}.html").read_text()
    for target, called in (
        ("#prp-fourth-root", "Proposition\u00a04.1"),
        ("#sec-fourth-root", "Section\u00a04.2"),
        ("#prp-corrected", "Proposition\u00a04.3"),
        ("#eq-gain", "Equation\u00a0(4.1)"),
    ):
        assert re.search(rf'<a href="04-sample-complexity.html{target}"[^>]*>{re.escape(called)}</a>', text), called
    assert 'title="Fourth-root law"' in text
    assert ">Chapter\u00a04</a>" in (book / "index.html").read_text()
    assert 'href="appendices/claims.html"' in (book / "index.html").read_text()
    assert ">Section\u00a0A.1</a>" in (book / "appendices/reproducibility.html").read_text()


def test_a_status_stands_inside_its_claim(book: Path) -> None:
    text = (book / f"{FIRST}.html").read_text()
    claim = re.search(r'<div id="prp-fourth-root".*?</div>\s*</div>\s*</div>', text, re.DOTALL)
    assert claim
    assert 'class="claim proposition proved"' in claim[0]
    assert "<strong>proved</strong>: exact over the whole domain" in claim[0]
    assert text.count("exact over the whole domain") == 1
    assert "supported (property) : Proposition 4.1 , on which it rests; 2 checks" in words(book / f"{FIRST}.html")


def test_corrections_point_both_ways(book: Path) -> None:
    text = words(book / f"{FIRST}.html")
    assert "Corrected by Proposition 4.3" in text
    assert "Corrects Proposition 4.2 Uses Definition 4.1 , Proposition 4.1" in text


def test_equations_figures_and_tables(book: Path) -> None:
    text = (book / f"{FIRST}.html").read_text()
    equation = re.search(r'<div id="eq-expanded" class="equation numbered">(.*?)>\(4\.2\)</a>', text, re.DOTALL)
    assert equation
    assert '<span class="alignment">' in equation[1]
    figure = re.search(r'<figure id="fig-gain" class="figure">(.*?)</figure>', text, re.DOTALL)
    assert figure
    assert 'role="img" aria-label="Three convex curves' in figure[1]
    assert ">Figure\u00a04.1</a> Gain along" in figure[1]
    table = re.search(r'<figure id="tbl-grades" class="table">(.*?)</figure>', text, re.DOTALL)
    assert table
    assert table[1].index("Table\u00a04.1") < table[1].index("<table")
    second = (book / f"{SECOND}.html").read_text()
    assert ">Figure\u00a07.1</a> A drawn figure, <em>from a file</em>." in second
    assert 'src="07-choosing-grades_files/fig-pixel-0.png" alt="One dark pixel."' in second
    assert (book / "chapters/07-choosing-grades_files/fig-pixel-0.png").is_file()


def test_lists_keep_their_parentheses(book: Path) -> None:
    assert re.search(r'<div class="twoparens">\s*<ol type="a">', (book / f"{SECOND}.html").read_text())
    assert (book / f"{SECOND}.html").read_text().count('"twoparens"') == 1
    assert "<p>(b) A paragraph with a letter,</p>" in (book / f"{SECOND}.html").read_text()
    assert "<p>(iv) and one with a number. (v) It goes on.</p>" in (book / f"{SECOND}.html").read_text()
    assert '"twoparens"' not in (book / f"{FIRST}.html").read_text()


def test_cells_show_what_their_options_say(book: Path) -> None:
    first, second = (book / f"{FIRST}.html").read_text(), (book / f"{SECOND}.html").read_text()
    assert "secret" not in second
    assert "print(rows)" not in first
    assert 'class="cell parameters"' in first
    assert 'class="cell injected-parameters"' in first
    assert "#|" not in first
    assert "&lt;Figure&gt;" not in first
    assert 'data-claim="prp-fourth-root"' in first
    assert "integral" in first
    assert "\\int\\limits_{0}^{\\infty} e^{- x^{2}}" in first  # sympy's output is mathematics
    assert "displaystyle {" not in first


def test_citations_footer_and_navigation(book: Path) -> None:
    text = words(book / f"{FIRST}.html")
    assert "Bartlett and Mendelson 2002" in text
    assert "Bartlett, Peter L., and Shahar Mendelson. 2002." in text
    assert 'finished <span class="kept">2026-01-02</span>.</p>' in (book / f"{FIRST}.html").read_text()
    assert "Executed in 12 s, on x86_64, 2 cores, with Python 3.11.9, at default size, finished 2026-01-02 ." in text
    page = (book / f"{FIRST}.html").read_text()
    assert '<a href="04-sample-complexity.html" aria-current="page">' in page
    assert all(f'href="downloads/04-sample-complexity{kind}.ipynb" download' in page for kind in ("", "-executed"))
    assert "References" not in words(book / "index.html")


def test_nothing_is_asked_of_a_network(book: Path) -> None:
    for page in book.rglob("*.html"):
        assert not re.findall(r'(?:src|href)="(?:https?:)?//', page.read_text()), page
    assert re.findall(r"url\([^)]*\)", (book / "assets/book.css").read_text()) == ['url("math.woff")']


def test_a_chapter_that_was_not_executed_still_renders(site: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(site, tmp_path / "site")
    path = copy / f"{FIRST}.ipynb"
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    path.write_text(json.dumps(notebook))
    render(copy, tmp_path / "_book")
    assert "Not executed." in words(tmp_path / f"_book/{FIRST}.html")


# what is refused


def edited(name: str, old: str, new: str) -> Callable[[Path], None]:
    """Return a change of one file of the site."""

    def change(site: Path) -> None:
        path = site / name
        content = path.read_text()
        assert old in content
        path.write_text(content.replace(old, new, 1))

    return change


def added(cell: dict[str, Any]) -> Callable[[Path], None]:
    """Return the change that appends a cell to the second chapter."""

    def change(site: Path) -> None:
        path = site / f"{SECOND}.ipynb"
        notebook = json.loads(path.read_text())
        notebook["cells"].append({"id": "new", "metadata": {}, **cell})
        path.write_text(json.dumps(notebook))

    return change


def markdown(source: str) -> Callable[[Path], None]:
    return added({"cell_type": "markdown", "source": source})


def code(source: str, *outputs: dict[str, Any]) -> Callable[[Path], None]:
    return added({"cell_type": "code", "source": source, "outputs": list(outputs), "execution_count": 1})


def display(**data: str) -> dict[str, Any]:
    data = {key.replace("_", "/"): value for key, value in data.items()}
    return {"output_type": "display_data", "data": data, "metadata": {}}


SVG = '<svg width="10pt" height="10pt" viewBox="0 0 10 10"><path d="M 0 0"/></svg>'
REFUSED = {
    "unresolved reference": (markdown("See @prp-nowhere."), "07-choosing-grades: unresolved reference @prp-nowhere"),
    "unresolved use": (
        markdown('::: {#prp-new .claim uses="def-lost"}\n## New\nText.\n:::'),
        "07-choosing-grades: unresolved reference @def-lost",
    ),
    "reference without number": (markdown("See @fig-nothing."), "unresolved reference @fig-nothing"),
    "duplicate label": (
        markdown("::: {#prp-fourth-root .claim}\n## Again\nText.\n:::"),
        "04-sample-complexity and 07-choosing-grades: the label prp-fourth-root is given twice",
    ),
    "duplicate section": (markdown("## Again {#sec-need}"), "the label sec-need is given twice"),
    "missing citation": (markdown("See [@nobody1999]."), "07-choosing-grades: citation nobody1999"),
    "mixed bracket": (markdown("[@prp-fourth-root; @bartlett2002rademacher]"), "share one bracket"),
    "figure without alt": (
        code("#| label: fig-x\n#| fig-cap: Words.\ndraw()", display(**{"image_svg+xml": SVG})),
        "07-choosing-grades, cell 1 .new., fig-x: an image without alt text",
    ),
    "image without alt": (markdown("![](../figures/gain.svg)"), "an image without alt text: ../figures/gain.svg"),
    "html image without alt": (code("x", display(text_html="<img src='a.png'>")), "an image without alt text"),
    "image from elsewhere": (markdown("![alt](https://example.org/a.png)"), "on another machine"),
    "missing image": (markdown("![alt](nothing.png)"), "chapters/nothing.png"),
    "missing page": (lambda site: (site / "index.qmd").unlink(), "_quarto.yml lists index.qmd"),
    "link to no page": (markdown("[there](05-nothing.ipynb)"), "a link to 05-nothing.ipynb"),
    "dead fragment": (markdown("[there](04-sample-complexity.ipynb#nothing)"), "04-sample-complexity.html#nothing"),
    "unknown option": (code("#| fig-width: 7\ndraw()"), "unknown option fig-width"),
    "option not YAML": (code("#| fig-cap: a: b: c\ndraw()"), "quote captions"),
    "unknown label": (code("#| label: gain\ndraw()"), "starts with fig- or tbl-"),
    "no caption": (code("#| label: tbl-x\nx", display(text_markdown="| a |\n|---|\n| 1 |")), "no tbl-cap"),
    "no output": (code("#| label: fig-x\n#| fig-cap: c\n#| fig-alt: a\ndraw()"), "fig-x: labelled, but shows nothing"),
    "unknown cell": (added({"cell_type": "heading", "source": "x"}), "a heading cell"),
    "raw cell": (added({"cell_type": "raw", "source": "x"}), "a raw cell"),
    "unknown output": (code("x", display(application_pdf="x")), "an output of application/pdf only"),
    "failed cell": (
        code("1/0", {"output_type": "error", "ename": "ZeroDivisionError", "evalue": "division by zero"}),
        "ended in ZeroDivisionError division by zero",
    ),
    "inline value": (markdown("It is `{python} best`."), "`{python} best` was not executed"),
    "unexecuted cell": (markdown("```{python}\n1\n```"), "was not executed"),
    "raw TeX": (markdown("\\begin{align} a &= b \\end{align}"), "raw TeX would vanish"),
    "unknown TeX": (markdown("$\\nosuchcommand{x}$"), "07-choosing-grades: pandoc says"),
    "unclosed block": (markdown("::: {.callout-note}\nText."), "07-choosing-grades: pandoc says"),
    "unknown callout": (markdown("::: {.callout-aside}\nText.\n:::"), "unknown callout aside"),
    "claim without label": (markdown("::: {.claim}\n## Nameless\nText.\n:::"), "the claim 'Nameless' has no proper"),
    "figure without caption": (markdown("::: {#fig-y}\n| a |\n|---|\n| 1 |\n:::"), "fig-y has no caption"),
    "status of nothing": (markdown('::: {.status .proved claim="prp-x"}\nproved\n:::'), "a status of 'prp-x'"),
    "paragraph with a letter": (
        markdown("(b) It follows."),
        r"07-choosing-grades: a lettered list of one item, 'It fol",
    ),
    "second title": (markdown("# Another"), "07-choosing-grades: 2 titles"),
    "no title": (edited("index.qmd", "# Small", "Small"), "index: 0 titles"),
    "not a notebook": (edited(f"{SECOND}.ipynb", "{", "["), "07-choosing-grades.ipynb is not a notebook"),
    "no bibliography": (lambda site: (site / "references.bib").unlink(), "references.bib"),
    "one number twice": (
        edited("_quarto.yml", "chapters/07-choosing-grades.ipynb", "chapters/04-sample-complexity.ipynb"),
        "have one target",
    ),
    "no book": (edited("_quarto.yml", "book:\n", "novel:\n"), "names no book"),
    "configuration not YAML": (edited("_quarto.yml", "book:", "book: ["), "is not YAML"),
    "unknown entry": (edited("_quarto.yml", "index.qmd", "{href: x}"), "neither a page nor a part"),
    "no configuration": (lambda site: (site / "_quarto.yml").unlink(), "stage the book first"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_page_and_label_and_the_old_book_stays(case: str, small: Path, tmp_path: Path) -> None:
    change, message = REFUSED[case]
    copy = shutil.copytree(small, tmp_path / "site")
    out = tmp_path / "_book"
    out.mkdir()
    (out / "index.html").write_text("the book built before")
    change(copy)
    with pytest.raises(RenderError, match=message) as raised:
        render(copy, out)
    assert isinstance(raised.value, GllmError)
    assert (out / "index.html").read_text() == "the book built before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_book", "site"]


# the pieces


def test_svg_follows_the_page_and_keeps_its_identifiers_apart() -> None:
    plotted = (
        '<?xml version="1.0"?><svg xmlns:xlink="x" width="72pt" height="36pt" viewBox="0 0 72 36" version="1.1">'
        '<defs><style>*{a: b}</style><clipPath id="p1"/></defs><g id="unused" clip-path="url(#p1)"/>'
        '<use xlink:href="#p1"/><path d="M 1.23456 2" style="stroke: #1b1c1e; fill: #fdfcfa"/><text>x</text></svg>'
    )
    wordless = inline_svg(plotted.replace("<text>x</text>", ""), "fig-a-0", "alt")
    assert wordless.startswith('<svg viewBox="0 0 72 36" width="96" height="48" class="plot"')
    text = inline_svg(plotted, "fig-a-0", 'Say "two" & three')
    assert text.startswith('<svg viewBox="0 0 72 36" width="96" height="48" style="--least: 68px" class="plot"')
    assert 'aria-label="Say &quot;two&quot; &amp; three"' in text
    assert 'id="fig-a-0-p1"' in text
    assert "url(#fig-a-0-p1)" in text
    assert 'href="#fig-a-0-p1"' in text
    assert "unused" not in text
    assert "<style>" not in text
    assert "stroke: currentColor; fill: var(--page)" in text
    assert 'd="M 1.23 2"' in text
    blacks = (
        '<path style="stroke: #1b1c1e"/><path style="fill: #000000; stroke:black"/><path fill="#000" stroke="#00000f"/>'
    )
    text = inline_svg(f'<svg viewBox="0 0 1 1">{blacks}</svg>', "a", "b")
    assert 'style="fill: currentColor; stroke:currentColor"/><path fill="currentColor" stroke="#00000f"' in text
    assert 'class="plot card"' in inline_svg(SVG, "a", "b")
    with pytest.raises(RenderError, match="without an <svg> element"):
        inline_svg("<png/>", "fig-b", "alt")


def test_letters_in_a_drawing_can_be_read() -> None:
    words = (
        '<text style="fill: #3796d5">data</text><text style="fill: #777777">grey</text><text fill="#000000">a</text>'
    )
    text = inline_svg(f'<svg viewBox="0 0 1 1"><path style="stroke: #1b1c1e"/>{words}</svg>', "a", "b")
    assert '<text style="fill: color-mix(in srgb, #3796d5 33%, currentColor)">data' in text
    assert '<text style="fill: #777777">grey' in text
    black = '<image/><text style="">a</text><path style="fill: #000000"/><text style="fill: #1b1c1e">b</text>'
    text = inline_svg(f'<svg viewBox="0 0 1 1"><path style="stroke: #1b1c1e"/>{black}</svg>', "a", "b")
    assert '<text style="fill: #010101; ">a</text><path style="fill: currentColor"/>' in text
    assert '<text style="fill: currentColor">b' in text


def test_pieces_of_a_notebook() -> None:
    assert latex_body("$\\displaystyle x^{2}\n\n+ 1$") == "x^{2}\n+ 1"
    assert latex_body("$$x$$") == "x"
    assert cell_options("#| echo: false\n#| label: fig-a\n\nx = 1\n", "here") == (
        {"echo": False, "label": "fig-a"},
        "x = 1",
    )
    assert cell_options("x = 1", "here") == ({}, "x = 1")
    stream = {"output_type": "stream", "name": "stdout"}
    joined = merged_streams(
        [{**stream, "text": ["a", "b"]}, {**stream, "text": "c"}, {**stream, "name": "stderr", "text": "d"}]
    )
    assert [output["text"] for output in joined] == ["abc", "d"]


def test_code_is_marked_by_kind() -> None:
    text = highlight('@evidence("x")\ndef f(x: int):  # why <\n    return x.max() @ max(1, "é")\n')
    assert re.sub("<[^>]+>", "", text) == html.escape(
        '@evidence("x")\ndef f(x: int):  # why <\n    return x.max() @ max(1, "é")\n', quote=False
    )
    assert re.findall(r'<span class="(\w+)">([^<]+)</span>', text) == [
        ("at", "@"),
        ("at", "evidence"),
        ("st", '"x"'),
        ("kw", "def"),
        ("fu", "f"),
        ("bu", "int"),
        ("co", "# why &lt;"),
        ("kw", "return"),
        ("bu", "max"),
        ("dv", "1"),
        ("st", '"é"'),
    ]
    assert highlight("x = (1 <") == "x = (1 &lt;"


def test_each_line_of_code_stands_by_itself() -> None:
    text = lines(highlight('x = """a <\n  b\n\n"""\n    y\n'))
    assert text == (
        '<span class="line">x = <span class="st">"""a &lt;\n</span></span>'
        '<span class="line"><span class="st">  b\n</span></span>'
        '<span class="line"><span class="st">\n</span></span>'
        '<span class="line"><span class="st">"""</span>\n</span>'
        '<span class="line" style="--indent: 4">    y\n</span>'
    )


def test_lines_about_people_and_runs() -> None:
    assert authors([{"name": "A"}, "B"]) == "A, B"
    assert authors(None) == ""
    assert facts_line({}) == ""
    assert facts_line({"seconds": 3.2, "profile": "smoke"}) == "Executed in 3 s, at smoke size."


def test_a_comment_is_for_authors_alone() -> None:
    comment = {"t": "RawBlock", "c": ["html", "<!-- An example to replace.\nSo is this. -->\n"]}
    shown = {"t": "RawBlock", "c": ["html", "<!-- so --> <b>bold</b>"]}
    inline = {"t": "Para", "c": [{"t": "Str", "c": "a"}, {"t": "RawInline", "c": ["html", "<!-- b -->"]}]}
    assert prepare([comment, shown, inline]) == [shown, {"t": "Para", "c": [{"t": "Str", "c": "a"}]}]


def test_quoted_words_keep_their_marks_on_a_line_of_text() -> None:
    inner = node("Quoted", {"t": "SingleQuote"}, [text("b")])
    assert plain([text("a"), {"t": "Space"}, node("Quoted", {"t": "DoubleQuote"}, [text("x"), inner])]) == "a “x‘b’”"
    assert plain(inner) == "‘b’"

"""The reading of pages with which both renderers are compared, on one page in the HTML of each: no Quarto needed."""

from __future__ import annotations

import pytest

from tests.book.two_renderers import Numbers, facts

NUMBERS = Numbers({"1": "1", "7": "4", "8": "4b"})

OURS = """
<nav><a class="ref" href="x.html#thm-no">Theorem 9.9</a></nav>
<main>
<header class="page-head"><p class="eyebrow">Chapter 4b</p><h1 id="sec-steps">Steps</h1></header>
<h2 id="one"><a href="#one" class="number">4b.1</a> One step</h2>
<div id="prp-gain" class="claim proposition proved">
<div class="claim-head"><a href="#prp-gain" class="number">Proposition 4b.1</a>
<span class="name">(Gain of <math><mi>g</mi></math>)</span> <span class="source">GLLM Prop. 7</span></div>
<p>For every <span class="kept"><math><semantics><mover><mi>g</mi><mo>^</mo></mover><annotation>\\hat g</annotation>
</semantics></math>,</span></p>
<div id="eq-gain" class="equation numbered"><div class="scroll"><math><mi>x</mi><mo>‖</mo></math></div>
<a href="#eq-gain" class="number">(4b.1)</a></div>
<div class="claim-foot"><code class="label">prp-gain</code><div class="relations"><p>Uses
<a class="ref" href="#cnj-normal">Assumption 4b.1</a></p></div>
<div class="status proved"><p><strong>proved</strong>: see
<a class="ref" href="04-a.html#lem-a">Lemma 4.3</a>.</p></div>
</div></div>
<details class="proof" open><summary>Proof</summary><div><p>(a) Expand. <span class="qed">∎</span></p></div></details>
<div id="cnj-normal" class="claim assumption"><div class="claim-head">
<a class="number" href="#cnj-normal">Assumption 4b.1</a> <span class="name">(normal)</span></div><p>So it is.</p></div>
<details class="imports"><summary>Imports from numpy</summary><pre><code>import numpy</code></pre></details>
<div class="evidence"><details><summary>exact: 2 mutants rejected</summary></details>
<div class="back"><a class="ref" href="#prp-gain">Proposition 4b.1</a></div></div>
<figure id="fig-steps"><svg role="img" aria-label="A curve falls."><text>0</text></svg>
<figcaption><a href="#fig-steps" class="number">Figure 4b.1</a> Steps, see <a class="ref" href="#prp-gain">Proposition
4b.1</a>.</figcaption></figure>
<p>By <a class="ref" href="#eq-gain">Equation (4b.1)</a> of <a class="ref" href="04-a.html#sec-a">Chapter 4</a> it is
0.25.</p>
<h2 id="references">References</h2>
<div class="references" id="refs"><div class="csl-entry" id="ref-a2002">A. 2002.</div></div>
<footer class="colophon"><p>Executed in 3 s.</p></footer>
</main>
"""

THEIRS = """
<main>
<header class="quarto-title-block"><nav>Grades</nav><h1 class="title"><span id="sec-steps">
<span class="chapter-number">8</span>&nbsp; <span class="chapter-title">Steps</span></span></h1></header>
<section id="one"><h2 data-number="8.1"><span class="header-section-number">8.1</span> One step</h2>
<div id="prp-gain" class="claim theorem proposition" data-source="GLLM Prop. 7">
<p><span class="theorem-title"><strong>Proposition 8.1 (Gain of <math><mi>g</mi></math>)</strong></span> For every
<math><semantics><mover><mi>g</mi><mo>^</mo></mover><annotation>\\hat g</annotation></semantics></math>,
<span id="eq-gain"><math><mi>x</mi><mo>‖</mo><mo>(</mo><mn>8.1</mn><mo>)</mo></math></span></p></div>
<div class="status proved" data-claim="prp-gain"><p><strong>proved</strong>: see <a href="04-a.html#lem-a"
class="quarto-xref">Lemma&nbsp;<span>7.3</span></a>.</p>
<div class="relations" data-claim="prp-gain"><p>Uses <a href="#cnj-normal" class="quarto-xref">Conjecture&nbsp;<span>8.1
</span></a></p></div></div>
<div class="proof"><p><span class="proof-title"><em>Proof</em>. </span>(a) Expand.</p></div>
<div id="cnj-normal" class="claim assumption theorem conjecture"><p><span class="theorem-title"><strong>Conjecture 8.1
(Assumption: normal)</strong></span> So it is.</p></div>
<div class="cell"><details class="code-fold"><summary>Imports</summary><pre><code>import numpy</code></pre>
<button>Copy</button></details></div>
<div class="evidence"><details><summary>exact: 2 mutants rejected</summary></details></div>
<div id="fig-steps" alt="A curve falls."><figure><img src="x.svg" alt="A curve falls.">
<figcaption id="fig-steps-caption-1">Figure&nbsp;8.1: Steps, see <a href="#prp-gain"
class="quarto-xref">Proposition&nbsp;<span>8.1</span></a>.</figcaption></figure></div>
<p>By <a href="#eq-gain" class="quarto-xref">Equation&nbsp;<span>8.1</span></a> of <a href="04-a.html"
class="quarto-xref"><span>Chapter 7</span></a> it is 0.25.</p>
<div class="colophon"><p>Executed in 3 s.</p></div></section>
<section id="bibliography"><h1>References</h1><div class="references" id="refs"><div class="csl-entry"
id="ref-a2002">A. 2002.</div></div></section>
</main>
"""


def theirs(text: str = THEIRS):
    return facts(text, "chapters/04b-steps.html", NUMBERS)


def ours(text: str = OURS):
    return facts(text, "chapters/04b-steps.html")


def test_one_page_in_both_dialects_says_the_same():
    assert ours().differences(theirs()) == []


def test_a_chapter_is_called_by_its_title_on_the_front_page():
    titled = THEIRS.replace("<span>Chapter 7</span>", "<span>7&nbsp; Sample complexity</span>")
    assert titled != THEIRS
    assert ours().differences(theirs(titled)) == []
    assert ours().differences(theirs(titled.replace("<span>7&nbsp;", "<span>8&nbsp;"))) != []
    letter, title = "<span>Appendix F</span>", "<span>Appendix&nbsp;F — Library reference</span>"
    assert (
        ours(OURS.replace(">Chapter 4</a>", f">{letter}</a>")).differences(
            theirs(THEIRS.replace("<span>Chapter 7</span>", title))
        )
        == []
    )


def test_what_a_page_says_is_read():
    page = theirs()
    assert page.title == "Chapter 4b Steps"
    assert page.headings == [("h2", "4b.1 One step")]
    assert page.claims[0] == ("prp-gain", "Proposition 4b.1", "Gainofg", "GLLM Prop. 7")
    assert page.claims[1] == ("cnj-normal", "Conjecture 4b.1", "normal", "")
    assert page.equations == [("eq-gain", "4b.1")]
    assert page.floats == [("fig-steps", "Figure 4b.1", "Steps,see[prp-gain].")]
    assert page.pictures == ["A curve falls."]
    assert page.references == [
        ("lem-a", "Lemma 4.3"),
        ("prp-gain", "Proposition 4b.1"),
        ("eq-gain", "Equation 4b.1"),
        ("chapters/04-a.html", "Chapter 4"),
    ]
    assert page.statuses == [("prp-gain", "proved:see[lem-a].")]
    assert page.relations == [("prp-gain", "Uses[cnj-normal]")]
    assert page.evidence == ["exact:2mutantsrejected"]
    assert page.entries == [("ref-a2002", "A.2002.")]
    assert page.code == ["importnumpy"]
    assert page.words == "Foreveryg^,x‖(a)Expand.Soitis.By[eq-gain]of[chapters/04-a.html]itis0.25."


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("title", '<span class="chapter-title">Steps', '<span class="chapter-title">Step'),
        ("headings", "8.1</span> One step", "8.2</span> One step"),
        ("headings", "<h2 data-number", "<h3 data-number"),
        ("claims", "Proposition 8.1 (Gain", "Proposition 8.2 (Gain"),
        ("claims", "<mi>g</mi></math>)</strong>", "<mi>h</mi></math>)</strong>"),
        ("claims", "GLLM Prop. 7", "GLLM Prop. 8"),
        ("equations", "<mn>8.1</mn>", "<mn>8.2</mn>"),
        ("floats", "Figure&nbsp;8.1", "Figure&nbsp;8.2"),
        ("floats", "Steps, see", "Stairs, see"),
        ("floats", '<div id="fig-steps"', '<div id="fig-stairs"'),
        ("pictures", '<img src="x.svg" alt="A curve falls."', '<img src="x.svg" alt="A curve."'),
        ("references", '<a href="04-a.html#lem-a"', '<a href="04-a.html#lem-b"'),
        ("references", "Lemma&nbsp;<span>7.3", "Lemma&nbsp;<span>7.4"),
        ("references", "Chapter 7", "Chapter 8"),
        ("statuses", 'proved" data-claim="prp-gain"', 'proved" data-claim="prp-loss"'),
        ("statuses", "<strong>proved", "<strong>supported"),
        ("relations", '>Uses <a href="#cnj-normal"', '>Uses <a href="#cnj-other"'),
        ("evidence", "2 mutants rejected", "3 mutants rejected"),
        ("entries", "A. 2002.", "A. 2003."),
        ("code", "import numpy", "import scipy"),
        ("words", "0.25", "0.26"),
        ("words", "<mi>x</mi>", "<mi>y</mi>"),
        ("words", "<mo>^</mo>", "<mo>\u0302</mo>"),
        ("words", "(a) Expand", "Expand"),
    ],
)
def test_a_difference_is_found_and_named(kind, before, after):
    assert THEIRS.count(before) == 1
    found = ours().differences(theirs(THEIRS.replace(before, after)))
    assert kind in [line.split(":")[0] for line in found]


def test_a_difference_shows_what_stands_where():
    (line,) = ours().differences(theirs(THEIRS.replace("0.25", "0.26")))
    assert "itis0.25." in line
    assert "itis0.26." in line


def test_chapters_are_counted_as_quarto_counts_them():
    parts = [
        "index.qmd",
        {"part": "One", "chapters": ["chapters/01-a.ipynb", "chapters/01b-b.ipynb"]},
        "chapters/02-c.ipynb",
    ]
    numbers = Numbers.of({"book": {"chapters": parts, "appendices": ["chapters/A-claims.qmd"]}})
    assert numbers.chapters == {"1": "1", "2": "1b", "3": "2"}
    assert numbers.ours("Section 3.1") == "Section 2.1"
    assert numbers.ours("Chapter 2") == "Chapter 1b"
    assert numbers.ours("Table A.2") == "Table A.2"
    assert numbers.ours("Table 2") == "Table 2", "a page without a number counts from 1"

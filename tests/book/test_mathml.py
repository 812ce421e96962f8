"""Mathematics as pandoc writes it, mended for browsers."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from gllm_lib.book.html.manuscript import pandoc
from gllm_lib.book.html.mathml import mend


def mathematics(tex: str) -> str:
    return mend(pandoc(["-f", "markdown", "-t", "html", "--mathml"], tex, "test"))


def test_named_functions_have_the_spaces_of_tex() -> None:
    assert '<mn>2</mn><mo form="prefix" lspace="0.167em" rspace="0.167em">log</mo><mi>x</mi>' in mathematics(
        r"$2\log x$"
    )
    assert '<mo form="prefix" lspace="0" rspace="0">log</mo><mo stretchy' in mathematics(r"$\log(x)$")
    assert '<munder><mo form="prefix" lspace="0" rspace="0.167em">max</mo>' in mathematics(r"$$\max_i x$$")
    assert ">lim sup</mo>" in mathematics(r"$$\limsup_n x$$")
    assert "<mo" not in mathematics(r"$a_{\mathrm{max}}$")


def test_accents_stand_by_themselves() -> None:
    assert '<mover accent="true"><mi>g</mi><mo stretchy="false">^</mo></mover>' in mathematics(r"$\hat g$")
    assert '<mrow class="over"><mrow><mi>A</mi><mi>B</mi></mrow></mrow>' in mathematics(r"$\overline{AB}$")
    nested = mathematics(r"$\xrightarrow{n} \tilde u$")
    assert '<mover accent="true"><mi>u</mi><mo stretchy="false">˜</mo></mover>' in nested


def test_only_aligned_rows_are_set_in_display_style() -> None:
    assert 'displaystyle="true"' in mathematics(r"$$\begin{aligned} a &= b \end{aligned}$$")
    assert "displaystyle" not in mathematics(r"$$\begin{pmatrix} a & b \end{pmatrix}$$")


def test_a_power_has_the_whole_pair_as_its_base() -> None:
    text = mathematics(r"$$x + \Bigl(a + (b)\Bigr)^2$$")
    assert re.search(r"<msup><mrow><mo [^>]*>\(</mo><mi>a</mi>.*</mrow><mn>2</mn></msup>", text)
    assert re.search(r"<mo[^>]*>\+</mo><msup>", text)
    assert re.search(r"<msup><mrow><mo [^>]*>\|</mo><mi>x</mi>", mathematics(r"$$\bigl|x\bigr|^2$$"))
    inner = mathematics(r"$$((a + \|v\|^2))$$")
    assert re.search(r"<mi>v</mi><msup><mo [^>]*>‖</mo><mn>2</mn></msup>", inner)  # these bars do not grow
    assert re.search(r"<msup><mrow><mo [^>]*>\(</mo><mi>A</mi>", mathematics(r"$$P\bigl(A | B\bigr)^2$$"))


def test_double_bars_of_a_norm_are_not_a_relation() -> None:
    assert "∥" not in mathematics(r"$\|v\| + \left\|w\right\|$").split("<annotation")[0]
    assert "<mo>∥</mo>" in mathematics(r"$a \parallel b$")
    assert '<mo stretchy="false" form="postfix">|</mo><mo>+</mo>' in mathematics(r"$|G|+\epsilon$")


def test_a_long_inline_formula_breaks_after_its_relations_and_in_no_number() -> None:
    assert mathematics(r"$1{,}506{,}845 \le r \le 2{,}506{,}992$").count("<math") == 3
    assert "<mn>0</mn><mo>,</mo><mn>200</mn>" in mathematics(r"$[0, 200]$")
    assert mathematics(r"$\alpha_1 + \beta_2 = \gamma_3 (d + e)$").count("<math") == 3
    assert mathematics(r"$(\alpha_1 + \beta_2)^2 = \gamma_3 + (\delta + 1)^2$").count("<math") == 3
    assert mathematics(r"$a + b = c$").count("<math") == 1
    assert mathematics(r"$|\alpha_1 + \beta_2| = P(\gamma_3 | \delta + e) + f$").count("<math") == 3


def pieces(tex: str) -> list[list[list[list[str]]]]:
    """Return the words of a displayed formula by cell, clause, what a relation begins, and term."""

    def inner(element: ElementTree.Element) -> list[ElementTree.Element]:
        return [item for item in element if item.tag in ("span", "{http://www.w3.org/1998/Math/MathML}math")]

    root = ElementTree.fromstring(mathematics(f"$${tex}$$").replace("\u2061", ""))
    cells = [item for item in root.iter("span") if item.get("class") == "clauses"]
    return [[[["".join(m.itertext()) for m in inner(b)] for b in inner(c)] for c in inner(cell)] for cell in cells]


def test_a_displayed_formula_has_places_to_break() -> None:
    assert mathematics(r"$$a + b = c$$").count("<math") == 1  # no page is as narrow
    assert pieces(r"\alpha_1 + \beta_2 \le |\gamma - 3| (d + e), \qquad \delta_{i = 1} = P(f | g - h) - x, y.") == [
        [[["α1", "+β2"], ["≤|γ−3|(d+e),"]], [["δi=1"], ["=P(f|g−h)", "−x,", "y."]]]
    ]
    assert pieces(r"\begin{aligned} \alpha_1 + 1 &= -b + c, \quad d \\ &\ge e \end{aligned}.") == [
        [[["α1", "+1"]]], [[["=−b", "+c,"]], [["d"]]], [], [[["≥e."]]],
    ]  # fmt: skip
    assert pieces(r"\begin{gathered} \alpha_1 = b, \\ \gamma_3 = d \end{gathered}") == [
        [[["α1"], ["=b,"]]], [[["γ3"], ["=d"]]],
    ]  # fmt: skip
    matrix = mathematics(r"$$\begin{pmatrix} \cosh t & \sinh t \\ \sinh t & \cosh t \end{pmatrix}$$")
    assert matrix.count("<math") == matrix.count("<mtable") == 1
    assert '<mo form="infix">+</mo><msub>' in mathematics(r"$$\alpha_1 + \beta_2 = \gamma_3 (d + e)$$")


def test_marks_of_punctuation_are_kept_with_their_formula() -> None:
    text = " ".join(
        mathematics("If ($a$), then $\\alpha_1 + \\beta_2 = \\gamma_3 (d + e)$.\n\n$$x$$\n\n$y$ -- yes").split()
    )
    assert text.count('class="kept"') == 2
    assert re.search(r'If <span class="kept">\(<math.*?</math>\),</span> then <math', text)
    assert re.search(r'<wbr><span class="kept"><math [^>]*><mrow><msub><mi>γ</mi>.*</math>\.</span></p>', text)


def test_a_head_of_a_column_has_a_name_in_words() -> None:
    head = mathematics(r"""
|  | $\Lambda^\star < \tfrac12$ | size $n$ |
|--|--|--|
| a | 1 | 2 |
""").split("</thead>")[0]
    assert re.findall(r"<t[hd]\b", head)[0] == "<td"
    assert 'aria-label="Λ* &lt; 1/2"' in head
    assert head.count("aria-label") == 1  # the other says "size"


def test_signs_in_scripts_stand_close() -> None:
    text = mathematics(r"$x_{t-1} - \sum_{j \ne i} w_{<t}^{*} a_{i,j}$")
    for sign in ("−", "≠", "&lt;"):
        assert f'<mo lspace="0" rspace="0">{sign}</mo>' in text
    assert "</msub><mo>−</mo>" in text  # not in a script
    assert text.count('lspace="0" rspace="0"') == 3


def test_bars_grow_for_what_is_tall_only() -> None:
    small = mathematics(r"$\lVert w_l^*\rVert^2$")
    assert 'stretchy="true"' not in small
    assert re.search(r"</msubsup><msup><mo [^>]*>‖</mo><mn>2</mn></msup>", small)
    assert 'stretchy="true"' in mathematics(r"$$\lVert\frac ab\rVert$$")


def test_a_power_of_small_parentheses_stands_at_the_closing_one() -> None:
    assert re.search(r"<msup><mo [^>]*>\)</mo><mi>k</mi></msup>", mathematics(r"$(8^8/7^7)^k$"))


def test_a_prime_stands_on_the_line() -> None:
    assert '<mrow><mi>θ</mi><mo lspace="0" rspace="0">′</mo></mrow>' in mathematics(r"$\theta'$")


def test_dots_between_signs_stand_in_the_middle() -> None:
    text = mathematics(r"$a \le \dots \le b$ and $x + \dots + y$ and $(1 + x + \dots)$ and $p \circ\dots\circ q$")
    assert text.count("⋯") == 4
    assert "⋯" not in mathematics(r"$a, \dots, b$ and $a_1 \dots a_n$")


def test_operators_have_no_spaces_beside_signs_and_marks() -> None:
    assert '<msub><mo lspace="0">∑</mo>' in mathematics(r"$D = \sum_i x$")
    assert "<msub><mo>∑</mo>" in mathematics(r"$2\sum_i x$")
    closed = mathematics(r"$\{\operatorname{cap}_l, x\} = \operatorname{cap}_l$")
    assert closed.count('lspace="0" rspace="0">cap') == 2
    assert '<mo form="prefix" lspace="0" rspace="0">min</mo>' in mathematics(r"$\max_l \min(x)$")
    assert 'rspace="0">min</mo>' in mathematics(r"$x \min\bigl(a\bigr)$")
    assert 'lspace="0.167em" rspace="0">min</mo>' in mathematics(r"$(c)\min(x)$")


def test_signs_of_two_characters_stars_and_signs_of_numbers() -> None:
    assert "<mo>=:</mo>" in mathematics("$a =: b$")
    assert "<mo>∗</mo>" in mathematics("$f^*$")
    assert 'form="prefix">−</mo>' in mathematics(r"$$\Bigl(- x\Bigr)$$")
    assert 'form="prefix">−</mo>' not in mathematics(r"$$\Bigl(y - x\Bigr)$$")
    assert 'lspace="0.167em" rspace="0.167em">log' in mathematics(r"$\tfrac14\log x$")

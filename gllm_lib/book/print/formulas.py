r"""TeX's formulas in Typst's notation: pandoc converts them, and what it gets wrong is mended here by rule.

Seen over all formulas of the book: names of letters and signs that Typst does not know, named operators without their
spaces, large delimiters set as scaled text, `\!` a whole em wide, `\;` of no width, bars
with the spaces of a relation, words with too many spaces or too few, and thousands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from gllm_lib.book.html.manuscript import api_version, pandoc
from gllm_lib.book.html.mathml import THOUSANDS
from gllm_lib.book.html.numbering import Node, node
from gllm_lib.book.html.pages import RenderError

Formula = tuple[str, str]  # "InlineMath" or "DisplayMath", and TeX
BREAK = "\u241e"
RENAMED = {
    "dot.circle": "dot.o",
    "times.circle": "times.o",
    "sect": "inter",
    "#h(-1em)": "#h(-0.167em)",
    "#h(0em)": "thick",
    "= :": "=:",
    "\\\\": "without",
}
BARS = {"\\|": "\\|", "parallel": "bar.v.double"}
OLD = re.compile("|".join(rf"(?<![\w.\\]){re.escape(name)}(?![\w.])" for name in RENAMED))
OPERATOR = re.compile(r'(?<![a-z]\()(?<!: )"([A-Za-z]{2,})"')
BAR = re.compile(r"(?<!\[)(?:\\\||\bparallel\b)")  # of a norm or a modulus: no relation, so without its spaces
TEXT = re.compile(r'upright\("([^"]*)"\)')
LARGE = re.compile(r"#scale\(x: (\d+)%, y: \1%\)\[(\\.|[^\]\\]+)\]")


def typst_formulas(formulas: Iterable[Formula]) -> dict[Formula, str]:
    """Return each formula in Typst's notation, dollars included; raises RenderError for one pandoc cannot convert."""
    asked = list(dict.fromkeys(formulas))
    blocks: list[Node] = []
    for kind, tex in asked:
        number = THOUSANDS.sub(lambda found: rf"\text{{{found[0].replace('{,}', ',')}}}", tex)
        blocks += [node("Para", [node("Math", {"t": kind}, number)]), node("RawBlock", "typst", BREAK)]
    tree = {"pandoc-api-version": api_version(), "meta": {}, "blocks": blocks}
    made = pandoc(["-f", "json", "-t", "typst", "--wrap=none"], json.dumps(tree), "formulas").split(BREAK)[:-1]
    if len(made) != len(asked):
        raise RenderError(f"pandoc made {len(made)} formulas of {len(asked)}")
    return {formula: mended(text.strip()) for formula, text in zip(asked, made, strict=True)}


def mended(formula: str) -> str:
    """Return a formula as pandoc writes it with its names, operators and large delimiters in order."""
    formula = BAR.sub(lambda found: f'class("normal", {BARS[found[0]]})', formula)
    formula = TEXT.sub(_words, LARGE.sub(_large, formula))
    formula = OLD.sub(lambda found: RENAMED[found[0]], formula)
    return OPERATOR.sub(r'op("\1")', formula)


def _words(found: re.Match[str]) -> str:
    """Return words without the spaces that Typst sets around them anyway, and one word as letters, which get none."""
    words = found[1].strip()
    return f"upright({' '.join(words)})" if words == found[1] and words.isalpha() else f'upright("{words}")'


def _large(found: re.Match[str]) -> str:
    """Return a delimiter of its own at the size of TeX's big, Big, bigg and Bigg."""
    found_sign = BARS.get(found[2], found[2])
    sign = found_sign if re.match(r"\\|\w", found_sign) else f"\\{found_sign}"
    return f"stretch({sign}, size: #{int(found[1]) / 100:g}em)"

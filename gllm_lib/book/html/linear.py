r"""Formulas as one line of text: `\sqrt{\alpha_i}` as √(α_i), for what is searched and for names in a drawing.

The rules are data. The search script gets the same ones in the index of the book, so that what a reader types as TeX
is read as the page was. A pattern therefore means the same to Python and to JavaScript.
"""

from __future__ import annotations

import re

from gllm_lib.book import greek

_LETTERS = """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi
psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"""
_OTHERS = """le ≤  leq ≤  ge ≥  geq ≥  ne ≠  neq ≠  approx ≈  sim ∼  equiv ≡  propto ∝  ll ≪  gg ≫  in ∈  notin ∉
subset ⊂  subseteq ⊆  subsetneq ⊊  cup ∪  cap ∩  bigcup ⋃  setminus ∖  emptyset ∅  varnothing ∅  mid |  vert |  lvert |
rvert |  Vert ‖  lVert ‖  rVert ‖  langle ⟨  rangle ⟩  lfloor ⌊  rfloor ⌋  lceil ⌈  rceil ⌉  to →  rightarrow →
leftarrow ←  mapsto ↦  implies ⇒  Rightarrow ⇒  iff ⇔  sum ∑  prod ∏  int ∫  partial ∂  nabla ∇  infty ∞  pm ±  mp ∓
times ×  cdot ·  circ ∘  odot ⊙  oplus ⊕  bigoplus ⨁  otimes ⊗  dashv ⊣  bot ⊥  perp ⊥  top ᵀ  star ⋆  ast *  dots …
ldots …  cdots …  vdots …  ddots …  ell ℓ  forall ∀  exists ∃  colon :  bmod mod  pmod mod  prime '  varepsilon ε
varphi φ  varrho ρ  varsigma ς  vartheta ϑ  Pr Pr"""

GREEK = {name: greek(name) for name in _LETTERS.split()}
SIGNS = GREEK | dict(zip(*[iter(_OTHERS.split())] * 2, strict=True))

_NOTHING = "left|right|[bB]igg?[lrm]?|displaystyle|textstyle|limits|nolimits|notag|mathop"
_FONTS = r"math(?:rm|bf|cal|sf|it|frak)|boldsymbol|operatorname\*?|text\w*"
_PLAIN = rf"{_FONTS}|underbrace|overbrace|phantom|vec|dot"
_ACCENTS = (("hat|widehat", "\u0302"), ("tilde|widetilde", "\u0303"), ("bar|overline", "\u0304"))

# (pattern, replacement); applied in this order until nothing changes, after the signs; \1 is the first group
RULES: tuple[tuple[str, str], ...] = (
    (r"\\(?:begin|end)\{\w+\*?\}(?:\{[clr|]*\})?", " "),
    (rf"\\(?:{_NOTHING})(?![A-Za-z])", ""),
    (r"\\\\(?:\[[^\]]*\])?|\\q?quad(?![A-Za-z])|&", "\u00a0"),
    (r"\\[,;:! ]|~", " "),
    (r"\\\{", "❴"),
    (r"\\\}", "❵"),
    (r"\\\|", "‖"),
    (r"\\([%#_$])", r"\1"),
    *((rf"\\mathbb\s*(?:\{{{ascii}\}}|{ascii})", sign) for ascii, sign in zip("RNZQCPE", "ℝℕℤℚℂℙE", strict=True)),
    (rf"\\(?:{_PLAIN})(?![A-Za-z])\s*(?:\{{([^{{}}]*)\}}|([^\\\s{{}}]))", r"\1\2"),
    *((rf"\\(?:{names})(?![A-Za-z])\s*(?:\{{([^{{}}]*)\}}|([^\\\s{{}}]))", rf"\1\2{mark}") for names, mark in _ACCENTS),
    (r"\\sqrt\s*(?:\[[^\]]*\])?(?:\{([^{}]?)\}|([^\\\s{}[]))", r"√\1\2"),
    (r"\\sqrt\s*(?:\[[^\]]*\])?\{([^{}]*)\}", r"√(\1)"),
    (r"\\[dt]?frac(?![A-Za-z])\s*([^\\\s{}])", r"\\frac{\1}"),
    (r"\\[dt]?frac\s*\{([^{}]*)\}\s*([^\\\s{}])", r"\\frac{\1}{\2}"),
    (r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"⟪\1⟫/⟪\2⟫"),
    (r"\\binom\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"C(\1,\2)"),
    (r"([_^])\{([^{}]*)\}", r"\1⟪\2⟫"),
    (r"⟪(\\[A-Za-z]+|[^⟪⟫ \\+·/=<>≤≥,−-]*)⟫", r"\1"),  # one factor needs no parentheses
    (r"⟪([^⟪⟫]*)⟫", r"(\1)"),
    (r"(^|[^A-Za-z}\]])\{([^{}]*)\}", r"\1\2"),  # a group that no command takes
    (r"\^ᵀ", "ᵀ"),
    (r"\^[⋆*]", "*"),
)
# what is left: names of functions, which keep their distance; braces of a command that is not known
LAST = (
    (r"\\([A-Za-z]+)\s*", "\u00a0\\1\u00a0"),
    (r"\u00a0+", "\u00a0"),
    (r"^\u00a0|\u00a0$|\u00a0(?=[_^()[\],.;:}❵\s])", ""),
    (r"([({[,|‖√/·⟨❴_^\s])\u00a0", r"\1"),
    ("[{}]", ""),
    ("❴", "{"),
    ("❵", "}"),
)
# as pandoc reads it: no space inside the dollars, no digit behind them, none of them escaped
FORMULA = re.compile(r"(?<!\\)\$(?!\s)((?:\\.|[^$\\])+)(?<!\s)\$(?!\d)")
RELATIONS = r"\s*(:?[=≠<>≤≥≈∼≡∝∈∉⊂⊆→←↦⇒⇔]+:?)\s*"


def linear(tex: str) -> str:
    r"""Return a formula as one line of text: signs for their names, `a/b` for fractions, no braces."""
    text = re.sub(r"\\([A-Za-z]+)", lambda found: SIGNS.get(found[1], found[0]), tex)
    before = ""
    while before != text:
        before = text
        for pattern, replacement in RULES:
            text = re.sub(pattern, replacement, text)
    for pattern, replacement in LAST:
        text = re.sub(pattern, replacement, text)
    text = re.sub(r"[ \t\n]+", " ", text).replace("-", "−")
    text = re.sub(r" (?![A-Za-z0-9])|(?<![A-Za-z0-9]) ", "", text)
    text = re.sub(RELATIONS, r" \1 ", text)
    return re.sub(r"[_^]\([^()]*\)", lambda found: found[0].replace(" ", ""), text).strip()


def linear_text(markdown: str) -> str:
    """Return a line of markdown with each formula between dollars as text; a price such as $5 is no formula."""
    text = FORMULA.sub(lambda found: linear(found[1]).replace("\u00a0", " "), markdown)
    return text.replace(r"\$", "$")

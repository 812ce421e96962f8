"""Words that the build writes into pages as markdown: plain text, formulas in docstrings, and tables."""

from __future__ import annotations

import re

from gllm_lib.book import greek

PAIR = r"\([^()]*\)"


def plain(text: str) -> str:
    """Return the words of a docstring or a scope as markdown that shows them as they are."""
    return re.sub(r"([\\`*_{}\[\]<>$~^@#])", r"\\\1", text)


def symbols(text: str) -> str:
    """Return the words of a docstring with its formulas set: Greek letters, relations, roots, indices and powers."""
    names = r"alpha|beta|gamma|delta|epsilon|eta|theta|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau|phi|chi|psi|omega"
    words = re.sub(rf"(?<![A-Za-z])(?:{names}|Lambda|Phi|Delta|Sigma)(?![A-Za-z])", lambda m: greek(m[0]), text)
    words = re.sub(r"(?<![A-Za-z])varsigma(?![A-Za-z])", "ς", words)
    for typed, meant in (("<=", "≤"), (">=", "≥"), ("!=", "≠"), (" * ", " · "), (" - ", " − "), ("->", "→")):
        words = words.replace(typed, meant)
    words = re.sub(r"\bsqrt ?(?=[\d(])", "√", words)
    words = re.sub(r"(?<![\w-])-(?=\w)", "−", words)
    words = re.sub(r"(?<=\d) x (?=\d)", " × ", words)
    words = re.sub(r"\b(?!z3)([a-z])(\d)\b", r"\1_\2", words)  # z3 is the solver
    words = re.sub(rf"\\\^\(((?:[^()]|{PAIR})+)\)", _raised, plain(words))
    words = re.sub(r"\\\^(−?\w+)", r"^\1^", words)
    return re.sub(r"(?<![\w~])([^\W\d_])\\_(\w+)(?!\w|\()", r"\1~\2~", words)


def _raised(found: re.Match[str]) -> str:
    """Return a power in parentheses as raised words, of which pandoc wants the spaces marked."""
    return "^" + found[1].replace("-", "−").replace(" ", r"\ ") + "^"


def rows(header: list[str], body: list[list[str]], widths: str) -> str:
    """Return a pandoc pipe table; `widths` is its ruler, such as '|:--|--:|'."""
    lines = ["| " + " | ".join(map(_cell, line)) + " |" for line in [header, *body]]
    return "\n".join([lines[0], widths, *lines[1:]])


def _cell(text: str) -> str:
    """Return a text on one line without a bare pipe: in mathematics it becomes a command."""
    pieces = re.split(r"(\$[^$]+\$)", " ".join(text.split()))
    return "".join(p.replace("|", r"{\vert}" if p.startswith("$") else r"\|") for p in pieces)

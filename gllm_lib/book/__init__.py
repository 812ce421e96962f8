"""The book: its folder, the execution of its chapters, the pages made of them, and what a chapter must satisfy."""

import unicodedata

INK = "#1b1c1e"  # in a drawing, stands for the page's text colour
PAPER = "#fdfcfa"  # stands for the page itself


def greek(name: str) -> str:
    """Return the Greek letter that TeX calls `name`, such as Λ for "Lambda", or nothing."""
    size = "CAPITAL" if name[:1].isupper() else "SMALL"
    try:
        return unicodedata.lookup(f"GREEK {size} LETTER {name.upper().replace('LAMBDA', 'LAMDA')}")
    except KeyError:
        return ""

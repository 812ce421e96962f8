"""How the command speaks: plurals, paths from here, titles without TeX."""

from __future__ import annotations

import re
from pathlib import Path

from gllm_lib.book import greek


def without_tex(title: str) -> str:
    """Return a title with its formulas as one would type them, if they hold only signs, words and Greek letters."""
    signs = {"le": "≤", "ge": "≥", "ne": "≠", "to": "→", "infty": "∞", "times": "×", "cdot": "·"}
    signs |= {word: f" {word} " for word in ("log", "exp", "min", "max")}
    plain = re.sub(r"\\([A-Za-z]+)", lambda match: signs.get(match[1]) or greek(match[1]) or match[0], title)
    plain = " ".join(plain.replace("$", "").split()).replace("( ", "(")
    return title if re.search(r"[\\{}^]", plain) else plain


def counted(number: int, noun: str) -> str:
    """Return "1 check" or "2 checks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def relative(path: Path) -> str:
    """Return a path as one would type it here: without the working folder, if it lies in it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)

"""How the command speaks: plurals, and paths from here."""

from __future__ import annotations

from pathlib import Path


def counted(number: int, noun: str) -> str:
    """Return "1 check" or "2 checks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def relative(path: Path) -> str:
    """Return a path as one would type it here: without the working folder, if it lies in it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)

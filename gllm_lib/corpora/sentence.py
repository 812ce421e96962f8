"""One sentence of a treebank, as the reader hands it to what derives levels and targets from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sentence:
    """One sentence: its words as `conllu` tokens, heads (0 is the root), metadata, document name and position."""

    words: tuple[Mapping[str, Any], ...]
    heads: tuple[int, ...]
    spaced: tuple[bool, ...]
    metadata: Mapping[str, str | None]
    document: str
    where: str

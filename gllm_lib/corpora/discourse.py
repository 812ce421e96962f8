"""Entity mentions, discourse units and genres, read from the MISC column and the comments of a treebank.

Mentions are written `(12-person-giv:act-...` where they open and `12)` where they close (Universal Anaphora style);
a discourse unit is `Discourse=relation:source->target:depth:signals` on its first word.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gllm_lib.corpora.sentence import Sentence

BRACKET = re.compile(r"\(([^()]*)\)|\(([^()]*)|([^()]+)\)")  # opens and closes here | opens | closes
GENRES = 40  # more document-name prefixes than this name documents, not genres


@dataclass(frozen=True, eq=False)
class Mentions:
    """The innermost mention of each word: entity type and status ("" outside), nesting, chain length, earlier mentions.

    `coreferent` is 1 where the chain has two mentions or more in the document. Arrays have shape (n,).
    """

    annotated: bool
    unmatched: int
    kind: list[str]
    status: list[str]
    depth: NDArray[np.int64]
    chain: NDArray[np.int64]
    earlier: NDArray[np.int64]
    coreferent: NDArray[np.int64]


@dataclass(frozen=True)
class _Span:
    first: int
    last: int
    entity: str
    kind: str
    status: str


def mentions_of(sentences: Sequence[Sentence]) -> Mentions:
    """Return the innermost mention of every word; brackets without a partner are counted and left out."""
    by_document: dict[str, list[tuple[int, str]]] = defaultdict(list)
    size, annotated = 0, False
    for sentence in sentences:
        for word in sentence.words:
            text = (word["misc"] or {}).get("Entity")
            if text:
                annotated = True
                by_document[sentence.document].append((size, text))
            size += 1
    kind, status = [""] * size, [""] * size
    depth, chain, earlier = (np.zeros(size, dtype=np.int64) for _ in range(3))
    unmatched = 0
    for marks in by_document.values():
        spans, left = _spans(marks)
        unmatched += left
        lengths = Counter(span.entity for span in spans)
        before: Counter[str] = Counter()
        rank = {}
        for span in sorted(spans, key=lambda each: (each.first, -each.last)):
            rank[span] = before[span.entity]
            before[span.entity] += 1
        for span in sorted(spans, key=lambda each: each.first - each.last):  # the widest first, the innermost last
            stretch = slice(span.first, span.last + 1)
            width = span.last + 1 - span.first
            kind[stretch], status[stretch] = [span.kind] * width, [span.status] * width
            depth[stretch] += 1
            chain[stretch], earlier[stretch] = lengths[span.entity], rank[span]
    return Mentions(annotated, unmatched, kind, status, depth, chain, earlier, (chain >= 2).astype(np.int64))


def _spans(marks: Sequence[tuple[int, str]]) -> tuple[list[_Span], int]:
    """Return the spans of one document and the number of brackets without a partner."""
    spans: list[_Span] = []
    opened: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    unmatched = 0
    for index, text in marks:
        for whole, opening, closing in BRACKET.findall(text):
            if closing:
                if opened[closing]:
                    first, kind, status = opened[closing].pop()
                    spans.append(_Span(first, index, closing, kind, status))
                else:
                    unmatched += 1
                continue
            entity, kind, status = [*(whole or opening).split("-"), "", ""][:3]
            if whole:
                spans.append(_Span(index, index, entity, kind, status))
            else:
                opened[entity].append((index, kind, status))
    return spans, unmatched + sum(map(len, opened.values()))


def discourse_units(sentences: Sequence[Sentence]) -> tuple[list[str], NDArray[np.float64]]:
    """Return, per word, its unit's class of rhetorical relation ("" if none) and its unit's depth, shape (n,)."""
    relations: list[str] = []
    depths: list[float] = []
    current: dict[str, tuple[str, float]] = {}
    for sentence in sentences:
        for word in sentence.words:
            text = (word["misc"] or {}).get("Discourse")
            if text:
                current[sentence.document] = _unit(str(text).split(";")[0])
            relation, depth = current.get(sentence.document, ("", 0.0))
            relations.append(relation)
            depths.append(depth)
    return relations, np.array(depths)


def _unit(text: str) -> tuple[str, float]:
    """Return (coarse relation, depth) of `relation-subtype:source->target:depth:signals` or `ROOT:source:depth`."""
    parts = text.split(":")
    relation = re.split(r"[-_]", parts[0])[0].lower()
    depth = next((part for part in parts[2:3] if part.isdigit()), "0")
    return relation, float(depth)


def genres(sentences: Sequence[Sentence]) -> list[str]:
    """Return one genre per sentence: `meta::genre`, else the prefix of the document's name; empty if neither exists."""
    named = [sentence.metadata.get("meta::genre") or "" for sentence in sentences]
    if any(named):
        return named
    prefixes = [re.split(r"[-_]", sentence.document)[0] for sentence in sentences]
    documents = {sentence.document: prefix for sentence, prefix in zip(sentences, prefixes, strict=True)}
    shared = Counter(documents.values())
    if 2 <= len(shared) <= GENRES and min(shared.values()) >= 2:
        return prefixes
    return []

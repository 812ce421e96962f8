"""Compare two builds in substance: claims and their status, evidence, values in prose, outputs and figures.

What a run cost and on which machine is no difference, and neither is prose without values: `git diff` shows that.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from gllm_lib.book.project import BookError, cell_label, fill_inline, inline_names, read_notebook
from gllm_lib.proofs.claims import claims_of, divs
from gllm_lib.proofs.evidence import MIME_TYPE, kind_and_scope

BUILDS = ("_book", "build/preview", "build/site")  # below the root of a clone
NOTEBOOKS = Path("chapters", "downloads")  # in a build: X.ipynb as in the repository, X-executed.ipynb with outputs
TEXTS = ("text/markdown", "text/latex", "text/html", "text/plain")  # what is shown of an output, the first there is
MOST_LINES = 8  # of a changed text
_BOUNDARY = re.compile(r"[.!?]\s+(?=[A-Z`$@*(])|\n\s*\n|\n(?=[-|>] |\d+\. )")
_SLOT = "\0"


@dataclass(frozen=True)
class Difference:
    """One thing that differs: its chapter, kind and name, what it was and is, and the sentence a value stands in."""

    chapter: str
    kind: str  # chapter | claim | statement | status | check | value | output | figure
    name: str
    old: str
    new: str
    sentence: str = ""

    def __str__(self) -> str:
        """Return the difference in a few lines, without the chapter."""
        head = f"{self.kind} {self.name}".rstrip()
        if self.kind in ("statement", "output"):
            lines = list(difflib.unified_diff(self.old.splitlines(), self.new.splitlines(), lineterm="", n=0))[2:]
            lines = [line for line in lines if not line.startswith("@@")]
            more = [f"... {len(lines) - MOST_LINES} lines more"] if len(lines) > MOST_LINES else []
            return "\n      ".join([head, *(line[:160] for line in lines[:MOST_LINES]), *more])
        told = f"{head}: {self.old or 'none'} -> {self.new or 'none'}"
        return f"{told}\n      in: {self.sentence}" if self.sentence else told


@dataclass
class Chapter:
    """What a build shows of a chapter, each under the name by which it is found in the other build."""

    size: str  # smoke | default | full, or nothing where it was not executed
    claims: dict[str, str] = field(default_factory=dict)
    statements: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    sentences: dict[str, str] = field(default_factory=dict)  # in which the values stand
    outputs: dict[str, str] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)  # of cells without a label: a number, which other cells move


def compare(old: str | Path, new: str | Path) -> list[Difference]:
    """Return what differs between two builds, chapter by chapter; raises BookError for a folder that holds none.

    A folder is `_book`, `build/preview` or `build/site` of a clone, or a clone, which means its newest build.
    """
    before, after = read_build(Path(old)), read_build(Path(new))
    found: list[Difference] = []
    for name in dict.fromkeys([*before, *after]):
        if name not in before or name not in after:
            is_there = ("in the first alone", "") if name in before else ("", "in the second alone")
            found.append(Difference(name, "chapter", "", *is_there))
        else:
            found += _chapter_differences(name, before[name], after[name])
    return found


def as_json(found: list[Difference]) -> str:
    """Return the differences as a JSON list of objects."""
    return json.dumps([asdict(each) for each in found], indent=1, ensure_ascii=False)


def as_text(found: list[Difference]) -> str:
    """Return the differences under the names of their chapters, and how many there are of each kind."""
    lines = []
    for chapter in dict.fromkeys(each.chapter for each in found):
        lines += [chapter, *(f"  {each}" for each in found if each.chapter == chapter)]
    kinds = [each.kind for each in found]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    total = f"{len(found)} difference{'s' * (len(found) != 1)}: {counts}" if found else "no difference"
    return "\n".join([*lines, total])


def read_build(folder: Path) -> dict[str, Chapter]:
    """Return the chapters of a build by name; raises BookError for a folder that holds no executed notebooks."""
    built = [folder, *(folder / name for name in BUILDS)]
    built = [path for path in built if any((path / NOTEBOOKS).glob("*-executed.ipynb"))]
    if not built:
        told = "holds no build" if folder.is_dir() else "is not a folder"
        raise BookError(
            f"{folder} {told}; give _book, build/preview or build/site of a clone, or the clone itself "
            f"(a build has notebooks in {NOTEBOOKS.as_posix()}/; render again what an older version made)"
        )
    newest = max(built, key=lambda path: (path / NOTEBOOKS).stat().st_mtime)
    sources = sorted(path for path in (newest / NOTEBOOKS).glob("*.ipynb") if not path.stem.endswith("-executed"))
    return {path.stem: _read_chapter(path) for path in sources}


def _read_chapter(source: Path) -> Chapter:
    executed = source.with_name(f"{source.stem}-executed.ipynb")
    if not executed.is_file():
        return Chapter("")
    clean, notebook = read_notebook(source), read_notebook(executed)
    notebook.cells = [cell for cell in notebook.cells if cell.id != "overrides"]
    size = notebook.metadata.get("gllm", {}).get("profile")
    if not size or len(notebook.cells) != len(clean.cells):
        raise BookError(f"{executed} is not {source.name} as 'gllm render' executes it; render the book again")
    chapter = Chapter(size)
    for number, (before, cell) in enumerate(zip(clean.cells, notebook.cells, strict=True), 1):
        if cell.cell_type == "markdown":
            _read_text(chapter, f"{executed}, cell {number}", before.source, cell.source)
        elif cell.cell_type == "code":
            label = cell_label(cell.source)
            place = label or before.id
            chapter.places[place] = label or f"of cell {number} ({before.id})"
            _read_outputs(chapter, place, cell)
    for claim in claims_of(source.stem, notebook.cells):
        chapter.claims[claim.id] = claim.title
        chapter.statements[claim.id] = claim.statement
    return chapter


def _read_text(chapter: Chapter, where: str, clean: str, executed: str) -> None:
    """Note the status of the claims in a markdown cell, and its inline values with their sentences."""
    lines = executed.split("\n")
    for div in reversed(divs(executed)):
        if "status" in div.classes:
            bold = re.search(r"\*\*(.+?)\*\*", div.body)
            chapter.statuses[div.attributes["claim"]] = bold[1] if bold else div.body
            del lines[div.opens : div.closes + 1]
    names = inline_names("", clean)
    pieces = map(re.escape, fill_inline(clean, lambda _: _SLOT).split(_SLOT))
    pattern = re.sub(r"(\\\n)+", r"\\n+", "(.*?)".join(pieces))  # staging adds empty lines
    text = "\n".join(lines)
    if not (filled := re.fullmatch(pattern + r"\n*", text, re.DOTALL)):
        raise BookError(f"{where}: not its source with values filled in; render that build again with this version")
    for number, name in enumerate(names, 1):
        again = sum(key == name or key.startswith(f"{name} (") for key in chapter.values)
        key = f"{name} ({again + 1})" if again else name
        chapter.values[key], chapter.sentences[key] = filled[number], _sentence(text, *filled.span(number))


def _sentence(text: str, start: int, end: int) -> str:
    """Return the sentence of a text in which a place stands, on one line."""
    ends = [match.end() for match in _BOUNDARY.finditer(text)]
    first = max((each for each in ends if each <= start), default=0)
    last = min((each for each in ends if each > end), default=len(text))
    return " ".join(text[first:last].split())


def _read_outputs(chapter: Chapter, place: str, cell: Any) -> None:
    texts, figures = [], []
    for output in cell.outputs:
        data: Mapping[str, Any] = output.get("data", {})
        images = [str(data[kind]) for kind in data if kind.startswith("image/")]
        if MIME_TYPE in data:
            record = data[MIME_TYPE]
            chapter.checks[f"{record['name']} for {record['claim']}"] = _told(record)
        elif images:
            figures += images
        elif data:
            texts.append(str(next((data[kind] for kind in TEXTS if kind in data), sorted(data))))
        else:
            texts.append(str(output.get("text", "")))
    if texts:
        chapter.outputs[place] = "\n".join(texts)
    if figures:
        chapter.figures[place] = "\n".join(figures)


def _told(record: Mapping[str, Any]) -> str:
    """Return what a check is, without the time it took: kind, scope, cases, mutants."""
    mutants = ", ".join(sorted(record["witnesses"]))
    return f"{kind_and_scope(record)}, {record['cases']} cases, {record['mutants_rejected']} rejected ({mutants})"


def _chapter_differences(name: str, old: Chapter, new: Chapter) -> Iterator[Difference]:
    if old.size != new.size:
        yield Difference(name, "chapter", "", old.size or "not executed", new.size or "not executed")
    if not (old.size and new.size):
        return
    places = old.places | new.places
    for kind, before, after in (
        ("claim", old.claims, new.claims),
        ("statement", old.statements, new.statements),
        ("status", old.statuses, new.statuses),
        ("check", old.checks, new.checks),
        ("output", old.outputs, new.outputs),
    ):
        for key, was, is_ in _changes(before, after):
            if kind in ("claim", "check", "output") or (key in before and key in after):
                yield Difference(name, kind, places.get(key, key) if kind == "output" else key, was, is_)
    for key, was, is_ in _changes(old.values, new.values):
        yield Difference(name, "value", key, was, is_, new.sentences.get(key) or old.sentences[key])
    for key, was, is_ in _changes(old.figures, new.figures):
        yield Difference(name, "figure", places[key], *_sizes(was, is_))


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the keys whose texts differ, with both, "" for what is not there."""
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key):
            yield key, old.get(key, ""), new.get(key, "")


def _sizes(old: str, new: str) -> tuple[str, str]:
    """Return the sizes of two drawings in words, and where the sizes agree, how many lines differ."""
    told = [f"{len(each):,} bytes, {each.count('<path')} paths" if each else "" for each in (old, new)]
    if told[0] == told[1]:
        differ = sum(a != b for a, b in zip_longest(old.splitlines(), new.splitlines()))
        told[1] += f", {differ} lines differ"
    return told[0], told[1]

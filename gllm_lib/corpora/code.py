"""Python's own standard library as an exactly parsed corpus, always at hand.

`code_files.json` lists the files and the SHA-256 of each in one CPython release. On an interpreter with other bytes
everything runs; `matches_record` is then false, and nothing may be compared with a number recorded on that release.
"""

from __future__ import annotations

import json
import os
import platform
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gllm_lib.checks import FileError, InputError, note_input, read_text, sha256
from gllm_lib.corpora.annotated import AnnotatedCorpus
from gllm_lib.corpora.code_levels import level_matrices, rows_of, targets_of
from gllm_lib.corpora.code_tokens import parse_source

RECORD = Path(__file__).with_name("code_files.json")
ENOUGH = 0.5  # a distribution may strip some files; with fewer than this share the corpus is another one


@dataclass(frozen=True, eq=False)
class CodeCorpus(AnnotatedCorpus):
    """An AnnotatedCorpus of Python files, one document each, with what its bytes have to do with the record.

    `kinds` holds each token's kind (name, keyword, number, string, operator). `matches_record` is true when every
    file was found with the recorded bytes; otherwise `differing` and `missing` name the files and `notes` says so.
    """

    kinds: tuple[str, ...] = ()
    python: str = ""
    matches_record: bool = False
    differing: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def recorded_files() -> dict[str, str]:
    """Return the fixed list of files, as path below the standard library to SHA-256 in the recorded release."""
    record: dict[str, str] = json.loads(RECORD.read_text(encoding="utf-8"))["files"]
    return record


def standard_library(files: Iterable[str] | None = None, *, root: str | os.PathLike[str] | None = None) -> CodeCorpus:
    """Return the listed files of the running interpreter's standard library as a corpus with four levels.

    `files` (default: the recorded list) are paths below `root` (default: the standard library). Comments, blank
    lines, line ends and indentation are no tokens; an f-string is one. Missing files are left out and named.
    Raises FileError if fewer than half are there or one cannot be parsed, InputError for an empty list (GLLM Sec. 7.1).
    """
    record = recorded_files()
    names = tuple(record) if files is None else tuple(files)
    if not names:
        raise InputError("files is empty; give at least one path below the standard library, such as 'textwrap.py'")
    folder = Path(sysconfig.get_path("stdlib") if root is None else root)
    present = [name for name in names if (folder / name).is_file()]
    missing = tuple(name for name in names if name not in present)
    if not present or len(present) < ENOUGH * len(names):
        raise FileError(
            f"{folder} holds {len(present)} of the {len(names)} listed files (missing: {', '.join(missing[:4])}); "
            "use an interpreter whose standard library comes as files, or pass files="
        )
    sources = [parse_source(name, read_text(folder / name).removeprefix("\ufeff"), folder / name) for name in present]
    differing = tuple(name for name in present if sha256(folder / name) != record.get(name))
    note_input(RECORD)
    tokens = [token for source in sources for token in source.tokens]
    if not tokens:
        raise FileError(f"the {len(present)} files below {folder} hold no token; give files with code in them")
    rows = [row for source in sources for row in rows_of(source)]
    levels, columns = level_matrices(tokens, rows)
    sizes = [len(source.tokens) for source in sources]
    offsets = np.cumsum([0, *(1 + max((t.line for t in source.tokens), default=0) for source in sources)])
    return CodeCorpus(
        name="standard library",
        tokens=tuple(token.text for token in tokens),
        document=np.repeat(np.arange(len(sources)), sizes).astype(np.int64),
        sentence=np.array([offset + token.line for offset, source in zip(offsets, sources, strict=False)
                           for token in source.tokens], dtype=np.int64),
        spaced=np.array([token.spaced for token in tokens], dtype=bool),
        document_names=tuple(present),
        levels=levels,
        columns=columns,
        targets=targets_of(tokens, rows, columns),
        notes=_notes(differing, missing),
        kinds=tuple(token.kind for token in tokens),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        matches_record=not differing and not missing,
        differing=differing,
        missing=missing,
    )  # fmt: skip


def _notes(differing: tuple[str, ...], missing: tuple[str, ...]) -> tuple[str, ...]:
    notes = []
    if differing:
        told = f"{', '.join(differing[:3])}{' and others' if len(differing) > 3 else ''}"
        notes.append(f"{len(differing)} files have other bytes than the record ({told}): no number here is "
                     "comparable with a recorded one.")  # fmt: skip
    if missing:
        notes.append(f"{len(missing)} listed files are missing and were left out: {', '.join(missing)}.")
    return tuple(notes)

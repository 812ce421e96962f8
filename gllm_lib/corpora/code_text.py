"""The text of the standard library as byte-level pieces that know the syntax tree they came from.

Shapes: n pieces, a arcs, B windows, T positions.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from gllm_lib.checks import FileError, InputError, count, note_input, read_text, real, sha256
from gllm_lib.corpora.code import RECORD, recorded_files
from gllm_lib.corpora.code_tokens import Source, parse_source
from gllm_lib.corpora.tokens import piece_bytes, train_bpe

LAYOUT = -1  # the depth of a piece of layout: comment, blank line, line end, indentation


@dataclass(frozen=True, eq=False)
class CodeText:
    """Pieces of Python files, one file after the other, with the syntax tree over them.

    ids (n,)        piece numbers of `tokenizer`
    document (n,)   number of the file in `document_names`
    bytes (n,)      bytes of each piece; those of a file sum to the size of its text
    token (n,)      number of the token in the piece (the first, if there are several) among those of all files, which
                    are the tokens of `standard_library` of the same files; LAYOUT = -1 marks a piece without one
    depth (n,)      depth of the innermost node that owns the token in the piece (the first, if there are several);
                    the module has depth 0, and LAYOUT = -1 marks a piece of layout, which no node owns
    arcs (a, 2)     (piece, earlier piece): from the first piece of a node to that of its parent, where the parent
                    begins at an earlier token. The module is no parent here: its arcs would all end at the file's
                    start. At most one arc leaves a piece, but for pieces that hold several tokens.
    held_out        for each file whether it is held out (no piece was learnt from it)
    matches_record  whether every file has the recorded bytes; else no number is comparable with a recorded one
    """

    tokenizer: Tokenizer
    ids: NDArray[np.int64]
    document: NDArray[np.int64]
    bytes: NDArray[np.int64]
    token: NDArray[np.int64]
    depth: NDArray[np.int64]
    arcs: NDArray[np.int64]
    document_names: tuple[str, ...]
    held_out: NDArray[np.bool_]
    matches_record: bool

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def bytes_per_token(self) -> float:
        """The mean number of bytes of a piece."""
        return float(self.bytes.mean())

    def split(self) -> tuple[CodeText, CodeText]:
        """Return the files to train on and those held out; either has its own numbers of pieces and files."""
        return self._part(~self.held_out), self._part(self.held_out)

    def _part(self, files: NDArray[np.bool_]) -> CodeText:
        pieces = files[self.document]
        number = np.cumsum(pieces) - 1
        return replace(
            self,
            ids=self.ids[pieces],
            document=(np.cumsum(files) - 1)[self.document[pieces]],
            bytes=self.bytes[pieces],
            token=self.token[pieces],
            depth=self.depth[pieces],
            arcs=number[self.arcs[pieces[self.arcs[:, 0]]]],
            document_names=tuple(name for name, kept in zip(self.document_names, files, strict=True) if kept),
            held_out=self.held_out[files],
        )

    def windows(self, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return ids (B, T), depth (B, T) and arcs (a', 3) of consecutive windows of T = `length` pieces.

        An arc is (window, position, earlier position); those that leave their window are left out, and so are the
        last pieces that fill no window. Raises InputError if the text is shorter than a window.
        """
        length = count("length", length, 1, len(self))
        rows = len(self) // length
        inside = self.arcs // length
        kept = self.arcs[(inside[:, 0] == inside[:, 1]) & (inside[:, 0] < rows)]
        arcs = np.column_stack([kept[:, 0] // length, kept % length])
        shape = (rows, length)
        return self.ids[: rows * length].reshape(shape), self.depth[: rows * length].reshape(shape), arcs


def library_text(
    size: int = 1024,
    files: Iterable[str] | None = None,
    *,
    held_out: float = 0.1,
    root: str | os.PathLike[str] | None = None,
) -> CodeText:
    """Return the text of the listed files in `size` pieces of a BPE learnt from those that are not held out.

    `files` (default: the recorded list) are paths below `root` (default: the standard library); those that are not
    there are left out. A share `held_out` of the files, at least one, is held out: those whose names have the smallest
    SHA-256. Raises FileError if fewer than two files are there or one is not UTF-8 or no Python, InputError for a
    file named twice, a share outside (0, 1) or a size that `train_bpe` refuses.
    """
    held_out = real("held_out", held_out, above=0, below=1)
    record = recorded_files()
    note_input(RECORD)
    folder = Path(sysconfig.get_path("stdlib") if root is None else root)
    wanted = list(record if files is None else files)
    if twice := [name for name, times in Counter(wanted).items() if times > 1]:
        raise InputError(f"files names {twice[0]!r:.80} more than once; name each file once, or it may be held out too")
    names = [name for name in wanted if (folder / name).is_file()]
    if len(names) < 2:
        raise FileError(
            f"{folder} holds {len(names)} of the {len(wanted)} files; give two or more, for one is held out"
        )
    sources = [parse_source(name, read_text(folder / name).removeprefix("\ufeff"), folder / name) for name in names]
    ranked = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    held = set(ranked[: min(max(1, round(held_out * len(names))), len(names) - 1)])
    tokenizer = train_bpe([source.text for source in sources if source.name not in held], size)
    encodings = tokenizer.encode_batch([source.text for source in sources])
    counts = [len(each.ids) for each in encodings]
    ids = np.concatenate([np.array(each.ids, dtype=np.int64) for each in encodings])
    parts = [align_pieces(source, each.offsets) for source, each in zip(sources, encodings, strict=True)]
    starts = accumulate(counts[:-1], initial=0)
    tokens = [token_of_pieces(source, each.offsets) for source, each in zip(sources, encodings, strict=True)]
    passed = accumulate((len(source.tokens) for source in sources), initial=0)
    return CodeText(
        tokenizer=tokenizer,
        ids=ids,
        document=np.repeat(np.arange(len(sources)), counts),
        bytes=piece_bytes(tokenizer)[ids],
        token=np.concatenate([np.where(token < 0, LAYOUT, token + before)
                              for token, before in zip(tokens, passed, strict=False)]),
        depth=np.concatenate([depth for depth, _ in parts]),
        arcs=np.concatenate([arcs + start for (_, arcs), start in zip(parts, starts, strict=True)]),
        document_names=tuple(names),
        held_out=np.array([name in held for name in names]),
        matches_record=len(names) == len(wanted) and all(sha256(folder / name) == record.get(name) for name in names),
    )  # fmt: skip


def token_of_pieces(source: Source, offsets: list[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the number of the first token in each piece [start, end) of characters, LAYOUT where there is none."""
    begins, ends = spans(source)
    token = np.array([bisect_right(ends, start) for start, _ in offsets], dtype=np.int64)  # first to end behind start
    reached = np.append(begins, np.iinfo(np.int64).max)[token] < np.array([end for _, end in offsets])
    return np.where(reached, token, LAYOUT)


def spans(source: Source) -> tuple[list[int], list[int]]:
    """Return where each token begins and ends in the text, in characters."""
    lines = list(accumulate((len(line) + 1 for line in source.text.split("\n")), initial=0))
    begins = [lines[token.start[0] - 1] + token.start[1] for token in source.tokens]
    return begins, [lines[token.end[0] - 1] + token.end[1] for token in source.tokens]


def align_pieces(source: Source, offsets: list[tuple[int, int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the depth of each piece (n,) and the arcs between pieces (a, 2), for pieces [start, end) in characters."""
    token = token_of_pieces(source, offsets)
    depths = np.array([source.nodes[number].depth for number in source.owner] + [LAYOUT], dtype=np.int64)
    depth = depths[token]  # LAYOUT is the last place, too
    piece_ends = [end for _, end in offsets]
    first = [bisect_right(piece_ends, begin) for begin in spans(source)[0]]  # the piece that holds a token's first byte
    arcs = []
    for node in source.nodes[1:]:
        parent = source.nodes[node.parent]
        if node.parent and parent.first < node.first < node.last and first[parent.first] < first[node.first]:
            arcs.append((first[node.first], first[parent.first]))
    return depth, np.array(arcs, dtype=np.int64).reshape(-1, 2)

"""Read Universal Dependencies treebanks (CoNLL-U): sentences, documents, trees, entity mentions, discourse units.

The package `conllu` parses the fields of a line; this module checks what it lets pass (the number of columns, the
order of the ids, the tree) and says where a file is wrong. A row is a syntactic word: multiword ranges only say that
no space stands inside them, and empty nodes are left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import conllu
import numpy as np

from gllm_lib.checks import FileError, InputError, read_text
from gllm_lib.corpora.annotated import AnnotatedCorpus
from gllm_lib.corpora.sentence import Sentence
from gllm_lib.corpora.treebank_levels import annotate

COLUMNS = 10
WORD_ID = re.compile(r"[1-9][0-9]*")
RANGE_ID = re.compile(r"([1-9][0-9]*)-([1-9][0-9]*)")
EMPTY_ID = re.compile(r"[0-9]+\.[1-9][0-9]*")


def conllu_files(path: str | os.PathLike[str], pattern: str = "*.conllu") -> list[Path]:
    """Return the CoNLL-U files at `path`, a file or a folder, in the order of their names; raises FileError if none."""
    source = Path(path)
    if source.is_dir():
        files = sorted(source.glob(pattern))
        if not files:
            raise FileError(
                f"the folder {source} holds no file {pattern}; give the folder of a Universal Dependencies "
                "treebank, or one of its .conllu files"
            )
        return files
    if not source.exists():
        raise FileError(f"{source} does not exist; give a .conllu file or a folder of such files")
    return [source]


def read_treebank(
    path: str | os.PathLike[str], pattern: str = "*.conllu", *, name: str | None = None, share: float = 0.001
) -> AnnotatedCorpus:
    """Return the treebank at `path`, a file or a folder, with the levels shape, syntax, semantics and discourse.

    A category (a relation, a suffix, a feature) gets an indicator column if it marks at least `share` of the words.
    Targets that the treebank does not annotate are absent, and `.notes` says which. Raises FileError for a file that
    is missing, empty, not UTF-8 or not CoNLL-U, naming file and line (GLLM Sec. 7.1).
    """
    if not 0.0 < share < 1.0:
        raise InputError(f"share is {share}; give the smallest share of words a category must mark, such as 0.001")
    sentences = read_sentences(path, pattern)
    source = Path(path)
    return annotate(name or (source.name if source.is_dir() else source.stem), sentences, share)


def read_sentences(path: str | os.PathLike[str], pattern: str = "*.conllu") -> list[Sentence]:
    """Return every sentence of the treebank at `path`; raises FileError for bad files and repeated sentence ids."""
    sentences: list[Sentence] = []
    seen: dict[str, str] = {}
    for file in conllu_files(path, pattern):
        for sentence in _sentences_of(file):
            name = sentence.metadata.get("sent_id")
            if name is not None and name in seen:
                raise FileError(
                    f"{sentence.where}: sent_id {name!r} was already used at {seen[name]}; ids are unique in a "
                    "treebank: read each file once, or rename one of them"
                )
            if name is not None:
                seen[name] = sentence.where
            sentences.append(sentence)
    if not sentences:
        raise FileError(f"{path} holds no sentence; give a CoNLL-U file with at least one word line")
    return sentences


def _sentences_of(file: Path) -> Iterator[Sentence]:
    """Yield the sentences of one file; a file without `# newdoc` is one document, named after the file."""
    document, untitled = file.stem, 0
    inherited: dict[str, str | None] = {}
    for start, block in _blocks(read_text(file).removeprefix("\ufeff")):
        where = f"{file}, line {start}"
        _check_lines(file, start, block)
        parsed = conllu.parse("\n".join(line for line in block if not line.startswith("# global.columns")) + "\n\n")
        if not parsed or not any(isinstance(token["id"], int) for token in parsed[0]):
            raise FileError(f"{file}, the sentence from line {start}: comments but no word line; add the words")
        metadata = dict(parsed[0].metadata)
        if "newdoc id" in metadata or "newdoc" in metadata:
            untitled += 1
            document = metadata.get("newdoc id") or f"{file.stem}-{untitled}"
            inherited = {key: value for key, value in metadata.items() if key.startswith("meta::")}
        yield _sentence(parsed[0], {**inherited, **metadata}, document, where)


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the first line, lines) of each run of lines that are not blank."""
    block: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            block.append(line)
        elif block:
            yield number - len(block), block
            block = []
    if block:
        yield number - len(block) + 1, block


def _check_lines(file: Path, start: int, block: list[str]) -> None:
    """Raise FileError for the first line of a sentence whose columns, id or head are not as CoNLL-U has them."""
    expected, words = 1, sum(bool(WORD_ID.fullmatch(line.split("\t", 1)[0])) for line in block)
    for number, line in enumerate(block, start=start):
        if line.startswith("#"):
            continue
        where, fields = f"{file}, line {number}", line.split("\t")
        if len(fields) != COLUMNS:
            raise FileError(
                f"{where}: {len(fields)} columns, not {COLUMNS}; CoNLL-U separates ten fields by single tabs and "
                "writes _ for an empty one"
            )
        identity, head = fields[0], fields[6]
        if stretch := RANGE_ID.fullmatch(identity):
            first, last = int(stretch[1]), int(stretch[2])
            if not expected == first < last <= words:
                raise FileError(
                    f"{where}: the range {identity} must begin at the next word, {expected}, and end by {words}"
                )
        if stretch or EMPTY_ID.fullmatch(identity):
            continue
        if not WORD_ID.fullmatch(identity):
            raise FileError(f"{where}: the id {identity!r} is no word (7), range (7-8) or empty node (7.1)")
        if int(identity) != expected:
            told = "used twice" if int(identity) < expected else f"not the next one, {expected}"
            raise FileError(f"{where}: the word id {identity} is {told}; words are numbered 1, 2, 3, ...")
        if not (head.isascii() and head.isdigit()) or int(head) > words:
            raise FileError(
                f"{where}: the head {head!r} of word {identity} is missing or not a word of its sentence; give 0 "
                f"for the root or a number up to {words}"
            )
        if not fields[1]:
            raise FileError(f"{where}: word {identity} has no form; write _ for one that is not given")
        expected += 1


def _sentence(parsed: conllu.TokenList, metadata: dict[str, str | None], document: str, where: str) -> Sentence:
    words = tuple(token for token in parsed if isinstance(token["id"], int))
    heads = tuple(int(token["head"]) for token in words)
    check_tree(heads, where)
    spaced = [(token["misc"] or {}).get("SpaceAfter") != "No" for token in words]
    for token in parsed:
        if isinstance(token["id"], tuple) and token["id"][1] == "-":
            first, last = token["id"][0], token["id"][2]
            spaced[first - 1 : last - 1] = [False] * len(spaced[first - 1 : last - 1])
            if last <= len(spaced):
                spaced[last - 1] = (token["misc"] or {}).get("SpaceAfter") != "No"
    return Sentence(words, heads, tuple(spaced), metadata, document, where)


def check_tree(heads: tuple[int, ...], where: str) -> None:
    """Raise FileError if following the heads (n,) from some word never reaches the root 0."""
    reaches = np.zeros(len(heads) + 1, dtype=bool)
    reaches[0] = True
    for word in range(1, len(heads) + 1):
        path: list[int] = []
        at = word
        while not reaches[at]:
            if at in path:
                cycle = " -> ".join(map(str, [*path[path.index(at) :], at]))
                raise FileError(f"{where}: the heads go in a circle, {cycle}, and reach no root; repair one of them")
            path.append(at)
            at = heads[at - 1]
        reaches[path] = True

"""Byte-level pieces learnt from text on the spot, and files of token numbers that are mapped rather than read.

Shapes: n tokens, V vocabulary. A token file is a safetensors file with one array `tokens`, little-endian uint16 where
V <= 65536 and uint32 above, and the vocabulary, the bytes of text and the SHA-256 of the array in its metadata.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from gllm_lib.checks import FileError, InputError, InputTypeError, as_array, count, note_input, write_bytes

BYTES = 256
FORMAT = "gllm-tokens-1"
CHUNK = 1 << 20  # entries read at a time, so that a memory map is never in memory whole
# A piece lies within one of these: letters, digits or underscores after at most one space, a triple quote, one other
# mark, white space. So no piece of code reaches over two syntactic tokens, but for adjacent quotes and odd numbers.
WORDS = r""" ?\p{L}+| ?\p{N}+| ?_+|\"\"\"|'''| ?[^\s\p{L}\p{N}]|\s+(?!\S)|\s+"""


def train_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """Return a byte-level BPE of exactly `size` pieces, the same on every run: 256 bytes, then size - 256 merges.

    It has no special pieces and changes no character, so decoding what was encoded gives the text back.
    Raises InputError for an empty corpus, a size below 256 or beyond what the texts yield; InputTypeError for one str.
    """
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise InputTypeError(f"texts is {texts!r:.40}; give a list of texts, such as [text]")
    size = count("size", size, BYTES)
    checked = [_text(f"texts[{i}]", text) for i, text in enumerate(texts)]
    if not any(checked):
        raise InputError(f"the corpus is empty ({len(checked)} texts without a character); give text to learn from")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(WORDS), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=alphabet, special_tokens=[])
    tokenizer.train_from_iterator(checked, trainer)
    if tokenizer.get_vocab_size() != size:
        raise InputError(
            f"the texts yield {tokenizer.get_vocab_size()} pieces, fewer than the {size} asked for; "
            "give more text or a smaller size"
        )
    return tokenizer


def encode_text(tokenizer: Tokenizer, text: str) -> NDArray[np.int64]:
    """Return the piece numbers of `text`, shape (n,); raises InputError for a str that UTF-8 cannot hold."""
    return np.array(tokenizer.encode(_text("text", text)).ids, dtype=np.int64)


def decode_text(tokenizer: Tokenizer, ids: ArrayLike) -> str:
    """Return the text of piece numbers (n,); bytes that are no UTF-8, as at a cut character, become U+FFFD.

    Raises InputError for a number outside the vocabulary.
    """
    decoded: str = tokenizer.decode(token_ids("ids", ids, tokenizer.get_vocab_size()).tolist())
    return decoded


def piece_bytes(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Return the number of bytes of each piece, shape (V,): byte-level pieces spell each byte with one character."""
    pieces = tokenizer.get_vocab()
    lengths = np.zeros(len(pieces), dtype=np.int64)
    lengths[list(pieces.values())] = [len(piece) for piece in pieces]
    return lengths


@dataclass(frozen=True, eq=False)
class TokenFile:
    """An open token file: a memory map `tokens` (n,), the vocabulary V, the bytes of text behind it (0: no text)."""

    tokens: NDArray[np.unsignedinteger]
    vocabulary: int
    bytes: int
    sha256: str

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def bytes_per_token(self) -> float:
        """The mean number of bytes of text of a token; 0 where the tokens are of no text."""
        return self.bytes / len(self.tokens)


def write_tokens(path: str | os.PathLike[str], ids: ArrayLike, vocabulary: int, *, bytes: int = 0) -> Path:
    """Write token numbers (n,) to `path` whole or not at all, two bytes each where vocabulary <= 65536, else four.

    `bytes` counts the UTF-8 bytes of the text they came from. Raises InputError for no token or one out of range.
    """
    vocabulary, bytes = count("vocabulary", vocabulary, 1, 2**32), count("bytes", bytes, 0)
    array = token_ids("ids", ids, vocabulary).astype("<u2" if vocabulary <= 2**16 else "<u4")
    if not array.size:
        raise InputError("ids is empty; give at least one token")
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    facts = {"bytes": bytes, "sha256": digest, "vocabulary": vocabulary}
    return write_bytes(path, save({"tokens": array}, {FORMAT: json.dumps(facts)}))  # one key: several have no order


def open_tokens(path: str | os.PathLike[str], *, verify: bool = True) -> TokenFile:
    """Return the tokens of a file as a read-only memory map with what is known of them.

    Raises FileError for a missing, truncated or foreign file and, unless `verify` is false, for altered tokens.
    """
    source = Path(path)
    try:
        with safe_open(source, "numpy") as opened:
            told = (opened.metadata() or {}).get(FORMAT)
        with open(source, "rb") as handle:
            start = 8 + int.from_bytes(handle.read(8), "little")
    except SafetensorError as error:
        raise FileError(
            f"{source} is truncated or no token file ({error}); write it again with write_tokens"
        ) from error
    except OSError as error:
        raise FileError(f"{source} cannot be read: {error.strerror or error}; check the path") from error
    if told is None:
        raise FileError(f"{source} is a safetensors file but no token file; give one that write_tokens wrote")
    try:
        facts = json.loads(told)
        vocabulary = facts["vocabulary"]
        tokens = np.memmap(source, dtype="<u2" if vocabulary <= 2**16 else "<u4", mode="r", offset=start)
        result = TokenFile(tokens, **facts)
    except (ValueError, TypeError, KeyError) as error:
        raise FileError(f"{source} has a damaged header ({error}); write it again with write_tokens") from error
    if verify and (hashlib.sha256(tokens.data).hexdigest() != facts["sha256"] or tokens.max() >= vocabulary):
        raise FileError(f"{source} holds other tokens than were written (its SHA-256 differs); write it again")
    note_input(source)
    return result


def token_ids(name: str, value: ArrayLike, vocabulary: int, dimensions: int = 1) -> NDArray[np.int64]:
    """Return token numbers as int64, checked as by `token_array`."""
    return token_array(name, value, vocabulary, dimensions).astype(np.int64)


def token_array(name: str, value: ArrayLike, vocabulary: int, dimensions: int = 1) -> NDArray[Any]:
    """Return token numbers of that many dimensions as they are held, memory-mapped or not.

    Raises InputTypeError for what is no whole number, InputError for another shape or a number out of range.
    """
    array = as_array(name, value, f"give token ids from 0 to {vocabulary - 1}")
    if array.ndim != dimensions:
        kind = "a flat list of token ids" if dimensions == 1 else f"token ids in {dimensions} dimensions"
        raise InputError(f"{name} has shape {array.shape}; give {kind}")
    if array.size and array.dtype.kind not in "iu":
        raise InputTypeError(f"{name} holds {array.dtype} entries; give whole numbers from 0 to {vocabulary - 1}")
    for start, chunk in chunks(array.reshape(-1)):
        bad = np.flatnonzero((chunk < 0) | (chunk >= vocabulary))
        if bad.size:
            place = ", ".join(str(int(i)) for i in np.unravel_index(start + bad[0], array.shape))
            raise InputError(
                f"{name}[{place}] is {chunk[bad[0]]}; a vocabulary of {vocabulary} has the tokens "
                f"0 to {vocabulary - 1}: encode with the tokenizer that it belongs to"
            )
    return array


def chunks(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield parts of a flat array, each with the number of its first entry."""
    for start in range(0, len(array), CHUNK):
        yield start, array[start : start + CHUNK]


def _text(name: str, text: object) -> str:
    if not isinstance(text, str):
        raise InputTypeError(f"{name} is {type(text).__name__}; give str: decode bytes with data.decode('utf-8')")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} holds a lone surrogate at character {error.start}, which UTF-8 cannot hold; "
            "decode the file strictly, or replace such characters"
        ) from error
    return text

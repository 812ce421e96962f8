"""Byte-level pieces and token files: exact, the same on every run, and refused when damaged."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gllm_lib import checks
from gllm_lib.checks import FileError, InputError, InputTypeError
from gllm_lib.corpora.tokens import decode_text, encode_text, open_tokens, piece_bytes, train_bpe, write_tokens

TEXTS = ["def größe(self, x_1):\n    return self.__größe__ + x_1  # größer\n" * 3, 'x = """日本 日本"""\n']
TOKENIZER = train_bpe(TEXTS, 290)
AGAIN = """
import hashlib
from tests.library.test_tokens import TEXTS, train_bpe
print(hashlib.sha256(train_bpe(TEXTS, 290).to_str().encode()).hexdigest())
"""
TEXT = st.text(st.characters(codec="utf-8"))


@given(st.one_of(TEXT, st.text("é日 \t\n\r_x1\"'#<|>\0\u2028", max_size=30), st.sampled_from(TEXTS)))
def test_decoding_gives_back_any_text_and_pieces_count_its_bytes(text):
    ids = encode_text(TOKENIZER, text)
    assert decode_text(TOKENIZER, ids) == text
    assert piece_bytes(TOKENIZER)[ids].sum() == len(text.encode())


def test_two_processes_learn_the_same_bytes_whatever_their_threads(root):
    told = set()
    for threads, seed in (("true", "1"), ("false", "2"), ("false", "3")):
        environment = {"TOKENIZERS_PARALLELISM": threads, "PYTHONHASHSEED": seed, "PATH": ""}
        command = [sys.executable, "-c", AGAIN]
        told.add(subprocess.run(command, cwd=root, env=environment, capture_output=True, check=True, text=True).stdout)
    assert len(told) == 1
    assert len(told.pop().strip()) == 64


def test_the_first_merge_is_of_the_most_frequent_pair():
    tokenizer = train_bpe(["abab abab", "ab"], 257)  # ab 5 times, ba twice, the space once
    assert "ab" in tokenizer.get_vocab()
    assert tokenizer.get_vocab_size() == 257
    assert len(encode_text(tokenizer, "abab")) == 2


def test_no_piece_reaches_over_two_words_or_marks():
    pieces = train_bpe(['f(x[0]).__init__("a", b_c)\n    """doc"""\n' * 50], 269).get_vocab()
    assert {"__", '"""', "doc"} <= set(pieces)
    assert not any("(" in piece and len(piece) > 1 + piece.startswith("Ġ") for piece in pieces)


@pytest.mark.parametrize(
    ("texts", "size", "error", "told"),
    [([], 300, InputError, "empty"), (["", ""], 300, InputError, "2 texts"),
     ("abc", 300, InputTypeError, "give a list"), (None, 300, InputTypeError, "texts is None"),
     (["abc"], 300.0, InputTypeError, "size is 300.0"),
     ([b"abc"], 300, InputTypeError, "decode"), (["\ud800"], 300, InputError, "surrogate at character 0"),
     (["abc"], 255, InputError, "at least 256"), (["abc"], 300, InputError, "yield 258"),
     (["abc"], 256.0, InputTypeError, "256.0")],
)  # fmt: skip
def test_a_corpus_or_size_that_gives_no_pieces_is_refused(texts, size, error, told):
    with pytest.raises(error, match=told):
        train_bpe(texts, size)


def test_text_and_numbers_that_cannot_be_coded_are_refused():
    with pytest.raises(InputError, match="character 1"):
        encode_text(TOKENIZER, "a\udc80")
    with pytest.raises(InputTypeError, match="bytes"):
        encode_text(TOKENIZER, b"a")
    with pytest.raises(InputError, match=r"ids\[1\] is 290"):
        decode_text(TOKENIZER, [0, 290])
    with pytest.raises(InputError, match="flat"):
        decode_text(TOKENIZER, [[0]])


def test_a_file_that_is_not_utf8_is_refused_with_the_byte(tmp_path):
    (tmp_path / "latin.txt").write_bytes(b"gr\xf6\xdfe")
    with pytest.raises(FileError, match="byte 2 is 0xf6"):
        checks.read_text(tmp_path / "latin.txt")


@pytest.mark.parametrize(("vocabulary", "width"), [(1, 2), (65536, 2), (65537, 4), (2**32, 4)])
def test_a_token_file_gives_back_the_largest_token_in_few_bytes(tmp_path, vocabulary, width):
    ids = [0, vocabulary - 1, 0]
    opened = open_tokens(write_tokens(tmp_path / "t", ids, vocabulary, bytes=7))
    assert opened.tokens.tolist() == ids
    assert isinstance(opened.tokens, np.memmap)
    assert not opened.tokens.flags.writeable
    assert opened.tokens.dtype == np.dtype(f"<u{width}")
    assert (opened.vocabulary, opened.bytes, len(opened)) == (vocabulary, 7, 3)
    assert opened.bytes_per_token == 7 / 3


def test_a_token_file_has_the_same_bytes_on_every_run_and_is_noted_as_an_input(tmp_path):
    one, two = (write_tokens(tmp_path / name, [3, 1, 2], 10, bytes=5) for name in "ab")
    assert one.read_bytes() == two.read_bytes()
    open_tokens(one)
    assert checks.inputs_read()[str(one.resolve())] == checks.sha256(one)


def test_every_truncation_and_a_flipped_bit_are_noticed(tmp_path):
    path = write_tokens(tmp_path / "t", [3, 1, 2], 10)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(FileError, match="truncated or no token file"):
            open_tokens(path)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(FileError, match="SHA-256"):
        open_tokens(path)
    assert open_tokens(path, verify=False).tokens.tolist() == [3, 1, 258]


def test_a_header_with_a_flipped_bit_gives_no_other_tokens_and_no_other_error(tmp_path):
    path = write_tokens(tmp_path / "t", [3, 1, 9], 10)
    whole, refused = path.read_bytes(), 0
    for bit in range(8 * len(whole)):
        path.write_bytes(whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :])
        try:
            assert open_tokens(path).tokens.tolist() == [3, 1, 9]
        except FileError:
            refused += 1
    assert refused > 0.9 * 8 * len(whole)  # the rest are digits of counts, and padding


def test_foreign_and_missing_files_are_refused(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "t"
    with pytest.raises(FileError, match="cannot be read"):
        open_tokens(path)
    path.write_text("# tokens\n" * 100)
    with pytest.raises(FileError, match="no token file"):
        open_tokens(path)
    save_file({"weight": np.zeros(3)}, path)
    with pytest.raises(FileError, match="safetensors file but no token file"):
        open_tokens(path)


@pytest.mark.parametrize(
    ("ids", "vocabulary", "error", "told"),
    [([], 5, InputError, "empty"), ([0, 5, 6], 5, InputError, r"ids\[1\] is 5;"), ([-1], 5, InputError, "-1"),
     ([0.0], 5, InputTypeError, "whole"), (None, 5, InputTypeError, "None"), ([0], 0, InputError, "vocabulary is 0"),
     ([0], 2.5, InputTypeError, "vocabulary is 2.5"), ([0], "5", InputTypeError, "vocabulary is '5'"),
     ([0], 2**32 + 1, InputError, "from 1 to 4294967296")],
)  # fmt: skip
def test_a_refused_file_is_not_written_and_the_old_one_stays(tmp_path, ids, vocabulary, error, told):
    path = write_tokens(tmp_path / "t", [1], 5)
    before = path.read_bytes()
    with pytest.raises(error, match=told):
        write_tokens(path, ids, vocabulary)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["t"]

"""The library's text as pieces: depth and arcs against a second walk of the tree, split, windows, bad input."""

import ast
import io
import sysconfig
import tokenize
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gllm_lib import checks
from gllm_lib.checks import FileError, InputError, InputTypeError, sha256
from gllm_lib.corpora.code import RECORD, recorded_files
from gllm_lib.corpora.code_text import LAYOUT, align_pieces, library_text
from gllm_lib.corpora.code_tokens import PLACED, Node, parse_source
from gllm_lib.corpora.tokens import decode_text, encode_text, train_bpe

FEW = ("textwrap.py", "heapq.py", "queue.py", "copy.py")
SAMPLE = '''# größe
import os.path as p, sys


@p.wrap(1)
class Größe(object):
    """Doc: 日本."""

    def ä(self, x=(1, -2), *y) -> "日":
        if x and y[::2] == [x, "日本"]:  # 日
            return {x: lambda z: z + 1 \\
                    for x in self.ä(y) if not x}
        z = f"{x + 1} and {y}" "b"

for ö, b in p: b = a + ö
'''


@pytest.fixture(scope="module")
def few():
    return library_text(400, FEW, held_out=0.25)


def positions(text):
    """Return a function from (line, character) to the number of the character in the text."""
    lines = text.split("\n")
    return lambda line, column: sum(len(each) + 1 for each in lines[: line - 1]) + column


def nodes_of(text):
    """Return (start, end, depth, start of the parent or None for the module) of each node with a place."""
    at, lines, found = positions(text), text.split("\n"), []

    def below(node, depth, parent):
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, PLACED):
                below(child, depth, parent)
                continue
            start, end = (at(line, len(lines[line - 1].encode()[:column].decode())) for line, column in
                          ((child.lineno, child.col_offset), (child.end_lineno, child.end_col_offset)))  # fmt: skip
            found.append((start, end, depth, parent))
            if not isinstance(child, ast.JoinedStr):
                below(child, depth + 1, start)

    below(ast.parse(text), 1, None)
    return found


def is_code(text):
    """Return for each character whether it belongs to a token, an f-string counting as one."""
    at, code, strings = positions(text), np.zeros(len(text), dtype=bool), []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        if name == "FSTRING_START":
            strings.append(at(*token.start))
        elif name == "FSTRING_END":
            code[strings.pop() : at(*token.end)] = True
        elif name in ("NAME", "NUMBER", "STRING", "OP"):
            code[at(*token.start) : at(*token.end)] = True
    return code


@pytest.mark.parametrize("size", [256, 300, 330])
def test_depth_and_arcs_are_those_of_a_second_walk_of_the_tree(size):
    tokenizer = train_bpe([SAMPLE * 3], size)
    offsets = tokenizer.encode(SAMPLE).offsets
    depth, arcs = align_pieces(parse_source("sample.py", SAMPLE, Path("sample.py")), offsets)
    nodes, code = nodes_of(SAMPLE), is_code(SAMPLE)
    for (start, end), told in zip(offsets, depth, strict=True):
        inside = [c for c in range(start, end) if code[c]]
        expected = LAYOUT if not inside else max((d for s, e, d, _ in nodes if s <= inside[0] < e), default=0)
        assert told == expected, SAMPLE[start:end]
    assert depth.max() >= 8
    assert (depth == LAYOUT).any()

    def holder(character):
        return next(i for i, (start, end) in enumerate(offsets) if start <= character < end)

    expected = [
        (holder(start), holder(parent)) for start, _, _, parent in nodes if parent is not None and parent < start
    ]
    assert sorted(map(tuple, arcs.tolist())) == sorted(expected)
    assert len(expected) > 30


def test_no_arc_leaves_a_node_that_holds_no_token():
    source = parse_source("sample.py", "f(a, b)\n", Path("sample.py"))
    offsets = [(i, i + 1) for i in range(8)]
    arcs = align_pieces(source, offsets)[1].tolist()
    assert arcs == [[2, 0], [5, 0]]  # of a and b to the call, whose own name begins where it does
    call = next(i for i, node in enumerate(source.nodes) if isinstance(node.syntax, ast.Call))
    inside = Node(ast.Constant("b"), call, "args", 3, 4, 4)  # begins within a token, as parts of a string may
    assert align_pieces(replace(source, nodes=(*source.nodes, inside)), offsets)[1].tolist() == arcs
    counted = inside._replace(last=5)
    assert len(align_pieces(replace(source, nodes=(*source.nodes, counted)), offsets)[1]) == 3


def test_the_pieces_are_the_text_and_their_bytes_its_size(few):
    folder = Path(sysconfig.get_path("stdlib"))
    assert few.document_names == FEW
    for number, name in enumerate(FEW):
        text = (folder / name).read_text(encoding="utf-8")
        mine = few.document == number
        assert decode_text(few.tokenizer, few.ids[mine]) == text
        assert few.bytes[mine].sum() == len(text.encode())
    assert few.bytes_per_token == few.bytes.sum() / len(few)


def test_arcs_point_backward_within_a_file_and_one_leaves_a_piece(few):
    assert (few.arcs[:, 0] > few.arcs[:, 1]).all()
    assert (few.document[few.arcs[:, 0]] == few.document[few.arcs[:, 1]]).all()
    assert (few.depth[few.arcs] > 0).all()
    assert len(np.unique(few.arcs[:, 0])) == len(few.arcs) > 1000


def test_the_split_is_by_file_and_nothing_held_out_is_learnt(few):
    train, held = few.split()
    assert few.held_out.sum() == 1
    assert set(train.document_names) | set(held.document_names) == set(FEW)
    assert len(train) + len(held) == len(few)
    assert len(train.arcs) + len(held.arcs) == len(few.arcs)
    texts = [decode_text(few.tokenizer, train.ids[train.document == i]) for i in range(3)]
    assert train_bpe(texts, 400).to_str() == few.tokenizer.to_str()
    (name,) = held.document_names
    again = library_text(400, FEW[::-1], held_out=0.25)
    assert again.split()[1].document_names == (name,)
    assert np.array_equal(again.split()[1].ids, held.ids)
    assert (held.document == 0).all()
    assert np.array_equal(held.depth[held.arcs], few.depth[few.arcs[few.document[few.arcs[:, 0]] == FEW.index(name)]])


@pytest.mark.parametrize("length", [64, 1000, 9000])
def test_windows_keep_the_arcs_that_stay_inside(few, length):
    ids, depth, arcs = few.windows(length)
    assert ids.shape == depth.shape == (len(few) // length, length)
    assert np.array_equal(ids.ravel(), few.ids[: ids.size])
    assert np.array_equal(depth.ravel(), few.depth[: ids.size])
    flat = {(length * b + i, length * b + j) for b, i, j in arcs.tolist()}
    assert flat == {(i, j) for i, j in few.arcs.tolist() if i // length == j // length and i < ids.size}
    assert 0 < len(flat) < len(few.arcs)


def test_the_whole_library_is_the_recorded_one_or_says_so(tmp_path):
    whole, library = library_text(), Path(sysconfig.get_path("stdlib"))
    same = [(library / name).is_file() and sha256(library / name) == told for name, told in recorded_files().items()]
    assert whole.matches_record == all(same)
    assert len(whole) > 100_000
    assert set(whole.split()[1].document_names) <= set(whole.document_names)
    for name in FEW[:2]:
        (tmp_path / name).write_bytes((library / name).read_bytes() + b"\n")
    changed = library_text(300, FEW[:2], root=tmp_path)
    assert not changed.matches_record
    assert decode_text(changed.tokenizer, encode_text(changed.tokenizer, SAMPLE)) == SAMPLE


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    (tmp_path / "a.py").write_bytes(b"\xef\xbb\xbfx = 1\n")
    (tmp_path / "b.py").write_bytes(b"y = (2, 1)\n")
    text = library_text(256, ["a.py", "b.py"], root=tmp_path)
    assert decode_text(text.tokenizer, text.ids) == "x = 1\ny = (2, 1)\n"


def test_files_that_give_no_text_are_refused(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(FileError, match="1 of the 2 files"):
        library_text(256, ["a.py", "b.py"], root=tmp_path)
    (tmp_path / "b.py").write_text("x = = 1\n")
    with pytest.raises(FileError, match=r"b\.py cannot be parsed"):
        library_text(256, ["a.py", "b.py"], root=tmp_path)
    (tmp_path / "b.py").write_bytes(b"x = '\xff'\n")
    with pytest.raises(FileError, match="not UTF-8"):
        library_text(256, ["a.py", "b.py"], root=tmp_path)
    (tmp_path / "b.py").write_text("")
    (tmp_path / "a.py").write_text("")
    with pytest.raises(InputError, match="empty"):
        library_text(256, ["a.py", "b.py"], root=tmp_path)


def test_a_file_named_twice_is_refused(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\n")
    with pytest.raises(InputError, match=r"'a\.py' more than once"):
        library_text(256, ["a.py", "b.py", "a.py"], root=tmp_path)


def test_the_record_is_noted_as_an_input(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "_inputs", {})
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\n")
    library_text(256, ["a.py", "b.py"], root=tmp_path)
    read = [RECORD, tmp_path / "a.py", tmp_path / "b.py"]
    assert checks.inputs_read() == {str(path.resolve()): sha256(path) for path in read}


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan"), 1, "x"])
def test_a_share_that_leaves_a_part_empty_is_refused(share):
    with pytest.raises((InputError, InputTypeError), match="held_out"):
        library_text(held_out=share)


@pytest.mark.parametrize("length", [0, 10**9, 2.0])
def test_windows_that_the_text_does_not_fill_are_refused(few, length):
    with pytest.raises((InputError, InputTypeError), match=r"length is .* from 1 to"):
        few.windows(length)

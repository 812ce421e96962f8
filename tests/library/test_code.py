"""The standard library as a corpus: exact alignment, bindings, levels, targets, the record, bad input."""

import hashlib
import json
import platform
from pathlib import Path

import numpy as np
import pytest

from gllm_lib import checks
from gllm_lib.checks import FileError, InputError
from gllm_lib.corpora import code
from gllm_lib.corpora.code_scopes import bindings
from gllm_lib.corpora.code_tokens import heads, parse_source

SAMPLE = '''"""Doc."""
import os.path as p
from math import pi
TOP = pi


class Box:
    side = 1

    def area(self, scale=TOP):
        """Area."""
        total = scale
        def inner():
            return total + len(self.parts)
        return [w * total for w in p.split(str(inner(x=1)))]
'''
FEW = ("textwrap.py", "heapq.py", "queue.py", "copy.py")


def parsed(text):
    return parse_source("sample.py", text, Path("sample.py"))


def owner_names(source):
    return [type(source.nodes[number].syntax).__name__ for number in source.owner]


@pytest.fixture(scope="module")
def few():
    return code.standard_library(FEW)


def test_byte_offsets_become_character_offsets():
    source = parsed('é = "日本"; größe = é + 1\n')
    told = dict(zip([token.text for token in source.tokens], owner_names(source), strict=True))
    assert told["größe"] == "Name"
    assert told["+"] == "BinOp"
    assert told['"日本"'] == "Constant"
    number = source.owner[[token.text for token in source.tokens].index("größe")]
    assert source.nodes[number].last - source.nodes[number].first == 1


def test_every_node_starts_and_ends_on_a_token():
    for name in (*FEW, "csv.py", "difflib.py", "json/decoder.py"):
        path = Path(code.sysconfig.get_path("stdlib"), name)
        source = parse_source(name, path.read_text(encoding="utf-8"), path)
        lines = source.text.split("\n")
        for node in source.nodes[1:]:
            first, last = source.tokens[node.first], source.tokens[node.last - 1]
            start = len(lines[node.syntax.lineno - 1].encode()[: node.syntax.col_offset].decode())
            end = len(lines[node.syntax.end_lineno - 1].encode()[: node.syntax.end_col_offset].decode())
            assert first.start == (node.syntax.lineno, start)
            assert last.end == (node.syntax.end_lineno, end)


def test_the_owner_is_the_innermost_node_that_covers_a_token():
    source = parsed(SAMPLE)
    for index, number in enumerate(source.owner):
        covering = [n for n, node in enumerate(source.nodes) if node.first <= index < node.last]
        assert max(covering, key=lambda n: source.nodes[n].depth) == number


@pytest.mark.parametrize(
    "text",
    ['x = f"a{b + 1}c{d!r:>{w}}"\n', 'x = f"{1}" "two"\n', "x = f'{f\"{y}\"}'\n", 'x = f"""a\n{b}\nc"""\n'],
)
def test_an_fstring_is_one_string_token(text):
    source = parsed(text)
    kinds = [token.kind for token in source.tokens]
    assert kinds[:2] == ["name", "operator"]
    assert set(kinds[2:]) == {"string"}
    assert "".join(token.text for token in source.tokens[2:]).replace(" ", "") == text[4:].strip().replace(" ", "")
    assert set(owner_names(source)[2:]) == {"JoinedStr"}


def test_layout_is_left_out_and_logical_lines_are_counted():
    source = parsed("# comment\nif x:\n    y = (1 +\n         2)  # more\n\nz = 3\n")
    assert [token.text for token in source.tokens] == ["if", "x", ":", "y", "=", "(", "1", "+", "2", ")", "z", "=", "3"]
    assert [token.line for token in source.tokens] == [0] * 3 + [1] * 7 + [2] * 3


def test_heads_of_a_sum():
    source = parsed("a = f(x) + 1\n")  # a =  f ( x ) + 1
    head, anchor = heads(source)
    assert head == [1, 1, 3, 6, 3, 3, 1, 6]
    assert anchor == [True, True, True, True, True, False, True, True]


def test_heads_form_a_forest_without_circles(few):
    text = Path(code.sysconfig.get_path("stdlib"), "copy.py").read_text(encoding="utf-8")
    head, _ = heads(parsed(text))
    for start in range(len(head)):
        seen, at = set(), start
        while head[at] != at:
            assert at not in seen
            seen.add(at)
            at = head[at]


def test_bindings_of_every_kind():
    source = parsed(SAMPLE)
    found, blocks = bindings(source)
    told = {}
    for token, binding in zip(source.tokens, found, strict=True):
        if binding:
            told.setdefault(token.text, []).append((binding.scope, binding.binds))
    assert told["p"] == [("imported", True), ("imported", False)]
    assert told["pi"] == [("imported", True), ("imported", False)]
    assert told["TOP"] == [("global", True), ("global", False)]
    assert told["Box"] == [("global", True)]
    assert told["side"] == [("class", True)]
    assert told["area"] == [("class", True)]
    assert told["self"] == [("parameter", True), ("free", False)]
    assert told["scale"] == [("parameter", True), ("parameter", False)]
    assert told["total"] == [("local", True), ("free", False), ("free", False)]
    assert told["inner"] == [("local", True), ("local", False)]
    assert told["w"] == [("local", False), ("local", True)]
    assert told["len"] == [("builtin", False)]
    assert told["str"] == [("builtin", False)]
    assert told["parts"] == [("attribute", False)]
    assert told["split"] == [("attribute", False)]
    assert told["x"] == [("keyword", False)]
    assert {block.kind for block in blocks} == {"module", "class", "function", "comprehension"}


def test_uses_of_one_binding_share_a_key_and_others_do_not():
    source = parsed("def f(x):\n    return [x for y in x]\n\n\ndef g(x):\n    return x\n")
    keys = [b.key for t, b in zip(source.tokens, bindings(source)[0], strict=True) if b and t.text == "x"]
    assert keys[0] == keys[1] == keys[2] != keys[3] == keys[4]


def test_a_comprehension_does_not_see_the_class_body_around_it_on_any_python():
    source = parsed("z = 1\nclass A:\n    z, y = 2, 3\n    a = [z for q in y if len(y)]\n")
    scopes = [b.scope for t, b in zip(source.tokens, bindings(source)[0], strict=True) if t.text in ("z", "y") and b]
    assert scopes == ["global", "class", "class", "global", "class", "global"]


def test_what_a_mapping_pattern_leaves_is_bound():
    source = parsed("match p:\n    case {'a': b, **rest}:\n        print(rest)\n")
    found = [b for t, b in zip(source.tokens, bindings(source)[0], strict=True) if t.text == "rest"]
    assert [(b.scope, b.binds) for b in found if b] == [("global", True), ("global", False)]


def test_private_names_are_found_under_their_class():
    source = parsed("class A:\n    def f(self):\n        __x = 1\n        return __x\n")
    assert [b.scope for t, b in zip(source.tokens, bindings(source)[0], strict=True) if t.text == "__x"] == [
        "local"
    ] * 2


def test_known_rows_of_the_sample(tmp_path):
    (tmp_path / "sample.py").write_text(SAMPLE, encoding="utf-8")
    corpus = code.standard_library(["sample.py"], root=tmp_path)
    tokens = corpus.tokens
    assert len(corpus) == len(tokens) == len(corpus.kinds)
    assert corpus.document_names == ("sample.py",)
    total = tokens.index("total")
    assert corpus.targets["nesting"].values[total] == 2
    assert corpus.targets["method"].values[total] == 1
    assert corpus.targets["binding"].values[total] == 1
    assert corpus.targets["reuse"].values[total] == 0
    last = len(tokens) - 1 - tokens[::-1].index("total")
    assert corpus.targets["reuse"].values[last] == pytest.approx(np.log(3))
    assert corpus.column("docstring").sum() == 2
    assert corpus.targets["depth"].values[tokens.index("TOP")] == 2  # Module > Assign > Name
    assert corpus.targets["capital"].values[tokens.index("Box")] == 1
    assert not corpus.matches_record
    assert corpus.differing == ("sample.py",)
    assert "other bytes" in corpus.notes[0]


def test_levels_and_targets_have_the_announced_shapes(few):
    assert tuple(few.levels) == ("shape", "syntax", "scope", "position")
    for level, matrix in few.levels.items():
        assert matrix.shape == (len(few), len(few.columns[level]))
        assert np.isfinite(matrix).all()
    families = [target.family for target in few.targets.values()]
    assert families.count("hierarchical") >= 5
    assert families.count("lexical") >= 5
    for target in few.targets.values():
        assert target.values.std() > 0
        assert np.isfinite(target.values).all()
        assert target.level in few.levels
    assert (np.diff(few.document) >= 0).all()
    assert (np.diff(few.sentence) >= 0).all()
    assert set(few.document) == {0, 1, 2, 3}


def test_no_feature_that_is_left_in_gives_the_target_away(few):
    for name, target in few.targets.items():
        kept = np.concatenate(list(few.features(without=name).values()), axis=1).astype(float)
        design = np.column_stack([kept, np.ones(len(few))])
        fitted = design @ np.linalg.lstsq(design, target.values, rcond=None)[0]
        unexplained = np.var(target.values - fitted) / np.var(target.values)
        assert unexplained > 1e-3, name


def test_the_own_features_do_determine_their_target(few):
    for name, target in few.targets.items():
        if not target.own:
            assert name == "first_am"
            continue
        own = np.column_stack([few.column(column) for column in target.own])
        _, groups = np.unique(own, axis=0, return_inverse=True)
        groups = groups.ravel()
        means = np.bincount(groups, target.values) / np.bincount(groups)
        residual = np.var(target.values - means[groups]) / np.var(target.values)
        allowed = 0.05 if name == "underscore" else 1e-6  # strings may hold underscores too: their kind stays in
        assert residual < allowed, name


def test_two_readings_are_equal(few):
    again = code.standard_library(FEW)
    assert again.tokens == few.tokens
    assert again.columns == few.columns
    assert all(np.array_equal(again.levels[level], few.levels[level]) for level in few.levels)
    assert all(np.array_equal(again.targets[name].values, few.targets[name].values) for name in few.targets)


def test_the_record_names_existing_files_and_their_release():
    record = json.loads(code.RECORD.read_text(encoding="utf-8"))
    assert record["release"] == "CPython 3.11.7"
    assert 20 <= len(record["files"]) <= 60
    assert list(record["files"]) == sorted(record["files"])
    found = [Path(code.sysconfig.get_path("stdlib"), name) for name in record["files"]]
    assert all(path.is_file() for path in found)
    same = [hashlib.sha256(path.read_bytes()).hexdigest() == record["files"][name]
            for path, name in zip(found, record["files"], strict=True)]  # fmt: skip
    if platform.python_version() == "3.11.7":
        assert all(same)
    assert sum(same) > 0


def test_matching_files_match_and_are_noted_as_inputs(few):
    read = checks.inputs_read()
    for name in FEW:
        path = str(Path(code.sysconfig.get_path("stdlib"), name).resolve())
        assert read[path] == hashlib.sha256(Path(path).read_bytes()).hexdigest()
    assert few.matches_record == (not few.differing)


def test_missing_files_are_named_and_too_many_are_refused(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.py").write_text("y = x\n")
    corpus = code.standard_library(["a.py", "b.py", "gone.py"], root=tmp_path)
    assert corpus.missing == ("gone.py",)
    assert any("gone.py" in note for note in corpus.notes)
    assert not corpus.matches_record
    with pytest.raises(FileError, match=r"holds 1 of the 3 listed files"):
        code.standard_library(["a.py", "gone.py", "lost.py"], root=tmp_path)


def test_bad_files_have_their_own_errors(tmp_path):
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "latin.py").write_bytes(b'x = "\xe9"\n')
    (tmp_path / "empty.py").write_text("# nothing here\n")
    (tmp_path / "marked.py").write_bytes(b"\xef\xbb\xbfa = 1\n")
    assert code.standard_library(["marked.py"], root=tmp_path).tokens == ("a", "=", "1")
    with pytest.raises(FileError, match=r"broken\.py cannot be parsed"):
        code.standard_library(["broken.py"], root=tmp_path)
    with pytest.raises(FileError, match="not UTF-8"):
        code.standard_library(["latin.py"], root=tmp_path)
    with pytest.raises(FileError, match="hold no token"):
        code.standard_library(["empty.py"], root=tmp_path)
    with pytest.raises(InputError, match="files is empty"):
        code.standard_library([])

"""Universal Dependencies files: reading, trees, mentions, discourse units, levels, targets, bad input."""

import numpy as np
import pytest

from gllm_lib import checks
from gllm_lib.checks import FileError, InputError
from gllm_lib.corpora.discourse import discourse_units, mentions_of
from gllm_lib.corpora.treebank import check_tree, read_sentences, read_treebank
from gllm_lib.corpora.treebank_levels import case_of


def line(number, form, upos="NOUN", feats="_", head=0, relation="root", deps="_", misc="_"):
    return "\t".join([str(number), form, form.lower(), upos, "_", feats, str(head), relation, deps, misc])


FIRST = [
    "# newdoc id = press-one",
    "# meta::genre = press",
    "# sent_id = s1",
    "# s_type = decl",
    line(1, "Cats", "NOUN", "Number=Plur", 4, "nsubj", "4:nsubj", "Entity=(1-animal-new-x)|Discourse=ROOT:1:0"),
    "2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_",
    line(2, "do", "AUX", "Mood=Ind", 4, "aux", "4:aux"),
    line(3, "n't", "PART", "Polarity=Neg", 4, "advmod", "4:advmod"),
    line(4, "eat", "VERB", "_", 0, "root", "0:root"),
    line(5, "old", "ADJ", "_", 6, "amod", "6:amod", "Entity=(2-object-new-x"),
    line(6, "Hats", "NOUN", "Number=Plur", 4, "obj", "4:obj", "Entity=2)|SpaceAfter=No|MSeg=Hat-s"),
    line(7, ".", "PUNCT", "_", 4, "punct", "4:punct"),
    "7.1\teat\teat\tVERB\t_\t_\t_\t_\t0:root\t_",
]
SECOND = [
    "# sent_id = s2",
    line(
        1,
        "They",
        "PRON",
        "Number=Plur",
        2,
        "nsubj",
        "2:nsubj",
        "Entity=(1-animal-giv:act-x)|Discourse=cause:2->1:1:_",
    ),
    line(2, "sleep", "VERB", "_", 0, "root", "0:root"),
]
THIRD = ["# newdoc id = press-two", "# sent_id = s3", line(1, "Aha", "INTJ", "_", 0, "root")]
TEXT = "\n\n".join("\n".join(block) for block in (FIRST, SECOND, THIRD)) + "\n\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tiny.conllu").write_text(TEXT, encoding="utf-8")
    return tmp_path


@pytest.fixture
def tiny(folder):
    return read_treebank(folder)


def refused(tmp_path, *lines, match):
    path = tmp_path / "bad.conllu"
    path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    with pytest.raises(FileError, match=match):
        read_treebank(path)


def test_words_documents_and_sentences(tiny, folder):
    assert tiny.tokens == ("Cats", "do", "n't", "eat", "old", "Hats", ".", "They", "sleep", "Aha")
    assert tiny.document.tolist() == [0] * 9 + [1]
    assert tiny.document_names == ("press-one", "press-two")
    assert tiny.sentence.tolist() == [0] * 7 + [1, 1, 2]
    assert str((folder / "tiny.conllu").resolve()) in checks.inputs_read()


def test_no_space_inside_a_multiword_range_nor_where_none_follows(tiny):
    assert tiny.spaced.tolist() == [True, False, True, True, True, False, True, True, True, True]


def test_tree_targets(tiny):
    assert tiny.targets["depth"].values.tolist() == [1, 1, 1, 0, 2, 1, 1, 1, 0, 0]
    assert tiny.targets["subtree"].values.tolist() == pytest.approx(np.log2([1, 1, 1, 7, 1, 2, 1, 1, 2, 1]))
    assert tiny.targets["headdir"].values.tolist() == [-1, -1, -1, 0, -1, 1, 1, -1, 0, 0]
    assert np.expm1(tiny.targets["logdist"].values) == pytest.approx([3, 2, 1, 0, 1, 2, 3, 1, 0, 0])
    assert tiny.targets["nsubj"].values.tolist() == [1, 0, 0, 0, 0, 0, 0, 1, 0, 0]


def test_negation_covers_its_governor_and_what_hangs_on_it_but_not_itself(tiny):
    assert tiny.targets["negscope"].values.tolist() == [1, 1, 0, 1, 1, 1, 1, 0, 0, 0]


def test_mentions_chains_and_status(tiny):
    assert tiny.targets["coref"].values.tolist() == [1, 0, 0, 0, 0, 0, 0, 1, 0, 0]
    assert tiny.targets["given"].values.tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 0, 0]
    assert tiny.column("mention_depth").tolist() == [1, 0, 0, 0, 1, 1, 0, 1, 0, 0]
    assert tiny.column("entity=object").tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0]
    assert np.expm1(tiny.column("log_earlier_mentions")) == pytest.approx([0, 0, 0, 0, 0, 0, 0, 1, 0, 0])


def test_the_innermost_mention_wins_and_stray_brackets_are_counted(tmp_path):
    rows = [
        line(1, "a", misc="Entity=(1-person-new-x(2-place-giv-x"),
        line(2, "b", head=1, misc="Entity=2)"),
        line(3, "c", head=1, misc="Entity=1)9)"),
        line(4, "d", head=1, misc="Entity=(4-time-new-x"),
    ]
    (tmp_path / "a.conllu").write_text("\n".join(rows) + "\n\n", encoding="utf-8")
    mentions = mentions_of(read_sentences(tmp_path))
    assert mentions.kind == ["place", "place", "person", ""]
    assert mentions.depth.tolist() == [2, 2, 1, 0]
    assert mentions.unmatched == 2
    assert any("2 entity brackets" in note for note in read_treebank(tmp_path).notes)


def test_discourse_units_last_until_the_next_and_end_with_the_document(folder):
    relations, depths = discourse_units(read_sentences(folder))
    assert relations == ["root"] * 7 + ["cause"] * 2 + [""]
    assert depths.tolist() == [0.0] * 7 + [1.0] * 2 + [0.0]


def test_lexical_targets(tiny):
    assert tiny.targets["noun"].values.tolist() == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert tiny.targets["plural"].values.tolist() == [1, 0, 0, 0, 0, 1, 0, 1, 0, 0]
    assert tiny.targets["capital"].values.tolist() == [1, 0, 0, 0, 0, 1, 0, 1, 0, 1]
    assert tiny.targets["first_am"].values.tolist() == [1, 1, 0, 1, 0, 1, 0, 0, 0, 1]
    assert tiny.targets["wlen"].values.tolist() == [4, 2, 3, 3, 3, 4, 1, 4, 5, 3]
    assert tiny.column("segments").tolist() == [1, 1, 1, 1, 1, 2, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("form", "case"),
    [
        ("ab", "lower"),
        ("AB", "upper"),
        ("Ab", "title"),
        ("A", "initial"),
        ("aB", "mixed"),
        ("9,", "none"),
        ("I'm", "mixed"),
    ],
)
def test_case(form, case):
    assert case_of(form) == case


def test_the_columns_that_determine_a_target_are_left_out(tiny):
    left = tiny.features(without="nsubj")
    kept = {level: [c for c in tiny.columns[level] if c not in tiny.targets["nsubj"].own] for level in tiny.levels}
    assert {level: matrix.shape[1] for level, matrix in left.items()} == {k: len(v) for k, v in kept.items()}
    assert not any(c.startswith(("deprel", "argument")) for names in kept.values() for c in names)
    assert not any(c.startswith("upos") for c in set(tiny.columns["shape"]) - set(tiny.targets["noun"].own))
    assert tiny.targets["first_am"].own == ()
    assert all(np.array_equal(tiny.features()[level], tiny.levels[level]) for level in tiny.levels)


def test_what_is_not_annotated_gives_no_target_and_a_note(tmp_path):
    (tmp_path / "bare.conllu").write_text(line(1, "Yes") + "\n", encoding="utf-8")
    corpus = read_treebank(tmp_path / "bare.conllu")
    assert not {"coref", "given", "rstdepth"} & set(corpus.targets)
    assert len(corpus.notes) == 3
    assert "newdoc" in corpus.notes[0]
    assert corpus.document_names == ("bare",)
    assert {"depth", "subtree", "noun", "first_am", "sentpos", "negscope"} <= set(corpus.targets)


def test_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.conllu").write_text(line(1, name) + "\n\n", encoding="utf-8")
    assert read_treebank(tmp_path).tokens == ("a", "b")
    assert read_treebank(tmp_path, "b.*").tokens == ("b",)


def test_nine_columns_are_refused_with_file_and_line(tmp_path):
    short = "\t".join(line(2, "b", head=1).split("\t")[:9])
    refused(tmp_path, "# sent_id = x", line(1, "a"), short, match=r"bad\.conllu, line 3: 9 columns, not 10")


def test_ids_are_checked(tmp_path):
    refused(tmp_path, line(1, "a"), line(1, "b", head=1), match=r"line 2: the word id 1 is used twice")
    refused(tmp_path, line(1, "a"), line(3, "b", head=1), match=r"line 2: the word id 3 is not the next one, 2")
    refused(tmp_path, line("x", "a"), match=r"line 1: the id 'x' is no word")
    twice = ["# sent_id = s", line(1, "a"), "", "# sent_id = s", line(1, "b")]
    refused(tmp_path, *twice, match=r"line 4: sent_id 's' was already used at .*line 1")


def test_ranges_forms_and_foreign_headers_are_checked(tmp_path):
    for stretch in ("2-1", "1-9", "2-3"):
        refused(tmp_path, line(stretch, "ab"), line(1, "a"), line(2, "b", head=1), match=f"line 1: the range {stretch}")
    refused(tmp_path, line(1, ""), match=r"line 1: word 1 has no form")
    (tmp_path / "plus.conllu").write_text(f"# global.columns = ID FORM\n{line(1, 'a')}\n\n", encoding="utf-8")
    assert read_treebank(tmp_path / "plus.conllu").tokens == ("a",)


def test_heads_are_checked(tmp_path):
    refused(tmp_path, line(1, "a", head="_"), match=r"line 1: the head '_' of word 1 is missing")
    refused(tmp_path, line(1, "a"), line(2, "b", head=5), match=r"line 2: the head '5' of word 2")
    refused(tmp_path, line(1, "a"), line(2, "b", head=3), line(3, "c", head=2), match=r"in a circle, 2 -> 3 -> 2")
    refused(tmp_path, line(1, "a", head=1), match=r"in a circle, 1 -> 1")
    check_tree((2, 0, 2), "here")


def test_comments_without_words_are_refused(tmp_path):
    refused(tmp_path, "# only = comments", match=r"line 1: comments but no word line")


def test_files_that_are_not_there_not_text_or_empty(tmp_path):
    with pytest.raises(FileError, match="does not exist"):
        read_treebank(tmp_path / "none.conllu")
    with pytest.raises(FileError, match=r"holds no file \*\.conllu"):
        read_treebank(tmp_path)
    (tmp_path / "empty.conllu").write_text("\n\n")
    with pytest.raises(FileError, match="holds no sentence"):
        read_treebank(tmp_path)
    (tmp_path / "empty.conllu").write_bytes(line(1, "caf").encode() + b"\xe9\n")
    with pytest.raises(FileError, match="not UTF-8"):
        read_treebank(tmp_path)
    (tmp_path / "empty.conllu").write_text(TEXT, encoding="utf-8")
    with pytest.raises(InputError, match="share is 2"):
        read_treebank(tmp_path, share=2)

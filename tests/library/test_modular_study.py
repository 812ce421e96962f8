"""The modular-addition study: the gauge image computes the same, layouts are lossless, a tiny run, its verdicts."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from gllm_lib import studies
from gllm_lib.checks import InputError
from gllm_lib.studies import modular
from gllm_lib.studies.plan import Record, budgeted, read_plan

ROOT = Path(__file__).resolve().parents[2]
EPS = torch.finfo(torch.float64).eps


@pytest.fixture(scope="module")
def plan():
    return read_plan(ROOT, "modular-addition")


@pytest.fixture(scope="module")
def settings(plan):
    return {**plan.fields["settings"], "modulus": 7, "width": 16}


@pytest.fixture(scope="module")
def small(tmp_path_factory, plan):
    """The smoke size, as the command runs it, and the seconds it took."""
    folder = tmp_path_factory.mktemp("modular")
    (folder / "results" / "modular-addition").mkdir(parents=True)
    (folder / "results" / "modular-addition" / "plan.toml").write_text((plan.folder / "plan.toml").read_text())
    began = time.process_time()
    with ThreadPoolExecutor(1) as executor:
        told = studies.run(folder, "modular-addition", executor=executor, progress=False, budget="smoke")
    assert told.done == told.planned == 6
    return studies.load(folder, "modular-addition", "smoke"), time.process_time() - began


def test_the_smoke_size_is_small(small):
    assert small[1] < 30  # CPU-seconds


def test_a_tiny_run_tells_blind_rules_from_the_others(small):
    of = {name: small[0].of(name)[0] for name in ("adam", "muon-heads", "shampoo-heads")}
    assert {name: modular.verdict(each) for name, each in of.items()} == {
        "adam": "sees",
        "muon-heads": "blind",
        "shampoo-heads": "blind",
    }
    told = of["adam"].values["float64"]
    assert told["rotated"][0] < 100 * EPS  # before any step image and base compute the same
    assert told["twin"][-1] < 1e4 * EPS
    assert told["moved"][0] == 0
    assert all(move > 0.01 for move in told["moved"][1:])
    assert len(of["adam"].values["rules_sha256"]) == 64


def test_the_law_has_slope_one_and_the_long_cell_its_points(small):
    rates = next(cell for cell in small[0].plan.fields["cells"] if cell["id"] == "law")["rates"]
    (law,) = small[0].of("law")
    slope = np.polyfit(np.log(rates[:3]), np.log(law.values["rotated"][:3]), 1)[0]
    assert abs(slope - 1) < 0.05
    (long,) = small[0].of("long-lion")
    assert len(long.values["float32"]["twin"]) == 3
    assert all(0 <= each[1] <= 1 for each in long.values["float32"]["end"].values())
    (larger,) = small[0].of("adam-larger")
    assert larger.values["float64"]["square"] > 1e-4


def test_the_image_has_the_same_logits_and_products(settings):
    weights, by = modular.start(settings, 3), modular.turns(settings, 3)
    tokens, sums, chosen = modular.pairs(settings, 3)
    image = modular.turned(weights, by)
    ours, theirs = (modular.logits(each, tokens, settings["heads"]) for each in (weights, image))
    assert (theirs - ours).norm() <= 100 * EPS * ours.norm()
    assert (image["0.queries"] - weights["0.queries"]).norm() > 0.1 * weights["0.queries"].norm()
    odd = modular.turned(weights, torch.stack((by[:, 0], by[:, 0].mT), dim=1))  # another gauge, as good
    assert (modular.logits(odd, tokens, settings["heads"]) - ours).norm() <= 100 * EPS * ours.norm()
    wrong = image | {"0.keys": weights["0.keys"]}  # queries turned alone
    assert (modular.logits(wrong, tokens, settings["heads"]) - ours).norm() > 1e-3 * ours.norm()
    assert len(tokens) == 49
    assert torch.equal(sums, (tokens[:, 0] + tokens[:, 1]) % 7)
    assert len(set(chosen.tolist())) == len(chosen) == 20
    assert (torch.linalg.det(by) < 0).any()  # reflections among them


def test_the_sign_equals_is_asked_about_everything_before_it(settings):
    weights = modular.start(settings, 0)
    base = modular.logits(weights, torch.tensor([[1, 2, 7]]), settings["heads"])
    for other in ([3, 2, 7], [1, 3, 7], [1, 2, 3]):
        assert not torch.allclose(modular.logits(weights, torch.tensor([other]), settings["heads"]), base)


@pytest.mark.parametrize("layout", ["heads", "concatenated", "stacked"])
def test_layouts_lose_nothing(settings, layout):
    weights = modular.start(settings, 1)
    run = modular.Run(weights, {"rule": "sgd", "rest": "sgd", "rate": 0.1, "layout": layout}, settings, 1)
    assert all(torch.equal(each, weights[name]) for name, each in run.weights().items())
    shape = tuple(run.parts["0.values"][0].shape)
    assert shape == {"heads": (16, 4), "concatenated": (16, 16), "stacked": (64, 4)}[layout]


def test_every_rule_of_the_plan_steps_and_an_unknown_one_is_named(plan, settings):
    for cell in plan.fields["cells"]:
        run = modular.Run(modular.start(settings, 0), {"rate": 1e-3, **cell}, settings, 0)
        before = run.shown()[0]
        run.step()
        after = run.shown()[0]
        assert all(not torch.equal(before[name], after[name]) for name in before), cell["id"]
    for wrong in ({"rule": "adamm"}, {"layout": "rows"}):
        with pytest.raises(InputError, match="is none of sgd"):
            modular.Run(modular.start(settings, 0), {"rule": "sgd", "rest": "sgd", "rate": 1} | wrong, settings, 0)


def test_sign_descent_and_lion_are_what_they_say():
    theta, gradients = torch.zeros(2, 1), torch.tensor([[[1.0], [-2.0]], [[-3.0], [-2.0]]])
    for name, expected in (("sign", [[0.0], [2.0]]), ("lion", [[0.0], [2.0]])):
        parameter = torch.nn.Parameter(theta.clone())
        optimizer = modular.RULES[name]([{"params": [parameter]}], lr=1.0)
        for gradient in gradients:
            parameter.grad = gradient
            optimizer.step()
        assert parameter.tolist() == expected
    parameter = torch.nn.Parameter(theta.clone())
    optimizer = modular.RULES["lion"]([{"params": [parameter]}], lr=1.0)
    for gradient in torch.tensor([[[1.0], [1.0]], [[-0.01], [-1.0]]]):  # momentum 0.01, so 0.9 m + 0.1 g > 0, then < 0
        parameter.grad = gradient
        optimizer.step()
    assert parameter.tolist() == [[-2.0], [0.0]]


def test_verdicts_follow_the_registered_rule():
    def record(square, rotated, twin):
        return Record(
            "adam", 0, {"float64": {"square": square}, "float32": {"rotated": [rotated], "twin": [twin]}}, 0, {}
        )

    assert modular.verdict(record(1e-15, 9e-6, 1e-6)) == "blind"
    assert modular.verdict(record(1e-15, 1.1e-5, 1e-6)) == "between"
    assert modular.verdict(record(1e-11, 1e-6, 1e-6)) == "between"
    assert modular.verdict(record(1e-2, 1.1e-3, 1e-6)) == "sees"
    assert modular.ratio(record(0, 1e-6, 0), "float32") == pytest.approx(1e-6 / 2**-23)


def test_the_registered_size_is_what_the_plan_says(plan):
    assert len(plan.jobs()) == 5 * 21
    assert len(budgeted(plan, "smoke", ROOT).jobs()) == 6

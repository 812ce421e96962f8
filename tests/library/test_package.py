"""Packages: who steps what and when, AdamW with whitening and bfloat16, and every combination trained and resumed."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.models import GPT, GPTConfig, Grading, HashedTables, gpt2_like, llama_like
from gllm_lib.optim import (
    ADAMW,
    GROUPS,
    NATIVE,
    PACKAGE,
    AdamW,
    Group,
    Muon,
    Package,
    TableWrite,
    assigned,
    neumann_whiten,
    optimizers,
)
from gllm_lib.training import Recipe, evaluate, train
from gllm_lib.training.checkpoint import checkpoint_path
from tests.library.small_training import same, stop_at

V, T = 11, 8
TOKENS = np.random.default_rng(0).integers(0, V, 12).repeat(2).tolist() * 12  # pairs in a loop: quick to learn
TABLES = HashedTables(19, storage="float32")
EVERYTHING = llama_like(
    V, T, 16, 2, 2, qk_norm=True, query_scale=True, tables=TABLES, input_norm=True, head_bias=True,
    grading=Grading(heads=(0.0,) * 8, learned=("heads",)),
)  # fmt: skip


def build(config):
    return GPT(config, generator=torch.Generator().manual_seed(0))


def bits(model):
    return {name: each.flatten().view(torch.uint8).numpy().tobytes() for name, each in model.state_dict().items()}


def copied(value, kind):
    """The value after a trip through JSON."""
    plain = json.loads(json.dumps(value.to_dict() if kind is GPTConfig else asdict(value)))
    return kind.from_dict(plain) if kind is GPTConfig else kind(**plain)


def loss_of(model, tokens=TOKENS):
    inputs = torch.tensor(tokens[: 2 * T]).view(2, T)
    targets = torch.tensor(tokens[1 : 2 * T + 1]).view(2, T)
    return torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


# groups


def test_every_parameter_of_a_model_has_its_group():
    names = assigned(build(EVERYTHING), GROUPS)
    assert names["tables"] == [f"tables.weights.{j}" for j in range(4)]
    assert names["embedding"] == ["embedding.weight"]
    assert sorted(names["head"]) == ["head.bias", "head.weight"]
    assert names["query_scale"] == [f"blocks.{i}.attention.query_log" for i in range(2)]
    assert names["grades"] == ["grading.heads"]
    kinds = ("attention.qkv", "attention.out", "ffn.gate", "ffn.up", "ffn.down")
    assert sorted(names["matrices"]) == sorted(f"blocks.{i}.{kind}.weight" for i in range(2) for kind in kinds)
    assert all(name.endswith(("norm.weight", "norm.bias")) for name in names["scalars"])
    assert sum(map(len, names.values())) == len(list(build(EVERYTHING).parameters()))
    learned = assigned(build(gpt2_like(V, T, 16, 1, 2)), GROUPS)
    assert learned["embedding"] == ["embedding.weight", "position.table"]
    assert learned["head"] == []  # tied


def test_other_modules_and_other_rules_work_too():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    model[1].weight.requires_grad_(False)
    groups = (
        Group(name="first", pattern=r"^0\.weight", method="adamw", rate=0.1),
        Group(name="matrices", pattern="weight", method="muon", rate=0.1),
        Group(name="rest", pattern="", method="table", rate=0.1),
        Group(name="last", pattern="bias", method="adamw", rate=0.1),
    )
    assert assigned(model, groups) == {"first": ["0.weight"], "matrices": [], "rest": [], "last": ["0.bias", "1.bias"]}
    together = optimizers(model, Package(groups=groups), 3)
    assert {name: type(part) for name, part in together.parts.items()} == {"first": AdamW, "last": AdamW}
    with pytest.raises(InputError, match=r"no group takes 0.bias, \(4,\)"):
        assigned(model, groups[:3])
    with pytest.raises(InputError, match="trains no parameter"):
        assigned(model.requires_grad_(False), groups)


def test_tables_are_written_and_matrices_polarised():
    parts = optimizers(build(EVERYTHING), PACKAGE, 10).parts
    kinds = {name: type(part) for name, part in parts.items()}
    assert kinds["tables"] is TableWrite
    assert kinds["matrices"] is Muon
    assert {kinds[name] for name in set(kinds) - {"tables", "matrices"}} == {AdamW}
    assert next(iter(parts)) == "tables"


# schedules


def test_the_sources_schedule_has_its_figures():
    package = replace(NATIVE, hold=11)
    factors = [package.rate_factor(step, 953) for step in range(953)]
    assert sum(factor == 1 for factor in factors) == 483
    assert sum(factors) == pytest.approx(718, abs=953 * 1e-15)
    assert factors[-1] == pytest.approx(2 / 942, rel=1e-12)


def test_momentum_climbs_stays_and_cools():
    momentum = [PACKAGE.momentum_at(step, 1000) for step in range(1001)]
    assert momentum[0] == 0.85
    assert momentum[150] == pytest.approx(0.90)
    assert set(momentum[300:501]) == {0.95}
    assert momentum[750] == pytest.approx(0.90)
    assert momentum[1000] == pytest.approx(0.85)
    assert NATIVE.momentum_at(1000, 1000) == 0.95
    assert max(momentum) == 0.95


def test_decays_share_ends_and_mean():
    kinds = [replace(PACKAGE, decay_schedule=kind) for kind in ("linear", "cosine", "constant")]
    linear, cosine, constant = ([each.decay_factor(step, 100) for step in range(101)] for each in kinds)
    assert (linear[0], cosine[0], linear[50], set(constant)) == (1, 1, 0.5, {1.0})
    assert cosine[50] == pytest.approx(0.5)
    assert cosine[100] == pytest.approx(linear[100]) == 0
    assert sum(cosine) == pytest.approx(sum(linear))
    assert cosine[25] > linear[25]


def test_warm_up_floor_and_constant_rates():
    package = replace(ADAMW, warmup=4, hold=4, floor=0.1)
    assert [package.rate_factor(step, 104) for step in (0, 1, 3)] == [0.25, 0.5, 1.0]
    assert package.rate_factor(54, 104) == pytest.approx(0.55)
    assert package.rate_factor(104, 104) == pytest.approx(0.1)
    assert replace(NATIVE, warmdown=0.0).rate_factor(952, 953) == 1.0


def test_a_step_puts_every_number_where_the_step_is():
    model = build(EVERYTHING)
    together = optimizers(model, replace(PACKAGE, hold=2, first=1), 40)
    together.taken = 30
    loss_of(model).backward()
    together.step()
    groups = {name: part.param_groups[0] for name, part in together.parts.items()}
    p = 28 / 38
    for name, group in groups.items():
        rate = next(each.rate for each in GROUPS if each.name == name)
        assert group["lr"] == pytest.approx(rate * 2 * (1 - p))
    assert groups["matrices"]["momentum"] == pytest.approx(0.85 + 0.1 * 30 / 300)  # below the cooldown's 0.90
    assert groups["matrices"]["weight_decay"] == pytest.approx(0.2 * (1 + math.cos(math.pi * p)) / 2)
    assert groups["matrices"]["alpha"] == 1
    assert groups["embedding"]["strength"] == pytest.approx((31 / 80) ** 2)
    assert groups["scalars"]["strength"] is None
    assert together.taken == 31


# AdamW


def steps_of(optimizer, weight, gradients):
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
    return weight.detach().clone()


GRADIENTS = list(torch.randn(5, 7, 3, generator=torch.Generator().manual_seed(0)))


def test_without_options_it_is_torchs_adamw():
    ours, theirs = (torch.nn.Parameter(torch.ones(7, 3)) for _ in range(2))
    settings = {"lr": 0.1, "weight_decay": 0.1, "fused": True}
    left = steps_of(AdamW([ours], **settings), ours, GRADIENTS)
    assert left.equal(steps_of(torch.optim.AdamW([theirs], **settings), theirs, GRADIENTS))


@pytest.mark.parametrize("centre", ["all", "visited", "none"])
def test_whitening_comes_before_both_moments_and_leaves_the_gradient(centre):
    ours, theirs = (torch.nn.Parameter(torch.ones(7, 3)) for _ in range(2))
    gradients = [each * (torch.arange(7) > i)[:, None] for i, each in enumerate(GRADIENTS)]  # absent tokens
    white = [
        neumann_whiten(each, 0.5, centre != "none", visited=each.any(1) if centre == "visited" else None)
        for each in gradients
    ]
    group = {"params": [ours], "strength": 0.5, "centre": centre}
    left = steps_of(AdamW([group], lr=0.1, fused=True), ours, gradients)
    assert left.equal(steps_of(torch.optim.AdamW([theirs], lr=0.1, fused=True), theirs, white))
    assert ours.grad.equal(gradients[-1])


def test_bfloat16_state_is_held_and_rounded():
    weight = torch.nn.Parameter(torch.full((7, 3), 0.1))
    optimizer = AdamW([{"params": [weight], "storage": "bfloat16"}], lr=0.01, weight_decay=0.0, fused=True)
    moment, square, value = torch.zeros(7, 3), torch.zeros(7, 3), torch.full((7, 3), 0.1)
    rounded = lambda x: x.bfloat16().float()  # noqa: E731
    for step, gradient in enumerate(map(rounded, GRADIENTS), 1):
        moment, square = 0.9 * moment + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        value = value - 0.01 * (moment / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
        moment, square, value = map(rounded, (moment, square, value))
    found = steps_of(optimizer, weight, GRADIENTS)
    held = optimizer.state[weight]
    assert held["exp_avg"].dtype == held["exp_avg_sq"].dtype == torch.bfloat16
    assert found.equal(rounded(found))
    assert found.allclose(value, rtol=2**-7)  # two roundings to neighbours of 8 bits
    assert held["exp_avg"].float().allclose(moment, rtol=2**-7, atol=2**-9)
    assert held["step"].dtype == torch.float32


# every combination


TABLED = {"none": (None, False), "tables": (TABLES, False), "whitened": (TABLES, True)}
QUERIES = {"none": {}, "scaled": {"query_scale": True}, "masked": {"query_scale": True, "query_mask": (1, 2)}}
PACKAGES = {"adamw": ADAMW, "native": NATIVE, "package": PACKAGE}
COMBINATIONS = list(itertools.product(TABLED, PACKAGES, QUERIES, ("float32", "bfloat16")))


@pytest.mark.parametrize(("tables", "package", "query", "storage"), COMBINATIONS)
def test_every_combination_trains_and_resumes_from_a_config(tables, package, query, storage, tmp_path):
    held, whiten = TABLED[tables]
    config = llama_like(
        V, T, 16, 2, 2, qk_norm=True, input_norm=True, tables=held and replace(held, storage=storage), **QUERIES[query]
    )
    package = PACKAGES[package].changed("tables", whiten=whiten).changed("embedding", storage=storage)
    config, package = copied(config, GPTConfig), copied(package, Package)
    recipe = Recipe(steps=6, batch=8, accumulate=2, package=package, save_every=2)
    whole, cut = build(config), build(config)
    before = evaluate(whole, TOKENS)
    history = train(whole, TOKENS, recipe)
    assert evaluate(whole, TOKENS) < before
    assert len(train(cut, TOKENS, recipe, folder=tmp_path, until=stop_at(3)).losses) == 3
    resumed = build(config)
    assert same(train(resumed, TOKENS, recipe, folder=tmp_path), history)
    assert bits(resumed) == bits(whole)
    if query == "masked":
        assert whole.blocks[0].attention.query_log.eq(0).all()
        assert whole.blocks[1].attention.query_log[:, :2].eq(0).all()
        assert whole.blocks[1].attention.query_log[:, 2:].ne(0).any()
    if held:
        assert any(each.ne(0).any() for each in whole.tables.weights)
        assert not whole.tables.sparse


def test_a_run_belongs_to_its_package(tmp_path):
    config = llama_like(V, T, 16, 1, 2)
    recipe = Recipe(steps=2, batch=4, package=NATIVE)
    train(build(config), TOKENS, recipe, folder=tmp_path)
    with pytest.raises(InputError, match=r"recipe.package.beta2: 0.9 here, 0.95 in the checkpoint"):
        train(build(config), TOKENS, replace(recipe, package=replace(NATIVE, beta2=0.9)), folder=tmp_path)
    with pytest.raises(InputError, match=r"recipe.package"):
        train(build(config), TOKENS, Recipe(steps=2, batch=4), folder=tmp_path)
    train(build(config), TOKENS, Recipe(steps=2, batch=4), folder=tmp_path / "plain")
    assert b"package" not in checkpoint_path(tmp_path / "plain").read_bytes()


def test_the_plain_package_is_the_recipes_adamw():
    config = gpt2_like(V, T, 16, 1, 2)
    recipe = Recipe(steps=6, batch=4)
    plain, packed = build(config), build(config)
    ours, theirs = train(packed, TOKENS, replace(recipe, package=ADAMW)), train(plain, TOKENS, recipe)
    # rates differ by a rounding, and six steps of AdamW move by at most 6e-4 each
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-5)
    for mine, other in zip(packed.parameters(), plain.parameters(), strict=True):
        assert (mine - other).abs().max() < 6 * 6e-4 * 1e-3


def test_micro_batches_add_gradients_and_visits():
    config = replace(EVERYTHING, grading=None)
    whole, parts = build(config).double(), build(config).double()
    recipe = Recipe(steps=3, batch=8, package=PACKAGE)
    train(whole, TOKENS, recipe)
    train(parts, TOKENS, replace(recipe, accumulate=4))
    for mine, other in zip(whole.tables.weights, parts.tables.weights, strict=True):
        assert mine.ne(0).any()
        assert mine.allclose(other, rtol=1e-6, atol=1e-8)


def test_the_clip_does_not_see_the_tables():
    model = build(replace(EVERYTHING, grading=None))
    history = train(model, TOKENS, Recipe(steps=1, batch=4, package=NATIVE, gradient_clip=1e-3))
    bare = build(replace(EVERYTHING, grading=None, tables=None))
    plain = train(bare, TOKENS, Recipe(steps=1, batch=4, package=NATIVE, gradient_clip=1e-3))
    assert history.gradient_norms == plain.gradient_norms  # tables are 0 at first
    assert sum(each.square().sum().item() for each in model.tables.weights) > 0


def test_states_travel_through_state_dict_too():
    def run(model, together, steps):
        for _ in range(steps):
            together.zero_grad()
            loss_of(model).backward()
            together.step()

    whole, cut = build(EVERYTHING), build(EVERYTHING)
    first, expected = (optimizers(each, PACKAGE, 8) for each in (cut, whole))
    run(whole, expected, 6)
    run(cut, first, 3)
    second = optimizers(cut, PACKAGE, 8)
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    assert second.taken == 3
    run(cut, second, 3)
    assert bits(cut) == bits(whole)
    assert len(second.param_groups) == sum(len(part.param_groups) for part in second.parts.values())


# what is refused


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"groups": ()}, InputError, "at least one Group"),
        ({"groups": (GROUPS[0], GROUPS[0])}, InputError, "names, each another"),
        ({"schedule": "linear"}, InputError, "'cosine', 'warmdown'"),
        ({"decay_schedule": "none"}, InputError, "'constant', 'linear', 'cosine'"),
        ({"whiten_centre": True}, InputError, "'all', 'visited', 'none'"),
        ({"table_rounding": "up"}, InputError, "'nearest', 'stochastic'"),
        ({"hold": -1}, InputError, "hold is -1"),
        ({"warmup": 1.5}, InputTypeError, "warmup is 1.5"),
        ({"first": 2}, InputError, "first is 2; .* 0 to 1"),
        ({"warmdown": 1.1}, InputError, "warmdown is 1.1"),
        ({"cooldown": 1.0}, InputError, "cooldown is 1.0"),
        ({"momentum_start": -0.1}, InputError, "momentum_start is -0.1"),
        ({"polar": "svd"}, InputError, "^polar is 'svd'; give one of polar-express"),
        ({"equilibrate": 1.5}, InputTypeError, "equilibrate is 1.5"),
        ({"momentum": None}, InputTypeError, "momentum is None"),
        ({"momentum_start": ""}, InputTypeError, "momentum_start is ''"),
        ({"cooldown": False}, InputTypeError, "cooldown is False"),
        ({"groups": None}, InputTypeError, "groups are unreadable"),
        ({"groups": ({"name": "x"},)}, InputTypeError, "give Group"),
        ({"seed": 2**31}, InputError, "seed is 2147483648"),
    ],
)
def test_packages_that_mean_nothing_are_refused(changes, error, told):
    with pytest.raises(error, match=told):
        replace(PACKAGE, **changes)


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"pattern": "("}, InputError, "no regular expression"),
        ({"pattern": 3}, InputTypeError, "pattern of a group is 3"),
        ({"method": "sgd"}, InputError, "'muon', 'adamw', 'table'"),
        ({"storage": "float16"}, InputError, "'float32', 'bfloat16'"),
        ({"rate": -1}, InputError, "rate is -1"),
        ({"epsilon": 0}, InputError, "epsilon is 0.0; give a finite number above 0"),  # a row without gradient: 0 / 0
        ({"betas": (0.9,)}, InputTypeError, r"betas are \(0.9,\)"),
        ({"betas": (0.9, 1.0)}, InputError, r"betas\[1\] is 1.0"),
        ({"whiten": 1}, InputTypeError, "whiten is 1"),
        ({"method": "muon", "whiten": True}, InputError, "muon has no such whitening"),
        ({"method": "table", "storage": "bfloat16"}, InputError, "table has no such"),
    ],
)
def test_groups_that_mean_nothing_are_refused(changes, error, told):
    with pytest.raises(error, match=told):
        Group(**{"name": "x", "pattern": "", "method": "adamw", "rate": 0.1} | changes)


def test_numbers_of_numpy_become_ones_that_json_and_checkpoints_keep(tmp_path):
    given = {"rate": np.float32(0.5), "decay": np.int64(0), "epsilon": np.float64(1e-8)}
    package = replace(PACKAGE, hold=np.int64(1), safety=np.float32(1.5), floor=np.float32(0.5)).changed("head", **given)
    assert copied(package, Package) == package
    config = replace(EVERYTHING, tables=replace(TABLES, width=np.int64(16)), epsilon=np.float32(0.5))
    assert copied(config, GPTConfig) == config
    train(build(config), TOKENS, Recipe(steps=np.int64(1), batch=2, package=package), folder=tmp_path)
    assert checkpoint_path(tmp_path).exists()


@pytest.mark.parametrize("other", [ADAMW, replace(PACKAGE, groups=PACKAGE.groups[1:])])
def test_a_state_of_other_groups_is_refused_and_changes_nothing(other):
    model = build(EVERYTHING)
    ours, theirs = optimizers(model, PACKAGE, 8), optimizers(build(EVERYTHING), other, 8)
    loss_of(model).backward()
    ours.step()
    before = pickle.dumps(theirs.state_dict())
    for state in (ours.state_dict(), {}):
        with pytest.raises(InputError, match="give one of the same groups"):
            theirs.load_state_dict(state)
    assert pickle.dumps(theirs.state_dict()) == before


def test_tables_may_go_to_different_optimizers():
    own = Group(name="own", pattern=r"^tables\.weights\.0", method="adamw", rate=0.01)
    model = build(EVERYTHING)
    train(model, TOKENS, Recipe(steps=2, batch=2, package=replace(PACKAGE, groups=(own, *PACKAGE.groups))))
    assert all(table.any() for table in model.tables.weights)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tables_leave_a_model_in_its_own_type(kind):
    model = build(llama_like(V, T, 16, 2, 2, tables=HashedTables(19))).to(kind)
    assert model(torch.tensor(TOKENS[:T])[None]).dtype == kind
    assert model.tables.weights[0].dtype == torch.bfloat16


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_step_of_the_ramp_is_that_of_tables_too(first):
    model = build(replace(EVERYTHING, tables=HashedTables(19, storage="float32")))
    package = replace(PACKAGE.changed("tables", whiten=True), first=first, whiten_ramp=1)
    plain, table = replace(package, whiten_ramp=10**9), model.tables.weights[0]
    written = []
    for each in (package, plain):
        model.tables.fill()
        together = optimizers(model, each, 8)
        together.zero_grad()
        loss_of(model).backward()
        together.parts["tables"].step()
        written.append(table.detach().clone())
    assert torch.equal(*written) == (first == 0)  # t = 0 whitens nothing, and so do a billion steps


def test_another_attribute_called_pairs_is_no_table():
    model = torch.nn.Linear(2, 2)
    model.pairs = 5
    assert set(optimizers(model, PACKAGE, 8).parts) == {"matrices", "scalars"}


def test_other_misuse_is_refused():
    with pytest.raises(InputError, match="group is 'heads'; choose from 'tables', 'embedding'"):
        PACKAGE.changed("heads", rate=1.0)
    with pytest.raises(InputTypeError, match="model is a list"):
        optimizers([], PACKAGE, 3)
    with pytest.raises(InputTypeError, match="package is a dict"):
        optimizers(torch.nn.Linear(2, 2), {}, 3)
    with pytest.raises(InputTypeError, match="package is a dict; give a Package"):
        Recipe(steps=2, batch=2, package={})
    with pytest.raises(InputError, match="peak is given beside a package"):
        Recipe(steps=2, batch=2, peak=1.0, package=NATIVE)
    with pytest.raises(InputError, match=r"epsilon is 0\.0; give a finite number above 0"):
        Recipe(steps=2, batch=2, epsilon=0)
    model = build(EVERYTHING)
    with pytest.raises(InputError, match="give all pairs when the optimizer is made"):
        TableWrite(model.tables.pairs()[:1], 0.1).add_param_group({"params": [model.tables.weights[1]]})

"""The graded objective, its penalties, preferences and the optimiser against second routes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from beartype import beartype
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError, jaxtyped

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.models.config import Grading, gpt2_like, llama_like
from gllm_lib.models.gpt import GPT
from gllm_lib.training.loss import (
    Penalties,
    diversity_penalty,
    graded_loss,
    magnitude_penalty,
    orthogonality_penalty,
    token_losses,
)
from gllm_lib.training.preference import dpo_loss, sequence_log_probability
from gllm_lib.training.schedule import Recipe, adamw, cosine

EPS = torch.finfo(torch.float64).eps


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


def targets(*shape: int, below: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(below, shape, generator=seeded(seed))


def test_losses_are_the_negative_log_probabilities_of_the_targets() -> None:
    logits, aims = normal(3, 4, 5), targets(3, 4, below=5)
    found = token_losses(logits, aims)
    for b, t in itertools.product(range(3), range(4)):
        row = logits[b, t].tolist()
        expected = math.log(sum(map(math.exp, row))) - row[aims[b, t]]
        assert abs(found[b, t].item() - expected) < 20 * EPS * max(map(abs, row))  # a sum of five and two logarithms


def test_a_weight_per_position_and_per_sequence_enter_the_mean_over_positions() -> None:
    logits, aims = normal(3, 4, 5), targets(3, 4, below=5)
    weights, sequences = normal(3, 4, seed=2).exp(), torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64)
    losses = token_losses(logits, aims)
    expected = sum(sequences[b] * weights[b, t] * losses[b, t] for b, t in itertools.product(range(3), range(4))) / (
        3 * 4
    )
    assert torch.isclose(graded_loss(logits, aims, weights, sequences), expected, rtol=20 * EPS, atol=0)
    assert torch.isclose(graded_loss(logits, aims), losses.mean(), rtol=20 * EPS, atol=0)


def test_equal_micro_batches_average_to_the_batch_whatever_their_weights() -> None:
    logits, aims = normal(4, 3, 5), targets(4, 3, below=5)
    weights = torch.tensor([[1.0], [1.0], [9.0], [2.0]], dtype=torch.float64).expand(4, 3)
    parts = [graded_loss(logits[rows], aims[rows], weights[rows]) for rows in (slice(0, 2), slice(2, 4))]
    assert torch.isclose(sum(parts) / 2, graded_loss(logits, aims, weights), rtol=20 * EPS, atol=0)


def test_a_weight_on_whole_sequences_moves_the_minimiser() -> None:
    # two coins: p(y1 = 0) = 1/2, p(y2 = 0 | y1) = .9 or .2, and w(y) = 1 where y2 = 0: the minimiser of the first
    # conditional is the reweighted law .9 / 1.1, and the gradient does not vanish at the law of the data
    pairs = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    probability = torch.tensor([0.45, 0.05, 0.1, 0.4], dtype=torch.float64)
    weight = (pairs[:, 1] == 0).double()

    def gradient(first: float) -> torch.Tensor:
        logits = torch.tensor([math.log(first), math.log(1 - first)], dtype=torch.float64).requires_grad_()
        shown = logits.expand(4, 1, 2)
        graded_loss(shown, pairs[:, :1], sequence_weights_B=4 * probability * weight).backward()
        assert logits.grad is not None
        return logits.grad

    assert gradient(9 / 11).abs().max() < 10 * EPS
    assert gradient(1 / 2).abs().max() > 0.1


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: graded_loss(x, y[:, :-1]),
        lambda x, y: token_losses(x, y.T),
        lambda x, y: graded_loss(x, y, weights_BT=torch.ones(4)),
        lambda x, y: graded_loss(x, y, sequence_weights_B=torch.ones(4)),
    ],
)
def test_shapes_that_disagree_are_named(call) -> None:
    with pytest.raises(InputError, match=r"shape \("):
        call(normal(3, 4, 5), targets(3, 4, below=5))


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        (-100, InputError, "target -100 is out of range; .* 0 to 4"),  # cross_entropy would leave it out
        (5, InputError, "target 5 is out of range"),
        (0.0, InputTypeError, "targets are torch.float"),
        (True, InputTypeError, "targets are torch.bool"),
    ],
)
def test_targets_that_no_logit_is_of_are_refused(wrong, error, told) -> None:
    aims = torch.full((3, 4), wrong)
    for loss in (token_losses, graded_loss):
        with pytest.raises(error, match=told):
            loss(normal(3, 4, 5), aims)


@pytest.mark.parametrize("loss", [token_losses, graded_loss])
def test_what_are_no_logits_is_refused(loss) -> None:
    aims = targets(3, 4, below=5)
    for logits in (normal(3, 4, 0), normal(3, 4), normal(0, 4, 5), aims[..., None], normal(2, 3, 4, 5)):
        with pytest.raises(InputError, match=r"logits are torch.* of shape .*give floats, \(B, T, V\)"):
            loss(logits, aims)
    for logits, ids, told in ((None, aims, "logits are a NoneType"), (np.array([None]), aims, "logits are a ndarray"),
                                (normal(3, 4, 5), aims.tolist(), "targets are a list")):  # fmt: skip
        with pytest.raises(InputTypeError, match=f"{told}; give a tensor"):
            loss(logits, ids)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int32, torch.uint16])
def test_targets_of_any_integer_type_are_taken(kind: torch.dtype) -> None:
    logits, aims = normal(3, 4, 5), targets(3, 4, below=5)
    assert torch.equal(graded_loss(logits, aims.to(kind)), graded_loss(logits, aims))
    assert torch.equal(token_losses(logits, aims.to(kind)), token_losses(logits, aims))


def test_the_annotated_shapes_hold() -> None:
    checked = jaxtyped(typechecker=beartype)(graded_loss)
    assert checked(normal(3, 4, 5), targets(3, 4, below=5), torch.ones(3, 4)).shape == ()
    with pytest.raises(TypeCheckError):
        checked(normal(3, 4, 5), targets(3, 4, below=5), torch.ones(3, 5))


@pytest.mark.parametrize("levels", [(6,), (2, 4), (1, 2, 3)])
def test_orthogonality_is_the_sum_over_pairs_of_levels_and_over_rows(levels: tuple[int, ...]) -> None:
    matrix = normal(6, 6)
    blocks = matrix.split(levels, dim=1)
    pairs = sum(
        (a.T @ b - (torch.eye(a.shape[1]) if i == j else 0)).square().sum()
        for (i, a), (j, b) in itertools.product(enumerate(blocks), repeat=2)
    )
    rows = (torch.eye(6) - matrix @ matrix.T).square().sum()
    bound = 100 * EPS * (1 + matrix.norm() ** 4)  # 36 squares of sums of six products
    assert abs(orthogonality_penalty(matrix, levels) - pairs) < bound
    assert abs(orthogonality_penalty(matrix, levels) - rows) < bound
    assert orthogonality_penalty(torch.linalg.qr(matrix).Q, levels) < (100 * EPS) ** 2 * 36


def test_levels_that_do_not_share_the_columns_are_refused() -> None:
    with pytest.raises(InputError, match="sum to 5"):
        orthogonality_penalty(normal(6, 6), (2, 3))


def test_diversity_counts_pairs_of_heads_within_a_layer() -> None:
    grades = normal(2, 4, 3)
    pairs = sum((q[i] - q[j]).square().sum() for q in grades for i, j in itertools.combinations(range(4), 2))
    assert torch.isclose(diversity_penalty(grades), pairs, rtol=100 * EPS, atol=0)
    assert diversity_penalty(grades[:, :1]) == 0


def form(penalties: Penalties, grades: torch.Tensor) -> float:
    return float(penalties.value({"heads": grades}))


@given(
    heads=st.integers(1, 6),
    width=st.integers(1, 4),
    diversity=st.floats(0.01, 10),
    factor=st.sampled_from([0.5, 0.9, 1.1, 2.0]),
    seed=st.integers(0, 99),
    nonnegative=st.booleans(),
)
def test_the_pair_is_bounded_below_exactly_above_the_threshold(heads, width, diversity, factor, seed, nonnegative):
    bound = diversity * (heads - 1 if nonnegative else heads)
    penalties = Penalties(magnitude=factor * bound, diversity=diversity)
    grades = normal(heads, width, seed=seed)
    witness = torch.zeros(heads, width, dtype=torch.float64)
    witness[0, 0] = 1.0
    if nonnegative:
        grades = grades.abs()
    elif heads > 1:
        witness[1, 0] = -1.0
    if heads == 1:
        assert penalties.threshold(heads, nonnegative) == 0
        return
    assert penalties.coercive(heads, nonnegative) == (factor > 1)
    if factor > 1:
        assert form(penalties, grades) > 0
    else:
        assert form(penalties, witness) < 0


def test_the_two_thresholds_of_four_heads() -> None:
    penalties = Penalties(magnitude=0.7, diversity=0.2)
    assert penalties.threshold(4) == pytest.approx(0.6)
    assert penalties.threshold(4, nonnegative=False) == pytest.approx(0.8)
    penalties.require_coercive(4)
    with pytest.raises(InputError, match=r"either sign.*0\.8"):
        penalties.require_coercive(4, nonnegative=False)
    with pytest.raises(InputError, match=r"magnitude > diversity x \(H - 1\) = 0\.6; .*allow_unbounded"):
        Penalties(magnitude=0.6, diversity=0.2).require_coercive(4)
    Penalties(magnitude=0.6, diversity=0.2, allow_unbounded=True).require_coercive(4)
    Penalties(diversity=5.0).require_coercive(1)
    Penalties().require_coercive(12)


@pytest.mark.parametrize(("value", "error"), [(-0.1, InputError), (math.nan, InputError), ("1", InputTypeError)])
def test_coefficients_are_nonnegative_numbers(value, error) -> None:
    with pytest.raises(error, match="diversity is"):
        Penalties(diversity=value)


def test_the_three_terms_have_the_signs_of_the_objective() -> None:
    grades = {"heads": normal(2, 3, 4), "embedding": normal(6), "projection": normal(6, 6), "output": normal(9)}
    numbers = [grades[name] for name in ("heads", "embedding", "output")]
    expected = (
        2.0 * sum(each.square().sum() for each in numbers)
        + 3.0 * orthogonality_penalty(grades["projection"])
        - 0.5 * diversity_penalty(grades["heads"])
    )
    assert torch.isclose(Penalties(2.0, 3.0, 0.5).value(grades, (2, 4)), expected, rtol=100 * EPS, atol=0)
    assert torch.isclose(magnitude_penalty(*numbers), sum(each.square().sum() for each in numbers))
    assert Penalties().value(grades) == 0.0
    assert Penalties(2.0, 3.0, 0.5).value({}) == 0.0


def test_dpo_is_the_printed_formula() -> None:
    chosen, rejected, ours, theirs = (normal(5, seed=seed) for seed in range(4))
    margin = 0.3 * (chosen - ours) - 0.3 * (rejected - theirs)
    expected = -torch.log(1 / (1 + torch.exp(-margin))).mean()
    assert torch.isclose(dpo_loss(chosen, rejected, ours, theirs, 0.3), expected, rtol=100 * EPS, atol=0)
    assert dpo_loss(ours, ours, theirs, theirs, 0.3).item() == pytest.approx(math.log(2), rel=4 * EPS)


def test_dpo_neither_overflows_nor_loses_its_gradient() -> None:
    chosen = torch.tensor([-1e4], requires_grad=True)
    zero = torch.zeros(1)
    loss = dpo_loss(chosen, zero, zero, zero, 0.5)
    loss.backward()
    assert loss.item() == 5000.0  # log(1 + e^5000) is 5000 to the last bit
    assert chosen.grad is not None
    assert chosen.grad.item() == -0.5  # -beta sigma(5000)


@pytest.mark.parametrize("beta", [0.0, -1.0, math.nan, math.inf])
def test_dpo_needs_a_positive_beta(beta: float) -> None:
    with pytest.raises(InputError, match="beta is"):
        dpo_loss(*[torch.zeros(2)] * 4, beta)


def test_dpo_names_shapes_that_differ() -> None:
    with pytest.raises(InputError, match="shapes differ"):
        dpo_loss(torch.zeros(2), torch.zeros(3), torch.zeros(2), torch.zeros(2), 0.1)


def tiny(**changes) -> GPT:
    return GPT(gpt2_like(7, 8, 8, 1, 2, **changes), generator=seeded()).double()


def test_the_log_probability_of_a_response_is_the_sum_over_its_tokens() -> None:
    model, tokens = tiny(), targets(2, 6, below=7)
    mask = torch.tensor([[0, 0, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0]]).bool()
    grades = torch.arange(7.0, dtype=torch.float64)
    with torch.no_grad():
        plain = sequence_log_probability(model, tokens, mask)
        graded = sequence_log_probability(model, tokens, mask, 2.0**grades)
        assert torch.equal(graded, sequence_log_probability(model, tokens, mask, 2.0 ** grades[tokens]))
        for b in range(2):
            shown = torch.nonzero(mask[b]).flatten().tolist()
            each = [torch.log_softmax(model(tokens[b : b + 1, :t])[0, -1], 0)[tokens[b, t]] for t in shown]
            # three terms below 10, each after some 1000 products that another length of the input may reorder
            assert abs(plain[b] - sum(each)) < 1e4 * EPS
            weighted = sum(2.0 ** grades[tokens[b, t]] * term for t, term in zip(shown, each, strict=True))
            assert abs(graded[b] - weighted) < 2**6 * 1e4 * EPS


def test_a_log_probability_refuses_what_does_not_fit() -> None:
    model, tokens = tiny(), targets(2, 6, below=7)
    mask = torch.zeros(2, 6).bool()
    with pytest.raises(InputError, match=r"one per type, \(7,\), or one per token, \(2, 6\)"):
        sequence_log_probability(model, tokens, mask, torch.ones(2, 5))
    with pytest.raises(InputError, match="first token"):
        sequence_log_probability(model, tokens, ~mask)
    with pytest.raises(InputTypeError, match="booleans"):
        sequence_log_probability(model, tokens, mask.long())
    with pytest.raises(InputError, match=r"\(B, T\)"):
        sequence_log_probability(model, tokens, mask[:, :4])


def test_the_cosine_is_that_of_torch_and_meets_its_ends() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=6e-4)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50, eta_min=1e-5)
    for step in range(51):
        # torch multiplies 50 ratios, some near the floor, where the ratio of two small differences loses digits
        assert cosine(step, 50, 6e-4, 1e-5) == pytest.approx(reference.get_last_lr()[0], rel=1e-10)
        optimizer.step()
        reference.step()
    assert cosine(0, 50, 6e-4, 1e-5) == 6e-4
    assert cosine(50, 50, 6e-4, 1e-5) == 1e-5
    warm = [cosine(step, 14, 1.0, 0.0, warmup=4) for step in range(15)]
    assert warm[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert warm[9] == pytest.approx(0.5)
    for wrong in ({"step": 51}, {"step": -1}, {"step": 3, "warmup": 50}):
        with pytest.raises(InputError):
            cosine(**{"steps": 50, "peak": 1.0, "floor": 0.0} | wrong)


def test_norms_biases_and_grades_do_not_decay() -> None:
    grading = Grading(
        heads=(0.5,) * 4, embedding=(0.0, 0.5), levels=(4, 4), projection=True, output=(0.5,) * 7,
        learned=("heads", "embedding", "output"),
    )  # fmt: skip
    for model in (tiny(grading=grading), GPT(llama_like(7, 8, 8, 1, 2, grading=grading), generator=seeded())):
        decayed, kept = adamw(model, Recipe(steps=1, batch=1)).param_groups
        names = {id(each): name for name, each in model.named_parameters()}
        told = {names[id(each)] for each in kept["params"]}
        assert kept["weight_decay"] == 0.0
        assert decayed["weight_decay"] == 0.1
        assert told == {n for n in names.values() if "norm" in n or n.endswith("bias") or n.startswith("grading.")}
        assert len(decayed["params"]) + len(kept["params"]) == len(names)


def test_adamw_makes_the_printed_step() -> None:
    recipe = Recipe(steps=4, batch=1, peak=0.1, floor=0.1)
    layer = torch.nn.Linear(3, 2, bias=False, dtype=torch.float64)
    optimizer = adamw(layer, recipe)
    theta, gradients = layer.weight.detach().numpy().copy(), normal(4, 2, 3).numpy()
    m, v = np.zeros((2, 3)), np.zeros((2, 3))
    for k, g in enumerate(gradients, start=1):
        layer.weight.grad = torch.from_numpy(g.copy())
        optimizer.step()
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g**2
        ratio = (m / (1 - 0.9**k)) / (np.sqrt(v / (1 - 0.95**k)) + 1e-8)
        theta = theta - 0.1 * ratio - 0.1 * 0.1 * theta
    # 4 steps of some ten roundings; 1 - 0.95 is known to EPS / 0.05
    np.testing.assert_allclose(layer.weight.detach().numpy(), theta, rtol=0, atol=4 * 10 * EPS / 0.05)


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"steps": 0}, InputError, "steps is 0"),
        ({"batch": 2.0}, InputTypeError, "batch is 2.0"),
        ({"batch": 5, "accumulate": 2}, InputError, "does not split"),
        ({"peak": math.nan}, InputError, "peak is nan"),
        ({"peak": 1e-6}, InputError, "peak >= floor"),
        ({"warmup": 10}, InputError, "warmup is 10"),
        ({"betas": (0.9, 1.0)}, InputError, r"betas\[1\] is 1.0"),
        ({"betas": 0.9}, InputTypeError, "betas are 0.9"),
        ({"betas": ("a", "b")}, InputTypeError, r"betas\[0\] is 'a'"),
        ({"penalties": {}}, InputTypeError, "penalties is a dict"),
        ({"seed": -1}, InputError, "seed is -1"),
        ({"decay": "0.1"}, InputTypeError, "decay is"),
    ],
)
def test_a_recipe_that_cannot_train_is_refused(changes, error, told) -> None:
    with pytest.raises(error, match=told):
        Recipe(**{"steps": 10, "batch": 4} | changes)


def test_numbers_of_numpy_are_kept_as_numbers_of_python() -> None:
    recipe = Recipe(np.int64(3), np.uint8(4), peak=np.float32(0.5), betas=(np.float64(0.5), 0), decay=1,
                    penalties=Penalties(np.float32(0.25)))  # fmt: skip
    assert recipe == Recipe(3, 4, peak=0.5, betas=(0.5, 0.0), decay=1.0, penalties=Penalties(0.25))
    kept = [recipe.steps, recipe.batch, recipe.peak, *recipe.betas, recipe.decay, recipe.penalties.magnitude]
    assert [type(each) for each in kept] == [int, int, float, float, float, float, float]

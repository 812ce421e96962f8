"""What grades cost, counted and not timed: operations, and the numbers that they write.

B batch, T positions, D width, V vocabulary
"""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from gllm_lib.models import GPT, Grading, compile_grades, gpt2_like, llama_like
from gllm_lib.models.attention import Attention
from gllm_lib.training.loss import graded_loss
from tests.library.small_models import CONTEXT, SMALL, WIDTH, seeded, tokens_of

LEVELS = (4, 8)
PARTS = {
    "heads": {"heads": [0, 0.5, 1] * 2},
    "heads of all layers": {"heads": [[[0, 0.5, 1] * 2] * 2] * 2},
    "output": {"output": [0.5] * 11},
    "embedding": {"embedding": [1, 0.5]},
    "all": {"heads": [0, 0.5, 1] * 2, "output": [0.5] * 11, "embedding": [1, 0.5]},
}


class Written(TorchDispatchMode):
    """Counts the numbers that operations write to new memory, and lists the operations with the shapes they return."""

    def __init__(self):
        super().__init__()
        self.numbers, self.operations = 0, []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        old = {each.untyped_storage().data_ptr() for each in tree_leaves((args, kwargs)) if torch.is_tensor(each)}
        new = [each for each in tree_leaves(result) if torch.is_tensor(each)]
        self.operations.append((str(operation), *(tuple(each.shape) for each in new)))
        self.numbers += sum(each.numel() for each in new if each.untyped_storage().data_ptr() not in old)
        return result


def step(model, batch):
    tokens = tokens_of(batch)
    graded_loss(model(tokens), tokens).backward()


def written(config, batch):
    model = GPT(config, generator=seeded())
    with Written() as counter:
        step(model, batch)
    return counter.numbers


def per_sequence(config):
    """Numbers that a training step writes for one more sequence: what stays after weights have been dealt with."""
    two, three, four = (written(config, batch) for batch in (2, 3, 4))
    assert four - three == three - two
    return three - two


def multiplied(config):
    with FlopCounterMode(display=False) as counter:
        step(GPT(config, generator=seeded()), 2)
    return counter.get_total_flops()


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("make", [gpt2_like, llama_like])
def test_grades_multiply_weights_and_not_activations(make, part, learned):
    grades = PARTS[part]
    plain = make(*SMALL, tied=False)
    graded = replace(plain, grading=Grading(levels=LEVELS, **grades, learned=tuple(grades) if learned else ()))
    assert multiplied(graded) == multiplied(plain)  # no product of matrices is added, forward or backward
    embedded = CONTEXT * WIDTH * ("embedding" in grades)  # but what was looked up is scaled, (T, D) a sequence:
    backward = 2 if learned else 1  # the table is the larger of the two; its gradient, and that of the scale
    assert per_sequence(graded) - per_sequence(plain) == embedded * (1 + backward)


def test_scaling_activations_would_be_noticed(monkeypatch):
    plain = gpt2_like(*SMALL)
    graded = replace(plain, grading=Grading(heads=[0, 0.5, 1] * 2))
    uniform, folding = per_sequence(plain), Attention.projected

    def scaling(attention, x, scale, rotation):
        parts = zip(folding(attention, x, None, rotation), scale.view(3, 2, 1, -1), strict=True)
        return tuple(part * one for part, one in parts)

    monkeypatch.setattr(Attention, "projected", scaling)
    scaled = plain.layers * 3 * CONTEXT * WIDTH
    assert per_sequence(graded) == uniform + 2 * scaled  # forward and backward


@pytest.mark.parametrize("make", [gpt2_like, llama_like])
def test_a_compiled_model_takes_the_operations_of_a_uniform_one(make):
    graded = make(*SMALL, tied=False, grading=Grading(levels=LEVELS, **PARTS["all"]))
    taken = []
    for model in (
        compile_grades(GPT(graded, generator=seeded()), tilt="drop"),
        GPT(graded.uniform(), generator=seeded()),
    ):
        with Written() as counter:
            step(model, 2)
        taken.append(counter.operations)
    assert taken[0] == taken[1]

"""A small run of the loop, plain and graded, for the tests of the loop, its checkpoints and its processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gllm_lib.models.config import GPTConfig, Grading, gpt2_like, llama_like
from gllm_lib.models.gpt import GPT
from gllm_lib.training.loop import History, Recipe
from gllm_lib.training.loss import Penalties

V, T = 11, 6
PLAIN = gpt2_like(V, T, 8, 1, 2)
GRADED = llama_like(
    V, T, 8, 2, 2,
    grading=Grading(heads=(0.0, 0.25, 0.5, 1.0), projection=True, levels=(4, 4), embedding=(1.0, 0.0),
                    learned=("heads", "embedding")),
)  # fmt: skip
TOKENS = np.random.default_rng(0).integers(0, V, 400).astype(np.uint16)
WEIGHTS = 2.0 ** np.random.default_rng(1).uniform(0, 3, len(TOKENS))
RECIPE = Recipe(steps=8, batch=4, peak=1e-2, save_every=1, penalties=Penalties(0.3, 0.1, 0.2))


def build(config: GPTConfig = PLAIN) -> GPT:
    return GPT(config, generator=torch.Generator().manual_seed(0))


def state(model: GPT) -> dict[str, bytes]:
    return {name: each.numpy().tobytes() for name, each in model.state_dict().items()}


def same(ours: History, theirs: History) -> bool:
    return (
        ours.losses.tobytes() == theirs.losses.tobytes()
        and ours.gradient_norms.tobytes() == theirs.gradient_norms.tobytes()
        and ours.evaluations == theirs.evaluations
        and ours.tokens_seen == theirs.tokens_seen
    )


def stop_at(step: int):
    return lambda history: len(history.losses) >= step


def changed(recipe: Recipe = RECIPE, **changes: Any) -> Recipe:
    return Recipe(**{**vars(recipe), **changes})

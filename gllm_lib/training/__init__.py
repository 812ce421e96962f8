"""The graded objective, its optimiser and schedule, a loop that resumes exactly, and what a trained model is worth."""

from gllm_lib.training.encode import encode
from gllm_lib.training.evaluate import (
    accuracy_by_depth,
    bits_per_byte,
    evaluate,
    perplexity,
    structural_attention_mass,
)
from gllm_lib.training.loop import Diverged, History, Recipe, train
from gllm_lib.training.loss import Penalties, graded_loss
from gllm_lib.training.preference import dpo_loss, sequence_log_probability

__all__ = [
    "Diverged",
    "History",
    "Penalties",
    "Recipe",
    "accuracy_by_depth",
    "bits_per_byte",
    "dpo_loss",
    "encode",
    "evaluate",
    "graded_loss",
    "perplexity",
    "sequence_log_probability",
    "structural_attention_mass",
    "train",
]

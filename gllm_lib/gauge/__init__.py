"""What a training run sees of the basis it is written in: actions, defects, the clock, and the gauge of attention."""

from gllm_lib.gauge.actions import GROUPS, act, factor_gradients, sample
from gllm_lib.gauge.clock import scalar_flow
from gllm_lib.gauge.defect import (
    adam_direction,
    aligned_defect,
    defects,
    exceptional_rate,
    first_step_difference,
    state_defect,
    survey,
    trajectory,
    unseen,
)
from gllm_lib.gauge.heads import gauge_image, on_heads

__all__ = [
    "GROUPS",
    "act",
    "adam_direction",
    "aligned_defect",
    "defects",
    "exceptional_rate",
    "factor_gradients",
    "first_step_difference",
    "gauge_image",
    "on_heads",
    "sample",
    "scalar_flow",
    "state_defect",
    "survey",
    "trajectory",
    "unseen",
]

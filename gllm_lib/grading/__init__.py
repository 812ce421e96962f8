"""Energy profiles, the gain of a grading, and the exact selection of grades."""

from gllm_lib.grading.levels import allocation, coarsen, geometric_profiles, select_levels, spread
from gllm_lib.grading.profiles import (
    Certificate,
    affinity,
    bennett_bound,
    bennett_step,
    certify,
    fourth_root_grades,
    gain,
    log_gain,
    log_gain_gradient,
    log_gain_hessian,
    rational_gain,
    regret,
    tilted_profiles,
    token_gain,
)
from gllm_lib.grading.selection import Selection, select

__all__ = [
    "Certificate",
    "Selection",
    "affinity",
    "allocation",
    "bennett_bound",
    "bennett_step",
    "certify",
    "coarsen",
    "fourth_root_grades",
    "gain",
    "geometric_profiles",
    "log_gain",
    "log_gain_gradient",
    "log_gain_hessian",
    "rational_gain",
    "regret",
    "select",
    "select_levels",
    "spread",
    "tilted_profiles",
    "token_gain",
]

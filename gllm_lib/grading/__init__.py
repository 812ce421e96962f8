"""Energy profiles, the gain of a grading, and the exact selection of grades."""

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
    regret,
    tilted_profiles,
    token_gain,
)
from gllm_lib.grading.selection import Selection, select

__all__ = [
    "Certificate",
    "Selection",
    "affinity",
    "bennett_bound",
    "bennett_step",
    "certify",
    "fourth_root_grades",
    "gain",
    "log_gain",
    "log_gain_gradient",
    "log_gain_hessian",
    "regret",
    "select",
    "tilted_profiles",
    "token_gain",
]

"""Registered studies: a plan before the first run, one record per run, and what chapters load of them."""

from gllm_lib.studies.plan import Plan, PlanChangedError, Record, Study, list_studies, load, read_plan
from gllm_lib.studies.run import RunFailedError, Status, run, status

__all__ = [
    "Plan",
    "PlanChangedError",
    "Record",
    "RunFailedError",
    "Status",
    "Study",
    "list_studies",
    "load",
    "read_plan",
    "run",
    "status",
]

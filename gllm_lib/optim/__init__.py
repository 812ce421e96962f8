"""Optimizers of the book: Muon and what goes before its polar step, the write of hashed tables, all of it in one."""

from gllm_lib.optim.groups import (
    ADAMW,
    GROUPS,
    NATIVE,
    PACKAGE,
    AdamW,
    Group,
    Optimizers,
    Package,
    assigned,
    optimizers,
)
from gllm_lib.optim.muon import Muon, MuonOptions
from gllm_lib.optim.polar import POLAR_SCHEDULES, polar, polar_schedule, singular_map
from gllm_lib.optim.prepolar import equilibrate, homotopy, neumann_whiten
from gllm_lib.optim.tables import TableWrite

__all__ = [
    "ADAMW",
    "GROUPS",
    "NATIVE",
    "PACKAGE",
    "POLAR_SCHEDULES",
    "AdamW",
    "Group",
    "Muon",
    "MuonOptions",
    "Optimizers",
    "Package",
    "TableWrite",
    "assigned",
    "equilibrate",
    "homotopy",
    "neumann_whiten",
    "optimizers",
    "polar",
    "polar_schedule",
    "singular_map",
]

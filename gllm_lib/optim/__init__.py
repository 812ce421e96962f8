"""Optimizers of the book: Muon and its polar step, rules blind to a basis, the write of hashed tables, all in one."""

from gllm_lib.optim.equivariant import RowAdam, ScaledGD, Shampoo, SharedAdam
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
    "RowAdam",
    "ScaledGD",
    "Shampoo",
    "SharedAdam",
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

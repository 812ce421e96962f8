"""The read-out study's cell on code, begun again: some targets at the smaller sizes, held against the record.

Needs neither treebanks nor an encoder. Shapes: d coordinates, N sample sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gllm_lib.analysis.bases import level_basis
from gllm_lib.analysis.probes import Array
from gllm_lib.checks import InputError
from gllm_lib.studies import readouts
from gllm_lib.studies.division import divided, factors_of
from gllm_lib.studies.plan import Study

CELL = "code"
BOUND = 100  # in readouts.UNIT, a thousandth of the target's variance: what another processor may move an error by


@dataclass(frozen=True, eq=False)
class Prefix:
    """What a rerun found in the annotated basis, by target: entries as in a record, and what entries leave out.

    `grades` (d,) and `inner`, the inner product <log g, alpha - tau>, are by arm; `level` (d,) numbers the levels.
    `difference` is the largest to the record in gain or gauge (relative) and in errors (in `readouts.UNIT`), or None on
    an interpreter whose standard library has other bytes; `notes` then says so.
    """

    sizes: list[int]
    entries: dict[str, dict[str, list[Any]]]
    grades: dict[str, dict[str, Array]]
    inner: dict[str, dict[str, float]]
    level: dict[str, NDArray[np.int64]]
    difference: tuple[float, int] | None
    notes: str


def rerun(study: Study, seed: int, targets: Sequence[str], sizes: Sequence[int]) -> Prefix:
    """Make the run of cell `code` at `seed` again, for `targets` in the annotated basis, at the plan's first `sizes`.

    A size is a prefix of the larger ones, so what is left out changes nothing of the rest. Raises InputError for sizes
    that are not the plan's first ones, a target that the cell lacks, or a seed without a record.
    """
    cell, settings = study.plan.cell(CELL), dict(study.plan.fields["settings"])
    recorded = {record.seed: record.values for record in study.of(CELL)}
    if not sizes or list(sizes) != settings["sizes"][: len(sizes)]:
        raise InputError(f"sizes {list(sizes)} do not begin the plan's {settings['sizes']}; give its first ones")
    if not targets or set(targets) - set(cell["targets"]) or seed not in recorded:
        raise InputError(
            f"targets {list(targets)}, seed {seed}; the cell has targets {', '.join(cell['targets'])} "
            f"and records of seeds {sorted(recorded)}"
        )
    settings["sizes"] = list(sizes)
    corpus = readouts.corpus_of(cell, "")
    frozen = readouts.leading(readouts.window_vectors(corpus, cell["width"] // 3), cell["width"]).astype(np.float64)
    division = divided(corpus, frozen, seed)
    names = [name for name in cell["targets"] if name in corpus.targets]
    samples = readouts.drawn(division, [division.outputs.columns[name][0] for name in names], settings, seed)
    factors, clip = factors_of(division), settings["clip"]
    entries, grades, inner, level = {}, {}, {}, {}
    for name in targets:
        number, basis = names.index(name), level_basis(factors.without(corpus.targets[name].own), factors.covariance)
        entries[name] = readouts.curves(division, samples, basis, names, number, settings, seed, "annotated")
        _, alpha, tau = readouts.limits(division, basis, name)
        grades[name] = readouts.arm_grades(division, samples, basis, names, number, alpha, tau, clip, seed)
        inner[name] = {arm: float(np.log(g) @ (alpha - tau)) for arm, g in grades[name].items()}
        level[name] = basis.level
    known = getattr(corpus, "matches_record", True)
    found = _difference(entries, recorded[seed]["annotated"], len(sizes)) if known else None
    notes = "" if known else " ".join(getattr(corpus, "notes", ()))
    return Prefix(list(sizes), entries, grades, inner, level, found, notes)


def _difference(entries: dict[str, dict[str, list[Any]]], recorded: Any, count: int) -> tuple[float, int]:
    """Largest relative difference of gains and gauges, and largest difference of errors at the first `count` sizes."""
    told, errors = [0.0], [0]
    for name, arms in entries.items():
        for arm, entry in arms.items():
            other = recorded[name][arm]
            told += [abs(a / b - 1) for a, b in zip(entry[:2], other[:2], strict=True) if b is not None]
            errors += [abs(a - b) for k in (2, 3) for a, b in zip(entry[k], other[k][:count], strict=True)]
    return max(told), max(errors)

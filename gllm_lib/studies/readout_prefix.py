"""The read-out study's cell on code, begun again: some targets at the smaller sizes, held against the record.

Needs neither treebanks nor an encoder. Shapes: d coordinates, N sample sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gllm_lib.analysis.bases import level_basis
from gllm_lib.analysis.probes import Array, Moments
from gllm_lib.checks import InputError
from gllm_lib.studies import readouts
from gllm_lib.studies.division import divided, factors_of
from gllm_lib.studies.english_measures import rounded
from gllm_lib.studies.ladder import signed_gain
from gllm_lib.studies.plan import Study
from gllm_lib.studies.readout_rules import both_rules, error, turned

CELL = "code"
BOUND = 100  # in readouts.UNIT, a thousandth of the target's variance: what another processor may move an error by


@dataclass(frozen=True, eq=False)
class Words:
    """One target's samples along its basis: (place in sizes, moments) to learn from, and what tunes and scores."""

    train: list[tuple[int, Moments]]
    tune: Moments
    score: Moments
    truth: Array
    alpha: Array
    tau: Array


@dataclass(frozen=True, eq=False)
class Prefix:
    """What a rerun found in the annotated basis, by target: entries as in a record, and what entries leave out.

    `grades` (d,) and `inner`, the inner product <log g, alpha - tau>, are by arm; `level` (d,) numbers the levels.
    `difference` is the largest to the record in gain or gauge (relative) and in errors (in `readouts.UNIT`), or None on
    an interpreter whose standard library has other bytes; `notes` then says so. `words` is what `learn` needs.
    """

    sizes: list[int]
    entries: dict[str, dict[str, list[Any]]]
    grades: dict[str, dict[str, Array]]
    inner: dict[str, dict[str, float]]
    level: dict[str, NDArray[np.int64]]
    difference: tuple[float, int] | None
    notes: str
    words: dict[str, Words]


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
    entries, grades, inner, level, words = {}, {}, {}, {}, {}
    for name in targets:
        number, basis = names.index(name), level_basis(factors.without(corpus.targets[name].own), factors.covariance)
        entries[name] = readouts.curves(division, samples, basis, names, number, settings, seed, "annotated")
        truth, alpha, tau = readouts.limits(division, basis, name)
        grades[name] = readouts.arm_grades(division, samples, basis, names, number, alpha, tau, clip, seed)
        inner[name] = {arm: float(np.log(g) @ (alpha - tau)) for arm, g in grades[name].items()}
        level[name] = basis.level
        tune, score, *train = (
            turned(each.select([number]), basis.vectors)
            for each in (samples.tune, samples.score, *(part for _, part in samples.train))
        )
        places = [place for place, _ in samples.train]
        words[name] = Words(list(zip(places, train, strict=True)), tune, score, truth, alpha, tau)
    known = getattr(corpus, "matches_record", True)
    found = _difference(entries, recorded[seed]["annotated"], len(sizes)) if known else None
    notes = "" if known else " ".join(getattr(corpus, "notes", ()))
    return Prefix(list(sizes), entries, grades, inner, level, found, notes, words)


def learn(prefix: Prefix, target: str, g: ArrayLike) -> list[Any]:
    """Return a record's entry of any other arm for a rerun target: [gain, gauge, ball errors (N,), tuned errors (N,)].

    Raises InputError for a target that was not rerun and for grades that are not d positive finite numbers.
    """
    if target not in prefix.words:
        raise InputError(f"target {target!r} was not rerun; there are {', '.join(prefix.words)}")
    words, grades = prefix.words[target], np.asarray(g, dtype=np.float64)
    if grades.shape != words.tau.shape or not (np.isfinite(grades).all() and (grades > 0).all()):
        raise InputError(f"grades of shape {grades.shape}; give {len(words.tau)} positive finite numbers")
    errors = np.zeros((2, len(prefix.sizes)))
    for place, sample in words.train:
        errors[:, place] += [error(w, sample, words.score) for w in both_rules(sample, grades, words.truth, words.tune)]
    errors *= len(prefix.sizes) / len(words.train) / readouts.UNIT
    gauge = (words.alpha / grades**2).sum() * np.exp(2 * np.log(grades).mean())
    gain = signed_gain(grades, words.alpha, words.tau)
    return [rounded(gain), rounded(gauge), *np.rint(errors).astype(int).tolist()]


def _difference(entries: dict[str, dict[str, list[Any]]], recorded: Any, count: int) -> tuple[float, int]:
    """Largest relative difference of gains and gauges, and largest difference of errors at the first `count` sizes."""
    told, errors = [0.0], [0]
    for name, arms in entries.items():
        for arm, entry in arms.items():
            other = recorded[name][arm]
            told += [abs(a / b - 1) for a, b in zip(entry[:2], other[:2], strict=True) if b is not None]
            errors += [abs(a - b) for k in (2, 3) for a, b in zip(entry[k], other[k][:count], strict=True)]
    return max(told), max(errors)

"""Registered plans and the records made under them: read, checked, tied together by the plan's hash.

A study is a folder `results/<name>/` with `plan.toml`, written before the first run, and `records/<cell>-s<seed>.json`,
one for each cell and seed, never overwritten.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gllm_lib
from gllm_lib.checks import FileError, InputError, note_input, read_text

FIELDS: dict[str, type | tuple[type, ...]] = {
    "question": str,
    "entry": str,  # the module with `prepare` and `measure`
    "cells": list,  # tables, each with an `id`
    "seeds": list,
    "metric": str,
    "contrasts": list,  # the primary contrast first
    "smallest_effect": str,
    "predictions": list,
    "exclusion": str,
    "stopping": str,
    "budget": dict,
}
RECORD = {"study", "plan_sha256", "cell", "seed", "config", "values", "code_sha256", "versions", "machine", "minutes"}
CELL_ID = "abcdefghijklmnopqrstuvwxyz0123456789-"


class PlanChangedError(InputError):
    """A plan differs from the one its records were made under."""


@dataclass(frozen=True)
class Plan:
    """A registered plan: every field of the file in `fields`, and the SHA-256 of its text (line ends as LF)."""

    name: str
    folder: Path
    fields: Mapping[str, Any]
    sha256: str

    def jobs(self) -> list[tuple[str, int]]:
        """Every (cell id, seed) in running order: all cells at the first seed, then the next."""
        return [(cell["id"], seed) for seed in self.fields["seeds"] for cell in self.fields["cells"]]

    def cell(self, identity: str) -> dict[str, Any]:
        """The table of one cell."""
        return next(dict(cell) for cell in self.fields["cells"] if cell["id"] == identity)

    def record_path(self, identity: str, seed: int) -> Path:
        """Where the record of a cell and seed stands."""
        return self.folder / "records" / f"{identity}-s{seed}.json"


@dataclass(frozen=True)
class Record:
    """One run: its cell and seed, the measured values, and what they depend on (`about`: hashes, versions, machine)."""

    cell: str
    seed: int
    values: Mapping[str, Any]
    minutes: float
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """A plan with its records in running order and the (cell, seed) pairs that have none."""

    plan: Plan
    records: tuple[Record, ...]
    missing: tuple[tuple[str, int], ...]

    def of(self, cell: str) -> tuple[Record, ...]:
        """The records of one cell, by seed; raises InputError if the plan has no such cell."""
        known = [each["id"] for each in self.plan.fields["cells"]]
        if cell not in known:
            raise InputError(f"study {self.plan.name} has no cell {cell!r}; it has {', '.join(known)}")
        return tuple(record for record in self.records if record.cell == cell)


def project_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Return `root`, or else the nearest folder with `results/`, from here upwards or beside the package."""
    if root is not None:
        return Path(root)
    here = Path.cwd().resolve()
    candidates = [here, *here.parents, Path(gllm_lib.__file__).resolve().parents[1]]
    return next((each for each in candidates if (each / "results").is_dir()), here)


def list_studies(root: str | os.PathLike[str] | None = None) -> list[str]:
    """Names of the studies under `root`: folders of `results/` that hold a plan, sorted."""
    return sorted(path.parent.name for path in (project_root(root) / "results").glob("*/plan.toml"))


def read_plan(root: str | os.PathLike[str] | None, name: str) -> Plan:
    """Return the plan of a study, noted as an input.

    Raises InputError for an unknown study or a plan that lacks a field, FileError for a file that is no TOML.
    """
    base = project_root(root)
    path = base / "results" / name / "plan.toml"
    if not path.is_file():
        known = ", ".join(list_studies(base)) or "none"
        raise InputError(f"no study {name!r} under {base / 'results'}; the studies there: {known}")
    text = read_text(path).replace("\r\n", "\n")
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{path} is no TOML: {error}") from error
    _check_fields(path, fields)
    return Plan(name, path.parent, fields, hashlib.sha256(text.encode()).hexdigest())


def budgeted(plan: Plan, budget: str, base: Path) -> Plan:
    """Return the plan at the size `[budgets.<budget>]` of its file sets: other `seeds`, `cells` (ids), `settings`.

    "default" is the plan as registered. Every other size has a hash of its own, and its records go to `build/studies/`,
    never among the registered ones. Raises InputError for a size that the plan does not have.
    """
    if budget == "default":
        return plan
    sizes = plan.fields.get("budgets", {})
    if budget not in sizes:
        raise InputError(f"{plan.name} has no budget {budget!r}; its budgets: {', '.join(['default', *sizes])}")
    change, fields = sizes[budget], dict(plan.fields)
    fields["seeds"] = change.get("seeds", fields["seeds"])
    kept = change.get("cells", [cell.get("id") for cell in fields["cells"]])
    fields["cells"] = [cell for cell in fields["cells"] if cell.get("id") in kept]
    fields["settings"] = {**fields.get("settings", {}), **change.get("settings", {})}
    _check_fields(plan.folder / "plan.toml", fields)
    folder = base / "build" / "studies" / f"{plan.name}-{budget}-{plan.sha256[:12]}"
    return Plan(plan.name, folder, fields, hashlib.sha256(f"{plan.sha256} {budget}".encode()).hexdigest())


def _check_fields(path: Path, fields: Mapping[str, Any]) -> None:
    absent = [key for key in FIELDS if key not in fields]
    if absent:
        raise InputError(f"{path} lacks {', '.join(absent)}; a plan fixes them before the first run")
    for key, kind in FIELDS.items():
        if not isinstance(fields[key], kind) or not fields[key]:
            raise InputError(f"{path}: {key} is {fields[key]!r}; give a non-empty {getattr(kind, '__name__', kind)}")
    seeds, cells = fields["seeds"], fields["cells"]
    if any(type(seed) is not int or seed < 0 for seed in seeds) or len(set(seeds)) < len(seeds):
        raise InputError(f"{path}: seeds {seeds} are not distinct whole numbers from 0 up")
    names = [cell.get("id") if isinstance(cell, dict) else None for cell in cells]
    if any(not isinstance(each, str) or not each or set(each) - set(CELL_ID) for each in names):
        raise InputError(f"{path}: cells {names}; each needs an `id` of small letters, digits and hyphens")
    if len(set(names)) < len(names):
        raise InputError(f"{path}: cells {names}; ids are unique")


def read_records(plan: Plan) -> dict[tuple[str, int], Record]:
    """Return the records made under `plan`, by (cell, seed), each file and the names in the folder noted as inputs.

    Raises PlanChangedError if a record was made under another plan, FileError if one is malformed.
    """
    found = {}
    folder = plan.folder / "records"
    if folder.is_dir():
        note_input(folder)  # a record more or less makes what was read from here stale
    for path in sorted(folder.glob("*.json")):
        record = _read_record(path, plan)
        if (record.cell, record.seed) not in plan.jobs() or path != plan.record_path(record.cell, record.seed):
            raise FileError(f"{path} is no record of a cell and seed of {plan.name}; move it out of the folder")
        found[record.cell, record.seed] = record
    return found


def _read_record(path: Path, plan: Plan) -> Record:
    mend = "restore it from git, or delete it and run the study again"
    try:
        content = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise FileError(f"{path} is no JSON (line {error.lineno}: {error.msg}); {mend}") from error
    if not isinstance(content, dict) or RECORD - content.keys():
        lacking = sorted(RECORD - content.keys()) if isinstance(content, dict) else "everything"
        raise FileError(f"{path} lacks {lacking}; {mend}")
    kinds = isinstance(content["cell"], str) and type(content["seed"]) is int and isinstance(content["values"], dict)
    if not kinds or isinstance(content["minutes"], bool) or not isinstance(content["minutes"], int | float):
        raise FileError(f"{path}: cell, seed, values or minutes is not of its kind; {mend}")
    if content["plan_sha256"] != plan.sha256:
        raise PlanChangedError(
            f"{path} was made under plan {str(content['plan_sha256'])[:12]}, but {plan.folder / 'plan.toml'} is now "
            f"{plan.sha256[:12]}; restore the plan, or register the new one under a new name in its own folder"
        )
    about = {key: content[key] for key in sorted(RECORD - {"cell", "seed", "values", "minutes"})}
    return Record(content["cell"], content["seed"], content["values"], float(content["minutes"]), about)


def load(root: str | os.PathLike[str] | None, name: str, budget: str = "default") -> Study:
    """Return a study's plan and records, hashes verified, every file read noted as an input.

    `root` None looks upwards from the current folder, then beside the package. Raises what `read_plan`, `budgeted` and
    `read_records` raise.
    """
    plan = budgeted(read_plan(root, name), budget, project_root(root))
    found = read_records(plan)
    jobs = plan.jobs()
    records = tuple(found[job] for job in jobs if job in found)
    return Study(plan, records, tuple(job for job in jobs if job not in found))


def _told(value: Any) -> str:
    return json.dumps(value, allow_nan=False, sort_keys=True, separators=(",", ":"))


def write_record(path: Path, content: Mapping[str, Any]) -> Path:
    """Write a record whole and only if there is none yet; raises FileError if there is.

    A complete temporary sibling is linked to the name, which fails if the name is taken: nothing is ever half-written
    or overwritten, also by two runners at once. NaN and infinity are refused with InputError.
    """
    lines = []
    try:
        for key, value in sorted(content.items()):
            if key == "values":
                inner = [f"  {json.dumps(each)}: {_told(value[each])}" for each in sorted(value)]
                lines.append(f' "{key}": {{\n' + ",\n".join(inner) + "\n }")
            else:
                lines.append(f" {json.dumps(key)}: {_told(value)}")
    except ValueError as error:
        raise InputError(f"{path} would hold NaN or infinity, which JSON cannot; store null with a reason") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=path.name + ".", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            handle.write("{\n" + ",\n".join(lines) + "\n}\n")
        os.chmod(temporary, 0o644)
        os.link(temporary, path)
    except FileExistsError as error:
        raise FileError(f"{path} exists; a record is never overwritten: delete it on purpose, or keep it") from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    note_input(path)
    return path

"""`gllm study`: list, run or show the registered experiments."""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from pathlib import Path
from typing import Any

from gllm_lib.book.project import open_project
from gllm_lib.checks import GllmError, InputError
from gllm_lib.cli.words import counted, relative


def add(commands: Any) -> None:
    """Add the command to the others."""
    study = commands.add_parser("study", help="list, run or show the registered experiments")
    study.add_argument("action", choices=["list", "run", "status", "show"])
    study.add_argument("name", nargs="?", help="a study's name, as 'gllm study list' prints it")
    study.add_argument("--treebanks", type=Path, metavar="DIR", help="a folder of Universal Dependencies files")
    study.add_argument("--workers", type=int, default=2, help="single-thread processes (default 2)")
    study.add_argument("--budget", default="default", help="a size that the plan names; only default is registered")
    study.set_defaults(run=_study)


def _study(options: argparse.Namespace) -> None:
    from gllm_lib import studies

    root = open_project().root
    if options.action == "list":
        for name in studies.list_studies(root):
            print(_line(root, name))
        return
    if options.name is None:
        raise InputError("name the study; 'gllm study list' prints the names")
    if options.action == "run":
        given = {"treebanks": options.treebanks} if options.treebanks else {}
        studies.run(root, options.name, workers=options.workers, budget=options.budget, **given)
    if options.action == "show":
        _show(studies.load(root, options.name, options.budget))
    state = studies.status(root, options.name, options.budget)
    where = relative(studies.load(root, options.name, options.budget).plan.folder / "records")
    done = f"{state.done} of {state.planned} runs recorded in {where}"
    print(f"{state.study}: {done}, {state.minutes:.1f} minutes of computing")
    for cell, seed in state.missing[:10]:
        print(f"    to run: {cell}, seed {seed}")


def _line(root: Path, name: str) -> str:
    """Return a study's name, how many of its runs are recorded, and its question up to the first mark."""
    from gllm_lib import studies

    question = " ".join(studies.read_plan(root, name).fields["question"].split())
    first = re.sub(r"\?.*", "?", question)
    try:
        state = studies.status(root, name)
    except GllmError:  # one study that cannot be read hides no other; status and show say why
        return f"{name} (records do not fit, see 'gllm study status {name}'): {first}"
    return f"{name} ({state.done} of {state.planned}): {first}"


def _show(study: Any) -> None:
    fields = study.plan.fields
    print(f"{study.plan.name}, plan {study.plan.sha256[:12]}\n{str(fields['question']).strip()}")
    cells, seeds = ([str(each["id"]) for each in fields["cells"]], [str(seed) for seed in fields["seeds"]])
    for noun, names in (("cell", cells), ("seed", seeds)):
        listed = f"{counted(len(names), noun)}: {', '.join(names)}"
        print("\n" + textwrap.fill(listed, 120, subsequent_indent="    ", break_on_hyphens=False))
    for title in ("contrasts", "predictions", "smallest_effect", "exclusion", "stopping"):
        told = fields[title] if isinstance(fields[title], list) else [fields[title]]
        print(f"\n{title.replace('_', ' ')}:")
        for line in told:
            print(f"    {line.strip() if isinstance(line, str) else json.dumps(line, ensure_ascii=False)}")
    print()

"""What ran to make this copy of the book: its chapters, the versions, and the studies whose records they read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from gllm_lib.book.markdown import plain, rows
from gllm_lib.book.project import Notebook, Project, chapter_heading, read_notebook
from gllm_lib.book.run import Run
from gllm_lib.studies.plan import Study, list_studies, load


def title(project: Project, chapter: str) -> str:
    """Return "4b Steps, errors and levels" for a chapter: a reference that is shown as its number, and its title."""
    return " ".join(chapter_heading(chapter, read_notebook(project.notebook_path(chapter))))


def chapter_runs(project: Project, runs: Mapping[str, Run], profile: str) -> str:
    """Return the chapters with their run time, CPU time, checks and mutants, the sum, and the machine below."""
    body, total = [], [0.0] * 5
    for name in project.notebooks:
        run = runs.get(name)
        if run is None:
            body.append([title(project, name), "not executed", "", "", "", ""])
            continue
        numbers = _numbers(run)
        total = [a + b for a, b in zip(total, numbers, strict=True)]
        body.append([title(project, name), *_told(numbers)])
    body.append(["**All**", *_told(total)])
    header = ["Chapter", "Seconds", "CPU-seconds", "Checks", "Cases", "Mutants rejected"]
    told = f"Size: {profile}. Machine: {_machines(runs)}."
    return rows(header, body, "|:----|--:|--:|--:|--:|--:|") + f"\n\n{told}"


def _numbers(run: Run) -> list[float]:
    records = run.evidence
    cases, mutants = (sum(record[key] for record in records) for key in ("cases", "mutants_rejected"))
    return [float(run.facts["seconds"]), float(run.facts["cpu_seconds"]), len(records), cases, mutants]


def _told(numbers: list[float]) -> list[str]:
    return [f"{number:,.0f}" for number in numbers]


def _machines(runs: Mapping[str, Run]) -> str:
    return "; ".join(dict.fromkeys(str(run.facts["machine"]) for run in runs.values())) or "none"


def effort(runs: Mapping[str, Run]) -> str:
    """Return one sentence on what ran: checks, cases, mutants, minutes of one core."""
    if not runs:
        return "No chapter was executed for this copy."
    _, cpu, checks, cases, mutants = (sum(column) for column in zip(*map(_numbers, runs.values()), strict=True))
    chapters = f"{len(runs)} chapter{'s' * (len(runs) != 1)}"
    return (
        f"For this copy {chapters} ran {checks:,.0f} checks on {cases:,.0f} cases, and every one of {mutants:,.0f} "
        f"mutants was rejected, in {cpu / 60:.0f} minutes of one core."
    )


def versions(runs: Mapping[str, Run]) -> str:
    """Return the versions of interpreter and libraries that the kernels reported."""
    seen: dict[str, list[str]] = {}
    for run in runs.values():
        for name, version in run.facts["versions"].items():
            if version not in seen.setdefault(name, []):
                seen[name].append(version)
    body = [[name, ", ".join(found)] for name, found in sorted(seen.items())]
    return rows(["Library", "Version"], body, "|:---|:---|") if body else "No chapter was executed."


def studies(root: Path, notebooks: Mapping[str, Notebook]) -> str:
    """Return the studies: question, runs recorded of those planned, minutes, plan, machine, and who reads them."""
    parts, minutes = [], 0.0
    for name in list_studies(root):
        study = load(root, name)
        minutes += sum(record.minutes for record in study.records)
        parts.append(f"{name}\n\n:   {_question(study)}\n\n    {_facts(study)} {_readers(name, notebooks)}")
    if not parts:
        return "No study is registered."
    size = sum(path.stat().st_size for path in (root / "results").rglob("*.json")) / 1e6
    told = f"Together they took {minutes / 60:.1f} hours of one core; their records take {size:.1f} MB."
    parts.append(f"{told} A plan goes by the start of its SHA-256.")
    return "\n\n".join(parts)


def _question(study: Study) -> str:
    """Return the first question of a plan."""
    text = " ".join(str(study.plan.fields["question"]).split())
    return plain(text[: text.index("?") + 1] if "?" in text else text)


def _facts(study: Study) -> str:
    planned = len(study.records) + len(study.missing)
    machines = dict.fromkeys(f"{m['cpu']}, {m['system']}" for m in (r.about["machine"] for r in study.records))
    minutes = sum(record.minutes for record in study.records)
    where = f" on {plain('; '.join(machines))}" if machines else ""
    runs = f"{len(study.records)} of {planned} runs, {minutes:.0f} minutes of one core"
    return f"{runs}{where}; plan `{study.plan.sha256[:12]}`."


def _readers(name: str, notebooks: Mapping[str, Notebook]) -> str:
    """Return a sentence with links to the chapters whose code names a study."""
    quoted = re.compile(rf"""["'/]{name}["'/]""")
    links = [
        chapter_heading(chapter, notebook)[0]
        for chapter, notebook in notebooks.items()
        if any(cell.cell_type == "code" and quoted.search(cell.source) for cell in notebook.cells)
    ]
    return f"Read in chapter{'s' * (len(links) != 1)} {', '.join(links)}." if links else "No chapter reads it."

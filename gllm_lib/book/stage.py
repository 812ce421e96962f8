"""Lay out `build/site/`: a complete Quarto project of executed notebooks, inline values filled in, status computed.

Both renderers, the tests and the downloads read this folder; nothing here executes anything.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import nbformat
import yaml
from nbformat import v4

from gllm_lib import checks
from gllm_lib.book import tables
from gllm_lib.book.markdown import plain, symbols
from gllm_lib.book.project import (
    BookError,
    Notebook,
    Project,
    canonical,
    cell_label,
    fill_inline,
    parameters,
    read_notebook,
)
from gllm_lib.book.run import Run, evidence_by_claim
from gllm_lib.proofs.claims import ClaimError, Declared, Registry, divs
from gllm_lib.proofs.status import Status, statuses

NOT_EXECUTED = (
    "::: {.callout-warning}\nNot executed for this preview: no outputs, and every claim is merely stated.\n:::\n"
)


def stage(
    project: Project,
    runs: Mapping[str, Run],
    registry: Registry,
    profile: str,
    notebooks: Mapping[str, Notebook] | None = None,
) -> Path:
    """Write the site folder for these runs and return it; chapters without a run appear as not executed.

    `notebooks` are the chapters as they were when executed, if they are at hand. The folder is built beside and
    exchanged at the end, so that an error leaves the previous one in place.
    """
    site, fresh = project.build("site"), project.build("site.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    evidence = evidence_by_claim(runs)
    computed = statuses(registry, evidence)
    anchors = check_anchors(registry.declared)
    links = links_to_checks(registry, anchors)
    for page in project.pages:
        source = project.root / page
        if page.endswith(".ipynb"):
            notebook = (notebooks or {}).get(source.stem) or read_notebook(source)
            text = staged(source.stem, notebook, runs.get(source.stem), computed, evidence, anchors, links)
            _for_download(fresh, source.stem, canonical(notebook), text if source.stem in runs else "")
        else:
            text = filled(project, page, source.read_text(encoding="utf-8"), runs, registry, profile)
        checks.write_text(fresh / page, text)
    _copy_rest(project, fresh)
    checks.exchange(fresh, site)
    return site


def staged(
    chapter: str,
    notebook: Notebook,
    run: Run | None,
    computed: Mapping[str, Status],
    evidence: Mapping[str, list[dict[str, Any]]],
    anchors: Mapping[tuple[str, int], str],
    links: Mapping[str, str],
) -> str:
    """Return the JSON of one executed notebook: outputs, inline values and a status under each claim."""
    notebook = copy.deepcopy(notebook)
    outputs, inline = iter(run.outputs if run else ()), iter(run.inline if run else ())
    count = 0
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type == "code":
            cell.id = anchors.get((chapter, index), cell.id)  # both renderers make it the address of the cell
            cell.outputs = _outputs(cell, next(outputs)) if run else []
            count += 1
            cell.execution_count = count if run else None
            _require_output(f"{chapter}, cell {index + 1}", cell, run)
        elif cell.cell_type == "markdown":
            fill = (lambda _: next(inline)) if run else (lambda name: f"`{name}`")
            cell.source = with_status(fill_inline(cell.source, fill), computed, evidence, links)
    if run:
        notebook.metadata["gllm"] = {"profile": run.profile, "python": run.facts["versions"]["python"], **run.facts}
        _show_overrides(notebook, chapter, run.profile)
    else:
        notebook.cells.insert(2, v4.new_markdown_cell(NOT_EXECUTED, id="not-executed"))
    return str(nbformat.writes(notebook, version=4)) + "\n"


def _outputs(cell: Any, outputs: tuple[Mapping[str, Any], ...]) -> list[Any]:
    """Return outputs as notebook nodes, of a figure cell without the text of its last expression."""
    nodes = [nbformat.from_dict(dict(output)) for output in outputs]
    if cell_label(cell.source).startswith("fig-"):
        nodes = [n for n in nodes if set(n.get("data", {"text": ""})) != {"text/plain"}]
    return nodes


def _require_output(where: str, cell: Any, run: Run | None) -> None:
    """A labelled figure or table cell that displays nothing would leave a hole in the page."""
    label = cell_label(cell.source)
    if run and label and not any(output.output_type != "error" for output in cell.outputs):
        raise BookError(f"{where}: {label} displayed nothing; end the cell with its figure or table")


def _show_overrides(notebook: Notebook, chapter: str, profile: str) -> None:
    where, overrides = parameters(chapter, notebook, profile)
    if overrides:
        text = "\n".join(f"{name} = {value!r}" for name, value in overrides.items())
        cell = v4.new_code_cell(f"# {profile} size\n{text}", id="overrides", metadata={"tags": ["injected-parameters"]})
        notebook.cells.insert(where + 1, cell)


def with_status(
    markdown: str,
    computed: Mapping[str, Status],
    evidence: Mapping[str, list[dict[str, Any]]],
    links: Mapping[str, str],
) -> str:
    """Return a markdown cell with a status div after each claim block that it holds, links to its checks included."""
    if ":::" not in markdown:
        return markdown
    lines = markdown.split("\n")
    for div in reversed(divs(markdown)):
        if div.id in computed:
            block = status_block(div.id, computed[div.id], evidence.get(div.id, []), links.get(div.id, ""))
            lines.insert(div.closes + 1, "\n" + block)
    return "\n".join(lines)


def status_block(label: str, status: Status, records: list[dict[str, Any]], code: str = "") -> str:
    """Return the status div of one claim: the word, why, how much evidence there is, and the way to its code."""
    if status.word in ("defined", "assumed") and not records:
        return ""
    checks_run = f"{len(records)} check{'s' * (len(records) != 1)}" if records else "no check"
    rejected = sum(record["mutants_rejected"] for record in records)
    mutants = f"{rejected} mutant{'s' * (rejected != 1)} rejected"
    counted = "" if status.word == "open" else f"; {checks_run} run, {mutants}"
    because = plain(status.because) if status.weakest else symbols(status.because)
    if status.weakest:  # a reference, which both renderers name and link
        because = "@" + because
    line = f"**{status}**: {because}{counted}."
    code = f"\n[Code: {code}]{{.checks}}\n" if code else ""
    return f'::: {{.status .{status.word} claim="{label}"}}\n{line}\n{code}:::\n'


def check_anchors(declared: Iterable[Declared]) -> dict[tuple[str, int], str]:
    """Return the identifier of each cell that holds checks, by chapter and cell: `check-` and the name of its first.

    A second cell of the chapter whose first check has that name gets the number of the cell after it.
    """
    anchors: dict[tuple[str, int], str] = {}
    taken: set[tuple[str, str]] = set()
    for check in declared:
        place, name = (check.chapter, check.cell), f"check-{check.name}"[:58]  # a notebook allows 64 characters
        if place not in anchors:
            anchors[place] = f"{name}-{check.cell}" if (check.chapter, name) in taken else name
            taken.add((check.chapter, name))
    return anchors


def links_to_checks(registry: Registry, anchors: Mapping[tuple[str, int], str]) -> dict[str, str]:
    """Return, by claim, links to the cells that hold its checks: one per check, with its kind and its function."""
    links = {}
    for label, declared in registry.evidence_of.items():
        home = registry.claims[label].chapter
        pages = ["" if check.chapter == home else f"{check.chapter}.ipynb" for check in declared]
        links[label] = ", ".join(
            f"{check.kind} [`{check.name}`]({page}#{anchors[check.chapter, check.cell]}){{.check}}"
            for page, check in zip(pages, declared, strict=True)
        )
    return links


def filled(project: Project, page: str, text: str, runs: Mapping[str, Run], registry: Registry, profile: str) -> str:
    """Return a .qmd page whose `::: {.generated what="..."}` blocks hold what the build knows."""
    lines = text.split("\n")
    try:
        blocks = [div for div in divs(text, page) if "generated" in div.classes]
    except ClaimError as error:
        raise BookError(str(error)) from error
    for div in reversed(blocks):
        made = tables.table(div.attributes.get("what", ""), project, runs, registry, profile, where=page)
        lines[div.opens : div.closes + 1] = ["", made, ""]
    return "\n".join(lines)


def _for_download(fresh: Path, chapter: str, clean: str, executed: str) -> None:
    """Lay out what a page offers: the notebook as it is in the repository and, if it was executed, with its outputs."""
    checks.write_text(fresh / "chapters" / "downloads" / f"{chapter}.ipynb", clean)
    if executed:
        checks.write_text(fresh / "chapters" / "downloads" / f"{chapter}-executed.ipynb", executed)


def _copy_rest(project: Project, fresh: Path) -> None:
    """Copy the bibliography, figures and style, and the configuration for pages whose cells have run."""
    config = copy.deepcopy(dict(project.config))
    config["execute"] = {"enabled": False}
    config["project"] = {**config.get("project", {}), "resources": ["chapters/downloads/*.ipynb"]}
    config["book"].pop("body-header", None)  # it says that no status was computed, which here is not so
    checks.write_text(fresh / "_quarto.yml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    names = config.get("bibliography") or []
    for name in [names] if isinstance(names, str) else names:
        if not (project.root / name).is_file():
            raise BookError(f"_quarto.yml names the bibliography {name}, which does not exist; add it or drop the line")
        checks.write_bytes(fresh / name, (project.root / name).read_bytes())
    for pattern in ("figures/*.svg", "figures/*.png", "chapters/*.scss"):
        for source in sorted(project.root.glob(pattern)):
            checks.write_bytes(fresh / source.relative_to(project.root), source.read_bytes())

"""The staged folder through Quarto: what the built-in renderer adds to a page, then the render, then what got lost."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import nbformat
from nbformat import v4

from gllm_lib.book.html.layout import facts_line
from gllm_lib.book.html.pages import imported, raw_html
from gllm_lib.book.project import BookError, Notebook, cell_label
from gllm_lib.checks import exchange, write_text

_COMPLAINTS = ("Unable to resolve crossref", "quarto-unresolved-ref", "not found", "found in the document: :::")


def render_with_quarto(command: str, site: Path, out: Path) -> None:
    """Render a copy of the staged folder with Quarto, then exchange the book; a failure leaves the previous book.

    Raises BookError when Quarto fails, loses a labelled figure or table, or warns of a reference or a block.
    """
    dressed = site.with_name(f"{site.name}.quarto")
    shutil.rmtree(dressed, ignore_errors=True)
    shutil.copytree(site, dressed)
    for path in sorted(dressed.glob("chapters/*.ipynb")):
        write_text(path, _dressed(path))
    done = subprocess.run([command, "render", str(dressed), "--no-execute"], capture_output=True, text=True)
    told = done.stdout + done.stderr
    if done.returncode:
        raise BookError(f"quarto render failed:\n{told[-3000:]}")
    if lost := _lost_labels(dressed):
        raise BookError(
            f"quarto shows no {', no '.join(lost)}: it wrote no such page, or the caption or alt text is a block (>-, "
            "|), which it does not read; use plain or quoted text, over several lines if need be"
        )
    for sign in _COMPLAINTS:
        lines = [line for line in told.splitlines() if sign in line]
        if lines:
            raise BookError(f"quarto: {lines[0].strip()}; mend the reference or the block")
    exchange(dressed / "_book", out)


def _dressed(path: Path) -> str:
    """Return a staged notebook with its import cells folded and, at its end, its facts and downloads.

    Outputs in HTML become markdown: for HTML Quarto would have the page ask another host for scripts.
    """
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "text/html" in output.get("data", {}):
                output.data = {"text/markdown": raw_html("".join(output.data["text/html"]))}
        if cell.cell_type == "code" and not cell.outputs and (names := imported(cell.source)):
            cell.source = f"#| code-fold: true\n#| code-summary: Imports from {', '.join(names)}\n{cell.source}"
    notebook.cells.append(v4.new_markdown_cell(_colophon(path, notebook), id="colophon"))
    return str(nbformat.writes(notebook, version=4)) + "\n"


def _colophon(path: Path, notebook: Notebook) -> str:
    """Return the block that closes a chapter: when and where it was executed, and its notebooks to download."""
    names = {"with outputs": f"{path.stem}-executed.ipynb", "without": f"{path.stem}.ipynb"}
    links = [
        f'[{words}](downloads/{name}){{download=""}}'
        for words, name in names.items()
        if (path.parent / "downloads" / name).is_file()
    ]
    offered = f"Download this chapter as a notebook: {', '.join(links)}." if links else ""
    return f"::: {{.colophon}}\n{facts_line(notebook.metadata.get('gllm', {}))}\n\n{offered}\n:::\n"


def _lost_labels(site: Path) -> list[str]:
    """Return the labelled figures and tables that the pages do not show as such; Quarto does not warn of them."""
    lost = []
    for path in sorted(site.glob("chapters/*.ipynb")):
        cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code" and cell.outputs]
        labels = [label for cell in cells if (label := cell_label(cell.source))]
        page = site / "_book" / "chapters" / f"{path.stem}.html"
        text = page.read_text(encoding="utf-8") if labels and page.exists() else ""
        lost += [f"{label} in {path.stem}" for label in labels if f'id="{label}"' not in text]
    return lost

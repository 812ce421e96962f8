"""The staged folder through Quarto: what the built-in renderer adds to a page, then the render, then what got lost."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import nbformat
from nbformat import v4

from gllm_lib.book.html.fonts import math_font
from gllm_lib.book.html.layout import facts_line
from gllm_lib.book.html.mathml import mend
from gllm_lib.book.html.pages import imported, raw_html
from gllm_lib.book.html.render import ASSETS
from gllm_lib.book.project import BookError, Notebook, cell_label
from gllm_lib.checks import exchange, write_bytes, write_text
from gllm_lib.proofs.claims import Div, divs

_COMPLAINTS = ("Unable to resolve crossref", "quarto-unresolved-ref", "not found", "found in the document: :::")


def render_with_quarto(command: str, site: Path, out: Path) -> None:
    """Render a copy of the staged folder with Quarto, then exchange the book; a failure leaves the previous book.

    Raises BookError when Quarto fails, loses a labelled figure or table, or warns of a reference or a block.
    """
    dressed = site.with_name(f"{site.name}.quarto")
    shutil.rmtree(dressed, ignore_errors=True)
    shutil.copytree(site, dressed)
    notebooks = {path: nbformat.read(path, as_version=4) for path in sorted(dressed.glob("chapters/*.ipynb"))}
    corrections: dict[str, list[str]] = {}
    for claim in (claim for notebook in notebooks.values() for claim in _claims(notebook)):
        for label in claim.attributes.get("corrects", "").split():
            corrections.setdefault(label, []).append(claim.id)
    graph = next((page.name for page in dressed.glob("chapters/*claim-graph.qmd")), "")
    for path, notebook in notebooks.items():
        write_text(path, _dressed(path, notebook, corrections, graph))
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
    _finish(dressed / "_book")
    exchange(dressed / "_book", out)


def _finish(book: Path) -> None:
    """Mend the formulas of a folder of pages, and give them their font and the script that folds or scrolls them."""
    pages = {page: mend(page.read_text(encoding="utf-8")) for page in sorted(book.rglob("*.html"))}
    write_bytes(book / "math.woff", math_font(pages.values()))
    script = f"<script>{{\n{(ASSETS / 'scroll.js').read_text(encoding='utf-8')}}}</script>\n"
    for page, content in pages.items():
        font = f"{'../' * len(page.parent.relative_to(book).parts)}math.woff"
        style = f'<style>@font-face {{ font-family: "Book Mathematics"; src: url("{font}"); }}</style>\n'
        write_text(page, content.replace("</head>", f"{style}</head>", 1).replace("</body>", f"{script}</body>"))


def _claims(notebook: Notebook) -> Iterator[Div]:
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and ":::" in cell.source:
            yield from (div for div in divs(cell.source) if "claim" in div.classes)


def _dressed(path: Path, notebook: Notebook, corrections: Mapping[str, list[str]], graph: str) -> str:
    """Return a staged notebook with what ties its claims to others, its imports folded, its facts and downloads.

    Outputs in HTML become markdown: for HTML Quarto would have the page ask another host for scripts.
    """
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and ":::" in cell.source:
            cell.source = _related(cell.source, corrections, graph)
        for output in cell.get("outputs", []):
            if "text/html" in output.get("data", {}):
                output.data = {"text/markdown": raw_html("".join(output.data["text/html"]))}
        if cell.cell_type == "code" and not cell.outputs and (names := imported(cell.source)):
            cell.source = f"#| code-fold: true\n#| code-summary: Imports from {', '.join(names)}\n{cell.source}"
    notebook.cells.append(v4.new_markdown_cell(_colophon(path, notebook), id="colophon"))
    return str(nbformat.writes(notebook, version=4)) + "\n"


def _related(markdown: str, corrections: Mapping[str, list[str]], graph: str) -> str:
    """Return a markdown cell with the claims that each claim corrects, is corrected by and uses: in its status, if any.

    A claim that uses others links to its place on the page of the claim graph, if the book has one.
    """
    lines, blocks = markdown.split("\n"), divs(markdown)
    statuses = {div.attributes.get("claim"): div for div in blocks if "status" in div.classes}
    for div in reversed([div for div in blocks if "claim" in div.classes]):
        corrects, uses = (div.attributes.get(key, "").split() for key in ("corrects", "uses"))
        ties = {"Corrects": corrects, "Corrected by": corrections.get(div.id, []), "Uses": uses}
        told = [f"{verb} {', '.join(f'@{label}' for label in labels)}" for verb, labels in ties.items() if labels]
        if graph and uses:
            told.append(f"[What it rests on]({graph}#on-{div.id}){{.graph}}")
        if told:
            place = statuses[div.id].closes if div.id in statuses else div.closes + 1
            lines[place:place] = ["", f'::: {{.relations claim="{div.id}"}}', "\n\n".join(told), ":::", ""]
    return "\n".join(lines)


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

"""The book as a folder: where its root is, which chapters it has and in what order, and how a notebook is read."""

from __future__ import annotations

import ast
import difflib
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import yaml

from gllm_lib.book.syntax import tree
from gllm_lib.checks import FileError, GllmError
from gllm_lib.proofs.claims import Claim, Registry, outside_code, registry

PROFILES = ("smoke", "default", "full")
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
_LABEL = re.compile(r"^#\|\s*label:\s*(\S+)", re.MULTILINE)
INLINE = re.compile(r"(?P<code>`{2,})(?!`).+?(?<!`)(?P=code)(?!`)|`\{python\}\s*(?P<name>[^`]*?)\s*`")

Notebook = Any  # nbformat.NotebookNode, which has no type stubs


class BookError(GllmError, ValueError):
    """A book, chapter or cell that cannot be read, executed or rendered; the message names it."""


@dataclass(frozen=True)
class Project:
    """The root folder of the book and the pages that `_quarto.yml` lists, in order, as paths relative to the root."""

    root: Path
    pages: tuple[str, ...]
    config: Mapping[str, Any]

    @property
    def notebooks(self) -> tuple[str, ...]:
        """Return the names of the chapters that are notebooks, such as `04-sample-complexity`."""
        return tuple(Path(page).stem for page in self.pages if page.endswith(".ipynb"))

    def notebook_path(self, name: str) -> Path:
        """Return the path of a chapter's source notebook."""
        return self.root / "chapters" / f"{name}.ipynb"

    def build(self, *parts: str) -> Path:
        """Return a path below the folder that git ignores."""
        return self.root.joinpath("build", *parts)

    def find(self, name: str) -> str:
        """Return the full name of the chapter that `name` means: itself, its number, or a unique beginning."""
        stem = Path(name).stem
        hits = [n for n in self.notebooks if n == stem or chapter_number(n) == stem.lstrip("0")]
        hits = hits or [n for n in self.notebooks if n.startswith(stem)]
        if len(hits) != 1:
            raise BookError(f"no single chapter is meant by {name!r}; the chapters are {', '.join(self.notebooks)}")
        return hits[0]


def open_project(start: str | Path = ".") -> Project:
    """Return the project whose root is `start` or a folder above it; raises BookError if there is none."""
    here = Path(start).resolve()
    for folder in (here, *here.parents):
        if (folder / "_quarto.yml").is_file() and (folder / "chapters").is_dir():
            return _read_project(folder)
    raise BookError(f"{here} is not inside the book: no folder above it holds _quarto.yml and chapters/; go into it")


def _read_project(root: Path) -> Project:
    try:
        config = yaml.safe_load((root / "_quarto.yml").read_text(encoding="utf-8"))
        book = config["book"]
        pages = tuple(_pages([*book["chapters"], *(book.get("appendices") or [])]))
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise BookError(f"_quarto.yml does not list the book's chapters under book: chapters: ({error})") from error
    missing = [page for page in pages if not (root / page).is_file()]
    if missing:
        raise BookError(f"_quarto.yml lists {missing[0]}, which does not exist; add the file or remove the line")
    return Project(root, pages, config)


def _pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            if str(entry.get("part", "")).endswith((".qmd", ".ipynb")):
                yield entry["part"]
            yield from _pages(entry.get("chapters", []))


def read_notebook(path: Path) -> Notebook:
    """Return a notebook in format 4.5; raises FileError or BookError naming the file and what to mend."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path.name} is not UTF-8 (byte {error.start}); save it again as UTF-8") from error
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from error
    try:
        notebook = parsed(path.name, text)
        ids = [cell.get("id") for cell in json.loads(text)["cells"]]
    except json.JSONDecodeError as error:
        raise BookError(f"{path.name} is not a notebook: its JSON breaks off ({str(error)[:120]})") from error
    except (nbformat.ValidationError, KeyError, AttributeError, TypeError, ValueError) as error:
        if isinstance(error, BookError):
            raise
        raise BookError(f"{path.name} is not a valid notebook: {str(error).splitlines()[0]}") from error
    spec = notebook.metadata.get("kernelspec", {})
    missing = [key for key in KERNELSPEC if not spec.get(key)]
    if missing or spec["language"] != "python":
        told = f"no kernelspec {', '.join(missing)}" if missing else f"a kernelspec for {spec['language']}, not python,"
        raise BookError(f"{path.name} has {told} in its metadata; 'gllm check --fix' writes it")
    if None in ids or len(set(ids)) < len(ids):
        raise BookError(f"{path.name} has cells without an id of their own; 'gllm check --fix' writes them")
    return notebook


def parsed(name: str, text: str) -> Notebook:
    """Return the notebook that a JSON text holds; raises BookError for other JSON and for a pasted image."""
    written = json.loads(text)
    if not isinstance(written, dict) or not isinstance(written.get("cells"), list):
        raise BookError(f"{name} is JSON but not a notebook: it has no list of cells; restore it, or save it anew")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nbformat warns of missing and repeated ids and makes up new ones
        notebook = nbformat.convert(nbformat.reader.reads(text), 4)
        nbformat.validate(notebook)
    for index, cell in enumerate(notebook.cells):
        cell.source = cell.source.replace("\r\n", "\n")
        if cell.get("attachments"):
            raise BookError(f"{name}, cell {index + 1}: holds a pasted image; save it under figures/ and link to it")
    return notebook


def canonical(notebook: Notebook) -> str:
    """Return the one JSON text of a source notebook: no outputs, no counts, no editor metadata, sorted keys."""
    clean = nbformat.v4.new_notebook(metadata={"kernelspec": KERNELSPEC, "language_info": {"name": "python"}})
    for cell in notebook.cells:
        kept: dict[str, Any] = {"source": cell.source} | ({"id": cell.id} if cell.get("id") else {})
        if cell.metadata.get("tags"):
            kept["metadata"] = {"tags": list(cell.metadata["tags"])}
        make = {"code": "new_code_cell", "markdown": "new_markdown_cell", "raw": "new_raw_cell"}[cell.cell_type]
        clean.cells.append(getattr(nbformat.v4, make)(**kept))
    return nbformat.writes(clean, version=4) + "\n"


def read_notebooks(project: Project) -> dict[str, Notebook]:
    """Return all chapters that are notebooks, by name, in the order of the book."""
    return {name: read_notebook(project.notebook_path(name)) for name in project.notebooks}


def read_registry(project: Project, notebooks: Mapping[str, Notebook] | None = None) -> Registry:
    """Return the static registry of all chapters; `notebooks` may hold those already read."""
    return registry({name: notebook.cells for name, notebook in (notebooks or read_notebooks(project)).items()})


def front_matter(name: str, notebook: Notebook) -> dict[str, Any]:
    """Return the YAML block of a chapter's first raw cell; raises BookError if it is not one or has unknown keys."""
    first = notebook.cells[0] if notebook.cells else None
    if first is None or first.cell_type != "raw" or not first.source.startswith("---"):
        raise BookError(f"{name}: its first cell is not a raw cell with '---', 'sizes:' and '---'; add one")
    try:
        matter = yaml.safe_load(first.source.strip().strip("-")) or {}
    except yaml.YAMLError as error:
        raise BookError(f"{name}, cell 1: the YAML block does not parse: {error}") from error
    strange = set(matter) - {"sizes"} if isinstance(matter, dict) else {"(not a mapping)"}
    if strange:
        raise BookError(f"{name}, cell 1: unknown key {sorted(strange)[0]!r}; the block holds 'sizes' only")
    return matter


def parameters(name: str, notebook: Notebook, profile: str) -> tuple[int, dict[str, Any]]:
    """Return the index of the parameters cell and what `profile` assigns instead ({} at default).

    Raises BookError if there is not exactly one such cell or an override names something it does not assign.
    """
    code = [(i, cell) for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    tagged = [i for i, cell in code if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        raise BookError(f"{name}: {len(tagged)} code cells carry the tag 'parameters'; one holds all sizes and seeds")
    sizes = front_matter(name, notebook).get("sizes") or {}
    if not isinstance(sizes, dict) or not all(isinstance(given or {}, dict) for given in sizes.values()):
        raise BookError(f"{name}, cell 1: sizes hold names and values, as in smoke: {{cases: 25}}")
    strange = sorted(set(map(str, sizes)) - set(PROFILES))
    if strange:
        raise BookError(f"{name}: sizes for {strange[0]!r}; the sizes are {', '.join(PROFILES)}")
    overrides = sizes.get(profile) or {}
    defaults = assigned(notebook.cells[tagged[0]].source)
    for key, value in overrides.items():
        if key not in defaults:
            raise BookError(f"{name}: sizes.{profile} sets {key}, which the parameters cell does not assign")
        default = defaults[key]
        if isinstance(value, str) and isinstance(default, ast.Constant) and not isinstance(default.value, str):
            raise BookError(f"{name}: sizes.{profile} sets {key} to the text {value!r}; YAML reads 1e-3 so, 1.0e-3 not")
    return tagged[0], overrides


def assigned(source: str) -> dict[str, ast.expr | None]:
    """Return the names that a cell assigns at its top level, each with the value it gets."""
    found: dict[str, ast.expr | None] = {}
    for node in tree(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                names = [name.id for name in ast.walk(target) if isinstance(name, ast.Name)]
                found |= dict.fromkeys(names, node.value if isinstance(target, ast.Name) else None)
    return found


def cell_label(source: str) -> str:
    """Return the label that the options of a code cell give it, such as `fig-gain`, or nothing."""
    found = _LABEL.search(source)
    return found[1] if found else ""


def chapter_number(chapter: str) -> str:
    """Return "4b" for `04b-steps-errors-levels`."""
    return chapter.split("-")[0].lstrip("0")


def chapter_heading(chapter: str, notebook: Notebook) -> tuple[str, str]:
    """Return a reference to a chapter, which each renderer shows as its own number of it, and the chapter's title."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    heading = re.search(r"^# (.+?)(?: \{(?:#(sec-[\w:.-]*\w))?.*\})?$", text, re.MULTILINE)
    label = heading[2] if heading else ""
    number = f"[-@{label}]" if label else f"[{chapter_number(chapter)}]({chapter}.ipynb)"
    return number, heading[1] if heading else chapter


def stated(registry: Registry, label: str) -> Claim:
    """Return the claim with this label; raises BookError, naming a label like it, if no chapter states one."""
    if label not in registry.claims:
        near = difflib.get_close_matches(label, registry.claims, n=1)
        hint = f"did you mean {near[0]}?" if near else "'gllm claims' lists the labels"
        raise BookError(f"no chapter states {label or 'a claim without a label'}; {hint}")
    return registry.claims[label]


def fill_inline(markdown: str, fill: Callable[[str], str]) -> str:
    """Return a markdown text with each inline value replaced by `fill(name)`, those shown as code left alone."""
    lines = markdown.split("\n")
    for number, line in outside_code(lines):
        lines[number] = INLINE.sub(lambda match: match[0] if match["code"] else fill(match["name"]), line)
    return "\n".join(lines)


def inline_names(where: str, markdown: str) -> list[str]:
    """Return the names of a markdown cell's inline values; raises BookError for anything but a plain name."""
    names: list[str] = []

    def keep(name: str) -> str:
        names.append(name)
        return name

    fill_inline(markdown, keep)
    for name in names:
        if not name.isidentifier():
            raise BookError(f"{where}: the inline value {name!r} is not a name; name a string assigned in a cell above")
    return names

"""The reference of the library, read from its docstrings without importing it, and which chapters use what of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import griffe

import gllm_lib
from gllm_lib.book.markdown import plain
from gllm_lib.book.project import BookError, Notebook, chapter_heading

ROOMS = (
    "grading", "models", "optim", "gauge", "training", "comparison", "analysis", "corpora", "proofs", "studies", "book"
)  # fmt: skip
PARTLY = {"studies": ("plan", "run"), "book": ("figures",)}  # rooms of which readers import some modules only
WIDTH = 72  # a signature longer than this has a line per parameter
Object = Any  # griffe.Object: a function or a class


@dataclass(frozen=True)
class Library:
    """The package as griffe reads it."""

    package: Any

    def modules(self, room: str) -> list[tuple[str, Any]]:
        """Return the modules of a room that readers import, by name; a module that is a room stands for itself."""
        members = self.package.modules[room].modules
        return [(name, members[name]) for name in PARTLY.get(room, sorted(members))]

    def exported(self, room: str) -> dict[str, str]:
        """Return what `from gllm_lib.room import name` gives, as the name by path of definition."""
        names = map(str, self.package.modules[room].exports or ())
        return {self.definition(f"gllm_lib.{room}", name): name for name in names}

    @cached_property
    def objects(self) -> dict[str, Object]:
        """Return the public functions and classes of all rooms, by path of definition."""
        return {
            member.path: member
            for room in ROOMS
            for _, module in self.modules(room)
            for name, member in module.members.items()
            if not name.startswith("_") and not member.is_alias and (member.is_function or member.is_class)
        }

    @cached_property
    def anchors(self) -> dict[str, str]:
        """Return the anchor of each object, `lib-room-name`, or with the module where two share a name."""
        names = [(path, path.split(".")) for path in self.objects]
        short = [f"lib-{parts[1]}-{parts[-1]}" for _, parts in names]
        return {
            path: one if short.count(one) == 1 else f"lib-{parts[1]}-{parts[-2]}-{parts[-1]}"
            for (path, parts), one in zip(names, short, strict=True)
        }

    def definition(self, module: str, name: str) -> str:
        """Return the path at which what `from module import name` gives is defined, or nothing."""
        try:
            place = self.package[module.removeprefix("gllm_lib.")] if "." in module else self.package
            path = place.imports.get(name, f"{module}.{name}")  # a room may export a function named as its module
            found = self.package[path.removeprefix("gllm_lib.")]
            return str((found.final_target if found.is_alias else found).path)
        except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
            return ""

    def named(self, room: str, name: str) -> str:
        """Return the path of the one object of a room with this name, exported or not, or nothing."""
        exported = [path for path, known in self.exported(room).items() if known == name] if room in ROOMS else []
        found = [path for path in self.objects if path.split(".")[1] == room and path.rpartition(".")[2] == name]
        found = [path for path in exported if path in found] or found
        return found[0] if len(found) == 1 else ""

    def takes(self, path: str, argument: str) -> bool:
        """Tell whether a function has this argument, or a class this field or argument."""
        item = self.objects[path]
        return argument in item.members or argument in [parameter.name for parameter in item.parameters]


@cache
def read_library(folder: Path | None = None) -> Library:
    """Return the library in a folder that holds `gllm_lib/`, by default the one that runs; nothing is imported."""
    place = folder or Path(gllm_lib.__file__).parents[1]
    return Library(griffe.load("gllm_lib", search_paths=[place], try_relative_path=False))


@dataclass
class Uses:
    """The chapters that use an object of the library, and the claims whose check has it as its ingredient, by path.

    `numbers` are references to the chapters, by name.
    """

    numbers: Mapping[str, str] = field(default_factory=dict)
    chapters: dict[str, list[str]] = field(default_factory=dict)
    claims: dict[str, list[str]] = field(default_factory=dict)


def uses(library: Library, notebooks: Mapping[str, Notebook]) -> Uses:
    """Return who uses what, read from the code cells of the chapters."""
    found = Uses({name: chapter_heading(name, notebook)[0] for name, notebook in notebooks.items()})
    for chapter, notebook in notebooks.items():
        bound: dict[str, str] = {}  # name in the chapter -> dotted path in the library
        for cell in notebook.cells:
            if cell.cell_type != "code":
                continue
            tree = ast.parse(cell.source)
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gllm_lib"):
                    for alias in node.names:
                        path = library.definition(str(node.module), alias.name)
                        bound[alias.asname or alias.name] = path or f"{node.module}.{alias.name}"
            for path in _named(tree, bound):
                _note(found.chapters, path, chapter)
            for claim, defaults in _ingredients(tree):
                for path in (path for default in defaults for path in _named(default, bound)):
                    _note(found.claims, path, claim)
    return found


def _note(book: dict[str, list[str]], path: str, what: str) -> None:
    """Add a chapter or a claim to what uses an object, once."""
    if what not in book.setdefault(path, []):
        book[path].append(what)


def _named(tree: ast.AST, bound: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths of what a piece of code names: what it imported, or what it takes from an imported module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in bound:
            yield bound[node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
            yield f"{bound[node.value.id]}.{node.attr}"


def _ingredients(tree: ast.AST) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yield the claim of each check in a cell and the defaults of its arguments: what the check is about."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        defaults = [*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None)]
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "evidence" and call.args:
                yield str(ast.literal_eval(call.args[0])), defaults


def reference(library: Library, notebooks: Mapping[str, Notebook]) -> str:
    """Return the reference of the library as markdown, room by room; raises BookError for a missing docstring."""
    used = uses(library, notebooks)
    return "\n\n".join(part for room in ROOMS for part in _room(library, used, room))


def _room(library: Library, used: Uses, room: str) -> Iterator[str]:
    exported = library.exported(room)
    package = library.package.modules[room]
    yield f"## {room} {{#lib-{room}}}"
    yield words(_docstring(package))
    for name, module in library.modules(room):
        mine = [path for path in library.objects if path.rpartition(".")[0] == module.path]
        constants = [path for path in exported if path.rpartition(".")[0] == module.path and path not in mine]
        if not mine and not constants:
            continue
        yield f"### {plain(f'{room}.{name}')} {{#lib-{room}-module-{name} .unnumbered}}"
        yield words(_docstring(module), library, module.path)
        if constants:
            told = ", ".join(f"`{path.rpartition('.')[2]}`" for path in constants)
            yield f"Constants, imported from `gllm_lib.{room}`: {told}."
        for path in mine:
            yield _entry(library, used, path, f"gllm_lib.{room}" if path in exported else module.path)


def _entry(library: Library, used: Uses, path: str, origin: str) -> str:
    """Return the entry of one function or class: signature, docstring, methods, origin and users."""
    item = library.objects[path]
    parts = [f"#### `{item.name}` {{#{library.anchors[path]}}}"]
    shown = _fields(item) if item.is_class else _signature(item)
    if shown:
        parts.append(f"```python\n{shown}\n```")
    parts.append(words(_docstring(item), library, item.parent.path))
    methods = [m for name, m in item.members.items() if not name.startswith("_") and m.docstring]
    lines = [f"- `{_told(method)}`: {words(method.docstring.value, library, item.parent.path)}" for method in methods]
    if lines:
        parts.append("\n".join(" ".join(line.split()) for line in lines))
    parts.append(_facts(used, path, origin))
    return "\n\n".join(parts)


def _facts(used: Uses, path: str, origin: str) -> str:
    """Return the line on where an object is imported from, which chapters use it and which claims check it."""
    facts = [f"From `{origin}`."]
    chapters = used.chapters.get(path, [])
    if chapters:
        links = [used.numbers[name] for name in chapters]
        facts.append(f"Used in chapter{'s' * (len(links) > 1)} {', '.join(links)}.")
    if claims := used.claims.get(path):
        facts.append(f"Checked in {', '.join('@' + claim for claim in claims)}.")
    return f"::: {{.lib-facts}}\n{' '.join(facts)}\n:::"


def _docstring(item: Object) -> str:
    if not item.docstring or not item.docstring.value.strip():
        raise BookError(f"{item.path} has no docstring; say in one sentence what it returns or is")
    return str(item.docstring.value)


def _told(method: Object) -> str:
    """Return a method as it is called, or a property by its name."""
    return str(method.name) if method.is_attribute else " ".join(_signature(method).split())


def _signature(function: Object) -> str:
    """Return `name(parameters) -> type`, over several lines if it is long; without `self`."""
    line = re.sub(r"\((?:self|cls)(?:, |(?=\)))", "(", function.signature(), count=1)
    members = function.module.members
    line = re.sub(r"\b_[A-Z]\w*", lambda name: str(members[name[0]].value) if name[0] in members else name[0], line)
    if len(line) <= WIDTH:
        return str(line)
    head, _, rest = line.partition("(")
    inside, depth, start = [], 0, 0
    for place, mark in enumerate(rest):
        depth += (mark in "([{") - (mark in ")]}")
        if depth < 0 or (depth == 0 and mark == ","):
            inside.append(rest[start:place].strip())
            start = place + 1
        if depth < 0:
            return f"{head}(\n    " + ",\n    ".join(inside) + f"\n){rest[place + 1 :]}"
    return str(line)


def _fields(item: Object) -> str:
    """Return the fields of a class as its source has them, each with the comment beside it, or its constructor."""
    tree = ast.parse(re.sub(r"^\s+", "", "\n".join(item.lines), count=1)).body[0]
    assert isinstance(tree, ast.ClassDef)
    kept: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and not str(getattr(node.target, "id", "_")).startswith("_"):
            kept += [line.removeprefix("    ") for line in item.lines[node.lineno - 1 : node.end_lineno]]
    if kept or "__init__" not in item.members or item.members["__init__"].is_alias:
        return "\n".join(kept)
    return _signature(item.members["__init__"]).replace("__init__(", f"{item.name}(", 1)


def words(docstring: str, library: Library | None = None, module: str = "") -> str:
    """Return a docstring as markdown: code spans kept and linked, indented lines as code, `Raises` on its own line."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", docstring.strip("\n")):
        lines = paragraph.split("\n")
        if all(line.startswith("    ") for line in lines):
            parts.append("```python\n" + "\n".join(line.removeprefix("    ") for line in lines) + "\n```")
            continue
        if any(re.search(r"\S {3,}\S", line) for line in lines):  # a legend in columns
            parts.append("```text\n" + paragraph + "\n```")
            continue
        text = re.sub(r"\n(?!- )\s*", " ", paragraph)
        pieces = re.split(r"`([^`]+)`", text)
        pieces[::2] = [plain(piece) for piece in pieces[::2]]
        pieces[1::2] = [_span(piece, library, module) for piece in pieces[1::2]]
        parts.append(re.sub(r"(?<=[.:)]) (?=Raises [A-Z])", "\n\n", "".join(pieces)))
    return "\n\n".join(parts)


def _span(code: str, library: Library | None, module: str) -> str:
    """Return a code span, linked if it names an object of the same module or one that its room exports."""
    room = ".".join(module.split(".")[:2])
    for place in (module, room) if library and module and re.fullmatch(r"[\w.]+", code) else ():
        path = library.definition(place, code) if library else ""
        if library and path in library.anchors:
            return f"[`{code}`](#{library.anchors[path]})"
    return f"`{code}`"

"""The repository as a stranger finds it: its files, licences, names, sizes and floors."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import gllm_lib
from gllm_lib import cli
from gllm_lib.book.project import open_project
from gllm_lib.studies.run import FLOORS

ROOT = Path(__file__).resolve().parents[1]
FILES = {
    ".gitignore", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "LICENSE-text", "Makefile", "README.md",
    "_environment", "_quarto.yml", "environment.yml", "index.qmd", "pyproject.toml", "references.bib",
    "requirements.lock",
}  # fmt: skip
FOLDERS = {".ci", ".github", "chapters", "figures", "gllm_lib", "results", "tests"}
WANTED_FOLDERS = FOLDERS - {"figures", "results"}  # git keeps no empty folder
MODULES = sorted((ROOT / "gllm_lib").rglob("*.py"))
MODULE_LINES, MODULE_LIMIT, FUNCTION_LINES = 350, 450, 60
MACHINERY = {"book", "cli", "proofs"}  # what makes the book
# One room per subject of the book, a few modules per study: what readers import is the first number.
LINES = {"mathematics": 10_500, "studies": 4_500, "machinery": 8_200}
MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:root|tmp|work|home/[a-z]+|Users/[A-Za-z]+)/")
EXAMPLES = {"tests/book/test_lint.py"}  # gives the linter such a path to find
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


def tracked() -> list[Path]:
    """Return the files that git tracks and that are there."""
    told = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [ROOT / name for name in told.split("\0") if name and (ROOT / name).is_file()]


def texts() -> Iterator[tuple[str, str]]:
    """Yield the tracked text files, as name from the root and text."""
    for path in tracked():
        if path.suffix not in {".png", ".pdf", ".npz", ".safetensors", ".woff2"}:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def metadata() -> dict[str, object]:
    """Return the [project] table of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(name: str) -> str:
    """Return the text of a file at the root."""
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_root_holds_what_it_should_and_nothing_else():
    tops = {path.relative_to(ROOT).parts for path in tracked()}
    files = {parts[0] for parts in tops if len(parts) == 1}
    folders = {parts[0] for parts in tops if len(parts) > 1}
    assert files == FILES
    assert WANTED_FOLDERS <= folders <= FOLDERS


def test_the_licences_are_whole():
    assert metadata()["license"] == "MIT"
    assert metadata()["license-files"] == ["LICENSE", "LICENSE-text"]
    code, text = read("LICENSE"), read("LICENSE-text")
    assert code.startswith("MIT License\n\nCopyright (c) 2026 ")
    assert 'THE SOFTWARE IS PROVIDED "AS IS"' in code
    assert "Creative Commons Attribution 4.0 International Public License" in text
    for number in range(1, 9):
        assert f"\nSection {number} – " in text
    assert "https://creativecommons.org/licenses/by/4.0/legalcode" in text


def test_the_citation_has_its_keys_and_the_version_is_one():
    citation = yaml.safe_load(read("CITATION.cff"))
    assert {"cff-version", "message", "title", "authors", "version", "date-released", "license"} <= set(citation)
    assert citation["title"] == yaml.safe_load(read("_quarto.yml"))["book"]["title"] == "What a Training Run Sees"
    newest = re.search(r"^## (\S+) \((\S+)\)$", read("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert {citation["version"], metadata()["version"], newest[1]} == {gllm_lib.__version__}
    assert str(citation["date-released"]) == newest[2]


def test_readme_gives_two_commands_and_is_short():
    lines = read("README.md").splitlines()
    assert len(lines) <= 80
    assert any(line.startswith("make book ") for line in lines)
    assert any(line.startswith("make test ") for line in lines)
    assert ".venv/bin/gllm verify prp-fourth-root" in lines
    assert "_book/index.html" in read("README.md")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "index.qmd", "chapters/C-reproducibility.qmd"])
def test_every_command_that_a_page_tells_exists(name):
    text = read(name)
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    spoken = set(re.findall(r"`make ([a-z-]+)", text)) | set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE))
    assert spoken <= targets
    commands = set(re.findall(r"gllm ([a-z]+)", re.sub(r"import gllm_lib|gllm-book", "", text)))
    for command in sorted(commands):
        with pytest.raises(SystemExit) as end:
            cli.main([command, "--help"])
        assert end.value.code == 0, f"{name} tells of 'gllm {command}'"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_linked_file_is_there(name):
    for target in re.findall(r"\]\(([^)#]+)\)", read(name)):
        assert (ROOT / target).exists(), f"{name} links to {target}"


def test_quarto_lists_every_page_once():
    pages = open_project(ROOT).pages  # raises for a page that is missing
    there = {f"chapters/{p.name}" for p in (ROOT / "chapters").iterdir() if p.suffix in {".ipynb", ".qmd"}}
    assert len(pages) == len(set(pages))
    assert set(pages) == there | {"index.qmd"}
    numbered = [Path(page).stem for page in pages if page.endswith(".ipynb")]
    assert numbered == sorted(numbered)


def test_no_file_names_a_machine_or_work_left_undone():
    assert MACHINE_PATH.search("see /ho" + "me/ann/book")  # the patterns find what they are for
    assert UNFINISHED.search("# TO" + "DO: finish")
    found = []
    for name, text in texts():
        if name in EXAMPLES:
            continue
        for pattern in (MACHINE_PATH, UNFINISHED):
            found += [f"{name}:{text.count(chr(10), 0, hit.start()) + 1} {hit[0]}" for hit in pattern.finditer(text)]
    assert not found, "\n".join(found)


def test_no_file_is_large():
    large = [(path.name, path.stat().st_size) for path in tracked() if path.stat().st_size > 1_000_000]
    assert not large


def test_modules_and_the_library_stay_small():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    sums = dict.fromkeys(LINES, 0)
    for name, n in lengths.items():
        room = Path(name).parts[1]
        sums[room if room == "studies" else "machinery" if room in MACHINERY else "mathematics"] += n
    assert {part: n for part, n in sums.items() if n >= LINES[part]} == {}
    assert {name: n for name, n in lengths.items() if n > MODULE_LIMIT} == {}
    grown = {name: n for name, n in lengths.items() if n > MODULE_LINES}
    if grown:
        warnings.warn(f"modules beyond {MODULE_LINES} lines, to be split next time: {grown}", stacklevel=1)


def test_records_hash_every_room_that_a_run_may_use():
    rooms = {path.relative_to(ROOT).parts[1].removesuffix(".py") for path in MODULES} - {"__init__"}
    assert set(FLOORS) == rooms - MACHINERY


def definitions(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Yield the functions and classes of a module with their dotted names."""
    stack: list[tuple[str, ast.AST]] = [(str(path.relative_to(ROOT)), ast.parse(path.read_text()))]
    while stack:
        prefix, node = stack.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield f"{prefix}:{child.name}", child
                stack.append((f"{prefix}:{child.name}", child))
            else:
                stack.append((prefix, child))


def test_functions_are_short():
    long = {}
    for path in MODULES:
        for name, node in definitions(path):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if not isinstance(node, ast.ClassDef) and lines >= FUNCTION_LINES:
                long[name] = lines
    assert long == {}


def speaks(node: ast.AST) -> bool:
    """Tell whether a definition has a docstring or is a mere signature, as in a protocol."""
    body = getattr(node, "body", [])
    return bool(ast.get_docstring(node)) or [ast.unparse(line) for line in body] in ([], ["..."])


def test_public_things_have_a_docstring():
    bare = [str(path.relative_to(ROOT)) for path in MODULES if not speaks(ast.parse(path.read_text()))]
    for path in MODULES:
        for name, node in definitions(path):
            parts = name.split(":")[1:]
            inner = isinstance(node, ast.FunctionDef) and len(parts) > 1 and not parts[0][0].isupper()
            if not inner and not any(part.startswith("_") for part in parts) and not speaks(node):
                bare.append(name)
    assert bare == []


def test_no_module_has_a_name_that_says_nothing():
    empty = {"util", "utils", "helper", "helpers", "manager", "misc", "common"}
    assert [str(path) for path in MODULES if empty & set(path.stem.split("_"))] == []


def test_modules_import_from_lower_floors_only():
    linter = Path(sys.executable).with_name("lint-imports")
    told = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "0 broken" in told.stdout


def test_a_warning_from_our_own_modules_is_an_error():
    source = "import warnings\nwarnings.warn('a warning', RuntimeWarning)"
    with pytest.raises(RuntimeWarning):
        exec(source, {"__name__": "gllm_lib.a_module_of_ours"})

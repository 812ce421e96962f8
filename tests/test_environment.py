"""One set of versions: the lock, and everything that installs from it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"},
    "mac": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix", "platform_machine": "arm64"},
}
FREE = ("nvidia-", "cuda-", "triton")  # what a CUDA build of torch brings along
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def project() -> dict[str, dict]:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins() -> list[Requirement]:
    """Return the lines of the lock."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def environment(python: str, platform: str) -> dict[str, str]:
    """Return what markers see on a Python such as "3.12" (its fifth release) and a platform."""
    return {
        **default_environment(),
        **PLATFORMS[platform],
        "python_version": python,
        "python_full_version": python + ".5",
    }


def locked(python: str, platform: str) -> dict[str, list[Requirement]]:
    """Return the pins that apply there, by canonical name."""
    seen: dict[str, list[Requirement]] = {}
    for pin in pins():
        if pin.marker is None or pin.marker.evaluate(environment(python, platform)):
            seen.setdefault(canonicalize_name(pin.name), []).append(pin)
    return seen


def direct() -> list[Requirement]:
    """Return what pyproject.toml names, with all extras and what builds the package."""
    table = project()
    extras = [line for lines in table["project"]["optional-dependencies"].values() for line in lines]
    return [Requirement(line) for line in table["project"]["dependencies"] + extras + table["build-system"]["requires"]]


def test_the_lock_pins_exact_final_versions():
    for pin in pins():
        (specifier,) = pin.specifier
        assert specifier.operator == "=="
        assert not SpecifierSet(str(pin.specifier)).prereleases, f"{pin} is a pre-release"
        assert not pin.name.startswith(FREE), f"{pin.name} belongs to one build of torch"


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_direct_dependency_has_one_pin_that_satisfies_it(python, platform):
    there = locked(python, platform)
    assert {name: found for name, found in there.items() if len(found) > 1} == {}
    for wanted in direct():
        (pin,) = there.get(canonicalize_name(wanted.name), [None])
        assert pin is not None, f"{wanted.name} is not in requirements.lock; run make lock"
        version = str(pin.specifier).removeprefix("==")
        assert wanted.specifier.contains(version), f"{wanted} against {pin}"


def installed(name: str) -> str:
    """Return the version of a distribution here, without its build (`+cpu`)."""
    try:
        return metadata.version(name).split("+")[0]
    except metadata.PackageNotFoundError:
        return "no version"


def pulled_in(extras: tuple[str, ...]) -> set[NormalizedName]:
    """Return the canonical names that our package and these extras pull in here, step by step."""
    left, seen = [("gllm-book", extra) for extra in ("", *extras)], set()
    while left:
        name, extra = left.pop()
        if installed(name) == "no version":
            continue
        for line in metadata.requires(name) or []:
            wanted = Requirement(line)
            key = canonicalize_name(wanted.name)
            applies = wanted.marker is None or wanted.marker.evaluate({"extra": extra})
            if applies and key not in seen and not key.startswith(FREE):
                seen.add(key)
                left += [(key, more) for more in ("", *wanted.extras)]
    return seen


def test_this_environment_is_the_lock():
    applying = [pin for pin in pins() if pin.marker is None or pin.marker.evaluate()]
    there = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in applying}
    needed = pulled_in(("test",))
    assert {"numpy", "pytest", "torch", "mpmath"} <= needed
    wrong = {
        name: f"{installed(name)} is installed, {there.get(name)} locked"
        for name in needed
        if installed(name) != there.get(name)
    }
    assert wrong == {}


def test_every_package_that_a_chapter_or_the_library_imports_comes_with_the_book():
    installed_with_it = pulled_in(())
    assert "cvxpy" not in installed_with_it  # what the tests alone need does not count
    of = metadata.packages_distributions()
    # a study's own package, which README.md tells how to install, and what 'make pdf' installs
    optional = {"gllm_lib/studies/encoder.py", "gllm_lib/book/print/pdf.py"}
    foreign = {}
    for path in [*(ROOT / "chapters").glob("*.ipynb"), *(ROOT / "gllm_lib").rglob("*.py")]:
        text = path.read_text()
        if path.suffix == ".ipynb":
            cells = [cell for cell in nbformat.reads(text, 4).cells if cell.cell_type == "code"]
            text = "\n".join(cell.source for cell in cells)
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for top in {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"gllm_lib"}:
                if not installed_with_it & {canonicalize_name(each) for each in of.get(top, [top])}:
                    foreign[str(path.relative_to(ROOT))] = top
    assert {name: top for name, top in foreign.items() if name not in optional} == {}


def test_python_versions_agree_everywhere():
    asked = project()["project"]["requires-python"]
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    (python,) = [line for line in conda["dependencies"] if isinstance(line, str) and line.startswith("python ")]
    assert python == f"python {asked}"
    allowed = SpecifierSet(asked)
    assert [f"3.{minor}" for minor in range(9, 17) if allowed.contains(f"3.{minor}.1")] == list(PYTHONS)
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    assert tests["jobs"]["test"]["strategy"]["matrix"]["python"] == list(PYTHONS)
    assert "(3, 11) <= sys.version_info[:2] <= (3, 13)" in (ROOT / "Makefile").read_text()


def test_conda_installs_from_the_lock():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [entry["pip"] for entry in conda["dependencies"] if isinstance(entry, dict)]
    extras = ",".join(sorted(project()["project"]["optional-dependencies"]))
    assert pip == ["--constraint requirements.lock", f"--editable .[{extras}]"]
    assert {"quarto", "pip", "make"} <= set(map(str, conda["dependencies"]))
    assert "==" not in (ROOT / "environment.yml").read_text()


def test_the_makefile_installs_from_the_lock_alone():
    text = (ROOT / "Makefile").read_text()
    installs = [line for line in text.splitlines() if "-m pip" in line]
    assert len(installs) == 2
    assert all("-c requirements.lock" in line or line.endswith("--quiet uv") for line in installs)
    stamps = dict(re.findall(r"^\$\(VENV\)/\.(\w+): (.*)$", text, re.MULTILINE))
    assert set(stamps) == {"core", "test", "print", "lab"}
    assert "pyproject.toml requirements.lock" in stamps["core"]
    assert stamps["test"] == stamps["print"] == stamps["lab"] == "$(VENV)/.core"
    assert "==" not in text.replace('echo "== ', "")


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / ".ci" / "run"], ids=lambda path: path.name)
def test_ci_goes_through_make(path):
    text = path.read_text()
    assert "pip install" not in text
    assert "==" not in re.sub(r"={3}|== 0|== 'true'", "", text)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = set(re.findall(r"\bmake ([a-z-]+)", re.sub(r"#.*|make test, ", "", text)))
    assert asked
    assert asked <= targets


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_parse_and_pin_their_actions(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow[True]  # YAML 1.1 reads the key `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["runs-on"] == "ubuntu-latest"
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"[\w-]+/[\w/-]+@v\d+", step.get("uses", "actions/checkout@v5"))


def test_ci_run_is_a_strict_script():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "set -euo pipefail" in script.read_text()
    assert subprocess.run(["bash", "-n", script]).returncode == 0


def test_make_says_which_python_it_needs(tmp_path):
    old = tmp_path / "python-old"
    old.write_text(f'#!/bin/sh\ncase "$1" in --version) echo "Python 3.9.1";; *) exit 1;; esac\n# {sys.executable}\n')
    old.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    for python, told in ((str(old), "needs 3.11, 3.12 or 3.13"), ("python-that-is-absent", "is not on the PATH")):
        run = subprocess.run(
            ["make", "book", f"PYTHON={python}"], cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert run.returncode != 0
        assert told in run.stderr
        assert not (tmp_path / ".venv").exists()

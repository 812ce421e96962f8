"""README.md and the cover: the figures are what the code draws, and the example runs as it stands."""

import importlib.util
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


def rounded(svg: str) -> list[str]:
    """Return the words of an SVG, its numbers to one decimal and without ids: what another processor may not change."""
    bare = re.sub(r'(?:id|href|clip-path)="[^"]*"', "", svg)
    return re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}", bare).split()


@pytest.fixture(scope="module")
def draw(root: Path) -> ModuleType:
    """The module that draws the figures, which is in no package."""
    spec = importlib.util.spec_from_file_location("draw", root / "figures" / "draw.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["gain", "cover"])
def test_a_figure_is_what_its_code_draws(root: Path, tmp_path: Path, draw: ModuleType, name: str) -> None:
    makers = {"gain": draw.gain_of_a_grade, "cover": draw.cover}
    (tmp_path / "again").mkdir()
    first = makers[name](tmp_path).read_bytes()
    assert makers[name](tmp_path / "again").read_bytes() == first
    assert rounded(first.decode()) == rounded((root / "figures" / f"{name}.svg").read_text())


def test_the_cover_shows_who_sees_the_basis(draw: ModuleType) -> None:
    def turned_back(path: np.ndarray, turns: int) -> np.ndarray:
        angle = 2 * np.pi * turns / draw.TURNS
        back = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        return path[:, turns] @ back

    momentum, adam = draw.turned_runs(200, 0.02, adam=False), draw.turned_runs(160, 0.015, adam=True)
    quarter = draw.TURNS // 4
    for turns in range(1, draw.TURNS):
        assert np.allclose(turned_back(momentum, turns), momentum[:, 0], atol=1e-10)
        assert np.allclose(turned_back(adam, turns), adam[:, 0], atol=1e-6) == (turns % quarter == 0)


def test_every_figure_is_shown(root: Path) -> None:
    pages = "".join((root / name).read_text() for name in ("README.md", "index.qmd"))
    drawn = {path.name for path in (root / "figures").glob("*.svg")}
    assert drawn
    assert all(f"](figures/{name})" in pages for name in drawn)


def test_the_example_trains_resumes_compiles_and_exports(root: Path, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    folders = [tmp_path / "killed", tmp_path / "undisturbed"]
    for folder in folders:
        folder.mkdir()
    killed = subprocess.Popen([sys.executable, "-c", code], cwd=folders[0])
    checkpoint = folders[0] / "build" / "run" / "checkpoint.safetensors"
    while not checkpoint.is_file() and killed.poll() is None:
        time.sleep(0.01)
    killed.kill()
    assert killed.wait() != 0, "the run ended before it could be killed"
    for folder in folders:
        told = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
        assert told.returncode == 0, told.stderr
    exported = [folder / "build" / "plain-gpt2" for folder in folders]
    assert json.loads((exported[0] / "config.json").read_text())["architectures"] == ["GPT2LMHeadModel"]
    assert len({(each / "model.safetensors").read_bytes() for each in exported}) == 1

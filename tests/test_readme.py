"""README.md: its figures are what the code draws, and its example runs as it stands."""

import importlib.util
import json
import re
import subprocess
import sys
import time
from pathlib import Path


def rounded(svg: str) -> list[str]:
    """Return the words of an SVG, its numbers to one decimal and without ids: what another processor may not change."""
    bare = re.sub(r'(?:id|href|clip-path)="[^"]*"', "", svg)
    return re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}", bare).split()


def test_the_gain_figure_is_what_its_code_draws(root: Path, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("draw", root / "figures" / "draw.py")
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    (tmp_path / "again").mkdir()
    first = draw.gain_of_a_grade(tmp_path).read_bytes()
    assert draw.gain_of_a_grade(tmp_path / "again").read_bytes() == first
    assert rounded(first.decode()) == rounded((root / "figures" / "gain.svg").read_text())


def test_every_figure_of_the_readme_is_there(root: Path) -> None:
    readme = (root / "README.md").read_text()
    shown = {path.name for path in (root / "figures").glob("*.svg")}
    assert shown
    assert all(f"](figures/{name})" in readme for name in shown)


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

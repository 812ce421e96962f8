"""What every test starts from: reproducible hypothesis runs, drawing without windows, and a browser to drive."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

from gllm_lib.book.html.render import render
from gllm_lib.book.project import open_project, read_registry
from gllm_lib.book.run import Run, current_runs, run_chapters
from gllm_lib.book.stage import stage

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(ROOT / "build" / "hypothesis"))
set_hypothesis_home_dir(os.environ["HYPOTHESIS_STORAGE_DIRECTORY"])
settings.register_profile(
    "book",
    derandomize=True,  # the same cases on every run, so there is no database to replay from
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # a slow machine is not a wrong result
)
settings.load_profile("book")
matplotlib.use("agg")


@pytest.fixture(scope="session")
def root() -> Path:
    """The root folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def runs() -> dict[str, Run]:
    """A run of each chapter: the default one if it is current, else one at smoke size."""
    project = open_project(ROOT)
    fresh = {} if os.environ.get("GLLM_SMOKE") else current_runs(project, "default")
    stale = [name for name in project.notebooks if name not in fresh]
    return fresh | run_chapters(project, stale, "smoke", read_registry(project), quiet=True)


@pytest.fixture(scope="session")
def pages(runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the whole book's pages, rendered from these runs by the built-in renderer."""
    project = open_project(ROOT)
    profile = "default" if all(run.profile == "default" for run in runs.values()) else "smoke"
    site = stage(project, runs, read_registry(project), profile)
    folder = tmp_path_factory.mktemp("pages") / "book"
    render(site, folder)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium of this machine, driven by playwright; for tests marked `browser`.

    It ends with its module: while playwright runs, its event loop keeps kernels from being started.
    """
    from playwright.sync_api import sync_playwright

    found = [path for name in BROWSERS if (path := shutil.which(name))]
    if not found:
        pytest.fail(f"no browser: none of {', '.join(BROWSERS)} is on the PATH; install one, or use make test")
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=found[0], args=quiet)
        yield chromium
        chromium.close()

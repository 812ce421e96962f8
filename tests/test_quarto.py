"""The whole book through Quarto, where it is installed, and beside the pages of the built-in renderer."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gllm_lib.book.build import build_book
from gllm_lib.book.project import open_project, read_notebooks, read_registry
from gllm_lib.book.quarto import render_with_quarto
from gllm_lib.book.run import current_runs
from tests.book.two_renderers import Numbers, facts

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[Path, Path]:
    """The book by the built-in renderer and by Quarto, from the runs at default size if they are there."""
    project = open_project(ROOT)
    notebooks = read_notebooks(project)
    executed = len(current_runs(project, "default", notebooks)) == len(notebooks)
    ours = build_book(project, "default" if executed else "smoke", quarto=False, quiet=True)
    theirs = tmp_path_factory.mktemp("pages") / "quarto"
    render_with_quarto(shutil.which("quarto") or "quarto", project.build("site"), theirs)
    return ours, theirs


@pytest.mark.quarto
def test_quarto_renders_every_page_claim_and_reference(both):
    project = open_project(ROOT)
    registry = read_registry(project)
    for page in project.pages:
        text = (both[1] / page).with_suffix(".html").read_text(encoding="utf-8")
        assert 'name="generator" content="quarto' in text
        assert "quarto-unresolved-ref" not in text
        assert 'class="generated"' not in text, f"{page} still holds a block that the build should fill"
        for claim in registry.claims.values():
            if claim.chapter == Path(page).stem:
                assert f'id="{claim.id}"' in text
        if page.endswith(".ipynb"):
            assert "<math" in text


@pytest.mark.quarto
def test_both_renderers_say_the_same_on_every_page(both):
    project = open_project(ROOT)
    numbers = Numbers.of(project.config)
    differences, claims = [], 0
    for page in project.pages:
        address = Path(page).with_suffix(".html").as_posix()
        ours, theirs = ((book / address).read_text(encoding="utf-8") for book in both)
        said = facts(ours, address)
        claims += len(said.claims)
        differences += [f"{address}: {line}" for line in said.differences(facts(theirs, address, numbers))]
    assert not differences, "\n".join(differences)
    assert claims == len(read_registry(project).claims)


def test_quarto_is_asked_not_to_execute_and_a_failure_keeps_the_book(tmp_path, monkeypatch):
    """Without Quarto: a stand-in on the PATH that fails must leave the previous book as it was."""
    config = "project: {type: book}\nbook: {title: A book, chapters: [index.qmd]}\n"
    (tmp_path / "_quarto.yml").write_text(config)
    (tmp_path / "index.qmd").write_text("# Preface {.unnumbered}\n\nOne page.\n")
    (tmp_path / "chapters").mkdir()
    (tmp_path / "chapters" / "sources.toml").write_text((ROOT / "chapters" / "sources.toml").read_text())
    (tmp_path / "_book").mkdir()
    (tmp_path / "_book" / "index.html").write_text("the book built before")
    tools = tmp_path / "tools"
    tools.mkdir()
    stand_in = tools / "quarto"
    stand_in.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/asked"\necho "it broke" >&2\nexit 1\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(ValueError, match="it broke"):
        build_book(open_project(tmp_path), quiet=True)
    assert "--no-execute" in (tmp_path / "asked").read_text()
    assert (tmp_path / "_book" / "index.html").read_text() == "the book built before"

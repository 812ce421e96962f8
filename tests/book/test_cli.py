"""The command itself: what `gllm study show` tells, and that `gllm test` and `make test` are one thing."""

import re

import pytest

from gllm_lib.cli import main, suite

PLAN = """
question = "Does the runner run?"
entry = "no_such_module"
metric = "a number"
contrasts = ["one minus two"]
smallest_effect = "none"
predictions = ["it does"]
exclusion = "no run is left out"
stopping = "all runs"
seeds = [3, 1]
[budget]
minutes = 1
[[cells]]
id = "one"
[[cells]]
id = "two"
"""


def test_show_names_the_cells_and_seeds_of_a_study(small, monkeypatch, capsys):
    plan = small.root / "results" / "tried" / "plan.toml"
    plan.parent.mkdir(parents=True)
    plan.write_text(PLAN)
    monkeypatch.chdir(small.root)
    assert main(["study", "show", "tried"]) == 0
    told = capsys.readouterr().out
    assert "\n2 cells: one, two\n" in told
    assert "\n2 seeds: 3, 1\n" in told
    assert "tried: 0 of 4 runs recorded" in told
    assert "to run: one, seed 3" in told


def test_gllm_test_runs_what_make_test_runs(root):
    makefile = (root / "Makefile").read_text()
    code = re.search(r"^CODE := (.*)$", makefile, re.MULTILINE)[1]
    recipes = {
        target: [line.strip().replace("$(CODE)", code) for line in lines.strip().splitlines()]
        for target, lines in re.findall(r"^(lint|test):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    }
    spoken = [" ".join(f'"{word}"' if " " in word else word for word in command) for command in suite.COMMANDS]
    assert [line.removeprefix("$(BIN)/") for line in recipes["lint"] + recipes["test"]] == spoken
    exported = dict(re.findall(r"^export (\w+) := (.*)$", makefile, re.MULTILINE))
    assert {name: value.replace("$(CURDIR)", "/book") for name, value in exported.items()} == {
        name: str(value) for name, value in suite.environment("/book").items()
    }


def test_gllm_test_stops_at_the_first_failure_and_says_which(small, monkeypatch, capfd):
    monkeypatch.chdir(small.root)
    monkeypatch.setattr(
        suite, "COMMANDS", (("python", "-c", "print('first')"), ("python", "-c", "raise SystemExit(3)"))
    )
    assert main(["test"]) == 1
    told = capfd.readouterr()
    assert "first" in told.out
    assert "python -c 'raise SystemExit(3)' fails (exit code 3)" in told.err


@pytest.mark.parametrize("name", ["pytest", "ruff"])
def test_gllm_test_names_a_package_that_is_missing(small, monkeypatch, capsys, name):
    monkeypatch.chdir(small.root)
    real = suite.importlib.util.find_spec
    monkeypatch.setattr(suite.importlib.util, "find_spec", lambda each: None if each == name else real(each))
    assert main(["test"]) == 1
    assert f"{name}, not installed here" in capsys.readouterr().err


def test_a_preview_says_why_other_chapters_claim_nothing(built, monkeypatch, capsys):
    monkeypatch.chdir(built.root)
    assert main(["render", "--smoke", "--no-quarto", "01"]) == 0
    assert "without a current run" not in capsys.readouterr().err
    assert main(["new", "chapter", "A newcomer's question"]) == 0
    assert "02-a-newcomers-question.ipynb is ready" in capsys.readouterr().out
    assert main(["render", "--smoke", "--no-quarto", "01"]) == 0
    told = capsys.readouterr()
    assert told.err.startswith(
        "1 chapter without a current run: shown without outputs, and what they claim as 'stated'"
    )
    assert "'gllm render --smoke' executes every chapter" in told.err
    assert told.out == "The book is ready: open build/preview/chapters/01-first.html\n"

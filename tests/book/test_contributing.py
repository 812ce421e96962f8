"""The walk at the top of CONTRIBUTING.md, followed to the letter in a copy of the repository."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gllm_lib.book.project import canonical, read_notebook
from tests.conftest import ROOT

NOTEBOOK = Path("chapters/14b-factorial.ipynb")
EXIT = re.compile(r"\[exit code (\d+)\]")


def steps():
    """Return the walk's blocks in order: ("console", lines) to type and see, ("diff", lines) to edit."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walk = text.split("## Ten minutes", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"^ *```(console|diff)\n(.*?)^ *```$", walk, re.MULTILINE | re.DOTALL)
    return [(kind, [line[3:] for line in block.splitlines()]) for kind, block in blocks]


def commands(lines):
    """Yield each command of a console block with the lines that it promises."""
    for part in re.split(r"^\$ ", "\n".join(lines), flags=re.MULTILINE)[1:]:
        command, *promised = part.splitlines()
        yield command, promised


def run(command, root):
    environment = os.environ | {
        "PYTHONPATH": str(root),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    return subprocess.run(command, shell=True, cwd=root, env=environment, capture_output=True, text=True)


def follow(command, promised, root):
    """Run a command as the page tells, and compare what it prints with what the page promises."""
    if command.startswith("make "):
        target = command.split()[1]
        assert re.search(rf"^{target}:", (root / "Makefile").read_text(), re.MULTILINE), command
        return
    code = next((int(EXIT.fullmatch(line)[1]) for line in promised if EXIT.fullmatch(line)), 0)
    done = run(command, root)
    told = done.stdout + done.stderr
    assert done.returncode == code, f"{command}\n{told}"
    for line in promised:
        if not EXIT.fullmatch(line):
            wanted = ".*".join(re.escape(piece.strip()) for piece in line.split("..."))
            assert re.search(rf"^ *{wanted}$", told, re.MULTILINE), f"{command} does not print {line!r} but\n{told}"


def edit(lines, root):
    """Replace the lines marked - by those marked + in the one cell that has them, and save as an editor would."""
    old, new = ("\n".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
    notebook = read_notebook(root / NOTEBOOK)
    (cell,) = (cell for cell in notebook.cells if old in cell.source)
    cell.source = cell.source.replace(old, new)
    (root / NOTEBOOK).write_text(canonical(notebook).replace('"metadata": {}', '"metadata": {"editable": true}', 1))


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """A copy of what git tracks, as a repository of its own, after the walk."""
    root = tmp_path_factory.mktemp("walk") / "book"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    begun = "git init -q && git config user.name A && git config user.email a@example.org && git add -A"
    assert run(f"{begun} && git commit -qm Begin", root).returncode == 0
    for kind, lines in steps():
        if kind == "diff":
            edit(lines, root)
        else:
            for command, promised in commands(lines):
                follow(command, promised, root)
    return root


def test_the_walk_has_every_step():
    typed = [command for kind, lines in steps() if kind == "console" for command, _ in commands(lines)]
    wanted = ("make test", "make lab", "gllm new", "gllm check", "gllm render", "cp", "gllm verify", "gllm render")
    wanted = (*wanted, "gllm diff", "gllm claims", "gllm check --fix", "git add", "git commit")
    heads = [command for command in typed if command.startswith(wanted)]
    assert heads == typed
    assert {head for head in wanted if any(command.startswith(head) for command in typed)} == set(wanted)
    assert [kind for kind, _ in steps()].count("diff") == 4


def test_what_the_page_promises_happens_and_the_experiment_is_in_the_page(walked):
    page = (walked / "build/preview/chapters/14b-factorial.html").read_text()
    assert 'id="prp-a-price-for-nothing"' in page
    assert 'id="fig-a-price-for-nothing"' in page
    assert "costs 178%" in page
    assert page.index('id="sec-a-price-for-nothing"') < page.index("What was checked</h2>")


def test_the_commit_holds_the_notebook_alone_and_leaves_nothing_behind(walked):
    assert run("git show --stat --format=%s HEAD", walked).stdout.splitlines()[0] == (
        "Ask what grades cost at equal profiles"
    )
    assert run("git show --name-only --format= HEAD", walked).stdout.split() == [NOTEBOOK.as_posix()]
    assert run("git status --porcelain", walked).stdout == ""


def test_the_experiment_goes_as_the_page_says(walked):
    notebook = read_notebook(walked / NOTEBOOK)
    kept = [cell for cell in notebook.cells if not cell.id.startswith("exp-a-price-for-nothing")]
    assert len(notebook.cells) - len(kept) == 8
    notebook.cells = kept
    assert canonical(notebook) == (ROOT / NOTEBOOK).read_text()

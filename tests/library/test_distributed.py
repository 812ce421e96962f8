"""Two processes over gloo train the model that one process trains in two micro-batches, also after a kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from gllm_lib.models import HashedTables, llama_like
from gllm_lib.optim import PACKAGE
from gllm_lib.training.loop import train
from gllm_lib.training.schedule import Recipe
from tests.library.small_training import GRADED, RECIPE, TOKENS, WEIGHTS, T, V, build, state

TABLED = llama_like(
    V, T, 8, 2, 2, qk_norm=True, query_scale=True, tables=HashedTables(19, storage="float32"), input_norm=True
)
RUNS = {
    "graded": (GRADED, RECIPE),
    "package": (TABLED, Recipe(steps=8, batch=4, save_every=1, package=PACKAGE.changed("tables", whiten=True))),
}

RANK = """
import os, signal, sys
import torch
from safetensors.torch import save_file
from gllm_lib.training.loop import train
from gllm_lib.training.schedule import Recipe
from tests.library.test_distributed import RUNS
from tests.library.small_training import TOKENS, WEIGHTS, build

folder, end, out, run = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
config, recipe = RUNS[run]
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
model = build(config)
if rank == 1:  # the weights of the first process count
    torch.nn.init.zeros_(model.embedding.weight)

seen = []

def until(history):
    seen.append(len(history.losses))
    if rank == 0 and len(history.losses) == end:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(history.losses) == (6 if rank == 0 else 1)  # and so does its decision to stop

history = train(model, TOKENS, recipe, weights=WEIGHTS, folder=folder, until=until)
print(f"rank {rank} from {seen[0]}", flush=True)
try:
    train(model, TOKENS, Recipe(steps=1, batch=5))
except ValueError as error:
    print(f"rank {rank}: {error}", flush=True)
save_file(model.state_dict(), f"{out}.{rank}", {"losses": history.losses.tobytes().hex()})
torch.distributed.destroy_process_group()
"""


def launch(root: Path, tmp_path: Path, end: int, run: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    arguments = [str(tmp_path / "run"), str(end), str(tmp_path / "out"), run]
    return subprocess.run([*command, *arguments], cwd=root, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("run", RUNS)
def test_two_processes_train_what_one_does_and_resume(run: str, tmp_path: Path, root: Path) -> None:
    killed = launch(root, tmp_path, 4, run)
    assert killed.returncode != 0
    assert "SIGKILL" in killed.stderr
    assert not list(tmp_path.glob("out.*"))
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()
    resumed = launch(root, tmp_path, -1, run)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.count(" from 3") == 2  # the fourth step was under way; line ends of two processes may mix
    assert resumed.stdout.count("batch 5 does not split into micro-batches for 2 processes") == 2

    config, recipe = RUNS[run]
    one, halves = build(config), Recipe(**{**vars(recipe), "accumulate": 2})
    history = train(one, TOKENS, halves, weights=WEIGHTS, until=lambda history: len(history.losses) == 6)
    for rank in range(2):
        with safe_open(tmp_path / f"out.{rank}", framework="np") as file:
            # a sum of two is the same in either order, so processes and micro-batches agree to the bit
            assert {name: file.get_tensor(name).tobytes() for name in file.keys()} == state(one)  # noqa: SIM118
            assert file.metadata()["losses"] == history.losses.tobytes().hex()

"""Race a Muon step of `gllm_lib` against `torch.optim.Muon`, and time what the whitening of a gradient takes.

Run it as `python tests/benchmarks/optimizers.py`. Both step the block matrices of one GPT from the same gradients, with
the same five quintics in bfloat16, in turn, in one process and one thread; `torch : ours` is the median over the rounds
of (processor seconds of torch's) / (those of ours), so that more is faster. `package` is the same over the step with
everything before and after the polar step that OE adds, in float32. `whitening` is the share that the whitening of
embedding and head has in the seconds of a whole training step, beside its share in the counted operations.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from gllm_lib.checks import processor
from gllm_lib.models import GPT, GPTConfig, llama_like
from gllm_lib.optim import PACKAGE, Muon, MuonOptions, neumann_whiten
from gllm_lib.training import Recipe, graded_loss
from gllm_lib.training.schedule import optimizer_of

ROUNDS = {64: 200, 128: 100, 384: 24}  # width: rounds
LAYERS, HEADS, CONTEXT, BATCH, VOCABULARY = 4, 4, 128, 8, 1024
LIMIT = 1.0  # of torch's seconds, at least at one end of the interval of the median

Step = Callable[[], object]


def config_of(width: int) -> GPTConfig:
    """Return the configuration of one width."""
    return llama_like(VOCABULARY, CONTEXT, width, LAYERS, HEADS)


def matrices(width: int) -> list[nn.Parameter]:
    """Return the block matrices of a GPT with gradients."""
    model = GPT(config_of(width), generator=torch.Generator().manual_seed(0))
    source = torch.Generator().manual_seed(1)
    held = [each for name, each in model.named_parameters() if name.startswith("blocks.") and each.ndim == 2]
    for each in held:
        each.grad = torch.randn(each.shape, generator=source)
    return held


def seconds(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Return the processor seconds of each step over interleaved rounds, in either order, after three to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 3):
        for name, step in list(steps.items())[:: 1 if turn % 2 else -1]:
            start = time.thread_time()
            step()
            if turn > 2:
                taken[name].append(time.thread_time() - start)
    return taken


def ratios(taken: dict[str, list[float]], other: str, ours: str) -> list[float]:
    """Return the ratios (seconds of the other) / (seconds of ours) of all rounds, in order of size."""
    return sorted(a / b for a, b in zip(taken[other], taken[ours], strict=True))


def interval(sizes: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median by ranks: n/2 -+ 1.96 sqrt(n)/2 of n sorted ratios."""
    spread = 0.98 * len(sizes) ** 0.5
    return sizes[max(int(len(sizes) / 2 - spread), 0)], sizes[min(int(len(sizes) / 2 + spread), len(sizes) - 1)]


def whitening(width: int) -> tuple[float, float]:
    """Return the share of whitening in a step: of its seconds, and of its counted operations."""
    config = config_of(width)
    model = GPT(config, generator=torch.Generator().manual_seed(0))
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1), generator=torch.Generator().manual_seed(2))
    optimizer = optimizer_of(model, Recipe(steps=1000, batch=BATCH, package=PACKAGE))

    def step() -> None:
        optimizer.zero_grad()
        graded_loss(model(tokens[:, :-1]), tokens[:, 1:]).backward()
        optimizer.step()

    step()
    tables = [each.grad for each in (model.embedding.weight, model.head.weight)]
    taken = seconds(
        {"step": step, "whiten": lambda: [neumann_whiten(each, 0.5) for each in tables]}, ROUNDS[width] // 8
    )
    share = statistics.median(a / b for a, b in zip(taken["whiten"], taken["step"], strict=True))
    counted = 2 * (4 * VOCABULARY * width**2 + 14 * VOCABULARY * width + 3 * width**2 + 3 * width)
    matrix = sum(
        each.numel() for name, each in model.named_parameters() if name.startswith("blocks.") and each.ndim == 2
    )
    attention = LAYERS * 6 * width * (CONTEXT + 1)
    step_operations = BATCH * CONTEXT * (6 * (matrix + VOCABULARY * width) + attention)
    return share, counted / step_operations


def race(width: int) -> tuple[float, float]:
    """Print the line of one width and return the ends of the interval of its ratio to torch's."""
    theirs, ours, packed = (matrices(width) for _ in range(3))
    arms = {"torch": torch.optim.Muon(theirs, lr=1e-4).step, "ours": Muon(ours, MuonOptions(), lr=1e-4).step}
    taken = seconds(arms, ROUNDS[width])
    raced = ratios(taken, "torch", "ours")
    ends, slow = interval(raced), {"torch": arms["torch"], "package": Muon(packed, PACKAGE, lr=1e-4).step}
    package = statistics.median(ratios(seconds(slow, ROUNDS[width] // 8), "torch", "package"))
    timed, counted = whitening(width)
    print(
        f"{width:5d}   {1e3 * statistics.median(taken['torch']):8.2f}   {statistics.median(raced):6.3f} "
        f"[{ends[0]:.3f}, {ends[1]:.3f}]   {package:7.3f}   {timed:9.4f}   {counted:9.4f}"
    )
    return ends


def main() -> None:
    """Print one line per width and leave with an error if a step is slower than torch's beyond the noise."""
    torch.set_num_threads(1)
    print(f"{processor()}, one thread; the block matrices of a GPT of {LAYERS} layers")
    print("           torch     torch                     torch       whitening : step")
    print("width      (ms)    : ours  [95 %]            : package     seconds     counted")
    slow = {width: ends[1] for width, ends in ((width, race(width)) for width in ROUNDS) if ends[1] < LIMIT}
    if slow:
        raise SystemExit("; ".join(f"width {width}: at most {end:.3f} of torch's rate" for width, end in slow.items()))


if __name__ == "__main__":
    main()

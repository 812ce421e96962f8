"""Race a training step of `gllm_lib` against a plain PyTorch GPT, and graded models against uniform ones.

Run it as `python tests/benchmarks/models.py`. The arms of one width take their steps in turn, in one process and one
thread, on the same tokens; a ratio is the median over the rounds of (seconds of the other) / (seconds of ours), so that
more is faster. A step is forward, loss, backward, clipping of the gradient and AdamW. Rates count 6 floating-point
operations a token for each weight that multiplies, and what the causal mask leaves of attention. `compiled` is the
forward pass alone; `projected` has level projections, which are products of matrices besides.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gllm_lib.checks import processor
from gllm_lib.models.compile import compile_grades
from gllm_lib.models.config import GPTConfig, Grading, gpt2_like
from gllm_lib.models.gpt import GPT
from gllm_lib.training.loss import graded_loss
from gllm_lib.training.schedule import Recipe, adamw

ROUNDS = {64: 60, 128: 40, 384: 16}  # width: rounds
LAYERS, HEADS, CONTEXT, BATCH, VOCABULARY = 4, 4, 128, 8, 1024
PRODUCT = 1024
RECIPE = Recipe(steps=1, batch=BATCH)
PEER_LIMIT, GRADED_LIMIT = 1.0, 0.97  # of the rate, the second at the largest width

Step = Callable[[], object]


class PlainAttention(nn.Module):
    """Causal attention of the peer: one projection to queries, keys and values, and the fused kernel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.project(x).chunk(3, dim=-1)
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.merge(mixed.transpose(1, 2).reshape(batch, length, width))


class PlainBlock(nn.Module):
    """A block of the peer: attention and a GELU network, each behind its own LayerNorm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = PlainAttention(width, heads)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x))
        return x + self.network(self.before_network(x))


class PlainGPT(nn.Module):
    """The peer: GPT-2 in plain PyTorch, with learned positions and a tied head."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.Sequential(*(PlainBlock(config.width, config.heads) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def plain_step(config: GPTConfig, tokens: Tensor) -> Step:
    """Return a training step of the peer, with the loss and the optimizer as PyTorch gives them."""
    model = PlainGPT(config)
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim == 1]
    groups = [{"params": matrices, "weight_decay": RECIPE.decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RECIPE.peak, betas=RECIPE.betas)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]

    def step() -> None:
        logits = model(inputs)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), RECIPE.gradient_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def our_step(config: GPTConfig, tokens: Tensor) -> Step:
    """Return a training step of a model of `gllm_lib`, as its loop takes it."""
    model = GPT(config, generator=torch.Generator().manual_seed(0))
    optimizer = adamw(model, RECIPE)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]

    def step() -> None:
        loss = graded_loss(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), RECIPE.gradient_clip)
        optimizer.step()
        model.clamp_grades()
        optimizer.zero_grad(set_to_none=True)

    return step


def forward_only(model: GPT, tokens: Tensor) -> Step:
    """Return the forward pass of a model without gradients."""

    def step() -> None:
        with torch.no_grad():
            model(tokens[:, :-1])

    return step


def seconds(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each step over interleaved rounds, after two rounds to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 2):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if turn > 1:
                taken[name].append(time.perf_counter() - start)
    return taken


def ratio(taken: dict[str, list[float]], other: str, ours: str) -> float:
    """Return the median over rounds of the other's seconds over ours."""
    return statistics.median(a / b for a, b in zip(taken[other], taken[ours], strict=True))


def product(size: int) -> Step:
    """Return the product of two float32 matrices (size, size), the yardstick of the machine."""
    a, b = torch.randn(2, size, size, generator=torch.Generator().manual_seed(size))
    return lambda: a @ b


def step_operations(config: GPTConfig) -> float:
    """Return the floating-point operations of one training step, counted by hand."""
    weights = config.layers * 12 * config.width**2 + config.vocabulary * config.width
    attention = config.layers * 6 * config.width * (CONTEXT + 1)
    return BATCH * CONTEXT * (6 * weights + attention)


def gradings(config: GPTConfig) -> dict[str, GPTConfig]:
    """Return the graded arms: fixed grades of every part, the same learned, and with level projections besides."""
    width, head_width = config.width, config.head_width
    fixed = Grading(
        base=math.e ** (1 / head_width),
        levels=(width // 2, width // 4, width // 8, width // 8),
        heads=tuple(j * math.log(2) for j in range(head_width)),
        embedding=(0.0, 1.0, 2.0, 3.0),
        output=tuple(v / config.vocabulary for v in range(config.vocabulary)),
    )
    learned = replace(fixed, learned=("heads", "embedding", "output"))
    arms = {"graded": fixed, "learned": learned, "projected": replace(learned, projection=True)}
    return {name: replace(config, grading=grading) for name, grading in arms.items()}


def race(width: int) -> tuple[float, float]:
    """Print the line of one width and return its ratios: the peer's seconds over ours, the uniform over the graded."""
    config = gpt2_like(VOCABULARY, CONTEXT, width, LAYERS, HEADS)
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1), generator=torch.Generator().manual_seed(width))
    arms = gradings(config)
    steps = {"product": product(PRODUCT), "peer": plain_step(config, tokens), "uniform": our_step(config, tokens)}
    taken = seconds(steps | {name: our_step(arm, tokens) for name, arm in arms.items()}, ROUNDS[width])
    uniform, graded = (
        GPT(replace(each, tied=False), generator=torch.Generator().manual_seed(0)) for each in (config, arms["graded"])
    )
    models = {"uniform": uniform, "compiled": compile_grades(graded, tilt="drop")}
    forward = seconds({name: forward_only(model, tokens) for name, model in models.items()}, 3 * ROUNDS[width])
    rates = {name: ratio(taken, "uniform", name) for name in arms}
    peer, compiled = ratio(taken, "peer", "uniform"), ratio(forward, "uniform", "compiled")
    share = step_operations(config) / (2 * PRODUCT**3) * ratio(taken, "product", "uniform")
    print(
        f"{width:5d}   {1e3 * statistics.median(taken['uniform']):7.1f}    {peer:7.3f}   {rates['graded']:6.3f}   "
        f"{rates['learned']:7.3f}   {rates['projected']:9.3f}   {compiled:8.3f}   {share:7.2f}"
    )
    return peer, rates["graded"]


def main() -> None:
    """Print one line per width and leave with an error if a ratio that the library promises is missed."""
    torch.set_num_threads(1)
    speed = 2 * PRODUCT**3 / statistics.median(seconds({"product": product(PRODUCT)}, 20)["product"])
    print(f"{processor()}, one thread; a float32 product of size {PRODUCT} runs at {speed / 1e9:.0f} GFLOP/s")
    print("        uniform    uniform   graded   learned   projected   compiled   uniform")
    print("width   step (ms)  : peer    : uniform                      : uniform  : product")
    ratios = {width: race(width) for width in ROUNDS}
    missed = [
        f"width {width}: {peer:.3f} of the peer's rate" for width, (peer, _) in ratios.items() if peer < PEER_LIMIT
    ]
    graded = ratios[max(ratios)][1]
    if graded < GRADED_LIMIT:
        missed.append(f"graded models run at {graded:.3f} of the uniform rate; the limit is {GRADED_LIMIT}")
    if missed:
        raise SystemExit("; ".join(missed))


if __name__ == "__main__":
    main()

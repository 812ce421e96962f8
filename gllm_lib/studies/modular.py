"""Modular addition from two bases: which optimizers tell a start from its gauge image (FTIP l. 396; Singh Sec. 6).

A run trains one small transformer three times: from the start as drawn (`base`), from the gauge image of its attention
(`rotated`), and from the image carried back (`twin`), which only rounding tells from the base. Every head has one
orthogonal matrix for queries and keys and one for values and outputs.

Shapes: P modulus, N pairs, D width, H heads, K = D / H; attention matrices are (D, H K), heads side by side, those of
outputs transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import ortho_group
from torch import Tensor

from gllm_lib.checks import InputError
from gllm_lib.gauge import on_heads
from gllm_lib.optim import Muon, MuonOptions, RowAdam, Shampoo, SharedAdam
from gllm_lib.optim.equivariant import Equivariant
from gllm_lib.studies.plan import Plan, Record
from gllm_lib.studies.run import Job

PAIRS = (("queries", "keys"), ("values", "outputs"))  # each pair enters by its product, head by head
STACKS = {"concatenated": 1, "stacked": 0}  # one (D, H K); one (H D, K), the wrong axis; else "heads": H of (D, K)
IMAGES = ("rotated", "twin")
SQUARE, BLIND, SEES = 1e-12, 10.0, 1e3  # the acceptance rule of the plan
DTYPES = {"float64": torch.float64, "float32": torch.float32}
Weights = dict[str, Tensor]
Settings = Mapping[str, Any]


class Lion(Equivariant):
    """Lion without decay: the sign of an average of momentum and gradient."""

    uses: Mapping[str, float] = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.99}

    def directions(self, params: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Return the signs, and let the momentum follow."""
        found = []
        for each in params:
            grad = torch.as_tensor(each.grad)  # of parameters that have one
            momentum = self.state[each].get("momentum", torch.zeros_like(grad))
            found.append(momentum.lerp(grad, 1 - group["beta1"]).sign())
            self.state[each]["momentum"] = momentum.lerp(grad, 1 - group["beta2"])
        return found


RULES: dict[str, Callable[..., torch.optim.Optimizer]] = {  # of groups of parameters and a rate `lr`
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "nesterov": partial(torch.optim.SGD, momentum=0.9, nesterov=True),
    "adam": torch.optim.Adam,
    "sign": partial(Lion, beta1=0.0),  # the momentum is not read
    "lion": Lion,
    "shared-adam": SharedAdam,
    "row-adam": RowAdam,
    "shampoo": Shampoo,
    **{  # five Newton-Schulz steps with products in a type, the update as large as Adam's
        f"muon-{kind}": partial(Muon, options=MuonOptions(polar_dtype=kind, scale="match_rms_adamw"), weight_decay=0.0)
        for kind in ("float64", "float32", "bfloat16")
    },
}


def _attention(layers: int) -> list[str]:
    return [f"{layer}.{name}" for layer in range(layers) for pair in PAIRS for name in pair]


def start(settings: Settings, seed: int) -> Weights:
    """Return the weights as drawn, float64, of variance 1 / (number of inputs)."""
    rng, modulus, width = np.random.default_rng([seed, 0]), settings["modulus"], settings["width"]
    shapes = {"embedding": (modulus + 1, width), "position": (3, width), "head": (width, modulus)}
    for layer in range(settings["layers"]):
        shapes |= dict.fromkeys(_attention(layer + 1)[4 * layer :], (width, width))
        shapes |= {f"{layer}.up": (width, 4 * width), f"{layer}.down": (4 * width, width)}
    inputs = {name: 4 * width if name.endswith("down") else width for name in shapes}
    return {name: torch.from_numpy(rng.standard_normal(s) / inputs[name] ** 0.5) for name, s in shapes.items()}


def turns(settings: Settings, seed: int) -> Tensor:
    """Return matrices (layers, 2, H, K, K) of the orthogonal group by Haar's measure, reflections among them."""
    size = (settings["layers"], 2, settings["heads"])
    width = settings["width"] // settings["heads"]
    drawn = ortho_group.rvs(width, int(np.prod(size)), random_state=np.random.default_rng([seed, 1]))
    return torch.from_numpy(drawn.reshape(*size, width, width))


def turned(weights: Weights, by: Tensor) -> Weights:
    """Return the gauge image of weights, in their own precision."""
    names = _attention(len(by))
    twice = by.flatten(0, 1).repeat_interleave(2, dim=0)  # both factors of a pair turn alike
    return weights | {name: on_heads(weights[name], each) for name, each in zip(names, twice, strict=True)}


def logits(weights: Weights, tokens: Tensor, heads: int) -> Tensor:
    """Return the logits (N, P) at the last of three tokens: a, b and the sign "=", which is token P."""
    x = weights["embedding"][tokens] + weights["position"]
    shape, layers = x.shape[-1:], sum(name.endswith(".up") for name in weights)
    for layer in range(layers):
        last = layer == layers - 1  # after which only the sign "=" is read
        inner = F.layer_norm(x, shape)
        x, asking = (x[:, -1:], inner[:, -1:]) if last else (x, inner)
        q, k, v = (
            (each @ weights[f"{layer}.{name}"]).unflatten(-1, (heads, -1)).transpose(1, 2)
            for name, each in (("queries", asking), ("keys", inner), ("values", inner))
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=not last).transpose(1, 2).flatten(2)
        x = x + mixed @ weights[f"{layer}.outputs"].T
        x = x + F.gelu(F.layer_norm(x, shape) @ weights[f"{layer}.up"]) @ weights[f"{layer}.down"]
    return F.layer_norm(x[:, -1], shape) @ weights["head"]


def pairs(settings: Settings, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return all pairs as tokens (P P, 3), their sums modulo P (P P,), and which of them to train on."""
    modulus = settings["modulus"]
    tokens = torch.cartesian_prod(*[torch.arange(modulus)] * 2, torch.tensor([modulus]))
    order = np.random.default_rng([seed, 2]).permutation(len(tokens))
    chosen = torch.from_numpy(order[: round(settings["share"] * len(tokens))])
    return tokens, tokens[:, :2].sum(1) % modulus, chosen


def _split(weight: Tensor, layout: str, heads: int) -> list[Tensor]:
    parts = list(weight.chunk(heads, dim=1))
    return parts if layout == "heads" else [torch.cat(parts, dim=STACKS[layout])]


def _join(parts: Sequence[Tensor], layout: str, heads: int) -> Tensor:
    return torch.cat(parts[0].chunk(heads) if layout == "stacked" else list(parts), dim=1)


class Run:
    """One training run by the rule of a cell: full batch, cross-entropy."""

    def __init__(self, weights: Weights, cell: Settings, settings: Settings, seed: int) -> None:
        self.heads, self.layout = settings["heads"], cell.get("layout", "heads")
        kind = str(weights["head"].dtype).removeprefix("torch.")
        rule, rest = f"muon-{kind}" if cell["rule"] == "muon" else cell["rule"], cell["rest"]
        if bad := {rule, rest} - set(RULES) | {self.layout} - {"heads", *STACKS}:
            raise InputError(f"{bad.pop()!r:.40} is none of {', '.join((*RULES, 'heads', *STACKS))}")
        names = _attention(settings["layers"])
        own = {name: each.clone() for name, each in weights.items()}
        self.parts = {n: list(map(torch.nn.Parameter, _split(own.pop(n), self.layout, self.heads))) for n in names}
        self.rest = {name: torch.nn.Parameter(each) for name, each in own.items()}
        both = zip(names[::2], names[1::2], strict=True)
        groups = [{"params": list(two)} for u, v in both for two in zip(self.parts[u], self.parts[v], strict=True)]
        self.optimizers = (
            RULES[rule](groups, lr=cell["rate"]),
            RULES[rest](list(self.rest.values()), lr=settings["rates"][rest]),
        )
        self.tokens, self.sums, self.chosen = pairs(settings, seed)

    def weights(self) -> Weights:
        """Return all weights in the layout of `start`."""
        return self.rest | {name: _join(parts, self.layout, self.heads) for name, parts in self.parts.items()}

    def step(self) -> None:
        """Make one step."""
        found = logits(self.weights(), self.tokens[self.chosen], self.heads)
        F.cross_entropy(found, self.sums[self.chosen]).backward()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()

    @torch.no_grad()
    def shown(self) -> tuple[Weights, Tensor]:
        """Return the weights and the logits (P P, P) on all pairs."""
        weights = {name: each.detach().clone() for name, each in self.weights().items()}
        return weights, logits(weights, self.tokens, self.heads)

    def score(self, found: Tensor) -> list[float]:
        """Return the training loss and the share of right answers on all pairs."""
        right = (found.argmax(1) == self.sums).double().mean()
        return [_digits(F.cross_entropy(found[self.chosen], self.sums[self.chosen])), _digits(right)]


def _digits(value: Any) -> float:
    return float(f"{float(value):.5g}")


def _factors(weights: Weights, settings: Settings) -> Tensor:
    every = torch.stack([weights[name] for name in _attention(settings["layers"])])
    return every.unflatten(2, (settings["heads"], -1)).transpose(1, 2).unflatten(0, (-1, 2, 2))  # layers, 2, 2, H, D, K


def _products(weights: Weights, settings: Settings) -> Tensor:
    u, v = _factors(weights, settings).unbind(2)
    return u @ v.mT


def _away(ours: Tensor, theirs: Tensor) -> Tensor:
    return (theirs - ours).flatten(-2).norm(dim=-1) / ours.flatten(-2).norm(dim=-1)


def compare(cell: Settings, settings: Settings, seed: int, kind: str, points: Sequence[int]) -> dict[str, Any]:
    """Train base, image and twin in the type `kind` and return what tells them apart after each of `points` steps.

    `rotated`, `twin`: relative distance of the logits on all pairs; `products`: of the products, mean over heads;
    `moved`: of the base from its start; `square`: after one step, the largest distance of a head's matrix from the
    turned one; `end`: loss and right answers of the three; `agree`: share of pairs with the same answer.
    Raises InputError for an unknown rule or layout.
    """
    by = turns(settings, seed)
    weights = {name: each.to(DTYPES[kind]) for name, each in start(settings, seed).items()}
    image = turned(weights, by)
    starts = {"base": weights, "rotated": image, "twin": turned(image, by.mT)}
    runs = {name: Run(each, cell, settings, seed) for name, each in starts.items()}
    found: dict[str, Any] = {name: [] for name in (*IMAGES, "moved")} | {"products": {name: [] for name in IMAGES}}
    first = runs["base"].shown()[1]
    for step in range(points[-1] + 1):
        if step == 1:
            base, image = (_factors(runs[name].shown()[0], settings) for name in ("base", "rotated"))
            found["square"] = _digits(_away(base @ by[:, :, None].to(base), image).max())
        if step in points:
            told = {name: run.shown() for name, run in runs.items()}
            base, ours = told["base"]
            found["moved"].append(_digits(_away(first, ours)))
            for name in IMAGES:
                found[name].append(_digits(_away(ours, told[name][1])))
                apart = _away(_products(base, settings), _products(told[name][0], settings)).mean()
                found["products"][name].append(_digits(apart))
        if step < points[-1]:
            for run in runs.values():
                run.step()
    found["end"] = {name: runs[name].score(told[name][1]) for name in runs}
    found["agree"] = {n: _digits((told[n][1].argmax(1) == ours.argmax(1)).double().mean()) for n in IMAGES}
    return found


def prepare(plan: Plan, root: Path) -> dict[str, Any]:
    """Return a hash of what the records' own hash leaves out: the gauge and the optimizers."""
    files = sorted(path for room in ("gauge", "optim") for path in Path(__file__).parents[1].glob(f"{room}/*.py"))
    return {"rules_sha256": sha256(b"".join(each.read_bytes() for each in files)).hexdigest()}


def measure(job: Job, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Make the three runs of a cell in each of its types, or one step at each of its `rates`, and return distances."""
    settings, cell = {**job.settings, **job.cell.get("settings", {})}, dict(job.cell)
    found: dict[str, Any] = dict(inputs)
    if "rates" in cell:
        each = [compare(cell | {"rate": rate}, settings, job.seed, "float64", (0, 1)) for rate in cell["rates"]]
        return found | {name: [one[name][1] for one in each] for name in IMAGES}
    points = settings["long" if cell.get("long") else "points"]
    return found | {kind: compare(cell, settings, job.seed, kind, points) for kind in cell["types"]}


def ratio(record: Record, kind: str, at: int = -1) -> float:
    """Return the distance of the image over that of the twin at one of the recorded points."""
    told = record.values[kind]
    return float(told["rotated"][at] / max(told["twin"][at], torch.finfo(DTYPES[kind]).eps))


def verdict(record: Record) -> str:
    """Return what the registered rule says of a run: "blind", "sees" or "between"."""
    if record.values["float64"]["square"] < SQUARE and ratio(record, "float32") <= BLIND:
        return "blind"
    return "sees" if ratio(record, "float32") > SEES else "between"

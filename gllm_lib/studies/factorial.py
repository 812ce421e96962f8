"""Hashed tables x optimizer package x query scale on small language models: the factorial of OE at desk scale.

A run is one cell at one seed; the seed fixes the first weights and the order of the data, alike for every cell of a
depth. A cell says how many `layers`, whether there are `tables`, the `step` (0 native, 1 package, 2 package and query
scale), whether the scale is `masked`, and a `variant` of the optimizer. Shapes: N pieces of text.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gllm_lib.analysis.diagnostics import mean_row_share, stable_rank
from gllm_lib.checks import InputError, sha256, write_bytes
from gllm_lib.corpora.code_text import library_text
from gllm_lib.models import GPT, HashedTables, llama_like
from gllm_lib.optim import NATIVE, PACKAGE, Package
from gllm_lib.studies.plan import Plan
from gllm_lib.studies.run import Job
from gllm_lib.training.evaluate import bits_per_byte, evaluate
from gllm_lib.training.loop import train
from gllm_lib.training.schedule import Recipe

HORIZON = 953  # steps of the source, whose ramps are shortened in proportion
LARGER = math.sqrt(2)
Settings = Mapping[str, Any]


def larger_step(package: Package, names: tuple[str, ...]) -> Package:
    """Return the package with the rates of the named groups times sqrt(2), and Muon's decay over it."""
    for group in (each for each in package.groups if each.name in names):
        package = package.changed(group.name, rate=group.rate * LARGER, decay=group.decay / LARGER)
    return package


VARIANTS: dict[str, Callable[[Package], Package]] = {
    "": lambda p: p,
    "all-rates": lambda p: larger_step(p, tuple(group.name for group in p.groups)),  # the arm of the source
    "muon-rate": lambda p: larger_step(p, ("matrices",)),  # the arm that its premise asks for
    "bf16-states": lambda p: p.changed("embedding", storage="bfloat16"),
    "whitened-tables": lambda p: p.changed("tables", whiten=True),
    "no-equilibration": lambda p: replace(p, equilibrate=0),
    "no-cooldown": lambda p: replace(p, cooldown=None),
    "centre-visited": lambda p: replace(p, whiten_centre="visited"),  # absent tokens are left alone
    "no-whitening": lambda p: p.changed("embedding", whiten=False).changed("head", whiten=False),
    "no-fp32-polar": lambda p: replace(p, polar_dtype="bfloat16"),
    "no-cosine-decay": lambda p: replace(p, decay_schedule="linear"),
}


def package_of(cell: Mapping[str, Any], settings: Settings) -> Package:
    """Return the optimizer of a cell, its rates and its ramps as the settings have them."""
    short = settings["steps"] / HORIZON
    base = replace(
        PACKAGE if cell["step"] else NATIVE, momentum_ramp=round(300 * short),
        equilibrate_ramp=max(1, round(25 * short)), whiten_ramp=max(1, round(80 * short)),
    )  # fmt: skip
    for group, rate in settings["rates"].items():
        base = base.changed(group, rate=rate)
    if cell.get("variant", "") not in VARIANTS:
        raise InputError(f"variant is {cell['variant']!r}; choose from {', '.join(filter(None, VARIANTS))}")
    return VARIANTS[cell.get("variant", "")](base)


def model_of(cell: Mapping[str, Any], settings: Settings, seed: int) -> GPT:
    """Return the model of a cell; what two cells of one depth share starts alike."""
    vocabulary, context, width, heads = (settings[name] for name in ("vocabulary", "context", "width", "heads"))
    planes = width // heads // 2
    config = llama_like(
        vocabulary, context, width, cell["layers"], heads, qk_norm=True, input_norm=True,
        query_scale=cell["step"] == 2, query_mask=(1, planes // 4) if cell.get("masked") else None,
        tables=HashedTables(settings["modulus"]) if cell["tables"] else None,
    )  # fmt: skip
    return GPT(config, generator=torch.Generator().manual_seed(seed))


def prepare(plan: Plan, root: Path) -> dict[str, Any]:
    """Write the standard library's pieces, and two segments of held-out files with their bytes; return where."""
    settings = plan.fields["settings"]
    text = library_text(settings["vocabulary"])
    training, held_out = text.split()
    size, data = settings["scored"], {"train": training.ids}
    if len(held_out) < 2 * size:
        raise InputError(f"{len(held_out)} held-out pieces do not hold two segments of {size}; lower scored")
    for number, name in enumerate(("validation", "held_out")):
        part = slice(number * (len(held_out) - size), number * (len(held_out) - size) + size)
        data[name] = held_out.ids[part]
        data[f"{name}_bytes"] = held_out.bytes[part][1:].sum()
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **data)
    path = write_bytes(
        root / "build" / "encodings" / f"factorial-{settings['vocabulary']}-{size}.npz", buffer.getvalue()
    )
    return {"path": str(path), "sha256": sha256(path), "matches": text.matches_record}


def scored(model: GPT, data: Mapping[str, Any], name: str) -> float:
    """Return the bits per byte of a segment."""
    ids = data[name]
    return round(bits_per_byte(evaluate(model, ids, batch=16), len(ids) - 1, int(data[f"{name}_bytes"])), 6)


def measure(job: Job, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Make one run and return its bits per byte on both segments, its curve and what its weights show."""
    settings, cell = job.settings, job.cell
    with np.load(inputs["path"], allow_pickle=False) as file:
        data = dict(file)
    model = model_of(cell, settings, job.seed)
    recipe = Recipe(settings["steps"], settings["batch"], gradient_clip=0.0, seed=job.seed,
                    package=package_of(cell, settings))  # fmt: skip
    history = train(model, data["train"], recipe)
    blocks = np.array_split(history.losses, settings["points"])
    found = {name: scored(model, data, name) for name in ("validation", "held_out")}
    return found | {
        "train": [round(float(block.mean()), 4) for block in blocks],
        "ranks": ranks(model),
        "scales": scales(model),
        "data_sha256": inputs["sha256"],
        "matches": inputs["matches"],
    }


@torch.no_grad()
def ranks(model: GPT) -> dict[str, list[float]]:
    """Return [stable rank, mean-row share], means over the matrices of a kind (OE Tab. 4)."""
    kinds = {"token": "embedding.", "head": "head.", "tables": "tables.", "attention": ".attention.", "ffn": ".ffn."}
    named = [(name, each.float().numpy()) for name, each in model.named_parameters() if each.ndim == 2]
    found = {}
    for kind, part in kinds.items():
        held = [each for name, each in named if part in name and "query_log" not in name]
        if held:
            means = (np.mean([tell(each) for each in held]) for tell in (stable_rank, mean_row_share))
            found[kind] = [round(float(mean), 5) for mean in means]
    return found


@torch.no_grad()
def scales(model: GPT) -> dict[str, Any]:
    """Return mean query scales by layer, and of the fastest quarter of planes, the middle half, the rest."""
    held = [block.attention.query_scale() for block in model.blocks]
    if not model.config.query_scale:
        return {}
    shape = (model.config.heads, model.config.head_width)
    every = np.array([np.ones(shape) if each is None else each.numpy() for each in held])[..., : shape[1] // 2]
    quarter = every.shape[-1] // 4
    bands = np.split(every, [quarter, 3 * quarter], axis=-1)
    return {
        "layers": [round(float(each.mean()), 4) for each in every],
        "bands": [round(float(b.mean()), 4) for b in bands],
    }

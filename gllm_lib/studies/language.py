"""The selection ladder on small language models: arms that differ in the grades of their token embedding (GLLM Sec. 8).

A run is one cell at one seed. Where the cell is anchored, it trains a uniform model first, finds the level basis of its
token embedding, and starts every arm from that embedding along the basis; all other weights are fresh, and the same for
all arms, as is the order of the data. Grades have mean logarithm 0. Shapes: N tokens, V types, D coordinates, H heads.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gllm_lib.analysis.probes import Array
from gllm_lib.checks import InputError, sha256, write_bytes
from gllm_lib.corpora.code import standard_library
from gllm_lib.corpora.code_text import CodeText, library_text
from gllm_lib.corpora.grammar import Brackets
from gllm_lib.models.config import Grading, gpt2_like
from gllm_lib.models.gpt import GPT
from gllm_lib.studies import language_arms as told_by
from gllm_lib.studies.ladder import educated, level_grades, signed_gain
from gllm_lib.studies.plan import Plan
from gllm_lib.studies.run import Job
from gllm_lib.training.evaluate import accuracy_by_depth, evaluate, structural_attention_mass
from gllm_lib.training.loop import train
from gllm_lib.training.loss import Penalties
from gllm_lib.training.schedule import Recipe

ANCHOR = 1000  # added to the seed of the anchor, whose weights and data order are independent of the arms'
DEEPEST = 10  # deeper pieces count as this deep
LARGEST = 8.0  # grades are held below this; the arms' own clip is at most 4
DIVERSITY, HOLD = 1e-4, 3.5e-4  # of learned heads; 3.5 > H - 1 = 3, the smallest coercive ratio on nonnegative grades
Settings = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Task:
    """What is learnt: ids to train on (N,), held-out ids of the curve and of the end, and windows to look into.

    `windows` (B, T) have a depth per piece, -1 where it is not counted, and arcs (a, 3), none for brackets.
    """

    train: NDArray[np.int64]
    curve: NDArray[np.int64]
    final: NDArray[np.int64]
    windows: NDArray[np.int64]
    depth: NDArray[np.int64]
    arcs: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Arm:
    """What an arm changes: factors of the start of the table (D,), grades of embeddings (D,) and of heads (H,).

    `types` (V,) are weights in [1, 2] by type, matched by output grades; `weights` goes to the loss. With `penalties`
    the grades of the heads are learned, from near the middle of their range.
    """

    start: Array | None = None
    grades: Array | None = None
    heads: Array | None = None
    types: Array | None = None
    weights: Array | None = None
    penalties: Penalties | None = None


def cells(plan: Plan, *, only: str = "") -> list[str]:
    """The cells to run: those that `only` names, separated by commas, or all."""
    known = [cell["id"] for cell in plan.fields["cells"]]
    chosen = only.split(",") if only else known
    if set(chosen) - set(known):
        raise InputError(f"only is {only!r}; name cells among {', '.join(known)}")
    return chosen


def prepare(plan: Plan, root: Path, *, only: str = "") -> dict[str, Any]:
    """Write the standard library's text, and its sums by type, for all runs; return where. `only` names the cells."""
    cells(plan, only=only)
    vocabulary, context = (plan.fields["settings"][name] for name in ("vocabulary", "context"))
    text = library_text(vocabulary)
    task, training = vars(text_task(text, context)), text.split()[0]
    buffer = io.BytesIO()
    told = {"position_depth": training.depth} | told_by.type_sums(training, standard_library(), vocabulary)
    np.savez_compressed(buffer, allow_pickle=False, **task, **told)
    path = write_bytes(root / "build" / "encodings" / f"ladder-{vocabulary}-{context}.npz", buffer.getvalue())
    return {"path": str(path), "sha256": sha256(path), "matches": text.matches_record}


def text_task(text: CodeText, context: int) -> Task:
    """The task of a text: a quarter of the held-out windows serves the curve, the same are looked into."""
    training, held_out = text.split()
    ids, depth, arcs = held_out.windows(context)
    kept = arcs[arcs[:, 0] % 4 == 0] // [4, 1, 1]
    counted = np.where(depth[::4] < 0, -1, np.minimum(depth[::4], DEEPEST))
    return Task(training.ids, ids[::4].ravel(), held_out.ids, ids[::4], counted, kept)


def bracket_task(grammar: Brackets, settings: Settings, seed: int) -> Task:
    """A stream to train on and a held-out one, for a seed; a closing bracket's depth is the nesting that it closes.

    It is 1 for a pair with nothing inside, and counted where the opening bracket is in the window.
    """
    stream, held_out = (grammar.sample(n, np.random.default_rng([seed, k])) for k, n in enumerate(settings["stream"]))
    windows = held_out[: len(held_out) // settings["context"] * settings["context"]].reshape(-1, settings["context"])
    depth = np.full(windows.shape, -1)
    for row, told in zip(windows, depth, strict=True):
        inside: list[int] = []  # nesting found so far in each open bracket of the window
        for place, token in enumerate(row):
            if token < grammar.kinds:
                inside.append(0)
            elif token < grammar.stop and inside:
                told[place] = inside.pop() + 1
                inside[-1:] = [max(each, told[place]) for each in inside[-1:]]
    return Task(stream, windows[::4].ravel(), held_out, windows, depth, np.zeros((0, 3), dtype=np.int64))


@torch.no_grad()
def model_of(arm: Arm, table: Array | None, settings: Settings, vocabulary: int, seed: int) -> GPT:
    """A model of an arm: weights fresh from the seed, the token table from `table` (V, D) if it is given.

    The library holds scales in [1, clip]; here they are shifted to mean logarithm 0, which also keeps the mean rate of
    the graded table that of the others.
    """
    options: dict[str, Any] = {}
    if arm.grades is not None:
        options["embedding"] = np.log2(arm.grades / arm.grades.min())
    if arm.heads is not None:
        scales = np.log2(arm.heads / arm.heads.min())[:, None]
        options["heads"] = np.repeat(scales, settings["width"] // settings["heads"], axis=1)
    if arm.penalties is not None:
        shape = (settings["layers"], settings["heads"], settings["width"] // settings["heads"])
        options["heads"] = np.clip(0.5 + 0.05 * np.random.default_rng([seed, 31]).normal(size=shape), 0, 1)
        options["learned"] = ("heads",)
    if arm.types is not None:
        options["output"] = np.log2(arm.types)
    grading = Grading(clip=2.0 if arm.penalties else LARGEST, **options) if options else None
    sizes = (settings[name] for name in ("context", "width", "layers", "heads"))
    config = gpt2_like(vocabulary, *sizes, tied=False, grading=grading)
    model = GPT(config, generator=torch.Generator().manual_seed(seed))
    for part, grades in model.grades().items():
        if part == "embedding" or (part == "heads" and arm.penalties is None):
            grades.sub_(grades.mean())
    if table is not None:
        model.embedding.weight.copy_(torch.from_numpy(table))
    if arm.start is not None:
        model.embedding.weight.mul_(torch.from_numpy(arm.start).to(model.embedding.weight))
    return model


def trained(
    task: Task, model: GPT, arm: Arm, peak: float, settings: Settings, seed: int, until: int | None = None
) -> dict[str, Any]:
    """Train `model` and return its losses: held out, by `points` (curve); in training, by twice as many blocks.

    Held-out losses are unweighted and without output tilt; `kept` is the final one with it. With `until`, only that
    many steps are made, and nothing is looked into.
    """
    every = settings["steps"] // settings["points"]
    recipe = Recipe(settings["steps"], settings["batch"], peak=peak, floor=peak / 100, warmup=settings["warmup"],
                    gradient_clip=0.0, seed=seed, penalties=arm.penalties or Penalties())  # fmt: skip
    history = train(
        model, task.train, recipe, weights=arm.weights, evaluate_every=every,
        evaluate=lambda each: evaluate(each, task.curve, tilt="drop"),
        until=None if until is None else lambda each: len(each.losses) >= until,
    )  # fmt: skip
    blocks = history.losses[: len(history.losses) // (every // 2) * (every // 2)].reshape(-1, every // 2).mean(axis=1)
    found: dict[str, Any] = {"curve": [round(loss, 5) for _, loss in history.evaluations], "train": _round(blocks, 5)}
    if until is not None:
        return found
    found["final"] = round(evaluate(model, task.final, tilt="drop"), 5)
    if arm.types is not None:
        found["kept"] = round(evaluate(model, task.final), 5)
    if arm.penalties is not None:
        heads = model.grades()["heads"].double().numpy()
        found["heads"] = {"mean": _round(heads.mean(axis=2), 4), "apart": round(float(heads.var(axis=1).mean()), 5)}
    return found | looked_into(model, task)


@torch.no_grad()
def looked_into(model: GPT, task: Task) -> dict[str, Any]:
    """Right predictions by depth, and attention on arcs by layer and head: structural, total, null (GLLM Eq. 23)."""
    windows = torch.from_numpy(task.windows)
    counted = task.depth[:, 1:] >= 0
    told = model(windows[:, :-1], tilt=False).argmax(-1).numpy()[counted]
    rows = accuracy_by_depth(told, task.windows[:, 1:][counted], task.depth[:, 1:][counted])
    found: dict[str, Any] = {"right": {str(row.depth): round(row.accuracy * row.count) for row in rows}}
    if len(task.arcs):
        mass = structural_attention_mass(model.attention_weights(windows), task.arcs)
        found["attention"] = {name: _round(each, 5) for name, each in mass._asdict().items()}
    return found


def measure(job: Job, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Make one run: per arm and peak rate, "arm@rate", what `trained` tells."""
    settings, seed, kind = job.settings, job.seed, job.cell["id"]
    facts: dict[str, Any] = {}
    if kind == "grammar":
        grammar = Brackets(**settings["brackets"])
        task = bracket_task(grammar, settings, seed)
        table, level = told_by.bracket_table(grammar, settings["width"] // (2 * grammar.kinds))
        vocabulary = grammar.vocabulary
        arms, facts = grammar_arms(grammar, task, table, level, settings)
    else:
        with np.load(inputs["path"], allow_pickle=False) as file:
            data = dict(file)
        task, vocabulary = Task(**{name: data.pop(name) for name in Task.__annotations__}), settings["vocabulary"]
        if kind == "unanchored":
            table, arms = None, unanchored_arms(settings, seed)
        else:
            uniform = model_of(Arm(), None, settings, vocabulary, ANCHOR + seed)
            facts["anchor"] = trained(task, uniform, Arm(), settings["anchor_rate"], settings, ANCHOR + seed)["curve"]
            table = uniform.embedding.weight.detach().double().numpy()
            basis = told_by.basis_of(table, data)
            table, facts["filled"] = table @ basis.vectors, basis.filled.tolist()
            pair = told_by.profiles(table, data["pairs"])
            grades = told_by.ladder_grades(basis.level, pair, told_by.name_share(table, data), settings["clip"], seed)
            facts |= {"alpha": _round(pair[0], 6), "tau": _round(pair[1], 6)}
            facts["gain"] = {arm: round(signed_gain(g, *pair), 5) for arm, g in grades.items()}
            facts["grades"] = {arm: _round(g, 4) for arm, g in grades.items()}
            arms = CELLS[kind](grades, pair, task, data["position_depth"].astype(np.int64), settings)
    runs = {}
    for name, arm in arms.items():
        for rate in job.cell["rates"]:
            model = model_of(arm, table, settings, vocabulary, seed)
            runs[f"{name}@{rate:g}"] = trained(task, model, arm, rate, settings, seed)
    counted = np.bincount(task.depth[:, 1:][task.depth[:, 1:] >= 0])
    met = {str(depth): int(n) for depth, n in enumerate(counted) if n}
    return {"runs": runs, "met": met, "data_sha256": inputs["sha256"], "matches": inputs["matches"], **facts}


def graded(g: Array) -> Arm:
    """An arm that grades the embedding and starts from the common table."""
    return Arm(grades=told_by.centred(g))


def anchored_arms(grades: Mapping[str, Array], *_: Any) -> dict[str, Arm]:
    """The ladder, and the two halves of educated_coordinate."""
    found = {name: graded(g) for name, g in grades.items()} | {"uniform": Arm()}
    return found | halves(grades["educated_coordinate"])


def halves(g: Array) -> dict[str, Arm]:
    """What AdamW makes of grades: rates and decays of their own from the common start, and a start of their own."""
    told = told_by.centred(g)
    return {"rate_only": Arm(start=1 / told, grades=told), "start_only": Arm(start=told)}


def unanchored_arms(settings: Settings, seed: int) -> dict[str, Arm]:
    """Arms that nothing tells apart: level grades on coordinates of equal law."""
    level = np.arange(settings["width"]) * 4 // settings["width"]
    even = np.full(settings["width"], 1 / settings["width"])
    found = told_by.ladder_grades(
        level, (even, even), np.arange(settings["width"], dtype=np.float64), settings["clip"], seed
    )
    return {"uniform": Arm()} | {name: graded(found[name]) for name in ("taxonomic", "reversed", "permuted")}


def clip_arms(grades: Mapping[str, Array], pair: tuple[Array, Array], *_: Any) -> dict[str, Arm]:
    """The taxonomic and the educated arm at clips beside 2."""
    level = np.arange(len(pair[0])) * 4 // len(pair[0])
    found = {}
    for clip in (1.5, 4.0):
        found[f"taxonomic_{clip:g}"] = graded(level_grades(4, clip)[level])
        found[f"educated_coordinate_{clip:g}"] = graded(educated(level, *pair, clip)[1])
    return found


def level_arms(grades: Mapping[str, Array], pair: tuple[Array, Array], *rest: Any) -> dict[str, Arm]:
    """Educated by level, at another number of levels than four: neighbours joined, or levels cut."""
    width, settings = len(pair[0]), rest[-1]
    places = {count: np.arange(width) * count // width for count in (2, 8, 16)}
    return {f"educated_{count}": graded(educated(place, *pair, settings["clip"])[0]) for count, place in places.items()}


def energy_arms(grades: Mapping[str, Array], pair: tuple[Array, Array], *_: Any) -> dict[str, Arm]:
    """The taxonomic arm, a uniform start with the energy of its graded table, and its grades at the uniform energy."""
    told = told_by.centred(grades["taxonomic"])
    scale = np.full(len(told), np.sqrt(pair[1] @ told**2))
    return {"uniform": Arm(), "taxonomic": Arm(grades=told), "larger": Arm(start=scale),
            "level_energy": Arm(start=1 / scale, grades=told)}  # fmt: skip


def component_arms(
    grades: Mapping[str, Array], pair: Any, task: Task, depth: NDArray[np.int64], settings: Settings
) -> dict[str, Arm]:
    """Attention, loss and all together; learned heads without and with repulsion; weights by parse depth."""
    deep = settings["clip"] ** (np.clip(depth, 0, DEEPEST) / DEEPEST)
    counts, sums = (np.bincount(task.train, each, minlength=settings["vocabulary"]) for each in (None, deep))
    types = np.where(counts > 0, sums / np.maximum(counts, 1), 1.0)
    heads = told_by.centred(level_grades(settings["heads"], settings["clip"]))
    loss = Arm(types=types, weights=types / types[task.train].mean())
    return {
        "attention": Arm(heads=heads),
        "loss": loss,
        "all": replace(loss, grades=told_by.centred(grades["educated_coordinate"]), heads=heads),
        "learned": Arm(penalties=Penalties(magnitude=HOLD)),
        "learned_diverse": Arm(penalties=Penalties(magnitude=HOLD, diversity=DIVERSITY)),
        "parse_depth": replace(loss, weights=deep / deep.mean()),
    }


def grammar_arms(
    grammar: Brackets, task: Task, table: Array, level: NDArray[np.int64], settings: Settings
) -> tuple[dict[str, Arm], dict[str, Any]]:
    """Arms on brackets, whose level grades are right by construction, and the profiles and gains that they go by."""
    place = task.train[:-1] * grammar.vocabulary + task.train[1:]
    quarters = np.array_split(place, 4)
    met = [np.bincount(each, minlength=grammar.vocabulary**2) for each in quarters]
    read = told_by.profiles(table, np.array(met).reshape(4, grammar.vocabulary, -1).astype(np.float64))
    exact, clip = told_by.profiles(table, grammar.pair_law()[None], told_by.EXACT), settings["clip"]
    grades = {
        "taxonomic": level_grades(3, clip)[level],
        "reversed": level_grades(3, clip, reverse=True)[level],
        "educated_coordinate": educated(level, *read, clip)[1],
        "oracle": educated(level, *exact, clip)[1],
    }
    gains = {name: round(signed_gain(g, *exact), 5) for name, g in grades.items()} | {"uniform": 1.0}
    arms = {"uniform": Arm()} | {name: graded(g) for name, g in grades.items()} | halves(grades["oracle"])
    return arms, {"gain": gains}


CELLS: dict[str, Callable[..., dict[str, Arm]]] = {"anchored": anchored_arms, "clip": clip_arms, "levels": level_arms,
                                                   "components": component_arms, "energy": energy_arms}  # fmt: skip


def prefix(text: CodeText, settings: Settings, name: str, rate: float, seed: int, steps: int) -> dict[str, Any]:
    """Make the first `steps` steps of an arm of the cell "unanchored" again: the beginning of its recorded losses."""
    arm = unanchored_arms(settings, seed)[name]
    model = model_of(arm, None, settings, settings["vocabulary"], seed)
    return trained(text_task(text, settings["context"]), model, arm, rate, settings, seed, steps)


def _round(values: Any, digits: int) -> Any:
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()

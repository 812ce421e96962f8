"""Read-outs on a frozen representation: held-out error against sample size for every arm of the ladder (GLLM Sec. 8).

A run is one division of a corpus and a few samples of whole sentences, of which every size takes a prefix and all arms
read the same. An arm is a vector of grades; the read-out is linear, by the norm-ball rule of GLLM Prop. 7 and by tuned
ridge. Shapes: n tokens, d coordinates, k targets, p penalties, N sample sizes.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gllm_lib.analysis import probes
from gllm_lib.analysis.bases import LevelBasis, level_basis, live_directions
from gllm_lib.analysis.probes import Array, Moments
from gllm_lib.checks import InputError, sha256, write_bytes
from gllm_lib.corpora.annotated import AnnotatedCorpus
from gllm_lib.corpora.code import standard_library
from gllm_lib.corpora.cooccurrence import cooccurrence_embedding
from gllm_lib.studies import english
from gllm_lib.studies.division import Division, divided, factors_of
from gllm_lib.studies.encoder import encoder_folder
from gllm_lib.studies.english_measures import OPEN_CLASSES, rounded
from gllm_lib.studies.ladder import SMALLEST, arms, educated, level_grades, signed_gain
from gllm_lib.studies.plan import Plan
from gllm_lib.studies.readout_rules import both_rules, error, turned
from gllm_lib.studies.run import Job

WINDOW = 4  # tokens to either side of a code token that its representation and its embedding know
UNIT = 1e-5  # errors are recorded as whole numbers of this share of the target's variance
SELF = ("self_level", "self_coordinate")  # profile from the sample itself, so that grades depend on size and rule
CONTROLS = (  # what is repeated in a random rotation and along principal axes
    "uniform", "taxonomic", "reversed", "whitened", "educated_coordinate", "educated_coordinate_1024",
    "educated_coordinate_256", "oracle", "oracle_free", "sqrt_alpha", "transferred", "self_coordinate",
)  # fmt: skip


def cells(plan: Plan, *, treebanks: str | Path | None = None) -> list[str]:
    """The cells that can run: those on treebanks need the folder `treebanks`, the standard library is always there."""
    return [cell["id"] for cell in plan.fields["cells"] if treebanks is not None or "pattern" not in cell]


def prepare(plan: Plan, root: Path, *, treebanks: str | Path | None = None) -> dict[str, dict[str, str]]:
    """Make the frozen representation of every cell that can run, and return where it is.

    Raises FileError for a folder without the treebanks, MissingEncoderError without the encoder's packages.
    """
    cache, found = root / "build" / "encodings", {}
    for cell in plan.fields["cells"]:
        if cell["id"] not in cells(plan, treebanks=treebanks):
            continue
        folder = ""
        if "pattern" in cell:
            folder = str(english.treebank_folder(treebanks))
            encoder_folder()
            frozen = leading(english.treebank_vectors(folder, cell, cache)[1], cell["width"])
        else:
            frozen = leading(window_vectors(standard_library(), cell["width"] // 3), cell["width"])
        buffer = io.BytesIO()
        np.save(buffer, frozen, allow_pickle=False)
        path = write_bytes(cache / f"readouts-{cell['id']}.npy", buffer.getvalue())
        found[cell["id"]] = {"treebanks": folder, "vectors": str(path), "sha256": sha256(path)}
    return found


def window_vectors(corpus: AnnotatedCorpus, columns: int) -> Array:
    """Return a representation (n, 3 columns) of code: a token's co-occurrence vector, and those around it, summed.

    The sums run over `WINDOW` tokens to the left and to the right in the same document, weighted by 1/distance.
    """
    rare = getattr(corpus, "kinds", None)
    own = cooccurrence_embedding(
        corpus.tokens, corpus.document, dimension=columns, window=WINDOW, min_count=5, rare=rare
    ).tokens()
    left, right = np.zeros_like(own), np.zeros_like(own)
    for distance in range(1, WINDOW + 1):
        weight = (corpus.document[distance:] == corpus.document[:-distance])[:, None] / distance
        left[distance:] += weight * own[:-distance]
        right[:-distance] += weight * own[distance:]
    return np.hstack([own, left, right])


def leading(vectors: NDArray[np.floating[Any]], width: int) -> NDArray[np.float32]:
    """Return vectors (n, width) along the leading principal directions; raises InputError if fewer are live."""
    directions = live_directions(np.cov(vectors.astype(np.float64).T, bias=True))
    if directions.shape[1] < width:
        raise InputError(f"{directions.shape[1]} directions carry variance, fewer than the width {width}")
    return np.asarray(vectors @ directions[:, :width], dtype=np.float32)


def sentence_order(sentence: NDArray[np.int64], rows: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return `rows` with their sentences in random order, each sentence kept together."""
    _, codes = np.unique(sentence[rows], return_inverse=True)
    return rows[np.argsort(rng.permutation(int(codes.max()) + 1)[codes], kind="stable")]


@dataclass(frozen=True, eq=False)
class Samples:
    """Moments along the division's coordinates: documents that tune, documents that score, and what is learnt from.

    `train` has (place in `sizes`, moments) for every size of every sample, a size being a prefix of the larger ones.
    `profile` holds the samples of 256 and 1,024 labelled words that profiles are read from, and all of them; `opened`
    the centred second moments (d, d) of open-class words, or names in code, and of all, in role "basis".
    """

    sizes: list[int]
    train: list[tuple[int, Moments]]
    tune: Moments
    score: Moments
    profile: dict[str, Moments]
    opened: tuple[Array, Array]


def drawn(division: Division, columns: list[int], settings: Mapping[str, Any], seed: int) -> Samples:
    """Draw samples and labelled words for the targets in `columns`; sizes beyond the words there are are left out."""

    def prefixes(role_rows: NDArray[np.int64], ends: list[int], use: int) -> list[Moments]:
        order = sentence_order(division.corpus.sentence, role_rows, np.random.default_rng([seed, use]))
        values = division.outputs.values[:, columns]
        cut = list(itertools.pairwise([0, *ends]))
        parts = [probes.moments(division.z[order[a:b]], values[order[a:b]]) for a, b in cut]
        return [probes.pooled(parts[: number + 1]) for number in range(len(parts))]

    rows, labelled = division.rows("half_a", "half_b"), division.rows("penalty")
    if max(settings["labels"]) > len(labelled):
        raise InputError(f"{max(settings['labels'])} labelled words of {len(labelled)} for the profiles; ask for fewer")
    sizes = [size for size in settings["sizes"] if size <= len(rows)]
    train = [each for use in range(settings["samples"]) for each in enumerate(prefixes(rows, sizes, 30 + use))]
    tune, score = (division.of(role).select(columns) for role in ("penalty", "held_out"))
    few = zip(settings["labels"], prefixes(labelled, settings["labels"], 21), strict=True)
    return Samples(sizes, train, tune, score, {f"_{n}": part for n, part in few} | {"": tune}, class_moments(division))


def measure(job: Job, inputs: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Make one run: per basis, target and arm [gain, tau-free gauge, ball errors, tuned errors], errors in `UNIT`."""
    given, cell, settings = inputs[job.cell["id"]], job.cell, job.settings
    corpus = corpus_of(cell, given["treebanks"])
    division = divided(corpus, np.load(given["vectors"], allow_pickle=False), job.seed)
    names = [name for name in cell["targets"] if name in corpus.targets]
    columns = [division.outputs.columns[name][0] for name in names]
    samples = drawn(division, columns, settings, job.seed)
    factors, d = factors_of(division), division.z.shape[1]
    rotation = np.linalg.qr(np.random.default_rng([job.seed, 1]).normal(size=(d, d)))[0]
    quarter, none = np.arange(d) * len(corpus.levels) // d, np.zeros(len(corpus.levels), dtype=np.int64)
    controls = {"rotation": LevelBasis(rotation, quarter, none), "principal": LevelBasis(np.eye(d), quarter, none)}
    values: dict[str, Any] = {"annotated": {}, "rotation": {}, "principal": {}}
    filled = {}
    for number, name in enumerate(names):
        own = level_basis(factors.without(corpus.targets[name].own), factors.covariance)
        filled[name] = own.filled.tolist()
        for label, basis in ({"annotated": own} | controls).items():
            values[label][name] = curves(division, samples, basis, names, number, settings, job.seed, label)
    facts = {
        name: {"family": corpus.targets[name].family, "r2": rounded(division.r2[column]), "filled": filled[name]}
        for name, column in zip(names, columns, strict=True)
    }
    roles = {"sample": ("half_a", "half_b"), "profile": ("penalty",), "score": ("held_out",)}
    words = {role: len(division.rows(*parts)) for role, parts in roles.items()}
    return {
        "sizes": samples.sizes,
        "d": d,
        "words": words,
        "targets": facts,
        "vectors_sha256": given["sha256"],
        **values,
    }


def corpus_of(cell: Mapping[str, Any], folder: str) -> AnnotatedCorpus:
    """The annotated corpus of a cell."""
    return english.treebank(folder, cell["pattern"], cell["corpus"]) if "pattern" in cell else standard_library()


def curves(
    division: Division, samples: Samples, basis: LevelBasis, names: list[str], number: int,
    settings: Mapping[str, Any], seed: int, label: str,
) -> dict[str, list[Any]]:  # fmt: skip
    """Return per arm [gain, gauge, ball errors (N,), tuned errors (N,)] of one target in one basis, sample means."""
    tune, score = (turned(sample.select([number]), basis.vectors) for sample in (samples.tune, samples.score))
    truth, alpha, tau = limits(division, basis, names[number])
    clip = settings["clip"]
    grades = arm_grades(division, samples, basis, names, number, alpha, tau, clip, seed)
    plain_g = np.ones(len(truth))
    kept = [arm for arm in (*grades, *SELF) if label == "annotated" or arm in CONTROLS]
    errors = np.zeros((len(kept), 2, len(samples.sizes)))
    for place, sample in ((n, turned(each.select([number]), basis.vectors)) for n, each in samples.train):
        plain = both_rules(sample, plain_g, truth, tune)
        data = probes.data_profile(sample, centred=True)
        own = [  # a target that does not vary in a sample of few words has no profile there, and no grades
            educated(basis.level, probes.target_profile(weights), data, clip) if weights.any() else (plain_g, plain_g)
            for weights in plain
        ]
        for row, arm in enumerate(kept):
            if arm in SELF:
                pair = [both_rules(sample, own[rule][SELF.index(arm)], truth, tune)[rule] for rule in range(2)]
            else:
                pair = plain if arm == "uniform" else both_rules(sample, grades[arm], truth, tune)
            errors[row, :, place] += [error(weights, sample, score) for weights in pair]
    errors *= len(samples.sizes) / len(samples.train)
    report: dict[str, list[Any]] = {}
    for row, arm in enumerate(kept):
        g = grades.get(arm)
        gauge = None if g is None else rounded((alpha / g**2).sum() * np.exp(2 * np.log(g).mean()))
        gain = None if g is None else rounded(signed_gain(g, alpha, tau))
        report[arm] = [gain, gauge, *np.rint(errors[row] / UNIT).astype(int).tolist()]
    return report


def limits(division: Division, basis: LevelBasis, name: str) -> tuple[Array, Array, Array]:
    """Return what errors tend to, each (d,): weights w* of the words to learn from and to score, and both profiles."""
    whole = probes.pooled([division.of("half_a", "half_b"), division.of("held_out")])
    truth = basis.vectors.T @ fitted(division, whole, [division.outputs.columns[name][0]])[:, 0]
    return truth, probes.target_profile(truth), probes.data_profile(whole, basis.vectors, True)


def fitted(division: Division, sample: Moments, columns: list[int]) -> Array:
    """Ridge weights (d, k) at the division's penalties, scaled as the prior behind them asks at another sample size."""
    scale = division.of("penalty").count / sample.count
    chosen = sample.select(columns) if len(sample.y) > len(columns) else sample
    return probes.ridge_each(chosen, division.penalties[columns] * scale)


def arm_grades(
    division: Division, samples: Samples, basis: LevelBasis, names: list[str], number: int,
    alpha: Array, tau: Array, clip: float, seed: int,
) -> dict[str, Array]:  # fmt: skip
    """Return the grades (d,) of every arm whose grades do not depend on the sample.

    Educated arms know the labelled words of role "penalty", `transferred` the other targets of the family there; the
    oracle and the unclipped `oracle_free` = (alpha/tau)^(1/4) and `sqrt_alpha` know the profile that errors tend to.
    """
    rng, vectors = np.random.default_rng([seed, 22]), basis.vectors
    columns = [division.outputs.columns[name][0] for name in names]
    data = probes.data_profile(division.of("penalty"), vectors, True)
    profiles = {
        count: (vectors.T @ fitted(division, sample, columns)) ** 2 + 1e-300
        for count, sample in samples.profile.items()
    }
    shares = {count: weights / weights.sum(axis=0) for count, weights in profiles.items()}
    opened, total = ((vectors * (each @ vectors)).sum(axis=0) for each in samples.opened)
    found = arms(basis.level, shares[""][:, number], data, opened / total, clip, rng)
    found["token_class"] = found.pop("part_of_speech")
    del found["random_3"]
    levels = int(basis.level.max()) + 1
    straight = tuple(range(levels))
    mixed = [each for each in itertools.permutations(straight) if each not in (straight, straight[::-1])]
    for draw, place in enumerate(rng.permutation(len(mixed))[:2]):
        found[f"permuted_{draw}"] = level_grades(levels, clip)[list(mixed[place])][basis.level]
    for count in (each for each in shares if each):
        by_level, by_coordinate = educated(basis.level, shares[count][:, number], data, clip)
        found |= {f"educated_level{count}": by_level, f"educated_coordinate{count}": by_coordinate}
    family = [division.corpus.targets[name].family for name in names]
    others = [k for k in range(len(names)) if k != number and family[k] == family[number]]
    if others:
        found["transferred"] = educated(basis.level, shares[""][:, others].mean(axis=1), data, clip)[1]
    found["oracle"] = educated(basis.level, alpha, tau, clip)[1]
    lifted = probes.floored(alpha, SMALLEST)[0]
    free = {"oracle_free": (lifted / tau) ** 0.25, "sqrt_alpha": np.sqrt(lifted), "whitened": data**-0.5}
    return found | {arm: g / np.exp(np.log(g).mean()) for arm, g in free.items()}


def class_moments(division: Division) -> tuple[Array, Array]:
    """Centred second moments (d, d) of open-class words, or of names in code, and of all words, in role "basis"."""
    wanted = {"kind=name", *(f"upos={each}" for each in OPEN_CLASSES)}
    rows = division.rows("basis")
    columns = [name in wanted for name in division.corpus.columns["shape"]]
    opened = division.corpus.levels["shape"][rows][:, columns].sum(axis=1) > 0
    centred = division.z[rows] - division.z[rows].mean(axis=0)
    return centred[opened].T @ centred[opened], centred.T @ centred

"""What a model is: frozen configurations, checked when they are made, and parameter counts without a model.

D width, H heads, K = D/H head width, L levels, V vocabulary, T context
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import accumulate, pairwise
from typing import Any, Literal, get_args

import numpy as np

from gllm_lib.checks import InputError, InputTypeError, as_array, choose, count, flag, put, real
from gllm_lib.models.tables import HashedTables

Norm = Literal["layer", "rms"]
Position = Literal["learned", "sinusoidal", "rotary"]
FeedForwardKind = Literal["gelu", "relu", "swiglu", "geglu", "levels"]
Part = Literal["heads", "embedding", "output"]
_SHAPES = {
    "heads": "(K,), (H, K) or (layers, H, K) for H heads of width K",
    "embedding": "(L,) or (D,), one per level or per coordinate",
    "output": "(V,), one per entry of the vocabulary",
}
GATED = ("swiglu", "geglu", "levels")
# The largest scale and kappa. Norms and attention square what a scale multiplies, and float32 ends at 3.4e38: with
# scales up to 1e9, a sum of D squares or of K products is finite for states up to 1e10 / sqrt(D).
LARGEST = 1e9
CLIP_SLACK = 1e-6  # relative: a grade at the clip, held in float32, is off by a few units of 1e-7


def _set(target: Any, name: str, value: Any) -> None:
    object.__setattr__(target, name, value)  # a frozen dataclass normalises its own fields once, when made


def _nested(value: Any) -> Any:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


def _listed(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputTypeError(f"{name} is {value!r:.40}; give a tuple, such as ({value!r:.40},)")
    return tuple(value)


def _build(kind: Any, values: Mapping[str, Any]) -> Any:
    if not isinstance(values, Mapping):
        raise InputTypeError(f"{kind.__name__} is made from a mapping of its fields, not from {values!r:.40}")
    known = {field.name for field in fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise InputError(
            f"{kind.__name__} has no field {', '.join(unknown)}; its fields are {', '.join(sorted(known))}"
        )
    try:
        return kind(**values)
    except TypeError as error:
        if isinstance(error, InputTypeError):
            raise
        raise InputError(f"{kind.__name__} is incomplete: {error}") from error


@dataclass(frozen=True)
class Grading:
    """Which parts of a model are graded, and how; every part is independent and None or False leaves it ungraded.

    A grade q scales by base**q, which lies in [1, clip]; a multiplier g, as gllm_lib.grading.select gives, is the grade
    log(g) / log(base). Grades are numbers in nested tuples, lists or an array. Raises InputError or InputTypeError.

    - base: what is raised to a grade, above 1; clip: the largest scale, at least 1
    - levels: widths d_l of the levels, which sum to D; () is one level
    - heads: (K,), (H, K) or (layers, H, K): queries, keys, values (GLLM Eq. 11)
    - after_rotary: scale queries and keys after the rotation instead of before
    - embedding: (L,) or (D,): token embeddings (GLLM Eq. 13)
    - projection: trainable level projections (D, D); without them the levels are runs of coordinates
    - position: wavelengths within levels, scaled by the embedding grades (GLLM Eq. 16)
    - output: (V,): logits + kappa * output (GLLM Eq. 18)
    - kappa: the factor of output, above 0; None is log(base), the matched head of GLLM Rem. 14
    - learned: those of "heads", "embedding" and "output" whose grades training moves
    """

    base: float = 2.0
    clip: float = 2.0
    levels: Sequence[int] = ()
    heads: Sequence[Any] | None = None
    after_rotary: bool = False
    embedding: Sequence[float] | None = None
    projection: bool = False
    position: bool = False
    output: Sequence[float] | None = None
    kappa: float | None = None
    learned: Sequence[Part] = ()

    def __post_init__(self) -> None:
        put(self, real, "base", above=1.0)
        put(self, real, "clip", least=1.0, most=LARGEST)
        put(self, real, "kappa" * (self.kappa is not None), above=0.0, most=LARGEST)
        _set(self, "levels", tuple(count("levels", width) for width in _listed("levels", self.levels)))
        for part in get_args(Part):
            _set(self, part, None if getattr(self, part) is None else self._grades(part))
        for name in ("after_rotary", "projection", "position"):
            flag(name, getattr(self, name))
        _set(self, "learned", _listed("learned", self.learned))
        for part in self.learned:
            if part not in get_args(Part):
                raise InputError(f"learned names {part!r}; choose from {', '.join(get_args(Part))}")
            if getattr(self, part) is None:
                raise InputError(f"learned names {part!r}, which has no grades to start from; give {part}=(0.0, ...)")
        if self.after_rotary and self.heads is None:
            raise InputError("after_rotary is set and no heads are graded; give heads, or leave after_rotary out")

    def _grades(self, part: str) -> tuple[Any, ...]:
        array = as_array(part, getattr(self, part), "give grades as numbers, such as (0.0, 1.0)")
        if array.dtype.kind not in "iuf":
            raise InputTypeError(f"{part} holds {array.dtype} entries; give grades as numbers, such as (0.0, 1.0)")
        if array.size == 0 or array.ndim > (3 if part == "heads" else 1):
            raise InputError(f"{part} has shape {array.shape}; give grades of shape {_SHAPES[part]}")
        array = array.astype(np.float64)
        scales = self.base ** np.where(np.isfinite(array), array, np.inf)
        bad = np.argwhere(~np.isfinite(array) | (array < 0) | (scales > self.clip * (1 + CLIP_SLACK)))
        if len(bad):
            index = tuple(map(int, bad[0]))
            raise InputError(
                f"{part}{list(index)} is {array[index]:g} ({len(bad)} of {array.size} grades are not allowed); a grade "
                f"lies in [0, {self.top:g}], where base**q is in [1, clip] = [1, {self.clip:g}]: clip it or raise clip"
            )
        grades: tuple[Any, ...] = _nested(array.tolist())
        return grades

    @property
    def top(self) -> float:
        """The largest grade allowed, log(clip) / log(base)."""
        return math.log(self.clip) / math.log(self.base)

    @property
    def tilt(self) -> float:
        """The factor kappa of the output grades (GLLM Eq. 18)."""
        return math.log(self.base) if self.kappa is None else self.kappa


@dataclass(frozen=True)
class GPTConfig:
    """A decoder-only transformer; raises InputError or InputTypeError for sizes and options that do not go together.

    - vocabulary, context, width, layers, heads: V, T, D, number of blocks, H; H divides D
    - hidden: width of the feed-forward block; None is 4 D, gated 8/3 D up to a multiple of 8
    - norm: "layer" or "rms"; position: "learned", "sinusoidal" or "rotary"
    - feed_forward: "gelu", "relu", "swiglu", "geglu" or "levels", one GeGLU per level (GLLM Sec. 4.5)
    - bias: of all linear maps but the head, and of layer norms; tied: the head uses the embeddings; head_bias: (V,)
    - rotary_base: of the wavelengths of "rotary"; epsilon: of the norms; grading: a Grading, or None for a plain model
    - tables: HashedTables added to the token embeddings, whatever their grades, or None (OE Sec. 2.1)
    - input_norm: divide what enters the first block by its root mean square (OE Sec. 2.1), without weights
    - qk_norm: divide queries and keys by their root mean square, after the rotation
    - query_scale: then multiply queries by exp of a trained number per head and plane, 0 at first; needs "rotary"
    - query_mask: (layers, planes): the first layers, and everywhere the fastest planes, whose scale is held at 1
    """

    vocabulary: int
    context: int
    width: int
    layers: int
    heads: int
    hidden: int | None = None
    norm: Norm = "layer"
    position: Position = "learned"
    feed_forward: FeedForwardKind = "gelu"
    bias: bool = True
    tied: bool = True
    head_bias: bool = False
    rotary_base: float = 10000.0
    epsilon: float = 1e-5
    grading: Grading | None = None
    tables: HashedTables | None = None
    input_norm: bool = False
    qk_norm: bool = False
    query_scale: bool = False
    query_mask: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        put(self, count, "vocabulary context width layers heads" + " hidden" * (self.hidden is not None))
        for name, kind in (("norm", Norm), ("position", Position), ("feed_forward", FeedForwardKind)):
            choose(name, getattr(self, name), get_args(kind))
        for name in ("bias", "tied", "head_bias", "input_norm", "qk_norm", "query_scale"):
            flag(name, getattr(self, name))
        put(self, real, "rotary_base", above=1.0)
        put(self, real, "epsilon", above=0.0)
        if self.width % self.heads:
            raise InputError(f"width {self.width} is not divided by {self.heads} heads; choose a divisor of the width")
        if self.position == "rotary" and self.head_width % 2:
            raise InputError(f"rotary turns pairs, and the head width is {self.head_width}; make width / heads even")
        if self.grading is not None and not isinstance(self.grading, Grading):
            raise InputTypeError(f"grading is a {type(self.grading).__name__}; give a Grading, or None")
        self._check_grading(self.grading or Grading())
        if self.tables is not None:
            if not isinstance(self.tables, HashedTables):
                raise InputTypeError(f"tables is a {type(self.tables).__name__}; give HashedTables(modulus), or None")
            self.tables.columns(self.width, self.vocabulary)
        self._check_query()
        if self.feed_forward == "levels" and min(self.level_hidden) < 1:
            raise InputError(f"hidden {self.hidden_width} leaves a level of {self.level_widths} empty; raise hidden")

    def _check_query(self) -> None:
        if self.query_scale and not (self.qk_norm and self.position == "rotary"):
            raise InputError("query_scale acts on rotary planes after the norm; set qk_norm=True, position='rotary'")
        if self.query_mask is not None:
            if not self.query_scale:
                raise InputError("query_mask holds some query scales and there are none; set query_scale=True")
            if not isinstance(self.query_mask, tuple | list) or len(self.query_mask) != 2:
                raise InputTypeError(f"query_mask is {self.query_mask!r:.40}; give (layers, planes), such as (1, 2)")
            most = {"layers": self.layers, "planes": self.head_width // 2}
            pairs = zip(most.items(), self.query_mask, strict=True)
            _set(self, "query_mask", tuple(count(f"query_mask {name}", n, 0, top) for (name, top), n in pairs))

    def _check_grading(self, grading: Grading) -> None:
        if grading.levels and sum(grading.levels) != self.width:
            raise InputError(f"levels {grading.levels} sum to {sum(grading.levels)}; they must sum to {self.width}")
        heads = (self.layers, self.heads, self.head_width)
        shapes = {
            "heads": (heads[2:], heads[1:], heads),
            "embedding": ((len(self.level_widths),), (self.width,)),
            "output": ((self.vocabulary,),),
        }
        for part, allowed in shapes.items():
            shape = np.shape(getattr(grading, part)) if getattr(grading, part) is not None else allowed[0]
            if shape not in allowed:
                raise InputError(f"grades of {part} have shape {shape}; give {' or '.join(map(str, allowed))}")
        if grading.after_rotary and self.position != "rotary":
            raise InputError(f"after_rotary needs position 'rotary', not {self.position!r}; leave it out")
        if grading.position and self.position != "sinusoidal":
            raise InputError(f"a graded position is sinusoidal (GLLM Eq. 16), not {self.position!r}; change position")

    @property
    def head_width(self) -> int:
        """K = D / H."""
        return self.width // self.heads

    @property
    def hidden_width(self) -> int:
        """The width of the feed-forward block: `hidden`, or what stands for None."""
        gated = self.feed_forward in GATED
        return self.hidden or (-(-self.width // 3) * 8 if gated else 4 * self.width)

    @property
    def level_widths(self) -> tuple[int, ...]:
        """The widths d_l of the levels, (D,) where none are given."""
        return tuple(self.grading.levels) if self.grading and self.grading.levels else (self.width,)

    @property
    def level_hidden(self) -> tuple[int, ...]:
        """The share of each level in the hidden width, in proportion to its own width."""
        ends = [0, *(self.hidden_width * end // self.width for end in accumulate(self.level_widths))]
        return tuple(end - start for start, end in pairwise(ends))

    def uniform(self) -> GPTConfig:
        """Return the plain model of this size: no grading, and one GeGLU in place of those of the levels."""
        kind: FeedForwardKind = "geglu" if self.feed_forward == "levels" else self.feed_forward
        return replace(self, grading=None, feed_forward=kind)

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as plain values that JSON can hold, without newer options that are off."""
        newer = ("tables", "input_norm", "qk_norm", "query_scale", "query_mask")  # files from before them stay as good
        return {name: value for name, value in asdict(self).items() if value or name not in newer}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GPTConfig:
        """Return the configuration that `to_dict` wrote; raises InputError for a missing or an unknown field."""
        for name, kind in (("grading", Grading), ("tables", HashedTables)):
            if isinstance(values, Mapping) and isinstance(values.get(name), Mapping):
                values = {**values, name: _build(kind, values[name])}
        return _build(cls, values)


def gpt2_like(vocabulary: int, context: int, width: int, layers: int, heads: int, **changes: Any) -> GPTConfig:
    """Return a GPT-2-like configuration: LayerNorm, learned positions, GELU, biases, tied head; then `changes`."""
    return _build(GPTConfig, _sizes(vocabulary, context, width, layers, heads) | changes)


def llama_like(vocabulary: int, context: int, width: int, layers: int, heads: int, **changes: Any) -> GPTConfig:
    """Return a LLaMA-like configuration: RMSNorm, rotary, SwiGLU, no biases, untied head; then `changes`."""
    kind = {"norm": "rms", "position": "rotary", "feed_forward": "swiglu", "bias": False, "tied": False}
    return _build(GPTConfig, _sizes(vocabulary, context, width, layers, heads) | kind | changes)


def _sizes(vocabulary: int, context: int, width: int, layers: int, heads: int) -> dict[str, Any]:
    return {"vocabulary": vocabulary, "context": context, "width": width, "layers": layers, "heads": heads}


def _planned(vocabulary: int, width: int, head_width: int) -> Grading:
    return Grading(
        base=math.exp(1 / head_width),
        levels=(width // 4,) * 4,
        heads=(0.0,) * head_width,
        embedding=(0.0,) * 4,
        projection=True,
        output=(0.0,) * vocabulary,
        learned=("heads", "embedding", "output"),
    )


GLLM_MEDIUM = gpt2_like(50257, 1024, 1024, 24, 16, grading=_planned(50257, 1024, 64))  # GLLM Sec. 8.1.1
GLLM_7B = llama_like(32000, 2048, 4096, 32, 32, hidden=11008, epsilon=1e-6, grading=_planned(32000, 4096, 128))


def parameter_count(config: GPTConfig) -> dict[str, int]:
    """Return the trained numbers of a model by part, and their total, without allocating any (GLLM Sec. 8.1.3).

    Frozen grades and sinusoidal tables are not trained and count as none.
    """
    grading, width, bias, hidden = config.grading or Grading(), config.width, int(config.bias), config.hidden_width
    matrices = 3 if config.feed_forward in GATED else 2
    inner = width * hidden
    if config.feed_forward == "levels":
        inner = sum(w * h for w, h in zip(config.level_widths, config.level_hidden, strict=True))
    norm = width * (1 + bias * (config.norm == "layer"))
    grades = {"heads": config.layers * width, "embedding": width, "output": config.vocabulary}
    parts = {
        "embedding": config.vocabulary * width,
        "position": config.context * width * (config.position == "learned"),
        "attention": config.layers * 4 * (width**2 + bias * width),
        "query_scale": config.layers * width // 2 * config.query_scale,
        "feed_forward": config.layers * (matrices * inner + bias * ((matrices - 1) * hidden + width)),
        "norms": (2 * config.layers + 1) * norm,
        "head": config.vocabulary * (width * (not config.tied) + config.head_bias),
        "grades": sum(grades[part] for part in set(grading.learned)),
        "projections": width**2 * grading.projection,
        "tables": 0 if config.tables is None else sum(config.tables.rows) * config.tables.columns(width),
    }
    return parts | {"total": sum(parts.values())}

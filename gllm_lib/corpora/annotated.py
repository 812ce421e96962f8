"""An annotated corpus: tokens, their documents, one feature matrix per level, and scalar targets.

Shapes: n tokens, k columns of a level. Levels are ordered from the shallowest (token shape) to the deepest.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gllm_lib.checks import InputError

FAMILIES = ("hierarchical", "lexical")


@dataclass(frozen=True, eq=False)
class Target:
    """A scalar per token, shape (n,), with the level it belongs to and the columns that determine it.

    `own` names the feature columns, of any level, that have to be left out before a basis built from the
    annotation may be said to know nothing of the target. `family` is "hierarchical" or "lexical".
    """

    values: NDArray[np.float64]
    level: str
    family: str
    own: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class AnnotatedCorpus:
    """Tokens (n), their document and sentence numbers (n,), and per level a float32 matrix (n, k) with column names.

    `spaced[i]` says whether white space follows token i in the text. `notes` are sentences on what was skipped or
    is not annotated. Raises InputError if lengths differ or a name is used twice.
    """

    name: str
    tokens: tuple[str, ...]
    document: NDArray[np.int64]
    sentence: NDArray[np.int64]
    spaced: NDArray[np.bool_]
    document_names: tuple[str, ...]
    levels: Mapping[str, NDArray[np.float32]]
    columns: Mapping[str, tuple[str, ...]]
    targets: Mapping[str, Target]
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        n = len(self.tokens)
        if n == 0:
            raise InputError(f"the corpus {self.name!r} holds no token; give at least one document with text")
        lengths = {"document": len(self.document), "sentence": len(self.sentence), "spaced": len(self.spaced)}
        lengths |= {f"level {name}": len(matrix) for name, matrix in self.levels.items()}
        lengths |= {f"target {name}": len(target.values) for name, target in self.targets.items()}
        wrong = [f"{name} has {length}" for name, length in lengths.items() if length != n]
        if wrong:
            raise InputError(f"{n} tokens, but {', '.join(wrong)}; give one entry per token in each")
        names = [column for level in self.levels for column in self.columns[level]]
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise InputError(f"feature columns named twice: {', '.join(twice[:5])}; names are unique over all levels")

    def __len__(self) -> int:
        return len(self.tokens)

    def features(self, without: str | None = None) -> dict[str, NDArray[np.float32]]:
        """Return the level matrices, each (n, k'), with the own columns of the target `without` left out."""
        if without is None:
            return dict(self.levels)
        if without not in self.targets:
            raise InputError(f"no target {without!r} in {self.name}; there are {', '.join(self.targets)}")
        left_out = set(self.targets[without].own)
        return {
            level: matrix[:, [j for j, column in enumerate(self.columns[level]) if column not in left_out]]
            for level, matrix in self.levels.items()
        }

    def column(self, name: str) -> NDArray[np.float32]:
        """Return the feature column `name`, shape (n,), wherever it stands; raises InputError for an unknown name."""
        for level, names in self.columns.items():
            if name in names:
                return self.levels[level][:, names.index(name)]
        raise InputError(f"no feature column {name!r} in {self.name}; `.columns` lists them by level")


class LevelBuilder:
    """Collects the columns of one level, in order, and stacks them into (n, k) float32."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.arrays: list[NDArray[np.float32]] = []

    def add(self, name: str, values: Iterable[float] | NDArray[Any]) -> None:
        """Append one column."""
        self.names.append(name)
        self.arrays.append(np.asarray(values, dtype=np.float32))

    def add_categories(self, prefix: str, labels: Sequence[str], *, share: float) -> None:
        """Append an indicator column `prefix=label` for each label that marks at least `share` of the tokens.

        The empty label marks tokens without a category and gets no column.
        """
        counts = Counter(labels)
        counts.pop("", None)
        numbers = {label: j for j, label in enumerate(sorted(set(labels)))}
        codes = np.array([numbers[label] for label in labels], dtype=np.int64)
        for label in sorted(counts, key=lambda each: (-counts[each], each)):
            if counts[label] >= max(1.0, share * len(labels)):
                self.add(f"{prefix}={label}", codes == numbers[label])

    def matrix(self, n: int) -> NDArray[np.float32]:
        """Return the columns side by side, shape (n, k); columns that never vary are kept."""
        return np.stack(self.arrays, axis=1) if self.arrays else np.zeros((n, 0), dtype=np.float32)


def resolve_own(patterns: Iterable[str], columns: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the column names that match any shell-style pattern, in level order."""
    wanted = tuple(patterns)
    return tuple(
        name for names in columns.values() for name in names if any(fnmatch.fnmatchcase(name, p) for p in wanted)
    )

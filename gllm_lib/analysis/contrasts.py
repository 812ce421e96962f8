"""What few paired runs can say: intervals, exact tests and their floors, a pooled model, ratios, equivalence, power.

An arm holds one number per seed, in the same order of seeds in every arm; a contrast weighs arms with weights of sum
zero. Shapes: n seeds, k arms. The distributions are scipy's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import atan, copysign, inf, isinf, pi, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import brentq

from gllm_lib.checks import InputError, InputTypeError, Vector, count, real, vector

__all__ = [
    "BlockModel",
    "Estimate",
    "FTest",
    "RatioSet",
    "block_model",
    "contrast",
    "equivalence",
    "fieller",
    "holm",
    "power",
    "seeds_needed",
    "sign_flip_test",
    "sign_floor",
    "sign_test",
    "smallest_effect",
    "t_interval",
]

MOST_FLIPS, MOST_SEEDS, MOST_RUNS = 20, 100_000, 10**9  # 2^20 sign flips are enumerated
LARGEST = 1e150  # of a number, and of its inverse: doubles hold the squares


@dataclass(frozen=True)
class Estimate:
    """A mean contrast with its standard error, t interval and two-sided p-value against zero.

    `sd` is the standard deviation of one seed's contrast, `df` the degrees of freedom it was estimated with.
    """

    mean: float
    sd: float
    se: float
    df: int
    low: float
    high: float
    p: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of zero."""
        return self.low > 0 or self.high < 0


def _reach(level: float, df: int) -> float:
    return float(stats.t.ppf((1 + real("level", level, above=0.0, below=1 - 1e-12)) / 2, df))


def _estimate(mean: float, sd: float, n: int, df: int, level: float) -> Estimate:
    se = sd / sqrt(n)
    reach = _reach(level, df) * se
    p = 2 * float(stats.t.sf(abs(mean) / se, df)) if se > 0 else float(mean == 0)
    return Estimate(mean, sd, se, df, mean - reach, mean + reach, p)


def _paired(arms: Mapping[str, ArrayLike]) -> dict[str, Vector]:
    """Return the arms as arrays (n,) of one length n >= 2; raises InputError for others and for unfit units."""
    if not isinstance(arms, Mapping):
        raise InputTypeError(f"arms are a {type(arms).__name__}; give a mapping of each arm to its numbers by seed")
    found = {name: vector(name, values) for name, values in arms.items()}
    sizes = {name: len(values) for name, values in found.items()}
    if len(set(sizes.values())) != 1 or min(sizes.values()) < 2:
        raise InputError(f"seeds per arm are {sizes}; give the same seeds in every arm, at least 2")
    for name, values in found.items():
        if (most := float(np.abs(values).max())) and not 1 / LARGEST < most < LARGEST:
            raise InputError(f"{name} reaches {most:g}; give a unit in which it is from {1 / LARGEST:g} to {LARGEST:g}")
    return found


def contrast(arms: Mapping[str, ArrayLike], weights: Mapping[str, float]) -> Vector:
    """Return the contrast of each seed (n,): the arms weighed by `weights`, which sum to zero.

    Raises InputError for a weight on an unknown arm, for weights that do not sum to zero, or for unequal lengths.
    """
    _check_weights(arms, weights)
    found = _paired({name: arms[name] for name in weights})
    return np.asarray(sum(weight * found[name] for name, weight in weights.items()), dtype=np.float64)


def _check_weights(arms: Mapping[str, ArrayLike], weights: Mapping[str, float]) -> None:
    if not isinstance(weights, Mapping):
        raise InputTypeError(f"weights are {weights!r:.40}; give a mapping, such as {{'changed': 1, 'plain': -1}}")
    unknown = sorted(set(weights) - set(arms))
    if unknown or not any(weights.values()):
        raise InputError(f"weights name {unknown or 'no arm'}; the arms are {', '.join(arms)}")
    total = sum(real(f"the weight of {name}", weight) for name, weight in weights.items())
    if abs(total) > 1e-12 * max(map(abs, weights.values())):
        raise InputError(f"the weights sum to {total:g}; a contrast has weights of sum zero, such as 1 and -1")


def t_interval(differences: ArrayLike, level: float = 0.95) -> Estimate:
    """Return the mean of one difference per seed (n,) with Student's interval, n - 1 degrees of freedom.

    Raises InputError for fewer than two seeds or a level outside 0 to 1.
    """
    array = _paired({"differences": differences})["differences"]
    return _estimate(float(array.mean()), float(array.std(ddof=1)), len(array), len(array) - 1, level)


def sign_floor(n: int) -> float:
    """Return the smallest two-sided p-value that signs of n differences can reach, 2^(1 - n)."""
    return float(2.0 ** (1 - count("n", n, most=1000)))


def sign_test(differences: ArrayLike) -> float:
    """Return the two-sided p-value of the number of positive signs among n differences; zeros are left out."""
    array = vector("differences", differences)
    kept = array[array != 0]
    return float(stats.binomtest(int((kept > 0).sum()), len(kept)).pvalue) if len(kept) else 1.0


def sign_flip_test(differences: ArrayLike) -> float:
    """Return the share of the 2^n sign flips whose mean is at least as far from 0 as the one observed (n,).

    Raises InputError above 20 differences, where enumeration would not end.
    """
    array = vector("differences", differences)
    if len(array) > MOST_FLIPS:
        raise InputError(f"{len(array)} differences have 2^{len(array)} sign flips; give at most {MOST_FLIPS}")
    array = array / (np.abs(array).max() or 1.0)
    sums = np.zeros(1)
    for value in np.abs(array):
        sums = np.concatenate([sums + value, sums - value])
    slack = 1e-12 * float(np.abs(array).sum())  # n additions of doubles, each within half an ulp
    return float((np.abs(sums) >= abs(array.sum()) - slack).mean())


def holm(p_values: ArrayLike) -> Vector:
    """Return Holm's adjusted p-values (m,), in the order given; raises InputError for one outside 0 to 1."""
    array = vector("p_values", p_values)
    if array.min() < 0 or array.max() > 1:
        raise InputError(f"p_values run from {array.min():g} to {array.max():g}; give numbers from 0 to 1")
    order = np.argsort(array, kind="stable")
    stepped = np.maximum.accumulate(array[order] * np.arange(len(array), 0, -1))
    adjusted = np.empty_like(array)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


class FTest(NamedTuple):
    """An F statistic with its degrees of freedom and p-value."""

    statistic: float
    df: tuple[int, int]
    p: float


def _f_test(between: float, within: float, df: tuple[int, int]) -> FTest:
    statistic = between / within if within > 0 else inf if between > 0 else 0.0  # 0 / 0: nothing to explain
    return FTest(statistic, df, float(stats.f.sf(statistic, *df)))


@dataclass(frozen=True, eq=False)
class BlockModel:
    """Arm plus seed, fitted to k arms at n seeds: value = arm effect + seed effect + noise of one variance.

    `means` (k,) by arm, `seeds` (n,) seed effects of sum zero, `residuals` (k, n), `sd` their standard deviation with
    `df` = (k - 1)(n - 1) degrees of freedom.
    """

    arms: tuple[str, ...]
    means: Vector
    seeds: Vector
    residuals: Vector
    sd: float
    df: int

    def contrast(self, weights: Mapping[str, float], level: float = 0.95) -> Estimate:
        """Return a contrast with the pooled standard deviation; raises InputError as `contrast` does."""
        _check_weights(dict.fromkeys(self.arms, 0.0), weights)
        mean = sum(weight * self.means[self.arms.index(name)] for name, weight in weights.items())
        sd = self.sd * sqrt(sum(weight**2 for weight in weights.values()))
        return _estimate(float(mean), sd, len(self.seeds), self.df, level)

    def seed_test(self) -> FTest:
        """Return the F test of the seed effects: whether a seed is a block at all."""
        between = len(self.arms) * float((self.seeds**2).sum()) / (len(self.seeds) - 1)
        return _f_test(between, self.sd**2, (len(self.seeds) - 1, self.df))

    def additivity_test(self, group: Sequence[str] | None = None) -> FTest:
        """Return an F test of the model's assumption that a seed shifts every arm alike.

        Without a group, Tukey's: one degree of freedom for a product of arm and seed effects. With one, whether the
        seed effects of the arms in `group` differ from those of the others. Raises InputError for an unknown arm, an
        empty group or one that leaves no arm out, and where no degree of freedom is left.
        """
        k, n = self.residuals.shape
        if group is None:
            shape = np.outer(self.means - self.means.mean(), self.seeds)
            used, explained = 1, float((shape * self.residuals).sum()) ** 2 / max(float((shape**2).sum()), 1e-300)
        else:
            inside = np.array([name in group for name in self.arms])
            if set(group) - set(self.arms) or not inside.any() or inside.all():
                raise InputError(f"group is {list(group)}; name some of the arms {', '.join(self.arms)}, not all")
            parts = [self.residuals[rows].mean(axis=0) for rows in (inside, ~inside)]
            explained = float(inside.sum() * (parts[0] ** 2).sum() + (~inside).sum() * (parts[1] ** 2).sum())
            used = n - 1
        left = self.df - used
        if left < 1:
            raise InputError(f"{k} arms at {n} seeds leave no degree of freedom for this test; add arms or seeds")
        return _f_test(explained / used, (float((self.residuals**2).sum()) - explained) / left, (used, left))


def block_model(arms: Mapping[str, ArrayLike]) -> BlockModel:
    """Return the fit of arm plus seed; raises InputError for fewer than two arms or seeds, or unequal lengths."""
    found = _paired(arms)
    if len(found) < 2:
        raise InputError(f"there is one arm, {next(iter(found))}; a pooled model compares at least two")
    table = np.array(list(found.values()))
    means, seeds = table.mean(axis=1), table.mean(axis=0) - table.mean()
    residuals = table - means[:, None] - seeds
    df = (table.shape[0] - 1) * (table.shape[1] - 1)
    return BlockModel(tuple(found), means, seeds, residuals, sqrt(float((residuals**2).sum()) / df), df)


@dataclass(frozen=True)
class RatioSet:
    """An arc of the projective line: "interval" [low, high], "complement" of (low, high), or the whole "line"."""

    kind: str
    low: float
    high: float
    estimate: float

    def __contains__(self, ratio: float) -> bool:
        """Whether a ratio belongs to the set; infinity belongs to every unbounded one."""
        if self.kind == "complement":
            return isinf(ratio) or ratio <= self.low or ratio >= self.high
        return self.low <= ratio <= self.high

    @property
    def arc(self) -> tuple[float, float]:
        """Begin and end of the arc as angles 2 atan(ratio), so that ratio 0 is at 0 and infinity at pi."""
        if self.kind == "line":
            return -pi, pi
        low, high = 2 * atan(self.low), 2 * atan(self.high)
        return (high, low + 2 * pi) if self.kind == "complement" else (low, high)


def fieller(numerator: ArrayLike, denominator: ArrayLike, level: float = 0.95) -> RatioSet:
    """Return Fieller's set for mean(numerator) / mean(denominator), one pair per seed (n,).

    A ratio r is in the set if the t interval of numerator - r denominator contains zero. Raises InputError for unequal
    lengths, fewer than two seeds, or a denominator that is zero at every seed.
    """
    pair = _paired({"numerator": numerator, "denominator": denominator})
    top, bottom = pair["numerator"], pair["denominator"]
    if not bottom.any():
        raise InputError("the denominator is zero at every seed, and no ratio to it exists; give another arm")
    sizes = [float(np.abs(each).max()) or 1.0 for each in (top, bottom)]
    top, bottom = top / sizes[0], bottom / sizes[1]  # both of size 1: the roots of a r^2 - 2 b r + c lose no digits
    unit = sizes[0] / sizes[1]
    means = np.array([top.mean(), bottom.mean()])
    reach = _reach(level, len(top) - 1) ** 2 / len(top)
    (c, b), (_, a) = (np.outer(means, means) - reach * np.cov(top, bottom)).tolist()
    estimate = float(means[0] / means[1]) * unit if means[1] else inf
    under = b * b - a * c
    if a <= 0 and under <= 0:
        return RatioSet("line", -inf, inf, estimate)
    root = b + copysign(sqrt(max(under, 0.0)), b)
    low, high = sorted(((root / a if a else copysign(inf, -b)) * unit, (c / root if root else 0.0) * unit))
    return RatioSet("interval" if a > 0 else "complement", low, high, estimate)


def equivalence(differences: ArrayLike, margin: float, alpha: float = 0.05) -> tuple[float, float]:
    """Return the p-value of two one-sided t tests of |mean| < margin, and the least margin that alpha would allow.

    The tests show equivalence where the t interval of level 1 - 2 alpha lies inside the margin. Raises InputError for
    a margin or an alpha out of range.
    """
    margin, alpha = real("margin", margin, above=0.0), real("alpha", alpha, above=0.0, below=0.5)
    found = t_interval(differences, 1 - 2 * alpha)
    gap = margin - abs(found.mean)
    p = float(stats.t.sf(gap / found.se, found.df)) if found.se > 0 else float(gap <= 0)
    return p, max(abs(found.low), abs(found.high))


def power(effect: float, sd: float, n: int, level: float = 0.95, df: int | None = None) -> float:
    """Return the power of the two-sided t test on n differences of this mean and standard deviation.

    `df` defaults to n - 1; give that of a pooled `sd`. Raises InputError for a number out of range.
    """
    effect, sd, n = real("effect", effect), real("sd", sd, above=0.0), count("n", n, 2, MOST_RUNS)
    df = n - 1 if df is None else count("df", df, 1, MOST_RUNS)
    shift, least = n * min(abs(effect) / sd, 1e9) ** 2, _reach(level, df) ** 2
    if shift > 1e8:  # the mean's own noise is below a part in 10^4 then, and scipy's series ends too early
        return float(stats.chi2.cdf(df * shift / least, df))
    return float(stats.ncf.sf(least, 1, df, max(shift, 1e-12)))  # the square of a noncentral t; scipy fails at 0


def smallest_effect(sd: float, n: int, power_wanted: float = 0.8, level: float = 0.95, df: int | None = None) -> float:
    """Return the effect that n seeds detect with the wanted power.

    Raises InputError unless the power exceeds 1 - level, and where so few seeds at so high a level see no effect.
    """
    wanted, sd = _wanted(power_wanted, level), real("sd", sd, above=0.0, most=LARGEST)
    most = 1.0
    while power(most, 1.0, n, level, df) < wanted:
        most *= 2
        if most > 1e8:
            raise InputError(f"{n} seeds see no effect with power {wanted:g} at level {level:g}; add seeds or lower it")
    return sd * float(brentq(lambda effect: power(effect, 1.0, n, level, df) - wanted, 0.0, most))


def _wanted(power_wanted: float, level: float) -> float:
    return real("power_wanted", power_wanted, above=1 - real("level", level, above=0.0, below=1.0), below=1.0)


def seeds_needed(effect: float, sd: float, power_wanted: float = 0.8, level: float = 0.95) -> int:
    """Return the fewest seeds that detect `effect` with the wanted power; raises InputError beyond 100,000 seeds."""
    wanted = _wanted(power_wanted, level)
    if power(effect, sd, MOST_SEEDS, level) < wanted:
        raise InputError(f"effect {effect:g} is too small beside sd {sd:g} for {MOST_SEEDS:,} seeds; give a larger one")
    return 2 + bisect_left(range(2, MOST_SEEDS), True, key=lambda n: power(effect, sd, n, level) >= wanted)

"""What a prefix costs to keep and attempts cost to make, as closed forms (FTIP 3.7.4, 3.7.9, l. 149-189).

Whole numbers and Fractions in, exact answers out: a floor decides, and a float next to a whole number decides wrongly.

T context, b batch, kappa bytes a token and layer, sigma bytes of a state, B budget, c cost of an attempt,
f share of generation in it, s speed factor of generation, S throughput factor, N attempts, p success rate
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, expm1, inf, log, log1p, prod
from numbers import Rational
from typing import Any

from gllm_lib.checks import InputError, InputTypeError, count

Exact = int | Fraction


def _exact(name: str, value: Any, least: int = 0, most: float = inf, above: bool = False) -> Fraction:
    """Return a whole number or Fraction in least <= value <= most, or above least, as a Fraction."""
    if isinstance(value, bool) or not isinstance(value, Rational):
        raise InputTypeError(f"{name} is {value!r:.40}; give a whole number or a Fraction, such as Fraction('0.1')")
    number = Fraction(int(value.numerator), int(value.denominator))  # numpy's own would overflow in silence
    if number < least or number > most or (above and number == least):
        allowed = f"{'above' if above else 'of at least'} {least}" + (f" and at most {most}" if most < inf else "")
        raise InputError(f"{name} is {number}; give a number {allowed}")
    return number


@dataclass(frozen=True)
class LayerMix:
    """A stack of which `full` layers keep every token and the others one state of fixed size (FTIP 3.7.4, l. 127).

    - layers: n; full: n_f, from 0 to n
    - token_bytes: kappa > 0, bytes that a full layer keeps of a token; state_bytes: sigma > 0, bytes of a state

    Raises InputError, and InputTypeError for floats.
    """

    layers: int
    full: int
    token_bytes: Exact
    state_bytes: Exact

    def __post_init__(self) -> None:
        """Check all fields."""
        object.__setattr__(self, "layers", count("layers", self.layers))
        object.__setattr__(self, "full", count("full", self.full, 0, self.layers))
        for name in ("token_bytes", "state_bytes"):
            object.__setattr__(self, name, _exact(name, getattr(self, name), above=True))


def delta_state_bytes(
    heads: int, key_width: int, value_width: int, taps: int = 4, number_bytes: int = 4, tap_bytes: int = 2
) -> int:
    """Return sigma of a gated delta layer: its matrix state and the last `taps` inputs of three convolutions.

    heads key_width value_width numbers of `number_bytes`, and taps heads (2 key_width + value_width) of `tap_bytes`
    (FTIP l. 127). Raises InputError and InputTypeError.
    """
    heads, keys, values = count("heads", heads), count("key_width", key_width), count("value_width", value_width)
    matrix = heads * keys * values * count("number_bytes", number_bytes)
    return matrix + count("taps", taps, 0) * heads * (2 * keys + values) * count("tap_bytes", tap_bytes)


def active_bytes(mix: LayerMix, context: int, batch: int = 1) -> Fraction:
    """Return the bytes of active attention state, b (n_f kappa T + (n - n_f) sigma) (FTIP 3.7.4)."""
    growing = mix.full * mix.token_bytes * count("context", context)
    return Fraction(count("batch", batch) * (growing + (mix.layers - mix.full) * mix.state_bytes))


def bytes_ratio(mix: LayerMix, context: int) -> Fraction:
    """Return the mix's active bytes over those of as many full layers; below 1 exactly above threshold(mix)."""
    return active_bytes(mix, context) / (mix.layers * mix.token_bytes * context)


def threshold(mix: LayerMix) -> Fraction:
    """Return sigma / kappa, the context in tokens at which a state weighs as much as a cache (FTIP 3.7.4)."""
    return Fraction(mix.state_bytes) / mix.token_bytes


def context_saving(mix: LayerMix, share: Exact) -> int:
    """Return the least context at which the mix saves this share of the bytes of as many full layers.

    Raises InputError if no context does: the share saved stays below (n - n_f) / n.
    """
    most = 1 - Fraction(mix.full, mix.layers)
    if _exact("share", share) >= most:
        raise InputError(f"share is {share}; the mix saves less than {most} at every context, give a smaller one")
    return max(1, ceil(threshold(mix) * most / (most - share)))


def sequences(mix: LayerMix, memory: Exact, context: int) -> int:
    """Return how many sequences of this context fit in `memory` bytes of active state (FTIP l. 133)."""
    return int(_exact("memory", memory) // active_bytes(mix, context))


def throughput(share: Exact, speed: Exact) -> Fraction:
    """Return S = 1 / (1 - f + f/s), attempts per cost over those at s = 1; f in [0, 1], s > 0 (FTIP 3.7.9)."""
    f = _exact("share", share, most=1)
    return 1 / (1 - f + f / _exact("speed", speed, above=True))


def attempts(budget: Exact, cost: Exact, share: Exact = 0, speed: Exact = 1) -> int:
    """Return N = floor(B S / c), the attempts that a budget pays for (FTIP l. 149)."""
    paid = _exact("budget", budget) / _exact("cost", cost, above=True)
    return int(paid * throughput(share, speed) // 1)


def speed_for_attempts(number: int, budget: Exact, cost: Exact, share: Exact) -> Fraction | float:
    """Return the least s at which the budget pays for so many attempts, inf if none does; f in (0, 1]."""
    f = _exact("share", share, most=1, above=True)
    left = _exact("budget", budget) / (_exact("cost", cost, above=True) * count("number", number)) - (1 - f)
    return f / left if left > 0 else inf


def discovery(rate: Exact, number: int, correlation: Exact = 0) -> Fraction:
    """Return the chance that one of N attempts succeeds: 1 - (1 - p)^N if they are independent (FTIP l. 149).

    With correlation r in [0, 1] between any two, success rates are beta distributed with mean p and variance
    r p (1 - p), and attempts are independent given the rate (FTIP l. 155). No attempt discovers nothing.
    """
    p, r = _exact("rate", rate, most=1), _exact("correlation", correlation, most=1)
    if count("number", number, 0) == 0:
        return Fraction(0)
    later = (((1 - p) * (1 - r) + i * r) / (1 - r + i * r) for i in range(1, number))
    return 1 - (1 - p) * prod(later, start=Fraction(1))


def break_even(rate: Exact, number: int, other_number: int) -> float:
    """Return 1 - (1 - p)^(N/N'), the least rate of N' attempts that discover as often as N of rate p (FTIP l. 149).

    A float: `discovery` decides exactly on which side a rate lies.
    """
    p, power = _exact("rate", rate, most=1), Fraction(count("number", number), count("other_number", other_number))
    if p == 1:
        return 1.0
    left = 1 - p  # as a quotient of whole numbers, whose logarithms have no end
    logarithm = log1p(-float(p)) if 2 * p < 1 else log(left.numerator) - log(left.denominator)
    return -expm1(float(min(power, Fraction(2**63))) * logarithm)  # no float is near enough to 0 for more attempts

"""The graded objective and the penalties on grades (GLLM Sec. 5.1, 5.2).

Shapes: B batch, T positions, V vocabulary, H heads, K head width, D width, L levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from gllm_lib.checks import InputError, InputTypeError, count, real


def token_losses(logits_BTV: Float[Tensor, "B T V"], targets_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Negative log-likelihood of every target in nats, the summands of GLLM Eq. 3.

    Raises InputError if shapes disagree or a target is out of range, InputTypeError if targets are no integers.
    """
    targets_BT = _checked_targets(targets_BT, logits_BTV)
    flat = functional.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="none")
    return flat.view_as(targets_BT)


def graded_loss(
    logits_BTV: Float[Tensor, "B T V"],
    targets_BT: Int[Tensor, "B T"],
    weights_BT: Float[Tensor, "B T"] | None = None,
    sequence_weights_B: Float[Tensor, " B"] | None = None,
) -> Float[Tensor, ""]:
    """Mean over the B T positions of weight x loss: GLLM Eq. 19, averaged over the batch and divided by T.

    `weights_BT` are base**q, taken as they are: divide them by their mean to keep the scale of the uniform loss. The
    divisor is the number of positions and not the sum of the weights, so equal micro-batches average to the batch.
    `sequence_weights_B` is w(y) of Eq. 20; it moves the minimiser unless E[w | y_1..y_t] does not depend on y_t.
    Raises InputError and InputTypeError as `token_losses` does, and InputError if shapes of weights disagree. A NaN in
    logits or weights is passed on, as torch does; `train` stops at one.
    """
    if weights_BT is None and sequence_weights_B is None:
        targets_BT = _checked_targets(targets_BT, logits_BTV)
        return functional.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())
    losses_BT = token_losses(logits_BTV, targets_BT)
    if weights_BT is not None:
        _same_positions("weights", weights_BT, logits_BTV)
        losses_BT = losses_BT * weights_BT
    if sequence_weights_B is not None:
        if sequence_weights_B.shape != losses_BT.shape[:1]:
            raise InputError(
                f"sequence weights have shape {tuple(sequence_weights_B.shape)}; give one per sequence, "
                f"({losses_BT.shape[0]},)"
            )
        losses_BT = losses_BT * sequence_weights_B[:, None]
    return losses_BT.mean()


def magnitude_penalty(*grades: Tensor) -> Float[Tensor, ""]:
    """Sum of squares of all grades given, ||q||^2 of GLLM Eq. 20."""
    return torch.stack([each.square().sum() for each in grades]).sum()


def orthogonality_penalty(projection_DD: Float[Tensor, "D E"], levels: Sequence[int] = ()) -> Float[Tensor, ""]:
    """Sum over pairs of levels of ||P_l^T P_m - [l = m] I||_F^2, P = [P_0 | P_1 | ...] (GLLM Sec. 4.1).

    The blocks tile P^T P - I, so the cut into `levels` changes nothing, and for square P this is ||I - P P^T||_F^2.
    Raises InputError if the level widths do not sum to the columns of P.
    """
    columns = projection_DD.shape[1]
    if levels and sum(levels) != columns:
        raise InputError(f"levels {tuple(levels)} sum to {sum(levels)}; they share the {columns} columns of P")
    gram = projection_DD.T @ projection_DD
    return (gram - torch.eye(columns, dtype=gram.dtype)).square().sum()


def diversity_penalty(head_grades_HK: Float[Tensor, "... H K"]) -> Float[Tensor, ""]:
    """Sum over pairs of heads of ||q_h - q_h'||^2, within each layer; GLLM Eq. 20 subtracts it, so heads repel."""
    heads = head_grades_HK.shape[-2]
    centred = head_grades_HK - head_grades_HK.mean(dim=-2, keepdim=True)
    return heads * centred.square().sum()  # the pairwise form, without the cancellation of H sum |q|^2 - |sum q|^2


@dataclass(frozen=True)
class Penalties:
    """Coefficients of the three terms on the grades in GLLM Eq. 20, nonnegative; 0 leaves a term out.

    Repelling heads need a magnitude term that holds them (see `threshold`); `allow_unbounded` lets them go without.
    """

    magnitude: float = 0.0
    orthogonality: float = 0.0
    diversity: float = 0.0
    allow_unbounded: bool = False

    def __post_init__(self) -> None:
        for name in ("magnitude", "orthogonality", "diversity"):
            object.__setattr__(self, name, real(name, getattr(self, name), least=0))  # Eq. 20's signs are built in

    def threshold(self, heads: int, nonnegative: bool = True) -> float:
        """What `magnitude` must exceed for the pair to be coercive in the grades of `heads` heads.

        diversity x (H - 1) on nonnegative grades, where |sum q|^2 >= sum |q|^2; diversity x H on all of space (GLLM
        Eq. 21); 0 for one head, which has nobody to repel. Raises InputError if there is no head.
        """
        heads = count("heads", heads)
        return self.diversity * (heads - 1 if nonnegative or heads == 1 else heads)

    def coercive(self, heads: int, nonnegative: bool = True) -> bool:
        """Whether magnitude ||q||^2 - diversity sum ||q_h - q_h'||^2 grows without bound with ||q||."""
        return self.magnitude > self.threshold(heads, nonnegative)

    def require_coercive(self, heads: int, nonnegative: bool = True) -> None:
        """Raise InputError if heads repel and nothing holds them, unless `allow_unbounded` is set."""
        if self.allow_unbounded or not self.diversity or heads == 1 or self.coercive(heads, nonnegative):
            return
        where = "on nonnegative grades" if nonnegative else "on grades of either sign"
        factor = "H - 1" if nonnegative else "H"
        raise InputError(
            f"magnitude {self.magnitude:g} does not hold {heads} heads that repel with diversity {self.diversity:g}: "
            f"{where} the two terms grow without bound only if magnitude > diversity x ({factor}) = "
            f"{self.threshold(heads, nonnegative):g}; raise one, lower the other, or set allow_unbounded=True"
        )

    def value(self, grades: Mapping[str, Tensor], levels: Sequence[int] = ()) -> Float[Tensor, ""] | float:
        """The three terms of GLLM Eq. 20, signs included, on grades by part as `GPT.grades()` names them.

        The parts are heads (..., H, K), embedding, output and projection (D, D); 0.0 if no term applies.
        """
        total: Tensor | float = 0.0
        numbers = [each for name, each in grades.items() if name != "projection"]
        if self.magnitude and numbers:
            total = total + self.magnitude * magnitude_penalty(*numbers)
        if self.orthogonality and "projection" in grades:
            total = total + self.orthogonality * orthogonality_penalty(grades["projection"], levels)
        if self.diversity and "heads" in grades:
            total = total - self.diversity * diversity_penalty(grades["heads"])
        return total


def _checked_targets(targets_BT: Tensor, logits_BTV: Tensor) -> Tensor:
    """Return the targets as cross-entropy takes them; it would leave out -100 and divide by another number."""
    for name, value in (("targets", targets_BT), ("logits", logits_BTV)):
        if not isinstance(value, Tensor):
            raise InputTypeError(f"{name} are a {type(value).__name__}; give a tensor")
    if logits_BTV.ndim != 3 or not logits_BTV.numel() or not logits_BTV.is_floating_point():
        raise InputError(f"logits are {logits_BTV.dtype} of shape {tuple(logits_BTV.shape)}; give floats, (B, T, V)")
    _same_positions("targets", targets_BT, logits_BTV)
    kind, types = targets_BT.dtype, logits_BTV.shape[-1]
    if kind.is_floating_point or kind.is_complex or kind == torch.bool:
        raise InputTypeError(f"targets are {kind}; give integers from 0 to {types - 1}")
    targets_BT = targets_BT.long()
    least, most = (int(end) for end in targets_BT.aminmax())
    if least < 0 or most >= types:
        raise InputError(
            f"target {least if least < 0 else most} is out of range; logits are of 0 to {types - 1}: leave a position "
            "out by a weight of 0"
        )
    return targets_BT


def _same_positions(name: str, value: Tensor, logits_BTV: Tensor) -> None:
    if value.shape != logits_BTV.shape[:2]:
        raise InputError(
            f"{name} have shape {tuple(value.shape)} and logits {tuple(logits_BTV.shape)}; give {name} of shape "
            f"{tuple(logits_BTV.shape[:2])}, one per position"
        )

"""Direct preference optimisation and its graded variant (GLLM Sec. 5.4).

Shapes: B pairs, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from gllm_lib.checks import InputError, InputTypeError, real
from gllm_lib.training.loss import token_losses


def sequence_log_probability(
    model: Callable[[Tensor], Tensor],
    tokens_BT: Int[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
    weights: Float[Tensor, " V"] | Float[Tensor, "B T"] | None = None,
) -> Float[Tensor, " B"]:
    """Log-probability in nats of the tokens under the mask, each given all before it: log pi(y | x) of GLLM Eq. 22.

    The mask marks the response y; prompt and padding stay outside. `weights` make the graded variant (GLLM Sec. 5.4):
    one per type, (V,), such as base**q_out, or one per token of `tokens_BT`. Either kind moves the least policy, and
    neither brings a tilt back. Raises InputError for other shapes or a masked first token, which nothing predicts.
    """
    if mask_BT.dtype != torch.bool:
        raise InputTypeError(f"mask holds {mask_BT.dtype}; give booleans, True where the response stands")
    if mask_BT.shape != tokens_BT.shape or tokens_BT.ndim != 2 or tokens_BT.shape[1] < 2:
        raise InputError(
            f"tokens have shape {tuple(tokens_BT.shape)} and mask {tuple(mask_BT.shape)}; give both as (B, T), T >= 2"
        )
    if bool(mask_BT[:, 0].any()):
        raise InputError("the mask holds the first token, which nothing predicts; put a prompt or start symbol before")
    targets_BT = tokens_BT[:, 1:]
    logits_BTV = model(tokens_BT[:, :-1])
    counted = mask_BT[:, 1:].to(logits_BTV.dtype)
    if weights is not None:
        if weights.shape not in (logits_BTV.shape[-1:], tokens_BT.shape):
            raise InputError(
                f"weights have shape {tuple(weights.shape)}; give one per type, ({logits_BTV.shape[-1]},), or one per "
                f"token, {tuple(tokens_BT.shape)}"
            )
        counted = counted * (weights[targets_BT] if weights.ndim == 1 else weights[:, 1:])
    return -(token_losses(logits_BTV, targets_BT) * counted).sum(dim=1)


def dpo_loss(
    policy_chosen: Float[Tensor, " B"],
    policy_rejected: Float[Tensor, " B"],
    reference_chosen: Float[Tensor, " B"],
    reference_rejected: Float[Tensor, " B"],
    beta: float,
) -> Float[Tensor, ""]:
    """Mean of -log sigma(beta x margin) over pairs of log-probabilities, without overflow (GLLM Eq. 22).

    Raises InputError unless 0 < beta < infinity and all four have one shape. A NaN is passed on, as torch does.
    """
    beta = real("beta", beta, above=0)  # the inverse temperature of the reward
    given = (policy_chosen, policy_rejected, reference_chosen, reference_rejected)
    if len({tuple(each.shape) for each in given}) > 1:
        raise InputError(f"shapes differ: {[tuple(each.shape) for each in given]}; give one number per pair in each")
    margin = (policy_chosen - reference_chosen) - (policy_rejected - reference_rejected)
    return -functional.logsigmoid(beta * margin).mean()

"""A linear read-out in graded coordinates, by the norm-ball rule of GLLM Prop. 7 and by ridge with a tuned penalty.

Everything starts from centred `Moments` of one target. Shapes: d coordinates, p penalties.
"""

from __future__ import annotations

import numpy as np

from gllm_lib.analysis import probes
from gllm_lib.analysis.probes import Array, Moments

PENALTIES = 10.0 ** np.arange(-6.0, 2.1, 0.5)  # the tuned rule's grid, in units of the mean graded variance


def turned(sample: Moments, vectors: Array) -> Moments:
    """Moments of the coordinates along the columns of an orthonormal `vectors` (d, d)."""
    xx, xy = vectors.T @ sample.xx @ vectors, vectors.T @ sample.xy
    return Moments(sample.count, sample.x @ vectors, sample.y, xx, xy, sample.yy)


def read_out(train: Moments, g: Array, budget: float) -> tuple[Array, Array]:
    """Return the weights of one target by both rules, tuned (p, d) at every penalty and ball (d,).

    In graded coordinates G x: ridge, its penalties in units of the mean graded variance, and least squares in the ball
    ||G^-1 w|| <= budget. Both have an intercept.
    """
    values, vectors = np.linalg.eigh(train.covariance() * np.outer(g, g))
    values, rotated = np.maximum(values, 0.0), vectors.T @ (g * train.cross_covariance()[:, 0])
    penalties = [*(PENALTIES * values.mean()), ball_penalty(values, rotated, budget)]
    weights = (g[:, None] * (vectors @ (rotated[:, None] / (values[:, None] + penalties)))).T
    return weights[:-1], weights[-1]


def ball_penalty(values: Array, rotated: Array, budget: float) -> float:
    """Return the ridge penalty at which sum_j (rotated_j / (values_j + penalty))^2 = budget^2, by bisection.

    If least squares is inside the ball already, that is a millionth of a millionth of the mean value.
    """
    low = 1e-12 * float(values.mean())
    high = low + float(np.linalg.norm(rotated)) / budget
    if np.linalg.norm(rotated / (values + low)) <= budget:
        return low
    for _ in range(50):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if np.linalg.norm(rotated / (values + middle)) > budget else (low, middle)
    return high


def both_rules(sample: Moments, g: Array, truth: Array, tune: Moments) -> list[Array]:
    """Weights (d,) by the ball rule, at the budget ||G^-1 truth||, and by ridge tuned on other documents."""
    tuned, ball = read_out(sample, g, float(np.linalg.norm(truth / g)))
    return [ball, best(tuned, sample, tune)]


def best(weights: Array, train: Moments, tune: Moments) -> Array:
    """Return the weights (d,) of the penalty that does best on the tuning documents, the largest of equals."""
    scores = probes.held_out_r2(weights[..., None], train, tune)[:, 0]
    return weights[len(scores) - 1 - int(np.argmax(scores[::-1]))]


def error(weights: Array, train: Moments, test: Moments) -> float:
    """Squared error on the test documents as a share of the target's variance."""
    return 1.0 - float(probes.held_out_r2(weights[:, None], train, test)[0])

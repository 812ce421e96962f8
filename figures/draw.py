"""Draw the cover and README's figures: `.venv/bin/python figures/draw.py`. The same bytes on every run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from gllm_lib.book import INK
from gllm_lib.book.figures import COLOURS, figure, save_svg
from gllm_lib.grading import gain, select

ALPHA, TAU = [0.8, 0.2], [0.2, 0.8]  # the target sits where the data is weak

TURNS = 48  # starts around the circle; a multiple of 4, so that quarter turns are among them
TARGET = np.array([[1.6, 0.2, -0.4], [0.3, -1.2, 0.5], [-0.6, 0.5, 1.0]])
START = np.array([[0.54, 0.06], [-0.12, 0.3], [0.15, -0.18], [0.12, -0.36], [0.42, 0.18], [-0.06, 0.48]])  # U over V


def gain_of_a_grade(folder: Path) -> Path:
    """Draw the gain of grades (r, 1) against r, with equal grades, the best grades and the best under a clip."""
    ratios = np.geomspace(0.4, 6, 200)
    fig, ax = figure(width=7, height=3)
    ax.semilogx(ratios, [gain([r, 1.0], ALPHA, TAU) for r in ratios])
    marks = {"equal grades": 1.0, "best under clip 1.4": select(ALPHA, TAU, clip=1.4).g[0]}
    marks["best of all"] = select(ALPHA, TAU).g[0]
    places = ((8, 6), (6, 10), (-28, -20))  # of the words beside the marks, in points
    for (name, r), marker, place in zip(marks.items(), "osD", places, strict=True):
        ax.plot(r, gain([r, 1.0], ALPHA, TAU), marker, color=COLOURS["orange"])
        ax.annotate(name, (r, gain([r, 1.0], ALPHA, TAU)), xytext=place, textcoords="offset points")
    ax.set(
        xlabel="grade of the first coordinate, the second at 1", ylabel="gain Λ (smaller is better)", ylim=(0.25, 2.6)
    )
    ax.set_xticks([0.5, 1, 2, 4], ["1/2", "1", "2", "4"])
    ax.minorticks_off()
    return save_svg(fig, folder / "gain.svg")


def turned_runs(steps: int, rate: float, *, adam: bool) -> Any:
    """Return the paths (step, turn, row, 2) of two factors whose product learns TARGET, from every turned start.

    A turn of both factors changes neither the product nor the loss. The rule is momentum 0.9 or Adam.
    """
    angles = 2 * np.pi * np.arange(TURNS) / TURNS
    turn = np.array([[np.cos(angles), np.sin(angles)], [-np.sin(angles), np.cos(angles)]]).transpose(2, 0, 1)
    weights = START @ turn
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    path = [weights]
    for step in range(1, steps + 1):
        u, v = weights[:, :3], weights[:, 3:]
        error = u @ v.transpose(0, 2, 1) - TARGET
        gradient = np.concatenate([error @ v, error.transpose(0, 2, 1) @ u], axis=1)
        first = 0.9 * first + (0.1 if adam else 1.0) * gradient
        second = 0.99 * second + 0.01 * gradient**2
        scale = (1 - 0.9**step) * (np.sqrt(second / (1 - 0.99**step)) + 1e-8) if adam else 1.0
        weights = weights - rate * first / scale
        path.append(weights)
    return np.array(path)


def cover(folder: Path) -> Path:
    """Draw the three rows of the factor U over all turned starts: a rosette under momentum, none under Adam."""
    fig, axes = figure(width=9.2, height=4.6, ncols=2)
    with mpl.rc_context({"path.simplify_threshold": 0.4}):  # a third of a pixel: a page of lines, not a megabyte
        for ax, adam in zip(axes, (False, True), strict=True):
            path = turned_runs(160, 0.015, adam=True) if adam else turned_runs(200, 0.02, adam=False)
            gap = np.full((1, TURNS, 2), np.nan)  # between one run and the next
            for row, name in enumerate(("indigo", "orange", "sky")):
                x, y = np.concatenate([path[:, :, row], gap]).transpose(2, 1, 0).reshape(2, -1)
                ax.plot(*path[0, :, row].T, "o", color=INK, markersize=1.2, markeredgewidth=0)  # where they start
                ax.plot(x, y, "-", color=COLOURS[name], linewidth=0.7)
                ax.plot(*path[-1, :, row].T, "o", color=COLOURS[name], markersize=2, markeredgewidth=0)
            ax.set_aspect("equal")
            ax.axis("off")
        return save_svg(fig, folder / "cover.svg")


if __name__ == "__main__":
    here = Path(__file__).parent
    print(gain_of_a_grade(here), cover(here), sep="\n")

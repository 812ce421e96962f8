"""Draw the figures that README.md shows: `.venv/bin/python figures/draw.py`. The same bytes on every run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gllm_lib.book.figures import COLOURS, figure, save_svg
from gllm_lib.grading import gain, select

ALPHA, TAU = [0.8, 0.2], [0.2, 0.8]  # the target sits where the data is weak


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


if __name__ == "__main__":
    print(gain_of_a_grade(Path(__file__).parent))

"""The plot style of the book: one palette, one size of type, SVG that is the same bytes on every run.

    with figure(height=3) as (fig, ax):
        ax.plot(t, regret, label="regret")
        ax.set(xlabel="step", ylabel="regret, nats")
        ax.legend()

Text, axes and grid are drawn in one colour (`INK`) on one other (`PAPER`). The book's renderer replaces the two by the
colours of the page, so a figure follows light and dark; elsewhere it is an ordinary dark-on-paper card. The data
colours have at least 3:1 contrast on both pages and stay apart under the three common colour deficiencies; line styles
repeat what they say. Write symbols in labels as characters ("Λ", "α") where that suffices: `$...$` is set in
matplotlib's own letters. For images use the default map, cividis, or "PuOr" for signed values; for a family of curves
or contours use `ramp`, whose colours are legible on both pages.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure

from gllm_lib.book import INK, PAPER
from gllm_lib.checks import InputError, InputTypeError, write_text

PALETTE = ("#4f56e6", "#e0660f", "#3796d5", "#b93c20", "#94537f", "#b67e88")
NAMES = ("indigo", "orange", "sky", "brick", "mauve", "rose")
COLOURS = dict(zip(NAMES, PALETTE, strict=True))
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")

_RAMP = LinearSegmentedColormap.from_list("ramp", ["#3796d5", "#4f56e6", "#94537f", "#b93c20", "#e0660f"])
_FADED = to_hex((*(np.array(mpl.colors.to_rgb(INK))), 0.16), keep_alpha=True)
_SAVING: dict[str, Any] = {
    "bbox_inches": "tight",
    "pad_inches": 0.03,
    "metadata": dict.fromkeys(("Creator", "Date", "Format", "Type")),  # None: leave the entry out
}

STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.facecolor": PAPER,
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10.5,
    "axes.linewidth": 0.8,
    "axes.prop_cycle": cycler(color=PALETTE) + cycler(linestyle=LINES),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlepad": 8,
    "axes.unicode_minus": True,
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.06,
    "figure.edgecolor": PAPER,
    "figure.facecolor": PAPER,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib: the same layout on every machine
    "font.size": 10.5,
    "grid.color": _FADED,
    "grid.linewidth": 0.6,
    "image.cmap": "cividis",
    "legend.borderpad": 0.3,
    "legend.edgecolor": PAPER,
    "legend.facecolor": PAPER,
    "legend.fontsize": 10,
    "legend.framealpha": 0.85,
    "legend.handlelength": 2.4,
    "lines.linewidth": 1.8,
    "lines.markeredgewidth": 0.8,
    "lines.markersize": 5,
    "patch.edgecolor": PAPER,
    "patch.linewidth": 0.6,
    "savefig.edgecolor": PAPER,
    "savefig.facecolor": PAPER,
    "svg.fonttype": "none",  # text stays text: small, searchable, in the reader's type
    "svg.hashsalt": "what-a-training-run-sees",
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 9.5,
    "ytick.color": INK,
    "ytick.labelsize": 9.5,
}


class Panel(NamedTuple):
    """A figure and its axes, to unpack (`fig, ax = figure()`) or to open (`with figure() as (fig, ax):`)."""

    fig: Figure
    ax: Any

    def __enter__(self) -> Panel:
        """Return the pair itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the figure if drawing it failed, so that half a figure is never shown."""
        if kind is not None:
            plt.close(self.fig)


def figure(width: float = 7.0, height: float = 3.6, **subplots: Any) -> Panel:
    """Return a new figure in the book's style and its axes; sizes in inches, the text column is 7 wide.

    Other keywords go to `matplotlib.pyplot.subplots` (`ncols=2`, `sharey=True`, `subplot_kw={"projection": "3d"}`).
    In a notebook the figure is shown once, as SVG, at the end of the cell. Raises InputError for a size that is not
    between 1 and 20 inches and InputTypeError for one that is no number.
    """
    for name, size in (("width", width), ("height", height)):
        if isinstance(size, bool) or not isinstance(size, (int, float, np.integer, np.floating)):
            raise InputTypeError(f"{name} is {type(size).__name__}; give inches as a number, such as 3.6")
        if not 1 <= size <= 20:
            raise InputError(f"{name} is {size:g}; give inches between 1 and 20 (the text column is 7 wide)")
    use_style()
    fig, ax = plt.subplots(figsize=(float(width), float(height)), **{"layout": "constrained"} | subplots)
    return Panel(fig, ax)


def use_style() -> None:
    """Make the book's style the current one and, inside a notebook kernel, SVG the format figures are shown in."""
    mpl.rcParams.update(STYLE)
    try:
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
        from matplotlib_inline.config import InlineBackend
    except ImportError:  # a plain interpreter without IPython draws to files only
        return
    shell = get_ipython()
    if shell is None:
        return
    backend = InlineBackend.instance(parent=shell)
    backend.print_figure_kwargs = _SAVING
    set_matplotlib_formats("svg")


def ramp(count: int) -> list[str]:
    """Return `count` ordered colours for a family of curves, each legible on the light and the dark page.

    Raises InputError unless `count` is a positive integer.
    """
    if not isinstance(count, (int, np.integer)) or isinstance(count, bool) or count < 1:
        raise InputError(f"count is {count!r}; give the number of curves, a positive integer")
    return [to_hex(_RAMP(0.5 if count == 1 else k / (count - 1))) for k in range(count)]


def svg_text(fig: Figure) -> str:
    """Return the figure as SVG text without date or version: equal figures give equal bytes."""
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        fig.savefig(buffer, format="svg", **_SAVING)
    return buffer.getvalue()


def save_svg(fig: Figure, path: str | Path) -> Path:
    """Write the figure to `path` as SVG, whole or not at all, and close it; raises InputError for another suffix."""
    if Path(path).suffix != ".svg":
        raise InputError(f"{path} does not end in .svg; figures of the book are SVG")
    text = svg_text(fig)
    plt.close(fig)
    return write_text(path, text)

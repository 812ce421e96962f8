"""The plot style: contrast on both pages, colours that stay apart, the same bytes in every process."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from gllm_lib.book.figures import INK, LINES, PALETTE, PAPER, figure, ramp, save_svg, svg_text
from gllm_lib.checks import GllmError, InputError, InputTypeError

ASSETS = Path(sys.modules["gllm_lib.book.figures"].__file__ or "").parent / "html" / "assets"

DRAW = """
import numpy as np
from gllm_lib.book.figures import figure, svg_text
with figure(ncols=2) as (fig, ax):
    t = np.linspace(0, 3, 40)
    ax[0].plot(t, np.sin(t), label="sine")
    ax[0].fill_between(t, 0, np.sin(t), alpha=0.3)
    ax[0].scatter(t, t / 3, marker="s")
    ax[0].legend()
    image = ax[1].imshow(np.outer(t, t))
    ax[1].contour(np.outer(t, t), levels=3)
    fig.colorbar(image)
"""


def linear(colour: str) -> np.ndarray:
    """Return linear-light RGB in [0, 1], shape (3,), of "#rrggbb"."""
    channels = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours as WCAG 2 defines it, between 1 and 21."""
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def pages() -> tuple[str, str]:
    """Return the page colours of the stylesheet: light and dark."""
    found = re.search(r"--page:\s*light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", (ASSETS / "book.css").read_text())
    assert found
    return found[1], found[2]


# Machado, Oliveira and Fernandes (2009), full strength, on linear light
DEFICIENCIES = {
    "none": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def oklab(light: np.ndarray) -> np.ndarray:
    """Return OKLab coordinates, shape (3,), of linear-light RGB."""
    cones = np.array([[0.41222, 0.53633, 0.05145], [0.2119, 0.68070, 0.1074], [0.0883, 0.28172, 0.62998]])
    lab = np.array([[0.21045, 0.79362, -0.00407], [1.978, -2.42859, 0.45059], [0.0259, 0.78277, -0.80868]])
    return lab @ np.cbrt(cones @ np.clip(light, 0, 1))


def test_contrast_of_known_pairs() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_the_stylesheet_names_a_light_and_a_dark_page() -> None:
    light, dark = pages()
    assert contrast(light, "#000000") > 15
    assert contrast(dark, "#ffffff") > 15


@pytest.mark.parametrize("colour", [*PALETTE, *ramp(9)])
def test_data_colours_are_legible_on_both_pages(colour: str) -> None:
    assert min(contrast(colour, page) for page in pages()) >= 3


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_data_colours_stay_apart(deficiency: str) -> None:
    seen = [oklab(np.array(DEFICIENCIES[deficiency]) @ linear(colour)) for colour in PALETTE]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 0.1


def test_each_colour_has_its_own_line_style() -> None:
    fig, ax = figure()
    drawn = [ax.plot([0, 1], [0, k])[0] for k in range(6)]
    assert [line.get_color() for line in drawn] == list(PALETTE)
    assert len({str(style) for style in LINES}) == 6
    plt.close(fig)


def test_the_same_bytes_in_two_processes() -> None:
    code = DRAW + "import sys; sys.stdout.write(svg_text(fig))"
    first, second = (
        subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, check=True).stdout
        for _ in "ab"
    )
    assert first == second
    assert b"<svg" in first
    assert b"<dc:date>" not in first
    assert len(first) < 60_000


def test_text_stays_text_in_the_two_page_colours() -> None:
    with figure() as (fig, ax):
        ax.bar([1, 2], [3, 4], label="bars")
        ax.set(xlabel="depth", title="Bars")
    text = svg_text(fig)
    plt.close(fig)
    assert ">depth</text>" in text
    colours = set(re.findall(r"#[0-9a-f]{6}", text))
    assert colours == {INK, PAPER, PALETTE[0]}


def test_a_kernel_shows_svg_once_and_the_same_each_time() -> None:
    def shown() -> list[dict[str, str]]:
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(DRAW)])
        cells = NotebookClient(book, timeout=120).execute().cells
        return [output["data"] for output in cells[0].outputs]

    (first,), (second,) = shown(), shown()
    assert first["image/svg+xml"] == second["image/svg+xml"]
    assert "image/png" not in first


def test_a_failed_drawing_leaves_no_figure() -> None:
    before = plt.get_fignums()
    with pytest.raises(ZeroDivisionError), figure():
        1 / 0  # noqa: B018
    assert plt.get_fignums() == before


def test_save_writes_the_text_and_closes(tmp_path: Path) -> None:
    one, other = figure(width=3, height=2).fig, figure(width=3, height=2).fig
    text = svg_text(one)
    plt.close(one)
    assert save_svg(other, tmp_path / "a.svg").read_text() == text
    assert not plt.fignum_exists(other.number)


@pytest.mark.parametrize("size", [0, -1, 21, float("nan"), float("inf")])
def test_sizes_outside_the_page_are_refused(size: float) -> None:
    with pytest.raises(InputError, match="between 1 and 20"):
        figure(width=size)


def test_other_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputTypeError, match="inches as a number"):
        figure(height="tall")
    with pytest.raises(InputError, match="positive integer"):
        ramp(0)
    fig, _ = figure()
    with pytest.raises(GllmError, match=r"\.svg"):
        save_svg(fig, tmp_path / "a.png")
    plt.close(fig)
    assert list(tmp_path.iterdir()) == []

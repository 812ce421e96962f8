"""From an executed notebook to markdown for pandoc, and from a plotted SVG to one that follows the page's colours."""

from __future__ import annotations

import ast
import html
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from gllm_lib.book import INK, PAPER
from gllm_lib.book.syntax import tree
from gllm_lib.checks import InputError

OPTIONS = {"label", "fig-cap", "fig-alt", "tbl-cap", "echo", "include", "output"}
PREFERENCE = ("text/html", "image/svg+xml", "image/png", "text/markdown", "text/latex", "text/plain")
LEGIBLE = 0.71  # of a drawing's size: its smallest letters, of 9.5 pt, then have 9 pixels
COLOURED = 24  # how far apart the channels of a data colour are at least; less is grey
ANSI = re.compile(r"\x1b\[[0-9;]*m")

ShowImage = Callable[[str, str, str, str], str]  # (name, kind, data as in the notebook, alt text) -> markdown


class RenderError(InputError):
    """A page that cannot be rendered faithfully; the message names the page and the label or cell."""


def notebook_markdown(path: Path, show_image: ShowImage) -> tuple[str, dict[str, Any]]:
    """Return the markdown of an executed notebook and its metadata.

    `show_image` returns what stands for a drawing or a bitmap. Raises RenderError for what the book cannot show:
    another cell type, `#|` option or kind of output, a failed cell, a figure without alt text.
    """
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells = notebook["cells"]
    except (ValueError, KeyError) as error:
        raise RenderError(f"{path.name} is not a notebook ({error}); stage it again") from error
    parts = []
    for index, cell in enumerate(cells):
        where = f"{path.stem}, cell {index} ({cell.get('id', 'no id')})"
        source = "".join(cell.get("source", ""))
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts.append(_code_cell(cell, source, where, show_image))
        elif cell["cell_type"] == "raw" and index == 0:
            parts.append(source)  # front matter
        else:
            raise RenderError(f"{where}: a {cell['cell_type']} cell; a chapter has markdown and code cells")
    return "\n\n".join(part for part in parts if part.strip()) + "\n", notebook.get("metadata", {})


def cell_options(source: str, where: str) -> tuple[dict[str, Any], str]:
    """Return a cell's `#|` options and the code below them; raises RenderError for an option the book does not use."""
    lines = source.split("\n")
    count = next((k for k, line in enumerate(lines) if not line.startswith("#|")), len(lines))
    try:
        options = yaml.safe_load("\n".join(line[2:].removeprefix(" ") for line in lines[:count])) or {}
    except yaml.YAMLError as error:
        raise RenderError(f"{where}: its #| options are not YAML ({error}); quote captions") from error
    unknown = sorted(set(options) - OPTIONS) if isinstance(options, dict) else [str(options)]
    if unknown:
        raise RenderError(f"{where}: unknown option {', '.join(unknown)}; known are {', '.join(sorted(OPTIONS))}")
    return options, "\n".join(lines[count:]).strip("\n")


def _code_cell(cell: Mapping[str, Any], source: str, where: str, show_image: ShowImage) -> str:
    options, code = cell_options(source, where)
    if options.get("include") is False:
        return ""
    label = options.get("label", "")
    where = f"{where}, {label}" if label else where
    shown = fenced(code, ".python") if code and options.get("echo") is not False else ""
    before, inside = _outputs(cell.get("outputs", []), options, where, show_image)
    if label.startswith(("fig-", "tbl-")):
        caption = options.get(f"{label[:3]}-cap", "").strip()
        if not inside and cell.get("execution_count") is None:
            inside = ["*Not executed.*"]
        if not inside or not caption:
            missing = f"no {label[:3]}-cap" if inside else "shows nothing"
            raise RenderError(f"{where}: labelled, but {missing}; a labelled cell has an output and a caption")
        inside = [_div(f"#{label} .{label[:3]}", "\n\n".join([*inside, caption]))]
    elif label:
        raise RenderError(f"{where}: a cell's label starts with fig- or tbl-; equations and claims carry their own")
    tags = " ".join(f".{tag}" for tag in cell.get("metadata", {}).get("tags", []) if re.fullmatch(r"[\w-]+", tag))
    content = [part for part in (shown, *before, *inside) if part]
    names = imported(code) if content == [shown] and "parameters" not in tags else []
    tags += f' .imports of="{", ".join(names)}"' if names else ""
    place = f"#{cell['id']} " if str(cell.get("id", "")).startswith("check-") else ""
    return _div(f"{place}.cell {tags}".strip(), "\n\n".join(content)) if content else ""


def imported(code: str) -> list[str]:
    """Return the packages that code imports, none if it is not import statements alone."""
    try:
        statements = tree(code).body
    except SyntaxError:
        return []
    names: dict[str, None] = {}
    for item in statements:
        if isinstance(item, ast.Import):
            names |= dict.fromkeys(alias.name.split(".")[0] for alias in item.names)
        elif isinstance(item, ast.ImportFrom) and item.module:
            names[item.module.split(".")[0]] = None
        else:
            return []
    return list(names)


def _outputs(
    outputs: list[dict[str, Any]], options: Mapping[str, Any], where: str, show_image: ShowImage
) -> tuple[list[str], list[str]]:
    """Return a cell's outputs as markdown: those that stand for themselves, and those its label is about."""
    before: list[str] = []
    inside: list[str] = []
    if options.get("output") is False:
        return before, inside
    label = options.get("label", "")
    raw = options.get("output") == "asis"
    for output in merged_streams(outputs):
        kind = output["output_type"]
        if kind == "stream":
            text = ANSI.sub("", output["text"])
            kept = inside if raw and label else before
            kept.append(text if raw else fenced(text.rstrip("\n"), f".output .{output['name']}"))
        elif kind in ("display_data", "execute_result"):
            data = {
                mime: value if isinstance(value, str) else "".join(value)
                for mime, value in output["data"].items()
                if mime in PREFERENCE
            }
            mime = next((mime for mime in PREFERENCE if mime in data), None)
            if mime is None:
                raise RenderError(f"{where}: an output of {', '.join(output['data'])} only; known are {PREFERENCE}")
            if mime == "text/plain" and label:
                continue  # what the last drawing call happened to return
            kept = inside if label or mime != "text/plain" else before
            kept.append(
                _shown(mime, data[mime], options.get("fig-alt", ""), f"{label or 'out'}-{len(kept)}", where, show_image)
            )
        else:
            words = " ".join(str(output.get(key, "")) for key in ("ename", "evalue")).strip()
            raise RenderError(f"{where}: ended in {words or kind}; execute the chapter again")
    return before, inside


def merged_streams(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the outputs with neighbouring pieces of one stream joined, texts as one string."""
    result: list[dict[str, Any]] = []
    for output in outputs:
        if output["output_type"] == "stream":
            text = "".join(output["text"])
            if result and result[-1].get("name") == output["name"]:
                result[-1] = {**result[-1], "text": result[-1]["text"] + text}
                continue
            output = {**output, "text": text}
        result.append(output)
    return result


def _shown(mime: str, value: str, alt: str, name: str, where: str, show_image: ShowImage) -> str:
    """Return one output of a known kind as markdown."""
    if mime.startswith("image/") and not alt.strip():
        raise RenderError(f"{where}: an image without alt text; say in #| fig-alt what it shows")
    if mime == "text/html":
        return raw_html(value)
    if mime.startswith("image/"):
        return show_image(name, mime, value, alt)
    if mime == "text/markdown":
        return value
    if mime == "text/latex":
        return f"$${latex_body(value)}$$"
    return fenced(ANSI.sub("", value), ".output")


def latex_body(text: str) -> str:
    r"""Return what stands between the dollars of outputs like sympy's `$\displaystyle x^{2}$`, as one paragraph."""
    body = re.sub(r"\n\s*\n", "\n", text.strip()).strip("$").strip()
    return body.removeprefix(r"\displaystyle").strip()


def fenced(text: str, classes: str) -> str:
    """Return `text` as a fenced code block whose fence is longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence} {{{classes}}}\n{text}\n{fence}"


def raw_html(text: str) -> str:
    """Return `text` as a block of HTML that pandoc passes on untouched."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence} {{=html}}\n{text}\n{fence}"


def _div(attributes: str, content: str) -> str:
    return f"::: {{{attributes}}}\n{content}\n:::"


def inline_svg(text: str, name: str, alt: str) -> str:
    """Return a plotted SVG ready to stand inside a page: named for readers who do not see it, in the page's colours.

    Ink (and black) and paper of the plot style become the text colour and the page colour; identifiers get the prefix
    `name`, so that two figures on one page do not share them. A drawing without these colours is kept as a card.
    """
    start = text.find("<svg")
    if start < 0:
        raise RenderError(f"{name}: an SVG output without an <svg> element; draw it again")
    body = text[start:].rstrip()
    body = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    used = set(re.findall(r"url\(#([^)]+)\)", body)) | set(re.findall(r'href="#([^"]+)"', body))

    def renamed(match: re.Match[str]) -> str:
        return f' id="{name}-{match[1]}"' if match[1] in used else ""

    body = re.sub(r'\sid="([^"]*)"', renamed, body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    body = re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', body)
    body = re.sub(r' d="[^"]*"', lambda match: re.sub(r"(\d\.\d\d)\d+", r"\1", match[0]).replace("\n", ""), body)
    body = re.sub(r"\n\s*", "\n", body)
    themed = INK in body
    if themed:
        body = body.replace(INK, "currentColor").replace(PAPER, "var(--page)")
        body = re.sub(r"<text\b[^>]*>", lambda found: _legible(found[0], "<image" in body), body)
        body = re.sub(r"\b(stroke|fill)(: ?|=\")(?:#000000|#000|black)\b", r"\1\2currentColor", body)
        body = body.replace("font-family: 'DejaVu Sans', sans-serif; ", "")  # plain words: the page's own type
        body = body.replace("font-family: 'DejaVu Sans';", "font-family: 'DejaVu Sans', Verdana, sans-serif;")
    head = re.match(r"<svg[^>]*>", body)
    assert head is not None
    return _svg_head(head[0], alt, themed, lettered="<text" in body) + body[head.end() :]


def _legible(tag: str, on_bitmap: bool) -> str:
    """Return the opening tag of a text with a colour that can be read.

    A data colour has 3:1 contrast on both pages, which does for a line. Letters need 4.5:1: a third of it stays.
    Black letters, which have no colour of their own, stand on the bitmap of a drawing that has one: they stay black.
    """
    if on_bitmap and "fill:" not in tag:
        return tag.replace('style="', 'style="fill: #010101; ', 1)
    colour = re.search(r"\bfill: ?#([0-9a-f]{6})\b", tag)
    if colour is None:
        return tag
    channels = bytes.fromhex(colour[1])
    if max(channels) - min(channels) >= COLOURED:
        return tag.replace(colour[0], f"fill: color-mix(in srgb, #{colour[1]} 33%, currentColor)")
    return tag


def _svg_head(head: str, alt: str, themed: bool, lettered: bool) -> str:
    """Return the opening tag with sizes in CSS pixels, the least width at which its letters are legible, and a name."""
    sizes = {
        key: float(size) * (4 / 3 if unit == "pt" else 1)
        for key, size, unit in re.findall(r'\s(width|height)="([\d.]+)(pt|px)?"', head)
    }
    head = re.sub(r'\s(?:width|height|version|xmlns:xlink)="[^"]*"', "", head)
    size = "".join(f' {key}="{value:.0f}"' for key, value in sizes.items())
    if "width" in sizes and lettered:
        size += f' style="--least: {LEGIBLE * sizes["width"]:.0f}px"'
    kind = "plot" if themed else "plot card"
    return f'{head[:-1]}{size} class="{kind}" role="img" aria-label="{html.escape(" ".join(alt.split()))}">'

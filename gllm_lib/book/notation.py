"""The table of symbols, from `chapters/notation.toml`, and the letters that have more than one meaning."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gllm_lib.book.api import Library
from gllm_lib.book.markdown import rows
from gllm_lib.book.project import BookError
from gllm_lib.checks import read_text

FILE = "notation.toml"
NEEDED, OPTIONAL = {"symbol", "means", "shape", "defined"}, {"code"}


@dataclass(frozen=True)
class Symbol:
    """One row: TeX, meaning, kind of thing, the label that introduces it, and its name in the library, if any."""

    symbol: str
    means: str
    shape: str
    defined: str
    code: str = ""

    @property
    def letters(self) -> list[str]:
        r"""Return the single symbols of a row that lists several, as in `A,\ T`."""
        return self.symbol.split(r",\ ")


@dataclass(frozen=True)
class Group:
    """Symbols that are used together, and the chapters that use them, by their labels."""

    title: str
    chapters: tuple[str, ...]
    symbols: tuple[Symbol, ...]


def read(path: Path) -> tuple[Group, ...]:
    """Return the groups of a table of symbols; raises BookError naming the row for anything malformed."""
    try:
        table = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise BookError(f"{path.name} is not valid TOML: {error}; mend that line") from error
    groups = table.get("group")
    if set(table) != {"group"} or not isinstance(groups, list):
        raise BookError(f"{path.name} holds a list of tables [[group]] and nothing else")
    return tuple(_group(path.name, group) for group in groups)


def _group(name: str, group: object) -> Group:
    told = group if isinstance(group, dict) else {}
    title, chapters, given = (told.get(key) for key in ("title", "chapters", "symbols"))
    if not (isinstance(title, str) and isinstance(chapters, list) and isinstance(given, list)) or len(told) != 3:
        raise BookError(
            f"{name}, group {title or 'without a title'}: it has title, chapters (a list of their labels) and symbols"
        )
    symbols: list[Symbol] = []
    for row in given:
        symbol = _symbol(f"{name}, {title}", row)
        if twice := {letter for before in symbols for letter in before.letters} & set(symbol.letters):
            raise BookError(
                f"{name}, {title}, {symbol.symbol}: {sorted(twice)[0]} stands already in this group; join the two, or "
                "split the group"
            )
        symbols.append(symbol)
    return Group(title, tuple(map(str, chapters)), tuple(symbols))


def _symbol(where: str, row: object) -> Symbol:
    if not isinstance(row, dict) or not all(isinstance(value, str) for value in row.values()):
        raise BookError(f"{where}: a row is {row!r:.80}; give a table of texts, symbol = '...' and so on")
    if wrong := sorted((NEEDED - set(row)) | (set(row) - NEEDED - OPTIONAL)):
        where = f"{where}, {row.get('symbol', 'a row without a symbol')}"
        raise BookError(f"{where}: check {', '.join(wrong)}; a row has {', '.join(sorted(NEEDED))}, perhaps code")
    return Symbol(**row)


def problems(groups: tuple[Group, ...], labels: Collection[str]) -> list[str]:
    """Return one sentence for each label of a chapter or a definition which the book does not have."""
    return [
        f"{FILE}, {group.title}: the chapter {chapter} is no label of the book"
        for group in groups
        for chapter in group.chapters
        if chapter not in labels
    ] + [
        f"{FILE}, {group.title}, {row.symbol}: defined by {row.defined}, which is no label of the book"
        for group in groups
        for row in group.symbols
        if row.defined not in labels
    ]


def tables(groups: tuple[Group, ...], library: Library) -> str:
    """Return one table per group; raises BookError for a name that the library does not have."""
    parts = []
    for number, group in enumerate(groups, 1):
        body = [
            [f"${row.symbol}$", f"{row.means}; {row.shape}", _code(row, library), f"@{row.defined}"]
            for row in group.symbols
        ]
        parts.append(f"## {group.title} {{#sec-notation-{number}}}\n\nChapters {_numbers(group.chapters)}.")
        parts.append(
            rows(["Symbol", "Meaning", "In code", "From"], body, "|:----|:------------------|:------|:------|")
        )
    return "\n\n".join(parts)


def _code(row: Symbol, library: Library) -> str:
    """Return the name in the library as a link to its entry: an object, an argument, or a field with its class."""
    if not row.code:
        return ""
    name, _, argument = row.code.partition(":")
    room, _, name = name.partition(".")
    path = library.named(room, name)
    if not path or (argument and not library.takes(path, argument)):
        raise BookError(f"{FILE}, {row.symbol}: the library has no {row.code}; write room.name or room.name:argument")
    shown = argument if argument and library.objects[path].is_function else ".".join(filter(None, (name, argument)))
    return f"[`{shown}`](F-library.qmd#{library.anchors[path]})"


def shared_letters(groups: tuple[Group, ...]) -> str:
    """Return the symbols that have several meanings, each meaning with the chapters that use it."""
    meanings: dict[str, dict[str, list[str]]] = {}
    for letter, group, row in _letters(groups):
        meanings.setdefault(letter, {}).setdefault(row.means, []).extend(group.chapters)
    return "\n\n".join(
        f"${letter}$\n:   " + "; ".join(f"**{_numbers(chapters)}** {means}" for means, chapters in told.items())
        for letter, told in meanings.items()
        if len(told) > 1
    )


def _numbers(chapters: Iterable[str]) -> str:
    """Return references to chapters, which each renderer shows as its own numbers of them."""
    return ", ".join(f"[-@{chapter}]" for chapter in dict.fromkeys(chapters))


def _letters(groups: tuple[Group, ...]) -> Iterator[tuple[str, Group, Symbol]]:
    for group in groups:
        for row in group.symbols:
            for letter in row.letters:
                yield letter, group, row

"""The items of the three sources, and how the claims of the book answer for them.

`chapters/sources.toml` has one row per item and says what a row may hold. What treats a row is not written there: it is
computed from the `source` attribute of the claims, so every entry resolves both ways or is reported.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gllm_lib.checks import GllmError, read_text

TREATED, PROSE, OPEN, MISSING = "treated", "prose", "open", "missing"
NEW = "new"  # the source of a claim that no source states

_ID = re.compile(
    r"""(?P<source>GLLM|OE|FTIP)\ (?:(?:Def\.|Prop\.|Cor\.|Lem\.|Rem\.|Conj\.|Eq\.|Tab\.|Sec\.|Thm|Assumption|l\.)\ )?
        \d+(?:\.\d+)*[a-z]?(?:\((?:\d+|[ivx]+)\))*(?P<words>\ \(.+\))?""",
    re.VERBOSE,
)
_KEYS = {"id": str, "title": str, "chapter": str, "within": str, "prose": str, "whole": bool}


class SourcesError(GllmError, ValueError):
    """A row of the list of source items that is malformed or contradicts another."""


class Cited(Protocol):
    """What this module reads of a claim: its label, its `source` attribute and the chapter that states it."""

    @property
    def id(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def chapter(self) -> str: ...


@dataclass(frozen=True)
class Item:
    """One row: an item of a source, and the chapter (two digits) that treats it; `within` names the row it repeats."""

    id: str
    title: str
    chapter: str
    within: str = ""
    prose: str = ""
    whole: bool = False

    @property
    def source(self) -> str:
        """The tag of the source, the first word of the id."""
        return self.id.split()[0]


@dataclass(frozen=True)
class Sources:
    """All rows in the order of the file, and the titles of the chapters by their two digits."""

    chapters: Mapping[str, str]
    items: tuple[Item, ...]

    def parts(self, whole: Item) -> tuple[Item, ...]:
        """Return the rows whose ids continue the id of `whole` by a parenthesis."""
        starts = (whole.id + "(", whole.id + " (")
        return tuple(item for item in self.items if item.id.startswith(starts))


@dataclass(frozen=True)
class Treatment:
    """An item, its status (treated, prose, open or missing) and the labels of the claims that treat it."""

    item: Item
    status: str
    claims: tuple[str, ...]


def load(path: str | os.PathLike[str]) -> Sources:
    """Return the validated list of source items in a file.

    Raises FileError for an unreadable file and SourcesError, naming the row, for anything malformed.
    """
    return parse(read_text(path), os.path.basename(path))


def parse(text: str, name: str = "sources.toml") -> Sources:
    """Return the validated list of source items in a TOML text; raises SourcesError naming the row."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SourcesError(f"{name} is not valid TOML: {error}; mend that line") from error
    chapters, groups = _sections(table, name)
    rows = [
        (f"{name}, {group}, row {number}", group, row)
        for group, members in groups.items()
        for number, row in enumerate(members, 1)
    ]
    seen: dict[str, str] = {}
    for where, group, row in rows:
        _check_row(where, group, row, chapters)
        if row["id"] in seen:
            raise SourcesError(f"{where}: {row['id']!r} stands already in {seen[row['id']]}; give each item one row")
        seen[row["id"]] = where
    by_id = {row["id"]: row for _, _, row in rows}
    for where, _, row in rows:
        if "within" in row:
            _check_within(where, row, by_id)
    items = [
        Item(
            id=row["id"],
            title=row["title"],
            chapter=by_id[row["within"]]["chapter"] if "within" in row else row["chapter"],
            within=row.get("within", ""),
            prose=row.get("prose", ""),
            whole=row.get("whole", False),
        )
        for _, _, row in rows
    ]
    sources = Sources(chapters, tuple(items))
    for item in items:
        if item.whole and not sources.parts(item):
            raise SourcesError(f"{name}: {item.id!r} is whole but has no parts; add rows such as {item.id + '(i)'!r}")
    return sources


def _sections(table: Mapping[str, Any], name: str) -> tuple[dict[str, str], dict[str, list[Any]]]:
    strange = set(table) ^ {"chapters", "items"}
    if strange or not all(isinstance(value, dict) for value in table.values()):
        raise SourcesError(f"{name} needs exactly the two tables [chapters] and [items]; check {sorted(strange)}")
    for key, title in table["chapters"].items():
        if not re.fullmatch(r"\d\d", key) or not isinstance(title, str) or not title.strip():
            raise SourcesError(
                f'{name}, chapter {key!r}: write two digits and a title, such as 04 = "sample complexity"'
            )
    for group, members in table["items"].items():
        if not isinstance(members, list):
            raise SourcesError(f"{name}: [items] {group} is {type(members).__name__}; give a list of rows")
    return table["chapters"], table["items"]


def _check_row(where: str, group: str, row: Any, chapters: Mapping[str, str]) -> None:
    if not isinstance(row, dict):
        raise SourcesError(f'{where} is {row!r}; write {{id = "...", chapter = "04", title = "..."}}')
    where = f"{where} ({row.get('id', 'no id')})"
    if strange := set(row) - set(_KEYS):
        raise SourcesError(f"{where}: key {sorted(strange)[0]!r} is unknown; use {', '.join(_KEYS)}")
    for key, value in row.items():
        if not isinstance(value, _KEYS[key]) or not (value.strip() if isinstance(value, str) else value):
            raise SourcesError(f"{where}: {key} is {value!r}; give a {_KEYS[key].__name__} that says something")
    for key in ("id", "title"):
        if key not in row:
            raise SourcesError(f"{where}: {key} is missing")
    match = _ID.fullmatch(row["id"])
    if not match or ";" in row["id"]:
        raise SourcesError(
            f"{where}: {row['id']!r} is not in the normal form; write ids such as GLLM Prop. 7(iii), OE Tab. 5a, "
            "FTIP l. 123 (words), without a semicolon"
        )
    if match["source"] != group:
        raise SourcesError(f"{where}: it stands under {group}; move it to {match['source']}")
    if group == "FTIP" and not match["words"]:
        raise SourcesError(f"{where}: a number alone says little of a text without headings; add words in parentheses")
    if ("chapter" in row) == ("within" in row):
        raise SourcesError(f"{where}: give either chapter, which treats it, or within, the row it repeats")
    if "chapter" in row and row["chapter"] not in chapters:
        raise SourcesError(f"{where}: chapter {row['chapter']!r} is unknown; the chapters are {', '.join(chapters)}")
    if sum(key in row for key in ("within", "prose", "whole")) > 1:
        raise SourcesError(f"{where}: within, prose and whole exclude each other; keep one")


def _check_within(where: str, row: Mapping[str, Any], by_id: Mapping[str, Mapping[str, Any]]) -> None:
    target = by_id.get(row["within"])
    if target is None:
        raise SourcesError(f"{where} ({row['id']}): within {row['within']!r} is no row{_suggest(row['within'], by_id)}")
    if "within" in target or "whole" in target:
        raise SourcesError(
            f"{where} ({row['id']}): within {row['within']!r} leads on to other rows; name the row that a claim treats"
        )


def _suggest(wrong: str, ids: Iterable[str]) -> str:
    close = difflib.get_close_matches(wrong, list(ids), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else "; see chapters/sources.toml"


def cited_ids(source: str) -> tuple[str, ...]:
    """Return the ids in a claim's `source` attribute, separated by semicolons; `new` is no id."""
    names = (" ".join(part.split()) for part in source.split(";"))
    return tuple(name for name in names if name and name != NEW)


def join(sources: Sources, claims: Iterable[Cited], written: Iterable[str]) -> tuple[Treatment, ...]:
    """Return every item with its status and the claims that treat it, in the order of the file.

    `written` are the chapters that have a notebook, as names (`07-choosing-grades`) or two digits. Ids that no row
    has are left to `problems`.
    """
    naming: dict[str, list[str]] = {}
    for claim in claims:
        for name in cited_ids(claim.source):
            naming.setdefault(name, []).append(claim.id)
    present = {chapter[:2] for chapter in written}
    rows = {item.id: item for item in sources.items}
    return tuple(_treatment(sources, rows, item, naming, present) for item in sources.items)


def _treatment(
    sources: Sources, rows: Mapping[str, Item], item: Item, naming: Mapping[str, Sequence[str]], present: set[str]
) -> Treatment:
    labels = tuple(dict.fromkeys(naming.get(item.id, ())))
    if labels:
        return Treatment(item, TREATED, labels)
    if item.within:
        other = _treatment(sources, rows, rows[item.within], naming, present)
        return Treatment(item, other.status, other.claims)
    if item.whole:
        parts = [_treatment(sources, rows, part, naming, present) for part in sources.parts(item)]
        status = next(s for s in (MISSING, OPEN, TREATED, PROSE) if s in {part.status for part in parts})
        return Treatment(item, status, tuple(dict.fromkeys(label for part in parts for label in part.claims)))
    if item.chapter not in present:
        return Treatment(item, OPEN, ())
    return Treatment(item, PROSE if item.prose else MISSING, ())


def problems(sources: Sources, claims: Iterable[Cited], written: Iterable[str]) -> list[str]:
    """Return one sentence for each claim that names an unknown id and each item that its written chapter leaves out."""
    known = list(claims)
    ids = [item.id for item in sources.items]
    found = []
    for claim in known:
        if not claim.source.strip():
            found.append(f'chapter {claim.chapter}: {claim.id} names no source; write its ids or source="new"')
        for name in cited_ids(claim.source):
            if name not in ids:
                found.append(f"chapter {claim.chapter}: {claim.id} names {name!r}, no source item{_suggest(name, ids)}")
    for row in join(sources, known, written):
        if row.status == MISSING and not row.item.whole and not row.item.within:
            found.append(
                f"chapter {row.item.chapter}: no claim names {row.item.id!r} ({row.item.title}); add the id to the "
                "source of the claim that treats it, or give its row a prose reason"
            )
    return found

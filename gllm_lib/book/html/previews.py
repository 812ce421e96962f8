"""What a reference shows before it is followed: the blocks that other pages refer to, one script per page.

A page opened from disk may not read another page, but it may load a script. A block that is referred to on its own page
is cloned there and is not stored.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

LINK = re.compile(r'<a\b[^>]*?\shref="([^"#:]+\.html)#([^"]+)"')
TAG = re.compile(r"<[^>]*>")
HEADING = re.compile(r"<h([1-6])\b.*?</h\1>", re.DOTALL)


def previews(pages: Mapping[PurePosixPath, str]) -> dict[PurePosixPath, str]:
    """Return the scripts that hold the blocks other pages refer to, by the page these blocks stand on.

    A place without words, which only marks where something begins, has nothing to show.
    """
    wanted: dict[PurePosixPath, set[str]] = {}
    for page, content in pages.items():
        for path, fragment in LINK.findall(content):
            target = PurePosixPath(posixpath.normpath(page.parent / html.unescape(path)))
            wanted.setdefault(target, set()).add(html.unescape(fragment))
    scripts = {}
    for page in sorted(wanted.keys() & pages.keys()):  # `check_links` names a link that leads nowhere
        content = pages[page]
        blocks = {name: block(content, name) for name in sorted(wanted[page])}
        blocks = {name: found for name, found in blocks.items() if TAG.sub("", found).strip()}
        table = json.dumps(blocks, ensure_ascii=False, separators=(",", ":"))
        scripts[page] = f"(window.bookPreviews ??= {{}})[{json.dumps(str(page))}] = {table};\n"
    return scripts


def block(content: str, identifier: str) -> str:
    """Return the HTML of the element with this identifier; of a heading, with the paragraph below it."""
    start = _start(content, f' id="{html.escape(identifier)}"')
    if start < 0:
        return ""
    heading = HEADING.match(content, start)
    if heading is None:
        return _element(content, start)
    after = HEADING.search(content, heading.end())
    paragraph = content.find("<p>", heading.end(), after.start() if after else len(content))
    return heading[0] + (_element(content, paragraph) if paragraph >= 0 else "")


def _start(content: str, mark: str) -> int:
    """Return where the tag that holds this attribute starts, -1 if none does; words of the text do not count."""
    place = content.find(mark)
    while place >= 0:
        start = content.rfind("<", 0, place)
        if ">" not in content[start:place]:
            return start
        place = content.find(mark, place + 1)
    return -1


def _element(content: str, start: int) -> str:
    """Return the element that opens at `start`, up to the tag that closes it."""
    name = re.compile(r"[\w-]+").match(content, start + 1)
    depth = 0
    for tag in re.compile(rf"<(/?){name and name[0]}\b[^>]*>").finditer(content, start):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return content[start : tag.end()]
    return ""

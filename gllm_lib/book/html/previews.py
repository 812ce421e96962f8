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
HEADING = re.compile(r"<h([1-6])\b.*?</h\1>", re.DOTALL)


def previews(pages: Mapping[PurePosixPath, str]) -> dict[PurePosixPath, str]:
    """Return the scripts that hold the blocks other pages refer to, by the page these blocks stand on."""
    wanted: dict[PurePosixPath, set[str]] = {}
    for page, content in pages.items():
        for path, fragment in LINK.findall(content):
            target = PurePosixPath(posixpath.normpath(page.parent / html.unescape(path)))
            wanted.setdefault(target, set()).add(html.unescape(fragment))
    scripts = {}
    for page in sorted(wanted):
        content = pages[page]
        blocks = {name: block(content, name) for name in sorted(wanted[page])}
        table = json.dumps(blocks, ensure_ascii=False, separators=(",", ":"))
        scripts[page] = f"(window.bookPreviews ??= {{}})[{json.dumps(str(page))}] = {table};\n"
    return scripts


def block(content: str, identifier: str) -> str:
    """Return the HTML of the element with this identifier; of a heading, with the paragraph below it."""
    found = re.search(rf'<([\w-]+)\b[^>]*?\sid="{re.escape(html.escape(identifier))}"', content)
    if found is None:
        return ""
    heading = HEADING.match(content, found.start())
    if heading is None:
        return _element(content, found[1], found.start())
    after = HEADING.search(content, heading.end())
    paragraph = content.find("<p>", heading.end(), after.start() if after else len(content))
    return heading[0] + (_element(content, "p", paragraph) if paragraph >= 0 else "")


def _element(content: str, name: str, start: int) -> str:
    """Return the element that opens at `start`, up to the tag that closes it."""
    depth = 0
    for tag in re.compile(rf"<(/?){name}\b[^>]*>").finditer(content, start):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return content[start : tag.end()]
    return ""

"""What pandoc's MathML leaves to be done, seen in Chromium.

Spaces around named functions and big operators; accents, which it writes with combining characters; primes, which a
browser raises twice; aligned rows in display style; bars that grow for a script; powers of big parentheses; dots
between signs; spaces in scripts; thousands, which it takes for lists; heads of columns without words; and places where
a long formula may break, so that it does not widen a narrow page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from xml.etree import ElementTree

from gllm_lib.book.html.linear import linear

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
ElementTree.register_namespace("", NAMESPACE)
SIGN = re.compile(r'<mi>([+−±·×])</mi>(?=(?:<m(?:sup|sub|subsup)>)?<mo [^>]*form="postfix">[‖|])')  # before a norm
BARS = ("|", "∥", "‖", "∣")
FUNCTION = re.compile(
    r"(?P<before></m(?:i|n|row|sub|sup|subsup|frac|sqrt|over|under|style)>)?"
    r"(?P<script><m(?:sub|sup|subsup|under|over|underover)>)?"
    r'(?:<mrow><mi mathvariant="normal">(?P<applied>[^<]{2,})</mi><mo>(?:&#8289;|\u2061)</mo></mrow>'
    r'|(?<=<munder>)<mi mathvariant="normal">(?P<limit>[a-z][^<]+)</mi>)'
    r'(?P<bare></|<mo stretchy="\w+" form="prefix">)?'
)
ACCENT = re.compile(r'<mover>(?P<base>.*?)<mo accent="true">(?P<mark>[\u0302-\u030c\u203e\u00af])</mo></mover>')
SPACING = {"\u0302": "^", "\u0303": "\u02dc", "\u0307": "\u02d9", "\u0308": "\u00a8", "\u030c": "\u02c7"}
RELATIONS = set("=≠<>≤≥≪≫≈≡∼≃≅∝∈∉⊂⊆⊃⊇→←↦⟶⟹⇒⇔≔≺≼⪯⪰≻≽+−±·×∪∩∧∨,;") | {":=", "=:", "⟼", "∣"}
SCRIPTS = {f"{{{NAMESPACE}}}{name}" for name in ("msup", "msub", "msubsup")}
LIMITS = {f"{{{NAMESPACE}}}{name}" for name in ("munder", "mover", "munderover")}
TALL = {f"{{{NAMESPACE}}}{name}" for name in ("mfrac", "mtable", "msqrt", "mroot", "munder", "munderover")}
MO, MI, MROW = (f"{{{NAMESPACE}}}{name}" for name in ("mo", "mi", "mrow"))
SIGNS = tuple("+−±·×")
OPENING = ("(", "[", "{", "⟨", "⌊", "⌈", *BARS)
BIG = set("∑∏∐∫⋃⋂⨁⨂⋁⋀")
BEFORE = RELATIONS - set("+−±·×∪∩∧∨,;∣")  # a displayed formula breaks before these, and if need be before a sign
CENTRED = (RELATIONS | set("∘⋅⊕⊗")) - {",", ";"}  # dots between these stand in the middle of the line
THIN = "0.167em"
FORMULA = re.compile(r"([(\[“‘]*)(<math\b.*?</math>)((?:[.,;:!?)\]’”…])*)", re.DOTALL)
HEAD = re.compile(r"<th\b([^>]*)>(.*?)</th>", re.DOTALL)
THOUSANDS = re.compile(r"\d{1,3}(?:\{,\}\d{3})+(?:\.\d+)?")
LONG = 24  # characters of TeX; about half a line on a phone


def mend(page: str) -> str:
    """Return a page of HTML with every `<math>` element in it mended."""
    page = HEAD.sub(_headed, page)
    return FORMULA.sub(lambda found: _kept(found[1], _mended(found[2]), found[3]), page)


def _headed(found: re.Match[str]) -> str:
    """Return the head of a column with a name in words: one that is a formula gets it, one that is empty heads nothing.

    A reader aloud repeats the head before each cell, and often as plain text, without its mathematics.
    """
    attributes, content = found[1], found[2].strip()
    source = re.search(r"<annotation[^>]*>([^<]*)", content)
    if not content:
        return f"<td{attributes}></td>"
    if source is None or re.sub(r"<math\b.*?</math>|<[^>]*>", "", content, flags=re.DOTALL).strip():
        return found[0]
    named = f'<math aria-label="{html.escape(linear(html.unescape(source[1])))}"'
    return f"<th{attributes}>{content.replace('<math', named, 1)}</th>"


def _kept(before: str, formula: str, after: str) -> str:
    """Return a formula with the brackets and marks that touch it, so that no line ends between them."""
    if (not before and not after) or formula.startswith("<span"):
        return before + formula + after
    pieces = formula.split("<wbr>")
    pieces[0] = before + pieces[0]
    pieces[-1] += after
    ends = {0} if not after else {len(pieces) - 1} if not before else {0, len(pieces) - 1}
    return "<wbr>".join(f'<span class="kept">{p}</span>' if k in ends else p for k, p in enumerate(pieces))


def _mended(formula: str) -> str:
    formula = ACCENT.sub(_accented, FUNCTION.sub(_spaced, formula))
    formula = re.sub(r'(<mo [^>]*form="\w+">)∥</mo>', r"\1‖</mo>", formula)  # a norm, not the relation "parallel"
    formula = (
        SIGN.sub(r"<mo>\1</mo>", formula).replace("<mo>=</mo><mo>:</mo>", "<mo>=:</mo>").replace("<mo>*<", "<mo>∗<")
    )
    source = re.search(r"<annotation[^>]*>([^<]*)", formula)
    for number in THOUSANDS.findall(source[1] if source else ""):  # 524{,}288 is one number, not a list of two
        parts = "<mo>,</mo>".join(f"<mn>{part}</mn>" for part in number.split("{,}"))
        formula = formula.replace(parts, f"<mn>{number.replace('{,}', ',')}</mn>")
    if "<mo" in formula or "…" in formula:
        root = ElementTree.fromstring(formula)
        for row in root.iter():
            _keep_bars_small(row)
        for row in list(root.iter()):
            _pair_powers(row)
            _lower(row)
            _close_up(row)
            _space_row(row)
        formula = ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)
    if 'display="block"' in formula:
        # the columns of `aligned` are set flush; those of a matrix are not, and stay in text style
        formula = re.sub(r'<mtable>(?=<mtr><mtd [^>]*padding-right: 0")', '<mtable displaystyle="true">', formula)
        return displayed(formula) if source and len(source[1]) > LONG else formula
    named = "aria-label" in formula
    return broken(formula) if source and len(source[1]) > LONG and not named else formula


def _spaced(found: re.Match[str]) -> str:
    """Return a named function as an operator with TeX's thin spaces: before it after a letter, after it unless "("."""
    left = THIN if found["before"] else "0"
    right = "0" if found["bare"] and not found["script"] else THIN
    words = re.sub(r"^lim(?=sup|inf)", "lim ", found["applied"] or found["limit"])
    name = f'<mo form="prefix" lspace="{left}" rspace="{right}">{words}</mo>'
    return f"{found['before'] or ''}{found['script'] or ''}{name}{found['bare'] or ''}"


def _outer(row: Iterable[ElementTree.Element]) -> list[bool]:
    """Return, for each item of a row, whether it stands outside all brackets."""
    opened: list[str] = []
    result = []
    for core in map(_core, row):  # a parenthesis that closes may carry a power
        form, sign = core.get("form"), core.text or ""
        if form == "prefix" and sign in OPENING:
            opened.append(sign)
        elif form == "postfix":
            while opened and opened[-1] in BARS and sign not in BARS:
                opened.pop()  # a single bar, as in P(A | B)
            del opened[-1:]
        result.append(not opened)
    return result


def _row(formula: str) -> ElementTree.Element | None:
    """Return what a formula shows as one row, none of a formula that pandoc could not read."""
    shown = ElementTree.fromstring(formula).find(f"./{{{NAMESPACE}}}semantics/*")
    if shown is None or shown.tag == MROW:
        return shown
    row = ElementTree.Element(MROW)
    row.append(shown)
    return row


def broken(formula: str) -> str:
    """Return an inline formula as several, cut after its outermost relations and operators; a browser breaks there."""
    row = _row(formula)
    if row is None:
        return formula
    pieces: list[list[ElementTree.Element]] = [[]]
    for item, outer in zip(row, _outer(row), strict=True):
        pieces[-1].append(item)
        if outer and item.tag == MO and not item.get("form") and item.text in RELATIONS and len(pieces[-1]) > 1:
            pieces.append([])
    pieces = [piece for piece in pieces if piece]
    if len(pieces) == 1:
        return formula
    return "<wbr>".join(map(_formula, pieces))


def displayed(formula: str) -> str:
    """Return a displayed formula as pieces of HTML between which a narrow page breaks; lines of an alignment stay."""
    row = _row(formula)
    if row is None:
        return formula
    columns, cells = _cells(row)
    told = [_clauses(cell) for cell in cells]
    if columns == 2:
        return f'<span class="alignment">{"".join(f"<span>{cell}</span>" for cell in told)}</span>'
    return "".join(told) if "".join(told).count("<math") > 1 else formula


def _cells(row: ElementTree.Element) -> tuple[int, list[list[ElementTree.Element]]]:
    """Return the number of columns and the cells of a formula that is one alignment with a mark after it, or itself."""
    lines = [list(line) for line in row[0]] if len(row) and row[0].tag == f"{{{NAMESPACE}}}mtable" else []
    widths = {len(line) for line in lines}
    flush = all("right" in line[0].get("style", "") for line in lines) if widths == {2} else widths == {1}
    if not flush or any(item.tag != MI for item in row[1:]):
        return 1, [list(row)]
    lines[-1][-1].extend(row[1:])
    return widths.pop(), [list(cell) for line in lines for cell in line]


def _clauses(row: list[ElementTree.Element]) -> str:
    """Return a formula as clauses, side by side where they fit; a quad ends a clause.

    A clause that needs more than a line breaks before its outermost relations, and what follows one of these before its
    signs and after its commas.
    """
    parts: list[list[list[list[ElementTree.Element]]]] = [[[[]]]]
    for item, outer in zip(row, _outer(row), strict=True):
        operator = outer and item.tag == MO and not item.get("form")
        if outer and item.tag == f"{{{NAMESPACE}}}mspace" and item.get("width") in ("1.0em", "2.0em"):
            parts.append([[[]]])
            continue
        if operator and item.text in BEFORE:
            item.set("form", "infix")
            parts[-1].append([[]])
        elif operator and item.text in SIGNS and parts[-1][-1][-1]:
            item.set("form", "infix")
            parts[-1][-1].append([])
        parts[-1][-1][-1].append(item)
        if operator and item.text in (",", ";"):
            parts[-1][-1].append([])
    told = [_clause([[p for p in piece if p] for piece in part if any(piece)]) for part in parts if any(map(any, part))]
    return f'<span class="clauses">{"".join(told)}</span>'


def _clause(pieces: list[list[list[ElementTree.Element]]]) -> str:
    """Return a clause of a displayed formula: what stands before its first relation, and what each relation begins."""
    lines = ["".join(_formula(piece, displaystyle="true") for piece in line) for line in pieces]
    return f'<span class="clause">{"".join(f"<span>{line}</span>" for line in lines)}</span>'


def _accented(found: re.Match[str]) -> str:
    """Return an accent as a character of its own, a bar over several letters as a rule over them."""
    base, mark = found["base"], found["mark"]
    if "<mover>" in base:  # the innermost accent belongs to this mark
        return "<mover>" + ACCENT.sub(_accented, found[0].removeprefix("<mover>"))
    if mark in "\u203e\u00af" and base.startswith("<mrow>"):
        return f'<mrow class="over">{base}</mrow>'
    spaced = SPACING.get(mark, "\u00af")
    return f'<mover accent="true">{base}<mo stretchy="false">{spaced}</mo></mover>'


def _pair_powers(row: ElementTree.Element) -> None:
    """Give a script on a closing parenthesis the whole pair as its base: alone, it would stay small."""
    opened: list[int] = []
    index = 0
    while index < len(row):
        item = row[index]
        scripted = item.tag in SCRIPTS and len(item) > 0
        fence = item[0] if scripted else item
        closes = fence.get("form") == "postfix"
        if fence.text in BARS:  # the same sign opens and closes
            closes = bool(opened) and row[opened[-1]].text == fence.text
        elif closes:
            while opened and row[opened[-1]].text in BARS:
                opened.pop()  # a single bar, as in P(A | B)
        if fence.tag != f"{{{NAMESPACE}}}mo" or not fence.get("form"):
            pass
        elif not closes:
            opened.append(index)
        elif opened:
            fence.set("form", "postfix")
            start = opened.pop()
            if index + 1 < len(row) and row[index + 1].tag == MI and row[index + 1].text in SIGNS:
                row[index + 1].tag = MO  # taken for a sign before a number, after a bar that seemed to open
            if scripted and fence.get("stretchy") != "false":  # one that does not grow carries its script itself
                pair = ElementTree.Element(f"{{{NAMESPACE}}}mrow")
                pair.extend([*row[start:index], fence])
                item[0] = pair
                for moved in row[start:index]:
                    row.remove(moved)
                index = start
        index += 1


def _keep_bars_small(row: ElementTree.Element) -> None:
    """Keep the bars of a norm as high as letters, whose scripts TeX lets stand out, unless they hold something tall."""
    ends = [row[0], row[-1]] if len(row) > 1 else []
    if all(end.tag == MO and end.text in BARS for end in ends) and not any(inside.tag in TALL for inside in row.iter()):
        for end in ends:
            if end.get("stretchy") == "true":
                end.set("stretchy", "false")


def _lower(item: ElementTree.Element) -> None:
    """Set a script on a pair that does not grow at its closing sign; a prime, raised already, stands on the line."""
    if item.tag not in SCRIPTS:
        return
    base, *scripts = item
    if len(scripts) == 1 and scripts[0].tag == MO and scripts[0].text in ("′", "″", "‴"):
        item.tag = MROW
        scripts[0].attrib.update(lspace="0", rspace="0")
    elif (
        base.tag == MROW and len(base) > 1 and base[-1].get("form") == "postfix" and base[-1].get("stretchy") == "false"
    ):
        closing = ElementTree.Element(item.tag)
        closing.extend([base[-1], *scripts])
        item.tag = MROW
        item[:] = [*base[:-1], closing]


def _space_row(row: ElementTree.Element) -> None:
    """Give operators the spaces of TeX that depend on their neighbours, and dots between signs their height."""
    if row.tag in SCRIPTS | LIMITS | TALL - {f"{{{NAMESPACE}}}msqrt"}:
        return
    items = list(row)
    for before, item, after in zip([None, *items], items, [*items[1:], None], strict=False):
        core = _core(item)
        last, following = (None if other is None else _core(other) for other in (before, after))
        if item.text == "…" and _sign(last) and (after is None or _sign(following) or _form(following) == "postfix"):
            item.text = "⋯"
        elif core.text in BIG and (last is None or (last.tag == MO and _form(last) != "postfix")):
            core.set("lspace", "0")
        elif (
            item.tag == MO and item.text in SIGNS and not item.get("form") and last is not None and last.text in OPENING
        ):
            if last.get("form") == "prefix":
                item.set("form", "prefix")  # of a number, after a bracket
        elif _named(core):
            if last is not None and (last.text in BIG or _named(last)):
                core.set("lspace", "0")
            elif _form(last) == "postfix":
                core.set("lspace", THIN)
            opens = _form(following) == "prefix" and core is item and not _named(following)
            ends = following is None or following.text in ("/", ".", ",", ";") or _form(following) == "postfix"
            if opens or ends or _sign(following):
                core.set("rspace", "0")


def _core(item: ElementTree.Element) -> ElementTree.Element:
    """Return what carries the scripts of an item, or the item."""
    return item[0] if item.tag in SCRIPTS | LIMITS else item


def _sign(item: ElementTree.Element | None) -> bool:
    return item is not None and item.tag == MO and not item.get("form") and item.text in CENTRED


def _form(item: ElementTree.Element | None) -> str | None:
    return None if item is None else item.get("form")


def _named(item: ElementTree.Element | None) -> bool:
    """Return whether this is a function with a name in letters, which `_spaced` has given spaces."""
    return _form(item) == "prefix" and item is not None and "lspace" in item.attrib and (item.text or "")[:1].isalpha()


def _close_up(item: ElementTree.Element) -> None:
    """Take the spaces around relations and signs out of scripts, as TeX does: t−1 below a letter is one word."""
    if item.tag in SCRIPTS | LIMITS:
        for row in list(item)[1:]:
            for sign in row.iter(f"{{{NAMESPACE}}}mo"):
                if sign is not row and sign.text in RELATIONS - {",", ";"}:
                    sign.set("lspace", "0")
                    sign.set("rspace", "0")


def _formula(items: list[ElementTree.Element], **more: str) -> str:
    root = ElementTree.Element(f"{{{NAMESPACE}}}math", {"display": "inline", **more})
    row = ElementTree.SubElement(root, f"{{{NAMESPACE}}}mrow")
    row.extend(items)
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)

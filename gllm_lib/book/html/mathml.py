"""What pandoc's MathML leaves to be done, seen in Chromium.

Spaces around named functions and big operators; accents, which it writes with combining characters; primes, which a
browser raises twice; aligned rows in display style; bars that grow for a script; powers of big parentheses; dots
between signs; spaces in scripts; thousands, which it takes for lists; heads of columns without words; and places where
a long formula in running text may break, so that it does not widen a narrow page.
"""

from __future__ import annotations

import html
import re
from xml.etree import ElementTree

from gllm_lib.book.html.linear import linear

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
ElementTree.register_namespace("", NAMESPACE)
SIGN = re.compile(r'<mi>([+−±·×])</mi>(?=(?:<m(?:sup|sub|subsup)>)?<mo [^>]*form="postfix">[‖|])')  # before a norm
BARS = ("|", "∥", "‖", "∣")
FUNCTION = re.compile(
    r"(?P<before></m(?:i|n|row|sub|sup|subsup|frac|sqrt|over|under)>)?"
    r"(?P<script><m(?:sub|sup|subsup|under|over|underover)>)?"
    r'(?:<mrow><mi mathvariant="normal">(?P<applied>[^<]{2,})</mi><mo>(?:&#8289;|\u2061)</mo></mrow>'
    r'|(?<=<munder>)<mi mathvariant="normal">(?P<limit>[a-z][^<]+)</mi>)'
    r'(?P<bare></|<mo stretchy="\w+" form="prefix">)?'
)
ACCENT = re.compile(r'<mover>(?P<base>.*?)<mo accent="true">(?P<mark>[\u0302-\u030c\u203e\u00af])</mo></mover>')
SPACING = {"\u0302": "^", "\u0303": "\u02dc", "\u0307": "\u02d9", "\u0308": "\u00a8", "\u030c": "\u02c7"}
RELATIONS = set("=≠<>≤≥≪≫≈≡∼≃≅∝∈∉⊂⊆⊃⊇→←↦⟶⟹⇒⇔≔≺≼⪯⪰≻≽+−±·×∪∩∧∨,;") | {":=", "⟼", "∣"}
SCRIPTS = {f"{{{NAMESPACE}}}{name}" for name in ("msup", "msub", "msubsup")}
LIMITS = {f"{{{NAMESPACE}}}{name}" for name in ("munder", "mover", "munderover")}
TALL = {f"{{{NAMESPACE}}}{name}" for name in ("mfrac", "mtable", "msqrt", "mroot", "munder", "munderover")}
MO, MI, MROW = (f"{{{NAMESPACE}}}{name}" for name in ("mo", "mi", "mrow"))
SIGNS = tuple("+−±·×")
BIG = set("∑∏∐∫⋃⋂⨁⨂⋁⋀")
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
    if not before and not after:
        return formula
    pieces = formula.split("<wbr>")
    pieces[0] = before + pieces[0]
    pieces[-1] += after
    ends = {0} if not after else {len(pieces) - 1} if not before else {0, len(pieces) - 1}
    return "<wbr>".join(f'<span class="kept">{p}</span>' if k in ends else p for k, p in enumerate(pieces))


def _mended(formula: str) -> str:
    formula = ACCENT.sub(_accented, FUNCTION.sub(_spaced, formula))
    formula = re.sub(r'(<mo [^>]*form="\w+">)∥</mo>', r"\1‖</mo>", formula)  # a norm, not the relation "parallel"
    formula = SIGN.sub(r"<mo>\1</mo>", formula)
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
        return re.sub(r'<mtable>(?=<mtr><mtd [^>]*padding-right: 0")', '<mtable displaystyle="true">', formula)
    named = "aria-label" in formula
    return broken(formula) if source and len(source[1]) > LONG and not named else formula


def _spaced(found: re.Match[str]) -> str:
    """Return a named function as an operator with TeX's thin spaces: before it after a letter, after it unless "("."""
    left = THIN if found["before"] else "0"
    right = "0" if found["bare"] and not found["script"] else THIN
    words = re.sub(r"^lim(?=sup|inf)", "lim ", found["applied"] or found["limit"])
    name = f'<mo form="prefix" lspace="{left}" rspace="{right}">{words}</mo>'
    return f"{found['before'] or ''}{found['script'] or ''}{name}{found['bare'] or ''}"


def broken(formula: str) -> str:
    """Return an inline formula as several, cut after its outermost relations and operators; a browser breaks there."""
    root = ElementTree.fromstring(formula)
    row = root.find(f"./{{{NAMESPACE}}}semantics/{{{NAMESPACE}}}mrow")
    if row is None:
        return formula
    pieces: list[list[ElementTree.Element]] = [[]]
    depth = 0
    for item in row:
        pieces[-1].append(item)
        core = _core(item)  # a parenthesis that closes may carry a power
        if core.tag != MO:
            continue
        form, sign = core.get("form"), core.text or ""
        depth += (sign in "([{⟨") - (sign in ")]}⟩") if form else 0
        if depth == 0 and core is item and not form and sign in RELATIONS and len(pieces[-1]) > 1:
            pieces.append([])
    pieces = [piece for piece in pieces if piece]
    if len(pieces) == 1:
        return formula
    return "<wbr>".join(_formula(piece) for piece in pieces)


def _accented(found: re.Match[str]) -> str:
    """Return an accent as a character of its own, a bar over several letters as a rule over them."""
    base, mark = found["base"], found["mark"]
    if "<mover>" in base:  # the innermost accent belongs to this mark
        return "<mover>" + ACCENT.sub(_accented, found[0].removeprefix("<mover>"))
    if mark in "\u203e\u00af" and base.startswith("<mrow>"):
        return f'<mrow class="over">{base}</mrow>'
    spaced = SPACING.get(mark, "\u00af")
    return f'<mover>{base}<mo accent="true" stretchy="false">{spaced}</mo></mover>'


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


def _formula(items: list[ElementTree.Element]) -> str:
    root = ElementTree.Element(f"{{{NAMESPACE}}}math", {"display": "inline"})
    row = ElementTree.SubElement(root, f"{{{NAMESPACE}}}mrow")
    row.extend(items)
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)

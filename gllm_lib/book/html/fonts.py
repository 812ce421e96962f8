"""The font of the formulas. A browser draws brackets, roots and sums that grow only from a font with a table for
mathematics, which few phones have: the book carries STIX Two Math, cut down to what its formulas show.
"""

from __future__ import annotations

import html
import io
import re
import unicodedata
from collections.abc import Iterable
from importlib.metadata import distribution

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont

FONT = "ziamath/fonts/STIXTwoMath-Regular.ttf"  # of that package, the font alone is used
FORMULA = re.compile(r"<math\b.*?</math>", re.DOTALL)
UNSEEN = re.compile(r"<annotation\b.*?</annotation>|<[^>]*>", re.DOTALL)
DRAWN = {"√", "−"}  # by <msqrt>, and for a hyphen
# a letter that stands alone in <mi> is drawn as the italic one
ITALIC = [chr(code) for code in (0x210E, *range(0x1D434, 0x1D468), *range(0x1D6E2, 0x1D71C))]
UPRIGHT = {chr(int(told.split()[-1], 16)): letter for letter in ITALIC if (told := unicodedata.decomposition(letter))}


def math_font(pages: Iterable[str]) -> bytes:
    """Return STIX Two Math as WOFF, with its licence and with what the formulas of these pages of HTML show."""
    shown = DRAWN.union(*(html.unescape(UNSEEN.sub("", found)) for page in pages for found in FORMULA.findall(page)))
    shown |= {UPRIGHT[letter] for letter in shown & UPRIGHT.keys()}
    options = Options(flavor="woff", layout_features=["ssty"], hinting=False, name_IDs=["*"], recalc_timestamp=False)
    with TTFont(str(distribution("ziamath").locate_file(FONT)), recalcTimestamp=False) as font:
        cut = Subsetter(options)
        cut.populate(unicodes=map(ord, shown))
        cut.subset(font)
        font.flavor = options.flavor
        font.save(whole := io.BytesIO())
    return whole.getvalue()

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
GROWING = "√()[]{}⟨⟩⌊⌋⌈⌉"
WIDEST = 1.08  # of the width of the plain sign
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
        _narrow(font)
        font.flavor = options.flavor
        font.save(whole := io.BytesIO())
    return whole.getvalue()


def _narrow(font: TTFont) -> None:
    """Set the forms of a bracket or root nearly as narrow as the plain one, and scripts as low and high as TeX does.

    Chromium leaves each form the room of the widest one, and lowers an index by the depth of the letter before it.
    """
    table, widths, outlines = font["MATH"].table, font["hmtx"], font["glyf"]
    variants, shown = table.MathVariants, font.getBestCmap()
    signs = {shown.get(ord(sign)) for sign in GROWING}
    narrowed: set[str] = set()
    for plain, grown in zip(variants.VertGlyphCoverage.glyphs, variants.VertGlyphConstruction, strict=True):
        parts = grown.GlyphAssembly.PartRecords if grown.GlyphAssembly else []
        forms = [*(each.VariantGlyph for each in grown.MathGlyphVariantRecord), *(part.glyph for part in parts)]
        widest = WIDEST * widths[plain][0]
        for form in {form for form in forms if plain in signs and widths[form][0] > widest} - narrowed:
            narrowed.add(form)
            scale = widest / widths[form][0]
            outlines[form].coordinates.scale((scale, 1))
            outlines[form].recalcBounds(outlines)
            widths[form] = (round(widest), outlines[form].xMin)
    table.MathConstants.SubscriptBaselineDropMin.Value, table.MathConstants.SuperscriptBaselineDropMax.Value = 50, 386

"""The letters of a picture: Pillow's own font, so that it looks the same on every machine."""

from __future__ import annotations

from functools import cache

from PIL import ImageFont

SCALE = 2
"""Pixels to a CSS pixel: sharp on the screens that have so many, and on paper."""

# Not in the font, but close to what is.
_SIMPLE = str.maketrans({"−": "-", "–": "-", "×": "x", "÷": "/"})


class Font:
    """The font at a size in CSS pixels; a bold one is drawn with a wider stroke."""

    def __init__(self, size: float, *, bold: bool = False) -> None:
        font = ImageFont.load_default(size * SCALE)
        if not isinstance(font, ImageFont.FreeTypeFont):
            raise ImportError("This Pillow was built without FreeType, which text is drawn with.")
        self.face = font
        self.stroke = size * SCALE / 60 if bold else 0.0
        self._letters: dict[str, str] = {}
        self._unknown = bytes(font.getmask("\uffff"))

    def width(self, text: str) -> float:
        """How much room a text takes, in CSS pixels."""
        return float(self.face.getlength(self.readable(text)) / SCALE)

    def readable(self, text: str) -> str:
        r"""The text in letters that the font has; others are spelt out, as Python does.

        >>> Font(11).readable("слой.weight … −1")
        '\\u0441\\u043b\\u043e\\u0439.weight … -1'
        """
        text = text.translate(_SIMPLE)
        return text if text.isascii() else "".join(map(self._letter, text))

    def _letter(self, letter: str) -> str:
        if letter not in self._letters:
            has = letter.isascii() or bytes(self.face.getmask(letter)) != self._unknown
            self._letters[letter] = letter if has else letter.encode("ascii", "backslashreplace").decode()
        return self._letters[letter]


@cache
def font(size: float, *, bold: bool = False) -> Font:
    """One of each."""
    return Font(size, bold=bold)

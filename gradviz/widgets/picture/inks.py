"""A picture in inks instead of colours: every pixel is a place in a palette, and a theme says what colour that is.

So one drawing serves a light page and a dark one, and is a small PNG. The palette holds the colour map first;
behind it, for each ink, a ramp from what it is drawn on to its full strength, which is what smoothed edges need.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from gradviz.widgets.picture.fonts import SCALE, Font

Colour = tuple[int, int, int]
Indices = NDArray[np.uint8]

COLOURS = 128
"""Steps of the colour map: every other one of the table, so that the inks have room in the palette."""
STEPS = 4
"""Steps of a ramp: on two pixels to a CSS pixel, more make only the file larger."""
SMOOTH = 4
"""Lines and patterns are drawn so many times too large and then reduced."""


class Ink(IntEnum):
    """What is drawn with, by its place among the ramps."""

    TEXT = 0
    MUTED = 1
    ACCENT = 2
    BAD = 3
    LINE = 4
    MARK = 5
    """On the ground of a track, where nothing was measured."""
    GLYPH = 6
    """On BAD."""

    @property
    def ramp(self) -> int:
        """The first index of its ramp: the ground."""
        return COLOURS + STEPS * self

    @property
    def full(self) -> int:
        """The index of its full strength."""
        return self.ramp + STEPS - 1


PAPER = Ink.TEXT.ramp
TRACK = Ink.MARK.ramp
FAINT = Ink.BAD.ramp + 1
CLEAR = COLOURS + STEPS * len(Ink)


@dataclass(frozen=True)
class Theme:
    """Colours of the inks (`js/src/heatmap.css`); the dark paper is JupyterLab's."""

    paper: Colour
    track: Colour
    text: Colour
    muted: Colour
    accent: Colour
    bad: Colour
    line: Colour
    mark: Colour
    glyph: Colour

    def palette(self, colours: bytes) -> bytes:
        """RGB of every index, with the steps of this table of 256 as the colour map."""
        table = np.frombuffer(colours, np.uint8).reshape(256, 3)[table_places()]
        ramps = {
            Ink.TEXT: (self.paper, self.text),
            Ink.MUTED: (self.paper, self.muted),
            Ink.ACCENT: (self.paper, self.accent),
            Ink.BAD: (self.paper, self.bad),
            Ink.LINE: (self.paper, self.line),
            Ink.MARK: (self.track, self.mark),
            Ink.GLYPH: (self.bad, self.glyph),
        }
        mixed = [np.linspace(*ramps[ink], STEPS) for ink in Ink]
        mixed.append(np.array([self.paper]))  # CLEAR
        return table.tobytes() + np.concatenate(mixed).round().astype(np.uint8).tobytes()


LIGHT = Theme(
    paper=(255, 255, 255),
    track=(244, 244, 245),
    text=(31, 36, 48),
    muted=(85, 89, 99),
    accent=(37, 99, 201),
    bad=(194, 48, 74),
    line=(224, 227, 232),
    mark=(121, 130, 143),
    glyph=(255, 255, 255),
)
DARK = Theme(
    paper=(17, 17, 17),
    track=(32, 32, 33),
    text=(230, 233, 238),
    muted=(179, 181, 185),
    accent=(125, 176, 255),
    bad=(255, 123, 143),
    line=(47, 54, 63),
    mark=(127, 137, 150),
    glyph=(22, 9, 12),
)


def table_places() -> NDArray[np.int64]:
    """Where in the table of 256 each step of the colour map stands: both ends are kept."""
    steps = np.arange(COLOURS)
    return 2 * steps + (steps >= COLOURS // 2)


class Sheet:
    """A sheet to draw on; places and sizes are in CSS pixels from the top left corner."""

    def __init__(self, width: float, height: float) -> None:
        size = round(width * SCALE), round(height * SCALE)
        self._index: Indices = np.full(size[::-1], PAPER, np.uint8)
        self._layers = {ink: Image.new("L", size) for ink in (Ink.TEXT, Ink.MUTED, Ink.ACCENT, Ink.BAD)}
        self._pens = {ink: ImageDraw.Draw(layer) for ink, layer in self._layers.items()}

    def box(self, x: float, y: float, width: float, height: float) -> Indices:
        """A part of it, to paint on pixel by pixel."""
        left, top = round(x * SCALE), round(y * SCALE)
        return self._index[top : top + round(height * SCALE), left : left + round(width * SCALE)]

    def write(self, x: float, y: float, text: str, font: Font, ink: Ink, anchor: str = "ls") -> None:
        """Text, its left or right end ("ls", "rs") or its very middle ("mm") at a point of the baseline."""
        place = x * SCALE, y * SCALE
        self._pens[ink].text(place, font.readable(text), 255, font.face, anchor, stroke_width=font.stroke)

    def stencil(self, x: float, y: float, mask: Indices, ink: Ink) -> None:
        """A mask of 0 to 255, pixel by pixel."""
        self._layers[ink].paste(Image.fromarray(mask), (round(x * SCALE), round(y * SCALE)))

    def finished(self) -> Indices:
        """The places in the palette, [height, width]; what is written lies above what is painted."""
        for ink, layer in self._layers.items():
            mask = np.asarray(layer)
            drawn = mask > 255 // (2 * STEPS)
            self._index[drawn] = ramp(mask[drawn], ink)
        return self._index


def ramp(mask: Indices, ink: Ink) -> Indices:
    """A mask of 0 to 255 as places in the ramp of an ink."""
    steps = (mask.astype(np.uint16) * (STEPS - 1) + 127) // 255
    return (ink.ramp + steps).astype(np.uint8)


def reduced(width: int, height: int, draw: Callable[[ImageDraw.ImageDraw], None]) -> Indices:
    """A smoothed mask: `draw` is called with a pen for a sheet that is SMOOTH times as large."""
    large = Image.new("L", (SMOOTH * width, SMOOTH * height))
    draw(ImageDraw.Draw(large))
    return np.asarray(large.reduce(SMOOTH))


def png(index: Indices, theme: Theme, colours: bytes, *, cut_colours: bool = False) -> bytes:
    """The drawing as a PNG; `cut_colours` leaves holes where the colour map is, to lay one theme over another."""
    options: dict[str, object] = {}
    if cut_colours:
        index = np.where(index < COLOURS, np.uint8(CLEAR), index)
        options["transparency"] = CLEAR
    image = Image.fromarray(index)
    image.putpalette(theme.palette(colours))
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=6, **options)
    return file.getvalue()

"""Can the text be read? Contrast as WCAG 2 defines it, between the colours that the browser computed."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import Locator

# WCAG 2.2, success criterion 1.4.3 (level AA), for text of ordinary size.
READABLE = 4.5

RGB = tuple[float, float, float]
RGBA = tuple[float, float, float, float]

# Every text a person can see under `root`, with its colour and the backgrounds behind it, nearest first,
# down to the first opaque one. A 1 x 1 canvas turns any CSS colour (oklch, color-mix ...) into bytes.
_TEXTS = """root => {
  const dot = Object.assign(document.createElement('canvas'), {width: 1, height: 1});
  const pen = dot.getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const paper = getComputedStyle(document.body).getPropertyValue('--jp-layout-color0').trim();
  const page = rgba(paper || 'Canvas');
  const behind = element => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const layer = rgba(getComputedStyle(at).backgroundColor);
      if (layer[3] > 0) layers.push(layer);
      if (layer[3] === 1) return layers;
    }
    return [...layers, page];
  };
  const fade = element => {
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    return opacity;
  };
  const found = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility({checkVisibilityCSS: true, checkOpacity: true})) continue;
    if (element.closest('style, script, option')) continue;
    const place = element.getBoundingClientRect();
    if (place.width <= 1 || place.height <= 1) continue;  // for screen readers only
    const style = getComputedStyle(element);
    const colour = rgba(element instanceof SVGElement ? style.fill : style.color);
    colour[3] *= fade(element);
    found.push({text, colour, behind: behind(element)});
  }
  return found;
}"""


@dataclass(frozen=True)
class Text:
    """A piece of text on the screen, and how far its colour stands out (1 to 21)."""

    text: str
    colour: RGB
    background: RGB
    contrast: float


def texts(root: Locator) -> list[Text]:
    """All visible text under `root`, hardest to read first."""
    found = []
    for seen in root.evaluate(_TEXTS):
        background: RGB = (255.0, 255.0, 255.0)
        for layer in reversed(seen["behind"]):
            background = over(layer, background)
        colour = over(seen["colour"], background)
        found.append(Text(seen["text"], colour, background, ratio(colour, background)))
    return sorted(found, key=lambda text: text.contrast)


def assert_readable(root: Locator, least: float = READABLE) -> None:
    """There is text, and all of it reaches the contrast `least`."""
    seen = texts(root)
    assert seen, "There is no visible text at all."
    faint = [text for text in seen if text.contrast < least]
    assert not faint, f"{len(faint)} of {len(seen)} texts have a contrast below {least}: {faint[:5]}"


def ratio(one: RGB, other: RGB) -> float:
    """Contrast of two opaque colours.

    >>> ratio((0, 0, 0), (255, 255, 255)), round(ratio((119, 119, 119), (255, 255, 255)), 2)
    (21.0, 4.48)
    """
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: RGB) -> float:
    """Relative luminance, from 0 (black) to 1 (white)."""
    red, green, blue = (_linear(channel / 255) for channel in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def over(layer: RGBA, background: RGB) -> RGB:
    """The colour of a translucent layer on an opaque background."""
    *front, alpha = layer
    red, green, blue = (alpha * f + (1 - alpha) * b for f, b in zip(front, background, strict=True))
    return red, green, blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)

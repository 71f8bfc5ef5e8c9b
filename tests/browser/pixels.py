"""Reading the heatmap: its device pixels and the numbers it publishes about them, taken in one piece."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from playwright.sync_api import Locator

Strip = npt.NDArray[np.uint8]

# One synchronous call: no message is handled and nothing is painted between the first pixel and the last
# attribute.
_GRAB = """root => {
  const canvas = root.querySelector('canvas.gv-heat');
  const box = canvas.getBoundingClientRect();
  // From a copy: reading the widget's own canvas would slow it down, with a warning from Chromium.
  const copy = Object.assign(document.createElement('canvas'), {width: canvas.width, height: canvas.height});
  const context = copy.getContext('2d', {willReadFrequently: true});
  context.drawImage(canvas, 0, 0);
  const rows = {};
  for (const label of root.querySelectorAll('[data-parameter]')) {
    const place = label.getBoundingClientRect();
    const y = Math.floor((place.top + place.height / 2 - box.top) * canvas.height / box.height);
    if (place.height === 0 || y < 0 || y >= canvas.height) continue;
    const bytes = context.getImageData(0, y, canvas.width, 1).data;
    let text = '';
    for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
    rows[label.dataset.parameter] = btoa(text);
  }
  const prompt = root.closest('.jp-Cell')?.querySelector('.jp-InputPrompt')?.textContent ?? '';
  const status = root.querySelector('.gv-status')?.textContent ?? '';
  return {data: {...canvas.dataset}, width: canvas.width, height: canvas.height, rows, prompt, status};
}"""


@dataclass(frozen=True)
class Picture:
    """The heatmap at one moment: `span` iterations from `start` on.

    `rows`: RGBA of the centre line of each row, [width, 4].
    """

    iterations: int
    start: int
    span: int
    lo: int
    hi: int
    seq: int
    level: int
    width: int
    height: int
    rows: dict[str, Strip]
    prompt: str
    status: str

    def x_of(self, iteration: int) -> int:
        """The device pixel in the middle of an iteration's column."""
        owned = self._owned(iteration)
        if owned:
            return (owned.start + owned.stop) // 2
        return (iteration - self.start) * self.width // self.span

    def iterations_of(self, x: int) -> range:
        """The iterations that device pixel `x` shows, while each column is one iteration (level 0).

        A column at least a pixel wide owns its pixels; narrower ones share each pixel that they touch.
        """
        assert self.level == 0, f"Columns are merged (level {self.level}): who shares a pixel is not known here."
        touching = range(self.start + x * self.span // self.width, self.start - (-(x + 1) * self.span // self.width))
        if self.width < self.span:
            return touching[: max(self.iterations - touching.start, 0)]
        owner = next(i for i in touching if x in self._owned(i))
        return range(owner, owner + 1)

    def _owned(self, iteration: int) -> range:
        edges = (Fraction((edge - self.start) * self.width, self.span) for edge in (iteration, iteration + 1))
        return range(*(int((edge + Fraction(1, 2)) // 1) for edge in edges))

    def rgb(self, parameter: str, x: int) -> tuple[int, int, int]:
        """The colour of a parameter's row at device pixel `x`; the pixel has to be opaque."""
        red, green, blue, alpha = (int(channel) for channel in self.rows[parameter][x])
        assert alpha == 255, f"{parameter} at pixel {x}: alpha is {alpha}, nothing is painted there."
        return red, green, blue


def grab(widget: Locator) -> Picture:
    """Read the pixels and the attributes of a heatmap (`widget`: its `.gv-heatmap` root)."""
    seen = widget.evaluate(_GRAB)
    data = seen["data"]
    rows = {
        name: np.frombuffer(base64.b64decode(strip), dtype=np.uint8).reshape(-1, 4)
        for name, strip in seen["rows"].items()
    }
    return Picture(
        iterations=int(data["iterations"]),
        start=int(data["start"]),
        span=int(data["span"]),
        lo=int(data["lo"]),
        hi=int(data["hi"]),
        seq=int(data["seq"]),
        level=int(data["level"]),
        width=seen["width"],
        height=seen["height"],
        rows=rows,
        prompt=seen["prompt"].strip().rstrip(":"),
        status=seen["status"],
    )


def wait_painted(widget: Locator, iterations: int) -> None:
    """Bring the heatmap into view (out of sight it does not paint) and wait for so many iterations."""
    widget.scroll_into_view_if_needed()
    widget.page.wait_for_function(
        "([root, n]) => Number(root?.querySelector('canvas.gv-heat')?.dataset.iterations ?? 0) >= n",
        arg=[widget.element_handle(), iterations],
    )

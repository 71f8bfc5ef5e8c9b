"""Reading the still picture of a run: the pixels that the browser decoded, found without knowing how it is laid out."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from PIL import Image
from playwright.sync_api import Locator

from gradviz.widgets.colours import VIRIDIS

from . import colours
from .pixels import Picture

Pixels = npt.NDArray[np.uint8]

# Drawn on a canvas by the browser: what it could not decode gives no pixels.
_DECODED = """async image => {
  await image.decode();
  const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
  canvas.getContext('2d').drawImage(image, 0, 0);
  const blob = await canvas.convertToBlob({type: 'image/png'});
  const bytes = new Uint8Array(await blob.arrayBuffer());
  let text = '';
  for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  return btoa(text);
}"""
_TABLE = np.frombuffer(VIRIDIS, np.uint8).reshape(256, 3)
SCALE = 2
ROW = 14 * SCALE


def decoded(image: Locator) -> Pixels:
    """The pixels of an `img`, [height, width, RGBA], as the browser decoded them."""
    assert image.evaluate("image => image.naturalWidth") > 0
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(image.evaluate(_DECODED)))).convert("RGBA"))


def read(image: Locator, names: Sequence[str], norms: pd.DataFrame) -> Picture:
    """The heatmap in the picture; every row is taken to end with a value."""
    pixels = decoded(image)
    packed = pixels[..., :3].astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    coloured = np.isin(packed, _TABLE.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32))
    right = int(np.flatnonzero(coloured.sum(axis=0) >= ROW)[-1]) + 1
    tops = _bands(coloured[:, right - 1])
    assert len(tops) == len(names), f"{len(tops)} rows of colour for {len(names)} parameters"
    filled = coloured[[top + ROW // 2 for top in tops], :right].any(axis=0)
    left = right - int(np.argmin(filled[::-1])) if not filled.all() else 0
    values = norms.to_numpy(dtype=np.float32)
    positive = values[np.isfinite(values) & (values > 0)].astype(np.float64)
    lo, hi = colours.domain(positive.max(), positive.min())
    return Picture(
        iterations=len(norms),
        start=0,
        span=len(norms),
        lo=lo,
        hi=hi,
        seq=0,
        level=0,
        width=right - left,
        height=len(pixels),
        rows={name: pixels[top + ROW // 2, left:right] for name, top in zip(names, tops, strict=True)},
        prompt="",
        status="",
    )


def assert_shows(figure: Locator, norms: pd.DataFrame) -> None:
    """The picture in the output has decoded, and every cell of it has the colour that the history asks for."""
    picture = read(figure.locator("img").first, list(norms.columns), norms)
    cells = [(name, iteration) for name in picture.rows for iteration in range(len(norms))]
    colours.assert_cells(picture, norms, VIRIDIS, cells)


def assert_words(figure: Locator, *patterns: str) -> None:
    text = figure.inner_text()
    for pattern in patterns:
        assert re.search(pattern, text), f"no {pattern!r} in {text!r}"


def _bands(column: npt.NDArray[np.bool_]) -> list[int]:
    """Where the stretches begin that are as high as a row."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], column, [False])).astype(np.int8)))
    return [int(a) for a, b in edges.reshape(-1, 2) if b - a == ROW]

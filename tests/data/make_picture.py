"""Write tests/data/picture.json: what the still picture of Python and the live one of TypeScript lay out alike."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from gradviz.history.overview import Columns
from gradviz.history.schema import Parameter
from gradviz.widgets.colours import NORMS, RATIOS, colour_index, domain_of
from gradviz.widgets.picture import words
from gradviz.widgets.picture.chips import place_chips
from gradviz.widgets.picture.looks import looks_of
from gradviz.widgets.picture.pixels import place_columns
from gradviz.widgets.picture.rows import fit_end, group, lay_out
from gradviz.widgets.picture.ticks import epoch_ticks, iteration_ticks

random = np.random.default_rng(0)


def measure(text: str) -> float:
    return 7 * len(text)


def columns(edges: list[int]) -> Columns:
    start, stop = np.array(edges[:-1], "u4"), np.array(edges[1:], "u4")
    cells = np.ones((len(start), 1), "f4")
    return Columns(start, stop, cells, cells, cells.astype("u1"))


def numbers() -> list:
    values = [0, 1, -1, 0.5, 0.0011234, 9.999, 99.95, 100, 999.4, 999.5, -1234.5, 123456, 1e6, 4.73e-4, 9.996e-4, 1e-30]
    return [[value, words.glance(value)] for value in values]


def notes() -> list:
    cases = [(level, most, "max") for level in (0, 2) for most in (1, 4, 5, 4096)] + [(2, 4, "furthest from 1")]
    return [[*case, words.column_note(*case)] for case in cases]


def dtypes() -> list:
    names = ["float32", "bfloat16", "float8_e4m3fn", "complex64", "uint8", "int64", "bool", "float"]
    return [[name, words.short_dtype(name)] for name in names]


def colours() -> list:
    cases = []
    norms = [20.0, 0.5], [1.0, 1e-30], [1e-5, 1.1e-5], [1.0, 10.0, 0.1], [3.4e38, 1e-45]
    ratios = [1.0, 1.1, 0.9], [16.0, 1.0], [0.2, 3.0, 8.0], [3.4e38, 1e-45, 1.0], [1e-3, 0.999, 1.001]
    for scale, several in ((NORMS, norms), (RATIOS, ratios)):
        for values in several:
            values = np.array(values, "f4")
            domain = domain_of(values, values, scale)
            cases.append([values.tolist(), list(domain), colour_index(values, domain).tolist()])
    return cases


def shown() -> list:
    pairs = [(3.0, 0.5), (2.0, 0.25), (4.0, 0.25), (4.0, 0.0), (3.4e38, 1e-45), (0.5, 0.25), (8.0, 2.0), (1.0, 1.0)]
    high, low = np.array(pairs, "f4").T
    return [[pair, float(seen)] for pair, seen in zip(pairs, RATIOS.shown(high, low), strict=True)]


def looks() -> list:
    values = np.repeat(np.float32([1.0, 0.0, np.nan]), 256)
    flags = np.tile(np.arange(256, dtype="u1"), 3)
    return looks_of(values, flags).reshape(3, 256).tolist()


def pixels() -> list:
    cases = []
    for edges, span, width in [
        (list(range(4)), 3, 10),
        (list(range(5)), 4, 3),
        (list(range(0, 70, 7)), 100, 13),
        ([0, 8, 16, 24, 25, 26, 27], 64, 20),
        (list(range(38)), 64, 50),
        ([5, 9, 20, 21, 50], 50, 7),
    ]:
        placed = place_columns(columns(edges), span, width)
        most = placed.most_iterations(columns(edges))
        cases.append([edges, span, width, placed.first.tolist(), placed.last.tolist(), placed.end, most])
    return cases


def chips() -> list:
    cases = []
    for size, share in ((3, 0.1), (3, 0.4), (9, 0.05), (9, 0.95)):
        row = np.where(random.random(80) < share, random.integers(7, 11, 80), 1).astype("u1")
        found = place_chips(row, size)
        placed = [[chip.look, chip.start, chip.stop, chip.left, chip.right, chip.glyph] for chip in found]
        cases.append([size, row.tolist(), placed])
    return cases


def layouts() -> list:
    cases = []
    for names in (
        ["0.weight", "0.bias", "2.weight"],
        ["embed.weight", "encoder.0.attn.weight", "encoder.0.attn.bias", "encoder.1.mlp.0.weight", "head.proj.weight"],
        ["a.b.weight", "c", "d", "a.d.weight", "weights.0"],
        ["model.embed.weight", "model.layers.0.attn.weight", "model.layers.0.scale", "model.layers.1.attn.weight"],
        ["model.mlp.0.weight", "model.mlp.2.weight", "model.attn.out.weight"],
    ):
        layout = lay_out(group([Parameter(name=name, shape=(), dtype="float32") for name in names]))
        rows = [[row.label, row.top] for row in layout.rows]
        headers = [[header.label, header.top, header.height] for header in layout.headers]
        cases.append([names, rows, headers, layout.height])
    return cases


def fits() -> list:
    labels = ["attn.out.weight", "self_attention.weight", "a.b", "x"]
    return [[label, width, fit_end(label, width, len)] for label in labels for width in (3, 12, 14, 20)]


def ticks() -> list:
    cases = []
    for span in (1, 3, 64, 460, 1050, 99_999, 5_000_000):
        for width in (120, 333, 750):
            for epochs in (1, 6, 40, 1000):
                starts = [i * span // epochs for i in range(epochs)]
                below = [[tick.x, tick.label, tick.left] for tick in iteration_ticks(span, width, measure)]
                above = [[tick.x, tick.label, tick.left] for tick in epoch_ticks(starts, span, width, measure)]
                cases.append([span, width, epochs, below, above])
    return cases


def golden() -> dict:
    makers = (numbers, notes, dtypes, colours, shown, looks, pixels, chips, layouts, fits, ticks)
    return {maker.__name__: maker() for maker in makers}


if __name__ == "__main__":
    text = json.dumps(golden(), separators=(",", ":"))
    Path(__file__).with_name("picture.json").write_text(text.replace('],"', '],\n"') + "\n")

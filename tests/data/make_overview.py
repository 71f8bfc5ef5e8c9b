"""Write tests/data/overview.json: the golden cases that the overview of Python and of TypeScript are held to."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np

from gradviz.history.overview import Columns, Overview
from gradviz.widgets.wire import pack


def columns(random: np.random.Generator, start: int, count: int, rows: int) -> Columns:
    """Single iterations with every kind of accident among them."""
    values = np.exp(random.normal(-3, 4, (count, rows))).astype("f4")
    flags = np.zeros((count, rows), "u1")
    for flag in (1, 2, 4, 16, 32, 128):
        hit = random.random((count, rows)) < 0.04
        flags[hit] |= flag
        values[hit] = np.nan
    zero = (random.random((count, rows)) < 0.05) & ~np.isnan(values)
    values[zero] = 0
    flags[zero] |= 8
    first = np.arange(start, start + count, dtype="u4")
    return Columns(first, first + np.uint32(1), values, values, flags)


def case(
    seed: int,
    capacity: int,
    rows: int,
    lengths: list[int],
    merge_to: int | None = None,
    grow: bool = False,
    every: int | None = None,
) -> dict:
    random, overview, appends, at = np.random.default_rng(seed), Overview(capacity), [], 0
    for turn, length in enumerate(lengths):
        piece = columns(random, at, length, rows + (turn // 2 if grow else 0))
        if every is not None:  # the others have the loss alone
            alone = (np.arange(at, at + length) % every > 0) & (at + np.arange(length) > 0)
            piece.maximum[alone, :-1] = piece.minimum[alone, :-1] = np.nan
            piece.flags[alone, :-1] = 0
        at += length
        if merge_to is not None:
            piece = piece.at_most(merge_to)
        appends.append(pack(piece))
        overview.append(piece)
    result = pack(overview.columns, with_minimum=True)
    text = [base64.b64encode(b).decode() for b in (*appends, result)]
    return {"capacity": capacity, "rows": rows, "appends": text[:-1], "result": text[-1], "level": overview.level}


if __name__ == "__main__":
    cases = [
        case(0, 8, 3, [1] * 5),
        case(1, 8, 3, [1] * 37),
        case(2, 16, 2, [5, 11, 1, 40, 3]),
        case(3, 16, 4, [7, 50, 50, 9], merge_to=4),
        case(4, 1, 1, [3, 3]),
        case(5, 12, 2, [4, 4, 4, 4, 4, 4], grow=True),
        case(6, 8, 3, [1] * 40, every=3),
        case(7, 8, 3, [7, 50, 2, 1, 9, 40], every=10),
        case(8, 16, 3, [30, 1, 25, 60], every=7, merge_to=4),
        case(9, 64, 2, [4, 4, 4, 4, 4, 4], every=5, grow=True),
    ]
    Path(__file__).with_name("overview.json").write_text(json.dumps(cases, indent=1) + "\n")

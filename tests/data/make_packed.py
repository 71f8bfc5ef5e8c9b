"""Write tests/data/packed.json: the golden cases that the columns of a page are held to in Python and TypeScript."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np

from gradviz.history.overview import Columns
from gradviz.widgets.packed import coded, decoded, flat
from gradviz.widgets.wire import pack
from tests.data.make_overview import columns

ENDS = np.array([1e-45, 1.17549435e-38, 0.5, 1, 1.0007, 10, 65504, 3.4028235e38], "f4")


def ends() -> Columns:
    """The smallest and the largest of numbers, of either sign, beside zero and nothing."""
    values = np.concatenate((ENDS, -ENDS, np.float32([0, np.nan])))[:, None] * np.ones((1, 2), "f4")
    start = np.arange(len(values), dtype="u4")
    return Columns(start, start + np.uint32(1), values, values, np.zeros(values.shape, "u1"))


def rounded(columns: Columns) -> Columns:
    """What is left of columns that were rounded; the loss is exact."""
    maximum, minimum = columns.maximum.copy(), columns.minimum.copy()
    for numbers in (maximum, minimum):
        numbers[:, :-1] = decoded(coded(numbers[:, :-1]))
    return Columns(columns.start, columns.stop, maximum, minimum, columns.flags, columns.level)


def cases() -> list[dict]:
    random = np.random.default_rng(0)
    whole = columns(random, 3, 60, 4)
    made = [ends(), whole, whole.at_level(2), columns(random, 0, 1, 1), columns(random, 0, 0, 3)]
    return [
        {
            "rounded": is_rounded,
            "flat": base64.b64encode(flat(each, rounded=is_rounded)).decode(),
            "columns": base64.b64encode(pack(rounded(each) if is_rounded else each)).decode(),
        }
        for each in made
        for is_rounded in (False, True)
    ]


if __name__ == "__main__":
    Path(__file__).with_name("packed.json").write_text(json.dumps(cases(), indent=1) + "\n")

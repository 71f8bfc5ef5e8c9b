"""Where each row lies: blocks of a module, with a bold header where names are nested (`js/src/rows/rows.ts`).

A picture cannot be scrolled, so one of a wide model has a row for each module instead of each parameter (`group`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import dropwhile, groupby, zip_longest

import numpy as np

from gradviz.history.overview import Columns, merged
from gradviz.history.schema import Parameter
from gradviz.widgets.picture.words import count, short_dtype

PITCH = 15
"""Height of a row, with one pixel of gap at its bottom."""
HEADER = 19
GAP = 5
"""Between modules that have no header."""

MAX_ROWS, MAX_HEIGHT = 60, 960
"""A larger picture is not seen at once."""


@dataclass(frozen=True)
class Group:
    """Parameters [start, stop) that are one row; `note` is their dtype, or how many they are."""

    name: str
    note: str
    start: int
    stop: int


@dataclass(frozen=True)
class Row:
    """A row's label and place, in CSS pixels from the top."""

    label: str
    note: str
    top: int


@dataclass(frozen=True)
class Header:
    """The name of a block above its rows."""

    label: str
    top: int
    height: int


@dataclass(frozen=True)
class Layout:
    """Rows and headers, and the height of them all."""

    rows: list[Row]
    headers: list[Header]
    height: int


def group(parameters: Sequence[Parameter], most: int = MAX_ROWS) -> list[Group]:
    """At most so many rows: each parameter its own, or those of a module together, or several modules.

    >>> names = ["a.0.weight", "a.0.bias", "a.1.weight", "a.1.bias", "head.weight"]
    >>> parameters = [Parameter(name=name, shape=(), dtype="float32") for name in names]
    >>> [row.name for row in group(parameters, 5)] == names
    True
    >>> [(row.name, row.note) for row in group(parameters, 4)]
    [('a.0', '(2)'), ('a.1', '(2)'), ('head.weight', 'f32')]
    >>> [(row.name, row.note) for row in group(parameters, 1)]
    [('a … head.weight', '(5)')]
    """
    paths = [parameter["name"].split(".") for parameter in parameters]
    rows = [_one(parameter, i) for i, parameter in enumerate(parameters)]
    depth = max(map(len, paths), default=0)
    while len(rows) > most and depth > 1:
        depth -= 1
        coarser = _by_module(rows, paths, depth)
        if 3 * len(coarser) < most:  # too few to tell anything: rather several of the finer ones in a row
            break
        rows = coarser
    size = math.ceil(len(rows) / most) if rows else 1
    return [_several(rows[i : i + size]) for i in range(0, len(rows), size)]


def _one(parameter: Parameter, place: int) -> Group:
    return Group(parameter["name"], short_dtype(parameter["dtype"]), place, place + 1)


def _by_module(rows: Sequence[Group], paths: Sequence[Sequence[str]], depth: int) -> list[Group]:
    modules = (list(members) for _, members in groupby(rows, lambda row: paths[row.start][:depth]))
    return [_joined(".".join(paths[members[0].start][:depth]), members) for members in modules]


def _several(rows: Sequence[Group]) -> Group:
    first, last = rows[0].name, rows[-1].name
    pairs = zip_longest(first.split("."), last.split("."))
    own = [part for _, part in dropwhile(lambda pair: pair[0] == pair[1], pairs) if part is not None]
    return _joined(f"{first} … {'.'.join(own)}", rows)


def _joined(name: str, rows: Sequence[Group]) -> Group:
    if len(rows) == 1:
        return rows[0]
    start, stop = rows[0].start, rows[-1].stop
    return Group(name, f"({count(stop - start)})", start, stop)


def merge_rows(columns: Columns, groups: Sequence[Group]) -> Columns:
    """Columns with a row for each group, and the loss last; parameters that the columns lack were not recorded."""
    if all(row.stop - row.start == 1 for row in groups):
        return columns
    starts = np.array([*(row.start for row in groups), columns.rows - 1])
    return Columns(columns.start, columns.stop, *merged(columns, starts, axis=1))


def blocks_of(names: Sequence[str]) -> list[str]:
    """The block of each name: its first component, and the second if that is a number.

    Or all up to a number further on that other modules lie below.

    >>> blocks_of(["encoder.0.attn.weight", "head.proj.weight", "weight"])
    ['encoder.0', 'head', '']
    >>> blocks_of(["model.layers.0.attn.weight", "model.layers.0.scale", "model.norm.weight"])
    ['model.layers.0', 'model.layers.0', 'model']
    """
    paths = [name.split(".") for name in names]
    numbered = {tuple(path[: i + 1]) for path in paths for i in range(2, len(path) - 2) if _is_number(path[i])}
    return [".".join(_block(path, numbered)) for path in paths]


def _block(path: Sequence[str], numbered: set[tuple[str, ...]]) -> Sequence[str]:
    if len(path) > 2 and _is_number(path[1]):
        return path[:2]
    modules = (path[: i + 1] for i in range(2, len(path) - 1))
    return next((module for module in modules if tuple(module) in numbered), path[: min(1, len(path) - 1)])


def _is_number(part: str) -> bool:
    return part.isdecimal() and part.isascii()


def arrange(parameters: Sequence[Parameter]) -> tuple[list[Group], Layout]:
    """The rows of a picture of bounded height: as many of them as fit."""
    for most in range(MAX_ROWS, 0, -5):
        groups = group(parameters, most)
        layout = lay_out(groups)
        if layout.height <= MAX_HEIGHT:
            break
    return groups, layout


def lay_out(groups: Sequence[Group]) -> Layout:
    """Rows one below the other, blocks apart."""
    rows: list[Row] = []
    headers: list[Header] = []
    top = 0
    blocks = blocks_of([row.name for row in groups])
    for block, found in groupby(zip(blocks, groups, strict=True), lambda pair: pair[0]):
        members = [row for _, row in found]
        nested = block != "" and any("." in row.name[len(block) + 1 :] for row in members)
        if nested:
            height = HEADER if rows else HEADER - 3  # the first header needs no air above it
            headers.append(Header(block, top, height))
            top += height
        elif rows:
            top += GAP
        for row in members:
            rows.append(Row(row.name[len(block) + 1 :] if nested else row.name, row.note, top))
            top += PITCH
    return Layout(rows, headers, top)


def fit_end(label: str, width: float, measure: Callable[[str], float]) -> str:
    """A label that fits: whole, or its end after an ellipsis, cut at a dot where that costs little.

    >>> fit_end("encoder.attention.out.weight", 12, len), fit_end("short", 12, len)
    ('…out.weight', 'short')
    """
    if measure(label) <= width:
        return label
    cut = bisect_left(range(len(label)), True, 1, len(label) - 1, key=lambda cut: measure("…" + label[cut:]) <= width)
    dot = label.find(".", cut - 1)
    # Up to four characters more are worth a whole component: "…out.weight", not "….out.weight".
    if 0 <= dot < cut + 4 and dot < len(label) - 1:
        cut = dot + 1
    return "…" + label[cut:]

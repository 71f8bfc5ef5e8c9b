"""The picture of a run: every cell in its colour, every mark a shape, nothing lost, and soon done."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest
from PIL import Image

from gradviz.history.overview import (
    FROZEN,
    NAN,
    NEGINF,
    NOT_OPTIMIZED,
    NOT_RECORDED,
    POSINF,
    UNUSED,
    ZERO,
    Columns,
    Overview,
)
from gradviz.history.schema import Parameter
from gradviz.widgets.colours import VIRIDIS, colour_index, domain_of
from gradviz.widgets.picture.fonts import SCALE
from gradviz.widgets.picture.inks import COLOURS, DARK, LIGHT, Ink, png
from gradviz.widgets.picture.looks import Look
from gradviz.widgets.picture.loss import HEIGHT, Loss
from gradviz.widgets.picture.picture import MARGIN, WIDTH, draw
from gradviz.widgets.picture.pixels import place_columns

TABLE = np.frombuffer(VIRIDIS, np.uint8).reshape(256, 3)
ROW = 14 * SCALE
KINDS = {
    "nan": NAN,
    "posinf": POSINF,
    "neginf": NEGINF,
    "bothinf": POSINF | NEGINF,
    "zero": ZERO,
    "unused": UNUSED,
    "frozen": FROZEN,
    "not recorded": NOT_RECORDED,
    "not optimized": NOT_OPTIMIZED,
}


def parameters(n: int) -> list[Parameter]:
    return [Parameter(name=f"p{i}", shape=(2,), dtype="float32") for i in range(n)]


def columns(values: np.ndarray, flags: np.ndarray | None = None) -> Columns:
    start = np.arange(len(values), dtype=np.uint32)
    values = values.astype(np.float32)
    flags = np.zeros(values.shape, np.uint8) if flags is None else flags
    overview = Overview()
    overview.append(Columns(start, start + np.uint32(1), values, values, flags))
    return overview.columns


def decoded(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))


def bands(index: np.ndarray) -> np.ndarray:
    """The rows of the heatmap, [rows, pixels]: found by their colours at the right edge."""
    coloured = index < COLOURS
    right = int(np.flatnonzero(coloured.sum(axis=0) >= ROW)[-1]) + 1
    edges = np.flatnonzero(np.diff(np.concatenate(([0], coloured[:, right - 1], [0])))).reshape(-1, 2)
    tops = [int(a) for a, b in edges if b - a == ROW]
    left = int(np.flatnonzero(coloured[tops[0] + ROW // 2])[0])
    return np.stack([index[top : top + ROW, left:right] for top in tops])


def test_every_cell_has_the_colour_of_its_norm():
    values = np.exp(np.random.default_rng(0).normal(-4, 3, (50, 6))).astype(np.float32)
    found = bands(draw(columns(values), parameters(5), [0]))
    wanted = colour_index(values[:, :5], domain_of(values[:, :5], values[:, :5]))
    shown = TABLE[np.array([2 * i + (i >= 64) for i in range(COLOURS)])]
    for row in range(5):
        middle = [int((i + 0.5) * found.shape[2] / 50) for i in range(50)]
        for i, x in enumerate(middle):
            place = int(wanted[i, row])
            near = TABLE[max(place - 1, 0) : place + 2].tolist()
            assert shown[found[row, ROW // 2, x]].tolist() in near


@pytest.mark.case("W05")
def test_each_kind_of_cell_is_a_shape_of_its_own_in_both_themes():
    values = np.full((80, len(KINDS) + 2), 0.05, np.float32)
    flags = np.zeros(values.shape, np.uint8)
    for row, flag in enumerate(KINDS.values()):
        flags[20:60, row] = flag
        if flag != NOT_OPTIMIZED:
            values[20:60, row] = 0 if flag == ZERO else np.nan
    index = draw(columns(values, flags), parameters(len(KINDS) + 1), [0])
    for theme in (LIGHT, DARK):
        grey = decoded(png(index, theme, VIRIDIS))[..., :3] @ np.array([0.2126, 0.7152, 0.0722])
        rows = bands(index)
        tops = [np.flatnonzero(index[:, -17] < COLOURS)[ROW * i] for i in range(len(rows))]
        width = rows.shape[2]
        left = index.shape[1] - 8 * SCALE - width
        looks = [grey[top : top + ROW, left + width // 3 : left + 2 * width // 3] for top in tops]
        for i, one in enumerate(looks):
            for other in looks[:i]:
                assert np.mean(np.abs(one - other) > 40) > 0.01


def test_a_run_without_a_loss_has_no_lane_for_it():
    values, flags = np.full((10, 3), 0.5), np.zeros((10, 3), np.uint8)
    with_loss = draw(columns(values, flags), parameters(2), [0])
    values[:, -1], flags[:, -1] = np.nan, NOT_RECORDED
    without = draw(columns(values, flags), parameters(2), [0])
    assert len(with_loss) - len(without) == (HEIGHT + MARGIN) * SCALE
    np.testing.assert_array_equal(bands(with_loss), bands(without))
    assert (without != Ink.ACCENT.full).all()
    values[3, -1], flags[3, -1] = np.nan, NAN
    assert len(draw(columns(values, flags), parameters(2), [0])) == len(with_loss)


def test_where_no_loss_was_taken_the_line_goes_on_and_the_last_is_that_before():
    values, flags = np.full((9, 2), 0.5), np.zeros((9, 2), np.uint8)
    values[:, -1], flags[:, -1] = np.nan, NOT_RECORDED
    values[[0, 3, 6], -1], flags[[0, 3, 6], -1] = [4.0, 2.0, 3.0], 0
    few = columns(values, flags)
    pixels = place_columns(few, 9, 90)
    losses = Loss(pixels, pixels.merge(few))
    assert [[(point.x, point.high) for point in piece] for piece in losses.pieces] == [[(5, 4.0), (35, 2.0), (65, 3.0)]]
    assert losses.last == 3.0
    assert Loss(pixels, pixels.merge(few), 2.5).last == 2.5  # which a column of several iterations does not know
    assert Loss(pixels, pixels.merge(few), np.inf).last == np.inf
    assert (losses.looks == Look.VALUE).all()


@pytest.mark.parametrize("flag", [NAN, POSINF, NEGINF])
def test_a_single_bad_iteration_of_many_is_marked(flag):
    values = np.full((100_000, 3), 0.05)
    flags = np.zeros(values.shape, np.uint8)
    values[77_777, 0], flags[77_777, 0] = np.nan, flag
    bad, good = bands(draw(columns(values, flags), parameters(2), [0]))
    x = int(0.77777 * bad.shape[1])
    assert (bad[:, x - 6 : x + 6] >= COLOURS).mean() > 0.7
    assert (bad >= COLOURS).sum() < 25 * ROW
    assert (good < COLOURS).all()


def test_the_dark_picture_lies_over_the_light_one_and_lets_the_colours_through():
    index = draw(columns(np.full((30, 3), 0.1)), parameters(2), [0])
    light, dark = decoded(png(index, LIGHT, VIRIDIS)), decoded(png(index, DARK, VIRIDIS))
    cut = decoded(png(index, DARK, VIRIDIS, cut_colours=True))
    both = np.where(cut[..., 3:] > 0, cut, light)
    np.testing.assert_array_equal(both, dark)
    assert (cut[..., 3] == 0).any()
    assert light.shape == (*index.shape, 4)
    assert light.shape[1] == WIDTH * SCALE


def test_no_iteration_and_no_parameter_are_pictures_too():
    nothing = Columns(*np.zeros((2, 0), np.uint32), *np.zeros((2, 0, 0), np.float32), np.zeros((0, 0), np.uint8))
    assert draw(nothing, [], []).shape[1] == WIDTH * SCALE
    assert draw(columns(np.array([[0.5]])), [], [0]).shape[1] == WIDTH * SCALE
    assert draw(columns(np.full((1, 2), np.nan)), parameters(1), [0]).shape[1] == WIDTH * SCALE


def test_a_large_picture_is_drawn_in_a_moment():
    values = 10 ** np.random.default_rng(0).uniform(-8, 1, (4096, 201))
    large, names = columns(values), [f"{i // 2}.{'weight' if i % 2 else 'bias'}" for i in range(200)]
    named = [Parameter(name=name, shape=(2,), dtype="float32") for name in names]
    draw(large, named, [0])  # fonts and glyphs are made once
    began = time.perf_counter()
    index = draw(large, named, [0])
    png(index, LIGHT, VIRIDIS)
    png(index, DARK, VIRIDIS, cut_colours=True)
    assert time.perf_counter() - began < 1.5  # 0.2 s on two quiet cores

"""What stays of a run: words and a picture, small, honest, and safe to show anywhere."""

from __future__ import annotations

import base64
import html
import io
import re

import numpy as np
import pytest
from PIL import Image

from gradviz.history.compare import compare
from gradviz.history.history import History
from gradviz.history.overview import Columns, Overview
from gradviz.history.schema import FROZEN, NOT_OPTIMIZED, OK, UNUSED, Parameter
from gradviz.widgets.colours import BLUE_ORANGE
from gradviz.widgets.static_view import LIMIT_BYTES, static_bundle, summary

NAN, INF = float("nan"), float("inf")
CODE = "gv.heatmap(loop)"


def history_of(*names: str) -> History:
    history = History()
    history.declare([Parameter(name=name, shape=(2, 3), dtype="float32") for name in names])
    return history


def append(history: History, norms: list[float], states: list[int] | None = None, loss: float = 0.5) -> None:
    table = np.zeros((len(norms), 8))
    table[:, 0] = norms
    table[:, 5], table[:, 6] = np.isnan(norms), np.isposinf(norms)
    states = states or [OK] * len(norms)
    table[[state not in (OK, NOT_OPTIMIZED) for state in states]] = NAN
    history.append(len(history), 0, table, np.array(states, np.uint8), {"loss": loss})
    history.progress.iteration = len(history)


def plain(history: History) -> str:
    return static_bundle(history, CODE)["text/plain"]


def test_the_last_numbers_are_said_as_the_live_heatmap_says_them():
    history = history_of("w")
    append(history, [0.5])
    progress = history.progress
    progress.status, progress.epoch, progress.epochs, progress.iterations = "interrupted", 3, 6, 2106
    progress.iteration, progress.metrics = 1284, {"loss": 0.2141, "accuracy": 0.98765, "gain": -INF}
    line = "Interrupted · epoch 4 of 6 · iteration 1,284 of 2,106 · mean loss 0.214 · accuracy 0.988 · gain −inf"
    assert plain(history) == f"{line}\nThe dashboard again: {CODE}"
    text = static_bundle(history, CODE)["text/html"]
    assert f"<strong>Interrupted</strong>{line.removeprefix('Interrupted')}" in text
    assert f"<code>{CODE}</code>" in text


def test_what_ended_the_run_is_said():
    history = history_of("w")
    append(history, [0.5])
    history.progress.status, history.progress.message = "failed", "RuntimeError: <b>the disk</b> is full"
    bundle = static_bundle(history, CODE)
    assert "RuntimeError: <b>the disk</b> is full" in bundle["text/plain"]
    assert "RuntimeError: &lt;b&gt;the disk&lt;/b&gt; is full" in bundle["text/html"]


def test_trouble_is_named_with_the_iteration_it_began_at():
    history = history_of("a", "b", "c", "d", "e")
    append(history, [1.0] * 5)
    append(history, [1.0, NAN, 1.0, INF, 1.0])
    append(history, [NAN, NAN, NAN, INF, NAN], loss=NAN)
    lines = plain(history).splitlines()
    assert "NaN in the loss, first at iteration 2" in lines
    assert "NaN in 4 of 5 parameters, first at iteration 1 in b" in lines
    assert "+inf in 1 of 5 parameters, first at iteration 1 in d" in lines
    assert not any(line.startswith("−inf") for line in lines)


def test_zero_unused_frozen_and_not_recorded_are_told_apart_and_always_from_at_times():
    history = history_of("zero", "unused", "frozen", "thawed", "other")
    append(history, [0.0, NAN, NAN, NAN, 1.0], [OK, UNUSED, FROZEN, FROZEN, NOT_OPTIMIZED])
    append(history, [0.0, NAN, NAN, 1.0, 1.0], [OK, UNUSED, FROZEN, OK, NOT_OPTIMIZED])
    history.declare([*history.described, Parameter(name="late", shape=(), dtype="float32")])
    append(history, [0.0, NAN, NAN, 0.0, 1.0, 1.0], [OK, UNUSED, FROZEN, OK, NOT_OPTIMIZED, OK])
    lines = plain(history).splitlines()[1:-1]
    assert lines == [
        "Zero all the time, 1 of 6 parameters: zero",
        "Zero at times, 1 of 6 parameters: thawed",
        "Unused all the time, 1 of 6 parameters: unused",
        "Frozen all the time, 1 of 6 parameters: frozen",
        "Frozen at times, 1 of 6 parameters: thawed",
        "Not in the optimizer, 1 of 6 parameters: other",
        "Not recorded at times, 1 of 6 parameters: late",
    ]


def test_a_healthy_run_has_nothing_to_say_of_its_parameters():
    history = history_of("w")
    append(history, [0.5])
    assert len(plain(history).splitlines()) == 2
    assert summary(history) == "Heatmap of the gradient norms of 1 parameter over 1 iteration, from 0.500 to 0.500."
    assert "no iteration recorded" in summary(history_of("w"))
    assert static_bundle(history_of("w"), CODE)["text/html"]


@pytest.mark.parametrize(
    "evil", ["<img src=x onerror=alert(1)>", "\"'><script>alert(1)</script>", "слой.вес", "a" * 500]
)
def test_names_are_text_wherever_they_stand(evil):
    history = history_of(evil, "w")
    append(history, [NAN, 1.0])
    history.progress.metrics, history.progress.message = {evil: 1.0}, evil
    text = static_bundle(history, f"gv.heatmap({evil})")["text/html"]
    assert set(re.findall(r"<(\w+)", text)) == {"style", "figure", "figcaption", "strong", "br", "div", "img", "code"}
    assert len(re.findall("<img", text)) == 2
    assert (evil if len(evil) < 80 else "a" * 40 + "…" + "a" * 40) in html.unescape(text)


def test_the_picture_is_a_png_inside_the_page_and_described():
    history = history_of("w")
    append(history, [0.5])
    text = static_bundle(history, CODE)["text/html"]
    alt, width, data = re.search(r'<img class="gv-light" alt="([^"]+)" width="(\d+)".*?base64,([^"]+)"', text).groups()
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert image.format == "PNG"
    assert image.width == 2 * int(width)
    assert "gradient norms of 1 parameter over 1 iteration" in alt
    assert "http" not in text


class Noisy(History):
    """A long run of a wide model, of which only the overview is there: 3,125 columns of 32 iterations."""

    def __init__(self, names: list[str], kinds: bool) -> None:
        super().__init__()
        self.declare([Parameter(name=name, shape=(2,), dtype="float32") for name in names])
        random = np.random.default_rng(0)
        shape = (3125, len(names) + 1)
        values = (10 ** random.uniform(-8, 1, shape)).astype(np.float32)
        flags = np.zeros(shape, np.uint8)
        if kinds:
            flags = random.integers(0, 256, shape).astype(np.uint8)
            values[random.random(shape) < 0.4] = np.nan
        start = np.arange(0, 100_000, 32, dtype=np.uint32)
        self.noise = Columns(start, start + np.uint32(32), values, values / 2, flags)
        self._epoch_starts = list(range(0, 100_000, 1000))

    def overview(self):
        return self.noise, 100_000


@pytest.mark.parametrize("kinds", [False, True], ids=["noise", "all kinds of cells"])
@pytest.mark.parametrize(
    "names",
    [
        [f"layers.{i // 4}.{'ab'[i // 2 % 2]}.{'weight' if i % 2 else 'bias'}" for i in range(1000)],
        [f"parameter_{i}_with_a_name_that_has_to_be_cut" for i in range(60)],
        [f"block{i}.{'x' * 60}.weight" for i in range(60)],
    ],
    ids=["thousand", "flat", "long"],
)
def test_the_output_is_bounded_whatever_the_run(names, kinds):
    bundle = static_bundle(Noisy(names, kinds), CODE)
    size = sum(map(len, bundle.values()))
    print(f"{size:,} bytes")
    assert size <= LIMIT_BYTES


def test_an_overview_of_a_hundred_thousand_iterations_keeps_its_columns_honest():
    overview = Overview()
    for at in range(0, 100_000, 10_000):
        start = np.arange(at, at + 10_000, dtype=np.uint32)
        values = np.full((10_000, 2), 0.1, np.float32)
        flags = np.zeros(values.shape, np.uint8)
        flags[start == 77_777, 0], values[start == 77_777, 0] = 1, np.nan
        overview.append(Columns(start, start + np.uint32(1), values, values, flags))
    history = Noisy(["w"], False)
    history.noise = overview.columns
    assert "NaN in 1 of 1 parameter, first at iterations 77,760–77,791 in w" in plain(history)


def test_a_comparison_is_called_what_it_is():
    a, b = history_of("w", "frozen", "aux"), history_of("w", "frozen")
    append(a, [1.0, 1.0, 1.0])
    append(b, [0.25, NAN], [OK, FROZEN])
    ratios = compare({"a": a, "b": b}).ratios()
    assert plain(ratios).splitlines()[:3] == [
        "b ÷ a · gradient norms · 1 iteration",
        "Only in a: aux.",
        "Frozen in a or b all the time, 1 of 2 parameters: frozen",
    ]
    said = "Heatmap of the ratios of gradient norms (b ÷ a) of 2 parameters over 1 iteration, from 0.250 to 0.250."
    assert summary(ratios) == said
    text = static_bundle(ratios, CODE)["text/html"]
    picture = Image.open(io.BytesIO(base64.b64decode(re.search('base64,([^"]+)', text)[1])))
    blue = BLUE_ORANGE[:3]  # a quarter is at the end of the narrowest scale
    assert (np.asarray(picture.convert("RGB")) == list(blue)).all(axis=2).sum() > 10_000

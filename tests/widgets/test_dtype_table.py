"""The table of dtypes on Python's side: what its messages hold, and how large they are."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import gradviz as gv
from gradviz.history.history import History
from gradviz.history.schema import NARROW, OK, STATISTICS, Parameter
from gradviz.widgets import live as module
from gradviz.widgets.dtype_table import KEPT_ENTRIES, LIVE_ENTRIES, DtypeFeed, DtypeTable, dtype_table
from gradviz.widgets.live import built
from gradviz.widgets.wire import unpack

BATCHES = [(torch.ones(2, 3), torch.zeros(2, 1))]


@pytest.fixture(autouse=True)
def _closes_what_it_opened():
    yield
    for widget in list(module._open.values()):
        widget.close()


def loop_of(**options) -> gv.Loop:
    loop = gv.trainer(nn.Linear(3, 1), "mean_squared_error", "adam", **options)
    loop.run(BATCHES, epochs=3, display=None)
    return loop


class Read:
    """A message as the page reads it."""

    def __init__(self, message: tuple[dict, list[bytes]]) -> None:
        self.told, buffers = message
        json.dumps(self.told, allow_nan=False)
        self.n_bytes = len(json.dumps(self.told)) + sum(map(len, buffers))
        self.scale = unpack(buffers[0])
        rows = np.frombuffer(buffers[3], "<i4").reshape(-1, 5).tolist()
        texts = self.told["texts"]
        self.changes = [(i, place, *(texts[at] for at in codes)) for i, place, *codes in rows]
        self.states = list(buffers[4])
        self.places, self.iterations = (np.frombuffer(buffer, "<u4").tolist() for buffer in buffers[5:7])
        self.heights = np.frombuffer(buffers[7], "u1").reshape(-1, 66)
        self.counts = np.frombuffer(buffers[8], "<f8").reshape(-1, 15)


def test_a_whole_message_has_every_dtype_the_newest_entries_and_the_loss_scale():
    loop = loop_of(policy=gv.Policy(params="bfloat16"), loss_scale="static")
    read = Read(DtypeFeed(loop.history).message(fresh=True))
    of_weight = {of: (dtype, device) for _, place, of, dtype, device in read.changes if place == 0}
    assert of_weight == {"parameter": ("bfloat16", "cpu")} | dict.fromkeys(
        ["gradient", "master", "exp_avg", "exp_avg_sq"], ("float32", "cpu")
    )
    assert read.scale.maximum.tolist() == [[2**15]] * 3
    assert read.states == [OK, OK]
    assert (read.places, read.iterations) == ([0, 1], [0, 0])
    assert read.heights.max(axis=1).tolist() == [255, 255]
    assert read.counts[:, 0].tolist() == [3, 1]
    precision = loop.history.precision
    weight = precision[precision["parameter"] == "weight"].set_index("dtype")
    for at, dtype in enumerate(NARROW):
        expected = weight.loc[dtype, ["underflow", "subnormal", "overflow"]].tolist()
        assert read.counts[0, 3 + 3 * at : 6 + 3 * at].tolist() == expected


def history_of(n: int) -> History:
    history = History()
    history.declare([Parameter(name=f"p{i}", shape=(4,), dtype="float32") for i in range(n)])
    return history


def append(history: History) -> None:
    n = len(history.described)
    history.append(len(history), 0, np.zeros((n, len(STATISTICS))), np.full(n, OK, np.uint8), {"loss": 1.0}, 8.0)


def count(history: History, iteration: int) -> None:
    names = [parameter["name"] for parameter in history.described]
    n = len(names)
    about = {"iteration": np.full(n, iteration), "parameter": names, "stage": ["backward"] * n}
    history.add_rows("histograms", {**about, "low": np.full(n, 1.0), "high": np.full(n, 1.19), "count": [4] * n})


def test_a_later_message_has_only_what_is_new():
    history = history_of(2)
    append(history)
    count(history, 0)
    feed = DtypeFeed(history)
    feed.message(fresh=True)
    append(history)
    read = Read(feed.message(fresh=False))
    assert (read.scale.start.tolist(), read.changes, read.places) == ([1], [], [])


def test_a_live_message_of_many_parameters_is_bounded_and_none_is_left_out():
    n = 3 * LIVE_ENTRIES + 1
    history = history_of(n)
    append(history)
    feed = DtypeFeed(history)
    feed.message(fresh=True)
    count(history, 1)
    append(history)
    given = []
    while feed.must_begin_anew(final=True) or not given:
        read = Read(feed.message(fresh=False))
        assert len(read.places) <= LIVE_ENTRIES
        assert read.n_bytes < 45_000
        given += read.places
    assert given == list(range(n))
    assert not feed.must_begin_anew(final=True)


def test_a_run_that_ends_with_entries_waiting_is_told_whole():
    history = history_of(LIVE_ENTRIES + 1)
    append(history)
    feed = DtypeFeed(history)
    feed.message(fresh=True)
    count(history, 1)
    append(history)
    feed.message(fresh=False)
    assert feed.must_begin_anew(final=True)
    assert not feed.must_begin_anew(final=False)
    assert len(Read(feed.message(fresh=True)).places) == LIVE_ENTRIES + 1
    assert not feed.must_begin_anew(final=True)


def test_what_is_kept_for_a_page_without_a_kernel_is_everything_in_little():
    history = history_of(1000)
    for _ in range(3000):
        append(history)
    count(history, 0)
    feed = DtypeFeed(history)
    feed.message(fresh=True)
    read = Read(feed.kept())
    assert len(read.places) == KEPT_ENTRIES
    assert read.scale.stop[-1] == 3000
    assert read.n_bytes < 100_000
    assert len(Read(feed.message(fresh=False)).places) == 0
    assert DtypeFeed(History()).kept() is None


def test_a_loop_a_watch_and_a_history_have_one_widget_each():
    loop = loop_of()
    widget = dtype_table(loop)
    assert isinstance(widget, DtypeTable)
    assert dtype_table(loop.history) is widget
    model = nn.Linear(3, 1)
    with gv.watch(model, torch.optim.SGD(model.parameters(), lr=0.1)) as watch:
        assert dtype_table(watch).history is watch.history
    assert dtype_table(watch) is not widget
    widget.close()
    assert dtype_table(loop) is not widget


def test_beside_the_heatmap_it_is_another_widget_of_the_same_history():
    loop = loop_of()
    assert dtype_table(loop) is not gv.heatmap(loop)


@pytest.mark.parametrize(
    ("x", "line"),
    [
        ("runs/a", r"a path\. Write gv\.dtype_table\(gv\.History\.open\('runs/a'\)\)"),
        (nn.Linear(1, 1), r"Write gv\.dtype_table\(loop\)"),
        (3, r"Write gv\.dtype_table\(loop\)"),
    ],
)
def test_what_has_no_history_is_refused_with_the_line_to_write(x, line):
    with pytest.raises(TypeError, match=line):
        dtype_table(x)


def test_a_selection_is_refused_and_has_frames():
    with pytest.raises(TypeError, match=r"whole histories: gv\.dtype_table\(history\).*\.dtypes, \.precision"):
        dtype_table(loop_of().history.select(parameters="weight"))


def test_the_built_widget_is_small_enough_for_every_saved_notebook():
    assert len(built("dtype_table.js").encode()) <= 60_000

"""What reaches the browser: few messages, only what is new, nothing lost."""

from __future__ import annotations

import json
import time
import warnings

import numpy as np
import pytest

from gradviz.errors import RecordingWarning
from gradviz.history.history import History
from gradviz.history.overview import CAPACITY, Columns, Overview
from gradviz.history.rows import CHUNK
from gradviz.history.schema import FROZEN, OK, STATISTICS, UNUSED, Parameter
from gradviz.widgets.dtype_table import DtypeFeed
from gradviz.widgets.feed import KEPT_BYTES, LIVE_BYTES, ColumnFeed
from gradviz.widgets.frozen_mask import MaskFeed
from gradviz.widgets.publish import MIN_INTERVAL_S, SEND_SHARE, Publisher
from gradviz.widgets.wire import pack, unpack


class Browser:
    """The other end of the wire: keeps what `js/src/data/store.ts` keeps."""

    def __init__(self) -> None:
        self.messages: list[tuple[dict, list[bytes]]] = []
        self.overview = Overview()
        self.epochs: list[int] = []
        self.seq = 0

    def receive(self, content: dict, buffers: list[bytes]) -> None:
        json.dumps(content, allow_nan=False)
        self.messages.append((content, buffers))
        if content["fresh"]:
            self.overview, self.epochs = Overview(), []
            self.overview.level = content["level"]
        else:
            assert content["seq"] == self.seq + 1
        self.seq = content["seq"]
        self.overview.append(unpack(buffers[0]))
        self.epochs += np.frombuffer(buffers[2], "<u4").tolist()

    @property
    def metrics(self) -> list[float]:
        return np.frombuffer(self.messages[-1][1][1], "<f8").tolist()

    @property
    def bytes(self) -> int:
        return sum(len(json.dumps(content)) + sum(map(len, buffers)) for content, buffers in self.messages)


def history_of(n_parameters: int) -> History:
    history = History()
    history.declare([Parameter(name=f"p{i}", shape=(2,), dtype="float32") for i in range(n_parameters)])
    return history


def append(history: History, count: int = 1, epoch: int = 0) -> None:
    n = len(history.described)
    for _ in range(count):
        i = len(history)
        table = np.tile(np.array([[1.0 + i, 0, 1, 1, 0, 0, 0, 0]]), (n, 1))
        history.progress.iteration, history.progress.epoch = i + 1, epoch
        history.progress.metrics = {"loss": float("nan") if i % 2 else 0.5}
        history.append(i, epoch, table, np.full(n, OK, np.uint8), {"loss": 1.0 / (i + 1)})


def assert_same(one: Columns, two: Columns) -> None:
    assert pack(one, with_minimum=True) == pack(two, with_minimum=True)


@pytest.mark.case("W09")
def test_nothing_is_built_before_there_is_a_view_and_then_everything_is_there():
    history, browser = history_of(3), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive)
    append(history, 50)
    history.notify(final=True)
    assert browser.messages == []
    publisher.show()
    assert [content["fresh"] for content, _ in browser.messages] == [True]
    assert_same(browser.overview.columns, history.overview()[0])


def test_the_picture_of_a_run_that_is_over_is_kept_in_few_bytes():
    history, browser, kept = history_of(200), Browser(), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive, kept.receive, min_interval_s=0)
    publisher.show()
    assert kept.messages == [], "There is nothing yet."
    append(history, 400)
    assert kept.messages == [], "It is under way."
    history.progress.status = "completed"
    history.notify(final=True)
    ((content, buffers),) = kept.messages
    assert content["fresh"]
    assert content["run"]["status"] == "completed"
    assert len(buffers[0]) <= KEPT_BYTES
    columns = unpack(buffers[0])
    assert (columns.start[0], columns.stop[-1]) == (0, 400)
    assert columns.maximum.max() == browser.overview.columns.maximum.max()
    assert content["level"] > 0


@pytest.mark.case("W02")
def test_only_new_columns_are_sent():
    history, browser = history_of(2), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive, min_interval_s=0)
    publisher.show()
    for _ in range(20):
        append(history, 3)
        history.notify(final=True)
    sent = [unpack(buffers[0]) for _, buffers in browser.messages]
    assert np.concatenate([columns.start for columns in sent]).tolist() == list(range(len(history)))
    assert_same(browser.overview.columns, history.overview()[0])


def test_what_was_thinned_needs_no_column_of_its_own():
    history, browser = history_of(2), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive, min_interval_s=0)
    publisher.show()
    for i in range(60):
        taken = (np.array([[1.0, 0, 1, 1, 0, 0, 0, 0]] * 2), np.zeros(2, np.uint8)) if i % 10 == 0 else (None, None)
        history.append(i, 0, *taken, {"loss": float(i)})
        if i % 7 == 0:
            history.notify(final=True)
    history.notify(final=True)
    assert not any(content["fresh"] for content, _ in browser.messages[1:])
    assert browser.overview.columns.start.tolist() == list(range(0, 60, 10))
    assert browser.overview.columns.maximum[:, -1].tolist() == list(range(9, 60, 10))
    assert_same(browser.overview.columns, history.overview()[0])
    again = Browser()
    Publisher(history, ColumnFeed(history), again.receive).show()
    assert_same(again.overview.columns, history.overview()[0])
    assert again.overview.level == 0  # though its columns are wide


@pytest.mark.case("W03")
def test_a_fast_loop_sends_at_the_set_rate_and_the_last_state_always():
    history, browser = history_of(10), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive)
    publisher.show()
    began = time.perf_counter()
    while time.perf_counter() < began + 1:
        append(history)
    took = time.perf_counter() - began
    assert len(history) > 1000
    assert len(browser.messages) <= took / MIN_INTERVAL_S + 2
    history.progress.status = "completed"
    history.notify(final=True)
    last, _ = browser.messages[-1]
    assert last["run"]["status"] == "completed"
    assert last["run"]["iteration"] == len(history)
    assert browser.overview.columns.stop[-1] == len(history)
    assert_same(browser.overview.columns, history.overview()[0])


@pytest.mark.case("W04")
@pytest.mark.filterwarnings("ignore:The history has outgrown memory_limit")  # so fast, half a gigabyte is full at once
def test_five_hundred_layers_at_full_speed_stay_well_under_a_megabyte_a_second():
    history, browser = history_of(500), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive)
    publisher.show()
    began = time.perf_counter()
    while len(history) < 2000 or len(browser.messages) < 4:
        append(history)
        assert time.perf_counter() < began + 60
    took = time.perf_counter() - began
    assert browser.bytes / took < 500_000
    assert len(browser.messages) / took < 12
    live = browser.overview.columns
    whole = history.overview()[0]
    # What was merged on the way kept its extremes: no iteration is lost.
    assert live.stop[-1] <= whole.stop[-1]
    np.testing.assert_array_equal(live.maximum[:, 0], live.stop)
    np.testing.assert_array_equal(live.minimum[:, 0], live.start + 1)
    history.notify(final=True)
    assert browser.overview.columns.stop[-1] == len(history)
    assert len(browser.messages[-1][1][0]) <= 4_000_000
    assert publisher.sent.n_bytes == sum(sum(map(len, buffers)) for _, buffers in browser.messages)


def test_the_rate_is_adjustable():
    history, browser = history_of(1), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive, min_interval_s=100)
    publisher.show()
    append(history, 10)
    assert len(browser.messages) == 1
    publisher.min_interval_s = 0
    publisher._next_s = 0.0
    append(history)
    assert len(browser.messages) == 2


@pytest.mark.case("W05")
def test_zero_nan_infinity_unused_and_frozen_arrive_as_what_they_are():
    nan, inf = float("nan"), float("inf")
    rows = [
        ([0.0, 0, 0, 0, 1, 0, 0, 0], OK),
        ([nan, nan, nan, nan, 0, 1, 0, 0], OK),
        ([inf, inf, nan, inf, 0, 0, 1, 0], OK),
        ([inf, -inf, nan, inf, 0, 0, 0, 1], OK),
        ([nan] * 8, UNUSED),
        ([nan] * 8, FROZEN),
    ]
    history, browser = history_of(6), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive)
    publisher.show()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history.append(
            0, 0, np.array([table for table, _ in rows]), np.array([s for _, s in rows], np.uint8), {"loss": nan}
        )
        history.progress.metrics, history.progress.loss = {"loss": nan, "gain": inf}, nan
        history.notify(final=True)
    columns = browser.overview.columns
    assert columns.flags[0].tolist() == [8, 1, 2, 4, 16, 32, 1]
    np.testing.assert_array_equal(columns.maximum[0], np.float32([0, nan, nan, nan, nan, nan, nan]))
    np.testing.assert_array_equal(browser.metrics, [nan, inf, nan])


@pytest.mark.case("N06")
def test_a_browser_that_lost_messages_gets_the_whole_picture_when_it_says_hello():
    history, browser = history_of(2), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive)
    publisher.show()
    append(history, 500)
    history.notify(final=True)
    reloaded = Browser()
    publisher._send = reloaded.receive
    publisher.hello(0, view=False)
    assert_same(reloaded.overview.columns, history.overview()[0])
    count = len(reloaded.messages)
    publisher.hello(reloaded.seq, view=True)
    assert len(reloaded.messages) == count  # it has everything: nothing is sent


def test_a_view_inside_a_box_says_hello_itself():
    history, browser = history_of(2), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive)
    append(history, 5)
    publisher.hello(0, view=False)  # the page knows the widget, but nobody sees it
    assert browser.messages == []
    publisher.hello(0, view=True)
    assert_same(browser.overview.columns, history.overview()[0])


def test_epoch_starts_travel_once():
    history, browser = history_of(1), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive, min_interval_s=0)
    publisher.show()
    for epoch in range(4):
        append(history, 3, epoch)
    history.notify(final=True)
    assert browser.epochs == [0, 3, 6, 9]


def test_our_own_failure_is_said_once_and_training_goes_on():
    history = history_of(1)

    def broken(content, buffers):
        raise OSError("the comm is closed")

    publisher = Publisher(history, ColumnFeed(history), broken, min_interval_s=0)
    with pytest.warns(RecordingWarning, match="the comm is closed"):
        publisher.show()
    append(history, 3)  # a second warning would be an error here
    assert len(history) == 3
    browser = Browser()
    publisher._send = browser.receive
    publisher.show()  # displayed again: it tries again, with all there is
    append(history, 3)
    history.notify(final=True)
    assert_same(browser.overview.columns, history.overview()[0])


def test_after_close_nothing_is_sent():
    history, browser = history_of(1), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive, min_interval_s=0)
    publisher.show()
    publisher.close()
    publisher.close()
    append(history, 3)
    history.notify(final=True)
    assert len(browser.messages) == 1


def test_sending_takes_a_hundredth_of_the_time_and_one_message_that_was_held_up_stops_nothing():
    history, browser, sent = history_of(2), Browser(), []
    delays = iter([0.05, 0.004, 0.05, 0.004, 0.004])

    def slowly(content, buffers):
        browser.receive(content, buffers)
        sent.append(time.perf_counter())
        end = sent[-1] + next(delays)
        while time.perf_counter() < end:
            pass

    publisher = Publisher(history, ColumnFeed(history), slowly, min_interval_s=0)
    publisher.show()
    while len(sent) < 5:
        append(history)
        assert time.perf_counter() < sent[0] + 30
    pauses = np.diff(sent)
    assert pauses[0] < 0.1  # the first message may be slow, the second comes at once
    assert (pauses[1:] > SEND_SHARE * 0.004).all()
    assert pauses[2] < 10 * SEND_SHARE * 0.004  # not a hundred times the message that was held up


@pytest.mark.case("L26")
def test_two_hundred_layers_for_thousands_of_iterations_stay_within_bounds():
    n_parameters, n_iterations = 400, 3 * CHUNK
    history, browser = history_of(n_parameters), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive, min_interval_s=0)
    publisher.show()
    table = np.ones((n_parameters, len(STATISTICS)))
    states = np.full(n_parameters, OK, np.uint8)
    took = []
    for i in range(n_iterations):
        if i % 100 == 99:
            publisher._next_s = 0.0  # it is time to send
        began = time.perf_counter()
        history.append(i, 0, table, states, {"loss": 1.0})
        took.append(time.perf_counter() - began)
    # A row is its numbers and nothing else, and the last takes no longer than the first.
    rows = history._store.stage("backward")
    assert rows.nbytes / len(rows) == n_parameters * (8 * len(STATISTICS) + 1) + 16
    assert np.median(took[-1000:]) < 3 * np.median(took[:1000])
    # What is sent, and the picture that is kept, are bounded whatever the length.
    live = [len(buffers[0]) for content, buffers in browser.messages if not content["fresh"]]
    assert len(live) >= n_iterations // 100 - 1
    assert max(live) <= LIVE_BYTES + 1000  # columns, and what they cover
    assert len(history.overview()[0]) <= CAPACITY
    # And the browser is told which columns stand for more than one iteration.
    columns = unpack(browser.messages[-1][1][0])
    assert not columns.exact
    assert (columns.stop - columns.start).sum() == 100


def test_a_history_that_was_cut_is_sent_anew():
    history, browser = history_of(2), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive, min_interval_s=0.0)
    publisher.show()
    append(history, 5)
    history.begin_attempt(3, 0)
    append(history, 1)
    history.notify(final=True)
    assert_same(browser.overview.columns, history.overview()[0])
    assert len(browser.overview.columns) == 4


@pytest.mark.case("W19")
@pytest.mark.parametrize("kind", [ColumnFeed, MaskFeed, DtypeFeed])
def test_while_there_is_no_gradient_it_is_told_why_and_how_far_the_run_is(kind):
    history, browser = history_of(2), Browser()
    publisher = Publisher(history, kind(history), browser.receive, min_interval_s=0)
    publisher.show()
    progress = history.progress
    progress.every, progress.status = 100, "training"

    def nothing():
        history.notify(final=True)
        return browser.messages[-1][0]["run"]["nothing"]

    assert nothing() == "no iteration recorded yet"
    for i in (3, 4):  # of a run that goes on in a history of its own
        progress.iteration = i + 1
        history.append(i, 0, None, None, {"loss": 1.0})
        assert nothing() == f"no record yet: every 100 iterations, now at {i + 1}"
    progress.status = "failed"
    assert nothing() == "no record: every 100 iterations, and there were 5"
    history.complete(np.ones((2, len(STATISTICS))), np.full(2, OK, np.uint8), stages={})
    assert nothing() is None


def test_an_iteration_whose_gradients_come_late_is_shown_with_them():
    history, browser = history_of(2), Browser()
    publisher = Publisher(history, ColumnFeed(history), browser.receive, min_interval_s=0)
    publisher.show()
    measured = np.ones((2, len(STATISTICS))), np.full(2, OK, np.uint8)
    history.append(0, 0, *measured, {"loss": 1.0})
    for i in range(1, 5):
        history.append(i, 0, None, None, {"loss": 1.0})
    history.notify(final=True)
    assert browser.overview.columns.stop.tolist() == [5]
    history.complete(*measured, stages={})
    history.notify(final=True)
    assert browser.overview.columns.stop.tolist() == [4, 5]
    assert browser.overview.columns.maximum[:, 0].tolist() == [1, 1]

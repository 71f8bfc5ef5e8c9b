"""The picture of a run, as it grows, is resumed, saved and opened: nothing that went wrong is lost on the way."""

from __future__ import annotations

import math
import uuid
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradviz.history import overview
from gradviz.history.cells import Picture
from gradviz.history.history import History
from gradviz.history.overview import Columns, Overview
from gradviz.history.schema import STATES

NAN, INF = math.nan, math.inf
N = 3
FLAG_OF_STATE = {
    "unused": "UNUSED",
    "frozen": "FROZEN",
    "not_optimized": "NOT_OPTIMIZED",
    "not_recorded": "NOT_RECORDED",
}

small = patch.object(Overview.__init__, "__defaults__", (8,))
"""Pictures of 8 columns, so that short runs merge as long ones do."""

norms = st.sampled_from([0.0, 1e-60, 0.5, 2.0, 1e60, NAN, INF])
cells = st.tuples(norms, st.sampled_from([0, 0, 0, 1, 2, 3, 4]))
losses = st.sampled_from([0.0, 1.5, NAN, INF, -INF])
rows = st.lists(st.one_of(st.tuples(*[cells] * N, losses), st.tuples(losses)), max_size=25)
steps = st.lists(
    st.one_of(
        rows,  # that many are recorded
        st.floats(0, 1),  # resumed at this share of what there is
        st.sampled_from(["look", "flush", "end"]),
    ),
    min_size=1,
    max_size=7,
)


def record(history: History, i: int, row) -> None:
    *parameters, loss = row
    if not parameters:
        history.append(i, i // 10, None, None, {"loss": loss})
        return
    table, states = np.full((N, 8), NAN), np.zeros(N, np.uint8)
    for place, (norm, state) in enumerate(parameters):
        states[place] = state
        if STATES[state] in ("ok", "not_optimized"):
            table[place] = [norm, 0.1, 0.2, 0.3, 0.0, math.isnan(norm), norm == INF, norm == INF]
    history.append(i, i // 10, table, states, {"loss": loss})


def live(steps, history: History) -> None:
    """Record as the steps say."""
    history.declare([{"name": f"p{place}", "shape": (2,), "dtype": "float32"} for place in range(N)])
    i = 0
    for step in steps:
        if isinstance(step, list):
            for row in step:
                record(history, i, row)
                i += 1
        elif isinstance(step, float):
            i = int(step * i)
            history.begin_attempt(i, i // 10)
        elif step == "look":
            history.overview()
        elif step == "flush":
            history.flush()
        else:
            history.end_run()


def same(a: Columns, b: Columns) -> None:
    for name in ("start", "stop", "maximum", "minimum", "flags"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def assert_shows(columns: Columns, seen: int, history: History) -> None:
    """Each column has the largest, the smallest and all that happened, as the frames say it."""
    assert seen == len(history)
    wide = {name: history.wide(name) for name in ("norm", "state", "nan", "posinf", "neginf")}
    loss = history.metrics["loss"].astype("float64").to_numpy()
    iterations = np.array(history.metrics.index)
    thinned = np.isin(iterations, history.thinned)
    joins = thinned & np.logical_or.accumulate(~thinned)
    covered = 0
    for place in range(len(columns)):
        inside = (columns.start[place] <= iterations) & (iterations < columns.stop[place])
        covered += inside.sum()
        assert not joins[inside][:1].any()
        for k in range(N):
            values = wide["norm"][f"p{k}"].to_numpy()[inside]
            finite = values[np.isfinite(values)]
            with np.errstate(all="ignore"):
                shown = np.clip(finite.astype(np.float32), None, np.finfo(np.float32).max)
            shown[(shown == 0) & (finite != 0)] = np.finfo(np.float32).smallest_subnormal
            expected = (shown.max(), shown.min()) if len(shown) else (NAN, NAN)
            np.testing.assert_array_equal((columns.maximum[place, k], columns.minimum[place, k]), expected)
            states = set(wide["state"][f"p{k}"][inside & ~joins])
            names = {FLAG_OF_STATE[state] for state in states if state != "ok"} | ({"ZERO"} if 0 in finite else set())
            names |= {name.upper() for name in ("nan", "posinf", "neginf") if (wide[name][f"p{k}"][inside] > 0).any()}
            assert columns.flags[place, k] == sum(getattr(overview, name) for name in names), (place, k)
        here = loss[inside]
        flags = overview.NAN * np.isnan(here).any() + overview.POSINF * (here == INF).any()
        assert columns.flags[place, -1] == flags + overview.NEGINF * (here == -INF).any()
        finite = here[np.isfinite(here)]
        assert finite.size == 0 or columns.maximum[place, -1] == finite.max()
    assert covered == len(iterations)


@small
@settings(max_examples=40)
@given(steps)
def test_the_picture_shows_every_iteration_however_it_was_looked_at_and_resumed(steps):
    history = History()
    live(steps, history)
    columns, seen = history.overview()
    assert len(columns) <= 8
    assert_shows(columns, seen, history)
    assert len(history.columns()) == seen
    for level in range(6):
        assert_shows(history.columns().at_level(level), seen, history)
    same(columns, Picture(history._store).overview()[0])


@small
@settings(max_examples=30)
@given(steps, st.booleans())
def test_a_saved_picture_and_the_rest_are_the_whole_drawn_anew(steps, ends):
    where = f"memory://{uuid.uuid4()}/a"
    history = History(save_to=where, flush_interval_s=1e6)
    live(steps, history)
    history.begin_run()  # a resume after its end is in the folder once it goes on
    if ends:
        history.end_run()
    else:
        history.flush()
    opened = History.open(where)
    columns, seen = opened.overview()
    assert_shows(columns, seen, history)
    same(columns, Picture(opened._store).overview()[0])
    same(columns, history.overview()[0])
    history.end_run()


@small
@settings(max_examples=25)
@given(steps, steps)
def test_so_it_is_after_refreshes_and_in_a_run_that_goes_on_in_another_process(first, then):
    where = f"memory://{uuid.uuid4()}/a"
    history = History(save_to=where, flush_interval_s=1e6)
    live(first, history)
    history.begin_run()
    history.flush()
    opened = History.open(where)
    opened.overview()
    history.end_run()
    again = History(save_to=where, if_exists="resume")
    n = len(history) // 2
    again.begin_attempt(n, n // 10)
    again.begin_run()
    for row in (row for step in then if isinstance(step, list) for row in step):
        record(again, n, row)
        n += 1
    again.flush()
    opened.refresh()
    for each in (again, opened):
        columns, seen = each.overview()
        assert seen == n
        assert_shows(columns, seen, each)
        same(columns, Picture(each._store).overview()[0])
    again.end_run()


def test_nine_of_ten_iterations_that_were_thinned_do_not_hide_the_tenth():
    history = History()
    live([[((1.0, 0), (NAN, 0), (0.0, 0), 1.5), *[(0.5,)] * 8, (NAN,)] * 3], history)
    columns, seen = history.overview()
    assert (seen, columns.start.tolist(), columns.stop.tolist()) == (30, [0, 10, 20], [10, 20, 30])
    assert columns.flags.tolist() == [[0, overview.NAN, overview.ZERO, overview.NAN]] * 3
    np.testing.assert_array_equal(columns.maximum, [[1, NAN, 0, 1.5]] * 3)
    np.testing.assert_array_equal(columns.minimum, [[1, NAN, 0, 0.5]] * 3)


def test_what_was_thinned_before_the_first_that_was_recorded_was_not_recorded():
    history = History()
    live([[(1.5,), (1.5,), (*[(1.0, 0)] * N, 1.5), (1.5,)]], history)
    columns, _ = history.overview()
    assert columns.start.tolist() == [0, 1, 2]
    assert columns.flags[:, 0].tolist() == [overview.NOT_RECORDED, overview.NOT_RECORDED, 0]


@pytest.mark.parametrize("kind", [NAN, INF, -INF])
def test_one_bad_loss_in_ten_thousand_iterations_is_at_every_level(kind):
    history, where = History(), 7001
    nothing = np.empty((0, 8)), np.empty(0, np.uint8)
    for i in range(10_000):
        history.append(i, 0, *nothing, {"loss": kind if i == where else 1.0})
    columns = history.overview()[0]
    assert not columns.exact
    flag = {str(NAN): overview.NAN, str(INF): overview.POSINF, str(-INF): overview.NEGINF}[str(kind)]
    for level in range(15):
        merged = columns.at_level(level)
        (hit,) = np.flatnonzero(merged.flags[:, -1])
        assert merged.flags[hit, -1] == flag
        assert merged.start[hit] <= where < merged.stop[hit]
        assert merged.maximum[hit, -1] == 1

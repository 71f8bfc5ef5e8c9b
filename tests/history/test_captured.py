"""What was captured, read as rows: the same numbers as the table's, wherever its lines lie."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradviz.history import captured
from gradviz.history.activations import activations_of
from gradviz.history.history import History
from tests.history.made import NAN, capture, capturing

RUNS = st.lists(st.dictionaries(st.sampled_from(["a", "a#1", "b.c", "b"]), st.floats(0, 1e6), max_size=4), max_size=12)


def expected(run: History, statistic: str = "norm") -> pd.DataFrame:
    """The table, pivoted by pandas."""
    lines = run.activations
    names = lines["name"].astype(str) + lines["call"].map(lambda call: f"#{call}" if call else "")
    wide = lines.assign(parameter=names).pivot(index="iteration", columns="parameter", values=statistic)
    return wide.reindex(run.metrics.index)[list(dict.fromkeys(names))]


@given(RUNS)
def test_rows_are_the_table_by_name_and_call(iterations):
    run = capturing()
    for i, norms in enumerate(iterations):
        capture(run, i, norms)
    found = activations_of(run)
    assert found.iterations.tolist() == list(range(len(iterations)))
    if any(iterations):
        pd.testing.assert_frame_equal(found.norms, expected(run), check_names=False, check_column_type=False)


@given(RUNS, st.integers(1, 5))
def test_lines_may_be_read_a_few_at_a_time_and_while_they_come(iterations, at_once):
    whole, growing = capturing(), capturing()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captured, "AT_ONCE", at_once)
        for i, norms in enumerate(iterations):
            capture(growing, i, norms)
            assert len(activations_of(growing).columns(i)) == 1
        found = activations_of(growing).norms
    for i, norms in enumerate(iterations):
        capture(whole, i, norms)
    pd.testing.assert_frame_equal(found, activations_of(whole).norms)


def test_a_call_that_an_iteration_has_not_is_not_recorded_there():
    run = capturing()
    capture(run, 0, {"a": 1.0})
    capture(run, 1, {"a": 2.0, "a#1": 3.0})
    capture(run, 2, {})
    found = activations_of(run)
    assert found.wide("state").astype(str).values.tolist() == [
        ["ok", "not_recorded"],
        ["ok", "ok"],
        ["not_recorded", "not_recorded"],
    ]
    assert found.wide("nan").isna().values.tolist() == [[False, True], [False, False], [True, True]]


def test_counts_that_were_not_taken_are_missing_and_not_zero():
    run = capturing()
    capture(run, 0, {"a": 1.0, "spare": NAN}, state={"spare": "unused"})
    found = activations_of(run)
    assert found.wide("nan").isna().values.tolist() == [[False, True]]
    assert found.wide("state")["spare"].tolist() == ["unused"]


def test_lines_of_an_iteration_that_does_not_count_yet_are_not_shown():
    run = capturing()
    capture(run, 0, {"a": 1.0})
    capture(run, 1, {"a": 2.0, "b": 2.0}, ends=False)
    found = activations_of(run)
    assert found.norms.index.tolist() == [0]
    assert found.columns(0).start.tolist() == [0]
    capture(run, 1, {})
    assert found.norms.values.tolist()[1] == [2.0, 2.0]


def test_what_was_recorded_again_takes_the_place_of_what_no_longer_holds():
    run = capturing()
    for i in range(6):
        capture(run, i, {"a": float(i)})
    found = activations_of(run)
    assert found.overview()[1] == 6
    run.begin_attempt(3, 0)
    assert found.norms["a"].tolist() == [0, 1, 2]
    for i in range(3, 8):
        capture(run, i, {"a": 10.0 + i, "b": 1.0})
    assert found.norms["a"].tolist() == [0, 1, 2, 13, 14, 15, 16, 17]
    columns, seen = found.overview()
    assert (columns.maximum[:, 0].tolist(), seen) == ([0, 1, 2, 13, 14, 15, 16, 17], 8)
    both = found.select(attempts="all").wide("norm")
    assert both["a"].tolist() == [0, 1, 2, 3, 4, 5, 13, 14, 15, 16, 17]


def test_lines_that_left_memory_are_read_from_disk(tmp_path):
    run = capturing(save_to=tmp_path / "a", memory_limit="100 kB", flush_interval_s=1e6)
    n = 3000
    for i in range(n):
        capture(run, i, {"a": float(i), "a#1": 2.0 * i})
    assert run._store.tables["activations"].evicted > 0
    found = activations_of(run)
    assert found.select(iterations=slice(0, n, 100)).norms["a#1"].tolist() == [200.0 * i for i in range(n // 100)]
    assert found.columns(0).maximum[:, 0].tolist() == list(range(n))
    run.end_run()

"""Lines of a table that are nearest to an iteration."""

from __future__ import annotations

import numpy as np

from gradviz.history.history import History


def history_of(n: int = 1) -> History:
    history = History()
    history.declare([{"name": name, "shape": (2,), "dtype": "float32"} for name in ("a", "b")])
    for i in range(n):
        history.append(i, 0, np.ones((2, 8)), np.zeros(2, np.uint8), {"loss": 1.0})
    return history


def count(history: History, iteration: int, name: str, n: int, stage: str = "backward") -> None:
    """Two bins, with n and n + 1 entries."""
    about = {"iteration": [iteration] * 2, "parameter": [name] * 2, "stage": [stage] * 2}
    history.add_rows("histograms", about | {"low": [0.5, 1.0], "high": [1.0, 2.0], "count": [n, n + 1]})


def counts(history: History, name: str, iteration: int) -> tuple[int, list[int]] | None:
    found = history._lines["histograms"].nearest(name, iteration)
    return found and (found.iteration, found.columns["count"].values.tolist())


def test_the_nearest_iteration_that_has_lines_of_the_name_is_found_also_as_the_run_grows():
    history = history_of(30)
    assert counts(history, "a", 3) is None
    for iteration in (0, 10, 20):
        count(history, iteration, "a", iteration)
        count(history, iteration, "b", 100 + iteration)
        count(history, iteration, "a", 1000, stage="clipped")
    assert counts(history, "a", 14) == (10, [10, 11])
    assert counts(history, "b", 16) == (20, [120, 121])
    assert counts(history, "a", 15) == (10, [10, 11])
    assert counts(history, "a", 10**9) == (20, [20, 21])
    count(history, 29, "a", 7)
    assert counts(history, "a", 10**9) == (29, [7, 8])
    assert counts(history, "unknown", 0) is None


def test_what_was_recorded_again_counts_and_what_no_longer_holds_does_not():
    history = history_of(30)
    for iteration in (0, 10, 20):
        count(history, iteration, "a", iteration)
    history.begin_attempt(10, 0)
    assert counts(history, "a", 20) == (0, [0, 1])
    count(history, 10, "a", 55)
    assert counts(history, "a", 20) == (10, [55, 56])


def test_lines_of_a_name_that_do_not_lie_together_are_all_found():
    history = history_of()
    rows = {"iteration": [0, 0, 0], "name": ["x", "y", "x"], "call": [0, 0, 1]}
    history.add_rows("examples", rows | {"example": [1, 2, 3], "example_id": [None] * 3, "norm": [0.1, 0.2, 0.3]})
    found = history._lines["examples"].nearest("x", 0)
    assert found is not None
    assert found.columns["norm"].values.tolist() == [0.1, 0.3]


def test_a_run_on_disk_is_read_as_it_is_written(tmp_path):
    history = History(save_to=tmp_path / "a")
    history.declare([{"name": "a", "shape": (2,), "dtype": "float32"}])
    history.append(0, 0, np.ones((1, 8)), np.zeros(1, np.uint8), {"loss": 1.0})
    count(history, 0, "a", 4)
    history.flush()
    opened = History.open(tmp_path / "a")
    assert counts(opened, "a", 5) == (0, [4, 5])
    history.end_run()

"""The history's figures: how they are made, and bounds that only something broken misses."""

from __future__ import annotations

import pytest

from tests.benchmarks import report
from tests.benchmarks.bench_history import Result, frames, record, reopen

GENEROUS = 10
"""Times what is asked: a machine that others use is not a benchmark."""


@pytest.mark.parametrize(
    ("asked", "measured", "at_least", "verdict"),
    [(3000, 2999.9, True, "MISSED"), (3000, 3000, True, ""), (1.2, 1.2001, False, "MISSED"), (1.2, 1.2, False, "")],
)
def test_a_figure_that_is_missed_is_never_rounded_away(asked, measured, at_least, verdict):
    assert Result("x", asked, measured, "/s", at_least).verdict == verdict


def test_the_readme_has_a_line_for_each_figure_with_what_was_asked():
    each = {"what": "rows", "asked": 3000, "measured": 4321.0, "unit": "/s", "at_least": True}
    measured = {"date": "2026-11-30T05:00:00+00:00", "commit": "0123456789", "dirty": False, "results": [each]}
    lines = report.figures({"history": measured}, "history")
    assert lines[2] == "| rows | ≥ 3,000 /s | 4,321 /s |"
    assert "The history: measured on 2026-11-30 at 0123456." in lines
    assert report.figures({}, "history") == []


def test_a_run_of_some_length_is_within_generous_bounds(tmp_path):
    iterations = 3_000
    results = [*record(tmp_path / "run", iterations), *reopen(tmp_path / "run", iterations), *frames()]
    assert len(results) == 11
    for result in results:
        bound = result.asked / GENEROUS if result.at_least else result.asked * GENEROUS
        assert result.measured >= bound if result.at_least else result.measured <= bound, result.row()
    size = next(result for result in results if result.what.startswith("size on disk"))
    assert size.measured <= 1, "That is no matter of time."

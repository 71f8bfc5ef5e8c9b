"""The tutorial on what comes after a run says what is so."""

from __future__ import annotations

import pytest

from tests.notebooks.executed import executed


@pytest.fixture(scope="module")
def values():
    return executed("08_after_the_run").values


def test_the_bold_run_dies_without_a_nan(values):
    assert values["trouble"] is None
    assert "0.weight" in values["dead"]
    assert "4.bias" not in values["dead"]
    assert 0 < values["died_at"] < 100


def test_both_begin_with_the_same_gradients_and_part(values):
    assert values["first_ratio"] == [1.0] * 6
    assert values["later"] == 0


def test_the_files_hold_a_line_for_each_iteration_and_parameter():
    assert any(text.startswith(f"({116 * 6},") for text in executed("08_after_the_run").results())


def test_the_page_is_small(values):
    assert 0 < values["size_mb"] < 3

"""The tutorial on loops of one's own says what is so."""

from __future__ import annotations

import pytest

from tests.notebooks.executed import executed


@pytest.fixture(scope="module")
def values():
    return executed("07_your_own_loop").values


def test_the_watched_loop_trains_to_the_bit_as_the_plain_one(values):
    assert values["untouched"] is True


def test_some_steps_were_clipped_and_told_as_such(values):
    assert 0 < values["steps_clipped"] <= 72


def test_all_loops_had_the_same_gradients(values):
    assert set(values["furthest"]) == {"gradviz", "Lightning", "Hugging Face"}
    assert max(values["furthest"].values()) < 1e-5

"""The tutorial on objectives says what is so."""

from __future__ import annotations

import pytest

from tests.notebooks.executed import executed


@pytest.fixture(scope="module")
def values():
    return executed("02_objectives").values


def test_metric_learning_brings_unseen_digits_together(values):
    assert values["before"] < 0.6
    assert values["after"] > 0.85


def test_the_metric_sees_the_similarities_that_the_objective_returned(values):
    assert values["paired"] > 0.9


def test_buffers_moved_once_a_step_in_spite_of_two_passes():
    assert "(480, 480)" in executed("02_objectives").results()


def test_the_penalty_reaches_its_parameter_alone(values):
    assert values["unused"] == [f"body.{i}.{kind}" for i in (0, 1, 3) for kind in ("bias", "weight")] + ["head.bias"]
    alone, together, both = values["by_part"]
    assert abs(together - alone) < both < together + alone


def test_an_objective_without_its_output_is_refused_with_the_line_to_write(values):
    assert "must return the loss and the whole output of forward" in values["refused"]


def test_gradients_shrink_as_pairs_fit(values):
    assert values["faded"] < 0.7

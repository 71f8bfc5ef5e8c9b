"""The tutorial on finetuning says what is so."""

from __future__ import annotations

import pytest

from tests.notebooks.executed import executed


@pytest.fixture(scope="module")
def values():
    return executed("04_finetuning_and_freezing").values


def test_the_forgotten_layer_is_told_apart_from_the_frozen_ones_and_those_that_train(values):
    by_module = {(name.split(".")[0], state) for name, state in values["states"].items()}
    assert by_module == {("body", "frozen"), ("adapter", "not_optimized"), ("head", "ok")}


def test_neither_the_forgotten_nor_the_frozen_layer_moved(values):
    assert values["adapter_moved"] is False
    assert values["body_moved"] is False


def test_each_layer_that_trains_makes_it_better(values):
    adapted, let_go = values["accuracy"][3], values["accuracy"][-1]
    assert values["forgetful"] < 0.7 < adapted < let_go
    assert let_go > 0.9


def test_the_body_is_let_go_where_the_events_say():
    assert "(True, ['frozen', 'ok', 'ok'])" in executed("04_finetuning_and_freezing").results()

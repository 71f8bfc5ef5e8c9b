"""Metrics as a picture: what is known by iteration, what by epoch, and what was not taken."""

from __future__ import annotations

import math

import numpy as np

from gradviz.history.history import History
from gradviz.history.metrics import MOST
from gradviz.history.overview import NAN, NOT_RECORDED, POSINF


def history_of(*metrics: dict[str, float]) -> History:
    history = History()
    for i, values in enumerate(metrics):
        history.append(i, 0, None, None, values)
    return history


def test_each_metric_is_a_row_and_the_loss_the_last_and_what_was_not_taken_says_so():
    picture = history_of({"loss": 2.0}, {"loss": 1.0, "accuracy": 0.5}, {"accuracy": math.nan}).metric_picture()
    columns, seen = picture.overview()
    assert (picture.names, seen) == (["accuracy"], 3)
    assert columns.maximum[:, 1].tolist()[:2] == [2.0, 1.0]
    assert columns.flags.tolist() == [[NOT_RECORDED, 0], [0, 0], [NAN, NOT_RECORDED]]
    newest = picture.newest()
    assert np.isnan(newest).all()


def test_numbers_beyond_float32_stay_what_they_are_in_kind():
    picture = history_of({"loss": 1e-300, "large": 1e300}, {"loss": math.inf, "large": 0.0}).metric_picture()
    columns = picture.columns(0)
    assert 0 < columns.maximum[0, 1] < 1e-44
    assert np.isfinite(columns.maximum[0, 0])
    assert columns.flags.tolist() == [[0, 0], [0, POSINF]]


def test_merged_columns_keep_the_largest_and_the_smallest():
    picture = history_of(*({"loss": float(i % 7)} for i in range(40))).metric_picture()
    merged = picture.columns(0).at_most(3)
    assert (merged.maximum[0, 0], merged.minimum[0, 0]) == (6.0, 0.0)


def test_what_an_epoch_alone_knows_has_a_row_there_and_a_late_validation_joins_its_epoch():
    history = history_of({"loss": 1.0, "accuracy": 0.5})
    picture = history.metric_picture()
    history.end_epoch(0, 1, {"loss": 1.0, "accuracy": 0.5}, 0)
    assert (picture.epochs().rows, picture.by_epoch) == (1, [])
    history.extend_epoch(0, {"validation_loss": 0.75})
    history.end_epoch(1, 1, {"loss": 0.5}, 0)
    columns = picture.epochs()
    assert picture.by_epoch == ["validation_loss"]
    assert columns.start.tolist() == [0, 1]
    assert columns.maximum[0].tolist() == [0.75, 1.0]
    assert columns.flags.tolist() == [[0, 0], [NOT_RECORDED, 0]]
    assert picture.epochs(1).start.tolist() == [1]


def test_of_very_many_metrics_some_have_no_row_and_are_counted():
    picture = history_of({"loss": 1.0, **{f"m{i}": float(i) for i in range(MOST + 3)}}).metric_picture()
    assert (len(picture.names), picture.n_more, picture.columns(0).rows) == (MOST, 3, MOST + 1)

"""How far a run is, and how long it will take."""

from __future__ import annotations

import numpy as np
import pytest

from gradviz.history.progress import Progress


def test_time_left_follows_the_pace_of_this_stretch(monkeypatch):
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    progress = Progress(iteration=50, iterations=80)
    assert progress.left_s is None
    progress.begin()
    assert progress.status == "training"
    assert progress.left_s is None  # nobody knows yet
    now, progress.iteration = 104.0, 60
    assert progress.left_s == pytest.approx(8)
    progress.iterations = None
    assert progress.left_s is None
    progress.iterations, progress.status = 80, "completed"
    assert progress.left_s is None


def test_beginning_again_clears_the_last_error():
    progress = Progress(status="failed", message="RuntimeError: no")
    progress.begin()
    assert progress.message is None


def test_what_was_clipped_is_known_from_where_it_was_measured_without_a_break():
    progress = Progress()
    progress.records(1, 10, clipped=True)
    progress.records(1, 20, clipped=True)
    assert progress.clipped_from == 10
    progress.records(1, 5, clipped=True)  # trained again from a checkpoint
    assert progress.clipped_from == 5
    progress.records(1, 30, clipped=False)
    assert progress.clipped_from is None
    progress.records(10, 40, clipped=True)
    assert (progress.every, progress.clipped_from) == (10, 40)


def test_metrics_are_plain_numbers_whatever_they_were_given_as():
    progress = Progress()
    assert progress.metrics == {}
    progress.metrics = {"loss": np.float32(0.1)}
    assert progress.metrics == {"loss": float(np.float32(0.1))}
    assert type(progress.metrics["loss"]) is float

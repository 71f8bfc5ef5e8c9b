"""A run is read by one process while another writes it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gradviz as gv

WRITER = """
import sys, time
import numpy as np
from gradviz.history.history import History
from tests.history.run.victim import PARAMETERS, row, train

history = History(save_to=sys.argv[1], flush_interval_s=0.05)
history.declare([{"name": f"layer.{k}", "shape": (2,), "dtype": "float32"} for k in range(PARAMETERS)])
until, i = time.monotonic() + 4, 0
while time.monotonic() < until:
    train()
    history.append(i, i // 50, row(i), np.zeros(PARAMETERS, np.uint8), {"loss": float(i)})
    i += 1
    if i == 20:
        history.flush()
        print("begun", flush=True)
    if i % 50 == 0:
        history.end_epoch(i // 50 - 1, 50, {"loss": float(i)}, 0)
history.progress.status = "completed"
history.end_run()
print(i)
"""


@pytest.mark.case("H06")
def test_a_reader_always_sees_whole_iterations_up_to_one_and_never_an_error(tmp_path):
    folder = tmp_path / "a"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "begun\n"
    followed = gv.History.open(folder)
    lengths = []
    while followed.progress.status != "completed":
        for history in (followed.refresh(), gv.History.open(folder)):
            norms = history.norms
            metrics = history.metrics
            n = len(norms)
            assert norms.index.tolist() == metrics.index.tolist() == list(range(n))
            assert norms["layer.2"].tolist() == [1000.0 * i + 2 for i in range(n)]
            assert len(history.select(iterations=slice(-3, None)).gradients) == 15
            assert len(history.epochs) <= n // 50 + 1
            lengths.append(n)
    n = int(writer.stdout.read())
    assert writer.wait() == 0
    assert len(followed) == len(gv.History.open(folder)) == n
    assert sorted(lengths) == lengths
    assert len(set(lengths)) > 5, "It was seen on its way."


def test_a_run_whose_writer_was_killed_is_interrupted_and_followed_no_more(tmp_path):
    folder = tmp_path / "a"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True) as writer:
        writer.stdout.readline()
        followed = gv.History.open(folder)
        assert followed.progress.status == "training"
        followed.follow(every_s=0.02)
        writer.kill()
    followed._follower.join()
    for history in (followed, gv.History.open(folder)):
        assert (history.progress.status, history.progress.message) == (
            "interrupted",
            "its process ended without a word",
        )


def test_a_followed_run_is_taken_up_by_itself_and_listeners_are_told(tmp_path):
    class Listener:
        def __init__(self):
            self.lengths = []

        def hear(self, final):
            self.lengths.append((len(followed), final))

    folder, listener = tmp_path / "a", Listener()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True)
    writer.stdout.readline()
    followed = gv.History.open(folder)
    followed.subscribe(listener.hear)
    followed.follow(every_s=0.02)
    n = int(writer.stdout.read())
    writer.wait()
    followed._follower.join()
    assert len(followed) == n
    assert listener.lengths[-1] == (n, True)
    assert len({length for length, _ in listener.lengths}) > 5
    columns, seen = followed.overview()
    assert seen == n
    assert columns.minimum[0, 1] == 1

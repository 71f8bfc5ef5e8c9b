"""Writers that are killed: forked from a process that has everything imported, one after the other.

Run as ``python -m tests.history.run.victim FOLDER KILLS``. Each writer records into a folder of its own until
it is killed: every second one at any moment, the others inside a write. Prints a line of JSON for each: where its
run is, whether the kill fell between the first byte of a file and its rename, and how long the longest flush took; when
each iteration was appended lies beside the run.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from gradviz.history.history import History
from gradviz.history.run.local import LocalFolder
from gradviz.history.run.writer import Writer

INTERVAL_S = 0.05
MOST = 1_000_000
PARAMETERS = 5


def row(i: int) -> np.ndarray:
    """What iteration i records: every number tells whose it is."""
    table = np.full((PARAMETERS, 8), 1000.0 * i)
    table += np.arange(PARAMETERS)[:, None] + np.arange(8) / 8
    table[:, 5:] = i % 3
    return table


WEIGHTS = np.eye(160)


def train() -> None:
    """What a step does for half a millisecond: numbers, without Python's lock."""
    np.dot(WEIGHTS, WEIGHTS)


def write(folder: str, inside: np.ndarray, appended: np.ndarray, times: np.ndarray, longest: np.ndarray) -> None:
    """Record without end."""

    def marked(self, name, data, plain=LocalFolder.write):
        inside[0] = 1
        try:
            plain(self, name, data)
        finally:
            inside[0] = 0

    def timed(self, *, ended=False, plain=Writer.flush):
        longest[1] = time.monotonic()
        plain(self, ended=ended)
        longest[0] = max(longest[0], time.monotonic() - longest[1])
        longest[1] = 0

    LocalFolder.write, Writer.flush = marked, timed
    history = History(save_to=folder, flush_interval_s=INTERVAL_S)
    history.declare([{"name": f"layer.{k}", "shape": (2,), "dtype": "float32"} for k in range(PARAMETERS)])
    states = np.zeros(PARAMETERS, np.uint8)
    for i in range(MOST):
        train()
        history.append(i, i // 50, row(i), states, {"loss": float(i)})
        times[i] = time.monotonic()
        appended[0] = i + 1
        if i % 50 == 49:
            history.end_epoch(i // 50, 50, {"loss": float(i)}, 0)
            history.add_events(i, "frozen", ["layer.1"])


def kill(folder: Path, chance: random.Random, *, in_a_write: bool) -> dict[str, object]:
    """Let a writer begin, and kill it."""
    shared = mmap.mmap(-1, 64 + 8 * MOST)
    inside, appended = np.frombuffer(shared, np.int64, 1), np.frombuffer(shared, np.int64, 1, 8)
    longest, times = np.frombuffer(shared, np.float64, 2, 16), np.frombuffer(shared, np.float64, MOST, 64)
    process = os.fork()
    if not process:
        try:
            write(str(folder), inside, appended, times, longest)
        finally:
            os._exit(1)
    until = time.monotonic() + chance.uniform(0.02, 0.5)
    while not appended[0] or time.monotonic() < until or (in_a_write and not inside[0]):
        if os.waitpid(process, os.WNOHANG)[0]:
            raise RuntimeError("The writer ended by itself.")
    killed = time.monotonic()
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    longest_s = max(longest[0], killed - longest[1] if longest[1] else 0.0)  # that which was under way counts too
    np.save(folder.with_suffix(".npy"), killed - times[: appended[0]])
    return {"folder": str(folder), "inside": bool(inside[0]), "longest_s": longest_s}


if __name__ == "__main__":
    base, kills = Path(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(0)
    for k in range(kills):
        print(json.dumps(kill(base / f"run{k}", chance, in_a_write=k % 2 == 0)), flush=True)

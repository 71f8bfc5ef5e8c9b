"""Whatever moment a process is killed at, its run opens, and all but the last moments are there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gradviz.history.history import History
from tests.history.run.victim import INTERVAL_S, PARAMETERS, row

KILLS = int(os.environ.get("KILLS", "30"))
"""``make soak`` kills 200."""


@pytest.mark.case("H05")
def test_a_killed_run_opens_and_lacks_no_more_than_the_flush_interval(tmp_path):
    command = [sys.executable, "-m", "tests.history.run.victim", str(tmp_path), str(KILLS)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    deaths = [json.loads(line) for line in told]
    assert len(deaths) == KILLS
    assert sum(death["inside"] for death in deaths) >= KILLS / 2
    lost = [check(Path(death["folder"]), death["longest_s"]) - death["longest_s"] for death in deaths]
    assert np.median(lost) <= 2 * INTERVAL_S, "Most kills are not at the worst moment; how long a flush takes is apart."


def check(folder: Path, longest_s: float) -> float:
    """Open what is left, and say how old the oldest iteration was that is not there."""
    since = np.load(folder.with_suffix(".npy"))  # seconds from an append to the kill
    if not (folder / "run.json").exists():
        assert since.max(initial=0) <= INTERVAL_S + longest_s
        return float(since.max(initial=0))
    history = History.open(folder)
    n = len(history)
    # A flush begins half an interval after the one before; how long they take is the disk's doing.
    lost_s = float(since[n]) if n < len(since) else 0.0
    assert lost_s <= INTERVAL_S / 2 + 2 * max(longest_s, INTERVAL_S)
    check_frames(history, n)
    plain = pd.read_parquet(folder / "gradients") if n else pd.DataFrame({"iteration": []})
    assert set(range(n)) <= set(plain["iteration"])
    again = History(save_to=folder, if_exists="resume")
    again.begin_attempt(n, n // 50)
    again.append(n, n // 50, row(n), np.zeros(PARAMETERS, np.uint8), {"loss": float(n)})
    again.end_run()
    check_frames(History.open(folder), n + 1)
    return lost_s


def check_frames(history: History, n: int) -> None:
    norms = history.norms
    assert norms.index.tolist() == history.metrics.index.tolist() == list(range(n))
    expected = 1000.0 * np.arange(n)[:, None] + np.arange(PARAMETERS)
    np.testing.assert_array_equal(norms.to_numpy(), expected.reshape(n, len(norms.columns)))
    np.testing.assert_array_equal(history.metrics["loss"], np.arange(n))
    assert history.gradients["nan"].tolist() == [i % 3 for i in range(n) for _ in range(len(norms.columns))]
    assert history.events["iteration"].tolist() == [i for i in range(n) if i % 50 == 49][: len(history.events)]
    assert history.overview()[1] == n

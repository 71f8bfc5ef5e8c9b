"""Training with gradviz stays about as cheap as it is.

Half a minute on a machine that others use cannot tell a cost of 1.12 from one of 1.14, but from 1.3 it can: the bounds
are twice the excess that `bench_loop` asks for. With one thread and the lower decile of the steps figures hold where
two other processes keep both cores busy: two threads wait for each other then, and a median is twice what it should be.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.bench_loop import ROOT, TARGETS, compare
from tests.benchmarks.timing import lower_decile

BOUND = 2  # times the allowed excess
ATTEMPTS = 5
GROUPS = {
    "ours": {loop: loop for loop in ("none", "norms", "all", "live")},
    "watches": {"watch norms": "norms", "watch all": "all"},
}
"""By the group that a loop runs in: whose target it is held to."""


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("model", ["mlp", "deep"])
def test_training_costs_no_more_than_twice_the_excess_it_may(model: str, group: str, tmp_path: Path) -> None:
    bounds = {loop: 1 + BOUND * (TARGETS[of][model] - 1) for loop, of in GROUPS[group].items()}
    found: dict[str, float] = {}
    for attempt in range(ATTEMPTS):
        file = tmp_path / f"{attempt}.json"
        options = ["--seconds=4", "--warm-up=3", "--alone=40", "--threads=1", f"--seed={attempt}", f"--json={file}"]
        command = [sys.executable, "-m", "tests.benchmarks.interleaved", model, group, *options]
        subprocess.run(command, cwd=ROOT, check=True)
        for result in compare([json.loads(file.read_text())], of=lower_decile):
            found[result.loop] = min(result.ratio, found.get(result.loop, result.ratio))
        over = {loop: found[loop] for loop, bound in bounds.items() if found[loop] > bound}
        if not over:
            return
    pytest.fail(f"In each of {ATTEMPTS} processes over {bounds}: {over}")

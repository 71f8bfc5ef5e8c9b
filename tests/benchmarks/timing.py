"""Two ways of the same, timed in turn, and the table of how they compare.

Both ways run in turn within one process, the first of a pair changing each time: one after the other, a machine that
others use differs by more than what is measured. What a call gives is freed within its time. *ratio* is that of the
medians, *pairs* the median of the ratios of neighbours, *quiet* the ratio of the lower deciles, which is right where
others keep the machine busy; *spread* is that of the ratio in five repeats.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch

from tests.benchmarks.models import Setting, deep, mlp, transformer

MODELS = {"mlp": mlp, "transformer": transformer, "deep": deep}
REPEATS = 5
PAIRS = {"mlp": 200, "transformer": 8, "deep": 60}  # of steps, in each repeat
COLUMNS = "{:<12}{:<26}{:>6}{:>8}{:>8}{:>8}{:>16}{:>11}{:>11}"


Time = TypeVar("Time", int, float)


@dataclass
class Result:
    """How one operation on one model compares."""

    model: str
    operation: str
    target: float | None
    """The ratio that is asked; None where it is only told."""
    ratio: float
    """Of the medians of all rounds."""
    pairwise: float
    """Median of the ratios of two neighbours."""
    quiet: float
    """Of the lower deciles: the rounds that nobody disturbed."""
    spread: tuple[float, float]
    """Least and greatest ratio of medians in one repeat."""
    ours_us: float
    torch_us: float

    def row(self) -> str:
        """A line of the table."""
        asked = "-" if self.target is None else f"{self.target:.2f}"
        ratios = [f"{ratio:.3f}" for ratio in (self.ratio, self.pairwise, self.quiet)]
        spread = "{:.3f} - {:.3f}".format(*self.spread)
        times = f"{self.ours_us:.1f}", f"{self.torch_us:.1f}"
        line = COLUMNS.format(self.model, self.operation, asked, *ratios, spread, *times)
        if self.target is None or self.ratio <= self.target:
            return line
        return f"{line}  over{', within the spread' if self.spread[0] <= self.target else ''}"


def compare(ours: Callable[[], Any], torchs: Callable[[], Any], pairs: int) -> dict[str, Any]:
    """Time two functions in turn."""
    for function in (ours, torchs) * 3:
        function()
    repeats = []
    for _ in range(REPEATS):
        gc.collect()
        rounds = []
        for turn in range(pairs):
            first, second = (ours, torchs) if turn % 2 else (torchs, ours)
            times = timed(first), timed(second)
            rounds.append(times if turn % 2 else times[::-1])
        repeats.append(rounds)
    everything = [times for rounds in repeats for times in rounds]
    ratios = [ratio_of_medians(rounds) for rounds in repeats]
    return {
        "ratio": ratio_of_medians(everything),
        "pairwise": median(mine / theirs for mine, theirs in everything),
        "quiet": lower_decile([mine for mine, _ in everything]) / lower_decile([theirs for _, theirs in everything]),
        "spread": (min(ratios), max(ratios)),
        "ours_us": median(mine for mine, _ in everything) / 1e3,
        "torch_us": median(theirs for _, theirs in everything) / 1e3,
    }


def timed(function: Callable[[], Any]) -> int:
    clock = time.thread_time_ns if torch.get_num_threads() == 1 else time.perf_counter_ns
    start = clock()
    function()
    return clock() - start


def ratio_of_medians(rounds: list[tuple[int, int]]) -> float:
    return median(mine for mine, _ in rounds) / median(theirs for _, theirs in rounds)


def lower_decile(times: list[Time]) -> Time:
    return sorted(times)[len(times) // 10]


def at_least_four(rounds: float) -> int:
    """So many rounds that a median says something, however small the share that is taken."""
    return max(4, int(rounds))


def main(
    description: str | None,
    measure: Callable[[Setting, float], Iterator[Result]],
    measure_memory: Callable[[Setting], dict[str, Any]] | None = None,
) -> None:
    """Measure the models that the command line names; print a table, and write the figures where it says.

    Parameters
    ----------
    description : str
        For ``--help``.
    measure : callable
        Gives the results of one model, with a share of the rounds.
    measure_memory : callable, optional
        Gives bytes by what they are for, of one model.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go as well")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="that torch uses (2)")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), help="to measure (all)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    share = 0.2 if os.environ.get("QUICK") else 1.0
    results, memory = [], []
    print(
        COLUMNS.format("model", "operation", "asked", "ratio", "pairs", "quiet", "spread", "ours us", "torch us"),
        flush=True,
    )
    for name in arguments.models:
        for r in measure(MODELS[name](), share):
            results.append(r)
            print(r.row(), flush=True)
    for name in arguments.models if measure_memory else ():
        figures = measure_memory(MODELS[name]())
        memory.append({"model": name, **figures})
        print(f"{name:<12}" + ", ".join(f"{what} {number / 1e6:.2f} MB" for what, number in figures.items()))
    if arguments.json:
        report = {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "load": os.getloadavg(),
            "results": [asdict(r) for r in results],
        }
        if measure_memory:
            report["bytes"] = memory
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")

"""What `value_and_grad` and the algebra cost over the torch calls they stand on.

    python -m tests.benchmarks.bench_grad [--json FILE] [--threads N] [--models mlp deep]

`QUICK=1` takes a fifth of the rounds. `--threads 1` counts the CPU time of the one thread, which other processes touch
far less than the time on the clock: two threads on a busy machine mostly wait for each other.

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
from typing import Any

import torch
from torch import Tensor

import gradviz as gv
from tests.benchmarks.models import Setting, deep, mlp, transformer

MODELS = {"mlp": mlp, "transformer": transformer, "deep": deep}
REPEATS = 5
PAIRS = {"mlp": 200, "transformer": 8, "deep": 60}  # of steps, in each repeat
ALGEBRA_PAIRS = {"mlp": 1000, "transformer": 40, "deep": 1000}
GRADIENT_TARGET = {"mlp": 1.03, "transformer": 1.03, "deep": 1.10}
SUM_TARGET, NORM_TARGET = 1.2, 1.5


@dataclass
class Result:
    """How one operation on one model compares."""

    model: str
    operation: str
    target: float
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

    def row(self, columns: str) -> str:
        """A line of the table."""
        ratios = [f"{ratio:.3f}" for ratio in (self.ratio, self.pairwise, self.quiet)]
        spread = "{:.3f} - {:.3f}".format(*self.spread)
        times = f"{self.ours_us:.1f}", f"{self.torch_us:.1f}"
        line = columns.format(self.model, self.operation, self.target, *ratios, spread, *times)
        return line if self.ratio <= self.target else f"{line}  over"


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


def lower_decile(times: list[int]) -> int:
    return sorted(times)[len(times) // 10]


def measure(setting: Setting, share: float) -> Iterator[Result]:
    """Every operation on one model."""
    model, batch, loss = setting.model, setting.batch, setting.loss
    parameters = list(model.parameters())

    def by_hand() -> tuple[Tensor, tuple[Tensor, ...]]:
        value = loss(model, *batch)
        return value.detach(), torch.autograd.grad(value, parameters, allow_unused=True)

    def ours() -> Any:
        return gv.value_and_grad(loss, model, *batch)

    (_, g), (_, h) = ours(), ours()
    g_leaves, h_leaves = list(g.values()), list(h.values())
    steps, operations = (max(4, int(share * table[setting.name])) for table in (PAIRS, ALGEBRA_PAIRS))
    for name, target, pairs, mine, theirs in (
        ("value_and_grad", GRADIENT_TARGET[setting.name], steps, ours, by_hand),
        ("g + h", SUM_TARGET, operations, lambda: g + h, lambda: torch._foreach_add(g_leaves, h_leaves)),
        ("2 * g", SUM_TARGET, operations, lambda: 2 * g, lambda: torch._foreach_mul(g_leaves, 2.0)),
        ("norm(g)", NORM_TARGET, operations, lambda: gv.norm(g), lambda: torch._foreach_norm(g_leaves)),
    ):
        yield Result(setting.name, name, target, **compare(mine, theirs, pairs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go as well")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="that torch uses (2)")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), help="to measure (all)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    share = 0.2 if os.environ.get("QUICK") else 1.0
    results = []
    columns = "{:<12}{:<15}{:>6}{:>8}{:>8}{:>8}{:>16}{:>11}{:>11}"
    print(columns.format("model", "operation", "asked", "ratio", "pairs", "quiet", "spread", "ours us", "torch us"))
    for setting in (MODELS[name]() for name in arguments.models):
        for r in measure(setting, share):
            results.append(r)
            print(r.row(columns), flush=True)
    if arguments.json:
        report = {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "load": os.getloadavg(),
            "results": [asdict(r) for r in results],
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

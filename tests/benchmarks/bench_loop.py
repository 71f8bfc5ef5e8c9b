"""What training with gradviz costs over the same loop in plain PyTorch, and what others cost: the table of the README.

    make bench                      all of it, under 20 minutes; QUICK=1 under 4
    make bench MODELS="mlp deep"    some models only

A figure is the median of several processes' ratios, and a process's ratio that of the median step to the median bare
step among the same rounds (`tests.benchmarks.interleaved` says how steps are taken in turn). The ratio of medians, and
not the median of each round's ratio, because the latter has the noise of one single bare step in every term; both agree
where the machine is quiet. What happens in some steps only, the sending of the live picture, would not show in any
median: to that of the steps that do not send is added what sending costs on the average.

The bare loop runs twice. "bare again" is the second against the first: how far it is from 1 tells how far to believe
the rest, for which the steps of both are taken together. The bare loop does not look at its loss, and gradviz's keeps
it: the cost of that is in gradviz's figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks import bench_heatmap, bench_history, bench_widgets
from tests.benchmarks.interleaved import MODELS

ROOT = Path(__file__).parents[2]
DEFAULT_FILE = ROOT / "dist" / "bench.json"
PEERS_PYTHON = Path(sys.prefix) / "peers" / "bin" / "python"
PEERS = ("tensorboard", "torchlens", "wandb")
THREADS = 2

TARGETS = {
    "none": {"mlp": 1.03, "transformer": 1.01, "deep": 1.04},
    "norms": {"mlp": 1.06, "transformer": 1.02, "deep": 1.07},
    "all": {"mlp": 1.12, "transformer": 1.04, "deep": 1.18},
    "live": {"mlp": 1.14, "transformer": 1.06, "deep": 1.20},
    "capture modules": {"mlp": 1.13, "transformer": 1.06},
}
NO_MORE_THAN = {"watch norms": "beside norms", "watch all": "beside all"}
"""Watching a loop costs no more than gradviz's own loop that records the same, in the same run. It has a model of its
own, which no step of another loop has left in the caches, and is compared with a bare loop of which the same is true.
"""

Statistic = Callable[[list[float]], float]

FAR = 1.3  # times the allowed excess

PROCESSES = {"ours": (5, 2), "watches": (3, 1), "captures": (3, 1), "peers": (5, 1)}
"""How many for each model; the second with QUICK=1."""

ROUNDS = {"ours": 200, "watches": 200, "captures": 200, "peers": 40}
"""Of a process, if there is time for all."""

SECONDS = {
    "ours": {"mlp": (10, 4), "transformer": (30, 12), "deep": (18, 6), "vanishing": (10, 4)},
    "watches": {"mlp": (8, 4), "transformer": (16, 8), "deep": (10, 5)},
    "captures": {"mlp": (10, 4), "transformer": (30, 8)},
    "peers": {"mlp": (8, 4), "transformer": (16, 8), "deep": (12, 5)},
}
"""That the rounds of a process may take; the second with QUICK=1. They decide for the transformer alone, on a machine
that is not too slow: its steps take a hundred times those of the MLP, and vary far less."""

ALONE = {"mlp": (400, 100), "deep": (90, 60), "vanishing": (60, 30)}
"""Steps of the loop with a picture. Those of the transformer are so long that what they send shows among others too."""

TURN = {"ours": {}, "watches": {}, "captures": {}, "peers": {"mlp": 5, "transformer": 3, "deep": 5}}
WARM_UP = {
    "ours": {"mlp": 10, "deep": 5, "vanishing": 5, "transformer": 2},
    "watches": {"mlp": 10, "deep": 5, "transformer": 2},
    "captures": {"mlp": 10, "transformer": 2},
    "peers": {"mlp": 3},
}


@dataclass
class Result:
    """How a loop compares on a model."""

    model: str
    loop: str
    ratio: float
    """Median over the processes."""
    ratios: list[float]
    """Each process's."""
    target: float | None
    step_us: float
    """Median over the processes, as long as the machine took."""
    point_us: float | None = None
    """What each captured point adds to a step."""

    @property
    def verdict(self) -> str:
        """Nothing, if it is within its target."""
        if self.target is None or self.ratio <= self.target:
            return ""
        far = self.ratio - 1 > FAR * (self.target - 1)
        within = ", but not in every process" if min(self.ratios) <= self.target else ""
        return f"{'FAR OVER' if far else 'over'}{within}"

    def row(self) -> str:
        """A line of the table."""
        asked = "" if self.target is None else f"{self.target:.2f}"
        spread = f"{min(self.ratios):.3f} - {max(self.ratios):.3f}"
        line = COLUMNS.format(self.model, self.loop, asked, f"{self.ratio:.3f}", spread, f"{self.step_us:.0f}")
        point = "" if self.point_us is None else f"  {self.point_us:.1f} us a point"
        return f"{line}{point}{f'  {self.verdict}' if self.verdict else ''}"


COLUMNS = "{:<12}{:<24}{:>6}{:>8}{:>16}{:>10}"


def typical(process: dict[str, Any], *loops: str, of: Statistic = median) -> float:
    """The microseconds of a loop's step, or of several loops' together: the median, and what sending adds to it."""
    steps = [us for loop in loops for us in process["steps_us"][loop]]
    (loop, *more) = loops
    if more or loop not in process["sent"]:
        return of(steps)
    silent = [us for us, sent in zip(steps, process["sent"][loop], strict=True) if not sent]
    # Where most steps send, their median says it all.
    if len(silent) < len(steps) / 4:
        return of(steps)
    # A long step is no colder among others than alone, so nobody has taken it alone.
    alone = process["alone"][loop]
    seen = alone if alone["steps_us"] else {"steps_us": steps, "sent": process["sent"][loop]}
    if all(seen["sent"]):  # a machine so slow that every step is due to send
        return of(steps)
    return of(silent) * (1 + sending(**seen, of=of))


def sending(steps_us: list[float], sent: list[int], *, of: Statistic = median) -> float:
    """What sending costs, as a share of a loop that sends in some of its steps: with the step that follows on one."""
    before = [0, *sent][: len(sent)]
    kinds: dict[str, list[float]] = {"sends": [], "follows": [], "silent": []}
    for us, sends, follows in zip(steps_us, sent, before, strict=True):
        kinds["sends" if sends else "follows" if follows else "silent"].append(us)
    silent = of(kinds["silent"])
    added = sum(len(kind) * (of(kind) - silent) for kind in kinds.values() if kind)
    return added / (len(steps_us) * silent)


def compare(processes: list[dict[str, Any]], of: Statistic = median) -> list[Result]:
    """The results of one model's processes of one group, from a statistic of each loop's steps."""
    results = []
    model = processes[0]["model"]
    for loop in processes[0]["steps_us"]:
        if loop == "bare":
            continue
        against: tuple[str, ...] = ("bare",) if loop in ("bare again", "bare copy") else ("bare", "bare again")
        if loop in NO_MORE_THAN:
            against = ("bare copy",)
        ratios = [typical(process, loop, of=of) / typical(process, *against, of=of) for process in processes]
        step_us = median(typical(process, loop, of=of) for process in processes)
        points = processes[0].get("told", {}).get(loop, {}).get("points")
        point_us = None if points is None else (median(ratios) - 1) / median(ratios) * step_us / points
        target = TARGETS.get(loop, {}).get(model)
        results.append(Result(model, loop, median(ratios), ratios, target, step_us, point_us))
    found = {result.loop: result for result in results}
    for loop, other in NO_MORE_THAN.items():
        if loop in found and other in found:
            found[loop].target = found[other].ratio
    return results


def measure(model: str, group: str, *, quick: bool) -> list[dict[str, Any]]:
    """Run the processes of one model and group, one after the other."""
    schedule = {
        "rounds": ROUNDS[group],
        "seconds": SECONDS[group][model][quick],
        "warm-up": WARM_UP[group].get(model, 1),
        "turn": TURN[group].get(model, 1),
        "alone": ALONE.get(model, (0, 0))[quick] if group == "ours" else 0,
        "threads": THREADS,
    }
    options = [f"--{name}={value}" for name, value in schedule.items()]
    python = PEERS_PYTHON if group in ("captures", "peers") else sys.executable
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "process.json"
        for seed in range(PROCESSES[group][quick]):
            command = [python, "-m", "tests.benchmarks.interleaved", model, group, f"--seed={seed}", f"--json={file}"]
            subprocess.run([*command, *options], cwd=ROOT, check=True)
            measured.append(json.loads(file.read_text()))
    return measured


def circumstances() -> dict[str, Any]:
    """What a figure is worth nothing without."""
    packages = {name: version(name) for name in ("numpy", "pandas", "torch")}
    if PEERS_PYTHON.exists():
        asks = f"from importlib.metadata import version; print(*map(version, {PEERS}))"
        said = subprocess.run([PEERS_PYTHON, "-c", asks], capture_output=True, text=True, check=True).stdout
        packages |= dict(zip(PEERS, said.split(), strict=True))
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "HEAD"),
        "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        **packages,
        "threads": THREADS,
        "cores": os.cpu_count(),
        "processor": processor(),
        "load": os.getloadavg()[0],
    }


def processor() -> str:
    """The processor's own name for itself."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def git(*arguments: str) -> str:
    """What git says; nothing outside a clone."""
    said = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return said.stdout.strip()


def main() -> None:
    """Measure the models that the command line names; print a table, and write everything where it says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=DEFAULT_FILE, metavar="FILE", help="(%(default)s)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="to measure (all)")
    groups = [*SECONDS, "history", "widgets", "heatmap"]
    parser.add_argument("--groups", nargs="+", choices=groups, default=groups, help="to measure (all)")
    arguments = parser.parse_args()
    if "peers" in arguments.groups and not PEERS_PYTHON.exists():
        parser.error("the environment of the peers is not there: run make bench, or leave them out: --groups ours")
    quick = bool(os.environ.get("QUICK"))
    began = time.perf_counter()
    report: dict[str, Any] = {**circumstances(), "quick": quick, "results": [], "processes": []}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    if quick:
        print("QUICK: few processes and rounds, so take no figure from this table; make bench measures properly")
    print(COLUMNS.format("model", "loop", "asked", "ratio", "spread", "step us"), flush=True)
    for group in (group for group in arguments.groups if group in SECONDS):
        for model in (model for model in arguments.models if model in SECONDS[group]):
            processes = measure(model, group, quick=quick)
            report["processes"] += processes
            for result in compare(processes):
                report["results"].append({**asdict(result), "verdict": result.verdict})
                print(result.row(), flush=True)
            report["minutes"] = round((time.perf_counter() - began) / 60, 1)
            arguments.json.write_text(json.dumps(report))  # what was measured stays if the next fails
    iterations = bench_history.QUICK_ITERATIONS if quick else bench_history.ITERATIONS
    others = {
        "history": lambda: bench_history.measure(iterations),
        "widgets": bench_widgets.measure,
        "heatmap": bench_heatmap.measure,
    }
    for group in (group for group in arguments.groups if group in others):
        print()
        results = bench_history.told(others[group]())
        report[group] = {**{key: report[key] for key in ("date", "commit", "dirty")}, "results": results}
        report["minutes"] = round((time.perf_counter() - began) / 60, 1)
        arguments.json.write_text(json.dumps(report))
    print(f"{report['minutes']} minutes; everything is in {arguments.json}")


if __name__ == "__main__":
    main()

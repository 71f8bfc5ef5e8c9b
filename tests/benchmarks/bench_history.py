"""What the history can take: rows a second with a disk behind it, bytes, and how soon it answers.

    make bench                                   as a part of it
    python -m tests.benchmarks.bench_history     alone, about a minute and a half; QUICK=1 a tenth of it

A run of 1,000 parameters and 8 statistics is appended as fast as it goes, saved, closed and opened again by another
process. Nothing else happens in it: a training would wait for its gradients between two rows. Numbers are those of
gradients, drawn at random: float32 norms, means and spreads over many magnitudes, some zeros, hardly a NaN.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gradviz.history.history import History
from gradviz.history.schema import COUNTS, STATES, STATISTICS
from gradviz.widgets.wire import pack

ROOT = Path(__file__).parents[2]
PARAMETERS, ITERATIONS, QUICK_ITERATIONS = 1_000, 100_000, 10_000
NAMES = [f"encoder.layers.{i // 10}.{i % 10}.weight" for i in range(PARAMETERS)]
RAW = 4 * len(STATISTICS)
"""Bytes of a parameter's statistics in an iteration, as float32 and without a name or an iteration."""

OTHERS = {"wandb.watch": 7_100, "TensorBoard's histograms": 6_000}
"""Bytes that a gradient takes in an iteration, in the files they write offline."""


@dataclass
class Result:
    """A figure, and what was asked of it."""

    what: str
    asked: float
    measured: float
    unit: str
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """Nothing, if it is within."""
        is_met = self.measured >= self.asked if self.at_least else self.measured <= self.asked
        return "" if is_met else "MISSED"

    def row(self) -> str:
        """A line of the table."""
        bound = "at least" if self.at_least else "at most"
        asked = f"{bound} {self.asked:,.4g} {self.unit}"
        return f"{self.what:<58}{asked:>24}{self.measured:>12,.4g}  {self.verdict}"


def gradients(seed: int, n: int = 64) -> list[NDArray[np.float64]]:
    """Rows, [parameters, statistics], as a recorder gives them."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        table = np.zeros((len(STATISTICS), PARAMETERS))
        table[0] = draw.lognormal(-5, 2, PARAMETERS)
        table[1] = draw.normal(0, table[0] / 1000)
        table[2] = table[0] / 256 * draw.uniform(0.9, 1.1, PARAMETERS)
        table[3] = table[2] * draw.uniform(3, 6, PARAMETERS)
        table[4] = np.where(draw.random(PARAMETERS) < 0.2, draw.random(PARAMETERS), 0)
        rows.append(table.astype(np.float32).astype(np.float64).T)
    rows[0][7, 0], rows[0][7, 5] = np.nan, 3
    return rows


def record(folder: Path, iterations: int) -> list[Result]:
    """Append a run, and look at what that took."""
    history = History(save_to=folder)
    history.declare([{"name": name, "shape": (256, 256), "dtype": "float32"} for name in NAMES])
    rows, states = gradients(0), np.zeros(PARAMETERS, np.uint8)
    took, most = np.empty(iterations), 0
    began = time.perf_counter()
    for i in range(iterations):
        before = time.perf_counter()
        history.append(i, i // 1000, rows[i % len(rows)], states, {"loss": 1.0 / (i + 1)})
        took[i] = time.perf_counter() - before
        if i % 100 == 0:
            most = max(most, history._store.nbytes)
    appended = time.perf_counter() - began
    history.progress.status = "completed"
    history.end_run()
    closed = time.perf_counter() - began
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    cells = iterations * PARAMETERS
    window = iterations // 10  # a pause for the disk belongs to the rows it is made for
    late, early = took[-window:].mean(), took[1000 : 1000 + window].mean()
    return [
        Result("iterations appended a second, disk on", 3_000, iterations / appended, "/s", at_least=True),
        Result("the same until all of it is on disk and closed", 3_000, iterations / closed, "/s", at_least=True),
        Result(f"an append near iteration {iterations:,} over one near 1,000", 1.2, late / early, "x"),
        Result("rows in memory at most, of a limit of 512 MB", 512, most / 1e6, "MB"),
        Result("size on disk over raw float32, all files", 1.0, size / (cells * RAW), "x"),
        *(
            Result(f"smaller a gradient than {name}", 100, other * cells / size, "x", at_least=True)
            for name, other in OTHERS.items()
        ),
    ]


def reopen(folder: Path, iterations: int) -> list[Result]:
    """Open a run that is over, and ask it; in a process that has not seen it."""
    opening, history = timed(lambda: History.open(folder))
    drawing, columns = timed(lambda: pack(history.overview()[0]))
    assert len(columns) > 5 * PARAMETERS * min(iterations, 2048)  # a maximum and flags for each cell
    one, frame = timed(lambda: history.select(parameters=NAMES[417]).norms)
    rows = gradients(0)
    assert np.array_equal(frame[NAMES[417]], [rows[i % len(rows)][417, 0] for i in range(iterations)])
    places = np.linspace(0, iterations - 1, 7).astype(int).tolist()
    lines = [timed(lambda at=at: history.select(iterations=at).gradients) for at in places]
    assert all(len(line) == PARAMETERS for _, line in lines)
    return [
        Result("opened, and the heatmap's bytes ready", 0.5, opening + drawing, "s"),
        Result("one statistic of one parameter, all iterations", 1.0, one, "s"),
        Result("one iteration of all parameters, the slowest of seven", 0.1, max(took for took, _ in lines), "s"),
    ]


def frames() -> list[Result]:
    """`history.gradients` of a million lines, beside the same frame from arrays that are there."""
    history, n = History(), 1_000
    history.declare([{"name": name, "shape": (256, 256), "dtype": "float32"} for name in NAMES])
    rows, states = gradients(1), np.zeros(PARAMETERS, np.uint8)
    for i in range(n):
        history.append(i, 0, rows[i % len(rows)], states, {"loss": 1.0})
    columns = arrays(history.gradients)
    ours, numpys = [], []
    for _ in range(7):
        history._store.change()
        ours.append(timed(lambda: history.gradients)[0])
        numpys.append(timed(lambda: from_arrays(columns))[0])
    return [Result("history.gradients, over the same from numpy's arrays", 2.0, median(ours) / median(numpys), "x")]


def arrays(frame: pd.DataFrame) -> dict[str, tuple[NDArray[np.generic], ...]]:
    """What a frame is made of."""
    texts, counts = ("parameter", "stage", "state"), (*COUNTS, "nonfinite")
    return {
        name: (column.cat.codes.to_numpy(),)
        if name in texts
        else (column.array._data, column.array._mask)
        if name in counts
        else (column.to_numpy(),)
        for name, column in frame.items()
    }


def from_arrays(columns: dict[str, tuple[NDArray[np.generic], ...]]) -> pd.DataFrame:
    """The frame of these, as one makes it."""
    names = {"parameter": NAMES, "stage": ["backward", "clipped", "update"], "state": list(STATES)}
    made: dict[str, object] = {}
    for name, values in columns.items():
        if name in names:
            made[name] = pd.Categorical.from_codes(values[0], names[name])
        else:
            made[name] = pd.arrays.IntegerArray(*values) if len(values) > 1 else values[0]
    return pd.DataFrame(made)


def timed(function: Callable[[], object]) -> tuple[float, object]:
    """Seconds, and what came of it."""
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def measure(iterations: int) -> Iterator[Result]:
    """All figures; each part in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        for part in PARTS:
            command = [sys.executable, "-m", "tests.benchmarks.bench_history", "--part", part]
            command += ["--folder", str(Path(folder) / "run"), "--iterations", str(iterations)]
            said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
            yield from (Result(**each) for each in json.loads(said))


PARTS: dict[str, Callable[[Path, int], list[Result]]] = {
    "record": record,
    "reopen": reopen,
    "frames": lambda folder, iterations: frames(),
}


def told(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Figures, each printed as it is there."""
    figures = []
    for result in results:
        print(result.row(), flush=True)
        figures.append({**asdict(result), "verdict": result.verdict})
    return figures


def tell(description: str | None, measure: Callable[[], Iterable[Result]]) -> None:
    """Measure what a module does when it is run alone: print a table, and write the figures where it is said."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, as JSON")
    arguments = parser.parse_args()
    figures = told(measure())
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


def main() -> None:
    """Measure, and print a table; or one part, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=QUICK_ITERATIONS if os.environ.get("QUICK") else ITERATIONS)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps([asdict(result) for result in PARTS[arguments.part](arguments.folder, arguments.iterations)]))
        return
    for result in measure(arguments.iterations):
        print(result.row())


if __name__ == "__main__":
    main()

"""How far a run is: what a progress bar shows."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import SupportsFloat


@dataclass
class Progress:
    """Kept by whoever trains, read by whoever shows.

    Attributes
    ----------
    status : str
        "idle", "training", "paused", "completed", "halted", "interrupted" or "failed";
        "unknown" where the run's files do not say.
    epoch : int
        Index of the current epoch.
    epochs, iterations : int or None
        Planned for the whole run, what ran before included; None if unknown.
    iteration : int
        Iterations run so far.
    every : int or None
        Of so many iterations one has its gradients recorded, and the last one; None: they are not recorded at all.
    clipped_from : int or None
        From this iteration on what the optimizer received was measured wherever it differs from what the backward pass
        gave; None: not, or nobody knows.
    loss : float
        The newest batch's own.
    overhead : float
        What recording costs now, as a share of the iteration without it; NaN where that is not known.
    message : str or None
        One line for the reader, such as the error that ended the run.
    """

    status: str = "idle"
    epoch: int = 0
    epochs: int | None = None
    iteration: int = 0
    iterations: int | None = None
    every: int | None = 1
    clipped_from: int | None = None
    loss: float = math.nan
    overhead: float = math.nan
    message: str | None = None
    _metrics: Mapping[str, SupportsFloat] = field(default_factory=dict)
    _began: float = 0.0
    _began_at: int = 0
    _paused: float = 0.0

    @property
    def metrics(self) -> dict[str, float]:
        """Means of this epoch so far, by name; Python's own numbers, made when somebody looks."""
        return {name: float(value) for name, value in self._metrics.items()}

    @metrics.setter
    def metrics(self, metrics: Mapping[str, SupportsFloat]) -> None:
        self._metrics = metrics

    def begin(self) -> None:
        """Start the clock of this stretch of the run."""
        self.status, self.message = "training", None
        self._began, self._began_at = time.perf_counter(), self.iteration

    def records(self, every: int | None, iteration: int, *, clipped: bool) -> None:
        """From this iteration on gradients are recorded so, at the stage "clipped" too or not."""
        self.every = every
        if not clipped:
            self.clipped_from = None
        else:
            self.clipped_from = iteration if self.clipped_from is None else min(self.clipped_from, iteration)

    def pause(self) -> None:
        """Stop the clock."""
        self.status, self._paused = "paused", time.perf_counter()

    def go_on(self) -> None:
        """Let it go on."""
        self.status, self._began = "training", self._began + time.perf_counter() - self._paused

    @property
    def left_s(self) -> float | None:
        """Seconds left at the pace so far; None if nobody can know."""
        done = self.iteration - self._began_at
        if self.status != "training" or self.iterations is None or done <= 0:
            return None
        return (time.perf_counter() - self._began) / done * max(self.iterations - self.iteration, 0)

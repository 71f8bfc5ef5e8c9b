"""What is recorded, of which iterations: the options that a loop and a watch share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gradviz.errors import nearest, whole

Record = Literal["all", "norms"] | None
"""What is recorded of each gradient: every statistic, its norm, or nothing."""

STAGES = ("backward", "clipped", "update")
"""Those to choose from."""


@dataclass(frozen=True)
class Settings:
    """The options, checked.

    Attributes
    ----------
    record : {"all", "norms", None}
    stages : collection of str
        "backward", and any of "clipped" and "update".
    every : int
        Of so many iterations one is recorded.
    budget : float or None
        What recording may cost, as a share of the step without it.
    histograms_every : int or None
        Of so many iterations one has histograms.

    Examples
    --------
    >>> Settings(stages=("backward", "updates"))
    Traceback (most recent call last):
    ValueError: No stage is called 'updates': did you mean 'update'? Known: backward, clipped, update
    """

    record: Record = "all"
    stages: Iterable[str] = ("backward", "clipped")
    every: int = 1
    budget: float | None = None
    histograms_every: int | None = 100

    def __post_init__(self) -> None:
        if self.record not in ("all", "norms", None):
            raise ValueError(f'record is "all", "norms" or None; got {self.record!r}.')
        if isinstance(self.stages, str):
            raise TypeError(f"stages is a list; write stages=['backward', {self.stages!r}].")
        object.__setattr__(self, "stages", tuple(self.stages))
        for stage in self.stages:
            if stage not in STAGES:
                raise ValueError(f"No stage is called {stage!r}: {nearest(str(stage), STAGES)}")
        if "backward" not in self.stages:
            line = f"stages={['backward', *self.stages]!r}"
            raise ValueError(f'The stage "backward" is recorded in any case; write {line}.')
        whole("every", self.every, least=1)
        if self.histograms_every is not None:
            whole("histograms_every", self.histograms_every, least=1)
        is_number = isinstance(self.budget, int | float) and not isinstance(self.budget, bool)
        if self.budget is not None and not (is_number and 0 < self.budget <= 1):
            raise ValueError(f"budget is a share of the step, up to 1: budget=0.05 is 5 %; got {self.budget!r}.")

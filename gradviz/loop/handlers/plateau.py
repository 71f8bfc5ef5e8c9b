"""A learning rate that is reduced when a metric no longer improves, by torch's own scheduler."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from gradviz.errors import ScheduleWarning, at_least_0, warn, whole
from gradviz.loop.events import State
from gradviz.loop.handlers.monitor import Watched, value_of
from gradviz.loop.handlers.schedule import check_learning_rate

_MEMORY = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")


class Plateau:
    """Reduces the learning rate of every parameter group once a metric is stalled.

    Two of one metric are the same handler.

    Parameters
    ----------
    watched : Watched
        What is asked for; torch's scheduler does the watching.
    optimizer : torch.optim.Optimizer
    factor, cooldown, min_lr
        As torch has them.

    Raises
    ------
    ScheduleError
        If the optimizer has no learning rate.
    ValueError
        If an argument is not of its kind.
    """

    def __init__(self, watched: Watched, optimizer: Optimizer, *, factor: float, cooldown: int, min_lr: float) -> None:
        factor = at_least_0("factor", factor)
        if not 0 < factor < 1:
            raise ValueError(f"factor is a number between 0 and 1; got {factor!r}.")
        check_learning_rate(optimizer)
        self.metric = watched.metric
        self._optimizer = optimizer
        self._scheduler = ReduceLROnPlateau(
            optimizer,
            watched.mode,
            factor=factor,
            patience=watched.patience,
            threshold=watched.min_delta,
            threshold_mode="abs",
            cooldown=whole("cooldown", cooldown),
            min_lr=at_least_0("min_lr", min_lr),
            eps=0.0,  # else torch leaves a learning rate alone that would change by less than 1e-8
        )
        self._last: list[list[float]] = []  # each learning rate before and after the last look
        self._has_said = False
        self.name = f"reduce_lr_on_plateau({watched.metric})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plateau) and self.metric == other.metric

    __hash__ = None  # type: ignore[assignment]

    def succeed(self, earlier: Plateau | None) -> None:
        """Know what the one has seen whose place this takes."""
        if earlier is not None and earlier._scheduler.mode == self._scheduler.mode:
            self.load_state_dict(earlier.state_dict())

    def __call__(self, state: State) -> None:
        """Look, and reduce if it is time."""
        value = value_of(self.metric, state)
        before = self._rates()
        self._check_that_it_held(before)
        self._scheduler.step(value)
        self._last = [list(pair) for pair in zip(before, self._rates(), strict=True)]

    def _rates(self) -> list[float]:
        return [float(group["lr"]) for group in self._optimizer.param_groups]

    def _check_that_it_held(self, now: list[float]) -> None:
        """Warn where the last look reduced a learning rate that is nearer to what it was before than to that now.

        One that has grown from there, as in a warm-up, is fine.
        """
        undone = [
            (after, rate)
            for (before, after), rate in zip(self._last, now, strict=False)
            if after < before and rate**2 > before * after
        ]
        if undone and not self._has_said:
            self._has_said = True
            after, rate = undone[0]
            warn(
                f"{self.name} had reduced the learning rate to {after:g}, and something else has set it to {rate:g}. "
                "A schedule that computes it from the first one undoes every reduction: leave out one of the two.",
                ScheduleWarning,
            )

    def state_dict(self) -> dict[str, Any]:
        """What it has seen, as numbers, and the learning rates before and after the last look."""
        return {**{key: getattr(self._scheduler, key) for key in _MEMORY}, "rates": self._last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; the learning rates themselves are the optimizer's."""
        for key in _MEMORY:
            setattr(self._scheduler, key, state[key])
        self._last = state["rates"]

"""Checkpoints: a file at each event that is due, the newest of them, and the best."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gradviz.errors import CheckpointError, CheckpointWarning, described, warn, whole
from gradviz.loop.checkpoints.earlier import earlier_in
from gradviz.loop.checkpoints.files import BEST, FOLDER, LAST, link, save
from gradviz.loop.checkpoints.snapshot import CHECKPOINT, snapshot
from gradviz.loop.data import not_of_the_state, takes_one
from gradviz.loop.events import State
from gradviz.loop.handlers.monitor import Watched
from gradviz.loop.training import Training

PATTERN = "checkpoint_{epoch}_{iteration}.pt"

WHERE = ("iteration_completed", "epoch_completed", "epoch_halted", "completed", "halted")
"""Events at which something is over, so that a run can go on with what comes next."""

Pattern = str | Callable[[State], str]


class Checkpoint:
    """Writes a checkpoint whenever it is called. What goes wrong with the disk is said once, and training goes on.

    Parameters
    ----------
    training : Training
    path : path
        Of the run's folder.
    events : list of str
        At which it is called.
    best : Watched, optional
        What decides whether the checkpoint is the best so far.
    keep : int or None
        How many of the newest stay; None for all.
    pattern : str or callable
    gradients : bool

    Raises
    ------
    CheckpointError
        If the path cannot be a folder, or an argument is not of its kind.
    """

    def __init__(
        self,
        training: Training,
        path: str | os.PathLike[str],
        events: list[str],
        *,
        best: Watched | None = None,
        keep: int | None = 3,
        pattern: Pattern = PATTERN,
        gradients: bool = False,
    ) -> None:
        _check(events, keep, pattern)
        if gradients and not training.step.keep_gradients:
            raise CheckpointError("The loop keeps no gradients to save. Write trainer(..., keep_gradients=True).")
        self.folder = _made(path)
        self.path = os.fspath(path)
        self.name = CHECKPOINT  # not by its path: a run's folder may have moved when it is resumed
        self._training = training
        self._best = best
        self.metric = None if best is None else best.metric
        self._keep = keep
        self._pattern = pattern
        self._gradients = gradients
        self.events = events
        self._written: list[str] = []
        self._said: set[str] = set()

    def __eq__(self, other: object) -> bool:
        """Whether one takes the other's place: at one event a folder has one, else each would take the other's files.

        So a notebook cell that is edited and run again leaves none behind.
        """
        return (
            isinstance(other, Checkpoint)
            and self._shares_folder(other)
            and not set(self.events).isdisjoint(other.events)
        )

    __hash__ = None  # type: ignore[assignment]

    def _shares_folder(self, other: Checkpoint) -> bool:
        return self.folder.resolve() == other.folder.resolve()

    @property
    def _given(self) -> tuple[Any, ...]:
        pattern = self._pattern if isinstance(self._pattern, str) else None  # a lambda that was moved is another one
        return set(self.events), self._best, self._keep, self._gradients, pattern

    def succeed(self, earlier: Checkpoint | None) -> None:
        """Know what the one has written whose place this takes, and the best if it is looked for in the same way."""
        if earlier is None:
            return
        remembered = earlier.state_dict()
        if self._looks_for != earlier._looks_for:
            remembered["best"] = None
        self.load_state_dict(remembered)
        self._said |= earlier._said

    def check_best(self) -> None:
        """Look whether another one's best file would be this one's.

        Raises
        ------
        CheckpointError
        """
        for other in self._beside():
            if self != other and self._best is not None and other._best is not None:
                raise CheckpointError(
                    f"Two checkpoints into {str(self.folder)!r} would share one {BEST}: {other._best_in_words}, and "
                    f"{self._best_in_words}. Leave out best= in one of them, or name another folder: "
                    f"loop.checkpoint({self.path + '_2'!r}, best={self.metric!r})."
                )

    @property
    def _looks_for(self) -> tuple[str, str] | None:
        return None if self._best is None else (self._best.metric, self._best.mode)

    @property
    def _best_in_words(self) -> str:
        return f"best={self.metric!r} at {', '.join(map(repr, self.events))}"

    def replaced(self) -> list[Checkpoint]:
        """Those whose place this takes, that do something else."""
        return [other for other in self._beside() if self == other and self._given != other._given]

    def earlier(self) -> list[str]:
        """The files in its folder that an earlier run has written; none where it is this run's own."""
        if self.folder.resolve() in self._training.folders:
            return []
        return earlier_in(self.folder, PATTERN, self._pattern)

    def _beside(self) -> list[Checkpoint]:
        """Those attached that write into the same folder."""
        others = [other for other in self._training.handlers if isinstance(other, Checkpoint)]
        return [other for other in others if self._shares_folder(other)]

    def __call__(self, state: State) -> None:
        """Write one."""
        if not _is_first_process():
            self._training.folders.add(self.folder.resolve())
            return
        name = self._name(state)
        best = self.state_dict()["best"]
        is_best = self._best is not None and self._best.look(state) == "improved"
        for other in self._beside():
            other.forget(name)  # another one's file of that name is no more
        true = self.state_dict() | {"best": best}
        try:
            self._write(name, is_best, true)
        except BaseException as error:
            self.load_state_dict(true)
            if not isinstance(error, Exception):  # a second Ctrl-C
                raise
            self._warn(  # our own failure never breaks a run
                "written",
                f"No checkpoint could be written to {self.folder} ({type(error).__name__}: {error}); training goes on, "
                "and the next one is tried.",
            )

    def _write(self, name: str, is_best: bool, true: dict[str, Any]) -> None:
        """Write one; `true` is what is so on the disk, step by step, as `state_dict` has it."""
        earlier = self.earlier()
        self._written.append(name)
        self._training.history.flush()  # the rows before it are on disk when it is
        checkpoint, left_out = snapshot(self._training, gradients=self._gradients)
        try:
            save(checkpoint, self.folder, name)
        finally:
            if (self.folder / name).exists():
                true["written"].append(name)
        with self._training.guard.held:  # quick, and what is done is known
            for old in earlier:
                if old != name:
                    (self.folder / old).unlink(missing_ok=True)
            self._training.folders.add(self.folder.resolve())
            link(self.folder, name, LAST)
            if is_best and self._best is not None:
                link(self.folder, name, BEST)
                true["best"] = self._best.state_dict()
            while self._keep is not None and len(true["written"]) > self._keep:
                (self.folder / true["written"][0]).unlink(missing_ok=True)
                del true["written"][0]
            self._written = list(true["written"])
        unsaved = [] if "streams" in self._said else self._training.unsaved_streams()
        self._said.add("streams")  # looked for once
        if unsaved:
            warn(
                f"Checkpoints cannot hold these random streams: {', '.join(unsaved)}. After a resume they draw other "
                "numbers than they would have drawn (said once).",
                CheckpointWarning,
            )
        if left_out:
            self._warn(
                "left out",
                f"Checkpoints leave out {', '.join(left_out)}: numbers, strings, tensors, arrays, and dicts, lists and "
                "tuples of them can be saved.",
            )

    def forget(self, name: str) -> None:
        """A file of that name is not this one's to take away."""
        self._written = [written for written in self._written if written != name]

    def _name(self, state: State) -> str:
        if callable(self._pattern):
            return _checked(self._pattern(state))
        under_way = self._training.course.under_way
        return _formatted(self._pattern, state.epoch, 0 if under_way is None else under_way.done)

    def _warn(self, what: str, said: str) -> None:
        if what not in self._said:
            self._said.add(what)
            warn(f"{said} (said once)", CheckpointWarning)

    def state_dict(self) -> dict[str, Any]:
        """The names of the files that are there, oldest first, and the best value so far."""
        return {"written": list(self._written), "best": None if self._best is None else self._best.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._written = list(state["written"])
        if self._best is not None and state["best"] is not None:
            self._best.load_state_dict(state["best"])


def _check(events: list[str], keep: Any, pattern: Any) -> None:
    begun = [event for event in events if event not in WHERE]
    if begun:
        raise CheckpointError(
            f"A checkpoint is written when something is over, and {begun[0]!r} is no such event; write one of "
            f"{', '.join(WHERE)}."
        )
    if keep is not None:
        whole("keep", keep, least=1, error=CheckpointError)
    if isinstance(pattern, str):
        _formatted(pattern, 0, 0)
    elif not callable(pattern):
        raise CheckpointError(f"pattern is a string such as {PATTERN!r}, or a function of the state; got {pattern!r}.")
    elif not takes_one(pattern):
        raise CheckpointError(not_of_the_state("pattern"))


def _formatted(pattern: str, epoch: int, iteration: int) -> str:
    try:
        return _checked(pattern.format(epoch=epoch, iteration=iteration))
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"pattern has the fields epoch and iteration, as in {PATTERN!r}; got {pattern!r} ({error})."
        ) from error


def _checked(name: Any) -> str:
    if not isinstance(name, str):
        raise CheckpointError(f"pattern returned {described(name)}; the name of a file is wanted, such as 'a.pt'.")
    if name in (LAST, BEST) or name.startswith(".") or not name or Path(name).name != name:
        raise CheckpointError(
            f"A checkpoint cannot be called {name!r}: {LAST!r} and {BEST!r} are the newest and the best one, a leading "
            "dot marks an unfinished file, and a name holds no folder."
        )
    return name


def _made(path: Any) -> Path:
    try:
        folder = Path(path) / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path!r} cannot be a folder ({type(error).__name__}: {error}). Write .checkpoint('runs/a')."
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CheckpointError(f"Nothing may be written into {str(folder)!r}. Name another folder.")
    return folder.absolute()


def _is_first_process() -> bool:
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0

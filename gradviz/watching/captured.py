"""What is captured in a loop that is not ours: from one step of an optimizer to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from gradviz.errors import RecordingWarning, warn
from gradviz.grad.capture.captured import Captured
from gradviz.grad.capture.session import Session
from gradviz.recorder.captured import CaptureRecorder, Ids
from gradviz.recorder.recorder import Outcome
from gradviz.watching.backward import current_pass
from gradviz.watching.tap import Taken


class Seen(NamedTuple):
    """What was captured in an iteration, and what its examples are called."""

    captured: Captured
    ids: Ids | None


class CapturedOfLoop:
    """Captures for a watch.

    Gradients count if they come in a backward pass that reaches a parameter: one that is taken on the way, for a
    penalty, writes into none.

    Parameters
    ----------
    session : Session
    recorder : CaptureRecorder
    example_ids : callable, optional
    """

    def __init__(
        self, session: Session, recorder: CaptureRecorder, example_ids: Callable[[], Sequence[Any]] | None
    ) -> None:
        self._session, self._recorder, self._example_ids = session, recorder, example_ids
        self.newest: Captured | None = None
        self._has_warned = False
        self._wholes: dict[int, Tensor] = {}

    def begin(self, *, is_due: bool) -> None:
        """Hook the models."""
        self._session.attach()
        self._session.is_accepting = True
        if is_due:
            self._session.open(in_any_thread=True)  # which one will train is known from its first step on

    def follow(self) -> None:
        """Modules may have come or gone."""
        self._session.attach()

    def go_on(self, *, is_due: bool) -> None:
        """Look at the iteration to come, if it is recorded."""
        if is_due:
            self._session.open()
        else:
            self._session.shut()

    def rest(self) -> None:
        """Look at nothing more in this iteration."""
        self._session.shut()

    def passed(self, parameters: Mapping[str, Tensor]) -> None:
        """A backward pass that reaches parameters is over."""
        self._session.commit(current_pass())
        if self._session.keep == "example_norms" and self._session.is_on:  # as they are now: the user may clip them
            given = ((id(p), p.grad) for p in parameters.values())
            self._wholes = {key: gradient.detach().clone() for key, gradient in given if gradient is not None}

    def take(self, taken: Taken, parameters: Mapping[str, Tensor]) -> Seen | None:
        """What has come of an iteration that is over; None if it is not recorded."""
        if taken.draft is None:
            self._session.forget()
            return None
        reached = [name for name, p in parameters.items() if id(p) in taken.reached]
        wholes: dict[int, Tensor | None] = {key: whole / taken.loss_scale for key, whole in self._wholes.items()}
        self.newest = self._session.finish(by=taken.loss_scale, reached=reached, wholes=wholes)
        return Seen(self.newest, self._ids())

    def _ids(self) -> Ids | None:
        if self._example_ids is None:
            return None
        try:
            return list(self._example_ids())
        except Exception as error:
            if not self._has_warned:
                self._has_warned = True
                warn(
                    f"example_ids could not be asked ({type(error).__name__}: {error}); norms by example go without "
                    "ids. It gives a sequence, one id for each example of the batch: example_ids=lambda: indices. Said "
                    "once.",
                    RecordingWarning,
                )
            return None

    def write(self, seen: Seen, outcome: Outcome) -> None:
        """Into the history."""
        self._recorder.write(seen.captured, outcome.iteration, outcome.epoch, seen.ids)

    def close(self) -> None:
        """Leave nothing behind."""
        self._session.shut()
        self._session.detach()

"""Where in its data a run is: what it takes to come to the same place again, and to go on there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from gradviz.errors import DataError
from gradviz.loop.data import Epochs
from gradviz.loop.events import Control
from gradviz.loop.random_states import Moment, put_back, random_states
from gradviz.step.streams import unsaved_in


@dataclass
class UnderWay:
    """An epoch that has begun.

    Attributes
    ----------
    before_data : Moment
        How random streams stood before the data was asked for this epoch's batches.
    before_batches : Moment or None
        How they stood before the first of them was; None until then.
    done : int
        Iterations run in it.
    seconds : float
        What it took before a run took it up again.
    is_over : bool
        Whether its last iteration is done, or it was broken off.
    """

    before_data: Moment
    before_batches: Moment | None = None
    done: int = 0
    seconds: float = 0.0
    is_over: bool = False


class Resumption(NamedTuple):
    """Where a run goes on that a checkpoint was written of.

    Attributes
    ----------
    now : Moment
        How random streams stood there.
    epoch : UnderWay or None
        The epoch whose middle it is.
    control : "halt_epoch" or None
        What a handler had said there, and was not done yet.
    """

    now: Moment
    epoch: UnderWay | None = None
    control: Control | None = None


class Course:
    """Asks for the data of each epoch, and notes how random streams stood when it did.

    A resumed run's data is begun anew as it was begun then, the batches that were trained on are passed over, and the
    streams are put where they stood.

    Parameters
    ----------
    beside : callable
        Gives what takes part beside the data and may draw random numbers, by name.
    """

    def __init__(self, beside: Callable[[], Mapping[str, Any]] = dict) -> None:
        self._beside = beside
        self.source: Epochs | None = None
        self.under_way: UnderWay | None = None
        self._resumption: Resumption | None = None
        self._at_first: Moment | None = None
        self._began_s = 0.0

    def moment(self) -> Moment:
        """How random streams stand: the process's, and those of the data and of what takes part beside it."""
        return Moment(random_states(), self.source.streams(self._beside()) if self.source else {})

    def unsaved(self) -> list[str]:
        """The streams that no checkpoint can hold, in words."""
        return unsaved_in(self.source.held(self._beside())) if self.source else []

    def _go_back(self, moment: Moment) -> None:
        assert self.source is not None, "the data was asked"
        self.source.put_back(moment.streams, self._beside())
        put_back(moment.random)

    def resume(self, resumption: Resumption) -> None:
        """Go on there with the next run."""
        self.under_way, self._resumption = None, resumption

    @property
    def middle(self) -> UnderWay | None:
        """The epoch in whose middle the next run goes on."""
        return None if self._resumption is None else self._resumption.epoch

    def ask(self, source: Epochs, epoch: int) -> Iterable[Any]:
        """The batches of an epoch; no iterator is made yet."""
        self.source = source
        resumed = self._resumption
        if resumed is not None:
            self._go_back(resumed.now if resumed.epoch is None else resumed.epoch.before_data)
        self.under_way = UnderWay(self.moment())
        batches = source(epoch)
        if resumed is not None:
            self._at_first = self.moment()
        return batches

    def start(self) -> None:
        """The handlers of "started" have run, which have no part in a run that goes on."""
        if self._at_first is not None:
            self._go_back(self._at_first)
        self._at_first = None
        if self.middle is None:
            self._resumption = None

    def begin(self) -> None:
        """Start the epoch's clock."""
        self._began_s = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """So much of the epoch was a pause."""
        self._began_s += seconds

    @property
    def took_s(self) -> float:
        """Seconds the epoch has taken so far, those before it was taken up too."""
        before = 0.0 if self.under_way is None else self.under_way.seconds
        return before + time.perf_counter() - self._began_s

    def note(self) -> None:
        """The next thing to be made is the iterator of an epoch that begins at its beginning."""
        if self.under_way is not None and self.under_way.before_batches is None and self.source is not None:
            self.under_way.before_batches = self.moment()

    def advance(self) -> None:
        """One iteration more is done."""
        if self.under_way is not None:
            self.under_way.done += 1

    def end(self) -> int:
        """The last iteration is done, or the epoch is broken off; how many there were."""
        if self.under_way is None:
            return 0
        self.under_way.is_over = True
        return self.under_way.done

    def leave(self) -> None:
        """The next epoch comes."""
        self.under_way = None

    def let_go(self) -> None:
        """The run is over, and its data is the caller's alone.

        Whoever waits for the garbage collector with a `DataLoader` of persistent workers waits long: by then the queues
        that tell those to end are closed, and torch waits five seconds for each.
        """
        self.source = None

    def take_up(
        self,
        batches: Iterable[Any],
        epoch: int,
        interruptible: Callable[[Iterable[Any]], Iterator[Any]],
        try_out: Callable[[Any], object],
    ) -> tuple[Iterator[Any], Control | None]:
        """The batches that are left of the epoch in whose middle a run goes on, and what a handler had said there.

        Parameters
        ----------
        batches : iterable
        epoch : int
        interruptible : callable
            Goes through batches, and ends when the user interrupts.
        try_out : callable
            Is given the first batch, and leaves no trace.

        Raises
        ------
        DataError
            If the data has fewer batches than were trained on.
        """
        resumed, source = self._resumption, self.source
        assert resumed is not None, "there is a middle to go on in"
        assert resumed.epoch is not None
        assert source is not None
        if resumed.epoch.before_batches is not None:
            self._go_back(resumed.epoch.before_batches)
        rest = interruptible(batches)
        done, place = resumed.epoch.done, 0
        for batch in islice(rest, done):
            if not place:
                try_out(batch)
            place += 1
        if place < done:
            raise DataError(
                f"The checkpoint was written after {done} iterations of epoch {epoch}, and the data has {place}. "
                "Resume with the data that it was written with; or from a checkpoint of an epoch's end, for others."
            )
        self._go_back(resumed.now)
        self.under_way, self._resumption = resumed.epoch, None
        return rest, resumed.control

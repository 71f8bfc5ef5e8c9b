"""What a loop does at its events: `Handled`, the methods by which handlers are attached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self, TextIO, Unpack

from gradviz.errors import names_nearest_keyword
from gradviz.loop.data import Data
from gradviz.loop.events import Handler, State, named_events
from gradviz.loop.filters import Filter, Filters, Per
from gradviz.loop.handlers.log import Log
from gradviz.loop.steered import Steered
from gradviz.loop.validation import Validation
from gradviz.step.eval_step import EvalStep

VALIDATED_AT = ("epoch_started", "iteration_started", "iteration_completed", "epoch_completed", "epoch_halted")
"""Events that are part of an epoch, which is what the results of a validation belong to."""


class Handled(Steered):
    """Something that trains, and calls functions at its events."""

    @names_nearest_keyword
    def handle_event(
        self,
        event: str | Sequence[str],
        fn: Handler,
        *,
        every: int | None = None,
        after: int | None = None,
        before: int | None = None,
        once: int | None = None,
        first: bool = False,
        when: Callable[[State], bool] | None = None,
        per: Per = "run",
    ) -> Self:
        """Call a function at an event.

        Handlers of an event are called in the order they were attached, until one returns a control word. With
        ``"halt_loop"`` the run is over at once: the epoch it stands in is neither completed nor halted, and its means
        are kept. With ``"halt_epoch"`` the epoch is over, and ``epoch_halted`` fires in place of ``epoch_completed``.
        Returned at ``epoch_completed`` or ``epoch_halted``, where the epoch is over already, ``"halt_epoch"`` does no
        more than end the event. At ``started``, before any epoch, it does what ``"halt_loop"`` does. At ``completed``
        and ``halted`` nothing is left to halt, and all handlers are called.

        Parameters
        ----------
        event : str or list of str
            ``"started"``, ``"epoch_started"``, ``"iteration_started"``, ``"iteration_completed"``,
            ``"epoch_completed"`` or, after a handler's ``"halt_epoch"``, ``"epoch_halted"``; and ``"completed"`` or,
            after ``"halt_loop"``, ``"halted"``, when a run is over. Several in a list; ``"all"`` for each of them.
        fn : callable
            Takes the `State`; returns None, ``"halt_epoch"`` or ``"halt_loop"``, or the loop, as ``lambda state:
            loop.stop()`` does, which says no more than None. When a notebook cell is run again, the function it defines
            anew takes the place of the older one; other functions are added.
        every, after, before, once : int, optional
            At which of the times that the event fires, counted from 1: ``every=3`` the 1st, the 4th, the 7th and so on;
            ``after=3`` from the 4th on; ``before=3`` the 1st and the 2nd; ``once=3`` the 3rd only. All that are given
            must hold.
        first : bool
            The very first time only.
        when : callable, optional
            Takes the `State`, and returns whether to call.
        per : {"run", "epoch"}
            Whether times are counted over the whole run, or, for events of an iteration, anew in each epoch.

        Raises
        ------
        EventError
            If there is no such event, a filter is not of its kind, or a function does not take the state alone.

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> from torch import nn
        >>> loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd")
        >>> loop = loop.handle_event("epoch_completed", lambda state: print(state.epoch, state.iteration))
        >>> loop = loop.handle_event("iteration_completed", lambda state: print("third"), once=3)
        >>> data = [(torch.ones(4, 2), torch.ones(4, 1))]
        >>> loop.run(data, epochs=3).status
        0 0
        1 1
        third
        2 2
        'completed'
        """
        which = Filter(every, after, before, once, first, when, per)
        self._training.handlers.add(event, fn, which, is_users=True)
        return self

    @names_nearest_keyword
    def log(
        self,
        message: Callable[[State], str],
        *,
        event: str | Sequence[str] = "iteration_completed",
        file: TextIO | None = None,
        **filters: Unpack[Filters],
    ) -> Self:
        """Print a line at an event.

        Parameters
        ----------
        message : callable
            Takes the `State`, and returns the line. What it raises, it raises as any handler does.
        event : str or list of str
        file : file, optional
            An open one to write to; without it `sys.stdout`, whatever that is when the line is printed.
        **filters
            Every, after, before, once, first, when and per, as in `handle_event`.

        Raises
        ------
        EventError
            If `message` is no function of the state, there is no such event, or a filter is not of its kind; in the
            run, if what it returns is no string.

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> from torch import nn
        >>> loop = gv.trainer(nn.Linear(2, 1), "mean_squared_error", "sgd")
        >>> loop = loop.log(lambda state: f"iteration {state.iteration} of epoch {state.epoch}", every=2)
        >>> loop.run([(torch.ones(4, 2), torch.ones(4, 1))] * 3, epochs=2).status
        iteration 0 of epoch 0
        iteration 2 of epoch 0
        iteration 4 of epoch 1
        'completed'
        """
        self._attach(event, Log(message, file), filters)
        return self

    @names_nearest_keyword
    def validate(
        self, data: Data, *, event: str | Sequence[str] = "epoch_completed", **filters: Unpack[Filters]
    ) -> Self:
        """Evaluate other data whenever an epoch is completed, or oftener.

        Every metric of the loop becomes ``"validation_" + name`` in `state.metrics` and in `history.epochs`, over all
        examples and by its own accumulator, for handlers attached later and for readers. A loss becomes
        ``"validation_loss"``. An objective becomes ``"validation_objective"``: the model is in eval mode, so it is not
        the loss that is trained by. Metrics of what only training has, such as gradients, are left out and named once.

        Results stay in `state.metrics` until the next validation, or until the epoch is over; `history.epochs` has the
        last ones of each epoch. A loop has one validation: the next call takes the place of the one before, and says
        so, once, if its data is another.

        Parameters
        ----------
        data : iterable of (inputs, targets), or callable
            Gone through each time; a callable is given the epoch's index and returns the iterable.
        event : str or list of str
            One within an epoch: ``validate(data, event="iteration_completed", every=100)``.
        **filters
            Every, after, before, once, first, when and per, as in `handle_event`.

        Raises
        ------
        DataError
            If it is neither, or an iterator that can be read only once.
        EventError
            If there is no such event, or not within an epoch, or a filter is not of its kind.

        Warns
        -----
        MetricWarning
            W0203, once: if the loop had a validation of other data.

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> from torch import nn
        >>> model = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.constant_(model.weight, 0.4)
        >>> data = [(torch.tensor([[1.0], [2.0]]), torch.ones(2, 1))]
        >>> loop = gv.trainer(model, "mean_squared_error", torch.optim.SGD(model.parameters(), lr=0.0))
        >>> loop = loop.metric("mean_absolute_error").validate(data)
        >>> print(loop.run(data).metrics["validation_mean_absolute_error"])
        0.4
        >>> loop.history.epochs.filter(like="validation").round(6).to_dict("records")
        [{'validation_loss': 0.2, 'validation_mean_absolute_error': 0.4}]
        """
        training = self._training
        step = training.step
        events = named_events(event, VALIDATED_AT)
        validation = Validation(EvalStep(step.model, step.objective, step.precision, step.cast), data)
        earlier = training.validation
        self._attach(events, training.validate, filters)
        training.handlers.remove(training.validate, set(VALIDATED_AT).difference(events))
        training.validation = validation
        if earlier is not None:
            validation.succeed(earlier)
        return self

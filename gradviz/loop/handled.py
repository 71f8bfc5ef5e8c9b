"""What a loop does at its events: `Handled`, the methods by which handlers are attached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from gradviz.errors import names_nearest_keyword
from gradviz.loop.data import Data
from gradviz.loop.events import EVENTS, Handler, State
from gradviz.loop.filters import Filter, Per
from gradviz.loop.training import Training
from gradviz.loop.validation import Validation
from gradviz.step.eval_step import EvalStep


class Handled:
    """Something that trains, and calls functions at its events."""

    _training: Training

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

        Parameters
        ----------
        event : str or list of str
            ``"started"``, ``"epoch_started"``, ``"iteration_started"``, ``"iteration_completed"``,
            ``"epoch_completed"`` or, after a handler's ``"halt_epoch"``, ``"epoch_halted"``; and ``"completed"`` or,
            after ``"halt_loop"``, ``"halted"``, when a run is over. Several in a list; ``"all"`` for each of them.
        fn : callable
            Takes the `State`; returns None, ``"halt_epoch"`` or ``"halt_loop"``. When a notebook cell is run again, the
            function it defines anew takes the place of the older one; other functions are added.
        every, after, before, once : int, optional
            At which of the times that the event fires: the 1st, the (every + 1)-th and so on; later than the
            so-manieth; earlier; at that one only. All that are given must hold.
        first : bool
            The very first time only.
        when : callable, optional
            Takes the `State`, and returns whether to call.
        per : {"run", "epoch"}
            Whether times are counted over the whole run, or, for events of an iteration, anew in each epoch.

        Raises
        ------
        EventError
            If there is no such event, or a filter is not of its kind.

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
        chosen = Filter(every, after, before, once, first, when, per)
        for name in _events(event):
            self._training.handlers.add(name, fn, chosen)
        return self

    def validate(self, data: Data) -> Self:
        """Evaluate other data whenever an epoch is completed; once more, and this data takes the place of the earlier.

        Every metric of the loop becomes ``"validation_" + name`` in `state.metrics` and in `history.epochs`, over all
        examples and by its own accumulator, for handlers attached later and for readers. A loss becomes
        ``"validation_loss"``. An objective becomes ``"validation_objective"``: the model is in eval mode, so it is not
        the loss that is trained by. Metrics of what only training has, such as gradients, are left out and named once.

        Parameters
        ----------
        data : iterable of (inputs, targets), or callable
            Gone through once an epoch; a callable is given the epoch's index and returns the iterable.

        Raises
        ------
        DataError
            If it is neither, or an iterator that can be read only once.

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
        evaluation = EvalStep(step.model, step.objective, step.precision, step.cast)
        training.validation = Validation(evaluation, data)
        training.handlers.add("epoch_completed", training.validate)
        return self


def _events(event: str | Sequence[str]) -> Sequence[str]:
    if event == "all":
        return EVENTS
    return [event] if isinstance(event, str) else event

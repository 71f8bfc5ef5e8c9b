"""What a metric or a schedule decides about a run: `Steered`, the methods that stop it and set its learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, Unpack

from torch.optim.lr_scheduler import LRScheduler

from gradviz.errors import names_nearest_keyword
from gradviz.loop.events import ENDS, Handler, named_events
from gradviz.loop.filters import Filter, Filters
from gradviz.loop.handlers.early_stop import EarlyStop
from gradviz.loop.handlers.monitor import Mode, Monitor, Watched
from gradviz.loop.handlers.plateau import Plateau
from gradviz.loop.handlers.schedule import Make, Schedule
from gradviz.loop.training import Training


class Steered:
    """Something that trains, and goes by what comes of it."""

    _training: Training

    def _attach(self, event: str | Sequence[str], handler: Handler, filters: Filters) -> None:
        self._training.handlers.add(event, handler, Filter(**filters))

    @names_nearest_keyword
    def monitor(
        self,
        metric: str,
        fn: Handler,
        *,
        mode: Mode = "min",
        patience: int = 3,
        min_delta: float = 0.0,
        event: str | Sequence[str] = "epoch_completed",
        **filters: Unpack[Filters],
    ) -> Self:
        """Call a function when a metric no longer improves.

        It is called at the event after `patience` events in a row without an improvement, and after as many again. The
        best value stays what it was.

        Parameters
        ----------
        metric : str
            A key of `state.metrics`. Those of a validation are there for what is attached after `validate`.
        fn : callable
            Takes the `State`; returns None, ``"halt_epoch"`` or ``"halt_loop"``. The same function for the same metric
            once more takes the place of the earlier.
        mode : {"min", "max"}
            Whether lower or higher is better.
        patience : int
            How many events in a row without an improvement are borne.
        min_delta : float
            It improves by more than this or not at all. NaN never improves, nor does an equal value.
        event : str or list of str
        **filters
            Every, after, before, once, first, when and per, as in `handle_event`.

        Raises
        ------
        ValueError, EventError
            If an argument is not of its kind.
        MetricError
            In the run, at the first event, if there is no such metric.

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> from torch import nn
        >>> loop = gv.trainer(nn.Linear(1, 1), "mean_squared_error", "sgd")
        >>> loop = loop.metric(lambda prediction, targets: 1.0, "constant")
        >>> loop = loop.monitor("constant", lambda state: print("no better since", state.epoch - 2), patience=1)
        >>> loop.run([(torch.ones(4, 1), torch.ones(4, 1))], epochs=5).status
        no better since 0
        no better since 2
        'completed'
        """
        self._attach(event, Monitor(Watched(metric, mode, patience, min_delta), fn), filters)
        return self

    @names_nearest_keyword
    def early_stop(
        self,
        metric: str,
        *,
        patience: int = 3,
        mode: Mode = "min",
        min_delta: float = 0.0,
        restore_best: bool = False,
        event: str | Sequence[str] = "epoch_completed",
        **filters: Unpack[Filters],
    ) -> Self:
        """Halt the loop when a metric no longer improves.

        Parameters
        ----------
        metric, mode, patience, min_delta
            As in `monitor`: with ``patience=2`` the third event in a row without an improvement ends the run. For the
            same metric once more, it takes the place of the earlier, and knows what that has seen.
        restore_best : bool
            Keep a copy of the parameters and buffers whenever the metric improves, in memory, and put the last one back
            when the run is over, completed or halted. A model with NaN or infinite parameters is never the best.
            `state.restored_epoch` says of which epoch it is then, while `state.metrics` stay those of the last one.
            Handlers of ``"completed"`` and ``"halted"`` that are attached later see the model so. The optimizer's
            moments stay what they are. After an interrupt or an error the model stays as it was then.
        event : str or list of str
        **filters
            Every, after, before, once, first, when and per, as in `handle_event`.

        Raises
        ------
        ValueError, EventError
            If an argument is not of its kind.
        MetricError
            In the run, at the first event, if there is no such metric.
        ModelError
            When the run is over, if parameters or buffers have joined or left the model since the best.

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> from torch import nn
        >>> model = nn.Linear(1, 1, bias=False)
        >>> _ = nn.init.constant_(model.weight, 1.0)
        >>> diverges = torch.optim.SGD(model.parameters(), lr=2.0)
        >>> loop = gv.trainer(model, "mean_squared_error", diverges).early_stop("loss", patience=2, restore_best=True)
        >>> loop.run([(torch.ones(1, 1), torch.zeros(1, 1))], epochs=10)
        State: halted, iteration 4, epoch 4; loss 729
        >>> model.weight.item(), loop.state.restored_epoch  # at the end of the epoch with the least loss
        (-3.0, 0)
        """
        events = named_events(event)
        best_of = self._training.step if restore_best else None
        stop = EarlyStop(Watched(metric, mode, patience, min_delta, keeps_model=restore_best), events, best_of)
        self._attach(events, stop, filters)
        self._training.handlers.add(ENDS, stop)
        return self

    @names_nearest_keyword
    def reduce_lr_on_plateau(
        self,
        metric: str,
        *,
        factor: float = 0.1,
        patience: int = 3,
        mode: Mode = "min",
        min_delta: float = 0.0,
        min_lr: float = 0.0,
        cooldown: int = 0,
        event: str | Sequence[str] = "epoch_completed",
        **filters: Unpack[Filters],
    ) -> Self:
        """Reduce the learning rate of every parameter group when a metric no longer improves.

        By `torch.optim.lr_scheduler.ReduceLROnPlateau`, on the optimizer that the loop trains with.

        Parameters
        ----------
        metric, mode, patience, min_delta
            As in `monitor`. For the same metric once more, it takes the place of the earlier, and knows what that has
            seen.
        factor : float
            What learning rates are multiplied by, between 0 and 1.
        min_lr : float
            They fall no further.
        cooldown : int
            For so many events after a reduction nothing is counted.
        event : str or list of str
        **filters
            Every, after, before, once, first, when and per, as in `handle_event`.

        Raises
        ------
        ValueError, EventError
            If an argument is not of its kind.
        ScheduleError
            If the optimizer has no learning rate.
        MetricError
            In the run, at the first event, if there is no such metric.

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> from torch import nn
        >>> model = nn.Linear(1, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
        >>> loop = gv.trainer(model, "mean_squared_error", optimizer).metric(lambda i: i, "worse", fields=["i"])
        >>> loop = loop.reduce_lr_on_plateau("worse", factor=0.5, patience=2)
        >>> loop = loop.log(lambda state: str(optimizer.param_groups[0]["lr"]), event="epoch_completed")
        >>> loop.run([(torch.ones(4, 1), torch.ones(4, 1))], epochs=5).status
        10.0
        10.0
        10.0
        5.0
        5.0
        'completed'
        """
        watched = Watched(metric, mode, patience, min_delta)
        optimizer = self._training.step.optimizer
        self._attach(event, Plateau(watched, optimizer, factor=factor, cooldown=cooldown, min_lr=min_lr), filters)
        return self

    @names_nearest_keyword
    def lr_schedule(
        self,
        make: Make | LRScheduler,
        *,
        event: str | Sequence[str] = "epoch_completed",
        **filters: Unpack[Filters],
    ) -> Self:
        """Step one of torch's learning rate schedulers.

        It is made now, and steps at each of the events, also after a training step that was skipped. Where the events
        come before the first training step, the first learning rate is left out, and torch says so.

        Parameters
        ----------
        make : callable or torch.optim.lr_scheduler.LRScheduler
            A factory, which is given the loop's optimizer, such as ``partial(StepLR, step_size=2)``; or a scheduler of
            an optimizer of your own, which the loop was made with. Different kinds act together; the same kind once
            more takes the place of the earlier, and goes on where that stands if all of it is the same.
        event : str or list of str
        **filters
            Every, after, before, once, first, when and per, as in `handle_event`.

        Raises
        ------
        ScheduleError
            If it is no schedule, or one of another optimizer, or follows a metric (`reduce_lr_on_plateau` does).
        EventError
            If there is no such event, or a filter is not of its kind.

        Examples
        --------
        >>> import torch, gradviz as gv
        >>> from functools import partial
        >>> from torch import nn
        >>> loop = gv.trainer(nn.Linear(1, 1), "mean_squared_error", partial(torch.optim.SGD, lr=1.0))
        >>> loop = loop.lr_schedule(partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5))
        >>> loop = loop.metric(lambda kept: kept.optimizer.param_groups[0]["lr"], "lr", fields=["optimizer_state"])
        >>> _ = loop.run([(torch.ones(4, 1), torch.ones(4, 1))] * 2, epochs=3)
        >>> loop.history.metrics["lr"].tolist()
        [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
        """
        self._attach(event, Schedule(make, self._training.step.optimizer), filters)
        return self

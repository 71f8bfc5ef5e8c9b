"""`trainer`: a training loop from a model, a loss and an optimizer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn

from gradviz.errors import names_nearest_keyword
from gradviz.grad.capture.capture import Capture
from gradviz.history.history import History
from gradviz.history.run.keeper import IfExists
from gradviz.loop.events import OnError
from gradviz.loop.loop import Loop
from gradviz.loop.turns import check_not_trained
from gradviz.recorder.of_step import StepRecorder
from gradviz.recorder.settings import Record, Settings
from gradviz.step.objective import Objective
from gradviz.step.policy import Policy
from gradviz.step.train_step import train_step


@names_nearest_keyword
def trainer(
    model: nn.Module,
    loss: Any,
    optimizer: Any,
    *,
    objective: Objective | None = None,
    loss_scale: Any = "identity",
    policy: Policy | None = None,
    keep_gradients: bool = False,
    accumulate: int = 1,
    clip: float | tuple[str, float] | None = None,
    strict: bool = True,
    seed: int | None = None,
    capture: Capture | None = None,
    record: Record = "all",
    stages: Iterable[str] = ("backward", "clipped"),
    every: int = 1,
    histograms_every: int | None = 100,
    budget: float | None = None,
    save_to: str | os.PathLike[str] | None = None,
    if_exists: IfExists = "error",
    flush_interval_s: float = 2.0,
    memory_limit: int | str = "512MB",
    example_ids: Callable[[Any], Sequence[Any]] | None = None,
    on_error: OnError = "raise",
    log: int = 50,
) -> Loop:
    """Build a training loop that records every gradient.

    Parameters
    ----------
    model, loss, optimizer, objective, loss_scale, policy, keep_gradients, accumulate, clip, strict, seed, capture
        As `train_step` has them: it says what each takes, and what an objective is. With ``accumulate=k`` an iteration
        takes k batches of the data, and the last of an epoch what is left. What is captured is written down:
        statistics in ``history.activations``, norms by example in ``history.examples``, and tensors for
        ``history.tensors(name)``, on disk with `save_to`.
    record : {"all", "norms", None}
        What each iteration's row holds of every gradient: all statistics; the norm and the counts of NaN and infinite
        entries, for less time; or nothing, for almost none. The loss, the metrics and the events are there anyway, and
        what was not recorded is missing, with the state ``"not_recorded"`` where there is no number at all.
    stages : list of str
        When gradients are measured: ``"backward"``, as the backward pass gave them, accumulated and unscaled; and where
        asked for, ``"clipped"``, as the optimizer gets them, if `clip` made a difference; ``"update"``, how far the
        optimizer moved each parameter, with the parameter itself before it as the stage ``"weight"``: a copy of all
        parameters is held during the step then. ``history.update_ratios`` divides the two.
    every : int
        Of so many iterations one is recorded, the first of them first, and the last one of each run; the others have
        their loss and metrics, and ``"not_recorded"`` as the state of each gradient. A run that ends before its plan
        says so, by `early_stop`, `Loop.stop`, Ctrl-C, an error, or because its data gives out, has its last iteration
        measured from the gradients that lie in ``.grad`` still: with `clip` at the stage ``"clipped"`` alone, and not
        at all where others may have written into them (handlers of your own, code between the epochs of a `stream`, an
        optimizer that is not torch's), where the step was skipped, or with LBFGS. ``keep_gradients=True`` has them in
        any case.
    histograms_every : int, optional
        Iterations from one histogram of every gradient to the next, in ``history.histograms``, with what fewer bits
        would make of its entries in ``history.precision``; None for neither. ``record="norms"`` has neither.
    budget : float, optional
        What recording may cost at most, as a share of the iteration without it: 0.05 for 5 %. Iterations are left out,
        as `every` does, to stay under it; `Loop.overhead` tells what it costs.
    save_to : path or address, optional
        The folder in which the history is kept, while it is recorded and for good: ``"runs/a"``, or an fsspec address
        such as ``"s3://bucket/runs/a"``. ``gv.History.open`` reads it, and any reader of Parquet. It may be the folder
        of a `checkpoint` as well.
    if_exists : {"error", "resume", "overwrite"}
        What becomes of an earlier run that lies where this one will write: its rows in `save_to`, its checkpoints in
        the folder of a `checkpoint`. The first run raises a LoopError or a HistoryError before anything has moved; or
        it goes on by itself from the furthest checkpoint there, and begins where there is none, which a
        RecordingWarning says if there are rows; or the old rows go
        away, and the old checkpoints once the first new one is written. What this loop has written itself, or was
        resumed from, is its own.
    flush_interval_s : float
        Seconds of the history that a killed process may lose at most.
    memory_limit : int or str
        What the history's rows may take in memory: bytes, or text such as ``"512MB"``. Older ones are read from disk,
        from a temporary folder if there is no `save_to`. A frame that would take more than that is refused.
    example_ids : callable, optional
        Gives the ids of a batch's examples, in their order, from the batch as the data has it; they are written down
        beside the norms by example. Batches may have more than inputs and targets then, and the model does not see the
        rest: ``example_ids=lambda batch: batch[2]``.
    on_error : {"raise", "warn"}
        What an error in one of your own handlers or metrics does: end the run, named with event and iteration, or
        warn and go on.
    log : int
        In a terminal, iterations from one refresh of the progress bar to the next; in a log file, from one line to the
        next, with one more after each epoch that was validated; 0 for neither. In a notebook the heatmap has a bar of
        its own, whatever `log` is.

    Returns
    -------
    Loop

    Raises
    ------
    ModelError, LossError, OptimizerError, PolicyError, LossScaleError, DataError, UnknownKeywordError
        Before anything has moved.

    Examples
    --------
    >>> import torch, gradviz as gv
    >>> from torch import nn
    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.constant_(model.weight, 0.8)
    >>> loop = gv.trainer(model, "mean_squared_error", torch.optim.SGD(model.parameters(), lr=0.1))
    >>> data = [(torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1))]
    >>> loop.run(data, epochs=3)
    State: completed, iteration 3, epoch 3; loss 0.1
    >>> loop.history.norms["weight"].tolist()
    [4.0, 2.0, 1.0]
    >>> loop = gv.trainer(model, "mean_squared_error", "sgd", record="norms")
    >>> loop.run(data).status
    'completed'
    >>> loop.history.gradients[["state", "norm", "mean", "nan"]].to_dict("records")
    [{'state': 'ok', 'norm': 0.5, 'mean': nan, 'nan': 0}]
    """
    settings = Settings(record, stages, every, budget, histograms_every)
    if on_error not in ("raise", "warn"):
        raise ValueError(f'on_error is "raise" or "warn"; got {on_error!r}.')
    history = History(
        memory_limit=memory_limit, save_to=save_to, if_exists=if_exists, flush_interval_s=flush_interval_s, seed=seed
    )
    if policy is not None:
        check_not_trained(model, "a policy converts it", "End that first: for old in gv.running(): old.stop().wait()")
    step = train_step(
        model,
        loss,
        optimizer,
        objective=objective,
        loss_scale=loss_scale,
        policy=policy,
        keep_gradients=keep_gradients,
        accumulate=accumulate,
        clip=clip,
        strict=strict,
        seed=seed,
        capture=capture,
    )
    recorder = StepRecorder(step, history, settings)
    return Loop(step, recorder, if_exists=if_exists, example_ids=example_ids, on_error=on_error, log=log)

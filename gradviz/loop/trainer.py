"""`trainer`: a training loop from a model, a loss and an optimizer."""

from __future__ import annotations

from typing import Any

from torch import nn

from gradviz.errors import names_nearest_keyword
from gradviz.loop.events import OnError
from gradviz.loop.loop import Loop
from gradviz.step.objective import Objective, as_objective
from gradviz.step.train_step import TrainStep


@names_nearest_keyword
def trainer(
    model: nn.Module,
    loss: Any,
    optimizer: Any,
    *,
    objective: Objective | None = None,
    keep_gradients: bool = False,
    on_error: OnError = "raise",
) -> Loop:
    """Build a training loop that records every gradient.

    Parameters
    ----------
    model : torch.nn.Module
        Trained in place, exactly as plain torch would.
    loss : str or callable
        A name such as ``"cross_entropy"`` (`gradviz.step.losses` lists them, and what each takes: binary ones take
        logits), a function or module of ``(prediction, targets)``, or an objective of
        ``(forward, model_state, inputs, targets)`` that returns ``(loss, output)``.
    optimizer : str, callable or torch.optim.Optimizer
        A name such as ``"adam"`` (torch's defaults), a factory such as ``partial(torch.optim.SGD, lr=0.1)``, or an
        optimizer over the model's parameters.
    objective : callable, optional
        An objective whose signature does not tell that it is one; then `loss` is None.
    keep_gradients : bool
        Keep each step's gradients in the step state, for metrics and handlers.
    on_error : {"raise", "warn"}
        What an error in one of your own handlers or metrics does: end the run, named with event and iteration, or
        warn and go on.

    Returns
    -------
    Loop

    Raises
    ------
    ModelError, LossError, OptimizerError, UnknownKeywordError
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
    """
    if on_error not in ("raise", "warn"):
        raise ValueError(f'on_error is "raise" or "warn"; got {on_error!r}.')
    step = TrainStep(model, as_objective(loss, objective), optimizer, keep_gradients=keep_gradients)
    return Loop(step, on_error=on_error)

"""`evaluator`: what a model is worth on data, without training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import nn

from gradviz.errors import MetricError, names_nearest_keyword
from gradviz.loop.data import Data, Epochs
from gradviz.loop.events import State
from gradviz.loop.metrics.function_metric import LossMetric
from gradviz.loop.metrics.measured import Measured
from gradviz.loop.metrics.metric import Metric, complete
from gradviz.loop.turns import check_not_trained
from gradviz.step.eval_step import EvalStep
from gradviz.step.model_state import check_module
from gradviz.step.objective import Objective, WrappedLoss, as_objective
from gradviz.step.policy import Policy, as_policy
from gradviz.step.precision import Precision
from gradviz.step.step_state import StepState


class Evaluator(Measured):
    """An evaluation of a model by metrics. Made by `evaluator`; `metric` changes it and returns it."""

    def __init__(self, step: EvalStep) -> None:
        self._step = step
        self._followed = {metric.name: metric for metric in loss_metrics(step.objective)}

    @property
    def _metrics(self) -> dict[str, Metric]:
        return self._followed

    def _check_fields(self, metric: Metric) -> None:
        if "loss" in metric.fields and self._step.objective is None:
            raise MetricError(
                f"The metric {metric.name!r} asks for 'loss', and there is none here. Write gv.evaluator(model, loss)."
            )
        metric.check(self._step.fields)

    def __repr__(self) -> str:
        return f"Evaluator of {type(self._step.model).__name__}: {', '.join(self._metrics) or 'no metrics'}"

    @names_nearest_keyword
    def run(self, data: Data) -> State:
        """Evaluate all batches; the model runs in eval mode, and its train flags are as before afterwards.

        Parameters
        ----------
        data : iterable of (inputs, targets), or callable
            A callable is given 0 and returns the iterable.

        Returns
        -------
        State
            With `metrics` over all batches, `iteration` the number of them, and the last one's `step_state`.

        Raises
        ------
        DataError
            If there is no batch, or one is no pair.
        LoopError
            If a loop trains the model in another thread, and is not paused.
        """
        check_not_trained(
            self._step.model,
            "an evaluation would put it into eval mode under that",
            "Evaluate between loop.pause() and loop.unpause(), or a copy.deepcopy(model) made there; "
            "loop.validate(data) evaluates after each epoch.",
            unless_paused=True,
        )
        source = Epochs(data, 1)
        metrics = [metric.fresh() for metric in self._metrics.values()]
        state = State()
        for step_state in evaluated(self._step, source(0), metrics):
            state.step_state = step_state
            state.iteration += 1
        if not state.iteration:
            raise source.empty(0)
        state.metrics, state.status = complete(metrics), "completed"
        return state


def evaluated(step: EvalStep, batches: Iterable[Any], metrics: Sequence[Metric]) -> Iterator[StepState]:
    """Evaluate batch by batch; each one's state is given once the metrics have taken it in."""
    for place, batch in enumerate(batches):
        step_state = step(batch)
        for metric in metrics:
            try:
                metric(step_state)
            except Exception as error:
                error.add_note(f"In the metric {metric.name!r}, at batch {place} of an evaluation.")
                raise
        yield step_state


def loss_metrics(objective: Objective | None) -> list[Metric]:
    """The loss of an evaluation, if it has one; an objective in eval mode is not the loss that is trained by."""
    if objective is None:
        return []
    return [LossMetric(objective, "loss" if isinstance(objective, WrappedLoss) else "objective")]


@names_nearest_keyword
def evaluator(
    model: nn.Module,
    loss: Any = None,
    *,
    objective: Objective | None = None,
    policy: Policy | None = None,
) -> Evaluator:
    """Build an evaluation of a model.

    Parameters
    ----------
    model : torch.nn.Module
    loss : str or callable, optional
        As `trainer` takes it. A loss is reported as ``"loss"``; an objective as ``"objective"``, since in eval mode it
        is not what training minimizes. Each is the mean over examples, or over the targets that
        it does not ignore.
    objective : callable, optional
        An objective whose signature does not tell that it is one.
    policy : Policy, optional
        The dtypes to compute in and to give, as in training; the parameters stay as they are.

    Returns
    -------
    Evaluator

    Raises
    ------
    ModelError, LossError, PolicyError

    Examples
    --------
    >>> import torch, gradviz as gv
    >>> from torch import nn
    >>> model = nn.Linear(1, 2)
    >>> data = [(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1]))] * 3
    >>> state = gv.evaluator(model, "cross_entropy").metric("accuracy").run(data)
    >>> list(state.metrics), state.iteration
    (['loss', 'accuracy'], 3)
    """
    check_module(model)
    given = loss is not None or objective is not None
    evaluated_by = as_objective(loss, objective) if given else None
    return Evaluator(EvalStep(model, evaluated_by, None if policy is None else Precision(as_policy(policy), model)))

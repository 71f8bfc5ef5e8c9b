"""A loop as plain values, and back: what a checkpoint holds.

===================  ==================================================================================================
key                  value
===================  ==================================================================================================
format               ``"gradviz checkpoint"``
format_version       1
versions             of gradviz and torch, by which it was written
model                parameters, persistent buffers and extra state, as ``model.load_state_dict`` takes them
optimizer            as ``optimizer.load_state_dict`` takes it
step                 the rest of what `TrainStep.state_dict` gives: float32 copies, what is frozen, the own stream ...
step_state           i, y_true, y_pred, loss, loss_scale_state, and what handlers have put there
state                iteration, epoch, metrics, event counts and times, as `State` has them
metrics              what each has come to in this epoch
validation           its newest results in this epoch, and how the random streams of its data stand
handlers             what they remember
random               how the random streams of torch, Python and numpy stand, and those of what takes part
epoch                of one that is not over: how many iterations are done, and how the streams stood at its beginning
gradients            with ``gradients=True``: of the parameters that were reached
form                 the keys and kinds of all that, by which a part that is missing or changed is seen
===================  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

import torch

from gradviz.errors import CheckpointWarning, warn
from gradviz.grad.algebra import Grad
from gradviz.loop.checkpoints.files import FORMAT, VERSION
from gradviz.loop.checkpoints.form import with_form
from gradviz.loop.course import Resumption, UnderWay
from gradviz.loop.plain import Plain, from_plain, parts_from_plain
from gradviz.loop.random_states import Moment
from gradviz.loop.training import Training
from gradviz.step.saved import step_state
from gradviz.step.step_state import StepState

CHECKPOINT = "checkpoint"
"""What the handler is called that writes them."""

_ON_THEIR_OWN = ("model_state", "optimizer_state", "gradients", "captured")  # what was captured is in the history
_COUNTS = ("event_counts", "epoch_event_counts")


def snapshot(training: Training, *, gradients: bool = False) -> tuple[dict[str, Any], list[str]]:
    """What a checkpoint of now holds, and what had to be left out."""
    plain, with_device = Plain(), Plain(keeps_device=True)
    step, now = training.step.state_dict(), training.state.step_state
    made = {
        "format": FORMAT,
        "format_version": VERSION,
        "versions": {"gradviz": metadata.version("gradviz-jupyter"), "torch": str(torch.__version__)},
        "model": plain.parts(step.pop("model"), "model"),
        "optimizer": plain.parts(step.pop("optimizer"), "optimizer"),
        "step": plain(step, "step"),
        "step_state": with_device({key: value for key, value in now.items() if key not in _ON_THEIR_OWN}, "step_state"),
        "state": plain(_counted(training), "state"),
        "metrics": {name: plain(metric.state_dict(), name) for name, metric in training.metrics.items()},
        "validation": plain(_validation(training), "validation"),
        "handlers": with_device(training.handlers.state_dict(), "handlers"),
        "random": plain(training.course.moment()._asdict(), "random"),
        "epoch": plain(_under_way(training), "epoch"),
    }
    if gradients:
        made["gradients"] = plain.parts(_reached(now["gradients"]), "gradients")
    return with_form(made), plain.left_out + with_device.left_out


def restore(training: Training, saved: Mapping[str, Any]) -> None:
    """Put a loop where the one of the checkpoint was.

    Raises
    ------
    CheckpointError
        Before anything has moved, if it is of another model, optimizer or loss scale.
    MetricError
        Likewise, if a metric of an epoch that is not over was accumulated otherwise.

    Warns
    -----
    CheckpointWarning
        W0207, with what the loop has no place for.
    """
    step, state = training.step, training.state
    under_way = from_plain(saved["epoch"])
    metrics = parts_from_plain(saved["metrics"]) if under_way is not None else {}  # an epoch begins by forgetting
    for name in metrics.keys() & training.metrics.keys():
        training.metrics[name].fresh().load_state_dict(metrics[name])  # refuses before anything has moved
    whole = {name: parts_from_plain(saved[name]) for name in ("model", "optimizer")}
    step.load_state_dict({**from_plain(saved["step"]), **whole})
    leaves = from_plain(saved["step_state"])
    state.step_state = step_state(step, leaves, saved.get("gradients")) if leaves else StepState()
    counted = from_plain(saved["state"])
    for name in _COUNTS:
        getattr(state, name).update(counted[name])
    state.iteration, state.epoch, state.epoch_iteration = (
        counted[name] for name in ("iteration", "epoch", "epoch_iteration")
    )
    state.metrics, state.times, state.status = counted["metrics"], counted["times"], "idle"
    training.iterations_run = counted["iteration"]
    unknown = training.handlers.load_state_dict(from_plain(saved["handlers"]))
    nowhere = [key.rpartition(" #")[0] for key in unknown if CHECKPOINT not in key]  # nobody has to write more of them
    for name, metric in training.metrics.items():
        if name in metrics:
            metric.load_state_dict(metrics[name])
        else:
            metric.start()  # what it has seen is of later iterations
    nowhere += [f"the metric {name!r}" for name in metrics if name not in training.metrics]
    validation = from_plain(saved["validation"]) or {}
    training.validated = validation.pop("results", {})
    if training.validation is not None and validation:
        training.validation.load_state_dict(validation)
    elif validation:
        nowhere.append("a validation")
    now = Moment(**from_plain(saved["random"]))
    training.resume(Resumption(now, *_taken_up(under_way)))
    if nowhere:
        warn(
            f"The checkpoint remembers {', '.join(nowhere)}, which this loop does not have. Attach what it had before "
            "resume.",
            CheckpointWarning,
        )


def _counted(training: Training) -> dict[str, Any]:
    """The loop's state as it is once the event is over."""
    state, under_way = training.state, training.course.under_way
    is_over = under_way is not None and under_way.is_over
    took = {state.epoch: training.course.took_s} if is_over else {}
    return {
        "iteration": training.iterations_run,
        "epoch": state.epoch + is_over,
        "epoch_iteration": state.epoch_iteration,
        "metrics": state.metrics,
        "times": state.times | took,
        **{name: getattr(state, name) for name in _COUNTS},
    }


def _validation(training: Training) -> dict[str, Any] | None:
    validation = training.validation
    return None if validation is None else {"results": training.validated, **validation.state_dict()}


def _under_way(training: Training) -> dict[str, Any] | None:
    under_way = training.course.under_way
    if under_way is None or under_way.is_over:
        return None
    return {
        "before_data": under_way.before_data._asdict(),
        "before_batches": None if under_way.before_batches is None else under_way.before_batches._asdict(),
        "done": under_way.done,
        "seconds": training.course.took_s,
        "control": training.handlers.said if training.handlers.said == "halt_epoch" else None,
    }


def _taken_up(saved: dict[str, Any] | None) -> tuple[UnderWay | None, Any]:
    if saved is None:
        return None, None
    control = saved.pop("control")
    moments = {name: saved.pop(name) for name in ("before_data", "before_batches")}
    made = {name: None if moment is None else Moment(**moment) for name, moment in moments.items()}
    return UnderWay(**made, **saved), control  # type: ignore[arg-type]


def _reached(gradients: Grad[Any]) -> dict[str, Any]:
    return {name: leaf for name, leaf in gradients.given.items() if leaf is not None}

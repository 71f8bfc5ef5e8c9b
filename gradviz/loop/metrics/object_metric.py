"""An object that accumulates by itself, as those of torchmetrics do: by update, compute and reset."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from gradviz.errors import CheckpointWarning, MetricError, warn
from gradviz.loop.metrics.metric import Fields, Metric
from gradviz.loop.plain import Plain, parts_from_plain
from gradviz.step.batch import tensors_of
from gradviz.step.step_state import StepState

_REFRESHED = 64
"""What is shown is computed anew when the epoch has grown by one part in so many."""

_HINT = (
    ' Give the object what makes compute() return one number, such as average="macro", or follow one metric at a time.'
)


@runtime_checkable
class Accumulating(Protocol):
    """What is asked of such an object; torchmetrics need not be installed."""

    def update(self, *arguments: Any) -> Any:
        """Take in a batch."""

    def compute(self) -> Any:
        """What the batches since the last reset come to."""

    def reset(self) -> Any:
        """Forget them."""


@runtime_checkable
class _Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class ObjectMetric(Metric):
    """A metric that accumulates by itself.

    What an epoch comes to is the object's own `compute`, of batches that are not finite too. It stays as it was given:
    of two copies, which go where the prediction is, one sees the whole epoch and the other each batch alone.

    While the epoch lasts, what is shown is computed anew with every batch up to the 64th, and whenever the epoch has
    grown by a 64th from then on: one that keeps every prediction takes the longer the longer the epoch is, and to
    compute it at every batch would cost the square of that.

    Raises
    ------
    MetricError
        If it is a class, or holds several metrics, or cannot be copied.
    """

    def __init__(self, name: str, of: Accumulating, fields: Iterable[str]) -> None:
        super().__init__(name, fields)
        _check(of)
        self._of = of
        self._has_said = False
        self.start()

    def start(self) -> None:
        """Forget what came before: an epoch begins."""
        self._epoch, self._batch = _copied(self._of), _copied(self._of)
        self._device: torch.device | None = None
        self._n = 0
        self._own = math.nan
        self._value: float | None = math.nan  # None where it is not computed yet
        self._shown, self._shown_at = math.nan, 0

    def is_same(self, other: Metric) -> bool:
        """Whether `other` has an object of the same class and options."""
        return (
            isinstance(other, ObjectMetric)
            and self.fields == other.fields
            and type(self._of) is type(other._of)
            and _options(self._of) == _options(other._of)
        )

    def try_out(self, state: StepState) -> None:
        """Be computed by copies that are thrown away."""
        self.fresh()(state)

    @torch.no_grad()
    def _take(self, parts: list[Fields]) -> float:
        self._own = math.nan
        self._batch.reset()
        for part in parts:
            self._move(part)
            for each in (self._batch, self._epoch):  # what the first refuses never reaches the second
                self._called(each.update, part)
        self._n += 1
        self._value = math.nan  # unless it can be computed
        try:
            self._own = self._number(self._batch.compute(), _HINT)
            self._value = None
        except MetricError:
            raise
        except ValueError:  # of one example alone there may be no value, as of R2Score
            self._value = self._number(self._epoch.compute(), _HINT)
        return self._own

    def _hint(self, state: StepState) -> str:
        kind = type(self._of).__name__
        scores = state.get("y_pred")
        if kind.startswith("Binary") and isinstance(scores, torch.Tensor) and scores.ndim > 1 and scores.shape[1] > 2:
            more = f"{kind.replace('Binary', 'Multiclass')}({scores.shape[1]})"
            return f" {kind} is of two classes; write loop.metric({more}) of {scores.shape[1]}."
        return ""

    def _move(self, part: Fields) -> None:
        device = next((leaf.device for leaf in tensors_of(*[part[name] for name in self.fields])), None)
        if device is not None and device != self._device:
            self._device = device
            for each in (self._batch, self._epoch):
                if hasattr(each, "to"):
                    each.to(device)

    @property
    def value(self) -> np.floating[Any]:
        """What the object makes of the epoch so far; NaN without a batch."""
        if self._value is None:
            self._value = self._number(self._epoch.compute(), _HINT)
        return self._reported(self._value)

    @property
    def complete(self) -> np.floating[Any]:
        """The same."""
        return self.value

    @property
    def so_far(self) -> float:
        """The same, up to a 64th of the epoch ago; or the latest batch's own value where that is not finite."""
        if not math.isfinite(self._own):
            return self._own
        if (self._n - self._shown_at) * _REFRESHED >= self._n:
            self._shown, self._shown_at = float(self.value), self._n
        return self._shown

    @property
    def accumulated_by(self) -> str:
        """The name of the object's class."""
        return type(self._of).__name__

    def _so_far(self) -> dict[str, Any]:
        numbers = {"n": self._n, "own": self._own, "value": float(self.value)}
        return numbers | {"shown": self._shown, "shown_at": self._shown_at, "object": self._kept()}

    def _kept(self) -> dict[str, Any]:
        """What the object remembers: its state_dict, or its attributes that can be saved; the others are named once."""
        of = self._epoch
        if isinstance(of, _Stateful):
            return copy.deepcopy(dict(of.state_dict()))
        kept: dict[str, Any] = {}
        left_out: list[str] = []
        for name, value in vars(of).items():
            plain = Plain(keeps_device=True)
            made = plain(value, name)
            if not plain.left_out:
                kept[name] = made
            elif not _is_as_given(value, vars(self._of).get(name)):
                left_out += plain.left_out
        if left_out and not self._has_said:
            self._has_said = True
            warn(
                f"Checkpoints leave out what the {type(of).__name__} of the metric {self.name!r} has in "
                f"{', '.join(left_out)}. Give it state_dict and load_state_dict (said once).",
                CheckpointWarning,
            )
        return copy.deepcopy(kept)

    def _go_on_from(self, so_far: dict[str, Any]) -> None:
        self.start()
        _give_back(self._epoch, so_far["object"])
        self._n, self._own, self._value = so_far["n"], so_far["own"], so_far["value"]
        self._shown, self._shown_at = so_far["shown"], so_far["shown_at"]


def _check(of: Accumulating) -> None:
    name = of.__name__ if isinstance(of, type) else type(of).__name__
    if isinstance(of, type):
        raise MetricError(f"{name} is a class; write loop.metric({name}(...)).")
    if hasattr(of, "items"):
        raise MetricError(
            f"A {name} holds several metrics. Give the loop one at a time: "
            "for name, each in collection.items(): loop.metric(each, name)"
        )


def _copied(of: Accumulating) -> Accumulating:
    """A copy without memory, whose whole memory is in its state_dict."""
    try:
        copied = copy.deepcopy(of)
    except Exception as error:
        raise MetricError(
            f"The {type(of).__name__} cannot be copied ({type(error).__name__}: {error}); a loop needs copies of a "
            "metric, new ones for each epoch. Follow a function instead."
        ) from error
    copied.reset()
    for module in copied.modules() if isinstance(copied, nn.Module) else ():
        make_persistent = getattr(module, "persistent", None)
        if callable(make_persistent):
            make_persistent(True)
    return copied


def _give_back(of: Accumulating, kept: dict[str, Any]) -> None:
    kept = copy.deepcopy(kept)  # or later batches are added to what was loaded
    if isinstance(of, _Stateful):
        of.load_state_dict(kept)
    else:
        vars(of).update(parts_from_plain(kept))


def _is_as_given(value: Any, given: Any) -> bool:
    """Whether an attribute is an option, such as a function, and nothing that was accumulated."""
    try:
        return value is given or bool(value == given)
    except Exception:  # arrays, or what cannot be compared
        return False


def _options(of: Accumulating) -> dict[str, Any]:
    """What it was made with, as far as that can be compared."""
    plain = (bool, int, float, str, type(None))
    return {name: value for name, value in vars(of).items() if not name.startswith("_") and isinstance(value, plain)}

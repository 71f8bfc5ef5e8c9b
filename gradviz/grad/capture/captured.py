"""What a capture has found: `Captured`, by name; `Calls`, by call; `Call`, by example."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_unflatten

from gradviz.errors import CaptureError, nearest
from gradviz.grad.capture.keeping import KeepsExampleNorms, KeepsRunning, KeepsTensors, Taken, example_norms
from gradviz.grad.capture.running import Running
from gradviz.grad.capture.shelf import Slot
from gradviz.grad.statistics import STATISTICS

if TYPE_CHECKING:
    from gradviz.grad.capture.keeping import Keeping
    from gradviz.grad.capture.writes import Writes

State = str
"""As a history has it: "ok", "unused" if no path of the loss leads there, "frozen" if nothing before it is trained,
"not_recorded" if there is a gradient that could not be told."""


Inputs = tuple[list[Any], TreeSpec]
"""What something was called with, by name, as a flat list in which the tensors are slots, and its structure."""


class Example(NamedTuple):
    """One example of a call: its part of the gradient, and of the value if values are kept."""

    gradient: Tensor
    value: Tensor | None


class Call:
    """One value that was captured, at one call of what made it.

    Attributes
    ----------
    name : str
    number : int
        Among the calls of this name, in the order of the forward pass.
    state : str
        "ok", "unused", "frozen" or "not_recorded".
    note : str or None
        What else is to be known of it, in words.
    shape : torch.Size
    dtype : torch.dtype
    device : torch.device
        Of the value, and so of the gradient.
    """

    # There are many, and most stay with most of these: what is set for each shows in a small step.
    state: State = "unused"
    _has_examples = True
    _lengths: Collection[int] = ()
    _taken: Taken | None = None
    _value: Slot | None = None
    _inputs: Inputs | None = None
    _running: Running | None = None
    _writes: Writes | None = None

    def __init__(self, name: str, number: int, tensor: Tensor, keeping: Keeping, note: str | None = None) -> None:
        self.name, self.number, self.note = name, number, note
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device
        self._keeping = keeping
        self._pending: list[tuple[int, Taken]] = []

    def __repr__(self) -> str:
        about = f"norm {self.statistics['norm']:.3g}" if self._taken is not None else self.state
        return f"Call({self.name!r}, {self.number}: {about}{', ' + self.note if self.note else ''})"

    @property
    def reached(self) -> bool:
        """Whether a path of the loss leads there."""
        return self.state in ("ok", "not_recorded")

    @property
    def why_no_examples(self) -> str | None:
        """Why its gradient cannot be told apart by example: better not at all than along another axis."""
        if not self._has_examples:
            return "its rows are steps of packed sequences"
        shape, axis = self.shape, self._keeping.capture.batch_dim
        if not -len(shape) <= axis < len(shape):
            return f"it has the shape {tuple(shape)}, and no axis batch_dim={axis}"
        if self._lengths and shape[axis] not in self._lengths:
            lengths = " or ".join(map(str, sorted(self._lengths)))
            return (
                f"it has the shape {tuple(shape)}, with {shape[axis]} along batch_dim={axis}, where what the model was "
                f"given has {lengths}"
            )
        return None

    @property
    def _is_lost(self) -> bool:
        return self.state == "not_recorded"

    @property
    def gradient(self) -> Tensor:
        """The gradient of the loss by this value: of its shape, dtype and device. Zeros where no path leads there.

        That of a loss that is a mean over the batch has the batch's length in it: one example's part is that much
        smaller than for the example alone.

        Raises
        ------
        CaptureError
            E1109: if it was not kept.
        """
        if not isinstance(self._keeping, KeepsTensors):
            keep = self._keeping.name
            raise CaptureError(
                f"The gradient of {self.name!r} was not kept, but its {keep.replace('_', ' ')} alone. Write "
                f'gv.Capture({self.name!r}, keep="tensors").'
            )
        if self._taken is None:
            self._check("gradient")
            return torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        slot: Slot = self._taken.more
        return slot.get()

    @property
    def value(self) -> Tensor:
        """The value itself, as it was when it was made.

        Raises
        ------
        CaptureError
            E1109: if values were not kept.
        """
        if self._value is None:
            raise self._no_values("value")
        return self._value.get()

    @property
    def inputs(self) -> Mapping[str, Any]:
        """What the module or function was called with, by the names of its parameters.

        Raises
        ------
        CaptureError
            E1109: if values were not kept.
        """
        if self._inputs is None:
            raise self._no_values("inputs")
        leaves, structure = self._inputs
        inputs: Mapping[str, Any] = tree_unflatten(
            [leaf.get() if isinstance(leaf, Slot) else leaf for leaf in leaves], structure
        )
        return inputs

    def _no_values(self, what: str) -> CaptureError:
        if self._keeping.capture.values:
            return CaptureError(
                f"A sown value has no {what}; gv.record_vjp(f, {self.name!r}) keeps those of a function."
            )
        return CaptureError(f"The {what} of {self.name!r} was not kept. Write gv.Capture({self.name!r}, values=True).")

    @property
    def statistics(self) -> Mapping[str, float]:
        """norm, mean, std, max_abs, zero_fraction, and how many entries are nan, posinf and neginf.

        Raises
        ------
        CaptureError
            E1109: if there is no gradient to tell of.
        """
        if self._taken is None:
            self._check("statistics")
            raise CaptureError(
                f"Call {self.number} of {self.name!r} has no statistics: no path of the loss leads there."
            )
        return dict(zip(STATISTICS, self._taken.row.tolist(), strict=True))

    @property
    def example_norms(self) -> Tensor:
        """The norm of each example's part of the gradient: [examples], float64. Zeros where no path leads there.

        Raises
        ------
        CaptureError
            E1109: if neither norms of examples nor tensors were kept, or the value has no axis of examples.
        """
        axis = self._example_axis()
        if isinstance(self._keeping, KeepsTensors):
            return example_norms(self.gradient, axis)
        if not isinstance(self._keeping, KeepsExampleNorms):
            raise CaptureError(
                f"Norms by example were not kept of {self.name!r}. Write gv.Capture({self.name!r}, "
                'keep="example_norms").'
            )
        if self._taken is None:
            self._check("norms")
            return torch.zeros(self.shape[axis], dtype=torch.float64)
        kept: Tensor = self._taken.more
        return kept

    @property
    def running(self) -> Running:
        """Moments over all steps so far.

        Raises
        ------
        CaptureError
            E1109: if they were not kept, or no gradient has come yet.
        """
        if not isinstance(self._keeping, KeepsRunning):
            raise CaptureError(
                f'Running moments were not kept of {self.name!r}. Write gv.Capture({self.name!r}, keep="running").'
            )
        if self._running is None:
            raise CaptureError(f"No gradient of call {self.number} of {self.name!r} has come yet.")
        return self._running

    def example(self, index: int) -> Example:
        """One example's part.

        Parameters
        ----------
        index : int
            Within the batch.

        Raises
        ------
        CaptureError
            E1109: if there is no such example, or tensors were not kept.
        """
        gradient, axis = self.gradient, self._example_axis()
        n = gradient.shape[axis]
        if not -n <= index < n:
            raise CaptureError(f"{self.name!r} has {n} examples along axis {axis}; there is no example {index}.")
        value = None if self._value is None else self.value.select(axis, index)
        return Example(gradient.select(axis, index), value)

    def _example_axis(self) -> int:
        if self.why_no_examples:
            raise CaptureError(
                f"Call {self.number} of {self.name!r} cannot be told apart by example: {self.why_no_examples}"
            )
        return self._keeping.capture.batch_dim

    def _check(self, what: str) -> None:
        """Zeros would be a lie of what has no gradient, or one that could not be told."""
        if self.state == "frozen":
            raise CaptureError(
                f"Call {self.number} of {self.name!r} has no {what}: nothing before it is trained, or it was detached."
            )
        if self.state == "not_recorded":
            raise CaptureError(f"The {what} of call {self.number} of {self.name!r} could not be recorded: {self.note}")


class Calls(Sequence[Call]):
    """The calls of one name, in the order of the forward pass."""

    def __init__(self, name: str, calls: Sequence[Call]) -> None:
        self.name = name
        self._calls = calls

    def __len__(self) -> int:
        return len(self._calls)

    @overload
    def __getitem__(self, number: int) -> Call: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Call]: ...
    def __getitem__(self, number: int | slice) -> Call | Sequence[Call]:
        if isinstance(number, slice):
            return self._calls[number]
        if not -len(self) <= number < len(self):
            raise IndexError(f"{self.name!r} was called {len(self)} times; there is no call {number}.")
        return self._calls[number]

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self._calls))}]"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Call, name):
            raise AttributeError(f"calls have no {name!r}")
        raise AttributeError(
            f"{self.name!r} was called {len(self)} times, and each call has its own. Write "
            f"captured[{self.name!r}][0].{name}."
        )


class Captured(Mapping[str, Calls]):
    """What was captured in one iteration, by name.

    Attributes
    ----------
    missing : dict of str to str
        Names that were asked for and could not be captured, and why.
    parameter_example_norms : dict of str to Tensor
        With ``keep="example_norms"``, the norm of each example's gradient by the parameters of captured modules:
        [examples], float64. Those that cannot be told are in `missing`.
    """

    def __init__(
        self, calls: Mapping[str, Sequence[Call]], missing: Mapping[str, str], of_parameters: Mapping[str, Tensor]
    ) -> None:
        self.every_call = [call for own in calls.values() for call in own]
        """Those as well that could not be recorded, whose names are missing."""
        lost = {name: str(own[0].note) for name, own in calls.items() if all(call._is_lost for call in own)}
        self._calls = {name: Calls(name, own) for name, own in calls.items() if name not in lost}
        self.missing = {**lost, **missing}
        self.parameter_example_norms = dict(of_parameters)

    def __getitem__(self, name: str) -> Calls:
        try:
            return self._calls[name]
        except KeyError:
            pass
        if name in self.missing:
            raise _NotCaptured(f"{name!r} was not captured: {self.missing[name]}")
        raise _NotCaptured(f"Nothing was captured as {name!r}: {nearest(str(name), self)}")

    def __contains__(self, name: object) -> bool:
        return name in self._calls

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        lines = [f"  {name}: {calls!r}" for name, calls in self.items()]
        lines += [f"  {name}: missing, {why}" for name, why in self.missing.items()]
        return "\n".join([f"Captured of {len(self)} names, {len(self.missing)} missing", *lines])


class _NotCaptured(CaptureError, KeyError):
    """A name that a capture does not have."""

    __str__ = Exception.__str__

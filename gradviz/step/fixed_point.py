"""Types that hold: a step gives back the state that it was given, leaf by leaf, but for the values.

It is checked at every step, and nearly every step changes nothing. So what has many leaves (the model, the optimizer's
state, the gradients) is glanced at, and its leaves are looked at one by one only where the glance sees something new.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from gradviz.errors import StateTypeError
from gradviz.grad.algebra import Blank, Grad
from gradviz.grad.leaves import Kind, walk
from gradviz.step.model_state import ModelState
from gradviz.step.optimizers import OptimizerState

KEYS = ("y_true", "y_pred", "loss", "i", "model_state", "optimizer_state", "loss_scale_state", "gradients")
"""What a step makes; other keys of a step state belong to handlers."""

OF_A_BATCH = ("y_true", "y_pred")
"""Where the number of axes holds, and no more: batches and sequences vary in length. So it is with buffers that are not
persistent."""

Spec = type | tuple[torch.dtype, str, torch.Size | int]
"""The type of a leaf; of a tensor the dtype, the kind of device, and the shape or number of axes."""


class FixedPoint:
    """The types that every later step state is held to.

    Parameters
    ----------
    state : mapping
        A step state. Its `model_state` and `optimizer_state` are live, so what they are now is noted here.
    without : collection of str
        Keys that may change, as the state of an optimizer does that collects directions.

    Examples
    --------
    >>> types = FixedPoint({"loss": torch.tensor(0.5)})
    >>> types.check_batch({"loss": torch.tensor(0.4)}, 0)
    >>> types.check_batch({"loss": torch.tensor(0.3).double()}, 1)
    Traceback (most recent call last):
        ...
    gradviz.errors.StateTypeError: In iteration 1, loss became float64 of shape (), where float32 of shape () was ...
    """

    def __init__(self, state: Mapping[str, Any], *, without: Collection[str] = ()) -> None:
        self._expected = {key: _specs(key, state[key]) for key in KEYS if key in state and key not in without}
        self._absent = {key for key in KEYS if key not in state and key not in without}
        self._glances = {key: glance() for key, glance in _GLANCES.items() if key in self._expected}
        self._seen: dict[tuple[str, ...], Any] = {}  # what the last tensors of a batch looked like that were held

    def check(self, state: Mapping[str, Any], iteration: int, kind: Kind, looks: object) -> None:
        """Refuse a state of other types.

        Parameters
        ----------
        state : mapping
        iteration : int
        kind : Kind
            What the model is differentiated by, as the step found it.
        looks : object
            The same for as long as no parameter has changed its dtype, shape or place.

        Raises
        ------
        StateTypeError
            If a leaf came, went, or is of another type; it names the first one.
        """
        if not self._expected.keys() <= state.keys():
            self._hold(next(key for key in self._expected if key not in state), state, iteration)
        # What is of the batch was held before anything moved; micro-batches that do not fit together may stay apart.
        for key, glance in self._glances.items():
            if not glance.is_as_before(state[key], kind, looks):
                self._hold(key, state, iteration)
                glance.note(state[key], kind, looks)
        if not self._absent.isdisjoint(state):
            self._hold(next(key for key in KEYS if key in self._absent and key in state), state, iteration)

    def check_batch(self, values: Mapping[str, Any], iteration: int) -> None:
        """Refuse some values of other types, such as a loss, before anything has moved.

        Parameters
        ----------
        values : mapping
            Some of the keys of a step state.
        iteration : int

        Raises
        ------
        StateTypeError
            As `check`.
        """
        keys = tuple(values)
        try:
            looks = list(map(_looks_of, values.values()))
        except AttributeError:  # something is no tensor; to be one is the common case
            looks = None
        if looks is not None and looks == self._seen.get(keys):
            return
        for key in keys:
            self._hold(key, values, iteration)
        if all(isinstance(value, Tensor) for value in values.values()):
            self._seen[keys] = looks

    def _hold(self, key: str, state: Mapping[str, Any], iteration: int) -> None:
        value = state.get(key)
        expected = self._expected.get(key, {})
        came = _specs(key, state[key]) if key in state else {}
        if isinstance(value, ModelState) and expected:
            buffers = [f"{key}[{name!r}]" for name in value.buffers]  # made in a forward pass, as caches are
            expected |= {path: came[path] for path in buffers if path not in expected}
        if came != expected:
            raise StateTypeError(_difference(expected, came, iteration))


class _Glance:
    """Whether a part of the state can have changed its types since it was looked at leaf by leaf."""

    def is_as_before(self, part: Any, kind: Kind, looks: object) -> bool:
        raise NotImplementedError

    def note(self, part: Any, kind: Kind, looks: object) -> None:
        raise NotImplementedError


class _One(_Glance):
    """One tensor."""

    def __init__(self) -> None:
        self._spec: Any = None

    def is_as_before(self, part: Any, kind: Kind, looks: object) -> bool:
        return isinstance(part, Tensor) and (part.dtype, part.shape, part.device) == self._spec

    def note(self, part: Tensor, kind: Kind, looks: object) -> None:
        self._spec = part.dtype, part.shape, part.device


class _Model(_Glance):
    """The kind knows names and shapes, the looks of parameters have not changed; what buffers are may have."""

    def __init__(self) -> None:
        self._kind: Kind | None = None
        self._looks: object = None
        self._tables: list[Mapping[str, Tensor | None]] = []
        self._seen: Any = None

    def is_as_before(self, part: Any, kind: Kind, looks: object) -> bool:
        if kind is not self._kind or looks is not self._looks or looks is None:
            return False
        return bool(self._buffers() == self._seen) if self._tables else True

    def note(self, part: ModelState, kind: Kind, looks: object) -> None:
        # A module that comes, goes or gets another buffer makes another kind.
        self._kind, self._looks = kind, looks
        self._tables = [module._buffers for module in part.module.modules() if module._buffers]
        self._seen = self._buffers()

    def _buffers(self) -> list[tuple[torch.dtype, torch.Size]]:
        return [(b.dtype, b.shape) for table in self._tables for b in table.values() if b is not None]


class _Kept(_Glance):
    """The optimizer's tensors, which torch's own optimizers write into and never replace."""

    def __init__(self) -> None:
        self._leaves: list[Any] | None = None
        self._specs: Any = None
        self._times_replaced = 0

    def is_as_before(self, part: OptimizerState, kind: Kind, looks: object) -> bool:
        if self._leaves is not None:
            leaves = chain.from_iterable(map(dict.values, part.optimizer.state.values()))
            if all(map(operator.is_, chain(leaves, _END), self._leaves)):
                return True
            self._leaves = None
            self._times_replaced += 1
        if self._specs is None:
            return False
        if self._look(part.optimizer) != self._specs:
            return False
        self._keep(part.optimizer)
        return True

    def note(self, part: OptimizerState, kind: Kind, looks: object) -> None:
        self._specs = self._look(part.optimizer)
        if self._specs is not None:
            self._keep(part.optimizer)

    def _keep(self, optimizer: Optimizer) -> None:
        # Replaced once when a state is loaded, but at each step by some of the users' own optimizers: tensors that are
        # held on to here would lie in memory twice.
        if self._times_replaced < 3:
            self._leaves = [*chain.from_iterable(map(dict.values, optimizer.state.values())), *_END]

    @staticmethod
    def _look(optimizer: Optimizer) -> Any:
        """What each parameter's dict holds; None where that is nested."""
        states = optimizer.state.values()
        if not all(isinstance(state, dict) for state in states):
            return None
        specs = [_spec(leaf) for leaf in chain.from_iterable(map(dict.values, states))]
        is_flat = all(type(spec) is tuple or spec in _PLAIN for spec in specs)
        return (list(chain.from_iterable(states)), specs) if is_flat else None


class _Empty(_Glance):
    """The state of no loss scale."""

    def __init__(self) -> None:
        self._was_empty = False

    def is_as_before(self, part: Any, kind: Kind, looks: object) -> bool:
        return self._was_empty and part == {}

    def note(self, part: Any, kind: Kind, looks: object) -> None:
        self._was_empty = part == {}


class _Gradients(_Glance):
    """The kind knows names and shapes."""

    def __init__(self) -> None:
        self._kind: Kind | None = None
        self._seen: Any = None

    def is_as_before(self, part: Grad[Any], kind: Kind, looks: object) -> bool:
        return part._kind is self._kind and bool(_dtypes(part._leaves.values()) == self._seen)

    def note(self, part: Grad[Any], kind: Kind, looks: object) -> None:
        self._kind, self._seen = part._kind, _dtypes(part._leaves.values())


_GLANCES: dict[str, type[_Glance]] = {
    "i": _One,
    "model_state": _Model,
    "optimizer_state": _Kept,
    "loss_scale_state": _Empty,
    "gradients": _Gradients,
}

_END = (object(),)
_PLAIN = {bool, int, float, complex, str, type(None)}
_dtype = operator.attrgetter("dtype")
_looks_of = operator.attrgetter("dtype", "device", "ndim")  # a loss has no axis


def _dtypes(leaves: Collection[Tensor | Blank]) -> list[torch.dtype]:
    return list(map(_dtype, leaves))


def _specs(key: str, value: Any) -> dict[str, Spec]:
    spec = _spec_of_batch if key in OF_A_BATCH else _spec
    specs = {path: spec(leaf) for path, leaf in _named(key, value)}
    if isinstance(value, ModelState):
        # What a module does not save, such as a mask or a table of angles, grows with the longest sequence.
        for path, child in walk(value.module):
            for name in child._non_persistent_buffers_set & child._buffers.keys():
                if child._buffers[name] is not None:
                    specs[f"{key}[{path + name!r}]"] = _spec_of_batch(child._buffers[name])
    return specs


def _spec(leaf: Any) -> Spec:
    return (leaf.dtype, leaf.device.type, leaf.shape) if isinstance(leaf, Tensor | Blank) else type(leaf)


def _spec_of_batch(leaf: Any) -> Spec:
    return (leaf.dtype, leaf.device.type, leaf.ndim) if isinstance(leaf, Tensor) else type(leaf)


def _named(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Each leaf with its path. Not by pytree alone: to that a mapping that is no dict is one leaf."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Grad):  # as they are: a leaf that was never reached is made when somebody reads it
        for name, leaf in value._leaves.items():
            yield f"{path}[{name!r}]", leaf
    elif isinstance(value, ModelState):  # a dict at once: by name it looks the module over each time
        yield from _named(path, {**value.parameters, **value.buffers})
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _named(f"{path}[{name!r}]", part)
    else:
        for keys, leaf in pytree.tree_flatten_with_path(value)[0]:
            yield path + pytree.keystr(keys), leaf


def _difference(expected: Mapping[str, Spec], came: Mapping[str, Spec], iteration: int) -> str:
    new = next((path for path in came if path not in expected), None)
    path = next((path for path, spec in expected.items() if came.get(path) != spec), new)
    assert path is not None, "something differs"
    if path not in expected:
        what = f"{path} is a new leaf, {_words(came[path])}"
    elif path not in came:
        what = f"{path} is gone, where {_words(expected[path])} was before"
        what += f", and {new} is a new leaf" if new else ""
    else:
        what = f"{path} became {_words(came[path])}, where {_words(expected[path])} was before"
    key = path.partition("[")[0]
    why = _CAUSES.get(key, "")
    return f"In iteration {iteration}, {what}. {why}Pass strict=False to let types change."


_CAUSES = {
    "y_true": "The targets of this batch are of another kind: cast them where the data are made. A list of batches is "
    "for accumulate=. ",
    "y_pred": "A model that was converted, inputs of another kind or a forward pass that takes turns do that. ",
    "loss": "Targets of another dtype do that, since the loss takes the wider one: write targets.float(). ",
    "model_state": "A buffer that is no statistic, such as a cache, is registered with persistent=False. ",
    "optimizer_state": "The optimizer computes what it keeps in another type than it has. ",
}


def _words(spec: Spec) -> str:
    if not isinstance(spec, tuple):
        return "None" if spec is type(None) else f"of type {spec.__name__}"
    dtype, device, shape = spec
    size = f"with {shape} {'axis' if shape == 1 else 'axes'}" if isinstance(shape, int) else f"of shape {tuple(shape)}"
    return f"{str(dtype).removeprefix('torch.')} {size}" + (f" on {device}" if device != "cpu" else "")

"""`StepState`: what a step leaves behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gradviz.errors import NoSuchFieldError, described, nearest
from gradviz.step.batch import Parts


class StepState(dict[str, Any]):
    """What a step leaves behind, by key or attribute.

    Attributes
    ----------
    i : 0-dim int64 Tensor
        Steps attempted, skipped ones too.
    y_true, y_pred : as the batch's targets and the model's prediction
        Detached; of all micro-batches together.
    loss : 0-dim Tensor
        This batch's own, unscaled and detached, in the dtype the objective returns.
    model_state : ModelState
        Live: an older state is no snapshot.
    optimizer_state : OptimizerState
        Live, by parameter and key: ``state["optimizer_state"]["0.weight"]["exp_avg"]``. Before the first step, zeros in
        the shapes and dtypes that it will have.
    loss_scale_state : dict
        For the next step.
    gradients : Grad
        Only with ``keep_gradients=True``: absent otherwise. Accumulated and unscaled, before clipping, weight decay and
        momentum; never rewritten by a later step.
    captured : Captured
        Only with ``capture=``, and of an iteration that is recorded.
    """

    def __repr__(self) -> str:
        parts = [f"{name}: {_brief(value)}" for name, value in self.items()]
        return "StepState\n" + "\n".join(f"  {part}" for part in parts)

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        if name.startswith("__"):  # protocols ask for names like __deepcopy__; those are no fields
            raise AttributeError(name)
        raise self._lacks(name)

    def __missing__(self, name: str) -> Any:
        raise self._lacks(name)

    @contextlib.contextmanager
    def awaiting(self) -> Iterator[None]:
        """A step is about to be taken: the gradients of the last one are not those of this one, and out of reach."""
        kept = {name: self.pop(name) for name in _OF_ONE_STEP if name in self}
        self.__dict__["_awaited"] = frozenset(kept)
        try:
            yield
        finally:
            del self.__dict__["_awaited"]
            for name, value in kept.items():
                self.setdefault(name, value)

    def _lacks(self, name: str) -> NoSuchFieldError:
        if name in self.__dict__.get("_awaited", ()):
            return NoSuchFieldError(
                f"The {name} of this iteration come with its step. Read them at 'iteration_completed', or later."
            )
        if not self:
            return NoSuchFieldError(f"The step state has no field {name!r}: it is empty before the first run.")
        hint = _HINTS.get(name, "")
        return NoSuchFieldError(f"The step state has no field {name!r}: {nearest(name, self)}.{hint}")


_OF_ONE_STEP = ("gradients", "captured")

_HINTS = {
    "gradients": " Pass keep_gradients=True to train_step or trainer.",
    "captured": " Pass capture=gv.Capture(...) to train_step or trainer; with every=, not all iterations have it.",
}


class Counts:
    """0-dim tensors of whole numbers one after the other, each handed out once.

    Between two steps one costs 9 microseconds, and many at a time 1 each.

    Examples
    --------
    >>> counts = Counts()
    >>> [counts.after(n).item() for n in (0, 1, 2, 7)]
    [1, 2, 3, 8]
    """

    def __init__(self) -> None:
        self._next = 0
        self._made: list[Tensor] = []

    def after(self, n: int) -> Tensor:
        """That of ``n + 1``."""
        if not self._made or self._next != n + 1:
            self._made = list(map(torch.tensor, range(n + AT_ONCE, n, -1)))
        self._next = n + 2
        return self._made.pop()


AT_ONCE = 64
"""Numbers that are made together."""


def _flatten_with_keys(state: StepState) -> tuple[list[tuple[Any, Any]], list[str]]:
    return [(pytree.MappingKey(key), value) for key, value in state.items()], list(state)


pytree.register_pytree_node(
    StepState,
    lambda state: (list(state.values()), list(state)),
    lambda values, keys: StepState(zip(keys, values, strict=True)),
    serialized_type_name="gradviz.StepState",
    flatten_with_keys_fn=_flatten_with_keys,
)


def joined(parts: list[Any]) -> Any:
    """The targets or predictions of several micro-batches as those of one batch.

    Tensors are put together along their first axis. Where they do not fit, as sequences of different lengths do not,
    the parts stay apart, as `Parts`.

    Examples
    --------
    >>> joined([{"a": torch.ones(2, 3)}, {"a": torch.ones(1, 3)}])["a"].shape
    torch.Size([3, 3])
    >>> len(joined([torch.ones(2, 3), torch.ones(2, 4)]))
    2
    """
    if len(parts) == 1:
        return parts[0]
    leaves, specs = zip(*map(pytree.tree_flatten, parts), strict=True)
    columns = list(zip(*leaves, strict=True)) if len({str(spec) for spec in specs}) == 1 else [()]
    if all(map(_fit, columns)):
        return pytree.tree_unflatten([torch.cat(column) for column in columns], specs[0])
    return Parts(parts)


def _fit(column: Iterable[Any]) -> bool:
    column = list(column)
    if not column or not all(isinstance(leaf, Tensor) and leaf.ndim for leaf in column):
        return False
    return len({(leaf.shape[1:], leaf.dtype, leaf.layout) for leaf in column}) == 1


def _brief(value: Any) -> str:
    if isinstance(value, Tensor) and value.ndim:
        return f"{described(value)}, {str(value.dtype).removeprefix('torch.')}"
    return repr(value).splitlines()[0]

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
    """``i + 1``, again and again: between two steps a tensor costs 9 microseconds, and made in advance 1.

    Examples
    --------
    >>> counts, i = Counts(), torch.tensor(0)
    >>> for n in range(3):
    ...     i = counts.after(i, n)
    >>> i, counts.after(torch.tensor(7, dtype=torch.int32), 7)
    (tensor(3), tensor(8, dtype=torch.int32))
    """

    def __init__(self) -> None:
        self._last: Tensor | None = None
        self._next = 0
        self._made: list[Tensor] = []

    def after(self, i: Tensor, n: int) -> Tensor:
        """That of a count, which is `n`; what somebody else has put in its place keeps its type."""
        if i is not self._last or self._next != n + 1 or not self._made:
            self._last = i + 1
            i = self._last
            is_plain = isinstance(i, Tensor) and i.dtype is torch.int64 and not i.ndim and i.is_cpu
            after = range(n + 1 + AT_ONCE, n + 1, -1) if is_plain else ()
            self._made = [torch.tensor(count, device="cpu") for count in after]
        else:
            self._last = self._made.pop()
        self._next = n + 2
        return self._last


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

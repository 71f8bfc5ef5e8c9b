"""How a step takes its gradients.

By `backward()`, as plain torch does, where a loss leads to nothing but the model's own parameters. In a small step that
is faster than `torch.autograd.grad` by 2 to 3 %: the engine has no part of the graph to select, no gradient is handed
out and put back, and none shares its memory with another.

Where the graph leads elsewhere too, to another model or to inputs, `torch.autograd.grad` takes the model's part alone:
nobody else's ``.grad`` is written. It goes around what hangs on ``.grad`` being written, though: the reduction of DDP
and FSDP, post-accumulate-grad hooks, re-entrant checkpointing. Those are `backward()`'s again, by ``inputs=`` where
that goes.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeGuard

import torch
from torch import Tensor

from gradviz.errors import ModelError, NothingReachedError
from gradviz.grad.algebra import is_incomplete
from gradviz.grad.autodiff import REENTRANT, apart, has_reentrant, nodes, run_backward
from gradviz.grad.norms import whole
from gradviz.step.batch import tensors_of
from gradviz.step.mask import Found
from gradviz.step.masters import Masters
from gradviz.step.tensors import drop_gradients

Gradients = list[Tensor | None]
"""One for each trainable parameter, in order; None where no path leads to it."""

_SHARDED = ("FSDPModule", "FullyShardedDataParallel")
"""Wrappers whose parameters are not the leaves of the graph."""

_hooks = operator.attrgetter("_post_accumulate_grad_hooks")  # a third of the time of a comprehension


class ReentrantCheckpoint(NothingReachedError):
    """Re-entrant checkpointing hides parameters from `torch.autograd.grad`."""


class RunningTotal(Protocol):
    """Gradients of micro-batches, adding up."""

    is_in_place: bool
    """Whether all of them are in their parameters' ``.grad``."""

    def add(self, loss: Tensor, batch: Any) -> None:
        """Those of one micro-batch's loss more.

        Raises
        ------
        ReentrantCheckpoint
            If the graph has such a part, and nobody has said so.
        """

    def total(self) -> Gradients:
        """All of them, in the dtype that the optimizer works in."""


class GradientTaker:
    """How one model's gradients are taken, step after step.

    Parameters
    ----------
    masters : Masters
    keeps : bool
        Whether gradients outlive their step or are written into, so that their memory must be their own.
    is_loss : bool
        Whether what is differentiated is a loss of a prediction: what an objective leads to may change at any step.
    """

    def __init__(self, masters: Masters, *, keeps: bool, is_loss: bool) -> None:
        self.masters = masters
        self.keeps = keeps
        self.reentrant = False
        """Whether re-entrant checkpointing was found in the graph."""
        self._is_loss = is_loss
        self.beside: list[Tensor] = []
        """Other leaves that are gone to as well, for the sake of hooks on the way; nobody's ``.grad`` is written."""
        self._is_closed = False  # nobody has looked yet
        self._unused: list[bool] | None = None

    @property
    def goes_everywhere(self) -> bool:
        """Whether the whole graph is gone through in any case."""
        return self._is_closed and not self.masters.copies

    def begin(self, found: Found, *, is_trial: bool = False) -> RunningTotal:
        """Nothing so far. A trial is nobody's business: it neither reduces over processes nor fires a hook."""
        # The last gradients go just before the new ones come, as zero_grad would have it; frozen and unused
        # parameters keep none, so that neither momentum nor weight decay moves them.
        drop_gradients(found.leaves.parameters.values())
        has_masters = bool(self.masters.copies)
        if has_masters:
            self.masters.drop_gradients()
        if is_trial:
            self._unused = None  # to look at the graph anew
        if self._is_closed and not is_trial and not has_masters:  # with those, micro-batches add up in float32
            return _InPlace(self, found)
        goes_around = found.leaves.wrapper is not None or any(map(_hooks, found.parameters))
        if self.reentrant or found.leaves.wrapper in _SHARDED or (goes_around and not is_trial):
            return _ByBackward(self, found)
        return _ByGrad(self, found)

    def look_for_hidden(self, loss: Tensor, gradients: Sequence[Tensor | None], found: Found) -> None:
        """Refuse a graph that may hide parameters: the first one, and one that reaches others than the last."""
        unused = [gradient is None for gradient in gradients]
        if unused != self._unused:
            is_first = self._unused is None
            if has_reentrant(loss):
                name = found.kind.names[unused.index(True)] if True in unused else found.kind.names[0]
                raise ReentrantCheckpoint(f"Not all of the gradient of {name!r} may have come. {REENTRANT}")
            if is_first:
                self._is_closed = self._is_loss and _is_closed(loss, found)
            self._unused = unused


class _ByGrad:
    is_in_place = False

    def __init__(self, taker: GradientTaker, found: Found) -> None:
        self._taker = taker
        self._found = found
        self._total: Gradients | None = None

    def add(self, loss: Tensor, batch: Any) -> None:
        parameters = self._found.parameters
        try:
            wanted = [*parameters, *self._taker.beside]
            gradients: Sequence[Tensor | None] = torch.autograd.grad(loss, wanted, allow_unused=True)[: len(parameters)]
        except RuntimeError as error:
            if "use_reentrant=True" in str(error):
                raise ReentrantCheckpoint(REENTRANT) from error
            raise
        self._taker.look_for_hidden(loss, gradients, self._found)
        if self._taker.keeps:
            gradients = self._of_their_own(gradients, batch)
        taken = self._taker.masters.widened(parameters, list(apart(gradients)))
        self._total = taken if self._total is None else _sum(self._total, taken)

    def total(self) -> Gradients:
        return self._total or [None] * len(self._found.parameters)

    def _of_their_own(self, gradients: Sequence[Tensor | None], batch: Any) -> Sequence[Tensor | None]:
        """Copies where the memory is somebody else's: a custom function may hand out a tensor that it holds.

        As backward() has it, which takes a gradient over only if nobody else holds it.
        """
        given = [gradient for gradient in gradients if gradient is not None]
        # Held by the tuple, by the list and by the call itself.
        is_held = max(map(sys.getrefcount, given), default=0) > 3 or max(map(_use_count, given), default=0) > 1
        return _cloned(gradients) if is_held else _clear_of(gradients, self._found, batch)


class _InPlace:
    """By a whole backward(), for a loss that led to the model's parameters alone: torch adds up by itself.

    A tensor from elsewhere that the model first takes in later on gets its ``.grad`` written, as in plain torch.
    """

    is_in_place = True

    def __init__(self, taker: GradientTaker, found: Found) -> None:
        self._taker = taker
        self._found = found
        self._so_far: Gradients = [None] * len(found.parameters)

    def add(self, loss: Tensor, batch: Any) -> None:
        with gradients_kept(batch) if any(map(_requires_grad, tensors_of(*batch))) else _NOTHING:
            run_backward(loss)
        parameters = self._found.parameters
        gradients = list(map(_grad, parameters))
        if is_incomplete(gradients):
            _check_taken_away(loss, self._found)
        if self._taker.keeps:
            # torch takes over as it is what a custom function hands out as a part of something that it holds
            own = list(_clear_of(apart(gradients), self._found, batch))
            for p, before, after in zip(parameters, gradients, own, strict=True):
                if after is not before:
                    p.grad = after
            gradients = own
        self._so_far = gradients

    def total(self) -> Gradients:
        return self._so_far


class _ByBackward:
    """By backward() on the model's part of the graph alone; not so with re-entrant checkpointing and FSDP."""

    is_in_place = False

    def __init__(self, taker: GradientTaker, found: Found) -> None:
        self._taker = taker
        self._found = found
        self._so_far: Gradients = [None] * len(found.parameters)

    def add(self, loss: Tensor, batch: Any) -> None:
        leaves, parameters = self._found.leaves, self._found.parameters
        # Hooks see the sum so far, as in plain torch; what an objective has left in .grad is not part of it.
        for p, gradient in zip(parameters, self._so_far, strict=True):
            p.grad = gradient
        with gradients_kept(batch):
            if self._taker.reentrant or leaves.wrapper in _SHARDED:
                torch.autograd.backward(loss)  # neither goes with inputs=
            else:
                torch.autograd.backward(loss, inputs=list(parameters))
        _check_taken_away(loss, self._found)
        for place, p in enumerate(parameters):
            self._so_far[place], p.grad = p.grad, None

    def total(self) -> Gradients:
        taken = self._so_far
        if self._taker.keeps and self._found.leaves.wrapper is not None:
            # DDP may have them as views of a bucket, which the next backward writes into.
            taken = _cloned(taken)
        return self._taker.masters.widened(self._found.parameters, taken)


def _is_closed(loss: Tensor, found: Found) -> bool:
    """Whether a graph leads to trainable parameters of the model and nothing else, and nobody else has used it."""
    if found.leaves.wrapper is not None or any(p.grad is not None for p in found.parameters):
        return False
    own = set(map(id, found.parameters))
    variables = [getattr(node, "variable", None) for node in nodes(loss)]
    return all(variable is None or id(variable) in own for variable in variables)


def _check_taken_away(loss: Tensor, found: Found) -> None:
    """Refuse a gradient that is missing although a path leads to its parameter."""
    for name, p in zip(found.kind.names, found.parameters, strict=True):
        if p.grad is None and _hooks(p) and _is_reached(loss, p):
            raise ModelError(
                f"A post-accumulate-grad hook took the gradient of {name!r} away before the optimizer's step, so it "
                "cannot be told from one that was never reached. Leave p.grad in place, and let the loop's optimizer "
                "take the step."
            )


_NOTHING = contextlib.nullcontext()
_grad = operator.attrgetter("grad")
_requires_grad = operator.attrgetter("requires_grad")


def _clear_of(gradients: Sequence[Tensor | None], found: Found, batch: Any) -> Sequence[Tensor | None]:
    """The gradients, copied if one lies in the memory of a parameter, a buffer or the batch."""
    others = [*found.parameters, *(buffer for _, buffer in found.leaves.named_buffers()), *tensors_of(*batch)]
    given = [gradient for gradient in gradients if gradient is not None]
    return gradients if _places(others).isdisjoint(_places(given)) else _cloned(gradients)


def _cloned(gradients: Sequence[Tensor | None]) -> Gradients:
    return [gradient if gradient is None else gradient.clone() for gradient in gradients]


_use_count = Tensor._use_count  # type: ignore[attr-defined]


def are_dense(gradients: Sequence[Tensor | None]) -> TypeGuard[list[Tensor]]:
    """Whether none is missing, sparse or otherwise than torch's own loops over many tensors want it."""
    try:
        return set(map(_layout, gradients)) == {torch.strided} and whole(gradients) is gradients  # type: ignore[arg-type]
    except AttributeError:  # None, where no path led to a parameter
        return False


_layout = operator.attrgetter("layout")


def _places(tensors: Sequence[Tensor]) -> set[int]:
    """Where tensors lie in memory."""
    try:
        return set(map(Tensor.data_ptr, tensors))
    except RuntimeError:  # a sparse one lies in several places
        return {tensor.data_ptr() for tensor in tensors if tensor.layout is torch.strided}


def _sum(total: Gradients, more: Gradients) -> Gradients:
    if are_dense(total) and are_dense(more):
        torch._foreach_add_(total, more)  # into memory of their own: they add up
        return [*total]
    return [b if a is None else a if b is None else a + b for a, b in zip(total, more, strict=True)]


@contextlib.contextmanager
def gradients_kept(*values: Any) -> Iterator[None]:
    """Whatever ``.grad`` the tensors among some values have, they have afterwards: a whole backward() writes theirs."""
    leaves = [leaf for leaf in tensors_of(values) if leaf.requires_grad and leaf.is_leaf]
    before = [leaf.grad for leaf in leaves]
    drop_gradients(leaves)
    try:
        yield
    finally:
        for leaf, gradient in zip(leaves, before, strict=True):
            leaf.grad = gradient


@contextlib.contextmanager
def without_hooks(parameters: Sequence[Tensor]) -> Iterator[None]:
    """No hook of a parameter fires."""
    hooks = [held for p in parameters for held in (_hooks(p), p._backward_hooks) if held]
    before = [(held, dict(held)) for held in hooks]
    for held in hooks:
        held.clear()
    try:
        yield
    finally:
        for held, content in before:
            held.update(content)


def as_accumulated(parameters: Iterable[Tensor], gradients: Iterable[Tensor | None]) -> Gradients:
    """Gradients laid out in memory as their parameters, as backward() would have left them in ``.grad``.

    torch's fused optimizers read memory as it lies, and get other strides wrong.
    """
    parameters, gradients = list(parameters), list(gradients)
    with contextlib.suppress(TypeError, RuntimeError):  # one is None or sparse
        if all(map(Tensor.is_contiguous, parameters)) and all(map(Tensor.is_contiguous, gradients)):  # type: ignore[arg-type]
            return gradients
    return [
        torch.empty_like(p, requires_grad=False).copy_(gradient)
        if gradient is not None and gradient.layout is torch.strided and gradient.stride() != p.stride()
        else gradient
        for p, gradient in zip(parameters, gradients, strict=True)
    ]


def _is_reached(loss: Tensor, parameter: Tensor) -> bool:
    return any(getattr(node, "variable", None) is parameter for node in nodes(loss))

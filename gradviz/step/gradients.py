"""How a step takes its gradients.

By `torch.autograd.grad`, which reads and writes no ``.grad``. It goes around what hangs on ``.grad`` being written: the
reduction of DDP and FSDP, post-accumulate-grad hooks, re-entrant checkpointing. There, `backward()` is called behind
the same interface.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from gradviz.errors import ModelError, NothingReachedError
from gradviz.grad.autodiff import REENTRANT, apart, has_reentrant, nodes
from gradviz.step.batch import tensors_of
from gradviz.step.mask import Found

Gradients = list[Tensor | None]
"""One for each trainable parameter, in order; None where no path leads to it."""

_SHARDED = ("FSDPModule", "FullyShardedDataParallel")
"""Wrappers whose parameters are not the leaves of the graph."""

_hooks = operator.attrgetter("_post_accumulate_grad_hooks")  # a third of the time of a comprehension


class ReentrantCheckpoint(NothingReachedError):
    """Re-entrant checkpointing hides parameters from `torch.autograd.grad`."""


class Taking:
    """The way of one model's gradients."""

    def __init__(self) -> None:
        self.reentrant = False
        """Whether re-entrant checkpointing was found in the graph."""
        self._unused: list[bool] = []

    def _needs_backward(self, found: Found) -> bool:
        """Whether `torch.autograd.grad` would go around something."""
        return self.reentrant or found.leaves.wrapper is not None or any(map(_hooks, found.parameters))

    def take(self, loss: Tensor, batch: Any, found: Found) -> Gradients:
        """The gradients of a loss; no parameter has a ``.grad``, before and after.

        Raises
        ------
        ReentrantCheckpoint
            If the graph has such a part, and `reentrant` does not say so.
        ModelError
            If a hook took a gradient away.
        """
        if self._needs_backward(found):
            with gradients_kept(batch):
                return self._backward(loss, found)
        try:
            gradients = torch.autograd.grad(loss, found.parameters, allow_unused=True)
        except RuntimeError as error:
            if "use_reentrant=True" in str(error):
                raise ReentrantCheckpoint(REENTRANT) from error
            raise
        if any(gradient is None for gradient in gradients):
            self._look_for_hidden(loss, [gradient is None for gradient in gradients], found)
        return list(apart(gradients))

    def _look_for_hidden(self, loss: Tensor, unused: list[bool], found: Found) -> None:
        """Refuse what was not reached if re-entrant checkpointing may hide it; what was looked at once is known."""
        if unused != self._unused:
            if has_reentrant(loss):
                name = found.kind.names[unused.index(True)]
                raise ReentrantCheckpoint(f"No gradient came for {name!r}. {REENTRANT}")
            self._unused = unused

    def _backward(self, loss: Tensor, found: Found) -> Gradients:
        leaves, names, parameters = found.leaves, found.kind.names, found.parameters
        if self.reentrant or leaves.wrapper in _SHARDED:
            torch.autograd.backward(loss)  # neither goes with inputs=
        else:
            torch.autograd.backward(loss, inputs=list(parameters))
        taken: Gradients = []
        for name, p in zip(names, parameters, strict=True):
            if p.grad is None and _hooks(p) and _is_reached(loss, p):
                raise ModelError(
                    f"A post-accumulate-grad hook took the gradient of {name!r} away before the optimizer's step, so "
                    "it cannot be told from one that was never reached. Leave p.grad in place, and let the loop's "
                    "optimizer take the step."
                )
            # DDP may have it as a view of a bucket, which the next backward writes into.
            taken.append(p.grad if p.grad is None or leaves.wrapper is None else p.grad.clone())
            p.grad = None
        return taken


@contextlib.contextmanager
def gradients_kept(*values: Any) -> Iterator[None]:
    """Whatever ``.grad`` the tensors among some values have, they have afterwards: a whole backward() writes theirs."""
    leaves = [leaf for leaf in tensors_of(values) if leaf.requires_grad and leaf.is_leaf]
    before = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    try:
        yield
    finally:
        for leaf, gradient in zip(leaves, before, strict=True):
            leaf.grad = gradient


@contextlib.contextmanager
def without_hooks(parameters: Sequence[Tensor]) -> Iterator[None]:
    """No post-accumulate-grad hook fires: a trial is nobody's business."""
    held = [(hooks, dict(hooks)) for hooks in map(_hooks, parameters) if hooks]
    for hooks, _ in held:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, kept in held:
            hooks.update(kept)


def as_accumulated(parameters: Iterable[Tensor], gradients: Iterable[Tensor | None]) -> Gradients:
    """Gradients laid out in memory as their parameters, as backward() would have left them in ``.grad``.

    torch's fused optimizers read memory as it lies, and get other strides wrong.
    """
    return [
        torch.empty_like(p, requires_grad=False).copy_(gradient)
        if gradient is not None and gradient.layout is torch.strided and gradient.stride() != p.stride()
        else gradient
        for p, gradient in zip(parameters, gradients, strict=True)
    ]


def _is_reached(loss: Tensor, parameter: Tensor) -> bool:
    return any(getattr(node, "variable", None) is parameter for node in nodes(loss))

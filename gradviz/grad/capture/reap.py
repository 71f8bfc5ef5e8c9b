"""`reap`: value, gradient, and what was captured on the way, in one backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate

import torch
from torch import Tensor, nn

from gradviz.errors import CaptureError, described
from gradviz.grad.algebra import Grad, M
from gradviz.grad.autodiff import apart, evaluated, other_leaves
from gradviz.grad.capture.capture import Capture, as_capture
from gradviz.grad.capture.captured import Captured
from gradviz.grad.capture.found import lengths
from gradviz.grad.capture.session import Session


def reap(
    f: Callable[Concatenate[M, ...], Tensor], capture: Capture | None = None
) -> Callable[Concatenate[M, ...], tuple[Tensor, Grad[M], Captured]]:
    """`value_and_grad` of a function, and the gradients of intermediate values: one forward and one backward pass.

    Parameters
    ----------
    f : callable
        As `value_and_grad` takes it: its first parameter is the model, and it returns a floating scalar.
    capture : Capture, optional
        Without it, everything that is sown. What is kept, if the capture does not say: the gradients themselves.

    Returns
    -------
    callable
        Of ``(model, *args, **kwargs)``; gives ``(value, gradient, captured)``: a detached scalar, a `Grad`, a
        `Captured`. Value, gradient and all that the model does are the same to the bit as without a capture.

    Raises
    ------
    CaptureError
        E1109: if `capture` is none.

    Examples
    --------
    Two products of one name, and the gradient of the second for the first example:

    >>> import gradviz as gv
    >>> model = nn.Linear(2, 2, bias=False)
    >>> _ = nn.init.eye_(model.weight)
    >>> def loss(m, x):
    ...     for _ in range(2):
    ...         x = gv.sow(m(x), "product")
    ...     return (x ** 2).sum()
    >>> value, g, captured = gv.reap(loss)(model, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> captured["product"][1].example(0).gradient
    tensor([2., 4.])
    >>> captured["product"]
    [Call('product', 0: norm 11), Call('product', 1: norm 11)]
    """
    wanted = as_capture(capture) or Capture()
    if not callable(f):
        raise CaptureError(f"reap takes a function of a model; got {described(f)}.")

    def reaped(model: M, /, *args: Any, **kwargs: Any) -> tuple[Tensor, Grad[M], Captured]:
        session = Session(wanted, "tensors", {"": model} if isinstance(model, nn.Module) else {})
        session.lengths = lengths((args, kwargs), wanted.batch_dim)

        wholes: dict[int, Tensor | None] = {}

        def take(value: Tensor, kind: Any, parameters: Any) -> Grad[Any]:
            session.shut()
            # A value that is made of no parameter may lead to the loss as well.
            others = other_leaves(value, parameters)
            with session.backward():
                gradients = torch.autograd.grad(value, [*parameters, *others], allow_unused=True)
            own = apart(gradients[: len(parameters)])
            wholes.update(zip(map(id, parameters), own, strict=True))
            return Grad._from(kind, parameters, own)

        try:
            session.attach()
            session.open()
            value, gradient = evaluated(f, model, args, kwargs, take)
            session.commit()
            return value, gradient, session.finish(reached=set(gradient) - set(gradient.unused), wholes=wholes)
        finally:
            session.shut()
            session.detach()

    return reaped

"""`sow` and `record_vjp`: values and functions that are given a name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from gradviz.errors import CaptureError, described
from gradviz.grad.capture import session as at_work
from gradviz.grad.capture.modules import copy_of, named
from gradviz.grad.capture.session import Session

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def sow(value: T, name: str) -> T:
    """Give a value a name under which its gradient can be captured; the value itself comes back.

    Write it anywhere in a forward pass, a function or an objective. Unless a capture is on, nothing else happens.

    Parameters
    ----------
    value : Tensor, or tensors in tuples, lists, mappings, dataclasses
        In those, each has a path behind the name: ``"state[0]"``, ``"output['logits']"``.
    name : str
        Given several times in one forward pass, it names several calls.

    Returns
    -------
    the value

    Raises
    ------
    CaptureError
        E1109: if the name is no text, or nothing.

    Examples
    --------
    >>> import gradviz as gv
    >>> from torch import nn
    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.constant_(model.weight, 3.0)
    >>> def f(m):
    ...     y = gv.sow(torch.sin(m.weight), "y")
    ...     return (y ** 2).sum()
    >>> value, g, captured = gv.reap(f)(model)
    >>> g.weight, captured["y"][0].gradient
    (tensor([[-0.2794]]), tensor([[0.2822]]))
    """
    _check_name(name)
    if at_work.open_sessions:
        _seen(value, name) if not torch.compiler.is_compiling() else _seen_outside(value, name)
    return value


def _seen(value: Any, name: str) -> None:
    for session in at_work.open_sessions:
        if not session.is_looking():
            continue
        if not session.capture.wants_sown(name):
            session.pass_by(name)
            continue
        with session.guarded():
            session.see(name, value)


_seen_outside = torch.compiler.disable(_seen)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        got = repr(name) if isinstance(name, str) else described(name)
        raise CaptureError(f'A captured value has a name, such as "attention"; got {got}.')


def record_vjp(f: Callable[P, R], name: str) -> Callable[P, R]:
    """A function, or a module, that has the gradients of its inputs and of its output captured at every call.

    Parameters
    ----------
    f : callable
        Of any arguments. Its tensors reach it as views of those that are given, so that the gradient of an input is
        that of this call alone, whatever else the tensor is used for; but for tensors in dataclasses and mappings of
        other kinds than dict, whose note says that their gradient is a total.
    name : str
        That of the output; the input that `f` takes as `x` is captured as ``"name(x)"``.

    Returns
    -------
    callable
        To be called as `f` is. Unless a capture is on, it does nothing else.

    Raises
    ------
    CaptureError
        E1109: if `f` cannot be called, or the name is no text.

    Examples
    --------
    >>> import gradviz as gv
    >>> from torch import nn
    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.constant_(model.weight, 3.0)
    >>> square = gv.record_vjp(lambda x: x ** 2, "square")
    >>> value, g, captured = gv.reap(lambda m: square(torch.sin(m.weight)).sum())(model)
    >>> captured["square(x)"][0].gradient, captured["square"][0].gradient
    (tensor([[0.2822]]), tensor([[1.]]))
    """
    if not callable(f):
        raise CaptureError(f"record_vjp wraps a function or a module; got {described(f)}.")
    _check_name(name)
    signature = f.forward if isinstance(f, torch.nn.Module) else f

    def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
        # With or without a capture, so that gradients add up in the same order.
        args, kwargs = tree_map(_view, (args, kwargs))
        sessions = [s for s in at_work.open_sessions if s.is_looking() and s.capture.wants_sown(name)]
        by_name = named(signature, args, kwargs) if sessions else {}
        own = set(map(id, tree_leaves((args, kwargs)))) if sessions else set()
        copies: dict[Session, dict[str, Any]] = {}
        for session in sessions:
            with session.guarded():
                if session.capture.values:
                    copies[session] = tree_map(copy_of, by_name)
                for parameter, given in by_name.items():
                    session.see_input(f"{name}({parameter})", given, own)
        output = f(*args, **kwargs)
        for session in sessions:
            with session.guarded():
                session.see(name, output, inputs=functools.partial(copies.get, session))
        return output

    return functools.wraps(f)(recorded) if hasattr(f, "__name__") else recorded


def _view(leaf: Any) -> Any:
    return leaf.view_as(leaf) if isinstance(leaf, Tensor) and leaf.requires_grad and torch.is_grad_enabled() else leaf

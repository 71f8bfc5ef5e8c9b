"""The hooks that a capture has on modules."""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from gradviz.grad.capture.examples import ModuleCall
from gradviz.grad.capture.found import tensors_in
from gradviz.grad.capture.writes import Writes

if TYPE_CHECKING:
    from gradviz.grad.capture.session import Session

_is_compiling = torch.compiler.is_compiling


class ModuleHook:
    """Looks at every call of one module.

    A model pickles and deep-copies with it on, and a copy has neither hook nor anything else of ours: there, in the
    place of each, is something of Python's own that does nothing.
    """

    def __init__(self, session: Session, name: str, module: nn.Module) -> None:
        self._session = session
        self._name = name
        self.module = weakref.ref(module)
        self._entered: list[Entry] = []
        self._wants_call = session.keep == "example_norms" and bool(module._parameters)
        # Of torch's own layers it is known what they do to their input; a second hook would cost half as much again.
        self._is_known = is_torchs(module) and not self._wants_call and not session.capture.values
        self._handles = [module.register_forward_hook(_Dies(self._leaves), with_kwargs=True)]
        if not self._is_known:
            self._handles.append(module.register_forward_pre_hook(_Dies(self._enters), with_kwargs=True))

    def begin(self) -> None:
        """Another iteration."""
        self._entered.clear()  # calls that raised have left theirs

    def remove(self) -> None:
        """Leave the module."""
        for handle in self._handles:
            handle.remove()

    def _enters(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._session.is_on:
            _outside(self._note, args, kwargs) if _is_compiling() else self._note(args, kwargs)

    def _leaves(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self._session.is_on:
            if _is_compiling():
                _outside(self._see, args, kwargs, output)
            else:
                self._see(args, kwargs, output)

    def _note(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        session = self._session
        if session.is_looking():
            self._entered.append(_NO_ENTRY)  # what cannot be copied is no reason to lose the gradient
            with session.guarded():
                self._entered[-1] = Entry(args, kwargs, copies=session.capture.values, keeps=self._wants_call)

    def _see(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        session = self._session
        if not session.is_looking():
            return
        if self._is_known and type(output) is Tensor:
            given = args[0] if args else next(iter(kwargs.values()), None)
            session.see_output(
                self._name, output, is_own=output is given and not getattr(self.module(), "inplace", False)
            )
            return
        with session.guarded():
            entry = self._entered.pop() if self._entered else _NO_ENTRY
            module = self.module()
            if module is None:
                return
            made_by = None
            if entry.args is not None and type(output) is Tensor:
                made_by = Made(module, entry.args, entry.kwargs)
            inputs = functools.partial(entry.named, module.forward) if session.capture.values else None
            session.see(self._name, output, inputs=inputs, entry=entry, of=made_by)

    def parameters(self) -> list[nn.Parameter]:
        """The module's own."""
        module = self.module()
        return [] if module is None else [p for p in module._parameters.values() if p is not None]

    def why_uncalled(self, name: str, reached: Collection[str]) -> str:
        """Why nothing was seen of the module."""
        module = self.module()
        own = [] if module is None else [f"{name}.{local}" for local in module._parameters]
        if any(parameter in reached for parameter in own):
            return "the module was not called: its weights are used directly"
        return "the module was not called"


class Made:
    """How a module made a value, whose parameters are asked about by example.

    Attributes
    ----------
    gradient : Tensor or None
        Of the value, once it has come.
    task : int
        Torch's number of the backward pass it came in.
    """

    def __init__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._module, self._args, self._kwargs = module, args, kwargs
        self._writes = [Writes(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        self.gradient: Tensor | None = None
        self.task = -1

    def call(self) -> ModuleCall:
        """For `parameter_example_norms`, once its gradient has come."""
        assert self.gradient is not None
        return ModuleCall(self._module, self._args, self._kwargs, self.gradient)

    def why_unknown(self) -> dict[int, str]:
        """Ids of parameters that nothing can be told of any more, and why."""
        if not any(writes.happened() for writes in self._writes):
            return {}
        why = "what its module was called with was written into afterwards"
        return {id(p): why for p in self._module._parameters.values() if p is not None and p.requires_grad}


class Entry:
    """What a module was called with."""

    __slots__ = ("_given", "_inputs", "args", "kwargs")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, copies: bool, keeps: bool) -> None:
        self._given = [(found.value, _version(found.value)) for found in tensors_in((args, kwargs))]
        self._inputs = tree_map(copy_of, (args, kwargs)) if copies else None
        self.args, self.kwargs = tree_map(_detached, (args, kwargs)) if keeps else (None, {})

    def handed_through(self, tensor: Tensor) -> bool:
        """Whether it is one of them, and nobody has written into it since."""
        for given, version in self._given:  # no generator: this is asked at every call of every module
            if given is tensor:
                return _version(tensor) == version
        return False

    def named(self, function: Callable[..., Any]) -> Mapping[str, Any]:
        """Copies of the arguments, by the names of the function's parameters."""
        args, kwargs = self._inputs if self._inputs is not None else ((), {})
        return named(function, args, kwargs)


_NO_ENTRY = Entry((), {}, copies=False, keeps=False)


def named(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the names of the parameters that take them; those that no name is known of, by their places.

    Examples
    --------
    >>> named(lambda x, *rest, scale=1: x, (1, 2), {"scale": 3})
    {'x': 1, 'rest[0]': 2, 'scale': 3}
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    found: dict[str, Any] = {}
    rest: str | None = None
    for place, value in enumerate(args):
        parameter = parameters[place] if rest is None and place < len(parameters) else None
        if parameter is not None and parameter.kind is parameter.VAR_POSITIONAL:
            rest, first = parameter.name, place
        if rest is not None:
            found[f"{rest}[{place - first}]"] = value
        elif parameter is not None and parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        ):
            found[parameter.name] = value
        else:
            found[f"[{place}]"] = value
    return {**found, **kwargs}


class _Dies:
    """A hook that lives in this process, on this module, and nowhere else."""

    def __init__(self, hook: Callable[..., None]) -> None:
        self._hook = hook

    def __call__(self, *args: Any) -> None:
        self._hook(*args)

    def __deepcopy__(self, memo: Any) -> Callable[..., None]:
        return contextlib.nullcontext().__exit__  # takes anything, and does nothing

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _outside(function: Callable[..., None], *args: Any) -> None:
    """As it is, between two compiled parts."""
    function(*args)


def is_torchs(module: nn.Module) -> bool:
    """Whether it is a layer of torch's, which writes into its input only if it is told to, by `inplace`."""
    return type(module).__module__.startswith("torch.nn.modules.") and not module._modules


def is_compiled(module: nn.Module) -> bool:
    """Whether calls of the module, or of what is in it, are compiled."""
    return "_orig_mod" in module._modules or module._compiled_call_impl is not None


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def copy_of(leaf: Any) -> Any:
    """A tensor's copy, and anything else as it is."""
    return leaf.detach().clone() if isinstance(leaf, Tensor) else leaf


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, Tensor) else leaf

"""What an optimizer will keep, learned before its first step.

Only the optimizer itself knows that NAdam keeps a product and Rprop a step size, and of which dtype. So a surrogate of
it, with the same options and no hooks, takes one step on parameters and gradients of zero.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import optimizer as registry
from torch.utils._pytree import tree_map

from gradviz.errors import RecordingWarning, warn


def template(optimizer: Optimizer, reached: Collection[Tensor]) -> dict[Tensor, dict[str, Any]]:
    """The state that the optimizer will have after a step, as zeros.

    The optimizer, its parameters and their gradients stay as they are, and none of its hooks fires. What an optimizer
    of the user's own reaches besides (random streams, a model it holds) is for the caller to put back.

    Where torch's own optimizers keep anything for a parameter, they keep all of it. One of the user's may begin with a
    part, such as a count, and add the rest in a step.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
    reached : collection of tensors
        The optimizer's parameters that have a gradient.

    Returns
    -------
    dict
        By parameter, for those of `reached` of whose state something is missing yet: all of that state, in the step's
        order. The others have their real one.

    Examples
    --------
    >>> p = nn.Parameter(torch.ones(2))
    >>> template(torch.optim.RMSprop([p]), [p])[p]
    {'step': tensor(0.), 'square_avg': tensor([0., 0.])}
    """
    reached = set(reached)
    held = {p: place for place, group in enumerate(optimizer.param_groups) for p in group["params"]}
    new = {p for p in held if p in reached and not keeps(optimizer.state, p)}
    due = {p: place for p, place in held.items() if p in (new if is_torch_s(type(optimizer)) else reached)}
    if not due:
        return {}
    try:
        made = _try_out(optimizer, held, due)
        return {p: state for p, state in made.items() if p in new or not has_all_of(optimizer.state[p], state)}
    except Exception as error:
        if not new:
            return {}  # what has a state may well choke on zeros in its place, and most likely misses nothing
        warn(
            f"What {type(optimizer).__name__} keeps for each parameter shows in optimizer_state after the first step "
            f"only: a step on zeros, tried before it, raised {type(error).__name__}: {error}",
            RecordingWarning,
        )
        return {}


def is_torch_s(kind: type[Optimizer]) -> bool:
    """Whether a class of optimizers is one of torch's own, which are known to the letter.

    Examples
    --------
    >>> class Mine(torch.optim.SGD): ...
    >>> is_torch_s(torch.optim.SGD), is_torch_s(Mine)
    (True, False)
    """
    return f"{kind.__module__}.".startswith("torch.optim.")


def needs_closure(optimizer: Optimizer) -> bool:
    """Whether the optimizer's step must be given a function that evaluates the loss, as that of LBFGS must.

    Examples
    --------
    >>> p = [nn.Parameter(torch.ones(2))]
    >>> needs_closure(torch.optim.LBFGS(p)), needs_closure(torch.optim.Adam(p))
    (True, False)
    """
    _, *arguments = inspect.signature(type(optimizer).step).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(argument.kind in positional and argument.default is argument.empty for argument in arguments)


def _try_out(optimizer: Optimizer, held: Mapping[Tensor, int], due: Mapping[Tensor, int]) -> dict[Tensor, Any]:
    gradient_of = _sparse_zeros if isinstance(optimizer, torch.optim.SparseAdam) else torch.zeros_like
    # torch's own optimizers take each parameter by itself, and pass over those without a gradient: one of each shape
    # is enough. One of the user's may look at all of them.
    by_itself = is_torch_s(type(optimizer)) and not isinstance(optimizer, torch.optim.LBFGS)
    first: dict[Any, Tensor] = {}
    like = {p: first.setdefault(_looks(p, place), p) if by_itself else p for p, place in due.items()}
    nothing = torch.empty(0)
    twins = {p: nothing if by_itself and like.get(p) is not p else _twin(p) for p in held}
    tried = {twins[p] for p in like.values()}

    def zero_loss() -> Tensor:
        for twin in tried:
            if twin.grad is None:
                twin.grad = gradient_of(twin)
        return torch.zeros(())

    zero_loss()
    stand_in = _StandIns(twins)
    surrogate: Any = stand_in(optimizer)
    if not is_torch_s(type(optimizer)):  # which may look for a state in ways that do not ask for one
        for p in due:
            if keeps(optimizer.state, p):
                surrogate.state[twins[p]]  # made by being asked for
    step: Callable[..., Any] = type(optimizer).step
    with _no_global_hooks():
        step(surrogate, zero_loss) if needs_closure(optimizer) else step(surrogate)
    state = surrogate.state
    return {p: zeros(state[twins[one]]) for p, one in like.items() if keeps(state, twins[one])}


def keeps(state: Mapping[Any, Any], p: Tensor) -> bool:
    """Whether an optimizer's state has anything for `p`: reading it may leave an empty dict there."""
    return p in state and (not isinstance(state[p], Mapping) or len(state[p]) > 0)


def has_all_of(kept: Any, template: Any) -> bool:
    """Whether what is kept has each key of a template, also in dicts inside.

    Examples
    --------
    >>> has_all_of({"step": 3}, {"step": 0, "m": torch.zeros(2)})
    False
    """
    if not (isinstance(kept, Mapping) and isinstance(template, Mapping)):
        return True
    return all(key in kept and has_all_of(kept[key], part) for key, part in template.items())


def completed(kept: Any, template: Any) -> Any:
    """What is kept, and what it misses of a template, in the template's order.

    Examples
    --------
    >>> completed({"step": 3}, {"m": 0.0, "step": 0})
    {'m': 0.0, 'step': 3}
    """
    if not (isinstance(kept, Mapping) and isinstance(template, Mapping)):
        return kept
    both = {key: completed(kept[key], part) if key in kept else part for key, part in template.items()}
    return {**both, **{key: part for key, part in kept.items() if key not in both}}


def zeros(value: Any) -> Any:
    """`value` with each tensor and number in it as zero."""
    if type(value) is dict:  # what nearly all are: a third of the time that tree_map takes
        return {key: zeros(item) for key, item in value.items()}
    return _zero(value) if isinstance(value, Tensor) else tree_map(_zero, value)


def _zero(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return torch.zeros_like(leaf, requires_grad=False)
    if isinstance(leaf, np.ndarray):
        return np.zeros_like(leaf)
    is_number = type(leaf) in (bool, int, float, complex) or isinstance(leaf, np.number | np.bool_)
    return type(leaf)(0) if is_number else leaf


def _looks(p: Tensor, place: int) -> tuple[Any, ...]:
    return place, type(p), p.shape, p.dtype, p.device, p.stride() if p.layout is torch.strided else p.layout


def _sparse_zeros(p: Tensor) -> Tensor:
    return torch.zeros_like(p, layout=torch.sparse_coo, requires_grad=False)


def _twin(p: Tensor) -> Tensor:
    zero = torch.zeros_like(p, requires_grad=False)
    twin = nn.Parameter(zero, p.requires_grad) if isinstance(p, nn.Parameter) else zero.requires_grad_(p.requires_grad)
    vars(twin).update(vars(p))  # marks that the user has put on it, such as a kind of layer
    return twin


class _StandIns:
    """Maps what an optimizer holds to what its surrogate holds, each thing once.

    Parameters become their twins, optimizers surrogates; other tensors, containers and random streams are copied, so
    that the surrogate writes into none of the real ones. Anything else is shared.
    """

    def __init__(self, twins: Mapping[Tensor, Tensor]) -> None:
        self._made: dict[int, Any] = {id(p): twin for p, twin in twins.items()}

    def __call__(self, value: Any) -> Any:
        if id(value) in self._made:
            return self._made[id(value)]
        if isinstance(value, Optimizer):
            return self._surrogate(value)
        if isinstance(value, types.MethodType) and isinstance(value.__self__, Optimizer):
            return types.MethodType(value.__func__, self(value.__self__))
        if isinstance(value, Tensor):
            return self._keep(value, value.detach().clone().requires_grad_(value.requires_grad))
        if isinstance(value, torch.Generator):
            return self._keep(value, value.clone_state())
        if isinstance(value, np.ndarray | np.random.Generator | np.random.RandomState):
            return self._keep(value, copy.deepcopy(value))
        if isinstance(value, tuple):
            items = list(map(self, value))
            unchanged = all(one is other for one, other in zip(items, value, strict=True))
            return value if unchanged else getattr(type(value), "_make", type(value))(items)
        if isinstance(value, dict | list | set | deque):
            return self._container(value)
        return value

    def blank(self, state: Any) -> Any:
        """What is kept for a parameter, as zeros; objects of the user's own in it are copied."""
        return tree_map(self._copied, zeros(state))

    def _copied(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor | np.ndarray):
            return leaf  # a zero is nobody else's
        made = self(leaf)
        return copy.deepcopy(leaf, dict(self._made)) if made is leaf else made

    def _keep(self, value: Any, made: Any) -> Any:
        self._made[id(value)] = made
        return made

    def _container(self, value: Any) -> Any:
        made = self._keep(value, copy.copy(value))
        made.clear()
        if isinstance(value, dict):
            made.update((self(key), self(item)) for key, item in value.items())
        elif isinstance(value, set):
            made.update(map(self, value))
        else:
            made.extend(map(self, value))
        return made

    def _surrogate(self, optimizer: Optimizer) -> Any:
        made = self._keep(optimizer, object.__new__(type(optimizer)))
        for name, value in vars(optimizer).items():
            if name == "step":  # a learning rate scheduler puts one there, which steps the real optimizer
                continue
            if name == "state" and isinstance(value, dict) and id(value) not in self._made:
                self._keep(value, _State(value, self))
            is_hooks = name.startswith("_optimizer_") and name.endswith("_hooks")
            vars(made)[name] = OrderedDict() if is_hooks else self(value)
        return made


class _State(defaultdict[Any, Any]):
    """A surrogate's state: what the real one holds for a parameter is copied, as zeros, when it is asked for."""

    def __init__(self, real: Mapping[Any, Any], stand_in: _StandIns) -> None:
        super().__init__(dict, {key: stand_in(value) for key, value in real.items() if not isinstance(key, Tensor)})
        self._real = {stand_in(p): state for p, state in real.items() if isinstance(p, Tensor)}
        self._stand_in = stand_in

    def __missing__(self, key: Any) -> Any:
        self[key] = self._stand_in.blank(self._real[key]) if key in self._real else {}
        return self[key]


@contextlib.contextmanager
def _no_global_hooks() -> Iterator[None]:
    """Hooks on every optimizer's step are left out, also where a step calls that of its base class."""
    tables: list[dict[int, Callable[..., Any]]] = [
        registry._global_optimizer_pre_hooks,
        registry._global_optimizer_post_hooks,
    ]
    kept = [dict(table) for table in tables]
    try:
        for table in tables:
            table.clear()
        yield
    finally:
        for table, hooks in zip(tables, kept, strict=True):
            hooks.update(table)  # those that came meanwhile
            table.clear()
            table.update(hooks)

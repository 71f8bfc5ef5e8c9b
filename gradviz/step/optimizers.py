"""An optimizer from a name, a factory or an instance, and what it keeps for each parameter."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import optimizer as registry
from torch.utils import _pytree as pytree

from gradviz.errors import OptimizerError, described, nearest
from gradviz.step.surrogate import completed, has_all_of, is_torch_s, keeps

Optimizer = torch.optim.Optimizer
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    name.lower(): kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, Optimizer) and kind is not Optimizer
}
"""torch.optim's own classes by lower-case name, with torch's defaults."""


def build_optimizer(optimizer: Any, parameters: Iterable[Tensor], *, own: Collection[Tensor] = ()) -> Optimizer:
    """The optimizer over `parameters`; an instance is taken as it is.

    Parameters
    ----------
    optimizer : str, callable or torch.optim.Optimizer
    parameters : iterable of tensors
        What it works on: the model's parameters, with float32 copies in place of 16-bit ones.
    own : collection of tensors
        The model's 16-bit parameters, which have a copy.

    Raises
    ------
    OptimizerError
        If the name is unknown, the factory makes something else, or the optimizer holds none of the parameters, others
        than these, or 16-bit ones.
    """
    parameters = list(parameters)
    made = _build(optimizer, parameters)
    held = held_by(made)
    _check_copies(made, held, own)
    known = {id(p) for p in parameters}
    n_known = sum(id(p) in known for p in held)
    if not n_known:
        raise OptimizerError(
            f"The {type(made).__name__} holds none of this model's {len(parameters)} parameters, so nothing would "
            f"train. Write {type(made).__name__}(model.parameters(), ...), with this very model."
        )
    if n_known < len(held):
        raise OptimizerError(
            f"The {type(made).__name__} holds {len(held) - n_known} of {len(held)} parameters that are not the model's "
            "and would not be trained. Make what they belong to a part of the model, such as model.loss = loss."
        )
    return made


def held_by(optimizer: Optimizer, *, moved: bool = False) -> list[Tensor]:
    """The parameters in its groups; or those that it moves, in groups whose learning rate is not 0.

    Examples
    --------
    >>> still, moving = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.ones(1))
    >>> optimizer = torch.optim.SGD([{"params": [still], "lr": 0.0}, {"params": [moving]}], lr=0.1)
    >>> len(held_by(optimizer)), held_by(optimizer, moved=True)[0].item()
    (2, 1.0)
    """
    return [p for group in optimizer.param_groups if not moved or rate(group) != 0 for p in group["params"]]


def rate(group: Mapping[str, Any]) -> float:
    """The learning rate of a group; 1 where there is none, as an optimizer of the user's own may have it."""
    return float(group.get("lr", 1.0))


class WhoMoves:
    """What `held_by` depends on, as it was when somebody looked; not the rate itself, which a schedule sets anew.

    Examples
    --------
    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    >>> seen = WhoMoves(optimizer)
    >>> optimizer.param_groups[0]["lr"] = 0.01
    >>> seen.is_as_before()
    True
    >>> optimizer.param_groups[0]["lr"] = 0.0
    >>> seen.is_as_before()
    False
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._groups = [(bool(group.get("lr", 1.0)), list(group["params"])) for group in optimizer.param_groups]

    def is_as_before(self) -> bool:
        """Whether the same parameters are moved still."""
        groups = self._optimizer.param_groups
        if len(groups) != len(self._groups):
            return False
        for group, (moves, held) in zip(groups, self._groups, strict=True):
            now = group["params"]
            if len(now) != len(held) or bool(group.get("lr", 1.0)) is not moves:
                return False
            if not all(map(operator.is_, now, held)):
                return False
        return True


def rewrites_gradients(optimizer: Optimizer) -> bool:
    """Whether a step of the optimizer may write into the gradients that it is given.

    Hooks may, and an optimizer of the user's own. Torch's own leave gradients alone, but for SGD with Nesterov's
    momentum where it goes through many tensors at once, as it does by default on a GPU, and for fused ones that are
    given a scale to take out.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer

    Examples
    --------
    >>> optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))])
    >>> rewrites_gradients(optimizer)
    False
    >>> _ = optimizer.register_step_pre_hook(lambda *args: None)
    >>> rewrites_gradients(optimizer)
    True
    """
    if not is_torch_s(type(optimizer)) or _is_step_replaced(optimizer):
        return True
    if _has_hooks(optimizer) or vars(optimizer).get("grad_scale") is not None:
        return True
    is_sgd = isinstance(optimizer, torch.optim.SGD)
    return is_sgd and any(group["nesterov"] and _takes_many_at_once(group) for group in optimizer.param_groups)


def take_step(optimizer: Optimizer) -> None:
    """``optimizer.step()``, without what torch wraps around it for its profiler and for hooks, where there are none.

    The wrapper opens a label for the profiler: of an MLP's step of 3.3 ms, 2 to 3 %. Another one, within, switches
    gradients off in a way that `torch.compile` understands: 0.5 %. A learning rate scheduler puts one more around it,
    which notes that a step was taken; that is noted here.
    """
    kind: Any = type(optimizer)
    is_scheduled = "step" in vars(optimizer)
    within = _within_wrappers(kind, kind.step)
    if (
        within is None
        or _has_hooks(optimizer)
        or torch.autograd._profiler_enabled()  # type: ignore[attr-defined]
        or (is_scheduled and _is_step_replaced(optimizer))
    ):
        optimizer.step()
        return
    if is_scheduled:
        optimizer._opt_called = True  # type: ignore[attr-defined]
    if optimizer.defaults.get("differentiable", True):
        kind.step.__wrapped__(optimizer)
        return
    was_enabled = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        within(optimizer)
    finally:
        torch._C._set_grad_enabled(was_enabled)


@functools.lru_cache(maxsize=8)
def _within_wrappers(kind: Any, step: Any) -> Callable[[Optimizer], Any] | None:
    """What torch's own two wrappers have inside, if they alone are around the step of one of torch's own classes."""
    # By their code: whoever patches a class with functools.wraps copies every mark that torch has left on it.
    if getattr(step, "__code__", None) is not _WRAPPER or not is_torch_s(kind):
        return None
    within: Callable[[Optimizer], Any] = step.__wrapped__
    is_switch = _SWITCH is not None and getattr(within, "__code__", None) is _SWITCH
    return within.__wrapped__ if is_switch else within  # type: ignore[attr-defined]


def _nothing(optimizer: Optimizer) -> None:
    pass


_WRAPPER = Optimizer.profile_hook_step(_nothing).__code__
_switch = getattr(registry, "_use_grad_for_differentiable", None)  # no part of torch's interface
_SWITCH = None if _switch is None else _switch(_nothing).__code__


def _has_hooks(optimizer: Optimizer) -> bool:
    """Whether something of a step is for hooks: its own, or those of every optimizer."""
    return bool(
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or registry._global_optimizer_pre_hooks
        or registry._global_optimizer_post_hooks
    )


def _is_step_replaced(optimizer: Optimizer) -> bool:
    step = vars(optimizer).get("step")
    if step is None:
        return False
    # A learning rate scheduler wraps what it finds: the class's own step, or one that is a replacement itself.
    is_scheduler_s = hasattr(step, "_wrapped_by_lr_sched") and step.__wrapped__ is type(optimizer).step
    return not is_scheduler_s


def _takes_many_at_once(group: Mapping[str, Any]) -> bool:
    if group["foreach"] is None and group["fused"] is None:
        return not all(map(_is_cpu, group["params"]))  # elsewhere it is torch's default
    return bool(group["foreach"])


_is_cpu = operator.attrgetter("is_cpu")


def _check_copies(made: Optimizer, held: Iterable[Tensor], own: Collection[Tensor]) -> None:
    copied = {id(p) for p in own}
    wrong = [p for p in held if id(p) in copied]
    if not wrong:
        return
    dtype = str(wrong[0].dtype).removeprefix("torch.")
    raise OptimizerError(
        f"The {type(made).__name__} holds {len(wrong)} of the model's {dtype} parameters, but 16-bit parameters need "
        "float32 copies in the optimizer: small updates would be lost in them. Pass a factory, which is given the "
        f"copies:{_as_factory(made)}"
    )


def _as_factory(made: Optimizer) -> str:
    """The lines to write for a factory that makes such an optimizer."""
    kind = f"torch.optim.{type(made).__name__}" if is_torch_s(type(made)) else type(made).__name__
    each = [_options(made, group) for group in made.param_groups]
    shared = {name: word for name, word in each[0].items() if all(options.get(name) == word for options in each)}
    keywords = "".join(f", {name}={word}" for name, word in shared.items())
    if len(each) == 1:
        return f" functools.partial({kind}{keywords})."
    lines = [
        "def make(params):",
        "    named = dict(zip(dict(model.named_parameters()), params))",
        f"    return {kind}([",
    ]
    for group, options in zip(made.param_groups, each, strict=True):
        own = "".join(f', "{name}": {word}' for name, word in options.items() if name not in shared)
        n = len(group["params"])
        lines.append(f'        {{"params": [named[name] for name in (...)]{own}}},  # {n} parameter{"s" * (n != 1)}')
    return "\n\n" + "\n".join([*lines, f"    ]{keywords})"])


def _options(made: Optimizer, group: Mapping[str, Any]) -> dict[str, str]:
    """How the learning rate of a group is written, and each option that is not the class's default."""
    began = {**group, "lr": group.get("initial_lr", group.get("lr"))}  # a scheduler has the first one kept
    defaults = {name: parameter.default for name, parameter in inspect.signature(type(made)).parameters.items()}
    return {
        name: _written(began[name])
        for name, default in defaults.items()
        if name in group and name != "params" and (name == "lr" or _written(began[name]) != _written(default))
    }


def _written(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"torch.tensor({value.item():g})" if value.numel() == 1 else f"torch.tensor({value.tolist()})"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else repr(value)


def _build(optimizer: Any, parameters: list[Tensor]) -> Optimizer:
    if isinstance(optimizer, Optimizer):
        return optimizer
    if isinstance(optimizer, str):
        if optimizer.lower() not in OPTIMIZERS:
            raise OptimizerError(f"No optimizer is called {optimizer!r}: {nearest(optimizer, OPTIMIZERS)}")
        return OPTIMIZERS[optimizer.lower()](parameters)
    if callable(optimizer):
        try:
            made = optimizer(parameters)
        except Exception as error:
            error.add_note(
                f"In the optimizer factory. It is given a list of {len(parameters)} tensors in the order of "
                "model.named_parameters(), float32 copies in place of 16-bit ones: look them up by position, not by id."
            )
            raise
        if isinstance(made, Optimizer):
            return made
        raise OptimizerError(f"The optimizer factory returned {described(made)}, not a torch.optim.Optimizer.")
    raise OptimizerError(
        f"An optimizer is a name, a factory or a torch.optim.Optimizer; got {described(optimizer)}. "
        'Write "adam", or functools.partial(torch.optim.SGD, lr=0.1).'
    )


class OptimizerState(Mapping[str, dict[str, Any]]):
    """What the optimizer keeps for each parameter, by the parameter's name; live.

    Before a parameter's first step it is what `template` has for it: zeros in the shapes and dtypes that the step will
    make, and what the optimizer keeps for it already. A parameter that neither the optimizer nor the template knows is
    absent.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
    names : callable
        Gives the tensors in the optimizer by the name of their parameter, in declaration order.
    template : dict from tensor to dict

    Examples
    --------
    >>> model = torch.nn.Linear(1, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    >>> state = OptimizerState(optimizer, lambda: dict(model.named_parameters()), {})
    >>> list(state)
    []
    >>> model(torch.ones(1, 1)).sum().backward()
    >>> optimizer.step()
    >>> state["weight"]
    {'momentum_buffer': tensor([[1.]])}
    """

    def __init__(
        self,
        optimizer: Optimizer,
        names: Callable[[], Mapping[str, Tensor]],
        template: dict[Tensor, dict[str, Any]],
    ) -> None:
        self.optimizer = optimizer
        self._names = names
        self.template = template

    def __getitem__(self, name: str) -> dict[str, Any]:
        names = self._names()
        if name not in names:
            raise KeyError(f"{name!r}: {nearest(name, names)}")
        state = self._state(names[name])
        if state is None:
            raise KeyError(f"{name!r}: {type(self.optimizer).__name__} keeps nothing for it")
        return state

    def settle(self) -> None:
        """Let go of the template of each parameter for which the optimizer keeps all of it by now."""
        for p in tuple(self.template):
            if self._is_all_there(p):
                del self.template[p]

    def _is_all_there(self, p: Tensor) -> bool:
        kept = self.optimizer.state
        return keeps(kept, p) and has_all_of(kept[p], self.template.get(p))

    def _state(self, p: Tensor) -> dict[str, Any] | None:
        if not keeps(self.optimizer.state, p):
            return self.template.get(p)
        state: dict[str, Any] = self.optimizer.state[p]
        return state if self._is_all_there(p) else completed(state, self.template[p])

    def __iter__(self) -> Iterator[str]:
        return (name for name, p in self._names().items() if self._state(p) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def items(self) -> ItemsView[str, dict[str, Any]]:
        """Names and states; the names are asked for once."""
        states = {name: self._state(p) for name, p in self._names().items()}
        return {name: state for name, state in states.items() if state is not None}.items()

    def __repr__(self) -> str:
        return f"OptimizerState of {type(self.optimizer).__name__}: {len(self)} parameters"


def _flatten(state: OptimizerState) -> tuple[list[Any], list[str]]:
    states = dict(state.items())
    return list(states.values()), list(states)


def _flatten_with_keys(state: OptimizerState) -> tuple[list[tuple[Any, Any]], list[str]]:
    return [(pytree.MappingKey(name), kept) for name, kept in state.items()], list(state)


pytree.register_pytree_node(
    OptimizerState,
    _flatten,
    lambda states, names: dict(zip(names, states, strict=True)),
    serialized_type_name="gradviz.OptimizerState",
    flatten_with_keys_fn=_flatten_with_keys,
)

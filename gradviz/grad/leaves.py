"""The leaves of a model: which tensors it is differentiated by, and what they are called.

Names are torch's own, without the prefixes of wrappers such as `torch.compile`. A tied parameter is one leaf, under its
first name; its other names are aliases.
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gradviz.errors import ModelError


@dataclass(frozen=True)
class Kind:
    """What a gradient is a gradient of. Two belong together when class, names and shapes agree.

    Attributes
    ----------
    model : str
        Qualified name of the model's class: a class that a notebook cell defines again is still the same one.
    names, shapes, dtypes : tuples, one entry for each trainable parameter, in declaration order
    order : tuple of every name in declaration order, aliases too
    aliases : dict of str to str
        Other names of tied parameters, and the name each resolves to.
    buffers, frozen : frozensets of str
        Names that have no gradient, and why.
    modules : dict of str to str
        The class of every submodule, by its path.
    """

    model: str
    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    dtypes: tuple[torch.dtype, ...] = field(compare=False, repr=False, default=())
    order: tuple[str, ...] = field(compare=False, repr=False, default=())
    aliases: dict[str, str] = field(compare=False, repr=False, default_factory=dict)
    buffers: frozenset[str] = field(compare=False, repr=False, default=frozenset())
    frozen: frozenset[str] = field(compare=False, repr=False, default=frozenset())
    modules: dict[str, str] = field(compare=False, repr=False, default_factory=dict)

    _children: dict[str, tuple[Kind, tuple[str, ...]]] = field(compare=False, repr=False, default_factory=dict)

    @functools.cached_property
    def largest(self) -> int:
        """Entries of the largest parameter."""
        return max((shape.numel() for shape in self.shapes), default=0)

    def child(self, path: str) -> tuple[Kind, tuple[str, ...]]:
        """The kind of a submodule, and the names its leaves have in the whole model."""
        if path not in self._children:
            self._children[path] = self._part(path)
        return self._children[path]

    def _part(self, path: str) -> tuple[Kind, tuple[str, ...]]:
        inside = f"{path}."

        def cut(names: Iterable[str]) -> list[str]:
            return [name.removeprefix(inside) for name in names if name.startswith(inside)]

        # A parameter tied to one outside is a leaf here, under the first name it has here.
        leaves: dict[str, str] = {}
        first: dict[str, str] = {}
        aliases: dict[str, str] = {}
        for here in cut(self.order):
            name = self.aliases.get(inside + here, inside + here)
            if name in first:
                aliases[here] = first[name]
            else:
                first[name] = here
                leaves[here] = name
        places = {name: place for place, name in enumerate(self.names)}
        part = Kind(
            self.modules[path],
            tuple(leaves),
            tuple(self.shapes[places[name]] for name in leaves.values()),
            tuple(self.dtypes[places[name]] for name in leaves.values()),
            tuple(cut(self.order)),
            aliases,
            frozenset(cut(self.buffers)),
            frozenset(cut(self.frozen)),
            {name: self.modules[inside + name] for name in cut(self.modules)},
        )
        return part, tuple(leaves.values())


class Leaves:
    """The parameters, aliases and buffers of one module, as long as its tree stays the same."""

    def __init__(self, module: nn.Module) -> None:
        self.model = class_name(module)
        self.parameters: dict[str, nn.Parameter] = {}
        self.aliases: dict[str, str] = {}
        self.buffers: list[str] = []
        self.modules: dict[str, str] = {}
        self.wrapper: str | None = None
        self.is_lazy = False
        self.is_compiled = False
        self.looks: Any = None
        """How the parameters look to `trainable`: the same object for as long as none of them is given other data or
        another flag."""
        self._order: list[str] = []
        self._kind: Kind | None = None
        self._trainable: list[nn.Parameter] = []
        self._module_tables: list[Mapping[str, object]] = []
        self._parameter_tables: list[Mapping[str, object]] = []
        self._buffer_tables: list[Mapping[str, Tensor | None]] = []
        self._paths: list[str] = []
        first_names: dict[int, str] = {}
        for path, child in walk(module):
            self.modules.setdefault(path.rstrip("."), class_name(child))
            self.wrapper = self.wrapper or wrapper_name(child)
            self.is_compiled = self.is_compiled or "_orig_mod" in child._modules
            self._module_tables.append(child._modules)
            self._parameter_tables.append(child._parameters)
            self._buffer_tables.append(child._buffers)
            self._paths.append(path)
            self.buffers += [path + name for name, buffer in child._buffers.items() if buffer is not None]
            for name, p in child._parameters.items():
                if p is None:
                    continue
                self.is_lazy = self.is_lazy or is_lazy(p)
                self._order.append(path + name)
                first = first_names.setdefault(id(p), path + name)
                if first == path + name:
                    self.parameters[first] = p
                else:
                    self.aliases[path + name] = first
        tables = [*self._module_tables, *self._parameter_tables]
        self._empty = [table for table in (*tables, *self._buffer_tables) if not table]
        self._full = [table for table in tables if table]
        self._named = [table for table in (*tables, *self._buffer_tables) if table]
        self._names = [*chain.from_iterable(self._named)]
        self._held = [*chain.from_iterable(map(_values, self._full)), *_END]  # so that no id is used again
        self.is_circular = any(value is module for value in self._held)
        self._look = _glance if all(map(_has_a_place, self.parameters.values())) else _look

    def changed(self) -> bool:
        """Whether a module or parameter was replaced, added or removed, or a parameter or buffer named.

        Between two steps, with nothing of it in the caches, this takes 110 microseconds for 400 modules; the names and
        ids of everything took 630. What is there is compared by identity, which reads no object but its table, and
        what is empty is only asked whether it still is.
        """
        values = chain(chain.from_iterable(map(_values, self._full)), _END)
        return (
            any(self._empty)
            or not all(map(operator.is_, values, self._held))
            or [*chain.from_iterable(self._named)] != self._names
        )

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Every buffer as it is now, also under each further name."""
        for path, table in zip(self._paths, self._buffer_tables, strict=True):
            for name, buffer in table.items():
                if buffer is not None:
                    yield path + name, buffer

    def trainable(self) -> tuple[Kind, list[nn.Parameter]]:
        """What a gradient taken now is a gradient of, and the parameters it is taken by."""
        looks = None if self.is_lazy else self._look(self.parameters.values())
        if looks is not None and self._kind is not None and looks == self.looks:
            return self._kind, self._trainable
        names, parameters = [], []
        for name, p in self.parameters.items():
            if p.requires_grad:
                names.append(name)
                parameters.append(p)
        self.is_lazy = self.is_lazy and any(map(is_lazy, self.parameters.values()))
        if self.is_lazy and any(map(is_lazy, parameters)):
            raise ModelError(
                "The model has lazy parameters that have no shape yet. Run one batch first: model(inputs)."
            )
        shapes = tuple([p.shape for p in parameters])
        dtypes = tuple([p.dtype for p in parameters])
        kind = self._kind
        if kind is None or kind.names != tuple(names) or kind.shapes != shapes or kind.dtypes != dtypes:
            held = set(names)
            kind = self._kind = Kind(
                self.model,
                tuple(names),
                shapes,
                dtypes,
                tuple(name for name in self._order if self.aliases.get(name, name) in held),
                {alias: name for alias, name in self.aliases.items() if name in held},
                frozenset(self.buffers),
                frozenset(
                    [name for name in self.parameters if name not in held]
                    + [alias for alias, name in self.aliases.items() if name not in held]
                ),
                {path: model for path, model in self.modules.items() if path},
            )
        self.looks, self._trainable = looks, parameters
        return kind, parameters


_END = (object(),)
"""Behind what tables hold, so that one that has lost its last is seen."""
_requires_grad = operator.attrgetter("requires_grad")
_details = operator.attrgetter("requires_grad", "shape", "dtype")
_values = operator.methodcaller("values")


def _glance(parameters: Iterable[Tensor]) -> Any:
    """Flags and places in memory: what is given another shape or dtype lies elsewhere.

    Of 400 parameters between two steps: 115 microseconds, where shapes and dtypes take 265.
    """
    return [*map(_requires_grad, parameters)], [*map(Tensor.data_ptr, parameters)]


def _look(parameters: Iterable[Tensor]) -> Any:
    return [*map(_details, parameters)]


def _has_a_place(p: Tensor) -> bool:
    """Whether a parameter lies in memory of its own: not on the meta device, sharded, fake or empty."""
    return type(p) is nn.Parameter and p.layout is torch.strided and not p.is_meta and p.numel() > 0


_known: OrderedDict[int, tuple[weakref.ref[nn.Module], Leaves]] = OrderedDict()

MOST_KNOWN = 4
"""Models remembered. What is remembered holds the children, and one of those may lead back to the model, by a hook say:
so many dead models linger at most."""


def leaves_of(module: nn.Module) -> Leaves:
    """The leaves of a module as it is now; found once, and anew when its tree changes."""
    key = id(module)  # by identity: a module may have an equality of its own
    entry = _known.get(key)
    if entry is not None and entry[0]() is module and not entry[1].changed():
        return entry[1]
    known = Leaves(module)
    if not known.is_circular:
        _known[key] = weakref.ref(module, lambda dead: _forget(key, dead)), known
        _known.move_to_end(key)
        while len(_known) > MOST_KNOWN:
            _known.popitem(last=False)
    return known


def _forget(key: int, dead: weakref.ref[nn.Module]) -> None:
    if key in _known and _known[key][0] is dead:
        del _known[key]


def walk(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module with its path (``"encoder.0."``), in declaration order, also under each further name.

    A wrapper and the module inside it have the same path. Not by recursion, so that a thousand levels are fine; a
    module inside itself is visited once.
    """
    stack: list[tuple[str, nn.Module, frozenset[int]]] = [("", module, frozenset())]
    while stack:
        path, child, above = stack.pop()
        if id(child) in above:
            continue
        yield path, child
        within = above | {id(child)}
        inner = inner_name(child)
        children = [
            (path if name == inner else f"{path}{name}.", part, within)
            for name, part in child._modules.items()
            if part is not None
        ]
        stack.extend(reversed(children))


INNER_NAMES = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "ActivationWrapper": "_checkpoint_wrapped_module",
}
"""What torch's wrappers, by the name of their class, call the module inside."""


def inner_name(module: nn.Module) -> str | None:
    """What one of torch's wrappers calls the module inside; None for any other module.

    A subclass of theirs that holds something more beside it keeps the name as part of the path, or the two could meet.

    Examples
    --------
    >>> inner_name(nn.DataParallel(nn.Linear(1, 1)))
    'module'
    >>> inner_name(nn.ModuleDict({"module": nn.Linear(1, 1)}))
    """
    for kind in type(module).__mro__:
        name = INNER_NAMES.get(kind.__name__)
        if name is not None and kind.__module__.startswith("torch."):
            is_alone = list(module._modules) == [name] and not module._parameters and not module._buffers
            return name if is_alone else None
    return None


def class_name(module: nn.Module) -> str:
    """The qualified name of a module's class; of the one inside, where one of torch's wrappers is around it."""
    inner = inner_name(module)
    while inner is not None:
        module = module.get_submodule(inner)
        inner = inner_name(module)
    kind = type(module)
    if wrapper_name(module) == "FSDPModule":  # a class that fully_shard has put in the place of the model's own
        kind = kind.__mro__[2]
    return f"{kind.__module__}.{kind.__qualname__}"


def wrapper_name(module: nn.Module) -> str | None:
    """The wrapper's name, if the module is one that reduces gradients outside autograd.grad.

    By name: importing torch.distributed for an isinstance would cost everybody's start-up.
    """
    for kind in type(module).__mro__:
        distributed = kind.__module__.startswith(("torch.distributed", "torch.nn.parallel"))
        if distributed and kind.__name__ in (
            "DistributedDataParallel",
            "DataParallel",
            "FSDPModule",
            "FullyShardedDataParallel",
        ):
            return kind.__name__
    return None

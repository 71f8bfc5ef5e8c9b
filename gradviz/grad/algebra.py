"""`Grad`: a gradient with respect to a model, and what can be done with one.

Gradients of the same model add, subtract, negate and scale, as vectors do; `norm` takes all their values together.
Nothing else is defined on them: what a product or a mean of gradients would be, no two people agree on.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import html
import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import GenericAlias, MethodType
from typing import TYPE_CHECKING, Any, ForwardRef, Generic, NoReturn, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from gradviz.errors import GradOperationError, ModelMismatchError, NoSuchFieldError, NotAModelError, described, nearest
from gradviz.grad.leaves import Kind, leaves_of
from gradviz.grad.norms import Order, norm_of, wide
from gradviz.grad.statistics import STATISTICS, statistics

if TYPE_CHECKING:
    import pandas as pd

M = TypeVar("M", bound=nn.Module)

ALLOWED = "Gradients have g + h, g - h, -g, g * number, number * g, g / number and norm(g)"


@dataclass(frozen=True)
class Blank:
    """A leaf that no path leads to: zeros, made when somebody looks, and kept."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    @functools.cached_property
    def zeros(self) -> Tensor:
        """The leaf itself."""
        return torch.zeros(self.shape, dtype=self.dtype, device=self.device)


Leaf = Tensor | Blank

NO_NAMES: frozenset[str] = frozenset()

PIECE = 1 << 18
"""Entries that are summed together in float32 at most."""


class Grad(Mapping[str, Tensor], Generic[M]):
    """A gradient with respect to the trainable parameters of a model `M`.

    A mapping from parameter name to tensor, in declaration order; each tensor has its parameter's shape, dtype and
    device. Fields are items (``g["layers.0.weight"]``), and attributes along the module path
    (``g.layers[0].weight``); a module's path gives that module's `Grad`. A tied parameter is one leaf under its first
    name, and its other names resolve to it. Frozen parameters and buffers have no field. A parameter that was never
    reached reads as zeros and is listed in `unused`.

    Methods win over equally named modules for attributes: a module called ``norm`` is ``g["norm"]``. The leaves are
    tensors like any other: what is written into one (by clipping a ``.grad`` that it was assigned to, say) shows in the
    gradient; `clone` makes another.

    Examples
    --------
    >>> import gradviz as gv
    >>> model = nn.Linear(2, 1)
    >>> _ = nn.init.ones_(model.weight)
    >>> _, g = gv.value_and_grad(lambda m, x: m(x).sum(), model, torch.tensor([[3.0, 4.0]]))
    >>> g.weight, g["bias"]
    (tensor([[3., 4.]]), tensor([1.]))
    >>> (2 * g - g / 2).weight
    tensor([[4.5000, 6.0000]])
    >>> g.norm()
    tensor(5.0990)
    """

    __slots__ = ("__weakref__", "_kind", "_leaves", "_unused")
    _kind: Kind
    _leaves: dict[str, Leaf]
    _unused: frozenset[str]

    def __init__(self, model: M, gradients: Mapping[str, Tensor | None] | Sequence[Tensor | None]) -> None:
        kind, parameters = leaves_of(model).trainable()
        given = _in_order(kind, gradients) if isinstance(gradients, Mapping) else gradients
        for name, shape, gradient in zip(kind.names, kind.shapes, given, strict=True):
            if gradient is not None and gradient.shape != shape:
                got = tuple(gradient.shape)
                raise ModelMismatchError(f"The gradient of {name} has shape {got}; the parameter has {tuple(shape)}.")
        self._fill(kind, parameters, given)

    def _fill(self, kind: Kind, parameters: Sequence[Tensor], given: Sequence[Tensor | None]) -> None:
        self._kind, self._unused = kind, NO_NAMES
        self._leaves = dict(zip(kind.names, given, strict=True))  # type: ignore[arg-type]
        if is_incomplete(given):
            self._unused = frozenset([name for name, leaf in self._leaves.items() if leaf is None])
            for name, p in zip(kind.names, parameters, strict=True):
                if name in self._unused:
                    self._leaves[name] = Blank(p.shape, p.dtype, p.device)

    @classmethod
    def _from(cls, kind: Kind, parameters: Sequence[Tensor], given: Sequence[Tensor | None]) -> Grad[Any]:
        made = cls.__new__(cls)
        made._fill(kind, parameters, given)
        return made

    @classmethod
    def _of(cls, kind: Kind, leaves: dict[str, Leaf], unused: frozenset[str] = NO_NAMES) -> Grad[Any]:
        made = cls.__new__(cls)
        made._kind, made._leaves, made._unused = kind, leaves, unused
        return made

    # Fields ----------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str | int) -> Any:
        """A parameter's tensor, or a module's `Grad`; an index reaches into a list of modules."""
        if isinstance(name, int):
            return self._at_index(name)
        name = self._kind.aliases.get(name, name)
        leaf = self._leaves.get(name)
        if leaf is not None:
            return leaf.zeros if isinstance(leaf, Blank) else leaf
        if name in self._kind.modules:
            return self._module(name)
        raise NoSuchFieldError(self._why_not(name))

    def _at_index(self, index: int) -> Any:
        # A list's own numbers, frozen and missing places counted; else modules in their order.
        modules = [path for path in self._kind.modules if "." not in path]
        numbers = [int(name) for name in (*modules, *self._kind.order, *self._kind.frozen) if name.isdecimal()]
        children = list(map(str, range(max(numbers) + 1))) if numbers else modules
        try:
            return self[children[index]]
        except IndexError:
            raise NoSuchFieldError(f"There is no child {index} in {self._model}; it has {len(children)}.") from None

    def _module(self, path: str) -> Grad[Any]:
        kind, places = self._kind.child(path)
        leaves = {name: self._leaves[place] for name, place in zip(kind.names, places, strict=True)}
        unused = frozenset(name for name, place in zip(kind.names, places, strict=True) if place in self._unused)
        return Grad._of(kind, leaves, unused)

    if TYPE_CHECKING:
        # __getattr__ would lend these to a type checker's protocols: abs(g), sum([g, h]) and g[name] = tensor.
        __abs__: None
        __index__: None
        __radd__: None
        __setitem__: None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # protocols ask for names like __array__; those are no fields
            raise AttributeError(name)
        return self[name]

    def _why_not(self, name: str) -> str:
        kind = self._kind
        if name in kind.buffers:
            return f"{name!r} is a buffer of {self._model}; buffers are not differentiated, so it has no gradient."
        if name in kind.frozen:
            return f"{name!r} is frozen in {self._model} (requires_grad=False), so it has no gradient."
        known = [*kind.names, *kind.aliases, *kind.modules]
        return f"The gradient of {self._model} has no field {name!r}: {nearest(name, known)}"

    @property
    def _model(self) -> str:
        return self._kind.model.rpartition(".")[2]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kind.names)

    def __len__(self) -> int:
        return len(self._kind.names)

    def __dir__(self) -> list[str]:
        fields = {name.partition(".")[0] for name in (*self._kind.names, *self._kind.aliases)}
        return sorted({*super().__dir__(), *(name for name in fields if name.isidentifier())})

    @property
    def unused(self) -> tuple[str, ...]:
        """Names of the parameters that were never reached: no path leads to them, which is more than zero says."""
        return tuple(name for name in self._kind.names if name in self._unused) if self._unused else ()

    @property
    def given(self) -> dict[str, Tensor | None]:
        """What autograd gave: None where there is no path, which an optimizer must not see as zeros."""
        if not self._unused:
            return dict(self._leaves)  # type: ignore[arg-type]
        return {name: None if name in self._unused else self[name] for name in self._kind.names}

    # Algebra ---------------------------------------------------------------------------------------------------

    def __add__(self, other: Grad[M]) -> Grad[M]:
        return self._combine(other, "+", torch._foreach_add, torch.add)

    def __sub__(self, other: Grad[M]) -> Grad[M]:
        return self._combine(other, "-", torch._foreach_sub, torch.sub)

    def __neg__(self) -> Grad[M]:
        return self._each(torch._foreach_neg, torch.neg)

    def __mul__(self, factor: float | Tensor) -> Grad[M]:
        factor = self._scalar(factor, "*")
        scaled = self._each(lambda leaves: torch._foreach_mul(leaves, factor), lambda leaf: leaf * factor)
        return self._keep_dtypes(scaled) if isinstance(factor, Tensor) else scaled

    __rmul__ = __mul__

    def __truediv__(self, divisor: float | Tensor) -> Grad[M]:
        divisor = self._scalar(divisor, "/")
        scaled = self._each(lambda leaves: torch._foreach_div(leaves, divisor), lambda leaf: leaf / divisor)
        return self._keep_dtypes(scaled) if isinstance(divisor, Tensor) else scaled

    def _keep_dtypes(self, scaled: Grad[M]) -> Grad[M]:
        """A 0-dim leaf is promoted by a 0-dim factor; each leaf keeps its own dtype."""
        for (name, leaf), made in zip(self._leaves.items(), scaled._leaves.values(), strict=True):
            if isinstance(made, Tensor) and made.dtype != leaf.dtype:
                scaled._leaves[name] = made.to(leaf.dtype)
        return scaled

    def _each(self, together: Callable[[list[Tensor]], Sequence[Tensor]], alone: Callable[[Tensor], Tensor]) -> Grad[M]:
        if not self._unused:
            done = _foreach(together, alone, list(self._leaves.values()))  # type: ignore[arg-type]
            return Grad._of(self._kind, dict(zip(self._leaves, done, strict=True)))
        leaves = {name: leaf for name, leaf in self._leaves.items() if not isinstance(leaf, Blank)}
        done = _foreach(together, alone, list(leaves.values()))
        return Grad._of(self._kind, {**self._leaves, **dict(zip(leaves, done, strict=True))}, self._unused)

    def _combine(self, other: Any, sign: str, together: Callable[..., Any], alone: Callable[..., Any]) -> Grad[M]:
        if not isinstance(other, Grad):
            raise GradOperationError(f"A gradient {sign} {_kind_of_value(other)} is not defined. {ALLOWED}.")
        self._check_same(other, sign)
        if not (self._unused or other._unused):
            pairs = list(self._leaves.values()), list(other._leaves.values())
            done = _foreach(together, alone, *pairs)  # type: ignore[arg-type]
            return Grad._of(self._kind, dict(zip(self._leaves, done, strict=True)))
        # No path in both is no path in the sum; in one, it counts as the zeros it reads as.
        kept = {
            name: leaf if isinstance(leaf, Blank) and isinstance(other._leaves[name], Blank) else
            _alone(alone, self[name], other[name])
            for name, leaf in self._leaves.items()
        }  # fmt: skip
        return Grad._of(self._kind, kept, self._unused & other._unused)

    def _check_same(self, other: Grad[Any], sign: str) -> None:
        one, two = self._kind, other._kind
        if one is two:
            return
        shapes = [[leaf.shape for leaf in grad._leaves.values()] for grad in (self, other)]
        if one == two and shapes[0] == shapes[1]:
            return
        if one.model != two.model:
            what = f"a gradient of {one.model} and one of {two.model}"
        elif one.names != two.names:
            differing = sorted(set(one.names) ^ set(two.names)) or ["their order"]
            what = f"gradients of two {self._model} with different trainable parameters ({differing[0]} ...)"
        else:
            pairs = zip(one.names, *shapes, strict=True)
            name, a, b = next(place for place in pairs if place[1] != place[2])
            what = f"gradients of two {self._model} whose {name} have shapes {tuple(a)} and {tuple(b)}"
        raise ModelMismatchError(f"{what} cannot be combined with {sign}: they belong to different models.")

    def _scalar(self, value: Any, sign: str) -> Any:
        if type(value) is float or type(value) is int:
            return float(value)
        if isinstance(value, Tensor):
            if value.ndim:
                raise GradOperationError(
                    f"A gradient {sign} a tensor of shape {tuple(value.shape)} is not defined: its leaves have shapes "
                    f"of their own. {ALLOWED}; a 0-dim tensor is a number."
                )
            widens = value.is_complex() and not all(leaf.dtype.is_complex for leaf in self._leaves.values())
        elif isinstance(value, numbers.Real):  # numpy's numbers too
            return float(value)
        elif isinstance(value, numbers.Complex):
            value = complex(value)
            widens = not all(leaf.dtype.is_complex for leaf in self._leaves.values())
        else:
            raise GradOperationError(f"A gradient {sign} {_kind_of_value(value)} is not defined. {ALLOWED}.")
        if widens:
            raise GradOperationError("A complex factor would change the dtype of real leaves; each keeps its own.")
        return value

    def norm(self, ord: Order = 2) -> Tensor:
        """The norm of all values together, as of one long vector.

        Parameters
        ----------
        ord : 1, 2 or inf
            Sum of magnitudes, root of the sum of squares, or largest magnitude.

        Returns
        -------
        0-dim Tensor
            float32, or float64 if any leaf is 64 bits wide a value; accumulated in no less. Of an empty gradient, 0.

        Examples
        --------
        >>> model = nn.Linear(2, 1, bias=False)
        >>> g = Grad(model, [torch.tensor([[3.0, -4.0]])])
        >>> g.norm(), g.norm(ord=1), g.norm(ord=math.inf)
        (tensor(5.), tensor(7.), tensor(4.))
        """
        if ord not in (1, 2, math.inf):
            raise GradOperationError(f"norm has ord 1, 2 and inf; got {ord!r}.")
        leaves = list(self._leaves.values())
        if self._unused:
            reached = [leaf for leaf in leaves if not isinstance(leaf, Blank)]
            return norm_of(_pieces(self._kind, reached), ord).to(wide(leaves))
        return norm_of(_pieces(self._kind, leaves), ord)  # type: ignore[arg-type]

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", str(function)).strip("_")
        if name in ("mul", "rmul", "multiply") and len(args) == 2 and not kwargs and not _in_place(function):
            scalar, grad = (args[1], args[0]) if isinstance(args[0], Grad) else args
            if isinstance(grad, Grad) and not isinstance(scalar, Grad):
                return grad * scalar
        raise GradOperationError(f"torch's {name} of a gradient is not defined. {ALLOWED}; g[name] is a tensor.")

    def __array_ufunc__(self, function: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        # A numpy number times a gradient arrives here.
        if function.__name__ == "multiply" and method == "__call__" and not kwargs and not isinstance(args[0], Grad):
            return self * args[0]
        raise GradOperationError(f"numpy's {function.__name__} of a gradient is not defined. {ALLOWED}.")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise GradOperationError(f"A gradient is no array; a leaf is one: g[name].numpy(). {ALLOWED}.")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        raise GradOperationError(f"numpy's {function.__name__} of a gradient is not defined. {ALLOWED}.")

    def __eq__(self, other: object) -> bool:
        return self is other  # by identity, so that equality is a yes or no; compare the leaves with torch.equal

    __hash__ = object.__hash__

    # Copies and types ------------------------------------------------------------------------------------------

    def to(self, *args: Any, **kwargs: Any) -> Grad[M]:
        """Every leaf moved or cast, as `Tensor.to` does."""
        return self._map(lambda leaf: leaf.to(*args, **kwargs))

    def cpu(self) -> Grad[M]:
        """Every leaf on the CPU."""
        return self._map(lambda leaf: leaf.cpu())

    def detach(self) -> Grad[M]:
        """Every leaf without its graph."""
        return self._map(lambda leaf: leaf.detach())

    def clone(self) -> Grad[M]:
        """Every leaf copied."""
        return self._map(lambda leaf: leaf.clone())

    def _map(self, function: Callable[[Tensor], Tensor]) -> Grad[M]:
        return Grad._of(self._kind, {name: function(self[name]) for name in self._kind.names}, self._unused)

    def __deepcopy__(self, memo: dict[int, Any]) -> Grad[M]:
        leaves = {name: copy.deepcopy(leaf, memo) for name, leaf in self._leaves.items()}
        return Grad._of(self._kind, leaves, self._unused)

    def __reduce__(self) -> Any:
        return Grad._of, (self._kind, self._leaves, self._unused)

    def __class_getitem__(cls, model: Any) -> Any:
        if isinstance(model, tuple) and len(model) == 1:  # as typing hands it on
            (model,) = model
        is_model = isinstance(model, type) and issubclass(model, nn.Module) and not isinstance(model, GenericAlias)
        if not (is_model or model is Any or isinstance(model, TypeVar | str | ForwardRef)):
            name = model.__name__ if isinstance(model, type) else repr(model)
            raise NotAModelError(f"Grad[{name}]: a gradient is one of a model, a class derived from torch.nn.Module.")
        return super().__class_getitem__(model)  # type: ignore[misc]

    # Showing ---------------------------------------------------------------------------------------------------

    def to_frame(self) -> pd.DataFrame:
        """A pandas frame: index parameter; shape, dtype, unused, and the statistics of each leaf."""
        import pandas as pd

        table = pd.DataFrame(
            {
                "shape": [tuple(leaf.shape) for leaf in self._leaves.values()],
                "dtype": [_dtype(leaf) for leaf in self._leaves.values()],
                "unused": [name in self._unused for name in self._leaves],
            },
            index=pd.Index(list(self._leaves), name="parameter", dtype=object),
        )
        numbers_of = self._measure(self._leaves)
        for place, name in enumerate(STATISTICS):
            whole = name in ("nan", "posinf", "neginf") and not np.isnan(numbers_of).all()
            table[name] = numbers_of[:, place].astype("int64") if whole else numbers_of[:, place]
        return table

    def __repr__(self) -> str:
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
        lines = [
            "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([self._headline(), *lines])

    def _repr_html_(self) -> str:
        cells = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._rows()
        )
        head = "<tr><th>parameter</th><th>shape</th><th>dtype</th><th>norm</th></tr>"
        return f"<p>{html.escape(self._headline())}</p><table><thead>{head}</thead><tbody>{cells}</tbody></table>"

    def _measure(self, names: Iterable[str]) -> NDArray[np.float64]:
        leaves = [self[name] for name in names]
        if any(leaf.is_meta for leaf in leaves):  # there are no values to measure
            return np.full((len(leaves), len(STATISTICS)), math.nan)
        return statistics(leaves)

    def _headline(self) -> str:
        is_meta = any(leaf.device.type == "meta" for leaf in self._leaves.values())
        size = "no values" if is_meta else f"norm {self.norm().item():.4g}"
        frozen = f" and {len(self._kind.frozen)} frozen" if self._kind.frozen else ""
        return f"Grad of {self._model}: {len(self)} parameters{frozen}, {size}"

    def _rows(self, most: int = 24) -> list[tuple[str, str, str, str]]:
        names = list(self._leaves)
        shown = names if len(names) <= most else [*names[: most - 4], None, *names[-3:]]
        measured = self._measure([name for name in shown if name is not None])[:, 0].tolist()
        rows = []
        for name in shown:
            if name is None:
                rows.append((f"... {len(names) - most + 1} more", "", "", ""))
                continue
            leaf, norm = self._leaves[name], measured.pop(0)
            rows.append((name, _shape(leaf), _dtype(leaf), "unused" if name in self._unused else f"{norm:.4g}"))
        return rows


def norm(g: Grad[Any], ord: Order = 2) -> Tensor:
    """The norm of all values of a gradient together; see `Grad.norm`.

    Examples
    --------
    >>> norm(Grad(nn.Linear(2, 1, bias=False), [torch.tensor([[3.0, -4.0]])]))
    tensor(5.)
    """
    if not isinstance(g, Grad):
        raise GradOperationError(f"norm takes a gradient; got {_kind_of_value(g)}. A tensor has tensor.norm().")
    return g.norm(ord)


def is_incomplete(given: Iterable[Tensor | None]) -> bool:
    """Whether a gradient is missing: no path led to its parameter. By type, a third of the time of a comprehension."""
    return _NONE in set(map(type, given))


_NONE = type(None)


def _in_order(kind: Kind, gradients: Mapping[str, Tensor | None]) -> list[Tensor | None]:
    by_name = {kind.aliases.get(name, name): gradient for name, gradient in gradients.items()}
    for name in by_name:
        if name not in kind.names:
            raise NoSuchFieldError(f"{kind.model} has no trainable parameter {name!r}: {nearest(name, kind.names)}")
    return [by_name.get(name) for name in kind.names]


def _foreach(together: Callable[..., Any], alone: Callable[..., Any], *leaves: list[Tensor]) -> Sequence[Tensor]:
    """One call for all leaves; one by one where torch has none for them, as for sparse beside dense."""
    if not leaves[0]:
        return []
    try:
        return together(*leaves)  # type: ignore[no-any-return]
    except RuntimeError:  # sparse beside dense: NotImplementedError is one too
        if all(leaf.layout is torch.strided for group in leaves for leaf in group):
            raise
    return [_alone(alone, *group) for group in zip(*leaves, strict=True)]


def _pieces(kind: Kind, leaves: list[Tensor]) -> list[Tensor]:
    """Large leaves in pieces: torch's CPU norm loses digits with length, 1e-3 of it at 2**25 entries."""
    if kind.largest <= PIECE:
        return leaves
    return [piece for leaf in leaves for piece in (leaf.reshape(-1).split(PIECE) if _is_large(leaf) else [leaf])]


def _is_large(leaf: Tensor) -> bool:
    return leaf.layout is torch.strided and leaf.numel() > PIECE


def _alone(alone: Callable[..., Tensor], *leaves: Tensor) -> Tensor:
    if len({leaf.layout for leaf in leaves}) > 1:
        leaves = tuple(leaf.to_dense() for leaf in leaves)
    return alone(*leaves)


def _in_place(function: Callable[..., Any]) -> bool:
    name = getattr(function, "__name__", "")
    return name.endswith("_") and not name.endswith("__")


def _shape(leaf: Leaf) -> str:
    return " × ".join(map(str, leaf.shape)) or "scalar"


def _dtype(leaf: Leaf) -> str:
    return str(leaf.dtype).removeprefix("torch.")


def _kind_of_value(value: Any) -> str:
    return "a gradient" if isinstance(value, Grad) else described(value)


def _refuse(sign: str) -> Callable[..., NoReturn]:
    def refused(self: Grad[Any], *others: Any) -> NoReturn:
        what = f" (x is {described(others[0])})" if others and "x" in sign else ""
        hint = " sum() starts from 0: write sum(others, first)." if sign == "x + g" else ""
        raise GradOperationError(f"{sign} is not defined for gradients{what}. {ALLOWED}.{hint}")

    return refused


_REFUSED = {
    "pow": "g ** x",
    "rpow": "x ** g",
    "matmul": "g @ x",
    "rmatmul": "x @ g",
    "abs": "abs(g)",
    "floordiv": "g // x",
    "rfloordiv": "x // g",
    "rmod": "x % g",
    "divmod": "divmod(g, x)",
    "rdivmod": "divmod(x, g)",
    "pos": "+g",
    "invert": "~g",
    "round": "round(g)",
    "and": "g & x",
    "or": "g | x",
    "xor": "g ^ x",
    "rand": "x & g",
    "ror": "x | g",
    "rxor": "x ^ g",
    "lshift": "g << x",
    "rshift": "g >> x",
    "rtruediv": "x / g",
    "mod": "g % x",
    "radd": "x + g",
    "rsub": "x - g",
    "lt": "g < x",
    "le": "g <= x",
    "gt": "g > x",
    "ge": "g >= x",
}
for _name, _sign in _REFUSED.items():
    setattr(Grad, f"__{_name}__", _refuse(_sign))


class _Method:
    """A method that says, when it is taken for an equally named module, how that one is reached."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __get__(self, grad: Grad[Any] | None, owner: type) -> Any:
        if grad is None:
            return self.function
        bound = MethodType(self.function, grad)
        name = self.function.__name__
        return _Shadow(bound, name) if name in grad._kind.modules or name in grad._leaves else bound


class _Shadow:
    def __init__(self, bound: MethodType, name: str) -> None:
        self._bound, self._name = bound, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._bound(*args, **kwargs)

    def __getattr__(self, name: str) -> NoReturn:
        raise NoSuchFieldError(
            f"g.{self._name} is a method of gradients; the model's own {self._name!r} is reached by item: "
            f"g[{self._name!r}]."
        )


if not TYPE_CHECKING:
    for _name in ("norm", "to", "cpu", "detach", "clone", "to_frame", "items", "keys", "values", "get"):
        setattr(Grad, _name, _Method(getattr(Grad, _name)))


def _flatten(grad: Grad[Any]) -> tuple[list[Tensor], tuple[Kind, frozenset[str]]]:
    return [grad[name] for name in grad._kind.names], (grad._kind, grad._unused)


def _flatten_with_keys(grad: Grad[Any]) -> tuple[list[tuple[Any, Tensor]], tuple[Kind, frozenset[str]]]:
    leaves, context = _flatten(grad)
    return [(pytree.MappingKey(name), leaf) for name, leaf in zip(grad._kind.names, leaves, strict=True)], context


def _unflatten(leaves: Iterable[Any], context: tuple[Kind, frozenset[str]]) -> Grad[Any]:
    kind, unused = context
    leaves = list(leaves)
    shapes = tuple(getattr(leaf, "shape", shape) for leaf, shape in zip(leaves, kind.shapes, strict=True))
    if shapes != kind.shapes:  # reduced, say: another object, so that the leaves are looked at before they are combined
        kind = dataclasses.replace(kind, _children={})
    return Grad._of(kind, dict(zip(kind.names, leaves, strict=True)), unused)


pytree.register_pytree_node(
    Grad,
    _flatten,
    _unflatten,
    serialized_type_name="gradviz.Grad",
    flatten_with_keys_fn=_flatten_with_keys,
)

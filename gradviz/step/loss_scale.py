"""Loss scales: small gradients are lifted over the floor of a 16-bit dtype, and brought back afterwards.

A loss scale is three functions: `init` makes its state, `scale` multiplies the loss, `unscale` divides the gradients
and says what the next state is. The state is a dict of 0-dim tensors that is never written into, so whoever holds the
one that a step used still holds it after the next. Its types never change: float32 for the scale, int64 for the count.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeGuard, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from gradviz.errors import LossScaleError, described, nearest
from gradviz.grad.algebra import Grad
from gradviz.grad.norms import whole

T = TypeVar("T")
State = dict[str, Tensor]


class ScalesLoss(Protocol):
    """What is wanted of a loss scale of your own."""

    def init(self) -> Any:
        """The state before the first step."""

    def scale(self, value: Any, state: Any) -> Any:
        """The value, larger."""

    def unscale(self, gradients: Any, state: Any) -> tuple[Any, Any]:
        """The gradients of the value itself, and the next state."""


class LossScale(ABC):
    """A factor on the loss during backward; made by `identity`, `static` or `dynamic`.

    Examples
    --------
    >>> loss_scale = LossScale.dynamic(8.0, period=2)
    >>> state = loss_scale.init()
    >>> loss_scale.scale(torch.tensor(0.5), state)
    tensor(4.)
    >>> loss_scale.unscale([torch.tensor([16.0])], state)
    ([tensor([2.])], {'loss_scale': tensor(8.), 'counter': tensor(1)})
    >>> loss_scale.unscale([torch.tensor([math.inf])], state)[1]
    {'loss_scale': tensor(4.), 'counter': tensor(0)}
    """

    skips_nonfinite: ClassVar[bool] = True
    """Whether a step whose gradients are not finite is skipped."""

    @staticmethod
    def identity() -> LossScale:
        """No scaling: whatever the gradients are, the step is taken."""
        return _Identity()

    @staticmethod
    def static(scale: float = 2**15) -> LossScale:
        """The same scale at every step.

        Raises
        ------
        LossScaleError
            If the scale is no positive number that float32 holds.
        """
        return _Static(_positive("scale", scale, "gv.LossScale.static(2**15)"))

    @staticmethod
    def dynamic(scale: float = 2**15, *, period: int = 2000, factor: float = 2, minimum: float = 1) -> LossScale:
        """A scale that falls at gradients that are not finite, and rises after many that are.

        Parameters
        ----------
        scale : float
            The first one.
        period : int
            The scale is multiplied by `factor` after so many finite steps in a row, unless float32 would overflow.
        factor : float
            The scale is divided by it where a gradient holds an infinity or a NaN.
        minimum : float
            The scale falls no further.

        Raises
        ------
        LossScaleError
            If a number is out of its range, or the scale begins below the minimum.
        """
        line = "gv.LossScale.dynamic(2**15, period=2000, factor=2, minimum=1)"
        scale, factor, minimum = (
            _positive(name, value, line) for name, value in (("scale", scale), ("factor", factor), ("minimum", minimum))
        )
        if not isinstance(period, numbers.Integral) or isinstance(period, bool) or period < 1:
            raise LossScaleError(f"period counts steps, 1 or more; got {period!r}. Write {line}.")
        if _in_float32(factor) <= 1:
            raise LossScaleError(
                f"factor must be larger than 1 in float32, so that the scale falls at an overflow; got {factor!r}. "
                f"Write {line}."
            )
        if scale < minimum:
            raise LossScaleError(f"The scale begins at {scale!r}, below its minimum of {minimum!r}. Write {line}.")
        return _Dynamic(scale, int(period), factor, minimum)

    @abstractmethod
    def init(self) -> State:
        """The state before the first step."""

    @abstractmethod
    def scale(self, value: T, state: State) -> T:
        """Every tensor of a pytree times the scale; a 0-dim one becomes float32 at least, so that a loss fits."""

    @abstractmethod
    def unscaled(self, gradients: T, state: State, finite: bool) -> tuple[T, State]:
        """As `unscale`, where it is known whether all gradients are finite."""

    def following(self, state: State, finite: bool) -> State:
        """The state after a step whose gradients were finite or not."""
        return state

    def unscale(self, gradients: T, state: State) -> tuple[T, State]:
        """Every gradient of a `Grad` or pytree divided by the scale, in its own dtype; and the next state."""
        return self.unscaled(gradients, state, all_finite(gradients))


@dataclass(frozen=True, repr=False)
class _Identity(LossScale):
    skips_nonfinite = False

    def init(self) -> State:
        return {}

    def scale(self, value: T, state: State) -> T:
        return value

    def unscaled(self, gradients: T, state: State, finite: bool) -> tuple[T, State]:
        return gradients, state

    def unscale(self, gradients: T, state: State) -> tuple[T, State]:
        return gradients, state

    def __repr__(self) -> str:
        return "LossScale.identity()"


@dataclass(frozen=True, repr=False)
class _Static(LossScale):
    initial: float

    def init(self) -> State:
        return {"loss_scale": torch.tensor(self.initial, dtype=torch.float32)}

    def scale(self, value: T, state: State) -> T:
        return _map(lambda leaf: leaf * state["loss_scale"], value)

    def unscaled(self, gradients: T, state: State, finite: bool) -> tuple[T, State]:
        # Divided by a Python number: on a GPU a tensor would be rounded to float16 first, where 2**16 is infinite.
        scale = state["loss_scale"].item()
        return _map(lambda leaf: leaf / scale, gradients), state

    def unscale(self, gradients: T, state: State) -> tuple[T, State]:
        return self.unscaled(gradients, state, finite=True)  # the scale stays in any case: no need to look

    def __repr__(self) -> str:
        return f"LossScale.static({self.initial!r})"


@dataclass(frozen=True, repr=False)
class _Dynamic(_Static):
    period: int
    factor: float
    minimum: float

    def init(self) -> State:
        return {**super().init(), "counter": torch.tensor(0)}

    def unscaled(self, gradients: T, state: State, finite: bool) -> tuple[T, State]:
        return super().unscaled(gradients, state, finite)[0], self.following(state, finite)

    def unscale(self, gradients: T, state: State) -> tuple[T, State]:
        return self.unscaled(gradients, state, all_finite(gradients))

    def following(self, state: State, finite: bool) -> State:
        scale, counter = state["loss_scale"], state["counter"]
        if not finite:
            return {"loss_scale": (scale / self.factor).clamp(min=self.minimum), "counter": torch.zeros_like(counter)}
        if int(counter) + 1 < self.period:
            return {"loss_scale": scale.clone(), "counter": counter + 1}
        grown = scale * self.factor
        fits = bool(grown.isfinite())
        return {"loss_scale": grown if fits else scale.clone(), "counter": torch.zeros_like(counter)}

    def __repr__(self) -> str:
        options = f"period={self.period}, factor={self.factor!r}, minimum={self.minimum!r}"
        return f"LossScale.dynamic({self.initial!r}, {options})"


_OWN = {_Identity, _Static, _Dynamic}

LOSS_SCALES: dict[str, Callable[[], LossScale]] = {
    "dynamic": LossScale.dynamic,
    "identity": LossScale.identity,
    "static": LossScale.static,
}


def as_loss_scale(value: Any) -> ScalesLoss:
    """A loss scale from a name, a `LossScale`, or an object with `init`, `scale` and `unscale`; None is no scaling.

    Raises
    ------
    LossScaleError
        If it is none of these.

    Examples
    --------
    >>> as_loss_scale("dynamic"), as_loss_scale(None)
    (LossScale.dynamic(32768.0, period=2000, factor=2.0, minimum=1.0), LossScale.identity())
    """
    if value is None:
        return LossScale.identity()
    if isinstance(value, str):
        if value not in LOSS_SCALES:
            raise LossScaleError(f"No loss scale is called {value!r}: {nearest(value, LOSS_SCALES)}")
        return LOSS_SCALES[value]()
    missing = [name for name in ("init", "scale", "unscale") if not callable(getattr(value, name, None))]
    if missing or isinstance(value, type):
        raise LossScaleError(
            f"A loss scale is a name, a LossScale or an object with the functions init, scale and unscale; got "
            f'{described(value)}{_why_none(value, missing)}. Write "dynamic", or gv.LossScale.static(2**15).'
        )
    made: ScalesLoss = value
    return made


def _why_none(value: Any, missing: list[str]) -> str:
    if isinstance(value, type):
        return ", not an object of it"
    if any(value is maker for maker in LOSS_SCALES.values()):
        return ", which has to be called"
    return "" if len(missing) == 3 else f" without {' and '.join(missing)}"


def is_built_in(loss_scale: Any) -> TypeGuard[LossScale]:
    """Whether a loss scale is one of gradviz's own, whose factor can be taken out in place."""
    return type(loss_scale) in _OWN


def scale_used(loss_scale: ScalesLoss, state: Any) -> float:
    """What a loss of 1 becomes.

    Examples
    --------
    >>> loss_scale = LossScale.static()
    >>> scale_used(loss_scale, loss_scale.init())
    32768.0
    """
    if type(loss_scale) in _OWN:
        return float(state["loss_scale"]) if "loss_scale" in state else 1.0
    return float(loss_scale.scale(torch.ones(()), state))


def unscale_in_place(gradients: list[Tensor], scale: float) -> bool | None:
    """Divide gradients that nobody else holds by the scale, and say whether all are finite, in one pass.

    Returns
    -------
    bool, or None where one pass cannot do it and nothing was done
        Only by a power of two, where the product with the inverse is the quotient, to the bit.
    """
    kinds = {(g.dtype, g.device) for g in gradients}
    is_power = math.frexp(scale)[0] == 0.5 and 1 <= scale <= 2**64
    if not is_power or len(kinds) != 1 or not gradients[0].is_floating_point() or gradients[0].dtype.itemsize < 4:
        return None
    (device,) = {device for _, device in kinds}
    found, inverse = torch.zeros(1, device=device), torch.tensor(1 / scale, device=device)
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse)
    return not found.item()


def all_finite(gradients: Any) -> bool:
    """Whether no gradient of a `Grad` or pytree holds an infinity or a NaN.

    Examples
    --------
    >>> all_finite({"weight": torch.tensor([1e20, 1e20])}), all_finite([torch.tensor(math.nan)])
    (True, False)
    """
    return all(_finite(whole(list(_tensors_of(gradients)))))


def first_nonfinite(grad: Grad[Any]) -> str | None:
    """Name of the last parameter, in declaration order, with an infinity or a NaN in its gradient; None if none has.

    Backward comes from the loss, so it reached that one first: what went wrong went wrong there, or nearer the loss.
    """
    backward = [(name, leaf) for name, leaf in reversed(grad.given.items()) if leaf is not None]
    flags = _finite(whole([leaf for _, leaf in backward]))
    return next((name for (name, _), is_finite in zip(backward, flags, strict=True) if not is_finite), None)


def _finite(leaves: Sequence[Tensor]) -> Iterator[bool]:
    """For each tensor whether all its entries are finite; looked at closely only where a norm is not, and one asks."""
    entries = [_entries(leaf) for leaf in leaves]
    norms_finite = iter(_norms_finite([values for values in entries if values.numel()]))
    for values in entries:
        # A norm may overflow where no entry does: 1e20 in float32, 6e4 in float16.
        yield not values.numel() or next(norms_finite) or bool(values.isfinite().all())


def _norms_finite(entries: list[Tensor]) -> list[bool]:
    if not entries:
        return []
    norms = torch._foreach_norm(entries)
    flags: list[bool] = torch.stack([norm.to(norms[0].device) for norm in norms]).isfinite().tolist()
    return flags


def _entries(leaf: Tensor) -> Tensor:
    """What decides whether a gradient is finite: stored values, real and imaginary parts, in a dtype that has norms."""
    leaf = leaf.detach()
    if leaf.layout is not torch.strided:
        leaf = leaf.coalesce().values() if leaf.layout is torch.sparse_coo else leaf.to_dense()
    if leaf.is_complex():
        return torch.view_as_real(leaf.resolve_conj())
    return leaf.float() if leaf.dtype.itemsize < 2 else leaf


def _tensors_of(gradients: Any) -> Iterable[Tensor]:
    for part in tree_leaves(gradients, is_leaf=_is_grad):
        leaves = part.given.values() if isinstance(part, Grad) else [part]
        yield from (leaf for leaf in leaves if isinstance(leaf, Tensor))


def _map(function: Callable[[Any], Any], tree: T) -> T:
    """`function` on every tensor and `Grad` of a pytree, whose unused leaves stay unmade."""

    def on_leaf(leaf: Any) -> Any:
        return function(leaf) if isinstance(leaf, Tensor | Grad) else leaf

    # One tensor, the loss, and one gradient are the common cases; a pytree walk costs more than the multiplication.
    mapped: T = on_leaf(tree) if isinstance(tree, Tensor | Grad) else tree_map(on_leaf, tree, is_leaf=_is_grad)
    return mapped


def _is_grad(value: Any) -> bool:
    return isinstance(value, Grad)


def _positive(name: str, value: Any, line: str) -> float:
    """The number, if float32 holds it."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not 0 < _in_float32(value) < math.inf:
        raise LossScaleError(f"{name} must be a number above 0 and finite in float32; got {value!r}. Write {line}.")
    return float(value)


def _in_float32(value: float) -> float:
    return torch.tensor(float(value), dtype=torch.float32).item()

"""Which numbers a model is to be kept in, compute in, and give; and which of its modules that is meant for.

A `Policy` is a wish. `gradviz.step.precision` makes it come true on a model.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from gradviz.errors import PolicyError, described, nearest
from gradviz.grad.leaves import walk

FLOATING = {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}
"""The dtypes a policy can ask for, and the only ones it touches."""

HALF = (torch.float16, torch.bfloat16)
"""Dtypes too coarse to add small updates to."""

Pattern = str | type[nn.Module] | Callable[[nn.Module], bool]
"""Names modules: a glob on the dotted path or a class, each with all below, or a function that is asked of each."""


@dataclass(frozen=True, init=False, repr=False)
class Policy:
    """Which dtypes parameters, computations and outputs have. What is None is left alone.

    Parameters
    ----------
    params : torch.dtype or str, optional
        What floating parameters and buffers are converted to. The optimizer works on float32 copies of 16-bit ones.
    compute : torch.dtype or str, optional
        What floating inputs, parameters and buffers of a module are cast to for each pass; else `params`.
    output : torch.dtype or str, optional
        What floating tensors of the prediction are cast to.
    only, except_ : pattern or several, optional
        Modules that the policy is for, and not for; every other one stays in its own dtype, and its inputs are cast to
        that. A glob on the dotted path (``"encoder"``, ``"encoder.*"``) or a class stands for a module and all below
        it; a function ``module -> bool`` is asked of every module that has parameters or buffers. Batch norm is
        excepted always, unless ``except_=()``.

    Raises
    ------
    PolicyError
        If a dtype is none of float16, bfloat16, float32, float64, or a pattern is no pattern.

    Examples
    --------
    >>> Policy(params="float16", compute="float16", output="float32")
    Policy(params=float16, compute=float16, output=float32)
    >>> Policy(compute=torch.bfloat16, except_=["head", nn.LayerNorm])
    Policy(compute=bfloat16, except_=('head', LayerNorm))
    """

    params: torch.dtype | None
    compute: torch.dtype | None
    output: torch.dtype | None
    only: tuple[Pattern, ...] | None
    except_: tuple[Pattern, ...] | None

    def __init__(
        self,
        params: torch.dtype | str | None = None,
        compute: torch.dtype | str | None = None,
        output: torch.dtype | str | None = None,
        *,
        only: Pattern | Iterable[Pattern] | None = None,
        except_: Pattern | Iterable[Pattern] | None = None,
    ) -> None:
        for name, dtype in (("params", params), ("compute", compute), ("output", output)):
            object.__setattr__(self, name, _as_dtype(name, dtype))
        for name, patterns in (("only", only), ("except_", except_)):
            object.__setattr__(self, name, _as_patterns(name, patterns))
        if self.only == ():
            raise PolicyError("only=() is a policy for no module. Leave it out for every module: only=None.")

    def __repr__(self) -> str:
        parts = [f"{name}={brief(value)}" for name, value in vars(self).items() if value is not None]
        return f"Policy({', '.join(parts)})"


def as_policy(policy: Any) -> Policy:
    """A policy, or the one that leaves everything alone.

    Raises
    ------
    PolicyError
        If it is neither None nor a `Policy`.
    """
    if policy is None:
        return Policy()
    if not isinstance(policy, Policy):
        came = repr(policy) if isinstance(policy, str | torch.dtype) else described(policy)
        raise PolicyError(f"A policy is a gv.Policy; got {came}. Write gv.Policy(compute=torch.bfloat16).")
    return policy


def _as_dtype(name: str, dtype: Any) -> torch.dtype | None:
    if dtype is None:
        return None
    found = FLOATING.get(dtype.removeprefix("torch.")) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or found not in FLOATING.values():
        came = repr(dtype) if isinstance(dtype, str | torch.dtype) else described(dtype)
        raise PolicyError(
            f"{name} must be one of {', '.join(FLOATING)}, or None to leave it alone; got {came}. "
            f"Write gv.Policy({name}=torch.bfloat16)."
        )
    return found


def _as_patterns(name: str, patterns: Any) -> tuple[Pattern, ...] | None:
    if patterns is None:
        return None
    several = tuple(patterns) if isinstance(patterns, list | tuple | set | frozenset) else (patterns,)
    for pattern in several:
        is_class = isinstance(pattern, type)
        # A module itself is callable too, and would be called with modules.
        if isinstance(pattern, nn.Module) or (is_class and not issubclass(pattern, nn.Module)):
            is_pattern = False
        else:
            is_pattern = isinstance(pattern, str) or callable(pattern)
        if not is_pattern:
            raise PolicyError(
                f"{name} takes the path of a module, a module class or a function module -> bool; got "
                f'{described(pattern)}. Write {name}="encoder.*" or {name}=nn.LayerNorm.'
            )
    return several


def brief(value: Any) -> str:
    """A dtype, a pattern or several of them, as one writes it."""
    if isinstance(value, tuple):
        inner = ", ".join(map(brief, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    return repr(value) if isinstance(value, str) else getattr(value, "__name__", repr(value))


class Place(NamedTuple):
    """A module and what stands above it, from the root down, by dotted path."""

    path: str
    module: nn.Module
    lineage: tuple[tuple[str, nn.Module], ...]


def places_in(model: nn.Module) -> Iterator[Place]:
    """Every module that holds tensors, under each of its paths.

    What only serves the module above it goes with that one: parametrizations, and attention's out_proj, which is never
    called itself. So a lineage ends at the module that computes.
    """
    at: dict[str, nn.Module] = {}
    for path, module in walk(model):
        at[path] = module
        if not module._parameters and not module._buffers:
            continue
        lineage = [("", at[""])]
        names = path.split(".")[:-1]
        for depth, name in enumerate(names, 1):
            above = lineage[-1][1]
            if (name == "parametrizations" and parametrize.is_parametrized(above)) or (
                name == "out_proj" and isinstance(above, nn.MultiheadAttention)
            ):
                break
            here = ".".join(names[:depth])
            lineage.append((here, at[f"{here}."]))
        yield Place(path, module, tuple(lineage))


def _fits(pattern: Pattern, place: Place) -> bool:
    if isinstance(pattern, str):
        return any(fnmatch.fnmatchcase(path, pattern) for path, _ in place.lineage)
    if isinstance(pattern, type):
        return any(isinstance(module, pattern) for _, module in place.lineage)
    return bool(pattern(place.lineage[-1][1]))


def covers(policy: Policy, place: Place) -> bool:
    """Whether a policy is meant for a module."""
    if policy.only is not None and not any(_fits(pattern, place) for pattern in policy.only):
        return False
    except_ = () if policy.except_ == () else (*(policy.except_ or ()), _BatchNorm)
    return not any(_fits(pattern, place) for pattern in except_)


def check_patterns(policy: Policy, model: nn.Module) -> None:
    """Refuse patterns that fit no module, and a policy that is meant for none.

    Raises
    ------
    PolicyError
    """
    places = [place for place in places_in(model) if own_dtype(place.module) is not None]
    for keyword, patterns in (("only", policy.only), ("except_", policy.except_)):
        for pattern in patterns or ():
            if any(_fits(pattern, place) for place in places):
                continue
            if isinstance(pattern, str):
                hint = nearest(pattern, {path for place in places for path, _ in place.lineage if path})
            elif isinstance(pattern, type):
                kinds = {type(module).__name__ for place in places for _, module in place.lineage}
                hint = nearest(pattern.__name__, kinds)
            else:
                hint = "asked of " + ", ".join(sorted({type(place.lineage[-1][1]).__name__ for place in places}))
            raise PolicyError(
                f"{keyword}={brief(pattern)} fits no module with floating parameters or buffers, so it would do "
                f"nothing: {hint}"
            )
    if policy.only is not None and not any(covers(policy, place) for place in places):
        raise PolicyError(
            f"{policy!r} is for no module: all that fit only= are excepted. Batch norm is, unless except_=()."
        )


def own_dtype(module: nn.Module) -> torch.dtype | None:
    """The dtype of a module's own parameters, or else of its buffers; None if it holds no floating tensor."""
    for table in (module._parameters, module._buffers):
        for tensor in table.values():
            if tensor is not None and tensor.dtype in FLOATING.values():
                return tensor.dtype
    return None

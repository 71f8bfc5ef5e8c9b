"""Which numbers a model is kept in, computes in, and gives.

A `Policy` is a wish; `Policy.on` resolves it on a model. Nothing is left in the user's module: what a pass needs, casts
and hooks alike, exists for the length of that pass.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence

from gradviz.errors import PolicyError, described, nearest
from gradviz.grad.leaves import Leaves, leaves_of, walk
from gradviz.step.batch import call, is_several, map_leaves

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
        parts = [f"{name}={_brief(value)}" for name, value in vars(self).items() if value is not None]
        return f"Policy({', '.join(parts)})"

    def on(self, model: nn.Module) -> Precision:
        """The policy on one model; everything wrong with it shows here, before anything has moved.

        Raises
        ------
        PolicyError
            If a pattern fits no module that holds floating tensors, a parameter is too large for `params`, or a module
            is scripted.
        """
        dtype = self.compute or self.params
        if dtype is not None and any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
            raise PolicyError(
                "A scripted module computes as it was compiled, without a policy. Give the policy the model before "
                f"torch.jit.script, or convert it yourself: model.to(torch.{_brief(dtype)})."
            )
        _check_patterns(self, model)
        precision = Precision(self, model)
        precision.check_unwrapped()
        precision.check_range()
        return precision


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


def _brief(value: Any) -> str:
    if isinstance(value, tuple):
        inner = ", ".join(map(_brief, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    return repr(value) if isinstance(value, str) else getattr(value, "__name__", repr(value))


class _Place(NamedTuple):
    """A module and what stands above it, from the root down, by dotted path."""

    path: str
    module: nn.Module
    lineage: tuple[tuple[str, nn.Module], ...]


def _places(model: nn.Module) -> Iterator[_Place]:
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
        yield _Place(path, module, tuple(lineage))


def _fits(pattern: Pattern, place: _Place) -> bool:
    if isinstance(pattern, str):
        return any(fnmatch.fnmatchcase(path, pattern) for path, _ in place.lineage)
    if isinstance(pattern, type):
        return any(isinstance(module, pattern) for _, module in place.lineage)
    return bool(pattern(place.lineage[-1][1]))


def _is_meant(policy: Policy, place: _Place) -> bool:
    if policy.only is not None and not any(_fits(pattern, place) for pattern in policy.only):
        return False
    except_ = () if policy.except_ == () else (*(policy.except_ or ()), _BatchNorm)
    return not any(_fits(pattern, place) for pattern in except_)


def _check_patterns(policy: Policy, model: nn.Module) -> None:
    places = [place for place in _places(model) if _own_dtype(place.module) is not None]
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
                f"{keyword}={_brief(pattern)} fits no module with floating parameters or buffers, so it would do "
                f"nothing: {hint}"
            )
    if policy.only is not None and not any(_is_meant(policy, place) for place in places):
        raise PolicyError(
            f"{policy!r} is for no module: all that fit only= are excepted. Batch norm is, unless except_=()."
        )


class _Holder(NamedTuple):
    """A module that holds tensors of its own, and whether the policy is for it."""

    paths: tuple[str, ...]
    actual_path: str  # with the names of wrappers
    module: nn.Module
    is_meant: bool

    def tensors(self) -> Iterator[tuple[str, Tensor, bool]]:
        """Names, tensors, and whether each is a buffer."""
        for table, is_buffer in ((self.module._parameters, False), (self.module._buffers, True)):
            for name, tensor in table.items():
                if tensor is not None:
                    yield name, tensor, is_buffer


class Precision:
    """A policy on one model; made by `Policy.on`.

    With ``Policy()`` everything passes through as it is.
    """

    def __init__(self, policy: Policy, model: nn.Module) -> None:
        self.policy = policy
        self._model = model
        self._computes = policy.compute or policy.params
        self._leaves: Leaves | None = None
        self._known: list[_Holder] = []

    def __repr__(self) -> str:
        return f"{self.policy!r} on {type(self._model).__name__}"

    @property
    def casts(self) -> bool:
        """Whether a pass casts inputs or tensors on its way."""
        return self._computes is not None

    def _holders(self, module: nn.Module) -> list[_Holder]:
        leaves = leaves_of(module)
        if leaves is not self._leaves:
            # A module that stands in several places is cast once; one place that is excepted is enough to leave it.
            actual = {id(child): f"{path}." if path else "" for path, child in module.named_modules()}
            first: dict[int, _Holder] = {}
            for path, child, lineage in _places(module):
                known = first.get(id(child), _Holder((), actual[id(child)], child, True))
                is_meant = known.is_meant and _is_meant(self.policy, _Place(path, child, lineage))
                first[id(child)] = known._replace(paths=(*known.paths, path), is_meant=is_meant)
            self._leaves, self._known = leaves, list(first.values())
        return self._known

    def input_dtype(self, default: torch.dtype) -> torch.dtype:
        """What floating inputs of the model are cast to: `compute`, else `params`, else `default`.

        It is a dtype of the first module's: where the policy is not for that one, its inputs keep its own.
        """
        if self._computes is None:
            return default
        for holder in self._holders(self._model):
            own = _own_dtype(holder.module)
            if own is not None:
                return self._computes if holder.is_meant else own
        return self._computes

    def _converted(self) -> Iterator[tuple[str, nn.Parameter]]:
        params = self.policy.params
        if params is None:
            return
        names = {id(p): name for name, p in leaves_of(self._model).parameters.items()}
        kept = self._kept()
        for holder in self._holders(self._model):
            for p in holder.module._parameters.values():
                if p is not None and id(p) not in kept and id(p) in names and _differs(p, params):
                    yield names.pop(id(p)), p

    def _kept(self) -> set[int]:
        """What stays as it is: also tensors tied to an excepted module."""
        holders = [holder for holder in self._holders(self._model) if not holder.is_meant]
        return {id(tensor) for holder in holders for _, tensor, _ in holder.tensors()}

    def check_unwrapped(self) -> None:
        """Refuse to convert what a wrapper has taken in: DDP's buckets would stay behind, and nothing be reduced."""
        wrapper = leaves_of(self._model).wrapper if self.policy.params else None
        if wrapper not in (None, "DataParallel") and any(True for _ in self._converted()):
            raise PolicyError(
                f"{wrapper} has taken the parameters in as they are, and would not reduce the gradients of converted "
                f"ones. Convert before you wrap: {wrapper}(model.to({self.policy.params})). compute= and output= stay."
            )

    def check_range(self) -> None:
        """Refuse parameters that conversion would make infinite."""
        for name, p in self._converted():
            params = self.policy.params or p.dtype
            largest = torch.finfo(params).max
            if largest < torch.finfo(p.dtype).max and p.numel():
                lowest, highest = p.detach().aminmax()
                extreme = max(-lowest.item(), highest.item())
                if largest < extreme < float("inf"):
                    raise PolicyError(
                        f"{name} has an entry of size {extreme:g}, and {_brief(params)} holds {largest:g} at most. "
                        f'Take params= of a wider range, or leave it out: except_="{name.rpartition(".")[0] or "*"}".'
                    )

    def convert(self) -> dict[str, Tensor]:
        """Convert parameters and buffers to `params`; parameters stay the same objects.

        Returns
        -------
        dict of str to Tensor
            By name, for each parameter that was made 16-bit: its value before rounding, in float32.
        """
        params = self.policy.params
        if params is None:
            return {}
        before = {}
        for name, p in list(self._converted()):
            if params in HALF:
                before[name] = p.detach().to(torch.float32)
            p.data = p.data.to(params)
            if p.grad is not None:
                p.grad = p.grad.to(params)
        kept = self._kept()
        buffers: dict[int, tuple[Tensor, Tensor]] = {}  # the old ones too, so that no id is used again
        for holder in self._holders(self._model):
            for name, buffer in holder.module._buffers.items():
                if buffer is not None and id(buffer) not in kept and _differs(buffer, params):
                    _, new = buffers.setdefault(id(buffer), (buffer, buffer.to(params)))
                    holder.module._buffers[name] = new
            if isinstance(holder.module, nn.RNNBase):
                holder.module.flatten_parameters()  # cuDNN wants them in one block, which conversion has torn apart
        return before

    @contextlib.contextmanager
    def converted(self) -> Iterator[dict[str, Tensor]]:
        """The model converted, and what `convert` gives; as it was again if what is done inside fails."""
        parameters = [(p, p.data, p.grad) for p in self._model.parameters()] if self.policy.params else []
        buffers = [(child._buffers, dict(child._buffers)) for child in self._model.modules() if child._buffers]
        try:
            yield self.convert()
        except BaseException:
            for p, data, gradient in parameters:
                p.data, p.grad = data, gradient
            for table, before in buffers:
                table.update(before)
            raise

    def __call__(self, module: nn.Module, inputs: Any, tensors: dict[str, Tensor] | None = None) -> Any:
        """A forward pass under the policy.

        Parameters
        ----------
        module : torch.nn.Module
        inputs : tensor, tuple, list or mapping
            In the three forms of a batch's inputs.
        tensors : dict of str to Tensor, optional
            Others than the module's own to compute with; buffers that the pass moves are put back into it.
        """
        if self._computes is None:
            prediction = call(module, inputs) if tensors is None else _call_with(module, tensors, inputs)
        else:
            with self._inputs_cast(module, self._computes):
                prediction = self._computed(module, inputs, tensors, self._computes)
        return prediction if self.policy.output is None else _cast(prediction, self.policy.output)

    @contextlib.contextmanager
    def _inputs_cast(self, module: nn.Module, computes: torch.dtype) -> Iterator[None]:
        """Each module gets its inputs in the dtype it computes in, whatever came out of the last one."""
        handles = []
        # It would not come by here: it reads the parameters of modules that it doesn't call, and hooks turn part of it
        # off and leave the rest with nested tensors.
        is_fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            for holder in self._holders(module):
                own = _own_dtype(holder.module)
                if own is not None:
                    hook = functools.partial(_cast_arguments, computes if holder.is_meant else own)
                    handles.append(holder.module.register_forward_pre_hook(hook, with_kwargs=True))
            yield
        finally:
            for handle in handles:
                handle.remove()
            torch.backends.mha.set_fastpath_enabled(is_fast)

    def _computed(
        self, module: nn.Module, inputs: Any, tensors: dict[str, Tensor] | None, computes: torch.dtype
    ) -> Any:
        unknown = set(tensors or ())
        keys: dict[int, list[str]] = {}  # what each own tensor is called in `tensors`; a tied one has several names
        for holder in self._holders(module) if tensors else ():
            for name, own, _ in holder.tensors():
                called = [path + name for path in holder.paths if path + name in unknown]
                unknown.difference_update(called)
                keys.setdefault(id(own), []).extend(called)
        swapped = {name: tensors[name] for name in unknown} if tensors else {}
        casts: dict[int, Tensor] = {}  # a tied parameter is cast once
        moving: list[_Moving] = []
        for holder in self._holders(module):
            for name, own, is_buffer in holder.tensors():
                given = keys.get(id(own), [])
                source = next((tensors[key] for key in given if tensors[key] is not own), own) if tensors else own
                used = source
                if holder.is_meant and _differs(source, computes):
                    used = casts.setdefault(id(source), source.to(computes))
                if given or used is not own:
                    swapped[holder.actual_path + name] = used
                    if is_buffer:
                        moving.append(_Moving(holder, name, given, source))
        if not swapped:
            return call(module, inputs)
        prediction = _call_with(module, swapped, inputs, tie_weights=False)
        for buffer in moving:
            buffer.settle(swapped, tensors)
        return prediction


class _Moving(NamedTuple):
    """A buffer that another tensor stood in for, during a pass."""

    holder: _Holder
    name: str
    given: list[str]
    source: Tensor

    def settle(self, swapped: dict[str, Tensor], tensors: dict[str, Tensor] | None) -> None:
        """Put back what the pass made of it, in the buffer's own dtype."""
        source, after = self.source, swapped[self.holder.actual_path + self.name]
        # By value: batch norm moves its statistics without counting a version. One that has not moved keeps its digits.
        if after is source or (after.shape == source.shape and torch.equal(after, source.to(after.dtype))):
            return
        if tensors is not None and self.given:
            tensors.update(dict.fromkeys(self.given, after.to(source.dtype)))
        elif after.shape == source.shape:
            with torch.no_grad():
                source.copy_(after)
        else:
            self.holder.module._buffers[self.name] = after.to(source.dtype)


def _call_with(module: nn.Module, tensors: dict[str, Tensor], inputs: Any, *, tie_weights: bool = True) -> Any:
    args: tuple[Any, ...] = (inputs,)
    kwargs: dict[str, Any] = {}
    if isinstance(inputs, Mapping):
        args, kwargs = (), dict(inputs)
    elif is_several(inputs):
        args = tuple(inputs)
    return torch.func.functional_call(module, tensors, args, kwargs, tie_weights=tie_weights)


def _cast_arguments(
    dtype: torch.dtype, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    done: dict[int, Tensor] = {}
    cast_args = tuple([_cast(value, dtype, done) for value in args])
    return cast_args, {name: _cast(value, dtype, done) for name, value in kwargs.items()}


def _cast(value: Any, dtype: torch.dtype, done: dict[int, Tensor] | None = None) -> Any:
    """Floating tensors in a value, cast. One that comes again is the same again: self-attention asks for that."""
    done = {} if done is None else done

    def cast(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            if not _differs(leaf, dtype):
                return leaf
            if id(leaf) not in done:
                done[id(leaf)] = leaf.to(dtype)
            return done[id(leaf)]
        if isinstance(leaf, PackedSequence) and _differs(leaf.data, dtype):
            return leaf.to(dtype)
        return leaf

    return map_leaves(cast, value)


def _differs(tensor: Tensor, dtype: torch.dtype) -> bool:
    return tensor.dtype != dtype and tensor.dtype in FLOATING.values()


def _own_dtype(module: nn.Module) -> torch.dtype | None:
    """The dtype of a module's own parameters, or else of its buffers; None if it holds no floating tensor."""
    for table in (module._parameters, module._buffers):
        for tensor in table.values():
            if tensor is not None and tensor.dtype in FLOATING.values():
                return tensor.dtype
    return None

"""A policy on a model: what its tensors are converted to, and what each pass is cast to.

Nothing is left in the user's module: what a pass needs, casts and hooks alike, exists for the length of that pass.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from gradviz.errors import PolicyError
from gradviz.grad.leaves import Leaves, leaves_of
from gradviz.step.batch import call, is_several, map_leaves
from gradviz.step.policy import FLOATING, HALF, Place, Policy, brief, check_patterns, covers, own_dtype, places_in
from gradviz.step.tensors import equal


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
    """A policy on one model. With ``Policy()`` everything passes through as it is.

    Parameters
    ----------
    policy : Policy
    model : torch.nn.Module

    Raises
    ------
    PolicyError
        Before anything has moved: if a pattern fits no module that holds floating tensors, a parameter is too large for
        `params`, a wrapper has taken in what would be converted, or a module is scripted.
    """

    def __init__(self, policy: Policy, model: nn.Module) -> None:
        self.policy = policy
        self._model = model
        self._computes = policy.compute or policy.params
        self._leaves: Leaves | None = None
        self._known: list[_Holder] = []
        self._check_unscripted()
        check_patterns(policy, model)
        self._check_unwrapped()
        self._check_range()

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
            for path, child, lineage in places_in(module):
                known = first.get(id(child), _Holder((), actual[id(child)], child, True))
                is_meant = known.is_meant and covers(self.policy, Place(path, child, lineage))
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
            own = own_dtype(holder.module)
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

    def _check_unscripted(self) -> None:
        if self.casts and any(isinstance(module, torch.jit.ScriptModule) for module in self._model.modules()):
            raise PolicyError(
                "A scripted module computes as it was compiled, without a policy. Give the policy the model before "
                f"torch.jit.script, or convert it yourself: model.to(torch.{brief(self._computes)})."
            )

    def _check_unwrapped(self) -> None:
        """Refuse to convert what a wrapper has taken in: DDP's buckets would stay behind, and nothing be reduced."""
        wrapper = leaves_of(self._model).wrapper if self.policy.params else None
        if wrapper not in (None, "DataParallel") and any(True for _ in self._converted()):
            raise PolicyError(
                f"{wrapper} has taken the parameters in as they are, and would not reduce the gradients of converted "
                f"ones. Convert before you wrap: {wrapper}(model.to({self.policy.params})). compute= and output= stay."
            )

    def _check_range(self) -> None:
        """Refuse parameters that conversion would make infinite."""
        for name, p in self._converted():
            params = self.policy.params or p.dtype
            largest = torch.finfo(params).max
            if largest < torch.finfo(p.dtype).max and p.numel():
                lowest, highest = p.detach().aminmax()
                extreme = max(-lowest.item(), highest.item())
                if largest < extreme < float("inf"):
                    raise PolicyError(
                        f"{name} has an entry of size {extreme:g}, and {brief(params)} holds {largest:g} at most. "
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
                own = own_dtype(holder.module)
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
        for holder in self._holders(module):
            for p in holder.module._parameters.values():
                if p is not None and id(p) in casts and casts[id(p)]._version:
                    _take_over(casts[id(p)], p)
        return prediction


def _take_over(cast: Tensor, p: Tensor) -> None:
    """What a pass wrote into the cast of a parameter, to hold its norm say; the other entries keep their digits."""
    with torch.no_grad():
        unwritten = cast == p.to(cast.dtype)
        p.copy_(torch.where(unwritten, p, cast.to(p.dtype)))


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
        if after is source or (after.shape == source.shape and equal(after, source.to(after.dtype))):
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

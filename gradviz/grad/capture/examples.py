"""Norms of the parameters' gradients by example: which example pulls at which layer, and how hard.

A parameter's gradient is a sum over the examples of a batch, and backward keeps only the sum. What a module was called
with and the gradient of its output hold the terms. For the common layers a term is a product of the two, taken for
many examples at once; other modules are run again with a copy of the parameters for each example, and differentiated.

A number is told only if it is one example's: a run again must give the outputs that the whole batch gives, draw nothing
and leave the module alone. Where it does not, the parameter gets a reason instead.
"""

from __future__ import annotations

import copy
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import MethodType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv1d_weight, conv2d_weight, conv3d_weight
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from gradviz.errors import whole

AT_ONCE = 64 << 20
"""Bytes that gradients by example take at the same time; those of one example are made in any case."""


class ModuleCall(NamedTuple):
    """One call of a module, and the gradient that came back to it."""

    module: nn.Module
    """Its own parameters are asked about, not those of the modules in it."""
    args: tuple[Any, ...]
    """What it was called with; tensors detached, with the values they had at the call."""
    kwargs: dict[str, Any]
    gradient: Tensor
    """Of the loss with respect to the one tensor that it returned."""


class _CannotTellError(Exception):
    """Why a gradient cannot be told apart by example."""


def parameter_example_norms(
    calls: Sequence[ModuleCall], *, batch_dim: int = 0, totals: dict[nn.Parameter, Tensor] | None = None
) -> tuple[dict[nn.Parameter, Tensor], dict[nn.Parameter, str]]:
    """The norm of each trainable parameter's gradient for each example, over all calls together.

    A parameter that several calls use, of one module or of several (tied weights), has the sum of their gradients for
    an example, and then its norm. A use outside these calls is not counted: give every call of every module that a
    parameter is in, and compare `totals` with what the backward pass gave. Parameters and train flags have to be as
    they were at the calls, and autocast too.

    Nothing that was given changes: neither the modules, their buffers and ``.grad``, nor the tensors, nor a random
    stream; no hook is called.

    Parameters
    ----------
    calls : sequence of ModuleCall
        Calls of one forward pass.
    batch_dim : int
        The axis of the inputs and of the gradient that counts examples. An input of another length there is the same
        for all examples, as a mask may be.
    totals : dict of Tensor, optional
        Has each parameter's gradient, summed over the examples, added to what it holds: where that is not what the
        backward pass gave, the parameter is used in other ways as well.

    Returns
    -------
    norms : dict of Tensor
        By parameter, one number for each example: 1-D float64, on the gradient's device. NaN and infinite where the
        gradient is. Parameters of 16 bits have theirs computed in float32 where the module is a common layer.
    reasons : dict of str
        By parameter, why its norms cannot be told. Frozen parameters are in neither.

    Raises
    ------
    ValueError
        If `batch_dim` is not a whole number from 0 on.

    Examples
    --------
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> call = ModuleCall(layer, (torch.tensor([[3.0, 4.0], [0.0, 1.0]]),), {}, torch.tensor([[1.0], [2.0]]))
    >>> norms, reasons = parameter_example_norms([call])
    >>> norms[layer.weight]
    tensor([5., 2.], dtype=torch.float64)
    >>> norm = nn.BatchNorm1d(2)
    >>> norms, reasons = parameter_example_norms([ModuleCall(norm, call.args, {}, torch.ones(2, 2))])
    >>> reasons[norm.weight]
    'BatchNorm1d takes statistics of the whole batch, so that no gradient belongs to one example'
    """
    whole("batch_dim", batch_dim)
    modules: dict[nn.Module, list[ModuleCall]] = {}
    for call in calls:
        modules.setdefault(call.module, []).append(call)
    users: dict[nn.Parameter, list[nn.Module]] = {}
    for module in modules:
        for parameter in module.parameters(recurse=False):
            if parameter.requires_grad:
                users.setdefault(parameter, []).append(module)
    # Parameters with the same users are taken together, so that a module is run again once for all of them.
    together: dict[tuple[nn.Module, ...], list[nn.Parameter]] = {}
    for parameter, using in users.items():
        together.setdefault(tuple(using), []).append(parameter)

    norms: dict[nn.Parameter, Tensor] = {}
    reasons: dict[nn.Parameter, str] = {}
    for sharing, parameters in together.items():
        names = " and ".join(type(module).__name__ for module in sharing)
        try:
            with torch.inference_mode(False), torch.no_grad():
                terms = [_terms(module, modules[module], batch_dim) for module in sharing]
                sums: dict[nn.Parameter, Tensor] = {}
                told = _norms(terms, parameters, sums)
        except _CannotTellError as reason:
            reasons.update(dict.fromkeys(parameters, str(reason)))
            continue
        except Exception as error:  # of the module's own code, most often
            first_line = str(error).partition("\n")[0]
            failed = f"{names} cannot be taken by example: {type(error).__name__}: {first_line}"
            reasons.update(dict.fromkeys(parameters, failed))
            continue
        for parameter, each in zip(parameters, told, strict=True):
            if isinstance(each, str):
                reasons[parameter] = f"{names} {each}"
            else:
                norms[parameter] = each
                if totals is not None and parameter in sums:
                    totals[parameter] = sums[parameter] + totals.get(parameter, 0)
    # In the order in which the parameters first come, which is not that of the groups.
    return {p: norms[p] for p in users if p in norms}, {p: reasons[p] for p in users if p in reasons}


def _terms(module: nn.Module, calls: list[ModuleCall], batch_dim: int) -> _Terms:
    name = type(module).__name__
    for call in calls:
        if call.gradient.ndim <= batch_dim:
            shape = tuple(call.gradient.shape)
            raise _CannotTellError(f"{name} gave an output of shape {shape}, which has no axis {batch_dim} of examples")
    lengths = sorted({call.gradient.shape[batch_dim] for call in calls})
    if len(lengths) > 1:
        raise _CannotTellError(f"{name} was called with {_listed(lengths)} examples along axis {batch_dim}")
    layer = LAYERS.get(type(module))
    if layer is None or not _is_plain(module, calls):
        return _Again(module, calls, batch_dim)
    return layer(module, calls, batch_dim)


def _is_plain(module: nn.Module, calls: list[ModuleCall]) -> bool:
    """Whether it computes what its class says, from parameters that are its own: no other forward, no weight norm."""
    names = dict(module.named_parameters(recurse=False)).keys()
    is_real = not any(call.gradient.is_complex() for call in calls)
    return is_real and "forward" not in vars(module) and {"weight"} <= names <= {"weight", "bias"}


def _listed(lengths: Sequence[int]) -> str:
    return " and with ".join(map(str, lengths))


# Norms of many examples -----------------------------------------------------------------------------------------------


def _norms(terms: list[_Terms], parameters: list[nn.Parameter], sums: dict[nn.Parameter, Tensor]) -> list[Tensor | str]:
    """By parameter, the norms for all examples, or what its modules do that they cannot be told; with the sums."""
    lengths = sorted({each.examples for each in terms})
    if len(lengths) > 1:
        raise _CannotTellError(f"the modules that share it were called with {_listed(lengths)} examples")
    (examples,), device = lengths, terms[0].device
    if not examples:
        return [torch.zeros(0, dtype=_wide(device), device=device) for _ in parameters]
    known = {p: terms[0].norms(p) if len(terms) == 1 else None for p in parameters}
    norms: dict[nn.Parameter, Tensor | str] = {p: each for p, each in known.items() if each is not None}
    sums.update({p: terms[0].total(p) for p in norms})
    if left := [p for p in parameters if p not in norms]:
        made = _by_chunks(terms, left, torch.arange(examples, device=device), sums)
        for place, p in enumerate(left):
            doubt = next((doubt for each in terms if (doubt := each.doubt(p))), None)
            found = made[place]
            norms[p] = doubt or (NO_PATH if found is None else found)
    return [norms[p] for p in parameters]


NO_PATH = "has no path from it to its output when it is run again"


def _by_chunks(
    terms: Sequence[_Terms],
    parameters: list[nn.Parameter],
    rows: Tensor,
    sums: dict[nn.Parameter, Tensor] | None = None,
) -> list[Tensor | None]:
    """Norms of the examples with the numbers `rows`; their gradients are made for a few of them at a time."""
    # Three times: two summands and their sum, or the gradients and a copy in float64 of which the norm is taken.
    size = 3 * sum(p.numel() * max(p.element_size(), 4) for p in parameters)
    chunks = rows.split(max(1, AT_ONCE // max(size, 1)))
    norms: list[list[Tensor | None]] = [[] for _ in parameters]
    for some in chunks:
        made = [each.gradients(parameters, some) for each in terms]
        for place, parameter in enumerate(parameters):
            gradient = _sum([gradients[place] for gradients in made])
            if gradient is not None and gradient.shape != (len(some), *parameter.shape):
                raise _CannotTellError(f"its gradients came out in the shape {tuple(gradient.shape[1:])}")
            norms[place].append(None if gradient is None else _norms_of_rows(gradient))
            if gradient is not None and sums is not None:
                sums[parameter] = gradient.sum(0) + sums.get(parameter, 0)
    # A module may choose its path by what it is given: zero for examples without one where others have one.
    return [_put_together(each, chunks) for each in norms]


def _put_together(norms: list[Tensor | None], chunks: Sequence[Tensor]) -> Tensor | None:
    reached = [each for each in norms if each is not None]
    if not reached:
        return None
    return torch.cat(
        [reached[0].new_zeros(len(some)) if each is None else each for each, some in zip(norms, chunks, strict=True)]
    )


def _sum(gradients: Sequence[Tensor | None]) -> Tensor | None:
    """The sum of those that have a path; None if none has."""
    reached = [gradient for gradient in gradients if gradient is not None]
    return functools.reduce(torch.add, reached) if reached else None


def _norms_of_rows(rows: Tensor) -> Tensor:
    """The 2-norm of each row, right at both ends of the range."""
    rows = torch.view_as_real(rows) if rows.is_complex() else rows
    rows = rows.reshape(len(rows), rows[:1].numel())
    wide = _wide(rows.device)
    norms: Tensor
    if rows.dtype.itemsize < wide.itemsize or not rows.shape[1]:
        norms = torch.linalg.vector_norm(rows, dim=1, dtype=wide)
        return norms
    # Nothing is wider, so by the largest magnitude; where that is 0, NaN or infinite, so is the norm.
    largest = rows.abs().amax(1, keepdim=True)
    scale = largest.where(largest.isfinite() & (largest > 0), 1)
    norms = torch.linalg.vector_norm(rows / scale, dim=1) * scale.squeeze(1)
    return norms


def _wide(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # Metal has no float64


# Terms of the sum -----------------------------------------------------------------------------------------------------


class _Terms(ABC):
    """What the gradients of a module's parameters are made of, over all its calls, with the examples apart."""

    examples: int
    device: torch.device

    @abstractmethod
    def gradients(self, parameters: list[nn.Parameter], rows: Tensor) -> list[Tensor | None]:
        """Of each parameter, ``[rows, *its shape]``; None where no path leads to it."""

    def norms(self, parameter: nn.Parameter) -> Tensor | None:
        """Norms for all examples where they are known without making the gradients."""
        return None

    def total(self, parameter: nn.Parameter) -> Tensor:
        """The gradient summed over all examples, where their norms are known so."""
        raise NotImplementedError

    def doubt(self, parameter: nn.Parameter) -> str | None:
        """Why the gradients that were made are no gradients by example, if they are none."""
        return None


class _Layer(_Terms):
    """A common layer, whose gradients are products of its input and the gradient of its output.

    A method of the name of each parameter gives the gradients of that one.
    """

    def __init__(self, module: Any, calls: list[ModuleCall], batch_dim: int) -> None:
        self.module = module
        self.examples, self.device = calls[0].gradient.shape[batch_dim], calls[0].gradient.device
        pairs = [self._pair(call, batch_dim) for call in calls]
        self._keep(pairs)

    def _pair(self, call: ModuleCall, batch_dim: int) -> tuple[Tensor, Tensor]:
        """The input and the gradient of a call as ``[examples, positions, ...]``, in float32 or wider."""
        (x,) = (*call.args, *call.kwargs.values())
        gradient, name, axes = call.gradient, type(self.module).__name__, self._free_axes(x)
        if batch_dim >= axes:
            raise _CannotTellError(
                f"{name} was called with an input of shape {tuple(x.shape)}, whose axis {batch_dim} counts no examples"
            )
        if x.shape[:axes] != gradient.shape[:axes]:
            shapes = f"{tuple(x.shape)} and the gradient of its output {tuple(gradient.shape)}"
            raise _CannotTellError(f"{name} was called with an input of shape {shapes}, which do not agree")
        dtype = functools.reduce(torch.promote_types, (gradient.dtype, self.module.weight.dtype, torch.float32))
        x = x.to(torch.promote_types(x.dtype, dtype)) if x.is_floating_point() else x
        x, gradient = (each.movedim(batch_dim, 0) for each in (x, gradient.to(dtype)))
        return self._flat(x, axes), self._flat(gradient, axes)

    def _flat(self, values: Tensor, axes: int) -> Tensor:
        positions = values.shape[1:axes].numel()
        return values.reshape(len(values), positions, *values.shape[axes:])

    @abstractmethod
    def _free_axes(self, x: Tensor) -> int:
        """How many axes of the input come before those that the layer mixes."""

    def _keep(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        """Keep what the gradients are made of: here, a further call is further positions."""
        self.inputs, self.gradient = (torch.cat(each, 1) for each in zip(*pairs, strict=True))

    def gradients(self, parameters: list[nn.Parameter], rows: Tensor) -> list[Tensor | None]:
        with torch.autocast(self.device.type, enabled=False):
            return [_sum([getattr(self, name)(rows) for name in self._names(each)]) for each in parameters]

    def _names(self, parameter: nn.Parameter) -> list[str]:
        return [name for name, own in self.module._parameters.items() if own is parameter]

    @abstractmethod
    def weight(self, rows: Tensor) -> Tensor: ...

    def bias(self, rows: Tensor) -> Tensor:
        return self.gradient[rows].sum(1)


class _Linear(_Layer):
    def _free_axes(self, x: Tensor) -> int:
        return x.ndim - 1

    def weight(self, rows: Tensor) -> Tensor:
        return self.gradient[rows].mT @ self.inputs[rows]

    def norms(self, parameter: nn.Parameter) -> Tensor | None:
        """One position: the norm of an outer product is the product of the norms, if no entry leaves the range."""
        if self._names(parameter) != ["weight"] or self.inputs.shape[1] != 1 or not parameter.numel():
            return None
        x, gradient = self.inputs[:, 0], self.gradient[:, 0]
        if parameter.shape != (gradient.shape[1], x.shape[1]):
            return None  # a weight that was put in the place of another: looked into with the others
        norms = _norms_of_rows(x) * _norms_of_rows(gradient)
        largest = x.abs().amax(1).to(norms) * gradient.abs().amax(1).to(norms)
        limits = torch.finfo(x.dtype)
        in_doubt = ~((largest > limits.tiny / limits.eps**2) & (largest < limits.max))
        rows = in_doubt.nonzero().squeeze(1)
        if len(rows):
            (made,) = _by_chunks([self], [parameter], rows)
            norms[rows] = cast(Tensor, made)
        return norms

    def total(self, parameter: nn.Parameter) -> Tensor:
        return self.gradient.flatten(0, 1).mT @ self.inputs.flatten(0, 1)


class _Embedding(_Layer):
    def _free_axes(self, x: Tensor) -> int:
        return x.ndim

    def _keep(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        if self.module.scale_grad_by_freq:
            raise _CannotTellError("Embedding divides by how often an index is in the whole batch (scale_grad_by_freq)")
        super()._keep(pairs)
        if self.module.padding_idx is not None:
            self.gradient = self.gradient.masked_fill((self.inputs == self.module.padding_idx).unsqueeze(-1), 0)

    def _places(self, rows: Tensor) -> Tensor:
        """Where each position's gradient goes if the examples' weights lie one below the other."""
        first = torch.arange(len(rows), device=self.device) * len(self.module.weight)
        return (self.inputs[rows] + first.unsqueeze(1)).flatten()

    def weight(self, rows: Tensor) -> Tensor:
        count, width = self.module.weight.shape
        gradients = self.gradient.new_zeros(len(rows) * count, width)
        gradients.index_add_(0, self._places(rows), self.gradient[rows].flatten(0, 1))
        return gradients.view(len(rows), count, width)

    def total(self, parameter: nn.Parameter) -> Tensor:
        return torch.zeros_like(parameter, dtype=self.gradient.dtype).index_add_(
            0, self.inputs.flatten(), self.gradient.flatten(0, 1)
        )

    def norms(self, parameter: nn.Parameter) -> Tensor:
        """Of the entries that an example looked up: its gradient is zero at all others."""
        places = self._places(torch.arange(self.examples, device=self.device))
        found, which = places.unique(return_inverse=True)
        sums = self.gradient.new_zeros(len(found), parameter.shape[1])
        sums.index_add_(0, which, self.gradient.flatten(0, 1))
        parts, example = _norms_of_rows(sums), found // len(parameter)
        largest = parts.new_zeros(self.examples).scatter_reduce(0, example, parts, "amax")
        scale = largest.where(largest.isfinite() & (largest > 0), 1)
        squares = torch.zeros_like(scale).index_add_(0, example, (parts / scale[example]).square())
        return squares.sqrt() * scale


class _LayerNorm(_Layer):
    def _free_axes(self, x: Tensor) -> int:
        return x.ndim - len(self.module.normalized_shape)

    def _keep(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        super()._keep(pairs)
        self.inputs = F.layer_norm(self.inputs, self.module.normalized_shape, eps=self.module.eps)

    def weight(self, rows: Tensor) -> Tensor:
        return (self.inputs[rows] * self.gradient[rows]).sum(1)


class _Conv(_Layer):
    """Examples are groups of channels: the weight of each group has a gradient of its own."""

    def _free_axes(self, x: Tensor) -> int:
        return x.ndim - 1 - len(self.module.kernel_size)  # none without a batch

    def _flat(self, values: Tensor, axes: int) -> Tensor:
        return values

    def _keep(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        self.pairs = pairs

    def weight(self, rows: Tensor) -> Tensor:
        conv, count = self.module, len(rows)
        mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
        gradient_of = WEIGHT_GRADIENTS[len(conv.kernel_size)]
        options = {"stride": conv.stride, "dilation": conv.dilation, "groups": count * conv.groups}
        total: Tensor = torch.zeros((), device=self.device)
        for x, gradient in self.pairs:
            padded = F.pad(x[rows], conv._reversed_padding_repeated_twice, mode=mode)
            inputs, outputs = (each.flatten(0, 1).unsqueeze(0) for each in (padded, gradient[rows]))
            shape = (count * conv.out_channels, *conv.weight.shape[1:])
            total = total + gradient_of(inputs, shape, outputs, **options).view(count, *conv.weight.shape)
        return total

    def bias(self, rows: Tensor) -> Tensor:
        total: Tensor = torch.zeros((), device=self.device)
        for _, gradient in self.pairs:
            total = total + gradient[rows].flatten(2).sum(2)
        return total


WEIGHT_GRADIENTS: dict[int, Any] = {1: conv1d_weight, 2: conv2d_weight, 3: conv3d_weight}

LAYERS: dict[type[nn.Module], type[_Layer]] = {
    nn.Linear: _Linear,
    nn.Embedding: _Embedding,
    nn.LayerNorm: _LayerNorm,
    nn.Conv1d: _Conv,
    nn.Conv2d: _Conv,
    nn.Conv3d: _Conv,
}
"""By exact class: a subclass may compute something else."""


# Other modules --------------------------------------------------------------------------------------------------------


class _Again(_Terms):
    """Any module, run again with parameters of its own for each example."""

    def __init__(self, module: nn.Module, calls: list[ModuleCall], batch_dim: int) -> None:
        name = type(module).__name__
        if any(
            isinstance(each, _BatchNorm) and (each.training or each.running_mean is None) for each in module.modules()
        ):
            raise _CannotTellError(
                f"{name} takes statistics of the whole batch, so that no gradient belongs to one example"
            )
        self.examples, self.device = calls[0].gradient.shape[batch_dim], calls[0].gradient.device
        self.runs = [_Run(call, batch_dim) for call in calls]

    def gradients(self, parameters: list[nn.Parameter], rows: Tensor) -> list[Tensor | None]:
        made = zip(*[run.gradients(parameters, rows) for run in self.runs], strict=True)
        return [_sum(each) for each in made]

    def doubt(self, parameter: nn.Parameter) -> str | None:
        if all(run.sums_up(parameter) for run in self.runs):
            return None
        return (
            "has gradients by example that do not sum up to its gradient: it mixes examples, or that is rounding alone"
        )


class _Run:
    """A call that can be made again, with some of its examples.

    The outputs of the examples are compared with those of the whole batch, and so is the sum of their gradients, which
    shows what is small in the output: a module that mixes examples, or an input that was cut along an axis of something
    else, gives others.
    """

    def __init__(self, call: ModuleCall, batch_dim: int) -> None:
        self.call, self.batch_dim, self.name = call, batch_dim, type(call.module).__name__
        self.leaves, self.structure = tree_flatten((call.args, call.kwargs))
        self.gradient = call.gradient.movedim(batch_dim, 0)
        examples = len(self.gradient)
        self.by_example = [
            place
            for place, leaf in enumerate(self.leaves)
            if isinstance(leaf, Tensor) and leaf.ndim > batch_dim and leaf.shape[batch_dim] == examples
        ]
        if not self.by_example:
            raise _CannotTellError(
                f"{self.name} was called with no tensor that has the {examples} examples of its output along axis "
                f"{batch_dim}"
            )
        self.sums: dict[nn.Parameter, Tensor] = {}
        self.sizes: dict[nn.Parameter, Tensor] = {}
        if examples:
            parameters = [p for p in call.module.parameters(recurse=False) if p.requires_grad]
            with torch.enable_grad():
                copies = [p.detach().requires_grad_() for p in parameters]
                output = self._whole(parameters, copies)
            self.output = output.detach().movedim(batch_dim, 0)
            self.whole = dict(zip(parameters, _gradients(output, copies, call.gradient), strict=True))

    def _whole(self, parameters: list[nn.Parameter], copies: list[Tensor]) -> Tensor:
        twin = _twin(self.call.module)
        output = self._output(twin, self._named(parameters, copies), self.leaves)
        if output.shape != self.call.gradient.shape:
            shapes = f"{tuple(output.shape)}; the gradient of its output has {tuple(self.call.gradient.shape)}"
            raise _CannotTellError(f"{self.name} gives an output of shape {shapes}")
        for (name, before), (_, after) in zip(self.call.module.named_buffers(), twin.named_buffers(), strict=True):
            if not torch.equal(before, after):
                raise _CannotTellError(f"{self.name} changes its buffer {name!r}, which was another one at the call")
        return output

    def _named(self, parameters: list[nn.Parameter], copies: list[Tensor]) -> dict[str, Tensor]:
        """By name; a parameter may have two."""
        copied = dict(zip(parameters, copies, strict=True))
        return {name: copied[own] for name, own in self.call.module._parameters.items() if own in copied}

    def _output(self, twin: nn.Module, parameters: dict[str, Tensor], leaves: list[Any]) -> Tensor:
        # Its own copies: a module may write into what it is given.
        leaves = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        args, kwargs = tree_unflatten(leaves, self.structure)
        with _Guard(self.call.module):
            returned = torch.func.functional_call(twin, parameters, args, kwargs, tie_weights=False)
        outputs = [each for each in tree_leaves(returned) if isinstance(each, Tensor)]
        if len(outputs) != 1:
            raise _CannotTellError(f"{self.name} returns {len(outputs)} tensors; the gradient of one alone was kept")
        return outputs[0]

    def gradients(self, parameters: list[nn.Parameter], rows: Tensor) -> list[Tensor | None]:
        """Of each parameter, for all these examples at once if torch can, or else one after the other."""
        try:
            made = self._together(parameters, rows)
        except _CannotTellError:
            raise
        except Exception:  # a choice by a value, say, or writing in place: more than vmap can
            made = self._in_turn(parameters, rows)
        for parameter, gradient in zip(parameters, made, strict=True):
            if gradient is not None:
                self.sums[parameter] = self.sums.get(parameter, 0) + gradient.sum(0)
                self.sizes[parameter] = self.sizes.get(parameter, 0) + gradient.abs().sum(0)
        return made

    def sums_up(self, parameter: nn.Parameter) -> bool:
        """Whether the gradients of the examples, all of which were made, are the terms of the whole one."""
        whole, summed = self.whole[parameter], self.sums.get(parameter)
        if whole is None or summed is None:
            return whole is summed
        size = self.sizes[parameter]
        if not whole.numel() or not (whole.isfinite().all() and size.isfinite().all()):
            return True  # nothing can be compared, and what is not finite shows as itself
        return bool((whole - summed).abs().max() <= _near(whole.dtype) * size.max())

    def _together(self, parameters: list[nn.Parameter], rows: Tensor) -> list[Tensor | None]:
        with torch.enable_grad():
            copies = [p.detach().expand(len(rows), *p.shape).requires_grad_() for p in parameters]
            inputs = [self._cut(place, rows) for place in self.by_example]
            run = functools.partial(self._one, parameters)
            outputs = torch.vmap(run)(copies, inputs)
        return self._differentiated(outputs, copies, rows)

    def _in_turn(self, parameters: list[nn.Parameter], rows: Tensor) -> list[Tensor | None]:
        each: list[list[Tensor | None]] = []
        for row in rows.split(1):
            with torch.enable_grad():
                copies = [p.detach().requires_grad_() for p in parameters]
                inputs = [self._cut(place, row).squeeze(0) for place in self.by_example]
                outputs = self._one(parameters, copies, inputs).unsqueeze(0)
            each.append(self._differentiated(outputs, copies, row))
        return [_stacked(gradients, p) for gradients, p in zip(zip(*each, strict=True), parameters, strict=True)]

    def _cut(self, place: int, rows: Tensor) -> Tensor:
        leaf: Tensor = self.leaves[place]
        return leaf.movedim(self.batch_dim, 0)[rows]

    def _one(self, parameters: list[nn.Parameter], copies: list[Tensor], inputs: list[Tensor]) -> Tensor:
        """The output of one example, which the module sees as a batch of one."""
        leaves = list(self.leaves)
        for place, values in zip(self.by_example, inputs, strict=True):
            leaves[place] = values.unsqueeze(self.batch_dim)
        named = self._named(parameters, copies)
        output = self._output(_twin(self.call.module), named, leaves)
        if output.ndim <= self.batch_dim or output.shape[self.batch_dim] != 1:
            raise _CannotTellError(f"{self.name} gives one example alone an output of shape {tuple(output.shape)}")
        return output.squeeze(self.batch_dim)

    def _differentiated(self, outputs: Tensor, copies: list[Tensor], rows: Tensor) -> list[Tensor | None]:
        self._check_same(outputs.detach(), self.output[rows])
        return _gradients(outputs, copies, self.gradient[rows])

    def _check_same(self, outputs: Tensor, expected: Tensor) -> None:
        near = _near(expected.dtype)
        finite = expected[expected.isfinite()].abs()
        scale = float(finite.max()) if len(finite) else 0.0
        if outputs.shape != expected.shape or not torch.allclose(
            outputs, expected, rtol=near, atol=near * scale, equal_nan=True
        ):
            raise _CannotTellError(
                f"{self.name} gives an example alone another output than in the batch: it mixes examples, or has an "
                f"input whose axis {self.batch_dim} counts something else"
            )


def _gradients(outputs: Tensor, copies: list[Tensor], gradient: Tensor) -> list[Tensor | None]:
    """With respect to each copy; None where there is no path."""
    if not outputs.requires_grad:
        return [None] * len(copies)
    return list(torch.autograd.grad(outputs, copies, gradient.to(outputs.dtype), allow_unused=True))


def _near(dtype: torch.dtype) -> float:
    """How far apart, in parts of their size, numbers may be that were computed in another order: half the digits."""
    return math.sqrt(torch.finfo(dtype).eps)


def _stacked(gradients: Sequence[Tensor | None], parameter: Tensor) -> Tensor | None:
    """By example; zeros for one that has no path where others have."""
    if all(gradient is None for gradient in gradients):
        return None
    return torch.stack([torch.zeros_like(parameter) if gradient is None else gradient for gradient in gradients])


def _twin(module: nn.Module) -> nn.Module:
    """A module that computes the same from the same parameters, with buffers and attributes of its own and no hooks."""
    twins = {each: type(each).__new__(type(each)) for each in module.modules()}
    for each, twin in twins.items():
        own = vars(twin)
        for name, value in vars(each).items():
            if isinstance(value, MethodType) and value.__self__ is each:  # a forward of this very object
                value = MethodType(value.__func__, twin)
            own[name] = copy.copy(value) if isinstance(value, list | dict | set) else value
        own["_modules"] = {name: None if child is None else twins[child] for name, child in each._modules.items()}
        own["_buffers"] = {name: None if b is None else b.clone() for name, b in each._buffers.items()}
        own["_compiled_call_impl"] = twin.forward  # which torch calls in place of the hooks and forward
    return twins[module]


class _Guard(TorchDispatchMode):
    """Stops what a second run must not do, before it is done: draw random numbers, or write to a parameter."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name = type(module).__name__
        self.kept = {p.untyped_storage().data_ptr() for p in module.parameters() if p.numel()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        declared = func._schema.arguments
        given = {argument.name: value for argument, value in zip(declared, args, strict=False)} | kwargs
        if torch.Tag.nondeterministic_seeded in func.tags and not _drops_nothing(declared, given):
            raise _CannotTellError(f"{self.name} draws random numbers, and would draw others when it is run again")
        written = [given.get(argument.name) for argument in declared if _is_written(argument)]
        for each in tree_leaves(written):
            if isinstance(each, Tensor) and each.untyped_storage().data_ptr() in self.kept:
                raise _CannotTellError(f"{self.name} writes to its parameters when it is called")
        return func(*args, **kwargs)


def _drops_nothing(declared: Sequence[Any], given: dict[str, Any]) -> bool:
    """Attention is marked as drawing random numbers whether it drops anything or not."""
    share = {argument.name: argument.default_value for argument in declared if "dropout" in argument.name} | given
    return share.get("dropout_p", share.get("dropout")) == 0


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write

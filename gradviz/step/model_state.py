"""`ModelState`: a live view of a module's parameters and buffers, and what of it is frozen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gradviz.errors import FreezeError, ModelError, described, nearest
from gradviz.grad.leaves import leaves_of, walk
from gradviz.step.stillness import MOVING, STILL, WITH_PARAMETERS, ask, asked, counted, held_still

Which = str | Callable[[str], object]
"""Names of parameters and buffers: a glob pattern, the path of a module, or a function of the name."""


class ModelState(Mapping[str, Tensor]):
    """The tensors of a module by name, live: what the module holds now.

    Names are torch's own, without the prefixes of wrappers such as `torch.compile` and DistributedDataParallel. A tied
    parameter stands once, under its first name, and is found under its others too. To `torch.utils._pytree` it is a
    mapping: its leaves are parameters, then buffers.

    Examples
    --------
    >>> state = ModelState(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    >>> list(state.parameters)
    ['0.weight', '0.bias', '1.weight', '1.bias']
    >>> list(state.buffers)
    ['1.running_mean', '1.running_var', '1.num_batches_tracked']
    >>> state["0.weight"].shape
    torch.Size([3, 2])
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """Every parameter, frozen ones too, in declaration order."""
        return leaves_of(self.module).parameters

    @property
    def buffers(self) -> dict[str, Tensor]:
        """Tensors that are kept but not differentiated, such as running means."""
        by_id: dict[int, tuple[str, Tensor]] = {}
        for name, buffer in leaves_of(self.module).named_buffers():
            by_id.setdefault(id(buffer), (name, buffer))
        return dict(by_id.values())

    @property
    def trainable(self) -> dict[str, nn.Parameter]:
        """Parameters that require a gradient."""
        return {name: p for name, p in self.parameters.items() if p.requires_grad}

    @property
    def frozen(self) -> dict[str, nn.Parameter]:
        """Parameters with ``requires_grad=False``."""
        return {name: p for name, p in self.parameters.items() if not p.requires_grad}

    def freeze(self, *which: Which) -> ModelState:
        """Keep parameters and statistics as they are, from the next step on.

        Parameters get ``requires_grad=False`` and lose their gradient, so that neither weight decay nor momentum moves
        them; the optimizer keeps its moments. A module whose buffers are frozen runs in eval mode during training, so
        a batch norm's statistics stay, and are what it normalises by: for as long as its own parameters are frozen too,
        or, where its buffers were frozen without its parameters, until they are unfrozen. Freezes add up.

        Parameters
        ----------
        *which : str or callable
            Glob patterns on names (``"*.bias"``), paths of modules (``"encoder"``: everything below), or functions of
            a name. Names are those of parameters and buffers. Without any: everything.

        Returns
        -------
        ModelState
            Itself.

        Raises
        ------
        FreezeError
            If one of them fits no name; nothing is frozen then.

        Examples
        --------
        >>> state = ModelState(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)))
        >>> state.freeze("1", "*.bias")
        ModelState of Sequential: 9 of 19 parameters trainable
        >>> list(state.trainable)
        ['0.weight', '2.weight']
        """
        matched = self._matched("freeze", which)
        parameters = self._parameters_in(matched)
        with counted(self.module):
            for p in parameters:
                p.requires_grad = False
                p.grad = None
            for child, is_alone in self._owners_in(matched, parameters):
                if is_alone:
                    ask(child, STILL)
                elif asked(child) != STILL:
                    ask(child, WITH_PARAMETERS)
        return self

    def unfreeze(self, *which: Which) -> ModelState:
        """Train parameters, and let statistics move, from the next step on.

        Parameters
        ----------
        *which : str or callable
            As in `freeze`. Without any: everything.

        Returns
        -------
        ModelState
            Itself.

        Raises
        ------
        FreezeError
            If one of them fits no name, or only integer parameters, which have no gradient; nothing is unfrozen then.

        Examples
        --------
        >>> state = ModelState(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))).freeze()
        >>> state.unfreeze("1")
        ModelState of Sequential: 4 of 13 parameters trainable
        """
        matched = self._matched("unfreeze", which, differentiable=True)
        parameters = self._parameters_in(matched)
        with counted(self.module):
            for p in parameters:
                if _is_differentiable(p):
                    p.requires_grad = True
            owners = self._owners_in(matched, parameters)
            for child, _ in owners:
                ask(child, None)
            held = held_still(self.module)
            for child, is_alone in owners:
                if is_alone and child in held:  # by its frozen parameters, though it was asked to move in spite of them
                    ask(child, MOVING)
        return self

    def _matched(self, verb: str, which: tuple[Which, ...], *, differentiable: bool = False) -> set[str]:
        """Every name that one of `which` fits, aliases too; all are looked at before anything is done."""
        leaves = leaves_of(self.module)
        buffers = [name for name, _ in leaves.named_buffers()]
        names = [*leaves.parameters, *leaves.aliases, *buffers]
        if not which:
            return set(names)
        matched: set[str] = set()
        for one in which:
            test = _test(verb, one, self.module)
            found = {name for name in names if test(name)}
            if not found:
                known = [*names, *filter(None, leaves.modules)]
                hint = nearest(one.removesuffix(".*") if isinstance(one, str) else "", known)
                raise FreezeError(f"{verb}({_in_words(one)}) fits no parameter or buffer: {hint}")
            if differentiable and not found.intersection(buffers):
                parameters = self._parameters_in(found)
                if not any(map(_is_differentiable, parameters)):
                    raise FreezeError(
                        f"{verb}({_in_words(one)}) fits only parameters of {parameters[0].dtype}, which have no "
                        "gradient: name floating or complex ones."
                    )
            matched |= found
        return matched

    def _parameters_in(self, matched: set[str]) -> list[nn.Parameter]:
        leaves = leaves_of(self.module)
        names = {leaves.aliases.get(name, name) for name in matched}
        return [p for name, p in leaves.parameters.items() if name in names]

    def _owners_in(self, matched: set[str], parameters: list[nn.Parameter]) -> list[tuple[nn.Module, bool]]:
        """The modules that own a matched buffer, and whether none of their own parameters was matched beside it."""
        beside = {id(p) for p in parameters}
        return [
            (child, not any(id(p) in beside for p in child._parameters.values()))
            for path, child in walk(self.module)
            if any(path + name in matched for name in child._buffers)
        ]

    def __getitem__(self, name: str) -> Tensor:
        leaves = leaves_of(self.module)
        found: Tensor | None = leaves.parameters.get(leaves.aliases.get(name, name))
        if found is None:
            found = dict(leaves.named_buffers()).get(name)
        if found is None:
            raise KeyError(f"{name!r}: {nearest(name, self)}")
        return found

    def __iter__(self) -> Iterator[str]:
        yield from self.parameters
        yield from self.buffers

    def __len__(self) -> int:
        return len(self.parameters) + len(self.buffers)

    def __repr__(self) -> str:
        leaves = leaves_of(self.module)
        name = leaves.model.rpartition(".")[2]
        if leaves.is_lazy and any(map(is_lazy, leaves.parameters.values())):
            return f"ModelState of {name}: not yet initialised"
        n_trainable, n_all = (sum(p.numel() for p in group.values()) for group in (self.trainable, self.parameters))
        return f"ModelState of {name}: {n_trainable:,} of {n_all:,} parameters trainable"


def _test(verb: str, which: Which, module: nn.Module) -> Callable[[str], object]:
    """Whether a name is meant, as a function of it."""
    if isinstance(which, str):
        return lambda name: fnmatchcase(name, which) or fnmatchcase(name, f"{which}.*")
    if isinstance(which, nn.Module):  # callable, but not with a name
        paths = [path.rstrip(".") for path, child in walk(module) if child is which and path]
        instead = f"{verb}({paths[0]!r})" if paths else f"{verb}()"
    elif callable(which):
        return which
    else:
        instead = f'{verb}("encoder", "*.bias")'
    raise FreezeError(
        f"{verb} takes glob patterns on names, or functions of a name; got {described(which)}. Write {instead}."
    )


def _in_words(which: Which) -> str:
    return repr(which) if isinstance(which, str) else getattr(which, "__name__", repr(which))


def _is_differentiable(p: nn.Parameter) -> bool:
    return p.dtype.is_floating_point or p.dtype.is_complex


def _flatten(state: ModelState) -> tuple[list[Any], list[str]]:
    return list(state.values()), list(state)


def _flatten_with_keys(state: ModelState) -> tuple[list[tuple[pytree.KeyEntry, Any]], list[str]]:
    return [(pytree.MappingKey(name), tensor) for name, tensor in state.items()], list(state)


def _unflatten(leaves: Any, names: list[str]) -> dict[str, Any]:
    return dict(zip(names, leaves, strict=True))


pytree.register_pytree_node(ModelState, _flatten, _unflatten, flatten_with_keys_fn=_flatten_with_keys)


def check_module(module: Any) -> None:
    """Refuse what is no model.

    Raises
    ------
    ModelError
    """
    if not isinstance(module, nn.Module):
        raise ModelError(f"A model is a torch.nn.Module; got {described(module)}.")


def check_trainable(module: nn.Module) -> None:
    """Refuse a model that cannot be trained as it is.

    Raises
    ------
    ModelError
        If it is no module, has lazy or flattened parameters, or nothing trainable.
    """
    check_module(module)
    parameters = dict(module.named_parameters())
    if any(is_lazy(p) for p in parameters.values()):
        raise ModelError("The model has lazy parameters that have no shape yet. Run one batch first: model(inputs).")
    if any(name.rpartition(".")[2] == "_flat_param" for name in parameters):
        raise ModelError(
            "FullyShardedDataParallel has joined the parameters into flat ones, without names and shapes of their own. "
            "Write FullyShardedDataParallel(model, use_orig_params=True), or torch.distributed.fsdp.fully_shard(model)."
        )
    if not any(p.requires_grad for p in parameters.values()):
        unfreeze = " Unfreeze some: model.requires_grad_(True), or gv.ModelState(model).unfreeze()."
        raise ModelError(
            f"The model has no trainable parameter (0 of {len(parameters)}).{unfreeze if parameters else ''}"
        )

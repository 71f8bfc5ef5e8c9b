"""`ModelState`: a live view of a module's parameters and buffers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gradviz.errors import ModelError, described, nearest
from gradviz.grad.leaves import canonical_name, leaves_of


class ModelState(Mapping[str, Tensor]):
    """The tensors of a module by name, live: what the module holds now.

    Names are torch's own, without the prefix that `torch.compile` adds. A tied parameter stands once, under its first
    name, and is found under its others too.

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
        return {canonical_name(name): buffer for name, buffer in self.module.named_buffers()}

    @property
    def trainable(self) -> dict[str, nn.Parameter]:
        """Parameters that require a gradient."""
        return {name: p for name, p in self.parameters.items() if p.requires_grad}

    @property
    def frozen(self) -> dict[str, nn.Parameter]:
        """Parameters with ``requires_grad=False``."""
        return {name: p for name, p in self.parameters.items() if not p.requires_grad}

    def __getitem__(self, name: str) -> Tensor:
        leaves = leaves_of(self.module)
        found: Tensor | None = leaves.parameters.get(leaves.aliases.get(name, name))
        if found is None:
            found = self.buffers.get(name)
        if found is None:
            raise KeyError(f"{name!r}: {nearest(name, self)}")
        return found

    def __iter__(self) -> Iterator[str]:
        yield from self.parameters
        yield from self.buffers

    def __len__(self) -> int:
        return len(self.parameters) + len(self.buffers)

    def __repr__(self) -> str:
        n_trainable, n_all = (sum(p.numel() for p in group.values()) for group in (self.trainable, self.parameters))
        return f"ModelState of {type(self.module).__name__}: {n_trainable:,} of {n_all:,} parameters trainable"


def check_trainable(module: nn.Module) -> None:
    """Refuse a model that cannot be trained as it is.

    Raises
    ------
    ModelError
        If it is no module, is wrapped by DDP or DataParallel, has lazy parameters, or nothing trainable.
    """
    if not isinstance(module, nn.Module):
        raise ModelError(f"A model is a torch.nn.Module; got {described(module)}.")
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    if isinstance(module, wrappers):
        kind = type(module).__name__
        raise ModelError(
            f"{kind} reduces gradients outside autograd.grad, which gradviz uses. Pass model.module instead."
        )
    parameters = list(module.parameters())
    if any(getattr(p, "_post_accumulate_grad_hooks", None) for p in parameters):
        raise ModelError(
            "A parameter has a post-accumulate-grad hook, which never fires here: gradients come from "
            "torch.autograd.grad. Use parameter.register_hook(...) instead."
        )
    if any(is_lazy(p) for p in parameters):
        raise ModelError("The model has lazy parameters that have no shape yet. Run one batch first: model(inputs).")
    if not any(p.requires_grad for p in parameters):
        raise ModelError(
            f"The model has no trainable parameter (0 of {len(parameters)}). Unfreeze some: model.requires_grad_(True)."
        )


@contextlib.contextmanager
def training_mode(module: nn.Module) -> Iterator[Callable[[], None]]:
    """Put a module in train mode for a while, and every flag back as it was, on errors too.

    Submodules in eval mode while the root is in train mode were put there on purpose and stay; so do wholly frozen
    ones, whose batch-norm statistics should be as still as their weights. Yields a function that sets the flags again,
    for when somebody else has put the whole module into eval mode.
    """
    flags = [(child, child.training) for child in module.modules()]
    kept = [child for child, training in flags if module.training and not training]

    def train() -> None:
        module.train()  # the module's own train(), which may hold parts of it in eval mode
        for child in kept:
            child.training = False
        for child, _ in flags:
            parameters = list(child.parameters())
            if parameters and not any(p.requires_grad for p in parameters):
                child.eval()

    try:
        train()
        yield train
    finally:
        for child, training in flags:
            child.training = training

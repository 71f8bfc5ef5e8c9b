"""The norms of parameters' gradients by example, over all backward passes of an iteration.

A micro-batch has examples of its own, so passes are taken one by one, and their examples put one behind the other. What
comes out is held against the gradient that the passes gave: a parameter may lead to the loss in other ways than through
the calls that were seen, as by a penalty, and then no sum over examples is its gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from gradviz.grad.capture.examples import ModuleCall, parameter_example_norms

PART = 1e-4
"""Of the sum of the norms: so far may a sum of float32 be from another one in another order."""

OTHER_WAYS = (
    "its gradient is not the sum of what came through these modules: it is used in other ways as well, such as a "
    "penalty, its weights directly, or a module that is not captured"
)


class NormsByParameter:
    """Norms for the examples of one pass after the other.

    Parameters
    ----------
    batch_dim : int
    """

    def __init__(self, batch_dim: int) -> None:
        self._batch_dim = batch_dim
        self._told: dict[nn.Parameter, list[Tensor]] = {}
        self._untold: dict[nn.Parameter, str] = {}
        self._totals: dict[nn.Parameter, Tensor] = {}
        self._eps = 0.0

    def add(self, calls: Sequence[ModuleCall]) -> None:
        """The calls of a backward pass that is over, before a parameter has moved."""
        # Under autocast gradients are float32 that were computed in 16 bits.
        tensors = (each for call in calls for each in (call.gradient, *call.args) if isinstance(each, Tensor))
        dtypes = {tensor.dtype for tensor in tensors}
        precisions = [torch.finfo(dtype).eps for dtype in dtypes if dtype.is_floating_point or dtype.is_complex]
        self._eps = max([self._eps, *precisions])
        norms, reasons = parameter_example_norms(calls, batch_dim=self._batch_dim, totals=self._totals)
        self._untold |= reasons
        for p, of_examples in norms.items():
            self._told.setdefault(p, []).append(of_examples)

    def finish(
        self, wholes: Mapping[int, Tensor | None], by: float
    ) -> tuple[dict[nn.Parameter, Tensor], dict[nn.Parameter, str]]:
        """All of them, and why others cannot be told.

        Parameters
        ----------
        wholes : mapping of int to Tensor
            By the identity of a parameter, its gradient of all passes together; of those that are not there, nobody
            knows.
        by : float
            A loss scale that is in the calls' gradients, and not in `wholes`.

        Returns
        -------
        norms : dict of Tensor
            1-D float64 by parameter.
        reasons : dict of str
        """
        norms = {p: torch.cat(own) / by for p, own in self._told.items() if p not in self._untold}
        untold = dict(self._untold)
        for p, own in norms.items():
            whole = wholes.get(id(p))
            if whole is not None and p in self._totals and not _is_sum(self._totals[p] / by, whole, own, self._eps):
                untold[p] = OTHER_WAYS
        return {p: own for p, own in norms.items() if p not in untold}, untold


def _is_sum(total: Tensor, whole: Tensor, norms: Tensor, eps: float) -> bool:
    whole = whole.to_dense() if whole.layout is not torch.strided else whole
    room = norms.sum() * max(PART, 8 * max(eps, torch.finfo(whole.dtype).eps))
    if not torch.isfinite(room) or not torch.isfinite(whole).all():
        return True  # nothing to hold it against
    far = torch.linalg.vector_norm(total.to(norms.dtype) - whole.to(norms.dtype))
    return bool(far <= room)

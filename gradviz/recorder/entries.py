"""How the entries of gradients are distributed, and what narrower dtypes would make of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from torch import Tensor

from gradviz.grad import histograms, rounding
from gradviz.recorder.subject import in_words


class Entries(NamedTuple):
    """What was counted of some gradients at one stage.

    Attributes
    ----------
    stage : str
    names : list of str
    bins : int64 array of shape [names, bins]
    fates : int64 array of shape [names, dtypes, fates]
    """

    stage: str
    names: list[str]
    bins: histograms.Counts
    fates: rounding.Counts

    @classmethod
    def of(cls, stage: str, gradients: Mapping[str, Tensor]) -> Self:
        """Count them."""
        tensors = list(gradients.values())
        return cls(stage, list(gradients), histograms.histograms(tensors), rounding.roundings(tensors))

    def rows(self, iteration: int) -> dict[str, dict[str, Any]]:
        """As the history's tables have them; of the bins those that are not empty."""
        places, bins = self.bins.nonzero()
        n_dtypes = len(rounding.NARROW)
        fates = self.fates.reshape(-1, len(rounding.FATES))
        return {
            "histograms": {
                **self._said(iteration, places.tolist()),
                "low": histograms.LOW[bins],
                "high": histograms.HIGH[bins],
                "count": self.bins[places, bins],
            },
            "precision": {
                **self._said(iteration, [place for place in range(len(self.names)) for _ in range(n_dtypes)]),
                "dtype": [in_words(dtype) for dtype in rounding.NARROW] * len(self.names),
                **dict(zip(rounding.FATES, fates.T, strict=True)),
            },
        }

    def _said(self, iteration: int, places: list[int]) -> dict[str, Any]:
        return {
            "iteration": np.full(len(places), iteration),
            "parameter": [self.names[place] for place in places],
            "stage": [self.stage] * len(places),
        }

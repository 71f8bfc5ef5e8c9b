"""Steps that are skipped in a row, and the one word about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gradviz.errors import LossScaleWarning, warn
from gradviz.step.evaluation import Evaluation
from gradviz.step.loss_scale import ScalesLoss, first_nonfinite, scale_used


class Skips:
    """Says once when steps are skipped in a row and the scale falls no further: it will not get better by itself."""

    def __init__(self, loss_scale: ScalesLoss) -> None:
        self._loss_scale = loss_scale
        self._in_a_row = 0
        self._said = False

    def watch(self, tried: Evaluation, scale: float, iteration: int) -> None:
        """Count a step that was evaluated under `scale`.

        Warns
        -----
        LossScaleWarning
            W0205, with the number of skipped steps and the parameter whose gradient went non-finite first.
        """
        self._in_a_row = 0 if tried.is_finite else self._in_a_row + 1
        if self._in_a_row < 2 or self._said or scale_used(self._loss_scale, tried.loss_scale_state) < scale:
            return
        self._said = True
        loss = "" if torch.isfinite(tried.loss) else f" The loss itself is {tried.loss.item()}."
        if tried.loss.dtype == torch.float16 and scale > torch.finfo(torch.float16).max:
            loss += " The loss is float16, in which that scale is infinite: write Policy(output='float32')."
        warn(
            f"{self._in_a_row} steps in a row were skipped, up to iteration {iteration}: gradients are not finite, "
            f"first that of {first_nonfinite(tried.gradient)!r}, and the loss scale stays at {scale:g}.{loss} (said "
            "once)",
            LossScaleWarning,
        )

    def state_dict(self) -> dict[str, Any]:
        """How many in a row there are, and whether the word was said."""
        return {"in_a_row": self._in_a_row, "said": self._said}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._in_a_row, self._said = state["in_a_row"], state["said"]

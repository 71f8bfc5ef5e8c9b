"""Freezing by a click: what a picture wishes is done between two iterations of the run that it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradviz.errors import FreezeError
from gradviz.grad.leaves import leaves_of
from gradviz.history.freezer import Answer, Wish

if TYPE_CHECKING:
    from gradviz.loop.training import Training

_TOO_LATE = (
    "The run was over before it heard of it. With loop.start(data) it trains in the background, and hears at once."
)


class Freezing:
    """The `Freezer` of a run.

    Parameters
    ----------
    training : Training
        Which hears at its gate.
    """

    def __init__(self, training: Training) -> None:
        self._training, self._gate = training, training.gate

    def __call__(self, wish: Wish, answer: Answer) -> None:
        """Fulfil it before the next iteration."""

        def task(is_running: bool) -> None:
            if not is_running:
                answer(None, _TOO_LATE)
                return
            try:
                self._fulfil(wish)
            except Exception as error:  # told where the wish came from; the run goes on
                answer(None, str(error))
            else:
                answer(self._training.iterations_run, "")

        self._gate.put(task)

    def _fulfil(self, wish: Wish) -> None:
        step, mask = self._training.step, self._training.step.mask
        state = step.model_state
        if wish.verb == "freeze":
            self._check_rest(wish)
        else:
            mask.check_unfreeze(leaves_of(step.model), [name for name in state.frozen if wish.means(name)])
        with mask.acting("widget"):
            (state.freeze if wish.verb == "freeze" else state.unfreeze)(wish.means)

    def _check_rest(self, wish: Wish) -> None:
        """Refuse a freeze after which the next step would have nothing to do, and raise."""
        step = self._training.step
        rest = [name for name in step.model_state.trainable if not wish.means(name)]
        if not rest:
            raise FreezeError(
                "Nothing would be left to train, and the run would end. Leave something, or stop the run."
            )
        if all(name in step.unused for name in rest):
            raise FreezeError(
                f"The loss reaches nothing of what would be left to train, such as {rest[0]!r}, and the run would end."
            )

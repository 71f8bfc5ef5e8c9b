"""A callback for Lightning: `gv.watch` for what its `Trainer` trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradviz.adapters.callback import Watching

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:  # the same under its older name
    try:
        from pytorch_lightning.callbacks import Callback
    except ImportError as error:
        raise ImportError(
            "gradviz.adapters.lightning needs Lightning, which is not installed. Install it: pip install lightning"
        ) from error


class WatchCallback(Watching, Callback):
    """Records the gradients of every step that Lightning's `Trainer` takes: a callback among its others.

    Automatic and manual optimization, several optimizers, accumulation, clipping and precision are as with
    `gradviz.watch`. The loss of an iteration is that of all its batches; beside it stand the metrics that the model
    logs, those of a validation with the iteration before. With several processes the first one records, and the loss is
    its own.

    Parameters
    ----------
    **options
        Those of `gradviz.watch`: `record`, `every`, `stages`, `budget`, `histograms_every`, `save_to`, `if_exists`,
        `flush_interval_s`, `memory_limit`.

    Attributes
    ----------
    watch : Watch
        That of the training under way, or of the last one.
    history : History
        Its history. A run that fails, or is interrupted, says so.

    Raises
    ------
    UnknownKeywordError
        For an option that is none.

    Warns
    -----
    RecordingWarning
        Once for each metric that cannot be a column of the history, such as one called ``"skipped"``.

    Examples
    --------
    >>> import lightning, torch
    >>> class Module(lightning.LightningModule):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = torch.nn.Linear(1, 1)
    ...
    ...     def training_step(self, batch):
    ...         return self.layer(batch).square().mean()
    ...
    ...     def configure_optimizers(self):
    ...         return torch.optim.SGD(self.parameters(), lr=0.1)
    >>> quiet = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
    >>> callback = WatchCallback(record="norms")
    >>> trainer = lightning.Trainer(max_epochs=2, callbacks=[callback], accelerator="cpu", **quiet)
    >>> trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(3, 1)))
    >>> callback.history.norms.shape, callback.history.metrics["epoch"].tolist()
    ((6, 2), [0, 0, 0, 1, 1, 1])
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin: after the trial validation, and what tuners of the learning rate have tried."""
        if trainer.is_global_zero:
            self._begin(pl_module, trainer.optimizers, getattr(trainer.precision_plugin, "scaler", None))
            self._n_steps = trainer.global_step
            self._losses: list[Any] = []  # of the batches since the last step
            self._seen = dict(trainer.logged_metrics)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Tell the epoch."""
        if self._is_open:
            self._mark({"epoch": trainer.current_epoch})

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Tell what was found since the last step, as by a validation."""
        if self._is_open and not self._losses:
            self._mark_new(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Tell the loss and the metrics, if this batch was the last one before a step."""
        if not self._is_open:
            return
        if isinstance(outputs, Mapping) and outputs.get("loss") is not None:
            # Each is divided by their number already; with manual optimization nobody knows.
            self._losses = [*(self._losses if pl_module.automatic_optimization else ()), outputs["loss"]]
        if trainer.global_step != self._n_steps:
            self._n_steps = trainer.global_step
            self._mark_new(trainer)
            if self._losses:
                self._mark({"loss": sum(self._losses)})
                self._losses = []

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End."""
        if self._is_open:
            self._mark_new(trainer)
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End, and say why."""
        self._end(exception)

    def _mark_new(self, trainer: Any) -> None:
        # The trainer keeps the last value of each metric, however old: a new one is in another place of the memory.
        metrics = dict(trainer.logged_metrics)
        new = {name: value for name, value in metrics.items() if _place(value) != _place(self._seen.get(name))}
        new.pop("epoch", None)
        self._mark(new)
        self._seen = metrics


def _place(value: Any) -> int | None:
    return None if value is None else int(value.data_ptr())

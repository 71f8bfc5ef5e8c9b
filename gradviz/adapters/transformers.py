"""A callback for Hugging Face's transformers: `gv.watch` for what their `Trainer` trains."""

from __future__ import annotations

import math
from typing import Any

from gradviz.adapters.callback import Watching

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "gradviz.adapters.transformers needs transformers, which is not installed. Install it: pip install "
        "'transformers[torch]'"
    ) from error


class WatchCallback(Watching, TrainerCallback):
    """Records the gradients of every step that the `Trainer` of transformers takes: a callback among its others.

    Accumulation, clipping and precision are as with `gradviz.watch`. What the trainer logs stands with the iteration
    that was the last one then, and its loss is what the trainer calls so: the mean over the steps since it last logged,
    with ``logging_steps=1`` that of each, without values that are NaN or infinite unless
    ``logging_nan_inf_filter=False``. With several processes the first one records.

    Parameters
    ----------
    **options
        Those of `gradviz.watch`: `record`, `every`, `stages`, `budget`, `histograms_every`, `save_to`, `if_exists`,
        `flush_interval_s`, `memory_limit`.

    Attributes
    ----------
    watch : Watch
        That of the training under way, or of the last one. The trainer tells nobody that a training has failed: then
        ``callback.watch.close()`` ends it, and another training of the model does.
    history : History
        Its history.

    Raises
    ------
    UnknownKeywordError
        For an option that is none.

    Warns
    -----
    RecordingWarning
        Once for each value in the log that cannot be a column of the history.

    Examples
    --------
    >>> import tempfile, torch, transformers
    >>> class Model(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = torch.nn.Linear(1, 1)
    ...
    ...     def forward(self, x):
    ...         return {"loss": self.layer(x).square().mean()}
    >>> callback = WatchCallback(record="norms")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     quiet = {"disable_tqdm": True, "report_to": "none", "save_strategy": "no", "logging_strategy": "no"}
    ...     args = transformers.TrainingArguments(folder, use_cpu=True, num_train_epochs=2, **quiet)
    ...     data = [{"x": torch.ones(1)}] * 24
    ...     trainer = transformers.Trainer(Model(), args, train_dataset=data, callbacks=[callback])
    ...     trainer.train().global_step
    {'train_runtime': ...}
    6
    >>> callback.history.norms.shape, callback.history.metrics["epoch"].tolist()
    ((6, 2), [0, 0, 0, 1, 1, 1])
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Begin."""
        self._has_stepped = False
        if state.is_world_process_zero:
            self._begin(given["model"], given["optimizer"])

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Tell the epoch, which the trainer counts in fractions: 1.0 is the end of the first."""
        if self._is_open:
            self._has_stepped = True
            self._mark({"epoch": math.ceil(state.epoch) - 1})

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
        """Tell what is logged of the last step, but not the summary of the whole training."""
        if self._is_open and self._has_stepped and "train_runtime" not in logs:
            self._mark({name: value for name, value in logs.items() if name != "epoch"})

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """End."""
        self._end()

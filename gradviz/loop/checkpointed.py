"""A loop that is saved on its way: `Checkpointed`, the method that writes checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self, Unpack

from gradviz.errors import CheckpointWarning, LoopError, RecordingWarning, names_nearest_keyword, warn
from gradviz.history.run.keeper import IfExists
from gradviz.loop.checkpoints.earlier import how_far
from gradviz.loop.events import EVENTS, named_events
from gradviz.loop.filters import Filter, Filters
from gradviz.loop.handlers.checkpoint import PATTERN, Checkpoint, Pattern
from gradviz.loop.handlers.monitor import Mode, Watched
from gradviz.loop.training import Training

if TYPE_CHECKING:
    from gradviz.loop.stretch import Stretch

MOST_LISTED = 6
"""Files that an error names."""


class Checkpointed:
    """Something that trains, and writes down where it stands."""

    _training: Training
    _if_exists: IfExists
    _under_way: Stretch | None

    @names_nearest_keyword
    def checkpoint(
        self,
        path: str | os.PathLike[str],
        *,
        event: str | Sequence[str] = "epoch_completed",
        best: str | None = None,
        mode: Mode = "min",
        min_delta: float = 0.0,
        keep: int | None = 3,
        pattern: Pattern = PATTERN,
        gradients: bool = False,
        **filters: Unpack[Filters],
    ) -> Self:
        """Write checkpoints into ``path/checkpoints/``, from which `resume` goes on to the bit.

        Each is written after all other handlers of its event, so that it holds how things stand when that is over. A
        file has its name once all of it is on the disk; ``last.pt`` is always the newest, ``best.pt`` the best. Where
        the disk is full, a warning says so once, training goes on, and the next checkpoint is tried.

        ``torch.load(file)`` reads one by its safe default, also where gradviz is not installed:
        ``model.load_state_dict(torch.load(file)["model"])``. `gradviz.loop.checkpoints.snapshot` lists the other keys.
        In several processes only the first one writes.

        At one event a folder has one checkpoint: once more into the same one takes the place of the earlier, with a
        warning where what it is told differs, and goes on with its files. At another event it is one more, which writes
        beside it; only one of those may have a `best`.

        Random streams are saved that are found: those of the process; and generators of torch, numpy and Python that
        the data, the model, the loss, the optimizer, metrics and handlers hold, or that functions of your own name
        there: as an attribute, in a closure or a default, or as a global, by a helper function too. Not saved are those
        that only a library's code knows, or a container of more than 64 items; a `random.SystemRandom`; and copies that
        persistent workers of a `DataLoader` draw from. The first checkpoint warns of the last two, by name.

        Parameters
        ----------
        path : path
            The run's folder, made if need be. Where it holds checkpoints of an earlier run, ``if_exists`` of `trainer`
            says what becomes of them; by default the first run raises a LoopError, unless `resume` came before.
        event : str or list of str
            ``"epoch_completed"``, ``"iteration_completed"``, ``"epoch_halted"``, ``"completed"`` or ``"halted"``.
        best : str, optional
            A key of `state.metrics`; whenever it has improved, the checkpoint is ``best.pt`` too. NaN never has,
            nor has a model with NaN or infinite parameters.
        mode : {"min", "max"}
            Whether lower or higher is better.
        min_delta : float
            It improves by more than this or not at all.
        keep : int or None
            How many of the newest files stay, beside ``best.pt`` and ``last.pt``; None for all.
        pattern : str or callable
            The name of a file: a format string of the epoch's index and the number of iterations run in it, or a
            function of the state.
        gradients : bool
            Save kept gradients too. Without them they are zeros after a resume.
        **filters
            Every, after, before, once, first, when and per, as in `handle_event`.

        Raises
        ------
        CheckpointError, EventError, ValueError
            If the path cannot be a folder, or an argument is not of its kind; or if another checkpoint of the loop, at
            another event, has a `best` in this folder.
        MetricError
            When a checkpoint is due, if there is no metric called `best`.

        Warns
        -----
        CheckpointWarning
            W0207: if it takes the place of another one. And each once: what could not be written, what a checkpoint
            leaves out, and random streams that it cannot hold.

        Examples
        --------
        >>> import os, tempfile, torch, gradviz as gv
        >>> from torch import nn
        >>> data = [(torch.ones(4, 1), torch.ones(4, 1))] * 5
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     loop = gv.trainer(nn.Linear(1, 1), "mean_squared_error", "sgd").checkpoint(folder, best="loss", keep=2)
        ...     _ = loop.run(data, epochs=3)
        ...     sorted(os.listdir(f"{folder}/checkpoints"))
        ['best.pt', 'checkpoint_1_5.pt', 'checkpoint_2_5.pt', 'last.pt']
        """
        handler = Checkpoint(
            self._training,
            path,
            named_events(event),
            best=None if best is None else Watched(best, mode, min_delta=min_delta, keeps_model=True),
            keep=keep,
            pattern=pattern,
            gradients=gradients,
        )
        handler.check_best()
        if self._under_way is not None:
            self._check_earlier([handler])
        attached, replaced = self._training.handlers, handler.replaced()
        attached.add(handler.events, handler, Filter(**filters), comes_last=True)
        attached.remove(handler, set(EVENTS).difference(handler.events))
        if replaced:
            warn(
                f"At one event there is one checkpoint into {str(handler.folder)!r}: this one takes the place of the "
                "one before, which was told otherwise. For both, write into two folders: "
                f"loop.checkpoint({handler.path + '_2'!r}).",
                CheckpointWarning,
            )
        return self

    def _to_go_on_from(self) -> list[Checkpoint]:
        """Those whose folders hold an earlier run that this one is to go on from, the furthest first.

        Raises
        ------
        LoopError
            If there is an earlier run, and nobody has said what becomes of it.
        """
        handlers = [handler for handler in self._training.handlers if isinstance(handler, Checkpoint)]
        if self._if_exists != "error" and not handlers and self._training.history.address is None:
            warn(
                f'if_exists="{self._if_exists}" says nothing about this run, which is written nowhere. To keep its '
                'rows: gv.trainer(..., save_to="runs/a"). To go on from checkpoints: loop.checkpoint("runs/a") first.',
                RecordingWarning,
            )
        if self._if_exists != "resume" or self._training.iterations_run:
            self._check_earlier(handlers)
            return []
        found = [handler for handler in handlers if handler.earlier()]
        return sorted(found, key=lambda handler: how_far(handler.folder), reverse=True)

    def _check_earlier(self, handlers: Iterable[Checkpoint]) -> None:
        for handler in handlers:
            names = [] if self._if_exists == "overwrite" else handler.earlier()
            if names:
                epochs, iterations = how_far(handler.folder)
                far = f", the newest after {epochs:,} epochs and {iterations:,} iterations" if epochs >= 0 else ""
                listed = ", ".join(names[:MOST_LISTED]) + (" ..." if len(names) > MOST_LISTED else "")
                raise LoopError(
                    f"{str(handler.folder)!r} holds {len(names)} checkpoints of an earlier run{far}: {listed}. "
                    f"loop.resume({handler.path!r}) before the first run goes on from there; "
                    'gv.trainer(..., if_exists="overwrite") replaces them; another path, as in '
                    f"loop.checkpoint({handler.path + '_2'!r}), leaves them alone."
                )

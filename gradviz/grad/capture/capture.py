"""`Capture`: which intermediate values, and what of their gradients."""

from __future__ import annotations

import fnmatch
from typing import Literal, get_args

from gradviz.errors import CaptureError, described, names_nearest_keyword, nearest, whole
from gradviz.sizes import n_bytes

Keep = Literal["statistics", "running", "example_norms", "tensors"]
Store = Literal["device", "host", "disk"]


class Capture:
    """Which intermediate values have their gradients captured, and what is kept of them.

    Parameters
    ----------
    *patterns : str
        Names that were given to `sow` and `record_vjp`, and paths of modules, as ``"head.fc"`` or by glob pattern:
        ``"encoder.*"``. Of a module it is the gradient of its output. Without any, everything that is sown, and nothing
        else.
    keep : {"statistics", "running", "example_norms", "tensors"}, optional
        Of each gradient: its statistics, with nothing else retained; mean and second moment over all steps of this
        process; the norm of
        every example's part, and that of every example's gradient by the parameters of captured modules; or the
        gradient itself. `reap` keeps ``"tensors"`` if nothing is said, everybody else ``"statistics"``.
    values : bool
        Keep a copy of the values, and of what modules and wrapped functions were called with.
    batch_dim : int
        Which axis of a value counts the examples.
    top_examples : int
        So many examples of each name and call are written into ``history.examples``: those with the largest norms.
    memory_limit : int or str
        What tensors may take: in one iteration, and in a history that is not saved. Beyond, the oldest go to disk with
        ``store="disk"``, and are dropped otherwise.
    store : {"device", "host", "disk"}
        Where tensors are kept: where they are, in the host's memory, or in a file once there are too many.

    Raises
    ------
    CaptureError
        E1109: if a pattern is no text, or another argument is not what it should be.

    Examples
    --------
    >>> Capture("encoder.*", "head.fc", keep="tensors")
    Capture('encoder.*', 'head.fc', keep='tensors')
    """

    @names_nearest_keyword
    def __init__(
        self,
        *patterns: str,
        keep: Keep | None = None,
        values: bool = False,
        batch_dim: int = 0,
        top_examples: int = 16,
        memory_limit: int | str = "256MB",
        store: Store = "device",
    ) -> None:
        for pattern in patterns:
            if not isinstance(pattern, str) or not pattern:
                raise CaptureError(
                    f"Capture takes names and patterns of modules and sown values, such as 'encoder.*'; got "
                    f"{described(pattern) if not isinstance(pattern, str) else repr(pattern)}."
                )
        if keep is not None and keep not in get_args(Keep):
            raise CaptureError(f"Nothing is kept as keep={keep!r}: {nearest(str(keep), get_args(Keep))}")
        if store not in get_args(Store):
            raise CaptureError(f"Nothing is stored at store={store!r}: {nearest(str(store), get_args(Store))}")
        if not isinstance(values, bool):
            raise CaptureError(f"values is True or False; got {values!r}.")
        self.patterns = patterns
        self.keep: Keep | None = keep
        self.values = values
        self.batch_dim = whole("batch_dim", batch_dim, error=CaptureError)
        self.top_examples = whole("top_examples", top_examples, error=CaptureError)
        self.memory_limit = n_bytes("memory_limit", memory_limit, error=CaptureError)
        self.store: Store = store

    def __repr__(self) -> str:
        options = [f"keep={self.keep!r}"] if self.keep else []
        options += ["values=True"] if self.values else []
        return f"Capture({', '.join([*map(repr, self.patterns), *options])})"

    def wants_sown(self, name: str) -> bool:
        """Whether a value of this name is meant."""
        return not self.patterns or self.wants_module(name)

    def wants_module(self, path: str) -> bool:
        """Whether the module at this path is meant; an exact path counts as itself, whatever signs are in it."""
        return any(path == pattern or fnmatch.fnmatchcase(path, pattern) for pattern in self.patterns)


def as_capture(capture: object) -> Capture | None:
    """What an argument ``capture=`` was given.

    Raises
    ------
    CaptureError
        If it is none.
    """
    if capture is None or isinstance(capture, Capture):
        return capture
    said = f"gv.Capture({capture!r})" if isinstance(capture, str) else 'gv.Capture("encoder.*")'
    raise CaptureError(f"capture= takes a Capture; got {described(capture)}. Write capture={said}.")

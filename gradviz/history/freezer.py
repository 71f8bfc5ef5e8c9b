"""What a picture may ask of the run that it shows: to freeze parameters, and to train them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

Verb = Literal["freeze", "unfreeze"]


class Wish(NamedTuple):
    """To freeze or unfreeze something, from the next iteration on.

    Attributes
    ----------
    verb : "freeze" or "unfreeze"
    parameters : frozenset of str
        Names of parameters.
    modules : tuple of str
        Paths of modules, of which all is meant: buffers too.

    Examples
    --------
    >>> wish = Wish("freeze", frozenset(["head.weight"]), ("encoder.1",))
    >>> [wish.means(name) for name in ("head.weight", "head.bias", "encoder.1.running_mean", "encoder.10.weight")]
    [True, False, True, False]
    """

    verb: Verb
    parameters: frozenset[str] = frozenset()
    modules: tuple[str, ...] = ()

    def means(self, name: str) -> bool:
        """Whether this parameter or buffer is meant."""
        return name in self.parameters or any(name.startswith(f"{module}.") for module in self.modules)


Answer = Callable[[int | None, str], None]
"""Is given the first iteration that a wish holds for; or None, and why it was not fulfilled."""

Freezer = Callable[[Wish, Answer], None]
"""Of a run that is under way. It comes back at once; the answer is given by the run, from its own thread."""

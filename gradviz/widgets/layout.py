"""A widget's place in a page, told in few words: a notebook that is saved after many runs holds one for each widget."""

from __future__ import annotations

from typing import Any

import ipywidgets


class Layout(ipywidgets.Layout):  # type: ignore[misc]
    """The same as ipywidgets' own, but what is not set is not sent: the page's own defaults are the same.

    Examples
    --------
    >>> layout = Layout(width="50%")
    >>> {key: value for key, value in layout.get_state().items() if not key.startswith("_")}
    {'width': '50%'}
    >>> layout.close()
    """

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """What is set; of a `key` that is asked for also that it is not."""
        state: dict[str, Any] = super().get_state(key, drop_defaults)
        return state if key is not None else {name: value for name, value in state.items() if value is not None}

"""The table of dtypes: what each parameter is stored as, and what fewer bits would make of its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradviz.history.dtypes import DtypePicture
from gradviz.history.history import History
from gradviz.widgets.feed import ColumnFeed, Feed, Message
from gradviz.widgets.live import Live, asked_for, built

LIVE_ENTRIES = 200
"""Parameters whose newest entries go into one live message: 40 kB. Those of others come with the next."""
WHOLE_ENTRIES = 20_000
"""And into a message that carries everything."""
KEPT_ENTRIES = 100
"""And into what is kept for a page without a kernel; of how many others there are, it says."""

TALLEST = 255
"""The height of a histogram's highest bar."""


class DtypeFeed(ColumnFeed):
    """The loss scale as a picture of one row, and in further buffers what the table shows.

    Little-endian, for k changes, n parameters and m of them whose newest entries are new::

        int32   change[k * 5]       iteration, parameter, and places in `texts` of what it is of, dtype and device
        uint8   state[n]
        uint32  place[m]
        uint32  iteration[m]        that of the entries
        uint8   height[m * 66]      bars of the histogram
        float64 count[m * 15]       entries, zeros, not finite; and underflow, subnormal, overflow in each narrow dtype
    """

    def __init__(self, history: History) -> None:
        self._dtypes = history.dtype_picture()
        super().__init__(history, self._dtypes)

    def must_begin_anew(self, *, final: bool) -> bool:
        """Also if the run is over and entries are waiting."""
        return super().must_begin_anew(final=final) or (final and self._dtypes.n_more_entries > 0)

    def message(self, *, fresh: bool) -> Message:
        """The loss scale's columns, and what has changed in the table."""
        if fresh:
            self._dtypes.restart()
        message = super().message(fresh=fresh)
        return _with(message, self._dtypes, WHOLE_ENTRIES if fresh else LIVE_ENTRIES)

    def kept(self) -> Message | None:
        """Everything in little: the loss scale in few columns, all dtypes, the entries of the first parameters."""
        kept = super().kept()
        return kept and _with(kept, self._history.dtype_picture(), KEPT_ENTRIES)


def _with(message: Message, picture: DtypePicture, most: int) -> Message:
    told, buffers = message
    changes, entries = picture.changes(), picture.entries(most)
    more = [
        changes.rows.astype("<i4"),
        picture.states(),
        entries.places.astype("<u4"),
        entries.iteration.astype("<u4"),
        heights(entries.bars),
        entries.counts.astype("<f8"),
    ]
    about = {"texts": changes.texts, "skipped": picture.skipped(), "missing": picture.n_more_entries}
    return told | about, [*buffers, *(each.tobytes() for each in more)]


def heights(bars: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Numbers of entries as heights of bars; whatever there is can be seen.

    Examples
    --------
    >>> heights(np.array([[0, 1, 500, 1000], [0, 0, 0, 0]])).tolist()
    [[0, 1, 128, 255], [0, 0, 0, 0]]
    """
    highest = np.maximum(bars.max(axis=1, keepdims=True, initial=0), 1)
    tall: NDArray[np.float64] = np.ceil(bars * (TALLEST / highest))
    return tall.astype(np.uint8)


class DtypeTable(Live):
    """A live table of a history. Made by `dtype_table`."""

    _esm = built("dtype_table.js")
    _css = built("dtype_table.css")

    def _feed(self) -> Feed:
        return DtypeFeed(self.history)


def dtype_table(x: Any) -> DtypeTable:
    """The dtypes of a loop, a watch or a history: of parameters, gradients, master copies and the optimizer's state.

    A row is flagged where these do not go together, or have changed during the run: a 16-bit parameter that the
    optimizer moves as it is, a gradient or a state of another dtype than what it moves, or one on another device.
    Beside them stands how the newest gradient that has a histogram is distributed, and which share of its entries,
    zeros left out, would be zero, subnormal or too large in float16, bfloat16 or float8 (``history.precision`` has the
    numbers, of every iteration with histograms); and above them the loss scale over time, with the steps it skipped.

    Asked for again, as when a notebook cell is run again, it is the same widget in one more view.

    Parameters
    ----------
    x : Loop, Watch or History

    Raises
    ------
    TypeError
        If `x` has no history.

    Examples
    --------
    >>> import torch, gradviz as gv
    >>> loop = gv.trainer(torch.nn.Linear(3, 1), "mean_squared_error", "adam", policy=gv.Policy(params="bfloat16"))
    >>> state = loop.run([(torch.ones(2, 3), torch.zeros(2, 1))], display=None)
    >>> gv.dtype_table(loop)
    DtypeTable of History of 1 iterations of 2 parameters (completed)
    >>> dtypes = loop.history.dtypes
    >>> dtypes[dtypes["parameter"] == "weight"].set_index("of")["dtype"].to_dict()
    {'parameter': 'bfloat16', 'gradient': 'float32', 'master': 'float32', 'exp_avg': 'float32', 'exp_avg_sq': 'float32'}
    """
    return asked_for(
        DtypeTable,
        x,
        "dtype_table",
        shows="a loop, a watch or a history",
        of_a_selection=". A frame of it: .dtypes, .precision.",
    )

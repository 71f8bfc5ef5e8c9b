"""The byte layout of columns between Python and the browser (`js/src/data/wire.ts`).

Little-endian, one buffer, no padding::

    uint32  columns C, rows R, has_min (0 or 1), version (1)
    uint32  start[C], stop[C]
    float32 max[C * R]            column after column, so that appending is one copy
    float32 min[C * R]            only if has_min; else every column is one iteration and min is max
    uint8   flags[C * R]

Numbers travel as bytes because NaN and infinity do not survive JSON.
"""

from __future__ import annotations

import numpy as np

from gradviz.history.overview import Columns

VERSION = 1
HEADER_BYTES = 16


def pack(columns: Columns, *, with_minimum: bool | None = None) -> bytes:
    """Columns as bytes; the minimum is left out where it says nothing new.

    Examples
    --------
    >>> from gradviz.history.overview import Columns
    >>> cell = np.array([[0.5]], "f4")
    >>> len(pack(Columns(np.array([7], "u4"), np.array([8], "u4"), cell, cell, np.zeros((1, 1), "u1"))))
    29
    """
    has_min = (not columns.exact) if with_minimum is None else with_minimum
    header = np.array([len(columns), columns.rows, has_min, VERSION], "<u4")
    parts = [header, columns.start.astype("<u4"), columns.stop.astype("<u4"), columns.maximum.astype("<f4")]
    if has_min:
        parts.append(columns.minimum.astype("<f4"))
    parts.append(columns.flags.astype("u1"))
    return b"".join(part.tobytes() for part in parts)


def unpack(buffer: bytes) -> Columns:
    """The columns that `pack` made `buffer` from.

    Raises
    ------
    ValueError
        If the buffer is of another version or not of the length its header asks for.
    """
    n_columns, n_rows, has_min, version = (int(n) for n in np.frombuffer(buffer, "<u4", 4))
    n_cells = n_columns * n_rows
    expected = HEADER_BYTES + 8 * n_columns + n_cells * (9 if has_min else 5)
    if version != VERSION or len(buffer) != expected:
        raise ValueError(
            f"columns of version {version} in {len(buffer)} bytes; expected version {VERSION} in {expected} bytes"
        )
    start, stop = np.frombuffer(buffer, "<u4", 2 * n_columns, HEADER_BYTES).reshape(2, n_columns)
    offset = HEADER_BYTES + 8 * n_columns
    kinds = 2 if has_min else 1
    values = np.frombuffer(buffer, "<f4", kinds * n_cells, offset).reshape(kinds, n_columns, n_rows)
    flags = np.frombuffer(buffer, "u1", n_cells, offset + values.nbytes).reshape(n_columns, n_rows)
    return Columns(start, stop, values[0], values[-1], flags)

"""The means of every epoch: one small file, written anew when one of them changes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from gradviz.history.run.folder import Folder
from gradviz.history.run.form import damaged

EPOCHS = "epochs.parquet"


def write_epochs(folder: Folder, records: Sequence[dict[str, float]]) -> None:
    """One line for each epoch; OSError if that fails. What an epoch has no mean of is null."""
    sink = pa.BufferOutputStream()
    names = dict.fromkeys(name for record in records for name in record)
    table = pa.table({name: [record.get(name) for record in records] for name in names})
    pq.write_table(table, sink, write_page_checksum=True)
    folder.write(EPOCHS, sink.getvalue())


def read_epochs(folder: Folder) -> list[dict[str, float]]:
    """What was written; nothing where no epoch is over yet.

    Raises
    ------
    HistoryError
        If the file is damaged.
    """
    try:
        table = pq.read_table(pa.BufferReader(folder.read(EPOCHS)), page_checksum_verification=True)
    except FileNotFoundError:
        return []
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(folder.address, EPOCHS, error) from error
    if not {"epoch", "iterations", "nonfinite"} <= set(table.column_names):
        raise damaged(folder.address, EPOCHS, "it has other columns than it should")
    return [{name: value for name, value in record.items() if value is not None} for record in table.to_pylist()]

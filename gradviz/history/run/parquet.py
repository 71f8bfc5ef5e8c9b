"""One Parquet file: how it is encoded, and how pieces of it are read."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gradviz.errors import HistoryError
from gradviz.history.run.folder import Folder
from gradviz.history.run.form import FORMAT, check_format, damaged

GROUP = 250_000
"""Rows of a row group, about: what has to be decoded for one of them."""

TEXT = pa.dictionary(pa.int32(), pa.string())

_KEY, _CHECKSUM = "gradviz", "gradviz.crc32"
"""In the footer, which Parquet does not check as it does pages: what the writer told, and a checksum of it."""

_BROKEN = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)
"""What reading a damaged file may raise, in pyarrow and in what its footer says."""


def encode(schema: pa.Schema, groups: Iterable[pa.RecordBatch | pa.Table], told: Mapping[str, Any]) -> pa.Buffer:
    """A file of these row groups; `told` goes into its footer.

    The bytes of doubles are split, because numbers of float32's precision leave half of them zero.
    """
    doubles = [field.name for field in schema if pa.types.is_floating(field.type)]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in schema.names if name not in doubles],
        dictionary_pagesize_limit=1 << 26,  # names of many parameters stay in theirs
        column_encoding=dict.fromkeys(doubles, "BYTE_STREAM_SPLIT"),
        write_statistics=["iteration"],
        write_page_checksum=True,
    ) as writer:
        for group in groups:
            write = writer.write_table if isinstance(group, pa.Table) else writer.write_batch
            write(group, row_group_size=max(group.num_rows, 1))
        note = json.dumps({"format": FORMAT, "columns": schema.names, **told}, separators=(",", ":"))
        writer.add_key_value_metadata({_KEY: note, _CHECKSUM: _checksum(note.encode())})
    return sink.getvalue()


class ParquetPart:
    """A file in a folder. Its footer is kept once it was read; the file is open while it is being read."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.folder, self.name = folder, name
        self._footer: pq.FileMetaData | None = None
        self._size = 0

    @cached_property
    def footer(self) -> pq.FileMetaData:
        """The footer, of a format that is known."""
        with self.opened() as file:
            noted = file.metadata.metadata or {}
            note = noted.get(_KEY.encode())
            if note is None:
                raise self.damaged("it was not written by gradviz")
            if noted.get(_CHECKSUM.encode()) != _checksum(note):
                raise self.damaged("its footer is not as it was written")
            told = json.loads(note)
            check_format(told["format"], f"{self.folder.address}: {self.name}")
            if told.get("columns", file.schema_arrow.names) != file.schema_arrow.names:
                raise self.damaged("its columns are not called as they were")
            return file.metadata

    @property
    def told(self) -> dict[str, Any]:
        """What its writer told in the footer."""
        return dict(json.loads(self.footer.metadata[_KEY.encode()]))

    @contextmanager
    def opened(self) -> Iterator[pq.ParquetFile]:
        """The file, while it is being read.

        Raises
        ------
        HistoryError
            If it is damaged.
        FileNotFoundError
            If it is gone, as parts are that were merged.
        """
        try:
            with closing(self.folder.source(self.name)) as source:
                size = source.seek(0, os.SEEK_END)
                # A table's part is written anew where its table grew a column: what is known of it is of another file.
                known = self._footer if size == self._size else None
                file = pq.ParquetFile(source, metadata=known, pre_buffer=False, page_checksum_verification=True)
                self._size = size
                self._footer = file.metadata
                yield file
        except (HistoryError, FileNotFoundError):
            raise
        except _BROKEN as error:
            raise damaged(self.folder.address, self.name, error) from error

    def damaged(self, why: str) -> HistoryError:
        """The error for what should not be in the file."""
        return damaged(self.folder.address, self.name, why)


def _checksum(note: bytes) -> bytes:
    return b"%08x" % zlib.crc32(note)


def stretches(ends: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, slice]]:
    """Which of several stretches that lie end to end the range [start, stop) runs through, and where in each.

    Examples
    --------
    >>> list(stretches([3, 5, 9], 2, 6))
    [(0, slice(2, 3, None)), (1, slice(0, 2, None)), (2, slice(0, 1, None))]
    """
    begins = [0, *ends]
    for index in range(int(np.searchsorted(ends, start, side="right")), len(ends)):
        low, high = max(start, begins[index]), min(stop, ends[index])
        if low >= high:
            if begins[index] >= stop:
                return
            continue
        yield index, slice(low - begins[index], high - begins[index])

"""Folders here and elsewhere, used alike."""

from __future__ import annotations

import uuid
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from gradviz.errors import HistoryError
from gradviz.history.run.folder import Folder, open_folder


@pytest.fixture(params=["here", "file://", "memory://"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    address = {
        "here": f"{tmp_path}/runs/a",
        "file://": f"file://{tmp_path}/runs/a",
        "memory://": f"memory://{uuid.uuid4()}/a",
    }
    return open_folder(address[request.param])


def test_what_was_written_is_read(folder):
    folder.write("run.json", b"{}")
    folder.write("gradients/a.parquet", pa.py_buffer(b"rows"))
    folder.write("empty", b"")
    assert folder.read("run.json") == b"{}"
    assert folder.read("gradients/a.parquet") == b"rows"
    assert folder.read("empty") == b""
    with closing(folder.source("gradients/a.parquet")) as source:
        assert source.read() == b"rows"


def test_a_file_takes_the_place_of_an_older_one(folder):
    folder.write("run.json", b"old and long")
    folder.write("run.json", b"new")
    assert folder.read("run.json") == b"new"
    assert folder.names() == ["run.json"]


def test_names_are_those_of_files_that_are_finished(folder):
    assert folder.names() == []
    for name in ("b", "a", ".lock", "_x", "sub/c", "sub/deep/d"):
        folder.write(name, b"1")
    assert folder.names() == ["a", "b"]
    assert folder.names("sub") == ["c"]
    assert folder.names("missing") == []
    assert folder.names("a") in ([], ["a"])


def test_files_are_there_until_they_are_removed(folder):
    assert not folder.exists("a")
    assert not folder.exists()
    folder.write("a", b"1")
    assert folder.exists("a")
    assert folder.exists()
    folder.remove("a")
    folder.remove("a")
    assert not folder.exists("a")


def test_what_is_missing_is_not_found(folder):
    with pytest.raises(FileNotFoundError):
        folder.read("a")
    with pytest.raises(FileNotFoundError):
        folder.source("a")


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../../b", "C:\\a"])
def test_no_name_leads_out(folder, name):
    for use in (
        folder.read,
        folder.source,
        folder.names,
        folder.exists,
        folder.remove,
        lambda n: folder.write(n, b"1"),
    ):
        with pytest.raises(HistoryError, match="no name of a file below"):
            use(name)


def test_a_folder_has_one_writer(folder):
    folder.lock()
    with pytest.raises(HistoryError, match="is being written by another"):
        folder.lock()
    with pytest.raises(HistoryError, match="is being written by another"):
        open_folder(folder.address).lock()
    folder.unlock()
    folder.unlock()
    again = open_folder(folder.address)
    again.lock()
    again.unlock()


@pytest.mark.parametrize(("where", "came"), [("", "''"), (3, "an int"), (None, "None"), (b"runs", "a bytes")])
def test_what_is_no_address_is_refused(where, came):
    with pytest.raises(HistoryError, match=f"got {came}"):
        open_folder(where)


@pytest.mark.parametrize("address", ["nowhere://a/b", "gcs://bucket/a"])
def test_an_address_that_nothing_here_knows_is_named(address):
    with pytest.raises(HistoryError, match=f"{address} cannot be reached"):
        open_folder(address)

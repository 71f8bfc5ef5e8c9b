"""A folder elsewhere: what other programs put there is seen, and every failure of a library is an OSError."""

from __future__ import annotations

import uuid

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from gradviz.history.run.remote import RemoteFolder


@pytest.fixture
def folder():
    return RemoteFolder(f"memory://{uuid.uuid4()}/a/")


def test_a_write_that_fails_in_any_way_can_be_tried_again(folder, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("the token has expired")

    with monkeypatch.context() as patch:
        patch.setattr(type(folder._files), "pipe_file", fail)
        with pytest.raises(OSError, match=r"run\.json cannot be written: the token has expired"):
            folder.write("run.json", b"1")
    folder.write("run.json", b"1")
    assert folder.read("run.json") == b"1"


def test_listings_are_never_those_of_before(tmp_path):
    fsspec.register_implementation("remembering", Remembering, clobber=True)
    folder = RemoteFolder(f"remembering://{tmp_path}")
    assert folder.names() == []
    (tmp_path / "new").write_text("1")
    assert folder.names() == ["new"]
    assert folder.exists("new")


class Remembering(LocalFileSystem):
    """As object stores' clients do, it lists a folder once."""

    protocol = ("remembering",)

    def ls(self, path, detail=True, **kwargs):
        if path not in self.dircache:
            self.dircache[path] = super().ls(path, detail=True, **kwargs)
        return self.dircache[path]

    def invalidate_cache(self, path=None):
        self.dircache.clear()


def test_a_folder_is_the_same_with_and_without_a_slash(folder):
    folder.write("a", b"1")
    assert RemoteFolder(folder.address.rstrip("/")).names() == ["a"]

"""A folder on this machine: durable, locked, and closed to what is outside."""

from __future__ import annotations

import errno
import gc
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gradviz.errors import HistoryError
from gradviz.history.run.local import LocalFolder

HOLD = """
import sys
from gradviz.history.run.local import LocalFolder
folder = LocalFolder(sys.argv[1])
folder.lock()
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    return LocalFolder(str(tmp_path / "a"))


def files(tmp_path: Path) -> set[str]:
    return {file.relative_to(tmp_path / "a").as_posix() for file in (tmp_path / "a").rglob("*") if file.is_file()}


@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.case("H05")
def test_a_failed_write_leaves_the_file_that_was_there(folder, tmp_path, monkeypatch, failing):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder.write("run.json", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        with pytest.raises(OSError, match="No space left") as raised:
            folder.write("run.json", b"new")
        with pytest.raises(OSError, match="No space left"):
            folder.write("other", b"new")
    assert raised.value.errno == errno.ENOSPC
    assert files(tmp_path) == {"run.json"}
    assert folder.read("run.json") == b"old"
    folder.write("run.json", b"new")  # once there is room
    assert folder.read("run.json") == b"new"


def test_a_disk_that_is_full_in_mid_write_leaves_the_file_that_was_there(tmp_path):
    full = """
import resource, signal, sys
from gradviz.history.run.local import LocalFolder
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
folder = LocalFolder(sys.argv[1])
folder.write("rows", b"old")
try:
    folder.write("rows", bytes(1_000_000))
except OSError as error:
    print(error.errno, folder.read("rows"), sorted(p.name for p in folder._root.iterdir()))
"""
    ran = subprocess.run([sys.executable, "-c", full, tmp_path / "a"], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(errno.EFBIG), "b'old'", "['rows']"]


def test_what_a_killed_writer_left_is_overwritten(folder, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".run.json.tmp").write_bytes(b"half")
    folder.write("run.json", b"whole")
    assert files(tmp_path) == {"run.json"}


def test_a_file_is_synced_before_it_has_its_name_and_the_folder_after(folder, monkeypatch):
    done, sync, replace = [], os.fsync, os.replace

    def synced(descriptor):
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def named(source, target):
        done.append("name")
        replace(source, target)

    folder.write("first", b"1")
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", named)
    folder.write("second", b"2")
    assert done == ["file", "name", "folder"]


def test_links_within_the_folder_are_followed_and_those_that_lead_out_are_not(folder, tmp_path):
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "elsewhere").mkdir()
    folder.write("inside", b"1")
    (tmp_path / "a" / "good").symlink_to("inside")
    (tmp_path / "a" / "bad").symlink_to(tmp_path / "secret")
    (tmp_path / "a" / "up").symlink_to("../secret")
    (tmp_path / "a" / "gradients").symlink_to(tmp_path / "elsewhere")
    assert folder.read("good") == b"1"
    for name in ("bad", "up", "gradients/x"):
        for use in (folder.read, folder.source, folder.exists, lambda n: folder.write(n, b"1")):
            with pytest.raises(HistoryError, match="leads out of the run's folder"):
                use(name)
    with pytest.raises(HistoryError, match="leads out"):
        folder.names("gradients")
    assert (tmp_path / "secret").read_text() == "outside"
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_link_planted_where_a_write_begins_is_not_written_through(folder, tmp_path):
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".rows.tmp").symlink_to(tmp_path / "secret")
    folder.write("rows", b"1")
    assert (tmp_path / "secret").read_text() == "outside"


def test_the_folder_itself_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "a").symlink_to(tmp_path / "disk")
    LocalFolder(str(tmp_path / "a")).write("rows", b"1")
    assert (tmp_path / "disk" / "rows").read_bytes() == b"1"


def test_the_folder_stays_where_it_was_when_the_program_moves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = LocalFolder("a")
    folder.write("rows", b"1")
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    assert folder.read("rows") == b"1"


def test_another_process_is_kept_out_until_the_writer_dies(folder, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / "a"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout.readline() == "locked\n"
        with pytest.raises(HistoryError, match="is being written by another process"):
            folder.lock()
        assert folder.is_locked()
        writer.kill()
        writer.wait()
    assert folder.is_locked() is False
    folder.lock()
    folder.unlock()


def test_a_look_at_the_lock_neither_takes_it_nor_lets_it_go(folder, tmp_path):
    other = LocalFolder(str(tmp_path / "a"))
    assert folder.is_locked() is other.is_locked() is False
    folder.lock()
    assert folder.is_locked() is other.is_locked() is True
    trying = [sys.executable, "-c", HOLD, tmp_path / "a"]
    tried = subprocess.run(trying, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert "is being written by another process" in tried.stderr
    folder.unlock()
    assert folder.is_locked() is False
    other.lock()
    other.unlock()


def test_what_was_forked_holds_no_lock_and_takes_none_away(folder, tmp_path):
    folder.lock()
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:  # a worker: it lets go of what it inherited, and ends
        folder.unlock()
        os.write(theirs, b"x")
        os._exit(0)
    os.read(ours, 1)
    os.waitpid(child, 0)
    os.close(ours)
    os.close(theirs)
    trying = [sys.executable, "-c", HOLD, tmp_path / "a"]
    tried = subprocess.run(trying, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert "is being written by another process" in tried.stderr
    folder.unlock()


def test_a_writer_that_is_forgotten_lets_go(folder, tmp_path):
    forgotten = LocalFolder(str(tmp_path / "a"))
    forgotten.lock()
    del forgotten
    gc.collect()
    folder.lock()
    folder.unlock()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match=r"file/a cannot be written: .*\. Name a folder that can be"):
        LocalFolder(str(tmp_path / "file" / "a")).lock()


def test_a_folder_that_may_only_be_read_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o555)
    root = os.geteuid() == 0
    if root:  # to whom all is allowed
        os.seteuid(65534)
    try:
        with pytest.raises(HistoryError, match=r"a cannot be written: Permission denied\. Name a folder that can be"):
            LocalFolder(str(tmp_path / "a")).lock()
    finally:
        if root:
            os.seteuid(0)

"""The command line, called as a user calls it."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradviz.history.history import History
from gradviz.history.schema import Parameter
from tests.widgets.histories import append

ROOT = Path(__file__).parents[1]
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def gradviz(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gradviz", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[History]:
    history = History(save_to=tmp_path / "runs" / "a")
    history.declare([Parameter(name="w", shape=(2, 3), dtype="float32")])
    append(history)
    history.flush()
    yield history
    history.end_run()


@pytest.fixture
def shown(run: History, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that shows the run, and its address."""
    command = [sys.executable, "-m", "gradviz", "open", "runs/a", "--no-browser"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **said) as server:
        try:
            assert server.stdout
            found = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
            assert found
            yield server, found[0]
        finally:
            if server.poll() is None:
                server.kill()


def read(address: str, host: str | None = None) -> str:
    request = urllib.request.Request(address, headers={"Host": host} if host else {})
    with DIRECT.open(request, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def test_a_run_that_is_still_written_is_shown_and_a_reload_shows_more(run, shown):
    server, address = shown
    assert '"iteration":1,' in read(address)
    append(run)
    run.flush()
    assert '"iteration":2,' in read(address)
    server.send_signal(signal.SIGINT)
    rest, _ = server.communicate(timeout=60)
    assert server.returncode == 0
    assert rest.strip() == "Stopped."


def test_there_is_one_page_and_only_for_this_machine(shown):
    _, address = shown
    with pytest.raises(urllib.error.HTTPError, match="404"):
        read(f"{address}etc/passwd")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        read(address, host="evil.example")


def test_who_goes_away_before_the_page_is_there_leaves_no_word(shown):
    server, address = shown
    host = urllib.parse.urlsplit(address)
    for _ in range(3):
        with socket.create_connection((host.hostname, host.port)) as asking:
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # gone without a word
            asking.sendall(f"GET / HTTP/1.1\r\nHost: {host.netloc}\r\n\r\n".encode())
    read(address)
    server.send_signal(signal.SIGINT)
    rest, _ = server.communicate(timeout=60)
    assert rest.strip() == "Stopped."


def test_what_cannot_be_shown_is_said_in_a_line(run, tmp_path):
    for folder, said in (("nowhere", "There is no folder"), ("runs", "Runs in it: a.")):
        done = gradviz("open", folder, "--no-browser", folder=tmp_path)
        assert done.returncode == 1
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
        assert not done.stdout
    wrong = gradviz("open", "runs/a", "--port", "http", folder=tmp_path)
    assert wrong.returncode == 2
    assert "a port is a number" in wrong.stderr


def test_the_demo_trains_and_leaves_a_page(tmp_path):
    done = gradviz("demo", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    page = tmp_path / "gradviz-demo.html"
    assert page.as_uri() in done.stdout
    assert "head.weight" in page.read_text()
    assert "completed" in done.stderr  # the bar


def test_the_doctor_says_what_there_is(tmp_path):
    done = gradviz("doctor", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"anywidget +0\.\d+", done.stdout)
    assert "gv.save_html" in done.stdout

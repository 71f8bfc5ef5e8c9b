"""A recorded run as a page on this machine alone; each reload reads what was written since."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from gradviz.errors import HistoryError
from gradviz.history.history import History
from gradviz.history.opened import Opened
from gradviz.widgets.page import page_of

HOST = "127.0.0.1"


def serve(run: str, *, port: int = 0, browse: bool = True) -> None:
    """Show a run until Ctrl-C.

    Parameters
    ----------
    run : str
        Its folder or address.
    port : int
        A free one, if it is 0.
    browse : bool
        Whether to open a browser there.

    Raises
    ------
    HistoryError
        If there is no such run, or the port is taken.
    """
    history = _opened(run)
    try:
        server = _Server(port, Pages(history))
    except OSError as error:
        raise HistoryError(
            f"Port {port} cannot be used: {error.strerror or error}. Without --port a free one is."
        ) from error
    with server:
        print(f"{run} is shown at {server.address} until Ctrl-C.", flush=True)
        if browse:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nStopped.")


def _opened(run: str) -> Opened:
    try:
        return History.open(run)
    except HistoryError as error:
        folder = Path(run)
        found = sorted(each.parent.name for each in folder.glob("*/run.json")) if folder.is_dir() else []
        there = f" Runs in it: {', '.join(found[:8])}{' ...' if len(found) > 8 else ''}." if found else ""
        raise HistoryError(f"{error}{there}") from None


class Pages:
    """The page of a run, as it is when it is asked for; made anew only if the run has gone on."""

    def __init__(self, history: Opened) -> None:
        self._history = history
        self._lock = Lock()
        self._of: tuple[int, str] | None = None
        self._page = b""

    def __call__(self) -> bytes:
        """As bytes."""
        with self._lock:
            history = self._history.refresh()
            now = history._store.version, history.progress.status
            if now != self._of:
                self._page, self._of = page_of(history).encode(), now
            return self._page


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, page: Callable[[], bytes]) -> None:
        self.page = page
        super().__init__((HOST, port), _Handler)
        self.address = f"http://{HOST}:{self.server_port}/"
        # A page elsewhere whose name leads here asks for another host than this.
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def handle(self) -> None:
        with suppress(ConnectionError):  # whoever asked is gone
            super().handle()

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            return self._answer(HTTPStatus.FORBIDDEN, b"Not for this host.", "text/plain")
        if self.path.partition("?")[0] != "/":
            return self._answer(HTTPStatus.NOT_FOUND, b"There is one page: /", "text/plain")
        try:
            return self._answer(HTTPStatus.OK, self.server.page(), "text/html; charset=utf-8")
        except HistoryError as error:  # the run was moved meanwhile, or is damaged
            return self._answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error).encode(), "text/plain; charset=utf-8")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the terminal is the user's."""

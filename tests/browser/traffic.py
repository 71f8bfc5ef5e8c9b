"""What a page says and whom it asks: the errors and warnings of its console and every request it sends."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import Page


class Traffic:
    """Listens to `page` from now on; `home` is the origin it may talk to."""

    def __init__(self, page: Page, home: str) -> None:
        self.home = urlsplit(home).netloc
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        page.context.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", lambda socket: self.requests.append(socket.url))

    def _hear(self, kind: str, text: str) -> None:
        if kind == "error":
            self.errors.append(text)
        if kind == "warning":
            self.warnings.append(text)

    def strangers(self) -> list[str]:
        """The requests that left for somewhere else than home (data: and blob: stay inside the page)."""
        return [url for url in self.requests if not self._is_local(url)]

    def assert_clean(self) -> None:
        """No error in the console, and nothing asked of anybody else."""
        assert self.requests, "The page asked for nothing: the listener came too late."
        assert not self.errors, f"errors in the browser's console: {self.errors}"
        assert not self.strangers(), f"requests left {self.home}: {self.strangers()}"

    def _is_local(self, url: str) -> bool:
        parts = urlsplit(url)
        return parts.scheme in {"data", "blob", "about"} or parts.netloc == self.home

"""One notebook in one page of JupyterLab, driven the way a user drives it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pandas as pd
from playwright.sync_api import Locator, Page, TimeoutError

from . import kernel
from .deadline import PATIENCE_S, until
from .lab import THEMES, Lab, Theme
from .traffic import Traffic

SHOTS = Path(__file__).parent / "output"

# "idle" alone is a trap: for half a second the page says it together with "No Kernel", and running a cell
# then opens a dialog.
_READY = """() => {
  const panel = document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden)');
  const name = panel?.querySelector('.jp-Toolbar-kernelName')?.textContent ?? 'No Kernel';
  const status = panel?.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status;
  const cells = panel?.querySelectorAll('.jp-Notebook .jp-Cell').length ?? 0;
  const ready = !name.includes('No Kernel') && WANTED.includes(status);
  return ready && cells > 0 && !document.querySelector('.jp-Dialog');
}"""
_PROMPT = """([cell, pattern]) => {
  const cells = document.querySelectorAll('.jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell');
  const text = cells[cell]?.querySelector('.jp-InputPrompt')?.textContent ?? '';
  return new RegExp(pattern).test(text);
}"""
_NUDGE = "() => { window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.requestKernelInfo(); }"
_NUDGE_S = 60.0
_TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Notebook:
    """An open notebook; cells are counted from 0, markdown cells included."""

    def __init__(self, lab: Lab, page: Page, file: Path) -> None:
        self.lab = lab
        self.page = page
        self.file = file
        self.traffic = Traffic(page, lab.origin)
        page.on("dialog", lambda dialog: dialog.accept())

    # --- the page ---

    def open(self) -> None:
        """Load the page in a workspace of its own and wait until the kernel is ready."""
        path = quote(self.file.relative_to(self.lab.root).as_posix())
        workspace = f"test-{self.file.stem}"
        self.page.goto(f"{self.lab.origin}/lab/workspaces/{workspace}/tree/{path}?token={self.lab.token}&reset")
        self.wait_ready()
        self._hide_file_browser()

    def wait_ready(self, busy: bool = False) -> None:
        """Wait for the notebook with its kernel, idle (or, with `busy`, in whatever state)."""
        wanted = ["idle", "busy"] if busy else ["idle"]
        self._wait(_READY.replace("WANTED", str(wanted)), None)

    def reload(self, busy: bool = False) -> None:
        """Save, load the page again, and wait for the notebook (`busy`: its kernel may run a cell)."""
        self.save()
        self.page.reload()
        self.wait_ready(busy)

    def save(self) -> None:
        self.command("docmanager:save")

    def resize(self, width: int, height: int = 1000) -> None:
        """Give the page another size and wait until what is in it has been laid out and painted anew."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.settle()

    def set_theme(self, theme: Theme) -> None:
        """Switch the open page to the "light" or the "dark" theme, as the Settings menu does."""
        self.command("apputils:change-theme", {"theme": THEMES[theme]})
        light = "true" if theme == "light" else "false"
        self._wait("light => document.body.dataset.jpThemeLight === light", light)
        self.settle()

    def settle(self) -> None:
        """Wait until observers of the page have run and the next picture is painted."""
        for _ in range(2):
            self.page.evaluate(_TWO_FRAMES)

    def screenshot(self, name: str, part: Locator | None = None) -> Path:
        """Save a picture of the page, or of `part` of it, in tests/browser/output/, for people to look at."""
        file = self.screenshot_path(name)
        if part is not None:
            part.scroll_into_view_if_needed()
            part.screenshot(path=file)
        else:
            self.page.screenshot(path=file)
        return file

    @staticmethod
    def screenshot_path(name: str) -> Path:
        """Where a picture is saved."""
        SHOTS.mkdir(exist_ok=True)
        return SHOTS / f"{name}.png"

    def command(self, name: str, arguments: dict[str, Any] | None = None, wait: bool = True) -> None:
        """Run one of JupyterLab's own commands, and wait until it is done unless told not to."""
        start = "window.jupyterapp.commands.execute(name, args)"
        body = f"{start}.then(() => null)" if wait else f"{{ {start}.catch(() => null); }}"
        self.page.evaluate(f"([name, args]) => {body}", [name, arguments or {}])

    # --- cells ---

    def cell(self, index: int) -> Locator:
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell").nth(index)

    def run(self, index: int) -> None:
        """Click into the cell and press Shift+Enter; does not wait."""
        editor = self.cell(index).locator(".cm-content")
        editor.scroll_into_view_if_needed()
        editor.click()
        self.page.keyboard.press("Shift+Enter")

    def run_all(self) -> None:
        """Run every cell; does not wait."""
        self.command("notebook:run-all-cells", wait=False)

    def prompt(self, index: int) -> str:
        """What stands beside the cell: "[ ]", "[*]" or "[3]"."""
        return self.cell(index).locator(".jp-InputPrompt").first.inner_text().strip().rstrip(":")

    def wait_busy(self, index: int, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the cell's prompt is [*]: it runs, or waits for its turn."""
        self._wait(_PROMPT, [index, r"\[\*\]"], timeout_s)

    def wait_done(self, index: int, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the cell's prompt is a number."""
        self._wait_answered([index, r"\[\d+\]"], timeout_s)

    def wait_count(self, index: int, count: int, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the cell's prompt is this number."""
        self._wait_answered([index, rf"\[{count}\]"], timeout_s)

    def is_trusted(self, index: int) -> bool:
        """Whether the outputs of a cell may do what they like."""
        script = "index => window.jupyterapp.shell.currentWidget.content.widgets[index].model.trusted"
        return bool(self.page.evaluate(script, index))

    def output_text(self, index: int) -> str:
        return "\n".join(self.cell(index).locator(".jp-OutputArea-output").all_inner_texts())

    def widget(self, index: int | None = None) -> Locator:
        """The first heatmap of the notebook, or of one cell."""
        place = self.page if index is None else self.cell(index)
        return place.locator(".gv-heatmap").first

    def figure(self, index: int) -> Locator:
        """The still picture of a run that is over, with its words."""
        figure = self.cell(index).locator("figure")
        figure.wait_for()
        return figure

    # --- the kernel ---

    @property
    def kernel_id(self) -> str:
        """The id of the kernel that runs this notebook."""
        return str(self._session()["kernel"]["id"])

    def evaluate(self, expression: str, setup: str = "") -> Any:
        """The value of an expression in the kernel, past the notebook (see `kernel.evaluate`)."""
        return kernel.evaluate(self._connection_file(), expression, setup)

    def frame(self, expression: str) -> pd.DataFrame:
        """A wide numeric pandas frame of the kernel."""
        return kernel.frame(self._connection_file(), expression)

    def interrupt(self, through: Literal["toolbar", "server"] = "toolbar") -> None:
        """Interrupt the kernel: by the toolbar's button, or by the server's own call (a few milliseconds)."""
        if through == "server":
            self.lab.rest("POST", f"kernels/{self.kernel_id}/interrupt")
        else:
            self.page.locator('.jp-NotebookPanel:not(.lm-mod-hidden) [data-jp-item-name="interrupt"] jp-button').click()

    def restart(self) -> None:
        """Restart the kernel from the toolbar, and wait until the new one is ready."""
        self.page.locator('.jp-NotebookPanel:not(.lm-mod-hidden) [data-jp-item-name="restart"] jp-button').click()
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        self.wait_ready()

    def shutdown(self) -> None:
        """End the kernel; the page stays as it is."""
        self.lab.rest("DELETE", f"sessions/{self._session()['id']}")

    def wait_idle(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the server says that the kernel rests; works where a reloaded page shows no prompts."""
        until(lambda: self._session()["kernel"]["execution_state"] == "idle", "the kernel is idle", timeout_s)

    def close(self) -> None:
        """Close the page and end its kernel."""
        self.page.context.close()
        for session in self.lab.rest("GET", "sessions"):
            if session["path"] == self.file.relative_to(self.lab.root).as_posix():
                self.lab.rest("DELETE", f"sessions/{session['id']}")

    def _session(self) -> dict[str, Any]:
        path = self.file.relative_to(self.lab.root).as_posix()
        sessions: list[dict[str, Any]] = self.lab.rest("GET", "sessions")
        return next(session for session in sessions if session["path"] == path)

    def _connection_file(self) -> Path:
        return self.lab.runtime / f"kernel-{self.kernel_id}.json"

    def _wait(self, script: str, argument: Any, timeout_s: float = PATIENCE_S) -> None:
        self.page.wait_for_function(script, arg=argument, timeout=timeout_s * 1000)

    def _wait_answered(self, cell: list[Any], timeout_s: float) -> None:
        """Wait for a prompt. On a machine that starves a kernel was seen to rest with a request unanswered, as if it
        had missed its coming; whatever comes next wakes it.
        """
        for _ in range(max(1, round(timeout_s / _NUDGE_S))):
            with contextlib.suppress(TimeoutError):
                return self._wait(_PROMPT, cell, min(timeout_s, _NUDGE_S))
            if self._session()["kernel"]["execution_state"] == "idle":
                self.page.evaluate(_NUDGE)
        return self._wait(_PROMPT, cell, 1)

    def _hide_file_browser(self) -> None:
        """Give the notebook the whole width, so that a narrow page is a narrow notebook."""
        if self.page.locator("#jp-left-stack:not(.lm-mod-hidden)").is_visible():
            self.command("application:toggle-left-area")
            self.settle()

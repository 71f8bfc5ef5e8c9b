"""A JupyterLab of our own: a free port, a token, and all the folders it writes to in one temporary place."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .deadline import until

Theme = Literal["light", "dark"]
THEMES: dict[Theme, str] = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

_SETTINGS: dict[str, dict[str, Any]] = {
    "apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    # Cells that are off screen stay in the page, so that their prompts and canvases can be read.
    "notebook-extension/tracker": {"windowingMode": "none"},
}
NEWEST, OLDER = "python3", "older"
"""The kernels that a notebook may have: that of the environment, and one of the version that Binder pins."""
OLDER_KERNEL = Path(sys.prefix) / "older-kernel"

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Lab:
    """A running server: where it listens, and the folder whose notebooks it serves."""

    origin: str
    token: str
    home: Path
    process: subprocess.Popen[bytes]

    @property
    def root(self) -> Path:
        return self.home / "root"

    @property
    def runtime(self) -> Path:
        return self.home / "runtime"

    def rest(self, method: str, path: str) -> Any:
        """One call of the server's interface (`path`: "kernels/ID/interrupt"); its JSON answer, if any."""
        call = urllib.request.Request(
            f"{self.origin}/api/{path}", method=method, headers={"Authorization": f"token {self.token}"}
        )
        with _DIRECT.open(call, timeout=60) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def set_theme(self, theme: Theme) -> None:
        """Choose "light" or "dark" for the pages that are opened from now on."""
        _write_settings(self.home, "apputils-extension/themes", {"theme": THEMES[theme], "adaptive-theme": False})


def start(home: Path, python: str = sys.executable) -> Lab:
    """Start the server of an environment, whose folders all lie in `home`, and wait until it answers."""
    for folder in ("root", "config", "data", "runtime", "ipython", "settings", "workspaces"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    for plugin, settings in _SETTINGS.items():
        _write_settings(home, plugin, settings)
    _add_older_kernel(home)
    port, token = _free_port(), secrets.token_hex(16)
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(
            _command(python, home, port, token),
            cwd=home,
            env=_environment(home),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    lab = Lab(f"http://127.0.0.1:{port}", token, home, process)
    lab.set_theme("light")
    until(lambda: _answers(lab), "JupyterLab answers")
    return lab


def stop(lab: Lab) -> None:
    """End the server; its kernels end with it."""
    lab.process.terminate()
    try:
        lab.process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        lab.process.kill()
        lab.process.wait()


def _command(python: str, home: Path, port: int, token: str) -> list[str]:
    return [
        *(python, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser"),
        *("--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"),
        *(f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={home / 'root'}"),
        # Nothing may ask the network for news, updates or extensions.
        *("--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url="),
        "--LabApp.extension_manager=readonly",
    ]


def _environment(home: Path) -> dict[str, str]:
    places = {
        "HOME": home,
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_DATA_DIR": home / "data",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "IPYTHONDIR": home / "ipython",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
    }
    # The kernel and the widget's front end come from the environment that the server runs in.
    return os.environ | {name: str(place) for name, place in places.items()} | {"JUPYTER_PREFER_ENV_PATH": "1"}


def _write_settings(home: Path, plugin: str, settings: dict[str, Any]) -> None:
    file = home / "settings" / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(settings))


def _add_older_kernel(home: Path) -> None:
    """The same environment, but that `ipykernel` is found elsewhere first."""
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Older", "language": "python", "env": {"PYTHONPATH": str(OLDER_KERNEL)}}
    folder = home / "data" / "kernels" / OLDER
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(spec))


def _answers(lab: Lab) -> bool:
    if lab.process.poll() is not None:
        log = (lab.home / "server.log").read_text(errors="replace")
        raise RuntimeError(f"JupyterLab ended with {lab.process.returncode} before it answered:\n{log[-4000:]}")
    try:
        lab.rest("GET", "status")
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port

"""`doctor`: which versions work together here, and what a widget is missing to be seen."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from importlib import metadata
from typing import Any, Literal

Host = Literal["JupyterLab or Notebook", "VS Code", "Colab", "marimo", "IPython", "a script"]

PACKAGES = ("torch", "gradviz-jupyter", "anywidget", "ipywidgets", "ipykernel", "jupyterlab", "notebook")

FRONT_ENDS = {
    "@jupyter-widgets/jupyterlab-manager": "jupyterlab_widgets",
    "anywidget": "anywidget",
}
"""What a page of Jupyter needs of its server, and the package that has it."""

PATIENCE_S = 3


@dataclass(frozen=True)
class Server:
    """A Jupyter server.

    Attributes
    ----------
    address : str
    version : str
        Of the JupyterLab or the Notebook that it serves; "" if it did not say.
    lacks : tuple of str
        Front-end parts that it does not have.
    python : str
        That of its environment; "" where it is not known.
    """

    address: str
    version: str
    lacks: tuple[str, ...]
    python: str = ""


@dataclass(frozen=True)
class Report:
    """What `doctor` found.

    Attributes
    ----------
    host : str
        What runs this code.
    versions : dict of str to str
        By package; "" where it is not installed.
    servers : list of Server
        Those that run this kernel, or all on this machine where it cannot tell which.
    advice : list of str
        What to do, a line each; empty where nothing is missing.
    """

    host: Host
    versions: dict[str, str]
    servers: list[Server] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"Python {platform.python_version()} at {sys.executable}, in {self.host}"]
        lines += [f"  {name:16} {version or 'not installed'}" for name, version in self.versions.items()]
        for server in self.servers:
            lines.append(f"Jupyter server at {server.address}, version {server.version or 'unknown'}")
            lines += [f"  {name:36} {'MISSING' if name in server.lacks else 'there'}" for name in FRONT_ENDS]
        return "\n".join([*lines, *(self.advice or ["Nothing is missing."])])


def doctor() -> Report:
    """Print which versions there are on both sides, the kernel's and the page's, and what is missing where.

    A widget has two halves. The kernel's is in the environment of this Python; the page's is in that of the Jupyter
    server, which may be another one. Of VS Code, Colab and marimo it says what they need.

    Returns
    -------
    Report
        What was printed: `host`, `versions`, `servers`, `advice`.

    Examples
    --------
    >>> report = doctor()  # doctest: +ELLIPSIS
    Python 3...
    >>> report.versions["gradviz-jupyter"] != ""
    True
    """
    host, versions = host_of(), {name: _version(name) for name in PACKAGES}
    servers = list(_servers()) if host == "JupyterLab or Notebook" else []
    report = Report(host, versions, servers, list(_advice(host, versions, servers)))
    print(report)
    return report


def host_of() -> Host:
    """What runs this code."""
    if "google.colab" in sys.modules:
        return "Colab"
    if "marimo" in sys.modules and _in_marimo():
        return "marimo"
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None:
        return "a script"
    if not hasattr(shell, "kernel"):
        return "IPython"
    is_vscode = "VSCODE_PID" in os.environ or "__vsc_ipynb_file__" in shell.user_ns
    return "VS Code" if is_vscode and "JPY_SESSION_NAME" not in os.environ else "JupyterLab or Notebook"


def _in_marimo() -> bool:
    running: bool = sys.modules["marimo"].running_in_notebook()
    return running


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _advice(host: Host, versions: dict[str, str], servers: list[Server]) -> Iterator[str]:
    if host == "VS Code":
        yield (
            "VS Code brings the front-end part itself, but loads anywidget's from the network: allow it when it asks "
            '("jupyter.widgetScriptSources": ["jsdelivr.com", "unpkg.com"]). Without: gv.save_html(loop, "run.html").'
        )
    elif host == "Colab":
        yield "Colab shows widgets once google.colab.output.enable_custom_widget_manager() was called; gradviz does so."
    elif host in ("a script", "IPython"):
        yield 'No notebook runs this code, so no widget is shown: gv.save_html(loop, "run.html") makes a page of a run.'
    elif host == "JupyterLab or Notebook" and not servers:
        yield "No Jupyter server of this machine answered, so that nothing is known of the page's side. " + _where(None)
    for server in servers:
        if server.lacks:
            packages = " ".join(FRONT_ENDS[name] for name in server.lacks)
            yield (
                f"The server at {server.address} lacks {' and '.join(server.lacks)}, so that widgets are not shown. "
                f"Install it there, and reload the page: {server.python or '<python of that server>'} -m pip install "
                f"{packages}"
            )
    if not versions["ipykernel"] and host == "JupyterLab or Notebook":
        yield f"{sys.executable} -m pip install ipykernel"


def _where(python: str | None) -> str:
    return f"Where it runs: {python or 'python'} -m pip install {' '.join(dict.fromkeys(FRONT_ENDS.values()))}"


# Servers ----------------------------------------------------------------------------------------------------------


def _servers() -> Iterator[Server]:
    """The server that runs this kernel; if none of this machine says so, all that answer."""
    found = list(_running())
    own = [told for told in found if _runs_this_kernel(told)]
    for told in own or found:
        server = _asked(told)
        if server is not None:
            yield server


def _running() -> Iterator[dict[str, Any]]:
    try:
        from jupyter_server.serverapp import list_running_servers
    except ImportError:  # the kernel's environment need not have it
        yield from _by_files()
        return
    yield from list_running_servers()


def _by_files() -> Iterator[dict[str, Any]]:
    from jupyter_core.paths import jupyter_runtime_dir

    folder = jupyter_runtime_dir()
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if re.fullmatch(r"(jp|nb)server-\d+\.json", name):
            try:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    yield json.load(file)
            except (OSError, ValueError):
                continue


def _runs_this_kernel(told: dict[str, Any]) -> bool:
    """Whether this kernel is one of the server's."""
    shell = sys.modules["IPython"].get_ipython()
    file = getattr(getattr(shell, "kernel", None), "config", {}).get("IPKernelApp", {}).get("connection_file", "")
    kernel = re.search(r"kernel-([0-9a-f-]+)\.json", str(file))
    if kernel is None:
        return False
    answer = _get(told, f"api/kernels/{kernel[1]}")
    return answer is not None and kernel[1] in answer


def _asked(told: dict[str, Any]) -> Server | None:
    """What a server says of its page."""
    for page in ("lab", "tree"):
        text = _get(told, page)
        found = text and re.search(r'<script id="jupyter-config-data"[^>]*>(.*?)</script>', text, re.DOTALL)
        if found:
            break
    else:
        return None
    config = json.loads(unescape(found[1]))
    parts = {part.get("name") for part in config.get("federated_extensions", [])}
    off = {name.partition(":")[0] for name in config.get("disabledExtensions", [])}
    lacks = tuple(name for name in FRONT_ENDS if name not in parts or name in off)
    return Server(told["url"], str(config.get("appVersion", "")), lacks, _python_of(told.get("pid")))


def _get(told: dict[str, Any], path: str) -> str | None:
    """An answer of a server on this machine."""
    request = urllib.request.Request(
        f"{told['url']}{path}", headers={"Authorization": f"token {told.get('token', '')}"}
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=PATIENCE_S) as answer:
            text: str = answer.read().decode("utf-8", "replace")
            return text
    except (OSError, ValueError, urllib.error.URLError):
        return None


def _python_of(pid: object) -> str:
    """The Python that runs a process, as it was called; "" where that cannot be seen."""
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
            called = file.read().split("\0")[0]
    except OSError:
        return ""
    return called if "python" in os.path.basename(called) else ""

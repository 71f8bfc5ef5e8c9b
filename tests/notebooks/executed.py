"""The tutorials, each executed once for all tests of a session: that is the dear part."""

from __future__ import annotations

import functools
import json
import os
import pickle
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from filelock import FileLock
from nbclient import NotebookClient

NOTEBOOKS = {path.stem: path for path in sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))}

# What can be said in JSON, under the names that the notebook has for it.
_LAST = """
import json as _json
import resource as _resource

def _item(value):
    return value.item()  # numpy's and torch's numbers

def _said(names):
    said = {"peak_gb": _resource.getrusage(_resource.RUSAGE_SELF).ru_maxrss / 1e6}
    for name, value in names.items():
        try:
            said |= {name: _json.loads(_json.dumps(value, default=_item))} if name[0] != "_" else {}
        except Exception:
            pass
    return _json.dumps(said)

print(_said({name: value for name, value in globals().items() if name not in ("In", "Out")}))
"""


@dataclass(frozen=True)
class Executed:
    """A tutorial that ran.

    Attributes
    ----------
    notebook : NotebookNode
        With its outputs.
    values : dict
        What its names stood for at the end, as far as that is plain.
    peak_gb, seconds : float
        What it took; with the start of the kernel.
    """

    notebook: Any
    values: dict[str, Any]
    peak_gb: float
    seconds: float

    def results(self) -> list[str]:
        """What its cells came to, as text."""
        outputs = [output for cell in self.notebook.cells for output in cell.get("outputs", [])]
        return [output["data"]["text/plain"] for output in outputs if output["output_type"] == "execute_result"]


@functools.cache
def executed(name: str) -> Executed:
    """The tutorial of this name, in a folder of its own; of several processes of tests, by the first that asks."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return _execute(name)
    shared = Path(tempfile.gettempdir()) / f"gradviz-tutorials-{run}"
    shared.mkdir(exist_ok=True)
    file = shared / f"{name}.pickle"
    with FileLock(f"{file}.lock"):
        if not file.exists():
            file.write_bytes(pickle.dumps(_execute(name)))
    found: Executed = pickle.loads(file.read_bytes())
    return found


def _execute(name: str) -> Executed:
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(_LAST))
    with tempfile.TemporaryDirectory() as folder:
        # As JupyterLab saves it: what holds the state of widgets is exported as widgets, which need a network.
        settings = {"store_widget_state": False, "allow_errors": True, "timeout": 600}
        where = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, kernel_name="python3", resources=where, **settings)
        begun = time.monotonic()
        client.execute()
        seconds = time.monotonic() - begun
    last = notebook.cells.pop()
    values = json.loads(last.outputs[-1]["text"])
    return Executed(notebook, values, values.pop("peak_gb"), seconds)

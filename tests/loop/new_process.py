"""New processes, in which nothing has happened yet: forked from an interpreter that has imported everything.

Importing torch and gradviz takes seconds, which is paid once for several tests. That interpreter has trained nothing,
so its forks miss no thread of torch's.
"""

from __future__ import annotations

import json
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Callable, Collection
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.loop.all_imported", "tests.loop.scenes"])


def begun(function: Callable[..., Any], *arguments: Any) -> BaseProcess:
    """A new process that calls a function, which has to be importable by its name."""
    process = _SERVER.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def result_of(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, or raises, in a new process."""
    with ProcessPoolExecutor(1, mp_context=_SERVER) as pool:
        return pickle.loads(pool.submit(_pickled, function, *arguments).result())


def _pickled(function: Callable[..., Any], *arguments: Any) -> bytes:
    # Plain bytes: tensors would travel in shared memory, which ends with the process.
    return pickle.dumps(function(*arguments))


_RUNNER = """
import json, os, sys
import tests.loop.all_imported
programs, said, codes = sys.argv[1:-1], sys.argv[-1], []
for place, program in enumerate(programs):
    if not os.fork():
        for descriptor, stream in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{said}/{place}.{stream}", os.O_WRONLY | os.O_CREAT), descriptor)
        exec(program, {"__name__": "__main__"})
        sys.exit()
    codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
print(json.dumps(codes))
"""


def ended(programs: Collection[str], folder: Path) -> list[subprocess.CompletedProcess[str]]:
    """How programs ended, that each ran from its first line to the end of its interpreter; `folder` is an empty one.

    A process of `multiprocessing` leaves out that end: what is registered with atexit, and threads that are waited for.
    """
    command = [sys.executable, "-c", _RUNNER, *programs, str(folder)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    codes = json.loads(done.stdout)
    return [
        subprocess.CompletedProcess(
            program, code, *((folder / f"{place}.{stream}").read_text() for stream in ("out", "err"))
        )
        for place, (program, code) in enumerate(zip(programs, codes, strict=True))
    ]

"""Asking a running kernel for values, past the notebook: no cell, no prompt and no output shows it."""

from __future__ import annotations

import ast
import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jupyter_client.blocking.client import BlockingKernelClient

from .deadline import PATIENCE_S


class KernelError(AssertionError):
    """The kernel raised while it evaluated a test's question."""


def evaluate(connection_file: Path, expression: str, setup: str = "", timeout_s: float = PATIENCE_S) -> Any:
    """The value of `expression` in the kernel, as JSON carries it (NaN too), after the statements of `setup`.

    The kernel answers when it is idle, so a busy one is waited for.
    """
    client = BlockingKernelClient(connection_file=str(connection_file))
    client.load_connection_file()
    client.start_channels(iopub=False, stdin=False, hb=False, control=False)
    try:
        reply = client.execute(
            setup,
            silent=True,
            allow_stdin=False,
            store_history=False,
            user_expressions={"answer": f"__import__('json').dumps({expression})"},
            reply=True,
            timeout=timeout_s,
        )
    finally:
        client.stop_channels()
    content = reply["content"]
    answer = content if content["status"] != "ok" else content["user_expressions"]["answer"]
    if answer["status"] != "ok":
        raise KernelError(f"{expression}: {answer.get('ename')}: {answer.get('evalue')}")
    return json.loads(ast.literal_eval(answer["data"]["text/plain"]))


def frame(connection_file: Path, expression: str) -> pd.DataFrame:
    """A wide numeric pandas frame of the kernel (index: iteration), its values as float64."""
    parts = evaluate(
        connection_file,
        "(lambda f: [f.index.tolist(), [str(c) for c in f.columns],"
        " __import__('base64').b64encode(f.to_numpy('float64').tobytes()).decode()])(" + expression + ")",
    )
    index, columns, values = parts
    cells = np.frombuffer(base64.b64decode(values)).reshape(len(index), len(columns))
    return pd.DataFrame(cells, index=pd.Index(index, name="iteration"), columns=columns)

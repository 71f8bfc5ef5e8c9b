"""A run as one file: its pictures with all their numbers, which any browser shows, far from Python and the network."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

from gradviz.errors import HistoryError, described, names_nearest_keyword, nearest
from gradviz.history.activations import activations_of
from gradviz.history.compare import Comparison
from gradviz.history.history import History
from gradviz.history.run.folder import open_folder
from gradviz.history.run.manifest import Manifest
from gradviz.widgets.dtype_table import DtypeTable
from gradviz.widgets.embedded import Embedding
from gradviz.widgets.frozen_mask import FrozenMask
from gradviz.widgets.heatmap import Heatmap
from gradviz.widgets.inspector import Inspector
from gradviz.widgets.live import Live, built, instead, lent
from gradviz.widgets.panel import Panel
from gradviz.widgets.static_view import headline

IfExists = Literal["error", "overwrite"]

_KINDS: dict[type[Live], tuple[str, str]] = {
    Panel: ("How the run stands", "top"),
    Heatmap: ("Heatmap", "tab"),
    FrozenMask: ("Frozen mask", "tab"),
    DtypeTable: ("Dtypes", "tab"),
    Inspector: ("Inspector", "side"),
}
"""What a page of a run has: what each is called there, and where it stands."""


@names_nearest_keyword
def save_html(
    x: Any, path: str | os.PathLike[str], *, if_exists: IfExists = "error", statistics: Sequence[str] | None = None
) -> Path:
    """Save a run's dashboard, or one widget, as a page: one file that needs no kernel, no Python and no network.

    The page does what the widgets do in a notebook, but for what asks the run to do something: it is zoomed, sorted,
    filtered, and tells each number. Zero, unused, frozen, NaN and infinities are always exact. Norms and statistics are
    exact where there is room for them, and otherwise within 0.3 % of what they are, which the page marks by "≈"; of a
    long run neighbouring iterations may be one column, of which it tells the largest and the smallest.

    Parameters
    ----------
    x : Loop, Watch, History, Comparison, or a widget of gradviz
        Of a widget the page has that one alone. A run under way is saved as it is now.
    path : path
        Of the file, such as ``"run.html"``.
    if_exists : "error" or "overwrite"
        What to do with a file that is there already.
    statistics : sequence of str, optional
        What the heatmap offers, of ``("norm", "rms", "max_abs", "mean", "zero_fraction", "update_ratio")``: all that
        the run has, if not given. ``("norm",)`` makes the smallest page: 3 MB at most for 200 parameters and 10,000
        iterations, and up to 2.5 MB more for each other one.

    Returns
    -------
    Path
        Of the file.

    Raises
    ------
    TypeError
        If `x` has no history.
    HistoryError
        If the file is there already, cannot be written, or there is no such statistic.

    Examples
    --------
    >>> import tempfile, gradviz as gv
    >>> history = gv.History()
    >>> path = gv.save_html(history, tempfile.mkdtemp() + "/run.html")
    >>> path.name, "https://" in path.read_text()
    ('run.html', False)
    """
    target = _target(path, if_exists)
    text = page_of(x, statistics=statistics)
    unfinished = target.with_name(f".gradviz-{os.getpid()}-{threading.get_ident()}")
    try:
        # Whole or not at all: somebody may be looking at the file that was there.
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, target)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise HistoryError(f"{target} cannot be written: {error.strerror or error}.") from error
    return target


def page_of(x: Any, *, statistics: Sequence[str] | None = None) -> str:
    """The page as text; see `save_html`."""
    history, shown = _shown(x)
    embedding = Embedding(_statistics(history, statistics))
    parts = []
    for label, place, kind, of in shown:
        with lent(kind, of) as widget:
            parts.append({"label": label, "place": place, **embedding.embed(widget)})
    blobs = "".join(
        f'<script type="text/plain" id="gv-blob-{place}">{base64.b64encode(data).decode()}</script>\n'
        for data, place in embedding.blobs.items()
    )
    title = _title(history)
    has_panel = any(part["place"] == "top" for part in parts)  # which says how the run stands
    said = [*([] if has_panel else headline(history)), " · ".join(_when(history))]
    lines = "".join(f"<p>{escape(line)}</p>" for line in said)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{built("page.css")}</style>
</head>
<body>
<header class="gv-page-head"><div><h1>{escape(title)}</h1>{lines}</div></header>
<main class="gv-page"><noscript>This page draws itself, and needs JavaScript for it.</noscript></main>
<script type="application/json" id="gv-parts">{_json(parts)}</script>
{blobs}<script type="module">{built("page.js")}</script>
</body>
</html>
"""


def _json(value: Any) -> str:
    """JSON that ends no script: none of the letters that HTML looks at are in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


# What is asked for ------------------------------------------------------------------------------------------------

Part = tuple[str, str, type[Live], History]
"""A label, a place, and a widget's kind and history."""


def _shown(x: Any) -> tuple[History, list[Part]]:
    """What a page is of, and what it has."""
    if isinstance(x, Live):
        kind = next((kind for kind in _KINDS if isinstance(x, kind)), type(x))
        return x.history, [(kind.__name__, "tab", kind, x.history)]
    if isinstance(x, Comparison):
        ratios = x.ratios()
        return ratios, [("Heatmap", "tab", Heatmap, ratios)]
    history = getattr(x, "history", x)
    if not isinstance(history, History):
        raise TypeError(
            "save_html() saves a loop, a watch, a history, a comparison or a widget; got "
            + instead(x, 'gv.save_html({}, "run.html")')
        )
    parts: list[Part] = [(label, place, kind, history) for kind, (label, place) in _KINDS.items()]
    with suppress(HistoryError):  # where nothing was captured
        parts.append(("Activations", "tab", Heatmap, activations_of(history)))
    return history, parts


def _statistics(history: History, wanted: Sequence[str] | None) -> Sequence[str]:
    if wanted is None:
        return history.measures
    if isinstance(wanted, str):
        raise TypeError(f"statistics is a list of names; write statistics=({wanted!r},).")
    if not isinstance(wanted, Iterable):
        raise TypeError(f'statistics is a list of names, such as ("norm", "rms"); got {described(wanted)}.')
    wanted = list(wanted)
    for name in wanted:
        if name not in history.measures:
            raise HistoryError(f"This run has no statistic {name!r}: {nearest(str(name), history.measures)}")
    return wanted


def _target(path: str | os.PathLike[str], if_exists: str) -> Path:
    if if_exists not in get_args(IfExists):
        raise HistoryError(f'if_exists is "error" or "overwrite"; got {if_exists!r}.')
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f'path is that of a file, such as "run.html"; got {described(path)}.')
    target = Path(path)
    try:
        target.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # a name that no file can have
        raise HistoryError(f"{str(target)!r} names no file: {getattr(error, 'strerror', None) or error}.") from error
    if target.is_dir():
        raise HistoryError(f"{target} is a folder. Name a file in it: gv.save_html(x, {str(target / 'run.html')!r}).")
    if not target.parent.is_dir():
        raise HistoryError(f"There is no folder {target.parent} to put {target.name} into.")
    if target.exists() and if_exists == "error":
        raise HistoryError(f'{target} is there already. To replace it: if_exists="overwrite".')
    return target


# What is said of it -----------------------------------------------------------------------------------------------


def _title(history: History) -> str:
    if history.quantity.runs:
        return " ÷ ".join(history.quantity.runs)
    return "A run" if history.address is None else Path(history.address).name


def _when(history: History) -> Iterator[str]:
    if history.address is not None:
        try:
            manifest = Manifest.read(open_folder(history.address))
        except (HistoryError, OSError):
            pass
        else:
            yield f"recorded {_minute(manifest.began)}" + (f" to {_minute(manifest.ended)}" if manifest.ended else "")
    yield f"page made {_minute(datetime.now(UTC).isoformat())}"
    yield f"gradviz {version('gradviz-jupyter')}"


def _minute(time: str) -> str:
    """An ISO time to the minute, as in Greenwich."""
    return f"{datetime.fromisoformat(time).astimezone(UTC):%Y-%m-%d %H:%M} UTC"

"""A run that is over, for good: a still picture and words, which any viewer of notebooks shows without a kernel.

The words are plain HTML and follow the page. The picture is two PNG files of one drawing: a light one, and a dark one
with holes where the colours are, which a style sheet lays over it on a dark page. Where style sheets are not
allowed, as in a notebook that is not trusted, the light one stays, on its own ground.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from gradviz.history.history import History
from gradviz.history.overview import (
    FROZEN,
    NAN,
    NEGINF,
    NOT_OPTIMIZED,
    NOT_RECORDED,
    POSINF,
    UNUSED,
    ZERO,
    Columns,
)
from gradviz.history.progress import Progress
from gradviz.widgets.colours import scale_of
from gradviz.widgets.picture.inks import DARK, LIGHT, png
from gradviz.widgets.picture.picture import WIDTH, draw
from gradviz.widgets.picture.words import count, glance, iterations, many

LIMIT_BYTES = 300_000
"""Of the whole output, in characters of the notebook's file."""

NARROWEST = 600
"""CSS pixels: on a narrower page the picture is scrolled, or nobody could read its text."""

NAMED = 3
"""Parameters that are named before the rest are only counted."""
LONGEST = 80
"""Letters of a name or a message that are shown."""

_DARK = (
    ':is(body[data-jp-theme-light="false"], body.vscode-dark,'
    " body.vscode-high-contrast:not(.vscode-high-contrast-light),"
    ' html[theme="dark"], html[data-theme="dark"], html.dark, body.dark) .gv-static'
)
# The edge of the light picture would shine through the smoothed edge of the dark one.
_STYLE = f"""
.gv-static .gv-dark {{ display: none }}
{_DARK} .gv-dark {{ display: block; width: 100%; height: 100%; max-width: none; margin: 0 }}
{_DARK} .gv-light {{ clip-path: inset(2px) }}
"""


_FITS = f"display: block; width: 100%; min-width: {NARROWEST}px; max-width: {WIDTH}px; margin: 0"


def static_bundle(history: History, code: str, *, limit: int = LIMIT_BYTES, has_picture: bool = True) -> dict[str, str]:
    """What takes the place of a live heatmap once a run is over: a mime bundle without a widget in it.

    Parameters
    ----------
    history : History
    code : str
        The line that shows the dashboard again.
    limit : int
        Of its size. A picture that is larger, also in coarse grain, is left out.
    has_picture : bool
        Whether there is one, or words alone.

    Returns
    -------
    dict of str to str
        "text/html" and "text/plain", at most `limit` together.
    """
    lines, findings, again = headline(history), list(_findings(history)), "The dashboard again: "
    plain = "\n".join([*lines, *findings, again + code])
    state, dot, numbers = escape(lines[0]).partition(" · ")
    above = "<br>".join([f"<strong>{state}</strong>{dot}{numbers}", *map(escape, lines[1:])])
    below = "<br>".join([*map(escape, findings), f"{again}<code>{escape(code)}</code>"])
    for pictures in _pictures(history) if has_picture else ():
        html = _html(above, below, pictures)
        if len(html) + len(plain) <= limit:
            return {"text/html": html, "text/plain": plain}
    return {"text/html": _html(above, below, ""), "text/plain": plain}


def _pictures(history: History) -> Iterator[str]:
    """The picture, in coarser and coarser grain; only noise needs a second try."""
    columns, _ = history.overview()
    alt, table = escape(summary(history)), scale_of(history.quantity).table
    for grain in (1, 2, 4, 8, 16):
        of_run = history.described, history.epoch_starts
        index = draw(columns, *of_run, grain, history.quantity, history.progress.loss)
        yield _both(alt, png(index, LIGHT, table), png(index, DARK, table, cut_colours=True))


def _both(alt: str, light: bytes, dark: bytes) -> str:
    """The light picture with the dark one over it."""
    # Without the style sheet the dark one has no size.
    hidden = 'alt="" aria-hidden="true" width="0" height="0" style="position: absolute; top: 0; left: 0"'
    pictures = (
        f'<img class="gv-light" alt="{alt}" width="{WIDTH}" style="{_FITS}" src="{_data(light)}">'
        f'<img class="gv-dark" {hidden} src="{_data(dark)}">'
    )
    return f'<div style="{_FITS}; position: relative; overflow: hidden; border-radius: 6px">{pictures}</div>'


def _html(above: str, below: str, pictures: str) -> str:
    """Pictures between words, all of which are HTML already."""
    return (
        f"<style>{_STYLE}</style>"
        '<figure class="gv-static" style="margin: 8px 4px; overflow-x: auto">'
        f'<figcaption style="margin: 0 0 8px">{above}</figcaption>'
        f"{pictures}"
        f'<div style="margin: 8px 0 0">{below}</div>'
        "</figure>"
    )


def _data(image: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(image).decode()}"


# Words -----------------------------------------------------------------------------------------------------------

_WORDS = {
    "idle": "Waiting",
    "training": "Training",
    "paused": "Paused",
    "completed": "Completed",
    "interrupted": "Interrupted",
    "halted": "Halted",
    "failed": "Failed",
}
_NONFINITE = {NAN: "NaN", POSINF: "+inf", NEGINF: "−inf"}
_ABSENT = {
    ZERO: "Zero",
    UNUSED: "Unused",
    FROZEN: "Frozen",
    NOT_OPTIMIZED: "Not in the optimizer",
    NOT_RECORDED: "Not recorded",
}


def headline(history: History) -> list[str]:
    """How the run stands, and what ended it; or which runs are compared."""
    progress, quantity = history.progress, history.quantity
    if quantity.runs:
        numbers = f"{' ÷ '.join(map(_short, quantity.runs))} · gradient norms · {many(len(history), 'iteration')}"
    else:
        numbers = " · ".join(_numbers(progress))
    return [numbers, _short(progress.message)] if progress.message else [numbers]


def _numbers(progress: Progress) -> Iterator[str]:
    yield _WORDS.get(progress.status, progress.status)
    yield f"epoch {count(progress.epoch + 1)}" + ("" if progress.epochs is None else f" of {count(progress.epochs)}")
    planned = "" if progress.iterations is None else f" of {count(progress.iterations)}"
    yield f"iteration {count(progress.iteration)}{planned}"
    for name, value in progress.metrics.items():
        yield f"{'mean loss' if name == 'loss' else name} {glance(value)}"


def _findings(history: History) -> Iterator[str]:
    """A line for each kind of trouble, and for each reason why there is no number."""
    columns, _ = history.overview()
    if not len(columns):
        return
    where = history.quantity.where
    found_in = f"{where}," if where else " in"
    names = [_short(parameter["name"]) for parameter in history.described[: columns.rows - 1]]

    def found_of(found: int) -> str:
        return f"{count(found)} of {many(len(names), history.quantity.of)}"

    for flag, word in _NONFINITE.items():
        has = columns.flags & flag > 0
        first = np.where(has.any(axis=0), has.argmax(axis=0), len(columns)).tolist()
        if first[-1] < len(columns):
            yield f"{word} in the loss, first at {_at(columns, first[-1])}"
        if found := sum(place < len(columns) for place in first[:-1]):
            start = min(first[:-1])
            began = _some([name for name, place in zip(names, first[:-1], strict=True) if place == start])
            yield f"{word}{found_in} {found_of(found)}, first at {_at(columns, start)} in {began}"
    values = columns.maximum[:, :-1] > 0
    for flag, word in _ABSENT.items():
        has = columns.flags[:, :-1] & flag > 0
        # A column of many iterations has the flag if one of them had it: all had it if there is nothing else.
        whole = ((columns.flags[:, :-1] & ~np.uint8(NOT_OPTIMIZED) == flag) & ~values).all(axis=0)
        if flag == NOT_OPTIMIZED:  # which goes along with a value
            kinds = {"": has.any(axis=0)}
        else:
            kinds = {" all the time": whole, " at times": has.any(axis=0) & ~whole}
        for when, which in kinds.items():
            those = [names[row] for row in np.flatnonzero(which).tolist()]
            if those:
                yield f"{word}{where}{when}, {found_of(len(those))}: {_some(those)}"


def _at(columns: Columns, place: int) -> str:
    return iterations(int(columns.start[place]), int(columns.stop[place]))


def _some(found: Sequence[str]) -> str:
    more = f" and {count(len(found) - NAMED)} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 :]}"


def summary(history: History) -> str:
    """The picture in a sentence, for those who do not see it."""
    columns, seen = history.overview()
    title = f"Heatmap of the {history.quantity.title} of {many(len(history.described), history.quantity.of)}"
    if not seen:
        return f"{title}: no iteration recorded."
    return f"{title} over {many(seen, 'iteration')}, {_range(columns.minimum[:, :-1], columns.maximum[:, :-1])}."


def _range(minimum: NDArray[np.float32], maximum: NDArray[np.float32]) -> str:
    values = np.concatenate((minimum[minimum > 0], maximum[maximum > 0]))
    if not values.size:
        return "none of them above 0"
    ends = glance(float(values.min())), glance(float(values.max()))
    return f"from {ends[0]} to {ends[1]}"

"""What the numbers of a history are: what a picture of them calls them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quantity:
    """What a cell's number is.

    Attributes
    ----------
    label : str
        Beside the colour bar.
    title : str
        Of all of them, in a sentence.
    noun : str
        Before a number.
    runs : (str, str) or None
        Of a ratio, the run that is divided and the one that it is divided by.
    where : str
        Behind a mark's word, where there is more than one run that it may have been seen in.
    of : str
        What has such a number: one row of the picture.
    none : str or None
        What is said where every iteration was recorded, and there is no row.
    rounded : bool
        Whether numbers were rounded, so that no more than three digits of them are known.
    """

    label: str
    title: str
    noun: str
    runs: tuple[str, str] | None = None
    where: str = ""
    of: str = "parameter"
    none: str | None = None
    rounded: bool = False


NORM = Quantity("gradient norm", "gradient norms", "norm")
CAPTURED = Quantity(
    "gradient norm of intermediate values",
    "gradient norms",
    "norm",
    of="intermediate value",
    none='nothing was captured: gv.trainer(..., capture=gv.Capture("encoder.*"))',
)


def ratio_of(run: str, reference: str) -> Quantity:
    """One run's gradient norm divided by another's.

    >>> ratio_of("b", "a").title, ratio_of("b", "a").where
    ('ratios of gradient norms (b ÷ a)', ' in a or b')
    """
    pair = f"{run} ÷ {reference}"
    return Quantity(
        label=f"gradient norm, {pair}",
        title=f"ratios of gradient norms ({pair})",
        noun="ratio",
        runs=(run, reference),
        where=f" in {reference} or {run}",
    )

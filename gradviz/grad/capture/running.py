"""Mean and second moment of a gradient over many steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Running:
    """Moments over the examples of all steps so far, entry by entry.

    Attributes
    ----------
    mean : Tensor
        Of the shape of one example, in float64 (float32 on a device without it), complex where the gradients are.
    second_moment : Tensor
        The mean of the squared magnitudes.
    count : int
        Examples that are in it.
    left_out : int
        Examples with a gradient that was not finite, or of another shape than the first; none is in the moments.

    Examples
    --------
    >>> first, second = (Running.of(torch.tensor(g), 0) for g in ([1.0, 3.0], [5.0, float("nan")]))
    >>> both = first.merged(second)
    >>> both.mean.item(), both.count, both.left_out
    (3.0, 3, 1)
    >>> round(both.second_moment.item(), 4)
    11.6667
    """

    mean: Tensor
    second_moment: Tensor
    count: int
    left_out: int

    @classmethod
    def of(cls, gradient: Tensor, batch_dim: int) -> Running:
        """Those of one gradient."""
        narrow = torch.float32 if gradient.device.type == "mps" else torch.float64
        wide = gradient.detach().to(narrow.to_complex() if gradient.is_complex() else narrow)
        wide = wide.movedim(batch_dim, 0) if wide.ndim else wide.unsqueeze(0)
        is_finite = (
            wide.isfinite().reshape(len(wide), -1).all(1)
            if wide.numel()
            else wide.new_ones(len(wide), dtype=torch.bool)
        )
        count = int(is_finite.sum())
        left_out = len(wide) - count
        kept = wide if not left_out else wide[is_finite]
        if not count:
            nothing = torch.full(wide.shape[1:], torch.nan, dtype=wide.dtype, device=wide.device)
            return cls(nothing, nothing.real, 0, left_out)
        return cls(kept.mean(0), kept.abs().square().mean(0), count, left_out)

    def scaled(self, by: float) -> Running:
        """Those of gradients that are so many times as large."""
        return Running(self.mean * by, self.second_moment * by * by, self.count, self.left_out)

    def merged(self, more: Running) -> Running:
        """Those of both."""
        left_out = self.left_out + more.left_out
        if not self.count:
            return Running(more.mean, more.second_moment, more.count, left_out)
        if self.mean.shape != more.mean.shape:
            return Running(self.mean, self.second_moment, self.count, left_out + more.count)
        if not more.count:
            return Running(self.mean, self.second_moment, self.count, left_out)
        count = self.count + more.count
        share = more.count / count
        return Running(
            self.mean + (more.mean - self.mean) * share,
            self.second_moment + (more.second_moment - self.second_moment) * share,
            count,
            left_out,
        )

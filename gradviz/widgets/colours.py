"""From a number to a colour (`js/src/data/colour.ts`): 256 steps between two powers of ten, or of two.

Norms are drawn in viridis (Stéfan van der Walt and Nathaniel Smith, CC0), which is perceptually even and readable
without hue. Ratios are drawn in blue below 1 and orange above, which nearly all eyes tell apart. The tables are sent
to the browser by the widget, so the live picture and every static one take their colours from here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradviz.history.quantity import Quantity

VIRIDIS: bytes = bytes.fromhex(
    "44015444025645045745055946075a46085c460a5d460b5e470d60470e61471063471164471365481467481668481769"
    "48186a481a6c481b6d481c6e481d6f481f70482071482173482374482475482576482677482878482979472a7a472c7a"
    "472d7b472e7c472f7d46307e46327e46337f463480453581453781453882443983443a83443b84433d84433e85423f85"
    "4240864241864142874144874045884046883f47883f48893e49893e4a893e4c8a3d4d8a3d4e8a3c4f8a3c508b3b518b"
    "3b528b3a538b3a548c39558c39568c38588c38598c375a8c375b8d365c8d365d8d355e8d355f8d34608d34618d33628d"
    "33638d32648e32658e31668e31678e31688e30698e306a8e2f6b8e2f6c8e2e6d8e2e6e8e2e6f8e2d708e2d718e2c718e"
    "2c728e2c738e2b748e2b758e2a768e2a778e2a788e29798e297a8e297b8e287c8e287d8e277e8e277f8e27808e26818e"
    "26828e26828e25838e25848e25858e24868e24878e23888e23898e238a8d228b8d228c8d228d8d218e8d218f8d21908d"
    "21918c20928c20928c20938c1f948c1f958b1f968b1f978b1f988b1f998a1f9a8a1e9b8a1e9c891e9d891f9e891f9f88"
    "1fa0881fa1881fa1871fa28720a38620a48621a58521a68522a78522a88423a98324aa8325ab8225ac8226ad8127ad81"
    "28ae8029af7f2ab07f2cb17e2db27d2eb37c2fb47c31b57b32b67a34b67935b77937b87838b9773aba763bbb753dbc74"
    "3fbc7340bd7242be7144bf7046c06f48c16e4ac16d4cc26c4ec36b50c46a52c56954c56856c66758c7655ac8645cc863"
    "5ec96260ca6063cb5f65cb5e67cc5c69cd5b6ccd5a6ece5870cf5773d05675d05477d1537ad1517cd2507fd34e81d34d"
    "84d44b86d54989d5488bd6468ed64590d74393d74195d84098d83e9bd93c9dd93ba0da39a2da37a5db36a8db34aadc32"
    "addc30b0dd2fb2dd2db5de2bb8de29bade28bddf26c0df25c2df23c5e021c8e020cae11fcde11dd0e11cd2e21bd5e21a"
    "d8e219dae319dde318dfe318e2e418e5e419e7e419eae51aece51befe51cf1e51df4e61ef6e620f8e621fbe723fde725"
)
"""RGB triples, one byte a channel: 768 bytes."""

BLUE_ORANGE: bytes = bytes.fromhex(
    "124090134291144393154594164796174897184a99194c9a1a4e9c1b4f9d1c519f1d53a01e54a21f56a32058a5225aa6"
    "235ba8245da9255fab2661ac2762ae2864af2966b12a67b22c69b42d6bb52e6db72f6eb83070ba3172bb3274bd3475be"
    "3577c03679c1377bc3387cc43a7ec63b80c73c82c93d83ca3e85cc4087cd4189cf438acf458bd0478cd0498dd04b8ed1"
    "4d90d14f91d25092d25293d25494d35695d35896d35a97d45c98d45e9ad55f9bd5619cd5639dd6659ed6679fd668a0d7"
    "6aa1d76ca2d76ea3d870a5d871a6d873a7d975a8d977a9da78aada7aabda7cacdb7eaddb80aedb81afdc83b1dc85b2dc"
    "87b3dc88b4dd8ab5dd8cb6dd8eb7de8fb8de91b9de92b9dd93b9dd95badc96badc98bbdc99bbdb9abcdb9cbcda9dbdda"
    "9fbddaa0bdd9a1bed9a3bed8a4bfd8a6bfd8a7c0d7a8c0d7aac0d6abc1d6acc1d6aec2d5afc2d5b0c3d4b2c3d4b3c3d3"
    "b4c4d3b6c4d3b7c5d2b8c5d2bac5d1bbc6d1bcc6d0bec7d0bfc7cfc0c7cfc2c8cfc3c8cec4c9cec6c9cdc7c9cdc8cacc"
    "cacacbcac9cacbc9c8ccc9c6cdc8c5cec8c3cfc8c2d0c7c0d1c7bed2c7bdd3c6bbd4c6b9d5c6b8d6c5b6d7c5b4d8c4b3"
    "d9c4b1dac4afdbc3aedcc3acddc3aaddc2a9dec2a7dfc1a5e0c1a3e1c1a2e2c0a0e3c09ee4bf9ce5bf9be6be99e6be97"
    "e7be95e8bd93e9bd91eabc90ebbc8eecbb8cecbb8aedba88eeba86efba84f0b982f0b881efb77fefb67defb57befb37a"
    "eeb278eeb176eeb074edaf73edad71edac6fedab6decaa6beca96aeca868eba666eba564eba462eaa361eaa25feaa05d"
    "e99f5be99e59e99d57e89c55e89a53e89951e7984fe7974de7964be69449e69347e69245e59143e59040e58e3ee48d3c"
    "e48c39e38b37e38935e38832e2872fe2862de0842cdf832bde812adc7f29db7e28da7c27d87b26d77925d67725d47624"
    "d37423d17322d07121cf6f20cd6e1fcc6c1ecb6b1dc9691cc8681bc7661ac56419c46318c36117c16016c05e15be5c14"
    "bd5b13bc5911ba5810b9560fb8540eb6530db5510bb4500ab24e09b14d07af4b06ae4905ad4804ab4603aa4402a94301"
)
"""RGB triples as well: even steps in OKLab between #123f8f #4189cf #8fb8de #c9cacc #f0b982 #e2862d #a84200. The grey in
the middle is darker than a white page and brighter than a black one, so that "as large" does not look like nothing."""


@dataclass(frozen=True)
class Scale:
    """How numbers of a kind become colours.

    Attributes
    ----------
    table : bytes
        256 RGB triples.
    base : int
        The ends are powers of it.
    narrowest, widest : int
        So many powers at least, or noise would look like news, and at most, or nothing would differ.
    centred : bool
        Whether 1 is in the middle, where so many powers are on either side.
    """

    table: bytes
    base: int
    narrowest: int
    widest: int
    centred: bool

    @property
    def which(self) -> str:
        """Which of the numbers that a cell stands for it shows, in a word or three."""
        return "furthest from 1" if self.centred else "max"

    def shown(self, maximum: NDArray[np.float32], minimum: NDArray[np.float32]) -> NDArray[np.float32]:
        """Of what a cell stands for, the number that it shows: the largest norm, or the ratio that is furthest from 1.

        >>> RATIOS.shown(np.float32([3, 2, 4]), np.float32([0.5, 0.25, 0])).tolist()
        [3.0, 0.25, 4.0]
        """
        if not self.centred:
            return maximum
        is_below = (minimum > 0) & (maximum.astype(np.float64) * minimum < 1)
        return np.where(is_below, minimum, maximum)


NORMS = Scale(VIRIDIS, 10, 3, 12, centred=False)
RATIOS = Scale(BLUE_ORANGE, 2, 2, 10, centred=True)


def scale_of(quantity: Quantity) -> Scale:
    """The scale that a quantity is drawn on."""
    return RATIOS if quantity.runs else NORMS


class Domain(NamedTuple):
    """Ends of the colour bar, as exponents of a base."""

    lo: int
    hi: int
    base: int = 10


def domain_of(maximum: NDArray[np.float32], minimum: NDArray[np.float32], scale: Scale = NORMS) -> Domain | None:
    """The domain of all values above 0: a function of the largest and the smallest, so a run always looks the same.

    >>> domain_of(np.float32([20, 0.7]), np.float32([3, 0.5]))
    Domain(lo=-1, hi=2, base=10)
    >>> domain_of(np.float32([9, 0.7]), np.float32([3, 0.5]), RATIOS)
    Domain(lo=-4, hi=4, base=2)
    """
    values = np.concatenate((np.ravel(maximum), np.ravel(minimum)))
    values = values[values > 0]
    if not values.size:
        return None
    log = _LOG[scale.base]
    hi, lo = math.ceil(log(values.max())), math.floor(log(values.min()))
    if scale.centred:
        reach = min(max(hi, -lo, scale.narrowest), scale.widest)
        return Domain(-reach, reach, scale.base)
    return Domain(min(max(lo, hi - scale.widest), hi - scale.narrowest), hi, scale.base)


def colour_index(values: NDArray[np.float32], domain: Domain) -> NDArray[np.uint8]:
    """The place in the table of every value above 0."""
    share = (_LOG[domain.base](values.astype(np.float64)) - domain.lo) / (domain.hi - domain.lo)
    return np.clip(np.floor(share * 256), 0, 255).astype(np.uint8)


_LOG = {2: np.log2, 10: np.log10}

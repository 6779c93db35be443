"""The sizes of a convolution, with three spatial dimensions whatever it has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

Three = tuple[int, int, int]


class Shape(NamedTuple):
    """A convolution: x (images, channels, *size) to y (images, filters, *counts).

    >>> from weft.compile.targets.cpu.convolution.shape import shape_of
    >>> shape = shape_of((2, 3, 8), (4, 3, 3), (2,), ((1, 1),), (1,), 1)
    >>> shape.size, shape.kernel, shape.counts
    ((1, 1, 8), (1, 1, 3), (1, 1, 4))
    """

    images: int
    channels: int
    filters: int
    groups: int
    size: Three
    kernel: Three
    stride: Three
    low: Three  # zeros in front
    dilation: Three
    counts: Three

    @property
    def plane(self) -> int:
        """Elements of a channel of x."""
        return math.prod(self.size)

    @property
    def pixels(self) -> int:
        """Elements of a channel of y."""
        return math.prod(self.counts)

    @property
    def taps(self) -> int:
        """Elements of a kernel."""
        return math.prod(self.kernel)

    @property
    def group_channels(self) -> int:
        """Channels of x in a group."""
        return self.channels // self.groups

    @property
    def group_filters(self) -> int:
        """Channels of y in a group."""
        return self.filters // self.groups

    @property
    def pointwise(self) -> bool:
        """Whether each element of y comes from that element of x alone."""
        one = self.stride == (1, 1, 1) and self.low == (0, 0, 0)
        return one and self.taps == 1 and self.size == self.counts

    @property
    def square(self) -> int:
        """The side of a kernel slid over planes, one element at a time; else 0."""
        unit = self.stride == self.dilation == (1, 1, 1)
        flat = self.size[0] == self.counts[0] == 1 and self.low[0] == 0
        deep, high, wide = self.kernel
        return wide if unit and flat and deep == 1 and high == wide else 0


def shape_of(
    x: Sequence[int],
    w: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[Sequence[int]],
    dilation: Sequence[int],
    groups: int,
) -> Shape:
    """The convolution of an x and weights of these shapes."""
    size, kernel = _three(x[2:], 1), _three(w[2:], 1)
    steps, apart = _three(stride, 1), _three(dilation, 1)
    low = _three([p[0] for p in padding], 0)
    high = _three([p[1] for p in padding], 0)
    spans = zip(size, kernel, steps, low, high, apart, strict=True)
    a, b, c = ((n + lo + hi - d * (k - 1) - 1) // s + 1 for n, k, s, lo, hi, d in spans)
    counts = a, b, c
    return Shape(x[0], x[1], w[0], groups, size, kernel, steps, low, apart, counts)


def _three(values: Sequence[int], fill: int) -> Three:
    a, b, c = [fill] * (3 - len(values)) + [int(v) for v in values]
    return a, b, c

"""Arrays that tasks look things up in, made once for a convolution's sizes.

places   (5, pixels + lanes)  a pixel of the result: where its window begins along
                              each axis of the image, how many lanes from it on
                              follow each other, and how many images further it is
taps     (taps, 3)            a tap's offset from the window's beginning
windows  (k, 2)               an element of a window: its offset, its row of masks
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from weft.compile.targets.cpu.convolution.shape import Shape, Three


class Axis(NamedTuple):
    """How a result's places along one axis read an image."""

    length: int  # places
    step: int  # between neighbours in the image
    start: int  # of the first
    taps: tuple[int, ...]  # offsets of taps from there
    numbers: tuple[int, ...]  # which elements of the kernel they are


class View(NamedTuple):
    """How an image is read for a result: three axes, and the image's sizes."""

    axes: tuple[Axis, ...]
    size: Three

    @property
    def pixels(self) -> int:
        """Places of the result."""
        return math.prod(axis.length for axis in self.axes)

    @property
    def step(self) -> int:
        """Elements from one place to the next in a row."""
        last = self.axes[-1]
        return last.step if last.length > 1 else 1

    @property
    def taps(self) -> int:
        """Elements of the kernel that are used."""
        return math.prod(len(axis.taps) for axis in self.axes)

    @property
    def tap_offsets(self) -> np.ndarray:
        """(taps, 3): offsets of taps along each axis."""
        return _grid([np.array(axis.taps, np.int64) for axis in self.axes])

    def kernel_places(self, kernel: Three) -> np.ndarray:
        """(taps,): the places of the used elements in a kernel."""
        numbers = _grid([np.array(axis.numbers, np.int64) for axis in self.axes])
        return numbers @ _strides(kernel)

    def windows(self, channels: int, masks_row: int) -> np.ndarray:
        """The table of the windows of some channels."""
        offsets = self.tap_offsets @ _strides(self.size)
        planes = np.arange(channels) * math.prod(self.size)
        table = np.empty((channels, self.taps, 2), np.int64)
        table[..., 0] = planes[:, None] + offsets
        table[..., 1] = np.arange(self.taps) * masks_row
        return table.reshape(-1, 2)

    def places(self, image_step: int, lanes: int) -> np.ndarray:
        """The table of the pixels, continued into further images."""
        starts = [a.start + a.step * np.arange(a.length) for a in self.axes]
        pixels = _grid(starts)
        number = np.arange(len(pixels) + lanes)
        image, pixel = np.divmod(number, max(len(pixels), 1))
        offsets = pixels[pixel] @ _strides(self.size) + image * image_step
        ends = np.flatnonzero(np.diff(offsets) != self.step) + 1
        ends = np.append(ends, len(number) + lanes)
        left = ends[np.searchsorted(ends, number, side="right")] - number
        rows = [*pixels[pixel].T, np.minimum(left, lanes), image]
        return np.ascontiguousarray(rows, np.int32)


def forward_view(shape: Shape) -> View:
    """The view of x by y's pixels."""
    axes = [
        Axis(count, s, -lo, tuple(d * t for t in range(k)), tuple(range(k)))
        for count, s, lo, d, k in zip(
            shape.counts, shape.stride, shape.low, shape.dilation, shape.kernel,
            strict=True
        )
    ]  # fmt: skip
    return View(tuple(axes), shape.size)


def phase_view(shape: Shape, phase: Three) -> View:
    """How x's places that are ``phase`` beyond a multiple of the stride read y.

    Place ``s q + r`` has part in y's place ``q + (r + lo - t d) / s`` by each tap t for
    which that is whole.
    """
    axes = []
    for n, k, s, lo, d, r in zip(
        shape.size, shape.kernel, shape.stride, shape.low, shape.dilation, phase,
        strict=True
    ):  # fmt: skip
        numbers = tuple(t for t in range(k) if (r + lo - t * d) % s == 0)
        taps = tuple((r + lo - t * d) // s for t in numbers)
        axes.append(Axis(-((r - n) // s), 1, 0, taps, numbers))
    return View(tuple(axes), shape.counts)


def phase_spots(shape: Shape, phase: Three) -> np.ndarray:
    """The offsets in x of a phase's pixels."""
    starts = [
        np.arange(r, n, s)
        for r, n, s in zip(phase, shape.size, shape.stride, strict=True)
    ]
    return _grid(starts) @ _strides(shape.size)


def tile_views(shape: Shape) -> tuple[View, View]:
    """How tiles of 2x2 results read pixels of x, and their positions in y."""
    here, two, read_taps = (0,), (0, 1), tuple(range(shape.kernel[2] + 1))
    read, written = [Axis(1, 1, 0, here, here)], [Axis(1, 1, 0, here, here)]
    for count, low in zip(shape.counts[1:], shape.low[1:], strict=True):
        tiles = (count + 1) // 2
        read.append(Axis(tiles, 2, -low, read_taps, read_taps))
        written.append(Axis(tiles, 2, 0, two, two))
    return View(tuple(read), shape.size), View(tuple(written), shape.counts)


def _grid(axes: list[np.ndarray]) -> np.ndarray:
    """All combinations of three axes' numbers, the last the fastest."""
    grids = np.meshgrid(*axes, indexing="ij")
    return np.stack([grid.reshape(-1) for grid in grids], -1)


def _strides(size: Three) -> np.ndarray:
    return np.array([size[1] * size[2], size[2], 1])

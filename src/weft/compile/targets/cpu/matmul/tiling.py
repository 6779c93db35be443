"""Sizes of a matrix product's tiles and blocks for an instruction set."""

from __future__ import annotations

import functools
import pathlib
from typing import NamedTuple

from weft.compile.emit.isa import Isa
from weft.compile.targets.cpu.cost_model import COST

_COST = COST.matmul
_CACHE = pathlib.Path("/sys/devices/system/cpu/cpu0/cache/index2/size")


class Tiling(NamedTuple):
    """How a product is cut; lengths count elements.

    A register tile is ``height x width``; ``depth`` steps of k are summed at a time,
    over blocks of ``columns`` columns whose panels stay in the second cache.
    """

    lanes: int  # elements of a vector
    heights: tuple[int, ...]  # of register tiles, tallest first, then powers of two
    vectors: int  # side by side in a tile
    depth: int
    columns: int
    many: bool = True  # whether there are 32 vector registers, and not 16

    @property
    def height(self) -> int:
        """Rows of the tallest tile."""
        return self.heights[0]

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.vectors * self.lanes

    @property
    def together(self) -> int:
        """Rows of A that are packed at a time: those of one strip, or of some.

        Columns of A are read in lines, of which a low strip needs a small part.
        """
        return self.height * max(_COST.packed_rows // self.height, 1)

    @property
    def row_panel(self) -> int:
        """Elements of a packed panel of A."""
        return self.together * self.depth

    @property
    def workspace(self) -> int:
        """Elements of scratch memory that one thread needs."""
        slack = self.width * self.lanes  # transposing writes whole vectors
        return self.row_panel + self.depth * self.columns + slack + self.corrections

    @property
    def corrections(self) -> int:
        """Elements for a number for each row of A's panel, at the workspace's end."""
        return self.lanes * -(-self.together // self.lanes)


# Register tiles, by how many registers there are: heights, and vectors side by side.
# All but one, or all but a few, hold sums. The first is the best for large products;
# the others may suit few columns, or a number of them that the first one cuts badly.
SHAPES: dict[bool, tuple[tuple[tuple[int, ...], int], ...]] = {
    True: (((14, 8, 4, 2, 1), 2), ((6, 4, 2, 1), 4), ((28, 16, 8, 4, 2, 1), 1)),
    False: (((6, 4, 2, 1), 2), ((4, 4, 2, 1), 3), ((12, 8, 4, 2, 1), 1)),
}

WIDE = 1  # the one of them, where there are many registers, that reads A least often


def tiling(itemsize: int, isa: Isa, shape: int = 0) -> Tiling:
    """The tiling for elements of a size, with a register tile of ``SHAPES``.

    Results are the same for every shape.

    >>> from weft.compile.targets.cpu.object_code import host_isa
    >>> from weft.compile.targets.cpu.matmul.tiling import tiling
    >>> tile = tiling(4, host_isa("avx2"))
    >>> tile.height, tile.width, tile.depth
    (6, 16, 256)
    """
    lanes = isa.lanes(itemsize)
    many = has_many(isa)
    heights, vectors = SHAPES[many][shape]
    depth = _COST.depth // itemsize
    width = vectors * lanes
    columns = _second_cache() // 2 // (depth * itemsize) // width * width
    return Tiling(lanes, heights, vectors, depth, columns, many)


def has_many(isa: Isa) -> bool:
    """Whether there are 32 vector registers."""
    return isa.bits == 512 or not isa.triple.startswith(("x86", "i686"))


def has_masks(isa: Isa) -> bool:
    """Whether one instruction loads or stores some lanes of a vector."""
    return isa.triple.startswith(("x86", "i686")) and isa.bits >= 256


@functools.cache
def _second_cache() -> int:
    """Bytes of the second cache; results don't depend on it."""
    try:
        text = _CACHE.read_text().strip()
    except OSError:
        return COST.caches.second
    size = text.rstrip("KM")
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    if not size.isdigit():
        return COST.caches.second
    return max(int(size) * unit, COST.caches.least_second)

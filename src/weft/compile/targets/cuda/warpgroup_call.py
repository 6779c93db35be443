"""Half-precision products by warpgroups as launches: tensor maps and arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from weft.compile.targets.cuda.tensor_cores import CHUNK, NAMES
from weft.compile.targets.cuda.warpgroup_gemm import ROWS, THREADS, Form
from weft.runtime import argument_words

KEPT = 64  # sets of addresses whose arguments are kept


class Side(NamedTuple):
    """An operand of products: how it is stored, with distances in elements."""

    by_columns: bool
    pitch: int  # from one row (or column) to the next
    step: int  # from one matrix to the next; 0: all are one

    def fits(self) -> bool:
        """Whether copies may begin at every row of every matrix."""
        return not self.pitch % CHUNK and not self.step % CHUNK


class Sizes(NamedTuple):
    """The extents of products: C is m x n, and sums have k terms."""

    m: int
    n: int
    k: int
    matrices: int


class WarpgroupProduct:
    """The launch of products of some sizes, by one of the functions."""

    def __init__(
        self, dtype: str, sizes: Sizes, left: Side, right: Side, out_step: int,
        width: int,
    ) -> None:  # fmt: skip
        self.sizes, self.sides, self.out_step = sizes, (left, right), out_step
        self.form = Form(dtype, left.by_columns, right.by_columns, width)
        self._arguments: dict[Any, np.ndarray] = {}

    @property
    def name(self) -> str:
        """A short text for the choice among candidates."""
        return f"warpgroups, {ROWS} x {self.form.width}"

    def run(self, runtime: Any, shared: Any, where: tuple[int, ...]) -> None:
        """Put the launch into the queue; ``where`` are the addresses of A, B and C."""
        arguments = self._arguments.get(where)
        if arguments is None:
            if len(self._arguments) >= KEPT:
                self._arguments.clear()
            arguments = self._arguments[where] = self._described(runtime, where)
        form, sizes = self.form, self.sizes
        tiles = form.tiles(sizes.m, sizes.n, sizes.matrices)
        blocks = min(tiles, runtime.multiprocessors)
        function = shared.warpgroup_product(form)
        runtime.launch(function, blocks, THREADS, arguments, form.block_memory)

    def _described(self, runtime: Any, where: tuple[int, ...]) -> np.ndarray:
        m, n, k, count = self.sizes
        extents = (k, m), (n, k)  # of rows, and of columns
        maps = []
        for at, side, (inner, outer), box in zip(
            where, self.sides, extents, self.form.boxes(), strict=False
        ):
            if side.by_columns:
                inner, outer = outer, inner
            shape = inner, outer, count if side.step else 1
            strides = 2 * side.pitch, 2 * (side.step or side.pitch * outer)
            maps.append(
                runtime.tensor_map(at, self.form.dtype, shape, strides, (*box, 1))
            )
        steps = [int(side.step != 0) for side in self.sides]
        return argument_words(
            [*maps, where[2], m, n, k, count, n, self.out_step, *steps]
        )


def warpgroups_fit(
    dtype: str, sizes: Sizes, left: Side, right: Side, out_step: int
) -> bool:
    """Whether warpgroups can compute products, where arrays begin at 16 bytes."""
    return (
        dtype in NAMES and left.fits() and right.fits()
        and not sizes.n % CHUNK and not out_step % CHUNK
        and max(sizes) < 1 << 31
    )  # fmt: skip

"""The GPU's library: nodes that are computed as a whole."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.compile.emit import scalar
from weft.compile.program.steps import LibraryCall
from weft.compile.program.strided_views import batches, needs_copy, outline, view_of
from weft.compile.targets.cuda.attention_call import Attention
from weft.compile.targets.cuda.code import SharedCode
from weft.compile.targets.cuda.convolution_call import Convolution
from weft.compile.targets.cuda.cost_model import COST
from weft.compile.targets.cuda.gemm import THREADS, TILE
from weft.compile.targets.cuda.warpgroup_call import (
    Side,
    Sizes,
    WarpgroupProduct,
    warpgroups_fit,
)
from weft.config import config
from weft.dtype import DType
from weft.graph.interpret import resolve
from weft.graph.ir import Node
from weft.ops.products import matmul_op, wide_matmul_op
from weft.runtime import argument_words
from weft.runtime.cuda.cublas import KINDS

ALIGNMENT = 16  # bytes at which the copy engine may begin


@dataclass(frozen=True, eq=False)
class Product(LibraryCall):
    """A matrix product, whose operands are read through their strides."""

    @staticmethod
    def computes(node: Node) -> bool:
        if node.op is not matmul_op and node.op is not wide_matmul_op:
            return False
        inputs = [i for i in node.inputs if type(i) is Node]
        if len(inputs) != 2 or {len(i.shape) for i in inputs} != {len(node.shape)}:
            return False
        kinds = {i.dtype for i in inputs}
        return len(kinds) == 1 and all(map(scalar.has_dtype, (*kinds, node.dtype)))

    copies = staticmethod(needs_copy)

    @staticmethod
    def row_axes(node: Node) -> int | None:
        return None

    def work(self, sizes: Mapping[str, int], target: Any) -> ProductWork | None:
        views = [view_of(operand, sizes) for operand in self.operands]
        shape = resolve(self.node.shape, sizes)
        if any(view is None for view in views) or not math.prod(shape):
            return None
        return ProductWork(self, views, shape, target)


class Matrix:
    """One operand of products: its strides in elements, of rows and columns."""

    def __init__(self, array: np.ndarray, offset: int) -> None:
        self.offset = offset  # in bytes
        self.strides = [s // array.itemsize for s in array.strides]
        self.row, self.column = self.strides[-2:]

    def pitch(self, rows: int, columns: int) -> tuple[bool, int] | None:
        """Whether it is stored by columns, and the distance of neighbouring rows.

        None where neither rows nor columns are contiguous.
        """
        if (self.column == 1 or columns == 1) and (self.row >= columns or rows == 1):
            return False, max(self.row, columns)
        if (self.row == 1 or rows == 1) and (self.column >= rows or columns == 1):
            return True, max(self.column, rows)
        return None


class ProductWork:
    """The launches of a product for some sizes."""

    scratch = 0

    def __init__(
        self, call: Product, views: Sequence[Any], shape: Any, shared: SharedCode
    ) -> None:
        arrays = [array for array, _ in views]
        self.bases = [operand.base for operand in call.operands]
        self.node, self.shared = call.node, shared
        self.nodes = [*self.bases, call.node]
        self.operand: DType = self.bases[0].dtype
        starts = [array.ctypes.data - start.ctypes.data for array, start in views]
        out = outline(shape, call.node.dtype.np)
        self.left, self.right, self.out = (
            Matrix(array, start)
            for array, start in zip((*arrays, out), (*starts, 0), strict=True)
        )
        self.m, self.n = shape[-2:]
        self.k = arrays[0].shape[-1]
        matrices = self.left, self.right, self.out
        found = batches(shape[:-2], [one.strides for one in matrices], most=1)
        self.batches, (self.count,), (self.steps,) = found
        self.sides = self._sides()
        self.warpgroups = self._warpgroups()

    def _sides(self) -> tuple[Side, Side] | None:
        """The operands; None if neither rows nor columns of one are contiguous."""
        left = self.left.pitch(self.m, self.k)
        right = self.right.pitch(self.k, self.n)
        if left is None or right is None:
            return None
        return Side(*left, self.steps[0]), Side(*right, self.steps[1])

    def _warpgroups(self) -> list[WarpgroupProduct]:
        """The launches by warpgroups: with wide tiles, and narrow ones if few."""
        if self.shared.warpgroups is None or self.sides is None or not self.k:
            return []
        sizes = Sizes(self.m, self.n, self.k, self.count)
        left, right = self.sides
        name, out = self.operand.name, self.steps[2] or self.m * self.n
        if self.node.dtype is not self.operand:
            return []
        if not warpgroups_fit(name, sizes, left, right, out):
            return []
        made = [
            WarpgroupProduct(name, sizes, left, right, out, width)
            for width in COST.products.widths
        ]
        tiles = made[0].form.tiles(self.m, self.n, self.count)
        few = tiles < self.shared.pool.runtime.multiprocessors
        return made if few else made[:1]

    def run(self, runtime: Any, places: Any, addresses: Sequence[int]) -> None:
        """Put the launches into the queue."""
        if not self.k:
            at = addresses[places[self.node]]
            size = self.m * self.n * self.count * len(self.batches)
            runtime.clear(at, size * self.node.dtype.itemsize)
            return
        matrices = self.left, self.right, self.out
        items = self.operand.itemsize, self.operand.itemsize, self.node.dtype.itemsize
        starts = [
            addresses[places[node]] + one.offset
            for node, one in zip(self.nodes, matrices, strict=True)
        ]
        for offsets in self.batches:
            where = [
                start + offset * item
                for start, offset, item in zip(starts, offsets, items, strict=True)
            ]
            candidates = self._candidates(runtime, where)
            candidates[self._chosen(candidates)]()

    def _candidates(
        self, runtime: Any, where: Sequence[int]
    ) -> dict[str, Callable[[], None]]:
        """Functions that compute the product, by name; the first one is the default."""
        found: dict[str, Callable[[], None]] = {}
        if self._fits_cublas():
            found["cuBLAS"] = lambda: self._by_cublas(where)
        if not any(at % ALIGNMENT for at in where):
            for one in self.warpgroups:
                found[one.name] = functools.partial(
                    one.run, runtime, self.shared, tuple(where)
                )
        if not found:
            found["tiles"] = lambda: self._by_tiles(runtime, where)
        return found

    def _chosen(self, candidates: Mapping[str, Callable[[], None]]) -> str:
        work = self.m * self.n * self.k * self.count
        if work < COST.products.measured:
            return next(iter(candidates))
        kinds = self.operand.name, self.node.dtype.name, config.matmul_precision
        sizes = self.m, self.n, self.k, self.count
        key = f"{kinds} {sizes} {self.sides} {self.steps}"
        return self.shared.product_choices.of(key, candidates)

    def _fits_cublas(self) -> bool:
        names = self.operand.name, self.node.dtype.name
        if not all(name in KINDS for name in names) or self.shared.cublas is None:
            return False
        if names[0] == "float64" and names[1] != "float64":
            return False
        return self.sides is not None

    def _by_cublas(self, where: Sequence[int]) -> None:
        names = self.operand.name, self.node.dtype.name
        assert self.sides is not None
        assert self.shared.cublas is not None
        left, right = self.sides
        self.shared.cublas.product(
            *names, config.matmul_precision != "highest", (self.m, self.n, self.k),
            (where[0], *left), (where[1], *right),
            (where[2], self.n, self.steps[2] or self.m * self.n), self.count,
        )  # fmt: skip

    def _by_tiles(self, runtime: Any, where: Sequence[int]) -> None:
        function = self.shared.product(self.operand, self.node.dtype)
        left, right, out = self.left, self.right, self.out
        words = [
            *where, self.m, self.n, self.k, left.row, left.column, right.row,
            right.column, out.row, out.column, *self.steps,
        ]  # fmt: skip
        blocks = -(-self.m // TILE) * -(-self.n // TILE) * self.count
        runtime.launch(function, blocks, THREADS, argument_words(words))


class Works:
    """The work of library calls for some sizes."""

    workspace = 0  # cuBLAS's is the device's

    def __init__(
        self, calls: Sequence[LibraryCall], sizes: Mapping[str, int], target: Any
    ) -> None:
        found = {call: call.work(sizes, target) for call in calls}
        self.works = {call: work for call, work in found.items() if work is not None}


LIBRARY: tuple[type[LibraryCall], ...] = (Product, Attention, Convolution)


def library_call_of(node: Node, shared: SharedCode) -> type[LibraryCall] | None:
    """The library call that computes a node, if there is one."""
    found = next((kind for kind in LIBRARY if kind.computes(node)), None)
    return None if found is Convolution and shared.cudnn is None else found

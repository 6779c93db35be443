"""Matrix products as launches of the generated product kernels.

A product reads its operands through whatever views they are, as strides: a transposed
or sliced matrix needs no copy. A stack of matrices is one job if one stride leads from
matrix to matrix, else several.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.compile.fuse import Operand
from weft.compile.llvm.gemm.arrays import compiled, make_job
from weft.compile.llvm.gemm.tasks import JOB, split
from weft.compile.llvm.target import Target
from weft.core.lowering import Pointwise
from weft.core.op import Op
from weft.graph.interpret import resolve
from weft.graph.ir import Node
from weft.ops.products import matmul_op
from weft.ops.shaping import reshape_op
from weft.runtime import pool

MOST_JOBS = 256  # of one product: beyond that, its operands are not regular enough
_POINTERS = [JOB.index(f"*{name}") for name in "abc"]
_WORKSPACE = JOB.index("*workspace")


def is_product(node: Node) -> bool:
    """Whether a node is a product that the generated kernels compute."""
    if node.op is not matmul_op or node.dtype.name not in ("float32", "float64"):
        return False
    ranks = [len(i.shape) for i in node.inputs if type(i) is Node]
    return len(ranks) == 2 and ranks[0] == ranks[1] == len(node.shape) >= 2


# An operand in memory of its own, for one that strides cannot describe.
COPY = Op(
    "copy",
    inputs="x",
    eval=lambda x: x.copy(),
    type=lambda x: x,
    lower=Pointwise("conj"),  # of a real number: the number
)


def needs_copy(node: Node) -> bool:
    """Whether an operand may not be a strided view of its base."""
    moved = False
    for view in reversed(Operand(node).views):
        if view.op is reshape_op and moved:
            return True
        moved = moved or view.op is not reshape_op
    return False


def copied(node: Node) -> Node:
    """A node that is an operand's copy."""
    return Node(COPY, (node,), {}, node.type, f"{node.name}/copy", (), node.module,
                node.code, node.lasti)  # fmt: skip


class Product:
    """One product: its operands' bases, and its result."""

    def __init__(self, node: Node, inputs: list[Node]) -> None:
        self.node = node
        self.operands = [Operand(i) for i in inputs]
        self.owners = [*[o.base for o in self.operands], node]
        self.made = [node]


class Jobs:
    """The jobs of all products of an instance, and the addresses they need."""

    def __init__(
        self, products: list[Product], sizes: Mapping[str, int], target: Target
    ) -> None:
        self.sizes = sizes
        self.target = target
        self.rows: list[np.ndarray] = []
        self.patches: list[tuple[int, Node, int]] = []  # place, base, offset in bytes
        self.threads = pool.get_num_threads()
        self.spans = [self._add(product) for product in products]
        shape = (len(self.rows), len(JOB))
        self.table = np.array(self.rows, np.int64).reshape(shape)
        self._give_workspaces()

    def _add(self, product: Product) -> tuple[int, int, int]:
        """(first job, jobs, tasks of each) of a product; no jobs if it is irregular."""
        node = product.node
        shape = resolve(node.shape, self.sizes)
        out = np.empty(shape, node.dtype.np)
        views = [self._view(operand) for operand in product.operands]
        if any(view is None for view in views):
            return 0, 0, 0
        arrays = [view[0] for view in views] + [out]
        starts = [view[1] for view in views] + [out]
        outer = shape[:-3]
        if math.prod(outer) > MOST_JOBS or not out.size:
            return 0, 0, 0
        gemm = compiled(node.dtype.name, self.target)
        (m, n), k = shape[-2:], arrays[0].shape[-1]
        batch = shape[-3] if len(shape) > 2 else 1
        cut = split(gemm.tile, m, n, k, batch=batch, threads=max(self.threads, 2))
        first = len(self.rows)
        for place in np.ndindex(*outer):
            parts = [a[place] for a in arrays]
            a, b, c = parts
            job = make_job(a, b, c, cut, workspace=(0, gemm.bytes))
            for field, part, start, base in zip(
                _POINTERS, parts, starts, product.owners, strict=True
            ):
                gap = part.ctypes.data - start.ctypes.data
                self.patches.append((len(self.rows) * len(JOB) + field, base, gap))
            self.rows.append(job)
        return first, len(self.rows) - first, cut.tasks

    def _view(self, operand: Operand) -> Any:
        """An operand as a view of memory like its base's; None if it needs a copy."""
        base = operand.base
        start = np.empty(resolve(base.shape, self.sizes), base.dtype.np)
        array = start
        for view in reversed(operand.views):
            array = view.op.kernel(array, **resolve(view.params, self.sizes))
        inside = array.size == 0 or np.may_share_memory(array, start)
        whole = all(s % array.itemsize == 0 for s in array.strides)
        return (array, start) if inside and whole else None

    def _give_workspaces(self) -> None:
        """Memory for packed panels: each thread of the pool has its own."""
        self.threads = pool.get_num_threads()
        if not len(self.table):
            return
        each = int(self.table[:, _WORKSPACE + 1].max())
        self.memory = np.empty(self.threads * each + 64, np.uint8)
        start = self.memory.ctypes.data
        self.table[:, _WORKSPACE] = start + -start % 64
        self.table[:, _WORKSPACE + 1] = each

    def link(self, slots: Mapping[Node, int]) -> None:
        """Prepare to fill in addresses, by the slots that they are kept in."""
        self.places = np.array([p for p, _, _ in self.patches], np.int64)
        self.slots = np.array([slots[node] for _, node, _ in self.patches], np.int64)
        self.gaps = np.array([gap for _, _, gap in self.patches], np.int64)

    def fill(self, addresses: np.ndarray) -> None:
        """Put the present addresses into the jobs."""
        if not len(self.table):
            return
        if pool.get_num_threads() != self.threads:
            self._give_workspaces()
        flat = self.table.reshape(-1)
        flat[self.places] = addresses[self.slots] + self.gaps

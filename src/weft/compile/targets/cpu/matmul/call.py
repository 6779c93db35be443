"""Matrix products as launches of the generated product kernels.

A product reads its operands through whatever views they are, as strides: a transposed
or sliced matrix needs no copy. A stack of matrices is one job if one stride leads from
matrix to matrix, else several.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.compile.emit.isa import Isa
from weft.compile.fusion.groups import Operand, origin
from weft.compile.program.steps import LibraryCall, Step
from weft.compile.program.strided_views import needs_copy, outline, view_of
from weft.compile.targets.cpu.convolution.call import is_convolution
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.executable import Symbol
from weft.compile.targets.cpu.jobs import Job, Pack, Pointer, Work
from weft.compile.targets.cpu.matmul.arrays import (
    Gemm,
    compiled,
    kind_name,
    make_job,
    name_of,
)
from weft.compile.targets.cpu.matmul.generate import is_few, tile_for
from weft.compile.targets.cpu.matmul.kinds import FLOATS, RESULTS
from weft.compile.targets.cpu.matmul.tasks import (
    NAMES,
    Split,
    best_split,
    is_cut,
    split,
)
from weft.compile.targets.cpu.matmul.tiling import SHAPES, WIDE, has_many
from weft.compile.targets.cpu.object_code import host_isa
from weft.compile.tuning.choices import Cut, chosen, threaded
from weft.config import config
from weft.core.op import Op, TensorType
from weft.core.size import Size, elements
from weft.graph.interpret import resolve
from weft.graph.ir import ASSIGN, READ, Graph, Node
from weft.ops.products import matmul_op, wide_matmul_op
from weft.ops.shaping import permute_op
from weft.runtime.cpu import pool

_COST = COST.matmul
_FIRST_ROW = NAMES.index("first_row")
CONTEXT = NAMES.index("context")
_POINTERS = [NAMES.index(name) for name in "abc"]
_PACKED = NAMES.index("packed")


def is_product(node: Node) -> bool:
    """Whether a node is a product that the generated kernels compute."""
    return product_kind(node) is not None


def product_kind(node: Node) -> str | None:
    """The kind of a product by its name in `kinds`; None if no kernel computes it.

    >>> from weft.compile.targets.cpu.matmul.call import product_kind
    >>> graph = weft.graph.capture(lambda a: a @ a, weft.ones(2, 2)).graph
    >>> product_kind(graph.nodes[1])
    'float32'
    """
    if node.op is not matmul_op and node.op is not wide_matmul_op:
        return None
    inputs = [i for i in node.inputs if type(i) is Node]
    if len(inputs) != 2 or {len(i.shape) for i in inputs} != {len(node.shape)}:
        return None
    name = kind_name(*(i.dtype.name for i in inputs))
    return name if RESULTS.get(name) == node.dtype.name else None


def _panels(x: np.ndarray, width: int, lanes: int) -> np.ndarray:
    k, n = x.shape
    long, many = -(-k // lanes) * lanes, -(-n // width)
    buffer = np.zeros((long, many * width), x.dtype)
    buffer[:k, :n] = x
    return buffer.reshape(long, many, width).swapaxes(0, 1).ravel()


# A matrix in the order in which products read their right operand.
PACK = Op(
    "pack",
    inputs="x",
    eval=_panels,
    type=lambda x, *, width, lanes: TensorType(
        (-(-x.shape[0] // lanes) * lanes * -(-x.shape[1] // width) * width,), x.dtype
    ),
)


def packed(node: Node, isa: Isa) -> Node:
    """A node that is a matrix as panels."""
    tile = tile_for(node.dtype.name, isa)
    params = {"width": tile.width, "lanes": tile.lanes}
    assert PACK.type is not None
    kind = PACK.type(node.type, **params)
    return Node(PACK, (node,), params, kind, f"{node.name}/pack", (), node.module,
                node.code, node.lasti, node.role.part)  # fmt: skip


def read_often(nodes: Iterable[Node]) -> set[Node]:
    """Right operands that are worth packing once: weights of an unrolled loop.

    A recomputed product counts once: few rows times panels have other bits than few
    rows times the matrix itself, which must not depend on what is recomputed.
    """
    products = [n for n in nodes if product_kind(n) in FLOATS and len(n.shape) == 2]
    readers: dict[str, set[str]] = {}
    for node in products:
        readers.setdefault(origin(node.inputs[1]), set()).add(origin(node))
    return {
        node.inputs[1]
        for node in products
        if len(readers[origin(node.inputs[1])]) >= _COST.readers
    }


@dataclass(frozen=True, eq=False)
class Panels(LibraryCall):
    """The packing of a matrix for several products."""

    few: bool = True  # as for ``Product``

    def work(self, sizes: Mapping[str, int], isa: Isa) -> Work | None:
        view = view_of(self.operands[0], sizes)
        if view is None or not view[0].size:
            return None
        array, start = view
        kind = self.node.dtype.name
        gemm = compiled(kind, isa)
        out = np.empty((1, array.shape[1]), array.dtype)
        cut = Split(1, 1, -(-array.shape[1] // gemm.tile.width))
        job = make_job(array[:1], array, out, cut, workspace=(0, 0))
        job[NAMES.index("k")] = array.shape[0]
        offset = array.ctypes.data - start.ctypes.data
        base = self.operands[0].base
        pointers = [
            Pointer(_POINTERS[1], base, offset),
            Pointer(_POINTERS[2], self.node),
        ]
        function = Symbol("gemm", name_of(kind, 0, self.few), "gemm_pack")
        return Work(function, [Job(job, pointers)], cut.tasks)


def _is_transposed(operand: Operand) -> bool:
    """Whether an operand is a view with its axes in another order."""
    return any(view.op is permute_op for view in operand.views)


def with_panels(
    steps: Iterable[Step], graph: Graph, isa: Isa, fixed: Collection[Node] = ()
) -> list[Step]:
    """The steps with right operands that are read often packed before the first.

    In the body of a loop, ``fixed`` inputs are read in each iteration.
    """
    often = read_often(graph.nodes)
    if fixed:
        products = [n for n in graph.nodes if product_kind(n) in FLOATS]
        rights = [n.inputs[1] for n in products if len(n.shape) == 2]
        often |= {right for right in rights if Operand(right).base in fixed}
    panels: dict[Node, Node] = {}
    refined: list[Step] = []
    for step in steps:
        if isinstance(step, Product) and (right := step.node.inputs[1]) in often:
            operand = step.inputs[1]
            if right not in panels:
                panels[right] = packed(operand, isa)
                refined.append(Panels(panels[right], [operand]))
            step = replace(step, inputs=[*step.inputs, panels[right]])
        refined.append(step)
    return refined


def with_weights(steps: Iterable[Step], graph: Graph) -> list[Step]:
    """The steps with products marked whose weights get no new value."""
    changed = {n.params["variable"] for n in graph.nodes if n.op is ASSIGN}

    def steady(product: Product) -> bool:
        base = product.operands[1].base
        return base.op is READ and base.params["variable"] not in changed

    return [
        replace(step, steady=steady(step)) if isinstance(step, Product) else step
        for step in steps
    ]


def with_few(steps: Sequence[Step], isa: Isa) -> list[Step]:
    """The steps with products marked, if any of them needs code for few rows.

    One library has the code of all.
    """
    nodes = [step.node for step in steps if isinstance(step, LibraryCall)]
    few = need_few(nodes, isa) and not config.batch_invariant
    return [
        replace(step, few=few) if isinstance(step, (Product, Panels)) else step
        for step in steps
    ]


def need_few(nodes: Iterable[Node], isa: Isa) -> bool:
    """Whether some of a program's products may be of few rows or columns.

    Convolutions have that code in any case.
    """
    return any(is_convolution(node) or _may_be_few(node, isa) for node in nodes)


def _may_be_few(node: Node, isa: Isa) -> bool:
    kind = product_kind(node)
    if kind is None:
        return False
    (m, n), k = node.shape[-2:], node.inputs[0].shape[-1]
    if any(isinstance(size, Size) for size in (m, n, k)):
        return True
    transposed = [_is_transposed(Operand(i)) for i in node.inputs]
    a, b = ((1, x) if t else (x, 1) for t, x in zip(transposed, (k, n), strict=True))
    return is_few(kind, isa, 0, (m, n, k), a, b)


def usual_shape(node: Node) -> int:
    """The index in ``SHAPES`` of the tile of a product whose sizes may be symbolic."""
    (m, n), k = node.shape[-2:], node.inputs[0].shape[-1]
    if any(isinstance(size, Size) for size in (m, n, k)):
        return 0
    layout = "t" if _is_transposed(Operand(node.inputs[0])) else "n"
    return _shape(product_kind(node) or "", m, n, k, layout)


def _shape(kind: str, m: int, n: int, k: int, layout: str) -> int:
    """The usual register tile: a wide one if A is large and its rows are contiguous.

    Elsewhere it gains too little to compile the code of another tile.
    """
    if kind not in FLOATS or layout[0] == "t" or not has_many(host_isa()):
        return 0
    if config.batch_invariant:
        return 0
    tile = tile_for(kind, host_isa(), WIDE)
    once = tile.width // 2 < n <= tile.width and m >= _COST.wide_tile and k > tile.depth
    return WIDE if once or min(m, n, k) >= _COST.wide_tile else 0


@dataclass(frozen=True, eq=False)
class Product(LibraryCall):
    """A product of two matrices, or of stacks of them, with its epilogue.

    A third operand is the second one, packed as panels.
    """

    steady: bool = False  # whether the right operand is the same in many runs
    few: bool = True  # whether the program needs code for products of few rows

    computes = staticmethod(is_product)
    copies = staticmethod(needs_copy)

    @staticmethod
    def row_axes(node: Node) -> int | None:
        """All but the last."""
        return len(node.shape) - 1

    @property
    def alone(self) -> Product:
        """The same without an epilogue."""
        return replace(self, epilogue=None, picks=())

    @property
    def _kind(self) -> str:
        kind = product_kind(self.node)
        assert kind is not None
        return kind

    def _chosen(self, sizes: Mapping[str, int]) -> tuple[str, Cut]:
        """The key of a choice for this product, and the choice itself."""
        kind, (*lead, m, n) = self._kind, resolve(self.node.shape, sizes)
        k = resolve(self.node.inputs[0].shape, sizes)[-1]
        views = self.operands[:2]
        layout = "".join("t" if _is_transposed(o) else "n" for o in views)
        whole = self.epilogue is not None and self.epilogue.whole
        ready = len(self.operands) > 2
        kinds = f"{layout}{' whole' * whole}{' packed' * ready}"
        key = threaded(f"product {kind} {lead} {m} {n} {k} {kinds}")
        cut = chosen(key, Cut(shape=_shape(kind, m, n, k, layout)))
        if ready or not cut.shape < len(SHAPES[True]):  # panels have their width
            cut = cut._replace(shape=0)
        return key, cut

    def _code(self, cuts: Cut, few: bool = False) -> str:
        """The name of its code, with that for few rows if any product needs it."""
        return name_of(self._kind, cuts.shape, few or self.few)

    def _pack(self, gemm: Gemm, shape: Any, k: int, cuts: Cut) -> Pack | None:
        """How the right operand is packed once, where that pays.

        Few rows are dot products, which read it unpacked, and many take so long that
        packing does not count. The same bits come out either way.
        """
        if not self.steady or len(shape) != 2 or len(self.operands) != 2:
            return None
        (m, n), tile = shape, gemm.tile
        if not gemm.fewest < m <= _COST.weight_rows or n * k < _COST.weight:
            return None
        words = -(-k // gemm.group)
        panels, length = -(-n // tile.width), -(-words // tile.lanes) * tile.lanes
        nbytes = length * panels * tile.width * self.node.dtype.np.itemsize
        symbol = Symbol("gemm", self._code(cuts), "gemm_pack")
        return Pack(self.operands[1].base, symbol, panels, nbytes)

    def key(self, sizes: Mapping[str, int]) -> str:
        """The key under which a choice for this product is stored."""
        return self._chosen(sizes)[0]

    def fits(self, sizes: Mapping[str, int], isa: Isa) -> bool:
        """Whether its epilogue is worth fusing, for some sizes.

        One of whole rows keeps columns from being cut, which must not cost more than
        reading the result once more.
        """
        if self.epilogue is None or not self.epilogue.whole:
            return True
        _, cuts = self._chosen(sizes)
        return bool(cuts.across) or self._may_be_whole(sizes, isa)

    def _may_be_whole(self, sizes: Mapping[str, int], isa: Isa) -> bool:
        """Whether whole rows cost no more than reading the result once more."""
        threads = pool.get_num_threads()
        _, cuts = self._chosen(sizes)
        tile = compiled(self._kind, isa, cuts.shape).tile
        *lead, m, n = resolve(self.node.shape, sizes)
        k = resolve(self.node.inputs[0].shape, sizes)[-1]
        batch = lead[-1] if lead else 1
        if not is_cut(m, n, k, batch, threads):
            return True
        free, whole = (
            best_split(tile, m, n, batch, threads, whole)[1] for whole in (False, True)
        )
        return (whole - free) * threads * k <= batch * m * n * _COST.reread

    def _streams(self, sizes: Mapping[str, int]) -> bool:
        """Whether its epilogue goes through other arrays as large as the result.

        It does so row by row, and short pieces of rows are read slowly.
        """
        if self.epilogue is None:
            return False
        count = elements(self.node.shape, sizes)
        others = [n for n in self.epilogue.owners if n is not self.node]
        return sum(elements(n.shape, sizes) >= count for n in others) > 1

    def _is_few(self, arrays: Sequence[Any], cuts: Cut, isa: Isa) -> bool:
        if config.batch_invariant:  # few rows must have the bits of many
            return False
        a, b, out = arrays
        sizes = *out.shape[-2:], a.shape[-1]
        left, right = ([s // x.itemsize for s in x.strides[-2:]] for x in (a, b))
        ready = len(self.operands) > 2
        return is_few(self._kind, isa, cuts.shape, sizes, left, right, ready=ready)

    def work(self, sizes: Mapping[str, int], isa: Isa) -> Work | None:
        """One job for each stack of matrices."""
        node = self.node
        shape = resolve(node.shape, sizes)
        out = outline(shape, node.dtype.np)
        views = [view_of(operand, sizes) for operand in self.operands[:2]]
        outer = shape[:-3]
        if any(view is None for view in views):
            return None
        if math.prod(outer) > _COST.most_jobs or not out.size:
            return None
        arrays = [view[0] for view in views] + [out]
        starts = [view[1] for view in views] + [out]
        _, cuts = self._chosen(sizes)
        gemm = compiled(self._kind, isa, cuts.shape)
        (m, n), k = shape[-2:], arrays[0].shape[-1]
        batch = shape[-3] if len(shape) > 2 else 1
        threads = max(pool.get_num_threads(), 2)
        whole = self.epilogue is not None and self.epilogue.whole
        rows = whole or (self._streams(sizes) and self._may_be_whole(sizes, isa))
        cut = split(
            gemm.tile, m, n, k, batch=batch, threads=threads, whole=rows,
            blocks=cuts[:2],
        )  # fmt: skip
        jobs: list[Job] = []
        for index in np.ndindex(*outer):
            stacks = [array[index] for array in arrays]
            a, b, c = stacks
            job = make_job(a, b, c, cut, workspace=(0, gemm.bytes), whole=whole)
            job[_FIRST_ROW] = len(jobs) * batch * m
            bases = [*[o.base for o in self.operands[:2]], node]
            fields = zip(_POINTERS, stacks, starts, bases, strict=True)
            pointers = [
                Pointer(field, base, stack.ctypes.data - start.ctypes.data)
                for field, stack, start, base in fields
            ]
            if len(self.operands) > 2:
                pointers.append(Pointer(_PACKED, self.operands[2].base))
            jobs.append(Job(job, pointers))
        few = self._is_few(arrays, cuts, isa)
        function = Symbol("gemm", self._code(cuts, few), "gemm_tasks")
        share = min(math.prod(shape) * k / _COST.serial, 1.0)
        pack = self._pack(gemm, shape, k, cuts)
        return Work(function, jobs, cut.tasks, gemm.bytes, CONTEXT, share, pack)

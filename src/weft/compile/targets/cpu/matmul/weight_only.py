"""Few rows of float32 times weights of 8 or 4 bits, which are read once, as they are.

    out[i, r] = sum over g of scale[r, g] * sum over k in g of x[i, k] * w[r, k]

Some rows of weights are multiplied with some of x at a time: words become float32 in
registers, and sums are vectors whose lanes are added up at the end. An element is the
same function of its row and its weights for every number of rows and of threads. For
few rows the time is that of reading the weights, which are prefetched.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from weft.compile.emit.control_flow import F32, I32, zeros
from weft.compile.emit.flow import carry, loop
from weft.compile.emit.isa import Isa, new_module
from weft.compile.emit.values import Value, call, declared, fma, minimum, select
from weft.compile.emit.vectors import first_lanes, prefetch, splat, totals
from weft.compile.fusion.groups import Operand
from weft.compile.program.steps import LibraryCall
from weft.compile.targets.cpu.background import ahead
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.executable import Symbol
from weft.compile.targets.cpu.jobs import Job, Pointer, Work
from weft.compile.targets.cpu.matmul import functions
from weft.compile.targets.cpu.matmul.kinds import FLOATS
from weft.compile.targets.cpu.matmul.tasks import read_job
from weft.compile.targets.cpu.matmul.tiling import tiling
from weft.compile.targets.cpu.object_code import Library, compile_known, host_isa
from weft.config import config
from weft.core.size import Size
from weft.graph.interpret import resolve
from weft.graph.ir import Node
from weft.ops.quantized import check_weight_only, weight_only_matmul_op
from weft.ops.shaping import reshape_op
from weft.runtime.cpu import pool
from weft.runtime.cpu.address import address, round_up

_COST = COST.weight_only
JOB = [
    "status", "*x", "i8*weight", "*scale", "*out", "rows", "n", "k", "row_bytes",
    "groups", "group", "task_rows", "i8*workspace", "workspace_bytes",
]  # fmt: skip
_NAMES = functions.names_of(JOB)
_POINTERS = [_NAMES.index(name) for name in ("x", "weight", "scale", "out")]
_DOTS = "*x k i8*weight row_bytes *scale groups group *out n"


class Shape(NamedTuple):
    """Rows of weights and of x that are multiplied at a time."""

    weights: int
    rows: int


SHAPES = Shape(8, 1), Shape(4, 2), Shape(2, 4)  # eight sums in registers


# -- generating


class Emitter:
    """The functions for weights of some bits, emitted when first called."""

    def __init__(self, lib: functions.Library, bits: int) -> None:
        self.lib, self.bits, self.lanes = lib, bits, lib.tile.lanes
        self.items = ir.VectorType(ir.IntType(8), self.lanes)
        self.made: dict[Shape, ir.Function] = {}

    def tasks(self) -> None:
        """``void name_tasks(job, begin, end, worker)``: a task is a block of rows."""
        words = "i64*job begin end worker"
        with self.lib.function("tasks", words, public=True) as (s, _):
            job = read_job(self.lib, JOB, s.job, s.worker)
            last = minimum(job.n, s.end * job.task_rows)
            first = s.begin * job.task_rows
            for count in SHAPES[0].weights, 1:
                whole = first + (last - first) // count * count
                with loop(first, whole, count) as r:
                    self._block(job, r, count)
                first = whole

    def _block(self, job: Any, r: Any, count: int) -> None:
        """Some rows of weights, which are in a cache for all rows of x after one."""
        done: Any = 0
        for shape in reversed(SHAPES):
            stop = done + (job.rows - done) // shape.rows * shape.rows
            with loop(done, stop, shape.rows, beside=r) as i:
                weights = min(shape.weights, count)
                with loop(r, r + count, weights) as row:
                    self._call(job, i, row, Shape(weights, shape.rows))
            done = stop

    def _call(self, job: Any, i: Any, r: Any, shape: Shape) -> None:
        if shape not in self.made:
            self.made[shape] = self._emit(shape)
        weight = job.weight + r * job.row_bytes
        scale = job.scale + r * job.groups
        out = job.out + (i * job.n + r)
        x = job.x + i * job.k
        call(
            self.made[shape],
            [x, job.k, weight, job.row_bytes, scale, job.groups, job.group, out, job.n],
        )

    def _emit(self, shape: Shape) -> ir.Function:
        name = f"dots_{shape.weights}_{shape.rows}"
        with self.lib.function(name, _DOTS) as (s, function):
            zero = zeros(self.lib.vector)
            count = shape.weights * shape.rows
            sums = carry(
                0, s.groups, 1, [zero] * count, lambda g, v: self._group(s, shape, g, v)
            )
            for at in range(count):
                if at % self.lanes == 0:
                    found = totals(sums[at : at + self.lanes])
                row, weight = divmod(at, shape.weights)
                place = s.out + (row * s.n + weight)
                place.store(found.lane(at % self.lanes))
        return function

    def _group(self, s: Any, shape: Shape, g: Any, sums: list[Any]) -> list[Any]:
        """A group's products, summed and scaled, added to sums."""
        span = s.group if self.bits == 8 else s.group // 2
        start = g * s.group
        x = s.x + start
        weight = s.weight + g * span
        left = s.k - start  # of x; the last group of four bits may be longer
        whole = select(left >= s.group, span // self.lanes * self.lanes, 0)
        zero = zeros(self.lib.vector)

        def step(at: Any, found: list[Any]) -> list[Any]:
            return self._step(s, shape, x, weight, at, span, found)

        def last(at: Any, found: list[Any]) -> list[Any]:
            return self._step(s, shape, x, weight, at, span, found, left)

        found = carry(0, whole, self.lanes, [zero] * len(sums), step)
        found = carry(whole, span, self.lanes, found, last)
        added = []
        for at, (one, total) in enumerate(zip(found, sums, strict=True)):
            place = s.scale + (at % shape.weights * s.groups + g)
            added.append(fma(one, splat(place.load(), self.lanes), total))
        return added

    def _step(
        self, s: Any, shape: Shape, x: Any, weight: Any, at: Any, span: Any,
        sums: list[Any], left: Any = None,
    ) -> list[Any]:  # fmt: skip
        """The products of a vector of words; ``left`` of x limits the last ones."""
        parts = 1 if self.bits == 8 else 2
        mask, masks = None, [None] * parts
        if left is not None:
            mask = self._mask(span - at)
            masks = [
                self._mask(minimum(span - at, left - (at + part * span)))
                for part in range(parts)
            ]
        found = list(sums)
        xs = [
            [
                (x + (i * s.k + part * span + at)).load(self.lib.vector, masks[part])
                for part in range(parts)
            ]
            for i in range(shape.rows)
        ]
        for w in range(shape.weights):
            place = weight + (w * s.row_bytes + at)
            if left is None:
                prefetch(place + _COST.ahead, level=2)
            numbers = self._numbers(place.load(self.items, mask))
            for i in range(shape.rows):
                k = i * shape.weights + w
                for value, number in zip(xs[i], numbers, strict=True):
                    found[k] = fma(value, number, found[k])
        return found

    def _mask(self, count: Any) -> Any:
        return first_lanes(select(count > 0, count, 0), self.lanes)

    def _numbers(self, items: Any) -> list[Any]:
        """Bytes as float32: one vector of eight bits, or two of four."""
        if self.bits == 8:
            return [items.signed(I32).convert("sitofp", F32)]
        words = items.unsigned(I32)
        halves = words, words.shift_right(4)
        if self.lanes == 16 and self.lib.isa.triple.startswith("x86"):
            return [self._looked_up(half) for half in halves]
        return [((half & 15) - 8).convert("sitofp", F32) for half in halves]

    def _looked_up(self, words: Any) -> Any:
        """The numbers that the lowest four bits stand for, by one instruction."""
        vector = self.lib.vector
        table = ir.Constant(vector, [float(k - 8) for k in range(16)])
        kind = ir.FunctionType(vector, [vector, words.type])
        name = "llvm.x86.avx512.permvar.sf.512"
        return call(declared(words.b, name, kind), [Value(words.b, table), words])


def _module(bits: int, isa: Isa) -> ir.Module:
    module = new_module(f"weight_only_{bits}", isa)
    lib = functions.Library(
        module, "weight_only", FLOATS["float32"], isa, tiling(4, isa)
    )
    Emitter(lib, bits).tasks()
    return module


def _compiled(bits: int, isa: Isa) -> Library:
    make = functools.partial(_module, bits, isa)
    return compile_known(f"weight_only {bits} {_COST}", make, isa)


compiled = ahead(_compiled)


# -- calling


def multiply(
    x: np.ndarray, weight: np.ndarray, scale: np.ndarray, bits: int,
    isa: Isa | None = None,
) -> np.ndarray | None:  # fmt: skip
    """The product, or None if it is not one of few rows of float32.

    >>> from weft.compile.targets.cpu.matmul.weight_only import multiply
    >>> x, weight = np.ones((1, 3), np.float32), np.array([[1, 2, -5]], np.int8)
    >>> multiply(x, weight, np.array([[0.5]], np.float32), 8)
    array([[-1.]], dtype=float32)
    """
    if x.dtype != np.float32 or not _fits(x.shape, weight.shape):
        return None
    check_weight_only(x, weight, scale, bits)
    x, weight, scale = (np.asarray(a, order="C") for a in (x, weight, scale))
    out = np.empty((len(x), len(weight)), np.float32)
    fields, tasks = _fields(x.shape, weight.shape, scale.shape, bits)
    for field, one in zip(_POINTERS, (x, weight, scale, out), strict=True):
        fields[field] = address(one)
    job = array("q", fields)
    library, shared = compiled(bits, isa or host_isa()), pool.default()
    shared.run(library.address("weight_only_tasks"), job.buffer_info()[0], tasks)
    return out


def _fits(x: Any, weight: Any) -> bool:
    """Whether the kernel is for operands of these shapes.

    Rows of an open number are taken to be few: it is right for many as well.
    """
    rows, others = x[0], (x[1], *weight)
    if any(isinstance(n, Size) for n in others) or config.batch_invariant:
        return False
    few = isinstance(rows, Size) or 0 < rows <= _COST.rows
    return few and all(others)


def _fields(x: Any, weight: Any, scale: Any, bits: int) -> tuple[list[int], int]:
    """The fields of a job without addresses, and its tasks."""
    groups = scale[1]
    group = weight[1] * (8 // bits) // groups
    each = _task_rows(weight[0])
    fields = [0] * 5 + [x[0], weight[0], x[1], weight[1], groups, group, each, 0, 0]
    return fields, -(-weight[0] // each)


def _task_rows(rows: int) -> int:
    """The rows of a task: a thread's share of all, within bounds."""
    share = round_up(-(-rows // pool.get_num_threads()), SHAPES[0].weights)
    return min(max(share, _COST.least_task_rows), _COST.most_task_rows)


def is_weight_only(node: Node) -> bool:
    """Whether a node is such a product of few rows."""
    if node.op is not weight_only_matmul_op or node.dtype.name != "float32":
        return False
    if not all(type(i) is Node for i in node.inputs):
        return False
    return _fits(*[i.shape for i in node.inputs[:2]])


class WeightOnly(LibraryCall):
    """A product of few rows with packed weights."""

    computes = staticmethod(is_weight_only)

    @staticmethod
    def copies(node: Node) -> bool:
        return any(view.op is not reshape_op for view in Operand(node).views)

    @staticmethod
    def row_axes(node: Node) -> int | None:
        return None  # few elements, of which another kernel makes others

    def work(self, sizes: Mapping[str, int], isa: Isa) -> Work | None:
        """One job, whose tasks are blocks of the weights' rows."""
        x, weight, scale = (resolve(i.shape, sizes) for i in self.inputs)
        bits = self.node.params["bits"]
        if not x[0]:
            return None
        fields, tasks = _fields(x, weight, scale, bits)
        bases = [*[operand.base for operand in self.operands], self.node]
        pointers = [
            Pointer(field, base) for field, base in zip(_POINTERS, bases, strict=True)
        ]
        share = min(x[0] * weight[0] * weight[1] / _COST.serial, 1.0)
        function = Symbol("weight_only", str(bits), "weight_only_tasks")
        return Work(function, [Job(fields, pointers)], tasks, share=share)

"""From a group of nodes to the loops of one kernel.

    no reduction       parallel over the outer axes, a loop over the last
    last axis reduced  parallel over the kept axes; for each, one loop over the
                       reduced axes for every stage, rows being scalars in between
    last axis kept     parallel over blocks of it, so that memory is read in order;
                       rows are small arrays
    scatters, scans    see ``serial``

A stage ends where a reduction must be finished before the next loop may begin:
softmax has three (largest, sum, quotient).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.compile.elements import Builder, lowering_of
from weft.compile.fuse import Group, Operand, inlined, operands_of
from weft.compile.loop.hoist import hoisted
from weft.compile.loop.ir import (
    Buffer,
    Call,
    Choice,
    Const,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Position,
    Set,
    Store,
    parts,
    values_of,
)
from weft.compile.loop.pieces import Settling
from weft.compile.loop.rewrite import replaced, replaced_value, substitute
from weft.core.lowering import Element, Filled, Reduction
from weft.core.op import TensorType
from weft.core.size import Atom, Size, same, same_shape, smaller
from weft.dtype import DType
from weft.graph.ir import CONSTANT, Node

BLOCK = 64  # elements of the last axis that one iteration of a column kernel takes
TILE = 16  # along each side of a square that is read by columns
CHUNK = 4096  # elements that one iteration of a flat kernel takes

# Scalar functions that are worth keeping rather than computing again.
_CHEAP = {
    "absorb", "abs", "add", "cast", "eq", "ge", "gt", "isfinite", "isinf", "isnan",
    "le", "logical_and", "logical_not", "logical_or", "lt", "maximum", "minimum", "mul",
    "ne", "neg", "relu", "sign", "square", "sub", "where",
}  # fmt: skip


def lower(group: Group, name: str) -> tuple[Kernel, list[Node]]:
    """The kernel of a group, and the node that each of its buffers belongs to."""
    lowering = _schedule(group)(group, name)
    return lowering.loops(), lowering.owners


def _schedule(group: Group) -> type[Lowering]:
    if group.alone:
        from weft.compile.serial import serial_loops

        return serial_loops(lowering_of(group.nodes[0]))
    if group.reduced is None:
        return _Flat
    last = len(group.shape) - 1
    return _Rows if last in group.reduced or not group.kept else _Columns


class Lowering:
    """One group; indices are polynomials in the group's loop variables."""

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        self.name = name
        self.buffers: dict[Node, Buffer] = {}
        self.owners: list[Node] = []
        self.scratch: list[Buffer] = []
        self.given: tuple[tuple[str, Any], ...] = ()
        self.lets: list[Let] = []  # indices from values, of the body being made
        self.indices = 0
        self.constants: dict[int, Node] = {}
        self.positive: list[Any] = []
        self.stage = self._stages()
        self.stored = set(group.outputs)
        self._keep_expensive()

    # -- stages

    def _stages(self) -> dict[Node, int]:
        """The loop in which each full node is computed, or that a row comes before."""
        found: dict[Node, int] = {}
        for node in self.group.nodes:
            at = max((found[b] for b in self._inside(node)), default=0)
            found[node] = at + 1 if isinstance(node.op.lower, Reduction) else at
        return found

    def _inside(self, node: Node) -> list[Node]:
        operands = self.group.operands[node]
        bases = [o.base for o in operands if isinstance(o, Operand)]
        return [b for b in bases if b in self.group.home]

    @property
    def last_stage(self) -> int:
        return max(self.stage.values(), default=0)

    def _keep_expensive(self) -> None:
        """Store full values that a later loop needs and that cost much to compute."""
        later = set()
        for node in self.group.nodes:
            for base in self._inside(node):
                if base not in self.group.rows and self._use(node) > self.stage[base]:
                    later.add(base)
        for node in self.group.nodes:
            if node in later and self._costly(node):
                self.stored.add(node)

    def _use(self, node: Node) -> int:
        """The loop that reads a node's operands."""
        at = self.stage[node]
        return at - 1 if isinstance(node.op.lower, Reduction) else at

    def _costly(self, node: Node) -> bool:
        rule = lowering_of(node)
        if isinstance(rule, Filled):
            return False
        if isinstance(rule, Element):
            return not rule.cheap
        if rule.scalar not in _CHEAP:
            return True
        return any(
            self._costly(b)
            for b in self._inside(node)
            if b not in self.group.rows and b not in self.stored
        )

    # -- buffers

    def buffer(self, node: Node) -> Buffer:
        """The memory of a node's value."""
        found = self.buffers.get(node)
        if found is None:
            shape = self._sizes(node.shape)
            found = Buffer(f"b{len(self.buffers)}", shape, node.dtype)
            self.buffers[node] = found
            self.owners.append(node)
        return found

    def constant(self, array: np.ndarray) -> Node:
        """A node for numbers that are known, which the graph has not."""
        found = self.constants.get(id(array))
        if found is None:
            kind = TensorType(array.shape, dtypes.of_array(array))
            name = f"table{len(self.constants)}"
            found = Node(CONSTANT, (), {"value": array}, kind, name)
            self.constants[id(array)] = found
        return found

    def _sizes(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """Sizes of the graph as sizes of this kernel's scope."""
        return tuple(rescoped(n, self.group.scope) for n in shape)

    # -- values

    def value(self, node: Node, stage: int, memo: dict[Node, Any]) -> Any:
        """A full node's element in the loop of a stage."""
        found = memo.get(node)
        if found is None:
            if node in self.stored and self.stage[node] < stage:
                found = Load(self.buffer(node), self.group.home[node])
            else:
                found = self._compute(node, stage, memo)
            memo[node] = found
        return found

    def _compute(self, node: Node, stage: int, memo: dict[Node, Any]) -> Any:
        home = self.group.home[node]
        lowering = lowering_of(node)
        if isinstance(lowering, Filled):
            return number(lowering.value(home, **node.params), node.dtype,
                          self.group.scope)  # fmt: skip
        if isinstance(lowering, Element):
            return Builder(self, node, stage, memo).value(lowering.value, home)
        operands = self.group.operands[node]
        like = self._number_dtype(node)
        args = [self._argument(o, home, stage, memo, like) for o in operands]
        return Call(lowering.scalar, tuple(args), node.dtype)

    def _number_dtype(self, node: Node) -> DType:
        """The dtype of Python numbers among a node's arguments."""
        nodes = [i for i in node.inputs if type(i) is Node]
        return nodes[-1].dtype if nodes else node.dtype

    def _argument(
        self, operand: Any, home: Any, stage: int, memo: dict[Node, Any], like: DType
    ) -> Any:
        if not isinstance(operand, Operand):
            return number(operand, like, self.group.scope)
        base = operand.base
        if base in self.group.rows:
            return self.row(base)
        if base in self.group.home:
            return self.value(base, stage, memo)
        if base.op is CONSTANT and base.params["value"].ndim == 0:
            return Const(base.params["value"].item(), base.dtype)
        if isinstance(base.op.lower, Filled) and inlined(base):
            made = base.op.lower.value(operand.index(home), **base.params)
            return number(made, base.dtype, self.group.scope)
        if inlined(base):
            return self._inline(base, stage, memo)
        found = Load(self.buffer(base), self._sizes(operand.index(home)))
        key = (base, found.at)
        return memo.setdefault(key, found)  # type: ignore[call-overload]

    def _inline(self, node: Node, stage: int, memo: dict[Node, Any]) -> Any:
        """A whole number computed again."""
        if node not in memo:
            like, operands = self._number_dtype(node), operands_of(node)
            args = [self._argument(o, (), stage, memo, like) for o in operands]
            memo[node] = Call(node.op.lower.scalar, tuple(args), node.dtype)
        return memo[node]

    def read(
        self, node: Node, place: int, index: Any, stage: int, memo: dict[Any, Any]
    ) -> Any:
        """An input's element, for a rule that says at which index."""
        group, operand = self.group, self.group.operands[node][place]
        base = operand.base if isinstance(operand, Operand) else None
        if node in group.rows and base in group.home and base not in group.rows:
            return self._in_row(operand, index, stage)
        return self._argument(operand, index, stage, memo, node.dtype)

    def _in_row(self, operand: Operand, out: Any, stage: int) -> Any:
        """A full node's element at another place of the same row, computed there."""
        value = self.value(operand.base, stage, {})
        index = self._sizes(operand.index(out))
        for have, want in zip(self.group.home[operand.base], index, strict=True):
            if not same(have, want):
                value = replaced_value(value, have.symbol_name, want, {})
        return value

    def row(self, node: Node) -> Any:
        """A row node's element, where it is known."""
        raise NotImplementedError

    def flat_index(self, node: Node, out: Any) -> Any:
        """The position of a node's index in row-major order."""
        return self.flat_position(out, node.shape)

    def flat_position(self, index: Any, shape: Any) -> Any:
        total: Any = 0
        for i, n in zip(index, self._sizes(shape), strict=True):
            total = total * n + i
        return total

    # -- indices from values

    def new_index(self, size: Any) -> Any:
        """A fresh index variable below a size."""
        name = f"w{self.indices}"
        self.indices += 1
        self.group.scope.bounds[name] = size
        if isinstance(size, Size):
            self.positive.append(size)
        return self.group.scope.symbol(name)

    def with_lets(self, body: list[Any]) -> list[Any]:
        """A body after the indices it uses."""
        lets, self.lets = self.lets, []
        return [*lets, *body]

    # -- kernels

    def loops(self) -> Kernel:
        """The kernel, for one kind of group."""
        raise NotImplementedError

    def _made(self, parallel: tuple[Any, ...], body: list[Any]) -> Kernel:
        buffers = tuple(self.buffers[node] for node in self.owners)
        scratch = tuple(self.scratch)
        settling = Settling({name for name, _ in parallel})
        body = hoisted(settling.body(body))
        positive = tuple(n for n in (*self.positive, *settling.positive) if n != 0)
        return Kernel(
            self.name, buffers, scratch, parallel, body, self.group.scope, self.given,
            tuple(n for n in positive if isinstance(n, Size)),
        )  # fmt: skip

    # -- the parts of a stage

    def rows_at(self, stage: int) -> list[Node]:
        """The row nodes computed before a loop, other than reductions."""
        return [
            n
            for n in self.group.nodes
            if n in self.group.rows
            and self.stage[n] == stage
            and not isinstance(n.op.lower, Reduction)
        ]

    def reductions_of(self, stage: int) -> list[Node]:
        """The reductions that a loop accumulates."""
        return [
            n
            for n in self.group.nodes
            if isinstance(n.op.lower, Reduction) and self.stage[n] == stage + 1
        ]

    def stores_of(self, stage: int, memo: dict[Any, Any]) -> list[Any]:
        return [
            Store(self.buffer(n), self.group.home[n], self.value(n, stage, memo))
            for n in self.group.nodes
            if n in self.stored and n not in self.group.rows and self.stage[n] == stage
        ]

    def stored_rows(self, stage: int) -> list[Any]:
        """Stores of the rows that are known before a loop and needed outside."""
        return [
            Store(self.buffer(n), self.group.home[n], self.row(n))
            for n in self.group.nodes
            if n in self.group.rows and n in self.stored and self.stage[n] == stage
        ]

    def reduced_value(self, node: Node, stage: int, memo: dict[Any, Any]) -> Any:
        (operand,) = self.group.operands[node]
        found = self._argument(operand, self.group.vars, stage, memo, node.dtype)
        return as_dtype(found, total_dtype(node))

    def over_reduced(self, body: list[Any]) -> list[Any]:
        """Loops over the reduced axes around a body."""
        sizes = self._sizes(self.group.shape)
        for d in reversed(self.group.reduced or ()):
            body = [For(f"i{d}", sizes[d], body)]
        return body


class _Flat(Lowering):
    """Nothing is reduced."""

    def loops(self) -> Kernel:
        group = self.group
        memo: dict[Any, Any] = {}
        stores: list[Any] = [
            Store(self.buffer(n), group.home[n], self.value(n, 0, memo))
            for n in group.nodes
            if n in self.stored
        ]
        sizes = self._sizes(group.shape)
        stores = self.with_lets(stores)
        if self._in_order(stores, memo):
            return self._in_chunks(stores, math.prod(sizes))
        pairs = [(f"i{d}", n) for d, n in enumerate(sizes)]
        if not pairs:
            return self._made((), stores)
        turned = self._turned([v for v in memo.values() if isinstance(v, Load)])
        flat, memo = self.flat_position(group.vars, group.shape), {}
        stores = [replaced(s, "flat", flat, memo) for s in stores]
        if turned is not None:
            return self._in_tiles(stores, pairs, turned)
        *outer, (var, extent) = pairs
        if not outer and _linear(stores):
            return self._in_blocks(stores, extent)
        return self._made(tuple(outer), [For(var, extent, stores)])

    def _in_order(self, stores: list[Any], memo: dict[Any, Any]) -> bool:
        """Whether every buffer is read and written at the loop's own position."""
        empty = any(same(n, 0) for n in self.group.shape)
        if empty or any(isinstance(s, Let) for s in stores):
            return False
        places = [(s.buffer, s.at) for s in stores]
        places += [(v.buffer, v.at) for v in memo.values() if isinstance(v, Load)]
        flat = self.flat_position(self.group.vars, self.group.shape)
        return not _uses_position(memo) and all(
            _same_index(self.flat_position(index, buffer.shape), flat)
            or not any(isinstance(i, Size) for i in index)
            for buffer, index in places
        )

    def _turned(self, loads: list[Any]) -> int | None:
        """An axis along which a buffer lies in memory that is not the last one."""
        last = f"i{len(self.group.shape) - 1}"
        for load in loads:
            position = self.flat_position(load.at, load.buffer.shape)
            if not isinstance(position, Size) or last not in position.symbols:
                continue
            if ((Atom(last),), 1) in position.terms:
                continue
            for atoms, factor in position.terms:
                if len(atoms) == 1 and factor == 1 and atoms[0].kind != last:
                    name = atoms[0].kind
                    if name.startswith("i") and name[1:].isdigit():
                        return int(name[1:])
        return None

    def _in_tiles(self, body: list[Any], pairs: list[Any], dim: int) -> Kernel:
        """Small squares of two axes, so that what is read by columns stays near."""
        scope, last = self.group.scope, len(pairs) - 1
        loops: list[Any] = []
        blocks: list[Any] = []
        for d, block, place in ((dim, "u", "a"), (last, "v", "b")):
            size = pairs[d][1]
            first = scope.symbol(block) * TILE
            memo: dict[int, Any] = {}
            index = first + scope.symbol(place)
            body = [replaced(s, f"i{d}", index, memo) for s in body]
            loops.append((place, smaller(size - first, TILE)))
            blocks.append((block, (size + (TILE - 1)) // TILE))
        for var, extent in reversed(loops):
            body = [For(var, extent, body)]
        outer = [pair for d, pair in enumerate(pairs) if d not in (dim, last)]
        return self._made((*outer, *blocks), body)

    def _in_blocks(self, body: list[Any], count: Any) -> Kernel:
        """A loop over the only axis, cut into pieces."""
        scope = self.group.scope
        chunk, place = scope.symbol("chunk"), scope.symbol("i")
        memo: dict[int, Any] = {}
        moved = [replaced(s, "i0", chunk * CHUNK + place, memo) for s in body]
        extent = smaller(count - chunk * CHUNK, CHUNK)
        pieces = (count + (CHUNK - 1)) // CHUNK
        return self._made((("chunk", pieces),), [For("i", extent, moved)])

    def flat_index(self, node: Node, out: Any) -> Any:
        """A symbol, which becomes the position in whichever loops are chosen."""
        return self.group.scope.symbol("flat")

    def _in_chunks(self, stores: list[Any], count: Any) -> Kernel:
        """One loop over all elements, cut into pieces.

        How many there are is an argument of the kernel, so that the updates of all
        parameters share one.
        """
        scope = self.group.scope
        self.given = (("count", count),)
        count = scope.symbol("count")
        chunk, place = scope.symbol("chunk"), scope.symbol("i")
        position = chunk * CHUNK + place
        flat = {b: b._replace(shape=(count,)) for b in self.buffers.values()}
        swap = functools.partial(_at_position, position=position, flat=flat, memo={})
        body = [Store(flat[s.buffer], (position,), swap(s.value)) for s in stores]
        used = {s.buffer.name for s in body}
        used |= {v.buffer.name for v in _loads(body) if same_shape(v.at, (position,))}
        for node, buffer in self.buffers.items():
            if buffer.name in used:
                self.buffers[node] = flat[buffer]
        extent = smaller(count - chunk * CHUNK, CHUNK)
        pieces = (count + (CHUNK - 1)) // CHUNK
        unroll = 4 if _uses(body, "random") else 1
        loop = For("i", extent, body, unroll)
        return self._made((("chunk", pieces),), [loop])


class _Rows(Lowering):
    """The last axis is reduced: a row is a scalar."""

    def row(self, node: Node) -> Any:
        return as_dtype(self._local(node), node.dtype)

    def _local(self, node: Node) -> Local:
        return Local(f"row{self.group.nodes.index(node)}", total_dtype(node))

    def loops(self) -> Kernel:
        body: list[Any] = []
        for stage in range(self.last_stage + 1):
            body += self._before(stage) + self._loop(stage)
        sizes = self._sizes(self.group.shape)
        parallel = tuple((f"i{d}", sizes[d]) for d in self.group.kept)
        return self._made(parallel, body)

    def _before(self, stage: int) -> list[Any]:
        """Rows that are known now, and those that must be stored."""
        out: list[Any] = []
        for n in self.rows_at(stage):
            found = [Set(self._local(n), self._compute(n, stage, {}))]
            out += self.with_lets(found)
        out += self.stored_rows(stage)
        return out

    def _loop(self, stage: int) -> list[Any]:
        memo: dict[Any, Any] = {}
        inner: list[Any] = self.stores_of(stage, memo)
        starts = []
        for node in self.reductions_of(stage):
            local, combine = self._local(node), node.op.lower.combine
            starts.append(Set(local, identity(combine, local.dtype)))
            value = self.reduced_value(node, stage, memo)
            total = Call(combine, (local, value), local.dtype)
            inner.append(Set(local, total, reorder=True))
        inner = self.with_lets(inner)
        return starts + self.over_reduced(inner) if inner else starts


class _Columns(Lowering):
    """The last axis is kept: a row is an array over a block of it."""

    def row(self, node: Node) -> Any:
        return as_dtype(Load(self._row_buffer(node), (self._place(),)), node.dtype)

    def _place(self) -> Any:
        return self.group.scope.symbol("j")

    def _row_buffer(self, node: Node) -> Buffer:
        name = f"row{self.group.nodes.index(node)}"
        for buffer in self.scratch:
            if buffer.name == name:
                return buffer
        self.scratch.append(Buffer(name, (BLOCK,), total_dtype(node), scratch=True))
        return self.scratch[-1]

    def loops(self) -> Kernel:
        group, scope = self.group, self.group.scope
        last = len(group.shape) - 1
        sizes = self._sizes(group.shape)
        block = scope.symbol("block")
        scope.bounds["j"] = BLOCK
        column = block * BLOCK + self._place()
        extent = smaller(sizes[last] - block * BLOCK, BLOCK)
        body: list[Any] = []
        for stage in range(self.last_stage + 1):
            body += self._before(stage, extent) + self._loop(stage, extent)
        body = [replaced(stmt, f"i{last}", column, {}) for stmt in body]
        outer = tuple((f"i{d}", sizes[d]) for d in group.kept if d != last)
        blocks = (sizes[last] + (BLOCK - 1)) // BLOCK
        return self._made((*outer, ("block", blocks)), body)

    def _before(self, stage: int, extent: Any) -> list[Any]:
        out: list[Any] = []
        for n in self.rows_at(stage):
            value = self._compute(n, stage, {})
            stores = [Store(self._row_buffer(n), (self._place(),), value)]
            out += self.with_lets(stores)
        out += self.stored_rows(stage)
        return [For("j", extent, out)] if out else []

    def _loop(self, stage: int, extent: Any) -> list[Any]:
        memo: dict[Any, Any] = {}
        inner: list[Any] = self.stores_of(stage, memo)
        starts = []
        for node in self.reductions_of(stage):
            row, combine = self._row_buffer(node), node.op.lower.combine
            at = (self._place(),)
            starts.append(Store(row, at, identity(combine, row.dtype)))
            value = self.reduced_value(node, stage, memo)
            total = Call(combine, (Load(row, at), value), row.dtype)
            inner.append(Store(row, at, total))
        found: list[Any] = [For("j", extent, starts)] if starts else []
        if inner:
            found += self.over_reduced([For("j", extent, self.with_lets(inner))])
        return found


# -- values


def number(value: Any, dtype: DType, scope: Any) -> Any:
    """A Python number or a size as a value of a dtype."""
    if isinstance(value, Size):
        kind = dtypes.float64 if value.fractional else dtypes.int64
        found = Position(rescoped(value, scope), kind)
        return found if dtype is kind else Call("cast", (found,), dtype)
    if isinstance(value, np.generic):
        value = value.item()
    return Const(value, dtype)


def as_dtype(value: Any, dtype: DType) -> Any:
    """A value, converted if its dtype is another."""
    return value if value.dtype is dtype else Call("cast", (value,), dtype)


def total_dtype(node: Node) -> DType:
    """What a reduction adds or multiplies in: half types in float32."""
    rule = node.op.lower
    if not isinstance(rule, Reduction) or rule.combine not in ("add", "mul"):
        return node.dtype
    return node.dtype.to_total()


def identity(combine: str, dtype: DType) -> Const:
    """What a combination starts from."""
    if combine in ("add", "logical_or"):
        return Const(0, dtype)
    if combine in ("mul", "logical_and"):
        return Const(1, dtype)
    if dtype.is_inexact:
        return Const(-math.inf if combine == "maximum" else math.inf, dtype)
    limits = np.iinfo(dtype.np) if dtype is not dtypes.bool_ else None
    low, high = (0, 1) if limits is None else (limits.min, limits.max)
    return Const(low if combine == "maximum" else high, dtype)


def rescoped(value: Any, scope: Any) -> Any:
    """A size of the graph as one of a kernel."""
    if not isinstance(value, Size) or value.scope is scope:
        return value
    return Size(*value.terms, scope=scope)


def _same_index(a: Any, b: Any) -> bool:
    return same_shape((a,), (b,))


def _uses(body: list[Any], prefix: str) -> bool:
    """Whether values are made with functions of some name."""
    found = parts([v for stmt in body for v in values_of(stmt)])
    return any(isinstance(v, Call) and v.name.startswith(prefix) for v in found)


def _loads(body: list[Any]) -> list[Load]:
    found = parts([v for stmt in body for v in values_of(stmt)])
    return [v for v in found if isinstance(v, Load)]


def _linear(body: list[Any]) -> bool:
    """Whether no index is a quotient or a rest."""
    for one in (*body, *parts([v for stmt in body for v in values_of(stmt)])):
        for index in one.at if isinstance(one, (Load, Store)) else ():
            if isinstance(index, Size) and any(
                atom.a is not None for atoms, _ in index.terms for atom in atoms
            ):
                return False
    return True


def _uses_position(memo: dict[Any, Any]) -> bool:
    return any(
        isinstance(value, Choice)
        or (
            isinstance(value, Position)
            and isinstance(value.at, Size)
            and any(name.startswith("i") for name in value.at.symbols)
        )
        for value in parts(memo.values())
    )


def _at_position(value: Any, *, position: Any, flat: Any, memo: dict[int, Any]) -> Any:
    """A value whose loads are all at one flat position."""
    if isinstance(value, Load):
        if not any(isinstance(i, Size) for i in value.at):
            return value
        return Load(flat[value.buffer], (position,))
    if isinstance(value, Position):
        return Position(substitute(value.at, name="flat", by=position), value.dtype)
    if not isinstance(value, Call):
        return value
    found = memo.get(id(value))
    if found is None:
        args = tuple(
            _at_position(a, position=position, flat=flat, memo=memo) for a in value.args
        )
        found = memo[id(value)] = Call(value.name, args, value.dtype)
    return found

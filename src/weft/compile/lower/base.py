"""A group's values as expressions of the Loop IR.

A ``Lowering`` finds each node's element in the loops of a stage, and the buffer of its
value. The kinds of groups differ in the loops around.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.compile.fusion.elements import Builder, lowering_of
from weft.compile.fusion.groups import Group, Operand, inlined, operands_of
from weft.compile.loop.depend import flat_position
from weft.compile.loop.hoist import hoisted
from weft.compile.loop.index_choices import Settling
from weft.compile.loop.ir import Buffer, Call, Const, For, Kernel, Let, Load, Store
from weft.compile.loop.merge_index import merge_index
from weft.compile.loop.rewrite import replaced_value
from weft.compile.lower.values import as_dtype, number, rescoped, total_dtype
from weft.compile.tuning.choices import Loops
from weft.core.lowering import Element, Filled, Reduction
from weft.core.op import TensorType
from weft.core.size import Size, same, smaller
from weft.dtype import DType
from weft.graph.ir import CONSTANT, Node


class Lowering:
    """One group; indices are polynomials in the group's loop variables."""

    def __init__(
        self,
        group: Group,
        name: str,
        windows: Mapping[Node, Any] | None = None,
        cuts: Loops | None = None,
        target: Any = None,
    ) -> None:
        self.group = group
        self.target = target  # whose schedules the loops get
        self.cuts = cuts or Loops()
        self.name = name
        self.windows = windows or {}  # windows that are read in place of whole values
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
        """The stage at which each full node is computed, or before which a row is."""
        found: dict[Node, int] = {}
        for node in self.group.nodes:
            at = max((found[b] for b in self._inside(node)), default=0)
            found[node] = at + 1 if self._reduces(node) else at
        return found

    def _reduces(self, node: Node) -> bool:
        """Whether a node is complete only after a loop over a row."""
        own = isinstance(node.op.lower, Reduction)
        return own and node not in self.group.columns

    def _inside(self, node: Node) -> list[Node]:
        operands = self.group.operands[node]
        bases = [o.base for o in operands if isinstance(o, Operand)]
        return [b for b in bases if b in self.group.home]

    @property
    def last_stage(self) -> int:
        return max(self.stage.values(), default=0)

    def _keep_expensive(self) -> None:
        """Store expensive full values that a later loop needs."""
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
        return at - 1 if self._reduces(node) else at

    def _costly(self, node: Node) -> bool:
        rule = lowering_of(node)
        if isinstance(rule, Filled):
            return False
        if isinstance(rule, Element):
            return not rule.cheap
        if node.op.facts.cost > self.target.cost.fusion.recomputed:
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
            window = self.windows.get(node)
            shape = node.shape if window is None else window.shape(node.shape)
            shape = self._sizes(shape)
            found = Buffer(f"b{len(self.buffers)}", shape, node.dtype)
            self.buffers[node] = found
            self.owners.append(node)
        return found

    def constant(self, array: np.ndarray) -> Node:
        """A constant node for an array that is not part of the graph."""
        node = self.constants.get(id(array))
        if node is None:
            kind = TensorType(array.shape, dtypes.of_array(array))
            name = f"table{len(self.constants)}"
            node = Node(CONSTANT, (), {"value": array}, kind, name)
            self.constants[id(array)] = node
        return node

    def _sizes(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """Sizes of the graph in this kernel's scope."""
        return tuple(rescoped(n, self.group.scope) for n in shape)

    # -- values

    def value(self, node: Node, stage: int, memo: dict[Node, Any]) -> Any:
        """A full node's element in the loop of a stage."""
        element = memo.get(node)
        if element is None:
            if node in self.stored and self.stage[node] < stage:
                element = Load(self.buffer(node), self.group.home[node])
            else:
                element = self._compute(node, stage, memo)
            memo[node] = element
        return element

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
        index, window = self._sizes(operand.index(home)), self.windows.get(base)
        if window is not None:
            index = window.translate(index, self._sizes(base.shape))
        found = Load(self.buffer(base), index)
        key = (base, found.at)
        return memo.setdefault(key, found)  # type: ignore[call-overload]

    def _inline(self, node: Node, stage: int, memo: dict[Node, Any]) -> Any:
        """A whole number, recomputed where it is used."""
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
        """A full node's element at another index of the same row, computed there."""
        value = self.value(operand.base, stage, {})
        index = self._sizes(operand.index(out))
        for have, want in zip(self.group.home[operand.base], index, strict=True):
            if not same(have, want):
                value = replaced_value(value, have.symbol_name, want, {})
        return value

    def row(self, node: Node) -> Any:
        """A row node's element, in the stages after it."""
        raise NotImplementedError

    def flat_index(self, node: Node, out: Any) -> Any:
        """The position of a node's index in row-major order."""
        return flat_position(out, self._sizes(node.shape))

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

    def _made(
        self, parallel: tuple[Any, ...], body: list[Any], schedule: Any = None
    ) -> Kernel:
        """A kernel of these loops, after its schedule."""
        buffers = tuple(self.buffers[node] for node in self.owners)
        kernel = Kernel(self.name, buffers, tuple(self.scratch), parallel, body,
                        self.group.scope, self.given)  # fmt: skip
        kernel = merge_index(kernel)
        if schedule is not None:
            kernel = schedule(kernel)
        settling = Settling({name for name, _ in kernel.parallel})
        body = hoisted(settling.body(kernel.body))
        positive = (n for n in (*self.positive, *settling.positive) if n != 0)
        sizes = tuple(n for n in positive if isinstance(n, Size))
        return kernel._replace(body=body, positive=sizes)

    # -- the statements of a stage

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
            if self._reduces(n) and self.stage[n] == stage + 1
        ]

    def stores_of(self, stage: int, memo: dict[Any, Any]) -> list[Any]:
        apart = {*self.group.rows, *self.group.columns}
        return [
            Store(self.buffer(n), self.group.home[n], self.value(n, stage, memo))
            for n in self.group.nodes
            if n in self.stored and n not in apart and self.stage[n] == stage
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

    def over_row(self, body: list[Any]) -> list[Any]:
        """Loops over the axes of a row around a body."""
        return self.over(self.group.inner, body)

    def over(self, axes: tuple[int, ...], body: list[Any]) -> list[Any]:
        """Loops over some axes around a body."""
        for d in reversed(axes):
            body = [For(f"i{d}", self._extent(d), body)]
        return body

    def _extent(self, axis: int) -> Any:
        """The extent of a loop over an axis: to the end of the axis or of a chunk."""
        group = self.group
        (size,) = self._sizes((group.shape[axis],))
        if axis != group.cut:
            return size
        if not isinstance(size, Size) and size % group.length == 0:
            return group.length
        first = group.scope.symbol("part") * group.length
        return smaller(size - first, group.length)

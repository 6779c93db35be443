"""Fusion: which nodes are computed together, in one pass over memory.

A group computes, for every index of one shape, all its nodes at that index:

    full nodes       one element for each index of the shape
    row nodes        one element for each index of the axes that are not reduced

A node joins the youngest group among those that compute its inputs, if its elements
are those of the group's own indices; else it begins another group. Inputs from older
groups are loaded. So an edge always leads from an older to a younger unit, and there is
never a cycle. Views are not computed at all: whoever reads one reads its base at
another index. Nodes that depend on no unit (masks, random numbers) wait for their first
reader, and are computed in its group. Loops in which an element depends on others
before it are groups of their own; nodes without an element-wise rule are calls. A node
that comes ``after`` another never joins a unit that is older than that one's, so that
recomputed values are not computed early.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from weft import dtype as dtypes
from weft.compile import targets
from weft.compile.emit import scalar
from weft.compile.fusion.elements import lowering_of
from weft.compile.fusion.merge_axes import Access, mergeable
from weft.core.lowering import (
    Element,
    Filled,
    Pointwise,
    Reduction,
    Scan,
    Scatter,
    View,
    reshaped,
)
from weft.core.op import Op, find_op
from weft.core.size import Scope, Size, same, same_shape
from weft.graph.ir import CONSTANT, INPUT, PICK, READ, Graph, Node

CAST, EXPAND = find_op("cast"), find_op("expand")
Index = tuple[Any, ...]
Slot = tuple[Index, bool]
Slots = dict[Node, Slot]
NEAR = 8  # units back to look for a group that reads the same values
DEEPEST = 64  # nested operations from a group's inputs to its outputs
FEW = 8  # integer scalars in a chain that is computed wherever it is needed
OUTSIDE = -1  # the order of inputs, variables and constants


class Operand:
    """An input of a node: a base, and the views through which it is read."""

    __slots__ = ("base", "views")

    def __init__(self, node: Node) -> None:
        self.views: list[Node] = []
        while isinstance(node.op.lower, View):
            self.views.append(node)
            node = node.inputs[0]
        self.base = node

    def index(self, out: Index) -> Index:
        """The index of the base's element, for an index of the operand."""
        for view in self.views:
            rule = view.op.lower.at
            out = rule(out, view.inputs[0].shape, **view.params)
        return out


class Call:
    """A node that is computed as a whole."""

    def __init__(self, order: int, node: Node) -> None:
        self.order = order
        self.node = node
        self.nodes = [node]

    def __repr__(self) -> str:
        return f"<call {self.node.name}>"


class Group:
    """Nodes that are computed together, element by element."""

    def __init__(self, order: int, shape: Index, scope: Scope) -> None:
        self.order = order
        self.shape = shape
        self.size = math.prod(shape)
        self.scope = Scope()
        self.scope.hints = dict(scope.hints)
        self.scope.equal = dict(scope.equal)
        self.vars = tuple(self._variable(d, n) for d, n in enumerate(shape))
        self.reduced: tuple[int, ...] | None = None
        self.length = 0  # of the parts into which the first reduced axis is split
        self.columns: list[Node] = []  # sums over rows, made as rows are computed
        self.tall: tuple[int, ...] = ()  # the axes that these reduce
        self.nodes: list[Node] = []
        self.home: dict[Node, Index] = {}  # each node's index, in the loop variables
        self.rows: set[Node] = set()
        self.operands: dict[Node, list[Any]] = {}
        self.depth: dict[Node, int] = {}  # nested operations up to each node
        self.outputs: list[Node] = []
        self.alone = False  # a loop of its own, which nothing may join
        self.closed = False  # a check of values, which nothing may join
        self._row: tuple[Index, Index] | None = None  # cache of ``_rows``
        self.plain = False  # no reduction may join

    def _variable(self, dim: int, size: Any) -> Any:
        name = f"i{dim}"
        self.scope.bounds[name] = size
        return self.scope.symbol(name)

    @property
    def kept(self) -> list[int]:
        """The axes that are not reduced."""
        return [d for d in range(len(self.shape)) if d not in (self.reduced or ())]

    @property
    def inner(self) -> tuple[int, ...]:
        """The axes that one iteration loops over."""
        if self.reduced is None and self.tall:
            return tuple(range(self.tall[-1] + 1, len(self.shape)))
        return self.reduced or ()

    @property
    def cut(self) -> int | None:
        """The axis that is split into parts."""
        if self.tall:
            return self.tall[0]
        return self.reduced[0] if self.reduced and self.length else None

    @property
    def outer(self) -> list[tuple[str, Any]]:
        """The variables and extents of the outer loops, that of parts included."""
        inside = {*self.inner, *self.tall}
        loops = [(f"i{d}", n) for d, n in enumerate(self.shape) if d not in inside]
        return loops if self.cut is None else [("part", self.parts), *loops]

    @property
    def parts(self) -> Any:
        """The number of parts."""
        assert self.cut is not None
        return (self.shape[self.cut] + (self.length - 1)) // self.length

    def reduce(self, axes: tuple[int, ...], length: int) -> None:
        """Set the axes that are reduced, and the length of the parts of the first."""
        new = self.reduced is None
        self.reduced, self._row = axes, None
        if new and length:
            self._split(axes[0], length)

    def sum_rows(self, node: Node, axes: tuple[int, ...], length: int) -> None:
        """Add a node that combines rows, part by part."""
        if not self.tall:
            self.tall, self._row = axes, None
            self._split(axes[0], length)
        self.columns.append(node)
        inside = {*self.inner, *self.tall}
        rest = [v for d, v in enumerate(self.vars) if d not in inside]
        home = (self.scope.symbol("part"), *rest, *[self.vars[d] for d in self.inner])
        self.add(node, home, row=False)

    def _split(self, axis: int, length: int) -> None:
        """Split an axis into parts."""
        self.length, self._row = length, None
        self.scope.bounds |= {"part": self.parts, f"i{axis}": length}
        first = self.scope.symbol("part") * length + self.vars[axis]
        self.vars = tuple(first if d == axis else v for d, v in enumerate(self.vars))
        self._row = None
        self.home = {
            n: self.row_index(n) if n in self.rows else self.full_index(n)
            for n in self.nodes
        }

    @property
    def _rows(self) -> tuple[Index, Index]:
        """The index of a row, and the shape of all rows."""
        if self._row is None:
            if self.length and not self.tall:
                names = [self.scope.symbol(name) for name, _ in self.outer]
                self._row = tuple(names), tuple([n for _, n in self.outer])
            else:
                index = [(self.vars[d], self.shape[d]) for d in self.kept]
                self._row = tuple([i for i, _ in index]), tuple([n for _, n in index])
        return self._row

    def row_index(self, node: Node) -> Index:
        """A row node's index, in the variables of the axes that are kept."""
        out, shape = self._rows
        return reshaped(out, node.shape, shape=shape)

    def full_index(self, node: Node) -> Index:
        return reshaped(self.vars, node.shape, shape=self.shape)

    def reads_here(self, operand: Operand, out: Index | None) -> bool:
        """Whether an operand's element is the one computed at the same index."""
        home = self.home[operand.base]
        return out is not None and same_shape(operand.index(out), home)

    def reads_row(self, operand: Operand, out: Index | None) -> bool:
        """Whether an operand's element is any element of the same row.

        It is then recomputed at that index, which loops of plain functions allow.
        """
        if out is None or self.reduced is None or len(self.reduced) != 1:
            return False
        plain = (Pointwise, Filled, Reduction)
        full = [n for n in self.nodes if n not in self.rows]
        if not all(isinstance(lowering_of(n), plain) for n in full):
            return False
        along = f"i{self.reduced[0]}"
        pairs = zip(operand.index(out), self.home[operand.base], strict=True)
        return all(
            same(a, b) or (_named(a) == "any" and _named(b) == along) for a, b in pairs
        )

    def slot(self, node: Node) -> Slot | None:
        """A node's index here, and whether it is a row; None for other shapes."""
        count = math.prod(node.shape)
        if same(count, self.size):
            return self.full_index(node), False
        if self.reduced is not None and same(count, math.prod(self._rows[1])):
            return self.row_index(node), True
        return None

    def add(self, node: Node, home: Index, *, row: bool, operands: Any = None) -> None:
        self.nodes.append(node)
        self.home[node] = home
        if row:
            self.rows.add(node)
        self.operands[node] = operands or operands_of(node)
        self.depth[node] = self.depth_of(self.operands[node])

    def depth_of(self, operands: list[Any]) -> int:
        """The depth of a node with these operands."""
        bases = [o.base for o in operands if isinstance(o, Operand)]
        return 1 + max((self.depth.get(base, 0) for base in bases), default=0)

    def divides(self, node: Node, home: Index, axes: tuple[int, ...]) -> bool:
        """Whether a full node would split the one loop over several reduced axes."""
        accesses: list[Access] = [(home, node.shape)]
        for operand, at in zip(operands_of(node), indices_of(node, home), strict=True):
            if isinstance(operand, Operand) and operand.base not in self.home:
                index = None if at is None else operand.index(at)
                accesses.append((index, operand.base.shape))
        return not mergeable(accesses, axes, self.shape)

    def reads(self) -> set[Node]:
        """The values of other units that it reads."""
        operands = [o for n in self.nodes for o in self.operands[n]]
        bases = {o.base for o in operands if isinstance(o, Operand)}
        return bases - self.home.keys()

    def __repr__(self) -> str:
        return f"<group {[n.name for n in self.nodes]}>"


def _named(index: Any) -> str:
    return index.symbol_name if isinstance(index, Size) else ""


def _sums_rows(
    group: Group, operand: Operand, shape: Index, axes: tuple[int, ...], length: int
) -> bool:
    """Whether rows can be combined in a group that computes or reads them in order."""
    if group.alone or group.closed or group.plain or not same_shape(group.shape, shape):
        return False
    if group.tall and (group.tall, group.length) != (axes, length):
        return False
    if group.length and not group.tall:
        return False
    if group.reduced not in (None, tuple(range(axes[-1] + 1, len(shape)))):
        return False
    if operand.base in group.home:
        return operand.base not in group.rows and group.reads_here(operand, group.vars)
    return operand.base in group.reads()


Unit = Call | Group
Supported = Callable[[Node], bool]


def indices_of(node: Node, home: Index, anywhere: Any = None) -> list[Index | None]:
    """The index at which a node reads each of its inputs; None if it is not one index.

    ``anywhere`` replaces an index that is a value.
    """
    rule = lowering_of(node)
    if not isinstance(rule, Element):
        return [home] * len(node.inputs)
    if rule.here is None:
        return [None] * len(node.inputs)
    return [_filled(index, anywhere) for index in rule.here(home, **node.params)]


def _filled(index: Index | None, anywhere: Any) -> Index | None:
    if index is None or (anywhere is None and None in index):
        return None
    return tuple(anywhere if i is None else i for i in index)


def inlined(node: Node, few: int = FEW) -> bool:
    """Whether a node is computed wherever it is needed and never stored.

    Such are functions of the index alone, and short chains of cheap functions of
    integer scalars.
    """
    if isinstance(node.op.lower, Filled):
        return scalar.has_dtype(node.dtype)
    return (
        isinstance(node.op.lower, Pointwise)
        and node.op.facts.cost == 1
        and node.shape == ()
        and node.dtype.category == dtypes.INT
        and few > 0
        and scalar.has_function(node.op.lower.scalar, [node.dtype], node.dtype)
        and all(
            type(i) is not Node or _given(i) or inlined(i, few - 1) for i in node.inputs
        )
    )


def _random(lower: Any) -> bool:
    """Whether elements are random numbers, which are expensive."""
    return isinstance(lower, Element) and not lower.cheap


def shares_quotients(lower: Any) -> bool:
    """Whether neighbouring elements read what is at one quotient of their indices."""
    return isinstance(lower, Element) and lower.quotients


def _given(node: Node) -> bool:
    return node.op in (INPUT, CONSTANT, READ)


def operands_of(node: Node) -> list[Any]:
    """A node's inputs: operands, or numbers."""
    return [Operand(i) if type(i) is Node else i for i in node.inputs]


# A copy of an operand that strides cannot describe.
COPY = Op(
    "copy",
    inputs="x",
    eval=lambda x: x.copy(),
    type=lambda x: x,
    lower=Pointwise("conj"),  # of a real number: the number
)


def copied(node: Node) -> Node:
    """The node that copies an operand."""
    return Node(COPY, (node,), {}, node.type, f"{node.name}/copy", (), node.module,
                node.code, node.lasti, node.role.part)  # fmt: skip


def _at_most(shape: Index, count: int) -> bool:
    """Whether a shape is known to have at most this many elements."""
    size = math.prod(shape)
    return isinstance(size, int) and size <= count


def origin(node: Node) -> str:
    """The name of a value; of a recomputed copy, that of its original.

    >>> g = weft.graph.capture(lambda x: x.exp(), weft.ones(2)).graph
    >>> origin(g.outputs[0])
    'exp'
    """
    original = node.role.recomputes
    return node.name if original is None else original


def _readers(graph: Graph) -> dict[Node, Node]:
    """The node that each recomputed copy is made for, which is the next original."""
    readers: dict[Node, Node] = {}
    waiting: list[Node] = []
    for node in graph.nodes:
        if node.role.is_copy:
            waiting.append(node)
        elif waiting and not isinstance(node.op.lower, View):
            readers.update(dict.fromkeys(waiting, node))
            waiting.clear()
    return readers


class Fusion:
    """The units of a graph, chosen in one pass over its nodes."""

    def __init__(self, graph: Graph, supported: Supported) -> None:
        self.graph = graph
        self._supported = supported
        self.cost = targets.current().cost.fusion
        self._answers: dict[Node, bool] = {}
        self._operands: dict[Node, list[Any]] = {}
        self.units: list[Unit] = []
        self.unit: dict[Node, Unit] = {}
        self.why: dict[Node, str] = {}  # why a node did not join its producer's group
        self.free: dict[Node, int] = {}  # nodes that wait for a reader, and how deep
        self.readers = _readers(graph)
        used = {i for node in graph.nodes for i in node.inputs if type(i) is Node}
        # the nodes that larger ones repeat
        self.repeated = {
            n.inputs[0] for n in graph.nodes
            if n.op is EXPAND and not same_shape(n.shape, n.inputs[0].shape)
        }  # fmt: skip
        # the nodes that run for their errors alone
        self.checks = {n for n in graph.effects if n not in used}
        for node in graph.nodes:
            self._assign(node)
            if node in self.checks:
                self._close(node)
        for node in list(self.free):
            self._settle(node)
        self.find_outputs()

    def supported(self, node: Node) -> bool:
        """Whether a node can be part of a kernel."""
        found = self._answers.get(node)
        if found is None:
            found = self._answers[node] = self._supported(node)
        return found

    def operands(self, node: Node) -> list[Any]:
        """A node's operands, made once."""
        found = self._operands.get(node)
        if found is None:
            found = self._operands[node] = operands_of(node)
        return found

    def _assign(self, node: Node) -> None:
        """Choose a node's unit, unless it is a view or waits for a reader."""
        if node.op in (INPUT, CONSTANT, READ):
            return
        lower = lowering_of(node)
        if isinstance(lower, View) and self.supported(node):
            return
        if node.op is PICK and isinstance(self.unit.get(node.inputs[0]), Group):
            self._pick(node, self.unit[node.inputs[0]])
            return
        if self._is_free(node, lower):
            bases = [o.base for o in self.operands(node) if isinstance(o, Operand)]
            self.free[node] = 1 + max([self.free.get(base, 0) for base in bases])
            return
        if not self.supported(node) or isinstance(lower, (Reduction, Scatter, Scan)):
            for operand in self._loose(self.operands(node)):
                self._settle(operand.base)
        if not self.supported(node) or lower is None:
            self._call(node)
        elif isinstance(lower, Reduction):
            self._reduce(node)
        elif isinstance(lower, (Scatter, Scan)):
            self._alone(node)
        elif (node.after and _random(lower)) or shares_quotients(lower):
            self._begin(node)
        else:
            self._point(node)

    # -- nodes that depend on no unit

    def _is_free(self, node: Node, lower: Any) -> bool:
        """Whether a node may wait for its first reader, because it depends on no unit.

        Such are random numbers, integers and functions of state. An optimizer's
        ``moment * decay`` is then computed where the gradient is added. A cast weight
        that rows repeat does not wait: they could not compute it in their loops.
        """
        random = _random(lower)
        if self._is_term(node):
            return self.supported(node)
        if node.after or (not random and not isinstance(lower, Pointwise)):
            return False
        if node in self.repeated and not random and node.dtype.is_inexact:
            return False
        bases = [o.base for o in self.operands(node) if isinstance(o, Operand)]
        if not bases or node.shape == () or not self.supported(node):
            return False
        state = [b for b in bases if b.op is READ and same_shape(b.shape, node.shape)]
        if state and isinstance(lower, Pointwise):  # with numbers that are computed
            bases = [b for b in bases if b.shape != ()]
        if not all(b in self.free or _given(b) or inlined(b) for b in bases):
            return False
        if any(self.free.get(b, 0) >= FEW for b in bases):
            return False
        if random or not node.dtype.is_inexact or any(b in self.free for b in bases):
            return True
        return bool(state)

    def _is_term(self, node: Node) -> bool:
        """Whether a cast is a copy for one sum of columns (separate_column_sums)."""
        role = node.role
        return (
            self.cost.separate_sums and node.op is CAST
            and role.is_copy and role.is_gradient
            and any(isinstance(one.op.lower, Reduction) for one in node.after)
        )  # fmt: skip

    def _loose(self, operands: list[Any]) -> list[Operand]:
        return [o for o in operands if isinstance(o, Operand) and o.base in self.free]

    def _settle(self, node: Node) -> None:
        """Compute a waiting node now, in a group of its own."""
        if node in self.free:
            del self.free[node]
            self._point(node)

    def _adopted(self, group: Group, node: Node, home: Index) -> Slots | None:
        """The waiting nodes that a node reads, with their slots in a group."""
        adopted: Slots = {}
        indices = indices_of(node, home)
        for operand, index in zip(self.operands(node), indices, strict=True):
            if not isinstance(operand, Operand):
                continue
            if operand.base not in self.free:
                made = self.unit.get(operand.base)
                late = made is not None and made.order >= group.order
                if late and made is not group and not inlined(operand.base):
                    return None  # it is not there yet
                continue
            waited = self._youngest_of([Operand(one) for one in operand.base.after])
            slot = group.slot(operand.base)
            if slot is None or index is None:
                return None
            if waited is not None and waited.order >= group.order:
                return None
            if not same_shape(operand.index(index), slot[0]):
                return None
            more = self._adopted(group, operand.base, slot[0])
            if more is None:
                return None
            adopted |= more
            adopted[operand.base] = slot
        return adopted

    def _join(self, group: Group, node: Node, home: Index, row: bool) -> bool:
        """Add a node and the waiting nodes that it reads, if they all fit."""
        added = self._adopted(group, node, home)
        if added is None or (row and not all(r for _, r in added.values())):
            return False
        if group.depth_of(self.operands(node)) + len(added) > DEEPEST:
            return False
        added[node] = (home, row)
        for one, (index, is_row) in added.items():
            self.free.pop(one, None)
            group.add(one, index, row=is_row, operands=self.operands(one))
            self.unit[one] = group
        return True

    def order(self, base: Node) -> int:
        unit = self.unit.get(base)
        return OUTSIDE if unit is None else unit.order

    def _close(self, check: Node) -> None:
        """Close the group of a check that does nothing else.

        A node that joined it would be kept apart from the nodes it belongs to.
        """
        group = self.unit.get(check)
        if isinstance(group, Group):
            own = {check}
            for node in reversed(group.nodes):
                if node in own:
                    bases = (o for o in group.operands[node] if isinstance(o, Operand))
                    own.update(o.base for o in bases)
            group.closed = own.issuperset(group.nodes)

    def _call(self, node: Node) -> None:
        unit = Call(len(self.units), node)
        self.units.append(unit)
        self.unit[node] = unit

    def _youngest(self, node: Node, operands: Iterable[Any]) -> Unit | None:
        """The last of the units that must run before a node."""
        return self._youngest_of([*operands, *[Operand(one) for one in node.after]])

    def _youngest_of(self, operands: Iterable[Any]) -> Unit | None:
        bases = [o.base for o in operands if isinstance(o, Operand)]
        units = [self.unit[b] for b in bases if b in self.unit and not inlined(b)]
        return max(units, key=lambda u: u.order, default=None)

    def _new(self, shape: Index) -> Group:
        group = Group(len(self.units), shape, self.graph.sizes)
        self.units.append(group)
        return group

    def _alone(self, node: Node) -> None:
        several = type(node.type) is tuple
        group = self._new(() if several else node.shape)
        group.alone = True
        group.add(node, group.vars, row=False)
        self.unit[node] = group

    def _pick(self, node: Node, group: Any) -> None:
        """Add an output of a node with several to that one's group."""
        group.add(node, (), row=False)
        self.unit[node] = group

    def _begin(self, node: Node) -> None:
        """Begin a group that sums may not join.

        It recomputes random numbers, whose loops are not vectorized, so that a sum
        would have other bits; or the iterations of its loops are written out.
        """
        for operand in self._loose(self.operands(node)):
            self._settle(operand.base)
        group = self._new(node.shape)
        group.plain = True
        group.add(node, group.vars, row=False)
        self.unit[node] = group

    def _belongs(self, node: Node, operands: Iterable[Any], group: Group) -> bool:
        """Whether a recomputed node may join a group.

        The group computes its operands, or computes or reads a value that is read
        together with it. The loops of other groups stay as they are.
        """
        if self._youngest_of(operands) is group:
            return True
        reader = self.readers.get(node)
        beside = self.operands(reader) if reader is not None else []
        bases = {o.base for o in beside if isinstance(o, Operand)}
        return not bases.isdisjoint([*group.home, *group.reads()])

    # -- element by element

    def _point(self, node: Node) -> None:
        operands = self.operands(node)
        group = self._youngest(node, operands)
        if isinstance(group, Group):
            role = None
            if not node.after or self._belongs(node, operands, group):
                role = self._role(group, node, operands)
            if role is not None:
                home = group.row_index(node) if role else group.full_index(node)
                apart = not role and self._divides(
                    group, node, home, group.reduced or ()
                )
                if not apart and self._join(group, node, home, role):
                    return
        elif group is not None:
            self.why[node] = f"{group.node.op.name} is computed as a whole"
        if self._beside(node, operands, group):
            return
        group = Group(len(self.units), node.shape, self.graph.sizes)
        if self._join(group, node, group.vars, False):
            self.units.append(group)
            return
        for operand in self._loose(operands):
            self._settle(operand.base)
        self._point(node)

    def _divides(self, group: Group, node: Node, home: Index, axes: Any) -> bool:
        """Whether a recomputed node would change the order of sums over axes."""
        if len(axes) < 2 or node not in self.readers:
            return False
        return group.divides(node, home, axes)

    def _beside(self, node: Node, operands: list[Any], after: Unit | None) -> bool:
        """Join a recent group that reads the same value, so that it is read once.

        A single number does not count. Small updates of an optimizer, which have the
        learning rate in common, are computed together; those of large parameters would
        stream through more arrays at once than a processor prefetches.
        """
        first = OUTSIDE if after is None else after.order
        bases = {o.base for o in operands if isinstance(o, Operand)}
        if not _at_most(node.shape, self.cost.beside):
            bases = {b for b in bases if not _at_most(b.shape, 1)}
        for unit in reversed(self.units[max(first + 1, len(self.units) - NEAR) :]):
            if not isinstance(unit, Group) or unit.alone or unit.reduced is not None:
                continue
            if not same_shape(unit.shape, node.shape) or not bases & unit.reads():
                continue
            fits = self._role(unit, node, operands) is False
            if fits and self._join(unit, node, unit.full_index(node), False):
                self.why.pop(node, None)
                return True
        return False

    def _role(self, group: Group, node: Node, operands: list[Any]) -> bool | None:
        """Whether a node is a row node (True) or a full one of a group; else None."""
        if group.alone:
            self.why[node] = f"{group.nodes[0].op.name} is a loop of its own"
            return None
        if group.closed:
            self.why[node] = "a check of values is computed by itself"
            return None
        mine = [
            (o, k)
            for k, o in enumerate(operands)
            if isinstance(o, Operand) and self.unit.get(o.base) is group
        ]
        slot = group.slot(node)
        if slot is None:
            self.why[node] = f"{node.shape} is not the shape {group.shape}"
            return None
        home, row = slot
        indices = indices_of(node, home, group.scope.symbol("any"))
        elsewhere = [(o, k) for o, k in mine if row and o.base not in group.rows]
        if not all(group.reads_row(o, indices[k]) for o, k in elsewhere):
            self.why[node] = "a row would need single elements"
            return None
        here = [pair for pair in mine if pair not in elsewhere]
        if not all(group.reads_here(o, indices[k]) for o, k in here):
            self.why[node] = "it reads other elements of the group than its own"
            return None
        return row

    # -- reductions

    def _reduce(self, node: Node) -> None:
        (operand,) = operands_of(node)
        shape = node.inputs[0].shape
        dim = node.params["dim"]
        reduced = (dim,) if isinstance(dim, int) else tuple(sorted(dim))
        length = node.params.get("length", 0)
        if length and self._sum_rows(node, operand, reduced, length):
            return
        group = self._youngest(node, [operand])
        if not isinstance(group, Group) or not self._may_reduce(
            group, node, operand, shape, (reduced, length)
        ):
            group = self._new(shape)
        group.reduce(reduced, length)
        group.add(node, group.row_index(node), row=True)
        self.unit[node] = group

    def _may_reduce(
        self, group: Group, node: Node, operand: Operand, shape: Index, how: Any
    ) -> bool:
        if group.plain:
            self.why[node] = "random numbers are computed again there"
            return False
        if group.alone or group.closed or not same_shape(group.shape, shape):
            self.why[node] = f"{shape} is not the shape {group.shape}"
            return False
        if group.tall and how != (group.inner, 0):
            self.why[node] = f"the group adds up rows of axes {group.inner}"
            return False
        have = group.reduced, 0 if group.tall else group.length
        if group.reduced is not None and have != how:
            self.why[node] = f"the group reduces axes {group.reduced}"
            return False
        if operand.base not in group.home:
            self.why[node] = "what it reads was made by another group"
            return False
        if operand.base in group.rows or not group.reads_here(operand, group.vars):
            self.why[node] = "it reads other elements of the group than its own"
            return False
        full = [n for n in group.nodes if n not in group.rows]
        if any(self._divides(group, n, group.home[n], how[0]) for n in full):
            self.why[node] = "what is computed again there would change its order"
            return False
        return True

    # -- columns

    def _sum_rows(
        self, node: Node, operand: Operand, axes: tuple[int, ...], length: int
    ) -> bool:
        """Combine rows where they are computed or read, if they are not too long."""
        shape = node.inputs[0].shape
        inner = shape[axes[-1] + 1 :]
        if axes != tuple(range(axes[0], axes[-1] + 1)) or not inner:
            return False
        if any(isinstance(n, Size) for n in inner):
            return False
        if math.prod(inner) > self.cost.widest_row:
            return False
        after = self._youngest(node, [operand])
        first = OUTSIDE if after is None else after.order
        near = [u for u in self.units[-NEAR:] if u.order > first][::-1]
        for unit in [*([after] if after else []), *near]:
            if isinstance(unit, Group) and _sums_rows(
                unit, operand, shape, axes, length
            ):
                break
        else:
            unit = self._new(shape)
        unit.sum_rows(node, axes, length)
        self.unit[node] = unit
        return True

    # -- outputs of groups

    def find_outputs(self) -> None:
        """Find the values of each group that others read."""
        needed: set[Node] = set()
        for node in (*self.graph.outputs, *self.checks):
            needed.add(Operand(node).base)
        for unit in self.units:
            for node in unit.nodes:
                for i in node.inputs:
                    if type(i) is Node:
                        base = Operand(i).base
                        here = isinstance(unit, Group) and (
                            base in unit.home or inlined(base)
                        )
                        if self.unit.get(base) is not unit and not here:
                            needed.add(base)
        for unit in self.units:
            if isinstance(unit, Group):
                _pick_all(unit)
                unit.outputs = [
                    n for n in unit.nodes if n in needed and self.unit[n] is unit
                ]
        self.units = [u for u in self.units if isinstance(u, Call) or u.outputs]


def _pick_all(group: Group) -> None:
    """Add the outputs of a node with several that nobody reads: they are written."""
    first = group.nodes[0]
    if type(first.type) is tuple:
        known = {n.params["index"] for n in group.nodes[1:]}
        for k, kind in enumerate(first.type):
            if k not in known:
                name = f"{first.name}/{k}"
                one = Node(PICK, (first,), {"index": k}, kind, name, (), first.module,
                           first.code, first.lasti, first.role.part)  # fmt: skip
                group.add(one, (), row=False)


def fuse(graph: Graph, supported: Supported) -> list[Unit]:
    """The units of a graph, in executable order."""
    return Fusion(graph, supported).units

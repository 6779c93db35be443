"""Groups that are alike: one kernel, lowered and proven once.

The layers of a model are alike, and so are the steps of an unrolled loop: they differ
in the values that they read, and in the offsets into these.

    h[i, j] + x[i + 32, j]       the same kernel for both, which is given
    h[i, j] + x[i + 64, j]       the address of x's row 32, or 64

A value that is read from its beginning is passed whole. Of any other, the kernel is
given a ``Window``: from the offset to the last element that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from weft.compile.fusion.elements import lowering_of
from weft.compile.fusion.groups import Group, Index, Operand, inlined, operands_of
from weft.compile.loop.depend import flat_position
from weft.compile.loop.ir import Kernel
from weft.compile.loop.ranges import Range, at_most, index_range
from weft.compile.loop.text import kernel_key
from weft.compile.lower.group import lower
from weft.compile.passes.cse import key_of
from weft.compile.program.steps import GroupKernel
from weft.compile.targets import Target
from weft.compile.tuning.choices import Loops, chosen, threaded
from weft.core.lowering import Filled, Pointwise, Reduction
from weft.core.size import Size, same
from weft.graph.ir import CONSTANT, GraphError, Node


class Window(NamedTuple):
    """A window of a value's memory, from an index on; leading axes are merged.

    Of ``x: float32[8, 4, 16]``, ``x[:, 2]`` begins at (0, 2, 0) and reaches over
    ``29`` rows of 16: ``x[i, 2, j]`` is the window's element ``[4*i, j]``.
    """

    start: tuple[int, ...]
    rows: Any  # how far it reaches, in elements of the leading axes together
    axes: int  # how many axes these are

    def shape(self, shape: Index) -> Index:
        """The shape of the memory that a kernel sees."""
        return (self.rows, *shape[self.axes :])

    def translate(self, index: Index, shape: Index) -> Index:
        """An index into the value, as one into the window."""
        at = tuple(i - s for i, s in zip(index, self.start, strict=True))
        return (flat_position(at[: self.axes], shape[: self.axes]), *at[self.axes :])

    def offset(self, shape: Index) -> Any:
        """The offset of the window, in elements."""
        return flat_position(self.start, shape)


Windows = dict[Node, Window]
Make = Callable[[Group, Windows], tuple[Any, list[Node]]]


class KernelTable:
    """Kernels by the likeness of their groups."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._made: dict[Any, tuple[Any, list[Any], bool]] = {}
        self.cuts: dict[int, tuple[str, Loops]] = {}  # by a body's identity
        self._texts: dict[int, tuple[Any, str]] = {}  # by a body's identity

    def lowered(
        self, group: Group, make: Make | None = None, kind: Any = None
    ) -> GroupKernel:
        """A group's kernel, its buffers' values, and where in these they begin.

        ``make`` lowers in a way that ``kind`` names.
        """
        like = Likeness(group)
        key = (kind, like.key)
        entry = self._made.get(key)
        if entry is None:
            kernel, owners = (make or self._chosen)(group, like.windows)
            places = [like.numbers.get(n, n) for n in owners]
            entry = self._made[key] = kernel, places, kernel.checks
        kernel, places, checks = entry
        nodes = list(like.numbers)
        owners = [p if isinstance(p, Node) else nodes[p] for p in places]
        offsets = [like.offsets.get(n, 0) for n in owners]
        return GroupKernel(kernel, owners, offsets if any(offsets) else (), checks)

    def _chosen(self, group: Group, windows: Windows) -> tuple[Any, list[Node]]:
        """A group's kernel, with the tuned numbers of its schedule."""
        kernel, owners = lower(group, "kernel", windows, target=self.target)
        key = threaded(f"loops {self.text(kernel)}")
        cuts = chosen(key, Loops())
        if cuts != Loops():
            kernel, owners = lower(group, "kernel", windows, cuts, self.target)
        self.cuts[id(kernel.body)] = key, cuts
        return kernel, owners

    def succeed(self, before: Kernel, after: Kernel) -> None:
        """Give a kernel the key of the one that it was made from."""
        if id(before.body) in self.cuts:
            self.cuts[id(after.body)] = self.cuts[id(before.body)]

    def cut(self, kernel: Kernel) -> tuple[str, Loops]:
        """The key of a kernel's choice, and the numbers of its schedule."""
        return self.cuts.get(id(kernel.body), ("", Loops()))

    def text(self, kernel: Kernel) -> str:
        """A text that is equal for kernels that do the same, made once for a body."""
        found = self._texts.get(id(kernel.body))
        if found is None:
            text = kernel_key(kernel._replace(shared=()))
            found = self._texts[id(kernel.body)] = kernel.body, text
        return f"{found[1]}\n{kernel.shared}" if kernel.shared else found[1]


class Likeness:
    """The structure of a group that decides its kernel: alike ones have one ``key``.

    ``numbers`` are their values, in the same order for both.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.numbers: dict[Node, int] = {}
        self.uses: dict[Node, list[Index]] = {}  # by what is read: at which indices
        self.fixed: set[Node] = set()  # read at indices that a rule makes
        self.windows: Windows = {}
        self.offsets: dict[Node, int] = {}  # in bytes
        self.outputs = {*group.outputs}
        nodes = tuple([self._node(n) for n in group.nodes])
        reads = tuple([self._reads(b, uses) for b, uses in self.uses.items()])
        self.key = (_indices(group.shape), group.reduced, group.alone, nodes, reads)

    def _number(self, node: Node) -> int:
        return self.numbers.setdefault(node, len(self.numbers))

    def _node(self, node: Node) -> Any:
        group, rule = self.group, lowering_of(node)
        at: Index | None = None  # not known: what a rule makes of the node's own
        if isinstance(rule, Reduction):
            at = group.vars
        elif isinstance(rule, Pointwise):
            at = group.home[node]
        pairs = zip(node.inputs, group.operands[node], strict=True)
        return (
            node.op, _params(node), *_kind(node),
            self._number(node), node in group.rows, node in self.outputs,
            _indices(group.home[node]), *[self._operand(i, o, at) for i, o in pairs],
        )  # fmt: skip

    def _operand(self, given: Any, operand: Any, at: Index | None) -> Any:
        if not isinstance(operand, Operand):
            return key_of(given)
        base, kind = operand.base, _kind(given)
        if base in self.group.home:
            views = _views(operand) if at is None else ()
            return "inside", self._number(base), kind, views
        if base.op is CONSTANT and base.params["value"].ndim == 0:
            return "number", base.dtype, key_of(base.params["value"]), kind
        if inlined(base):
            return self._inlined(operand, at), kind
        found = self.uses.setdefault(base, [])
        if at is None:
            self.fixed.add(base)
            return "read", self._number(base), kind, _views(operand)
        found.append(operand.index(at))
        return "read", self._number(base), kind, len(found)

    def _inlined(self, operand: Operand, at: Index | None) -> Any:
        """The key of a value that is recomputed where it is used."""
        base = operand.base
        if isinstance(base.op.lower, Filled):
            where = _views(operand) if at is None else _indices(operand.index(at))
            return base.op, _params(base), base.dtype, _indices(base.shape), where
        pairs = zip(base.inputs, operands_of(base), strict=True)
        return base.op, base.dtype, *[self._operand(i, o, ()) for i, o in pairs]

    def _reads(self, base: Node, uses: list[Index]) -> Any:
        """A value that is read: its type, and the indices from where it begins."""
        window = None if base in self.fixed else self._window(base, uses)
        kind = base.dtype, _indices(base.shape)
        if window is None:
            return kind, tuple(map(_indices, uses))
        self.windows[base] = window
        self.offsets[base] = window.offset(base.shape) * base.dtype.itemsize
        moved = [tuple(map(_minus, index, window.start)) for index in uses]
        rows = _indices((window.rows,))
        return kind, window.axes, rows, tuple(map(_indices, moved))

    def _window(self, base: Node, uses: list[Index]) -> Window | None:
        """The window of a value that is read, if known and not at the beginning."""
        if all(_plain(i) for index in uses for i in index):
            return None
        try:
            spans = [self._span(axis) for axis in zip(*uses, strict=True)]
        except GraphError:
            return None
        start = tuple([low if _positive(low) else 0 for low, _ in spans])
        axes = max((d + 1 for d, n in enumerate(start) if n), default=0)
        window = Window(start, 1, axes)
        inside = all(
            at_most(0, low) and at_most(high + 1, n)
            for (low, high), n in zip(spans, base.shape, strict=True)
        )
        if not axes or not inside or isinstance(window.offset(base.shape), Size):
            return None
        last = window.translate(tuple([high for _, high in spans]), base.shape)
        return window._replace(rows=last[0] + 1)

    def _span(self, indices: Iterable[Any]) -> Range:
        """The least and the greatest of some indices."""
        ends = [index_range(i, self.group.scope.bounds) for i in indices]
        lows, highs = zip(*ends, strict=True)
        return _extreme(min, lows), _extreme(max, highs)


def _extreme(choose: Callable[[Any], Any], ends: tuple[Any, ...]) -> Any:
    first, *others = ends
    if all(same(first, other) for other in others):
        return first
    if any(isinstance(n, Size) for n in ends):
        raise GraphError("which is the last is not known")
    return choose(ends)


def _plain(index: Any) -> bool:
    """Whether an index obviously begins at 0, as most do."""
    return len(index.terms) == 1 if type(index) is Size else index == 0


def _positive(low: Any) -> bool:
    return not isinstance(low, Size) and low > 0


def _minus(index: Any, start: int) -> Any:
    return index - start if start else index


def _indices(index: Index) -> Any:
    """Keys of indices or sizes, which ask nothing of symbolic ones."""
    for i in index:
        if type(i) is Size:
            return tuple([i.terms if type(i) is Size else i for i in index])
    return tuple(index)


def _kind(node: Node) -> Any:
    """The key of a node's type, or of those of all its outputs."""
    if type(node.type) is tuple:
        return tuple([(one.dtype, _indices(one.shape)) for one in node.type])
    return node.dtype, _indices(node.shape)


def _params(node: Node) -> Any:
    return tuple([(name, key_of(value)) for name, value in node.params.items()])


def _views(operand: Operand) -> Any:
    """The views between a value and who reads it."""
    return tuple(
        [(v.op, _params(v), _indices(v.inputs[0].shape)) for v in operand.views]
    )

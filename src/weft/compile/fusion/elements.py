"""The vocabulary of lowering rules, on symbolic indices: see ``core.lowering``.

A ``Builder`` makes values of the Loop IR for one node at one index.
"""

from __future__ import annotations

from typing import Any

from weft import dtype as dtypes
from weft.compile.loop.ir import Call, Choice, Const, Let, Load, Position, facts_of
from weft.compile.loop.ranges import index_range
from weft.core.lowering import Library, Reduction, Varied
from weft.core.size import Size
from weft.dtype import DType
from weft.graph.ir import GraphError, Node

Index = tuple[Any, ...]


def lowering_of(node: Node) -> Any:
    """The rule by which loops compute a node's elements, for its shapes and dtypes."""
    rule = node.op.lower
    if isinstance(rule, Library):
        return None
    if isinstance(rule, Reduction) and node.inputs[0].dtype.is_complex:
        return None  # not even whether any of them is true
    if isinstance(rule, Varied):
        shapes = [i.shape if type(i) is Node else () for i in node.inputs]
        return rule.choose(*shapes, **node.params)
    return rule


def _below(at: Any, bound: Any, limits: dict[str, Any]) -> bool | None:
    """Whether an index is always, or never, below a bound."""
    try:
        least, most = index_range(at, limits)
    except GraphError:
        return None
    if not isinstance(most - bound, Size) and most - bound < 0:
        return True
    return False if not isinstance(least - bound, Size) and least >= bound else None


class Input:
    """An input of a node: ``x[index]`` is its element."""

    def __init__(self, build: Builder, number: int) -> None:
        value = build.node.inputs[number]
        self.build = build
        self.number = number
        self.dtype = value.dtype if type(value) is Node else build.node.dtype
        self.shape = build.sizes(value.shape) if type(value) is Node else ()

    def __getitem__(self, index: Index) -> Any:
        return self.build.read(self.number, index)


class Table:
    """A constant array: ``t[index]`` is its element."""

    def __init__(self, buffer: Any, build: Builder) -> None:
        self.buffer = buffer
        self.build = build

    def __getitem__(self, index: Index) -> Any:
        return Load(self.buffer, self.build.sizes(index))


class Builder:
    """Expressions for one node's element; ``lower`` is the lowering of its group."""

    def __init__(self, lower: Any, node: Node, stage: int, memo: dict[Any, Any]):
        self.lower = lower
        self.node = node
        self.stage = stage
        self.memo = memo
        self.dtype = node.dtype
        self.inputs = [Input(self, k) for k in range(len(node.inputs))]

    def value(self, rule: Any, *args: Any) -> Any:
        """A rule's expression, for the node's inputs and parameters."""
        return rule(self, *args, *self.inputs, **self.node.params)

    def sizes(self, shape: Index) -> Index:
        return self.lower._sizes(shape)

    def read(self, number: int, index: Index) -> Any:
        return self.lower.read(self.node, number, index, self.stage, self.memo)

    def number(self, value: Any, dtype: DType | None = None) -> Any:
        return Const(value, dtype or self.dtype)

    def at(self, index: Any) -> Any:
        """An index as a value."""
        if isinstance(index, Size):
            return Position(self.sizes((index,))[0], dtypes.int64)
        return Const(index, dtypes.int64)

    def flat(self, out: Index) -> Any:
        """The position of an index of the node in row-major order."""
        return self.lower.flat_index(self.node, out)

    def call(self, name: str, *args: Any, dtype: DType | None = None) -> Any:
        if dtype is None:
            tells = facts_of(name).returns == "bool"
            dtype = dtypes.bool_ if tells else args[-1].dtype
        return Call(name, args, dtype)

    def choice(self, at: Any, bound: Any, low: Any, high: Any) -> Any:
        """``low`` where an index is below a bound, else ``high``."""
        at, bound = self.sizes((at, bound))
        always = _below(at, bound, self.lower.group.scope.bounds)
        if always is None:
            return Choice(at, bound, low, high)
        return low if always else high

    def table(self, array: Any) -> Table:
        """A constant array to read from."""
        return Table(self.lower.buffer(self.lower.constant(array)), self)

    def listed(self, array: Any, index: Index, size: int) -> Any:
        """An element of a list of indices, all known to be below a size."""
        if array.size and not 0 <= array.min() <= array.max() < size:
            raise GraphError(f"{self.node.op.name}: a list has indices beyond {size}")
        return self._index(self.table(array)[index], size, sure=True)

    def within(
        self, value: Any, size: Any, *, wrap: bool = False, known: bool = False
    ) -> Any:
        """A value as an index, which is checked to be below a size.

        One that is known to be inside is not checked, but kept there all the same.
        """
        (size,) = self.sizes((size,))
        if not known:
            return self._index(value, size, wrap=wrap)
        return self._index(self._kept(value, size, wrap), size, sure=True)

    def _kept(self, value: Any, size: Any, wrap: bool) -> Any:
        zero, limit = self.at(0), self.at(size)
        value = Call("cast", (value,), dtypes.int64)
        if wrap:
            wrapped = self.call("add", value, limit)
            value = self.call("where", self.call("lt", value, zero), wrapped, value)
        last = self.call("sub", limit, self.at(1))
        return self.call("maximum", self.call("minimum", value, last), zero)

    def _index(self, value: Any, size: Any, **how: bool) -> Any:
        name = value if isinstance(value, Load) else id(value)
        key = ("within", name, str(size), *how.items())
        symbol = self.memo.get(key)
        if symbol is None:
            symbol = self.lower.new_index(size)
            self.lower.lets.append(Let(symbol.symbol_name, value, size, **how))
            self.memo[key] = symbol
        return symbol

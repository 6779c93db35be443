"""Sorting a line of elements: where each one goes, without comparing most of them.

    short lines    an element's rank is the number of those that come before it
    others         by one digit of the keys after the other, from the lowest: how often
                   each digit occurs says where the first element with it goes

The first few of a line alone are found in one pass, in which they are kept in order.

Keys are whole numbers in the order of the elements (see ``emit.sort_keys``), NaN last;
equal ones stay in the order they came in.
"""

from __future__ import annotations

from typing import Any

from weft import dtype as dtypes
from weft.compile import targets
from weft.compile.fusion.elements import Builder
from weft.compile.loop.ir import (
    Buffer,
    Call,
    Const,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Position,
    Set,
    Store,
    When,
)
from weft.compile.lower.base import Lowering
from weft.core.lowering import key_dtype
from weft.core.op import TensorType
from weft.dtype import DType
from weft.graph.ir import Node


class _LineLoops(Lowering):
    """One node; a row of the kernel is one line along its axis."""

    def loops(self) -> Kernel:
        (self.node,) = self.group.nodes
        self.dim = self.node.params["dim"]
        sizes = self._sizes(self.node.inputs[0].shape)
        self.size = sizes[self.dim]
        kept = [d for d in range(len(sizes)) if d != self.dim]
        self.lead = tuple(self.group.vars[d] for d in kept)
        self.lines = tuple(sizes[d] for d in kept)
        self.out = self.buffer(self.node)
        self.along = self._variable(f"i{self.dim}", self.size)
        return self._made(tuple((f"i{d}", sizes[d]) for d in kept), self.line())

    def line(self) -> list[Any]:
        """The statements for one line."""
        raise NotImplementedError

    def _variable(self, name: str, size: Any) -> Any:
        self.group.scope.bounds[name] = size
        return self.group.scope.symbol(name)

    def _each(self, body: list[Any]) -> For:
        """A loop over the line."""
        return For(f"i{self.dim}", self.size, body)

    def _key(self, *, descending: bool) -> Any:
        """The key of the element that a loop over the line is at."""
        build = Builder(self, self.node, 0, {})
        at = list(self.group.vars)
        at[self.dim] = self.along
        value = build.inputs[0][tuple(at)]
        found = Call("sort_key", (value,), key_dtype(value.dtype))
        return Call("bitwise_not", (found,), found.dtype) if descending else found

    def _stored(self, position: Any, value: Any) -> Store:
        """Store a result at a position of the line."""
        at = list(self.group.vars)
        at[self.dim] = position
        return Store(self.out, tuple(at), value)


class TopLoops(_LineLoops):
    """The first few of each line, kept in order while the line is read."""

    def line(self) -> list[Any]:
        key = self._key(descending=self.node.params["largest"])
        count = self.node.params["k"]
        keys, places = (
            Buffer(name, (count,), kind, scratch=True)
            for name, kind in (("keys", key.dtype), ("places", dtypes.int64))
        )
        self.scratch += [keys, places]
        mine, last = Local("mine", key.dtype), Local("last", key.dtype)
        early = _compared("lt", self.along, count)
        enters = Call("lt", (mine, last), dtypes.bool_)
        t = self._variable("t", count)
        return [
            Set(last, Const(0, key.dtype)),
            self._each(
                [
                    Set(mine, key),
                    When(
                        _either(enters, early), self._entered(keys, places, mine, last)
                    ),
                ]
            ),
            For("t", count, [self._stored(t, Load(places, (t,)))]),
        ]

    def _entered(
        self, keys: Buffer, places: Buffer, mine: Local, last: Local
    ) -> list[Any]:
        """Insert an element; those behind it move on by one."""
        (count,) = keys.shape
        t = self.group.scope.symbol("t")
        from_ = Local("from", dtypes.int64)
        here, position = Local("here", keys.dtype), Local("place", dtypes.int64)
        lower = Local("lower", dtypes.bool_)
        less = Call("lt", (mine, here), dtypes.bool_)
        empty = _compared("ge", t, self.along)
        moves = [
            Set(here, Load(keys, (t,))),
            Set(position, Load(places, (t,))),
            Set(lower, _either(lower, _either(less, empty))),
            Store(keys, (t,), _chosen(lower, mine, here)),
            Store(places, (t,), _chosen(lower, from_, position)),
            Set(last, _chosen(lower, mine, here)),
            Set(mine, _chosen(lower, here, mine)),
            Set(from_, _chosen(lower, position, from_)),
        ]
        return [
            Set(from_, Position(self.along, dtypes.int64)),
            Set(lower, Const(False, dtypes.bool_)),
            For("t", count, moves),
        ]


class SortLoops(_LineLoops):
    """Each line as a whole."""

    def line(self) -> list[Any]:
        key = self._key(descending=self.node.params["descending"])
        most = targets.current().cost.ordering.pairs
        short = isinstance(self.size, int) and self.size <= most
        return self._by_pairs(key) if short else self._by_digits(key)

    # -- comparing all

    def _by_pairs(self, key: Any) -> list[Any]:
        i = self.along
        keys = Buffer("keys", (self.size,), key.dtype, scratch=True)
        self.scratch.append(keys)
        mine, rank = Local("mine", key.dtype), Local("rank", dtypes.int32)
        t = self._variable("t", self.size)
        before = _counted(rank, "le", Load(keys, (t,)), mine)
        behind = _counted(rank, "lt", Load(keys, (t + (i + 1),)), mine)
        position = self.new_index(self.size)
        rest = self.size - 1 - i
        return [
            self._each([Store(keys, (i,), key)]),
            self._each(
                [
                    Set(mine, Load(keys, (i,))),
                    Set(rank, Const(0, rank.dtype)),
                    For("t", i, [before]),
                    For("t", rest, [behind]),
                    Let(position.symbol_name, rank, self.size),
                    self._stored(position, Position(i, dtypes.int64)),
                ]
            ),
        ]

    # -- digit by digit

    def _by_digits(self, key: Any) -> list[Any]:
        known = isinstance(self.size, int)
        long = known and self.size >= targets.current().cost.ordering.long
        self.bits = 11 if long else 8
        self.kinds = 1 << self.bits  # digits there are
        rounds = -(-_key_bits(self.node.inputs[0].dtype) // self.bits)
        whole = dtypes.int32 if known and self.size < 1 << 31 else dtypes.int64
        self.counts = Buffer("counts", (rounds * self.kinds,), whole, scratch=True)
        self.scratch.append(self.counts)
        line = _Line(key, Position(self.along, dtypes.int64), None)
        body = [*self._counting(line.key, rounds)]
        spare = [self._spare(k, key.dtype, whole) for k in range(min(rounds - 1, 2))]
        for digit_number in range(rounds):
            last = digit_number == rounds - 1
            to = None if last else spare[digit_number % 2]
            body += self._pass(digit_number, line, to)
            line = line if to is None else to
        return body

    def _spare(self, k: int, key: DType, whole: DType) -> _Line:
        """Memory for a line of keys, and where each came from."""
        keys = self._scratch(f"keys{k}", key)
        places = self._scratch(f"places{k}", whole)
        at = (*self.lead, self.along)
        return _Line(Load(keys, at), Load(places, at), (keys, places))

    def _scratch(self, name: str, dtype: DType) -> Buffer:
        """A scratch buffer of the kernel."""
        shape = (*self.lines, self.size)
        node = Node(self.node.op, (), {}, TensorType(shape, dtype), name)
        self.group.home[node] = (*self.lead, self.along)
        return self.buffer(node)

    def _counting(self, key: Any, rounds: int) -> list[Any]:
        """Count how often each digit occurs, at every digit position of the keys."""
        total = self._variable("c", rounds * self.kinds)
        body: list[Any] = []
        for digit_number in range(rounds):
            digit = self.new_index(self.kinds)
            at = (digit + digit_number * self.kinds,)
            body += [
                Let(digit.symbol_name, self._digit(key, digit_number), self.kinds),
                Store(self.counts, at, _plus_one(Load(self.counts, at))),
            ]
        zero = Store(self.counts, (total,), Const(0, self.counts.dtype))
        return [For("c", rounds * self.kinds, [zero]), self._each(body)]

    def _digit(self, key: Any, digit_number: int) -> Any:
        shift = Const(digit_number * self.bits, dtypes.int64)
        kinds = Const(self.kinds - 1, dtypes.int64)
        return Call("sort_digit", (key, shift, kinds), dtypes.int64)

    def _pass(self, digit_number: int, given: _Line, to: _Line | None) -> list[Any]:
        """One pass: all elements, in the order of one more digit."""
        kind = self.counts.dtype
        total, most, here = (Local(n, kind) for n in ("total", "most", "here"))
        at = (self._variable("d", self.kinds) + digit_number * self.kinds,)
        sums = [
            Set(here, Load(self.counts, at)),
            Store(self.counts, at, total),
            Set(total, Call("add", (total, here), kind)),
            Set(most, Call("maximum", (most, here), kind)),
        ]
        alike = Call("eq", (most, total), dtypes.bool_)  # one digit is that of all
        differ = Call("logical_not", (alike,), dtypes.bool_)
        return [
            Set(total, Const(0, kind)),
            Set(most, Const(0, kind)),
            For("d", self.kinds, sums),
            When(alike, [self._each(self._moved(self.along, given, to))]),
            When(differ, [self._each(self._dealt(digit_number, given, to))]),
        ]

    def _dealt(self, digit_number: int, given: _Line, to: _Line | None) -> list[Any]:
        digit, position = self.new_index(self.kinds), self.new_index(self.size)
        at = (digit + digit_number * self.kinds,)
        next_ = Local("next", self.counts.dtype)
        return [
            Let(digit.symbol_name, self._digit(given.key, digit_number), self.kinds),
            Set(next_, Load(self.counts, at)),
            Store(self.counts, at, _plus_one(next_)),
            Let(position.symbol_name, next_, self.size),
            *self._moved(position, given, to),
        ]

    def _moved(self, position: Any, given: _Line, to: _Line | None) -> list[Any]:
        """Store an element at a position; in the result, after the last digit."""
        if to is None:
            return [self._stored(position, _as(given.position, dtypes.int64))]
        assert to.memory is not None
        keys, places = to.memory
        at = (*self.lead, position)
        return [
            Store(keys, at, given.key),
            Store(places, at, _as(given.position, places.dtype)),
        ]


class _Line:
    """The elements of a line in some order: a key, and where it came from."""

    def __init__(self, key: Any, position: Any, memory: Any) -> None:
        self.key = key
        self.position = position
        self.memory: tuple[Buffer, Buffer] | None = memory


def _key_bits(dtype: DType) -> int:
    """The number of bits in which keys differ."""
    if dtype is dtypes.bool_:
        return 1
    return 32 if dtype.is_inexact and dtype.itemsize < 4 else dtype.itemsize * 8


def _counted(count: Local, name: str, key: Any, mine: Local) -> Set:
    """Count one more, where a key compares so to another."""
    hit = Call(name, (key, mine), dtypes.bool_)
    one = Call("cast", (hit,), count.dtype)
    return Set(count, Call("add", (count, one), count.dtype))


def _plus_one(value: Any) -> Call:
    return Call("add", (value, Const(1, value.dtype)), value.dtype)


def _as(value: Any, dtype: DType) -> Any:
    return value if value.dtype is dtype else Call("cast", (value,), dtype)


def _compared(name: str, a: Any, b: Any) -> Call:
    """The comparison of two indices."""
    pair = (_position(a), _position(b))
    return Call(name, pair, dtypes.bool_)


def _position(index: Any) -> Any:
    if isinstance(index, int):
        return Const(index, dtypes.int64)
    return Position(index, dtypes.int64)


def _either(a: Any, b: Any) -> Call:
    return Call("logical_or", (a, b), dtypes.bool_)


def _chosen(condition: Any, a: Any, b: Any) -> Call:
    return Call("where", (condition, a, b), a.dtype)

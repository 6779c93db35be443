"""Attention and its gradients by tensor cores, without storing the scores.

A block has queries of its own, and walks over the keys and values; in the gradients of
keys and values it has those, and walks over the queries. The scores of its rows with
some of the others are in registers: see ``weft.ops.attention`` for the formulas.

    forward    S = Q K^T          O += P V            P from the largest score so far
    queries    S = Q K^T          dQ += dS K          P from lse
    keys       S^T = K Q^T        dV += P^T G         dK += dS^T Q

Sums are made in a fixed order: two kernels compute the scores for the gradients twice,
rather than that blocks add to one another's results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from llvmlite import ir

from weft.compile.emit.control_flow import F32, I8, I32, I64, VOID, loop, when
from weft.compile.emit.values import Value, fma, intrinsic, select
from weft.compile.targets.cuda.cost_model import COST, Attention
from weft.compile.targets.cuda.kernel import barrier, special
from weft.compile.targets.cuda.tensor_cores import (
    Threads,
    Tile,
    copy_later,
    end_copies,
    exp2,
    load_pair,
    multiply_add,
    of_other_lane,
    shortened,
    wait_for_copies,
)

INPUTS = {"forward": ("q", "k", "v"), **dict.fromkeys(
    ("queries", "keys"), ("q", "k", "v", "lse", "g", "delta")
)}  # fmt: skip
OUTPUTS = {"forward": ("o", "lse"), "queries": ("dq",), "keys": ("dk", "dv")}
ARRAYS = {kind: (*INPUTS[kind], *OUTPUTS[kind]) for kind in INPUTS}
SIZES = ("scale", "m", "n", "depth", "inner")  # the scale as the bits of a double
STRIDES = ("outer", "inner", "row")  # of each array, in elements
DEPTHS = (64, 128)  # features of a row in a block's memory
LOG2E = math.log2(math.e)


class Form(NamedTuple):
    """Which function it is."""

    kind: str  # of ARRAYS
    dtype: str
    depth: int  # one of DEPTHS
    causal: bool

    @property
    def name(self) -> str:
        causal = "causal_" * self.causal
        return f"attention_{causal}{self.kind}_{self.dtype}_{self.depth}"

    @property
    def shape(self) -> Attention:
        return COST.attention[self.kind, self.depth]

    @property
    def rows(self) -> int:
        """The rows of a block's own."""
        return 16 * self.shape.tiles * self.shape.warps

    @property
    def block_memory(self) -> int:
        """The bytes that a block's threads share."""
        own = 1 if self.kind == "forward" else 2
        streamed = 2 * (2 * self.shape.step * self.depth * 2)
        return own * self.rows * self.depth * 2 + streamed + 2 * 8 * self.shape.step


def emit_attention(module: ir.Module, form: Form) -> None:
    """Add one of the three kernels to a module."""
    kernel = _Kernel(module, form)
    {"forward": _forward, "queries": _gradients, "keys": _gradients}[form.kind](kernel)
    kernel.b.ret_void()


class _Array(NamedTuple):
    """One matrix of an array: where it begins, and the bytes from row to row."""

    start: Value
    pitch: Value


Sums = list[list[list[Value]]]  # a tile, of 8 columns, the thread's four numbers


class Scores:
    """What a thread knows of its scores: which rows they are of, and which are hidden.

    Its rows are among ``extent`` ones from ``first`` on, those of ``own_rows``.
    """

    b: Any
    form: Any  # its kind, and whether queries see earlier keys alone
    at: dict[str, Value]  # the arguments by name
    arrays: dict[str, _Array]
    pair: Value  # the first column of a thread, of 8
    step: int  # other rows at a time
    first: Value
    extent: int

    def describe(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Take the arguments."""
        b = self.b
        self.at = {n: Value(b, v) for n, v in zip(names, values, strict=True)}
        self.m, self.n, self.width = self.at["m"], self.at["n"], self.at["depth"]
        self.scale = self.at["scale"].as_float().to_single()
        self.factor = self.scale * LOG2E  # powers of two are cheaper
        of_keys = self.form.kind == "keys"
        self.own_limit, self.limit = (self.n, self.m) if of_keys else (self.m, self.n)

    def own_rows(self, tile: int) -> list[Value]:
        """The two rows of a tile that a thread has sums of, as 64-bit numbers."""
        raise NotImplementedError

    def divided(self, x: Value, by: Any) -> Value:
        return Value(self.b, self.b.udiv(x.ir, x.like(by).ir))

    def matrix(self, name: str, outer: Value, inner: Value) -> _Array:
        """A matrix of an array, by its numbers."""
        size = 4 if name in ("lse", "delta") else 2
        far, near, row = (self.at[f"{name}.{kind}"] for kind in STRIDES)
        start = self.at[name] + (outer * far + inner * near) * size
        return _Array(start, row * size)

    def number_of(self, name: str, row: Value) -> Value:
        """A number of a row of the block's own; zero outside."""
        array, b = self.arrays[name], self.b
        place = select(row < self.own_limit, array.start + row * array.pitch,
                       array.start)  # fmt: skip
        return Value(b, b.load(b.inttoptr(place.ir, F32.as_pointer(1))))

    def steps(self, first: Value, rows: int) -> tuple[Value, Value]:
        """Which steps of other rows the own rows from ``first`` on need."""
        start = Value(self.b, I64(0))
        stop = self.divided(self.limit + (self.step - 1), self.step)
        if self.form.causal and self.form.kind == "keys":
            start = self.divided(first, self.step)
        elif self.form.causal:
            seen = self.divided(first + (rows + self.step - 1), self.step)
            stop = select(seen < stop, seen, stop)
        return start, stop

    def hide(self, sums: Sums, first: Value, value: float) -> Sums:
        """The scores, with ``value`` for keys that a query does not see."""
        b, form = self.b, self.form
        of_keys = form.kind == "keys"
        if of_keys and not form.causal:
            return sums
        last = first + self.step
        some: Any = None if of_keys else (last > self.n).ir
        if form.causal:
            crosses = (
                first < self.first + (self.extent - 1) if of_keys
                else last > self.first + 1
            ).ir  # fmt: skip
            some = crosses if some is None else b.or_(some, crosses)
        kept = Variables(b, sums)
        with when(b, some):
            column = first + self.pair.convert("zext", I64)
            changed = []
            for tile, one in enumerate(kept.load()):
                rows = self.own_rows(tile)
                changed.append([
                    [select(self._hidden(rows[k // 2], column + (8 * at + k % 2)),
                            value, number) for k, number in enumerate(four)]
                    for at, four in enumerate(one)
                ])  # fmt: skip
            kept.store(changed)
        return kept.load()

    def _hidden(self, row: Value, column: Value) -> Value:
        if self.form.kind == "keys":
            return row > column
        beyond = column >= self.n
        if not self.form.causal:
            return beyond
        return Value(self.b, self.b.or_(beyond.ir, (column > row).ir))

    def wanted(self, name: str) -> Any:
        """Whether a result has memory: those that nobody reads have not."""
        return self.b.icmp_signed("!=", self.at[name].ir, I64(0))


class _Kernel(Scores):
    """The parts that all three share: arguments, tiles, the walk over other rows."""

    def __init__(self, module: ir.Module, form: Form) -> None:
        self.form, self.shape = form, form.shape
        names = ARRAYS[form.kind]
        strides = [f"{name}.{kind}" for name in names for kind in STRIDES]
        arguments = [*names, *SIZES, *strides]
        kind = ir.FunctionType(VOID, [I64] * len(arguments))
        function = ir.Function(module, kind, form.name)
        function.calling_convention = "ptx_kernel"
        b = self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.describe(arguments, function.args)
        thread = Value(b, b.trunc(special(b, "tid.x"), I32))
        self.threads = Threads(b, thread, 32 * self.shape.warps)
        self.pair, self.step = self.threads.pair, self.shape.step
        self.extent = form.rows
        self._place(form.kind == "keys")
        self._tiles(module)

    def _place(self, of_keys: bool) -> None:
        """Which rows of which matrices: those with most work come first."""
        b, rows = self.b, self.form.rows
        block = Value(b, special(b, "ctaid.x"))
        count = self.divided(self.own_limit + (rows - 1), rows)
        matrix = Value(b, b.udiv(block.ir, count.ir))
        number = block - matrix * count
        if self.form.causal and not of_keys:
            number = count - 1 - number
        self.first = number * rows
        outer = Value(b, b.udiv(matrix.ir, self.at["inner"].ir))
        inner = matrix - outer * self.at["inner"]
        self.arrays = {
            name: self.matrix(name, outer, inner) for name in ARRAYS[self.form.kind]
        }

    def _tiles(self, module: ir.Module) -> None:
        """The block's memory: its own rows, and two stages of others."""
        kind = ir.ArrayType(I8, 0)
        memory = ir.GlobalVariable(module, kind, "attention_memory", addrspace=3)
        memory.align = 128
        place = Value(self.b, self.b.trunc(self.b.ptrtoint(memory, I64), I32))
        depth, step = self.form.depth, self.shape.step
        self.own = []
        for _ in range(1 if self.form.kind == "forward" else 2):
            self.own.append(Tile(self.threads, place, self.form.rows, depth))
            place = place + self.own[-1].nbytes
        self.others = []
        for _ in range(2):
            self.others.append(Tile(self.threads, place, step, depth))
            place = place + self.others[-1].nbytes
        self.numbers = place  # of rows: lse and delta
        self.stage = 2 * self.others[0].nbytes + 8 * step

    # -- own rows

    def load_own(self, *names: str) -> list[list[list[list[Value]]]]:
        """The left operands of a thread: of each array, each tile, each 16 features."""
        for tile, name in zip(self.own, names, strict=True):
            array = self.arrays[name]
            tile.fill(array.start, array.pitch, self.first, self.own_limit, self.width)
        end_copies(self.b)
        wait_for_copies(self.b)
        barrier(self.b)
        row = self.threads.warp * (16 * self.shape.tiles)
        return [
            [[tile.left(row + 16 * k, column) for column in range(0, tile.width, 16)]
             for k in range(self.shape.tiles)]
            for tile in self.own
        ]  # fmt: skip

    def own_rows(self, tile: int) -> list[Value]:
        """The two rows of a tile that a thread has sums of, as 64-bit numbers."""
        t = self.threads
        row = t.warp * (16 * self.shape.tiles) + (t.row + 16 * tile)
        first = self.first + row.convert("zext", I64)
        return [first, first + 8]

    # -- the walk

    @contextmanager
    def walk(self, names: Sequence[str]) -> Any:
        """The loop over other rows: the first of a step, its tiles and its numbers."""
        b, step = self.b, self.step
        start, stop = self.steps(self.first, self.form.rows)
        self._fetch(names, start)
        with loop(b, start.ir, stop.ir, name="other") as i:
            number = Value(b, i)
            wait_for_copies(b)
            barrier(b)
            self._fetch(names, number + 1)
            shift = self._shift(number)
            tiles = [tile.at(tile.place + shift) for tile in self.others]
            yield number * step, tiles, self.numbers + shift
        wait_for_copies(b)

    def _shift(self, number: Value) -> Value:
        return (number & 1).convert("trunc", I32) * self.stage

    def _fetch(self, names: Sequence[str], number: Value) -> None:
        """Begin to copy the rows of a step."""
        shift, step = self._shift(number), self.shape.step
        first = number * step
        for tile, name in zip(self.others, names[:2], strict=True):
            array = self.arrays[name]
            tile.at(tile.place + shift).fill(
                array.start, array.pitch, first, self.limit, self.width
            )
        thread, to = self.threads.thread, self.numbers + shift
        for k, name in enumerate(names[2:]):
            array, row = self.arrays[name], thread - k * step
            mine = self.b.and_((row >= 0).ir, (row < step).ir)
            with when(self.b, mine):
                place = first + row.convert("zext", I64)
                there = place < self.limit
                at = select(there, array.start + place * array.pitch, array.start)
                copy_later(to + thread * 4, at, 4, there)
        end_copies(self.b)

    # -- products

    def scores(self, left: list[list[list[Value]]], tile: Tile) -> Sums:
        """The products of own rows with a tile's rows."""
        zero = Value(self.b, F32(0.0))
        sums = [[[zero] * 4 for _ in range(tile.rows // 8)] for _ in left]
        for column in range(0, tile.width, 16):
            for row in range(0, tile.rows, 16):
                for half, right in enumerate(tile.right(row, column)):
                    for k, rows in enumerate(left):
                        at = row // 8 + half
                        sums[k][at] = self._product(
                            rows[column // 16], right, sums[k][at]
                        )
        return sums

    def add_product(self, sums: Sums, weights: Sums, tile: Tile) -> Sums:
        """Sums with the product of weights, made short, and a tile added."""
        sums = [list(one) for one in sums]
        for row in range(0, tile.rows, 16):
            left = [
                [shortened(self.form.dtype, *numbers[k : k + 2])
                 for numbers in one[row // 8 : row // 8 + 2] for k in (0, 2)]
                for one in weights
            ]  # fmt: skip
            for column in range(0, tile.width, 16):
                for half, right in enumerate(tile.right_by_rows(row, column)):
                    for k, rows in enumerate(left):
                        at = column // 8 + half
                        sums[k][at] = self._product(rows, right, sums[k][at])
        return sums

    def _product(self, left: Any, right: Any, sums: Any) -> list[Value]:
        return multiply_add(self.form.dtype, left, right, sums)

    # -- results

    def write(self, name: str, sums: Sums, factors: Any) -> None:
        """Store the rows of a result, each number times its row's factor."""
        with when(self.b, self.wanted(name)):
            self._write(name, sums, factors)

    def _write(self, name: str, sums: Sums, factors: Any) -> None:
        b, array, t = self.b, self.arrays[name], self.threads
        for tile, one in enumerate(sums):
            for half, row in enumerate(self.own_rows(tile)):
                factor = factors[tile][half]
                with when(b, (row < self.own_limit).ir):
                    start = array.start + row * array.pitch
                    for at, four in enumerate(one):
                        column = (t.pair + 8 * at).convert("zext", I64)
                        pair = [x * factor for x in four[2 * half : 2 * half + 2]]
                        with when(b, (column < self.width).ir):
                            place = (start + (column << 1)).ir
                            b.store(
                                shortened(self.form.dtype, *pair).ir,
                                b.inttoptr(place, I32.as_pointer(1)),
                            )

    def zeros(self) -> Sums:
        """The sums of a block's own rows, before anything is added."""
        zero = Value(self.b, F32(0.0))
        return [
            [[zero] * 4 for _ in range(self.form.depth // 8)]
            for _ in range(self.shape.tiles)
        ]


class Variables:
    """Numbers in nested lists that a loop changes."""

    def __init__(self, b: Any, values: Any) -> None:
        self.b = b
        with b.goto_entry_block():
            self.places = mapped(values, lambda x: b.alloca(x.type))
        self.store(values)

    def store(self, values: Any) -> None:
        for place, value in zip(_flat(self.places), _flat(values), strict=True):
            self.b.store(value.ir, place)

    def load(self) -> Any:
        return mapped(self.places, lambda place: Value(self.b, self.b.load(place)))


def mapped(nested: Any, change: Any) -> Any:
    if isinstance(nested, list):
        return [mapped(one, change) for one in nested]
    return change(nested)


def _flat(nested: Any) -> list[Any]:
    if isinstance(nested, list):
        return [x for one in nested for x in _flat(one)]
    return [nested]


def _largest(x: Value, y: Value) -> Value:
    return intrinsic("maxnum", x, y)


def _over_row(x: Value, combine: Any) -> Value:
    """A number of a row, combined over the four threads that share it."""
    for step in (1, 2):
        x = combine(x, of_other_lane(x, step))
    return x


def _forward(kernel: _Kernel) -> None:
    """The output and the logarithms of sums, with the largest score kept apart."""
    b = kernel.b
    (queries,) = kernel.load_own("q")
    rows = range(kernel.shape.tiles)
    lowest, zero = Value(b, F32(-math.inf)), Value(b, F32(0.0))
    out = Variables(b, kernel.zeros())
    tops = Variables(b, [[lowest] * 2 for _ in rows])
    totals = Variables(b, [[zero] * 2 for _ in rows])
    with kernel.walk(("k", "v")) as (first, (keys, values), _):
        scores = kernel.hide(kernel.scores(queries, keys), first, -math.inf)
        sums, total = out.load(), totals.load()
        weights, shrink, top = softened(kernel, scores, tops.load())
        for t in rows:
            sums[t] = [
                [x * shrink[t][k // 2] for k, x in enumerate(four)] for four in sums[t]
            ]
        total = added(total, shrink, weights)
        out.store(kernel.add_product(sums, weights, values))
        tops.store(top)
        totals.store(total)
    total = over_rows(totals.load())
    kernel.write("o", out.load(), mapped(total, lambda x: 1.0 / x))
    write_lse(kernel, tops.load(), total)


def softened(kernel: Scores, scores: Sums, before: Any) -> tuple[Sums, Any, Any]:
    """Weights of scores, with the largest of each row so far kept apart.

    Sums that were made with the largest score ``before`` shrink by the second result;
    the third is the largest one now.
    """
    c = kernel.factor
    weights, shrink, top = [], [], []
    for tile, old in zip(scores, before, strict=True):
        new = []
        for half in range(2):
            most = old[half]
            for four in tile:
                most = _largest(most, _largest(*four[2 * half : 2 * half + 2]))
            new.append(_over_row(most, _largest))
        shifts = [x * c for x in new]
        shrink.append([
            exp2(fma(x, c, -shift)) for x, shift in zip(old, shifts, strict=True)
        ])  # fmt: skip
        weights.append([
            [exp2(fma(x, c, -shifts[k // 2])) for k, x in enumerate(four)]
            for four in tile
        ])  # fmt: skip
        top.append(new)
    return weights, shrink, top


def added(totals: Any, shrink: Any, weights: Sums) -> Any:
    """A thread's totals of weights, with those of a step."""
    found = []
    for tile, factors, old in zip(weights, shrink, totals, strict=True):
        new = [x * factor for x, factor in zip(old, factors, strict=True)]
        for four in tile:
            new = [new[k] + (four[2 * k] + four[2 * k + 1]) for k in range(2)]
        found.append(new)
    return found


def over_rows(totals: Any) -> Any:
    """The totals of whole rows, which four threads share."""
    return mapped(totals, lambda x: _over_row(x, lambda a, b: a + b))


def write_lse(kernel: Scores, tops: Any, totals: Any) -> None:
    """Store the logarithms of sums, if anybody reads them."""
    with when(kernel.b, kernel.wanted("lse")):
        _write_lse(kernel, tops, totals)


def _write_lse(kernel: Scores, tops: Any, totals: Any) -> None:
    b, array = kernel.b, kernel.arrays["lse"]
    once = kernel.pair.equals(0)
    for t, top in enumerate(tops):
        for half, row in enumerate(kernel.own_rows(t)):
            value = fma(top[half], kernel.scale, _log(totals[t][half]))
            with when(b, b.and_((row < kernel.own_limit).ir, once.ir)):
                place = (array.start + row * array.pitch).ir
                b.store(value.ir, b.inttoptr(place, F32.as_pointer(1)))


def _log(x: Value) -> Value:
    from weft.compile.emit import math

    return Value(x.b, math.emit("log", x.b, x.ir, fused=True))


def _gradients(kernel: _Kernel) -> None:
    """The gradient of queries, or those of keys and values."""
    b, form = kernel.b, kernel.form
    of_keys = form.kind == "keys"
    own, others = (("k", "v"), ("q", "g")) if of_keys else (("q", "g"), ("k", "v"))
    first_own, second_own = kernel.load_own(*own)
    sums = Variables(b, [kernel.zeros()] * (2 if of_keys else 1))
    rows = None if of_keys else _of_rows(kernel)
    streamed = (*others, "lse", "delta") if of_keys else others
    with kernel.walk(streamed) as (first, (one, other), place):
        lse, delta = rows or _of_columns(kernel, place)
        scores = kernel.scores(first_own, one)
        weights = paired(lambda x, n: exp2(fma(x, kernel.factor, -n)), scores, lse)
        weights = kernel.hide(weights, first, 0.0)
        total = sums.load()
        if of_keys:
            total[1] = kernel.add_product(total[1], weights, other)
        slopes = paired(lambda x, n: x - n, kernel.scores(second_own, other), delta)
        slopes = paired(lambda x, p: x * p, slopes, weights)
        total[0] = kernel.add_product(total[0], slopes, one)
        sums.store(total)
    total = sums.load()
    tiles = range(kernel.shape.tiles)
    once = Value(b, F32(1.0))
    kernel.write(
        "dk" if of_keys else "dq", total[0], [[kernel.scale] * 2 for _ in tiles]
    )
    if of_keys:
        kernel.write("dv", total[1], [[once] * 2 for _ in tiles])


def _of_rows(kernel: _Kernel) -> list[Sums]:
    """lse, in powers of two, and delta of own queries, as numbers beside the scores."""
    found: list[Sums] = [[], []]
    for tile in range(kernel.shape.tiles):
        pairs = [
            [kernel.number_of("lse", row) * LOG2E, kernel.number_of("delta", row)]
            for row in kernel.own_rows(tile)
        ]
        for which, one in enumerate(found):
            four = [pairs[k // 2][which] for k in range(4)]
            one.append([four] * (kernel.shape.step // 8))
    return found


def _of_columns(kernel: _Kernel, place: Value) -> list[Sums]:
    """The same numbers of the queries that a block walks over."""
    step = kernel.shape.step
    found: list[Sums] = []
    for which in range(2):
        one = []
        for at in range(0, step, 8):
            near = place + (kernel.threads.pair + (at + which * step)) * 4
            pair = load_pair(kernel.b, near)
            pair = pair if which else [x * LOG2E for x in pair]
            one.append([*pair, *pair])
        found.append([one] * kernel.shape.tiles)
    return found


def paired(change: Any, sums: Sums, others: Sums) -> Sums:
    """A function of numbers and of those at the same places."""
    return [
        [[change(x, y) for x, y in zip(*fours, strict=True)]
         for fours in zip(*tiles, strict=True)]
        for tiles in zip(sums, others, strict=True)
    ]  # fmt: skip

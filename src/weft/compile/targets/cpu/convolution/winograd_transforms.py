"""The three transforms of a Winograd convolution with 3x3 kernels, F(2x2, 3x3).

A tile of 2x2 results needs 4x4 pixels d and the kernel g:

    Y = A' [(G g G') * (B' d B)] A        * element by element, ' the transpose

        1  0 -1  0          1    0    0           1  1  1  0
    B'  0  1  1  0      G  1/2  1/2  1/2      A'  0  1 -1 -1
        0 -1  1  0         1/2 -1/2  1/2
        0  1  0 -1          0    0    1

16 multiplications stand for 36. The weights' gradient is the transpose of that:

    g's gradient = G' [(A Y A') * (B' d B)] G       Y here: the gradient of Y

Measured against float64, errors are those of plain sums: the root mean square is 2.6e-7
to 3.0e-7 of the results' spread for 64 to 512 channels, where sums have 2.7e-7.

Lanes are tiles, or for weights the channels that are summed, and for their gradient
y's channels. Each transform is one-dimensional, on columns and then on rows.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I8, I32, I64, i64, loop, zeros
from weft.compile.emit.vectors import (
    at,
    first_lanes,
    load,
    mask_of,
    minimum,
    splat,
    store,
    transpose,
)  # fmt: skip
from weft.compile.targets.cpu.convolution.patches import Loader, with_loader
from weft.compile.targets.cpu.matmul.functions import Library

POINTS = 16  # products that stand for a tile
TILES = "*image *windows *masks *runs *counts begin end rows *to to_row to_point step"
KERNELS = "*sums sums_row sums_point rows count *out out_row"
WEIGHTS = "*weights row_step k_step rows k *to to_row to_point"
RESULTS = (
    "*sums sums_row sums_point rows count *bias *out out_row width *masks masks_row"
)
RESULTS += " *runs *counts"
Line = Callable[[Any, list[Any]], list[Any]]


class Transforms:
    """The transforms of a library, emitted when first called."""

    def __init__(self, lib: Library) -> None:
        self.lib = lib

    @functools.cached_property
    def pixels(self) -> ir.Function:
        """Tiles of an image to 16 panels."""
        return _emit_tiles(self.lib, "pixels", 4, _pixel_line)

    @functools.cached_property
    def gradients(self) -> ir.Function:
        """Tiles of the result's gradient to 16 matrices."""
        return _emit_tiles(self.lib, "gradients", 2, _gradient_line)

    @functools.cached_property
    def kernels(self) -> ir.Function:
        """16 sums to kernels' gradients."""
        return _emit_kernels(self.lib)

    @functools.cache  # noqa: B019  an emitter lives as long as its module
    def weights(self, rotated: bool) -> ir.Function:
        """Kernels, or kernels rotated by half a circle, to 16 packed strips."""
        return _emit_weights(self.lib, rotated)

    @functools.cached_property
    def results(self) -> ir.Function:
        """16 sums to tiles of the result."""
        return _emit_results(self.lib)


def _both_ways(b: Any, line: Line, grid: list[list[Any]]) -> list[list[Any]]:
    """A one-dimensional transform of the columns, then of the rows."""
    columns = [line(b, list(column)) for column in zip(*grid, strict=True)]
    return [line(b, list(row)) for row in zip(*columns, strict=True)]


def _pixel_line(b: Any, d: list[Any]) -> list[Any]:
    """B' d."""
    return [
        b.fsub(d[0], d[2]), b.fadd(d[1], d[2]), b.fsub(d[2], d[1]), b.fsub(d[1], d[3]),
    ]  # fmt: skip


def _weight_line(b: Any, g: list[Any]) -> list[Any]:
    """G g."""
    half = ir.Constant(g[0].type, [0.5] * g[0].type.count)
    ends, middle = b.fmul(half, b.fadd(g[0], g[2])), b.fmul(half, g[1])
    return [g[0], b.fadd(ends, middle), b.fsub(ends, middle), g[2]]


def _result_line(b: Any, m: list[Any]) -> list[Any]:
    """A' m."""
    first = b.fadd(b.fadd(m[0], m[1]), m[2])
    return [first, b.fsub(b.fsub(m[1], m[2]), m[3])]


def _gradient_line(b: Any, y: list[Any]) -> list[Any]:
    """A y."""
    return [y[0], b.fadd(y[0], y[1]), b.fsub(y[0], y[1]), b.fneg(y[1])]


def _kernel_line(b: Any, m: list[Any]) -> list[Any]:
    """G' m."""
    half = ir.Constant(m[0].type, [0.5] * m[0].type.count)
    middle = b.fmul(half, b.fadd(m[1], m[2]))
    other = b.fmul(half, b.fsub(m[1], m[2]))
    return [b.fadd(m[0], middle), other, b.fadd(middle, m[3])]


def _square(values: list[Any], size: int) -> list[list[Any]]:
    """A list as rows."""
    return [values[i : i + size] for i in range(0, size * size, size)]


def _emit_tiles(lib: Library, name: str, size: int, line: Line) -> ir.Function:
    """``to[point, row, lane]`` for some vectors of tiles; a row is a channel."""
    lanes, element = lib.tile.lanes, lib.element
    taps = size * size
    with (
        lib.function(name, TILES) as (b, s, function),
        loop(b, s.begin, s.end, name="v") as v,
    ):
        start = at(b, s.to, b.mul(b.sub(v, s.begin), i64(lanes)), element)

        def rows(b: Any, get: Loader) -> None:
            with loop(b, i64(0), s.rows, name="r") as r:
                first = b.mul(r, i64(taps))
                values = [get(b, b.add(first, i64(t))) for t in range(taps)]
                to = at(b, start, b.mul(r, s.to_row), element)
                points = _both_ways(b, line, _square(values, size))
                _store_points(b, lib, points, to, s.to_point)

        with_loader(b, lib, "second", s, v, rows)
    return function


def _store_points(b: Any, lib: Library, grid: Any, to: Any, step: Any) -> None:
    for point, value in enumerate(itertools.chain(*grid)):
        place = at(b, to, b.mul(step, i64(point)), lib.element)
        store(b, value, place)


def _emit_weights(lib: Library, rotated: bool) -> ir.Function:
    """``to[point, row, k]`` from 3x3 kernels ``weights[row, k]``."""
    lanes, element = lib.tile.lanes, lib.element
    name = "turned_weights" if rotated else "weights"
    with (
        lib.function(name, WEIGHTS) as (b, s, function),
        loop(b, i64(0), s.rows) as i,
        loop(b, i64(0), s.k, i64(lanes), name="k") as k,
    ):
        last = b.sub(s.k, i64(1))
        nine = first_lanes(b, i64(9), lanes)
        kernels = []
        for lane in range(lanes):  # those beyond the last repeat it
            number = minimum(b, b.add(k, i64(lane)), last)
            offset = b.add(b.mul(i, s.row_step), b.mul(number, s.k_step))
            place = at(b, s.weights, offset, element)
            kernels.append(load(b, place, lib.vector, nine))
        taps = transpose(b, kernels)[:9]
        if rotated:
            taps.reverse()
        to = at(b, s.to, b.add(b.mul(i, s.to_row), k), element)
        points = _both_ways(b, _weight_line, _square(taps, 3))
        _store_points(b, lib, points, to, s.to_point)
    return function


def _emit_results(lib: Library) -> ir.Function:
    """Tiles of 2x2 results, a bias added, where the result has them."""
    lanes, element = lib.tile.lanes, lib.element
    with lib.function("results", RESULTS) as (b, s, function):
        vectors = b.sdiv(b.add(s.count, i64(lanes - 1)), i64(lanes))
        biased = b.icmp_unsigned("!=", b.ptrtoint(s.bias, I64), i64(0))
        with loop(b, i64(0), s.rows) as row:
            zero = ir.Constant(element, 0.0)
            bias = _scalar_if(b, biased, at(b, s.bias, row, element), zero)
            shift = splat(b, bias, lanes)
            out = at(b, s.out, b.mul(row, s.out_row), element)
            with loop(b, i64(0), vectors, name="v") as v:
                grid = _load_points(b, lib, s, row, b.mul(v, i64(lanes)))
                for line, pair in enumerate(_both_ways(b, _result_line, grid)):
                    pair = [b.fadd(value, shift) for value in pair]
                    _put(b, lib, s, v, at(b, out, b.mul(s.width, i64(line)), element),
                         line, pair)  # fmt: skip
    return function


def _load_points(b: Any, lib: Library, s: Any, row: Any, j: Any) -> list[list[Any]]:
    """The 16 sums of a vector of columns."""
    offset = b.add(b.mul(row, s.sums_row), j)
    first = at(b, s.sums, offset, lib.element)
    steps = [b.mul(s.sums_point, i64(point)) for point in range(POINTS)]
    places = [at(b, first, step, lib.element) for step in steps]
    return _square([load(b, place, lib.vector) for place in places], 4)


def _emit_kernels(lib: Library) -> ir.Function:
    """``out[j, row]``, kernels of 9 elements, from sums of columns j."""
    lanes, element = lib.tile.lanes, lib.element
    with (
        lib.function("kernels", KERNELS) as (b, s, function),
        loop(b, i64(0), s.rows) as row,
        loop(b, i64(0), s.count, i64(lanes), name="j") as j,
    ):
        grid = _load_points(b, lib, s, row, j)
        taps = list(itertools.chain(*_both_ways(b, _kernel_line, grid)))
        taps += [zeros(lib.vector)] * (lanes - len(taps))
        start = at(b, s.out, b.mul(row, i64(9)), element)
        for lane, kernel in enumerate(transpose(b, taps)):
            column = b.add(j, i64(lane))
            there = b.icmp_signed("<", column, s.count)
            nine = first_lanes(b, b.select(there, i64(9), i64(0)), lanes)
            store(b, kernel, at(b, start, b.mul(column, s.out_row), element), nine)
    return function


def _scalar_if(b: Any, there: Any, place: Any, other: Any) -> Any:
    """A number from memory if there is one."""
    before = b.block
    with b.if_then(there):
        value = b.load(place, typ=other.type)
        inside = b.block
    phi = b.phi(other.type)
    phi.add_incoming(other, before)
    phi.add_incoming(value, inside)
    return phi


def _put(
    b: Any, lib: Library, s: Any, v: Any, out: Any, line: int, pair: list[Any]
) -> None:
    """A row of tiles: their left and right results alternate, run by run."""
    lanes, element = lib.tile.lanes, lib.element
    turns = [lane + side * lanes for lane in range(lanes) for side in (0, 1)]
    kind = ir.VectorType(I32, lanes)
    halves = [
        b.shuffle_vector(*pair, ir.Constant(kind, turns[i : i + lanes]))
        for i in (0, lanes)
    ]
    left, right = (_word(b, s, v, 2 * line + side) for side in (0, 1))
    there = b.or_(left, b.shl(right, i64(1)))
    runs = at(b, s.runs, b.mul(v, i64(2 * lanes)), I64)
    count = b.load(at(b, s.counts, v, I64), typ=I64)
    with loop(b, i64(0), count, name="run") as r:
        run = at(b, runs, b.mul(r, i64(2)), I64)
        bits = b.load(at(b, run, i64(1), I64), typ=I64)
        bits = b.and_(b.or_(bits, b.shl(bits, i64(1))), there)
        to = at(b, out, b.load(run, typ=I64), element)
        for half, value in enumerate(halves):
            mask = mask_of(b, b.lshr(bits, i64(half * lanes)), lanes)
            store(b, value, at(b, to, i64(half * lanes), element), mask)


def _word(b: Any, s: Any, v: Any, tap: int) -> Any:
    """The mask of one of a tile's four results."""
    place = b.add(b.mul(s.masks_row, i64(tap)), b.mul(v, i64(4)))
    return b.zext(b.load(at(b, s.masks, place, I8), typ=I32), I64)

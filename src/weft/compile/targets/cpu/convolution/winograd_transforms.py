"""The three transforms of a Winograd convolution, F(2x2, 3x3) and F(2x2, 5x5).

A tile of 2x2 results needs 4x4 pixels d and the kernel g:

    Y = A' [(G g G') * (B' d B)] A        * element by element, ' the transpose

        1  0 -1  0          1    0    0           1  1  1  0
    B'  0  1  1  0      G  1/2  1/2  1/2      A'  0  1 -1 -1
        0 -1  1  0         1/2 -1/2  1/2
        0  1  0 -1          0    0    1

16 multiplications stand for 36. The weights' gradient is the transpose of that:

    g's gradient = G' [(A Y A') * (B' d B)] G       Y here: the gradient of Y

A 5x5 kernel has 3 + 2 taps along each axis: three as above on d0 to d3, and two with

    y0 = (d3 - d4) g3 + d4 (g3 + g4)        y1 = d4 (g3 + g4) - (d4 - d5) g4

7 multiplications for 10, and 49 for 100 in a square. Six would do (Toom-Cook with 2 and
-1/2), but their errors are 4.5 times those of plain sums; these only add and halve.

Measured against float64, errors are those of plain sums: the root mean square is 2.6e-7
to 3.0e-7 of the results' spread for 64 to 512 channels, where sums have 2.7e-7.

Lanes are tiles, or for weights the channels that are summed, and for their gradient
y's channels. Each transform is one-dimensional, on columns and then on rows.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

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
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.functions import Library

POINT_GAP = COST.caches.line // 4  # elements, by which points may be further apart
TILES = "*image *windows *masks *runs *counts begin end rows *to to_row to_point step"
KERNELS = "*sums sums_row sums_point rows count *out out_row"
WEIGHTS = "*weights row_step k_step rows k *to to_row to_point"
RESULTS = (
    "*sums sums_row sums_point rows count *bias *out out_row width *masks masks_row"
)
RESULTS += " *runs *counts"
Line = Callable[[Any, list[Any]], list[Any]]


class Scheme(NamedTuple):
    """The one-dimensional transforms for kernels of a size."""

    size: int  # of the kernel
    products: int  # that stand for two results
    name: str  # of its functions
    pixel: Line
    weight: Line
    result: Line
    gradient: Line
    kernel: Line

    @property
    def taps(self) -> int:
        """Elements of a kernel."""
        return self.size**2

    @property
    def pixels(self) -> int:
        """Elements of the image that a tile of 2x2 results reads."""
        return (self.size + 1) ** 2

    @property
    def points(self) -> int:
        """Products that stand for a tile."""
        return self.products**2

    def memory(self, size: int) -> int:
        """Elements for all points, with so many for each and a gap behind."""
        return self.points * (size + POINT_GAP)


class Transforms:
    """The transforms of a library, emitted when first called."""

    def __init__(self, lib: Library, scheme: Scheme) -> None:
        self.lib, self.scheme = lib, scheme

    @functools.cached_property
    def pixels(self) -> ir.Function:
        """Tiles of an image to a panel for each point."""
        scheme = self.scheme
        size = scheme.size + 1
        return _emit_tiles(self.lib, f"pixels{scheme.name}", size, scheme.pixel)

    @functools.cached_property
    def gradients(self) -> ir.Function:
        """Tiles of the result's gradient to a matrix for each point."""
        scheme = self.scheme
        return _emit_tiles(self.lib, f"gradients{scheme.name}", 2, scheme.gradient)

    @functools.cached_property
    def kernels(self) -> ir.Function:
        """Sums of the points to kernels' gradients."""
        return _emit_kernels(self.lib, self.scheme)

    @functools.cache  # noqa: B019  an emitter lives as long as its module
    def weights(self, rotated: bool) -> ir.Function:
        """Kernels, or kernels rotated by half a circle, to packed strips."""
        return _emit_weights(self.lib, self.scheme, rotated)

    @functools.cached_property
    def results(self) -> ir.Function:
        """Sums of the points to tiles of the result."""
        return _emit_results(self.lib, self.scheme)


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


def _wide_pixel_line(b: Any, d: list[Any]) -> list[Any]:
    return [*_pixel_line(b, d), b.fsub(d[3], d[4]), d[4], b.fsub(d[4], d[5])]


def _wide_weight_line(b: Any, g: list[Any]) -> list[Any]:
    return [*_weight_line(b, g), g[3], b.fadd(g[3], g[4]), g[4]]


def _wide_result_line(b: Any, m: list[Any]) -> list[Any]:
    first, second = _result_line(b, m)
    return [
        b.fadd(first, b.fadd(m[4], m[5])), b.fadd(second, b.fsub(m[5], m[6]))
    ]  # fmt: skip


def _wide_gradient_line(b: Any, y: list[Any]) -> list[Any]:
    four = _gradient_line(b, y)
    return [*four, y[0], four[1], four[3]]


def _wide_kernel_line(b: Any, m: list[Any]) -> list[Any]:
    return [*_kernel_line(b, m), b.fadd(m[4], m[5]), b.fadd(m[5], m[6])]


SCHEMES = {
    3: Scheme(
        3, 4, "", _pixel_line, _weight_line, _result_line, _gradient_line, _kernel_line
    ),
    5: Scheme(
        5, 7, "_5x5", _wide_pixel_line, _wide_weight_line, _wide_result_line,
        _wide_gradient_line, _wide_kernel_line,
    ),
}  # fmt: skip


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


def _emit_weights(lib: Library, scheme: Scheme, rotated: bool) -> ir.Function:
    """``to[point, row, k]`` from kernels ``weights[row, k]``."""
    lanes, element = lib.tile.lanes, lib.element
    name = f"{'turned_weights' if rotated else 'weights'}{scheme.name}"
    with (
        lib.function(name, WEIGHTS) as (b, s, function),
        loop(b, i64(0), s.rows) as i,
        loop(b, i64(0), s.k, i64(lanes), name="k") as k,
    ):
        last = b.sub(s.k, i64(1))
        places = []
        for lane in range(lanes):  # those beyond the last repeat it
            number = minimum(b, b.add(k, i64(lane)), last)
            offset = b.add(b.mul(i, s.row_step), b.mul(number, s.k_step))
            places.append(at(b, s.weights, offset, element))
        taps: list[Any] = []
        for first, count in _vectors_of(scheme.taps, lanes):
            some = first_lanes(b, i64(count), lanes)
            starts = [at(b, place, i64(first), element) for place in places]
            kernels = [load(b, start, lib.vector, some) for start in starts]
            taps += transpose(b, kernels)[:count]
        if rotated:
            taps.reverse()
        to = at(b, s.to, b.add(b.mul(i, s.to_row), k), element)
        points = _both_ways(b, scheme.weight, _square(taps, scheme.size))
        _store_points(b, lib, points, to, s.to_point)
    return function


def _vectors_of(count: int, lanes: int) -> list[tuple[int, int]]:
    """The vectors of so many elements: the first of each, and how many it has."""
    return [(i, min(lanes, count - i)) for i in range(0, count, lanes)]


def _emit_results(lib: Library, scheme: Scheme) -> ir.Function:
    """Tiles of 2x2 results, a bias added, where the result has them."""
    lanes, element = lib.tile.lanes, lib.element
    with lib.function(f"results{scheme.name}", RESULTS) as (b, s, function):
        vectors = b.sdiv(b.add(s.count, i64(lanes - 1)), i64(lanes))
        biased = b.icmp_unsigned("!=", b.ptrtoint(s.bias, I64), i64(0))
        with loop(b, i64(0), s.rows) as row:
            zero = ir.Constant(element, 0.0)
            bias = _scalar_if(b, biased, at(b, s.bias, row, element), zero)
            shift = splat(b, bias, lanes)
            out = at(b, s.out, b.mul(row, s.out_row), element)
            with loop(b, i64(0), vectors, name="v") as v:
                grid = _load_points(b, lib, scheme, s, row, b.mul(v, i64(lanes)))
                for line, pair in enumerate(_both_ways(b, scheme.result, grid)):
                    pair = [b.fadd(value, shift) for value in pair]
                    _put(b, lib, s, v, at(b, out, b.mul(s.width, i64(line)), element),
                         line, pair)  # fmt: skip
    return function


def _load_points(
    b: Any, lib: Library, scheme: Scheme, s: Any, row: Any, j: Any
) -> list[list[Any]]:
    """The sums of the points of a vector of columns."""
    offset = b.add(b.mul(row, s.sums_row), j)
    first = at(b, s.sums, offset, lib.element)
    steps = [b.mul(s.sums_point, i64(point)) for point in range(scheme.points)]
    places = [at(b, first, step, lib.element) for step in steps]
    values = [load(b, place, lib.vector) for place in places]
    return _square(values, scheme.products)


def _emit_kernels(lib: Library, scheme: Scheme) -> ir.Function:
    """``out[j, row]``, whole kernels, from sums of columns j."""
    lanes, element = lib.tile.lanes, lib.element
    with (
        lib.function(f"kernels{scheme.name}", KERNELS) as (b, s, function),
        loop(b, i64(0), s.rows) as row,
        loop(b, i64(0), s.count, i64(lanes), name="j") as j,
    ):
        grid = _load_points(b, lib, scheme, s, row, j)
        taps = list(itertools.chain(*_both_ways(b, scheme.kernel, grid)))
        kernel = at(b, s.out, b.mul(row, i64(scheme.taps)), element)
        for first, some in _vectors_of(scheme.taps, lanes):
            rows = taps[first : first + some] + [zeros(lib.vector)] * (lanes - some)
            start = at(b, kernel, i64(first), element)
            for lane, part in enumerate(transpose(b, rows)):
                column = b.add(j, i64(lane))
                there = b.icmp_signed("<", column, s.count)
                mask = first_lanes(b, b.select(there, i64(some), i64(0)), lanes)
                store(b, part, at(b, start, b.mul(column, s.out_row), element), mask)
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

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

from weft.compile.emit.control_flow import I32, zeros
from weft.compile.emit.flow import loop
from weft.compile.emit.values import minimum, select
from weft.compile.emit.vectors import first_lanes, mask_of, shuffle, transpose
from weft.compile.targets.cpu.convolution.epilogue import biases
from weft.compile.targets.cpu.convolution.patches import Loader, with_loader
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.functions import Library

POINT_GAP = COST.caches.line // 4  # elements, by which points may be further apart
TILES = (
    "*image i64*windows i8*masks i64*runs i64*counts begin end rows *to to_row "
    "to_point step"
)
KERNELS = "*sums sums_row sums_point rows count *out out_row"
WEIGHTS = "*weights row_step k_step rows k *to to_row to_point"
RESULTS = (
    "*sums sums_row sums_point rows count *bias *out out_row width i8*masks masks_row"
)
RESULTS += " i64*runs i64*counts"
Line = Callable[[list[Any]], list[Any]]


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


def _both_ways(line: Line, grid: list[list[Any]]) -> list[list[Any]]:
    """A one-dimensional transform of the columns, then of the rows."""
    columns = [line(list(column)) for column in zip(*grid, strict=True)]
    return [line(list(row)) for row in zip(*columns, strict=True)]


def _pixel_line(d: list[Any]) -> list[Any]:
    """B' d."""
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _weight_line(g: list[Any]) -> list[Any]:
    """G g."""
    ends, middle = 0.5 * (g[0] + g[2]), 0.5 * g[1]
    return [g[0], ends + middle, ends - middle, g[2]]


def _result_line(m: list[Any]) -> list[Any]:
    """A' m."""
    first = m[0] + m[1] + m[2]
    return [first, m[1] - m[2] - m[3]]


def _gradient_line(y: list[Any]) -> list[Any]:
    """A y."""
    return [y[0], y[0] + y[1], y[0] - y[1], -y[1]]


def _kernel_line(m: list[Any]) -> list[Any]:
    """G' m."""
    middle = 0.5 * (m[1] + m[2])
    return [m[0] + middle, 0.5 * (m[1] - m[2]), middle + m[3]]


def _wide_pixel_line(d: list[Any]) -> list[Any]:
    return [*_pixel_line(d), d[3] - d[4], d[4], d[4] - d[5]]


def _wide_weight_line(g: list[Any]) -> list[Any]:
    return [*_weight_line(g), g[3], g[3] + g[4], g[4]]


def _wide_result_line(m: list[Any]) -> list[Any]:
    first, second = _result_line(m)
    return [first + (m[4] + m[5]), second + (m[5] - m[6])]


def _wide_gradient_line(y: list[Any]) -> list[Any]:
    four = _gradient_line(y)
    return [*four, y[0], four[1], four[3]]


def _wide_kernel_line(m: list[Any]) -> list[Any]:
    return [*_kernel_line(m), m[4] + m[5], m[5] + m[6]]


SCHEMES = {
    3: Scheme(
        3, 4, "", _pixel_line, _weight_line, _result_line, _gradient_line, _kernel_line
    ),
    5: Scheme(
        5, 7, "_5x5", _wide_pixel_line, _wide_weight_line, _wide_result_line,
        _wide_gradient_line, _wide_kernel_line
    ),
}  # fmt: skip


def _square(values: list[Any], size: int) -> list[list[Any]]:
    """A list as rows."""
    return [values[i : i + size] for i in range(0, size * size, size)]


def _emit_tiles(lib: Library, name: str, size: int, line: Line) -> ir.Function:
    """``to[point, row, lane]`` for some vectors of tiles; a row is a channel."""
    lanes = lib.tile.lanes
    taps = size * size
    with (
        lib.function(name, TILES) as (s, function),
        loop(s.begin, s.end, name="v") as v,
    ):
        start = s.to + (v - s.begin) * lanes

        def rows(get: Loader) -> None:
            with loop(s.rows, name="r") as r:
                first = r * taps
                values = [get(first + t) for t in range(taps)]
                to = start + r * s.to_row
                points = _both_ways(line, _square(values, size))
                _store_points(points, to, s.to_point)

        with_loader(lib, "second", s, v, rows)
    return function


def _store_points(grid: Any, to: Any, step: Any) -> None:
    for point, value in enumerate(itertools.chain(*grid)):
        place = to + step * point
        place.store(value)


def _emit_weights(lib: Library, scheme: Scheme, rotated: bool) -> ir.Function:
    """``to[point, row, k]`` from kernels ``weights[row, k]``."""
    lanes = lib.tile.lanes
    name = f"{'turned_weights' if rotated else 'weights'}{scheme.name}"
    with (
        lib.function(name, WEIGHTS) as (s, function),
        loop(s.rows) as i,
        loop(0, s.k, lanes, name="k") as k,
    ):
        last = s.k - 1
        places = []
        for lane in range(lanes):  # those beyond the last repeat it
            number = minimum(k + lane, last)
            offset = i * s.row_step + number * s.k_step
            places.append(s.weights + offset)
        taps: list[Any] = []
        for first, count in _vectors_of(scheme.taps, lanes):
            some = first_lanes(count, lanes)
            starts = [place + first for place in places]
            kernels = [start.load(lib.vector, some) for start in starts]
            taps += transpose(kernels)[:count]
        if rotated:
            taps.reverse()
        to = s.to + (i * s.to_row + k)
        points = _both_ways(scheme.weight, _square(taps, scheme.size))
        _store_points(points, to, s.to_point)
    return function


def _vectors_of(count: int, lanes: int) -> list[tuple[int, int]]:
    """The vectors of so many elements: the first of each, and how many it has."""
    return [(i, min(lanes, count - i)) for i in range(0, count, lanes)]


def _emit_results(lib: Library, scheme: Scheme) -> ir.Function:
    """Tiles of 2x2 results, a bias added, where the result has them."""
    lanes = lib.tile.lanes
    with lib.function(f"results{scheme.name}", RESULTS) as (s, function):
        vectors = (s.count + (lanes - 1)) // lanes
        biased = s.bias.is_given()
        with loop(s.rows) as row:
            (shift,) = biases(lib, biased, s.bias + row, 1)
            out = s.out + row * s.out_row
            with loop(vectors, name="v") as v:
                grid = _load_points(lib, scheme, s, row, v * lanes)
                for line, pair in enumerate(_both_ways(scheme.result, grid)):
                    pair = [value + shift for value in pair]
                    _put(lib, s, v, out + s.width * line, line, pair)
    return function


def _load_points(
    lib: Library, scheme: Scheme, s: Any, row: Any, j: Any
) -> list[list[Any]]:
    """The sums of the points of a vector of columns."""
    offset = row * s.sums_row + j
    first = s.sums + offset
    steps = [s.sums_point * point for point in range(scheme.points)]
    places = [first + step for step in steps]
    values = [place.load(lib.vector) for place in places]
    return _square(values, scheme.products)


def _emit_kernels(lib: Library, scheme: Scheme) -> ir.Function:
    """``out[j, row]``, whole kernels, from sums of columns j."""
    lanes = lib.tile.lanes
    with (
        lib.function(f"kernels{scheme.name}", KERNELS) as (s, function),
        loop(s.rows) as row,
        loop(0, s.count, lanes, name="j") as j,
    ):
        grid = _load_points(lib, scheme, s, row, j)
        taps = list(itertools.chain(*_both_ways(scheme.kernel, grid)))
        kernel = s.out + row * scheme.taps
        for first, some in _vectors_of(scheme.taps, lanes):
            nothing = taps[0].like(zeros(lib.vector))
            rows = taps[first : first + some] + [nothing] * (lanes - some)
            start = kernel + first
            for lane, part in enumerate(transpose(rows)):
                column = j + lane
                there = column < s.count
                mask = first_lanes(select(there, some, 0), lanes)
                (start + column * s.out_row).store(part, mask)
    return function


def _put(lib: Library, s: Any, v: Any, out: Any, line: int, pair: list[Any]) -> None:
    """A row of tiles: their left and right results alternate, run by run."""
    lanes = lib.tile.lanes
    turns = [lane + side * lanes for lane in range(lanes) for side in (0, 1)]
    halves = [shuffle(pair[0], pair[1], turns[i : i + lanes]) for i in (0, lanes)]
    left, right = (_word(s, v, 2 * line + side) for side in (0, 1))
    there = left | right << 1
    runs = s.runs + v * (2 * lanes)
    count = s.counts[v]
    with loop(count, name="run") as r:
        run = runs + r * 2
        bits = run[1]
        bits = (bits | bits << 1) & there
        to = out + run.load()
        for half, value in enumerate(halves):
            mask = mask_of(bits.shift_right(half * lanes), lanes)
            (to + half * lanes).store(value, mask)


def _word(s: Any, v: Any, tap: int) -> Any:
    """The mask of one of a tile's four results."""
    place = s.masks_row * tap + v * 4
    return (s.masks + place).load(I32).unsigned()

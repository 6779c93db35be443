"""Epilogues of convolutions, run on each part of the result while it is hot.

    void epilogue(context, first_row, last_row, first_column, last_column)

Rows of an image are its channels, counted through all images, and columns its pixels.
Rows of weights are output channels, and columns the elements of a window.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir

from weft.compile.emit.flow import choose, loop, when, while_less
from weft.compile.emit.values import minimum, select
from weft.compile.emit.vectors import splat
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.epilogue import run_epilogue
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.tasks import divide

_COST = COST.convolution
TILES = "*epilogue *context first last channels tiles height width begin end"


def call_epilogue(s: Any, rows: Any, columns: Any) -> None:
    """Call a job's epilogue, if there is one, for a range of rows and of columns."""
    with when(s.epilogue.is_given()):
        run_epilogue(s, rows, columns)


def channels_of(s: Any, image: Any, first: Any, last: Any) -> list[Any]:
    """The rows of some channels of a job's group, in one image."""
    start = (image * s.groups + s.group) * s.rows
    return [start + first, start + last]


def biases(lib: Library, there: Any, bias: Any, count: int) -> list[Any]:
    """The start of some channels' sums: their biases, if there are any, or 0."""
    nothing = [ir.Constant(lib.element, 0.0)] * count
    given = functools.partial(_elements, bias, count)
    values = choose(there, nothing, given)
    return [splat(value, lib.tile.lanes) for value in values]


def _elements(array: Any, count: int) -> list[Any]:
    return [array[i] for i in range(count)]


def some_rows(columns: Any) -> Any:
    """The rows of so many columns to compute before each call of the epilogue."""
    found = _COST.epilogue // columns
    least = _COST.epilogue_rows
    return select(found < least, least, found)


def emit_tile_epilogues(lib: Library) -> ir.Function:
    """Calls for channels ``first`` to ``last`` of the tiles ``begin`` to ``end``.

    Tiles have 2x2 pixels. Whole rows of them are a range of pixels; a row that is not
    whole is two, one above the other.
    """
    with lib.function("follow_tiles", TILES) as (s, function):
        across = s.width + 1 >> 1
        with while_less(s.begin, s.end) as (tile, advance):
            image, t = divide(tile, s.tiles)
            end = minimum(s.tiles, t + (s.end - tile))
            start = image * s.channels
            rows = [start + s.first, start + s.last]
            top, left = divide(t, across)
            bottom, right = divide(end, across)
            partly = left > 0
            one = top.equals(bottom)
            with when(partly):
                stop = select(one, right, across)
                _row(s, rows, top, left, stop)
            whole = top + partly.unsigned()
            with when(whole < bottom):
                last = minimum(s.height, bottom * 2)
                span = whole * 2 * s.width, last * s.width
                call_epilogue(s, rows, span)
            rest = right > 0
            with when(rest & ~(one & partly)):
                _row(s, rows, bottom, 0, right)
            advance(end - t)
    return function


def _row(s: Any, rows: Any, top: Any, left: Any, right: Any) -> None:
    """Some tiles of one row: two lines of pixels, the last perhaps one."""
    first = top * 2
    last = minimum(s.height, first + 2)
    stop = minimum(s.width, right * 2)
    with loop(first, last, name="line") as line:
        start = line * s.width
        call_epilogue(s, rows, [start + left * 2, start + stop])

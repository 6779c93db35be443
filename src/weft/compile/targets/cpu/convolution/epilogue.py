"""Epilogues of convolutions, run on each part of the result while it is hot.

    void epilogue(context, first_row, last_row, first_column, last_column)

Rows of an image are its channels, counted through all images, and columns its pixels.
Rows of weights are output channels, and columns the elements of a window.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I64, i64, loop
from weft.compile.emit.vectors import PTR, minimum, while_less
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.matmul.epilogue import EPILOGUE
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.tasks import divide

_COST = COST.convolution
TILES = "*epilogue *context first last channels tiles height width begin end"


def call_epilogue(b: Any, s: Any, rows: Any, columns: Any) -> None:
    """Call a job's epilogue, if there is one, for a range of rows and of columns."""
    with b.if_then(b.icmp_unsigned("!=", s.epilogue, PTR(None))):
        called = b.inttoptr(b.ptrtoint(s.epilogue, I64), EPILOGUE.as_pointer())
        b.call(called, [s.context, *rows, *columns])


def channels_of(b: Any, s: Any, image: Any, first: Any, last: Any) -> list[Any]:
    """The rows of some channels of a job's group, in one image."""
    start = b.mul(b.add(b.mul(image, s.groups), s.group), s.rows)
    return [b.add(start, first), b.add(start, last)]


def some_rows(b: Any, columns: Any) -> Any:
    """The rows of so many columns to compute before each call of the epilogue."""
    found = b.sdiv(i64(_COST.epilogue), columns)
    least = i64(_COST.epilogue_rows)
    return b.select(b.icmp_signed("<", found, least), least, found)


def emit_tile_epilogues(lib: Library) -> ir.Function:
    """Calls for channels ``first`` to ``last`` of the tiles ``begin`` to ``end``.

    Tiles have 2x2 pixels. Whole rows of them are a range of pixels; a row that is not
    whole is two, one above the other.
    """
    with lib.function("follow_tiles", TILES) as (b, s, function):
        across = b.ashr(b.add(s.width, i64(1)), i64(1))
        with while_less(b, s.begin, s.end) as (tile, advance):
            image, t = divide(b, tile, s.tiles)
            end = minimum(b, s.tiles, b.add(t, b.sub(s.end, tile)))
            start = b.mul(image, s.channels)
            rows = [b.add(start, s.first), b.add(start, s.last)]
            top, left = divide(b, t, across)
            bottom, right = divide(b, end, across)
            partly = b.icmp_signed(">", left, i64(0))
            one = b.icmp_signed("==", top, bottom)
            with b.if_then(partly):
                stop = b.select(one, right, across)
                _row(b, s, rows, top, left, stop)
            whole = b.add(top, b.zext(partly, I64))
            with b.if_then(b.icmp_signed("<", whole, bottom)):
                last = minimum(b, s.height, b.mul(bottom, i64(2)))
                span = b.mul(b.mul(whole, i64(2)), s.width), b.mul(last, s.width)
                call_epilogue(b, s, rows, span)
            rest = b.icmp_signed(">", right, i64(0))
            with b.if_then(b.and_(rest, b.not_(b.and_(one, partly)))):
                _row(b, s, rows, bottom, i64(0), right)
            advance(b.sub(end, t))
    return function


def _row(b: Any, s: Any, rows: Any, top: Any, left: Any, right: Any) -> None:
    """Some tiles of one row: two lines of pixels, the last perhaps one."""
    first = b.mul(top, i64(2))
    last = minimum(b, s.height, b.add(first, i64(2)))
    stop = minimum(b, s.width, b.mul(right, i64(2)))
    with loop(b, first, last, name="line") as line:
        start = b.mul(line, s.width)
        call_epilogue(
            b, s, rows, [b.add(start, b.mul(left, i64(2))), b.add(start, stop)]
        )

"""Building blocks of attention: products of blocks, transposed panels, masks."""

from __future__ import annotations

import functools
import math
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import F64, I8, zeros
from weft.compile.emit.flow import either, if_else, loop
from weft.compile.emit.math.exponential import exp_negative
from weft.compile.emit.math.logarithmic import log
from weft.compile.emit.math.values import fused_products
from weft.compile.emit.values import call, minimum, select
from weft.compile.emit.vectors import filled, first_lanes, splat, transpose
from weft.compile.targets.cpu.attention.record import CHOSEN
from weft.compile.targets.cpu.matmul.functions import Library
from weft.compile.targets.cpu.matmul.pack import Packing
from weft.compile.targets.cpu.matmul.strip import Strips, along, by_heights

_PRODUCT = "*a a_stride *b b_row b_panel *c c_row m n k keep"


class Emitters:
    """Functions of a library that others call, emitted when first asked for."""

    def __init__(self, lib: Library, *, masked: bool) -> None:
        self.lib, self.masked = lib, masked
        self.strips = Strips(lib)
        self.packing = Packing(lib)

    @functools.cached_property
    def by_rows(self) -> ir.Function:
        """``C[m, n] (+)= A @ B`` where A's rows are contiguous."""
        return self._product("product_rows", rows=True)

    @functools.cached_property
    def by_columns(self) -> ir.Function:
        """``C[m, n] (+)= A @ B`` where A's columns are contiguous."""
        return self._product("product_columns", rows=False)

    def _product(self, name: str, *, rows: bool) -> ir.Function:
        lib = self.lib
        with lib.function(name, _PRODUCT) as (s, function):

            def strip(row: Any, height: int) -> None:
                a = s.a + (row * s.a_stride if rows else row)
                c = s.c + row * s.c_row
                across = s.a_stride * height if rows else height
                strides = along(s.a_stride, rows=rows)
                ahead = [a + across, *strides]
                right = [s.b, s.b_row, s.b_panel]
                rest = [c, s.c_row, s.n, s.k, s.keep, *ahead]
                arguments = [a, *strides, *right, *rest]
                self.strips.call(height, not rows, arguments)

            by_heights(lib.tile.heights, 0, s.m, strip)
        return function

    @functools.cached_property
    def transposed_panel(self) -> ir.Function:
        """``to[:, j] = source[j, :] * factor``, in panels of a tile's width."""
        lib = self.lib
        width, arguments = lib.tile.width, "*source row *to k count factor"
        with lib.function("turn_all", arguments) as (s, function):
            with loop(0, s.count, width) as j:
                here = s.source + j * s.row
                to = s.to + j * s.k
                some = minimum(width, s.count - j)
                call(self.packing.transposed_panel, [here, s.row, to, s.k, some])
            factor = splat(number_of(s.factor, lib.element), lib.tile.lanes)
            whole = (s.count + (width - 1)) // width * width
            with loop(0, whole * s.k, lib.tile.lanes) as i:
                place = s.to + i
                place.store(place.load(lib.vector) * factor)
        return function

    @functools.cached_property
    def fill(self) -> ir.Function:
        """Zeros."""
        lib = self.lib
        with lib.function("fill", "*to count") as (s, function):
            lanes = lib.tile.lanes
            whole = s.count // lanes * lanes
            with loop(0, whole, lanes) as i:
                s.to[i] = zeros(lib.vector)
            with loop(whole, s.count) as i:
                (s.to + i).store(ir.Constant(lib.element, 0.0))
        return function

    # -- masks

    @functools.cached_property
    def mask_rows(self) -> ir.Function:
        """Apply a mask to scores[row, key]."""
        lib, lanes = self.lib, self.lib.tile.lanes
        arguments = "*scores scores_row *mask mask_row mask_col kind rows keys"
        with lib.function("mask_rows", arguments) as (s, function):

            def each(chosen: bool) -> None:
                with loop(s.rows) as i, loop(0, s.keys, lanes, name="j") as j:
                    place = i * s.scores_row + j
                    self._combine(
                        s.scores + place, self._masks(s, i, j, chosen), chosen
                    )

            _by_kind(s.kind, each)
        return function

    @functools.cached_property
    def mask_transposed(self) -> ir.Function:
        """Apply a mask to a panel of scores[key, row]."""
        lib, lanes = self.lib, self.lib.tile.lanes
        arguments = "*scores *mask mask_row mask_col kind rows keys"
        with lib.function("mask_turned", arguments) as (s, function):

            def each(chosen: bool) -> None:
                with loop(0, s.rows, lanes) as i, loop(0, s.keys, lanes, name="j") as j:
                    last = s.rows - 1  # rows beyond the last repeat it
                    rows = [minimum(i + r, last) for r in range(lanes)]
                    found = [self._masks(s, row, j, chosen) for row in rows]
                    for r, value in enumerate(transpose(found)):
                        place = (j + r) * lib.tile.width
                        here = s.scores + (place + i)
                        self._combine(here, value, chosen)

            _by_kind(s.kind, each)
        return function

    def _combine(self, place: Any, mask: Any, chosen: bool) -> None:
        scores = place.load(self.lib.vector)
        if not chosen:
            place.store(scores + mask)
            return
        place.store(select(mask < 0.0, -math.inf, scores))

    def _masks(self, s: Any, row: Any, j: Any, chosen: bool) -> Any:
        """A vector of one row of a mask; -1 stands for those that were not chosen."""
        lib, lanes = self.lib, self.lib.tile.lanes
        kind = I8 if chosen else lib.element
        vector = ir.VectorType(kind, lanes)
        start = row * s.mask_row + j * s.mask_col
        place = s.mask.of(kind) + start
        values = either(
            s.mask_col.equals(0),
            lambda: splat(place.load(), lanes),
            lambda: place.load(vector, first_lanes(s.keys - j, lanes)),
        )
        if not chosen:
            return values
        takes = values.differs(0)
        return select(takes, zeros(lib.vector), takes.like(filled(lib.vector, -1.0)))


def _by_kind(kind: Any, each: Any) -> None:
    with if_else(kind.equals(CHOSEN)) as (chosen, added):
        with chosen:
            each(True)
        with added:
            each(False)


def number_of(bits: Any, element: Any) -> Any:
    """A field that holds a double, as an element."""
    value = bits.as_float()
    return value if element == F64 else value.to_single()


def exponential(lib: Library, x: Any) -> Any:
    """``exp(x)`` for x that is not above zero (but for rounding)."""
    with fused_products(lib.isa.fused):
        return exp_negative(x)


def logarithm(lib: Library, x: Any) -> Any:
    """``log(x)``"""
    with fused_products(lib.isa.fused):
        return log(x)


def larger(x: Any, y: Any) -> Any:
    """The larger one; a NaN in x is passed over (its exponential is found later)."""
    return select(x > y, x, y)

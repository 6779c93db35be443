"""Building blocks of attention: products of blocks, transposed panels, masks."""

from __future__ import annotations

import functools
import math
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, I8, I32, I64, i64, loop, zeros
from weft.compile.emit.math.exponential import exp_negative
from weft.compile.emit.math.values import Value, fused_products
from weft.compile.emit.vectors import (
    PTR,
    at,
    first_lanes,
    intrinsic,
    load,
    minimum,
    splat,
    store,
    transpose,
)  # fmt: skip
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
        with lib.function(name, _PRODUCT) as (b, s, function):

            def strip(row: Any, height: int) -> None:
                step = b.mul(row, s.a_stride) if rows else row
                a = at(b, s.a, step, lib.element)
                c = at(b, s.c, b.mul(row, s.c_row), lib.element)
                across = b.mul(s.a_stride, i64(height)) if rows else i64(height)
                strides = along(s.a_stride, rows=rows)
                ahead = [at(b, a, across, lib.element), *strides]
                right = [s.b, s.b_row, s.b_panel]
                rest = [c, s.c_row, s.n, s.k, s.keep, *ahead]
                arguments = [a, *strides, *right, *rest]
                self.strips.call(b, height, not rows, arguments)

            by_heights(b, lib.tile.heights, i64(0), s.m, strip)
        return function

    @functools.cached_property
    def transposed_panel(self) -> ir.Function:
        """``to[:, j] = source[j, :] * factor``, in panels of a tile's width."""
        lib = self.lib
        width, arguments = i64(lib.tile.width), "*source row *to k count factor"
        with lib.function("turn_all", arguments) as (b, s, function):
            with loop(b, i64(0), s.count, width) as j:
                here = at(b, s.source, b.mul(j, s.row), lib.element)
                to = at(b, s.to, b.mul(j, s.k), lib.element)
                some = minimum(b, width, b.sub(s.count, j))
                b.call(self.packing.transposed_panel, [here, s.row, to, s.k, some])
            factor = splat(b, number_of(b, s.factor, lib.element), lib.tile.lanes)
            whole = b.mul(b.sdiv(b.add(s.count, b.sub(width, i64(1))), width), width)
            with loop(b, i64(0), b.mul(whole, s.k), i64(lib.tile.lanes)) as i:
                place = at(b, s.to, i, lib.element)
                store(b, b.fmul(load(b, place, lib.vector), factor), place)
        return function

    @functools.cached_property
    def fill(self) -> ir.Function:
        """Zeros."""
        lib = self.lib
        with lib.function("fill", "*to count") as (b, s, function):
            lanes = i64(lib.tile.lanes)
            whole = b.mul(b.sdiv(s.count, lanes), lanes)
            with loop(b, i64(0), whole, lanes) as i:
                store(b, zeros(lib.vector), at(b, s.to, i, lib.element))
            with loop(b, whole, s.count) as i:
                b.store(ir.Constant(lib.element, 0.0), at(b, s.to, i, lib.element))
        return function

    # -- masks

    @functools.cached_property
    def mask_rows(self) -> ir.Function:
        """Apply a mask to scores[row, key]."""
        lib, lanes = self.lib, i64(self.lib.tile.lanes)
        arguments = "*scores scores_row *mask mask_row mask_col kind rows keys"
        with lib.function("mask_rows", arguments) as (b, s, function):

            def each(chosen: bool) -> None:
                with (
                    loop(b, i64(0), s.rows) as i,
                    loop(b, i64(0), s.keys, lanes, name="j") as j,
                ):
                    place = b.add(b.mul(i, s.scores_row), j)
                    self._combine(b, at(b, s.scores, place, lib.element),
                                  self._masks(b, s, i, j, chosen), chosen)  # fmt: skip

            _by_kind(b, s.kind, each)
        return function

    @functools.cached_property
    def mask_transposed(self) -> ir.Function:
        """Apply a mask to a panel of scores[key, row]."""
        lib, lanes = self.lib, self.lib.tile.lanes
        arguments = "*scores *mask mask_row mask_col kind rows keys"
        with lib.function("mask_turned", arguments) as (b, s, function):

            def each(chosen: bool) -> None:
                with (
                    loop(b, i64(0), s.rows, i64(lanes)) as i,
                    loop(b, i64(0), s.keys, i64(lanes), name="j") as j,
                ):
                    last = b.sub(s.rows, i64(1))  # rows beyond the last repeat it
                    rows = [minimum(b, b.add(i, i64(r)), last) for r in range(lanes)]
                    found = [self._masks(b, s, row, j, chosen) for row in rows]
                    for r, value in enumerate(transpose(b, found)):
                        place = b.mul(b.add(j, i64(r)), i64(lib.tile.width))
                        here = at(b, s.scores, b.add(place, i), lib.element)
                        self._combine(b, here, value, chosen)

            _by_kind(b, s.kind, each)
        return function

    def _combine(self, b: Any, place: Any, mask: Any, chosen: bool) -> None:
        scores = load(b, place, self.lib.vector)
        if not chosen:
            store(b, b.fadd(scores, mask), place)
            return
        out = b.fcmp_ordered("<", mask, zeros(self.lib.vector))
        low = filled(self.lib.vector, -math.inf)
        store(b, b.select(out, low, scores), place)

    def _masks(self, b: Any, s: Any, row: Any, j: Any, chosen: bool) -> Any:
        """A vector of one row of a mask; -1 stands for those that were not chosen."""
        lib, lanes = self.lib, self.lib.tile.lanes
        kind = I8 if chosen else lib.element
        vector = ir.VectorType(kind, lanes)
        start = b.add(b.mul(row, s.mask_row), b.mul(j, s.mask_col))
        place = at(b, s.mask, start, kind)
        spread = b.icmp_signed("==", s.mask_col, i64(0))
        with b.if_else(spread) as (same, side_by_side):
            with same:
                one = splat(b, b.load(place, typ=kind), lanes)
                first = b.block
            with side_by_side:
                some = first_lanes(b, b.sub(s.keys, j), lanes)
                many = (
                    _load_bytes(b, place, some)
                    if chosen
                    else load(b, place, vector, some)
                )
                second = b.block
        values = b.phi(vector)
        values.add_incoming(one, first)
        values.add_incoming(many, second)
        if not chosen:
            return values
        takes = b.icmp_unsigned("!=", values, zeros(vector))
        zero, low = zeros(lib.vector), filled(lib.vector, -1.0)
        return b.select(takes, zero, low)


def _by_kind(b: Any, kind: Any, each: Any) -> None:
    with b.if_else(b.icmp_signed("==", kind, i64(CHOSEN))) as (chosen, added):
        with chosen:
            each(True)
        with added:
            each(False)


def _load_bytes(b: Any, place: Any, mask: Any) -> Any:
    lanes = mask.type.count
    vector = ir.VectorType(I8, lanes)
    kind = ir.FunctionType(vector, [PTR, I32, ir.VectorType(I1, lanes), vector])
    call = intrinsic(b, f"llvm.masked.load.v{lanes}i8.p0", kind)
    return b.call(call, [place, I32(1), mask, zeros(vector)])


def filled(vector: Any, value: float) -> Any:
    """A vector that repeats a number."""
    return ir.Constant(vector, [value] * vector.count)


def number_of(b: Any, bits: Any, element: Any) -> Any:
    """A field that holds a double, as an element."""
    value = b.bitcast(bits, ir.DoubleType())
    return value if element == ir.DoubleType() else b.fptrunc(value, element)


def exponential(b: Any, lib: Library, x: Any) -> Any:
    """``exp(x)`` for x that is not above zero (but for rounding)."""
    with fused_products(lib.isa.fused):
        return exp_negative(Value(b, x)).ir


def larger(b: Any, x: Any, y: Any) -> Any:
    """The larger one; a NaN in x is passed over (its exponential is found later)."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def flag(b: Any, condition: Any) -> Any:
    """A condition as 0 or 1."""
    return b.zext(condition, I64)

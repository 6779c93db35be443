"""Small squares, transposed in registers while they are copied.

    for p < 16:
      for q < 16:
        s[q, p] = x[16*u + p, 16*v + q]

reads the buffer in rows of vectors, swaps blocks of lanes of 1, 2, 4 and 8, and writes
rows again: four instructions for each 16 elements.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from weft.compile.emit.control_flow import I32
from weft.compile.emit.values import Value
from weft.compile.emit.vectors import transpose
from weft.compile.loop.depend import flat_position
from weft.compile.loop.ir import For, Load, Store
from weft.compile.loop.ranges import coefficient
from weft.compile.loop.rewrite import substitute
from weft.compile.targets.cpu.cost_model import COST
from weft.core.size import same

SIDE = COST.loops.square


class Square(NamedTuple):
    """A square that is transposed: where it begins, and the stride of its rows."""

    source: Load
    target: Store
    extents: tuple[Any, Any]
    start: Any
    step: Any
    first: Any


def transposed_square(loop: For) -> Square | None:
    """The square that a nest of two loops transposes, if that is all it does."""
    if len(loop.body) != 1 or not isinstance(loop.body[0], For):
        return None
    inner = loop.body[0]
    if len(inner.body) != 1 or not isinstance(inner.body[0], Store):
        return None
    (store,) = inner.body
    load = store.value
    if not isinstance(load, Load) or store.buffer.shape != (SIDE, SIDE):
        return None
    source = flat_position(load.at, load.buffer.shape)
    target = flat_position(store.at, store.buffer.shape)
    step = coefficient(source, loop.var)
    rows = same(coefficient(source, inner.var), 1)
    columns = same(coefficient(target, loop.var), 1)
    if not rows or not columns or step is None:
        return None
    if not same(coefficient(target, inner.var), SIDE):
        return None
    starts = [_at_zero(flat, loop.var, inner.var) for flat in (source, target)]
    extents = (loop.extent, inner.extent)
    return Square(load, store, extents, starts[0], step, starts[1])


def _at_zero(flat: Any, *names: str) -> Any:
    for name in names:
        flat = substitute(flat, name=name, by=0)
    return flat


def emit_transpose(b: Any, source: Any, step: Any, target: Any, element: Any) -> None:
    """Copy the transpose of a square whose rows are ``step`` elements apart."""
    kind = ir.VectorType(element, SIDE)
    width = max(element.width // 8 if isinstance(element, ir.IntType) else
                {"float": 4, "double": 8}.get(str(element), 1), 1)  # fmt: skip
    rows = []
    for _ in range(SIDE):
        row = b.load(b.bitcast(source, kind.as_pointer()), align=width)
        rows.append(Value(b, row))
        source = b.gep(source, [step], inbounds=True)
    for k, row in enumerate(transpose(rows)):
        place = b.gep(target, [ir.Constant(I32, k * SIDE)], inbounds=True)
        b.store(row, b.bitcast(place, kind.as_pointer()), align=width)

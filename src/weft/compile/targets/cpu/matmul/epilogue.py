"""Epilogues of products, run on each part of C while it is in a cache.

    void epilogue(context, first_row, last_row, first_column, last_column)

is called while the block is in a cache. Rows are counted through all matrices of a
stack. An epilogue of whole rows is called when the last of their columns are done; the
product's tasks must not cut columns then.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I1, I64, VOID, i64
from weft.compile.emit.vectors import PTR

EPILOGUE = ir.FunctionType(VOID, [PTR, I64, I64, I64, I64])


def call_epilogue(
    b: Any, s: Any, top: Any, bottom: Any, left: Any, right: Any, last: Any = None
) -> None:
    """Call the epilogue, if there is one, for a block of C that is ``last`` in k."""
    some = b.icmp_unsigned("!=", s.epilogue, PTR(None))
    if last is not None:
        some = b.and_(some, last)
    whole = b.trunc(s.whole, I1)
    ready = b.or_(b.not_(whole), b.icmp_signed("==", right, s.column_end))
    with b.if_then(b.and_(some, ready)):
        rows = b.add(s.first_row, top), b.add(s.first_row, bottom)
        left = b.select(whole, i64(0), left)
        called = b.inttoptr(b.ptrtoint(s.epilogue, I64), EPILOGUE.as_pointer())
        b.call(called, [s.context, *rows, left, right])

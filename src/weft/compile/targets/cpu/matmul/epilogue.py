"""Epilogues of products, run on each part of C while it is in a cache.

    void epilogue(context, first_row, last_row, first_column, last_column)

is called while the block is in a cache. Rows are counted through all matrices of a
stack. An epilogue of whole rows is called when the last of their columns are done; the
product's tasks must not cut columns then.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import I64, VOID
from weft.compile.emit.flow import when
from weft.compile.emit.values import PTR, call, select

EPILOGUE = ir.FunctionType(VOID, [PTR, I64, I64, I64, I64])


def run_epilogue(s: Any, rows: Any, columns: Any) -> None:
    """Call a job's epilogue for a range of rows and of columns."""
    call(s.epilogue.address().function(EPILOGUE), [s.context, *rows, *columns])


def call_epilogue(
    s: Any, top: Any, bottom: Any, left: Any, right: Any, last: Any = True
) -> None:
    """Call the epilogue, if there is one, for a block of C that is ``last`` in k."""
    whole = s.whole.holds()
    ready = ~whole | right.equals(s.column_end)
    with when(s.epilogue.is_given() & last & ready):
        rows = s.first_row + top, s.first_row + bottom
        run_epilogue(s, rows, [select(whole, 0, left), right])

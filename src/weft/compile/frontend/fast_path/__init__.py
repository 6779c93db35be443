"""The fast path: a specialization runs again while its guards hold.

cpython_layout   where CPython keeps the values that are compared
guard_table      guards as rows of words that native code compares
guard_rows       the rows for what a specialization has read
emit             the native function that goes through the rows
path             runs of a specialization by way of that function
"""

from weft.compile.frontend.fast_path.path import MISS, FastPath, fast_path_of

__all__ = ["MISS", "FastPath", "fast_path_of"]

"""The fast path: a specialization runs again while its guards hold.

cpython_layout   where CPython keeps the values that are compared
guard_table      guards as rows of words, which guard_rows makes
emit             the native function that goes through the rows
path             a specialization's way around all that only a first run needs
"""

from weft.compile.frontend.fast_path.path import MISS, FastPath, fast_path_of

__all__ = ["MISS", "FastPath", "fast_path_of"]

"""The fast path: a specialization runs again while its guards hold.

cpython_layout   where CPython keeps the values that are compared
guard_table      guards as rows of words that native code compares
guard_rows       the rows for what a specialization has read
emit             the native function that goes through the rows
guarded_runs     a specialization, its rows and that function
path             runs of a specialization on the CPU by way of that function
device_path      and on another device
"""

from weft.compile.frontend.fast_path.guarded_runs import MISS, GuardedRuns
from weft.compile.frontend.fast_path.path import FastPath, fast_path_of

__all__ = ["MISS", "FastPath", "GuardedRuns", "fast_path_of"]

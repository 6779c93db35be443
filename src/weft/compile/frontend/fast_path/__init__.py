"""The fast path: a specialization runs again while its guards hold.

inside     where CPython keeps what is looked at
table      what must be as it was, as rows of words
code       the native function that goes through the rows
lane       a form's way around everything that only a first run needs
"""

from weft.compile.frontend.fast_path.path import MISS, FastPath, fast_path_of

__all__ = ["MISS", "FastPath", "fast_path_of"]

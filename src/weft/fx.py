"""``weft.fx``: decorators of PyTorch's tracer, which Weft's capture does not need.

``weft.graph.capture`` gives a program as data; see docs/graph.md.
"""

from __future__ import annotations

from typing import Any


def wrap(fn_or_name: Any) -> Any:
    """The function itself: a capture looks into every function.

    >>> weft.fx.wrap(abs) is abs
    True
    """
    return fn_or_name

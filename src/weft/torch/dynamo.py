"""``torch._dynamo``, as far as packages reach into it.

The compiler that it is the inside of in PyTorch is ``weft.compile`` here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from weft.compile import CompiledFunction as OptimizedModule
from weft.compiler import allow_in_graph, disable, is_compiling, reset

__all__ = [
    "OptimizedModule", "TransformGetItemToIndex", "allow_in_graph",
    "assume_constant_result", "config", "disable", "graph_break",
    "is_compiling", "is_dynamo_supported", "mark_dynamic", "mark_static_address",
    "reset",
]  # fmt: skip

config = SimpleNamespace()  # settings of another compiler: they change nothing here


@contextlib.contextmanager
def TransformGetItemToIndex() -> Iterator[None]:
    """Nothing: ``x[i]`` with an index under ``vmap`` is an operator here anyway."""
    yield


def assume_constant_result(fn: Any) -> Any:
    """The function itself: what it reads outside is guarded like everything else."""
    return fn


def graph_break() -> None:
    """Nothing: what cannot be captured is found without a hint."""


def is_dynamo_supported() -> bool:
    """Whether programs can be compiled."""
    return True


def mark_dynamic(tensor: Any, index: Any, **bounds: Any) -> None:
    """Nothing: a size that changes becomes an open size by itself."""


def mark_static_address(tensor: Any, guard: bool = True) -> None:
    """Nothing: programs read parameters where they are."""

"""``weft.compiler``: switches around compiled functions, under PyTorch's names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.compile import compile as _compile
from weft.core.mode import mode
from weft.errors import ArgumentError


def compile(model: Callable[..., Any] | None = None, **options: Any) -> Any:
    """``weft.compile`` as ``torch.compile``: what cannot be captured runs eagerly.

    >>> f = weft.compiler.compile(lambda x: x.relu() if x.sum() > 0 else x)
    >>> f(weft.ones(1)).item()
    1.0
    """
    return _compile(model, **{"fullgraph": False, **options})


def is_compiling() -> bool:
    """Whether the code that runs is being captured for a compiled program.

    >>> weft.compiler.is_compiling()
    False
    """
    return mode.capture is not None


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """Whether the code that runs is being captured for ``weft.export``.

    >>> weft.compiler.is_exporting()
    False
    """
    return False


def allow_in_graph(fn: Any) -> Any:
    """The function itself: a capture looks into every function.

    >>> weft.compiler.allow_in_graph(abs) is abs
    True
    """
    return fn


def disable(fn: Any = None, recursive: bool = True, *, reason: str = "") -> Any:
    """A function that compiled programs must not contain: its caller runs eagerly.

    In a capture it is refused at its line; with ``fullgraph=False`` the whole call is
    then an eager one.

    >>> @weft.compiler.disable
    ... def f(x):
    ...     return x + 1
    >>> f(weft.ones(1)).item()
    2.0
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, type) or not callable(fn):
        raise ArgumentError(f"disable: expected a function or a module, got {fn!r}")
    from weft.compile import CompiledFunction

    inner = fn.fn if isinstance(fn, CompiledFunction) else fn
    name = getattr(inner, "__name__", type(inner).__name__)

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        if mode.capture is not None:
            from weft.graph.symbol import CaptureError

            why = f" ({reason})" if reason else ""
            raise CaptureError(
                f"{name} is excluded from compiled programs by compiler.disable{why}; "
                "call it outside, or compile with fullgraph=False"
            )
        return inner(*args, **kwargs)

    return call


def reset() -> None:
    """Do nothing: a compiled function's programs are its own, and go with it.

    >>> weft.compiler.reset()
    """


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """The backends that ``weft.compile`` takes, besides the eager ones.

    >>> weft.compiler.list_backends()
    ['inductor']
    """
    return ["inductor"]


def cudagraph_mark_step_begin() -> None:
    """Do nothing: compiled programs keep no results in memory that they reuse.

    >>> weft.compiler.cudagraph_mark_step_begin()
    """


def assume_constant_result(fn: Any) -> Any:
    """The function itself: what it reads is checked before every run.

    >>> weft.compiler.assume_constant_result(abs) is abs
    True
    """
    return fn


__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "reset",
]

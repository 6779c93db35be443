"""``weft.compiler``: switches around compiled functions, under PyTorch's names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.compile import compile as _compile
from weft.core.mode import mode
from weft.core.pytree import tree_map
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.ops.creation import from_numpy


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
            from weft.graph.symbol import refusal

            why = f" ({reason})" if reason else ""
            raise refusal(
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


def nested_compile_region(fn: Any = None, **_: Any) -> Any:
    """The function itself: a capture goes through it, and equal kernels are one.

    >>> weft.compiler.nested_compile_region(abs) is abs
    True
    """
    return (lambda f: f) if fn is None else fn


def substitute_in_graph(original_fn: Any, **_: Any) -> Any:
    """The decorated function itself: a capture runs Python, so nothing is replaced.

    >>> @weft.compiler.substitute_in_graph(abs)
    ... def mine(x):
    ...     return x
    >>> mine(-1)
    -1
    """
    return lambda traceable_fn: traceable_fn


def wrap_numpy(fn: Any) -> Any:
    """A function of NumPy's arrays as one of tensors, which computes eagerly.

    >>> weft.compiler.wrap_numpy(lambda x: np.sqrt(x))(weft.tensor([4.0]))
    tensor([2.])
    """

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map(_as_array, (args, kwargs))
        return tree_map(_as_tensor, fn(*args, **kwargs))

    return wrapped


def _as_array(x: Any) -> Any:
    return x.detach().numpy() if isinstance(x, Tensor) else x


def _as_tensor(x: Any) -> Any:
    return from_numpy(np.asarray(x)) if isinstance(x, (np.ndarray, np.generic)) else x


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
    "nested_compile_region",
    "reset",
    "substitute_in_graph",
    "wrap_numpy",
]

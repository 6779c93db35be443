"""Arguments that functions have inside a block unless they are told (``slim``)."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.errors import ArgumentError

Scope = dict[Any, dict[str, Any]]  # arguments by function


class _Stack(threading.local):
    def __init__(self) -> None:
        self.scopes: list[Scope] = [{}]


_stack = _Stack()


def add_arg_scope(func: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose arguments ``arg_scope`` can give.

    >>> @weft.static.contrib.framework.add_arg_scope
    ... def power(x, n=1):
    ...     return x**n
    >>> with weft.static.contrib.framework.arg_scope([power], n=3):
    ...     power(2), power(2, n=2)
    (8, 4)
    """

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **{**_stack.scopes[-1].get(call, {}), **kwargs})

    call.scoped = True  # type: ignore[attr-defined]
    return call


@contextmanager
def arg_scope(list_ops_or_scope: Iterable[Any] | Scope, **kwargs: Any) -> Iterator[Any]:
    """Let functions have these arguments inside, unless a call gives others.

    A scope that was yielded before can be entered again.

    >>> slim = weft.static.contrib.slim
    >>> with weft.static.Graph().as_default(), slim.arg_scope([slim.conv2d], stride=2):
    ...     slim.conv2d(np.ones((1, 8, 8, 3), "f"), 4, 3).get_shape()
    (1, 4, 4, 4)
    """
    before = _stack.scopes[-1]
    if isinstance(list_ops_or_scope, dict):
        if kwargs:
            raise ArgumentError(
                "arg_scope: a scope that is entered again takes no more"
            )
        now = list_ops_or_scope
    else:
        functions = list(list_ops_or_scope)
        for one in functions:
            if not getattr(one, "scoped", False):
                raise ArgumentError(
                    f"arg_scope: {getattr(one, '__name__', one)} takes no arguments "
                    "from scopes; decorate it with add_arg_scope"
                )
        new = {f: {**before.get(f, {}), **kwargs} for f in functions}
        now = {**before, **new}
    _stack.scopes.append(now)
    try:
        yield now
    finally:
        _stack.scopes.pop()

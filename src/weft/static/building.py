"""Helpers with which functions under TensorFlow's names make nodes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.core.mode import mode
from weft.core.tensor import Tensor
from weft.dtype import as_dtype
from weft.errors import ArgumentError
from weft.static.graph import StaticTensor, constant, get_default_graph
from weft.static.math import _named, _node, _open
from weft.static.unranked import UnrankedPlaceholder, recorded


@contextmanager
def building() -> Iterator[None]:
    """Let every operator become a node, also one that takes no node.

    Inside a branch or body of control flow it becomes a node of that.
    """
    if mode.capture is not None:
        yield
        return
    with get_default_graph().taking():
        yield


def as_node(value: Any, dtype: Any = None) -> Any:
    """A tensor from an argument (a list may hold nodes), in a dtype if one is given."""
    if dtype is None or isinstance(value, Tensor) or _open(value):
        found = _node(value)
        return found if dtype is None else found.to(as_dtype(dtype))
    return constant(value, as_dtype(dtype))


def named(out: Any, name: str | None) -> Any:
    """A result, or each of several, under a name of the user's."""
    if name is None:
        return out
    if isinstance(out, (list, tuple)):
        make = getattr(type(out), "_make", type(out))  # of a named tuple
        return make([named(one, name) for one in out])
    return _named(out, name) if isinstance(out, StaticTensor) else out


def function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes nodes, with TensorFlow's ``name=`` for its result."""

    @functools.wraps(fn)
    def call(*args: Any, name: str | None = None, **kwargs: Any) -> Any:
        with building():
            return named(fn(*args, **kwargs), name)

    return recorded(call)


def scalar(value: Any) -> Any:
    """A placeholder without a shape as one of a single number: it must be one here."""
    if isinstance(value, UnrankedPlaceholder):
        return value.at({value: ()})
    return value


def with_scalars(*names: str) -> Callable[..., Any]:
    """A decorator of functions of which some arguments are single numbers: these may
    be placeholders without a shape."""

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        order = list(inspect.signature(fn).parameters)

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            pairs = zip(order, args, strict=False)
            given = [scalar(a) if name in names else a for name, a in pairs]
            more = {k: scalar(v) if k in names else v for k, v in kwargs.items()}
            return fn(*given, *args[len(given) :], **more)

        return call

    return decorate


def numbers(value: Any, count: int, what: str) -> tuple[int, ...]:
    """One number for all of ``count`` axes, or one for each."""
    found = (value,) * count if isinstance(value, int) else tuple(value)
    if len(found) != count:
        raise ArgumentError(f"{what}: expected a number or {count}, got {value!r}")
    return found


SHAPE_OF_VALUES = "the result's shape depends on values, which a graph cannot have"


def refused(name: str, why: str, instead: str) -> Any:
    """A function of TensorFlow's that raises an error with the reason."""

    def call(*args: Any, **kwargs: Any) -> Any:
        raise ArgumentError(f"{name}: {why}; {instead}")

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""Refused: {why}; {instead}.

    >>> weft.static.{name}([1.0])
    Traceback (most recent call last):
    ...
    weft.errors.ArgumentError: {name}: ...
    """
    return call


def given(what: str, *choices: Any) -> Any:
    """The first of an argument's old and new names that was given."""
    for one in choices:
        if one is not None:
            return one
    raise ArgumentError(f"{what}: expected an axis")


def product_of(sizes: Any) -> Any:
    total = 1
    for n in sizes:
        total = total * n
    return total

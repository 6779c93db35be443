"""Public names: a function says, where it is defined, under which names it is found.

    exp = unary("exp", np.exp, …)              weft.exp, Tensor.exp, Tensor.exp_, np.exp

    @public(method=True, inplace="0, 1", also=("clip",))
    def clamp(input, min=None, max=None):      weft.clamp, Tensor.clamp, Tensor.clamp_,
        …                                      weft.clip, Tensor.clip, Tensor.clip_

``weft`` takes over what is declared when it is imported, and finds later declarations
when they are asked for. ``tools/stubs.py`` writes the same as stubs, for editors and
type checkers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from weft.core import op as records
from weft.core.inplace import inplace as written
from weft.core.tensor import Tensor
from weft.errors import ArgumentError

Fn = TypeVar("Fn", bound=Callable[..., Any])
Form = Callable[[Callable[..., Any], str], Callable[..., Any]]


class Names(NamedTuple):
    """Where a function is found beside its module.

    ``inplace`` are the arguments of the in-place form's example, True where the builder
    of an element-wise operator knows them, or what makes the form of the function and a
    name (``core.inplace``). ``also`` are other names for the function and its forms.
    """

    exported: bool = True  # as weft.name
    method: bool = True  # as Tensor.name
    inplace: str | bool | Form = True  # as Tensor.name_
    also: tuple[str, ...] = ()
    ufuncs: tuple[str, ...] = ()  # NumPy's functions that it answers for tensors
    array_api: str | bool = False  # as weft.array_api.name, or as that name there


class Declaration(NamedTuple):
    """A public function; ``home`` is where it is defined, as a module and a name."""

    fn: Callable[..., Any]
    name: str
    home: tuple[str, str]
    names: Names


DECLARED: dict[str, Declaration] = {}  # by name
EXPORTED: dict[str, Callable[..., Any]] = {}  # the functions of ``weft``
UFUNCS: dict[Any, Callable[..., Any]] = {}  # by NumPy's function


def declare(
    fn: Callable[..., Any], name: str, names: Names, *, example: tuple[str, str]
) -> None:
    """Make a function public; ``example`` is the usual one of an in-place form."""
    taken = [n for n in (name, *names.also) if n in EXPORTED]
    taken += [n for n in _attributes(name, names) if n in vars(Tensor)]
    if taken:
        raise ArgumentError(f"{name}: there is another function named {taken[0]!r}")
    home = fn.__module__, getattr(fn, "__wrapped__", fn).__name__
    DECLARED[name] = Declaration(fn, name, home, names)
    for one in (name, *names.also):
        if names.exported:
            EXPORTED[one] = fn
        if names.method:
            setattr(Tensor, one, fn)
        if names.inplace is not False:
            setattr(Tensor, f"{one}_", _form(fn, f"{one}_", names.inplace, example))
    for theirs in names.ufuncs:
        UFUNCS[getattr(np, theirs)] = fn


def _form(
    fn: Callable[..., Any], name: str, given: str | bool | Form, usual: tuple[str, str]
) -> Callable[..., Any]:
    """The in-place form of a function."""
    if callable(given):
        return given(fn, name)
    arguments, dtype = usual
    return written(fn, name, given if isinstance(given, str) else arguments, dtype)


def _attributes(name: str, names: Names) -> list[str]:
    """The names of methods."""
    found = [name, *names.also] if names.method else []
    return [*found, *(f"{n}_" for n in (name, *names.also) if names.inplace is not False)]


def public(
    name: str = "",
    *,
    exported: bool = True,
    method: bool = False,
    inplace: str | bool | Form = False,
    also: tuple[str, ...] = (),
    ufuncs: tuple[str, ...] = (),
    array_api: str | bool = False,
) -> Callable[[Fn], Fn]:
    """Declare a function public, under its own name or another."""
    names = Names(exported, method, inplace, also, ufuncs, array_api)

    def decorate(fn: Fn) -> Fn:
        declare(fn, name or fn.__name__, names, example=("", "float32"))
        return fn

    return decorate


def withdraw(name: str) -> None:
    """Take a function's public names away."""
    found = DECLARED.pop(name, None)
    if found is None:
        return
    for one in (name, *found.names.also):
        EXPORTED.pop(one, None)
    for one in _attributes(name, found.names):
        delattr(Tensor, one)
    for theirs in [ufunc for ufunc, fn in UFUNCS.items() if fn is found.fn]:
        del UFUNCS[theirs]


records.on_unregister = withdraw

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

from weft.core.inplace import Form
from weft.core.inplace import inplace as written
from weft.core.op import unregistered
from weft.core.tensor import Tensor
from weft.errors import ArgumentError

Fn = TypeVar("Fn", bound=Callable[..., Any])


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


METHOD = Names()
DECLARED: dict[str, tuple[Callable[..., Any], Names]] = {}  # by name
EXPORTED: dict[str, Callable[..., Any]] = {}  # the functions of ``weft``
UFUNCS: dict[Any, str] = {}  # the name of the function that answers NumPy's


def declare(
    fn: Callable[..., Any], name: str, names: Names, *, example: tuple[str, str]
) -> None:
    """Make a function public; ``example`` is the usual one of an in-place form."""
    taken = [n for n in (name, *names.also) if n in EXPORTED]
    taken += [n for n in _attributes(name, names) if n in vars(Tensor)]
    if taken:
        raise ArgumentError(f"{name}: there is another function named {taken[0]!r}")
    DECLARED[name] = fn, names
    for one in (name, *names.also):
        if names.exported:
            EXPORTED[one] = fn
        if names.method:
            setattr(Tensor, one, fn)
        if names.inplace is not False:
            setattr(Tensor, f"{one}_", _form(fn, f"{one}_", names.inplace, example))
    for theirs in names.ufuncs:
        UFUNCS[getattr(np, theirs)] = name


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
    return [
        *found,
        *(f"{n}_" for n in (name, *names.also) if names.inplace is not False),
    ]


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


def array_api() -> dict[str, Callable[..., Any]]:
    """The functions that are the array API standard's, by its names."""
    found = {}
    for name, (fn, names) in DECLARED.items():
        if names.array_api:
            theirs = names.array_api if isinstance(names.array_api, str) else name
            found[theirs] = fn
    return found


def withdraw(name: str) -> None:
    """Take the public names of the function of an operator away."""
    if name not in DECLARED:
        return
    _, names = DECLARED.pop(name)
    for one in (name, *names.also):
        EXPORTED.pop(one, None)
    for one in _attributes(name, names):
        delattr(Tensor, one)
    for theirs in names.ufuncs:
        UFUNCS.pop(getattr(np, theirs))


unregistered.append(withdraw)

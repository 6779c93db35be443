"""Public names: a function says, where it is defined, under which names it is found.

    exp = unary("exp", np.exp, …)              weft.exp, Tensor.exp, Tensor.exp_, np.exp

    @public(method=True, inplace="0, 1", also=("clip",))
    def clamp(input, min=None, max=None):      weft.clamp, Tensor.clamp, Tensor.clamp_,
        …                                      weft.clip, Tensor.clip, Tensor.clip_

``weft`` takes over all declarations when it is imported, and finds later ones when they
are first used. ``tools/stubs.py`` writes the same as stubs, for editors and type
checkers.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from weft.core.op import Op, unregistered
from weft.core.record import Record
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.ops.inplace import Form
from weft.ops.inplace import inplace as written

Fn = TypeVar("Fn", bound=Callable[..., Any])


class Names(Record):
    """The public names of a function.

    ``inplace`` are the arguments of the in-place form's example, True where the builder
    of an element-wise operator knows them, or a function that makes the form of the
    function and a name (``ops.inplace``). ``also`` are other names for both.
    """

    exported: bool = True  # as weft.name
    method: bool = True  # as Tensor.name
    inplace: str | bool | Form = True  # as Tensor.name_
    also: tuple[str, ...] = ()
    ufuncs: tuple[str, ...] = ()  # NumPy's functions that it answers for tensors
    array_api: str | bool = False  # as weft.array_api.name, or as that name there


class Later:
    """A method that is declared by a module when it is first asked for."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        importlib.import_module(self.module)
        return getattr(owner if instance is None else instance, self.name)


METHOD = Names()
_MEMBERS, _NAMESPACE = vars(Tensor), vars(sys.modules["weft"])
DECLARED: dict[str, tuple[Callable[..., Any], Names | public]] = {}  # by name
EXPORTED: dict[str, Callable[..., Any]] = {}  # the functions of ``weft``
LATER: dict[str, str] = {}  # modules of functions that are declared when asked for
UFUNCS: dict[Any, str] = {}  # the name of the function that answers NumPy's


def declare_later(module: str, functions: str, methods: str | None = None) -> None:
    """Name what a module declares once somebody asks for one of these.

    Names are in a row, as ``"det inverse"``; methods are the functions, unless given.
    """
    LATER.update(dict.fromkeys(functions.split(), module))
    for name in (functions if methods is None else methods).split():
        setattr(Tensor, name, Later(module, name))


def _is_later(name: str) -> bool:
    return type(_MEMBERS[name]) is Later


def declare(
    fn: Callable[..., Any],
    name: str,
    names: Names | public,
    example: tuple[str, str] = ("", "float32"),
) -> None:
    """Make a function public.

    ``example`` are the usual arguments of an in-place form, and the tensor's dtype.
    """
    every = name, *names.also
    for one in every:
        if (
            one in EXPORTED
            or (names.exported and one in _NAMESPACE)
            or (names.method and one in _MEMBERS and not _is_later(one))
        ):
            raise ArgumentError(f"{name}: there is something else named {one!r}")
    for one in every:
        if names.exported:
            EXPORTED[one] = fn
        if names.method:
            setattr(Tensor, one, fn)
        if names.inplace is not False:
            setattr(Tensor, f"{one}_", _form(fn, f"{one}_", names.inplace, example))
    for theirs in names.ufuncs:
        UFUNCS[getattr(np, theirs)] = name
    DECLARED[name] = fn, names


def _form(
    fn: Callable[..., Any], name: str, given: str | bool | Form, usual: tuple[str, str]
) -> Callable[..., Any]:
    """The in-place form of a function."""
    if callable(given):
        return given(fn, name)
    arguments, dtype = usual
    return written(fn, name, given if isinstance(given, str) else arguments, dtype)


class public(Record):
    """A decorator that makes a function public, under its own name or another.

    The fields are those of ``Names``; a function is exported, but no method, unless it
    says so.
    """

    name: str = ""
    exported: bool = True
    method: bool = False
    inplace: str | bool | Form = False
    also: tuple[str, ...] = ()
    ufuncs: tuple[str, ...] = ()
    array_api: str | bool = False

    def __call__(self, fn: Fn) -> Fn:
        declare(fn, self.name or fn.__name__, self)
        return fn


def array_api() -> dict[str, Callable[..., Any]]:
    """The functions that are the array API standard's, by its names."""
    found = {}
    for name, (fn, names) in DECLARED.items():
        if names.array_api:
            theirs = names.array_api if isinstance(names.array_api, str) else name
            found[theirs] = fn
    return found


def withdraw(name: str) -> None:
    """Take a function's public names away."""
    _, names = DECLARED.pop(name)
    for one in (name, *names.also):
        EXPORTED.pop(one, None)
        if names.method:
            delattr(Tensor, one)
        if names.inplace is not False:
            delattr(Tensor, f"{one}_")
    for theirs in [ufunc for ufunc, answer in UFUNCS.items() if answer == name]:
        del UFUNCS[theirs]


def _withdraw_function(op: Op) -> None:
    fn, _ = DECLARED.get(op.name, (None, None))
    if fn is not None and fn is op.function:
        withdraw(op.name)


unregistered.append(_withdraw_function)

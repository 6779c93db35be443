"""Every public name is documented, and every example in the documentation runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.func

OPTIONS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


def modules() -> list[types.ModuleType]:
    found = [weft]
    for info in pkgutil.walk_packages(weft.__path__, "weft."):
        found.append(importlib.import_module(info.name))
    return found


def namespaces() -> list[types.ModuleType]:
    """The namespaces that users import names from."""
    names = (
        "func autograd linalg special array_api nn nn.functional nn.init nn.utils "
        "nn.utils.rnn optim optim.lr_scheduler models metrics training graph static "
        "layers symbolic compile"
    )
    return [weft, *(importlib.import_module(f"weft.{n}") for n in names.split())]


def documented(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """Each object of a module that has a docstring of its own, by name."""
    for name, value in vars(module).items():
        home = getattr(value, "__module__", None) or module.__name__
        if not str(home).startswith("weft"):
            continue  # another library's
        if home != module.__name__ and (not callable(value) or inspect.isclass(value)):
            continue  # functions built elsewhere (unary, binary) still belong here
        if isinstance(value, types.ModuleType) or not getattr(value, "__doc__", None):
            continue
        if callable(value):
            yield f"{module.__name__}.{name}", value
        if inspect.isclass(value) and value.__module__.startswith("weft"):
            for inner, member in vars(value).items():
                target = member.fget if isinstance(member, property) else member
                if isinstance(target, (staticmethod, classmethod)):
                    target = target.__func__
                if callable(target) and getattr(target, "__doc__", None):
                    yield f"{module.__name__}.{name}.{inner}", target


def examples() -> list[doctest.DocTest]:
    parser = doctest.DocTestParser()
    seen: set[int] = set()
    tests = []
    for module in modules():
        own = [(module.__name__, module)] if module.__doc__ else []
        for name, value in [*own, *documented(module)]:
            doc = getattr(value, "__doc__", None)
            if not isinstance(doc, str) or ">>>" not in doc or id(value) in seen:
                continue
            seen.add(id(value))
            home = getattr(value, "__module__", None) or module.__name__
            names = {} if home == "weft" else vars(importlib.import_module(home))
            scope = {**names, "weft": weft, "np": np}
            tests.append(parser.get_doctest(doc, scope, name, name, 0))
    return tests


def test_every_example_runs() -> None:
    tests = examples()
    assert len(tests) > 400
    problems: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    for test in tests:
        runner.run(test, out=problems.append)
    assert not problems, "\n".join(problems[:40])


def public(module: types.ModuleType) -> list[tuple[str, Any]]:
    names = getattr(module, "__all__", None) or [n for n in vars(module) if n[0] != "_"]
    pairs = [(name, getattr(module, name)) for name in names]
    return [
        (name, value)
        for name, value in pairs
        if callable(value)
        and not isinstance(value, weft.DType)
        and str(getattr(value, "__module__", "weft")).startswith("weft")
    ]


@pytest.mark.parametrize("module", namespaces(), ids=lambda m: m.__name__)
def test_public_names_are_documented(module: types.ModuleType) -> None:
    bare = [name for name, value in public(module) if not value.__doc__]
    assert not bare, f"without a docstring: {bare}"
    unshown = [
        name
        for name, value in public(module)
        if not inspect.isclass(value) and ">>>" not in (value.__doc__ or ">>>")
    ]
    assert not unshown, f"without an example: {unshown}"


# What the core asks of a tensor; no user calls these.
PROTOCOL = {
    "alias", "array", "become", "freeze", "in_order", "is_owned", "layout_array",
    "on_device", "relinked", "saved_alias", "settled", "stopped", "storage", "to_host",
}  # fmt: skip


def test_tensor_methods_are_documented() -> None:
    bare, unshown = [], []
    for name in set(dir(weft.Tensor)) - PROTOCOL:
        if name.startswith("_"):
            continue
        value = inspect.getattr_static(weft.Tensor, name)
        target = value.fget if isinstance(value, property) else value
        if not callable(target):
            continue
        if not target.__doc__:
            bare.append(name)
        elif ">>>" not in target.__doc__ and not isinstance(value, property):
            unshown.append(name)
    assert not bare, f"without a docstring: {bare}"
    assert not unshown, f"without an example: {unshown}"

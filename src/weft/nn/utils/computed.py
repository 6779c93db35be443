"""Parameters that are computed from others whenever they are read.

``module.weight`` becomes a property of a subclass that the module alone has, so that
weight norm, pruning and parametrizations work in programs like any other operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Get = Callable[[Any], Any]
Put = Callable[[Any, Any], None]


def compute(
    module: Any, name: str, get: Get, put: Put | None = None, title: str = "{}"
) -> None:
    """Let an attribute of a module be ``get(module)``, and set by ``put``."""
    kind: Any = type(module)
    if "_computed" not in kind.__dict__:
        kind = _subclass(kind, title)
        module.__class__ = kind
    kind._computed[name] = get, put, title
    setattr(kind, name, property(get, put or _refuse(name)))


def restore(module: Any, name: str) -> None:
    """Let an attribute be one of the module's own again."""
    kind: Any = type(module)
    delattr(kind, name)
    del kind._computed[name]
    if not kind._computed:
        module.__class__ = kind.__bases__[0]


def computed(module: Any, name: str) -> Any:
    """The function that computes an attribute, if one does."""
    held = getattr(type(module), "_computed", {})
    return held[name][0] if name in held else None


def _refuse(name: str) -> Put:
    def put(module: Any, value: Any) -> None:
        raise AttributeError(
            f"{name} is computed from other parameters; set those, or take off what "
            "computes it first"
        )

    return put


def _subclass(kind: type, title: str) -> type:
    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        """Copies and pickles get a class of their own."""
        return _again, (kind, dict(type(self)._computed)), self.__dict__

    fields = {
        "_computed": {}, "__reduce_ex__": __reduce_ex__, "__doc__": kind.__doc__,
        "__module__": kind.__module__,
    }  # fmt: skip
    return type(kind)(title.format(kind.__name__), (kind,), fields)


def _again(kind: type, names: dict[str, Any]) -> Any:
    made = object.__new__(kind)
    for name, (get, put, title) in names.items():
        compute(made, name, get, put, title)
    return made

"""The compiler: from graphs to native code.

``weft.compile`` is this package and, called, the function: both names are right.

>>> double = weft.compile(lambda x: x * 2)
>>> double(weft.ones(2))
tensor([2., 2.])

Its parts are imported when they are asked for: eager kernels need few of them.
"""

import importlib as _importlib
import sys as _sys
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from weft.compile.frontend.function import CompiledFunction, compile
    from weft.compile.passes.user_rules import add_rule, remove_rule

__all__ = ["CompiledFunction", "add_rule", "compile", "remove_rule"]

_PLACES = {
    "CompiledFunction": "weft.compile.frontend.function",
    "add_rule": "weft.compile.passes.user_rules",
    "compile": "weft.compile.frontend.function",
    "remove_rule": "weft.compile.passes.user_rules",
}


def __getattr__(name: str) -> _Any:
    if name in _PLACES:
        value = getattr(_importlib.import_module(_PLACES[name]), name)
        globals()[name] = value
        return value
    if not name.startswith("_"):
        try:
            return _importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError:
            pass
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Callable(_ModuleType):
    """A module that is its main function too."""

    def __call__(self, *args: _Any, **options: _Any) -> _Any:
        return __getattr__("compile")(*args, **options)


_sys.modules[__name__].__class__ = _Callable

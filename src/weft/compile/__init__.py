"""The compiler: from graphs to native code.

``weft.compile`` is this package and, called, the function: both names are right.

>>> double = weft.compile(lambda x: x * 2)
>>> double(weft.ones(2))
tensor([2., 2.], shape=(2,), dtype=float32)
"""

import sys as _sys
from types import ModuleType as _ModuleType
from typing import Any as _Any

from weft import nn as _nn  # noqa: F401  (its operators register themselves)
from weft.compile.api import CompiledFunction, compile
from weft.compile.passes.rules import add_rule, remove_rule

__all__ = ["CompiledFunction", "add_rule", "compile", "remove_rule"]


class _Callable(_ModuleType):
    """A module that is its main function too."""

    def __call__(self, *args: _Any, **options: _Any) -> _Any:
        return compile(*args, **options)


_sys.modules[__name__].__class__ = _Callable

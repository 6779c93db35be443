"""Modules that run as native code, and are still modules.

    model = weft.compile(model)
    model.parameters(), model.eval(), model.load_state_dict(...), model(x)

A compiled module is of a subclass of the original's class and shares its dictionary of
attributes, so that only its calls differ.
"""

from __future__ import annotations

import copy
from typing import Any

from weft.compile.frontend.function import CompiledFunction
from weft.errors import shorten


def compiled_module(function: CompiledFunction) -> Any:
    """The module whose calls are those of the compiled function."""
    module: Any = function.fn
    compiled: Any = object.__new__(_subclass(type(module)))
    object.__setattr__(compiled, "__dict__", module.__dict__)
    object.__setattr__(compiled, "_function", function)
    return compiled


def compile_again(module: Any, options: dict[str, Any]) -> Any:
    """Compile an unpickled module that was compiled when it was pickled."""
    return compiled_module(CompiledFunction(module, **options))


def _subclass(kind: type) -> type:
    """The subclass whose objects call their compiled functions."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._function(*args, **kwargs)
        except BaseException as error:
            shorten(error)
            raise

    def __getattr__(self: Any, name: str) -> Any:
        try:
            return kind.__getattr__(self, name)  # type: ignore[attr-defined]
        except AttributeError:
            if hasattr(self._function, name):
                return getattr(self._function, name)
            raise

    def __copy__(self: Any) -> Any:
        function = self._function
        twin = copy.copy(function.fn)
        return compiled_module(CompiledFunction(twin, **function.options))

    def __deepcopy__(self: Any, memo: Any) -> Any:
        return compiled_module(copy.deepcopy(self._function, memo))

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        return compile_again, (self._function.fn, self._function.options)

    own = (__call__, __getattr__, __copy__, __deepcopy__, __reduce_ex__)
    names = {method.__name__: method for method in own}
    fields = {"__slots__": ("_function",), "__module__": kind.__module__,
              "__doc__": kind.__doc__, **names}  # fmt: skip
    return type(kind)(f"Compiled{kind.__name__}", (kind,), fields)

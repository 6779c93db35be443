"""Modules that run as native code, and are still modules.

    model = weft.compile(model)
    model.parameters(), model.eval(), model.load_state_dict(...), model(x)

A compiled module has the class and the attributes of the one it was made of: a class
below that one's, and the very same dictionary. It differs in what a call does.
"""

from __future__ import annotations

import copy
from typing import Any

from weft.compile.frontend.function import CompiledFunction
from weft.errors import shorten


def compiled_module(function: CompiledFunction) -> Any:
    """The module of a compiled one, whose calls are that function's."""
    module: Any = function.fn
    made: Any = object.__new__(_class_below(type(module)))
    object.__setattr__(made, "__dict__", module.__dict__)
    object.__setattr__(made, "_function", function)
    return made


def compile_again(module: Any, options: dict[str, Any]) -> Any:
    """A module that was compiled where it came from, compiled here."""
    return compiled_module(CompiledFunction(module, **options))


def _class_below(kind: type) -> type:
    """A class whose objects are called as compiled functions."""

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

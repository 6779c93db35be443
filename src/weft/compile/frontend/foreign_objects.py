"""Objects that a function may change, as they were before its capture.

They are those of a program's own classes among the arguments and, for a method of a
module, the attributes of its submodules and parameters. A function may keep tensors
there (a cache of keys and values, the state of a spiking neuron, what a hook notes) or
count its calls. Its capture is refused then, after it has put tensors without values
there; all is set as it was, so that the eager call finds what a caller gave.
"""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from weft import late
from weft.core.pytree import custom_node, tree_flatten
from weft.core.tensor import Tensor

MOST = 10_000  # objects that are looked at
_PLAIN = (
    Tensor, np.ndarray, type, FunctionType, BuiltinFunctionType, MethodType, ModuleType,
)  # fmt: skip


class ForeignObjects:
    """The attributes of such objects, to be set again.

    >>> from types import SimpleNamespace
    >>> from weft.compile.frontend.foreign_objects import ForeignObjects
    >>> cache = SimpleNamespace(keys=[1])
    >>> before = ForeignObjects((cache,))
    >>> cache.keys.append(2)
    >>> cache.more = 3
    >>> before.restore()
    >>> cache
    namespace(keys=[1])
    """

    def __init__(self, arguments: Any, function: Any = None) -> None:
        self.saved: list[tuple[Any, Any]] = []
        seen: set[int] = set()
        waiting = [leaf for leaf in tree_flatten(arguments)[0] if _is_foreign(leaf)]
        owner = getattr(function, "__self__", function)
        if isinstance(owner, late.find("Module")):
            waiting += [vars(module) for module in owner.modules()]
            self.saved += [(vars(p), vars(p).copy()) for p in owner.parameters()]
        while waiting and len(seen) < MOST:
            value = waiting.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, (list, dict)):
                self.saved.append((value, value.copy()))
                waiting.extend(value.values() if isinstance(value, dict) else value)
            elif isinstance(value, tuple):
                waiting.extend(tuple.__iter__(value))  # a class may have no length
            elif _is_foreign(value):
                waiting.append(vars(value))

    def restore(self) -> None:
        """Set everything as it was."""
        for holder, copy in self.saved:
            if isinstance(holder, dict):
                dict.clear(holder)
                dict.update(holder, copy)
            else:
                holder[:] = copy


def _is_foreign(value: Any) -> bool:
    """Whether a value is an object with attributes that a function may set."""
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, (*_PLAIN, late.find("Module")))
        and custom_node(type(value)) is None
    )

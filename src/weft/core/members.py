"""The dictionaries in which a module holds its parameters, buffers and submodules.

``module._parameters``, ``module._buffers`` and ``module._modules`` are what a module
has: names, order, and entries that are ``None``. Attribute lookup in Python finds names
in ``module.__dict__`` ten times as fast as through ``__getattr__``, so each entry is
kept there as well, and these dictionaries are the only ones to do that.
"""

from __future__ import annotations

import weakref
from collections.abc import MutableMapping
from typing import Any

KINDS = ("_parameters", "_buffers", "_modules")
# Hooks by id: of calls, which compiled programs watch, and of saving and loading.
CALL_HOOKS = (
    "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks",
)  # fmt: skip
HOOKS = (
    *CALL_HOOKS,
    "_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called", "_state_dict_pre_hooks", "_state_dict_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
_MISSING: Any = object()


class Members(dict[str, Any]):
    """A module's parameters, buffers or submodules by name.

    A change of the dictionary is a change of the module's attributes, unless the
    module's class or the module itself has something else under that name.

    >>> layer = weft.nn.Linear(2, 2)
    >>> layer._parameters["bias"] = None
    >>> print(layer.bias)
    None
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: Any) -> None:
        super().__init__()
        self._owner = weakref.ref(owner)  # no cycle: modules go when they are let go

    def __setitem__(self, name: str, value: Any) -> None:
        owner = self._owner()
        before = self.get(name, _MISSING)
        super().__setitem__(name, value)
        if owner is not None:
            fields = owner.__dict__
            held = fields.get(name, _MISSING)
            if held is before and (before is not _MISSING or _free(owner, name)):
                fields[name] = value

    def __delitem__(self, name: str) -> None:
        value, owner = self[name], self._owner()
        super().__delitem__(name)
        if owner is not None and owner.__dict__.get(name, _MISSING) is value:
            del owner.__dict__[name]

    # The methods of ``dict`` that change it would pass by the two above.
    clear = MutableMapping.clear
    update = MutableMapping.update
    setdefault = MutableMapping.setdefault

    def pop(self, name: str, *default: Any) -> Any:
        if name not in self and default:
            return default[0]
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        if not self:
            raise KeyError("popitem(): the dictionary is empty")
        name = next(reversed(self))
        return name, self.pop(name)

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles belong to the copy of the module."""
        return Members, (self._owner(),), None, None, iter(list(self.items()))


def _free(owner: Any, name: str) -> bool:
    """Whether an attribute of this name would hide nothing of the class."""
    return getattr(type(owner), name, _MISSING) is _MISSING

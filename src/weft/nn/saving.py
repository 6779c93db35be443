"""A module's state by path: ``state_dict``, ``load_state_dict`` and their hooks.

Both walk the tree. A module's own part is ``_save_to_state_dict`` and
``_load_from_state_dict``, which classes may define for themselves; hooks come before
and after. Versions of classes (``_version``) travel in ``state_dict._metadata``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from weft import Tensor, no_grad
from weft.core.mode import mode
from weft.errors import ArgumentError
from weft.nn.parameter import Parameter

Hook = Callable[..., Any]
T_destination = TypeVar("T_destination", bound=dict[str, Any])
EXTRA_STATE = "_extra_state"


class RemovableHandle:
    """Removes a hook with ``remove()``."""

    _next = 0  # counts all changes, so that compiled programs notice them

    def __init__(
        self,
        hooks: dict[int, Hook],
        hook: Hook,
        prepend: bool = False,
        marks: tuple[dict[int, bool], ...] = (),
    ) -> None:
        _note_change(hooks)
        self.id = RemovableHandle._next
        self.hooks, self.marks = hooks, marks
        hooks[self.id] = hook
        if prepend:
            others = [k for k in hooks if k != self.id]
            for key in others:
                hooks[key] = hooks.pop(key)
        for mark in marks:
            mark[self.id] = True

    def remove(self) -> None:
        _note_change(self.hooks)
        every: list[dict[int, Any]] = [self.hooks, *self.marks]
        for held in every:
            held.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def _note_change(hooks: dict[int, Any]) -> None:
    """Count a change of hooks, and tell the running capture of it."""
    RemovableHandle._next += 1
    if mode.capture is not None:
        mode.capture.note_hooks(hooks)


class IncompatibleKeys(NamedTuple):
    """The keys that ``load_state_dict(strict=False)`` left out."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"_IncompatibleKeys(missing_keys={self.missing_keys}, "
            f"unexpected_keys={self.unexpected_keys})"
        )

    def __str__(self) -> str:
        return repr(self)


class Pending(list[Any]):
    """Values that are taken over once the whole load is known to fit."""

    def apply(self) -> None:
        for target, value, assign in self:
            _take_over(target, value, assign)
        self.clear()


class Saving:
    """The part of a module that saves and loads it."""

    _version: int = 1  # of the class's state, kept in state_dict._metadata
    dump_patches = False  # PyTorch keeps this name; nothing reads it
    T_destination = T_destination

    # -- saving

    def state_dict(
        self: Any,
        *args: Any,
        destination: Any = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> Any:
        """All parameters and persistent buffers by path.

        >>> list(weft.nn.Linear(3, 2).state_dict())
        ['weight', 'bias']
        """
        given = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
        destination = given.get("destination", destination)
        prefix = given.get("prefix", prefix)
        keep_vars = given.get("keep_vars", keep_vars)
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._submodules():
            module.state_dict(
                destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
            )
        for hook in list(self._state_dict_hooks.values()):
            replaced = hook(self, destination, prefix, metadata)
            if replaced is not None and not getattr(hook, "_public", False):
                destination = replaced
        return destination

    def _save_to_state_dict(
        self: Any, destination: Any, prefix: str, keep_vars: bool
    ) -> None:
        """Enter this module's own parameters, buffers and extra state."""
        for name, value in self._state():
            destination[prefix + name] = value if keep_vars else value.detach()
        if type(self).get_extra_state is not Saving.get_extra_state:
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def _state(self: Any) -> Iterator[tuple[str, Tensor]]:
        """This module's own parameters and persistent buffers."""
        for name, value in self._own():
            if isinstance(value, Parameter):
                yield name, value
        for name, value in self._buffers.items():
            if value is not None and name not in self._non_persistent_buffers_set:
                yield name, value

    def get_extra_state(self) -> Any:
        """Further state for ``state_dict``; define it with ``set_extra_state``."""
        raise RuntimeError(
            f"{type(self).__name__}: define get_extra_state() to keep extra state"
        )

    def set_extra_state(self, state: Any) -> None:
        """Take over what ``get_extra_state`` gave."""
        raise RuntimeError(
            f"{type(self).__name__}: the state has an entry {EXTRA_STATE!r}; define "
            "set_extra_state() to take it over"
        )

    # -- loading

    def load_state_dict(
        self: Any,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        assign: bool = False,
    ) -> IncompatibleKeys:
        """Take over saved values by path.

        With ``strict`` a missing, unexpected or mis-shaped entry refuses the whole
        load with a readable difference, and nothing is changed.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                "load_state_dict: expected a dictionary of tensors by path, got "
                f"{type(state_dict).__name__}"
            )
        entries = OrderedDict(state_dict)
        load = _Load(entries, getattr(state_dict, "_metadata", {}), assign)
        load.walk(self, "")
        left = IncompatibleKeys(load.missing, load.unexpected(self))
        if load.after and not load.errors:  # they see what was loaded
            load.pending.apply()
            for hook in load.after:
                hook(left)
        lines = load.problems(self, left, strict)
        if lines:
            head = f"load_state_dict: the entries do not fit {type(self).__name__}"
            raise ArgumentError("\n".join([head, *_shortened(lines, strict)]))
        load.pending.apply()
        return left

    def _load_from_state_dict(
        self: Any,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take over this module's own entries, those that begin with ``prefix``."""
        for hook in list(self._load_state_dict_pre_hooks.values()):
            hook(
                state_dict, prefix, local_metadata, strict, missing_keys,
                unexpected_keys, error_msgs,
            )  # fmt: skip
        plain = type(self)._load_from_state_dict is Saving._load_from_state_dict
        pending = local_metadata.get("pending") if plain else None
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, target in self._state():
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            value = state_dict[key]
            if target.ndim == 0 and np.shape(value) == (1,):
                value = value[0]  # numbers were saved so once
            want, got = tuple(target.shape), tuple(np.shape(value))
            if want != got:
                error_msgs.append(f"  wrong shape {key} {want}, got {got}")
            elif pending is not None:
                pending.append((target, value, assign))
            else:
                _take_over(target, value, assign)
        self._load_extra_state(state_dict, prefix + EXTRA_STATE, missing_keys, strict)

    def _load_extra_state(
        self, state_dict: Any, key: str, missing: list[str], strict: bool
    ) -> None:
        if type(self).set_extra_state is not Saving.set_extra_state:
            if key in state_dict:
                self.set_extra_state(state_dict[key])
            elif strict:
                missing.append(key)

    # -- hooks

    def register_state_dict_pre_hook(self: Any, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before state is saved."""
        return RemovableHandle(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self: Any, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` afterwards.

        It changes the dictionary in place.
        """

        def checked(*args: Any) -> None:
            if hook(*args) is not None:
                raise RuntimeError(
                    "register_state_dict_post_hook: expected the hook to change the "
                    "dictionary in place and to return None"
                )

        return RemovableHandle(self._state_dict_hooks, checked)

    def _register_state_dict_hook(self: Any, hook: Hook) -> RemovableHandle:
        """As ``register_state_dict_post_hook``, but a result replaces the state."""
        return RemovableHandle(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self: Any, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata, strict,
        missing_keys, unexpected_keys, error_msgs)`` before entries are taken over."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self: Any, hook: Hook, with_module: bool = False
    ) -> RemovableHandle:
        held = _WithModule(hook, self) if with_module else hook
        return RemovableHandle(self._load_state_dict_pre_hooks, held)

    def register_load_state_dict_post_hook(self: Any, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` when this module is loaded.

        It may change the lists of keys in place.
        """
        return RemovableHandle(self._load_state_dict_post_hooks, hook)


class _WithModule:
    """A hook whose first argument is the module."""

    def __init__(self, hook: Hook, module: Any) -> None:
        self.hook, self.module = hook, module

    def __call__(self, *args: Any) -> Any:
        return self.hook(self.module, *args)


class _Load:
    """One run of ``load_state_dict`` over a tree of modules."""

    def __init__(self, entries: Any, metadata: Any, assign: bool) -> None:
        self.entries, self.metadata, self.assign = entries, metadata, assign
        self.missing: list[str] = []
        self.foreign: list[str] = []
        self.errors: list[str] = []
        self.known: set[str] = set()
        self.pending = Pending()
        self.after: list[Any] = []

    def walk(self, module: Any, prefix: str) -> None:
        own = self.metadata.get(prefix[:-1], {})
        local = {**own, "assign_to_params_buffers": self.assign,
                 "pending": self.pending}  # fmt: skip
        module._load_from_state_dict(
            self.entries, prefix, local, True, self.missing, self.foreign, self.errors
        )
        self.known |= {prefix + name for name, _ in module._state()}
        if type(module).set_extra_state is not Saving.set_extra_state:
            self.known.add(prefix + EXTRA_STATE)
        for name, child in module._submodules():
            self.walk(child, f"{prefix}{name}.")
        for hook in list(module._load_state_dict_post_hooks.values()):
            self.after.append(_bound(hook, module))

    def unexpected(self, module: Any) -> list[str]:
        extra = [k for k in self.entries if k not in self.known]
        return [*dict.fromkeys([*self.foreign, *extra])]

    def problems(self, module: Any, left: IncompatibleKeys, strict: bool) -> list[str]:
        lines = []
        if strict and left.missing_keys:
            mine = module.state_dict(keep_vars=True)
            lines += [f"  missing     {k} {_size(mine.get(k))}".rstrip()
                      for k in left.missing_keys]  # fmt: skip
        lines += self.errors
        if strict:
            lines += [f"  unexpected  {k} {_size(self.entries.get(k))}".rstrip()
                      for k in left.unexpected_keys]  # fmt: skip
        return lines


def _bound(hook: Hook, module: Any) -> Hook:
    return lambda left: hook(module, left)


def _size(value: Any) -> str:
    return str(tuple(value.shape)) if hasattr(value, "shape") else ""


def _shortened(lines: list[str], strict: bool) -> list[str]:
    if len(lines) > 40:
        lines = [*lines[:40], f"  … and {len(lines) - 40} more"]
    if strict:
        lines = [*lines, "Pass strict=False to load what fits by name and shape."]
    return lines


def _take_over(target: Tensor, value: Any, assign: bool) -> None:
    from weft import as_tensor

    source = as_tensor(value).detach()
    if assign:
        target.data = source
    else:
        with no_grad():
            target.copy_(source)

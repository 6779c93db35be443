"""``functional_call``: a module as a function of its parameters and buffers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from weft.core.tensor import Tensor
from weft.errors import ArgumentError

Slot = tuple[Any, Any]  # a container and the key under which it holds a tensor


def _slots(module: Any) -> dict[str, Slot]:
    """The dictionaries that hold each parameter and buffer of a module tree."""
    out: dict[str, Slot] = {}
    for path, owner in module.named_modules():
        lead = f"{path}." if path else ""
        for name, slot, value in _held(owner):
            if isinstance(value, Tensor) and value._parameter:
                out[lead + name] = slot
        for held in (owner._parameters, owner._buffers):
            out |= {lead + name: (held, name) for name in held}
    return out


def _held(owner: Any) -> Iterator[tuple[str, Slot, Any]]:
    """Values in lists and dicts among a module's attributes."""
    fields = owner.__dict__
    stack: list[tuple[str, Any, Any]] = [(key, fields, key) for key in fields]
    while stack:
        name, container, key = stack.pop()
        value = container[key]
        if isinstance(value, (list, tuple)):
            stack += [(f"{name}.{k}", value, k) for k in range(len(value))]
        elif isinstance(value, dict) and not name.startswith("_"):
            stack += [(f"{name}.{k}", value, k) for k in value]
        else:
            yield name, (container, key), value


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | tuple[Any, ...],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Call a module with other tensors as its parameters and buffers.

    The module is as before afterwards, also if the call fails.

    >>> layer = weft.nn.Linear(2, 1)
    >>> state = {"weight": weft.ones(1, 2), "bias": weft.zeros(1)}
    >>> weft.func.functional_call(layer, state, (weft.tensor([1.0, 2.0]),))
    tensor([3.])
    """
    given: dict[str, Tensor] = {}
    dicts = parameter_and_buffer_dicts
    for part in dicts if isinstance(dicts, tuple) else (dicts,):
        given |= part
    with replaced(module, given):
        arguments = args if isinstance(args, tuple) else () if args is None else (args,)
        return module(*arguments, **(kwargs or {}))


@contextlib.contextmanager
def replaced(module: Any, given: Mapping[str, Tensor]) -> Iterator[None]:
    """Let a module have other tensors as its parameters and buffers, in this block.

    >>> from weft.func.functional_call import replaced
    >>> layer = weft.nn.Linear(1, 1, bias=False)
    >>> with replaced(layer, {"weight": weft.tensor([[2.0]])}):
    ...     layer(weft.ones(1)).item()
    2.0
    """
    slots = _slots(module)
    unknown = sorted(set(given) - set(slots))
    if unknown:
        raise ArgumentError(
            f"functional_call: {type(module).__name__} has no parameter or buffer "
            f"{', '.join(map(repr, unknown))}; it has {', '.join(sorted(slots))}"
        )
    before = {name: slots[name][0][slots[name][1]] for name in given}
    try:
        for name, value in given.items():
            _put(slots[name], value)
        yield
    finally:
        for name, value in before.items():
            _put(slots[name], value)


def _put(slot: Slot, value: Any) -> None:
    container, key = slot
    if isinstance(container, tuple):
        raise ArgumentError(
            "functional_call: a parameter in a plain tuple cannot be replaced; hold it "
            "in a list"
        )
    container[key] = value

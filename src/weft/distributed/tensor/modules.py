"""Modules whose parameters are DTensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from weft.core.tensor import Tensor
from weft.distributed.collectives import refuse_capture
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor.dtensor import DTensor, distribute_tensor
from weft.errors import ArgumentError
from weft.func.functional_call import _held
from weft.nn import Module

Partition = Callable[[str, Module, DeviceMesh], None]


def held_by(module: Module) -> list[tuple[str, Any, Tensor]]:
    """A module's own parameters and buffers: name, slot, value."""
    found = {}
    for name, slot, value in _held(module):
        if isinstance(value, Tensor) and value._parameter:
            found[name] = (name, slot, value)
    for held in (module._parameters, module._buffers):
        for name, value in held.items():
            if value is not None:
                found[name] = (name, (held, name), value)
    return list(found.values())


def share_out(module: Module, mesh: DeviceMesh, placements: dict[str, Any]) -> None:
    """Make a module's own parameters DTensors, those that are none yet.

    Names that ``placements`` does not have become copies on all processes.
    """
    for name, (container, key), value in held_by(module):
        if not isinstance(value, DTensor):
            made = distribute_tensor(value, mesh, placements.get(name))
            container[key] = made


def distribute_module(
    module: Any,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Partition | None = None,
    input_fn: Any = None,
    output_fn: Any = None,
) -> Any:
    """Make a module's parameters and buffers DTensors; returns the module.

    ``partition_fn(name, module, mesh)`` shares out what it likes of each module inside;
    the rest becomes copies. ``input_fn(module, inputs, mesh)`` and
    ``output_fn(module, outputs, mesh)`` change what goes in and what comes out.
    """
    refuse_capture("distribute_module")
    if not isinstance(module, Module):
        raise ArgumentError(
            f"distribute_module: expected a module, got {type(module).__name__}"
        )
    if device_mesh is None:
        raise ArgumentError("distribute_module: expected a device_mesh, got none")
    for name, inner in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, inner, device_mesh)
        share_out(inner, device_mesh, {})
    if input_fn is not None:
        with_kwargs = len(inspect.signature(input_fn).parameters) > 3
        if with_kwargs:
            raise ArgumentError(
                "distribute_module: expected input_fn(module, inputs, mesh)"
            )
        module.register_forward_pre_hook(
            lambda mod, inputs: input_fn(mod, inputs, device_mesh)
        )
    if output_fn is not None:
        module.register_forward_hook(
            lambda mod, inputs, outputs: output_fn(mod, outputs, device_mesh)
        )
    return module

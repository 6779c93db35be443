"""The one dispatch point: ``bind(op, args, params)``.

If an argument is a tracer, the interpreter of the innermost transform handles
the operator; otherwise it is evaluated now. Either way the tape is written
afterwards if an argument wants a gradient. Tracers are tensors too, so the tape
works the same at every level, and transforms nest in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.mode import mode, set_recording
from weft.core.op import Op, TensorType
from weft.core.tape import record
from weft.core.tensor import Tensor
from weft.device import cpu
from weft.errors import (
    AllocationError,
    ArgumentError,
    DeviceError,
    WeftError,
)

class Interpreter:
    """A transform: it owns a level and says what an operator does there."""

    name = "a transform"

    def __init__(self) -> None:
        self.level = 0

    def __enter__(self) -> Any:
        mode.depth += 1
        self.level = mode.depth
        return self

    def __exit__(self, *error: object) -> None:
        mode.depth -= 1

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        raise NotImplementedError


def bind(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply an operator to tensors, tracers or Python numbers."""
    interpreter = None
    for a in args:
        if type(a) is not Tensor and isinstance(a, Tensor):
            found = a._interpreter
            if found is not None and (
                interpreter is None or found.level > interpreter.level
            ):
                interpreter = found
    if interpreter is None:
        out = run_composite(op, args) if op.composite else evaluate(op, args, params)
    else:
        out = interpreter.process(op, args, params)
    if op.view and out is not args[0]:
        link_view(op, args[0], params, out)
    if mode.recording:
        record(op, args, params, out)
    for observer in mode.observers:
        observer(op, args, params, out)
    return out


def run_composite(op: Op, args: tuple[Any, ...]) -> Any:
    """Run a program over tensors without recording its parts."""
    before = set_recording(False)
    try:
        return op.eval(*args)
    finally:
        set_recording(before)


def evaluate(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run an operator now on the device that its arguments share."""
    device = _common_device(op, args)
    kernel = op.eval if device is cpu and not cpu.kernels else device.kernel(op)
    arrays = [a._data if isinstance(a, Tensor) else a for a in args]
    try:
        result = kernel(*arrays, **params)
    except WeftError:
        raise
    except MemoryError as error:
        raise AllocationError(f"{op.name}: {error}") from None
    except Exception as error:
        raise explain(op, args, params, error) from None
    if type(result) is tuple:
        return tuple([wrap(r, device) for r in result])
    return wrap(result, device)


def wrap(array: Any, device: Any = cpu) -> Any:
    """A tensor around an array; NumPy's scalars become 0-d arrays."""
    if device is not cpu:
        return Tensor.on_device(array, device)
    if type(array) is not np.ndarray:
        array = np.asarray(array)
    return Tensor(array)


def _common_device(op: Op, args: tuple[Any, ...]) -> Any:
    device = None
    for a in args:
        if isinstance(a, Tensor):
            if device is None or device is a.device:
                device = a.device
            else:
                raise DeviceError(
                    f"{op.name}: expected all tensors on one device, got "
                    f"{device.name!r} and {a.device.name!r}. Move one with "
                    f".to({device.name!r})"
                )
    return device or cpu


def type_of(value: Any) -> Any:
    """A tensor's type; other values stand for themselves."""
    if isinstance(value, Tensor):
        return TensorType(tuple(value.shape), value.dtype)
    return value


def explain(
    op: Op, args: tuple[Any, ...], params: dict[str, Any], error: Exception
) -> Exception:
    """The clear form of an evaluation's error: the type rule's, if it has one."""
    try:
        if op.type is not None:
            op.type(*[type_of(a) for a in args], **params)
    except WeftError as clear:
        return clear
    kinds = ", ".join(str(type_of(a)) for a in args)
    return ArgumentError(f"{op.name}({kinds}): {error}")


def link_view(op: Op, base: Tensor, params: dict[str, Any], out: Any) -> None:
    """Let a view share its base's storage record, and know how it was made."""
    if mode.inference:
        return
    for index, one in enumerate(out if type(out) is tuple else (out,)):
        _link(base, (op, params, index if type(out) is tuple else None), one)


def _link(base: Any, made_by: tuple[Any, ...], view: Any) -> None:
    if type(view) is Tensor and not np.may_share_memory(view._data, base._data):
        return  # a reshape that had to copy
    view._storage = base.storage
    view._base = base._base if base._base is not None else base
    view._chain = (*base._chain, made_by)
    view._storage.add_view(view)

"""Functions of this package on whole arrays: to use, to check and to time them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from weft.compile.emit.control_flow import (
    F32,
    F64,
    I8,
    I64,
    POINTER,
    VOID,
    function,
    i64,
    loop,
)
from weft.compile.emit.isa import Isa, new_module, prepare_function
from weft.compile.emit.values import shaped
from weft.compile.targets.cpu.object_code import compile_module, host_isa
from weft.errors import DTypeError, ShapeError

# What element type the code has for an array's elements; an i1 result is stored as I8.
ELEMENTS = {
    np.dtype(np.float32): F32,
    np.dtype(np.float64): F64,
    np.dtype(np.int16): ir.IntType(16),
    np.dtype(bool): I8,
}


class ArrayFunction:
    """Generated code called with arrays of one size."""

    def __init__(
        self, module: ir.Module, isa: Isa, inputs: list[Any], output: Any
    ) -> None:
        self._library = compile_module(module, isa)
        self._inputs, self._output = inputs, np.dtype(output)
        pointers = [ctypes.c_void_p] * (len(inputs) + 1)
        signature = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)
        self._call = signature(self._library.address("apply"))

    def __call__(self, *arrays: Any, out: Any = None) -> np.ndarray:
        arrays = tuple(self._checked(x, k) for k, x in enumerate(arrays))
        shape = arrays[0].shape
        out = np.empty(shape, self._output) if out is None else out
        right = out.dtype == self._output and out.flags.c_contiguous
        if len(arrays) != len(self._inputs) or not right:
            raise DTypeError(
                f"apply: expected {len(self._inputs)} arrays and a contiguous out of "
                f"{self._output}, got {len(arrays)} and {out.dtype}"
            )
        if any(x.shape != shape for x in (*arrays, out)):
            shapes = [x.shape for x in (*arrays, out)]
            raise ShapeError(f"apply: expected arrays of one shape, got {shapes}")
        self._call(*[x.ctypes.data for x in (*arrays, out)], out.size)
        return out

    def _checked(self, x: Any, k: int) -> np.ndarray:
        x = np.ascontiguousarray(x)
        if k < len(self._inputs) and x.dtype != self._inputs[k]:
            raise DTypeError(
                f"apply: expected {np.dtype(self._inputs[k])} as argument {k}, "
                f"got {x.dtype}"
            )
        return x


def module_of(
    body: Callable[..., Any], isa: Isa, inputs: list[Any], output: Any, lanes: int
) -> ir.Module:
    """A module whose ``apply`` stores ``body(builder, *values)`` for all elements."""
    module = new_module("arrays", isa)
    arguments = [POINTER] * (len(inputs) + 1) + [I64]
    with function(module, "apply", VOID, arguments) as (b, apply):
        prepare_function(apply, isa)
        for pointer in apply.args[:-1]:
            pointer.add_attribute("noalias")
        size = apply.args[-1]
        full = b.mul(b.sdiv(size, i64(lanes)), i64(lanes))
        for start, stop, step in ((i64(0), full, lanes), (full, size, 1)):
            with loop(b, start, stop, i64(step)) as i:
                _one_step(b, body, apply.args[:-1], inputs, output, i, step)
        b.ret_void()
    return module


def _one_step(
    b: Any, body: Any, args: Any, inputs: Any, output: Any, i: Any, lanes: int
) -> None:
    pointers = [
        _place(b, pointer, dtype, i, lanes)
        for pointer, dtype in zip(args, [*inputs, output], strict=True)
    ]
    values = [_aligned(b.load(p), d) for p, d in zip(pointers, inputs, strict=False)]
    result = body(b, *values)
    if np.dtype(output) == bool:
        result = b.zext(result, shaped(result.type, I8))
    _aligned(b.store(result, pointers[-1]), output)


def _place(b: Any, pointer: Any, dtype: Any, i: Any, lanes: int) -> Any:
    element = ELEMENTS[np.dtype(dtype)]
    at = b.gep(b.bitcast(pointer, element.as_pointer()), [i])
    type = ir.VectorType(element, lanes) if lanes > 1 else element
    return b.bitcast(at, type.as_pointer())


def _aligned(instruction: Any, dtype: Any) -> Any:
    instruction.align = np.dtype(dtype).itemsize
    return instruction


def apply(
    body: Callable[..., Any],
    inputs: list[Any],
    output: Any,
    *,
    isa: Isa | None = None,
    lanes: int | None = None,
) -> ArrayFunction:
    """Code for each element (or ``lanes`` at once) as a function of arrays.

    >>> import numpy as np
    >>> from weft.compile.emit.math import emit
    >>> from weft.compile.targets.cpu.math_arrays import apply
    >>> tanh = apply(lambda b, x: emit("tanh", b, x), [np.float64], np.float64)
    >>> tanh(np.array([0.0, 1.0])).round(4).tolist()
    [0.0, 0.7616]
    """
    isa = isa or host_isa()
    lanes = lanes or isa.lanes(np.dtype(inputs[0]).itemsize)
    module = module_of(body, isa, inputs, output, lanes)
    return ArrayFunction(module, isa, inputs, output)

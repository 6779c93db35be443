"""Functions that branch, for loops of scalars that LLVM turns into vectors.

LLVM does not make vectors of code that branches over calls. So a scalar use of such a
function becomes a call, and the module says which functions do the same for vectors;
LLVM then calls those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from weft.compile.emit.values import Value

LANES = {32: (4, 8, 16), 64: (2, 4, 8)}
_PURE = ("noinline", "nounwind", "willreturn", "memory(none)")


def call(name: str, fn: Callable[..., Value], b: Any, args: list[Any]) -> Any:
    """``fn`` of scalars, as a call that LLVM knows how to make for vectors."""
    type = args[0].type
    bits = Value(b, args[0]).format.bits
    plain = b.module.triple.startswith("nvptx")  # threads need no vectors
    full = f"weft_{name}_f{bits}" if plain else f"weft.scalar.{name}.f{bits}"
    function = b.module.globals.get(full)
    if function is None:
        function = _define(b, full, fn, type, len(args))
        if plain:
            function.linkage = "internal"
        else:
            _add_vectors(b, function, name, fn, len(args))
    return b.call(function, args)


def _add_vectors(
    b: Any, function: Any, name: str, fn: Callable[..., Value], count: int
) -> None:
    """Define a function's vector forms, and tell LLVM of them."""
    type = function.function_type.return_type
    bits = Value(b, function.args[0]).format.bits
    vectors = [
        _define(b, f"weft.v{n}.{name}.f{bits}", fn, ir.VectorType(type, n), count)
        for n in LANES[bits]
    ]
    variants = ",".join(
        f"_ZGV_LLVM_N{n}{'v' * count}_{function.name}({vector.name})"
        for n, vector in zip(LANES[bits], vectors, strict=True)
    )
    _attribute(function, f'"vector-function-abi-variant"="{variants}"')


def _define(b: Any, name: str, fn: Any, type: Any, count: int) -> Any:
    """A function of the module, with the caller's settings for vectors."""
    function = ir.Function(b.module, ir.FunctionType(type, [type] * count), name)
    # visible from outside, or LLVM would drop it before it finds a use for it
    settings = [text for text in b.function.attributes if text.startswith('"')]
    for text in (*_PURE, *settings):
        _attribute(function, text)
    inner = ir.IRBuilder(function.append_basic_block("entry"))
    inner.ret(fn(*[Value(inner, x) for x in function.args]).ir)
    return function


def _attribute(function: Any, text: str) -> None:
    set.add(function.attributes, text)  # llvmlite knows some attributes only

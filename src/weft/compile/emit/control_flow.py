"""Emitting LLVM IR so that generated control flow reads like control flow.

with loop(b, start, stop) as i:
    with when(b, b.icmp_signed("<", i, limit)):
        ...
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

I1, I8, I32, I64 = (ir.IntType(n) for n in (1, 8, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
POINTER = I8.as_pointer()
VOID = ir.VoidType()


def i64(value: int) -> Any:
    """A 64-bit constant."""
    return ir.Constant(I64, value)


class _Same(ir.Constant):
    """A vector of equal elements, by a word rather than one by one."""

    def __init__(self, kind: ir.VectorType, word: str, one: Any) -> None:
        self.type, self.word = kind, word
        self.constant = [ir.Constant(kind.element, one)] * kind.count

    def _get_reference(self) -> str:
        return self.word


def zeros(kind: ir.VectorType) -> Any:
    """A vector of zeros.

    >>> from llvmlite import ir
    >>> from weft.compile.emit.control_flow import I64, zeros
    >>> print(zeros(ir.VectorType(I64, 4)))
    <4 x i64> zeroinitializer
    """
    return _Same(kind, "zeroinitializer", None)


def undefined(kind: ir.VectorType) -> Any:
    """A vector whose elements do not matter."""
    return _Same(kind, "undef", ir.Undefined)


@contextmanager
def loop(
    b: Any, start: Any, stop: Any, step: Any = None, name: str = "i", hint: Any = None
) -> Iterator[Any]:
    """The body of ``for i in range(start, stop, step)``; gives ``i`` (64 bits).

    ``hint`` is metadata for LLVM (``loop_hints``).
    """
    step = i64(1) if step is None else step
    before = b.block
    head = b.append_basic_block(f"{name}.head")
    body = b.append_basic_block(f"{name}.body")
    done = b.append_basic_block(f"{name}.done")
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64, name=name)
    i.add_incoming(start, before)
    b.cbranch(b.icmp_signed("<", i, stop), body, done)
    b.position_at_end(body)
    yield i
    i.add_incoming(b.add(i, step, flags=["nsw"]), b.block)
    back = b.branch(head)
    if hint is not None:
        back.set_metadata("llvm.loop", hint)
    b.position_at_end(done)


@contextmanager
def when(b: Any, condition: Any) -> Iterator[None]:
    """The body of ``if condition``."""
    with b.if_then(condition):
        yield


@contextmanager
def function(
    module: ir.Module, name: str, returns: Any, arguments: list[Any]
) -> Iterator[tuple[Any, Any]]:
    """A new function: gives its builder and its arguments."""
    new = ir.Function(module, ir.FunctionType(returns, arguments), name)
    yield ir.IRBuilder(new.append_basic_block("entry")), new

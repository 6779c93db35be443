"""Numbers and addresses in generated code that read like numbers and addresses.

A ``Value`` is a float or an integer in the code being built, or a vector of them, and a
``Pointer`` an address: ``x * y + 1`` emits the instructions, ``p[i]`` loads an element.
llvmlite's builder takes both as operands. Python's own numbers mix with them: what is
known while code is generated is an ``int`` or a ``bool``, and what depends on these
alone is computed now.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import F32, F64, I1, I32, I64, VOID, i64, zeros

PTR = ir.PointerType()
ITEMSIZE = {"float": 4, "double": 8, "i64": 8, "i32": 4, "i16": 2, "i8": 1}


def itemsize(element: Any) -> int:
    """Bytes of an element."""
    return ITEMSIZE[str(element)]


class Format:
    """A floating-point format: float32 or float64."""

    def __init__(self, bits: int, fraction: int) -> None:
        self.bits, self.fraction = bits, fraction
        self.bias = (1 << (bits - fraction - 2)) - 1
        self.int_type = ir.IntType(bits)
        self.sign_mask = -1 << (bits - 1)
        self.smallest_normal = math.ldexp(1.0, 1 - self.bias)
        self.largest = math.ldexp(2.0 - math.ldexp(1.0, -fraction), self.bias)
        # added to a small number, it leaves the nearest integer in the low bits
        self.magic = math.ldexp(1.5, fraction)

    def bits_of(self, value: float) -> int:
        """The pattern of a number."""
        kinds = "<fi" if self.bits == 32 else "<dq"
        return struct.unpack("<" + kinds[2], struct.pack(kinds[:2], value))[0]

    def short(self, value: float) -> float:
        """A number cut to half its bits."""
        drop = self.fraction // 2 + 2
        kinds = "<fi" if self.bits == 32 else "<dq"
        pattern = self.bits_of(value) >> drop << drop
        return struct.unpack(kinds[:2], struct.pack("<" + kinds[2], pattern))[0]


SINGLE, DOUBLE = Format(32, 23), Format(64, 52)


def shaped(like: Any, element: Any) -> Any:
    """The type with ``like``'s number of lanes and another element."""
    if isinstance(like, ir.VectorType):
        return ir.VectorType(element, like.count)
    return element


def constant(type: Any, value: Any) -> Any:
    """A constant of a type; the same in each lane of a vector."""
    if not isinstance(type, ir.VectorType):
        return ir.Constant(type, value)
    if isinstance(value, int) and value == 0:
        return zeros(type)
    return ir.Constant(type, [value] * type.count)


def element_of(type: Any) -> Any:
    return type.element if isinstance(type, ir.VectorType) else type


class Value:
    """A number in generated code: the builder and LLVM's value."""

    __slots__ = ("b", "ir")

    def __init__(self, b: Any, ir: Any) -> None:
        self.b, self.ir = b, ir

    # -- what it is

    @property
    def type(self) -> Any:
        return self.ir.type

    def get_reference(self) -> str:
        """Its name in LLVM's text, for instructions that take it."""
        return self.ir.get_reference()

    @property
    def format(self) -> Format:
        """The floating-point format."""
        return DOUBLE if element_of(self.type) == F64 else SINGLE

    @property
    def is_float(self) -> bool:
        return not isinstance(element_of(self.type), ir.IntType)

    def like(self, value: Any) -> Value:
        """A Python number, or LLVM's constant, as a value beside this one."""
        if isinstance(value, Value):
            return value
        if not isinstance(value, ir.values.Value):
            value = constant(self.type, value)
        return Value(self.b, value)

    def made(self, ir: Any) -> Value:
        """A value of the same kind."""
        return Value(self.b, ir)

    # -- arithmetic

    def _apply(self, float_op: str, int_op: str, other: Any) -> Value:
        emit = getattr(self.b, float_op if self.is_float else int_op)
        other = other if isinstance(other, Value) else self.like(other)
        return Value(self.b, emit(self.ir, other.ir))

    def __add__(self, other: Any) -> Value:
        return self._apply("fadd", "add", other)

    def __sub__(self, other: Any) -> Value:
        return self._apply("fsub", "sub", other)

    def __mul__(self, other: Any) -> Value:
        return self._apply("fmul", "mul", other)

    def __truediv__(self, other: Any) -> Value:
        return self._apply("fdiv", "", other)

    def __floordiv__(self, other: Any) -> Value:
        """A quotient of integers, cut towards zero."""
        return self._apply("", "sdiv", other)

    def __mod__(self, other: Any) -> Value:
        """What is left by ``//``."""
        return self._apply("", "srem", other)

    def __radd__(self, other: Any) -> Value:
        return self.like(other) + self

    def __rsub__(self, other: Any) -> Value:
        return self.like(other) - self

    def __rmul__(self, other: Any) -> Value:
        return self.like(other) * self

    def __rtruediv__(self, other: Any) -> Value:
        return self.like(other) / self

    def __rfloordiv__(self, other: Any) -> Value:
        return self.like(other) // self

    def __neg__(self) -> Value:
        return Value(self.b, self.b.fneg(self.ir) if self.is_float else (0 - self).ir)

    # -- bits, and conditions: True and False are known ones

    def __and__(self, other: Any) -> Any:
        if isinstance(other, bool):
            return self if other else False
        return self._apply("", "and_", other)

    def __or__(self, other: Any) -> Any:
        if isinstance(other, bool):
            return True if other else self
        return self._apply("", "or_", other)

    __rand__, __ror__ = __and__, __or__

    def __xor__(self, other: Any) -> Value:
        return self._apply("", "xor", other)

    def __lshift__(self, other: Any) -> Value:
        return self._apply("", "shl", other)

    def __rlshift__(self, other: Any) -> Value:
        return self.like(other) << self

    def __rshift__(self, other: Any) -> Value:
        return self._apply("", "ashr", other)

    def shift_right(self, other: Any) -> Value:
        """A shift that fills with zeros."""
        return self._apply("", "lshr", other)

    def __invert__(self) -> Value:
        return Value(self.b, self.b.not_(self.ir))

    # -- comparison: an i1, false if a NaN takes part

    def _compare(self, sign: str, other: Any) -> Value:
        b = self.b
        emit = b.fcmp_ordered if self.is_float else b.icmp_signed
        return Value(b, emit(sign, self.ir, self.like(other).ir))

    def __lt__(self, other: Any) -> Value:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Value:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Value:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Value:
        return self._compare(">=", other)

    def equals(self, other: Any) -> Value:
        return self._compare("==", other)

    def differs(self, other: Any) -> Value:
        """Whether two numbers differ: true if a NaN takes part."""
        emit = self.b.fcmp_unordered if self.is_float else self.b.icmp_signed
        return Value(self.b, emit("!=", self.ir, self.like(other).ir))

    def below(self, other: Any) -> Value:
        """Whether an integer without a sign is smaller: negative ones are large."""
        return Value(self.b, self.b.icmp_unsigned("<", self.ir, self.like(other).ir))

    def is_nan(self) -> Value:
        return Value(self.b, self.b.fcmp_unordered("uno", self.ir, self.ir))

    # -- other views

    def bits(self) -> Value:
        """A float's pattern as an integer."""
        return self.bitcast(shaped(self.type, self.format.int_type))

    def as_float(self) -> Value:
        """The float with this pattern."""
        element = F64 if element_of(self.type).width == 64 else F32
        return self.bitcast(shaped(self.type, element))

    def bitcast(self, type: Any) -> Value:
        """The same bits as another type."""
        return Value(self.b, self.b.bitcast(self.ir, type))

    def convert(self, how: str, element: Any) -> Value:
        """LLVM's conversion of that name (``fpext``, ``sitofp``, ...)."""
        emit = getattr(self.b, how)
        return Value(self.b, emit(self.ir, shaped(self.type, element)))

    def to_double(self) -> Value:
        return self.convert("fpext", F64)

    def to_single(self) -> Value:
        return self.convert("fptrunc", F32)

    def cut(self, element: Any) -> Value:
        """An integer's lowest bits."""
        return self.convert("trunc", element)

    def holds(self) -> Value:
        """The condition that an integer of 0 or 1 stands for."""
        return self.cut(I1)

    def unsigned(self, element: Any = I64) -> Value:
        """An integer, or a condition as 0 or 1, with zeros in front."""
        return self.convert("zext", element)

    def signed(self, element: Any = I64) -> Value:
        """An integer with its sign in front."""
        return self.convert("sext", element)

    def pointer(self, element: Any) -> Pointer:
        """The address that an integer is."""
        return Pointer(self.b, self.b.inttoptr(self.ir, PTR), element)

    def function(self, kind: Any) -> Any:
        """The function at an address that an integer is."""
        return self.b.inttoptr(self.ir, kind.as_pointer())

    def lane(self, number: int) -> Value:
        """One number of a vector."""
        return Value(self.b, self.b.extract_element(self.ir, I32(number)))


class Pointer(Value):
    """An address in generated code, of elements of a type."""

    __slots__ = ("element",)

    def __init__(self, b: Any, ir: Any, element: Any) -> None:
        super().__init__(b, ir)
        self.element = element

    def made(self, ir: Any) -> Pointer:
        return Pointer(self.b, ir, self.element)

    def of(self, element: Any) -> Pointer:
        """The same address, of other elements."""
        return Pointer(self.b, self.ir, element)

    def __add__(self, index: Any) -> Pointer:
        """The address so many elements further on."""
        place = self.b.gep(self.ir, [operand(index)], source_etype=self.element)
        return Pointer(self.b, place, self.element)

    def __getitem__(self, index: Any) -> Value:
        """An element."""
        return (self + index).load()

    def __setitem__(self, index: Any, value: Any) -> None:
        (self + index).store(value)

    def load(self, type: Any = None, mask: Any = None) -> Value:
        """An element, or a vector; lanes outside of a mask are zero and not touched."""
        b, type = self.b, self.element if type is None else type
        if not isinstance(type, ir.VectorType):
            return Value(b, b.load(self.ir, typ=type))
        size = itemsize(type.element)
        if mask is None:
            return Value(b, b.load(self.ir, align=size, typ=type))
        name = f"llvm.masked.load.{suffix(type)}.p0"
        masks = ir.VectorType(I1, type.count)
        kind = ir.FunctionType(type, [PTR, I32, masks, type])
        return call(declared(b, name, kind), [self, I32(size), mask, zeros(type)])

    def store(self, value: Any, mask: Any = None) -> None:
        """Store an element or a vector; lanes outside of a mask are not touched."""
        b, value = self.b, operand(value)
        type = value.type
        if not isinstance(type, ir.VectorType):
            b.store(value, self.ir)
            return
        size = itemsize(type.element)
        if mask is None:
            b.store(value, self.ir, align=size)
            return
        masks = ir.VectorType(I1, type.count)
        kind = ir.FunctionType(VOID, [type, PTR, I32, masks])
        name = f"llvm.masked.store.{suffix(type)}.p0"
        call(declared(b, name, kind), [value, self, I32(size), mask])

    def address(self) -> Value:
        """The address as an integer."""
        return Value(self.b, self.b.ptrtoint(self.ir, I64))

    def is_given(self) -> Value:
        """Whether there is such an array."""
        return Value(self.b, self.b.icmp_unsigned("!=", self.ir, PTR(None)))


# -- functions of values


def operand(x: Any) -> Any:
    """LLVM's value for an instruction: integers have 64 bits."""
    if isinstance(x, Value):
        return x.ir
    return i64(x) if isinstance(x, int) else x


def builder_of(values: Sequence[Any]) -> Any:
    """The builder of the code that one of these is in."""
    for value in values:
        if isinstance(value, Value):
            return value.b
    raise TypeError(f"expected a value of the code among {list(values)}")


def call(function: Any, arguments: Sequence[Any]) -> Value:
    """A call, one of whose arguments is a value."""
    b = builder_of(arguments)
    return Value(b, b.call(function, [operand(x) for x in arguments]))


def suffix(type: Any) -> str:
    """A type in an intrinsic's name.

    >>> from llvmlite import ir
    >>> from weft.compile.emit.values import suffix
    >>> suffix(ir.VectorType(ir.FloatType(), 8))
    'v8f32'
    """
    if isinstance(type, ir.VectorType):
        return f"v{type.count}{suffix(type.element)}"
    return str(type) if isinstance(type, ir.IntType) else f"f{8 * itemsize(type)}"


def declared(b: Any, name: str, kind: Any) -> Any:
    """A function that LLVM provides."""
    module = b.module
    return module.globals.get(name) or ir.Function(module, kind, name)


def intrinsic(name: str, *args: Value) -> Value:
    """One of LLVM's own functions whose arguments and result have one type."""
    type = args[0].type
    kind = ir.FunctionType(type, [type] * len(args))
    return call(declared(args[0].b, f"llvm.{name}.{suffix(type)}", kind), args)


def fma(x: Value, y: Any, z: Any) -> Value:
    """``x * y + z``: one instruction and one rounding where the target has it."""
    if not x.is_float:
        return x * y + z
    return intrinsic("fmuladd", x, x.like(y), x.like(z))


def select(condition: Any, yes: Any, no: Any) -> Any:
    """``yes`` where the condition holds, else ``no``."""
    if isinstance(condition, bool):
        return yes if condition else no
    b = condition.b
    like = next((x for x in (yes, no) if isinstance(x, Value)), None)
    if like is None:
        return Value(b, b.select(condition, operand(yes), operand(no)))
    return like.made(b.select(condition.ir, like.like(yes).ir, like.like(no).ir))


def minimum(x: Any, y: Any) -> Any:
    """The smaller of two integers with signs."""
    return select(x < y, x, y)


# -- integers and conditions that may be known


def equal(x: Any, y: int) -> Any:
    """Whether an integer is another.

    >>> from weft.compile.emit.values import equal
    >>> equal(3, 4)
    False
    """
    return x == y if isinstance(x, int) else x.equals(y)


def negate(p: Any) -> Any:
    """Whether a condition does not hold."""
    return not p if isinstance(p, bool) else ~p


def rounded(x: Any, step: int) -> Any:
    """The next multiple of a step.

    >>> from weft.compile.emit.values import rounded
    >>> rounded(5, 4)
    8
    """
    return (x + (step - 1)) // step * step

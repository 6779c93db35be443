"""Kinds of products: their elements in memory, words of them, and sums.

    item      an element of A or B in memory
    word      ``group`` items next to one another along k, in a lane of a vector
    element   a lane: of words, of sums and of C

A word of A times a word of B, added to a sum, is one instruction where the machine has
one. Float32 and float64 are words of one item; bfloat16 comes in pairs
(AVX-512 BF16) or is widened to float32; int8 and uint8 come in fours (AVX-512 VNNI), or
in pairs that are widened to int16 (SSE2 on), or one by one as int32. Sums of integers
are exact modulo 2**32, whichever it is.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from weft.compile.emit.control_flow import F32, F64, I8, I32
from weft.compile.emit.isa import Isa
from weft.compile.emit.math.conversions import I16, bfloat16_to_float, float16_to_float
from weft.compile.emit.values import call, declared, fma
from weft.errors import DTypeError


class Kind:
    """Items that are words, and elements of C: the plain case."""

    group = 1
    shifted = False  # whether A's sums correct the result: see Fours

    def __init__(self, item: Any, element: Any = None) -> None:
        self.item, self.element = item, element or item

    @property
    def widens(self) -> bool:
        """Whether words are made when operands are packed."""
        return self.item is not self.element

    @property
    def along(self) -> Kind:
        """The same for dot products of rows, which nothing corrects."""
        return self

    def tag(self, right: bool) -> str:
        """Tells code for A's items from code for B's, where they differ."""
        return ""

    def widen(self, items: Any, right: bool) -> Any:
        """Items, of B if ``right``, as elements."""
        return items

    def words(self, items: Any, right: bool) -> Any:
        """A vector of items as a vector of words, ``group`` items each."""
        return self.widen(items, right)

    def dot(self, left: Any, right: Any, sums: Any) -> Any:
        """Words of A times words of B, added to sums."""
        return fma(left, right, sums)


class Half(Kind):
    """bfloat16 or float16, widened to float32."""

    def __init__(self, name: str, native: bool) -> None:
        super().__init__(I16, F32)
        self.name, self.native = name, native

    def widen(self, items: Any, right: bool) -> Any:
        if self.name == "bfloat16":
            return bfloat16_to_float(items)
        return float16_to_float(items, native=self.native)


class Pairs(Half):
    """bfloat16 by VDPBF16PS: two products and two sums, each rounded.

    The instruction takes numbers below 2**-126 for zero.
    """

    group = 2

    def __init__(self) -> None:
        super().__init__("bfloat16", True)

    def words(self, items: Any, right: bool) -> Any:
        return items.bitcast(ir.VectorType(F32, items.type.count // 2))

    def dot(self, left: Any, right: Any, sums: Any) -> Any:
        lanes = sums.type.count
        integers = ir.VectorType(I32, lanes)
        kind = ir.FunctionType(sums.type, [sums.type, integers, integers])
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        words = [x.bitcast(integers) for x in (left, right)]
        return call(declared(sums.b, name, kind), [sums, *words])


class Bytes(Kind):
    """int8 or uint8, widened to int32."""

    def __init__(self, unsigned: tuple[bool, bool]) -> None:
        super().__init__(I8, I32)
        self.unsigned = unsigned  # A's items, B's items

    def tag(self, right: bool) -> str:
        return "u" if self.unsigned[right] else "s"

    def widen(self, items: Any, right: bool) -> Any:
        return items.unsigned(I32) if self.unsigned[right] else items.signed(I32)


class Twos(Bytes):
    """Bytes in pairs, as int16: PMADDWD, which every x86-64 has."""

    group = 2

    def words(self, items: Any, right: bool) -> Any:
        wide = items.unsigned(I16) if self.unsigned[right] else items.signed(I16)
        return wide.bitcast(ir.VectorType(I32, items.type.count // 2))

    def dot(self, left: Any, right: Any, sums: Any) -> Any:
        lanes = sums.type.count
        pairs = ir.VectorType(I16, 2 * lanes)
        kind = ir.FunctionType(sums.type, [pairs, pairs])
        name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
        multiply = declared(sums.b, f"llvm.x86.{name[lanes]}", kind)
        return sums + call(multiply, [x.bitcast(pairs) for x in (left, right)])


class Fours(Bytes):
    """Bytes in fours, by VPDPBUSD: unsigned ones times signed ones.

    Where A and B are alike, B's are moved to the other kind by 128, so that C is off by
    128 times the sums of A's rows, which are subtracted (``shifted``).
    """

    group = 4

    @property
    def shifted(self) -> bool:  # type: ignore[override]
        """Whether C is corrected."""
        return self.unsigned[0] == self.unsigned[1]

    @property
    def along(self) -> Kind:
        """Sums of rows are not known there."""
        return Twos(self.unsigned)

    def words(self, items: Any, right: bool) -> Any:
        if right and self.shifted:
            items = items ^ -128
        return items.bitcast(ir.VectorType(I32, items.type.count // 4))

    def dot(self, left: Any, right: Any, sums: Any) -> Any:
        kind = ir.FunctionType(sums.type, [sums.type] * 3)
        name = f"llvm.x86.avx512.vpdpbusd.{32 * sums.type.count}"
        order = (left, right) if self.unsigned[0] else (right, left)
        return call(declared(sums.b, name, kind), [sums, *order])

    def row_sums(self, left: Any, sums: Any) -> Any:
        """The sums of the items of words of A, added to sums."""
        return self.dot(left, left.like(0x01010101), sums)

    def correction(self, sums: Any) -> Any:
        """The correction of C for these sums of A's rows."""
        return sums << 7 if self.unsigned[0] else -(sums << 7)


FLOATS = {"float32": Kind(F32), "float64": Kind(F64)}
BYTES = {
    "int8": (False, False), "uint8": (True, True), "uint8 int8": (True, False),
    "int8 uint8": (False, True),
}  # fmt: skip
# The dtypes of C, by kinds of products. "bfloat16 widened" is exact in each
# product, whatever the machine has.
RESULTS = {
    "float32": "float32", "float64": "float64", "float16": "float32",
    "bfloat16": "float32", "bfloat16 widened": "float32",
    **dict.fromkeys(BYTES, "int32"),
}  # fmt: skip


def kind_of(name: str, isa: Isa) -> Kind:
    """The multiplication of operands of these dtypes on an instruction set.

    >>> from weft.compile.targets.cpu.matmul.kinds import kind_of
    >>> from weft.compile.targets.cpu.object_code import host_isa
    >>> kind_of("int8", host_isa("avx2")).group
    2
    """
    if name in FLOATS:
        return FLOATS[name]
    features = isa.features.split(",")
    if name in BYTES:
        if isa.bits == 512 and "+avx512vnni" in features:
            return Fours(BYTES[name])
        x86 = isa.triple.startswith(("x86", "i686"))
        return (Twos if x86 else Bytes)(BYTES[name])
    if name not in RESULTS:
        raise DTypeError(f"gemm: expected one of {', '.join(RESULTS)}, got {name}")
    if name == "bfloat16" and isa.bits == 512 and "+avx512bf16" in features:
        return Pairs()
    return Half(name.split()[0], isa.converts_half)

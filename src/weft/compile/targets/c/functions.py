"""Scalar functions as C: their LLVM code, instruction by instruction.

    exp_f32(x)      →      const float t1 = x * 1.44269502f;
                           const float t2 = t1 + 12582912.0f;  …

So they have the bits that compiled programs have on a CPU without fused products.
Integers are unsigned in between, whose arithmetic wraps around.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from weft.compile.emit import scalar
from weft.compile.targets.c.source import (
    HELPERS,
    Source,
    array,
    floating,
    register_type,
    short_name,
)
from weft.dtype import DType, uint64
from weft.graph.ir import GraphError

_LLVM_OF_C = {
    "fabs": "fabs", "floor": "floor", "ceil": "ceil", "trunc": "trunc",
    "rint": "rint", "sqrt": "sqrt", "copysign": "copysign", "fma": "fma",
    "maxnum": "fmax", "minnum": "fmin",
}  # fmt: skip
_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_INFIX = {
    "fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/", "add": "+", "sub": "-",
    "mul": "*", "and": "&", "or": "|", "xor": "^", "udiv": "/", "urem": "%",
    "shl": "<<", "lshr": ">>",
}  # fmt: skip
_SIGNED = {"sdiv": "/", "srem": "%", "ashr": ">>"}


def scalar_function(
    source: Source, name: str, kinds: list[DType], dtype: DType, known: Any = ()
) -> str:
    """The name of a C function that computes a scalar function.

    ``known`` has the value of arguments that are numbers, None for others.
    """
    suffix = "_".join(dict.fromkeys(short_name(d) for d in [*kinds, dtype]))
    ends = [str(k) for k in known if k is not None]
    made = "_".join([name, suffix, *[e.replace("-", "m") for e in ends]])

    def emit(b: Any, args: list[Any]) -> Any:
        for k, value in enumerate(known):
            if value is not None:
                args[k] = scalar.constant(value, kinds[k])
        return scalar.emit(b, name, args, kinds, dtype)

    return source.define(made, lambda: _defined(source, made, emit, kinds, dtype))


def half_to_float(source: Source, dtype: DType) -> str:
    """The name of a C function from a half type's pattern to its number."""
    made = f"load_{short_name(dtype)}"
    emit = lambda b, args: scalar.widened(b, args[0], dtype)  # noqa: E731
    kinds = [ir.IntType(16)]
    return source.define(
        made, lambda: _function(source, made, emit, kinds, scalar.F32, "uint16_t")
    )


def float_to_half(source: Source, dtype: DType) -> str:
    """The name of a C function from a number to a half type's nearest pattern."""
    made = f"store_{short_name(dtype)}"
    emit = lambda b, args: scalar.narrowed(b, args[0], dtype)  # noqa: E731
    return source.define(
        made,
        lambda: _function(source, made, emit, [scalar.F32], ir.IntType(16), "float"),
    )


def _defined(
    source: Source, name: str, emit: Any, kinds: list[DType], dtype: DType
) -> str:
    types = [scalar.register_type(d) for d in kinds]
    made = scalar.register_type(dtype)
    arguments = [register_type(d) for d in kinds]
    return _function(
        source, name, emit, types, made, *arguments, returns=register_type(dtype)
    )


def _function(
    source: Source, name: str, emit: Callable[..., Any], types: list[Any], made: Any,
    *arguments: str, returns: str = "",
) -> str:  # fmt: skip
    module = ir.Module(name=name, context=ir.Context())
    function = ir.Function(module, ir.FunctionType(made, types), name)
    b = ir.IRBuilder(function.append_basic_block())
    b.ret(emit(b, list(function.args)))
    return _Translation(source, function, name).text(list(arguments), returns)


def _ctype(kind: Any) -> str:
    if isinstance(kind, ir.IntType):
        return "int" if kind.width == 1 else f"uint{kind.width}_t"
    return "double" if kind == scalar.F64 else "float"


class _Translation:
    """One LLVM function, while it is written as C."""

    def __init__(self, source: Source, function: Any, name: str) -> None:
        self.source, self.function, self.name = source, function, name
        self.names: dict[int, str] = {}
        self.labels = {id(block): f"l{k}" for k, block in enumerate(function.blocks)}
        self.branches = len(function.blocks) > 1
        self.count = 0

    def text(self, arguments: list[str], returns: str) -> str:
        args = list(self.function.args)
        kinds = arguments or [_ctype(a.type) for a in args]
        returns = returns or _ctype(self.function.function_type.return_type)
        heads = []
        for k, (arg, kind) in enumerate(zip(args, kinds, strict=True)):
            self.names[id(arg)] = self._argument(arg, kind, f"x{k}")
            heads.append(f"{kind} x{k}")
        used = self._used()
        for block in self.function.blocks:
            for one in block.instructions:
                if id(one) in used and not _ends(one):
                    self.count += 1
                    self.names[id(one)] = f"t{self.count}"
        lines = []
        if self.branches:
            for block in self.function.blocks:
                lines += [
                    f"{_ctype(one.type)} {self.names[id(one)]};"
                    for one in block.instructions
                    if id(one) in used and not _ends(one)
                ]
        for block in self.function.blocks:
            if self.branches and block is not self.function.blocks[0]:
                lines.append(f"{self.labels[id(block)]}:;")
            for one in block.instructions:
                lines += self._line(one, block, used)
        unused = [f"(void)x{k};" for k, a in enumerate(args) if id(a) not in used]
        body = "\n".join(f"  {line}" for line in [*unused, *lines])
        head = f"static inline {returns} {self.name}({', '.join(heads)})"
        return f"{head} {{\n{body}\n}}\n"

    @staticmethod
    def _argument(arg: Any, kind: str, name: str) -> str:
        """An argument as it is computed with: integers without a sign."""
        own = _ctype(arg.type)
        return name if own == kind else f"({own}){name}"

    def _used(self) -> set[int]:
        """The instructions and arguments that the result depends on."""
        used: set[int] = set()
        stack = [
            one
            for block in self.function.blocks
            for one in block.instructions
            if _ends(one)
        ]
        while stack:
            one = stack.pop()
            for value in self._operands(one):
                if id(value) not in used:
                    used.add(id(value))
                    stack.append(value)
        return used

    @staticmethod
    def _operands(one: Any) -> list[Any]:
        if isinstance(one, ir.PhiInstr):
            return [value for value, _ in one.incomings]
        if isinstance(one, ir.GEPInstr):
            return list(one.indices)
        if isinstance(one, ir.CallInstr):
            return list(one.args)
        return [v for v in getattr(one, "operands", ()) if not isinstance(v, ir.Block)]

    # -- statements

    def _line(self, one: Any, block: Any, used: set[int]) -> list[str]:
        if one.opname == "ret":
            return [f"return {self.value(one.operands[0])};"]
        if one.opname == "br":
            return self._branch(one, block)
        if id(one) not in used or one.opname in ("phi", "getelementptr"):
            return []
        name, value = self.names[id(one)], self._value(one)
        if self.branches:
            return [f"{name} = {value};"]
        return [f"const {_ctype(one.type)} {name} = {value};"]

    def _branch(self, one: Any, block: Any) -> list[str]:
        if len(one.operands) == 1:
            return self._jump(block, one.operands[0])
        condition, yes, no = one.operands
        inner = " ".join(self._jump(block, yes))
        return [f"if ({self.value(condition)}) {{ {inner} }}", *self._jump(block, no)]

    def _jump(self, block: Any, target: Any) -> list[str]:
        """The phis of the block that is jumped to, all at once, and the jump."""
        phis = [
            one
            for one in target.instructions
            if isinstance(one, ir.PhiInstr) and id(one) in self.names
        ]
        moves = [
            (self.names[id(phi)], self.value(value), _ctype(phi.type))
            for phi in phis
            for value, origin in phi.incomings
            if origin is block
        ]
        goto = f"goto {self.labels[id(target)]};"
        if len(moves) < 2:
            return [*[f"{name} = {value};" for name, value, _ in moves], goto]
        first = [f"const {kind} n{k} = {v};" for k, (_, v, kind) in enumerate(moves)]
        then = [f"{name} = n{k};" for k, (name, _, _) in enumerate(moves)]
        return ["{", *first, *then, goto, "}"]

    # -- values

    def value(self, value: Any) -> str:
        """A value as it is computed with."""
        if isinstance(value, ir.Constant):
            return _constant(value)
        return self.names[id(value)]

    def _value(self, one: Any) -> str:
        kind = one.opname
        if isinstance(one, ir.CallInstr):
            return self._call(one)
        if isinstance(one, ir.LoadInstr):
            return self._load(one.operands[0])
        values = [self.value(v) for v in one.operands]
        if isinstance(one, ir.ICMPInstr):
            return self._icmp(one, *values)
        if isinstance(one, ir.FCMPInstr):
            return _fcmp(one.op, *values)
        if isinstance(one, ir.SelectInstr):
            return f"{values[0]} ? {values[1]} : {values[2]}"
        if kind == "freeze":
            return values[0]
        if kind == "fneg":
            return f"-{values[0]}"
        if kind == "frem":
            return f"fmod{_end(one.type)}({values[0]}, {values[1]})"
        if isinstance(one, ir.CastInstr):
            return self._cast(one, values[0])
        return self._arithmetic(one, *values)

    def _arithmetic(self, one: Any, x: str, y: str) -> str:
        kind, type = one.opname, one.type
        if kind in _SIGNED:
            signed = f"(int{type.width}_t)"
            right = y if kind == "ashr" else f"{signed}{y}"
            return f"({_ctype(type)})({signed}{x} {_SIGNED[kind]} {right})"
        text = f"{x} {_INFIX[kind]} {y}"
        if isinstance(type, ir.IntType) and type.width < 32:
            if kind == "mul" and type.width == 16:
                text = f"(uint32_t){x} * {y}"
            return f"({_ctype(type)})({text})" + " & 1" * (type.width == 1)
        return text

    def _icmp(self, one: Any, x: str, y: str) -> str:
        op, kind = one.op, one.operands[0].type
        if len(op) == 2:  # equality, which knows no sign
            return f"{x} {_SIGNS[op]} {y}"
        sign = _SIGNS[op[1:]]
        if op[0] == "u" or kind.width == 1:
            return f"{x} {sign} {y}"
        signed = f"(int{kind.width}_t)"
        return f"{signed}{x} {sign} {signed}{y}"

    def _cast(self, one: Any, x: str) -> str:
        kind, made, have = one.opname, one.type, one.operands[0].type
        if kind == "bitcast":
            return self._bitcast(x, have, made)
        if kind == "fptosi":
            name = f"i{max(made.width, 32)}_of_f{64 if have == scalar.F64 else 32}"
            return f"({_ctype(made)}){self.source.helper(name)}({x})"
        if kind == "sext":
            inner = f"-{x}" if have.width == 1 else f"(int{have.width}_t){x}"
            return f"({_ctype(made)})({inner})"
        if kind == "sitofp":
            return f"({_ctype(made)})(int{have.width}_t){x}"
        if kind == "trunc" and made.width == 1:
            return f"(int)({x} & 1u)"
        return f"({_ctype(made)}){x}"

    def _bitcast(self, x: str, have: Any, made: Any) -> str:
        if have == made:
            return x
        if isinstance(made, ir.IntType):
            return f"{self.source.helper(f'bits_f{made.width}')}({x})"
        name = "double_of_bits" if made == scalar.F64 else "float_of_bits"
        return f"{self.source.helper(name)}({x})"

    def _load(self, place: Any) -> str:
        table, (_, index) = place.pointer, place.indices
        name = table.name.replace(".", "_")
        words = table.initializer.constant
        values = [w.constant if isinstance(w, ir.Constant) else w for w in words]
        held = np.array(values, np.int64).view(np.uint64)
        self.source.define(name, lambda: array(name, held, uint64))
        return f"{name}[{self.value(index)}]"

    def _call(self, one: Any) -> str:
        args = [self.value(a) for a in one.args]
        callee = one.callee.name
        if callee.startswith("llvm."):
            return self._intrinsic(callee.split(".")[1], one, args)
        name = callee.replace(".", "_")
        made = one.callee
        self.source.define(
            name, lambda: _Translation(self.source, made, name).text([], "")
        )
        return f"{name}({', '.join(args)})"

    def _intrinsic(self, name: str, one: Any, args: list[str]) -> str:
        if name == "fmuladd":
            return f"{args[0]} * {args[1]} + {args[2]}"
        if name in ("umin", "umax"):
            sign = "<" if name == "umin" else ">"
            return f"{args[0]} {sign} {args[1]} ? {args[0]} : {args[1]}"
        made = f"{name}_f{64 if one.type == scalar.F64 else 32}"
        if made in HELPERS:
            return f"{self.source.helper(made)}({', '.join(args)})"
        if name not in _LLVM_OF_C:
            raise GraphError(f"C: there is no function for LLVM's {name!r}")
        return f"{_LLVM_OF_C[name]}{_end(one.type)}({', '.join(args)})"


def _ends(one: Any) -> bool:
    return isinstance(one, ir.instructions.Terminator)


def _end(kind: Any) -> str:
    return "" if kind == scalar.F64 else "f"


def _fcmp(op: str, x: str, y: str) -> str:
    if op == "uno":
        return f"{x} != {x}" if x == y else f"{x} != {x} || {y} != {y}"
    if op == "ord":
        return f"{x} == {x} && {y} == {y}"
    if op == "one":
        return f"{x} < {y} || {x} > {y}"
    if op == "une":
        return f"{x} != {y}"
    if op[0] == "u":
        opposite = {"ult": ">=", "ule": ">", "ugt": "<=", "uge": "<"}
        if op == "ueq":
            return f"!({x} < {y} || {x} > {y})"
        return f"!({x} {opposite[op]} {y})"
    return f"{x} {_SIGNS[op[1:]]} {y}"


def _constant(value: Any) -> str:
    kind, number = value.type, value.constant
    if isinstance(kind, ir.IntType):
        number = int(number) if number is not ir.Undefined else 0
        number &= (1 << kind.width) - 1
        if kind.width == 64:
            return f"UINT64_C({number})"
        return str(number) if kind.width == 1 else f"{number}u"
    single = kind == scalar.F32
    if single and number is not None:
        number = struct.unpack("<f", struct.pack("<f", number))[0]
    text = floating(number, single=single)
    return f"({text})" if text.startswith("-") else text

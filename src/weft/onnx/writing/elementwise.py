"""Rules of functions of each element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft
from weft.onnx.writing.writer import Refused, Writer, rule

_ONE = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh",
    "atan": "Atan", "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh",
    "erf": "Erf", "exp": "Exp", "floor": "Floor", "log": "Log", "neg": "Neg",
    "reciprocal": "Reciprocal", "relu": "Relu", "round": "Round", "sigmoid": "Sigmoid",
    "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan",
    "tanh": "Tanh", "isnan": "IsNaN", "alias": "Identity", "clone": "Identity",
    "detach": "Identity", "conj": "Identity",
}  # fmt: skip
_TWO = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow",
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater",
    "ge": "GreaterOrEqual", "maximum": "Max", "minimum": "Min", "where": "Where",
}  # fmt: skip


def _direct(op: str) -> Any:
    return lambda w, node, *xs: w(op, *xs)


for _name, _op in (_ONE | _TWO).items():
    rule(_name)(_direct(_op))


def like(w: Writer, node: Any, value: float, name: str = "") -> str:
    """A number as a constant of the dtype of a node's first tensor."""
    return w.constant(value, _dtype(node))


def _dtype(node: Any) -> Any:
    return next(x.dtype for x in node.inputs if hasattr(x, "dtype"))


@rule("require renew")
def _first(w: Writer, node: Any, x: str, *more: str) -> str:
    return x  # what it checks is checked by who runs the model, or by nobody


@rule("cast")
def _cast(w: Writer, node: Any, x: str) -> str:
    return w.cast(x, node.dtype)


@rule("ne")
def _ne(w: Writer, node: Any, x: str, y: str) -> str:
    return w("Not", w("Equal", x, y))


@rule("square")
def _square(w: Writer, node: Any, x: str) -> str:
    return w("Mul", x, x)


@rule("rsqrt")
def _rsqrt(w: Writer, node: Any, x: str) -> str:
    return w("Reciprocal", w("Sqrt", x))


@rule("trunc")
def _trunc(w: Writer, node: Any, x: str) -> str:
    return w("Mul", w("Sign", x), w("Floor", w("Abs", x)))


@rule("exp2")
def _exp2(w: Writer, node: Any, x: str) -> str:
    return w("Pow", like(w, node, 2), x)


@rule("expm1")
def _expm1(w: Writer, node: Any, x: str) -> str:
    """``tanh(x / 2) * (exp(x) + 1)``, which is exact near zero."""
    half = w("Tanh", w("Mul", x, like(w, node, 0.5)))
    return w("Mul", half, w("Add", w("Exp", x), like(w, node, 1)))


def log1p(w: Writer, node: Any, x: str) -> str:
    """``log(u) * x / (u - 1)`` for ``u = 1 + x``, which is exact near zero."""
    one = like(w, node, 1)
    u = w("Add", x, one)
    less = w("Sub", u, one)
    log = w("Log", u)
    plain = w("Or", w("Equal", u, one), w("Equal", u, like(w, node, math.inf)))
    safe = w("Where", plain, one, less)
    near = w("Mul", log, w("Div", x, safe))
    return w("Where", w("Equal", u, one), x, w("Where", plain, log, near))


@rule("log1p")
def _log1p(w: Writer, node: Any, x: str) -> str:
    return log1p(w, node, x)


@rule("log2")
def _log2(w: Writer, node: Any, x: str) -> str:
    return w("Div", w("Log", x), like(w, node, math.log(2)))


@rule("log10")
def _log10(w: Writer, node: Any, x: str) -> str:
    return w("Div", w("Log", x), like(w, node, math.log(10)))


@rule("logaddexp")
def _logaddexp(w: Writer, node: Any, x: str, y: str) -> str:
    far = w("Neg", w("Abs", w("Sub", x, y)))
    same = w("Equal", x, y)  # infinite ones, too
    most = w("Max", x, y)
    more = log1p(w, node, w("Exp", far))
    return w("Add", most, w("Where", same, like(w, node, math.log(2)), more))


@rule("absorb")
def _absorb(w: Writer, node: Any, x: str, y: str) -> str:
    zero = like(w, node, 0)
    nothing = w("Or", w("Equal", x, zero), w("Equal", y, zero))
    return w("Where", nothing, zero, w("Mul", x, y))


@rule("isinf")
def _isinf(w: Writer, node: Any, x: str) -> str:
    return _infinite(w, node, x)


@rule("isposinf")
def _isposinf(w: Writer, node: Any, x: str) -> str:
    return _infinite(w, node, x, detect_negative=0)


@rule("isneginf")
def _isneginf(w: Writer, node: Any, x: str) -> str:
    return _infinite(w, node, x, detect_positive=0)


def _infinite(w: Writer, node: Any, x: str, **signs: int) -> str:
    narrow = _dtype(node).itemsize < 4 or not _dtype(node).is_floating_point
    return w("IsInf", w.cast(x, weft.float32) if narrow else x, **signs)


@rule("isfinite")
def _isfinite(w: Writer, node: Any, x: str) -> str:
    if not _dtype(node).is_floating_point:
        return w("Equal", x, x)
    return w("Not", w("Or", w("IsNaN", x), _infinite(w, node, x)))


def _truth(w: Writer, node: Any, x: str) -> str:
    return x if _dtype(node) is weft.bool else w.cast(x, weft.bool)


@rule("logical_not")
def _logical_not(w: Writer, node: Any, x: str) -> str:
    return w("Not", _truth(w, node, x))


def _logical(name: str, op: str) -> None:
    @rule(f"logical_{name}")
    def logical(w: Writer, node: Any, x: str, y: str) -> str:
        return w(op, _truth(w, node, x), _truth(w, node, y))

    @rule(f"bitwise_{name}")
    def bitwise(w: Writer, node: Any, x: str, y: str) -> str:
        if node.dtype is weft.bool:
            return w(op, x, y)
        return w(since(w, 18, f"Bitwise{op}"), x, y)


for _name, _op in (("and", "And"), ("or", "Or"), ("xor", "Xor")):
    _logical(_name, _op)


@rule("bitwise_not")
def _bitwise_not(w: Writer, node: Any, x: str) -> str:
    return w("Not" if node.dtype is weft.bool else since(w, 18, "BitwiseNot"), x)


def since(w: Writer, opset: int, op: str) -> str:
    if w.opset < opset:
        raise Refused(f"ONNX has {op} from opset {opset} on; export with opset={opset}")
    return op


def _shift(direction: str) -> Any:
    def written(w: Writer, node: Any, x: str, y: str) -> str:
        if node.dtype.is_signed or node.dtype is weft.bool:
            raise Refused("ONNX shifts bits of unsigned numbers alone")
        return w("BitShift", x, y, direction=direction)

    return written


rule("bitwise_left_shift")(_shift("LEFT"))
rule("bitwise_right_shift")(_shift("RIGHT"))


@rule("fmod")
def _fmod(w: Writer, node: Any, x: str, y: str) -> str:
    return w("Mod", x, y, fmod=1)


def remainder(w: Writer, node: Any, x: str, y: str) -> str:
    """The rest with the sign of the divisor."""
    if not node.dtype.is_floating_point:
        return w("Mod", x, y)
    rest, zero = w("Mod", x, y, fmod=1), like(w, node, 0)
    other = w("Xor", w("Less", rest, zero), w("Less", y, zero))
    wrong = w("And", w("Not", w("Equal", rest, zero)), other)
    return w("Where", wrong, w("Add", rest, y), rest)


@rule("remainder")
def _remainder(w: Writer, node: Any, x: str, y: str) -> str:
    return remainder(w, node, x, y)


@rule("floor_divide")
def _floor_divide(w: Writer, node: Any, x: str, y: str) -> str:
    whole = w("Div", w("Sub", x, remainder(w, node, x, y)), y)
    if not node.dtype.is_floating_point:
        return whole
    near = w("Floor", w("Add", whole, like(w, node, 0.5)))
    nothing = w("Equal", y, like(w, node, 0))
    return w("Where", nothing, w("Div", x, y), near)


@rule("full")
def _full(w: Writer, node: Any) -> str:
    value = node.params["value"]
    fill = w.read(value, node.dtype) if not _is_plain(value) else ""
    if not fill:
        fill = w.constant(np.asarray(value).astype(node.dtype.np))
    return fill if node.shape == () else w("Expand", fill, w.ints(node.shape))


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, float, bool, np.generic))

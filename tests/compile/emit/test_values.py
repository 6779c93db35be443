"""Values with operators: what they emit computes what Python computes."""

import ctypes

import numpy as np
import pytest
from llvmlite import ir

from weft.compile.emit.control_flow import F32, I64, VOID, function
from weft.compile.emit.flow import (
    branch,
    carry,
    choose,
    either,
    if_else,
    loop,
    when,
    while_less,
)
from weft.compile.emit.isa import new_module
from weft.compile.emit.values import (
    PTR,
    Pointer,
    Value,
    equal,
    fma,
    minimum,
    negate,
    rounded,
    select,
)
from weft.compile.emit.vectors import first_lanes, shuffle, splat, totals, transpose
from weft.compile.targets.cpu.object_code import compile_module, host_isa


def run(body, out, *numbers):
    """Run ``body(out, *numbers)``, emitted for integers, on an array."""
    isa = host_isa()
    module = new_module("values", isa)
    kinds = [PTR] + [I64] * len(numbers)
    element = {"f": F32, "l": I64}[out.dtype.char]
    with function(module, "run", VOID, kinds) as (b, made):
        pointer, *rest = made.args
        body(Pointer(b, pointer, element), *[Value(b, x) for x in rest])
        b.ret_void()
    library = compile_module(module, isa, level=1)
    types = [ctypes.c_void_p] + [ctypes.c_int64] * len(numbers)
    ctypes.CFUNCTYPE(None, *types)(library.address("run"))(out.ctypes.data, *numbers)
    return out


def test_operators_of_integers():
    def body(out, x, y):
        results = [
            x + y, x - y, x * y, 3 - x, x // 4, x % 4, -x, x << 2, x >> 1, 1 << y,
            x.shift_right(60), x & 6, x | 6, x ^ 6, minimum(x, y), rounded(y, 8),
            (x < y).unsigned(), x.below(y).unsigned(), x.equals(y).unsigned(),
            x.differs(y).unsigned(), (~(x < y)).unsigned(),
        ]  # fmt: skip
        for k, result in enumerate(results):
            out[k] = result

    x, y = -13, 5
    want = [
        x + y,
        x - y,
        x * y,
        3 - x,
        -3,
        -1,
        -x,
        x << 2,
        x >> 1,
        1 << y,
        15,
        x & 6,
        x | 6,
        x ^ 6,
        x,
        8,
        1,
        0,
        0,
        1,
        0,
    ]  # fmt: skip  // and % are cut towards zero
    assert run(body, np.zeros(21, np.int64), x, y).tolist() == want


def test_what_is_known_is_decided_now():
    known = Value(None, ir.Constant(I64, 1))
    assert (known & True) is known
    assert (True & known) is known
    assert (known & False) is False
    assert (False & known) is False
    assert (known | True) is True
    assert (known | False) is known
    assert select(True, 1, 2) == 1
    assert select(False, 1, 2) == 2
    assert equal(3, 3) is True
    assert negate(True) is False
    assert rounded(9, 4) == 12
    taken = []
    branch(False, lambda: taken.append("yes"), lambda: taken.append("no"))
    branch(True, lambda: taken.append("yes"))
    assert taken == ["no", "yes"]


def test_control_flow():
    def body(out, n):
        with loop(n) as i, when(i % 3 > 0):
            out[0] = out[0] + i
        with loop(2, n, 4) as i:
            out[1] = out[1] + i
        with while_less(1, n) as (i, advance):
            out[2] = out[2] + 1
            advance(i)  # it doubles
        out[3], out[4] = carry(0, n, 1, [0, 1], lambda i, held: [held[1], sum(held)])
        out[5] = either(n > 5, lambda: n * 2, lambda: n * 3)
        (out[6],) = choose(n > 50, [n], lambda: [n + 1])
        with if_else(n > 50) as (yes, no):
            with yes:
                out[7] = 1
            with no:
                out[7] = 2
        with loop(3, beside=n) as i:
            out[8] = out[8] + i

    got = run(body, np.zeros(9, np.int64), 10).tolist()
    assert got == [27, 8, 4, 55, 89, 20, 10, 2, 3]  # 1 2 4 5 7 8; 2 6; 1 2 4 8; …


def test_vectors_with_masks():
    four = ir.VectorType(F32, 4)

    def body(out, n):
        rows = [(out + 4 * k).load(four) for k in range(4)]
        (out + 16).store(totals(rows))
        for k, row in enumerate(transpose(rows)):
            (out + (20 + 4 * k)).store(row)
        (out + 36).store(fma(rows[0], 2.0, rows[1]), first_lanes(n, 4))
        (out + 40).store((out + 4).load(four, first_lanes(n, 4)))
        (out + 44).store(shuffle(rows[0], rows[1], [7, 0, 6, 1]))
        (out + 48).store(splat(rows[2].lane(3), 4))

    out = np.full(52, -1, np.float32)
    out[:16] = np.arange(16)
    square = out[:16].reshape(4, 4).copy()
    run(body, out, 3)
    np.testing.assert_array_equal(out[16:20], square.sum(1))
    np.testing.assert_array_equal(out[20:36].reshape(4, 4), square.T)
    np.testing.assert_array_equal(out[36:40], [4, 7, 10, -1])  # the mask keeps the last
    np.testing.assert_array_equal(out[40:44], [4, 5, 6, 0])
    np.testing.assert_array_equal(out[44:48], [7, 0, 6, 1])
    np.testing.assert_array_equal(out[48:52], [11] * 4)


def test_a_range_that_is_known_needs_a_value_of_the_code():
    with pytest.raises(TypeError, match="expected a value"), loop(3):
        pass

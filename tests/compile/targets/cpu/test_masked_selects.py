"""Choices between bits inside of a vector select, which LLVM 22.1 compiles wrongly."""

import ctypes
import itertools

import numpy as np
import pytest

import weft
from weft.compile.targets.cpu.masked_selects import kept_apart
from weft.compile.targets.cpu.object_code import compile_module
from weft.nn import functional as F

TYPES = [(kind, lanes) for kind in ("i32", "i64") for lanes in (2, 4, 8, 16)]
MASKS = (0x7FFFFFFF, 0x80000000, 0xFFFF0000, 0x55555555)
ARMS = list(
    itertools.product("ab", "ab", (False, True))
)  # first bits, other arm, order


def function(name, kind, lanes, mask, first, other, turned):
    """``m ? other : (first & mask) | (second & ~mask)``, or the arms turned."""
    of, second = f"<{lanes} x {kind}>", "b" if first == "a" else "a"
    signed = np.array([mask, ~mask], np.int64)
    if kind == "i32":
        signed = signed.astype(np.int32)
    arms = [f"{of} %{other}", f"{of} %t"]
    arms = arms[::-1] if turned else arms
    return f"""
define void @"{name}"(ptr %pa, ptr %pb, ptr %pm, ptr %po) {{
  %a = load {of}, ptr %pa, align 4
  %b = load {of}, ptr %pb, align 4
  %n = load {of}, ptr %pm, align 4
  %m = icmp sgt {of} %n, zeroinitializer
  %x = and {of} %{first}, splat ({kind} {signed[0]})
  %y = and {of} %{second}, splat ({kind} {signed[1]})
  %t = or {of} %x, %y
  %r = select <{lanes} x i1> %m, {", ".join(arms)}
  store {of} %r, ptr %po, align 4
  ret void
}}
"""


def test_every_choice_of_bits_keeps_its_other_arm():
    cases = list(itertools.product(TYPES, MASKS, ARMS))
    texts = [
        function(str(k), *kind, mask, *arms)
        for k, (kind, mask, arms) in enumerate(cases)
    ]
    library = compile_module("".join(texts))
    rng = np.random.default_rng(0)
    pointers = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
    for k, ((kind, lanes), mask, (first, other, turned)) in enumerate(cases):
        dtype = np.dtype(f"u{int(kind[1:]) // 8}")
        a, b = rng.integers(0, 2 ** (8 * dtype.itemsize - 1), (2, lanes)).astype(dtype)
        a, b = a * dtype.type(2) + dtype.type(1), b * dtype.type(2)
        m = rng.integers(-1, 2, lanes).astype(f"i{dtype.itemsize}")
        out = np.zeros(lanes, dtype)
        address = library.address(str(k))
        pointers(address)(*(x.ctypes.data for x in (a, b, m, out)))
        bits = np.array(mask, np.int64).astype(dtype)
        sources = {"a": a, "b": b}
        second = b if first == "a" else a
        chosen = (sources[first] & bits) | (second & ~bits)
        want = np.where((m > 0) != turned, sources[other], chosen)
        np.testing.assert_array_equal(out, want, str((kind, lanes, mask, other)))


@pytest.mark.parametrize("dtype", [weft.bfloat16, weft.float16, weft.float32])
@pytest.mark.parametrize(
    "name", ["elu", "celu", "selu", "gelu", "softsign", "hardshrink"]
)
def test_activations_of_negative_numbers(name, dtype):
    x = weft.linspace(-3, 3, 45).to(dtype)
    fn = getattr(F, name)
    got, want = weft.compile(lambda x: fn(x))(x).float(), fn(x.double()).float()
    atol = {2: 2e-2, 4: 1e-6}[dtype.itemsize]
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=atol, atol=atol)


def test_bits_that_a_program_chooses():
    """The same by integer operators of a user's."""

    def chosen(m, a, b):
        return weft.where(m > 0, a, (a & -(2**31)) | (b & (2**31 - 1)))

    rng = np.random.default_rng(1)
    m, a, b = (
        weft.tensor(rng.integers(-(2**31), 2**31, 70).astype(np.int32))
        for _ in range(3)
    )
    assert weft.equal(weft.compile(chosen)(m, a, b), chosen(m, a, b))


def test_the_other_arm_is_looked_for_behind_casts():
    text = """define <4 x i32> @f(<4 x i1> %m, <4 x float> %a, <4 x float> %b) {
  %1 = call <4 x float> @llvm.copysign.v4f32(<4 x float> %b, <4 x float> %a)
  %2 = bitcast <4 x float> %1 to <4 x i32>
  %3 = bitcast <4 x float> %a to <4 x i32>
  %4 = select <4 x i1> %m, <4 x i32> %3, <4 x i32> %2
  %5 = or <4 x i32> %4, splat (i32 1)
  %6 = select <4 x i1> %m, <4 x i32> %4, <4 x i32> %5
  ret <4 x i32> %6
}"""
    lines = set(kept_apart(text).splitlines()) - set(text.splitlines())
    assert lines == {
        '  %apart.0 = call <4 x i32> asm "", "=v,0"(<4 x i32> %2)',
        "  %4 = select <4 x i1> %m, <4 x i32> %3, <4 x i32> %apart.0",
    }

"""Squares that are turned in registers, and loops that are told to be vectors."""

import numpy as np
import pytest

import weft
from weft.compile.emit.isa import new_module
from weft.compile.loop.schedule import example, vectorise
from weft.compile.targets.cpu.kernel import emit_kernel
from weft.compile.targets.cpu.object_code import assembly, host_isa

RNG = np.random.default_rng(2)
SHAPES = [(1, 1), (16, 16), (17, 33), (5, 70), (64, 48), (100, 31)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8", "bool"])
@pytest.mark.parametrize("shape", SHAPES)
def test_transposed_copies(shape, dtype):
    x = RNG.integers(0, 2, shape).astype(dtype)
    y = RNG.integers(0, 2, shape[::-1]).astype(dtype)
    turned = weft.compile(lambda x, y: weft.where(y != x.T, x.T, y))
    got = turned(weft.tensor(x), weft.tensor(y))
    np.testing.assert_array_equal(got.numpy(), np.where(y != x.T, x.T, y))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_turned(dtype):
    x = weft.tensor(RNG.normal(size=(20, 37))).to(getattr(weft, dtype))
    got = weft.compile(lambda x: x.T + x.T)(x)
    assert (got == x.T + x.T).all().item()


def test_permuted_copies():
    x = RNG.normal(size=(3, 18, 5, 20)).astype(np.float32)
    for dims in [(0, 2, 1, 3), (3, 2, 1, 0), (0, 3, 1, 2), (2, 0, 3, 1)]:
        got = weft.compile(lambda x, d=dims: x.permute(*d) * 2)(weft.tensor(x))
        np.testing.assert_array_equal(got.numpy(), x.transpose(dims) * 2)


@pytest.mark.parametrize("level", ["avx2", "baseline"])
def test_a_width_is_honoured(level):
    target = host_isa(level)
    texts = []
    for kernel in (example(), vectorise(example(), "i", 1)):
        module = new_module("one", target)
        emit_kernel(module, kernel, target)
        texts.append(assembly(module, target))
    assert "mulps" in texts[0] or "addps" in texts[0]
    assert "mulps" not in texts[1]
    assert "addps" not in texts[1]

"""Products of few rows with packed weights: values, bits, threads, instruction sets."""

import numpy as np
import pytest

import weft
from weft.compile.targets.cpu.matmul import matmul_arrays
from weft.compile.targets.cpu.matmul.weight_only import multiply
from weft.compile.targets.cpu.object_code import host_isa
from weft.errors import DTypeError, ShapeError
from weft.ops import quantized as records
from weft.quantization.numbers import grouped, symmetric

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def eager_kernels(monkeypatch):
    monkeypatch.setattr(weft.config, "eager_kernels", True)


def packed(n, k, bits, group=64):
    rows = RNG.standard_normal((n, k)).astype(np.float32)
    if bits == 4:
        return grouped(rows, group)
    numbers, scale = symmetric(rows)
    if k % 2 == 0:  # two scales a row
        scale = np.stack([scale, 2 * scale], 1)
    return numbers, scale.reshape(n, -1)


@pytest.mark.parametrize("level", ["sse4", "avx2", None])
@pytest.mark.parametrize("bits", [4, 8])
def test_products_of_packed_weights(level, bits):
    for m, n, k, group in (
        (1, 8, 64, 64), (2, 9, 128, 64), (3, 70, 100, 64), (7, 33, 33, 32),
        (16, 5, 7, 16), (1, 1, 1, 2), (4, 40, 260, 128),
    ):  # fmt: skip
        x = RNG.standard_normal((m, k)).astype(np.float32)
        weight, scale = packed(n, k, bits, group)
        found = multiply(x, weight, scale, bits, host_isa(level))
        wide = records._dequantized_array(weight, scale.astype(float), k, bits)
        np.testing.assert_allclose(found, x.astype(float) @ wide.T, rtol=0, atol=3e-5)


@pytest.mark.parametrize("level", ["sse4", "avx2", None])
@pytest.mark.parametrize("bits", [4, 8])
def test_errors_are_small_beside_each_product(bits, level):
    """A sum's error is bounded by its own terms, whatever else is in the row."""
    weight, scale = packed(20, 768, bits)
    x = RNG.standard_normal((3, 768)) * 10.0 ** RNG.integers(-30, 30, (3, 768))
    x[0, ::2], x[2] = 0, 0
    x[:2, 5] = 1e35  # which is not there, as its weights are 0
    weight[:, 5] = 0 if bits == 8 else weight[:, 5] & 0xF0 | 8
    x = x.astype(np.float32)
    wide = records._dequantized_array(weight, scale.astype(float), 768, bits)
    assert not wide[:, 5].any()
    found = multiply(x, weight, scale, bits, host_isa(level))
    terms = abs(x).astype(float) @ abs(wide).T
    assert (abs(found - x.astype(float) @ wide.T) <= 2.0**-24 * 100 * terms).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_what_is_not_finite_stays_in_its_row(bits):
    weight, scale = packed(20, 128, bits)
    x = RNG.standard_normal((4, 128)).astype(np.float32)
    clean = multiply(x, weight, scale, bits)
    x[1, 3], x[2, 70] = np.nan, np.inf
    found = multiply(x, weight, scale, bits)
    np.testing.assert_array_equal(found[::3], clean[::3])
    wide = records._dequantized_array(weight, scale, 128, bits)
    assert np.isnan(found[1]).all()
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found[2], np.inf * wide[:, 70])


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_do_not_depend_on_others_and_compiled_bits_are_eager_ones(bits):
    weight, scale = map(weft.tensor, packed(130, 200, bits))
    x = weft.tensor(RNG.standard_normal((9, 200)).astype(np.float32))

    def product(x):
        return records.weight_only_matmul_op(x, weight, scale, bits=bits)

    whole = product(x)
    for rows in (1, 2, 3, 5, 8):
        assert weft.equal(product(x[:rows]), whole[:rows])
    compiled = weft.compile(product)
    for rows in (9, 1):
        for _ in range(3):
            assert weft.equal(compiled(x[:rows]), whole[:rows])
    assert [str(call.node.op) for call in compiled.explain().programs[0].lowered.steps
            if hasattr(call, "node")] == ["<op weight_only_matmul>"]  # fmt: skip


def test_many_rows_and_other_dtypes_are_other_operators():
    weight, scale = map(weft.tensor, packed(6, 32, 4))
    for dtype, rows in ((weft.float64, 2), (weft.float32, 200)):
        x = weft.tensor(RNG.standard_normal((rows, 32))).to(dtype)
        product = lambda x, s: records.weight_only_matmul_op(x, weight, s, bits=4)
        found = weft.compile(product)(x, scale.to(dtype))
        wide = records.dequantized(weight, scale.double(), size=32, bits=4)
        wanted = x.double() @ wide.T
        assert np.allclose(found.numpy(), wanted.numpy(), atol=1e-4)


def test_operands_that_are_views():
    weight, scale = map(weft.tensor, packed(12, 32, 8))
    weights = weight[::2].reshape(3, 2, 32), scale[::2]
    x = weft.tensor(RNG.standard_normal((32, 4)).astype(np.float32))
    for rows in (x.t(), x.reshape(2, 2, 32), x.t()[1:, :32]):
        for w, s in ((weight, scale), weights):
            product = lambda x, w=w, s=s: records.weight_only_matmul_op(
                x.reshape(-1, 32), w.reshape(-1, 32), s, bits=8
            )
            assert weft.equal(weft.compile(product)(rows), product(rows))


@pytest.mark.parametrize("level", ["baseline", "sse4", "avx2", None])
def test_sums_of_the_largest_bytes_are_exact(level):
    """No instruction set's products of bytes saturate."""
    isa = host_isa(level)
    for m, n, k in ((1, 5, 70), (3, 20, 257), (40, 33, 1000)):
        for high, low in ((255, -127), (255, 127), (0, -127)):
            a = np.full((m, k), high, np.uint8)
            b = np.full((k, n), low, np.int8)
            a[:, ::7], b[::5] = 254, -128
            wanted = a.astype(np.int64) @ b.astype(np.int64)
            np.testing.assert_array_equal(matmul_arrays(a, b, isa=isa), wanted)
            found = matmul_arrays(b.T.copy(), a.T.copy(), isa=isa)
            np.testing.assert_array_equal(found, wanted.T)


def test_operands_that_do_not_belong_together():
    weight, scale = packed(6, 32, 4)
    x = np.ones((2, 32), np.float32)
    wrong = (
        (x[:, :16], weight, scale, 4), (np.ones((2, 33), "f"), weight, scale, 4),
        (x, weight, scale[:3], 4), (x, weight, scale[:, :0], 4),
        (x[0], weight, scale, 4), (x, weight.view(np.int8), scale, 8),
    )  # fmt: skip
    kinds = (x, weight.view(np.int8), scale, 4), (x, weight, scale.astype("d"), 4)
    product = records.weight_only_matmul_op
    for error, cases in ((ShapeError, wrong), (DTypeError, kinds)):
        for *arrays, bits in cases:
            tensors = [weft.tensor(a) for a in arrays]
            for enabled in (True, False):
                with weft.config.using(eager_kernels=enabled), pytest.raises(error):
                    product(*tensors, bits=bits)
            with pytest.raises(error):
                weft.compile(lambda *t, bits=bits: product(*t, bits=bits))(*tensors)

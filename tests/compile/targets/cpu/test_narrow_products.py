"""Products of bfloat16, float16, int8 and uint8: kernels, eager, compiled, errors."""

import ctypes
import itertools

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

import weft
from weft.compile import eager
from weft.compile.emit.isa import Isa, new_module
from weft.compile.targets.cpu.matmul.arrays import compiled, kind_name, matmul_arrays
from weft.compile.targets.cpu.matmul.generate import emit_gemm
from weft.compile.targets.cpu.matmul.kinds import RESULTS, Kind, kind_of
from weft.compile.targets.cpu.matmul.tasks import JOB, Split
from weft.compile.targets.cpu.object_code import assembly, host_isa
from weft.errors import DTypeError, ShapeError
from weft.ops.products import matmul_op, wide_matmul_op

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
LIMITS = [None, "avx512", "avx2", "baseline"]
BYTES = [np.dtype(np.int8), np.dtype(np.uint8)]
HALVES = [BFLOAT16, np.dtype(np.float16)]
PAIRS = [*itertools.product(BYTES, BYTES), *((h, h) for h in HALVES)]
# Multiples of nothing, words cut short, empty products, and several blocks of k.
SHAPES = [
    (1, 1, 1), (16, 16, 16), (5, 3, 7), (14, 32, 2), (15, 33, 19), (0, 4, 3), (4, 0, 3),
    (4, 5, 0), (1, 40, 0), (29, 65, 300), (1, 300, 271), (300, 1, 270), (3, 301, 65),
    (301, 3, 67), (2, 2, 1001), (31, 200, 20), (97, 97, 97), (20, 40, 1025),
    (6, 70, 2100), (32, 130, 131),
]  # fmt: skip


@pytest.fixture(autouse=True)
def threads():
    """As many threads afterwards as before."""
    before = weft.get_num_threads()
    yield
    weft.set_num_threads(before)


def here(limit):
    if limit == "avx512" and host_isa().bits < 512:
        pytest.skip("this machine has no AVX-512")
    return host_isa(limit)


def numbers(rng, shape, dtype):
    """Any bytes, the smallest and the largest among them; or normal numbers."""
    if dtype.name in ("int8", "uint8"):
        found = np.iinfo(dtype)
        return rng.integers(found.min, found.max + 1, shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def matrix(rng, rows, columns, dtype, layout):
    if layout == "rows":
        return numbers(rng, (rows, columns), dtype)
    if layout == "columns":
        return numbers(rng, (columns, rows), dtype).T
    return numbers(rng, (2 * rows, 3 * columns), dtype)[::2, ::-3]


def check(got, a, b):
    """Integers exactly; others within (k + 2) units of float32 of the terms' sizes.

    A product of two halves is exact in float32, so each term adds one rounding; the
    machine's instruction takes what is below 2**-126 for zero.
    """
    if got.dtype == np.int32:
        np.testing.assert_array_equal(got, a.astype(np.int64) @ b.astype(np.int64))
        return
    assert got.dtype == np.float32
    x, y = a.astype(np.float64), b.astype(np.float64)
    unit = (a.shape[-1] + 2) * 2.0**-24
    slack = unit * (np.abs(x) @ np.abs(y)) + a.shape[-1] * 2.0**-126
    assert (np.abs(got - x @ y) <= slack).all()


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: "-".join(d.name for d in p))
def test_all_layouts(rng, limit, pair):
    target = here(limit)
    for left, right in itertools.product(["rows", "columns", "gaps"], repeat=2):
        for m, n, k in SHAPES:
            a = matrix(rng, m, k, pair[0], left)
            b = matrix(rng, k, n, pair[1], right)
            check(matmul_arrays(a, b, isa=target), a, b)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: "-".join(d.name for d in p))
def test_extremes_sum_up_exactly(limit, pair):
    """Each word at its limits, where int16 sums of two would overflow."""
    target = here(limit)
    for low, high in itertools.product([False, True], repeat=2):
        a, b = (
            np.full((6, 9), bound(d, top), d)
            for d, top in zip(pair, (low, high), strict=True)
        )
        check(matmul_arrays(a, b.T, isa=target), a, b.T)


def bound(dtype, top):
    if dtype.name in ("int8", "uint8"):
        return np.iinfo(dtype).max if top else np.iinfo(dtype).min
    return 3.0 if top else -3.0


@pytest.mark.parametrize("limit", LIMITS)
def test_sums_wrap_around_as_int32_does(limit):
    k = 1 << 18
    a = np.full((1, k), -128, np.int8)
    got = matmul_arrays(np.repeat(a, 5, 0), np.repeat(a, 5, 0).T, isa=here(limit))
    want = np.int64(k * 128 * 128).astype(np.int32)
    np.testing.assert_array_equal(got, np.full((5, 5), want))


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: "-".join(d.name for d in p))
def test_results_do_not_depend_on_the_split(rng, limit, pair):
    target = here(limit)
    gemm = compiled(kind_name(*(d.name for d in pair)), target)
    for m, n, k in [(30, 70, 300), (3, 130, 80), (100, 2, 90)]:
        a, b = numbers(rng, (m, k), pair[0]), numbers(rng, (k, n), pair[1])
        whole = matmul_arrays(a, b, isa=target)
        for rows, columns in [(1, n), (7, 33), (m, 50)]:
            out = np.zeros_like(whole)
            tasks = -(-m // rows) * -(-n // columns)
            job = gemm.job(a, b, out, Split(rows, columns, tasks))
            for begin in range(0, tasks, 5):
                gemm.run(job.ctypes.data, begin, min(begin + 5, tasks), 0)
            np.testing.assert_array_equal(out, whole)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: "-".join(d.name for d in p))
@pytest.mark.parametrize("layout", ["rows", "columns", "gaps"])
def test_panels_made_before_give_the_same_bits(rng, limit, pair, layout):
    target = here(limit)
    gemm = compiled(kind_name(*(d.name for d in pair)), target)
    m, n, k = 33, 75, 1100
    a, b = numbers(rng, (m, k), pair[0]), matrix(rng, k, n, pair[1], layout)
    tile, group = gemm.tile, kind_of(kind_name(*(d.name for d in pair)), target).group
    words, across = -(-k // group), -(-n // tile.width)
    room = np.zeros(
        -(-words // tile.lanes) * tile.lanes * across * tile.width, np.int32
    )
    job = gemm.job(a, b, room.reshape(1, -1), Split(1, 1, across))
    job[[JOB.index(x) for x in ("m", "n", "k")]] = 1, n, k
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)
    run(gemm.library.address("gemm_pack"))(job.ctypes.data, 0, across, 0)
    out = np.zeros((m, n), RESULTS[kind_name(*(d.name for d in pair))])
    job = gemm.job(a, b, out, Split(m, n, 1), packed=room.ctypes.data)
    gemm.run(job.ctypes.data, 0, 1, 0)
    np.testing.assert_array_equal(out, matmul_arrays(a, b, isa=target))


def test_machines_that_have_instructions_for_it_use_them():
    full = "+avx512bf16,+avx512vnni"
    x86 = Isa("x86_64-unknown-linux-gnu", "znver4", full, 512)
    arm = Isa("aarch64-unknown-linux-gnu", "generic", "", 128)
    groups = {name: kind_of(name, x86).group for name in RESULTS}
    assert groups["bfloat16"] == 2
    assert groups["bfloat16 widened"] == groups["float16"] == groups["float32"] == 1
    assert groups["int8"] == groups["uint8"] == groups["uint8 int8"] == 4
    assert {kind_of(name, arm).group for name in RESULTS} == {1}
    assert isinstance(kind_of("float64", arm), Kind)
    with pytest.raises(DTypeError, match=r"gemm: expected one of .*, got int16"):
        kind_of("int16", arm)


def code_of(name, target):
    module = new_module("products", target)
    known = {"a_col": 1, "b_col": 1, "m": 64, "n": 64, "k": 64}
    emit_gemm(module, "gemm", name, target, known=known)
    return assembly(module, target)


def test_the_instructions_are_in_the_code():
    """Code can be made for them on any machine of the kind; on others it is not run."""
    target = host_isa()
    if not target.triple.startswith("x86"):
        pytest.skip("other machines have other instructions")
    full = target._replace(
        cpu="x86-64-v4", bits=512, features="+avx512bf16,+avx512vnni,-prefer-256-bit"
    )
    assert "vdpbf16ps" in code_of("bfloat16", full)
    assert "vdpbf16ps" not in code_of("bfloat16 widened", full)
    assert "vpdpbusd" in code_of("int8", full)
    assert "pmaddwd" in code_of("int8", host_isa("baseline"))


def test_code_for_other_machines():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = Isa("aarch64-unknown-linux-gnu", "neoverse-n1", "", 128)
    assert "fmla" in code_of("bfloat16", target)
    assert "mla" in code_of("uint8 int8", target)


def test_strict_products_of_bfloat16_are_widened(monkeypatch):
    tiny = np.full((2, 2), 2.0**-130).astype(BFLOAT16)
    large = np.full((2, 2), 2.0**100).astype(BFLOAT16)
    monkeypatch.setattr(weft.config, "strict_ieee", True)
    np.testing.assert_array_equal(matmul_arrays(tiny, large), 2.0**-29)


# -- eager


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: "-".join(d.name for d in p))
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_eager_kernels_give_what_numpy_gives(rng, pair, lead):
    a, b = numbers(rng, (*lead, 9, 21), pair[0]), numbers(rng, (*lead, 21, 5), pair[1])
    wide = weft.int32 if pair[0].itemsize == 1 else weft.float32
    got = eager.run(wide_matmul_op, [a, b], {"dtype": wide})
    want = wide_matmul_op.eval(a, b, dtype=wide)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    check(got, a, b)
    if pair[0] == pair[1]:
        got, want = eager.run(matmul_op, [a, b], {}), matmul_op.eval(a, b)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if wide is weft.int32:
            np.testing.assert_array_equal(got, want)
        else:  # sums in another order round to the same number, or to the next one
            ends = [x.astype(np.float64) for x in (got, want)]
            sizes = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
            unit = float(ml_dtypes.finfo(got.dtype).eps)
            assert (np.abs(ends[0] - ends[1]) <= unit * sizes).all()


def test_numpy_is_left_what_has_no_kernel(rng):
    longs = rng.integers(0, 5, (4, 4))
    assert eager.run(matmul_op, [longs, longs], {}) is None


# -- compiled


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "uint8"])
@pytest.mark.parametrize("lead", [(), (3,)])
def test_compiled_products_are_native(rng, dtype, lead):
    x = weft.tensor(rng.integers(0, 9, (*lead, 9, 21))).to(getattr(weft, dtype))
    y = weft.tensor(rng.integers(0, 9, (*lead, 5, 21))).to(getattr(weft, dtype))
    f = weft.compile(lambda x, y: (x @ y.mT) * 2)
    found = []
    for threads in (1, 2, 3):
        weft.set_num_threads(threads)
        found.append(f(x, y).numpy())
    want = ((x @ y.mT) * 2).numpy()  # these sums are exact in every dtype's way
    for got in found:
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    (program,) = f.explain().programs
    assert not program.calls
    assert [p.name for p in program.products] == ["wide_matmul"]


def test_compiled_and_eager_round_once(rng):
    a, b = (weft.tensor(numbers(rng, s, BFLOAT16)) for s in ((8, 700), (700, 6)))
    got = weft.compile(lambda a, b: a @ b)(a, b).numpy()
    wide = matmul_arrays(a.numpy(), b.numpy())
    np.testing.assert_array_equal(got, wide.astype(BFLOAT16))


def test_compiled_gradients_of_bfloat16(rng):
    a, b = (weft.tensor(numbers(rng, s, BFLOAT16)) for s in ((8, 12), (12, 6)))

    def gradients(a, b):
        return weft.func.grad(lambda a, b: (a @ b).float().square().sum(), (0, 1))(a, b)

    for got, want in zip(weft.compile(gradients)(a, b), gradients(a, b), strict=True):
        assert got.dtype is weft.bfloat16
        x, y = got.float().numpy(), want.float().numpy()
        np.testing.assert_allclose(x, y, rtol=2.0**-6, atol=2.0**-4)


# -- out_dtype


def test_products_of_bytes_as_int32(rng):
    for left, right in itertools.product(BYTES, BYTES):
        a, b = numbers(rng, (7, 300), left), numbers(rng, (300, 5), right)
        want = a.astype(np.int64) @ b.astype(np.int64)
        x, y = weft.tensor(a), weft.tensor(b)
        wide = weft.compile(lambda x, y: weft.mm(x, y, out_dtype=weft.int32))
        for got in (weft.mm(x, y, out_dtype=weft.int32), wide(x, y)):
            assert got.dtype is weft.int32
            np.testing.assert_array_equal(got.numpy(), want)
        stack = weft.bmm(x[None], y[None], out_dtype=weft.int32)
        np.testing.assert_array_equal(stack[0].numpy(), want)


def test_gradients_of_a_wide_product(rng):
    a = weft.tensor(numbers(rng, (3, 4), BFLOAT16), requires_grad=True)
    b = weft.tensor(numbers(rng, (4, 2), BFLOAT16), requires_grad=True)
    g = weft.tensor(rng.normal(size=(3, 2)).astype(np.float32))
    out = weft.mm(a, b, out_dtype=weft.float32)
    assert out.dtype is weft.float32
    out.backward(g)
    x, y = (t.detach().float().numpy() for t in (a, b))
    for got, want in ((a.grad, g.numpy() @ y.T), (b.grad, x.T @ g.numpy())):
        assert got.dtype is weft.bfloat16
        np.testing.assert_array_equal(got.numpy(), want.astype(BFLOAT16))


def test_out_dtype_is_checked():
    half, byte = weft.ones(2, 2, dtype=weft.bfloat16), weft.ones(2, 2, dtype=weft.int8)
    assert weft.mm(half, half, out_dtype=weft.bfloat16).dtype is weft.bfloat16
    assert weft.mm(byte, byte, out_dtype=weft.int8).dtype is weft.int8
    with pytest.raises(
        DTypeError, match=r"mm: .*int8 or int32 for operands of int8, got"
    ):
        weft.mm(byte, byte, out_dtype=weft.float32)
    with pytest.raises(
        DTypeError, match=r"mm: expected out_dtype float32 for .*float64"
    ):
        weft.mm(weft.ones(2, 2), weft.ones(2, 2), out_dtype=weft.float64)
    with pytest.raises(DTypeError, match=r"equal dtypes.*got bfloat16 and int8"):
        weft.mm(half, byte, out_dtype=weft.float32)
    with pytest.raises(ShapeError, match=r"bmm: expected equal batch .*\(2, 2, 2\)"):
        weft.bmm(byte[None], byte.expand(2, 2, 2), out_dtype=weft.int32)
    with pytest.raises(ShapeError, match="cannot multiply"):
        weft.mm(byte, weft.ones(3, 2, dtype=weft.int8), out_dtype=weft.int32)
    with pytest.raises(ShapeError, match=r"mm: expected 2-d"):
        weft.mm(byte[0], byte, out_dtype=weft.int32)

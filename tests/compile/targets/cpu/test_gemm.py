"""Generated matrix products against float64, for every target and way of calling."""

import ctypes
import itertools
import mmap
import threading

import llvmlite.binding as llvm
import numpy as np
import pytest
from by_loops import kernels_of

import weft
from weft.compile.emit.isa import Isa, new_module
from weft.compile.targets.cpu.matmul import tiling
from weft.compile.targets.cpu.matmul.arrays import Gemm, compiled, matmul_arrays
from weft.compile.targets.cpu.matmul.generate import emit_gemm, is_few, workspace_bytes
from weft.compile.targets.cpu.matmul.tasks import Split, split
from weft.compile.targets.cpu.object_code import assembly, compile_module, host_isa
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.runtime.cpu import pool

LIMITS = [None, "avx2", "baseline"]
DTYPES = ["float32", "float64"]
# Multiples of nothing, vectors, empty products, one block of k and several, whose
# right operand is in a cache together or not.
SHAPES = [
    (1, 1, 1), (16, 16, 16), (8, 32, 16), (5, 3, 7), (14, 32, 1), (15, 33, 17),
    (0, 4, 3), (4, 0, 3), (4, 5, 0), (1, 40, 0), (40, 1, 0), (29, 65, 300),
    (1, 300, 270), (300, 1, 270), (3, 301, 65), (301, 3, 67), (2, 2, 1000),
    (4, 1, 130), (1, 4, 130), (200, 150, 37), (31, 600, 20), (97, 97, 97),
    (7, 70, 1100), (32, 129, 130), (17, 200, 1400), (9, 300, 600), (34, 250, 70),
]  # fmt: skip


def random_matrix(rng, rows, columns, dtype, layout):
    """A matrix by rows, by columns, or with gaps both ways."""
    if layout == "rows":
        return rng.normal(size=(rows, columns)).astype(dtype)
    if layout == "columns":
        return rng.normal(size=(columns, rows)).astype(dtype).T
    return rng.normal(size=(2 * rows, 3 * columns)).astype(dtype)[::2, ::-3]


def check(got, a, b, before=0.0):
    """Within the error bound of a sum of k products in any order."""
    wide = a.astype(np.float64), b.astype(np.float64)
    want = wide[0] @ wide[1] + before
    unit = np.finfo(got.dtype).eps / 2
    terms = a.shape[-1] + 1
    assert terms * unit < 0.01
    bound = terms * unit / (1 - terms * unit)
    slack = bound * (np.abs(wide[0]) @ np.abs(wide[1]) + np.abs(before))
    rounding = unit * np.abs(want)
    assert (np.abs(got - want) <= slack + rounding).all()


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", ["rows", "columns", "gaps"])
@pytest.mark.parametrize("right", ["rows", "columns", "gaps"])
def test_products_of_all_layouts(rng, limit, dtype, left, right):
    target = host_isa(limit)
    for m, n, k in SHAPES:
        a = random_matrix(rng, m, k, dtype, left)
        b = random_matrix(rng, k, n, dtype, right)
        frame = rng.normal(size=(m + 2, n + 5)).astype(dtype)
        old = frame.copy()
        out = frame[1:-1, 2 : n + 2]
        check(matmul_arrays(a, b, out, isa=target), a, b)
        edge = np.ones(frame.shape, bool)
        edge[1:-1, 2 : n + 2] = False
        np.testing.assert_array_equal(frame[edge], old[edge])
        kept = frame.copy()[1:-1, 2 : n + 2]
        matmul_arrays(a, b, out, accumulate=True, isa=target)
        check(out, a, b, kept.astype(np.float64))


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("left", ["rows", "columns", "gaps"])
@pytest.mark.parametrize("shape", range(1, len(tiling.SHAPES[True])))
def test_register_tiles_compute_the_same_bits(rng, limit, left, shape):
    target = host_isa(limit)
    gemm = compiled("float32", target, shape)
    sizes = [(m, n, k) for m, n, k in SHAPES if m and n and k]
    for m, n, k in [*sizes, (26, 200, 520), (150, 64, 300), (19, 530, 270)]:
        if is_few("float32", target, 0, (m, n, k), (k, 1), (n, 1)):
            continue  # what is few depends on the tile
        a = random_matrix(rng, m, k, "float32", left)
        b = random_matrix(rng, k, n, "float32", "rows")
        got = np.empty((m, n), np.float32)
        cut = split(gemm.tile, m, n, k, threads=2)
        job = gemm.job(a, b, got, cut)
        gemm.run(job.ctypes.data, 0, cut.tasks, 0)
        np.testing.assert_array_equal(got, matmul_arrays(a, b, isa=target))


@pytest.mark.parametrize("sizes", [(1026, 50, 270), (1024, 1030, 1025)])
def test_large_products_are_those_of_other_tiles(rng, sizes):
    m, n, k = sizes
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((m, k), (k, n)))
    product = weft.compile(lambda a, b: a @ b)
    got = product(weft.tensor(a), weft.tensor(b)).numpy()
    np.testing.assert_array_equal(got, matmul_arrays(a, b))


@pytest.mark.parametrize("limit", LIMITS)
def test_products_of_small_integers_are_exact(rng, limit):
    for m, n, k in [*SHAPES, (70, 550, 530), (3, 20, 9000), (9, 1, 5000)]:
        a = rng.integers(-8, 8, (m, k)).astype(np.float32)
        b = rng.integers(-8, 8, (k, n)).astype(np.float32)
        got = matmul_arrays(a, b, isa=host_isa(limit))
        np.testing.assert_array_equal(got, a.astype(np.int64) @ b.astype(np.int64))


def test_error_stays_as_small_as_a_library_keeps_it(rng):
    a = rng.normal(size=(64, 4096)).astype(np.float32)
    b = rng.normal(size=(4096, 64)).astype(np.float32)
    want = a.astype(np.float64) @ b.astype(np.float64)
    ours, numpys = (np.abs(x - want).max() for x in (matmul_arrays(a, b), a @ b))
    assert ours <= 2 * numpys


def test_special_values_stay_where_they_belong():
    a = np.ones((20, 70), np.float32)
    b = np.ones((70, 40), np.float32)
    a[3, 5], b[6, 39] = np.inf, np.nan
    got = matmul_arrays(a, b)
    np.testing.assert_array_equal(got, a @ b)
    assert np.isfinite(got).sum() == 19 * 39


def at_page_end(array):
    """A copy whose last byte is the last before a page that nobody may touch."""
    page = mmap.PAGESIZE
    pages = -(-array.nbytes // page)
    area = mmap.mmap(-1, (pages + 1) * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert libc.mprotect(start + pages * page, page, 0) == 0
    offset = pages * page - array.nbytes
    placed = np.frombuffer(area, array.dtype, array.size, offset).reshape(array.shape)
    placed[...] = array
    return placed


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_beyond_an_array_is_touched(rng, limit, dtype):
    target = host_isa(limit)
    for m, n, k in SHAPES:
        if 0 in (m, n, k):
            continue
        a, b = (rng.normal(size=s).astype(dtype) for s in ((m, k), (k, n)))
        left = [at_page_end(a), at_page_end(np.ascontiguousarray(a.T)).T]
        right = [at_page_end(b), at_page_end(np.ascontiguousarray(b.T)).T]
        for x in left:
            for y in right:
                out = at_page_end(np.zeros((m, n), dtype))
                check(matmul_arrays(x, y, out, isa=target), a, b)


def run_split(gemm, a, b, out, rows, columns):
    batch = out.shape[0] if out.ndim == 3 else 1
    m, n = out.shape[-2:]
    tasks = batch * -(-m // rows) * -(-n // columns)
    return gemm.job(a, b, out, Split(rows, columns, tasks)), tasks


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(
    "shape", [(60, 130, 300), (3, 500, 80), (400, 2, 90), (37, 300, 300)]
)
@pytest.mark.parametrize("left", ["rows", "columns"])
@pytest.mark.parametrize("right", ["rows", "columns"])
def test_results_do_not_depend_on_the_split(rng, limit, shape, left, right):
    m, n, k = shape
    target = host_isa(limit)
    gemm = compiled("float32", target)
    a = random_matrix(rng, m, k, "float32", left)
    b = random_matrix(rng, k, n, "float32", right)
    whole = matmul_arrays(a, b, isa=target)
    for rows, columns in [(1, n), (m, 1), (7, 33), (17, 64), (m, 50)]:
        out = np.full((m, n), np.nan, np.float32)
        job, tasks = run_split(gemm, a, b, out, rows, columns)
        for begin in range(0, tasks, 5):
            gemm.run(job.ctypes.data, begin, min(begin + 5, tasks), 0)
        np.testing.assert_array_equal(out, whole)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("right", ["rows", "columns", "gaps"])
def test_turning_a_product_round_changes_no_bit(rng, limit, right):
    a = random_matrix(rng, 300, 280, "float32", "rows")
    b = random_matrix(rng, 280, 260, "float32", right)
    target = host_isa(limit)
    many = matmul_arrays(a, b, isa=target)
    for m in (130, 64, 46, 32, 16):  # all but one are far fewer than columns
        few = matmul_arrays(a[:m], b, isa=target)
        np.testing.assert_array_equal(few, many[:m])


def test_two_threads_share_a_batch(rng):
    gemm = compiled("float64", host_isa())
    a = rng.normal(size=(3, 90, 70))
    b = rng.normal(size=(3, 70, 200))
    out = np.empty((3, 90, 200))
    cut = split(gemm.tile, 90, 200, 70, batch=3, threads=2)
    job = gemm.job(a, b, out, cut, workers=2)
    middle = cut.tasks // 2
    parts = [(0, middle, 0), (middle, cut.tasks, 1)]
    address = job.ctypes.data
    threads = [threading.Thread(target=gemm.run, args=(address, *p)) for p in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(out, matmul_arrays(a, b))
    check(out, a, b)


def test_the_pool_runs_it(rng):
    threads = min(pool.get_num_threads(), 4)
    a = rng.normal(size=(170, 130)).astype(np.float32)
    b = rng.normal(size=(130, 190)).astype(np.float32)
    out = matmul_arrays(a, b, threads=threads)
    np.testing.assert_array_equal(out, matmul_arrays(a, b))
    check(out, a, b)


def test_splits_cover_every_element():
    tile = compiled("float32", host_isa()).tile
    for m, n, k, batch, threads in [
        (1000, 1000, 1000, 1, 2), (5, 4000, 4000, 1, 16), (4000, 5, 4000, 1, 16),
        (64, 64, 64, 100, 4), (300, 300, 300, 3, 8), (1, 1, 10**7, 1, 4),
    ]:  # fmt: skip
        cut = split(tile, m, n, k, batch=batch, threads=threads)
        blocks = -(-m // cut.rows) * -(-n // cut.columns)
        assert cut.tasks == batch * blocks
        assert blocks == 1 or cut.tasks >= min(threads, 2)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(
    ("m", "n"), [(128, 128), (64, 64), (256, 784), (784, 512), (128, 3072), (3072, 128)]
)
def test_splits_keep_two_threads_equally_busy(limit, m, n):
    tile = compiled("float32", host_isa(limit)).tile
    cut = split(tile, m, n, 512, threads=2)
    ends = [0, 0]
    for left in range(0, n, cut.columns):
        for top in range(0, m, cut.rows):
            area = min(cut.columns, n - left) * min(cut.rows, m - top)
            ends[ends.index(min(ends))] += area
    assert max(ends) <= 1.1 * m * n / 2


def test_few_rows_are_cut_by_columns():
    tile = compiled("float32", host_isa()).tile
    assert split(tile, 128, 3072, 768, threads=2).rows >= 128  # B is packed once
    assert split(tile, 3072, 128, 768, threads=2).columns >= 128
    assert split(tile, 128, 3072, 768, threads=2, whole=True).columns >= 3072


def test_batches_with_repeated_operands(rng):
    a = rng.normal(size=(4, 6, 8)).astype(np.float32)
    b = np.broadcast_to(rng.normal(size=(8, 9)).astype(np.float32), (4, 8, 9))
    check(matmul_arrays(a, b), a, b)
    check(matmul_arrays(a[:0], b[:0]), a[:0], b[:0])


def laid(x, how):
    """A stack of matrices with the same values, laid out in memory in some way."""
    if how == "columns":
        return np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)
    return np.repeat(x, 2, axis=2)[:, :, ::2] if how == "gaps" else x


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("limit", LIMITS)
def test_followers_see_each_finished_part_once(rng, limit, whole):
    gemm = compiled("float32", host_isa(limit))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 4)
    for m, n, k in [s for s in SHAPES if s[0] and s[1]]:
        for left, right in [("rows", "rows"), ("columns", "columns"), ("gaps", "rows")]:
            a = rng.integers(-4, 4, (2, m, k)).astype(np.float32)
            b = rng.integers(-4, 4, (2, k, n)).astype(np.float32)
            out = np.empty((2, m, n), np.float32)
            want, seen = a @ b, np.zeros((2 * m, n), int)

            @kind
            def epilogue(context, top, bottom, first, last):
                assert context == 7
                part = slice(top, bottom), slice(first, last)
                seen[part] += 1  # noqa: B023  it runs in this iteration
                flat = out.reshape(-1, n)  # noqa: B023
                right = want.reshape(-1, n)[part]  # noqa: B023
                np.testing.assert_array_equal(flat[part], right)
                flat[part] = -flat[part]

            columns = n if whole else 40
            cut = Split(20, columns, 2 * -(-m // 20) * -(-n // columns))
            address = ctypes.cast(epilogue, ctypes.c_void_p).value
            x, y = laid(a, left), laid(b, right)
            job = gemm.job(x, y, out, cut, epilogue=(address, 7), whole=whole)
            gemm.run(job.ctypes.data, 0, cut.tasks, 0)
            np.testing.assert_array_equal(out, -want)
            assert (seen == 1).all()


def test_known_values_leave_code_out(rng):
    target = host_isa()
    general = compiled("float32", target)
    known = {"a_col": 1, "b_col": 1, "keep": 0, "m": 64, "n": 48, "k": 80}
    special = Gemm("float32", target, known=known)
    assert len(special.library.code) < 0.7 * len(general.library.code)
    a = rng.normal(size=(64, 80)).astype(np.float32)
    b = rng.normal(size=(80, 48)).astype(np.float32)
    out = np.empty((64, 48), np.float32)
    job = special.job(a, b, out, Split(64, 48, 1))
    special.run(job.ctypes.data, 0, 1, 0)
    np.testing.assert_array_equal(out, matmul_arrays(a, b))


@pytest.mark.parametrize("limit", LIMITS)
def test_code_without_few_rows_gives_the_same_bits(limit, rng):
    target = host_isa(limit)
    general = compiled("float32", target)
    plain = compiled("float32", target, few=False)
    assert len(plain.library.code) < 0.8 * len(general.library.code)
    seen = set()
    for m, n, k in SHAPES:
        for left, right in itertools.product(["rows", "columns"], repeat=2):
            a = random_matrix(rng, m, k, np.float32, left)
            b = random_matrix(rng, k, n, np.float32, right)
            strides = [[s // 4 for s in x.strides] for x in (a, b)]
            few = is_few("float32", target, 0, (m, n, k), *strides)
            seen.add(few)
            if few or not m * n:
                continue
            out = np.empty((m, n), np.float32)
            job = plain.job(a, b, out, Split(m, n, 1))
            plain.run(job.ctypes.data, 0, 1, 0)
            np.testing.assert_array_equal(out, matmul_arrays(a, b, isa=target))
    assert seen == {True, False}


def symbols_of(f, *args):
    """What the products' code of a compiled function is called."""
    executable = kernels_of(weft.graph.capture(f, *args).graph).executor({}).executable
    return {one.of for one in executable.functions if one.kind == "gemm"}


def test_programs_have_code_for_few_rows_where_they_need_it():
    w, one, many = weft.ones(96, 96), weft.ones(1, 96), weft.ones(64, 96)
    assert symbols_of(lambda x: x @ w, many) == {"float32 0 0"}
    assert symbols_of(lambda x: x @ w, one) == {"float32 0 1"}
    both = symbols_of(lambda x, y: (x @ w, y @ w), one, many)
    assert both == {"float32 0 1"}  # and no second library
    wide = weft.ones(192, 768)  # a softmax does not follow it on several threads
    apart = symbols_of(lambda x: (x @ wide.T).softmax(-1), weft.ones(128, 768))
    assert apart == {"float32 0 0"}


def test_vectors_are_as_wide_as_the_target():
    target = host_isa("avx512")
    module = new_module("wide", target)
    emit_gemm(module, "gemm", "float32", target)
    assert "zmm31" in assembly(module, target)


def test_other_machines_code_compiles():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = Isa("aarch64-unknown-linux-gnu", "neoverse-n1", "", 128)
    module = new_module("other", target)
    known = {"a_col": 1, "b_col": 1, "m": 64, "n": 64, "k": 64}
    emit_gemm(module, "gemm", "float64", target, known=known)
    assert "fmla" in assembly(module, target)


def test_the_optimiser_may_run_over_it(rng):
    target = host_isa()
    module = new_module("optimised", target)
    emit_gemm(module, "gemm", "float32", target)
    library = compile_module(module, target, level=3)
    gemm = compiled("float32", target)
    a = rng.normal(size=(37, 300)).astype(np.float32)
    b = rng.normal(size=(300, 50)).astype(np.float32)
    out = np.empty((37, 50), np.float32)
    job = gemm.job(a, b, out, Split(37, 50, 1))
    run = type(gemm.run)(library.address("gemm_tasks"))
    run(job.ctypes.data, 0, 1, 0)
    np.testing.assert_array_equal(out, matmul_arrays(a, b))


def test_wrong_arguments_are_named(rng):
    a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    with pytest.raises(ShapeError, match=r"got \(2, 3\) and \(2, 3\)"):
        matmul_arrays(a, a)
    with pytest.raises(
        ShapeError, match=r"expected out of shape \(2, 4\), got \(4, 2\)"
    ):
        matmul_arrays(a, b, np.ones((4, 2), np.float32))
    with pytest.raises(DTypeError, match="got float32 and float64"):
        matmul_arrays(a, b.astype(np.float64))
    with pytest.raises(
        DTypeError, match=r"int8 or uint8, and one.*got int64 and int64"
    ):
        matmul_arrays(a.astype(np.int64), b.astype(np.int64))
    with pytest.raises(DTypeError, match="out of float32, got float64"):
        matmul_arrays(a, b, np.ones((2, 4)))
    with pytest.raises(ArgumentError, match="contiguous rows of out"):
        matmul_arrays(a, b, np.ones((4, 2), np.float32).T)
    with pytest.raises(ArgumentError, match="overlap"):
        matmul_arrays(np.ones((3, 3), np.float32), b[:, :3], b[:, :3])
    frozen = np.ones((2, 4), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ArgumentError, match="writable"):
        matmul_arrays(a, b, frozen)
    odd = np.ndarray((2, 3), np.float32, np.zeros(30, np.uint8), 0, (6, 2))
    with pytest.raises(ArgumentError, match="whole elements"):
        matmul_arrays(odd, b)
    with pytest.raises(ArgumentError, match="got rows"):
        emit_gemm(None, "gemm", "float32", host_isa(), known={"rows": 3})


def test_workspace_is_what_threads_must_give():
    target = host_isa()
    assert (
        workspace_bytes("float32", target)
        == 4 * compiled("float32", target).tile.workspace
    )

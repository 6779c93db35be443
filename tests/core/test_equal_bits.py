"""An eager operator's bits are a function of its arguments and of settings alone.

They must not depend on what ran before, on the number of threads (Weft's or NumPy's),
on who watches, or on the layout of memory where a kernel runs.
"""

import contextlib
import hashlib
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft import nn
from weft.core import blas, eager_kernels
from weft.core.op import all_ops, find_op

F = nn.functional


@pytest.fixture(scope="module", autouse=True)
def kernels():
    """Kernels for large work, as outside of the tests."""
    before, weft.config.eager_kernels = weft.config.eager_kernels, True
    yield
    weft.config.eager_kernels = before


def digest(*arrays):
    code = hashlib.sha256()
    for array in arrays:
        code.update(np.ascontiguousarray(array).tobytes())
    return code.hexdigest()[:16]


def normal(*shape, seed=0, dtype=np.float32):
    rng = np.random.default_rng([seed, *shape])
    return weft.tensor(rng.normal(size=shape).astype(dtype))


def gradients(fn, *tensors):
    """A result and the gradients of all arguments, with weights that differ."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    out = fn(*leaves)
    (out * normal(*out.shape, seed=9, dtype=leaves[0]._data.dtype)).sum().backward()
    return [out.detach().numpy(), *[t.grad.numpy() for t in leaves]]


# -- programs of real sizes, which fresh processes run, too


def products():
    for m, k, n in [
        (64, 64, 33), (65, 64, 33), (1, 96, 85), (1, 96, 90), (300, 200, 1),
        (128, 28, 512), (257, 129, 65), (2, 700, 700), (1000, 3, 100), (32, 9000, 32),
    ]:  # fmt: skip
        for dtype in (np.float32, np.float64):
            x, w = normal(m, k, dtype=dtype), normal(n, k, seed=1, dtype=dtype)
            yield f"linear {m} {k} {n}", gradients(F.linear, x, w)
            yield f"square {m} {k}", [(x @ x.T).numpy()]
    x, y = normal(6, 70, 40), normal(6, 40, 70)
    yield "bmm", gradients(weft.bmm, x, y)
    yield "einsum", gradients(lambda x, y: weft.einsum("bij,bjk->ki", x, y), x, y)
    half = normal(150, 150).to(weft.float16)
    yield "half", [(half @ half).numpy()]
    z = weft.complex(normal(120, 90), normal(120, 90, seed=1))
    yield "complex", [(z @ z.T).numpy()]


def layers():
    x, w = normal(4, 8, 24, 24), normal(12, 8, 3, 3, seed=1)
    yield "conv", gradients(lambda x, w: F.conv2d(x, w, padding=1), x, w)
    yield "small conv", gradients(F.conv2d, x[:, :2, :12, :12], w[:, :2])
    q, k, v = (normal(2, 4, 70, 32, seed=s) for s in range(3))
    attend = F.scaled_dot_product_attention
    yield "attention", gradients(lambda *a: attend(*a, is_causal=True), q, k, v)
    yield "small attention", gradients(attend, *(a[:, :, :20, :8] for a in (q, k, v)))
    rows = normal(128, 300)
    for name in ("softmax", "log_softmax", "layer_norm"):
        size = (300,) if name == "layer_norm" else -1
        yield name, gradients(lambda x, n=name, s=size: getattr(F, n)(x, s), rows)
    images = normal(8, 6, 30, 30)
    norm = nn.BatchNorm2d(6)
    yield "batch_norm", gradients(lambda x: norm(x), images)
    for name in ("gelu", "silu", "softplus"):
        yield name, gradients(getattr(F, name), rows)


def elements():
    large = normal(400, 700)
    for name in ("exp", "log", "sin", "tanh", "sigmoid", "erf", "lgamma", "expm1"):
        yield name, [getattr(weft, name)(large.abs() + 0.5).numpy()]
    for dim in (0, 1, (0, 1)):
        yield f"sum {dim}", [large.sum(dim).numpy(), large.amax(dim).numpy()]
    yield "cumsum", [large.cumsum(1).numpy()]


def algebra():
    x = normal(90, 90, dtype=np.float64)
    spd = x @ x.T + 90 * weft.eye(90, dtype=weft.float64)
    for name in ("inv", "det", "cholesky", "eigvalsh", "svdvals", "matrix_exp"):
        yield name, [getattr(weft.linalg, name)(spd / 400).numpy()]
    yield "solve", [weft.linalg.solve(spd, x).numpy()]
    yield "qr", [a.numpy() for a in weft.linalg.qr(x)]


def programs():
    """The digest of every program, by name."""
    parts = products, layers, elements, algebra
    return {name: digest(*arrays) for part in parts for name, arrays in part()}


@pytest.fixture(scope="module")
def expected(kernels):
    return programs()


def test_what_ran_before_changes_no_bit(expected):
    for k in range(3):  # much large work, of the same kinds and others
        x = normal(1 << 20, seed=k)
        x.exp().sum(), x.reshape(1024, -1).softmax(1), F.gelu(x), x.reshape(1024, -1).T
        F.softmax(x.reshape(64, 16, -1), 1)
    assert programs() == expected


def test_the_number_of_threads_changes_no_bit(expected):
    before = weft.get_num_threads()
    try:
        for threads in (1, 2, 4):
            weft.set_num_threads(threads)
            assert programs() == expected
    finally:
        weft.set_num_threads(before)


@pytest.mark.parametrize(("threads", "blas_threads"), [(1, 1), (4, 4)])
def test_another_process_gives_the_same_bits(expected, threads, blas_threads):
    code = "import test_equal_bits as t; print(t.programs())"
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=os.path.dirname(__file__),
        env=os.environ | {
            "WEFT_NUM_THREADS": str(threads),
            "OPENBLAS_NUM_THREADS": str(blas_threads),
        },
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert out.stdout.strip() == str(expected)


@pytest.mark.parametrize(
    "watched",
    [
        lambda: weft.core.mode.observe(lambda *given: None),
        weft.autograd.detect_anomaly,
        weft.memory.record,
        weft.testing.count_ops,
    ],
    ids=["observer", "anomaly", "memory", "count"],
)
def test_watching_changes_no_bit(expected, watched):
    with watched():
        assert programs() == expected


# -- every record


def large_ops():
    return [op.name for op in all_ops() if op.bulk is not None and op.samples]


def results(op):
    """The digests of an operator on its samples, in single precision."""
    found = []
    for sample in op.samples(np.random.default_rng(0)):
        args = [
            weft.tensor(a.astype(np.float32) if a.dtype == np.float64 else a)
            if isinstance(a, np.ndarray)
            else a
            for a in sample.args
        ]
        with contextlib.suppress(weft.errors.WeftError):
            out = op(*args, **sample.params)
            outs = out if isinstance(out, tuple) else (out,)
            found.append(digest(*[o.numpy() for o in outs]))
    return found


@pytest.mark.parametrize("name", large_ops())
def test_every_record_gives_the_same_bits_again(name, monkeypatch):
    """Its first call is like the later ones, for any number of threads."""
    op = find_op(name)
    monkeypatch.setattr(op, "bulk", 1)  # small samples count as large work
    first = results(op)
    assert first
    before = weft.get_num_threads()
    try:
        for threads in (1, 3):
            weft.set_num_threads(threads)
            for _ in range(3):
                assert results(op) == first
    finally:
        weft.set_num_threads(before)


# -- layouts


LAYOUTS = {
    "transposed": lambda a: np.ascontiguousarray(a.swapaxes(0, 1)).swapaxes(0, 1),
    "every other": lambda a: np.repeat(a, 2, -1)[..., ::2],
    "part": lambda a: np.pad(a, [(1, 1)] * a.ndim)[(slice(1, -1),) * a.ndim],
}
PLACES = {
    "exp": weft.exp,
    "sigmoid": weft.sigmoid,
    "sum": lambda x: x.sum(1),
    "rows": lambda x: x.sum(0),
    "all": lambda x: x.sum(),
    "softmax": lambda x: x.softmax(1),
    "gelu": F.gelu,
    "cumsum": lambda x: x.cumsum(1),
    "product": lambda x: x @ normal(700, 90),
    "product from the left": lambda x: normal(90, 400) @ x,
    "conv": lambda x: F.conv2d(x.reshape(4, 4, 100, 175), normal(8, 4, 3, 3)),
    "attention": lambda x: F.scaled_dot_product_attention(
        *[x[None, :, :40]] * 3, is_causal=True
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", PLACES)
def test_layouts_change_no_bit_of_large_work(name, layout):
    array = normal(400, 700).numpy()
    other = LAYOUTS[layout](array)
    assert not other.flags.c_contiguous
    fn = PLACES[name]
    assert weft.equal(fn(weft.tensor(array)), fn(weft.Tensor(other)))


FOREIGN = {
    **PLACES,
    "linear": lambda x: F.linear(x, normal(90, 700)),
    "add": lambda x: x + normal(400, 700),
    "pow": lambda x: x.abs() ** normal(400, 700),
    "batched": lambda x: x.reshape(4, 100, 700) @ normal(4, 700, 90),
    "weights' gradient": lambda x: weft.Tensor(
        gradients(lambda w: F.conv2d(x.reshape(4, 4, 100, 175), w), normal(8, 4, 3, 3))
        [1]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_dtypes_from_another_process_change_no_bit(name):
    """Arrays of loader workers have dtypes that are equal, but other objects."""
    array = normal(400, 700).numpy()
    other = array.view(pickle.loads(pickle.dumps(array.dtype)))
    assert other.dtype is not array.dtype
    fn = FOREIGN[name]
    assert weft.equal(fn(weft.Tensor(array)), fn(weft.Tensor(other)))


@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 1, 0), (1, 2, 0)])
def test_elements_keep_the_layout_of_their_arguments(axes):
    x, y = (normal(50, 60, 70, seed=k).permute(*axes) for k in range(2))
    a, b = x.contiguous(), y.contiguous()
    for got, want in (
        (weft.exp(x), weft.exp(a)),
        (x.abs() ** 1.5, a.abs() ** 1.5),
        (weft.atan2(x, y), weft.atan2(a, b)),
    ):
        assert got._data.strides == x._data.strides
        assert weft.equal(got, want)


# -- NumPy's library


def test_products_that_numpy_does_run_on_one_thread():
    """The limits are what OpenBLAS says; it must not share out what is below them."""
    assert blas.MATRIX < 1 << 18
    assert blas.VECTOR < 9216
    with blas.one_thread():
        with blas.one_thread():
            pass
        switch = blas._switch()
        assert switch is None or switch.get() == 1


def test_the_number_of_threads_of_numpys_library_is_put_back():
    switch = blas._switch()
    if switch is None:
        pytest.skip("NumPy uses another library than OpenBLAS")
    before = switch.get()
    with pytest.raises(ZeroDivisionError), blas.one_thread():
        1 / 0
    assert switch.get() == before


def test_products_without_kernels(monkeypatch):
    want = (normal(200, 90) @ normal(90, 100)).numpy()
    monkeypatch.setattr(weft.config, "eager_kernels", False)
    got = (normal(200, 90) @ normal(90, 100)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert eager_kernels.kernels() is not None

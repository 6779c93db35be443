"""Large work in eager mode: kernels give what NumPy gives, or leave it to NumPy."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import weft
from weft import late, nn
from weft.compile import eager
from weft.compile.eager import operator
from weft.config import Config
from weft.core import eager_kernels
from weft.core.op import find_op

F = nn.functional
N = eager_kernels.COSTLY


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(weft.config, "eager_kernels", True)


@pytest.fixture
def used(monkeypatch):
    """The names of operators and compositions that kernels were used for."""
    found = []

    def watched(fn, name_of):
        def call(*args):
            out = fn(*args)
            if out is not None:
                found.append(name_of(args[0]))
            return out

        return call

    monkeypatch.setattr(eager, "run", watched(eager.run, lambda op: op.name))
    monkeypatch.setattr(eager, "fused", watched(eager.fused, lambda name: name))
    return found


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def plainly(fn, *args):
    """What NumPy gives."""
    weft.config.eager_kernels = False
    try:
        return fn(*args)
    finally:
        weft.config.eager_kernels = True


# -- single operators


ROWS = (257, 1031)
ONE = {
    "exp": (weft.exp, np.exp),
    "sigmoid": (weft.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "sqrt": (lambda x: (x * x).sqrt(), np.abs),
    "relu": (F.relu, lambda x: np.maximum(x, 0)),
    "sum": (lambda x: x.sum(1), lambda x: x.sum(1)),
    "amax": (lambda x: x.amax(1, keepdim=True), lambda x: x.max(1, keepdims=True)),
    "amin": (lambda x: x.amin(), lambda x: x.min()),
    "remainder": (lambda x: x % 0.75, lambda x: np.remainder(x, 0.75)),
    "hypot": (lambda x: weft.hypot(x, x), lambda x: np.hypot(x, x)),
    "cumsum": (lambda x: x.cumsum(1), lambda x: x.cumsum(1)),
    "where": (
        lambda x: weft.where(x > 0, x, 0.5),
        lambda x: np.where(x > 0, x, 0.5),
    ),
    "argsort": (lambda x: x.sort(1)[0], lambda x: np.sort(x, 1)),
    "topk_index": (
        lambda x: x.topk(3, 1)[0],
        lambda x: np.sort(x, 1)[:, :-4:-1],
    ),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ONE)
def test_values_are_those_of_numpy(name, dtype, used):
    fn, reference = ONE[name]
    x = normal(*ROWS, dtype=dtype)
    got = fn(weft.tensor(x)).numpy()
    assert name in used
    assert got.dtype == dtype
    want = reference(x.astype(np.float64))
    tight = 1e-6 if dtype is np.float32 else 1e-14
    terms = ROWS[1] if name in ("sum", "cumsum") else 1  # what errors add up over
    np.testing.assert_allclose(got, want, rtol=tight, atol=tight * (50 + terms / 4))


def test_sums_over_every_arrangement_of_axes(used):
    x = normal(7, 12, 9, 250)
    for dim in [(0,), (3,), (1, 2), (0, 3), (1, 3), (0, 1, 2), (2, 3), (0, 1, 2, 3)]:
        for keep in (False, True):
            got = weft.tensor(x).sum(dim, keepdim=keep)
            want = x.astype(np.float64).sum(dim, keepdims=keep)
            assert got.shape == want.shape
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-6, atol=1e-4)
    assert "sum" in used


def test_arithmetic_on_rows_and_numbers(monkeypatch, used):
    for name in ("add", "mul", "sub"):
        monkeypatch.setattr(find_op(name), "bulk", 1 << 10)
    x, row = normal(64, 300), normal(300, seed=1)
    a, b = weft.tensor(x), weft.tensor(row)
    # The public function's own limit is fixed: ask for the kernels directly.
    for name, want in (("add", x + row), ("mul", x * row), ("sub", x - row)):
        got = eager_kernels.run(find_op(name), [a.numpy(), b.numpy()], {})
        np.testing.assert_array_equal(got, want)
        got = eager_kernels.run(find_op(name), [a.numpy(), 2.5], {})
        np.testing.assert_array_equal(got, find_op(name).eval(x, np.float32(2.5)))
    assert used.count("add") == 2


def test_large_sums_in_place_of_numpy(used):
    x = weft.tensor(normal(eager_kernels.CHEAP))
    y = x + x
    assert used == ["add"]
    np.testing.assert_array_equal(y.numpy(), x.numpy() * 2)


def test_uniform_numbers_have_the_same_bits(used):
    draws = []
    for on in (True, False):
        weft.config.eager_kernels = on
        weft.manual_seed(5)
        draws.append([weft.rand(100, 100), weft.rand(3), weft.rand(99, 99)])
    assert used == ["uniform", "uniform"]
    for a, b in zip(*draws, strict=True):
        assert weft.equal(a, b)


def test_looking_up_and_adding_up_rows(used):
    table = weft.tensor(normal(50, 16), requires_grad=True)
    index = weft.tensor(np.random.default_rng(1).integers(0, 50, eager_kernels.SLOW))
    weights = weft.tensor(normal(eager_kernels.SLOW, 16, seed=2))
    (F.embedding(index, table) * weights).sum().backward()
    assert {"take", "add_at"} <= set(used)
    want = np.zeros((50, 16))
    np.add.at(want, index.numpy(), weights.numpy().astype(np.float64))
    np.testing.assert_allclose(table.grad.numpy(), want, rtol=1e-5, atol=1e-4)


def test_pooling_and_resampling(used):
    x = weft.tensor(normal(4, 3, 40, 40))
    for fn in (
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.avg_pool2d(x, 3, 2),
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    ):
        want = plainly(fn, x)
        np.testing.assert_allclose(fn(x).numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
    assert {"max_pool", "resample"} <= set(used)


def test_convolutions_and_their_gradients(used):
    x, w, b = normal(20, 8, 24, 24), normal(6, 8, 3, 3, seed=1), normal(6, seed=2)

    def gradients(dtype):
        ts = [weft.tensor(a.astype(dtype), requires_grad=True) for a in (x, w, b)]
        out = F.conv2d(*ts, stride=2, padding=1)
        (out * out).sum().backward()
        return [out.detach().numpy(), *[t.grad.numpy() for t in ts]]

    want = plainly(gradients, np.float64)
    assert not used
    for got, right in zip(gradients(np.float32), want, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-3)
    assert {"conv_input_grad", "conv_weight_grad"} <= set(used)


def test_infinite_weights_reach_only_their_taps(used):
    x, w = normal(8, 4, 32, 32), normal(4, 4, 3, 3, seed=1)
    w[0, 0, 0, 0] = np.inf

    def gradient():
        t = weft.tensor(x, requires_grad=True)
        out = F.conv2d(t, weft.tensor(w), padding=1)
        weft.where(out.isfinite(), out, 0.0).sum().backward()
        return [out.detach().numpy(), t.grad.numpy()]

    want = plainly(gradient)
    for got, right in zip(gradient(), want, strict=True):
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(right))
    assert {"conv", "conv_input_grad"} <= set(used)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[1:],
        lambda x: x[:1].expand(500, 700),
        lambda x: x[:, :1].expand(500, 700),
        lambda x: x.reshape(7, 100, 500).permute(2, 0, 1),
    ],
)
def test_memory_of_any_layout(view):
    x = view(weft.tensor(normal(500, 700)))
    for fn in (weft.exp, lambda x: x.sum(-1), lambda x: x.softmax(-1), F.gelu):
        want = plainly(fn, x).numpy()
        np.testing.assert_allclose(fn(x).numpy(), want, rtol=2e-6, atol=2e-5)


def test_infinities_and_what_is_no_number():
    x = normal(N)
    x[[3, 70_000]] = np.nan, np.inf
    t = weft.tensor(x)
    assert np.isnan(t.exp().numpy()[3])
    assert t.exp().numpy()[70_000] == np.inf
    assert np.isnan(t.sum().item())
    assert np.isnan(t.amax().item())
    assert weft.tensor(np.where(np.isnan(x), 0, x)).amax().item() == np.inf


@pytest.mark.parametrize("strict", [False, True])
def test_zero_times_infinity(monkeypatch, strict):
    monkeypatch.setattr(weft.config, "strict_ieee", strict)
    g, d = (
        np.zeros(eager_kernels.CHEAP, np.float32),
        np.full(eager_kernels.CHEAP, np.inf, np.float32),
    )
    got = weft.ops.elementwise.absorb(weft.tensor(g), weft.tensor(d)).numpy()
    assert np.isnan(got).all() if strict else (got == 0).all()


def test_an_index_out_of_range_is_the_usual_error():
    index = np.zeros(eager_kernels.SLOW, np.int64)
    index[77] = 50
    with pytest.raises(IndexError, match="50"):
        weft.zeros(50, 4)[weft.tensor(index)]


# -- compositions

COMPOSED = {
    "softmax": (lambda x: x.softmax(-1), [(64, 600)]),
    "softmax over another axis": (lambda x: x.softmax(1), [(8, 30, 160)]),
    "log_softmax": (lambda x: x.log_softmax(-1), [(64, 600)]),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, (600,), w, b),
        [(64, 600), (600,), (600,)],
    ),
    "layer_norm of a square": (lambda x: F.layer_norm(x, (200,)), [(200, 200)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (600,), w), [(64, 600), (600,)]),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        [(8, 5, 30, 30), (5,), (5,)],
    ),
    "gelu": (F.gelu, [(64, 600)]),
    "gelu by tanh": (lambda x: F.gelu(x, "tanh"), [(64, 600)]),
    "silu": (F.silu, [(64, 600)]),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_compositions_and_their_gradients(name, used):
    fn, shapes = COMPOSED[name]

    def gradients(dtype, seed=0):
        ts = [
            weft.tensor(normal(*s, seed=seed + k).astype(dtype), requires_grad=True)
            for k, s in enumerate(shapes)
        ]
        out = fn(*ts)
        (out * weft.tensor(normal(*out.shape, seed=9).astype(dtype))).sum().backward()
        return [out.detach().numpy(), *[t.grad.numpy() for t in ts]]

    want = plainly(gradients, np.float64)
    assert not used
    got = gradients(np.float32)
    assert name.split(" of")[0].split(" over")[0] in used
    for a, right in zip(got, want, strict=True):
        size = np.abs(right).max()
        np.testing.assert_allclose(a, right, rtol=1e-5, atol=3e-6 * size)


def test_second_derivatives_of_compositions():
    x = normal(40, 900)

    def second(dtype):
        t = weft.tensor(x.astype(dtype), requires_grad=True)
        weights = weft.tensor(np.cos(np.arange(900)).astype(dtype))
        (g,) = weft.autograd.grad(
            ((t.softmax(1) * weights).sum(1) ** 2).sum(), t, create_graph=True
        )
        (h,) = weft.autograd.grad((g * g).sum(), t)
        return h.numpy()

    want = plainly(second, np.float64)
    np.testing.assert_allclose(second(np.float32), want, atol=1e-4 * np.abs(want).max())


def test_compositions_first_met_without_gradients(monkeypatch):
    monkeypatch.setattr(operator, "_COMPOSED", {})
    x = weft.tensor(normal(64, 600), requires_grad=True)
    with weft.no_grad():
        assert not F.silu(x).requires_grad
    F.silu(x).sum().backward()
    s = 1 / (1 + np.exp(-x.detach().numpy().astype(np.float64)))
    want = s * (1 + x.detach().numpy() * (1 - s))
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-5, atol=1e-6)


def test_compositions_in_inference_mode(used):
    x = weft.tensor(normal(64, 600), requires_grad=True)
    with weft.inference_mode():
        y = x.softmax(1)
    assert used == ["softmax"]
    assert y.is_inference()


def test_other_sizes_use_the_same_kernels():
    x = weft.tensor(normal(64, 600))
    x.softmax(1)
    weft.tensor(normal(300, 999)).exp()
    made = len(operator._COMPOSED), operator._elementwise_program.cache_info().misses
    for rows, columns in ((70, 700), (100, 4000), (500, 512)):
        a = normal(rows, columns, seed=rows)
        wide = np.exp(a - a.max(1, keepdims=True).astype(np.float64))
        got = weft.tensor(a).softmax(1).numpy()
        np.testing.assert_allclose(got, wide / wide.sum(1, keepdims=True), rtol=1e-5)
        weft.tensor(normal(rows * 9, columns)).exp()
    now = len(operator._COMPOSED), operator._elementwise_program.cache_info().misses
    assert now == made


def test_captures_and_transforms_see_the_operators(used):
    x = weft.tensor(normal(64, 600))
    graph = weft.graph.capture(lambda x: x.softmax(1), x).graph
    assert "exp" in {node.op.name for node in graph}
    weft.func.vmap(lambda row: row.softmax(0))(x)
    _, tangent = weft.func.jvp(lambda x: F.silu(x), (x,), (weft.ones_like(x),))
    assert tangent.shape == x.shape
    assert "softmax" not in used
    assert "silu" not in used


# -- threads


def test_python_threads_at_the_same_time():
    xs = [normal(100, 1400, seed=k) for k in range(4)]
    want = [np.exp(x.astype(np.float64)).sum() for x in xs]
    found = [[] for _ in xs]

    def work(k):
        for _ in range(10):
            y = weft.tensor(xs[k])
            y.softmax(1)
            found[k].append(y.exp().sum().item())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(xs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, sums in enumerate(found):
        assert len(set(sums)) == 1
        np.testing.assert_allclose(sums[0], want[k], rtol=1e-5)


def test_the_number_of_threads_changes_no_bit():
    x = weft.tensor(normal(eager_kernels.COSTLY * 3))
    before = weft.get_num_threads()
    found = []
    for threads in (1, 2, 3):
        weft.set_num_threads(threads)
        rows = x.reshape(384, -1)
        found.append([x.sum(), rows.sum(1), rows.softmax(1), x.exp()])
    weft.set_num_threads(before)
    for other in found[1:]:
        assert all(weft.equal(a, b) for a, b in zip(found[0], other, strict=True))


# -- when kernels are made, and when not


def test_small_scripts_do_not_load_the_compiler():
    code = """
import sys, weft
x = weft.randn(50, 50, requires_grad=True)
(x.softmax(1).exp() @ x).sum().backward()
weft.randn(1 << 12).exp().sum()
model = weft.nn.Sequential(weft.nn.Linear(64, 32), weft.nn.Linear(32, 10))
model(weft.randn(64, 64)).sum().backward()
weft.optim.AdamW(model, lr=1e-3).step()
assert not {"llvmlite", "weft.compile"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_switch(monkeypatch, used):
    monkeypatch.setattr(weft.config, "eager_kernels", False)
    weft.tensor(normal(N)).exp()
    F.gelu(weft.tensor(normal(N)))
    assert not used
    for value, on in (("0", False), ("1", True)):
        monkeypatch.setenv("WEFT_EAGER_KERNELS", value)
        assert Config().eager_kernels is on


def test_without_llvmlite_all_is_numpys(monkeypatch):
    def refuse(name):
        raise ImportError(f"there is no llvmlite for {name}")

    monkeypatch.setattr(eager_kernels, "_kernels", None)
    monkeypatch.setattr(late, "find", refuse)
    x = normal(N)
    for _ in range(2):
        np.testing.assert_array_equal(weft.tensor(x).exp().numpy(), np.exp(x))
    assert not weft.config.eager_kernels


def test_kernels_of_the_users_own_come_first(monkeypatch, used):
    op = find_op("exp")
    monkeypatch.setattr(op, "kernel", lambda x: np.zeros_like(x))
    assert not weft.tensor(normal(N)).exp().numpy().any()
    assert not used

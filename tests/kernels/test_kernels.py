"""``weft.kernel``: values, devices, transforms, changes in place and gradients."""

import math
import pickle

import numpy as np
import pytest
from simulated_gpu import simulated_gpu

import weft
from weft.compile.program.steps import KernelLaunch
from weft.errors import AutogradError, OutOfRangeError
from weft.kernels.tensors import as_tensors

LIMIT = 3


@weft.kernel("x: T[n, m] -> out: T[n, m]")
def softmax(x, out):
    n, m = x.shape
    for i in weft.kernel.grid(n):
        top = -math.inf
        for j in range(m):
            top = max(top, x[i, j])
        total = 0.0
        for j in range(m):
            out[i, j] = math.exp(x[i, j] - top)
            total += out[i, j]
        for j in range(m):
            out[i, j] /= total


@weft.kernel("p: float32[n], m: float32[n], g: float32[n], lr: float32 -> p, m")
def momentum(p, m, g, lr):
    for i in weft.kernel.grid(p.shape[0]):
        m[i] = 0.9 * m[i] + g[i]
        p[i] -= lr * m[i]


@weft.kernel("a: T[n, k], b: T[k, m] -> out: T[n, m]")
def product(a, b, out):
    n, k = a.shape
    m = b.shape[1]
    for i, j in weft.kernel.grid(n, m):
        for c in range(k):
            out[i, j] += a[i, c] * b[c, j]


@weft.kernel("x: float32[n], ids: int64[k] -> out: float32[k], sign: int32[k]")
def picked(x, ids, out, sign):
    for i in weft.kernel.grid(ids.shape[0]):
        value = x[ids[i]]
        if value > 0 and x[ids[i]] < LIMIT:
            out[i] = value
            sign[i] = 1
        elif value < 0:
            out[i] = -value
            sign[i] = -1


@weft.kernel("x: float64[n] -> out: float64[n]")
def running(x, out):
    for _ in weft.kernel.grid(1):
        total = 0.0
        for i in range(x.shape[0]):
            total += x[i]
            out[i] = total


@weft.kernel("x: float32[n], k: int -> out: float32[n, k]")
def powers(x, k, out):
    for i in weft.kernel.grid(x.shape[0]):
        power = x[i]
        for j in range(k):
            out[i, j] = power
            power *= x[i]


@weft.kernel("x: float32[n, m] -> out: float32[n, m]")
def rows_in_place(x, out):
    n, m = x.shape
    for i, j in weft.kernel.grid(n, m):
        left = x[i, j - 1] if j > 0 else 0.0
        right = x[i, j + 1] if j + 1 < m else 0.0
        out[i, j] = (left + x[i, j] + right) / 3


@weft.kernel("x: float32[n, m] -> x")
def halve_rows(x):
    n, m = x.shape
    for i in weft.kernel.grid(n):
        for j in range(1, m, 2):
            x[i, j] = x[i, j - 1] / 2


def picked_reference(x, ids):
    value = x[ids]
    up, down = (value > 0) & (value < LIMIT), value < 0
    return np.where(up | down, abs(value), 0), np.where(up, 1, np.where(down, -1, 0))


def cases(rng):
    """Kernels with arguments, and what NumPy says in float64."""
    x = rng.standard_normal((5, 9)).astype(np.float32)
    e = np.exp(x - x.max(1, keepdims=True).astype(float))
    yield softmax, [x], [e / e.sum(1, keepdims=True)]
    long = rng.standard_normal((3, 700)).astype(np.float32)
    e = np.exp(long - long.max(1, keepdims=True).astype(float))
    yield softmax, [long], [e / e.sum(1, keepdims=True)]
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((4, 6), (6, 3)))
    yield product, [a, b], [a.astype(float) @ b]
    v, ids = 4 * rng.standard_normal(7).astype(np.float32), rng.integers(0, 7, 11)
    yield picked, [v, ids], picked_reference(v.astype(float), ids)
    d = rng.standard_normal(13)
    yield running, [d], [np.cumsum(d)]
    yield powers, [v, 3], [v[:, None].astype(float) ** [1, 2, 3]]
    wide = np.pad(x.astype(float), ((0, 0), (1, 1)))
    mean = (wide[:, :-2] + wide[:, 1:-1] + wide[:, 2:]) / 3
    yield rows_in_place, [x], [mean]


@pytest.fixture(
    scope="module",
    params=["cpu", "simulated", pytest.param("cuda", marks=pytest.mark.cuda)],
)
def device(request):
    if request.param == "cpu":
        yield weft.device("cpu")
        return
    if request.param == "cuda":
        yield weft.device("cuda")
        return
    yield weft.register_device(simulated_gpu())
    weft.unregister_device("gpu:0")


def on(device, args):
    return [weft.tensor(a).to(device) if isinstance(a, np.ndarray) else a for a in args]


def check(found, want):
    found = found if isinstance(found, tuple) else (found,)
    for one, value in zip(found, want, strict=True):
        np.testing.assert_allclose(
            one.detach().cpu().numpy(), value, rtol=2e-5, atol=1e-6
        )


@pytest.mark.parametrize("compiled", [False, True])
def test_values(device, compiled, rng):
    for kernel, args, want in cases(rng):
        run = weft.compile(kernel) if compiled else kernel
        found = run(*on(device, args))
        check(found, want)
        for one in found if isinstance(found, tuple) else (found,):
            assert one.device == device


def test_values_of_the_interpreter(rng):
    for kernel, args, want in cases(rng):
        arrays = [a for a in args if isinstance(a, np.ndarray)]
        params = {"k": args[1]} if kernel is powers else {}
        found = kernel.op.eval(*arrays, **params)
        found = found if isinstance(found, tuple) else (found,)
        check(tuple(map(weft.tensor, found)), want)


def test_there_is_code_for_every_case(rng, monkeypatch):
    for kernel, args, _ in cases(rng):
        monkeypatch.setattr(kernel.op, "eval", None)  # the interpreter
        kernel(*on("cpu", args))
        program = weft.compile(kernel)
        program(*on("cpu", args))
        steps = program.latest.lowered.steps
        assert [type(s) for s in steps] == [KernelLaunch]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_a_named_dtype_is_any_floating_point_dtype(name, rng):
    x = weft.tensor(rng.standard_normal((4, 6))).to(getattr(weft, name))
    found = softmax(x)
    assert found.dtype is x.dtype
    eps = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-14}[name]
    want = x.to(weft.float64).softmax(1)
    np.testing.assert_allclose(found.to(weft.float64), want, atol=2 * eps)


def test_arguments_may_be_views(device, rng):
    x = weft.tensor(rng.standard_normal((9, 5)).astype(np.float32)).to(device)
    check(softmax(x.t()), [x.t().softmax(1).cpu()])
    check(softmax(x[::2, 1:]), [x[::2, 1:].softmax(1).cpu()])
    row = x[:1].expand(4, 5)
    check(
        weft.compile(lambda v: softmax(v.expand(4, 5)))(x[:1]), [row.softmax(1).cpu()]
    )


def test_no_elements(device):
    assert softmax(weft.zeros(0, 3, device=device)).shape == (0, 3)
    assert softmax(weft.zeros(3, 0, device=device)).shape == (3, 0)
    empty = weft.zeros(0, dtype=weft.int64, device=device)
    assert picked(weft.zeros(0, device=device), empty)[0].shape == (0,)


def test_a_program_serves_several_sizes(rng):
    step = weft.compile(softmax, dynamic=True)
    for n, m in ((3, 4), (5, 9), (2, 33)):
        x = weft.tensor(rng.standard_normal((n, m)))
        check(step(x), [x.softmax(1)])


# -- in place


@pytest.mark.parametrize("compiled", [False, True])
def test_changes_in_place(device, compiled, rng):
    p, m, g = (rng.standard_normal(10).astype(np.float32) for _ in range(3))
    new_m = 0.9 * m.astype(float) + g
    tensors = on(device, [p, m, g])
    step = weft.compile(momentum) if compiled else momentum
    found = step(*tensors, 0.5)
    check(tuple(tensors), [p - 0.5 * new_m, new_m, g])
    assert not compiled or len(found) == 2
    if not compiled:
        assert found[0] is tensors[0]
        assert found[1] is tensors[1]
    step(*tensors, 0.25)
    newer = 0.9 * new_m + g
    check(tensors[0], [p - 0.5 * new_m - 0.25 * newer])


def test_rows_changed_in_place(device, rng):
    x = rng.standard_normal((3, 7)).astype(np.float32)
    (t,) = on(device, [x])
    view = t[1]
    halve_rows(t)
    want = x.copy()
    want[:, 1::2] = x[:, :-1:2] / 2
    check(t, [want])
    check(view, [want[1]])


def test_a_view_changes_its_base(rng):
    base = weft.tensor(rng.standard_normal((3, 4)).astype(np.float32))
    before = base.numpy().copy()
    momentum(base[1], weft.zeros(4), weft.ones(4), 1.0)
    np.testing.assert_allclose(base[1], before[1] - 1)
    np.testing.assert_array_equal(base[0], before[0])


def test_a_leaf_is_not_changed_while_it_is_recorded():
    p = weft.zeros(3, requires_grad=True)
    with pytest.raises(AutogradError, match="leaf that requires grad"):
        momentum(p, weft.zeros(3), weft.ones(3), 1.0)
    with weft.no_grad():
        momentum(p, weft.zeros(3), weft.ones(3), 1.0)
    assert p.tolist() == [-1, -1, -1]


def test_memory_that_elements_share_is_refused():
    with pytest.raises(weft.errors.ArgumentError, match="p is changed in place"):
        momentum(weft.zeros(1).expand(3), weft.zeros(3), weft.ones(3), 1.0)


@pytest.mark.parametrize("compiled", [False, True])
def test_an_error_changes_nothing(device, compiled):
    p = weft.ones(3).to(device)
    step = weft.compile(scattered) if compiled else scattered
    step(p, weft.tensor([0, 1, 2]).to(device))
    assert p.tolist() == [1, 2, 3]
    with pytest.raises(IndexError, match="index -1 is out of range for 3 elements"):
        step(p, weft.tensor([0, -1, 2]).to(device))
    assert p.tolist() == [1, 2, 3]
    step(p, weft.tensor([2, 1, 0]).to(device))
    assert p.tolist() == [1, 3, 5]


@weft.kernel("p: float32[n], ids: int64[n] -> p")
def scattered(p, ids):
    counts = p.shape[0]
    for i in weft.kernel.grid(counts):
        here = ids[ids[i]]
        p[i] += here


# -- indices


def test_an_index_out_of_range_says_its_value_and_its_line(device):
    x, ids = weft.zeros(4).to(device), weft.tensor([0, 4]).to(device)
    with pytest.raises(OutOfRangeError, match="index 4 is out of range for 4") as error:
        picked(x, ids)
    assert "test_kernels.py" in str(error.value)
    assert "value = x[ids[i]]" in str(error.value)
    assert picked(x, weft.tensor([0, 3]).to(device))[0].tolist() == [0, 0]


@weft.kernel("x: float32[n], steps: int64[n] -> out: float32[n]")
def divided(x, steps, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = x[7 // steps[i]]


def test_division_by_zero(device):
    x = weft.arange(4.0).to(device)
    found = divided(x, weft.tensor([7, 3, 2, 7]).to(device))
    assert found.tolist() == [1, 2, 3, 1]
    with pytest.raises(ZeroDivisionError):
        divided(x, weft.tensor([7, 0, 2, 7]).to(device))


# -- transforms


@pytest.mark.parametrize("kernel", [softmax, product, rows_in_place])
def test_the_tensor_form_has_the_same_values(kernel, rng):
    for one, args, want in cases(rng):
        if one is kernel:
            check(tuple(as_tensors(kernel, on("cpu", args), {})), want)


def test_derived_gradients(rng):
    x = weft.tensor(rng.standard_normal((3, 4)), requires_grad=True)
    a = weft.tensor(rng.standard_normal((2, 3)), requires_grad=True)
    assert weft.autograd.gradcheck(softmax, (x,), check_forward_ad=True)
    assert weft.autograd.gradgradcheck(softmax, (x,))
    assert weft.autograd.gradcheck(product, (a, x), check_forward_ad=True)


@weft.kernel("x: T[n, m], w: T[m], ids: int64[n] -> out: T[n], top: T[n]")
def mixed(x, w, ids, out, top):
    n, m = x.shape
    for i in weft.kernel.grid(n):
        total = 0.0
        best = -math.inf
        for j in range(m):
            if x[i, j] > 0:
                total += x[i, j] * w[(j + 1) % m]
            best = max(best, x[i, m - 1 - j] * w[ids[i]])
        out[i] = weft.tanh(total) if i % 2 == 0 else total / (1 + i)
        top[i] = best


def test_gradients_through_conditions_and_indices(rng):
    x = weft.tensor(rng.standard_normal((4, 3)), requires_grad=True)
    w = weft.tensor(rng.standard_normal(3), requires_grad=True)
    ids = weft.tensor(rng.integers(0, 3, 4))
    assert weft.autograd.gradcheck(lambda x, w: mixed(x, w, ids), (x, w))


def test_ties_of_extremes_share_their_gradient():
    x = weft.tensor([[1.0, 1.0]], dtype=weft.float64, requires_grad=True)
    mixed(x, weft.ones(2, dtype=weft.float64), weft.tensor([0]))[1].sum().backward()
    assert x.grad.tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_on_devices_and_in_programs(device, compiled, rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)

    def loss(v):
        return (softmax(v) ** 2).sum()

    grad = weft.func.grad(loss)
    grad = weft.compile(grad) if compiled else grad
    want = weft.func.grad(lambda v: (v.softmax(1) ** 2).sum())(weft.tensor(x))
    check(grad(weft.tensor(x).to(device)), [want])


def test_vmap_and_jvp(rng):
    x = weft.tensor(rng.standard_normal((2, 3, 4)))
    check(weft.func.vmap(softmax)(x), [x.softmax(2)])
    _, tangent = weft.func.jvp(softmax, (x[0],), (x[1],))
    want = weft.func.jvp(lambda v: v.softmax(1), (x[0],), (x[1],))[1]
    check(tangent, [want])


@weft.kernel("x: float64[n], keep: float64 -> out: float64[n]")
def decayed(x, keep, out):
    for _ in weft.kernel.grid(1):
        state = 0.0
        for i in range(x.shape[0]):
            state = keep * state + x[i]
            out[i] = state


@weft.kernel("x: float64[n], keep: float64 -> out: float64[n]")
def decayed_too(x, keep, out):
    """The same, with a gradient."""
    for _ in weft.kernel.grid(1):
        state = 0.0
        for i in range(x.shape[0]):
            state = keep * state + x[i]
            out[i] = state


@decayed_too.backward
def _(g, keep, need):
    assert need == (True, False)
    return decayed(g.flip(0), keep).flip(0), None


def test_a_backward_rule(rng):
    x = weft.tensor(rng.standard_normal(5), requires_grad=True)
    y = decayed_too(x, 0.5)
    (found,) = weft.autograd.grad(y, x, weft.ones(5, dtype=weft.float64))
    want = [sum(0.5**k for k in range(5 - i)) for i in range(5)]
    np.testing.assert_allclose(found, want)


def test_backward_rules_are_checked():
    with pytest.raises(weft.errors.ArgumentError, match=r"to take some of .*, got y"):
        decayed.backward(lambda g, y: g)


def test_a_rule_with_too_few_gradients():
    @weft.kernel("x: float32[n], y: float32[n] -> out: float32[n]")
    def both(x, y, out):
        for i in weft.kernel.grid(x.shape[0]):
            out[i] = x[i] + y[i]

    both.backward(lambda g: g)
    x = weft.ones(2, requires_grad=True)
    with pytest.raises(weft.errors.ArgumentError, match="expected 2 gradients"):
        both(x, x).sum().backward()


@weft.kernel("x: float64[n, n] -> out: float64[n]")
def triangle(x, out):
    n = x.shape[0]
    for i in weft.kernel.grid(n):
        for j in range(i + 1):
            out[i] += x[i, j]


@weft.kernel("x: float64[n] -> out: float64[1]")
def last_wins(x, out):
    for i in weft.kernel.grid(1):
        for j in range(x.shape[0]):
            if x[j] > 0:
                out[i] = x[j]


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (decayed, "state is carried from one iteration of a loop to the next"),
        (triangle, "the length of a loop, .* depends on another"),
        (last_wins, "carried from one iteration"),
    ],
)
def test_gradients_that_cannot_be_derived(kernel, why, rng):
    shape = (3, 3) if kernel is triangle else (3,)
    x = weft.tensor(rng.standard_normal(shape), requires_grad=True)
    args = (x, 0.5) if kernel is decayed else (x,)
    with pytest.raises(AutogradError, match=f"{why}.*give one with @{kernel.__name__}"):
        kernel(*args).sum().backward()


def test_triangles(rng):
    x = rng.standard_normal((4, 4))
    check(triangle(weft.tensor(x)), [np.tril(x).sum(1)])


# -- static graphs, saved graphs, redefinition


def test_static_graphs(rng):
    s = weft.static
    x = rng.standard_normal((2, 3)).astype(np.float32)
    with s.Graph().as_default():
        given = s.placeholder(s.float32, [2, 3])
        out = softmax(given * 2.0)
        found = s.Session().run(out, {given: x})
    check(weft.tensor(found), [weft.tensor(2 * x).softmax(1)])


def test_a_graph_names_its_kernels(rng):
    x = weft.tensor(rng.standard_normal((2, 3)))
    graph = weft.graph.capture(softmax, x).graph
    assert softmax.op.name in str(graph)
    assert pickle.loads(pickle.dumps(softmax.op)) is softmax.op


def test_numbers_from_outside_are_those_of_the_definition():
    def scaled(by):
        @weft.kernel("x: float32[n] -> out: float32[n]")
        def kernel(x, out):
            for i in weft.kernel.grid(x.shape[0]):
                out[i] = by * x[i]

        return kernel

    two, three = scaled(2), scaled(3)
    assert two(weft.ones(1)).item() == 2
    assert three(weft.ones(1)).item() == 3
    assert two.op.name != three.op.name


def test_loops_are_shown():
    text = momentum.loops(weft.ones(2), weft.ones(2), weft.ones(2), 0.5)
    assert "m.element = (0.9 * m.element) + g[i_]" in text

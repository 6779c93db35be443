"""What random programs have found, each as short as it became."""

import re

import numpy as np
import pytest
from by_loops import kernels_of

import weft
from weft import dtype as dtypes
from weft import nn
from weft.compile.emit.isa import new_module
from weft.compile.emit.split_module import split
from weft.compile.loop.ir import Buffer, Call, Const, For, Kernel, Load, Store
from weft.compile.loop.ranges import inside
from weft.compile.loop.text import kernel_key
from weft.compile.targets.cpu.kernel import emit_kernel
from weft.compile.targets.cpu.object_code import host_isa
from weft.core.size import Scope, may_be_negative, smaller
from weft.errors import ArgumentError, AutogradError, DTypeError
from weft.graph import capture
from weft.ops.attention import attention_op

F = nn.functional


def same(fn, *args):
    """Eager and compiled results, and arguments afterwards, are equal."""
    others = [a.clone() for a in args]
    want, got = fn(*args), weft.compile(fn)(*others)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
    for a, b in zip(args, others, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-5, atol=1e-6)


def sizes(fn, *shapes, compiles=2, seed=0):
    """Eager and compiled results for arguments of several shapes."""
    compiled = weft.compile(fn)
    for shape in shapes:
        x = weft.randn(shape)
        weft.manual_seed(seed)
        want = fn(x)
        weft.manual_seed(seed)
        np.testing.assert_allclose(
            compiled(x).numpy(), want.numpy(), rtol=1e-5, atol=1e-5
        )
    assert len(compiled.compiles) <= compiles


# -- arguments changed in place


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(1),
        lambda x: x[1:].mul_(2),
        lambda x: x.t().copy_(weft.ones(3)),
        lambda x: x.__setitem__((slice(None), 0), 7.0),
        lambda x: x.__setitem__(x > 0, -1.0),
    ],
)
def test_arguments_change(change):
    def f(x):
        change(x)
        return x.sum()

    same(f, weft.randn(3, 3))
    x, y = weft.ones(3, 3), weft.ones(3, 3)
    captured = capture(f, x)
    f(x), captured(y)
    assert weft.equal(x, y)


def test_what_is_written_into_an_argument_keeps_its_history():
    p = weft.tensor([0.5, -1.0], requires_grad=True)

    @weft.compile
    def f(x):
        x.copy_(p * 2)
        return x.detach() + 1

    x = weft.zeros(2)
    f(x)
    (x * x).sum().backward()
    np.testing.assert_allclose(p.grad.numpy(), 8 * p.detach().numpy())


def test_arguments_with_a_history_are_not_changed():
    w = weft.tensor([0.5, -1.0], requires_grad=True)
    with pytest.raises(AutogradError, match="changed in place"):
        weft.compile(lambda x: x.mul_(3).exp())(w * 2)


def test_arguments_that_share_what_is_changed_are_refused():
    @weft.compile
    def f(x, y):
        x.add_(1)
        return x + y

    x = weft.zeros(3)
    with pytest.raises(ArgumentError, match="shares its memory"):
        f(x, x)
    assert f(x, weft.zeros(3)).tolist() == [1, 1, 1]


def test_programs_that_change_arguments_do_so_when_loaded(tmp_path):
    captured = capture(lambda x: x.add_(1) * 2, weft.zeros(3))
    weft.save(captured, tmp_path / "program.weft")
    x = weft.zeros(3)
    assert weft.load(tmp_path / "program.weft")(x).tolist() == [2, 2, 2]
    assert x.tolist() == [1, 1, 1]


def test_parts_of_open_sizes_change():
    def f(x):
        y = x.clone()
        y[1:] *= 2
        y[:, ::2] = 0.5
        return y

    sizes(f, (4, 3), (5, 3), (9, 3))


def test_parameters_changed_without_gradients_still_have_them():
    def step(p):
        with weft.no_grad():
            p.tanh_()
        loss = (p * p).sum()
        loss.backward()
        return loss

    p, q = (weft.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    step(p)
    weft.compile(lambda: step(q))()
    np.testing.assert_allclose(q.grad.numpy(), p.grad.numpy(), rtol=1e-6)
    np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), rtol=1e-6)


def test_what_a_loop_saw_is_changed_afterwards():
    p, q = (weft.tensor([[1.0], [2.0]], requires_grad=True) for _ in range(2))

    def step(p):
        out = weft.scan(lambda c, x: ((c + x).tanh(), c + x), p[0], p)[1]
        with weft.no_grad():
            p.fill_(2)
        return out.detach() + p.detach()

    want = step(p)
    got = weft.compile(lambda: step(q))()
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    assert weft.equal(p.detach(), q.detach())


def test_flipped_tensors_have_memory_of_their_own():
    x = weft.tensor([1.0, 2.0])
    y = x.flip(0)
    x.zero_()
    assert y.tolist() == [2, 1]


# -- sizes


def test_open_sizes_in_loops_alone():
    sizes(lambda x: weft.zeros_like(x).sum() + 1, (5, 4), (2, 4), (3, 4))


def test_negative_quotients_round_down():
    """The counter of random numbers advances by -(-n // 4)."""

    def f(x):
        weft.rand_like(x)
        return weft.rand_like(x)

    sizes(f, (4, 17), (3, 17), (17, 17), (5, 17))


def test_negative_quotients_prove_nothing():
    n = Scope().symbol("n", 5)
    half = -(-n // 2)
    assert may_be_negative(-n // 2)
    assert not may_be_negative(n // 2)
    assert not half < 1
    sizes(lambda x: x.chunk(2)[-1] * 2, (5,), (6,), (9,), compiles=3)


def test_multiples_of_a_size_are_ordered():
    n = Scope().symbol("n")
    assert smaller(2 * n, 3 * n) is not None
    assert str(smaller(2 * n, 3 * n)) == "2*n"
    assert str(smaller(3 * n, 2 * n)) == "2*n"


def test_dictionaries_do_not_ask_for_sizes():
    """-1 and -2 have the same hash, and so had n - 1 and n - 2."""
    scope = Scope()
    n = scope.symbol("n")
    found = {n - k: k for k in range(4)} | {smaller(n - k, 0): k for k in range(1, 4)}
    assert len(found) == 7
    assert not scope.assumptions
    same(lambda x: weft.cat([x + x] * 3)[1:] * 2, weft.randn(1))


def test_sizes_that_cannot_be_open_are_compiled_one_by_one():
    sizes(lambda x: F.avg_pool1d(x.reshape(1, 1, -1), 2), (5,), (6,), (9,), compiles=3)


def test_windows_and_diagonals_of_open_sizes():
    sizes(lambda x: x.unfold(-1, 2, 2) * 2, (5,), (6,), (9,))
    compiled = weft.compile(lambda x: (x * x).diagonal().sum())
    for n in (2, 3, 5):
        x, y = (weft.ones(n, 3, requires_grad=True) for _ in range(2))
        compiled(x).backward()
        (y * y).diagonal().sum().backward()
        assert weft.equal(x.grad, y.grad)
    assert len(compiled.compiles) == 2


def test_rolling_open_sizes():
    sizes(lambda x: x.roll(2, 0).sin() + 1, (16, 1), (3, 1), (33, 1))


def test_empty_slices_of_open_sizes():
    sizes(lambda x: x[5:2].reshape(-1).sum() + x.sum(), (6, 7), (3, 7), (33, 7))


# -- kernels


def test_all_and_any_of_numbers():
    x = weft.tensor([[1, 0, 2], [3, 0, 0]])
    same(lambda x: x.all(0), x)
    same(lambda x: x.any(1), x)
    same(lambda x: x.double().all(0), x)


def test_single_whole_numbers_in_kernels():
    x, i = weft.randn(4), weft.tensor(-3)
    same(lambda x, i: x * (i % 4), x, i)
    same(lambda x, i: x * i.abs(), x, i)
    same(lambda x, b: x / (b.abs() + 0.5), x, weft.tensor(True))


def test_reshaping_nothing():
    same(lambda x: (x[1:3].reshape(-1) * 2).sum(), weft.randn(1, 2))


def test_results_of_calls_outlive_their_arguments():
    """A call whose kernel gives a view, when memory is used again."""

    def f(x):
        y = x * 2
        d = y.diagonal()
        z = (x * 3).sin() * 5
        return d.sort()[0].sum() + z.sum() + (d * 7).sum()

    same(f, weft.randn(8, 8))


def test_a_call_that_returns_its_argument_is_copied():
    x = weft.randn(4, 4)
    captured = capture(lambda x: (x * 2).sort(0)[0], x)
    native = kernels_of(captured.graph)
    (first,), _ = native.run_named([x.numpy()], {})
    kept = first.copy()
    native.run_named([np.zeros((4, 4), np.float32)], {})
    np.testing.assert_allclose(kept, np.sort(2 * x.numpy(), 0))


def test_single_elements_in_flat_loops():
    """Whether an index is a position is not asked of sizes."""
    same(lambda x: x.min(0)[0].flatten(0).norm(), weft.randn(187, 1))


def test_a_result_in_the_place_of_one_that_took_anothers():
    """y over x, then z in the place of y: x is not where z is."""

    def f(x):
        w = (weft.arange(x.shape[0], dtype=x.dtype) * 0.7).sin()
        total = (x * 2).sum()
        y = (x * w) / ((x + total).abs() + 0.5)
        return weft.autograd.grad((y * w).sum(), [x])[0]

    compiled = weft.compile(f)
    for n in (16, 3, 131):
        x = weft.linspace(-2, 2, n).double().requires_grad_()
        want = f(x).detach().numpy()
        np.testing.assert_allclose(compiled(x).detach().numpy(), want, rtol=1e-12)


def test_what_follows_a_product_apart_from_it():
    """Where the product is a call, or rows are too few for all threads."""
    softmax = lambda a, b: (a @ b).softmax(-1)
    same(softmax, weft.randn(300, 2, 3, 4), weft.randn(300, 2, 4, 5))
    same(softmax, weft.randn(3, 8), weft.randn(8, 5000))
    compiled = weft.compile(softmax)
    for n in (64, 2, 300):
        a, b = weft.randn(n, 2, 3, 4), weft.randn(n, 2, 4, 5)
        want = softmax(a, b).numpy()
        np.testing.assert_allclose(compiled(a, b).numpy(), want, rtol=1e-5)


# -- memory with several histories


def _detached_then_changed(p, q):
    v = p.clone().detach()
    v.add_(q)
    return (v * v * q).sum()


def _changed_under_its_source(p, q):
    c = p * 1
    v = c.detach()
    v.add_(q)
    return (c.exp() * 3).sum() + (v * q).sum()


def _views_of_both(p, q):
    c = p * 2
    w, u = c[1:].detach(), c[:2]
    w[1:].mul_(q[2:])
    return c.sin().sum() + (u * 5).sum() + w.exp().sum()


def _two_detached(p, q):
    c = p * 2
    v, u = c.detach(), c.detach()
    u.mul_(q)
    return (v * c).sum() + (u * 3).sum() + v.sum()


def _detached_twice(p, q):
    c = p * 2
    v = c.detach()
    u = v.detach()
    u[0] = q[0]
    c.mul_(q)
    return (c * v).sum() + (u.exp() * q).sum()


def _changed_without_gradients(p, q):
    c = p * 2
    with weft.no_grad():
        c.tanh_()
    return (c * c * q).sum()


def _made_without_gradients(p, q):
    with weft.no_grad():
        y = p * 3
    y.add_(q)
    return (y * y).sum()


def _copied_without_gradients(p, q):
    b = weft.zeros(3)
    with weft.no_grad():
        b.copy_(p)
    return (b * q * p).sum()


def _parameter_through_data(p, q):
    p.data.mul_(2)
    return (p * p * q).sum()


def _parameter_in_place(p, q):
    with weft.no_grad():
        p.tanh_()
    return (p * p * q).sum()


def _backward_inside(fn, p, q):
    def step():
        loss = fn(p, q)
        loss.backward()
        return loss

    return step


@pytest.mark.parametrize("how", ["captured", "inside", "outside", "arguments"])
@pytest.mark.parametrize(
    "fn",
    [
        _detached_then_changed, _changed_under_its_source, _views_of_both,
        _two_detached, _detached_twice, _changed_without_gradients,
        _made_without_gradients, _copied_without_gradients, _parameter_through_data,
        _parameter_in_place,
    ],
)  # fmt: skip
def test_each_tensor_keeps_its_own_history(fn, how):
    def run(call):
        p = weft.tensor([0.5, -1.0, 2.0], requires_grad=True)
        q = weft.tensor([0.3, 0.7, -0.2], requires_grad=True)
        loss = call(p, q)
        none = weft.zeros(3)
        found = [none if t.grad is None else t.grad for t in (p, q)]
        return np.concatenate([x.detach().numpy().ravel() for x in (loss, p, *found)])

    def outside(loss):
        loss.backward()
        return loss

    ways = {
        "captured": lambda p, q: capture(_backward_inside(fn, p, q))(),
        "inside": lambda p, q: weft.compile(_backward_inside(fn, p, q))(),
        "outside": lambda p, q: outside(weft.compile(lambda: fn(p, q))()),
        "arguments": lambda p, q: outside(weft.compile(fn)(p, q)),
    }
    want = run(lambda p, q: _backward_inside(fn, p, q)())
    np.testing.assert_allclose(run(ways[how]), want, rtol=1e-5)


# -- rounding


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (lambda x: x.sum(), [(1 << 20,)]),
        (lambda x: x.sum(-1), [(3, 100_000)]),
        (lambda x, y: (x * y).sum(), [(280, 127, 5), (5,)]),
        (lambda x, y: F.mse_loss(x, y.permute(2, 0, 1)), [(28, 127, 5), (127, 5, 28)]),
        (lambda x: x.sum((0, 2, 3)), [(64, 3, 32, 32)]),
        (lambda x: x.var(), [(1 << 18,)]),
    ],
)
def test_sums_of_many_numbers_keep_their_digits(fn, shapes):
    rng = np.random.default_rng(0)
    xs = [rng.random(s).astype(np.float32) for s in shapes]
    compiled = weft.compile(fn)
    for _ in range(2):  # the second time with open sizes
        want = fn(*[weft.tensor(x.astype(np.float64)) for x in xs]).numpy()
        got = compiled(*[weft.tensor(x) for x in xs]).numpy()
        np.testing.assert_allclose(got, want, rtol=6e-7)
        xs = [np.concatenate([x, x]) if len(xs) == 1 else x for x in xs]


# -- dtypes


def test_kernels_with_other_constants_have_other_keys():
    def kernel(number):
        x = Buffer("x", (4,), dtypes.int64)
        shifted = Call("cast", (number,), dtypes.int64)
        body = [For("i", 4, [Store(x, (scope.symbol("i"),), shifted)])]
        return Kernel("kernel", (x,), (), (), body, scope)

    scope = Scope()
    numbers = [
        Const(200, dtypes.int64), Const(200, dtypes.uint8), Const(2.0, dtypes.float32),
        Const(0.0, dtypes.float32), Const(-0.0, dtypes.float32),
    ]  # fmt: skip
    keys = [kernel_key(kernel(n)) for n in numbers]
    assert len(set(keys)) == len(keys)
    assert kernel_key(kernel(numbers[0])) == keys[0]


def test_truth_values_are_no_numbers_to_divide_or_shift():
    t, n = weft.tensor([True, False]), weft.tensor([1, 2])
    refused = (
        weft.remainder, weft.fmod, weft.gcd, weft.lcm,
        weft.bitwise_left_shift, weft.bitwise_right_shift,
    )  # fmt: skip
    for fn in refused:
        with pytest.raises(DTypeError, match="bool"):
            fn(t, t)
        assert fn(t, n).dtype is weft.int64
    with pytest.raises(DTypeError, match="relu: expected a real, non-boolean"):
        F.relu(t)
    assert weft.conj(t).dtype is weft.bool


# -- state


@pytest.mark.parametrize(
    "old",
    [
        lambda p: p.clone(),
        lambda p: p.t().clone(),
        lambda p: p[:1].reshape(-1) * 1,
        lambda p: p[:1, :1].amin((0, 1)),
    ],
)
def test_old_state_is_given_back_as_it_was(old):
    p, q = weft.full((2, 2), -1.0), weft.zeros(2, 2)

    @weft.compile
    def f():
        before = old(p)
        q.copy_(p)
        p.zero_()
        return before

    assert (f() == -1).all()
    assert (q == -1).all()
    assert (p == 0).all()


def test_state_changes_places():
    p, q = weft.ones(3), weft.full((3,), 2.0)

    @weft.compile
    def swap():
        before = p.clone()
        p.copy_(q)
        q.copy_(before)

    swap()
    assert p.tolist() == [2, 2, 2]
    assert q.tolist() == [1, 1, 1]


# -- speed


def test_functions_that_branch_are_called_for_vectors_in_each_part_of_a_module():
    module = new_module("two", host_isa())
    for k in range(2):
        n = Scope().symbol("n")
        x, y = Buffer("x", (n,), dtypes.float32), Buffer("y", (n,), dtypes.float32)
        at = (n.scope.symbol("i"),)
        value = Call("sin", (Load(x, at),), dtypes.float32)
        body = [For("i", n, [Store(y, at, value)])]
        emit_kernel(module, Kernel(f"k{k}", (x, y), (), (), body, n.scope), host_isa())
    texts = split(module, worth=1)
    assert len(texts) > 1
    for text in texts:
        for name in re.findall(r"_ZGV_LLVM_[^(]*\(([^)]*)\)", text):
            assert re.search(rf'define [^\n]* @"{re.escape(name)}"', text)


def test_changes_under_a_new_axis_are_differentiated():
    def program(x):
        y = (x.mT @ x).clone()
        y[None, :, 1:3] -= 1
        return (y * 1.5).sum()

    x, z = (weft.ones(3, 1, dtype=weft.float64).requires_grad_() for _ in range(2))
    program(x).backward()
    weft.compile(program)(z).backward()
    np.testing.assert_allclose(z.grad.numpy(), x.grad.numpy())


def test_indices_of_unrolled_iterations_are_their_own():
    """Random numbers come in fours; what is looked up beside them did too."""

    def program(x):
        best = F.max_pool1d(x.reshape(1, 1, -1), 2)
        return weft.fmin(best, weft.randint(0, 4, best.shape))

    x = weft.tensor(np.random.default_rng(0).standard_normal(17).astype(np.float32))
    weft.manual_seed(1)
    want = program(x)
    weft.manual_seed(1)
    np.testing.assert_array_equal(weft.compile(program)(x).numpy(), want.numpy())


def _reshaped(x):
    flat = x.reshape((1, -1))
    x.add_(x)
    return flat


def _turned(x):
    flat = x.T.reshape(-1)
    flat.add_(1)
    return x * 1


def _cloned(x):
    rows = x.clone().T
    rows.reshape(-1).add_(1)
    return rows * 1


@pytest.mark.parametrize("fn", [_reshaped, _turned, _cloned])
def test_a_reshape_is_a_view_where_it_eagerly_is(fn):
    """What does not lie row by row is copied, and no longer changes with it."""
    compiled = weft.compile(fn)
    for turned in (False, True, False):
        made = [weft.arange(6.0) for _ in range(2)]
        x, twin = (m.reshape(3, 2).T if turned else m.reshape(2, 3) for m in made)
        assert compiled(x).tolist() == fn(twin).tolist()
        assert x.tolist() == twin.tolist()
    whys = [c.why for c in compiled.compiles[1:]]
    assert all(w == "other arguments: x lies in memory in another way" for w in whys)


def test_a_copy_that_is_a_view_eagerly_is_refused_when_written():
    def program(x):
        y = x.T + 1
        flat = y.T.reshape(-1)  # a view of y eagerly: y has the layout of x.T
        flat.add_(10)
        return y * 1

    with pytest.raises(weft.graph.CaptureError, match=r"depends on.*add_\(\)"):
        weft.compile(program)(weft.arange(6.0).reshape(2, 3))


def test_a_copy_whose_base_is_gone_may_be_written():
    def program(x):
        flat = (x.T + 1).T.reshape(-1)
        flat.add_(10)
        return flat

    x = weft.arange(6.0).reshape(2, 3)
    assert weft.compile(program)(x).tolist() == program(x).tolist()


def test_layouts_do_not_matter_to_programs_that_change_nothing():
    compiled = weft.compile(lambda x: x.reshape(-1) + 1)
    compiled(weft.ones(2, 3)), compiled(weft.ones(3, 2).T)
    assert len(compiled.compiles) == 1


def test_turned_arguments_of_any_size_lie_the_same_way():
    def program(x):
        x.reshape(-1)
        x[1:] = 1
        return x * 1

    compiled = weft.compile(program)
    for n in (4, 131, 9):
        assert compiled(weft.zeros(33, n).T).sum().item() == (n - 1) * 33
    assert len(compiled.compiles) == 2


def test_loops_are_not_computed_again():
    def program(x):
        y = F.relu(x)
        out = weft.fori_loop(0, 3, lambda i, a: a * 0.5 + i, y)
        loss = out.sum()
        return loss, *weft.autograd.grad(loss, [x])

    x = weft.randn(8, 4096, requires_grad=True)
    for got, want in zip(weft.compile(program)(x), program(x), strict=True):
        np.testing.assert_allclose(got.detach(), want.detach(), rtol=1e-4)


def test_sizes_beyond_the_range_of_small_numbers():
    def program(x):
        return x % x.shape[0]

    small = weft.ones(2, 3, dtype=weft.int8)
    captured = capture(program, small, dynamic={"x": {0: "n"}})
    for n in (2, 131, 17):
        x = weft.ones(n, 3, dtype=weft.int8)
        assert captured(x).tolist() == program(x).tolist()


def test_attention_of_a_single_number():
    def program(x):
        y = F.avg_pool1d(x.reshape(1, 1, -1), 2)
        return F.scaled_dot_product_attention(y, y, y).sum()

    x = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    weft.compile(program)(x).backward()
    got, x.grad = x.grad, None
    program(x).backward()
    np.testing.assert_allclose(got.numpy(), x.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("queries", [1, 40])
def test_attention_of_which_only_the_totals_are_needed(queries):
    def totals(q, k, v):
        return attention_op(q, k, v, causal=False, scale=0.5, zeros=True)[1]

    q, k, v = (weft.randn(1, 2, n, 8) for n in (queries, 9, 9))
    got, want = weft.compile(totals)(q, k, v), totals(q, k, v)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)


def test_a_gradient_of_prod_in_a_branch_with_open_sizes():
    """``max(n - 1, 0) + min(n, 1)`` is known to be ``n``."""

    def f(x):
        return weft.cond(x.sum() > 0, lambda x: x.prod(), lambda x: (x * 2).prod(), x)

    g = weft.compile(weft.func.grad(f), dynamic=True)
    for n in (3, 5, 4):
        x = weft.arange(1, n + 1).float()
        np.testing.assert_allclose(g(x).numpy(), np.prod(x.numpy()) / x.numpy())
    assert len(g.compiles) == 1


def test_a_flat_position_is_below_the_rows_that_it_is_divided_by():
    """Also where these may be none, and where it goes through them in blocks."""
    scope = Scope()
    n, i, block = map(scope.symbol, ("n", "i", "block"))
    width = n - smaller(1, n)
    flat = {"i": width * n}
    blocks = {"block": (n * n + 63) // 64, "i": smaller(n * n - 64 * block, 64)}
    assert inside(i // width, n, flat)
    assert inside(i // width * n + i % width + smaller(1, n), n * n, flat)
    assert not inside(i // width, n - 1, flat)
    assert not inside(i // (n + 1), n, flat)
    assert inside((64 * block + i) // n, n, blocks)
    assert not inside((64 * block + i) // n, n - 1, blocks)


def test_a_gradient_of_a_slice_added_to_in_place_with_open_sizes(monkeypatch):
    monkeypatch.setattr(weft.config, "strict_ieee", True)

    def f(x):
        y = F.normalize(x.triu(1) @ x.triu(1).mT, dim=-1).triu(0).clone()
        y[:, 1:] += y.sum()
        return (y * y).sum()

    g = weft.compile(f, dynamic=True)
    for n in (17, 3, 5, 1):
        x = weft.randn(n, 3, requires_grad=True)
        g(x).backward()
        got, x.grad = x.grad, None
        f(x).backward()
        np.testing.assert_allclose(got.numpy(), x.grad.numpy(), rtol=1e-4, atol=1e-4)
    assert len(g.compiles) == 1


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int8", "int32"])
def test_the_absolute_value_of_a_negative_that_wraps(dtype):
    x = weft.tensor([0, 3, 100], dtype=getattr(weft, dtype))
    f = lambda x: (-x).abs()
    assert weft.equal(weft.compile(f)(x), f(x))


def test_a_buffer_that_another_result_has_taken_takes_over_none():
    def f(x, c):
        empty = x[5:2]
        scaled = empty * c
        wide = empty.expand(2, -1)
        squares = wide * wide
        loss = weft.pad(scaled, (0, 2)).sum().double() + squares.sum()
        loss = loss + squares.expand(-1, -1).sum() + squares.reshape(-1).sum()
        return loss, *weft.autograd.grad(loss, [x, c])

    x = weft.ones(4)[::2].requires_grad_()
    c = weft.tensor(2.0, dtype=weft.float64, requires_grad=True)
    for got, want in zip(weft.compile(f)(x, c), f(x, c), strict=True):
        assert weft.equal(got, want)

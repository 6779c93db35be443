"""The tape: what it records, what it keeps, and what it gives back."""

import gc
import math
import sys
import threading
import tracemalloc
import weakref

import numpy as np
import pytest

import weft
from weft import nn
from weft.autograd import grad, gradcheck, gradgradcheck
from weft.core.tape import Node


def leaf(value, dtype=weft.float64):
    return weft.tensor(value, dtype=dtype, requires_grad=True)


def live_nodes():
    gc.collect()
    return sum(type(o) is Node for o in gc.get_objects())


# -- leaves and their gradients


def test_only_leaves_that_ask_get_a_gradient():
    x, c = leaf([1.0, 2.0]), weft.tensor([3.0, 4.0], dtype=weft.float64)
    y = x * c
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]
    assert y.grad is None
    assert c.grad is None
    assert x.is_leaf
    assert not y.is_leaf


def test_gradients_accumulate_until_cleared():
    x = leaf(3.0)
    for _ in range(2):
        (x * x).backward()
    assert x.grad.item() == 12.0
    x.grad.zero_()
    (x * x).backward()
    assert x.grad.item() == 6.0


def test_leaves_do_not_share_the_memory_of_their_gradients():
    a, b = leaf([1.0, 1.0]), leaf([2.0, 2.0])
    g = weft.ones(2, dtype=weft.float64)
    (a + b).backward(gradient=g)
    a.grad.zero_()
    assert b.grad.tolist() == [1.0, 1.0]
    assert g.tolist() == [1.0, 1.0]


def test_gradient_memory_is_plain_even_for_expanded_cotangents():
    x = leaf(np.ones((3, 4)))
    x.sum().backward()
    x.grad.add_(1)
    assert x.grad.tolist() == [[2.0] * 4] * 3


def test_seed_cotangent():
    x = leaf([1.0, 2.0])
    (x * x).backward(gradient=weft.tensor([10.0, 1.0], dtype=weft.float64))
    assert x.grad.tolist() == [20.0, 4.0]


def test_backward_of_several_tensors_and_inputs():
    x, y = leaf(2.0), leaf(5.0)
    weft.autograd.backward([x * y, x * x], inputs=[x])
    assert x.grad.item() == 9.0
    assert y.grad is None


# -- the documents' traps: skips, diamonds, repeated and unused inputs

EXACT = {
    "skip": (lambda x: x**2 + x.exp().exp(), lambda x: 2 * x + np.exp(x + np.exp(x))),
    "diamond": (lambda x: (x * 2) * (x + 3), lambda x: 4 * x + 6),
    "x - x": (lambda x: x - x, lambda x: 0.0),
    "x / x": (lambda x: x / x, lambda x: 0.0),
    "x * x": (lambda x: x * x, lambda x: 2 * x),
    "x ** x": (lambda x: x**x, lambda x: x**x * (np.log(x) + 1)),
    "x @ x": (
        lambda x: (x.reshape(1, 1) @ x.reshape(1, 1)).sum(), lambda x: 2 * x,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_exact_graph_shapes(name):
    fn, derivative = EXACT[name]
    x = leaf(0.7)
    (g,) = grad(fn(x), x)
    assert g.item() == pytest.approx(derivative(0.7), rel=1e-14, abs=1e-15)


def test_unused_branch_changes_nothing():
    x = leaf(2.0)
    _unused = (x * 100).exp()
    y = x * 3
    y.backward()
    assert x.grad.item() == 3.0


def test_matrix_times_itself():
    x = leaf(np.arange(4.0).reshape(2, 2))
    assert gradcheck(lambda x: x @ x, x)


def test_python_control_flow_decides_the_graph():
    def program(x):
        y = x.exp()
        return y * 2 if y.item() > 1.5 else y - 5

    for value, expected in ((1.0, 2 * np.e), (0.1, np.exp(0.1))):
        x = leaf(value)
        program(x).backward()
        assert x.grad.item() == pytest.approx(expected)


def test_recursion_over_a_tree():
    tree = ((1.0, 2.0), (3.0, (4.0, 5.0)))
    w = leaf(0.5)

    def fold(node):
        if isinstance(node, float):
            return w * node
        return (fold(node[0]) + fold(node[1])).tanh()

    assert gradcheck(lambda v: _fold(tree, v), w)
    fold(tree).backward()
    assert np.isfinite(w.grad.item())


def _fold(node, w):
    if isinstance(node, float):
        return w * node
    return (_fold(node[0], w) + _fold(node[1], w)).tanh()


# -- once, twice, many times


def test_second_backward_names_operator_line_and_remedy():
    x = leaf(2.0)
    y = x * x  # the line that saved
    y.backward()
    with pytest.raises(RuntimeError, match=r"'mul'.*retain_graph=True") as error:
        y.backward()
    assert "y = x * x  # the line that saved" in str(error.value)


def test_retain_graph_doubles():
    x = leaf(2.0)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.item() == 8.0


def falling(n, k):
    """n (n - 1) ... (n - k + 1)."""
    return math.prod(range(n - k + 1, n + 1))


@pytest.mark.parametrize(
    ("fn", "derivatives"),
    [
        (weft.exp, [np.exp] * 5),
        (weft.sin, [lambda x, k=k: np.sin(x + k * np.pi / 2) for k in range(5)]),
        (
            lambda x: x**5,
            [lambda x, k=k: falling(5, k) * x ** (5 - k) for k in range(5)],
        ),
    ],
)
def test_fourth_derivative(fn, derivatives):
    x = leaf(0.6)
    y = fn(x)
    for k, expected in enumerate(derivatives):
        assert y.item() == pytest.approx(expected(0.6), rel=1e-12), k
        (y,) = grad(y, x, create_graph=True)


def test_grad_options():
    x, y = leaf(2.0), leaf(3.0)
    z = x * 2
    assert grad(z, [x, y], allow_unused=True, retain_graph=True)[1] is None
    assert grad(z, [x, y], materialize_grads=True, retain_graph=True)[1].item() == 0.0
    with pytest.raises(RuntimeError, match=r"input 1 of shape.*allow_unused=True"):
        grad(z, [x, y])


def test_grad_by_an_intermediate_tensor():
    x = leaf(2.0)
    y = x * 3
    z = y * y
    assert grad(z, y, retain_graph=True)[0].item() == 12.0
    assert grad(z, [y, x])[1].item() == 36.0
    assert x.grad is None


def test_grad_runs_only_the_rules_it_needs():
    x, w = leaf(np.ones((3, 3))), leaf(np.ones((3, 3)))
    loss = (x @ w).sum()
    seen = []
    with weft.core.mode.observe(lambda op, *rest: seen.append(op.name)):
        grad(loss, x)
    assert seen.count("matmul") == 1


# -- hooks


def test_hooks_see_replace_and_go():
    x = leaf(1.0)
    seen = []
    handle = x.register_hook(lambda g: seen.append(g.item()))
    doubling = x.register_hook(lambda g: g * 2)
    (x * 3).backward()
    assert (seen, x.grad.item()) == ([3.0], 6.0)
    handle.remove()
    doubling.remove()
    x.grad = None
    (x * 3).backward()
    assert (seen, x.grad.item()) == ([3.0], 3.0)


def test_hook_on_an_intermediate_sees_the_whole_cotangent():
    x = leaf(2.0)
    y = x * 1
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    (y * 3 + y * 4).backward()
    assert seen == [7.0]


def test_retain_grad():
    x = leaf(2.0)
    y = x * 3
    y.retain_grad()
    (y * y).backward()
    assert (y.grad.item(), x.grad.item()) == (12.0, 36.0)
    assert y.retains_grad


# -- modes


def test_no_grad_records_nothing_and_keeps_nothing():
    x = leaf(np.ones(4))
    with weft.no_grad():
        hidden = x * 2
        watch = weakref.ref(hidden)
        y = hidden * 3
        del hidden
    assert not y.requires_grad
    assert y.grad_fn is None
    assert watch() is None


@weft.no_grad()
def without(x):
    return x * 2


@weft.no_grad
def without_brackets(x):
    return x * 2


def test_modes_as_decorators_and_nested():
    x = leaf(1.0)
    assert not without(x).requires_grad
    assert not without_brackets(x).requires_grad
    with weft.no_grad():
        with weft.enable_grad():
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    with weft.set_grad_enabled(False):
        assert not weft.is_grad_enabled()
    assert weft.is_grad_enabled()
    weft.set_grad_enabled(False)
    assert not (x * 2).requires_grad
    weft.set_grad_enabled(True)
    assert (x * 2).requires_grad


def test_set_grad_enabled_for_a_function():
    x = weft.ones(2, requires_grad=True)

    @weft.set_grad_enabled(False)
    def twice(x, more=True):
        inner = twice(x, more=False) if more else x
        return inner * 2

    assert (x * 2).requires_grad
    assert not twice(x).requires_grad
    assert (x * 2).requires_grad


def test_a_mode_ends_with_an_exception():
    with pytest.raises(KeyError), weft.no_grad():
        raise KeyError
    assert weft.is_grad_enabled()


def test_modes_belong_to_a_thread():
    found = []

    def worker():
        found.append(weft.is_grad_enabled())

    with weft.no_grad():
        thread = threading.Thread(target=worker)
        thread.start()
        thread.join()
    assert found == [True]


def test_views_in_inference_mode_are_views():
    x = weft.arange(6.0).reshape(2, 3)
    before = x._version
    with weft.inference_mode():
        x.view(-1)[1:3].mul_(10)
        assert x._version > before
        noted = x._version
        x.T.reshape(-1).zero_()  # a copy: x is not changed, nor said to be
        with pytest.raises(weft.errors.ShapeError, match="without copying"):
            x.T.view(-1)
    assert x.tolist() == [[0, 10, 20], [3, 4, 5]]
    assert x._version == noted


def test_inference_mode():
    x = leaf([1.0])
    with weft.inference_mode():
        y = x * 2 + 1
        z = weft.zeros(2).reshape(1, 2)
        assert weft.is_inference_mode_enabled()
    assert y.is_inference()
    assert z.is_inference()
    assert not y.requires_grad
    with pytest.raises(RuntimeError, match="inference_mode"):
        y.requires_grad_()
    with pytest.raises(RuntimeError, match="inference_mode"):
        y.add_(1)
    assert (y * x).requires_grad


# -- in-place changes and saved values


def test_changed_saved_value_names_both_lines():
    x = leaf([1.0, 2.0])
    y = x * 1
    z = y * y  # saved here
    y.add_(5)  # changed here
    with pytest.raises(RuntimeError, match=r"shape \(2,\).*'mul'.*'add_'") as error:
        z.sum().backward()
    text = str(error.value)
    assert "z = y * y  # saved here" in text
    assert "y.add_(5)  # changed here" in text
    assert ".clone()" in text


def test_change_through_a_view_is_caught():
    x = leaf(np.ones((2, 2)))
    y = x * 1
    z = y.exp()
    z.view(4)[0] = 9.0
    with pytest.raises(RuntimeError, match="'exp'"):
        z.sum().backward()


def test_change_of_an_unneeded_value_is_no_error():
    x = leaf([1.0, 2.0])
    y = x * 3
    z = y + 1
    y.mul_(10)
    z.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_in_place_multiplication_by_a_parameter_keeps_the_old_value():
    w, x = leaf([2.0, 3.0]), leaf([5.0, 7.0])
    y = x * 1
    y *= w
    y.sum().backward()
    assert w.grad.tolist() == [5.0, 7.0]
    assert x.grad.tolist() == [2.0, 3.0]


def test_in_place_on_a_view_reaches_the_base():
    w = leaf(np.ones((3, 2)))
    base = w * 2
    other = base[0]
    row = base[1]
    row.mul_(10)
    (base.sum() + other.sum()).backward()
    assert w.grad.tolist() == [[4.0, 4.0], [20.0, 20.0], [2.0, 2.0]]


def test_filling_a_buffer_row_by_row():
    w = leaf([1.0, 2.0, 3.0])
    out = weft.zeros(3, dtype=weft.float64)
    for i in range(3):
        out[i] = w[i] ** 2
    out.sum().backward()
    assert w.grad.tolist() == [2.0, 4.0, 6.0]


def test_parameter_update_under_no_grad():
    w = leaf(3.0)
    (w * w).backward()
    with weft.no_grad():
        w -= 0.5 * w.grad
    assert w.item() == 0.0
    assert w.requires_grad
    assert w.is_leaf
    with pytest.raises(RuntimeError, match=r"leaf.*no_grad"):
        w -= 1.0


# -- what is saved, and when it is let go


def saved_by(out):
    return [v for v in out.grad_fn.saved if v is not None]


def test_only_what_a_rule_needs_is_saved():
    x, c = leaf(np.ones(3)), weft.ones(3, dtype=weft.float64)
    assert saved_by(x + x) == []
    assert saved_by(x - c) == []
    assert saved_by(x.sum()) == [(3,)]
    (only,) = saved_by(x * c)
    assert only is c  # x's gradient needs c alone
    (out,) = saved_by(x.exp())
    assert out._node is None  # the output, off the tape: no cycle
    assert saved_by(x.reshape(3, 1)) == [(3,)]


def test_saved_values_are_freed_as_backward_passes():
    x = leaf(np.ones(3))
    watched, order = [], []
    y = x
    for k in range(5):
        y = y.exp()
        watched.append(weakref.ref(y._data))
        y.register_hook(
            lambda g, k=k: order.append((k, [w() is not None for w in watched]))
        )
    loss = y.sum()
    del y
    loss.backward()
    assert [k for k, _ in order] == [4, 3, 2, 1, 0]
    for k, alive in order:
        assert alive == [True] * (k + 1) + [False] * (4 - k)
    assert not any(w() is not None for w in watched)


def test_a_graph_is_freed_without_the_collector():
    gc.collect()
    gc.disable()
    try:
        x = leaf(np.ones(4))
        y = (x.exp() * x).sum()
        nodes = [weakref.ref(y.grad_fn), weakref.ref(y.grad_fn.parents[0])]
        del y
        assert all(n() is None for n in nodes)
    finally:
        gc.enable()


def test_live_nodes_stay_flat_over_iterations():
    w = leaf(np.ones(4))
    counts = []
    for step in range(1000):
        loss = ((w * 2).exp() + w).sum()
        loss.backward()
        if step % 250 == 0:
            counts.append(live_nodes())
    assert max(counts) - min(counts) == 0


@pytest.mark.parametrize("order", ["before", "after", "rebound"])
def test_a_running_total_of_losses_does_not_grow(order):
    w = leaf(1.0)
    total = weft.zeros((), dtype=weft.float64)
    start = live_nodes()
    for _ in range(10_000):
        loss = w * 2
        if order == "before":
            total += loss
        loss.backward()
        if order == "after":
            total += loss
        if order == "rebound":
            total = total + loss
    assert total.item() == 20_000.0
    assert live_nodes() - start < 10


def test_long_chain_without_recursion():
    x = leaf(1.0)
    y = x
    for _ in range(100_000):
        y = y + 1.0
    y.backward()
    assert x.grad.item() == 1.0
    del y
    y = leaf(1.0)
    for _ in range(100_000):
        y = y * 1.0
    del y  # freeing a long tape must not recurse either


def test_jvp_memory_does_not_grow_with_the_program():
    x = weft.ones(10_000, dtype=weft.float64)

    def peak(length):
        def chain(v):
            for _ in range(length):
                v = v.sin() * 1.01
            return v

        tracemalloc.start()
        weft.func.jvp(chain, (x,), (x,))
        _, top = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return top

    peak(2)
    assert peak(1000) < 1.5 * peak(10)


# -- custom functions


class Cube(weft.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        Cube.calls += 1
        (x,) = ctx.saved_tensors
        return 3 * g * x * x


def test_function_is_used_instead_of_the_derived_rule():
    Cube.calls = 0
    x = leaf([1.0, 2.0])
    y = Cube.apply(x)
    assert y.grad_fn.name == "Cube"
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 12.0]
    assert Cube.calls == 1


def test_function_in_every_transform():
    x = leaf([1.0, 2.0])
    assert gradcheck(Cube.apply, x)  # forward mode is derived from backward
    assert gradgradcheck(Cube.apply, x)
    f = lambda v: Cube.apply(v).sum()
    h = weft.func.hessian(f)(x.detach())
    np.testing.assert_allclose(h.numpy(), np.diag([6.0, 12.0]))
    rows = weft.func.vmap(weft.func.grad(f))(weft.stack([x.detach(), 2 * x.detach()]))
    assert rows.tolist() == [[3.0, 12.0], [12.0, 48.0]]


class ScaledPair(weft.autograd.Function):
    """Two outputs, a non-tensor argument, and a jvp of its own."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        y = x.exp()
        ctx.save_for_backward(y)
        return y, x * factor

    @staticmethod
    def backward(ctx, g, h):
        (y,) = ctx.saved_tensors
        return g * y + h * ctx.factor, None

    @staticmethod
    def jvp(ctx, t, _):
        (y,) = ctx.saved_tensors
        return t * y, t * ctx.factor


def test_function_with_several_outputs():
    x = leaf([0.3, 0.4])
    assert gradcheck(lambda v: ScaledPair.apply(v, 4.0), x)
    assert gradgradcheck(lambda v: ScaledPair.apply(v, 4.0), x)
    a, _b = ScaledPair.apply(x, 4.0)
    a.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([0.3, 0.4]))


class StraightThrough(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


def test_straight_through_estimator_in_both_modes():
    x = weft.tensor([0.2, 0.7], dtype=weft.float64)
    assert weft.func.grad(lambda v: StraightThrough.apply(v).sum())(x).tolist() == [
        1,
        1,
    ]
    _, t = weft.func.jvp(StraightThrough.apply, (x,), (weft.ones_like(x) * 5,))
    assert t.tolist() == [5.0, 5.0]


def test_function_that_returns_its_input():
    class Same(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 7

    x = leaf(1.0)
    y = Same.apply(x)
    assert y is not x
    y.backward()
    assert x.grad.item() == 7.0
    assert x.is_leaf


def test_wrong_number_of_gradients():
    class Wrong(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(
        RuntimeError, match=r"Wrong.backward: expected 2 gradients.*got 1"
    ):
        Wrong.apply(leaf(1.0), leaf(2.0)).backward()


# -- checking gradients


def test_gradcheck_catches_a_planted_error():
    class Planted(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.cos() * 1.001

    x = leaf([0.3, 0.4])
    with pytest.raises(RuntimeError, match="reverse-mode derivative of output 0"):
        gradcheck(Planted.apply, x)
    assert not gradcheck(Planted.apply, x, raise_exception=False)


def test_gradgradcheck_catches_a_planted_error():
    class Planted(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.cos().detach()

    x = leaf([0.3, 0.4])
    assert gradcheck(Planted.apply, x)
    assert not gradgradcheck(Planted.apply, x, raise_exception=False)


def test_gradcheck_of_complex_functions():
    z = weft.tensor([1 + 2j, 0.5 - 1j], dtype=weft.complex128, requires_grad=True)
    assert gradcheck(lambda z: z * z.conj() + z.exp() / (z + 3), z)
    assert gradcheck(lambda z: z.abs() * z.real + z.imag, z)
    assert gradgradcheck(lambda z: z * z * z.conj(), z)


# -- the cost of a backward


def test_backward_work_does_not_depend_on_the_number_of_parameters():
    def rules(n):
        ws = [leaf(1.0) for _ in range(n)]
        loss = sum((w * w for w in ws), weft.zeros((), dtype=weft.float64))
        seen = []
        with weft.core.mode.observe(lambda op, *rest: seen.append(op.name)):
            loss.backward()
        return len(seen) / n

    assert rules(50) == pytest.approx(rules(10), rel=0.2)


def test_thousand_parameters_in_one_call():
    tree = {f"w{k}": leaf(float(k)).detach() for k in range(1000)}
    loss = lambda t: sum((v * v for v in t.values()), leaf(0.0).detach())
    value, grads = weft.func.value_and_grad(loss)(tree)
    assert value.item() == pytest.approx(sum(k * k for k in range(1000)))
    assert all(grads[f"w{k}"].item() == 2.0 * k for k in range(1000))


def test_recursion_limit_is_not_touched():
    assert sys.getrecursionlimit() <= 10_000


def test_gradients_are_added_before_all_of_them_are_there():
    model = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(8)])
    x = weft.randn(2, 256)

    def backward():
        with weft.memory.record() as seen:
            model(x).square().sum().backward()
        return seen.peak

    first, second = backward(), backward()
    one = 256 * 256 * 4
    assert second < first + 2 * one  # all of them would be eight


def test_gradients_that_are_added_early_have_the_same_bits():
    def run(start):
        weft.manual_seed(0)
        a, b, c = (weft.randn(200, 200, requires_grad=True) for _ in range(3))
        seen = []
        b.register_hook(lambda g: seen.append(g.clone()) or g * 2)
        for leaf in (a, b):
            leaf.grad = None if start is None else weft.full_like(leaf, start).detach()
        y = (a @ b).tanh() @ a + b * a[:1] + weft.stack([a, c])[0]
        (y.sum() + (y * y).sum()).backward()
        assert len(seen) == 1  # a hook sees the whole gradient, once
        return [leaf.grad.numpy() for leaf in (a, b, c)]

    alone, added = run(None), run(0.5)
    for mine, other, start in zip(added, alone, (0.5, 0.5, 0), strict=True):
        np.testing.assert_array_equal(mine, np.float32(start) + other)


def test_grad_takes_any_iterable_of_inputs():
    net = weft.nn.Linear(3, 1)
    ones = weft.ones(2, 3)
    by_iterator = weft.autograd.grad(net(ones).sum(), net.parameters())
    by_list = weft.autograd.grad(net(ones).sum(), [net.weight, net.bias])
    for a, b in zip(by_iterator, by_list, strict=True):
        assert a.tolist() == b.tolist()


DRAWN = {
    "normal": lambda p: weft.normal(p, p),
    "bernoulli": weft.bernoulli,
    "poisson": weft.poisson,
    "binomial": lambda p: weft.binomial(p * 0 + 4, p),
}


@pytest.mark.parametrize("how", DRAWN)
def test_random_numbers_have_a_gradient_of_zero_for_their_parameters(how):
    p = weft.full((3,), 0.5, requires_grad=True)
    drawn = DRAWN[how](p)
    assert drawn.requires_grad
    drawn.sum().backward()
    assert p.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("values", "shares"),
    [
        ([1.0, 1.0, 1.0], [1 / 3, 1 / 3, 1 / 3]),
        ([-2.0, 5.0, -2.0], [0.5, 0, 0.5]),
        ([-np.inf, -np.inf, 1.0], [0.5, 0.5, 0]),
        ([np.inf, -np.inf, np.inf], [0.5, 0, 0.5]),
    ],
)
def test_equal_elements_share_the_gradient_of_a_median(values, shares):
    x = weft.tensor(values, requires_grad=True)
    middle = x.median()
    np.testing.assert_equal(middle.item(), x.detach().median().item())
    middle.backward()
    np.testing.assert_allclose(x.grad.numpy(), shares)


def test_the_gradient_of_an_angle_is_zero_at_the_origin():
    x = weft.zeros(1, requires_grad=True)
    weft.atan2(x, x * 1).backward()
    assert x.grad.tolist() == [0]

"""Custom functions, hooks on the tape and derivatives under PyTorch's names."""

import numpy as np
import pytest

import weft
from weft import autograd
from weft.autograd import forward_ad, functional, graph
from weft.autograd.function import FunctionCtx, once_differentiable


def leaf(*values):
    return weft.tensor(values, dtype=weft.float64, requires_grad=True)


class Cube(autograd.Function):
    """With forward and context apart."""

    @staticmethod
    def forward(x):
        return x**3, x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, g, unused):
        (x,) = ctx.saved_tensors
        assert ctx.needs_input_grad == (True,)
        total = 0
        if g is not None:
            total = total + g * 3 * x**2
        if unused is not None:
            total = total + unused * 2
        ctx.seen = unused
        return total

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t * 3 * x**2, t * 2


def test_context_after_forward():
    x = leaf(2.0, 3.0)
    Cube.apply(x)[0].sum().backward()
    assert x.grad.tolist() == [12, 27]
    assert autograd.gradcheck(lambda x: Cube.apply(x), leaf(1.0, 2.0))
    assert issubclass(autograd.Function, FunctionCtx)


def test_outputs_without_a_gradient():
    class Sorted(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            values, order = x.sort()
            places = order.to(x.dtype)
            ctx.mark_non_differentiable(places)
            ctx.save_for_backward(order)
            return values, places

        @staticmethod
        def backward(ctx, g, zeros):
            assert (zeros == 0).all().item()
            (order,) = ctx.saved_variables
            return weft.zeros_like(g).scatter(0, order, g)

    x = leaf(3.0, 1.0, 2.0)
    values, places = Sorted.apply(x)
    assert values.requires_grad
    assert not places.requires_grad
    (values * weft.tensor([1.0, 2.0, 3.0], dtype=weft.float64)).sum().backward()
    assert x.grad.tolist() == [3, 1, 2]


class Doubled(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_arguments_that_are_changed():
    x = leaf(1.0, 2.0)
    y = x * 1
    assert Doubled.apply(y) is y
    assert y.tolist() == [2, 4]
    (y * y).sum().backward()
    assert x.grad.tolist() == [8, 16]
    with pytest.raises(RuntimeError, match="leaf Variable"):
        Doubled.apply(leaf(1.0))

    class Other(Doubled):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(weft.ones(1))
            return x * 2

    with pytest.raises(RuntimeError, match="expects arguments"):
        Other.apply(leaf(1.0))


def test_changed_arguments_are_refused_in_programs():
    @weft.compile
    def step(x):
        y = x * 1
        return Doubled.apply(y).sum()

    with pytest.raises(RuntimeError, match="mark_dirty"):
        step(leaf(1.0))


def test_a_rule_for_batches():
    class Outer(autograd.Function):
        @staticmethod
        def forward(x, y):
            return weft.tensor(x.numpy() * y.numpy())

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x, y):
            assert info.batch_size == 3
            assert in_dims == (0, None)
            return weft.tensor(x.numpy() * y.numpy()), 0

    x, y = weft.rand(3, 2), weft.rand(2)
    out = weft.func.vmap(Outer.apply, (0, None))(x, y)
    assert np.allclose(out, x.numpy() * y.numpy())


def test_a_backward_that_is_used_once():
    class Square(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    x = leaf(3.0)
    (g,) = autograd.grad(Square.apply(x), x, create_graph=True)
    assert g.item() == 6
    with pytest.raises(RuntimeError, match="once_differentiable"):
        autograd.grad(Square.apply(x) * x, x, create_graph=True)[0].backward()


def test_surplus_gradients_that_are_none():
    class Plain(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g, None, None

    x = leaf(1.0)
    Plain.apply(x).backward()
    assert x.grad.item() == 1


# -- the tape


def test_nodes_have_pytorch_names():
    x = leaf(2.0)
    y = (x * 3).exp()
    node = y.grad_fn
    assert isinstance(node, graph.Node)
    assert node.name() == "ExpBackward0"
    (mul, place), *_ = node.next_functions
    assert mul.name() == "MulBackward0"
    assert place == 0
    ends = [n for n, _ in mul.next_functions if n is not None]
    assert ends[0].name() == "torch::autograd::AccumulateGrad"
    assert ends[0].variable is x
    node.metadata["note"] = 1
    assert node.metadata == {"note": 1}


def test_hooks_of_nodes():
    x = leaf(2.0)
    y = x * 3
    seen = []
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 10,))
    handle = y.grad_fn.register_hook(lambda ins, outs: seen.append((ins, outs)))
    y.grad_fn.register_hook(lambda ins, outs: tuple(
        None if g is None else g + 1 for g in ins))  # fmt: skip
    y.backward()
    assert x.grad.item() == 31
    ins, outs = seen[0]
    assert ins[0].item() == 30
    assert outs[0].item() == 10
    handle.remove()
    with pytest.raises(RuntimeError, match="leaf"):
        x._node.register_hook(print)


def test_hooks_after_accumulation():
    x = leaf(1.0)
    seen = []
    handle = x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.item()))
    (x * 2).backward()
    (x * 3).backward()
    assert seen == [2, 5]
    handle.remove()
    (x * 3).backward()
    assert len(seen) == 2
    with pytest.raises(RuntimeError, match="leaf"):
        (x * 1).register_post_accumulate_grad_hook(print)


def test_an_optimizer_in_hooks():
    x = leaf(1.0, 2.0)
    sgd = weft.optim.SGD([x], lr=0.5)

    def step(p):
        sgd.step()
        p.grad = None

    x.register_post_accumulate_grad_hook(step)
    (x * x).sum().backward()
    assert x.tolist() == [0, 0]
    assert x.grad is None


def test_saved_tensors_go_through_hooks():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)

    def loss():
        return ((x * w).exp() + weft.softmax(x, 0).log()).sum()

    loss().backward()
    expected = x.grad.numpy().copy()
    x.grad = None
    packed, unpacked = [], []

    def pack(t):
        assert not t.requires_grad
        packed.append(t.shape)
        return t.numpy().copy()

    def unpack(a):
        unpacked.append(a.shape)
        return weft.tensor(a)

    with graph.saved_tensors_hooks(pack, unpack):
        out = loss()
    assert packed
    assert not unpacked
    out.backward()
    assert unpacked
    assert np.allclose(x.grad, expected)
    x.grad = None
    with graph.save_on_cpu():
        out = loss()
    out.backward()
    assert np.allclose(x.grad, expected)


def test_saved_hooks_keep_second_derivatives():
    x = leaf(1.0, 2.0)
    with graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = (x**3).sum()
        (g,) = autograd.grad(y, x, create_graph=True)
        (g2,) = autograd.grad(g.sum(), x)
    assert np.allclose(g2, 6 * x.detach())


def test_saved_hooks_are_refused():
    hooks = graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    with (
        graph.disable_saved_tensors_hooks("not here"),
        pytest.raises(RuntimeError, match="not here"),
    ):
        hooks.__enter__()
    with pytest.raises(ValueError, match="pin_memory"):
        graph.save_on_cpu(pin_memory=True)

    @weft.compile
    def inside(x):
        with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            return x.exp()

    with pytest.raises(RuntimeError, match="captured function"):
        inside(weft.ones(1))


def test_saved_tensors_may_change():
    x = leaf(1.0, 2.0)
    with graph.allow_mutation_on_saved_tensors():
        a = x * 2
        b = (a * a).sum()
        with weft.no_grad():
            a.zero_()
        b.backward()
    assert x.grad.tolist() == [8, 16]


def test_edges_and_versions():
    x = leaf(2.0)
    y = x * x
    edge = graph.get_gradient_edge(y)
    assert autograd.grad(y * 3, edge)[0].item() == 3
    with pytest.raises(RuntimeError, match="does not require grad"):
        graph.get_gradient_edge(weft.ones(1))
    a = x * 1
    b = a.exp()
    graph.increment_version(b)
    with pytest.raises(RuntimeError):
        b.backward()


def test_hooks_of_several_gradients():
    a, b, c = leaf(1.0), leaf(1.0), leaf(1.0)
    seen = []
    handle = graph.register_multi_grad_hook([a, b, c], seen.append)
    (a * 2 + b * 3).backward()
    assert [g if g is None else g.item() for g in seen[0]] == [2, 3, None]
    (a * b * c).backward()
    assert len(seen) == 2
    assert all(g is not None for g in seen[1])
    handle.remove()
    firsts = []
    with graph.register_multi_grad_hook([a, b], firsts.append, mode="any"):
        (a * b).backward()
    (a * b).backward()
    assert len(firsts) == 1
    with pytest.raises(ValueError, match="'all' or 'any'"):
        graph.register_multi_grad_hook([a], print, mode="some")


# -- derivatives


def f(x, y):
    return (x**2 * y).sum() + x.prod()


def test_products_with_jacobians_and_hessians():
    x, y = weft.rand(3).double(), weft.rand(3).double()
    u, v = weft.rand(3).double(), weft.rand(3).double()
    jac = functional.jacobian(f, (x, y))
    assert np.allclose(jac[0], 2 * x * y + x.prod() / x)
    assert np.allclose(jac[1], x * x)
    hes = functional.hessian(f, (x, y))
    assert np.allclose(hes[0][1], weft.diag(2 * x))
    out, pushed = functional.jvp(f, (x, y), (u, v))
    assert np.allclose(pushed, (jac[0] * u).sum() + (jac[1] * v).sum())
    assert np.allclose(out, f(x, y))
    assert not out.requires_grad
    _, pulled = functional.vjp(f, (x, y))
    assert np.allclose(pulled[1], jac[1])
    for product in (functional.hvp, functional.vhp):
        _, found = product(f, (x, y), (u, v))
        assert np.allclose(found[0], hes[0][0] @ u + hes[0][1] @ v)
    whole = functional.jacobian(lambda x: (x * 2, x.sum()), x, create_graph=True)
    assert np.allclose(whole[0].detach(), 2 * np.eye(3))
    assert whole[1].shape == (3,)


def test_derivatives_say_what_is_wrong():
    x = weft.ones(2)
    with pytest.raises(RuntimeError, match="strict"):
        functional.jacobian(lambda x: weft.ones(2), x, strict=True)
    with pytest.raises(RuntimeError, match="single element"):
        functional.vjp(lambda x: x * 2, x)
    with pytest.raises(RuntimeError, match="of shapes"):
        functional.jvp(lambda x: x * 2, x, weft.ones(3))
    with pytest.raises(RuntimeError, match="one element"):
        functional.hessian(lambda x: x * 2, x)
    with pytest.raises(TypeError, match="inputs"):
        functional.vjp(lambda x: x, 3)


def test_forward_mode_by_hand():
    x, t = weft.tensor(2.0), weft.tensor(3.0)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        value, tangent = forward_ad.unpack_dual(dual**2)
        assert value.item() == 4
        assert tangent.item() == 12
        assert forward_ad.unpack_dual(x).tangent is None
        with pytest.raises(RuntimeError, match="Nested"):
            forward_ad.enter_dual_level()
    with pytest.raises(RuntimeError, match="dual_level"):
        forward_ad.make_dual(x, t)
    with pytest.raises(RuntimeError, match="entered last"):
        forward_ad.exit_dual_level()


def test_old_names():
    x = autograd.Variable(weft.ones(1), requires_grad=True)
    assert x.requires_grad
    assert isinstance(x, autograd.Variable)
    assert autograd.variable.Variable is autograd.Variable
    assert autograd.grad_mode.no_grad is weft.no_grad
    with autograd.set_multithreading_enabled(False):
        (x * 2).backward()


def test_options_of_gradcheck():
    x = leaf(1.0, 2.0)
    assert autograd.gradcheck(weft.sin, x, check_batched_grad=True, fast_mode=True)
    assert autograd.gradgradcheck(weft.sin, x, nondet_tol=0.0)
    with pytest.raises(ValueError, match="check_backward_ad"):
        autograd.gradcheck(weft.sin, x, check_backward_ad=False)
    with pytest.raises(ValueError, match="masked"):
        autograd.gradcheck(weft.sin, x, masked=True)

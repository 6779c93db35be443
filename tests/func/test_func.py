"""Function transforms, alone and nested in every order."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.func import (
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linearize,
    value_and_grad,
    vjp,
    vmap,
)


def f64(value):
    return weft.tensor(value, dtype=weft.float64)


def close(a, b, rtol=1e-10):
    np.testing.assert_allclose(
        a.numpy() if isinstance(a, weft.Tensor) else a,
        b.numpy() if isinstance(b, weft.Tensor) else b,
        rtol=rtol,
        atol=1e-12,
    )


X = f64([0.3, -0.7, 1.1])


def f(x):
    """A function with products, reuse, indexing and reductions."""
    y = (x * x.roll(1)).sin() + x.exp()
    return (y[0] * y + y.cumsum(0)).sum()


def numeric_gradient(fn, x, eps=1e-6):
    out = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        e = np.zeros(x.shape)
        e[i] = eps
        out[i] = (fn(f64(x.numpy() + e)).item() - fn(f64(x.numpy() - e)).item()) / (
            2 * eps
        )
    return out


# -- each transform alone


def test_grad_against_differences():
    close(grad(f)(X), numeric_gradient(f, X), rtol=1e-6)


def test_results_carry_no_tape():
    value, g = value_and_grad(f)(X)
    assert not value.requires_grad
    assert not g.requires_grad
    for transform in (jacrev, jacfwd, hessian):
        assert not transform(lambda x: f(x))(X).requires_grad
    y, pull = vjp(f, X)
    assert not y.requires_grad
    (g,) = pull(weft.ones_like(y))
    assert not g.requires_grad
    assert not vmap(grad(f))(weft.stack([X, X])).requires_grad


def test_vjp_and_jvp_agree():
    fn = lambda x: (x.tanh() * x.sum()).reshape(3, 1) @ x.reshape(1, 3)
    v, u = f64([1.0, 2.0, -1.0]), f64(np.arange(9.0).reshape(3, 3))
    y, t = jvp(fn, (X,), (v,))
    y2, pull = vjp(fn, X)
    close(y, y2)
    close((t * u).sum(), (pull(u)[0] * v).sum())


def test_value_and_grad_argnums_and_aux():
    fn = lambda a, b, c: ((a * b).sum() + c.sum(), {"a": a * 2})
    a, b, c = f64([1.0, 2.0]), f64([3.0, 4.0]), f64([5.0])
    (value, aux), (ga, gc) = value_and_grad(fn, argnums=(0, 2), has_aux=True)(a, b, c)
    assert value.item() == 16.0
    close(ga, [3.0, 4.0])
    close(gc, [1.0])
    close(aux["a"], [2.0, 4.0])
    g, aux = grad(fn, argnums=-2, has_aux=True)(a, b, c)
    close(g, [1.0, 2.0])


def test_pytrees():
    params = {"w": f64([[1.0, 2.0]]), "layers": [(f64([3.0]), f64(0.5)), None]}

    def loss(p):
        w, (b, s) = p["w"], p["layers"][0]
        return ((w * b) ** 2).sum() * s

    g = grad(loss)(params)
    assert set(g) == {"w", "layers"}
    assert g["layers"][1] is None
    close(g["w"], [[9.0, 18.0]])
    close(g["layers"][0][1], 45.0)
    _, t = jvp(loss, (params,), (weft.tree_map(weft.ones_like, params),))
    total = sum(x.sum() for x in weft.tree_flatten(g)[0])
    close(t, total)


def test_a_class_of_ones_own_can_be_a_container():
    class Pair:
        def __init__(self, left, right):
            self.left, self.right = left, right

    weft.core.pytree.register_pytree_node(
        Pair, lambda p: ((p.left, p.right), None), lambda parts, _: Pair(*parts)
    )
    g = grad(lambda p: p.left * p.right)(Pair(f64(2.0), f64(5.0)))
    assert isinstance(g, Pair)
    assert (g.left.item(), g.right.item()) == (5.0, 2.0)


def test_linearize_runs_the_function_once():
    calls = []

    def fn(x):
        calls.append(1)
        return (x * x).sin().cumsum(0)

    y, push = linearize(fn, X)
    for v in (f64([1.0, 0.0, 0.0]), f64([0.2, -3.0, 1.0])):
        close(push(v), jvp(fn, (X,), (v,))[1])
    assert len(calls) == 3  # one here, two in jvp
    close(y, fn(X))
    batch = weft.stack([X, 2 * X])
    close(vmap(push)(batch)[1], push(2 * X))


def test_python_branches_on_values_under_grad_and_jvp():
    fn = lambda x: (x * 3).sum() if x.sum().item() > 0 else (x**2).sum()
    close(grad(fn)(X), [3.0, 3.0, 3.0])
    close(grad(fn)(-X), -2 * X)
    assert jvp(fn, (-X,), (X,))[1].item() == pytest.approx(-2 * float((X * X).sum()))


def test_no_grad_means_the_same_in_both_modes():
    def fn(x):
        with weft.no_grad():
            factor = x * x
        return (factor * x).sum()

    close(jacrev(fn)(X), X * X)
    close(jacfwd(fn)(X), X * X)
    with weft.no_grad():
        close(grad(f)(X), numeric_gradient(f, X), rtol=1e-6)
        close(jvp(f, (X,), (X,))[1], (grad(f)(X) * X).sum())


def test_detach_stops_both_modes():
    fn = lambda x: (x.detach() * x).sum()
    close(grad(fn)(X), X)
    close(jvp(fn, (X,), (weft.ones_like(X),))[1], X.sum())


# -- Jacobians


def test_jacobians_agree_and_have_the_right_shape():
    fn = lambda x: (x.reshape(3, 1) * x).sin()[:2]
    a, b = jacrev(fn)(X), jacfwd(fn)(X)
    assert a.shape == (2, 3, 3)
    close(a, b)
    close(a, jacrev(fn, chunk_size=2)(X))
    close(a, jacfwd(fn, chunk_size=2)(X))


def test_jacobian_of_trees():
    fn = lambda p: {"s": p["a"] * p["b"], "t": p["a"].sum()}
    p = {"a": f64([1.0, 2.0]), "b": f64([3.0, 4.0])}
    for make in (jacrev, jacfwd, jacobian):
        j = make(fn)(p)
        close(j["s"]["a"], np.diag([3.0, 4.0]))
        close(j["s"]["b"], np.diag([1.0, 2.0]))
        close(j["t"]["a"], [1.0, 1.0])
        close(j["t"]["b"], [0.0, 0.0])


@pytest.mark.parametrize(("n", "m"), [(2, 7), (7, 2), (4, 4), (1, 1)])
def test_jacobian_takes_the_cheaper_mode(n, m):
    w = f64(np.arange(float(n * m)).reshape(m, n))
    jac = jacobian(lambda x: w @ (x * x))
    x = f64(np.arange(1.0, n + 1))
    close(jac(x), w * (2 * x))
    assert jac.passes == min(n, m)
    assert jac.mode == ("forward" if n <= m else "reverse")


def test_full_jacobian_by_forward_mode_is_one_batched_pass():
    calls = []

    def fn(x):
        calls.append(1)
        return x * x

    jacfwd(fn)(X)
    assert len(calls) == 1


def test_hessian_of_an_mlp_against_differences():
    rng = np.random.default_rng(0)
    w1, w2 = f64(rng.normal(size=(4, 3))), f64(rng.normal(size=(1, 4)))
    loss = lambda x: ((w2 @ (w1 @ x).tanh()) ** 2).sum()
    h = hessian(loss)(X).numpy()
    g = grad(loss)
    rows = [
        (g(X + 1e-6 * f64(e)) - g(X - 1e-6 * f64(e))).numpy() / 2e-6 for e in np.eye(3)
    ]
    close(h, np.stack(rows), rtol=1e-5)
    close(h, h.T)


# -- vmap


def test_vmap_axes():
    x = f64(np.arange(24.0).reshape(2, 3, 4))
    close(vmap(lambda r: r.sum(0), in_dims=1)(x), x.sum(0))
    close(vmap(lambda r: r * 2, in_dims=1, out_dims=2)(x), x.permute(0, 2, 1) * 2)
    close(vmap(lambda r: r * 2, in_dims=-1, out_dims=-1)(x), x * 2)
    w = f64(np.ones(4))
    close(vmap(lambda r, w: (r * w).sum(), in_dims=(0, None))(x, w), x.sum((1, 2)))
    out = vmap(
        lambda d: (d["a"] + d["b"], d["a"].sum()), in_dims=({"a": 0, "b": None},)
    )({"a": x, "b": x[0]})
    close(out[0], x + x[0])
    close(out[1], x.sum((1, 2)))


def test_vmap_of_vmap():
    x, y = f64(np.arange(6.0).reshape(2, 3)), f64(np.arange(8.0).reshape(2, 4))
    outer = lambda a, b: vmap(lambda s: vmap(lambda t: s * t + s)(b))(a)
    close(vmap(outer)(x, y), x[:, :, None] * y[:, None, :] + x[:, :, None])


def test_vmap_in_chunks():
    x = f64(np.arange(10.0).reshape(5, 2))
    close(vmap(f, chunk_size=2)(x), vmap(f)(x))


def test_in_place_inside_vmap_and_jvp():
    def fn(x):
        y = x * 2
        y[0] = y[1] * 3
        row = y[1:]
        row.add_(1)
        return y.sum()

    pure = lambda x: weft.stack([6 * x[1], 2 * x[1] + 1, 2 * x[2] + 1]).sum()
    batch = weft.stack([X, 2 * X])
    close(vmap(fn)(batch), vmap(pure)(batch))
    close(jvp(fn, (X,), (X,))[1], jvp(pure, (X,), (X,))[1])
    close(vmap(grad(fn))(batch), vmap(grad(pure))(batch))


def test_randomness_must_be_chosen():
    noisy = lambda x: x + weft.rand(2)
    batch = weft.zeros(4, 2)
    with pytest.raises(ValueError, match="randomness"):
        vmap(noisy)(batch)
    same = vmap(noisy, randomness="same")(batch)
    close(same, same[0].expand(4, 2))
    different = vmap(noisy, randomness="different")(batch)
    assert len({tuple(row) for row in different.tolist()}) == 4


# -- nesting

SCALAR = {
    "reverse": lambda fn: grad(fn),
    "forward": lambda fn: lambda x: jvp(fn, (x,), (weft.ones_like(x),))[1],
    "linear": lambda fn: lambda x: linearize(fn, x)[1](weft.ones_like(x)),
    "mapped": lambda fn: lambda x: vmap(grad(fn))(x.reshape(1))[0],
    "tape": lambda fn: lambda x: _tape(fn, x),
}


def _tape(fn, x):
    """The derivative by ``autograd.grad``, differentiable further by anything."""
    inner = x.clone() if x.requires_grad else x.detach().clone().requires_grad_()
    if x._interpreter is not None and not x.requires_grad:
        return grad(fn)(x)
    (g,) = weft.autograd.grad(fn(inner), inner, create_graph=True)
    return g


@pytest.mark.parametrize(
    "order",
    list(itertools.product(["reverse", "forward", "linear", "mapped"], repeat=3)),
)
def test_third_derivative_by_every_order_of_transforms(order):
    fn = lambda x: (x * x).sin() * x.exp()
    for name in order:
        fn = SCALAR[name](fn)
    x = 0.4
    got = fn(f64(x)).item()
    assert got == pytest.approx(_third(x), rel=1e-8)


def _third(x):
    """Third derivative of sin(x^2) e^x, by hand."""
    s, c = np.sin(x * x), np.cos(x * x)
    d0, d1 = s, 2 * x * c
    d2 = 2 * c - 4 * x * x * s
    d3 = -12 * x * s - 8 * x**3 * c
    return np.exp(x) * (d0 + 3 * d1 + 3 * d2 + d3)


def test_named_nestings():
    batch = weft.stack([X, 2 * X])
    per_example = weft.stack([grad(f)(row) for row in batch])
    close(vmap(grad(f))(batch), per_example)
    close(grad(lambda b: vmap(f)(b).sum())(batch), per_example)
    close(jvp(grad(f), (X,), (X,))[1], hessian(f)(X) @ X)
    close(jacfwd(jacrev(f))(X), jacrev(jacfwd(f))(X))
    close(jacfwd(jacfwd(f))(X), jacrev(jacrev(f))(X))
    close(vmap(hessian(f))(batch)[1], hessian(f)(batch[1]))
    close(grad(lambda x: jvp(f, (x,), (X,))[1])(X), hessian(f)(X) @ X)
    close(
        vmap(lambda v: jvp(grad(f), (X,), (v,))[1])(batch)[1], hessian(f)(X) @ batch[1]
    )
    close(grad(lambda x: grad(f)(x).sum())(X), hessian(f)(X).sum(0))


def test_no_perturbation_confusion():
    inner = lambda x: jvp(lambda y: x * y, (f64(1.0),), (f64(1.0),))[1]
    assert jvp(lambda x: x * inner(x), (f64(3.0),), (f64(1.0),))[1].item() == 6.0
    by_grad = grad(lambda x: x * grad(lambda y: x * y)(f64(2.0)))
    assert by_grad(f64(3.0)).item() == 6.0


def test_transforms_and_the_tape_see_through_each_other():
    w = f64([1.0, 2.0, 3.0]).requires_grad_()
    g = grad(lambda x: (w * x * x).sum())(X)
    g.sum().backward()
    close(w.grad, 2 * X)
    w.grad = None
    _, t = jvp(lambda x: (w * x * x).sum(), (X,), (X,))
    t.backward()
    close(w.grad, 2 * X * X)
    w.grad = None
    vmap(lambda x: (w * x).sum())(weft.stack([X, X])).sum().backward()
    close(w.grad, 2 * X)
    w.grad = None
    grad(grad(lambda s: (w * X).sum() * s**3))(f64(2.0)).backward()
    close(w.grad, 12 * X)
    w.grad = None
    _, pull = vjp(lambda x: x * x, X)
    pull(w * 1)[0].sum().backward()
    close(w.grad, 2 * X)


UNARY = [
    weft.sin,
    weft.tanh,
    weft.exp,
    lambda x: x * x,
    lambda x: x.cumsum(0),
    weft.sigmoid,
]
BINARY = [
    lambda a, b: a * b,
    lambda a, b: a + b.roll(1),
    lambda a, b: a - 0.5 * b,
    lambda a, b: weft.where(a > b, a, b * b),
    lambda a, b: weft.outer(a, b).sum(1),
]


@st.composite
def programs(draw):
    """A short random program over one vector."""
    steps = draw(
        st.lists(
            st.tuples(st.integers(0, 10), st.integers(0, 9), st.integers(0, 9)),
            min_size=2,
            max_size=6,
        )
    )

    def run(x):
        values = [x * 0.5]
        for which, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            if which < len(UNARY):
                values.append(UNARY[which](a * 0.7))
            else:
                values.append(BINARY[which - len(UNARY)](a, b).tanh())
        return sum(values[1:], values[0]).sum()

    return run


@settings(max_examples=25, deadline=None)
@given(programs())
def test_modes_agree_on_random_programs(program):
    g = grad(program)(X)
    close(g, numeric_gradient(program, X), rtol=2e-5)
    h = jacfwd(jacrev(program))(X)
    close(h, jacrev(jacrev(program))(X), rtol=1e-8)
    leaf = X.clone().requires_grad_()
    program(leaf).backward()
    close(leaf.grad, g)
    batch = weft.stack([X, 0.5 * X])
    close(vmap(grad(program))(batch)[1], grad(program)(0.5 * X))

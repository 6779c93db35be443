"""Gradients as nodes: against the tape, differences, and in every awkward graph."""

import numpy as np
import pytest

import weft
from weft import static
from weft.core.op import define, unregister
from weft.errors import ArgumentError, AutogradError, DTypeError, ShapeError
from weft.nn import functional as F


def softplus_net(x, w, v):
    return F.softplus(x @ w).mean(0) @ v + (w * w).sum()


def test_the_same_gradients_as_the_tape(session, rng):
    x, w, v = (rng.normal(size=s) for s in ((5, 3), (3, 4), (4,)))
    nodes = [static.placeholder(weft.float64, a.shape) for a in (x, w, v)]
    grads = static.gradients(softplus_net(*nodes), nodes)
    found = session.run(grads, dict(zip(nodes, (x, w, v), strict=True)))
    leaves = [weft.tensor(a, requires_grad=True) for a in (x, w, v)]
    softplus_net(*leaves).backward()
    for a, leaf in zip(found, leaves, strict=True):
        np.testing.assert_allclose(a, leaf.grad.numpy(), rtol=1e-14, atol=1e-16)


def test_against_differences_with_an_open_size(session, rng):
    x = static.placeholder(weft.float64, [None, 3])
    y = (F.softmax(x, 1) * static.tanh(x)).sum() + x.std(0).sum()
    (dx,) = static.gradients(y, x)
    for rows in (2, 7):
        at = rng.normal(size=(rows, 3))
        move = rng.normal(size=at.shape)
        up, down = (session.run(y, {x: at + s * 1e-6 * move}) for s in (1, -1))
        slope = (session.run(dx, {x: at}) * move).sum()
        assert slope == pytest.approx((up - down) / 2e-6, rel=1e-7)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_higher_orders(session, order):
    x = static.placeholder(weft.float64, [])
    d = static.sin(x) * static.exp(x)  # whose fourth derivative is -4 times itself
    for _ in range(order):
        (d,) = static.gradients(d, x)
    s, c, e = np.sin(0.7), np.cos(0.7), np.exp(0.7)
    want = {2: 2 * c * e, 3: 2 * (c - s) * e, 4: -4 * s * e}[order]
    assert session.run(d, {x: 0.7}) == pytest.approx(want, rel=1e-13)


AWKWARD = {
    "skip": (
        lambda x: x**2 + static.exp(static.exp(x)),
        lambda x: 2 * x + np.exp(x + np.exp(x)),
    ),
    "diamond": (lambda x: (x * 2) * (x * 3) + x * 2, lambda x: 12 * x + 2),
    "x-x": (lambda x: x - x, lambda x: 0),
    "x*x": (lambda x: x * x, lambda x: 2 * x),
    "x/x": (lambda x: x / x, lambda x: 0),
    "x**x": (lambda x: x**x, lambda x: x**x * (np.log(x) + 1)),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_graphs(session, name):
    fn, slope = AWKWARD[name]
    x = static.placeholder(weft.float64, [])
    x * 5  # a consumer that the loss does not use
    (dx,) = static.gradients(fn(x), x)
    assert session.run(dx, {x: 0.8}) == pytest.approx(slope(0.8), rel=1e-14)


def test_a_matrix_times_itself(session, rng):
    x = static.placeholder(weft.float64, [3, 3])
    (dx,) = static.gradients((x @ x).sum(), x)
    a, one = rng.normal(size=(3, 3)), np.ones((3, 3))
    np.testing.assert_allclose(session.run(dx, {x: a}), one @ a.T + a.T @ one)


def test_unconnected_is_none(graph):
    x, y = (static.placeholder(weft.float32, []) for _ in range(2))
    n = static.placeholder(weft.int64, [])
    assert static.gradients(x * 2, [y, x])[0] is None
    assert static.gradients(x * 2, [n]) == [None]
    w = static.Variable(1.0)
    assert static.gradients(x * 2, w) == [None]


def test_grad_ys(session):
    x = static.placeholder(weft.float64, [2])
    weight = static.constant(np.array([10.0, 100.0]))
    assert session.run(
        static.gradients([x * 2, x * 3], x, [weight, None]), {x: [1.0, 1.0]}
    )[0].tolist() == [23, 203]
    with pytest.raises(ArgumentError, match="1 ys but 2 grad_ys"):
        static.gradients(x * 2, x, [weight, weight])
    with pytest.raises(DTypeError, match="expected nodes as grad_ys, got list"):
        static.gradients([x * 2], x, [[1.0, 2.0]])
    with pytest.raises(ShapeError, match=r"grad_ys of 'mul_\d' must be float64\[2\]"):
        static.gradients(x * 2, x, static.constant(1.0))


def test_several_ys_are_added(session):
    x = static.placeholder(weft.float64, [])
    assert session.run(static.gradients([x * 2, x * x], x), {x: 3.0}) == [8]


def test_gradient_of_an_intermediate(session):
    x = static.placeholder(weft.float64, [])
    h = x * 3
    dh, dx = static.gradients(h * h, [h, x])
    assert session.run([dh, dx], {x: 2.0}) == [12, 36]


def test_stop_gradient(session):
    x = static.placeholder(weft.float64, [])
    (dx,) = static.gradients(x * static.stop_gradient(x), x)
    assert session.run(dx, {x: 3.0}) == 3
    assert static.gradients(static.stop_gradient(x), x) == [None]


def test_integers_have_no_gradient(graph):
    n = static.placeholder(weft.int64, [], name="n")
    with pytest.raises(AutogradError, match=r"'n' is int64\[\].*not differentiable"):
        static.gradients(n, n)


def test_a_variable_read_several_times(graph, start):
    w = static.Variable(3.0, name="w")
    late = w.read_value()
    (dw,) = static.gradients(w * 2 + late * late, w)
    assert start().run(dw) == 8


def test_gradient_nodes_take_their_names_and_lines_from_the_forward_ones(graph):
    x = static.placeholder(weft.float32, [], name="x")
    (dx,) = static.gradients(static.exp(x), x)
    assert dx.name.startswith("grad/exp/")
    assert "test_gradients.py" in dx.node.line
    assert graph[dx.name].node is dx.node


# -- control flow


@pytest.mark.parametrize(("at", "value", "slope"), [(3.0, 9, 6), (-2.0, 20, -10)])
def test_through_cond(session, at, value, slope):
    x = static.placeholder(weft.float64, [])
    y = static.cond(x > 0, lambda: x * x, lambda: x * -10)
    (dx,) = static.gradients(y, x)
    assert session.run([y, dx], {x: at}) == [value, slope]


def test_cond_by_a_variable(graph, start):
    w = static.Variable(2.0)
    on = static.placeholder(weft.bool, [])
    y = static.cond(on, lambda: w * w, lambda: w * 1.0)
    step = static.train.GradientDescentOptimizer(0.25).minimize(y)
    session = start()
    session.run(step, {on: True})
    assert session.run(w) == 1
    session.run(step, {on: False})
    assert session.run(w) == 0.75


@pytest.mark.parametrize("times", [0, 1, 5])
def test_through_while_loop(session, times):
    n = static.placeholder(weft.int64, [])
    x = static.placeholder(weft.float64, [])
    _, power = static.while_loop(
        lambda i, p: i < n,
        lambda i, p: [i + 1, p * x],
        [static.constant(0), static.constant(np.float64(1))],
    )
    (dx,) = static.gradients(power, x)
    found = session.run([power, dx], {n: times, x: 1.5})
    assert found == pytest.approx([1.5**times, times * 1.5 ** (times - 1)])


def test_while_loop_until_a_value(session):
    """Newton's square root: how often the loop runs depends on the data."""
    a = static.placeholder(weft.float64, [])
    root = static.while_loop(
        lambda r: (r * r - a).abs() > 1e-12 * a, lambda r: [(r + a / r) / 2], [a]
    )
    for value in (2.0, 1e6):
        assert session.run(root, {a: value}) == pytest.approx(np.sqrt(value))
    (slope,) = static.gradients(root, a)
    assert session.run(slope, {a: 9.0}) == pytest.approx(1 / 6, rel=1e-9)


def test_case_scan_and_map(session):
    x = static.placeholder(weft.float64, [None])
    sums = static.scan(lambda a, e: a + e * e, x, static.constant(np.float64(0)))
    squares = static.map_fn(lambda e: e * e, x)
    both = static.gradients(sums.sum() + squares.sum(), x)
    for n in (1, 4):
        at = np.arange(1.0, n + 1)
        found = session.run([sums, squares, both[0]], {x: at})
        np.testing.assert_allclose(found[0], np.cumsum(at**2))
        np.testing.assert_allclose(found[1], at**2)
        np.testing.assert_allclose(found[2], 2 * at * (np.arange(n, 0, -1) + 1))
    y = static.placeholder(weft.float64, [])
    small = static.case([(y < 1, lambda: y * 2)], default=lambda: y * y)
    assert [session.run(small, {y: v}) for v in (0.5, 3.0)] == [1, 9]


# -- gradients of one's own


@pytest.fixture
def power_op():
    yield define(
        "own_power",
        inputs="x",
        eval=lambda x, *, n: x**n,
        type=lambda x, *, n: x,
    )
    unregister("own_power")


def test_a_missing_gradient_names_the_operator(graph, power_op):
    x = static.placeholder(weft.float64, [], name="x")
    with pytest.raises(AutogradError, match=r"own_power(.|\n)*test_gradients\.py"):
        static.gradients(power_op(x, n=3), x)


def test_a_registered_gradient(session, power_op):
    seen = []

    @static.RegisterGradient("own_power")
    def _(op, grad):
        seen.append((op.type, len(op.inputs), len(op.outputs)))
        n = op.get_attr("n")
        return grad * n * op.inputs[0] ** (n - 1)

    x = static.placeholder(weft.float64, [])
    (dx,) = static.gradients(power_op(x, n=3), x)
    (ddx,) = static.gradients(dx, x)
    assert session.run([dx, ddx], {x: 2.0}) == [12, 12]
    assert seen == [("own_power", 1, 1)]
    with pytest.raises(AutogradError, match="'own_power' has a gradient already"):
        static.RegisterGradient("own_power")


def test_registering_for_an_unknown_operator_or_a_wrong_number(graph, power_op):
    with (
        pytest.raises(ArgumentError, match="no gradient is registered as 'no_such'"),
        graph.gradient_override_map({"Relu": "no_such"}),
    ):
        pass
    static.RegisterGradient("own_power")(lambda op, grad: (grad, grad))
    x = static.placeholder(weft.float64, [])
    with pytest.raises(AutogradError, match=r"must return 1 gradients.* got 2"):
        static.gradients(power_op(x, n=2), x)


# -- by any node


def test_gradients_by_every_ancestor(graph, start):
    """Each is checked by feeding its node: a run takes any node's value."""
    rng = np.random.default_rng(3)
    x = static.placeholder(weft.float64, [None, 3], name="x")
    w = static.Variable(rng.normal(size=(3, 2)), name="w")
    b = static.Variable(rng.normal(size=2), name="b")
    hidden = static.tanh(static.matmul(x, w, name="product") + b, name="hidden")
    mean = static.reduce_mean(hidden, 0, keepdims=True, name="mean")
    loss = static.reduce_sum(static.square(hidden - mean) * hidden, name="loss")
    static.reduce_sum(w, name="elsewhere")
    session, feed = start(), {"x": rng.normal(size=(4, 3))}
    known = graph.snapshot().ancestors([loss.node])
    nodes = [n for n in graph.builder.nodes if n in known and n.dtype.is_inexact]
    assert len(nodes) > 8
    before = [graph[node.name] for node in nodes]
    found = static.gradients(loss, before)
    values, slopes = session.run([before, found], feed)
    for node, value, slope in zip(before, values, slopes, strict=True):
        move = rng.normal(size=value.shape)
        up, down = (
            session.run(loss, {**feed, node.name: value + s * 1e-6 * move})
            for s in (1, -1)
        )
        want = (up - down) / 2e-6
        np.testing.assert_allclose((slope * move).sum(), want, rtol=1e-6, atol=1e-8)


def test_gradients_by_name(graph, start):
    x = static.placeholder(weft.float32, [None, 2], name="x")
    w = static.Variable(np.ones((2, 1), np.float32), name="w")
    static.Variable(1.0, name="other")
    loss = static.reduce_mean(static.square(static.matmul(x, w, name="y")), name="loss")
    step = static.train.GradientDescentOptimizer(0.1).minimize(loss)
    table = step.gradients
    assert "y" in table
    assert x in table
    assert "other" not in table
    assert list(table) == [w]
    session, feed = start(), {x: np.ones((4, 2))}
    by_name = session.run([table["w"], table["y"], table["x"]], feed)
    nodes = static.gradients(loss, ["w", "y:0", "x"])
    for a, b in zip(by_name, session.run(nodes, feed), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(session.run("loss/grad/w", feed), by_name[0])
    with pytest.raises(ArgumentError, match="'loss' does not depend on 'other'"):
        table["other"]


def test_no_gradient_for_an_operator_is_told_at_its_line(graph):
    op = define("own_sign", inputs="x", eval=np.sign, type=lambda x: x)
    try:
        x = static.placeholder(weft.float32, [])
        y = op(x)
        with pytest.raises(AutogradError, match=r"(?s)own_sign.*test_gradients.py"):
            static.gradients(y, x)
    finally:
        unregister("own_sign")

"""Placeholders without a shape: a run decides their number of dimensions."""

import numpy as np
import pytest

import weft
from weft import static
from weft.errors import ArgumentError, ShapeError, WeftError
from weft.graph.ir import GraphError
from weft.static.unranked import UnrankedError


@pytest.fixture
def x(graph):
    return static.placeholder(weft.float64, name="x")


VALUES = [
    np.array(3.0), np.array([1.0, 2.0]), np.arange(6.0).reshape(2, 3), np.zeros((0,)),
    np.ones((1, 2, 1)), np.array([5.0]),
]  # fmt: skip

FUNCTIONS = {
    "arithmetic": (lambda x: 2 - x * 3 / 4, lambda v: 2 - v * 3 / 4),
    "static": (lambda x: static.exp(static.negative(x)), lambda v: np.exp(-v)),
    "mean": (static.reduce_mean, lambda v: v.mean() if v.size else np.nan),
    "shape": (static.shape, np.shape),
    "size": (static.size, np.size),
    "rank": (static.rank, np.ndim),
    "method": (lambda x: x.sum(), np.sum),
    "mask": (lambda x: static.where(x > 1, x, 0.0), lambda v: np.where(v > 1, v, 0)),
    "transpose": (lambda x: x.T, np.transpose),
    "flat": (lambda x: static.reshape(x, [-1]), np.ravel),
    "cond": (
        lambda x: static.cond(static.constant(True), lambda: x * 2, lambda: x),
        lambda v: 2 * v,
    ),
    "loop": (
        lambda x: static.while_loop(
            lambda k, y: k < 3, lambda k, y: [k + 1, y * x], [0, static.ones_like(x)]
        )[1],
        lambda v: v**3,
    ),
    "gradient": (
        lambda x: static.gradients(static.reduce_sum(x * x), x)[0], lambda v: 2 * v
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_of_any_rank(name, x, session):
    fn, reference = FUNCTIONS[name]
    y = fn(x)
    for _ in range(2):  # the second time, the nodes are there
        for value in VALUES:
            got = session.run(y, {x: value})
            assert got.shape == np.shape(reference(value))
            np.testing.assert_allclose(got, reference(value), rtol=1e-12)


def test_nodes_are_built_once_for_a_rank(graph, x, session):
    y = static.reduce_mean(x * 2)
    session.run(y, {x: [1.0, 2.0]})
    count = len(graph.builder.nodes)
    session.run(y, {x: [1.0, 2.0, 3.0]})
    assert len(graph.builder.nodes) == count
    session.run(y, {x: [[1.0]]})
    assert len(graph.builder.nodes) > count


def test_sizes_that_broadcast_in_one_run_and_not_in_another(graph, x, session):
    y = static.placeholder(weft.float64, name="y")
    total = x + y
    for a, b in [((3,), (3,)), ((3,), (1,)), ((1,), (4,)), ((2, 1), (3,)), ((3,), ())]:
        feed = {x: np.ones(a), y: np.ones(b)}
        assert session.run(total, feed).shape == np.broadcast_shapes(a, b)
    with pytest.raises(ShapeError, match=r"(?s)broadcast.*called at .*total = x \+ y"):
        session.run(total, {x: np.ones(3), y: np.ones(2)})


def test_training_with_a_fed_rate(graph, session):
    x, y, rate = (static.placeholder(weft.float32, name=n) for n in "xyr")
    w, b = static.Variable(0.5, name="w"), static.Variable(0.1, name="b")
    other = static.Variable(1.0, name="other")
    loss = static.reduce_mean(static.square(x * w + b - y))
    assert static.gradients(loss, other) == [None]
    n = static.Variable(0, trainable=False)
    step = static.train.AdamOptimizer(rate).minimize(loss, global_step=n)
    session.run(static.global_variables_initializer())
    at = np.linspace(0, 1, 8, dtype=np.float32)
    for _ in range(400):
        session.run(step, {x: at, y: 3 * at - 1, rate: 0.05})
    np.testing.assert_allclose(session.run([w, b]), [3, -1], atol=1e-3)
    session.run(step, {x: 1.0, y: 2.0, rate: 0.05})  # one example is enough
    assert session.run([n, other]) == [401, 1]


def test_control_dependencies_on_what_is_unranked(x, session):
    n = static.Variable(0.0, dtype=weft.float64, name="n")
    session.run(n.initializer)
    with static.control_dependencies([n.assign_add(static.reduce_sum(x))]):
        after = n.read_value()
        fixed = static.constant(5.0) * 1
        with static.control_dependencies(None):
            free = static.constant(6.0) * 1
    assert session.run([after, fixed], {x: [1.0, 2.0]}) == [3, 5]
    assert session.run(free) == 6
    assert session.run(n) == 3


def test_names_and_shapes(graph, x, session):
    assert repr(x * 2) == "<unranked 'mul'>"
    assert x.get_shape().ndims is None
    assert x.dtype is weft.float64
    assert graph["x:0"] is x
    assert session.run("x", {"x:0": [1.0]}).tolist() == [1]
    with pytest.raises(ValueError, match="number of dimensions is not known"):
        x.get_shape().as_list()


def test_finalized_graphs_run(graph, x, session):
    y = x * 2
    graph.finalize()
    assert session.run(y, {x: 2.0}) == 4


def test_what_needs_a_shape_now_is_told(x, session):
    y = x * 2
    for needs in (lambda: y.shape, lambda: weft.softmax(y, -1), lambda: list(y)):
        with pytest.raises(UnrankedError):
            needs()
    with pytest.raises(
        UnrankedError, match=r"(?s)dimensions of 'x' is known only when"
    ):
        weft.nn.Linear(2, 2)(y)
    with pytest.raises(ArgumentError, match=r"(?s)placeholder 'x' .*must be fed"):
        session.run(y)
    with pytest.raises(WeftError, match="cannot be fed, since its number"):
        session.run(y, {y: 1.0})
    with pytest.raises(GraphError):
        static.Variable(y)

"""Optimizers as nodes, against TensorFlow 1's published rules in NumPy."""

import numpy as np
import pytest

import weft
from weft import static
from weft.errors import ArgumentError, DTypeError

STEPS = 20
TARGET = np.array([[1.0, -2.0], [0.5, 3.0]])
START = np.array([[0.3, 0.4], [-1.0, 2.0]])


def slope(w):
    """Of sum((w - target)² (1 + w²/10))."""
    off = w - TARGET
    return 2 * off * (1 + w * w / 10) + off * off * w / 5


def loss_of(w):
    off = w - TARGET
    return (off * off * (1 + w * w / 10)).sum()


def descend(rates):
    w = START
    for rate in rates:
        w = w - rate * slope(w)
        yield w


def momentum(rates, mu=0.9, nesterov=False):
    w, a = START, 0
    for rate in rates:
        g = slope(w)
        a = mu * a + g
        w = w - rate * (g + mu * a) if nesterov else w - rate * a
        yield w


def adagrad(rates, start=0.1):
    w, a = START, start
    for rate in rates:
        g = slope(w)
        a = a + g * g
        w = w - rate * g / np.sqrt(a)
        yield w


def rmsprop(rates, decay=0.9, mu=0.0, eps=1e-10, centered=False):
    w, s, mean, moved = START, 1.0, 0.0, 0.0
    for rate in rates:
        g = slope(w)
        s = decay * s + (1 - decay) * g * g
        mean = decay * mean + (1 - decay) * g
        spread = s - mean * mean if centered else s
        moved = mu * moved + rate * g / np.sqrt(spread + eps)
        w = w - moved
        yield w


def adam(rates, b1=0.9, b2=0.999, eps=1e-8):
    w, m, v = START, 0.0, 0.0
    for t, rate in enumerate(rates, 1):
        g = slope(w)
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        w = w - rate * np.sqrt(1 - b2**t) / (1 - b1**t) * m / (np.sqrt(v) + eps)
        yield w


T = static.train
RULES = {
    "descent": (T.GradientDescentOptimizer, descend),
    "momentum": (lambda r: T.MomentumOptimizer(r, 0.9), momentum),
    "nesterov": (
        lambda r: T.MomentumOptimizer(r, 0.8, use_nesterov=True),
        lambda r: momentum(r, 0.8, True),
    ),
    "adagrad": (T.AdagradOptimizer, adagrad),
    "adagrad from 1": (lambda r: T.AdagradOptimizer(r, 1.0), lambda r: adagrad(r, 1.0)),
    "rmsprop": (T.RMSPropOptimizer, rmsprop),
    "rmsprop with momentum": (
        lambda r: T.RMSPropOptimizer(r, 0.8, 0.5, 1e-3),
        lambda r: rmsprop(r, 0.8, 0.5, 1e-3),
    ),
    "rmsprop centered": (
        lambda r: T.RMSPropOptimizer(r, momentum=0.5, centered=True),
        lambda r: rmsprop(r, mu=0.5, centered=True),
    ),
    "adam": (T.AdamOptimizer, adam),
    "adam otherwise": (
        lambda r: T.AdamOptimizer(r, 0.8, 0.95, 1e-3),
        lambda r: adam(r, 0.8, 0.95, 1e-3),
    ),
}


@pytest.mark.parametrize("kind", ["number", "placeholder", "variable", "decay"])
@pytest.mark.parametrize("name", RULES)
def test_twenty_steps(name, kind, start):
    make, rule = RULES[name]
    feed, count = {}, static.Variable(0, name="count")
    rates = [0.02] * STEPS
    if kind == "number":
        rate = 0.02
    elif kind == "placeholder":
        rate = static.placeholder(weft.float64, [])
        rates = [0.02 / (k + 1) for k in range(STEPS)]
    elif kind == "variable":
        rate = static.Variable(np.float64(0.02), trainable=False)
    else:
        rate = T.exponential_decay(0.05, count, 5, 0.5, staircase=True)
        rates = [0.05 * 0.5 ** (k // 5) for k in range(STEPS)]
    w = static.Variable(START, name="w")
    step = make(rate).minimize(loss_of(w), global_step=count)
    session = start()
    for k, want in enumerate(rule(rates)):
        if kind == "placeholder":
            feed = {rate: rates[k]}
        session.run(step, feed)
        np.testing.assert_allclose(session.run(w), want, rtol=1e-12, atol=1e-13)
    assert session.run(count) == STEPS


def test_a_train_step_and_its_table(graph, start):
    a, b = static.Variable(2.0, name="a"), static.Variable(3.0, name="b")
    unused = static.Variable(1.0, name="unused")
    step = T.GradientDescentOptimizer(0.1).minimize(a * a * b)
    assert set(step.gradients) == {a, b}
    assert unused not in step.gradients
    session = start()
    assert session.run(step.gradients) == {a: 12, b: 4}
    assert session.run(step) is None
    assert session.run([a, b, unused]) == pytest.approx([0.8, 2.6, 1])


def test_the_table_answers_for_every_node_behind_the_loss(graph, start):
    x = static.placeholder(weft.float32, [], name="x")
    w = static.Variable(3.0, name="w")
    h = x * w
    step = T.GradientDescentOptimizer(0.1).minimize(h * h)
    table = step.gradients
    assert list(table) == [w]
    found = [table[x], table[h], table[w], table[h]]
    assert start().run(found, {x: 2.0}) == [36, 12, 24, 12]
    with pytest.raises(ArgumentError, match="does not depend on 'other'"):
        table[static.constant(1.0, name="other")]


def test_a_step_changes_variables_and_nothing_else(graph, start):
    x = static.placeholder(weft.float32, [2])
    w = static.Variable([1.0, 1.0], name="w")
    fixed = static.Variable([5.0], trainable=False)
    step = T.GradientDescentOptimizer(0.1).minimize((x * w).sum() + fixed.sum())
    session, fed = start(), np.array([1.0, 2.0], np.float32)
    session.run(step, {x: fed})
    assert fed.tolist() == [1, 2]
    assert session.run(fixed) == 5
    np.testing.assert_allclose(session.run(w), [0.9, 0.8])


def test_gradients_are_all_computed_before_a_variable_changes(graph, start):
    a, b = static.Variable(1.0), static.Variable(1.0)
    step = T.GradientDescentOptimizer(1.0).minimize(a * b * b)
    session = start()
    session.run(step)
    assert session.run([a, b]) == [0, -1]  # from a = b = 1, both at once


def test_gradients_can_be_changed_between(graph, start):
    w = static.Variable([3.0, -4.0])
    made = T.GradientDescentOptimizer(1.0)
    pairs = made.compute_gradients((w * w).sum())
    pairs = [(static.clip_by_value(g, -1, 1), v) for g, v in pairs]
    session = start()
    session.run(made.apply_gradients(pairs))
    assert session.run(w).tolist() == [2, -3]


def test_var_list_and_slots(graph, start):
    a, b = static.Variable(1.0, name="a"), static.Variable(1.0, name="b")
    made = T.MomentumOptimizer(0.1, 0.9)
    step = made.minimize(a * b, var_list=[a])
    session = start()
    session.run(step)
    assert session.run([a, b]) == pytest.approx([0.9, 1])
    assert made.get_slot_names() == ["Momentum"]
    assert session.run(made.get_slot(a, "Momentum")) == 1
    assert made.get_slot(b, "Momentum") is None
    assert [v.name for v in static.trainable_variables()] == ["a", "b"]


def test_two_optimizers_in_turn(graph, start):
    a, b = static.Variable(1.0), static.Variable(1.0)
    loss = (a - b) ** 2 + a * a
    first = T.AdamOptimizer(0.1).minimize(loss, var_list=[a])
    second = T.GradientDescentOptimizer(0.1).minimize(loss, var_list=[b])
    session = start()
    for _ in range(200):
        session.run(first)
        session.run(second)
    assert np.abs(session.run([a, b])).max() < 1e-3


def test_mistakes_are_told(graph):
    x = static.placeholder(weft.float32, [], name="x")
    with pytest.raises(ArgumentError, match="no variables to train"):
        T.AdamOptimizer().minimize(x * x)
    w = static.Variable(1.0, name="w")
    with pytest.raises(ArgumentError, match=r"'mul_\d' depends on none .*\['w'\]"):
        T.AdamOptimizer().minimize(x * x)
    with pytest.raises(DTypeError, match="expected variables, got StaticTensor"):
        T.AdamOptimizer().compute_gradients(w * x, [x])
    with pytest.raises(ArgumentError, match="no variable has a gradient"):
        T.AdamOptimizer().apply_gradients([(None, w)])


def test_the_learning_rate_as_a_schedule(graph, start):
    step = static.Variable(0, trainable=False)
    smooth = T.exponential_decay(1.0, step, 10, 0.5)
    stairs = T.exponential_decay(1.0, step, 10, 0.5, staircase=True)
    session = start()
    for at in (0, 5, 10, 19):
        session.run(step.assign(at))
        assert session.run([smooth, stairs]) == pytest.approx(
            [0.5 ** (at / 10), 0.5 ** (at // 10)], rel=1e-15
        )


# -- the program as three lists


def test_multiply_add_loss(graph, start):
    x, label = (static.placeholder(weft.float64, [], name=n) for n in ("x", "label"))
    w = static.Variable(np.float64(20), name="w")
    b = static.Variable(np.float64(1), name="b")
    y = static.multiply(x, w) + b
    loss = static.square(y - label)
    step = T.GradientDescentOptimizer(0.001).minimize(loss)
    program = static.Program(step)

    def names(part):
        return [n.op.name for n in part if n.op.name not in ("input", "read")]

    assert names(program.forward) == ["mul", "add", "sub", "square"]
    origins = [n.name.split("/")[1] for n in program.backward]
    assert list(dict.fromkeys(origins)) == ["square", "mul"]  # of `-` and `+`: itself
    assert names(program.update) == ["mul", "sub", "assign"] * 2 + ["group"]
    assert program.ops == [*program.forward, *program.backward, *program.update]
    session = start()
    feed = {x: 10.0, label: 0.0}
    assert session.run([y, loss, *step.gradients.values()], feed) == [
        201, 201**2, 2 * 201 * 10, 2 * 201,
    ]  # fmt: skip
    session.run(step, feed)
    assert session.run([w, b]) == pytest.approx([20 - 4.02, 1 - 0.402])
    text = str(program)
    assert text.index("forward:") < text.index("backward:") < text.index("update:")


def test_a_program_without_a_train_step_is_all_forward(graph):
    x = static.placeholder(weft.float32, [], name="grad/x")
    program = static.Program(x * 2)
    assert len(program.forward) == 2
    assert not program.backward
    assert not program.update


def test_a_program_by_hand(graph):
    w = static.Variable(1.0, name="w")
    loss = static.exp(w)
    (dw,) = static.gradients(loss, w)
    program = static.Program(w.assign(w - 0.1 * dw))
    assert [n.op.name for n in program.forward] == ["read", "exp"]
    assert [n.op.name for n in program.update] == ["mul", "sub", "assign"]

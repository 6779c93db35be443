"""A training step is one program, whether it was built or recorded."""

import numpy as np
import pytest

import weft
from weft import static
from weft.compile import pipeline
from weft.graph.passes import normalized
from weft.nn import functional as F

RATE = 0.1
RNG = np.random.default_rng(0)


def mlp(x, labels, w1, b1, w2, b2):
    return F.cross_entropy(weft.tanh(x @ w1 + b1) @ w2 + b2, labels)


def cnn(x, labels, k, b, w):
    hidden = F.max_pool2d(weft.relu(F.conv2d(x, k, b, padding=1)), 2)
    return F.cross_entropy(hidden.reshape(-1, 4 * 4 * 4) @ w, labels)


CASES = {
    "mlp": (mlp, (5,), {"w1": (5, 16), "b1": (16,), "w2": (16, 3), "b2": (3,)}),
    "cnn": (cnn, (1, 8, 8), {"k": (4, 1, 3, 3), "b": (4,), "w": (64, 3)}),
}


def built(fn, data, start):
    """The program of a static graph, and the parameters after a step."""
    with static.Graph().as_default(), static.Session() as session:
        x = static.placeholder(weft.float64, [None, *data[0].shape[1:]])
        labels = static.placeholder(weft.int64, [None])
        variables = [static.Variable(a, name=name) for name, a in start.items()]
        loss = fn(x, labels, *variables)
        step = static.train.GradientDescentOptimizer(RATE).minimize(loss)
        session.run(static.global_variables_initializer())
        told, feed = static.RunMetadata(), dict(zip((x, labels), data, strict=True))
        value, _ = session.run([loss, step], feed, run_metadata=told)
        return told.partition_graphs[0], [value, *session.run(variables)]


def recorded(fn, data, start):
    """The same of an eager step that is compiled."""
    params = {k: weft.tensor(a, requires_grad=True) for k, a in start.items()}

    def step(x, labels):
        loss = fn(x, labels, *params.values())
        gradients = weft.autograd.grad(loss, list(params.values()))
        with weft.no_grad():
            for p, g in zip(params.values(), gradients, strict=True):
                p -= RATE * g
        return loss.detach()

    compiled = weft.compile(step)
    value = compiled(*map(weft.tensor, data))
    graph = pipeline.run(compiled.latest.program.graph)
    return graph, [value.numpy(), *[p.detach().numpy() for p in params.values()]]


@pytest.mark.parametrize("name", CASES)
def test_static_and_eager_steps_are_the_same_program(name):
    fn, shape, parameters = CASES[name]
    start = {k: RNG.normal(size=shape) / 3 for k, shape in parameters.items()}
    data = RNG.normal(size=(6, *shape)), RNG.integers(0, 3, 6)
    (one, values), (two, others) = built(fn, data, start), recorded(fn, data, start)
    assert str(normalized(one)) == str(normalized(two))
    for a, b in zip(values, others, strict=True):
        np.testing.assert_array_equal(a, b)

"""The same model in every generation's form takes the same fifty steps."""

import numpy as np
import pytest

import weft
from weft import layers, nn, static
from weft.nn import functional as F

STEPS, RATE = 50, 0.1


class Case:
    """A model's parameters and data, and its form in each generation."""

    def __init__(self, params, x, labels):
        self.params, self.x, self.labels = params, x, labels

    def modules(self):
        """The model of ``weft.nn``, with these parameters."""
        model = self.module().double()
        named = zip(model.parameters(), self.in_module_form(), strict=True)
        with weft.no_grad():
            for p, value in named:
                p.copy_(weft.tensor(value))
        return model


class MLP(Case):
    def __init__(self, rng):
        w1, w2 = rng.normal(size=(5, 16)) / 2, rng.normal(size=(16, 3)) / 4
        params = [w1, rng.normal(size=16) / 8, w2, np.zeros(3)]
        super().__init__(params, rng.normal(size=(32, 5)), rng.integers(0, 3, 32))

    def layers(self):
        return [layers.Dense(5, 16), layers.Tanh(), layers.Dense(16, 3)]

    def module(self):
        return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))

    def in_module_form(self):
        w1, b1, w2, b2 = self.params
        return [w1.T, b1, w2.T, b2]

    def static(self, x, variables):
        w1, b1, w2, b2 = variables
        return static.nn.xw_plus_b(static.tanh(x @ w1 + b1), w2, b2)


class CNN(Case):
    def __init__(self, rng):
        kernel = rng.normal(size=(4, 1, 3, 3)) / 3  # (out, in, height, width)
        w = rng.normal(size=(4 * 3 * 3, 3)) / 6
        params = [kernel, rng.normal(size=4) / 4, w, np.zeros(3)]
        x = rng.normal(size=(16, 1, 8, 8))
        super().__init__(params, x, rng.integers(0, 3, 16))

    def layers(self):
        return [
            layers.Conv2D(1, 4, kernel=3), layers.ReLU(), layers.MaxPool2D(2),
            layers.Flatten(), layers.Dense(36, 3),
        ]  # fmt: skip

    def module(self):
        return nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(36, 3),
        )  # fmt: skip

    def in_module_form(self):
        kernel, b1, w, b2 = self.params
        return [kernel, b1, w.T, b2]

    def static(self, x, variables):
        kernel, b1, w, b2 = variables
        filters = static.transpose(kernel, [2, 3, 1, 0])  # (height, width, in, out)
        images = static.transpose(x, [0, 2, 3, 1])
        h = static.nn.conv2d(images, filters, [1, 1, 1, 1], "VALID")
        h = static.nn.relu(static.nn.bias_add(h, b1))
        h = static.nn.max_pool(h, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
        flat = static.reshape(static.transpose(h, [0, 3, 1, 2]), [-1, 36])
        return static.matmul(flat, w) + b2


def by_layers(case):
    net = layers.Net(case.layers())
    given = iter(case.params)
    wanted = [{k: weft.tensor(next(given)).reshape(v.shape) for k, v in p.items()}
              for p in net.get_parameters()]  # fmt: skip
    net.double().set_parameters(wanted)
    model = layers.Model(net, layers.SoftmaxCrossEntropy(), layers.SGD(lr=RATE))
    x, labels = weft.tensor(case.x), weft.tensor(case.labels)
    for _ in range(STEPS):
        loss, grads = model.backward(model.forward(x), labels)
        model.apply_grad(grads)
        yield float(loss)


def session_losses(case, logits_of):
    with static.Graph().as_default() as graph, static.Session(graph) as session:
        x = static.placeholder(weft.float64, [None, *case.x.shape[1:]])
        labels = static.placeholder(weft.int64, [None])
        each = static.nn.sparse_softmax_cross_entropy_with_logits(labels, logits_of(x))
        loss = static.reduce_mean(each)
        step = static.train.GradientDescentOptimizer(RATE).minimize(loss)
        session.run(static.global_variables_initializer())
        feed = {x: case.x, labels: case.labels}
        for _ in range(STEPS):
            yield float(session.run([loss, step], feed)[0])


def by_session(case):
    def logits(x):
        return case.static(x, [static.Variable(p) for p in case.params])

    return session_losses(case, logits)


def by_session_with_modules(case):
    return session_losses(case, case.modules())


def eager_step(case):
    model = case.modules()
    optimizer = weft.optim.SGD(model.parameters(), lr=RATE)

    def step(x, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def by_modules(case):
    step, x, labels = eager_step(case), weft.tensor(case.x), weft.tensor(case.labels)
    for _ in range(STEPS):
        yield step(x, labels).item()


def by_capture(case):
    """The eager step, woven into a graph once."""
    x, labels = weft.tensor(case.x), weft.tensor(case.labels)
    step = weft.graph.capture(eager_step(case), x, labels)
    for _ in range(STEPS):
        yield step(x, labels).item()


def by_hand_in_numpy(case):
    """The MLP and its gradients written out."""
    w1, b1, w2, b2 = (p.copy() for p in case.params)
    x, n = case.x, len(case.x)
    for _ in range(STEPS):
        h = np.tanh(x @ w1 + b1)
        logits = h @ w2 + b2
        chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        yield -np.log(chances[np.arange(n), case.labels]).mean()
        g = (chances - np.eye(3)[case.labels]) / n
        gh = g @ w2.T * (1 - h * h)
        w2, b2 = w2 - RATE * h.T @ g, b2 - RATE * g.sum(0)
        w1, b1 = w1 - RATE * x.T @ gh, b1 - RATE * gh.sum(0)


GENERATIONS = [by_layers, by_session, by_session_with_modules, by_capture]


@pytest.mark.parametrize("way", GENERATIONS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", [MLP, CNN])
def test_the_same_losses(kind, way):
    want = list(by_modules(kind(np.random.default_rng(1))))
    found = list(way(kind(np.random.default_rng(1))))
    assert len(found) == STEPS
    assert want[-1] < 0.8 * want[0]
    np.testing.assert_allclose(found, want, rtol=1e-10)


def test_the_losses_are_those_of_the_formulas():
    case = MLP(np.random.default_rng(1))
    np.testing.assert_allclose(
        list(by_modules(case)), list(by_hand_in_numpy(case)), rtol=1e-10
    )

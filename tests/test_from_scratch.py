"""The scalar engine of the docs agrees with the library, and learns."""

import importlib.util
import math
import pathlib
import random

import numpy as np
import pytest

import weft

PATH = pathlib.Path(__file__).parent.parent / "docs" / "weft_from_scratch.py"


@pytest.fixture(scope="module")
def scratch():
    spec = importlib.util.spec_from_file_location("weft_from_scratch", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_short():
    assert len(PATH.read_text().splitlines()) <= 150


STEPS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / (b * b + 1.5),
    "pow": lambda a, b: (a * a + 0.5) ** 1.7,
    "exp": lambda a, b: (a * 0.3).exp(),
    "log": lambda a, b: (a * a + 1.0).log(),
    "sin": lambda a, b: a.sin(),
    "tanh": lambda a, b: a.tanh(),
    "relu": lambda a, b: (a * a - 0.1 * b).relu(),
    "rsub": lambda a, b: 2.0 - a,
    "rdiv": lambda a, b: 1.0 / (a * a + 2.0),
}


def random_program(seed):
    """A program as data: which step, on which earlier values."""
    rng = random.Random(seed)
    steps = []
    for k in range(rng.randint(2, 9)):
        steps.append(
            (rng.choice(list(STEPS)), rng.randrange(2 + k), rng.randrange(2 + k))
        )
    return steps


def run(program, x, y):
    values = [x, y]
    for name, i, j in program:
        values.append(STEPS[name](values[i], values[j]))
    return values[-1] + values[len(values) // 2] * 0.5


def test_agrees_on_a_thousand_random_expressions(scratch):
    rng = random.Random(0)
    for seed in range(1000):
        program = random_program(seed)
        a, b = rng.uniform(-1.5, 1.5), rng.uniform(-1.5, 1.5)
        x, y = scratch.Value(a), scratch.Value(b)
        out = run(program, x, y)
        out.backward()
        u = weft.tensor(a, dtype=weft.float64, requires_grad=True)
        v = weft.tensor(b, dtype=weft.float64, requires_grad=True)
        loss = run(program, u, v)
        du, dv = weft.autograd.grad(loss, [u, v], materialize_grads=True)
        assert out.data == pytest.approx(loss.item(), rel=1e-10, abs=1e-12), program
        assert x.grad == pytest.approx(du.item(), rel=1e-9, abs=1e-10), program
        assert y.grad == pytest.approx(dv.item(), rel=1e-9, abs=1e-10), program


def test_the_documents_first_example(scratch):
    x1, x2 = scratch.Value(2.0), scratch.Value(5.0)
    y = (x2 * x2 + x2 * x1).log() - x1.sin()
    y.backward()
    assert x1.grad == pytest.approx(5 / 35 - math.cos(2.0))
    assert x2.grad == pytest.approx(12 / 35)


def moons(n, rng):
    """Two half circles that reach into each other, labelled -1 and 1."""
    points = []
    for k in range(n):
        angle = rng.uniform(0, math.pi)
        x, y = math.cos(angle), math.sin(angle)
        if k % 2:
            x, y = 1 - x, 0.5 - y
        points.append(([x + rng.gauss(0, 0.1), y + rng.gauss(0, 0.1)], 2 * (k % 2) - 1))
    return points


def test_the_demo_of_micrograd_runs(scratch):
    """A max-margin classifier of two moons, written as for micrograd."""
    Value, MLP = scratch.Value, scratch.MLP
    random.seed(1337)
    points = moons(40, random.Random(1))
    X, y = np.array([x for x, _ in points]), np.array([label for _, label in points])
    model = MLP(2, [8, 8, 1])
    assert len(model.parameters()) == 3 * 8 + 9 * 8 + 9

    def loss():
        inputs = [list(map(Value, row)) for row in X]
        scores = list(map(model, inputs))
        losses = [(1 + -yi * score).relu() for yi, score in zip(y, scores, strict=True)]
        data_loss = sum(losses) * (1.0 / len(losses))
        reg_loss = 1e-4 * sum(p * p for p in model.parameters())
        right = [(yi > 0) == (s.data > 0) for yi, s in zip(y, scores, strict=True)]
        return data_loss + reg_loss, sum(right) / len(right)

    first, _ = loss()
    for k in range(50):
        total, _ = loss()
        model.zero_grad()
        total.backward()
        for p in model.parameters():
            p.data -= (1.0 - 0.9 * k / 50) * p.grad
    total, accuracy = loss()
    assert accuracy > 0.95
    assert total.data < 0.2 < first.data


def test_the_readme_of_micrograd(scratch):
    """Its first example, whose values its author prints."""
    Value = scratch.Value
    a, b = Value(-4.0), Value(2.0)
    c = a + b
    d = a * b + b**3
    c += c + 1
    c += 1 + c + (-a)
    d += d * 2 + (b + a).relu()
    d += 3 * d + (b - a).relu()
    e = c - d
    f = e**2
    g = f / 2.0
    g += 10.0 / f
    g.backward()
    assert (round(g.data, 4), round(a.grad, 4), round(b.grad, 4)) == (
        24.7041, 138.8338, 645.5773,
    )  # fmt: skip


def test_a_layer_gives_many_values(scratch):
    layer, net = scratch.Layer(2, 3), scratch.MLP(2, [3, 2])
    assert all(v.data >= 0 for v in layer([1.0, -2.0]))
    assert len(net([1.0, 2.0])) == 2
    sum(net([1.0, 2.0])).backward()
    assert any(p.grad for p in net.parameters())
    net.zero_grad()
    assert not any(p.grad for p in net.parameters())


def test_repeated_inputs_and_repr(scratch):
    x = scratch.Value(-1.0)
    (x - x + x / x + 2 * x).backward()
    assert repr(x) == "Value(data=-1, grad=2)"

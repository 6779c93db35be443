"""The scalar engine of the docs agrees with the library, and learns."""

import importlib.util
import math
import pathlib
import random

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
    "relu": lambda a, b: a * a - 0.1 * b,
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


def test_a_network_learns_xor(scratch):
    random.seed(1)
    net = scratch.Network([2, 6, 1])
    data = [((0, 0), 0), ((0, 1), 1), ((1, 0), 1), ((1, 1), 0)]

    def loss():
        return sum(((net(x)[0] - t) ** 2 for x, t in data), scratch.Value(0.0))

    losses = [scratch.train(loss, net.parameters(), lr=0.1) for _ in range(300)]
    assert losses[-1] < 0.05 < losses[0]


def test_repeated_inputs_and_repr(scratch):
    x = scratch.Value(-1.0)
    (x - x + x / x + 2 * x).backward()
    assert repr(x) == "Value(-1, grad=2)"

"""Whole trainings, compiled and eager: 200 steps of each kind of model.

Both run in float32, and the same training runs once in float64. Rounding errors grow
over the steps, eager ones as well; so the measure of a compiled training is how far
its losses are from those of float64, compared with how far the eager ones are. It may
be ``FACTOR`` times as far: both are sums of rounding errors, in another order.
Learning rates are small, since a training at the edge of stability magnifies any
rounding error without limit. The same program gives the same bits in every run and
for every number of threads.
"""

import functools

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.models import GPT, MLP, CharLSTM, LeNet, ResNet
from weft.models.resnet import BasicBlock
from weft.nn import functional as F

STEPS = 200
FACTOR = 4


class VAE(nn.Module):
    """A variational autoencoder of vectors (Kingma and Welling, 2013)."""

    def __init__(self, width=32, code=4):
        super().__init__()
        self.encoder = nn.Linear(width, 24, act="tanh")
        self.mean, self.spread = nn.Linear(24, code), nn.Linear(24, code)
        self.decoder = nn.Sequential(
            nn.Linear(code, 24, act="tanh"), nn.Linear(24, width)
        )

    def loss(self, x):
        hidden = self.encoder(x)
        mean, log_var = self.mean(hidden), self.spread(hidden)
        noise = weft.randn(mean.shape, dtype=weft.float32).to(mean.dtype)
        code = mean + noise * (0.5 * log_var).exp()
        fit = F.binary_cross_entropy_with_logits(self.decoder(code), x, reduction="sum")
        apart = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum()
        return (fit + apart) / x.shape[0]


def classify(model, x, y):
    return F.cross_entropy(model(x), y)


def next_token(model, x, y):
    out = model(x)
    out = out[0] if isinstance(out, tuple) else out
    return F.cross_entropy(out.flatten(0, 1), y.flatten())


def images(*shape):
    return lambda rng: (rng.normal(0, 1, shape), rng.integers(0, 10, shape[:1]))


def tokens(rows, length):
    def draw(rng):
        text = rng.integers(0, 12, (rows, length + 1)).cumsum(1) % 12
        return text[:, :-1], text[:, 1:]

    return draw


def pictures(rng):
    return (rng.random((8, 32)) < 0.4).astype(float), np.zeros(1, np.int64)


def residual():
    """A block with the identity beside it, and one with a convolution."""
    return ResNet(BasicBlock, [1, 1], classes=10, cifar=True, width=4)


# name: model, loss, optimizer, data
TRAININGS = {
    "MLP": (lambda: MLP([20, 32, 32, 10]), classify,
            functools.partial(optim.Adam, lr=1e-3), images(16, 20)),
    "LeNet": (LeNet, classify,
              functools.partial(optim.SGD, lr=0.01, momentum=0.9),
              images(4, 1, 28, 28)),
    "ResNet": (residual, classify,
               functools.partial(optim.SGD, lr=1e-4, momentum=0.9),
               images(4, 3, 16, 16)),
    "GPT": (lambda: GPT(12, context=8, width=32, heads=2, layers=1), next_token,
            functools.partial(optim.AdamW, lr=3e-4), tokens(8, 8)),
    "LSTM": (lambda: CharLSTM(12, 16), next_token,
             functools.partial(optim.Adam, lr=1e-3), tokens(4, 6)),
    "VAE": (VAE, lambda model, x, y: model.loss(x),
            functools.partial(optim.Adam, lr=1e-3), pictures),
}  # fmt: skip


def train(name, *, compiled, dtype=weft.float32, steps=STEPS):
    """The losses of a training, and the parameters it ends with."""
    make, loss_of, optimizer_of, draw = TRAININGS[name]
    weft.manual_seed(7)
    model = make().to(dtype)
    optimizer = optimizer_of(model.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = weft.compile(step) if compiled else step
    batches = [draw(np.random.default_rng(k)) for k in range(4)]
    weft.manual_seed(11)
    losses = []
    for k in range(steps):
        x, y = (weft.tensor(a) for a in batches[k % 4])
        x = x.to(dtype) if x.dtype.is_floating_point else x
        losses.append(run(x, y).item())
    if compiled:
        assert len(run.compiles) <= 2, run.compiles
    return np.array(losses), [p.detach().numpy().copy() for p in model.parameters()]


def distance(losses, exact):
    """How far losses are from the exact ones, over all steps."""
    return float(np.sqrt(np.mean((losses - exact) ** 2)))


@functools.cache
def losses_of(name, compiled=False, dtype=weft.float32):
    return train(name, compiled=compiled, dtype=dtype)[0]


@pytest.mark.parametrize("name", TRAININGS)
def test_compiled_equals_eager(name):
    exact, eager = losses_of(name, dtype=weft.float64), losses_of(name)
    compiled = losses_of(name, compiled=True)
    assert exact[-1] < exact[0]
    # no training is that steady: a loss is rounded to float32, once a step
    least = np.finfo(np.float32).eps * np.abs(exact).max()
    allowed = FACTOR * max(distance(eager, exact), least)
    assert distance(compiled, exact) <= allowed, (distance(compiled, exact), allowed)


@pytest.fixture
def threads():
    before = weft.get_num_threads()
    yield weft.set_num_threads
    weft.set_num_threads(before)


@pytest.mark.parametrize("name", TRAININGS)
def test_bits_are_the_same_in_every_run_and_for_every_number_of_threads(name, threads):
    found = []
    for count in (1, 2, 3):
        threads(count)
        found.append(train(name, compiled=True, steps=12))
    losses, parameters = found[0]
    assert np.array_equal(losses, losses_of(name, compiled=True)[:12])
    for other, those in found[1:]:
        assert np.array_equal(other, losses)
        assert all(map(np.array_equal, those, parameters))


def test_a_small_mistake_is_noticed(monkeypatch):
    """A learning rate that is a hundred-thousandth too large."""
    exact, eager = losses_of("MLP", dtype=weft.float64), losses_of("MLP")
    make, loss_of, _, draw = TRAININGS["MLP"]
    faster = functools.partial(optim.Adam, lr=1e-3 * (1 + 1e-5))
    monkeypatch.setitem(TRAININGS, "MLP", (make, loss_of, faster, draw))
    wrong = train("MLP", compiled=True)[0]
    assert distance(wrong, exact) > FACTOR * distance(eager, exact)

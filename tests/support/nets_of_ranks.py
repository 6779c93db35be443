"""Networks and training steps that tests of several processes share."""

import numpy as np

import weft
from weft import nn, optim
from weft.models import GPT
from weft.nn import functional as F

STEPS = 50


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 17), nn.Linear(17, 3)  # 17 rows: uneven

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Residual(nn.Module):
    """A small residual network, normalised by groups of channels."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(2, 4), nn.GroupNorm(2, 4)
        self.conv1, self.conv2 = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = F.relu(self.stem(x))
        y = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(x + self.norm2(self.conv2(y)))
        return self.head(x.mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


class Mixture(nn.Module):
    """Experts, of which a gate mixes two for each sample."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.experts = nn.ModuleList([MLP() for _ in range(4)])

    def forward(self, x):
        scores, chosen = self.gate(x).topk(2, -1)
        weights = F.softmax(scores, -1)
        every = weft.stack([expert(x) for expert in self.experts], 1)  # (B, 4, 3)
        picked = every.gather(1, chosen[:, :, None].expand(-1, -1, 3))
        return (picked * weights[:, :, None]).sum(1)


def samples(name, rng):
    """Inputs and targets of a network's kind."""
    if name == "gpt":
        return rng.integers(0, 11, (8, 6)), rng.integers(0, 11, (8, 6))
    shape = {"resnet": (8, 2, 4, 4), "lstm": (8, 4, 3)}.get(name, (8, 6))
    return rng.standard_normal(shape), rng.integers(0, 3, 8)


NETS = {
    "mlp": MLP, "resnet": Residual, "lstm": Recurrent, "moe": Mixture,
    "gpt": lambda: GPT(vocab=11, context=6, width=8, heads=2, layers=1),
}  # fmt: skip


def network(name, dtype="float64", seed=3):
    weft.manual_seed(seed)
    return NETS[name]().to(getattr(weft, dtype))


def batch(name, dtype="float64", rank=0, size=1):
    """A share of the batch."""
    inputs, targets = samples(name, np.random.default_rng(0))
    x, t = weft.tensor(inputs[rank::size]), weft.tensor(targets[rank::size])
    return (x.to(getattr(weft, dtype)) if x.is_floating_point() else x), t


def adam(parameters):
    return optim.AdamW(parameters, lr=1e-2)


def momentum(parameters):
    """A rule that does not blow up what is zero but for rounding."""
    return optim.SGD(parameters, lr=0.05, momentum=0.9)


def stepper(net, optimizer, clip=None):
    """A training step; gradients may be clipped."""

    def step(x, t):
        optimizer.zero_grad()
        out = net(x)
        loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), t.reshape(-1))
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        return loss.detach()

    return step


def whole(tensor):
    """A parameter's value, of all processes' parts."""
    found = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return found.detach().double().numpy()


def alone(name, dtype="float64", make=adam, clip=None, steps=STEPS):
    """Losses and parameters of one process with the whole batch."""
    net = network(name, dtype)
    step = stepper(net, make(net.parameters()), clip)
    data = batch(name, dtype)
    losses = [step(*data).item() for _ in range(steps)]
    return losses, [whole(p) for p in net.parameters()]


def assert_same(found, wanted, dtype="float64"):
    near = 1e-10 if dtype == "float64" else 2e-5
    (losses, parameters), (want, others) = found, wanted
    np.testing.assert_allclose(losses, want, near)
    for one, other in zip(parameters, others, strict=True):
        np.testing.assert_allclose(one, other, near, near)

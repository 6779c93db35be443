"""Data parallel training against one process with the whole batch."""

import numpy as np
import pytest

import weft
import weft.distributed as dist
from weft import nn, optim
from weft.models import GPT
from weft.nn import functional as F

STEPS = 50


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))

    def forward(self, x):
        return self.net(x)


class Residual(nn.Module):
    """A small residual network, normalised over the batch of all processes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.norm1, self.norm2 = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        # a bias before a norm has no gradient but rounding
        self.conv1, self.conv2 = (
            nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2)
        )
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = F.relu(self.stem(x))
        y = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(x + self.norm2(self.conv2(y)))
        return self.head(x.mean((2, 3)))


def mlp(rng):
    return MLP(), rng.standard_normal((8, 6)), rng.integers(0, 3, 8)


def resnet(rng):
    return Residual(), rng.standard_normal((8, 2, 4, 4)), rng.integers(0, 3, 8)


def gpt(rng):
    net = GPT(vocab=11, context=6, width=8, heads=2, layers=1)
    return net, rng.integers(0, 11, (8, 6)), rng.integers(0, 11, (8, 6))


NETS = {"mlp": mlp, "resnet": resnet, "gpt": gpt}


def trained(name, dtype, compiling, rank, size, wrap):
    """Losses and parameters after ``STEPS`` steps with this share of the batch."""
    weft.manual_seed(3 + (rank if wrap else 0))  # rank 0's parameters count
    net, inputs, targets = NETS[name](np.random.default_rng(0))
    net = net.to(getattr(weft, dtype))
    if wrap:
        weft.manual_seed(3)
        net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
        net = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.0005)
        assert len(net._reducer.buckets) > 1
    if dtype == "float64":
        optimizer = optim.AdamW(net.parameters(), lr=1e-2)
    else:  # which does not blow up what is zero but for rounding
        optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    x = weft.tensor(inputs[rank::size])
    x = x.to(getattr(weft, dtype)) if x.is_floating_point() else x
    t = weft.tensor(targets[rank::size])

    def step(x, t):
        optimizer.zero_grad()
        out = net(x)
        loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), t.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = weft.compile(step) if compiling else step
    losses = [run(x, t) for _ in range(STEPS)]
    if compiling:
        assert len(run.compiles) <= 2
    return losses, [p.detach().double().numpy() for p in net.parameters()]


def equal_to_one_process(name, dtype, compiling):
    rank, size = dist.get_rank(), dist.get_world_size()
    losses, parameters = trained(name, dtype, compiling, rank, size, True)
    mean = weft.stack(losses)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    want, wanted = trained(name, dtype, False, 0, 1, False) if not rank else ([], [])
    if rank == 0:
        near = 1e-10 if dtype == "float64" else 1e-5
        np.testing.assert_allclose(mean.numpy(), weft.stack(want).numpy(), near)
        for one, other in zip(parameters, wanted, strict=True):
            np.testing.assert_allclose(one, other, near, near)
    every = [None] * size
    dist.all_gather_object(every, parameters)
    for one in every:  # bit for bit
        assert all(np.array_equal(a, b) for a, b in zip(one, parameters, strict=True))


CASES = [
    (2, "mlp", "float64", False), (4, "mlp", "float64", True),
    (2, "mlp", "float32", True), (4, "resnet", "float64", False),
    (2, "resnet", "float64", True), (4, "gpt", "float64", False),
    (2, "gpt", "float64", True), (2, "gpt", "float32", False),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_fifty_steps_are_those_of_one_process(case, worlds):
    size, *rest = case
    worlds.ok(equal_to_one_process, size, *rest)


class Choosing(nn.Module):
    """Ranks use different parts; nobody uses the last."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(2, 2) for _ in range(4)])

    def forward(self, x, which):
        return self.parts[which](x) + self.parts[2](x)


def unused_parameters():
    rank, size = dist.get_rank(), dist.get_world_size()
    net = nn.parallel.DistributedDataParallel(Choosing().double())
    parts = net.module.parts
    for round in range(3):
        net.zero_grad()
        x = weft.full((1, 2), 1.0 + rank + round, dtype=weft.float64)
        net(x, rank % 2).sum().backward()
        seen = [1.0 + r + round for r in range(size)]
        assert parts[0].weight.grad[0, 0].item() == sum(seen[::2]) / size
        assert parts[1].weight.grad[0, 0].item() == sum(seen[1::2]) / size
        assert parts[2].weight.grad[0, 0].item() == sum(seen) / size
        assert parts[3].weight.grad is None
        assert net.module.parts[0].bias.grad[0].item() == len(seen[::2]) / size


def nothing_used_on_a_rank():
    net = nn.parallel.DistributedDataParallel(nn.Linear(1, 1, bias=False))
    x = weft.ones(1, 1, requires_grad=True)
    out = net(x) if dist.get_rank() == 0 else net(x).detach() * 0 + x
    if dist.get_rank() == 0:
        out.sum().backward()
    else:  # the output does not depend on the parameter
        net._reducer.watch(out)
        out.sum().backward()
    assert net.module.weight.grad.item() == 1 / dist.get_world_size()


def accumulated():
    rank, size = dist.get_rank(), dist.get_world_size()
    net = nn.parallel.DistributedDataParallel(nn.Linear(1, 1, bias=False))
    x = weft.full((1, 1), rank + 1.0)
    calls = dist.groups.world().calls
    with net.no_sync():
        net(x).sum().backward()
        assert net.module.weight.grad.item() == rank + 1
    assert dist.groups.world().calls == calls
    net(x).sum().backward()
    assert net.module.weight.grad.item() == 2 * sum(range(1, size + 1)) / size
    with weft.no_grad():
        net(x)


def different_modules():
    width = 3 + (dist.get_rank() == 1)
    with pytest.raises(ValueError, match=r"parameter 0 is 'weight', float32\[2, 3\] on "
                       r"rank 0, but 'weight', float32\[2, 4\] on rank 1"):  # fmt: skip
        nn.parallel.DistributedDataParallel(nn.Linear(width, 2))


def compiled_parts_differ():
    """A captured step says which parameters it averages."""
    net = nn.parallel.DistributedDataParallel(Choosing())

    @weft.compile
    def step(x):
        net(x, dist.get_rank()).sum().backward()

    with pytest.raises(RuntimeError, match="of=4 parameters"):
        step(weft.ones(1, 2))


def compiled_module():
    """The module alone is compiled, and its backward runs outside of it."""
    rank, size = dist.get_rank(), dist.get_world_size()
    net = nn.parallel.DistributedDataParallel(nn.Linear(2, 1, bias=False))
    run = weft.compile(net)
    for _ in range(3):
        net.zero_grad()
        run(weft.full((1, 2), rank + 1.0)).sum().backward()
        assert net.module.weight.grad[0, 0].item() == sum(range(1, size + 1)) / size


def names():
    net = nn.parallel.DistributedDataParallel(nn.BatchNorm1d(2))
    assert next(iter(net.state_dict())) == "module.weight"
    assert net.module.training
    with pytest.raises(TypeError, match="such as a state_dict"):
        weft.save(net, "/dev/null")
    with pytest.raises(RuntimeError, match="not needed when a module"):
        nn.parallel.DistributedDataParallel(nn.ReLU())


def buffers():
    """Buffers are those of the first process."""
    net = nn.parallel.DistributedDataParallel(nn.BatchNorm1d(2))
    for _ in range(2):
        net(weft.randn(4, 2) + 10 * dist.get_rank())
    net(weft.ones(4, 2))
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, net.module.running_mean)
    assert all(weft.equal(one, every[0]) for one in every)


CHECKS = [
    unused_parameters, nothing_used_on_a_rank, accumulated, different_modules,
    compiled_parts_differ, compiled_module, names, buffers,
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_on_two_ranks(check, worlds):
    worlds.ok(check, 2)

"""Attention over a ring of processes, and training on pieces of sequences."""

import nets_of_ranks as nets
import numpy as np
import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft.distributed.tensor import (
    context_parallel,
    context_parallel_unshard,
    ring_attention,
)
from weft.nn import functional as F


def numbers(*shape, seed=0):
    return weft.tensor(np.random.default_rng(seed).standard_normal(shape))


def attended(compiling):
    """Values and gradients are those of the whole sequence."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for causal in (False, True):
        whole = [numbers(2, 3, 8, 4, seed=k).requires_grad_() for k in range(3)]
        weight = numbers(2, 3, 8, 4, seed=9)
        want = F.scaled_dot_product_attention(*whole, is_causal=causal)
        (want * weight).sum().backward()
        pieces = [
            x.detach().chunk(size, 2)[rank].clone().requires_grad_() for x in whole
        ]

        def loss(q, k, v, w, causal=causal):
            out = ring_attention(q, k, v, causal)
            (out * w).sum().backward()
            return out.detach()

        run = weft.compile(loss) if compiling else loss
        found = run(*pieces, weight.chunk(size, 2)[rank])
        if compiling:
            assert not run.refused
        mine = want.detach().chunk(size, 2)[rank]
        np.testing.assert_allclose(found.numpy(), mine.numpy(), 1e-12, 1e-13)
        for one, other in zip(pieces, whole, strict=True):
            g = other.grad.chunk(size, 2)[rank]
            np.testing.assert_allclose(one.grad.numpy(), g.numpy(), 1e-10, 1e-12)


@pytest.mark.parametrize(("size", "compiling"), [(2, True), (4, False), (1, False)])
def test_a_ring_of_processes_attends_to_all(worlds, size, compiling):
    worlds.ok(attended, size, compiling)


class Reader(nn.Module):
    """A transformer that is told the positions."""

    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(11, 8), nn.Embedding(8, 8)
        # a bias of keys has no gradient but rounding, which Adam would blow up
        self.qkv, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 11)

    def forward(self, ids, positions):
        x = self.token(ids) + self.position(positions)
        q, k, v = (
            part.unflatten(-1, (2, -1)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(x + self.out(y.transpose(1, 2).flatten(2)))


def stepper(net, optimizer):
    def step(ids, positions, targets):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(ids, positions).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def trained(compiling):
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    draw = np.random.default_rng(0)
    data = [weft.tensor(draw.integers(0, 11, (4, 8))), weft.arange(8),
            weft.tensor(draw.integers(0, 11, (4, 8)))]  # fmt: skip
    weft.manual_seed(0)
    plain = Reader().double()
    weft.manual_seed(0)
    inner = Reader().double()
    net = nn.parallel.DistributedDataParallel(inner)
    step = stepper(net, nets.adam(net.parameters()))
    run = weft.compile(step) if compiling else step
    losses = []
    for _ in range(nets.STEPS):
        with context_parallel(mesh, buffers=data, buffer_seq_dims=[1, 0, 1]):
            assert data[0].shape == (4, 8 // mesh.size())
            losses.append(run(*data))
    assert data[0].shape == (4, 8)
    if compiling:
        assert len(run.compiles) <= 2
        assert not run.refused
    mean = weft.stack(losses)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    step = stepper(plain, nets.adam(plain.parameters()))
    want = [step(*data).item() for _ in range(nets.STEPS)]
    found = mean.tolist(), [nets.whole(p) for p in inner.parameters()]
    nets.assert_same(found, (want, [nets.whole(p) for p in plain.parameters()]))
    # outside of the block, the compiled step attends to its own sequence again
    loss = run(*data)
    assert abs(loss.item() - step(*data).item()) < 1e-9


@pytest.mark.parametrize(("size", "compiling"), [(2, True), (4, False)])
def test_fifty_steps_are_those_of_one_process(worlds, size, compiling):
    worlds.ok(trained, size, compiling)


def refused():
    mesh = dist.init_device_mesh("cpu", (2,))
    x = weft.arange(5)
    for arguments, words in (
        (((x,), (0,)), "a sequence of 5 does not divide into 2 equal pieces"),
        (((x,), ()), "same number of elements as `buffers`, got 0 and 1"),
    ):
        with (
            pytest.raises(ValueError, match=words),
            context_parallel(mesh, buffers=arguments[0], buffer_seq_dims=arguments[1]),
        ):
            pass
    q = weft.ones(1, 2, 4)
    with context_parallel(mesh):
        with pytest.raises(ValueError, match="neither a mask nor dropout"):
            F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
        layer = weft.nn.MultiheadAttention(4, 2)
        with pytest.raises(ValueError, match="piece of the sequence alone"):
            layer(q, q, q, need_weights=False)
        with (
            pytest.raises(ValueError, match="such a block around"),
            context_parallel(mesh),
        ):
            pass
    with pytest.raises(ValueError, match="as many queries as keys"):
        ring_attention(q, q[:, :1], q[:, :1], is_causal=True)
    (whole,) = context_parallel_unshard(mesh, [x[:2] + 2 * dist.get_rank()], [0])
    assert whole.tolist() == [0, 1, 2, 3]


def test_what_is_refused(worlds):
    worlds.ok(refused, 2)

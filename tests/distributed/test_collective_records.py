"""Collectives as operators: derivatives, graphs, compiled steps."""

import numpy as np
import pytest

import weft
import weft.distributed as dist
import weft.distributed.nn as functional
from weft import nn, optim


def mine(*shape):
    rng = np.random.default_rng(dist.get_rank() + 1)
    return weft.tensor(rng.standard_normal(shape), requires_grad=True)


FUNCTIONS = {
    "all_reduce": lambda x: functional.all_reduce(x),
    "all_reduce avg": lambda x: functional.all_reduce(x, dist.ReduceOp.AVG),
    "all_reduce max": lambda x: functional.all_reduce(x, dist.ReduceOp.MAX),
    "broadcast": lambda x: functional.broadcast(x, 1),
    "reduce": lambda x: functional.reduce(x, 1),
    "all_gather": lambda x: weft.cat(functional.all_gather(x)),
    "gather": lambda x: weft.cat(functional.gather(x, 1)),
    "scatter": lambda x: functional.scatter(list(x.split(1)), 1),
    "reduce_scatter": lambda x: functional.reduce_scatter(None, list(x.split(1))),
    "all_to_all": lambda x: functional.all_to_all_single(None, x),
}


def total(fn, x, weight):
    """The sum of all ranks' losses, of which gradients are."""
    loss = (fn(x).sin() * weight).sum()
    sums = loss.detach().clone()
    dist.all_reduce(sums)
    return loss, sums.item()


def gradients():
    """Each derivative against a difference quotient of the sum of all losses."""
    size = dist.get_world_size()
    for name, fn in FUNCTIONS.items():
        x = mine(size, 2)
        weight = weft.tensor(np.random.default_rng(9).standard_normal(fn(x).shape))
        loss, _ = total(fn, x, weight)
        loss.backward()
        rng = np.random.default_rng(5 + dist.get_rank())
        step = weft.tensor(rng.standard_normal((size, 2)))
        slope = (x.grad * step).sum().detach()
        dist.all_reduce(slope)
        ends = [total(fn, (x + h * step).detach(), weight)[1] for h in (1e-6, -1e-6)]
        np.testing.assert_allclose(
            slope.item(), (ends[0] - ends[1]) / 2e-6, 1e-6, 1e-8, name
        )
        _, tangent = weft.func.jvp(fn, (x.detach(),), (step,))
        ends = [fn((x + h * step).detach()) for h in (1e-6, -1e-6)]
        quotient = (ends[0] - ends[1]).numpy() / 2e-6
        np.testing.assert_allclose(tangent.numpy(), quotient, 1e-6, 1e-8, name)


def batches():
    x = mine(3, dist.get_world_size(), 2).detach()
    for name in ("all_reduce", "broadcast", "all_gather", "all_to_all"):
        fn = FUNCTIONS[name]
        found = weft.func.vmap(fn)(x)
        want = weft.stack([fn(one) for one in x])
        np.testing.assert_array_equal(found.numpy(), want.numpy(), name)


def refused_derivatives():
    x = mine(2)
    with pytest.raises(RuntimeError, match="no gradient of PRODUCT"):
        functional.all_reduce(x, dist.ReduceOp.PRODUCT).sum().backward()


def graphs():
    def fn(x):
        a = functional.all_reduce(x)
        b = functional.all_reduce(x)  # not the same call
        functional.all_reduce(x * 3)  # of which nobody needs the result
        return a + b + functional.broadcast(x, 0)

    graph = weft.graph.capture(fn, weft.ones(2)).graph
    calls = [n for n in graph.nodes if n.op.facts.effect]
    assert [n.op.name for n in calls] == ["all_reduce"] * 3 + ["broadcast"]
    for before, after in zip(calls, calls[1:]):  # noqa: B905, RUF007
        assert after.after == (before,)
    from weft.compile import pipeline

    made = pipeline.run(graph, pipeline.PASSES)
    left = [n for n in made.nodes if n.op.facts.effect]
    assert [n.op.name for n in left] == ["all_reduce"] * 3 + ["broadcast"]
    text = str(graph)
    assert 'group=""' in text or "group" in text
    calls_before = dist.groups.world().calls
    compiled = weft.compile(fn)
    x = weft.ones(2) * (dist.get_rank() + 1)
    for _ in range(4):  # the last calls take the fast path
        np.testing.assert_array_equal(compiled(x).numpy(), fn(x).numpy())
    assert dist.groups.world().calls - calls_before == 4 * 2 * 4
    assert len(compiled.compiles) == 1


def steps():
    """A training step with collectives by hand, eager and compiled: the same bits."""
    losses = []
    for compiling in (False, True):
        weft.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
        optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            for p in net.parameters():
                dist.all_reduce(p.grad, dist.ReduceOp.AVG)
            optimizer.step()
            total = loss.detach().clone()
            work = dist.all_reduce(total, async_op=True)
            work.wait()
            return total

        run = weft.compile(step) if compiling else step
        x = mine(5, 3).detach()
        losses.append([run(x).item() for _ in range(6)])
        if compiling:
            assert len(run.compiles) <= 2
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-12)
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, [losses, [p.tolist() for p in net.parameters()]])
    assert all(one == every[0] for one in every)


def refused_captures():
    for fn, words in (
        (lambda x: dist.barrier(), "barrier is no part of a program"),
        (lambda x: dist.send(x, 0), "send is no part of a program"),
        (lambda x: dist.all_gather_object([0, 0], 1), "no part of a program"),
    ):
        with pytest.raises(Exception, match=words):
            weft.graph.capture(fn, weft.ones(2))


def errors_in_kernels():
    """An index that is out of range on one rank is an error there, and there alone."""

    @weft.compile
    def fn(x, i):
        return functional.all_reduce(x).sum() + x[i]

    x = weft.arange(4.0)
    assert fn(x, weft.tensor([1])).item() == 6 * dist.get_world_size() + 1
    if dist.get_rank() == 0:
        with pytest.raises(IndexError, match=r"index out of range.*has collectives"):
            fn(x, weft.tensor([7]))
    else:
        fn(x, weft.tensor([2]))
    dist.barrier()


CHECKS = [
    gradients, batches, refused_derivatives, graphs, steps, refused_captures,
    errors_in_kernels,
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_on_two_ranks(check, worlds):
    worlds.ok(check, 2)


def test_a_program_of_another_group_is_refused():
    from weft.distributed.records import all_gather_op

    with pytest.raises(ValueError, match="has not been initialized"):
        all_gather_op(weft.ones(2), group="", size=2, line="")


def test_alone_nothing_is_sent():
    from weft.distributed.records import all_reduce_op

    x = weft.ones(2)
    out = all_reduce_op(x, reduce="sum", of="", group="", size=1, line="")
    assert out.tolist() == [1, 1]
    assert not np.shares_memory(out.numpy(), x.numpy())

"""Plans that run: every product of strategies against one process."""

import nets_of_ranks as nets
import numpy as np
import pytest

import weft
import weft.distributed as dist
from weft.distributed.planning import Cluster, Strategy, traffic
from weft.nn import functional as F

CLUSTER = Cluster(flops=1e9, near=1e9)


def two_blocks():
    return weft.models.GPT(vocab=11, context=6, width=8, heads=2, layers=2)


nets.NETS["gpt2"] = two_blocks


def loss_of(out, target):
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), target.reshape(-1))


def data_of(name):
    return nets.batch("gpt" if name == "gpt2" else name)


def alone(name):
    net = nets.network(name)
    step = nets.stepper(net, nets.adam(net.parameters()))
    data = data_of(name)
    losses = [step(*data).item() for _ in range(nets.STEPS)]
    return losses, net.state_dict()


def trained(name, strategy):
    """Fifty steps under a strategy, and what each of them sends."""
    net = nets.network(name, seed=3 + dist.get_rank())  # rank 0's parameters count
    optimizer = nets.adam(net.parameters())
    x, t = data_of(name)
    plan = weft.parallel(net, (x, t), loss_fn=loss_of, optimizer=optimizer,
                         cluster=CLUSTER)  # fmt: skip
    chosen = Strategy(**strategy)
    assert chosen in [one for one, _ in plan.found]
    step = plan.training_step(strategy=chosen)
    losses, sent = [], set()
    for k in range(nets.STEPS):
        links = dist.groups.world().links
        before = {rank: link.sent for rank, link in links.links.items()}
        losses.append(step(x, t).item())
        if k:  # schedules agree in the first step
            after = {rank: link.sent - before[rank]
                     for rank, link in links.links.items()}  # fmt: skip
            sent.add(tuple(sorted((r, n) for r, n in after.items() if n)))
    (found,) = sent
    expected = traffic(plan.model.work(chosen.tensor), chosen)[dist.get_rank()]
    assert dict(found) == dict(expected)
    state = step.full_state_dict()
    if dist.get_rank() == 0:
        wanted, others = alone(name)
        np.testing.assert_allclose(losses, wanted, 1e-10)
        assert state.keys() == others.keys()
        for key, value in state.items():
            np.testing.assert_allclose(value.numpy(), others[key].numpy(), 1e-10, 1e-10)
    return losses[-1]


CASES = [
    (2, "mlp", {"data": 2, "microbatch": 4}),
    (2, "mlp", {"data": 2, "microbatch": 2, "sharding": "states"}),
    (2, "mlp", {"data": 2, "microbatch": 2, "sharding": "gradients"}),
    (2, "mlp", {"data": 2, "microbatch": 2, "sharding": "all"}),
    (2, "mlp", {"tensor": 2, "microbatch": 8}),
    (2, "mlp", {"pipeline": 2, "microbatch": 2}),
    (4, "mlp", {"data": 2, "tensor": 2, "microbatch": 2}),
    (4, "mlp", {"data": 2, "pipeline": 2, "microbatch": 2}),
    (4, "mlp", {"data": 2, "tensor": 2, "microbatch": 4, "sharding": "all"}),
    (2, "gpt2", {"tensor": 2, "microbatch": 4}),
    (2, "gpt2", {"pipeline": 2, "microbatch": 4}),
    (2, "gpt2", {"data": 2, "microbatch": 2, "sharding": "all"}),
    (4, "gpt2", {"data": 2, "tensor": 2, "microbatch": 4}),
    (4, "gpt2", {"data": 2, "pipeline": 2, "microbatch": 2, "sharding": "states"}),
    (4, "gpt2", {"data": 2, "pipeline": 2, "microbatch": 1, "sharding": "all"}),
    (4, "gpt2", {"tensor": 2, "pipeline": 2, "microbatch": 2}),
    (4, "gpt2", {"data": 2, "tensor": 2, "microbatch": 2, "sharding": "gradients"}),
    (4, "gpt2", {"pipeline": 4, "microbatch": 2}),
]  # fmt: skip


def shown(case):
    _, name, strategy = case
    return "-".join([name, *(f"{k}{v}" for k, v in strategy.items())])


@pytest.mark.parametrize("case", CASES, ids=shown)
def test_fifty_steps_are_those_of_one_process(case, worlds):
    size, name, strategy = case
    losses = worlds.ok(trained, size, name, strategy)
    assert len(set(losses)) == 1

"""Sharded training against one process with the whole batch."""

import copy
import tracemalloc

import nets_of_ranks as nets
import numpy as np
import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft.distributed import fsdp
from weft.distributed.tensor import DTensor, Shard
from weft.utils.checkpoint import checkpoint


def sharded(name, dtype, seed, mesh=None, reshard=None):
    net = nets.network(name, dtype, seed)
    blocks = net.blocks if name == "gpt" else list(net.children())[::2]
    for block in blocks:
        if type(block) is nn.ModuleList:
            continue
        fsdp.fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    return fsdp.fully_shard(net, mesh=mesh)


def equal_to_one_process(name, dtype="float64", compiling=False, clip=None, mesh=None):
    rank, size = dist.get_rank(), dist.get_world_size()
    grid = None if mesh is None else dist.init_device_mesh("cpu", tuple(mesh))
    make = nets.adam if dtype == "float64" else nets.momentum
    net = sharded(name, dtype, 3 + rank, grid)  # rank 0's parameters count
    step = nets.stepper(net, make(net.parameters()), clip)
    data = nets.batch(name, dtype, rank, size)
    run = weft.compile(step) if compiling else step
    losses = weft.stack([run(*data) for _ in range(nets.STEPS)])
    if compiling:
        assert len(run.compiles) <= 2
        assert not run.refused
    dist.all_reduce(losses, dist.ReduceOp.AVG)
    found = losses.tolist(), [nets.whole(p) for p in net.parameters()]
    if rank == 0:
        nets.assert_same(found, nets.alone(name, dtype, make, clip), dtype)
    return sum(p.to_local().nbytes for p in net.parameters())


CASES = [
    (2, "mlp", "float64", True), (4, "mlp"), (2, "mlp", "float32"),
    (4, "mlp", "float64", False, None, (2, 2)), (2, "resnet"), (2, "lstm"), (2, "moe"),
    (2, "gpt", "float64", True, 0.5), (2, "gpt"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_fifty_steps_are_those_of_one_process(case, worlds):
    size, name, *rest = case
    held = worlds.ok(equal_to_one_process, size, name, *rest)
    dtype = rest[0] if rest else "float64"
    mesh = rest[3] if len(rest) > 3 else None
    pieces = size if mesh is None else mesh[1]
    shapes = [p.shape for p in nets.network(name).parameters()]
    most = sum(int(np.ceil(s[0] / pieces) * np.prod(s[1:])) for s in shapes)
    assert max(held) == most * np.dtype(dtype).itemsize


# -- what the parts are


def accumulated():
    """Gradients of two passes, sent once, are those of both."""
    rank, size = dist.get_rank(), dist.get_world_size()
    net = sharded("mlp", "float64", 3)
    x, t = nets.batch("mlp", "float64", rank, size)
    want = nets.network("mlp")
    for k in range(2):
        nn.functional.cross_entropy(want(x * (k + 1)), t).backward()
    for p in want.parameters():
        dist.all_reduce(p.grad, dist.ReduceOp.AVG)
    net.set_requires_gradient_sync(False)
    calls = dist.groups.world().calls
    nn.functional.cross_entropy(net(x), t).backward()
    gathers = dist.groups.world().calls - calls
    assert all(p.grad is None for p in net.parameters())
    net.set_requires_gradient_sync(True)
    nn.functional.cross_entropy(net(x * 2), t).backward()
    assert dist.groups.world().calls - calls == 2 * gathers + 2  # and two reductions
    for p, other in zip(net.parameters(), want.parameters(), strict=True):
        np.testing.assert_allclose(nets.whole(p.grad), other.grad.numpy(), 1e-12, 1e-14)


def unsharded():
    """What ``unshard`` has gathered is used, until a part changes."""
    net = fsdp.fully_shard(nn.Linear(3, 4))
    with weft.no_grad():
        net.unshard()
        calls = dist.groups.world().calls
        x = weft.ones(1, 3)
        before = net(x)
        assert dist.groups.world().calls == calls
        net.weight.to_local().add_(1)
        assert weft.allclose(net(x), before + 3)  # gathered again
        assert dist.groups.world().calls == calls + 1
        net.unshard()
        net.reshard()
        net(x)
        assert dist.groups.world().calls == calls + 3


def unused():
    """Parameters that nobody uses get no gradient; those of one rank's are halved."""

    class Choosing(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(3)])

        def forward(self, x, which):
            return self.parts[which](x)

    rank, size = dist.get_rank(), dist.get_world_size()
    net = fsdp.fully_shard(Choosing())
    net(weft.ones(1, 2), min(rank, 1)).sum().backward()
    first, second, third = [part.weight.grad for part in net.parts]
    assert third is None
    assert first.full_tensor().tolist() == [[1 / size] * 2] * 2
    assert second.full_tensor().tolist() == [[(size - 1) / size] * 2] * 2
    net.zero_grad()
    assert net.parts[0].weight.grad is None
    if size > 1:
        run = weft.compile(lambda x: net(x, min(rank, 1)).sum().backward())
        with pytest.raises(RuntimeError, match="of=1 parameters"):
            run(weft.ones(1, 2))


def kept_on_the_tape():
    """Backward gathers again; what was changed in place meanwhile is an error."""

    class Changing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x):
            y = self.inner(x).relu()
            z = y * y
            if changes:
                y.add_(1)
            return z

    for changes in (False, True):
        net = fsdp.fully_shard(Changing(), reshard_after_forward=True)
        x = weft.ones(2, 3, requires_grad=True)
        calls = dist.groups.world().calls
        out = net(x).sum()
        assert dist.groups.world().calls == calls + 1
        if changes:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                out.backward()
            continue
        out.backward()
        assert dist.groups.world().calls == calls + 3  # gathered, and reduced
        assert net._unit.whole is None


def memory():
    """Bytes that are held after forward."""
    found = []
    for reshard in (None, True, False):  # the first is a warm-up
        tracemalloc.start()
        blocks = [nn.Linear(200, 200, bias=False) for _ in range(6)]
        net = nn.Sequential(*blocks)
        for block in blocks:
            fsdp.fully_shard(block, reshard_after_forward=reshard)
        x = weft.ones(1, 200, requires_grad=True)
        before, _ = tracemalloc.get_traced_memory()
        out = net(x).sum()
        held, _ = tracemalloc.get_traced_memory()
        out.backward()
        tracemalloc.stop()
        found.append(held - before)
        del out, net, blocks, block
    return found[1:]


def mixed_precision():
    policy = fsdp.MixedPrecisionPolicy(weft.bfloat16, weft.float32, weft.float32)
    net = fsdp.fully_shard(nn.Linear(4, 2), mp_policy=policy)
    seen = []
    net.register_forward_pre_hook(lambda m, args: seen.append(args[0].dtype))
    out = net(weft.ones(1, 4))
    assert seen == [weft.bfloat16]
    assert out.dtype is weft.float32
    out.sum().backward()
    assert net.weight.dtype is net.weight.grad.dtype is weft.float32
    assert net.weight.grad.full_tensor().tolist() == [[1.0] * 4] * 2


def refused():
    rank = dist.get_rank()
    for made, words in (
        (lambda: fsdp.fully_shard(nn.ModuleList([nn.Linear(1, 1)])), "has no forward"),
        (lambda: fsdp.fully_shard(3), "expected a module, got int"),
        (
            lambda: fsdp.fully_shard(nn.Linear(2, 2 + rank)),
            r"rank 1 has another module than rank 0: 'bias', float32\[2\] is ",
        ),
        (
            lambda: fsdp.fully_shard(fsdp.fully_shard(nn.Linear(1, 1))),
            "is sharded already",
        ),
        (lambda: fsdp.fully_shard(Scalar()), "scale is a scalar"),
    ):
        with pytest.raises(ValueError, match=words):
            made()
    net = nn.Sequential(nn.Linear(2, 2))
    fsdp.fully_shard(net)
    with pytest.raises(ValueError, match="mixed plain tensors and DTensors"):
        net[0](weft.ones(2, 2))  # past the module that gathers
    with pytest.raises(TypeError, match="got a DTensor at"):
        dist.all_gather_object([None, None], net[0].weight)


class Scalar(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(weft.ones(()))

    def forward(self, x):
        return x * self.scale


def names():
    net = fsdp.fully_shard(nets.network("mlp"))
    assert type(net).__name__ == "FSDPMLP"
    assert isinstance(net, fsdp.FSDPModule)
    assert isinstance(net, nets.MLP)
    state = net.state_dict()
    assert list(state) == list(nets.network("mlp").state_dict())
    assert all(isinstance(v, DTensor) for v in state.values())
    assert state["up.weight"].placements == (Shard(0),)
    assert state["up.weight"].shape == (17, 6)
    plain = nets.network("mlp", seed=9).state_dict()
    net.load_state_dict(plain)  # whole tensors: each takes its part
    assert np.array_equal(nets.whole(net.up.weight), plain["up.weight"].numpy())
    total = nn.utils.get_total_norm(net.parameters())
    want = nn.utils.get_total_norm(list(plain.values()))
    np.testing.assert_allclose(total.item(), want.item(), 1e-12)


def changed_in_between():
    """A step between forward and backward is an error, as it is without parts."""
    net = fsdp.fully_shard(nn.Linear(3, 3), reshard_after_forward=True)
    x = weft.ones(2, 3, requires_grad=True)
    loss = net(x).sum()
    with weft.no_grad():
        net.weight.mul_(2)
    with pytest.raises(RuntimeError, match="the parameter 'weight', which a sharded"):
        loss.backward()


def recomputed():
    """Blocks that are checkpointed gather once more."""
    net, want = nets.network("mlp"), nets.network("mlp")
    x, t = nets.batch("mlp")
    nn.functional.cross_entropy(want(x), t).backward()
    for layer in (net.up, net.down):
        fsdp.fully_shard(layer)
    h = checkpoint(lambda x: nn.functional.gelu(net.up(x)), x, use_reentrant=False)
    out = checkpoint(net.down, h, use_reentrant=False)
    nn.functional.cross_entropy(out, t).backward()
    for p, other in zip(net.parameters(), want.parameters(), strict=True):
        np.testing.assert_allclose(nets.whole(p.grad), other.grad.numpy(), 1e-12, 1e-15)


def converted():
    """Modules are converted after they were shared out, but not copied."""
    net = fsdp.fully_shard(nn.Linear(3, 4))
    net(weft.ones(1, 3)).sum().backward()
    net.double()
    assert net.weight.dtype is net.weight.grad.dtype is weft.float64
    assert net(weft.ones(1, 3, dtype=weft.float64)).dtype is weft.float64
    zeros = weft.zeros_like(net.weight)
    assert isinstance(zeros, DTensor)
    assert zeros.to_local().shape == net.weight.to_local().shape
    with pytest.raises(ValueError, match="copy the module before fully_shard"):
        copy.deepcopy(net)
    with pytest.raises(ValueError, match="expected a DTensor of the same mesh"):
        net.weight.data = weft.ones(4, 3)


def full_states():
    """Whole states of a model and its optimizer, and back."""
    from weft.distributed import full_state

    rank = dist.get_rank()
    net, optimizer = trained(2)
    whole = full_state.StateDictOptions(full_state_dict=True, cpu_offload=True)
    states = full_state.get_state_dict(net, optimizer, options=whole)
    assert bool(states[0]) == bool(states[1]) == (rank == 0)
    if rank == 0:
        assert type(states[0]["up.weight"]) is weft.Tensor
        plain = nets.network("mlp")
        plain.load_state_dict(states[0])
        nets.adam(plain.parameters()).load_state_dict(states[1])
    before = numbers(net, optimizer)
    other, fresh = trained(0)
    everywhere = full_state.StateDictOptions(
        full_state_dict=True, broadcast_from_rank0=True
    )
    full_state.set_state_dict(
        other, fresh, model_state_dict=states[0], optim_state_dict=states[1],
        options=everywhere,
    )  # fmt: skip
    assert numbers(other, fresh) == before


CHECKS = [
    changed_in_between, recomputed, converted, full_states,
    accumulated, unsharded, unused, kept_on_the_tape, mixed_precision, refused, names,
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_on_two_ranks(check, worlds):
    worlds.ok(check, 2)


def test_whole_parameters_are_let_go(worlds):
    whole = 200 * 200 * 4
    for held, kept in worlds.ok(memory, 2):
        assert held < whole
        assert kept > 5 * whole


# -- checkpoints


def trained(steps):
    net = sharded("mlp", "float64", 3)
    optimizer = nets.adam(net.parameters())
    step = nets.stepper(net, optimizer)
    data = nets.batch("mlp", "float64", dist.get_rank(), dist.get_world_size())
    for _ in range(steps):
        step(*data)
    return net, optimizer


def numbers(net, optimizer):
    moments = optimizer.state_dict()["state"].values()
    return [
        [nets.whole(p).tolist() for p in net.parameters()],
        [nets.whole(s["exp_avg"]).tolist() for s in moments],
        [s["step"] for s in moments],
    ]


def saves(path):
    net, optimizer = trained(3)
    dist.checkpoint.save({"net": net, "optimizer": optimizer}, checkpoint_id=path)
    return numbers(net, optimizer)


def loads(path):
    net, optimizer = trained(0)
    dist.checkpoint.load({"net": net, "optimizer": optimizer}, checkpoint_id=path)
    return numbers(net, optimizer)


def loads_whole(path):
    net = nets.network("mlp", seed=1)
    optimizer = nets.adam(net.parameters())
    dist.checkpoint.load({"net": net, "optimizer": optimizer}, checkpoint_id=path)
    return numbers(net, optimizer)


@pytest.mark.parametrize(("before", "then"), [(2, 4), (4, 1), (1, 2)])
def test_any_number_of_processes_loads(worlds, tmp_path, before, then):
    path = str(tmp_path / "kept")
    want, *_ = worlds.ok(saves, before, path)
    assert worlds.ok(loads, then, path) == [want] * then
    assert worlds.ok(loads_whole, 1, path) == [want]
    sizes = [(tmp_path / "kept" / f"part-{k}-of-{before}.safetensors").stat().st_size
             for k in range(before)]  # fmt: skip
    assert max(sizes) < 1.5 * sum(sizes) / before


# -- states of optimizers in parts


def zero(compiling):
    rank, size = dist.get_rank(), dist.get_world_size()
    net = nn.parallel.DistributedDataParallel(nets.network("mlp"))
    adam = dist.optim.ZeroRedundancyOptimizer(
        net.parameters(), weft.optim.AdamW, lr=1e-2
    )
    decay = weft.optim.lr_scheduler.StepLR(adam, 20, 0.5)
    step = nets.stepper(net, adam)
    run = weft.compile(step) if compiling else step
    data = nets.batch("mlp", "float64", rank, size)
    losses = []
    for _ in range(nets.STEPS):
        losses.append(run(*data))
        decay.step()
    mean = weft.stack(losses)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    with pytest.raises(RuntimeError, match="call consolidate_state_dict"):
        adam.state_dict()
    adam.consolidate_state_dict(to=size - 1)
    held = [s["exp_avg"].numel() for s in adam.state.values()]
    if rank == size - 1:
        other = nets.adam(net.parameters())
        other.load_state_dict(adam.state_dict())
        assert len(other.state) == 4
        adam.load_state_dict(adam.state_dict())
        assert [s["exp_avg"].numel() for s in adam.state.values()] == held
    return [
        mean.tolist(),
        [nets.whole(p).tolist() for p in net.parameters()],
        sum(held),
    ]


@pytest.mark.parametrize(("size", "compiling"), [(2, True), (4, False)])
def test_states_in_parts(worlds, size, compiling):
    found = worlds.ok(zero, size, compiling)
    net = nets.network("mlp")
    adam = nets.adam(net.parameters())
    decay = weft.optim.lr_scheduler.StepLR(adam, 20, 0.5)
    step, losses = nets.stepper(net, adam), []
    for _ in range(nets.STEPS):
        losses.append(step(*nets.batch("mlp")).item())
        decay.step()
    want = losses, [nets.whole(p) for p in net.parameters()]
    for mean, parameters, _ in found:
        nets.assert_same((mean, parameters), want)
    assert sum(count for *_, count in found) == sum(p.numel() for p in net.parameters())
    assert max(count for *_, count in found) == 17 * 6  # the largest parameter

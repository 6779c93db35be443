"""Tensors in parts against whole ones, and layers in parts against one process."""

import itertools

import nets_of_ranks as nets
import numpy as np
import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft.distributed.calls import recorded
from weft.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    implicit_replication,
)
from weft.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from weft.distributed.tensor.parallel.found import found_styles, linear_layers
from weft.nn import functional as F

PLACED = [Shard(0), Shard(1), Replicate()]


def numbers(*shape, seed=0):
    return weft.tensor(np.random.default_rng(seed).standard_normal(shape))


def moved():
    """From any placements to any others, also where two dimensions cut one axis."""
    mesh = dist.init_device_mesh("cpu", (2, 2))
    x = numbers(5, 3)
    pairs = list(itertools.product(PLACED, repeat=2))
    for before, then in itertools.product(pairs, pairs):
        one = distribute_tensor(x, mesh, before).redistribute(placements=then)
        want = distribute_tensor(x, mesh, then)
        assert one.placements == want.placements == then
        assert np.array_equal(one.to_local().numpy(), want.to_local().numpy())
        assert np.array_equal(one.full_tensor().numpy(), x.numpy())
    rank = dist.get_rank()
    for kind in ("sum", "max", "min", "avg"):
        own = x * (rank + 1)
        terms = DTensor.from_local(own, mesh, [Partial(kind)] * 2)
        factor = {"sum": 10, "avg": 2.5}.get(kind)
        want = x * factor if factor else getattr(weft, f"a{kind}")(
            weft.stack([x * k for k in range(1, 5)]), 0)  # fmt: skip
        for then in pairs:
            found = terms.redistribute(placements=then).full_tensor()
            np.testing.assert_allclose(found.numpy(), want.numpy(), 1e-12)


def program(a, b):
    y = (a @ b).relu().reshape(-1, 2, 2).transpose(0, 1)
    z = weft.softmax(y * 2 + y.mean(), -1) / y.exp().sum()
    w = weft.cat([z.flatten(1), -z.flatten(1)], 1)[:, 1:].cumsum(0)
    return (w.exp().sum(0) * y.amax(1).sum()).sum() + (a.amin(0) * b[:, 0]).sum()


def operators():
    """Values and gradients of a program, for each of many placements."""
    mesh = dist.init_device_mesh("cpu", (2, 2))
    a, b = numbers(5, 6).requires_grad_(), numbers(6, 4, seed=1).requires_grad_()
    want = program(a, b)
    want.backward()
    for places in list(itertools.product(PLACED, repeat=4))[::5]:
        one = distribute_tensor(a.detach().requires_grad_(), mesh, places[:2])
        other = distribute_tensor(b.detach().requires_grad_(), mesh, places[2:])
        out = program(one, other)
        np.testing.assert_allclose(out.full_tensor().item(), want.item(), 1e-12)
        out.backward()
        for x, plain in ((one, a), (other, b)):
            assert x.grad.placements == x.placements
            found = x.grad.full_tensor().numpy()
            np.testing.assert_allclose(found, plain.grad.numpy(), 1e-10, 1e-12)


OPERATORS = {
    "take": (lambda x: x[weft.tensor([2, 0, 2])], (4, 6)),
    "gather": (lambda x: x.gather(1, (x > 0).long()), (4, 6)),
    "layer_norm": (lambda x: F.layer_norm(x, (6,)), (4, 6)),
    "argmax": (lambda x: x.argmax(1), (4, 6)),
    "where": (lambda x: weft.where(x > 0, x, x * 0.1), (4, 6)),
    "sort": (lambda x: x.sort(0).values, (4, 6)),
    "flip": (lambda x: x.flip(0), (4, 6)),
    "solve": (lambda x: weft.linalg.inv(x @ x.T), (4, 6)),
    "attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), (2, 2, 4, 4),
    ),
    "conv": (lambda x: F.conv2d(x, x), (2, 2, 4, 4)),
    "integers": (lambda x: (x * 10).long() + 3, (4, 6)),
    "views": (lambda x: x.unsqueeze(0).expand(3, -1, -1).permute(2, 0, 1), (4, 6)),
    "pad": (lambda x: F.pad(x, (1, 2)), (4, 6)),
    "any": (lambda x: (x > 1).any(1) | (x > 2).all(1), (4, 6)),
    "amax": (lambda x: x[:3].amax(0), (5, 6)),
    "norm": (lambda x: weft.linalg.vector_norm(x, dim=1), (4, 6)),
}  # fmt: skip


def each_operator():
    """Operators with and without a rule: whole tensors' values, on every placement."""
    mesh = dist.init_device_mesh("cpu", (2,))
    for name, (fn, shape) in OPERATORS.items():
        x = numbers(*shape)
        want = fn(x).numpy()
        for place in (Shard(0), Shard(1), Replicate(), Partial()):
            if isinstance(place, Partial):
                one = DTensor.from_local(x / 2, mesh, [place])
            else:
                one = distribute_tensor(x, mesh, [place])
            with implicit_replication():
                found = fn(one)
            assert isinstance(found, DTensor)
            assert found.shape == want.shape
            np.testing.assert_allclose(
                found.full_tensor().numpy(), want, 1e-10, 1e-12, err_msg=name
            )


def looked_up():
    """Rows by their indices, and their gradients, however tables are cut."""
    mesh = dist.init_device_mesh("cpu", (2,))
    ids = weft.tensor([[2, 0, 2], [1, 1, 4]])
    table = numbers(5, 4).requires_grad_()
    (F.embedding(ids, table).sin() * 2).sum().backward()
    for place, given in itertools.product(PLACED, PLACED):
        rows = distribute_tensor(table.detach().requires_grad_(), mesh, [place])
        found = F.embedding(distribute_tensor(ids, mesh, [given]), rows)
        (found.sin() * 2).sum().backward()
        np.testing.assert_allclose(
            rows.grad.full_tensor().numpy(), table.grad.numpy(), 1e-12
        )


def sent():
    """What an operator sends: nothing, where its record says how it divides."""
    mesh = dist.init_device_mesh("cpu", (2,))
    x = distribute_tensor(numbers(4, 6), mesh, [Shard(0)])
    w = distribute_tensor(numbers(6, 4), mesh, [Shard(1)])
    calls = dist.groups.world().calls
    y = (x.relu() * 2 + x).reshape(2, 2, 6).transpose(1, 2).sum(1)
    assert y.placements == (Shard(0),)
    columns = x.redistribute(placements=[Replicate()]) @ w
    assert columns.placements == (Shard(1),)
    terms = columns @ w.T
    assert terms.placements == (Partial(),)
    assert (terms * 3 + terms).placements == (Partial(),)
    assert dist.groups.world().calls == calls + 1  # the redistribution
    terms.relu()
    assert dist.groups.world().calls == calls + 2


def local():
    """Parts that are taken out and put in have gradients."""
    mesh = dist.init_device_mesh("cpu", (2,))
    rank = dist.get_rank()
    part = numbers(2, 3, seed=rank).requires_grad_()
    x = DTensor.from_local(part, mesh, [Shard(0)])
    assert x.shape == (4, 3)
    (x.full_tensor() * 3).sum().backward()
    assert part.grad.tolist() == [[3.0] * 3] * 2
    w = distribute_tensor(nn.Parameter(weft.ones(3)), mesh, [Replicate()])
    mine = w.to_local(grad_placements=[Partial()]) * (rank + 1)
    mine.sum().backward()
    assert w.grad.full_tensor().tolist() == [3.0] * 3  # 1 + 2
    terms = DTensor.from_local(part.detach().requires_grad_(), mesh, [Partial()])
    assert terms.full_tensor().shape == (2, 3)
    uneven = DTensor.from_local(numbers(2 - rank, 1), mesh, [Shard(0)], shape=(3, 1))
    assert uneven.full_tensor().shape == (3, 1)
    with pytest.raises(ValueError, match=r"expected a part of shape \(., 1\) of a ten"):
        DTensor.from_local(numbers(3, 1), mesh, [Shard(0)], shape=(3, 1))
    with weft.no_grad():
        w.mul_(2)
        w[0] = 7
    assert w.full_tensor().tolist() == [7.0, 2.0, 2.0]


def refused():
    mesh = dist.init_device_mesh("cpu", (2,))
    other = dist.DeviceMesh.from_group(dist.new_group([0, 1]), "cpu",
                                       mesh_dim_names=("other",))  # fmt: skip
    x = distribute_tensor(numbers(4, 2), mesh, [Shard(0)])
    for made, words in (
        (lambda: distribute_tensor(numbers(2), mesh, [Shard(1)]), "Shard.*dim"),
        (lambda: distribute_tensor(numbers(2), mesh, [Shard(0)] * 2), "1 dimensions"),
        (lambda: distribute_tensor(numbers(2), mesh, [Partial()]), "Shard or Replica"),
        (lambda: distribute_tensor(numbers(2), mesh, [0]), r"expected Shard\(dim\)"),
        (lambda: x + numbers(4, 2), "mixed plain tensors and DTensors"),
        (lambda: x + distribute_tensor(numbers(4, 2), other), "DTensors of one mesh"),
        (lambda: x.redistribute(placements=[Partial()]), "becomes no Partial"),
        (lambda: x.redistribute(other, [Shard(0)]), "the tensor's own mesh"),
        (lambda: DTensor.from_local(x, mesh), "no DTensor"),
        (lambda: DTensor.from_local(x.to_local(), mesh, [Partial("prod")]), "sum, avg"),
        (lambda: distribute_tensor(x, mesh, [Shard(1)]), "call redistribute"),
    ):
        with pytest.raises((ValueError, IndexError), match=words):
            made()
    assert "placements=(Shard(dim=0),)" in repr(x)


def modules():
    """Parameters become DTensors; what goes in and comes out is changed."""
    mesh = dist.init_device_mesh("cpu", (2,))
    net = nets.network("mlp")
    want = net(nets.batch("mlp")[0]).detach()

    def partition(name, module, mesh):
        if name == "up":
            module.weight = distribute_tensor(module.weight, mesh, [Shard(0)])

    distribute_module(
        net, mesh, partition,
        lambda mod, args, mesh: (distribute_tensor(args[0], mesh, [Shard(0)]),),
        lambda mod, out, mesh: out.full_tensor(),
    )  # fmt: skip
    assert net.up.weight.placements == (Shard(0),)
    assert net.down.weight.placements == (Replicate(),)
    found = net(nets.batch("mlp")[0])
    np.testing.assert_allclose(found.detach().numpy(), want.numpy(), 1e-12)


def layers():
    """What styles refuse, and an embedding in rows of which some have none."""
    mesh = dist.init_device_mesh("cpu", (2,))
    table = nn.Embedding(1, 3)
    whole = table.weight.detach().clone()
    style = RowwiseParallel(input_layouts=Replicate())
    parallelize_module(table, mesh, style)
    found = table(weft.tensor([[0, 0]]))
    found.sum().backward()
    assert weft.equal(found.detach(), whole.expand(1, 2, 3) * 1)
    assert table.weight.grad.full_tensor().tolist() == [[2.0] * 3]
    run = weft.compile(table)
    for call in (table, run):
        with pytest.raises(IndexError, match=r"out of range"):
            call(weft.tensor([1]))
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    for plan, words in (
        ({"2": ColwiseParallel()}, "'2' is no path of a layer; there are 0, 1"),
        ({"1": ColwiseParallel()}, "expected nn.Linear or nn.Embedding, got ReLU"),
        ({"0": 3}, "expected a style for '0', got 3"),
        (None, "or a dictionary of styles"),
    ):
        with pytest.raises(ValueError, match=words):
            parallelize_module(net, mesh, plan)
    with pytest.raises(ValueError, match="a mesh of one dimension"):
        parallelize_module(net, dist.init_device_mesh("cpu", (1, 2)), {})
    with pytest.raises(ValueError, match="should have same length"):
        PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=None)
    with pytest.raises(ValueError, match="is a DTensor already"):
        dist.fsdp.fully_shard(parallelize_module(net, mesh, {"0": ColwiseParallel()}))


CHECKS = [looked_up, layers, each_operator, sent, local, refused, modules]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_on_two_ranks(check, worlds):
    worlds.ok(check, 2)


@pytest.mark.parametrize("check", [moved, operators], ids=lambda check: check.__name__)
def test_on_four_ranks(check, worlds):
    worlds.ok(check, 4)


# -- layers in parts


class Attention(nn.Module):
    """Heads by their width, so that a process may have some of them."""

    def __init__(self, width, depth):
        super().__init__()
        self.depth = depth
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (
            f(x).unflatten(-1, (-1, self.depth)).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.attention, self.up, self.down = (
            Attention(8, 2), nn.Linear(8, 12), nn.Linear(12, 8)
        )  # fmt: skip

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList([Block()])
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 11)

    def forward(self, ids):
        x = self.token(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def plan(sequence):
    """The layers of ``Words``, with or without pieces of the sequence between them."""
    if not sequence:
        return {
            "token": RowwiseParallel(input_layouts=Replicate()),
            "blocks.*.attention.[qkv]": ColwiseParallel(),
            "blocks.*.attention.out": RowwiseParallel(),
            "blocks.*.up": ColwiseParallel(), "blocks.*.down": RowwiseParallel(),
            "head": ColwiseParallel(output_layouts=Replicate()),
        }  # fmt: skip
    pieces = Shard(1)
    return {
        "token": RowwiseParallel(input_layouts=Replicate(), output_layouts=pieces,
                                 use_local_output=False),
        "blocks.*.norm1": SequenceParallel(), "blocks.*.norm2": SequenceParallel(),
        "norm": SequenceParallel(),
        "blocks.*.attention": PrepareModuleInput(
            input_layouts=pieces, desired_input_layouts=Replicate()),
        "blocks.*.attention.[qkv]": ColwiseParallel(),
        "blocks.*.attention.out": RowwiseParallel(
            output_layouts=pieces, use_local_output=False),
        "blocks.*.up": ColwiseParallel(input_layouts=pieces),
        "blocks.*.down": RowwiseParallel(output_layouts=pieces, use_local_output=False),
        "head": ColwiseParallel(input_layouts=pieces, use_local_output=False),
        "": PrepareModuleOutput(output_layouts=Shard(-1),
                                desired_output_layouts=Replicate()),
    }  # fmt: skip


nets.NETS["words"] = Words


def words(sequence, compiling, shape):
    mesh = dist.init_device_mesh("cpu", tuple(shape), mesh_dim_names=("dp", "tp"))
    size = mesh["dp"].size()
    net = nets.network("words", seed=3 + dist.get_rank())
    whole = {n: weft.empty(p.shape) for n, p in net.named_parameters()}
    parallelize_module(net, mesh["tp"], plan(sequence))
    held = sum(p._part.numel() for p in net.parameters())
    model = net
    if size > 1:
        group = mesh.get_group("dp")
        model = nn.parallel.DistributedDataParallel(net, process_group=group)
    step = nets.stepper(
        model, nets.adam(net.parameters()), clip=0.5 if sequence else None
    )
    inputs, targets = nets.samples("gpt", np.random.default_rng(0))
    mine = slice(mesh.get_local_rank("dp"), None, size)
    data = weft.tensor(inputs[mine]), weft.tensor(targets[mine])
    run = weft.compile(step) if compiling else step
    losses = weft.stack([run(*data) for _ in range(nets.STEPS)])
    if compiling:
        assert not run.refused
    if size > 1:
        dist.all_reduce(losses, dist.ReduceOp.AVG, mesh.get_group("dp"))
    found = losses.tolist(), [nets.whole(p) for p in net.parameters()]
    if dist.get_rank() == 0:
        assert [p.shape for p in found[1]] == [p.shape for p in whole.values()]
        plain = nets.network("words")
        step = nets.stepper(plain, nets.adam(plain.parameters()),
                            clip=0.5 if sequence else None)  # fmt: skip
        data = weft.tensor(inputs), weft.tensor(targets)
        losses = [step(*data).item() for _ in range(nets.STEPS)]
        nets.assert_same(found, (losses, [nets.whole(p) for p in plain.parameters()]))
    return held


@pytest.mark.parametrize(
    ("name", "columns", "rows"),
    [
        ("words", ["attention.q", "attention.k", "attention.v", "up"],
         ["attention.out", "down"]),
        ("gpt", ["mlp.0"], ["mlp.1"]),  # of q, k and v in one, parts are no heads
        ("resnet", [], []),
    ],
)  # fmt: skip
def test_layers_that_can_work_on_parts_are_found(name, columns, rows):
    net = nets.network(name)
    x, _ = nets.batch("gpt" if name == "words" else name)
    linear = linear_layers(net)
    found = found_styles(recorded(net, (x,), linear), linear, 2)
    assert list(found.columns) == [f"blocks.0.{path}" for path in columns]
    assert list(found.rows) == [f"blocks.0.{path}" for path in rows]
    assert list(found.styles()) == [*found.columns, *found.rows]


def uneven(compiling):
    """Two layers whose 17 columns, or rows, are in four parts."""
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    net = parallelize_module(
        nets.network("mlp", seed=3 + dist.get_rank()), mesh,
        {"up": ColwiseParallel(use_local_output=False), "down": RowwiseParallel()},
    )  # fmt: skip
    step = nets.stepper(net, nets.adam(net.parameters()))
    run = weft.compile(step) if compiling else step
    losses = [run(*nets.batch("mlp")).item() for _ in range(nets.STEPS)]
    found = losses, [nets.whole(p) for p in net.parameters()]
    if dist.get_rank() == 0:
        nets.assert_same(found, nets.alone("mlp"))
    return net.up.weight.to_local().shape[0]


@pytest.mark.parametrize(("size", "compiling"), [(4, False), (2, True)])
def test_uneven_parts(worlds, size, compiling):
    found = worlds.ok(uneven, size, compiling)
    assert found == {4: [5, 5, 5, 2], 2: [9, 8]}[size]


def held_of(name, p, pieces):
    """How many elements of a parameter the first process has."""
    if any(copy in name for copy in ("norm", "down.bias", "out.bias")):
        return p.numel()
    rows, *rest = p.shape
    if name.endswith(("out.weight", "down.weight")):
        return rows * -(-rest[0] // pieces)
    return -(-rows // pieces) * int(np.prod(rest))


@pytest.mark.parametrize(
    ("size", "sequence", "compiling", "shape"),
    [
        (2, False, True, (1, 2)), (4, True, False, (2, 2)),
    ],
)  # fmt: skip
def test_fifty_steps_are_those_of_one_process(worlds, size, sequence, compiling, shape):
    held = worlds.ok(words, size, sequence, compiling, shape)
    every = dict(Words().named_parameters())
    pieces = shape[1]
    most = sum(held_of(n, p, pieces) for n, p in every.items())
    assert max(held) == most

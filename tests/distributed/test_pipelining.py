"""Stages of a model on several processes against the model on one."""

import nets_of_ranks as nets
import numpy as np
import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft.distributed import fsdp
from weft.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    SplitPoint,
    pipeline,
)
from weft.nn import functional as F

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class Spread(nn.Module):
    """A sequence of layers, of which each is a stage."""

    def __init__(self, name):
        super().__init__()
        self.layers = nn.ModuleList(layers(name))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def layers(name):
    if name == "mlp":
        return [nn.Sequential(nn.Linear(6, 5), nn.Tanh()), nn.Linear(5, 4, act="gelu"),
                nn.Sequential(nn.Linear(4, 7), nn.ReLU()), nn.Linear(7, 3)]  # fmt: skip
    net = nets.NETS[name]()
    if name == "gpt":
        return [Embedded(net.token, net.position), net.blocks[0], net.norm,
                nn.Linear(8, 11)]  # fmt: skip
    if name == "resnet":
        return [net.stem, nn.Sequential(nn.ReLU(), net.conv1, net.norm1),
                nn.Sequential(nn.ReLU(), net.conv2, net.norm2, nn.Flatten()),
                nn.Linear(64, 3)]  # fmt: skip
    return [Several(net.cells), Sums(), nn.Linear(5, 4), nn.Linear(4, 3)]


class Embedded(nn.Module):
    def __init__(self, token, position):
        super().__init__()
        self.token, self.position = token, position

    def forward(self, ids):
        return self.token(ids) + self.position(weft.arange(ids.shape[-1]))


class Several(nn.Module):
    """A stage with several outputs, of which one has no gradient."""

    def __init__(self, cells):
        super().__init__()
        self.cells = cells

    def forward(self, x):
        out, (_, c) = self.cells(x)
        return out[:, -1], c[0], (out[:, -1] > 0).long()


class Sums(nn.Module):
    def forward(self, out, c, positive):
        return out + c * positive


class Unpacked(Spread):
    def forward(self, x):
        first, second, *rest = self.layers
        x = second(*first(x))
        for layer in rest:
            x = layer(x)
        return x


def model(name, seed=3):
    weft.manual_seed(seed)
    return (Unpacked if name == "lstm" else Spread)(name).double()


def loss_of(out, t):
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), t.reshape(-1))


def trained(name, schedule, microbatches):
    """Fifty steps of a pipeline: two stages a process if interleaved."""
    group = dist.group.WORLD
    rank, size = dist.get_rank(), dist.get_world_size()
    net = model(name)
    if schedule == "interleaved":
        count = len(net.layers)
        stages = [
            PipelineStage(net.layers[k], k, count) for k in range(rank, count, size)
        ]
        run = ScheduleInterleaved1F1B(stages, microbatches, loss_of)
        mine = nn.ModuleList([stage.submod for stage in stages])
    else:
        per = len(net.layers) // size
        mine = nn.Sequential(*net.layers[rank * per : (rank + 1) * per])
        if name == "lstm":
            mine.forward = lambda *x: passed(mine, x)
        stages = [PipelineStage(mine, rank, size, group=group)]
        run = SCHEDULES[schedule](stages[0], microbatches, loss_of)
    optimizer = nets.adam(mine.parameters()) if list(mine.parameters()) else None
    x, t = nets.batch(name)
    losses = []
    for _ in range(nets.STEPS):
        if optimizer is not None:
            optimizer.zero_grad()
        args = (x,) if rank == 0 else ()
        found = []
        out = run.step(*args, target=t if rank == size - 1 else None, losses=found)
        assert (out is None) == (rank < size - 1)
        if optimizer is not None:
            optimizer.step()
        losses.append(sum(found).item() / microbatches if found else 0.0)
    parameters = [nets.whole(p) for p in mine.parameters()]
    every = [None] * size
    dist.all_gather_object(every, parameters)
    if rank == size - 1:
        plain = model(name)
        step = nets.stepper(plain, nets.adam(plain.parameters()))
        want = [step(x, t).item() for _ in range(nets.STEPS)]
        order = [p for some in every for p in some]
        if schedule == "interleaved":
            order = interleaved(net, every, size)
        nets.assert_same(
            (losses, order), (want, [nets.whole(p) for p in plain.parameters()])
        )
        assert run.eval(*([x] if size == 1 else []), target=t) is not None
    else:
        run.eval(*((x,) if rank == 0 else ()))
    return [stage.most for stage in stages]


def passed(layers, x):
    for layer in layers:
        x = layer(*x) if isinstance(x, tuple) else layer(x)
    return x


def interleaved(net, every, size):
    """Parameters by stage, of processes' stages."""
    counts = [len(list(layer.parameters())) for layer in net.layers]
    found = []
    for k in range(len(net.layers)):
        before = sum(counts[j] for j in range(k % size, k, size))
        found += every[k % size][before : before + counts[k]]
    return found


@pytest.mark.parametrize(
    ("size", "name", "schedule", "microbatches"),
    [
        (2, "mlp", "gpipe", 4), (4, "mlp", "1f1b", 8), (2, "mlp", "interleaved", 4),
        (2, "resnet", "1f1b", 4), (2, "gpt", "1f1b", 2), (2, "lstm", "gpipe", 2),
        (1, "mlp", "interleaved", 2),
    ],
)  # fmt: skip
def test_fifty_steps_are_those_of_one_process(
    worlds, size, name, schedule, microbatches
):
    held = worlds.ok(trained, size, name, schedule, microbatches)
    if schedule == "gpipe":
        assert held == [[microbatches]] * size
    if schedule == "1f1b":  # no more than stages follow
        assert held == [[min(size - rank, microbatches)] for rank in range(size)]


def orders():
    """The order of each process: every microbatch once, and no deadlock."""
    rank, size = dist.get_rank(), dist.get_world_size()
    stages = [
        PipelineStage(nn.Linear(1, 1), k, 3 * size) for k in range(rank, 3 * size, size)
    ]
    run = ScheduleInterleaved1F1B(stages, 2 * size, loss_of)
    return [list(one) for one in run.actions()]


def simulated(every):
    """The time in which processes do their actions; each takes one unit."""
    count = 1 + max(stage for some in every for _, stage, _ in some)
    done, at, clock = {}, [0] * len(every), [0] * len(every)
    while any(k < len(some) for k, some in zip(at, every, strict=True)):
        moved = False
        for rank, some in enumerate(every):
            while at[rank] < len(some):
                kind, stage, k = some[at[rank]]
                if kind == "F":
                    needs = [("F", stage - 1, k)] if stage else []
                else:
                    needs = [("F", stage, k)]
                    needs += [("B", stage + 1, k)] if stage < count - 1 else []
                if not all(need in done for need in needs):
                    break
                clock[rank] = max([clock[rank], *[done[n] for n in needs]]) + 1
                done[kind, stage, k] = clock[rank]
                at[rank] += 1
                moved = True
        assert moved, "nobody can go on"
    return max(clock)


def plain(rank):
    """1F1B of four stages and eight microbatches, written out."""
    ahead = 4 - rank
    order = [("F", rank, k) for k in range(ahead)]
    for k in range(8):
        order.append(("B", rank, k))
        order += [("F", rank, k + ahead)] * (k + ahead < 8)
    return order


def test_interleaved_stages_wait_less(worlds):
    every = worlds.ok(orders, 4)
    for rank, some in enumerate(every):
        expected = {(kind, stage, k) for kind in "FB" for stage in range(rank, 12, 4)
                    for k in range(8)}  # fmt: skip
        assert {tuple(one) for one in some} == expected
        assert len(some) == len(expected)
    # a third of a stage's work is a unit: the pipeline fills in a third of the time
    assert simulated(every) == 2 * 8 * 3 + 2 * 3
    assert simulated([plain(rank) for rank in range(4)]) == 2 * 8 + 2 * 3


def grid(kind):
    """Two stages, each on two processes with half of the batch."""
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
    rank = mesh.get_local_rank("pp")
    net = model("mlp")
    mine = nn.Sequential(*net.layers[2 * rank : 2 * rank + 2])
    if kind == "ddp":
        stage = nn.parallel.DistributedDataParallel(
            mine, process_group=mesh.get_group("dp")
        )
    else:
        stage = fsdp.fully_shard(mine, mesh=mesh["dp"])
    optimizer = nets.adam(stage.parameters())
    run = Schedule1F1B(
        PipelineStage(stage, rank, 2, group=mesh.get_group("pp")), 2, loss_of
    )
    x, t = nets.batch("mlp", "float64", mesh.get_local_rank("dp"), 2)
    for _ in range(5):
        optimizer.zero_grad()
        if rank == 0:
            run.step(x)
        else:
            run.step(target=t)
        optimizer.step()
    found = [nets.whole(p) for p in stage.parameters()]
    plain = model("mlp")
    step = nets.stepper(plain, nets.adam(plain.parameters()))
    for _ in range(5):
        step(*nets.batch("mlp"))
    want = [
        nets.whole(p) for k in (0, 1) for p in plain.layers[2 * rank + k].parameters()
    ]
    for one, other in zip(found, want, strict=True):
        np.testing.assert_allclose(one, other, 1e-10, 1e-12)


def compiled():
    """Stages are compiled, their schedule is not."""
    rank, net = dist.get_rank(), model("mlp")
    mine = nn.Sequential(*net.layers[2 * rank : 2 * rank + 2])
    mine.compile()
    run = Schedule1F1B(PipelineStage(mine, rank, 2), 4, loss_of)
    optimizer = nets.adam(mine.parameters())
    x, t = nets.batch("mlp")
    plain = model("mlp")
    step = nets.stepper(plain, nets.adam(plain.parameters()))
    for _ in range(5):
        optimizer.zero_grad()
        found = []
        if rank == 0:
            run.step(x)
        else:
            run.step(target=t, losses=found)
        optimizer.step()
        want = step(x, t).item()
        if rank == 1:
            np.testing.assert_allclose(sum(found).item() / 4, want, 1e-12)


def test_stages_are_compiled(worlds):
    worlds.ok(compiled, 2)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_stages_are_data_parallel(worlds, kind):
    worlds.ok(grid, 4, kind)


class Residual(nn.Module):
    """A model whose input, a number and a parameter of its own pass by its layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.scale = nn.Parameter(weft.ones(3))
        self.third = nn.Linear(3, 2)

    def forward(self, x):
        y = self.first(x) * self.scale
        if y.shape[-1] == 3:
            y = self.second(y + 1) + x
        return {"out": self.third(y * self.scale), "kind": "plain"}


def test_a_model_is_cut_where_it_is_told_to():
    net, x = Residual(), weft.randn(4, 3)
    spec = {"second": SplitPoint.BEGINNING, "third": SplitPoint.BEGINNING}
    pipe = pipeline(net, (x,), split_spec=spec)
    names = [[n for n, _ in stage.named_parameters()] for stage in pipe.stages]
    assert names == [
        ["scale", "first.weight", "first.bias"],
        ["scale", "second.weight", "second.bias"], ["third.weight", "third.bias"],
    ]  # fmt: skip
    assert pipe.shared() == {"scale": [0, 1]}
    x = weft.randn(4, 3)  # other numbers than the example
    out = (x,)
    for stage in pipe.stages:
        out = stage(*out)
    assert weft.equal(out["out"], net(x)["out"])
    assert out["kind"] == "plain"
    after = pipeline(net, (x,), split_spec={"second": SplitPoint.END})
    assert after.num_stages == 2
    with pytest.raises(ValueError, match=r"expected microbatches of \[\(4, 3\)\]"):
        pipe.stages[0](x[:2])
    with pytest.raises(ValueError, match="expected a stage from 0 to 2, got 3"):
        pipe.get_stage_module(3)
    with pytest.raises(ValueError, match="got 'fourth'; there are first, second, thi"):
        pipeline(net, (x,), split_spec={"fourth": SplitPoint.END})


@pytest.mark.parametrize(
    ("between", "words"),
    [
        (lambda y: y + weft.randn(4, 3), "would draw the same numbers"),
        (lambda y: y.mul_(2), "is changed in place between layers"),
    ],
)  # fmt: skip
def test_what_cannot_be_cut(between, words):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.second(between(self.first(x)))

    with pytest.raises(ValueError, match=words):
        pipeline(Net(), (weft.ones(4, 3),), split_spec={"second": SplitPoint.BEGINNING})


def refused():
    rank = dist.get_rank()
    layer, x = nn.Linear(2, 2), weft.ones(6, 2)
    stage = PipelineStage(layer, rank, 2)
    for made, words in (
        (lambda: PipelineStage(layer, 2, 2), "Stage index 2 is out of range of 2"),
        (lambda: PipelineStage(layer, 1 - rank, 2), "belongs to process"),
        (lambda: PipelineStage(3, rank, 2), "expected a module, got int"),
        (lambda: PipelineStage(layer, 0, 1), "cannot be larger than number of stages"),
        (lambda: ScheduleGPipe(stage, 0), "n_microbatches of at least 1, got 0"),
        (lambda: ScheduleGPipe(stage, 2).step(weft.ones(2, 2)), "without loss_fn"),
        (lambda: ScheduleGPipe(stage, 2, loss_of, args_chunk_spec=()), "chunk_spec"),
        (lambda: ScheduleInterleaved1F1B([], 2), "a list of this process's stages"),
        (
            lambda: ScheduleInterleaved1F1B([stage], 5, loss_of),
            r"multiple of the number of rounds \(2\), but got 5",
        ),
        (
            lambda: Schedule1F1B(stage, 2, loss_of).step(weft.ones(3, 2), target=1),
            "a batch of 3 does not divide into 2",
        ),
        (
            lambda: Schedule1F1B(stage, 2 + rank, loss_of).step(x, target=1),
            "n_microbatches is 2 on process 0 and 3 on process 1",
        ),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            made()
    if rank == 1:
        with pytest.raises(ValueError, match="has to pass target"):
            Schedule1F1B(stage, 2, loss_of).step()
    with pytest.raises(RuntimeError, match="no part of a program"):
        weft.graph.capture(lambda x: Schedule1F1B(stage, 1, loss_of).step(x, target=x),
                           weft.ones(2, 2))  # fmt: skip


def test_what_is_refused(worlds):
    worlds.ok(refused, 2)

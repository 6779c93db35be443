"""The simulator against closed forms and published runs, and the search."""

import json
import math

import pytest

import weft
from weft import nn
from weft.distributed.planning import (
    Cluster,
    Layer,
    Strategy,
    Work,
    measured_work,
    simulate,
    transformer,
)

UNIT = Cluster(flops=1.0, near=math.inf, latency=1e-12)


def alike(count, batch=8):
    layer = Layer("layer", 1.0, 100, 10.0, 5.0, 5.0)
    return Work((layer,) * count, batch, 4, 8)


@pytest.mark.parametrize(("stages", "count"), [(1, 8), (2, 8), (4, 8), (4, 2)])
def test_a_pipeline_fills_and_empties(stages, count):
    """A microbatch is 1 + 2 units in each layer; stages wait for P - 1 of them."""
    found = simulate(alike(8, count), Strategy(pipeline=stages), UNIT)
    unit = 3 * 8 / stages
    assert found.seconds == pytest.approx((count + stages - 1) * unit)
    assert found.computing == pytest.approx(count / (count + stages - 1))


def test_several_stages_of_a_process_wait_less():
    work = alike(16, 8)
    plain, two = (
        simulate(work, Strategy(pipeline=4, rounds=rounds), UNIT) for rounds in (1, 2)
    )
    unit = 3 * 16 / 4
    assert plain.seconds == pytest.approx((8 + 3) * unit)
    assert two.seconds == pytest.approx((8 + 3 / 2) * unit)


def test_collectives_take_the_time_of_their_rings():
    cluster = Cluster(flops=math.inf, near=10.0, far=2.0, per_machine=2, latency=1e-12)
    data = simulate(alike(2), Strategy(data=4), cluster)
    assert data.sent == 2 * 3 / 4 * 200 * 4
    assert data.seconds == pytest.approx(data.sent / 2.0)  # several machines
    near = simulate(alike(2), Strategy(data=2), cluster)
    assert near.seconds == pytest.approx(200 * 4 / 10.0)
    parts = simulate(alike(2), Strategy(data=4, sharding="all"), cluster)
    assert parts.sent == 1.5 * data.sent
    tensor = simulate(alike(2), Strategy(tensor=2), cluster)
    assert tensor.sent == 8 * 2 * 2 * 5.0  # samples, layers, passes, an all_reduce


def test_memory_is_of_the_process_that_needs_the_most():
    one = simulate(alike(4), Strategy(), UNIT)
    assert one.memory == 400 * (4 + 4 + 8) + 4 * 10
    states = simulate(alike(4), Strategy(data=2, sharding="states"), UNIT)
    assert states.memory == 400 * (4 + 4 + 8 / 2) + 4 * 10
    every = simulate(alike(4), Strategy(data=2, sharding="all"), UNIT)
    assert every.memory == 400 * (4 + 4 + 8) / 2 + 2 * 100 * 4 + 4 * 10
    stages = simulate(alike(4), Strategy(pipeline=2), UNIT)
    assert stages.memory == 200 * (4 + 4 + 8) + 2 * (2 * 10)  # two microbatches


# Narayanan et al., 2021, table 1: layers, width, heads, tensor, pipeline, GPUs, batch,
# stages of each process, and teraFLOP/s of a GPU.
MEGATRON = [
    (24, 2304, 24, 1, 1, 32, 512, 1, 137), (30, 3072, 32, 2, 1, 64, 512, 1, 138),
    (36, 4096, 32, 4, 1, 128, 512, 1, 142), (40, 6144, 48, 8, 1, 256, 1024, 1, 135),
    (48, 8192, 64, 8, 2, 512, 1536, 2, 138), (60, 10240, 80, 8, 4, 1024, 1792, 1, 140),
    (80, 12288, 96, 8, 8, 1536, 2304, 2, 148),
    (96, 16384, 128, 8, 16, 1920, 2160, 2, 155),
    (105, 20480, 128, 8, 35, 2520, 2520, 3, 163),
    (128, 25600, 160, 8, 64, 3072, 3072, 2, 163),
]  # fmt: skip
A100 = Cluster(flops=312e12, efficiency=0.68, bandwidth=2e12, near=300e9, far=25e9,
               per_machine=8, latency=5e-6)  # fmt: skip


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: f"{row[5]} GPUs")
def test_megatron_is_predicted(row):
    layers, width, heads, tensor, pipeline, gpus, batch, rounds, published = row
    work = transformer(layers=layers, width=width, heads=heads, sequence=2048,
                       vocab=51200, batch=batch)  # fmt: skip
    strategy = Strategy(gpus // tensor // pipeline, tensor, pipeline, 1, rounds,
                        recompute=True)  # fmt: skip
    found = simulate(work, strategy, A100)
    reached = work.flops(recompute=True) / found.seconds / gpus / 1e12
    assert reached == pytest.approx(published, rel=0.1)


@pytest.mark.parametrize(("gpus", "published"), [(8192, 430), (16384, 400)])
def test_llama_is_predicted(gpus, published):
    """Llama Team, 2024, table 4: 405 billion parameters, eight stages a process."""
    h100 = Cluster(flops=989e12, efficiency=0.54, bandwidth=3.35e12, near=450e9,
                   far=50e9, per_machine=8, latency=5e-6)  # fmt: skip
    work = transformer(layers=126, width=16384, sequence=8192, vocab=128256, batch=2048,
                       inner=53248, gated=True, keys=8 / 128)  # fmt: skip
    strategy = Strategy(gpus // 128, 8, 16, 1, 8, "states", sequence=True)
    found = simulate(work, strategy, h100)
    reached = work.flops() / found.seconds / gpus / 1e12
    assert reached == pytest.approx(published, rel=0.03)


def test_a_module_is_measured():
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    work = measured_work(net, weft.ones(10, 8))
    assert [one.name for one in work.layers] == ["0", "1", "2"]
    assert [one.parameters for one in work.layers] == [8 * 16 + 16, 0, 16 * 4 + 4]
    assert work.parameters == sum(p.numel() for p in net.parameters())
    assert work.batch == 10
    assert work.layers[0].flops == pytest.approx(2 * 8 * 16, rel=0.1)
    assert work.layers[0].passes == 16 * 4
    gpt = weft.models.GPT(vocab=11, context=6, width=8, heads=2, layers=3)
    work = measured_work(gpt, weft.zeros(4, 6, dtype=weft.int64))
    names = [one.name for one in work.layers]
    assert names == ["token", "position", "blocks.0", "blocks.1", "blocks.2", "norm",
                     "head"]  # those that compute  # fmt: skip
    assert work.parameters == sum(p.numel() for p in gpt.parameters())  # tied ones once
    blocks = {one.flops for one in work.layers[2:5]}
    assert len(blocks) == 1


def test_the_fastest_that_fits_is_found():
    net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)])
    fast = Cluster(flops=1e9, near=1e12, latency=1e-9)
    x = weft.ones(16, 64)
    plan = weft.parallel(net, x, world=4, cluster=fast)
    assert plan.best.world == 4
    times = [estimate.seconds for _, estimate in plan.found]
    assert times == sorted(times)
    assert {s.world for s, _ in plan.found} == {4}
    most = sorted(estimate.memory for _, estimate in plan.found)[3]
    small = weft.parallel(net, x, world=4, cluster=fast, memory=most)
    assert len(small.found) == 4
    assert all(e.memory <= most for _, e in small.found)
    slow = Cluster(flops=1e12, near=1e3, latency=1e-9)  # links decide
    assert weft.parallel(net, x, world=2, cluster=slow).best.pipeline == 2
    text = str(plan)
    assert text.startswith("33,280 parameters in 8 layers, a batch of 16")
    assert "ms/step" in text


def test_the_order_of_plans_follows_links_and_speed():
    """What is best where sums cost nothing, where they cost much, and where memory
    ends."""
    work = alike(8, 8)
    free = Cluster(flops=1.0, near=1e12, latency=1e-12)
    dear = Cluster(flops=1e6, near=1.0, latency=1e-12)
    kinds = {
        "data": Strategy(data=4, microbatch=2),
        "tensor": Strategy(tensor=4, microbatch=8),
        "pipeline": Strategy(pipeline=4, microbatch=1),
    }

    def order(cluster):
        seconds = {k: simulate(work, s, cluster).seconds for k, s in kinds.items()}
        return sorted(seconds, key=seconds.__getitem__)

    assert order(free)[2] == "pipeline"  # which has to fill
    assert order(dear) == ["pipeline", "tensor", "data"]  # by the bytes that they send
    sent = [simulate(work, kinds[k], dear).sent for k in order(dear)]
    assert sent == sorted(sent)
    whole = simulate(work, kinds["data"], free).memory
    found = weft.parallel(work, world=4, cluster=free, memory=whole * 0.6)
    assert found.best != kinds["data"]
    assert found.estimate.memory <= whole * 0.6


def test_what_does_not_fit_is_an_error(tmp_path):
    net, x = nn.Linear(8, 8), weft.ones(3, 8)
    for made, words in (
        (lambda: weft.parallel(net, x, world=0), "world of at least 1, got 0"),
        (lambda: weft.parallel(3, x, world=1, cluster=UNIT), "expected a module, got"),
        (
            lambda: weft.parallel(net, 3, world=1, cluster=UNIT),
            "a tensor that has rows",
        ),
        (
            lambda: weft.parallel(net, x, world=1, memory="100 B", cluster=UNIT),
            "nothing fits into 100 B a process; the least is",
        ),
        (lambda: Cluster(flops=0, near=1), "flops to be a number above 0, got 0"),
        (lambda: simulate(alike(2), Strategy(data=3), UNIT), "does not divide into"),
        (
            lambda: simulate(alike(2), Strategy(pipeline=4), UNIT),
            "2 layers do not make",
        ),
        (lambda: simulate(alike(2), Strategy(sharding="x"), UNIT), "got 'x'"),
        (
            lambda: simulate(alike(8, 6), Strategy(pipeline=4, rounds=2), UNIT),
            "6 microbatches are no multiple of 4",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            made()
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"flops": 2.0, "near": 3.0, "per_machine": 8}))
    assert Cluster.load(path).link(9) == 3.0
    Cluster.load(path).save(path)
    assert Cluster.load(path).per_machine == 8
    for text in ("{", "[]", '{"flops": 1}', '{"flops": 1, "near": 1, "speed": 2}'):
        path.write_text(text)
        with pytest.raises(weft.errors.FileFormatError):
            Cluster.load(path)


def test_this_machine_is_measured():
    found = Cluster.measured()
    assert 1e8 < found.flops < 1e15
    assert 1e7 < found.near < 1e13
    plan = weft.parallel(nn.Linear(8, 8), weft.ones(4, 8), world=2)
    assert plan.best.world == 2

"""Predictions of memory: near what is measured, quick, and nothing is touched."""

import gc
import time
import tracemalloc

import numpy as np
import pytest

import weft
from weft import models, nn, optim
from weft.core.lowering import View
from weft.core.op import all_ops
from weft.errors import ArgumentError
from weft.graph import Spec
from weft.memory import live
from weft.ops.shaping import reshape_op

F = nn.functional


def classes(n, count=3):
    return weft.randint(0, count, (n,))


def entropy(model, x, y):
    return F.cross_entropy(model(x), y)


def each_entropy(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def square(model, x):
    return model(x).square().mean()


def words(*shape):
    return weft.randint(0, 7, shape)


MODELS = {
    "MLP": (lambda: models.MLP([64, 128, 3]), entropy,
            lambda: (weft.randn(32, 64), classes(32))),
    "LeNet": (lambda: models.LeNet(classes=3), entropy,
              lambda: (weft.randn(8, 1, 28, 28), classes(8))),
    "VGG": (lambda: models.VGG(11, classes=3, width=1 / 16), entropy,
            lambda: (weft.randn(4, 3, 32, 32), classes(4))),
    "resnet18": (lambda: models.resnet18(classes=3, width=8), entropy,
                 lambda: (weft.randn(2, 3, 64, 64), classes(2))),
    "resnet34": (lambda: models.resnet34(classes=3, width=4), entropy,
                 lambda: (weft.randn(2, 3, 32, 32), classes(2))),
    "resnet50": (lambda: models.resnet50(classes=3, width=4), entropy,
                 lambda: (weft.randn(2, 3, 32, 32), classes(2))),
    "ResNet": (lambda: models.ResNet(models.resnet.Bottleneck, [1, 1], 3, width=8),
               entropy, lambda: (weft.randn(2, 3, 32, 32), classes(2))),
    "GPT": (lambda: models.GPT(7, context=16, width=32, heads=2, layers=2, dropout=0.1),
            each_entropy, lambda: (words(4, 16), words(4, 16))),
    "CharLSTM": (lambda: models.CharLSTM(7, width=32),
                 lambda m, x, y: F.cross_entropy(m(x)[0].flatten(0, 1), y.flatten()),
                 lambda: (words(16, 16), words(16, 16))),
    "EncoderClassifier": (
        lambda: models.EncoderClassifier(7, 3, width=16, heads=2, layers=2), entropy,
        lambda: (words(4, 12), classes(4))),
    "Autoencoder": (lambda: models.Autoencoder([32, 64, 8]), square,
                    lambda: (weft.randn(16, 32),)),
    "Generator": (lambda: models.Generator(noise=8, width=4), square,
                  lambda: (weft.randn(4, 8),)),
    "Discriminator": (lambda: models.Discriminator(width=4), square,
                      lambda: (weft.randn(4, 1, 32, 32),)),
    "GCN": (lambda: models.GCN(6, 16, 3),
            lambda m, x, a, y: F.cross_entropy(m(x, a), y),
            lambda: (weft.randn(40, 6), weft.rand(40, 40), classes(40))),
}  # fmt: skip


def training(make, loss_of):
    model = make()
    optimizer = optim.Adam(model.parameters())

    def step(*args):
        optimizer.zero_grad()
        loss = loss_of(model, *args)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


def run_memory(step):
    """The memory that a compiled step's second run works in, beside tensors."""
    (instance,) = step.latest.program.executors.values()
    return (
        instance.arena.nbytes + instance.jobs.memory.nbytes + instance.jobs.data.nbytes
    )


def test_no_model_is_left_out():
    functions = {"normalized_adjacency"}
    assert MODELS.keys() == set(models.__all__) - functions


@pytest.mark.parametrize("name", MODELS)
def test_every_model_within_five_percent(name):
    gc.collect()
    weft.manual_seed(0)
    before = live().total
    make, loss_of, inputs = MODELS[name]
    model, optimizer, step = training(make, loss_of)
    args = inputs()
    plan = weft.plan(step, *args)
    compiled = weft.compile(step)
    for _ in range(2):
        loss = compiled(*args)
    measured = live().total - before + run_memory(compiled)
    assert np.isfinite(loss.item())
    assert plan.peak == pytest.approx(measured, rel=0.05)
    count = 4 * sum(p.numel() for p in model.parameters())
    assert plan.parts.parameters == count
    assert plan.parts.gradients == count
    assert plan.parts.optimizer == 2 * count
    assert optimizer.state


def test_nothing_is_touched():
    model, optimizer, step = training(*MODELS["MLP"][:2])
    old = [p.detach().numpy().copy() for p in model.parameters()]
    gc.collect()
    before = live()
    plan = weft.plan(step, Spec((32, 64)), Spec((32,), weft.int64))
    assert live() == before
    assert not optimizer.state
    assert all(p.grad is None for p in model.parameters())
    assert all(
        np.array_equal(a, p.detach().numpy())
        for a, p in zip(old, model.parameters(), strict=True)
    )
    assert plan.peak == weft.plan(step, weft.zeros(32, 64), classes(32)).peak


def test_state_that_is_there_stays():
    _, optimizer, step = training(*MODELS["MLP"][:2])
    args = MODELS["MLP"][2]()
    step(*args)
    held = {p: dict(s) for p, s in optimizer.state.items()}
    weft.plan(step, *args)
    assert {p: dict(s) for p, s in optimizer.state.items()} == held


def wide(make, **options):
    """A step whose parameters are much larger than all else."""
    model = nn.Linear(1024, 1024)
    optimizer = make(model.parameters(), **options)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return optimizer, step


@pytest.mark.parametrize(
    ("make", "copies"),
    [(optim.SGD, 0), (optim.RMSprop, 1), (optim.Adam, 2), (optim.Adagrad, 1)],
)
def test_nothing_is_allocated(make, copies):
    optimizer, step = wide(make)
    weft.plan(step, Spec((2, 1024)))  # what is loaded when first used
    tracemalloc.start()
    try:
        plan = weft.plan(step, Spec((2, 1024)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert plan.parts.optimizer == copies * plan.parts.parameters
    assert peak < plan.parts.parameters / 2  # objects of the graph
    assert not optimizer.state


def test_it_needs_no_room_under_a_limit():
    _, step = wide(optim.Adam)
    want = weft.plan(step, Spec((2, 1024))).peak
    weft.set_memory_limit(live().total + 1000)
    try:
        assert weft.plan(step, Spec((2, 1024))).peak == want
    finally:
        weft.set_memory_limit(None)


def test_more_than_any_machine_has():
    _, step = wide(optim.Adam)
    plan = weft.plan(step, Spec((10**10, 1024)))
    assert plan.peak > 80 * 10**12
    assert not plan.fits("50TB")
    rows = plan.largest_batch("50TB")
    assert weft.plan(step, Spec((rows, 1024))).fits("50TB")


def test_state_that_is_only_planned_is_not_left_behind():
    optimizer, step = wide(optim.Adam)
    step(weft.ones(2, 1024))
    optimizer.param_groups[0]["amsgrad"] = True  # one more state from here on
    before = {p: dict(s) for p, s in optimizer.state.items()}
    dictionaries = [id(s) for s in optimizer.state.values()]
    plan = weft.plan(step, Spec((2, 1024)))
    assert plan.parts.optimizer == 3 * plan.parts.parameters
    assert [id(s) for s in optimizer.state.values()] == dictionaries
    for p, state in before.items():
        assert optimizer.state[p].keys() == state.keys()
        assert all(optimizer.state[p][k] is v for k, v in state.items())

    def failing(x):
        step(x)
        raise KeyError

    with pytest.raises(KeyError):
        weft.plan(failing, Spec((2, 1024)))
    assert all(optimizer.state[p].keys() == s.keys() for p, s in before.items())


VIEWS = {op.name: op for op in all_ops() if isinstance(op.lower, View)}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_outlines_read_no_element(name):
    """Records say which views are evaluated as copies: there is no memory to ask."""
    op = VIEWS[name]
    for sample in op.samples(np.random.default_rng(0)):
        x = np.asarray(sample.args[0])
        made = op.kernel(x, **sample.params)
        if x.size and op is not reshape_op:
            assert np.may_share_memory(made, x) == bool(op.view)


def test_it_is_quick():
    make, loss_of, inputs = MODELS["GPT"]
    _, _, step = training(make, loss_of)
    args = inputs()
    weft.plan(step, *args)  # what is loaded when first used
    start = time.process_time()
    weft.plan(step, *args)
    assert time.process_time() - start < 1


def test_fits_and_largest_batch():
    _, _, step = training(*MODELS["MLP"][:2])
    plan = weft.plan(step, Spec((8, 64)), Spec((8,), weft.int64))
    assert plan.fits(plan.peak)
    assert not plan.fits(plan.peak - 1)

    def peak(n):
        return weft.plan(step, Spec((n, 64)), Spec((n,), weft.int64)).peak

    for limit in (peak(100), peak(57) - 1):
        n = plan.largest_batch(limit)
        assert peak(n) <= limit < peak(n + 1)
    assert plan.largest_batch(1000) == 0


def test_largest_batch_needs_rows():
    plan = weft.plan(lambda: weft.ones(3))
    with pytest.raises(ArgumentError, match="largest_batch: expected an argument with"):
        plan.largest_batch("1GB")


def test_policies_and_budgets_are_planned_too():
    weft.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.GELU())] * 6)

    def step(x):
        model(x).square().mean().backward()

    x = Spec((512, 32))
    whole, lean = (weft.plan(step, x, memory=way) for way in ("keep", "selective"))
    assert lean.parts.activations < whole.parts.activations / 2
    usual = weft.plan(step, x).parts.activations
    assert lean.parts.activations < usual < whole.parts.activations
    assert lean.parts[:5] == whole.parts[:5]
    assert weft.plan(weft.compile(step, memory="selective"), x).peak == lean.peak
    limit = (whole.peak + lean.peak) // 2
    assert weft.plan(step, x, memory=limit).peak <= limit


def test_what_it_says():
    _, _, step = training(*MODELS["MLP"][:2])
    text = str(weft.plan(step, Spec((8, 64)), Spec((8,), weft.int64)))
    for word in ("step needs", "parameters", "optimizer", "activations", "workspace"):
        assert word in text
    assert "test_plan.py" in text
    assert weft.plan(step, Spec((8, 64)), Spec((8,), weft.int64)).top[0].nbytes > 0


def test_a_function_without_training():
    plan = weft.plan(lambda x: x @ x, weft.ones(64, 64))
    assert plan.parts.arguments == plan.parts.outputs == 64 * 64 * 4
    assert plan.parts.parameters == plan.parts.gradients == 0


def test_an_output_that_many_steps_make_counts_once():
    w = weft.randn(8, 8)

    def step(x):
        made = []
        for _ in range(12):
            x = x @ w
            made.append(weft.stack([x, x + 1]))
        return weft.stack(made)

    assert weft.plan(step, weft.ones(64, 8)).parts.outputs == 12 * 2 * 64 * 8 * 4

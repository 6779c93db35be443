"""Modules and functions of weft.nn on static nodes, for batches of any size."""

import re
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import nn, static
from weft.core.size import OpenSizeError
from weft.graph.control.staging import Staging
from weft.graph.ir import GraphError
from weft.graph.outside_tensors import Capture
from weft.nn import functional as F

BATCHES = (1, 2, 7)


def small_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip


@pytest.mark.parametrize("rows", BATCHES)
def test_a_module_agrees_with_itself(start, rows, rng):
    model = small_cnn().eval()
    x = static.placeholder(weft.float32, [None, 1, 6, 6])
    y = model(x)
    assert y.get_shape() == (None, 3)
    at = rng.normal(size=(rows, 1, 6, 6)).astype(np.float32)
    found = start().run(y, {x: at})
    np.testing.assert_allclose(found, model(weft.tensor(at)).detach().numpy(), 1e-5)


def test_parameters_become_variables(graph, start):
    model = nn.Linear(3, 2)
    x = static.placeholder(weft.float32, [None, 3])
    y, z = model(x), model(x * 2)
    names = ["Linear/weight", "Linear/bias"]
    assert [v.name for v in static.trainable_variables()] == names
    session = start()
    np.testing.assert_array_equal(
        session.run("Linear/weight"), model.weight.detach().numpy()
    )
    twice = session.run([y, z], {x: np.ones((1, 3))})
    bias = model.bias.detach().numpy()
    np.testing.assert_allclose(twice[1] - bias, 2 * (twice[0] - bias), rtol=1e-5)


def test_training_changes_the_session_and_the_module_when_told(start, rng):
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    x = static.placeholder(weft.float32, [None, 3])
    t = static.placeholder(weft.float32, [None, 1])
    loss = F.mse_loss(model(x), t)
    step = static.train.AdamOptimizer(0.05).minimize(loss)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    session = start()
    at = rng.normal(size=(32, 3)).astype(np.float32)
    feed = {x: at, t: at.sum(1, keepdims=True)}
    losses = [session.run([loss, step], feed)[0] for _ in range(150)]
    assert losses[-1] < 0.02 * losses[0]
    for key, value in model.state_dict().items():
        assert weft.equal(value, before[key])
    session.update_module(model)
    assert F.mse_loss(model(weft.tensor(at)), weft.tensor(feed[t])).item() < losses[-1]


def test_batch_norm_moves_its_statistics_in_the_session(start, rng):
    norm, twin = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    x = static.placeholder(weft.float32, [None, 3])
    train = norm(x)
    norm.eval()
    test = norm(x)
    session = start()
    assert type(norm.running_mean) is type(twin.running_mean)
    assert norm.running_mean.tolist() == [0, 0, 0]
    for rows in (2, 7):
        at = rng.normal(2, 3, size=(rows, 3)).astype(np.float32)
        found = session.run(train, {x: at})
        want = twin(weft.tensor(at)).detach().numpy()
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    before = session.run("BatchNorm1d/running_mean")
    found = session.run(test, {x: at})  # changes nothing
    np.testing.assert_array_equal(session.run("BatchNorm1d/running_mean"), before)
    want = twin.eval()(weft.tensor(at)).detach().numpy()
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    assert session.run("BatchNorm1d/num_batches_tracked") == 2
    session.update_module(norm)
    for key, value in twin.state_dict().items():
        np.testing.assert_allclose(norm.state_dict()[key].numpy(), value.numpy(), 1e-5)
    assert [v.name for v in static.trainable_variables()] == [
        "BatchNorm1d/weight", "BatchNorm1d/bias",
    ]  # fmt: skip


def test_batch_norm_refuses_a_single_value_when_it_runs(start):
    x = static.placeholder(weft.float32, [None, 3])
    y = nn.BatchNorm1d(3)(x)
    session = start()
    with pytest.raises(weft.errors.ShapeError, match=r"does not hold for .* = 1"):
        session.run(y, {x: np.ones((1, 3))})


@pytest.mark.parametrize("rows", BATCHES)
def test_functions_for_any_batch(session, rows, rng):
    x = static.placeholder(weft.float64, [None, 3, 4, 4])
    t = static.placeholder(weft.int64, [None])
    w = rng.normal(size=(5, 3, 3, 3))

    def program(x, w, t):
        h = F.relu(F.conv2d(x, w, padding=1))
        h = F.batch_norm(h, None, None, training=True)
        h = F.layer_norm(h, h.shape[1:])
        h = F.max_pool2d(h, 2) + F.avg_pool2d(h, 2)
        h = F.adaptive_avg_pool2d(h, 1).flatten(1)
        return F.softmax(h, 1), F.cross_entropy(h, t), F.log_softmax(h, 0).sum()

    at, to = rng.normal(size=(rows, 3, 4, 4)), rng.integers(0, 5, rows)
    found = session.run(program(x, weft.tensor(w), t), {x: at, t: to})
    want = program(weft.tensor(at), weft.tensor(w), weft.tensor(to))
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rows", BATCHES)
def test_sequence_modules_for_any_batch(start, rows, rng):
    lstm = nn.LSTM(4, 5, batch_first=True)
    block = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    x = static.placeholder(weft.float32, [None, 6, 4])
    out = [lstm(x)[0], block(x)]
    session = start()
    at = rng.normal(size=(rows, 6, 4)).astype(np.float32)
    eager = [lstm(weft.tensor(at))[0], block(weft.tensor(at))]
    for a, b in zip(session.run(out, {x: at}), eager, strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_whatever_takes_symbols_has_what_operators_ask_of_it():
    """``weft.ops`` and ``weft.nn`` tell whatever is being built what they do."""
    asked = {
        name
        for room in ("ops", "nn")
        for path in (Path(weft.__file__).parent / room).rglob("*.py")
        for name in re.findall(r"mode\.capture\.(\w+)", path.read_text())
    }
    assert {"guard", "touch", "number"} <= asked
    for kind in (static.Graph, Capture, Staging):
        assert {name for name in asked if not hasattr(kind, name)} <= {"builder"}


def test_dropout_in_a_module_draws_in_every_run(start):
    x = static.placeholder(weft.float32, [None])
    y = nn.Dropout(0.5)(x)
    session = start()
    one, two = (session.run(y, {x: np.ones(64)}) for _ in range(2))
    assert set(one) == {0, 2}
    assert (one != two).any()


def test_tensors_without_gradient_are_constants(graph, session):
    x = static.placeholder(weft.float32, [])
    three = weft.tensor(3.0)
    y = x * three
    three += 1
    assert session.run(y, {x: 2.0}) == 6
    assert static.global_variables() == []


def test_a_leaf_outside_a_module_is_a_variable(start):
    w = weft.tensor([2.0, 3.0], requires_grad=True)
    x = static.placeholder(weft.float32, [None, 2])
    step = static.train.GradientDescentOptimizer(1.0).minimize((x * w).sum())
    session = start()
    session.run(step, {x: np.ones((4, 2))})
    (held,) = static.trainable_variables()
    assert session.run(held).tolist() == [-2, -1]
    assert w.tolist() == [2, 3]


def test_what_was_computed_from_parameters_is_refused(graph):
    w = weft.tensor([2.0], requires_grad=True)
    x = static.placeholder(weft.float32, [None])
    with pytest.raises(GraphError, match=r"computed eagerly .* without its gradient"):
        x * (w * 2)
    assert (x * (w * 2).detach()).get_shape() == (None,)


def test_open_sizes_are_no_python_numbers(graph):
    x = static.placeholder(weft.float32, [None, 2], name="x")
    for use in (int, range, lambda n: [0] * n, float):
        with pytest.raises(OpenSizeError, match="size x_0 is known only when"):
            use(x.shape[0])
    assert weft.zeros(x.shape[0], 3).get_shape() == (None, 3)
    assert weft.arange(x.shape[0]).get_shape() == (None,)


def test_other_tensors_cannot_be_changed_while_building(graph):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = [weft.zeros(1)]

        def forward(self, x):
            self.seen[0] += 1
            return x

    with pytest.raises(GraphError, match="cannot be changed in place"):
        Counts()(static.placeholder(weft.float32, [1]))


def test_tied_parameters_are_one_variable(start):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2, bias=False)
            self.b = nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    model = Tied()
    x = static.placeholder(weft.float32, [None, 2])
    y = model(x)
    assert len(static.global_variables()) == 1
    found = start().run(y, {x: np.eye(2)})
    w = model.a.weight.detach().numpy()
    np.testing.assert_allclose(found, (w @ w).T, rtol=1e-5, atol=1e-7)


def test_tensorflows_layouts_and_paddings(session, rng):
    """SAME and VALID against sums written out."""
    x, w = rng.normal(size=(2, 5, 6, 3)), rng.normal(size=(3, 2, 3, 4))
    for padding, steps in (("VALID", (1, 1)), ("SAME", (1, 1)), ("SAME", (2, 2))):
        found = session.run(static.nn.conv2d(x, w, [1, *steps, 1], padding))
        np.testing.assert_allclose(found, conv(x, w, steps, padding), rtol=1e-10)
        top = session.run(static.nn.max_pool(x, [1, 3, 2, 1], [1, *steps, 1], padding))
        np.testing.assert_allclose(top, windows(x, steps, padding, np.nanmax))
        mean = session.run(static.nn.avg_pool(x, [1, 3, 2, 1], [1, *steps, 1], padding))
        np.testing.assert_allclose(
            mean, windows(x, steps, padding, np.nanmean), rtol=1e-6
        )


def padded(x, steps, padding, fill):
    if padding == "VALID":
        return x
    pads = []
    for n, k, s in zip(x.shape[1:3], (3, 2), steps, strict=True):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        pads.append((total // 2, total - total // 2))
    return np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=fill)


def patches(x, steps):
    for i in range(0, x.shape[1] - 2, steps[0]):
        for j in range(0, x.shape[2] - 1, steps[1]):
            yield i // steps[0], j // steps[1], x[:, i : i + 3, j : j + 2]


def conv(x, w, steps, padding):
    found = patches(padded(x, steps, padding, 0.0), steps)
    return gather({(i, j): np.einsum("nhwc,hwcf->nf", p, w) for i, j, p in found})


def windows(x, steps, padding, fn):
    found = patches(padded(x, steps, padding, np.nan), steps)
    return gather({(i, j): fn(p, axis=(1, 2)) for i, j, p in found})


def gather(rows):
    height, width = (1 + max(k[a] for k in rows) for a in (0, 1))
    return np.stack(
        [np.stack([rows[i, j] for j in range(width)], 1) for i in range(height)], 1
    )


def test_losses_under_tensorflows_names(session, rng):
    z, logits = rng.uniform(size=(4, 3)), rng.normal(size=(4, 3))
    labels, chances = rng.integers(0, 3, 4), z / z.sum(1, keepdims=True)
    log = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    N = static.nn
    found = session.run(
        [
            N.softmax_cross_entropy_with_logits(chances, logits),
            N.sparse_softmax_cross_entropy_with_logits(labels, logits),
            N.sigmoid_cross_entropy_with_logits(z, logits),
            N.l2_loss(logits),
            *N.moments(logits, [0]),
            N.embedding_lookup(logits, labels),
            N.xw_plus_b(logits, z.T, np.ones(4)),
            N.leaky_relu(logits),
        ]
    )
    sigma = 1 / (1 + np.exp(-logits))
    want = [
        -(chances * log).sum(1),
        -log[np.arange(4), labels],
        -(z * np.log(sigma) + (1 - z) * np.log(1 - sigma)),
        (logits**2).sum() / 2,
        logits.mean(0),
        logits.var(0),
        logits[labels],
        logits @ z.T + 1,
        np.where(logits > 0, logits, 0.2 * logits),
    ]
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_modules_in_branches_and_loops(start, rng):
    cell = nn.Linear(2, 2)
    x = static.placeholder(weft.float32, [None, 2])
    on = static.placeholder(weft.bool, [])
    chosen = static.cond(on, lambda: cell(x), lambda: x * 1)
    _, state = static.while_loop(
        lambda k, h: k < 3,
        lambda k, h: [k + 1, static.tanh(cell(h) + x)],
        [static.constant(0), weft.zeros(x.shape[0], 2)],
    )
    names = [v.name for v in static.trainable_variables()]
    assert names == ["Linear/weight", "Linear/bias"]
    grads = static.gradients(state.sum(), static.trainable_variables())
    session, told = start(), static.RunMetadata()
    at = rng.normal(size=(5, 2)).astype(np.float32)
    eager, h = weft.tensor(at), weft.zeros(5, 2)
    for _ in range(3):
        h = weft.tanh(cell(h) + eager)
    h.sum().backward()
    found = session.run([state, *grads], {x: at})
    want = [h.detach(), cell.weight.grad, cell.bias.grad]
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-4, atol=1e-5)
    out = session.run(chosen, {x: at, on: True}, run_metadata=told)
    np.testing.assert_allclose(out, cell(eager).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert "matmul" not in told.counts  # it is inside the branch
    np.testing.assert_array_equal(session.run(chosen, {x: at, on: False}), at)


def test_a_buffer_may_change_in_place_many_times(start):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", weft.zeros(()))

        def forward(self, x):
            self.count += 1
            self.count *= 2
            return x * self.count

    model = Counter()
    x = static.placeholder(weft.float32, [])
    y = model(x)
    assert type(model.count) is weft.Tensor
    session = start()
    assert [session.run(y, {x: 1.0}).item() for _ in range(3)] == [2, 6, 14]
    session.update_module(model)
    assert model.count == 14


def test_buffers_do_not_change_in_branches(graph):
    norm = nn.BatchNorm1d(2)
    x = static.placeholder(weft.float32, [None, 2])
    with pytest.raises(GraphError, match="outside of branches"):
        static.cond(x.sum() > 0, lambda: norm(x), lambda: x * 1)
    assert type(norm.num_batches_tracked) is type(nn.BatchNorm1d(2).num_batches_tracked)
    assert norm.num_batches_tracked == 0
    assert norm(weft.ones(3, 2)).shape == (3, 2)


def test_a_module_that_fails_leaves_its_buffers_whole(graph):
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", weft.zeros(()))

        def forward(self, x):
            self.count += 1
            raise ValueError("no")

    model = Fails()
    with pytest.raises(ValueError, match="no"):
        model(static.placeholder(weft.float32, []))
    assert model.count.item() == 0


def test_a_module_that_is_first_met_in_a_loop(start):
    norm = nn.BatchNorm1d(2).eval()
    x = static.placeholder(weft.float32, [None, 2])
    _, y = static.while_loop(
        lambda k, h: k < 2, lambda k, h: [k + 1, norm(h)], [static.constant(0), x]
    )
    names = sorted(v.name for v in static.global_variables())
    assert names == [
        "BatchNorm1d/bias", "BatchNorm1d/running_mean", "BatchNorm1d/running_var",
        "BatchNorm1d/weight",
    ]  # fmt: skip
    session, at = start(), np.ones((3, 2), np.float32)
    before = session.run(y, {x: at})
    mean = next(v for v in static.global_variables() if v.name.endswith("mean"))
    session.load(mean, [1.0, 1.0])
    np.testing.assert_allclose(session.run(y, {x: at}), before - 2, rtol=1e-4)

"""Captured programs do what the Python function does, or say why they cannot."""

import threading

import numpy as np
import pytest

import weft
from weft import graph as G
from weft import models, nn, optim
from weft.errors import ArgumentError, ShapeError
from weft.graph import CaptureError, Spec

F = nn.functional


def bits(tree):
    return {k: v.detach().numpy().tobytes() for k, v in tree.items()}


def same_state(a, b):
    assert bits(a.state_dict()) == bits(b.state_dict())


# -- whole training steps


def small_net():
    return nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2)
    )


def training(make_optimizer):
    """A model, its optimizer and one step of training, always from the same seed."""
    weft.manual_seed(0)
    model = small_net()
    optimizer = make_optimizer(model.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss

    return model, optimizer, step


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1),
    "Nesterov": lambda p: optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "Adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.1, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.01),
    "maximize": lambda p: optim.Adam(p, lr=0.01, maximize=True),
    "RAdam": lambda p: optim.RAdam(p, lr=0.01),
    "NAdam": lambda p: optim.NAdam(p, lr=0.01),
    "Adamax": lambda p: optim.Adamax(p, lr=0.01),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.01, lr_decay=0.1),
    "Adadelta": lambda p: optim.Adadelta(p, lr=0.5),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "Lion": lambda p: optim.Lion(p, lr=0.01),
}


@pytest.fixture(scope="module")
def batches():
    weft.manual_seed(1)
    return [(weft.randn(6, 4), weft.randint(0, 2, (6,))) for _ in range(8)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step_equals_eager_bit_for_bit(name, batches):
    """Losses, parameters, buffers, gradients, moments, random state."""
    model, optimizer, step = training(OPTIMIZERS[name])
    weft.manual_seed(2)
    want = [step(x, y).item() for x, y in batches]
    state = weft.get_rng_state()
    twin, twin_optimizer, twin_step = training(OPTIMIZERS[name])
    captured = G.capture(twin_step, *batches[0])
    G.verify(captured.graph)
    weft.manual_seed(2)
    assert [captured(x, y).item() for x, y in batches] == want
    assert weft.equal(weft.get_rng_state(), state)
    same_state(model, twin)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert p.grad.numpy().tobytes() == q.grad.numpy().tobytes()
        mine, other = optimizer.state[p], twin_optimizer.state[q]
        for key, value in mine.items():
            if isinstance(value, weft.Tensor):
                assert value.numpy().tobytes() == other[key].numpy().tobytes()
            else:
                assert value == other[key]


def test_eager_goes_on_after_captured_steps(batches):
    model, _, step = training(OPTIMIZERS["Adam"])
    weft.manual_seed(2)
    for x, y in batches:
        step(x, y)
    twin, _, twin_step = training(OPTIMIZERS["Adam"])
    captured = G.capture(twin_step, *batches[0])
    weft.manual_seed(2)
    for k, (x, y) in enumerate(batches):
        (captured if k % 3 else twin_step)(x, y)
    same_state(model, twin)


def test_a_schedule_is_followed(batches):
    model, optimizer, step = training(OPTIMIZERS["AdamW"])
    twin, twin_optimizer, twin_step = training(OPTIMIZERS["AdamW"])
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    twin_schedule = optim.lr_scheduler.ExponentialLR(twin_optimizer, 0.5)
    captured = G.capture(twin_step, *batches[0])
    for seed, (x, y) in enumerate(batches):
        weft.manual_seed(seed)
        step(x, y)
        schedule.step()
        weft.manual_seed(seed)
        captured(x, y)
        twin_schedule.step()
    same_state(model, twin)


def test_a_changed_option_is_refused(batches):
    _, optimizer, step = training(OPTIMIZERS["AdamW"])
    captured = G.capture(step, *batches[0])
    optimizer.param_groups[0]["eps"] = 1e-3
    with pytest.raises(ArgumentError, match=r"param_groups\[0\]\['eps'\] = 1e-08"):
        captured(*batches[0])


def test_gradients_add_up_where_they_are_kept(batches):
    weft.manual_seed(0)
    model = nn.Linear(4, 2)

    def step(x, y):
        F.cross_entropy(model(x), y).backward()

    for x, y in batches[:3]:
        step(x, y)
    want = model.weight.grad.numpy().copy()
    model.zero_grad()
    step(*batches[0])
    held = model.weight.grad
    captured = G.capture(step, *batches[1])
    assert model.weight.grad is held
    captured(*batches[1])
    captured(*batches[2])
    np.testing.assert_array_equal(model.weight.grad.numpy(), want)


# -- models


def gpt():
    return models.GPT(11, context=8, width=16, heads=2, layers=2, dropout=0.1)


class OverAGraph(nn.Module):
    """A graph network with its graph."""

    def __init__(self):
        super().__init__()
        self.net = models.GCN(4, 6, 2)
        edges = weft.tensor([[0, 1], [1, 2]])
        self.register_buffer("links", models.normalized_adjacency(edges, 3))

    def forward(self, x):
        return self.net(x, self.links)


MODELS = {
    "classifier": (
        lambda: models.EncoderClassifier(11, 3, width=16, heads=2, context=8),
        lambda: weft.randint(0, 11, (2, 8)),
    ),
    "CharLSTM": (lambda: models.CharLSTM(11, 8), lambda: weft.randint(0, 11, (2, 5))),
    "autoencoder": (lambda: models.Autoencoder([6, 3]), lambda: weft.randn(4, 6)),
    "generator": (lambda: models.Generator(5, width=4), lambda: weft.randn(2, 5)),
    "discriminator": (
        lambda: models.Discriminator(width=4),
        lambda: weft.randn(2, 1, 32, 32),
    ),
    "GCN": (OverAGraph, lambda: weft.randn(3, 4)),
    "MLP": (lambda: models.MLP([6, 5, 3]), lambda: weft.randn(4, 6)),
    "LeNet": (lambda: models.LeNet(), lambda: weft.randn(2, 1, 28, 28)),
    "ResNet": (
        lambda: models.resnet18(classes=3, cifar=True, width=4),
        lambda: weft.randn(2, 3, 12, 12),
    ),
    "VGG": (
        lambda: models.VGG(11, classes=3, width=1 / 16),
        lambda: weft.randn(2, 3, 32, 32),
    ),
    "GPT": (gpt, lambda: weft.randint(0, 11, (2, 8))),
    "LSTM": (lambda: nn.LSTM(3, 4, num_layers=2), lambda: weft.randn(5, 2, 3)),
    "encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2),
        lambda: weft.randn(5, 2, 8),
    ),
}


def total(out):
    leaves, _ = weft.tree_flatten(out)
    return sum((t * t).mean() for t in leaves)


@pytest.mark.parametrize("name", MODELS)
def test_models_step_as_eager(name):
    build, example = MODELS[name]

    def prepared():
        weft.manual_seed(0)
        model = build()
        optimizer = optim.AdamW(model.parameters(), lr=0.01)
        x = example()

        def step(x):
            optimizer.zero_grad()
            loss = total(model(x))
            loss.backward()
            optimizer.step()
            return loss

        return model, step, x

    model, step, x = prepared()
    want = [step(x).item() for _ in range(3)]
    twin, twin_step, x = prepared()
    captured = G.capture(twin_step, x)
    assert [captured(x).item() for _ in range(3)] == want
    same_state(model, twin)


@pytest.mark.parametrize("name", MODELS)
def test_model_gradients_as_a_pass(name):
    """The backward program appended to the captured forward one is the tape's."""
    build, example = MODELS[name]
    weft.manual_seed(0)
    model, x = build().eval(), example()
    captured = G.capture(lambda x: total(model(x)), x)
    program = G.gradients(captured.graph)
    G.verify(program)
    store = {cell.variable: cell.get() for cell in captured.cells.values()}
    results, _ = G.Program(program, program.outputs).run([x.numpy()], store)
    total(model(x)).backward()
    reads = [n.params["variable"] for n in program.nodes if n.op.name == "read"]
    names = [variable.name for variable in reads if variable.trainable]
    found = dict(zip(names, results[-len(names) :], strict=True))
    for cell_name, cell in captured.cells.items():
        if not cell.variable.trainable:
            continue
        want = cell.tensor.grad.numpy()
        np.testing.assert_allclose(
            found[cell_name], want, rtol=1e-4, atol=1e-6, err_msg=cell_name
        )


def test_a_model_runs_for_other_sizes():
    weft.manual_seed(0)
    model = gpt().eval()
    x = weft.randint(0, 11, (2, 6))
    captured = G.capture(model, x, dynamic={"ids": {0: "B", 1: "T"}})
    for batch, steps in ((2, 6), (1, 1), (5, 8)):
        ids = weft.randint(0, 11, (batch, steps))
        assert weft.equal(captured(ids), model(ids).detach())
    with pytest.raises(ShapeError, match="sizes with T <= 8, which does not hold"):
        captured(weft.randint(0, 11, (1, 9)))


def test_state_is_named_by_module_path():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    captured = G.capture(lambda x: model(x), weft.ones(4, 2))
    names = {"0.weight", "0.bias", "1.weight", "1.running_mean", "1.running_var"}
    assert names <= set(captured.state)
    assert captured.graph["matmul"].module == "0"
    assert captured.state["0.weight"] is model[0].weight


# -- what Python does meanwhile


def test_branch_on_a_value_is_refused_at_its_line():
    def f(x):
        return max(x.sum(), x.mean())

    with pytest.raises(CaptureError, match=r"known only when the graph runs") as info:
        G.capture(f, weft.ones(3))
    text = str(info.value)
    assert "weft.cond" in text
    assert "return max(x.sum(), x.mean())" in text


@pytest.mark.parametrize(
    "use", [float, int, bool, lambda x: x.item(), lambda x: x.numpy(), list, repr]
)
def test_values_are_refused(use):
    def f(x):
        use(x.sum() if use is not list else x)
        return x

    if use is list:  # rows of known number are fine
        G.capture(f, weft.ones(3))
    else:
        with pytest.raises(CaptureError):
            G.capture(f, weft.ones(3))


def test_a_value_from_outside_is_refused_too():
    """A number read now would be stale in the next run."""
    scale = weft.tensor(3.0)
    with pytest.raises(CaptureError):
        G.capture(lambda x: x * float(scale), weft.ones(3))
    assert float(scale) == 3.0


def test_tensors_from_outside_are_read_in_every_run():
    scale, table = weft.tensor(3.0), np.array([1.0, 2.0, 3.0], np.float32)
    f = G.capture(lambda x: x * scale + weft.tensor(table), weft.ones(3))
    assert f(weft.ones(3)).tolist() == [4.0, 5.0, 6.0]
    scale.fill_(10.0)
    table[:] = 0.5
    assert f(weft.ones(3)).tolist() == [10.5, 10.5, 10.5]


def test_values_made_inside_are_constants():
    f = G.capture(lambda x: x + weft.tensor([1.0, 2.0]), weft.ones(2))
    assert [n.op.name for n in f.graph] == ["input", "constant", "add"]


def test_escaping_tensors_are_refused():
    class Keeper:
        def __call__(self, x):
            self.last = x * 2
            return self.last + 1

    with pytest.raises(CaptureError, match=r"stay behind.*Return it"):
        G.capture(Keeper(), weft.ones(2))
    kept = []
    with pytest.raises(CaptureError, match="stay behind in a list"):
        G.capture(lambda x: kept.append(x + 1), weft.ones(2))
    with pytest.raises(CaptureError, match=r"capture of .* that is over"):
        kept[0] + 1


def test_a_module_keeps_the_tensors_of_each_run():
    class Keeper(nn.Module):
        def forward(self, x):
            self.last = x * 2
            self.again = self.last.detach()
            return self.last + 1

    model = Keeper()
    program = G.capture(model, weft.ones(2))
    for number in (3.0, 5.0):
        x = weft.full((2,), number, requires_grad=True)
        assert program(x).tolist() == [2 * number + 1] * 2
        assert model.last.tolist() == model.again.tolist() == [2 * number] * 2


def test_after_a_failure_all_is_as_before():
    model = nn.Linear(2, 2)
    optimizer = optim.Adam(model.parameters())
    model(weft.ones(1, 2)).sum().backward()
    before, grad = bits(model.state_dict()), model.weight.grad

    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        raise KeyError("planned")

    with pytest.raises(KeyError, match="planned"):
        G.capture(step, weft.ones(1, 2))
    assert type(model.weight) is weft.Tensor
    assert model.weight.grad is grad
    assert bits(model.state_dict()) == before
    assert model(weft.ones(1, 2)).shape == (1, 2)


def test_in_place_changes_views_and_swaps():
    a, b = weft.zeros(4), weft.arange(4.0)

    def f(x):
        a[1:3] += x
        view = a[2:]
        view.mul_(10)
        first = a.clone()
        a.copy_(b)
        b.copy_(first)
        return view

    def fresh():
        a.zero_()
        b.copy_(weft.arange(4.0))

    captured = G.capture(f, weft.ones(2))
    assert a.tolist() == [0, 0, 0, 0]
    out = captured(weft.tensor([1.0, 2.0])).tolist()
    got = a.tolist(), b.tolist()
    fresh()
    want = f(weft.tensor([1.0, 2.0])).tolist()
    assert (a.tolist(), b.tolist()) == got
    assert out == want


def test_no_grad_and_detach_stop_derived_gradients():
    def f(x):
        with weft.no_grad():
            w = x * 2
        return (x * w + x * x.detach()).sum()

    x = weft.tensor([1.0, 3.0], requires_grad=True)
    f(x).backward()
    graph = G.gradients(G.capture(f, x.detach()).graph)
    got = G.Program(graph, graph.outputs).run([x.detach().numpy()], {})[0][-1]
    np.testing.assert_array_equal(got, x.grad.numpy())


def test_random_operators_draw_anew():
    f = G.capture(lambda x: F.dropout(x, 0.5), weft.ones(64))
    weft.manual_seed(3)
    a, b = f(weft.ones(64)), f(weft.ones(64))
    weft.manual_seed(3)
    assert weft.equal(a, F.dropout(weft.ones(64), 0.5))
    assert not weft.equal(a, b)


def test_another_thread_waits_for_borrowed_tensors():
    weight = weft.ones(3, requires_grad=True)
    started, seen = threading.Event(), []

    def other():
        started.wait()
        seen.append((weight * 2).tolist())

    thread = threading.Thread(target=other)
    thread.start()

    def f(x):
        y = x * weight
        started.set()
        thread.join(0.05)
        return y

    G.capture(f, weft.ones(3))
    thread.join()
    assert seen == [[2.0, 2.0, 2.0]]


def test_python_values_are_part_of_the_program():
    f = G.capture(lambda x, n: x * n, weft.ones(2), 3)
    assert f(weft.ones(2), 3).tolist() == [3, 3]
    with pytest.raises(ArgumentError, match="captured for the Python value 3, got 4"):
        f(weft.ones(2), 4)


def test_trees_of_arguments_and_results():
    def f(batch, *, scale):
        return {"sum": batch["a"] + batch["b"][0], "rest": (scale, None, "text")}

    batch = {"a": weft.ones(2), "b": [weft.ones(2)]}
    captured = G.capture(f, batch, scale=weft.tensor(2.0))
    assert [n.name for n in captured.graph.inputs] == ["batch.a", "batch.b.0", "scale"]
    out = captured(batch, scale=weft.tensor(5.0))
    assert out["sum"].tolist() == [2, 2]
    assert out["rest"][0].item() == 5
    assert out["rest"][1:] == (None, "text")
    with pytest.raises(ArgumentError, match="structure"):
        captured(batch)


def test_wrong_arguments_are_named():
    f = G.capture(lambda x, y: x + y, weft.ones(2), weft.ones(2))
    with pytest.raises(ShapeError, match=r"y: expected float32\[2\], got float32\[3\]"):
        f(weft.ones(2), weft.ones(3))
    with pytest.raises(TypeError, match=r"x: expected float32\[2\], got int64\[2\]"):
        f(weft.ones(2, dtype=weft.int64), weft.ones(2))
    with pytest.raises(ArgumentError, match=r"dynamic names \['z'\]"):
        G.capture(lambda x: x, weft.ones(2), dynamic={"z": {0: "B"}})


def test_an_error_in_a_run_names_node_and_line():
    f = G.capture(lambda table, i: table[i], weft.ones(3), weft.tensor([0]))
    with pytest.raises(IndexError, match=r"index 7 .*\n  in node 'take', made at") as e:
        f(weft.ones(3), weft.tensor([7]))
    assert "table[i]" in str(e.value)


# -- sizes


def test_specs_need_no_values():
    f = G.capture(lambda x: x.mean(-1), Spec(("B", 4), weft.float64))
    assert str(f.graph.outputs[0].type) == "float64[B]"
    assert f(weft.ones(7, 4, dtype=weft.float64)).shape == (7,)


def test_a_branch_on_a_size_is_an_assumption():
    def f(x):
        return x * 2 if x.shape[0] > 3 else x

    captured = G.capture(f, weft.ones(5), dynamic={"x": {0: "B"}})
    assert list(captured.graph.sizes.assumptions) == ["B > 3"]
    assert captured(weft.ones(9)).shape == (9,)
    with pytest.raises(ShapeError, match=r"B > 3, .*B = 2") as error:
        captured(weft.ones(2))
    assert "if x.shape[0] > 3" in str(error.value)


def test_a_loop_over_a_size_fixes_it():
    def f(x):
        out = 0
        for row in range(x.shape[0]):
            out = out + x[row]
        return out

    captured = G.capture(f, weft.ones(3, 2), dynamic={"x": {0: "B"}})
    assert captured(weft.ones(3, 2)).tolist() == [3, 3]
    with pytest.raises(ShapeError, match="B == 3"):
        captured(weft.ones(4, 2))


def test_sizes_agree_between_arguments():
    sizes = {"x": {0: "B"}, "y": {0: "B"}}
    f = G.capture(lambda x, y: x + y, weft.ones(3), weft.ones(3), dynamic=sizes)
    assert f(weft.ones(5), weft.ones(5)).shape == (5,)
    with pytest.raises(ShapeError, match=r"y: expected float32\[B\].*B is 5 here"):
        f(weft.ones(5), weft.ones(6))
    with pytest.raises(ArgumentError, match="'B' is 3 in one example and 4"):
        G.capture(lambda x, y: x, weft.ones(3), weft.ones(4), dynamic=sizes)


# -- hooks on gradients


def test_a_hook_on_a_gradient_that_leaves_the_program_is_refused():
    w = weft.ones(3, requires_grad=True)

    def forward(x):
        y = x * w
        y.register_hook(lambda g: g * 10)
        return y.sum()

    with pytest.raises(CaptureError, match="a hook on a gradient"):
        weft.graph.capture(forward, weft.ones(3))
    weft.compile(forward, fullgraph=False)(weft.ones(3)).backward()
    assert w.grad.tolist() == [10.0] * 3


def test_hooks_of_modules_on_gradients_run_in_a_compiled_network():
    seen = []
    net = weft.nn.Sequential(weft.nn.Linear(3, 4), weft.nn.ReLU(), weft.nn.Linear(4, 1))
    for module in net:
        module.register_full_backward_hook(lambda m, gi, go: seen.append(m))
    compiled = weft.compile(net, fullgraph=False)
    compiled(weft.ones(2, 3)).sum().backward()
    assert seen == list(net)[::-1]


def test_hooks_of_parameters_and_inner_backwards_are_captured():
    w = weft.ones(3, requires_grad=True)
    w.register_hook(lambda g: g * 10)
    program = weft.compile(lambda x: (x * w).sum())
    program(weft.ones(3)).backward()
    assert w.grad.tolist() == [10.0] * 3

    def step(x):
        y = x * w
        y.register_hook(lambda g: g * 2)
        y.sum().backward()

    w.grad = None
    weft.compile(step)(weft.ones(3))
    assert w.grad.tolist() == [20.0] * 3

"""Layers, nets, models and solvers under ``weft.compile``: the eager results and state.

Everything that an eager call leaves in Python is compared: the attributes of layers,
nets, optimizers and solvers, by a walk over all of them.
"""

import copy

import numpy as np
import pytest

import weft
from weft import layers, nn
from weft.errors import AutogradError
from weft.graph.symbol import CaptureError
from weft.layers import Blob, Dense, Model, Net, Place, ReLU, Solver

CLOSE = {"rtol": 1e-9, "atol": 1e-12}  # as modules are held to, in float64

OBJECTS = nn.Module, layers.Optimizer, weft.optim.Optimizer, Solver, Model, Blob


def state(value, path="", seen=None):
    """Every array and plain value that an object leads to, by its path."""
    seen = {} if seen is None else seen
    if isinstance(value, weft.Tensor):
        return {path: value.detach().numpy().copy()}
    if isinstance(value, (dict, list, tuple)):
        rows = value.items() if isinstance(value, dict) else enumerate(value)
        rows = list(rows)
    elif isinstance(value, OBJECTS):
        if id(value) in seen:
            return {path: seen[id(value)]}
        seen[id(value)] = path
        skipped = ("_plans", "_alike", "defaults", "_wirings", "places", "_tape")
        rows = [(k, v) for k, v in sorted(vars(value).items()) if k not in skipped]
    elif isinstance(value, (bool, int, float, str, type(None))):
        return {path: value}
    else:
        return {path: type(value).__name__}
    out = {f"{path}#": len(rows)}
    for k, (key, item) in enumerate(rows):
        label = key if isinstance(key, (str, int)) else k
        out.update(state(item, f"{path}.{label}", seen))
    return out


def assert_same(got, want, **close):
    assert set(got) == set(want), set(got) ^ set(want)
    for path, value in want.items():
        if isinstance(value, np.ndarray):
            assert got[path].dtype == value.dtype, path
            np.testing.assert_allclose(
                got[path], value, **(close or CLOSE), err_msg=path
            )
        elif isinstance(value, float):
            assert got[path] == pytest.approx(value, rel=1e-12), path
        else:
            assert got[path] == value, path


def leaves(result):
    if isinstance(result, dict):
        return {k: leaves(v) for k, v in result.items()}
    if isinstance(result, (list, tuple)):
        return [leaves(v) for v in result]
    return result


def both(thing, step, calls, **options):
    """Run ``step(thing, *call)`` eagerly and compiled, and compare after every call."""
    eager, twin = thing, copy.deepcopy(thing)
    compiled = weft.compile(lambda *args: step(twin, *args), **options)
    for number, call in enumerate(calls):
        weft.manual_seed(number)
        want = step(eager, *call)
        weft.manual_seed(number)
        got = compiled(*call)
        assert_same(state(leaves(got)), state(leaves(want)))
        assert_same(state(twin), state(eager))
    return compiled, twin


def tensors(rng, *shapes):
    return [weft.tensor(rng.normal(size=shape)) for shape in shapes]


def mlp():
    return Net([Dense(3, 5), ReLU(), layers.Tanh(), Dense(5, 2)]).double()


def step_model(model, x, y):
    loss, steps = model.backward(model.forward(x), y)
    model.apply_grad(steps)
    return loss


def step_solver(solver, *data):
    return solver.step(*data)


OPTIMIZERS = {
    "SGD": lambda **o: layers.SGD(0.1, **o),
    "Momentum": lambda **o: layers.Momentum(0.1, 0.8, **o),
    "Nesterov": lambda **o: layers.Momentum(0.1, 0.8, nesterov=True, **o),
    "Adam": lambda **o: layers.Adam(0.05, **o),
    "RAdam": lambda **o: layers.RAdam(0.05, **o),
    "RMSProp": lambda **o: layers.RMSProp(0.05, momentum=0.5, **o),
    "Adagrad": lambda **o: layers.Adagrad(0.05, **o),
    "Adadelta": lambda **o: layers.Adadelta(**o),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("decay", [None, "tinynn", "decoupled", "l2"])
def test_a_step_by_every_optimizer(kind, decay, rng):
    options = {} if decay is None else {"weight_decay": 0.1, "decay": decay}
    model = Model(mlp(), layers.MSELoss(), OPTIMIZERS[kind](**options))
    batches = [tensors(rng, (4, 3), (4, 2)) for _ in range(7)]
    compiled, _ = both(model, step_model, batches)
    assert len(compiled.compiles) == 1


def test_rates_change_between_calls(rng):
    model = Model(mlp(), layers.MSELoss(), layers.Adam(0.1))
    compiled, twin = both(model, step_model, [tensors(rng, (4, 3), (4, 2))] * 3)
    for rate in (0.05, 0.2, 0.0):
        model.optimizer.lr = twin.optimizer.lr = rate
        batch = tensors(rng, (4, 3), (4, 2))
        step_model(model, *batch)
        compiled(*batch)
        assert_same(state(twin), state(model))
    assert len(compiled.compiles) == 1
    model.optimizer.weight_decay = twin.optimizer.weight_decay = 0.5
    step_model(model, *batch)
    compiled(*batch)
    assert_same(state(twin), state(model))
    assert "weight_decay" in compiled.compiles[-1].why


def lenet(side=12):
    return Net(
        [
            Place(layers.Convolution(3, 3, name="conv1"), ("data",), ("conv1",)),
            Place(layers.Pooling("MAX", 2, 2, name="pool1"), ("conv1",), ("pool1",)),
            Place(layers.Convolution(4, 2, name="conv2"), ("pool1",), ("conv2",)),
            Place(layers.Pooling("AVE", 2, 2, name="pool2"), ("conv2",), ("pool2",)),
            Place(layers.InnerProduct(6, name="ip1"), ("pool2",), ("ip1",)),
            Place(ReLU(name="relu1"), ("ip1",), ("ip1",)),
            Place(layers.InnerProduct(5, name="ip2"), ("ip1",), ("ip2",)),
            Place(
                layers.SoftmaxWithLoss(name="loss"),
                ("ip2", "label"),
                ("loss",),
                "TRAIN",
            ),
            Place(layers.Softmax(name="prob"), ("ip2",), ("prob",), "TEST"),
        ],
        inputs={"data": (1, 1, side, side), "label": (1,)},
        force_backward=True,
    ).double()


def images(rng, count=4, side=12):
    x = weft.tensor(rng.normal(size=(count, 1, side, side)))
    return x, weft.tensor(rng.integers(0, 5, size=count))


POLICIES = [
    {"lr_policy": "fixed"},
    {"lr_policy": "step", "gamma": 0.5, "stepsize": 2},
    {"lr_policy": "multistep", "gamma": 0.5, "stepvalue": [1, 3]},
    {"lr_policy": "exp", "gamma": 0.9},
    {"lr_policy": "inv", "gamma": 0.1, "power": 0.75},
    {"lr_policy": "poly", "power": 2, "max_iter": 40},
    {"lr_policy": "sigmoid", "gamma": -0.1, "stepsize": 2},
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p["lr_policy"])
def test_a_solver_follows_its_policy(policy, rng):
    solver = Solver(lenet(), base_lr=0.1, momentum=0.9, weight_decay=5e-4, **policy)
    compiled, twin = both(solver, step_solver, [images(rng) for _ in range(6)])
    assert twin.iter == 6
    assert len(compiled.compiles) == 1
    solver.iter = twin.iter = 20  # as after a checkpoint was loaded
    solver.base_lr = twin.base_lr = 0.2
    batch = images(rng)
    step_solver(solver, *batch)
    compiled(*batch)
    assert_same(state(twin), state(solver))
    assert "base_lr" in compiled.compiles[-1].why


@pytest.mark.parametrize(
    "kind", ["SGD", "Nesterov", "Adam", "AdaGrad", "AdaDelta", "RMSProp"]
)
def test_every_type_of_solver(kind, rng):
    options = {"momentum": 0.9} if kind in ("SGD", "Nesterov") else {}
    solver = Solver(lenet(), kind, 0.01, lr_policy="inv", gamma=0.1, **options)
    both(solver, step_solver, [images(rng) for _ in range(4)])


def test_a_compiled_solver_solves(rng):
    batches = [dict(zip(("data", "label"), images(rng), strict=True)) for _ in range(5)]
    solver = Solver(lenet(), base_lr=0.1, momentum=0.5, lr_policy="exp", gamma=0.9)
    twin = copy.deepcopy(solver).compile()
    np.testing.assert_allclose(twin.solve(batches), solver.solve(batches), rtol=1e-10)
    assert len(twin.step.compiles) == 1
    assert "conv_bias" in str(twin.step.explain())


def test_several_steps_in_one_function(rng):
    def thrice(solver, *data):
        return [solver.step(*data) for _ in range(3)]

    solver = Solver(lenet(), type="Adam", base_lr=0.01, lr_policy="exp", gamma=0.9)
    _, twin = both(solver, thrice, [images(rng) for _ in range(4)])
    assert twin.iter == 12


def test_a_rate_that_is_used_in_the_function_is_refused(rng):
    solver = Solver(lenet(), base_lr=0.1, lr_policy="exp")

    def step(*data):
        loss = solver.step(*data)
        return loss * solver.lr

    with pytest.raises(CaptureError, match="differs from call to call"):
        weft.compile(step)(*images(rng))

    def counted(*data):
        if solver.iter > 3:
            return weft.zeros(())
        return solver.step(*data)

    with pytest.raises(CaptureError, match=r"iter is read, and then set to another"):
        weft.compile(counted)(*images(rng))
    assert solver.iter == 0
    assert isinstance(solver.optimizer.lr, float)


# -- phases, noise and statistics


def noisy():
    return Net(
        [
            Dense(3, 8),
            layers.BatchNorm(),
            layers.Sigmoid(),
            layers.Dropout(0.4),
            layers.Softplus(),
            Dense(8, 2),
        ]
    ).double()


def test_phases(rng):
    def step(model, x, y, phase):
        model.set_phase(phase)
        if phase == "TEST":
            return model.forward(x)
        return step_model(model, x, y)

    model = Model(noisy(), layers.HuberLoss(0.5), layers.Momentum(0.1))
    calls = [(*tensors(rng, (6, 3), (6, 2)), p) for p in ("TRAIN", "TEST") * 2]
    model.forward(calls[0][0])  # a state to begin with
    eager, twin = model, copy.deepcopy(model)
    train = weft.compile(lambda x, y: step_model(twin, x, y))
    test = weft.compile(lambda x: twin.forward(x))
    for number, (x, y, phase) in enumerate(calls):
        twin.set_phase(phase)
        weft.manual_seed(number)
        want = step(eager, x, y, phase)
        weft.manual_seed(number)
        got = train(x, y) if phase == "TRAIN" else test(x)
        assert_same(state(got), state(want))
        assert_same(state(twin), state(eager))
    assert len(train.compiles) == len(test.compiles) == 1


def test_one_function_runs_both_phases(rng):
    solver = Solver(lenet(), base_lr=0.1)
    twin = copy.deepcopy(solver)
    forward = weft.compile(lambda *data: twin.net.forward(*data))
    batch = images(rng)
    for phase in (True, False, True):
        solver.net.train(phase), twin.net.train(phase)
        args = batch if phase else batch[:1]
        want, got = solver.net.forward(*args), forward(*args)
        assert_same(state(got), state(want))
        assert_same(state(twin), state(solver))


# -- nets


def diamond(**options):
    return Net(
        [
            Place(Dense(3, 4, name="a"), ("data",), ("a",)),
            Place(layers.Tanh(name="b"), ("a",), ("b",)),
            Place(Dense(4, 4, name="c"), ("a",), ("c",)),
            Place(layers.Eltwise("PROD", name="mix"), ("b", "c", "a"), ("mix",)),
        ],
        **options,
    ).double()


def run_and_pull(net, x, g):
    out = net.forward(x)
    return out, net.backward(g)


@pytest.mark.parametrize("force", [False, True])
def test_forward_and_backward_in_one_call(force, rng):
    calls = [tensors(rng, (5, 3), (5, 4)) for _ in range(3)]
    _, net = both(diamond(force_backward=force), run_and_pull, calls)
    assert set(net.input_grads) == ({"data"} if force else set())
    x, g = calls[-1]
    a, b, c = (net.blobs[k].data.numpy() for k in "abc")
    np.testing.assert_allclose(net.blobs["c"].diff.numpy(), g.numpy() * a * b)
    np.testing.assert_array_equal(net.blobs["data"].data.numpy(), x.numpy())
    np.testing.assert_allclose(net.blobs["mix"].data.numpy(), a * b * c)


def test_backward_goes_on_eagerly_from_a_compiled_forward(rng):
    net, twin = diamond(), None
    twin = copy.deepcopy(net)
    forward = weft.compile(lambda x: twin.forward(x))
    for _ in range(3):
        x, g = tensors(rng, (5, 3), (5, 4))
        net.forward(x), forward(x)
        net.backward(g), twin.backward(g)
        assert_same(state(twin), state(net))


def test_results_and_state_are_one_object_where_they_are_eagerly(rng):
    net = mlp()
    x, g = tensors(rng, (4, 3), (4, 2))
    compiled = weft.compile(lambda x, g: (net.forward(x), net.backward(g)))
    for _ in range(2):
        out, grads = compiled(x, g)
        assert net[-1].grads is grads[-1]
        assert net._values[-1] is out
        assert np.shares_memory(net[0].inputs.numpy(), x.numpy())
        assert net._values[1] is net[1].inputs or np.shares_memory(
            net._values[1].numpy(), net[1].inputs.numpy()
        )


def test_sizes_change_between_calls(rng):
    calls = [tensors(rng, (n, 3), (n, 2)) for n in (4, 6, 5, 4, 9, 1)]
    model = Model(mlp(), layers.MSELoss(), layers.Adam(0.1))
    compiled, _ = both(model, step_model, calls)
    assert len(compiled.compiles) <= 3
    solver = Solver(lenet(), base_lr=0.1, momentum=0.5)
    both(solver, step_solver, [images(rng, n) for n in (3, 5, 4, 3)])


def test_parameters_wait_for_the_first_compiled_call(rng):
    def build():
        weft.manual_seed(3)
        return Net([layers.Dense(None, 4), layers.BatchNorm(), layers.InnerProduct(2)])

    eager, net = build(), build()
    model, twin = (
        Model(n, layers.MSELoss(), layers.Momentum(0.1)) for n in (eager, net)
    )
    compiled = weft.compile(lambda x, y: step_model(twin, x, y))
    x, y = weft.randn(4, 3), weft.randn(4, 2)
    for _ in range(3):
        weft.manual_seed(7)
        want = step_model(model, x, y)
        weft.manual_seed(7)
        got = compiled(x, y)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)
        assert_same(state(twin), state(model), rtol=1e-4, atol=1e-6)
    assert len(compiled.compiles) == 1


def test_losses_with_weights_and_shared_bottoms(rng):
    net = Net(
        [
            Place(Dense(2, 2, name="a"), ("x",), ("a",)),
            Place(layers.MSELoss(name="one"), ("a", "y"), ("one",)),
            Place(layers.MAELoss(0.5, name="two"), ("a", "y"), ("two",)),
            Place(ReLU(name="other"), ("a",), ("other",)),
        ],
        inputs=("x", "y"),
    ).double()
    solver = Solver(net, base_lr=0.1)
    both(solver, step_solver, [tensors(rng, (3, 2), (3, 2)) for _ in range(3)])


def test_layers_that_share_a_parameter(rng):
    first, second = Dense(3, 3, name="a"), Dense(3, 3, name="b")
    second.params["w"] = first.params["w"]
    assert second.params["w"] is first.params["w"]
    model = Model(
        Net([first, ReLU(), second]).double(), layers.MSELoss(), layers.SGD(0.1)
    )
    assert model.net[2].params["w"] is model.net[0].params["w"]
    _, twin = both(model, step_model, [tensors(rng, (4, 3), (4, 3)) for _ in range(3)])
    assert twin.net[2].params["w"] is twin.net[0].params["w"]


def test_a_frozen_layer_stays(rng):
    model = Model(mlp(), layers.MSELoss(), layers.SGD(0.1, weight_decay=0.1))
    model.net[0].requires_grad_(False)
    before = model.net[0].params["w"].numpy().copy()
    _, twin = both(model, step_model, [tensors(rng, (4, 3), (4, 2)) for _ in range(3)])
    np.testing.assert_array_equal(twin.net[0].params["w"].numpy(), before)


def test_verify_compares_what_layers_keep(rng):
    solver = Solver(lenet(), type="Adam", base_lr=0.01, lr_policy="exp", gamma=0.9)
    both(solver, step_solver, [images(rng) for _ in range(3)], verify=True)


# -- layers of one's own


class Caffe(layers.Layer):
    """Caffe's form, called in tinynn's: its blobs are made in the call."""

    def setup(self, bottom, top):
        self.params["a"] = weft.ones(bottom[0].shape[1], dtype=weft.float64)

    def forward(self, bottom, top):
        top[0].data[...] = (bottom[0].data * self.params["a"]).exp()

    def backward(self, top, propagate_down, bottom):
        slope = top[0].diff * top[0].data
        self.grads["a"] = (slope * bottom[0].data).sum(0)
        if propagate_down[0]:
            bottom[0].diff[...] = slope * self.params["a"]


class Gate(layers.Layer):
    """No backward: it is derived."""

    def __init__(self):
        self.params = {"a": weft.ones(2, dtype=weft.float64)}

    def forward(self, inputs):
        self.shape = inputs.shape
        return inputs * (self.params["a"] * inputs).sigmoid()


class Outer(layers.Layer):
    """A layer of layers, with a hand-written backward."""

    def __init__(self):
        self.inner = [Dense(2, 2).double(), layers.Tanh()]

    def forward(self, inputs):
        for layer in self.inner:
            inputs = layer.forward(inputs)
        return inputs

    def backward(self, grad):
        for layer in reversed(self.inner):
            grad = layer.backward(grad)
        self.grads["inner.0.w"] = self.inner[0].grads["w"]
        self.grads["inner.0.b"] = self.inner[0].grads["b"]
        return grad


@pytest.mark.parametrize("kind", [Caffe, Gate, Outer])
def test_layers_of_ones_own(kind, rng):
    net = Net([Dense(3, 2), kind(), Dense(2, 2)], force_backward=True).double()
    model = Model(net, layers.MSELoss(), layers.Adam(0.1))
    if kind is Caffe:
        model.forward(weft.zeros(1, 3, dtype=weft.float64))  # makes its parameters
    compiled, _ = both(
        model, step_model, [tensors(rng, (4, 3), (4, 2)) for _ in range(3)]
    )
    assert len(compiled.compiles) == 1


def test_blobs_from_outside_are_filled_where_they_are(rng):
    layer = layers.Sigmoid()
    bottom, top = [Blob(weft.tensor(rng.normal(size=3)))], [Blob()]

    @weft.compile
    def run():
        layer.forward(bottom, top)
        top[0].diff[...] = 2.0
        layer.backward(top, [True], bottom)

    run()
    memory = top[0].data
    for _ in range(2):
        bottom[0].data.copy_(weft.tensor(rng.normal(size=3)))
        run()
        s = 1 / (1 + np.exp(-bottom[0].data.numpy()))
        np.testing.assert_allclose(top[0].data.numpy(), s)
        np.testing.assert_allclose(bottom[0].diff.numpy(), 2 * s * (1 - s))
        assert top[0].data is memory
    bottom[0].data = weft.tensor(rng.normal(size=5))  # other memory: noticed
    run()
    assert top[0].data.shape == (5,)
    s = 1 / (1 + np.exp(-bottom[0].data.numpy()))
    np.testing.assert_allclose(top[0].data.numpy(), s)


class Running(layers.Layer):
    """Keeps a value from call to call in an attribute."""

    def __init__(self):
        self.last = weft.zeros(2)

    def forward(self, inputs):
        self.last = self.last + inputs
        return self.last * 1

    def backward(self, grad):
        return grad


class Counted(layers.Layer):
    def __init__(self):
        self.calls = 0

    def forward(self, inputs):
        self.calls += 1
        return inputs * 1

    def backward(self, grad):
        return grad


def test_a_captured_state_of_the_run_before_is_refused():
    layer = Running()
    with pytest.raises(CaptureError, match=r"'last' is read, and then set"):
        weft.graph.capture(lambda x: layer.forward(x), weft.ones(2))
    net, x = mlp(), weft.ones(4, 3, dtype=weft.float64)
    net.forward(x)
    program = weft.graph.capture(lambda x: net.forward(x), x)
    assert_same(state(program(x * 2)), state(net.forward(x * 2)))
    assert_same(state(net.blobs["relu1"].data), state(net[2].inputs))


@pytest.mark.parametrize(("kind", "name"), [(Running, "last"), (Counted, "calls")])
def test_state_of_the_call_before_is_refused(kind, name):
    layer = kind()
    before = getattr(layer, name)
    with pytest.raises(CaptureError, match=rf"{name} is read, and then set"):
        weft.compile(lambda x: layer.forward(x))(weft.ones(2))
    assert getattr(layer, name) is before


def test_values_kept_in_a_branch_are_refused():
    layer = layers.Sigmoid()

    @weft.compile
    def run(x):
        return weft.cond(x.sum() > 0, lambda x: layer.forward(x), lambda x: x * 1, x)

    with pytest.raises(CaptureError, match="Sigmoid keeps 'inputs' for later, inside"):
        run(weft.ones(2))


def test_a_derived_backward_needs_its_forward_in_the_same_function():
    gate = Gate()
    weft.compile(lambda x: gate.forward(x))(weft.ones(3, 2, dtype=weft.float64))
    with pytest.raises(AutogradError, match="in the same function if it is compiled"):
        gate.backward(weft.ones(3, 2, dtype=weft.float64))


def test_a_changed_layer_is_noticed(rng):
    net, batch = mlp(), tensors(rng, (4, 3), (4, 2))
    twin = copy.deepcopy(net)
    compiled = weft.compile(lambda x, g: run_and_pull(twin, x, g))
    for one, run in ((net, lambda *a: run_and_pull(net, *a)), (twin, compiled)):
        run(*batch)
        one[1].negative_slope = 0.3
        run(*batch)
        one[0].params["w"] = weft.nn.Parameter(one[0].params["w"].detach() * 2)
        run(*batch)
    assert_same(state(twin), state(net))
    assert "negative_slope" in compiled.compiles[1].why


# -- with the tape and modules


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.swish = layers.Sigmoid()
        self.net = Net([Dense(4, 4), layers.Tanh()])
        self.last = nn.Linear(4, 1)

    def forward(self, x):
        h = self.swish(self.first(x)) + self.swish(self.first(x * 2))
        return self.last(self.net(h).exp())


def step_mixed(pair, x, y):
    model, optimizer = pair
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def test_layers_modules_and_the_tape_in_one_step(rng):
    model = Mixed().double()
    pair = (model, weft.optim.AdamW(model.parameters(), 0.05))
    compiled, twin = both(
        pair, step_mixed, [tensors(rng, (4, 3), (4, 1)) for _ in range(4)]
    )
    assert len(compiled.compiles) == 1
    for p, q in zip(pair[0].parameters(), twin[0].parameters(), strict=True):
        np.testing.assert_allclose(q.grad.numpy(), p.grad.numpy(), **CLOSE)


def test_the_tape_runs_through_a_compiled_net(rng):
    net = diamond()
    twin = weft.compile(copy.deepcopy(net))
    for _ in range(3):
        (x,) = tensors(rng, (5, 3))
        grads = []
        for one in (net, twin):
            t = x.clone().requires_grad_()
            one.zero_grad()
            (one(t) ** 2).sum().backward()
            grads.append([t.grad, *[p.grad for p in one.parameters()]])
        for a, b in zip(*grads, strict=True):
            np.testing.assert_allclose(b.numpy(), a.numpy(), **CLOSE)
    assert "kernels" in str(twin.explain())


def test_half_the_step_by_hand_and_half_by_the_tape(rng):
    def step(pair, x, y):
        net, head = pair
        h = net.forward(x).requires_grad_()
        loss = ((head(h) - y) ** 2).mean()
        head.zero_grad()
        loss.backward()
        net.backward(h.grad)
        with weft.no_grad():
            for p in head.parameters():
                p -= 0.1 * p.grad
            for params, grads in net.get_params_and_grads():
                for key, p in params.items():
                    p -= 0.1 * grads[key]
        return loss.detach()

    net, head = mlp(), nn.Linear(2, 1).double()
    both((net, head), step, [tensors(rng, (4, 3), (4, 1)) for _ in range(3)])

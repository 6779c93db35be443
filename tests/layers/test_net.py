"""Nets, models, solvers and their optimizers."""

import copy

import numpy as np
import pytest

import weft
from weft import layers
from weft.autograd import gradcheck
from weft.core.mode import observe
from weft.errors import ArgumentError, AutogradError, DTypeError, ShapeError
from weft.layers import Dense, Model, MSELoss, Net, Place, ReLU, Solver


class Logged(layers.Layer):
    log = []

    def forward(self, inputs):
        self.log.append(("forward", self.name))
        return inputs * 2

    def backward(self, grad):
        self.log.append(("backward", self.name))
        return grad * 2


def as_it_is(fn):
    return fn


@pytest.fixture(params=[as_it_is, weft.compile], ids=["eager", "compiled"])
def way(request):
    """A function as it is, or compiled."""
    return request.param


def diamond(**options):
    """x -> a -> (b, c) -> sum, with the branches used twice."""
    return Net(
        [
            Place(Dense(3, 4, name="a"), ("data",), ("a",)),
            Place(layers.Tanh(name="b"), ("a",), ("b",)),
            Place(Dense(4, 4, name="c"), ("a",), ("c",)),
            Place(layers.Eltwise("PROD", name="mix"), ("b", "c", "a"), ("mix",)),
        ],
        **options,
    ).double()


# -- order


def test_backward_is_the_reverse_of_forward():
    Logged.log.clear()
    net = Net([Logged() for _ in range(4)])
    net.forward(weft.ones(2))
    net.backward(weft.ones(2))
    runs = [name for kind, name in Logged.log if kind == "forward"]
    back = [name for kind, name in Logged.log if kind == "backward"]
    assert runs == ["logged1", "logged2", "logged3", "logged4"]
    assert back == runs[::-1]


def test_layers_listed_out_of_order_are_sorted():
    Logged.log.clear()
    net = Net(
        [
            Place(Logged("last"), ("m",), ("out",)),
            Place(Logged("first"), ("data",), ("l",)),
            Place(Logged("middle"), ("l",), ("m",)),
        ]
    )
    assert net.forward(weft.ones(1)).tolist() == [8]
    net.backward(weft.ones(1))
    order = [name for _, name in Logged.log]
    assert order == ["first", "middle", "last", "last", "middle", "first"]


# -- values


def test_branches_add_their_gradients(way, rng):
    net = diamond(force_backward=True)
    x, weights = rng.normal(size=(5, 3)), rng.normal(size=(5, 4))
    grads = way(lambda x, g: (net.forward(x), net.backward(g)))(x, weights)[1]
    t = weft.tensor(x, requires_grad=True)
    (net(t) * weft.tensor(weights)).sum().backward()
    np.testing.assert_allclose(net.input_grads["data"].numpy(), t.grad.numpy())
    for layer, found in zip(net.layers, grads, strict=True):
        for key, p in layer.params.items():
            np.testing.assert_allclose(found[key].numpy(), p.grad.numpy(), rtol=1e-12)
    assert gradcheck(net, (t,))


def test_values_and_gradients_by_name(way, rng):
    net = diamond()
    out = way(net.forward)(rng.normal(size=(5, 3)))
    np.testing.assert_array_equal(net.blobs["mix"].data.numpy(), out.numpy())
    way(net.backward)(weft.ones_like(out))
    b, c = (net.blobs[k].data.numpy() for k in "bc")
    a = net.blobs["a"].data.numpy()
    np.testing.assert_allclose(net.blobs["c"].diff.numpy(), b * a, rtol=1e-12)
    np.testing.assert_allclose(net.blobs["b"].diff.numpy(), c * a, rtol=1e-12)


def test_the_inputs_gradient_is_only_computed_if_asked():
    def products(**options):
        net = Net([Dense(3, 4), Dense(4, 2)], **options)
        net.forward(weft.ones(2, 3))
        seen = []
        with observe(lambda op, args, params, out: seen.append(op.name)):
            net.backward(weft.ones(2, 2))
        return seen.count("matmul"), net.input_grads

    assert products() == (3, {})
    count, grads = products(force_backward=True)
    assert count == 4
    assert grads["data"].shape == (2, 3)


def test_in_place_tops_replace_a_name():
    net = Net(
        [
            Place(Dense(2, 2, name="ip"), ("data",), ("ip",)),
            Place(ReLU(name="relu"), ("ip",), ("ip",)),
            Place(Dense(2, 1, name="out"), ("ip",), ("out",)),
        ]
    )
    x = weft.randn(4, 2)
    want = net["out"](net["relu"](net["ip"](x)))
    np.testing.assert_array_equal(net.forward(x).numpy(), want.detach().numpy())
    assert (net.blobs["ip"].data.numpy() >= 0).all()


def test_several_outputs_come_by_name():
    net = Net(
        [
            Place(Dense(2, 2, name="l"), ("data",), ("l",)),
            Place(Dense(2, 3, name="r"), ("data",), ("r",)),
        ]
    )
    out = net.forward(weft.ones(1, 2))
    assert {k: v.shape for k, v in out.items()} == {"l": (1, 2), "r": (1, 3)}
    grads = net.backward(r=weft.ones(1, 3))
    assert grads[0] == {}
    assert set(grads[1]) == {"w", "b"}
    with pytest.raises(ArgumentError, match="give gradients by name"):
        net.backward(weft.ones(1, 3))


def test_phases_run_their_own_layers():
    net = Net(
        [
            Place(layers.InnerProduct(2, name="ip"), ("data",), ("ip",)),
            Place(
                layers.SoftmaxWithLoss(name="loss"), ("ip", "label"), ("loss",), "TRAIN"
            ),
            Place(layers.Softmax(name="prob"), ("ip",), ("prob",), "TEST"),
        ],
        inputs={"data": (1, 3), "label": (1,)},
    )
    x, y = weft.randn(4, 3), weft.tensor([0, 1, 1, 0])
    assert net.forward(x, y).shape == ()
    net.backward()
    assert set(net["ip"].grads) == {"w", "b"}
    net.eval()
    prob = net.forward(x)  # no label needed
    np.testing.assert_allclose(prob.numpy().sum(1), 1, rtol=1e-6)
    with pytest.raises(ArgumentError, match="no layer is a loss"):
        net.backward()
    net.train()
    with pytest.raises(ArgumentError, match="missing 'label'; in phase TRAIN"):
        net.forward(x)


def test_known_shapes_make_the_parameters_at_once():
    net = Net(
        [layers.Convolution(4, 3), layers.BatchNorm(), layers.InnerProduct(5)],
        inputs={"data": (1, 2, 6, 6)},
    )
    assert [sorted(p) for p in net.get_parameters()] == [
        ["b", "w"], ["beta", "gamma"], ["b", "w"],
    ]  # fmt: skip
    assert net[2].params["w"].shape == (64, 5)
    assert (net[1].mean.numpy() == 0).all()  # the rehearsal left no trace
    assert net.training
    with pytest.raises(AutogradError, match="before forward"):
        net.backward(weft.ones(1, 5))
    with pytest.raises(AutogradError, match="before forward"):
        net[2].backward(weft.ones(1, 5))


# -- parameters


def test_setting_what_was_got_changes_nothing(rng):
    net = diamond()
    x = rng.normal(size=(2, 3))
    before = net.forward(x).numpy()
    net.set_parameters(net.get_parameters())
    np.testing.assert_array_equal(net.forward(x).numpy(), before)
    other = diamond()
    other.set_parameters(
        [{k: v.detach().numpy() for k, v in p.items()} for p in net.get_parameters()]
    )
    np.testing.assert_array_equal(other.forward(x).numpy(), before)
    pairs = list(net.get_params_and_grads())
    assert [sorted(p) for p, _ in pairs] == [["b", "w"], [], ["b", "w"], []]


def test_set_parameters_refuses_what_does_not_fit():
    net = Net([Dense(2, 3, name="fc"), ReLU()])
    w, b = weft.zeros(2, 3), weft.zeros(3)
    with pytest.raises(ArgumentError, match="each of 2 layers, got 1"):
        net.set_parameters([{"w": w, "b": b}])
    with pytest.raises(
        ArgumentError, match=r"'fc'.*missing \['b'\], unexpected \['c'\]"
    ):
        net.set_parameters([{"w": w, "c": b}, {}])
    with pytest.raises(ArgumentError, match=r"unexpected \['w'\]"):
        net.set_parameters([{"w": w, "b": b}, {"w": w}])
    before = net[0].params["w"].detach().numpy().copy()
    with pytest.raises(ShapeError, match=r"'b' of shape \(3,\), got \(2,\)"):
        net.set_parameters([{"w": w, "b": weft.zeros(2)}, {}])
    np.testing.assert_array_equal(net[0].params["w"].detach().numpy(), before)


# -- mistakes in the wiring


@pytest.mark.parametrize(
    ("places", "text"),
    [
        (
            [("a", ["nothing"], ["a"])],
            r"'a' \(ReLU\) reads 'nothing'.*there are a, data",
        ),
        ([("a", ["b"], ["a"]), ("b", ["a"], ["b"])], "in a cycle: a -> b -> a"),
        (
            [("a", ["data"], ["x"]), ("b", ["c"], ["b"]), ("c", ["b"], ["c"])],
            "in a cycle: b -> c -> b",
        ),
        ([("a", ["data"], ["a"]), ("a", ["a"], ["b"])], "2 layers are named 'a'"),
        ([("a", ["data"], ["t"]), ("b", ["data"], ["t"])], "makes 't', which is made"),
        (
            [("a", ["data"], ["a"], "VALID")],
            "expected phase TRAIN or TEST, got 'VALID'",
        ),
    ],
)
def test_bad_wiring(places, text):
    listed = [Place(ReLU(name=name), *rest) for name, *rest in places]
    with pytest.raises(ArgumentError, match=text):
        Net(listed)


def test_other_mistakes():
    relu = ReLU(name="r")
    with pytest.raises(ArgumentError, match="is there twice"):
        Net([relu, relu])
    with pytest.raises(DTypeError, match="expected layers or places, got Linear"):
        Net([weft.nn.Linear(2, 2)])
    net = Net([Dense(2, 3, name="fc")])
    with pytest.raises(AutogradError, match="backward was called before forward"):
        net.backward(weft.ones(1, 3))
    with pytest.raises(ArgumentError, match="at most 1 inputs"):
        net.forward(weft.ones(1, 2), weft.ones(1))
    with pytest.raises(ArgumentError, match="unknown 'dta'"):
        net.forward(weft.ones(1, 2), dta=weft.ones(1))
    with pytest.raises(ShapeError, match=r"layer 'fc' \(Dense\): expected rows of 2"):
        net.forward(weft.ones(1, 3))
    net.forward(weft.ones(1, 2))
    with pytest.raises(ShapeError, match=r"'fc' of its shape \(1, 3\), got \(2,\)"):
        net.backward(weft.ones(2))
    with pytest.raises(ArgumentError, match="no layer is named 'fd'; there are fc"):
        net["fd"]
    with pytest.raises(ShapeError, match="gave 1 outputs for 2 tops"):
        Net([Place(ReLU(), ("data",), ("a", "b"))]).forward(weft.ones(1))


def test_shape_mismatch_while_building_names_the_layer():
    with pytest.raises(
        ShapeError, match=r"layer 'second' \(Dense\): expected rows of 5"
    ):
        Net(
            [Dense(2, 4, name="first"), Dense(5, 1, name="second")],
            inputs={"data": (1, 2)},
        )


# -- the program of two linear layers and its hundred losses


def numpy_program(w1, w2, x, y, rate, epochs):
    """A 3-4-2 network trained by gradients written out in NumPy."""
    b1, b2 = np.zeros(4), np.zeros(2)
    w1, w2, losses = w1.copy(), w2.copy(), []
    for _ in range(epochs):
        z = x @ w1 + b1
        h = z * (z > 0)
        out = h @ w2 + b2
        losses.append(np.mean((out - y) ** 2))
        g = 2 * (out - y) / y.size
        gh = g @ w2.T * (z > 0)
        w2, b2 = w2 - rate * (h.T @ g), b2 - rate * g.sum(0)
        w1, b1 = w1 - rate * (x.T @ gh), b1 - rate * gh.sum(0)
    return losses


@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_a_hundred_losses_agree_with_numpy(scale, way):
    draw = np.random.RandomState(0)
    w1, w2 = draw.randn(3, 4) * scale, draw.randn(4, 2) * scale
    x, y = draw.randn(5, 3), draw.randn(5, 2)
    want = numpy_program(w1, w2, x, y, 0.1, 100)
    net = Net([Dense(3, 4), ReLU(), Dense(4, 2)]).double()
    net.set_parameters([{"w": w1, "b": np.zeros(4)}, {}, {"w": w2, "b": np.zeros(2)}])
    model = Model(net, MSELoss(), layers.SGD(lr=0.1))
    got = train(model, x, y, 100, way)
    assert np.abs(np.array(got) - want).max() < 1e-12
    assert got[-1] < 0.97 * got[0]


# -- optimizers


class Ruled:
    """What each optimizer's steps must equal: the rule of weft.optim on each tensor."""

    CASES = [
        (lambda: layers.SGD(0.1), lambda p: weft.optim.SGD(p, 0.1)),
        (
            lambda: layers.Momentum(0.1, 0.8, nesterov=True),
            lambda p: weft.optim.SGD(p, 0.1, 0.8, nesterov=True),
        ),
        (lambda: layers.Adam(0.1), lambda p: weft.optim.Adam(p, 0.1)),
        (lambda: layers.RAdam(0.1), lambda p: weft.optim.RAdam(p, 0.1)),
        (
            lambda: layers.RMSProp(0.1, momentum=0.5),
            lambda p: weft.optim.RMSprop(p, 0.1, momentum=0.5),
        ),
        (lambda: layers.Adagrad(0.1), lambda p: weft.optim.Adagrad(p, 0.1)),
        (lambda: layers.Adadelta(0.1), lambda p: weft.optim.Adadelta(p, 0.1)),
        (
            lambda: layers.SGD(0.1, 0.3, decay="tinynn"),
            lambda p: weft.optim.SGD(p, 0.1, weight_decay=0.3, decay="tinynn"),
        ),
        (
            lambda: layers.SGD(0.1, 0.3, decay="decoupled"),
            lambda p: weft.optim.SGD(p, 0.1, weight_decay=0.3, decay="decoupled"),
        ),
        (
            lambda: layers.Adam(0.1, weight_decay=0.3, decay="decoupled"),
            lambda p: weft.optim.AdamW(p, 0.1, weight_decay=0.3),
        ),
        (
            lambda: layers.Adam(0.1, weight_decay=0.3, decay="l2"),
            lambda p: weft.optim.Adam(p, 0.1, weight_decay=0.3),
        ),
    ]


@pytest.mark.parametrize(("flat", "each"), Ruled.CASES)
def test_the_flat_step_is_the_step_of_each_tensor(flat, each, rng):
    shapes = [{"w": (3, 2), "b": (2,)}, {}, {"w": (2,)}]
    params = [
        {
            k: weft.nn.Parameter(weft.tensor(rng.normal(size=s)))
            for k, s in layer.items()
        }
        for layer in shapes
    ]
    twins = [p.detach().clone().requires_grad_() for d in params for p in d.values()]
    mine, theirs = flat(), each(twins)
    for _ in range(20):
        grads = [
            {k: weft.tensor(rng.normal(size=s)) for k, s in d.items()} for d in shapes
        ]
        steps = mine.compute_step(grads, params)
        for twin, g in zip(twins, [g for d in grads for g in d.values()], strict=True):
            twin.grad = g
        theirs.step()
        with weft.no_grad():
            for p, step in zip(params, steps, strict=True):
                for key in p:
                    p[key] += step[key]
    pairs = zip([p for d in params for p in d.values()], twins, strict=True)
    for p, twin in pairs:
        np.testing.assert_allclose(
            p.detach().numpy(), twin.detach().numpy(), rtol=1e-12, atol=1e-13
        )


def test_one_rule_runs_for_all_parameters(rng, monkeypatch):
    sizes = []
    real = weft.optim.Adam.update

    def counted(self, g, p, state, group):
        sizes.append(g.size)
        return real(self, g, p, state, group)

    monkeypatch.setattr(weft.optim.Adam, "update", counted)
    params = [{"w": weft.ones(3, 2), "b": weft.ones(2)}, {"w": weft.ones(4)}]
    layers.Adam(0.1).compute_step(params, params)
    assert sizes == [12]


def test_each_weight_decay_is_its_formula():
    w, g = {"w": weft.tensor([2.0])}, {"w": weft.tensor([0.5])}

    def step(decay):
        return layers.SGD(0.1, 0.3, decay=decay).compute_step([g], [w])[0]["w"].item()

    assert step("tinynn") == pytest.approx(-0.1 * 0.5 - 0.3 * 2)
    assert step("decoupled") == pytest.approx(-0.1 * 0.5 - 0.1 * 0.3 * 2)
    assert step("l2") == pytest.approx(-0.1 * (0.5 + 0.3 * 2))
    with pytest.raises(ArgumentError, match="decay to be one of tinynn, decoupled, l2"):
        layers.SGD(0.1, decay="l1")
    with pytest.raises(ArgumentError, match="expected lr at least 0"):
        layers.SGD(-1.0)


def test_compute_step_refuses_what_does_not_fit():
    sgd = layers.Momentum(0.1)
    w = {"w": weft.ones(2)}
    with pytest.raises(ShapeError, match="for 1 layers, got 2"):
        sgd.compute_step([w, w], [w])
    with pytest.raises(
        ArgumentError, match=r"parameters \['w'\], got gradients \['v'\]"
    ):
        sgd.compute_step([{"v": weft.ones(2)}], [w])
    with pytest.raises(ShapeError, match=r"shape \(2,\), got \(3,\)"):
        sgd.compute_step([{"w": weft.ones(3)}], [w])
    sgd.compute_step([w], [w])
    with pytest.raises(ShapeError, match=r"of shapes \[\(2,\)\] as in"):
        sgd.compute_step([{"w": weft.ones(3)}], [{"w": weft.ones(3)}])


# -- models


def toy(rng, count=64):
    x = rng.normal(size=(count, 2)).astype(np.float32)
    return x, (x[:, :1] * x[:, 1:] > 0).astype(np.float32)


def make_model(optimizer):
    net = Net([Dense(2, 16), layers.Tanh(), layers.BatchNorm(), Dense(16, 1)])
    return Model(net, layers.SigmoidCrossEntropy(), optimizer)


def train(model, x, y, steps, way=as_it_is):
    @way
    def step(x, y):
        loss, steps = model.backward(model.forward(x), y)
        model.apply_grad(steps)
        return loss

    return [float(step(x, y)) for _ in range(steps)]


@pytest.mark.parametrize(
    "optimizer", [layers.Momentum(0.1), layers.Adam(0.03), layers.RMSProp(0.01)]
)
def test_a_model_learns(optimizer, way, rng):
    x, y = toy(rng)
    model = make_model(copy.deepcopy(optimizer))
    losses = train(model, x, y, 150, way)
    assert losses[-1] < 0.25 * losses[0]
    model.set_phase("TEST")
    right = ((model.forward(x).numpy() > 0) == (y > 0)).mean()
    assert right > 0.9
    with pytest.raises(ArgumentError, match="expected TRAIN or TEST"):
        model.set_phase("test")


def test_a_saved_model_goes_on_as_if_nothing_happened(way, rng, tmp_path):
    x, y = toy(rng)
    model = make_model(layers.Adam(0.03))
    train(model, x, y, 10, way)
    model.save(tmp_path / "model.safetensors")
    on = train(model, x, y, 5, way)
    other = make_model(layers.Adam(0.03))
    train(other, x, y, 1, way)
    other.load(tmp_path / "model.safetensors")
    assert train(other, x, y, 5, way) == on
    names = list(weft.load(tmp_path / "model.safetensors")["net"])
    assert names[:2] == ["dense1.w", "dense1.b"]
    assert "batchnorm1.mean" in names


def test_loading_what_does_not_fit(tmp_path):
    path = tmp_path / "model.safetensors"
    Model(Net([Dense(2, 3)]), MSELoss(), layers.SGD()).save(path)
    with pytest.raises(ArgumentError, match=r"wrong shape dense1\.w"):
        Model(Net([Dense(2, 4)]), MSELoss(), layers.SGD()).load(path)
    weft.save({"w": weft.ones(1)}, path)
    with pytest.raises(ValueError, match="a model's file with 'net' and 'optimizer'"):
        Model(Net([Dense(2, 4)]), MSELoss(), layers.SGD()).load(path)


def lazy_model(outputs=3):
    net = Net([layers.Dense(None, 4), layers.BatchNorm(), layers.InnerProduct(outputs)])
    return Model(net, MSELoss(), layers.Adam(0.01))


def test_a_net_that_has_seen_no_input_takes_its_shapes_from_the_file(rng, tmp_path):
    path = tmp_path / "model.safetensors"
    x, y = rng.normal(size=(8, 2)), rng.normal(size=(8, 3))
    model = lazy_model()
    train(model, x, y, 4)
    model.save(path)
    other = lazy_model()
    other.load(path)
    held = list(other.net.parameters())
    assert [p.shape for p in held] == [p.shape for p in model.net.parameters()]
    assert train(other, x, y, 4) == train(model, x, y, 4)
    assert all(a is b for a, b in zip(held, other.net.parameters(), strict=True))
    wrong = lazy_model(outputs=5)  # its first forward finds out
    wrong.load(path)
    with pytest.raises(ShapeError, match=r"'w' was loaded with shape \(4, 3\), .*4, 5"):
        wrong.forward(x)
    refused = Model(
        Net([layers.Dense(None, 4), Dense(7, 7)]), MSELoss(), layers.Adam(0.01)
    )
    with pytest.raises(ArgumentError, match="unexpected"):
        refused.load(path)
    assert refused.net[0].params == {}


def test_steps_that_do_not_fit():
    model = Model(Net([Dense(2, 3, name="fc")]), MSELoss(), layers.SGD())
    with pytest.raises(ArgumentError, match="for 1 layers, got 0"):
        model.apply_grad([])
    with pytest.raises(ArgumentError, match=r"'fc' \(Dense\): no step for 'b'"):
        model.apply_grad([{"w": weft.zeros(2, 3)}])


def test_a_frozen_layer_stays(way, rng):
    x, y = toy(rng)
    model = make_model(layers.SGD(0.1, weight_decay=0.1))
    model.net[0].requires_grad_(False)
    before = model.net[0].params["w"].numpy().copy()
    train(model, x, y, 3, way)
    np.testing.assert_array_equal(model.net[0].params["w"].numpy(), before)


# -- solvers


def regression(**options):
    net = Net(
        [
            Place(Dense(2, 3, name="a"), ("x",), ("a",)),
            Place(layers.Sigmoid(name="s"), ("a",), ("s",)),
            Place(Dense(3, 1, name="b"), ("s",), ("b",)),
            Place(layers.EuclideanLoss(name="loss"), ("b", "y"), ("loss",)),
        ],
        inputs=("x", "y"),
    ).double()
    return Solver(net, **options)


def test_one_step_is_the_formula_for_every_layer(way, rng):
    solver = regression(base_lr=0.3)
    data = {"x": rng.normal(size=(6, 2)), "y": rng.normal(size=(6, 1))}
    before = [
        {k: v.detach().numpy().copy() for k, v in p.items()}
        for p in solver.net.get_parameters()
    ]
    way(solver.step)(**data)
    for (params, grads), old in zip(
        solver.net.get_params_and_grads(), before, strict=True
    ):
        assert set(params) == set(grads)
        for key in params:
            want = old[key] - 0.3 * grads[key].numpy()
            np.testing.assert_allclose(params[key].detach().numpy(), want, rtol=1e-15)
    assert solver.iter == 1


@pytest.mark.parametrize(
    "kind", ["SGD", "Nesterov", "Adam", "AdaGrad", "AdaDelta", "RMSProp"]
)
def test_every_solver_learns(kind, way, rng):
    rates = {"AdaDelta": 1.0, "SGD": 0.1, "Nesterov": 0.1}
    options = {"momentum": 0.9} if kind in ("SGD", "Nesterov") else {}
    solver = regression(type=kind, base_lr=rates.get(kind, 0.02), **options)
    x = rng.normal(size=(32, 2))
    batch = {"x": x, "y": x.sum(1, keepdims=True) + 1}
    solver.step = way(solver.step)
    losses = solver.solve([batch] * 150)
    assert len(losses) == solver.iter == 150
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize(
    ("policy", "at_ten"),
    [
        ({"lr_policy": "fixed"}, 0.5),
        ({"lr_policy": "step", "gamma": 0.5, "stepsize": 4}, 0.125),
        ({"lr_policy": "multistep", "gamma": 0.5, "stepvalue": [3, 10, 20]}, 0.125),
        ({"lr_policy": "exp", "gamma": 0.9}, 0.5 * 0.9**10),
        ({"lr_policy": "inv", "gamma": 0.1, "power": 0.75}, 0.5 * 2**-0.75),
        ({"lr_policy": "poly", "power": 2, "max_iter": 40}, 0.5 * 0.75**2),
        (
            {"lr_policy": "sigmoid", "gamma": -0.1, "stepsize": 10},
            0.25,
        ),
    ],
)
def test_learning_rate_policies(policy, at_ten):
    solver = regression(base_lr=0.5, **policy)
    solver.iter = 10
    assert solver.lr == pytest.approx(at_ten)


def test_a_step_adds_the_losses_up(way, rng):
    net = Net(
        [
            Place(Dense(2, 2, name="a"), ("x",), ("a",)),
            Place(MSELoss(name="one"), ("a", "y"), ("one",)),
            Place(layers.MAELoss(0.5, name="two"), ("a", "y"), ("two",)),
            Place(ReLU(name="other"), ("a",), ("other",)),
        ],
        inputs=("x", "y"),
    ).double()
    x, y = rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
    off = net["a"].forward(x).numpy() - y
    want = 2 * off / 6 + 0.5 * np.sign(off) / 6
    total = float(way(Solver(net, base_lr=0.0).step)(x=x, y=y))
    assert total == pytest.approx((off**2).mean() + 0.5 * np.abs(off).mean())
    np.testing.assert_allclose(net["a"].grads["b"].numpy(), want.sum(0), rtol=1e-12)


def test_solver_stops_and_refuses():
    solver = regression(max_iter=2)
    batch = {"x": np.ones((1, 2)), "y": np.ones((1, 1))}
    assert len(solver.solve([batch] * 5)) == 2
    with pytest.raises(ArgumentError, match="type to be one of SGD"):
        regression(type="LBFGS")
    with pytest.raises(ArgumentError, match="lr_policy to be one of fixed"):
        regression(lr_policy="cosine")
    with pytest.raises(ArgumentError, match="needs max_iter"):
        regression(lr_policy="poly")

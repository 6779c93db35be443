"""The layer itself: two forms, one core, and its place in tensor programs."""

import numpy as np
import pytest

import weft
from weft import layers, nn
from weft.autograd import gradcheck
from weft.core.mode import observe
from weft.errors import ArgumentError, AutogradError, DTypeError, ShapeError
from weft.layers import Blob


class Scale(layers.Layer):
    """tinynn's form, with a parameter and a cache."""

    calls = 0

    def __init__(self, factor=2.0):
        self.params = {"s": weft.tensor([factor], dtype=weft.float64)}

    def forward(self, inputs):
        self.inputs = inputs
        return inputs * self.params["s"]

    def backward(self, grad):
        type(self).calls += 1
        self.grads["s"] = (grad * self.inputs).sum().reshape(1)
        return grad * self.params["s"]


class CaffeScale(layers.Layer):
    """The same in Caffe's form."""

    def setup(self, bottom, top):
        assert len(bottom) == len(top) == 1
        self.params["s"] = weft.tensor([2.0], dtype=weft.float64)

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data * self.params["s"]

    def backward(self, top, propagate_down, bottom):
        self.grads["s"] = (top[0].diff * bottom[0].data).sum().reshape(1)
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff * self.params["s"]


class Swish(layers.Layer):
    """Tensor operations alone: no backward."""

    def __init__(self):
        self.params = {"beta": weft.tensor(0.7, dtype=weft.float64)}

    def forward(self, inputs):
        return inputs * (self.params["beta"] * inputs).sigmoid()


def test_the_base_class_computes_nothing():
    with pytest.raises(NotImplementedError):
        layers.Layer().forward(weft.ones(1))
    with pytest.raises(NotImplementedError):
        layers.Layer().backward(weft.ones(1))
    with pytest.raises(NotImplementedError):
        layers.Layer()(weft.ones(1))


def test_an_activation_without_its_derivative():
    class Half(layers.Activation):
        def func(self, x):
            return x / 2

    layer = Half()
    layer.forward(weft.ones(1))
    with pytest.raises(NotImplementedError, match="derivative_func"):
        layer.backward(weft.ones(1))


def test_params_and_grads_are_dictionaries(rng):
    layer = layers.Dense(3, 4).double()
    x, g = rng.normal(size=(5, 3)), rng.normal(size=(5, 4))
    assert layer.grads == {}
    layer.forward(x)
    down = layer.backward(g)
    np.testing.assert_allclose(layer.grads["w"].numpy(), x.T @ g, rtol=1e-12)
    np.testing.assert_allclose(layer.grads["b"].numpy(), g.sum(0), rtol=1e-12)
    w = layer.params["w"].detach().numpy()
    np.testing.assert_allclose(down.numpy(), g @ w.T, rtol=1e-12)


def test_initialisers_are_pluggable():
    layer = layers.Dense(
        2, 3, w_init=lambda shape: weft.full(shape, 0.5), b_init="ones"
    )
    assert (layer.params["w"].detach().numpy() == 0.5).all()
    assert (layer.params["b"].detach().numpy() == 1).all()
    assert list(layers.Dense(2, 3, bias=False).params) == ["w"]
    wide = layers.Dense(300, 100).params["w"].detach().numpy()
    assert wide.std() == pytest.approx(np.sqrt(2 / 400), rel=0.05)  # Xavier
    with pytest.raises(ValueError, match=r"filler: expected one of .*got 'xaver'"):
        layers.Dense(2, 3, w_init="xaver")
    with pytest.raises(ValueError, match="unknown option 'sdt'"):
        layers.Dense(2, 3, w_init={"type": "gaussian", "sdt": 1})
    with pytest.raises(ValueError, match=r"shape \(2, 3\), got \(2,\)"):
        layers.Dense(2, 3, w_init=lambda shape: weft.zeros(2))


# -- Caffe's form


@pytest.mark.parametrize("layer", [layers.Dense(3, 4), layers.ReLU(), CaffeScale()])
def test_tops_keep_their_memory(layer):
    bottom = [Blob(weft.randn(2, 3))]
    top = [Blob()]
    layer.forward(bottom, top)
    held, where = top[0].data, top[0].data.data_ptr()
    bottom[0].data = weft.randn(2, 3)
    assert layer.forward(bottom, top) is None
    assert top[0].data is held
    assert top[0].data.data_ptr() == where
    layer_of_tensors = layer.forward(bottom[0].data)
    np.testing.assert_array_equal(held.numpy(), layer_of_tensors.numpy())


def test_a_pre_allocated_top_is_filled():
    top = Blob(shape=(2, 4))
    where = top.data.data_ptr()
    layers.Dense(3, 4).forward([Blob(weft.ones(2, 3))], [top])
    assert top.data.data_ptr() == where


def ops_of(run):
    seen = []
    with observe(lambda op, args, params, out: seen.append(op.name)):
        run()
    return seen


@pytest.mark.parametrize(
    ("layer", "shape", "product"),
    [
        (layers.Dense(3, 3), (2, 3), "matmul"),
        (layers.Conv2D(3, 3, 1), (1, 3, 2, 2), "conv_input_grad"),
        (layers.Sigmoid(), (2, 3), "mul"),
    ],
)
def test_propagate_down_false_computes_nothing(layer, shape, product):
    bottom, top = [Blob(weft.randn(*shape))], [Blob()]
    layer.forward(bottom, top)
    top[0].diff = weft.ones(*top[0].shape)
    bottom[0].diff = weft.full(shape, 7.0)
    less = ops_of(lambda: layer.backward(top, [False], bottom))
    assert (bottom[0].diff.numpy() == 7).all()
    grads = {k: v.numpy() for k, v in layer.grads.items()}
    more = ops_of(lambda: layer.backward(top, [True], bottom))
    assert (bottom[0].diff.numpy() != 7).any()
    assert more.count(product) > less.count(product)
    for key, value in grads.items():
        np.testing.assert_array_equal(layer.grads[key].numpy(), value)


def test_propagate_down_false_leaves_the_gradient_of_any_layer():
    layer, bottom, top = Scale(), [Blob(weft.ones(3, dtype=weft.float64))], [Blob()]
    layer.forward(bottom, top)
    top[0].diff = weft.ones(3)
    bottom[0].diff = weft.full((3,), 7.0)
    layer.backward(top, [False], bottom)  # its backward does not know of the wish
    assert bottom[0].diff.tolist() == [7, 7, 7]
    assert layer.grads["s"].tolist() == [3]


def test_both_forms_of_one_layer_agree(rng):
    x, g = rng.normal(size=(4,)), rng.normal(size=(4,))
    found = []
    for layer in (Scale(), CaffeScale()):
        out = layer.forward(x)
        down = layer.backward(g)
        bottom, top = [Blob(x)], [Blob()]
        layer.forward(bottom, top)
        top[0].diff = g
        layer.backward(top, [True], bottom)
        np.testing.assert_array_equal(top[0].data.numpy(), out.numpy())
        np.testing.assert_array_equal(bottom[0].diff.numpy(), down.numpy())
        t = weft.tensor(x, requires_grad=True)
        (layer(t) * weft.tensor(g)).sum().backward()
        np.testing.assert_array_equal(t.grad.numpy(), down.numpy())
        found.append((out.numpy(), down.numpy(), layer.grads["s"].numpy()))
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_subclass_extends_through_super(rng):
    class Shifted(Scale):
        def forward(self, inputs):
            return super().forward(inputs) + 1

        def backward(self, grad):
            return super().backward(grad) * 1

    layer = Shifted()
    assert layer.forward(weft.ones(2)).tolist() == [3, 3]
    assert layer.backward(weft.ones(2)).tolist() == [2, 2]
    assert layer.grads["s"].tolist() == [2]


# -- tensor programs


def test_gradcheck_of_a_mix(rng):
    hidden, act = layers.Dense(3, 4).double(), layers.Tanh()
    outer = nn.Linear(4, 2).double()

    def program(x, w, b):
        y = weft.func.functional_call(hidden, {"w": w, "b": b}, (x.sin(),))
        return outer(act(y) * y).exp()

    x = weft.tensor(rng.normal(size=(5, 3)), requires_grad=True)
    w = weft.tensor(rng.normal(size=(3, 4)), requires_grad=True)
    b = weft.tensor(rng.normal(size=4), requires_grad=True)
    assert gradcheck(program, (x, w, b))


def test_a_layer_holds_tensor_operations_and_layers(rng):
    class Block(layers.Layer):
        def __init__(self):
            self.inner = layers.Dense(3, 3).double()

        def forward(self, inputs):
            return (inputs.cos() * self.inner(inputs)).logsumexp(1)

    x = weft.tensor(rng.normal(size=(4, 3)), requires_grad=True)
    block = Block()
    assert gradcheck(block, (x,))
    assert sorted(dict(block.named_parameters())) == ["inner.b", "inner.w"]


def test_forward_inside_a_recorded_layer_is_recorded(rng):
    class Block(layers.Layer):
        def __init__(self):
            self.inner = layers.Dense(3, 3).double()

        def forward(self, inputs):
            return self.inner.forward(inputs).sin()  # not self.inner(inputs)

    block = Block()
    x = weft.tensor(rng.normal(size=(4, 3)), requires_grad=True)
    assert gradcheck(block, (x,))
    block.forward(x)
    down = block.backward(weft.ones(4, 3, dtype=weft.float64))
    x.grad = None
    block(x).sum().backward()
    np.testing.assert_allclose(down.numpy(), x.grad.numpy(), rtol=1e-12)
    np.testing.assert_allclose(
        block.grads["inner.w"].numpy(), block.inner.params["w"].grad.numpy(), rtol=1e-12
    )


class Residual(layers.Layer):
    """Hand-written around a layer of its own."""

    def __init__(self):
        self.inner = layers.Dense(3, 3).double()

    def forward(self, inputs):
        return inputs + self.inner.forward(inputs)

    def backward(self, grad):
        down = self.inner.backward(grad)
        self.grads = {f"inner.{k}": g for k, g in self.inner.grads.items()}
        return grad + down


def test_a_hand_written_layer_around_another(rng):
    block = Residual()
    x = weft.tensor(rng.normal(size=(2, 3)), requires_grad=True)
    assert gradcheck(lambda x: block(block(x).tanh()), (x,))  # calls kept apart
    w = block.inner.params["w"]
    w.grad = None
    block(x).sum().backward()
    np.testing.assert_allclose(
        w.grad.numpy(), np.outer(x.detach().numpy().sum(0), np.ones(3)), rtol=1e-12
    )


@pytest.mark.parametrize("hold", [lambda y: y, lambda y: [y], lambda y: {"k": y}])
def test_each_call_keeps_the_state_of_inner_layers(hold, rng):
    class Around(layers.Layer):
        def __init__(self):
            self.held = hold(layers.Dense(3, 3).double())

        @property
        def inner(self):
            kind = type(self.held)
            return (
                self.held[0 if kind is list else "k"]
                if kind in (list, dict)
                else self.held
            )

        def forward(self, inputs):
            return self.inner.forward(inputs)

        def backward(self, grad):
            down = self.inner.backward(grad)
            names = list(self.all_params())
            self.grads = dict(zip(names, self.inner.grads.values(), strict=True))
            return down

    layer = Around()
    x, y = (weft.tensor(rng.normal(size=(2, 3))) for _ in range(2))
    (layer(x).sum() + 2 * layer(y).sum()).backward()
    want = np.outer((x + 2 * y).numpy().sum(0), np.ones(3))
    got = layer.inner.params["w"].grad.numpy()
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("hand", [True, False])
def test_a_net_trains_what_its_layers_hold(hand, rng):
    class Inside(layers.Layer):
        def __init__(self):
            self.linear = nn.Linear(3, 3).double()

        def forward(self, inputs):
            return inputs + self.linear(inputs).tanh()

    net = layers.Net([Residual() if hand else Inside(), layers.Dense(3, 1).double()])
    model = layers.Model(net, layers.MSELoss(), layers.Momentum(0.05))
    x = rng.normal(size=(20, 3))
    y = np.sin(x[:, :1])
    before = {k: v.detach().numpy().copy() for k, v in net.get_parameters()[0].items()}
    assert len(before) == 2
    losses = []
    for _ in range(60):
        loss, steps = model.backward(model.forward(x), y)
        model.apply_grad(steps)
        losses.append(float(loss))
    assert losses[-1] < 0.2 * losses[0]
    for key, p in net.get_parameters()[0].items():
        assert not np.allclose(p.detach().numpy(), before[key])
    net.set_parameters([before, net.get_parameters()[1]])
    for key, p in net.get_parameters()[0].items():
        np.testing.assert_array_equal(p.detach().numpy(), before[key])


def test_a_hand_written_backward_runs_once_and_nothing_inside_is_traced(rng):
    layer = Scale()
    x = weft.tensor(rng.normal(size=(4,)), requires_grad=True)
    Scale.calls = 0
    out = layer(x)
    assert out.grad_fn.name == "HandWritten"
    assert {id(p) for p in out.grad_fn.parents if p is not None} <= {
        id(x._node), id(layer.params["s"]._node),
    }  # fmt: skip
    out.sum().backward()
    assert Scale.calls == 1
    other = weft.tensor(x.tolist(), dtype=weft.float64, requires_grad=True)
    s = weft.tensor([2.0], dtype=weft.float64, requires_grad=True)
    (other * s).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=1e-15)
    np.testing.assert_allclose(
        layer.params["s"].grad.numpy(), s.grad.numpy(), rtol=1e-15
    )


def test_the_hand_written_backward_is_the_one_used():
    class Doubled(layers.Layer):
        def forward(self, inputs):
            return inputs * 1

        def backward(self, grad):
            return 100 * grad

    x = weft.ones(1, requires_grad=True)
    Doubled()(x).backward()
    assert x.grad.tolist() == [100]


def test_a_layer_called_twice_keeps_each_call_apart(rng):
    layer = layers.Dense(3, 3).double()
    x = weft.tensor(rng.normal(size=(2, 3)), requires_grad=True)
    assert gradcheck(lambda x: layer(layer(x).tanh()), (x,))


def test_a_frozen_parameter_gets_no_gradient():
    layer = layers.Dense(3, 2)
    layer.params["b"].requires_grad_(False)
    layer(weft.ones(1, 3)).sum().backward()
    assert layer.params["b"].grad is None
    assert layer.params["w"].grad is not None


def test_no_gradient_of_the_input_where_none_is_wanted():
    layer = layers.Dense(3, 2)
    x = weft.ones(1, 3)
    out = layer(x).sum()
    assert ops_of(out.backward).count("matmul") == 1
    out = layer(x.requires_grad_()).sum()
    assert ops_of(out.backward).count("matmul") == 2


def test_modules_optimizers_and_transforms_take_layers(rng):
    model = nn.Sequential(nn.Linear(2, 8), layers.Tanh(), layers.Dense(8, 1))
    x = weft.tensor(rng.normal(size=(32, 2)), dtype=weft.float32)
    y = (x[:, :1] * x[:, 1:]).sin()
    optimizer = weft.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10
    assert list(model.state_dict())[-2:] == ["2.w", "2.b"]
    row = weft.func.vmap(weft.func.grad(lambda v: model(v[None]).sum()))(x[:3])
    whole = x[:3].detach().requires_grad_()
    model(whole).sum().backward()
    np.testing.assert_allclose(
        row.detach().numpy(), whole.grad.numpy(), rtol=1e-4, atol=1e-6
    )


def test_forward_mode_follows_from_the_hand_written_backward(rng):
    layer = layers.Dense(3, 2).double()
    x, t = (weft.tensor(rng.normal(size=(4, 3))) for _ in range(2))
    _, tangent = weft.func.jvp(lambda x: layer(x).tanh(), (x,), (t,))
    _, want = weft.func.jvp(
        lambda x: (x @ layer.params["w"].detach() + layer.params["b"].detach()).tanh(),
        (x,),
        (t,),
    )
    np.testing.assert_allclose(tangent.detach().numpy(), want.numpy(), rtol=1e-12)


def test_a_second_derivative_is_refused_not_wrong():
    x = weft.ones(2, requires_grad=True)
    (g,) = weft.autograd.grad(layers.Sigmoid()(x).sum(), x, create_graph=True)
    np.testing.assert_allclose(g.tolist(), [0.19661193] * 2, rtol=1e-6)
    with pytest.raises(AutogradError, match="Sigmoid: its backward is written by hand"):
        g.sum().backward()


# -- a derived backward


def test_a_missing_backward_is_derived(rng):
    layer = Swish()
    x, g = rng.normal(size=(5,)), rng.normal(size=(5,))
    out = layer.forward(x)
    assert not out.requires_grad
    down = layer.backward(g)
    t = weft.tensor(x, requires_grad=True)
    beta = weft.tensor(0.7, dtype=weft.float64, requires_grad=True)
    (t * (beta * t).sigmoid() * weft.tensor(g)).sum().backward()
    np.testing.assert_allclose(down.numpy(), t.grad.numpy(), rtol=1e-12)
    np.testing.assert_allclose(layer.grads["beta"].item(), beta.grad.item(), rtol=1e-12)
    assert weft.autograd.gradgradcheck(layer, (t,))


def test_a_derived_backward_in_caffes_form(rng):
    layer, bottom, top = Swish(), [Blob(rng.normal(size=3))], [Blob()]
    layer.forward(bottom, top)
    top[0].diff = weft.ones(3, dtype=weft.float64)
    layer.backward(top, [False], bottom)
    assert (bottom[0].diff.numpy() == 0).all()
    layer.forward(bottom, top)
    layer.backward(top, [True], bottom)
    assert (bottom[0].diff.numpy() != 0).all()


def test_no_tape_in_evaluation():
    layer = Swish().eval()
    layer.forward(weft.ones(2, dtype=weft.float64))
    with pytest.raises(AutogradError, match="must have run in training mode"):
        layer.backward(weft.ones(2))


# -- activations


def test_a_new_activation_is_two_methods(rng):
    class Gaussian(layers.Activation):
        def func(self, x):
            return (-x * x).exp()

        def derivative_func(self, x):
            return -2 * x * (-x * x).exp()

    x = weft.tensor(rng.normal(size=(4, 3)), requires_grad=True)
    assert gradcheck(Gaussian(), (x,))


def test_a_wrong_derivative_is_caught(rng):
    class Wrong(layers.Activation):
        def func(self, x):
            return x * x

        def derivative_func(self, x):
            return x

    x = weft.tensor(rng.normal(size=(4, 3)), requires_grad=True)
    assert not gradcheck(Wrong(), (x,), raise_exception=False)


# -- mistakes


def test_backward_before_forward():
    with pytest.raises(
        AutogradError, match="Dense: backward was called before forward"
    ):
        layers.Dense(3, 2).backward(weft.ones(1, 2))


def test_a_wrong_shape_names_the_layer():
    fc = layers.Dense(3, 2, name="fc7")
    with pytest.raises(ShapeError, match=r"layer 'fc7' \(Dense\): expected rows of 3"):
        fc.forward(weft.ones(2, 4))
    conv = layers.Conv2D(3, 4, name="conv1")
    with pytest.raises(ShapeError, match="in conv "):
        conv.forward(weft.ones(1, 2, 5, 5))
    with pytest.raises(ShapeError, match=r"RNN: expected inputs \(batch, time, 3\)"):
        layers.RNN(3, 2).forward(weft.ones(2, 3))
    with pytest.raises(ShapeError, match="expected inputs of one shape"):
        layers.Eltwise().forward(weft.ones(2), weft.ones(3))


def test_a_forgotten_or_misshapen_gradient():
    class Forgetful(Scale):
        def backward(self, grad):
            return grad

    class Misshapen(Scale):
        def backward(self, grad):
            self.grads["s"] = grad
            return grad

    for layer, text in (
        (Forgetful(), "left no gradient for 's'"),
        (Misshapen(), r"of its parameter's shape \(1,\), got \(3,\)"),
    ):
        layer.forward(weft.ones(3, dtype=weft.float64))
        with pytest.raises(RuntimeError, match=text):
            layer.backward(weft.ones(3, dtype=weft.float64))
        with pytest.raises(RuntimeError, match=text):
            layer(weft.ones(3, dtype=weft.float64)).sum().backward()


@pytest.mark.parametrize("shape", [(2, 5), (3,), (1, 3)])
def test_a_gradient_must_have_its_outputs_shape(shape):
    layer, bottom, top = layers.ReLU(), [Blob(weft.ones(2, 3))], [Blob()]
    layer.forward(bottom, top)
    with pytest.raises(ShapeError, match=r"get gradients of \(2, 3\)"):
        layer.backward(weft.ones(*shape))
    with pytest.raises(ShapeError, match=r"the value's shape \(2, 3\)"):
        top[0].diff = weft.ones(*shape)


def test_what_a_layer_gives_is_checked():
    class Broken(layers.Layer):
        def forward(self, inputs):
            return inputs * 1

        def backward(self, grad):
            return grad.sum(0)

    class Silent(layers.Layer):
        def forward(self, inputs):
            pass

    layer = Broken()
    layer.forward(weft.ones(2, 3))
    with pytest.raises(ShapeError, match=r"give gradients of \(2, 3\), got \(3,\)"):
        layer.backward(weft.ones(2, 3))
    for call in (Silent().forward, Silent()):
        with pytest.raises(DTypeError, match="forward to return tensors, got None"):
            call(weft.ones(1))
    with pytest.raises(ArgumentError, match="MSELoss: expected 2 inputs, got 1"):
        layers.MSELoss().forward(weft.ones(1))
    with pytest.raises(ShapeError, match="expected 1 top blobs"):
        Broken().forward([Blob(weft.ones(1))], [])


@pytest.mark.parametrize(
    "layer",
    [layers.Dense(3, 2), layers.Conv2D(3, 2), layers.MaxPool2D(), layers.AvgPool2D()],
)
def test_an_empty_batch(layer):
    shape = (0, 3) if isinstance(layer, layers.Dense) else (0, 3, 4, 4)
    out = layer.forward(weft.ones(*shape))
    assert out.shape[0] == 0
    assert layer.backward(out).shape == shape
    assert all((g.numpy() == 0).all() for g in layer.grads.values())


def test_jacobians_of_layers(rng):
    layer = layers.Dense(3, 2).double()
    x = weft.tensor(rng.normal(size=(1, 3)))
    want = layer.params["w"].detach().numpy().T[None, :, None]
    for transform in (weft.func.jacrev, weft.func.jacfwd):
        got = transform(layer)(x).detach().numpy()
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_propagate_down_must_fit_the_inputs():
    layer = layers.Eltwise()
    layer.forward(weft.ones(2), weft.ones(2))
    with pytest.raises(ShapeError, match="each of 2 inputs, got 1"):
        layer.backward(weft.ones(2), propagate_down=[True])


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: layers.Dense(3),
            "expected num_out to be an int of at least 1, got None",
        ),
        (lambda: layers.Dense(3, 0), "got 0"),
        (lambda: layers.Conv2D(3, 4, groups=2), "2 groups must divide the channels"),
        (lambda: layers.Pooling("MEDIAN"), "expected pool MAX or AVE, got 'MEDIAN'"),
        (lambda: layers.Eltwise("DIV"), "expected operation SUM, PROD or MAX"),
        (lambda: layers.Dropout(1.0), r"dropout_ratio in \[0, 1\), got 1.0"),
        (lambda: layers.MaxPool2D(0), "the kernel of at least 1"),
    ],
)
def test_bad_options(build, text):
    with pytest.raises(ValueError, match=text):
        build()

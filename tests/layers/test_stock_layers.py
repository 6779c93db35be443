"""Every stock layer: forward against NumPy, backward against central differences."""

import itertools

import numpy as np
import pytest

import weft
from weft import layers

STEP = 1e-5


def dense(x, p):
    return np.einsum("ni,io->no", x, p["w"]) + p.get("b", 0)


def windows(x, kernel, stride, padding, dilation, fill):
    """(row, column, patch) of every window of one channel stack (C, H, W)."""
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = kernel, stride, padding, dilation
    full = np.pad(x, ((0, 0), (ph, ph), (pw, pw)), constant_values=fill)
    rows = (full.shape[1] - dh * (kh - 1) - 1) // sh + 1
    cols = (full.shape[2] - dw * (kw - 1) - 1) // sw + 1
    for i, j in itertools.product(range(rows), range(cols)):
        top, left = i * sh, j * sw
        yield i, j, full[:, top : top + dh * kh : dh, left : left + dw * kw : dw]


def conv(x, w, b, stride, padding, dilation, groups):
    outs = []
    for image in x:
        share, per = image.shape[0] // groups, w.shape[0] // groups
        cells = {}
        for i, j, patch in windows(image, w.shape[2:], stride, padding, dilation, 0.0):
            for o in range(w.shape[0]):
                g = o // per
                part = patch[g * share : (g + 1) * share]
                cells[o, i, j] = (part * w[o]).sum() + b[o]
        size = np.max(list(cells), axis=0) + 1
        out = np.zeros(size)
        for place, value in cells.items():
            out[place] = value
        outs.append(out)
    return np.stack(outs)


def transposed(x, w, b, stride, padding, groups):
    n, c, h, wide = x.shape
    (kh, kw), (sh, sw), (ph, pw) = w.shape[2:], stride, padding
    per_in, per_out = c // groups, w.shape[1]
    full = np.zeros((n, per_out * groups, (h - 1) * sh + kh, (wide - 1) * sw + kw))
    for k, i, j, ci in itertools.product(*map(range, (n, h, wide, c))):
        g = ci // per_in
        at = slice(g * per_out, (g + 1) * per_out)
        full[k, at, i * sh : i * sh + kh, j * sw : j * sw + kw] += (
            x[k, ci, i, j] * w[ci]
        )
    high, broad = full.shape[2] - ph, full.shape[3] - pw
    return full[:, :, ph:high, pw:broad] + b[:, None, None]


def pool(x, how, kernel, stride, padding, ceil=False):
    n, c, h, w = x.shape

    def count(size, k, s, p):
        total = size + 2 * p - k
        found = (-(-total // s) if ceil else total // s) + 1
        return found - 1 if ceil and (found - 1) * s >= size + p else found

    rows, cols = count(h, kernel, stride, padding), count(w, kernel, stride, padding)
    out = np.zeros((n, c, rows, cols))
    for k, d, i, j in np.ndindex(*out.shape):
        top, left = i * stride - padding, j * stride - padding
        cells = [
            x[k, d, a, b]
            for a in range(max(top, 0), min(top + kernel, h))
            for b in range(max(left, 0), min(left + kernel, w))
        ]
        high = min(top + kernel, h + padding) - top
        wide = min(left + kernel, w + padding) - left
        out[k, d, i, j] = max(cells) if how == "MAX" else sum(cells) / (high * wide)
    return out


def batch_norm(x, p):
    flat = np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)
    normal = (flat - flat.mean(1)[:, None]) / np.sqrt(flat.var(1)[:, None] + 1e-5)
    out = normal * p["gamma"][:, None] + p["beta"][:, None] if p else normal
    return np.moveaxis(out.reshape(x.shape[1], x.shape[0], *x.shape[2:]), 0, 1)


def rnn(x, p, last):
    h = np.zeros((x.shape[0], p["b"].shape[0]))
    states = []
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ p["w_x"] + h @ p["w_h"] + p["b"])
        states.append(h)
    return states[-1] if last else np.stack(states, 1)


def softmax(x, axis):
    e = np.exp(x)
    return e / e.sum(axis, keepdims=True)


CASES = {
    "Dense": (lambda: layers.Dense(3, 4), [(5, 3)], lambda p, x: dense(x, p)),
    "Dense without bias": (
        lambda: layers.Dense(3, 4, bias=False),
        [(5, 3)],
        lambda p, x: dense(x, p),
    ),
    "Dense of sequences": (
        lambda: layers.Dense(3, 4),
        [(2, 5, 3)],
        lambda p, x: np.stack([dense(row, p) for row in x]),
    ),
    "InnerProduct": (
        lambda: layers.InnerProduct(4),
        [(5, 3, 2)],
        lambda p, x: dense(x.reshape(5, 6), p),
    ),
    "Flatten": (layers.Flatten, [(2, 3, 4)], lambda p, x: x.reshape(2, 12)),
    "Conv2D": (
        lambda: layers.Conv2D(2, 3, kernel=(3, 2), stride=(2, 1), padding=(1, 0)),
        [(2, 2, 5, 4)],
        lambda p, x: conv(x, p["w"], p["b"], (2, 1), (1, 0), (1, 1), 1),
    ),
    "Conv2D without bias": (
        lambda: layers.Conv2D(2, 3, kernel=2, bias=False),
        [(1, 2, 3, 3)],
        lambda p, x: conv(x, p["w"], np.zeros(3), (1, 1), (0, 0), (1, 1), 1),
    ),
    "Convolution in groups": (
        lambda: layers.Convolution(4, 2, dilation=2, group=2),
        [(2, 4, 5, 4)],
        lambda p, x: conv(x, p["w"], p["b"], (1, 1), (0, 0), (2, 2), 2),
    ),
    "ConvTranspose2D": (
        lambda: layers.ConvTranspose2D(2, 3, kernel=3, stride=2, padding=1),
        [(2, 2, 3, 4)],
        lambda p, x: transposed(x, p["w"], p["b"], (2, 2), (1, 1), 1),
    ),
    "Deconvolution in groups": (
        lambda: layers.Deconvolution(4, 2, stride=3, group=2),
        [(1, 2, 3, 2)],
        lambda p, x: transposed(x, p["w"], p["b"], (3, 3), (0, 0), 2),
    ),
    "MaxPool2D": (
        lambda: layers.MaxPool2D(3, stride=2, padding=1),
        [(2, 2, 5, 6)],
        lambda p, x: pool(x, "MAX", 3, 2, 1),
    ),
    "AvgPool2D": (
        lambda: layers.AvgPool2D(2),
        [(2, 2, 5, 4)],
        lambda p, x: pool(x, "AVE", 2, 2, 0),
    ),
    "AvgPool2D overlapping": (
        lambda: layers.AvgPool2D(3, stride=2, padding=1),
        [(2, 2, 5, 6)],
        lambda p, x: pool(x, "AVE", 3, 2, 1),
    ),
    "Pooling MAX": (
        lambda: layers.Pooling("MAX", 3, 2),
        [(2, 1, 6, 7)],
        lambda p, x: pool(x, "MAX", 3, 2, 0, ceil=True),
    ),
    "Pooling AVE": (
        lambda: layers.Pooling("AVE", 3, 2, 1),
        [(2, 1, 6, 7)],
        lambda p, x: pool(x, "AVE", 3, 2, 1, ceil=True),
    ),
    "BatchNorm": (layers.BatchNorm, [(6, 3)], lambda p, x: batch_norm(x, p)),
    "BatchNorm of images": (
        lambda: layers.BatchNorm(affine=False),
        [(3, 2, 2, 3)],
        lambda p, x: batch_norm(x, p),
    ),
    "RNN": (lambda: layers.RNN(3, 4), [(2, 5, 3)], lambda p, x: rnn(x, p, False)),
    "RNN's last state": (
        lambda: layers.RNN(3, 4, return_sequences=False),
        [(2, 5, 3)],
        lambda p, x: rnn(x, p, True),
    ),
    "Softmax": (layers.Softmax, [(4, 5)], lambda p, x: softmax(x, 1)),
    "Softmax along 0": (
        lambda: layers.Softmax(axis=0),
        [(4, 5)],
        lambda p, x: softmax(x, 0),
    ),
    "ReLU": (layers.ReLU, [(4, 5)], lambda p, x: np.maximum(x, 0)),
    "ReLU with a slope": (
        lambda: layers.ReLU(0.2),
        [(4, 5)],
        lambda p, x: np.where(x > 0, x, 0.2 * x),
    ),
    "LeakyReLU": (
        layers.LeakyReLU,
        [(4, 5)],
        lambda p, x: np.where(x > 0, x, 0.01 * x),
    ),
    "Sigmoid": (layers.Sigmoid, [(4, 5)], lambda p, x: 1 / (1 + np.exp(-x))),
    "Tanh": (layers.Tanh, [(4, 5)], lambda p, x: np.tanh(x)),
    "TanH": (layers.TanH, [(4, 5)], lambda p, x: np.tanh(x)),
    "Softplus": (layers.Softplus, [(4, 5)], lambda p, x: np.log1p(np.exp(x))),
    "Eltwise SUM": (layers.Eltwise, [(2, 3)] * 3, lambda p, x, y, z: x + y + z),
    "Eltwise PROD": (
        lambda: layers.Eltwise("PROD"),
        [(2, 3)] * 3,
        lambda p, x, y, z: x * y * z,
    ),
    "Eltwise MAX": (
        lambda: layers.Eltwise("MAX"),
        [(2, 3)] * 2,
        lambda p, x, y: np.maximum(x, y),
    ),
    "Concat": (
        layers.Concat,
        [(2, 3), (2, 1)],
        lambda p, x, y: np.concatenate([x, y], 1),
    ),
}


def made(name, rng):
    """A layer in float64 with its inputs, and parameters that are not special."""
    build, shapes, reference = CASES[name]
    inputs = [rng.uniform(-2, 2, shape) for shape in shapes]
    layer = build()
    layer.double()
    layer.forward(*inputs)
    for p in layer.params.values():
        with weft.no_grad():
            p.copy_(weft.tensor(rng.uniform(-1, 1, p.shape)))
    return layer, inputs, reference


@pytest.mark.parametrize("name", CASES)
def test_forward_is_the_reference(name, rng):
    layer, inputs, reference = made(name, rng)
    p = {k: v.detach().numpy() for k, v in layer.params.items()}
    got = layer.forward(*inputs).numpy()
    want = reference(p, *inputs)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def slopes(value, array):
    """Central differences of ``value()`` with respect to an array's elements."""
    out = np.zeros_like(array)
    for place in np.ndindex(*array.shape):
        kept = array[place]
        array[place] = kept + STEP
        up = value()
        array[place] = kept - STEP
        down = value()
        array[place] = kept
        out[place] = (up - down) / (2 * STEP)
    return out


def relative(got, want):
    return np.abs(got - want).max() / max(np.abs(want).max(), 1e-8)


@pytest.mark.parametrize("name", CASES)
def test_backward_is_the_central_difference(name, rng):
    layer, inputs, _ = made(name, rng)
    weights = rng.uniform(-1, 1, layer.forward(*inputs).shape)

    def value():
        return float((layer.forward(*inputs).numpy() * weights).sum())

    value()
    found = layer.backward(weights)
    found = found if isinstance(found, tuple) else (found,)
    assert len(found) == len(inputs)
    grads = {k: g.numpy() for k, g in layer.grads.items()}
    assert set(grads) == set(layer.params)
    for got, x in zip(found, inputs, strict=True):
        assert relative(got.numpy(), slopes(value, x)) < 1e-6
    for key, p in layer.params.items():
        assert relative(grads[key], slopes(value, p._data)) < 1e-6


@pytest.mark.parametrize("name", CASES)
def test_a_tensor_program_differentiates_it_the_same(name, rng):
    layer, inputs, _ = made(name, rng)
    weights = rng.uniform(-1, 1, layer.forward(*inputs).shape)
    by_hand = layer.backward(weights)
    by_hand = by_hand if isinstance(by_hand, tuple) else (by_hand,)
    grads = dict(layer.grads)
    xs = [weft.tensor(x, requires_grad=True) for x in inputs]
    (layer(*xs) * weft.tensor(weights)).sum().backward()
    for x, g in zip(xs, by_hand, strict=True):
        np.testing.assert_array_equal(x.grad.numpy(), g.numpy())
    for key, p in layer.params.items():
        np.testing.assert_array_equal(p.grad.numpy(), grads[key].numpy())


@pytest.mark.parametrize("name", CASES)
def test_compiled_it_is_the_same(name, rng):
    layer, inputs, reference = made(name, rng)
    weights = rng.uniform(-1, 1, layer.forward(*inputs).shape)
    eager = layer.backward(weights), dict(layer.grads)

    @weft.compile
    def both(weights, *inputs):
        out = layer.forward(*inputs)
        return out, layer.backward(weights)

    @weft.compile
    def taped(weights, *inputs):
        return (layer(*inputs) * weights).sum()

    p = {k: v.detach().numpy() for k, v in layer.params.items()}
    given = [weft.tensor(x) for x in (weights, *inputs)]
    for _ in range(3):
        out, found = both(*given)
        np.testing.assert_allclose(
            out.numpy(), reference(p, *inputs), rtol=1e-12, atol=1e-12
        )
        pairs = (
            [(found, eager[0])]
            if isinstance(found, weft.Tensor)
            else [*zip(found, eager[0], strict=True)]
        )
        pairs += [(layer.grads[key], g) for key, g in eager[1].items()]
        for got, want in pairs:
            np.testing.assert_allclose(
                got.numpy(), want.numpy(), rtol=1e-11, atol=1e-11
            )
    layer.zero_grad()
    taped(weights, *[weft.tensor(x, requires_grad=True) for x in inputs]).backward()
    for key, param in layer.params.items():
        np.testing.assert_allclose(
            param.grad.numpy(), eager[1][key].numpy(), rtol=1e-11, atol=1e-11
        )


def test_every_stock_layer_has_a_case():
    tested = {type(build()).__name__ for build, _, _ in CASES.values()}
    others = {name for name, *_ in LOSSES} | {"Accuracy", "Dropout"}
    assert tested | others == set(layers.known_types())


# -- losses

LOSSES = [
    ("MSELoss", {}, (4, 3), None, lambda p, t: ((p - t) ** 2).mean()),
    (
        "EuclideanLoss",
        {},
        (4, 3),
        None,
        lambda p, t: ((p - t) ** 2).sum() / 8,
    ),
    ("MAELoss", {}, (4, 3), None, lambda p, t: np.abs(p - t).mean()),
    (
        "HuberLoss",
        {"delta": 0.7},
        (4, 3),
        None,
        lambda p, t: np.where(
            np.abs(p - t) < 0.7, (p - t) ** 2 / 2, 0.7 * (np.abs(p - t) - 0.35)
        ).mean(),
    ),
    (
        "SoftmaxCrossEntropy",
        {},
        (4, 3),
        np.array([0, 2, 1, 2]),
        lambda p, t: -np.log(softmax(p, 1)[np.arange(4), t.astype(int)]).mean(),
    ),
    (
        "SoftmaxWithLoss",
        {},
        (4, 3),
        np.array([0.0, 2.0, 1.0, 2.0]),
        lambda p, t: -np.log(softmax(p, 1)[np.arange(4), t.astype(int)]).mean(),
    ),
    (
        "SoftmaxCrossEntropy",
        {},
        (2, 3),
        np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]),
        lambda p, t: -(t * np.log(softmax(p, 1))).sum() / 2,
    ),
    (
        "SigmoidCrossEntropy",
        {},
        (4,),
        np.array([0.0, 1.0, 1.0, 0.0]),
        lambda p, t: (
            -np.log(np.where(t > 0, 1, -1) / (1 + np.exp(-p)) + (t < 1)).mean()
        ),
    ),
]


@pytest.mark.parametrize(
    ("name", "options", "shape", "target", "reference"),
    LOSSES,
    ids=[f"{row[0]}-{i}" for i, row in enumerate(LOSSES)],
)
def test_loss_and_grad(name, options, shape, target, reference, rng):
    loss = layers.find_type(name)(**options)
    p = rng.uniform(-2, 2, shape)
    t = rng.uniform(-2, 2, shape) if target is None else target
    actual = weft.tensor(t)
    value = float(loss.loss(weft.tensor(p), actual))
    assert value == pytest.approx(reference(p, t), rel=1e-12)
    grad = loss.grad(weft.tensor(p), actual).numpy()
    assert relative(grad, slopes(lambda: reference(p, t), p)) < 1e-6
    assert float(loss.forward(p, actual)) == value  # as a layer
    np.testing.assert_array_equal(loss.backward().numpy(), grad)
    x = weft.tensor(p, requires_grad=True)
    loss(x, actual).backward()
    np.testing.assert_array_equal(x.grad.numpy(), grad)


def test_mse_grad_is_the_formula(rng):
    p, t = rng.normal(size=(5, 2)), rng.normal(size=(5, 2))
    grad = layers.MSELoss().grad(weft.tensor(p), weft.tensor(t)).numpy()
    np.testing.assert_array_equal(grad, 2 * (p - t) / t.size)


def test_a_loss_is_weighted_in_a_net(rng):
    loss = layers.MSELoss(loss_weight=0.25)
    p, t = rng.normal(size=(5, 2)), rng.normal(size=(5, 2))
    assert float(loss.forward(p, t)) == pytest.approx(0.25 * ((p - t) ** 2).mean())
    want = 0.25 * 2 * (p - t) / t.size
    np.testing.assert_allclose(loss.backward().numpy(), want, rtol=1e-15)


# -- layers whose phases differ


def test_dropout_scales_what_it_keeps():
    layer = layers.Dropout(0.25)
    x = weft.full((4000,), 2.0)
    y = layer.forward(x).numpy()
    kept = y != 0
    np.testing.assert_allclose(y[kept], 2 / 0.75, rtol=1e-6)
    assert abs(kept.mean() - 0.75) < 0.03
    g = layer.backward(weft.ones(4000)).numpy()
    np.testing.assert_array_equal(g != 0, kept)
    layer.eval()
    assert (layer.forward(x).numpy() == 2).all()
    assert (layer.backward(weft.ones(4000)).numpy() == 1).all()


def test_batch_norm_tests_by_its_running_statistics(rng):
    layer = layers.BatchNorm(moving_average_fraction=0.5)
    x = rng.normal(3, 2, (50, 4))
    layer.forward(x)
    np.testing.assert_allclose(layer.mean.numpy(), 0.5 * x.mean(0), rtol=1e-12)
    variance = 0.5 + 0.5 * x.var(0, ddof=1)
    np.testing.assert_allclose(layer.variance.numpy(), variance, rtol=1e-12)
    layer.eval()
    want = (x - layer.mean.numpy()) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(layer.forward(x).numpy(), want, rtol=1e-10)
    weights = rng.normal(size=(50, 4))
    g = layer.backward(weights).numpy()
    np.testing.assert_allclose(g, weights / np.sqrt(variance + 1e-5), rtol=1e-12)


def test_accuracy_has_no_gradient():
    layer = layers.Accuracy()
    scores = weft.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    assert float(layer.forward(scores, weft.tensor([1, 1, 1.0]))) == pytest.approx(
        2 / 3
    )
    assert layer.backward(weft.tensor(1.0)) is None

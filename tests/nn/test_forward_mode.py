"""Layers that change their buffers as they run, under gradcheck and forward mode."""

import numpy as np
import pytest

import weft
from weft import func, nn
from weft.autograd import gradcheck, gradgradcheck

LAYERS = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(3), (4, 3)),
    "BatchNorm1d of a plain mean": (lambda: nn.BatchNorm1d(3, momentum=None), (4, 3)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), (2, 3, 2, 2)),
    "InstanceNorm1d": (
        lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (2, 3, 4),
    ),
    "a network": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh()), (5, 3),
    ),
}  # fmt: skip


@pytest.fixture(params=LAYERS)
def case(request):
    weft.manual_seed(0)
    make, shape = LAYERS[request.param]
    x = weft.randn(shape, dtype=weft.float64, requires_grad=True)
    return make().double(), x


def buffers(layer):
    return [b.numpy().copy() for b in layer.buffers()]


def test_gradcheck_of_a_layer_in_training(case):
    layer, x = case
    assert gradcheck(layer, (x,))
    assert gradgradcheck(layer, (x,))


def test_jvp_moves_running_statistics_once(case):
    layer, x = case
    before = buffers(layer)
    out, tangent = func.jvp(layer, (x.detach(),), (weft.ones_like(x),))
    moved = buffers(layer)
    for b, start in zip(layer.buffers(), before, strict=True):
        b.copy_(weft.tensor(start))
    assert weft.allclose(out, layer(x.detach()))
    for found, want in zip(moved, buffers(layer), strict=True):
        np.testing.assert_array_equal(found, want)
    assert all(type(b) is weft.Tensor for b in layer.buffers())
    assert tangent.shape == out.shape


def test_jacobians_agree_forward_and_backward(case):
    layer, x = case
    forward = func.jacfwd(layer)(x.detach())
    assert weft.allclose(forward, func.jacrev(layer)(x.detach()), atol=1e-9)
    _, push = func.linearize(layer, x.detach())
    ones = weft.ones_like(x)
    want = (forward * ones).sum(tuple(range(-x.ndim, 0)))
    assert weft.allclose(push(ones), want, atol=1e-9)


def test_hessian_through_a_layer(case):
    layer, x = case
    weights = weft.randn(layer(x).shape, dtype=weft.float64)

    def loss(x):
        return (layer(x) ** 3 * weights).sum()

    found = func.hessian(loss)(x.detach())
    want = func.jacrev(func.jacrev(loss))(x.detach())
    assert weft.allclose(found, want, atol=1e-8)


def test_a_compiled_jvp_moves_running_statistics(case):
    layer, x = case

    def both(x):
        return func.jvp(layer, (x,), (weft.ones_like(x),))

    start = buffers(layer)
    want = both(x.detach())
    after = buffers(layer)
    for b, value in zip(layer.buffers(), start, strict=True):
        b.copy_(weft.tensor(value))
    found = weft.compile(both)(x.detach())
    for a, b in zip(found, want, strict=True):
        assert weft.allclose(a, b)
    for a, b in zip(buffers(layer), after, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_dropout_with_a_seed_can_be_checked():
    layer = nn.Dropout(0.5)

    def fn(x):
        weft.manual_seed(3)
        return layer(x)

    assert gradcheck(fn, weft.randn(4, 3, dtype=weft.float64, requires_grad=True))


def test_a_value_with_a_tangent_is_not_written_outside():
    total = weft.zeros(2)

    def fn(x):
        total.add_(x)
        return x * 2

    with pytest.raises(weft.errors.AutogradError, match="inside jvp cannot be written"):
        func.jvp(fn, (weft.ones(2),), (weft.ones(2),))
    assert total.tolist() == [0, 0]


def test_a_detached_value_is_written_outside_through_nested_transforms():
    total = weft.zeros(())

    def fn(x):
        total.add_(x.detach().sum())
        return (x * x).sum()

    func.jvp(lambda x: func.jvp(fn, (x,), (x,))[1], (weft.ones(2),), (weft.ones(2),))
    assert total.item() == 2

"""Averages of weights, gradient clipping and parameters as one vector."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.nn.utils as utils
from weft.errors import ArgumentError, ShapeError
from weft.nn.module import Module
from weft.nn.parameter import Parameter

swa = weft.optim.swa_utils


class Net(Module):
    def __init__(self, size=3):
        super().__init__()
        self.w = Parameter(weft.zeros(size, dtype=weft.float64))
        self.register_buffer("seen", weft.zeros(2, dtype=weft.float64))
        self.register_buffer("count", weft.tensor(0))

    def forward(self, x):
        return self.w * x


def visit(average, net, values):
    for value in values:
        with weft.no_grad():
            net.w.copy_(weft.tensor(value))
            net.seen.fill_(float(value[0]))
            net.count.fill_(int(net.count) + 1)
        average.update_parameters(net)


VALUES = np.random.default_rng(0).standard_normal((6, 3))


def test_the_plain_average_is_the_mean():
    net = Net()
    average = swa.AveragedModel(net)
    visit(average, net, VALUES)
    np.testing.assert_allclose(
        average.module.w.detach().numpy(), VALUES.mean(0), rtol=1e-13
    )
    assert int(average.n_averaged) == 6
    np.testing.assert_array_equal(average.module.seen.numpy(), VALUES[-1][0])
    assert int(average.module.count) == 6
    np.testing.assert_array_equal(net.w.detach().numpy(), VALUES[-1])


def test_the_moving_average():
    net = Net()
    average = swa.AveragedModel(net, avg_fn=swa.get_ema_avg_fn(0.8))
    visit(average, net, VALUES)
    expected = VALUES[0]
    for value in VALUES[1:]:
        expected = 0.8 * expected + 0.2 * value
    np.testing.assert_allclose(average.module.w.detach().numpy(), expected, rtol=1e-13)


def test_buffers_can_be_averaged():
    net = Net()
    average = swa.AveragedModel(net, use_buffers=True)
    visit(average, net, VALUES)
    expected = VALUES[:, 0].mean()
    np.testing.assert_allclose(average.module.seen.numpy(), expected, rtol=1e-12)
    assert int(average.module.count) == 6  # whole numbers are copied


def test_the_average_is_a_model_of_its_own(tmp_path):
    net = Net()
    average = swa.AveragedModel(net)
    visit(average, net, VALUES)
    out = average(weft.ones(3, dtype=weft.float64))
    np.testing.assert_allclose(out.detach().numpy(), VALUES.mean(0), rtol=1e-13)
    weft.save(dict(average.state_dict()), tmp_path / "average")
    again = swa.AveragedModel(Net())
    again.load_state_dict(weft.load(tmp_path / "average"))
    visit(average, net, VALUES[:2])
    visit(again, net, VALUES[:2])
    assert weft.equal(average.module.w.detach(), again.module.w.detach())


def test_another_model_is_refused():
    average = swa.AveragedModel(Net())
    with pytest.raises(ArgumentError, match="other shapes"):
        average.update_parameters(Net(size=4))
    with pytest.raises(ArgumentError, match=r"decay in \[0, 1\], got 1.5"):
        swa.get_ema_avg_fn(1.5)
    sgd = weft.optim.SGD(Net())
    with pytest.raises(ArgumentError, match="anneal_epochs"):
        swa.SWALR(sgd, 0.1, anneal_epochs=-1)
    with pytest.raises(ArgumentError, match="'cos', 'linear'"):
        swa.SWALR(sgd, 0.1, anneal_strategy="steps")


class Norm(Module):
    """Running statistics as batch normalisation keeps them."""

    def __init__(self):
        super().__init__()
        self.momentum = 0.1
        self.register_buffer("running_mean", weft.full((2,), 9.0))
        self.register_buffer("batches", weft.tensor(0))

    def reset_running_stats(self):
        self.running_mean.zero_()
        self.batches.zero_()

    def forward(self, x):
        if self.training:
            self.batches += 1
            rate = 1 / float(self.batches) if self.momentum is None else self.momentum
            self.running_mean += rate * (x.mean(0) - self.running_mean)
        return x - self.running_mean


def test_running_statistics_are_computed_anew():
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((4, 2)).astype(np.float32) for _ in range(5)]
    norm = Norm().eval()
    swa.update_bn([(weft.tensor(b), "label") for b in batches], norm)
    expected = np.mean([b.mean(0) for b in batches], 0)
    np.testing.assert_allclose(norm.running_mean.numpy(), expected, rtol=1e-5)
    assert norm.momentum == 0.1
    assert not norm.training


def test_a_failing_loader_leaves_modes_and_momenta():
    norm = Norm()
    inner = Norm().eval()
    norm.inner = inner
    with pytest.raises(ZeroDivisionError):
        swa.update_bn((1 / n for n in (0,)), norm)
    assert (norm.momentum, norm.training, inner.training) == (0.1, True, False)


def test_running_statistics_of_the_real_layer():
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((4, 2)).astype(np.float32) for _ in range(5)]
    norm = weft.nn.BatchNorm1d(2)
    swa.update_bn([weft.tensor(b) for b in batches], norm)
    mean = np.mean([b.mean(0) for b in batches], 0)
    var = np.mean([b.var(0, ddof=1) for b in batches], 0)
    np.testing.assert_allclose(norm.running_mean.numpy(), mean, rtol=1e-5)
    np.testing.assert_allclose(norm.running_var.numpy(), var, rtol=1e-5)


# -- clipping


def with_gradients(*grads):
    params = []
    for g in grads:
        p = weft.zeros(*np.shape(g), dtype=weft.float64).requires_grad_()
        p.grad = weft.tensor(np.asarray(g, dtype=float))
        params.append(p)
    return params


@pytest.mark.parametrize("order", [1, 2, 3, np.inf])
def test_the_norm_is_that_of_all_elements(order):
    grads = [np.arange(6.0).reshape(2, 3) - 2, np.array([4.0, -7.0])]
    total = utils.get_total_norm([weft.tensor(g) for g in grads], order)
    flat = np.concatenate([g.ravel() for g in grads])
    np.testing.assert_allclose(float(total), np.linalg.norm(flat, order), rtol=1e-12)


def test_gradients_are_scaled_together_and_only_if_too_long():
    params = with_gradients([3.0], [[4.0]])
    assert float(utils.clip_grad_norm_(params, 10.0)) == 5.0
    assert [float(p.grad) for p in params] == [3.0, 4.0]
    assert float(utils.clip_grad_norm_(iter(params), 1.0)) == 5.0
    np.testing.assert_allclose([float(p.grad) for p in params], [0.6, 0.8], rtol=1e-6)
    params[1].grad = None
    assert float(utils.clip_grad_norm_(params[1], 1.0)) == 0.0


def test_values_are_limited():
    (p,) = with_gradients([-3.0, 0.5, 2.0])
    utils.clip_grad_value_(p, 1.0)
    np.testing.assert_array_equal(p.grad.numpy(), [-1.0, 0.5, 1.0])


def test_norms_that_are_not_finite():
    params = with_gradients([np.inf])
    with pytest.raises(ArgumentError, match="is inf"):
        utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    params = with_gradients([np.nan], [1.0])
    assert np.isnan(float(utils.clip_grad_norm_(params, 1.0)))
    assert np.isnan(float(params[1].grad))
    with pytest.raises(ArgumentError, match="max_norm >= 0, got -1"):
        utils.clip_grad_norm_(params, -1)
    with pytest.raises(ArgumentError, match="limit >= 0"):
        utils.clip_grad_value_(params, -1)


def test_parameters_as_a_vector_and_back():
    a = weft.arange(4.0).reshape(2, 2).requires_grad_()
    b = weft.tensor(9.0, requires_grad=True)
    vector = utils.parameters_to_vector([a, b])
    np.testing.assert_array_equal(vector.detach().numpy(), [0, 1, 2, 3, 9])
    (vector * weft.arange(5.0)).sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), [[0, 1], [2, 3]])
    utils.vector_to_parameters(vector.detach() + 1, [a, b])
    np.testing.assert_array_equal(a.detach().numpy(), [[1, 2], [3, 4]])
    assert float(b.detach()) == 10
    for bad in (weft.zeros(4), weft.zeros(6), weft.zeros(5, 1)):
        with pytest.raises(ShapeError, match="a vector of 5 elements"):
            utils.vector_to_parameters(bad, [a, b])

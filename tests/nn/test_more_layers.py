"""Layers and losses beside the common ones, against plain formulas."""

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import functional as F


def test_adaptive_softmax_is_a_distribution():
    weft.manual_seed(0)
    loss = nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 6], div_value=2.0, head_bias=True)
    x = weft.randn(5, 8)
    every = loss.log_prob(x)
    assert np.allclose(every.exp().sum(1).detach().numpy(), 1, atol=1e-6)
    target = weft.tensor([0, 2, 4, 7, 11])
    out, mean = loss(x, target)
    picked = every.detach().numpy()[np.arange(5), target.numpy()]
    assert np.allclose(out.detach().numpy(), picked)
    assert np.isclose(mean.item(), -picked.mean())
    assert weft.equal(loss.predict(x), every.argmax(1))
    one, _ = loss(x[0], target[0])
    assert np.isclose(one.item(), picked[0])
    mean.backward()
    assert loss.tail[1][1].weight.grad is not None
    with pytest.raises(ValueError, match="cutoffs"):
        nn.AdaptiveLogSoftmaxWithLoss(8, 12, [6, 3])


@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_pooling_takes_maxima_of_windows(rank):
    weft.manual_seed(1)
    x = weft.randn(2, 3, *(7, 8, 9)[:rank], requires_grad=True)
    pool = getattr(F, f"fractional_max_pool{rank}d")
    out, where = pool(x, 2, output_size=3, return_indices=True)
    flat = x.detach().numpy().reshape(2, 3, -1)
    picked = np.take_along_axis(flat, where.numpy().reshape(2, 3, -1), 2)
    assert np.array_equal(picked.reshape(out.shape), out.detach().numpy())
    out.sum().backward()
    assert np.isclose(x.grad.sum().item(), out.numel())
    assert pool(x[0], 2, output_ratio=0.5).shape[-1] == (8, 9)[rank - 2] // 2
    with pytest.raises(ValueError, match="output_size"):
        pool(x, 2)
    with pytest.raises(ValueError, match="do not fit"):
        pool(x, 5, output_size=5)


def test_fractional_windows_cover_the_ends():
    x = weft.arange(10.0).reshape(1, 1, 1, 10).expand(1, 1, 10, 10)
    samples = weft.tensor([[[0.3, 0.6]]])
    out = F.fractional_max_pool2d(x, 2, output_size=4, _random_samples=samples)
    alpha = (10 - 2) / (4 - 1)
    starts = [int((i + 0.3) * alpha) - int(0.3 * alpha) for i in range(3)] + [8]
    assert out[0, 0, 0].tolist() == [s + 1 for s in starts]


def test_sync_batch_norm_of_one_process():
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Sequential(nn.BatchNorm1d(2)))
    made = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    kinds = [type(m) for m in made.modules() if not list(m.children())]
    assert kinds == [nn.SyncBatchNorm] * 2
    x = weft.randn(4, 3, 5, 5)
    assert np.allclose(made[0](x).detach(), nn.BatchNorm2d(3)(x).detach(), atol=1e-6)


def test_cross_map_lrn():
    x = np.random.default_rng(0).random((2, 6, 3, 3))
    squares = x * x
    sums = np.zeros_like(x)
    for c in range(6):
        kept = [j for j in range(6) if j <= c + 1 and (j >= c - 1 or j == 0)]
        sums[:, c] = squares[:, kept].sum(1)
    expected = x * (2 + 0.5 / 3 * sums) ** -0.75
    assert np.allclose(nn.CrossMapLRN2d(3, 0.5, 0.75, 2)(weft.tensor(x)), expected)
    with pytest.raises(ValueError, match="4D"):
        nn.CrossMapLRN2d(3)(weft.ones(2, 3))


def test_linear_cross_entropy():
    weft.manual_seed(2)
    loss = nn.LinearCrossEntropyLoss(4, 3, bias=True, label_smoothing=0.1)
    x, t = weft.randn(5, 4), weft.tensor([0, 2, 1, 1, 0])
    expected = F.cross_entropy(loss.linear(x), t, label_smoothing=0.1)
    assert weft.equal(loss(x, t), expected)


def test_data_parallel_runs_its_module():
    layer = nn.Linear(2, 3)
    net = nn.DataParallel(layer)
    x = weft.ones(1, 2)
    assert weft.equal(net(x), layer(x))
    assert weft.equal(nn.parallel.data_parallel(layer, x), layer(x))
    with pytest.raises(RuntimeError, match="leave them out"):
        nn.DataParallel(layer, device_ids=[0])
    with pytest.raises(RuntimeError, match="call init_process_group"):
        nn.parallel.DistributedDataParallel(layer)


def test_container_holds_modules_by_name():
    with pytest.warns(UserWarning, match="deprecated"):
        held = nn.Container(a=nn.ReLU())
    assert isinstance(held.a, nn.ReLU)


def test_older_reductions():
    x, t = weft.tensor([1.0, 3.0]), weft.zeros(2)
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert F.mse_loss(x, t, size_average=False).item() == 10
    with pytest.warns(UserWarning, match="reduction='none'"):
        assert F.mse_loss(x, t, None, False).tolist() == [1, 9]
    with pytest.warns(UserWarning, match="reduction='sum'"):
        loss = nn.MSELoss(size_average=False)
    assert loss.reduction == "sum"
    assert loss(x, t).item() == 10
    scores, classes = weft.zeros(2, 4), weft.tensor([0, 1])
    with pytest.warns(UserWarning, match="reduction='mean'"):
        same = F.cross_entropy(scores, classes, None, True, 1)
    assert np.isclose(same.item(), np.log(4))  # the second class is ignored


def test_dropout_of_other_ranks_follows_pytorch():
    weft.manual_seed(0)
    with pytest.warns(UserWarning, match="2-D input to dropout2d"):
        out = nn.Dropout2d(0.5)(weft.ones(20, 20))
    assert {0.0, 2.0} == set(out.flatten().tolist())
    with pytest.warns(UserWarning, match=r"\(N, C, L\)"):
        rows = F.dropout2d(weft.ones(5, 6, 4))
    assert (rows == rows[:, :, :1]).all().item()
    with pytest.raises(RuntimeError, match="dropout1d"):
        F.dropout1d(weft.ones(2, 2, 2, 2))


def test_states_of_recurrent_layers_in_a_list():
    layer, cell = nn.LSTM(2, 3), nn.LSTMCell(2, 3)
    x, h = weft.randn(4, 1, 2), weft.randn(1, 1, 3)
    assert weft.equal(layer(x, [h, h])[0], layer(x, (h, h))[0])
    assert weft.equal(cell(x[0], [h[0], h[0]])[0], cell(x[0], (h[0], h[0]))[0])
    assert isinstance(layer, nn.RNNBase)
    assert isinstance(cell, nn.RNNCellBase)


def test_attention_with_given_parameters():
    weft.manual_seed(3)
    layer = nn.MultiheadAttention(8, 2)
    x = weft.randn(5, 3, 8)
    expected, weights = layer(x, x, x)
    out, seen = F.multi_head_attention_forward(
        x, x, x, 8, 2, layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.0,
        layer.out_proj.weight, layer.out_proj.bias,
    )  # fmt: skip
    assert weft.equal(out, expected)
    assert weft.equal(seen, weights)
    with pytest.raises(ValueError, match="static_k"):
        F.multi_head_attention_forward(
            x, x, x, 8, 2, layer.in_proj_weight, None, None, None, False, 0.0,
            layer.out_proj.weight, None, static_k=x,
        )  # fmt: skip


def test_convolution_over_time_first():
    x, w, b = weft.randn(6, 2, 3), weft.randn(2, 3, 4), weft.randn(4)
    out = F.conv_tbc(x, w, b, 1).numpy()
    padded = np.pad(x.numpy(), ((1, 1), (0, 0), (0, 0)))
    expected = sum(padded[k : k + 7] @ w.numpy()[k] for k in range(2)) + b.numpy()
    assert np.allclose(out, expected, atol=1e-5)


def test_pooling_with_indices():
    x = weft.randn(1, 2, 6, 6)
    values, where = F.max_pool2d_with_indices(x, 2)
    assert weft.equal(values, F.max_pool2d(x, 2))
    assert weft.equal(x.flatten(2).gather(2, where.flatten(2)), values.flatten(2))


def test_older_names_of_interpolation():
    x = weft.rand(1, 1, 3, 3)
    assert weft.equal(F.upsample_nearest(x, 6), F.interpolate(x, 6))
    aligned = F.interpolate(x, 5, mode="bilinear", align_corners=True)
    assert weft.equal(F.upsample_bilinear(x, 5), aligned)


def test_norms_without_statistics_are_refused_in_evaluation():
    x, ones = weft.rand(4, 3), weft.ones(3)
    for given, lacking in (((None, None), "mean"), ((ones, None), "var")):
        with pytest.raises(RuntimeError, match=f"expected running_{lacking} in eval"):
            F.batch_norm(x, *given)
    with pytest.raises(RuntimeError, match="expected running_mean and running_var"):
        F.instance_norm(weft.rand(2, 3, 4), use_input_stats=False)
    own = F.batch_norm(x, None, None, training=True)
    layer = nn.BatchNorm1d(3, affine=False, track_running_stats=False).eval()
    assert weft.equal(layer(x), own)

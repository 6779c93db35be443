"""Tensors without values: shapes and dtypes go through operators."""

import pytest

import weft
from weft import nn


def test_a_model_of_any_size_costs_nothing():
    with weft.device("meta"):
        layer = nn.Linear(10**6, 10**6)
        x = weft.rand(3, 10**6)
    y = layer(x)
    assert (y.shape, y.dtype, y.is_meta) == ((3, 10**6), weft.float32, True)
    assert repr(y) == "tensor(..., device='meta', size=(3, 1000000), grad_fn=<add>)"


@pytest.mark.parametrize(
    "make",
    [
        lambda: (nn.Conv2d(3, 4, 3, padding=1), weft.ones(2, 3, 8, 8)),
        lambda: (
            nn.Sequential(nn.Embedding(9, 4), nn.LayerNorm(4)),
            weft.ones(2, 3).long(),
        ),
        lambda: (
            nn.TransformerEncoderLayer(8, 2, batch_first=True),
            weft.ones(2, 5, 8),
        ),
        lambda: (nn.BatchNorm1d(4).eval(), weft.ones(6, 4)),
        lambda: (nn.LSTM(3, 5), weft.ones(4, 2, 3)),
    ],
)
def test_shapes_are_those_of_the_cpu(make):
    model, x = make()
    want = model(x)
    have = model.to("meta")(x.to("meta"))
    for a, b in zip(
        weft.tree_flatten(want)[0], weft.tree_flatten(have)[0], strict=True
    ):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert b.device.type == "meta"


def test_gradients_have_shapes():
    x = weft.empty(3, 4, device="meta", requires_grad=True)
    (x.exp() @ x.T).sum().backward()
    assert x.grad.shape == (3, 4)
    assert x.grad.is_meta


@pytest.mark.parametrize(
    "use", [lambda x: x.cpu(), lambda x: x.sum().item(), lambda x: bool(x.sum() > 0),
            lambda x: x.tolist(), lambda x: x.numpy(force=True)],
)  # fmt: skip
def test_values_are_refused(use):
    with pytest.raises(NotImplementedError, match="no values"):
        use(weft.ones(2, device="meta"))


def test_other_devices_do_not_mix():
    with pytest.raises(RuntimeError, match="on one device"):
        weft.ones(2) + weft.ones(2, device="meta")


def test_values_come_later():
    source = nn.Linear(3, 4)
    empty = nn.Linear(3, 4, device="meta")
    empty.load_state_dict(source.state_dict(), assign=True)
    assert weft.equal(empty.weight, source.weight)
    made = nn.Linear(3, 4, device="meta").to_empty(device="cpu")
    assert not made.weight.is_meta
    assert made.weight.shape == (4, 3)


def test_the_device_is_not_listed():
    assert weft.devices() == [weft.device("cpu")]
    assert weft.device("meta").type == "meta"

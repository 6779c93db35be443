"""Fake quantisers, and quantised layers, beside PyTorch's."""

import numpy as np
import pytest

import weft
from weft import nn

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(5)


def pair(array):
    return (
        weft.tensor(array).requires_grad_(),
        torch.from_numpy(array.copy()).requires_grad_(),
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("low", "high", "zero"), [(0, 255, 3), (-128, 127, -7), (-8, 7, 0)]
)
def test_per_tensor(dtype, low, high, zero):
    x = RNG.normal(size=(50, 40)).astype(dtype) * 3
    x.reshape(-1)[:6] = [0, -0.0, 0.5, 1.5, 1e9, -1e9]
    ours, theirs = pair(x)
    a = weft.fake_quantize_per_tensor_affine(ours, 0.1, zero, low, high)
    b = torch.fake_quantize_per_tensor_affine(theirs, 0.1, zero, low, high)
    # PyTorch's result has float32's digits in float64 too
    rtol = 0 if dtype == "float32" else 1e-7
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=rtol)
    g = RNG.normal(size=x.shape).astype(dtype)
    a.backward(weft.tensor(g))
    b.backward(torch.from_numpy(g))
    np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())


def test_per_tensor_of_tensors():
    x = RNG.normal(size=(30,)).astype(np.float32)
    a = weft.fake_quantize_per_tensor_affine(
        weft.tensor(x), weft.tensor(0.07), weft.tensor(5, dtype=weft.int32), 0, 15
    )
    b = torch.fake_quantize_per_tensor_affine(
        torch.from_numpy(x), torch.tensor(0.07), torch.tensor(5, dtype=torch.int32),
        0, 15,
    )  # fmt: skip
    np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_per_channel(axis):
    x = RNG.normal(size=(4, 5, 6)).astype(np.float32)
    count = x.shape[axis]
    scale = RNG.uniform(0.01, 0.1, count).astype(np.float32)
    zero = RNG.integers(-5, 5, count).astype(np.int32)
    ours, theirs = pair(x)
    a = weft.fake_quantize_per_channel_affine(
        ours, weft.tensor(scale), weft.tensor(zero), axis, -20, 20
    )
    b = torch.fake_quantize_per_channel_affine(
        theirs, torch.from_numpy(scale), torch.from_numpy(zero), axis, -20, 20
    )
    np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    a.sum().backward()
    b.sum().backward()
    np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())


@pytest.mark.filterwarnings("ignore")  # of their deprecation
def test_numbers_of_a_static_layer_are_pytorchs():
    layer, x = nn.Linear(24, 16), RNG.normal(size=(9, 24)).astype(np.float32)
    small = weft.quantization.QuantizedLinear(layer, float(x.min()), float(x.max()))
    scale, zero = (float(v) for v in small.input_affine)
    q = torch.quantize_per_tensor(torch.from_numpy(x), scale, int(zero), torch.quint8)
    weight = small.weight.numpy()
    sums = (q.int_repr().numpy().astype(np.int64) - int(zero)) @ weight.T.astype(
        np.int64
    )
    wanted = sums * small.scale.numpy().astype(float) + layer.bias.detach().numpy()
    np.testing.assert_allclose(small(weft.tensor(x)).numpy(), wanted, atol=1e-5)

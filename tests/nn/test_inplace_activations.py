"""Activations that overwrite their input."""

import pytest

import weft
from weft import nn

NAMES = "relu relu6 leaky_relu elu selu celu silu mish hardtanh hardsigmoid hardswish"


@pytest.mark.parametrize("name", NAMES.split())
def test_an_overwritten_input_still_has_a_gradient(name):
    function = getattr(nn.functional, name)
    x = weft.tensor([-4.0, -0.5, 0.7, 5.0], requires_grad=True)
    (want,) = weft.autograd.grad(function(x * 2).square().sum(), x)
    (got,) = weft.autograd.grad(function(x * 2, inplace=True).square().sum(), x)
    assert got.tolist() == pytest.approx(want.tolist(), rel=1e-5)

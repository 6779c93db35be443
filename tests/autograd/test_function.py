"""Functions with hand-written derivatives in forward mode."""

import pytest

import weft


class KeepsWhatIsNeeded(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(x.cos())
        return x.sin() + y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0], g


def test_forward_mode_needs_gradients_of_a_function():
    x = weft.rand(3, dtype=weft.float64, requires_grad=True)
    apply = KeepsWhatIsNeeded.apply
    assert weft.autograd.gradcheck(apply, (x, x.detach()), check_forward_ad=True)
    _, found = weft.func.jvp(apply, (x.detach(), x.detach()), (x * 0, x * 0 + 1))
    assert found.tolist() == [1.0, 1.0, 1.0]


class OnceDifferentiable(weft.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @weft.autograd.function.once_differentiable
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g


def test_gradcheck_of_a_function_without_forward_mode():
    x = weft.rand(3, dtype=weft.float64, requires_grad=True)
    assert weft.autograd.gradcheck(OnceDifferentiable.apply, x)
    with pytest.raises(weft.errors.AutogradError):
        weft.autograd.gradcheck(OnceDifferentiable.apply, x, check_forward_ad=True)

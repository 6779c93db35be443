"""Autocast and gradient scaling: eagerly, captured, nested, and beside PyTorch's list."""

import copy
import warnings

import numpy as np
import pytest

import weft
from weft import amp, nn
from weft.nn import functional as F

A, B, C = weft.rand(3, 4), weft.rand(4, 5), weft.rand(3, 5)
LOWER = {
    "matmul": lambda: A @ B,
    "mm": lambda: weft.mm(A, B),
    "bmm": lambda: weft.bmm(A.unsqueeze(0), B.unsqueeze(0)),
    "addmm": lambda: weft.addmm(C, A, B),
    "baddbmm": lambda: weft.baddbmm(C, A.unsqueeze(0), B.unsqueeze(0)),
    "linear": lambda: F.linear(A, B.T, weft.ones(5)),
    "conv1d": lambda: F.conv1d(A.unsqueeze(0), weft.rand(2, 3, 2), weft.ones(2)),
    "conv2d": lambda: F.conv2d(weft.rand(1, 2, 4, 4), weft.rand(3, 2, 2, 2)),
    "transposed": lambda: F.conv_transpose2d(
        weft.rand(1, 2, 4, 4), weft.rand(2, 3, 2, 2), weft.ones(3)
    ),
    "einsum": lambda: weft.einsum("ij,jk->ik", A, B),
    "attention": lambda: F.scaled_dot_product_attention(A, A, A),
    "prelu": lambda: F.prelu(A, weft.tensor([0.1])),
}
LIKE = {
    "add": lambda x: x + 1,
    "softmax": lambda x: weft.softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "sum": lambda x: x.sum(),
    "exp": lambda x: x.exp(),
}
WIDE = {
    "mse_loss": lambda x: F.mse_loss(x, x),
    "nll_loss": lambda x: F.nll_loss(x, weft.tensor([0, 1, 2])),
    "cross_entropy": lambda x: F.cross_entropy(x, weft.tensor([0, 1, 2])),
    "huber_loss": lambda x: F.huber_loss(x, x),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, x),
    "avg_pool3d": lambda x: F.avg_pool3d(x.reshape(1, 1, 3, 2, 2), 2),
}


@pytest.mark.parametrize("dtype", [weft.bfloat16, weft.float16])
@pytest.mark.parametrize("name", LOWER)
def test_products_are_lowered(name, dtype):
    expected = LOWER[name]()
    assert expected.dtype is weft.float32
    with weft.autocast("cpu", dtype=dtype):
        out = LOWER[name]()
    assert out.dtype is dtype
    if name not in ("conv1d", "conv2d", "transposed"):  # whose arguments are drawn
        assert np.allclose(out.float(), expected, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("dtype", [weft.bfloat16, weft.float32])
@pytest.mark.parametrize("name", LIKE)
def test_others_keep_their_dtype(name, dtype):
    with weft.autocast("cpu"):
        assert LIKE[name](A.to(dtype)).dtype is dtype


@pytest.mark.parametrize("name", WIDE)
def test_losses_are_wide(name):
    with weft.autocast("cpu"):
        assert WIDE[name](A.bfloat16()).dtype is weft.float32


def test_float64_and_integers_stay():
    with weft.autocast("cpu"):
        assert (A.double() @ B.double()).dtype is weft.float64
        assert (A.int() @ B.int()).dtype is weft.int32


def test_blocks_nest_and_end():
    assert not weft.is_autocast_enabled("cpu")
    with weft.autocast("cpu", dtype=weft.float16):
        assert weft.get_autocast_dtype("cpu") is weft.float16
        with weft.autocast("cpu", enabled=False):
            assert (A @ B).dtype is weft.float32
            assert not weft.is_autocast_cpu_enabled()
        assert (A @ B).dtype is weft.float16
    assert (A @ B).dtype is weft.float32
    with pytest.raises(KeyError), weft.autocast("cpu"):
        raise KeyError
    assert not weft.is_autocast_enabled("cpu")


def test_as_a_decorator():
    @weft.amp.autocast("cpu", cache_enabled=False)
    def product(a, b):
        return a @ b

    assert product(A, B).dtype is weft.bfloat16
    assert product.__name__ == "product"


def test_settings_without_a_block():
    amp.set_autocast_dtype("cpu", weft.float16)
    amp.set_autocast_enabled("cpu", True)
    try:
        assert (A @ B).dtype is weft.float16
    finally:
        amp.set_autocast_enabled("cpu", False)
        amp.set_autocast_dtype("cpu", weft.bfloat16)
    assert weft.get_autocast_cpu_dtype() is weft.bfloat16
    with pytest.raises(TypeError, match="half type"):
        amp.set_autocast_dtype("cpu", weft.int8)
    assert amp.is_autocast_cache_enabled()
    amp.clear_autocast_cache()


def test_what_cannot_be_is_said():
    with pytest.warns(UserWarning, match="'cuda', but it is not available"):
        off = weft.autocast("cuda")
    with off:
        assert (A @ B).dtype is weft.float32
    with pytest.warns(UserWarning, match="target dtype is not supported"):
        weft.autocast("cpu", dtype=weft.float64)
    with pytest.raises(ValueError, match="device_type"):
        weft.autocast(3)
    assert not amp.is_autocast_available("cuda")
    assert weft.get_autocast_dtype("cuda") is weft.float16


def test_gradients_come_back_in_the_parameters_dtype():
    layer = nn.Linear(4, 2)
    with weft.autocast("cpu"):
        loss = F.mse_loss(layer(A), weft.zeros(3, 2))
    loss.backward()
    assert layer.weight.grad.dtype is weft.float32
    exact = copy.deepcopy(layer)
    exact.zero_grad()
    F.mse_loss(exact(A), weft.zeros(3, 2)).backward()
    assert np.allclose(layer.weight.grad, exact.weight.grad, rtol=0.05, atol=0.02)


def test_compiled_functions_follow_autocast():
    layer = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def inside(x):
        with weft.autocast("cpu"):
            return layer(x)

    assert weft.compile(inside)(A).dtype is weft.bfloat16
    assert np.allclose(weft.compile(inside)(A).float().detach(),
                       inside(A).float().detach(), atol=0.02)  # fmt: skip
    compiled = weft.compile(lambda x: layer(x))
    for _ in range(4):
        assert compiled(A).dtype is weft.float32
        with weft.autocast("cpu"):
            assert compiled(A).dtype is weft.bfloat16
    assert len(compiled.compiles) == 2


def test_recurrent_layers_agree_with_their_compiled_form():
    weft.manual_seed(0)
    layer, x = nn.LSTM(3, 4), weft.randn(5, 2, 3)

    def run(x):
        with weft.autocast("cpu"):
            return layer(x)[0]

    out, again = run(x), weft.compile(run)(x)
    assert out.dtype is again.dtype
    assert np.allclose(out.float().detach(), again.float().detach(), atol=0.02)


def test_functions_of_ones_own():
    class Product(weft.autograd.Function):
        @staticmethod
        @amp.custom_fwd(device_type="cpu", cast_inputs=weft.float32)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            assert not weft.is_autocast_enabled("cpu")
            return a @ b

        @staticmethod
        @amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g @ b.T, a.T @ g

    class Plain(Product):
        @staticmethod
        @amp.custom_fwd(device_type="cpu")
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

    x = A.clone().requires_grad_()
    with weft.autocast("cpu"):
        assert Product.apply(x.bfloat16(), B).dtype is weft.float32
        out = Plain.apply(x, B)
    assert out.dtype is weft.bfloat16
    out.float().sum().backward()
    assert np.allclose(x.grad, np.ones((3, 5)) @ B.numpy().T, rtol=0.05)


# -- scaling


def trained(scaler, grads):
    p = nn.Parameter(weft.zeros(2))
    sgd = weft.optim.SGD([p], lr=1.0)
    for g in grads:
        sgd.zero_grad()
        scaler.scale((p * weft.tensor(g)).sum()).backward()
        scaler.step(sgd)
        scaler.update()
    return p.detach()


def test_steps_that_are_not_finite_are_skipped():
    scaler = amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    p = trained(scaler, [[1.0, 2.0], [np.inf, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert p.tolist() == [-3, -2]
    assert scaler.get_scale() == 8  # halved once, doubled after two good steps
    other = amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict()
    assert scaler.get_growth_interval() == 2


def test_gradients_are_unscaled_once():
    p = nn.Parameter(weft.ones(1))
    sgd, scaler = weft.optim.SGD([p], lr=0.1), amp.GradScaler("cpu")
    scaler.scale([(p * 3).sum()])[0].backward()
    scaler.unscale_(sgd)
    assert p.grad.item() == 3
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(sgd)
    scaler.step(sgd)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(sgd)
    with pytest.raises(RuntimeError, match="after step"):
        scaler.unscale_(sgd)
    scaler.update(4.0)
    assert scaler.get_scale() == 4
    with pytest.raises(RuntimeError, match="No inf checks"):
        scaler.update()
    with pytest.raises(RuntimeError, match="Closure"):
        scaler.step(sgd, closure=lambda: 0)
    with pytest.raises(ValueError, match="iterable of Tensors"):
        scaler.scale(3)
    with pytest.raises(RuntimeError, match="empty"):
        scaler.load_state_dict({})


def test_a_scaler_that_is_off():
    with pytest.warns(UserWarning, match="Disabling"):
        scaler = amp.GradScaler()
    assert not scaler.is_enabled()
    assert scaler.get_scale() == 1
    assert trained(scaler, [[1.0, 2.0]]).tolist() == [-1, -2]
    assert scaler.state_dict() == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weft.GradScaler(enabled=False)
    with pytest.raises(ValueError, match="growth factor"):
        amp.GradScaler("cpu", growth_factor=1.0)

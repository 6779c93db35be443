"""Functions of half-precision tensors: computed in float32, and rounded once."""

import numpy as np
import pytest

import weft

F = weft.nn.functional
UNITS = {weft.bfloat16: 2.0**-8, weft.float16: 2.0**-11}  # of the last place
FUNCTIONS = {
    "layer_norm": lambda x: F.layer_norm(x, (48,)),
    "rms_norm": lambda x: F.rms_norm(x, (48,), eps=1e-6),
    "group_norm": lambda x: F.group_norm(x, 4),
    "instance_norm": lambda x: F.instance_norm(x.reshape(6, 4, 12)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "local_response_norm": lambda x: F.local_response_norm(x.reshape(6, 8, 6), 3),
    "normalize": F.normalize,
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(1) + 1),
    "pairwise_distance": lambda x: F.pairwise_distance(x, x.flip(1) + 1),
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "selu": F.selu,
    "elu": lambda x: F.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 0.7),
    "logsigmoid": F.logsigmoid,
    "tanhshrink": F.tanhshrink,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "glu": F.glu,
    "sinc": weft.sinc,
    "logit": lambda x: weft.logit(x.abs() / 16),  # which is exact
    "lerp": lambda x: weft.lerp(x, x.flip(1), 0.3),
    "lerp by a tensor": lambda x: weft.lerp(x, x.flip(1), x * 0 + 0.25),
    "addcmul": lambda x: weft.addcmul(x, x, x.flip(1), value=0.3),
    "addcdiv": lambda x: weft.addcdiv(x, x, x.abs().flip(1) + 1, value=0.3),
}


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_result_is_rounded_once(name, dtype, rng):
    """Within a unit of the float64 result of the same numbers, plus float32 errors."""
    function = FUNCTIONS[name]
    x = weft.tensor(3 * rng.standard_normal((6, 48)) + 2).to(dtype)
    want = function(x.double()).numpy()
    for run in (function, weft.compile(function)):
        found = run(x)
        assert found.dtype is dtype
        error = np.abs(found.double().numpy() - want)
        limit = UNITS[dtype] * np.abs(want) + 2e-6 * (1 + np.abs(want))
        assert (error <= limit).all()


def test_gradients_of_a_norm_in_half_precision(rng):
    """A large mean leaves few bits for what deviates from it: sums are float32."""
    data = weft.tensor(rng.standard_normal((8, 64)) + 30).bfloat16()
    slope = weft.tensor(rng.standard_normal((8, 64))).bfloat16()
    grads = []
    for kind in (weft.bfloat16, weft.float64):
        x = data.to(kind, copy=True).requires_grad_()
        F.layer_norm(x, (64,)).backward(slope.to(kind))
        grads.append(x.grad.double().numpy())
    error = np.abs(grads[0] - grads[1]).max()
    assert error < 2.0**-7 * np.abs(grads[1]).max()


def test_running_statistics_of_half_precision_are_moved_by_float32(rng):
    x = weft.tensor(rng.standard_normal((32, 3)) + 5).bfloat16()
    mean, var = weft.zeros(3), weft.ones(3)
    assert (
        F.batch_norm(x, mean, var, training=True, momentum=1.0).dtype is weft.bfloat16
    )
    wide = x.double().numpy()
    np.testing.assert_allclose(mean.numpy(), wide.mean(0), rtol=1e-6)
    np.testing.assert_allclose(var.numpy(), wide.var(0, ddof=1), rtol=1e-5)


def test_norms_keep_a_half_input_beside_wider_scales(rng):
    x = weft.tensor(rng.standard_normal((2, 8, 3))).bfloat16()
    w = weft.ones(8)
    for y in (
        F.layer_norm(x, (8, 3), weft.ones(8, 3)),
        F.rms_norm(x, (3,), weft.ones(3)),
        F.group_norm(x, 2, w, w),
        F.batch_norm(x, w.clone(), w.clone(), w, w),
        F.batch_norm(x, w.clone(), w.clone(), w, w, training=True),
        F.instance_norm(x, None, None, w, w),
    ):
        assert y.dtype is weft.bfloat16
    assert F.layer_norm(x, (3,), weft.ones(3).bfloat16()).dtype is weft.bfloat16
    assert F.layer_norm(x.double(), (3,), weft.ones(3)).dtype is weft.float64


def test_half_tensors_beside_0_d_ones_stay_half():
    x, one = weft.ones(2, 3, dtype=weft.float16), weft.tensor(1.5)
    for y in (weft.addcmul(x, one, one), weft.dist(x, one), weft.xlogy(x, one)):
        assert y.dtype is weft.float16

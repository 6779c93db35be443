"""Convolutions by cuDNN: descriptors, algorithms, workspaces, errors; and without it."""

import itertools

import numpy as np
import pytest
from simulated_cudnn import NOT_SUPPORTED, with_cudnn
from simulated_gpu import simulated_gpu

import weft
from weft.compile.targets.cuda.convolution_call import Convolution
from weft.errors import DeviceError

F = weft.nn.functional
CASES = [  # x, w, stride, padding, dilation, groups
    ((2, 3, 9), (4, 3, 3), 1, 1, 1, 1),
    ((2, 4, 9, 8), (6, 2, 3, 3), 2, 1, 1, 2),
    ((2, 8, 7, 7), (8, 1, 3, 3), 1, 1, 1, 8),
    ((1, 3, 10, 9), (2, 3, 2, 3), (2, 1), (0, 2), (1, 2), 1),
    ((1, 2, 4, 5, 4), (4, 2, 2, 3, 2), 1, (1, 0, 1), 1, 1),
]
ROUNDING = {"float32": 1e-5, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@pytest.fixture
def gpu():
    yield weft.register_device(simulated_gpu())
    weft.unregister_device("gpu:0")


def results(x, w, b, case, device, dtype, compiled=True):
    """A convolution and its gradients."""
    *_, stride, padding, dilation, groups = case
    conv = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[x.ndim]
    x, w, b = (
        t.to(device).to(getattr(weft, dtype)).requires_grad_() for t in (x, w, b)
    )

    def both(x, w, b):
        y = conv(x, w, b, stride, padding, dilation, groups)
        return y, *weft.autograd.grad((y * y).sum(), [x, w, b])

    found = (weft.compile(both) if compiled else both)(x, w, b)
    return [t.detach().cpu().double().numpy() for t in found]


def given(rng, case):
    x, w = (weft.tensor(rng.standard_normal(s, np.float32)) for s in case[:2])
    return x, w, weft.tensor(rng.standard_normal(len(w), np.float32))


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("case", CASES)
def test_convolutions_and_their_gradients(gpu, rng, case, dtype, there):
    library = with_cudnn(gpu) if there else None
    tensors = [t.to(getattr(weft, dtype)).float() for t in given(rng, case)]
    wants = results(*tensors, case, "cpu", "float32")
    for compiled in (False, True):
        found = results(*tensors, case, gpu, dtype, compiled)
        for mine, want in zip(found, wants, strict=True):
            scale = np.abs(want).max()
            np.testing.assert_allclose(mine, want, atol=3 * ROUNDING[dtype] * scale)
    if library:
        kinds = {kind for kind, *_ in library.calls}
        assert kinds == {"Forward", "BackwardData", "BackwardFilter"}

"""Convolutions by cuDNN: descriptors, algorithms, workspaces, layouts; without it."""

import numpy as np
import pytest
from simulated_cudnn import ALGORITHMS, NOT_SUPPORTED, with_cudnn
from simulated_gpu import simulated_gpu

import weft
from weft import nn
from weft.compile.program.steps import HostCall
from weft.errors import DeviceError
from weft.runtime.cuda.cudnn import NO_TENSOR_CORES, TENSOR_CORES

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


def test_descriptors_are_made_once_for_a_shape(gpu):
    library = with_cudnn(gpu)
    x, w = weft.ones(1, 2, 5, 5, device=gpu), weft.ones(3, 2, 3, 3, device=gpu)
    conv = weft.compile(lambda x, w: F.conv2d(x, w))
    conv(x, w)
    count = len(library.made)
    F.conv2d(x, w)
    weft.compile(lambda x, w: F.conv2d(x, w) + 1)(x, w)
    assert len(library.made) == count
    F.conv2d(x, w, padding=1)
    assert len(library.made) > count
    assert library.made[1].stream == 7  # the queue of the GPU


def test_float32_is_exact_unless_tf32_is_allowed(gpu):
    library = with_cudnn(gpu)
    x, w = weft.ones(1, 2, 5, 5, device=gpu), weft.ones(3, 2, 3, 3, device=gpu)
    F.conv2d(x, w)
    assert {math for *_, math in library.calls} == {NO_TENSOR_CORES}
    library.calls.clear()
    weft.set_float32_matmul_precision("high")
    try:
        F.conv2d(x, w)
    finally:
        weft.set_float32_matmul_precision("highest")
    F.conv2d(x.half(), w.half())
    assert {math for *_, math in library.calls} == {TENSOR_CORES}


def test_algorithms_with_large_workspaces_are_not_used(gpu, monkeypatch):
    library = with_cudnn(gpu)
    large = [(number, 0, 1 << 40, 1, 1) for number in range(3)]
    monkeypatch.setitem(ALGORITHMS, "Forward", [*large, (7, 0, 64, 1, 1)])
    F.conv2d(weft.ones(1, 2, 5, 5, device=gpu), weft.ones(3, 2, 3, 3, device=gpu))
    assert [number for _, number, _ in library.calls] == [7]


def test_without_a_deterministic_algorithm_the_host_computes_it(gpu, monkeypatch):
    library = with_cudnn(gpu)
    monkeypatch.setitem(ALGORITHMS, "Forward", [(1, 0, 0, 0, 1)])
    conv = weft.compile(lambda x, w: F.conv2d(x, w))
    x, w = weft.ones(1, 2, 5, 5, device=gpu), weft.ones(3, 2, 3, 3, device=gpu)
    assert conv(x, w).cpu()[0, 0, 0, 0] == 18
    assert not library.calls


def test_other_paddings_and_single_pixels_are_products(gpu, rng):
    library = with_cudnn(gpu)
    x = weft.tensor(rng.standard_normal((2, 4, 6, 6), np.float32))
    w, one = weft.ones(2, 4, 3, 3), weft.ones(2, 4, 1, 1)
    for conv in (
        lambda x, w, one: F.conv2d(x, w, padding=((1, 0), (2, 1))),
        lambda x, w, one: F.conv2d(x, one),
    ):
        found = weft.compile(conv)(x.to(gpu), w.to(gpu), one.to(gpu))
        np.testing.assert_allclose(found.cpu(), conv(x, w, one), atol=1e-5)
    assert not library.calls


def test_an_old_library_is_refused(gpu):
    with pytest.raises(DeviceError, match=r"expected cuDNN 9.0 or newer, got.* 8907"):
        with_cudnn(gpu, version=8907)


def test_errors_have_the_words_of_the_library(gpu):
    library = with_cudnn(gpu)
    library.refuses = NOT_SUPPORTED
    words = (
        r"ForwardAlgorithm_v7 of cuDNN 91002 failed: NOT_SUPPORTED \(3000\): what was"
    )
    with pytest.raises(DeviceError, match=words):
        weft.compile(lambda x, w: F.conv2d(x, w))(
            weft.ones(1, 2, 5, 5, device=gpu), weft.ones(3, 2, 3, 3, device=gpu)
        )


class Residual(nn.Module):
    """A small network of all that is between convolutions."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.thin, self.wide = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.other, self.last = nn.BatchNorm2d(8), nn.Conv2d(8, 16, 1, 2)
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        x = F.relu(x + self.other(self.wide(F.relu(self.thin(x)))))
        x = F.adaptive_avg_pool2d(F.relu(self.last(x)), 1)
        return self.out(x.flatten(1))


def trained(device, compiled):
    """The losses of a network in half precision, and its step."""
    weft.manual_seed(0)
    net = Residual().to(device).half()
    sgd = weft.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    rng = np.random.default_rng(0)
    x = weft.tensor(rng.standard_normal((4, 3, 16, 16), np.float32)).to(device).half()
    y = weft.arange(4).to(device)

    def step():
        sgd.zero_grad()
        loss = F.cross_entropy(net(x).float(), y)
        loss.backward()
        sgd.step()
        return loss

    step = weft.compile(step) if compiled else step
    return [step().item() for _ in range(4)], step


def test_a_network_has_channels_last_from_end_to_end(gpu):
    library = with_cudnn(gpu)
    want, _ = trained("cpu", compiled=False)
    found, step = trained(gpu, compiled=True)
    np.testing.assert_allclose(found, want, rtol=5e-3)
    lowered = step.latest.lowered
    assert not any(isinstance(one, HostCall) for one in lowered.steps)
    names = [node.op.name for node in lowered.graph.nodes]
    assert names.count("conv_last") == 2
    assert "conv" not in names
    assert "add_at" not in names  # the pool's gradient is no scatter
    permuted = [
        node.inputs[0].shape
        for node in lowered.graph.nodes
        if node.op.name == "permute" and len(node.shape) == 4
    ]
    images = [s for s in permuted if s[0] == 4]  # weights are transposed too
    assert images == [(4, 3, 16, 16)]  # the argument
    assert {kind for kind, *_ in library.calls} == {
        "Forward", "BackwardData", "BackwardFilter"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(3, 2, 1), (3, 1, 0), (5, 2, 2)]
)
def test_gradients_of_overlapping_pools(gpu, rng, kernel, stride, padding):
    def gradient(x):
        y = F.max_pool2d(x, kernel, stride, padding, ceil_mode=True)
        return y, *weft.autograd.grad((y * y).sum(), [x])

    x = weft.tensor(rng.integers(-3, 4, (2, 3, 9, 8)).astype(np.float32))  # with equals
    x[0, 0, 2, 3] = float("nan")
    wants = gradient(x.requires_grad_())
    step = weft.compile(gradient)
    found = step(x.detach().to(gpu).requires_grad_())
    for mine, want in zip(found, wants, strict=True):
        np.testing.assert_array_equal(mine.detach().cpu(), want.detach())
    names = [node.op.name for node in step.latest.lowered.graph.nodes]
    assert ("max_pool_spread" in names) == (kernel == 3)


def test_cheap_values_are_computed_where_they_are_read(gpu, rng):
    def normal(x, scale):
        wide = x.float()
        off = wide - wide.mean((0, 1), keepdim=True)
        spread = (off * off).mean((0, 1), keepdim=True)
        return (off * weft.rsqrt(spread + 1e-5) * scale).half()

    x = weft.tensor(rng.standard_normal((64, 32, 16), np.float32)).half()
    scale = weft.ones(16)
    compiled = weft.compile(normal)
    found = compiled(x.to(gpu), scale.to(gpu)).cpu()
    np.testing.assert_allclose(found, normal(x, scale), atol=4e-3)
    made = [
        value
        for step in compiled.latest.lowered.steps
        for value in step.made
        if np.prod(value.shape) == x.numel()
    ]
    assert [value.dtype.name for value in made] == ["float16"]  # and none in float32

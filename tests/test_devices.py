"""Devices as objects: a toy device with its own kernels, and clear refusals."""

import numpy as np
import pytest

import weft
from weft.core.op import find_op
from weft.device import Device, cpu, register_device, unregister_device


class Buffer:
    """What the toy device stores: doubles, counted, with no NumPy interface."""

    def __init__(self, values, shape, dtype):
        self.values, self.shape, self.dtype = list(values), shape, dtype
        self.ndim = len(shape)


def to_toy(array):
    return Buffer(array.ravel().tolist(), array.shape, array.dtype)


def to_host(buffer):
    return np.array(buffer.values, buffer.dtype).reshape(buffer.shape)


def elementwise(fn):
    def kernel(x, y):
        ys = y.values if isinstance(y, Buffer) else [y] * len(x.values)
        return Buffer(map(fn, x.values, ys), x.shape, x.dtype)

    return kernel


@pytest.fixture
def toy():
    kernels = {
        "add": elementwise(lambda a, b: a + b),
        "mul": elementwise(lambda a, b: a * b),
        "absorb": elementwise(lambda a, b: a * b),
    }
    yield register_device(Device("toy:0", kernels, from_host=to_toy, to_host=to_host))
    unregister_device("toy:0")


def test_registry(toy):
    assert weft.device("toy:0") is toy
    assert toy in weft.devices()
    assert (toy.type, toy.index, cpu.index) == ("toy", 0, None)
    assert weft.device("cpu") is weft.device("cpu:0") is cpu


def test_unknown_device_says_what_is_available():
    with pytest.raises(
        RuntimeError, match=r"'cuda' is not available; available: 'cpu'"
    ):
        weft.zeros(2, device="cuda")


def test_round_trip_is_exact(toy):
    x = weft.tensor([[1.5, 2.5], [3.0, -1.0]])
    there = x.to("toy:0")
    assert there.device is toy
    assert there.shape == (2, 2)
    assert there.dtype is weft.float32
    assert weft.equal(there.cpu(), x)
    assert "device='toy:0'" in repr(there)
    assert x.to("cpu") is x


def test_kernels_run_there_and_gradients_flow(toy):
    x = weft.tensor([1.0, 2.0]).to("toy:0").requires_grad_()
    y = (x * x + x) * 2
    assert y.device is toy
    assert y.detach().cpu().tolist() == [4.0, 12.0]
    y.backward(gradient=weft.ones(2).to("toy:0"))
    assert x.grad.device is toy
    assert x.grad.cpu().tolist() == [6.0, 10.0]


def test_missing_kernel_lists_what_exists(toy):
    x = weft.ones(2).to(toy)
    with pytest.raises(
        RuntimeError, match=r"sin: no kernel.*'toy:0'.*absorb, add, mul"
    ):
        x.sin()


def test_two_devices_never_meet_silently(toy):
    with pytest.raises(RuntimeError, match=r"add: .*'cpu' and 'toy:0'.*\.to\('cpu'\)"):
        weft.ones(2) + weft.ones(2).to(toy)


def test_numpy_needs_the_host(toy):
    x = weft.ones(2).to(toy)
    with pytest.raises(RuntimeError, match=r"'toy:0'.*\.cpu\(\)"):
        x.numpy()
    assert x.tolist() == [1.0, 1.0]


def test_a_kernel_can_replace_the_cpu_evaluation():
    record = find_op("square")
    calls = []

    def kernel(x):
        calls.append(x.shape)
        return x * x

    cpu.register_kernel("square", kernel)
    try:
        assert record.kernel is kernel
        assert weft.square(weft.tensor([3.0])).item() == 9.0
    finally:
        cpu.register_kernel("square", record.eval)
    assert calls == [(1,)]


def test_the_cpu_stays():
    with pytest.raises(RuntimeError, match="cannot be unregistered"):
        unregister_device("cpu")


def test_in_place_operators_change_the_value_there(toy):
    x = weft.tensor([1.0, 2.0]).to(toy)
    x += x
    x.mul_(x)
    assert x.cpu().tolist() == [4.0, 16.0]
    with pytest.raises(RuntimeError, match=r"'toy:0'"):
        x.copy_(weft.ones(2))

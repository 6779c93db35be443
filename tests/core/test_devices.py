"""Devices as objects: a toy device with its own kernels, and clear refusals."""

import copy
import pickle

import numpy as np
import pytest

import weft
from weft.core.device import Device, cpu, register_device, unregister_device
from weft.core.op import find_op


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


class Slow(Device):
    """A device that can change its memory, and whose views are copies."""

    def write(self, target, source):
        target.values[:] = source.values


@pytest.fixture
def toy():
    kernels = {
        "add": elementwise(lambda a, b: a + b),
        "mul": elementwise(lambda a, b: a * b),
        "absorb": elementwise(lambda a, b: a * b),
    }
    yield register_device(Slow("toy:0", kernels, from_host=to_toy, to_host=to_host))
    unregister_device("toy:0")


def test_registry(toy):
    assert weft.device("toy:0") is toy
    assert toy in weft.devices()
    assert (toy.type, toy.index, cpu.index) == ("toy", 0, None)
    assert weft.device("cpu") is weft.device("cpu:0") is weft.device("cpu", 0) is cpu
    assert weft.device("toy") is weft.device("toy", 0) is weft.device(toy) is toy
    assert isinstance(toy, weft.device)
    assert not isinstance("cpu", weft.device)


def test_text_and_comparison(toy):
    assert (str(cpu), repr(cpu)) == ("cpu", "device(type='cpu')")
    assert (str(toy), repr(toy)) == ("toy:0", "device(type='toy', index=0)")
    for device in (cpu, toy):
        assert weft.zeros(1, device=str(device)).device is device
        assert eval(repr(device), {"device": weft.device}) is device
        assert copy.deepcopy(device) is pickle.loads(pickle.dumps(device)) is device
    assert cpu == weft.device("cpu") != toy
    assert len({cpu, weft.device("cpu"), toy}) == 2


def test_unknown_device_says_what_is_available():
    with pytest.raises(
        RuntimeError, match=r"'cuda' is not available; available: 'cpu'"
    ):
        weft.zeros(2, device="cuda")
    for given in ("cpu:1", "", 0, None):
        with pytest.raises(RuntimeError, match="is not available"):
            weft.device(given)
    with pytest.raises(RuntimeError, match="'cpu:3' is not available"):
        weft.device("cpu", 3)


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
    assert x.detach() is not x
    assert x.copy_(weft.ones(2)).tolist() == [1.0, 1.0]


def test_views_that_are_copies_are_not_changed_in_place(toy):
    toy.register_kernel("slice", lambda x, index: Buffer(x.values[:1], (1,), x.dtype))
    x = weft.tensor([1.0, 2.0]).to(toy)
    view = x[:1]
    for tensor in (view, x):
        with pytest.raises(RuntimeError, match="views on 'toy:0' are copies"):
            tensor.mul_(tensor)
    del view, tensor
    assert x.mul_(x).tolist() == [1.0, 4.0]


def test_a_device_without_write_says_so():
    device = register_device(Device("fixed", {"add": elementwise(float.__add__)},
                                    from_host=to_toy, to_host=to_host))  # fmt: skip
    try:
        x = weft.ones(2).to(device)
        with pytest.raises(RuntimeError, match=r"'fixed' cannot.*defines no write"):
            x.add_(x)
    finally:
        unregister_device("fixed")

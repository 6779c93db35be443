"""GPUs: every operator, networks that train, errors; on a simulated one and a real one.

The simulation (``support/simulated_gpu.py``) is everything but the driver and the chip.
Tests on a real GPU skip where there is none.
"""

import numpy as np
import pytest
from on_device import check_compiled, rounding, same, train
from simulated_gpu import simulated_gpu

import weft
from weft import nn, optim
from weft.compile.program.steps import HostCall
from weft.core.op import all_ops, find_op
from weft.errors import ArgumentError
from weft.runtime.device_memory import DeviceArray

NAMES = [op.name for op in all_ops()]


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_compiled(name, gpu, rng):
    check_compiled(find_op(name), gpu, rng, rounding)


def test_layouts_of_views_are_known(gpu):
    x = weft.arange(6.0, device=gpu).reshape(2, 3)
    x.t().contiguous().zero_()
    assert x.cpu().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.contiguous() is x
    assert x[1].storage_offset() == 3
    assert x[1].as_strided((2,), (1,)).cpu().tolist() == [3, 4]
    assert x.t().as_strided((3,), (2,)).cpu().tolist() == [0, 2, 4]
    with pytest.raises(ArgumentError, match="even offset"):
        weft.view_as_complex(x.reshape(-1)[1:3])


@pytest.mark.parametrize("compiled", [False, True])
def test_a_network_trains(gpu, compiled):
    want, _ = train("cpu", compiled=False, dropout=0.1)
    assert want[-1] < want[0]
    found, step = train(gpu, compiled, dropout=0.1)
    np.testing.assert_allclose(found, want, rtol=1e-5)
    if compiled:
        steps = step.latest.lowered.steps
        assert not any(isinstance(one, HostCall) for one in steps)


@pytest.mark.cuda
def test_two_hundred_steps_have_the_losses_of_the_cpu():
    want, _ = train("cpu", compiled=True, steps=200)
    found = [train("cuda", compiled=True, steps=200)[0] for _ in range(2)]
    np.testing.assert_allclose(found[0], want, rtol=2e-3, atol=1e-5)
    assert found[0] == found[1]  # the same bits in every run


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_libraries_share_memory_by_dlpack(dtype):
    x = weft.arange(6.0).reshape(2, 3).to(getattr(weft, dtype)).cuda()
    same = weft.from_dlpack(x.T)
    assert (same.device, same.shape) == (x.device, (3, 2))
    same[2, 1] = 40
    assert x[1, 2] == 40
    torch = pytest.importorskip("torch")
    theirs = torch.from_dlpack(x)
    theirs[0, 0] = 50
    assert x[0, 0].item() == 50
    back = weft.from_dlpack(theirs.T)
    assert back._data.address == x._data.address
    assert back.cpu().tolist() == x.T.cpu().tolist()


@pytest.mark.cuda
def test_products_in_tf32_are_asked_for():
    x = weft.randn(256, 256)
    exact, y = x.double() @ x.double(), x.cuda()
    product = weft.compile(lambda y: y @ y)

    def far():
        return (product(y).cpu().double() - exact).abs().max().item()

    full = [far() for _ in range(3)]
    weft.backends.cuda.matmul.allow_tf32 = True
    try:
        assert weft.get_float32_matmul_precision() == "high"
        short = far()
    finally:
        weft.set_float32_matmul_precision("highest")
    assert max(full) < 1e-4 < short < 0.1
    assert far() == full[0]


def test_views_share_memory(gpu):
    x = weft.arange(12.0).reshape(3, 4).to(gpu)
    x[1].add_(10)
    x.T[0, 2] = 7
    x[:, ::2].mul_(2)
    want = weft.arange(12.0).reshape(3, 4)
    want[1].add_(10)
    want.T[0, 2] = 7
    want[:, ::2].mul_(2)
    same([x], [want], gpu)
    assert isinstance(x._data, DeviceArray)


def test_state_is_written_in_place(gpu):
    state = weft.zeros(3).to(gpu)
    before = state._data.address

    @weft.compile
    def step(x):
        state.add_(x)
        x.mul_(2)
        return state * 10

    x = weft.ones(3).to(gpu)
    out = [step(x).cpu().tolist() for _ in range(2)]
    assert out == [[10.0] * 3, [30.0] * 3]
    assert (x.cpu().tolist(), state.cpu().tolist()) == ([4.0] * 3, [3.0] * 3)
    assert state._data.address == before


def test_a_step_without_arguments(gpu):
    state, more = weft.zeros(3).to(gpu), weft.ones(3).to(gpu)
    step = weft.compile(lambda: state.add_(more).sum())
    assert [step().item() for _ in range(4)] == [3.0, 6.0, 9.0, 12.0]


@pytest.mark.parametrize("compiled", [False, True])
def test_an_index_out_of_range_changes_nothing(gpu, compiled):
    table, rows = weft.randn(4, 2).to(gpu), weft.tensor([0, 9]).to(gpu)
    total = weft.zeros(2).to(gpu)

    def add(rows):
        total.add_(table[rows].sum(0))

    step = weft.compile(add) if compiled else add
    with pytest.raises(IndexError, match="9"):
        step(rows)
    assert total.cpu().tolist() == [0.0, 0.0]
    step(weft.tensor([0, 1]).to(gpu))  # the device is usable afterwards
    same([total], [table.cpu()[:2].sum(0)], gpu, close=1e-6)


def test_random_numbers_have_the_bits_of_the_cpu(gpu):
    weft.manual_seed(3)
    want = weft.rand(100), weft.randn(50), weft.randint(0, 9, (40,))
    weft.manual_seed(3)
    found = (weft.rand(100, device=gpu), weft.randn(50, device=gpu),
             weft.randint(0, 9, (40,), device=gpu))  # fmt: skip
    assert (found[0].cpu() == want[0]).all()
    assert (found[2].cpu() == want[2]).all()
    same([found[1]], [want[1]], gpu, close=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_autocast_is_for_one_type_of_device(gpu, compiled):
    net = nn.Linear(4, 3).to(gpu)
    x, here = weft.randn(2, 4).to(gpu), weft.randn(4, 4)
    run = weft.compile(net) if compiled else net
    with weft.autocast(gpu.type, dtype=weft.bfloat16):
        assert run(x).dtype is weft.bfloat16
        assert (here @ here).dtype is weft.float32
    with weft.autocast("cpu", dtype=weft.bfloat16):
        assert run(x).dtype is weft.float32
    assert run(x).dtype is weft.float32


def test_memory_of_other_libraries(gpu):
    other = weft.arange(6.0).reshape(2, 3).to(gpu)

    class Foreign:
        __cuda_array_interface__ = {
            "shape": (3, 2), "typestr": "<f4", "strides": (4, 12), "version": 3,
            "data": (other._data.address, False),
        }  # fmt: skip

    array = gpu.pool.over(Foreign.__cuda_array_interface__, Foreign())
    x = weft.Tensor.on_device(array, gpu)
    same([x * 2], [other.cpu().T * 2], gpu)
    x[0].add_(10)
    assert other.cpu()[:, 0].tolist() == [10.0, 13.0]


@pytest.mark.cuda
def test_other_libraries_share_memory():
    cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")
    x = weft.arange(6.0).reshape(2, 3).cuda()
    theirs = cupy.asarray(x)
    theirs += 1
    cupy.cuda.runtime.deviceSynchronize()
    assert x.cpu().tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    y = torch.arange(4.0).cuda()
    z = weft.as_tensor(y)
    z.mul_(2)
    weft.cuda.synchronize()
    assert y.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_memory_returns_to_zero(gpu):
    import gc

    gc.collect()
    before = gpu.pool.allocated
    x = weft.randn(1000, 100).to(gpu)
    held = gpu.pool.allocated
    assert held >= before + x.nbytes
    y = x @ x.T
    del x, y
    gc.collect()
    assert gpu.pool.allocated <= before + (1 << 16)  # arenas of small programs
    gpu.pool.release()
    assert gpu.pool.reserved == gpu.pool.allocated


def test_tensors_of_two_devices_are_refused(gpu):
    with pytest.raises(weft.errors.DeviceError, match="one device"):
        weft.ones(2).to(gpu) + weft.ones(2)


def test_out_of_memory_names_the_largest_holders():
    gpu = weft.register_device(simulated_gpu(capacity=5 << 20))
    try:
        held = weft.zeros(1 << 19).to(gpu)  # 2 MiB
        with pytest.raises(
            weft.cuda.OutOfMemoryError, match=r"2\.0 MiB made at .*test_gpu"
        ):
            weft.zeros(1 << 20).to(gpu)
        assert (held + 1).cpu()[0] == 1  # usable afterwards
    finally:
        weft.unregister_device("gpu:0")


def test_steps_are_timed_in_memory_of_their_own(gpu):
    net = nn.Linear(8, 4).to(gpu)
    weights = net.weight.detach().cpu().numpy()
    sgd = optim.SGD(net.parameters(), lr=0.5)

    @weft.compile
    def step(x):
        sgd.zero_grad()
        loss = net(x.T).square().sum()
        loss.backward()
        sgd.step()
        return loss

    step(weft.ones(8, 2, device=gpu))
    after = net.weight.detach().cpu().numpy()
    assert np.abs(after - weights).max() > 0
    about = step.explain(measure=True)
    assert not about.program.problem
    assert about.program.seconds > 0
    np.testing.assert_array_equal(net.weight.detach().cpu().numpy(), after)


@pytest.mark.parametrize("index", [np.s_[:], np.s_[1:, ::-1, 2], np.s_[::2, :0]])
def test_copies_of_memory_keep_strides(gpu, rng, index):
    x = rng.standard_normal((3, 4, 5))
    whole = gpu.pool.from_host(x)
    view = whole.seen(whole.outline[index])
    copy = view.copy()
    assert copy.strides == view.strides
    assert not np.may_share_memory(copy.outline, whole.outline)
    packed = gpu.copy(copy)  # row by row
    np.testing.assert_array_equal(gpu.pool.to_host(packed), x[index])

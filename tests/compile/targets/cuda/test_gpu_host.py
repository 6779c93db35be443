"""What the host does in a call: little, and nothing that waits for the GPU."""

import numpy as np
import pytest
from simulated_gpu import SimulatedRuntime, simulated_gpu

import weft
from weft import nn, optim
from weft.compile.frontend.fast_path.device_path import DevicePath
from weft.compile.targets.cuda.device import AcceleratorDevice
from weft.runtime.device_memory import HostWord

F = nn.functional


@pytest.fixture
def gpu():
    yield weft.register_device(simulated_gpu())
    weft.unregister_device("gpu:0")


def noted(monkeypatch):
    """The names of the runtime's calls from now on; launches are recorded."""
    names = []

    def note(name):
        own = getattr(SimulatedRuntime, name)

        def call(*args):
            names.append(name)
            return own(*args)

        return call

    for name in ("upload", "download", "wait", "copy", "clear", "allocate"):
        monkeypatch.setattr(SimulatedRuntime, name, note(name))

    def recorded(runtime, run):
        names.append("record")

        def again():
            names.append("again")
            run()

        return again

    monkeypatch.setattr(SimulatedRuntime, "recorded", recorded)
    return names


def training(gpu, kind=optim.Adam):
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(gpu)
    optimizer = kind(net.parameters(), lr=0.1)
    x, y = weft.randn(8, 4).to(gpu), weft.arange(8).to(gpu) % 3

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return net, optimizer, step, (x, y)


def test_a_step_waits_for_its_checks_alone(gpu, monkeypatch):
    _, optimizer, step, data = training(gpu)
    compiled = weft.compile(step)
    compiled(*data)
    calls = noted(monkeypatch)
    for _ in range(5):
        compiled(*data)
    calls.clear()
    compiled(*data)
    # the count of steps goes to the device, and no value comes back
    assert calls == ["upload", "again", "wait", "again"]
    assert {state["step"] for state in optimizer.state.values()} == {7}


def test_recordings_serve_where_all_results_are_kept(gpu, monkeypatch):
    _, _, step, (x, y) = training(gpu)
    compiled = weft.compile(step)
    losses = [compiled(x, y)]
    calls = noted(monkeypatch)
    kept = [weft.randn(8, 4).to(gpu) for _ in range(60)]
    losses += [compiled(one, y) for one in kept]
    calls.clear()
    losses.append(compiled(x, y))
    assert calls.count("again") == 2
    assert calls.count("copy") == 3  # of x, y and the loss
    _, _, step, _ = training(gpu)
    want = [step(one, y).item() for one in (x, *kept, x)]
    np.testing.assert_allclose([one.item() for one in losses], want, rtol=1e-4)


def test_steps_with_a_fast_path_have_the_losses_of_eager_ones(gpu):
    found = []
    for compile in (weft.compile, lambda step: step):
        net, optimizer, step, data = training(gpu)
        run = compile(step)
        losses = [run(*data).item() for _ in range(4)]
        optimizer.param_groups[0]["lr"] = 0.01
        losses += [run(*data).item() for _ in range(3)]
        with weft.no_grad():
            net[0].weight.mul_(0.5)
        losses += [run(*data).item() for _ in range(3)]
        losses.append(run(data[0][:4], data[1][:4]).item())
        found.append(losses)
        if run is not step:
            assert len(run.compiles) <= 2
            assert {state["step"] for state in optimizer.state.values()} == {11}
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_a_fast_path_is_left_where_something_changes(gpu):
    scale = [2.0]
    weight = weft.ones(4).to(gpu)
    program = weft.compile(lambda x: x * weight * scale[0])
    x = weft.arange(4.0).to(gpu)
    for _ in range(3):
        program(x)
    assert type(program._fast_path) is DevicePath
    assert program(x).tolist() == [0, 2, 4, 6]
    assert program(x.flip(0).flip(0)).tolist() == [0, 2, 4, 6]
    scale[0] = 3.0
    assert program(x).tolist() == [0, 3, 6, 9]
    weight.data = weft.zeros(4).to(gpu)
    assert program(x).tolist() == [0, 0, 0, 0]
    assert program(weft.ones(4)[:1].to(gpu).expand(4)).tolist() == [0, 0, 0, 0]
    with pytest.raises(weft.errors.WeftError):
        program(weft.ones(4))


def test_gradients_keep_their_memory_while_nobody_else_has_it(gpu):
    net, _, step, data = training(gpu, optim.SGD)
    compiled = weft.compile(step)
    for _ in range(3):
        compiled(*data)
    weight = net[0].weight
    before = weight.grad._data.address
    compiled(*data)
    assert weight.grad._data.address == before
    for keep in (lambda g: g, lambda g: g[1:], lambda g: g.detach()):
        kept = keep(weight.grad)
        values = kept.tolist()
        compiled(*data)
        assert kept.tolist() == values != keep(weight.grad).tolist()
        del kept


def test_operators_that_were_run_before_are_launched_at_once(gpu, monkeypatch):
    x = weft.randn(4, 4).to(gpu).requires_grad_()
    row = weft.randn(4).to(gpu)
    cases = [
        lambda: x + x, lambda: x * 2.0, lambda: 1 - x, lambda: x.exp(),
        lambda: x.sum(1), lambda: x.sum(), lambda: x.softmax(1), lambda: x + row,
        lambda: x.T + 1.0, lambda: x @ x, lambda: x > 0,
    ]  # fmt: skip
    first = [case() for case in cases]
    (x * x).sum().backward()
    monkeypatch.setattr(AcceleratorDevice, "_run_program", None)
    for case, before in zip(cases, first, strict=True):
        now = case()
        assert now.tolist() == before.tolist()
        assert (now.grad_fn is None) == (before.grad_fn is None)
    before, x.grad = x.grad, None
    (x * x).sum().backward()
    assert x.grad.tolist() == before.tolist()


def test_arrays_that_begin_anywhere_take_the_slow_way(gpu):
    x = weft.arange(9.0).to(gpu)
    assert [(x[k : k + 4] + 1.0).tolist() for k in (0, 4, 1)] == [
        [1, 2, 3, 4], [5, 6, 7, 8], [2, 3, 4, 5]
    ]  # fmt: skip


def test_operators_of_two_devices_are_refused_at_any_call(gpu):
    x = weft.ones(3).to(gpu)
    for _ in range(2):
        assert (x + x).tolist() == [2, 2, 2]
        with pytest.raises(weft.errors.DeviceError, match="one device"):
            x + weft.ones(3)


def test_words_of_the_host_are_used_again(gpu):
    x, at = weft.arange(4.0).to(gpu), weft.tensor([1, 3]).to(gpu)
    program = weft.compile(lambda x, at: x[at])
    assert program(x, at).tolist() == [1, 3]
    for _ in range(3):
        with pytest.raises(IndexError):
            program(x, at + 2)
        assert program(x, at).tolist() == [1, 3]
    address = HostWord(gpu.pool).address
    word = HostWord(gpu.pool)
    assert word.address == address
    assert HostWord(gpu.pool).address != address


def test_long_chains_of_groups_compile_in_time_and_depth(gpu):
    """Each value has many ways from the first one, and is far away from it."""

    def chain(y):
        for _ in range(150):
            y = (y - y.mean()) * y + y * (y * y).sum(0)
        return y * 0 + 1

    graph = weft.graph.capture(chain, weft.ones(4, 8)).graph
    assert len(graph.nodes) > 900
    assert weft.compile(chain)(weft.zeros(4, 8).to(gpu)).tolist() == [[1.0] * 8] * 4

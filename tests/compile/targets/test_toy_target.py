"""A target in one file: the interpreter of loops as a device.

Every operator runs there, eagerly and in compiled programs, forward and backward, and
a network trains: so nothing outside of a target knows which machine it is.
"""

import pathlib

import numpy as np
import pytest
import toy_target
from on_device import check_compiled, rounding, runs, same, small, train
from toy_target import Buffer, LoopDevice, LoopTarget

import weft
from weft.compile.program.steps import KernelLaunch
from weft.compile.targets import Target
from weft.core.op import all_ops, find_op


@pytest.fixture(scope="module")
def loops():
    yield weft.register_device(LoopDevice())
    weft.unregister_device("loops:0")


def test_the_target_is_complete_and_short():
    public = [name for name in vars(Target) if not name.startswith("_")]
    assert all(hasattr(LoopTarget, name) for name in public)
    lines = pathlib.Path(toy_target.__file__).read_text().splitlines()
    assert len(lines) < 300


@pytest.mark.parametrize("name", [op.name for op in all_ops()])
def test_every_operator_eagerly(name, loops, rng):
    op = find_op(name)
    for sample in filter(small, op.samples(rng)):
        with np.errstate(all="ignore"):
            there, here = runs(op, sample, loops), runs(op, sample, "cpu")
        same(there, here, loops, close=1e-12)


@pytest.mark.parametrize("name", [op.name for op in all_ops()])
def test_every_operator_compiled(name, loops, rng):
    check_compiled(find_op(name), loops, rng, rounding)


def test_kernels_of_loops_do_the_work(loops):
    step = weft.compile(lambda x: (x.exp() / x.exp().sum(1, keepdim=True)).log())
    x = weft.randn(3, 4).to(loops)
    same(step(x), step.fn(x.cpu()), loops, close=1e-6)
    lowered = step.latest.lowered
    assert lowered.target is loops.target
    assert all(isinstance(one, KernelLaunch) for one in lowered.steps)
    assert isinstance(step(x)._data, Buffer)


def test_a_network_trains_there_eagerly_and_compiled(loops):
    want, _ = train("cpu", compiled=False, dropout=0.1)
    assert want[-1] < want[0]
    for compiled in (False, True):
        losses, _ = train(loops, compiled, dropout=0.1)
        np.testing.assert_allclose(losses, want, rtol=1e-5)


def test_compiled_functions_are_part_of_the_tape(loops):
    x = weft.randn(5, dtype=weft.float64).to(loops).requires_grad_()
    f = weft.compile(lambda x: ((x * x).sin(), x.exp()))
    f(x)[0].sum().backward()
    want = (2 * x * (x * x).cos()).detach()
    same([x.grad], [want.cpu()], loops, close=1e-12)


def test_changed_arguments_and_state(loops):
    state = weft.zeros(3).to(loops)

    @weft.compile
    def step(x):
        state.add_(x)
        x.mul_(2)
        return state * 10

    x = weft.ones(3).to(loops)
    out = [step(x).cpu().tolist() for _ in range(2)]
    assert out == [[10.0] * 3, [30.0] * 3]
    assert x.cpu().tolist() == [4.0] * 3
    assert state.cpu().tolist() == [3.0] * 3


def test_an_index_out_of_range_is_refused_at_the_line(loops):
    table, rows = weft.randn(4, 2).to(loops), weft.tensor([0, 9]).to(loops)
    take = weft.compile(lambda t, k: t[k])
    with pytest.raises(IndexError, match="9"):
        take(table, rows)


def test_devices_are_not_mixed(loops):
    add = weft.compile(lambda a, b: a + b)
    with pytest.raises(weft.errors.DeviceError, match=r"one device, got 'a'.*'b'"):
        add(weft.ones(2).to(loops), weft.ones(2))
    outside = weft.ones(2)
    with pytest.raises(weft.errors.DeviceError, match="one device"):
        weft.compile(lambda a: a + outside)(weft.ones(2).to(loops))


def test_the_device_is_known_inside(loops):
    @weft.compile
    def f(x):
        assert x.device is loops
        return x + weft.ones(2, device=x.device) + weft.zeros_like(x)

    same(f(weft.ones(2).to(loops)), weft.full((2,), 2.0), loops)
    assert f.fn is not None


@pytest.mark.parametrize(
    "options",
    [{"verify": True}, {"memory": "recompute"}, {"dynamic": True}, {"memory": "1MB"}],
    ids=str,
)
def test_options_of_compile_hold_there(loops, options):
    x = weft.randn(3, 4).to(loops)
    f = weft.compile(lambda x: (x * 2 + 1).tanh().sum(1), **options)
    for given in (x, x[:2] * 1):
        same(f(given), f.fn(given.cpu()), loops, close=1e-6)


def test_tuning_is_for_the_cpu(loops):
    with pytest.raises(weft.errors.ArgumentError, match="leave tune out"):
        weft.compile(lambda x: x * 2, tune=1.0)(weft.ones(3).to(loops))

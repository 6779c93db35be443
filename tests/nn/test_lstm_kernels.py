"""An LSTM over whole sequences by kernels of its own: as one step after the other."""

import gc

import numpy as np
import pytest

import weft
from weft import nn
from weft.compile import eager
from weft.runtime.cpu import buffers
from weft.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def used(monkeypatch):
    """How often the kernels were used."""
    found = []
    real = eager.lstm

    def watched(*args):
        out = real(*args)
        found.append(out is not None)
        return out

    monkeypatch.setattr(eager, "lstm", watched)
    monkeypatch.setattr(weft.config, "eager_kernels", True)
    weft.manual_seed(0)
    return found


def normal(*shape, seed=0):
    return weft.tensor(np.random.default_rng(seed).normal(size=shape))


WAYS = {
    "plain": {},
    "without bias": {"bias": False},
    "batch first": {"batch_first": True},
    "layers": {"num_layers": 2},
    "both ways": {"bidirectional": True, "num_layers": 2},
}


def gradients(net, x, state=None, wanted=lambda out, h, c: (out, h, c)):
    """The results and all gradients, in double precision."""
    leaves = [x, *(state or ())]
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    net.zero_grad()
    out, (h, c) = net(leaves[0], tuple(leaves[1:]) or None)
    parts = wanted(out, h, c)
    sum((p * normal(*p.shape, seed=k)).sum() for k, p in enumerate(parts)).backward()
    found = [*parts, *[leaf.grad for leaf in leaves if leaf.grad is not None]]
    return [t.detach().numpy() for t in [*found, *[p.grad for p in net.parameters()]]]


def composed(fn, *args):
    with weft.config.using(eager_kernels=False):
        return fn(*args)


@pytest.mark.parametrize("way", WAYS)
def test_results_and_gradients_are_those_of_single_steps(way, used):
    net = nn.LSTM(9, 32, dtype=weft.float64, **WAYS[way])
    x = normal(17, 16, 9)
    want = composed(gradients, net, x)
    assert not used
    got = gradients(net, x)
    assert used == [True] * len(used) != []
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_a_state_that_is_given_gets_gradients(used):
    net = nn.LSTM(9, 32, dtype=weft.float64)
    x, state = normal(17, 16, 9), (normal(1, 16, 32), normal(1, 16, 32, seed=1))
    for wanted in (lambda out, h, c: (out,), lambda out, h, c: (c,)):
        want = composed(gradients, net, x, state, wanted)
        for a, b in zip(gradients(net, x, state, wanted), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    assert used


def second(net, x):
    x = x.detach().requires_grad_()
    out, _ = net(x)
    (g,) = weft.autograd.grad((out * out).sum(), x, create_graph=True)
    (h,) = weft.autograd.grad((g * g).sum(), x)
    return h.numpy()


def test_second_derivatives(used):
    net, x = nn.LSTM(9, 32, dtype=weft.float64), normal(17, 16, 9)
    want = composed(second, net, x)
    np.testing.assert_allclose(second(net, x), want, rtol=1e-9, atol=1e-9)
    assert used


def test_the_tape_may_be_used_twice():
    net, x = nn.LSTM(9, 32, dtype=weft.float64), normal(17, 16, 9)
    loss = net(x)[0].square().sum()
    loss.backward(retain_graph=True)
    first = [p.grad.numpy().copy() for p in net.parameters()]
    net.zero_grad()
    loss.backward()
    for p, want in zip(net.parameters(), first, strict=True):
        np.testing.assert_array_equal(p.grad.numpy(), want)


def test_outputs_that_are_changed_in_place_change_no_gradient():
    net, x = nn.LSTM(9, 32, dtype=weft.float64), normal(17, 16, 9)
    found = []
    for change in (lambda out: out * 2, lambda out: out.mul_(2)):
        net.zero_grad()
        change(net(x)[0]).sum().backward()
        found.append([p.grad.numpy().copy() for p in net.parameters()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_checkpoints(used):
    net, x = nn.LSTM(9, 32, dtype=weft.float64), normal(17, 16, 9)
    net(x)[0].square().sum().backward()
    want = [p.grad.numpy().copy() for p in net.parameters()]
    net.zero_grad()
    checkpoint(lambda x: net(x)[0], x).square().sum().backward()
    for p, right in zip(net.parameters(), want, strict=True):
        np.testing.assert_array_equal(p.grad.numpy(), right)
    assert len(used) == 3


def test_the_number_of_threads_changes_no_bit():
    net, x = nn.LSTM(9, 32, dtype=weft.float64), normal(17, 16, 9)
    before, found = weft.get_num_threads(), []
    for threads in (1, 2, 4):
        weft.set_num_threads(threads)
        found.append([a.tobytes() for a in gradients(net, x)])
    weft.set_num_threads(before)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("backward", [False, True])
def test_what_steps_leave_is_let_go_of_at_once(backward):
    net, x = nn.LSTM(9, 64), normal(40, 128, 9).to(weft.float32)
    net(x)
    gc.collect()
    gc.disable()
    try:
        before = buffers.pool_bytes().used
        out, _ = net(x)
        assert buffers.pool_bytes().used > before + 8e6
        if backward:
            out.sum().backward()
        else:
            del out, _
        assert buffers.pool_bytes().used <= before + 2e6  # the outputs
    finally:
        gc.enable()


def test_others_take_single_steps(used):
    x = normal(17, 16, 9)
    nn.LSTM(9, 32, proj_size=8, dtype=weft.float64)(x)
    nn.LSTM(9, 32, dtype=weft.float64)(x[:, :1])
    nn.LSTM(9, 32, dtype=weft.float64)(x[:2, :4])
    packed = nn.utils.rnn.pack_padded_sequence(x, [17] * 8 + [9] * 8)
    nn.LSTM(9, 32, dtype=weft.float64)(packed)
    net = nn.LSTM(9, 32, dtype=weft.float64)
    weft.graph.capture(lambda x: net(x)[0], x)
    with weft.config.using(batch_invariant=True):
        net(x)
    assert not used

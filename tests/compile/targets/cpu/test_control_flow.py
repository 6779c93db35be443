"""Branches and loops that run natively, with nothing of Python between iterations."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import weft
from weft import nn
from weft.compile.program.steps import HostCall
from weft.compile.targets.cpu.control_flow.call import ControlFlow
from weft.errors import ArgumentError, OutOfRangeError
from weft.func import grad

F64 = weft.float64


def f64(*shape):
    return weft.randn(*shape, dtype=F64)


def steps_of(compiled):
    return compiled.latest.program.lowered.steps


def same(got, want, tolerance=1e-10):
    for a, b in zip(*(weft.tree_flatten(x)[0] for x in (got, want)), strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_allclose(
            a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance
        )


def check(fn, *args, native=True, tolerance=1e-10):
    """The compiled function gives the eager results, twice, and calls no Python."""
    compiled = weft.compile(fn)
    for _ in range(2):
        same(compiled(*args), fn(*args), tolerance)
    called = [s for s in steps_of(compiled) if isinstance(s, HostCall)]
    assert bool(called) != native, called
    return compiled


# -- values that are carried


def fibonacci(n):
    return weft.fori_loop(0, n, lambda i, ab: (ab[1], ab[0] + ab[1]), (0, 1))


def rotated(x):
    """Carries that change places, stay as they are, and are given twice."""

    def step(carry, row):
        a, b, c, d = carry
        return (b, c, a + row, d), (a, a, row, d, a.T)

    return weft.scan(step, (x, x * 2, x * 3, x * 4), weft.stack([x, x + 1, x - 1]))


def constants(x):
    """Outputs that are the same whatever comes in."""
    one = weft.ones(2, 2, dtype=F64)
    return weft.scan(lambda c, r: (one, (one * 3, c[0])), x, weft.stack([x, x]))


def several_types(x):
    def step(carry, k):
        i, b, h = carry
        return (i + k, b ^ (k > 1), (h * 1.5).to(weft.float16)), (b, i.to(weft.int8))

    start = (0, weft.tensor(False), x.to(weft.float16))
    return weft.scan(step, start, weft.arange(4))


def nested(x):
    def outer(c, r):
        v, _ = weft.while_loop(
            lambda v, k: k < 3, lambda v, k: (v / 2 + r, k + 1), (c, 0)
        )
        return weft.cond(v.sum() > 0, lambda v: v.sin(), lambda v: v - 1, (v,)), v

    inner = lambda x: weft.scan(outer, x[0], x)
    return weft.scan(lambda c, k: (inner(c)[1] * 0.5, k), x, weft.arange(3))


def filled(x):
    """Elements of a carry are written one after the other, where it is."""

    def body(buffer, k):
        buffer = buffer.clone()
        buffer[k] = x[k] * 2
        return buffer, k + 1

    return weft.while_loop(lambda b, k: k < 3, body, (x * 0, 0))


def filled_and_read(x):
    """The old buffer is read beside the new one, which is therefore a copy."""

    def body(buffer, total, k):
        new = buffer.clone()
        new[k] = x[k] * 2
        return new, total + buffer.sum() + new[0, 0], k + 1

    return weft.while_loop(
        lambda b, t, k: k < 3, body, (x * 1, weft.zeros((), dtype=F64), 0)
    )


def invariant(x):
    """A part of the body depends on nothing that changes."""
    w = weft.ones(2, 2, dtype=F64)
    return weft.scan(
        lambda c, r: ((c @ (w @ w).exp() + r).tanh(), c), x, weft.stack([x] * 4)
    )


def reversed_scan(x):
    rows = weft.stack([x, x * 2, x * 3])
    return weft.scan(lambda c, r: (c * r, c + r), x, rows, reverse=True)


PROGRAMS = (
    rotated, constants, several_types, nested, filled, filled_and_read, invariant,
    reversed_scan,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_loops_give_what_they_give_eagerly(program):
    weft.manual_seed(0)
    check(program, f64(3, 3) if "filled" in program.__name__ else f64(2, 2))


def test_what_stays_in_place_takes_no_copy():
    compiled = check(filled, f64(3, 3))
    (loop,) = [s for s in steps_of(compiled) if isinstance(s, ControlFlow)]
    (body,) = loop.node.params["body"].cache.native.values()
    assert list(body.lowered.aliasing.carried.values()) == [
        body.lowered.graph.inputs[1]
    ]
    compiled = check(filled_and_read, f64(3, 3))
    (loop,) = [s for s in steps_of(compiled) if isinstance(s, ControlFlow)]
    (body,) = loop.node.params["body"].cache.native.values()
    assert not body.lowered.aliasing.carried


def test_what_does_not_change_is_computed_once():
    compiled = check(invariant, f64(2, 2))
    (loop,) = [s for s in steps_of(compiled) if isinstance(s, ControlFlow)]
    (body,) = loop.node.params["body"].cache.native.values()
    made = {node.op.name for node in body.lowered.steady}
    assert {"matmul", "exp"} <= made


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 50])
def test_any_number_of_steps(steps):
    compiled = weft.compile(fibonacci)
    same(compiled(weft.tensor(steps)), fibonacci(weft.tensor(steps)))
    rows = f64(steps, 2, 2)
    run = lambda x, rows: weft.scan(lambda c, r: (c @ r, c), x, rows)
    same(weft.compile(run)(f64(2, 2) * 0 + 1, rows), run(f64(2, 2) * 0 + 1, rows), 1e-8)


def test_lengths_share_a_program():
    run = lambda x, rows: weft.scan(lambda c, r: ((c @ r).tanh(), c), x, rows)
    compiled = weft.compile(run)
    for n in (3, 1, 7, 20, 2):
        x, rows = f64(2, 2), f64(n, 2, 2)
        same(compiled(x, rows), run(x, rows))
    assert len(compiled.compiles) == 2


def test_a_body_that_numpy_computes_is_called_from_python():
    run = lambda x: weft.scan(
        lambda c, r: (weft.linalg.inv(c + r), c), x, weft.stack([x] * 3)
    )
    check(run, f64(3, 3) + 5 * weft.eye(3, dtype=F64), native=False)


def test_threads_give_the_same_bits():
    w, rows = weft.randn(64, 64) / 8, weft.randn(5, 64, 64)
    run = weft.compile(
        lambda x: weft.scan(lambda c, r: ((c @ w + r).tanh(), c), x, rows)
    )
    before = weft.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 1):
            weft.set_num_threads(threads)
            found.append(run(weft.ones(64, 64))[0].numpy())
    finally:
        weft.set_num_threads(before)
    assert all((one == found[0]).all() for one in found)


def test_loops_are_kept_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    x = f64(2, 2)
    for found in (False, True):
        compiled = weft.compile(nested)
        same(compiled(x), nested(x))
        assert ("passes" not in compiled.compiles[-1].phases) == found


def test_the_second_run_allocates_results_alone():
    rows = f64(50, 16, 16)
    run = weft.compile(
        lambda x, rows: weft.scan(lambda c, r: (c @ r, None), x, rows)[0]
    )
    x = f64(16, 16) * 0.01
    run(x, rows)
    program = run.latest.program
    (executor,) = program.executors.values()
    arena = executor.arena.address
    run(x, rows)
    assert list(program.executors.values()) == [executor]
    assert executor.arena.address == arena
    one = 16 * 16 * 8
    assert executor.results_bytes == one
    assert executor.arena.nbytes < 12 * one  # and not fifty steps


# -- gradients


@pytest.mark.parametrize("program", [rotated, nested, invariant, reversed_scan],
                         ids=lambda p: p.__name__)  # fmt: skip
def test_gradients(program):
    weft.manual_seed(1)

    def loss(x):
        return sum((leaf.sin().sum() for leaf in weft.tree_flatten(program(x))[0]
                    if leaf.dtype is F64), weft.zeros((), dtype=F64))  # fmt: skip

    x = f64(2, 2)
    wanted = grad(loss)(x)
    natively = program is not nested  # a loop whose length is data is called
    check(grad(loss), x, native=natively, tolerance=1e-9)
    numeric = np.zeros((2, 2))
    for k in np.ndindex(2, 2):
        step = np.zeros((2, 2))
        step[k] = 1e-6
        ends = [loss(x + weft.tensor(s * step)).item() for s in (1, -1)]
        numeric[k] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(wanted.numpy(), numeric, rtol=1e-4, atol=1e-6)


def test_weights_of_a_loop_have_one_product_after_it():
    def loss(w, b, rows):
        step = lambda h, r: ((h @ w + r + b).tanh(), h)
        last, hs = weft.scan(step, rows[0], rows)
        return last.sum() + (hs * hs).sum()

    w, b, rows = f64(4, 4), f64(4), f64(6, 3, 4)
    compiled = check(grad(loss, (0, 1, 2)), w, b, rows)
    loops = [s.node for s in steps_of(compiled) if isinstance(s, ControlFlow)]
    assert [node.params["carried"] for node in loops] == [1, 1]
    shapes = [tuple(s.node.inputs[0].shape) for s in steps_of(compiled)
              if not isinstance(s, ControlFlow) and getattr(s, "node", None)
              and s.node.op.name == "matmul"]  # fmt: skip
    assert (4, 18) in shapes
    with weft.config.using(strict_ieee=True):  # sums in the order of the steps
        check(grad(loss, (0, 1, 2)), w, b, rows)


def test_cotangents_that_begin_late_meet_no_infinity():
    """The last carry has no cotangent; zeros in its place would meet an infinity."""

    def loss(w, rows):
        return weft.scan(lambda h, r: ((h @ w) * r, h), rows[0], rows)[1].sum()

    weft.manual_seed(0)
    w = weft.tensor([[float("inf"), 1.0], [1.0, 2.0]], dtype=F64)
    rows = f64(3, 2, 2)
    with np.errstate(invalid="ignore"):
        want, got = grad(loss)(w, rows), weft.compile(grad(loss))(w, rows)
    np.testing.assert_array_equal(np.isnan(want.numpy()), np.isnan(got.numpy()))


# -- programs that people write


def newton(a):
    """Roots of all elements, until the worst is good enough."""
    better = lambda x, n: ((x + a / x) / 2, n + 1)
    return weft.while_loop(
        lambda x, n: ((x * x - a).abs() > 1e-9 * a).any(), better, (a, 0)
    )


def test_a_newton_solver():
    a = weft.tensor([1.0, 2.0, 1e4], dtype=F64)
    compiled = check(newton, a)
    root, steps = compiled(a)
    np.testing.assert_allclose(root.numpy(), np.sqrt(a.numpy()), rtol=1e-9)
    assert steps.item() > 5
    slope = weft.compile(grad(lambda a: newton(a)[0].sum()))
    np.testing.assert_allclose(slope(a).numpy(), 0.5 / np.sqrt(a.numpy()), rtol=1e-6)


def ctc(log_probs, targets):
    """The loss of connectionist temporal classification, by its recursion."""
    blank = 0
    labels = weft.stack([targets * 0 + blank, targets], 1).reshape(-1)
    labels = weft.cat([labels, labels[:1]])
    skip = weft.cat([
        weft.zeros(2, dtype=weft.bool),
        (labels[2:] != blank) & (labels[2:] != labels[:-2]),
    ])  # fmt: skip
    low = weft.full((1,), -1e30, dtype=F64)
    first = weft.where(weft.arange(len(labels)) < 2, log_probs[0][labels], -1e30)

    def step(alpha, row):
        one = weft.cat([low, alpha[:-1]])
        two = weft.where(skip, weft.cat([low, low, alpha[:-2]]), -1e30)
        return weft.logsumexp(weft.stack([alpha, one, two]), 0) + row[labels], None

    alpha, _ = weft.scan(step, first, log_probs[1:])
    return -weft.logsumexp(alpha[-2:], 0)


def ctc_by_paths(log_probs, targets):
    """The same by all paths."""
    t, c = log_probs.shape
    total = -np.inf
    for path in np.ndindex(*(c,) * t):
        kept = [k for j, k in enumerate(path) if j == 0 or k != path[j - 1]]
        if [k for k in kept if k] == list(targets):
            total = np.logaddexp(
                total, sum(log_probs[j, k] for j, k in enumerate(path))
            )
    return -total


def test_connectionist_temporal_classification():
    logits, targets = f64(5, 3), weft.tensor([1, 2])
    loss = lambda logits, targets: ctc(logits.log_softmax(-1), targets)
    check(loss, logits, targets)
    want = ctc_by_paths(logits.log_softmax(-1).numpy(), targets.tolist())
    np.testing.assert_allclose(weft.compile(loss)(logits, targets).item(), want)
    check(grad(loss), logits, targets)


def beam_search(table, width):
    """The best sequences of a bigram model, until each has ended or is long enough."""
    steps, words = 6, table.shape[0]

    def goes_on(k, scores, last, history):
        return (k < steps) & (last != 0).any()

    def step(k, scores, last, history):
        ended = (last == 0).unsqueeze(1)
        stay = weft.where(weft.arange(words) == 0, 0.0, -1e30).to(F64)
        all_scores = scores.unsqueeze(1) + weft.where(ended, stay, table[last])
        scores, flat = all_scores.reshape(-1).topk(width)
        beam, word = flat // words, flat % words
        history = history[beam]
        history[:, k] = word
        return k + 1, scores, word, history

    scores = weft.where(weft.arange(width) == 0, 0.0, -1e30).to(F64)
    start = weft.full((width,), 1)
    history = weft.zeros(width, steps, dtype=weft.int64)
    return weft.while_loop(goes_on, step, (0, scores, start, history))


def test_beam_search():
    weft.manual_seed(3)
    table = (f64(5, 5) * 2).log_softmax(-1)
    compiled = check(lambda table: beam_search(table, 4), table)
    _, scores, _, _ = compiled(table)
    best = max(
        (
            sum(table[a, b].item() for a, b in zip((1, *path[:-1]), path, strict=True)),
            path,
        )
        for length in range(1, 7)
        for path in np.ndindex(*(5,) * min(length, 4))
        if path[-1] == 0 and 0 not in path[:-1]
    )
    assert scores[0].item() >= best[0] - 1e-9
    assert scores.tolist() == sorted(scores.tolist(), reverse=True)


def sampled(logits):
    """Words are drawn until one is the end, or there is no more room."""

    def step(k, word, out):
        word = weft.multinomial(logits[word].softmax(-1), 1).reshape(())
        out = out.clone()
        out[k] = word
        return k + 1, word, out

    start = (0, weft.tensor(1), weft.zeros(12, dtype=weft.int64))
    return weft.while_loop(lambda k, w, out: (k < 12) & (w != 0), step, start)


def test_sampling_with_an_early_stop():
    logits = weft.randn(4, 4)
    compiled = weft.compile(sampled)
    lengths = set()
    for seed in range(8):
        weft.manual_seed(seed)
        want = sampled(logits)
        weft.manual_seed(seed)
        got = compiled(logits)
        same(got, want)
        lengths.add(got[0].item())
    assert len(lengths) > 1
    assert not any(isinstance(s, HostCall) for s in steps_of(compiled))


# -- recurrent networks


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True},
                                     {"batch_first": True, "bias": False}])  # fmt: skip
def test_recurrent_networks_of_any_length_are_one_program(kind, options):
    weft.manual_seed(0)
    net = kind(3, 4, dtype=F64, **options)
    parameters = list(net.parameters())

    def step(x):
        for p in parameters:
            p.grad = None
        out, state = net(x)
        loss = (out * out).sum() + sum(s.sum() for s in weft.tree_flatten(state)[0])
        loss.backward()
        return loss

    compiled = weft.compile(step)
    for length in (4, 1, 9, 2, 17, 3):
        x = f64(2, length, 3) if options.get("batch_first") else f64(length, 2, 3)
        want = step(x)
        grads = [p.grad.clone() for p in parameters]
        same(compiled(x), want, 1e-8)
        same([p.grad for p in parameters], grads, 1e-7)
    assert len(compiled.compiles) <= 2


# -- errors, limits and interrupts


def test_an_index_out_of_range_ends_the_loop_and_changes_nothing():
    table = nn.Parameter(f64(4, 2))
    state = nn.Parameter(weft.zeros(2, dtype=F64))

    @weft.compile
    def step(rows):
        total = weft.scan(lambda c, k: (c + table[k], None), state * 1, rows)[0]
        with weft.no_grad():
            state.add_(total.detach())
        return total.sum()

    step(weft.tensor([0, 1, 3]))
    before = state.detach().numpy().copy()
    with pytest.raises(OutOfRangeError, match="index 7 is out of range"):
        step(weft.tensor([0, 7, 3]))
    np.testing.assert_array_equal(state.detach().numpy(), before)
    step(weft.tensor([0, 1, 3]))
    np.testing.assert_allclose(state.detach().numpy(), 3 * before)


def endless(x):
    return weft.while_loop(lambda v: v.sum() > -1, lambda v: v / 2, x)


@pytest.mark.parametrize("wrapped", [lambda f: f, weft.compile, weft.graph.capture])
def test_a_limit_of_steps(wrapped):
    x = weft.ones(3)
    run = wrapped(endless, x) if wrapped is weft.graph.capture else wrapped(endless)
    with weft.config.using(loop_limit=50):
        with pytest.raises(ArgumentError, match=r"still holds after 50 steps"):
            run(x)
        short = lambda x: weft.fori_loop(0, weft.tensor(50), lambda i, c: c + 1, x)
        assert weft.compile(short)(x)[0].item() == 51
    assert weft.config.loop_limit is None


@pytest.mark.parametrize("limit", [-1, 1.5, True, "many"])
def test_limits_that_are_none(limit):
    with pytest.raises((TypeError, ValueError), match="loop_limit"):
        weft.config.loop_limit = limit


@pytest.fixture
def interrupts():
    """Ctrl-C as in a terminal: a shell's background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_ends_a_loop():
    run = weft.compile(endless)
    with weft.config.using(loop_limit=1), pytest.raises(ArgumentError):
        run(weft.ones(3))  # it is compiled now
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run(weft.ones(3))
    assert weft.compile(fibonacci)(weft.tensor(10))[0].item() == 55


def test_a_handler_that_returns_lets_the_loop_go_on():
    code = """
import os, signal, threading, weft
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
run = weft.compile(lambda n: weft.fori_loop(0, n, lambda i, c: (c * 3 + i) % 1000, 1))
run(weft.tensor(10))
threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
n = weft.tensor(10)
while not seen:
    run(n)
    n = n * 2
print("went on")
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert found.stdout == "went on\n", found.stderr
    assert not found.stderr


# -- switch


def test_switch():
    branches = [weft.sin, weft.neg, lambda x: x * x]
    run = lambda k, x: weft.switch(k, branches, x)
    compiled = weft.compile(run)
    x = f64(3)
    for k in (-1, 0, 1, 2, 7):
        want = branches[min(max(k, 0), 2)](x)
        same(run(k, x), want)
        same(run(weft.tensor(k), x), want)
        same(compiled(weft.tensor(k), x), want)
        slope = grad(lambda x, k=k: run(weft.tensor(k), x).sum())
        same(weft.compile(slope)(x), slope(x))
    with pytest.raises(ArgumentError, match="at least one branch"):
        weft.switch(0, [], x)
    with pytest.raises(weft.errors.DTypeError, match="one integer"):
        weft.switch(weft.tensor(0.5), branches, x)

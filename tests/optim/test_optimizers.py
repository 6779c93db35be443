"""Optimizers: their formulas, groups, names, state, refusals, and the flat path."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
from toy_device import Toy

import weft
from weft.errors import ArgumentError, AutogradError, DTypeError, ShapeError
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.optim import flat

STEPS = 20
START = np.random.default_rng(1).standard_normal((3, 2))
NOISE = np.random.default_rng(2).standard_normal((STEPS, 3, 2))


def gradient(p, t):
    """The gradient of a bowl, with noise that is the same for everyone."""
    return 2.0 * (p - 0.5) + NOISE[t - 1]


def follow(make):
    """The trajectory of a Weft optimizer."""
    p = weft.tensor(START, dtype=weft.float64, requires_grad=True)
    optimizer = make([p])
    path = []
    for t in range(1, STEPS + 1):
        p.grad = weft.tensor(gradient(p.detach().numpy(), t))
        optimizer.step()
        path.append(p.detach().numpy().copy())
    return np.array(path)


def published(rule):
    """The trajectory of a rule written as its paper has it: (p, g, t, memory) -> p."""
    p, memory, path = START.copy(), {}, []
    for t in range(1, STEPS + 1):
        p = rule(p, gradient(p, t), t, memory)
        path.append(p)
    return np.array(path)


def sgd(lr, momentum=0.0, dampening=0.0, wd=0.0, nesterov=False):
    def rule(p, g, t, mem):
        g = g + wd * p
        if momentum:
            mem["b"] = g if t == 1 else momentum * mem["b"] + (1 - dampening) * g
            g = g + momentum * mem["b"] if nesterov else mem["b"]
        return p - lr * g

    return rule


def sgd_decoupled(lr, wd, momentum=0.0):
    def rule(p, g, t, mem):
        mem["b"] = momentum * mem.get("b", 0) + g
        return (1 - lr * wd) * p - lr * mem["b"]

    return rule


def sgd_tinynn(lr, wd, momentum=0.0):
    def rule(p, g, t, mem):
        mem["b"] = momentum * mem.get("b", 0) + g
        return p + (-lr * mem["b"]) - wd * p

    return rule


def moments(mem, g, b1, b2, t):
    mem["m"] = b1 * mem.get("m", 0) + (1 - b1) * g
    mem["v"] = b2 * mem.get("v", 0) + (1 - b2) * g**2
    return mem["m"] / (1 - b1**t), mem["v"] / (1 - b2**t)


def adam(lr, b1=0.9, b2=0.999, eps=1e-8, wd=0.0, decoupled=False, amsgrad=False):
    def rule(p, g, t, mem):
        if not decoupled:
            g = g + wd * p
        m, v = moments(mem, g, b1, b2, t)
        if amsgrad:
            mem["top"] = np.maximum(mem.get("top", 0), mem["v"])
            v = mem["top"] / (1 - b2**t)
        p = p - lr * wd * p if decoupled else p
        return p - lr * m / (np.sqrt(v) + eps)

    return rule


def rmsprop(lr, alpha=0.99, eps=1e-8, wd=0.0, momentum=0.0, centered=False):
    def rule(p, g, t, mem):
        g = g + wd * p
        mem["s"] = alpha * mem.get("s", 0) + (1 - alpha) * g**2
        mem["a"] = alpha * mem.get("a", 0) + (1 - alpha) * g
        spread = mem["s"] - mem["a"] ** 2 if centered else mem["s"]
        mem["b"] = momentum * mem.get("b", 0) + g / (np.sqrt(spread) + eps)
        return p - lr * mem["b"]

    return rule


def adagrad(lr, lr_decay=0.0, wd=0.0, first=0.0, eps=1e-10):
    def rule(p, g, t, mem):
        g = g + wd * p
        mem["s"] = mem.get("s", first) + g**2
        return p - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(mem["s"]) + eps)

    return rule


def adadelta(lr=1.0, rho=0.9, eps=1e-6, wd=0.0):
    def rule(p, g, t, mem):
        g = g + wd * p
        mem["s"] = rho * mem.get("s", 0) + (1 - rho) * g**2
        delta = np.sqrt((mem.get("a", 0) + eps) / (mem["s"] + eps)) * g
        mem["a"] = rho * mem.get("a", 0) + (1 - rho) * delta**2
        return p - lr * delta

    return rule


def adamax(lr, b1=0.9, b2=0.999, eps=1e-8, wd=0.0):
    def rule(p, g, t, mem):
        g = g + wd * p
        mem["m"] = b1 * mem.get("m", 0) + (1 - b1) * g
        mem["u"] = np.maximum(b2 * mem.get("u", 0), np.abs(g) + eps)
        return p - lr / (1 - b1**t) * mem["m"] / mem["u"]

    return rule


def nadam(lr, b1=0.9, b2=0.999, eps=1e-8, wd=0.0, psi=4e-3, decoupled=False):
    def mu(t):
        return b1 * (1 - 0.5 * 0.96 ** (t * psi))

    def rule(p, g, t, mem):
        p, g = ((1 - lr * wd) * p, g) if decoupled else (p, g + wd * p)
        _, v = moments(mem, g, b1, b2, t)
        now = math.prod(mu(i) for i in range(1, t + 1))
        ahead = now * mu(t + 1)
        m = mu(t + 1) * mem["m"] / (1 - ahead) + (1 - mu(t)) * g / (1 - now)
        return p - lr * m / (np.sqrt(v) + eps)

    return rule


def radam(lr, b1=0.9, b2=0.999, eps=1e-8, wd=0.0, decoupled=False):
    def rule(p, g, t, mem):
        p, g = ((1 - lr * wd) * p, g) if decoupled else (p, g + wd * p)
        m, _ = moments(mem, g, b1, b2, t)
        most = 2 / (1 - b2) - 1
        rho = most - 2 * t * b2**t / (1 - b2**t)
        if rho <= 5:
            return p - lr * m
        ratio = ((rho - 4) * (rho - 2) * most) / ((most - 4) * (most - 2) * rho)
        adapt = np.sqrt(1 - b2**t) / (np.sqrt(mem["v"]) + eps)
        return p - lr * m * np.sqrt(ratio) * adapt

    return rule


def lion(lr, b1=0.9, b2=0.99, wd=0.0):
    def rule(p, g, t, mem):
        m = mem.get("m", np.zeros_like(p))
        step = np.sign(b1 * m + (1 - b1) * g)
        mem["m"] = b2 * m + (1 - b2) * g
        return p - lr * (step + wd * p)

    return rule


optim = weft.optim
CASES = {
    "sgd": (lambda p: optim.SGD(p, 0.1), sgd(0.1)),
    "sgd wd": (lambda p: optim.SGD(p, 0.1, weight_decay=0.3), sgd(0.1, wd=0.3)),
    "sgd momentum": (
        lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.2, weight_decay=0.1),
        sgd(0.1, 0.9, 0.2, 0.1),
    ),
    "sgd nesterov": (
        lambda p: optim.SGD(p, 0.1, momentum=0.8, nesterov=True),
        sgd(0.1, 0.8, nesterov=True),
    ),
    "sgd decoupled": (
        lambda p: optim.SGD(p, 0.1, momentum=0.5, weight_decay=0.4, decay="decoupled"),
        sgd_decoupled(0.1, 0.4, 0.5),
    ),
    "sgd tinynn": (
        lambda p: optim.SGD(p, 0.1, momentum=0.5, weight_decay=0.02, decay="tinynn"),
        sgd_tinynn(0.1, 0.02, 0.5),
    ),
    "adam": (lambda p: optim.Adam(p, 0.1), adam(0.1)),
    "adam wd": (
        lambda p: optim.Adam(p, 0.1, (0.8, 0.9), 1e-4, weight_decay=0.2),
        adam(0.1, 0.8, 0.9, 1e-4, 0.2),
    ),
    "adam amsgrad": (
        lambda p: optim.Adam(p, 0.1, (0.8, 0.6), amsgrad=True),
        adam(0.1, 0.8, 0.6, amsgrad=True),
    ),
    "adamw": (
        lambda p: optim.AdamW(p, 0.1, weight_decay=0.2),
        adam(0.1, wd=0.2, decoupled=True),
    ),
    "adamw default": (
        lambda p: optim.AdamW(p, 0.1),
        adam(0.1, wd=0.01, decoupled=True),
    ),
    "rmsprop": (lambda p: optim.RMSprop(p, 0.05, 0.9), rmsprop(0.05, 0.9)),
    "rmsprop all": (
        lambda p: optim.RMSprop(
            p, 0.02, 0.9, weight_decay=0.1, momentum=0.5, centered=True
        ),
        rmsprop(0.02, 0.9, wd=0.1, momentum=0.5, centered=True),
    ),
    "adagrad": (lambda p: optim.Adagrad(p, 0.3), adagrad(0.3)),
    "adagrad all": (
        lambda p: optim.Adagrad(p, 0.3, 0.1, 0.2, 0.5, 1e-6),
        adagrad(0.3, 0.1, 0.2, 0.5, 1e-6),
    ),
    "adadelta": (lambda p: optim.Adadelta(p), adadelta()),
    "adadelta all": (
        lambda p: optim.Adadelta(p, 0.7, 0.8, 1e-3, 0.1),
        adadelta(0.7, 0.8, 1e-3, 0.1),
    ),
    "adamax": (lambda p: optim.Adamax(p, 0.1), adamax(0.1)),
    "adamax wd": (
        lambda p: optim.Adamax(p, 0.1, (0.8, 0.7), weight_decay=0.2),
        adamax(0.1, 0.8, 0.7, wd=0.2),
    ),
    "nadam": (lambda p: optim.NAdam(p, 0.1), nadam(0.1)),
    "nadam decoupled": (
        lambda p: optim.NAdam(p, 0.1, weight_decay=0.2, decoupled_weight_decay=True),
        nadam(0.1, wd=0.2, decoupled=True),
    ),
    "radam": (lambda p: optim.RAdam(p, 0.1), radam(0.1)),
    "radam early": (
        lambda p: optim.RAdam(p, 0.1, (0.8, 0.9), weight_decay=0.2),
        radam(0.1, 0.8, 0.9, wd=0.2),
    ),
    "lion": (lambda p: optim.Lion(p, 0.05, weight_decay=0.3), lion(0.05, wd=0.3)),
}
MAKERS = {name: make for name, (make, _) in CASES.items()}
BY_NAME = pytest.mark.parametrize("name", MAKERS)


@BY_NAME
def test_the_published_rule(name):
    make, rule = CASES[name]
    ours, theirs = follow(make), published(rule)
    assert np.abs(theirs - START).max() > 0.05  # it went somewhere
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_every_optimizer_has_a_published_rule():
    tested = {type(make([weft.ones(1)])) for make in MAKERS.values()}
    known = {v for v in vars(weft.optim).values() if inspect.isclass(v)}
    elsewhere = (
        "Optimizer",
        "LBFGS",
        "ASGD",
        "Adafactor",
        "Muon",
        "Rprop",
        "SparseAdam",
    )
    assert known - tested == {getattr(weft.optim, name) for name in elsewhere}


@BY_NAME
def test_maximize_climbs(name):
    make = MAKERS[name]
    up, down = (weft.tensor(START, requires_grad=True) for _ in range(2))
    climber, other = make([up]), make([down])
    climber.param_groups[0]["maximize"] = True
    for t in range(1, 4):
        up.grad = weft.tensor(-NOISE[t])
        down.grad = weft.tensor(NOISE[t])
        climber.step()
        other.step()
    np.testing.assert_array_equal(up.detach().numpy(), down.detach().numpy())


# -- the flat path


SHAPES = [(3, 4), (5,), (), (2, 0), (2, 3, 2), (70, 1000)]


def make_parameters(dtype):
    rng = np.random.default_rng(3)
    made = [weft.tensor(rng.standard_normal(s)).to(dtype) for s in SHAPES]
    turned = weft.tensor(rng.standard_normal((6, 4))).to(dtype).T  # not contiguous
    return [p.requires_grad_() for p in [*made, turned]]


def give_gradients(params, rng):
    for p in params:
        p.grad = weft.tensor(rng.standard_normal(p.shape)).to(p.dtype)


def bits(tensor):
    return tensor.detach().contiguous().numpy().tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@BY_NAME
def test_flat_and_single_updates_are_the_same_bits(name, dtype):
    dtype = getattr(weft, dtype)
    together, alone = make_parameters(dtype), make_parameters(dtype)
    first, second = MAKERS[name](together), MAKERS[name](alone)
    second.param_groups[0]["foreach"] = False
    for optimizer, params in ((first, together), (second, alone)):
        rng = np.random.default_rng(4)
        for _ in range(3):
            give_gradients(params, rng)
            optimizer.step()
    for a, b in zip(together, alone, strict=True):
        assert bits(a) == bits(b)
        for key, value in first.state[a].items():
            other = second.state[b][key]
            same = value == other if key in ("step", "mu_product") else None
            assert bits(value) == bits(other) if same is None else same


def test_small_parameters_share_one_run_and_large_ones_do_not():
    params = make_parameters(weft.float32)
    adam = optim.Adam(params)
    give_gradients(params, np.random.default_rng(0))
    adam.step()
    runs = adam._plans[0][2]
    assert [len(run.params) for run in runs] == [6, 1]
    assert runs[1].in_place
    assert not runs[0].in_place


def test_the_plan_is_kept_while_nothing_moves():
    params = make_parameters(weft.float32)
    adam = optim.Adam(params)
    rng = np.random.default_rng(0)
    give_gradients(params, rng)
    adam.step()
    runs = adam._plans[0][2]
    give_gradients(params, rng)
    adam.step()
    assert adam._plans[0][2] is runs
    params[0]._data = params[0]._data.copy()
    before = params[0].detach().clone()
    adam.step()
    assert adam._plans[0][2] is not runs
    assert not weft.equal(before, params[0].detach())


def test_changes_of_state_by_hand_are_seen():
    def run(replace):
        p = weft.full((3,), 2.0, requires_grad=True)
        q = weft.full((2,), 2.0, requires_grad=True)
        sgd = optim.SGD([p, q], 0.1, momentum=0.5)
        for _ in range(2):
            p.grad, q.grad = weft.ones(3), weft.ones(2)
            sgd.step()
            if replace:
                sgd.state[p]["momentum_buffer"] = weft.full((3,), 7.0)
            else:
                sgd.state[p]["momentum_buffer"].fill_(7.0)
        sgd.step()
        return p.detach().numpy(), q.detach().numpy()

    for a, b in zip(run(True), run(False), strict=True):
        np.testing.assert_array_equal(a, b)
    p, q = run(True)
    np.testing.assert_allclose(p, 2 - 0.1 * (1 + 4.5 + 4.5), rtol=1e-6)
    np.testing.assert_allclose(q, 2 - 0.1 * (1 + 1.5 + 1.75), rtol=1e-6)


def test_overlapping_parameters_are_updated_one_after_the_other():
    memory = np.zeros(4, np.float32)
    a = weft.from_numpy(memory[:3]).requires_grad_()
    b = weft.from_numpy(memory[1:]).requires_grad_()
    a.grad, b.grad = weft.ones(3), weft.ones(3)
    optim.SGD([a, b], lr=1.0).step()
    np.testing.assert_array_equal(memory, [-1, -2, -2, -1])


def test_views_and_references_of_a_parameter_stay_good():
    p = weft.zeros(3, requires_grad=True)
    q = weft.zeros(2, requires_grad=True)
    array, row = p.detach().numpy(), p.detach()[1:]
    p.grad, q.grad = weft.ones(3), weft.ones(2)
    optim.SGD([p, q], lr=1.0).step()
    np.testing.assert_array_equal(array, -1)
    np.testing.assert_array_equal(row.numpy(), -1)


def test_blocks_do_not_change_results(monkeypatch):
    def run():
        p = weft.arange(1000.0).requires_grad_()
        nadam = optim.NAdam([p], 0.1)
        for _ in range(3):
            p.grad = p.detach() * 0.5
            nadam.step()
        return bits(p), nadam.state[p]["mu_product"], nadam.state[p]["step"]

    whole = run()
    monkeypatch.setattr(flat, "BLOCK", 64)
    assert run() == whole


def test_parameters_without_gradients_are_skipped_and_count_their_own_steps():
    a, b = weft.ones(2, requires_grad=True), weft.ones(2, requires_grad=True)
    c = weft.ones(2, requires_grad=True)
    adam, alone = optim.Adam([a, b], 0.1), optim.Adam([c], 0.1)
    for t in range(4):
        a.grad = weft.full((2,), t + 1.0)
        b.grad = weft.full((2,), t + 1.0) if t % 2 else None
        adam.step()
        if t % 2:
            c.grad = weft.full((2,), t + 1.0)
            alone.step()
    assert adam.state[a]["step"] == 4
    assert adam.state[b]["step"] == 2
    assert bits(b) == bits(c)


def test_half_precision_is_rounded_once_a_step():
    p = weft.tensor([1.0, 3.0], dtype=weft.bfloat16, requires_grad=True)
    p.grad = weft.tensor([0.3, 0.7], dtype=weft.bfloat16)
    optim.SGD([p], lr=0.1, weight_decay=0.01).step()
    g = p.grad.float() + 0.01 * weft.tensor([1.0, 3.0])
    expected = (weft.tensor([1.0, 3.0]) - 0.1 * g).to(weft.bfloat16)
    assert weft.equal(p.detach(), expected)
    assert p.dtype is weft.bfloat16


def test_complex_parameters_are_pairs_of_reals():
    start = np.array([1 + 2j, -0.5 - 1j])
    step = np.array([0.3 - 0.2j, 1 + 1j])
    z = weft.tensor(start, requires_grad=True)
    pair = weft.tensor(np.stack([start.real, start.imag], -1), requires_grad=True)
    z.grad = weft.tensor(step)
    pair.grad = weft.tensor(np.stack([step.real, step.imag], -1))
    for p in (z, pair):
        optim.Adam([p], 0.1).step()
    expected = pair.detach().numpy()
    np.testing.assert_array_equal(z.detach().numpy().real, expected[:, 0])
    np.testing.assert_array_equal(z.detach().numpy().imag, expected[:, 1])


def test_gradients_of_other_layouts_and_dtypes():
    p = weft.zeros(2, 3, requires_grad=True)
    q = weft.zeros(3, requires_grad=True)
    p.grad = weft.arange(6.0, dtype=weft.float64).reshape(3, 2).T
    q.grad = weft.ones(1).expand(3)
    optim.SGD([p, q], lr=1.0).step()
    np.testing.assert_array_equal(p.detach().numpy(), [[0, -2, -4], [-1, -3, -5]])
    np.testing.assert_array_equal(q.detach().numpy(), -1)
    assert p.dtype is weft.float32


def test_numpy_numbers_as_options_do_not_widen():
    p = weft.ones(2, requires_grad=True)
    q = weft.ones(2, requires_grad=True)
    p.grad, q.grad = weft.full((2,), 0.3), weft.full((2,), 0.3)
    optim.Adam([p], lr=np.float64(0.1)).step()
    adam = optim.Adam([q], lr=0.5)
    adam.param_groups[0]["lr"] = weft.tensor(0.1, dtype=weft.float64)
    adam.step()
    assert bits(p) == bits(q)


def test_a_toy_device_is_updated_through_its_operators():
    toy = weft.register_device(Toy("toy"))
    try:
        p = weft.ones(2).to("toy").requires_grad_()
        p.grad = weft.full((2,), 0.5).to("toy")
        optim.SGD([p], lr=0.5).step()
        np.testing.assert_array_equal(p.detach().to("cpu").numpy(), 0.75)
        assert {"mul", "sub"} <= set(toy.ran)
    finally:
        weft.unregister_device("toy")


# -- stale values


def test_a_value_saved_before_a_step_is_caught():
    p = weft.ones(2, requires_grad=True)
    loss = (p * p).sum()
    p.grad = weft.ones(2)
    optim.SGD([p], lr=0.1).step()
    with pytest.raises(AutogradError, match=r"SGD\.step") as error:
        loss.backward()
    assert "test_optimizers.py" in str(error.value)


def test_step_records_nothing_and_works_under_no_grad():
    p = weft.ones(2, requires_grad=True)
    p.grad = weft.ones(2)
    optim.SGD([p], lr=0.5).step()
    assert p.is_leaf
    assert p.requires_grad
    with weft.no_grad():
        optim.SGD([p], lr=0.5).step()
    np.testing.assert_array_equal(p.detach().numpy(), 0)


def test_closure_runs_with_gradients_and_its_loss_comes_back():
    p = weft.ones(2, requires_grad=True)
    sgd = optim.SGD([p], lr=0.25)

    def closure():
        sgd.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with weft.no_grad():
        assert float(sgd.step(closure)) == 2.0
    np.testing.assert_array_equal(p.detach().numpy(), 0.5)


def test_zero_grad():
    p = weft.ones(2, requires_grad=True)
    sgd = optim.SGD([p])
    p.grad = kept = weft.ones(2)
    sgd.zero_grad(set_to_none=False)
    assert float(p.grad.sum()) == 0.0
    np.testing.assert_array_equal(kept.numpy(), 0)
    sgd.zero_grad()
    assert p.grad is None


# -- groups and names


class Net(Module):
    def __init__(self, order=("first", "second")):
        super().__init__()
        rng = np.random.default_rng(5)
        values = {
            "first": rng.standard_normal((2, 3)),
            "second": rng.standard_normal((3, 2)),
        }
        for name in order:
            setattr(self, name, Parameter(weft.tensor(values[name])))

    def forward(self, x):
        return ((x @ self.first) @ self.second).square().sum()


def test_names_come_from_a_module_or_from_pairs_or_are_numbered():
    net = Net()
    assert optim.SGD(net).param_groups[0]["param_names"] == ["first", "second"]
    pairs = optim.SGD(net.named_parameters())
    assert pairs.param_groups[0]["param_names"] == ["first", "second"]
    asked = optim.SGD(net.parameters()).param_groups[0]["param_names"]
    assert asked == ["first", "second"]
    numbered = optim.SGD(list(net.parameters())).param_groups[0]["param_names"]
    assert numbered == ["param.0", "param.1"]


def test_groups_override_options():
    a, b = weft.ones(1, requires_grad=True), weft.ones(1, requires_grad=True)
    sgd = optim.SGD([{"params": [a], "lr": 0.5}, {"params": b}], lr=0.1, momentum=0.9)
    sgd.add_param_group({"params": weft.ones(1), "momentum": 0.0, "label": "new"})
    assert [g["lr"] for g in sgd.param_groups] == [0.5, 0.1, 0.1]
    assert [g["momentum"] for g in sgd.param_groups] == [0.9, 0.9, 0.0]
    assert sgd.param_groups[2]["label"] == "new"
    a.grad, b.grad = weft.ones(1), weft.ones(1)
    sgd.step()
    np.testing.assert_allclose([float(a), float(b)], [0.5, 0.9], rtol=1e-6)


def test_a_custom_optimizer_is_one_function():
    class Plain(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def update(self, g, p, state, group):
            return p - group["lr"] / state["step"] * g

    p = weft.zeros(2, requires_grad=True)
    plain = Plain([p], lr=1.0)
    for _ in range(2):
        p.grad = weft.ones(2)
        plain.step()
    np.testing.assert_array_equal(p.detach().numpy(), -1.5)
    assert "lr: 1.0" in repr(plain)


def leaf():
    return weft.ones(2, requires_grad=True)


MISTAKES = {
    "no parameters": (lambda: optim.SGD([]), ArgumentError, "got no parameters"),
    "one tensor": (lambda: optim.SGD(leaf()), DTypeError, "put one tensor in a list"),
    "not a leaf": (
        lambda: optim.SGD([leaf() * 2]),
        ArgumentError,
        "was made by 'mul' and is no leaf",
    ),
    "not a tensor": (
        lambda: optim.SGD([3.0]),
        DTypeError,
        "expected 'param.0' to be a tensor, got float",
    ),
    "a set": (lambda: optim.SGD([{"params": {leaf()}}]), DTypeError, "ordered"),
    "twice": (lambda: optim.SGD([p := leaf(), p]), ArgumentError, "the same parameter"),
    "one name twice": (
        lambda: optim.SGD([("a", leaf()), ("a", leaf())]),
        ArgumentError,
        "two parameters are named 'a'",
    ),
    "negative rate": (
        lambda: optim.Adam([leaf()], lr=-1),
        ArgumentError,
        "expected lr at least 0, got -1",
    ),
    "rate not a number": (
        lambda: optim.Adam([leaf()], lr=math.nan),
        ArgumentError,
        "got nan",
    ),
    "rate of text": (
        lambda: optim.Adam([leaf()], lr="high"),
        DTypeError,
        "lr to be a number, got str",
    ),
    "beta of 1": (
        lambda: optim.Adam([leaf()], betas=(0.9, 1.0)),
        ArgumentError,
        r"betas\[1\] in \[0, 1\), got 1.0",
    ),
    "rate of a group": (
        lambda: optim.SGD([{"params": [leaf()], "lr": -2.0}]),
        ArgumentError,
        "got -2.0",
    ),
    "misspelt option": (
        lambda: optim.SGD([{"params": [leaf()], "momentun": 0.9}]),
        ArgumentError,
        "unknown option 'momentun'.*'momentum' is meant",
    ),
    "nesterov alone": (
        lambda: optim.SGD([leaf()], nesterov=True),
        ArgumentError,
        "needs a momentum",
    ),
    "decay by another name": (
        lambda: optim.SGD([leaf()], decay="l1"),
        ArgumentError,
        "l2, decoupled, tinynn",
    ),
    "rho": (
        lambda: optim.Adadelta([leaf()], rho=1.5),
        ArgumentError,
        r"rho in \[0, 1\]",
    ),
    "two groups for L-BFGS": (
        lambda: optim.LBFGS([{"params": [leaf()]}, {"params": [leaf()]}]),
        ArgumentError,
        "in one group",
    ),
    "another line search": (
        lambda: optim.LBFGS([leaf()], line_search_fn="wolfe"),
        ArgumentError,
        "strong_wolfe",
    ),
    "L-BFGS without closure": (
        lambda: optim.LBFGS([leaf()]).step(),
        ArgumentError,
        "expected a closure",
    ),
    "no dictionary": (
        lambda: optim.SGD([leaf()]).add_param_group([leaf()]),
        DTypeError,
        "a dictionary",
    ),
    "a strange file": (
        lambda: optim.SGD([leaf()]).load_state_dict({"a": 1}),
        KeyError,
        "expected a dictionary with 'state' and 'param_groups'.*'a'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_refused_with_words(mistake):
    make, kind, words = MISTAKES[mistake]
    with pytest.raises(kind, match=words):
        make()


def test_a_gradient_of_another_shape_is_refused():
    p = leaf()
    p.grad = weft.ones(3)
    with pytest.raises(ShapeError, match=r"shape \(2,\), got \(3,\)"):
        optim.SGD([p]).step()
    p.grad = weft.ones(2, dtype=weft.complex64)
    with pytest.raises(DTypeError, match="expected a real gradient"):
        optim.SGD([p]).step()


def test_read_only_memory_is_refused():
    array = np.ones(2, np.float32)
    p = weft.from_numpy(array)
    p._data.flags.writeable = False
    p.requires_grad_()
    p.grad = weft.ones(2)
    with pytest.raises(ArgumentError, match="read-only"):
        optim.SGD([p]).step()


# -- saving and going on


def train(net, optimizer, steps, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        x = weft.tensor(rng.standard_normal((4, 2)))
        optimizer.zero_grad()
        net(x).backward()
        optimizer.step()


@BY_NAME
def test_training_resumes_bit_for_bit_from_a_file(name, tmp_path):
    whole = Net()
    first = MAKERS[name](whole)
    train(whole, first, 3)
    weft.save(
        {"net": dict(whole.state_dict()), "optimizer": first.state_dict()},
        tmp_path / "state",
    )
    train(whole, first, 3, seed=1)

    resumed = Net()
    second = MAKERS[name](resumed)
    saved = weft.load(tmp_path / "state")
    resumed.load_state_dict(saved["net"])
    second.load_state_dict(saved["optimizer"])
    train(resumed, second, 3, seed=1)
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert bits(a) == bits(b)
    for p, q in zip(first.state, second.state, strict=True):
        assert first.state[p]["step"] == second.state[q]["step"] == 6


def test_layers_in_another_order_get_their_own_state():
    net, other = Net(), Net(order=("second", "first"))
    adam, resumed = optim.Adam(net, 0.1), optim.Adam(other, 0.1)
    train(net, adam, 3)
    other.load_state_dict(net.state_dict())
    resumed.load_state_dict(adam.state_dict())
    train(net, adam, 3, seed=1)
    train(other, resumed, 3, seed=1)
    assert bits(net.first) == bits(other.first)
    assert bits(net.second) == bits(other.second)


def test_a_saved_state_is_a_copy():
    net = Net()
    adam = optim.Adam(net, 0.1)
    train(net, adam, 1)
    saved = adam.state_dict()
    before = saved["state"][0]["exp_avg"].clone()
    train(net, adam, 2)
    assert weft.equal(saved["state"][0]["exp_avg"], before)
    adam.load_state_dict(saved)
    train(net, adam, 1)
    assert weft.equal(saved["state"][0]["exp_avg"], before)


def test_options_and_groups_are_restored():
    a, b = weft.ones(1, requires_grad=True), weft.ones(1, requires_grad=True)
    groups = [{"params": [("a", a)], "lr": 0.5}, {"params": [("b", b)]}]
    saved = weft.optim.SGD(groups, lr=0.1).state_dict()
    other = optim.SGD([{"params": [("b", b)]}, {"params": [("a", a)]}], lr=9.0)
    other.load_state_dict(saved)
    assert [g["lr"] for g in other.param_groups] == [0.1, 0.5]


def test_state_that_does_not_fit_is_refused_whole():
    net = Net()
    adam = optim.Adam(net, 0.1)
    train(net, adam, 1)
    before = adam.state_dict()
    saved = adam.state_dict()
    saved["state"][0]["exp_avg"] = weft.zeros(7)
    del saved["state"][1]["exp_avg_sq"]
    saved["state"][2] = {"step": 1}
    saved["state"][1]["extra"] = weft.zeros(1)
    saved["param_groups"][0]["param_names"] = ["first", "third"]
    saved["param_groups"][0]["lr"] = 7.0
    with pytest.raises(ArgumentError) as error:
        adam.load_state_dict(saved)
    for line in (
        "missing     second (3, 2)",
        "unexpected  third",
        "wrong shape first.exp_avg (2, 3), got (7,)",
        "unexpected  2",
    ):
        assert line in str(error.value)
    after = adam.state_dict()
    assert after["param_groups"] == before["param_groups"]
    for name in (0, 1):
        for key in ("exp_avg", "exp_avg_sq"):
            assert weft.equal(before["state"][name][key], after["state"][name][key])


def test_entries_that_do_not_fit_are_named():
    net = Net()
    adam = optim.Adam(net.parameters(), 0.1)
    train(net, adam, 1)
    saved = adam.state_dict()
    del saved["state"][1]["exp_avg_sq"]
    saved["state"][1]["extra"] = weft.zeros(1)
    saved["state"][0]["exp_avg"] = saved["state"][0]["exp_avg"].float()
    with pytest.raises(ArgumentError) as error:
        adam.load_state_dict(saved)
    for line in (
        "missing     second.exp_avg_sq (3, 2)",
        "unexpected  second.extra (1,)",
        "wrong dtype first.exp_avg float64, got float32; convert the model",
    ):
        assert line in str(error.value)


class Twins(Module):
    """Two layers of one shape: no shape tells a wrong order."""

    def __init__(self, *names):
        super().__init__()
        for name in names:
            rng = np.random.default_rng(len(name))
            values = weft.tensor(rng.standard_normal((2, 2)))
            setattr(self, name, Parameter(values))

    def forward(self, x):
        return ((x @ self.a).tanh() @ self.long).square().sum()


GIVEN = {
    "parameters()": lambda net: net.parameters(),
    "named_parameters()": lambda net: net.named_parameters(),
    "the module": lambda net: net,
    "a list of pairs": lambda net: list(net.named_parameters()),
    "a group": lambda net: [{"params": net.parameters()}],
}


@pytest.mark.parametrize("given", GIVEN)
@BY_NAME
def test_a_reordered_model_resumes_as_it_was(name, given, tmp_path):
    make = lambda net: MAKERS[name](GIVEN[given](net))
    net, other = Twins("a", "long"), Twins("long", "a")
    first, second = make(net), make(other)
    train(net, first, 3)
    weft.save(first.state_dict(), tmp_path / "state")
    other.load_state_dict(net.state_dict())
    second.load_state_dict(weft.load(tmp_path / "state"))
    train(net, first, 3, seed=1)
    train(other, second, 3, seed=1)
    assert bits(net.a) == bits(other.a)
    assert bits(net.long) == bits(other.long)


def test_other_names_and_numbers_are_refused():
    net, other = Twins("a", "long"), Twins("a", "b")
    adam = optim.Adam(net.parameters())
    train(net, adam, 1)
    with pytest.raises(ArgumentError, match=r"missing     b .*\n  unexpected  long"):
        optim.Adam(other.parameters()).load_state_dict(adam.state_dict())
    three = Twins("a", "long", "c")
    with pytest.raises(ArgumentError, match=r"missing     c "):
        optim.Adam(three.parameters()).load_state_dict(adam.state_dict())
    saved = adam.state_dict()
    saved["param_groups"][0]["param_names"] = ["a", "a"]
    with pytest.raises(ArgumentError, match=r"missing     long .*\n  twice       a"):
        adam.load_state_dict(saved)
    saved["param_groups"][0]["param_names"] = ["a"]
    with pytest.raises(ArgumentError, match="2 parameters and 1 names"):
        adam.load_state_dict(saved)


def test_state_is_in_the_form_of_pytorch():
    net = Twins("a", "long")
    adam = optim.Adam(net.parameters(), 0.1)
    train(net, adam, 1)
    saved = adam.state_dict()
    assert list(saved["state"]) == [0, 1]
    assert saved["param_groups"][0]["params"] == [0, 1]
    assert saved["param_groups"][0]["param_names"] == ["a", "long"]
    without = optim.Adam(list(net.parameters())).state_dict()["param_groups"][0]
    assert "param_names" not in without
    for entry in saved["state"].values():
        entry["step"] = weft.tensor(float(entry["step"]))
    adam.load_state_dict(saved)
    assert adam.state[net.a]["step"] == 1
    assert type(adam.state[net.a]["step"]) is int


def unnamed(saved):
    """As a file without names has it."""
    for group in saved["param_groups"]:
        del group["param_names"]
    return saved


def with_names_as_keys(saved):
    """As files were before numbers."""
    names = saved["param_groups"][0].pop("param_names")
    saved["param_groups"][0]["params"] = names
    saved["state"] = {names[k]: v for k, v in saved["state"].items()}
    return saved


def with_numbered_names(saved):
    """As files were where no names were known."""
    return with_names_as_keys(
        {**saved, "param_groups": [
            {**saved["param_groups"][0], "param_names": ["param.0", "param.1"]}
        ]}
    )  # fmt: skip


@pytest.mark.parametrize("older", [unnamed, with_names_as_keys, with_numbered_names])
@pytest.mark.parametrize("known", [True, False])
def test_files_from_before_load(older, known):
    net, other = Net(), Net()
    first = optim.Adam(net.parameters(), 0.1)
    train(net, first, 2)
    given = other.parameters() if known else list(other.parameters())
    second = optim.Adam(given, 0.1)
    other.load_state_dict(net.state_dict())
    second.load_state_dict(older(first.state_dict()))
    train(net, first, 2, seed=1)
    train(other, second, 2, seed=1)
    assert bits(net.first) == bits(other.first)
    assert bits(net.second) == bits(other.second)


def test_without_names_shapes_and_numbers_still_count():
    net = Net()
    adam = optim.Adam(list(net.parameters()), 0.1)
    train(net, adam, 1)
    turned = optim.Adam([net.second, net.first])
    with pytest.raises(ArgumentError, match=r"wrong shape param\.0\.exp_avg \(3, 2\)"):
        turned.load_state_dict(adam.state_dict())
    one = optim.Adam([net.first])
    with pytest.raises(ArgumentError, match=r"without names.*own, 1, got 2"):
        one.load_state_dict(adam.state_dict())


def test_parts_of_a_model_with_the_same_names_are_numbered():
    a, b = Twins("a", "long"), Twins("a", "long")
    adam = optim.Adam([{"params": a.parameters()}, {"params": b.parameters()}])
    names = [group["param_names"] for group in adam.param_groups]
    assert names == [["a", "long"], ["param.2", "param.3"]]
    twice = optim.Adam([*a.parameters(), *b.parameters()])
    assert twice.param_groups[0]["param_names"][3] == "param.3"


def test_state_of_another_rule_and_other_groups_are_refused():
    net = Net()
    adam = optim.Adam(net, 0.1)
    train(net, adam, 1)
    with pytest.raises(ArgumentError, match=r"unexpected  first\.exp_avg"):
        optim.SGD(net).load_state_dict(adam.state_dict())
    split = [{"params": [("first", net.first)]}, {"params": [("second", net.second)]}]
    with pytest.raises(ArgumentError, match="divided into other groups"):
        optim.Adam(split).load_state_dict(adam.state_dict())
    bad = adam.state_dict()
    bad["param_groups"][0]["lr"] = -1.0
    with pytest.raises(ArgumentError, match="expected lr at least 0"):
        adam.load_state_dict(bad)
    assert adam.param_groups[0]["lr"] == 0.1


def test_state_follows_a_converted_model():
    net = Net()
    adam = optim.Adam(net, 0.1)
    train(net, adam, 2)
    net.float()
    for p in net.parameters():
        p.grad = weft.ones(*p.shape)
    adam.step()
    assert net.first.dtype is weft.float32
    assert adam.state[net.first]["exp_avg"].dtype is weft.float32


# -- L-BFGS


def rosenbrock(p):
    return ((1 - p[:-1]) ** 2 + 100 * (p[1:] - p[:-1] ** 2) ** 2).sum()


def minimise(optimizer, loss, steps):
    values = []
    for _ in range(steps):

        def closure():
            optimizer.zero_grad()
            value = loss()
            value.backward()
            return value

        values.append(float(optimizer.step(closure)))
    return values


def test_lbfgs_finds_the_valley_of_rosenbrock():
    p = weft.tensor([-1.2, 1.0, 0.5], dtype=weft.float64, requires_grad=True)
    exact = {"tolerance_grad": 1e-12, "tolerance_change": 1e-20}
    lbfgs = optim.LBFGS([p], line_search_fn="strong_wolfe", **exact)
    losses = minimise(lbfgs, lambda: rosenbrock(p), 8)
    np.testing.assert_allclose(p.detach().numpy(), 1.0, atol=1e-7)
    assert losses[-1] < 1e-12 < losses[0]


def test_lbfgs_solves_a_quadratic():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((4, 4))
    matrix, b = a @ a.T + np.eye(4), rng.standard_normal(4)
    p = weft.zeros(4, dtype=weft.float64).requires_grad_()
    q, c = weft.tensor(matrix), weft.tensor(b)
    exact = {"tolerance_grad": 1e-12, "tolerance_change": 1e-20}
    lbfgs = optim.LBFGS([p], max_iter=60, line_search_fn="strong_wolfe", **exact)
    minimise(lbfgs, lambda: 0.5 * p @ (q @ p) - c @ p, 3)
    expected = np.linalg.solve(matrix, b)
    np.testing.assert_allclose(p.detach().numpy(), expected, atol=1e-8)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_resumes_bit_for_bit(search, tmp_path):
    def make():
        a = weft.tensor([-1.2], dtype=weft.float64, requires_grad=True)
        b = weft.tensor([[1.0, 0.5]], dtype=weft.float64, requires_grad=True)
        lbfgs = optim.LBFGS(
            [("a", a), ("b", b)], lr=0.02, max_iter=4, line_search_fn=search
        )
        return a, b, lbfgs, lambda: rosenbrock(weft.cat([a, b.reshape(-1)]))

    a, b, whole, loss = make()
    minimise(whole, loss, 3)
    weft.save([a.detach(), b.detach(), whole.state_dict()], tmp_path / "state")
    minimise(whole, loss, 3)
    c, d, resumed, loss = make()
    first, second, saved = weft.load(tmp_path / "state")
    with weft.no_grad():
        c.copy_(first)
        d.copy_(second)
    resumed.load_state_dict(saved)
    minimise(resumed, loss, 3)
    assert (bits(a), bits(b)) == (bits(c), bits(d))


def test_lbfgs_refuses_state_of_other_shapes():
    p = weft.tensor([-1.2, 1.0], requires_grad=True)
    lbfgs = optim.LBFGS([("p", p)])
    minimise(lbfgs, lambda: rosenbrock(p), 1)
    saved = lbfgs.state_dict()
    saved["state"][0]["d"] = weft.zeros(3)
    del saved["state"][0]["t"]
    with pytest.raises(ArgumentError, match=r"missing     p\.t") as error:
        lbfgs.load_state_dict(saved)
    assert "wrong shape p.d (2,), got (3,)" in str(error.value)


@pytest.mark.parametrize(
    ("dtype", "close"), [("complex128", 1e-8), ("bfloat16", 0.02), ("float16", 2e-3)]
)
def test_lbfgs_of_other_dtypes(dtype, close):
    dtype = getattr(weft, dtype)
    goal = weft.tensor([1.5, -0.5, 0.25]).to(dtype)
    if dtype.is_complex:
        goal = goal * (1 - 2j)
    p = weft.zeros(3, dtype=dtype).requires_grad_()
    empty = weft.zeros(0, dtype=dtype).requires_grad_()
    lbfgs = optim.LBFGS([p, empty], line_search_fn="strong_wolfe")
    minimise(lbfgs, lambda: (p - goal).abs().square().sum(), 3)
    assert float((p - goal).detach().abs().max()) < close
    assert p.dtype is dtype


def test_numbers_go_on_from_group_to_group():
    params = [Parameter(weft.ones(2)) for _ in range(4)]
    groups = [{"params": params[:2]}, {"params": params[2:3]}, {"params": params[3:]}]
    saved = weft.optim.SGD(groups, lr=0.1).state_dict()
    assert [g["params"] for g in saved["param_groups"]] == [[0, 1], [2], [3]]

"""Optimizers beside the common ones, hooks, and optimizers of the user's own."""

import copy
import pickle

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.optim.optimizer import (
    Optimizer,
    _use_grad_for_differentiable,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
    required,
)

RNG = np.random.default_rng(0)


def parameters(*shapes):
    return [nn.Parameter(weft.tensor(RNG.standard_normal(s))) for s in shapes]


def run(made, params, grads):
    for step in grads:
        for p, g in zip(params, step, strict=True):
            p.grad = weft.tensor(g)
        made.step()


# -- rules, in NumPy


def rprop(p, gs, lr=0.01, less=0.5, more=1.2, low=1e-6, high=50):
    prev, size = np.zeros_like(p), np.full_like(p, lr)
    for g in gs:
        sign = np.sign(g * prev)
        size = np.clip(
            size * np.select([sign > 0, sign < 0], [more, less], 1), low, high
        )
        g = np.where(sign < 0, 0, g)
        p = p - np.sign(g) * size
        prev = g
    return p


def asgd(p, gs, lr=0.01, lambd=1e-4, alpha=0.75, t0=1e6, decay=0.0):
    eta, mu, ax = lr, 1.0, np.zeros_like(p)
    for step, g in enumerate(gs, 1):
        g = g + decay * p
        p = p * (1 - lambd * eta) - eta * g
        ax = ax + (p - ax) * mu
        eta = lr / (1 + lambd * lr * step) ** alpha
        mu = 1 / max(1, step - t0)
    return p, ax


def adafactor(p, gs, lr=0.01, decay=-0.8, scale=1e-3, d=1.0, weight_decay=0.0):
    small = np.finfo(p.dtype).eps
    row, column, var = 0.0, 0.0, 0.0
    for step, g in enumerate(gs, 1):
        share = step**decay
        rate = min(lr, 1 / np.sqrt(step))
        alpha = max(scale, np.linalg.norm(p) / np.sqrt(p.size)) * rate
        p = p * (1 - lr * weight_decay)
        if p.ndim > 1:
            row = row + share * ((g * g).mean(-1, keepdims=True) - row)
            column = column + share * ((g * g).mean(-2, keepdims=True) - column)
            estimate = row @ column / np.maximum(row.mean(-2, keepdims=True), small)
        else:
            estimate = var = var + share * (g * g - var)
        update = g / np.sqrt(np.maximum(estimate, small**2))
        denominator = max(1, np.linalg.norm(update) / (np.sqrt(p.size) * d))
        p = p - alpha / denominator * update
    return p


def test_rprop():
    gs = RNG.standard_normal((5, 3))
    (p,) = parameters(3)
    expected = rprop(p.detach().numpy().copy(), gs)
    run(optim.Rprop([p]), [p], [[g] for g in gs])
    assert np.allclose(p.detach(), expected)
    with pytest.raises(ValueError, match="etas"):
        optim.Rprop([p], etas=(1.5, 1.2))


def test_asgd():
    gs = RNG.standard_normal((5, 3))
    (p,) = parameters(3)
    first = p.detach().numpy().copy()
    made = optim.ASGD([p], lr=0.1, t0=2, weight_decay=0.1)
    expected, mean = asgd(first, gs, lr=0.1, t0=2, decay=0.1)
    run(made, [p], [[g] for g in gs])
    assert np.allclose(p.detach(), expected)
    assert np.allclose(made.state[p]["ax"], mean)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
def test_adafactor(shape):
    gs = RNG.standard_normal((4, *shape))
    (p,) = parameters(shape)
    expected = adafactor(p.detach().numpy().copy(), gs, lr=0.3, weight_decay=0.1)
    run(optim.Adafactor([p], lr=0.3, weight_decay=0.1), [p], [[g] for g in gs])
    assert np.allclose(p.detach(), expected, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 6), (6, 3)])
def test_muon_makes_singular_values_alike(shape):
    (p,) = parameters(shape)
    before = p.detach().numpy().copy()
    p.grad = weft.tensor(RNG.standard_normal(shape))
    optim.Muon([p], lr=1.0, weight_decay=0.0).step()
    moved = before - p.detach().numpy()
    values = np.linalg.svd(moved, compute_uv=False) / max(1, shape[0] / shape[1]) ** 0.5
    assert (values > 0.4).all()
    assert (values < 1.5).all()
    with pytest.raises(ValueError, match="matrices"):
        optim.Muon(parameters(3))
    with pytest.raises(ValueError, match="adjust_lr_fn"):
        optim.Muon(parameters((2, 2)), adjust_lr_fn="x")
    with pytest.raises(ValueError, match="ns_steps"):
        optim.Muon(parameters((2, 2)), ns_steps=100)


def test_sparse_adam_refuses_dense_gradients():
    (p,) = parameters(2)
    p.grad = weft.ones_like(p)
    with pytest.raises(RuntimeError, match="consider Adam"):
        optim.SparseAdam([p]).step()


MAKERS = {
    "Rprop": lambda ps: optim.Rprop(ps),
    "ASGD": lambda ps: optim.ASGD(ps, t0=1),
    "Adafactor": lambda ps: optim.Adafactor(ps),
    "Muon": lambda ps: optim.Muon(ps),
}


@pytest.mark.parametrize("name", MAKERS)
def test_compiled_steps_are_the_eager_ones(name):
    weft.manual_seed(0)
    first = nn.Linear(4, 3, bias=False)
    second = copy.deepcopy(first)
    x = weft.randn(5, 4)

    def trained(model):
        made = MAKERS[name](list(model.parameters()))

        def step(x):
            made.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            made.step()
            return loss

        return step

    eager, compiled = trained(first), weft.compile(trained(second))
    for _ in range(4):
        assert np.allclose(eager(x).detach(), compiled(x).detach(), atol=1e-5)
    tolerance = 2e-2 if name == "Muon" else 1e-5  # bfloat16 inside
    assert np.allclose(first.weight.detach(), second.weight.detach(), atol=tolerance)


# -- hooks


def test_hooks_of_steps():
    (p,) = parameters(2)
    p.grad = weft.ones_like(p)
    made, seen = optim.SGD([p], lr=0.1), []
    handle = made.register_step_pre_hook(lambda o, args, kw: seen.append("before"))
    made.register_step_post_hook(lambda o, args, kw: seen.append("after"))
    with register_optimizer_step_pre_hook(lambda *rest: seen.append("all before")):
        with register_optimizer_step_post_hook(lambda *rest: seen.append("all after")):
            made.step()
    assert seen == ["all before", "before", "after", "all after"]
    handle.remove()
    made.step()
    assert seen[4:] == ["after"]
    made.register_step_pre_hook(lambda o, args, kw: 3)
    with pytest.raises(RuntimeError, match="new_args"):
        made.step()


def test_hooks_of_saved_state():
    (p,) = parameters(2)
    made, seen = optim.SGD([p], lr=0.1), []
    made.register_state_dict_pre_hook(lambda o: seen.append("pre"))
    made.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    state = made.state_dict()
    assert seen == ["pre"]
    assert state["more"] == 1
    made.register_load_state_dict_pre_hook(
        lambda o, state: {k: v for k, v in state.items() if k != "more"}
    )
    made.register_load_state_dict_post_hook(lambda o: seen.append("loaded"))
    made.load_state_dict(state)
    assert seen == ["pre", "loaded"]


# -- optimizers of the user's own


class Momentum(Optimizer):
    """As programs for PyTorch write one."""

    def __init__(self, params, lr=required, momentum=0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @_use_grad_for_differentiable
    def step(self, closure=None):
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = weft.tensor(0.0)
                    state["velocity"] = weft.zeros_like(p)
                state["step"] += 1
                state["velocity"].mul_(group["momentum"]).add_(p.grad)
                p.add_(state["velocity"], alpha=-group["lr"])
        return loss


def test_an_optimizer_of_ones_own():
    (p,) = parameters(3)
    gs = RNG.standard_normal((4, 3))
    expected, velocity = p.detach().numpy().copy(), 0.0
    made = Momentum([p], lr=0.1)
    for g in gs[:2]:
        p.grad = weft.tensor(g)
        made.step()
    state = made.state_dict()
    assert set(state["param_groups"][0]) == {"lr", "momentum", "params"}
    other = Momentum([p], lr=0.5)
    other.load_state_dict(state)
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert twin.param_groups[0]["lr"] == 0.1
    for g in gs[2:]:
        p.grad = weft.tensor(g)
        other.step()
    for g in gs:
        velocity = 0.9 * velocity + g
        expected = expected - 0.1 * velocity
    assert np.allclose(p.detach(), expected)
    with pytest.raises(ValueError, match="required optimization parameter lr"):
        Momentum([p])
    assert repr(required) == "<required parameter>"


def test_an_optimizer_of_ones_own_is_compiled():
    weft.manual_seed(1)
    first = nn.Linear(3, 2)
    second = copy.deepcopy(first)
    x = weft.randn(4, 3)

    def trained(model):
        made = Momentum(model.parameters(), lr=0.1)

        def step(x):
            made.zero_grad()
            (model(x) ** 2).sum().backward()
            made.step()

        return step

    eager, other = trained(first), trained(second)
    compiled = weft.compile(other)
    eager(x)
    other(x)  # makes its state, which a captured step can only change
    for _ in range(2):
        eager(x)
        compiled(x)
    assert np.allclose(first.weight.detach(), second.weight.detach(), atol=1e-5)


def test_a_schedule_of_ones_own():
    class Halve(optim.lr_scheduler._LRScheduler):
        def get_lr(self):
            return [base * 0.5**self.last_epoch for base in self.base_lrs]

    made = Momentum(parameters(1), lr=1.0)
    schedule = Halve(made)
    made.step()
    schedule.step()
    assert schedule.get_last_lr() == [0.5]
    assert isinstance(schedule, optim.lr_scheduler.LRScheduler)


def test_options_without_effect_and_those_that_are_refused():
    (p,) = parameters(2)
    optim.Adam([p], fused=True, capturable=True)
    optim.SGD([p], lr=0.1, foreach=True)
    with pytest.raises(ValueError, match="differentiable=True"):
        optim.Adam([p], differentiable=True)
    with pytest.raises(ValueError, match="fused or foreach"):
        optim.AdamW([p], fused=True, foreach=True)


def test_defaults_are_those_given():
    (p,) = parameters(2)
    assert Momentum([p], lr=0.1).defaults == {"lr": 0.1, "momentum": 0.9}
    assert optim.SGD([p], lr=0.1).state[p] == {}


def test_state_that_counts_no_steps_is_not_the_first():
    (p,) = parameters(2)
    made = optim.SGD([p], lr=0.1, momentum=0.9, dampening=0.5)
    before = p.detach().numpy().copy()
    state = made.state_dict()
    state["state"] = {0: {"momentum_buffer": weft.ones(2).double()}}
    made.load_state_dict(state)
    p.grad = weft.ones_like(p)
    made.step()
    assert np.allclose(p.detach(), before - 0.1 * (0.9 + 0.5))

"""Optimizers and schedules against PyTorch's trajectories."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import weft
import weft.nn.utils
import weft.optim

torch = pytest.importorskip("torch", reason="compares with PyTorch, not installed")

STEPS = 20
SHAPES = [(3, 2), (4,), ()]


def problem(lib, optimizer, steps=STEPS, **options):
    """Where two groups of parameters go under an optimizer of either library."""
    rng = np.random.default_rng(7)
    params = [
        lib.tensor(rng.standard_normal(s), dtype=lib.float64, requires_grad=True)
        for s in SHAPES
    ]
    groups = [{"params": params[:2]}, {"params": params[2:], "lr": 0.03}]
    made = getattr(lib.optim, optimizer)(groups, **options)
    path = []
    for t in range(steps):
        made.zero_grad()
        total = sum(((p - 0.3) ** 2 * (k + 1)).sum() for k, p in enumerate(params))
        total = total + (params[0].sum() * params[1].sum()).sin()
        (-total if options.get("maximize") else total).backward()
        if t % 3 == 2:
            params[1].grad = None  # skipped now and then
        made.step()
        path.append(np.concatenate([p.detach().numpy().ravel() for p in params]))
    return np.array(path)


def grid(**choices):
    keys = list(choices)
    rows = itertools.product(*choices.values())
    return [dict(zip(keys, row, strict=True)) for row in rows]


def flags(*names):
    return dict.fromkeys(names, (False, True))


GRIDS = {
    "SGD": [
        *grid(lr=[0.05], momentum=[0, 0.9], dampening=[0, 0.3], weight_decay=[0, 0.1],
              **flags("maximize")),
        *grid(lr=[0.05], momentum=[0.9], nesterov=[True], weight_decay=[0, 0.1]),
    ],
    "Adam": grid(lr=[0.05], betas=[(0.9, 0.999), (0.5, 0.7)], weight_decay=[0, 0.1],
                 **flags("amsgrad", "maximize", "decoupled_weight_decay")),
    "AdamW": grid(lr=[0.05], weight_decay=[0, 0.01, 0.3], eps=[1e-8, 1e-2],
                  **flags("amsgrad", "maximize")),
    "RMSprop": grid(lr=[0.02], alpha=[0.9, 0.99], momentum=[0, 0.7],
                    weight_decay=[0, 0.1], **flags("centered", "maximize")),
    "Adagrad": grid(lr=[0.1], lr_decay=[0, 0.2], weight_decay=[0, 0.1],
                    initial_accumulator_value=[0, 0.3], **flags("maximize")),
    "Adadelta": grid(lr=[1.0, 0.3], rho=[0.9, 0.6], weight_decay=[0, 0.1],
                     **flags("maximize")),
    "Adamax": grid(lr=[0.05], betas=[(0.9, 0.999), (0.5, 0.7)], weight_decay=[0, 0.1],
                   **flags("maximize")),
    "NAdam": grid(lr=[0.05], momentum_decay=[4e-3, 0.3], weight_decay=[0, 0.1],
                  **flags("decoupled_weight_decay", "maximize")),
    "RAdam": grid(lr=[0.05], betas=[(0.9, 0.999), (0.5, 0.7)], weight_decay=[0, 0.1],
                  **flags("decoupled_weight_decay", "maximize")),
}  # fmt: skip
RUNS = [(name, options) for name, rows in GRIDS.items() for options in rows]


@pytest.fixture
def wide_scalars():
    """PyTorch keeps NAdam's product of momenta in the default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("wide_scalars")
@pytest.mark.parametrize(("name", "options"), RUNS, ids=str)
def test_trajectories_agree(name, options):
    ours, theirs = problem(weft, name, **options), problem(torch, name, **options)
    assert np.isfinite(theirs).all()
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


def quasi_newton(lib, **options):
    rng = np.random.default_rng(8)
    a = lib.tensor(rng.standard_normal(3), dtype=lib.float64, requires_grad=True)
    b = lib.tensor(rng.standard_normal((2, 2)), dtype=lib.float64, requires_grad=True)
    lbfgs = lib.optim.LBFGS([a, b], **options)

    def closure():
        lbfgs.zero_grad()
        p = lib.cat([a, b.reshape(-1)])
        loss = ((1 - p[:-1]) ** 2 + 5 * (p[1:] - p[:-1] ** 2) ** 2).sum()
        loss.backward()
        return loss

    path = []
    for _ in range(6):
        loss = lbfgs.step(closure).detach().numpy().reshape(1)
        values = [loss, a.detach().numpy(), b.detach().numpy().ravel()]
        path.append(np.concatenate(values).copy())
    return np.array(path)


@pytest.mark.parametrize("line_search_fn", [None, "strong_wolfe"])
@pytest.mark.parametrize("history_size", [2, 100])
@pytest.mark.parametrize("limits", [(3, None), (4, 6), (20, None)], ids=str)
def test_lbfgs_agrees(line_search_fn, history_size, limits):
    options = {
        "lr": 1 if line_search_fn else 0.05, "history_size": history_size,
        "max_iter": limits[0], "max_eval": limits[1], "line_search_fn": line_search_fn,
    }  # fmt: skip
    ours, theirs = quasi_newton(weft, **options), quasi_newton(torch, **options)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


# -- schedules


def half(epoch):
    return 0.95**epoch


def nearly(epoch):
    return 0.9 + 0.01 * (epoch % 3)


def sequential(s, optimizer):
    return s.SequentialLR(
        optimizer,
        [
            s.ConstantLR(optimizer, 0.1, 20),
            s.ExponentialLR(optimizer, 0.9),
            s.CosineAnnealingLR(optimizer, 15, 1e-3),
        ],
        [10, 25],
    )


def chained(s, optimizer):
    return s.ChainedScheduler(
        [s.LinearLR(optimizer, 0.1, total_iters=7), s.ExponentialLR(optimizer, 0.97)]
    )


SCHEDULES = {
    "StepLR": lambda s, o: s.StepLR(o, 7, 0.3),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [20, 3, 3, 35], 0.5),
    "ConstantLR": lambda s, o: s.ConstantLR(o, 0.25, 10),
    "LinearLR": lambda s, o: s.LinearLR(o, 0.2, 0.9, 30),
    "LinearLR falling": lambda s, o: s.LinearLR(o, 1.0, 0.0, 20),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.93),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o, 30, 1.7),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 12, 1e-3),
    "CosineAnnealingLR long": lambda s, o: s.CosineAnnealingLR(o, 60),
    "WarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 7),
    "WarmRestarts doubling": lambda s, o: s.CosineAnnealingWarmRestarts(o, 5, 2, 1e-4),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, 0.5, total_steps=50),
    "OneCycleLR linear": lambda s, o: s.OneCycleLR(
        o, [0.5, 0.1], epochs=5, steps_per_epoch=11, anneal_strategy="linear",
        pct_start=0.4, div_factor=7, final_div_factor=30,
    ),
    "OneCycleLR three phases": lambda s, o: s.OneCycleLR(
        o, 0.5, total_steps=60, three_phase=True
    ),
    "OneCycleLR plain": lambda s, o: s.OneCycleLR(
        o, 0.5, total_steps=60, cycle_momentum=False
    ),
    "CyclicLR": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 8),
    "CyclicLR triangular2": lambda s, o: s.CyclicLR(
        o, [0.01, 0.02], 0.1, 4, 9, mode="triangular2"
    ),
    "CyclicLR exp_range": lambda s, o: s.CyclicLR(
        o, 0.01, 0.1, 6, mode="exp_range", gamma=0.97, cycle_momentum=False
    ),
    "CyclicLR function": lambda s, o: s.CyclicLR(
        o, 0.01, 0.1, 6, scale_fn=half, scale_mode="iterations"
    ),
    "LambdaLR": lambda s, o: s.LambdaLR(o, [half, nearly]),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, nearly),
    "ChainedScheduler": chained,
    "SequentialLR": sequential,
}  # fmt: skip


def averaging_lr(how, epochs):
    def make(s, optimizer):
        swa = weft.optim.swa_utils if s is weft.optim.lr_scheduler else SWA
        return swa.SWALR(optimizer, 0.01, epochs, how)

    return make


SWA = pytest.importorskip("torch.optim.swa_utils")
SCHEDULES |= {
    "SWALR": averaging_lr("cos", 10),
    "SWALR linear": averaging_lr("linear", 4),
    "SWALR at once": averaging_lr("linear", 0),
}


def schedule_path(lib, make, optimizer, last):
    a, b = (lib.ones(1, requires_grad=True) for _ in range(2))
    kind = getattr(lib.optim, optimizer)
    extra = {"momentum": 0.9} if optimizer == "SGD" else {}
    made = kind([{"params": [a]}, {"params": [b], "lr": 0.3}], lr=0.05, **extra)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's about the order of steps
        schedule = make(lib.optim.lr_scheduler, made)
        path = []
        for _ in range(last):
            row = [*schedule.get_last_lr()]
            for group in made.param_groups:
                row += [group["lr"], group.get("momentum", 0), *group.get("betas", ())]
            path.append(row)
            schedule.step()
    return np.array(path)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_agree(name, optimizer):
    make = SCHEDULES[name]
    ours = schedule_path(weft, make, optimizer, 50)
    theirs = schedule_path(torch, make, optimizer, 50)
    np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
@pytest.mark.parametrize("rest", [{}, {"cooldown": 3, "min_lr": 0.01}])
def test_plateau_agrees(mode, threshold_mode, rest):
    metrics = np.random.default_rng(0).uniform(-1, 2, 50).round(1).tolist()
    paths = []
    for lib in (weft, torch):
        sgd = lib.optim.SGD([lib.ones(1, requires_grad=True)], lr=1.0)
        schedule = lib.optim.lr_scheduler.ReduceLROnPlateau(
            sgd, mode, 0.5, 2, threshold=0.05, threshold_mode=threshold_mode, **rest
        )
        path = []
        for metric in metrics:
            schedule.step(metric)
            path += schedule.get_last_lr()
        paths.append(path)
    assert paths[0] == paths[1]
    assert len(set(paths[0])) > 2


@pytest.mark.parametrize("epoch", [0, 3, 4.5, 5, 14, 15, 34.25, 50])
@pytest.mark.parametrize("grow", [1, 2, 3])
def test_restarts_jump_to_an_epoch_alike(epoch, grow):
    rates = []
    for lib in (weft, torch):
        sgd = lib.optim.SGD([lib.ones(1, requires_grad=True)], lr=1.0)
        s = lib.optim.lr_scheduler.CosineAnnealingWarmRestarts(sgd, 5, grow)
        s.step(epoch)
        rates.append(s.get_last_lr())
    np.testing.assert_allclose(*rates, rtol=1e-12)


# -- averages and clipping


@pytest.mark.parametrize("norm_type", [1, 2.0, 3, float("inf")])
@pytest.mark.parametrize("max_norm", [0.0, 0.5, 100.0])
def test_clipping_agrees(norm_type, max_norm):
    rng = np.random.default_rng(0)
    grads = [rng.standard_normal(s) for s in [(2, 3), (4,), ()]]
    found = []
    for lib, utils in ((weft, weft.nn.utils), (torch, torch.nn.utils)):
        params = [lib.zeros(g.shape, dtype=lib.float64) for g in grads]
        for p, g in zip(params, grads, strict=True):
            p.requires_grad_()
            p.grad = lib.tensor(g)
        total = utils.clip_grad_norm_(params, max_norm, norm_type)
        utils.clip_grad_value_(params, 0.3)
        found.append([float(total), *(p.grad.numpy() for p in params)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)

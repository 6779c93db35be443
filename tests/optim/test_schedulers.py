"""Schedules: the curve each one is named after, going on after a break, mistakes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, DTypeError

lrs = weft.optim.lr_scheduler
BASE = (0.5, 2.0)


def make_optimizer(kind="SGD", rates=BASE):
    groups = [{"params": [weft.ones(1, requires_grad=True)], "lr": r} for r in rates]
    extra = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(weft.optim, kind)(groups, lr=1.0, **extra)


def rates_of(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


def curve(make, steps=40):
    """The rates of both groups, from the first epoch on."""
    optimizer = make_optimizer()
    schedule = make(optimizer)
    rows = []
    for _ in range(steps):
        rows.append(rates_of(optimizer))
        assert schedule.get_last_lr() == rows[-1]
        schedule.step()
    return np.array(rows)


def cosine(part):
    return (1 + math.cos(math.pi * part)) / 2


def restarts(epoch, first, grow):
    length = first
    while epoch >= length:
        epoch -= length
        length *= grow
    return cosine(epoch / length)


CURVES = {
    "step": (lambda o: lrs.StepLR(o, 7, 0.5), lambda e: 0.5 ** (e // 7)),
    "milestones": (
        lambda o: lrs.MultiStepLR(o, [5, 20, 5], 0.5),
        lambda e: 0.5 ** (2 * (e >= 5) + (e >= 20)),
    ),
    "constant": (
        lambda o: lrs.ConstantLR(o, 0.25, 6),
        lambda e: 1.0 if e >= 6 else 0.25,
    ),
    "constant from nothing": (
        lambda o: lrs.ConstantLR(o, 0.0, 6),
        lambda e: float(e >= 6),
    ),
    "linear": (
        lambda o: lrs.LinearLR(o, 0.1, 0.7, 12),
        lambda e: 0.1 + 0.6 * min(e, 12) / 12,
    ),
    "exponential": (lambda o: lrs.ExponentialLR(o, 0.9), lambda e: 0.9**e),
    "polynomial": (
        lambda o: lrs.PolynomialLR(o, 30, 2.0),
        lambda e: (1 - min(e, 30) / 30) ** 2,
    ),
    "cosine": (lambda o: lrs.CosineAnnealingLR(o, 10), lambda e: cosine(e / 10)),
    "restarts": (
        lambda o: lrs.CosineAnnealingWarmRestarts(o, 4, 2),
        lambda e: restarts(e, 4, 2),
    ),
    "lambda": (
        lambda o: lrs.LambdaLR(o, lambda e: 1 / (1 + e)),
        lambda e: 1 / (1 + e),
    ),
    "multiplicative": (
        lambda o: lrs.MultiplicativeLR(o, lambda e: 0.5 if e % 3 == 0 else 1.0),
        lambda e: 0.5 ** (e // 3),
    ),
    "chained": (
        lambda o: lrs.ChainedScheduler(
            [lrs.ExponentialLR(o, 0.9), lrs.StepLR(o, 5, 0.5)]
        ),
        lambda e: 0.9**e * 0.5 ** (e // 5),
    ),
    "sequential": (
        lambda o: lrs.SequentialLR(
            o, [lrs.ConstantLR(o, 0.5, 99), lrs.ExponentialLR(o, 0.9)], [8]
        ),
        lambda e: 0.5 if e < 8 else 0.9 ** (e - 8),
    ),
    "sequence of a chain": (
        lambda o: lrs.SequentialLR(
            o,
            [
                lrs.ChainedScheduler(
                    [lrs.ExponentialLR(o, 0.9), lrs.StepLR(o, 3, 0.5)]
                ),
                lrs.ExponentialLR(o, 0.8),
            ],
            [10],
        ),
        lambda e: 0.9**e * 0.5 ** (e // 3) if e < 10 else 0.8 ** (e - 10),
    ),
    "warm-up": (
        lambda o: lrs.WarmupLR(o, 5, lrs.CosineAnnealingLR(o, 20)),
        lambda e: (e + 1) / 5 if e < 5 else cosine((e - 4) / 20),
    ),
    "warm-up alone": (lambda o: lrs.WarmupLR(o, 8), lambda e: min(1, (e + 1) / 8)),
}


@pytest.mark.parametrize("name", CURVES)
def test_the_curve(name):
    make, expected = CURVES[name]
    values = np.array([expected(e) for e in range(40)])[:, None] * BASE
    # Rates are chained from the last one, so zeros come back as rounding errors.
    np.testing.assert_allclose(curve(make), values, rtol=1e-11, atol=1e-15)


def test_floors_are_kept():
    low = curve(lambda o: lrs.CosineAnnealingLR(o, 10, eta_min=0.1), 11)
    np.testing.assert_allclose(low[-1], 0.1, rtol=1e-12)
    low = curve(lambda o: lrs.CosineAnnealingWarmRestarts(o, 10, eta_min=0.1), 10)
    expected = 0.1 + (np.array(BASE) - 0.1) * cosine(0.9)
    np.testing.assert_allclose(low[-1], expected, rtol=1e-12)


def test_cyclic_goes_up_and_down_and_momentum_the_other_way():
    sgd = make_optimizer()
    schedule = lrs.CyclicLR(sgd, 0.1, 0.5, step_size_up=2, step_size_down=4)
    seen = []
    for _ in range(7):
        group = sgd.param_groups[0]
        seen.append((round(group["lr"], 12), round(group["momentum"], 12)))
        schedule.step()
    assert [lr for lr, _ in seen] == [0.1, 0.3, 0.5, 0.4, 0.3, 0.2, 0.1]
    assert [m for _, m in seen] == [0.9, 0.85, 0.8, 0.825, 0.85, 0.875, 0.9]


def test_one_cycle_starts_peaks_and_ends_where_it_says():
    adam = make_optimizer("Adam")
    schedule = lrs.OneCycleLR(adam, 1.0, total_steps=11, pct_start=4 / 11)
    rows = []
    for step in range(11):
        group = adam.param_groups[0]
        rows.append((group["lr"], group["betas"][0]))
        if step < 10:
            schedule.step()
    np.testing.assert_allclose(rows[0], (1 / 25, 0.95), rtol=1e-12)
    np.testing.assert_allclose(rows[3], (1.0, 0.85), rtol=1e-12)
    np.testing.assert_allclose(rows[10], (1 / 25 / 1e4, 0.95), rtol=1e-12)
    schedule.step()
    with pytest.raises(ArgumentError, match="beyond the 11 steps"):
        schedule.step()


def test_plateau_waits_and_cools_down():
    sgd = make_optimizer(rates=(1.0,))
    schedule = lrs.ReduceLROnPlateau(
        sgd, factor=0.5, patience=1, cooldown=2, min_lr=0.2
    )
    rates = []
    for loss in [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]:
        schedule.step(weft.tensor(loss))
        rates += schedule.get_last_lr()
    assert rates == [1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.2]


def test_a_schedule_moves_the_training_itself():
    p = weft.zeros(1, requires_grad=True)
    sgd = weft.optim.SGD([p], lr=1.0)
    schedule = lrs.ExponentialLR(sgd, 0.5)
    for _ in range(4):
        p.grad = weft.ones(1)
        sgd.step()
        schedule.step()
    assert float(p.detach()) == -(1 + 0.5 + 0.25 + 0.125)


# -- going on


RESUMABLE = {
    **{name: make for name, (make, _) in CURVES.items()},
    "cyclic": lambda o: lrs.CyclicLR(o, 0.01, 0.1, 5, mode="triangular2"),
    "one cycle": lambda o: lrs.OneCycleLR(o, 0.3, total_steps=40),
    "averaging": lambda o: weft.optim.swa_utils.SWALR(o, 0.01, 15),
}


@pytest.mark.parametrize("name", RESUMABLE)
def test_a_schedule_goes_on_exactly_from_a_file(name, tmp_path):
    make = RESUMABLE[name]
    whole = make_optimizer()
    schedule = make(whole)
    for _ in range(11):
        schedule.step()
    state = {"optimizer": whole.state_dict(), "schedule": schedule.state_dict()}
    weft.save(state, tmp_path / "state")

    resumed = make_optimizer()
    again = make(resumed)
    saved = weft.load(tmp_path / "state")
    resumed.load_state_dict(saved["optimizer"])
    again.load_state_dict(saved["schedule"])
    assert again.get_last_lr() == schedule.get_last_lr()
    for _ in range(11):
        schedule.step()
        again.step()
        assert rates_of(whole) == rates_of(resumed)
        assert [g["momentum"] for g in whole.param_groups] == [
            g["momentum"] for g in resumed.param_groups
        ]


def test_plateau_goes_on_exactly(tmp_path):
    losses = np.random.default_rng(0).uniform(0, 1, 30)
    whole = make_optimizer()
    schedule = lrs.ReduceLROnPlateau(whole, patience=2, cooldown=1, factor=0.7)
    for loss in losses[:15]:
        schedule.step(loss)
    weft.save([whole.state_dict(), schedule.state_dict()], tmp_path / "state")
    resumed = make_optimizer()
    again = lrs.ReduceLROnPlateau(resumed, patience=2, cooldown=1, factor=0.7)
    optimizer_state, schedule_state = weft.load(tmp_path / "state")
    resumed.load_state_dict(optimizer_state)
    again.load_state_dict(schedule_state)
    for loss in losses[15:]:
        schedule.step(loss)
        again.step(loss)
        assert rates_of(whole) == rates_of(resumed)
    assert rates_of(whole) != list(BASE)


def test_a_schedule_can_be_built_at_a_later_epoch():
    first = make_optimizer()
    schedule = lrs.StepLR(first, 3, 0.5)
    for _ in range(4):
        schedule.step()
    second = make_optimizer()
    second.load_state_dict(first.state_dict())
    later = lrs.StepLR(second, 3, 0.5, last_epoch=3)
    assert later.last_epoch == 4
    for _ in range(5):
        schedule.step()
        later.step()
        assert rates_of(first) == rates_of(second)


def test_steps_to_a_given_epoch_use_the_closed_form():
    for make, expected in (CURVES[k] for k in ("step", "linear", "cosine", "warm-up")):
        optimizer = make_optimizer()
        schedule = make(optimizer)
        schedule.step(17)
        values = np.array(BASE) * expected(17)
        np.testing.assert_allclose(rates_of(optimizer), values, rtol=1e-12)


def test_state_of_another_schedule_is_refused():
    optimizer = make_optimizer()
    step, chain = lrs.StepLR(optimizer, 3), lrs.ExponentialLR(optimizer, 0.5)
    with pytest.raises(ArgumentError, match="missing step_size"):
        step.load_state_dict(chain.state_dict())
    several = lrs.ChainedScheduler([step, chain])
    with pytest.raises(ArgumentError, match="state of 2 schedulers, got 0"):
        several.load_state_dict(step.state_dict())


MISTAKES = {
    "no optimizer": (lambda o: lrs.StepLR([1], 3), DTypeError, "expected an optimizer"),
    "no period": (lambda o: lrs.StepLR(o, 0), ArgumentError, "step_size to be an int"),
    "factor": (lambda o: lrs.ConstantLR(o, 1.5), ArgumentError, r"factor in \[0, 1\]"),
    "start": (lambda o: lrs.LinearLR(o, 0.0), ArgumentError, "start_factor above 0"),
    "lists": (
        lambda o: lrs.LambdaLR(o, [abs] * 3),
        ArgumentError,
        "each of the 2 groups",
    ),
    "functions": (
        lambda o: lrs.LambdaLR(o, 0.5),
        DTypeError,
        "a function of the epoch",
    ),
    "later": (
        lambda o: lrs.StepLR(o, 3, last_epoch=4),
        ArgumentError,
        "no 'initial_lr'",
    ),
    "cycle": (
        lambda o: lrs.CyclicLR(o, 0.1, 1.0, mode="square"),
        ArgumentError,
        "'square'",
    ),
    "one cycle": (lambda o: lrs.OneCycleLR(o, 1.0), ArgumentError, "total_steps, or"),
    "no schedulers": (
        lambda o: lrs.ChainedScheduler([]),
        ArgumentError,
        "at least one",
    ),
    "milestones": (
        lambda o: lrs.SequentialLR(o, [lrs.StepLR(o, 1)], [3]),
        ArgumentError,
        r"between each two schedulers \(0\), got 1",
    ),
    "plateau inside": (
        lambda o: lrs.ChainedScheduler([lrs.ReduceLROnPlateau(o)]),
        DTypeError,
        "takes no metric",
    ),
    "two optimizers": (
        lambda o: lrs.ChainedScheduler(
            [lrs.StepLR(o, 1), lrs.StepLR(make_optimizer(), 1)]
        ),
        ArgumentError,
        "several optimizers",
    ),
    "plateau's factor": (
        lambda o: lrs.ReduceLROnPlateau(o, factor=1.0),
        ArgumentError,
        "factor below 1",
    ),
    "plateau's mode": (
        lambda o: lrs.ReduceLROnPlateau(o, "down"),
        ArgumentError,
        "'min', 'max'",
    ),
    "restart": (
        lambda o: lrs.CosineAnnealingWarmRestarts(o, 3).step(-1),
        ArgumentError,
        "at least 0, got -1",
    ),
    "warm-up": (lambda o: lrs.WarmupLR(o, 0), ArgumentError, "warmup_steps"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_refused_with_words(mistake):
    make, kind, words = MISTAKES[mistake]
    with pytest.raises(kind, match=words):
        make(make_optimizer())


def test_momentum_cannot_be_cycled_without_one():
    adagrad = weft.optim.Adagrad([weft.ones(1, requires_grad=True)])
    with pytest.raises(ArgumentError, match="pass cycle_momentum=False"):
        lrs.OneCycleLR(adagrad, 1.0, total_steps=5)
    lrs.OneCycleLR(adagrad, 1.0, total_steps=5, cycle_momentum=False)

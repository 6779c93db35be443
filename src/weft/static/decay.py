"""Learning rates that fall with a step counter, as nodes."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft.dtype import float64
from weft.errors import ArgumentError
from weft.static.building import as_node, function


def _like(rate: Any, learning_rate: Any) -> Any:
    """The rate in the dtype of the first one; of a number, in double precision."""
    given = isinstance(learning_rate, weft.Tensor)
    return rate.to(learning_rate.dtype) if given else rate


def _done(global_step: Any, decay_steps: Any, staircase: bool = False) -> Any:
    """How many times the decay's length has passed."""
    done = as_node(global_step).to(float64) / decay_steps
    return done.floor() if staircase else done


@function
def exponential_decay(
    learning_rate: Any, global_step: Any, decay_steps: float, decay_rate: float,
    staircase: bool = False,
) -> Any:  # fmt: skip
    """``rate decay_rate ** (step / decay_steps)``.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     step = weft.static.Variable(20, trainable=False)
    ...     rate = weft.static.train.exponential_decay(1.0, step, 10, 0.5)
    ...     session.run(weft.static.global_variables_initializer())
    ...     float(session.run(rate))
    0.25
    """
    done = _done(global_step, decay_steps, staircase)
    return _like(learning_rate * decay_rate**done, learning_rate)


@function
def natural_exp_decay(
    learning_rate: Any, global_step: Any, decay_steps: float, decay_rate: float,
    staircase: bool = False,
) -> Any:  # fmt: skip
    """``rate exp(-decay_rate step / decay_steps)``.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     rate = weft.static.train.natural_exp_decay(1.0, 0, 10, 0.5)
    ...     float(session.run(rate))
    1.0
    """
    done = _done(global_step, decay_steps, staircase)
    return _like(learning_rate * weft.exp(-decay_rate * done), learning_rate)


@function
def inverse_time_decay(
    learning_rate: Any, global_step: Any, decay_steps: float, decay_rate: float,
    staircase: bool = False,
) -> Any:  # fmt: skip
    """``rate / (1 + decay_rate step / decay_steps)``.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     float(session.run(weft.static.train.inverse_time_decay(1.0, 10, 10, 1.0)))
    0.5
    """
    done = _done(global_step, decay_steps, staircase)
    return _like(learning_rate / (1 + decay_rate * done), learning_rate)


@function
def polynomial_decay(
    learning_rate: Any, global_step: Any, decay_steps: float,
    end_learning_rate: float = 0.0001, power: float = 1.0, cycle: bool = False,
) -> Any:  # fmt: skip
    """From one rate to another along ``(1 - step / decay_steps) ** power``.

    ``cycle`` begins again when the end is reached, with a longer decay each time.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     float(session.run(weft.static.train.polynomial_decay(1.0, 5, 10, 0.0)))
    0.5
    """
    step = as_node(global_step).to(float64)
    if cycle:
        times = weft.clamp((step / decay_steps).ceil(), 1)
        share = step / (decay_steps * times)
    else:
        share = weft.clamp(step, None, decay_steps) / decay_steps
    fall = (learning_rate - end_learning_rate) * (1 - share) ** power
    return _like(fall + end_learning_rate, learning_rate)


@function
def piecewise_constant(x: Any, boundaries: Any, values: Any) -> Any:
    """One value up to (and at) the first boundary, the next up to the second, ….

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     rate = weft.static.train.piecewise_constant(11, [10, 20], [1.0, 0.5, 0.1])
    ...     float(session.run(rate))
    0.5
    """
    if len(values) != len(boundaries) + 1:
        raise ArgumentError(
            f"piecewise_constant: expected one value more than boundaries, got "
            f"{len(values)} and {len(boundaries)}"
        )
    step = as_node(x)
    rate = as_node(values[-1])
    for limit, value in zip(boundaries[::-1], values[-2::-1], strict=True):
        rate = weft.where(step <= limit, as_node(value), rate)
    return rate


piecewise_constant_decay = piecewise_constant


@function
def cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: float, alpha: float = 0.0
) -> Any:
    """Along half a cosine, down to ``alpha`` times the rate.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     float(session.run(weft.static.train.cosine_decay(1.0, 10, 10, 0.25)))
    0.25
    """
    share = weft.clamp(_done(global_step, decay_steps), None, 1)
    fall = 0.5 * (1 + weft.cos(math.pi * share))
    return _like(learning_rate * ((1 - alpha) * fall + alpha), learning_rate)


@function
def cosine_decay_restarts(
    learning_rate: Any, global_step: Any, first_decay_steps: float,
    t_mul: float = 2.0, m_mul: float = 1.0, alpha: float = 0.0,
) -> Any:  # fmt: skip
    """Half cosines one after another, each ``t_mul`` times as long.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     float(session.run(weft.static.train.cosine_decay_restarts(1.0, 10, 10)))
    1.0
    """
    done = _done(global_step, first_decay_steps)
    if t_mul == 1:
        times = done.floor()
        share = done - times
    else:
        times = (weft.log(1 - done * (1 - t_mul)) / math.log(t_mul)).floor()
        before = (1 - t_mul**times) / (1 - t_mul)
        share = (done - before) / t_mul**times
    fall = 0.5 * m_mul**times * (1 + weft.cos(math.pi * share))
    return _like(learning_rate * ((1 - alpha) * fall + alpha), learning_rate)

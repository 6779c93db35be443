"""A search along a line for a point that meets the strong Wolfe conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Point(NamedTuple):
    """A point on the line: its length, loss, gradient and slope."""

    t: float
    f: float
    g: np.ndarray
    slope: float


def strong_wolfe(
    at: Callable[[float], Point],
    origin: Point,
    t: float,
    size: float,
    limit: int,
    *,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance: float = 1e-9,
) -> Point:
    """A point that lowers the loss enough and where the slope has flattened.

    After Nocedal and Wright, algorithms 3.5 and 3.6; ``at`` evaluates a length,
    ``size`` is the direction's largest element.
    """

    def too_high(p: Point) -> bool:
        return p.f > origin.f + c1 * p.t * origin.slope

    def flat(p: Point) -> bool:
        return abs(p.slope) <= -c2 * origin.slope

    before, now = origin, at(t)
    tries = 0
    while tries < limit:
        if too_high(now) or (tries > 1 and now.f >= before.f):
            break
        if flat(now):
            return now
        if now.slope >= 0:
            break
        bounds = (now.t + 0.01 * (now.t - before.t), now.t * 10)
        length = cubic_minimum(before, now, bounds)
        before, now = now, at(length)
        tries += 1
    else:
        before = origin
    low, high = (before, now) if before.f <= now.f else (now, before)
    stuck = False
    while tries < limit and abs(high.t - low.t) * size >= tolerance:
        length, stuck = _inside(low, high, stuck)
        now = at(length)
        tries += 1
        if too_high(now) or now.f >= low.f:
            high = now
            if high.f < low.f:
                low, high = high, low
            continue
        if flat(now):
            return now
        if now.slope * (high.t - low.t) >= 0:
            high = low
        low = now
    return low


def _inside(low: Point, high: Point, stuck: bool) -> tuple[float, bool]:
    """The next length between two, kept off their ends if progress is slow."""
    t = cubic_minimum(low, high)
    least, most = min(low.t, high.t), max(low.t, high.t)
    margin = 0.1 * (most - least)
    if min(most - t, t - least) >= margin:
        return t, False
    if stuck or t >= most or t <= least:
        near_top = abs(t - most) < abs(t - least)
        return (most - margin if near_top else least + margin), False
    return t, True


def cubic_minimum(a: Point, b: Point, bounds: tuple[float, float] = (0, 0)) -> float:
    """The lowest length of the cubic through two points and their slopes."""
    if a.t > b.t:
        a, b = b, a
    least, most = bounds if bounds != (0, 0) else (a.t, b.t)
    d1 = a.slope + b.slope - 3 * (a.f - b.f) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (least + most) / 2
    d2 = math.sqrt(square)
    t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    return min(max(t, least), most)

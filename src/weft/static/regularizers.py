"""Penalties of weights, which ``get_variable`` and layers take as ``regularizer``."""

from __future__ import annotations

from typing import Any

import weft
from weft.static.building import building

__all__ = ["l1_l2_regularizer", "l1_regularizer", "l2_regularizer"]


def l1_regularizer(scale: float, scope: str | None = None) -> Any:
    """``scale`` times the sum of sizes.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     penalty = weft.static.contrib.layers.l1_regularizer(0.5)
    ...     float(session.run(penalty(weft.static.constant([1.0, -3.0]))))
    2.0
    """
    return l1_l2_regularizer(scale, 0.0)


def l2_regularizer(scale: float, scope: str | None = None) -> Any:
    """``scale`` times half the sum of squares.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     penalty = weft.static.contrib.layers.l2_regularizer(0.5)
    ...     float(session.run(penalty(weft.static.constant([1.0, 3.0]))))
    2.5
    """
    return l1_l2_regularizer(0.0, scale)


def l1_l2_regularizer(
    scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None
) -> Any:
    """The sum of both penalties; None where there is none.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     penalty = weft.static.contrib.layers.l1_l2_regularizer(1.0, 2.0)
    ...     float(session.run(penalty(weft.static.constant([1.0, -3.0]))))
    14.0
    """

    def penalty(weights: Any) -> Any:
        with building():
            parts = []
            if scale_l1:
                parts.append(scale_l1 * weft.abs(weights).sum())
            if scale_l2:
                parts.append(scale_l2 * 0.5 * (weights * weights).sum())
            return sum(parts[1:], parts[0]) if parts else None

    return penalty

"""Eager operators that are recorded for gradients, on 4 x 4 matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.suite import data
from benchmarks.suite.case import Case, Lib, Run

ONLY = ("weft-eager", "torch")


def case(name: str, function: Callable[[Any, Any], Any]) -> Case:
    def build(lib: Lib) -> Run:
        a, b = (lib.recorded(data.normal(name, 4, 4)) for name in "ab")
        return Run(lambda: function(a, b))

    return Case(name=name, build=build, eager=True, only=ONLY)


def backward(a: Any, b: Any) -> Any:
    """Five operators forward, and backward through them."""
    a.grad = b.grad = None
    y = (((a + b) * a).tanh() @ b).sum()
    y.backward()
    return a.grad


def tape(a: Any, b: Any) -> Any:
    """A thousand operators, and backward through them."""
    a.grad = b.grad = None
    x = a
    for _ in range(500):
        x = x * 0.5
        x = x + b
    x.sum().backward()
    return b.grad


def cases(small: bool) -> list[Case]:
    return [
        case("a + b", lambda a, b: a + b),
        case("a * b", lambda a, b: a * b),
        case("a @ b", lambda a, b: a @ b),
        case("a.sum()", lambda a, b: a.sum()),
        case("a.reshape(2, 8)", lambda a, b: a.reshape(2, 8)),
        case("five operators, forward and backward", backward),
        case("tape of 1000, forward and backward", tape),
    ]

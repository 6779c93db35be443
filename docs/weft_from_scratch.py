"""Weft from scratch: reverse-mode differentiation of scalars, whole and readable.

Values remember which operation made them, each operation has one rule, and one
loop goes back over them. What the library adds is arrays, speed and care.

    x = Value(2.0)
    y = x * x + x.sin()
    y.backward()
    x.grad                       # 2x + cos(x)
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from itertools import count, pairwise

clock = count()


class Value:
    """A number, the values it was made from, and its derivative by each."""

    def __init__(self, data: float, parents: tuple = (), slopes: tuple = ()) -> None:
        self.data = data
        self.parents = parents
        self.slopes = slopes  # d(self) / d(parent), one a parent
        self.time = next(clock)
        self.grad = 0.0

    # -- operations: the value, and the local derivatives

    def __add__(self, other: Value | float) -> Value:
        other = lift(other)
        return Value(self.data + other.data, (self, other), (1.0, 1.0))

    def __mul__(self, other: Value | float) -> Value:
        other = lift(other)
        return Value(self.data * other.data, (self, other), (other.data, self.data))

    def __truediv__(self, other: Value | float) -> Value:
        other = lift(other)
        quotient = self.data / other.data
        return Value(quotient, (self, other), (1 / other.data, -quotient / other.data))

    def __pow__(self, power: float) -> Value:
        slope = power * self.data ** (power - 1)
        return Value(self.data**power, (self,), (slope,))

    def exp(self) -> Value:
        out = math.exp(self.data)
        return Value(out, (self,), (out,))

    def log(self) -> Value:
        return Value(math.log(self.data), (self,), (1 / self.data,))

    def sin(self) -> Value:
        return Value(math.sin(self.data), (self,), (math.cos(self.data),))

    def tanh(self) -> Value:
        out = math.tanh(self.data)
        return Value(out, (self,), (1 - out * out,))

    # -- the rest follows from those

    def __neg__(self) -> Value:
        return self * -1.0

    def __sub__(self, other: Value | float) -> Value:
        return self + -lift(other)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: float) -> Value:
        return lift(other) - self

    def __rtruediv__(self, other: float) -> Value:
        return lift(other) / self

    # -- back

    def backward(self) -> None:
        """Add d(self)/d(v) to ``v.grad`` for every value behind this one.

        A value is younger than its parents: youngest first, each has its whole
        gradient before it passes it on.
        """
        adjoint = {self: 1.0}
        for value in sorted(ancestors(self), key=lambda v: v.time, reverse=True):
            g = adjoint[value]
            value.grad += g
            for parent, slope in zip(value.parents, value.slopes, strict=True):
                adjoint[parent] = adjoint.get(parent, 0.0) + g * slope

    def __repr__(self) -> str:
        return f"Value({self.data:g}, grad={self.grad:g})"


def lift(x: Value | float) -> Value:
    return x if isinstance(x, Value) else Value(float(x))


def dot(xs: list[Value], ys: list[Value]) -> Value:
    return sum((x * y for x, y in zip(xs, ys, strict=True)), Value(0.0))


def ancestors(value: Value) -> set[Value]:
    found, stack = set(), [value]
    while stack:
        here = stack.pop()
        if here not in found:
            found.add(here)
            stack.extend(here.parents)
    return found


# -- a neuron, a layer, a network


class Network:
    """Layers of neurons: ``Network([2, 8, 1])`` maps two numbers to one."""

    def __init__(self, sizes: list[int]) -> None:
        def neuron(n: int) -> tuple[list[Value], Value]:
            return [Value(random.uniform(-1, 1)) for _ in range(n)], Value(0.0)

        self.layers = [[neuron(a) for _ in range(b)] for a, b in pairwise(sizes)]

    def __call__(self, xs: Iterable[float]) -> list[Value]:
        values = [lift(x) for x in xs]
        for k, layer in enumerate(self.layers):
            values = [b + dot(ws, values) for ws, b in layer]
            if k < len(self.layers) - 1:
                values = [v.tanh() for v in values]
        return values

    def parameters(self) -> list[Value]:
        return [p for layer in self.layers for ws, b in layer for p in (*ws, b)]


def train(loss, parameters: list[Value], lr: float = 0.1) -> float:
    """One step of gradient descent on ``loss()``; returns the loss before it."""
    for p in parameters:
        p.grad = 0.0
    value = loss()
    value.backward()
    for p in parameters:
        p.data -= lr * p.grad
    return value.data

"""Weft from scratch: reverse-mode differentiation of scalars, whole and readable.

Values remember which operation made them, each operation has one rule, and one
loop goes back over them. What the library adds is arrays, speed and care.

    x = Value(2.0)
    y = x * x + x.sin()
    y.backward()
    x.grad                       # 2x + cos(x)

The names are micrograd's, and its demos run with this file.
"""

from __future__ import annotations

import math
import random
from itertools import count, pairwise

clock = count()


def lift(x: Value | float) -> Value:
    return x if isinstance(x, Value) else Value(float(x))


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

    def relu(self) -> Value:
        return Value(max(self.data, 0.0), (self,), (float(self.data > 0),))

    # -- the rest follows from those

    def __neg__(self) -> Value:
        return self * -1.0

    def __sub__(self, other: Value | float) -> Value:
        return self + -lift(other)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Value | float) -> Value:
        return self * lift(other) ** -1.0

    def __rsub__(self, other: float) -> Value:
        return lift(other) - self

    def __rtruediv__(self, other: float) -> Value:
        return lift(other) / self

    # -- back

    def backward(self) -> None:
        """Add d(self)/d(v) to ``v.grad`` for every value behind this one."""
        # Youngest first, each value has its whole gradient before it passes it on.
        adjoint = {self: 1.0}
        for value in sorted(ancestors(self), key=lambda v: v.time, reverse=True):
            g = adjoint[value]
            value.grad += g
            for parent, slope in zip(value.parents, value.slopes, strict=True):
                adjoint[parent] = adjoint.get(parent, 0.0) + g * slope

    def __repr__(self) -> str:
        return f"Value(data={self.data:g}, grad={self.grad:g})"


def ancestors(value: Value) -> set[Value]:
    found, stack = set(), [value]
    while stack:
        here = stack.pop()
        if here not in found:
            found.add(here)
            stack.extend(here.parents)
    return found


class Module:  # a neuron, a layer, a network
    def parameters(self) -> list[Value]:
        within = [p for p in self.parts if isinstance(p, Module)]
        return [p for part in within for p in part.parameters()] or self.parts

    def zero_grad(self) -> None:
        for p in self.parameters():
            p.grad = 0.0


class Neuron(Module):
    def __init__(self, nin: int, nonlin: bool = True) -> None:
        self.w = [Value(random.uniform(-1, 1)) for _ in range(nin)]
        self.b, self.nonlin = Value(0.0), nonlin
        self.parts = [*self.w, self.b]

    def __call__(self, xs: list) -> Value:
        out = sum((w * x for w, x in zip(self.w, xs, strict=True)), self.b)
        return out.relu() if self.nonlin else out


class Layer(Module):
    def __init__(self, nin: int, nout: int, **options: bool) -> None:
        self.parts = [Neuron(nin, **options) for _ in range(nout)]

    def __call__(self, xs: list) -> list[Value]:
        return [neuron(xs) for neuron in self.parts]


class MLP(Module):  # the last layer has no relu
    def __init__(self, nin: int, nouts: list[int]) -> None:
        sizes = list(pairwise([nin, *nouts]))
        self.parts = [Layer(*pair, nonlin=pair is not sizes[-1]) for pair in sizes]

    def __call__(self, xs: list) -> Value | list[Value]:
        for layer in self.parts:
            xs = layer(xs)
        return xs[0] if len(xs) == 1 else xs

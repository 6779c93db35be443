"""``Solver``: Caffe's training loop over a net that ends in losses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import weft
from weft.core.mode import mode
from weft.core.number import Number
from weft.core.tensor import Tensor
from weft.errors import ArgumentError
from weft.graph.effects import Later
from weft.layers import optimizer as rules
from weft.layers.keeping import Keeping
from weft.layers.model import add_steps
from weft.layers.net import Net

_TYPES = {
    "SGD": rules.Momentum, "Nesterov": rules.Momentum, "Adam": rules.Adam,
    "AdaGrad": rules.Adagrad, "AdaDelta": rules.Adadelta, "RMSProp": rules.RMSProp,
}  # fmt: skip
_POLICIES = ("fixed", "step", "exp", "inv", "multistep", "poly", "sigmoid")


class Solver(Keeping):
    """Runs forward and backward, gathers all layers' gradients, updates the weights.

    ``type`` names the rule; ``options`` go to it (``momentum``, ``eps``, ...). Weight
    decay is an L2 penalty. ``lr_policy`` is one of Caffe's: fixed, step, exp, inv,
    multistep, poly, sigmoid, by ``gamma``, ``power``, ``stepsize``, ``stepvalue`` and
    ``max_iter``.

    >>> net = weft.layers.Net.from_prototxt('''
    ... input: "x"  input: "y"
    ... layer { name: "ip" type: "InnerProduct" bottom: "x"
    ...         inner_product_param { num_output: 1 } }
    ... layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "y" }
    ... ''')
    >>> solver = weft.layers.Solver(net, base_lr=0.5)
    >>> x, y = weft.eye(2), weft.tensor([[1.0], [2.0]])
    >>> losses = [float(solver.step(x=x, y=y)) for _ in range(40)]
    >>> losses[-1] < 1e-3 < losses[0]
    True
    """

    def __init__(
        self, net: Net, type: str = "SGD", base_lr: float = 0.01,
        weight_decay: float = 0.0, lr_policy: str = "fixed", gamma: float = 0.1,
        power: float = 1.0, stepsize: int = 1, stepvalue: Iterable[int] = (),
        max_iter: int = 0, **options: Any,
    ) -> None:  # fmt: skip
        if type not in _TYPES:
            raise ArgumentError(
                f"Solver: expected type to be one of {', '.join(_TYPES)}, got {type!r}"
            )
        if lr_policy not in _POLICIES:
            raise ArgumentError(
                f"Solver: expected lr_policy to be one of {', '.join(_POLICIES)}, got "
                f"{lr_policy!r}"
            )
        if lr_policy == "poly" and max_iter < 1:
            raise ArgumentError("Solver: lr_policy 'poly' needs max_iter of at least 1")
        if type in ("SGD", "Nesterov"):
            options = {"momentum": 0.0, **options, "nesterov": type == "Nesterov"}
        self.net, self.base_lr, self.lr_policy = net, base_lr, lr_policy
        self.gamma, self.power, self.stepsize = gamma, power, stepsize
        self.stepvalue, self.max_iter = tuple(stepvalue), max_iter
        self.iter: Any = 0
        self.optimizer = _TYPES[type](
            lr=base_lr, weight_decay=weight_decay, decay="l2", **options
        )

    @property
    def lr(self) -> float:
        """The learning rate of the present iteration."""
        return self._rate_at(self.iter)

    def _rate_at(self, t: int) -> float:
        base = self.base_lr
        if self.lr_policy == "step":
            return base * self.gamma ** (t // self.stepsize)
        if self.lr_policy == "multistep":
            return base * self.gamma ** sum(t >= value for value in self.stepvalue)
        if self.lr_policy == "exp":
            return base * self.gamma**t
        if self.lr_policy == "inv":
            return base * (1 + self.gamma * t) ** -self.power
        if self.lr_policy == "poly":
            return base * max(0.0, 1 - t / self.max_iter) ** self.power
        if self.lr_policy == "sigmoid":
            return base / (1 + math.exp(-self.gamma * (t - self.stepsize)))
        return base

    def compile(self, **options: Any) -> Solver:
        """Make ``step``, and so ``solve``, one native program; returns the solver.

        ``options`` are those of ``weft.compile``.
        """
        self.step = weft.compile(self.step, **options)  # type: ignore[method-assign, operator]
        return self

    def step(self, *args: Any, **data: Any) -> Tensor:
        """One iteration on a batch; returns the sum of the losses."""
        self.net.train()
        out = self.net.forward(*args, **data)
        self.net.backward()
        self.apply()
        return _total(self.net, out)

    def apply(self) -> None:
        """Update the weights by the gradients that the last backward left."""
        if mode.capture is not None and not self._made_inside:
            self._follow_iterations()
        else:
            self.optimizer.lr = self.lr
            self.iter += 1
        params, grads = self.net.get_parameters(), [y.grads for y in self.net.layers]
        add_steps(self.net, self.optimizer.compute_step(grads, params))

    def _follow_iterations(self) -> None:
        """Let every run of a captured program read its rate, and count on."""
        run, optimizer = mode.capture, self.optimizer
        fields = object.__getattribute__(self, "__dict__")
        past = sum(key[:2] == (id(self), "lr") for key in run.numbers)  # in this run
        self._rate_at(past)  # reads what decides the rate

        def rate() -> float:
            return self._rate_at(fields["iter"] + past)

        symbol = run.number(
            (id(self), "lr", past), "Solver.lr", rate, lambda value: None,
            (fields, "iter"),
        )  # fmt: skip
        optimizer.lr = self.iter = Number(symbol, run)
        run.note_attribute(optimizer, "lr", Later(rate))
        run.note_attribute(self, "iter", Later(lambda: fields["iter"] + past + 1))

    def solve(self, batches: Iterable[Mapping[str, Any]]) -> list[float]:
        """An iteration on each batch, until ``max_iter`` if given; the losses."""
        losses = []
        for batch in batches:
            if self.max_iter and self.iter >= self.max_iter:
                break
            losses.append(float(self.step(**batch)))
        return losses


def _total(net: Net, out: Any) -> Tensor:
    """The sum of a forward's losses, of which there is at least one."""
    if not isinstance(out, dict):
        return out
    first, *more = [out[name] for name in net.loss_names()]
    return sum(more, start=first)

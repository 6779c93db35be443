"""Optimizers of this generation: all gradients as one vector, and a step for it.

``compute_step(grads, params)`` concatenates every layer's gradients, computes one
step, and splits it; the caller adds the pieces to the parameters. The rules are those
of ``weft.optim``, started from zero so that the new value is the step.

``decay`` says what weight decay means for the weights w:

    "tinynn"     step <- step - weight_decay w
    "decoupled"  step <- step - lr weight_decay w
    "l2"         grad <- grad + weight_decay w
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import weft
from weft import no_grad, optim
from weft.core.mode import mode
from weft.core.number import Number
from weft.core.tensor import Tensor
from weft.dtype import as_dtype
from weft.errors import ArgumentError, ShapeError
from weft.graph.capture import paused
from weft.graph.effects import Later
from weft.graph.symbol import made_outside
from weft.layers.keeping import Keeping
from weft.nn.parameter import Parameter
from weft.optim.optimizer import decayed

_DECAYS = ("tinynn", "decoupled", "l2")
Dicts = Sequence[Mapping[str, Tensor]]


class Optimizer(Keeping):
    """The base: write ``_compute_step(grad)`` from a flat gradient to a flat step.

    >>> class Sign(weft.layers.Optimizer):
    ...     def _compute_step(self, grad):
    ...         return -self.lr * grad.sign()
    >>> w, g = {"w": weft.ones(2)}, {"w": weft.tensor([3.0, -4.0])}
    >>> Sign(lr=0.5).compute_step([g], [w])
    [{'w': tensor([-0.5000,  0.5000])}]
    """

    def __init__(
        self, lr: float = 0.01, weight_decay: float = 0.0, decay: str = "tinynn"
    ) -> None:
        if decay not in _DECAYS:
            raise ArgumentError(
                f"{type(self).__name__}: expected decay to be one of "
                f"{', '.join(_DECAYS)}, got {decay!r}"
            )
        self.lr, self.weight_decay, self.decay = lr, weight_decay, decay

    def compute_step(self, grads: Dicts, params: Dicts) -> list[dict[str, Tensor]]:
        """The step to add to each parameter, layer by layer."""
        if not any(params):
            return [{} for _ in params]
        with no_grad():
            flat = self._decayed_step(*_flattened(grads, params))
            return _cut(flat, params)

    def _decayed_step(self, grad: Tensor, value: Tensor) -> Tensor:
        rate = self.weight_decay
        if not rate:
            return self._compute_step(grad)
        if self.decay == "l2":
            return self._compute_step(decayed(grad, value, {"weight_decay": rate}))
        scale = rate if self.decay == "tinynn" else self._rate() * rate
        return self._compute_step(grad) - scale * value

    def _rate(self) -> Any:
        """The learning rate; where a captured program reads it anew, a symbol."""
        return self.lr

    def _compute_step(self, grad: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _compute_step")

    def state_dict(self) -> dict[str, Any]:
        """The state of the rule; nothing for a rule without one."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` gave."""
        if state:
            raise ArgumentError(
                f"{type(self).__name__}: keeps no state, got {', '.join(state)}"
            )


def _flattened(grads: Dicts, params: Dicts) -> tuple[Tensor, Tensor]:
    """Gradients and parameters end to end; a layer that had no part counts as 0."""
    if len(grads) != len(params):
        raise ShapeError(
            f"compute_step: expected gradients for {len(params)} layers, got "
            f"{len(grads)}"
        )
    flat_grads, flat_values = [], []
    for layer, (grad, param) in enumerate(zip(grads, params, strict=True)):
        if grad and set(grad) != set(param):
            raise ArgumentError(
                f"compute_step: layer {layer} has parameters {sorted(param)}, got "
                f"gradients {sorted(grad)}"
            )
        for key, value in param.items():
            g = grad[key] if grad else weft.zeros_like(value)
            if g.shape != value.shape:
                raise ShapeError(
                    f"compute_step: layer {layer}, {key!r}: expected a gradient of "
                    f"shape {value.shape}, got {g.shape}"
                )
            flat_grads.append(g.reshape(-1))
            flat_values.append(value.detach().reshape(-1))
    return weft.cat(flat_grads), weft.cat(flat_values)


def _cut(flat: Tensor, params: Dicts) -> list[dict[str, Tensor]]:
    pieces = iter(weft.split(flat, [v.numel() for p in params for v in p.values()]))
    return [
        {key: next(pieces).reshape(value.shape) for key, value in param.items()}
        for param in params
    ]


class _Ruled(Optimizer):
    """An optimizer by one of ``weft.optim``'s rules."""

    rule: type[optim.Optimizer]

    def __init__(
        self, lr: float, weight_decay: float, decay: str, **options: Any
    ) -> None:
        super().__init__(lr, weight_decay, decay)
        self.options = options
        self._flat: Any = None
        self._start(1, weft.float32)  # refuses options that make no sense
        self._flat = None

    def _start(self, size: int, dtype: Any) -> None:
        self._flat = Parameter(weft.zeros(size, dtype=dtype))
        lr = 0.0 if type(self.lr) is Number else self.lr  # every step sets it
        self._rule = self.rule([self._flat], lr=lr, **self.options)  # type: ignore[call-arg]

    def _rate(self) -> Any:
        run = mode.capture
        if run is None or self._made_inside:
            return self.lr
        fields = object.__getattribute__(self, "__dict__")
        if type(fields["lr"]) is Number:  # a solver's
            return fields["lr"].tensor
        return run.number(
            (id(self), "lr"), f"{type(self).__name__}.lr", lambda: fields["lr"],
            functools.partial(fields.__setitem__, "lr"), (fields, "lr"),
        )  # fmt: skip

    def _compute_step(self, grad: Tensor) -> Tensor:
        if self._flat is None:
            self._begin(grad)
        flat = self._flat
        if flat.shape != grad.shape:
            raise ShapeError(
                f"{type(self).__name__}: expected {flat.numel()} gradients as in the "
                f"first step, got {grad.numel()}"
            )
        if mode.capture is not None:
            return self._captured_step(grad)
        flat.grad = grad
        self._rule.param_groups[0]["lr"] = self.lr
        self._rule.step()
        step = flat.detach().clone()
        flat.zero_()
        flat.grad = None
        return step

    def _begin(self, grad: Tensor) -> None:
        """Make the rule's state, before a captured program runs."""
        if mode.capture is None or self._made_inside:
            return self._start(grad.numel(), grad.dtype)
        with paused():
            self._start(grad.numel(), grad.dtype)
        raise made_outside()

    def _captured_step(self, grad: Tensor) -> Tensor:
        """The step as nodes of a graph: the rule's, from zeros in place of weights."""
        from weft.optim.captured import step_group

        step, group = weft.zeros_like(grad), self._rule.param_groups[0]
        step.grad = grad
        after = Later(functools.partial(object.__getattribute__, self, "lr"))
        mode.capture.note_item(group, "lr", after)
        step_group(self._rule, 0, group, [step], self._rate())
        return step

    def state_dict(self) -> dict[str, Any]:
        if self._flat is None:
            return {}
        return {
            "size": self._flat.numel(),
            "dtype": self._flat.dtype.name,
            "rule": self._rule.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if not state:
            self._flat = None
            return
        if not {"size", "dtype", "rule"} <= set(state):
            raise ArgumentError(
                f"{type(self).__name__}: expected the state of an optimizer, got "
                f"{', '.join(state)}"
            )
        self._start(state["size"], as_dtype(state["dtype"]))
        self._rule.load_state_dict(state["rule"])


class SGD(_Ruled):
    """``-lr g``.

    >>> sgd = weft.layers.SGD(lr=0.5)
    >>> sgd.compute_step([{"w": weft.ones(1)}], [{"w": weft.ones(1)}])
    [{'w': tensor([-0.5000])}]
    """

    rule = optim.SGD

    def __init__(
        self, lr: float = 0.01, weight_decay: float = 0.0, decay: str = "tinynn"
    ) -> None:
        super().__init__(lr, weight_decay, decay)


class Momentum(_Ruled):
    """Gradient descent with momentum, Nesterov's if asked."""

    rule = optim.SGD

    def __init__(
        self, lr: float = 0.01, momentum: float = 0.9, weight_decay: float = 0.0,
        decay: str = "tinynn", nesterov: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(lr, weight_decay, decay, momentum=momentum, nesterov=nesterov)


class Adam(_Ruled):
    """Adam; with ``decay="decoupled"`` it is AdamW."""

    rule: type[optim.Optimizer] = optim.Adam

    def __init__(
        self, lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999,
        eps: float = 1e-8, weight_decay: float = 0.0, decay: str = "tinynn",
    ) -> None:  # fmt: skip
        super().__init__(lr, weight_decay, decay, betas=(beta1, beta2), eps=eps)


class RAdam(Adam):
    """Adam whose adaptive step waits until its variance is known."""

    rule = optim.RAdam


class RMSProp(_Ruled):
    """Steps divided by a running root mean square."""

    rule = optim.RMSprop

    def __init__(
        self, lr: float = 1e-2, alpha: float = 0.99, momentum: float = 0.0,
        eps: float = 1e-8, weight_decay: float = 0.0, decay: str = "tinynn",
    ) -> None:  # fmt: skip
        super().__init__(
            lr, weight_decay, decay, alpha=alpha, momentum=momentum, eps=eps
        )


class Adagrad(_Ruled):
    """Steps divided by the root of all squared gradients."""

    rule = optim.Adagrad

    def __init__(
        self, lr: float = 1e-2, eps: float = 1e-10, weight_decay: float = 0.0,
        decay: str = "tinynn",
    ) -> None:  # fmt: skip
        super().__init__(lr, weight_decay, decay, eps=eps)


class Adadelta(_Ruled):
    """Steps in the parameters' own units."""

    rule = optim.Adadelta

    def __init__(
        self, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6,
        weight_decay: float = 0.0, decay: str = "tinynn",
    ) -> None:  # fmt: skip
        super().__init__(lr, weight_decay, decay, rho=rho, eps=eps)

"""Optimizers of this generation: a step for each gradient, which the caller adds.

``compute_step(grads, params)`` gives a step for each parameter. The rules are those of
``weft.optim``, started from zero so that the new value is the step. A rule of one's own
sees all gradients as one vector, as in tinynn.

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
            pairs = _paired(grads, params)
            steps = iter(self._decayed_steps(*map(list, zip(*pairs, strict=True))))
            return [{key: next(steps) for key in param} for param in params]

    def _decayed_steps(self, grads: list[Tensor], values: list[Tensor]) -> list[Tensor]:
        rate = self.weight_decay
        if not rate:
            return self._steps(grads)
        pairs = zip(grads, values, strict=True)
        if self.decay == "l2":
            return self._steps(
                [decayed(g, v, {"weight_decay": rate}) for g, v in pairs]
            )
        scale = rate if self.decay == "tinynn" else self._rate() * rate
        steps = zip(self._steps(grads), values, strict=True)
        return [step - scale * value for step, value in steps]

    def _steps(self, grads: list[Tensor]) -> list[Tensor]:
        """The step of each parameter: a piece of the step of all gradients together."""
        flat = self._compute_step(weft.cat([g.reshape(-1) for g in grads]))
        pieces = weft.split(flat, [g.numel() for g in grads])
        return [piece.reshape(g.shape) for piece, g in zip(pieces, grads, strict=True)]

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


def _paired(grads: Dicts, params: Dicts) -> list[tuple[Tensor, Tensor]]:
    """Each parameter's gradient and value; a layer that had no part counts as 0."""
    if len(grads) != len(params):
        raise ShapeError(
            f"compute_step: expected gradients for {len(params)} layers, got "
            f"{len(grads)}"
        )
    found = []
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
            found.append((g, value.detach()))
    return found


class _Ruled(Optimizer):
    """An optimizer by one of ``weft.optim``'s rules, which take each element alone.

    So a step is computed for each parameter where it lies, and compiled programs fuse
    it with the gradient; only where a subclass has its own ``_compute_step`` are
    gradients put end to end.
    """

    rule: type[optim.Optimizer]

    def __init__(
        self, lr: float, weight_decay: float, decay: str, **options: Any
    ) -> None:
        super().__init__(lr, weight_decay, decay)
        self.options = options
        self._made: Any = None  # tensors that the rule changes from zero to the steps
        self._start([(1,)], [weft.float32])  # refuses options that make no sense
        self._made = None

    def _start(self, shapes: Sequence[Any], dtypes: Sequence[Any]) -> None:
        pairs = zip(shapes, dtypes, strict=True)
        self._made = [Parameter(weft.zeros(s, dtype=d)) for s, d in pairs]
        lr = 0.0 if type(self.lr) is Number else self.lr  # every step sets it
        self._rule = self.rule(self._made, lr=lr, **self.options)  # type: ignore[call-arg]

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

    def _steps(self, grads: list[Tensor]) -> list[Tensor]:
        if type(self)._compute_step is not _Ruled._compute_step:
            return super()._steps(grads)
        return self._ruled(grads)

    def _compute_step(self, grad: Tensor) -> Tensor:
        return self._ruled([grad])[0]

    def _ruled(self, grads: list[Tensor]) -> list[Tensor]:
        """The rule's step for each gradient."""
        if self._made is None:
            self._begin(grads)
        made = self._made
        if [p.shape for p in made] != [g.shape for g in grads]:
            raise ShapeError(
                f"{type(self).__name__}: expected gradients of shapes "
                f"{[tuple(p.shape) for p in made]} as in the first step, got "
                f"{[tuple(g.shape) for g in grads]}"
            )
        if mode.capture is not None:
            return self._captured_steps(grads)
        for p, g in zip(made, grads, strict=True):
            p.grad = g
        self._rule.param_groups[0]["lr"] = self.lr
        self._rule.step()
        steps = [p.detach().clone() for p in made]
        for p in made:
            p.zero_()
            p.grad = None
        return steps

    def _begin(self, grads: list[Tensor]) -> None:
        """Make the rule's state, before a captured program runs."""
        kinds = [g.shape for g in grads], [g.dtype for g in grads]
        if mode.capture is None or self._made_inside:
            return self._start(*kinds)
        with paused():
            self._start(*kinds)
        raise made_outside()

    def _captured_steps(self, grads: list[Tensor]) -> list[Tensor]:
        """The steps as nodes of a graph: the rule's, from zeros in place of weights."""
        from weft.optim.captured import step_group

        steps, group = [weft.zeros_like(g) for g in grads], self._rule.param_groups[0]
        for step, grad in zip(steps, grads, strict=True):
            step.grad = grad
        after = Later(functools.partial(object.__getattribute__, self, "lr"))
        mode.capture.note_item(group, "lr", after)
        step_group(self._rule, 0, group, steps, self._rate())
        return steps

    def state_dict(self) -> dict[str, Any]:
        if self._made is None:
            return {}
        return {
            "shapes": [list(p.shape) for p in self._made],
            "dtypes": [p.dtype.name for p in self._made],
            "rule": self._rule.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if not state:
            self._made = None
            return
        if not {"shapes", "dtypes", "rule"} <= set(state):
            raise ArgumentError(
                f"{type(self).__name__}: expected the state of an optimizer, got "
                f"{', '.join(state)}"
            )
        shapes = [tuple(map(int, shape)) for shape in state["shapes"]]
        self._start(shapes, [as_dtype(name) for name in state["dtypes"]])
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

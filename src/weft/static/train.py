"""Optimizers as nodes: gradients, slots and updates are part of the graph.

The rules are TensorFlow 1's. A learning rate may be a number, a node or a variable.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import ArgumentError, DTypeError
from weft.ops.select import where
from weft.static.averages import (
    ExponentialMovingAverage,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
    global_step,
)
from weft.static.building import scalar
from weft.static.decay import (
    cosine_decay,
    cosine_decay_restarts,
    exponential_decay,
    inverse_time_decay,
    natural_exp_decay,
    piecewise_constant,
    piecewise_constant_decay,
    polynomial_decay,
)
from weft.static.differentiation import depends, gradients, named
from weft.static.graph import Operation, check_member, get_default_graph, group
from weft.static.monitored import (
    CheckpointSaverHook,
    FeedFnHook,
    FinalOpsHook,
    LoggingTensorHook,
    MonitoredSession,
    MonitoredTrainingSession,
    NanLossDuringTrainingError,
    NanTensorHook,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
)
from weft.static.queues import (
    Coordinator,
    QueueRunner,
    add_queue_runner,
    batch,
    range_input_producer,
    shuffle_batch,
    slice_input_producer,
    start_queue_runners,
)
from weft.static.saver import (
    NewCheckpointReader,
    Saver,
    checkpoint_exists,
    get_checkpoint_state,
    latest_checkpoint,
    list_variables,
    load_checkpoint,
    load_variable,
    update_checkpoint_state,
)
from weft.static.variable import Variable, trainable_variables

__all__ = [
    "AdadeltaOptimizer", "AdagradOptimizer", "AdamOptimizer", "CheckpointSaverHook",
    "Coordinator", "ExponentialMovingAverage", "FeedFnHook", "FinalOpsHook",
    "FtrlOptimizer", "GradientDescentOptimizer", "LoggingTensorHook",
    "MomentumOptimizer", "MonitoredSession", "MonitoredTrainingSession",
    "NanLossDuringTrainingError", "NanTensorHook", "NewCheckpointReader", "Optimizer",
    "ProximalGradientDescentOptimizer", "QueueRunner", "RMSPropOptimizer", "Saver",
    "SessionRunArgs", "SessionRunContext", "SessionRunHook", "SessionRunValues",
    "StepCounterHook", "StopAtStepHook", "SummarySaverHook", "add_queue_runner",
    "batch", "checkpoint_exists", "cosine_decay", "cosine_decay_restarts",
    "create_global_step", "exponential_decay", "get_checkpoint_state",
    "get_global_step", "get_or_create_global_step", "global_step",
    "inverse_time_decay", "latest_checkpoint", "list_variables", "load_checkpoint",
    "load_variable", "natural_exp_decay", "piecewise_constant",
    "piecewise_constant_decay", "polynomial_decay", "range_input_producer",
    "shuffle_batch", "slice_input_producer", "start_queue_runners",
    "update_checkpoint_state",
]  # fmt: skip

Pairs = list[tuple[Any, Variable]]


class GradientTable(dict[Any, Any]):
    """The loss's gradients: of the trained variables, and of others on demand.

    An entry is that of a node or of its name. ``in`` tells whether the loss depends on
    a node, whose gradient is then made when it is asked for.
    """

    def __init__(self, found: Any = (), loss: Any = None) -> None:
        super().__init__(found)
        self.loss = loss  # None in a table of fetched values

    def __missing__(self, node: Any) -> Any:
        if self.loss is None:
            raise KeyError(node)
        if isinstance(node, str):
            return self[named(self.loss.graph, node)]
        (gradient,) = gradients(self.loss, node)
        if gradient is None:
            raise ArgumentError(
                f"gradients: {self.loss.name!r} does not depend on {node.name!r}"
            )
        self[node] = gradient
        return gradient

    def __contains__(self, node: Any) -> bool:
        if self.loss is None or super().__contains__(node):
            return super().__contains__(node)
        return depends(self.loss, named(self.loss.graph, node))


class Optimizer:
    """Base of optimizers: ``minimize`` is ``compute_gradients``, then ``apply``."""

    def __init__(self, learning_rate: Any, name: str) -> None:
        self.learning_rate = scalar(learning_rate)
        self.name = name
        self.slots: dict[tuple[Variable, str], Variable] = {}

    def minimize(
        self,
        loss: Any,
        global_step: Variable | None = None,
        var_list: list[Variable] | None = None,
        gate_gradients: int = 1,
        aggregation_method: None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Operation:
        """An operation that makes one step; its ``gradients`` is a table.

        It holds the trained variables; indexed by any other node that the loss depends
        on (a placeholder, an intermediate result), it adds that gradient's node.

        >>> g = weft.static.Graph()
        >>> with g.as_default(), weft.static.Session(g) as session:
        ...     w = weft.static.Variable(4.0)
        ...     step = weft.static.train.GradientDescentOptimizer(0.25).minimize(w * w)
        ...     session.run(weft.static.global_variables_initializer())
        ...     session.run(step)
        ...     float(session.run(w))
        2.0
        """
        pairs = self.compute_gradients(loss, var_list, grad_loss=grad_loss)
        if all(g is None for g, _ in pairs):
            raise ArgumentError(
                f"minimize: {loss.name!r} depends on none of the variables "
                f"{[v.name for _, v in pairs]}"
            )
        step = self.apply_gradients(pairs, global_step, name)
        found = {v: g for g, v in pairs if g is not None}
        step.gradients = GradientTable(found, loss)
        return step

    def compute_gradients(
        self,
        loss: Any,
        var_list: list[Variable] | None = None,
        gate_gradients: int = 1,
        aggregation_method: None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> Pairs:
        """The gradient of the loss by each variable, as (gradient, variable) pairs."""
        graph = get_default_graph()
        check_member(graph, loss)
        chosen = trainable_variables() if var_list is None else list(var_list)
        if not chosen:
            raise ArgumentError(
                "compute_gradients: the graph has no variables to train"
            )
        for variable in chosen:
            if not isinstance(variable, Variable):
                raise DTypeError(
                    "compute_gradients: expected variables, got "
                    f"{type(variable).__name__}"
                )
        return list(zip(gradients(loss, chosen, grad_loss), chosen, strict=True))

    def apply_gradients(
        self,
        grads_and_vars: Any,
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> Operation:
        """An operation that changes each variable by its gradient."""
        graph = get_default_graph()
        pairs = [(g, v) for g, v in grads_and_vars if g is not None]
        if not pairs:
            raise ArgumentError("apply_gradients: no variable has a gradient")
        with graph.builder.scope(self.name):
            self._begin()
            # every gradient is computed before the first variable changes
            with graph.control([g for g, _ in pairs]):
                updates = [node for g, v in pairs for node in self._constrained(g, v)]
                updates += self._end()
                if global_step is not None:
                    updates.append(global_step.assign_add(1))
            return group(*updates, name=name or "train")

    def _constrained(self, g: Any, v: Variable) -> list[Any]:
        """A variable's update, after which its constraint holds."""
        updates = self._update(g, v)
        if v.constraint is None:
            return updates
        graph = get_default_graph()
        with graph.control(updates):
            return [v.assign(v.constraint(v.read_value()))]

    # -- methods of a rule

    def _begin(self) -> None:
        """Make the nodes that all variables share."""

    def _end(self) -> list[Any]:
        """Change the nodes that all variables share."""
        return []

    def _update(self, g: Any, v: Variable) -> list[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no rule")

    def slot(self, v: Variable, name: str, fill: float = 0.0) -> Variable:
        """A variable's companion of its shape, made when first used."""
        slot = self.slots.get((v, name))
        if slot is None:
            kind = v.variable.type
            start = np.full(kind.shape, fill, kind.dtype.np)
            slot = Variable(start, False, f"{v.name}/{name}")
            self.slots[v, name] = slot
        return slot

    def get_slot(self, var: Variable, name: str) -> Variable | None:
        """A slot by name, if there is one."""
        return self.slots.get((var, name))

    def get_slot_names(self) -> list[str]:
        """The names of the slots."""
        return sorted({name for _, name in self.slots})


class GradientDescentOptimizer(Optimizer):
    """``v <- v - lr g``.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     w = weft.static.Variable(4.0)
    ...     step = weft.static.train.GradientDescentOptimizer(0.25).minimize(w * w)
    ...     session.run(weft.static.global_variables_initializer())
    ...     session.run(step)
    ...     round(float(session.run(w)), 4)
    2.0
    """

    def __init__(
        self,
        learning_rate: Any,
        use_locking: bool = False,
        name: str = "GradientDescent",
    ) -> None:
        super().__init__(learning_rate, name)

    def _update(self, g: Any, v: Variable) -> list[Any]:
        return [v.assign_sub(self.learning_rate * g)]


class MomentumOptimizer(Optimizer):
    """``a <- momentum a + g; v <- v - lr a`` (or ``lr (g + momentum a)``: Nesterov).

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     w = weft.static.Variable(4.0)
    ...     step = weft.static.train.MomentumOptimizer(0.25, 0.9).minimize(w * w)
    ...     session.run(weft.static.global_variables_initializer())
    ...     session.run(step)
    ...     round(float(session.run(w)), 4)
    2.0
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(learning_rate, name)
        self.momentum = momentum
        self.use_nesterov = use_nesterov

    def _update(self, g: Any, v: Variable) -> list[Any]:
        slot = self.slot(v, "Momentum")
        total = slot.assign(self.momentum * slot + g)
        step = g + self.momentum * total if self.use_nesterov else total
        return [v.assign_sub(self.learning_rate * step)]


class AdagradOptimizer(Optimizer):
    """``a <- a + g²; v <- v - lr g / √a``.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     w = weft.static.Variable(4.0)
    ...     step = weft.static.train.AdagradOptimizer(1.0).minimize(w * w)
    ...     session.run(weft.static.global_variables_initializer())
    ...     session.run(step)
    ...     round(float(session.run(w)), 4)
    3.0008
    """

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        super().__init__(learning_rate, name)
        self.start = initial_accumulator_value

    def _update(self, g: Any, v: Variable) -> list[Any]:
        slot = self.slot(v, "Adagrad", self.start)
        total = slot.assign(slot + g * g)
        return [v.assign_sub(self.learning_rate * g / total.sqrt())]


class RMSPropOptimizer(Optimizer):
    """``s <- decay s + (1-decay) g²; m <- momentum m + lr g / √(s+eps); v <- v - m``.

    As in TensorFlow, ``s`` starts at one; ``centered`` takes the squared mean off.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     w = weft.static.Variable(4.0)
    ...     step = weft.static.train.RMSPropOptimizer(0.1).minimize(w * w)
    ...     session.run(weft.static.global_variables_initializer())
    ...     session.run(step)
    ...     round(float(session.run(w)), 4)
    3.7039
    """

    def __init__(
        self,
        learning_rate: Any,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        super().__init__(learning_rate, name)
        self.decay, self.momentum, self.epsilon = decay, momentum, epsilon
        self.centered = centered

    def _update(self, g: Any, v: Variable) -> list[Any]:
        square, moved = self.slot(v, "rms", 1.0), self.slot(v, "momentum")
        s = square.assign(self.decay * square + (1 - self.decay) * g * g)
        if self.centered:
            mean = self.slot(v, "mg")
            m = mean.assign(self.decay * mean + (1 - self.decay) * g)
            s = s - m * m
        step = self.learning_rate * g / (s + self.epsilon).sqrt()
        return [v.assign_sub(moved.assign(self.momentum * moved + step))]


class AdamOptimizer(Optimizer):
    """``v <- v - lr √(1-b2ᵗ)/(1-b1ᵗ) m / (√s + eps)``, m and s means of g and g².

    The powers of the betas are variables of the graph, as in TensorFlow.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     w = weft.static.Variable(4.0)
    ...     step = weft.static.train.AdamOptimizer(0.5).minimize(w * w)
    ...     session.run(weft.static.global_variables_initializer())
    ...     session.run(step)
    ...     round(float(session.run(w)), 4)
    3.5
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(learning_rate, name)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.powers: tuple[Variable, Variable] | None = None

    def _begin(self) -> None:
        if self.powers is None:
            self.powers = (
                Variable(np.float64(self.beta1), False, "beta1_power"),
                Variable(np.float64(self.beta2), False, "beta2_power"),
            )

    def _update(self, g: Any, v: Variable) -> list[Any]:
        assert self.powers is not None
        p1, p2 = self.powers
        rate = self.learning_rate * (1 - p2).sqrt() / (1 - p1)
        first, second = self.slot(v, "m"), self.slot(v, "v")
        m = first.assign(self.beta1 * first + (1 - self.beta1) * g)
        s = second.assign(self.beta2 * second + (1 - self.beta2) * g * g)
        return [v.assign_sub(rate.to(v.dtype) * m / (s.sqrt() + self.epsilon))]

    def _end(self) -> list[Any]:
        assert self.powers is not None
        p1, p2 = self.powers
        return [p1.assign(p1 * self.beta1), p2.assign(p2 * self.beta2)]


class AdadeltaOptimizer(Optimizer):
    """``a <- rho a + (1-rho) g²; d = g √(u+eps)/√(a+eps); u <- rho u + (1-rho) d²``.

    Then ``v <- v - lr d``.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     w = weft.static.Variable(4.0)
    ...     step = weft.static.train.AdadeltaOptimizer(1.0, 0.95, 0.01).minimize(w * w)
    ...     session.run(weft.static.global_variables_initializer())
    ...     session.run(step)
    ...     round(float(session.run(w)), 4)
    3.5535
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.95,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        super().__init__(learning_rate, name)
        self.rho, self.epsilon = rho, epsilon

    def _update(self, g: Any, v: Variable) -> list[Any]:
        seen, moved = self.slot(v, "accum"), self.slot(v, "accum_update")
        a = seen.assign(self.rho * seen + (1 - self.rho) * g * g)
        d = g * (moved + self.epsilon).sqrt() * (a + self.epsilon).rsqrt()
        u = moved.assign(self.rho * moved + (1 - self.rho) * d * d)
        return [u, v.assign_sub(self.learning_rate * d)]


class FtrlOptimizer(Optimizer):
    """Follow the regularized leader: weights that do not help become exactly zero.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     w = weft.static.Variable(4.0)
    ...     step = weft.static.train.FtrlOptimizer(1.0).minimize(w * w)
    ...     session.run(weft.static.global_variables_initializer())
    ...     session.run(step)
    ...     round(float(session.run(w)), 4)
    2.8428
    """

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
    ) -> None:
        super().__init__(learning_rate, name)
        self.power, self.start = -learning_rate_power, initial_accumulator_value
        self.l1, self.l2 = l1_regularization_strength, l2_regularization_strength

    def _update(self, g: Any, v: Variable) -> list[Any]:
        seen, linear = self.slot(v, "accum", self.start), self.slot(v, "linear")
        before = seen**self.power
        after = (seen + g * g) ** self.power
        z = linear.assign(linear + g - (after - before) / self.learning_rate * v)
        total = seen.assign(seen + g * g)
        rate = after / self.learning_rate + 2 * self.l2
        pulled = (z.sign() * self.l1 - z) / rate
        new = where(z.abs() > self.l1, pulled, 0.0)
        return [total, v.assign(new)]


class ProximalGradientDescentOptimizer(Optimizer):
    """Gradient descent, after which weights shrink by ``l1`` and ``l2``.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     w = weft.static.Variable(4.0)
    ...     optimizer = weft.static.train.ProximalGradientDescentOptimizer(0.25, 1.0)
    ...     step = optimizer.minimize(w * w)
    ...     session.run(weft.static.global_variables_initializer())
    ...     session.run(step)
    ...     round(float(session.run(w)), 4)
    1.75
    """

    def __init__(
        self,
        learning_rate: Any,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ) -> None:
        super().__init__(learning_rate, name)
        self.l1, self.l2 = l1_regularization_strength, l2_regularization_strength

    def _update(self, g: Any, v: Variable) -> list[Any]:
        rate = self.learning_rate
        moved = v - rate * g
        size = (moved.abs() - rate * self.l1).clamp(0) / (1 + rate * self.l2)
        return [v.assign(moved.sign() * size)]


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("train", name)

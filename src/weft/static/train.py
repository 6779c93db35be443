"""Optimizers as nodes: gradients, slots and updates are part of the graph.

The rules are TensorFlow 1's. A learning rate may be a number, a node or a variable.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from weft.core.tensor import Tensor
from weft.dtype import float64
from weft.errors import ArgumentError, DTypeError
from weft.static.differentiation import depends, gradients, named
from weft.static.graph import Operation, check_member, get_default_graph, group
from weft.static.math import _node
from weft.static.variable import Variable, trainable_variables

__all__ = [
    "AdagradOptimizer",
    "AdamOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "RMSPropOptimizer",
    "Saver",
    "exponential_decay",
]

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
        self.learning_rate = learning_rate
        self.name = name
        self.slots: dict[tuple[Variable, str], Variable] = {}

    def minimize(
        self,
        loss: Any,
        global_step: Variable | None = None,
        var_list: list[Variable] | None = None,
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
        pairs = self.compute_gradients(loss, var_list)
        if all(g is None for g, _ in pairs):
            raise ArgumentError(
                f"minimize: {loss.name!r} depends on none of the variables "
                f"{[v.name for _, v in pairs]}"
            )
        step = self.apply_gradients(pairs, global_step)
        found = {v: g for g, v in pairs if g is not None}
        step.gradients = GradientTable(found, loss)
        return step

    def compute_gradients(
        self, loss: Any, var_list: list[Variable] | None = None
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
        return list(zip(gradients(loss, chosen), chosen, strict=True))

    def apply_gradients(
        self, grads_and_vars: Pairs, global_step: Variable | None = None
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
                updates = [node for g, v in pairs for node in self._update(g, v)]
                updates += self._end()
                if global_step is not None:
                    updates.append(global_step.assign_add(1))
            return group(*updates, name="train")

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

    def __init__(self, learning_rate: Any, name: str = "GradientDescent") -> None:
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
        use_nesterov: bool = False,
        name: str = "Momentum",
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


def exponential_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: float,
    decay_rate: float,
    staircase: bool = False,
) -> Any:
    """A learning rate that falls with a step counter, as a node.

    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     step = weft.static.Variable(20, trainable=False)
    ...     rate = weft.static.train.exponential_decay(1.0, step, 10, 0.5)
    ...     session.run(weft.static.global_variables_initializer())
    ...     float(session.run(rate))
    0.25
    """
    done = _node(global_step).to(float64) / decay_steps
    return learning_rate * decay_rate ** (done.floor() if staircase else done)


def _step(session: Any, step: Any) -> int:
    """The number of a step, of which a session knows the value."""
    value = session.run(step) if isinstance(step, Tensor) else step
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(
            f"Saver: expected global_step to be a whole number, got {value!r}"
        ) from None


class Saver:
    """Writes the variables' values to a safetensors file, and reads them back.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "model")
    >>> g = weft.static.Graph()
    >>> with g.as_default(), weft.static.Session(g) as session:
    ...     w = weft.static.Variable(3.0)
    ...     session.run(weft.static.global_variables_initializer())
    ...     _ = weft.static.train.Saver().save(session, path)
    ...     session.run(w.assign(0.0)).item()
    ...     weft.static.train.Saver().restore(session, path)
    ...     session.run(w).item()
    0.0
    3.0
    """

    def __init__(self, var_list: list[Variable] | None = None) -> None:
        graph = get_default_graph()
        self.variables = list(graph.variables) if var_list is None else list(var_list)

    def save(self, session: Any, save_path: str, global_step: Any = None) -> str:
        """Write the file (in one piece or not at all); returns its path.

        ``global_step``, a number or a node that holds one, ends its name.
        """
        from weft import from_numpy
        from weft.serialization import save

        path = save_path
        if global_step is not None:
            path = f"{save_path}-{_step(session, global_step)}"
        values = session.run({v.name: v for v in self.variables})
        save({name: from_numpy(np.asarray(a)) for name, a in values.items()}, path)
        return path

    def restore(self, session: Any, save_path: str) -> None:
        """Give the session's variables the values in a file."""
        from weft.serialization import load

        found = load(save_path)
        missing = [v.name for v in self.variables if v.name not in found]
        if missing:
            raise ArgumentError(f"restore: {save_path} has no values for {missing}")
        for v in self.variables:
            session.load(v, found[v.name])

"""Moving averages of variables, and the counter of training steps."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError
from weft.static.building import as_node, building
from weft.static.collections import GraphKeys, add_to_collection, get_collection
from weft.static.graph import Operation, get_default_graph, group
from weft.static.variable import Variable, trainable_variables


class ExponentialMovingAverage:
    """Averages of variables (or of other nodes) over training steps.

    ``apply`` gives the operation ``average <- average - (1 - decay) (average - x)``;
    with ``num_updates`` the decay is no more than ``(1 + n) / (10 + n)``.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     w = weft.static.Variable(1.0, name="w")
    ...     ema = weft.static.train.ExponentialMovingAverage(0.5)
    ...     update = ema.apply([w])
    ...     session.run(weft.static.global_variables_initializer())
    ...     session.run(w.assign(3.0)).item()
    ...     session.run(update)
    ...     session.run(ema.average(w)).item()
    3.0
    2.0
    """

    def __init__(
        self, decay: Any, num_updates: Any = None, zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:  # fmt: skip
        if zero_debias:
            raise ArgumentError("ExponentialMovingAverage: there is no zero_debias")
        self.decay, self.num_updates, self.name = decay, num_updates, name
        self._averages: dict[Any, Variable] = {}

    def apply(self, var_list: Any = None) -> Operation:
        """An operation that moves the averages towards the values at that time."""
        chosen = trainable_variables() if var_list is None else list(var_list)
        updates = []
        for v in chosen:
            shadow = self._averages.get(v) or self._made(v)
            with building():
                now = v.read_value() if isinstance(v, Variable) else v
                rate = 1 - self._decay()
                updates.append(shadow.assign_sub((shadow.read_value() - now) * rate))
        return group(*updates, name=self.name)

    def _decay(self) -> Any:
        if self.num_updates is None:
            return self.decay
        count = self.num_updates
        now = count.read_value() if isinstance(count, Variable) else as_node(count)
        n = now.to(weft.float32)
        return weft.minimum((1 + n) / (10 + n), as_node(self.decay, weft.float32))

    def _made(self, v: Any) -> Variable:
        if isinstance(v, Variable):
            first: Any = v.initialized_value()
            add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, v)
        elif None in v.static_shape:
            raise ArgumentError(
                f"ExponentialMovingAverage: the shape of {v!r} must be known"
            )
        else:
            first = np.zeros(v.static_shape, v.dtype.np)
        graph = get_default_graph()
        with graph.builder.at_top():
            made = Variable(first, False, self.average_name(v))
        self._averages[v] = made
        return made

    def average(self, var: Any) -> Variable | None:
        """The variable that holds the average, if there is one."""
        return self._averages.get(var)

    def average_name(self, var: Any) -> str:
        """The name of the variable that holds the average."""
        return f"{var.name}/{self.name}"

    def variables_to_restore(self, moving_avg_variables: Any = None) -> dict[str, Any]:
        """Variables by the names under which to look for their values: averages'."""
        averaged = moving_avg_variables
        if averaged is None:
            averaged = [
                *trainable_variables(),
                *get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES),
            ]
        table = {self.average_name(v): v for v in averaged}
        known = set(map(id, averaged))
        rest = get_collection(GraphKeys.GLOBAL_VARIABLES)
        own = set(map(id, self._averages.values()))
        table.update((v.name, v) for v in rest if id(v) not in known | own)
        return table


def get_global_step(graph: Any = None) -> Variable | None:
    """The counter of training steps, if the graph has one.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.train.get_global_step() is None
    True
    """
    with (graph or get_default_graph()).as_default():
        found = get_collection(GraphKeys.GLOBAL_STEP)
        if found:
            return found[0]
        named = [v for v in get_collection(GraphKeys.GLOBAL_VARIABLES)
                 if v.name == "global_step"]  # fmt: skip
        return named[0] if named else None


def create_global_step(graph: Any = None) -> Variable:
    """A counter of training steps, which starts at zero.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.train.create_global_step()
    <read 'global_step' int64[]>
    """
    with (graph or get_default_graph()).as_default() as own:
        if get_global_step() is not None:
            raise ArgumentError("create_global_step: there is a global step already")
        with own.builder.at_top():
            made = Variable(np.int64(0), False, "global_step")
        add_to_collection(GraphKeys.GLOBAL_STEP, made)
        return made


def get_or_create_global_step(graph: Any = None) -> Variable:
    """The counter of training steps, made if there is none.

    >>> with weft.static.Graph().as_default():
    ...     weft.static.train.get_or_create_global_step()
    <read 'global_step' int64[]>
    """
    found = get_global_step(graph)
    return create_global_step(graph) if found is None else found


def global_step(sess: Any, global_step_tensor: Any) -> int:
    """The number of steps made, in a session.

    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     step = weft.static.train.create_global_step()
    ...     session.run(step.initializer)
    ...     weft.static.train.global_step(session, step)
    0
    """
    return int(sess.run(global_step_tensor))

"""Recurrent networks: a cell applied along time."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.pytree import tree_flatten, tree_map, tree_unflatten
from weft.errors import ArgumentError
from weft.static.building import as_node, building
from weft.static.rnn_cell import RNNCell
from weft.static.scopes import variable_scope


def reversed_in_time(x: Any, lengths: Any, time: int, batch: int) -> Any:
    """Rows reversed along time, each up to its own length."""
    size = x.shape[time]
    steps = weft.arange(size).reshape(-1, 1)  # (T, 1)
    ends = as_node(lengths).to(weft.int64).reshape(1, -1)  # (1, B)
    where = weft.where(steps < ends, ends - 1 - steps, steps)  # (T, B)
    order = [time, batch, *[d for d in range(x.ndim) if d not in (time, batch)]]
    first = x.permute(order)
    rows = weft.arange(x.shape[batch]).reshape(1, -1)
    back = [order.index(d) for d in range(x.ndim)]
    return first[where, rows].permute(back)


def _initial(cell: RNNCell, state: Any, batch: Any, dtype: Any) -> Any:
    if state is not None:
        return tree_map(as_node, state)
    if dtype is None:
        raise ArgumentError(
            "a recurrent network needs initial_state= or dtype=; neither was given"
        )
    return cell.zero_state(batch, dtype)


def _while_short(t: Any, lengths: Any, new: Any, old: Any) -> Any:
    """The new value in rows that go on, the old one in those that ended."""
    return weft.where((t < lengths).reshape(-1, *[1] * (new.ndim - 1)), new, old)


def _run(cell: Any, inputs: Any, lengths: Any, state: Any) -> tuple[Any, Any]:
    """The outputs (time first) and the last state."""
    leaves, structure = tree_flatten(state)
    count = None if lengths is None else as_node(lengths).to(weft.int64)
    first = tree_flatten(inputs)[0][0]

    def step(carry: Any, given: Any) -> Any:
        x, t = given
        out, new = cell(x, tree_unflatten(list(carry), structure))
        fresh = tree_flatten(new)[0]
        if count is not None:
            out = tree_map(lambda o: _while_short(t, count, o, weft.zeros_like(o)), out)
            pairs = zip(fresh, carry, strict=True)
            fresh = [_while_short(t, count, n, o) for n, o in pairs]
        return tuple(fresh), out

    times = weft.arange(first.shape[0])
    last, outputs = weft.scan(step, tuple(leaves), (inputs, times))
    return outputs, tree_unflatten(list(last), structure)


def dynamic_rnn(
    cell: Any, inputs: Any, sequence_length: Any = None, initial_state: Any = None,
    dtype: Any = None, parallel_iterations: Any = None, swap_memory: bool = False,
    time_major: bool = False, scope: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """A cell along time; returns the outputs and the last state.

    Values are (batch, time, …), or (time, batch, …) if ``time_major``. Past a row's
    ``sequence_length`` outputs are zero and the state stays as it is.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, None, 3])
    ...     cell = weft.static.nn.rnn_cell.BasicLSTMCell(4)
    ...     y, state = weft.static.nn.dynamic_rnn(cell, x, dtype=weft.float32)
    ...     y.get_shape(), cell.variables[0].name
    ((None, None, 4), 'rnn/basic_lstm_cell/kernel')
    """
    with variable_scope(scope or "rnn"), building():
        values = tree_map(as_node, inputs)
        if not time_major:
            values = tree_map(lambda x: x.transpose(0, 1), values)
        batch = tree_flatten(values)[0][0].shape[1]
        state = _initial(cell, initial_state, batch, dtype)
        outputs, last = _run(cell, values, sequence_length, state)
        if not time_major:
            outputs = tree_map(lambda x: x.transpose(0, 1), outputs)
        return outputs, last


def bidirectional_dynamic_rnn(
    cell_fw: Any, cell_bw: Any, inputs: Any, sequence_length: Any = None,
    initial_state_fw: Any = None, initial_state_bw: Any = None, dtype: Any = None,
    parallel_iterations: Any = None, swap_memory: bool = False,
    time_major: bool = False, scope: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """A cell along time and another against it; pairs of outputs and of last states.

    >>> with weft.static.Graph().as_default():
    ...     x = weft.static.placeholder(weft.float32, [None, 5, 3])
    ...     cells = [weft.static.nn.rnn_cell.GRUCell(4) for _ in range(2)]
    ...     (forward, backward), states = weft.static.nn.bidirectional_dynamic_rnn(
    ...         *cells, x, dtype=weft.float32)
    ...     backward.get_shape()
    (None, 5, 4)
    """
    time, batch = (0, 1) if time_major else (1, 0)

    def backwards(x: Any) -> Any:
        if sequence_length is None:
            return weft.flip(x, (time,))
        return reversed_in_time(x, sequence_length, time, batch)

    with variable_scope(scope or "bidirectional_rnn"):
        forward, end = dynamic_rnn(
            cell_fw, inputs, sequence_length, initial_state_fw, dtype,
            time_major=time_major, scope="fw",
        )  # fmt: skip
        with building():
            turned = tree_map(lambda x: backwards(as_node(x)), inputs)
        backward, start = dynamic_rnn(
            cell_bw, turned, sequence_length, initial_state_bw, dtype,
            time_major=time_major, scope="bw",
        )  # fmt: skip
        with building():
            return (forward, tree_map(backwards, backward)), (end, start)


def static_rnn(
    cell: Any, inputs: Any, initial_state: Any = None, dtype: Any = None,
    sequence_length: Any = None, scope: Any = None,
) -> tuple[list[Any], Any]:  # fmt: skip
    """A cell along a list of inputs; returns the list of outputs and the last state.

    >>> with weft.static.Graph().as_default():
    ...     x = [weft.static.placeholder(weft.float32, [None, 3]) for _ in range(2)]
    ...     cell = weft.static.nn.rnn_cell.BasicRNNCell(4)
    ...     y, state = weft.static.nn.static_rnn(cell, x, dtype=weft.float32)
    ...     len(y), y[0].get_shape()
    (2, (None, 4))
    """
    values = [tree_map(as_node, x) for x in inputs]
    if not values:
        raise ArgumentError("static_rnn: expected at least one input")
    with variable_scope(scope or "rnn"), building():
        state = _initial(cell, initial_state, tree_flatten(values[0])[0][0].shape[0],
                         dtype)  # fmt: skip
        lengths = None
        if sequence_length is not None:
            lengths = as_node(sequence_length).to(weft.int64)
        outputs = []
        for t, x in enumerate(values):
            out, new = cell(x, state)
            if lengths is not None:
                out = _while_short(t, lengths, out, weft.zeros_like(out))
                new = _kept(t, lengths, new, state)
            outputs.append(out)
            state = new
        return outputs, state


def _kept(t: int, lengths: Any, new: Any, old: Any) -> Any:
    fresh, structure = tree_flatten(new)
    pairs = zip(fresh, tree_flatten(old)[0], strict=True)
    return tree_unflatten([_while_short(t, lengths, n, o) for n, o in pairs], structure)


def static_bidirectional_rnn(
    cell_fw: Any, cell_bw: Any, inputs: Any, initial_state_fw: Any = None,
    initial_state_bw: Any = None, dtype: Any = None, sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any, Any]:  # fmt: skip
    """A cell along a list of inputs and another against it, their outputs side by side.

    >>> with weft.static.Graph().as_default():
    ...     x = [weft.static.placeholder(weft.float32, [None, 3]) for _ in range(2)]
    ...     cells = [weft.static.nn.rnn_cell.GRUCell(4) for _ in range(2)]
    ...     y, _, _ = weft.static.nn.static_bidirectional_rnn(
    ...         *cells, x, dtype=weft.float32)
    ...     y[0].get_shape()
    (None, 8)
    """

    def backwards(values: Any) -> list[Any]:
        if sequence_length is None:
            return list(values)[::-1]
        with building():
            joined = weft.stack([as_node(v) for v in values])
            return list(reversed_in_time(joined, sequence_length, 0, 1).unbind(0))

    with variable_scope(scope or "bidirectional_rnn"):
        forward, end = static_rnn(
            cell_fw, inputs, initial_state_fw, dtype, sequence_length, "fw"
        )
        backward, start = static_rnn(
            cell_bw, backwards(inputs), initial_state_bw, dtype, sequence_length, "bw"
        )
        with building():
            pairs = zip(forward, backwards(backward), strict=True)
            return [weft.cat([f, b], 1) for f, b in pairs], end, start

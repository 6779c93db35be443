"""Recurrent cells: a step of a recurrent network (``static.nn.rnn_cell``).

A cell takes the input and the state of a step, and gives its output and the next state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import weft
from weft.core.pytree import tree_map
from weft.errors import ArgumentError, ShapeError
from weft.static.building import as_node, building
from weft.static.initializers import Constant, Zeros
from weft.static.layer import Layer
from weft.static.scopes import variable_scope
from weft.static.shapes import sizes_of

__all__ = [
    "BasicLSTMCell", "BasicRNNCell", "DeviceWrapper", "DropoutWrapper", "GRUCell",
    "LSTMCell", "LSTMStateTuple", "MultiRNNCell", "RNNCell", "ResidualWrapper",
]  # fmt: skip


class LSTMStateTuple(NamedTuple):
    """The state of an LSTM: the memory and the last output.

    >>> weft.static.nn.rnn_cell.LSTMStateTuple(1, 2)
    LSTMStateTuple(c=1, h=2)
    """

    c: Any
    h: Any


def width(inputs: Any, cell: str) -> int:
    """The size of the last axis, which a cell must know when it is built."""
    last = inputs[-1]
    if not isinstance(last, int):
        raise ShapeError(
            f"{cell}: the last size of the inputs must be known when the graph is "
            f"built, got shape {inputs}"
        )
    return last


class RNNCell(Layer):
    """Base of cells: a cell of your own has ``state_size``, ``output_size`` and
    ``call(inputs, state)``.

    >>> class Sum(weft.static.nn.rnn_cell.RNNCell):
    ...     state_size = output_size = 2
    ...     def call(self, inputs, state):
    ...         return inputs + state, inputs + state
    >>> with weft.static.Graph().as_default(), weft.static.Session() as session:
    ...     x = weft.static.constant(np.ones((1, 3, 2), "f"))
    ...     y, _ = weft.static.nn.dynamic_rnn(Sum(), x, dtype=weft.float32)
    ...     session.run(y)[0, :, 0]
    array([1., 2., 3.], dtype=float32)
    """

    @property
    def state_size(self) -> Any:
        """The size of the state, or a tuple of sizes."""
        raise NotImplementedError(f"{type(self).__name__} has no state_size")

    @property
    def output_size(self) -> Any:
        """The size of the output."""
        raise NotImplementedError(f"{type(self).__name__} has no output_size")

    def __call__(  # type: ignore[override]
        self, inputs: Any, state: Any, scope: Any = None
    ) -> Any:
        return super().__call__(as_node(inputs), state, scope=scope)

    def zero_state(self, batch_size: Any, dtype: Any = weft.float32) -> Any:
        """The state before the first step."""
        with building():
            return _zeros(self.state_size, sizes_of(batch_size)[0], dtype)


def _zeros(sizes: Any, batch: Any, dtype: Any) -> Any:
    if isinstance(sizes, LSTMStateTuple):
        return LSTMStateTuple(*[_zeros(n, batch, dtype) for n in sizes])
    if isinstance(sizes, (tuple, list)):
        return tuple(_zeros(n, batch, dtype) for n in sizes)
    return weft.zeros((batch, sizes), dtype=dtype)


class _Units(RNNCell):
    """A cell with a number of units, and a kernel over inputs and last outputs."""

    gates = 1

    def __init__(
        self, num_units: int, activation: Any = None, reuse: Any = None,
        name: str | None = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(name=name, dtype=dtype, _reuse=reuse)
        self._num_units = num_units
        self._activation = activation or weft.tanh

    state_size: Any = property(lambda self: self._num_units)
    output_size: Any = property(lambda self: self._num_units)

    def _affine(self, inputs: Any, h: Any) -> Any:
        return weft.cat([inputs, h], 1) @ self.kernel + self.bias

    def build(self, input_shape: Any) -> None:
        n = self._num_units
        wide = width(input_shape, type(self).__name__) + n
        self.kernel = self.add_variable("kernel", [wide, self.gates * n])
        self.bias = self.add_variable("bias", [self.gates * n], initializer=Zeros())


class BasicRNNCell(_Units):
    """``h <- tanh(W [x, h] + b)``.

    >>> with weft.static.Graph().as_default():
    ...     cell = weft.static.nn.rnn_cell.BasicRNNCell(4)
    ...     x = weft.static.placeholder(weft.float32, [2, 3])
    ...     y, state = cell(x, cell.zero_state(2, weft.float32))
    ...     y.get_shape()
    (2, 4)
    """

    def call(self, inputs: Any, state: Any) -> Any:
        h = self._activation(self._affine(inputs, state))
        return h, h


class GRUCell(_Units):
    """A gated recurrent unit: a reset gate, an update gate and a candidate.

    >>> with weft.static.Graph().as_default():
    ...     cell = weft.static.nn.rnn_cell.GRUCell(4)
    ...     x = weft.static.placeholder(weft.float32, [2, 3])
    ...     y, state = cell(x, cell.zero_state(2, weft.float32))
    ...     [v.name for v in cell.variables][:2]
    ['gru_cell/gates/kernel', 'gru_cell/gates/bias']
    """

    def __init__(
        self, num_units: int, activation: Any = None, reuse: Any = None,
        kernel_initializer: Any = None, bias_initializer: Any = None,
        name: str | None = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(num_units, activation, reuse, name, dtype)
        self._kernel_initializer = kernel_initializer
        self._bias_initializer = bias_initializer

    def build(self, input_shape: Any) -> None:
        n = self._num_units
        wide = width(input_shape, "GRUCell") + n
        start, first = self._bias_initializer, self._kernel_initializer
        for lead, count, bias in (
            ("gates", 2, Constant(1.0)),
            ("candidate", 1, Zeros()),
        ):
            w = self.add_variable(
                f"{lead}/kernel", [wide, count * n], initializer=first
            )
            b = self.add_variable(
                f"{lead}/bias", [count * n], initializer=start or bias
            )
            setattr(self, lead, (w, b))

    gates: Any
    candidate: Any

    def call(self, inputs: Any, state: Any) -> Any:
        w, b = self.gates
        both = weft.sigmoid(weft.cat([inputs, state], 1) @ w + b)
        reset, update = both.chunk(2, 1)
        w, b = self.candidate
        new = self._activation(weft.cat([inputs, reset * state], 1) @ w + b)
        h = update * state + (1 - update) * new
        return h, h


class LSTMCell(_Units):
    """A long short-term memory: the gates are input, candidate, forget and output.

    ``use_peepholes`` lets gates see the memory, ``num_proj`` makes the output smaller.

    >>> with weft.static.Graph().as_default():
    ...     cell = weft.static.nn.rnn_cell.LSTMCell(4)
    ...     x = weft.static.placeholder(weft.float32, [2, 3])
    ...     y, state = cell(x, cell.zero_state(2, weft.float32))
    ...     state.c.get_shape()
    (2, 4)
    """

    gates = 4

    def __init__(
        self, num_units: int, use_peepholes: bool = False,
        cell_clip: float | None = None, initializer: Any = None,
        num_proj: int | None = None, proj_clip: float | None = None,
        num_unit_shards: None = None, num_proj_shards: None = None,
        forget_bias: float = 1.0, state_is_tuple: bool = True, activation: Any = None,
        reuse: Any = None, name: str | None = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(num_units, activation, reuse, name, dtype)
        self._peepholes, self._cell_clip = use_peepholes, cell_clip
        self._initializer, self._num_proj = initializer, num_proj
        self._proj_clip, self._forget_bias = proj_clip, forget_bias
        self._state_is_tuple = state_is_tuple

    @property
    def output_size(self) -> int:
        return self._num_units if self._num_proj is None else self._num_proj

    @property
    def state_size(self) -> Any:
        sizes = LSTMStateTuple(self._num_units, self.output_size)
        return sizes if self._state_is_tuple else sum(sizes)

    def build(self, input_shape: Any) -> None:
        n, first = self._num_units, self._initializer
        wide = width(input_shape, type(self).__name__) + self.output_size
        self.kernel = self.add_variable("kernel", [wide, 4 * n], initializer=first)
        self.bias = self.add_variable("bias", [4 * n], initializer=Zeros())
        if self._peepholes:
            self.peeps = [
                self.add_variable(f"w_{gate}_diag", [n], initializer=first)
                for gate in "ifo"
            ]
        if self._num_proj is not None:
            self.projection = self.add_variable(
                "projection/kernel", [n, self._num_proj], initializer=first
            )

    def call(self, inputs: Any, state: Any) -> Any:
        c, h = self._split(state)
        i, j, f, o = self._affine(inputs, h).chunk(4, 1)
        f = f + self._forget_bias
        if self._peepholes:
            i, f = i + self.peeps[0] * c, f + self.peeps[1] * c
        c = weft.sigmoid(f) * c + weft.sigmoid(i) * self._activation(j)
        c = _clipped(c, self._cell_clip)
        o = o + self.peeps[2] * c if self._peepholes else o
        h = weft.sigmoid(o) * self._activation(c)
        if self._num_proj is not None:
            h = _clipped(h @ self.projection, self._proj_clip)
        return h, self._joined(c, h)

    def _split(self, state: Any) -> Any:
        if self._state_is_tuple:
            return state
        return state[:, : self._num_units], state[:, self._num_units :]

    def _joined(self, c: Any, h: Any) -> Any:
        return LSTMStateTuple(c, h) if self._state_is_tuple else weft.cat([c, h], 1)


def _clipped(x: Any, limit: float | None) -> Any:
    return x if limit is None else weft.clamp(x, -limit, limit)


class BasicLSTMCell(LSTMCell):
    """A long short-term memory without peepholes or projection.

    >>> with weft.static.Graph().as_default():
    ...     cell = weft.static.nn.rnn_cell.BasicLSTMCell(4)
    ...     x = weft.static.placeholder(weft.float32, [2, 3])
    ...     y, state = cell(x, cell.zero_state(2, weft.float32))
    ...     [v.name for v in cell.variables]
    ['basic_lstm_cell/kernel', 'basic_lstm_cell/bias']
    """

    def __init__(
        self, num_units: int, forget_bias: float = 1.0, state_is_tuple: bool = True,
        activation: Any = None, reuse: Any = None, name: str | None = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_units, forget_bias=forget_bias, state_is_tuple=state_is_tuple,
            activation=activation, reuse=reuse, name=name, dtype=dtype,
        )  # fmt: skip


class MultiRNNCell(RNNCell):
    """Cells one on top of another.

    >>> with weft.static.Graph().as_default():
    ...     rnn = weft.static.nn.rnn_cell
    ...     cell = rnn.MultiRNNCell([rnn.GRUCell(4), rnn.GRUCell(5)])
    ...     cell.state_size, cell.output_size
    ((4, 5), 5)
    """

    def __init__(self, cells: Any, state_is_tuple: bool = True) -> None:
        super().__init__()
        self._cells = list(cells)
        if not self._cells:
            raise ArgumentError("MultiRNNCell: expected at least one cell")
        if not state_is_tuple:
            raise ArgumentError("MultiRNNCell: states are tuples; there is no other")

    @property
    def state_size(self) -> Any:
        return tuple(cell.state_size for cell in self._cells)

    @property
    def output_size(self) -> Any:
        return self._cells[-1].output_size

    def call(self, inputs: Any, state: Any) -> Any:
        states = []
        for k, (cell, own) in enumerate(zip(self._cells, state, strict=True)):
            with variable_scope(f"cell_{k}"):
                inputs, new = cell(inputs, own)
            states.append(new)
        self.variables = [v for cell in self._cells for v in cell.variables]
        return inputs, tuple(states)


class _Wrapper(RNNCell):
    """A cell around another one, in whose scope nothing is added."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self._cell = cell

    state_size: Any = property(lambda self: self._cell.state_size)
    output_size: Any = property(lambda self: self._cell.output_size)

    def zero_state(self, batch_size: Any, dtype: Any = weft.float32) -> Any:
        return self._cell.zero_state(batch_size, dtype)

    def __call__(  # type: ignore[override]
        self, inputs: Any, state: Any, scope: Any = None
    ) -> Any:
        with building():
            out = self._wrapped(as_node(inputs), state, scope)
        self.variables, self.built = self._cell.variables, True
        return out

    def _wrapped(self, inputs: Any, state: Any, scope: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} wraps nothing")


class DropoutWrapper(_Wrapper):
    """A cell with dropout of its inputs, outputs and states.

    As in TensorFlow the memory ``c`` of an LSTM is never dropped.

    >>> with weft.static.Graph().as_default():
    ...     rnn = weft.static.nn.rnn_cell
    ...     rnn.DropoutWrapper(rnn.GRUCell(4), output_keep_prob=0.5).output_size
    4
    """

    def __init__(
        self, cell: Any, input_keep_prob: Any = 1.0, output_keep_prob: Any = 1.0,
        state_keep_prob: Any = 1.0, variational_recurrent: bool = False,
        input_size: Any = None, dtype: Any = None, seed: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(cell)
        if variational_recurrent:
            raise ArgumentError(
                "DropoutWrapper: there is no variational_recurrent; multiply inputs "
                "and outputs by a mask that is drawn once"
            )
        self._keep = input_keep_prob, output_keep_prob, state_keep_prob
        self._seed = seed

    def _drop(self, x: Any, keep: Any) -> Any:
        from weft.static.nn import dropout

        if isinstance(keep, (int, float)) and keep >= 1:
            return x
        return dropout(x, keep, seed=self._seed)

    def _state(self, state: Any) -> Any:
        keep = self._keep[2]
        if isinstance(state, LSTMStateTuple):
            return LSTMStateTuple(state.c, self._drop(state.h, keep))
        if isinstance(state, tuple):
            return tuple(self._state(one) for one in state)
        return self._drop(state, keep)

    def _wrapped(self, inputs: Any, state: Any, scope: Any) -> Any:
        out, new = self._cell(self._drop(inputs, self._keep[0]), state, scope)
        return self._drop(out, self._keep[1]), self._state(new)


class ResidualWrapper(_Wrapper):
    """A cell whose output has its input added.

    >>> with weft.static.Graph().as_default():
    ...     rnn = weft.static.nn.rnn_cell
    ...     rnn.ResidualWrapper(rnn.GRUCell(4)).state_size
    4
    """

    def _wrapped(self, inputs: Any, state: Any, scope: Any) -> Any:
        out, new = self._cell(inputs, state, scope)
        return tree_map(lambda x, y: x + y, inputs, out), new


class DeviceWrapper(_Wrapper):
    """The cell itself: there is one device.

    >>> with weft.static.Graph().as_default():
    ...     rnn = weft.static.nn.rnn_cell
    ...     rnn.DeviceWrapper(rnn.GRUCell(4), "/gpu:0").state_size
    4
    """

    def __init__(self, cell: Any, device: Any = None) -> None:
        super().__init__(cell)

    def _wrapped(self, inputs: Any, state: Any, scope: Any) -> Any:
        return self._cell(inputs, state, scope)


def __getattr__(name: str) -> Any:
    from weft.static import absent

    raise absent.error("nn.rnn_cell", name)

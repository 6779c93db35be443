"""Recurrent networks: RNN, LSTM, GRU, and their cells.

A kind of cell is one function ``step(gates, state, weights) -> state``, where
``gates`` is the input's part of all gates, computed for the whole sequence in one
matrix product.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import weft
from weft import Tensor
from weft.core.eager_kernels import lstm
from weft.core.mode import mode
from weft.errors import ArgumentError, ShapeError
from weft.graph import capturing
from weft.nn import functional as F
from weft.nn import init
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.nn.utils.rnn import PackedSequence

State = tuple[Tensor, ...]
Step = Callable[[Tensor, State, Tensor, Any], State]


def _tanh_step(gates: Tensor, state: State, w: Tensor, b: Any) -> State:
    return (weft.tanh(gates + F.linear(state[0], w, b)),)


def _relu_step(gates: Tensor, state: State, w: Tensor, b: Any) -> State:
    return (F.relu(gates + F.linear(state[0], w, b)),)


def _lstm_step(gates: Tensor, state: State, w: Tensor, b: Any) -> State:
    h, c = state
    i, f, g, o = (gates + F.linear(h, w, b)).chunk(4, -1)
    c = weft.sigmoid(f) * c + weft.sigmoid(i) * weft.tanh(g)
    return weft.sigmoid(o) * weft.tanh(c), c


def _gru_step(gates: Tensor, state: State, w: Tensor, b: Any) -> State:
    (h,) = state
    r_x, z_x, n_x = gates.chunk(3, -1)
    r_h, z_h, n_h = F.linear(h, w, b).chunk(3, -1)
    r, z = weft.sigmoid(r_x + r_h), weft.sigmoid(z_x + z_h)
    n = weft.tanh(n_x + r * n_h)
    return ((1 - z) * n + z * h,)


_STEPS: dict[str, Step] = {"tanh": _tanh_step, "relu": _relu_step}


class _Recurrent(Module):
    """Parameters of gates, initialised as PyTorch does."""

    gates: ClassVar[int]
    step: Step
    states: ClassVar[int] = 1

    def _step(self) -> Step:
        return type(self).step

    def _weights(self, suffix: str, sizes: Any, bias: bool, options: Any) -> None:
        hidden, inputs, state = sizes
        rows = self.gates * hidden
        setattr(
            self, f"weight_ih{suffix}", Parameter(weft.empty(rows, inputs, **options))
        )
        setattr(
            self, f"weight_hh{suffix}", Parameter(weft.empty(rows, state, **options))
        )
        if bias:
            setattr(self, f"bias_ih{suffix}", Parameter(weft.empty(rows, **options)))
            setattr(self, f"bias_hh{suffix}", Parameter(weft.empty(rows, **options)))

    def reset_parameters(self) -> None:
        """Initialise anew: uniform within one over the root of the hidden size."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)


class RNNBase(_Recurrent):
    """Stacked, possibly bidirectional layers over whole sequences."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if hidden_size <= 0 or num_layers <= 0:
            raise ArgumentError(f"{name}: hidden_size and num_layers must be positive")
        if not 0 <= dropout <= 1:
            raise ArgumentError(f"{name}: dropout must be from 0 to 1, got {dropout}")
        if proj_size < 0 or proj_size >= hidden_size or (proj_size and self.states < 2):
            raise ArgumentError(
                f"{name}: proj_size is for LSTM, from 0 to hidden_size, got {proj_size}"
            )
        self.input_size, self.hidden_size, self.num_layers = (
            input_size, hidden_size, num_layers,
        )  # fmt: skip
        self.bias, self.batch_first, self.dropout = bias, batch_first, dropout
        self.bidirectional, self.proj_size = bidirectional, proj_size
        options = {"device": device, "dtype": dtype}
        self.directions = 2 if bidirectional else 1
        self.output_size = proj_size or hidden_size
        for layer in range(num_layers):
            inputs = input_size if layer == 0 else self.output_size * self.directions
            for suffix in self._suffixes(layer):
                self._weights(
                    suffix, (hidden_size, inputs, self.output_size), bias, options
                )
                if proj_size:
                    weight = weft.empty(proj_size, hidden_size, **options)
                    setattr(self, f"weight_hr{suffix}", Parameter(weight))
        self.reset_parameters()

    def _suffixes(self, layer: int) -> list[str]:
        ends = ["", "_reverse"] if self.bidirectional else [""]
        return [f"_l{layer}{end}" for end in ends]

    def flatten_parameters(self) -> None:
        """Nothing to do here; PyTorch has it for its GPU library."""

    # -- forward

    def forward(self, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence):
            sizes = [int(n) for n in input.batch_sizes.array()]
            state = self._initial(hx, sizes[0], input.data, input.sorted_indices)
            data, last = self._run(input.data, sizes, state)
            last = self._reorder(last, input.unsorted_indices)
            return input._replace(data=data), self._result(last)
        single = input.ndim == 2
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: expected input of shape (T, N, "
                f"{self.input_size}) or (T, {self.input_size}), got {input.shape}"
            )
        x = input.unsqueeze(1) if single else input
        if self.batch_first and not single:
            x = x.transpose(0, 1)
        steps, batch = x.shape[:2]
        if not steps:
            raise ShapeError(
                f"{type(self).__name__}: expected sequences of at least one step, got "
                f"input of shape {input.shape}"
            )
        state = self._initial(hx, batch, x, None, single)
        out, last = self._run(x, None, state)
        if single:
            return out.squeeze(1), self._result(tuple(s.squeeze(1) for s in last))
        out = out.transpose(0, 1) if self.batch_first else out
        return out, self._result(last)

    def _initial(
        self, hx: Any, batch: int, like: Tensor, order: Any, single: bool = False
    ) -> State:
        count = self.num_layers * self.directions
        sizes = (self.output_size, self.hidden_size)[: self.states]
        if hx is None:
            return tuple(like.new_zeros(count, batch, n) for n in sizes)
        given = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        if single:
            given = tuple(s.unsqueeze(1) for s in given)
        for s, n in zip(given, sizes, strict=True):
            if s.shape != (count, batch, n):
                raise ShapeError(
                    f"{type(self).__name__}: expected an initial state of shape "
                    f"{(count, batch, n)}, got {s.shape}"
                )
        return self._reorder(given, order)

    def _reorder(self, state: State, order: Any) -> State:
        return (
            state if order is None else tuple(s.index_select(1, order) for s in state)
        )

    def _result(self, last: State) -> Any:
        return last if self.states > 1 else last[0]

    def _run(
        self, data: Tensor, sizes: list[int] | None, state: State
    ) -> tuple[Tensor, State]:
        """All layers over packed data; the last state of each layer and direction.

        Without ``sizes``, the data are sequences of one length, side by side.
        """
        finals: list[State] = []
        for layer in range(self.num_layers):
            outs = []
            for suffix in self._suffixes(layer):
                start = tuple(s[len(finals)] for s in state)
                out, last = self._direction(data, sizes, start, suffix)
                outs.append(out)
                finals.append(last)
            data = outs[0] if len(outs) == 1 else weft.cat(outs, -1)
            if layer < self.num_layers - 1:
                data = F.dropout(data, self.dropout, self.training)
        return data, tuple(weft.stack(column) for column in zip(*finals, strict=True))

    def _direction(
        self, data: Tensor, sizes: list[int] | None, start: State, suffix: str
    ) -> tuple[Tensor, State]:
        if sizes is not None:
            return self._packed(data, sizes, start, suffix)
        if capturing(data, start) is not None:
            return self._looped(data, start, suffix)
        steps, batch = data.shape[:2]
        rows = data.reshape(steps * batch, data.shape[-1])
        out, last = self._packed(rows, [batch] * steps, start, suffix)
        return out.reshape(steps, batch, self.output_size), last

    def _looped(self, data: Tensor, start: State, suffix: str) -> tuple[Tensor, State]:
        """A loop in the graph: one program for sequences of any length."""
        w_ih, w_hh, b_ih, b_hh = self._parameters_of(suffix)

        def step(state: State, gates: Tensor) -> tuple[State, Tensor]:
            state = self._projected(self._step()(gates, state, w_hh, b_hh), suffix)
            return state, state[0]

        gates = F.linear(data, w_ih, b_ih)
        backwards = suffix.endswith("_reverse")
        last, out = weft.scan(step, start, gates, reverse=backwards)
        return out, last

    def _parameters_of(self, suffix: str) -> tuple[Any, ...]:
        w_ih, w_hh = (getattr(self, f"weight_{k}{suffix}") for k in ("ih", "hh"))
        if not self.bias:
            return w_ih, w_hh, None, None
        b_ih, b_hh = (getattr(self, f"bias_{k}{suffix}") for k in ("ih", "hh"))
        return w_ih, w_hh, b_ih, b_hh

    def _projected(self, state: State, suffix: str) -> State:
        if not self.proj_size:
            return state
        h = F.linear(state[0], getattr(self, f"weight_hr{suffix}"))
        return h, *state[1:]

    def _packed(
        self, data: Tensor, sizes: list[int], start: State, suffix: str
    ) -> tuple[Tensor, State]:
        w_ih, w_hh, b_ih, b_hh = self._parameters_of(suffix)
        backwards = suffix.endswith("_reverse")
        steps = functools.partial(self._steps, sizes, backwards, suffix)
        if isinstance(sizes[0], int) and 1 < sizes[-1] == sizes[0]:
            weights = w_ih, w_hh, b_ih, b_hh
            found = self._by_kernels(steps, data, start, weights, sizes[0], backwards)
            if found is not None:
                return found
        return steps(F.linear(data, w_ih, b_ih), start, w_hh, b_hh)

    def _by_kernels(
        self, steps: Any, data: Tensor, start: State, weights: Any, batch: int,
        backwards: bool,
    ) -> tuple[Tensor, State] | None:  # fmt: skip
        """All steps of sequences of one length by kernels of their own, if it has any.

        ``steps(gates, start, w_hh, b_hh)`` gives the same one step after the other.
        """
        return None

    def _steps(
        self, sizes: list[int], backwards: bool, suffix: str,
        data: Tensor, start: State, w_hh: Tensor, b_hh: Any,
    ) -> tuple[Tensor, State]:  # fmt: skip
        gates = data.split(sizes)  # one piece a step
        order = range(len(sizes))[::-1] if backwards else range(len(sizes))
        outs: list[Any] = [None] * len(sizes)
        step = self._step()
        state = tuple(s[: sizes[-1]] for s in start) if backwards else start
        ended: list[State] = []  # states of sequences that are over, longest last
        for t in order:
            n, have = sizes[t], state[0].shape[0]
            if n < have:
                ended.append(tuple(s[n:] for s in state))
                state = tuple(s[:n] for s in state)
            elif n > have:
                more = (s[have:n] for s in start)
                state = tuple(weft.cat(p) for p in zip(state, more, strict=True))
            state = self._projected(step(gates[t], state, w_hh, b_hh), suffix)
            outs[t] = state[0]
        for tail in reversed(ended):
            state = tuple(weft.cat(p) for p in zip(state, tail, strict=True))
        return weft.cat(outs), state

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if not self.bias:
            text += ", bias=False"
        if self.batch_first:
            text += ", batch_first=True"
        if self.dropout:
            text += f", dropout={self.dropout}"
        return f"{text}, bidirectional=True" if self.bidirectional else text


class RNN(RNNBase):
    """``h = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh)`` (or relu).

    >>> out, h = weft.nn.RNN(3, 4)(weft.rand(5, 2, 3))
    >>> out.shape, h.shape
    ((5, 2, 4), (1, 2, 4))
    """

    gates = 1
    step = staticmethod(_tanh_step)

    def __init__(self, *args: Any, nonlinearity: str = "tanh", **options: Any) -> None:
        if len(args) > 3:  # its position in PyTorch's order
            nonlinearity, args = args[3], args[:3] + args[4:]
        if nonlinearity not in _STEPS:
            raise ArgumentError(
                f"RNN: nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}"
            )
        super().__init__(*args, **options)
        self.nonlinearity = nonlinearity

    def _step(self) -> Step:
        return _STEPS[self.nonlinearity]


class LSTM(RNNBase):
    """Long short-term memory, optionally with projected outputs.

    >>> out, (h, c) = weft.nn.LSTM(3, 4, num_layers=2)(weft.rand(5, 2, 3))
    >>> out.shape, h.shape, c.shape
    ((5, 2, 4), (2, 2, 4), (2, 2, 4))
    """

    gates = 4
    states = 2
    step = staticmethod(_lstm_step)

    def _by_kernels(
        self, steps: Any, data: Tensor, start: State, weights: Any, batch: int,
        backwards: bool,
    ) -> tuple[Tensor, State] | None:  # fmt: skip
        if self.proj_size or mode.autocast is not None:
            return None
        w_ih, w_hh, b_ih, b_hh = weights
        if self.bias:
            both = b_ih + b_hh
        else:
            both = weft.zeros(w_hh.shape[0], dtype=w_hh.dtype)
        return lstm(steps, (data, *start, w_ih, w_hh, both), batch, backwards)


class GRU(RNNBase):
    """Gated recurrent units.

    >>> out, h = weft.nn.GRU(3, 4, bidirectional=True)(weft.rand(5, 2, 3))
    >>> out.shape, h.shape
    ((5, 2, 8), (2, 2, 4))
    """

    gates = 3
    step = staticmethod(_gru_step)


class RNNCellBase(_Recurrent):
    """One step of one layer."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        sizes = (hidden_size, input_size, hidden_size)
        self._weights("", sizes, bias, {"device": device, "dtype": dtype})
        self.reset_parameters()

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        if input.ndim not in (1, 2) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: expected input of shape (N, "
                f"{self.input_size}) or ({self.input_size},), got {input.shape}"
            )
        if hx is None:
            shape = (*input.shape[:-1], self.hidden_size)
            state = tuple(input.new_zeros(shape) for _ in range(self.states))
        else:
            state = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        b_ih, b_hh = (self.bias_ih, self.bias_hh) if self.bias else (None, None)
        gates = F.linear(input, self.weight_ih, b_ih)
        out = self._step()(gates, state, self.weight_hh, b_hh)
        return out if self.states > 1 else out[0]

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        return text if self.bias else f"{text}, bias=False"


class RNNCell(RNNCellBase):
    """One step of an ``RNN``.

    >>> weft.nn.RNNCell(3, 4)(weft.rand(2, 3)).shape
    (2, 4)
    """

    gates = 1
    step = staticmethod(_tanh_step)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in _STEPS:
            raise ArgumentError(
                f"RNNCell: nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}"
            )
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def _step(self) -> Step:
        return _STEPS[self.nonlinearity]

    def extra_repr(self) -> str:
        text = super().extra_repr()
        odd = self.nonlinearity != "tanh"
        return f"{text}, nonlinearity={self.nonlinearity}" if odd else text


class LSTMCell(RNNCellBase):
    """One step of an ``LSTM``: gives (h, c).

    >>> h, c = weft.nn.LSTMCell(3, 4)(weft.rand(2, 3))
    >>> h.shape
    (2, 4)
    """

    gates = 4
    states = 2
    step = staticmethod(_lstm_step)


class GRUCell(RNNCellBase):
    """One step of a ``GRU``.

    >>> weft.nn.GRUCell(3, 4)(weft.rand(2, 3)).shape
    (2, 4)
    """

    gates = 3
    step = staticmethod(_gru_step)

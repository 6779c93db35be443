"""Linear layers, and layers that only reshape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft import Tensor
from weft.errors import ArgumentError, DTypeError
from weft.nn import functional as F
from weft.nn import init
from weft.nn.activation import Activation, activation
from weft.nn.lazy import LazyMixin
from weft.nn.module import Module
from weft.nn.parameter import Parameter

Initializer = Callable[[Tensor], Any]


def fill(parameter: Tensor, chosen: Initializer | None, default: Initializer) -> None:
    """Initialise a parameter with the user's function or the layer's own."""
    with weft.no_grad():
        (chosen or default)(parameter)


def uniform_by_fan(fan_in: int) -> Initializer:
    """Uniform within one over the root of the number of inputs."""
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return lambda p: init.uniform_(p, -bound, bound)


class Identity(Module):
    """Returns its input; takes and ignores any arguments.

    >>> weft.nn.Identity(54)(weft.ones(1))
    tensor([1.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


class Linear(Module):
    """``act(x W^T + b)``.

    ``act`` names an activation; ``w_init`` and ``b_init`` replace the initialisers.

    >>> weft.nn.Linear(3, 2)(weft.zeros(5, 3)).shape
    (5, 2)
    """

    act: Any = None  # defaults, for modules that PyTorch saved
    _initialisers: Any = (None, None)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        act: str | Activation | None = None,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.act = act
        self._activation = activation(act)
        self._initialisers = (w_init, b_init)
        self.weight: Any = Parameter(
            weft.empty(out_features, in_features, device=device, dtype=dtype)
        )
        self.bias: Any = None
        if bias:
            self.bias = Parameter(weft.empty(out_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise anew."""
        w_init, b_init = self._initialisers
        fill(self.weight, w_init, lambda p: init.kaiming_uniform_(p, a=math.sqrt(5)))
        if self.bias is not None:
            fill(self.bias, b_init, uniform_by_fan(self.in_features))

    def forward(self, input: Tensor) -> Tensor:
        if not isinstance(input, Tensor):
            raise DTypeError(
                f"{type(self).__name__}: expected a tensor, got {type(input).__name__}"
            )
        out = F.linear(input, self.weight, self.bias)
        return out if self.act is None else self._activation(out)

    def extra_repr(self) -> str:
        text = (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
        return text if self.act is None else f"{text}, act={self.act!r}"


Dense = fc = Linear


class NonDynamicallyQuantizableLinear(Linear):
    """A linear layer that other layers read the parameters of."""


class LazyLinear(LazyMixin, Linear):
    """A ``Linear`` that learns ``in_features`` from its first input.

    >>> layer = weft.nn.LazyLinear(2)
    >>> layer(weft.zeros(5, 3)).shape, layer
    ((5, 2), Linear(in_features=3, out_features=2, bias=True))
    """

    becomes = Linear

    missing = "in_features"

    def size(self, input: Tensor) -> int:
        return input.shape[-1]


class Bilinear(Module):
    """``x1 W_k x2 + b_k``.

    >>> weft.nn.Bilinear(2, 3, 4)(weft.zeros(5, 2), weft.zeros(5, 3)).shape
    (5, 4)
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self.weight = Parameter(weft.empty(shape, device=device, dtype=dtype))
        self.bias: Any = None
        if bias:
            self.bias = Parameter(weft.empty(out_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise anew."""
        start = uniform_by_fan(self.in1_features)
        for parameter in self.parameters():
            fill(parameter, None, start)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class Flatten(Module):
    """Several dimensions made one; all but the first unless told otherwise.

    >>> weft.nn.Flatten()(weft.zeros(5, 2, 3)).shape
    (5, 6)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One dimension split into several.

    >>> weft.nn.Unflatten(1, (2, 3))(weft.zeros(5, 6)).shape
    (5, 2, 3)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        if not isinstance(unflattened_size, (tuple, list)):
            raise ArgumentError(
                f"Unflatten: expected a tuple of sizes, got {unflattened_size!r}"
            )
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"

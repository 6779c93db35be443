"""Activations as modules, and the registry of their names.

>>> weft.nn.Linear(3, 2, act="relu")
Linear(in_features=3, out_features=2, bias=True, act='relu')
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import Tensor
from weft.errors import ArgumentError
from weft.nn import functional as F
from weft.nn.functional_module import REQUIRED, FunctionalModule, TrainingModule
from weft.nn.module import Module
from weft.nn.parameter import Parameter


class ReLU(FunctionalModule):
    """``max(x, 0)``.

    >>> weft.nn.ReLU()(weft.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    function = F.relu
    options = {"inplace": False}


class ReLU6(FunctionalModule):
    """``min(max(x, 0), 6)``."""

    function = F.relu6
    options = {"inplace": False}


class LeakyReLU(FunctionalModule):
    """``x`` if positive, else ``negative_slope * x``."""

    function = F.leaky_relu
    options = {"negative_slope": 0.01, "inplace": False}


class RReLU(TrainingModule):
    """``LeakyReLU`` with a random slope while training."""

    function = F.rrelu
    options = {"lower": 1.0 / 8, "upper": 1.0 / 3, "inplace": False}


class ELU(FunctionalModule):
    """``x`` if positive, else ``alpha * (exp(x) - 1)``."""

    function = F.elu
    options = {"alpha": 1.0, "inplace": False}


class SELU(FunctionalModule):
    """The self-normalising unit."""

    function = F.selu
    options = {"inplace": False}


class CELU(FunctionalModule):
    """``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``."""

    function = F.celu
    options = {"alpha": 1.0, "inplace": False}


class GELU(FunctionalModule):
    """``x`` times the chance that a normal variable is below it."""

    function = F.gelu
    options = {"approximate": "none"}


class SiLU(FunctionalModule):
    """``x * sigmoid(x)``."""

    function = F.silu
    options = {"inplace": False}


class Mish(FunctionalModule):
    """``x * tanh(softplus(x))``."""

    function = F.mish
    options = {"inplace": False}


class Softplus(FunctionalModule):
    """``log(1 + exp(beta * x)) / beta``."""

    function = F.softplus
    options = {"beta": 1.0, "threshold": 20.0}


class Softsign(FunctionalModule):
    """``x / (1 + |x|)``."""

    function = F.softsign


class Tanh(FunctionalModule):
    """The hyperbolic tangent."""

    function = F.tanh


class Sigmoid(FunctionalModule):
    """``1 / (1 + exp(-x))``."""

    function = F.sigmoid


class LogSigmoid(FunctionalModule):
    """``log(sigmoid(x))``, without overflow."""

    function = F.logsigmoid


class Tanhshrink(FunctionalModule):
    """``x - tanh(x)``."""

    function = F.tanhshrink


class Hardtanh(FunctionalModule):
    """``x`` cut off at two values."""

    function = F.hardtanh
    options = {"min_val": -1.0, "max_val": 1.0, "inplace": False}


class Hardsigmoid(FunctionalModule):
    """``clamp(x / 6 + 1/2, 0, 1)``."""

    function = F.hardsigmoid
    options = {"inplace": False}


class Hardswish(FunctionalModule):
    """``x * hardsigmoid(x)``."""

    function = F.hardswish
    options = {"inplace": False}


class Hardshrink(FunctionalModule):
    """``x``, but 0 between ``-lambd`` and ``lambd``."""

    function = F.hardshrink
    options = {"lambd": 0.5}
    shows = "{lambd}"


class Softshrink(FunctionalModule):
    """``x`` moved towards 0 by ``lambd``."""

    function = F.softshrink
    options = {"lambd": 0.5}
    shows = "{lambd}"


class Threshold(FunctionalModule):
    """``x`` above the threshold, else ``value``."""

    function = F.threshold
    options = {"threshold": REQUIRED, "value": REQUIRED, "inplace": False}


class GLU(FunctionalModule):
    """The first half times the sigmoid of the second."""

    function = F.glu
    options = {"dim": -1}


class Softmax(FunctionalModule):
    """``exp(x)`` divided by its sum along ``dim``."""

    function = F.softmax
    options = {"dim": None}


class LogSoftmax(FunctionalModule):
    """The logarithm of the softmax along ``dim``."""

    function = F.log_softmax
    options = {"dim": None}


class Softmin(FunctionalModule):
    """The softmax of ``-x`` along ``dim``."""

    function = F.softmin
    options = {"dim": None}


class Softmax2d(Module):
    """The softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return weft.softmax(input, -3)


class PReLU(Module):
    """``LeakyReLU`` with learnt slopes.

    >>> weft.nn.PReLU()(weft.tensor([-4.0])).item()
    -1.0
    """

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        dtype = dtype or weft.get_default_dtype()
        self.weight = Parameter(
            weft.full((num_parameters,), init, device=device, dtype=dtype)
        )

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


# -- activations by name

Activation = Callable[[Tensor], Tensor]


def _linear(x: Tensor) -> Tensor:
    return x


def _softmax(x: Tensor) -> Tensor:
    return weft.softmax(x, -1)


def _log_softmax(x: Tensor) -> Tensor:
    return weft.log_softmax(x, -1)


_REGISTRY: dict[str, Activation] = {
    "linear": _linear,
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "gelu": F.gelu,
    "silu": F.silu,
    "swish": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "tanh": F.tanh,
    "sigmoid": F.sigmoid,
    "hardtanh": F.hardtanh,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
}


def register_activation(name: str, function: Activation) -> None:
    """Make an activation known by a name, for ``act="name"``.

    >>> weft.nn.register_activation("cube", lambda x: x**3)
    >>> weft.nn.activation("cube")(weft.tensor([2.0]))
    tensor([8.])
    """
    _REGISTRY[name] = function


def activation(name: str | Activation | None) -> Activation:
    """The activation with a name (or the function itself, or none at all).

    >>> weft.nn.activation("relu")(weft.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    if name is None:
        return _REGISTRY["linear"]
    if callable(name):
        return name
    if name not in _REGISTRY:
        known = ", ".join(sorted(_REGISTRY))
        raise ArgumentError(
            f"unknown activation {name!r}; known are {known}. Add your own with "
            "weft.nn.register_activation(name, function)"
        )
    return _REGISTRY[name]

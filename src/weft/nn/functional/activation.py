"""Activation functions, with PyTorch's names and definitions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import weft
from weft import Tensor
from weft.core.autocast import lowered
from weft.core.eager_kernels import fused
from weft.core.mode import mode
from weft.errors import ArgumentError, ShapeError
from weft.ops.copies import in_float32


def _result(input: Tensor, out: Tensor, inplace: bool) -> Tensor:
    return input.copy_(out) if inplace else out


def _kept(input: Tensor, inplace: bool) -> Tensor:
    """The input for a gradient that needs it, also after it was overwritten."""
    return input.clone() if inplace else input


def _fused(
    name: str, plain: Callable[[Tensor], Tensor], input: Tensor, key: Any = ()
) -> Tensor:
    """A composition as one kernel, where that pays, in float32 for half types."""
    return in_float32(functools.partial(fused, name, plain, key=key), input)


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """``max(x, 0)``.

    >>> weft.nn.functional.relu(weft.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    return _result(input, input.relu(), inplace)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """``min(max(x, 0), 6)``.

    >>> weft.nn.functional.relu6(weft.tensor([-1.0, 9.0]))
    tensor([0., 6.])
    """
    return hardtanh(input, 0.0, 6.0, inplace)


def leaky_relu(
    input: Tensor, negative_slope: float = 0.01, inplace: bool = False
) -> Tensor:
    """``x`` if positive, else ``negative_slope * x``.

    >>> weft.nn.functional.leaky_relu(weft.tensor([-1.0, 2.0]), 0.5)
    tensor([-0.5000,  2.0000])
    """
    return _result(input, weft.where(input > 0, input, input * negative_slope), inplace)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """``leaky_relu`` with a learnt slope, one or one a channel.

    >>> weft.nn.functional.prelu(weft.tensor([-4.0, 2.0]), weft.tensor([0.25]))
    tensor([-1.,  2.])
    """
    if mode.autocast is not None:
        input, weight = lowered(input, weight)
    slope = weight
    if weight.ndim > 1:
        raise ShapeError(
            f"prelu: expected the slopes as a vector, got shape {weight.shape}"
        )
    if weight.numel() != 1:
        channels = input.shape[1] if input.ndim > 1 else 1
        if weight.numel() != channels:
            raise ShapeError(
                f"prelu: expected 1 or {channels} slopes for input of shape "
                f"{input.shape}, got {weight.numel()}"
            )
        slope = weight.reshape((1, -1) + (1,) * (input.ndim - 2))
    elif input.ndim == 0:
        slope = weight.reshape(())
    return weft.where(input > 0, input, input * slope)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """``leaky_relu`` with a random slope when training, else the mean slope.

    >>> weft.nn.functional.rrelu(weft.tensor([-48.0, 2.0]))
    tensor([-11.,   2.])
    """
    if lower > upper:
        raise ArgumentError(f"rrelu: expected lower <= upper, got {lower} and {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = weft.rand_like(input) * (upper - lower) + lower
    return _result(input, weft.where(input > 0, input, input * slope), inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``x`` if positive, else ``alpha * (exp(x) - 1)``.

    >>> weft.nn.functional.elu(weft.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """
    return _result(input, in_float32(functools.partial(_elu, alpha), input), inplace)


def _elu(alpha: float, x: Tensor) -> Tensor:
    return weft.where(x > 0, x, alpha * weft.expm1(x))


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """The self-normalising unit: a scaled ``elu``.

    >>> weft.nn.functional.selu(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 1.0507])
    """
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    out = in_float32(lambda x: scale * _elu(alpha, x), input)
    return _result(input, out, inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``.

    >>> weft.nn.functional.celu(weft.tensor([-1.0, 2.0]), 2.0)
    tensor([-0.7869,  2.0000])
    """
    if alpha == 0:
        raise ArgumentError("celu: alpha must not be 0")

    def plain(x: Tensor) -> Tensor:
        return weft.where(x > 0, x, alpha * weft.expm1(x / alpha))

    return _result(input, in_float32(plain, input), inplace)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """``x`` times the chance that a normal variable is below it.

    ``approximate="tanh"`` takes the usual approximation.

    >>> weft.nn.functional.gelu(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8413])
    """
    if approximate == "none":
        return _fused("gelu", _gelu, input)
    if approximate == "tanh":
        return _fused("gelu by tanh", _gelu_by_tanh, input)
    raise ArgumentError(
        f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}"
    )


def _gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + weft.erf(x * math.sqrt(0.5)))


def _gelu_by_tanh(x: Tensor) -> Tensor:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + weft.tanh(inner))


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * sigmoid(x)``.

    >>> weft.nn.functional.silu(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7311])
    """
    out = _fused("silu", lambda x: x * weft.sigmoid(x), _kept(input, inplace))
    return _result(input, out, inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * tanh(softplus(x))``.

    >>> weft.nn.functional.mish(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8651])
    """
    out = in_float32(lambda x: x * weft.tanh(softplus(x)), _kept(input, inplace))
    return _result(input, out, inplace)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``, linear above the threshold.

    >>> weft.nn.functional.softplus(weft.tensor([0.0, 30.0]))
    tensor([ 0.6931, 30.0000])
    """

    def plain(x: Tensor) -> Tensor:
        scaled = x * beta
        soft = weft.log1p(weft.exp(weft.clamp(scaled, max=threshold))) / beta
        return weft.where(scaled > threshold, x, soft)

    return _fused("softplus", plain, input, key=(beta, threshold))


def softsign(input: Tensor) -> Tensor:
    """``x / (1 + |x|)``.

    >>> weft.nn.functional.softsign(weft.tensor([-1.0, 3.0]))
    tensor([-0.5000,  0.7500])
    """
    return in_float32(lambda x: x / (1 + weft.abs(x)), input)


def logsigmoid(input: Tensor) -> Tensor:
    """``log(sigmoid(x))``, without overflow.

    >>> weft.nn.functional.logsigmoid(weft.tensor([0.0, -1000.0]))
    tensor([-6.9315e-01, -1.0000e+03])
    """

    def plain(x: Tensor) -> Tensor:
        low = weft.minimum(x, weft.zeros_like(x))
        return low - weft.log1p(weft.exp(-weft.abs(x)))

    return in_float32(plain, input)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent.

    >>> weft.nn.functional.tanh(weft.tensor([0.0]))
    tensor([0.])
    """
    return weft.tanh(input)


def sigmoid(input: Tensor) -> Tensor:
    """``1 / (1 + exp(-x))``.

    >>> weft.nn.functional.sigmoid(weft.tensor([0.0]))
    tensor([0.5000])
    """
    return weft.sigmoid(input)


def tanhshrink(input: Tensor) -> Tensor:
    """``x - tanh(x)``.

    >>> weft.nn.functional.tanhshrink(weft.tensor([0.0, 1.0]))
    tensor([0.0000, 0.2384])
    """
    return in_float32(lambda x: x - weft.tanh(x), input)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """``x`` cut off at two values.

    >>> weft.nn.functional.hardtanh(weft.tensor([-3.0, 0.5]))
    tensor([-1.0000,  0.5000])
    """
    if min_val > max_val:
        raise ArgumentError(
            f"hardtanh: expected min_val <= max_val, got {min_val} and {max_val}"
        )
    if (
        not input.dtype.is_inexact
        and min_val == int(min_val)
        and max_val == int(max_val)
    ):
        min_val, max_val = int(min_val), int(max_val)  # integers stay integers
    out = _cut(input, input, min_val, max_val, min_val, max_val)
    return _result(input, out, inplace)


def _cut(
    x: Tensor, inner: Tensor, low: float, high: float, below: float, above: Any
) -> Tensor:
    """``inner``, but other values at and outside two limits: the slope there is 0."""
    return weft.where(x <= low, below, weft.where(x >= high, above, inner))


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """``clamp(x / 6 + 1/2, 0, 1)``.

    >>> weft.nn.functional.hardsigmoid(weft.tensor([-4.0, 0.0]))
    tensor([0.0000, 0.5000])
    """
    out = in_float32(lambda x: _cut(x, x / 6 + 0.5, -3.0, 3.0, 0.0, 1.0), input)
    return _result(input, out, inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * hardsigmoid(x)``.

    >>> weft.nn.functional.hardswish(weft.tensor([0.0, 3.0]))
    tensor([0., 3.])
    """

    def plain(x: Tensor) -> Tensor:
        return _cut(x, x * (x / 6 + 0.5), -3.0, 3.0, 0.0, x)

    out = in_float32(plain, _kept(input, inplace))
    return _result(input, out, inplace)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """``x``, but 0 between ``-lambd`` and ``lambd``.

    >>> weft.nn.functional.hardshrink(weft.tensor([0.3, 2.0]))
    tensor([0., 2.])
    """
    return weft.where(weft.abs(input) <= lambd, 0.0, input)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """``x`` moved towards 0 by ``lambd``.

    >>> weft.nn.functional.softshrink(weft.tensor([0.3, 2.0]))
    tensor([0.0000, 1.5000])
    """
    if lambd < 0:
        raise ArgumentError(f"softshrink: expected lambd of at least 0, got {lambd}")
    moved = weft.where(input > 0, input - lambd, input + lambd)
    return weft.where(weft.abs(input) <= lambd, 0.0, moved)


def threshold(
    input: Tensor, threshold: float, value: float, inplace: bool = False
) -> Tensor:
    """``x`` above the threshold, else ``value``.

    >>> weft.nn.functional.threshold(weft.tensor([0.3, 2.0]), 1.0, -7.0)
    tensor([-7.,  2.])
    """
    return _result(input, weft.where(input > threshold, input, value), inplace)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half times the sigmoid of the second, along a dimension.

    >>> weft.nn.functional.glu(weft.tensor([2.0, 0.0]))
    tensor([1.])
    """
    if input.size(dim) % 2:
        raise ShapeError(
            f"glu: expected an even size along dim {dim}, got shape {input.shape}"
        )
    value, gate = input.chunk(2, dim)
    return in_float32(lambda x, y: x * weft.sigmoid(y), value, gate)


def softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """``exp(x)``, divided by its sum along a dimension.

    >>> weft.nn.functional.softmax(weft.tensor([0.0, 0.0]), dim=0)
    tensor([0.5000, 0.5000])
    """
    return weft.softmax(input, _dim("softmax", dim), dtype)


def log_softmax(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """The logarithm of ``softmax``, without overflow.

    >>> weft.nn.functional.log_softmax(weft.tensor([0.0, 0.0]), dim=0)
    tensor([-0.6931, -0.6931])
    """
    return weft.log_softmax(input, _dim("log_softmax", dim), dtype)


def softmin(input: Tensor, dim: int | None = None, dtype: Any = None) -> Tensor:
    """``softmax`` of ``-x``.

    >>> weft.nn.functional.softmin(weft.tensor([0.0, 0.0]), dim=0)
    tensor([0.5000, 0.5000])
    """
    return softmax(-input, dim, dtype)


def _dim(name: str, dim: int | None) -> int:
    if dim is None:
        raise ArgumentError(f"{name}: say along which dim, for instance dim=-1")
    return dim


def gumbel_softmax(
    logits: Tensor,
    tau: float = 1.0,
    hard: bool = False,
    eps: float = 1e-10,
    dim: int = -1,
) -> Tensor:
    """A random softmax whose ``hard`` form is one-hot with the soft gradient.

    ``eps`` is there for PyTorch's sake and changes nothing, as with PyTorch.

    >>> weft.nn.functional.gumbel_softmax(weft.zeros(4), hard=True).sum()
    tensor(1.)
    """
    u = weft.rand_like(logits)
    noise = -weft.log(-weft.log1p(-u).clamp(max=-1e-30))
    soft = weft.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    chosen = soft.argmax(dim, keepdim=True)
    one_hot = weft.zeros_like(soft).scatter(dim, chosen, 1.0)
    return one_hot - soft.detach() + soft


def _in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The form of an activation that overwrites its input."""

    @functools.wraps(function)
    def overwrite(input: Tensor, *args: Any, **options: Any) -> Tensor:
        return function(input, *args, **options, inplace=True)

    name = f"{function.__name__}_"
    overwrite.__name__ = overwrite.__qualname__ = name
    overwrite.__doc__ = f"""``{function.__name__}`` that overwrites its input.

    >>> x = weft.tensor([0.5])
    >>> F = weft.nn.functional
    >>> F.{name}(x{", 0.0, 1.0" if function is threshold else ""}) is x
    True
    """
    return overwrite


relu_ = _in_place(relu)
leaky_relu_ = _in_place(leaky_relu)
rrelu_ = _in_place(rrelu)
elu_ = _in_place(elu)
selu_ = _in_place(selu)
celu_ = _in_place(celu)
hardtanh_ = _in_place(hardtanh)
threshold_ = _in_place(threshold)

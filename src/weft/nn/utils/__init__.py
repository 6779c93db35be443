"""Gradients and parameters taken together: clipping, norms, flat vectors."""

from __future__ import annotations

import functools
import importlib
import math
import operator
import warnings
from collections.abc import Iterable
from typing import Any

from weft import Tensor, cat, no_grad, stack, tensor, where
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.linalg import vector_norm
from weft.nn.utils import rnn as rnn
from weft.ops.require import known as _known
from weft.ops.require import require as _require


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    return [p.grad for p in parameters if p.grad is not None]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors as if they were one vector.

    >>> weft.nn.utils.get_total_norm([weft.tensor([3.0]), weft.tensor([4.0])])
    tensor(5.)
    """
    all_of = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not all_of:
        return tensor(0.0)
    order = float(norm_type)
    with no_grad():
        if 0 < order < math.inf and any(t._part is not t for t in all_of):
            total = _norm_of_parts(all_of, order)
        else:
            norms = [vector_norm(t, order)._complete() for t in all_of]
            total = vector_norm(stack(norms), order)
    if not error_if_nonfinite:
        return total
    return _require(
        total,
        lambda norm: abs(norm) < math.inf,
        f"get_total_norm: the total norm of order {norm_type} is {{value}}; pass "
        "error_if_nonfinite=False to go on all the same",
    )


def _norm_of_parts(tensors: list[Tensor], order: float) -> Tensor:
    """The norm of tensors that processes share out, which meet once for all."""
    powers = [(t.abs() ** order).sum() for t in tensors]
    return functools.reduce(operator.add, powers)._complete() ** (1 / order)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients together so that their norm is at most ``max_norm``.

    Returns the norm before.

    >>> p = weft.ones(2, requires_grad=True)
    >>> (p * weft.tensor([3.0, 4.0])).sum().backward()
    >>> weft.nn.utils.clip_grad_norm_([p], max_norm=1.0)
    tensor(5.)
    >>> p.grad
    tensor([0.6000, 0.8000])
    """
    if not max_norm >= 0:
        raise ArgumentError(f"clip_grad_norm_: expected max_norm >= 0, got {max_norm}")
    held = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    total = get_total_norm(_gradients(held), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(held, max_norm, total)
    return total


@functools.wraps(clip_grad_norm_)
def clip_grad_norm(*args: Any, **kwargs: Any) -> Tensor:
    """``clip_grad_norm_`` under its older name."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(*args, **kwargs)


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale all gradients as if ``total_norm`` were their norm.

    >>> p = weft.ones(1, requires_grad=True)
    >>> (p * 6).sum().backward()
    >>> weft.nn.utils.clip_grads_with_norm_([p], 1.0, weft.tensor(2.0))
    >>> p.grad
    tensor([3.0000])
    """
    with no_grad():
        scale = _clip_scale(float(max_norm), total_norm)
        if scale is not None:
            for g in _gradients(parameters):
                factor = scale.to(g.dtype) if isinstance(scale, Tensor) else scale
                g._part.mul_(factor)


def _clip_scale(max_norm: float, total: Tensor) -> Any:
    """The factor that brings the norm down to ``max_norm``; None if it is small enough.

    A NaN norm makes all gradients NaN, as it should.
    """
    if _known(total):
        scale = max_norm / (float(total) + 1e-6)
        return None if scale >= 1 else scale
    ratio = max_norm / (total.double() + 1e-6)
    return where(ratio >= 1, 1.0, ratio)


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor],
    clip_value: float,
    foreach: bool | None = None,
) -> None:
    """Limit every element of the gradients to [-clip_value, clip_value].

    >>> p = weft.ones(2, requires_grad=True)
    >>> (p * weft.tensor([3.0, -4.0])).sum().backward()
    >>> weft.nn.utils.clip_grad_value_([p], 3.5)
    >>> p.grad
    tensor([ 3.0000, -3.5000])
    """
    limit = float(clip_value)
    if not limit >= 0:
        raise ArgumentError(f"clip_grad_value_: expected a limit >= 0, got {limit}")
    with no_grad():
        for g in _gradients(parameters):
            g.clamp_(-limit, limit)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters in one vector; gradients flow back through it.

    >>> weft.nn.utils.parameters_to_vector([weft.zeros(2, 1), weft.ones(1)])
    tensor([0., 0., 1.])
    """
    return cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write a vector's elements into the parameters, in order.

    >>> p = weft.zeros(2)
    >>> weft.nn.utils.vector_to_parameters(weft.tensor([1.0, 2.0]), [p])
    >>> p
    tensor([1., 2.])
    """
    if not isinstance(vec, Tensor):
        kind = type(vec).__name__
        raise DTypeError(f"vector_to_parameters: expected a vector, got {kind}")
    every: list[Any] = list(parameters)
    total = sum(p.numel() for p in every)
    if vec.ndim != 1 or vec.numel() != total:
        raise ShapeError(
            f"vector_to_parameters: expected a vector of {total} elements, got shape "
            f"{vec.shape}"
        )
    with no_grad():
        start = 0
        for p in every:
            p.copy_(vec[start : start + p.numel()].reshape(p.shape))
            start += p.numel()


def untrained_parameters(model: Any, optimizer: Any = None) -> dict[str, str]:
    """The parameters that want a gradient and would not learn from it, and why.

    Either the optimizer does not have them, or the last backward gave them none.

    >>> model = weft.nn.Sequential(weft.nn.Linear(2, 2), weft.nn.Linear(2, 1))
    >>> sgd = weft.optim.SGD(model[0].parameters(), lr=0.1)
    >>> model[1](weft.ones(1, 2)).sum().backward()
    >>> for name, why in weft.nn.utils.untrained_parameters(model, sgd).items():
    ...     print(name, "-", why)
    0.weight - it has no gradient
    0.bias - it has no gradient
    1.weight - the optimizer does not have it
    1.bias - the optimizer does not have it
    """
    groups = [] if optimizer is None else optimizer.param_groups
    held = {id(p) for group in groups for p in group["params"]}
    untrained = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            if optimizer is not None and id(p) not in held:
                untrained[name] = "the optimizer does not have it"
            elif p.grad is None:
                untrained[name] = "it has no gradient"
    return untrained


# Loaded when first used: names, and the submodules that have them.
_LAZY = {
    "convert_conv2d_weight_memory_format": "fusion",
    "convert_conv3d_weight_memory_format": "fusion",
    "fuse_conv_bn_eval": "fusion",
    "fuse_conv_bn_weights": "fusion",
    "fuse_linear_bn_eval": "fusion",
    "fuse_linear_bn_weights": "fusion",
    "skip_init": "fusion",
    "remove_spectral_norm": "norms",
    "remove_weight_norm": "norms",
    "spectral_norm": "norms",
    "weight_norm": "norms",
}
_MODULES = ("clip_grad", "convert_parameters", "parametrizations", "parametrize",
            "prune", "stateless")  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"weft.nn.utils.{name}")
    if name in _LAZY:
        found = getattr(importlib.import_module(f"weft.nn.utils.{_LAZY[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'weft.nn.utils' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_MODULES})

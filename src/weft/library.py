"""``weft.library``: operators of the user's own, under PyTorch's names.

An operator is a Python function. Called eagerly, it may do anything, NumPy too; inside
a compiled program, its body is captured if it consists of Weft's operators.

>>> @weft.library.custom_op("mine::twice", mutates_args=())
... def twice(x: weft.Tensor) -> weft.Tensor:
...     return weft.from_numpy(2 * x.numpy())
>>> _ = twice.register_autograd(lambda ctx, g: 2 * g)
>>> x = weft.ones(2, requires_grad=True)
>>> twice(x).sum().backward()
>>> x.grad.tolist()
[2.0, 2.0]
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from weft.autograd import Function, no_grad
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, AutogradError

_OPERATORS: dict[str, CustomOpDef] = {}


def declared(name: str) -> CustomOpDef | None:
    """The operator of a name such as ``mine::twice``; None if there is none."""
    return _OPERATORS.get(name)


class CustomOpDef:
    """An operator: a function, its gradient and its types."""

    def __init__(self, name: str, fn: Callable[..., Any], mutates: Any) -> None:
        if name.count("::") != 1:
            raise ArgumentError(
                f"custom_op: expected a name such as 'mylib::op', got {name!r}"
            )
        self._qualname, self._fn, self._mutates = name, fn, mutates
        self._backward: Callable[..., Any] | None = None
        self._setup: Callable[..., Any] | None = None
        self._fake: Callable[..., Any] | None = None
        functools.update_wrapper(self, fn)
        _OPERATORS[name] = self

    def register_fake(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Keep a function that gives the results' shapes; a capture needs none."""
        self._fake = fn
        return fn

    def register_kernel(self, device_types: Any, fn: Any = None) -> Any:
        """Use another function for the CPU; other devices are not here."""

        def keep(kernel: Any) -> Any:
            kinds = [device_types] if isinstance(device_types, str) else device_types
            if kinds is None or "cpu" in kinds:
                self._fn = kernel
            return kernel

        return keep if fn is None else keep(fn)

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Any = None
    ) -> CustomOpDef:
        """Give the gradient: ``backward(ctx, *grads)`` as in ``autograd.Function``.

        ``setup_context(ctx, inputs, output)`` keeps what it needs.
        """
        self._backward, self._setup = backward, setup_context
        return self

    def _in_order(self, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], Any]:
        """The arguments by position, with defaults, as a rule gets them."""
        bound = inspect.signature(self._fn).bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            args, kwargs = self._in_order(args, kwargs)
        wanted = any(isinstance(a, Tensor) and a.requires_grad for a in args)
        if self._mutates or not wanted:
            with no_grad():
                return self._fn(*args, **kwargs)
        return self._function(kwargs).apply(*args)

    def _function(self, kwargs: dict[str, Any]) -> type[Function]:
        """The function with its gradient, as ``autograd.Function``."""
        own = self

        class Applied(Function):
            @staticmethod
            def forward(ctx: Any, *args: Any) -> Any:
                plain = [a.detach() if isinstance(a, Tensor) else a for a in args]
                out = own._fn(*plain, **kwargs)
                if own._setup is not None:
                    every = own._in_order(args, kwargs)[0]
                    more = {"keyword_only_inputs": kwargs} if kwargs else {}
                    own._setup(ctx, inputs=every, **more, output=out)
                return out

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                if own._backward is None:
                    raise AutogradError(
                        f"{own._qualname} has no gradient; give one with "
                        "register_autograd(backward, setup_context=...)"
                    )
                return own._backward(ctx, *grads)

        return Applied

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"


def custom_op(
    name: str, fn: Any = None, /, *, mutates_args: Any, device_types: Any = None,
    schema: str | None = None, tags: Any = None,
) -> Any:  # fmt: skip
    """Make an operator of a function; used as a decorator as well.

    >>> twin = weft.library.custom_op("mine::twin", lambda x: x * 2, mutates_args=())
    >>> twin(weft.ones(1)).item()
    2.0
    """
    if fn is None:
        return lambda given: CustomOpDef(name, given, mutates_args)
    return CustomOpDef(name, fn, mutates_args)


def _find(op: Any) -> CustomOpDef:
    found = op if isinstance(op, CustomOpDef) else _OPERATORS.get(op)
    if found is None:
        have = ", ".join(_OPERATORS) or "none"
        raise ArgumentError(f"library: there is no operator {op!r}; there are: {have}")
    return found


def register_fake(op: Any, func: Any = None, /, **_: Any) -> Any:
    """``CustomOpDef.register_fake`` of the operator with a name.

    >>> _ = weft.library.custom_op("mine::same", lambda x: x + 0, mutates_args=())
    >>> _ = weft.library.register_fake("mine::same", lambda x: x)
    """
    register = _find(op).register_fake
    return register if func is None else register(func)


def register_autograd(
    op: Any, backward: Callable[..., Any], /, *, setup_context: Any = None, **_: Any
) -> None:
    """``CustomOpDef.register_autograd`` of the operator with a name.

    >>> _ = weft.library.custom_op("mine::plus", lambda x: x + 1, mutates_args=())
    >>> weft.library.register_autograd("mine::plus", lambda ctx, g: g)
    """
    _find(op).register_autograd(backward, setup_context=setup_context)


def register_kernel(op: Any, device_types: Any, func: Any = None, /, **_: Any) -> Any:
    """``CustomOpDef.register_kernel`` of the operator with a name.

    >>> _ = weft.library.custom_op("mine::minus", lambda x: x - 1, mutates_args=())
    >>> _ = weft.library.register_kernel("mine::minus", "cpu", lambda x: x - 1)
    """
    return _find(op).register_kernel(device_types, func)

"""Kernels as operators: a record, a call, and changes in place."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft.compile.loop.interpret import run_kernel
from weft.core.device import cpu
from weft.core.lowering import OwnLoops
from weft.core.op import Op, TensorType, register_unlisted, rule_names
from weft.core.size import Scope
from weft.core.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, OutOfRangeError, WeftError
from weft.kernels import native
from weft.kernels.loops import Built, build
from weft.kernels.signature import Array, Signature, parse
from weft.kernels.source import Source
from weft.kernels.tensors import gradients
from weft.kernels.translate import grid
from weft.ops.creation import tensor
from weft.ops.inplace import assign

_EXAMPLE = dtypes.float32  # for a dtype that has a name, when a kernel is defined


class Kernel:
    """An operator whose loops are written in Python; made by ``weft.kernel``.

    >>> @weft.kernel("x: float32[n] -> out: float32[n]")
    ... def double(x, out):
    ...     for i in weft.kernel.grid(x.shape[0]):
    ...         out[i] = 2 * x[i]
    >>> double(weft.ones(3))
    tensor([2., 2., 2.])
    """

    def __init__(self, fn: Callable[..., Any], signature: str) -> None:
        self.signature: Signature = parse(signature)
        self.source = Source(fn)
        functools.update_wrapper(self, fn)
        self.__doc__ = fn.__doc__ or f"The kernel ``{fn.__name__}``."
        names = [*self.signature.names]
        names += [a.name for a in self.signature.made if a.name not in names]
        if self.source.arguments != tuple(names):
            raise self.source.error(
                self.source.tree,
                f"expected the parameters of the signature, {', '.join(names)}, got "
                f"{', '.join(self.source.arguments)}",
            )
        self._define()
        self.op = self._record(signature)

    def _define(self) -> None:
        """Translate the kernel once for any sizes, so that errors come early."""
        scope, found = Scope(), {}
        for array in self.signature.given:
            for size in array.sizes:
                name = getattr(size, "id", None)
                if name is not None and name not in found:
                    found[name] = scope.symbol(f"{name}'")
        constants = {name: scope.symbol(f"{name}'") for name in
                     self.signature.constants}  # fmt: skip
        found = {**found, **constants}
        types = [_example(array, found) for array in self.signature.given]
        build(self.source, self.signature, scope, types, constants)

    def _record(self, text: str) -> Op:
        """The operator's record, named by the kernel's text and its numbers."""
        outside = self.source.outside.items()
        numbers = {
            k: v
            for k, v in outside
            if isinstance(v, (bool, int, float)) and k in self.source.text
        }
        parts = (text, self.source.text, sorted(numbers.items(), key=lambda p: p[0]))
        digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:8]
        name = f"kernel::{self.source.name}.{digest}"
        made = [a.name if a.name not in self.signature.changed else f"new_{a.name}"
                for a in self.signature.made]  # fmt: skip
        op = Op(
            name,
            inputs=" ".join(a.name for a in self.signature.given),
            outputs=" ".join(made),
            eval=self._interpret,
            type=self._type,
            vjp=self._derived(),
            lower=OwnLoops(self._loops),
        )
        op.kernel = functools.partial(native.run, op)
        return register_unlisted(op)

    # -- types and loops

    def _type(self, *types: TensorType, **constants: int) -> Any:
        try:
            found = self.signature.results(self.signature.bound(types, constants))
        except WeftError as error:
            raise type(error)(f"{self.source.name}: {error}") from None
        return found if len(found) > 1 else found[0]

    def _built(self, scope: Scope, types: Sequence[Any], constants: Any) -> Built:
        return build(self.source, self.signature, scope, types, constants)

    def _loops(self, scope: Scope, types: Sequence[Any], **constants: int) -> Any:
        return self._built(scope, types, constants).kernel

    def _interpret(self, *arrays: np.ndarray, **constants: int) -> Any:
        """The results, element by element; an error says where it is."""
        arrays = tuple(np.asarray(a) for a in arrays)
        types = [TensorType(a.shape, dtypes.of_array(a)) for a in arrays]
        made = self._type(*types, **constants)
        results = made if type(made) is tuple else (made,)
        kernel, places = self._built(Scope(), types, constants)
        outs = [np.zeros(t.shape, t.dtype.np) for t in results]
        try:
            run_kernel(kernel, [*arrays, *outs], {}, places)
        except IndexError as error:
            raise OutOfRangeError(f"kernel {self.source.name}: {error}") from None
        return tuple(outs) if len(outs) > 1 else outs[0]

    def loops(self, *args: Any) -> str:
        """The kernel's loops as text, for some arguments.

        >>> @weft.kernel("x: float32[n] -> total: float32[1]")
        ... def summed(x, total):
        ...     for i in weft.kernel.grid(1):
        ...         for j in range(x.shape[0]):
        ...             total[i] += x[j]
        >>> print(summed.loops(weft.ones(4)))
        kernel summed(x: float32[4], total: float32[1])
          parallel i_ < 1:
            total.element = 0
            for j_ < 4:
              total.element = total.element + x[j_]  # in any order
            total[0] = total.element
        """
        tensors, constants = self._arguments(args, {})
        types = [TensorType(tuple(t.shape), t.dtype) for t in tensors]
        self._type(*types, **constants)
        return str(self._built(Scope(), types, constants).kernel)

    # -- gradients

    def _derived(self) -> Any:
        """The rule that differentiates the body."""

        def rule(g: Any, need: Any, *values: Any) -> Any:
            count = len(self.signature.given)
            inputs, numbers = values[:count], values[count:]
            constants = dict(zip(self.signature.constants, numbers, strict=True))
            return gradients(self, g, need, inputs, constants)

        names = [a.name for a in self.signature.given]
        rule.names = ("need", *names, *self.signature.constants)  # type: ignore[attr-defined]
        return rule

    def backward(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Give the gradient: ``rule(g, …)`` returns one for each array argument.

        ``g`` is the gradient of the result (a tuple, if there are several). The other
        parameters say what the rule needs, by name: arguments, results, or ``need``,
        which says of each argument whether its gradient is wanted. A gradient may be
        None. Used as a decorator.

        >>> @weft.kernel("x: float32[n] -> out: float32[n]")
        ... def cube(x, out):
        ...     for i in weft.kernel.grid(x.shape[0]):
        ...         out[i] = x[i] ** 3
        >>> @cube.backward
        ... def _(g, x):
        ...     return 3 * g * x**2
        >>> x = weft.full((2,), 2.0, requires_grad=True)
        >>> cube(x).sum().backward()
        >>> x.grad
        tensor([12., 12.])
        """
        names = rule_names(rule)[1:]
        known = {*self.op.inputs, *self.op.outputs, *self.signature.constants, "need"}
        known |= {f"{n}_{w}" for n in self.op.inputs for w in ("shape", "dtype")}
        for name in names:
            if name not in known:
                raise ArgumentError(
                    f"kernel {self.source.name}: expected the backward rule to take "
                    f"some of {', '.join(sorted(known))} after the gradient, got {name}"
                )
        count = len(self.signature.given)

        def joint(g: Any, *values: Any) -> Any:
            found = rule(g, *values)
            found = found if isinstance(found, (tuple, list)) else (found,)
            if len(found) != count:
                raise ArgumentError(
                    f"kernel {self.source.name}: expected {count} gradients of the "
                    f"backward rule, got {len(found)}"
                )
            return found

        joint.names = names  # type: ignore[attr-defined]
        self.op.vjp = joint
        self.op.plans.clear()
        return rule

    # -- calls

    def __call__(self, *args: Any, **named: Any) -> Any:
        tensors, constants = self._arguments(args, named)
        changed = self.signature.changed
        targets = {a.name: t for a, t in zip(self.signature.given, tensors, strict=True)
                   if a.name in changed}  # fmt: skip
        for name, target in targets.items():
            _check_target(self.source.name, name, target)
        found = self.op(*tensors, **constants)
        outs = found if isinstance(found, tuple) else (found,)
        results = []
        for array, out in zip(self.signature.made, outs, strict=True):
            if array.name in changed:
                out = assign(targets[array.name], out, self.source.name)
            results.append(out)
        return tuple(results) if len(results) > 1 else results[0]

    def _arguments(self, args: Any, named: Any) -> tuple[list[Tensor], dict[str, int]]:
        names = self.signature.names
        given = dict(zip(names, args, strict=False))
        unknown = [n for n in named if n not in names or n in given]
        given |= named
        if len(args) > len(names) or unknown or len(given) < len(names):
            raise ArgumentError(
                f"{self.source.name}: expected the arguments {', '.join(names)}, got "
                f"{len(args)} by position and {', '.join(named) or 'none'} by name"
            )
        constants = {}
        for name in self.signature.constants:
            number = given[name]
            if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
                raise DTypeError(
                    f"{self.source.name}: expected a whole number for {name}, got "
                    f"{type(number).__name__}"
                )
            constants[name] = int(number)
        tensors = [self._tensor(a, given[a.name]) for a in self.signature.given]
        return tensors, constants

    def _tensor(self, array: Array, given: Any) -> Tensor:
        if isinstance(given, Tensor):
            return given
        number = isinstance(given, (bool, int, float, np.number, np.bool_))
        if number and not array.sizes and isinstance(array.dtype, dtypes.DType):
            return tensor(given, dtype=array.dtype)
        raise DTypeError(
            f"{self.source.name}: expected a tensor for {array}, got "
            f"{type(given).__name__}"
        )

    def __repr__(self) -> str:
        return f"<kernel {self.source.name}>"


def _check_target(kernel: str, name: str, target: Tensor) -> None:
    if target.device is cpu and target._interpreter is None:
        array = target._data
        if not array.flags.writeable:
            raise ArgumentError(
                f"{kernel}: {name} is changed in place, but several of its elements "
                "share memory, or it is read only; give a .clone() of it"
            )


def _example(array: Array, found: Any) -> TensorType:
    from weft.kernels.signature import value

    shape = tuple(value(size, found) for size in array.sizes)
    return TensorType(shape, _EXAMPLE if isinstance(array.dtype, str) else array.dtype)


class _Decorator:
    """``weft.kernel``: makes an operator of a function over grids and loops.

    See ``docs/kernels.md``.

    >>> @weft.kernel("x: float32[n, m] -> out: float32[n]")
    ... def row_max(x, out):
    ...     n, m = x.shape
    ...     for i in weft.kernel.grid(n):
    ...         top = x[i, 0]
    ...         for j in range(m):
    ...             top = max(top, x[i, j])
    ...         out[i] = top
    >>> row_max(weft.tensor([[1.0, 3.0], [2.0, 0.0]]))
    tensor([3., 2.])
    """

    grid = staticmethod(grid)

    def __call__(self, signature: str) -> Callable[[Callable[..., Any]], Kernel]:
        """Make a kernel of the function below."""
        if callable(signature):
            raise ArgumentError(
                "kernel: expected a signature, as in "
                '@weft.kernel("x: float32[n] -> out: float32[n]")'
            )
        return lambda fn: Kernel(fn, signature)

    def __repr__(self) -> str:
        return "<weft.kernel>"


kernel = _Decorator()

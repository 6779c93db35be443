"""Jacobians, Hessians and their products with vectors, by the tape.

Each takes a function and its inputs, one tensor or a tuple of them, and gives results
of that form. ``weft.func`` has the same as transforms of functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.autograd.engine import grad
from weft.autograd.modes import enable_grad
from weft.core.tensor import Tensor
from weft.errors import AutogradError, DTypeError
from weft.ops.creation import ones_like, zeros_like
from weft.ops.joining import stack

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
_Function = Callable[..., Any]


def _tuple(value: Any, what: str, who: str) -> tuple[bool, tuple[Any, ...]]:
    """Whether a value is a tuple, and its tensors."""
    many = isinstance(value, (tuple, list))
    found = tuple(value) if many else (value,)
    for one in found:
        if not isinstance(one, Tensor):
            raise DTypeError(
                f"{who}: expected {what} to be a tensor or a tuple of tensors, got "
                f"{type(one).__name__}"
            )
    return many, found


def _entries(inputs: tuple[Any, ...], create_graph: bool) -> tuple[Any, ...]:
    """The inputs as places from which gradients are wanted."""
    if create_graph:
        return tuple(
            x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
            for x in inputs
        )
    return tuple(x.detach().requires_grad_() for x in inputs)


def _run(
    who: str, func: _Function, inputs: Any, create_graph: bool
) -> tuple[bool, tuple[Any, ...], bool, tuple[Any, ...]]:
    many, given = _tuple(inputs, "inputs", who)
    with enable_grad():
        entries = _entries(given, create_graph)
        outs_many, outs = _tuple(func(*entries), "the outputs", who)
    return many, entries, outs_many, outs


def _grads(
    who: str, outs: Any, xs: Any, vs: Any, strict: bool, create_graph: bool
) -> tuple[Any, ...]:
    """The gradients of outputs by inputs; zeros for what does not depend on them."""
    pairs = [(o, v) for o, v in zip(outs, vs, strict=True) if o.requires_grad]
    found: tuple[Any, ...] = (None,) * len(xs)
    if pairs:
        found = grad(
            [o for o, _ in pairs], list(xs), [v for _, v in pairs], retain_graph=True,
            create_graph=create_graph, allow_unused=True,
        )  # fmt: skip
    if strict and any(g is None for g in found):
        raise AutogradError(
            f"{who}: an output does not depend on an input (strict=True)"
        )
    return tuple(
        zeros_like(x) if g is None else g for x, g in zip(xs, found, strict=True)
    )


def _done(many: bool, values: tuple[Any, ...], create_graph: bool) -> Any:
    kept = values if create_graph else tuple(v.detach() for v in values)
    return kept if many else kept[0]


def _vectors(who: str, v: Any, like: tuple[Any, ...]) -> tuple[Any, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise AutogradError(
                f"{who}: expected v, which may be left out for a single element only"
            )
        return (ones_like(like[0]),)
    _, found = _tuple(v, "v", who)
    if [f.shape for f in found] != [x.shape for x in like]:
        raise AutogradError(
            f"{who}: expected v of shapes {[tuple(x.shape) for x in like]}, got "
            f"{[tuple(f.shape) for f in found]}"
        )
    return tuple(f.detach() for f in found)


def vjp(
    func: _Function, inputs: Any, v: Any = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """The outputs, and the product of a vector with the Jacobian.

    >>> x = weft.tensor([1.0, 2.0])
    >>> weft.autograd.functional.vjp(lambda x: x * x, x, weft.ones(2))[1]
    tensor([2., 4.], shape=(2,), dtype=float32)
    """
    many, xs, outs_many, outs = _run("vjp", func, inputs, create_graph)
    vs = _vectors("vjp", v, outs)
    with enable_grad():
        found = _grads("vjp", outs, xs, vs, strict, create_graph)
    return _done(outs_many, outs, create_graph), _done(many, found, create_graph)


def jvp(
    func: _Function, inputs: Any, v: Any = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """The outputs, and the product of the Jacobian with a vector.

    >>> x = weft.tensor([1.0, 2.0])
    >>> weft.autograd.functional.jvp(lambda x: x.prod(), x, weft.ones(2))[1]
    tensor(3., dtype=float32)
    """
    _, xs, outs_many, outs = _run("jvp", func, inputs, create_graph)
    vs = _vectors("jvp", v, xs)
    with enable_grad():  # the derivative of vjp by its vector, which it is linear in
        us = tuple(zeros_like(o).requires_grad_() for o in outs)
        pulled = _grads("jvp", outs, xs, us, strict, True)
        found = _grads("jvp", pulled, us, vs, strict, create_graph)
    return _done(outs_many, outs, create_graph), _done(outs_many, found, create_graph)


def jacobian(
    func: _Function, inputs: Any, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The derivatives of every output element by every input element.

    A tuple of outputs gives a tuple, of tuples for several inputs. ``vectorize`` and
    ``strategy`` choose between PyTorch's ways to the same result.

    >>> weft.autograd.functional.jacobian(lambda x: x * x, weft.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]], shape=(2, 2), dtype=float32)
    """
    many, xs, outs_many, outs = _run("jacobian", func, inputs, create_graph)
    rows = []
    with enable_grad():
        for out in outs:
            rows.append(_rows(out, xs, strict, create_graph))
    done = tuple(_done(many, row, create_graph) for row in rows)
    return done if outs_many else done[0]


def _rows(out: Any, xs: Any, strict: bool, create_graph: bool) -> tuple[Any, ...]:
    """The Jacobians of one output by each input."""
    found = []
    for k in range(out.numel()):
        unit = zeros_like(out).reshape(-1)
        unit[k] = 1
        unit = unit.reshape(out.shape)
        found.append(_grads("jacobian", (out,), xs, (unit,), strict, create_graph))
    if not found:
        return tuple(x.new_zeros((*out.shape, *x.shape)) for x in xs)
    columns = zip(*found, strict=True)
    return tuple(
        stack(list(column)).reshape((*out.shape, *x.shape))
        for column, x in zip(columns, xs, strict=True)
    )


def _scalar(who: str, func: _Function) -> _Function:
    """A function whose result must be one element."""

    def checked(*args: Any) -> Any:
        out = func(*args)
        if not isinstance(out, Tensor) or out.numel() != 1:
            shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise AutogradError(
                f"{who}: expected a function with one element as result, got {shape}"
            )
        return out.reshape(())

    return checked


def hessian(
    func: _Function, inputs: Any, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The second derivatives of a function with one element as result.

    >>> weft.autograd.functional.hessian(lambda x: (x**3).sum(), weft.ones(2))
    tensor([[6., 0.],
            [0., 6.]], shape=(2, 2), dtype=float32)
    """
    many, _ = _tuple(inputs, "inputs", "hessian")
    scalar = _scalar("hessian", func)

    def first(*xs: Any) -> Any:
        found = jacobian(scalar, xs, create_graph=True, strict=strict)
        return found if many else found[0]

    return jacobian(first, inputs, create_graph=create_graph, strict=strict)


def vhp(
    func: _Function, inputs: Any, v: Any = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """The output, and the product of a vector with the Hessian.

    >>> x = weft.tensor([1.0, 2.0])
    >>> weft.autograd.functional.vhp(lambda x: (x**3).sum(), x, weft.ones(2))[1]
    tensor([ 6., 12.], shape=(2,), dtype=float32)
    """
    many, xs, _, outs = _run("vhp", _scalar("vhp", func), inputs, create_graph)
    vs = _vectors("vhp", v, xs)
    with enable_grad():
        first = _grads("vhp", outs, xs, (ones_like(outs[0]),), strict, True)
        found = _grads("vhp", first, xs, vs, strict, create_graph)
    return _done(False, outs, create_graph), _done(many, found, create_graph)


def hvp(
    func: _Function, inputs: Any, v: Any = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """The output, and the product of the Hessian with a vector.

    The Hessian is symmetric, so this is ``vhp``.

    >>> x = weft.tensor([1.0, 2.0])
    >>> weft.autograd.functional.hvp(lambda x: (x**3).sum(), x, weft.ones(2))[1]
    tensor([ 6., 12.], shape=(2,), dtype=float32)
    """
    return vhp(func, inputs, v, create_graph, strict)

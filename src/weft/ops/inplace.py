"""Changing a tensor in place without losing its history.

An in-place operator is its out-of-place form followed by ``assign``: the memory
takes the new value, and the tensor takes the new value's node on the tape. If
the tensor is a view, its base's history becomes "the base with this region
replaced", and every view of that base is derived from it anew.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.device import cpu
from weft.core.dispatch import is_number
from weft.core.mode import mode, set_views
from weft.core.op import Op
from weft.core.size import Size
from weft.core.tape import Leaf, drop_spent, record
from weft.core.tensor import Tensor
from weft.errors import (
    ArgumentError,
    AutogradError,
    DeviceError,
    DTypeError,
    ShapeError,
)

Form = Callable[[Callable[..., Any], str], Callable[..., Any]]  # of a function, a name


def assign(target: Tensor, new: Tensor, name: str) -> Tensor:
    """Make ``target`` hold ``new`` (of its shape and dtype); returns ``target``."""
    if mode.capture is not None:
        mode.capture.change(target, name)
        if target.storage_record.frozen:
            raise mode.capture.frozen_memory(name)
    if mode.changes is not None:
        mode.changes(target)
    if target.storage_record.conjugates:
        raise ArgumentError(
            f"{name}: this tensor is the conj() of another one and cannot be changed "
            "(in PyTorch the other one would change too); change that one, or a "
            ".clone() of this"
        )
    base = target if target._base is None else target._base
    _check_leaf(target, base, name)
    if new._interpreter is not None:
        new = _lowered(target, new)
    new = _brought(target, new, name)
    if type(target) is Tensor:
        _write(target, new, name)
    elif target._interpreter is not None:
        _check_level(target, new, name)
    elif target.device is cpu:  # of a subclass that a program defines
        _write(target, new, name)
    else:
        _write_there(target, new, base, name)
    region = target._data if type(target) is Tensor else None
    target.storage_record.touch(name, region=region)
    linked = mode.recording and (new._node is not None or base._node is not None)
    if target._interpreter is not None or linked:
        _set_history(target, base, new, linked)
    return target


def overwrite(target: Tensor, new: Tensor, name: str) -> Tensor:
    """``assign`` of a value that owes nothing to the old one, whose gradient is 0.

    Without this, a tensor written as a whole would lose its history, and what it was
    computed from would have no gradient.
    """
    if mode.recording and target.requires_grad and _covers_base(target):
        from weft.ops.select import where

        new = where(False, target, new)
    return assign(target, new, name)


def _covers_base(target: Tensor) -> bool:
    """Whether no element of a view's base may be left over."""
    if target._base is None:
        return True
    # On the tape of eager tensors a region always leaves its base there.
    return target._interpreter is not None and all(
        op.name != "slice" for op, _ in target._chain
    )


def write_out(out: Any, result: Any, name: str) -> Any:
    """Write a function's result into its ``out=``: a tensor, or one for each result."""
    if isinstance(result, tuple):
        for one, value in zip(out, result, strict=True):
            write_out(one, value, name)
        return out
    if not isinstance(out, Tensor):
        raise DTypeError(
            f"{name}: expected out to be a tensor, got {type(out).__name__}"
        )
    if mode.recording and (out._node is not None or result._node is not None):
        raise AutogradError(
            f"{name}: out= has no derivative; leave it out, or use .detach() on what "
            "requires grad"
        )
    if result.dtype.category > out.dtype.category:
        raise DTypeError(
            f"{name}: a result of {result.dtype.name} cannot be cast to out's dtype, "
            f"{out.dtype.name}"
        )
    if tuple(out.shape) != tuple(result.shape):
        out.resize_(result.shape)
    return out.copy_(result)


def _lowered(target: Tensor, new: Any) -> Any:
    """A value without those transforms around the target that do nothing to it."""
    level = 0 if target._interpreter is None else target._interpreter.level
    while new._interpreter is not None and new._interpreter.level > level:
        below = new.plain()
        if below is new:
            break
        new = below
    return new


def _check_leaf(target: Tensor, base: Tensor, name: str) -> None:
    if mode.recording and (type(base._node) is Leaf or type(target._node) is Leaf):
        what = "this tensor is" if base is target else "this is a view of"
        raise AutogradError(
            f"{name}: {what} a leaf that requires grad, and it would be changed in "
            "place. Do it inside `with weft.no_grad():`, or use the out-of-place form"
        )
    if target._inference and not mode.inference and mode.recording:
        raise AutogradError(
            f"{name}: a tensor made in inference_mode cannot be changed outside it"
        )


def _brought(target: Tensor, new: Tensor, name: str) -> Tensor:
    """The new value on the target's device; only numbers go along by themselves."""
    if new.device is target.device or new._interpreter is not None:
        return new
    if is_number(new):
        return new.to(target.device)
    raise DeviceError(
        f"{name}: the tensor is on {target.device.name!r}, the value on "
        f"{new.device.name!r}; move it with .to({target.device.name!r})"
    )


def _write(target: Tensor, new: Tensor, name: str) -> None:
    if new._interpreter is not None:
        raise AutogradError(
            f"{name}: a value inside {new._interpreter.name} cannot be written into a "
            "tensor from outside it; build the result with stack, cat or where instead"
        )
    _check_memory(target._data, name)
    np.copyto(target._data, new._data)


def _check_memory(array: np.ndarray, name: str) -> None:
    if not array.flags.writeable:
        raise ArgumentError(
            f"{name}: several elements of this tensor share memory (it was expanded, "
            "or comes from a read-only array); change a .clone() of it"
        )


def _write_there(target: Tensor, new: Tensor, base: Tensor, name: str) -> None:
    """Write a new value into another device's memory."""
    device = target.device
    views = [v for v in base.storage_record.live_views() if v._base is base]
    if not all(device.shares(v._data, base._data) for v in (target, *views)):
        raise DeviceError(
            f"{name}: views on {device.name!r} are copies, so a change in place would "
            "not be seen in both; change the whole tensor while it has no views"
        )
    try:
        device.write(target._data, new._data)
    except ValueError as error:  # as of memory that several elements share
        raise ArgumentError(f"{name}: {error}") from None


def _check_level(target: Any, new: Any, name: str) -> None:
    memory = target.layout_array() if target._base is not None else None
    if isinstance(memory, np.ndarray):
        _check_memory(memory, name)
    if (
        new._interpreter is not None
        and new._interpreter.level > target._interpreter.level
    ):
        raise AutogradError(
            f"{name}: a value inside {new._interpreter.name} cannot be written into a "
            "tensor from outside it"
        )


def _set_history(target: Any, base: Any, new: Tensor, linked: bool) -> None:
    """Let the base and its views be the new value: a tracer's value changes in any
    mode, a node on the tape (``linked``) only where changes are recorded."""
    if base is target:
        _take(target, new, linked)
    else:
        _take(base, with_region(base, target._chain, new), linked)
    for view in base.storage_record.live_views():
        # One of another graph (a loop's body, built by now) keeps what it was.
        if view._base is base and view._interpreter is base._interpreter:
            _take(view, replay(base, view._chain), linked)
    if target._interpreter is not None:
        base.spread()


def _take(target: Any, source: Any, linked: bool) -> None:
    if target._interpreter is not None:
        if mode.recording:
            target.become(source)
        else:
            target.hold(source)
    if linked:
        target._node = source._node


def with_region(base: Tensor, chain: tuple[Any, ...], new: Tensor) -> Tensor:
    """The base with the viewed region replaced, as an operator on the tape."""
    if chain and _is_written(base, chain, new):
        return _noted(base, chain, new)
    return _replaced(base, chain, new)


def _replaced(base: Tensor, chain: tuple[Any, ...], new: Tensor) -> Tensor:
    from weft.ops.scattering import scatter

    if not chain:
        return new
    (op, params), *rest = chain
    if type(op) is Op and op.facts.put is not None:
        inner = _replaced(op(base, **params), tuple(rest), new) if rest else new
        return op.facts.put(base, inner, **params)
    flat = scatter(base.reshape(-1), 0, _flat_indices(base, chain), new.reshape(-1))
    return flat.reshape(base.shape)


def _is_written(base: Tensor, chain: tuple[Any, ...], new: Tensor) -> bool:
    """Whether the memory holds the region already, and only the tape needs a node."""
    return (
        mode.recording
        and mode.taker is None
        and type(base) is Tensor is type(new)
        and base.dtype is new.dtype
        and all(type(op) is Op for op, _ in chain)
    )


def _noted(base: Tensor, chain: tuple[Any, ...], new: Tensor) -> Tensor:
    """The base, written by now, with a node of "this region is another tensor"."""
    out = base.alias()
    record(_COPY_SLICES, (base, new), {"chain": chain}, out)
    return out


def _cleared(g: Tensor, chain: tuple[Any, ...]) -> Tensor:
    """A cotangent of the base with zeros where the region is."""
    if type(g) is Tensor and mode.taker is None and not mode.recording:
        array = np.array(g._data, order="C")
        region = _walk(array, chain)
        if np.may_share_memory(region, array):  # no step of the chain has copied
            region[...] = 0
            return Tensor(array)
    from weft.ops.creation import zeros_like

    return _replaced(g, chain, zeros_like(replay(g, chain)))


_COPY_SLICES = Op(
    "copy_slices",
    inputs="base new",
    eval=lambda base, new, *, chain: base,
    type=None,
    vjp={"base": _cleared, "new": lambda g, chain: replay(g, chain)},
)


def _flat_indices(base: Tensor, chain: tuple[Any, ...]) -> Tensor:
    """The elements of the base that a view shows, as flat indices."""
    count = math.prod(base.shape)
    known = not isinstance(count, Size) and all(type(op) is Op for op, _ in chain)
    if not known:  # before the graph runs
        from weft.ops.creation import arange

        return replay(arange(count).reshape(base.shape), chain).reshape(-1)
    positions = _walk(np.arange(count).reshape(base.shape), chain)
    return Tensor(np.ascontiguousarray(positions).reshape(-1))


def _walk(array: Any, chain: tuple[Any, ...]) -> Any:
    for op, params in chain:
        array = op.eval(array, **params)
    return array


def replay(base: Tensor, chain: tuple[Any, ...]) -> Tensor:
    """The view, derived from the base's present history."""
    before = set_views(False)  # the replayed views need not be tracked
    try:
        out = base
        for op, params in chain:
            out = op(out, **params)
        return out
    finally:
        set_views(before)


def inplace(
    fn: Callable[..., Tensor],
    name: str,
    given: str = "",
    dtype: str = "float32",
    size: str = "2, 2",
) -> Callable[..., Tensor]:
    """The in-place form of an out-of-place function.

    ``given`` are the arguments of its example, ``dtype`` and ``size`` its tensor's.
    """

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if mode.capture is not None:
            mode.capture.touch(self)
        stand_in = self.alias(self._node)
        new = fn(stand_in, *[stand_in if a is self else a for a in args], **kwargs)
        if sys.getrefcount(stand_in) > 2:
            stand_in.freeze()  # the tape kept the old value: give it its own memory
        return assign(self, fitted(self, new, name), name)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""The in-place form of ``{name.rstrip("_")}``.

    It changes the tensor's own memory (seen by its views too) and returns it.

    >>> x = weft.ones({size}, dtype=weft.{dtype})
    >>> x.{name}({given}) is x
    True
    """
    return method


def view_form(given: str = "") -> Form:
    """A maker of views' in-place forms; ``given`` are the example's arguments."""
    return lambda fn, name: _reshaped(fn, name, given)


def _reshaped(fn: Callable[..., Any], name: str, given: str) -> Callable[..., Any]:
    """The in-place form of a view: the tensor itself takes the other shape."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        _check_leaf(self, self, name)
        if mode.capture is not None:
            mode.capture.change_shape(self, name)
        if any(view._base is self for view in self.storage_record.live_views()):
            raise AutogradError(
                f"{name}: this tensor has views, which would no longer fit it; use "
                f"{name.rstrip('_')}, which returns another view"
            )
        new = fn(self, *args, **kwargs)
        if new is not self:
            if self._interpreter is None:
                self._data = new._data
            else:
                self.become(new)
            self._node = new._node
            if self._base is not None:
                self._chain = new._chain
            new._base = None  # so that it does not count as a view of this
        return self

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""The in-place form of ``{name.rstrip("_")}``.

    The tensor itself takes the other shape, over the same memory.

    >>> x = weft.ones(1, 2)
    >>> x.{name}({given}) is x
    True
    """
    return method


def fitted(target: Tensor, new: Tensor, name: str) -> Tensor:
    """``new`` in the target's dtype, if it fits there."""
    if new.shape != target.shape:
        raise ShapeError(
            f"{name}: the result has shape {new.shape}, which does not fit in place "
            f"into shape {target.shape}"
        )
    if new.dtype is target.dtype:
        return new
    if new.dtype.category > target.dtype.category:
        raise DTypeError(
            f"{name}: the result is {new.dtype.name}, which cannot be stored in place "
            f"as {target.dtype.name}"
        )
    from weft.ops.copies import cast

    return cast(new, target.dtype)


def arithmetic_form(ufunc: Any) -> Form:
    """A maker of binary operators' in-place forms, without temporaries if possible."""
    return lambda fn, name: _arithmetic(fn, name, ufunc)


def _arithmetic(fn: Callable[..., Any], name: str, ufunc: Any) -> Callable[..., Any]:
    """The in-place form of a binary operator that NumPy's function computes."""
    general = inplace(fn, name, "2")

    def method(self: Tensor, other: Any, **options: Any) -> Tensor:
        if type(self) is Tensor and not options:
            kind = type(other)
            y = other._data if kind is Tensor else other
            quiet = not mode.recording or (
                self._node is None and (kind is not Tensor or other._node is None)
            )
            if (
                quiet
                and mode.state
                and self._data.dtype.char in "fd"
                and (
                    y.dtype is self._data.dtype
                    if kind is Tensor
                    else kind is float or kind is int
                )
                and (kind is not Tensor or y.shape == self._data.shape or y.ndim == 0)
                and self._data.flags.writeable
                and not self._inference
            ):
                if mode.changes is not None:
                    mode.changes(self)
                try:
                    ufunc(self._data, y, self._data)
                except RuntimeWarning:
                    pass  # raised (if warnings are errors) after the writing
                self.storage_record.touch(name, region=self._data)
                return self
            if kind is Tensor and self._data.ndim == 0:
                drop_spent(self._node)
                drop_spent(other._node)
        return general(self, other, **options)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = general.__doc__
    return method

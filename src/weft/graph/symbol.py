"""Symbols: tensors that stand for a graph's nodes.

An operator applied to a symbol computes nothing; ``Building``, the interpreter
that symbols belong to, appends a node and returns its symbol.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np

from weft.core.device import Device, cpu
from weft.core.dispatch import Interpreter, run_composite
from weft.core.mode import mode, set_capture
from weft.core.op import Op
from weft.core.size import Shape, Size, hinted
from weft.core.tensor import Tensor
from weft.core.tracer import Tracer
from weft.dtype import DType
from weft.errors import WeftError, called_by_user
from weft.graph.interpret import resolve
from weft.graph.ir import DETACH, RENEW, Builder, GraphError, Node, type_text
from weft.ops.inplace import replay, with_region

MARK = "\u2063"  # invisible: it encloses the mark of a value in a text


class CaptureError(WeftError, RuntimeError, TypeError):
    """Python code that a captured program cannot do, such as one that needs a value
    which is known only when the graph runs."""


class Refused(BaseException):
    """An error of the capture on its way out of the function that is being captured.

    Handlers of the function's own must not see it, so it is no ``Exception``: the
    program would be captured with whatever they do instead.
    """

    def __init__(self, error: WeftError) -> None:
        super().__init__(str(error))
        self.error = error


class Restart(CaptureError):
    """The end of a capture that begins again: see ``made_outside``."""


def made_outside() -> BaseException:
    """The error to raise when the function has made something outside the capture.

    An eager call makes it once (parameters, an optimizer's state, room for values), so
    it must be there before the program runs: the capture begins again and finds it.
    """
    return refuse(Restart("the capture begins again"))


def refusal(message: str) -> BaseException:
    """The error to raise for code that cannot be captured, inside a capture or not."""
    return refuse(CaptureError(message))


def refuse(error: WeftError) -> BaseException:
    """The same for an error that was made before."""
    if mode.refusals is None:
        return error
    mode.refusals.append(error)
    return Refused(error)


@contextmanager
def refusing() -> Iterator[None]:
    """Make the first refusal the outcome of a capture, even if the function catches it
    (``except BaseException``, ``return`` in ``finally``, an ``__exit__`` that returns
    True). The outermost capture of a thread tells.
    """
    if mode.refusals is not None:
        yield
        return
    refusals: list[WeftError] = []
    mode.refusals = refusals
    try:
        yield
    except BaseException as error:
        if refusals:
            raise refusals[0].with_traceback(error.__traceback__) from None
        raise
    finally:
        mode.refusals = None
    if refusals:
        raise refusals[0]


class Symbol(Tracer):
    """A tensor whose value is a node of a graph under construction."""

    quiet: bool = False  # made under no_grad: no derivative flows through it
    past: Node | None = None  # the differentiated node, if a later change is unrecorded
    source: Symbol | None = None  # detached from this one: same memory, no history
    strides: tuple[int, ...] | None = None  # in elements; None: contiguous
    layout: Any = None  # the strides as ``layout_of`` describes them
    given: Node | None = None  # the input node of an argument, before any change

    def __init__(self, node: Node, *, interpreter: Any) -> None:
        self.node = node
        self._interpreter = interpreter

    @property
    def parts(self) -> tuple[Any, ...]:  # type: ignore[override]
        return (self.node,)

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    @property
    def op(self) -> Op:
        """The operator that the node applies."""
        return self.node.op

    def shows(self, base: Symbol, op: Op, params: dict[str, Any]) -> bool:
        """Whether a reshape needs no copy, given the layout of its base.

        A program's own values are contiguous; arguments are as the caller has them.
        """
        if not isinstance(base, Symbol):
            return True
        array = base.layout_array()
        try:
            found = array is None or base._shown(array, ((op, params),)) is not None
        except ValueError:
            found = False
        note = self._interpreter
        (note.taken_for_view if found else note.taken_for_copy)(base, self)
        return found

    def layout_array(self) -> Any:
        """An array with the symbol's strides and memory for one element, never read."""
        if "_data" in self.__dict__:  # a tensor from outside
            return Tensor.layout_array(self)
        if self._base is not None:
            array = (
                self._base.layout_array() if isinstance(self._base, Symbol) else None
            )
            return None if array is None else self._shown(array, self._chain)
        if self.source is not None:
            return self.source.layout_array()
        self._interpreter.note_layout(self)
        shape = hinted(self.shape)
        if shape is None:
            return None
        one = np.empty(1, self.dtype.np)
        steps = self.strides or [math.prod(shape[d + 1 :]) for d in range(len(shape))]
        strides = [n * one.itemsize for n in steps]
        return np.lib.stride_tricks.as_strided(one, shape, strides)

    def in_order(self) -> Tensor:
        return self._interpreter.in_order(self)

    def _shown(self, array: np.ndarray, chain: tuple[Any, ...]) -> np.ndarray:
        """Views of an array; raises ValueError where one of them would be a copy."""
        known = self._interpreter.builder.sizes.hints.items()
        hints = {name: 1 if hint is None else hint for name, hint in known}
        for op, params in chain:
            params = resolve(params, hints)
            if op.view == "maybe":
                array = np.reshape(array, params["shape"], copy=False)
            else:
                array = op.eval(array, **params)
        return array

    shape: Shape = property(lambda self: Shape(self.node.type.shape))  # type: ignore[assignment]
    dtype: DType = property(attrgetter("node.type.dtype"))  # type: ignore[assignment]

    @property
    def ndim(self) -> int:
        return len(self.node.type.shape)

    @property
    def device(self) -> Device:  # type: ignore[override]
        return self._interpreter.device

    @property
    def _data(self) -> Any:  # type: ignore[override]
        self.refuse()

    def array(self) -> np.ndarray:
        self.refuse()

    def refuse(self) -> NoReturn:
        """Say that this value is not known yet, and what to use instead."""
        raise refuse(self._unknown_value())

    def _unknown_value(self) -> CaptureError:
        return CaptureError(
            f"the value of {self.name!r} ({type_text(self.node.type)}) is known only "
            "when the graph runs, so it cannot become a Python number, an array or "
            "the condition of an `if`, `while` or `assert` here. Use weft.where or "
            "weft.cond instead of `if`, weft.while_loop or weft.scan instead of a loop "
            f"over it; or return it and decide outside.\n  made at {self.node.line}"
        )

    def __bool__(self) -> bool:
        several = hinted(self.shape) is not None and self.numel() != 1
        if mode.refusals is None or several:
            return super().__bool__()
        raise self._asked(self._unknown_value())

    def __iter__(self) -> Any:
        open_size = self.ndim > 0 and isinstance(self.shape[0], Size)
        if mode.refusals is not None and open_size:
            raise self._asked(
                CaptureError(
                    f"the number of rows of {self.name!r} "
                    f"({type_text(self.node.type)}) is known only when the graph runs, "
                    "so Python cannot run over them here. Use weft.scan or weft.map"
                    f"\n  made at {self.node.line}"
                )
            )
        return super().__iter__()

    def _asked(self, error: CaptureError) -> BaseException:
        """The error where Python decides by this symbol, in a function of the user's
        that may be captured in another way."""
        from weft.graph.capture import captured_call
        from weft.graph.python_control.source import truth_refusal

        return truth_refusal(error, captured_call)

    def alias(self, node: Any = None) -> Tensor:
        twin = type(self)(self.node, interpreter=self._interpreter)
        twin._node = node
        twin._storage = self.storage_record
        twin.quiet, twin.past = self.quiet, self.past
        return twin

    def settled(self) -> Tensor:
        """A copy of a view, so that later sums run over memory in the eager order."""
        from weft.ops.copies import clone

        return clone(self) if self.node.op.view else self.alias()

    def stopped(self) -> Tensor:
        twin = self._interpreter.stop(self.node)
        if mode.views:
            twin.source = self
            twin._storage = self.storage_record
            twin._storage.add_view(twin)
        return twin

    def relinked(self, keep: Any) -> Tensor:
        return self._with(self.parts, self._node if keep(self._node) else None)

    def become(self, other: Any) -> None:
        self._interpreter.writes = True
        self.node = self._interpreter.lift(other)
        self.past = None
        self.quiet = isinstance(other, Symbol) and other.quiet

    def hold(self, other: Any) -> None:
        past = self.node if self.past is None and not self.quiet else self.past
        self.become(other)
        self.past = past if self.dtype.is_inexact else None

    def spread(self) -> None:
        """Propagate a change of this memory to the tensors that share it by ``detach``;
        their derivatives stay as they were."""
        changed, low = [self], self
        while low.source is not None:
            low = _spread_up(low, low.source)
            changed.append(low)
        for twin in self.storage_record.live_views():
            inside = isinstance(twin, Symbol) and twin._interpreter is low._interpreter
            known = any(twin is one for one in changed)
            if inside and twin.source is not None and not known:
                _hold_all(twin, twin.source)

    def described(self) -> str:
        """The symbol itself as a text: its operator, name and type."""
        return f"<{self.node.op.name} {self.name!r} {type_text(self.node.type)}>"

    def __repr__(self) -> str:
        if called_by_user(sys._getframe(1)):
            return self._interpreter.text_of(self, "")
        return self.described()

    def __str__(self) -> str:
        return self._interpreter.text_of(self, "")

    def __format__(self, spec: str) -> str:
        return self._interpreter.text_of(self, spec)


def _spread_up(twin: Symbol, source: Symbol) -> Symbol:
    """Give what ``twin`` was detached from its value; returns the base of that."""
    if source._base is None:
        base, new = source, twin
    else:
        base = source._base  # type: ignore[assignment]
        new = with_region(base, source._chain, twin)  # type: ignore[assignment]
    _hold_all(base, new)
    return base


def _hold_all(base: Symbol, new: Symbol) -> None:
    """Let a tensor and its views show a value, with the histories they have."""
    base.hold(new)
    for view in base.storage_record.live_views():
        if view._base is base and view._interpreter is base._interpreter:
            view.hold(replay(base, view._chain))


class Building(Interpreter):
    """The interpreter of symbols: operators on them become nodes."""

    name = "a graph"
    symbols: type[Symbol] = Symbol
    writes = False  # whether something was changed in place
    device = cpu  # of all symbols
    replays = False  # whether a run of the program stands for a call of a function

    def __init__(self, builder: Builder) -> None:
        super().__init__()
        self.builder = builder

    def unable(self, error: Any) -> BaseException:
        return refuse(error)

    def note_layout(self, symbol: Symbol) -> None:
        """Note that the program depends on the layout of a symbol's memory."""

    def in_order(self, symbol: Symbol) -> Tensor:
        """The result of ``contiguous`` for a symbol that is contiguous already."""
        return symbol

    def taken_for_view(self, base: Symbol, view: Symbol) -> None:
        """Note that a reshape made a view, because values are contiguous."""

    def taken_for_copy(self, base: Symbol, copy: Symbol) -> None:
        """Note that a reshape made a copy, because values are contiguous."""

    def text_of(self, symbol: Symbol, spec: str) -> str:
        """A symbol in a text."""
        return symbol.described()

    def note_conjugate(self, tensor: Tensor, made: Tensor) -> None:
        """Note that one tensor is the ``conj()`` of another."""

    def note_requires_grad(self, tensor: Tensor, wanted: bool) -> None:
        """Note that a tensor is about to require grad, or no longer."""

    def accumulates(self, leaf: Tensor, g: Tensor, create_graph: bool) -> bool:
        """Add to the gradient of an argument; False if the tensor is none."""
        return False

    def note_hooks(self, hooks: dict[int, Any]) -> None:
        """Note that a hook is about to be added or removed."""

    def guard(self, what: str, read: Any, *on: Any) -> None:
        """Note a Python value that the program now depends on, and what decides it.

        A graph that is built once, and run as it is, keeps the value that it found.
        """

    def note_array(self, array: np.ndarray) -> None:
        """Note that a NumPy array became a tensor, which each run reads."""

    def note_buffer(self, slots: dict[str, Any], name: str) -> None:
        """Note that a module's buffer is about to be another tensor."""

    def note_attribute(self, owner: Any, name: str, after: Any = None) -> None:
        """Refuse an attribute that would keep a value which only this graph has."""
        if not owner._made_inside:
            raise refusal(
                f"{type(owner).__name__} keeps {name!r} for later, inside a branch or "
                f"loop of {self.describe()}, whose values nobody sees; run it outside, "
                "and pass its results"
            )

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Let every operator of this thread become a node, also ones that take no
        symbol (``zeros``, random numbers)."""
        before = set_capture(self)
        try:
            yield
        finally:
            set_capture(before)

    def note(self, out: Any) -> None:
        """Called after each operator that was taken and recorded on the tape."""

    def touch(self, tensor: Tensor) -> None:
        """Called before a tensor changes in place (a capture: is aliased or read)."""
        if tensor._interpreter is None:
            raise GraphError(
                f"a tensor that does not belong to {self.describe()} cannot be changed "
                "in place while the graph is built; assign to a Variable"
            )

    def change(self, tensor: Tensor, name: str) -> None:
        """Called before the operator ``name`` gives a tensor a new value."""
        self.touch(tensor)

    def change_shape(self, tensor: Tensor, name: str) -> None:
        """Called before the operator ``name`` gives a tensor itself another shape."""
        self.touch(tensor)
        if not self.is_own(tensor):
            raise refusal(
                f"{name}: this tensor is from outside of {self.describe()}, and a "
                "program cannot change the shape of the object itself; use "
                f"{name.rstrip('_')}, and return the result"
            )

    def is_own(self, tensor: Tensor) -> bool:
        """Whether a tensor was made while this graph was built."""
        return tensor._interpreter is self

    def frozen_memory(self, name: str) -> BaseException:
        """The error for a change in place of what a Python branch or loop has set."""
        return refusal(
            f"{name}: this tensor is set by a branch or loop over a tensor's value, or "
            "is what such a variable was before. Whether the two share memory is known "
            "only when the graph runs, so it cannot change in place; use a new tensor "
            "(clone it first)"
        )

    def embody(self, tensor: Tensor, node: Node) -> None:
        """Turn a tensor itself into the symbol of a node."""
        tensor.__class__ = self.symbols
        tensor.node = node  # type: ignore[attr-defined]
        tensor._interpreter = self

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if op.composite:
            return self.compose(op, args)
        inputs, recording = [], mode.recording
        for a in args:
            if isinstance(a, Tensor):
                plain = type(a) is Symbol and a._interpreter is self and not recording
                inputs.append(a.node if plain else self.lift(a))  # type: ignore[attr-defined]
            else:
                inputs.append(a)
        node = self.builder.add(op, tuple(inputs), params)
        out = self.wrap(node) if type(node.type) is tuple else self.symbol(node)
        if not recording:
            if type(out) is tuple:
                for one in out:
                    one.quiet = True
            else:
                out.quiet = True
        return out

    def compose(self, op: Op, args: tuple[Any, ...]) -> Any:
        """A program over tensors; a derivative of its own stays with it."""
        from weft.graph.custom import keep_backward

        out = run_composite(op, args)
        rule: Any = op.vjp
        if rule is None or not mode.recording or not rule.in_graphs:
            return out
        return keep_backward(self, op, args, out)

    def stop(self, node: Node) -> Symbol:
        """The symbol of a value through which no derivative flows."""
        if node.op is DETACH:
            return self.symbol(node)
        return self.symbol(self.builder.add(DETACH, (node,), {}, node.type))

    def wrap(self, node: Node) -> Any:
        """The symbol of a node, or one an output."""
        if type(node.type) is tuple:
            picks = range(len(node.type))
            return tuple(self.symbol(self.builder.pick(node, i)) for i in picks)
        return self.symbol(node)

    def symbol(self, node: Node) -> Symbol:
        return self.symbols(node, interpreter=self)

    def lift(self, value: Any) -> Node:
        """The node of an operator's argument."""
        if isinstance(value, Symbol):
            if value._interpreter is not self:
                return self.foreign(value)
            if (value.quiet or value.past is not None) and mode.recording:
                return self.recorded(value)
            return value.node
        return self.concrete(value)

    def recorded(self, value: Symbol) -> Node:
        """The node of a symbol, as derivatives see it."""
        if value.past is not None:
            inputs = (value.node, value.past)
            value.node = self.builder.add(RENEW, inputs, {})
        elif value.quiet:
            value.node = self.stop(value.node).node
        value.quiet, value.past = False, None
        return value.node

    def foreign(self, value: Symbol) -> Node:
        raise GraphError(
            f"{value.name!r} belongs to {value._interpreter.describe()}, not to "
            f"{self.describe()}\n  made at {value.node.line}"
        )

    def concrete(self, value: Tensor) -> Node:
        """The node of a tensor that has a value: a constant."""
        return self.builder.constant(np.array(value.to_host()))

    def describe(self) -> str:
        return f"graph {self.builder.name!r}"

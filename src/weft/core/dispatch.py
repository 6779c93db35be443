"""The one dispatch point: ``bind(op, args, params)``.

If an argument is a tracer, the interpreter of the innermost transform handles
the operator; otherwise it is evaluated now. Either way the tape is written
afterwards if an argument wants a gradient. Tracers are tensors too, so the tape
works the same at every level, and transforms nest in any order.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from weft import late
from weft.core import eager_kernels, fast_path
from weft.core.device import cpu
from weft.core.mode import RECORDING, VIEWS, mode, set_evaluator, set_recording
from weft.core.op import Op, TensorType
from weft.core.size import OpenSizeError, Shape
from weft.core.tape import record
from weft.core.tensor import DeviceTensor, Tensor
from weft.errors import ArgumentError, DeviceError, WeftError
from weft.runtime import allocation

ndarray = np.ndarray
new = object.__new__


class Interpreter:
    """A transform: it owns a level and says what an operator does there."""

    name = "a transform"
    composes = False  # its results are made of operators, which are noted on their own

    level: float  # the innermost transform has the largest

    def __init__(self) -> None:
        self.level = 0

    def __enter__(self) -> Any:
        mode.depth += 1
        self.level = mode.depth
        return self

    def __exit__(self, *error: object) -> None:
        mode.depth -= 1

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        raise NotImplementedError

    def unable(self, error: BaseException) -> BaseException:
        """The error as functions inside are to see it: see ``unable`` below."""
        return error

    def taking(self) -> AbstractContextManager[None]:
        """Let operators that take no tracer (random numbers) belong here as well."""
        return nullcontext()

    def run_module(self, module: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Call a module on this interpreter's tracers."""
        return module._run_forward(args, kwargs)


def unable(error: BaseException, *tensors: Any) -> BaseException:
    """The error to raise for what works eagerly, but not in a capture or transform.

    In a captured function no handler of the function's own sees it: the program would
    be captured with whatever the handler does instead.
    """
    running = mode.capture
    for x in tensors:
        running = running or x._interpreter
    return error if running is None else running.unable(error)


class Evaluator:
    """Stands between ``bind`` and the kernels, in one thread, for a block.

    ``process`` runs an operator on plain tensors; a subclass may count it, keep its
    results or give others. Evaluators stack; a capture comes before all of them.
    """

    below: Evaluator | None = None
    all = True  # whether it must see operators that have fast paths

    @property
    def takes_all(self) -> bool:
        """Whether every operator must come by here."""
        return self.all or (self.below is not None and self.below.takes_all)

    def __enter__(self) -> Any:
        self.below = mode.evaluator
        set_evaluator(self)
        return self

    def __exit__(self, *error: object) -> None:
        set_evaluator(self.below)

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if self.below is not None:
            return self.below.process(op, args, params)
        if op.composite:
            return run_composite(op, args)
        arrays = [a._data if isinstance(a, Tensor) else a for a in args]
        return evaluate(op, args, arrays, params)


def beside(x: Tensor) -> AbstractContextManager[None]:
    """Draw random numbers inside where ``x`` is computed: now, or in its graph."""
    return nullcontext() if x._interpreter is None else x._interpreter.taking()


def bind(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply an operator to tensors, tracers or Python numbers."""
    arrays = []
    wanted = False
    for a in args:
        if type(a) is Tensor:
            arrays.append(a._data)
            if a._node is not None:
                wanted = True
        elif isinstance(a, Tensor):  # a tracer, or on another device
            return _bind_other(op, args, params)
        else:
            arrays.append(a)
    state = mode.quick
    if not state or op.composite:
        return _leave(op, args, params, _bind_watched(op, args, params, arrays))
    out = evaluate(op, args, arrays, params)
    if op.view and state & VIEWS and out is not args[0]:
        link_view(op, args[0], params, out)
    if wanted and state & RECORDING:
        record(op, args, params, out)
    return out


def _bind_watched(
    op: Op, args: tuple[Any, ...], params: dict[str, Any], arrays: list[Any]
) -> Any:
    """Apply an operator to plain tensors, under observers or an evaluator."""
    taker = mode.taker
    if taker is not None:
        return taker.process(op, args, params)
    if op.composite:
        return run_composite(op, args)
    return evaluate(op, args, arrays, params)


def _leave(op: Op, args: tuple[Any, ...], params: dict[str, Any], out: Any) -> Any:
    """Note an operator's result wherever that is wanted."""
    plain = type(out) is Tensor
    if mode.inference:
        _mark_inference(out)
        if plain and op.view and _shares(op, args[0], params, out):
            out._storage = args[0].storage_record  # what is written there is noted here
    if op.view and mode.views and out is not args[0] and not (plain and mode.inference):
        link_view(op, args[0], params, out)
    if mode.recording:
        record(op, args, params, out)
        if mode.capture is not None:
            mode.capture.note(out)
    for observer in mode.observers:
        observer(op, args, params, out)
    return out


def evaluate(op: Op, args: Any, arrays: list[Any], params: dict[str, Any]) -> Any:
    """Run an operator's CPU kernel now."""
    ledger = allocation.ledger
    if ledger is not None:
        ledger.expect(op, args, params)
    try:
        if op.bulk is None:
            result = op.kernel(*arrays, **params)
        else:
            result = eager_kernels.run(op, arrays, params)
    except RuntimeWarning:  # the user made warnings errors: infinities are none
        with np.errstate(all="ignore"):
            result = op.kernel(*arrays, **params)
    except OpenSizeError as open_size:  # a size of a graph that is being built
        return open_size.build.process(op, args, params)
    except Exception as error:
        raise explain(op, args, params, error) from None
    if ledger is not None:
        for array in result if type(result) is tuple else (result,):
            allocation.noted(np.asarray(array), op.name)
    if type(result) is tuple:
        return tuple([Tensor(np.asarray(r)) for r in result])
    out = new(Tensor)
    out._data = result if type(result) is ndarray else np.asarray(result)
    out._node = None
    return out


def _bind_other(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply an operator to arguments of which one is no plain CPU tensor."""
    if params and Shape in map(type, params.values()):
        params = {k: tuple(v) if type(v) is Shape else v for k, v in params.items()}
    if mode.quick and not op.composite:
        out = _on_one_device(op, args, params)
        if out is not None:
            return out
    for a in args:
        own = a._interpreter if isinstance(a, Tensor) else None
        if own is not None and own.composes:
            return own.process(op, args, params)
    return _leave(op, args, params, _process(op, args, params))


def _on_one_device(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply an operator as ``bind`` does where nobody watches, on another device.

    None unless all tensors are there.
    """
    device, buffers, wanted = None, [], False
    for a in args:
        if type(a) is DeviceTensor:
            if device is not None and a.device is not device:
                return None
            device = a.device
            buffers.append(a._data)
            wanted = wanted or a._node is not None
        elif isinstance(a, Tensor):
            return None
        else:
            buffers.append(a)
    if device is None:
        return None
    state, out = mode.quick, _run_there(device, op, args, buffers, params)
    if op.view and state & VIEWS:
        link_view(op, args[0], params, out)
    if wanted and state & RECORDING:
        record(op, args, params, out)
    return out


def _run_there(
    device: Any, op: Op, args: tuple[Any, ...], buffers: list[Any], params: Any
) -> Any:
    """The tensors that a device's kernel makes of buffers."""
    kernel = device.kernel(op)
    try:
        result = kernel(*buffers, **params)
    except Exception as error:
        raise explain(op, args, params, error) from None
    if type(result) is tuple:
        return tuple([Tensor.on_device(r, device) for r in result])
    return Tensor.on_device(result, device)


def _process(op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """The result on tracers, or on another device."""
    chosen, capture = None, mode.capture
    for a in args:
        if isinstance(a, Tensor) and a._interpreter is not chosen:
            chosen = _inner(chosen, a._interpreter)
    if capture is not chosen:
        chosen = _inner(chosen, capture)
    if chosen is not None:
        return chosen.process(op, args, params)
    if op.composite:
        return run_composite(op, args)
    device = _common_device(op, args)
    buffers = [_buffer(a, device) if isinstance(a, Tensor) else a for a in args]
    if device is cpu:  # a subclass of a program's
        return evaluate(op, args, buffers, params)
    return _run_there(device, op, args, buffers, params)


def _inner(one: Any, other: Any) -> Any:
    """The interpreter of the inner transform, of two or one."""
    if one is None or other is None:
        return one or other
    return one if one.level >= other.level else other


def run_composite(op: Op, args: tuple[Any, ...]) -> Any:
    """Run a program over tensors without recording its operators."""
    before = set_recording(False)
    try:
        return op.eval(*args)
    finally:
        set_recording(before)


def _mark_inference(out: Any) -> None:
    for one in out if type(out) is tuple else (out,):
        one._inference = True


def _buffer(x: Tensor, device: Any) -> Any:
    """A tensor's buffer there; numbers on the CPU go along with other tensors."""
    return x._data if x.device is device else x._moved(device)._data


def is_number(x: Tensor) -> bool:
    """Whether a tensor on the CPU is one number, as often as it may be repeated."""
    if type(x) is not Tensor:
        return False
    array = x._data
    base = array.base  # of a number that was expanded to one element
    return not any(array.strides) or (base is not None and base.ndim == 0)


def _common_device(op: Op, args: tuple[Any, ...]) -> Any:
    device = None
    for a in args:
        if isinstance(a, Tensor) and not is_number(a):
            if device is None or device is a.device:
                device = a.device
            else:
                raise DeviceError(
                    f"{op.name}: expected all tensors on one device, got "
                    f"{device.name!r} and {a.device.name!r}. Move one with "
                    f".to({device.name!r})"
                )
    if device is None:  # numbers only, one of them elsewhere
        device = next((a.device for a in args if isinstance(a, DeviceTensor)), cpu)
    return device


def type_of(value: Any) -> Any:
    """A tensor's type; other values stand for themselves."""
    if isinstance(value, Tensor):
        return TensorType(tuple(value.shape), value.dtype)
    return value


def explain(
    op: Op, args: tuple[Any, ...], params: dict[str, Any], error: Exception
) -> Exception:
    """An evaluation's error in clear words: the type rule's, if it has one."""
    if isinstance(error, WeftError):
        return error
    if isinstance(error, MemoryError):
        return late.find("memory_report").failed(op, args, params, error)
    try:
        if op.type is not None:
            op.type(*[type_of(a) for a in args], **params)
    except WeftError as clear:
        return clear
    kinds = ", ".join(str(type_of(a)) for a in args)
    return ArgumentError(f"{op.name}({kinds}): {error}")


def _shares(op: Op, base: Tensor, params: dict[str, Any], view: Any) -> bool:
    """Whether a view is one: a reshape may have had to copy."""
    if op.view != "maybe":
        return True
    if type(view) is DeviceTensor:
        return view.device.shares(view._data, base._data)
    if type(view) is not Tensor:
        return view.shows(base, op, params)
    return fast_path.shares(view._data, base._data)


def link_view(op: Op, base: Tensor, params: dict[str, Any], view: Any) -> None:
    """Tie a view to its base, if it is one."""
    if _shares(op, base, params, view):
        fast_path.link(op, base, params, view)

"""``weft.jit``: TorchScript's names for what ``weft.compile`` does.

``script`` and ``trace`` give compiled functions and modules. The decorators that tell
TorchScript what to leave out change nothing, since Python itself is captured.
"""

from __future__ import annotations

import builtins
import typing
from collections.abc import Callable
from typing import Any, Dict, Final, List, NamedTuple, Optional, Tuple, Union  # noqa: F401, UP035

import weft
from weft.compile import CompiledFunction, compile
from weft.compile.frontend.function import function_of
from weft.core.mode import mode
from weft.errors import ArgumentError
from weft.futures import Future
from weft.nn.module import Module

__all__ = [
    "Attribute",
    "Error",
    "Final",
    "Future",
    "ScriptFunction",
    "ScriptModule",
    "annotate",
    "export",
    "fork",
    "freeze",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "optimize_for_inference",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "trace",
    "unused",
    "wait",
]

ScriptFunction = CompiledFunction
Error = RuntimeError


class _Compiled(type(Module)):  # type: ignore[misc]
    """Lets ``isinstance(m, ScriptModule)`` ask whether a module is compiled."""

    def __instancecheck__(cls, value: Any) -> bool:
        if builtins.isinstance(value, Module) and hasattr(type(value), "_function"):
            return True
        return super().__instancecheck__(value)


class ScriptModule(Module, metaclass=_Compiled):
    """The base class of modules that ``script`` gives; to derive from it is to derive
    from ``Module``."""


class Attribute(NamedTuple):
    """A value with the type that TorchScript should give it."""

    value: Any
    type: Any


def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
    """A compiled function or module; what cannot be captured runs eagerly.

    A class is given back as it is.

    >>> weft.jit.script(lambda x: x + 1)(weft.ones(1)).item()
    2.0
    """
    if builtins.isinstance(obj, builtins.type) or function_of(obj) is not None:
        return obj
    return compile(obj, fullgraph=False)


def trace(
    func: Callable[..., Any], example_inputs: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """A function or module compiled for example inputs, which it is called with once.

    It can be saved then. Other sizes and other branches compile again.

    >>> f = weft.jit.trace(lambda x: x * 2, weft.ones(2))
    >>> len(f.compiles)
    1
    """
    examples = kwargs.get("example_kwarg_inputs")
    compiled = compile(func)
    if examples is not None:
        compiled(**examples)
    elif builtins.isinstance(example_inputs, (tuple, list)):
        compiled(*example_inputs)
    else:
        compiled(example_inputs)
    return compiled


def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Save a compiled program as ``weft.save`` does; it must have been called.

    >>> import io
    >>> weft.jit.save(weft.jit.trace(lambda x: x * 2, weft.ones(2)), io.BytesIO())
    """
    function = function_of(m)
    if function is None or function.latest is None:
        raise ArgumentError(
            "jit.save: expected what torch.jit.trace gives, or a scripted function "
            f"that has been called, got {type(m).__name__}; call it once, or save "
            "m.state_dict()"
        )
    weft.save(function, f)


def load(f: Any, map_location: Any = None, _extra_files: Any = None) -> Any:
    """The program that ``save`` wrote.

    >>> import io
    >>> file = io.BytesIO()
    >>> weft.jit.save(weft.jit.trace(lambda x: x * 2, weft.ones(2)), file)
    >>> weft.jit.load(io.BytesIO(file.getvalue()))(weft.ones(2)).tolist()
    [2.0, 2.0]
    """
    return weft.load(f)


def is_scripting() -> bool:
    """False: Python code runs as Python, also when it is captured.

    >>> weft.jit.is_scripting()
    False
    """
    return False


def is_tracing() -> bool:
    """Whether the code that runs is being captured.

    >>> weft.jit.is_tracing()
    False
    """
    return mode.capture is not None


def _itself(fn: Any) -> Any:
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The function itself, or a decorator that gives it.

    >>> weft.jit.ignore(abs) is abs
    True
    """
    return drop if callable(drop) else _itself


def unused(fn: Any) -> Any:
    """The function itself.

    >>> weft.jit.unused(abs) is abs
    True
    """
    return fn


export = script_method = script_if_tracing = interface = unused


_overload = _overload_method = _script_if_tracing = _itself  # forms for a compiler


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value: TorchScript alone needs its type.

    >>> weft.jit.annotate(int, 3)
    3
    """
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether an object has a type, or a container's elements have.

    >>> weft.jit.isinstance([1, 2], list[int]), weft.jit.isinstance([1], list[str])
    (True, False)
    """
    kinds = target_type if type(target_type) is tuple else (target_type,)
    return any(_has_type(obj, kind) for kind in kinds)


def _has_type(obj: Any, kind: Any) -> bool:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is None:
        return kind is Any or builtins.isinstance(
            obj, type(None) if kind is None else kind
        )
    if origin is typing.Union:
        return any(_has_type(obj, one) for one in inner)
    if not builtins.isinstance(obj, origin):
        return False
    if origin is dict:
        return all(_has_type(k, inner[0]) for k in obj) and all(
            _has_type(v, inner[1]) for v in obj.values()
        )
    if origin is tuple:
        return len(obj) == len(inner) and all(map(_has_type, obj, inner))
    return all(_has_type(one, inner[0]) for one in obj)


def freeze(mod: Any, *args: Any, **kwargs: Any) -> Any:
    """The module itself; compiled programs read parameters where they are.

    >>> net = weft.jit.script(weft.nn.Linear(2, 2).eval())
    >>> weft.jit.freeze(net) is net
    True
    """
    if getattr(mod, "training", False):
        raise RuntimeError("jit.freeze: expected a module in eval mode")
    return mod


def optimize_for_inference(mod: Any, *args: Any, **kwargs: Any) -> Any:
    """The module itself: compiling has optimized it.

    >>> net = weft.nn.Linear(2, 2).eval()
    >>> weft.jit.optimize_for_inference(net) is net
    True
    """
    return freeze(mod)


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
    """The future of a call, which is made now: operators use all cores.

    >>> weft.jit.wait(weft.jit.fork(abs, -1))
    1
    """
    future = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Future) -> Any:
    """The value of a future.

    >>> weft.jit.wait(weft.jit.fork(max, 1, 2))
    2
    """
    return future.wait()

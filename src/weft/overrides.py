"""``weft.overrides``: classes and modes that take over functions of tensors.

A class may define ``__torch_function__(cls, func, types, args, kwargs)``, whether it is
a subclass of ``Tensor`` or not; a ``TorchFunctionMode`` sees every call in its block.

The protocol costs nothing until somebody uses it. The first instance of a subclass, the
first mode, or ``enable()`` gives all functions of tensors a new code object, which asks
their arguments before it calls the old one. So references that other modules have
imported before ask as well.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.ops.public import EXPORTED, LATER, Later


class _State(threading.local):
    modes: tuple[TorchFunctionMode, ...] = ()
    subclasses: bool = True  # are arguments asked?
    inside: bool = False  # is a function's own code running, whose calls are its own?


_state = _State()
_PLAIN: dict[type, bool] = {Tensor: True}  # classes that take nothing over
_PASSING: set[type] = {
    Tensor
}  # those of them that hold no others: most arguments are of these


# -- arguments that take over


def _takes_over(kind: type) -> bool:
    """Whether objects of a class take over functions."""
    plain = _PLAIN.get(kind)
    if plain is None:
        own = getattr(kind, "__torch_function__", None)
        default = (
            getattr(own, "__func__", own) is vars(Tensor)["__torch_function__"].__func__
        )
        plain = (
            own is None
            or own is disabled_torch_function_impl
            or (default and kind.__module__.partition(".")[0] == "weft")
        )
        _PLAIN[kind] = plain
        if plain and kind not in (list, tuple):
            _PASSING.add(kind)
    return not plain


def _overloaded(values: Iterable[Any]) -> list[Any]:
    """The arguments that take over, one of each class, subclasses first."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is Tensor or not _takes_over(kind):
            continue
        if any(type(other) is kind for other in found):
            continue
        place = len(found)
        for index, other in enumerate(found):
            if issubclass(kind, type(other)):
                place = index
                break
        found.insert(place, value)
    return found


def _flat(args: Iterable[Any]) -> Iterator[Any]:
    """Arguments, and the elements of lists and tuples among them."""
    for arg in args:
        if type(arg) in (list, tuple):
            yield from arg
        else:
            yield arg


def _call_of_modes(func: Any, original: Any, args: Any, kwargs: Any) -> Any:
    """A call of a function that no argument takes over."""
    with DisableTorchFunctionSubclass():
        return _call(func, original, args, kwargs)


def _call(
    func: Callable[..., Any], original: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """A call of a function of tensors, once the protocol is in use."""
    state = _state
    if state.inside:
        return original(*args, **kwargs)
    passing = _PASSING.issuperset(map(type, args)) and (
        not kwargs or _PASSING.issuperset(map(type, kwargs.values()))
    )
    if state.modes or (state.subclasses and not passing):
        found = _overloaded(_flat((*args, *kwargs.values())))
        if state.modes or (found and state.subclasses):
            return _taken(func, found, args, kwargs)
    state.inside = True
    try:
        return original(*args, **kwargs)
    finally:
        state.inside = False


def _taken(func: Any, found: list[Any], args: Any, kwargs: Any) -> Any:
    types = tuple(map(type, found))
    if _state.modes:
        *outer, mode = _state.modes
        with _in_modes(tuple(outer)):
            result = mode.__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
        found = [*found, mode]
    elif _state.subclasses:
        for value in found:
            result = value.__torch_function__(func, types, args, kwargs)
            if result is not NotImplemented:
                return result
    raise TypeError(
        f"no implementation found for {resolve_name(func)!r} on types that implement "
        f"__torch_function__: {[type(one) for one in found]}"
    )


@contextmanager
def _in_modes(modes: tuple[TorchFunctionMode, ...]) -> Iterator[None]:
    before, _state.modes = _state.modes, modes
    try:
        yield
    finally:
        _state.modes = before


# -- the switch


@functools.cache
def _asking(cells: tuple[str, ...]) -> CodeType:
    """The code of a function that asks, with these variables of an outer function.

    A function keeps its cells, so its new code must have as many.
    """
    source = f"""
def outer({", ".join(cells)}):
    def asking(*args, weft_call, weft_func, weft_original, **kwargs):
        if 0: {", ".join(cells) or "pass"}
        return weft_call(weft_func, weft_original, args, kwargs)
    return asking
"""
    made: dict[str, Any] = {}
    exec(compile(source, __file__, "exec"), made)
    code = made["outer"](*cells).__code__
    assert code.co_freevars == tuple(sorted(cells))
    return code


def _let_ask(func: FunctionType, shown: Any) -> None:
    """Let a function, reported as ``shown``, ask its arguments before it runs."""
    original = FunctionType(
        func.__code__, func.__globals__, func.__name__, func.__defaults__,
        func.__closure__,
    )  # fmt: skip
    original.__kwdefaults__ = func.__kwdefaults__
    original.__dict__.update(func.__dict__)
    original.__annotations__ = func.__annotations__
    if not hasattr(func, "__wrapped__"):
        func.__signature__ = inspect.signature(func)  # type: ignore[attr-defined]
    func.__defaults__ = None
    func.__kwdefaults__ = {
        "weft_call": _call_of_modes if func.__name__ in _OF_MODES else _call,
        "weft_func": shown, "weft_original": original,
    }  # fmt: skip
    func.__code__ = _asking(func.__code__.co_freevars).replace(
        co_name=func.__code__.co_name, co_qualname=func.__code__.co_qualname
    )


# Operators under which PyTorch reports a method, and methods that are not reported.
_SHOWN = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__mul__": "mul",
    "__rmul__": "mul", "__truediv__": "div", "__matmul__": "matmul", "__pow__": "pow",
    "__neg__": "neg", "__abs__": "abs", "__invert__": "bitwise_not", "__eq__": "eq",
    "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
    "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__itruediv__": "div_",
    "__mod__": "remainder",
}  # fmt: skip
_UNREPORTED = [
    "__init__",
    "__new__",
    "__init_subclass__",
    "__reduce_ex__",
    "__array_ufunc__",
    "__dlpack__",
    "__array_function__",
    "__array_namespace__",
    "__dlpack_device__",
    "__copy__",
    "__deepcopy__",
    "backward",
    "register_hook",
    "register_post_accumulate_grad_hook",
    "apply_",
    "map_",
    "map2_",
    "as_subclass",
    "data_ptr",
    "stride",
    "storage",
    "untyped_storage",
    "is_contiguous",
    "numel",
    "dim",
    "size",
    "element_size",
    "storage_offset",
    "retain_grad",
]
# Functions that modes see, but no argument takes over, and functions that nobody does.
_OF_MODES = ["tensor", "as_tensor", "asarray", "from_numpy"]
_OF_NOBODY = ["is_tensor", "is_storage", "typename", "broadcast_shapes"]
_MODULES = ("nn.functional", "linalg", "fft", "special", "nn.init")


def get_overridable_functions() -> dict[Any, list[FunctionType]]:
    """The functions that arguments can take over, by namespace.

    >>> weft.sin in weft.overrides.get_overridable_functions()[weft]
    True
    """
    for name in LATER:
        getattr(weft, name)
    for value in list(vars(Tensor).values()):
        if type(value) is Later:
            value.__get__(None, Tensor)
    exported = [name for name in EXPORTED if name not in _OF_NOBODY]
    found: dict[Any, Any] = {weft: [getattr(weft, name) for name in exported]}
    for path in _MODULES:
        module = importlib.import_module(f"weft.{path}")
        names = [n for n in vars(module) if not n.startswith("_")]
        found[module] = [getattr(module, n) for n in names]
    found[Tensor] = [f for n, f in vars(Tensor).items() if _is_reported(n, f)]
    return {
        where: [f for f in fns if isinstance(f, FunctionType)]
        for where, fns in found.items()
    }


def _is_reported(name: str, value: Any) -> bool:
    if not isinstance(value, FunctionType) or name in _UNREPORTED:
        return False
    if value.__code__.co_filename.endswith("core/tensor.py"):
        return False  # how tensors work
    return name.startswith("__") or not name.startswith("_")


_enabled = False
_lock = threading.Lock()


def enable() -> None:
    """Let arguments and modes take over functions of tensors from now on.

    Subclasses of ``Tensor`` and modes do so by themselves; a class of another kind that
    defines ``__torch_function__`` calls it, unless ``weft run`` or
    ``weft.torch.install`` is in use, which sees such classes.

    >>> weft.overrides.enable()
    """
    global _enabled
    with _lock:
        if _enabled:
            return
        shown = {getattr(Tensor, name): _method(to) for name, to in _SHOWN.items()}
        done: set[Any] = set()
        for functions in get_overridable_functions().values():
            for func in functions:
                if func not in done:
                    done.add(func)
                    _let_ask(func, shown.get(func, func))
        _enabled = True


def _method(name: str) -> Any:
    return getattr(Tensor, name)


# -- subclasses of Tensor


def run(
    cls: Any, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
) -> Any:
    """Run the function itself; tensors that come out are of this class."""
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
    return result if func in get_default_nowrap_functions() else _converted(result, cls)


def _converted(value: Any, cls: Any) -> Any:
    if cls is Tensor:
        return value
    if isinstance(value, Tensor):
        return value if isinstance(value, cls) else value.as_subclass(cls)
    if type(value) in (list, tuple):
        return type(value)([_converted(one, cls) for one in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_converted(one, cls) for one in value])
    return value


def disabled_torch_function_impl(
    func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
) -> Any:
    """As a class's ``__torch_function__``: its objects take nothing over."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def as_subclass(self: Tensor, cls: Any) -> Any:
    """The same tensor, as an object of a subclass of ``Tensor``."""
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"as_subclass: expected a subclass of Tensor, got {cls!r}")
    _refuse_dispatch(cls)
    enable()
    state = _state
    inside, state.inside = state.inside, True
    try:
        seen = self.view_as(self) if self._node is not None else self.detach()
    finally:
        state.inside = inside
    made = object.__new__(cls)
    for name, value in vars(seen).items():
        object.__setattr__(made, name, value)
    return made


def _refuse_dispatch(cls: Any) -> None:
    if "__torch_dispatch__" in {name for kind in cls.__mro__ for name in vars(kind)}:
        own = cls.__torch_dispatch__
        if own is not disabled_torch_function_impl:
            raise NotImplementedError(
                f"{cls.__name__} defines __torch_dispatch__, which sees operators of "
                "PyTorch's dispatcher; Weft has none. Define __torch_function__, or "
                "observe operators with weft.core.mode.observe"
            )


def make_subclass(cls: Any, data: Tensor, require_grad: bool = False) -> Any:
    """A tensor of a subclass over the memory of another one."""
    if not isinstance(data, Tensor):
        kind = type(data).__name__
        raise TypeError(f"_make_subclass: expected a tensor, got {kind}")
    made = as_subclass(data.detach(), cls)
    made._parameter = issubclass(cls, weft.nn.Parameter)
    return made.requires_grad_() if require_grad else made


def refuse_wrapper(cls: Any) -> Any:
    """Say why a class cannot wrap other tensors."""
    _refuse_dispatch(cls)
    raise NotImplementedError(
        f"_make_wrapper_subclass: {cls.__name__} would be a tensor without memory, "
        "which needs __torch_dispatch__; Weft has none. Keep the tensor in a field of "
        "a class with __torch_function__"
    )


def subclass_instance(cls: Any, data: Any = None, *sizes: Any, **options: Any) -> Any:
    """A new object of a subclass, as ``Points([1.0, 2.0])`` makes it."""
    if data is None:
        data = weft.empty(0)
    if not isinstance(data, Tensor):
        data = Tensor(data, *sizes)
    return as_subclass(data, cls)


# -- switching off, and modes


class _Without:
    """A block in which arguments (and modes) take nothing over."""

    modes = False

    def __enter__(self) -> None:
        self.before = _state.subclasses, _state.modes
        _state.subclasses = False
        if self.modes:
            _state.modes = ()

    def __exit__(self, *error: object) -> None:
        _state.subclasses, _state.modes = self.before


class DisableTorchFunctionSubclass(_Without):
    """A block in which arguments take nothing over.

    >>> with weft.overrides.DisableTorchFunctionSubclass():
    ...     weft.ones(2)
    tensor([1., 1.])
    """


class DisableTorchFunction(_Without):
    """A block in which neither arguments nor modes take anything over."""

    modes = True


class TorchFunctionMode:
    """A block in which every function of tensors comes to ``__torch_function__``.

    >>> class Show(weft.overrides.TorchFunctionMode):
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return func(*args, **(kwargs or {}))
    >>> with Show():
    ...     x = weft.ones(2).sum()
    ones
    sum
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __torch_function__")

    def __enter__(self) -> TorchFunctionMode:
        enable()
        self._before: Any = (_state.modes, getattr(self, "_before", None))
        _state.modes = (*_state.modes, self)
        return self

    def __exit__(self, *error: object) -> None:
        _state.modes, self._before = self._before

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> TorchFunctionMode:
        """A mode of this class."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


# -- questions, and functions that take part


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether an argument or a mode takes over a call.

    >>> weft.overrides.has_torch_function((weft.ones(1),))
    False
    """
    if _state.inside:
        return False
    return bool(
        _state.modes or (_state.subclasses and _overloaded(tuple(relevant_args)))
    )


def has_torch_function_unary(value: Any) -> bool:
    """Whether an argument or a mode takes over a call.

    >>> weft.overrides.has_torch_function_unary(weft.ones(1))
    False
    """
    return has_torch_function((value,))


def has_torch_function_variadic(*values: Any) -> bool:
    """Whether an argument or a mode takes over a call.

    >>> weft.overrides.has_torch_function_variadic(weft.ones(1), 2)
    False
    """
    return has_torch_function(values)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any,
    **kwargs: Any,
) -> Any:  # fmt: skip
    """Let the arguments of a function of your own take over a call of it.

    >>> def double(x):
    ...     if weft.overrides.has_torch_function_unary(x):
    ...         return weft.overrides.handle_torch_function(double, (x,), x)
    ...     return 2 * x
    >>> double(weft.ones(1))
    tensor([2.])
    """
    return _taken(public_api, _overloaded(tuple(relevant_args)), args, kwargs)


def wrap_torch_function(
    dispatcher: Callable[..., Iterable[Any]],
) -> Callable[..., Any]:
    """Decorate a function: the arguments that ``dispatcher`` names may take it over.

    >>> @weft.overrides.wrap_torch_function(lambda x: (x,))
    ... def double(x):
    ...     return 2 * x
    >>> double(weft.ones(1))
    tensor([2.])
    """

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return decorate


@functools.cache
def get_default_nowrap_functions() -> frozenset[Any]:
    """The functions whose results stay plain tensors.

    >>> len(weft.overrides.get_default_nowrap_functions())
    0
    """
    return frozenset()


def is_tensor_like(inp: Any) -> bool:
    """Whether a value is a tensor, or takes over functions of tensors.

    >>> weft.overrides.is_tensor_like(weft.ones(1)), weft.overrides.is_tensor_like(3)
    (True, False)
    """
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether a function is a method of tensors.

    >>> weft.overrides.is_tensor_method_or_property(weft.Tensor.sum)
    True
    """
    return any(func is value for value in vars(Tensor).values())


def resolve_name(f: Any) -> str | None:
    """A name for a function, to show.

    >>> weft.overrides.resolve_name(weft.nn.functional.relu)
    'weft.relu'
    """
    name = getattr(f, "__qualname__", None)
    return None if name is None else f"weft.{name}"

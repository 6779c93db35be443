"""``weft.compile``: a Python function as a native program.

The first call captures the function for its arguments' shapes and compiles it. A
call with other sizes makes the sizes that differ symbolic, so a third size costs
nothing. What the program read from Python is checked before every run.
"""

from __future__ import annotations

import copy
import functools
import inspect
import random
import time
import warnings
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import late
from weft.compile.frontend.fast_path import MISS, GuardedRuns, fast_path_of
from weft.compile.frontend.foreign_objects import ForeignObjects
from weft.compile.frontend.recompile_reasons import advice, reason
from weft.compile.frontend.specialization import Specialization, specialize
from weft.compile.program.phases import Compilation, recording, uncollected
from weft.compile.tuning import seconds_of, tuned
from weft.config import config
from weft.core.mode import mode
from weft.core.pytree import tree_flatten
from weft.core.tensor import DeviceTensor, Tensor
from weft.dtype import default_dtype
from weft.errors import (
    ArgumentError,
    DTypeError,
    SharedMemoryError,
    shorten,
)
from weft.graph.capture import apply_undone
from weft.graph.captured_program import Captured
from weft.graph.console import DebuggerWanted
from weft.graph.effects import repeated
from weft.graph.labels import labels_of

if TYPE_CHECKING:
    from weft.compile.explain import Explanation


LONGEST_PAUSE = 1024  # calls after which a fast path is tried again
OPEN, FIXED = object(), object()  # floats: inputs of programs; always constants
MOST_EXACT = 64  # sets of sizes whose specialization is remembered
MOST_REFUSED = 16  # refusals after which a function is not tried again
FIRST_REFUSED = 3  # the same while nothing has been compiled


class CompiledFunction:
    """A function that runs as native code; see ``weft.compile``."""

    def __init__(
        self, fn: Callable[..., Any], dynamic: bool | None, verify: bool,
        max_compiles: int, tune: bool | float = False, pack_weights: bool = False,
        memory: Any = None, batch_invariant: bool = False, fullgraph: bool = True,
    ) -> None:  # fmt: skip
        self.fn = fn
        self.options = {
            "dynamic": dynamic, "verify": verify, "max_compiles": max_compiles,
            "tune": tune, "pack_weights": pack_weights, "memory": memory,
            "batch_invariant": batch_invariant, "fullgraph": fullgraph,
        }  # fmt: skip
        self.name = ""  # of the attribute, for a method of a class
        self.dynamic = dynamic
        self.verify = verify
        self.max_compiles = max_compiles
        self.tune = seconds_of(tune)
        self.pack_weights = pack_weights
        self.batch_invariant = batch_invariant
        self.memory = memory  # decides which values are kept for backward
        self.fullgraph = fullgraph  # else what is refused runs eagerly
        self.refused: dict[Any, str] = {}  # reasons, by the key of a specialization
        self._again: set[Any] = set()  # keys of which a second capture is tried
        self.eager_calls = 0
        self.compiles: list[Compilation] = []
        self.latest: Specialization | None = None  # the one that ran last
        self._specializations: dict[Any, list[Specialization]] = {}
        self._exact: dict[Any, Specialization] = {}  # by ``_exact_key``
        self._floats: dict[Any, dict[int, Any]] = {}  # by structure and leaf
        self._seen: dict[Any, list[list[tuple[int, ...]]]] = {}  # shapes
        self._fast_path: GuardedRuns | None = None
        self._pause = self._waiting = 0  # calls until there is another fast path
        if not isinstance(fn, type) and callable(fn):
            functools.update_wrapper(self, fn, updated=())

    # -- methods and copies

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """The bound method: a compiled function of its own, kept in the object."""
        if instance is None:
            return self
        kept = getattr(instance, "__dict__", None)
        if type(kept) is not dict:  # a class, or an object of slots
            return MethodType(self, instance)
        key = f"_compiled_{self.name}"
        bound = kept.get(key)
        if bound is None or bound.fn.__func__ is not self.fn:
            bound = CompiledFunction(MethodType(self.fn, instance), **self.options)
            bound.name, kept[key] = self.name, bound
        return bound

    def __copy__(self) -> CompiledFunction:
        return CompiledFunction(self.fn, **self.options)

    def __deepcopy__(self, memo: Any) -> CompiledFunction:
        return CompiledFunction(copy.deepcopy(self.fn, memo), **self.options)

    def __reduce__(self) -> Any:
        return getattr(self, "__qualname__", "")  # as functions are, by name

    # -- calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._call(args, kwargs)
        except BaseException as error:
            if mode.undone:
                apply_undone()
            shorten(error)
            raise

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.batch_invariant and not config.batch_invariant:
            with config.using(batch_invariant=True):
                return self._call(args, kwargs)
        fast_path = self._fast_path
        if fast_path is not None and not kwargs and fast_path.settings == _settings():
            result = fast_path.run(args)
            if result is not MISS:
                self.latest = fast_path.specialization
                return result
        exact, arrays = self._exact_key(args) if not kwargs else (None, [])
        specialization = self._exact.get(exact)
        if specialization is not None and specialization.holds(args):
            result = self._run(specialization, args, arrays, args, kwargs)
            self._renew_fast_path(specialization, args)
            return result
        return self._slowly(exact, args, kwargs)

    def _renew_fast_path(self, specialization: Specialization, args: Any) -> None:
        """Give the next call a fast path, because this call missed it or had none.

        The more often fast paths are missed, the less often one is made.
        """
        if self._fast_path is not None:
            self._pause = min(2 * self._pause + 1, LONGEST_PAUSE)
            self._fast_path, self._waiting = None, self._pause
        if self._waiting:
            self._waiting -= 1
        elif not self.verify:
            self._fast_path = fast_path_of(specialization, args, _settings())
            self._waiting = LONGEST_PAUSE * (self._fast_path is None)

    def _exact_key(self, args: tuple[Any, ...]) -> tuple[Any, list[Any]]:
        """The key of a specialization by exact sizes and settings, and the arrays.

        There is a key if all arguments are tensors. A specialization is then found by
        one lookup, and only its guards are left to check.
        """
        kinds, arrays = [], []
        for x in args:
            if type(x) not in _TENSORS or x._interpreter is not None:
                return None, []
            array = x._data
            arrays.append(array)
            strides = getattr(array, "strides", None)
            node = x._node
            hooked = node is not None and bool(node.hooks)
            kinds.append(
                (array.shape, array.dtype, strides, node is None, hooked, x.device)
            )
        return (tuple(kinds), _settings()), arrays

    def _slowly(self, exact: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        structure: Any = len(args)
        if not kwargs and {*map(type, args)} == {Tensor}:  # the usual case
            leaves = list(args)
        else:
            leaves, structure = tree_flatten((args, kwargs))
        if mode.capture is not None or any(
            isinstance(x, Tensor) and x._interpreter is not None for x in leaves
        ):
            return self.fn(*args, **kwargs)  # inside another program: be part of it
        numbers: tuple[int, ...] = ()
        if structure != len(args):
            structure = structure, repeated((args, kwargs))
            numbers = self._numbers(structure, leaves)
            for k in numbers:
                leaves[k] = Tensor(np.asarray(leaves[k]))
        arrays = [_array(x) for x in leaves if isinstance(x, (Tensor, np.ndarray))]
        kinds = [(float,) if k in numbers else _kind(x) for k, x in enumerate(leaves)]
        key = (structure, tuple(kinds), _settings())
        if key in self._again:  # what a first call sets up is there now
            self._again.discard(key)
            first = self.refused.pop(key, None)
        elif key in self.refused or self._is_hopeless():
            return self._eagerly(args, kwargs)
        else:
            first = None
        known = self._specializations.get(key, [])
        why = ""
        for k, specialization in enumerate(known):
            if specialization.fits(arrays):
                if specialization.holds(leaves):
                    if k:  # the next call is likely to be like this one
                        known.insert(0, known.pop(k))
                    break
                why = why or specialization.stale(leaves) or ""
            else:
                why = why or specialization.moved(arrays)
        else:
            hidden = None if self.fullgraph else _random_states()
            foreign = ForeignObjects((args, kwargs), self.fn)
            try:
                specialization = self._compile(key, args, kwargs, arrays, why, numbers)
            except DebuggerWanted:
                mode.undone = ()
                foreign.restore()
                self._warn_of_debugger()
                return self.fn(*args, **kwargs)
            except Exception as error:
                foreign.restore()
                if numbers:  # other code, as json's, may not take them for floats
                    mode.undone = ()
                    floats = self._floats[structure]
                    self._floats[structure] = dict.fromkeys(floats, FIXED)
                    try:
                        return self._slowly(exact, args, kwargs)
                    except Exception:  # it was not for the floats
                        self._floats[structure] = floats
                        raise
                if hidden is None:
                    raise
                mode.undone = ()
                _set_random_states(hidden)
                self.refused[key] = str(error)
                if first is None:
                    self._again.add(key)
                return self._eagerly(args, kwargs)
        if exact is not None:
            if len(self._exact) >= MOST_EXACT:
                self._exact.clear()
            self._exact[exact] = specialization
        return self._run(specialization, leaves, arrays, args, kwargs)

    @property
    def warming(self) -> bool:
        """Whether a call runs eagerly after which a second capture is tried."""
        return bool(self._again)

    def _is_hopeless(self) -> bool:
        """Whether so many kinds of calls were refused that no other is tried."""
        most = MOST_REFUSED if self.compiles else FIRST_REFUSED
        return len(self.refused) >= most

    def _eagerly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the Python function, because its capture was refused."""
        self.eager_calls += 1
        return self.fn(*args, **kwargs)

    def _numbers(self, structure: Any, leaves: list[Any]) -> tuple[int, ...]:
        """The indices of floats that have differed between calls: they are inputs."""
        seen = self._floats.setdefault(structure, {})
        for k, leaf in enumerate(leaves):
            if type(leaf) is float and seen.setdefault(k, leaf) is not FIXED:
                first = seen[k]
                if first is not OPEN and repr(first) != repr(leaf):
                    seen[k] = OPEN
        return tuple(
            k for k, x in enumerate(leaves) if type(x) is float and seen[k] is OPEN
        )

    def _warn_of_debugger(self) -> None:
        warnings.warn(
            f"compile: {self!r} calls the debugger, so this call runs eagerly: in a "
            "program there are no values to look at",
            stacklevel=4,
        )

    def _run(
        self,
        specialization: Specialization,
        leaves: Any,
        arrays: Any,
        args: Any,
        kwargs: Any,
    ) -> Any:
        self.latest = specialization
        if self.verify:
            from weft.compile.frontend.verification import verified

            return verified(self.fn, specialization, leaves, arrays, args, kwargs)
        try:
            return specialization.run(leaves, arrays, (args, kwargs))
        except SharedMemoryError:  # found before anything has changed
            if self.fullgraph:
                raise
            return self._eagerly(args, kwargs)

    def _compile(
        self, key: Any, args: Any, kwargs: Any, arrays: list[Any], why: str,
        numbers: tuple[int, ...],
    ) -> Specialization:  # fmt: skip
        shapes = [a.shape for a in arrays]
        labels = labels_of(self.fn, args, kwargs)
        tensors = self._tensor_labels(args, kwargs, numbers)
        why = why or reason(self._seen, key, shapes, labels, tensors)
        if len(self.compiles) >= self.max_compiles:
            past = "\n".join(f"  {c}" for c in self.compiles[-5:])
            hint = advice([*[c.why for c in self.compiles], why])
            raise ArgumentError(
                f"compile: {self!r} would be compiled for the "
                f"{len(self.compiles) + 1}th time ({why}); the last ones were\n{past}\n"
                f"{hint}, or raise max_compiles"
            )
        start = time.perf_counter()
        with uncollected(), recording() as record:
            names = self._symbolic_sizes(key, shapes, tensors)
            specialization = self._specialize(args, kwargs, names, numbers)
            tuning = None
            if self.tune:
                specialization, tuning = tuned(specialization, arrays, self.tune)
        self._specializations.setdefault(key, []).insert(0, specialization)
        self._seen.setdefault(key, []).append(shapes)
        took = time.perf_counter() - start
        counts, when = specialization.program.counts, time.time() - took
        self.compiles.append(
            Compilation(why, took, *counts, when, record.seconds, record.cached, tuning)
        )
        specialization.number = len(self.compiles) - 1
        return specialization

    def _specialize(
        self, args: Any, kwargs: Any, names: Any, numbers: Any
    ) -> Specialization:
        """Compile with symbolic sizes; for these sizes alone if that is impossible."""
        compile_for = functools.partial(
            specialize, self.fn, args, kwargs, pack_weights=self.pack_weights,
            memory=self.memory, numbers=numbers,
        )  # fmt: skip
        foreign = ForeignObjects((args, kwargs), self.fn)
        try:
            return compile_for(names)
        except Exception:
            foreign.restore()
            if names is None or self.dynamic:
                raise
            mode.undone = ()
        return compile_for(None)

    def _symbolic_sizes(self, key: Any, shapes: list[Any], labels: list[str]) -> Any:
        """Names, by argument and axis, for sizes that have differed between calls."""
        if self.dynamic is False:
            return None
        before = self._seen.get(key, [])
        columns: dict[tuple[int, ...], str] = {}
        names: dict[str, dict[int, str]] = {}
        for k, (shape, label) in enumerate(zip(shapes, labels, strict=True)):
            for d, n in enumerate(shape):
                history = (*[past[k][d] for past in before], n)
                if len(set(history)) > 1 or (self.dynamic and n > 1):
                    name = columns.setdefault(history, f"s{len(columns)}")
                    names.setdefault(label, {})[d] = name
        return names or None

    def _tensor_labels(self, args: Any, kwargs: Any, numbers: Any) -> list[str]:
        leaves, _ = tree_flatten((args, kwargs))
        labels = labels_of(self.fn, args, kwargs)
        return [
            label
            for k, (x, label) in enumerate(zip(leaves, labels, strict=True))
            if k in numbers or isinstance(x, (Tensor, np.ndarray))
        ]

    def explain(self, *, measure: bool = False) -> Explanation:
        """Explain what was compiled, why and how; ``measure`` also times every kernel.

        The explanation prints as a short report; its attributes hold the details, and
        ``html`` writes a page.

        >>> f = weft.compile(lambda x: (x.exp() + 1).sum())
        >>> f(weft.ones(100)).shape
        ()
        >>> f.explain().kernels[0].operators
        ['exp', 'add', 'sum']
        """
        from weft.compile.explain import explanation_of

        return explanation_of(self, measure=measure)

    def __repr__(self) -> str:
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        return f"<compiled {name}, {len(self.compiles)} compilations>"


def function_of(value: Any) -> CompiledFunction | None:
    """The compiled function that a value is, or that a compiled module calls."""
    if isinstance(value, CompiledFunction):
        return value
    return value._function if hasattr(type(value), "_function") else None


_TENSORS = (Tensor, DeviceTensor)  # and none of a subclass


def _settings() -> tuple[Any, ...]:
    """The modes that decide what a program computes."""
    own = mode.__dict__
    inside = own["capture"] is not None
    return (
        own["recording"], own["inference"], default_dtype(), config.strict_ieee,
        config.batch_invariant, inside, mode.anomaly, own["autocast"],
    )  # fmt: skip


def _random_states() -> tuple[Any, ...]:
    """The states of Python's and NumPy's generators, which a capture may advance."""
    return random.getstate(), np.random.get_state()


def _set_random_states(states: tuple[Any, ...]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])


def _array(value: Any) -> Any:
    """The memory of an argument: an array, or a buffer of its device."""
    if isinstance(value, Tensor):
        return value.to_host() if value.is_cpu else value._data
    return value


def _kind(leaf: Any) -> Any:
    """The properties of an argument that decide which specialization is used."""
    if isinstance(leaf, Tensor):
        node = leaf._node
        hooked = node is not None and bool(node.hooks)
        return (leaf.dtype, leaf.ndim, node is not None, leaf.device, hooked)
    if isinstance(leaf, np.ndarray):
        return (leaf.dtype, leaf.ndim)
    try:
        hash(leaf)
    except TypeError:
        return id(leaf)
    signed = isinstance(leaf, (float, complex, np.inexact)) and leaf == 0
    return (type(leaf), leaf, repr(leaf) if signed else None)


def _check(fn: Any, dynamic: Any, max_compiles: Any) -> None:
    """Raise an error for a function or an option that cannot be used."""
    if not callable(fn):
        raise DTypeError(
            f"compile: expected a function or a module, got {type(fn).__name__}"
        )
    later = ("GENERATOR", "COROUTINE", "ASYNC_GENERATOR")
    flags = getattr(getattr(fn, "__code__", None), "co_flags", 0)
    if any(flags & getattr(inspect, f"CO_{kind}") for kind in later):
        raise ArgumentError(
            f"compile: {fn.__name__} is a generator or a coroutine, whose code runs "
            "later; compile a function that returns its results"
        )
    if dynamic not in (None, True, False):
        raise ArgumentError(f"compile: expected dynamic to be a bool, got {dynamic!r}")
    if not isinstance(max_compiles, int) or max_compiles < 1:
        raise ArgumentError(
            f"compile: expected max_compiles of at least 1, got {max_compiles!r}"
        )


_EAGER_BACKENDS = ("eager", "aot_eager")
_TUNED_MODES = ("max-autotune", "max-autotune-no-cudagraphs")
_MODES = (None, "default", "reduce-overhead", *_TUNED_MODES)


def _check_pytorchs(backend: Any, mode: Any, options: Any) -> None:
    """Raise an error for an option of PyTorch's that means nothing here."""
    if backend not in ("inductor", *_EAGER_BACKENDS):
        raise ArgumentError(
            f"compile: expected backend 'inductor' (Weft's compiler), 'eager' or "
            f"'aot_eager', got {backend!r}; compile.add_rule adds rules of your own"
        )
    if mode not in _MODES:
        names = ", ".join(map(repr, _MODES))
        raise ArgumentError(
            f"compile: expected mode to be one of {names}, got {mode!r}"
        )
    if options:
        raise ArgumentError(
            f"compile: options are those of PyTorch's Inductor, got {sorted(options)}; "
            "leave them out, or use tune, memory and pack_weights"
        )


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    dynamic: bool | None = None,
    verify: bool = False,
    max_compiles: int = 16,
    tune: bool | float = False,
    pack_weights: bool = False,
    memory: Any = None,
    batch_invariant: bool = False,
    fullgraph: bool = True,
    backend: str = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compile a function, a method or a module to native code.

    A function may be a whole training step: forward, ``backward()``, clipping and
    ``optimizer.step()`` become one program. ``dynamic`` makes sizes symbolic from the
    first call on (True) or never (False); by default, sizes that differ between calls
    become symbolic. ``verify`` runs the function eagerly too and compares results,
    gradients and state. ``tune`` measures other schedules for the kernels of each
    compilation, for 30 seconds at most or as many as it says, and takes the fastest;
    results keep their bits. ``pack_weights`` keeps the weights of products packed
    between runs, at the cost of as much memory again. ``batch_invariant`` is the
    setting of ``weft.config`` during calls: a row of a batch gets the same bits in
    batches of any size.

    ``memory`` is the most bytes that a training step may take, such as "512MB": as
    many of the values that backward needs are kept as fit, and the others are
    recomputed, at the least cost in time; results are the same bits. Or it names a
    policy: "keep" (everything), "recompute" (nothing), "selective" (matrix products,
    convolutions), "sqrt", a set of operators' names, or a function of a
    ``weft.utils.checkpoint.Result``. With a budget, each set of sizes gets a
    specialization of its own.

    The others are PyTorch's. ``fullgraph=False`` (``torch.compile``'s default) runs a
    call eagerly where the function cannot be captured as a whole; ``refused`` then has
    the reasons. ``mode="max-autotune"`` is ``tune=True``; there is one ``backend``
    besides "eager", which, like ``disable=True``, gives the function itself.

    >>> @weft.compile
    ... def f(x):
    ...     return (x * 2 + 1).sum()
    >>> f(weft.ones(3))
    tensor(9.)
    >>> len(f.compiles)
    1
    """
    if fn is None:
        return functools.partial(
            compile, dynamic=dynamic, verify=verify, max_compiles=max_compiles,
            tune=tune, pack_weights=pack_weights, memory=memory,
            batch_invariant=batch_invariant, fullgraph=fullgraph, backend=backend,
            mode=mode, options=options, disable=disable,
        )  # fmt: skip
    _check(fn, dynamic, max_compiles)
    _check_pytorchs(backend, mode, options)
    if disable or backend in _EAGER_BACKENDS:
        return fn
    if isinstance(fn, Captured):
        from weft.compile.frontend.captured import compiled_program

        return compiled_program(
            fn, pack_weights, dynamic=dynamic, verify=verify, tune=tune, memory=memory,
            batch_invariant=batch_invariant,
        )  # fmt: skip
    tune = True if tune is False and mode in _TUNED_MODES else tune
    plan = None
    if memory is not None:
        from weft.compile.recompute.policies import memory_of

        plan = memory_of(memory)
        dynamic = dynamic if plan.limit is None else False
    function = CompiledFunction(
        fn, dynamic, verify, max_compiles, tune, pack_weights, plan, batch_invariant,
        fullgraph,
    )  # fmt: skip
    from weft.compile.frontend.modules import compiled_module

    is_module = isinstance(fn, late.find("Module"))
    return compiled_module(function) if is_module else function

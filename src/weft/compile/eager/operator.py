"""Generated kernels for single operators on arrays, which ``compile.eager`` calls.

``run(op, arrays, params)`` returns the operator's result, or None if there is no kernel
for it: then NumPy's is used. Arrays are reshaped to a few patterns first, so that a
kernel serves every size and most shapes:

    element-wise    x[n] and numbers, or x[n, m] and a row[m]
    reductions      kept and reduced axes in turns, such as x[kept, reduced]
    random numbers  out[n]
    others          as they are, with symbolic sizes

``fused(name, fn, tensors, key)`` does the same for compositions such as softmax, with
their derivatives.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft import dtype as dtypes
from weft.compile.eager import new_output
from weft.compile.frontend.graph_function import GraphFunction
from weft.compile.pipeline import KERNEL_PASSES, TENSOR_PASSES
from weft.compile.program.program import Program, compiled
from weft.compile.program.steps import KernelLaunch
from weft.compile.targets.cpu.cost_model import COST
from weft.compile.targets.cpu.driver import driver
from weft.compile.targets.cpu.grain import grain_of
from weft.config import config
from weft.core.eager_kernels import CHEAP
from weft.core.lowering import Pointwise, Reduction
from weft.core.mode import set_recording
from weft.core.op import Op, TensorType, find_op
from weft.core.size import evaluate
from weft.core.tensor import Tensor
from weft.errors import WeftError
from weft.graph.capture import capture
from weft.graph.interpret import resolve
from weft.graph.ir import CONSTANT, Builder, Graph
from weft.graph.labels import labels_of
from weft.ops.resample import resample_op
from weft.runtime.cpu.address import address

ndarray = np.ndarray
PROGRAMS = 512  # kernels that are kept
CHUNK = 1 << 16  # elements that one iteration of a full reduction combines
_EXPAND = find_op("expand")
_CODES = "fd?"
HINT = 1000  # an assumed size for type rules; their assumptions are checked


def run(op: Op, arrays: Sequence[Any], params: dict[str, Any]) -> Any:
    """An operator's result from a kernel, or None if there is none."""
    if isinstance(op.lower, Pointwise) and not params:
        return _elementwise(op, arrays)
    if isinstance(op.lower, Reduction):
        return _reduction(op, arrays[0], **params)
    if "counter" in op.inputs:
        return _random(op, arrays, params)
    if op is resample_op:
        return _resampled(arrays[0], **params)
    return general(op, arrays, params)


# -- one kernel


class Single:
    """A graph of which one kernel computes the only output."""

    def __init__(self, program: Program, use: KernelLaunch) -> None:
        graph = program.lowered.graph
        self.program = program  # it keeps the code alive
        self.function = program.code.address(program.code.function(use.kernel, ()))
        self.kernel = use.kernel
        self.names = use.kernel.sizes
        self.weight = max(len(use.group.nodes), 1)
        position = {node: k for k, node in enumerate((*graph.inputs, *graph.outputs))}
        self.constants = [n.params["value"] for n in use.owners if n.op is CONSTANT]
        position |= {
            n: len(position) + k
            for k, n in enumerate(o for o in use.owners if o.op is CONSTANT)
        }
        self.order = [position[node] for node in use.owners]
        self.dtype = graph.outputs[0].dtype.np
        self.shape = graph.outputs[0].shape
        self.assumptions = list(graph.sizes.assumptions.values())

    def __call__(
        self, arrays: Sequence[ndarray], sizes: dict[str, int], shape: tuple[int, ...]
    ) -> ndarray | None:
        """The output for contiguous arrays of the graph's inputs' shapes."""
        kernel = self.kernel
        if not holds(self.assumptions, sizes):
            return None
        known = sizes | {k: evaluate(n, sizes) for k, n in kernel.given}
        if any(evaluate(n, known) <= 0 for n in kernel.positive):
            return None
        out = new_output(shape, self.dtype)
        memory = [*arrays, out, *self.constants]
        table = np.array([address(memory[k]) for k in self.order], np.int64)
        numbers = np.array([*[known[name] for name in self.names], 0], np.int64)
        count = math.prod(evaluate(n, known) for _, n in kernel.parallel)
        pointers = address(table), address(numbers)
        operations = max(a.size for a in memory) * self.weight
        grain = grain_of(count, operations, COST.loops.grain)
        fields = self.function, *pointers, count, grain, driver().iterations
        row = np.array([0, *fields, 0, 0], np.int64)  # it lives until the call is over
        driver().run(address(row), 0, 1)
        return None if numbers[-1] else out


def holds(assumptions: Sequence[Any], sizes: dict[str, int]) -> bool:
    """Whether the assumptions that a kernel was made with hold for these sizes."""
    return all(assumption.holds(sizes) for assumption in assumptions)


class Several:
    """A graph of several kernels, or of one that needs memory of its own."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.shape = program.lowered.graph.outputs[0].shape
        self.assumptions = list(program.lowered.graph.sizes.assumptions.values())

    def __call__(
        self, arrays: Sequence[ndarray], sizes: dict[str, int], shape: tuple[int, ...]
    ) -> ndarray | None:
        if not holds(self.assumptions, sizes):
            return None
        (out,), _ = self.program.run(arrays)
        return out.reshape(shape)


def _program(graph: Graph) -> Single | Several | None:
    """Compile a graph; None if it would call NumPy all the same."""
    try:
        program = compiled(graph, passes=(*TENSOR_PASSES, *KERNEL_PASSES))
    except WeftError:
        return None
    launches = [s for s in program.lowered.steps if isinstance(s, KernelLaunch)]
    if len(launches) < len(program.lowered.steps):
        return None
    ends = {*program.lowered.graph.inputs, *program.lowered.graph.outputs}
    used = [n for step in launches for n in step.owners if n.op is not CONSTANT]
    alone = len(launches) == 1 and ends.issuperset(used)
    return Single(program, launches[0]) if alone else Several(program)


# -- element-wise


def _elementwise(op: Op, arrays: Sequence[Any]) -> ndarray | None:
    """One output element for each element of the largest array."""
    large = max((a for a in arrays if type(a) is ndarray), key=lambda a: a.size)
    order = _order_in_memory(large)
    if order is not None and all(map(functools.partial(_same_layout, large), arrays)):
        feeds = [a.transpose(order) if type(a) is ndarray else a for a in arrays]
        out = _elementwise(op, feeds)
        return None if out is None else out.transpose(np.argsort(order))
    like = [a.dtype for a in arrays if type(a) is ndarray][-1]  # of Python's numbers
    patterns, feeds = "", []
    for a in arrays:
        pattern, feed = _pattern(a, large, like, op.bulk < CHEAP)
        if not pattern:
            return None
        patterns += pattern
        feeds.append(feed)
    rows = {a.size for a, p in zip(feeds, patterns, strict=True) if p == "r"}
    if len(rows) > 1 or "f" not in patterns:
        return None
    codes = "".join(a.dtype.char for a in feeds)
    program = _elementwise_program(op, codes, patterns, config.strict_ieee)
    if program is None:
        return None
    m = rows.pop() if rows else 1
    shape = (-1, m) if "r" in patterns else (-1,)
    pairs = zip(feeds, patterns, strict=True)
    feeds = [a.reshape(shape) if p == "f" else a for a, p in pairs]
    return program(feeds, {"N": large.size // m, "M": m}, large.shape)


def _order_in_memory(a: ndarray) -> tuple[int, ...] | None:
    """The order of axes that makes an array contiguous, if it is not."""
    if a.flags.c_contiguous:
        return None
    order = tuple(sorted(range(a.ndim), key=lambda d: -a.strides[d]))
    return order if a.transpose(order).flags.c_contiguous else None


def _same_layout(large: ndarray, a: Any) -> bool:
    """Whether an argument is a number, or an array of another's shape and layout."""
    if type(a) is not ndarray:
        return True
    return a.shape == large.shape and a.strides == large.strides


def _pattern(a: Any, large: ndarray, like: Any, copied: bool) -> tuple[str, Any]:
    """The pattern of an argument, and its array: (f)ull, a (r)ow, or a (s)ingle number.

    An argument that is not contiguous may be ``copied``, so that its layout changes no
    bit; arithmetic, which NumPy rounds in the same way, is left to NumPy instead.
    """
    if type(a) is not ndarray:
        return ("s", np.asarray(a, like)) if like.char in "fd" else ("", None)
    whole = a.shape == large.shape
    a = _unrepeated(a)
    if a.dtype.char not in _CODES or not (copied or a.flags.c_contiguous):
        return "", None
    a = np.asarray(a, order="C")
    if a.ndim == 0:
        return "s", a
    if whole and a.ndim == large.ndim:
        return "f", a
    if a.shape == large.shape[large.ndim - a.ndim :] and a.ndim <= large.ndim:
        return "r", a.reshape(-1)
    return "", None


def _unrepeated(a: ndarray) -> ndarray:
    """An array without the leading axes along which it is broadcast."""
    count = 0
    while count < a.ndim and a.strides[count] == 0 and a.shape[count]:
        count += 1
    return a[(0,) * count + (...,)] if count else a


@functools.lru_cache(PROGRAMS)
def _elementwise_program(
    op: Op, codes: str, patterns: str, strict: bool
) -> Single | Several | None:
    builder = Builder(op.name)
    n, m = (builder.sizes.symbol(name, HINT) for name in "NM")
    whole = (n, m) if "r" in patterns else (n,)
    shapes: dict[str, tuple[Any, ...]] = {"f": whole, "r": (m,), "s": ()}
    args: list[Any] = []
    for k, (code, pattern) in enumerate(zip(codes, patterns, strict=True)):
        x = builder.input(TensorType(shapes[pattern], dtypes.of_code(code)), f"x{k}")
        if pattern != "f":
            x = builder.add(_EXPAND, (x,), {"shape": whole})
        args.append(x)
    return _program(builder.finish([builder.add(op, tuple(args), {})]))


# -- reductions


def _reduction(
    op: Op, x: ndarray, *, dim: tuple[int, ...], keepdim: bool
) -> ndarray | None:
    if x.dtype.char not in "fd":
        return None
    x = np.asarray(x, order="C")
    kinds, sizes = _runs(x.shape, dim)
    kept = [1 if d in dim else n for d, n in enumerate(x.shape)]
    shape = tuple(kept if keepdim else [n for d, n in enumerate(kept) if d not in dim])
    if kinds == "r":
        return _whole(op, x.reshape(-1), shape)
    out = None
    if len(kinds) <= 4 and kinds[-1:] == "r":
        out = _reduced(op, x, kinds, sizes, shape)
    if out is None:  # NumPy sums rows at the bandwidth of memory
        out = op.eval(x, dim=dim, keepdim=keepdim)
    return out


def _runs(shape: tuple[int, ...], dim: tuple[int, ...]) -> tuple[str, list[int]]:
    """Neighbouring axes that are all kept (k) or all reduced (r), merged."""
    axes = [("r" if d in dim else "k", n) for d, n in enumerate(shape) if n != 1]
    runs = [(k, [n for _, n in g]) for k, g in itertools.groupby(axes, lambda a: a[0])]
    return "".join(k for k, _ in runs), [math.prod(found) for _, found in runs]


def _reduced(
    op: Op, x: ndarray, kinds: str, sizes: list[int], shape: tuple[int, ...]
) -> ndarray | None:
    program = _reduction_program(op, x.dtype.char, kinds)
    if program is None:
        return None
    known = {f"N{d}": n for d, n in enumerate(sizes)}
    return program([x.reshape(sizes)], known, shape)


@functools.lru_cache(PROGRAMS)
def _reduction_program(op: Op, code: str, kinds: str) -> Single | Several | None:
    builder = Builder(op.name)
    shape = tuple(builder.sizes.symbol(f"N{d}", HINT) for d in range(len(kinds)))
    x = builder.input(TensorType(shape, dtypes.of_code(code)), "x")
    dim = tuple(d for d, kind in enumerate(kinds) if kind == "r")
    out = builder.add(op, (x,), {"dim": dim, "keepdim": False})
    return _program(builder.finish([out]))


def _whole(op: Op, x: ndarray, shape: tuple[int, ...]) -> ndarray | None:
    """A full reduction: of chunks that threads share, then of their results."""
    rows = x.size // CHUNK
    head = x[: rows * CHUNK]
    chunks = _reduced(op, head, "kr", [rows, CHUNK], (rows,)) if rows else None
    if chunks is None:
        return None
    wide = np.concatenate([chunks, x[rows * CHUNK :]]).astype(np.float64)
    total = op.eval(wide, dim=(0,), keepdim=False)
    return np.asarray(total, x.dtype).reshape(shape)


# -- random numbers


def _random(op: Op, state: Sequence[Any], params: dict[str, Any]) -> ndarray | None:
    """As many random numbers as a shape has elements."""
    options = {k: v for k, v in params.items() if k != "shape"}
    program = _random_program(op, tuple(options.items()))
    if program is None:
        return None
    n = math.prod(params["shape"])
    feeds = [np.asarray(one, np.int64) for one in state]
    return program(feeds, {"N": n}, params["shape"])


@functools.lru_cache(PROGRAMS)
def _random_program(op: Op, options: tuple[Any, ...]) -> Single | Several | None:
    builder = Builder(op.name)
    shape = (builder.sizes.symbol("N", HINT),)
    state = [builder.input(TensorType((), dtypes.int64), name) for name in op.inputs]
    out = builder.add(op, tuple(state), {"shape": shape, **dict(options)})
    return _program(builder.finish([out]))


# -- resampling


def _resampled(x: ndarray, *, taps: Any, dim: int) -> ndarray | None:
    """A resampled axis of a fixed size, with the axes before and after merged."""
    if x.dtype.char not in "fd":
        return None
    x = np.asarray(x, order="C")
    before, size, after = x.shape[:dim], x.shape[dim], x.shape[dim + 1 :]
    program = _resample_program(x.dtype.char, taps)
    if program is None or size != taps.size[1]:
        return None
    n, m = math.prod(before), math.prod(after)
    shape = (*before, taps.size[0], *after)
    return program([x.reshape(n, size, m)], {"N": n, "M": m}, shape)


@functools.lru_cache(PROGRAMS)
def _resample_program(code: str, taps: Any) -> Single | Several | None:
    builder = Builder("resample")
    n, m = (builder.sizes.symbol(name, HINT) for name in "NM")
    kind = TensorType((n, taps.size[1], m), dtypes.of_code(code))
    x = builder.input(kind, "x")
    out = builder.add(resample_op, (x,), {"taps": taps, "dim": 1})
    return _program(builder.finish([out]))


# -- others


def general(op: Op, arrays: Sequence[Any], params: dict[str, Any]) -> ndarray | None:
    """The result of a kernel for these ranks and parameters, with symbolic sizes."""
    if not all(type(a) is ndarray for a in arrays):
        return None
    arrays = [np.asarray(a, order="C") for a in arrays]
    sizes, shapes = named_sizes([a.shape for a in arrays])
    codes = "".join(a.dtype.char for a in arrays)
    if not all(map(is_plain, params.values())):
        return None
    program = _general_program(op, codes, shapes, tuple(params.items()))
    if program is None:
        return None
    return program(arrays, sizes, resolve(program.shape, sizes))


def is_plain(value: Any) -> bool:
    """Whether a parameter is hashed and compared by its value."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, dtypes.DType))


@functools.lru_cache(PROGRAMS)
def _general_program(
    op: Op, codes: str, shapes: Any, params: tuple[Any, ...]
) -> Single | Several | None:
    builder = Builder(op.name)
    named = sorted({name for shape in shapes for name in shape if name != 1})
    sizes = {n: builder.sizes.symbol(n, HINT + k) for k, n in enumerate(named)}
    args = []
    for k, (code, shape) in enumerate(zip(codes, shapes, strict=True)):
        axes = tuple(sizes.get(n, n) for n in shape)
        args.append(builder.input(TensorType(axes, dtypes.of_code(code)), f"x{k}"))
    try:
        out = builder.add(op, tuple(args), dict(params))
    except WeftError:  # the parameters fit one size alone
        return None
    return _program(builder.finish([out]))


# -- compositions


class Composed(NamedTuple):
    """A composition as a function of tensors with symbolic sizes."""

    function: GraphFunction
    assumptions: list[Any]


def fused(
    name: str, fn: Callable[..., Any], tensors: Sequence[Any], key: Hashable
) -> Any:
    """A composition's result from kernels of its own, or None if it has none."""
    inputs = [t for t in tensors if t is not None]
    sizes, shapes = named_sizes([t.shape for t in inputs])
    kinds = tuple(None if t is None else t.dtype for t in tensors)
    recipe = name, key, kinds, shapes, config.strict_ieee
    program = None
    for hints in (hints_of(sizes.values()), tuple(sizes.values())):
        if (*recipe, hints) not in _COMPOSED:
            while len(_COMPOSED) >= PROGRAMS:
                _COMPOSED.pop(next(iter(_COMPOSED)))
            _COMPOSED[*recipe, hints] = composed(name, fn, tensors, shapes, hints)
        program = _COMPOSED[*recipe, hints]
        if program is None or holds(program.assumptions, sizes):
            break
    if program is None:
        return None
    outputs = program.function(inputs)
    return outputs if len(outputs) > 1 else outputs[0]


def hints_of(sizes: Iterable[int]) -> tuple[int, ...]:
    """Hints for a program that serves all sizes of the same magnitude.

    The program depends on its hints (how sums are split), so they must not be the sizes
    of the first call.
    """
    powers = [8 ** ((n.bit_length() - 1) // 3) for n in sizes]
    return tuple([6 * power + k for k, power in enumerate(powers)])


_COMPOSED: dict[Any, Composed | None] = {}


def named_sizes(shapes: Sequence[tuple[int, ...]]) -> tuple[dict[str, int], Any]:
    """The sizes by name, and the shapes with a name for each size but 1."""
    sizes = dict.fromkeys(n for shape in shapes for n in shape if n != 1)
    names = {n: f"N{k}" for k, n in enumerate(sizes)}
    named = tuple(tuple(names.get(n, 1) for n in shape) for shape in shapes)
    return {name: n for n, name in names.items()}, named


def composed(
    name: str,
    fn: Callable[..., Any],
    tensors: Sequence[Any],
    shapes: Any,
    hints: Sequence[int],
) -> Composed | None:
    """Capture and compile a composition for tensors of some shapes.

    Named sizes, N0 and so on, are symbolic; they are ``hints`` during the capture.
    """
    sizes = {f"N{k}": n for k, n in enumerate(hints)}
    known = iter([[sizes.get(n, n) for n in shape] for shape in shapes])
    tensors = [None if t is None else _like(t, next(known)) for t in tensors]
    labels = labels_of(fn, tensors, {})
    dynamic = {
        label: {d: n for d, n in enumerate(shape) if type(n) is str}
        for label, shape in zip(labels, shapes, strict=True)
    }
    before = set_recording(True)
    try:
        graph = capture(fn, *tensors, dynamic=dynamic, name=name).graph
        return Composed(GraphFunction(graph), list(graph.sizes.assumptions.values()))
    except WeftError:
        return None
    finally:
        set_recording(before)


def _like(tensor: Any, shape: Sequence[int]) -> Tensor:
    """A tensor of another shape for the capture; it holds a single number."""
    twin = Tensor(np.broadcast_to(np.zeros((), tensor._data.dtype), shape))
    twin._node = tensor._node
    return twin

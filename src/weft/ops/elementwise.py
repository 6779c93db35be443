"""Builders for element-wise operators: promotion, broadcasting, and the fast path.

    exp = unary("exp", np.exp, d=lambda out: out, doc=...)

makes the record and the public function in one statement. ``d`` is the partial
derivative of the output by each input; both derivative rules follow from it:
``g * d`` back and ``t * d`` forward. A product that would be 0 times infinity
is 0 (see ``absorb``), so an element that nothing came back to stays exactly
zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from math import isnan
from typing import Any

import numpy as np

from weft import dtype as dtypes
from weft import late
from weft.config import config
from weft.core import fast_path
from weft.core.device import cpu
from weft.core.dispatch import bind
from weft.core.eager_kernels import CHEAP, LARGE
from weft.core.fast_path import NO_PARAMS
from weft.core.lowering import Pointwise
from weft.core.mode import QUIET, mode
from weft.core.number import Number
from weft.core.op import (
    Op,
    Sample,
    TensorType,
    define,
    rule_names,
    unregister,
)
from weft.core.size import Size, hinted, is_one, same_shape
from weft.core.tensor import Tensor
from weft.dtype import INEXACT_CODES, DType, default_dtype, promote_types
from weft.dtype_info import wrapped
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops.inplace import write_out
from weft.ops.public import METHOD, UFUNCS, Names, declare

ndarray = np.ndarray
new = object.__new__
NATIVE_CODES = "fdeFD"  # floating types whose Python-number arithmetic NumPy keeps

Public = Callable[..., Tensor]


# -- shapes and types


def broadcast_shapes(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of several, or an error naming the axis that differs."""
    ndim = max(map(len, shapes), default=0)
    out = []
    for axis in range(-ndim, 0):
        sizes = {s[axis] for s in shapes if -axis <= len(s) and not is_one(s[axis])}
        if len(sizes) > 1 and len(sizes := _unequal(sizes)) > 1:
            listed = " and ".join(str(tuple(s)) for s in shapes)
            raise unfit(
                f"{name}: cannot broadcast shapes {listed}: axis {axis} has sizes "
                f"{' and '.join(sorted(map(str, sizes)))}; expected equal sizes or 1",
                sizes,
            )
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)


def unfit(text: str, sizes: Iterable[Any]) -> BaseException:
    """The error for shapes of which one cannot be broadcast to another.

    An open size that is 1 in the example would be, eagerly. The program must not handle
    an error that eagerly there is not: the capture is refused, and made again for these
    sizes alone.
    """
    if mode.capture is not None and any(
        isinstance(n, Size) and hinted((n,)) == [1] for n in sizes
    ):
        return late.find("refusal")(f"{text}; an open size is 1 here")
    return ShapeError(text)


def _unequal(sizes: set[Any]) -> set[Any]:
    """The sizes that differ, which for symbolic ones is a question."""
    first, *rest = sorted(sizes, key=lambda n: isinstance(n, Size))
    return {first, *[n for n in rest if first != n]}


def elementwise_type(name: str, accepts: str, returns: str) -> Callable[..., Any]:
    """The type rule of an element-wise operator."""

    known: dict[DType, DType] = {}

    def rule(*types: Any, **params: Any) -> TensorType:
        tensors = [t for t in types if type(t) is TensorType]
        first = tensors[0]
        for t in tensors:
            if t is not first and t != first:
                _check_equal(name, tensors)
        dtype = first.dtype
        found = known.get(dtype)
        if found is None:
            check_accepts(name, accepts, dtype)
            found = known[dtype] = _returned(returns, dtype)
        return first if found is dtype else TensorType(first.shape, found)

    return rule


def _check_equal(name: str, tensors: list[TensorType]) -> None:
    """Refuse operands of several shapes or dtypes."""
    shape = tensors[0].shape
    for t in tensors[1:]:
        if t.shape != shape:
            broadcast_shapes(name, shape, t.shape)
            raise ShapeError(
                f"{name}: expected equal shapes, got {shape} and {t.shape}"
            )
    kinds = {t.dtype for t in tensors}
    if len(kinds) > 1:
        listed = " and ".join(sorted(d.name for d in kinds))
        raise DTypeError(f"{name}: expected equal dtypes, got {listed}")


def _returned(returns: str, dtype: DType) -> DType:
    if returns == "bool":
        return dtypes.bool_
    return dtype.to_real() if returns == "real" else dtype


_ACCEPTS: dict[str, tuple[Callable[[DType], bool], str]] = {
    "all": (lambda d: True, "any"),
    "number": (lambda d: d.category != dtypes.BOOL, "a non-boolean"),
    "real": (lambda d: not d.is_complex, "a real"),
    "real number": (
        lambda d: d.category in (dtypes.INT, dtypes.FLOAT),
        "a real, non-boolean",
    ),
    "integer": (lambda d: d.category == dtypes.INT, "an integer"),
    "ordered": (lambda d: not d.is_complex, "a real"),
    "integral": (lambda d: d.category <= dtypes.INT, "an integer or boolean"),
    "inexact": (lambda d: d.is_inexact, "a floating-point or complex"),
    "floating": (lambda d: d.is_floating_point, "a floating-point"),
}


def check_accepts(name: str, accepts: str, dtype: DType) -> None:
    """Refuse a dtype that the operator is not defined for."""
    test, wanted = _ACCEPTS[accepts]
    if not test(dtype):
        raise DTypeError(f"{name}: expected {wanted} dtype, got {dtype.name}")


def as_operand(name: str, value: Any) -> Any:
    """A tensor or Python number from the user's argument."""
    if isinstance(value, (Tensor, int, float, complex, Size)):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, (np.ndarray, np.generic)):
        from weft.ops.creation import as_tensor

        return as_tensor(value)
    raise DTypeError(
        f"{name}: expected a tensor or a number, got {type(value).__name__}"
    )


def result_type(*values: Any) -> DType:
    """The dtype that tensors and Python numbers have in common.

    Tensors with dimensions come before 0-d tensors, and those before Python
    numbers: a lower group counts only if it is of a higher category.

    >>> weft.result_type(weft.ones(2, dtype=weft.float16), 1.5)
    weft.float16
    """
    groups: list[DType | None] = [None, None, None]
    for value in values:
        if isinstance(value, Tensor):
            group, dtype = (0 if value.ndim else 1), value.dtype
        elif isinstance(value, DType):
            group, dtype = 0, value
        else:
            group, dtype = 2, dtypes.scalar_dtype(value)
        before = groups[group]
        groups[group] = dtype if before is None else promote_types(before, dtype)
    result: DType | None = None
    for other in groups:
        if other is None:
            continue
        if result is None:
            result = other
        elif other.category > result.category:
            result = _raise_category(result, other)
    if result is None:
        raise ArgumentError("result_type: expected at least one tensor or number")
    return result


def _raise_category(low: DType, high: DType) -> DType:
    if high.is_complex and low.is_floating_point:
        return low.to_complex()
    return high


def prepare(name: str, accepts: str, *values: Any) -> tuple[Any, ...]:
    """Operands of one dtype and one shape (Python numbers may stay numbers)."""
    if _agree(accepts, values):
        return values
    operands = [as_operand(name, v) for v in values]
    dtype = result_type(*operands)
    if accepts in ("inexact", "floating") and not dtype.is_inexact:
        dtype = default_dtype()
    check_accepts(name, accepts, dtype)
    tensors = [x for x in operands if isinstance(x, Tensor)]
    shape: tuple[Any, ...] = tensors[0].shape if tensors else ()
    if any(not same_shape(x.shape, shape) for x in tensors):
        shape = broadcast_shapes(name, *(x.shape for x in tensors))
    plain = dtype.np.char in NATIVE_CODES and bool(tensors)
    device = device_of(tensors)
    if not plain and any(x._part is not x for x in tensors):
        # numbers beside what processes share out: expanded, they are known for numbers
        operands = [
            x if isinstance(x, Tensor) else _fit(x, dtype, (), False, device)
            for x in operands
        ]
    return tuple([_fit(x, dtype, shape, plain, device) for x in operands])


def device_of(tensors: list[Tensor]) -> Any:
    """The device for constants that are used with these; numbers have none."""
    return max((t.device for t in tensors), key=lambda d: d is not cpu, default=None)


def _agree(accepts: str, values: tuple[Any, ...]) -> bool:
    """Whether the usual operands, floating tensors and numbers, fit as they are."""
    dtype = shape = None
    for x in values:
        if isinstance(x, Tensor):
            if dtype is None:
                dtype, shape = x.dtype, x.shape
            elif x.dtype is not dtype or not same_shape(x.shape, shape):  # type: ignore[arg-type]
                return False
        elif type(x) is not float and type(x) is not int:
            return False
    return dtype is not None and dtype.np.char in _fast_codes(accepts, NATIVE_CODES)


def _fit(x: Any, dtype: DType, shape: tuple[int, ...], plain: bool, device: Any) -> Any:
    if type(x) is Number:
        x = x.tensor
    if not isinstance(x, Tensor):
        if plain:
            return x
        from weft.ops.creation import full

        if isinstance(x, Size) and dtype.category == dtypes.INT:
            # brought into range when known
            x = full(shape, x, dtype=dtypes.int64, device=device)
        else:
            return full(shape, wrapped(x, dtype), dtype=dtype, device=device)
    if x.dtype is not dtype:
        from weft.ops.copies import cast

        x = cast(x, dtype)
    if same_shape(x.shape, shape):
        return x
    from weft.ops.broadcasting import expand

    return expand(x, shape)


# -- 0 * infinity


def _absorb_eval(g: Any, d: Any) -> Any:
    """The product, but 0 where one factor is 0 and the other not finite."""
    r = g * d
    if r.dtype.char in "fd" and type(r) is ndarray:
        flat = r.ravel("K")
        if not isnan(flat.dot(flat)):  # squares add up to NaN only if one is NaN
            return r
    elif not np.isnan(r).any():
        return r
    if config.strict_ieee:
        return r
    g, d = np.broadcast_arrays(g, d)
    lost = np.isnan(r) & ((g == 0) | ((d == 0) & np.isinf(g)))
    return np.where(lost, np.zeros((), r.dtype), r)


# -- rules from partial derivatives


def conj(value: Any) -> Any:
    """The complex conjugate; a real value is its own."""
    if type(value) is Tensor and value._data.dtype.char not in "FD":
        return value
    if isinstance(value, Tensor):
        from weft.ops.complex_numbers import conjugated

        return conjugated(value) if value.dtype.is_complex else value
    return value.conjugate()


def _vjp_from(d: Callable[..., Any]) -> Callable[..., Any]:
    def rule(g: Any, *values: Any) -> Any:
        return times_conj(g, d(*values))

    rule.names = rule_names(d)  # type: ignore[attr-defined]
    return rule


def _jvp_from(d: Callable[..., Any]) -> Callable[..., Any]:
    def rule(t: Any, *values: Any) -> Any:
        return times(t, d(*values))

    rule.names = rule_names(d)  # type: ignore[attr-defined]
    return rule


def times(g: Any, d: Any) -> Any:
    """``absorb(g, d)`` where ``d`` may be a number (or one of its own shape)."""
    if type(d) is Tensor is type(g) and mode.state == QUIET:
        x, y = g._data, d._data
        if x.dtype is y.dtype and x.size < CHEAP:
            return Tensor(np.asarray(_absorb_eval(x, y)))
    if not isinstance(d, Tensor):
        return g * d
    if isinstance(g, Tensor) and g.dtype is not d.dtype:
        return absorb(*prepare("absorb", "all", g, d))
    return absorb(g, d)


def times_conj(g: Any, d: Any) -> Any:
    """``times(g, conj(d))``: what a vjp does with a partial derivative.

    The case that backward runs through most, small real arrays without a NaN,
    is spelt out.
    """
    if type(d) is Tensor is type(g) and mode.state == QUIET:
        x, y = g._data, d._data
        if x.dtype is y.dtype and x.dtype.char in "fd" and x.size < CHEAP:
            r = x * y
            if type(r) is ndarray:
                flat = r.ravel("K")
                if not isnan(flat.dot(flat)):
                    out = new(Tensor)
                    out._data = r
                    return out
    return times(g, conj(d))


# -- batching


def elementwise_batch(
    op: Op, size: int, args: Any, batched: Any, params: dict[str, Any]
) -> Any:
    """Give unbatched tensors the batch axis, then apply the operator."""
    from weft.ops.broadcasting import expand

    full = [
        expand(a, (size, *a.shape)) if isinstance(a, Tensor) and not b else a
        for a, b in zip(args, batched, strict=True)
    ]
    return bind(op, tuple(full), params)


# -- samples


def samples_in(*domains: tuple[float, float]) -> Callable[..., Any]:
    """Sample arguments, one interval (low, high) an input."""

    def samples(rng: np.random.Generator) -> Any:
        for shape in ((3, 4), (), (0, 2), (5,)):
            yield Sample(tuple(rng.uniform(lo, hi, shape) for lo, hi in domains))

    return samples


def integer_samples(count: int, low: int, high: int) -> Callable[..., Any]:
    """Sample arguments of integers in [low, high)."""

    def samples(rng: np.random.Generator) -> Any:
        for shape in ((3, 4), (), (0, 2)):
            yield Sample(tuple(rng.integers(low, high, shape) for _ in range(count)))

    return samples


# -- the builders


@functools.cache
def _fast_codes(accepts: str, codes: str) -> str:
    """The dtypes, by code, that an operator takes without any conversion."""
    kept = [c for c in codes if _ACCEPTS[accepts][0](dtypes.of_code(c))]
    return "".join(kept)


def _finish(
    fn: Public, op: Op, doc: str, accepts: str, public: Names | None, given: str
) -> Public:
    """Name and document an operator's function, and make it public."""
    fn.__name__ = fn.__qualname__ = op.name
    fn.__doc__ = doc
    fn.op = op  # type: ignore[attr-defined]
    op.function = fn
    if public is not None and public.exported:
        fn.__module__ = "weft"  # where pickles find it
    if public is not None:
        whole = accepts in ("integer", "integral")
        try:
            declare(fn, op.name, public, (given, "int64" if whole else "float32"))
        except ArgumentError:
            unregister(op.name)
            raise
        if isinstance(op.eval, np.ufunc):
            UFUNCS[op.eval] = op.name
    return fn


def unary(
    name: str,
    eval: Callable[..., Any],
    *,
    doc: str,
    reference: Callable[..., Any],
    d: Callable[..., Any] | None = None,
    vjp: Any = None,
    jvp: Any = None,
    linear: bool = False,
    accepts: str = "inexact",
    returns: str = "same",
    domain: tuple[float, float] = (-2.0, 2.0),
    samples: Callable[..., Any] | None = None,
    bulk: int = 0,
    lower: Any = None,
    public: Names | None = METHOD,
    **facts: Any,
) -> Public:
    """Declare an element-wise operator of one input and its public function.

    ``lower`` is how compiled code computes it (``core.lowering``); without it the Loop
    IR's scalar function of the same name is used, or ``eval`` if there is none.
    ``public`` says where the function is found (``ops.public``). The other keywords
    are ``Facts``.
    """
    if d is not None:
        vjp, jvp = {"x": _vjp_from(d)}, {"x": _jvp_from(d)}
    bulk = bulk or (LARGE if accepts in ("inexact", "floating") else CHEAP)
    op = define(
        name,
        inputs="x",
        eval=eval,
        type=elementwise_type(name, accepts, returns),
        vjp=vjp,
        jvp=jvp,
        linear=linear,
        batch=elementwise_batch,
        lower=lower or Pointwise(name),
        bulk=bulk,
        samples=samples or samples_in(domain),
        reference=reference,
        elementwise=True,
        returns=returns,
        **facts,
    )
    promotes = accepts in ("inexact", "floating")

    def slow(input: Any, out: Any = None) -> Tensor:
        if out is not None:
            return write_out(out, fn(input), name)
        if not promotes and isinstance(input, Tensor):
            check_accepts(name, accepts, input.dtype)
            return bind(op, (input,), {})
        return bind(op, prepare(name, accepts, input), {})

    fn = fast_path.unary(op, _fast_codes(accepts, INEXACT_CODES), slow)
    return _finish(fn, op, doc, accepts, public, "")


def binary(
    name: str,
    eval: Callable[..., Any],
    *,
    doc: str,
    reference: Callable[..., Any],
    d: dict[str, Callable[..., Any]] | None = None,
    vjp: Any = None,
    jvp: Any = None,
    accepts: str = "all",
    returns: str = "same",
    domain: tuple[tuple[float, float], tuple[float, float]] = ((-2.0, 2.0),) * 2,
    samples: Callable[..., Any] | None = None,
    bulk: int = CHEAP,
    refuses: dict[str, float] | None = None,
    lower: Any = None,
    public: Names | None = METHOD,
    numbers: str = "inexact",
    **facts: Any,
) -> Public:
    """Declare an element-wise operator of two inputs; see ``unary``."""
    if d is not None:
        vjp = {k: _vjp_from(f) for k, f in d.items()}
        jvp = {k: _jvp_from(f) for k, f in d.items()}
    op = define(
        name,
        inputs="x y",
        eval=eval,
        type=elementwise_type(name, accepts, returns),
        vjp=vjp,
        jvp=jvp,
        batch=elementwise_batch,
        lower=lower or Pointwise(name),
        bulk=bulk,
        samples=samples or samples_in(*domain),
        reference=reference,
        refuses=refuses,
        elementwise=True,
        returns=returns,
        numbers=numbers,
        **facts,
    )

    def slow(input: Any, other: Any, out: Any = None) -> Tensor:
        if out is not None:
            return write_out(out, fn(input, other), name)
        return bind(op, prepare(name, accepts, input, other), NO_PARAMS)

    codes = _fast_codes(accepts, NATIVE_CODES)
    fn = fast_path.binary(op, codes, slow)
    FORMS[fn] = lambda slow: fast_path.binary(op, codes, slow)
    return _finish(fn, op, doc, accepts, public, "x")


# By function of two operands: the same one with another way for unusual operands.
FORMS: dict[Any, Callable[[Callable[..., Any]], Callable[..., Any]]] = {}


def as_operator(fn: Callable[..., Any], reflected: str) -> Callable[..., Any]:
    """A function of two operands as Python's operator.

    An operand of a foreign class that has the ``reflected`` method is left to that.
    """

    def slow(input: Any, other: Any, *more: Any) -> Any:
        if not isinstance(other, _OPERANDS):
            theirs = getattr(type(other), reflected, None)
            if theirs is not getattr(object, reflected, None):
                return NotImplemented
        return fn(input, other, *more)

    operator = FORMS[fn](slow)
    operator.__name__ = fn.__name__
    return operator


_OPERANDS = (Tensor, int, float, complex, Size, np.ndarray, np.generic)


absorb = binary(
    "absorb",
    _absorb_eval,
    vjp={"x": lambda g, y: times_conj(g, y), "y": lambda g, x: times_conj(g, x)},
    jvp={"x": lambda t, y: times(t, y), "y": lambda t, x: times(t, x)},
    reference=lambda x, y: x * y,
    public=None,
    doc="""The product of two tensors, where zero times infinity is zero.

    Derivative rules use it, so that an element nothing came back to adds
    exactly zero even where its local derivative is infinite.

    >>> absorb = weft.ops.elementwise.absorb
    >>> absorb(weft.tensor([0.0, 1.0]), weft.tensor([float("inf"), 2.0]))
    tensor([0., 2.])
    """,
)

"""Lowering rules of operator records: how one element comes about.

    Pointwise      the element is a scalar function of the inputs' elements there
    View           the element is the input's element at another index
    Reduction      the element combines many of the input's
    Filled         the element is a function of its index
    Element        the element is an expression over elements found anywhere
    Scatter        elements are combined into others, one after the other
    Running        the element follows from the one before it and the inputs' there
    Fold           the element is what a loop ends with
    Rowwise        a line of elements comes about as a whole
    OwnLoops       the record brings the loops of its results along
    Varied         one of these, as shapes and parameters decide
    Composed       the operator is a program of others
    Library        a kernel of a library computes the result as a whole

A scalar function is an opcode of the Loop IR, which the target's emitter knows. It has
the name of the element-wise operator that it computes, whose record tells its facts;
``random_word``, ``random_unit``, ``random_below``, ``sort_key`` and ``sort_digit`` are
no operators. An operator from outside is ``Composed`` of operators that have opcodes.

An operator without any of these is called as a whole.

Rules of all but the first four write expressions with a builder, here called ``k``.
``x[index]`` is an input's element; an index may be counted out or come from
``k.within(value, size)``, which makes a checked index of a value. Numbers known before
are ``k.table(array)[index]``, and ``k.listed(array, index, size)`` an index from such a
list; ``k.call("add", a, b)`` is a scalar function, ``k.number(2.0)`` a number,
``k.at(index)`` an index as a value, ``k.flat(index)`` a position in row-major order and
``k.choice(index, bound, low, high)`` the value ``low`` where the index is below the
bound, and ``high`` elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import dtype as dtypes
from weft.core.record import Record
from weft.dtype import DType

Index = tuple[Any, ...]  # numbers or symbolic sizes, one a dimension


class Pointwise(Record):
    """``scalar`` names the function; its parameters are the record's own."""

    scalar: str


class View(Record):
    """``at(out, x_shape, **params)`` is the index of the input's element.

    ``in_order`` says that axes stay in the order of their strides.
    """

    at: Callable[..., Index]
    in_order: bool = False


class Reduction(Record):
    """``combine`` names the operator that elements are combined with.

    ``splits`` says that partial results are reduced by the same operator, whose
    parameters are ``dim``, a tuple of axes, and ``keepdim``.
    """

    combine: str
    splits: bool = False


class Filled(Record):
    """``value(out, **params)`` is a number, or a symbolic one, for each index."""

    value: Callable[..., Any]


class Element(Record):
    """``value(k, out, *inputs, **params)`` is an expression for each index.

    ``here(out, **params)`` says of each input at which one index it is read, with None
    for an index that a value gives; inputs that are read elsewhere too have None.
    """

    value: Callable[..., Any]
    here: Callable[..., tuple[Index | None, ...]] | None = None
    cheap: bool = True  # recomputed rather than kept
    quotients: bool = False  # neighbours read what is at the same ``i // 2``


class Scatter(Record):
    """``start(k, out, ...)``, into which updates are combined in order.

    ``domain(*inputs, **params)`` is the shape of the updates, ``update(k, at, ...)``
    each one's index and value. ``combine`` names a scalar function, or is nothing
    where the last update stays. ``shared(*inputs, **params)`` are pairs of axes of the
    output and of the domain along which every update stays at its index.
    """

    start: Callable[..., Any]
    domain: Callable[..., Index]
    update: Callable[..., tuple[Index, Any]]
    combine: str | None
    shared: Callable[..., tuple[tuple[int, int], ...]]


class Running(Record):
    """Along the axis ``dim``, ``step(k, at, states, *values)`` makes states of states.

    ``values`` are the inputs' elements there, ``start(k, *inputs)`` the first states;
    the element is the last of them.
    """

    step: Callable[..., tuple[Any, ...]]
    start: Callable[..., tuple[Any, ...]]


class Fold(Record):
    """``step(k, out, at, states, ...)`` over all ``at`` of a domain, in order.

    ``start(k, out, ...)`` are the first states, ``domain(*inputs, **params)`` is the
    shape that ``at`` runs over; ``end(k, out, states, ...)`` is the element.
    """

    domain: Callable[..., Index]
    start: Callable[..., tuple[Any, ...]]
    step: Callable[..., tuple[Any, ...]]
    end: Callable[..., Any]


class Rowwise(Record):
    """``routine`` names loops over a line of elements along the axis ``dim``."""

    routine: str


class OwnLoops(Record):
    """``build(scope, input_types, **params)`` is a kernel of the Loop IR.

    Its buffers are those of the inputs, then those of the outputs. Iterations of its
    parallel loops may run in any order.
    """

    build: Callable[..., Any]


Scan = (
    Running | Fold | Rowwise | OwnLoops
)  # loops with states, which nothing else joins


class Varied(Record):
    """``choose(*input_shapes, **params)`` is the lowering for these shapes, or None."""

    choose: Callable[..., Any]


class Composed(Record):
    """``calls(call, *inputs, **params)`` is a ``call(name, *inputs, **params)``.

    The inputs of a call are nodes, numbers and other calls.
    """

    calls: Callable[..., Any]


class Library(Record):
    """``family`` names a library of kernels, ``kind`` one of them.

    ``operands`` names the inputs of an operator that takes any number of them.
    ``composed`` is the same function of tensors, made of other operators: for targets
    whose library lacks it. With ``expands``, every target has it for what its library
    lacks.
    """

    family: str
    kind: str
    operands: tuple[str, ...] = ()
    composed: Callable[..., Any] | None = None
    expands: bool = False


def cast_element(k: Any, value: Any, dtype: DType) -> Any:
    """A value of a rule's expression in a dtype."""
    return value if value.dtype is dtype else k.call("cast", value, dtype=dtype)


def key_dtype(dtype: DType) -> DType:
    """The dtype of ``sort_key``: whole numbers in the order of those of a dtype."""
    return dtypes.int64 if dtype.itemsize == 8 else dtypes.int32


SAME = View(lambda out, x_shape: out, in_order=True)  # memory does not show


def permuted(out: Index, x_shape: Index, *, dims: tuple[int, ...]) -> Index:
    """The index that ``permute`` reads for an element."""
    found: list[Any] = [0] * len(dims)
    for position, dim in enumerate(dims):
        found[dim] = out[position]
    return tuple(found)


def expanded(out: Index, x_shape: Index, *, shape: Index) -> Index:
    """The index that ``expand`` reads for an element: zero in axes of size one."""
    lead = len(shape) - len(x_shape)
    pairs = zip(out[lead:], x_shape, shape[lead:], strict=True)
    return tuple(0 if _one(n) and not _one(m) else i for i, n, m in pairs)


def _one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def sliced(out: Index, x_shape: Index, *, index: tuple[Any, ...]) -> Index:
    """The index that a slice reads for an element."""
    from weft.core.size import slice_bounds

    x_index: list[Any] = []
    rest = list(out)
    for item in index:
        if item is None:
            rest.pop(0)
        elif isinstance(item, slice):
            start, _, step = slice_bounds(item, x_shape[len(x_index)])
            x_index.append(start + rest.pop(0) * step)
        else:
            size = x_shape[len(x_index)]
            x_index.append(size + item if isinstance(item, int) and item < 0 else item)
    return (*x_index, *rest)


def flipped(out: Index, x_shape: Index, *, dims: tuple[int, ...]) -> Index:
    """The index that ``flip`` reads for an element."""
    return tuple(
        n - 1 - i if d in dims else i
        for d, (i, n) in enumerate(zip(out, x_shape, strict=True))
    )


def reshaped(out: Index, x_shape: Index, *, shape: Index) -> Index:
    """The index that ``reshape`` reads for an element.

    Both shapes are cut into the smallest runs of axes of equal product; inside a
    run the index is flattened and unflattened, elsewhere it is the same.
    """
    from weft.core.size import same

    if _alike(x_shape, shape):
        return tuple(out)
    if any(isinstance(n, int) and n == 0 for n in x_shape):  # there are no elements
        return (0,) * len(x_shape)
    index: list[Any] = []
    i = j = 0
    while i < len(x_shape) or j < len(shape):
        a, b = i, j
        have: Any = 1
        want: Any = 1
        if i < len(x_shape):
            have, i = x_shape[i], i + 1
        if j < len(shape):
            want, j = shape[j], j + 1
        while not same(have, want):
            if i < len(x_shape) and (j == len(shape) or _smaller(have, want)):
                have, i = have * x_shape[i], i + 1
            elif j < len(shape):
                want, j = want * shape[j], j + 1
            else:  # equal for other reasons than equal factors
                return tuple(_divided(_flat(out, shape), x_shape))
        index += _divided(_flat(out[b:j], shape[b:j]), x_shape[a:i])
    return tuple(index)


def _alike(a: Index, b: Index) -> bool:
    """Whether two shapes are the same numbers, none of them 0."""
    if len(a) != len(b):
        return False
    for m, n in zip(a, b, strict=True):
        if type(m) is not int or type(n) is not int or m != n or m == 0:
            return False
    return True


def _smaller(a: Any, b: Any) -> bool:
    """Whether to take another axis on the left; a guess that only costs time."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    left = 0 if isinstance(a, int) else len(a.symbols)
    right = 0 if isinstance(b, int) else len(b.symbols)
    return left <= right


def _flat(index: Index, shape: Index) -> Any:
    total: Any = 0
    for i, n in zip(index, shape, strict=True):
        total = total * n + i
    return total


def _divided(flat: Any, shape: Index) -> list[Any]:
    """A flat position as one index an axis."""
    if len(shape) == 1:
        return [flat]
    index: list[Any] = []
    for n in reversed(shape[1:]):
        if _one(n):
            index.append(0)
            continue
        index.append(flat % n)
        flat = flat // n
    return [flat, *reversed(index)] if shape else []

"""Complex numbers: conjugates, polar forms, and views of and as their parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.mode import mode
from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.dtype import float32, float64
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops.creation import zeros_like
from weft.ops.elementwise import (
    Public,
    elementwise_batch,
    elementwise_type,
    prepare,
    samples_in,
    unary,
)
from weft.ops.elementwise import conj as conj_value
from weft.ops.public import public
from weft.ops.transcendental import cos, sin

conjugated: Public = unary(
    "conj",
    lambda x: np.conj(x) if np.iscomplexobj(x) else np.array(x),
    accepts="all",
    vjp={"x": lambda g: conj_value(g)},
    jvp={"x": lambda t: conj_value(t)},
    reference=lambda x: x.real - 1j * x.imag if np.iscomplexobj(x) else x,
    cost=0,
    exact=True,
    public=None,
    doc="""The complex conjugate.

    >>> weft.tensor([1 + 2j]).conj()
    tensor([1.-2.j])
    """,
)


@public(method=True)
def conj(input: Tensor) -> Tensor:
    """The complex conjugate, which shows later changes of ``input``.

    It cannot be changed itself: change ``input``, or a ``clone()`` of it. A real tensor
    is returned as it is.

    >>> x = weft.tensor([1 + 2j])
    >>> y = weft.conj(x)
    >>> x[0] = 3j
    >>> y
    tensor([0.-3.j])
    """
    if not input.dtype.is_complex:
        return input
    out = conjugated(input)
    if mode.capture is not None:
        mode.capture.note_conjugate(input, out)
    elif type(input) is Tensor and type(out) is Tensor:
        input.storage_record.add_conjugate(input._data, out)
    out.storage_record.conjugates = input.storage_record.conjugates + 1
    return out


@public(method=True, inplace="", ufuncs=("conjugate",), array_api="conj")
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate, in memory of its own.

    >>> weft.conj_physical(weft.tensor([1 + 2j]))
    tensor([1.-2.j])
    """
    return conjugated(input) if input.dtype.is_complex else input.clone()


def _complex_samples(rng: np.random.Generator) -> Any:
    for shape in ((3, 4), (), (0, 2)):
        yield Sample((rng.normal(size=shape) + 1j * rng.normal(size=shape),))


def _part_type(x: TensorType) -> TensorType:
    return TensorType(x.shape, x.dtype.to_real())


_real: Op = define(
    "real",
    inputs="x",
    eval=lambda x: x.real,
    type=_part_type,
    vjp={"x": lambda g: complex_op(g, zeros_like(g))},
    jvp={"x": lambda t: _real(t)},
    view=True,
    put=lambda x, y: complex_op(y, _imag(x)),
    batch=elementwise_batch,
    samples=_complex_samples,
    reference=lambda x: (x + np.conj(x)).real / 2,
)

_imag: Op = define(
    "imag",
    inputs="x",
    eval=lambda x: x.imag,
    type=_part_type,
    vjp={"x": lambda g: complex_op(zeros_like(g), g)},
    jvp={"x": lambda t: _imag(t)},
    view=True,
    put=lambda x, y: complex_op(_real(x), y),
    batch=elementwise_batch,
    samples=_complex_samples,
    reference=lambda x: ((x - np.conj(x)) / 2j).real,
)


def _complex_type(x: TensorType, y: TensorType) -> TensorType:
    same = elementwise_type("complex", "floating", "same")(x, y)
    return TensorType(same.shape, same.dtype.to_complex())


complex_op: Op = define(
    "complex",
    inputs="x y",
    eval=lambda x, y: (x + 1j * y).astype(
        np.complex128 if x.dtype == np.float64 else np.complex64
    ),
    type=_complex_type,
    vjp={"x": lambda g: g.real, "y": lambda g: g.imag},
    jvp={
        "x": lambda t: complex_op(t, zeros_like(t)),
        "y": lambda t: complex_op(zeros_like(t), t),
    },
    batch=elementwise_batch,
    samples=samples_in((-2, 2), (-2, 2)),
    reference=lambda x, y: x + 1j * y,
)


@public()
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """A complex tensor from its two parts.

    >>> weft.complex(weft.tensor([1.0]), weft.tensor([2.0]))
    tensor([1.+2.j])
    """
    if real.dtype is not imag.dtype:
        raise DTypeError(
            "complex: expected two parts of one floating-point dtype, got "
            f"{real.dtype.name} and {imag.dtype.name}"
        )
    return complex_op(*prepare("complex", "floating", real, imag))


@public(array_api=True)
def real(input: Tensor) -> Tensor:
    """The real part, over the same memory; a real tensor is returned as it is.

    >>> weft.real(weft.tensor([1 + 2j]))
    tensor([1.])
    """
    return _real(input) if input.dtype.is_complex else input


@public()
def imag(input: Tensor) -> Tensor:
    """The imaginary part of a complex tensor, over the same memory.

    >>> weft.imag(weft.tensor([1 + 2j]))
    tensor([2.])
    """
    if not input.dtype.is_complex:
        raise DTypeError(f"imag: expected a complex dtype, got {input.dtype.name}")
    return _imag(input)


@public(method=True)
def isreal(input: Tensor) -> Tensor:
    """Whether each element has no imaginary part.

    >>> weft.isreal(weft.tensor([1 + 0j, 1j]))
    tensor([ True, False])
    """
    return imag(input) == 0 if input.dtype.is_complex else input.isfinite() | True


@public()
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers from their sizes and angles.

    >>> weft.polar(weft.tensor([2.0]), weft.tensor([0.0]))
    tensor([2.+0.j])
    """
    return complex(abs * cos(angle), abs * sin(angle))


def _pairs_eval(x: Any) -> Any:
    part = x.real
    strides = (*part.strides, part.itemsize)
    return np.lib.stride_tricks.as_strided(part, (*part.shape, 2), strides)


def _complex_of(pairs: Tensor) -> Tensor:
    """Complex numbers from pairs anywhere in memory: a copy."""
    return complex_op(pairs[..., 0], pairs[..., 1])


def _view_as_real_type(x: TensorType) -> TensorType:
    if not x.dtype.is_complex:
        raise DTypeError(f"view_as_real: expected a complex dtype, got {x.dtype.name}")
    return TensorType((*x.shape, 2), x.dtype.to_real())


_view_as_real: Op = define(
    "view_as_real",
    inputs="x",
    eval=_pairs_eval,
    type=_view_as_real_type,
    vjp={"x": lambda g: _complex_of(g)},
    jvp={"x": lambda t: _view_as_real(t)},
    view=True,
    put=lambda x, y: _complex_of(y),
    batch=elementwise_batch,
    samples=_complex_samples,
    reference=lambda x: np.stack([(x + np.conj(x)).real / 2, (x * -1j).real], -1),
)


def _in_pairs(array: np.ndarray) -> bool:
    """Whether strides let the two numbers of each pair be one number's memory."""
    pair = 2 * array.itemsize
    lead = zip(array.shape[:-1], array.strides[:-1], strict=True)
    near = array.strides[-1] == array.itemsize
    return near and all(n == 1 or step % pair == 0 for n, step in lead)


def _view_as_complex_eval(x: Any) -> Any:
    # the public function refuses other layouts; a program's values may have any
    rows = x if _in_pairs(x) else np.ascontiguousarray(x)
    return rows.view(np.complex128 if x.dtype == np.float64 else np.complex64)[..., 0]


def _view_as_complex_type(x: TensorType) -> TensorType:
    if x.dtype not in (float32, float64):
        raise DTypeError(
            "view_as_complex: expected float32 or float64, got "
            f"{x.dtype.name}; convert it with .float()"
        )
    if not x.shape or x.shape[-1] != 2:
        raise ShapeError(
            f"view_as_complex: expected a last dimension of size 2, got shape {x.shape}"
        )
    return TensorType(x.shape[:-1], x.dtype.to_complex())


def _view_as_complex_batch(
    op: Op, size: int, args: Any, batched: Any, params: Any
) -> Tensor:
    return view_as_complex(args[0])  # which knows the layout of the whole batch


_view_as_complex: Op = define(
    "view_as_complex",
    inputs="x",
    eval=_view_as_complex_eval,
    type=_view_as_complex_type,
    vjp={"x": lambda g: _view_as_real(g)},
    jvp={"x": lambda t: _complex_of(t)},
    view=True,
    put=lambda x, y: _view_as_real(y),
    batch=_view_as_complex_batch,
    samples=lambda rng: [
        Sample((rng.uniform(-2, 2, shape),)) for shape in ((3, 2), (2,), (0, 4, 2))
    ],
    reference=lambda x: x @ np.array([1, 1j]),
)


@public()
def view_as_real(input: Tensor) -> Tensor:
    """Real and imaginary part as a last dimension of size 2, over the same memory.

    >>> z = weft.tensor([1 + 2j])
    >>> weft.view_as_real(z)[..., 0] = 3
    >>> z
    tensor([3.+2.j])
    """
    _view_as_real_type(TensorType(input.shape, input.dtype))
    return _view_as_real(input)


@public()
def view_as_complex(input: Tensor) -> Tensor:
    """Complex numbers from a last dimension of size 2, over the same memory.

    The two numbers of a pair must be neighbours in memory, and pairs begin at even
    offsets there.

    >>> weft.view_as_complex(weft.tensor([[1.0, 2.0]]))
    tensor([1.+2.j])
    """
    _view_as_complex_type(TensorType(input.shape, input.dtype))
    array = input.layout_array()
    known = isinstance(array, np.ndarray)
    if (
        known
        and array.size
        and not (_in_pairs(array) and input.storage_offset() % 2 == 0)
    ):
        steps = tuple(s // array.itemsize for s in array.strides)
        raise ArgumentError(
            "view_as_complex: expected pairs in memory: a stride of 1 in the last "
            "dimension, even strides in the others and an even offset, got strides "
            f"{steps} and offset {input.storage_offset()}; use a .clone() of the tensor"
        )
    return _view_as_complex(input)

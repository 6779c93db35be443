"""Complex numbers: real and imaginary parts, conjugates, polar and real views."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.op import Op, Sample, TensorType, define
from weft.core.tensor import Tensor
from weft.errors import DTypeError, ShapeError
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
from weft.ops.joining import stack
from weft.ops.public import public
from weft.ops.transcendental import cos, sin

_conj: Public = unary(
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


@public(method=True, ufuncs=("conjugate",), array_api=True)
def conj(input: Tensor) -> Tensor:
    """The complex conjugate; a real tensor is returned as it is.

    >>> weft.conj(weft.tensor([1 + 2j]))
    tensor([1.-2.j])
    """
    return _conj(input) if input.dtype.is_complex else input


def _complex_samples(rng: np.random.Generator) -> Any:
    for shape in ((3, 4), (), (0, 2)):
        yield Sample((rng.normal(size=shape) + 1j * rng.normal(size=shape),))


def _part_type(x: TensorType) -> TensorType:
    return TensorType(x.shape, x.dtype.to_real())


_real: Op = define(
    "real",
    inputs="x",
    eval=lambda x: x.real.copy(),
    type=_part_type,
    vjp={"x": lambda g: complex_op(g, zeros_like(g))},
    jvp={"x": lambda t: _real(t)},
    batch=elementwise_batch,
    samples=_complex_samples,
    reference=lambda x: (x + np.conj(x)).real / 2,
)

_imag: Op = define(
    "imag",
    inputs="x",
    eval=lambda x: x.imag.copy(),
    type=_part_type,
    vjp={"x": lambda g: complex_op(zeros_like(g), g)},
    jvp={"x": lambda t: _imag(t)},
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
    return complex_op(*prepare("complex", "floating", real, imag))


@public(array_api=True)
def real(input: Tensor) -> Tensor:
    """The real part; a real tensor is returned as it is.

    >>> weft.real(weft.tensor([1 + 2j]))
    tensor([1.])
    """
    return _real(input) if input.dtype.is_complex else input


@public()
def imag(input: Tensor) -> Tensor:
    """The imaginary part of a complex tensor.

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


@public()
def view_as_real(input: Tensor) -> Tensor:
    """Real and imaginary part as a last dimension of size 2 (a copy).

    >>> weft.view_as_real(weft.tensor([1 + 2j]))
    tensor([[1., 2.]])
    """
    return stack([real(input), imag(input)], -1)


@public()
def view_as_complex(input: Tensor) -> Tensor:
    """Complex numbers from a last dimension of size 2 (a copy).

    >>> weft.view_as_complex(weft.tensor([[1.0, 2.0]]))
    tensor([1.+2.j])
    """
    if input.ndim == 0 or input.shape[-1] != 2:
        raise ShapeError(
            "view_as_complex: expected a last dimension of size 2, got shape "
            f"{input.shape}"
        )
    return complex(input[..., 0], input[..., 1])

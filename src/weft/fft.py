"""``weft.fft``: discrete Fourier transforms, under PyTorch's names.

``norm`` says where the scale goes: ``"backward"`` (the default) divides inverse
transforms by the number of elements, ``"forward"`` the others, ``"ortho"`` both by its
square root. float16 and bfloat16 are computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft import dtype as dtypes
from weft.core.dims import existing_dim, normalize_dims
from weft.core.tensor import Tensor
from weft.dtype import default_dtype
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops.complex_numbers import complex
from weft.ops.copies import cast
from weft.ops.creation import arange, zeros_like
from weft.ops.fourier import fft_op, irfft_op, rfft_op
from weft.ops.padding import pad
from weft.ops.padding import roll as _roll
from weft.ops.slicing import along

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft",
    "ifft2", "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2",
    "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

Dims = Any

# -- arguments


def _floating(name: str, x: Any) -> Tensor:
    """A floating-point or complex tensor that there is a transform for."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"fft.{name}: expected a tensor, got {type(x).__name__}")
    if not x.dtype.is_inexact:
        return cast(x, default_dtype().to_total())
    return cast(x, x.dtype.to_total())


def _real(name: str, x: Any) -> Tensor:
    found = _floating(name, x)
    if found.dtype.is_complex:
        raise DTypeError(
            f"fft.{name}: expected real numbers, got {found.dtype.name}; use "
            f"fft.{name.replace('rfft', 'fft').replace('ihfft', 'ifft')}"
        )
    return found


def _complex(name: str, x: Any) -> Tensor:
    found = _floating(name, x)
    return found if found.dtype.is_complex else complex(found, zeros_like(found))


def _sized(name: str, x: Tensor, dim: int, n: Any) -> Tensor:
    """The first n elements along a dimension, with zeros behind them."""
    have = x.shape[dim]
    if n is None or n == have:
        return x
    if n < have:
        return along(x, dim, slice(0, _positive(name, n)))
    return pad(x, [0] * (2 * (x.ndim - 1 - dim)) + [0, n - have])


def _positive(name: str, n: Any) -> Any:
    if isinstance(n, int) and n < 1:
        raise ArgumentError(f"fft.{name}: expected at least 1 element, got n={n}")
    return n


def _scaled(name: str, x: Tensor, n: Any, norm: str | None, inverse: bool) -> Tensor:
    if norm not in (None, "backward", "ortho", "forward"):
        raise ArgumentError(
            f"fft.{name}: norm must be 'backward', 'ortho' or 'forward', got {norm!r}"
        )
    if norm == "ortho":
        return x * n**-0.5
    return x / n if inverse == (norm != "forward") else x


def _dimensions(name: str, x: Tensor, s: Any, dim: Dims) -> tuple[list[int], list[Any]]:
    """The dimensions to transform, and the wanted sizes."""
    sizes = None if s is None else list(s)
    if dim is None:
        count = x.ndim if sizes is None else len(sizes)
        if count > x.ndim:
            raise ShapeError(
                f"fft.{name}: expected at most {x.ndim} sizes for shape {x.shape}, got "
                f"s={tuple(sizes or ())}"
            )
        dim = tuple(range(x.ndim - count, x.ndim))
    given = [dim] if isinstance(dim, int) else list(dim)
    dims = [existing_dim(f"fft.{name}", d, x.ndim) for d in given]
    normalize_dims(f"fft.{name}", tuple(given), x.ndim)  # none of them twice
    if not dims and name not in ("fftn", "ifftn"):
        raise ArgumentError(f"fft.{name}: expected at least one dimension")
    if sizes is None:
        return dims, [None] * len(dims)
    if len(sizes) != len(dims):
        raise ArgumentError(
            f"fft.{name}: expected as many sizes as dimensions, got s={tuple(sizes)} "
            f"for dim={tuple(given)}"
        )
    return dims, [None if n == -1 else n for n in sizes]


# -- one dimension of a tensor that is ready


def _transform(name: str, x: Tensor, n: Any, dim: int, norm: Any, inv: bool) -> Tensor:
    x = _sized(name, x, dim, n)
    return _scaled(name, fft_op(x, dim=dim, inverse=inv), x.shape[dim], norm, inv)


def _to_half(name: str, x: Tensor, n: Any, dim: int, norm: Any, inv: bool) -> Tensor:
    x = _sized(name, x, dim, n)
    return _scaled(name, rfft_op(x, dim=dim, inverse=inv), x.shape[dim], norm, inv)


def _from_half(name: str, x: Tensor, n: Any, dim: int, norm: Any, inv: bool) -> Tensor:
    n = _positive(name, 2 * (x.shape[dim] - 1) if n is None else n)
    x = _sized(name, x, dim, n // 2 + 1)
    return _scaled(name, irfft_op(x, dim=dim, n=n, inverse=inv), n, norm, inv)


def _one(name: str, x: Tensor, dim: int) -> int:
    return existing_dim(f"fft.{name}", dim, x.ndim)


def fft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None
) -> Tensor:
    """The Fourier transform along a dimension, of ``n`` elements.

    >>> weft.fft.fft(weft.tensor([1.0, 0.0, 0.0, 0.0]))
    tensor([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j])
    """
    x = _complex("fft", input)
    return _transform("fft", x, n, _one("fft", x, dim), norm, False)


def ifft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None
) -> Tensor:
    """The inverse of ``fft``.

    >>> weft.fft.ifft(weft.tensor([4.0, 0.0])).real
    tensor([2., 2.])
    """
    x = _complex("ifft", input)
    return _transform("ifft", x, n, _one("ifft", x, dim), norm, True)


def rfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None
) -> Tensor:
    """The first half of the Fourier transform of real numbers.

    >>> weft.fft.rfft(weft.tensor([1.0, 0.0, 0.0, 0.0])).shape
    (3,)
    """
    x = _real("rfft", input)
    return _to_half("rfft", x, n, _one("rfft", x, dim), norm, False)


def irfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None
) -> Tensor:
    """The inverse of ``rfft``: ``n`` real numbers, an even number if not given.

    >>> weft.fft.irfft(weft.fft.rfft(weft.tensor([1.0, 2.0, 3.0])), n=3)
    tensor([1., 2., 3.])
    """
    x = _complex("irfft", input)
    return _from_half("irfft", x, n, _one("irfft", x, dim), norm, True)


def hfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None
) -> Tensor:
    """The Fourier transform, which is real, of what has a Hermitian second half.

    >>> weft.fft.hfft(weft.tensor([1.0, 1.0]))
    tensor([2., 0.])
    """
    x = _complex("hfft", input)
    return _from_half("hfft", x, n, _one("hfft", x, dim), norm, False)


def ihfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None
) -> Tensor:
    """The inverse of ``hfft``: the first half of a Hermitian result.

    >>> weft.fft.ihfft(weft.tensor([2.0, 0.0])).real
    tensor([1., 1.])
    """
    x = _real("ihfft", input)
    return _to_half("ihfft", x, n, _one("ihfft", x, dim), norm, True)


# -- several dimensions


def _all(name: str, x: Tensor, s: Any, dim: Dims, norm: Any, inv: bool) -> Tensor:
    for d, n in zip(*_dimensions(name, x, s, dim), strict=True):
        x = _transform(name, x, n, d, norm, inv)
    return x


def _all_to_half(
    name: str, x: Tensor, s: Any, dim: Dims, norm: Any, inv: bool
) -> Tensor:
    (*dims, last), (*sizes, size) = _dimensions(name, x, s, dim)
    x = _to_half(name, x, size, last, norm, inv)
    for d, n in zip(dims, sizes, strict=True):
        x = _transform(name, x, n, d, norm, inv)
    return x


def _all_from_half(
    name: str, x: Tensor, s: Any, dim: Dims, norm: Any, inv: bool
) -> Tensor:
    (*dims, last), (*sizes, size) = _dimensions(name, x, s, dim)
    for d, n in zip(dims, sizes, strict=True):
        x = _transform(name, x, n, d, norm, inv)
    return _from_half(name, x, size, last, norm, inv)


def fftn(
    input: Tensor, s: Sequence[int] | None = None, dim: Dims = None,
    norm: str | None = None,
) -> Tensor:  # fmt: skip
    """The Fourier transform along several dimensions, all of them by default.

    >>> weft.fft.fftn(weft.ones(2, 3)).real
    tensor([[6., 0., 0.],
            [0., 0., 0.]])
    """
    return _all("fftn", _complex("fftn", input), s, dim, norm, False)


def ifftn(
    input: Tensor, s: Sequence[int] | None = None, dim: Dims = None,
    norm: str | None = None,
) -> Tensor:  # fmt: skip
    """The inverse of ``fftn``.

    >>> weft.fft.ifftn(weft.fft.fftn(weft.ones(2, 3))).real.sum()
    tensor(6.)
    """
    return _all("ifftn", _complex("ifftn", input), s, dim, norm, True)


def rfftn(
    input: Tensor, s: Sequence[int] | None = None, dim: Dims = None,
    norm: str | None = None,
) -> Tensor:  # fmt: skip
    """The Fourier transform of real numbers, of whose last dimension half is enough.

    >>> weft.fft.rfftn(weft.ones(2, 4)).shape
    (2, 3)
    """
    return _all_to_half("rfftn", _real("rfftn", input), s, dim, norm, False)


def irfftn(
    input: Tensor, s: Sequence[int] | None = None, dim: Dims = None,
    norm: str | None = None,
) -> Tensor:  # fmt: skip
    """The inverse of ``rfftn``.

    >>> weft.fft.irfftn(weft.fft.rfftn(weft.ones(2, 4))).sum()
    tensor(8.)
    """
    return _all_from_half("irfftn", _complex("irfftn", input), s, dim, norm, True)


def hfftn(
    input: Tensor, s: Sequence[int] | None = None, dim: Dims = None,
    norm: str | None = None,
) -> Tensor:  # fmt: skip
    """``hfft`` along the last of several dimensions, ``fft`` along the others.

    >>> weft.fft.hfftn(weft.ones(2, 3)).shape
    (2, 4)
    """
    return _all_from_half("hfftn", _complex("hfftn", input), s, dim, norm, False)


def ihfftn(
    input: Tensor, s: Sequence[int] | None = None, dim: Dims = None,
    norm: str | None = None,
) -> Tensor:  # fmt: skip
    """The inverse of ``hfftn``.

    >>> weft.fft.ihfftn(weft.ones(2, 4)).shape
    (2, 3)
    """
    return _all_to_half("ihfftn", _real("ihfftn", input), s, dim, norm, True)


def _of_two(many: Any, name: str) -> Any:
    """The transform along the last two dimensions."""

    def fn(
        input: Tensor, s: Sequence[int] | None = None, dim: Dims = (-2, -1),
        norm: str | None = None,
    ) -> Tensor:  # fmt: skip
        return many(input, s, dim, norm)

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"""``{many.__name__}`` along the last two dimensions.

    >>> weft.fft.{name}(weft.ones(3, 2, 4)).ndim
    3
    """
    return fn


fft2 = _of_two(fftn, "fft2")
ifft2 = _of_two(ifftn, "ifft2")
rfft2 = _of_two(rfftn, "rfft2")
irfft2 = _of_two(irfftn, "irfft2")
hfft2 = _of_two(hfftn, "hfft2")
ihfft2 = _of_two(ihfftn, "ihfft2")


# -- frequencies


def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of ``fft``'s elements, for samples ``d`` apart.

    >>> weft.fft.fftfreq(4)
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    place = arange(_positive("fftfreq", n), device=device)
    below = (place - n * cast(place >= (n + 1) // 2, dtypes.int64)).to(dtypes.float64)
    return (below / (n * d)).to(dtype or default_dtype())


def rfftfreq(
    n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """The frequencies of ``rfft``'s elements, for samples ``d`` apart.

    >>> weft.fft.rfftfreq(4)
    tensor([0.0000, 0.2500, 0.5000])
    """
    place = arange(_positive("rfftfreq", n) // 2 + 1, device=device)
    return (place.to(dtypes.float64) / (n * d)).to(dtype or default_dtype())


def _shifted(name: str, x: Tensor, dim: Dims, half: Any) -> Tensor:
    dims = normalize_dims(f"fft.{name}", dim, x.ndim)
    return _roll(x, tuple(half(x.shape[d]) for d in dims), dims) if dims else x


def fftshift(input: Tensor, dim: Dims = None) -> Tensor:
    """The elements with the frequency zero in the middle.

    >>> weft.fft.fftshift(weft.fft.fftfreq(4))
    tensor([-0.5000, -0.2500,  0.0000,  0.2500])
    """
    return _shifted("fftshift", input, dim, lambda n: n // 2)


def ifftshift(input: Tensor, dim: Dims = None) -> Tensor:
    """The inverse of ``fftshift``.

    >>> weft.fft.ifftshift(weft.fft.fftshift(weft.fft.fftfreq(5)))[0]
    tensor(0.)
    """
    return _shifted("ifftshift", input, dim, lambda n: math.ceil(n / 2))

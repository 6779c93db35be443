"""Fourier transforms: values against NumPy's, gradients against differences."""

import inspect
import itertools

import numpy as np
import pytest

import weft
from weft import array_api as xp
from weft import fft
from weft.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(3)
NORMS = (None, "backward", "ortho", "forward")
REAL = {"rfft", "ihfft", "rfftn", "ihfftn", "rfft2", "ihfft2"}
LINES = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
BOXES = ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"]


def numbers(name, shape):
    x = RNG.normal(size=shape)
    return x if name in REAL else x + 1j * RNG.normal(size=shape)


def close(found, want):
    assert found.shape == want.shape
    assert found.dtype.np == want.dtype
    tol = (
        1e-12
        if want.dtype.itemsize >= 8 and found.dtype.to_real() is weft.float64
        else 2e-5
    )
    np.testing.assert_allclose(found.detach().numpy(), want, rtol=tol, atol=tol)


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("n", [None, 1, 3, 4, 7, 8])
def test_one_dimension(name, n):
    for shape, dim, norm in itertools.product(
        [(4,), (3, 5), (2, 4, 3)], (0, -1), NORMS
    ):
        if n is None and shape[dim] == 1:
            continue
        x = numbers(name, shape)
        want = getattr(np.fft, name)(x, n, dim, norm)
        close(getattr(fft, name)(weft.tensor(x), n, dim, norm), want)


@pytest.mark.parametrize("name", BOXES)
def test_several_dimensions(name):
    two = name.endswith("2")
    for s, dim in ((None, (-2, -1)), ((4, 3), (0, 2)), ((3, 6), (1, 0))):
        for norm in NORMS:
            x = numbers(name, (3, 4, 5))
            want = getattr(np.fft, name)(x, s, dim, norm)
            close(getattr(fft, name)(weft.tensor(x), s, dim, norm), want)
    if not two:
        x = numbers(name, (3, 4, 5))
        close(getattr(fft, name)(weft.tensor(x)), getattr(np.fft, name)(x))
        with_s = getattr(np.fft, name)(x, (2, 6), (1, 2))
        close(getattr(fft, name)(weft.tensor(x), (2, 6)), with_s)


def test_hermitian_transforms_of_several_dimensions():
    x = numbers("hfftn", (3, 4, 5))
    want = np.fft.hfft(np.fft.fft(np.fft.fft(x, axis=0), axis=1), axis=2)
    close(fft.hfftn(weft.tensor(x)), want)
    y = RNG.normal(size=(3, 4, 5))
    want = np.fft.ifft(np.fft.ifft(np.fft.ihfft(y, axis=2), axis=0), axis=1)
    close(fft.ihfftn(weft.tensor(y)), want)
    close(fft.hfft2(weft.tensor(x)), np.fft.hfft(np.fft.fft(x, axis=1), axis=2))
    close(fft.ihfft2(weft.tensor(y)), np.fft.ifft(np.fft.ihfft(y, axis=2), axis=1))


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("n", [5, 6])
def test_gradients(name, n):
    x = weft.tensor(numbers(name, (2, 4)), requires_grad=True)

    def fn(x):
        return getattr(fft, name)(x, n, -1, "ortho")

    assert gradcheck(fn, x)
    assert gradgradcheck(fn, x)


@pytest.mark.parametrize("name", ["fftn", "rfftn", "irfftn", "hfftn", "ihfftn"])
def test_gradients_of_several_dimensions(name):
    x = weft.tensor(numbers(name, (2, 3, 3)), requires_grad=True)
    assert gradcheck(lambda x: getattr(fft, name)(x, None, (0, 2)), x)


@pytest.mark.parametrize("name", LINES)
def test_transforms_and_programs(name):
    x = weft.tensor(numbers(name, (3, 4)))
    fn = getattr(fft, name)
    want = fn(x)
    assert weft.allclose(weft.func.vmap(fn)(x), want)
    assert weft.allclose(weft.compile(fn)(x), want)
    assert weft.allclose(weft.graph.capture(fn, x)(x), want)
    with weft.static.Graph().as_default(), weft.static.Session() as session:
        place = weft.static.placeholder(x.dtype, [3, 4])
        found = session.run(fn(place), {place: x})
    np.testing.assert_allclose(found, want.numpy())


def test_convolution_by_transforms_trains_compiled():
    """A circular convolution in the frequency domain, and its gradient by products."""
    x, w = weft.rand(8), weft.rand(8, requires_grad=True)

    def loss(x, w):
        return (fft.irfft(fft.rfft(x) * fft.rfft(w), 8) ** 2).sum()

    loss(x, w).backward()
    rows = weft.stack([x.roll(k) for k in range(8)], 1)
    v = w.detach().clone().requires_grad_()
    ((rows @ v) ** 2).sum().backward()
    assert weft.allclose(w.grad, v.grad, atol=1e-4)
    want, w.grad = w.grad, None
    weft.compile(loss)(x, w).backward()
    assert weft.allclose(w.grad, want, atol=1e-4)


def test_dtypes():
    assert fft.fft(weft.ones(4)).dtype is weft.complex64
    assert fft.fft(weft.ones(4, dtype=weft.int64)).dtype is weft.complex64
    assert fft.fft(weft.ones(4).double()).dtype is weft.complex128
    assert fft.rfft(weft.ones(4).half()).dtype is weft.complex64
    assert fft.rfft(weft.ones(4).bfloat16()).dtype is weft.complex64
    assert fft.irfft(weft.ones(4)).dtype is weft.float32
    assert fft.fftfreq(4, dtype=weft.float64).dtype is weft.float64


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("d", [1.0, 0.25])
def test_frequencies(n, d):
    close(fft.fftfreq(n, d, dtype=weft.float64), np.fft.fftfreq(n, d))
    close(fft.rfftfreq(n, d, dtype=weft.float64), np.fft.rfftfreq(n, d))


def test_shifts():
    for shape in ((4,), (5,), (3, 4)):
        x = np.arange(np.prod(shape)).reshape(shape)
        for dim in (None, 0, -1, tuple(range(len(shape)))):
            for name in ("fftshift", "ifftshift"):
                want = getattr(np.fft, name)(x, dim)
                close(getattr(fft, name)(weft.tensor(x), dim), want)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: fft.rfft(weft.ones(2) * 1j), TypeError, r"real numbers.*use fft\.fft"),
        (lambda: fft.ihfft(weft.ones(2) * 1j), TypeError, r"use fft\.ifft"),
        (lambda: fft.fft([1.0]), TypeError, "expected a tensor, got list"),
        (lambda: fft.fft(weft.ones(2), 0), ValueError, "at least 1 element, got n=0"),
        (lambda: fft.fft(weft.ones(0)), ValueError, "at least one element"),
        (
            lambda: fft.fft(weft.ones(2), norm="x"),
            ValueError,
            "norm must be 'backward'",
        ),
        (lambda: fft.fft(weft.ones(2), dim=1), IndexError, "dim"),
        (lambda: fft.fftn(weft.ones(2), (1, 2)), ValueError, "at most 1 sizes"),
        (lambda: fft.fftn(weft.ones(2, 2), (1,), (0, 1)), ValueError, "as many sizes"),
        (lambda: fft.fftn(weft.ones(2, 2), None, (0, 0)), ValueError, "twice|repeat"),
        (lambda: fft.irfft(weft.ones(1)), ValueError, "at least 1 element"),
        (lambda: fft.fftfreq(0), ValueError, "at least 1"),
    ],
)
def test_mistakes(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_every_name_has_pytorchs_arguments():
    for name in fft.__all__:
        names = list(inspect.signature(getattr(fft, name)).parameters)
        if name.endswith("freq"):
            assert names[:2] == ["n", "d"]
        elif name.endswith("shift"):
            assert names == ["input", "dim"]
        else:
            assert names == ["input", "n" if name in LINES else "s", "dim", "norm"]


# -- the array API's names

STANDARD = """fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq
    fftshift ifftshift"""


def test_the_array_api_has_the_extension():
    assert set(xp.fft.__all__) == set(STANDARD.split())
    x = numbers("fft", (3, 4))
    for name in LINES:
        x = numbers(name, (3, 4))
        want = getattr(np.fft, name)(x, n=5, axis=0, norm="ortho")
        close(getattr(xp.fft, name)(weft.tensor(x), n=5, axis=0, norm="ortho"), want)
    for name in ("fftn", "ifftn", "rfftn", "irfftn"):
        x = numbers(name, (3, 4))
        want = getattr(np.fft, name)(x, s=(4, 5), axes=(1, 0))
        close(getattr(xp.fft, name)(weft.tensor(x), s=(4, 5), axes=[1, 0]), want)
    close(xp.fft.fftfreq(5, d=2.0, dtype=xp.float64), np.fft.fftfreq(5, 2.0))
    close(xp.fft.rfftfreq(5, dtype=xp.float64), np.fft.rfftfreq(5))
    x = np.arange(6).reshape(2, 3)
    close(xp.fft.fftshift(weft.tensor(x), axes=[1]), np.fft.fftshift(x, 1))
    close(xp.fft.ifftshift(weft.tensor(x)), np.fft.ifftshift(x))

"""Complex numbers in compiled programs: the eager values and gradients."""

import numpy as np
import pytest

import weft

RNG = np.random.default_rng(0)
PROGRAMS = {
    "arithmetic": lambda z, w: (z * w - z / (w + 3)) * 2j + 1,
    "products": lambda z, w: z @ w.mH + weft.einsum("ij,jk->ik", z, w),
    "functions": lambda z, w: z.exp() + w.sin() * z.sqrt() + (z + 4).log(),
    "parts": lambda z, w: z.abs() + z.angle() * w.real - w.conj().imag,
    "made": lambda z, w: weft.complex(z.real, w.imag) * weft.polar(z.abs(), w.real),
    "views": lambda z, w: weft.view_as_complex(weft.view_as_real(z) * 2) + w.mT,
    "transforms": lambda z, w: weft.fft.ifft(weft.fft.fft2(z) * weft.fft.fft(w)),
    "real transforms": lambda z, w: weft.fft.irfft(
        weft.fft.rfft(z.real) * weft.fft.rfft(w.imag), n=4
    ),
    "reductions": lambda z, w: z.sum(0) + w.mean(1) + z.prod(0) + z.norm(),
    "linear algebra": lambda z, w: weft.linalg.solve(z + 5 * weft.eye(4), w),
}


@pytest.mark.parametrize("dtype", [weft.complex64, weft.complex128], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_compiled_program_is_the_eager_one(name, dtype):
    z, w = (
        weft.tensor(RNG.normal(size=(4, 4)) + 1j * RNG.normal(size=(4, 4))).to(dtype)
        for _ in range(2)
    )
    z.requires_grad_()
    w.requires_grad_()

    def program(z, w):
        return PROGRAMS[name](z, w)

    weights = weft.arange(1.0, 5.0)
    near = 1e-4 if dtype is weft.complex64 else 1e-10
    found = []
    for run in (program, weft.compile(program)):
        out = run(z, w)
        ((out * weights).abs() ** 2).sum().backward()
        found.append(
            [x.detach().numpy() for x in (out, z.grad, w.grad) if x is not None]
        )
        z.grad = w.grad = None
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=near, atol=near)

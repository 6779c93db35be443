"""LDL factors: the matrix comes back, and systems are solved."""

import numpy as np
import pytest

import weft
from weft.errors import AutogradError
from weft.linalg import LinAlgError

RNG = np.random.default_rng(3)


def matrices(dtype, hermitian, n, zero):
    a = RNG.normal(size=(3, n, n)) + 1j * RNG.normal(size=(3, n, n))
    a = a.astype(dtype) if dtype == "complex128" else a.real.astype(dtype)
    a = a + (a.conj() if hermitian else a).swapaxes(-1, -2)
    if zero:  # needs blocks of two rows
        a[:, range(n), range(n)] = 0
    return a


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize(("n", "zero"), [(1, False), (2, True), (5, True), (7, False)])
def test_factors_solve_systems(dtype, hermitian, n, zero):
    a = matrices(dtype, hermitian, n, zero)
    b = RNG.normal(size=(n, 2)).astype(dtype)
    factors, pivots = weft.linalg.ldl_factor(weft.tensor(a), hermitian=hermitian)
    x = weft.linalg.ldl_solve(factors, pivots, weft.tensor(b), hermitian=hermitian)
    near = 2e-3 if dtype == "float32" else 1e-9
    np.testing.assert_allclose(a @ x.numpy(), np.broadcast_to(b, x.shape), atol=near)
    assert not zero or bool((pivots < 0).any())


def test_singular_matrices_are_reported_and_derivatives_refused():
    assert weft.linalg.ldl_factor_ex(weft.zeros(2, 2)).info == 1
    with pytest.raises(LinAlgError, match="singular"):
        weft.linalg.ldl_factor_ex(weft.zeros(2, 2), check_errors=True)
    with pytest.raises(AutogradError, match="no derivative"):
        weft.linalg.ldl_factor(weft.eye(2, requires_grad=True))

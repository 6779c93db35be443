"""Empty and 0-d tensors, negative indices, integer and half types: edges of operators.

The expected values follow from the definitions; PyTorch has the same ones
(``tests/peers/test_operator_database_against_torch.py``).
"""

import re

import numpy as np
import pytest

import weft
from weft import linalg, masked
from weft.errors import WeftError
from weft.nn import functional as F

VECTOR = weft.tensor([1.0, 2.0, 3.0])
SCALAR = weft.tensor(2.0)
EMPTY = weft.ones(0, 3)
ONES = weft.ones(2, 2)


def half(*values):
    return weft.tensor(values, dtype=weft.float16)


VALUES = {
    "gather nothing": (
        lambda: VECTOR.gather(0, weft.zeros(0, 2, dtype=weft.int64)).shape, (0, 2)),
    "take along from the end": (
        lambda: VECTOR.take_along_dim(weft.tensor([-1, 0]), 0), [3, 1]),
    "norm of an empty matrix": (lambda: linalg.matrix_norm(EMPTY), 0),
    "one norm without rows": (lambda: linalg.norm(EMPTY, 1), 0),
    "condition of an empty matrix": (lambda: linalg.cond(weft.ones(0, 0)), 0),
    "inverse of nothing": (lambda: linalg.inv_ex(weft.ones(0, 0)).info, 0),
    "solve for nothing": (
        lambda: linalg.solve_ex(weft.ones(0, 0), weft.ones(0, 2)).result.shape, (0, 2)),
    "vander of a vector of one": (
        lambda: linalg.vander(weft.tensor([2.0]), N=3), [[1, 2, 4]]),
    "histogram of nothing": (
        lambda: weft.histogram(weft.ones(0), 2).bin_edges, [0, 0.5, 1]),
    "a window of no length": (lambda: weft.signal.windows.cosine(0).shape, (0,)),
    "unfold of a number": (lambda: SCALAR.unfold(0, 1, 1), [2]),
    "any of no dimensions": (
        lambda: weft.tensor([0, 1]).any(dim=()), [False, True]),
    "all of no dimensions": (
        lambda: weft.tensor([0, 1]).all(dim=()), [False, True]),
    "tensordot of integers": (
        lambda: weft.tensordot(
            weft.ones(2, 1, dtype=weft.int32), weft.ones(2, 3, dtype=weft.int32),
            dims=([0], [0])).dtype, weft.int32),
    "embedding loss of integers": (
        lambda: F.cosine_embedding_loss(
            weft.tensor([[3, 4]]), weft.tensor([[4, 3]]), weft.tensor([1])), 0.04),
    "covariance with wider weights": (
        lambda: weft.cov(
            VECTOR, aweights=weft.ones(3, dtype=weft.float64)).dtype, weft.float64),
    "a sparse number": (lambda: SCALAR.to_sparse().to_dense(), 2),
    "a sparse matrix of nothing": (lambda: EMPTY.to_sparse().values().shape, (0,)),
    "transform of a number": (lambda: weft.fft.fftn(SCALAR).real, 2),
    "half beside a 0-d tensor": (
        lambda: weft.xlogy(half(1, 1), weft.tensor(1.0)).dtype, weft.float16),
    "masked mean of half numbers": (
        lambda: masked.mean(weft.full((4096,), 20.0, dtype=weft.float16)), 20),
    "masked variance, one left": (
        lambda: masked.var(
            VECTOR, 0, mask=weft.tensor([True, True, False]), unbiased=True), 0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_values(name):
    call, expected = VALUES[name]
    got = call()
    if isinstance(expected, (weft.dtype, tuple)):
        assert got == expected
    else:
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)


REFUSED = {
    "narrow": (lambda: SCALAR.narrow(0, 0, 1), "at least 1 dimension"),
    "roll": (lambda: SCALAR.roll(1, 0), "at least 1 dimension"),
    "take_along_dim": (
        lambda: SCALAR.take_along_dim(weft.tensor(0), 0), "at least 1 dimension"),
    "repeat_interleave": (
        lambda: SCALAR.repeat_interleave(2, 0), "at least 1 dimension"),
    "unflatten": (lambda: SCALAR.unflatten(0, (1,)), "at least 1 dimension"),
    "size": (lambda: SCALAR.size(0), "at least 1 dimension"),
    "fft": (lambda: weft.fft.fft(SCALAR), "at least 1 dimension"),
    "flipud": (lambda: weft.flipud(SCALAR), "at least 1 dimension"),
    "rfftn": (lambda: weft.fft.rfftn(SCALAR), "at least one dimension"),
    "flatten": (lambda: SCALAR.flatten(2), "dim"),
    "argmax": (lambda: SCALAR.argmax(3), "dim"),
    "amax": (lambda: SCALAR.max(2), "dim"),
    "masked": (lambda: masked.sum(VECTOR, 4), "dim"),
    "glu": (lambda: F.glu(SCALAR), "dimension"),
    "addmm": (
        lambda: weft.addmm(weft.ones(3, 2, 2), ONES, ONES), "can be expanded"),
    "addmv": (lambda: weft.addmv(ONES, ONES, weft.ones(2)), "can be expanded"),
    "cross": (
        lambda: linalg.cross(weft.ones(3), weft.ones(1)), "3"),
    "bilinear": (lambda: F.bilinear(SCALAR, ONES, weft.ones(1, 2, 2)), "bilinear"),
    "nll_loss": (lambda: F.nll_loss(SCALAR, weft.tensor(0)), "scores"),
    "ctc_loss": (
        lambda: F.ctc_loss(VECTOR, weft.tensor([1]), weft.tensor(3), weft.tensor(1)),
        "(T, N, C)"),
    "multinomial": (lambda: weft.multinomial(weft.ones(0, 2), 3), "cannot draw 3"),
    "multinomial of counts": (
        lambda: weft.multinomial(weft.tensor([1, 2]), 1), "floating-point"),
    "lu_unpack": (
        lambda: weft.lu_unpack(VECTOR, weft.tensor([1], dtype=weft.int32)), "matri"),
    "ldl_solve": (
        lambda: linalg.ldl_solve(
            *linalg.ldl_factor(weft.eye(3)), weft.ones(2, 1)), "3 rows"),
    "tensorinv": (lambda: linalg.tensorinv(weft.ones(1), ind=2), "tensorinv"),
    "cross_entropy": (
        lambda: F.cross_entropy(ONES, ONES / 2, ignore_index=1), "probabilities"),
    "uniform_": (lambda: weft.ones(2).uniform_(2, 1), "not above"),
    "normal_": (lambda: weft.ones(2).normal_(0, -1), "at least 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    call, words = REFUSED[name]
    with pytest.raises((WeftError, IndexError), match=re.escape(words)):
        call()


def test_duplicate_indices_of_embeddings_are_counted_exactly():
    """The gradient of each use is divided by the number of uses, sparse as dense."""
    for sparse in (False, True):
        table = weft.ones(3, 2).requires_grad_()
        at = weft.tensor([1, 1, 1, 2])
        F.embedding(at, table, scale_grad_by_freq=True, sparse=sparse).sum().backward()
        grad = table.grad.to_dense() if sparse else table.grad
        np.testing.assert_allclose(grad.numpy(), [[0, 0], [1, 1], [1, 1]], rtol=1e-6)


def test_pivots_of_complex_matrices_are_lapacks():
    """The pivot is the largest |re| + |im|: 3+3i here, though |5| is larger."""
    A = weft.tensor([[5.0 + 0j, 1], [3 + 3j, 2]])
    _, pivots = linalg.lu_factor(A)
    assert pivots.tolist() == [2, 2]

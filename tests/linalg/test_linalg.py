"""weft.linalg: defining properties, batches, types, derivatives and errors."""

import math

import numpy as np
import pytest

import weft
from weft import linalg
from weft.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(0)
INF = math.inf
KINDS = ["float32", "float64", "complex64", "complex128"]
EPS = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-12, "complex128": 1e-12}


def draw(*shape, kind="float64", shift=0.0):
    x = RNG.normal(size=shape)
    if kind.startswith("complex"):
        x = x + 1j * RNG.normal(size=shape)
    return (x + shift * np.eye(*shape[-2:]) if shift else x).astype(kind)


def tensor(array, grad=False):
    out = weft.from_numpy(np.array(array))
    return out.requires_grad_() if grad else out


def positive(*shape, kind="float64"):
    x = draw(*shape, kind=kind)
    spread = np.diag(np.arange(shape[-1]))
    return (x @ x.conj().swapaxes(-1, -2) + spread + np.eye(shape[-1])).astype(kind)


def close(got, expected, kind="float64"):
    got = got.detach().numpy() if isinstance(got, weft.Tensor) else got
    scale = 1 + np.abs(expected).max(initial=0)
    np.testing.assert_allclose(got, expected, rtol=EPS[kind], atol=EPS[kind] * scale)


def H(x):
    return x.transpose(-2, -1).conj()


# -- what defines each result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lead", [(), (2,), (2, 3), (0,)])
def test_decompositions_multiply_back(kind, lead):
    for m, n in ((4, 4), (5, 3), (3, 5)):
        a = tensor(draw(*lead, m, n, kind=kind))
        k = min(m, n)
        q, r = linalg.qr(a)
        close(q @ r, a.numpy(), kind)
        close(H(q) @ q, np.broadcast_to(np.eye(k), (*lead, k, k)), kind)
        close(r, r.triu().numpy(), kind)
        u, s, vh = linalg.svd(a, full_matrices=False)
        assert s.dtype is a.dtype.to_real()
        close((u * s.to(u.dtype).unsqueeze(-2)) @ vh, a.numpy(), kind)
        close(linalg.svdvals(a), s.numpy(), kind)
        assert (s.numpy() >= 0).all()
        assert (np.diff(s.numpy()) <= 0).all()
        p = linalg.pinv(a)
        close(a @ p @ a, a.numpy(), kind)
        close(H(p @ a), (p @ a).numpy(), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_square_results(kind):
    a, b = tensor(draw(2, 4, 4, kind=kind, shift=4)), tensor(draw(2, 4, 3, kind=kind))
    eye = np.broadcast_to(np.eye(4), (2, 4, 4))
    close(linalg.inv(a) @ a, eye, kind)
    close(a @ linalg.solve(a, b), b.numpy(), kind)
    close(linalg.solve(a, H(b), left=False) @ a, H(b).numpy(), kind)
    sign, logabs = linalg.slogdet(a)
    close(sign * logabs.exp().to(a.dtype), linalg.det(a).numpy(), kind)
    close(linalg.det(a), np.linalg.det(a.numpy().astype("complex128")), kind)
    w, v = linalg.eig(a)
    assert w.dtype is a.dtype.to_complex()
    close(a.to(v.dtype) @ v, (v * w.unsqueeze(-2)).numpy(), kind)
    close(linalg.eigvals(a), w.numpy(), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_hermitian_results(kind):
    a = tensor(positive(2, 4, 4, kind=kind))
    factor = linalg.cholesky(a)
    close(factor @ H(factor), a.numpy(), kind)
    close(linalg.cholesky(a, upper=True), H(factor).numpy(), kind)
    w, v = linalg.eigh(a)
    assert w.dtype is a.dtype.to_real()
    close(a @ v, (v * w.to(v.dtype).unsqueeze(-2)).numpy(), kind)
    close(linalg.eigvalsh(a), w.numpy(), kind)
    close(linalg.pinv(a, hermitian=True), linalg.inv(a).numpy(), kind)
    assert linalg.matrix_rank(a, hermitian=True).tolist() == [4, 4]


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_solve_triangular_reads_one_triangle(upper, left, unit):
    a = draw(2, 3, 3, shift=3)
    used = np.triu(a) if upper else np.tril(a)
    if unit:
        used = used - used * np.eye(3) + np.eye(3)
    b = draw(2, 3, 4) if left else draw(2, 4, 3)
    x = linalg.solve_triangular(
        tensor(a), tensor(b), upper=upper, left=left, unitriangular=unit
    ).numpy()
    close(used @ x if left else x @ used, b)


@pytest.mark.parametrize("uplo", ["L", "U", "l", "u"])
def test_eigh_and_cholesky_read_one_triangle(uplo):
    a = positive(3, 3)
    spoiled = np.tril(a) if uplo in "Ll" else np.triu(a)
    close(linalg.eigvalsh(tensor(spoiled), UPLO=uplo), np.linalg.eigvalsh(a))
    close(linalg.eigh(tensor(spoiled), UPLO=uplo)[0], np.linalg.eigvalsh(a))
    factor = linalg.cholesky(tensor(spoiled), upper=uplo in "Uu")
    expected = np.linalg.cholesky(a)
    close(factor, expected.T if uplo in "Uu" else expected)


def test_full_bases_are_orthonormal():
    a = tensor(draw(2, 5, 3))
    q, r = linalg.qr(a, mode="complete")
    assert q.shape == (2, 5, 5)
    assert r.shape == (2, 5, 3)
    close(q @ r, a.numpy())
    close(H(q) @ q, np.broadcast_to(np.eye(5), (2, 5, 5)))
    for x in (a, H(a)):
        u, s, vh = linalg.svd(x)
        m, n = x.shape[-2:]
        assert u.shape == (2, m, m)
        assert vh.shape == (2, n, n)
        close(H(u) @ u, np.broadcast_to(np.eye(m), (2, m, m)))
        close(vh @ H(vh), np.broadcast_to(np.eye(n), (2, n, n)))
        close((u[..., :3] * s.unsqueeze(-2)) @ vh[..., :3, :], x.numpy())
    empty, r = linalg.qr(a, mode="r")
    assert empty.shape == (0,)
    close(r, linalg.qr(a).R.numpy())


def test_singular_vectors_have_one_sign():
    a = draw(4, 3)
    flipped = linalg.svd(tensor(-a), full_matrices=False).U
    close(flipped, linalg.svd(tensor(a), full_matrices=False).U.numpy())
    v = linalg.eigh(tensor([[2.0, 1.0], [1.0, 2.0]])).eigenvectors.numpy()
    np.testing.assert_allclose(
        v, np.array([[1, 1], [-1, 1]]) / math.sqrt(2), rtol=1e-12
    )


def test_named_results():
    a = tensor(positive(2, 2))
    assert linalg.slogdet(a)._fields == ("sign", "logabsdet")
    assert linalg.svd(a)._fields == ("U", "S", "Vh")
    assert linalg.qr(a)._fields == ("Q", "R")
    assert linalg.eigh(a)._fields == ("eigenvalues", "eigenvectors")
    assert linalg.eig(a)._fields == ("eigenvalues", "eigenvectors")
    fields = ("solution", "residuals", "rank", "singular_values")
    assert linalg.lstsq(a, a)._fields == fields


def test_solve_takes_vectors_and_broadcasts():
    a, v = draw(2, 3, 3, shift=3), draw(3)
    close(linalg.solve(tensor(a[0]), tensor(v)), np.linalg.solve(a[0], v))
    rows = draw(2, 3)
    expected = np.stack([np.linalg.solve(m, r) for m, r in zip(a, rows, strict=True)])
    close(linalg.solve(tensor(a), tensor(rows)), expected)
    close(linalg.solve(tensor(a), tensor(v)), np.linalg.solve(a, v[:, None])[..., 0])
    b = draw(3, 2)
    close(linalg.solve(tensor(a), tensor(b)), np.linalg.solve(a, b))


def test_lstsq_agrees_with_numpy():
    a, b = draw(5, 3), draw(5, 2)
    got = linalg.lstsq(tensor(a), tensor(b))
    x, residuals, rank, s = np.linalg.lstsq(a, b)
    close(got.solution, x)
    close(got.residuals, residuals)
    assert got.rank.item() == rank
    close(got.singular_values, s)
    thin = a[:, [0, 1, 1]]  # rank 2: the smallest solution, no residuals
    got = linalg.lstsq(tensor(thin), tensor(b))
    close(got.solution, np.linalg.lstsq(thin, b)[0])
    assert got.rank.item() == 2
    assert got.residuals.shape == (0,)
    assert linalg.lstsq(tensor(a), tensor(b[:, 0])).solution.shape == (3,)


@pytest.mark.parametrize("ord", ["fro", "nuc", 2, -2, 1, -1, INF, -INF])
def test_matrix_norms_agree_with_numpy(ord):
    a = draw(2, 3, 4, kind="complex128")
    for x in (a, a.real.copy()):
        expected = np.linalg.norm(x, ord, (1, 2), keepdims=True)
        close(linalg.matrix_norm(tensor(x), ord, keepdim=True), expected)
        close(linalg.norm(tensor(x[0]), ord), np.linalg.norm(x[0], ord))
        close(linalg.norm(tensor(x), ord, (2, 0)), np.linalg.norm(x, ord, (2, 0)))


@pytest.mark.parametrize("ord", [0, 1, 2, 2.5, -1, INF, -INF])
def test_vector_norms_agree_with_numpy(ord):
    a = draw(3, 4)
    close(linalg.vector_norm(tensor(a), ord), np.linalg.norm(a.ravel(), ord))
    got = linalg.vector_norm(tensor(a), ord, dim=0, keepdim=True)
    close(got, np.linalg.norm(a, ord, 0, keepdims=True))
    close(linalg.norm(tensor(a), ord, dim=1), np.linalg.norm(a, ord, 1))


@pytest.mark.parametrize("p", [None, "fro", "nuc", 2, -2, 1, -1, INF, -INF])
def test_condition_numbers_agree_with_numpy(p):
    a = draw(3, 3, shift=2)
    close(linalg.cond(tensor(a), p), np.linalg.cond(a, p))


def test_rank_and_tolerances():
    a = np.diag([1.0, 1e-3, 0.0])
    assert linalg.matrix_rank(tensor(a)).item() == 2
    assert linalg.matrix_rank(tensor(a), rtol=0.01).item() == 1
    assert linalg.matrix_rank(tensor(a), atol=2.0).item() == 0
    assert linalg.matrix_rank(weft.zeros(0, 3)).item() == 0
    close(linalg.pinv(tensor(a), rtol=0.01), np.diag([1.0, 0, 0]))


def test_powers_exponentials_and_chains():
    a = draw(2, 3, 3, shift=3)
    for n in (-2, 0, 1, 3):
        close(linalg.matrix_power(tensor(a), n), np.linalg.matrix_power(a, n))
    w, v = np.linalg.eigh(positive(3, 3))
    expected = (v * np.exp(w)) @ v.T
    close(linalg.matrix_exp(tensor((v * w) @ v.T)), expected)
    turn = tensor([[[0.0, -1.0], [1.0, 0.0]], [[0.0, 100.0], [0.0, 0.0]]])
    expected = [[[np.cos(1), -np.sin(1)], [np.sin(1), np.cos(1)]], [[1, 100], [0, 1]]]
    close(linalg.matrix_exp(turn), np.array(expected))
    parts = [draw(4), draw(4, 2), draw(2, 5), draw(5, 3)]
    close(linalg.multi_dot([tensor(p) for p in parts]), np.linalg.multi_dot(parts))


def test_small_products():
    x, y = draw(2, 3), draw(2, 3)
    close(linalg.cross(tensor(x), tensor(y)), np.cross(x, y))
    close(weft.cross(tensor(x.T), tensor(y.T)), np.cross(x, y).T)
    z = draw(2, 3, kind="complex128")
    close(linalg.vecdot(tensor(z), tensor(z)), (z.conj() * z).sum(-1))
    close(linalg.diagonal(tensor(draw(2, 3, 3) * 0 + 1)), np.ones((2, 3)))
    logdets = weft.logdet(tensor(np.stack([np.eye(2), np.diag([-1.0, 1])])))
    np.testing.assert_array_equal(logdets.numpy(), [0, np.nan])


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 3), (2, 0, 3)])
def test_empty_matrices(shape):
    a = weft.zeros(shape)
    assert linalg.svdvals(a).shape == (*shape[:-2], 0)
    assert linalg.pinv(a).shape == (*shape[:-2], shape[-1], shape[-2])
    q, r = linalg.qr(a)
    assert (q @ r).shape == shape
    if shape[-1] == shape[-2]:
        assert linalg.det(a).item() == 1
        assert linalg.inv(a).shape == shape
        assert linalg.matrix_exp(a).shape == shape


# -- derivatives (the records' own rules are tested one by one in test_every_op)


def outer_of(v, k):
    """A projection: it does not depend on a vector's sign or phase."""
    return v[..., k : k + 1] @ H(v[..., k : k + 1])


def svd_invariant(a):
    u, s, vh = linalg.svd(a, full_matrices=False)
    return s, outer_of(u, 0), outer_of(H(vh), 1), (u * s.exp().unsqueeze(-2)) @ vh


def eigh_invariant(a):
    w, v = linalg.eigh(weft.matmul(a, H(a)))
    return w, outer_of(v, 0), weft.abs(v)


@pytest.mark.parametrize("kind", ["float64", "complex128"])
@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (linalg.inv, (3, 3)),
        (linalg.det, (3, 3)),
        (linalg.slogdet, (2, 3, 3)),
        (linalg.qr, (4, 2)),
        (linalg.qr, (2, 4)),
        (svd_invariant, (3, 3)),
        (svd_invariant, (4, 2)),
        (svd_invariant, (2, 4)),
        (eigh_invariant, (3, 3)),
        (lambda a: linalg.cholesky(a @ H(a)), (3, 3)),
        (lambda a: linalg.cholesky(a @ H(a), upper=True), (2, 2)),
        (linalg.pinv, (4, 2)),
        (linalg.pinv, (2, 3)),
        (linalg.matrix_exp, (2, 2)),
        (lambda a: linalg.matrix_power(a, -2), (2, 2)),
        (lambda a: linalg.norm(a, "nuc"), (3, 2)),
        (lambda a: linalg.norm(a, -2), (3, 2)),
        (lambda a: linalg.cond(a), (3, 2)),
        (lambda a: linalg.lstsq(a, H(a))[:2], (3, 3)),
    ],
)
def test_two_derivatives(fn, shape, kind):
    a = tensor(draw(*shape, kind=kind, shift=2), grad=True)
    assert gradcheck(fn, a)
    assert gradgradcheck(fn, a)


@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_two_derivatives_of_systems(kind):
    a = tensor(draw(2, 3, 3, kind=kind, shift=3), grad=True)
    b = tensor(draw(3, 2, kind=kind), grad=True)
    tri = lambda a, b: linalg.solve_triangular(a, b, upper=True)
    for fn in (linalg.solve, tri):
        assert gradcheck(fn, (a, b))
        assert gradgradcheck(fn, (a, b))
    tall = tensor(draw(4, 2, kind=kind), grad=True)
    b = tensor(draw(4, 2, kind=kind), grad=True)
    assert gradcheck(lambda a, b: linalg.lstsq(a, b)[:2], (tall, b))


def test_hermitian_functions_have_hermitian_gradients():
    for fn in (linalg.cholesky, lambda a: linalg.eigh(a)[1], linalg.eigvalsh):
        a = tensor(positive(3, 3), grad=True)
        out = fn(a)
        (out * tensor(draw(*out.shape))).sum().backward()
        close(a.grad, a.grad.numpy().T)
        assert (a.grad.numpy()[np.triu_indices(3, 1)] != 0).all()


def test_determinant_of_a_singular_matrix_has_a_gradient():
    a = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]], grad=True)
    linalg.det(a).backward()
    cofactors = [[-3, 6, -3], [6, -12, 6], [-3, 6, -3]]
    np.testing.assert_allclose(a.grad.numpy(), cofactors, atol=1e-12)
    zero = tensor([[0.0]], grad=True)
    (g,) = weft.autograd.grad(linalg.det(zero), zero, create_graph=True)
    assert g.item() == 1
    assert weft.autograd.grad(g.sum(), zero)[0].item() == 0


def test_singular_values_that_are_equal_or_zero_keep_gradients_finite():
    for a in (np.eye(3), np.ones((3, 2)), np.zeros((2, 2))):
        x = tensor(a, grad=True)
        linalg.svdvals(x).sum().backward()
        assert np.isfinite(x.grad.numpy()).all()
    x = tensor(np.eye(3), grad=True)
    linalg.svd(x).S.sum().backward()
    close(x.grad, np.eye(3))


@pytest.mark.parametrize("ord", [1, 2, 3, INF])
def test_norm_of_zero_has_a_finite_gradient(ord):
    x = weft.zeros(3, dtype=weft.float64, requires_grad=True)
    linalg.vector_norm(x, ord).backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_added_columns_have_no_derivative():
    a = tensor(draw(4, 2), grad=True)
    with pytest.raises(weft.errors.AutogradError, match=r"not unique.*mode='reduced'"):
        linalg.qr(a, mode="complete").Q.sum().backward()
    with pytest.raises(RuntimeError, match="full_matrices=False"):
        linalg.svd(a).U.sum().backward()
    linalg.svd(a).S.sum().backward()  # the values do not need them
    close(a.grad, (lambda u, s, v: u @ v)(*np.linalg.svd(a.detach().numpy(), False)))


def test_eig_says_that_it_has_no_derivative():
    a = tensor(draw(2, 2), grad=True)
    with pytest.raises(
        weft.errors.AutogradError, match=r"eig: .* use eigh .* A\.detach"
    ):
        linalg.eigvals(a).real.sum().backward()
    with pytest.raises(weft.errors.AutogradError, match="eig: "):
        weft.func.jvp(linalg.eigvals, (a.detach(),), (a.detach(),))


@pytest.mark.parametrize(
    "fn",
    [
        linalg.inv, linalg.det, linalg.slogdet, linalg.qr, linalg.svdvals, linalg.cond,
        lambda a: linalg.cholesky(a @ H(a)), lambda a: linalg.eigh(a + H(a))[0],
        linalg.pinv, linalg.matrix_exp, lambda a: linalg.solve(a, a + 1),
        lambda a: linalg.svd(a), lambda a: linalg.lstsq(a, a), linalg.matrix_rank,
        lambda a: linalg.norm(a, "nuc"), lambda a: linalg.cross(a, a + a * a),
    ],
)  # fmt: skip
def test_vmap_equals_a_loop(fn):
    a = draw(3, 3, 3, shift=3)
    mapped = weft.func.vmap(fn)(tensor(a))
    looped = [fn(tensor(one)) for one in a]
    many = isinstance(looped[0], tuple)
    for k, got in enumerate(mapped if many else [mapped]):
        expected = [one[k] if many else one for one in looped]
        if expected[0].numel():
            close(got, np.stack([e.numpy() for e in expected]))


# -- errors

SINGULAR = weft.stack([weft.eye(2), weft.ones(2, 2)])


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (linalg.inv, r"linalg\.inv: batch entry \(1,\): the matrix is singular"),
        (
            lambda a: linalg.solve(a, a),
            r"linalg\.solve: batch entry \(1,\): .*singular",
        ),
        (lambda a: linalg.inv(a[1]), r"linalg\.inv: the matrix is singular"),
        (
            lambda a: linalg.cholesky(-a),
            r"cholesky: batch entry \(0,\): .* not positive-",
        ),
        (
            lambda a: linalg.solve_triangular(a * 0, a, upper=True),
            r"solve_triangular: batch entry \(0,\): the matrix has a zero on its diag",
        ),
        (lambda a: linalg.matrix_power(a, -1), "singular"),
    ],
)
def test_matrices_without_a_result(fn, text):
    with pytest.raises(linalg.LinAlgError, match=text) as caught:
        fn(SINGULAR)
    assert isinstance(caught.value, np.linalg.LinAlgError)
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value, weft.errors.WeftError)
    assert "test_linalg.py" in str(caught.value)


@pytest.mark.parametrize("bad", [math.nan, INF, -INF])
def test_values_that_are_not_finite_end_quickly(bad):
    a = weft.eye(3).repeat(2, 1, 1)
    a[1, 2, 0] = bad
    for fn in (linalg.svd, linalg.svdvals, linalg.eigh, linalg.eigvalsh, linalg.eig,
               linalg.pinv, linalg.matrix_rank):  # fmt: skip
        with pytest.raises(linalg.LinAlgError, match=r"entry \(1,\): .* NaN or an inf"):
            fn(a)
    with pytest.raises(linalg.LinAlgError, match=r"entry \(1,\): .* not positive"):
        linalg.cholesky(a)
    for fn in (linalg.det, linalg.qr, linalg.matrix_exp):
        fn(a)


@pytest.mark.parametrize(
    "fn",
    [linalg.inv, linalg.det, linalg.slogdet, linalg.cholesky, linalg.eigh, linalg.eig,
     linalg.eigvalsh, linalg.matrix_exp, lambda a: linalg.solve(a, a),
     lambda a: linalg.matrix_power(a, 2), lambda a: linalg.cond(a, 1)],
)  # fmt: skip
def test_matrices_must_be_square(fn):
    with pytest.raises(
        ValueError, match=r"expected square matrices, got shape \(2, 3\)"
    ):
        fn(weft.ones(2, 3))


@pytest.mark.parametrize(
    "fn", [linalg.inv, linalg.svd, linalg.qr, linalg.cholesky, linalg.pinv, linalg.det]
)
@pytest.mark.parametrize("kind", ["int64", "bool"])
def test_types_without_a_routine(fn, kind):
    x = weft.eye(2).to(getattr(weft, kind))
    with pytest.raises(TypeError, match=rf"expected float32, .* got {kind}; convert"):
        fn(x)
    with pytest.raises(
        ValueError, match=r"expected a matrix or a batch .* shape \(2,\)"
    ):
        fn(weft.ones(2))
    with pytest.raises(TypeError, match="expected a tensor, got list"):
        fn([[1.0]])


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: linalg.solve(weft.eye(2), weft.ones(3, 1)), ValueError, "2 rows"),
        (
            lambda: linalg.solve(weft.eye(2), weft.eye(2).double()), TypeError,
            "expected equal dtypes, got float32 and float64",
        ),
        (lambda: linalg.qr(weft.eye(2), "full"), ValueError, "mode must be 'reduced'"),
        (lambda: linalg.eigh(weft.eye(2), "X"), ValueError, "UPLO must be 'L' or 'U'"),
        (lambda: linalg.matrix_norm(weft.eye(2), 3), ValueError, "expected ord 'fro'"),
        (lambda: linalg.matrix_norm(weft.eye(2), dim=1), ValueError, "two dimensions"),
        (lambda: linalg.vector_norm(weft.ones(2), "fro"), TypeError, "to be a number"),
        (lambda: linalg.norm(weft.ones(2, 2, 2), 1), ValueError, "pass dim"),
        (lambda: linalg.norm(weft.tensor([1])), TypeError, "got int64; convert it"),
        (lambda: linalg.matrix_power(weft.eye(2), 1.5), TypeError, "n to be an int"),
        (lambda: linalg.multi_dot([weft.eye(2)]), ValueError, "at least two tensors"),
        (
            lambda: linalg.multi_dot([weft.eye(2), weft.eye(3)]), ValueError,
            r"tensors 0 and 1 of shapes \(2, 2\) and \(3, 3\)",
        ),
        (lambda: linalg.cross(weft.ones(2), weft.ones(2)), ValueError, "size 3 along"),
        (lambda: linalg.pinv(weft.eye(2), rtol="x"), TypeError, "tolerance to be"),
    ],
)  # fmt: skip
def test_errors_say_what_was_expected(call, kind, text):
    with pytest.raises(kind, match=r"linalg\.\w+: .*" + text):
        call()


# -- half types

_SQUARE = [[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]]
_HALF_CALLS = {
    "cholesky": lambda a: linalg.cholesky(a),
    "cond": lambda a: linalg.cond(a),
    "cross": lambda a: linalg.cross(a, a.mT),
    "det": lambda a: linalg.det(a),
    "eigh": lambda a: linalg.eigh(a).eigenvalues,
    "eigvalsh": lambda a: linalg.eigvalsh(a),
    "inv": lambda a: linalg.inv(a),
    "logdet": lambda a: weft.logdet(a),
    "lstsq": lambda a: linalg.lstsq(a, a[:, :1])[0],
    "matrix_exp": lambda a: linalg.matrix_exp(a / 4),
    "matrix_norm": lambda a: linalg.matrix_norm(a, "nuc"),
    "matrix_power": lambda a: linalg.matrix_power(a, 3),
    "multi_dot": lambda a: linalg.multi_dot([a, a, a]),
    "norm": lambda a: linalg.norm(a, 2),
    "pinv": lambda a: linalg.pinv(a),
    "qr": lambda a: linalg.qr(a).R,
    "slogdet": lambda a: linalg.slogdet(a).logabsdet,
    "solve": lambda a: linalg.solve(a, a[:, :1]),
    "solve_triangular": lambda a: linalg.solve_triangular(a.triu(), a, upper=True),
    "svd": lambda a: linalg.svd(a).S,
    "svdvals": lambda a: linalg.svdvals(a),
    "vecdot": lambda a: linalg.vecdot(a, a),
    "vector_norm": lambda a: linalg.vector_norm(a),
    "matmul": lambda a: linalg.matmul(a, a),
    "outer": lambda a: linalg.outer(a[0], a[1]),
    "tensordot": lambda a: linalg.tensordot(a, a, 1),
    "diagonal": lambda a: linalg.diagonal(a),
    "cholesky_ex": lambda a: linalg.cholesky_ex(a).L,
    "householder_product": lambda a: linalg.householder_product(a / 4, a[0] / 8),
    "inv_ex": lambda a: linalg.inv_ex(a).inverse,
    "lu": lambda a: linalg.lu(a).U,
    "lu_factor": lambda a: linalg.lu_factor(a).LU,
    "lu_factor_ex": lambda a: linalg.lu_factor_ex(a).LU,
    "lu_solve": lambda a: linalg.lu_solve(*linalg.lu_factor(a), a[:, :1]),
    "solve_ex": lambda a: linalg.solve_ex(a, a[:, :1]).result,
    "tensorinv": lambda a: linalg.tensorinv(a, 1),
    "tensorsolve": lambda a: linalg.tensorsolve(a, a[0]),
    "vander": lambda a: linalg.vander(a[0] / 4),
}
_HALF = pytest.mark.parametrize("half", [weft.float16, weft.bfloat16], ids=str)


def test_every_function_is_among_those_for_half_types():
    others = {"LinAlgError", "eig", "eigvals", "matrix_rank"}
    others |= {"ldl_factor", "ldl_factor_ex", "ldl_solve"}  # without derivatives
    assert set(linalg.__all__) - others <= set(_HALF_CALLS)


@_HALF
@pytest.mark.parametrize("name", _HALF_CALLS)
def test_half_types_are_computed_wide(name, half):
    """The result is that of float32, rounded once; so is the gradient."""
    fn = _HALF_CALLS[name]
    x = weft.tensor(_SQUARE).to(half).requires_grad_()
    y = x.detach().float().requires_grad_()
    found, want = fn(x), fn(y)
    assert found.dtype is half
    ulp = 2.0**-10 if half is weft.float16 else 2.0**-7
    near = {"rtol": ulp, "atol": ulp}
    np.testing.assert_allclose(found.float().tolist(), want.tolist(), **near)
    found.float().square().sum().backward()
    want.square().sum().backward()
    size = float(y.grad.abs().max())
    assert x.grad.dtype is half
    off = (x.grad.float() - y.grad).abs().max().item()
    assert off <= 16 * ulp * max(size, 1)


@_HALF
def test_half_types_compiled_and_batched(half):
    x = weft.tensor([_SQUARE, _SQUARE]).to(half)
    want = linalg.inv(x)
    assert weft.equal(weft.compile(linalg.inv)(x), want)
    assert weft.equal(weft.func.vmap(linalg.inv)(x), want)


@_HALF
def test_complex_results_of_half_types_are_complex64(half):
    x = weft.tensor(_SQUARE).to(half)
    assert linalg.eig(x).eigenvalues.dtype is weft.complex64
    assert linalg.eigvals(x).dtype is weft.complex64


@_HALF
def test_the_rank_of_a_half_type_allows_for_its_rounding(half):
    row = weft.tensor([[0.1, 0.7, 0.3]])
    x = (weft.tensor([[1.0], [0.3], [0.9]]) * row).to(half)
    assert linalg.matrix_rank(x) == 1
    assert linalg.matrix_rank(x.float()) > 1
    assert linalg.matrix_rank(x, rtol=1e-6) > 1


def test_half_types_do_not_mix_with_others():
    with pytest.raises(TypeError, match="float16"):
        linalg.solve(weft.eye(2).half(), weft.eye(2))


def test_a_norm_of_a_half_type_in_another():
    x = weft.tensor([[300.0, 400.0]]).half()
    assert linalg.norm(x).item() == 500
    assert linalg.matrix_norm(x, dtype=weft.float32).dtype is weft.float32


def test_cholesky_ex_judges_matrices_as_cholesky_does():
    """Which minors have a factor is not asked of eigenvalues, for either half."""
    x = np.linspace(0, 1, 40, dtype="float32")
    kernel = np.exp(-50 * (x[:, None] - x) ** 2)
    for jitter in (0.0, 1e-8, 1e-7, 1e-6, 1e-4):
        matrix = kernel + np.float32(jitter) * np.eye(40, dtype="float32")
        orders = [0] * 2
        for k in range(40, 0, -1):
            try:
                np.linalg.cholesky(matrix[:k, :k])
            except np.linalg.LinAlgError:
                orders = [k] * 2
        found = [
            linalg.cholesky_ex(weft.tensor(matrix), upper=upper).info.item()
            for upper in (False, True)
        ]
        assert found == orders


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0])
@pytest.mark.parametrize("place", [0, 3, 5])
def test_cholesky_ex_names_the_minor(value, place):
    matrices = np.stack([np.eye(6), np.eye(6)])
    matrices[1, place, place] = value
    found = linalg.cholesky_ex(weft.tensor(matrices))
    assert found.info.tolist() == [0, place + 1]
    np.testing.assert_array_equal(found.L[0].numpy(), np.eye(6))
    assert np.isnan(found.L[1].numpy()).all()


def substituted(a, b):
    """Forward substitution, row by row."""
    x = np.zeros(b.shape, np.result_type(a, b))
    for i in range(len(a)):
        x[i] = (b[i] - a[i, :i] @ x[:i]) / a[i, i]
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("n", [1, 5, 40])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_triangular_solves_read_one_triangle(dtype, n, upper, layout):
    rng = np.random.default_rng(n)
    a = rng.uniform(-1, 1, (n, n)) + 0j
    b = rng.uniform(-1, 1, (n, 3)) + 0j
    if dtype.startswith("complex"):
        a, b = a + 1j * rng.uniform(-1, 1, a.shape), b * (1 - 2j)
    else:
        a, b = a.real, b.real
    a, b = (np.tril(a) / n + 2 * np.eye(n)).astype(dtype), b.astype(dtype)
    want = substituted(a.astype("complex128"), b.astype("complex128"))
    if upper:  # the same system from the last row to the first
        a, b, want = a[::-1, ::-1], b[::-1], want[::-1]
    unread = np.tril(np.full((n, n), np.nan), -1)
    given = np.asarray(a + (unread if upper else unread.T), dtype, order=layout)
    batch = weft.tensor(np.stack([given, given]))
    for matrix, right in (
        (weft.from_numpy(given), weft.tensor(b.copy())),
        (batch, weft.tensor(np.stack([b, b]))),
    ):
        found = linalg.solve_triangular(matrix, right, upper=upper).numpy()
        far = np.abs(found - want).max()
        assert far < 20 * np.finfo(dtype).eps * np.abs(want).max()


def test_triangular_solves_are_by_substitution():
    """Each element is as exact as its row allows, however rows are scaled."""
    n = 12
    scale = 10.0 ** np.arange(-n, n, 2)
    a = np.tril(np.random.default_rng(0).uniform(1, 2, (n, n))) * scale[:, None]
    b = scale[:, None] * np.ones((n, 1))
    found = linalg.solve_triangular(weft.tensor(a), weft.tensor(b), upper=False)
    want = substituted(a.astype("longdouble"), b.astype("longdouble"))
    np.testing.assert_allclose(found.numpy(), want.astype(float), rtol=1e-13)

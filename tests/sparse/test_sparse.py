"""Sparse tensors against dense ones; gradients by differences; refusals."""

import numpy as np
import pytest

import weft
from weft.autograd import gradcheck
from weft.errors import ArgumentError, OutOfRangeError, ShapeError

LAYOUTS = ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"]


def example(shape=(4, 6), seed=0, dtype="float64"):
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal(shape) * (rng.uniform(size=shape) < 0.4)
    return weft.tensor(dense.astype(dtype))


def sparse(x, layout):
    block = (2, 3) if layout in ("sparse_bsr", "sparse_bsc") else None
    return x.to_sparse(layout=getattr(weft, layout), blocksize=block)


def same(found, expected):
    np.testing.assert_allclose(
        found.to_dense().detach().numpy(), np.asarray(expected), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_holds_the_same_numbers(layout):
    x = example()
    s = sparse(x, layout)
    assert isinstance(s, weft.Tensor)
    assert repr(s.layout) == f"weft.{layout}"
    assert s.shape == x.shape
    assert s.ndim == 2
    assert s.dtype is x.dtype
    assert s.size() == (4, 6)
    assert s.numel() == 24
    same(s, x)
    same(s.t(), x.T)
    for other in LAYOUTS:
        block = (2, 3) if "bs" in other else None
        same(s.to_sparse(layout=getattr(weft, other), blocksize=block), x)


def test_mT_transposes_each_matrix_of_a_batch():
    x = example((4, 6)).reshape(2, 4, 3)
    same(x.to_sparse().mT, x.mT)
    with pytest.raises(ValueError, match="mT: expected at least 2 dimensions"):
        _ = weft.ones(3).to_sparse().mT


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products(layout):
    x, w = example(), example((6, 5), 1)
    v = weft.arange(6.0, dtype=weft.float64)
    s = sparse(x, layout)
    same(s @ w, x @ w)
    same(weft.mm(s, w), x @ w)
    same(weft.sparse.mm(s, w), x @ w)
    same(s @ v, x @ v)
    same(w.mT @ s.t(), w.mT @ x.mT)
    same(s.matmul(w), x @ w)
    other = sparse(example((6, 6), 2), layout)
    found = s @ other
    same(found, x @ example((6, 6), 2))
    assert found.layout is s.layout
    same(weft.sparse.addmm(weft.ones(4, 5).double(), s, w, beta=2, alpha=3),
         2 + 3 * (x @ w).numpy())  # fmt: skip
    with pytest.raises(ShapeError, match="cannot multiply"):
        s @ weft.ones(5, 2).double()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_elements(layout):
    x, y = example(), example(seed=3)
    s, u = sparse(x, layout), sparse(y, layout)
    same(s + u, x + y)
    same(s - u, x - y)
    same(y + s, x + y)
    same(s * u, x * y)
    same(s * y, x * y)
    same(2 * s, 2 * x)
    same(s / 4, x / 4)
    same(s**2, x**2)
    same(-s, -x)
    for name in ("abs", "sin", "tanh", "sign", "expm1", "floor", "relu", "square"):
        found = getattr(s, name)()
        same(found, getattr(x, name)())
        assert found.layout is s.layout
    assert s.to(weft.float32).dtype is weft.float32
    assert float(s.sum()) == pytest.approx(float(x.sum()))
    same(weft.sparse.sum(s, 0), x.sum(0))
    same(s.index_select(1, weft.tensor([3, 0, 3])), x[:, [3, 0, 3]])
    same(s[1], x[1])
    same(s[1:3, ::2], x[1:3, ::2])
    assert float(s[2, 3]) == float(x[2, 3])
    same(weft.cat([s, u], 1), weft.cat([x, y], 1))
    same(weft.cat([s, u]), weft.cat([x, y]))
    same(s.clone().mul_(2), 2 * x)


def test_softmax_is_over_what_is_held():
    x = example().to_sparse()
    dense = x.to_dense().numpy()
    held = np.where(dense != 0, np.exp(dense), 0)
    for dim in (0, 1):
        total = held.sum(dim, keepdims=True)
        expected = np.divide(held, total, out=np.zeros_like(held), where=total > 0)
        same(weft.sparse.softmax(x, dim), expected)
        log = weft.sparse.log_softmax(x, dim)
        np.testing.assert_allclose(
            log.values().numpy(), np.log(expected[dense != 0]), rtol=1e-10
        )


def test_coalescing_adds_up():
    s = weft.sparse_coo_tensor([[1, 0, 1], [2, 0, 2]], [1.0, 2.0, 3.0], (2, 3))
    assert not s.is_coalesced()
    assert s._nnz() == 3
    assert s._indices().shape == (2, 3)
    with pytest.raises(ArgumentError, match="coalesce"):
        s.values()
    c = s.coalesce()
    assert c.is_coalesced()
    assert c._nnz() == 2
    assert c.indices().tolist() == [[0, 1], [0, 2]]
    assert c.values().tolist() == [2.0, 4.0]
    assert s.abs()._nnz() == 2  # not of the parts of an element


def test_hybrid_tensors():
    x = example((3, 4, 2))
    s = x.to_sparse(1)
    assert (s.sparse_dim(), s.dense_dim()) == (1, 2)
    same(s, x)
    same(s * 2, x * 2)
    same(s[1], x[1])
    same(weft.sparse.sum(s, 1), x.sum(1))
    same(s.unsqueeze(0), x.unsqueeze(0))
    cube = x.to_sparse()
    same(cube.permute(2, 0, 1), x.permute(2, 0, 1))
    same(cube.select(2, 1), x[..., 1])
    same(weft.stack([cube, cube], 1), weft.stack([x, x], 1))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients(layout):
    s, w = sparse(example(), layout), example((6, 3), 1)
    values = s.values() if layout != "sparse_coo" else s._values()

    def product(v, w):
        return s.like(v) @ w

    assert gradcheck(product, (values.requires_grad_(), w.requires_grad_()))
    for fn in (
        lambda v: s.like(v).to_dense() ** 2,
        lambda v: (s.like(v) * example(seed=3)).to_dense(),
        lambda v: (s.like(v) @ s.like(v).t()).to_dense(),
        lambda v: (s.like(v) + s).to_dense() ** 2,
        lambda v: weft.sparse.softmax(s.like(v), 1).to_dense() ** 2,
        lambda v: weft.sparse.sum(s.like(v) ** 2, 0).to_dense(),
        lambda v: s.like(v)[1:, 2:].to_dense() ** 2,
    ):
        assert gradcheck(fn, (values,))


def test_a_leaf_has_a_sparse_gradient():
    s = example().to_sparse().requires_grad_()
    assert s.requires_grad
    assert s.is_leaf
    (s @ weft.ones(6, 2).double()).sum().backward()
    assert s.grad.layout is weft.sparse_coo
    assert s.grad.values().tolist() == [2.0] * s._nnz()
    w = example((6, 3), 1).requires_grad_()
    (s.detach() @ w).sum().backward()
    same(w.grad, s.to_dense().sum(0).unsqueeze(1).expand(6, 3).detach())


def test_sampled_products():
    x, a, b = example(), example((4, 3), 1), example((3, 6), 2)
    s = x.to_sparse_csr()
    found = weft.sparse.sampled_addmm(s, a, b, beta=0.5, alpha=2.0)
    mask = x.numpy() != 0
    same(found, 2 * (a @ b).numpy() * mask + 0.5 * x.numpy())


def test_masks_and_diagonals():
    x, d = example(), example(seed=4) + 1
    same(d.sparse_mask(x.to_sparse()), np.where(x.numpy() != 0, d.numpy(), 0))
    rows = weft.arange(6.0).reshape(2, 3)
    found = weft.sparse.spdiags(rows, weft.tensor([0, -1]), (3, 3))
    same(found, np.diag([0.0, 1, 2]) + np.diag([3.0, 4], -1))


@pytest.mark.parametrize("name", ["exp", "cos", "max", "cumsum", "numpy", "tolist"])
def test_what_has_no_sparse_form_says_so(name):
    s = example().to_sparse()
    with pytest.raises(ArgumentError, match=r"to_dense\(\)"):
        getattr(s, name)(*((0,) if name == "cumsum" else ()))


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: weft.sparse_coo_tensor([[5]], [1.0], (3,)), OutOfRangeError,
         "index 5 at position 0"),
        (lambda: weft.sparse_coo_tensor([[0]], [1.0, 2.0], (3,)), ShapeError, "nnz"),
        (lambda: weft.sparse_coo_tensor([[0]], [1.0], (3, 2)), ShapeError, "fit"),
        (lambda: weft.sparse_csr_tensor([0, 2], [1, 0], [1.0, 2.0], (1, 2),
                                        check_invariants=True),
         ArgumentError, "in order"),
        (lambda: weft.sparse_csr_tensor([0, 1], [7], [1.0], (1, 2),
                                        check_invariants=True),
         OutOfRangeError, "out of range"),
        (lambda: weft.sparse_csr_tensor([0, 2], [0], [1.0], (1, 2),
                                        check_invariants=True),
         ArgumentError, "compressed indices"),
        (lambda: weft.eye(3).to_sparse_bsr((2, 2)), ShapeError, "divide"),
        (lambda: weft.eye(3).indices(), ArgumentError, "to_sparse"),
        (lambda: weft.eye(3).to_sparse() + weft.eye(3), ArgumentError, "to_dense"),
        (lambda: weft.eye(3).to_sparse() / weft.eye(3), ArgumentError, "to_dense"),
        (lambda: weft.sparse.spsolve(None, None), ArgumentError, "spsolve"),
    ],
)  # fmt: skip
def test_mistakes_are_told(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_checks_are_a_context():
    found = weft.sparse.check_sparse_tensor_invariants
    with found(), pytest.raises(OutOfRangeError):
        weft.sparse_csr_tensor([0, 1], [7], [1.0], (1, 2))
    assert not found.is_enabled()


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_compiled_programs_take_sparse_arguments(layout):
    s, w = sparse(example(), layout), example((6, 3), 1)
    step = weft.compile(lambda s, w: (s * 2) @ w.relu())
    same(step(s, w), (s * 2) @ w.relu())
    other = s.like(s._held + 1)
    same(step(other, w), (other * 2) @ w.relu())


def test_compiled_programs_take_sparse_tensors_from_outside():
    s, w = example().to_sparse_csr(), example((6, 3), 1)
    same(weft.compile(lambda w: s @ w)(w), s @ w)
    slope = weft.func.grad(lambda w: ((s @ w) ** 2).sum())
    np.testing.assert_allclose(
        weft.compile(slope)(w).numpy(), slope(w).numpy(), rtol=1e-10
    )


def test_large_products_run_in_loops():
    """The compiled kernel gives the sum of float64, within float32's rounding."""
    rng = np.random.default_rng(5)
    rows, columns = rng.integers(0, 300, (2, 4000))
    values = rng.standard_normal(4000).astype(np.float32)
    dense = rng.standard_normal((300, 16)).astype(np.float32)
    s = weft.sparse_coo_tensor(np.stack([rows, columns]), values, (300, 300))
    expected = np.zeros((300, 16))
    np.add.at(expected, rows, values[:, None].astype(float) * dense[columns])
    np.testing.assert_allclose((s @ weft.tensor(dense)).numpy(), expected, atol=2e-5)
    np.testing.assert_allclose(
        (s.to_sparse_csr() @ weft.tensor(dense)).numpy(), expected, atol=2e-5
    )


def test_an_index_out_of_range_is_refused_by_the_product_too():
    s = weft.sparse_coo_tensor([[5], [0]], [1.0], (3, 3), check_invariants=False)
    with pytest.raises(IndexError):
        s @ weft.ones(3, 2)


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam"])
def test_sparse_gradients_of_embeddings_train_like_dense_ones(name):
    """Rows that every step uses move as under the dense rule."""

    def run(optimizer, sparse):
        table = weft.tensor(np.arange(8.0).reshape(4, 2), requires_grad=True)
        made = getattr(weft.optim, optimizer)([table], lr=0.1)
        for _ in range(3):
            made.zero_grad()
            rows = weft.nn.functional.embedding(
                weft.tensor([1, 3, 1]), table, sparse=sparse
            )
            (rows**2).sum().backward()
            assert table.grad.is_sparse is sparse
            made.step()
        return table.detach().numpy()

    dense = "Adam" if name == "SparseAdam" else name
    np.testing.assert_allclose(run(name, True), run(dense, False), rtol=1e-6)


def test_other_optimizers_refuse_sparse_gradients():
    table = weft.nn.Embedding(5, 2, padding_idx=0, sparse=True)
    table(weft.tensor([0, 3])).sum().backward()
    assert table.weight.grad.coalesce().indices().tolist() == [[3]]
    with pytest.raises(ArgumentError, match="Adam: got a sparse gradient"):
        weft.optim.Adam(table.parameters()).step()
    p = weft.nn.Parameter(weft.ones(2))
    p.sum().backward()
    with pytest.raises(ArgumentError, match="dense gradients"):
        weft.optim.SparseAdam([p]).step()
    with pytest.raises(ArgumentError, match="weight_decay"):
        weft.optim.SGD(table.parameters(), lr=0.1, weight_decay=0.1).step()
    with pytest.raises(ArgumentError, match="sparse=False"):
        weft.compile(lambda ids: table(ids))(weft.tensor([1]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sparse_tensors_are_pickled_and_copied(layout):
    import copy
    import pickle

    s = sparse(example(), layout)
    for twin in (pickle.loads(pickle.dumps(s)), copy.deepcopy(s)):
        assert twin.layout is s.layout
        same(twin, s.to_dense())


def test_the_text_of_a_sparse_tensor():
    s = weft.sparse_coo_tensor([[0, 1]], [2.0, 3.0], (4,))
    assert str(s) == (
        "tensor(indices=tensor([[0, 1]]),\n       values=tensor([2., 3.]),\n"
        "       size=(4,), nnz=2, layout=weft.sparse_coo)"
    )

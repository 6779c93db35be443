"""Sparse tensors against PyTorch's: parts, layouts, results."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch", reason="compares with PyTorch, not installed")

INDICES = [[0, 1, 1, 3, 1], [2, 0, 2, 5, 0]]
VALUES = [3.0, 4.0, -5.0, 0.5, 1.0]
EXPRESSIONS = [
    "s", "s.coalesce()", "s.t()", "-s", "s * 2", "s / 4", "s + s", "s - s", "s * s",
    "s * d", "d + s", "s.abs()", "s.sin()", "s.sqrt().abs()", "s.tanh()", "s.relu()",
    "s @ w", "T.sparse.mm(s, w)", "T.sparse.addmm(b, s, w)", "s @ s.t()", "s.sum()",
    "T.sparse.sum(s, 0)", "T.sparse.sum(s, [1])", "T.sparse.softmax(s, 1)",
    "T.sparse.log_softmax(s, 0)", "s.index_select(1, i)", "s[1]", "s.select(1, 2)",
    "T.cat([s, s])", "T.cat([s, s], 1)", "T.stack([s, s])", "s.to(T.float32)",
    "s.unsqueeze(0)", "s.transpose(0, 1)", "d.sparse_mask(s.coalesce())",
    "s.coalesce().to_sparse_csr()", "s.coalesce().to_sparse_csr() @ w",
    "s.coalesce().to_sparse_csc()", "s.coalesce().to_sparse_csr().t()",
    "d.to_sparse_bsr((2, 3))", "d.to_sparse_bsc((2, 3))", "d.to_sparse(1)",
    "d.to_sparse_csr() * 2", "T.mv(s, w[:, 0])", "s.clone().mul_(2)",
    "T.sparse.spdiags(w[:3], T.tensor([0, -1, 2]), (4, 4))",
    "T.sparse.sampled_addmm(d.to_sparse_csr(), b, b.t() @ b @ b.t() @ d)",
]  # fmt: skip


def names(lib):
    kind = {"dtype": lib.float64}
    return {
        "T": lib,
        "s": lib.sparse_coo_tensor(
            lib.tensor(INDICES), lib.tensor(VALUES, **kind), (4, 6)
        ),
        "d": (lib.arange(24, **kind).reshape(4, 6) - 9) / 7,
        "w": lib.arange(30, **kind).reshape(6, 5) / 7,
        "b": lib.ones(4, 5, **kind),
        "i": lib.tensor([2, 0, 2]),
    }


def parts(x):
    """What a tensor holds, by name."""
    kind = str(x.layout).split(".")[1]
    if kind == "strided":
        return kind, {"values": x}
    if kind == "sparse_coo":
        x = x.coalesce()
        return kind, {"indices": x.indices(), "values": x.values()}
    by_row = kind in ("sparse_csr", "sparse_bsr")
    wanted = (
        ("crow_indices", "col_indices") if by_row else ("ccol_indices", "row_indices")
    )
    return kind, {n: getattr(x, n)() for n in (*wanted, "values")}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_results(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = eval(text, names(torch))
        ours = eval(text, names(weft))
        assert tuple(ours.shape) == tuple(theirs.shape)
        mine, yours = parts(ours), parts(theirs)
    assert mine[0] == yours[0]
    for name, value in yours[1].items():
        np.testing.assert_allclose(
            mine[1][name].numpy(), value.numpy(), rtol=1e-12, atol=1e-14, err_msg=name
        )


@pytest.mark.parametrize("text", ["s.exp()", "s + d", "s > 0", "s.cumsum(0)", "s / d"])
def test_both_refuse(text):
    for lib in (torch, weft):
        with pytest.raises(RuntimeError):
            eval(text, names(lib))


def test_sparse_gradients():
    def run(lib):
        given = names(lib)
        w = given["w"].requires_grad_()
        s = given["s"].coalesce().detach().requires_grad_()
        lib.sparse.mm(s, w).pow(2).sum().backward()
        return w.grad.numpy(), s.grad.coalesce().values().numpy()

    for a, b in zip(run(weft), run(torch), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam"])
def test_optimizers_of_embeddings(name):
    def run(lib):
        table = lib.tensor(np.arange(12.0).reshape(6, 2), requires_grad=True)
        made = getattr(lib.optim, name)([table], lr=0.1)
        for ids in ([1, 3, 1], [0, 3, 5], [2, 2, 1]):
            made.zero_grad()
            rows = lib.nn.functional.embedding(
                lib.tensor(ids), table, sparse=True, padding_idx=5
            )
            (rows**2).sum().backward()
            made.step()
        return table.detach().numpy()

    np.testing.assert_allclose(run(weft), run(torch), rtol=1e-12)

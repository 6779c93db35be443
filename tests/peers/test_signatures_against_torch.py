"""Argument names: what PyTorch calls an argument, Weft calls it too."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest

import weft

torch = pytest.importorskip(
    "torch", reason="compares with PyTorch, which is not installed"
)

# Arguments of storage and layout that mean nothing here.
IGNORED = {"out", "layout", "pin_memory", "memory_format", "non_blocking", "names"}
# Where PyTorch's table of overrides names arguments otherwise than its own
# functions do, or where Weft has no such option.
OTHERWISE = {
    "dsmm", "smm",  # with a dtype of the result
    "bmm", "broadcast_to", "cdist", "cholesky", "cov", "det", "diag_embed", "dot",
    "gather", "isfinite", "isin", "isinf", "isreal", "logdet", "matrix_exp",
    "matrix_power", "meshgrid", "msort", "permute", "polar", "relu", "slogdet",
    "swapdims", "topk", "where", "xlogy", "zeros_like", "ones_like", "full_like",
    "empty_like",
    "adaptive_max_pool1d", "alpha_dropout", "as_strided_scatter",
    "binary_cross_entropy_with_logits", "cholesky_inverse", "cholesky_solve",
    "cosine_embedding_loss", "dropout", "embedding", "get_device",
    "hinge_embedding_loss", "histogram", "index_reduce", "is_conj", "is_distributed",
    "is_inference", "is_neg", "kl_div", "layer_norm", "lobpcg", "margin_ranking_loss",
    "nuclear_norm", "orgqr", "ormqr", "pca_lowrank", "resolve_conj", "resolve_neg",
    "split_with_sizes", "svd_lowrank", "sym_float", "sym_int", "sym_ite", "sym_not",
    "triangular_solve", "triplet_margin_loss", "unsafe_split",
    "unsafe_split_with_sizes",
}  # fmt: skip


def signatures() -> list[tuple[str, set[str], set[str]]]:
    from torch.overrides import get_testing_overrides

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = get_testing_overrides()
    found = []
    for function, stub in table.items():
        name = getattr(function, "__name__", "")
        if getattr(torch, name, None) is function and hasattr(weft, name):
            found.append((name, names(stub), names(getattr(weft, name))))
    return found


def names(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - IGNORED


def test_argument_names() -> None:
    compared = signatures()
    assert len(compared) > 250
    missing = {
        name: sorted(theirs - ours)
        for name, theirs, ours in compared
        if theirs - ours and name not in OTHERWISE and not name.endswith("_copy")
    }
    assert not missing

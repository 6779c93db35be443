"""Every operator and sample of PyTorch's own database of operators, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
pytest.importorskip("expecttest", reason="is needed by PyTorch's database")

import torch
from compare import Failed, plain
from operator_database import (
    differs,
    function_of,
    gradients,
    op_db,
    outcome,
    samples,
    tensors_in,
    translated,
)

import weft

# Values that no two libraries share; shapes and dtypes are compared.
ARBITRARY = {
    "random": "bernoulli cauchy exponential geometric log_normal multinomial normal "
    "nn.functional.alpha_dropout nn.functional.dropout nn.functional.dropout2d "
    "nn.functional.dropout3d nn.functional.feature_alpha_dropout "
    "nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d "
    "nn.functional.multi_head_attention_forward nn.functional.rrelu "
    "nn.functional.scaled_dot_product_attention rand_like randint randint_like randn "
    "randn_like uniform",
    "uninitialised": "empty empty_like empty_permuted empty_strided new_empty "
    "new_empty_strided",
    "signs and phases of vectors": "linalg.eig linalg.eigh linalg.svd pca_lowrank "
    "svd svd_lowrank",
    "which of equals is named": "argsort kthvalue mode sort topk",
}
UNSHARED = {name for names in ARBITRARY.values() for name in names.split()}

# What PyTorch has under a name that is not public, or only for its own kernels.
ABSENT = """
    __rdiv__ __rmatmul__ __rmod__ __rpow__ __rsub__ _batch_norm_with_update
    _chunk_cat _native_batch_norm_legit _softmax_backward_data _unsafe_masked_index
    _unsafe_masked_index_put_accumulate _upsample_bilinear2d_aa chalf
    grid_sampler_2d grid_sampler_3d hash_tensor jiterator_2inputs_2outputs
    jiterator_4inputs_with_extra_args jiterator_binary
    jiterator_binary_return_by_ref jiterator_unary max_pool2d_with_indices_backward
    native_batch_norm native_dropout_backward native_group_norm native_layer_norm
    slice sparse.mm sparse.sampled_addmm torch._scaled_mm torch._scaled_mm_v2
    torch.ops.aten._efficient_attention_forward
    torch.ops.aten._flash_attention_forward torch.ops.aten._safe_softmax.default
"""

# A difference with one of these texts is meant: (operator, text, reason).
MEANT = [
    ("_segment_reduce", "cannot expand", "lengths that leave elements over"),
    ("addbmm", "expected alpha to be an integer", "no scale is cut off silently"),
    ("addmv", "expected alpha to be an integer", "no scale is cut off silently"),
    ("baddbmm", "expected alpha to be an integer", "no scale is cut off silently"),
    ("nn.functional.hardtanh", "-0.5", "a bound of 0.5 is not cut off to 0"),
    ("as_strided.partial_views", "", "the sample is a view of other memory"),
    ("nn.functional.avg_pool", "expected a floating-point dtype", "means of integers"),
    (
        "nn.functional.interpolate",
        "expected a floating-point dtype",
        "means of integers",
    ),
    ("nn.functional.upsample", "expected a floating-point dtype", "means of integers"),
    ("nn.functional.local_response_norm", "torch.int64", "PyTorch's sums are cut off"),
    ("nn.functional.batch_norm", "expected (N, C, ...)", "a vector has no channels"),
    ("nn.functional.gaussian_nll_loss", "same shape", "losses broadcast nothing"),
    ("histogramdd", "in rising order", "edges that fall"),
    ("histc", "Not equal", "PyTorch rounds the edges to half precision"),
    ("nn.functional.grid_sample", "Not equal", "PyTorch's weights have half precision"),
    ("matrix_exp", "nan location", "PyTorch overflows in half precision"),
    ("nn.functional.soft_margin_loss", "inf location", "PyTorch overflows"),
    ("istft", "Not equal", "a complex window: ours is the least-squares inverse"),
    ("logcumsumexp", "expected a floating-point dtype", "not of complex numbers"),
    ("linalg.eig", "no derivative rule", "refused"),
    ("linalg.lstsq", "", "all results for all drivers"),
    ("masked.", "Weft gave", "dtypes follow those of the plain functions"),
    ("sum_to_size", "Weft gave", "a copy has its source's dtype"),
    ("all", "uint8", "truth values are of dtype bool"),
    ("any", "uint8", "truth values are of dtype bool"),
    ("square", "non-boolean", "truth values have no squares"),
]


def _name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}".removesuffix(".")


OPERATORS = [
    pytest.param(op, id=_name(op))
    for op in op_db
    if op.name not in ABSENT.split() and not op.name.startswith("sparse.")
]


def _meant(op: Any, text: str, also: list[tuple[str, str, str]]) -> bool:
    name = _name(op)
    return any(
        name.startswith(start) and part in text for start, part, _ in [*MEANT, *also]
    )


def _both(op: Any, dtype: torch.dtype, sample: Any, grad: bool) -> tuple[Any, Any]:
    """What both libraries make of a sample: values, or gradients."""
    ours, theirs = function_of(op.op), op.op
    input, args, options = sample
    x, more, given = translated(input), translated(args), translated(options)
    if not grad:
        return (
            outcome(lambda: plain(ours(x, *more, **given))),
            outcome(lambda: plain(theirs(input, *args, **options))),
        )
    mine = tensors_in([x, more, given], weft.Tensor)
    yours = tensors_in([input, args, options], torch.Tensor)
    return (
        outcome(lambda: gradients(ours(x, *more, **given), mine, weft)),
        outcome(lambda: gradients(theirs(input, *args, **options), yours, torch)),
    )


@pytest.mark.parametrize("op", OPERATORS)
def test_values(op: Any) -> None:
    found = []
    for name in (
        "bool", "uint8", "int64", "float16", "bfloat16", "float32", "complex64",
    ):  # fmt: skip
        dtype = getattr(torch, name)
        given = samples(op, dtype) if dtype in op.supported_dtypes("cpu") else ()
        for k, sample in enumerate(given):
            ours, theirs = _both(op, dtype, sample, grad=False)
            text = differs(ours, theirs, values=op.name not in UNSHARED)
            text = text and f"{dtype}, sample {k} {sample[2]}: {text}"
            if text and not _meant(op, text, []):
                found.append(text)
    assert not found, f"{len(found)} differ: " + "\n".join(found[:4])


# The same for gradients.
MEANT_GRADIENTS = [
    ("as_strided_scatter", "Not equal", "PyTorch keeps what is overwritten"),
    ("cholesky", "Not equal", "of a triangle that is not read, of a Hermitian part"),
    ("linalg.cholesky", "Not equal", "of the Hermitian part of a complex matrix"),
    ("linalg.pinv.hermitian", "Not equal", "of the Hermitian part"),
    ("linalg.eig", "no derivative rule", "refused"),
    ("nn.functional.ctc_loss", "Not equal", "PyTorch's is that before log_softmax"),
    ("nn.functional.hardsigmoid", "Not equal", "PyTorch's 1/6 has single precision"),
    ("to_sparse", "does not require grad", "of sparse results, by sparse cotangents"),
]
# Which of equals is named decides to which of them the gradient goes, or not at all.
WITHOUT = UNSHARED - {"argsort", "kthvalue", "mode", "sort", "topk"}


@pytest.mark.parametrize(
    "op", [p for p in OPERATORS if p.values[0].name not in WITHOUT]
)
def test_gradients(op: Any) -> None:
    found = []
    for dtype in (torch.float64, torch.complex128):
        supported = dtype in op.supported_backward_dtypes("cpu")
        for k, sample in enumerate(samples(op, dtype, grad=True) if supported else ()):
            ours, theirs = _both(op, dtype, sample, grad=True)
            if isinstance(theirs, Failed):
                continue
            text = differs(ours, theirs)
            text = text and f"{dtype}, sample {k} {sample[2]}: {text}"
            if text and not _meant(op, text, MEANT_GRADIENTS):
                found.append(text)
    assert not found, f"{len(found)} differ: " + "\n".join(found[:4])

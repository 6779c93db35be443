"""Attention and its gradients against PyTorch, eager and compiled."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

import torch

import weft

SHAPES = [  # leading axes, rows, keys, depth, width
    ((2, 3), 7, 7, 4, 4),
    ((2,), 40, 33, 16, 9),
    ((1, 2), 33, 170, 64, 64),
    ((2, 2), 1, 20, 8, 8),
]


def arguments(shape, kind):
    lead, rows, keys, depth, width = shape
    rng = np.random.default_rng(0)
    sizes = (rows, depth), (keys, depth), (keys, width), (rows, width)
    arrays = [rng.standard_normal((*lead, *s)).astype(np.float32) for s in sizes]
    chosen = rng.random((rows, keys)) < 0.7
    chosen[-1] = False  # who sees nobody gives zeros
    masks = {"bool": chosen, "float": rng.standard_normal((rows, keys), np.float32)}
    return arrays, masks.get(kind)


def run(T, tensors, g, mask, causal):
    """The output and the gradients."""
    for x in tensors:
        x.requires_grad_()
    attention = T.nn.functional.scaled_dot_product_attention
    out = attention(*tensors, attn_mask=mask, is_causal=causal)
    return out.detach(), *T.autograd.grad(out, tensors, g)


@pytest.mark.parametrize("kind", ["none", "causal", "bool", "float"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention(shape, kind):
    (q, k, v, g), mask = arguments(shape, kind)
    causal = kind == "causal"
    them = [torch.from_numpy(x.copy()) for x in (q, k, v, g)]
    theirs = None if mask is None else torch.from_numpy(mask)
    want = run(torch, them[:3], them[3], theirs, causal)
    *us, ours = [weft.tensor(x) for x in (q, k, v, g)]
    own = None if mask is None else weft.tensor(mask)
    fn = weft.compile(lambda q, k, v: run(weft, [q, k, v], ours, own, causal))
    for found in (run(weft, us, ours, own, causal), fn(*us)):
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=2e-6)

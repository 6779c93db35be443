"""``nn.attention``: score functions, block masks, causal masks."""

import numpy as np
import pytest

import weft
from weft.nn import functional as F
from weft.nn.attention import SDPBackend, bias, sdpa_kernel
from weft.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    noop_mask,
    or_masks,
)


def arguments(length=6, keys=None, heads=2, key_heads=2):
    weft.manual_seed(0)
    q = weft.randn(2, heads, length, 4)
    k, v = (weft.randn(2, key_heads, keys or length, 4) for _ in range(2))
    return [x.requires_grad_() for x in (q, k, v)]


def plain(q, k, v, change, scale=0.5):
    """Position by position, in NumPy."""
    q, k, v = (x.detach().numpy().astype(np.float64) for x in (q, k, v))
    out, lse = np.zeros((*q.shape[:3], v.shape[-1])), np.zeros(q.shape[:3])
    for b, h, i in np.ndindex(*q.shape[:3]):
        row = np.array([
            change(scale * q[b, h, i] @ k[b, h, j], b, h, i, j)
            for j in range(k.shape[2])
        ])  # fmt: skip
        top = row.max()
        if top == -np.inf:
            lse[b, h, i] = -np.inf
            continue
        e = np.exp(row - top)
        out[b, h, i] = e @ v[b, h] / e.sum()
        lse[b, h, i] = top + np.log(e.sum())
    return out, lse


TABLE = weft.arange(22.0).reshape(2, 11) / 10


def alibi(score, b, h, q, kv):
    return score + TABLE[h, q - kv + 5] * (b + 1)


def causal(b, h, q, kv):
    return q >= kv


def test_scores_are_changed():
    q, k, v = arguments()
    table = TABLE.numpy()
    out, lse = flex_attention(q, k, v, score_mod=alibi, return_lse=True)
    expected = plain(q, k, v, lambda s, b, h, i, j: s + table[h, i - j + 5] * (b + 1))
    assert np.allclose(out.detach(), expected[0], atol=1e-5)
    assert np.allclose(lse.detach(), expected[1], atol=1e-5)
    _, aux = flex_attention(q, k, v, return_aux=AuxRequest(lse=True, max_scores=True))
    assert aux.lse.shape == aux.max_scores.shape == (2, 2, 6)


@pytest.mark.parametrize("length", [5, 8])
def test_masks_in_blocks(length):
    q, k, v = arguments(length, 7)
    blocks = create_block_mask(causal, None, None, length, 7, BLOCK_SIZE=2)
    out = flex_attention(q, k, v, block_mask=blocks)
    expected = F.scaled_dot_product_attention(
        q, k, v, attn_mask=weft.ones(length, 7, dtype=weft.bool).tril()
    )
    assert np.allclose(out.detach(), expected.detach(), atol=1e-5)
    assert weft.equal(blocks.mask()[0, 0], create_mask(causal, 1, 1, length, 7)[0, 0])
    assert blocks.shape == (1, 1, length, 7)
    assert blocks.numel() == length * 7


def test_gradients_and_programs():
    q, k, v = arguments()
    blocks = create_block_mask(causal, None, None, 6, 6, BLOCK_SIZE=4)

    def run(q, k, v):
        return flex_attention(q, k, v, score_mod=alibi, block_mask=blocks)

    compiled = weft.compile(run)
    found = []
    for function in (run, compiled):
        out = function(q, k, v)
        (out * out).sum().backward()
        found.append([out.detach(), *[x.grad.clone() for x in (q, k, v)]])
        for x in (q, k, v):
            x.grad = None
    for eager, native in zip(*found, strict=True):
        assert np.allclose(eager, native, atol=1e-4)
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    assert weft.autograd.gradcheck(run, doubles)


def test_groups_of_heads_and_rows_that_see_nobody():
    q, k, v = arguments(heads=4, key_heads=2)
    out = flex_attention(q, k, v, enable_gqa=True)
    expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert np.allclose(out.detach(), expected.detach(), atol=1e-5)
    nobody = create_block_mask(lambda b, h, q, kv: q < 0, None, None, 6, 6)
    out, lse = flex_attention(
        q, k, v, block_mask=nobody, enable_gqa=True, return_lse=True
    )
    assert not out.any()
    assert (lse == -np.inf).all()


def test_masks_are_combined():
    def window(b, h, q, kv):
        return (q - kv).abs() < 2

    both = create_mask(and_masks(causal, window), 1, 1, 4, 4)
    one = create_mask(or_masks(causal, window), 1, 1, 4, 4)
    a, b = (create_mask(m, 1, 1, 4, 4) for m in (causal, window))
    assert weft.equal(both, a & b)
    assert weft.equal(one, a | b)
    assert create_mask(noop_mask, None, None, 2, 2).all()


def test_masks_from_blocks():
    counts = weft.tensor([[[1, 2]]]).int()
    columns = weft.tensor([[[[0, 1], [0, 1]]]]).int()
    made = BlockMask.from_kv_blocks(counts, columns, BLOCK_SIZE=2, mask_mod=noop_mask)
    assert made.to_dense().tolist() == [[[[1, 0], [1, 1]]]]
    assert made.sparsity() == 25
    assert made.mask()[0, 0].int().tolist() == [[1, 1, 0, 0]] * 2 + [[1] * 4] * 2
    assert "sparsity=25.00%" in repr(made)
    with pytest.raises(ValueError, match="at least 2"):
        BlockMask.from_kv_blocks(counts, weft.tensor([1]))


def test_what_does_not_fit_is_said():
    q, k, v = arguments()
    with pytest.raises(ValueError, match="4 dimensions"):
        flex_attention(q[0], k, v)
    with pytest.raises(ValueError, match="enable_gqa"):
        flex_attention(weft.randn(2, 4, 6, 4), k, v)
    with pytest.raises(ValueError, match="create one that fits"):
        flex_attention(q, k, v, block_mask=create_block_mask(causal, 1, 1, 4, 4))


def test_choices_of_kernels():
    q, k, v = arguments()
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        F.scaled_dot_product_attention(q, k, v)
    with pytest.raises(TypeError, match="SDPBackend"):
        sdpa_kernel("math").__enter__()
    with pytest.raises(ValueError, match="At least one"):
        sdpa_kernel([]).__enter__()


def test_causal_masks():
    q, k, v = arguments(3, 5)
    out = F.scaled_dot_product_attention(q, k, v, bias.causal_lower_right(3, 5))
    last = F.scaled_dot_product_attention(q[:, :, -1:], k, v)
    assert np.allclose(out[:, :, -1:].detach(), last.detach(), atol=1e-6)
    first = F.scaled_dot_product_attention(q, k, v, bias.causal_upper_left(3, 5))
    assert np.allclose(first[:, :, 0].detach(), v[:, :, 0].detach(), atol=1e-6)
    with pytest.raises(ValueError, match="lengths"):
        bias.causal_upper_left(3)

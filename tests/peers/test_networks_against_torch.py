"""Values of layers, losses, attention and autocast beside PyTorch's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import weft

torch = pytest.importorskip(
    "torch", reason="compares with PyTorch, which is not installed"
)
RNG = np.random.default_rng(0)


def both(*shape: int) -> tuple[Any, Any]:
    array = RNG.standard_normal(shape).astype("f")
    return torch.tensor(array), weft.tensor(array)


def close(theirs: Any, ours: Any, atol: float = 1e-5) -> None:
    a, b = theirs.detach().float().numpy(), ours.detach().float().numpy()
    np.testing.assert_allclose(b, a, atol=atol, rtol=1e-4)


@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_pooling(rank: int) -> None:
    size = (9, 8, 7)[:rank]
    (tx, wx), out = both(2, 3, *size), (4, 3, 3)[:rank]
    samples = RNG.random((2, 3, rank)).astype("f")
    name = f"fractional_max_pool{rank}d"
    options = {"output_size": out, "return_indices": True}
    a = getattr(torch.nn.functional, name)(
        tx, 2, **options, _random_samples=torch.tensor(samples)
    )
    b = getattr(weft.nn.functional, name)(
        wx, 2, **options, _random_samples=weft.tensor(samples)
    )
    close(a[0], b[0], 0)
    assert np.array_equal(a[1].numpy(), b[1].numpy())


def test_cross_map_lrn() -> None:
    (tx, wx) = both(2, 7, 3, 3)
    for options in ((3,), (5, 0.1, 0.5, 2.0)):
        close(torch.nn.CrossMapLRN2d(*options)(tx), weft.nn.CrossMapLRN2d(*options)(wx))


@pytest.mark.parametrize("head_bias", [False, True])
def test_adaptive_softmax(head_bias: bool) -> None:
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 6], 2.0, head_bias)
    ours = weft.nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 6], 2.0, head_bias)
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    (tx, wx), target = both(5, 8), [0, 3, 7, 11, 2]
    a = theirs(tx, torch.tensor(target))
    b = ours(wx, weft.tensor(target))
    close(a.output, b.output)
    close(a.loss, b.loss)
    assert theirs.predict(tx).tolist() == ours.predict(wx).tolist()


def test_attention_function() -> None:
    layer = torch.nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True)
    values = {k: v.detach().numpy() for k, v in layer.state_dict().items()}
    (tx, wx) = both(5, 3, 8)
    found = []
    for package, x in ((torch, tx), (weft, wx)):
        p = {k: package.tensor(v) for k, v in values.items()}
        found.append(package.nn.functional.multi_head_attention_forward(
            x, x, x, 8, 2, p["in_proj_weight"], p["in_proj_bias"], p["bias_k"],
            p["bias_v"], True, 0.0, p["out_proj.weight"], p["out_proj.bias"],
        ))  # fmt: skip
    close(found[0][0], found[1][0])
    close(found[0][1], found[1][1])


def test_flex_attention() -> None:
    from torch.nn.attention import flex_attention as theirs

    from weft.nn.attention import flex_attention as ours

    (tq, wq), (tk, wk), (tv, wv) = (both(2, 2, 6, 16) for _ in range(3))
    tb, wb = both(2, 11)

    def relative(table: Any) -> Any:
        return lambda s, b, h, q, kv: s + table[h, q - kv + 5]

    def window(b: Any, h: Any, q: Any, kv: Any) -> Any:
        return (q >= kv) & (q - kv < 3)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mask = theirs.create_block_mask(window, None, None, 6, 6, device="cpu")
        a = theirs.flex_attention(tq, tk, tv, relative(tb), mask, return_lse=True)
    mine = ours.create_block_mask(window, None, None, 6, 6)
    b = ours.flex_attention(wq, wk, wv, relative(wb), mine, return_lse=True)
    close(a[0], b[0])
    close(a[1], b[1])
    assert mask.to_dense().tolist() == mine.to_dense().tolist()


def programs(t: Any) -> dict[str, Any]:
    F = t.nn.functional
    return {
        "matmul": lambda x: x @ x.T,
        "linear": lambda x: F.linear(x, x, x[:, 0]),
        "addmm": lambda x: t.addmm(x @ x.T, x, x.T),
        "einsum": lambda x: t.einsum("ij,kj->ik", x, x),
        "conv1d": lambda x: F.conv1d(x[None], x[None, :, :2]),
        "conv_transpose1d": lambda x: F.conv_transpose1d(x[None], x[:, None, :2]),
        "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
        "prelu": lambda x: F.prelu(x, x[0, :1]),
        "softmax": lambda x: t.softmax(x @ x.T, -1),
        "layer_norm": lambda x: F.layer_norm(x @ x.T, (4,)),
        "gelu": lambda x: F.gelu(x @ x.T),
        "sum": lambda x: (x @ x.T).sum(),
        "exp": lambda x: (x @ x.T).exp(),
        "add": lambda x: (x @ x.T) + x[:, :1],
        "cat": lambda x: t.cat([x @ x.T, x]),
        "mse_loss": lambda x: F.mse_loss(x @ x.T, x[:, :4]),
        "l1_loss": lambda x: F.l1_loss(x @ x.T, x[:, :4]),
        "huber_loss": lambda x: F.huber_loss(x @ x.T, x[:, :4]),
        "cross_entropy": lambda x: F.cross_entropy(x @ x.T, t.tensor([0, 1, 2, 3])),
        "nll_loss": lambda x: F.nll_loss(x @ x.T, t.tensor([0, 1, 2, 3])),
        "kl_div": lambda x: F.kl_div(x @ x.T, x.abs(), reduction="sum"),
        "logits": lambda x: F.binary_cross_entropy_with_logits(x @ x.T, x.sigmoid()),
        "max_pool2d": lambda x: F.max_pool2d((x @ x.T)[None], 2),
        "avg_pool3d": lambda x: F.avg_pool3d((x @ x.T)[None, None], (1, 2, 2)),
    }


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", programs(torch))
def test_autocast(name: str, dtype: str) -> None:
    array = RNG.standard_normal((4, 4)).astype("f")
    found = []
    for package in (torch, weft):
        x = package.tensor(array)
        with package.autocast("cpu", dtype=getattr(package, dtype)):
            found.append(programs(package)[name](x))
    assert str(found[0].dtype).split(".")[-1] == str(found[1].dtype).split(".")[-1]
    close(found[0], found[1], 0.1 + 0.02 * float(found[0].detach().abs().max()))


def test_weight_norm_and_spectral_norm_load_theirs() -> None:
    for norm in ("weight_norm", "spectral_norm"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = getattr(torch.nn.utils, norm)(torch.nn.Linear(4, 3)).eval()
        ours = getattr(weft.nn.utils, norm)(weft.nn.Linear(4, 3)).eval()
        ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
        (tx, wx) = both(2, 4)
        close(theirs(tx), ours(wx))


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "orthogonal"])
def test_parametrizations_have_their_names(name: str) -> None:
    found = []
    for package in (torch, weft):
        layer = package.nn.Linear(3, 3)
        make = getattr(package.nn.utils.parametrizations, name)
        found.append(make(layer))
    theirs, ours = found
    mine = [k for k in ours.state_dict() if not k.endswith(".base")]
    other = [k for k in theirs.state_dict() if not k.endswith(".base")]
    assert sorted(mine) == sorted(other)


def test_state_of_modules_has_their_metadata() -> None:
    found = []
    for package in (torch, weft):
        nn = package.nn
        state = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1)).state_dict()
        found.append((list(state), dict(state._metadata)))
    assert found[0] == found[1]

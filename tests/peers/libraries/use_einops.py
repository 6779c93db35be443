"""einops: functions, layers and einsum."""

import torch
from common import case, fill, main, normal
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce


@case
def functions():
    x = normal(2, 6, 4).requires_grad_()
    out = {
        "rearranged": rearrange(x, "b (h w) c -> b c h w", h=2),
        "reduced": reduce(x, "b (n two) c -> b c", "max", two=2),
        "mean": reduce(x, "b n c -> c", "mean"),
        "repeated": repeat(x, "b n c -> b n (c k)", k=3),
        "einsum": einsum(x, x, "b n c, b m c -> b n m"),
    }
    packed, shapes = pack([x, x[:, 0]], "b * c")
    out["packed"] = packed
    out["unpacked"] = unpack(packed, shapes, "b * c")
    sum(
        v.square().sum() for v in out.values() if isinstance(v, torch.Tensor)
    ).backward()
    return {**out, "gradient": x.grad}


@case
def layers():
    model = torch.nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2),
        EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=12, d=5),
        torch.nn.ReLU(),
        Reduce("b t d -> b d", "mean"),
    )
    fill(model)
    x = normal(2, 3, 4, 6).requires_grad_()
    y = model(x)
    y.sum().backward()
    return {"y": y, "x": x.grad, "w": model[1].weight.grad}


main()

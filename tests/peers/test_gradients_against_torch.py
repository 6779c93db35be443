"""Gradients of functions, of indexing and of in-place programs, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")

from compare import both, compare

# Each program computes r from x (3, 4), y (3, 4) and v (4,), float64 leaves.
PROGRAMS = """
x + y
x * v
x / y
x ** 3
y ** x
y ** 0.5
2 ** x
x.clamp(-0.5, 0.5)
x.clamp(min=y)
T.clamp(T.tensor([0.0, 1.0, 2.0]) * v[:3], 0, 1)
T.maximum(x, y)
T.minimum(x, x)
T.where(x > 0, x, y)
T.where(x > 0, x, 0)
x.abs()
(x * 0).abs()
x.sum(0)
x.mean((0, 1))
x.prod()
(x * (x > 0)).prod(1)
x.prod(1)
x.amax(1)
x.amax()
(x * 0).amax(1)
x.max(1).values
(x * 0).max(1).values
x.max()
(x * 0).max()
x.min(0).values
x.var(0)
x.std()
x.std(1, unbiased=False)
(x * 0 + 1).std()
x.logsumexp(1)
x.norm()
(x * 0).norm()
x.norm(1)
x.norm(3, 1)
x.norm(float("inf"))
x.cumsum(1)
x.cumprod(0)
(x * (x > 0)).cumprod(0)
x.cummax(1).values
x.sort(1).values
x.sort(0, descending=True).values
x.topk(2, 1).values
x.kthvalue(2, 1).values
x.median()
x.median(1).values
x.quantile(0.3, 1)
T.logcumsumexp(x, 1)
x.diff(dim=0)
x.reshape(2, 6)[1]
x.view(-1)[::2]
x.transpose(0, 1)[1]
x.expand(2, 3, 4).sum(0)
x[None].squeeze(0)
T.cat([x, y], 1)[:, 2:6]
T.stack([x, y])[0]
x.split(2)[0]
x.chunk(2, 1)[1]
x.unbind(1)[2]
x.repeat(2, 1)
x.tile(2, 2)
x.repeat_interleave(2, 1)
x.flip(0)
x.roll(1, 1)
x.rot90()
F.pad(x, (1, 2))
F.pad(x[None], (1, 1), mode="reflect")
F.pad(x[None], (1, 1), mode="replicate")
F.pad(x[None], (1, 1), mode="circular")
x.unfold(1, 2, 1)
x.tril()
x.diag()
v.diag()
x.diagonal(1)
T.diag_embed(x)
x[1]
x[:, 1:3]
x[T.tensor([0, 0, 2])]
x[T.tensor([0, 0]), T.tensor([1, 1])]
x[x > 0]
x[:, T.tensor([3, 3])]
x[None, ..., 0]
x.gather(1, T.tensor([[0, 0], [1, 2], [3, 3]]))
x.scatter(1, T.tensor([[0], [1], [2]]), y[:, :1])
x.scatter_add(1, T.tensor([[0, 0], [1, 1], [2, 3]]), y[:, :2])
x.scatter_reduce(1, T.tensor([[0, 0], [1, 1], [2, 3]]), y[:, :2], "amax")
x.scatter_reduce(1, T.tensor([[0, 0], [1, 1], [2, 3]]), y[:, :2], "prod")
x.scatter_reduce(1, T.tensor([[0, 0], [1, 1], [2, 3]]), y[:, :2], "mean")
x.scatter_reduce(1, T.tensor([[0, 0], [1, 1], [2, 3]]), y[:, :2] * 0, "prod")
x.index_select(1, T.tensor([0, 0, 3]))
x.index_add(0, T.tensor([0, 0]), y[:2], alpha=2)
x.index_copy(0, T.tensor([1, 2]), y[:2])
x.index_fill(0, T.tensor([1]), 3)
x.masked_fill(x > 0, 2.0)
x.masked_select(x > 0)
x.masked_scatter(x > 0, y)
x.take(T.tensor([0, 0, 5]))
x.take_along_dim(x.argsort(1), 1)
x.index_put((T.tensor([0, 0]),), y[:2], accumulate=True)
x.put(T.tensor([0, 3]), v[:2])
x.select_scatter(v, 0, 1)
x.diagonal_scatter(v[:3])
T.outer(v, v)
x @ y.T
x @ v
v @ v
T.cdist(x, y)
T.cov(x)
T.trapezoid(x, y)
T.xlogy(y, y)
T.xlogy(y * 0, y)
T.atan2(x, y)
T.hypot(x, y)
(x * 0).sqrt()
x.exp().log1p()
x.sigmoid()
x.tanh()
T.lerp(x, y, 0.3)
T.lerp(x, y, y)
T.addcmul(x, y, y, value=2)
T.addcdiv(x, y, y, value=2)
x.sinc()
(x * 0).sinc()
y.rsqrt()
y.reciprocal()
x.remainder(y)
x.relu()
(x * 0).relu()
T.kron(x, v)
x.fmod(y)
x.frac()
x.round()
x.sign() * x
x.copysign(y)
x.nan_to_num()
T.fmax(x, y)
T.logaddexp(x, y)
T.complex(x, y).abs()
(T.complex(x, y) ** 2).real
T.complex(x, y).angle()
T.view_as_real(T.complex(x, y).exp())
t = x * 1; t[0] = v; t
t = x * 1; t[:, 1] = y[:, 0] * 2; t * t
t = x * 1; t[1:] = t[:-1]; t
t = x * 1; t[x > 0] = 0; t
t = x * 1; t[T.tensor([0, 2])] = y[:2]; t
t = x * 1; t += y; t
t = x * 1; t[0] += v; t
t = x * 1; t[0] *= 3; t * x
t = x * 1; t.mul_(y).add_(1); t
t = x * 1; u = t[0]; u.mul_(v); t
t = x * 1; u = t.T; u[1] = y[:, 0]; t
t = x * 1; u = t.view(-1); u[2:5].exp_(); t * u.view(3, 4)
t = x * 1; u = t[1]; t.mul_(2); u * v
t = x * 1; u = t.diagonal(); u.mul_(v[:3]); t
t = x * 1; t.masked_fill_(x > 0, 0); t
t = x * 1; t.scatter_(1, T.tensor([[0], [1], [2]]), y[:, :1]); t
t = x * 1; t.index_add_(0, T.tensor([0, 0]), y[:2]); t
t = x * 1; t.copy_(y); t
t = x * 1; t.zero_(); t + x
t = x * 1; t.clamp_(0, 1); t
t = x * 1; t.t_(); t @ y
t = x * 1; t.unsqueeze_(0); t * v
t = T.zeros(3, 4, dtype=T.float64); t[1] = v; t[0, 0] = v[1]; t * 2
t = x * 1; a, c = t.split(2, 1); d = a * c; d.sum(1)
t = x.clone(); t[0, 0] = 0; (t ** 2).cumsum(0)
"""


def make_inputs() -> dict:
    rng = np.random.default_rng(3)
    named = {"x": (3, 4), "y": (3, 4), "v": (4,)}
    inputs = {}
    for name, shape in named.items():
        low = 0.3 if name == "y" else -2
        ours, theirs = both(rng.uniform(low, 2, shape))
        inputs[name] = (ours.requires_grad_(), theirs.requires_grad_())
    return inputs


@pytest.mark.parametrize("program", PROGRAMS.strip().splitlines())
def test_same_gradients(program: str) -> None:
    *statements, last = program.split("; ")
    weigh = "(r * T.arange(1, r.numel() + 1).reshape(r.shape)).sum().backward()"
    full = "; ".join([*statements, f"r = {last}", weigh, "r, x.grad, y.grad, v.grad"])
    full = full.replace("r, x.grad, y.grad, v.grad", "[r] + " + GRADS)
    assert not (problem := compare(full, make_inputs())), problem


# PyTorch's second derivative is NaN at these kinks and removable points, Weft's 0.
SMOOTHER = ("(x * 0).norm()", "(x * 0).sinc()")


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS.strip().splitlines() if p not in SMOOTHER]
)
def test_same_second_gradients(program: str) -> None:
    """The gradient of a weighted sum of squared gradients."""
    *statements, last = program.split("; ")
    full = "; ".join([
        *statements,
        f"r = {last}",
        "w = T.arange(1, r.numel() + 1).reshape(r.shape)",
        "o = dict(create_graph=True, allow_unused=True)",
        "g = T.autograd.grad((r * w).sum(), [x, y, v], **o)",
        "h = sum((k ** 2).sum() for k in g if k is not None)",
        "h.backward() if h.requires_grad else None",
        GRADS,
    ])  # fmt: skip
    assert not (problem := compare(full, make_inputs())), problem


GRADS = "[T.zeros_like(k) if k.grad is None else k.grad for k in [x, y, v]]"

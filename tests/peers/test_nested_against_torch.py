"""Nested tensors give PyTorch's numbers and gradients, in both layouts."""

import math

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch", reason="compares with PyTorch")

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")

LENGTHS = (2, 4, 3)


def parts(lib, *rest):
    rng = np.random.default_rng(0)
    return [lib.tensor(rng.standard_normal((n, *rest))) for n in LENGTHS]


def row(lib, *shape):
    return lib.arange(math.prod(shape), dtype=lib.float64).reshape(shape) / 10


def packed(lib, *rest):
    """A jagged tensor, and its values as a leaf."""
    values = lib.cat(parts(lib, *rest)).requires_grad_()
    offsets = lib.tensor([0, *np.cumsum(LENGTHS).tolist()])
    return lib.nested.nested_tensor_from_jagged(
        values, offsets, min_seqlen=2, max_seqlen=4
    ), values


def numbers(lib, x):
    """A result as a list of arrays."""
    if isinstance(x, (tuple, list)):
        return [a for one in x for a in numbers(lib, one)]
    if not isinstance(x, lib.Tensor):
        return [np.asarray(x)]
    pieces = x.unbind() if x.is_nested else [x]
    return [np.asarray(one.detach().cpu().numpy()) for one in pieces]


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


JAGGED = {
    "add": lambda lib, x: x + x,
    "scalar": lambda lib, x: 2 * x - 1,
    "reverse": lambda lib, x: 1 / (x * x + 1),
    "row": lambda lib, x: x * row(lib, 4),
    "ones": lambda lib, x: x + row(lib, 1, 1, 4),
    "relu": lambda lib, x: lib.relu(x),
    "gelu": lambda lib, x: lib.nn.functional.gelu(x),
    "silu": lambda lib, x: lib.nn.functional.silu(x),
    "leaky": lambda lib, x: lib.nn.functional.leaky_relu(x, 0.1),
    "clamp": lambda lib, x: x.clamp(min=0.1),
    "exp": lambda lib, x: x.exp().log().sin().abs(),
    "pow": lambda lib, x: (x**2 + 1).sqrt(),
    "where": lambda lib, x: lib.where(x > 0, x, -x),
    "softmax": lambda lib, x: lib.softmax(x, -1),
    "log_softmax": lambda lib, x: lib.nn.functional.log_softmax(x, dim=-1),
    "softmax over the ragged": lambda lib, x: lib.softmax(x, 1),
    "layer_norm": lambda lib, x: lib.nn.functional.layer_norm(x, (4,)),
    "rms_norm": lambda lib, x: lib.nn.functional.rms_norm(x, (4,)),
    "linear": lambda lib, x: lib.nn.functional.linear(x, row(lib, 3, 4), row(lib, 3)),
    "matmul": lambda lib, x: x @ row(lib, 4, 3),
    "sum of rows": lambda lib, x: x.sum(-1),
    "mean of rows": lambda lib, x: x.mean(dim=-1, keepdim=True),
    "sum over the ragged": lambda lib, x: x.sum(1),
    "mean over the ragged": lambda lib, x: x.mean(dim=1),
    "sum of all": lambda lib, x: (x * x).sum(),
    "mean of all": lambda lib, x: x.mean(),
    "padded": lambda lib, x: x.to_padded_tensor(-1.0),
    "padded more": lambda lib, x: lib.nested.to_padded_tensor(x, 0.0, (3, 6, 4)),
    "component": lambda lib, x: x[1],
    "chunk": lambda lib, x: x.chunk(2, dim=-1),
    "unsqueeze": lambda lib, x: x.unsqueeze(-1),
    "unflatten": lambda lib, x: x.unflatten(-1, [2, 2]),
    "heads": lambda lib, x: x.unflatten(-1, [2, 2]).transpose(1, 2),
    "flatten": lambda lib, x: x.unflatten(-1, [2, 2]).flatten(-2),
    "view": lambda lib, x: x.view(3, -1, 2, 2),
    "cat": lambda lib, x: lib.cat([x, x * 2], dim=-1),
    "double": lambda lib, x: x.float() * 2,
    "zeros_like": lambda lib, x: lib.zeros_like(x),
    "clone": lambda lib, x: x.clone().detach(),
    "values": lambda lib, x: (x.values(), x.offsets()),
}


# PyTorch has no backward of these, or a wrong one: components are the oracle.
COMPONENTS = {
    "leaky": lambda x: torch.nn.functional.leaky_relu(x, 0.1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "softmax over the ragged": lambda x: x.softmax(0),
    "sum of rows": lambda x: x.sum(-1),
    "sum over the ragged": lambda x: x.sum(0),
    "mean over the ragged": lambda x: x.mean(0),
    "padded more": lambda x: torch.nn.functional.pad(x, (0, 0, 0, 6 - len(x))),
}


def by_components(name):
    leaves = [p.requires_grad_() for p in parts(torch, 4)]
    rows = [COMPONENTS[name](x) for x in leaves]
    sum(row.square().sum() for row in rows).backward()
    dense = ("over the ragged" in name and "softmax" not in name) or "padded" in name
    found = [torch.stack(rows)] if dense else rows
    return [x.detach().numpy() for x in (*found, torch.cat([p.grad for p in leaves]))]


@pytest.mark.parametrize("name", JAGGED)
def test_functions_of_jagged_tensors(name):
    results = []
    for lib in (weft, torch):
        if lib is torch and name in COMPONENTS:
            results.append(by_components(name))
            continue
        x, values = packed(lib, 4)
        out = JAGGED[name](lib, x)
        found = numbers(lib, out)
        wanted = [out] if isinstance(out, lib.Tensor) else list(out)
        total = sum(
            (
                (y.values() if y.is_nested else y).double().square().sum()
                for y in wanted
                if y.requires_grad
            ),
            lib.zeros((), dtype=lib.float64),
        )
        if total.requires_grad:
            total.backward()
            found.append(values.grad.numpy())
        results.append(found)
    same(*results)


def attention(lib, x, causal):
    heads = [y.unflatten(-1, [2, 2]).transpose(1, 2) for y in (x, x * 0.5, x.exp())]
    function = lib.nn.functional.scaled_dot_product_attention
    out = function(*heads, is_causal=causal)
    return out.transpose(1, 2).flatten(-2)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    results = []
    for lib in (weft, torch):
        x, values = packed(lib, 4)
        if lib is torch and causal:  # component by component, for want of a kernel
            rows = [attention_of_one(y, causal) for y in x.unbind()]
            total = sum(row.square().sum() for row in rows)
            found = [row.detach().numpy() for row in rows]
        else:
            out = attention(lib, x, causal)
            found = numbers(lib, out)
            total = out.values().square().sum()
        total.backward()
        results.append([*found, values.grad.numpy()])
    same(*results)


def attention_of_one(x, causal):
    heads = [
        y.unflatten(-1, [2, 2]).transpose(0, 1)[None] for y in (x, x * 0.5, x.exp())
    ]
    out = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=causal)
    return out[0].transpose(0, 1).flatten(-2)


STRIDED = {
    "add": lambda lib, x: x + x,
    "scalar": lambda lib, x: x * 3,
    "relu": lambda lib, x: lib.relu(x),
    "gelu": lambda lib, x: lib.nn.functional.gelu(x),
    "tanh": lambda lib, x: lib.tanh(x),
    "padded": lambda lib, x: lib.nested.to_padded_tensor(x, 0.5),
    "component": lambda lib, x: x[2],
    "transpose": lambda lib, x: x.transpose(1, 2),
    "linear": lambda lib, x: lib.nn.functional.linear(x, row(lib, 3, 4)),
    "layer_norm": lambda lib, x: lib.nn.functional.layer_norm(
        x, (4,), row(lib, 4), row(lib, 4)
    ),
    "softmax": lambda lib, x: lib.softmax(x, -1),
    "matmul": lambda lib, x: lib.matmul(x, x.transpose(1, 2)),
    "clone": lambda lib, x: x.clone(),
    "size": lambda lib, x: (x.size(0), x.size(2), x.dim(), x.numel()),
}


@pytest.mark.parametrize("name", STRIDED)
def test_functions_of_strided_tensors(name):
    results = []
    for lib in (weft, torch):
        leaves = [p.requires_grad_() for p in parts(lib, 4)]
        x = lib.nested.as_nested_tensor(leaves)
        out = STRIDED[name](lib, x)
        found = numbers(lib, out)
        if isinstance(out, lib.Tensor):
            pieces = out.unbind() if out.is_nested else [out]
            if name != "tanh":  # PyTorch has no backward of it
                sum(piece.square().sum() for piece in pieces).backward()
            found += [np.zeros(0) if p.grad is None else p.grad.numpy() for p in leaves]
        results.append(found)
    same(*results)


def test_components_that_differ_in_two_dimensions():
    results = []
    for lib in (weft, torch):
        a, b = row(lib, 2, 3), row(lib, 1, 4)
        x = lib.nested.nested_tensor([a, b])
        found = numbers(lib, x * 2 + x)
        results.append([*found, lib.nested.to_padded_tensor(x, 9.0).numpy()])
    same(*results)


def test_narrow_and_lengths():
    results = []
    for lib in (weft, torch):
        x = lib.arange(24.0).reshape(2, 4, 3).requires_grad_()
        starts, lengths = lib.tensor([0, 1]), lib.tensor([2, 3])
        y = lib.nested.narrow(x, 1, starts, lengths, layout=lib.jagged)
        found = [*numbers(lib, y), *numbers(lib, y * 2), y.lengths().numpy()]
        (y * y).unbind()[1].sum().backward()
        results.append([*found, x.grad.numpy()])
    same(*results)


def test_a_network_trains_on_jagged_sequences():
    losses = []
    for lib in (weft, torch):
        nn = lib.nn

        class Block(nn.Module):
            def __init__(self, nn=nn):
                super().__init__()
                self.norm = nn.LayerNorm(4)
                self.qkv = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
                self.out, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

            def forward(self, x, lib=lib):
                q, k, v = (
                    part(self.norm(x)).unflatten(-1, [2, 2]).transpose(1, 2)
                    for part in self.qkv
                )
                y = lib.nn.functional.scaled_dot_product_attention(q, k, v)
                x = x + self.out(y.transpose(1, 2).flatten(-2))
                return self.head(lib.nn.functional.gelu(x))

        model = Block().double()
        state = np.random.default_rng(1)
        with lib.no_grad():
            for p in model.parameters():
                p.copy_(lib.tensor(state.standard_normal(tuple(p.shape)) / 2))
        optimizer = lib.optim.SGD(model.parameters(), lr=0.05)
        x, _ = packed(lib, 4)
        run = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(x.detach()).values().square().mean()
            loss.backward()
            optimizer.step()
            run.append(loss.item())
        losses.append(np.asarray(run))
    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert losses[0][-1] < losses[0][0]

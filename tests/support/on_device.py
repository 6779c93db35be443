"""Operators on a device, and results there compared with the CPU's."""

import numpy as np

import weft
from weft import nn, optim


def flat(out):
    if isinstance(out, weft.Tensor):
        yield out
    elif isinstance(out, dict):
        yield from flat(list(out.values()))
    elif isinstance(out, (tuple, list)):
        for one in out:
            yield from flat(one)


def same(there, here, device, close=0.0):
    """Tensors on the device, of the values that were computed on the CPU."""
    there, here = list(flat(there)), list(flat(here))
    assert len(there) == len(here)
    for a, b in zip(there, here, strict=True):
        assert a.device is device
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        a, b = (t.detach().cpu().to(weft.complex128).numpy() for t in (a, b))
        np.testing.assert_allclose(a, b, rtol=close, atol=close)


def rounding(device, tensors):
    """What rounding allows: a real GPU has other functions than NumPy."""
    if device.type != "cuda":
        return 1e-12
    return 1e-6 if any(t.dtype is weft.float32 for t in flat(tensors)) else 1e-9


def runs(op, sample, device):
    tensors = [
        weft.tensor(a).to(device) if isinstance(a, (np.ndarray, np.generic)) else a
        for a in sample.args
    ]
    leaves = [
        t.requires_grad_()
        for t in tensors
        if isinstance(t, weft.Tensor) and t.dtype.is_inexact
    ]
    out = op(*tensors, **sample.params)
    wanted = [o for o in flat(out) if o.requires_grad]
    if wanted:
        sum((o * o.abs()).sum().abs() for o in wanted).backward()
    return out, [x.grad for x in leaves if x.grad is not None]


def small(sample):
    """Whether a sample is small enough for an interpreter of elements."""
    arrays = [a for a in sample.args if isinstance(a, (np.ndarray, np.generic))]
    return arrays and sum(np.size(a) for a in arrays) <= 200


def check_compiled(op, device, rng, close):
    """An operator and its gradients as a compiled program there, and on the CPU."""

    def gradients(*tensors):
        values = iter(tensors)
        args = [next(values) if t else a for t, a in given]
        out = op(*args, **sample.params)
        wanted = [o for o in flat(out) if o.dtype.is_inexact and o.requires_grad]
        leaves = [t for t in tensors if t.requires_grad]
        grads = ()
        if wanted:
            total = sum((o * o.abs()).sum().abs() for o in wanted)
            grads = weft.autograd.grad(total, leaves, materialize_grads=True)
        return tuple(flat(out)), tuple(grads)

    for sample in list(filter(small, op.samples(rng)))[:2]:
        given = [(isinstance(a, (np.ndarray, np.generic)), a) for a in sample.args]
        here = [weft.tensor(a) for t, a in given if t]
        there = [x.to(device) for x in here]
        for x in (*here, *there):
            x.requires_grad_(x.dtype.is_inexact)
        try:
            want = gradients(*here)
        except weft.errors.WeftError:
            continue  # no second operator for what it gives
        try:
            found = weft.compile(gradients)(*there)
        except weft.graph.CaptureError:  # whose result depends on values
            continue
        same(found, want, device, close=close(device, want))


def train(device, compiled, steps=8, dropout=0.0):
    """The losses of a small network that trains there, and its step."""
    weft.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 8),
        nn.GELU(),
        nn.LayerNorm(8),
        nn.Dropout(dropout),
        nn.Linear(8, 3),
    ).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=0.05)
    x = weft.randn(12, 4).to(device)
    y = weft.randint(0, 3, (12,)).to(device)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step = weft.compile(step) if compiled else step
    losses = [step(x, y).item() for _ in range(steps)]
    assert all(p.device is weft.device(device) for p in model.parameters())
    return losses, step

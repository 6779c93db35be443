"""Operators on a device, and results there compared with the CPU's."""

import numpy as np

import weft


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

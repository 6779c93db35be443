"""Loops over merged axes, run by run where elements lie together."""

import numpy as np
import pytest
from by_loops import by_loops, compiled, run, same_for_threads, whole

import weft


def merged(x):
    """Heads side by side: (B, H, T, D) to (B, T, H * D)."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1) * 2


def joined(x):
    return weft.cat([merged(x), merged(x + 1)], -1).sum((0, 1))


def parted(x):
    """And apart again."""
    b, h, t, d = x.shape
    return (merged(x) + 1).reshape(b, t, h, d).transpose(1, 2).reshape(b, h, t * d)


@pytest.mark.parametrize("fn", [merged, joined, parted])
@pytest.mark.parametrize("shape", [(2, 3, 5, 16), (2, 4, 3, 48), (1, 3, 7, 15)])
def test_results_are_the_same(fn, shape):
    x = weft.randn(shape)
    native = compiled(fn, x)
    assert whole(native)
    (got,) = run(native, x)
    (loops,) = by_loops(native, x)
    want = fn(weft.tensor(x.numpy().astype(np.float64))).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(loops, want, rtol=1e-5, atol=1e-5)
    same_for_threads(native, x)


def texts(fn, *args, **options):
    return "\n".join(map(str, compiled(fn, *args, **options).lowered.kernels.values()))


def test_runs_have_loops_of_their_own():
    text = texts(merged, weft.randn(2, 3, 5, 16))
    assert "for i2r0 < 3" in text
    assert "for i2e0 < 16" in text
    assert "//16" not in text


def test_short_runs_stay_in_one_loop():
    assert "e0 <" not in texts(merged, weft.randn(2, 3, 5, 8))

"""Loops that are vectors by a schedule: LLVM has nothing to complain of."""

import numpy as np
import pytest

import weft


@pytest.mark.parametrize("rows", [2, 5, 7, 8, 9, 20, 31])
@pytest.mark.parametrize("columns", [2, 3])
def test_strided_rows_are_compiled_without_a_word(
    rows, columns, rng, capfd, tmp_path, monkeypatch
):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))  # so that LLVM runs
    x, at = rng.standard_normal((rows, columns)), rng.integers(0, columns, 6)

    def fn(x, at):
        return x[:, at].T.contiguous() * 2, x[:, ::2] + 1, x[1::3] * 3

    found = weft.compile(fn)(weft.tensor(x, dtype=weft.float32), weft.tensor(at))
    want = x.astype(np.float32)
    np.testing.assert_array_equal(found[0], (want[:, at].T * 2))
    np.testing.assert_array_equal(found[1], want[:, ::2] + 1)
    np.testing.assert_array_equal(found[2], want[1::3] * 3)
    assert capfd.readouterr().err == ""

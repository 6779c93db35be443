"""Fed values: which are converted, which are refused."""

import numpy as np
import pytest

import weft
from weft import static
from weft.errors import DTypeError, ShapeError

KEPT = [
    (weft.float32, 1), (weft.float32, True), (weft.float32, [1, 2]),
    (weft.float32, np.array([1.5])), (weft.float32, 2**40), (weft.float32, np.nan),
    (weft.float16, np.array([1 / 3])), (weft.int32, 2.0), (weft.int32, [True, False]),
    (weft.int32, np.array([300])), (weft.uint8, [0, 255]), (weft.bool, [0, 1]),
    (weft.complex64, 1.5), (weft.int64, np.float32(3)),
]  # fmt: skip
REFUSED = [
    (weft.int32, 1.5, "float64 values such as 1.5"),
    (weft.int32, [2, np.nan], "float64 values such as nan"),
    (weft.int32, 2**40, "int64 values such as 1099511627776"),
    (weft.uint8, [3, -1], "int64 values such as -1"),
    (weft.bool, 2, "int64 values such as 2"),
    (weft.float32, 1j, "complex128 values"),
    (weft.float32, "one", "<U3 values"),
    (weft.float32, None, "object values"),
]


@pytest.mark.parametrize(("dtype", "value"), KEPT)
def test_values_that_are_converted(graph, session, dtype, value):
    x = static.placeholder(dtype, np.shape(value))
    got = session.run(static.identity(x), {x: value})
    assert got.dtype == dtype.np
    np.testing.assert_array_equal(got, np.asarray(value, dtype.np))


@pytest.mark.parametrize(("dtype", "value", "got"), REFUSED)
def test_values_that_would_change(graph, session, dtype, value, got):
    x = static.placeholder(dtype, np.shape(value), name="x")
    expected = (
        rf"(?s)feed of 'x': expected {x.node.type.dtype.name}.*got {got}.*made at"
    )
    with pytest.raises(DTypeError, match=expected):
        session.run(static.identity(x), {x: value})


def test_rows_of_different_lengths(graph, session):
    x = static.placeholder(weft.float32, [None, 2], name="x")
    with pytest.raises(ShapeError, match=r"(?s)feed of 'x'.*rows of different lengths"):
        session.run(x * 2, {x: [[1, 2], [3]]})

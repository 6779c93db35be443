"""Every function of the standard beside array-api-strict, the standard's reference.

Each case is one call: its arrays are NumPy's, ``"@int8"`` stands for the namespace's
dtype. What the reference refuses is left to libraries, as are the cases in ``FREE``.
"""

import collections
import itertools
import math

import numpy as np
import pytest

import weft
import weft.array_api as xp

strict = pytest.importorskip("array_api_strict")

INF, NAN = math.inf, math.nan
FLOATS, COMPLEX = ("float32", "float64"), ("complex64", "complex128")
INTS = ("int8", "int16", "int32", "int64")
WHOLE = (*INTS, "uint8", "uint16", "uint32", "uint64")
EVERY = (*FLOATS, *WHOLE, *COMPLEX, "bool")
SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 1e30,
           -1e30, 1e-30, 710.0, -750.0]  # fmt: skip
PAIRS = np.array(list(itertools.product(SPECIAL, SPECIAL))).T
PLANE = [complex(a, b) for a in (0.25, -1.5, 2.5) for b in (0.0, 1.0, -1.0, 0.5)]

NAMES = {
    "unary": """abs acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor
        isfinite isinf isnan log log1p log2 log10 negative positive reciprocal round
        sign signbit sin sinh square sqrt tan tanh trunc""",
    "binary": """add atan2 copysign divide equal floor_divide greater greater_equal
        hypot less less_equal logaddexp maximum minimum multiply nextafter not_equal pow
        remainder subtract""",
    "bitwise": """bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift
        bitwise_xor""",
    "reduce": "all any argmax argmin count_nonzero max mean min prod std sum var",
    "fft": "fft fftn hfft ifft ifftn ihfft irfft irfftn rfft rfftn",
    "matrix": """det slogdet svdvals pinv matrix_rank diagonal trace matrix_norm
        vector_norm matrix_transpose""",
}
UNARY, BINARY, BITWISE, REDUCE, FFT, MATRIX = (v.split() for v in NAMES.values())

# The standard says that libraries may do as Python does, or nothing at all.
FREE = {
    "floor_divide": "NumPy has NaN where the standard has an infinity",
    "cumulative_sum": "of a 0-d array",
    "cumulative_prod": "of a 0-d array",
    "can_cast": "from one kind of dtype to another",
}


def cases():
    """(name, arguments, keywords) of every call."""
    yield from _elementwise()
    yield from _reductions()
    yield from _shapes()
    yield from _creation()
    yield from _searching()
    yield from _products()
    yield from _transforms()


def case(name, *args, **kwargs):
    return name, args, kwargs


def _elementwise():
    for name in UNARY:
        for dtype in FLOATS:
            x = np.array(SPECIAL, dtype)
            yield from (case(name, a) for a in (x, x[::-2], x[7], x[:0].reshape(0, 3)))
        for dtype in WHOLE:
            yield case(name, np.array([0, 1, 2, 5, 100], dtype))
        for dtype in INTS:
            least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
            yield case(name, np.array([-3, -1, least, most], dtype))
    for name in (*UNARY, "conj", "real", "imag"):
        for dtype in COMPLEX:
            yield case(name, np.array(PLANE, dtype))
    for name in BINARY:
        for dtype in FLOATS:
            x, y = PAIRS.astype(dtype)
            yield from (case(name, x, other) for other in (y, 2.0, 3))
        for dtype in WHOLE:
            x, y = np.array([1, 2, 7, 100, 3], dtype), np.array([3, 1, 2, 7, 3], dtype)
            yield from (case(name, x, other) for other in (y, y[::-1], 2))
        for dtype in INTS:
            x = np.array([-7, 7, -7, 7, -128], dtype)
            yield case(name, x, np.array([2, -2, -2, 2, 3], dtype))
        for a, b in itertools.product(EVERY, EVERY):
            for left, right in itertools.product(((), (2,)), repeat=2):
                yield case(name, np.ones(left, a), np.ones(right, b))
        for dtype in COMPLEX:
            x = np.array([1 + 2j, 0.5j], dtype)
            yield from (case(name, x, y) for y in (x[::-1], 2j, 2.5))
        yield case(name, np.ones((2, 1, 3)), np.ones((4, 1)))
    for name in BITWISE:
        for a, b in itertools.product((*WHOLE, "bool"), repeat=2):
            yield case(name, np.array([1, 0, 1], a), np.array([1, 1, 0], b))
    for name in ("bitwise_invert", "logical_not"):
        for dtype in (*WHOLE, "bool"):
            yield case(name, np.array([0, 1, 1, 0], dtype))
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield case(name, np.array([True, True, False]), np.array([True, False, False]))
    for dtype in (*FLOATS, *WHOLE):
        x = np.array([1, 2, 3, 4], dtype)
        for bounds in ((2, 3), (None, 3), (x[1], None), (x[::-1] // 2, x[::-1]), ()):
            yield case("clip", x, *bounds)


def _reductions():
    axes = (None, 0, -1, (0, 2), (), (0, 1, 2))
    for name, dtype in itertools.product(REDUCE, EVERY):
        x = (np.arange(24).reshape(2, 3, 4) % 5).astype(dtype)
        for axis, keepdims in itertools.product(axes, (False, True)):
            yield case(name, x, axis=axis, keepdims=keepdims)
        for empty in (np.zeros((0, 3), dtype), np.zeros((2, 0), dtype)):
            yield from (case(name, empty, axis=axis) for axis in (None, 0, 1))
    for name, dtype in itertools.product(REDUCE, FLOATS):
        yield case(name, np.array([1.0, NAN, 2.0], dtype))
    for name, correction in itertools.product(("std", "var"), (0, 1, 1.5)):
        yield case(name, np.arange(6.0).reshape(2, 3), axis=1, correction=correction)
    for name in ("cumulative_sum", "cumulative_prod"):
        for dtype, axis, first in itertools.product(EVERY, (0, -1), (False, True)):
            x = (np.arange(24).reshape(2, 3, 4) % 5).astype(dtype)
            yield case(name, x, axis=axis, include_initial=first)
    for name in ("sum", "prod", "cumulative_sum", "cumulative_prod"):
        for dtype in ("@float64", "@float32", "@int64", "@complex128"):
            yield case(name, np.array([1.0, 2.0]), dtype=dtype)


def _shapes():
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    for axis in (0, 1, -1, None):
        yield case("concat", (x, x), axis=axis)
        yield case("flip", x, axis=axis)
        yield case("repeat", x, 2, axis=axis)
        yield from (case("roll", x, shift, axis=axis) for shift in (1, -25))
    for axis in (0, 1, 2, 3, -1, -4):
        yield case("expand_dims", x, axis=axis)
        yield case("stack", (x, x + 1), axis=axis)
    for shape in ((4, -1), (-1,), (6, 4), (2, 1, 12)):
        yield case("reshape", x, shape)
    for repetitions in ((2,), (2, 1, 1, 3), ()):
        yield case("tile", x, repetitions)
    yield case("concat", (np.ones(2, "int8"), np.ones(2, "int16")))
    yield case("concat", (np.ones(0, "float32"), np.ones(2)))
    yield case("broadcast_arrays", np.ones((2, 1)), np.ones(3))
    yield case("broadcast_to", np.ones((2, 1)), (3, 2, 4))
    yield case("broadcast_to", np.ones(()), (2, 0))
    yield case("flip", x, axis=(0, 2))
    yield case("moveaxis", x, 0, -1)
    yield case("moveaxis", x, (0, 1), (1, 2))
    yield case("permute_dims", x, (2, 0, 1))
    yield case("repeat", x, np.array([1, 0, 2]), axis=1)
    yield case("reshape", np.ones((0, 3)), (3, 0))
    yield case("reshape", np.ones(1), ())
    yield case("roll", x, (1, 2), axis=(0, 2))
    for axis in (0, -1, (0, 2)):
        yield case("squeeze", np.ones((1, 2, 1)), axis)
        yield case("unstack", x, axis=axis if axis != (0, 2) else 1)


def _creation():
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    for bounds in ((3,), (1, 3), (0, 1, 0.3), (5, 0, -2), (0, 0, 1), (1.5,), (3, 1)):
        yield case("arange", *bounds)
        yield case("arange", *bounds, dtype="@float32")
    for sizes, k in (((3,), 0), ((2, 4), 1), ((3, 2), -1)):
        yield case("eye", *sizes, k=k)
    for value in (1.5, True, 1j, 3):
        yield case("full", (2, 2), value)
        yield case("full_like", x, value)
    for count, endpoint in itertools.product((5, 1, 0), (True, False)):
        yield case("linspace", 5, -5, count, endpoint=endpoint)
    yield case("linspace", 0, 1j, 3)
    for arrays in ((np.arange(2), np.arange(3)), (np.arange(2),), ()):
        yield from (case("meshgrid", *arrays, indexing=way) for way in ("xy", "ij"))
    for name, k in itertools.product(("tril", "triu"), (-1, 0, 2)):
        yield case(name, x, k=k)
    for name in ("zeros", "ones"):
        yield from (case(name, shape) for shape in ((2, 3), (), 4, (0, 2)))
        yield from (case(f"{name}_like", x, dtype=f"@{dtype}") for dtype in EVERY)
    for dtype in EVERY:
        yield case("astype", np.array([1.5, -1.5, 0.0], "float32"), f"@{dtype}")
        yield case("isdtype", f"@{dtype}", ("integral", "bool"))
        yield from (case("isdtype", f"@{dtype}", kind) for kind in (
            "bool", "signed integer", "unsigned integer", "integral", "real floating",
            "complex floating", "numeric"))  # fmt: skip
    for a, b in itertools.product(EVERY, EVERY):
        yield case("result_type", np.ones(2, a), np.ones(2, b))
        yield case("result_type", f"@{a}", f"@{b}")
        yield case("can_cast", f"@{a}", f"@{b}")


def _searching():
    for dtype in (*FLOATS, *WHOLE):
        x = np.array([[3, 1, 2, 1], [0, 2, 2, 5]], dtype)
        for axis, descending in itertools.product((0, 1, -1), (False, True)):
            yield case("sort", x, axis=axis, descending=descending)
            yield case("argsort", x, axis=axis, descending=descending, stable=True)
        yield case("nonzero", x)
        for side in ("left", "right"):
            rows = np.array([1, 3, 5], dtype), np.array([[0, 1], [4, 9]], dtype)
            yield case("searchsorted", *rows, side=side)
        for name in ("values", "counts", "inverse", "all"):
            for values in (x, x[:0], x[0, 0]):
                yield case(f"unique_{name}", values)
        yield case("where", x > 1, x, x + 1)
        yield case("take", x, np.array([1, 0, -1]), axis=1)
        yield case("take_along_axis", x, np.array([[0, 1], [2, 3]]), axis=1)
        yield case("diff", x, n=2, prepend=np.zeros((2, 1), dtype))
    yield case("unique_counts", np.array([NAN, NAN, 0.0, -0.0, 1.0]))
    yield case("where", np.array(True), np.ones(2, "int8"), np.ones(2, "int16"))
    yield case("where", np.array([True, False]), 1.0, np.ones(2, "float32"))
    yield case("nonzero", np.zeros((0, 2)))


def _products():
    rng = np.random.default_rng(0)
    m, v = rng.normal(size=(2, 3, 3)), rng.normal(size=(2, 3))
    h = m @ m.transpose(0, 2, 1) + np.eye(3) * 3
    pairs = (m, m), (v[0], v[1]), (m, v[0]), (v, m[0])
    yield from (case("matmul", *pair) for pair in pairs)
    for axes in (1, ((0, 1), (0, 2))):
        yield case("tensordot", m, m, axes=axes)
    yield case("vecdot", v + 1j, v * 1j)
    yield case("vecdot", m, m, axis=-2)
    for dtype in WHOLE:
        x, y = np.array([1, 2, 3], dtype), np.array([2, 3, 1], dtype)
        for name in ("matmul", "vecdot", "linalg.outer", "linalg.cross"):
            yield case(name, x, y)
        yield case("linalg.trace", x[:, None] * y)
    for dtype in FLOATS:
        for name in MATRIX:
            yield case(f"linalg.{name}", m.astype(dtype))
        for name in ("cholesky", "inv", "eigvalsh"):
            yield case(f"linalg.{name}", h.astype(dtype))
        for right in (m, v[:, :, None]):
            yield case("linalg.solve", h.astype(dtype), right.astype(dtype))
    yield case("linalg.cholesky", h, upper=True)
    for order in ("fro", "nuc", INF, -INF, 1, -1, 2, -2):
        yield case("linalg.matrix_norm", m, ord=order, keepdims=True)
    for order, axis in itertools.product((0, 1, 2, 3, INF, -INF, 0.5), (None, (0, 1))):
        yield case("linalg.vector_norm", m, ord=order, axis=axis)
    for power in (0, 1, 3, -2):
        yield case("linalg.matrix_power", h, power)
    for name in ("pinv", "matrix_rank"):
        yield case(f"linalg.{name}", m, rtol=np.array([1e-3, 1e-2]))


def _transforms():
    rng = np.random.default_rng(0)
    for dtype, name in itertools.product((*FLOATS, *COMPLEX), FFT):
        x = rng.normal(size=(4, 5, 6)).astype(dtype)
        many = {"s": (3, 8), "axes": (0, 2)}, {"axes": (1,)}
        one = {"n": 3}, {"n": 9, "axis": 1}
        for norm in ("backward", "ortho", "forward"):
            yield case(f"fft.{name}", x, norm=norm)
        for options in many if name[-1] == "n" else one:
            yield case(f"fft.{name}", x, **options)
    for size in (5, 6):
        yield case("fft.fftfreq", size)
        yield case("fft.rfftfreq", size, d=0.5)
    for name in ("fft.fftshift", "fft.ifftshift"):
        yield from (case(name, np.ones((3, 4)), axes=a) for a in (None, 1))


CASES = collections.defaultdict(list)
for _name, _args, _kwargs in cases():
    CASES[_name].append((_args, _kwargs))


@pytest.fixture(autouse=True)
def _settings():
    before = weft.get_default_dtype()
    weft.set_default_dtype(weft.float64)
    strict.set_array_api_strict_flags(api_version="2024.12")
    yield
    weft.set_default_dtype(before)


def given(namespace, value, make):
    """An argument as one library takes it."""
    if isinstance(value, (np.ndarray, np.generic)):
        return make(np.array(value))
    if isinstance(value, tuple):
        return tuple(given(namespace, v, make) for v in value)
    if isinstance(value, str) and value[0] == "@":
        return getattr(namespace, value[1:])
    return value


def call(namespace, make, name, args, kwargs):
    function = namespace
    for part in name.split("."):
        function = getattr(function, part)
    options = {k: given(namespace, v, make) for k, v in kwargs.items()}
    return function(*[given(namespace, a, make) for a in args], **options)


def same(ours, theirs):
    """Whether two results are equal: values to rounding, all else exactly."""
    if isinstance(theirs, (tuple, list)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if not hasattr(theirs, "__array_namespace__"):  # a bool, or a dtype
        return str(ours).rpartition(".")[2] == str(theirs).rpartition(".")[2]
    if not isinstance(ours, weft.Tensor):
        return False
    a, b = ours.numpy(), np.from_dlpack(theirs) if theirs.size else np.asarray(theirs)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    close = 1e-4 if b.dtype.name in ("float32", "complex64") else 1e-10
    if b.dtype.kind == "c":
        a, b = np.stack([a.real, a.imag]), np.stack([b.real, b.imag])
    return np.allclose(a, b, rtol=close, atol=close, equal_nan=True)


@pytest.mark.parametrize("name", sorted(CASES))
def test_as_the_reference(name):
    tried = 0
    for args, kwargs in CASES[name]:
        with np.errstate(all="ignore"):
            try:
                theirs = call(strict, strict.asarray, name, args, kwargs)
            except Exception:  # libraries may do more
                continue
            tried += 1
            free = FREE.get(name) and not _is_certain(name, args)
            ours = call(xp, weft.from_numpy, name, args, kwargs)
        assert free or same(ours, theirs), (args, kwargs, ours, theirs)
    assert tried


def _is_certain(name, args):
    """Whether the standard leaves no choice, for a function that has cases in FREE."""
    if name == "floor_divide":
        return all(np.isfinite(a).all() for a in args)
    if name == "can_cast":
        kinds = {a.strip("@0123456789").removeprefix("u") for a in args}
        return len(kinds) == 1
    return args[0].ndim > 0

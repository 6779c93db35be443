"""The array API standard: every name, every value against NumPy's own."""

import doctest
import importlib
import inspect
import itertools
import math
import operator

import numpy as np
import pytest

import weft
from weft import array_api as xp

# The names of the standard, version 2024.12, by its sections.
NAMES = {
    "constants": "e inf nan newaxis pi",
    "dtypes": """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64
        complex64 complex128""",
    "creation": """arange asarray empty empty_like eye from_dlpack full full_like
        linspace meshgrid ones ones_like tril triu zeros zeros_like""",
    "data types": "astype can_cast finfo iinfo isdtype result_type",
    "elementwise": """abs acos acosh add asin asinh atan atan2 atanh bitwise_and
        bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor
        ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide
        greater greater_equal hypot imag isfinite isinf isnan less less_equal log log1p
        log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum
        minimum multiply negative nextafter not_equal positive pow real reciprocal
        remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc""",
    "indexing": "take take_along_axis",
    "inspection": "__array_namespace_info__ __array_api_version__",
    "linear algebra": "matmul matrix_transpose tensordot vecdot",
    "manipulation": """broadcast_arrays broadcast_to concat expand_dims flip moveaxis
        permute_dims repeat reshape roll squeeze stack tile unstack""",
    "searching": "argmax argmin count_nonzero nonzero searchsorted where",
    "sets": "unique_all unique_counts unique_inverse unique_values",
    "sorting": "argsort sort",
    "statistical": """cumulative_prod cumulative_sum max mean min prod std sum var""",
    "utility": "all any diff",
}
LINALG = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]

ALL_NAMES = [name for names in NAMES.values() for name in names.split()]
RNG = np.random.default_rng(7)


def T(array):
    return weft.from_numpy(np.ascontiguousarray(array).reshape(np.shape(array)))


def as_weft(value):
    if isinstance(value, (np.ndarray, np.generic)):
        return T(value)
    if isinstance(value, (list, tuple)) and any(
        isinstance(v, np.ndarray) for v in value
    ):
        return [as_weft(v) for v in value]
    return value


def check(got, want, tol=1e-13):
    """Equal structure, shape, dtype and (to rounding) values."""
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            check(g, w, tol)
        return
    want = np.asarray(want)
    assert isinstance(got, weft.Tensor)
    assert tuple(got.shape) == want.shape
    assert got.dtype.np == want.dtype
    np.testing.assert_allclose(got.numpy(), want, rtol=tol, atol=tol)


def same(name, *args, tol=1e-13, **kwargs):
    """The same call gives the same result in NumPy and in Weft."""
    with np.errstate(all="ignore"):
        want = getattr(np, name)(*args, **kwargs)
    given = {key: as_weft(value) for key, value in kwargs.items()}
    check(getattr(xp, name)(*map(as_weft, args), **given), want, tol)


# -- completeness


@pytest.mark.parametrize("name", ALL_NAMES)
def test_every_name_of_the_standard_is_there(name):
    assert hasattr(xp, name)
    assert name in xp.__all__


def test_nothing_outside_the_standard_is_exported():
    assert set(xp.__all__) == {*ALL_NAMES, "fft", "linalg"}


FUNCTIONS = [
    name
    for section, names in NAMES.items()
    if section not in ("constants", "dtypes", "inspection")
    for name in names.split()
]


# The standard's signatures; element-wise functions without options follow below.
SIGNATURES = """
arange(start, /, stop=None, step=1, *, dtype=None, device=None)
asarray(obj, /, *, dtype=None, device=None, copy=None)
empty(shape, *, dtype=None, device=None)
empty_like(x, /, *, dtype=None, device=None)
eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)
from_dlpack(x, /, *, device=None, copy=None)
full(shape, fill_value, *, dtype=None, device=None)
full_like(x, /, fill_value, *, dtype=None, device=None)
linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True)
meshgrid(*arrays, indexing='xy')
ones(shape, *, dtype=None, device=None)
ones_like(x, /, *, dtype=None, device=None)
tril(x, /, *, k=0)
triu(x, /, *, k=0)
zeros(shape, *, dtype=None, device=None)
zeros_like(x, /, *, dtype=None, device=None)
astype(x, dtype, /, *, copy=True, device=None)
can_cast(from_, to, /)
finfo(type, /)
iinfo(type, /)
isdtype(dtype, kind)
result_type(*arrays_and_dtypes)
clip(x, /, min=None, max=None)
take(x, indices, /, *, axis=None)
take_along_axis(x, indices, /, *, axis=-1)
matmul(x1, x2, /)
matrix_transpose(x, /)
tensordot(x1, x2, /, *, axes=2)
vecdot(x1, x2, /, *, axis=-1)
broadcast_arrays(*arrays)
broadcast_to(x, /, shape)
concat(arrays, /, *, axis=0)
expand_dims(x, /, *, axis=0)
flip(x, /, *, axis=None)
moveaxis(x, source, destination, /)
permute_dims(x, /, axes)
repeat(x, repeats, /, *, axis=None)
reshape(x, /, shape, *, copy=None)
roll(x, /, shift, *, axis=None)
squeeze(x, /, axis)
stack(arrays, /, *, axis=0)
tile(x, repetitions, /)
unstack(x, /, *, axis=0)
argmax(x, /, *, axis=None, keepdims=False)
argmin(x, /, *, axis=None, keepdims=False)
count_nonzero(x, /, *, axis=None, keepdims=False)
nonzero(x, /)
searchsorted(x1, x2, /, *, side='left', sorter=None)
where(condition, x1, x2, /)
unique_all(x, /)
unique_counts(x, /)
unique_inverse(x, /)
unique_values(x, /)
argsort(x, /, *, axis=-1, descending=False, stable=True)
sort(x, /, *, axis=-1, descending=False, stable=True)
cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False)
cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False)
max(x, /, *, axis=None, keepdims=False)
mean(x, /, *, axis=None, keepdims=False)
min(x, /, *, axis=None, keepdims=False)
prod(x, /, *, axis=None, dtype=None, keepdims=False)
std(x, /, *, axis=None, correction=0.0, keepdims=False)
sum(x, /, *, axis=None, dtype=None, keepdims=False)
var(x, /, *, axis=None, correction=0.0, keepdims=False)
all(x, /, *, axis=None, keepdims=False)
any(x, /, *, axis=None, keepdims=False)
diff(x, /, *, axis=-1, n=1, prepend=None, append=None)
linalg.cholesky(x, /, *, upper=False)
linalg.cross(x1, x2, /, *, axis=-1)
linalg.det(x, /)
linalg.diagonal(x, /, *, offset=0)
linalg.eigh(x, /)
linalg.eigvalsh(x, /)
linalg.inv(x, /)
linalg.matrix_norm(x, /, *, keepdims=False, ord='fro')
linalg.matrix_power(x, n, /)
linalg.matrix_rank(x, /, *, rtol=None)
linalg.outer(x1, x2, /)
linalg.pinv(x, /, *, rtol=None)
linalg.qr(x, /, *, mode='reduced')
linalg.slogdet(x, /)
linalg.solve(x1, x2, /)
linalg.svd(x, /, *, full_matrices=True)
linalg.svdvals(x, /)
linalg.trace(x, /, *, offset=0, dtype=None)
linalg.vector_norm(x, /, *, axis=None, keepdims=False, ord=2)
""".strip().splitlines()


def signature(path):
    """A function's signature without annotations."""
    found = inspect.signature(operator.attrgetter(path)(xp))
    bare = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    return str(found.replace(parameters=bare, return_annotation=found.empty))


@pytest.mark.parametrize("line", SIGNATURES, ids=lambda s: s.partition("(")[0])
def test_signatures_are_the_standards(line):
    name, _, parameters = line.partition("(")
    assert signature(name) == "(" + parameters


TWO_ARRAYS = """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift
    bitwise_xor copysign divide equal floor_divide greater greater_equal hypot less
    less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply
    nextafter not_equal pow remainder subtract"""


@pytest.mark.parametrize("name", NAMES["elementwise"].split())
def test_elementwise_signatures_are_the_standards(name):
    if name != "clip":
        wanted = "(x1, x2, /)" if name in TWO_ARRAYS.split() else "(x, /)"
        assert signature(name) == wanted


def test_every_function_has_its_signature_tested():
    tested = {line.partition("(")[0] for line in SIGNATURES}
    assert set(FUNCTIONS) - tested == set(NAMES["elementwise"].split()) - {"clip"}
    products = {"matmul", "matrix_transpose", "tensordot", "vecdot"}
    assert {f"linalg.{name}" for name in LINALG if name not in products} <= tested


@pytest.mark.parametrize("name", ["sin", "add", "sum", "sort", "reshape", "matmul"])
def test_arrays_cannot_be_passed_by_name(name):
    first = next(iter(inspect.signature(getattr(xp, name)).parameters))
    with pytest.raises(TypeError, match="positional-only"):
        getattr(xp, name)(**{first: weft.ones(2)})


def test_options_cannot_be_passed_by_position():
    with pytest.raises(TypeError, match="positional argument"):
        xp.sum(weft.ones(2), 0)
    with pytest.raises(TypeError, match="positional argument"):
        xp.sort(weft.ones(2), 0)


@pytest.mark.parametrize(
    "module",
    [
        "_common",
        "_creation",
        "_dtypes",
        "_elementwise",
        "_manipulation",
        "_products",
        "_searching",
        "_statistical",
    ],
)
def test_examples(module):
    found = importlib.import_module(f"weft.array_api.{module}")
    result = doctest.testmod(found, extraglobs={"weft": weft, "np": np})
    assert result.attempted > 0
    assert result.failed == 0


# -- element-wise functions

SHAPES = [(3, 4), (), (0, 2), (1,)]
UNARY = {
    "abs": (-2, 2), "acos": (-0.9, 0.9), "acosh": (1.1, 3), "asin": (-0.9, 0.9),
    "asinh": (-2, 2), "atan": (-2, 2), "atanh": (-0.9, 0.9), "ceil": (-3, 3),
    "conj": (-2, 2), "cos": (-4, 4), "cosh": (-2, 2), "exp": (-2, 2),
    "expm1": (-2, 2), "floor": (-3, 3), "log": (0.1, 3), "log1p": (-0.5, 3),
    "log2": (0.1, 3), "log10": (0.1, 3), "negative": (-2, 2), "positive": (-2, 2),
    "real": (-2, 2), "reciprocal": (0.5, 2), "round": (-3, 3), "sign": (-2, 2),
    "sin": (-4, 4), "sinh": (-2, 2), "square": (-2, 2), "sqrt": (0, 4),
    "tan": (-1, 1), "tanh": (-2, 2), "trunc": (-3, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary_floating(name):
    for shape in SHAPES:
        same(name, RNG.uniform(*UNARY[name], shape))


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 2.5, -2.5])


@pytest.mark.parametrize("name", [*UNARY, "isfinite", "isinf", "isnan", "signbit"])
def test_unary_special_values(name):
    same(name, SPECIAL)


@pytest.mark.parametrize(
    "name",
    [
        "abs",
        "ceil",
        "floor",
        "negative",
        "positive",
        "round",
        "sign",
        "square",
        "trunc",
        "bitwise_invert",
        "isfinite",
        "isinf",
        "isnan",
    ],
)
def test_unary_integers(name):
    for shape in SHAPES:
        same(name, RNG.integers(-5, 6, shape))


COMPLEX = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "conj",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "negative",
    "positive",
    "real",
    "reciprocal",
    "round",
    "sign",
    "sin",
    "sinh",
    "square",
    "sqrt",
    "tan",
    "tanh",
]


@pytest.mark.parametrize("name", COMPLEX)
def test_unary_complex(name):
    for shape in SHAPES:
        x = RNG.uniform(0.2, 2, shape) + 1j * RNG.uniform(0.2, 2, shape)
        same(name, np.asarray(x), tol=1e-12)


BINARY_REAL = [
    "add",
    "atan2",
    "copysign",
    "divide",
    "equal",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "less",
    "less_equal",
    "logaddexp",
    "maximum",
    "minimum",
    "multiply",
    "nextafter",
    "not_equal",
    "remainder",
    "subtract",
]
PAIRS = [
    ((3, 4), (3, 4)), ((3, 1), (4,)), ((), (2,)), ((2,), ()), ((), ()),
    ((0, 2), (2,)), ((2, 0, 3), (1, 3)),
]  # fmt: skip


@pytest.mark.parametrize("name", BINARY_REAL)
def test_binary_floating(name):
    for a, b in PAIRS:
        same(name, RNG.uniform(-2, 2, a), RNG.uniform(0.5, 2, b))


@pytest.mark.parametrize("name", [n for n in BINARY_REAL if n != "floor_divide"])
def test_binary_special_values(name):
    x, y = (
        np.array(v) for v in zip(*itertools.product(SPECIAL, repeat=2), strict=True)
    )
    same(name, x, y)


def test_pow():
    for a, b in PAIRS:
        same("pow", RNG.uniform(0.2, 2, a), RNG.uniform(-2, 2, b))
        same("pow", RNG.integers(-3, 4, a), RNG.integers(0, 4, b))


@pytest.mark.parametrize(
    "name",
    [
        "add",
        "equal",
        "floor_divide",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
        "maximum",
        "minimum",
        "multiply",
        "not_equal",
        "remainder",
        "subtract",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "bitwise_left_shift",
        "bitwise_right_shift",
    ],
)
def test_binary_integers(name):
    for a, b in PAIRS:
        same(name, RNG.integers(-7, 8, a), RNG.integers(1, 5, b))


@pytest.mark.parametrize(
    "name",
    [
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "equal",
        "not_equal",
    ],
)
def test_binary_booleans(name):
    for a, b in PAIRS:
        same(name, RNG.uniform(size=a) < 0.5, RNG.uniform(size=b) < 0.5)


def test_unary_booleans():
    for shape in SHAPES:
        same("logical_not", np.asarray(RNG.uniform(size=shape) < 0.5))
        same("bitwise_invert", np.asarray(RNG.uniform(size=shape) < 0.5))


@pytest.mark.parametrize(
    "name", ["add", "divide", "equal", "multiply", "subtract", "pow"]
)
def test_binary_complex(name):
    for a, b in PAIRS:
        x = RNG.uniform(0.5, 2, a) + 1j * RNG.uniform(-2, 2, a)
        y = RNG.uniform(0.5, 2, b) + 1j * RNG.uniform(-2, 2, b)
        same(name, np.asarray(x), np.asarray(y), tol=1e-12)


@pytest.mark.parametrize("number", [2, 2.5])
def test_python_numbers_take_the_arrays_dtype(number):
    x = RNG.uniform(0.5, 2, (3,)).astype(np.float32)
    for name in ("add", "multiply", "pow", "maximum", "atan2", "less"):
        same(name, x, number, tol=1e-6)
        same(name, number, x, tol=1e-6)


def test_0d_arrays_take_part_in_promotion():
    wide, narrow = np.array(1.5), np.ones(3, np.float32)
    same("add", wide, narrow)
    same("where", np.array([True, False, True]), wide, narrow)
    same("concat", [np.ones(2, np.float32), np.ones(2)])
    same("maximum", np.array(3, np.int64), np.ones(2, np.int8))


@pytest.mark.parametrize("a", ["int8", "int16", "int32", "int64", "uint8"])
@pytest.mark.parametrize("b", ["int8", "int16", "int32", "int64", "uint8"])
def test_integer_promotion(a, b):
    x, y = np.ones(2, a), np.ones(2, b)
    same("add", x, y)
    assert xp.result_type(T(x), T(y)).np == np.result_type(x, y)
    assert xp.can_cast(T(x), getattr(xp, b)) == np.can_cast(x.dtype, b)


def test_clip():
    x = RNG.uniform(-3, 3, (3, 4))
    for bounds in [(-1.0, 1.0), (None, 1.0), (-1.0, None), (0, 1)]:
        same("clip", x, *bounds)
        same("clip", x, min=bounds[0], max=bounds[1])
    same("clip", x, np.full((4,), -0.5), np.full((3, 1), 0.5))
    same("clip", np.ones((4,)), np.zeros((3, 1)), np.full((1, 4), 0.5))
    same("clip", np.zeros((0, 2)), -1.0, 1.0)
    same("clip", np.array(5), 0, 3)
    check(xp.clip(T(x)), x)
    assert xp.clip(weft.tensor([300, 5]), 0, 10).dtype is xp.int64


# -- creation


def test_arange():
    for args in [(5,), (1, 6), (1, 7, 2), (7, 1, -2), (5, 1), (1, 5, -1), (0,)]:
        same("arange", *args)
    same("arange", 0.0, 1.0, 0.25, dtype=np.float64)
    assert xp.arange(3, dtype=xp.int8, device="cpu").dtype is xp.int8
    assert xp.arange(0.0, 1.0, 0.5).dtype is xp.float32


@pytest.mark.parametrize("name", ["zeros", "ones", "empty"])
def test_filled(name):
    for shape in [3, (), (2, 0), (2, 3)]:
        made = getattr(xp, name)(shape, dtype=xp.float64)
        want = getattr(np, name)(shape)
        assert made.shape == want.shape
        if name != "empty":
            check(made, want)
        like = getattr(xp, name + "_like")(made, dtype=xp.int32)
        assert like.shape == want.shape
        assert like.dtype is xp.int32
    assert getattr(xp, name)(2).dtype is xp.float32


def test_full():
    same("full", (2, 3), 7)
    same("full", 2, True)
    same("full", (0,), 1.5, dtype=np.float64)
    same("full_like", np.zeros((2, 1)), 3.5)
    assert xp.full(1, 1.5).dtype is xp.float32
    assert xp.full(1, 1j).dtype is xp.complex64


def test_eye():
    for args, k in [((3,), 0), ((2, 4), 1), ((3, 2), -1), ((0,), 0), ((2, 0), 0)]:
        same("eye", *args, k=k, dtype=np.float64)


def test_linspace():
    same("linspace", 0, 1, 5, dtype=np.float64)
    same("linspace", 0, 1, num=4, endpoint=False, dtype=np.float64)
    same("linspace", 0.0, 1.0 + 2.0j, 3, dtype=np.complex128)
    same("linspace", 3, 3, 0, dtype=np.float64)
    assert xp.linspace(0, 1j, 2).dtype is xp.complex64


def test_meshgrid():
    for indexing in ("xy", "ij"):
        for sizes in [(3,), (2, 3), (2, 0), (2, 3, 4)]:
            arrays = [RNG.uniform(size=n) for n in sizes]
            same("meshgrid", *arrays, indexing=indexing)
    assert xp.meshgrid() == []


def test_triangles():
    for shape in [(3, 4), (2, 3, 3), (0, 2)]:
        for k in (-1, 0, 2):
            same("tril", RNG.uniform(size=shape), k=k)
            same("triu", RNG.integers(0, 9, shape), k=k)


def test_asarray():
    assert xp.asarray(1.5).dtype is xp.float32
    assert xp.asarray([1, 2]).dtype is xp.int64
    assert xp.asarray([True]).dtype is xp.bool
    assert xp.asarray([1j]).dtype is xp.complex64
    check(xp.asarray([[1, 2], [3, 4]], dtype=xp.float64), [[1.0, 2.0], [3.0, 4.0]])
    check(xp.asarray(np.float64(2)), np.float64(2))
    check(xp.asarray(bytearray(b"ab")), np.array([97, 98], np.uint8))


def test_asarray_copies_only_when_asked():
    array = np.zeros(3)
    xp.asarray(array)[0] = 1
    xp.asarray(array, copy=False)[1] = 2
    xp.asarray(array, copy=True)[2] = 3
    xp.asarray(memoryview(array))[2] = 4
    assert array.tolist() == [1, 2, 4]
    for bad, options in [([1.0], {}), (array, {"dtype": xp.float32})]:
        with pytest.raises(ValueError, match="needs a copy"):
            xp.asarray(bad, copy=False, **options)


def test_asarray_of_a_tensor_keeps_the_tape():
    x = weft.ones(2, requires_grad=True)
    xp.sum(xp.asarray(x, dtype=xp.float64, copy=True) * 3).backward()
    assert x.grad.tolist() == [3, 3]


def test_from_dlpack():
    array = np.zeros(2)
    xp.from_dlpack(array)[0] = 1
    xp.from_dlpack(array, copy=True)[1] = 1
    assert array.tolist() == [1, 0]


# -- data types


def test_astype():
    x = np.array([1.7, -1.7])
    same("astype", x, np.int64)
    same("astype", x, np.float32)
    same("astype", np.array([0, 2]), np.bool_)
    y = T(x)
    assert xp.astype(y, xp.float64, copy=False) is y
    assert not np.shares_memory(xp.astype(y, xp.float64).numpy(), x)
    with pytest.raises(TypeError, match="complex128 cannot become float64"):
        xp.astype(weft.tensor([1j], dtype=weft.complex128), xp.float64)


KINDS = ["bool", "signed integer", "unsigned integer", "integral", "real floating",
         "complex floating", "numeric"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES["dtypes"].split())
def test_isdtype(name):
    theirs = np.dtype(name)
    for kind in KINDS:
        assert xp.isdtype(getattr(xp, name), kind) == np.isdtype(theirs, kind)
    assert xp.isdtype(getattr(xp, name), getattr(xp, name))
    assert xp.isdtype(getattr(xp, name), ("bool", "numeric"))
    with pytest.raises(ValueError, match="'integer'"):
        xp.isdtype(xp.int8, "integer")


@pytest.mark.parametrize("name", ["float32", "float64", "complex64", "complex128"])
def test_finfo(name):
    got, want = xp.finfo(getattr(xp, name)), np.finfo(name)
    for field in ("bits", "eps", "max", "min", "smallest_normal"):
        assert getattr(got, field) == getattr(want, field)
    assert got.dtype.np == want.dtype
    assert xp.finfo(xp.zeros(1, dtype=getattr(xp, name))) == got


@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64", "uint8"])
def test_iinfo(name):
    got, want = xp.iinfo(getattr(xp, name)), np.iinfo(name)
    assert (got.bits, got.max, got.min) == (want.bits, want.max, want.min)
    assert got.dtype is getattr(xp, name)


def test_result_type():
    assert xp.result_type(xp.float32, xp.float64) is xp.float64
    assert xp.result_type(T(np.ones(1, np.float32)), 2.5) is xp.float32
    assert xp.result_type(xp.float32, xp.complex64, 1) is xp.complex64
    assert xp.result_type(xp.float64, xp.complex64) is xp.complex128
    assert xp.result_type(xp.float64, 1j) is xp.complex128
    with pytest.raises(ValueError, match="at least one array"):
        xp.result_type(1, 2.0)


def test_info():
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {
        "boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64,
    }  # fmt: skip
    assert info.default_device() is weft.device("cpu")
    assert info.devices() == weft.devices()
    assert set(info.dtypes()) == set(NAMES["dtypes"].split())
    unsigned = {"uint8", "uint16", "uint32", "uint64"}
    assert set(info.dtypes(kind=("bool", "unsigned integer"))) == {"bool", *unsigned}
    assert all(getattr(xp, name) is d for name, d in info.dtypes().items())
    assert info.default_dtypes() == {
        "real floating": xp.float32, "complex floating": xp.complex64,
        "integral": xp.int64, "indexing": xp.int64,
    }  # fmt: skip
    assert xp.ones((1,) * 64).ndim == info.capabilities()["max dimensions"]


def test_constants():
    assert (xp.e, xp.pi, xp.inf, xp.newaxis) == (math.e, math.pi, math.inf, None)
    assert math.isnan(xp.nan)


# -- manipulation


def test_broadcasting():
    arrays = [np.ones((3, 1)), np.zeros(2), np.array(5.0)]
    same("broadcast_arrays", *arrays)
    same("broadcast_to", np.arange(3), (2, 3))
    same("broadcast_to", np.ones((1, 0)), (4, 0))
    assert xp.broadcast_arrays() == []


def test_joining():
    a, b = RNG.uniform(size=(2, 3)), RNG.uniform(size=(2, 3))
    for axis in (0, 1, -1, None):
        same("concat", [a, b], axis=axis)
    for axis in (0, 1, 2, -1):
        same("stack", [a, b], axis=axis)
    same("concat", [np.zeros((0, 3)), a])
    same("concat", [np.ones(2, np.int8), np.ones(2, np.int64)])
    same("stack", [np.array(1), np.array(2)])
    same("concat", (np.array([1]),))
    with pytest.raises(ValueError, match="list of arrays"):
        xp.concat([])


def test_axes():
    x = RNG.uniform(size=(2, 3, 4))
    for axis in (0, 1, -1, 3, (0, 2)):
        same("expand_dims", x, axis=axis)
    for axis in (None, 0, -1, (0, 2)):
        same("flip", x, axis=axis)
    same("flip", np.array(3.0))
    same("moveaxis", x, 0, -1)
    same("moveaxis", x, (0, 1), (2, 0))
    same("permute_dims", x, (2, 0, 1))
    same("permute_dims", x, axes=(0, 2, 1))
    same("matrix_transpose", x)
    same("squeeze", x[:1, :, :1], 0)
    same("squeeze", x[:1, :, :1], axis=(0, 2))
    with pytest.raises(ValueError, match="not of size 1"):
        xp.squeeze(T(x), 0)
    for axis in (0, 1, -1):
        same("unstack", x, axis=axis)


def test_reshape():
    x = np.arange(6)
    same("reshape", x, (2, 3))
    same("reshape", x, shape=(-1, 2))
    same("reshape", x, 6)
    same("reshape", np.zeros((0, 3)), (3, 0))
    same("reshape", np.array(1.0), (1, 1))
    y = T(x)
    assert np.shares_memory(xp.reshape(y, (2, 3), copy=False).numpy(), x)
    assert not np.shares_memory(xp.reshape(y, (2, 3), copy=True).numpy(), x)
    with pytest.raises(ValueError, match="without copying"):
        xp.reshape(xp.reshape(y, (2, 3)).T, (6,), copy=False)


def test_repeating():
    x = RNG.uniform(size=(2, 3))
    for axis in (None, 0, 1, -1):
        same("repeat", x, 2, axis=axis)
    same("repeat", x, np.array([1, 0, 2]), axis=1)
    for reps in [(2,), (2, 1), (1, 2, 3), (0,)]:
        same("tile", x, reps)
    same("tile", np.array(1), (3,))
    for shift, axis in [(1, None), (-1, 0), ((1, 2), (0, 1)), (5, 1), (1, (0, 1))]:
        same("roll", x, shift, axis=axis)
    same("roll", np.zeros((0, 2)), 1)
    same("roll", np.zeros((0, 2)), 1, axis=0)


# -- searching, sorting, sets


def test_searching():
    x = RNG.permuted(np.arange(24.0)).reshape(2, 3, 4)
    for name in ("argmax", "argmin"):
        for axis in (None, 0, -1):
            for keepdims in (False, True):
                same(name, x, axis=axis, keepdims=keepdims)
        same(name, np.array(3))
    zeros = RNG.integers(0, 2, (2, 3, 4))
    for axis in (None, 0, (0, 2)):
        for keepdims in (False, True):
            same("count_nonzero", zeros, axis=axis, keepdims=keepdims)
    same("nonzero", zeros)
    same("nonzero", np.zeros((0, 2)))
    with pytest.raises(ValueError, match="0-d"):
        xp.nonzero(weft.tensor(1))


def test_searchsorted():
    x, v = np.array([1.0, 2.0, 2.0, 5.0]), np.array([[0.0, 2.0], [5.0, 9.0]])
    for side in ("left", "right"):
        same("searchsorted", x, v, side=side)
    same("searchsorted", x[::-1].copy(), v, sorter=np.array([3, 2, 1, 0]))
    same("searchsorted", x, np.zeros((0,)))


def test_where():
    c = np.array([[True, False], [False, True]])
    same("where", c, np.ones(2), np.zeros((2, 1)))
    same("where", np.array(True), np.array(1.0), np.array(2.0))
    same("where", c, np.ones((2, 2), np.float32), 0.5)
    same("where", np.zeros((0, 2), bool), np.ones(2), np.zeros(2))


def test_sorting():
    x = RNG.integers(0, 4, (3, 5)).astype(float)
    for axis in (0, 1, -1):
        same("sort", x, axis=axis, stable=True)
        same("argsort", x, axis=axis, stable=True)
        # NumPy has no descending order: a stable one is that of the negatives.
        down = T(np.argsort(-x, axis=axis, stable=True))
        check(xp.argsort(T(x), axis=axis, descending=True), down.numpy())
        want = -np.sort(-x, axis=axis)
        check(xp.sort(T(x), axis=axis, descending=True, stable=False), want)
    same("sort", np.array([2.0, np.nan, 1.0]))
    same("sort", np.zeros((0,)))
    same("argsort", np.zeros((2, 0)))


SETS = [
    np.array([3, 1, 3, 2, 1]), np.array([[2.0, 1.0], [2.0, 5.0]]), np.array(4),
    np.zeros((0,)), np.array([np.nan, 1.0, np.nan]), np.array([True, False, True]),
    np.array([0.0, -0.0, 1.0]),
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES["sets"].split())
@pytest.mark.parametrize("x", SETS, ids=range(len(SETS)))
def test_sets(name, x):
    want = getattr(np, name)(x)
    got = getattr(xp, name)(T(x))
    check(got, np.sort(want) if name == "unique_values" else want)
    if name != "unique_values":
        assert got._fields == want._fields


def test_take():
    x = RNG.uniform(size=(3, 4))
    for axis in (0, 1, -1):
        same("take", x, np.array([2, 0, 0]), axis=axis)
    same("take", x[0], np.array([1, 3]))
    same("take", x, np.zeros((0,), int), axis=0)
    same("take_along_axis", x, np.argsort(x, axis=1), axis=1)
    same("take_along_axis", x, np.array([[0], [2], [1]]))
    same("take_along_axis", x, np.array([[1, 0, 2, 2]]), axis=0)
    with pytest.raises(ValueError, match="expected an axis"):
        xp.take(T(x), weft.tensor([0]))
    with pytest.raises(IndexError):
        xp.take(T(x), weft.tensor([9]), axis=0)


# -- statistics


AXES = [None, 0, -1, (0, 2), ()]


@pytest.mark.parametrize("name", ["max", "min", "mean", "sum", "prod", "std", "var"])
def test_reductions(name):
    x = RNG.uniform(0.5, 2, (2, 3, 4))
    for axis in AXES:
        for keepdims in (False, True):
            same(name, x, axis=axis, keepdims=keepdims)
    same(name, np.array(3.0))
    same(name, np.ones((0, 3)), axis=1)
    if name not in ("mean", "std", "var"):
        same(name, RNG.integers(1, 5, (2, 3)), axis=0)
    if name in ("sum", "prod"):
        same(name, np.ones((2, 0)), axis=-1)
        same(name, np.ones((3,), np.int8))
        same(name, np.ones(3, np.float32), dtype=np.float64)
        same(name, RNG.uniform(size=(2, 3)) * (1 + 1j), axis=0)


@pytest.mark.parametrize("name", ["std", "var"])
def test_correction(name):
    same(name, RNG.uniform(size=(4, 5)), axis=0, correction=1)
    same(name, RNG.uniform(size=(4, 5)), correction=0.5)


@pytest.mark.parametrize("name", ["all", "any"])
def test_truth(name):
    x = RNG.uniform(size=(2, 3, 4)) < 0.7
    for axis in AXES:
        for keepdims in (False, True):
            same(name, x, axis=axis, keepdims=keepdims)
    same(name, np.array([0.0, np.nan]))
    same(name, np.zeros((0, 2), bool), axis=0)
    same(name, np.array(True))


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_cumulative(name):
    x = RNG.uniform(0.5, 2, (2, 3))
    for axis in (0, 1, -1):
        for initial in (False, True):
            same(name, x, axis=axis, include_initial=initial)
    same(name, np.arange(1, 4))
    same(name, np.arange(1, 4, dtype=np.int8))
    same(name, np.ones(3, np.float32), dtype=np.float64)
    same(name, np.zeros((0,)), include_initial=True)
    with pytest.raises(ValueError, match="expected an axis"):
        getattr(xp, name)(T(x))


def test_diff():
    x = RNG.integers(0, 9, (3, 5))
    for axis in (0, 1, -1):
        for n in (0, 1, 2):
            same("diff", x, axis=axis, n=n)
    same("diff", x, axis=0, prepend=np.zeros((1, 5), int), append=np.ones((2, 5), int))
    same("diff", np.array([True, False, False]))
    same("diff", np.array([1.5]))


# -- linear algebra


MATRICES = [
    ((3, 4), (4, 2)), ((4,), (4,)), ((2, 3, 4), (4,)), ((4,), (2, 4, 3)),
    ((5, 1, 2, 3), (4, 3, 2)), ((0, 3), (3, 2)), ((2, 0), (0, 3)),
]  # fmt: skip


def test_products():
    for a, b in MATRICES:
        same("matmul", RNG.uniform(size=a), RNG.uniform(size=b))
        same("matmul", RNG.integers(0, 5, a), RNG.integers(0, 5, b))
    same("matmul", np.ones((2, 2), np.float32), np.ones((2, 2)))
    a, b = RNG.uniform(size=(2, 3, 4)), RNG.uniform(size=(4, 3, 5))
    same("tensordot", a, b, axes=1)
    same("tensordot", a, b, axes=((1, 2), (1, 0)))
    same("tensordot", np.ones(2), np.ones(3), axes=0)
    for axis in (-1, -2):
        x, y = RNG.uniform(size=(2, 3, 3)), RNG.uniform(size=(3, 3))
        same("vecdot", x, y, axis=axis)
    z = RNG.uniform(size=3) + 1j * RNG.uniform(size=3)
    same("vecdot", z, z.conj())
    same("vecdot", np.zeros((2, 0)), np.zeros((0,)))
    with pytest.raises(ValueError, match="differ"):
        xp.vecdot(weft.ones(2), weft.ones(3))


# -- the linalg extension


def test_every_name_of_linalg_is_there():
    assert sorted(xp.linalg.__all__) == sorted(LINALG)
    assert all(callable(getattr(xp.linalg, name)) for name in LINALG)
    result = doctest.testmod(xp.linalg, extraglobs={"weft": weft, "np": np})
    assert result.attempted > 0
    assert result.failed == 0


def alike(name, *args, tol=1e-9, **kwargs):
    want = getattr(np.linalg, name)(*args, **kwargs)
    check(getattr(xp.linalg, name)(*map(as_weft, args), **kwargs), want, tol)


SQUARE = RNG.normal(size=(2, 3, 3)) + 3 * np.eye(3)
SYMMETRIC = SQUARE @ SQUARE.mT


def test_factorisations():
    alike("cholesky", SYMMETRIC)
    upper = xp.linalg.cholesky(T(SYMMETRIC), upper=True)
    check(upper, np.linalg.cholesky(SYMMETRIC).mT, 1e-9)
    alike("eigvalsh", SYMMETRIC)
    values, vectors = xp.linalg.eigh(T(SYMMETRIC))
    check(values, np.linalg.eigvalsh(SYMMETRIC), 1e-9)
    check(vectors * values[..., None, :] @ vectors.mT, SYMMETRIC, 1e-9)
    for mode in ("reduced", "complete"):
        q, r = xp.linalg.qr(T(SQUARE[0, :, :2]), mode=mode)
        assert q.shape == np.linalg.qr(SQUARE[0, :, :2], mode=mode).Q.shape
        check(q @ r, SQUARE[0, :, :2], 1e-12)
    for full in (False, True):
        u, s, vh = xp.linalg.svd(T(SQUARE[:, :2]), full_matrices=full)
        assert vh.shape == ((2, 3, 3) if full else (2, 2, 3))
        check(u * s[..., None, :] @ vh[:, :2], SQUARE[:, :2], 1e-12)
    alike("svdvals", SQUARE)
    with pytest.raises(ValueError, match="mode must be"):
        xp.linalg.qr(T(SQUARE), mode="raw")


def test_determinants_and_inverses():
    alike("det", SQUARE)
    alike("slogdet", SQUARE)
    alike("inv", SQUARE)
    for n in (-2, 0, 1, 3):
        alike("matrix_power", SQUARE, n)
    alike("pinv", SQUARE[0, :, :2])
    for rtol in (None, 0.5):
        alike("pinv", SYMMETRIC[0], rtol=rtol)
        alike("matrix_rank", SYMMETRIC, rtol=rtol)
    alike("matrix_rank", np.ones((2, 3, 4)))
    check(xp.linalg.matrix_rank(T(SYMMETRIC[0]), rtol=weft.tensor(2.0)), np.array(0))


def test_solve():
    for shape in [(3,), (3, 2), (2, 3, 1), (4, 1, 3, 3)]:
        alike("solve", SQUARE, RNG.normal(size=shape))
    alike("solve", np.eye(2), np.ones((0, 2, 1)))
    alike("solve", RNG.normal(size=(3, 3, 3)) + 3 * np.eye(3), RNG.normal(size=(3, 3)))
    # A batch of vectors is never guessed: only a 1-d right side is a vector.
    with pytest.raises(ValueError):
        xp.linalg.solve(T(SQUARE), weft.ones(2, 2))


def test_norms():
    x = RNG.normal(size=(2, 3, 4))
    for ord in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        for keepdims in (False, True):
            alike("matrix_norm", x, ord=ord, keepdims=keepdims)
    for ord in (0, 1, 2, 3, 0.5, math.inf, -math.inf):
        for axis in (None, 0, -1, (0, 1)):
            for keepdims in (False, True):
                alike("vector_norm", x, ord=ord, axis=axis, keepdims=keepdims)
    alike("vector_norm", x[0] + 1j * x[1])


def test_vectors_and_diagonals():
    x, y = RNG.normal(size=(2, 4, 3)), RNG.normal(size=(4, 3))
    alike("cross", x, y)
    alike("cross", x.mT.copy(), y.T.copy(), axis=-2)
    alike("outer", x[0, 0], y[:, 0])
    for offset in (-1, 0, 2, 9):
        alike("diagonal", x, offset=offset)
        alike("trace", x, offset=offset)
    alike("trace", np.ones((2, 2), np.int8))
    alike("trace", np.ones((2, 2), np.float32), dtype=np.float64)
    alike("vecdot", x, y)
    alike("matmul", x, y.T)
    alike("matrix_transpose", x)
    alike("tensordot", x, y, axes=((1, 2), (0, 1)))
    for a, b in [((2,), (2,)), ((3,), (1,)), ((), (3,))]:
        with pytest.raises(ValueError, match="3 elements"):
            xp.linalg.cross(weft.ones(a), weft.ones(b))
    with pytest.raises(ValueError, match="negative axis"):
        xp.linalg.cross(weft.ones(3, 3, 3), weft.ones(3, 3), axis=0)


# -- the array object


def test_array_namespace():
    x = weft.ones(2)
    assert x.__array_namespace__() is xp
    for version in ("2023.12", "2024.12"):
        assert x.__array_namespace__(api_version=version) is xp
    with pytest.raises(ValueError, match=r"2024\.12, got '1999\.01'"):
        x.__array_namespace__(api_version="1999.01")


def test_array_attributes():
    x = weft.ones(2, 3)
    assert x.device is weft.device("cpu")
    assert x.dtype is xp.float32
    assert (x.ndim, x.shape, x.T.shape, x.mT.shape) == (2, (2, 3), (3, 2), (3, 2))
    assert x.to_device("cpu") is x
    assert x.to_device(x.device, stream=None) is x
    assert complex(weft.tensor(1 + 2j)) == 1 + 2j
    assert [10, 20][weft.tensor(1)] == 20
    assert (int(weft.tensor(3)), float(weft.tensor(0.5)), bool(weft.tensor(True))) == (
        3, 0.5, True,
    )  # fmt: skip


OPERATORS = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
BITS = ["and", "or", "xor", "lshift", "rshift"]


@pytest.mark.parametrize("name", [*OPERATORS, *BITS])
def test_operators_and_their_forms(name):
    x = np.array([5, 9, 4]) if name in BITS else np.array([5.0, 9.0, 4.0])
    y = np.array([1, 3, 2], x.dtype)
    want = getattr(x, f"__{name}__")(y)
    check(getattr(T(x), f"__{name}__")(T(y)), want)
    check(getattr(T(y), f"__r{name}__")(2), getattr(y, f"__r{name}__")(2))
    target = T(x.copy())
    assert getattr(target, f"__i{name}__")(T(y)) is target
    check(target, want)


def test_matmul_operator_and_its_forms():
    x, y = RNG.uniform(size=(2, 2)), RNG.uniform(size=(2, 2))
    check(T(x) @ T(y), x @ y)
    target = held = T(x.copy())
    target @= T(y)
    assert target is held
    check(target, x @ y)
    check(x @ T(y), x @ y)


def test_unary_operators():
    x = np.array([1.5, -2.0])
    for name in ("neg", "pos", "abs"):
        check(getattr(T(x), f"__{name}__")(), getattr(x, f"__{name}__")())
    check(~weft.tensor([1, -2]), ~np.array([1, -2]))


# -- code written against the standard


def softmax(x):
    ns = x.__array_namespace__()
    y = ns.exp(x - ns.max(x, axis=-1, keepdims=True))
    return y / ns.sum(y, axis=-1, keepdims=True)


def standardise(x):
    ns = x.__array_namespace__()
    spread = ns.std(x, axis=0, correction=1)
    spread = ns.where(spread == 0, ns.ones_like(spread), spread)
    return (x - ns.mean(x, axis=0)) / spread


def pairwise_distances(x):
    ns = x.__array_namespace__()
    gaps = ns.expand_dims(x, axis=1) - x[ns.newaxis, :, :]
    return ns.sqrt(ns.sum(ns.square(gaps), axis=-1))


def nearest(x):
    ns = x.__array_namespace__()
    far = pairwise_distances(x) + ns.eye(x.shape[0], dtype=x.dtype) * ns.inf
    far = ns.where(ns.isnan(far), ns.zeros_like(far), far)
    order = ns.argsort(far, axis=1)
    return ns.take(x, order[:, 0], axis=0), ns.unique_counts(order[:, 0]).counts


@pytest.mark.parametrize("fn", [softmax, standardise, pairwise_distances, nearest])
def test_one_program_for_both_libraries(fn):
    x = RNG.normal(size=(6, 3))
    with np.errstate(invalid="ignore"):
        want = fn(x)
    check(fn(T(x)), want)


@pytest.mark.parametrize("fn", [softmax, standardise])
def test_such_programs_are_differentiable(fn):
    x = weft.from_numpy(RNG.normal(size=(3, 2))).requires_grad_()
    assert weft.autograd.gradcheck(fn, (x,))


GRADIENTS = {
    "prod": lambda x: xp.prod(x, axis=(0, 1), keepdims=True),
    "cumulative_sum": lambda x: xp.cumulative_sum(x, axis=0, include_initial=True),
    "cumulative_prod": lambda x: xp.cumulative_prod(x, axis=1),
    "clip": lambda x: xp.clip(x, 0.3, 0.9),
    "diff": lambda x: xp.diff(x, axis=0, append=x[:1]),
    "take": lambda x: xp.take(x, weft.tensor([1, 1]), axis=1),
    "sort": lambda x: xp.sort(x, axis=0, descending=True),
    "sign": lambda x: xp.sign(x) * x,
    "round": lambda x: xp.round(x) + x,
    "sum of none": lambda x: xp.sum(x, axis=()) * x,
    "vecdot": lambda x: xp.vecdot(x, x, axis=0),
    "repeat": lambda x: xp.repeat(x, weft.tensor([1, 0, 2]), axis=0),
    "inv": lambda x: xp.linalg.inv(xp.eye(2, dtype=x.dtype) + x[:2]),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    x = weft.from_numpy(RNG.permuted(np.linspace(0.1, 1.2, 6)).reshape(3, 2))
    assert weft.autograd.gradcheck(GRADIENTS[name], (x.requires_grad_(),))


def test_gradients_flow_through_sets():
    x = weft.tensor([3.0, 1.0, 3.0], requires_grad=True)
    (xp.unique_values(x) * weft.tensor([5.0, 7.0])).sum().backward()
    assert x.grad.tolist() == [7, 5, 0]  # the first of equal elements stands for them


@pytest.mark.parametrize("name", ["prod", "cumulative_sum", "clip", "sort", "vecdot"])
def test_functions_can_be_mapped(name):
    x = RNG.uniform(0.1, 1.2, (4, 3, 2))
    got = weft.func.vmap(GRADIENTS[name])(T(x))
    check(got, np.stack([GRADIENTS[name](T(row)).numpy() for row in x]))


# -- corners that the standard settles

_ENDS = [math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 2.5, math.nan]


def _floored(x, y):
    """The standard's table for floor_divide, where it is not the plain quotient."""
    if math.isnan(x) or math.isnan(y) or (math.isinf(x) and math.isinf(y)):
        return math.nan
    if x == 0 and y == 0:
        return math.nan
    same = math.copysign(1, x) == math.copysign(1, y)
    if math.isinf(x) or y == 0:
        return math.inf if same else -math.inf
    if math.isinf(y) and x != 0:
        return 0.0 if same else -1.0
    return float(np.floor(np.float64(x) / np.float64(y)))


@pytest.mark.parametrize("form", ["eager", "compiled"])
def test_floor_division_at_infinities(form):
    pairs = list(itertools.product(_ENDS, _ENDS))
    x = weft.tensor([p[0] for p in pairs], dtype=weft.float64)
    y = weft.tensor([p[1] for p in pairs], dtype=weft.float64)
    want = np.array([_floored(*p) for p in pairs])
    if form == "eager":
        found = xp.floor_divide(x, y)
    else:
        found = weft.compile(xp.floor_divide)(x, y)
    np.testing.assert_array_equal(found.numpy(), want)
    signs = ~np.isnan(want) & (want != 0)
    np.testing.assert_array_equal(
        np.signbit(found.numpy())[signs], np.signbit(want)[signs]
    )


@pytest.mark.parametrize(
    ("x", "want"),
    [
        (complex(0, 0), complex(0, 0)),
        (complex(math.inf, 0), complex(math.inf, 0)),
        (complex(-math.inf, 2), complex(-1, 0)),
        (complex(math.inf, 2), complex(-math.inf, math.inf)),
        (complex(-math.inf, math.inf), complex(-1, 0)),
        (complex(-math.inf, math.nan), complex(-1, 0)),
        (complex(math.nan, 0), complex(math.nan, 0)),
        (complex(1, math.inf), complex(math.nan, math.nan)),
        (complex(1, math.nan), complex(math.nan, math.nan)),
        (complex(math.nan, 1), complex(math.nan, math.nan)),
        (complex(1e-9, 1e-9), complex(1e-9, 1e-9)),
    ],
)
def test_expm1_of_complex_numbers(x, want):
    found = xp.expm1(weft.tensor(x, dtype=weft.complex128)).item()
    np.testing.assert_allclose(found.real, want.real, rtol=1e-8)
    np.testing.assert_allclose(abs(found.imag), abs(want.imag), rtol=1e-8)


_KEYS = [
    np.s_[::-1], np.s_[::-2], np.s_[2:0:-1], np.s_[-1:-4:-2], np.s_[0:2:-1],
    np.s_[..., ::-1], np.s_[1, ::-1], np.s_[::-1, ::-2], np.s_[:, None, ::-3],
    np.s_[[0, 2], ::-1], np.s_[-5:-7:-1], np.s_[10::-1],
]  # fmt: skip


@pytest.mark.parametrize("key", _KEYS, ids=str)
def test_slices_that_go_backwards(key):
    array = np.arange(12.0).reshape(3, 4)
    x = weft.tensor(array, requires_grad=True)
    want = array[key]
    for found in (x[key], weft.compile(lambda x: x[key])(x)):
        np.testing.assert_array_equal(found.detach().numpy(), want)
    (x[key] * weft.tensor(want)).sum().backward()
    marks = np.zeros_like(array)
    marks[key] = want
    np.testing.assert_array_equal(x.grad.numpy(), marks)
    value = -np.arange(want.size).reshape(want.shape)
    changed, there = weft.tensor(array), array.copy()
    changed[key] = weft.tensor(value)
    there[key] = value
    np.testing.assert_array_equal(changed.numpy(), there)
    assert (
        weft.func.vmap(lambda x: x[::-1])(x.detach()).tolist()
        == array[:, ::-1].tolist()
    )


def test_indices_count_from_the_end():
    x = np.arange(12).reshape(3, 4)
    for axis in (0, 1):
        ids = np.array([-1, 0, -3])
        want = np.take(x, ids, axis)
        np.testing.assert_array_equal(xp.take(T(x), T(ids), axis=axis).numpy(), want)
    ids = np.array([[-1, 0], [1, -2], [-4, 3]])
    same("take_along_axis", x, ids, axis=1)
    with pytest.raises(IndexError):
        xp.take(T(x), T(np.array([-5])), axis=0)


def test_masks_that_are_empty_select_nothing():
    x = weft.ones(3, 4)
    for shape in ((0,), (0, 4), (3, 0), (0, 0)):
        found = x[weft.zeros(shape, dtype=weft.bool)]
        assert found.shape == (0, *x.shape[len(shape) :])
    with pytest.raises(IndexError, match="does not match axes"):
        x[weft.zeros(2, dtype=weft.bool)]
    with pytest.raises(IndexError, match="does not match axes"):
        x[weft.zeros((0, 2), dtype=weft.bool)]


def test_meshgrid_keeps_dtypes():
    grids = xp.meshgrid(weft.tensor([1, 2]), weft.tensor([0.5]))
    assert isinstance(grids, list)
    assert [g.dtype for g in grids] == [weft.int64, weft.float32]


def test_tolerances_for_each_matrix():
    x = np.stack([np.diag([1.0, 0.1, 0.01])] * 3)
    rtol = np.array([0.5, 0.05, 0.0])
    found = xp.linalg.pinv(T(x), rtol=T(rtol))
    want = np.stack([np.linalg.pinv(a, rtol=r) for a, r in zip(x, rtol, strict=True)])
    np.testing.assert_allclose(found.numpy(), want)
    assert xp.linalg.matrix_rank(T(x), rtol=T(rtol)).tolist() == [1, 2, 3]
    one = xp.linalg.pinv(T(x[0]), rtol=T(rtol))
    assert one.shape == (3, 3, 3)
    assert xp.linalg.pinv(T(x), rtol=T(rtol[:1])).shape == x.shape
    y = weft.tensor(x, requires_grad=True)
    weft.linalg.pinv(y, rtol=T(rtol)).sum().backward()
    assert weft.isfinite(y.grad).all()


def test_dtypes_without_a_common_one_cannot_be_cast():
    assert not xp.can_cast(xp.int8, xp.uint64)
    assert not xp.can_cast(xp.uint64, xp.int64)
    assert xp.can_cast(xp.uint8, xp.int16)

"""The compiler's vector math against NumPy, in every format and for every target.

Errors are in units of the last place of the true result. The bounds are the largest
errors measured (all float32 numbers were tried once), rounded up a little.
"""

import functools
import math
import re

import ml_dtypes
import numpy as np
import pytest
from llvmlite import ir
from whole_calls import SERIES

import weft
from weft.compile.emit import math as vector_math
from weft.compile.emit.math import BRANCHING, FUNCTIONS, conversions, emit
from weft.compile.emit.scalar import has_function
from weft.compile.emit.values import Value
from weft.compile.targets.cpu.math_arrays import apply, module_of
from weft.compile.targets.cpu.object_code import assembly, host_isa
from weft.core.lowering import Pointwise
from weft.core.op import all_ops, find_op
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.ops.elementwise import elementwise_batch

LONG = np.longdouble
has_long = pytest.mark.skipif(
    np.finfo(LONG).nmant < 63, reason="longdouble is not wider than float64 here"
)
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SPECIAL = np.array([
    0.0, 1.0, 0.5, 2.0, 3.0, 88.72284, 104.0, 709.8, 745.2, 2.0**23, 2.0**24 + 2,
    1e10, 1e22, 2.0**53 + 2, 3.4028235e38, np.inf, np.nan, 1e-45, 1.1754944e-38,
    5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 1e300, 0.4142135,
])  # fmt: skip
SPECIAL = np.concatenate([SPECIAL, -SPECIAL])


def sigmoid(x):
    z = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, z) / (1 + z)


# name: (NumPy's function, largest error in float32, in float64)
UNARY = {
    "exp": (np.exp, 1.1, 1.1),
    "exp2": (np.exp2, 1.2, 1.2),
    "expm1": (np.expm1, 1.5, 1.9),
    "log": (np.log, 0.9, 0.9),
    "log2": (np.log2, 0.9, 0.9),
    "log10": (np.log10, 0.9, 0.9),
    "log1p": (np.log1p, 0.9, 0.9),
    "sin": (np.sin, 1.0, 1.0),
    "cos": (np.cos, 1.0, 1.0),
    "tan": (np.tan, 1.6, 1.4),
    "asin": (np.arcsin, 0.9, 0.9),
    "acos": (np.arccos, 0.95, 0.95),
    "atan": (np.arctan, 2.0, 2.0),
    "sinh": (np.sinh, 1.7, 1.7),
    "cosh": (np.cosh, 1.6, 1.6),
    "tanh": (np.tanh, 1.6, 1.6),
    "asinh": (np.arcsinh, 0.51, 1.8),
    "acosh": (np.arccosh, 0.51, 2.6),
    "atanh": (np.arctanh, 0.51, 1.9),
    "sigmoid": (sigmoid, 2.5, 2.5),
    "sqrt": (np.sqrt, 0.51, 0.51),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.51, 1.51),
    "reciprocal": (lambda x: 1 / x, 0.51, 0.51),
}


def compiled(name, dtype, inputs=1, output=None, limit=None, lanes=None):
    target = host_isa(limit)
    return apply(
        lambda b, *xs: emit(name, b, *xs, fused=target.fused),
        [dtype] * inputs,
        output or dtype,
        isa=target,
        lanes=lanes,
    )


def patterns(step):
    """float32 numbers of all exponents and signs, and special ones."""
    every = np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32)
    return np.concatenate([every.view(np.float32), SPECIAL.astype(np.float32)])


def doubles(rng, count):
    return np.concatenate([
        rng.integers(0, 2**64, count, dtype=np.uint64).view(np.float64),
        rng.uniform(-1, 1, count),
        rng.uniform(-20, 20, count),
        rng.normal(size=count) * 300,
        1 + rng.normal(size=count) * 0.01,
        10 ** rng.uniform(-10, 10, count) * rng.choice([-1, 1], count),
        SPECIAL,
    ])  # fmt: skip


def error(got, true):
    """The largest error; signs of zero, NaN and infinity must be right."""
    nearest = true.astype(got.dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(nearest))
    there = ~np.isnan(got)
    got, true, nearest = got[there], true[there], nearest[there]
    np.testing.assert_array_equal(np.signbit(got), np.signbit(true))
    finite = np.isfinite(nearest) | np.isfinite(got)
    got, true, nearest = got[finite], true[finite], nearest[finite]
    unit = np.spacing(np.minimum(np.abs(nearest), np.finfo(got.dtype).max))
    return float(np.max(np.abs(got.astype(true.dtype) - true) / unit))


@pytest.mark.parametrize("name", UNARY)
def test_unary_float32(name):
    reference, bound, _ = UNARY[name]
    x = patterns(16411)  # a prime: 262,000 numbers
    true = reference(x.astype(np.float64))
    assert error(compiled(name, np.float32)(x), true) <= bound


@has_long
@pytest.mark.parametrize("name", UNARY)
def test_unary_float64(name, rng):
    reference, _, bound = UNARY[name]
    x = doubles(rng, 4000)
    assert error(compiled(name, np.float64)(x), reference(x.astype(LONG))) <= bound


@pytest.mark.parametrize("limit", ["baseline", "avx2"])
@pytest.mark.parametrize("name", UNARY)
def test_unary_on_narrower_targets(name, limit, rng):
    reference, single, double = UNARY[name]
    x = patterns(400009)
    y = doubles(rng, 500)
    for lanes in (None, 1):  # a hand-made vector, and a loop left to LLVM
        got = compiled(name, np.float32, limit=limit, lanes=lanes)(x)
        assert error(got, reference(x.astype(np.float64))) <= single
        if np.finfo(LONG).nmant >= 63:
            got = compiled(name, np.float64, limit=limit, lanes=lanes)(y)
            assert error(got, reference(y.astype(LONG))) <= double


# -- special functions

# by mpmath in 50 digits, rounded to float64
RECORDED = {
    "erfinv": (
        (1e-300, 8.86226925452758e-301), (0.1, 0.08885599049425769),
        (0.5, 0.4769362762044699), (-0.75, -0.8134198475976185),
        (0.999, 2.3267537655135246), (0.9999999, 3.7665625816384707),
        (0.99999999999999, 5.4725525174145355), (1 - 2.0**-53, 5.8635847487551676),
    ),
    "digamma": (
        (1e-5, -100000.57719921567), (0.25, -4.2274535333762655),
        (1.0, -0.5772156649015329), (1.4616321449683622, -9.241265521729427e-17),
        (2.5, 0.7031566406452432), (7.9, 2.002238487563571),
        (1000.0, 6.907255195648812), (1e15, 34.538776394910684),
        (-0.25, 2.9141391202135276), (-3.6, 0.39267528447471195),
    ),
    "erfcx": (
        (0.001, 0.9988726200811514), (1.0, 0.427583576155807),
        (10.0, 0.05614099274382259), (30.0, 0.01879588886141675),
        (1e10, 5.641895835477563e-11), (-3.0, 16205.988853999586),
    ),
    "i0": (
        (0.001, 1.0000002500000156), (1.0, 1.2660658777520084),
        (19.5, 26760525.339838766), (20.5, 70922869.83431701),
        (100.0, 1.0737517071310738e+42), (-3.0, 4.8807925858650245),
    ),
    "i1": (
        (0.001, 0.0005000000625000026), (1.0, 0.565159103992485),
        (19.5, 26065069.264457166), (20.5, 69170831.67918438),
        (-100.0, -1.0683693903381625e+42),
    ),
    "i0e": (
        (0.001, 0.9990007495835156), (1.0, 0.46575960759364043),
        (19.5, 0.09093943209515648), (20.5, 0.08866442901574524),
        (-1000.0, 0.012617240455891257),
    ),
    "i1e": (
        (0.001, 0.0004995003123542213), (-1.0, -0.20791041534970844),
        (19.5, 0.08857608609431485), (20.5, 0.08647411349408725),
        (10000000000.0, 3.989422803864723e-06),
    ),
    "log_ndtr": (
        (-1000.0, -500007.82669481216), (-20.0, -203.91715537109727),
        (-1.0, -1.8410216450092636), (0.0, -0.6931471805599453),
        (0.5, -0.36894641528865635), (1.0, -0.17275377902344988),
    ),
    "ndtri": (
        (1e-300, -37.0470962993612), (1e-20, -9.262340089798407),
        (0.001, -3.0902323061678136), (0.3, -0.5244005127080408),
        (0.75, 0.6744897501960817), (0.999, 3.090232306167813),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_values(name):
    points, true = np.array(RECORDED[name]).T
    got = compiled(name, np.float64)(points)
    np.testing.assert_allclose(got, true, rtol=1e-15, atol=0)
    single = points.astype(np.float32)
    again = compiled(name, np.float64)(single.astype(np.float64))
    got = compiled(name, np.float32)(single)
    assert error(got, again) <= 0.51


def by_element(fn):
    def each(x):
        return np.array([fn(float(v)) for v in x])

    return each


def lgamma(x):
    whole = math.isinf(x) or (x <= 0 and x == math.floor(x))
    return math.inf if whole else math.lgamma(x)


# name: (Python's function, largest error in float32, relative error in float64)
BY_ELEMENT = {
    "erf": (math.erf, 1.3, 1e-15),
    "erfc": (math.erfc, 0.51, 1e-15),
    "lgamma": (lgamma, 0.51, 2e-15),
}


@pytest.mark.parametrize("name", BY_ELEMENT)
def test_special_functions(name, rng):
    function, bound, relative = BY_ELEMENT[name]
    x = np.concatenate([patterns(2000003), rng.uniform(-6, 27, 4000)])
    x = x.astype(np.float32)
    x = x[~((x < -30) & (name == "lgamma"))]
    wide = x.astype(np.float64)
    true = by_element(function)(wide)
    assert error(compiled(name, np.float32)(x), true) <= bound
    got = compiled(name, np.float64)(wide)
    with np.errstate(all="ignore"):
        near_root = (np.abs(true) < 1) & (name == "lgamma")
        scale = np.where(near_root, 1, np.abs(true))
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(true))
    finite = np.isfinite(true)
    off = np.abs(got - true)[finite] - 5e-324
    assert np.all(off <= relative * scale[finite])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_functions_at_the_edges(dtype):
    x = np.array([1, -1, 2, 0, -0.0, np.inf, -np.inf, np.nan], dtype)
    inf, nan = np.inf, np.nan
    edges = {
        "erf": [None, None, None, 0, -0.0, 1, -1, nan],
        "erfc": [None, None, None, 1, 1, 0, 2, nan],
        "erfcx": [None, None, None, 1, 1, 0, inf, nan],
        "erfinv": [inf, -inf, nan, 0, -0.0, nan, nan, nan],
        "lgamma": [0, inf, 0, inf, inf, inf, inf, nan],
        "digamma": [None, nan, None, -inf, inf, inf, nan, nan],
        "i0": [None, None, None, 1, 1, inf, inf, nan],
        "i1": [None, None, None, 0, -0.0, inf, -inf, nan],
        "i0e": [None, None, None, 1, 1, 0, 0, nan],
        "i1e": [None, None, None, 0, -0.0, 0, -0.0, nan],
        "log_ndtr": [None, None, None, None, None, -0.0, -inf, nan],
        "ndtri": [inf, nan, nan, -inf, -inf, nan, nan, nan],
    }
    for name, expected in edges.items():
        got = compiled(name, dtype)(x)
        for value, want in zip(got, expected, strict=True):
            if want is not None:
                np.testing.assert_array_equal(value, dtype(want), name)
                assert np.isnan(want) or np.signbit(value) == np.signbit(want)


# -- two arguments


def pairs(rng, dtype, count=3000):
    a, b = (doubles(rng, count).astype(dtype) for _ in range(2))
    b = rng.permutation(b)
    c = rng.uniform(0, 10, count).astype(dtype)
    d = rng.uniform(-300, 300, count).astype(dtype)
    near = (c * (1 + rng.normal(size=count) * 0.1)).astype(dtype)
    grid = [
        g.ravel() for g in np.meshgrid(SPECIAL.astype(dtype), SPECIAL.astype(dtype))
    ]
    return np.concatenate([a, c, c, grid[0]]), np.concatenate([b, d, near, grid[1]])


BINARY = {
    "pow": (np.power, 1.2, 1.3),
    "atan2": (np.arctan2, 2.0, 2.0),
    "hypot": (np.hypot, 0.51, 1.01),
}


@has_long
@pytest.mark.parametrize("limit", [None, "baseline"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype, limit, rng):
    reference, *bounds = BINARY[name]
    x, y = pairs(rng, dtype)
    got = compiled(name, dtype, 2, limit=limit)(x, y)
    bound = bounds[dtype is np.float64]
    assert error(got, reference(x.astype(LONG), y.astype(LONG))) <= bound


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logaddexp_is_as_exact_as_its_operands(dtype, rng):
    x, y = pairs(rng, dtype)
    got = compiled("logaddexp", dtype, 2)(x, y)
    true = np.logaddexp(x.astype(LONG), y.astype(LONG))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(true))
    there = np.isfinite(got) & np.isfinite(true.astype(dtype))
    size = np.maximum(1, np.maximum(np.abs(x), np.abs(y)))[there].astype(LONG)
    off = np.abs(got.astype(LONG) - true)[there] / size
    assert np.max(off) <= 2 * np.finfo(dtype).eps
    rest = ~there & ~np.isnan(got)
    np.testing.assert_array_equal(got[rest], true.astype(dtype)[rest])


def assert_same(got, want):
    """Equal, zeros' signs included."""
    np.testing.assert_array_equal(got, want)
    if got.dtype.kind == "f":
        there = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(want)[there])


EXACT_BINARY = {
    "fmod": np.fmod,
    "remainder": np.remainder,
    "floor_divide": np.floor_divide,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
}
UNSIGNED_ZERO = {
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmax": np.fmax,
    "fmin": np.fmin,
}
COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@pytest.mark.parametrize("limit", [None, "baseline"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exact_functions_of_two(dtype, limit, rng):
    x, y = pairs(rng, dtype)
    for name, reference in EXACT_BINARY.items():
        assert_same(compiled(name, dtype, 2, limit=limit)(x, y), reference(x, y))
    for name, reference in UNSIGNED_ZERO.items():
        got = compiled(name, dtype, 2, limit=limit)(x, y)
        quiet = x + 0, y + 0  # aarch64's functions tell signalling NaNs apart
        np.testing.assert_array_equal(got, reference(*quiet))
    for name, reference in COMPARISONS.items():
        got = compiled(name, dtype, 2, bool, limit=limit)(x, y)
        np.testing.assert_array_equal(got, reference(x, y))


EXACT = {
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "neg": np.negative,
    "abs": np.abs,
    "square": np.square,
}
QUESTIONS = {
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "isposinf": np.isposinf,
    "isneginf": np.isneginf,
    "signbit": np.signbit,
}


@pytest.mark.parametrize("limit", [None, "baseline"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exact_functions(dtype, limit, rng):
    x = patterns(200003) if dtype is np.float32 else doubles(rng, 2000)
    for name, reference in EXACT.items():
        assert_same(compiled(name, dtype, limit=limit)(x), reference(x))
    for name, reference in QUESTIONS.items():
        got = compiled(name, dtype, 1, bool, limit=limit)(x)
        np.testing.assert_array_equal(got, reference(x))
    sign = compiled("sign", dtype, limit=limit)(x)
    np.testing.assert_array_equal(sign, np.nan_to_num(np.sign(x)))
    relu = compiled("relu", dtype, limit=limit)(x)
    np.testing.assert_array_equal(relu, np.maximum(x, 0))


# -- 16 bits

ALL_16 = np.arange(-(2**15), 2**15).astype(np.int16)
FLOAT16 = (conversions.float16_to_float, conversions.float_to_float16)
BFLOAT16 = (conversions.bfloat16_to_float, conversions.float_to_bfloat16)
NATIVE = tuple(functools.partial(fn, native=True) for fn in FLOAT16)
# a type, its conversions, and what they must be limited to
NARROW = {
    "float16": (np.float16, *FLOAT16, None),
    "float16 in the baseline": (np.float16, *FLOAT16, "baseline"),
    "native float16": (np.float16, *NATIVE, "avx2"),
    "bfloat16": (ml_dtypes.bfloat16, *BFLOAT16, None),
    "bfloat16 in the baseline": (ml_dtypes.bfloat16, *BFLOAT16, "baseline"),
}


def of_values(fn):
    """A function of values as one of a builder and LLVM's values."""
    return lambda b, x: fn(Value(b, x)).ir


def assert_same_patterns(got, want):
    """The same 16-bit floats; a NaN's payload may differ."""
    a, b = (v.view(want.dtype).astype(np.float32) for v in (got, want))
    assert_same(a, b)


@pytest.mark.parametrize("case", NARROW)
def test_all_16_bit_patterns_go_there_and_back(case):
    narrow, widen, shorten, limit = NARROW[case]
    target = host_isa(limit)
    wide = apply(of_values(widen), [np.int16], np.float32, isa=target)(ALL_16)
    assert_same(wide, ALL_16.view(narrow).astype(np.float32))
    back = apply(of_values(shorten), [np.float32], np.int16, isa=target)(wide)
    numbers = ~np.isnan(wide)
    np.testing.assert_array_equal(back[numbers], ALL_16[numbers])
    assert np.isnan(back.view(narrow)[~numbers].astype(np.float32)).all()


@pytest.mark.parametrize("case", NARROW)
def test_rounding_to_16_bits(case):
    """Random numbers, and for each 16-bit number the middle to the next one."""
    narrow, _, shorten, limit = NARROW[case]
    numbers = np.sort(ALL_16.view(narrow).astype(np.float32))
    numbers = numbers[np.isfinite(numbers)]
    middles = (numbers[1:].astype(np.float64) + numbers[:-1]) / 2
    middles = middles.astype(np.float32)
    around = [middles, np.nextafter(middles, -np.inf), np.nextafter(middles, np.inf)]
    x = np.concatenate([patterns(40009), *around]).astype(np.float32)
    got = apply(of_values(shorten), [np.float32], np.int16, isa=host_isa(limit))(x)
    assert_same_patterns(got, x.astype(narrow))


# -- the code itself


def test_every_pointwise_record_has_code():
    names = {op.name for op in all_ops() if op.batch is elementwise_batch}
    assert set(FUNCTIONS) - names == {"fmax", "fmin"}
    opcodes = {op.lower.scalar for op in all_ops() if isinstance(op.lower, Pointwise)}
    kinds = weft.float32, weft.int64, weft.bool
    for name in opcodes:
        code = any(has_function(name, [kind], kind) for kind in kinds)
        assert code != (name in SERIES), name


@pytest.mark.parametrize(
    "name",
    [op.name for op in all_ops() if len(op.inputs) == 1 and op.name in FUNCTIONS],
)
def test_records_cost_what_their_code_does(name):
    """A record's cost is about half the instructions of the vector code."""
    lanes = ir.VectorType(ir.FloatType(), 8)
    made = ir.Function(ir.Module(), ir.FunctionType(lanes, [lanes]), "f")
    b = ir.IRBuilder(made.append_basic_block())
    emit(name, b, made.args[0], fused=True)
    count = sum(len(block.instructions) for block in made.blocks)
    cost = find_op(name).facts.cost
    assert count <= 8 * max(cost, 1)
    assert cost <= max(count, 8)


def text_of(name, dtype, limit=None, lanes=None):
    """The machine code of a function over arrays."""
    target = host_isa(limit)
    lanes = lanes or target.lanes(np.dtype(dtype).itemsize)
    body = lambda b, x: emit(name, b, x, fused=target.fused)
    return assembly(module_of(body, target, [dtype], dtype, lanes), target)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_call_nothing_but_their_rare_cases(dtype):
    for name in UNARY:
        called = set(re.findall(r"\tcall\w*\s+(\S+)", text_of(name, dtype)))
        assert all(c.startswith("weft.") for c in called), name
        assert not called or name in BRANCHING, name


@pytest.mark.parametrize("name", ["exp", "tanh", "log", "erf"])
def test_loops_of_scalars_become_vectors(name):
    assert "ymm" in text_of(name, np.float32, "avx2", lanes=1)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_loops_of_branching_functions_call_their_vectors(name):
    assert re.search(
        rf"call\w*\s+weft\.v8\.{name}", text_of(name, np.float32, "avx2", 1)
    )


def test_a_function_may_be_emitted_twice(rng):
    """Its tables and rare cases are then there already."""
    x = rng.uniform(-1e6, 1e6, 100)
    for lanes in (None, 1):
        both = apply(
            lambda b, v: emit("add", b, emit("sin", b, v), emit("sin", b, v)),
            [np.float64], np.float64, lanes=lanes,
        )  # fmt: skip
        np.testing.assert_allclose(both(x), 2 * np.sin(x), rtol=1e-15)


def test_rare_lanes_do_not_disturb_their_neighbours():
    """One large angle, or quotient, among ordinary ones."""
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    large = x.copy()
    large[5] = 1e30
    sine = compiled("sin", np.float32)
    others = np.arange(64) != 5
    np.testing.assert_array_equal(sine(large)[others], sine(x)[others])
    y = np.full(64, 1e-3, np.float32)
    remainder = compiled("fmod", np.float32, 2)
    np.testing.assert_array_equal(remainder(large, y), np.fmod(large, y))


def test_mistakes_are_named():
    with pytest.raises(ArgumentError, match=r"emit: expected one of .*got 'polygamma'"):
        emit("polygamma", None)
    exp = compiled("exp", np.float32)
    with pytest.raises(DTypeError, match=r"apply: expected float32 .* got float64"):
        exp(np.ones(3))
    ones = np.ones(3, np.float32)
    with pytest.raises(ShapeError, match="apply: expected arrays of one shape"):
        exp(ones, out=np.ones(4, np.float32))
    with pytest.raises(DTypeError, match="apply: expected 1 arrays"):
        exp(ones, ones)


def test_the_package_names_its_functions():
    assert vector_math.FUNCTIONS["exp"].__doc__ == "e to the power of x."

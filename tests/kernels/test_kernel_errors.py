"""Every mistake in a kernel is an error that says what was expected, and the line."""
# ruff: noqa: B007, F841  (bodies that are wrong in one way)

import linecache
import math

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.kernels import KernelError
from weft.kernels.signature import parse

ONE = "x: float32[n] -> out: float32[n]"


# -- signatures


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x: float32[n]", "expected arguments, '->' and results"),
        ("x float32 -> out: float32", "expected 'name: dtype"),
        ("x -> out: float32", "expected a dtype for x"),
        ("x: float33[n] -> x", "expected a dtype among .* for x, got float33"),
        ("x: complex64[n] -> x", "expected a dtype among"),
        ("x: float32[n, a.b] -> x", "expected sizes such as n, 4 or 2"),
        ("x: float32[] -> x", "expected sizes such as n, 4 or 2"),
        ("x: float32[n] -> y", "expected a dtype for y, or the name of one"),
        ("x: float32[n] -> x: float32[n]", "expected the name x alone"),
        ("x: float32[n], x: int64[n] -> x", "expected each name once"),
        ("x: float32[n] -> x, x", "expected each name once"),
        ("x: float32[n] ->", "expected at least one result"),
        ("x: float32[n] -> out: float32[m]", "expected the size m of out to be one"),
        ("x: float32[2*n] -> x", "expected the size n of x to be one"),
        ("x: float32[n] -> out: T[n]", "expected an argument of the dtype T"),
        ("k: int -> k", "expected the name k alone"),
    ],
)
def test_signatures(text, what):
    with pytest.raises(ArgumentError, match=what):
        parse(text)


def test_a_kernel_needs_a_signature():
    with pytest.raises(
        ArgumentError, match=r"expected a signature, as in @weft\.kernel"
    ):

        @weft.kernel
        def kernel(x, out):
            pass


def test_parameters_are_those_of_the_signature():
    with pytest.raises(KernelError, match=r"expected the parameters .*, x, out, got x"):

        @weft.kernel(ONE)
        def kernel(x):
            pass


def test_a_kernel_is_a_function_with_a_source():
    with pytest.raises(ArgumentError, match="expected a Python function, got int"):
        weft.kernel(ONE)(3)
    with pytest.raises(ArgumentError, match="expected a function that is written with"):
        weft.kernel(ONE)(lambda x, out: None)
    scope = {}
    exec("def kernel(x, out): pass", scope)
    with pytest.raises(ArgumentError, match="the source of kernel was not found"):
        weft.kernel(ONE)(scope["kernel"])


# -- bodies


def no_grid(x, out):
    out[0] = 1.0


def after_the_grid(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = 1.0
    n = 3


def before_the_grid(x, out):
    out[0] = 1.0
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = 1.0


def two_grids(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        for j in weft.kernel.grid(3):
            out[i] = 1.0


def grid_names(x, out):
    for i, j in weft.kernel.grid(x.shape[0]):
        out[i] = 1.0


def race(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[0] = x[i]


def race_reading(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = 1.0
        out[i] += out[0]


def grid_of_another_size(x, out):
    for i in weft.kernel.grid(x.shape[0] - 1):
        out[i] = x[i]


def never_written(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        a = x[i]


def writes_an_input(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        x[i] = 0.0
        out[i] = 0.0


def sets_an_argument(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        x = 3.0
        out[i] = 0.0


def whole_array(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = x + 1


def too_many_indices(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = x[i, 0]


def a_slice(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = x[i:]


def float_index(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = x[x[i]]


def no_array(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = math[i]


def while_loop(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        while x[i] > 0:
            out[i] = 1.0


def breaks(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        for j in range(3):
            out[i] = 1.0
            break


def continues(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        for j in range(3):
            out[i] = 1.0
            continue


def returns(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = 1.0
        return


def calls(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = 1.0
        print(i)


def loop_up_to_a_value(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        for j in range(int(x[i])):
            out[i] = 1.0


def loop_over_a_list(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        for j in [1, 2]:
            out[i] = 1.0


def step_of_zero(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        for j in range(0, 3, 0):
            out[i] = 1.0


def unset(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        if x[i] > 0:
            a = x[i]
        out[i] = a


def unset_after_a_loop(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        for j in range(3):
            a = x[i]
        out[i] = a


def unknown(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = nothing  # noqa: F821


def unknown_function(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = np.sort(x[i])


def wrong_count(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = math.exp(x[i], 2)


def missing_function(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = math.expp(x[i])


def keyword(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = weft.exp(input=x[i])


def text(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = "a"


def a_list(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = [1.0]


def matrices(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = x[i] @ x[i]


def identity_test(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = 1.0 if x[i] is x[i] else 0.0


def an_axis(x, out):
    for i in weft.kernel.grid(x.shape[1]):
        out[i] = 1.0


def several_targets(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        a = b = x[i]
        out[i] = a + b


def unequal_targets(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        a, b = x[i], x[i], 1.0
        out[i] = a + b


def divided_by_zero(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = x[i] * (1 / 0)


def an_object(x, out):
    for i in weft.kernel.grid(x.shape[0]):
        out[i] = x[i] * np.pi.real.__class__


ERRORS = {
    no_grid: ("expected 'for i in weft.kernel.grid", "out[0] = 1.0"),
    after_the_grid: ("as the last statement", "n = 3"),
    before_the_grid: ("expected arrays to be used inside the grid", "out[0] = 1.0"),
    two_grids: ("expected one grid", "weft.kernel.grid(3)"),
    grid_names: ("expected 1 names for a grid of 1 axes", "for i, j in"),
    race: ("grid points may race for out: expected i as an index", "out[0] = x[i]"),
    race_reading: ("grid points may race for out", "out[i] += out[0]"),
    grid_of_another_size: ("expected a grid of n', the size of axis 0 of out", "grid"),
    never_written: ("expected out to be written", "for i in"),
    writes_an_input: ("x is read only; name it after '->'", "x[i] = 0.0"),
    sets_an_argument: ("x is an argument; its elements", "x = 3.0"),
    whole_array: ("expected an element of x: float32", "out[i] = x + 1"),
    too_many_indices: ("expected 1 indices for x", "x[i, 0]"),
    a_slice: ("expected one element, got a slice", "x[i:]"),
    float_index: ("expected a whole number as an index, got one of float32", "x[x[i]]"),
    no_array: ("expected one of the arrays x, out, got math", "math[i]"),
    while_loop: ("while loops are not part of kernels", "while x[i] > 0:"),
    breaks: ("break is not part of kernels", "break"),
    continues: ("continue is not part of kernels", "continue"),
    returns: ("a kernel returns nothing", "return"),
    calls: ("expected an assignment, a loop over range", "print(i)"),
    loop_up_to_a_value: ("to be made of sizes, loop variables and whole", "int(x[i])"),
    loop_over_a_list: ("expected a loop over range", "for j in [1, 2]"),
    step_of_zero: ("expected a whole number other than 0 as the step", "0, 3, 0"),
    unset: ("a may not be set here", "out[i] = a"),
    unset_after_a_loop: ("a may not be set here", "out[i] = a"),
    unknown: ("nothing is not set here", "out[i] = nothing"),
    unknown_function: ("np.sort of 1 arguments is not a function", "np.sort"),
    wrong_count: ("math.exp of 2 arguments is not a function", "math.exp"),
    missing_function: ("math.expp does not exist", "math.expp"),
    keyword: ("expected plain arguments, by position", "input=x[i]"),
    text: ("expected a number, got 'a'", "out[i] ="),
    a_list: ("is not part of kernels", "[1.0]"),
    matrices: ("expected arithmetic of numbers", "@ x[i]"),
    identity_test: ("expected ==, !=, <", "is x[i]"),
    an_axis: ("expected an axis below 1", "x.shape[1]"),
    several_targets: ("expected one target", "a = b"),
    unequal_targets: ("expected 3 names", "a, b ="),
    divided_by_zero: ("division by zero", "(1 / 0)"),
    an_object: ("to be a number, got type", "__class__"),
}


@pytest.mark.parametrize("body", ERRORS, ids=lambda body: body.__name__)
def test_bodies(body):
    what, line = ERRORS[body]
    with pytest.raises(KernelError) as error:
        weft.kernel(ONE)(body)
    assert what in str(error.value)
    assert line in str(error.value)
    number = int(str(error.value).split("test_kernel_errors.py:")[1].split(",")[0])
    assert line in linecache.getline(__file__, number)
    assert f", in {body.__name__}\n" in str(error.value)


def test_a_float_is_no_whole_number():
    with pytest.raises(KernelError, match="expected a value for out of int64, got one "
                       "of float32; round it first"):  # fmt: skip

        @weft.kernel("x: float32[n] -> out: int64[n]")
        def kernel(x, out):
            for i in weft.kernel.grid(x.shape[0]):
                out[i] = x[i]


# -- calls


@weft.kernel(
    "x: float32[n, m], w: float32[m], a: float32, k: int -> out: float32[n, k]"
)
def kernel(x, w, a, k, out):
    for i in weft.kernel.grid(x.shape[0]):
        for j in range(k):
            out[i, j] = a * x[i, 0] * w[0]


@pytest.mark.parametrize(
    ("args", "kind", "what"),
    [
        (((2, 3), (4,), 1.0, 2), ShapeError, r"expected w: float32\[m\], got "
         r"float32\[4\] where k = 2, n = 2, m = 3"),
        (((2,), (3,), 1.0, 2), ShapeError, r"expected x: float32\[n, m\], got"),
        (((2, 3), (3,), 1.0, -1), ShapeError, "a size of at least 0, but k is -1"),
        (((2, 3), (3,), 1.0, 2.5), DTypeError, "a whole number for k, got float"),
        (((2, 3), (3,), "a", 2), DTypeError, "expected a tensor for a: float32, got"),
        (((2, 3), (3,), 1.0), ArgumentError, "expected the arguments x, w, a, k"),
        (((2, 3), (3,), 1.0, 2, 3), ArgumentError, "expected the arguments x, w, a, k"),
    ],
)  # fmt: skip
def test_calls(args, kind, what):
    args = [weft.zeros(a) if isinstance(a, tuple) else a for a in args]
    with pytest.raises(kind, match=what):
        kernel(*args)


def test_calls_by_name():
    given = {"x": weft.ones(2, 3), "w": weft.ones(3), "a": 2, "k": 2}
    assert kernel(**given).tolist() == [[2, 2], [2, 2]]
    with pytest.raises(ArgumentError, match="expected the arguments x, w, a, k"):
        kernel(weft.ones(2, 3), x=weft.ones(2, 3), w=weft.ones(3), a=2)


def test_dtypes_of_calls():
    with pytest.raises(DTypeError, match=r"expected x: float32\[n, m\], got float64"):
        kernel(weft.zeros(2, 3, dtype=weft.float64), weft.zeros(3), 1.0, 1)
    with pytest.raises(DTypeError, match="expected a tensor for x"):
        kernel([[1.0]], weft.zeros(3), 1.0, 1)

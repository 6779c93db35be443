"""Operators' records are complete, and what they state of an operator is true."""

import functools
import importlib
import pathlib
import pkgutil
import subprocess
import sys

import numpy as np
import pytest
from operator_lists import operator_lists

import weft
from weft.compile.cost.work import flops
from weft.core.lowering import Library, Pointwise, Reduction
from weft.core.op import Facts, Op, all_ops, find_op
from weft.errors import ArgumentError, DTypeError
from weft.ops.elementwise import unary
from weft.ops.public import EXPORTED, public

ROOT = pathlib.Path(weft.__file__).parent
for info in pkgutil.walk_packages(weft.__path__, "weft."):
    importlib.import_module(info.name)
OPS = all_ops()


# -- nothing else lists operators

# Rules match particular operators, and other names are called like some of them.
ALLOWED = {
    "matmul wide_matmul": "products of short elements, and products that are wide",
    "div exp sub sum amax": "what a softmax is made of",
    "add sub mul": "what a convolution takes into its weights",
    "conv conv_bias": "the convolutions that take it",
    "matmul conv conv_bias": "products of one operand that become one product",
    "conv conv_bias conv_input_grad conv_weight_grad": "those with a stride",
    "conv_input_grad conv_weight_grad": "those of them that are gradients",
    "conv conv_input_grad conv_weight_grad": "those with a form for channels last",
    "conv conv_last": "families of what cuDNN computes",
    "take add_at": "what a max pool and its gradient do with indices",
    "expand slice place flip resample": "a rule each that moves a permute past it",
    "reshape expand permute slice put_slice flip cat cast": "a rule each for views",
    "full expand": "what repeats a number, a rule each",
    "absorb div": "rules beside the equations",
    "conv attention": "families of library kernels",
    "sum prod amax amin": "what empty segments of static graphs have",
    "sum maximum minimum": "examples of static functions of segments",
    "full cast alias reshape cat slice prod add sub mul floor_divide": "sizes",
    "eq ge gt le lt ne": "methods of Python that compare",
    "cond scan": "the operators of control flow, a native function each",
    "tanh relu": "options of nn.RNN and of nn.init",
    "cholesky det eigvalsh inv solve": "functions of numpy.linalg",
    "add sub mul absorb div neg pow square reciprocal sqrt rsqrt": "formulas",
    "log asin acos atan": "names of functions in formulas",
    "sin cos tan sinh cosh tanh exp": "commands of LaTeX",
    "reshape take slice matmul mul div add sub pow sum permute cat clone": "a function "
    "each for sparse tensors",
    "all any": "modes of a hook on several gradients",
    "matmul conv": "switches of PyTorch's backends",
    "conj neg": "bits of tensors in PyTorch's files",
    "amax amin prod": "names that ONNX has for what a scatter does",
    "reshape take reshape add max_pool_index": "what unpooling indexes, in ONNX files",
    "reshape mul arange": "the beginnings of its rows",
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor log neg "
    "reciprocal relu round sigmoid sign sin sinh sqrt tan tanh isnan alias clone "
    "conj": "functions of one element, by ONNX's names for them",
    "add sub mul div pow eq lt le gt ge maximum minimum where": "those of several",
}


@functools.cache
def lists_outside_of_the_records():
    return list(_lists_outside())


def _lists_outside():
    known = {op.name for op in OPS}
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT)
        if place.parts[0] != "ops":
            for line, names in operator_lists(path.read_text(), known):
                yield f"{place}:{line}", names


def test_no_module_but_the_records_lists_operators():
    found = [f"{p}: {n}" for p, n in lists_outside_of_the_records() if n not in ALLOWED]
    assert not found, (
        "properties of operators belong into their records (weft.core.op.Facts); "
        "found\n" + "\n".join(found)
    )


def test_nothing_is_allowed_in_vain():
    assert {names for _, names in lists_outside_of_the_records()} == set(ALLOWED)


@pytest.mark.parametrize(
    "text",
    [
        'CHEAP = {"add", "mul"}',
        'CHEAP = frozenset(["add", "mul", "no_operator"])',
        'COST = {"exp": 12, "log": 16}',
        'if node.op.name in ("add", "mul"): pass',
        'MOVES = frozenset(map(find_op, ("flip", "slice")))',
        'CHEAP = "add mul neg".split()',
        'A = find_op("add")\nB = find_op("mul")\nif op in (A, B): pass',
        'A, B = find_op("add"), find_op("mul")\nCHEAP = {A, B}',
        "from weft.ops.conv import conv_op, im2col_op\nK = {conv_op: 1, im2col_op: 2}",
        "from weft.compile.passes.facts import CAST, EXPAND\nMOVES = [CAST, EXPAND]",
        'from llvmlite import ir\nEXACT = ("maximum", "minimum")',
    ],
)
def test_planted_lists_are_found(text):
    assert operator_lists(text, {op.name for op in OPS})


@pytest.mark.parametrize(
    "text",
    [
        'ADD, MUL = find_op("add"), find_op("mul")',
        'ADD, MUL = map(find_op, ("add", "mul"))',
        'names = ("add", "subtract", "multiply")',
        'reduction in ("mean", "sum")',
        '__all__ = ["add", "mul"]',
        'from llvmlite import ir\nCODE = {"add": lambda b, x: b.fneg(x), "neg": 0}',
    ],
)
def test_other_collections_are_left_alone(text):
    assert not operator_lists(text, {op.name for op in OPS})


# -- what records state

NUMBERS = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 700.0, -700.0, 6e4, 1e-7, np.inf, -np.inf]
)
PAIRS = [a.ravel() for a in np.meshgrid(NUMBERS, NUMBERS)]


def stating(fact):
    found = [op for op in OPS if getattr(op.facts, fact) not in (False, None, "")]
    assert found
    return pytest.mark.parametrize("op", found, ids=lambda op: op.name)


def evaluated(op, *args):
    with np.errstate(all="ignore"):
        return np.asarray(op.eval(*args))


def operands(op):
    """Pairs of numbers of a dtype that the operator takes."""
    for dtype in ("float64", "float32", "int64", "bool"):
        whole = [np.where(np.isfinite(a), a, 9) for a in PAIRS]
        pair = [np.asarray(a if dtype[0] == "f" else w, dtype)
                for a, w in zip(PAIRS, whole, strict=True)]  # fmt: skip
        kinds = [
            weft.core.op.TensorType(a.shape, weft.as_tensor(a).dtype) for a in pair
        ]
        try:
            op.type(*kinds)
        except DTypeError:
            continue
        yield pair


@stating("commutes")
def test_operands_commute(op):
    for x, y in operands(op):
        np.testing.assert_array_equal(evaluated(op, x, y), evaluated(op, y, x))


@stating("idempotent")
def test_combining_twice_changes_nothing(op):
    for x, y in operands(op):
        once = evaluated(op, x, y)
        np.testing.assert_array_equal(evaluated(op, once, y.astype(once.dtype)), once)


@stating("identity")
def test_reductions_start_from_what_changes_nothing(op):
    for x, _ in operands(op):
        if op.facts.returns == "bool" and x.dtype != bool:
            continue
        if not np.isfinite(op.facts.identity) and x.dtype.kind != "f":
            continue
        start = np.full_like(x, op.facts.identity)
        np.testing.assert_array_equal(evaluated(op, start, x), x)
        np.testing.assert_array_equal(evaluated(op, x, start), x)


@pytest.mark.parametrize(
    "op", [op for op in OPS if isinstance(op.lower, Reduction)], ids=lambda op: op.name
)
def test_reductions_combine_by_operators_with_an_identity(op):
    combine = find_op(op.lower.combine)
    assert combine.facts.identity is not None
    assert combine.facts.commutes
    assert isinstance(combine.eval, np.ufunc)


@stating("bounds")
def test_results_are_within_bounds(op):
    if op.facts.random:
        found = weft.rand(1000).numpy()
    else:
        found = evaluated(op, NUMBERS)
    least, most = op.facts.bounds
    within = (found >= least) & (found <= most)
    assert np.all(within if op.facts.random else within | ~np.isfinite(NUMBERS))
    assert not np.isinf(found).any()


@stating("keeps_finite")
def test_finite_numbers_have_finite_results(op):
    large = np.array([np.finfo(np.float64).max, 0.0, 1e-300])
    for x in (NUMBERS, large, -large):
        assert np.all(np.isfinite(evaluated(op, x)) | ~np.isfinite(x))


@stating("exact")
def test_results_of_half_numbers_are_half_numbers(op):
    narrow = [a.astype(np.float16) for a in PAIRS]
    given = [a.astype(np.float32) for a in narrow[: len(op.inputs)]]
    if op.name == "where":
        given = [given[0] > 0, given[0], narrow[1].astype(np.float32)]
    if op.name == "nextafter":
        return  # the next number of the dtype itself
    wide = evaluated(op, *given)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(wide, wide.astype(np.float16))


@stating("numbers")
def test_numbers_stand_for_tensors_full_of_them(op):
    dtypes = ["float32", "float64"] + ["int64", "uint8"] * (op.facts.numbers == "all")
    for dtype in dtypes:
        x = np.array([1, 2, 3, 5], dtype)
        lead = (x > 2,) if op.name == "where" else ()
        kind = weft.core.op.TensorType(x.shape, weft.as_tensor(x).dtype)
        try:
            op.type(
                *[weft.core.op.TensorType(x.shape, weft.bool)] * len(lead), kind, kind
            )
        except DTypeError:
            continue
        for args in ((x, 2), (2, x)):
            tensors = [np.full_like(x, a) if isinstance(a, int) else a for a in args]
            found, wanted = evaluated(op, *lead, *args), evaluated(op, *lead, *tensors)
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


@stating("infix")
def test_infix_signs_are_pythons(op):
    sign = {"and": "&", "or": "|"}.get(op.facts.infix, op.facts.infix)
    kind = bool if op.facts.infix in ("and", "or") else float
    x, y = np.array([1, 0, 1, 0], kind), np.array([1, 1, 0, 0], kind) + (kind is float)
    np.testing.assert_array_equal(evaluated(op, x, y), eval(f"x {sign} y"))


@stating("random")
def test_random_numbers_are_made_of_a_seed(op):
    assert op.inputs[0] == "seed"
    assert op.inputs[1] in ("counter", "block")


@pytest.mark.parametrize(
    "op", [op for op in OPS if isinstance(op.lower, Pointwise)], ids=lambda op: op.name
)
def test_pointwise_operators_are_elementwise(op):
    assert op.facts.elementwise
    found = [d for d in (weft.float32, weft.int64) if _returned(op, d)]
    assert found


def _returned(op, dtype):
    """Whether a record tells its result's dtype, if it takes this one."""
    kind = weft.core.op.TensorType((2,), dtype)
    params = {"dtype": dtype} if op.name == "cast" else {}
    first = kind._replace(dtype=weft.bool) if op.name == "where" else kind
    try:
        out = op.type(first, *[kind] * (len(op.inputs) - 1), **params).dtype
    except DTypeError:
        return False
    assert (out is weft.bool) == (op.facts.returns == "bool")
    return True


def test_library_operators_have_kernels():
    from weft.compile.eager import _LIBRARY

    families = {op.lower.family for op in OPS if isinstance(op.lower, Library)}
    assert families - {"conv_last"} == set(_LIBRARY)  # it is conv between permutes
    assert all(op.facts.flops for op in OPS if isinstance(op.lower, Library))


def test_gradients_of_convolutions_cost_as_much_as_the_convolution():
    def step(x, w, b):
        weft.nn.functional.conv2d(x, w, b, stride=2).square().sum().backward()

    x, w, b = weft.ones(2, 3, 9, 9), weft.ones(4, 3, 3, 3), weft.ones(4)
    given = [t.requires_grad_() for t in (x, w, b)]
    graph = weft.graph.capture(step, *given).graph
    found = {
        n.op.name: flops(n, {}) for n in graph.nodes if n.op.name.startswith("conv")
    }
    assert set(found.values()) == {2 * 2 * 4 * 4 * 4 * 3 * 3 * 3}
    assert {"conv_input_grad", "conv_weight_grad"} <= set(found)


def test_unknown_facts_are_refused():
    with pytest.raises(
        TypeError, match="no field 'comutes'; the fields are elementwise"
    ):
        Op("new", inputs="x", eval=np.exp, type=None, comutes=True)


def test_what_is_not_stated_is_not_assumed():
    op = Op("new", inputs="x", eval=np.exp, type=None)
    assert vars(op.facts) == {}
    assert not any([op.facts.commutes, op.facts.exact, op.facts.elementwise])
    assert Facts(cost=3).cost == 3


# -- public names


def test_stubs_are_up_to_date():
    path = ROOT.parent.parent / "tools" / "stubs.py"
    # in a process of its own: overrides that a test enables change functions' code
    checked = subprocess.run([sys.executable, str(path), "--check"], check=False)
    assert checked.returncode == 0, "run tools/stubs.py to update the stubs"


def test_every_exported_function_is_found_under_its_name():
    for name, fn in EXPORTED.items():
        found = getattr(weft, name)
        assert fn in (found, getattr(found, "__wrapped__", None))


@pytest.mark.parametrize("name", ["exp", "clamp", "shape", "backward", "config"])
def test_names_are_not_taken_twice(name):
    before = getattr(weft.Tensor, name, None), getattr(weft, name, None)
    with pytest.raises(ArgumentError, match=f"something else named '{name}'"):
        public(name, method=True)(lambda x: x)
    with pytest.raises(ArgumentError, match=f"something else named '{name}'"):
        public("newest", also=("newer", name), method=True)(lambda x: x)
    assert (getattr(weft.Tensor, name, None), getattr(weft, name, None)) == before
    assert not hasattr(weft, "newest")
    assert not hasattr(weft.Tensor, "newer")


def test_an_operator_whose_name_is_taken_is_not_registered():
    before = weft.clamp
    with pytest.raises(ArgumentError, match="something else named 'clamp'"):
        unary("clamp", np.abs, doc="", reference=np.abs)
    assert weft.clamp is before
    with pytest.raises(ArgumentError, match="no operator is named 'clamp'"):
        find_op("clamp")


def test_every_operator_is_found_without_its_module():
    """No module of Weft defines an operator that ``all_ops`` did not know."""
    code = (
        "import importlib, pkgutil, weft\n"
        "from weft.core.op import all_ops\n"
        "before = {op.name for op in all_ops()}\n"
        "for one in pkgutil.walk_packages(weft.__path__, 'weft.'):\n"
        "    if one.name != 'weft.cli.__main__':\n"
        "        importlib.import_module(one.name)\n"
        "print(sorted({op.name for op in all_ops()} - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr

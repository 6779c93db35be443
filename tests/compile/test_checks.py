"""Values that are refused eagerly are refused by every form of a program.

Records say which inputs they refuse; functions check by ``ops.requiring``. Both are
planted here in compiled functions, captured graphs, saved programs, static sessions and
under vmap. The last test looks for records that refuse what they do not declare.
"""

import io

import numpy as np
import pytest
from records import OPS

import weft
from weft import dtype as dtypes
from weft import static
from weft.core.dispatch import bind
from weft.core.tensor import Tensor
from weft.errors import WeftError
from weft.graph.ir import INPUT

F = weft.nn.functional
T = weft.tensor
LINE = "test_checks.py"


def reloaded(program):
    file = io.BytesIO()
    weft.save(program, file)
    return weft.load(io.BytesIO(file.getvalue()))


def in_session(fn, good, bad):
    """A function built as a static graph, and fed."""
    with static.Graph().as_default(), static.Session() as session:
        places = [static.placeholder(x.dtype, list(x.shape)) for x in good]
        out = fn(*places)
        session.run(out, dict(zip(places, good, strict=True)))
        session.run(out, dict(zip(places, bad, strict=True)))


FORMS = {
    "compiled": lambda fn, good: weft.compile(fn),
    "captured": lambda fn, good: weft.graph.capture(fn, *good),
    "saved": lambda fn, good: reloaded(weft.graph.capture(fn, *good)),
}


def first_line(error):
    return str(error.value).partition("\n")[0]


def check_form(form, fn, good, bad):
    """A form gives an answer for good values, and the eager error for bad ones."""
    with pytest.raises(WeftError) as eager:
        fn(*bad)
    if form == "static":
        with pytest.raises(type(eager.value)) as found:
            in_session(fn, good, bad)
    else:
        program = FORMS[form](fn, good)
        program(*good)
        with pytest.raises(type(eager.value)) as found:
            program(*bad)
    assert first_line(found) == first_line(eager)
    assert LINE in str(found.value)


# -- records


def planted(op):
    """A sample of a record, and the same with an input that is refused."""
    for sample in op.samples(np.random.default_rng(0)):
        for name, number in op.refuses.items():
            place = op.inputs.index(name)
            args = [np.array(a) for a in sample.args]
            if type(number) is int:
                floats = [a.dtype.kind == "f" and a.ndim > 0 for a in args]
                whole = args[place].dtype.kind == "f"
                args = [
                    np.ceil(a).astype(np.int64) if f and whole else a
                    for a, f in zip(args, floats, strict=True)
                ]
            if args[place].size and args[place].ndim:
                bad = list(args)
                bad[place] = np.full_like(args[place], number)
                yield list(map(Tensor, args)), list(map(Tensor, bad)), sample.params


REFUSING = sorted(name for name, op in OPS.items() if op.refuses)


@pytest.mark.parametrize("form", [*FORMS, "static"])
@pytest.mark.parametrize("name", REFUSING)
def test_a_record_refuses_values_in_every_form(name, form):
    op = OPS[name]
    good, bad, params = next(planted(op))
    check_form(form, lambda *xs: op(*xs, **params), good, bad)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", REFUSING)
def test_a_result_that_nothing_needs_is_refused_all_the_same(name, form):
    op = OPS[name]
    good, bad, params = next(planted(op))

    def fn(*xs):
        op(*xs, **params)
        return xs[0] + xs[0] if xs[0].dtype is not weft.bool else xs[0]

    check_form(form, fn, good, bad)


PROGRAMS = {"cond", "scan", "sized", "while_loop"}  # which refuse what their parts do


def kinds(array):
    """An array as it is and, if its numbers may be whole, of whole numbers."""
    yield array
    if array.dtype.kind == "f":
        yield np.asarray(np.round(array).astype(np.int64))


def odd_numbers(array):
    numbers = []
    if array.dtype.kind == "i":
        info = np.iinfo(array.dtype)
        numbers = [max(-(10**6), info.min), min(10**6, info.max), 0, -1]
    if array.dtype.kind == "f":
        numbers = [np.nan, np.inf, -np.inf, 0.0, -1.0]
    return [] if array.size == 0 else numbers


def refusals(op):
    """The inputs that evaluation refuses when odd numbers are planted in them."""
    found = set()
    for sample in op.samples(np.random.default_rng(0)):
        for place, given in enumerate(sample.args):
            if not isinstance(given, np.ndarray):
                continue
            for array in kinds(given):
                for number in odd_numbers(array):
                    args = [np.array(a) for a in sample.args]
                    if array is not given:
                        args = [list(kinds(a))[-1] for a in args]
                    args[place] = np.full_like(array, number)
                    try:
                        bind(op, tuple(map(Tensor, args)), sample.params)
                    except weft.errors.DTypeError:
                        pass
                    except WeftError:
                        found.add("*" if op.variadic else op.inputs[place])
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(set(OPS) - PROGRAMS))
def test_records_declare_all_that_they_refuse(name):
    op = OPS[name]
    assert refusals(op) <= set(op.refuses)


# -- functions


def assigned(x, i):
    out = x.clone()
    out[i] = 1.0
    return out


FUNCTIONS = {
    "one_hot": (lambda i: weft.one_hot(i, 3), [T([0, 1])], [T([0, 5])]),
    "one_hot of -1": (lambda i: weft.one_hot(i, 3), [T([0, 1])], [T([0, -1])]),
    "unravel_index": (
        lambda i: weft.unravel_index(i, (2, 3))[1], [T([0, 1])], [T([0, 7])],
    ),
    "bernoulli": (lambda p: weft.bernoulli(p), [T([0.0, 1.0])], [T([0.0, 1.5])]),
    "bernoulli of NaN": (
        lambda p: weft.bernoulli(p), [T([0.0, 1.0])], [T([0.0, float("nan")])],
    ),
    "multinomial of few": (
        lambda p: weft.multinomial(p, 2), [T([0.5, 1.0])], [T([0.0, 1.5])],
    ),
    "multinomial of negative": (
        lambda p: weft.multinomial(p, 2, True), [T([0.5, 1.0])], [T([-1.0, 1.5])],
    ),
    "multinomial of none": (
        lambda p: weft.multinomial(p, 2, True), [T([0.5, 1.0])], [T([0.0, 0.0])],
    ),
    "binary_cross_entropy": (
        F.binary_cross_entropy, [T([0.5, 1.0]), T([0.0, 1.0])],
        [T([2.0, 1.5]), T([0.0, 1.0])],
    ),
    "binary_cross_entropy's target": (
        F.binary_cross_entropy, [T([0.5, 1.0]), T([0.0, 1.0])],
        [T([0.5, 1.0]), T([0.0, 3.0])],
    ),
    "binary_cross_entropy_with_logits": (
        F.binary_cross_entropy_with_logits, [T([0.5, 1.0]), T([0.0, 1.0])],
        [T([0.5, 1.0]), T([0.0, 3.0])],
    ),
    "nll_loss": (
        F.nll_loss, [weft.zeros(2, 3), T([0, -100])], [weft.zeros(2, 3), T([0, -3])],
    ),
    "cross_entropy": (
        F.cross_entropy, [weft.zeros(2, 3), T([0, 1])], [weft.zeros(2, 3), T([0, 3])],
    ),
    "multi_margin_loss": (
        F.multi_margin_loss, [weft.zeros(2, 3), T([0, 1])],
        [weft.zeros(2, 3), T([0, -3])],
    ),
    "gaussian_nll_loss": (
        lambda x, v: F.gaussian_nll_loss(x, x, v), [weft.zeros(2), T([0.0, 1.0])],
        [weft.zeros(2), T([-1.0, 1.0])],
    ),
    "embedding": (
        lambda w, i: F.embedding(i, w), [weft.zeros(3, 2), T([0, 1])],
        [weft.zeros(3, 2), T([0, -1])],
    ),
    "index_select": (
        lambda x, i: x.index_select(0, i), [weft.zeros(3, 2), T([0, 1])],
        [weft.zeros(3, 2), T([0, -1])],
    ),
    "index_add": (
        lambda x, i: x.index_add(0, i, x[:2]), [weft.zeros(3, 2), T([0, 1])],
        [weft.zeros(3, 2), T([0, -1])],
    ),
    "index_copy": (
        lambda x, i: x.index_copy(0, i, x[:2]), [weft.zeros(3, 2), T([0, 1])],
        [weft.zeros(3, 2), T([0, -1])],
    ),
    "max_unpool1d": (
        lambda x, i: F.max_unpool1d(x, i, 2), [weft.zeros(1, 2), T([[0, 1]])],
        [weft.zeros(1, 2), T([[0, -1]])],
    ),
    "masked_scatter": (
        lambda x, m: x.masked_scatter(m, weft.ones(2)),
        [weft.zeros(3), T([True, True, False])], [weft.zeros(3), T([True, True, True])],
    ),
    "get_total_norm": (
        lambda x: weft.nn.utils.get_total_norm([x], error_if_nonfinite=True),
        [weft.ones(3)], [weft.full((3,), float("inf"))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", [*FORMS, "static"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_refuses_values_in_every_form(name, form):
    fn, good, bad = FUNCTIONS[name]
    check_form(form, lambda *xs: fn(*xs), good, bad)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_whose_result_nothing_needs_refuses_values(name, form):
    fn, good, bad = FUNCTIONS[name]

    def unused(*xs):
        fn(*xs)
        return xs[0].float() + 1

    check_form(form, unused, good, bad)


BATCHABLE = sorted(set(FUNCTIONS) - {"bernoulli", "bernoulli of NaN"} - {
    name for name in FUNCTIONS if name.startswith("multinomial")
})  # fmt: skip


@pytest.mark.parametrize("name", BATCHABLE)
def test_a_batched_function_refuses_values(name):
    fn, good, bad = FUNCTIONS[name]
    stacks = [weft.stack([g, b]) for g, b in zip(good, bad, strict=True)]
    weft.func.vmap(fn)(*[weft.stack([g, g]) for g in good])
    with pytest.raises(WeftError) as eager:
        fn(*bad)
    with pytest.raises(type(eager.value)):
        weft.func.vmap(fn)(*stacks)


@pytest.mark.parametrize("form", FORMS)
def test_a_check_in_a_branch_tells_the_value(form):
    def fn(x, i):
        hot = lambda x: x + weft.one_hot(i, 3).sum()
        return weft.cond(x.sum() >= 0, hot, lambda x: x, x)

    good, bad = [weft.zeros(3), T([0, 1])], [weft.zeros(3), T([0, 5])]
    check_form(form, fn, good, bad)
    program = FORMS[form](fn, good)
    program(weft.zeros(3) - 1, bad[1])  # the branch that does not check


@pytest.mark.parametrize("form", FORMS)
def test_a_step_that_is_refused_changes_nothing(form):
    total = weft.zeros(3)

    def step(p):
        total.add_(p)
        total.add_(weft.bernoulli(p))
        return total.sum()

    program = FORMS[form](step, [T([0.0, 1.0, 1.0])])
    state = program.state_dict() if form == "saved" else {"total": total}
    before = [x.clone() for x in state.values()]
    with pytest.raises(WeftError, match=r"between 0 and 1, got 2.0 at position \(1,\)"):
        program(T([0.0, 2.0, 1.0]))
    now = program.state_dict() if form == "saved" else {"total": total}
    for a, b in zip(now.values(), before, strict=True):
        assert weft.equal(a, b)


def test_gradients_pass_through_a_check():
    def loss(p, y):
        return F.binary_cross_entropy(p, y)

    p, y = T([0.25, 0.5], requires_grad=True), T([0.0, 1.0])
    loss(p, y).backward()
    want, p.grad = p.grad, None
    weft.compile(loss)(p, y).backward()
    assert weft.allclose(p.grad, want)
    found = weft.func.jvp(loss, (p.detach(), y), (weft.ones(2), weft.zeros(2)))[1]
    assert weft.allclose(found, want.sum())


def test_a_check_costs_a_program_one_number():
    """What needs the value reads it where it is, not behind the check."""
    graph = weft.graph.capture(F.binary_cross_entropy, weft.rand(64), weft.rand(64))
    after = weft.compile.pipeline.run(graph.graph)
    checks = [n for n in after if n.op.name == "require"]
    assert [n.shape for n in checks] == [(), ()]
    used = {i for n in after for i in n.inputs}
    assert not used & set(checks)


def test_rank_deficient_least_squares_have_no_residuals_in_a_program():
    def residuals(a):
        return weft.linalg.lstsq(a, a).residuals

    tall = weft.eye(3)[:, :2].contiguous()
    program = weft.compile(residuals)
    assert program(tall).shape == (2,)
    assert residuals(weft.zeros(3, 2)).shape == (0,)
    with pytest.raises(weft.errors.ArgumentError, match="has rank 0, not 2"):
        program(weft.zeros(3, 2))


def test_float_division_is_no_effect():
    from weft.graph.passes import dead_code

    def fn(x, y):
        x // y
        return x

    for kind, kept in ((dtypes.int64, 1), (dtypes.float32, 0)):
        x = weft.ones(2, dtype=kind)
        graph = dead_code(weft.graph.capture(fn, x, x).graph)
        assert len([n for n in graph if n.op is not INPUT]) == kept


def test_state_is_not_written_beside_an_index_that_is_refused():
    """Steps that could run side by side wait for the check."""
    total = weft.zeros(3)

    def step(p, table, i):
        row = table[i]
        total.add_(p)
        return row, total.sum()

    program = weft.compile(step)
    with pytest.raises(IndexError, match="index 7"):
        program(weft.ones(3), weft.ones(4), T([7]))
    assert total.tolist() == [0, 0, 0]
    program(weft.ones(3), weft.ones(4), T([3]))
    assert total.tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
@pytest.mark.parametrize("size", [5, 100, 200, 300])
def test_bounds_that_short_integers_do_not_hold(dtype, size):
    ids = weft.tensor([0, 4, 3], dtype=getattr(weft, dtype))

    def f(x, ids):
        return F.one_hot(ids, size), x.index_select(0, ids), x.index_add(0, ids, x[:3])

    x = weft.arange(float(size))
    want = f(x, ids)
    for fn in (weft.compile(f), weft.graph.capture(f, x, ids)):
        assert all(map(weft.equal, fn(x, ids), want))
